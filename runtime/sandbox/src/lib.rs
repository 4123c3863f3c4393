//! Starting, confining, supervising and killing native processes.
//!
//! The only place that starts a process. A small helper (this same binary,
//! forked off or executed as `lobster __sandbox`) forks supervisors; a step's
//! supervisor adopts everything the step leaves behind and ends all of it
//! when the step is over, is killed, or when lobster itself is gone.
//!
//! This room never decides whether something may run; it runs what it is
//! given, confined as it is told, and says what it could enforce.

mod confinement;
mod doctor;
mod enforcement;
mod opened_roots;
mod outcome;
mod patterns;
#[cfg(target_os = "linux")]
mod proxy;
mod request;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(any(test, not(target_os = "linux")))]
#[cfg_attr(target_os = "linux", expect(dead_code, reason = "on Linux compiled for its tests"))]
mod portable;

#[cfg(target_os = "linux")]
use linux as platform;
#[cfg(not(target_os = "linux"))]
use portable as platform;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

pub use confinement::{Confinement, HostPort, JailSpec, Mode, Net, Overlay, Ports, Replaced, Upper};
pub use doctor::{Checkup, Finding, Probe, Verdict};
pub use enforcement::{Denial, Enforcement, Lacking, Mechanism, Missing, Promise};
pub use opened_roots::{HeldRoot, RootId};
pub use outcome::{Ended, Exit, ExitStatus, OutputSinks, SpawnError, Stream};
pub use request::{ProcessLimits, SpawnRequest, Stdin, UPSTREAM, Upstream};

use lobster_base::cancel::CancelToken;

/// The first argument that turns this binary into the sandbox helper.
pub const HELPER_ARGUMENT: &str = "__sandbox";

/// How the helper process is started.
#[derive(Clone, Debug)]
pub struct SandboxConfig {
    /// The program that calls [`helper_main`].
    pub helper: PathBuf,
    /// Its arguments.
    pub helper_args: Vec<OsString>,
}

impl Default for SandboxConfig {
    /// This very executable, also when its file has been replaced meanwhile.
    fn default() -> Self {
        let helper = if cfg!(target_os = "linux") {
            PathBuf::from("/proc/self/exe")
        } else {
            std::env::current_exe().unwrap_or_default()
        };
        Self { helper, helper_args: vec![OsString::from(HELPER_ARGUMENT)] }
    }
}

/// Runs native processes. One per lobster process, shared by all threads;
/// the helper starts at the first run and is started anew if it dies.
#[derive(Debug)]
pub struct Sandbox(platform::Sandbox);

impl Sandbox {
    /// Costs nothing until the first [`Sandbox::run`].
    #[must_use]
    pub fn new(config: SandboxConfig) -> Self {
        Self(platform::Sandbox::new(config))
    }

    /// Starts the helper now, so that it comes up while other preparations go
    /// on; the one for confined processes, or the one for others.
    pub fn warm(&self, confined: bool) {
        self.0.warm(confined);
    }

    /// Runs one process to its end and hands its output to `sinks` as it comes.
    ///
    /// Returns when the process and everything it started is gone: after its
    /// own end (leftovers get [`ProcessLimits::linger`]), after `cancel`
    /// (SIGTERM, then SIGKILL after [`ProcessLimits::term_grace`], at once
    /// when forced), at the wall limit, or when an output cap is exceeded.
    ///
    /// # Errors
    /// When nothing was started (program or directory missing, not permitted,
    /// too big, a promised control missing), when a sink failed, or when the
    /// supervision itself broke; the tree is dead then too.
    pub fn run(
        &self,
        request: &SpawnRequest,
        sinks: &mut dyn OutputSinks,
        cancel: &CancelToken,
    ) -> Result<Exit, SpawnError> {
        request.check()?;
        if let Some(reason) = cancel.reason() {
            return Err(SpawnError::Cancelled { reason: reason.message() });
        }
        let program = request.argv.first().map(|program| program.display());
        let _span = tracing::info_span!(
            "sandbox",
            program = program.map(tracing::field::display),
            confinement = request.confinement.name()
        )
        .entered();
        let result = self.0.run(request, sinks, cancel);
        match &result {
            Ok(exit) => {
                tracing::debug!(status = ?exit.status, ended = ?exit.ended, wall = ?exit.wall, "gone")
            }
            Err(error) => tracing::debug!(%error, "not run"),
        }
        result
    }
}

impl Sandbox {
    /// What this host can hold, found out by doing it. Costs two confined starts.
    ///
    /// # Errors
    /// When not even an unconfined process can be supervised.
    pub fn probe(&self) -> Result<Probe, SpawnError> {
        self.0.probe()
    }

    /// Attacks a jail of this host from inside, with victims set up for it.
    /// The attacker is this very executable, which must call [`helper_main`].
    ///
    /// # Errors
    /// When the victims cannot be set up or the attacker cannot be run.
    pub fn doctor(&self) -> Result<Checkup, SpawnError> {
        self.0.doctor()
    }
}

/// The helper's `main`: what the binary does when its first argument is
/// [`HELPER_ARGUMENT`]. Must be called before any thread is started.
#[must_use]
pub fn helper_main() -> ExitCode {
    platform::helper_main()
}

/// Forks the helper off this process, for the first [`Sandbox`] that needs one:
/// a millisecond sooner than by starting this executable again. For a `main`
/// that is about to run something unconfined: jails are made by one that was
/// started anew, whose memory and command line tell nothing of this process.
///
/// # Errors
/// When there is more than one thread already, or no process can be made. The
/// helper is then started when it is needed.
pub fn fork_helper() -> std::io::Result<()> {
    platform::fork_helper()
}

/// Lets the helper of [`fork_helper`] end if nothing has used it, even if somebody has stopped it. For a process that is about
/// to exit.
pub fn release_helper() {
    platform::release_helper();
}

#[cfg(test)]
mod tests;
