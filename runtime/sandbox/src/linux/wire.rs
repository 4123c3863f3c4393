//! Messages between lobster and a supervisor. Both ends are the same binary, so the format is private and has
//! no version.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::super::opened_roots::FileId;
use super::super::{ExitStatus, HostPort, JailSpec, Net, ProcessLimits, SpawnRequest, proxy};
use super::mechanisms::{Wall, Walls};
use super::sweep::SweptProcess;

/// A job, as read by the supervisor.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) argv: Vec<Vec<u8>>,
    /// `NAME=value` each.
    pub(super) env: Vec<Vec<u8>>,
    pub(super) cwd: Vec<u8>,
    pub(super) linger: Duration,
    /// Resource number (as in [`super::launch::LIMITS`]) and its limit.
    pub(super) limits: Vec<(u8, u64)>,
    pub(super) confined: Option<Confined>,
    /// Kind of the descriptors after the standard three.
    pub(super) groups: Groups,
    /// Bytes that may be added to the write roots.
    pub(super) disk: Option<u64>,
}

/// Way by which the step enters its control groups, with the descriptors that come with the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Groups {
    /// It has no control groups.
    None,
    /// See [`super::cgroup::Entrance::Directory`].
    Directory,
    /// See [`super::cgroup::Entrance::Tasks`].
    Tasks,
}

/// The confinement of a job, as the supervisor builds it. The namespaces are
/// made by the helper before the job is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Confined {
    pub(super) landlock: bool,
    pub(super) seccomp: bool,
    /// True if it may make unix sockets.
    pub(super) unix: bool,
    /// See [`JailSpec::system`].
    #[serde(with = "paths")]
    pub(super) system: Vec<PathBuf>,
    #[serde(with = "paths")]
    pub(super) read: Vec<PathBuf>,
    #[serde(with = "paths")]
    pub(super) write: Vec<PathBuf>,
    #[serde(with = "paths")]
    pub(super) own: Vec<PathBuf>,
    pub(super) held: Vec<Held>,
    #[serde(with = "paths")]
    pub(super) deny: Vec<PathBuf>,
    #[serde(with = "paths")]
    pub(super) protect: Vec<PathBuf>,
    /// See [`super::super::Replaced`].
    #[serde(with = "paths")]
    pub(super) replaced: Vec<PathBuf>,
    /// Copies for the paths of `replaced`, in the same order.
    #[serde(with = "paths")]
    pub(super) copies: Vec<PathBuf>,
    /// See [`super::super::Overlay`]: root, lower layer, upper and work directory and copy of each, one after
    /// the other. A missing path is empty.
    #[serde(with = "paths")]
    layers: Vec<PathBuf>,
    #[serde(with = "paths")]
    pub(super) private: Vec<PathBuf>,
    pub(super) private_size: u64,
    pub(super) network: Network,
    /// Hosts of [`Network::Proxy`].
    pub(super) hosts: Vec<HostPort>,
    /// True if a service answers at [`super::super::UPSTREAM`].
    pub(super) upstream: bool,
    /// Ports of a shared network.
    pub(super) listen: Vec<u16>,
    pub(super) connect: Vec<u16>,
    /// Processes in the namespace, if its process numbers are to limit them.
    pub(super) processes: Option<u64>,
}

/// See [`super::super::Overlay`].
#[derive(Clone, Copy)]
pub(super) struct WireLayer<'c> {
    pub(super) root: &'c Path,
    pub(super) below: Option<&'c Path>,
    /// The upper and the work directory.
    pub(super) upper: Option<(&'c Path, &'c Path)>,
    /// The copy that replaces it.
    pub(super) copy: Option<&'c Path>,
}

/// A path and the file that must be there, because the policy judged it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Held {
    pub(super) path: OsString,
    pub(super) id: FileId,
}

/// Network of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Network {
    None,
    Proxy,
    Host,
    /// Made by another supervisor and shared.
    Shared,
}

impl Confined {
    fn new(spec: &JailSpec, found: &SweptProcess, limits: &ProcessLimits, walls: &Walls) -> Self {
        let stand_ins = found.stand_ins.iter().map(|(path, _)| path);
        Self {
            landlock: walls.has(Wall::Landlock),
            seccomp: walls.has(Wall::Seccomp),
            unix: walls.allows_sockets(spec),
            system: spec.system.clone(),
            read: spec.read.iter().chain(&spec.unix).cloned().collect(),
            write: spec.write.clone(),
            own: spec.own.clone(),
            held: (spec.held.iter())
                .map(|held| Held { path: held.path().into(), id: held.file_id() })
                .collect(),
            deny: spec.deny.iter().chain(&found.deny).cloned().collect(),
            protect: spec.protect.iter().chain(&found.protect).chain(stand_ins).cloned().collect(),
            replaced: spec.replaced.iter().map(|file| file.path.clone()).collect(),
            copies: spec.replaced.iter().map(|file| file.copy.clone()).collect(),
            layers: spec
                .layers
                .iter()
                .flat_map(|layer| {
                    let (upper, work) =
                        layer.upper.clone().map(|upper| (upper.dir, upper.work)).unwrap_or_default();
                    let [below, copy] =
                        [&layer.below, &layer.copy].map(|path| path.clone().unwrap_or_default());
                    [layer.root.clone(), below, upper, work, copy]
                })
                .collect(),
            private: spec.private.clone(),
            private_size: limits.disk.map_or(spec.private_size, |disk| disk.min(spec.private_size)),
            listen: spec.ports.iter().flat_map(|ports| ports.listen.clone()).collect(),
            connect: spec.ports.iter().flat_map(|ports| ports.connect.clone()).collect(),
            network: match spec.net {
                Net::None if spec.ports.is_some() => Network::Shared,
                Net::None => Network::None,
                Net::Hosts(_) => Network::Proxy,
                Net::Host => Network::Host,
            },
            hosts: match &spec.net {
                Net::Hosts(hosts) => hosts.clone(),
                Net::None | Net::Host => Vec::new(),
            },
            upstream: false,
            processes: limits.processes.filter(|_| walls.has(Wall::ProcessNumbers)),
        }
    }

    /// The file that must be at this path, if the policy judged it.
    pub(super) fn held_at(&self, path: &Path) -> Option<FileId> {
        self.held.iter().find(|held| held.path == path).map(|held| held.id)
    }

    /// All layers.
    pub(super) fn all_layers(&self) -> impl Iterator<Item = WireLayer<'_>> {
        fn non_empty(path: &Path) -> Option<&Path> {
            Some(path).filter(|path| !path.as_os_str().is_empty())
        }
        self.layers.chunks_exact(5).map(|paths| WireLayer {
            root: &paths[0],
            below: non_empty(&paths[1]),
            upper: non_empty(&paths[2]).zip(non_empty(&paths[3])),
            copy: non_empty(&paths[4]),
        })
    }

    /// The layer over this root, if there is one.
    pub(super) fn layer_at(&self, path: &Path) -> Option<WireLayer<'_>> {
        self.all_layers().find(|layer| layer.root == path)
    }

    /// The layer that receives changes at this path, if there is one.
    pub(super) fn layer_over(&self, path: &Path) -> Option<WireLayer<'_>> {
        self.all_layers().find(|layer| path.starts_with(layer.root))
    }
}

impl Job {
    pub(super) fn from_request(request: &SpawnRequest, found: &SweptProcess, walls: &Walls) -> Self {
        let limits = &request.limits;
        let cpu = limits.cpu.map(|cpu| cpu.as_secs() + u64::from(cpu.subsec_nanos() > 0));
        // It limits reserved memory, and JavaScript engines reserve much more than they use.
        let data = limits.memory.filter(|_| !walls.has(Wall::ControlGroup));
        let values = [cpu, data, limits.processes, limits.file_size, limits.open_files];
        Self {
            argv: request.argv.iter().map(|arg| arg.as_bytes().to_vec()).collect(),
            env: step_environment(request, walls),
            cwd: request.cwd.as_os_str().as_bytes().to_vec(),
            linger: limits.linger,
            limits: (0u8..).zip(values).filter_map(|(number, value)| Some((number, value?))).collect(),
            confined: request.confinement.jail_spec().map(|spec| Confined {
                upstream: request.upstream.is_some(),
                ..Confined::new(spec, found, limits, walls)
            }),
            groups: Groups::None,
            disk: limits.disk.filter(|_| request.confinement.jail_spec().is_some()),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        encode_message(self)
    }

    pub(super) fn decode(bytes: &[u8]) -> io::Result<Self> {
        decode_message(bytes)
    }
}

/// The environment as given, and in a jail with granted hosts the proxy's variables.
fn step_environment(request: &SpawnRequest, walls: &Walls) -> Vec<Vec<u8>> {
    let proxy = match request.confinement.jail_spec().map(|spec| &spec.net) {
        Some(Net::Hosts(_)) if walls.has(Wall::Namespaces) => {
            proxy::client_variables(request.upstream.is_some())
        }
        _ => Vec::new(),
    };
    let given = request.env.iter().filter(|(name, _)| !proxy.iter().any(|(own, _)| name == own));
    given
        .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .chain(proxy.iter().map(|(name, value)| format!("{name}={value}").into_bytes()))
        .collect()
}

/// An order of lobster to a supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// SIGTERM to the step's process group.
    Terminate,
    /// SIGKILL to all processes.
    Kill,
}

impl Order {
    pub(super) fn encode(self) -> &'static [u8] {
        match self {
            Self::Terminate => b"t",
            Self::Kill => b"k",
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        [Self::Terminate, Self::Kill].into_iter().find(|order| order.encode() == bytes)
    }
}

/// Stage at which the start of a step failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stage {
    /// Reading the job, forking, setting up descriptors.
    Setup,
    /// Entering the working directory.
    Cwd,
    /// Setting a resource limit.
    Limit,
    /// Executing the program.
    Exec,
    /// The program's interpreter or loader is missing.
    Interpreter,
    /// A root of the confinement.
    Root,
    /// Making or setting up the namespaces.
    Namespaces,
    /// Applying Landlock rules.
    Landlock,
    /// Loading the system call filter.
    Seccomp,
    /// Limiting the process numbers of the namespace.
    ProcessNumbers,
    /// Entering the control group.
    ControlGroup,
    /// Mounting a layer.
    Layer,
}

/// Final report about a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) status: ExitStatus,
    pub(super) cpu: Duration,
    /// Largest resident set of a process, in bytes.
    pub(super) max_rss: u64,
    /// Processes that could not be killed.
    pub(super) survivors: u64,
    /// True if the supervisor waits for another job.
    pub(super) reusable: bool,
}

/// A message from a supervisor to lobster.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum News {
    /// The step did not start. Written by the step process itself, until its `execve`.
    Failed { stage: Stage, errno: i32, detail: String },
    /// The jail's listening sockets are attached: the proxy's, its upstream's if it has an upstream, and one
    /// for each of [`proxy::plan_ways`] that could be opened.
    Listening,
    /// The user and network namespaces of a shared network are attached.
    Network,
    /// The main process ended; others still exist.
    MainExited,
    /// The step is being killed, because it has added more than its limit to its write roots.
    DiskFull,
    /// Everything has ended.
    Over(Report),
}

impl News {
    pub(super) fn encode(&self) -> Vec<u8> {
        encode_message(self)
    }

    pub(super) fn decode(bytes: &[u8]) -> io::Result<Self> {
        decode_message(bytes)
    }
}

/// Everything in a message has a form in JSON. The receiver would refuse an empty one.
fn encode_message(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).unwrap_or_default()
}

fn decode_message<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    let malformed = "malformed message between lobster and its sandbox helper";
    serde_json::from_slice(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, malformed))
}

/// Paths as the bytes that they are: they need not be text.
mod paths {
    use std::ffi::OsString;
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(paths.iter().map(|path| path.as_os_str()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PathBuf>, D::Error> {
        Ok(Vec::<OsString>::deserialize(from)?.into_iter().map(PathBuf::from).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire() {
        let job = Job {
            argv: vec![b"sh".to_vec(), Vec::new(), vec![0xff, b'\n']],
            env: vec![b"A=".to_vec()],
            cwd: b"/tmp".to_vec(),
            linger: Duration::from_millis(100),
            limits: vec![(0, 1), (4, u64::MAX)],
            confined: Some(Confined {
                landlock: true,
                seccomp: false,
                unix: true,
                system: vec!["/usr".into()],
                read: vec!["/usr".into(), "/etc".into()],
                write: vec!["/w".into(), "/state/home".into()],
                own: vec!["/state/home".into()],
                held: vec![Held { path: "/w".into(), id: FileId { device: 66, inode: 1 << 40 } }],
                deny: Vec::new(),
                protect: vec!["/w/.git/hooks".into()],
                replaced: vec!["/w/run.sh".into()],
                copies: vec!["/state/0".into()],
                layers: ["/w", "", "/state/upper", "/state/work", ""].map(PathBuf::from).to_vec(),
                private: vec!["/tmp".into()],
                private_size: 1 << 33,
                network: Network::Proxy,
                hosts: ["::1:8", "a.example:443"].map(|host| HostPort::parse(host).unwrap()).to_vec(),
                upstream: true,
                listen: vec![1, 65535],
                connect: vec![3000],
                processes: Some(12),
            }),
            groups: Groups::Tasks,
            disk: Some(7),
        };
        assert_eq!(Job::decode(&job.encode()).ok(), Some(job));
        let over = Report {
            status: ExitStatus::Signal(9),
            cpu: Duration::from_nanos(7),
            max_rss: 1 << 40,
            survivors: 3,
            reusable: true,
        };
        for news in [
            News::Failed { stage: Stage::Interpreter, errno: 2, detail: "x".into() },
            News::MainExited,
            News::Listening,
            News::DiskFull,
            News::Network,
            News::Over(over),
            News::Over(Report { status: ExitStatus::Code(255), ..over }),
        ] {
            assert_eq!(News::decode(&news.encode()).ok(), Some(news));
        }
    }

    #[test]
    fn cut_messages_are_errors() {
        let bytes = News::Failed { stage: Stage::Cwd, errno: 2, detail: "abc".into() }.encode();
        for length in 0..bytes.len() {
            assert!(News::decode(&bytes[..length]).is_err());
        }
        assert!(Job::decode(&u64::MAX.to_ne_bytes()).is_err());
    }
}
