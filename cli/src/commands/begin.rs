//! `lobster begin`: the command of the service's workers

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use lobster_runtime::code::Code;
use lobster_runtime::engine::{Interrupted, Progress};
use lobster_runtime::envelope::Envelope;
use lobster_runtime::replay;
use lobster_runtime::runtime::{PolicySources, RunRequest, RunResult, Runtime, Target};
use lobster_runtime::stage::Mode;
use lobster_runtime::store::service::{Service, Standing, Start};
use lobster_runtime::store::{RunId, StoreError, end_with_run};
use lobster_serve::tidings::Teller;
use lobster_serve::workflows::digest_of;

use crate::events;
use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::stdout::stdout;

/// Begins or continues a run that the service has queued.
///
/// Started by `lobster serve`. The run begins only once, even if several processes try.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The id promised for the run.
    run: String,
}

/// Process file in which a higher value, from -1000 to 1000, makes the kernel choose the process first
/// when memory runs out.
const OUT_OF_MEMORY: &str = "/proc/self/oom_score_adj";

pub(crate) fn run(args: &Args) -> CommandResult {
    let id: RunId =
        args.run.parse().map_err(|_| CommandError::usage(format!("{:?} is not a run id", args.run)))?;
    end_with_run();
    // The server and its other runs are more important than one run.
    let _ = std::fs::write(OUT_OF_MEMORY, "500");
    let store = prepare::runtime(Mode::Tool)?.store()?;
    let Some(service) = store.existing_service()? else {
        return Err(CommandError::usage("this store has never served"));
    };
    let start = service
        .start_of(id)?
        .ok_or_else(|| CommandError::usage(format!("the service has no start of run {id}")))?;
    if start.state.is_over() {
        return Err(CommandError::failed(format!("the start of run {id} is {}", start.state)));
    }
    match store.run(id) {
        // It was woken for work that another process has done meanwhile.
        Ok(_) if replay::waits_for_people(&store, id)? => return Ok(Exit::OK),
        Ok(_) => {
            let mut runtime = prepare::runtime_of_run(Mode::Tool, None, |_: &Runtime| Some(id))?;
            runtime.services.progress = server_progress();
            events::start_writing(&runtime, None)?;
            return exit_of(replay::resume_run(&runtime, &id.to_string(), Interrupted::Ask));
        }
        Err(StoreError::UnknownRun(_)) => {}
        Err(error) => return Err(error.into()),
    }
    match begin_run(&service, &start) {
        Err(Unbegun::Never(why)) => {
            service.record_standing(id, &Standing::Refused(why.clone()))?;
            Err(CommandError::failed(why))
        }
        Err(Unbegun::NotNow(error)) => Err(error),
        // A missing secret may be found at the next try; other errors were refused above.
        Ok(result) => exit_of(result),
    }
}

/// Reports running steps to the server. Without it the run continues as well.
fn server_progress() -> Option<Box<dyn Progress>> {
    Some(Box::new(Teller::start(stdout()).ok()?))
}

/// The exit code of a run for the server, which reads the failure from stderr and the rest from the record.
fn exit_of(result: RunResult) -> CommandResult {
    match result.envelope {
        Envelope::Failed(failure) => Err(failure.into()),
        _ => Ok(Exit::OK),
    }
}

/// The reason why a start does not begin.
enum Unbegun {
    /// The start can never succeed: the server does not try again.
    Never(String),
    /// A temporary problem of this machine; the server tries again.
    NotNow(CommandError),
}

impl From<StoreError> for Unbegun {
    fn from(error: StoreError) -> Self {
        Self::NotNow(error.into())
    }
}

impl From<CommandError> for Unbegun {
    fn from(error: CommandError) -> Self {
        Self::NotNow(error)
    }
}

fn begin_run(service: &Service, start: &Start) -> Result<RunResult, Unbegun> {
    let workflow = service.workflow_by_number(start.workflow)?;
    let workflow = workflow.ok_or_else(|| Unbegun::Never("its workflow is not registered".to_owned()))?;
    let path = PathBuf::from(&workflow.path);
    let policies = PolicySources { place: Some(path.parent().unwrap_or(Path::new("/"))), run: None };
    let mut runtime = prepare::runtime_telling(Mode::Tool, &policies, None)?;
    runtime.services.progress = server_progress();
    let request = RunRequest { target: Target::File(path.clone()), args: Some(start.args.clone()) };
    let planned = runtime.plan_run(&request).map_err(|failure| match std::fs::read(&path) {
        // A file that is missing, or not the registered one, needs a change by a person.
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            Unbegun::NotNow(failure.into())
        }
        _ if failure.code.known_code() == Some(Code::Store) => Unbegun::NotNow(failure.into()),
        _ => Unbegun::Never(failure.message),
    })?;
    // The run uses the bytes that were read here, so nothing can change in between.
    if digest_of(&planned.plan) != start.digest {
        return Err(Unbegun::Never(format!(
            "{} is not what was registered; read it, then `lobster schedule register {0}`",
            path.display()
        )));
    }
    runtime.tell_reread(&planned, &request, |_| false);
    Ok(runtime.run_promised(&planned, start.run))
}
