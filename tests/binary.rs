//! Finds the binary under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The program with fault points that cargo built for this test executable.
/// `LOBSTER_TEST_BIN` names another one.
pub(crate) fn lobster() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(given) = std::env::var_os("LOBSTER_TEST_BIN") {
            return PathBuf::from(given).canonicalize().expect("LOBSTER_TEST_BIN exists");
        }
        let binary = Path::new(env!("CARGO_BIN_EXE_lobster-with-faults"));
        assert!(has_fault_points(binary), "{} has no fault points", binary.display());
        // Somebody may build again while the tests run; a copy stays what it is.
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let copy = folder.join(format!("lobster-under-test-{}", std::process::id()));
        let _ = std::fs::remove_file(&copy);
        copy_program(binary, &copy);
        remove_old_copies(folder, &copy);
        copy
    })
}

/// Copies a program that is to be started. Another process does it: what one thread of ours has open for writing,
/// a process that another thread starts holds open for a moment, and until then the kernel says "text file busy".
pub(crate) fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status();
    assert!(copied.is_ok_and(|status| status.success()), "{} is copied", from.display());
}

/// The repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the repository")
}

/// Only the program for tests looks at `LOBSTER_FAULT`.
fn has_fault_points(binary: &Path) -> bool {
    let state = tempfile::tempdir().expect("a temporary directory");
    let done = Command::new(binary)
        .args(["run", "--mode", "tool", "exec true"])
        .env("LOBSTER_STATE_DIR", state.path())
        .env("LOBSTER_FAULT", "1:fail")
        .output();
    done.is_ok_and(|done| !done.status.success())
}

/// Copies of earlier test runs whose process is gone.
fn remove_old_copies(folder: &Path, ours: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(pid) = name.strip_prefix("lobster-under-test-") else { continue };
        if path != ours && !Path::new("/proc").join(pid).exists() {
            let _ = std::fs::remove_file(path);
        }
    }
}
