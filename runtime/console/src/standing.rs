//! Where runs stand for who looks at a page: the service may be ending one.

use std::collections::HashSet;

use lobster_runtime::replay::interrupted_among;
use lobster_runtime::store::{RunId, RunSummary};
use lobster_serve::http::App;

/// `running`, `waiting`, `interrupted`, `cancelling`, `ok`, `failed` or `cancelled`.
pub(crate) fn standing(app: &App, run: &RunSummary, is_cancelling: bool) -> &'static str {
    Standings::of(app, std::slice::from_ref(run)).one(run, is_cancelling)
}

/// Where several runs stand, asked for at once.
pub(crate) struct Standings(HashSet<RunId>);

impl Standings {
    pub(crate) fn of(app: &App, runs: &[RunSummary]) -> Self {
        Self(interrupted_among(&app.store, runs))
    }

    pub(crate) fn one(&self, run: &RunSummary, is_cancelling: bool) -> &'static str {
        if is_cancelling {
            return "cancelling";
        }
        if self.0.contains(&run.id) { "interrupted" } else { run.status.as_str() }
    }
}
