//! What a run that waits will do once its question is answered with yes.
//!
//! The recorded plan is executed again up to the first effect that the journal
//! does not know, so what is shown is the action itself and not a guess at it.
//! Pure steps on the way are computed, nothing is performed and nothing recorded.

use std::sync::{Arc, Mutex};

use serde::Serialize;
use serde_json::Value;

use super::recording::Recording;
use super::verify::failure;
use lobster_engine::envelope::Failure;
use lobster_engine::gate::{Binding, KnownAnswer};
use lobster_engine::overseer::{Act, Known, Overseer};
use lobster_engine::path::StepPath;
use lobster_engine::run::{Interrupted, Run, lock};
use lobster_engine::runtime::Runtime;
use lobster_engine::settle::output_of;
use lobster_engine::upcoming::plan_after;
use lobster_stage::{Answer, Stop};
use lobster_store::{Gate, GateKind, StoreError};

/// What an approval sets going.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Ahead {
    /// Effects that begin at once.
    pub next: Vec<NextEffect>,
    /// Questions that come up before any other effect.
    pub asks: Vec<String>,
    /// The steps of the plan after the one that asks, as a dry run shows them.
    pub then: String,
    /// The answer would be refused: what was asked is not what would run now.
    pub stale: bool,
    /// Why the execution would fail before any effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails: Option<String>,
}

/// An effect with all that decides what it does.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NextEffect {
    pub step: String,
    /// What the action digest is the digest of.
    pub action: Value,
}

/// What the answer to a gate would set going here and now.
///
/// # Errors
/// When the run's record cannot be read.
pub fn ahead(runtime: &Runtime, gate: &Gate) -> Result<Ahead, Failure> {
    let store = runtime.store().map_err(failure)?;
    let journal = match store.verified_events(gate.run) {
        Ok(journal) => journal,
        // Nothing is built on a damaged journal, by an answer neither.
        Err(broken @ StoreError::BrokenChain { .. }) => {
            return Ok(Ahead { fails: Some(broken.to_string()), ..Ahead::default() });
        }
        Err(other) => return Err(failure(other)),
    };
    let recording = Recording::read(&journal)?;
    let (plan, args) = (recording.plan(&store)?, recording.arguments(&store)?);
    let then = plan_after(&runtime.services.registry, &plan, &args, &gate.path);
    let look = Arc::new(Look { gate: gate.clone(), seen: Mutex::default() });
    let run =
        Run::recalled(&runtime.services, store, None, gate.run, recording.task, &journal, Interrupted::Ask)
            .overseen(Arc::<Look>::clone(&look));
    let result = output_of(&run, &plan, &args);
    let mut ahead = std::mem::take(&mut *lock(&look.seen));
    ahead.next.sort_by(|a, b| a.step.cmp(&b.step));
    ahead.then = then;
    if let Err(Stop::Failed(error)) = result {
        ahead.fails = Some(error.message);
    }
    Ok(ahead)
}

struct Look {
    gate: Gate,
    seen: Mutex<Ahead>,
}

impl Overseer for Look {
    fn journals(&self) -> bool {
        false
    }

    fn effect(&self, act: &Act<'_>, known: Known) -> Result<Known, Stop> {
        if known.is_some() {
            return Ok(known);
        }
        let (step, action) = (act.path.to_string(), act.preimage.value());
        lock(&self.seen).next.push(NextEffect { step, action });
        Err(Stop::Interrupted)
    }

    fn pure(&self, _: &Act<'_>, known: Known) -> Result<Known, Stop> {
        Ok(known)
    }

    fn answer(
        &self,
        path: &StepPath,
        binding: &Binding,
        known: Option<KnownAnswer>,
    ) -> Result<Option<KnownAnswer>, Stop> {
        let asked = path.as_str() == self.gate.path;
        // A fork may ask again what it took over.
        if known.as_ref().is_some_and(|known| !asked || known.from.is_none()) {
            return Ok(known);
        }
        let mut seen = lock(&self.seen);
        if !asked {
            seen.asks.push(path.to_string());
            return Ok(None);
        }
        seen.stale = !binding.is(self.gate.binding);
        // What a response sets going depends on the response.
        let yes = self.gate.kind == GateKind::Approval;
        Ok(yes.then(|| KnownAnswer {
            answer: Answer::Approved { by: None },
            binding: binding.digest,
            gate: self.gate.id.clone(),
            by: None,
            from: None,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Place, workflow};
    use lobster_store::GateFilter;

    #[test]
    fn what_an_approval_sets_going_is_shown_and_not_done() {
        let place = Place::new();
        place.run(&workflow(
            "name: w\nsteps:\n  - id: n\n    run: echo 41\n  - id: next\n    js: input + 1\n    stdin: $n.json\n  - id: ask\n    approval: ok?\n  \
             - id: go\n    run: touch went; echo $next.json\n  - id: last\n    run: echo $go.stdout\n",
        ));
        let store = place.runtime.store().unwrap();
        let gate = store.gates(&GateFilter::default()).unwrap().remove(0);
        let before = store.events(gate.run).unwrap().len();
        let ahead = ahead(&place.runtime, &gate).unwrap();
        assert_eq!(ahead.next.len(), 1, "{ahead:?}");
        assert_eq!(
            (ahead.next[0].step.as_str(), &ahead.next[0].action["argv"][2]),
            ("go", &"touch went; echo 42".into())
        );
        assert!(!ahead.stale && ahead.fails.is_none() && ahead.asks.is_empty(), "{ahead:?}");
        assert!(ahead.then.contains("4. go") && ahead.then.contains("5. last"), "{}", ahead.then);
        assert!(!ahead.then.contains("3. ask"), "{}", ahead.then);
        assert!(!place.path("went").exists());
        assert_eq!(store.events(gate.run).unwrap().len(), before);
    }
}
