//! Asks a person at the terminal while the run waits.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::audience::{Asked, AskedCommand, PromptError, Prompter, Said};
use super::binding::{Asker, GateQuestion, PendingGate, VARIABLES};
use super::known_settings::INPUT_TIMEOUT;
use super::question::{Occasion, QuestionView};
use super::run::Run;
use lobster_base::cancel::{CancelReason, CancelToken};
use lobster_base::json;
use lobster_base::schema::Schema;
use lobster_stage::{Answer, Question, StageError, Stop, store_failure};
use lobster_stages::read_answer;

impl Run<'_> {
    /// Asks at the terminal; returns what the person said, and the person's name if it is known. Secrets are hidden from
    /// the displayed question.
    pub(super) fn ask_now(
        &self,
        prompter: &dyn Prompter,
        PendingGate { path, question: gate, binding, going }: &PendingGate,
        cancel: &CancelToken,
    ) -> Result<(Said, Option<String>), Stop> {
        let env = &self.services.env;
        let by = env.non_blank("LOBSTER_APPROVAL_APPROVED_BY");
        let expires_at = gate.identity.ttl_ms.map(|ttl| self.store.clock_ms().saturating_add(ttl));
        let occasion = Occasion { run: self.id, path: path.as_str(), binding: binding.digest, expires_at };
        let going = going.clone().unwrap_or_default();
        let hidden = self.redact_question(gate);
        let view = QuestionView::new(&self.store, &hidden, &occasion, &going).map_err(store_failure)?;
        let command = Occasion::is_of_policy(path.as_str())
            .then(|| self.asked_command(&gate.question, &hidden.question))
            .flatten();
        let ask = |timeout, accept: &dyn Fn(&str) -> Result<Answer, String>| {
            match prompter
                .prompt_person(&Asked { view: &view, command: command.clone(), timeout, accept }, cancel)
            {
                Ok(said) => Ok(said),
                // A closed terminal is no answer.
                Err(PromptError::Cancelled) if self.has_lost_its_terminal() => Ok(Said::Later),
                Err(PromptError::Cancelled) => Err(Stop::Cancelled),
                Err(late @ PromptError::TimedOut(_)) => Err(Stop::Failed(StageError::permanent_from(late))),
            }
        };
        let said = match &gate.question {
            Question::Approval { .. } => {
                let timeout = env
                    .value_of(&INPUT_TIMEOUT)
                    .map_err(|error| Stop::Failed(StageError::permanent_from(error)))?
                    .flatten();
                ask(timeout, &|_| {
                    gate.check_approver(by.as_deref())?;
                    Ok(Answer::Approved { by: by.clone(), part: None })
                })?
            }
            Question::Input { schema, .. } => {
                let schema = Schema::compile(schema).map_err(StageError::permanent)?;
                ask(None, &|line| match gate.asker {
                    Asker::Pipeline => {
                        read_answer(line, &schema).map(Answer::Response).map_err(|error| error.message)
                    }
                    Asker::Step(_) => {
                        let value = json::parse(line.trim()).map_err(|_| {
                            "Input response must be valid JSON (put text in quotes)".to_owned()
                        })?;
                        gate.check_response(value, &schema).map(Answer::Response)
                    }
                })?
            }
        };
        Ok((said, by))
    }

    /// True if this process ends because its terminal was closed.
    pub(super) fn has_lost_its_terminal(&self) -> bool {
        matches!(self.services.cancel.reason(), Some(CancelReason::Signal(name)) if name == "SIGHUP")
    }

    /// The native command of a policy's question, or `None` if it contains a secret, which must not be kept.
    fn asked_command(&self, question: &Question, hidden: &Question) -> Option<AskedCommand> {
        let Question::Approval { items, .. } = question else { return None };
        let item = items.first()?;
        let proposal = serde_json::from_value(item.clone()).ok()?;
        // No rule is about the step's variables.
        let is_for_rules =
            question == hidden && item.get(VARIABLES).is_none_or(|set| set == &serde_json::json!({}));
        is_for_rules.then(|| AskedCommand { proposal, workspace: self.cwd.clone() })
    }

    fn redact_question(&self, gate: &GateQuestion) -> GateQuestion {
        let mut hidden = gate.clone();
        self.hide_in(&mut hidden);
        hidden
    }

    /// Hides the secrets in text for a person.
    pub(super) fn hide_in<T: Serialize + DeserializeOwned>(&self, shown: &mut T) {
        if self.services.secrets.is_empty() {
            return;
        }
        let redactions = self.services.secrets.redactions();
        let hidden = serde_json::to_value(&*shown).ok().and_then(|mut value| {
            redactions.hide_in_value(&mut value);
            serde_json::from_value(value).ok()
        });
        if let Some(hidden) = hidden {
            *shown = hidden;
        }
    }
}
