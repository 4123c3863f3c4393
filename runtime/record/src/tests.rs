//! Whole runs that are replayed, forked and explained.

use serde_json::json;

use super::testing::{TestState, workflow_text};
use super::*;
use lobster_base::code::{Code, FailureCode};
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_engine::envelope::Envelope;
use lobster_engine::run::Interrupted;
use lobster_engine::runtime::{RunRequest, RunResult, Target};
use lobster_store::{Event, Redacted, RunId, StepOutcome};

/// A shell step, inline JavaScript on its output, a pipeline on that, and another shell step.
const CHAIN: &str = r#"
name: chain
args:
  n: { default: 3 }
steps:
  - id: data
    run: printf '[{"id":1,"v":%s}]' "${n}"
  - id: calc
    js: "return input.map(x => ({ id: x.id, w: x.v > 2 }))"
    stdin: $data.json
  - id: picked
    pipeline: pick w
    stdin: $calc.json
  - id: shown
    run: cat
    stdin: $picked.stdout
"#;

/// Runs whose argument variables do not reach the last step's environment, so that only its input matters.
const CUT_OFF: &str = r"
name: cut
steps:
  - id: data
    run: cat source.txt
  - id: upper
    run: tr a-z A-Z | cut -c1
    stdin: $data.stdout
  - id: note
    run: cat >> notes.txt; echo done
    stdin: $upper.stdout
";

fn id(place: &TestState, run: &str) -> RunId {
    place.runtime.store().unwrap().find_run(run).unwrap()
}

/// A copy of a run under another id with a different outcome of `step`.
fn falsified(place: &TestState, run: &str, step: &str, change: impl Fn(&mut StepOutcome)) -> String {
    let store = place.runtime.store().unwrap();
    let texts = store.all_events(id(place, run)).unwrap();
    static COPIES: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0x0bad_c0de);
    let number = COPIES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let other = run.replace(&run[..8], &format!("{number:08x}"));
    let mut prev = Digest::from([0; 32]);
    let mut out = Vec::new();
    for record in texts {
        let mut event = record.event.clone();
        if let Event::StepEnded { path, outcome, attempt, .. } = &mut event
            && path == step
            && *attempt > 0
        {
            change(std::sync::Arc::make_mut(outcome));
        }
        let text = json::compact(
            &json!({ "run": other, "seq": record.seq, "at": record.at, "prev": prev, "event": event }),
        );
        prev = Digest::of_bytes(text.as_bytes());
        out.push(text);
    }
    store.import_run(out, &Redacted::default()).unwrap();
    other
}

#[test]
fn a_faithful_run_replays_without_running_its_effects() {
    let place = TestState::new();
    let run = place.run(&workflow_text(CHAIN));
    let before = place.runtime.store().unwrap().all_events(id(&place, &run)).unwrap();
    let report = replay_run(&place.runtime, &run, &ReplayOptions::default()).unwrap();
    assert_eq!(report.divergences, []);
    assert_eq!((report.computed, report.answered, report.performed), (1, 2, 0));
    assert_eq!((report.unverified, report.record_ends_at), (vec![], None));
    assert_eq!(place.runtime.store().unwrap().all_events(id(&place, &run)).unwrap(), before);
    a_falsified_output_and_fuel_are_found_with_step_and_place(&place, &run);
}

/// Prints a random letter and a digit of the clock, and requests them in this order.
const ASKS: &str = r#"(module
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (drop (call $random (i32.const 100) (i32.const 1)))
    (drop (call $clock (i32.const 0) (i64.const 1) (i32.const 112)))
    (i32.store8 (i32.const 100) (i32.add (i32.const 97) (i32.and (i32.load8_u (i32.const 100)) (i32.const 15))))
    (i32.store8 (i32.const 101) (i32.add (i32.const 48) (i32.wrap_i64 (i64.and (i64.load (i32.const 112)) (i64.const 7)))))
    (i32.store (i32.const 0) (i32.const 100))
    (i32.store (i32.const 4) (i32.const 2))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"#;

#[test]
fn what_other_processors_compute_is_what_the_plan_would() {
    let place = TestState::new();
    std::fs::write(place.path("csv.wasm"), include_bytes!("../../../guest-steps/dist/csv.wasm")).unwrap();
    let steps: String = (0..60)
        .map(|n| match n % 3 {
            0 => format!("  - id: s{n}\n    component: csv.wasm\n    stdin: \"a,b\\n{n},x\\n\"\n"),
            1 => format!(
                "  - id: s{n}\n    component: csv.wasm\n    args: {{header: true, delimiter: \";\"}}\n    stdin: $s{}.json\n",
                n - 1
            ),
            _ => format!("  - id: s{n}\n    js: \"({{z: {n}, a: input}})\"\n    stdin: $s{}.json\n", n - 2),
        })
        .collect();
    let run = place.run(&workflow_text(&format!("name: long\nsteps:\n{steps}")));
    for _ in 0..3 {
        let report = replay_run(&place.runtime, &run, &ReplayOptions::default()).unwrap();
        assert_eq!((report.divergences, report.unverified), (vec![], vec![]));
        assert_eq!((report.computed, report.answered), (60, 0));
    }
    let other = falsified(&place, &run, "s57", |outcome| outcome.fuel = Some(1));
    let report = replay_run(&place.runtime, &other, &ReplayOptions::default()).unwrap();
    assert_eq!(report.divergences.len(), 1, "{report:?}");
    assert_eq!((report.divergences[0].step.as_str(), report.divergences[0].what.as_str()), ("s57", "fuel"));
}

#[test]
fn an_effect_component_is_executed_again_on_its_recorded_calls() {
    let place = TestState::new();
    std::fs::write(place.path("asks.wasm"), wat::parse_str(ASKS).unwrap()).unwrap();
    let run = place.run(&workflow_text(
        "name: asks\nsteps:\n  - id: ask\n    component: asks.wasm\n    grants: { random: true, clock: true }\n  - id: say\n    run: cat\n    stdin: $ask.stdout\n",
    ));
    let replay = |run: &str| replay_run(&place.runtime, run, &ReplayOptions::default()).unwrap();
    let report = replay(&run);
    assert_eq!((report.divergences, report.unverified), (vec![], vec![]));
    assert_eq!((report.computed, report.checked, report.answered), (0, 1, 1));

    let store = place.runtime.store().unwrap();
    let calls =
        store.all_events(id(&place, &run)).unwrap().into_iter().find_map(|record| match record.event {
            Event::StepEnded { path, outcome, .. } if path == "ask" => {
                outcome.detail["host_calls"].as_str().map(|text| text.parse::<Digest>().unwrap())
            }
            _ => None,
        });
    let calls = store.load_blob(&calls.unwrap(), 1000).unwrap();
    let second = calls.windows(11).position(|bytes| bytes == b"\nwall-clock").unwrap() + 1;
    let record = |what: &str, bytes: &[u8]| {
        let blob = store.put_blob(bytes).unwrap();
        let other =
            falsified(&place, &run, "ask", |outcome| outcome.detail["host_calls"] = json!(blob.digest));
        let found = replay(&other).divergences.into_iter().next().unwrap_or_else(|| panic!("{what}"));
        (found.step, found.what, found.replayed.as_str().unwrap_or_default().to_owned())
    };
    // The calls in another order, one too few, one too many.
    let (step, what, said) = record("order", &[&calls[second..], &calls[..second]].concat());
    assert_eq!((step.as_str(), what.as_str()), ("ask", "host call"));
    assert!(said.contains("random.") && said.contains("the record has wall-clock.now"), "{said}");
    assert!(
        record("few", &calls[..second])
            .2
            .contains("wall-clock.now (16 bytes) is asked for, but the record ends")
    );
    assert!(record("many", &[&calls[..], &calls[second..]].concat()).2.contains("nothing more is asked"));
    // A different answer gives different output.
    let mut other = calls.clone();
    other[second - 2] ^= 1;
    assert_eq!(record("answer", &other).1, "stdout");
}

#[test]
fn a_component_that_writes_is_compared_and_writes_nothing_when_replayed() {
    let place = TestState::new();
    std::fs::create_dir(place.path("out")).unwrap();
    let text =
        workflow_text("name: writes\nsteps:\n  - id: w\n    js: \"1\"\n    grants: { write: [out] }\n");
    let run = place.run(&text);
    let report = replay_run(&place.runtime, &run, &ReplayOptions::default()).unwrap();
    assert_eq!((report.divergences, report.checked), (vec![], 1));
    // The directory has changed; that is reported, but is not a difference.
    std::fs::write(place.path("out/new"), "x").unwrap();
    let report = replay_run(&place.runtime, &run, &ReplayOptions::default()).unwrap();
    assert_eq!((report.divergences, report.checked, report.answered), (vec![], 0, 1));
    assert!(report.unverified[0].why.contains("are not the same here as"), "{:?}", report.unverified);
}

fn a_falsified_output_and_fuel_are_found_with_step_and_place(place: &TestState, run: &str) {
    let lie = place.runtime.store().unwrap().put_blob(b"[{\"id\":1,\"w\":false}]\n").unwrap();
    let false_run = falsified(place, run, "calc", |outcome| {
        outcome.output = Some(lie);
        outcome.fuel = outcome.fuel.map(|fuel| fuel + 1);
    });
    let report = replay_run(&place.runtime, &false_run, &ReplayOptions::default()).unwrap();
    let found: Vec<_> =
        report.divergences.iter().map(|d| (d.step.as_str(), d.what.as_str(), d.path.as_deref())).collect();
    assert_eq!(found[..2], [("calc", "fuel", None), ("calc", "output", Some("$[0].w"))]);
    assert!(found.iter().any(|(step, what, _)| (*step, *what) == ("shown", "the input")), "{found:?}");
    let output = &report.divergences[1];
    assert_eq!((&output.recorded, &output.replayed), (&json!(false), &json!(true)));
}

#[test]
fn a_run_that_waits_or_failed_replays_as_far_as_it_got() {
    let place = TestState::new();
    let waiting = place.run(&workflow_text(
        "name: w\nsteps:\n  - id: a\n    run: echo hi\n    approval: go on?\n  - id: b\n    run: echo more\n",
    ));
    let report = replay_run(&place.runtime, &waiting, &ReplayOptions::default()).unwrap();
    assert_eq!((report.divergences, report.record_ends_at.as_deref()), (vec![], Some("a!approval")));
    let failed = place.run(&workflow_text("name: f\nsteps:\n  - id: a\n    run: exit 3\n"));
    let report = replay_run(&place.runtime, &failed, &ReplayOptions::default()).unwrap();
    assert_eq!((report.divergences, report.answered), (vec![], 1));
}

#[test]
fn why_names_the_input_and_who_made_it() {
    let place = TestState::new();
    let text = workflow_text(CUT_OFF);
    std::fs::write(place.path("source.txt"), "abc").unwrap();
    let first = place.run(&text);
    std::fs::write(place.path("source.txt"), "xbc").unwrap();
    let second = place.run(&text);
    let why = explain_step(&place.runtime, &second, "upper", None).unwrap();
    assert_eq!(why.before, id(&place, &first));
    let found: Vec<_> =
        why.differences.iter().map(|d| (d.part, d.path.as_deref(), d.made_by.as_deref())).collect();
    assert_eq!(found, [(Part::Input, Some("line 1"), Some("data"))]);
    assert_eq!(why.to_sentence(), "upper differs by the input line 1 (made by step data): \"abc\" → \"xbc\"");
    let diff = compare_runs(&place.runtime, &first, &second).unwrap();
    let steps: Vec<_> = diff.steps.iter().map(|step| (step.step.as_str(), step.change)).collect();
    assert_eq!(
        steps,
        [("data", StepChange::Outcome), ("upper", StepChange::Action), ("note", StepChange::Action)]
    );
}

#[test]
fn why_names_the_step_that_the_file_takes_the_input_from() {
    let place = TestState::new();
    // Both steps print the same bytes; the plan determines whose output is read.
    let text = workflow_text(
        "name: twins\nsteps:\n  - id: a\n    run: cat source.txt\n  - id: b\n    run: cat source.txt\n  - id: c\n    run: cat\n    stdin: $a.stdout\n",
    );
    std::fs::write(place.path("source.txt"), "1").unwrap();
    place.run(&text);
    std::fs::write(place.path("source.txt"), "2").unwrap();
    let second = place.run(&text);
    let why = explain_step(&place.runtime, &second, "c", None).unwrap();
    let found: Vec<_> = why.differences.iter().map(|d| (d.part, d.made_by.as_deref())).collect();
    assert_eq!(found, [(Part::Input, Some("a"))]);
}

#[test]
fn changed_arguments_are_named_after_what_they_change() {
    let place = TestState::new();
    std::fs::write(place.path("child.lobster"), "args: { m: {} }\nsteps:\n  - id: c\n    run: echo child\n")
        .unwrap();
    let text = workflow_text(
        "name: args
args:
  n: { default: 1 }
  my-arg: { default: { deep: [1] } }
steps:
  - id: same
    run: echo hi
  - id: pasted
    run: echo ${n}
  - id: own
    run: echo hi
    env: { LOBSTER_ARG_N: fixed }
  - id: inner
    workflow: child.lobster
    workflow_args: { m: \"${n}\" }
",
    );
    place.run(&text);
    let run = place.run_with(&text, Some(json!({ "n": "2", "my-arg": { "deep": [3] } })));
    let why = |step: &str| explain_step(&place.runtime, &run, step, None).unwrap();
    let named = |step: &str| -> Vec<(Part, Option<String>, Option<String>)> {
        why(step).differences.into_iter().map(|d| (d.part, d.name, d.path)).collect()
    };
    let n = (Part::Argument, Some("n".to_owned()), None);
    let deep = (Part::Argument, Some("my-arg".to_owned()), Some("$.deep[0]".to_owned()));
    assert_eq!(named("same"), [n.clone(), deep.clone()]);
    assert_eq!(why("same").to_sentence(), "same differs by the argument n: 1 → \"2\"");
    assert_eq!(named("own"), [n.clone(), deep.clone()]);
    assert_eq!(named("pasted"), [(Part::Command, None, Some("$[2]".to_owned())), n, deep]);
    // A sub-workflow has its own arguments in addition to those of the run.
    let inner: Vec<_> = named("inner/c").into_iter().map(|(_, name, _)| name.unwrap()).collect();
    assert_eq!(inner, ["n", "my-arg", "LOBSTER_ARG_M", "LOBSTER_ARGS_JSON"]);
}

#[test]
fn a_fork_stops_where_results_become_equal_again() {
    let place = TestState::new();
    let text = workflow_text(CUT_OFF);
    std::fs::write(place.path("source.txt"), "abc").unwrap();
    let run = place.run(&text);
    std::fs::write(place.path("source.txt"), "axx").unwrap();
    let request = ForkRequest { run: run.clone(), from: vec!["data".to_owned()], ..ForkRequest::default() };
    let plan = plan_fork(&place.runtime, &request).unwrap();
    assert_eq!(
        (&plan.done, &plan.reused, plan.more),
        (&vec!["data".to_owned()], &vec!["upper".to_owned(), "note".to_owned()], false)
    );
    let fork = execute_fork(&place.runtime, &plan).run.unwrap();
    // `upper` read a different input and gave the same output, so the note was not written twice.
    assert_eq!(std::fs::read_to_string(place.path("notes.txt")).unwrap(), "A\n");
    let store = place.runtime.store().unwrap();
    assert_eq!(store.run(fork).unwrap().parent, Some(id(&place, &run)));
    let cached = |step: &str| {
        store.all_events(fork).unwrap().iter().any(
            |record| matches!(&record.event, Event::StepEnded { path, outcome, .. } if path == step && outcome.cached),
        )
    };
    assert_eq!(["data", "upper", "note"].map(cached), [false, false, true]);
    assert!(replay_run(&place.runtime, &fork.to_string(), &ReplayOptions::default()).unwrap().is_faithful());
}

#[test]
fn an_edited_result_takes_the_place_of_the_recorded_one() {
    let place = TestState::new();
    std::fs::write(place.path("source.txt"), "abc").unwrap();
    let run = place.run(&workflow_text(CUT_OFF));
    let request = ForkRequest {
        run: run.clone(),
        edit: vec![("data".to_owned(), b"zzz".to_vec())],
        ..ForkRequest::default()
    };
    let plan = plan_fork(&place.runtime, &request).unwrap();
    assert_eq!(
        (plan.edited.as_slice(), plan.done.first().map(String::as_str)),
        (&["data".to_owned()][..], Some("upper"))
    );
    let fork = execute_fork(&place.runtime, &plan).run.unwrap().to_string();
    assert_eq!(std::fs::read_to_string(place.path("notes.txt")).unwrap(), "A\nZ\n");
    // It is not mistaken for the step's own result.
    let report = replay_run(&place.runtime, &fork, &ReplayOptions::default()).unwrap();
    assert_eq!((report.divergences, report.answered, report.edited), (vec![], 2, vec!["data".to_owned()]));
    let why = explain_step(&place.runtime, &fork, "data", None).unwrap();
    assert!(why.to_sentence().ends_with("was edited by hand"), "{}", why.to_sentence());
    let nobody = ForkRequest { run, from: vec!["nobody".to_owned()], ..ForkRequest::default() };
    assert!(plan_fork(&place.runtime, &nobody).is_err());
}

#[test]
fn an_edited_result_of_a_pure_step_is_no_difference() {
    let place = TestState::new();
    let run = place.run(&workflow_text(CHAIN));
    let edit = vec![("calc".to_owned(), br#"[{"id":1,"w":false}]"#.to_vec())];
    let request = ForkRequest { run, edit, ..ForkRequest::default() };
    let fork = execute_fork(&place.runtime, &plan_fork(&place.runtime, &request).unwrap()).run.unwrap();
    let report = replay_run(&place.runtime, &fork.to_string(), &ReplayOptions::default()).unwrap();
    assert_eq!((report.divergences, report.computed, report.edited), (vec![], 0, vec!["calc".to_owned()]));
}

#[test]
fn a_lost_end_is_told_from_a_difference() {
    let place = TestState::new();
    std::fs::write(place.path("source.txt"), "abc").unwrap();
    let run = place.run(&workflow_text(CUT_OFF));
    let store = place.runtime.store().unwrap();
    // A record that ends in the middle: `note` had started when the process died.
    let mut texts: Vec<String> = Vec::new();
    let mut prev = Digest::from([0; 32]);
    let other = run.replace(&run[..8], "0badc0de");
    for record in store.all_events(id(&place, &run)).unwrap() {
        if matches!(&record.event, Event::StepEnded { path, .. } if path == "note") {
            break;
        }
        let event = &record.event;
        let text = json::compact(
            &json!({ "run": other, "seq": record.seq, "at": record.at, "prev": prev, "event": event }),
        );
        prev = Digest::of_bytes(text.as_bytes());
        texts.push(text);
    }
    store.import_run(texts, &Redacted::default()).unwrap();
    let report = replay_run(&place.runtime, &other, &ReplayOptions::default()).unwrap();
    assert_eq!((report.divergences, report.record_ends_at.as_deref()), (vec![], Some("note")));
}

/// The code of a failure.
fn code_of(result: &RunResult) -> FailureCode {
    match &result.envelope {
        Envelope::Failed(failure) => failure.code.clone(),
        other => panic!("no failure: {other:?}"),
    }
}

#[test]
fn what_cannot_be_done_with_a_run_has_a_code_of_its_own() {
    let place = TestState::new();
    let run = |text: &str| {
        let file = place.path("flow.lobster");
        std::fs::write(&file, text).unwrap();
        place.runtime.run(&RunRequest { target: Target::File(file), args: None })
    };
    let answered = |question: &str, reply: Reply| {
        answer_and_resume(
            &place.runtime,
            &ResumeRequest { gate: GateRef::Id(question.to_owned()), reply, author: None },
        )
    };
    let asked_in = |result: &RunResult| match &result.envelope {
        Envelope::NeedsApproval(request) => request["approvalId"].as_str().unwrap().to_owned(),
        other => panic!("no question: {other:?}"),
    };
    let id_of = |result: &RunResult| result.run.unwrap().to_string();

    let ended = id_of(&run("steps: [{id: a, run: 'true'}]"));
    let again = |id: &str| code_of(&resume_run(&place.runtime, id, Interrupted::Ask));
    assert_eq!(again(&ended), Code::RunState.into());
    assert_eq!(code_of(&cancel_run(&place.runtime, &ended)), Code::RunState.into());
    let waiting = run("steps: [{id: a, approval: Go?}]");
    assert_eq!(again(&id_of(&waiting)), Code::RunState.into());
    answered(&asked_in(&waiting), Reply::Reject);
    assert_eq!(again(&id_of(&waiting)), Code::RunState.into());

    let within =
        |end: &str| format!("steps: [{{id: a, pipeline: \"exec echo hi | approve --prompt Go? | {end}\"}}]");
    let waiting = run(&within("head --n 1"));
    std::fs::write(place.path("flow.lobster"), within("last")).unwrap();
    let changed = answered(&asked_in(&waiting), Reply::Approve);
    assert_eq!(code_of(&changed), Code::WorkflowChanged.into());

    let missing = RunRequest { target: Target::File(place.path("none.lobster")), args: None };
    assert_eq!(code_of(&place.runtime.run(&missing)), Code::WorkflowFile.into());
    let text = "args: {n: {required: true}}\nsteps: [{id: a, run: 'true'}]";
    assert_eq!(code_of(&run(text)), Code::WorkflowArguments.into());
}
