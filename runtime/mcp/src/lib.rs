//! Serves workflows, components and runs to agents over the Model Context Protocol.
//!
//! An interface like the command line: it reads requests, calls the runtime and shows the results. It
//! refuses requests that agents must not make, but decides nothing else about what may run, and never
//! answers a gate by itself.

mod answers;
mod bounded;
mod builtin;
mod call;
mod catalogue;
mod endpoint;
mod gates;
mod guard;
mod hints;
mod history;
pub mod http;
mod listen;
mod schema;
mod server;
mod service;
mod sessions;
mod shared;
mod stdio;
mod tasks;
mod turns;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lobster_runtime::cancel::{CancelReason, CancelToken};
use lobster_runtime::code::Code;
use lobster_runtime::envelope::Failure;
use lobster_runtime::runtime::Runtime;
use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;

pub use gates::Approvals;
pub use service::Front;

/// Stack size of the threads of calls: as large as the main thread's.
const STACK: usize = 256 << 20;

/// Time for calls to end when the server ends.
const LAST_CALLS: Duration = Duration::from_secs(15);

/// The options of a server.
pub struct Options {
    /// Directories of the operator's workflows.
    pub workflows: Vec<PathBuf>,
    /// Directories of the operator's components.
    pub components: Vec<PathBuf>,
    /// True if the tool `run` exists, which runs text written by the caller.
    pub run: bool,
    /// Pipeline commands that act in this process and are allowed under a policy.
    pub allowed: Vec<String>,
    /// The directory that calls cannot leave.
    pub root: PathBuf,
    pub approvals: Approvals,
    /// Time limit of calls that name none: of `run`, and of typed tools.
    pub timeout: Option<Duration>,
    /// True if agents see and answer runs that others started.
    pub all_runs: bool,
    /// Shows a line to the operator.
    pub say: fn(&str),
}

/// Serves until the client on the standard streams disconnects, or over HTTP until a signal.
///
/// # Errors
/// If the store cannot be used, the address cannot be listened on, or the client breaks the protocol.
pub fn serve(runtime: Runtime, options: Options, http: Option<http::Options>) -> Result<(), Failure> {
    let cancel = runtime.cancel().clone();
    // Opens the store before the first call, so that its errors appear at the start.
    runtime.store()?;
    let shared = Arc::new(shared::Shared::new(runtime, options, None));
    let tokio = tokio_runtime()?;
    let result = tokio.block_on(async {
        let session = cancel.child_token();
        let folders = tokio::spawn(Arc::clone(&shared).watch_tools());
        let result = match http {
            None => serve_stdio(Arc::clone(&shared), &session).await,
            Some(http) => http::serve(Arc::clone(&shared), http, session.clone()).await,
        };
        folders.abort();
        session.cancel(CancelReason::Lost("the server ends".to_owned()));
        shared.ending.cancel(CancelReason::Lost("the server ends".to_owned()));
        shared.turns.wait_until_quiet(LAST_CALLS).await;
        result
    });
    // A thread that still waits for a line of input must not keep the process alive.
    tokio.shutdown_background();
    result
}

async fn serve_stdio(shared: Arc<shared::Shared>, session: &CancelToken) -> Result<(), Failure> {
    let server = server::McpServer::new(shared, session.clone());
    let begun = tokio::select! {
        begun = server.serve(stdio::StdioLines::new(session.clone())) => begun,
        () = session.cancelled() => return Ok(()),
    };
    let service = match begun {
        Ok(service) => service,
        // A client that disconnects before its first request is not an error.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(work_failure(format!("the client cannot be served: {error}"))),
    };
    let ended = service.cancellation_token();
    let mut waiting = std::pin::pin!(service.waiting());
    tokio::select! {
        _ = &mut waiting => return Ok(()),
        () = session.cancelled() => ended.cancel(),
    }
    // Calls that are ending still answer.
    let _ = tokio::time::timeout(LAST_CALLS, waiting).await;
    Ok(())
}

fn tokio_runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_stack_size(STACK)
        .thread_keep_alive(Duration::from_secs(10))
        .build()
        .map_err(|error| work_failure(format!("cannot start: {error}")))
}

/// The error of work that failed.
fn work_failure(message: impl fmt::Display) -> Failure {
    Failure::new(Code::Failed, message.to_string())
}

/// The error of a request that was wrong.
fn request_failure(message: impl fmt::Display) -> Failure {
    Failure::parse_error(message.to_string()).with_code(Code::Request)
}
