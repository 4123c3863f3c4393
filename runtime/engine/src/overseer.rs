//! Who watches over an execution that is not simply a new run: a replay
//! compares what happens with what was recorded, a fork takes over what it can.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::action::Preimage;
use super::binding::{Binding, KnownAnswer};
use super::execute::NativeProfile;
use super::path::StepPath;
use lobster_base::digest::Digest;
use lobster_stage::{StageError, Stop};
use lobster_store::StepOutcome;

/// Something that is about to be done.
pub struct Act<'a> {
    pub path: &'a StepPath,
    /// `native`, `http`, `component` …, as the plan has it now.
    pub kind: &'a str,
    /// The action digest.
    pub digest: Digest,
    /// What the action digest is the digest of.
    pub preimage: &'a Preimage,
    /// What it would be executed on in place of the outside. Only a component has it, of
    /// [`Overseer::recorded_outside`]; anything else would be performed.
    pub on_record: Option<RecordedOutside>,
    /// The variables that the plan sets, which the preimage has as digests.
    pub variables: &'a BTreeMap<String, String>,
}

/// What an effect component learnt from outside when it was recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RecordedOutside {
    /// Nothing: it asked nothing.
    Nothing,
    /// The blob with its calls and their answers.
    Calls(Digest),
}

/// The parts of a component's recorded action that its execution starts from.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct RecordedProgram {
    pub(crate) component: Digest,
    pub(crate) limits: RecordedLimits,
    /// How the engine ran it.
    pub(crate) profile: Profile,
}

/// Version of how the engine runs components; part of every action, so that a
/// change that could change outcomes never meets old cache entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Profile {
    /// The description may lower the limits, also those of `js`; a grant is
    /// withheld if the description asks for nothing of its kind.
    #[serde(rename = "component@1")]
    ByKind,
    /// The description may lower the limits; a grant is withheld if the
    /// description does not ask for it.
    #[serde(rename = "component@2")]
    ByName,
    /// The evaluator of `js`, whose description says nothing about limits.
    #[serde(rename = "js@2")]
    JsByName,
    /// As before, and the action tells the very text of the arguments.
    #[serde(rename = "component@3")]
    Component,
    /// The same of the evaluator.
    #[serde(rename = "js@3")]
    Js,
}

impl Profile {
    /// Whether the program is the evaluator, and known to be.
    pub(crate) fn is_js(self) -> bool {
        matches!(self, Self::JsByName | Self::Js)
    }

    /// Whether actions tell arguments apart that only differ in their order or spelling.
    pub(crate) fn tells_argument_text(self) -> bool {
        matches!(self, Self::Component | Self::Js)
    }
}

/// Limits as an action has them; what it does not have is as it would be now.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RecordedLimits {
    pub(crate) fuel: Option<u64>,
    pub(crate) memory: Option<u64>,
    pub(crate) tables: Option<u64>,
    pub(crate) output: Option<u64>,
}

/// Parts of a native action that are read from files; null where there are none.
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

/// How a step ended that cannot be executed again for want of what was left out.
pub enum RecordedEnd {
    Skipped,
    Failed(StageError),
    /// With the outcome of its own action, if it is one.
    Done(Known),
}

/// Asked before anything is done. `known` is always what the run's own journal says.
pub trait Overseer: Send + Sync {
    /// Whether this execution is written into the run's journal.
    fn journals(&self) -> bool;

    /// Whether the effect here may be performed: what is not journaled is not, but on request.
    fn performs(&self, _path: &StepPath) -> bool {
        self.journals()
    }

    /// The outcome to take instead of performing an effect.
    fn effect(&self, act: &Act<'_>, known: Known) -> Result<Known, Stop>;

    /// The outcome to take instead of computing a pure step.
    fn pure(&self, act: &Act<'_>, known: Known) -> Result<Known, Stop>;

    /// What an action that nothing is known of gives, if that was computed already.
    fn computed(&self, _action: &Digest) -> Option<StepOutcome> {
        None
    }

    /// What was performed or computed after all; gives what to go on with.
    fn done(&self, _path: &StepPath, outcome: Arc<StepOutcome>) -> Arc<StepOutcome> {
        outcome
    }

    /// How a composite step ended.
    fn summary(&self, _path: &StepPath, _outcome: &StepOutcome) {}

    /// The answer to a question whose binding now is `binding`.
    fn answer(
        &self,
        path: &StepPath,
        binding: &Binding,
        known: Option<KnownAnswer>,
    ) -> Result<Option<KnownAnswer>, Stop>;

    /// The record that answers what a component asks the outside here, instead
    /// of the outside. What such a component writes is not put in place.
    fn recorded_outside(&self, _path: &StepPath) -> Option<RecordedOutside> {
        None
    }

    /// Where the contents of the granted directory of this number lie, if not where the plan says.
    fn directory(&self, _path: &StepPath, _index: usize) -> Option<PathBuf> {
        None
    }

    /// Whether an effect is to be performed here whatever the action cache knows.
    fn wants_anew(&self, _path: &StepPath) -> bool {
        false
    }

    /// The place in the run that this one goes on from whose outcome was taken here, if one was.
    fn taken_from(&self, _path: &StepPath) -> Option<String> {
        None
    }

    /// Until when the step here waits, which event ended that, or that more rounds were asked for here, if a run that this one
    /// goes on from has decided it.
    fn wait(&self, _path: &StepPath) -> Option<Value> {
        None
    }

    /// The files that belonged to the action here when it was recorded, whatever has become of them.
    fn declared(&self, _path: &StepPath) -> Option<Declared> {
        None
    }

    /// How the native action here named places when it was recorded; none is for new ones.
    fn native_profile(&self, _path: &StepPath) -> Option<NativeProfile> {
        None
    }

    /// How the step here ended, if `error` comes from what was left out of the record;
    /// an error where the record ends before.
    fn recorded_end(&self, _path: &StepPath, _error: &StageError) -> Option<Result<RecordedEnd, Stop>> {
        None
    }

    /// The secrets of the action here when it was recorded, as it names them.
    fn secrets(&self, _path: &StepPath) -> Option<Value> {
        None
    }

    /// The component that ran here and the limits that it ran under, whatever the
    /// plan's file has become and whatever they would be now.
    fn program(&self, _path: &StepPath) -> Option<RecordedProgram> {
        None
    }
}
