//! The policy engine: decides if a native command may run, and with which rights.
//!
//! A decision is a pure function of the policy, the proposed command and its environment; only program
//! resolution reads the file system. It routes a command (run, ask, deny) and shows a person what an
//! approval covers. It does not enforce anything: every `allow` has a grant, which the sandbox
//! enforces. Text that the analysis cannot read is never treated as harmless.

#[macro_use]
mod text_list;

mod analysis;
mod approved;
mod binding;
mod builtins;
mod catalogue;
mod command;
mod component;
mod corpus;
mod decide;
mod decision_env;
mod dialect;
mod explain;
mod file;
mod given;
mod grants;
mod hard;
mod inline_code;
mod leaf;
mod lint;
#[cfg(test)]
mod metamorphic;
#[cfg(test)]
mod oracle;
mod output;
mod paths;
mod touches;
mod trust_layers;

mod reference;
mod rules;
mod shell;
#[cfg(test)]
mod shell_fuzz;
mod suggest;
mod wrappers;

pub use analysis::{CommandFact, Facts, TextSpan};
pub use approved::PROPOSED_RULE;
pub use binding::{Binding, BoundFile, BoundProgram, BoundTree, changed_files, runs_scripts};
pub use catalogue::{NamedSettings, catalogued_git, git_settings};
pub use component::COMPONENT_SUBJECT;
pub use component::{
    ComponentDecision, ComponentLimits, ComponentPolicy, ComponentProposal, GrantKind, Holds,
};
pub use corpus::{CaseResult, CorpusError, CorpusReport};
pub use decide::denial_message;
pub use decide::{Command, Decision, Grant, NetGrant, Proposal, Reason, Verdict};
pub use decision_env::{DecisionEnv, EveryProgram, HostPrograms, Resolve};
pub use dialect::{Dialect, Shell};
pub use file::{
    AnsweredBy, Approvals, ArgPattern, ArgShape, AskTerms, Audit, AuditPlaces, AuditSync, Control, Effect,
    EnvPolicy, FsRoots, Hard, HardRule, LeastChanges, Limits, Locked, NetDefault, NetGrantSpec, NetHosts,
    NetPolicy, NetWord, OneOf, OutputLimit, Overflow, PolicyError, PolicyFile, Profile, Programs, Redaction,
    Remember, Rule, RuleGrant, Sandbox, SandboxMode, SandboxUser,
};
pub use lint::{Lint, LintKind};
pub use paths::{
    GIT_RUNS_CODE, MARKS_OUTSIDE, Roots, SYSTEM_READ_ONLY, SYSTEM_ROOTS, builtin_protected, expand_root,
    expand_set_value, name_step_home, protected_places, rule_path, secret_patterns, write_roots,
};
pub use reference::{SecretOrigin, SecretReference, parse_references};
pub use suggest::{Difference, Observed, ObservedCommand, ObservedStart, Stopped, Suggestion};
pub use trust_layers::{Layer, LayerText};

use serde::Serialize;

use lobster_base::digest::Digest;

/// Version of the decision procedure, part of every decision.
pub const ENGINE_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "/catalogue@1");

/// Treatment of commands with and without a policy file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Stance {
    /// Everything runs except hard blocks, as scripts from before policies expect.
    Open,
    /// Only covered commands run.
    Closed,
}

/// A loaded policy: typed, checked against its own examples, and identified by its digest.
#[derive(Clone, Debug)]
pub struct Policy {
    file: PolicyFile,
    stance: Stance,
    digest: Digest,
}

impl Policy {
    /// The policy if no policy file is given: everything runs as before, except hard blocks.
    #[must_use]
    pub fn builtin() -> Self {
        let file = PolicyFile { version: 1, ..PolicyFile::default() };
        Self::new(file, Stance::Open)
    }

    /// Loads one policy file. `origin` names it in errors.
    ///
    /// # Errors
    /// [`PolicyError`] if the text is not a policy, or a rule contradicts its own examples.
    pub fn load(text: &str, origin: &str) -> Result<Self, PolicyError> {
        let policy = Self::new(PolicyFile::parse(text, origin)?, Stance::Closed);
        policy.check_rules(origin)?;
        Ok(policy)
    }

    /// Loads the policy of a recorded run from its document in the store.
    ///
    /// # Errors
    /// The document is not in the format of this version.
    pub fn load_recorded(document: &str) -> Result<Self, lobster_base::json::JsonError> {
        Ok(Self::new(lobster_base::json::parse_as(document)?, Stance::Closed))
    }

    fn new(file: PolicyFile, stance: Stance) -> Self {
        #[derive(Serialize)]
        struct Named<'a> {
            engine: &'static str,
            stance: Stance,
            file: &'a PolicyFile,
        }
        let named = Named { engine: ENGINE_VERSION, stance, file: &file };
        // Every map in the document has string keys, so it has a JSON form.
        let digest = Digest::of_json(&named).unwrap_or_else(|error| {
            Digest::of_bytes(format!("{error}:{named_file:?}", named_file = named.file).as_bytes())
        });
        Self { file, stance, digest }
    }

    /// Identity of this policy: BLAKE3 of its canonical JSON, with the versions of the engine and the
    /// catalogue.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// True if an agent's shell may not answer the questions of runs under this policy.
    #[must_use]
    pub fn wants_person(&self) -> bool {
        self.file.approvals.by == AnsweredBy::Person
    }

    /// The policy document.
    #[must_use]
    pub fn file(&self) -> &PolicyFile {
        &self.file
    }

    /// True if this is the built-in policy, which only denies hard blocks.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.stance == Stance::Open
    }

    /// This policy with another profile, as requested by `--profile` or a corpus line.
    #[must_use]
    pub fn with_profile(&self, profile: Profile) -> Self {
        Self::new(PolicyFile { profile, ..self.file.clone() }, self.stance)
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.file.limits
    }

    pub(crate) fn programs(&self) -> &Programs {
        &self.file.programs
    }

    pub(crate) fn rules(&self) -> &[Rule] {
        &self.file.rules
    }

    /// True if an allow rule may grant its rights under this profile: the unattended profiles refuse
    /// rights that the kernel cannot enforce unless the rule states the reason.
    pub(crate) fn may_grant(&self, rule: &Rule) -> bool {
        self.file.profile == Profile::Default
            || rule.grant.unix.is_empty()
            || rule.grant.unenforceable.is_some()
    }
}
