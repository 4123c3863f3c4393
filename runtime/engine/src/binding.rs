//! A question to a person in the record: its text and asker, the permitted approvers, the digest that an answer is
//! bound to, and the answer, if there is one.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::path::StepPath;
use lobster_base::digest::Digest;
use lobster_base::schema::Schema;
use lobster_stage::{Answer, Question};
use lobster_store::{Event, GateAnswer, RunId, Store};

/// The people who may answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) initiated_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) required_approver: Option<String>,
    #[serde(default)]
    pub(crate) require_different_approver: bool,
    /// Any of these people, unless the list is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) approvers: Vec<String>,
    /// Time limit of the question in milliseconds; afterwards it is rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_ms: Option<i64>,
}

/// The part of a program that asks, for the wording of errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Asker {
    /// A stage of a one-line pipeline.
    Pipeline,
    /// A step of a workflow.
    Step(String),
}

/// A question with all its parts. The gate's digest covers the question and the asker; the approver is checked when an
/// answer arrives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateQuestion {
    pub question: Question,
    pub(crate) identity: Identity,
    pub(crate) asker: Asker,
}

/// The digest of everything that the person sees and everything that will run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Binding {
    pub digest: Digest,
    /// The digest of gates from before the digest covered the run's arguments. A run's arguments never change, so
    /// inside the run this one is valid too.
    pub without_args: Digest,
}

impl Binding {
    /// True if an answer to `other` in the same run is also an answer to this.
    pub fn accepts_digest(&self, other: Digest) -> bool {
        [self.digest, self.without_args].contains(&other)
    }
}

/// An answer, and the question that it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownAnswer {
    pub answer: Answer,
    /// The digest of what the person saw when answering.
    pub binding: Digest,
    /// The gate's id.
    pub gate: String,
    pub by: Option<String>,
    /// The evidence of the author.
    pub author: Value,
    /// The run whose question was answered, if it was another run.
    pub from: Option<RunId>,
}

impl KnownAnswer {
    /// The same without secrets: the values may not have been secrets where the answer was given.
    pub(super) fn hidden_by(mut self, store: &Store) -> Self {
        let hide = |by: &mut Option<String>| {
            if let Some(by) = by {
                *by = store.hide_secrets(by).into_owned();
            }
        };
        hide(&mut self.by);
        match &mut self.answer {
            Answer::Approved { by, .. } => hide(by),
            Answer::Response(value) => store.hide_in(value),
        }
        self
    }

    pub(super) fn to_event(&self, path: &StepPath) -> Event {
        Event::GateAnswered {
            path: path.to_string(),
            gate: self.gate.clone(),
            binding: self.binding,
            answer: match &self.answer {
                Answer::Approved { part: None, .. } => GateAnswer::Approved,
                Answer::Approved { part: Some(changes), .. } => {
                    GateAnswer::ApprovedPart { changes: *changes }
                }
                Answer::Response(value) => GateAnswer::Response(value.clone()),
            },
            by: self.by.clone(),
            author: self.author.clone(),
            from: self.from,
        }
    }
}

impl GateQuestion {
    pub(super) fn has_emit_flag(&self) -> bool {
        match self.question {
            Question::Approval { emit, .. } | Question::Input { emit, .. } => emit,
        }
    }

    /// The name under which the journal keeps it, below the path of the question.
    pub(crate) fn journal_name(&self) -> &'static str {
        match self.question {
            Question::Approval { .. } => "approval",
            Question::Input { .. } => "input",
        }
    }

    /// The request in the envelope, without token and id.
    pub(crate) fn request_fields(&self) -> Map<String, Value> {
        let mut map = Map::new();
        match &self.question {
            Question::Approval { prompt, items, preview, .. } => {
                map.insert("type".into(), json!("approval_request"));
                map.insert("prompt".into(), json!(prompt));
                map.insert("items".into(), json!(items));
                if let Some(preview) = preview {
                    map.insert("preview".into(), json!(preview));
                }
                let identity = &self.identity;
                if let Some(by) = &identity.initiated_by {
                    map.insert("initiatedBy".into(), json!(by));
                }
                if let Some(approver) = &identity.required_approver {
                    map.insert("requiredApprover".into(), json!(approver));
                }
                if identity.require_different_approver {
                    map.insert("requireDifferentApprover".into(), json!(true));
                }
            }
            Question::Input { prompt, schema, defaults, subject, .. } => {
                map.insert("type".into(), json!("input_request"));
                map.insert("prompt".into(), json!(prompt));
                map.insert("responseSchema".into(), schema.clone());
                if let Some(defaults) = defaults {
                    map.insert("defaults".into(), defaults.clone());
                }
                if let Some(subject) = subject {
                    map.insert("subject".into(), subject.clone());
                }
            }
        }
        map
    }

    /// The response, if it matches the schema of the question.
    ///
    /// # Errors
    /// The sentence that names the mismatch.
    pub fn check_response(&self, response: Value, schema: &Schema) -> Result<Value, String> {
        match schema.first_error(&response) {
            None => Ok(response),
            Some(error) => {
                Err(format!("{} failed schema validation at {error}", self.asker.response_label()))
            }
        }
    }

    /// Checks the approver.
    ///
    /// # Errors
    /// The sentence that names the permitted approvers.
    pub fn check_approver(&self, approver: Option<&str>) -> Result<(), String> {
        let (identity, who) = (&self.identity, self.asker.label());
        if identity.required_approver.is_none()
            && !identity.require_different_approver
            && identity.approvers.is_empty()
        {
            return Ok(());
        }
        let Some(approver) = approver else {
            return Err(format!(
                "{who} approval requires approver identity; set LOBSTER_APPROVAL_APPROVED_BY"
            ));
        };
        if let Some(required) = identity.required_approver.as_deref().filter(|required| *required != approver)
        {
            return Err(format!("{who} approval requires approver '{required}', got '{approver}'"));
        }
        if !identity.approvers.is_empty() && !identity.approvers.iter().any(|one| one == approver) {
            let wanted = identity.approvers.join("' or '");
            return Err(format!("{who} approval requires approver '{wanted}', got '{approver}'"));
        }
        if identity.require_different_approver && identity.initiated_by.as_deref() == Some(approver) {
            return Err(format!("{who} approval must be granted by someone other than '{approver}'"));
        }
        Ok(())
    }
}

impl Asker {
    pub(crate) fn label(&self) -> String {
        match self {
            Self::Pipeline => "Pipeline".to_owned(),
            Self::Step(id) => format!("Workflow step {id}"),
        }
    }

    /// The subject of the error about a response that does not match.
    pub(crate) fn response_label(&self) -> String {
        match self {
            Self::Pipeline => "pipeline input response".to_owned(),
            Self::Step(id) => format!("Workflow input step {id} response"),
        }
    }
}

/// A question that waits for a person.
#[derive(Clone, Debug)]
pub(crate) struct PendingGate {
    pub(crate) path: StepPath,
    pub(crate) question: GateQuestion,
    pub(crate) binding: Binding,
    /// The consequences of an approval that a person was shown, if the question was asked before.
    pub(crate) going: Option<SetsGoing>,
}

/// The shown part of [`Ahead`](crate::Ahead). It is kept with the question, so that every screen shows the same text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SetsGoing {
    /// A line for each effect that begins at once, with references resolved.
    #[serde(default)]
    pub at_once: Vec<String>,
    /// The variables that the plan sets for these effects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<String>,
    /// The beginnings of their inputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<String>,
    /// The error with which the run would fail after an approval, before any effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fails: Option<String>,
}

/// The field of a policy's question with the variables of the step's `env`, if the question is about one of them.
pub(crate) const VARIABLES: &str = "variables";

/// The field of a kept question that holds [`SetsGoing`], next to the question itself.
pub(crate) const KEPT: &str = "sets_going";
