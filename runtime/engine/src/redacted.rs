//! Continues an execution in which a part of the record was left out on purpose: a step that needs the missing part
//! ends as it is recorded to have ended.

use std::sync::Arc;

use super::kinds::component;
use super::overseer::RecordedEnd;
use super::path::StepPath;
use super::record::{Json, Record};
use super::run::Run;
use super::value::Text;
use super::workflow::Frame;
use lobster_base::sync::lock;
use lobster_language::plan::{Step, Work};
use lobster_language::template::ExprError;
use lobster_stage::{Answer, Stop};
use lobster_store::StepOutcome;

impl Run<'_> {
    /// The recorded end of the step at `path`, if it stops because data was left out of the record; otherwise the stop
    /// itself.
    pub(super) fn recorded_end(&self, path: &StepPath, stop: Stop) -> Result<RecordedEnd, Stop> {
        let (Some(overseer), Stop::Failed(error)) = (self.overseer(), &stop) else { return Err(stop) };
        overseer.recorded_end(path, error).unwrap_or(Err(stop))
    }

    /// The recorded answer at a path, for any question.
    fn recorded_answer(&self, path: &StepPath, kind: &str) -> Option<Answer> {
        lock(&self.recall).answers.get(&path.gate(kind)).map(|known| known.answer.clone())
    }
}

impl Frame<'_> {
    /// A step's record, or its recorded result if the step needs data that was left out.
    pub(super) fn or_recorded(
        &self,
        step: &Step,
        path: &StepPath,
        result: Result<Record, Stop>,
    ) -> Result<Record, Stop> {
        let Err(stop) = result else { return result };
        match self.run.recorded_end(path, stop)? {
            RecordedEnd::Failed(error) => Err(Stop::Failed(error)),
            RecordedEnd::Skipped => Ok(redacted_record(step, path)),
            RecordedEnd::Done(outcome) => Ok(self.rebuild_record(step, path, outcome.as_deref())),
        }
    }

    /// True if a step runs whose condition cannot be evaluated.
    pub(super) fn recorded_condition(&self, path: &StepPath, error: &ExprError) -> Result<bool, Stop> {
        let end = self.run.recorded_end(path, self.expression_failure(path, error))?;
        Ok(!matches!(end, RecordedEnd::Skipped))
    }

    /// Takes the recorded answer to a question that cannot be asked again.
    pub(super) fn recorded_approval(
        &self,
        path: &StepPath,
        record: &mut Record,
        stop: Stop,
    ) -> Result<(), Stop> {
        match self.run.recorded_end(path, stop)? {
            RecordedEnd::Failed(error) => return Err(Stop::Failed(error)),
            RecordedEnd::Skipped | RecordedEnd::Done(_) => {}
        }
        let Some(Answer::Approved { by, .. }) = self.run.recorded_answer(path, "approval") else {
            return Err(Stop::Paused);
        };
        record.approved = true;
        record.approved_by = by;
        Ok(())
    }

    fn rebuild_record(&self, step: &Step, path: &StepPath, outcome: Option<&StepOutcome>) -> Record {
        let store = &self.run.store;
        match (&step.work, outcome) {
            (Work::Shell(_) | Work::Exec(_), Some(StepOutcome { stdout: Some(stdout), .. })) => {
                let stdout = Some(Text::from_blob(store, *stdout));
                Record { stdout, json: Json::of_stdout(), ..Record::new(&step.id) }
            }
            (Work::Component { .. } | Work::Js(_), Some(outcome)) => component::load_output(store, outcome)
                .and_then(|output| component::output_record(self, step, output))
                .unwrap_or_else(|_| redacted_record(step, path)),
            (Work::Input(_), _) => match self.run.recorded_answer(path, "input") {
                Some(Answer::Response(response)) => {
                    Record { response: Some(response), ..Record::new(&step.id) }
                }
                Some(Answer::Approved { .. }) | None => redacted_record(step, path),
            },
            _ => redacted_record(step, path),
        }
    }
}

/// A record whose contents are left out.
pub(super) fn redacted_record(step: &Step, path: &StepPath) -> Record {
    Record {
        stdout: Some(Text::left_out(Arc::from(path.as_str()))),
        json: Json::of_stdout(),
        ..Record::new(&step.id)
    }
}
