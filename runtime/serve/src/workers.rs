//! The processes that execute runs.
//!
//! A worker is the program `lobster` itself: it begins or resumes one run, and whatever happens to it
//! happens to that run alone. The dispatcher gives starts to workers, hears of their ends and looks
//! after runs whose process is gone. What it knows it can always read from the store again.

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

/// How often the queue is looked at when nobody says that there is something new.
const PAUSE: Duration = Duration::from_millis(200);

/// What is due, and cannot be taken up yet, is looked at again after this, in milliseconds.
const SHORTEST_MS: i64 = 20;

/// How often runs without a worker are looked after, and the lease is prolonged.
const ROUND: Duration = Duration::from_secs(2);

/// For how long a start is a server's own after it was heard of last. Long, because another server
/// that takes it over only finds that the run is being executed.
const LEASE_MS: i64 = 15_000;

/// How long a run must have been without a question and without a process before it is taken up:
/// whoever answered may be about to do that.
const RIPE: Duration = Duration::from_secs(3);

/// How often a run that has begun is given to a process that dies.
const ATTEMPTS: u32 = 3;

/// The longest that a run is left alone that could not begin or go on, in milliseconds. What keeps it from that is
/// often the whole store's, and there may be many such runs.
const LONGEST_REST_MS: i64 = 600_000;

/// The same for a server that could start no process, in milliseconds: to try that again costs nothing.
const LONGEST_PROCESS_REST_MS: i64 = 30_000;

/// What is read of the end of a worker's stderr.
const TAIL: u64 = 2000;

/// Runs looked after in one round.
const AT_ONCE: usize = 500;

/// How often old deliveries are forgotten.
const FORGETTING: Duration = Duration::from_secs(3600);

/// Bodies of deliveries are kept for so long, in milliseconds.
const BODIES_MS: i64 = 7 * 86_400_000;

/// How workers are started.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// The program, and the words before those of an order.
    pub program: PathBuf,
    /// Variables that workers have besides those of this process.
    pub env: Vec<(OsString, OsString)>,
    /// Workers at once.
    pub max_runs: usize,
    /// How long one may take; then it is told to end, and a little later it is ended.
    pub max_time: Option<Duration>,
    /// Resident memory that the processes of one may use together, in bytes; then it is told to end.
    pub max_memory: Option<u64>,
    /// The same for time on processors.
    pub max_cpu: Option<Duration>,
    /// How long a stopping server waits for its workers.
    pub stop_after: Duration,
}

/// What the dispatcher hears.
enum Heard {
    /// There may be something to do.
    Wake,
    Ended(RunId, ExitStatus, String),
    /// Take nothing more, and end when the workers have.
    Stop,
}

/// Wakes a dispatcher. Clones wake the same one.
#[derive(Clone)]
pub struct Waker(Sender<Heard>);

impl Waker {
    /// There may be something to do.
    pub fn wake(&self) {
        // A dispatcher that has ended has nothing to do.
        let _ = self.0.send(Heard::Wake);
    }

    /// Has the dispatcher end.
    pub fn stop(&self) {
        let _ = self.0.send(Heard::Stop);
    }
}

/// What a process does with its run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Begins it, or goes on with it.
    Execute,
    /// Ends it for good.
    Cancel,
}

/// A process at work.
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
    /// Where it listens.
    listen: String,
    /// How people reach it.
    url: String,
    settings: WorkerSettings,
    heard: Receiver<Heard>,
    say: Sender<Heard>,
    workers: HashMap<RunId, Worker>,
    /// Processes of runs of this server that it has not started itself: of an earlier server, of a person.
    adopted: HashMap<RunId, Worker>,
    /// Since when parked runs have had nothing to wait for.
    ripe: HashMap<RunId, Instant>,
    followers: after::Followers,
    tidings: Tidings,
    readiness: Readiness,
    /// How often in a row no process could be started, and until when none is tried.
    rest: Option<(u32, Instant)>,
}

impl Dispatcher {
    /// A dispatcher, and what wakes it.
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

    /// Works until it is told to stop. Gives the runs that are still being executed then: their
    /// processes go on by themselves.
    pub fn work(mut self) -> Vec<RunId> {
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
                self.readiness.note(Ability::Record, round.as_ref().err().map(ToString::to_string));
                self.or_say("look after runs", |_| round);
            }
            self.or_say("take up runs that waited", |this| this.service.wake_due(AT_ONCE).map(|_| ()));
            self.or_say("take starts", Self::take);
            match self.heard.recv_timeout(self.pause()) {
                Ok(Heard::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(Heard::Ended(run, status, said)) => self.ended(run, status, &said),
                Ok(Heard::Wake) | Err(RecvTimeoutError::Timeout) => {}
            }
        }
        let begun = Instant::now();
        while !self.workers.is_empty() {
            let Some(left) = self.settings.stop_after.checked_sub(begun.elapsed()) else { break };
            match self.heard.recv_timeout(left) {
                Ok(Heard::Ended(run, status, said)) => self.ended(run, status, &said),
                Ok(Heard::Wake | Heard::Stop) => {}
                Err(_) => break,
            }
        }
        // The next server takes over at once what is left.
        self.or_say("give leases back", |this| this.service.prolong(&this.server, 0));
        self.or_say("leave", |this| this.service.leave(&this.server));
        self.workers.into_keys().collect()
    }

    /// How long there is nothing to look at: until the next wait is over, but not for long.
    fn pause(&self) -> Duration {
        let next = self.service.next_wake().ok().flatten();
        let left = next.map(|next| next.saturating_sub(self.service.store().clock_ms()).max(SHORTEST_MS));
        left.map_or(PAUSE, |ms| Duration::from_millis(ms.unsigned_abs()).min(PAUSE))
    }

    /// A store that cannot be used now may be used later: the server goes on and says so.
    fn or_say(&mut self, what: &str, work: impl FnOnce(&mut Self) -> Result<(), StoreError>) {
        if let Err(error) = work(self) {
            tracing::error!(%error, "the service cannot {what}");
        }
    }

    fn take(&mut self) -> Result<(), StoreError> {
        let mut room = self.settings.max_runs.saturating_sub(self.workers.len() + self.adopted.len());
        if let Some((_, until)) = self.rest {
            // One start is tried. The others would fail as it does, if it does.
            room = if Instant::now() < until { 0 } else { room.min(1) };
        }
        let lease = self.service.store().clock_ms() + LEASE_MS;
        let mut failed = None;
        let taken = self.service.take_starts(&self.server, lease, room);
        if matches!(taken, Err(StoreError::RolledBack { .. } | StoreError::OtherStore { .. })) {
            // A person decides, and the log says so now and then.
            self.rest = Some((0, Instant::now() + ROLLED_BACK_REST));
        }
        let starts = taken?;
        if starts.is_empty() && self.rest.is_some_and(|(_, until)| until.elapsed() > ROUND) {
            // What could not be started was cancelled, or another server has started it.
            self.rest = None;
            self.readiness.note(Ability::Workers, None);
        }
        for start in starts {
            let (why, due) = match failed.clone() {
                Some(failed) => failed,
                None => match self.start_worker(Order::Execute, &start) {
                    Ok(()) => {
                        self.rest = None;
                        self.readiness.note(Ability::Workers, None);
                        continue;
                    }
                    Err(error) => failed.insert(self.rest_from_starting(&error)).clone(),
                },
            };
            self.or_say("put a start back", |this| this.service.put_back(start.run, due, &why));
        }
        Ok(())
    }

    /// Starts no process for a while, since none can be started: that is temporary whatever it is, for it says
    /// something of this machine and nothing of a start. Gives the reason, and when starts are tried again.
    fn rest_from_starting(&mut self, error: &std::io::Error) -> (String, i64) {
        let why = format!("no process can be started now, which is tried again: {error}");
        tracing::error!(why, "starts wait");
        let times = self.rest.map_or(0, |(times, _)| times) + 1;
        let ms = rest_ms(times, LONGEST_PROCESS_REST_MS);
        self.rest = Some((times, Instant::now() + Duration::from_millis(ms.unsigned_abs())));
        self.readiness.note(Ability::Workers, Some(why.clone()));
        (why, self.service.store().clock_ms() + ms)
    }

    /// Starts a process that works on a run.
    fn start_worker(&mut self, order: Order, start: &Start) -> std::io::Result<()> {
        let run = start.run;
        let id = run.to_string();
        let words: &[&str] = match order {
            Order::Execute => &["begin", &id],
            Order::Cancel => &["resume", &id, "--cancel", "--mode", "tool"],
        };
        let mut said = tempfile::tempfile()?;
        let initiator = start.actor.as_deref();
        // A worker answers nothing.
        let behalf = Behalf {
            actor: initiator.unwrap_or("lobster serve"),
            approver: None,
            initiator,
            agent: start.detail["agent"].as_str(),
            proof: None,
        };
        let mut command = program::command(&self.settings.program, &behalf, words);
        command
            .envs(self.settings.env.iter().map(|(name, value)| (name, value)))
            .stdout(if order == Order::Execute { Stdio::piped() } else { Stdio::null() })
            // A file, so that a worker that outlives the server can go on writing.
            .stderr(said.try_clone()?);
        let workflow = self.service.workflow_by_number(start.workflow).ok().flatten();
        let dir = workflow.as_ref().and_then(|workflow| Path::new(&workflow.path).parent());
        // A directory that cannot be entered is for the worker to report: it is this start's, not the server's.
        let may_enter = |dir: &&Path| dir.is_dir() && rustix::fs::access(*dir, Access::EXEC_OK).is_ok();
        if let Some(dir) = dir.filter(may_enter) {
            command.current_dir(dir);
        }
        // The thread first: of a process without one, nobody would see the end.
        let (give, given) = mpsc::channel::<std::process::Child>();
        let say = self.say.clone();
        std::thread::Builder::new().name("worker".to_owned()).spawn(move || {
            let Ok(mut child) = given.recv() else { return };
            let status = child.wait().unwrap_or_default();
            let _ = say.send(Heard::Ended(run, status, tail(&mut said)));
        })?;
        let mut child = command.spawn()?;
        let process = Process::Started(child.id());
        if let Some(stdout) = child.stdout.take() {
            let tidings = self.tidings.clone();
            // Without the thread nobody listens, and the worker tells nothing.
            let _ = std::thread::Builder::new().name("tidings".to_owned()).spawn(move || {
                tidings.listen(run, workflow.as_ref().map(|workflow| workflow.name.as_str()), stdout);
            });
        }
        let _ = give.send(child);
        self.workers.insert(run, Worker { order, process, begun: Instant::now(), told_to_end: None });
        Ok(())
    }

    fn ended(&mut self, run: RunId, status: ExitStatus, said: &str) {
        let order = self.workers.remove(&run).map_or(Order::Execute, |worker| worker.order);
        self.judge(run, order, Some((status, said)));
    }

    /// Writes down how a run stands that no worker of ours executes; `order` is what its last process was to do.
    fn judge(&mut self, run: RunId, order: Order, ended: Option<(ExitStatus, &str)>) {
        let store = self.service.store().clone();
        let standing = match store.run(run) {
            Ok(summary) => match summary.status {
                RunStatus::Failed if order == Order::Execute && self.cancel_failed(run) => return,
                RunStatus::Ok | RunStatus::Failed | RunStatus::Cancelled => Some(self.over(&summary, ended)),
                RunStatus::Waiting => Some(self.waiting(run, ended)),
                // Somebody else resumed it.
                RunStatus::Running if store.is_claimed(run) => None,
                RunStatus::Running => Some(self.retried(run, ended, true)),
            },
            Err(StoreError::UnknownRun(_)) if store.is_claimed(run) => None,
            Err(StoreError::UnknownRun(_)) => Some(self.retried(run, ended, false)),
            Err(error) => {
                tracing::error!(%error, %run, "a run cannot be looked at");
                None
            }
        };
        match standing {
            Some(standing) => {
                self.adopted.remove(&run);
                self.stand(run, &standing);
            }
            None => self.adopt(run),
        }
    }

    /// Notes that another process executes a run of this server.
    fn adopt(&mut self, run: RunId) {
        let lease = self.service.store().clock_ms() + LEASE_MS;
        match self.service.adopt(run, &self.server, lease) {
            Ok(true) => {}
            // Another server looks after it.
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

    /// Ends a run for good, if that is wanted, that its process left failed: it was told to end, and the run could
    /// be resumed.
    fn cancel_failed(&mut self, run: RunId) -> bool {
        let Ok(Some(start)) = self.service.start_of(run) else { return false };
        let is_begun = start.cancel.is_some() && self.start_worker(Order::Cancel, &start).is_ok();
        if is_begun {
            self.adopted.remove(&run);
        }
        is_begun
    }

    /// How a run stands that has ended: somebody may want it tried again, and no process has begun with that.
    fn over(&self, summary: &RunSummary, ended: Option<(ExitStatus, &str)>) -> Standing {
        let last = self.service.store().events_after(summary.id, summary.records.saturating_sub(1), 1);
        let last = last.ok().and_then(|mut records| records.pop());
        match last.map(|record| record.event) {
            Some(Event::RetryRequested { .. }) => self.retried(summary.id, ended, true),
            Some(Event::RunEnded { detail, .. }) if is_resumed_by_service(&detail) => Standing::Again,
            _ => Standing::Over,
        }
    }

    /// How a run stands that waits: its process came to a wait, or could do nothing.
    fn waiting(&self, run: RunId, ended: Option<(ExitStatus, &str)>) -> Standing {
        match ended {
            Some((status, _)) if !status.success() && !self.service.store().is_claimed(run) => {
                self.later(run, ended)
            }
            _ => Standing::Parked,
        }
    }

    fn later(&self, run: RunId, ended: Option<(ExitStatus, &str)>) -> Standing {
        let rest = rest_ms(self.attempts(run), LONGEST_REST_MS);
        Standing::Later { due: self.service.store().clock_ms() + rest, why: how(ended) }
    }

    /// How a run stands whose process did not get on with it. A process that ends by itself says why it could not
    /// work now: a start that can never work it has refused. One that dies again and again in the middle of its run
    /// is left for a person.
    fn retried(&self, run: RunId, ended: Option<(ExitStatus, &str)>, has_begun: bool) -> Standing {
        let attempts = self.attempts(run);
        let could_not = ended.is_some_and(|(status, _)| status.code().is_some_and(|code| code != 0));
        if could_not || (!has_begun && attempts >= ATTEMPTS) {
            return self.later(run, ended);
        }
        if attempts < ATTEMPTS {
            return Standing::Again;
        }
        Standing::Refused(format!(
            "{}; it was tried {attempts} times. `lobster resume {}` goes on",
            how(ended),
            run.short()
        ))
    }

    /// How often the run was given to a process since it came to a wait last.
    fn attempts(&self, run: RunId) -> u32 {
        self.service.start_of(run).ok().flatten().map_or(0, |start| start.attempts)
    }

    fn stand(&mut self, run: RunId, standing: &Standing) {
        if *standing == Standing::Over
            // Before it is over: what a crash leaves out here is done when it is looked at again.
            && let Err(error) = self.followers.start(&self.service, run)
        {
            tracing::error!(%error, %run, "what is to start after a run cannot be started");
            return;
        }
        match standing {
            Standing::Refused(why) => tracing::error!(%run, why, "a run cannot begin or go on"),
            Standing::Later { why, .. } => tracing::error!(%run, why, "a run cannot begin or go on now"),
            Standing::Parked | Standing::Over | Standing::Again => {}
        }
        self.or_say("write down how a run stands", |this| this.service.stand(run, standing));
    }

    /// Looks after what no worker of ours is at: runs of servers that are gone, runs that wait for
    /// nothing any more, runs that are to be cancelled, workers that take too long.
    fn look_after(&mut self) -> Result<(), StoreError> {
        let now = self.service.store().clock_ms();
        let place = (self.listen.as_str(), self.url.as_str());
        self.service.beat(&self.server, std::process::id(), place, now - 8 * LEASE_MS)?;
        self.service.prolong(&self.server, now + LEASE_MS)?;
        // Its own as well: a full disk may have kept the end of a worker from being written down.
        let most = AT_ONCE + self.workers.len() + self.adopted.len();
        for start in self.service.taken_starts(&self.server, now, most)? {
            if !self.workers.contains_key(&start.run) {
                self.judge(start.run, Order::Execute, None);
            }
        }
        for run in self.adopted.keys().copied().collect::<Vec<_>>() {
            self.judge(run, Order::Execute, None);
        }
        self.look_after_parked(now)?;
        self.cancel()?;
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
                Ok(summary) => summary.status.is_over().then(|| self.over(&summary, None)),
                Err(StoreError::UnknownRun(_)) => Some(Standing::Over),
                Err(error) => return Err(error),
            };
            if let Some(standing) = over {
                self.stand(start.run, &standing);
            } else if store.is_claimed(start.run) {
                self.ripe.remove(&start.run);
                self.adopt(start.run);
            } else if self.ripe.entry(start.run).or_insert_with(Instant::now).elapsed() >= RIPE {
                self.ripe.remove(&start.run);
                let standing = self.unanswered(start.run)?.unwrap_or(Standing::Again);
                self.stand(start.run, &standing);
            }
        }
        Ok(())
    }

    /// How a run stands that nobody has answered in time: it is left for a person, or it would be asked for ever.
    fn unanswered(&self, run: RunId) -> Result<Option<Standing>, StoreError> {
        let store = self.service.store();
        let newest = store.gates(&GateFilter { status: None, run: Some(run), limit: 1 })?.pop();
        let is_expired = newest.is_some_and(|gate| gate.status == GateStatus::Expired);
        // A record that cannot be read is the next process's to complain of.
        if !is_expired || replay::has_unused_answer(store, run).unwrap_or(true) {
            return Ok(None);
        }
        let asks_again = format!("its question expired; `lobster resume {}` asks again", run.short());
        Ok(Some(Standing::Refused(asks_again)))
    }

    fn cancel(&mut self) -> Result<(), StoreError> {
        for start in self.service.starts_to_cancel()? {
            let worker = match self.workers.get_mut(&start.run) {
                Some(worker) => Some(worker),
                None => self.adopted.get_mut(&start.run),
            };
            match worker {
                // That is what it does.
                Some(Worker { order: Order::Cancel, .. }) => {}
                Some(worker) => tell_to_end(worker, Why::Cancelled),
                // Another server's.
                None if start.state == StartState::Taken => {}
                // In the next round it is told to end.
                None if self.service.store().is_claimed(start.run) => self.adopt(start.run),
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
            tracing::warn!(%run, "a run takes longer than it may and is told to end");
            tell_to_end(worker, Why::Time);
        }
    }

    /// Ends workers whose processes use more than they may. Looked at from outside, because a limit of the
    /// system counts for each process alone, and a step may have many.
    fn end_greedy(&mut self) {
        let (memory, cpu) = (self.settings.max_memory, self.settings.max_cpu);
        if (memory.is_none() && cpu.is_none()) || (self.workers.is_empty() && self.adopted.is_empty()) {
            return;
        }
        let processes = Processes::now();
        for (run, worker) in self.workers.iter_mut().chain(&mut self.adopted) {
            let Some(pid) = worker.process.pid() else { continue };
            let usage = processes.usage(pid);
            let why = match () {
                () if memory.is_some_and(|most| usage.memory > most) => Why::Memory,
                () if cpu.is_some_and(|most| usage.cpu > most) => Why::Cpu,
                () => continue,
            };
            tracing::warn!(%run, memory = usage.memory, cpu = ?usage.cpu, "a run uses more than it may and is told to end");
            tell_to_end(worker, why);
        }
    }
}

/// How long nothing is taken from a store that was put back to an earlier state.
const ROLLED_BACK_REST: Duration = Duration::from_secs(30);

/// How long a worker may take to end by itself: longer than the longest `stop_grace` of a step.
const GRACE: Duration = Duration::from_secs(70);

/// Why a worker is told to end. A signal cannot say more than its number, and the run's record is to say why.
#[derive(Clone, Copy)]
enum Why {
    Cancelled,
    Time,
    Memory,
    Cpu,
}

/// Tells a worker to end; one that was told before and has not is ended.
fn tell_to_end(worker: &mut Worker, why: Why) {
    match worker.told_to_end {
        None => {
            worker.told_to_end = Some(Instant::now());
            match why {
                Why::Cancelled => worker.process.signal(Signal::TERM),
                // What it has started would not know what these mean. It ends that itself.
                Why::Time => worker.process.signal_alone(Signal::ALARM),
                Why::Memory => worker.process.signal_alone(Signal::USR1),
                Why::Cpu => worker.process.signal_alone(Signal::USR2),
            }
        }
        Some(at) if at.elapsed() >= GRACE => worker.process.signal(Signal::KILL),
        Some(_) => {}
    }
}

/// How a process ended that could not do what it was given.
fn how(ended: Option<(ExitStatus, &str)>) -> String {
    match ended {
        Some((status, "")) => format!("its process ended ({status})"),
        Some((status, said)) => format!("its process ended ({status}): {said}"),
        None => "its process died".to_owned(),
    }
}

fn tail(said: &mut File) -> String {
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
