//! What a button has done: by a process of lobster, as from the command line, so that it is under the
//! run's own policy and in the run's own record, and outlives this server.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use lobster_runtime::json;
use lobster_runtime::store::RunId;
use lobster_serve::http::{App, Asked, Problem};

/// So much is read of what a process says.
const SAID: u64 = 1 << 20;

/// A process that was started.
pub(crate) struct Started {
    ended: Receiver<Option<i32>>,
    out: File,
    err: File,
}

/// What a process said, and how it ended.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// Why it did not do it: the message of its envelope, or its last words.
    pub(crate) fn why(&self) -> String {
        let envelope = json::parse(&self.out).ok();
        let message = envelope.and_then(|envelope| envelope["error"]["message"].as_str().map(str::to_owned));
        let last = || self.err.lines().rfind(|line| !line.trim().is_empty()).map(str::to_owned);
        message
            .or_else(last)
            .unwrap_or_else(|| "the process said nothing; the server's log says more".to_owned())
    }
}

fn failed(error: &std::io::Error) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", format!("no process can be started: {error}"))
}

/// Starts lobster with these words, in the directory of a run.
pub(crate) fn start(app: &App, asked: &Asked, cwd: &str, words: &[String]) -> Result<Started, Problem> {
    let name = asked.name().unwrap_or_default();
    let mut command = Command::new(&app.program);
    command
        .args(words)
        .env("LOBSTER_APPROVAL_APPROVED_BY", name)
        .env("LOBSTER_ACTOR", name)
        .env("NO_COLOR", "1")
        .env_remove(RunId::VARIABLE)
        .process_group(0)
        .stdin(Stdio::null());
    if Path::new(cwd).is_dir() {
        command.current_dir(cwd);
    }
    let mut begin = || -> std::io::Result<Started> {
        let (out, err) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let mut child = command.stdout(out.try_clone()?).stderr(err.try_clone()?).spawn()?;
        let (done, ended) = channel();
        let waker = app.waker.clone();
        std::thread::Builder::new().name("program".to_owned()).spawn(move || {
            let code = child.wait().ok().and_then(|status| status.code());
            let _ = done.send(code);
            waker.wake();
        })?;
        Ok(Started { ended, out, err })
    };
    begin().map_err(|error| failed(&error))
}

impl Started {
    /// Waits until it has ended, or `is_done` says that it has done what is waited for.
    pub(crate) fn wait(
        self,
        patience: Duration,
        mut is_done: impl FnMut() -> bool,
    ) -> Result<Option<Said>, Problem> {
        let begun = Instant::now();
        loop {
            match self.ended.recv_timeout(Duration::from_millis(20)) {
                Ok(code) => return Ok(Some(self.collect_output(code))),
                Err(RecvTimeoutError::Disconnected) => return Ok(Some(self.collect_output(None))),
                Err(RecvTimeoutError::Timeout) if is_done() || begun.elapsed() > patience => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
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
