//! All commands by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::{BuildHostCommand, HostFunctions, Stage, StageArgs, StageError, StageKind, StageSpec};

/// The commands that pipelines may use. An embedding program can add its own.
#[derive(Clone, Default)]
pub struct Registry {
    by_name: BTreeMap<&'static str, &'static StageSpec>,
    host: Option<(Arc<HostFunctions>, BuildHostCommand)>,
}

/// The name of a command that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Unknown command: {name}{}", nearest.map(|n| format!(" (did you mean {n}?)")).unwrap_or_default())]
pub struct UnknownCommand {
    /// The requested name.
    pub name: String,
    /// The command with the most similar name.
    pub nearest: Option<&'static str>,
}

impl Registry {
    /// A registry with the given commands; a later command replaces an earlier one of the same name.
    pub fn new(specs: impl IntoIterator<Item = &'static StageSpec>) -> Self {
        Self { by_name: specs.into_iter().map(|spec| (spec.name, spec)).collect(), host: None }
    }

    /// The same registry with the functions of the program that started lobster.
    #[must_use]
    pub fn with_host_functions(mut self, functions: HostFunctions, build: BuildHostCommand) -> Self {
        for (name, description) in &functions.commands {
            // A process gets these functions only once, so their names stay in memory as long as those of lobster's
            // own commands.
            let name: &'static str = name.clone().leak();
            self.by_name.entry(name).or_insert_with(|| Box::leak(Box::new(host_spec(name, description))));
        }
        self.host = Some((Arc::new(functions), build));
        self
    }

    /// The functions of the program that started lobster.
    #[must_use]
    pub fn host_functions(&self) -> Option<&Arc<HostFunctions>> {
        self.host.as_ref().map(|(functions, _)| functions)
    }

    /// True if the command of this name belongs to the program that started lobster. Only that program knows its
    /// arguments.
    #[must_use]
    pub fn is_of_host(&self, name: &str) -> bool {
        self.host_functions().is_some_and(|functions| functions.commands.contains_key(name))
    }

    /// The stage of this command, ready for its first item.
    ///
    /// # Errors
    /// If no command has this name, or it rejects the arguments.
    pub fn build(&self, name: &str, args: &StageArgs) -> Result<Box<dyn Stage + Send>, StageError> {
        match &self.host {
            Some((functions, build)) if self.is_of_host(name) => Ok(build(functions, name, args)),
            _ => (self.resolve_command(name)?.build)(args),
        }
    }

    /// The same registry with another command, which replaces one of the same name.
    #[must_use]
    pub fn with_command(mut self, spec: &'static StageSpec) -> Self {
        self.by_name.insert(spec.name, spec);
        self
    }

    /// The command of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'static StageSpec> {
        self.by_name.get(name).copied()
    }

    /// The command of this name.
    ///
    /// # Errors
    /// `Unknown command: …`, with the most similar name, if any.
    pub fn resolve_command(&self, name: &str) -> Result<&'static StageSpec, UnknownCommand> {
        self.get(name).ok_or_else(|| UnknownCommand {
            name: name.to_owned(),
            nearest: nearest_name(name, self.by_name.keys().copied()),
        })
    }

    /// All commands, by name in code-unit order.
    pub fn iter(&self) -> impl Iterator<Item = &'static StageSpec> {
        self.by_name.values().copied()
    }
}

/// A command of which only the name and the description are known.
fn host_spec(name: &'static str, description: &str) -> StageSpec {
    StageSpec {
        name,
        description: description.to_owned().leak(),
        help: "A command of the program that started lobster.\n",
        flags: &[],
        args_schema: || Value::Null,
        examples: || Value::Null,
        side_effects: None,
        kind: StageKind::Effect,
        build: |_| Err(StageError::permanent("only the program that started lobster has this command")),
    }
}

/// Least similarity of a suggested name (Jaro-Winkler, 0 to 1).
const ALIKE: f64 = 0.84;

/// Most letters that may differ, unless one name is a prefix of the other.
fn most_different(name: &str) -> usize {
    (name.len() / 3).max(2)
}

/// The name most similar to `name`, if one is similar enough.
pub(crate) fn nearest_name<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let plain = |text: &str| text.replace(['-', '_', '.'], "").to_lowercase();
    let name = plain(name);
    names
        .map(|known| (plain(known), known))
        .filter(|(plain, _)| {
            plain.starts_with(&name) || strsim::damerau_levenshtein(&name, plain) <= most_different(&name)
        })
        .map(|(plain, known)| (strsim::jaro_winkler(&name, &plain), known))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|(a, first), (b, second)| a.total_cmp(b).then_with(|| second.cmp(first)))
        .map(|(_, known)| known)
}
