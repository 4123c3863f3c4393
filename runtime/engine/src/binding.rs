//! A question to a person as the record keeps it: what is asked and by whom,
//! who may answer, what an answer is bound to, and an answer that was given.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::path::StepPath;
use lobster_base::digest::Digest;
use lobster_base::schema::Schema;
use lobster_stage::{Answer, Question};
use lobster_store::{Event, GateAnswer, RunId, Store};

/// Who may answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) initiated_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) required_approver: Option<String>,
    #[serde(default)]
    pub(crate) require_different_approver: bool,
    /// Any of these, where there are any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) approvers: Vec<String>,
    /// How long the question stands, in milliseconds; then the answer is no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_ms: Option<i64>,
}

/// What asked, for the wording of errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Asker {
    /// A stage of a one-line pipeline.
    Pipeline,
    /// A step of a workflow.
    Step(String),
}

/// A question with all that belongs to it. The gate's digest covers what is asked and by whom;
/// who may answer is checked when somebody does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateQuestion {
    pub question: Question,
    pub(crate) identity: Identity,
    pub(crate) asker: Asker,
}

/// The digest over what the person sees and what will run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Binding {
    pub digest: Digest,
    /// The digest that gates had before it covered the run's arguments. A run's
    /// arguments never change, so in the run itself it holds as well.
    pub without_args: Digest,
}

impl Binding {
    /// Whether an answer that was given to `other` in the same run was given to this.
    pub fn is(&self, other: Digest) -> bool {
        [self.digest, self.without_args].contains(&other)
    }
}

/// An answer that was given, and to what.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownAnswer {
    pub answer: Answer,
    /// What the person saw when answering.
    pub binding: Digest,
    /// The gate's id.
    pub gate: String,
    pub by: Option<String>,
    /// What shows who answered.
    pub author: Value,
    /// The run that was answered, if it was not this one.
    pub from: Option<RunId>,
}

impl KnownAnswer {
    /// The same without secrets: whoever answered may not have known what is one here.
    pub(super) fn hidden_by(mut self, store: &Store) -> Self {
        let hide = |by: &mut Option<String>| {
            if let Some(by) = by {
                *by = store.hide(by).into_owned();
            }
        };
        hide(&mut self.by);
        match &mut self.answer {
            Answer::Approved { by, .. } => hide(by),
            Answer::Response(value) => store.hide_in(value),
        }
        self
    }

    pub(super) fn event(&self, path: &StepPath) -> Event {
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
    pub(super) fn emit(&self) -> bool {
        match self.question {
            Question::Approval { emit, .. } | Question::Input { emit, .. } => emit,
        }
    }

    /// The name under which the journal keeps it, below the place that asks.
    pub(crate) fn kind(&self) -> &'static str {
        match self.question {
            Question::Approval { .. } => "approval",
            Question::Input { .. } => "input",
        }
    }

    /// The request as the envelope shows it, without token and id.
    pub(crate) fn request(&self) -> Map<String, Value> {
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

    /// The response, if it fits the schema of the question.
    ///
    /// # Errors
    /// The sentence that says where it does not.
    pub fn fitting(&self, response: Value, schema: &Schema) -> Result<Value, String> {
        match schema.first_error(&response) {
            None => Ok(response),
            Some(error) => {
                Err(format!("{} failed schema validation at {error}", self.asker.response_label()))
            }
        }
    }

    /// Checks who approves.
    ///
    /// # Errors
    /// The sentence that says who may.
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

    /// How a response that does not fit is introduced.
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
    /// What a person was shown of what a yes sets going, if one was asked already.
    pub(crate) going: Option<SetsGoing>,
}

/// What is shown of [`Ahead`](crate::Ahead) wherever the question is: kept with the question, so that it is
/// the same text everywhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SetsGoing {
    /// A line for each effect that begins at once, references resolved.
    #[serde(default)]
    pub at_once: Vec<String>,
    /// The variables that the plan sets for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<String>,
    /// The beginnings of what they read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<String>,
    /// Why a yes would fail before any effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fails: Option<String>,
}

/// The field of a policy's question that has the variables of the step's `env`, where one of them is what is
/// asked about.
pub(crate) const VARIABLES: &str = "variables";

/// The name under which a kept question has [`SetsGoing`], beside what was asked.
pub(crate) const KEPT: &str = "sets_going";
