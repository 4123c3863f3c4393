//! A policy's decision about one process.

use std::ffi::OsString;
use std::path::Path;

use serde_json::Value;

use super::bound_files::{HeldCopies, NotHeld};
use super::bound_trees::Trees;
use lobster_base::code::Code;
use lobster_base::locked_directory::LockedDirectory;
use lobster_policy::{BoundFile, Shell};
use lobster_sandbox::{Confinement, HeldPlaceholders, ProcessLimits, Sandbox};
use lobster_stage::{StageError, Stop};

/// The rights that the policy grants a process, in the sandbox's terms.
pub(crate) struct Decided {
    /// The decision as the journal keeps it.
    pub(crate) statement: Value,
    pub(crate) limits: ProcessLimits,
    pub(crate) confinement: Confinement,
    /// The complete environment of the process.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// Limit of stdout in bytes, if the policy sets one.
    pub(crate) stdout_cap: Option<u64>,
    /// The files that an approval covers, as approved.
    pub(crate) approved: Option<HeldCopies>,
    /// The trees that an approval covers, as listed when the answer was checked.
    pub(crate) trees: Option<Trees>,
    /// Placeholders for missing protected paths, which stay until the trees have been compared after the end.
    pub(super) placeholders: HeldPlaceholders,
    /// The shell whose language the policy read; no other shell is started.
    pub(crate) shell: Option<Shell>,
    /// The process's own home, removed with this value.
    pub(super) _home: Option<LockedDirectory>,
}

impl Decided {
    /// Makes sure that the step finds `files` as approved, and that its record names what the approval does not cover.
    pub(super) fn hold_files(
        &mut self,
        files: &[BoundFile],
        trees: Trees,
        (sandbox, state_dir): (&Sandbox, &Path),
    ) -> Result<(), Stop> {
        let trees = self.trees.insert(trees);
        let Confinement::Jail(spec) = &mut self.confinement else { return Ok(()) };
        spec.uncovered.clone_from(&trees.gaps);
        spec.is_approved = true;
        self.placeholders = sandbox.hold_placeholders(spec);
        if files.is_empty() {
            return Ok(());
        }
        let held = HeldCopies::copy_files(files, state_dir, spec)
            .map_err(|error| StageError::permanent_from(error).with_code(Code::ApprovalStale))?;
        held.replace_originals(spec);
        self.approved = Some(held);
        Ok(())
    }

    /// The same for a program that keeps running after its trees were compared.
    pub(super) fn outliving_its_check(mut self) -> Self {
        if let (Some(_), Confinement::Jail(spec)) = (&self.trees, &mut self.confinement) {
            spec.uncovered.push("what changes in its trees while it runs".to_owned());
        }
        self
    }

    /// Lists the trees directly before the start; they must still be as approved.
    pub(super) fn check_trees(&self) -> Result<Option<Trees>, NotHeld> {
        let held = self.confinement.jail_spec().map_or(&[][..], |spec| &spec.held);
        self.trees.as_ref().map(|trees| trees.check_before_start(held, &self.placeholders)).transpose()
    }
}
