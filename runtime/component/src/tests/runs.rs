use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::fixture::{self, COPY, ECHO_ARGS, FORWARD};
use super::{engine, load, run};
use crate::{Allocation, Engine, EngineConfig, Input, Kind, LoadError, Outcome, RunError, SetBy, StepError};

pub(super) fn items(texts: &[&str]) -> Input {
    let texts: Vec<_> = texts.iter().map(|text| Ok((*text).to_owned())).collect();
    Input::Items(Box::new(texts.into_iter()))
}

#[test]
fn a_step_reads_its_arguments_and_writes_bytes() {
    let echo = load(&fixture::step(ECHO_ARGS));
    assert_eq!(echo.kind(), Kind::Step);
    let ran = run(&echo, r#"{"a":1}"#, |_| {});
    assert_eq!(ran.output, r#"{"a":1}"#);
    let outcome = ran.outcome();
    assert_eq!((outcome.output_bytes, outcome.exit_code, outcome.host_calls), (7, 0, 1));
    assert_eq!(outcome.peak_memory, 2 * 65536);
    let again = run(&echo, r#"{"a":1}"#, |_| {});
    assert_eq!(again.outcome().fuel_used, outcome.fuel_used);
    assert!(outcome.fuel_used > 0);
}

#[test]
fn input_streams_through_in_bounded_memory() {
    let copy = load(&fixture::step(COPY));
    let data: Vec<u8> = (0..3_000_000u32).map(|n| b'a' + u8::try_from(n % 26).unwrap_or(0)).collect();
    let sent = data.clone();
    let ran = run(&copy, "{}", |i| i.input = Input::Bytes(Box::new(std::io::Cursor::new(sent))));
    assert_eq!(ran.name(), "ok");
    assert!(ran.output.as_bytes() == data);
    assert_eq!(ran.outcome().peak_memory, 2 * 65536);
}

#[test]
fn items_flow_and_are_checked_as_json() {
    let forward = load(&fixture::step(FORWARD));
    let ran = run(&forward, "{}", |i| i.input = items(&["1", r#"{"b":[2]}"#, "\"x\""]));
    assert_eq!((ran.output.as_str(), ran.outcome().output_items), ("1\n{\"b\":[2]}\n\"x\"\n", 3));
}

#[test]
fn a_step_says_how_it_failed() {
    let fail = load(&fixture::step_with(
        r#"(data (i32.const 2048) "no-luck")"#,
        "(call $fail (i32.const 2048) (i32.const 7))",
    ));
    let ran = run(&fail, "{}", |_| {});
    let expected = StepError { code: "no-luck".into(), message: "no-luck".into(), retryable: true };
    assert!(matches!(ran.result, Err(RunError::Step(error)) if error == expected));
}

#[test]
fn schemas_are_checked_on_every_side() {
    let integers = r#"{"type":"integer"}"#;
    let args = r#"{"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":false}"#;
    let step = load(&fixture::described_step(args, Some(integers), Some(r#"{"maximum":9}"#), "", FORWARD));
    let description = step.describe().ok().flatten().expect("a step describes itself");
    assert_eq!((description.name.as_str(), description.args_schema.as_str()), ("fixture", args));
    assert_eq!(run(&step, r#"{"n":1}"#, |i| i.input = items(&["1", "9"])).output, "1\n9\n");
    let says = |ran: super::Ran| ran.result.err().map(|e| e.to_string()).unwrap_or_default();
    assert_eq!(
        says(run(&step, r#"{"n":"x"}"#, |_| {})),
        "the arguments do not fit the step: $.n: must be integer"
    );
    assert_eq!(run(&step, "[]", |_| {}).name(), "bad-args");
    assert_eq!(run(&step, "{", |_| {}).name(), "bad-args");
    assert_eq!(
        says(run(&step, "{}", |i| i.input = items(&["1", "\"two\""]))),
        "input item 2 does not fit the step: $: must be integer"
    );
    assert_eq!(
        says(run(&step, "{}", |i| i.input = items(&["1", "10"]))),
        "the step broke its own output schema with item 2: $: must be <= 9"
    );
}

#[test]
fn a_description_is_what_it_looks_like() {
    let described = |was: &str, is: &str| {
        assert_eq!(was.len(), is.len());
        let mut bytes = fixture::step(COPY);
        let at = bytes.windows(was.len()).position(|part| part == was.as_bytes()).unwrap();
        bytes[at..at + is.len()].copy_from_slice(is.as_bytes());
        let step = load(&bytes);
        let said = step.describe().err().map(|error| (error.name(), error.to_string()));
        assert_eq!(run(&step, "{}", |_| {}).name(), said.as_ref().map_or("ok", |(name, _)| name), "{is:?}");
        said.map(|(_, message)| message).unwrap_or_default()
    };
    assert_eq!(described("fixture", "a-b_.9Z"), "");
    for (was, is, part) in [
        ("fixture", "fix\ntur", "its name \"fix\\ntur\" is not made of"),
        ("fixture", "fix ure", "its name"),
        ("0.1.0One", "0.\x1b.0One", "its version has control characters"),
        ("One line.", "One\nline.", "its summary has control characters"),
        ("One line.", "One\u{9b}ine.", "its summary has control characters"),
    ] {
        let message = described(was, is);
        assert!(message.contains(part), "{is:?}: {message}");
    }
}

#[test]
fn a_command_program_takes_words_and_nothing_else() {
    let command = load(&fixture::command("", ""));
    let words = |args: &str| command.command_words(args).map_err(|error| error.to_string());
    assert_eq!(words("{}"), Ok(Vec::new()));
    assert_eq!(
        words(r#"{"argv":["x",1,true]}"#),
        Ok(vec!["x".to_owned(), "1".to_owned(), "true".to_owned()])
    );
    for (args, part) in [
        (r#"{"argv":"notlist"}"#, "$.argv: it is not a list of words"),
        (r#"{"argv":["a",[]]}"#, "$.argv[1]: a word is a text"),
        (r#"{"a":1}"#, "$.a: a command program takes words alone"),
        ("[]", "$: arguments are a JSON object"),
    ] {
        let message = words(args).unwrap_err();
        assert!(message.contains(part) && command.check_args(args).is_err(), "{args}: {message}");
    }
}

const LOOP: &str = "(loop $again (br $again)) unreachable";

#[test]
fn endless_loops_end_by_fuel_by_time_and_by_cancelling() {
    let endless = load(&fixture::step(LOOP));
    let ran = run(&endless, "{}", |i| i.limits.fuel = 1_000_000);
    assert!(matches!(ran.result, Err(RunError::OutOfFuel { limit: 1_000_000, set_by: SetBy::Default })));
    let start = Instant::now();
    let ran = run(&endless, "{}", |i| i.limits.wall = Duration::from_millis(50));
    assert!(matches!(ran.result, Err(RunError::Timeout { limit, .. }) if limit == Duration::from_millis(50)));
    let cancelled = Instant::now();
    let ran = run(&endless, "{}", |i| {
        i.cancel = std::sync::Arc::new(move || {
            (cancelled.elapsed() > Duration::from_millis(50)).then(|| "SIGTERM".to_owned())
        });
    });
    assert!(matches!(ran.result, Err(RunError::Cancelled { reason }) if reason == "SIGTERM"));
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn endless_recursion_exhausts_the_stack() {
    let deep = load(&fixture::step_with(
        "(func $deep (param i32) (result i32) (i32.add (call $deep (i32.add (local.get 0) (i32.const 1))) (i32.const 1)))",
        "(call $deep (i32.const 0))",
    ));
    assert_eq!(run(&deep, "{}", |_| {}).name(), "stack-exhausted");
}

#[test]
fn memory_and_tables_are_bounded() {
    let greedy = load(&fixture::step(
        "(loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable",
    ));
    let ran = run(&greedy, "{}", |i| i.limits.memory = 8 << 20);
    assert!(
        matches!(ran.result, Err(RunError::MemoryLimit { limit: 8_388_608, asked, .. }) if asked > 8 << 20)
    );
    let modest = load(&fixture::step(
        "(loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) (call $ok)",
    ));
    let ran = run(&modest, "{}", |i| i.limits.memory = 8 << 20);
    assert!(ran.outcome().peak_memory <= 8 << 20);
    let ran = run(&modest, "{}", |i| i.limits.memory = 65536);
    assert!(
        matches!(ran.result, Err(RunError::MemoryLimit { limit: 65536, asked: 131_072, .. })),
        "{:?}",
        ran.result
    );
    let tables = load(&fixture::step_with(
        "(table $t 1 funcref)",
        "(loop $again (br_if $again (i32.ne (table.grow $t (ref.null func) (i32.const 1000)) (i32.const -1)))) unreachable",
    ));
    let ran = run(&tables, "{}", |i| i.limits.tables = 10_000);
    assert!(matches!(ran.result, Err(RunError::TableLimit { limit: 10_000, asked: 10_001..=11_001 })));
    assert_eq!(run(&tables, "{}", |i| i.limits.instances = 1).name(), "instance-limit");
}

#[test]
fn output_is_bounded_whatever_the_step_makes_of_it() {
    let flood = load(&fixture::step(
        "(loop $again (call $write (local.get $output) (i32.const 0) (i32.const 65536) (i32.const 64)) (br $again)) unreachable",
    ));
    let ran = run(&flood, "{}", |i| {
        i.limits.output = 1 << 20;
    });
    assert!(matches!(ran.result, Err(RunError::OutputLimit { limit: 1_048_576, .. })), "{:?}", ran.result);
    assert_eq!(ran.output.len(), 1 << 20);
    // Fuel bounds everything that is not output: calls into the host cost some.
    let chatter = load(&fixture::step(
        "(loop $again (call $log (i32.const 2) (i32.const 0) (i32.const 8) (i32.const 0) (i32.const 0)) (br $again)) unreachable",
    ));
    let ran = run(&chatter, "{}", |i| i.limits.fuel = 10_000_000);
    assert_eq!(ran.name(), "out-of-fuel");
    let huge = load(&fixture::step(
        "(drop (memory.grow (i32.const 800))) (call $write (local.get $output) (i32.const 0) (i32.const 50000000) (i32.const 64)) (call $ok)",
    ));
    assert_eq!(run(&huge, "{}", |_| {}).name(), "host-call-too-large");
}

#[test]
fn traps_are_named() {
    let trap = load(&fixture::step_with("(func $oops unreachable)", "(call $oops) (call $ok)"));
    let ran = run(&trap, "{}", |_| {});
    let Err(RunError::Trap { message, .. }) = ran.result else { panic!("{:?}", ran.result) };
    assert!(message.starts_with("wasm trap: wasm `unreachable` instruction executed in"), "{message}");
    assert!(message.contains("oops"), "{message}");
}

#[test]
fn a_refusal_of_output_that_ends_in_a_trap_is_named() {
    let emit = |length: u32| {
        format!(
            "(i32.store (i32.const 256) (i32.const 320)) (i32.store (i32.const 260) (i32.const {length}))
             (call $emit (local.get $output) (i32.const 256) (i32.const 1) (i32.const 64))"
        )
    };
    let fields = r#"(data (i32.const 320) "[ ]")"#;
    // The first byte alone is not JSON, all three bytes are.
    let unhandled = load(&fixture::step_with(fields, &format!("{} unreachable", emit(1))));
    let ran = run(&unhandled, "{}", |_| {});
    assert_eq!(ran.name(), "bad-output", "{:?}", ran.result);
    let said = ran.result.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(
        said.starts_with("output item 1 is not usable: it is not JSON") && said.contains("trap"),
        "{said}"
    );
    let handled = load(&fixture::step_with(fields, &format!("{} {} unreachable", emit(1), emit(3))));
    assert_eq!(run(&handled, "{}", |_| {}).name(), "trap");
}

pub(super) fn hello() -> Vec<u8> {
    fixture::command(
        r#"(data (i32.const 2048) "hello err")"#,
        "(call $put (i32.const 1) (i32.const 2048) (i32.const 5))
         (call $put (i32.const 2) (i32.const 2054) (i32.const 3))
         (call $exit (i32.const 10))",
    )
}

#[test]
fn command_modules_run_with_streams_and_exit_code() {
    let module = load(&hello());
    assert_eq!(module.kind(), Kind::Module);
    let ran = run(&module, "", |_| {});
    assert_eq!((ran.output.as_str(), ran.outcome().exit_code), ("hello", 10));
    assert_eq!(ran.outcome().stderr_tail, "err");
}

#[test]
fn command_components_run_too() {
    let command = load(&fixture::as_component(&hello()));
    assert_eq!(command.kind(), Kind::Command);
    let ran = run(&command, "", |_| {});
    // The adapter only distinguishes success and failure.
    assert_eq!((ran.output.as_str(), ran.outcome().exit_code), ("hello", 1));
}

#[test]
fn commands_read_stdin() {
    let cat = load(&fixture::command(
        "",
        "(block $done (loop $more
            (i32.store (i32.const 16) (i32.const 4096)) (i32.store (i32.const 20) (i32.const 4096))
            (br_if $done (call $fd_read (i32.const 0) (i32.const 16) (i32.const 1) (i32.const 24)))
            (br_if $done (i32.eqz (i32.load (i32.const 24))))
            (call $put (i32.const 1) (i32.const 4096) (i32.load (i32.const 24)))
            (br $more)))",
    ));
    let text = "x".repeat(300_000);
    let sent = text.clone();
    let ran = run(&cat, "", |i| i.input = Input::Bytes(Box::new(std::io::Cursor::new(sent))));
    assert!(ran.output == text);
    assert_eq!(run(&cat, "", |i| i.input = items(&["1", "2"])).output, "1\n2\n");
}

/// Sleeps an hour with poll_oneoff, then prints the monotonic clock.
const SLEEP: &str = "
    (i64.store (i32.const 4096) (i64.const 7))
    (i32.store8 (i32.const 4104) (i32.const 0))
    (i32.store (i32.const 4112) (i32.const 1))
    (i64.store (i32.const 4120) (i64.const 3600000000000))
    (drop (call $poll (i32.const 4096) (i32.const 4200) (i32.const 1) (i32.const 4300)))
    (drop (call $clock (i32.const 1) (i64.const 1) (i32.const 4400)))
    (call $put (i32.const 1) (i32.const 4400) (i32.const 8))";

#[test]
fn virtual_sleep_takes_no_time_and_real_sleep_can_be_stopped() {
    let start = Instant::now();
    let module = fixture::command("", SLEEP);
    for sleeper in [load(&module), load(&fixture::as_component(&module))] {
        let ran = run(&sleeper, "", |_| {});
        assert_eq!(ran.name(), "ok");
        assert!(start.elapsed() < Duration::from_secs(5));
        let ran = run(&sleeper, "", |i| {
            i.grants.clock = true;
            i.limits.wall = Duration::from_millis(60);
        });
        assert_eq!(ran.name(), "timeout");
        let ran = run(&sleeper, "", |i| {
            i.grants.clock = true;
            i.limits.host_call = Duration::from_millis(60);
        });
        assert_eq!(ran.name(), "host-call-timeout");
    }
    assert!(start.elapsed() < Duration::from_secs(10));
}

const DICE: &str = "
    (drop (call $random (i32.const 4096) (i32.const 16)))
    (drop (call $clock (i32.const 0) (i64.const 1) (i32.const 4112)))
    (call $put (i32.const 1) (i32.const 4096) (i32.const 24))";

#[test]
fn pure_runs_are_equal_and_follow_the_seed() {
    let dice = load(&fixture::command("", DICE));
    let roll = |seed: u8, random: bool| {
        let kept = std::sync::Arc::new(Mutex::new(Vec::new()));
        let mut invocation = crate::Invocation::new("", Box::new(kept.clone()));
        invocation.seed = [seed; 32];
        invocation.grants.random = random;
        let fuel = dice.run(invocation).map(|outcome| outcome.fuel_used).ok();
        (fuel, kept.lock().map(|bytes| bytes.clone()).unwrap_or_default())
    };
    assert_eq!(roll(1, false), roll(1, false));
    assert_ne!(roll(1, false).1, roll(2, false).1);
    assert_ne!(roll(1, true).1, roll(1, true).1);
}

#[test]
fn what_is_no_program_is_refused_by_name() {
    let error = |bytes: &[u8]| engine().load_bytes(bytes).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(error(b"hello").starts_with("not WebAssembly"));
    let empty = wat::parse_str("(component)").expect("parses");
    assert!(
        matches!(engine().load_bytes(&empty), Err(LoadError::MissingExport { found }) if found == "nothing")
    );
    let foreign = wat::parse_str(r#"(component (import "acme:db/query@1.0.0" (instance)))"#).expect("parses");
    assert!(matches!(engine().load_bytes(&foreign), Err(LoadError::UnknownImport { .. })));
    let future =
        wat::parse_str(r#"(component (import "lobster:step/io@0.9.0" (instance)))"#).expect("parses");
    assert_eq!(
        error(&future),
        "the component speaks lobster:step/io@0.9.0; this host speaks lobster:step 0.1"
    );
    let broken = fixture::step("(i32.const 0) (i64.const 0)");
    assert!(matches!(engine().load_bytes(&broken), Err(LoadError::Malformed { .. })), "{}", error(&broken));
}

#[test]
fn one_component_runs_on_many_threads() {
    let echo = load(&fixture::step(ECHO_ARGS));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let echo = echo.clone();
            scope.spawn(move || {
                for n in 0..50 {
                    let args = format!("{{\"n\":{}}}", thread * 100 + n);
                    assert_eq!(run(&echo, &args, |_| {}).output, args);
                }
            });
        }
    });
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
}

#[test]
fn a_memory_limit_bounds_the_process() {
    // Grows as far as it can, touches every page, and passes all of it to the host.
    let glutton = load(&fixture::step(
        "(loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
         (memory.fill (i32.const 65536) (i32.const 1) (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 65536)))
         (call $write (local.get $output) (i32.const 65536) (i32.const 31000000) (i32.const 64))
         (call $ok)",
    ));
    assert_eq!(run(&glutton, "{}", |i| i.limits.memory = 4 << 20).name(), "memory-limit");
    struct Sampler(u64);
    impl crate::OutputSink for Sampler {
        fn write_bytes(&mut self, _: &[u8]) -> std::io::Result<()> {
            self.0 = self.0.max(resident());
            Ok(())
        }
        fn write_item(&mut self, _: &str) -> std::io::Result<()> {
            Ok(())
        }
    }
    let before = resident();
    let sampler = std::sync::Arc::new(Mutex::new(Sampler(0)));
    let mut invocation = crate::Invocation::new("{}", Box::new(sampler.clone()));
    invocation.limits.memory = 64 << 20;
    let outcome = glutton.run(invocation).unwrap_or_else(|error| panic!("{error}"));
    assert!(outcome.peak_memory > 63 << 20 && outcome.peak_memory <= 64 << 20);
    let peak = sampler.lock().map_or(u64::MAX, |sampler| sampler.0);
    // Other tests of this process run at the same time, so this bound is loose.
    assert!(peak < before + (64 << 20) + (120 << 20), "{before} -> {peak}");
}

/// A command component with one more import.
fn with_import(import: &str) -> Vec<u8> {
    wat::parse_str(format!(
        r#"(component
            (import "{import}" (instance))
            (core module $m (func (export "run") (result i32) i32.const 0))
            (core instance $i (instantiate $m))
            (func $run (result (result)) (canon lift (core func $i "run")))
            (instance $e (export "run" (func $run)))
            (export "wasi:cli/run@0.2.0" (instance $e)))"#
    ))
    .unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn network_imports_need_a_grant() {
    for import in ["wasi:sockets/tcp@0.2.0", "wasi:http/outgoing-handler@0.2.3"] {
        let program = load(&with_import(import));
        let ran = run(&program, "", |_| {});
        let message = ran.result.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(
            message.starts_with(&format!("the component imports `{import}` and the step has no grant")),
            "{message}"
        );
        assert_eq!(run(&program, "", |i| i.grants.net = vec!["example.com:443".into()]).name(), "ok");
        assert_eq!(run(&program, "", |i| i.grants.net = vec!["example.com:x".into()]).name(), "bad-grant");
    }
    let program = load(&with_import("wasi:cli/environment@0.2.0"));
    assert_eq!(run(&program, "", |_| {}).name(), "ok");
    let inspection = program.inspect();
    assert_eq!(
        (inspection.kind, inspection.imports),
        (Kind::Command, vec!["wasi:cli/environment@0.2.0".to_owned()])
    );
    assert!(inspection.cannot.iter().any(|line| line.starts_with("open files")));
}

#[test]
fn raw_sockets_cannot_be_recorded() {
    struct Silent;
    impl crate::HostCallTrace for Silent {
        fn recorded_answer(&mut self, _: &crate::HostCall<'_>) -> Result<Option<Vec<u8>>, String> {
            Ok(None)
        }
        fn record_answer(&mut self, _: &crate::HostCall<'_>, _: &[u8]) {}
    }
    let program = load(&with_import("wasi:sockets/tcp@0.2.0"));
    let ran = run(&program, "", |i| {
        i.grants.net = vec!["example.com:443".into()];
        i.trace = Some(Box::new(Silent));
    });
    assert_eq!(ran.name(), "not-recordable");
}

/// Records the answers that an effect gets, and replays them.
#[derive(Default)]
pub(super) struct Tape {
    calls: Vec<(&'static str, Vec<u8>)>,
    pub(super) replay: Option<usize>,
}

impl crate::HostCallTrace for Tape {
    fn recorded_answer(&mut self, call: &crate::HostCall<'_>) -> Result<Option<Vec<u8>>, String> {
        let Some(at) = &mut self.replay else { return Ok(None) };
        let (function, answer) = self.calls.get(*at).ok_or("the record is at its end")?;
        *at += 1;
        if *function == call.function {
            Ok(Some(answer.clone()))
        } else {
            Err(format!("recorded {function}"))
        }
    }

    fn record_answer(&mut self, call: &crate::HostCall<'_>, answer: &[u8]) {
        self.calls.push((call.function, answer.to_vec()));
    }
}

#[test]
fn effects_replay_from_their_record() {
    let dice = load(&fixture::command("", DICE));
    let tape = std::sync::Arc::new(Mutex::new(Tape::default()));
    let roll = || {
        let kept = std::sync::Arc::new(Mutex::new(Vec::new()));
        let mut invocation = crate::Invocation::new("", Box::new(kept.clone()));
        invocation.grants.random = true;
        invocation.grants.clock = true;
        invocation.trace = Some(Box::new(tape.clone()));
        let result = dice.run(invocation).map(|outcome| outcome.fuel_used).map_err(|error| error.name());
        (result, kept.lock().map(|bytes| bytes.clone()).unwrap_or_default())
    };
    let live = roll();
    assert!(live.0.is_ok());
    let rewind = || {
        if let Ok(mut tape) = tape.lock() {
            tape.replay = Some(0);
        }
    };
    rewind();
    assert_eq!(roll(), live);
    // A record of different calls is not followed.
    rewind();
    if let Ok(mut tape) = tape.lock() {
        tape.calls.reverse();
    }
    assert_eq!(roll().0, Err("diverged"));
}

mod mutations {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        /// Damaged programs are rejected or run within their limits; nothing panics.
        #[test]
        fn damaged_programs_do_no_harm(
            which in 0..3usize,
            hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let mut bytes = match which {
                0 => fixture::step(COPY),
                1 => hello(),
                _ => with_import("wasi:cli/environment@0.2.0"),
            };
            for (at, value) in &hits {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            if let Ok(program) = engine().load_bytes(&bytes) {
                let _ = program.inspect();
                run(&program, "{}", |i| {
                    i.limits.fuel = 1_000_000;
                    i.limits.memory = 16 << 20;
                });
            }
        }
    }
}

#[test]
fn a_thousand_runs_under_any_settings_are_the_same() {
    let csv = concat!(env!("CARGO_MANIFEST_DIR"), "/../../guest-steps/dist/csv.wasm");
    let dir = tempfile::tempdir().expect("temporary directory");
    let seen = Mutex::new(BTreeSet::new());
    for allocation in [Allocation::OnDemand, Allocation::Pooling, Allocation::Adaptive] {
        let config =
            EngineConfig { code_cache: Some(dir.path().join("code")), allocation, ..EngineConfig::default() };
        let csv = Engine::new(config).load_file(csv).unwrap_or_else(|error| panic!("{error}"));
        for threads in [1, 2] {
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        for _ in 0..180 / threads {
                            let ran = run(&csv, "{}", |i| {
                                i.input = Input::Bytes(Box::new(&b"id,name\n1,Ann\n2,Bo\n"[..]))
                            });
                            let Outcome { fuel_used, peak_memory, host_calls, .. } = *ran.outcome();
                            let figures = (ran.output, fuel_used, peak_memory, host_calls);
                            seen.lock().expect("no thread panics").insert(figures);
                        }
                    });
                }
            });
        }
    }
    // The figures are constants so that debug and release builds must also agree on them.
    let output = "{\"id\":\"1\",\"name\":\"Ann\"}\n{\"id\":\"2\",\"name\":\"Bo\"}\n".to_owned();
    let expected = (output, 570_718, 21 * 65536, 8);
    assert_eq!(seen.into_inner().expect("no thread panics").into_iter().collect::<Vec<_>>(), [expected]);
}

#[test]
fn handles_and_log_lines_do_not_fill_the_host() {
    // Opens a timer in each round and never drops it.
    let hoarder = load(&fixture::command(
        "",
        "(loop $again
            (i32.store (i32.const 16) (i32.const 2048)) (i32.store (i32.const 20) (i32.const 0))
            (drop (call $path_open (i32.const 3) (i32.const 0) (i32.const 2048) (i32.const 1) (i32.const 0)
                (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 32)))
            (br $again))",
    ));
    assert_eq!(run(&hoarder, "", |i| i.limits.fuel = 50_000_000).name(), "out-of-fuel");
    let shouter = load(&fixture::step(
        "(loop $again (call $log (i32.const 2) (i32.const 0) (i32.const 65536) (i32.const 0) (i32.const 0)) (br $again)) unreachable",
    ));
    struct Counter(std::sync::atomic::AtomicU64);
    impl crate::HostServices for Counter {
        fn log(&self, _: crate::Level, message: &str, _: &str) {
            self.0.fetch_add(message.len() as u64, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let counter = std::sync::Arc::new(Counter(std::sync::atomic::AtomicU64::new(0)));
    let ran = run(&shouter, "{}", |i| {
        i.limits.fuel = 1_000_000;
        i.services = counter.clone();
    });
    assert_eq!(ran.name(), "out-of-fuel");
    assert!(counter.0.load(std::sync::atomic::Ordering::Relaxed) < 20 << 20);
}

#[test]
fn time_that_passes_is_not_counted() {
    // Long enough for many ticks, with calls in between.
    let busy = load(&fixture::step_with(
        "(func $spin (local $i i32) (loop $l (local.set $i (i32.add (local.get $i) (i32.const 1))) (br_if $l (i32.lt_u (local.get $i) (i32.const 4000000)))))",
        "(loop $again
            (call $spin)
            (call $write (local.get $output) (i32.const 0) (i32.const 8) (i32.const 64))
            (local.set $n (i32.add (local.get $n) (i32.const 1)))
            (br_if $again (i32.lt_u (local.get $n) (i32.const 20))))
         (call $ok)",
    ));
    let figures = || {
        let ran = run(&busy, "{}", |_| {});
        (ran.outcome().host_calls, ran.outcome().fuel_used)
    };
    let first = figures();
    assert_eq!(first.0, 20);
    for _ in 0..3 {
        assert_eq!(figures(), first);
    }
}
