//! The graph of a run's steps with their states.

use lobster_runtime::figures::count_noun;
use lobster_runtime::graph::Graph;
use lobster_runtime::language::plan::Plan;
use lobster_runtime::replay::timeline::Line;
use lobster_runtime::store::RunSummary;
use lobster_serve::http::App;
use maud::{Markup, html};
use serde_json::Map;

use super::run::step_address;
use crate::chart;
use crate::views;

/// Most steps that are drawn; larger graphs are unreadable.
const DRAWN: usize = 80;

/// Largest number of steps for which the graph is open at first.
const GLANCE: usize = 12;

/// The plan of a run as a graph. A pipeline has none.
pub(crate) fn show(app: &App, run: &RunSummary, lines: &[Line]) -> Markup {
    let plan = views::load_plan(&app.store, &run.plan);
    let Some(Plan::Workflow(workflow)) = plan.as_deref() else { return html! {} };
    let count = workflow.steps.len();
    if count < 2 {
        return html! {};
    }
    if count > DRAWN {
        return html! {
            section id="graph" { p class="muted small" { "Its graph has " (count_noun(count as u64, "step")) ", which is too many to draw." } }
        };
    }
    let graph = Graph::from_workflow(workflow, &Map::new());
    let line = |id: &str| lines.iter().find(|line| line.path == id);
    let state = |id: &str| {
        let state = line(id).map(|line| line.state.clone());
        state.or_else(|| run.status.is_over().then(|| "not reached".to_owned()))
    };
    let href = |id: &str| line(id).map(|line| step_address(run.id, &line.path));
    html! {
        section id="graph" data-live="" {
            details open[count <= GLANCE] {
                summary { "Graph" }
                div class="card pad" { (chart::draw_graph(&graph, &href, &state)) }
            }
        }
    }
}
