//! Processes that execute runs, and how the dispatcher ends them.

use lobster_runtime::store::RunProcess;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// A process that executes a run.
#[derive(Debug)]
pub(crate) enum Process {
    /// This server started it, as the leader of a process group.
    Started(u32),
    /// It was found at the run. `None` if it does not identify itself or also does other work.
    Found(Option<RunProcess>),
}

impl Process {
    /// Its process id, if known.
    pub(crate) fn pid(&self) -> Option<u32> {
        match self {
            Self::Started(pid) => Some(*pid),
            Self::Found(process) => process.as_ref().map(|process| process.pid),
        }
    }

    /// Sends a signal to the process and its children. A process that has ended gets none, even if its id is in use
    /// again.
    pub(crate) fn signal_group(&self, signal: Signal) {
        self.signal_by(signal, kill_process_group);
    }

    /// Sends a signal to the process alone.
    pub(crate) fn signal_alone(&self, signal: Signal) {
        self.signal_by(signal, kill_process);
    }

    fn signal_by(&self, signal: Signal, send: impl Fn(Pid, Signal) -> rustix::io::Result<()>) {
        let Some(pid) = self.pid().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) else { return };
        match self {
            // The id becomes free only after this server has noticed the exit.
            Self::Started(_) => {
                let _ = send(pid, signal);
            }
            // The group may contain other processes. The process stops its own children.
            Self::Found(process) => {
                #[cfg(target_os = "linux")]
                if let Ok(held) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
                    // From here on, the signal reaches this process or no process.
                    && process.as_ref().is_some_and(RunProcess::is_there)
                {
                    let _ = rustix::process::pidfd_send_signal(&held, signal);
                }
                // On other systems, processes do not identify themselves.
                #[cfg(not(target_os = "linux"))]
                let _ = process;
            }
        }
    }
}
