//! Processes of lobster that a server starts, for a person and for runs: one place that says on whose behalf, so that
//! the record names the right person and nobody approves what they have started themselves.

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

/// So much is read of what a process says.
const SAID: u64 = 1 << 20;

/// Between two looks at what is waited for.
const PAUSE: Duration = Duration::from_millis(10);

/// How long a process that is told to end may take, and again when it is ended.
const GRACE: Duration = Duration::from_secs(2);

/// Why the answer to an approval is no.
pub(crate) const REASON: &str = "LOBSTER_APPROVAL_REASON";

/// On whose behalf a process works.
#[derive(Clone, Copy, Debug)]
pub struct Behalf<'a> {
    /// Who the history names.
    pub actor: &'a str,
    /// Who answers questions by it, if anybody does.
    pub approver: Option<&'a str>,
    /// Who has started the run, if it is known.
    pub initiator: Option<&'a str>,
    /// The agent for which it starts a run.
    pub agent: Option<&'a str>,
    /// What proves the approver to the process.
    pub proof: Option<&'a str>,
}

impl<'a> Behalf<'a> {
    /// On behalf of somebody who has pressed a button, for a run that this person may have started.
    #[must_use]
    pub fn of_person(name: &'a str, initiator: Option<&'a str>) -> Self {
        Self { actor: name, approver: Some(name), initiator, agent: None, proof: None }
    }
}

/// This very program, even if its file is being replaced or is gone: a server and its workers are one version, and an
/// upgrade takes effect when the server is started again.
///
/// # Errors
/// When the system does not say which program this is.
pub fn own() -> std::io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    Ok(if cfg!(target_os = "linux") { PathBuf::from(OPEN_PROGRAM) } else { path })
}

/// The file that a process executes, under whatever name.
const OPEN_PROGRAM: &str = "/proc/self/exe";

/// Lobster with these words, in a group of its own.
pub fn command(program: &Path, behalf: &Behalf<'_>, words: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(program);
    if program == Path::new(OPEN_PROGRAM) {
        command.arg0("lobster");
    }
    command.args(words).env("LOBSTER_ACTOR", behalf.actor);
    // Whatever the environment of the server says of people, this process has nothing to do with.
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

/// A process whose words are read when it has ended.
#[derive(Debug)]
pub struct Started {
    ended: Receiver<Option<i32>>,
    group: Option<Pid>,
    out: File,
    err: File,
}

/// What a process said, and how it ended.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Said {
    /// Why it did not do it: the message of its envelope, or its last words.
    #[must_use]
    pub fn why(&self) -> String {
        let envelope = json::parse(&self.out).ok();
        let message = envelope.and_then(|envelope| envelope["error"]["message"].as_str().map(str::to_owned));
        let last = || self.err.lines().rfind(|line| !line.trim().is_empty()).map(str::to_owned);
        message
            .or_else(last)
            .unwrap_or_else(|| "the process said nothing; the server's log says more".to_owned())
    }
}

impl Started {
    /// Starts it. `on_end` is called when it has ended.
    ///
    /// # Errors
    /// When no process can be started.
    pub fn spawn(mut command: Command, on_end: impl FnOnce() + Send + 'static) -> std::io::Result<Self> {
        let (out, err) = (tempfile::tempfile()?, tempfile::tempfile()?);
        command.stdout(out.try_clone()?).stderr(err.try_clone()?);
        // The thread first: of a process without one, nobody would see the end.
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

    /// Waits until it has ended, or `is_done` says that it has done what is waited for. None: it has not ended.
    pub fn wait(&self, patience: Duration, mut is_done: impl FnMut() -> bool) -> Option<Said> {
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

    /// Ends it. None: it has not ended in spite of that.
    pub(crate) fn end(&self) -> Option<Said> {
        [Signal::TERM, Signal::KILL].into_iter().find_map(|signal| {
            // It has not been waited for, or this would have been heard: the number is its own.
            let _ = self.group.map(|group| kill_process_group(group, signal));
            self.wait(GRACE, || false)
        })
    }

    fn collect_output(&self, code: Option<i32>) -> Said {
        Said { code, out: read(&self.out), err: read(&self.err) }
    }
}

fn read(mut file: &File) -> String {
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
        let command = command(Path::new("/bin/sh"), &behalf, &["-c", script]);
        let process = Started::spawn(command, || {}).unwrap();
        assert!(process.wait(Duration::from_millis(100), || false).is_none());
        let said = process.end().unwrap();
        assert_eq!((said.code, said.out.as_str()), (None, "ann\n"));
    }
}
