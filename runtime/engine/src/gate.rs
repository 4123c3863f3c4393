//! Questions to people, which are asked at the terminal or kept until an answer arrives.

use lobster_base::code::Code;
use serde_json::{Value, json};

use super::audience::Said;
use super::author::Author;
use super::binding::{Binding, GateQuestion, KnownAnswer, PendingGate};
use super::origin::Origin;
use super::path::StepPath;
use super::run::Run;
use lobster_base::cancel::CancelToken;
use lobster_base::digest::Digest;
use lobster_base::sync::lock;
use lobster_stage::{Answer, Mode, StageError, Stop, store_failure};
use lobster_store::{Durability, Event, GateAnswer};

/// The journal's name of a gate whose question was answered at the terminal.
const AT_TERMINAL: &str = "terminal";

impl Run<'_> {
    /// Asks a person, or takes the earlier answer.
    pub(crate) fn ask_person(
        &self,
        at: &StepPath,
        question: GateQuestion,
        cancel: &CancelToken,
    ) -> Result<Answer, Stop> {
        let path = at.gate(question.journal_name());
        let binding = self.bind_question(&question)?;
        let known = self.find_answer(&path, &binding)?;
        if let Some(known) = known.map(|known| known.hidden_by(&self.store)) {
            match (known.from, binding.accepts_digest(known.binding)) {
                (Some(_), true) => {
                    return self.take_over(PendingGate { path, question, binding, going: None }, known);
                }
                (None, true) => return Ok(known.answer),
                // Another run's answer to a different question: this run asks its own.
                (Some(_), false) => {}
                // The interrupted effect itself changed, in part, what the question was about.
                (None, false) if self.is_cut_off_around(at) => {}
                (None, false) => {
                    self.record_failure(&path);
                    return Err(Stop::Failed(
                        StageError::permanent(format!(
                            "The approved action at '{path}' is not what would run now: {} (approved {}, now {}). \
                             Start the run again and approve what it shows.",
                            super::stale::describe_difference((&self.store, self.id), &self.policy, &known, &question),
                            known.binding.short(),
                            binding.digest.short(),
                        ))
                        .with_code(Code::ApprovalStale),
                    ));
                }
            }
        }
        let mut pending = PendingGate { path, question, binding, going: None };
        let prompter = self.services.prompter.as_ref();
        if let (Some(prompter), false) =
            (prompter, pending.question.has_emit_flag() || self.services.mode == Mode::Tool)
            && let Some(author) = self.author_here()?
        {
            // The preview starts from the journal, so everything known has to be there.
            self.append_events(Vec::new(), Durability::Lazy)?;
            pending.going = Some(self.sets_going(&pending).map_err(store_failure)?);
            match self.ask_now(prompter.as_ref(), &pending, cancel)? {
                (Said::Answer(answer), _) => {
                    let by = match &answer {
                        Answer::Approved { by, .. } => by.clone(),
                        Answer::Response(_) => None,
                    };
                    let gate = AT_TERMINAL.to_owned();
                    let binding = pending.binding.digest;
                    let known = KnownAnswer { answer, binding, gate, by, author: author.detail, from: None };
                    let known = known.hidden_by(&self.store);
                    let answer = known.answer.clone();
                    self.append_events(vec![known.to_event(&pending.path)], Durability::Synced)?;
                    self.remember_answer(&pending.path, known);
                    return Ok(answer);
                }
                (Said::No, by) => {
                    return Err(self.reject_run(&pending.path, &pending.binding, by, author.detail));
                }
                (Said::Later, _) => {}
            }
        }
        lock(&self.pending).push(pending);
        Err(Stop::Paused)
    }

    /// The person at this process's terminal, if this run's questions may be answered there.
    fn author_here(&self) -> Result<Option<Author>, Stop> {
        let author = Author::of_process(&self.services.env);
        let origin = Origin::from_journal(&self.store, self.id).map_err(store_failure)?;
        match author.check_may_answer(origin.as_ref(), self.services.policy.wants_person()) {
            Ok(()) => Ok(Some(author)),
            Err(why) => {
                self.services.print_note(&why);
                Ok(None)
            }
        }
    }

    /// Continues with another run's answer. Effects that are taken over were approved with it; effects that are
    /// performed again were not ([`Run::confirm_answers`]).
    fn take_over(&self, gate: PendingGate, known: KnownAnswer) -> Result<Answer, Stop> {
        let known = KnownAnswer { binding: gate.binding.digest, ..known };
        let answer = known.answer.clone();
        if !lock(&self.recall).answers.contains_key(&gate.path) {
            self.append_unsynced(known.to_event(&gate.path))?;
            self.remember_answer(&gate.path, known);
        }
        lock(&self.unconfirmed).push(gate);
        Ok(answer)
    }

    /// Ends the run with a rejection, as if it came from another process: all other work stops, and the run is never
    /// resumed.
    fn reject_run(&self, path: &StepPath, binding: &Binding, by: Option<String>, author: Value) -> Stop {
        let event = Event::GateAnswered {
            path: path.to_string(),
            gate: AT_TERMINAL.to_owned(),
            binding: binding.digest,
            answer: GateAnswer::Rejected,
            by,
            author,
            from: None,
        };
        match self.append_events(vec![event], Durability::Synced) {
            Ok(()) => {
                self.stop_rejected();
                Stop::Cancelled
            }
            Err(stop) => stop,
        }
    }

    fn bind_question(&self, question: &GateQuestion) -> Result<Binding, Stop> {
        let mut bound = json!({
            "question": question.question,
            "asker": question.asker,
            "plan": self.task.plan,
            "policy": self.policy,
        });
        let without_args = Digest::of_json(&bound).map_err(store_failure)?;
        bound["args"] = json!(self.task.args);
        Ok(Binding { digest: Digest::of_json(&bound).map_err(store_failure)?, without_args })
    }
}
