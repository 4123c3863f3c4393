//! Makes orders of components that are effects, for any executor.

use std::io;

use super::{Job, JobInput, checked_argv, grants, values_not_kept};
use crate::kept_values::name_kept_values;
use crate::kinds::native::keep_input;
use crate::path::StepPath;
use crate::run::Run;
use crate::value::{Items, Text};
use lobster_base::cancel::CancelToken;
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_base::sync::lock;
use lobster_executor::failed_outcome;
use lobster_executor::{
    ComponentGrants, ComponentInput, ComponentTask, Order, OrderText, Outcome, StdinSource, Task,
    failure_outcome, open_input,
};
use lobster_stage::{Payload, StageError, Stop, store_failure};
use lobster_store::{Blob, INLINE_MAX, StepOutcome, StoreError};

/// Has the executor run a component, and keeps the values that it stores for the rest of the run.
pub(super) fn carry_out(
    run: &Run<'_>,
    path: &StepPath,
    job: Job,
    action: Digest,
    cancel: &CancelToken,
) -> StepOutcome {
    let argv = match checked_argv(&job) {
        Ok(argv) => argv,
        Err(error) => return failure_outcome(&error, cancel),
    };
    let task = match build_task(run, job, argv) {
        Ok(task) => task,
        Err(Stop::Failed(error)) => return failed_outcome(&error),
        Err(_) => return failed_outcome(&StageError::new("the component's order cannot be made")),
    };
    let order = Order { id: run.order_id(path), action, task: Task::Component(Box::new(task)) };
    let Outcome { mut step, values, .. } = run.carry_out(order, cancel);
    let Some(values) = values else { return step };
    name_kept_values(&mut step, values);
    match run.keep_values_of(&step) {
        Ok(()) => step,
        Err(error) => values_not_kept(&error),
    }
}

fn build_task(run: &Run<'_>, mut job: Job, argv: Vec<String>) -> Result<ComponentTask, Stop> {
    let input = match &job.input {
        JobInput::Empty => ComponentInput::Nothing,
        JobInput::Bytes(payload) => ComponentInput::Bytes(keep_input(run, Some(payload))?.0),
        JobInput::Items(items) => ComponentInput::Items(keep_items(run, items)?),
    };
    let unread = |error: io::Error| StageError::new(format!("cannot read the step's input: {error}"));
    let component = &job.program.component;
    let mut reader = match input.source() {
        Some(source) => open_input(source, &run.store).map_err(unread)?,
        None => Box::new(io::empty()),
    };
    let mut blobs = Vec::new();
    for named in component.named_blobs(&job.args.text, &mut reader).map_err(unread)? {
        let digest = Digest::from(named);
        // A missing blob is reported to the component when it opens it.
        blobs.extend(run.store.blob_len(&digest).map_err(store_failure)?.map(|len| Blob { digest, len }));
    }
    blobs.sort_by_key(|blob| blob.digest);
    let program = Digest::from(component.digest());
    let len = run.store.blob_len(&program).map_err(store_failure)?;
    let program =
        Blob { digest: program, len: len.ok_or_else(|| store_failure(StoreError::MissingBlob(program)))? };
    let (enforcement, withheld) = (grants::enforcement_statement(&job), grants::told_withheld(&job));
    let described_limits = !job.profile().is_js();
    job.grants.env.retain(|(name, _)| !job.secrets.contains_key(name));
    let opened = job.opened.unwrap_or_else(|| job.grants.open_dirs());
    Ok(ComponentTask {
        program,
        args: order_args(run, job.args.text)?,
        argv,
        input,
        grants: ComponentGrants::from_decided(job.grants, opened.read_ids(), opened.write_ids()),
        secrets: job.secrets,
        credentials: job.credentials,
        limits: job.limits,
        spent_us: 0,
        described_limits,
        blobs,
        values: order_values(run).map_err(store_failure)?,
        enforcement,
        withheld,
    })
}

/// The arguments. Long ones become a blob, unless they hold a secret that no store may keep.
fn order_args(run: &Run<'_>, text: String) -> Result<OrderText, Stop> {
    if text.len() <= INLINE_MAX {
        return Ok(OrderText::Text(text));
    }
    let payload = Payload::Bytes(text.as_bytes().into());
    Ok(match keep_input(run, Some(&payload))?.0 {
        StdinSource::Blob(blob) => OrderText::Blob(blob),
        StdinSource::Empty | StdinSource::Secret(_) => OrderText::Text(text),
    })
}

fn keep_items(run: &Run<'_>, items: &Items) -> Result<StdinSource, Stop> {
    let payload = match items {
        Items::Memory(items) => {
            let lines: String = items.iter().map(|item| json::compact(item) + "\n").collect();
            Payload::Bytes(lines.into_bytes().into())
        }
        Items::Stored { blob, .. } if run.store.blob_len(&blob.digest).map_err(store_failure)?.is_some() => {
            return Ok(StdinSource::Blob(*blob));
        }
        Items::Stored { store, blob, .. } => {
            Text::from_blob(&store.0, *blob).to_payload().map_err(store_failure)?
        }
    };
    Ok(keep_input(run, Some(&payload))?.0)
}

/// The values that the run keeps for its components, as a JSON object; `None` if there are none.
fn order_values(run: &Run<'_>) -> Result<Option<Blob>, StoreError> {
    let values = match run.scratch() {
        Some(scratch) => lock(&scratch).iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        None => run.store.run_values(run.id)?,
    };
    if values.is_empty() {
        return Ok(None);
    }
    run.store.put_blob(json::compact(&values).as_bytes()).map(Some)
}
