//! Checks budgets and limits before anything runs: model calls that a limit is certain to refuse, and budgets that
//! limit nothing. Everything that depends on a template or on the pool is checked during the run.

use std::path::Path;
use std::sync::Arc;

use lobster_base::budget::{self, Unit, UsageLimits, nano_usd};
use lobster_base::json;
use lobster_language::diagnostic::Diagnostic;
use lobster_language::pipeline::{self, StageCall};
use lobster_language::plan::{Step, Work, Workflow};
use lobster_language::source::Source;
use lobster_language::workflow::Places;
use lobster_language::{codes, template};
use lobster_models::pricing::Pricing;

use crate::env::Env;

/// The commands that ask models.
const ASKING: [&str; 3] = ["llm.invoke", "llm_task.invoke", "llm.embed"];

/// The adapters that let another program choose the length of an answer, unless it is given.
const ADAPTERS: [&str; 3] = ["openclaw", "pi", "http"];

/// A limit that is valid for a step, with its name in messages.
#[derive(Clone)]
struct Holds {
    name: &'static str,
    limits: UsageLimits,
    allows_unpriced: bool,
    /// True if calls through adapters without a length are allowed and charged afterwards.
    is_lenient: bool,
}

struct Check<'c> {
    env: &'c Env,
    pricing: Pricing,
    places: Places,
    found: Vec<Diagnostic>,
}

/// Warnings about the limits of a workflow.
pub(super) fn check_workflow(env: &Env, source: Arc<Source>, workflow: &Workflow) -> Vec<Diagnostic> {
    let (pricing, _) = Pricing::configured(|name| env.get(name));
    let mut check = Check { env, pricing, places: Places::new(source), found: Vec::new() };
    let mut holds = Vec::new();
    if let Some(limit) = workflow.cost_limit.as_ref().filter(|limit| limit.stop) {
        holds.push(Holds {
            name: "cost_limit",
            limits: UsageLimits { nano_usd: Some(nano_usd(limit.max_usd)), ..UsageLimits::default() },
            allows_unpriced: limit.allows_unpriced,
            is_lenient: true,
        });
    }
    if let Some(budget) = &workflow.budget {
        let allows_unpriced = budget.allows_unpriced;
        let of = |name, limits| Holds { name, limits, allows_unpriced, is_lenient: false };
        holds.extend([of("budget", budget.limits), of("budget.day", budget.day)]);
    }
    for step in &workflow.steps {
        check.check_step(step, &holds);
    }
    check.found
}

/// True if a step, or one inside it, can ask a model.
fn may_ask(step: &Step) -> bool {
    matches!(step.work, Work::Pipeline(_) | Work::Workflow { .. })
        || step.work.inner_steps().into_iter().any(may_ask)
}

impl Check<'_> {
    fn check_step(&mut self, step: &Step, around: &[Holds]) {
        let mut holds = around.to_vec();
        if let Some(budget) = &step.extras.budget {
            if !may_ask(step) {
                let message = format!(
                    "Workflow step {} budget limits nothing: only pipelines ask models, and the step has no pipeline",
                    step.id
                );
                self.found.push(self.places.step_warning(codes::INPUT_OUTSIDE, step, &["budget"], message));
            }
            holds.push(Holds {
                name: "budget of the step",
                limits: budget.limits,
                allows_unpriced: budget.allows_unpriced,
                is_lenient: false,
            });
        }
        if let Work::Pipeline(text) = &step.work
            && let Ok(pipeline) = pipeline::parse(text)
        {
            for stage in pipeline.stages.iter().filter(|stage| ASKING.contains(&stage.name.as_str())) {
                for held in &holds {
                    if let Some(why) = self.why_refused(stage, held) {
                        let message = format!(
                            "Workflow step {} calls a model that {} refuses: {why}",
                            step.id, held.name
                        );
                        let at = ["pipeline"];
                        self.found.push(self.places.step_warning(codes::REFUSING_LIMIT, step, &at, message));
                        break;
                    }
                }
            }
        }
        for inner in step.work.inner_steps() {
            self.check_step(inner, &holds);
        }
    }

    /// The reason why a limit certainly refuses a call; `None` if that is not certain.
    fn why_refused(&self, stage: &StageCall, held: &Holds) -> Option<String> {
        let limits = &held.limits;
        if limits.calls == Some(0) {
            return Some("it allows no call".to_owned());
        }
        if limits.tokens.is_none() && limits.nano_usd.is_none() {
            return None;
        }
        let setting = |flag: &str, variable: &str| {
            let given = stage.args.text_or_true(flag).filter(|text| !text.trim().is_empty());
            given.or_else(|| self.env.non_blank(variable)).map(|text| text.trim().to_owned())
        };
        let provider = setting("provider", "LOBSTER_LLM_PROVIDER")?.to_lowercase();
        if !template::is_constant(&provider) || provider.starts_with("pool") {
            return None;
        }
        let most = stage.args.text_or_true("max-output-tokens");
        if most.as_deref().is_some_and(|most| !template::is_constant(most)) {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates at both ends")]
        let output =
            stage.args.number_value("max-output-tokens").filter(|n| *n >= 0.0).map(|n| n.ceil() as u64);
        let is_adapter = ADAPTERS.contains(&provider.as_str());
        let embeds = stage.name == "llm.embed";
        if is_adapter && output.is_none() {
            let why = "the adapter chooses the length of the answer; give --max-output-tokens";
            return (!held.is_lenient).then(|| why.to_owned());
        }
        // The default length that is sent.
        let output =
            if embeds { 0 } else { output.unwrap_or(lobster_models::channel::DEFAULT_OUTPUT_TOKENS) };
        if let Some(limit) = limits.tokens.filter(|limit| output > *limit) {
            let limit = Unit::Tokens.format_amount(limit);
            return Some(format!(
                "one answer may have {output} tokens, and it allows {limit}; lower --max-output-tokens"
            ));
        }
        let usd = limits.nano_usd?;
        let model = setting("model", "LOBSTER_LLM_MODEL").filter(|model| template::is_constant(model))?;
        let Some(rate) = self.pricing.rate(&model) else {
            let name = json::compact(&model);
            let why = format!(
                "model {name} has no price; give one with `lobster models prices --update FILE`, or write `unpriced: allow`"
            );
            return (!held.allows_unpriced).then_some(why);
        };
        let least = nano_usd(rate.cost(0, output));
        (least > usd).then(|| {
            let (least, limit) = (budget::usd_text(least), budget::usd_text(usd));
            format!("one answer of {model} with {output} tokens costs {least}, and it allows {limit}; lower --max-output-tokens")
        })
    }
}

/// The findings of `lobster check` about the limits of a file. A file with other errors is not checked.
pub(super) fn check_file(env: &Env, path: &Path) -> Vec<Diagnostic> {
    match (super::load_workflow(path), super::read_source(path)) {
        (Ok((workflow, _)), Ok(source)) => check_workflow(env, source, &workflow),
        _ => Vec::new(),
    }
}
