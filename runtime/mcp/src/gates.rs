//! Questions to people: through the client, by token, or only through the operator.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use lobster_runtime::engine::QuestionView;
use lobster_runtime::replay::Reply;
use lobster_runtime::replay::place::step_id;
use lobster_runtime::store::Gate;
use rmcp::RoleServer;
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, InputRequest,
    InputRequiredResult, ProtocolVersion,
};
use rmcp::service::RequestContext;
use serde_json::{Map, Value, json};

use lobster_render::question;

/// The ways to answer a run's questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Approvals {
    /// The client's user, asked by the client; else the operator.
    Elicit,
    /// The holder of the token, as with the incumbent: the agent passes on its user's answer.
    Token,
    /// Only the operator, with `lobster approvals` and `lobster resume`.
    Operator,
}

/// The note to a client about a question that it could not get answered.
pub(super) const OPEN: &str = "the question stays open for a person: `lobster approvals` lists it";

/// The name of an approval in a request to the client.
const QUESTION: &str = "question";

/// The name of a question in the request and its answer; for an input request, the name of its step.
fn name_of_question(place: &str) -> Cow<'_, str> {
    let Some(place) = place.strip_suffix("!input") else { return QUESTION.into() };
    match step_id(place) {
        id if id.is_empty() => QUESTION.into(),
        id => id,
    }
}

/// Time for a client's user to answer, unless the call ends earlier.
const PATIENCE: Duration = Duration::from_secs(30 * 60);

/// Longest text that a client is asked to show, in bytes.
const MAX_MESSAGE: usize = 8 << 10;

/// The outcome of asking.
pub(super) enum ClientAnswer {
    Answered(Reply),
    /// The client asks its user and calls again with the answer (protocol 2026-07-28).
    Later(Box<InputRequiredResult>),
    /// There was no answer; the gate stays open.
    Open(String),
}

/// True if this client can ask its user.
pub(super) fn can_ask(context: &RequestContext<RoleServer>) -> bool {
    let capabilities = context.client_capabilities();
    capabilities
        .and_then(|capabilities| capabilities.elicitation)
        .is_some_and(|elicitation| elicitation.form.is_some() || elicitation.url.is_none())
}

/// Asks the client's user a question.
pub(super) async fn ask_user(
    question: &Map<String, Value>,
    (gate, view): (&Gate, &QuestionView),
    context: &RequestContext<RoleServer>,
    state: &str,
) -> ClientAnswer {
    let Some(form) = simple_form(question) else {
        return ClientAnswer::Open(format!(
            "its answer is not a simple form, so the client cannot ask; {OPEN}"
        ));
    };
    let params = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: full_message(view, gate),
        requested_schema: form.schema,
    };
    if context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28) {
        let request = InputRequest::Elicitation(ElicitRequest::new(params));
        let requests = BTreeMap::from([(name_of_question(&gate.path).into_owned(), request)]);
        let result = InputRequiredResult::new(Some(requests), Some(state.to_owned()));
        return ClientAnswer::Later(Box::new(result));
    }
    let asked = tokio::select! {
        asked = context.peer.create_elicitation_with_timeout(params, Some(PATIENCE)) => asked,
        () = context.ct.cancelled() => return ClientAnswer::Open("the client withdrew the call".to_owned()),
    };
    match asked {
        Ok(answer) => interpret_answer(question, answer),
        Err(error) => ClientAnswer::Open(format!("the client could not ask its user: {error}; {OPEN}")),
    }
}

/// The answer that a client brought with its second call; `None` if it brought none.
pub(super) fn brought_answer(
    question: &Map<String, Value>,
    place: &str,
    responses: Option<&BTreeMap<String, Value>>,
) -> Option<ClientAnswer> {
    let answer = responses?.get(&*name_of_question(place))?;
    Some(match serde_json::from_value::<ElicitResult>(answer.clone()) {
        Ok(answer) => interpret_answer(question, answer),
        Err(error) => ClientAnswer::Open(format!("the answer cannot be read: {error}; {OPEN}")),
    })
}

fn interpret_answer(question: &Map<String, Value>, answer: ElicitResult) -> ClientAnswer {
    let content = answer.content.unwrap_or(Value::Null);
    let is_approval = question.get("type") == Some(&json!("approval_request"));
    match answer.action {
        ElicitationAction::Accept if is_approval => match content.get("approve").and_then(Value::as_bool) {
            Some(true) => ClientAnswer::Answered(Reply::Approve),
            Some(false) => ClientAnswer::Answered(Reply::Reject),
            None => ClientAnswer::Open(format!("the answer says neither yes nor no; {OPEN}")),
        },
        ElicitationAction::Accept => match simple_form(question) {
            Some(Form { wrapped: true, .. }) => {
                ClientAnswer::Answered(Reply::Response(content.get("value").cloned().unwrap_or(Value::Null)))
            }
            _ => ClientAnswer::Answered(Reply::Response(content)),
        },
        // Clients without a user decline at once. A rejection is an accepted form with that answer.
        _ => ClientAnswer::Open(format!("the client's user gave no answer; {OPEN}")),
    }
}

/// The form shown to the client's user.
struct Form {
    schema: ElicitationSchema,
    /// The answer is not an object, so the form has it under `value`.
    wrapped: bool,
}

/// The form of a question; `None` if it needs more than a flat object.
fn simple_form(question: &Map<String, Value>) -> Option<Form> {
    if question.get("type") == Some(&json!("approval_request")) {
        let approve = json!({"type": "boolean", "title": "Approve?", "description": "Yes continues the run; no ends it."});
        let schema = json!({"type": "object", "properties": {"approve": approve}, "required": ["approve"]});
        return Some(Form { schema: serde_json::from_value(schema).ok()?, wrapped: false });
    }
    let wanted = question.get("responseSchema")?;
    if wanted.get("type") == Some(&json!("object")) {
        return Some(Form { schema: serde_json::from_value(wanted.clone()).ok()?, wrapped: false });
    }
    let schema = json!({"type": "object", "properties": {"value": wanted}, "required": ["value"]});
    Some(Form { schema: serde_json::from_value(schema).ok()?, wrapped: true })
}

/// True if a client's form cannot show every command of the question and every step after it: a person must not
/// approve them without seeing them.
pub(super) fn hides_commands(view: &QuestionView, gate: &Gate) -> bool {
    !question::shows_commands(view, &full_message(view, gate))
}

/// The whole question, as at a terminal, short enough to be read.
fn full_message(view: &QuestionView, gate: &Gate) -> String {
    let all = format!("`lobster approvals show {}` shows all", gate.id);
    let text = question::clipped_text(view, MAX_MESSAGE, &all);
    format!("{text}\n\n(lobster run {}; {all})", gate.run.short_id())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question_map(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn forms_are_flat_or_not_at_all() {
        let of = |schema: Value| {
            simple_form(&question_map(json!({"type": "input_request", "responseSchema": schema})))
        };
        assert!(of(json!({"type": "string"})).is_some_and(|form| form.wrapped));
        assert!(
            of(json!({"type": "object", "properties": {"a": {"type": "number"}}}))
                .is_some_and(|f| !f.wrapped)
        );
        assert!(of(json!({"type": "object", "properties": {"a": {"type": "object"}}})).is_none());
    }

    #[test]
    fn only_a_clear_yes_is_a_yes() {
        let asked = question_map(json!({"type": "approval_request"}));
        let read = |action, content: Value| {
            interpret_answer(&asked, ElicitResult::new(action).with_content(content))
        };
        assert!(matches!(
            read(ElicitationAction::Accept, json!({"approve": true})),
            ClientAnswer::Answered(Reply::Approve)
        ));
        assert!(matches!(read(ElicitationAction::Accept, json!({})), ClientAnswer::Open(_)));
        assert!(matches!(read(ElicitationAction::Accept, json!({"approve": "true"})), ClientAnswer::Open(_)));
        assert!(matches!(
            read(ElicitationAction::Accept, json!({"approve": false})),
            ClientAnswer::Answered(Reply::Reject)
        ));
        assert!(matches!(read(ElicitationAction::Decline, json!({"approve": false})), ClientAnswer::Open(_)));
        assert!(matches!(read(ElicitationAction::Cancel, json!({"approve": true})), ClientAnswer::Open(_)));
    }
}
