//! Exceptions use fuel and memory, end at every limit, and reveal nothing about the host. Unsupported
//! WebAssembly features are named wherever they occur in a program.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::fixture::{as_component, command, step_with};
use super::{engine, load, run};
use crate::{Allocation, Engine, EngineConfig, LoadError};

const TAGS: &str = "(tag $small (param i32)) (tag $chain (param exnref)) (tag $empty)
    (global $kept (mut exnref) (ref.null exn))
    (func $throws (param i32) (throw $small (local.get 0)))
    (func $deep (param $more i32)
        (if (local.get $more) (then (call $deep (i32.sub (local.get $more) (i32.const 1)))))
        (throw $empty))";

/// Throws and catches `times` times; `$n` ends as the sum of the thrown values.
fn rounds(times: u32) -> String {
    format!(
        "(loop $again
            (local.set $n (i32.add (local.get $n)
                (block $caught (result i32)
                    (try_table (catch $small $caught) (call $throws (i32.const 1))) (unreachable))))
            (br_if $again (i32.lt_u (local.get $n) (i32.const {times}))))"
    )
}

#[test]
fn exceptions_run_in_every_form_of_program() {
    let start = format!("{} (call $exit (i32.rem_u (local.get $n) (i32.const 99)))", rounds(110));
    let module = command(TAGS, &start);
    assert_eq!(run(&load(&module), "{}", |_| {}).outcome().exit_code, 11);
    // A command component gives no codes other than 0 and 1.
    let component = as_component(&command(TAGS, &format!("{} (call $exit (i32.const 1))", rounds(110))));
    assert_eq!(run(&load(&component), "{}", |_| {}).outcome().exit_code, 1);
    let write = "(i32.store (i32.const 4096) (i32.add (local.get $n) (i32.const 0x30)))
        (call $write (local.get $output) (i32.const 4096) (i32.const 1) (i32.const 64)) (call $ok)";
    let step = step_with(TAGS, &format!("{} {write}", rounds(7)));
    assert_eq!(run(&load(&step), "{}", |_| {}).output, "7");
}

#[test]
fn an_exception_that_nothing_catches_ends_the_run_by_name() {
    for program in [command(TAGS, "(throw $empty)"), step_with(TAGS, "(throw $empty)")] {
        let ran = run(&load(&program), "{}", |_| {});
        assert_eq!(ran.name(), "trap");
        let said = ran.result.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(said.contains("exception that nothing catches"), "{said}");
    }
}

/// Between components, an exception is a trap: a component cannot throw into another one.
#[test]
fn an_exception_does_not_leave_its_component() {
    let text = r#"(component
        (component $a
            (core module $m (tag $e) (func (export "f") (throw $e)))
            (core instance $i (instantiate $m))
            (func (export "f") (canon lift (core func $i "f"))))
        (instance $a (instantiate $a))
        (component $b
            (import "f" (func $f))
            (core func $f (canon lower (func $f)))
            (core module $m
                (import "" "f" (func $f))
                (func (export "run") (result i32)
                    (block $caught (try_table (catch_all $caught) (call $f)) (return (i32.const 0)))
                    (i32.const 1)))
            (core instance $i (instantiate $m (with "" (instance (export "f" (func $f))))))
            (func (export "run") (result (result)) (canon lift (core func $i "run"))))
        (instance $b (instantiate $b (with "f" (func $a "f"))))
        (instance $run (export "run" (func $b "run")))
        (export "wasi:cli/run@0.2.0" (instance $run)))"#;
    let ran = run(&load(&wat::parse_str(text).expect("parses")), "{}", |_| {});
    assert_eq!(ran.name(), "trap", "{:?}", ran.result);
}

#[test]
fn throwing_costs_fuel_and_the_same_wherever_it_runs() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut fuel = Vec::new();
    for times in [1000, 2000, 3000] {
        let module = command(TAGS, &rounds(times));
        let mut seen = BTreeSet::new();
        for allocation in [Allocation::OnDemand, Allocation::Pooling, Allocation::Adaptive] {
            let code_cache = Some(dir.path().join("code"));
            let engine = Engine::new(EngineConfig { code_cache, allocation, ..EngineConfig::default() });
            let program = engine.load_bytes(&module).unwrap_or_else(|error| panic!("{error}"));
            for _ in 0..80 {
                let ran = run(&program, "{}", |_| {});
                let outcome = ran.outcome();
                seen.insert((outcome.fuel_used, outcome.peak_memory, outcome.host_calls));
            }
            assert_eq!(program.moved_to_pool(), allocation == Allocation::Adaptive);
        }
        assert_eq!(seen.len(), 1, "{seen:?}");
        fuel.extend(seen.into_iter().map(|(fuel, ..)| fuel));
    }
    // Each round costs the same, and more than a call into the host.
    assert_eq!(fuel[1] - fuel[0], fuel[2] - fuel[1]);
    assert!((fuel[1] - fuel[0]) / 1000 > 500, "{fuel:?}");
    let endless = load(&command(TAGS, &rounds(u32::MAX)));
    assert_eq!(run(&endless, "{}", |i| i.limits.fuel = 1_000_000).name(), "out-of-fuel");
}

/// Programs that hold exceptions or make the host work for them.
fn bombs() -> Vec<(&'static str, String, String)> {
    let chain = "(loop $again
        (global.set $kept (block $caught (result exnref)
            (try_table (catch_all_ref $caught) (throw $chain (global.get $kept))) (unreachable)))
        (br $again))";
    let params = "i64 ".repeat(900);
    let large = "(i64.const 1)".repeat(900);
    let thrown = "(loop $again
        (table.set $held (i32.rem_u (local.get $n) (i32.const 100000)) (block $caught (result exnref)
            (try_table (catch_all_ref $caught) (throw $large LARGE)) (unreachable)))
        (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (br $again))"
        .replace("LARGE", &large);
    let deep = "(loop $again
        (block $caught (try_table (catch_all $caught) (call $deep (i32.const 5000))))
        (br $again))";
    vec![
        ("a chain", TAGS.to_owned(), chain.to_owned()),
        ("large ones", format!("{TAGS} (tag $large (param {params})) (table $held 100000 exnref)"), thrown),
        ("a deep stack", TAGS.to_owned(), deep.to_owned()),
        ("garbage", TAGS.to_owned(), rounds(u32::MAX)),
    ]
}

#[test]
fn exceptions_are_memory_of_the_program_and_end_in_time() {
    for (kind, fields, body) in bombs() {
        let program = load(&command(&fields, &body));
        for memory in [1 << 20, 64 << 20] {
            let begun = Instant::now();
            let ran = run(&program, "{}", |i| {
                i.limits.memory = memory;
                i.limits.wall = Duration::from_millis(700);
            });
            let (took, name) = (begun.elapsed(), ran.name());
            println!("{kind}, {memory}: {name} after {took:?}");
            assert!(took < Duration::from_millis(2700), "{kind}: {took:?}");
            let fills = ["a chain", "large ones"].contains(&kind);
            assert!(name == "timeout" || fills && name == "memory-limit", "{kind}: {name}");
        }
    }
    // Dropped exceptions are collected: a little memory is enough for any number.
    let module = command(TAGS, &rounds(300_000));
    let ran = run(&load(&module), "{}", |i| i.limits.memory = 1 << 20);
    assert!(ran.outcome().peak_memory <= 1 << 20, "{}", ran.outcome().peak_memory);
}

/// Supported WebAssembly features, each with a module that uses it.
const ON: [(&str, &str); 13] = [
    ("exceptions", "(tag) (func (throw 0))"),
    ("memories of 64 bits", "(memory i64 1)"),
    ("several memories", "(memory 1) (memory 1)"),
    ("atomics", "(memory 1) (func (drop (i64.atomic.rmw.add (i32.const 8) (i64.const 1))) (atomic.fence))"),
    ("tail calls", "(func $f (return_call $f))"),
    ("SIMD", "(func (result v128) (v128.const i32x4 0 0 0 0))"),
    ("relaxed SIMD", "(func (param v128) (result v128) (i8x16.relaxed_swizzle (local.get 0) (local.get 0)))"),
    ("function references", "(type $t (func)) (func (param (ref null $t)) (call_ref $t (local.get 0)))"),
    ("extended constants", "(global i32 (i32.add (i32.const 1) (i32.const 2)))"),
    ("bulk memory", "(memory 1) (func (memory.fill (i32.const 0) (i32.const 0) (i32.const 1)))"),
    ("several results", "(func (result i32 i32) (i32.const 1) (i32.const 2))"),
    ("sign extension", "(func (result i32) (i32.extend8_s (i32.const 1)))"),
    ("references", "(table 1 externref)"),
];

/// Unsupported features with their names, as fields of a module.
const OFF_IN_MODULES: [(&str, &str); 10] = [
    ("legacy exceptions", "(tag $e) (func try throw $e catch $e end)"),
    ("garbage collection", "(type (struct (field i32)))"),
    ("garbage collection", "(func (result i31ref) (ref.i31 (i32.const 1)))"),
    ("threads", "(memory 1 1 shared)"),
    ("threads", r#"(import "env" "memory" (memory 1 1 shared))"#),
    ("shared-everything threads", "(global (shared i32) (i32.const 0))"),
    ("stack switching", "(type $f (func)) (type $c (cont $f))"),
    (
        "wide arithmetic",
        "(func (param i64 i64) (result i64 i64) (i64.mul_wide_u (local.get 0) (local.get 1)))",
    ),
    ("custom page sizes", "(memory 1 (pagesize 1))"),
    ("memory control", "(memory 1) (func (memory.discard (i32.const 0) (i32.const 65536)))"),
];

/// Unsupported features as fields of a component.
const OFF_IN_COMPONENTS: [(&str, &str); 6] = [
    ("asynchronous components", "(core func (canon task.cancel))"),
    ("asynchronous components", "(type (stream u8))"),
    ("component error contexts", "(type error-context)"),
    ("component lists of fixed length", "(type (list u8 4))"),
    ("component maps", "(type (map string u32))"),
    ("component values", r#"(import "a" (value $a string)) (export "b" (value $a))"#),
];

#[test]
fn what_runs_is_what_the_documentation_says() {
    for (name, fields) in ON {
        let module = format!(r#"(module {fields} (func (export "_start")))"#);
        let module = wat::parse_str(&module).unwrap_or_else(|error| panic!("{name}: {error}"));
        let ran = run(&load(&module), "{}", |_| {});
        assert_eq!(ran.name(), "ok", "{name}");
    }
}

/// Without another thread they are loads and stores, and nobody could end a wait.
#[test]
fn atomic_instructions_run_on_memory_that_is_not_shared() {
    let add = "(drop (i32.atomic.rmw.add (i32.const 64) (i32.const 5)))
        (drop (memory.atomic.notify (i32.const 64) (i32.const 1)))
        (call $exit (i32.atomic.load (i32.const 64)))";
    let ends = |body: &str| run(&load(&command("", body)), "{}", |_| {});
    assert_eq!(ends(add).outcome().exit_code, 5);
    for trap in [
        "(drop (memory.atomic.wait32 (i32.const 64) (i32.const 0) (i64.const -1)))",
        "(drop (i32.atomic.load (i32.const 65)))",
    ] {
        let ran = ends(trap);
        assert_eq!(ran.name(), "trap", "{trap}: {:?}", ran.result);
    }
}

#[test]
fn what_does_not_run_is_named_wherever_it_stands() {
    let refused = |name: &str, text: &str| {
        let program = wat::parse_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        match engine().load_bytes(&program) {
            Err(LoadError::Unsupported { proposals }) => {
                assert!(proposals.split(", ").any(|said| said.starts_with(name)), "{name}: {proposals}");
            }
            Err(other) => panic!("{name}: {text}: {other}"),
            Ok(_) => panic!("{name} runs: {text}"),
        }
    };
    for (name, fields) in OFF_IN_MODULES {
        refused(name, &format!(r#"(module {fields} (func (export "_start")))"#));
        refused(name, &format!("(component (core module {fields}))"));
        refused(name, &format!("(component (component (core module {fields})))"));
    }
    for (name, fields) in OFF_IN_COMPONENTS {
        refused(name, &format!("(component {fields})"));
        refused(name, &format!("(component (component {fields}))"));
    }
    let broken = engine().load_bytes(b"\0asm\x01\0\0\0\x01\x01");
    assert!(matches!(broken, Err(LoadError::Malformed { .. })));
}
