//! Puts the policy between a step and the process it wants.

use serde_json::{Value, json};

use super::native::{Job, ShellText};
use crate::cancel::CancelToken;
use crate::engine::gate::{GateQuestion, Identity};
use crate::engine::path::StepPath;
use crate::engine::run::Run;
use crate::policy::{Proposal, Verdict};
use crate::sandbox::{Confinement, ProcessLimits};
use crate::steps::stages::{Question, StageError, Stop};

/// What the policy allows a process, in the sandbox's terms.
pub(crate) struct Decided {
    /// The decision as the journal keeps it.
    pub(crate) statement: Value,
    pub(crate) limits: ProcessLimits,
    pub(crate) confinement: Confinement,
}

/// Decides, and asks a person where the policy wants one.
pub(crate) fn decide(run: &Run<'_>, path: &StepPath, job: &Job<'_>, cancel: &CancelToken) -> Result<Decided, Stop> {
    let policy = &run.services.policy;
    let proposal = match &job.program {
        ShellText::Shell(text) => Proposal::Shell { text: text.clone() },
        ShellText::Argv(argv) => Proposal::Argv(argv.clone()),
    };
    let decision = policy.decide(&proposal, &job.cwd, &|name| job.env.get(name));
    let statement = serde_json::to_value(&decision).unwrap_or(Value::Null);
    match decision.verdict {
        Verdict::Allow => {}
        Verdict::Deny => {
            let mut message = decision.message.clone();
            if let Some(hint) = &decision.hint {
                message.push_str("; ");
                message.push_str(hint);
            }
            run.fail_at(path);
            run.lazily(crate::store::Event::Decision { path: path.to_string(), decision: statement })?;
            return Err(Stop::Failed(StageError::permanent(message).with_code("policy_denied")));
        }
        Verdict::Ask => {
            let question = GateQuestion {
                question: Question::Approval {
                    prompt: format!("Policy asks before this runs: {}", decision.message),
                    items: vec![json!({
                        "command": proposal,
                        "cwd": job.cwd,
                        "decision": statement,
                    })],
                    preview: Some(proposal.to_string()),
                    emit: false,
                },
                identity: Identity::default(),
                asker: job.asker.clone(),
            };
            run.gate(&path.gate("policy"), question, cancel)?;
        }
    }
    Ok(Decided { statement, limits: policy.process_limits(), confinement: policy.confinement(&decision, &job.cwd) })
}
