//! `lobster replay`: executes a recorded run again. Pure steps are computed again and compared, effects are
//! answered from the record, and nothing is written to the run's journal.
//!
//! After a difference the replay continues with the recorded result, so that each step is judged
//! independently of earlier differences.

mod compare;
mod performed;
mod redacted;

use lobster_base::code::Code;
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use serde::Serialize;
use serde_json::Value;

use self::redacted::NEEDS_REDACTED;
use super::bundle::Unpacked;
use super::precompute::Precomputed;
use super::preimage::input_digest;
use super::recorded_programs::Programs;
use super::recording::Recording;
use lobster_base::digest::Digest;
use lobster_base::place::is_within;
use lobster_base::sync::lock;
use lobster_engine::audience::Screen;
use lobster_engine::binding::{Binding, KnownAnswer};
use lobster_engine::envelope::Failure;
use lobster_engine::kinds::component::NO_CALLS;
use lobster_engine::overseer::{
    Act, Declared, Known, Overseer, RecordedEnd, RecordedOutside, RecordedProgram,
};
use lobster_engine::path::StepPath;
use lobster_engine::perform::output_of;
use lobster_engine::run::{Interrupted, Run};
use lobster_engine::runtime::Runtime;
use lobster_engine::services::{Caller, Services};
use lobster_engine::settle::keep_output;
use lobster_executor::NativeProfile;
use lobster_executor::has_changed_files;
use lobster_policy::denial_message;
use lobster_sandbox::{Sandbox, SandboxConfig};
use lobster_stage::{Mode, StageError, Stop, store_failure};
use lobster_store::{Blob, Record, RunId, RunStatus, StepOutcome, StepStatus, Store, StoreError};

/// Settings of a replay.
#[derive(Clone, Debug, Default)]
pub struct ReplayOptions {
    /// Effects that are executed again in order to compare their results.
    pub live: Vec<String>,
}

/// Result of a replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplayReport {
    pub run: RunId,
    pub name: String,
    /// Pure steps that were computed again.
    pub computed: u64,
    /// Effects of components that were executed again on their recorded calls.
    pub checked: u64,
    /// Effects that were answered from the record.
    pub answered: u64,
    /// Effects that were executed again.
    pub performed: u64,
    /// Steps whose results were edited by a person. Later steps were compared on that basis.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edited: Vec<String>,
    /// Steps that could not be executed again here, with the reasons.
    pub unverified: Vec<Unverified>,
    /// Place where the record ends, if the run did not end well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_ends_at: Option<String>,
    /// Differences, in the order of the journal.
    pub divergences: Vec<Divergence>,
}

impl ReplayReport {
    /// True if everything that was compared is as recorded.
    #[must_use]
    pub fn is_faithful(&self) -> bool {
        self.divergences.is_empty()
    }
}

/// A component that was not executed again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unverified {
    pub step: String,
    pub why: String,
}

/// One difference from the record.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Divergence {
    /// The step's path; empty for the run itself.
    pub step: String,
    /// Number of the record that differs.
    pub seq: u64,
    /// `action`, `output`, `stdout`, `fuel`, `status`, `error`, `exit`, `value`, `answer`, `missing` …
    pub what: String,
    /// Place of the difference inside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub recorded: Value,
    pub replayed: Value,
    /// Digest of the step's input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Digest>,
}

/// Replays a recorded run; `run` is an id or the beginning or end of one.
///
/// # Errors
/// If the run is not known, if its record cannot be read, or if the replay was cancelled. A difference is not
/// an error.
pub fn replay_run(runtime: &Runtime, run: &str, options: &ReplayOptions) -> Result<ReplayReport, Failure> {
    let store = runtime.store()?;
    let id = store.find_run(run).map_err(|error| Failure::parse_error(error.to_string()))?;
    let journal = store.verified_events(id)?;
    let redacted = store.redacted_parts(id)?;
    let carried = Carried {
        redacted: redacted.steps.into_iter().collect(),
        left_out: redacted.blobs.into_iter().collect(),
        ..Carried::default()
    };
    replay_journal(runtime, &store, &journal, options, carried)
}

/// Additional data of a bundle, besides journal and blobs.
#[derive(Default)]
pub(super) struct Carried {
    /// Steps whose payload is left out.
    pub(super) redacted: BTreeSet<String>,
    /// Blobs that are left out.
    pub(super) left_out: BTreeSet<Digest>,
    /// The directories that steps read.
    pub(super) directories: Unpacked,
}

/// Replays a journal whose blobs are in `store`.
pub(super) fn replay_journal(
    runtime: &Runtime,
    store: &Store,
    journal: &[Record],
    options: &ReplayOptions,
    carried: Carried,
) -> Result<ReplayReport, Failure> {
    let recording = Recording::from_journal(journal)?;
    let live =
        options.live.iter().map(|step| recording.resolve_step(step)).collect::<Result<BTreeSet<_>, _>>()?;
    if let Some(pure) = live.iter().find(|path| recording.steps.get(*path).is_some_and(|step| !step.effect)) {
        return Err(Failure::parse_error(format!(
            "step '{pure}' is pure: every replay computes it again, --live is for effects"
        )));
    }
    live.iter().try_for_each(|step| performed::refuse_unasked(&recording, step))?;
    let plan = recording.read_plan(store)?;
    let args = recording.read_arguments(store)?;
    let (mut services, mut performer) = (replay_services(runtime, store, &recording), Value::Null);
    if !live.is_empty() {
        // They are performed where the run's own effects are.
        services.executor_program.clone_from(&runtime.services.executor_program);
        performer = performed::describe_performer(runtime);
    }
    let policy = recording.policy.unwrap_or_else(|| services.policy_digest());
    let replay = Arc::new(Replay {
        store: store.clone(),
        recording,
        live,
        redacted: carried.redacted,
        left_out: carried.left_out,
        directories: carried.directories,
        precomputed: Precomputed::default(),
        programs: Programs::default(),
        performer,
        seen: Mutex::default(),
    });
    let recording = &replay.recording;
    let mut run = Run::from_journal(
        &services,
        store.clone(),
        None,
        recording.run,
        recording.task,
        journal,
        Interrupted::Ask,
    );
    run.policy = policy;
    let run = run.with_overseer(Arc::<Replay>::clone(&replay));
    let result = replay.precomputed.run_beside(&run, recording, || output_of(&run, &plan, &args));
    replay.compare_end(&run, result.and_then(|output| keep_output(&run, &output).map_err(store_failure)));
    // A cancelled replay proves nothing about the record.
    if let Some(reason) = runtime.services.cancel.reason() {
        let why = format!("interrupted before everything was compared ({})", reason.message());
        return Err(Failure::new(Code::Cancelled, format!("the replay was {why}; start it again")));
    }
    if let Some(why) = lock(&replay.seen).refused.take() {
        return Err(Failure::new(Code::PolicyDenied, why));
    }
    let report = replay.build_report();
    match lock(&replay.seen).hindered.take() {
        Some(why) if report.is_faithful() => {
            Err(Failure::new(Code::NotReplayable, format!("the run cannot be replayed here: {why}")))
        }
        _ => Ok(report),
    }
}

/// The services with the recorded mode, directory and settings.
pub(super) fn replay_services(runtime: &Runtime, store: &Store, recording: &Recording) -> Services {
    let own = &runtime.services;
    let unseen: Screen = Box::new(|_| Ok(()));
    Services {
        // Only `--live` executes native effects.
        executor_program: None,
        mode: if recording.mode == "human" { Mode::Human } else { Mode::Tool },
        env: recording
            .settings
            .as_ref()
            .map_or_else(|| own.env.clone(), |settings| own.env.with_settings(settings)),
        cwd: PathBuf::from(&recording.cwd),
        state_dir: own.state_dir.clone(),
        compiler: own.compiler.clone(),
        registry: lobster_stages::builtin(),
        cancel: own.cancel.clone(),
        caller: Caller::default(),
        prompter: None,
        notes: Arc::new(|_| {}),
        progress: None,
        screen: Some(unseen).filter(|_| recording.mode == "human"),
        sandbox: Arc::new(Sandbox::new(SandboxConfig::default())),
        notify: None,
        background: Default::default(),
        policy: own.policy.clone(),
        policy_files: own.policy_files.clone(),
        place: None,
        project_is_trusted: None,
        secrets: Arc::clone(&own.secrets),
        store: OnceLock::from(store.clone()),
        components: OnceLock::new(),
        checked: Mutex::default(),
        files: Arc::clone(&own.files),
    }
}

struct Replay {
    store: Store,
    recording: Recording,
    live: BTreeSet<String>,
    redacted: BTreeSet<String>,
    left_out: BTreeSet<Digest>,
    directories: Unpacked,
    precomputed: Precomputed,
    programs: Programs,
    /// The person or program that performs effects again, for the audit.
    performer: Value,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    visited: HashMap<String, Visit>,
    unverified: Vec<Unverified>,
    divergences: Vec<Divergence>,
    ends_at: Option<String>,
    /// A failure of this machine, which proves nothing about the run.
    hindered: Option<String>,
    /// The reason why an effect is not performed again.
    refused: Option<String>,
}

#[derive(Clone, Copy, PartialEq)]
enum Visit {
    Answered,
    Computed,
    Checked,
    Performed,
    Skipped,
    /// A person wrote the result, so there is nothing to compare.
    Edited,
}

impl Overseer for Replay {
    fn is_journaled(&self) -> bool {
        false
    }

    fn can_perform(&self, path: &StepPath) -> bool {
        self.live.contains(path.as_str())
    }

    fn check_asks(&self, path: &StepPath) -> Result<(), Stop> {
        self.refuse_question(path)
    }

    fn record_performed(&self, act: &Act<'_>, decision: &Value) -> Result<(), Stop> {
        self.record_start(act, decision).map_err(store_failure)
    }

    fn replace_effect(&self, act: &Act<'_>, known: Known) -> Result<Known, Stop> {
        let path = act.path.as_str();
        let outcome = self.known_outcome(path, known)?;
        let elsewhere = self.compare_action(act, &outcome, true);
        if self.live.contains(path) {
            return Ok(None);
        }
        if outcome.is_edited() {
            self.record_visit(path, Visit::Edited);
            return Ok(Some(outcome));
        }
        // The action comes from the plan, and its recorded calls from the record.
        if act.on_record.is_some() {
            let unverified =
                elsewhere.or_else(|| is_unrepeatable(&outcome)).or_else(|| depends_on_secret(act));
            let Some(why) = unverified else { return Ok(None) };
            self.not_computed(path, why);
        }
        self.record_visit(path, Visit::Answered);
        if self.is_cut(&outcome.value) {
            return Err(store_failure(StoreError::LeftOut(path.to_owned())));
        }
        Ok(Some(outcome))
    }

    fn replace_pure(&self, act: &Act<'_>, known: Known) -> Result<Known, Stop> {
        let path = act.path.as_str();
        let outcome = self.known_outcome(path, known)?;
        let unverified = self
            .action_left_out(path)
            .or_else(|| self.compare_action(act, &outcome, false))
            .or_else(|| is_unrepeatable(&outcome));
        if outcome.is_edited() {
            self.record_visit(path, Visit::Edited);
            return Ok(Some(outcome));
        }
        let Some(why) = unverified else { return Ok(None) };
        self.record_visit(path, Visit::Skipped);
        self.not_computed(path, why);
        Ok(Some(outcome))
    }

    fn computed_outcome(&self, action: &Digest) -> Option<StepOutcome> {
        self.precomputed.take_outcome(action)
    }

    fn report_outcome(&self, path: &StepPath, outcome: Arc<StepOutcome>) -> Arc<StepOutcome> {
        let path = path.as_str();
        let Some(step) = self.recording.steps.get(path) else { return outcome };
        let Some(recorded) = &step.outcome else { return outcome };
        if !self.live.contains(path)
            && recorded.code != outcome.code
            && let Some(why) = depends_on_time(&outcome)
        {
            self.record_visit(path, Visit::Skipped);
            self.not_computed(path, format!("{why} here"));
            return Arc::clone(recorded);
        }
        let visit = match step.effect {
            false => Visit::Computed,
            true if self.live.contains(path) => Visit::Performed,
            true => Visit::Checked,
        };
        self.record_visit(path, visit);
        if visit == Visit::Performed {
            self.record_end(path, &outcome);
        }
        match outcome.code.as_deref().and_then(Code::from_name) {
            Some(Code::Diverged) if visit == Visit::Checked => {
                self.record_divergence(path, step.seq, "host call", Value::Null, to_json(&outcome.error));
            }
            _ => self.compare_outcome(path, step, recorded, &outcome),
        }
        Arc::clone(recorded)
    }

    fn report_summary(&self, path: &StepPath, outcome: &StepOutcome) {
        let path = path.as_str();
        if self.is_hindered(
            outcome.code.as_deref().and_then(Code::from_name),
            outcome.error.as_deref().unwrap_or_default(),
        ) {
            return;
        }
        let Some((seq, recorded)) = self.recording.summaries.get(path) else { return };
        if recorded.status != outcome.status {
            self.record_divergence(path, *seq, "status", to_json(recorded.status), to_json(outcome.status));
        } else {
            self.compare_values(path, *seq, "error", &recorded.error, &outcome.error);
        }
    }

    fn replace_answer(
        &self,
        path: &StepPath,
        binding: &Binding,
        known: Option<KnownAnswer>,
    ) -> Result<Option<KnownAnswer>, Stop> {
        let Some(known) = known else {
            lock(&self.seen).ends_at.get_or_insert_with(|| path.to_string());
            return Ok(None);
        };
        if !binding.accepts_digest(known.binding) {
            self.record_divergence(
                path.as_str(),
                self.recording.last_seq,
                "answer",
                to_json(known.binding),
                to_json(binding.digest),
            );
        }
        Ok(Some(KnownAnswer { binding: binding.digest, ..known }))
    }

    fn recorded_outside(&self, path: &StepPath) -> Option<RecordedOutside> {
        let path = path.as_str();
        if self.live.contains(path) || self.redacted.contains(path) {
            return None;
        }
        let step = self.recording.steps.get(path).filter(|step| step.effect)?;
        let calls = &step.outcome.as_ref()?.detail["host_calls"];
        match calls.as_str() {
            Some(NO_CALLS) => return Some(RecordedOutside::Nothing),
            Some(digest) => return digest.parse().ok().map(RecordedOutside::Calls),
            None => {}
        }
        // It may write files, but receives nothing from outside.
        let action = self.recording.read_preimage(&self.store, path)?;
        let grants = &action["grants"];
        let closed = grants["net"].as_array().is_some_and(Vec::is_empty)
            && grants["clock"] == false
            && grants["random"] == false;
        (action["kind"] == "component" && closed).then_some(RecordedOutside::Nothing)
    }

    fn granted_directory(&self, path: &StepPath, index: usize) -> Option<PathBuf> {
        let action = self.recording.read_preimage(&self.store, path.as_str())?;
        let tree = action["grants"]["read"][index]["tree"].as_str()?.parse().ok()?;
        self.directories.get(&tree).map(PathBuf::from)
    }

    fn declared_files(&self, path: &StepPath) -> Option<Declared> {
        let action = self.recording.read_preimage(&self.store, path.as_str());
        let mut action = action.unwrap_or_default();
        Some(Declared { inputs: action["inputs"].take(), programs: action["programs"].take() })
    }

    fn native_profile(&self, path: &StepPath) -> Option<NativeProfile> {
        self.recording.read_preimage(&self.store, path.as_str()).as_ref().map(NativeProfile::of_action)
    }

    fn recorded_end(&self, path: &StepPath, error: &StageError) -> Option<Result<RecordedEnd, Stop>> {
        self.depends_on_redacted(path.as_str(), error).then(|| self.end_on_record(path.as_str()))
    }

    fn recorded_secrets(&self, path: &StepPath) -> Option<Value> {
        self.recording.read_preimage(&self.store, path.as_str()).map(|mut action| action["secrets"].take())
    }

    fn recorded_program(&self, path: &StepPath) -> Option<RecordedProgram> {
        self.programs.program_at(&self.store, &self.recording, path.as_str())
    }
}

impl Replay {
    /// True if this machine caused a failure, and not the run: a program does not load although it did when
    /// the run was recorded, or a record cannot be read or written here.
    fn is_hindered(&self, code: Option<Code>, message: &str) -> bool {
        let hosts = matches!(code, Some(Code::Store | Code::Component));
        let recorded = self.recording.summaries.values().map(|(_, outcome)| outcome.error.as_deref());
        let known = recorded.chain([self.recording.error.as_deref()]).any(|error| error == Some(message));
        let hindered = hosts && !known;
        if hindered {
            lock(&self.seen).hindered.get_or_insert_with(|| message.to_owned());
        }
        hindered
    }

    fn not_computed(&self, path: &str, why: String) {
        let mut seen = lock(&self.seen);
        if !seen.unverified.iter().any(|other| other.step == path) {
            seen.unverified.push(Unverified { step: path.to_owned(), why });
        }
    }

    fn record_divergence(&self, step: &str, seq: u64, what: &str, recorded: Value, replayed: Value) {
        self.record_difference(step, seq, what, (None, recorded, replayed));
    }

    fn record_difference(&self, step: &str, seq: u64, what: &str, found: (Option<String>, Value, Value)) {
        let (path, recorded, replayed) = found;
        let preimage = self.recording.read_preimage(&self.store, step);
        let input = preimage.and_then(|preimage| {
            input_digest(&preimage["input"]).or_else(|| input_digest(&preimage["stdin"]))
        });
        let divergence =
            Divergence { step: step.to_owned(), seq, what: what.to_owned(), path, recorded, replayed, input };
        let mut seen = lock(&self.seen);
        // A native effect is compared both before and after the policy's decision.
        if !seen.divergences.contains(&divergence) {
            seen.divergences.push(divergence);
        }
    }

    fn record_visit(&self, path: &str, visit: Visit) {
        lock(&self.seen).visited.insert(path.to_owned(), visit);
    }

    /// The outcome of a step that the policy did not deny.
    fn known_outcome(&self, path: &str, known: Known) -> Result<Arc<StepOutcome>, Stop> {
        if let Some(decision) = self.recording.denied.get(path) {
            self.record_visit(path, Visit::Answered);
            return Err(Stop::Failed(denied_error(decision)));
        }
        known.ok_or_else(|| self.record_ends(path))
    }

    /// The journal does not contain the next step.
    fn record_ends(&self, path: &str) -> Stop {
        if self.recording.status == RunStatus::Ok {
            self.record_divergence(
                path,
                self.recording.last_seq,
                "missing",
                Value::Null,
                Value::from("would be executed"),
            );
        }
        lock(&self.seen).ends_at.get_or_insert_with(|| path.to_owned());
        Stop::Interrupted
    }

    /// Compares the end of the whole run.
    fn compare_end(&self, run: &Run<'_>, result: Result<Option<Blob>, Stop>) {
        let recording = &self.recording;
        let seq = recording.last_seq;
        if let Err(Stop::Failed(error)) = &result
            && self.mentions_redacted(error)
        {
            // The stages of a pipeline run together, but the steps of a file have all been compared.
            match run.failed_at().filter(|path| path.as_str().starts_with('|')) {
                Some(stage) => self
                    .not_computed(stage.as_str(), format!("{NEEDS_REDACTED}; nothing after it was compared")),
                None => self.nothing_left_out(),
            }
            return;
        }
        if let Err(Stop::Failed(error)) = &result
            && self.is_hindered(error.known_code(), &error.message)
        {
            return;
        }
        match (recording.status, result) {
            (RunStatus::Ok, Ok(output)) => {
                let is_left_out = |blob: Blob| self.left_out.contains(&blob.digest);
                if !recording.output.is_some_and(is_left_out) {
                    self.compare_blobs("", seq, "output", recording.output, output);
                }
                self.nothing_left_out();
            }
            (RunStatus::Failed, Err(Stop::Failed(error))) => {
                self.compare_values("", seq, "error", &recording.error, &Some(error.message));
            }
            // It waited, was cancelled, interrupted or killed, so the record ends in the middle.
            (
                RunStatus::Failed | RunStatus::Waiting | RunStatus::Cancelled | RunStatus::Running,
                Err(Stop::Paused | Stop::Interrupted | Stop::Cancelled),
            ) => {}
            (RunStatus::Cancelled, _) if recording.called_off => {}
            (RunStatus::Ok, Err(Stop::Interrupted)) if !lock(&self.seen).divergences.is_empty() => {}
            (recorded, replayed) => {
                let step = run.failed_at().map(|path| path.to_string()).unwrap_or_default();
                let replayed = match replayed {
                    Ok(_) => Value::from("ok"),
                    Err(Stop::Failed(error)) => Value::from(format!("failed: {}", error.message)),
                    Err(Stop::Paused) => Value::from("waiting"),
                    Err(Stop::Cancelled) => Value::from("cancelled"),
                    Err(Stop::Interrupted) => Value::from("running"),
                };
                self.record_divergence(&step, seq, "status", to_json(recorded), replayed);
            }
        }
    }

    /// A run that ended well is replayed completely, so every recorded step must have been reached.
    fn nothing_left_out(&self) {
        for (path, step) in self.recording.in_order() {
            let lost_a_race = self.recording.races.iter().any(|race| is_within(path, race));
            let visited = lock(&self.seen).visited.contains_key(path);
            if !visited && !lost_a_race && step.outcome.is_some() {
                self.record_divergence(path, step.seq, "missing", Value::from("was executed"), Value::Null);
            }
        }
    }

    fn build_report(&self) -> ReplayReport {
        let mut seen = lock(&self.seen);
        let count = |visit| seen.visited.values().filter(|seen| **seen == visit).count() as u64;
        let (computed, checked) = (count(Visit::Computed), count(Visit::Checked));
        let (answered, performed) = (count(Visit::Answered), count(Visit::Performed));
        let edited = seen.visited.iter().filter(|(_, visit)| **visit == Visit::Edited);
        let mut edited: Vec<_> = edited.map(|(path, _)| path.clone()).collect();
        edited.sort();
        let mut divergences = std::mem::take(&mut seen.divergences);
        divergences.sort_by_key(|divergence| divergence.seq);
        let over = self.recording.status == RunStatus::Ok;
        ReplayReport {
            run: self.recording.run,
            name: self.recording.name.clone(),
            computed,
            checked,
            answered,
            performed,
            edited,
            unverified: std::mem::take(&mut seen.unverified),
            record_ends_at: seen.ends_at.take().filter(|_| !over),
            divergences,
        }
    }
}

/// Reason why a recorded outcome may differ next time even though its step is pure.
fn depends_on_time(outcome: &StepOutcome) -> Option<String> {
    let wall_clock = matches!(
        outcome.code.as_deref().and_then(Code::from_name),
        Some(
            Code::Timeout | Code::HostCallTimeout | Code::Cancelled | Code::StackExhausted | Code::HostMemory
        )
    );
    match outcome.status {
        StepStatus::TimedOut => Some("it was stopped by a time limit".to_owned()),
        StepStatus::Cancelled => Some("it was cancelled".to_owned()),
        StepStatus::Failed if wall_clock => Some("this machine's limits stopped it".to_owned()),
        StepStatus::Ok
        | StepStatus::Failed
        | StepStatus::Skipped
        | StepStatus::Refused
        | StepStatus::Waiting
        | StepStatus::Interrupted => None,
    }
}

/// Reason why executing a step again may not give the same outcome.
fn is_unrepeatable(outcome: &StepOutcome) -> Option<String> {
    let changed =
        || has_changed_files(outcome).then(|| "files that it reads changed while it ran".to_owned());
    depends_on_time(outcome).or_else(changed)
}

/// Reason why a component cannot be executed again without a value that is never recorded.
fn depends_on_secret(act: &Act<'_>) -> Option<String> {
    act.preimage.to_json()["secrets"].is_object().then(|| "it was granted a secret".to_owned())
}

/// The error of a step that the policy refused.
fn denied_error(decision: &Value) -> StageError {
    let message = denial_message(
        decision["subject"].as_str().unwrap_or("the command"),
        decision["message"].as_str().unwrap_or("it was denied"),
        decision["reason_code"].as_str().unwrap_or("unknown"),
        decision["hint"].as_str(),
    );
    StageError::permanent(message).with_code(Code::PolicyDenied)
}

fn to_json(value: impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or(Value::Null)
}
