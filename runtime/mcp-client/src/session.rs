//! A connection to one server, on its own thread, for as long as a run needs it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig,
    Implementation, PaginatedRequestParams, ProtocolVersion, Tool,
};
use rmcp::service::{NotificationContext, Peer, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, RoleClient, ServiceError};
use serde_json::Value;
use tokio::sync::{mpsc as orders, oneshot};

use super::faults;
use super::lines::{Cause, Lines, record_cause};
use lobster_base::cancel::{CancelReason, CancelToken};
use lobster_base::credential::CredentialGrant;
use lobster_base::sync::lock;
use lobster_models::http::{self, HeaderName, HeaderValue, Secret, Url};
use lobster_sandbox::{
    Confinement, Exit, ExitStatus, OutputSinks, ProcessLimits, Sandbox, SpawnRequest, Stdin, Upstream,
};

/// Interval at which a waiting caller checks for cancellation.
const LOOK: Duration = Duration::from_millis(20);

/// Time that a program has to end by itself after its stdin was closed.
const FAREWELL: Duration = Duration::from_millis(500);

/// Most pages of a tool list, and most tools in it.
const MAX_PAGES: usize = 100;
const MAX_TOOLS: usize = 4096;

/// Most bytes of a program's stderr that are kept for messages.
const STDERR_TAIL: usize = 4 << 10;

/// Most bytes of a message besides the answer in it.
const FRAME: usize = 64 << 10;

/// A connected server.
pub struct Session {
    orders: Option<orders::UnboundedSender<Order>>,
    tools: Mutex<Vec<Tool>>,
    changed: Arc<AtomicBool>,
    cause: Cause,
    token: Option<Secret>,
    /// Ends the server's program at once.
    kill: CancelToken,
    thread: Option<JoinHandle<()>>,
}

enum Order {
    Call {
        params: Box<CallToolRequestParams>,
        /// The inner error is the server's answer; the outer error means that there is no answer.
        answer: mpsc::SyncSender<Result<Result<CallToolResult, String>, Broken>>,
        /// Dropped when the caller stops waiting.
        wanted: oneshot::Receiver<()>,
    },
    List {
        answer: mpsc::SyncSender<Result<Vec<Tool>, Broken>>,
    },
}

/// The reason why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallProblem {
    #[error("cancelled")]
    Cancelled,
    #[error("no answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    #[error("{0}")]
    Failed(String),
    /// The server answered, with an error.
    #[error("{0}")]
    Refused(String),
    /// The server did nothing, because it lacks a valid login.
    #[error("{}", if *.sent_token { "it does not take the token that it was sent" } else { "it wants a login" })]
    Unauthorized { sent_token: bool },
}

/// The terms for a server, independent of the way to it.
#[derive(Clone, Debug)]
pub struct ServerTerms {
    /// The server's name in messages.
    pub name: String,
    /// Time limit of a call, and of connecting.
    pub timeout: Duration,
    /// Most bytes of an answer.
    pub max_bytes: usize,
}

/// The way to a server.
pub enum Way {
    Program(Box<Launch>),
    /// `credential` describes how the token is sent, if not as a bearer token.
    Address {
        url: Url,
        token: Option<Secret>,
        credential: Option<Box<CredentialGrant>>,
    },
}

/// A server's program, with the decision about it.
pub struct Launch {
    pub sandbox: Arc<Sandbox>,
    pub argv: Vec<String>,
    /// The complete environment.
    pub env: Vec<(OsString, OsString)>,
    pub cwd: PathBuf,
    pub limits: ProcessLimits,
    pub confinement: Confinement,
    /// The proxy inside its jail for the hosts of its credentials.
    pub upstream: Option<Arc<dyn Upstream>>,
    /// Values that have to live as long as the program.
    pub held: Box<dyn Send>,
}

impl Session {
    /// Connects, and requests the list of tools.
    pub fn open(terms: &ServerTerms, way: Way, cancel: &CancelToken) -> Result<Self, CallProblem> {
        let (ready, connected) = mpsc::sync_channel(1);
        let (sender, receiver) = orders::unbounded_channel();
        let (cause, changed) = (Cause::default(), Arc::new(AtomicBool::new(false)));
        let token = match &way {
            Way::Address { token, .. } => token.clone(),
            Way::Program(_) => None,
        };
        let kill = CancelToken::new();
        let work = Connection {
            terms: terms.clone(),
            kill: kill.clone(),
            orders: receiver,
            changed: Arc::clone(&changed),
            cause: Arc::clone(&cause),
        };
        let thread = std::thread::Builder::new()
            .name(format!("mcp {}", terms.name))
            .spawn(move || work.run(way, &ready))
            .map_err(|error| CallProblem::Failed(format!("cannot start a thread: {error}")))?;
        let mut session = Self {
            orders: Some(sender),
            tools: Mutex::default(),
            changed,
            cause,
            token,
            kill,
            thread: Some(thread),
        };
        // The thread has time limits of its own for connecting and for the list.
        match session.wait_for_reply(&connected, terms.timeout.saturating_mul(2) + FAREWELL, cancel) {
            Ok(tools) => session.tools = Mutex::new(tools),
            Err(problem) => {
                session.cut_off("the caller no longer waits for the connection");
                return Err(problem);
            }
        }
        Ok(session)
    }

    /// The server's current description of the tool of this name.
    pub fn find_tool(&self, name: &str, cancel: &CancelToken) -> Result<Option<Tool>, CallProblem> {
        if self.changed.swap(false, Ordering::Relaxed) {
            let (answer, listed) = mpsc::sync_channel(1);
            self.send_order(Order::List { answer })?;
            let tools = self.wait_for_reply(&listed, Duration::from_secs(30), cancel)?;
            *lock(&self.tools) = tools;
        }
        Ok(self.listed_tools().into_iter().find(|tool| tool.name == name))
    }

    pub fn listed_tools(&self) -> Vec<Tool> {
        lock(&self.tools).clone()
    }

    /// True if further calls would be useless.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished) || lock(&self.cause).is_some()
    }

    /// Ends the program at once; waiting calls get `why` as the reason.
    pub fn cut_off(&self, why: &str) {
        record_cause(&self.cause, why);
        self.kill.force_cancel(CancelReason::Superseded);
    }

    pub fn call_tool(
        &self,
        params: CallToolRequestParams,
        timeout: Duration,
        cancel: &CancelToken,
    ) -> Result<CallToolResult, CallProblem> {
        let (answer, given) = mpsc::sync_channel(1);
        let (_waiting, wanted) = oneshot::channel();
        self.send_order(Order::Call { params: Box::new(params), answer, wanted })?;
        self.wait_for_reply(&given, timeout, cancel)?.map_err(CallProblem::Refused)
    }

    /// A text of the server's, without the token that it was given.
    pub fn mask_token(&self, text: &str) -> String {
        self.token.as_ref().map_or_else(|| text.to_owned(), |token| token.mask_text(text))
    }

    /// A value of the server's, without that token in its texts.
    pub fn masked_value(&self, mut value: Value) -> Value {
        if let Some(token) = &self.token {
            token.mask_value(&mut value);
        }
        value
    }

    fn send_order(&self, order: Order) -> Result<(), CallProblem> {
        let sent = self.orders.as_ref().is_some_and(|orders| orders.send(order).is_ok());
        if sent { Ok(()) } else { Err(CallProblem::Failed(self.end_reason())) }
    }

    fn wait_for_reply<T>(
        &self,
        from: &mpsc::Receiver<Result<T, Broken>>,
        timeout: Duration,
        cancel: &CancelToken,
    ) -> Result<T, CallProblem> {
        let begun = Instant::now();
        loop {
            match from.recv_timeout(LOOK) {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(Broken { is_unauthorized: true, .. })) => {
                    return Err(CallProblem::Unauthorized { sent_token: self.token.is_some() });
                }
                Ok(Err(broken)) => return Err(CallProblem::Failed(broken.message)),
                Err(RecvTimeoutError::Disconnected) => return Err(CallProblem::Failed(self.end_reason())),
                Err(RecvTimeoutError::Timeout) if cancel.is_cancelled() => {
                    return Err(CallProblem::Cancelled);
                }
                Err(RecvTimeoutError::Timeout) if begun.elapsed() >= timeout => {
                    return Err(CallProblem::TimedOut(timeout));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn end_reason(&self) -> String {
        let cause = lock(&self.cause).clone();
        cause.unwrap_or_else(|| "the server has closed the connection".to_owned())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // The thread ends within the farewell and the grace time of a kill.
            let _ = thread.join();
        }
    }
}

/// The part of a session that its thread owns.
struct Connection {
    terms: ServerTerms,
    kill: CancelToken,
    orders: orders::UnboundedReceiver<Order>,
    changed: Arc<AtomicBool>,
    cause: Cause,
}

type Ready = mpsc::SyncSender<Result<Vec<Tool>, Broken>>;

/// The reason why a request has no answer.
struct Broken {
    message: String,
    /// True if the server did nothing for lack of a valid login.
    is_unauthorized: bool,
    /// True if the server does not know the handshake.
    knows_no_handshake: bool,
}

impl From<String> for Broken {
    fn from(message: String) -> Self {
        Self { message, is_unauthorized: false, knows_no_handshake: false }
    }
}

impl From<&ServiceError> for Broken {
    fn from(error: &ServiceError) -> Self {
        let is_unauthorized = faults::request_refused(error);
        Self { is_unauthorized, ..faults::explain_request(error).into() }
    }
}

/// A running connection.
type Service = RunningService<RoleClient, Client>;

impl Connection {
    fn run(self, way: Way, ready: &Ready) {
        let done = match way {
            Way::Program(launch) => self.connect_to_program(*launch, ready),
            Way::Address { url, token, credential } => {
                self.connect_to_address(&url, token.as_ref(), credential.as_deref(), ready)
            }
        };
        if let Err(broken) = done {
            let _ = ready.try_send(Err(broken));
        }
    }

    fn connect_to_address(
        mut self,
        url: &Url,
        token: Option<&Secret>,
        credential: Option<&CredentialGrant>,
        ready: &Ready,
    ) -> Result<(), Broken> {
        let client = http::client_for(url).map_err(|error| error.to_string())?.clone();
        let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
        config.max_sse_event_size = self.terms.max_bytes.saturating_add(FRAME);
        // A call that was answered with 404 may have been done, so the run decides if it is repeated.
        config.reinit_on_expired_session = false;
        match (token, credential) {
            (Some(token), Some(grant)) => config = config.custom_headers(header_of(grant, token)?),
            (Some(token), None) => config = config.auth_header(token.reveal()),
            (None, _) => {}
        }
        let shown = http::redacted_address(url);
        tokio_runtime()?.block_on(async {
            let transport = || StreamableHttpClientTransport::with_client(client.clone(), config.clone());
            // Most servers know the handshake, and some fail on anything else.
            let mut connected =
                self.perform_handshake(transport(), ClientLifecycleMode::Initialize, &shown).await;
            if let Err(Broken { knows_no_handshake: true, .. }) = &connected {
                let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
                let way = ClientLifecycleMode::Discover { preferred_versions };
                connected = self.perform_handshake(transport(), way, &shown).await;
            }
            self.execute_orders(connected?, ready, &shown).await
        })
    }

    fn connect_to_program(mut self, launch: Launch, ready: &Ready) -> Result<(), Broken> {
        let io = |error: io::Error| format!("cannot open a pipe: {error}");
        let (stdin, to) = io::pipe().map_err(io)?;
        let (from, stdout) = io::pipe().map_err(io)?;
        let kill = self.kill.clone();
        let request = SpawnRequest {
            argv: launch.argv.iter().map(OsString::from).collect(),
            env: launch.env,
            cwd: launch.cwd,
            stdin: Stdin::File(File::from(OwnedFd::from(stdin))),
            // A server lives as long as its run; its calls have time limits of their own.
            limits: ProcessLimits { wall: None, ..launch.limits },
            confinement: launch.confinement,
            upstream: launch.upstream,
        };
        let (over, ended) = mpsc::sync_channel::<()>(1);
        let (token, cause, sandbox) = (kill.clone(), Arc::clone(&self.cause), launch.sandbox);
        let held = launch.held;
        let program = std::thread::Builder::new().name("mcp program".to_owned()).spawn(move || {
            let mut sinks = Sinks { stdout, stderr: Vec::new() };
            let ran = sandbox.run(&request, &mut sinks, &token).map_err(|error| error.to_string());
            record_cause(&cause, how_it_ended(ran.as_ref().map_err(Clone::clone), &sinks.stderr));
            drop((sinks, request, held));
            let _ = over.send(());
        });
        let program = program.map_err(|error| format!("cannot start a thread: {error}"))?;
        let (max, cause) = (self.terms.max_bytes.saturating_add(FRAME), Arc::clone(&self.cause));
        let shown = launch.argv.join(" ");
        let served = tokio_runtime().map_err(Broken::from).and_then(|runtime| {
            runtime.block_on(async {
                let from = tokio::net::unix::pipe::Receiver::from_owned_fd(from.into()).map_err(io)?;
                let to = tokio::net::unix::pipe::Sender::from_owned_fd(to.into()).map_err(io)?;
                let lines = Lines::new(from, to, max, cause);
                let service = self.perform_handshake(lines, ClientLifecycleMode::Initialize, &shown).await?;
                self.execute_orders(service, ready, &shown).await
            })
        });
        // Its stdin is closed now. A program that does not end by itself is killed.
        if ended.recv_timeout(FAREWELL).is_err() {
            kill.cancel(CancelReason::Superseded);
        }
        let _ = program.join();
        served
    }

    /// Connects with the handshake of servers before 2026-07-28, or with the request that replaced it.
    async fn perform_handshake<T>(
        &mut self,
        transport: T,
        way: ClientLifecycleMode,
        shown: &str,
    ) -> Result<Service, Broken>
    where
        T: rmcp::transport::Transport<RoleClient> + Send + 'static,
    {
        let client = Client { changed: Arc::clone(&self.changed) };
        let limit = self.terms.timeout;
        let connecting = tokio::time::timeout(limit, client.serve_with_lifecycle(transport, way));
        let connected = tokio::select! {
            connected = connecting => connected,
            // There are no orders before the tools are known, so this means that the connecting step has ended.
            _ = self.orders.recv() => return Err(abandoned_error(shown)),
        };
        match connected {
            Ok(Ok(service)) => Ok(service),
            Ok(Err(error)) => {
                // The cause of a broken connection is often more precise.
                let cause = wait_for_cause(&self.cause).await;
                let why = cause.unwrap_or_else(|| faults::explain_connecting(&error));
                let message = format!("no connection to {shown}: {why}");
                Err(Broken {
                    message,
                    is_unauthorized: faults::connecting_refused(&error),
                    knows_no_handshake: faults::knows_no_handshake(&error),
                })
            }
            Err(_) => Err(format!("{shown} has not answered within {} ms", limit.as_millis()).into()),
        }
    }

    /// Reports that it is ready, and executes orders until their sender is dropped.
    async fn execute_orders(mut self, service: Service, ready: &Ready, shown: &str) -> Result<(), Broken> {
        let limit = self.terms.timeout;
        let listed = tokio::select! {
            listed = tokio::time::timeout(limit, list_tools(&service)) => listed,
            _ = self.orders.recv() => return Err(abandoned_error(shown)),
        };
        let tools = match listed {
            Ok(Ok(tools)) => tools,
            Ok(Err(broken)) => {
                let message = format!("{shown} does not list its tools: {}", broken.message);
                return Err(Broken { message, ..broken });
            }
            Err(_) => {
                let message = format!("{shown} has not listed its tools within {} ms", limit.as_millis());
                return Err(message.into());
            }
        };
        if ready.try_send(Ok(tools)).is_err() {
            return Ok(());
        }
        while let Some(order) = self.orders.recv().await {
            let peer = service.peer().clone();
            let cause = Arc::clone(&self.cause);
            tokio::spawn(execute_order(peer, order, cause));
        }
        let _ = tokio::time::timeout(FAREWELL, service.cancel()).await;
        Ok(())
    }
}

fn abandoned_error(shown: &str) -> Broken {
    format!("the caller no longer waits for the connection to {shown}").into()
}

/// The reason for an end, which may become known a little later.
async fn wait_for_cause(cause: &Cause) -> Option<String> {
    for _ in 0..15 {
        if let Some(known) = lock(cause).clone() {
            return Some(known);
        }
        tokio::time::sleep(LOOK).await;
    }
    None
}

async fn execute_order(peer: Peer<RoleClient>, order: Order, cause: Cause) {
    match order {
        Order::Call { params, answer, wanted } => {
            let given = tokio::select! {
                given = peer.call_tool_once(*params) => given,
                // Dropping the request cancels it at the server.
                _ = wanted => return,
            };
            let given = match given {
                Ok(CallToolResponse::Complete(result)) => Ok(Ok(result)),
                Ok(_) => {
                    let message = "the tool requests input from its caller, which lobster does not support";
                    Ok(Err(message.to_owned()))
                }
                Err(ServiceError::McpError(error)) => Ok(Err(ServiceError::McpError(error).to_string())),
                Err(error) => {
                    if faults::has_lost_session(&error) {
                        // The next call opens a new connection.
                        record_cause(&cause, faults::SESSION_LOST);
                    }
                    let mut broken = Broken::from(&error);
                    if peer.is_transport_closed()
                        && let Some(cause) = wait_for_cause(&cause).await
                    {
                        broken.message = cause;
                    }
                    Err(broken)
                }
            };
            let _ = answer.try_send(given);
        }
        Order::List { answer } => {
            let _ = answer.try_send(list_tools(&peer).await);
        }
    }
}

/// The header with a credential; its value is never logged.
fn header_of(grant: &CredentialGrant, token: &Secret) -> Result<HashMap<HeaderName, HeaderValue>, String> {
    let value = grant.header_value(token.reveal()).map_err(|error| error.to_string())?;
    let unfit = || format!("the credential for {} does not fit into a header", grant.host);
    let name = HeaderName::from_bytes(grant.header.as_bytes()).map_err(|_| unfit())?;
    let mut value = HeaderValue::from_str(&value).map_err(|_| unfit())?;
    value.set_sensitive(true);
    Ok(HashMap::from([(name, value)]))
}

async fn list_tools(peer: &Peer<RoleClient>) -> Result<Vec<Tool>, Broken> {
    let (mut tools, mut cursor) = (Vec::new(), None);
    for _ in 0..MAX_PAGES {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        let listed = peer.list_tools(Some(page)).await.map_err(|error| Broken::from(&error))?;
        tools.extend(listed.tools);
        cursor = listed.next_cursor;
        if cursor.is_none() && tools.len() <= MAX_TOOLS {
            return Ok(tools);
        }
        if tools.len() > MAX_TOOLS {
            break;
        }
    }
    Err(format!("it lists more than {MAX_TOOLS} tools, or more than {MAX_PAGES} pages of them").into())
}

fn tokio_runtime() -> Result<tokio::runtime::Runtime, String> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| format!("cannot start: {error}"))
}

/// This side's description of itself: it offers a server nothing.
struct Client {
    changed: Arc<AtomicBool>,
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let own = Implementation::new("lobster", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), own)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.store(true, Ordering::Relaxed);
    }
}

struct Sinks {
    stdout: PipeWriter,
    stderr: Vec<u8>,
}

impl OutputSinks for Sinks {
    fn write_stdout(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.stdout.write_all(chunk)
    }

    fn write_stderr(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.stderr.extend_from_slice(&chunk[chunk.len().saturating_sub(STDERR_TAIL)..]);
        let over = self.stderr.len().saturating_sub(STDERR_TAIL);
        self.stderr.drain(..over);
        Ok(())
    }
}

fn how_it_ended(ran: Result<&Exit, String>, stderr: &[u8]) -> String {
    let how = match ran {
        Err(message) => return message,
        Ok(exit) => match exit.status {
            ExitStatus::Code(code) => format!("the server has ended with exit code {code}"),
            ExitStatus::Signal(signal) => format!("the server was ended by signal {signal}"),
        },
    };
    let said = String::from_utf8_lossy(stderr);
    if said.trim().is_empty() { how } else { format!("{how}: {}", said.trim()) }
}
