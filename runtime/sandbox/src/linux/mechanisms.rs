//! The available kernel mechanisms, and the promises that they enforce.

use std::path::PathBuf;

use super::super::{
    Confinement, EnforcementMode, JailSpec, Mechanism, Missing, Net, ProcessLimits, Promise, SpawnError,
};
use super::landlock;

/// One kernel mechanism that a host may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wall {
    Namespaces,
    Landlock,
    Seccomp,
    /// A limit on the process numbers of a namespace, for root, whom `RLIMIT_NPROC` does not restrict.
    ProcessNumbers,
    /// A control group for the step.
    ControlGroup,
}

impl Wall {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Landlock => "Landlock",
            Self::Seccomp => "seccomp",
            Self::ProcessNumbers => "pid_max per namespace",
            Self::ControlGroup => "control groups",
        }
    }
}

/// The mechanisms that one run uses, and the reasons why it does not use the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Walls {
    pub(super) standing: Vec<Wall>,
    pub(super) fallen: Vec<(Wall, String)>,
    /// Promises that cannot be made to this run although the mechanisms are available.
    pub(super) open: Vec<Missing>,
    /// This run may be able to reach sockets of other processes, so it makes no socket.
    pub(super) sockets_in_sight: bool,
}

/// First version of Landlock with rules for ports.
const PORTS: u32 = 4;

/// First version of Landlock that blocks abstract sockets and signals to processes outside.
const SCOPES: u32 = 6;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Reason why not all files of an approval are enforced.
fn why_uncopied(paths: &[PathBuf]) -> String {
    let shown: Vec<_> = paths.iter().take(3).map(|path| path.display().to_string()).collect();
    let more = paths.len().saturating_sub(shown.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(
        "no copy can replace {}{more}, which the step may write or which is too large: compared at \
         the start, and watched",
        shown.join(", ")
    )
}

impl Walls {
    /// All mechanisms of the confinement, except for the known gaps of this host.
    pub(super) fn wanted_for(
        confinement: &Confinement,
        limits: &ProcessLimits,
        lacking: &[(Wall, String)],
    ) -> Self {
        let mut standing = match confinement {
            Confinement::None => Vec::new(),
            Confinement::Jail(_) => vec![Wall::Namespaces, Wall::Landlock, Wall::Seccomp],
            Confinement::LandlockSeccomp(_) => vec![Wall::Landlock, Wall::Seccomp],
        };
        if matches!(confinement, Confinement::Jail(_)) && limits.processes.is_some() && is_root() {
            standing.push(Wall::ProcessNumbers);
        }
        if confinement.jail_spec().is_some() && limits.has_tree_limits() {
            standing.push(Wall::ControlGroup);
        }
        let mut walls = Self { standing, fallen: Vec::new(), ..Self::default() };
        for (wall, why) in lacking {
            walls.remove_wall(*wall, why);
        }
        walls
    }

    pub(super) fn has(&self, wall: Wall) -> bool {
        self.standing.contains(&wall)
    }

    /// Removes `wall`; false if it was not there.
    pub(super) fn remove_wall(&mut self, wall: Wall, why: &str) -> bool {
        let had = self.has(wall);
        if had {
            self.standing.retain(|standing| *standing != wall);
            self.fallen.push((wall, why.to_owned()));
        }
        had
    }

    /// True if the network namespace or Landlock isolates abstract names of unix sockets.
    fn keeps_names_apart(&self, spec: &JailSpec) -> bool {
        let own_network = spec.net != Net::Host && spec.ports.is_none();
        self.has(Wall::Namespaces) && (own_network || self.has_scopes())
    }

    fn has_scopes(&self) -> bool {
        self.has(Wall::Landlock) && landlock::version() >= Some(SCOPES)
    }

    /// True if the step may make unix sockets.
    pub(super) fn allows_sockets(&self, spec: &JailSpec) -> bool {
        !spec.unix.is_empty() || (spec.own_sockets && !self.sockets_in_sight && self.keeps_names_apart(spec))
    }

    /// Mechanisms that enforce `promise` now; empty if it is not enforced.
    fn mechanisms_for(&self, promise: Promise, spec: Option<&JailSpec>) -> Vec<Mechanism> {
        let namespaces = self.has(Wall::Namespaces);
        let own_network = spec.is_some_and(|spec| spec.net != Net::Host && spec.ports.is_none());
        let scoped = self.has_scopes();
        let candidates: &[(bool, Mechanism)] = match promise {
            Promise::FsRead | Promise::FsWrite => {
                &[(namespaces, Mechanism::MountNamespace), (self.has(Wall::Landlock), Mechanism::Landlock)]
            }
            Promise::FsMetadata
            | Promise::FsDeny
            | Promise::FsProtect
            | Promise::FsDenyPatterns
            | Promise::ApprovedFiles => &[(namespaces, Mechanism::MountNamespace)],
            // A process that cannot make unix sockets reaches none.
            Promise::UnixDeny if spec.is_some_and(|spec| !self.allows_sockets(spec)) => {
                &[(self.has(Wall::Seccomp), Mechanism::Seccomp)]
            }
            Promise::UnixDeny => &[
                (spec.is_some_and(|spec| self.keeps_names_apart(spec)), Mechanism::MountNamespace),
                (namespaces && own_network, Mechanism::NetNamespace),
                (namespaces && scoped, Mechanism::Landlock),
            ],
            Promise::NetDeny => {
                &[(namespaces, Mechanism::NetNamespace), (self.has(Wall::Seccomp), Mechanism::Seccomp)]
            }
            // Each blocks traffic that the others let through.
            Promise::NetPorts => {
                let known = landlock::version() >= Some(PORTS);
                if namespaces && known && self.has(Wall::Landlock) && self.has(Wall::Seccomp) {
                    &[
                        (true, Mechanism::NetNamespace),
                        (true, Mechanism::Landlock),
                        (true, Mechanism::Seccomp),
                    ]
                } else {
                    &[]
                }
            }
            Promise::NetHosts => &[(namespaces, Mechanism::NetNamespace), (namespaces, Mechanism::Proxy)],
            Promise::ProcessIsolation => &[(namespaces, Mechanism::PidNamespace)],
            Promise::KernelSurface => &[(self.has(Wall::Seccomp), Mechanism::Seccomp)],
            Promise::NoNewPrivs => &[(true, Mechanism::NoNewPrivs)],
            Promise::TreeKill => {
                &[(namespaces, Mechanism::PidNamespace), (!namespaces, Mechanism::Subreaper)]
            }
            Promise::EnvScrub => &[(true, Mechanism::Exec)],
            Promise::FdClose => &[(true, Mechanism::CloseRange)],
            Promise::Limits => &[(true, Mechanism::Rlimit)],
            // Only a control group measures a whole tree.
            Promise::TreeLimits => &[(self.has(Wall::ControlGroup), Mechanism::ControlGroup)],
            Promise::DiskLimit => &[(true, Mechanism::Watch)],
            Promise::ProcessLimit => &[
                (self.has(Wall::ControlGroup), Mechanism::ControlGroup),
                (!is_root(), Mechanism::Rlimit),
                (namespaces && self.has(Wall::ProcessNumbers), Mechanism::PidNamespace),
            ],
        };
        candidates.iter().filter(|(holds, _)| *holds).map(|(_, mechanism)| *mechanism).collect()
    }

    /// Splits the promises of the run into enforced and missing ones.
    pub(super) fn split_promises(
        &self,
        confinement: &Confinement,
        limits: &ProcessLimits,
    ) -> (Vec<(Promise, Vec<Mechanism>)>, Vec<Missing>) {
        let (mut held, mut missing) = (Vec::new(), Vec::new());
        for promise in confinement.promises(limits) {
            let mechanisms = self.mechanisms_for(promise, confinement.jail_spec());
            let open: Vec<&str> = self
                .open
                .iter()
                .filter(|open| open.promise == promise)
                .map(|open| open.why.as_str())
                .collect();
            let approved = confinement.jail_spec().filter(|_| promise == Promise::ApprovedFiles);
            let uncopied = approved.map_or(&[][..], |spec| &spec.uncopied);
            let uncovered = approved.map_or(&[][..], |spec| &spec.uncovered);
            if !mechanisms.is_empty() && !uncopied.is_empty() {
                missing.push(Missing { promise, why: why_uncopied(uncopied) });
            } else if !mechanisms.is_empty() && !uncovered.is_empty() {
                let why = format!("the approval does not cover {}", uncovered.join("; "));
                missing.push(Missing { promise, why });
            } else if !mechanisms.is_empty() && !open.is_empty() {
                missing.push(Missing { promise, why: open.join("; ") });
            } else if mechanisms.is_empty() {
                missing.push(Missing { promise, why: self.why_not(promise) });
            } else {
                held.push((promise, mechanisms));
            }
        }
        (held, missing)
    }

    fn why_not(&self, promise: Promise) -> String {
        if promise == Promise::ProcessLimit {
            return "the kernel limits the processes of root only in a jail on Linux 6.14 or later; \
                    run lobster as another user"
                .into();
        }
        let compared = "the files were compared when the step started, and watched, but no copy of the \
                        approved content replaced them";
        // A control group cannot replace the other mechanisms, nor they a control group.
        let reasons: Vec<String> = self
            .fallen
            .iter()
            .filter(|(wall, _)| (*wall == Wall::ControlGroup) == (promise == Promise::TreeLimits))
            .map(|(wall, why)| format!("{}: {why}", wall.name()))
            .collect();
        if promise == Promise::ApprovedFiles {
            format!("{compared}: {}", reasons.join(", "))
        } else if reasons.is_empty() {
            "no mechanism of the chosen confinement enforces it on this kernel".into()
        } else {
            reasons.join(", ")
        }
    }

    /// Refuses the run if less is enforced than the mode requires.
    pub(super) fn check_mode(
        &self,
        confinement: &Confinement,
        limits: &ProcessLimits,
    ) -> Result<(), SpawnError> {
        let Some(spec) = confinement.jail_spec() else { return Ok(()) };
        if !spec.layers.is_empty() && !self.has(Wall::Namespaces) {
            let lack = self.fallen.iter().find(|(wall, _)| *wall == Wall::Namespaces);
            let why = lack.map_or("there is no mount namespace", |(_, why)| why);
            return Err(SpawnError::Layer { why: format!("this host allows no namespaces ({why})") });
        }
        let (_, mut missing) = self.split_promises(confinement, limits);
        match &spec.mode {
            EnforcementMode::Strict => {
                missing.retain(|missing| match missing.promise {
                    Promise::TreeLimits => spec.tree_limits,
                    // The approver was informed, unless the host is the reason why there are no copies.
                    Promise::ApprovedFiles => spec.copies_only || !self.has(Wall::Namespaces),
                    _ => true,
                });
            }
            EnforcementMode::Degrade { minimum } => {
                missing.retain(|missing| minimum.contains(&missing.promise))
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(SpawnError::Sandbox { missing }) }
    }
}
