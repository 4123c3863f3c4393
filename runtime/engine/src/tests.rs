//! Components in pipelines and loops, through the public interface.

use std::path::Path;

use serde_json::{Value, json};

use crate::envelope::Envelope;
use crate::runtime::{RunRequest, RunResult, Runtime, Settings, Target};
use lobster_store::Event;

fn runtime(dir: &Path) -> Runtime {
    lobster_base::own_program::note_that_it_answers();
    let mut settings = Settings::from_process().unwrap();
    settings.env = vec![("LOBSTER_STATE_DIR".into(), dir.join("state").into())];
    settings.cwd = dir.to_owned();
    Runtime::new(settings).unwrap()
}

fn pipeline(runtime: &Runtime, text: &str) -> RunResult {
    runtime.run(&RunRequest { target: Target::Pipeline(text.to_owned()), args: None })
}

fn file(runtime: &Runtime, dir: &Path, text: &str, args: Value) -> RunResult {
    std::fs::write(dir.join("flow.lobster"), text).unwrap();
    runtime.run(&RunRequest { target: Target::File("flow.lobster".into()), args: Some(args) })
}

fn items(result: &RunResult) -> Value {
    match &result.envelope {
        Envelope::Done(output) => Value::Array(output.to_vec().unwrap()),
        other => panic!("{other:?}"),
    }
}

fn failure(result: &RunResult) -> String {
    match &result.envelope {
        Envelope::Failed(failure) => failure.message.clone(),
        other => panic!("{other:?}"),
    }
}

/// One test, since compiling the evaluator takes most of the time.
#[test]
fn components_in_pipelines_and_loops() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("eval.wasm"), super::kinds::component::JS_EVALUATOR).unwrap();
    let runtime = runtime(dir);

    // Items flow in and out; no input is an empty list.
    let result =
        pipeline(&runtime, "js '[3,1,2]' | js 'input.filter(n => n > 1).map(n => ({n}))' | sort --key n");
    assert_eq!(items(&result), json!([{"n": 2}, {"n": 3}]));
    assert_eq!(items(&pipeline(&runtime, "js '[]' | js 'input.length'")), json!([0]));

    // More items than are kept in memory.
    let result = pipeline(
        &runtime,
        "js 'Array.from({length: 20000}, (_, n) => n)' | js '[input.length, input[19999]]'",
    );
    assert_eq!(items(&result), json!([20000, 19999]));

    // The author's line and column.
    let message = failure(&pipeline(&runtime, "js 'const a = input;\nreturn a.b.c'"));
    assert!(message.contains("TypeError") && message.contains("line 2"), "{message}");

    // A component from its file, with arguments; then from the cache.
    let text = "js '[1,2]' | component eval.wasm --arg code=input.length --arg as=value";
    assert_eq!(items(&pipeline(&runtime, text)), json!([2]));
    let again = pipeline(&runtime, text);
    let journal = runtime.store().unwrap().all_events(again.run.unwrap()).unwrap();
    let cached: Vec<_> = journal
        .iter()
        .filter_map(|record| match &record.event {
            Event::StepEnded { path, outcome, .. } if outcome.fuel.is_some() => {
                Some((path.as_str(), outcome.cached))
            }
            _ => None,
        })
        .collect();
    assert_eq!(cached, [("|0.0", true), ("|1.0", true)]);
    let message = failure(&pipeline(&runtime, "js '1' | component missing.wasm"));
    assert!(message.contains("missing.wasm"), "{message}");

    // Answers from outside are recorded, and such an outcome is not cached.
    std::fs::create_dir(dir.join("mail")).unwrap();
    std::fs::write(dir.join("mail/a.eml"), "From: Bo <bo@example.org>\nSubject: Plan\n\nHello\n").unwrap();
    let mail = include_bytes!("../../../guest-steps/dist/categorize-mail.wasm");
    std::fs::write(dir.join("mail.wasm"), mail).unwrap();
    let text = "component mail.wasm --grant-read mail:/mail --grant-random --grant-clock | pick subject";
    for _ in 0..2 {
        let result = pipeline(&runtime, text);
        assert_eq!(items(&result), json!([{"subject": "Plan"}]));
        let journal = runtime.store().unwrap().all_events(result.run.unwrap()).unwrap();
        let outcome = journal.iter().find_map(|record| match &record.event {
            Event::StepEnded { outcome, .. } if outcome.fuel.is_some() => Some(outcome),
            _ => None,
        });
        let outcome = outcome.unwrap();
        assert!(!outcome.cached);
        let record = outcome.detail["host_calls"].as_str().unwrap().parse().unwrap();
        assert!(lobster_executor::RecordedCalls::open(&runtime.store().unwrap(), &record).is_ok());
    }

    // Rounds of pure steps: results are in order, and the first failure is reported.
    let flow = "args: {fail: {default: []}}
steps:
  - id: numbers
    js: \"Array.from({length: 300}, (_, n) => n)\"
  - id: loop
    for_each: $numbers.json
    steps:
      - id: square
        js: \"if (args.fail.includes(input)) throw new Error('no ' + input); return input * input\"
        stdin: $item.json
  - id: sum
    js: input.map(round => round.square)
    stdin: $loop.json
";
    let squares: Vec<_> = (0..300).map(|n| n * n).collect();
    assert_eq!(items(&file(&runtime, dir, flow, json!({}))), json!(squares));
    let message = failure(&file(&runtime, dir, flow, json!({"fail": [250, 17, 18, 290]})));
    assert!(message.contains("no 17"), "{message}");
}
