//! Access of a confined process, and the reaction if the host cannot enforce a promise.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{HeldRoot, ProcessLimits, Promise};

/// Kind of confinement of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confinement {
    /// Supervised, not confined.
    #[default]
    None,
    /// Its own namespaces and file system, Landlock and seccomp.
    Jail(JailSpec),
    /// Landlock and seccomp only. Cheaper, but the process can change metadata, reach unix sockets and see
    /// other processes.
    LandlockSeccomp(JailSpec),
}

impl Confinement {
    /// The name in an enforcement statement.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Jail(_) => "jail",
            Self::LandlockSeccomp(_) => "landlock-seccomp",
        }
    }

    pub fn jail_spec(&self) -> Option<&JailSpec> {
        match self {
            Self::None => None,
            Self::Jail(spec) | Self::LandlockSeccomp(spec) => Some(spec),
        }
    }

    /// Promises that a strict run requires: all promises of the specification that this kind of
    /// confinement can enforce.
    pub(super) fn promises(&self, limits: &ProcessLimits) -> Vec<Promise> {
        let mut promises = vec![Promise::TreeKill, Promise::EnvScrub, Promise::FdClose];
        if limits.has_any() {
            promises.push(Promise::Limits);
        }
        if limits.processes.is_some() {
            promises.push(Promise::ProcessLimit);
        }
        let Some(spec) = self.jail_spec() else { return promises };
        promises.extend([Promise::FsRead, Promise::FsWrite, Promise::KernelSurface, Promise::NoNewPrivs]);
        match &spec.net {
            Net::None if spec.ports.is_some() => promises.push(Promise::NetPorts),
            Net::None => promises.push(Promise::NetDeny),
            Net::Hosts(_) => promises.push(Promise::NetHosts),
            Net::Host => {}
        }
        if limits.has_tree_limits() {
            promises.push(Promise::TreeLimits);
        }
        if limits.disk.is_some() {
            promises.push(Promise::DiskLimit);
        }
        if !spec.deny.is_empty() {
            promises.push(Promise::FsDeny);
        }
        if !spec.deny_patterns.is_empty() {
            promises.push(Promise::FsDenyPatterns);
        }
        if !spec.protect.is_empty() || spec.protect_repositories {
            promises.push(Promise::FsProtect);
        }
        if spec.is_approved || !(spec.replaced.is_empty() && spec.uncopied.is_empty()) {
            promises.push(Promise::ApprovedFiles);
        }
        if matches!(self, Self::Jail(_)) {
            promises.extend([Promise::FsMetadata, Promise::UnixDeny, Promise::ProcessIsolation]);
        }
        promises.sort_unstable();
        promises
    }
}

/// Access of a confined process. All paths are absolute host paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JailSpec {
    /// Files and directories it may read and execute. A path that does not exist is skipped.
    pub read: Vec<PathBuf>,
    /// Files and directories it may also change. They must exist and be named by their real paths, because an
    /// earlier step could have left a symbolic link.
    pub write: Vec<PathBuf>,
    /// The entries of `read` and `write` that were made for this process alone. The process can reach them
    /// even inside hidden directories, where it sees nothing else.
    pub own: Vec<PathBuf>,
    /// The entries of `read`, `write` and `unix` that were opened when the policy judged them, by their real
    /// paths. The process is not started if another file is at such a path by then, or if a link leads to it.
    /// Open files cannot be serialised: the text form has a [`super::RootId`] for each.
    #[serde(skip)]
    pub held: Vec<HeldRoot>,
    /// Hidden paths, even inside the roots above.
    pub deny: Vec<PathBuf>,
    /// Patterns of hidden paths such as `**/.env`, `/srv/*/key` and `!**/.env.example`. They hide the
    /// matching files that are in the roots above when the process starts, but not files that the process
    /// makes later. The last pattern that covers a path decides.
    pub deny_patterns: Vec<String>,
    /// System trees. They are not searched, unless a root is inside or a pattern begins inside. If there are
    /// any, a jail also gets generated files from which programs read the names of users and hosts.
    pub system: Vec<PathBuf>,
    /// Read-only paths, even inside a write root. If a path does not exist yet, an empty placeholder is there
    /// during the run.
    pub protect: Vec<PathBuf>,
    /// Files that it sees read-only and with the content they had when they were approved. They must be
    /// inside the roots above and be named by their real paths.
    pub replaced: Vec<Replaced>,
    /// Approved files that it runs or sources in place, because no copy can replace them: the process writes
    /// them itself, or they are very large. The statement reports that their approved content is not enforced.
    pub uncopied: Vec<PathBuf>,
    /// Descriptions of what it may run, load and read without an approval. If there are any, the approved
    /// content is not enforced.
    pub uncovered: Vec<String>,
    /// True if a person approved it: the approval determines the roots, except for `uncovered`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_approved: bool,
    /// Refuses the run if `uncopied` or `uncovered` has entries. A degraded run lists the promise in its
    /// minimum instead.
    pub copies_only: bool,
    /// Layers over entries of `write`, which receive the changes of the process. They are made where the
    /// process is started and cannot be serialised either.
    #[serde(skip)]
    pub layers: Vec<Overlay>,
    /// Makes git directories in the write roots read-only. In a git directory that is itself a write root,
    /// only the files that make git run code are read-only. A write root inside a git directory stays
    /// writable.
    pub protect_repositories: bool,
    /// Unix sockets that it may connect to; other sockets in the roots are hidden. If there are any, it may
    /// also make its own sockets.
    pub unix: Vec<PathBuf>,
    /// It may make its own unix sockets, provided that it cannot reach the sockets of other processes:
    /// sockets in the roots are hidden, and abstract names are isolated. On a host without this isolation it
    /// may make none.
    pub own_sockets: bool,
    /// Private directories: empty, writable, in memory, and removed with the process. Without namespaces, one
    /// temporary directory named in `TMPDIR` replaces them all.
    pub private: Vec<PathBuf>,
    /// Bytes that each private directory may hold.
    pub private_size: u64,
    /// Refuses a strict run if the host cannot limit memory and processes of the whole tree. The limits are
    /// set wherever possible, but few hosts allow that to an ordinary user. A degraded run lists the promise
    /// in its minimum instead.
    pub tree_limits: bool,
    /// Network access.
    pub net: Net,
    /// A network that it shares only with other processes that name it. Requires [`Net::None`].
    pub ports: Option<Ports>,
    /// Reaction if the host cannot enforce a promise.
    pub mode: EnforcementMode,
}

/// A directory that the process sees with changes, or may change, while the original stays unchanged:
/// overlayfs stores the changes separately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlay {
    /// The directory: a write root or a read-only directory.
    pub root: PathBuf,
    /// The layer that already covers it, in the form of an overlayfs upper directory.
    pub below: Option<PathBuf>,
    /// Directory for the process's own changes; none if it may only read.
    pub upper: Option<Upper>,
    /// A copy that replaces the directory for the process where the kernel cannot mount a layer over it.
    /// `below` and `upper` are not used then.
    pub copy: Option<PathBuf>,
}

/// Directory for the changes of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upper {
    /// An empty directory.
    pub dir: PathBuf,
    /// Work directory that overlayfs requires on the same file system.
    pub work: PathBuf,
}

/// A host file that a confined process sees replaced by another file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replaced {
    /// Path at which the process sees it.
    pub path: PathBuf,
    /// The file that the process sees there, with the copy's own mode.
    pub copy: PathBuf,
}

impl JailSpec {
    /// True if a pattern hides this path.
    pub fn hides(&self, path: &std::path::Path) -> bool {
        use std::os::unix::ffi::OsStrExt;
        let Ok(patterns) = super::patterns::Patterns::new(&self.deny_patterns) else { return false };
        let names = path.iter().skip(1).map(OsStrExt::as_bytes);
        patterns.is_hit(&patterns.along_path(names))
    }

    /// True if sockets in the roots are searched for and hidden.
    pub(super) fn hides_sockets(&self) -> bool {
        self.own_sockets || !self.unix.is_empty()
    }

    /// The file or directory that was opened at this path when the policy judged it.
    pub(super) fn held_at(&self, path: &std::path::Path) -> Option<&HeldRoot> {
        self.held.iter().find(|held| held.path() == path)
    }

    pub(super) fn all_paths(&self) -> impl Iterator<Item = &PathBuf> {
        let replaced = self.replaced.iter().flat_map(|file| [&file.path, &file.copy]);
        [&self.read, &self.write, &self.own, &self.deny, &self.protect, &self.unix, &self.private]
            .into_iter()
            .flatten()
            .chain(replaced)
    }
}

impl Default for JailSpec {
    /// Reads nothing, writes only to private temporary directories, and has no network.
    fn default() -> Self {
        Self {
            read: Vec::new(),
            write: Vec::new(),
            own: Vec::new(),
            held: Vec::new(),
            deny: Vec::new(),
            deny_patterns: Vec::new(),
            system: Vec::new(),
            protect: Vec::new(),
            replaced: Vec::new(),
            uncopied: Vec::new(),
            uncovered: Vec::new(),
            is_approved: false,
            copies_only: false,
            layers: Vec::new(),
            protect_repositories: false,
            unix: Vec::new(),
            own_sockets: false,
            private: ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from).to_vec(),
            private_size: 512 << 20,
            tree_limits: false,
            net: Net::None,
            ports: None,
            mode: EnforcementMode::Strict,
        }
    }
}

/// A network with no way out, shared by the processes that name it at the same time. It exists as long as one
/// of them does, and has only TCP on the loopback interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ports {
    /// Its name.
    pub network: String,
    /// Ports on which this process may listen.
    pub listen: Vec<u16>,
    /// Ports to which it may connect, in addition to those on which it listens.
    pub connect: Vec<u16>,
}

/// Network access of a confined process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Net {
    /// Nothing.
    #[default]
    None,
    /// These hosts, through a proxy named in `HTTP_PROXY`, `HTTPS_PROXY` and `ALL_PROXY`; there is no other
    /// way out.
    Hosts(Vec<HostPort>),
    /// Everything that the host can reach.
    Host,
}

/// A reachable host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPort {
    /// A name, a name with a leading `*.` that matches all names below it, or an address. Private and local
    /// addresses are reached only if they are listed as addresses.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl HostPort {
    /// Parses `host:port`, with an IPv6 address in brackets.
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Self { host: host.trim_matches(['[', ']']).to_owned(), port: port.parse().ok()? })
    }

    /// True if this grant covers `host`, which must be in lower case and without a final dot.
    pub fn covers(&self, host: &str, port: u16) -> bool {
        let listed = self.host.trim_end_matches('.').to_ascii_lowercase();
        self.port == port
            && match listed.strip_prefix('*') {
                Some(below) => below.starts_with('.') && host.ends_with(below) && host.len() > below.len(),
                None => listed == host,
            }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Reaction if the host cannot enforce a promise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnforcementMode {
    /// Refuse to run.
    #[default]
    Strict,
    /// Run with the promises that can be enforced, provided that `minimum` is among them, and report the
    /// others.
    Degrade {
        /// Promises that must be enforced nevertheless.
        minimum: Vec<Promise>,
    },
}
