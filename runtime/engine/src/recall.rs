//! What a run knows of itself: its journal, read from the beginning.

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

/// The attempt number under which a composite step's summary is journaled: it
/// is for the history only, the parts are what is recalled.
pub const SUMMARY: u32 = 0;

/// In the detail of an outcome: the end of the run stopped this effect half-way, so
/// that for whoever goes on it has begun and not ended.
pub const CUT_OFF: &str = "cut_off";

/// What an earlier execution of the same run left in the journal.
#[derive(Default)]
pub(super) struct Recall {
    pub(super) ended: HashMap<StepPath, Arc<StepOutcome>>,
    pub(super) started: HashSet<StepPath>,
    /// What is known of effects among `started`.
    pub(super) cut_off: HashMap<StepPath, Arc<StepOutcome>>,
    pub(super) answers: HashMap<StepPath, KnownAnswer>,
    /// Composite steps whose summary is journaled already.
    pub(super) summarised: HashSet<StepPath>,
    /// Effects that the run performed itself, as opposed to took over.
    performed: HashSet<StepPath>,
    /// What came after the first answer that was taken over, with its action if
    /// it has one: a fork's own effects are not among it, since none was performed.
    behind: Option<HashMap<StepPath, Option<Digest>>>,
    /// Outcomes that hold for this action alone: the question before them was asked again.
    only_for: HashMap<StepPath, Digest>,
    /// What models were paid for.
    ledger: Ledger,
    /// The places at which the run was taken up again after a failure, as often as it was.
    retried: Vec<StepPath>,
    /// Change sets that conflicted, and what was put in their places.
    resolved: HashMap<Digest, Digest>,
    /// So many records came from elsewhere with the run.
    imported: u64,
    /// The places of outcomes that only those tell.
    elsewhere: HashSet<StepPath>,
}

/// In the detail of a retry: which change set is committed in place of one that conflicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// What conflicted.
    pub from: Digest,
    /// What is committed.
    pub to: Digest,
}

impl Resolved {
    /// The name that it has there.
    const KEY: &str = "resolved";

    /// What a retry says of it.
    fn of(detail: &Value) -> Option<Self> {
        Self::deserialize(detail.get(Self::KEY)?).ok()
    }

    /// The detail that says it.
    #[must_use]
    pub fn detail(&self) -> Value {
        json!({ Self::KEY: self })
    }
}

/// The answers that a journal holds, by their places.
pub fn answers(journal: &[Record]) -> HashMap<StepPath, KnownAnswer> {
    let mut recall = Recall::default();
    recall.read(journal);
    recall.answers
}

/// What was settled elsewhere about a question: that it need not be asked, who may answer it, what it shows. Here
/// that is settled anew.
fn settles_a_question(path: &StepPath) -> bool {
    let path = path.as_str();
    path.strip_prefix('!').is_some_and(|which| which.starts_with(APPROVED))
        || SETTLED.iter().any(|which| path.ends_with(which))
}

/// How the places in a run itself begin at which it is kept that a policy's question was answered for all of it.
pub(crate) const APPROVED: &str = "approved:";

/// How the places end at which it is kept who may answer a question, and what it shows.
const SETTLED: [&str; 2] = ["!identity", "!shown"];

impl Recall {
    /// One of a run of which so many records came from elsewhere. What was done there was done; but
    /// what was permitted there is not permitted here.
    pub(super) fn of_imported(records: u64) -> Self {
        Self { imported: records, ..Self::default() }
    }

    /// Whether what this place gave is on record only elsewhere.
    pub(super) fn is_from_elsewhere(&self, path: &StepPath) -> bool {
        self.elsewhere.contains(path) && self.ended.contains_key(path)
    }

    /// True if this run began the effect at this place and its end is not on record.
    pub(super) fn has_begun(&self, path: &StepPath) -> bool {
        self.performed.contains(path) && !self.ended.contains_key(path)
    }

    /// An outcome that holds whatever the action here is now.
    pub(super) fn certain(&self, path: &StepPath) -> Option<Arc<StepOutcome>> {
        self.ended.get(path).filter(|_| !self.only_for.contains_key(path)).cloned()
    }

    pub(super) fn read(&mut self, journal: &[Record]) {
        for record in journal {
            self.ledger.read(record);
            let is_imported = record.seq <= self.imported;
            match &record.event {
                Event::StepStarted { path, effect, idempotent, action, detail, .. } => {
                    let path = StepPath::from(path.as_str());
                    let reused = detail.get("reused") == Some(&Value::Bool(true));
                    // An idempotent effect is repeated without asking.
                    if *effect && !*idempotent {
                        self.started.insert(path.clone());
                    }
                    self.cut_off.remove(&path);
                    self.only_for.remove(&path);
                    self.elsewhere.remove(&path);
                    if *effect && !reused {
                        // Whatever stands there was not what is wanted now.
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
                    // What was answered elsewhere is asked here before anything is done, as in a fork.
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
                    if let Some(Resolved { from, to }) = Resolved::of(detail).filter(|_| !is_imported) {
                        self.resolved.insert(from, to);
                    }
                    // A failure at no place was not one of a step: all of them stay as they ended.
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

    /// What is committed where this change set was to be.
    pub(super) fn resolved(&self, set: Digest) -> Digest {
        let mut last = set;
        // Each is younger than the one before; the bound is for a record that somebody wrote.
        for _ in 0..self.resolved.len() {
            match self.resolved.get(&last) {
                Some(next) => last = *next,
                None => break,
            }
        }
        last
    }

    /// How often the run was taken up again after a failure at this very place.
    pub(super) fn retries_at(&self, path: &StepPath) -> usize {
        self.retried.iter().filter(|retried| *retried == path).count()
    }

    /// What was paid for until now, with the place of each call.
    pub(super) fn paid_earlier(&self) -> Vec<(String, Spend)> {
        self.ledger.payments().map(|payment| (payment.path, payment.spend)).collect()
    }

    /// A question is asked again whose answer was taken over. Another answer may
    /// lead elsewhere, so an outcome behind it holds for its own action alone,
    /// and what has no action is found out anew.
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

    /// Forgets an outcome that holds for another action than this one.
    pub(super) fn forget_other(&mut self, path: &StepPath, action: Digest) {
        if self.only_for.get(path).is_some_and(|only| *only != action) {
            self.only_for.remove(path);
            self.ended.remove(path);
        }
    }

    /// A retry takes up the work at the failed place; what succeeded there stays
    /// done, and so do failures that a later attempt has made up for.
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
            // A commit that failed did nothing, and fails the step that it stands before.
            .filter(|(path, outcome)| {
                (path.is_within(at) || path.is_commit()) && outcome.status != StepStatus::Ok
            })
            .map(|(path, _)| path.clone())
            .filter(|path| !made_up_for.contains(&path.any_attempt()))
            .collect();
        for path in failed {
            // Of an interrupted effect that was skipped nobody has seen the end since.
            let seen = self.ended.remove(&path).is_none_or(|end| end.status != StepStatus::Interrupted);
            if seen {
                self.started.remove(&path);
            }
        }
        self.summarised.retain(|path| !at.is_within(path) && !path.is_within(at));
    }
}
