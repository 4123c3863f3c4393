//! Processes that execute runs, as the dispatcher ends them.

use lobster_runtime::store::RunProcess;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// A process that executes a run.
#[derive(Debug)]
pub(crate) enum Process {
    /// This server has started it, as the first of a group.
    Started(u32),
    /// It was found at the run. None: it does not say who it is, or has other things to do.
    Found(Option<RunProcess>),
}

impl Process {
    /// Its number, if it is known.
    pub(crate) fn pid(&self) -> Option<u32> {
        match self {
            Self::Started(pid) => Some(*pid),
            Self::Found(process) => process.as_ref().map(|process| process.pid),
        }
    }

    /// Sends a signal to it, and to what it has started. One that has ended gets none, whoever has its number now.
    pub(crate) fn signal(&self, signal: Signal) {
        self.signal_by(signal, kill_process_group);
    }

    /// The same, to the process alone.
    pub(crate) fn signal_alone(&self, signal: Signal) {
        self.signal_by(signal, kill_process);
    }

    fn signal_by(&self, signal: Signal, send: impl Fn(Pid, Signal) -> rustix::io::Result<()>) {
        let Some(pid) = self.pid().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) else { return };
        match self {
            // Its number is free only after this server has heard of its end.
            Self::Started(_) => {
                let _ = send(pid, signal);
            }
            // Others may be in its group: it ends what it has started.
            Self::Found(process) => {
                #[cfg(target_os = "linux")]
                if let Ok(held) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
                    // From here on it is this process that the signal goes to, or none.
                    && process.as_ref().is_some_and(RunProcess::is_there)
                {
                    let _ = rustix::process::pidfd_send_signal(&held, signal);
                }
                // Elsewhere no process says who it is.
                #[cfg(not(target_os = "linux"))]
                let _ = process;
            }
        }
    }
}
