//! The lobster step runtime: the library behind the program `lobster`.
//!
//! A program that embeds it creates a [`Runtime`](runtime::Runtime) from [`Settings`](runtime::Settings), runs a
//! [`RunRequest`](runtime::RunRequest), and reads the resulting [`Envelope`](envelope::Envelope): a result, a question
//! for a person, or a failure with its code. A question is answered with [`resume`](replay::resume), now or days
//! later, in this process or another one. `examples/embedding.rs` shows the whole sequence.
//!
//! ```no_run
//! use lobster_runtime::envelope::Envelope;
//! use lobster_runtime::runtime::{RunRequest, Runtime, Settings, Target};
//!
//! # fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::new(Settings::from_process()?)?;
//! let request = RunRequest { target: Target::Pipeline("exec date".to_owned()), args: None };
//! match runtime.run(&request).envelope {
//!     Envelope::Done(output) => println!("{:?}", output.to_vec()?),
//!     Envelope::Failed(failure) => eprintln!("{} ({})", failure.message, failure.code),
//!     Envelope::NeedsApproval(question) | Envelope::NeedsInput(question) => println!("{question}"),
//!     // Only runs of the service wait without a process.
//!     Envelope::Cancelled | Envelope::Waiting(_) => {}
//! }
//! # Ok(())
//! # }
//! ```
//!
//! `main` begins with [`init`].
//!
//! Text becomes a plan ([`language`]), the [`engine`] runs it, steps do the work, the [`store`] records it, and
//! [`replay`] resumes, replays, forks and explains recorded runs. Each of these is a separate crate, so that the
//! compiler enforces the layers. This crate exports the parts that programs need, each under one name; parts that the
//! command line, the service and their tests do not use are not exported. `docs/ARCHITECTURE.md` describes the
//! boundaries.

#![deny(missing_docs)]

/// Call this first in the `main` of a program that embeds lobster, before any thread is started. lobster starts this
/// program again to set up sandboxes and to compile components: in such a process, this does the work and returns the
/// exit code.
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     if let Some(code) = lobster_runtime::init() {
///         return code;
///     }
///     std::process::ExitCode::SUCCESS
/// }
/// ```
#[must_use]
pub fn init() -> Option<std::process::ExitCode> {
    let word = std::env::args_os().nth(1);
    match word.as_deref().and_then(std::ffi::OsStr::to_str) {
        Some(lobster_sandbox::HELPER_ARGUMENT) => Some(lobster_sandbox::helper_main()),
        Some(lobster_component::COMPILE_ARGUMENT) => Some(lobster_component::compile_main()),
        _ => {
            lobster_base::own_program::note_that_it_answers();
            None
        }
    }
}

/// The history of runs for auditors: who did what, and whether the record is intact.
pub mod audit {
    pub use lobster_observe::audit::{
        AuditEntry, AuditFilter, AuditKind, ChainReport, parse_time, read_entries, verify_chains,
    };
}

/// A call on behalf of another person: the details of a request that the audit records.
pub mod call {
    pub use lobster_engine::call::Call;
}

/// Tokens that cancel work, with a reason.
pub mod cancel {
    pub use lobster_base::cancel::{CancelReason, CancelToken};
}

/// Error codes, which `lobster help CODE` explains.
pub mod code {
    pub use lobster_base::code::{Code, FailureCode};
}

/// WebAssembly components by themselves: loading, inspecting, and running one under limits.
pub mod component {
    pub use lobster_component::{
        BlobError, BlobRead, BlobWrite, Cancel, Capability, Ceilings, CodeLimits, CodeUse, CompileLimits,
        Component, Description, DirGrant, Grants, HostCall, HostCallTrace, HostServices, Input, Invocation,
        Kind, Level, Limits, LoadError, MAX_CODE, Outcome, OutputSink, Patience, RunError, SetBy, StepError,
        WritesError, cancelled_by, open_file, read_file,
    };
    pub use lobster_executor::component_lock::{ComponentLock, ComponentLockError, LockedStep};
}

/// BLAKE3 digests, by which blobs and actions are named.
pub mod digest {
    pub use lobster_base::digest::Digest;
}

/// The connection of a program to a run: questions, progress, notices, output.
pub mod engine {
    pub use lobster_engine::author::Author;
    pub use lobster_engine::known_settings::{ANSWER_TOKEN, FOR_AGENT};
    pub use lobster_engine::origin::{TOKEN_MODE, is_inside_a_run};
    pub use lobster_engine::{
        AT_ONCE, Ahead, Asked, AskedCommand, Caller, Fact, Heard, Interrupted, NOTIFY_TIMEOUT,
        NOTIFY_VARIABLE, Notify, Occasions, Progress, PromptError, Prompter, QuestionKind, QuestionView,
        RunOutput, Said, SetsGoing, UnseenEnd, Weight, gate_token,
    };
}

/// The response of a run: its result, its question or its failure.
pub mod envelope {
    pub use lobster_engine::envelope::{Envelope, Failure, FailureKind, PROTOCOL_VERSION, json_schema};
}

/// Plans as pictures.
pub mod graph {
    pub use lobster_language::graph::{Format, Graph, draw_workflow};
}

/// The records of runs as lines, written during the run.
pub mod events {
    pub use lobster_observe::events::EventLines;
}

/// Hosts in addresses.
pub mod address {
    pub use lobster_base::address::is_loopback;
}

/// Shell wildcards.
pub mod glob {
    pub use lobster_base::glob::glob_match;
}

/// JSON as ECMAScript reads and writes it.
pub mod json {
    pub use lobster_base::json::{
        compact, has_half_pair, js_string, parse, parse_as, parse_message, pretty, write_pretty,
    };
}

/// Workflow files and pipelines, as text and as plans.
pub mod language {
    /// Help pages of error codes.
    pub mod codes {
        pub use lobster_language::codes::{all_pages, find_page};
    }

    /// Mistakes in a file, with their positions.
    pub mod diagnostic {
        pub use lobster_language::diagnostic::{Diagnostic, Severity};
    }

    /// Completions for a position in a file that is being written.
    pub mod complete {
        pub use lobster_language::complete::{Proposal, propose_completions};
    }

    /// Suggestions for mistyped names.
    pub mod mistyped {
        pub use lobster_language::mistyped::nearest_name;
    }

    /// Waits of steps.
    pub mod wait {
        pub use lobster_language::wait::event_name;
    }

    /// Pipelines: the form `a | b | c`.
    pub mod pipeline {
        pub use lobster_language::pipeline::{Pipeline, StageCall, parse};
    }

    /// The checked form of a workflow, as stored in the journal.
    pub mod plan {
        pub use lobster_language::plan::{ArgSpec, ChangesMode, Grants, Plan, Step, Told, Work, Workflow};
    }

    /// Texts with a name and lines.
    pub mod source {
        pub use lobster_language::source::{Source, has_workflow_extension};
    }

    /// Text with references.
    pub mod template {
        pub use lobster_language::template::is_constant;
    }

    /// Triggers of a workflow, and their due times.
    pub mod triggers {
        pub use lobster_language::triggers::{
            After, CatchUp, Due, Ended, Missed, Overlap, Schedule, Tick as DueTick, TickError, Triggers,
            Verify, Watch, Webhook, find_args,
        };
    }

    /// Reading and checking workflow files.
    pub mod workflow {
        pub use lobster_language::workflow::{check, check_args, json_schema, merge_args};
    }
}

/// The tools of MCP servers that an operator has locked.
pub mod mcp {
    pub use lobster_engine::mcp::Lock;
}

/// Texts for times, sizes and numbers.
pub mod figures {
    pub use lobster_observe::figures::{
        count_noun, format_bytes, format_count, format_duration, rough_duration, summarize_enforcement,
        time_since, time_until,
    };
}

/// Limits of model calls: calls, tokens and dollars.
pub mod budget {
    pub use lobster_base::budget::{Amount, MOST_USD, Unit, UsageLimits, nano_usd};
    pub use lobster_engine::budget::SERVICE_KEY;
}

/// Language models and their costs.
pub mod model {

    /// Costs of calls.
    pub mod cost {
        pub use lobster_models::cost::PaidCall;
        pub use lobster_models::ledger::{Ledger, Payment};
    }

    /// Prices of models.
    pub mod pricing {
        pub use lobster_models::pricing::{AS_OF, Origin, Pricing, Rate, VARIABLE, prices_file, read_rates};
    }
}

/// Downloads from other machines, for programs that prepare runs.
pub mod http {
    pub use lobster_models::http::fetch::{Fetch, Fetched, Verb, fetch, is_safe};
    pub use lobster_models::http::{HttpLimits, Url};
}

/// Permissions of native commands: reading, deciding and proposing rules.
pub mod policy {
    pub use lobster_policy::{
        Command, DecisionEnv, Dialect, Effect, EveryProgram, Layer, LayerText, LeastChanges, Observed,
        Policy, PolicyFile, Profile, Proposal, Shell, Verdict,
    };
}

/// Policies in a project, and whether a person trusts them.
pub mod project_policy {
    pub use lobster_engine::project_policy::{FILE_NAME, ProjectPolicy, Trust, TrustedPolicies};
}

/// Sizes and durations as people write them.
pub mod quantity {
    pub use lobster_base::quantity::{Bytes, Span, parse_count};
}

/// Regular files: not pipes, devices or links.
pub mod regular_file {
    pub use lobster_base::regular_file::open_own;
}

/// Operations on recorded runs: resuming, replaying, forking, comparing, explaining, exporting.
pub mod replay {
    pub use lobster_record::{
        Difference, Divergence, FORK_NOTE, ForkPlan, ForkRequest, GateRef, ReplayOptions, ReplayReport,
        Reply, ResumeRequest, RunDiff, Standing, Standings, StepChange, Why, WhyError, answer_and_resume,
        cancel_run, check_approver, compare_runs, execute_fork, explain_step, failed_step, failure_after,
        has_unused_answer, incumbent_gates, incumbent_refusal, last_end, observed_commands, open_gate,
        own_directory, place_in_plan, place_of_step, plan_fork, policy_of, preview_steps, read_standing,
        record_answer, record_retry, replay_run, resume_conflicting, resume_run, rules_of_approvals,
        run_of_gate, runs_with_standing, take_over, waits_for_people,
    };

    /// The output of a run's steps.
    pub mod step_output {
        pub use lobster_record::{
            end_of_output, ends_output, kept_outputs, recorded_streams, retain_unrecorded, stream_as_json,
            streams_as_json,
        };
    }

    /// Places in a run.
    pub mod place {
        pub use lobster_base::place::{is_within, step_id};
    }

    /// A run's journal as lines, one for each place.
    pub mod timeline {
        pub use lobster_record::timeline::{Line, Timeline, TimelineSpan, build_lines};
    }

    /// File changes made by steps, and undoing them.
    pub mod changes {
        pub use lobster_changes::{
            ByteText, Change, ChangeKind, ChangeSet, Entry, Reading, Resolution, is_executable,
        };
        pub use lobster_engine::kinds::changes::system_links;
        pub use lobster_engine::kinds::finished_commits::{record_unseen_ends, tell_owner};
        pub use lobster_record::{
            StepChanges, Undo, WhatToUndo, changes_in, changes_of_run, part_of_question, plan_undo,
            tells_changes,
        };
    }

    /// A run in a single file.
    pub mod bundle {
        pub use lobster_record::bundle::{
            BundleError, BundleSummary, ExportOptions, ImportOptions, KeyError, PublicKey, SigningKey,
            export_bundle, export_bundle_to, import_bundle, verify_bundle,
        };
    }
}

/// The runtime with its plans, runs and settings.
pub mod runtime {
    pub use lobster_engine::recorded_plan::load_recorded;
    pub use lobster_engine::runtime::{
        Draft, LoginState, NamedSecret, Planned, PolicyFileUsed, PolicySources, RunRequest, RunResult,
        Runtime, Settings, Target, WorkflowFileError, load_workflow_to_draw, read_source, tidy_path,
        workflow_file,
    };
}

/// Native processes, started and confined.
pub mod sandbox {
    pub use lobster_sandbox::{
        Confinement, JailSpec, OutputSinks, ProcessLimits, Sandbox, SandboxConfig, SpawnRequest, Stdin,
        fork_helper, release_helper,
    };
}

/// Settings in environment variables.
pub mod setting {
    pub use lobster_base::setting::{BadSetting, Checked, Setting, read_count, read_path};
    pub use lobster_engine::known_settings::{INITIATED_BY, check_settings};
}

/// JSON Schema.
pub mod schema {
    pub use lobster_base::schema::Schema;
}

/// The interface of pipeline commands, for programs that add their own.
pub mod stage {
    pub use lobster_stage::{
        Answer, Flow, Host, McpServer, Mode, Registry, Sink, Stage, StageArgs, StageError, StageKind,
        StageSpec, Stop,
    };
}

/// The pipeline commands that are part of lobster.
pub mod stages {
    pub use lobster_stages::builtin;
}

/// Blobs, journals, gates and user state.
pub mod store {
    pub use lobster_store::{
        Answerer, Blob, BlobReader, BrokenChain, CopyReport, DaySpent, Durability, Event, Gate, GateAnswer,
        GateFilter, GateKind, GateRecord, GateStatus, GcPolicy, GcReport, KeptOutput, NewRun, Problem,
        ReadOn, ReadTo, Record, Redactions, RunFilter, RunId, RunProcess, RunStatus, RunSummary, StepOutcome,
        StepStatus, Store, StoreError, StoreStats, damage_met, end_with_run, is_resumed_by_service, iso,
        shorten_patience, state_dir, system_clock, unreadable_blobs,
    };

    /// Data of a service, in addition to runs.
    pub mod service {
        pub use lobster_store::{
            Accepted, Counted, Credential, CredentialKind, ListedStart, MAX_EVENT_DATA, NewCredential,
            NewDelivery, NewNotice, NewStart, NewTick, Notice, Occasion, Passkey, Refuses, Registered,
            Registration, Retraction, SAME_DELIVERY_MS, ScheduleRow, Service, Settlement, Signed,
            SpecOfSchedule, Standing, Start, StartState, Tick, TickState, Watched,
        };
    }
}

/// Locks that survive a panic.
pub mod sync {
    pub use lobster_base::sync::lock;
}

/// The clock ticks in which the system reports the times of processes.
pub mod ticks {
    pub use lobster_base::ticks::time_of_ticks;
}

/// Shortening of texts.
pub mod text {
    pub use lobster_base::text::{Count, clip, clip_telling_rest, prefix};
}

/// Text from others, made safe to show to people.
pub mod visible {
    pub use lobster_base::visible::{BAR, exact, harmless, one_line};
}
