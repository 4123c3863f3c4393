//! Signals at random times to each kind of process: lobster alone, its group, its guard, helper, supervisors and
//! worker, a step, and all of lobster's processes at once. No effect is lost, none is repeated that nobody was told
//! about, no process is left, and no run is lost from sight.

use std::collections::BTreeMap;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::home::{Home, interrupted_steps};
use crate::own_processes::{self, Kind};
use crate::random_workflows::Dice;
use crate::setting::number;

const WORKFLOW: &str = "
steps:
  - id: first
    run: echo first >> effects; printf '[1,2,3]'
  - id: each
    for_each: $first.json
    steps:
      - id: one
        run: echo \"each $N\" >> effects
        env: { N: $item.json }
  - id: both
    parallel:
      branches:
        - id: left
          run: echo left >> effects
        - id: right
          pipeline: \"exec --shell 'echo right >> effects; seq 5000' | head --n 3\"
  - id: ask
    approval: Go on?
  - id: last
    run: echo last >> effects
";

const EFFECTS: [&str; 7] = ["first", "each 1", "each 2", "each 3", "left", "right", "last"];

/// How a story went.
#[derive(Default)]
struct Story {
    kills: u64,
    told: u64,
}

/// The processes that are hit at once, and with what.
fn hit(child: &Child, dice: &mut Dice) {
    let pid = Pid::from_child(child);
    let signal = [Signal::KILL, Signal::TERM, Signal::HUP, Signal::INT, Signal::STOP]
        [usize::try_from(dice.below(5)).unwrap()];
    let is_hit: fn(Kind) -> bool = match dice.below(8) {
        0 => |kind| kind == Kind::Main,
        1 => {
            let _ = kill_process_group(pid, signal);
            |_| false
        }
        2 => |kind| kind == Kind::Guard,
        3 => |kind| kind == Kind::Helper,
        4 => |kind| kind == Kind::Supervisor,
        5 => |kind| kind == Kind::Step,
        6 => |kind| kind == Kind::Worker,
        _ => Kind::is_lobster,
    };
    own_processes::signal(child, signal, is_hit);
    if signal == Signal::STOP {
        std::thread::sleep(Duration::from_millis(dice.below(200)));
        // lobster finds its own stopped processes; who stopped lobster itself or a step lets it go on.
        own_processes::signal(child, Signal::CONT, |kind| {
            matches!(kind, Kind::Main | Kind::Worker | Kind::Step | Kind::BelowStep)
        });
    }
}

/// Starts lobster with `words`, and hits it after a random time; what it did stays, and nothing else.
fn kill_at_random(home: &Home, words: &[&str], dice: &mut Dice, story: &mut Story) {
    let mut child = home.lobster(words).start_with_stdout(Stdio::null());
    let mut said = child.stderr.take().unwrap();
    let drain = std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    std::thread::sleep(Duration::from_micros(dice.below(250_000)));
    if child.try_wait().unwrap().is_none() {
        story.kills += 1;
        hit(&child, dice);
    }
    crate::home::wait(&mut child, &words);
    let _ = drain.join();
    home.assert_deserted();
}

fn latest(home: &Home) -> Option<Value> {
    let listed = home.lobster(["runs", "--json"]).run();
    let runs: Value = serde_json::from_str(&listed.stdout).unwrap_or_else(|_| panic!("{listed:?}"));
    runs.as_array().unwrap().first().cloned()
}

/// One run, killed now and again until it is over.
fn live(seed: u64) -> Story {
    let (mut dice, mut story) = (Dice::new(seed), Story::default());
    let home = Home::new().with_worker(dice.chance(30));
    home.write("flow.lobster", WORKFLOW);
    kill_at_random(&home, &["run", "--mode", "tool", "flow.lobster"], &mut dice, &mut story);
    for turn in 0..40 {
        let Some(run) = latest(&home) else {
            assert_eq!(home.read("effects"), "", "{seed}: an effect without a record");
            kill_at_random(&home, &["run", "--mode", "tool", "flow.lobster"], &mut dice, &mut story);
            continue;
        };
        let id = run["id"].as_str().unwrap().to_owned();
        let again = turn < 6 && dice.chance(50);
        match run["status"].as_str().unwrap() {
            "ok" => break,
            "waiting" => {
                let gates: Value =
                    serde_json::from_str(&home.lobster(["approvals", "--json"]).run().stdout).unwrap();
                let Some(gate) = gates[0]["id"].as_str().map(str::to_owned) else { continue };
                let words = ["approvals", "approve", &gate];
                if again {
                    kill_at_random(&home, &words, &mut dice, &mut story);
                } else {
                    home.lobster(words).run();
                }
            }
            // A process of it may still be ending.
            "running" => std::thread::sleep(Duration::from_millis(50)),
            status => {
                // A worker that was killed before its order reached it has done nothing.
                let is_unsent =
                    run["error"].as_str().is_some_and(|error| error.contains("Nothing was sent to it"));
                assert!(status == "interrupted" || status == "failed" && is_unsent, "{seed}: {run:#}");
                let answer = home.lobster(["resume", &id]).run();
                let told = |text: &str| interrupted_steps(text).count() as u64;
                let interrupted = told(&answer.stdout).max(told(&answer.stderr));
                if interrupted > 0 {
                    story.told += interrupted;
                    let words = ["resume", &id, "--retry-interrupted"];
                    if again {
                        kill_at_random(&home, &words, &mut dice, &mut story);
                    } else {
                        home.lobster(words).run();
                    }
                }
            }
        }
    }
    let mut counted = BTreeMap::<String, u64>::new();
    for line in home.read("effects").lines() {
        *counted.entry(line.to_owned()).or_default() += 1;
    }
    let run = latest(&home).unwrap();
    assert_eq!(run["status"], "ok", "{seed}: {run:#}");
    let repeated: u64 = counted.values().map(|times| times - 1).sum();
    assert!(
        EFFECTS.iter().all(|effect| counted.contains_key(*effect)),
        "{seed}: an effect is lost: {counted:?}"
    );
    assert!(
        counted.len() == EFFECTS.len() && repeated <= story.told,
        "{seed}: {counted:?}, {} told",
        story.told
    );
    let verified = home.lobster(["store", "verify"]).run();
    assert_eq!(verified.code(), 0, "{seed}: {verified:?}");
    let replayed = home.lobster(["replay", run["id"].as_str().unwrap()]).run();
    assert_eq!(replayed.code(), 0, "{seed}: {replayed:?}");
    story
}

#[test]
fn a_run_killed_at_random_times_loses_and_repeats_nothing() {
    let seed = number("LOBSTER_KILL_SEED", 1) * 1_000_000;
    let (mut kills, mut told, mut runs) = (0, 0, 0);
    while kills < number("LOBSTER_KILLS", 12) {
        let story = live(seed + runs);
        kills += story.kills;
        told += story.told;
        runs += 1;
    }
    println!("{kills} kills in {runs} runs, {told} effects reported as interrupted");
}
