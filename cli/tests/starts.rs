//! Tests of the shipped program, which no variable can make fail (the tests in `tests/` use a build
//! with fault points).

use std::process::Command;

#[test]
fn it_starts_and_tells_its_version() {
    let done =
        Command::new(env!("CARGO_BIN_EXE_lobster")).arg("version").output().expect("the binary starts");
    assert!(done.status.success());
    assert!(!done.stdout.is_empty() && done.stderr.is_empty());
}

#[test]
fn no_variable_makes_its_store_fail() {
    let state = tempfile::tempdir().expect("a temporary directory");
    for plan in ["1:fail", "2:kill"] {
        let done = Command::new(env!("CARGO_BIN_EXE_lobster"))
            .args(["run", "--mode", "tool", "exec true"])
            .env("LOBSTER_STATE_DIR", state.path())
            .env("LOBSTER_FAULT", plan)
            .output()
            .expect("the binary starts");
        assert!(done.status.success(), "{plan}: {done:?}");
    }
}
