//! Compiled code on disk, and the pool for programs that run often.

use std::collections::BTreeSet;

use super::fixture::{self, ECHO_ARGS, FORWARD};
use super::run;
use super::runs::{hello, items};
use crate::{Allocation, Engine, EngineConfig, LoadError};

#[test]
fn compiled_code_is_cached_verified_and_private() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let cache = dir.path().join("code");
    let config = EngineConfig { code_cache: Some(cache.clone()), ..EngineConfig::default() };
    let bytes = fixture::step(ECHO_ARGS);
    let load = || Engine::new(config.clone()).load_bytes(&bytes);
    let works = || run(&load().unwrap_or_else(|e| panic!("{e}")), "{}", |_| {}).output == "{}";
    assert!(works());
    let files = || {
        let mut files: Vec<_> =
            walk(&cache).into_iter().filter(|p| p.extension().is_some_and(|e| e == "cwasm")).collect();
        files.sort();
        files
    };
    let [code] = &files()[..] else { panic!("one file of code") };
    let written = std::fs::metadata(code).and_then(|m| m.modified()).expect("written");
    assert!(works());
    assert_eq!(std::fs::metadata(code).and_then(|m| m.modified()).ok(), Some(written));
    // Modified code is compiled again rather than run.
    let mut bad = std::fs::read(code).expect("reads");
    let middle = bad.len() / 2;
    bad[middle] ^= 0xff;
    std::fs::write(code, &bad).expect("writes");
    assert!(works());
    assert!(std::fs::read(code).expect("reads") != bad);
    // Without a usable directory, code is compiled each time.
    std::fs::write(dir.path().join("file"), "").expect("writes");
    let nowhere = EngineConfig { code_cache: Some(dir.path().join("file/code")), ..EngineConfig::default() };
    assert!(Engine::new(nowhere).load_bytes(&bytes).is_ok());
    // A directory that others can write is refused.
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&cache, std::fs::Permissions::from_mode(0o777)).expect("chmod");
    assert!(matches!(load(), Err(LoadError::CacheUnsafe { .. })));
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            found.extend(walk(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

#[test]
fn one_cache_serves_many_processes() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let config = EngineConfig { code_cache: Some(dir.path().join("code")), ..EngineConfig::default() };
    let bytes = fixture::step(FORWARD);
    // An engine per thread shares only the directory, as processes do.
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let forward =
                    Engine::new(config.clone()).load_bytes(&bytes).unwrap_or_else(|e| panic!("{e}"));
                assert_eq!(run(&forward, "{}", |i| i.input = items(&["7"])).output, "7\n");
            });
        }
    });
    let code: Vec<_> =
        walk(dir.path()).into_iter().filter(|path| path.extension().is_some_and(|e| e == "cwasm")).collect();
    assert_eq!(code.len(), 1);
}

#[test]
fn a_pool_serves_runs_too() {
    let config = EngineConfig { allocation: Allocation::Pooling, ..EngineConfig::default() };
    let engine = Engine::new(config);
    for (bytes, output) in [(fixture::step(ECHO_ARGS), "{}"), (hello(), "hello")] {
        let program = engine.load_bytes(&bytes).unwrap_or_else(|error| panic!("{error}"));
        for _ in 0..200 {
            assert_eq!(run(&program, "{}", |_| {}).output, output);
        }
    }
}

#[test]
fn a_program_that_is_run_often_moves_to_a_pool_and_is_compiled_once() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let cached = || EngineConfig { code_cache: Some(dir.path().join("code")), ..EngineConfig::default() };
    let often = |engine: &Engine, bytes: &[u8]| {
        let program = engine.load_bytes(bytes).unwrap_or_else(|error| panic!("{error}"));
        for _ in 0..100 {
            assert_eq!(run(&program, "{}", |_| {}).name(), "ok");
        }
        program.moved_to_pool()
    };
    let engine = Engine::new(cached());
    assert!(often(&engine, &fixture::step(ECHO_ARGS)) && often(&engine, &hello()));
    let code = walk(dir.path()).into_iter().filter(|path| path.extension().is_some_and(|e| e == "cwasm"));
    assert_eq!(code.count(), 2);
    // A program with more tables than a pool allows keeps its first allocation.
    let tables = "(table 0 funcref)".repeat(9);
    assert!(!often(&engine, &fixture::command(&tables, "")));
    // Without a cache, the program would have to be compiled again.
    assert!(!often(&Engine::new(EngineConfig::default()), &hello()));
    let fixed = EngineConfig { allocation: Allocation::OnDemand, ..cached() };
    assert!(!often(&Engine::new(fixed), &hello()));
}

#[test]
fn the_evaluator_fits_the_pool_and_gives_the_same_there() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let config = EngineConfig { code_cache: Some(dir.path().join("code")), ..EngineConfig::default() };
    let js = concat!(env!("CARGO_MANIFEST_DIR"), "/../../guest-steps/dist/js-eval.wasm");
    let js = Engine::new(config).load_file(js).unwrap_or_else(|error| panic!("{error}"));
    let seen: BTreeSet<_> = (0..80)
        .map(|_| {
            let ran = run(&js, r#"{"code":"[1, 2].map(n => n * 2)"}"#, |_| {});
            let outcome = ran.outcome();
            (outcome.fuel_used, outcome.peak_memory, outcome.host_calls, ran.output.clone())
        })
        .collect();
    assert!(js.moved_to_pool());
    assert_eq!(seen.len(), 1, "{seen:?}");
}
