//! The part of a plan that has not been executed yet, in words.

use serde_json::{Map, Value};

use crate::path::StepPath;
use lobster_base::visible::bar_further_lines;
use lobster_language::dry_run;
use lobster_language::plan::Plan;
use lobster_stage::Registry;

/// The steps of a plan after `path`, whose step asks, as a dry run shows them.
pub fn plan_after(registry: &Registry, plan: &Plan, args: &Map<String, Value>, path: &str) -> String {
    match plan {
        Plan::Workflow(workflow) => {
            let known = |name: &str| registry.get(name).is_some();
            dry_run::remaining_plan(workflow, args, &known, &StepPath::from(path).top_id())
                .unwrap_or_default()
        }
        Plan::Pipeline(pipeline) => {
            let done = path.trim_start_matches('|').split(['.', '!']).next();
            let done = done.and_then(|number| number.parse::<usize>().ok()).unwrap_or(0);
            let rest = pipeline.stages.iter().enumerate().skip(done + 1);
            let lines = rest.map(|(index, stage)| format!("  {}. {}", index + 1, stage.raw));
            lines.flat_map(|line| [bar_further_lines(&line), "\n".to_owned()]).collect()
        }
    }
}
