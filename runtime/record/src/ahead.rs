//! Preview of the steps that would run if a waiting question were answered now.

use super::directory::{kept_directory, last_cwd};
use super::recording::Recording;
use lobster_engine::envelope::Failure;
use lobster_engine::runtime::Runtime;
use lobster_engine::upcoming::plan_after;
use lobster_engine::{Ahead, Asking, ahead::look_ahead};
use lobster_store::{Gate, StoreError};

/// Previews the steps that the answer to a gate would start now.
///
/// # Errors
/// If the run's record cannot be read.
pub fn preview_steps(runtime: &Runtime, gate: &Gate) -> Result<Ahead, Failure> {
    let store = runtime.store()?;
    let journal = match store.verified_events(gate.run) {
        Ok(journal) => journal,
        // A damaged journal is never continued, not even after an answer.
        Err(broken @ StoreError::BrokenChain { .. }) => {
            return Ok(Ahead { fails: Some(broken.to_string()), ..Ahead::default() });
        }
        Err(other) => return Err(other.into()),
    };
    let recording = Recording::from_journal(&journal)?;
    let (plan, args) = (recording.read_plan(&store)?, recording.read_arguments(&store)?);
    let mut services = runtime.services.silent_copy(runtime.services.cancel.child_token());
    if let Some(dir) =
        kept_directory(runtime, &store, gate.run, || Ok(last_cwd(&store, gate.run, &journal)?))?
    {
        services.cwd = dir;
    }
    let asking = Asking { run: gate.run, path: &gate.path, binding: gate.binding, kind: gate.kind };
    Ok(Ahead {
        then: plan_after(&services.registry, &plan, &args, &gate.path),
        ..look_ahead(&services, store, &asking, recording.task, (&plan, &args), &journal)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestState, workflow_text};
    use lobster_store::GateFilter;

    #[test]
    fn what_an_approval_sets_going_is_shown_and_not_done() {
        let place = TestState::new();
        place.run(&workflow_text(
            "name: w\nsteps:\n  - id: n\n    run: echo 41\n  - id: next\n    js: input + 1\n    stdin: $n.json\n  - id: ask\n    approval: ok?\n  \
             - id: go\n    run: touch went; echo $next.json\n  - id: last\n    run: echo $go.stdout\n",
        ));
        let store = place.runtime.store().unwrap();
        let gate = store.list_approvals(&GateFilter::default()).unwrap().remove(0);
        let before = store.all_events(gate.run).unwrap().len();
        let ahead = preview_steps(&place.runtime, &gate).unwrap();
        assert_eq!(ahead.next.len(), 1, "{ahead:?}");
        assert_eq!(
            (ahead.next[0].step.as_str(), &ahead.next[0].action["argv"][2]),
            ("go", &"touch went; echo 42".into())
        );
        assert!(!ahead.stale && ahead.fails.is_none() && ahead.asks.is_empty(), "{ahead:?}");
        assert!(ahead.then.contains("4. go") && ahead.then.contains("5. last"), "{}", ahead.then);
        assert!(!ahead.then.contains("3. ask"), "{}", ahead.then);
        assert!(!place.path("went").exists());
        assert_eq!(store.all_events(gate.run).unwrap().len(), before);
    }
}
