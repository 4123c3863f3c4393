//! Answers to gates: an agent's answer is passed on, put to a person, or refused and recorded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lobster_runtime::engine::{Author, QuestionView};
use lobster_runtime::replay::{self, GateRef, Reply, ResumeRequest};
use lobster_runtime::store::{Gate, RunId};
use rmcp::RoleServer;
use rmcp::model::{CallToolResponse, CallToolResult, ErrorData};
use rmcp::service::RequestContext;
use serde_json::{Map, Value, json};

use super::builtin::ResumeArgs;
use super::call::{self, CallAnswer, CallLimits, CallPlace, Work, tool_refusal};
use super::catalogue::CatalogueEntry;
use super::gates::{self, Approvals, ClientAnswer, OPEN};
use super::history::History;
use super::server::{McpServer, Prepared};

impl McpServer {
    /// Asks a run's question in the way that this server's approvals require.
    pub(super) async fn ask_user(
        &self,
        question: &Map<String, Value>,
        context: &RequestContext<RoleServer>,
    ) -> ClientAnswer {
        match self.shared.options.approvals {
            Approvals::Token => return ClientAnswer::Open(String::new()),
            Approvals::Operator => {
                return ClientAnswer::Open(format!("this server does not ask through its clients; {OPEN}"));
            }
            Approvals::Elicit => {}
        }
        if !gates::can_ask(context) {
            return ClientAnswer::Open(format!("the client cannot ask its user; {OPEN}"));
        }
        let state = question.get("resumeToken").and_then(Value::as_str).unwrap_or_default();
        match self.view_approval(&GateRef::Token(state.to_owned())) {
            Ok((gate, view)) => {
                if let Some(who) = self.who_else(&gate, &view) {
                    return ClientAnswer::Open(who);
                }
                gates::ask_user(question, (&gate, &view), context, state).await
            }
            Err(problem) => ClientAnswer::Open(format!("{problem}; {OPEN}")),
        }
    }

    /// The reason why the client's user cannot approve a gate: the workflow or the policy names another
    /// approver, or a form cannot show the whole question.
    fn who_else(&self, gate: &Gate, view: &QuestionView) -> Option<String> {
        let others = replay::check_approver(&self.shared.runtime, gate).err().map(|why| {
            let may = view.facts.iter().find(|fact| fact.label == "approver");
            may.map_or(why, |fact| fact.values.join(", "))
        });
        let hidden = || {
            gates::hides_commands(view, gate)
                .then(|| "the question has more commands or steps than a client's form shows".to_owned())
        };
        others.or_else(hidden).map(|why| format!("{why}; {OPEN}"))
    }

    /// An open gate with its view for a person.
    fn view_approval(&self, gate: &GateRef) -> Result<(Gate, QuestionView), String> {
        let gate = replay::open_gate(&self.shared.runtime, gate).map_err(|failure| failure.message)?;
        let store = self.shared.runtime.store().map_err(|error| error.to_string())?;
        let view = QuestionView::of_gate(&store, &gate).map_err(|error| error.to_string())?;
        Ok((gate, view))
    }

    /// The answer to the caller of a run that waits.
    pub(super) fn waiting_result(&self, mut answer: CallAnswer, note: &str) -> CallToolResult {
        if let Value::Object(envelope) = &mut answer.envelope {
            // The data that opens a gate is only for callers who may answer it.
            if self.shared.options.approvals != Approvals::Token {
                for key in ["requiresApproval", "requiresInput"] {
                    if let Some(Value::Object(request)) = envelope.get_mut(key) {
                        request.remove("resumeToken");
                    }
                }
            }
            if !note.is_empty() {
                let said = envelope.get("note").and_then(Value::as_str);
                let note = said.map_or_else(|| note.to_owned(), |said| format!("{note}; {said}"));
                envelope.insert("note".to_owned(), json!(note));
            }
        }
        answer.into_result()
    }

    /// Answers a gate, if this caller may do so in this way.
    pub(super) async fn resume_run(
        &self,
        args: ResumeArgs,
        entry: Arc<CatalogueEntry>,
        place: CallPlace,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResponse {
        let wrong = |message: &str| tool_refusal("parse_error", message).into();
        let gate = match (&args.token, &args.approval_id) {
            (Some(token), None) => GateRef::Token(token.clone()),
            (None, Some(id)) => GateRef::Id(id.clone()),
            _ => return wrong("give either `token` or `approvalId`"),
        };
        let reply = match (args.approve, args.response, args.cancel) {
            (Some(true), None, false) => Reply::Approve,
            (Some(false), None, false) if self.shared.options.approvals == Approvals::Token => Reply::Reject,
            (None, Some(response), false) => Reply::Response(response),
            // An agent's rejection is not a person's, so it cancels the run instead.
            (Some(false), None, false) | (None, None, true) => Reply::Cancel,
            _ => return wrong("give either `approve`, `response` or `cancel`"),
        };
        let limits = match self.call_limits(args.bounds, Some(Duration::from_millis(call::TIMEOUT_MS))) {
            Ok(limits) => limits,
            Err(message) => return wrong(&message),
        };
        let open = match self.open_gate(&gate, &place) {
            Ok(open) => open,
            Err(message) => {
                self.record_refusal(&place, "resume", &message, &json!({ "gate": args.approval_id }));
                return tool_refusal("refused", message).into();
            }
        };
        let (agent, user) = answer_authors(&place);
        let (reply, author) = match self.shared.options.approvals {
            _ if reply == Reply::Cancel => (reply, agent),
            Approvals::Token => (reply, agent),
            Approvals::Elicit if gates::can_ask(context) => {
                // The question itself is asked of the person; the agent's statement is not an answer.
                let asked = match &open.others {
                    Some(who) => ClientAnswer::Open(who.clone()),
                    None => open.ask_user(context).await,
                };
                match asked {
                    ClientAnswer::Answered(reply) => (reply, user),
                    ClientAnswer::Later(result) => return (*result).into(),
                    ClientAnswer::Open(note) => return self.not_approved(&open, &note, &place).into(),
                }
            }
            Approvals::Elicit | Approvals::Operator => {
                let note = format!("an answer must come from a person, not from an agent; {OPEN}");
                return self.not_approved(&open, &note, &place).into();
            }
        };
        let work = Work::Resume(ResumeRequest { gate, reply, author: Some(author) });
        self.perform_call(Prepared { work, place, limits, entry }, context).await
    }

    fn not_approved(&self, open: &OpenGate, note: &str, place: &CallPlace) -> CallToolResult {
        let run = open.gate.run.short_id();
        self.record_refusal(place, "resume", note, &json!({ "gate": open.gate.id, "run": run }));
        tool_refusal("approval_refused", note)
    }

    /// The result for a run whose question the client's user left open, in the form of the first call.
    fn left_open(&self, open: &OpenGate, note: &str) -> CallToolResult {
        let answer = || -> Result<CallAnswer, String> {
            let store = self.shared.runtime.store().map_err(|error| error.to_string())?;
            let run = store.run(open.gate.run).map_err(|error| error.to_string())?;
            let envelope = History { store, of: None, agent: None }.run_envelope(&run)?;
            Ok(CallAnswer { run: Some(open.gate.run), envelope, changed: false })
        };
        match answer() {
            Ok(answer) => self.waiting_result(answer, note),
            Err(message) => tool_refusal("runtime_error", message),
        }
    }

    /// The given gate, if it belongs to a run of this caller.
    fn open_gate(&self, gate: &GateRef, place: &CallPlace) -> Result<OpenGate, String> {
        let runtime = &self.shared.runtime;
        let (gate, view) = self.view_approval(gate)?;
        let store = runtime.store().map_err(|error| error.to_string())?;
        let run = store.run(gate.run).map_err(|error| error.to_string())?;
        if !self.shared.options.all_runs && run.actor != place.caller.actor {
            return Err(format!("question {} belongs to a run of another client", gate.id));
        }
        let token = lobster_runtime::engine::gate_token(&store, &gate).map_err(|error| error.to_string())?;
        let question = gate.question.as_object().cloned().unwrap_or_default();
        let others = self.who_else(&gate, &view);
        Ok(OpenGate { others, gate, token, question, view })
    }

    /// Handles a call of a client of protocol 2026-07-28, which brings its user's answer with the call.
    /// Returns the work that continues the run, or the answer to the client.
    pub(super) async fn resume_with_answer(
        &self,
        token: String,
        responses: Option<&BTreeMap<String, Value>>,
        entry: Arc<CatalogueEntry>,
        place: CallPlace,
        context: &RequestContext<RoleServer>,
    ) -> Result<Brought, ErrorData> {
        let gate = GateRef::Token(token);
        let open = match self.open_gate(&gate, &place) {
            Ok(open) => open,
            // Not the state given by this server, or not for this caller, or expired.
            Err(message) => {
                let message = format!("requestState: {message}");
                self.record_refusal(&place, &entry.tool.name, &message, &json!({}));
                return Err(ErrorData::invalid_params(message, None));
            }
        };
        if self.shared.options.approvals != Approvals::Elicit || !gates::can_ask(context) {
            let note = format!("this server did not ask the client; {OPEN}");
            return Ok(Brought::Done(self.not_approved(&open, &note, &place).into()));
        }
        if let Some(who) = &open.others {
            return Ok(Brought::Done(self.not_approved(&open, who, &place).into()));
        }
        let asked = match gates::brought_answer(&open.question, &open.gate.path, responses) {
            Some(asked) => asked,
            // An answer to another question, or none: ask again.
            None => open.ask_user(context).await,
        };
        Ok(match asked {
            ClientAnswer::Answered(reply) => {
                let (_, user) = answer_authors(&place);
                let work = Work::Resume(ResumeRequest { gate, reply, author: Some(user) });
                let limits = CallLimits { time: self.shared.options.timeout, answer: call::MAX_ANSWER };
                Brought::Work(open.gate.run, Prepared { work, place, limits, entry })
            }
            ClientAnswer::Later(result) => Brought::Done((*result).into()),
            ClientAnswer::Open(note) => Brought::Done(self.left_open(&open, &note).into()),
        })
    }
}

/// The result of an answer brought by a client.
pub(super) enum Brought {
    /// The answer continues the run.
    Work(RunId, Prepared),
    Done(CallToolResponse),
}

/// The agent of a call and its user, as authors of an answer.
fn answer_authors(place: &CallPlace) -> (Author, Author) {
    let name = place.caller.actor.as_deref();
    (Author::of_agent(name), Author::of_client(name))
}

/// A gate to be answered.
struct OpenGate {
    /// The reason why the client's user cannot answer.
    others: Option<String>,
    gate: Gate,
    token: String,
    question: Map<String, Value>,
    view: QuestionView,
}

impl OpenGate {
    async fn ask_user(&self, context: &RequestContext<RoleServer>) -> ClientAnswer {
        gates::ask_user(&self.question, (&self.gate, &self.view), context, &self.token).await
    }
}
