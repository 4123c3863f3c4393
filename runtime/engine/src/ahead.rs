//! Previews the effects of a run that follow an approval.
//!
//! The recorded plan is executed again up to the first effect that is not in the journal, so the preview shows the
//! action itself and not a guess at it. Pure steps on the way are computed; no effect is performed and nothing is
//! recorded.

use std::collections::{BTreeMap, HashSet};
use std::io::Read;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use super::binding::{Binding, KnownAnswer, PendingGate, SetsGoing};
use super::env::{ARGS_JSON, WORKFLOW_DIR, argument_vars};
use super::overseer::{Act, Known, Overseer};
use super::path::StepPath;
use super::perform::output_of;
use super::question::{Occasion, quote_words};
use super::run::{Interrupted, Run, Task};
use super::services::Services;
use crate::kinds::changes::COMMIT;
use crate::recorded_plan::load_recorded;
use lobster_base::cancel::{CancelReason, CancelToken};
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_base::sync::lock;
use lobster_base::text;
use lobster_executor::change_sets::CHANGES;
use lobster_language::plan::Plan;
use lobster_stage::{Answer, Question, Stop};
use lobster_store::{GateKind, Record, RunId, Store, StoreError};

/// The consequences of an approval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Ahead {
    /// Effects that begin at once.
    pub next: Vec<NextEffect>,
    /// Questions that are asked before any other effect.
    pub asks: Vec<String>,
    /// The steps of the plan after the one with the question, as a dry run shows them.
    pub then: String,
    /// True if the answer would be refused: what would run now differs from what was asked.
    pub stale: bool,
    /// The error that would end the execution before any effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails: Option<String>,
    /// The directory in which the run began.
    #[serde(skip)]
    pub cwd: String,
    /// True if the preview took too long.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
}

/// An effect with everything that determines what it does.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NextEffect {
    pub step: String,
    /// The pre-image of the action digest.
    pub action: Value,
    /// The variables that the plan sets for it, whose digests are in the action.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, String>,
    /// The beginning of its input, whose digest is in the action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads: Option<String>,
}

/// The question whose consequences are previewed.
pub struct Asking<'a> {
    pub run: RunId,
    pub path: &'a str,
    pub binding: Digest,
    pub kind: GateKind,
}

/// Time limit for the preview while a person waits for the question.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest line about one effect; `lobster approvals show --json` has the action itself.
const MAX_LINE: usize = 32 << 10;

/// Most bytes of a variable or of an effect's input that are shown.
const MAX_VALUE: usize = 8 << 10;
const MAX_HEAD: usize = 4 << 10;

/// Most bytes of an input that are read, so that a secret is recognised as a whole if only its beginning is shown.
const MAX_READ: u64 = 128 << 10;

/// Executes the plan of a run from one of its questions on, as if that question had been approved.
pub fn look_ahead(
    services: &Services,
    store: Store,
    asking: &Asking<'_>,
    task: Task,
    (plan, args): (&Plan, &Map<String, Value>),
    journal: &[Record],
) -> Ahead {
    let cwd = store.run(asking.run).map(|summary| summary.cwd).unwrap_or_default();
    let run = Run::from_journal(services, store, None, asking.run, task, journal, Interrupted::Ask);
    let run = match run.doubting_imports(journal) {
        Ok(run) => run,
        Err(error) => return Ahead { cwd, fails: Some(error.to_string()), ..Ahead::default() },
    };
    let look = Arc::new(Look {
        path: asking.path.to_owned(),
        binding: asking.binding,
        kind: asking.kind,
        // These effects run in another branch, so they do not depend on the answer.
        started: lock(&run.recall).started.clone(),
        seen: Mutex::default(),
    });
    let run = run.with_overseer(Arc::<Look>::clone(&look));
    let result = output_of(&run, plan, args);
    let mut ahead = Ahead { cwd, ..std::mem::take(&mut *lock(&look.seen)) };
    ahead.next.sort_by(|a, b| a.step.cmp(&b.step));
    if let Err(Stop::Failed(error)) = result {
        ahead.fails = Some(error.message);
    }
    ahead.next.iter_mut().for_each(|effect| {
        effect.reads = input_of(&run.store, &effect.action);
        run.hide_in(&mut effect.variables);
        run.hide_in(&mut effect.reads);
        effect.reads =
            effect.reads.as_deref().map(|text| text::clip_telling_rest(text, MAX_HEAD).into_owned());
    });
    ahead
}

/// The beginning of an action's input, from the very bytes of the digest.
fn input_of(store: &Store, action: &Value) -> Option<String> {
    let input = &action["input"];
    let digest = [&action["stdin"], &input["bytes"], &input["items"]].into_iter().find_map(Value::as_str)?;
    let reader = store.open_blob(&digest.parse().ok()?).ok()?;
    let mut head = Vec::new();
    reader.take(MAX_READ).read_to_end(&mut head).ok()?;
    Some(String::from_utf8_lossy(&head).into_owned())
}

impl Run<'_> {
    /// The consequences of approving a question that is asked now, as every screen shows them.
    pub(super) fn sets_going(&self, gate: &PendingGate) -> Result<SetsGoing, StoreError> {
        // A policy's question shows the command itself, and after an input request the next effects depend on the
        // response.
        let of_input = matches!(gate.question.question, Question::Input { .. });
        if of_input || Occasion::is_of_policy(gate.path.as_str()) || !self.is_journaled() {
            return Ok(SetsGoing::default());
        }
        let journal = self.store.all_events(self.id)?;
        let Ok(plan) = load_recorded::<Plan>(&self.store, &self.task.plan) else {
            return Ok(SetsGoing::default());
        };
        let args = self.task.args.and_then(|args| load_recorded(&self.store, &args).ok()).unwrap_or_default();
        let asking = Asking {
            run: self.id,
            path: gate.path.as_str(),
            binding: gate.binding.digest,
            kind: GateKind::Approval,
        };
        // A person whose terminal is closed is asked elsewhere, and sees the same.
        let cancel = match self.has_lost_its_terminal() {
            true => CancelToken::new(),
            false => self.services.cancel.child_token(),
        };
        let services = self.services.silent_copy(cancel.clone());
        let (mut ahead, in_time) = run_within(PATIENCE, &cancel, || {
            look_ahead(&services, self.store.clone(), &asking, self.task, (&plan, &args), &journal)
        });
        ahead.unknown = !in_time;
        let mut going = SetsGoing::from_ahead(&ahead);
        self.hide_in(&mut going);
        Ok(going)
    }
}

impl SetsGoing {
    /// The text of a preview.
    #[must_use]
    pub fn from_ahead(ahead: &Ahead) -> Self {
        if ahead.unknown {
            let why = "not known yet: it takes more than a few seconds to compute; `lobster approvals show` waits for it";
            return Self { at_once: vec![why.to_owned()], ..Self::default() };
        }
        let lines = ahead.next.iter().map(|effect| line_of(effect, &ahead.cwd));
        Self {
            at_once: lines.collect(),
            with: variable_lines(&ahead.next),
            reads: ahead.next.iter().filter_map(|effect| read_line(effect, ahead.next.len())).collect(),
            fails: ahead.fails.clone(),
        }
    }
}

/// One line for an effect: the words of a native command, with its directory if the run began in another one; the JSON
/// of any other effect.
fn line_of(effect: &NextEffect, began_in: &str) -> String {
    let action = &effect.action;
    let words = action["argv"].as_array().map(Vec::as_slice).unwrap_or_default();
    let commits = action[CHANGES].as_str().filter(|_| action["kind"] == COMMIT);
    let mut line = match words {
        [] if commits.is_some() => {
            let step = effect.step.trim_end_matches("!changes");
            let set: String = commits.unwrap_or_default().chars().take(12).collect();
            format!("{step}: commit its changes to files (change set {set})")
        }
        [] => format!("{}: {}", effect.step, json::compact(action)),
        words => format!("{}: {}", effect.step, quote_words(words)),
    };
    if !words.is_empty() {
        if let Some(cwd) = action["cwd"].as_str().filter(|cwd| *cwd != began_in) {
            line.push_str(&format!("  (in {cwd})"));
        }
        if let Some(stdin) = action["stdin"].as_str() {
            line.push_str(&format!("  (reads blake3:{stdin})"));
        }
    }
    text::clip_telling_rest(&line, MAX_LINE).into_owned()
}

/// The variables whose digests are in the action, without the directory of the workflow, which the person knows.
fn bound_variables(action: &Value, given: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let env = if action["env"].is_object() { &action["env"] } else { &action["grants"]["env"] };
    let is_bound = |name: &str, value: &str| {
        env[name].as_str().is_some_and(|digest| digest == Digest::of_bytes(value.as_bytes()).to_string())
    };
    let bound = given.iter().filter(|(name, value)| is_bound(name, value) && *name != WORKFLOW_DIR);
    let mut bound: BTreeMap<_, _> = bound.map(|(name, value)| (name.clone(), value.clone())).collect();
    // Left out if each argument has a variable of its own that shows it in full.
    let is_told = |all: &str| {
        let args: Map<String, Value> = json::parse_as(all).unwrap_or_default();
        argument_vars(&args).len() == args.len() + 1
            && args.values().all(|value| !value.is_object() && !value.is_array())
            && argument_vars(&args).iter().all(|(name, value)| bound.get(name) == Some(value))
    };
    if bound.get(ARGS_JSON).is_some_and(|all| is_told(all)) {
        bound.remove(ARGS_JSON);
    }
    bound
}

/// One line for each variable; a variable that all effects share is shown once.
fn variable_lines(next: &[NextEffect]) -> Vec<String> {
    let mut lines: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for effect in next {
        for (name, value) in &effect.variables {
            lines.entry((name, value)).or_default().push(&effect.step);
        }
    }
    let told = lines.into_iter().map(|((name, value), steps)| {
        let value = text::clip_telling_rest(value, MAX_VALUE);
        match steps.len() == next.len() {
            true => format!("{name}={value}"),
            false => format!("{}: {name}={value}", steps.join(", ")),
        }
    });
    told.collect()
}

/// The input of an effect, with its step if there are several effects.
fn read_line(effect: &NextEffect, count: usize) -> Option<String> {
    let text = effect.reads.as_deref().filter(|text| !text.is_empty())?;
    Some(if count == 1 { text.to_owned() } else { format!("{}: {text}", effect.step) })
}

/// Runs `work` for at most `limit`; the flag is true if it finished in time.
fn run_within<T>(limit: Duration, cancel: &CancelToken, work: impl FnOnce() -> T) -> (T, bool) {
    let (done, waits) = channel::<()>();
    std::thread::scope(|scope| {
        let clock = scope.spawn(move || {
            let late = matches!(waits.recv_timeout(limit), Err(RecvTimeoutError::Timeout));
            if late {
                cancel.cancel(CancelReason::Requested("it takes too long to look ahead".to_owned()));
            }
            late
        });
        let result = work();
        drop(done);
        let in_time = clock.join().is_ok_and(|late| !late);
        (result, in_time)
    })
}

struct Look {
    path: String,
    binding: Digest,
    kind: GateKind,
    started: HashSet<StepPath>,
    seen: Mutex<Ahead>,
}

impl Overseer for Look {
    fn is_journaled(&self) -> bool {
        false
    }

    fn replace_effect(&self, act: &Act<'_>, known: Known) -> Result<Known, Stop> {
        if known.is_some() {
            return Ok(known);
        }
        if !self.started.contains(act.path) {
            let (step, action) = (act.path.to_string(), act.preimage.to_json());
            let variables = bound_variables(&action, act.variables);
            lock(&self.seen).next.push(NextEffect { step, action, variables, reads: None });
        }
        Err(Stop::Interrupted)
    }

    fn replace_pure(&self, _: &Act<'_>, known: Known) -> Result<Known, Stop> {
        Ok(known)
    }

    fn replace_answer(
        &self,
        path: &StepPath,
        binding: &Binding,
        known: Option<KnownAnswer>,
    ) -> Result<Option<KnownAnswer>, Stop> {
        let asked = path.as_str() == self.path;
        // A fork may ask a question again whose answer it took over.
        if known.as_ref().is_some_and(|known| !asked || known.from.is_none()) {
            return Ok(known);
        }
        let mut seen = lock(&self.seen);
        if !asked {
            seen.asks.push(path.to_string());
            return Ok(None);
        }
        seen.stale = !binding.accepts_digest(self.binding);
        // The consequences of a response depend on the response.
        let yes = self.kind == GateKind::Approval;
        Ok(yes.then(|| KnownAnswer {
            answer: Answer::Approved { by: None, part: None },
            binding: binding.digest,
            gate: String::new(),
            by: None,
            author: Value::Null,
            from: None,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample_effect(step: &str, action: Value) -> NextEffect {
        NextEffect { step: step.to_owned(), action, variables: BTreeMap::new(), reads: None }
    }

    #[test]
    fn what_is_told_of_variables_is_what_the_action_is_bound_to() {
        let vars = |args: Value| BTreeMap::from_iter(argument_vars(args.as_object().unwrap()));
        let bound = |given: &BTreeMap<String, String>| {
            let env: Map<_, _> = given
                .iter()
                .map(|(name, value)| (name.clone(), json!(Digest::of_bytes(value.as_bytes()))))
                .collect();
            bound_variables(&json!({ "env": env }), given)
        };
        let names = |args: Value| bound(&vars(args)).into_keys().collect::<Vec<_>>();
        assert_eq!(names(json!({"a": "x", "b": 1})), ["LOBSTER_ARG_A", "LOBSTER_ARG_B"]);
        // Variables of their own do not show these in full.
        for args in [json!({"a": {"b": 1}}), json!({"é": 1}), json!({"a-b": 1, "a_b": 2})] {
            assert!(names(args.clone()).contains(&ARGS_JSON.to_owned()), "{args}");
        }
        let given = vars(json!({"a": "x"}));
        let other = json!({"env": {"LOBSTER_ARG_A": Digest::of_bytes(b"y")}});
        assert!(bound_variables(&other, &given).is_empty(), "another value is bound");

        let with = |step, value: &str| NextEffect {
            variables: BTreeMap::from([("A".to_owned(), value.to_owned())]),
            ..sample_effect(step, json!({}))
        };
        assert_eq!(variable_lines(&[with("s", "1"), with("t", "1")]), ["A=1"]);
        assert_eq!(variable_lines(&[with("s", "1"), with("t", "2")]), ["s: A=1", "t: A=2"]);
    }

    #[test]
    fn an_effect_is_told_by_its_words_or_else_by_its_action() {
        let line = |step: &str, action: Value| line_of(&sample_effect(step, action), "/here");
        assert_eq!(
            line("go", json!({"argv": ["/bin/sh", "-c", "rm 42; echo"], "cwd": "/w", "stdin": null})),
            "go: /bin/sh -c 'rm 42; echo'  (in /w)"
        );
        assert_eq!(
            line("go", json!({"argv": ["true"], "cwd": "/here", "stdin": "ab"})),
            "go: true  (reads blake3:ab)"
        );
        assert_eq!(line("ask", json!({"model": "m"})), r#"ask: {"model":"m"}"#);
        let long = line("go", json!({"argv": ["x".repeat(2 * MAX_LINE)]}));
        assert!(long.len() < MAX_LINE + 40 && long.ends_with(" more bytes)"), "{}", long.len());
    }

    #[test]
    fn whoever_is_asked_does_not_wait_for_long() {
        let cancel = CancelToken::new();
        let (waited, in_time) = run_within(Duration::from_millis(30), &cancel, || {
            cancel.sleep_or_cancel(Duration::from_secs(20))
        });
        assert!(waited && !in_time && cancel.is_cancelled());
        let cancel = CancelToken::new();
        assert_eq!(run_within(Duration::from_secs(20), &cancel, || 7), (7, true));
        assert!(!cancel.is_cancelled());
    }
}
