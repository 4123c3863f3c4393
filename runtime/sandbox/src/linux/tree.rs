//! Ending everything a step has started.
//!
//! The supervisor is the subreaper of its step: whatever loses its parent
//! becomes a child of the supervisor. So killing all children again and again
//! reaches every generation, also those that made sessions of their own. A
//! killed process cannot fork any more, and an unreaped one keeps its number,
//! so no signal can hit a stranger.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group, setpriority_process};

use super::super::ExitStatus;
use super::sys;

/// How long to insist before the rest is reported as surviving. Only
/// processes of another user (`sudo`) or in uninterruptible sleep last this long.
const INSIST: Duration = Duration::from_secs(3);

/// Between two rounds when no child's end is announced.
const ROUND: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// The children of a supervisor.
pub(super) struct Tree {
    main: Pid,
    /// Once collected.
    pub(super) status: Option<ExitStatus>,
    /// Of all that were collected, with what they had collected themselves.
    pub(super) usage: Usage,
}

/// What ended processes took.
#[derive(Clone, Copy, Default)]
pub(super) struct Usage {
    pub(super) cpu: Duration,
    /// Bytes, of the largest.
    pub(super) max_rss: u64,
}

impl Tree {
    pub(super) fn new(main: Pid) -> Self {
        Self { main, status: None, usage: Usage::default() }
    }

    /// Collects what has ended; false when no child is left.
    pub(super) fn collect(&mut self) -> bool {
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

    /// Asks the step's process group to end.
    pub(super) fn terminate(&self) {
        // Once collected, its number may belong to someone else.
        if self.status.is_some() {
            return;
        }
        if kill_process_group(self.main, Signal::TERM).is_err() {
            // Not yet a group leader: between fork and setsid.
            let _ = kill_process(self.main, Signal::TERM);
        }
        // A process that is stopped would not see it.
        let _ = kill_process_group(self.main, Signal::CONT);
    }

    /// Kills until nothing is left; gives the number of those it could not kill.
    pub(super) fn kill(&mut self, ended: impl AsFd) -> u64 {
        // Among hundreds of forking processes the killer must get its turn.
        // Only root may raise it; others go without.
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
                for pid in children() {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            if !self.collect() {
                return 0;
            }
            if begin.elapsed() > INSIST {
                return children().len() as u64;
            }
            let _ = poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&ROUND));
            drain(&ended);
        }
    }
}

/// Empties a descriptor of [`super::sys::child_signals`].
pub(super) fn drain(ended: impl AsFd) {
    let mut buffer = [0; 1024];
    while rustix::io::read(&ended, &mut buffer).is_ok_and(|length| length == buffer.len()) {}
}

/// The direct children of this (single-threaded) process.
pub(super) fn children() -> Vec<Pid> {
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
