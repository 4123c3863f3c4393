//! What a confined process may reach, and what happens when the host cannot
//! hold the promise.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{HeldRoot, ProcessLimits, Promise};

/// How far the process is shut in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confinement {
    /// Supervised, not confined.
    #[default]
    None,
    /// Namespaces with a file system of its own, Landlock and seccomp.
    Jail(JailSpec),
    /// Landlock and seccomp only: cheaper, and leaves metadata, unix sockets
    /// and the sight of other processes open.
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

    pub fn spec(&self) -> Option<&JailSpec> {
        match self {
            Self::None => None,
            Self::Jail(spec) | Self::LandlockSeccomp(spec) => Some(spec),
        }
    }

    /// What must hold for a strict run: everything the specification asks
    /// for that the chosen kind of confinement can hold at all.
    pub(super) fn promises(&self, limits: &ProcessLimits) -> Vec<Promise> {
        let mut promises = vec![Promise::TreeKill, Promise::EnvScrub, Promise::FdClose];
        if limits.any() {
            promises.push(Promise::Limits);
        }
        if limits.processes.is_some() {
            promises.push(Promise::ProcessLimit);
        }
        let Some(spec) = self.spec() else { return promises };
        promises.extend([Promise::FsRead, Promise::FsWrite, Promise::KernelSurface, Promise::NoNewPrivs]);
        match &spec.net {
            Net::None if spec.ports.is_some() => promises.push(Promise::NetPorts),
            Net::None => promises.push(Promise::NetDeny),
            Net::Hosts(_) => promises.push(Promise::NetHosts),
            Net::Host => {}
        }
        if limits.tree() {
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

/// What a confined process may reach. All paths are absolute host paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JailSpec {
    /// Files and directories it may read and execute. One that does not exist is skipped.
    pub read: Vec<PathBuf>,
    /// Files and directories it may also change. They must exist, and be named
    /// by their real paths: an earlier step could have left a symbolic link.
    pub write: Vec<PathBuf>,
    /// Those of `read` and `write` that were made for this process alone. It finds them also where
    /// they lie in what is hidden, and nothing else there.
    pub own: Vec<PathBuf>,
    /// Those of `read`, `write` and `unix` that were opened when they were judged, by
    /// their real paths. If another file is at such a path when the process starts,
    /// or a link leads to it, the process is not started. Open files do not travel: in
    /// text they stand as [`super::RootId`]s beside this.
    #[serde(skip)]
    pub held: Vec<HeldRoot>,
    /// Hidden, also inside the roots above.
    pub deny: Vec<PathBuf>,
    /// Hidden too, as far as it is found in the roots above when the process
    /// starts: `**/.env`, `/srv/*/key`, `!**/.env.example`. The last pattern
    /// that covers a path decides. What the process itself makes later is its own.
    pub deny_patterns: Vec<String>,
    /// Trees of the system: nothing is looked for there, unless a root lies
    /// inside, or a pattern begins inside. A jail with any also gets the files
    /// by which programs know users and hosts, made for it.
    pub system: Vec<PathBuf>,
    /// Read-only, also inside a write root, and also when they do not exist
    /// yet: an empty placeholder then stands there during the run.
    pub protect: Vec<PathBuf>,
    /// Files that it sees with the content they had when they were approved,
    /// read-only. They must lie inside the roots above and be named by their
    /// real paths.
    pub replaced: Vec<Replaced>,
    /// Files of an approval that it runs or sources and finds as they are, since no copy can
    /// stand in their places: it writes them itself, or they are very large. The statement
    /// says that what was approved is not held for these.
    pub uncopied: Vec<PathBuf>,
    /// What it may run, load and read that no approval covers, in words: then what was approved
    /// is not held.
    pub uncovered: Vec<String>,
    /// True if a person approved it: the roots are what was approved, but for what is in `uncovered`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_approved: bool,
    /// Whether a run is refused where `uncopied` or `uncovered` names anything. A degraded run
    /// says so in its minimum.
    pub copies_only: bool,
    /// Layers over roots of `write`: what the process changes there stays in them. They are
    /// made where the process is started, so they do not travel either.
    #[serde(skip)]
    pub layers: Vec<Overlay>,
    /// Whether git's directories that are found in the write roots are
    /// read-only. One that is itself a write root may be written but for what
    /// makes git run code; a write root inside of one stays a write root.
    pub protect_repositories: bool,
    /// The unix sockets that it may connect to; other sockets in the roots are hidden. With any, it
    /// may also make sockets of its own.
    pub unix: Vec<PathBuf>,
    /// It may make unix sockets of its own, as long as it finds none of anybody else: the sockets in the
    /// roots are hidden, and abstract names are kept apart. Where that cannot be, it makes none.
    pub own_sockets: bool,
    /// Directories that are its own: empty, writable, in memory, gone with it.
    /// Where they cannot be (without namespaces), one temporary directory
    /// stands in for all, named in `TMPDIR`.
    pub private: Vec<PathBuf>,
    /// Bytes that each private directory may hold.
    pub private_size: u64,
    /// Whether a strict run is refused where memory and processes cannot be
    /// bounded for the tree as a whole. They are wherever they can, and few
    /// hosts let an ordinary user do it. A degraded run says so in its minimum.
    pub tree_limits: bool,
    /// What it may talk to.
    pub net: Net,
    /// With [`Net::None`]: a network that it shares with other processes, and
    /// with nobody else.
    pub ports: Option<Ports>,
    /// What to do when the host cannot hold a promise.
    pub mode: Mode,
}

/// A directory that a process finds changed, or may change, without its being changed: overlayfs
/// keeps apart what is done there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlay {
    /// The directory: one of the write roots, or one that is only read.
    pub root: PathBuf,
    /// What lies over it already, in the form that overlayfs gives an upper directory.
    pub below: Option<PathBuf>,
    /// Where the process's own changes go. One that is only read has none.
    pub upper: Option<Upper>,
    /// A copy of it that the process finds in its place, where the kernel lays nothing over it. The other two are
    /// not used then.
    pub copy: Option<PathBuf>,
}

/// Where the changes of a process go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upper {
    /// An empty directory.
    pub dir: PathBuf,
    /// What the kernel needs beside it, on the same file system.
    pub work: PathBuf,
}

/// A file of the host's that a confined process finds another one in place of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replaced {
    /// Where the process finds it.
    pub path: PathBuf,
    /// What it finds there, with the mode that this has.
    pub copy: PathBuf,
}

impl JailSpec {
    /// Whether a pattern hides this path where it is found.
    pub fn hides(&self, path: &std::path::Path) -> bool {
        use std::os::unix::ffi::OsStrExt;
        let Ok(patterns) = super::patterns::Patterns::new(&self.deny_patterns) else { return false };
        let names = path.iter().skip(1).map(OsStrExt::as_bytes);
        patterns.is_hit(&patterns.along(names))
    }

    /// Sockets are looked for in the roots, and hidden.
    pub(super) fn hides_sockets(&self) -> bool {
        self.own_sockets || !self.unix.is_empty()
    }

    /// What was opened at this path when it was judged.
    pub(super) fn held_at(&self, path: &std::path::Path) -> Option<&HeldRoot> {
        self.held.iter().find(|held| held.path() == path)
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        let replaced = self.replaced.iter().flat_map(|file| [&file.path, &file.copy]);
        [&self.read, &self.write, &self.own, &self.deny, &self.protect, &self.unix, &self.private]
            .into_iter()
            .flatten()
            .chain(replaced)
    }
}

impl Default for JailSpec {
    /// Reads nothing, writes nothing outside private temporary directories, talks to nobody.
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
            mode: Mode::Strict,
        }
    }
}

/// A network without a way out, for those that name the same one at the same
/// time: it is there as long as one of them is. TCP on the loopback interface
/// is all there is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ports {
    /// Its name.
    pub network: String,
    /// Where this process may listen.
    pub listen: Vec<u16>,
    /// Where it may connect to; to where it listens it may too.
    pub connect: Vec<u16>,
}

/// What a confined process may talk to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Net {
    /// Nothing.
    #[default]
    None,
    /// These, through a proxy named in `HTTP_PROXY`, `HTTPS_PROXY` and
    /// `ALL_PROXY`; there is no other way out.
    Hosts(Vec<HostPort>),
    /// Whatever the host can.
    Host,
}

/// A host that may be reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPort {
    /// A name, a name with a leading `*.` for all below it, or an address.
    /// Private and local addresses are reached only if listed as addresses.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl HostPort {
    /// `host:port`, with an IPv6 address in brackets.
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Self { host: host.trim_matches(['[', ']']).to_owned(), port: port.parse().ok()? })
    }

    /// Whether a grant of this reaches `host`, in lower case and without a dot at its end.
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

/// What to do when the host cannot hold a promise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Refuse to run.
    #[default]
    Strict,
    /// Run with what can be held, if these promises hold at least, and say what does not.
    Degrade {
        /// What must hold all the same.
        minimum: Vec<Promise>,
    },
}
