//! The hook by which replay and fork answer for effects: a replay compares what happens with the record, a fork reuses
//! recorded results where it can.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::action::Preimage;
use super::binding::{Binding, KnownAnswer};
use super::path::StepPath;
use lobster_base::digest::Digest;
use lobster_executor::NativeProfile;
use lobster_stage::{StageError, Stop};
use lobster_store::StepOutcome;

/// An action that is about to be performed.
pub struct Act<'a> {
    pub path: &'a StepPath,
    /// `native`, `http`, `component` …, as in the current plan.
    pub kind: &'a str,
    /// The action digest.
    pub digest: Digest,
    /// The pre-image of the action digest.
    pub preimage: &'a Preimage,
    /// The recorded answers that would replace the outside world. Only a component has them, from
    /// [`Overseer::recorded_outside`]; any other action would be performed.
    pub on_record: Option<RecordedOutside>,
    /// The variables that the plan sets, whose digests are in the pre-image.
    pub variables: &'a BTreeMap<String, String>,
}

/// The recorded answers from outside that an effect component got.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RecordedOutside {
    /// None: it made no calls.
    Nothing,
    /// The blob with its calls and their answers.
    Calls(Digest),
}

/// The parts of a component's recorded action that are needed to execute it.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct RecordedProgram {
    pub(crate) component: Digest,
    pub(crate) limits: RecordedLimits,
    /// The way in which the engine ran it.
    pub(crate) profile: Profile,
}

/// Version of the way in which the engine runs components. It is part of every action, so that old cache entries never
/// match after a change that could change outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Profile {
    /// The description may lower the limits, even those of `js`. A grant is withheld if the description asks for
    /// nothing of its kind.
    #[serde(rename = "component@1")]
    ByKind,
    /// The description may lower the limits. A grant is withheld if the description does not ask for it.
    #[serde(rename = "component@2")]
    ByName,
    /// The evaluator of `js`, whose description sets no limits.
    #[serde(rename = "js@2")]
    JsByName,
    /// Like the second version, and the action identifies the exact text of the arguments.
    #[serde(rename = "component@3")]
    Component,
    /// The same for the evaluator.
    #[serde(rename = "js@3")]
    Js,
}

impl Profile {
    /// True if the program is known to be the evaluator.
    pub(crate) fn is_js(self) -> bool {
        matches!(self, Self::JsByName | Self::Js)
    }

    /// True if actions distinguish arguments that differ only in order or spelling.
    pub(crate) fn tells_argument_text(self) -> bool {
        matches!(self, Self::Component | Self::Js)
    }
}

/// Limits in an action; a missing one has its current default.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RecordedLimits {
    pub(crate) fuel: Option<u64>,
    pub(crate) memory: Option<u64>,
    pub(crate) tables: Option<u64>,
    pub(crate) output: Option<u64>,
}

/// Parts of a native action that are read from files; null if there are none.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Declared {
    /// Digests of the step's input files by their names.
    pub inputs: Value,
    /// Digests of the programs that it would start, by their paths.
    pub programs: Value,
}

/// An outcome, if there is one.
pub type Known = Option<Arc<StepOutcome>>;

/// The recorded end of a step that cannot be executed again, because data was left out of the record.
pub enum RecordedEnd {
    Skipped,
    Failed(StageError),
    /// With the outcome of its own action, if the step has one.
    Done(Known),
}

/// Called before an action is performed. `known` is always the outcome in the run's own journal.
pub trait Overseer: Send + Sync {
    /// True if this execution writes to the run's journal.
    fn is_journaled(&self) -> bool;

    /// True if this effect may be performed. An execution without a journal performs effects only on request.
    fn can_perform(&self, _path: &StepPath) -> bool {
        self.is_journaled()
    }

    /// Refuses a command that a person has to approve, if this execution asks nobody.
    fn check_asks(&self, _path: &StepPath) -> Result<(), Stop> {
        Ok(())
    }

    /// Records that an effect is about to be performed, with the policy's decision about it. Only an execution without
    /// a journal needs to: the run's journal has the start of each effect.
    fn record_performed(&self, _act: &Act<'_>, _decision: &Value) -> Result<(), Stop> {
        Ok(())
    }

    /// The outcome to use instead of performing an effect.
    fn replace_effect(&self, act: &Act<'_>, known: Known) -> Result<Known, Stop>;

    /// The outcome to use instead of computing a pure step.
    fn replace_pure(&self, act: &Act<'_>, known: Known) -> Result<Known, Stop>;

    /// The outcome of an action without a known outcome, if it was already computed.
    fn computed_outcome(&self, _action: &Digest) -> Option<StepOutcome> {
        None
    }

    /// Reports an outcome that had to be performed or computed; returns the outcome to continue with.
    fn report_outcome(&self, _path: &StepPath, outcome: Arc<StepOutcome>) -> Arc<StepOutcome> {
        outcome
    }

    /// Reports the end of a composite step.
    fn report_summary(&self, _path: &StepPath, _outcome: &StepOutcome) {}

    /// The answer to a question whose binding is now `binding`.
    fn replace_answer(
        &self,
        path: &StepPath,
        binding: &Binding,
        known: Option<KnownAnswer>,
    ) -> Result<Option<KnownAnswer>, Stop>;

    /// The recorded answers for the calls of the component at this path. Changes by such a component are not
    /// committed.
    fn recorded_outside(&self, _path: &StepPath) -> Option<RecordedOutside> {
        None
    }

    /// The path of the granted directory with this number, if it differs from the plan's.
    fn granted_directory(&self, _path: &StepPath, _index: usize) -> Option<PathBuf> {
        None
    }

    /// True if the effect has to be performed again, even if the action cache has its outcome.
    fn wants_anew(&self, _path: &StepPath) -> bool {
        false
    }

    /// The path in the run that this one forks or resumes from whose outcome was reused here, if any.
    fn taken_from(&self, _path: &StepPath) -> Option<String> {
        None
    }

    /// The decision of an earlier run at this path that this run follows: the time until which the step waits, the
    /// event that ended its wait, or the request for more rounds.
    fn earlier_decision(&self, _path: &StepPath) -> Option<Value> {
        None
    }

    /// The files that belonged to the recorded action at this path, even if they have changed.
    fn declared_files(&self, _path: &StepPath) -> Option<Declared> {
        None
    }

    /// The way in which the recorded native action named paths; `None` for new actions.
    fn native_profile(&self, _path: &StepPath) -> Option<NativeProfile> {
        None
    }

    /// The recorded end of the step, if `error` was caused by data that was left out of the record. It is an error if
    /// the record ends before that.
    fn recorded_end(&self, _path: &StepPath, _error: &StageError) -> Option<Result<RecordedEnd, Stop>> {
        None
    }

    /// The secrets in the recorded action, as it names them.
    fn recorded_secrets(&self, _path: &StepPath) -> Option<Value> {
        None
    }

    /// The component that ran here, and its limits then, even if the plan's file or the limits have changed.
    fn recorded_program(&self, _path: &StepPath) -> Option<RecordedProgram> {
        None
    }
}
