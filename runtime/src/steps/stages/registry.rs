//! All commands by name.

use std::collections::BTreeMap;

use super::StageSpec;

/// The commands that pipelines may use. An embedding program can add its own.
#[derive(Clone, Default)]
pub struct Registry {
    by_name: BTreeMap<&'static str, &'static StageSpec>,
}

impl Registry {
    /// A registry with the given commands; a later one replaces an earlier one of the same name.
    pub fn new(specs: impl IntoIterator<Item = &'static StageSpec>) -> Self {
        Self { by_name: specs.into_iter().map(|spec| (spec.name, spec)).collect() }
    }

    /// The command of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'static StageSpec> {
        self.by_name.get(name).copied()
    }

    /// All commands, by name in code-unit order.
    pub fn iter(&self) -> impl Iterator<Item = &'static StageSpec> {
        self.by_name.values().copied()
    }
}
