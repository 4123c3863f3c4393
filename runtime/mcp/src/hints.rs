//! The possible effects of a tool, according to its plan.

use lobster_runtime::language::pipeline::{self, Pipeline};
use lobster_runtime::language::plan::{Grants, Step, Work, Workflow};
use lobster_runtime::language::template;
use lobster_runtime::stage::{Registry, StageKind};
use rmcp::model::ToolAnnotations;

/// The strongest effects among a plan's steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    /// It may change something outside lobster.
    pub(super) writes: bool,
    /// Repeating it has no further effect.
    pub(super) idempotent: bool,
    /// It may communicate with other systems.
    pub(super) talks: bool,
}

impl Reach {
    /// Depends only on its arguments and changes nothing.
    pub(super) const PURE: Self = Self { writes: false, idempotent: true, talks: false };
    /// Anything that a process can do.
    pub(super) const ANYTHING: Self = Self { writes: true, idempotent: false, talks: true };

    fn combined_with(self, other: Self) -> Self {
        Self {
            writes: self.writes || other.writes,
            idempotent: self.idempotent && other.idempotent,
            talks: self.talks || other.talks,
        }
    }

    pub(super) fn to_annotations(self) -> ToolAnnotations {
        ToolAnnotations::new()
            .read_only(!self.writes)
            .destructive(self.writes)
            .idempotent(self.idempotent)
            .open_world(self.talks)
    }
}

/// The possible effects of a workflow.
pub(super) fn of_workflow(workflow: &Workflow, registry: &Registry) -> Reach {
    workflow
        .all_steps()
        .into_iter()
        .map(|step| of_step(step, workflow, registry))
        .fold(Reach::PURE, Reach::combined_with)
}

fn of_step(step: &Step, workflow: &Workflow, registry: &Registry) -> Reach {
    let reach = match &step.work {
        Work::Nothing
        | Work::Input(_)
        | Work::Js(_)
        | Work::Parallel { .. }
        | Work::ForEach { .. }
        | Work::Repeat { .. }
        | Work::Switch { .. }
        | Work::Wait(_) => Reach::PURE,
        Work::Component { .. } => of_grants(step.extras.grants.as_ref()),
        Work::Workflow { path, .. } => match workflow.children.get(path) {
            Some(child) => of_workflow(child, registry),
            None => Reach::ANYTHING,
        },
        Work::Pipeline(text) if template::is_constant(text) => {
            pipeline::parse(text).map_or(Reach::ANYTHING, |parsed| of_pipeline(&parsed, registry))
        }
        Work::Pipeline(_) | Work::Shell(_) | Work::Exec(_) | Work::Mcp { .. } => Reach::ANYTHING,
    };
    Reach { idempotent: reach.idempotent || step.extras.idempotent, ..reach }
}

fn of_grants(grants: Option<&Grants>) -> Reach {
    let Some(grants) = grants else { return Reach::PURE };
    let (writes, talks) = (!grants.write.is_empty(), !grants.net.is_empty());
    // A request may change something at its destination.
    Reach { writes: writes || talks, idempotent: !talks, talks }
}

fn of_pipeline(pipeline: &Pipeline, registry: &Registry) -> Reach {
    let of_stage = |name: &str, granted: bool| match registry.get(name).map(|spec| spec.kind) {
        _ if name == "component" && !granted => Reach::PURE,
        _ if matches!(name, "state.get" | "workflows.list") => Reach::PURE,
        Some(StageKind::Pure | StageKind::Renderer | StageKind::Gate) => Reach::PURE,
        Some(StageKind::Effect) | None => Reach::ANYTHING,
    };
    pipeline
        .stages
        .iter()
        .map(|call| {
            let granted = call.args.options.keys().any(|option| option.starts_with("grant-"));
            of_stage(&call.name, granted)
        })
        .fold(Reach::PURE, Reach::combined_with)
}
