//! The part of a plan that has not been executed yet, in words.

use serde_json::{Map, Value};

use lobster_language::dry_run;
use lobster_language::plan::Plan;
use lobster_stage::Registry;

/// The steps of a plan after the one that asks, as a dry run shows them.
pub fn plan_after(registry: &Registry, plan: &Plan, args: &Map<String, Value>, path: &str) -> String {
    match plan {
        Plan::Workflow(workflow) => {
            let known = |name: &str| registry.get(name).is_some();
            dry_run::after(workflow, args, &known, &top_step(path)).unwrap_or_default()
        }
        Plan::Pipeline(pipeline) => {
            let done = path.trim_start_matches('|').split(['.', '!']).next();
            let done = done.and_then(|number| number.parse::<usize>().ok()).unwrap_or(0);
            let rest = pipeline.stages.iter().enumerate().skip(done + 1);
            rest.map(|(index, stage)| format!("  {}. {}\n", index + 1, stage.raw)).collect()
        }
    }
}

/// The id of the outermost step around a path.
fn top_step(path: &str) -> String {
    let escaped = path.split(['/', '[', '#', '|', '!']).next().unwrap_or_default();
    let mut id = String::new();
    let mut rest = escaped;
    while let Some((before, after)) = rest.split_once('%') {
        id.push_str(before);
        let code = after.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        id.push(code.map_or('%', char::from));
        rest = after.get(2..).unwrap_or_default();
    }
    id + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::StepPath;

    #[test]
    fn the_outermost_step_of_a_path() {
        for id in ["ask", "a/b[0]#2|!%", "größe", "100%"] {
            let path = StepPath::root().step(id).round(3).step("sub").gate("approval");
            assert_eq!(top_step(path.as_str()), id);
        }
    }
}
