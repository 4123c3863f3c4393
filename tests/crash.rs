//! SIGKILL at every durable write: no effect is lost, none happens twice, and
//! what nobody can know is said.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::home::{Home, interrupted_steps};

/// Effects of every kind of place: a plain step, a loop, a branch, a
/// pipeline, a sub-workflow, and one behind a gate.
const WORKFLOW: &str = "
steps:
  - id: collect
    run: echo collect >> effects; printf '[1,2]'
  - id: label
    for_each: $collect.json
    steps:
      - id: one
        run: echo \"label $N\" >> effects
        env: { N: $item.json }
  - id: both
    parallel:
      branches:
        - id: left
          run: echo left >> effects
        - id: right
          pipeline: \"exec --shell 'echo right >> effects; echo r'\"
  - id: ask
    approval: Apply?
  - id: apply
    workflow: apply.lobster
  - id: end
    pipeline: exec true
";

const APPLY: &str = "
steps:
  - id: apply
    run: echo apply >> effects
";

const EFFECTS: [&str; 6] = ["collect", "label 1", "label 2", "left", "right", "apply"];

fn home() -> Home {
    let home = Home::new();
    home.write("flow.lobster", WORKFLOW).write("apply.lobster", APPLY);
    home
}

fn effects(home: &Home) -> BTreeMap<String, usize> {
    let mut effects = BTreeMap::new();
    for line in home.read("effects").lines() {
        *effects.entry(line.to_owned()).or_default() += 1;
    }
    effects
}

fn runs(home: &Home, words: &[&str]) -> Vec<Value> {
    let listed = home.lobster(["runs", "--json"].iter().chain(words)).run();
    assert_eq!(listed.code(), 0, "{listed:?}");
    serde_json::from_str(&listed.stdout).unwrap_or_else(|error| panic!("{error}: {listed:?}"))
}

/// What became of a run after one crash.
#[derive(Debug, Default)]
struct Story {
    crashed: bool,
    /// Steps that were reported as interrupted.
    interrupted: usize,
}

/// Brings a run to its end after a crash, the way a person would.
fn bring_to_an_end(home: &Home, story: &mut Story) {
    for _ in 0..8 {
        let Some(run) = runs(home, &[]).into_iter().next() else {
            // Killed before the run was recorded: nothing was done, so it can be started again.
            assert_eq!(effects(home), BTreeMap::new());
            home.tool(["flow.lobster"]);
            continue;
        };
        let id = run["id"].as_str().unwrap();
        match run["status"].as_str().unwrap() {
            "ok" => return,
            "waiting" => {
                let gates = home.lobster(["approvals", "--json"]).run();
                let gates: Value = serde_json::from_str(&gates.stdout).unwrap();
                assert_eq!(gates.as_array().map(Vec::len), Some(1), "{gates:#}");
                let gate = gates[0]["id"].as_str().unwrap();
                home.lobster(["resume", "--id", gate, "--approve", "yes"]).run().envelope();
            }
            "interrupted" => {
                let listed = runs(home, &["--interrupted"]);
                assert_eq!(listed.len(), 1, "{listed:?}");
                assert_eq!(listed[0]["id"], id);
                resume(home, id, story);
            }
            "failed" => resume(home, id, story),
            other => panic!("a run is {other}: {run:#}"),
        }
    }
    panic!("the run does not end: {:#?}", runs(home, &[]));
}

fn resume(home: &Home, id: &str, story: &mut Story) {
    let answer = home.lobster(["resume", id]).run();
    let envelope = answer.envelope();
    let message = envelope["error"]["message"].as_str().unwrap_or_default();
    let interrupted = interrupted_steps(message).count();
    if interrupted > 0 {
        story.interrupted += interrupted;
        home.lobster(["resume", id, "--retry-interrupted"]).run().envelope();
    }
}

/// Kills the first call at its `run`-th write or the answer to the gate at its `resume`-th.
fn crash_at(point: u64, while_resuming: bool, has_worker: bool) -> Story {
    let home = home().with_worker(has_worker);
    let mut story = Story::default();
    let fault = format!("{point}:kill");
    if while_resuming {
        let token = home.tool(["flow.lobster"]).token();
        let answer =
            home.lobster(["resume", "--token", &token, "--approve", "yes"]).env("LOBSTER_FAULT", fault).run();
        story.crashed = answer.code() == 137;
    } else {
        let answer =
            home.lobster(["run", "--mode", "tool", "flow.lobster"]).env("LOBSTER_FAULT", fault).run();
        story.crashed = answer.code() == 137;
    }
    let before = effects(&home);
    bring_to_an_end(&home, &mut story);
    let after = effects(&home);
    let mut repeated = 0;
    for effect in EFFECTS {
        match after.get(effect) {
            Some(1) => {}
            // A child may still end its work while lobster is being killed.
            Some(2) => repeated += 1,
            other => {
                panic!("point {point}: {effect} happened {other:?} times: {before:?} {after:?} {story:?}")
            }
        }
    }
    assert!(
        repeated <= story.interrupted,
        "point {point}: repeated without being asked: {before:?} {after:?} {story:?}"
    );
    assert!(after.keys().all(|effect| EFFECTS.contains(&effect.as_str())), "{after:?}");
    let verified = runs(&home, &[]);
    assert!(verified.iter().filter(|run| run["status"] == "ok").count() == 1, "{verified:?}");
    story
}

/// Every point of one call, until it passes none any more.
fn crash_everywhere(while_resuming: bool, least: u64) {
    let next = std::sync::atomic::AtomicU64::new(1);
    let last = std::sync::atomic::AtomicU64::new(u64::MAX);
    let crashes = std::sync::atomic::AtomicU64::new(0);
    let reported = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                use std::sync::atomic::Ordering::Relaxed;
                loop {
                    let point = next.fetch_add(1, Relaxed);
                    if point > last.load(Relaxed) || point > 1000 {
                        return;
                    }
                    let story = crash_at(point, while_resuming, false);
                    reported.fetch_add(story.interrupted, Relaxed);
                    if story.crashed {
                        crashes.fetch_add(1, Relaxed)
                    } else {
                        last.fetch_min(point, Relaxed)
                    };
                }
            });
        }
    });
    let (crashes, reported) = (crashes.into_inner(), reported.into_inner());
    println!("{crashes} crashes, {reported} effects reported as interrupted");
    assert!(crashes >= least, "only {crashes} points were passed");
}

/// Some points of a run and of an answer, with effects carried out by a worker; how many were passed.
pub(crate) fn crash_with_worker(points: impl Iterator<Item = u64>) -> usize {
    let crashed = |point: u64| [false, true].map(|resuming| crash_at(point, resuming, true).crashed);
    points.flat_map(crashed).filter(|crashed| *crashed).count()
}

#[test]
fn a_run_killed_at_any_write_can_be_finished() {
    crash_everywhere(false, 20);
}

#[test]
fn an_answer_killed_at_any_write_is_not_lost() {
    crash_everywhere(true, 8);
}

#[test]
fn a_write_that_fails_is_an_error_and_no_effect_is_repeated() {
    for point in 1..=60 {
        let home = home();
        let answer = home
            .lobster(["run", "--mode", "tool", "flow.lobster"])
            .env("LOBSTER_FAULT", format!("{point}:fail"))
            .run();
        answer.envelope();
        let mut story = Story::default();
        bring_to_an_end(&home, &mut story);
        let after = effects(&home);
        for effect in EFFECTS {
            let count = after.get(effect).copied().unwrap_or_default();
            assert!(
                count == 1 || (count == 2 && story.interrupted > 0),
                "point {point}: {after:?} {story:?}\n{answer:?}"
            );
        }
        if answer.envelope()["ok"] == true && point > 30 {
            break;
        }
    }
}
