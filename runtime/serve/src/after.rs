//! `after:`: workflows that start when a run of another one has ended.
//!
//! A follow-up is stored like a delivery, under the id of the run that ended, so that a second pass finds it and does
//! not repeat it. Only runs that the service has started have followers.

use std::path::Path;
use std::sync::Arc;

use lobster_runtime::json;
use lobster_runtime::language::triggers::{After, Ended, find_args};
use lobster_runtime::runtime::tidy_path;
use lobster_runtime::store::service::{NewDelivery, NewStart, Registered, Service};
use lobster_runtime::store::{RunId, RunStatus, RunSummary, StoreError, iso};
use serde_json::{Value, json};

use crate::workflows::{Content, check_args, new_start};

/// The largest output that is passed to a follower, in bytes.
const OUTPUT: u64 = 256 << 10;

/// Longest chain of follow-ups. After this many runs, no further run is started: two workflows may follow each other.
const CHAIN: u64 = 100;

/// The workflows that start after others, cached until the registrations change: every end of a run needs them.
#[derive(Default)]
pub(crate) struct Followers {
    /// The registrations at the time of reading.
    registered: Option<String>,
    all: Arc<[(Registered, Content)]>,
}

impl Followers {
    /// Queues the runs that start because this run has ended.
    ///
    /// # Errors
    /// Fails if the store cannot be read or written. Starts that are already queued stay, and are not queued again.
    pub(crate) fn queue_starts(&mut self, service: &Service, run: RunId) -> Result<(), StoreError> {
        // Read before the workflows, so that a registration made meanwhile is noticed the next time.
        let registered = service.registration_stamp()?;
        if self.registered.as_ref() != Some(&registered) {
            let all = service
                .list_workflows()?
                .into_iter()
                .map(|workflow| (Content::from_registered(&workflow), workflow));
            let following = all.filter(|(content, _)| !content.triggers.after.is_empty());
            self.all = following.map(|(content, workflow)| (workflow, content)).collect();
            self.registered = Some(registered);
        }
        if self.all.is_empty() { Ok(()) } else { start_followers(service, &self.all, run) }
    }
}

fn start_followers(
    service: &Service,
    followers: &[(Registered, Content)],
    run: RunId,
) -> Result<(), StoreError> {
    let Some(start) = service.start_of(run)? else { return Ok(()) };
    let summary = match service.store().run(run) {
        Ok(summary) => summary,
        Err(StoreError::UnknownRun(_)) => return Ok(()),
        Err(error) => return Err(error),
    };
    let Some(ended) = service.workflow_by_number(start.workflow)? else { return Ok(()) };
    let depth = start.detail["depth"].as_u64().unwrap_or(0) + 1;
    let mut brought = None;
    for (follower, content) in followers {
        for after in content.triggers.after.iter().filter(|after| is_meant(after, follower, &ended, &summary))
        {
            let brought = match &brought {
                Some(brought) => brought,
                None => brought.insert(envelope_of(service, &ended, &summary)?),
            };
            let args = Value::Object(find_args(&after.args, brought));
            let refusal = match check_args(content, &args) {
                _ if depth > CHAIN => Some(format!("a chain of {CHAIN} runs preceded it")),
                Ok(()) => None,
                Err(why) => {
                    Some(format!("the result of workflow {} does not fit its arguments: {why}", ended.name))
                }
            };
            if let Some(why) = &refusal {
                tracing::error!(%run, workflow = follower.name, why, "a workflow after a run cannot start");
            }
            let detail = json!({ "after": ended.name, "run": run.to_string(), "depth": depth });
            service.accept_delivery(&NewDelivery {
                hook: format!("after {}", follower.name),
                id: run.to_string(),
                body: json::compact(brought).into_bytes(),
                headers: "{}".to_owned(),
                same_since: None,
                start: NewStart {
                    actor: Some(format!("after:{}", ended.name)),
                    refusal,
                    ..new_start(follower, "after", detail, args)
                },
            })?;
        }
    }
    Ok(())
}

/// True if `after` applies to this end of this workflow.
fn is_meant(after: &After, follower: &Registered, ended: &Registered, summary: &RunSummary) -> bool {
    let here = Path::new(&follower.path).parent().unwrap_or(Path::new("/"));
    let fits = match after.ended {
        Ended::Ok => summary.status == RunStatus::Ok,
        Ended::Failed => summary.status == RunStatus::Failed,
        Ended::Any => summary.status.is_over(),
    };
    fits && tidy_path(&here.join(&after.workflow)) == Path::new(&ended.path)
}

/// The values that the end of a run passes on.
fn envelope_of(service: &Service, ended: &Registered, summary: &RunSummary) -> Result<Value, StoreError> {
    let output = match summary.output {
        None => Value::Null,
        Some(digest) => match service.store().load_blob(&digest, OUTPUT) {
            Ok(bytes) => json::parse(&String::from_utf8_lossy(&bytes)).unwrap_or_default(),
            // Output that is too large or deleted is left out.
            Err(StoreError::BlobTooLarge { .. } | StoreError::MissingBlob(_)) => Value::Null,
            Err(error) => return Err(error),
        },
    };
    Ok(json!({
        "id": summary.id.to_string(),
        "workflow": ended.name,
        "status": summary.status,
        "ok": summary.status == RunStatus::Ok,
        "output": output,
        "error": summary.error,
        "startedAt": iso(summary.started_at),
        "endedAt": summary.ended_at.map(iso),
    }))
}
