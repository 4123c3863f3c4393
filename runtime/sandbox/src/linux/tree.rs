//! Ends everything that a step has started.
//!
//! The supervisor is the subreaper of its step, so every process that loses its parent becomes a child of the
//! supervisor. Repeatedly killing all children therefore reaches every generation, even processes with
//! sessions of their own. A killed process cannot fork any more, and an unreaped one keeps its number, so no
//! signal can hit an unrelated process.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group, setpriority_process};

use super::super::ExitStatus;
use super::sys;

/// Time after which the remaining processes are reported as surviving. Only processes of another user
/// (`sudo`) or in uninterruptible sleep last this long.
const INSIST: Duration = Duration::from_secs(3);

/// Time between two rounds if no child is reported as ended.
const ROUND: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// The children of a supervisor.
pub(super) struct Tree {
    main: Pid,
    /// Status of the main process, after it was collected.
    pub(super) status: Option<ExitStatus>,
    /// Resources used by all collected children, including the resources of their own collected children.
    pub(super) usage: Usage,
}

/// Resources used by ended processes.
#[derive(Clone, Copy, Default)]
pub(super) struct Usage {
    pub(super) cpu: Duration,
    /// Largest resident set of a process, in bytes.
    pub(super) max_rss: u64,
}

impl Tree {
    pub(super) fn new(main: Pid) -> Self {
        Self { main, status: None, usage: Usage::default() }
    }

    /// Collects ended children; false if no child is left.
    pub(super) fn collect_ended(&mut self) -> bool {
        loop {
            match sys::collect_child() {
                Ok(Some((pid, status, usage))) => {
                    self.usage.cpu += usage.cpu;
                    self.usage.max_rss = self.usage.max_rss.max(usage.max_rss);
                    if pid == self.main {
                        self.status = Some(status);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Sends SIGTERM to the step's process group.
    pub(super) fn terminate(&self) {
        // After it was collected, its number may belong to another process.
        if self.status.is_some() {
            return;
        }
        if kill_process_group(self.main, Signal::TERM).is_err() {
            // Not a group leader yet, between fork and setsid.
            let _ = kill_process(self.main, Signal::TERM);
        }
        // A stopped process would not handle the signal.
        let _ = kill_process_group(self.main, Signal::CONT);
    }

    /// Kills until no process is left; returns the number of processes that it could not kill.
    pub(super) fn kill_all(&mut self, ended: impl AsFd) -> u64 {
        // The killer must get CPU time among hundreds of forking processes. Only root may raise the priority;
        // other users go without.
        let _ = setpriority_process(None, -20);
        if self.status.is_none() {
            let _ = kill_process_group(self.main, Signal::KILL);
        }
        let begin = Instant::now();
        // The first process of a namespace reaches everything in it at once.
        let rules_namespace = getpid() == Pid::INIT;
        loop {
            if rules_namespace {
                sys::kill_namespace();
            } else {
                for pid in direct_children() {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            if !self.collect_ended() {
                return 0;
            }
            if begin.elapsed() > INSIST {
                return direct_children().len() as u64;
            }
            let _ = poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&ROUND));
            drain_signals(&ended);
        }
    }
}

/// Empties a descriptor of [`super::sys::child_signals`].
pub(super) fn drain_signals(ended: impl AsFd) {
    let mut buffer = [0; 1024];
    while rustix::io::read(&ended, &mut buffer).is_ok_and(|length| length == buffer.len()) {}
}

/// The direct children of this (single-threaded) process.
pub(super) fn direct_children() -> Vec<Pid> {
    let own = getpid().as_raw_nonzero();
    match fs::read_to_string(format!("/proc/self/task/{own}/children")) {
        Ok(list) => {
            list.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
        }
        Err(_) => children_by_scan(own.get()),
    }
}

/// For kernels without `CONFIG_PROC_CHILDREN`.
fn children_by_scan(own: i32) -> Vec<Pid> {
    let is_child = |pid: i32| -> Option<bool> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may contain anything, but nothing after it contains a parenthesis.
        let (_, fields) = stat.rsplit_once(')')?;
        Some(fields.split_ascii_whitespace().nth(1)? == own.to_string())
    };
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| is_child(*pid) == Some(true))
        .filter_map(Pid::from_raw)
        .collect()
}
