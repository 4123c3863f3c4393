//! The commands that act outside the pipeline, for the registry.

use super::{
    diff_last, email_triage, gog_search, gog_send, llm, llm_embed, mcp_call, openclaw_agent, openclaw_invoke,
    state_get, state_set, workflows_list, workflows_run,
};
use lobster_stage::StageSpec;

/// All commands with effects.
pub(super) static EFFECTS: [&StageSpec; 15] = [
    &openclaw_invoke::OPENCLAW,
    &openclaw_invoke::CLAWD,
    &openclaw_agent::SPEC,
    &gog_search::SPEC,
    &gog_send::SPEC,
    &email_triage::SPEC,
    &llm::INVOKE,
    &llm::TASK,
    &llm_embed::SPEC,
    &mcp_call::SPEC,
    &state_get::SPEC,
    &state_set::SPEC,
    &diff_last::SPEC,
    &workflows_list::SPEC,
    &workflows_run::SPEC,
];
