//! A place of its own for each test: working directory, home, state.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use lobster_runtime::schema::Schema;
use serde_json::Value;

use crate::{binary, compiled_code};

/// No call of a test may take longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The most that is kept of what a call prints.
const KEPT: u64 = 64 << 20;

/// The private directories of one test.
pub(crate) struct Home {
    root: tempfile::TempDir,
    /// Whether native effects are carried out by a worker of its own.
    has_worker: bool,
}

/// With any value, every call of every test has its native effects carried out by a worker.
const WORKER_VARIABLE: &str = "LOBSTER_TEST_WORKER";

impl Home {
    /// With the machine code of the evaluator and of the steps that tests run most.
    pub(crate) fn new() -> Self {
        let home = Self::cold();
        compiled_code::link_into(&home.state());
        home
    }

    /// With a state directory in which nothing is, for tests that look at compiling or at what becomes of the state.
    pub(crate) fn cold() -> Self {
        let root = tempfile::Builder::new().prefix("lobster-test-").tempdir().unwrap();
        for name in ["work", "home", "state"] {
            std::fs::create_dir(root.path().join(name)).unwrap();
        }
        Self { root, has_worker: std::env::var_os(WORKER_VARIABLE).is_some() }
    }

    /// The same, with native effects carried out by a worker.
    pub(crate) fn with_worker(self, has_worker: bool) -> Self {
        Self { has_worker: has_worker || self.has_worker, ..self }
    }

    /// The command of a worker. Faults are for the lobster that it works for.
    pub(crate) fn worker() -> String {
        let mut words = vec!["/usr/bin/env".to_owned()];
        words.extend(
            ["LOBSTER_FAULT", "LD_PRELOAD"].into_iter().flat_map(|name| ["-u".to_owned(), name.to_owned()]),
        );
        words.extend([binary::lobster().display().to_string(), "worker".to_owned(), "--stdio".to_owned()]);
        serde_json::json!(words).to_string()
    }

    /// Where calls start.
    pub(crate) fn dir(&self) -> PathBuf {
        self.root.path().join("work")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.root.path().join("state")
    }

    /// A second state directory, in the working directory, with the same code.
    pub(crate) fn second_state(&self, name: &str) -> PathBuf {
        let state = self.dir().join(name);
        compiled_code::link_into(&state);
        state
    }

    /// A file of the working directory; one that begins with `#!` is executable.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.dir().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        if content.as_ref().starts_with(b"#!") {
            let draft = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(draft.path(), &content).unwrap();
            binary::copy_program(draft.path(), &path);
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        } else {
            std::fs::write(&path, &content).unwrap();
        }
        self
    }

    /// A file of the working directory; empty if it is not there.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir().join(name)).unwrap_or_default()
    }

    /// Fails unless, within a while, no process works in the directories of this test.
    pub(crate) fn assert_deserted(&self) {
        let begun = Instant::now();
        while !self.processes().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(20), "left running: {:?}", self.processes());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The command lines of the processes whose working directory is one of this test.
    fn processes(&self) -> Vec<String> {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let here = processes.filter(|process| {
            std::fs::read_link(process.path().join("cwd")).is_ok_and(|dir| dir.starts_with(self.root.path()))
        });
        here.filter_map(|process| std::fs::read_to_string(process.path().join("cmdline")).ok()).collect()
    }

    /// The binary with these words, to be run by [`Call::run`].
    pub(crate) fn lobster<I: IntoIterator<Item: AsRef<OsStr>>>(&self, words: I) -> Call {
        self.program(binary::lobster(), words)
    }

    /// Another program, in the surroundings that the binary has.
    pub(crate) fn program<I: IntoIterator<Item: AsRef<OsStr>>>(
        &self,
        program: impl AsRef<OsStr>,
        words: I,
    ) -> Call {
        let mut command = Command::new(program);
        command
            .args(words)
            .current_dir(self.dir())
            .env_clear()
            .env("PATH", self.path())
            .env("HOME", self.root.path().join("home"))
            .env("LOBSTER_STATE_DIR", self.state())
            .env("LANG", "C.UTF-8")
            .env("TZ", "UTC")
            .stdin(Stdio::null());
        if self.has_worker {
            command.env("LOBSTER_EXECUTOR", Self::worker());
        }
        Call { command, input: None }
    }

    /// Runs something in tool mode.
    pub(crate) fn tool<I: IntoIterator<Item: AsRef<OsStr>>>(&self, words: I) -> Answer {
        let mut all = vec![OsString::from("run"), "--mode".into(), "tool".into()];
        all.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        self.lobster(all).run()
    }

    fn path(&self) -> OsString {
        let mut path = self.dir().join("bin").into_os_string();
        path.push(":/usr/local/bin:/usr/bin:/bin");
        path
    }
}

/// One call of the binary.
pub(crate) struct Call {
    command: Command,
    input: Option<Vec<u8>>,
}

impl Call {
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// With more words.
    pub(crate) fn words<I: IntoIterator<Item: AsRef<OsStr>>>(mut self, words: I) -> Self {
        self.command.args(words);
        self
    }

    /// Starts it elsewhere.
    pub(crate) fn dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    pub(crate) fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self
    }

    /// A closed stdout instead of a pipe.
    pub(crate) fn start_with_stdout(mut self, stdout: Stdio) -> Child {
        self.command.stdout(stdout).stderr(Stdio::piped()).process_group(0).spawn().unwrap()
    }

    /// On a terminal, or whatever else.
    pub(crate) fn start_on(mut self, stdin: Stdio, stdout: Stdio, stderr: Stdio) -> Child {
        self.command.stdin(stdin).stdout(stdout).stderr(stderr).process_group(0).spawn().unwrap()
    }

    pub(crate) fn start(self) -> Child {
        self.start_with_stdout(Stdio::piped())
    }

    /// With pipes to talk over; stderr is the test's own.
    pub(crate) fn start_piped(mut self) -> Child {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).spawn().unwrap()
    }

    /// Runs to the end and keeps what was said.
    pub(crate) fn run(mut self) -> Answer {
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        if self.input.is_some() {
            self.command.stdin(Stdio::piped());
        }
        let begun = Instant::now();
        let mut child = self.command.spawn().unwrap();
        if let (Some(mut stdin), Some(bytes)) = (child.stdin.take(), self.input.take()) {
            std::thread::spawn(move || {
                let _ = stdin.write_all(&bytes);
            });
        }
        let stdout = reader(child.stdout.take().unwrap());
        let stderr = reader(child.stderr.take().unwrap());
        let status = wait(&mut child, &self.command);
        Answer {
            status,
            stdout: stdout.join().unwrap(),
            stderr: stderr.join().unwrap(),
            took: begun.elapsed(),
        }
    }
}

fn reader(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        let _ = from.by_ref().take(KEPT).read_to_end(&mut kept);
        let _ = std::io::copy(&mut from, &mut std::io::sink());
        String::from_utf8_lossy(&kept).into_owned()
    })
}

/// Returns when it holds; fails if that takes too long.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn wait(child: &mut Child, what: &dyn fmt::Debug) -> ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if begun.elapsed() > PATIENCE {
            let processes = crate::own_processes::describe_tree(child);
            if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
            }
            panic!("still running after {PATIENCE:?}: {what:?}\n{processes}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What a call said.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

/// The paths of the steps that a message names as interrupted and asks about.
pub(crate) fn interrupted_steps(message: &str) -> impl Iterator<Item = &str> {
    let asked = message.contains("--retry-interrupted").then_some(message);
    let named = asked.into_iter().flat_map(|message| message.split("' was interrupted: "));
    named.filter_map(|text| Some(text.rsplit_once("tep '")?.1))
}

impl Answer {
    /// The exit code as a shell tells it.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or_default())
    }

    /// Stdout, which has to be exactly one envelope that fits the exit code.
    pub(crate) fn envelope(&self) -> Value {
        let envelope: Value = serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("no envelope ({error}): {self:#?}"));
        assert_eq!(envelope["protocolVersion"], 1, "{self:#?}");
        assert!(!self.stderr.contains("panicked at"), "{self:#?}");
        static SCHEMA: OnceLock<Schema> = OnceLock::new();
        let schema =
            SCHEMA.get_or_init(|| Schema::compile(&lobster_runtime::envelope::json_schema()).unwrap());
        assert!(schema.first_error(&envelope).is_none(), "not the schema that --describe gives: {self:#?}");
        let code = match (envelope["ok"].as_bool(), envelope["error"]["type"].as_str()) {
            (Some(true), None) => 0,
            (Some(false), Some("parse_error")) => 2,
            (Some(false), Some(_)) => 1,
            _ => panic!("half an envelope: {self:#?}"),
        };
        let signalled = self.code() > 128;
        assert!(signalled || self.code() == code, "the exit code does not fit: {self:#?}");
        envelope
    }

    /// The output of a run that ended well.
    pub(crate) fn output(&self) -> Value {
        let envelope = self.envelope();
        assert_eq!(envelope["status"], "ok", "{self:#?}");
        envelope["output"].clone()
    }

    /// The message of a run that failed.
    pub(crate) fn error(&self) -> String {
        let envelope = self.envelope();
        assert_eq!(envelope["ok"], false, "{self:#?}");
        let message = envelope["error"]["message"].as_str().expect("an error has a message");
        assert!(!message.trim().is_empty(), "{self:#?}");
        message.to_owned()
    }

    /// The token of a run that waits for a person.
    pub(crate) fn token(&self) -> String {
        let envelope = self.envelope();
        let request = match envelope["status"].as_str() {
            Some("needs_approval") => &envelope["requiresApproval"],
            Some("needs_input") => &envelope["requiresInput"],
            _ => panic!("nobody is asked: {self:#?}"),
        };
        request["resumeToken"].as_str().expect("a request has a token").to_owned()
    }
}

/// The files below a directory with what they hold, but for the code that all tests share.
pub(crate) fn contents_below(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        match entry.metadata() {
            Ok(found) if found.is_dir() => all.extend(contents_below(&path)),
            Ok(found) if compiled_code::is_code(&path) && found.nlink() > 1 => {}
            _ => all.extend(std::fs::read(&path).ok().map(|bytes| (path, bytes))),
        }
    }
    all
}

/// Fails if a file below a directory holds the text.
pub(crate) fn assert_nowhere(dir: &Path, text: &str) {
    for (path, bytes) in contents_below(dir) {
        let found = bytes.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(!found, "{} holds {text}", path.display());
    }
}

/// Copies a directory's files, with their modes.
pub(crate) fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The id of the run that began last.
pub(crate) fn newest(home: &Home) -> String {
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    runs[0]["id"].as_str().unwrap().to_owned()
}
