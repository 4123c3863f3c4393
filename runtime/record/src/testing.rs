//! Runs to try things on.

use std::path::PathBuf;

use lobster_engine::runtime::{RunRequest, Runtime, Settings, Target};

/// A state directory with a runtime of its own.
pub(super) struct Place {
    dir: tempfile::TempDir,
    pub(super) runtime: Runtime,
}

/// A workflow's text.
pub(super) struct Text(String);

pub(super) fn workflow(text: &str) -> Text {
    Text(text.to_owned())
}

impl Place {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = Settings::from_process().unwrap();
        settings.env.retain(|(name, _)| !name.to_string_lossy().starts_with("LOBSTER_"));
        settings.env.push(("LOBSTER_STATE_DIR".into(), dir.path().join("state").into()));
        settings.cwd = dir.path().to_owned();
        // The harness of unit tests is not a compiler.
        settings.compiler = None;
        let runtime = Runtime::new(settings).unwrap();
        Self { dir, runtime }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a workflow and gives the run's id.
    pub(super) fn run(&self, text: &Text) -> String {
        self.run_with(text, None)
    }

    pub(super) fn run_with(&self, text: &Text, args: Option<serde_json::Value>) -> String {
        let file = self.path("flow.lobster");
        std::fs::write(&file, &text.0).unwrap();
        let result = self.runtime.run(&RunRequest { target: Target::File(file), args });
        result.run.unwrap_or_else(|| panic!("{:?}", result.envelope)).to_string()
    }
}

/// Lets the test executable be the sandbox's helper, as the real binary is: before
/// `main`, so before the test harness makes threads.
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
