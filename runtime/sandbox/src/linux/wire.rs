//! Messages between lobster and a supervisor. Both ends are the same binary, so the format is private and has
//! no version.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::opened_roots::FileId;
use super::super::{ExitStatus, HostPort, JailSpec, Net, ProcessLimits, SpawnRequest, proxy};
use super::mechanisms::{Wall, Walls};
use super::sweep::SweptProcess;

/// A job, as read by the supervisor.
#[derive(Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Groups {
    /// It has no control groups.
    None,
    /// See [`super::cgroup::Entrance::Directory`].
    Directory,
    /// See [`super::cgroup::Entrance::Tasks`].
    Tasks,
}

const GROUPS: [Groups; 3] = [Groups::None, Groups::Directory, Groups::Tasks];

/// The confinement of a job, as the supervisor builds it. The namespaces are
/// made by the helper before the job is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Confined {
    pub(super) landlock: bool,
    pub(super) seccomp: bool,
    /// True if it may make unix sockets.
    pub(super) unix: bool,
    /// See [`JailSpec::system`].
    pub(super) system: Vec<PathBuf>,
    pub(super) read: Vec<PathBuf>,
    pub(super) write: Vec<PathBuf>,
    pub(super) own: Vec<PathBuf>,
    pub(super) held: Vec<Held>,
    pub(super) deny: Vec<PathBuf>,
    pub(super) protect: Vec<PathBuf>,
    /// See [`super::super::Replaced`].
    pub(super) replaced: Vec<PathBuf>,
    /// Copies for the paths of `replaced`, in the same order.
    pub(super) copies: Vec<PathBuf>,
    /// See [`super::super::Overlay`]: root, lower layer, upper and work directory and copy of each, one after
    /// the other. A missing path is empty.
    layers: Vec<PathBuf>,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) path: PathBuf,
    pub(super) id: FileId,
}

/// Network of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    None,
    Proxy,
    Host,
    /// Made by another supervisor and shared.
    Shared,
}

const NETWORKS: [Network; 4] = [Network::None, Network::Proxy, Network::Host, Network::Shared];

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
            held: spec
                .held
                .iter()
                .map(|held| Held { path: held.path().to_owned(), id: held.file_id() })
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

    fn encode(&self, out: &mut Writer) {
        out.write_number(u64::from(self.landlock));
        out.write_number(u64::from(self.seccomp));
        out.write_number(u64::from(self.unix));
        let first = [&self.read, &self.write, &self.own, &self.deny, &self.protect];
        let later = [&self.replaced, &self.copies, &self.layers, &self.private, &self.system];
        for paths in first.into_iter().chain(later) {
            out.write_list(paths.iter().map(|path| path.as_os_str().as_bytes()));
        }
        out.write_number(self.held.len() as u64);
        for Held { path, id } in &self.held {
            out.write_bytes(path.as_os_str().as_bytes());
            out.write_number(id.device);
            out.write_number(id.inode);
        }
        out.write_number(self.private_size);
        out.write_number(self.network as u64);
        out.write_list(self.hosts.iter().map(ToString::to_string));
        out.write_number(u64::from(self.upstream));
        for ports in [&self.listen, &self.connect] {
            out.write_number(ports.len() as u64);
            for port in ports {
                out.write_number(u64::from(*port));
            }
        }
        out.write_number(self.processes.unwrap_or(u64::MAX));
    }

    fn decode(from: &mut Reader<'_>) -> io::Result<Self> {
        let paths = |from: &mut Reader<'_>| -> io::Result<Vec<PathBuf>> {
            Ok(from.read_list()?.into_iter().map(|path| PathBuf::from(OsString::from_vec(path))).collect())
        };
        Ok(Self {
            landlock: from.read_number()? != 0,
            seccomp: from.read_number()? != 0,
            unix: from.read_number()? != 0,
            read: paths(from)?,
            write: paths(from)?,
            own: paths(from)?,
            deny: paths(from)?,
            protect: paths(from)?,
            replaced: paths(from)?,
            copies: paths(from)?,
            layers: paths(from)?,
            private: paths(from)?,
            system: paths(from)?,
            held: (0..from.read_number()?)
                .map(|_| {
                    let path = PathBuf::from(OsString::from_vec(from.read_bytes()?));
                    let (device, inode) = (from.read_number()?, from.read_number()?);
                    Ok(Held { path, id: FileId { device, inode } })
                })
                .collect::<io::Result<_>>()?,
            private_size: from.read_number()?,
            network: *NETWORKS.get(usize::from(from.read_byte()?)).ok_or_else(malformed_message)?,
            hosts: (from.read_list()?.into_iter())
                .map(|host| HostPort::parse(&String::from_utf8(host).ok()?))
                .collect::<Option<_>>()
                .ok_or_else(malformed_message)?,
            upstream: from.read_number()? != 0,
            listen: from.read_ports()?,
            connect: from.read_ports()?,
            processes: Some(from.read_number()?).filter(|processes| *processes < u64::MAX),
        })
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
        let mut out = Writer::default();
        out.write_list(self.argv.iter());
        out.write_list(self.env.iter());
        out.write_bytes(&self.cwd);
        out.write_duration(self.linger);
        out.write_number(self.limits.len() as u64);
        for (number, value) in &self.limits {
            out.write_number(u64::from(*number));
            out.write_number(*value);
        }
        out.write_number(u64::from(self.confined.is_some()));
        if let Some(confined) = &self.confined {
            confined.encode(&mut out);
        }
        out.write_number(self.groups as u64);
        out.write_number(self.disk.unwrap_or(u64::MAX));
        out.0
    }

    pub(super) fn decode(bytes: &[u8]) -> io::Result<Self> {
        let mut from = Reader(bytes);
        Ok(Self {
            argv: from.read_list()?,
            env: from.read_list()?,
            cwd: from.read_bytes()?,
            linger: from.read_duration()?,
            limits: (0..from.read_number()?)
                .map(|_| Ok((from.read_byte()?, from.read_number()?)))
                .collect::<io::Result<_>>()?,
            confined: if from.read_number()? == 0 { None } else { Some(Confined::decode(&mut from)?) },
            groups: *GROUPS.get(usize::from(from.read_byte()?)).ok_or_else(malformed_message)?,
            disk: Some(from.read_number()?).filter(|disk| *disk < u64::MAX),
        })
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

const STAGES: [Stage; 12] = [
    Stage::Setup,
    Stage::Cwd,
    Stage::Limit,
    Stage::Exec,
    Stage::Interpreter,
    Stage::Root,
    Stage::Namespaces,
    Stage::Landlock,
    Stage::Seccomp,
    Stage::ProcessNumbers,
    Stage::ControlGroup,
    Stage::Layer,
];

/// Final report about a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Debug, PartialEq, Eq)]
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
        let mut out = Writer::default();
        match self {
            Self::Failed { stage, errno, detail } => {
                out.write_number(0);
                out.write_number(*stage as u64);
                out.write_number(u64::from(errno.unsigned_abs()));
                out.write_bytes(detail.as_bytes());
            }
            Self::MainExited => out.write_number(1),
            Self::Listening => out.write_number(3),
            Self::DiskFull => out.write_number(4),
            Self::Network => out.write_number(5),
            Self::Over(report) => {
                out.write_number(2);
                let (kind, value) = match report.status {
                    ExitStatus::Code(code) => (0, code),
                    ExitStatus::Signal(signal) => (1, signal),
                };
                out.write_number(kind);
                out.write_number(u64::from(value.unsigned_abs()));
                out.write_duration(report.cpu);
                out.write_number(report.max_rss);
                out.write_number(report.survivors);
                out.write_number(u64::from(report.reusable));
            }
        }
        out.0
    }

    pub(super) fn decode(bytes: &[u8]) -> io::Result<Self> {
        let mut from = Reader(bytes);
        Ok(match from.read_number()? {
            0 => Self::Failed {
                stage: *STAGES.get(usize::from(from.read_byte()?)).ok_or_else(malformed_message)?,
                errno: from.read_int()?,
                detail: String::from_utf8_lossy(&from.read_bytes()?).into_owned(),
            },
            1 => Self::MainExited,
            3 => Self::Listening,
            4 => Self::DiskFull,
            5 => Self::Network,
            2 => Self::Over(Report {
                status: match (from.read_number()?, from.read_int()?) {
                    (0, code) => ExitStatus::Code(code),
                    (_, signal) => ExitStatus::Signal(signal),
                },
                cpu: from.read_duration()?,
                max_rss: from.read_number()?,
                survivors: from.read_number()?,
                reusable: from.read_number()? != 0,
            }),
            _ => return Err(malformed_message()),
        })
    }
}

fn malformed_message() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed message between lobster and its sandbox helper")
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn write_number(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_ne_bytes());
    }

    fn write_duration(&mut self, value: Duration) {
        self.write_number(u64::try_from(value.as_nanos()).unwrap_or(u64::MAX));
    }

    fn write_bytes(&mut self, value: &[u8]) {
        self.write_number(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    fn write_list<T: AsRef<[u8]>>(&mut self, values: impl ExactSizeIterator<Item = T>) {
        self.write_number(values.len() as u64);
        for value in values {
            self.write_bytes(value.as_ref());
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn read_number(&mut self) -> io::Result<u64> {
        let (head, rest) = self.0.split_first_chunk().ok_or_else(malformed_message)?;
        self.0 = rest;
        Ok(u64::from_ne_bytes(*head))
    }

    fn read_byte(&mut self) -> io::Result<u8> {
        u8::try_from(self.read_number()?).map_err(|_| malformed_message())
    }

    fn read_int(&mut self) -> io::Result<i32> {
        i32::try_from(self.read_number()?).map_err(|_| malformed_message())
    }

    fn read_duration(&mut self) -> io::Result<Duration> {
        self.read_number().map(Duration::from_nanos)
    }

    fn read_bytes(&mut self) -> io::Result<Vec<u8>> {
        let length = usize::try_from(self.read_number()?).map_err(|_| malformed_message())?;
        let (head, rest) = self.0.split_at_checked(length).ok_or_else(malformed_message)?;
        self.0 = rest;
        Ok(head.to_vec())
    }

    fn read_ports(&mut self) -> io::Result<Vec<u16>> {
        (0..self.read_number()?)
            .map(|_| u16::try_from(self.read_number()?).map_err(|_| malformed_message()))
            .collect()
    }

    fn read_list(&mut self) -> io::Result<Vec<Vec<u8>>> {
        (0..self.read_number()?).map(|_| self.read_bytes()).collect()
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
        for (number, stage) in STAGES.into_iter().enumerate() {
            assert_eq!(stage as usize, number);
        }
        for (number, groups) in GROUPS.into_iter().enumerate() {
            assert_eq!(groups as usize, number);
        }
        for (number, network) in NETWORKS.into_iter().enumerate() {
            assert_eq!(network as usize, number);
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
