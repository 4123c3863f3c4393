//! The server for all transports: lists tools and runs them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lobster_runtime::cancel::CancelToken;
use lobster_runtime::code::Code;
use lobster_runtime::digest::Digest;
use lobster_runtime::engine::{Author, Caller, TOKEN_MODE};
use lobster_runtime::envelope::Failure;
use lobster_runtime::replay::{GateRef, ResumeRequest};
use lobster_runtime::sync::lock;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, CompleteRequestMethod,
    CompleteRequestParams, CompleteResult, CustomRequest, CustomResult, ErrorCode, ErrorData, GetTaskParams,
    GetTaskResult, Implementation, JsonObject, ListPromptsRequestMethod, ListPromptsResult,
    ListResourceTemplatesRequestMethod, ListResourceTemplatesResult, ListResourcesRequestMethod,
    ListResourcesResult, ListToolsResult, MetaObject, PaginatedRequestParams, ProtocolVersion,
    ServerCapabilities, ServerConfig, SubscriptionFilter, Tool, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::answers::Brought;
use super::builtin::{self, Bounds, BuiltinTool, CancelArgs, ResumeArgs, RunArgs, RunsArgs, ShowArgs};
use super::call::{self, CallAnswer, CallLimits, CallPlace, Ending, Forwarder, Work, tool_refusal};
use super::catalogue::{self, Catalogue, CatalogueEntry, DIGEST, ToolProgram};
use super::gates::{Approvals, ClientAnswer};
use super::http::ClientIdentity;
use super::schema::Layout;
use super::service::{Agent, WantedStart};
use super::shared::Shared;
use super::turns::CallTurn;
use super::{guard, history, service, tasks};

/// The methods that the server implements.
const SERVED: [&str; 7] = [
    "server/discover",
    "subscriptions/listen",
    "tasks/cancel",
    "tasks/get",
    "tasks/update",
    "tools/call",
    "tools/list",
];

/// Methods of a session that begins with a handshake, which protocol 2026-07-28 no longer has.
const SERVED_IN_SESSIONS: [&str; 2] = ["initialize", "ping"];

/// One session.
pub(super) struct McpServer {
    pub(super) shared: Arc<Shared>,
    /// The catalogue that this session listed.
    listed: Mutex<Option<Arc<Catalogue>>>,
    /// Ends the work of this session.
    cancel: CancelToken,
    /// Cancelled when the session ends, if that does not end its work.
    session: Option<CancelToken>,
}

impl McpServer {
    pub(super) fn new(shared: Arc<Shared>, cancel: CancelToken) -> Self {
        Self { shared, listed: Mutex::default(), cancel, session: None }
    }

    /// The same server with a separate token for its session's end.
    pub(super) fn with_session(self, session: CancelToken) -> Self {
        Self { session: Some(session), ..self }
    }

    fn listed_catalogue(&self) -> Arc<Catalogue> {
        let own = lock(&self.listed).clone();
        own.unwrap_or_else(|| Arc::clone(&lock(&self.shared.listed)))
    }

    /// The listed tool, if it has not changed.
    fn find_unchanged(&self, name: &str, pin: Option<&str>) -> Result<Arc<CatalogueEntry>, Refused> {
        let listed = self.listed_catalogue();
        let Some(entry) = listed.entries.get(name).cloned() else {
            let known = self.shared.current_catalogue().entries.contains_key(name);
            let help = if known { "it is new; call tools/list first" } else { "tools/list lists the tools" };
            return Err(Refused::Unknown(format!("Unknown tool: {name} ({help})")));
        };
        let wanted = pin.map(|pin| pin.strip_prefix("blake3:").unwrap_or(pin).to_owned());
        if wanted.is_some_and(|wanted| wanted != entry.digest.to_string()) {
            return Err(Refused::Changed(
                entry,
                "the call has a different digest than the listed tool".into(),
            ));
        }
        if listed.is_entry_stale(&entry) {
            let now = self.shared.current_catalogue().entries.get(name).cloned();
            if now.as_ref().is_none_or(|now| now.digest != entry.digest) {
                let difference = catalogue::describe_difference(&entry, now.as_deref());
                return Err(Refused::Changed(entry, difference));
            }
        }
        Ok(entry)
    }

    pub(super) fn identify_caller(&self, context: &RequestContext<RoleServer>, tool: &str) -> Caller {
        let client = context.client_info();
        let name = client.as_ref().map_or("client", |client| client.name.as_str());
        let mut detail = json!({
            "via": "mcp",
            "client": client.as_ref().map(|client| json!({"name": client.name, "version": client.version})),
            "tool": tool,
        });
        if self.shared.options.approvals == Approvals::Token {
            detail["approvals"] = json!(TOKEN_MODE);
        }
        if let Some(agent) = Agent::from_context(context) {
            return Caller { actor: agent.name(), detail };
        }
        let identity = ClientIdentity::from_context(context);
        let name =
            identity.as_ref().map_or_else(|| client_name(name), |identity| client_name(&identity.name));
        let actor = std::env::var("LOBSTER_ACTOR").ok().filter(|actor| !actor.trim().is_empty());
        // A token's name given by the operator tells clients apart that otherwise have the operator's
        // own name.
        let actor = actor.filter(|_| identity.is_none_or(|identity| !identity.is_named));
        Caller { actor: Some(actor.unwrap_or_else(|| format!("mcp:{name}"))), detail }
    }

    /// Answers a call of a tool of the operator's directories, or of `run`.
    pub(super) async fn perform_call(
        &self,
        call: Prepared,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResponse {
        let Prepared { mut work, place, limits, entry } = call;
        self.shared.has_worked.store(true, Ordering::Relaxed);
        let forwarder = Forwarder::new(context);
        let mut patience = limits.time;
        loop {
            let run = self.run_once(work, &place, (limits, patience), context, forwarder.as_ref());
            let answer = run.await;
            if answer.changed {
                let now = self.shared.current_catalogue().entries.get(&*entry.tool.name).cloned();
                return self
                    .refuse_changed(&entry, &catalogue::describe_difference(&entry, now.as_deref()), &place)
                    .into();
            }
            let Some(question) = answer.pending_request().cloned() else {
                return answer.into_result().into();
            };
            match self.ask_user(&question, context).await {
                ClientAnswer::Answered(reply) => {
                    let Some(token) = question.get("resumeToken").and_then(Value::as_str) else {
                        return answer.into_result().into();
                    };
                    let gate = GateRef::Token(token.to_owned());
                    let author = Some(Author::of_client(place.caller.actor.as_deref()));
                    work = Work::Resume(ResumeRequest { gate, reply, author });
                    // A person's answer must not be lost because other calls are running.
                    patience = None;
                }
                ClientAnswer::Later(result) => return (*result).into(),
                ClientAnswer::Open(note) => return self.waiting_result(answer, &note).into(),
            }
        }
    }

    /// Does the work until it is done or asks a question. It holds a turn only meanwhile: other calls
    /// may run while a person thinks.
    async fn run_once(
        &self,
        work: Work,
        place: &CallPlace,
        (limits, patience): (CallLimits, Option<Duration>),
        context: &RequestContext<RoleServer>,
        forwarder: Option<&Forwarder>,
    ) -> CallAnswer {
        let ending = Ending::new(&self.cancel, context);
        let (progress, forwarding) = match forwarder.map(Forwarder::start_forwarding) {
            Some((progress, task)) => (Some(progress), Some(task)),
            None => (None, None),
        };
        let cancel = ending.cancel.clone();
        let answer = match work {
            Work::Start(wanted) => {
                let ends = (cancel, self.session.clone());
                service::run(*wanted, place.caller.detail.clone(), limits.time, ends, progress).await
            }
            work => match self.wait_for_turn(place, patience, &cancel).await {
                Ok(turn) => {
                    let runtime = &self.shared.runtime;
                    call::run(runtime, place.clone(), work, limits, cancel, progress, turn).await
                }
                Err(answer) => {
                    // There is nothing left to report.
                    drop(progress);
                    *answer
                }
            },
        };
        if let Some(mut task) = forwarding {
            // Progress is sent before the answer, unless the client does not read it.
            if tokio::time::timeout(Duration::from_millis(500), &mut task).await.is_err() {
                task.abort();
            }
        }
        answer
    }

    /// Waits for a turn of the caller. Returns it with the beginning of its time, or the answer to the
    /// client.
    async fn wait_for_turn(
        &self,
        place: &CallPlace,
        patience: Option<Duration>,
        cancel: &CancelToken,
    ) -> Result<(CallTurn, Instant), Box<CallAnswer>> {
        let begun = Instant::now();
        let nothing = |code, message: String| Box::new(CallAnswer::failed(None, Failure::new(code, message)));
        let over = async {
            match patience {
                Some(patience) => tokio::time::sleep(patience).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            turn = self.shared.turns.take_turn(place.caller.actor.as_deref()) => match turn {
                // After a wait without a limit, the whole time remains.
                Some(turn) if patience.is_none() => Ok((turn, Instant::now())),
                Some(turn) => Ok((turn, begun)),
                None => Err(nothing(Code::Failed, "the server is ending".to_owned())),
            },
            () = over => Err(nothing(
                Code::Timeout,
                format!(
                    "the server is busy: no other call ended within {} ms, and nothing of this one was done",
                    begun.elapsed().as_millis()
                ),
            )),
            () = cancel.cancelled() => Err(nothing(Code::Failed, "the call was cancelled".to_owned())),
        }
    }

    fn refuse_changed(&self, entry: &CatalogueEntry, difference: &str, place: &CallPlace) -> CallToolResult {
        let name = &entry.tool.name;
        let message = format!("the tool {name} is not what was listed: {difference}; list the tools again");
        self.record_refusal(
            place,
            name,
            &message,
            &json!({ "tool": name, "listed": entry.digest.to_string() }),
        );
        tool_refusal("tool_changed", message)
    }

    /// Records a refused request, for the operator.
    pub(super) fn record_refusal(&self, place: &CallPlace, name: &str, reason: &str, request: &Value) {
        let runtime = self.shared.runtime.for_call(lobster_runtime::call::Call {
            cwd: place.cwd.clone(),
            caller: place.caller.clone(),
            cancel: CancelToken::new(),
            notes: Box::new(|_| {}),
            progress: None,
        });
        if let Err(error) = runtime.record_refusal(&format!("mcp {name}"), reason, request) {
            (self.shared.options.say)(&format!("warning: a refusal cannot be recorded: {error}"));
        }
    }

    /// The work of a call of a typed tool.
    fn typed_work(
        &self,
        entry: &CatalogueEntry,
        given: JsonObject,
        agent: Option<Agent>,
    ) -> Result<Work, String> {
        match &entry.program {
            ToolProgram::Builtin(_) => Err("no typed tool".to_owned()),
            ToolProgram::Registered { name } => {
                check_arguments(&entry.tool, &given)?;
                let agent = agent.ok_or("only an agent of the service can call this")?;
                let (name, args) = (name.clone(), Value::Object(given));
                Ok(Work::Start(Box::new(WantedStart { agent, name, listed: entry.runs, args })))
            }
            ToolProgram::Workflow { file } => {
                check_arguments(&entry.tool, &given)?;
                Ok(Work::File { file: file.clone(), args: Value::Object(given), pinned: Some(entry.runs) })
            }
            ToolProgram::Component { component, layout, .. } => {
                let mut given = given;
                let input = given.remove("input").filter(|input| !input.is_null());
                let args = match layout {
                    Layout::Flat => given,
                    Layout::Nested => nested_arguments(given)?,
                };
                let digest = Digest::from(component.digest());
                Ok(Work::Component { digest, name: entry.tool.name.to_string(), args, input })
            }
        }
    }

    async fn call_builtin(
        &self,
        builtin: BuiltinTool,
        entry: Arc<CatalogueEntry>,
        request: CallToolRequestParams,
        place: CallPlace,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResponse {
        let given = request.arguments;
        let answered = async {
            Ok::<CallToolResponse, String>(match builtin {
                BuiltinTool::Run => {
                    let args: RunArgs = builtin::parse_arguments(builtin, given.clone())?;
                    // A client that can ask for the state later needs no time limit.
                    let usual =
                        (!tasks::are_known_to(context)).then_some(Duration::from_millis(call::TIMEOUT_MS));
                    match self.prepare_run(args, Arc::clone(&entry), &place, usual) {
                        Ok(call) => self.work_or_task(call, context).await,
                        Err(message) => {
                            self.record_refusal(&place, "run", &message, &json!(given));
                            tool_refusal("refused", message).into()
                        }
                    }
                }
                BuiltinTool::Resume => {
                    let args: ResumeArgs = builtin::parse_arguments(builtin, given.clone())?;
                    self.resume_run(args, Arc::clone(&entry), place.clone(), context).await
                }
                BuiltinTool::Runs => {
                    let args: RunsArgs = builtin::parse_arguments(builtin, given.clone())?;
                    self.read_history(&place, context, move |history| history.list_runs(&args)).await.into()
                }
                BuiltinTool::Show => {
                    let args: ShowArgs = builtin::parse_arguments(builtin, given.clone())?;
                    self.read_history(&place, context, move |history| history.show_run(&args)).await.into()
                }
                BuiltinTool::Cancel => {
                    let args: CancelArgs = builtin::parse_arguments(builtin, given.clone())?;
                    let cancel = move |history: &history::History| match &history.agent {
                        Some(agent) => agent.cancel_run(&args.run),
                        None => Err("only an agent of the service can call this".to_owned()),
                    };
                    self.read_history(&place, context, cancel).await.into()
                }
            })
        };
        answered.await.unwrap_or_else(|message| {
            // Invalid requests are recorded as well: they may have asked for something forbidden.
            self.record_refusal(&place, &entry.tool.name, &message, &json!(given));
            tool_refusal("parse_error", message).into()
        })
    }

    fn prepare_run(
        &self,
        args: RunArgs,
        entry: Arc<CatalogueEntry>,
        place: &CallPlace,
        usual: Option<Duration>,
    ) -> Result<Prepared, String> {
        let options = &self.shared.options;
        let cwd = options.resolve_cwd(args.cwd.as_deref())?;
        let limits = self.call_limits(args.bounds, usual)?;
        let work = match options.check_request(&self.shared.runtime, &args, &cwd)? {
            guard::AgentRequest::Pipeline(text) => Work::Pipeline { text },
            guard::AgentRequest::File(file) => {
                Work::File { file, args: args.args.unwrap_or_else(|| json!({})), pinned: None }
            }
        };
        Ok(Prepared { work, place: CallPlace { cwd, ..place.clone() }, limits, entry })
    }

    pub(super) fn call_limits(&self, bounds: Bounds, usual: Option<Duration>) -> Result<CallLimits, String> {
        if bounds.timeout_ms.is_some_and(|ms| ms < call::MIN_TIMEOUT_MS) {
            return Err(format!("timeoutMs must be at least {}", call::MIN_TIMEOUT_MS));
        }
        if bounds.max_stdout_bytes.is_some_and(|max| max < call::MIN_ANSWER) {
            return Err(format!("maxStdoutBytes must be at least {}", call::MIN_ANSWER));
        }
        let time = bounds.timeout_ms.map(Duration::from_millis).or(self.shared.options.timeout).or(usual);
        Ok(CallLimits { time, answer: bounds.max_stdout_bytes.unwrap_or(call::MAX_ANSWER) })
    }

    async fn read_history(
        &self,
        place: &CallPlace,
        context: &RequestContext<RoleServer>,
        look: impl FnOnce(&history::History) -> Result<Value, String> + Send + 'static,
    ) -> CallToolResult {
        let store = match self.shared.runtime.store() {
            Ok(store) => store,
            Err(error) => return tool_refusal("runtime_error", error.to_string()),
        };
        let of = place.caller.actor.clone().filter(|_| !self.shared.options.all_runs);
        let history = history::History { store, of, agent: Agent::from_context(context) };
        let done = tokio::task::spawn_blocking(move || look(&history)).await;
        match done {
            Ok(Ok(value)) => call::tool_result(value, false),
            Ok(Err(message)) => tool_refusal("parse_error", message),
            Err(error) => tool_refusal("runtime_error", error.to_string()),
        }
    }
}

/// A call that is ready to run.
pub(super) struct Prepared {
    pub(super) work: Work,
    pub(super) place: CallPlace,
    pub(super) limits: CallLimits,
    pub(super) entry: Arc<CatalogueEntry>,
}

enum Refused {
    Unknown(String),
    Changed(Arc<CatalogueEntry>, String),
}

/// A client's name for the history: its own statement, short and on one line.
fn client_name(name: &str) -> String {
    let name: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
    if name.trim().is_empty() { "client".to_owned() } else { name }
}

/// Checks the arguments of a workflow's tool against its declaration.
fn check_arguments(tool: &Tool, given: &JsonObject) -> Result<(), String> {
    let schema = lobster_runtime::schema::Schema::compile(&Value::Object((*tool.input_schema).clone()))?;
    match schema.first_error(&Value::Object(given.clone())) {
        None => Ok(()),
        Some(error) => Err(format!("arguments of {} do not fit: {error}", tool.name)),
    }
}

fn nested_arguments(mut given: JsonObject) -> Result<Map<String, Value>, String> {
    let args = given.remove("args").unwrap_or_else(|| json!({}));
    if let Some(other) = given.keys().next() {
        return Err(format!("unknown argument {other:?}; the step's own arguments go under `args`"));
    }
    match args {
        Value::Object(args) => Ok(args),
        other => Err(format!("`args` must be an object, not {other}")),
    }
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let catalogue = self.listed_catalogue();
        let digest = catalogue.digest.map(|digest| digest.to_string()).unwrap_or_default();
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_tool_list_changed().enable_tasks().build();
        let answers = match self.shared.options.approvals {
            Approvals::Elicit => "A run that needs an approval asks the user through the client.",
            Approvals::Token => {
                "A run that needs an approval answers `needs_approval`: ask the user, then call `resume` with \
                 the token and the user's answer. Never approve by yourself."
            }
            Approvals::Operator => {
                "A run that needs an approval answers `needs_approval`; the operator answers it, and `show` \
                 shows how the run continued."
            }
        };
        let instructions = format!(
            "lobster runs workflows and pipelines as recorded operations under the operator's policy. Every \
             call answers with an envelope: `ok`, `status`, `output`. {answers} Tools: blake3:{digest}"
        );
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("lobster", env!("CARGO_PKG_VERSION")))
            .with_instructions(instructions)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let shared = Arc::clone(&self.shared);
        let catalogue = tokio::task::spawn_blocking(move || shared.current_catalogue())
            .await
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        *lock(&self.listed) = Some(Arc::clone(&catalogue));
        *lock(&self.shared.listed) = Arc::clone(&catalogue);
        let agent = Agent::from_context(&context);
        let is_seen =
            |entry: &CatalogueEntry| agent.as_ref().is_none_or(|agent| agent.may_use(&entry.program));
        let mut result = ListToolsResult::with_all_items(catalogue.visible_tools(is_seen));
        let digest = catalogue.digest.map(|digest| format!("blake3:{digest}"));
        result.meta = Some(MetaObject(Map::from_iter([(DIGEST.to_owned(), json!(digest))])));
        Ok(result)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let caller = self.identify_caller(&context, &request.name);
        let place = CallPlace { cwd: self.shared.options.root.clone(), caller };
        // If others no longer see this store, nothing is read from it or done with it.
        if let Err(error) = self.shared.runtime.store().and_then(|store| store.check_identity()) {
            return Ok(tool_refusal("runtime_error", error.to_string()).into());
        }
        let pin = context.meta.get(DIGEST).and_then(Value::as_str).map(str::to_owned);
        let agent = Agent::from_context(&context);
        let entry = match self.find_unchanged(&request.name, pin.as_deref()) {
            // A tool that an agent may not use is reported as unknown.
            Ok(entry) | Err(Refused::Changed(entry, _))
                if agent.as_ref().is_some_and(|agent| !agent.may_use(&entry.program)) =>
            {
                let message = format!("Unknown tool: {} (tools/list lists the tools)", request.name);
                return Err(ErrorData::invalid_params(message, None));
            }
            Ok(entry) => entry,
            Err(Refused::Unknown(message)) => return Err(ErrorData::invalid_params(message, None)),
            Err(Refused::Changed(entry, difference)) => {
                return Ok(self.refuse_changed(&entry, &difference, &place).into());
            }
        };
        if let Some(state) = request.request_state {
            let brought =
                self.resume_with_answer(state, request.input_responses.as_ref(), entry, place, &context);
            return Ok(match brought.await? {
                Brought::Work(run, call) => self.go_on_or_task(run, call, &context).await,
                Brought::Done(response) => response,
            });
        }
        if let ToolProgram::Builtin(builtin) = entry.program {
            return Ok(self.call_builtin(builtin, entry, request, place, &context).await);
        }
        let given = request.arguments.unwrap_or_default();
        let is_start = agent.is_some() && !tasks::are_known_to(&context);
        let work = match self.typed_work(&entry, given.clone(), agent) {
            Ok(work) => work,
            Err(message) => {
                self.record_refusal(&place, &entry.tool.name, &message, &json!(given));
                return Ok(tool_refusal("parse_error", message).into());
            }
        };
        let time = self.shared.options.timeout.or(is_start.then_some(service::PATIENCE));
        let limits = CallLimits { time, answer: call::MAX_ANSWER };
        Ok(self.work_or_task(Prepared { work, place, limits, entry }, &context).await)
    }

    /// Answers requests that the library cannot parse: for an implemented method the parameters are
    /// wrong, not the method.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let CustomRequest { method, params, .. } = request;
        let has_sessions =
            context.protocol_version().is_none_or(|version| version < ProtocolVersion::V_2026_07_28);
        let is_served = SERVED.contains(&method.as_str())
            || has_sessions && SERVED_IN_SESSIONS.contains(&method.as_str());
        if !is_served {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None));
        }
        let mut message = format!("the params of {method} cannot be read");
        if method == "tools/call" {
            let params = params.unwrap_or_default();
            if let Err(error) = CallToolRequestParams::deserialize(&params) {
                message = format!("{message}: {error}");
            }
            let place = CallPlace {
                cwd: self.shared.options.root.clone(),
                caller: self.identify_caller(&context, "tools/call"),
            };
            self.record_refusal(&place, "tools/call", &message, &params);
        }
        Err(ErrorData::invalid_params(message, None))
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.detailed_task(request.task_id, &context).await.map(GetTaskResult::new)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.answer_questions(&request.task_id, request.input_responses, &context)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.call_off(request.task_id, &context).await
    }

    // The library would answer these with empty lists, although no capability promises them.

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourcesRequestMethod>())
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourceTemplatesRequestMethod>())
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.listed_catalogue().entries.get(name).map(|entry| entry.tool.clone())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        lock(&self.shared.peers).push(context.peer);
    }

    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::builder().tools_list_changed().build())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.shared.changes.subscribe();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = changes.changed() => {
                    if changed.is_err() || context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }
}
