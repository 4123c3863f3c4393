//! Whose answer to a gate counts: what an agent says is passed on, put to a person, or refused and recorded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lobster_runtime::engine::QuestionView;
use lobster_runtime::replay::{self, GateRef, Reply, ResumeRequest};
use lobster_runtime::store::Gate;
use rmcp::RoleServer;
use rmcp::model::{CallToolResponse, CallToolResult, ErrorData};
use rmcp::service::RequestContext;
use serde_json::{Map, Value, json};

use super::builtin::ResumeArgs;
use super::call::{self, Answer, Limits, Place, Work, refusal};
use super::catalogue::Entry;
use super::gates::{self, Approvals, Asked, Shown};
use super::server::{Prepared, Server};

impl Server {
    /// Puts a run's question to whom the server asks.
    pub(super) async fn ask(
        &self,
        question: &Map<String, Value>,
        answer: &Answer,
        context: &RequestContext<RoleServer>,
    ) -> Asked {
        match self.shared.approvals {
            Approvals::Token => return Asked::Open(String::new()),
            Approvals::Operator => {
                return Asked::Open("the operator answers this with `lobster gates`".to_owned());
            }
            Approvals::Elicit => {}
        }
        if !gates::can_ask(context) {
            return Asked::Open(
                "the client cannot ask its user; `lobster gates` shows how to answer".to_owned(),
            );
        }
        let run = answer.run.map(|run| run.short()).unwrap_or_default();
        let state = question.get("resumeToken").and_then(Value::as_str).unwrap_or_default();
        match self.view(&GateRef::Token(state.to_owned())) {
            Ok((gate, view)) => {
                if let Some(who) = self.who_else(&gate, &view) {
                    return Asked::Open(format!("{who}; `lobster gates` shows how to answer"));
                }
                let shown = Shown { view: &view, run: &run, gate: &gate.id, place: &gate.path };
                gates::ask(question, &shown, context, state).await
            }
            Err(problem) => Asked::Open(format!("{problem}; `lobster gates` shows how to answer")),
        }
    }

    /// Who may approve what a gate asks, if not the person behind the client: the workflow
    /// may say so, and the policy.
    fn who_else(&self, gate: &Gate, view: &QuestionView) -> Option<String> {
        let why = replay::check_approver(&self.shared.runtime, gate).err()?;
        let may = view.facts.iter().find(|fact| fact.label == "approver");
        Some(may.map_or(why, |fact| fact.values.join(", ")))
    }

    /// An open gate with all that a person is shown of it.
    fn view(&self, gate: &GateRef) -> Result<(Gate, QuestionView), String> {
        let gate = replay::open_gate(&self.shared.runtime, gate).map_err(|failure| failure.message)?;
        let store = self.shared.runtime.store().map_err(|error| error.to_string())?;
        let view = QuestionView::of_gate(&store, &gate).map_err(|error| error.to_string())?;
        Ok((gate, view))
    }

    /// A run that waits, as its caller sees it.
    pub(super) fn waiting(&self, mut answer: Answer, note: &str) -> CallToolResult {
        if let Value::Object(envelope) = &mut answer.envelope {
            // What opens a gate is for whoever may answer it.
            if self.shared.approvals != Approvals::Token {
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

    /// Answers a gate, if that may be done this way.
    pub(super) async fn resume(
        &self,
        args: ResumeArgs,
        entry: Arc<Entry>,
        place: Place,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResponse {
        let wrong = |message: &str| refusal("parse_error", message).into();
        let gate = match (&args.token, &args.approval_id) {
            (Some(token), None) => GateRef::Token(token.clone()),
            (None, Some(id)) => GateRef::Id(id.clone()),
            _ => return wrong("give either `token` or `approvalId`"),
        };
        let reply = match (args.approve, args.response, args.cancel) {
            (Some(true), None, false) => Reply::Approve,
            (Some(false), None, false) => Reply::Reject,
            (None, Some(response), false) => Reply::Response(response),
            (None, None, true) => Reply::Cancel,
            _ => return wrong("give one of `approve`, `response` and `cancel`"),
        };
        let limits = match self.limits(args.bounds, Some(Duration::from_millis(call::TIMEOUT_MS))) {
            Ok(limits) => limits,
            Err(message) => return wrong(&message),
        };
        let open = match self.open_gate(&gate, &place) {
            Ok(open) => open,
            Err(message) => {
                self.refuse(&place, "resume", &message, &json!({ "gate": args.approval_id }));
                return refusal("refused", message).into();
            }
        };
        let yes = matches!(reply, Reply::Approve | Reply::Response(_));
        let reply = match self.shared.approvals {
            _ if !yes => reply,
            Approvals::Token => reply,
            Approvals::Elicit if gates::can_ask(context) => {
                // The question itself goes to the person; what the agent says is not an answer.
                let asked = match &open.others {
                    Some(who) => Asked::Open(who.clone()),
                    None => {
                        let shown =
                            Shown { view: &open.view, run: &open.run, gate: &open.id, place: &open.place };
                        gates::ask(&open.question, &shown, context, &open.token).await
                    }
                };
                match asked {
                    Asked::Answered(reply) => reply,
                    Asked::Later(result) => return (*result).into(),
                    Asked::Open(note) => return self.not_approved(&open, &note, &place).into(),
                }
            }
            Approvals::Elicit | Approvals::Operator => {
                let note = "an answer must come from a person; this server takes none from an agent";
                return self.not_approved(&open, note, &place).into();
            }
        };
        let work = Work::Resume(ResumeRequest { gate, reply });
        self.work(Prepared { work, place, limits, entry }, context).await
    }

    fn not_approved(&self, open: &OpenGate, note: &str, place: &Place) -> CallToolResult {
        let message = format!("{note}. The operator can: lobster resume --id {} --approve yes|no", open.id);
        self.refuse(place, "resume", &message, &json!({ "gate": open.id, "run": open.run }));
        refusal("approval_refused", message)
    }

    /// The gate that is meant, if it is one of this caller's runs.
    fn open_gate(&self, gate: &GateRef, place: &Place) -> Result<OpenGate, String> {
        let runtime = &self.shared.runtime;
        let (gate, view) = self.view(gate)?;
        let store = runtime.store().map_err(|error| error.to_string())?;
        let run = store.run(gate.run).map_err(|error| error.to_string())?;
        if !self.shared.all_runs && run.actor != place.caller.actor {
            return Err(format!("gate {} belongs to a run of another client", gate.id));
        }
        let token = lobster_runtime::engine::gate_token(&store, &gate).map_err(|error| error.to_string())?;
        let question = gate.question.as_object().cloned().unwrap_or_default();
        let others = self.who_else(&gate, &view);
        Ok(OpenGate {
            others,
            place: gate.path.to_string(),
            id: gate.id,
            run: gate.run.short(),
            token,
            question,
            view,
        })
    }

    /// A client of protocol 2026-07-28 brings its user's answer with the call itself.
    pub(super) async fn brought(
        &self,
        token: String,
        responses: Option<&BTreeMap<String, Value>>,
        entry: Arc<Entry>,
        place: Place,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let gate = GateRef::Token(token);
        let open = match self.open_gate(&gate, &place) {
            Ok(open) => open,
            // Not the state that this server gave, or not for this caller, or no longer.
            Err(message) => {
                let message = format!("requestState: {message}");
                self.refuse(&place, &entry.tool.name, &message, &json!({}));
                return Err(ErrorData::invalid_params(message, None));
            }
        };
        if self.shared.approvals != Approvals::Elicit || !gates::can_ask(context) {
            return Ok(self.not_approved(&open, "this server did not ask the client", &place).into());
        }
        if let Some(who) = &open.others {
            return Ok(self.not_approved(&open, who, &place).into());
        }
        let asked = match gates::brought(&open.question, &open.place, responses) {
            Some(asked) => asked,
            // An answer to something else, or to nothing: it is asked again.
            None => {
                let shown = Shown { view: &open.view, run: &open.run, gate: &open.id, place: &open.place };
                gates::ask(&open.question, &shown, context, &open.token).await
            }
        };
        Ok(match asked {
            Asked::Answered(reply) => {
                let work = Work::Resume(ResumeRequest { gate, reply });
                let limits = Limits { time: self.shared.default_time, answer: call::MAX_ANSWER };
                self.work(Prepared { work, place, limits, entry }, context).await
            }
            Asked::Later(result) => (*result).into(),
            Asked::Open(note) => self.not_approved(&open, &note, &place).into(),
        })
    }
}

/// A gate that somebody wants to answer.
struct OpenGate {
    /// Who may answer, if not the person behind the client.
    others: Option<String>,
    /// Where in the run it is asked.
    place: String,
    id: String,
    run: String,
    token: String,
    question: Map<String, Value>,
    view: QuestionView,
}
