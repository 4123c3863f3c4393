//! Starting, confining, supervising and killing native processes.
//!
//! The only place that starts a process. A small helper (this same binary, forked off or executed as `lobster
//! __sandbox`) forks supervisors. A step's supervisor adopts every process that the step leaves running, and
//! ends all of them when the step is over, is killed, or when lobster itself is gone.
//!
//! This crate never decides whether something may run: it runs the given process with the given confinement,
//! and reports what it could enforce.

mod confinement;
mod doctor;
mod enforcement;
mod opened_roots;
mod outcome;
mod patterns;
mod placeholders;
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

pub use confinement::{
    Confinement, EnforcementMode, HostPort, JailSpec, Net, Overlay, Ports, Replaced, Upper,
};
pub use doctor::{Checkup, Finding, Probe, ProbeVerdict};
pub use enforcement::{Denial, Enforcement, Lacking, Mechanism, Missing, Promise};
pub use opened_roots::{HeldRoot, RootId};
pub use outcome::{Ended, Exit, ExitStatus, OutputSinks, SpawnError, Stream};
pub use placeholders::HeldPlaceholders;
pub use request::{ProcessLimits, SpawnRequest, Stdin, UPSTREAM, Upstream};

use lobster_base::cancel::CancelToken;

/// The first argument that turns this binary into the sandbox helper.
pub const HELPER_ARGUMENT: &str = "__sandbox";

/// Command that starts the helper process.
#[derive(Clone, Debug)]
pub struct SandboxConfig {
    /// The program that calls [`helper_main`].
    pub helper: PathBuf,
    /// Its arguments.
    pub helper_args: Vec<OsString>,
}

impl Default for SandboxConfig {
    /// This very executable, even if its file has been replaced meanwhile.
    fn default() -> Self {
        let helper = if cfg!(target_os = "linux") {
            PathBuf::from("/proc/self/exe")
        } else {
            std::env::current_exe().unwrap_or_default()
        };
        Self { helper, helper_args: vec![OsString::from(HELPER_ARGUMENT)] }
    }
}

/// Runs native processes. There is one per lobster process, shared by all threads; the helper starts at the
/// first run and is restarted if it dies.
#[derive(Debug)]
pub struct Sandbox(platform::Sandbox);

impl Sandbox {
    /// Starts nothing until the first [`Sandbox::run`].
    #[must_use]
    pub fn new(config: SandboxConfig) -> Self {
        Self(platform::Sandbox::new(config))
    }

    /// Starts the helper for confined or for other processes now, so that it comes up during other
    /// preparations.
    pub fn warm_up(&self, confined: bool) {
        self.0.warm_up(confined);
    }

    /// Runs one process until it ends and passes its output to `sinks` as it arrives.
    ///
    /// Returns when the process and everything it started is gone: after its own end (leftovers get
    /// [`ProcessLimits::linger`]), after `cancel` (SIGTERM, then SIGKILL after [`ProcessLimits::term_grace`],
    /// at once when forced), at the wall limit, or when an output cap is exceeded.
    ///
    /// # Errors
    /// If nothing was started (program or directory missing, not permitted, too big, a promised control
    /// missing), if a sink failed, or if the supervision itself broke. The tree is dead in the last two cases
    /// as well.
    pub fn run(
        &self,
        request: &SpawnRequest,
        sinks: &mut dyn OutputSinks,
        cancel: &CancelToken,
    ) -> Result<Exit, SpawnError> {
        request.check_strings()?;
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
    /// Makes the placeholders for the missing protected paths of a jail before its process starts, and keeps
    /// them until the returned value is dropped. Meanwhile neither the start nor the end of a process changes
    /// the directories around them, so their times show the changes of others.
    #[must_use]
    pub fn hold_placeholders(&self, spec: &JailSpec) -> HeldPlaceholders {
        HeldPlaceholders(self.0.hold_placeholders(spec))
    }

    /// Capabilities of this host, found by trying them. Costs two confined starts.
    ///
    /// # Errors
    /// If not even an unconfined process can be supervised.
    pub fn probe_host(&self) -> Result<Probe, SpawnError> {
        self.0.probe_host()
    }

    /// Attacks a jail of this host from inside, with targets prepared for it. The attacker is this very
    /// executable, which must call [`helper_main`].
    ///
    /// # Errors
    /// If the targets cannot be prepared or the attacker cannot be run.
    pub fn attack_jail(&self) -> Result<Checkup, SpawnError> {
        self.0.attack_jail()
    }
}

/// The helper's `main`, which the binary calls if its first argument is [`HELPER_ARGUMENT`]. Must be called
/// before any thread is started.
#[must_use]
pub fn helper_main() -> ExitCode {
    platform::helper_main()
}

/// Forks the helper off this process for the first [`Sandbox`] that needs one, a millisecond sooner than by
/// starting this executable again. For a `main` that is about to run something unconfined: jails are made by
/// a helper that was started separately, whose memory and command line reveal nothing about this process.
///
/// # Errors
/// If there is more than one thread already, or no process can be made. The helper is then started when it is
/// needed.
pub fn fork_helper() -> std::io::Result<()> {
    platform::fork_helper()
}

/// Lets the helper of [`fork_helper`] end if it was never used, even if it has been stopped by a signal. For
/// a process that is about to exit.
pub fn release_helper() {
    platform::release_helper();
}

#[cfg(test)]
mod tests;
