//! Processes of lobster that a server starts for people and for runs. This one place decides on whose behalf they work,
//! so that the record names the right person and no one approves runs that they have started themselves.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use lobster_runtime::engine::{ANSWER_TOKEN, FOR_AGENT};
use lobster_runtime::json;
use lobster_runtime::store::RunId;
use rustix::process::{Pid, Signal, kill_process_group};

/// Most bytes that are read of a process's output.
const SAID: u64 = 1 << 20;

/// Interval between two checks of a waiting caller.
const PAUSE: Duration = Duration::from_millis(10);

/// Time for a process to end after it is asked to, and again after it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// Variable with the reason for a rejection.
pub(crate) const REASON: &str = "LOBSTER_APPROVAL_REASON";

/// The people and agents on whose behalf a process works.
#[derive(Clone, Copy, Debug)]
pub struct Behalf<'a> {
    /// The name in the history.
    pub actor: &'a str,
    /// The person who answers questions with this process, if any.
    pub approver: Option<&'a str>,
    /// The person who started the run, if known.
    pub initiator: Option<&'a str>,
    /// The agent for which it starts a run.
    pub agent: Option<&'a str>,
    /// Proof of the approver's identity for the process.
    pub proof: Option<&'a str>,
}

impl<'a> Behalf<'a> {
    /// On behalf of a person who has pressed a button, for a run that this person may have started.
    #[must_use]
    pub fn of_person(name: &'a str, initiator: Option<&'a str>) -> Self {
        Self { actor: name, approver: Some(name), initiator, agent: None, proof: None }
    }
}

/// The path of this very program, even if its file is being replaced or deleted: a server and its workers have the same
/// version, and an upgrade takes effect when the server is restarted.
///
/// # Errors
/// Fails if the system does not name this program.
pub fn own_path() -> std::io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    Ok(if cfg!(target_os = "linux") { PathBuf::from(OPEN_PROGRAM) } else { path })
}

/// The file that a process executes, independent of its name.
const OPEN_PROGRAM: &str = "/proc/self/exe";

/// Builds a command that runs lobster with these arguments in its own process group.
pub fn build_command(program: &Path, behalf: &Behalf<'_>, words: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(program);
    if program == Path::new(OPEN_PROGRAM) {
        command.arg0("lobster");
    }
    command.args(words).env("LOBSTER_ACTOR", behalf.actor);
    // People named in the server's own environment do not concern this process.
    for (variable, value) in [
        ("LOBSTER_APPROVAL_APPROVED_BY", behalf.approver),
        ("LOBSTER_APPROVAL_INITIATED_BY", behalf.initiator),
        (FOR_AGENT.name, behalf.agent),
        (ANSWER_TOKEN.name, behalf.proof),
        (RunId::VARIABLE, None),
        (REASON, None),
    ] {
        match value {
            Some(value) => command.env(variable, value),
            None => command.env_remove(variable),
        };
    }
    command.process_group(0).stdin(Stdio::null());
    command
}

/// A process whose output is read when it has ended.
#[derive(Debug)]
pub struct Started {
    ended: Receiver<Option<i32>>,
    group: Option<Pid>,
    out: File,
    err: File,
}

/// The output and the exit code of a process.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Said {
    /// The reason of a failure: the message of its envelope, or its last line.
    #[must_use]
    pub fn failure_reason(&self) -> String {
        let envelope = json::parse(&self.out).ok();
        let message = envelope.and_then(|envelope| envelope["error"]["message"].as_str().map(str::to_owned));
        let last = || self.err.lines().rfind(|line| !line.trim().is_empty()).map(str::to_owned);
        message
            .or_else(last)
            .unwrap_or_else(|| "the process printed no reason; see the server's log".to_owned())
    }
}

impl Started {
    /// Starts the process. `on_end` is called when it has ended.
    ///
    /// # Errors
    /// Fails if no process can be started.
    pub fn spawn(mut command: Command, on_end: impl FnOnce() + Send + 'static) -> std::io::Result<Self> {
        let (out, err) = (tempfile::tempfile()?, tempfile::tempfile()?);
        command.stdout(out.try_clone()?).stderr(err.try_clone()?);
        // The thread is started first: without it, the end of the process would go unnoticed.
        let ((give, given), (done, ended)) = (channel::<Child>(), channel());
        std::thread::Builder::new().name("program".to_owned()).spawn(move || {
            let Ok(mut child) = given.recv() else { return };
            let code = child.wait().ok().and_then(|status| status.code());
            let _ = done.send(code);
            on_end();
        })?;
        let child = command.spawn()?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let _ = give.send(child);
        Ok(Self { ended, group, out, err })
    }

    /// Waits until the process has ended, or `is_done` returns true. Returns `None` if the process has not ended.
    pub fn wait_for_exit(&self, patience: Duration, mut is_done: impl FnMut() -> bool) -> Option<Said> {
        let begun = Instant::now();
        loop {
            match self.ended.recv_timeout(PAUSE) {
                Ok(code) => return Some(self.collect_output(code)),
                Err(RecvTimeoutError::Disconnected) => return Some(self.collect_output(None)),
                Err(RecvTimeoutError::Timeout) if is_done() || begun.elapsed() > patience => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Ends the process. Returns `None` if it has not ended even so.
    pub(crate) fn stop_process(&self) -> Option<Said> {
        [Signal::TERM, Signal::KILL].into_iter().find_map(|signal| {
            // The process has not been reaped, or its exit would be known here: its id is still its own.
            let _ = self.group.map(|group| kill_process_group(group, signal));
            self.wait_for_exit(GRACE, || false)
        })
    }

    fn collect_output(&self, code: Option<i32>) -> Said {
        Said { code, out: read_output(&self.out), err: read_output(&self.err) }
    }
}

fn read_output(mut file: &File) -> String {
    let mut bytes = Vec::new();
    let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.take(SAID).read_to_end(&mut bytes));
    read.map(|_| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_does_not_end_is_ended_with_all_that_it_has_started() {
        let behalf = Behalf::of_person("ann", None);
        let script = "trap '' TERM; echo $LOBSTER_APPROVAL_APPROVED_BY; sleep 600 & wait; sleep 600";
        let command = build_command(Path::new("/bin/sh"), &behalf, &["-c", script]);
        let process = Started::spawn(command, || {}).unwrap();
        assert!(process.wait_for_exit(Duration::from_millis(100), || false).is_none());
        let said = process.stop_process().unwrap();
        assert_eq!((said.code, said.out.as_str()), (None, "ann\n"));
    }
}
