//! Forks of random graphs compared with a reference model: they must execute exactly the predicted steps and
//! give the predicted results.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::testing::{TestState, workflow_text};
use super::{ForkRequest, ReplayOptions, execute_fork, plan_fork, replay_run};

/// Number of graphs to try.
const GRAPHS: usize = 500;

/// A step whose result is a quarter of the sum of its inputs. Different inputs often give equal results, so
/// that later steps need not run.
#[derive(Clone, Debug)]
struct Step {
    /// Earlier steps that it reads.
    reads: Vec<usize>,
    /// Two steps with the same label and equal inputs have the same action.
    label: usize,
    /// True if it also reads a file, which is not part of its action.
    outside: bool,
}

#[derive(Clone, Debug)]
struct Case {
    steps: Vec<Step>,
    /// Contents of the steps' files before and after.
    before: Vec<i64>,
    after: Vec<i64>,
    from: BTreeSet<usize>,
    edit: BTreeMap<usize, i64>,
}

fn case() -> impl Strategy<Value = Case> {
    (2_usize..9).prop_flat_map(|count| {
        let steps = (0..count)
            .map(|index| {
                let reads = prop::collection::btree_set(0..index.max(1), 0..=index.min(3));
                (reads, 0..count * 2, any::<bool>()).prop_map(move |(reads, label, outside)| {
                    let reads = if index == 0 { Vec::new() } else { reads.into_iter().collect() };
                    // A step that reads a file has a unique label, so no other step has its action.
                    let label = if outside || label >= count { index + count } else { label / 3 };
                    Step { reads, label, outside }
                })
            })
            .collect::<Vec<_>>();
        let values = || prop::collection::vec(0_i64..12, count);
        let edit = prop::collection::btree_map(0..count, 0_i64..4, 0..2);
        let from = prop::collection::btree_set(0..count, 0..3);
        (steps, values(), values(), from, edit).prop_map(|(steps, before, after, from, edit)| Case {
            steps,
            before,
            after,
            from,
            edit,
        })
    })
}

/// The label and inputs that determine the result of a step.
type Action = (usize, Vec<i64>);

impl Case {
    fn step_action(&self, index: usize, values: &[i64]) -> Action {
        let step = &self.steps[index];
        (step.label, step.reads.iter().map(|read| values[*read]).collect())
    }

    fn step_result(&self, index: usize, values: &[i64], outside: &[i64]) -> i64 {
        let step = &self.steps[index];
        let read: i64 = step.reads.iter().map(|read| values[*read]).sum();
        (read + if step.outside { outside[index] } else { 3 }) / 4
    }

    /// The values of the first run, the values of the fork, and the steps that the fork executes.
    fn predict(&self) -> (Vec<i64>, Vec<i64>, Vec<usize>) {
        let mut old = Vec::new();
        for index in 0..self.steps.len() {
            old.push(self.step_result(index, &old, &self.before));
        }
        let mut known: Vec<(usize, Action)> = (0..self.steps.len())
            .filter(|index| !self.from.contains(index))
            .map(|index| (index, self.step_action(index, &old)))
            .collect();
        let (mut new, mut done): (Vec<i64>, Vec<usize>) = (Vec::new(), Vec::new());
        for index in 0..self.steps.len() {
            if let Some(value) = self.edit.get(&index) {
                new.push(*value);
                continue;
            }
            let action = self.step_action(index, &new);
            if self.from.contains(&index) {
                new.push(self.step_result(index, &new, &self.after));
                done.push(index);
                continue;
            }
            let same_place = known.iter().position(|(at, other)| *at == index && *other == action);
            match same_place.or_else(|| known.iter().position(|(_, other)| *other == action)) {
                Some(position) => new.push(old[known.remove(position).0]),
                None => {
                    new.push(self.step_result(index, &new, &self.after));
                    done.push(index);
                }
            }
        }
        (old, new, done)
    }

    fn workflow_text(&self) -> String {
        let mut text = "name: graph\nsteps:\n".to_owned();
        for (index, step) in self.steps.iter().enumerate() {
            let outside = if step.outside { format!("$(cat out{index})") } else { "3".to_owned() };
            let sum: String = (0..step.reads.len()).map(|nth| format!("V{nth}+")).collect();
            let work = format!("echo {} >> log; echo $((({sum}{outside})/4))", step.label);
            writeln!(text, "  - id: s{index}\n    run: {work}").unwrap();
            if !step.reads.is_empty() {
                let env = step.reads.iter().enumerate();
                let env: Vec<_> = env.map(|(nth, read)| format!("V{nth}: $s{read}.json")).collect();
                writeln!(text, "    env: {{ {} }}", env.join(", ")).unwrap();
            }
        }
        text
    }

    fn try_in(&self, place: &TestState) {
        let outside = |values: &[i64]| {
            for (index, value) in values.iter().enumerate() {
                std::fs::write(place.path(&format!("out{index}")), value.to_string()).unwrap();
            }
        };
        let log = || std::fs::read_to_string(place.path("log")).unwrap_or_default();
        let (old, new, done) = self.predict();
        outside(&self.before);
        let run = place.run(&workflow_text(&self.workflow_text()));
        assert_eq!(printed_number(place, &run), old.last().copied(), "{self:?}");
        outside(&self.after);
        std::fs::remove_file(place.path("log")).unwrap();
        let request = ForkRequest {
            run,
            from: self.from.iter().map(|index| format!("s{index}")).collect(),
            edit: self
                .edit
                .iter()
                .map(|(index, value)| (format!("s{index}"), value.to_string().into()))
                .collect(),
            ..ForkRequest::default()
        };
        let plan = plan_fork(&place.runtime, &request).unwrap();
        assert_eq!(log(), "", "planning a fork executes nothing: {self:?}");
        let fork = execute_fork(&place.runtime, &plan).run.unwrap().to_string();
        assert_eq!(printed_number(place, &fork), new.last().copied(), "{self:?}");
        let labels: Vec<_> = done.iter().map(|index| self.steps[*index].label.to_string()).collect();
        assert_eq!(log().lines().collect::<Vec<_>>(), labels, "{self:?}");
        if self.edit.is_empty() {
            let report = replay_run(&place.runtime, &fork, &ReplayOptions::default()).unwrap();
            assert_eq!(report.divergences, [], "{self:?}");
        }
        let _ = std::fs::remove_file(place.path("log"));
    }
}

/// The number that a run printed.
fn printed_number(place: &TestState, run: &str) -> Option<i64> {
    let store = place.runtime.store().unwrap();
    let output = store.run(store.find_run(run).unwrap()).unwrap().output?;
    String::from_utf8_lossy(&store.load_blob(&output, 1000).unwrap()).trim().parse().ok()
}

#[test]
fn a_fork_executes_what_the_model_says() {
    const THREADS: usize = 4;
    let total: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|worker| {
                scope.spawn(move || {
                    let place = TestState::new();
                    let seed = [u8::try_from(worker).unwrap(); 32];
                    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
                    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
                    let mut executed = 0;
                    for _ in 0..GRAPHS / THREADS {
                        let case = case().new_tree(&mut runner).unwrap().current();
                        case.try_in(&place);
                        executed += case.predict().2.len();
                    }
                    executed
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    println!("{GRAPHS} graphs, {total} steps executed by their forks");
}
