//! The commands and adapters of a run that are functions of the program which began it.

use serde_json::{Value, json};

use super::path::StepPath;
use super::run::Run;
use lobster_stage::{HostFunctions, Registry, Stop};

impl Run<'_> {
    /// Records the names of the functions with the run. An execution by another process takes their results from the
    /// record, and can explain why it cannot call them.
    pub(crate) fn keep_host_functions(&self) -> Result<(), Stop> {
        if let Some(functions) = self.services.registry.host_functions()
            && self.is_journaled()
        {
            let HostFunctions { commands, adapters, .. } = &**functions;
            let names = json!({"url": "", "token": "", "commands": commands, "adapters": adapters});
            self.record_value(&names_path(), || Ok(names))?;
        }
        Ok(())
    }

    /// The commands of this run.
    pub(crate) fn registry(&self) -> &Registry {
        self.registry.get_or_init(|| {
            let registry = self.services.registry.clone();
            let kept = || {
                self.recorded_value(&names_path()).and_then(|names: Value| serde_json::from_value(names).ok())
            };
            match registry.host_functions() {
                Some(_) => registry,
                None => match kept() {
                    Some(functions) => lobster_stages::with_host_functions(registry, functions),
                    None => registry,
                },
            }
        })
    }
}

fn names_path() -> StepPath {
    StepPath::root().gate("host functions")
}
