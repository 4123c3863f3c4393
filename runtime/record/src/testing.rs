//! Runs for tests.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use lobster_engine::runtime::{RunRequest, Runtime, Settings, Target};

/// A state directory with its own runtime.
pub(super) struct TestState {
    dir: tempfile::TempDir,
    pub(super) runtime: Runtime,
}

/// A workflow's text.
pub(super) struct WorkflowText(String);

pub(super) fn workflow_text(text: &str) -> WorkflowText {
    WorkflowText(text.to_owned())
}

impl TestState {
    /// Includes the machine code of the evaluator, which takes seconds to compile.
    pub(super) fn new() -> Self {
        let place = Self::without_code();
        link_code(compiled_code(), &place.code_dir());
        place
    }

    fn without_code() -> Self {
        let dir = tempfile::tempdir().unwrap();
        lobster_base::own_program::note_that_it_answers();
        let mut settings = Settings::from_process().unwrap();
        settings.env.retain(|(name, _)| !name.to_string_lossy().starts_with("LOBSTER_"));
        settings.env.push(("LOBSTER_STATE_DIR".into(), dir.path().join("state").into()));
        settings.cwd = dir.path().to_owned();
        // The test harness is not a compiler.
        settings.compiler = None;
        let runtime = Runtime::new(settings).unwrap();
        Self { dir, runtime }
    }

    fn code_dir(&self) -> PathBuf {
        self.path("state").join("store/code")
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a workflow and returns the run's id.
    pub(super) fn run(&self, text: &WorkflowText) -> String {
        self.run_with(text, None)
    }

    pub(super) fn run_with(&self, text: &WorkflowText, args: Option<serde_json::Value>) -> String {
        let file = self.path("flow.lobster");
        fs::write(&file, &text.0).unwrap();
        let result = self.runtime.run(&RunRequest { target: Target::File(file), args });
        result.run.unwrap_or_else(|| panic!("{:?}", result.envelope)).to_string()
    }
}

/// Cache of the code, beside this executable. It stays for the next process, because the cache itself checks
/// that it is complete and was made by this compiler.
fn compiled_code() -> &'static Path {
    static CODE: OnceLock<PathBuf> = OnceLock::new();
    CODE.get_or_init(|| {
        let code = std::env::current_exe().unwrap().with_file_name("compiled-code");
        let place = TestState::without_code();
        link_code(&code, &place.code_dir());
        place.run(&workflow_text("steps: [{ id: warm, js: '1' }]"));
        link_code(&place.code_dir(), &code);
        code
    })
}

/// Links the same files into directories that belong to the user alone, without replacing existing files.
fn link_code(from: &Path, to: &Path) {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(to).unwrap();
    for entry in fs::read_dir(from).into_iter().flatten().flatten() {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            link_code(&path, &target);
        } else if path.extension().is_some_and(|extension| extension == "cwasm" || extension == "blake3") {
            let _ = fs::hard_link(&path, &target).or_else(|_| fs::copy(&path, &target).map(|_| ()));
        }
    }
}

/// Lets the test executable be the sandbox's helper, like the real binary. It runs before `main`, and so
/// before the test harness starts threads.
mod entry {
    extern "C" fn helper_if_asked() {
        let cmdline = std::fs::read_to_string("/proc/self/cmdline").unwrap_or_default();
        if cmdline.split('\0').nth(1) == Some(lobster_sandbox::HELPER_ARGUMENT) {
            let ended_well = lobster_sandbox::helper_main() == std::process::ExitCode::SUCCESS;
            std::process::exit(i32::from(!ended_well));
        }
    }

    #[used]
    #[expect(unsafe_code, reason = "the section of functions that run before main")]
    // SAFETY: the section holds pointers to functions that may be called
    // before main; this one needs nothing that main would set up.
    #[unsafe(link_section = ".init_array")]
    static ENTRY: extern "C" fn() = helper_if_asked;
}
