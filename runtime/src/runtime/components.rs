//! The components that a workflow names, looked at before anything runs.

use std::path::Path;

use lobster_component::{Component, LoadError, RunError};
use serde_json::Value;

use crate::digest::Digest;
use crate::engine::run::lock;
use crate::engine::services::Services;
use crate::envelope::Failure;
use crate::json;
use crate::language::plan::{OnError, Step, Work, Workflow};
use crate::language::template;
use crate::store::{Store, StoreError};

/// The step, and the digest of the bytes, of each component whose path is fixed.
/// One that is not there is found out now, before anything runs, unless the
/// step's failure is provided for.
pub(super) fn find(workflow: &mut Workflow) -> Result<(), Failure> {
    let mut found = std::collections::BTreeMap::new();
    let base = workflow.file.parent().unwrap_or(Path::new("/")).to_owned();
    for step in workflow.all_steps() {
        let Work::Component { component, .. } = &step.work else { continue };
        if !template::is_constant(component)
            || component.starts_with("blake3:")
            || found.contains_key(component)
        {
            continue;
        }
        let path = base.join(component);
        match std::fs::File::open(&path).and_then(Digest::of_reader) {
            Ok(digest) => {
                found.insert(component.clone(), digest);
            }
            Err(_) if step.on_error != OnError::Stop => {}
            Err(error) => {
                return Err(Failure::runtime(format!(
                    "Workflow step {} component {component}: cannot read {}: {error}",
                    step.id,
                    path.display()
                )));
            }
        }
    }
    workflow.components = found;
    workflow.children.values_mut().try_for_each(find)
}

/// Puts the components that a plan pinned into the store.
pub(super) fn keep(store: &Store, workflow: &Workflow) -> Result<(), StoreError> {
    let base = workflow.file.parent().unwrap_or(Path::new("/"));
    for (component, digest) in &workflow.components {
        if store.blob_len(digest)?.is_some() {
            continue;
        }
        let path = base.join(component);
        let bytes = std::fs::read(&path).map_err(|source| StoreError::Io { doing: "read", path, source })?;
        crate::engine::keep_component(store, &bytes)?;
    }
    workflow.children.values().try_for_each(|child| keep(store, child))
}

/// Loads the components that are certain to run and shows them their arguments,
/// as far as these are known now. They stay loaded for the run.
pub(super) fn check(services: &Services, workflow: &Workflow) -> Result<(), Failure> {
    let base = workflow.file.parent().unwrap_or(Path::new("/"));
    for step in workflow.all_steps() {
        let Work::Component { component, args } = &step.work else { continue };
        let certain = step.on_error == OnError::Stop && step.when.is_always();
        let Some(pinned) = workflow.components.get(component).filter(|_| certain) else { continue };
        let fail = |error: &dyn std::fmt::Display| {
            Failure::runtime(format!("Workflow step {} component {component}: {error}", step.id))
        };
        let loaded = load_pinned(services, &base.join(component), *pinned).map_err(|error| fail(&error))?;
        check_args(step, &loaded, &Value::Object(args.clone()))?;
        lock(&services.checked).push(loaded);
    }
    workflow.children.values().try_for_each(|child| check(services, child))
}

/// The component that was found in this file, which is read again only if it has
/// to be compiled.
fn load_pinned(services: &Services, path: &Path, pinned: Digest) -> Result<Component, LoadError> {
    let fail = |source| LoadError::Read { path: path.to_owned(), source };
    let size = std::fs::metadata(path).map_err(fail)?.len();
    services.components().load_known(blake3::Hash::from_bytes(*pinned.as_bytes()), size, || {
        let bytes = std::fs::read(path).map_err(fail)?;
        if Digest::of(&bytes) != pinned {
            return Err(fail(std::io::Error::other("it has changed meanwhile")));
        }
        Ok(bytes.into())
    })
}

fn check_args(step: &Step, component: &Component, args: &Value) -> Result<(), Failure> {
    if !is_constant(args) {
        return Ok(());
    }
    match component.check_args(&json::compact(args)) {
        Ok(()) => Ok(()),
        // What depends on the moment is the run's to say.
        Err(error) if !error.is_deterministic() && !matches!(error, RunError::BadDescription { .. }) => {
            Ok(())
        }
        Err(error) => Err(Failure::runtime(format!("Workflow step {} component: {error}", step.id))),
    }
}

/// Whether no text inside is a template.
fn is_constant(value: &Value) -> bool {
    match value {
        Value::String(text) => template::is_constant(text),
        Value::Array(items) => items.iter().all(is_constant),
        Value::Object(map) => map.values().all(is_constant),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}
