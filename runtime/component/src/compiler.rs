//! Compiling is the part of a step that its author controls most and that the engine cannot interrupt.
//! It therefore runs in a separate process within [`CompileLimits`], which is killed when it exceeds
//! them or when the step is cancelled (invariant C6).
//!
//! That process is the same program started again. It gets the component on its stdin and nothing else:
//! no environment and no other descriptor. This is the one place outside the sandbox that starts a
//! process: the process runs only this crate, and it must also work where no sandbox is available.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, Signal};

use crate::engine::{Allocation, machine_code, wasm_config};
use crate::{Cancel, LoadError};

/// First argument that turns the program into the compiler.
pub const COMPILE_ARGUMENT: &str = "__compile";

/// Limits of compiling one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompileLimits {
    /// Bytes of resident memory.
    pub memory: u64,
    /// Wall-clock time.
    pub time: Duration,
}

impl Default for CompileLimits {
    /// Twice the need of yosys (69 MB of WebAssembly), one of the largest programs in use.
    fn default() -> Self {
        Self { memory: 4 << 30, time: Duration::from_mins(10) }
    }
}

/// Exit code of the process when its stderr holds the error as JSON.
const REFUSED: u8 = 3;

/// Interval at which the process, its memory and its time are checked.
const LOOK: Duration = Duration::from_millis(2);

/// The program that compiles.
#[derive(Clone, Debug)]
pub struct CompilerProgram {
    /// A program whose `main` calls [`compile_main`] if it gets these arguments.
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

impl Default for CompilerProgram {
    /// This executable, even if its file has since been replaced.
    fn default() -> Self {
        let program = if cfg!(target_os = "linux") {
            PathBuf::from("/proc/self/exe")
        } else {
            std::env::current_exe().unwrap_or_default()
        };
        Self { program, args: vec![OsString::from(COMPILE_ARGUMENT)] }
    }
}

/// Limits and cancellation of loading a program.
#[derive(Clone)]
pub struct Patience {
    begun: Instant,
    pub(crate) limits: CompileLimits,
    /// The engine's limits do not apply, and an earlier refusal is ignored.
    pub(crate) anew: bool,
    cancel: Cancel,
}

impl Default for Patience {
    fn default() -> Self {
        Self::new(Arc::new(|| None))
    }
}

impl Patience {
    /// Starts now, with the limits of the engine.
    #[must_use]
    pub fn new(cancel: Cancel) -> Self {
        Self { begun: Instant::now(), limits: CompileLimits::default(), anew: false, cancel }
    }

    /// Compiles within these limits, even if the program was refused before.
    #[must_use]
    pub fn compiling_anew(self, limits: CompileLimits) -> Self {
        Self { limits, anew: true, ..self }
    }

    fn check_deadline(&self) -> Result<(), LoadError> {
        if let Some(reason) = (self.cancel)() {
            return Err(LoadError::Cancelled { reason });
        }
        let limit = self.limits.time;
        if self.begun.elapsed() >= limit { Err(LoadError::Timeout { limit }) } else { Ok(()) }
    }

    /// Retries until the attempt returns a value, the time is up or the load is cancelled.
    pub(crate) fn wait_until<T>(&self, mut attempt: impl FnMut() -> Option<T>) -> Result<T, LoadError> {
        loop {
            if let Some(done) = attempt() {
                return Ok(done);
            }
            self.check_deadline()?;
            std::thread::sleep(LOOK);
        }
    }

    pub(crate) fn lock_mutex<'m, T>(&self, mutex: &'m Mutex<T>) -> Result<MutexGuard<'m, T>, LoadError> {
        self.wait_until(|| match mutex.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(PoisonError::into_inner(poisoned)),
            Err(TryLockError::WouldBlock) => None,
        })
    }
}

/// Kills the process unless its end was awaited.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None) | Err(_)) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

impl CompilerProgram {
    /// Compiles a program to machine code.
    pub(crate) fn compile(
        &self,
        bytes: &[u8],
        allocation: Allocation,
        patience: &Patience,
    ) -> Result<Vec<u8>, LoadError> {
        patience.check_deadline()?;
        let broken = |doing: &str| {
            let message = format!("{doing} {}", self.program.display());
            move |error: io::Error| LoadError::Compiler { message: format!("{message}: {error}") }
        };
        let hand = || -> io::Result<_> {
            let (mut input, output, errors) = (
                create_scratch_file("program")?,
                create_scratch_file("code")?,
                create_scratch_file("errors")?,
            );
            input.write_all(bytes)?;
            input.rewind()?;
            Ok((input, output, errors))
        };
        let (input, mut output, mut errors) = hand().map_err(broken("cannot pass the program to"))?;
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .arg(if allocation == Allocation::Pooling { "pooling" } else { "on-demand" })
            .arg(patience.limits.time.as_secs().saturating_add(1).saturating_mul(cores).to_string())
            .arg(std::process::id().to_string())
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(input))
            .stdout(Stdio::from(output.try_clone().map_err(broken("cannot start"))?))
            .stderr(Stdio::from(errors.try_clone().map_err(broken("cannot start"))?));
        // A separate process group: signals from a terminal reach only this process, which then ends
        // the compiler.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut running = Running(command.spawn().map_err(broken("cannot start the compiler"))?);
        let status = wait_for_exit(&mut running.0, patience)?;
        let said = || {
            let mut text = String::new();
            let _ = errors.rewind().and_then(|()| (&errors).take(64 << 10).read_to_string(&mut text));
            text
        };
        self.check_exit_status(status, said)?;
        let mut code = Vec::new();
        output.rewind().and_then(|()| output.read_to_end(&mut code)).map_err(broken("cannot read from"))?;
        if wasmtime::Engine::detect_precompiled(&code).is_none() {
            let message = format!(
                "{} {} gave no machine code; a program that embeds lobster calls `compile_main`, or names a program that does",
                self.program.display(),
                self.args.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ")
            );
            return Err(LoadError::Compiler { message });
        }
        Ok(code)
    }

    fn check_exit_status(&self, status: ExitStatus, said: impl FnOnce() -> String) -> Result<(), LoadError> {
        use std::os::unix::process::ExitStatusExt;
        if status.success() {
            return Ok(());
        }
        let said = said();
        if status.code() == Some(REFUSED.into())
            && let Ok(error) = serde_json::from_str(&said)
        {
            return Err(error);
        }
        let line = said.lines().next().unwrap_or("it said nothing").to_owned();
        let message = match status.signal() {
            Some(signal) => format!("the compiler was ended by signal {signal}: {line}"),
            None => format!("{} failed ({status}): {line}", self.program.display()),
        };
        Err(LoadError::Compiler { message })
    }
}

/// Creates a file without a name.
fn create_scratch_file(name: &str) -> io::Result<File> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::MemfdFlags;
        Ok(rustix::fs::memfd_create(format!("lobster-{name}"), MemfdFlags::CLOEXEC)?.into())
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = name;
        tempfile::tempfile()
    }
}

/// Memory that a process holds and shares with no file; `None` if the system does not report it.
fn resident_memory(pid: u32) -> Option<u64> {
    let pages = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let mut pages = pages.split_whitespace().skip(1).map(str::parse::<u64>);
    let held = pages.next()?.ok()?.saturating_sub(pages.next()?.ok()?);
    Some(held * rustix::param::page_size() as u64)
}

fn wait_for_exit(child: &mut Child, patience: &Patience) -> Result<ExitStatus, LoadError> {
    let limit = patience.limits.memory;
    let ended = patience.wait_until(|| match child.try_wait() {
        Ok(None) if resident_memory(child.id()).is_some_and(|held| held > limit) => {
            Some(Err(LoadError::CompilerMemory { limit }))
        }
        Ok(status) => status.map(Ok),
        Err(error) => Some(Err(LoadError::Compiler { message: format!("it is lost: {error}") })),
    });
    ended?
}

/// The `main` of the compiler process. The words after [`COMPILE_ARGUMENT`] are the form of the code,
/// the processor time limit and the parent process.
#[must_use]
pub fn compile_main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(2).collect();
    match compile_here(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = serde_json::to_string(&error).unwrap_or_else(|_| error.to_string());
            let _ = io::stderr().write_all(text.as_bytes());
            ExitCode::from(REFUSED)
        }
    }
}

fn compile_here(words: &[String]) -> Result<(), LoadError> {
    let broken = |message: String| LoadError::Compiler { message };
    let [allocation, seconds, parent] = words else {
        return Err(broken(format!("it takes three words, not {}", words.len())));
    };
    let number = |word: &String| word.parse::<u64>().map_err(|error| broken(format!("{word}: {error}")));
    apply_limits(number(seconds)?, number(parent)?).map_err(|e| broken(e.to_string()))?;
    let allocation = if allocation == "pooling" { Allocation::Pooling } else { Allocation::OnDemand };
    let mut bytes = Vec::new();
    io::stdin().read_to_end(&mut bytes).map_err(|error| broken(format!("cannot read: {error}")))?;
    let engine = wasmtime::Engine::new(&wasm_config(allocation))
        .map_err(|error| LoadError::Engine { message: format!("{error:#}") })?;
    let code = machine_code(&engine, &bytes)?;
    // The parent process reads the output only after a success.
    io::stdout().write_all(&code).map_err(|error| broken(format!("cannot write: {error}")))
}

/// Applies the limits to this process, which is trusted until it reads the program.
fn apply_limits(seconds: u64, parent: u64) -> io::Result<()> {
    let limit = |most: u64| Rlimit { current: Some(most), maximum: Some(most) };
    #[cfg(target_os = "linux")]
    {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        let above = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
        if above.is_none_or(|above| u64::from(above.unsigned_abs()) != parent) {
            return Err(io::Error::other("the caller is gone"));
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (parent, Signal::KILL);
    }
    rustix::process::setrlimit(Resource::Core, limit(0))?;
    rustix::process::setrlimit(Resource::Cpu, limit(seconds))?;
    Ok(())
}
