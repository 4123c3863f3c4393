//! Random workflows, killed and failing at random writes, until they are
//! through: no outcome lost, no effect twice unless it was said, no store that
//! cannot be read. Some faults are power cuts: all that was not synced is gone.
//!
//! `LOBSTER_CRASH_POINTS` is how many crashes to try, `LOBSTER_CRASH_SEED` which
//! workflows and faults; `LOBSTER_CRASH_STORY` repeats the one run that failed.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use serde_json::Value;

use crate::home::{Answer, Call, Home, interrupted_steps};
use crate::random_workflows::{Dice, RESPONSE, Scenario};
use crate::setting::number;

/// Workflows whose crashes are tried; each is met again with other faults, until there were enough.
const WORKFLOWS: u64 = 200;

/// Calls of one run that may be disturbed: enough that most runs are through before.
const FAULTS: u64 = 40;

/// Between the first stories of two values of `LOBSTER_CRASH_SEED`.
const STORIES_APART: u64 = 100_000;

/// Crashes between two lines that say how far it is.
const TOLD_EVERY: u64 = 250;

/// After so many failures the others would say the same.
const MAX_FAILED: usize = 8;

/// The library that lets a system call fail or be the last; none where it cannot be made.
pub(crate) fn shim() -> Option<&'static Path> {
    static SHIM: OnceLock<Option<(tempfile::TempDir, PathBuf)>> = OnceLock::new();
    let made = SHIM.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("faults/shim.c");
        let library = dir.path().join("shim.so");
        let words = ["-shared", "-fPIC", "-O1", "-w", "-o"];
        let compiled = Command::new("cc").args(words).arg(&library).arg(source).arg("-ldl").status();
        match compiled {
            Ok(status) if status.success() && cfg!(target_os = "linux") => Some((dir, library)),
            other => {
                eprintln!("faults are tried without the shim: {other:?}");
                None
            }
        }
    });
    made.as_ref().map(|(_, library)| library.as_path())
}

/// Has `call` go wrong at its `n`-th point.
fn faulty(home: &Home, call: Call, dice: &mut Dice, n: u64) -> (Call, String) {
    match shim() {
        Some(shim) if dice.chance(70) => {
            let how = *dice.pick(&["kill", "cut", "log", "some", "torn", "eio", "full"]).unwrap();
            let state = home.state().canonicalize().unwrap();
            let plan = format!("{n}:{how}:{}", state.display());
            (call.env("LD_PRELOAD", shim).env("LOBSTER_SHIM", &plan), format!("system call {n} {how}"))
        }
        _ => {
            let how = *dice.pick(&["kill", "kill", "fail"]).unwrap();
            let plan = format!("{n}:{how}");
            (call.env("LOBSTER_FAULT", &plan), format!("point {plan}"))
        }
    }
}

/// A run on its way to its end.
struct Story<'s> {
    home: Home,
    seed: u64,
    dice: Dice,
    scenario: &'s Scenario,
    /// Calls that may still be disturbed.
    faults: u64,
    /// Calls that were killed or that met a failure.
    crashes: u64,
    /// How often each step was reported as interrupted.
    reported: BTreeMap<String, u64>,
    told: Vec<String>,
}

/// What to do next with a run.
enum Next {
    Start,
    Resume(String, &'static str),
    Answer(String, bool),
    Done(String),
}

impl Story<'_> {
    /// Calls the binary, with a fault if there are some left.
    fn call(&mut self, words: &[&str]) {
        let call = self.home.lobster(words);
        if self.faults == 0 {
            let answer = call.run();
            self.tell(&format!("{words:?}"), &answer);
            return;
        }
        self.faults -= 1;
        // Most calls pass some dozens of points: the beginning, where stores are made, is not of more worth.
        let n = 1 + if self.dice.chance(50) { self.dice.below(30) } else { self.dice.below(150) };
        let (call, fault) = faulty(&self.home, call, &mut self.dice, n);
        let answer = call.run();
        let killed = answer.code() == 137;
        self.tell(&format!("{words:?} with {fault}"), &answer);
        assert!(!answer.stderr.contains("panicked"), "{self}");
        self.crashes += u64::from(killed || (answer.code() != 0 && !answer.stdout.contains("interrupted")));
    }

    fn tell(&mut self, what: &str, answer: &Answer) {
        let envelope: Value = serde_json::from_str(&answer.stdout).unwrap_or_default();
        let said = match (envelope["status"].as_str(), envelope["error"]["message"].as_str()) {
            (Some(status), _) => status,
            (None, Some(message)) => message,
            (None, None) => answer.stdout.trim(),
        };
        self.told.push(format!("{what}: {} {said} {}", answer.code(), answer.stderr.trim()));
    }

    /// Notes which steps a message names as interrupted.
    fn note_interrupted(&mut self, message: &str) {
        for path in interrupted_steps(message) {
            let last = path.rsplit('/').next().unwrap();
            let id = last.split(['[', '#', '|', '!']).next().unwrap();
            *self.reported.entry(id.to_owned()).or_default() += 1;
        }
    }

    /// What the store says is to be done next.
    fn look(&mut self) -> Next {
        let listed = self.home.lobster(["runs", "--json"]).run();
        assert_eq!(listed.code(), 0, "{listed:?}\n{self}");
        let runs: Value = serde_json::from_str(&listed.stdout).unwrap();
        let Some(run) = runs.get(0) else { return Next::Start };
        assert_eq!(runs.as_array().map(Vec::len), Some(1), "{runs:#}\n{self}");
        let id = run["id"].as_str().unwrap().to_owned();
        match run["status"].as_str().unwrap() {
            "ok" => Next::Done(id),
            "waiting" => {
                let gates = self.home.lobster(["approvals", "--json"]).run();
                let gates: Value = serde_json::from_str(&gates.stdout).unwrap();
                let gate = &gates[0];
                Next::Answer(gate["id"].as_str().unwrap().to_owned(), gate["kind"] == "input")
            }
            "interrupted" | "failed" | "cancelled" => {
                let error = run["error"].as_str().unwrap_or_default();
                let Some((_, rest)) = error.split_once(". It is not known if ") else {
                    return Next::Resume(id, "");
                };
                assert!(rest.contains("--retry-interrupted"), "{error}\n{self}");
                self.note_interrupted(error);
                Next::Resume(id, "--retry-interrupted")
            }
            other => panic!("a run is {other}\n{self}"),
        }
    }

    /// From the start to the end, through all faults.
    fn live(mut self) -> Self {
        let mut next = Next::Start;
        for _ in 0..200 {
            match next {
                Next::Start => {
                    assert_eq!(self.effects(), BTreeMap::new(), "done and not on record\n{self}");
                    self.call(&["run", "--mode", "tool", "flow.lobster"])
                }
                Next::Resume(run, "") => self.call(&["resume", &run]),
                Next::Resume(run, how) => self.call(&["resume", &run, how]),
                Next::Answer(gate, true) => self.call(&["approvals", "answer", &gate, &RESPONSE.to_string()]),
                Next::Answer(gate, false) => self.call(&["approvals", "approve", &gate]),
                Next::Done(run) => {
                    self.check(&run);
                    return self;
                }
            };
            next = self.look();
        }
        panic!("the run does not end\n{self}");
    }

    fn effects(&self) -> BTreeMap<String, u64> {
        let mut effects = BTreeMap::new();
        for line in self.home.read("effects").lines() {
            *effects.entry(line.to_owned()).or_default() += 1;
        }
        effects
    }

    fn check(&mut self, run: &str) {
        let effects = self.effects();
        let shown = self.home.lobster(["show", run, "--json"]).run();
        let journal: Value = serde_json::from_str(&shown.stdout).unwrap();
        for record in journal.as_array().unwrap() {
            let (event, outcome) = (&record["event"], &record["event"]["outcome"]);
            let (code, error) = (&outcome["exit"], &outcome["error"]);
            self.told
                .push(format!("{} {} {} {code} {error}", event["type"], event["path"], outcome["status"]));
        }
        for (id, expected) in &self.scenario.effects {
            let found = effects.get(id).copied().unwrap_or_default();
            let reported = self.reported.get(id).copied().unwrap_or_default();
            assert!(
                (*expected..=expected + reported).contains(&found),
                "{id} happened {found} times, not {expected}, and was reported {reported} times\n{self}"
            );
        }
        for id in effects.keys() {
            assert!(self.scenario.effects.contains_key(id), "{id} should not have happened\n{self}");
        }
        let verified = self.home.lobster(["store", "verify"]).run();
        assert_eq!(verified.code(), 0, "{verified:?}\n{self}");
        let replayed = self.home.lobster(["replay", run, "--json"]).run();
        assert_eq!(replayed.code(), 0, "{replayed:?}\n{self}");
        let end =
            journal.as_array().unwrap().iter().rev().find(|record| record["event"]["type"] == "run_ended");
        let output = end.unwrap()["event"]["output"]["digest"].as_str().unwrap().to_owned();
        let expected = format!("{}\n", self.scenario.output);
        let content = self.home.lobster(["logs", run, "--output"]).run();
        let same = content.stdout == expected;
        assert!(same, "the output {output} is {:?} and not {expected:?}\n{self}", content.stdout);
    }
}

impl std::fmt::Display for Story<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        for (name, text) in &self.scenario.files {
            writeln!(f, "{name}: {text}")?;
        }
        self.told.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        writeln!(
            f,
            "effects: {:?}\nexpected: {:?}\nreported: {:?}",
            self.effects(),
            self.scenario.effects,
            self.reported
        )
    }
}

/// One story, by its seed alone: the workflow it is about, and what goes wrong.
fn story_of(seed: u64) -> Tally {
    let workflow = seed / STORIES_APART * WORKFLOWS + seed % WORKFLOWS;
    let scenario = Scenario::random(workflow, true);
    let home = Home::new();
    scenario.install(&home);
    let story = Story {
        home,
        seed,
        dice: Dice::new(seed ^ 0xfa17),
        scenario: &scenario,
        faults: FAULTS,
        crashes: 0,
        reported: BTreeMap::new(),
        told: Vec::new(),
    }
    .live();
    Tally { crashes: story.crashes, reports: story.reported.values().sum(), stories: 1, failed: Vec::new() }
}

/// What came of stories.
#[derive(Default)]
struct Tally {
    crashes: u64,
    /// Effects that were reported as interrupted.
    reports: u64,
    stories: u64,
    /// Seeds of those that did not end as they must.
    failed: Vec<u64>,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { crashes, reports, stories, failed } = self;
        write!(f, "{crashes} crashes in {stories} runs, {reports} effects reported as interrupted")?;
        if failed.is_empty() { Ok(()) } else { write!(f, "; failed: LOBSTER_CRASH_STORY={failed:?}") }
    }
}

#[test]
fn random_workflows_survive_crashes_at_random_writes() {
    // The nightly recipe tries many more.
    let points = number("LOBSTER_CRASH_POINTS", if cfg!(debug_assertions) { 300 } else { 1000 });
    let first = number("LOBSTER_CRASH_SEED", 1) * STORIES_APART;
    if let Ok(seed) = std::env::var("LOBSTER_CRASH_STORY") {
        println!("{}", story_of(seed.parse().unwrap()));
        return;
    }
    let (next, tally) = (AtomicU64::new(first), Mutex::new(Tally::default()));
    let threads = 2 * std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    // A story that fails has said so; the others go on, so that all faults are found at once.
                    let story = catch_unwind(AssertUnwindSafe(|| story_of(seed)));
                    let mut all = tally.lock().unwrap();
                    let before = all.crashes;
                    match story {
                        Ok(story) => {
                            all.crashes += story.crashes;
                            all.reports += story.reports;
                            all.stories += 1;
                        }
                        Err(_) => all.failed.push(seed),
                    }
                    if all.crashes / TOLD_EVERY > before / TOLD_EVERY {
                        println!("{all}");
                    }
                    if all.crashes >= points || all.failed.len() >= MAX_FAILED {
                        return;
                    }
                }
            });
        }
    });
    let tally = tally.into_inner().unwrap();
    println!("{tally}");
    assert!(tally.failed.is_empty(), "{tally}");
}

#[test]
fn random_workflows_do_what_the_model_says() {
    // `just models` tries many more.
    let (next, last) = (AtomicU64::new(1), number("LOBSTER_MODEL_FILES", 10));
    let one = |seed| {
        let scenario = Scenario::random(seed, true);
        let home = Home::new();
        scenario.install(&home);
        let story = Story {
            home,
            seed,
            dice: Dice::new(seed),
            scenario: &scenario,
            faults: 0,
            crashes: 0,
            reported: BTreeMap::new(),
            told: Vec::new(),
        };
        let story = story.live();
        assert_eq!(story.reported, BTreeMap::new());
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > last {
                        return;
                    }
                    one(seed);
                }
            });
        }
    });
}
