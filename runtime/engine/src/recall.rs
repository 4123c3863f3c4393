//! A run's memory: its journal, read from the beginning.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::binding::KnownAnswer;
use super::path::StepPath;
use lobster_base::digest::Digest;
use lobster_models::Spend;
use lobster_models::ledger::Ledger;
use lobster_stage::Answer;
use lobster_store::{Event, GateAnswer, Record, StepOutcome, StepStatus};

/// The attempt number of a composite step's summary in the journal. The summary is only for the history; the parts are
/// recalled one by one.
pub const SUMMARY: u32 = 0;

/// In the detail of an outcome: the end of the run stopped this effect half-way, so for a resumed run it has begun and
/// not ended.
pub const CUT_OFF: &str = "cut_off";

/// The results of earlier executions of the same run, from the journal.
#[derive(Default)]
pub(super) struct Recall {
    pub(super) ended: HashMap<StepPath, Arc<StepOutcome>>,
    pub(super) started: HashSet<StepPath>,
    /// The outcomes of interrupted effects among `started`.
    pub(super) cut_off: HashMap<StepPath, Arc<StepOutcome>>,
    pub(super) answers: HashMap<StepPath, KnownAnswer>,
    /// Composite steps whose summary is already in the journal.
    pub(super) summarised: HashSet<StepPath>,
    /// Effects that the run performed itself and did not take over.
    performed: HashSet<StepPath>,
    /// Paths recorded after the first answer that was taken over, each with its action if it has one. A fork's own
    /// effects are not included, since an effect needs a confirmed answer.
    behind: Option<HashMap<StepPath, Option<Digest>>>,
    /// Outcomes that are valid only for this action, because the question before them was asked again.
    only_for: HashMap<StepPath, Digest>,
    /// The recorded costs of model calls.
    ledger: Ledger,
    /// The paths at which the run was resumed after a failure, once for each time.
    retried: Vec<StepPath>,
    /// Change sets that conflicted, and their replacements.
    resolved: HashMap<Digest, Digest>,
    /// The number of records that were imported with the run.
    imported: u64,
    /// The paths of outcomes that only imported records have.
    elsewhere: HashSet<StepPath>,
}

/// In the detail of a retry: the replacement of a change set that conflicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// The change set that conflicted.
    pub from: Digest,
    /// The change set that is committed instead.
    pub to: Digest,
}

impl Resolved {
    /// Its name in the detail.
    const KEY: &str = "resolved";

    /// Reads it from the detail of a retry.
    fn from_detail(detail: &Value) -> Option<Self> {
        Self::deserialize(detail.get(Self::KEY)?).ok()
    }

    /// The detail for a retry.
    #[must_use]
    pub fn to_detail(&self) -> Value {
        json!({ Self::KEY: self })
    }
}

/// The answers in a journal, by their paths.
pub fn recorded_answers(journal: &[Record]) -> HashMap<StepPath, KnownAnswer> {
    let mut recall = Recall::default();
    recall.read_journal(journal);
    recall.answers
}

/// True for a path with a fact about a question that was decided elsewhere: that it need not be asked, the permitted
/// approvers, the displayed text. Such facts are decided again here.
fn settles_a_question(path: &StepPath) -> bool {
    let path = path.as_str();
    path.strip_prefix('!').is_some_and(|which| which.starts_with(APPROVED))
        || SETTLED.iter().any(|which| path.ends_with(which))
}

/// Prefix of the paths, directly below the run, that record an approval of a policy's question for the whole run.
pub(crate) const APPROVED: &str = "approved:";

/// Endings of the paths that record the permitted approvers of a question, and its displayed text.
const SETTLED: [&str; 2] = ["!identity", "!shown"];

impl Recall {
    /// For a run with this many imported records. The recorded effects were performed, but permissions from elsewhere
    /// are not valid here.
    pub(super) fn of_imported(records: u64) -> Self {
        Self { imported: records, ..Self::default() }
    }

    /// True if the outcome of this path is only in imported records.
    pub(super) fn is_from_elsewhere(&self, path: &StepPath) -> bool {
        self.elsewhere.contains(path) && self.ended.contains_key(path)
    }

    /// True if this run began the effect at this path and its end is not recorded.
    pub(super) fn has_begun(&self, path: &StepPath) -> bool {
        self.performed.contains(path) && !self.ended.contains_key(path)
    }

    /// An outcome that is valid regardless of the current action.
    pub(super) fn certain_outcome(&self, path: &StepPath) -> Option<Arc<StepOutcome>> {
        self.ended.get(path).filter(|_| !self.only_for.contains_key(path)).cloned()
    }

    pub(super) fn read_journal(&mut self, journal: &[Record]) {
        for record in journal {
            self.ledger.read_record(record);
            let is_imported = record.seq <= self.imported;
            match &record.event {
                Event::StepStarted { path, effect, idempotent, action, detail, .. } => {
                    let path = StepPath::from(path.as_str());
                    let reused = detail.get("reused") == Some(&Value::Bool(true));
                    // An idempotent effect is repeated without a question.
                    if *effect && !*idempotent {
                        self.started.insert(path.clone());
                    }
                    self.cut_off.remove(&path);
                    self.only_for.remove(&path);
                    self.elsewhere.remove(&path);
                    if *effect && !reused {
                        // An earlier outcome at this path was for another action.
                        self.ended.remove(&path);
                        self.performed.insert(path);
                    } else if let Some(behind) = &mut self.behind {
                        behind.insert(path, *action);
                    }
                }
                Event::StepEnded { path, outcome, .. } if outcome.detail[CUT_OFF] == true => {
                    self.cut_off.insert(path.as_str().into(), Arc::clone(outcome));
                }
                Event::StepEnded { path, attempt: SUMMARY, .. } => {
                    self.summarised.insert(path.as_str().into());
                }
                Event::StepEnded { path, begun, outcome, .. } => {
                    let path = StepPath::from(path.as_str());
                    if !is_imported {
                        self.elsewhere.remove(&path);
                    } else if settles_a_question(&path) {
                        continue;
                    } else {
                        self.elsewhere.insert(path.clone());
                    }
                    if let Some(behind) = &mut self.behind
                        && !self.performed.contains(&path)
                        && (begun.is_some() || !behind.contains_key(&path))
                    {
                        behind.insert(path.clone(), begun.as_ref().map(|begun| begun.action));
                    }
                    if begun.is_some() {
                        self.only_for.remove(&path);
                    }
                    self.ended.insert(path, Arc::clone(outcome));
                }
                Event::GateAnswered { path, gate, binding, answer, by, author, from } => {
                    let path = StepPath::from(path.as_str());
                    let answer = match answer {
                        GateAnswer::Approved => Answer::Approved { by: by.clone(), part: None },
                        GateAnswer::ApprovedPart { changes } => {
                            Answer::Approved { by: by.clone(), part: Some(*changes) }
                        }
                        GateAnswer::Response(value) => Answer::Response(value.clone()),
                        GateAnswer::Rejected => {
                            self.answers.remove(&path);
                            continue;
                        }
                    };
                    // An answer from elsewhere is asked again here before any effect, as in a fork.
                    let from = from.or_else(|| is_imported.then_some(record.run));
                    if from.is_some() {
                        self.behind.get_or_insert_default();
                    }
                    let (gate, by, author) = (gate.clone(), by.clone(), author.clone());
                    let known = KnownAnswer { answer, binding: *binding, gate, by, author, from };
                    self.answers.insert(path, known);
                }
                Event::GateOpened { path, .. } => {
                    let path = StepPath::from(path.as_str());
                    if self.answers.get(&path).is_some_and(|known| known.from.is_some()) {
                        self.doubt_what_is_behind();
                    }
                }
                Event::GateClosed { path, .. } => {
                    self.answers.remove(&StepPath::from(path.as_str()));
                }
                Event::RetryRequested { path, detail, .. } => {
                    if !is_imported && let Some(Resolved { from, to }) = Resolved::from_detail(detail) {
                        self.resolved.insert(from, to);
                    }
                    // A failure without a path was not a step's, so all steps keep their outcomes.
                    let Some(path) = path.as_deref().map(StepPath::from) else { continue };
                    self.forget_failures(&path);
                    self.retried.push(path);
                }
                Event::RunStarted { .. }
                | Event::RunResumed { .. }
                | Event::RunPaused { .. }
                | Event::RunEnded { .. }
                | Event::Decision { .. }
                | Event::Note { .. }
                | Event::Unknown(_) => {}
            }
        }
        self.started.retain(|path| !self.ended.contains_key(path));
    }

    /// The change set that is committed in place of this one.
    pub(super) fn resolved_set(&self, set: Digest) -> Digest {
        let mut last = set;
        // Each replacement is newer than the one before; the bound protects against a forged record.
        for _ in 0..self.resolved.len() {
            match self.resolved.get(&last) {
                Some(next) => last = *next,
                None => break,
            }
        }
        last
    }

    /// Number of times that the run was resumed after a failure at exactly this path.
    pub(super) fn retries_at(&self, path: &StepPath) -> usize {
        self.retried.iter().filter(|retried| *retried == path).count()
    }

    /// The recorded costs so far, with the path of each call.
    pub(super) fn paid_earlier(&self) -> Vec<(String, Spend)> {
        self.ledger.payments().map(|payment| (payment.path, payment.spend)).collect()
    }

    /// Called when a question is asked again whose answer was taken over. Another answer may lead to other actions, so
    /// a later outcome is valid only for its own action, and a later result without an action is decided again.
    fn doubt_what_is_behind(&mut self) {
        for (path, action) in self.behind.take().unwrap_or_default() {
            match action {
                Some(action) => {
                    self.only_for.insert(path, action);
                }
                None => {
                    self.ended.remove(&path);
                }
            }
        }
        self.summarised.clear();
    }

    /// Drops an outcome that is valid only for another action.
    pub(super) fn forget_other(&mut self, path: &StepPath, action: Digest) {
        if self.only_for.get(path).is_some_and(|only| *only != action) {
            self.only_for.remove(path);
            self.ended.remove(path);
        }
    }

    /// Prepares a retry from the failed path. Successes there are kept, and so are failures that a later attempt
    /// corrected.
    fn forget_failures(&mut self, at: &StepPath) {
        let made_up_for: HashSet<StepPath> = self
            .ended
            .iter()
            .filter(|(_, outcome)| outcome.status == StepStatus::Ok)
            .map(|(path, _)| path.any_attempt())
            .collect();
        let failed: Vec<_> = self
            .ended
            .iter()
            // A failed commit changed nothing, and is a failure of the step that follows it.
            .filter(|(path, outcome)| {
                (path.is_within(at) || path.is_commit()) && outcome.status != StepStatus::Ok
            })
            .map(|(path, _)| path.clone())
            .filter(|path| !made_up_for.contains(&path.any_attempt()))
            .collect();
        for path in failed {
            // The end of an interrupted effect that was skipped is still unknown.
            let seen = self.ended.remove(&path).is_none_or(|end| end.status != StepStatus::Interrupted);
            if seen {
                self.started.remove(&path);
            }
        }
        self.summarised.retain(|path| !at.is_within(path) && !path.is_within(at));
    }
}
