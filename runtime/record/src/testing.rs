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
        // The harness of unit tests is no compiler.
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
