//! Where a run stands for who looks at a page: the service may be ending it.

use lobster_runtime::replay::is_interrupted;
use lobster_runtime::store::RunSummary;
use lobster_runtime::store::service::Start;
use lobster_serve::http::App;

/// `running`, `waiting`, `interrupted`, `cancelling`, `ok`, `failed` or `cancelled`.
pub(crate) fn standing(app: &App, run: &RunSummary, start: Option<&Start>) -> &'static str {
    if start.is_some_and(|start| start.cancel.is_some() && !start.state.is_over()) {
        return "cancelling";
    }
    if is_interrupted(&app.store, run) { "interrupted" } else { run.status.as_str() }
}
