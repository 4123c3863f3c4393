//! Drafts of workflows: the findings of `check`, the graph and the dry run of a text that is not saved yet.

use std::io;
use std::path::Path;
use std::sync::Arc;

use lobster_language::diagnostic::Diagnostic;
use lobster_language::plan::Workflow;
use lobster_language::source::Source;
use lobster_language::workflow;
use serde_json::{Map, Value};

use super::{Runtime, components, read_source, workflow_file};

/// The findings about a draft.
#[derive(Debug)]
pub struct Draft {
    pub findings: Vec<Diagnostic>,
    /// Its plan, if the text can be parsed.
    pub workflow: Option<Workflow>,
    /// The text of a dry run with the default arguments, or the reason why there is none.
    pub dry_run: Result<String, String>,
}

/// Reads a file that a draft refers to. Only workflow files are read, since the text may come from a stranger.
fn read_referred(path: &Path) -> io::Result<Arc<Source>> {
    workflow_file(path).map_err(io::Error::other)?;
    read_source(path)
}

impl Runtime {
    /// Checks the text of a workflow without running any of it. Other workflow files and components that it names are
    /// searched relative to its path.
    #[must_use]
    pub fn look_at_draft(&self, source: &Arc<Source>) -> Draft {
        let mut findings = workflow::check(source, &read_referred, self.registry()).diagnostics;
        let loaded = workflow::load_to_draw(source, &read_referred).ok().map(|(workflow, _)| workflow);
        if let Some(mut checked) = loaded.clone() {
            findings.extend(components::check_workflow(&self.services, &mut checked).all_findings());
        }
        let dry_run = match &loaded {
            None => Err("there is no plan while the text cannot be read".to_owned()),
            Some(workflow) => self.dry_run(workflow),
        };
        Draft { findings, workflow: loaded, dry_run }
    }

    fn dry_run(&self, workflow: &Workflow) -> Result<String, String> {
        let args =
            workflow::bind_args(workflow, &Value::Object(Map::new())).map_err(|error| error.to_string())?;
        let known = |name: &str| self.registry().get(name).is_some();
        lobster_language::dry_run::dry_run(workflow, &args, &known).map_err(|error| error.to_string())
    }
}
