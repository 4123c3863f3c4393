//! The programs that components ran according to the record, read ahead of the plan.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};

use super::recording::Recording;
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_base::sync::lock;
use lobster_engine::overseer::RecordedProgram;
use lobster_store::Store;

/// Actions that are read at once.
const AHEAD: usize = 256;

/// Most programs that are kept.
const MAX_HELD: usize = 16 * AHEAD;

#[derive(Default)]
pub(super) struct Programs {
    /// Positions of component steps in the journal, with their actions.
    order: OnceLock<Vec<(u64, Digest)>>,
    read: Mutex<HashMap<Digest, RecordedProgram>>,
}

impl Programs {
    /// The program that ran at `path`.
    pub(super) fn program_at(
        &self,
        store: &Store,
        recording: &Recording,
        path: &str,
    ) -> Option<RecordedProgram> {
        let step = recording.steps.get(path)?;
        let action = step.action?;
        if let Some(known) = lock(&self.read).get(&action) {
            return Some(*known);
        }
        let order = self.order.get_or_init(|| in_order(recording));
        let from = order.partition_point(|(seq, _)| *seq < step.seq);
        let ahead: Vec<_> = order.iter().skip(from).take(AHEAD).map(|(_, action)| *action).collect();
        let texts = store.small_blobs(&ahead).unwrap_or_default();
        let programs = texts.into_iter().filter_map(|(action, text)| {
            let program = json::parse_as(str::from_utf8(&text).ok()?).ok()?;
            Some((action, program))
        });
        let mut read = lock(&self.read);
        if read.len() > MAX_HELD {
            read.clear();
        }
        read.extend(programs);
        let known = read.get(&action).copied();
        drop(read);
        known.or_else(|| lobster_engine::recorded_plan::load_recorded(store, &action).ok())
    }
}

fn in_order(recording: &Recording) -> Vec<(u64, Digest)> {
    let steps = recording.steps.values().filter(|step| step.kind == "component");
    let mut order: Vec<_> = steps.filter_map(|step| Some((step.seq, step.action?))).collect();
    order.sort_unstable_by_key(|(seq, _)| *seq);
    order
}
