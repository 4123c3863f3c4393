//! Also makes `cargo test` build the binary that the tests in `tests/` drive.

use std::process::Command;

#[test]
fn it_starts_and_tells_its_version() {
    let done =
        Command::new(env!("CARGO_BIN_EXE_lobster")).arg("version").output().expect("the binary starts");
    assert!(done.status.success());
    assert!(!done.stdout.is_empty() && done.stderr.is_empty());
}
