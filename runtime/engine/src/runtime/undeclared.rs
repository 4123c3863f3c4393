//! Arguments with names that the workflow does not know.

use super::Planned;
use crate::envelope::Failure;
use lobster_base::json;
use lobster_language::plan::Plan;
use lobster_language::workflow;

impl Planned {
    /// Refuses names of arguments that the workflow neither declares nor uses: a person has probably mistyped the
    /// name, and the run would not do what was requested.
    ///
    /// # Errors
    /// The first such name, with the name that was probably meant.
    pub fn refuse_undeclared<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Result<(), Failure> {
        let Plan::Workflow(workflow) = &self.plan else { return Ok(()) };
        // A recorded plan outlives its file, and the file contains more than the plan.
        let mut text = std::fs::read_to_string(&workflow.file).unwrap_or_default();
        text.push_str(&json::compact(workflow));
        workflow::check_declared(workflow, &text, names)
            .map_err(|error| Failure::parse_error(error.to_string()))
    }
}
