//! Where a run stands, which is more than the status that its journal has.

use lobster_runtime::store::service::Start;
use lobster_runtime::store::{GateFilter, GateStatus, RunStatus, RunSummary};
use lobster_serve::http::App;

/// `running`, `waiting`, `interrupted`, `cancelling`, `ok`, `failed` or `cancelled`.
pub(crate) fn standing(app: &App, run: &RunSummary, start: Option<&Start>) -> &'static str {
    if start.is_some_and(|start| start.cancel.is_some() && !start.state.is_over()) {
        return "cancelling";
    }
    let is_alone = || !app.store.is_claimed(run.id);
    match run.status {
        RunStatus::Running if is_alone() => "interrupted",
        RunStatus::Waiting if !has_question(app, run) && is_alone() => "interrupted",
        status => status.as_str(),
    }
}

fn has_question(app: &App, run: &RunSummary) -> bool {
    let open = GateFilter { status: Some(GateStatus::Open), run: Some(run.id), limit: 1 };
    // What cannot be read is not said to be stuck.
    app.store.gates(&open).map_or(true, |gates| !gates.is_empty())
}
