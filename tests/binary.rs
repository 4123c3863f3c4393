//! Finds the binary under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// The `lobster` next to this test executable, built if it is missing, older
/// than its sources, or without fault points. `LOBSTER_TEST_BIN` names another one.
pub(crate) fn lobster() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(given) = std::env::var_os("LOBSTER_TEST_BIN") {
            return PathBuf::from(given).canonicalize().expect("LOBSTER_TEST_BIN exists");
        }
        let executable = std::env::current_exe().expect("a test knows its executable");
        let profile = executable.ancestors().nth(2).expect("the test lies in target/<profile>/deps");
        let binary = profile.join("lobster");
        if !is_fresh(&binary) || !has_fault_points(&binary) {
            build(profile);
        }
        assert!(has_fault_points(&binary), "{} has no fault points", binary.display());
        // Somebody may build again while the tests run; a copy stays what it is.
        let copy = profile.join(format!("lobster-under-test-{}", std::process::id()));
        let _ = std::fs::remove_file(&copy);
        std::fs::copy(&binary, &copy).expect("the binary can be copied");
        remove_old_copies(profile, &copy);
        copy
    })
}

/// The repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the repository")
}

fn build(profile: &Path) {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "-p", "lobster-cli", "--features", "lobster-cli/faults"]).current_dir(repository());
    match profile.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => {}
        Some(profile) => {
            cargo.args(["--profile", profile]);
        }
    }
    let status = cargo.status().expect("cargo starts");
    assert!(status.success(), "the binary does not build");
}

/// Only a build for tests looks at `LOBSTER_FAULT`.
fn has_fault_points(binary: &Path) -> bool {
    let state = tempfile::tempdir().expect("a temporary directory");
    let done = Command::new(binary)
        .args(["run", "--mode", "tool", "exec true"])
        .env("LOBSTER_STATE_DIR", state.path())
        .env("LOBSTER_FAULT", "1:fail")
        .output();
    done.is_ok_and(|done| !done.status.success())
}

fn is_fresh(binary: &Path) -> bool {
    let Ok(built) = std::fs::metadata(binary).and_then(|metadata| metadata.modified()) else { return false };
    ["cli/src", "runtime", "wit", "guest-steps/dist"]
        .iter()
        .all(|sources| newest(&repository().join(sources)).is_none_or(|changed| changed <= built))
}

fn newest(directory: &Path) -> Option<SystemTime> {
    std::fs::read_dir(directory)
        .ok()?
        .flatten()
        .filter_map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => newest(&entry.path()),
            _ => entry.metadata().and_then(|metadata| metadata.modified()).ok(),
        })
        .max()
}

/// Copies of earlier test runs whose process is gone.
fn remove_old_copies(profile: &Path, ours: &Path) {
    for entry in std::fs::read_dir(profile).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(pid) = name.strip_prefix("lobster-under-test-") else { continue };
        if path != ours && !Path::new("/proc").join(pid).exists() {
            let _ = std::fs::remove_file(path);
        }
    }
}
