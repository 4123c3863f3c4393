//! The processes that execute runs.
//!
//! A worker is the program `lobster` itself. It starts or resumes one run, and a failure of the worker affects only
//! that run. The dispatcher gives starts to workers, receives their exits and takes care of runs whose process is gone.
//! It can always read its state from the store again.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use lobster_runtime::replay;
use lobster_runtime::store::service::{SAME_DELIVERY_MS, Service, Standing, Start, StartState};
use lobster_runtime::store::{
    Event, GateFilter, GateStatus, RunId, RunProcess, RunStatus, RunSummary, StoreError,
    is_resumed_by_service,
};
use rustix::fs::Access;
use rustix::process::Signal;

use crate::after;
use crate::program::{self, Behalf};
use crate::readiness::{Ability, Readiness, rest_ms};
use crate::run_process::Process;
use crate::tidings::Tidings;
use crate::usage::Processes;

/// Interval at which the queue is checked without a wake-up.
const PAUSE: Duration = Duration::from_millis(200);

/// Shortest delay before due work that cannot be taken yet is checked again, in milliseconds.
const SHORTEST_MS: i64 = 20;

/// Interval at which runs without a worker are checked and the lease is extended.
const ROUND: Duration = Duration::from_secs(2);

/// Duration of a server's lease on a start, in milliseconds. It is long because another server that takes the start
/// over only finds that the run is being executed.
const LEASE_MS: i64 = 15_000;

/// Time for which a run must have no open question and no process before it is resumed: the program that stored the
/// answer may be about to resume it.
const RIPE: Duration = Duration::from_secs(3);

/// Attempts for a run that has begun and whose process dies.
const ATTEMPTS: u32 = 3;

/// Longest delay before a run that could not start or continue is retried, in milliseconds. The cause often concerns
/// the whole store, and there may be many such runs.
const LONGEST_REST_MS: i64 = 600_000;

/// The same for a server that could start no process, in milliseconds: this retry costs nothing.
const LONGEST_PROCESS_REST_MS: i64 = 30_000;

/// Bytes read from the end of a worker's stderr.
const TAIL: u64 = 2000;

/// Most runs checked in one round.
const AT_ONCE: usize = 500;

/// Interval at which old deliveries are deleted.
const FORGETTING: Duration = Duration::from_secs(3600);

/// Time for which bodies of deliveries are kept, in milliseconds.
const BODIES_MS: i64 = 7 * 86_400_000;

/// Settings of workers.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// Path of the program.
    pub program: PathBuf,
    /// Variables of workers in addition to those of this process.
    pub env: Vec<(OsString, OsString)>,
    /// Most workers at a time.
    pub max_runs: usize,
    /// Time limit of one worker. A worker that exceeds it is asked to end, and killed a little later.
    pub max_time: Option<Duration>,
    /// Limit for the resident memory of all processes of one worker, in bytes. A worker that exceeds it is asked to
    /// end.
    pub max_memory: Option<u64>,
    /// The same for processor time.
    pub max_cpu: Option<Duration>,
    /// Time for which a stopping server waits for its workers.
    pub stop_after: Duration,
}

/// A message to the dispatcher.
enum Heard {
    /// There may be new work.
    Wake,
    Ended(RunId, ExitStatus, String),
    /// Take no more starts, and end after the workers.
    Stop,
}

/// Wakes a dispatcher. Clones wake the same one.
#[derive(Clone)]
pub struct Waker(Sender<Heard>);

impl Waker {
    /// Reports that there may be new work.
    pub fn wake(&self) {
        // A dispatcher that has ended has nothing to do.
        let _ = self.0.send(Heard::Wake);
    }

    /// Stops the dispatcher.
    pub fn stop_dispatcher(&self) {
        let _ = self.0.send(Heard::Stop);
    }
}

/// The task of a worker process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Starts or resumes the run.
    Execute,
    /// Cancels the run.
    Cancel,
}

/// A running worker process.
struct Worker {
    order: Order,
    process: Process,
    begun: Instant,
    told_to_end: Option<Instant>,
}

/// Gives starts to workers.
pub struct Dispatcher {
    service: Service,
    /// The name of this server in leases.
    server: String,
    /// The address on which it listens.
    listen: String,
    /// The address at which people reach it.
    url: String,
    settings: WorkerSettings,
    heard: Receiver<Heard>,
    say: Sender<Heard>,
    workers: HashMap<RunId, Worker>,
    /// Processes of this server's runs that it did not start itself: those of an earlier server or of a person.
    adopted: HashMap<RunId, Worker>,
    /// Times since which parked runs have had nothing to wait for.
    ripe: HashMap<RunId, Instant>,
    followers: after::Followers,
    tidings: Tidings,
    readiness: Readiness,
    /// Number of consecutive failures to start a process, and the time before which none is tried.
    rest: Option<(u32, Instant)>,
}

impl Dispatcher {
    /// Creates a dispatcher and its waker.
    #[must_use]
    pub(crate) fn new(
        service: Service,
        server: String,
        (listen, url): (String, String),
        settings: WorkerSettings,
        (tidings, readiness): (Tidings, Readiness),
    ) -> (Self, Waker) {
        let (say, heard) = mpsc::channel();
        let waker = Waker(say.clone());
        let dispatcher = Self {
            service,
            server,
            listen,
            url,
            settings,
            heard,
            say,
            workers: HashMap::new(),
            adopted: HashMap::new(),
            ripe: HashMap::new(),
            followers: after::Followers::default(),
            tidings,
            readiness,
            rest: None,
        };
        (dispatcher, waker)
    }

    /// Works until it is stopped. Returns the runs that are still being executed: their processes continue without it.
    pub fn run_until_stopped(mut self) -> Vec<RunId> {
        let (mut round, mut forgot) = (None::<Instant>, None::<Instant>);
        loop {
            if forgot.is_none_or(|at| at.elapsed() >= FORGETTING) {
                forgot = Some(Instant::now());
                self.or_say("forget old deliveries", |this| {
                    let now = this.service.store().clock_ms();
                    this.service.forget_deliveries(now - BODIES_MS, now - SAME_DELIVERY_MS)
                });
            }
            if round.is_none_or(|at| at.elapsed() >= ROUND) {
                round = Some(Instant::now());
                let round = self.look_after();
                self.readiness.update_ability(Ability::Record, round.as_ref().err().map(ToString::to_string));
                self.or_say("check runs", |_| round);
            }
            self.or_say("resume runs that waited", |this| this.service.wake_due(AT_ONCE).map(|_| ()));
            self.or_say("take starts", Self::take_starts);
            match self.heard.recv_timeout(self.next_pause()) {
                Ok(Heard::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(Heard::Ended(run, status, said)) => self.handle_exit(run, status, &said),
                Ok(Heard::Wake) | Err(RecvTimeoutError::Timeout) => {}
            }
        }
        let begun = Instant::now();
        while !self.workers.is_empty() {
            let Some(left) = self.settings.stop_after.checked_sub(begun.elapsed()) else { break };
            match self.heard.recv_timeout(left) {
                Ok(Heard::Ended(run, status, said)) => self.handle_exit(run, status, &said),
                Ok(Heard::Wake | Heard::Stop) => {}
                Err(_) => break,
            }
        }
        // The next server takes the remaining runs over at once.
        self.or_say("give leases back", |this| this.service.extend_leases(&this.server, 0));
        self.or_say("leave", |this| this.service.remove_server(&this.server));
        self.workers.into_keys().collect()
    }

    /// The time until the next wait is over, limited to a short pause.
    fn next_pause(&self) -> Duration {
        let next = self.service.next_wake().ok().flatten();
        let left = next.map(|next| next.saturating_sub(self.service.store().clock_ms()).max(SHORTEST_MS));
        left.map_or(PAUSE, |ms| Duration::from_millis(ms.unsigned_abs()).min(PAUSE))
    }

    /// Logs an error and continues: a store that cannot be used now may be usable later.
    fn or_say(&mut self, what: &str, work: impl FnOnce(&mut Self) -> Result<(), StoreError>) {
        if let Err(error) = work(self) {
            tracing::error!(%error, "the service cannot {what}");
        }
    }

    fn take_starts(&mut self) -> Result<(), StoreError> {
        let mut room = self.settings.max_runs.saturating_sub(self.workers.len() + self.adopted.len());
        if let Some((_, until)) = self.rest {
            // One start is tried. If it fails, the others would fail as well.
            room = if Instant::now() < until { 0 } else { room.min(1) };
        }
        let lease = self.service.store().clock_ms() + LEASE_MS;
        let mut failed = None;
        let taken = self.service.take_starts(&self.server, lease, room);
        if matches!(taken, Err(StoreError::RolledBack { .. } | StoreError::OtherStore { .. })) {
            // A person must decide. The error is logged from time to time.
            self.rest = Some((0, Instant::now() + ROLLED_BACK_REST));
        }
        let starts = taken?;
        if starts.is_empty() && self.rest.is_some_and(|(_, until)| until.elapsed() > ROUND) {
            // The start that failed was cancelled, or another server has started it.
            self.rest = None;
            self.readiness.update_ability(Ability::Workers, None);
        }
        for start in starts {
            let (why, due) = match failed.clone() {
                Some(failed) => failed,
                None => match self.start_worker(Order::Execute, &start) {
                    Ok(()) => {
                        self.rest = None;
                        self.readiness.update_ability(Ability::Workers, None);
                        continue;
                    }
                    Err(error) => failed.insert(self.rest_from_starting(&error)).clone(),
                },
            };
            self.or_say("queue a start again", |this| this.service.put_back(start.run, due, &why));
        }
        Ok(())
    }

    /// Starts no processes for a while after one could not be started. The failure is temporary, because its cause is
    /// this machine and not the start. Returns the reason and the time at which starts are retried.
    fn rest_from_starting(&mut self, error: &std::io::Error) -> (String, i64) {
        let why = format!("no process can be started now; lobster will retry: {error}");
        tracing::error!(why, "starts are delayed");
        let times = self.rest.map_or(0, |(times, _)| times) + 1;
        let ms = rest_ms(times, LONGEST_PROCESS_REST_MS);
        self.rest = Some((times, Instant::now() + Duration::from_millis(ms.unsigned_abs())));
        self.readiness.update_ability(Ability::Workers, Some(why.clone()));
        (why, self.service.store().clock_ms() + ms)
    }

    /// Starts a process for a run.
    fn start_worker(&mut self, order: Order, start: &Start) -> std::io::Result<()> {
        let run = start.run;
        let id = run.to_string();
        let words: &[&str] = match order {
            Order::Execute => &["begin", &id],
            Order::Cancel => &["resume", &id, "--cancel", "--mode", "tool"],
        };
        let mut said = tempfile::tempfile()?;
        let initiator = start.actor.as_deref();
        // A worker gives no answers.
        let behalf = Behalf {
            actor: initiator.unwrap_or("lobster serve"),
            approver: None,
            initiator,
            agent: start.detail["agent"].as_str(),
            proof: None,
        };
        let mut command = program::build_command(&self.settings.program, &behalf, words);
        command
            .envs(self.settings.env.iter().map(|(name, value)| (name, value)))
            .stdout(if order == Order::Execute { Stdio::piped() } else { Stdio::null() })
            // A file, so that a worker that outlives the server can keep writing.
            .stderr(said.try_clone()?);
        let workflow = self.service.workflow_by_number(start.workflow).ok().flatten();
        let dir = workflow.as_ref().and_then(|workflow| Path::new(&workflow.path).parent());
        // A directory that cannot be entered is reported by the worker: the problem is this start's, not the server's.
        let may_enter = |dir: &&Path| dir.is_dir() && rustix::fs::access(*dir, Access::EXEC_OK).is_ok();
        if let Some(dir) = dir.filter(may_enter) {
            command.current_dir(dir);
        }
        // The thread is started first: without it, the end of the process would go unnoticed.
        let (give, given) = mpsc::channel::<std::process::Child>();
        let say = self.say.clone();
        std::thread::Builder::new().name("worker".to_owned()).spawn(move || {
            let Ok(mut child) = given.recv() else { return };
            let status = child.wait().unwrap_or_default();
            let _ = say.send(Heard::Ended(run, status, read_tail(&mut said)));
        })?;
        let mut child = command.spawn()?;
        let process = Process::Started(child.id());
        if let Some(stdout) = child.stdout.take() {
            let tidings = self.tidings.clone();
            // Without the thread there is no listener, and the worker sends nothing.
            let _ = std::thread::Builder::new().name("tidings".to_owned()).spawn(move || {
                tidings.receive_messages(
                    run,
                    workflow.as_ref().map(|workflow| workflow.name.as_str()),
                    stdout,
                );
            });
        }
        let _ = give.send(child);
        self.workers.insert(run, Worker { order, process, begun: Instant::now(), told_to_end: None });
        Ok(())
    }

    fn handle_exit(&mut self, run: RunId, status: ExitStatus, said: &str) {
        let order = self.workers.remove(&run).map_or(Order::Execute, |worker| worker.order);
        self.update_standing(run, order, Some((status, said)));
    }

    /// Records the state of a run that no worker of this server executes. `order` is the task of its last process.
    fn update_standing(&mut self, run: RunId, order: Order, ended: Option<(ExitStatus, &str)>) {
        let store = self.service.store().clone();
        let standing = match store.run(run) {
            Ok(summary) => match summary.status {
                RunStatus::Failed if order == Order::Execute && self.cancel_failed(run) => return,
                RunStatus::Ok | RunStatus::Failed | RunStatus::Cancelled => {
                    Some(self.ended_standing(&summary, ended))
                }
                RunStatus::Waiting => Some(self.waiting_standing(run, ended)),
                // Another process has resumed it.
                RunStatus::Running if store.is_claimed(run) => None,
                RunStatus::Running => Some(self.retry_standing(run, ended, true)),
            },
            Err(StoreError::UnknownRun(_)) if store.is_claimed(run) => None,
            Err(StoreError::UnknownRun(_)) => Some(self.retry_standing(run, ended, false)),
            Err(error) => {
                tracing::error!(%error, %run, "a run cannot be read");
                None
            }
        };
        match standing {
            Some(standing) => {
                self.adopted.remove(&run);
                self.record_standing(run, &standing);
            }
            None => self.adopt_run(run),
        }
    }

    /// Notes that another process executes a run of this server.
    fn adopt_run(&mut self, run: RunId) {
        let lease = self.service.store().clock_ms() + LEASE_MS;
        match self.service.adopt_run(run, &self.server, lease) {
            Ok(true) => {}
            // Another server takes care of it.
            Ok(false) => return drop(self.adopted.remove(&run)),
            Err(error) => return tracing::error!(%error, %run, "the service cannot adopt a run"),
        }
        let found = self.service.store().process_of_run(run);
        let known = self.adopted.get(&run).map(|worker| &worker.process);
        if !matches!(known, Some(Process::Found(known)) if *known == found) {
            let age = found.as_ref().map_or(Duration::ZERO, RunProcess::age);
            let begun = Instant::now().checked_sub(age).unwrap_or_else(Instant::now);
            let process = Process::Found(found);
            self.adopted.insert(run, Worker { order: Order::Execute, process, begun, told_to_end: None });
        }
    }

    /// Cancels a run if that was requested and its process left it failed: the process was stopped, so the run could
    /// still be resumed.
    fn cancel_failed(&mut self, run: RunId) -> bool {
        let Ok(Some(start)) = self.service.start_of(run) else { return false };
        let is_begun = start.cancel.is_some() && self.start_worker(Order::Cancel, &start).is_ok();
        if is_begun {
            self.adopted.remove(&run);
        }
        is_begun
    }

    /// Returns the state of a run that has ended. A retry may have been requested that no process has started yet.
    fn ended_standing(&self, summary: &RunSummary, ended: Option<(ExitStatus, &str)>) -> Standing {
        let last = self.service.store().events_after(summary.id, summary.records.saturating_sub(1), 1);
        let last = last.ok().and_then(|mut records| records.pop());
        match last.map(|record| record.event) {
            Some(Event::RetryRequested { .. }) => self.retry_standing(summary.id, ended, true),
            Some(Event::RunEnded { detail, .. }) if is_resumed_by_service(&detail) => Standing::Again,
            _ => Standing::Over,
        }
    }

    /// Returns the state of a waiting run: its process reached a wait, or could do nothing.
    fn waiting_standing(&self, run: RunId, ended: Option<(ExitStatus, &str)>) -> Standing {
        match ended {
            Some((status, _)) if !status.success() && !self.service.store().is_claimed(run) => {
                self.retry_later(run, ended)
            }
            _ => Standing::Parked,
        }
    }

    fn retry_later(&self, run: RunId, ended: Option<(ExitStatus, &str)>) -> Standing {
        let rest = rest_ms(self.attempt_count(run), LONGEST_REST_MS);
        Standing::Later { due: self.service.store().clock_ms() + rest, why: describe_exit(ended) }
    }

    /// Returns the state of a run whose process made no progress. A process that exits by itself reports why it could
    /// not work now: it has already refused a start that can never work. A run whose process dies repeatedly after it
    /// has begun is left for a person.
    fn retry_standing(&self, run: RunId, ended: Option<(ExitStatus, &str)>, has_begun: bool) -> Standing {
        let attempts = self.attempt_count(run);
        let could_not = ended.is_some_and(|(status, _)| status.code().is_some_and(|code| code != 0));
        if could_not || (!has_begun && attempts >= ATTEMPTS) {
            return self.retry_later(run, ended);
        }
        if attempts < ATTEMPTS {
            return Standing::Again;
        }
        Standing::Refused(format!(
            "{}; it was tried {attempts} times. `lobster resume {}` continues",
            describe_exit(ended),
            run.short_id()
        ))
    }

    /// Number of processes that have received the run since its last wait.
    fn attempt_count(&self, run: RunId) -> u32 {
        self.service.start_of(run).ok().flatten().map_or(0, |start| start.attempts)
    }

    fn record_standing(&mut self, run: RunId, standing: &Standing) {
        if *standing == Standing::Over
            // Done before the run is marked as over: if a crash interrupts it, the next check repeats it.
            && let Err(error) = self.followers.queue_starts(&self.service, run)
        {
            tracing::error!(%error, %run, "the workflows after a run cannot be started");
            return;
        }
        match standing {
            Standing::Refused(why) => tracing::error!(%run, why, "a run cannot start or continue"),
            Standing::Later { why, .. } => tracing::error!(%run, why, "a run cannot start or continue now"),
            Standing::Parked | Standing::Over | Standing::Again => {}
        }
        self.or_say("record the state of a run", |this| this.service.record_standing(run, standing));
    }

    /// Takes care of everything without a worker of this server: runs of servers that are gone, runs that have nothing
    /// left to wait for, runs to be cancelled, and workers that exceed their time.
    fn look_after(&mut self) -> Result<(), StoreError> {
        let now = self.service.store().clock_ms();
        let place = (self.listen.as_str(), self.url.as_str());
        self.service.record_heartbeat(&self.server, std::process::id(), place, now - 8 * LEASE_MS)?;
        self.service.extend_leases(&self.server, now + LEASE_MS)?;
        // Includes runs of this server: a full disk may have prevented the end of a worker from being recorded.
        let most = AT_ONCE + self.workers.len() + self.adopted.len();
        for start in self.service.taken_starts(&self.server, now, most)? {
            if !self.workers.contains_key(&start.run) {
                self.update_standing(start.run, Order::Execute, None);
            }
        }
        for run in self.adopted.keys().copied().collect::<Vec<_>>() {
            self.update_standing(run, Order::Execute, None);
        }
        self.look_after_parked(now)?;
        self.cancel_runs()?;
        self.end_late();
        self.end_greedy();
        Ok(())
    }

    fn look_after_parked(&mut self, now: i64) -> Result<(), StoreError> {
        self.service.store().expire_gates()?;
        let ripe = self.service.ripe_starts(now, AT_ONCE)?;
        self.ripe.retain(|run, _| ripe.iter().any(|start| start.run == *run));
        for start in ripe {
            let store = self.service.store();
            let over = match store.run(start.run) {
                Ok(summary) => summary.status.is_over().then(|| self.ended_standing(&summary, None)),
                Err(StoreError::UnknownRun(_)) => Some(Standing::Over),
                Err(error) => return Err(error),
            };
            if let Some(standing) = over {
                self.record_standing(start.run, &standing);
            } else if store.is_claimed(start.run) {
                self.ripe.remove(&start.run);
                self.adopt_run(start.run);
            } else if self.ripe.entry(start.run).or_insert_with(Instant::now).elapsed() >= RIPE {
                self.ripe.remove(&start.run);
                let standing = self.expired_standing(start.run)?.unwrap_or(Standing::Again);
                self.record_standing(start.run, &standing);
            }
        }
        Ok(())
    }

    /// Returns the state of a run whose question expired. It is left for a person; otherwise it would ask for ever.
    fn expired_standing(&self, run: RunId) -> Result<Option<Standing>, StoreError> {
        let store = self.service.store();
        let newest = store.list_approvals(&GateFilter { status: None, run: Some(run), limit: 1 })?.pop();
        let is_expired = newest.is_some_and(|gate| gate.status == GateStatus::Expired);
        // An unreadable record is reported by the next process.
        if !is_expired || replay::has_unused_answer(store, run).unwrap_or(true) {
            return Ok(None);
        }
        let asks_again = format!("its question expired; `lobster resume {}` asks again", run.short_id());
        Ok(Some(Standing::Refused(asks_again)))
    }

    fn cancel_runs(&mut self) -> Result<(), StoreError> {
        for start in self.service.starts_to_cancel()? {
            let worker = match self.workers.get_mut(&start.run) {
                Some(worker) => Some(worker),
                None => self.adopted.get_mut(&start.run),
            };
            match worker {
                // It is already cancelling the run.
                Some(Worker { order: Order::Cancel, .. }) => {}
                Some(worker) => tell_to_end(worker, Why::Cancelled),
                // Another server's process has it.
                None if start.state == StartState::Taken => {}
                // The next round stops it.
                None if self.service.store().is_claimed(start.run) => self.adopt_run(start.run),
                None => {
                    if let Err(error) = self.start_worker(Order::Cancel, &start) {
                        tracing::error!(%error, run = %start.run, "a run cannot be cancelled");
                    }
                }
            }
        }
        Ok(())
    }

    fn end_late(&mut self) {
        let Some(max) = self.settings.max_time else { return };
        let all = self.workers.iter_mut().chain(&mut self.adopted);
        for (run, worker) in all.filter(|(_, worker)| worker.begun.elapsed() >= max) {
            tracing::warn!(%run, "a run exceeds its time limit and is stopped");
            tell_to_end(worker, Why::Time);
        }
    }

    /// Stops workers whose processes exceed their resource limits. The server measures them from outside, because a
    /// limit of the system applies to each process alone, and a step may have many.
    fn end_greedy(&mut self) {
        let (memory, cpu) = (self.settings.max_memory, self.settings.max_cpu);
        if (memory.is_none() && cpu.is_none()) || (self.workers.is_empty() && self.adopted.is_empty()) {
            return;
        }
        let processes = Processes::read_all();
        for (run, worker) in self.workers.iter_mut().chain(&mut self.adopted) {
            let Some(pid) = worker.process.pid() else { continue };
            let usage = processes.tree_usage(pid);
            let why = match () {
                () if memory.is_some_and(|most| usage.memory > most) => Why::Memory,
                () if cpu.is_some_and(|most| usage.cpu > most) => Why::Cpu,
                () => continue,
            };
            tracing::warn!(%run, memory = usage.memory, cpu = ?usage.cpu, "a run exceeds its resource limits and is stopped");
            tell_to_end(worker, why);
        }
    }
}

/// Delay before starts are taken again from a store that was restored to an earlier state.
const ROLLED_BACK_REST: Duration = Duration::from_secs(30);

/// Time for a worker to end by itself: longer than the longest `stop_grace` of a step.
const GRACE: Duration = Duration::from_secs(70);

/// Reason why a worker is stopped. Each reason has its own signal, so that the run's record can name it.
#[derive(Clone, Copy)]
enum Why {
    Cancelled,
    Time,
    Memory,
    Cpu,
}

/// Asks a worker to end, or kills a worker that was asked before and has not ended in time.
fn tell_to_end(worker: &mut Worker, why: Why) {
    match worker.told_to_end {
        None => {
            worker.told_to_end = Some(Instant::now());
            match why {
                Why::Cancelled => worker.process.signal_group(Signal::TERM),
                // The processes that it started would not understand these signals. The worker stops them itself.
                Why::Time => worker.process.signal_alone(Signal::ALARM),
                Why::Memory => worker.process.signal_alone(Signal::USR1),
                Why::Cpu => worker.process.signal_alone(Signal::USR2),
            }
        }
        Some(at) if at.elapsed() >= GRACE => worker.process.signal_group(Signal::KILL),
        Some(_) => {}
    }
}

/// Describes the exit of a process that could not carry out its task.
fn describe_exit(ended: Option<(ExitStatus, &str)>) -> String {
    match ended {
        Some((status, "")) => format!("its process ended ({status})"),
        Some((status, said)) => format!("its process ended ({status}): {said}"),
        None => "its process died".to_owned(),
    }
}

fn read_tail(said: &mut File) -> String {
    let mut text = Vec::new();
    let len = said.metadata().map_or(0, |meta| meta.len());
    let read = said
        .seek(SeekFrom::Start(len.saturating_sub(TAIL)))
        .and_then(|_| said.take(TAIL).read_to_end(&mut text));
    if read.is_err() {
        return String::new();
    }
    String::from_utf8_lossy(&text).trim().to_owned()
}
