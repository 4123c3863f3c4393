//! Control groups: memory and process limits for the whole tree of a step.
//!
//! Each step with such limits gets its own leaf group, below or beside the group of lobster itself. It enters
//! the leaf before it becomes the program, so that no process of it is ever outside. The supervisor stays
//! outside, because the limits of the step must not starve it.
//!
//! A leaf is locked by the process that made it. An unlocked leaf was left by a killed lobster and is removed
//! at the next use.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, getxattr, open, openat, unlinkat};
use rustix::io::Errno;

use super::super::{Denial, ProcessLimits, Promise};

/// Name prefix of the leaves of all lobsters.
const PREFIX: &str = "lobster-";

/// Controllers that a leaf needs.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];

/// Attempts to make a leaf, since another lobster may remove a leaf before it is locked.
const ATTEMPTS: usize = 4;

/// Retries for removing a leaf. Its processes have ended by then, but the kernel may need a moment to release
/// them. After these retries the next use removes it.
const LINGER: (usize, Duration) = (50, Duration::from_millis(2));

/// Reason why no control group is available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lack {
    pub(super) errno: i32,
    pub(super) why: String,
}

impl Lack {
    fn new(errno: Errno, why: impl Into<String>) -> Self {
        Self { errno: errno.raw_os_error(), why: why.into() }
    }

    fn at(path: &Path, doing: &str) -> impl FnOnce(Errno) -> Self {
        let place = format!("{doing} {}", path.display());
        move |error| Self::new(error, format!("{place}: {}", io::Error::from(error)))
    }
}

/// Location for leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hierarchy {
    /// Version 2: one tree for all controllers.
    Unified {
        place: PathBuf,
        /// Lobster's own limit, if leaves are beside its group and not below it.
        processes: Option<u64>,
    },
    /// Version 1: a tree for each controller.
    Split { memory: PathBuf, pids: PathBuf },
}

impl Hierarchy {
    /// Finds the location and removes the leaves of dead lobsters there.
    pub(super) fn find() -> Result<Self, Lack> {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let found = Self::from_proc(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"))?;
        for place in found.parent_groups() {
            remove_leftovers(place);
        }
        Ok(found)
    }

    /// Parses `groups` and `mounts`, which have the format of `/proc/self/cgroup` and `/proc/self/mountinfo`.
    fn from_proc(groups: &str, mounts: &str) -> Result<Self, Lack> {
        let own = |controller: &str| own_group(groups, mounts, controller);
        match (own(""), own(CONTROLLERS[0]), own(CONTROLLERS[1])) {
            (_, Some(memory), Some(pids)) => Ok(Self::Split { memory, pids }),
            (Some(group), ..) => Self::find_unified(&group),
            _ => Err(Lack::new(Errno::NOENT, "no control groups for memory and pids are mounted")),
        }
    }

    /// In version 2 only groups without processes can limit the groups below them. So leaves are made beside
    /// lobster's own group if lobster may divide its parent, and below it only if it is the root.
    fn find_unified(own: &Path) -> Result<Self, Lack> {
        if has_controllers(own, "cgroup.subtree_control") || (is_root(own) && enable_controllers(own).is_ok())
        {
            return Ok(Self::Unified { place: own.to_owned(), processes: None });
        }
        let Some(parent) = own.parent().filter(|parent| is_delegated(parent)) else {
            let why = format!(
                "the control group {} holds lobster itself, and the one above it is not delegated to this \
                 user; start lobster with `systemd-run --user --scope`, or as a service with Delegate=yes and \
                 DelegateSubgroup=",
                own.display()
            );
            return Err(Lack::new(Errno::ACCESS, why));
        };
        if read_group_file(own, "memory.max").is_some_and(|bound| bound != "max") {
            let why = format!("a step beside {} would escape its memory.max", own.display());
            return Err(Lack::new(Errno::ACCESS, why));
        }
        if !has_controllers(parent, "cgroup.subtree_control") {
            enable_controllers(parent).map_err(Lack::at(parent, "use the controllers of"))?;
        }
        let processes = read_group_file(own, "pids.max").and_then(|bound| bound.parse().ok());
        Ok(Self::Unified { place: parent.to_owned(), processes })
    }

    fn parent_groups(&self) -> Vec<&Path> {
        match self {
            Self::Unified { place, .. } => vec![place],
            Self::Split { memory, pids } => vec![memory, pids],
        }
    }

    /// Makes a leaf with the limits of a step.
    pub(super) fn make_leaf(&self, limits: &ProcessLimits) -> Result<Leaf, Lack> {
        let mut groups = Vec::new();
        for place in self.parent_groups() {
            groups.push(Group::make_in(place)?);
        }
        let leaf = Leaf { groups, unified: matches!(self, Self::Unified { .. }) };
        let (memory, processes) = (limits.memory, limits.processes);
        let bound = |index: usize, settings: &[Setting]| -> Result<(), Lack> {
            let Some(group) = leaf.groups.get(index) else { return Ok(()) };
            group.set(settings).map_err(Lack::at(&group.path, "set the limits of"))
        };
        match self {
            Self::Unified { processes: most, .. } => {
                let processes = processes.map(|wanted| most.map_or(wanted, |most| wanted.min(most)));
                bound(0, &unified_settings(memory, processes))?;
            }
            Self::Split { .. } => {
                bound(0, &memory_settings(memory))?;
                bound(1, &process_settings(processes))?;
            }
        }
        Ok(leaf)
    }
}

/// A file of a group, its value, and whether the limit depends on it.
type Setting = (&'static str, String, Need);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Must,
    /// The kernel may have been built without this file.
    IfThere,
}

fn unified_settings(memory: Option<u64>, processes: Option<u64>) -> Vec<Setting> {
    let mut settings = process_settings(processes);
    if let Some(memory) = memory {
        settings.push(("memory.max", memory.to_string(), Need::Must));
        // Otherwise the step would only be swapped out.
        settings.push(("memory.swap.max", "0".to_owned(), Need::IfThere));
        // A step with some processes killed is useless.
        settings.push(("memory.oom.group", "1".to_owned(), Need::IfThere));
    }
    settings
}

fn memory_settings(memory: Option<u64>) -> Vec<Setting> {
    let Some(memory) = memory else { return Vec::new() };
    vec![
        ("memory.limit_in_bytes", memory.to_string(), Need::Must),
        // Memory and swap together. Without swap accounting there is no swapping.
        ("memory.memsw.limit_in_bytes", memory.to_string(), Need::IfThere),
        ("memory.swappiness", "0".to_owned(), Need::IfThere),
    ]
}

fn process_settings(processes: Option<u64>) -> Vec<Setting> {
    processes.map(|processes| ("pids.max", processes.to_string(), Need::Must)).into_iter().collect()
}

/// The groups of one step. Dropping it removes them; the step must have ended.
#[derive(Debug)]
pub(super) struct Leaf {
    groups: Vec<Group>,
    unified: bool,
}

/// How a process enters a leaf. Writing its number to `cgroup.procs` takes some 10 ms, because the kernel
/// synchronises the whole machine; these two ways do not.
pub(super) enum Entrance {
    /// Version 2: the process is created in this directory.
    Directory(OwnedFd),
    /// Version 1: it writes a `0` to each of these files while it has one thread.
    Tasks(Vec<OwnedFd>),
}

impl Leaf {
    /// Descriptors with which the step enters.
    pub(super) fn open_entrance(&self) -> Result<Entrance, Lack> {
        let open = |group: &Group, file, how| {
            group.open_file(file, how).map_err(Lack::at(&group.path, "enter the control group"))
        };
        match self.groups.as_slice() {
            [group] if self.unified => {
                Ok(Entrance::Directory(open(group, ".", OFlags::RDONLY | OFlags::DIRECTORY)?))
            }
            groups => {
                let tasks: Result<_, _> =
                    groups.iter().map(|group| open(group, "tasks", OFlags::WRONLY)).collect();
                tasks.map(Entrance::Tasks)
            }
        }
    }

    /// Limits that the step reached.
    pub(super) fn reached_limits(&self, limits: &ProcessLimits) -> Vec<Denial> {
        let (Some(memory), Some(pids)) = (self.groups.first(), self.groups.last()) else { return Vec::new() };
        let events = if self.unified { "memory.events" } else { "memory.oom_control" };
        let killed = memory.read_count(events, "oom_kill").unwrap_or(0);
        let refused = pids.read_count("pids.events", "max").unwrap_or(0);
        let mut reached = Vec::new();
        let mut say = |what| reached.push(Denial { promise: Promise::TreeLimits, what });
        if let (1.., Some(limit)) = (killed, limits.memory) {
            say(format!("more than {limit} bytes of memory for the step as a whole: {killed} killed"));
        }
        if let (1.., Some(limit)) = (refused, limits.processes) {
            say(format!("more than {limit} processes in the step as a whole: {refused} not started"));
        }
        reached
    }
}

/// One directory, locked while it is in use.
#[derive(Debug)]
struct Group {
    path: PathBuf,
    handle: OwnedFd,
}

impl Group {
    fn make_in(place: &Path) -> Result<Self, Lack> {
        for _ in 0..ATTEMPTS {
            let (pid, unique) = (std::process::id(), uuid::Uuid::new_v4().simple());
            let path = place.join(format!("{PREFIX}{pid}-{unique}"));
            rustix::fs::mkdir(&path, Mode::RWXU).map_err(Lack::at(place, "make a control group in"))?;
            // Until it is locked, another lobster may take it for a leftover.
            if let Some(handle) = lock_group(&path)
                && openat(&handle, "cgroup.procs", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).is_ok()
            {
                return Ok(Self { path, handle });
            }
        }
        Err(Lack::at(place, "keep a control group in")(Errno::AGAIN))
    }

    fn open_file(&self, file: &str, how: OFlags) -> rustix::io::Result<OwnedFd> {
        openat(&self.handle, file, how | OFlags::CLOEXEC, Mode::empty())
    }

    fn set(&self, settings: &[Setting]) -> rustix::io::Result<()> {
        for (file, value, need) in settings {
            let written = self
                .open_file(file, OFlags::WRONLY)
                .and_then(|file| rustix::io::write(&file, value.as_bytes()).map(drop));
            match (written, need) {
                (Err(Errno::NOENT | Errno::OPNOTSUPP | Errno::INVAL), Need::IfThere) => {}
                (result, _) => result?,
            }
        }
        Ok(())
    }

    /// The number after `key` in a file of lines.
    fn read_count(&self, file: &str, key: &str) -> Option<u64> {
        let text = read_group_file(&self.path, file)?;
        text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.parse().ok())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let (rounds, pause) = LINGER;
        for _ in 0..rounds {
            if remove_group(&self.path) != Err(Errno::BUSY) {
                return;
            }
            std::thread::sleep(pause);
        }
    }
}

/// Removes leaves of killed lobsters.
fn remove_leftovers(place: &Path) {
    let leaves = fs::read_dir(place).into_iter().flatten().filter_map(|entry| {
        let entry = entry.ok()?;
        entry.file_name().to_str()?.starts_with(PREFIX).then(|| entry.path())
    });
    for path in leaves {
        if let Some(_handle) = lock_group(&path) {
            let _ = remove_group(&path);
        }
    }
}

/// Locks a group, unless another process has it.
fn lock_group(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = open(path, flags, Mode::empty()).ok()?;
    flock(&handle, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(handle)
}

fn remove_group(path: &Path) -> rustix::io::Result<()> {
    let removed = unlinkat(rustix::fs::CWD, path, AtFlags::REMOVEDIR);
    if removed == Err(Errno::BUSY) {
        // Exists in version 2 only, and kills all processes that are still in the group.
        let _ = fs::OpenOptions::new()
            .write(true)
            .open(path.join("cgroup.kill"))
            .and_then(|mut file| io::Write::write_all(&mut file, b"1"));
    }
    removed
}

/// Directory of this process's group: of a version 1 controller, or of version 2 for an empty name.
fn own_group(groups: &str, mounts: &str, controller: &str) -> Option<PathBuf> {
    let path = groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let listed = fields.next()?.split(',').any(|name| name == controller);
        listed.then(|| fields.next()).flatten()
    })?;
    mounts.lines().find_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut kind = file_system.split(' ');
        let right = match (kind.next()?, controller) {
            ("cgroup2", "") => true,
            ("cgroup", "") | ("cgroup2", _) => false,
            ("cgroup", name) => kind.nth(1)?.split(',').any(|option| option == name),
            _ => false,
        };
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        // In a container, the mount may be a part of the tree.
        let below = Path::new(path).strip_prefix(root).ok()?;
        right.then(|| Path::new(&point.replace("\\040", " ")).join(below))
    })
}

/// True if the list in a file of a group has all required controllers.
fn has_controllers(group: &Path, file: &str) -> bool {
    let list = read_group_file(group, file).unwrap_or_default();
    CONTROLLERS.iter().all(|needed| list.split(' ').any(|name| name == *needed))
}

fn is_root(group: &Path) -> bool {
    group.join("cgroup.controllers").exists() && !group.join("cgroup.type").exists()
}

/// Enables memory and process limits for the groups below.
fn enable_controllers(group: &Path) -> rustix::io::Result<()> {
    let file = open(group.join("cgroup.subtree_control"), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, b"+memory +pids").map(drop)
}

/// True if the manager of the groups has delegated this one, either to this user or with the mark that
/// systemd sets. Write access proves nothing, because root can write to every group.
fn is_delegated(group: &Path) -> bool {
    let marked = |name: &str| getxattr(group, name, &mut [0u8; 8][..]).is_ok_and(|length| length > 0);
    let owner = fs::metadata(group).ok().map(|group| group.uid());
    let own = rustix::process::geteuid();
    (!own.is_root() && owner == Some(own.as_raw())) || marked("user.delegate") || marked("trusted.delegate")
}

fn read_group_file(group: &Path, file: &str) -> Option<String> {
    fs::read_to_string(group.join(file)).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_behind_its_mount() {
        let groups = "9:name=systemd:/\n8:pids:/\n4:memory:/jobs/7\n2:cpu,cpuacct:/\n0::/user/me\n";
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
             36 31 0:33 /jobs /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             40 31 0:37 /elsewhere /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
             41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw - cgroup2 cgroup2 rw\n";
        let own = |controller| own_group(groups, mounts, controller);
        assert_eq!(own("memory"), Some("/sys/fs/cgroup/memory/7".into()));
        assert_eq!(own("pids"), None, "outside what is mounted");
        assert_eq!(own(""), Some("/sys/fs/cgroup/uni fied/user/me".into()));
        assert_eq!(own_group("", mounts, "memory"), None);
        let lack = Hierarchy::from_proc("", "").unwrap_err();
        assert_eq!(lack.why, "no control groups for memory and pids are mounted");
    }

    /// A directory that looks like a version 2 group. Without a kernel it shows only which files are read and
    /// written, not that they work.
    fn make_fake_group(path: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(path).unwrap();
        for (file, text) in files {
            fs::write(path.join(file), text).unwrap();
        }
    }

    #[test]
    fn version_2_pretended_a_place_needs_delegation() {
        let tree = tempfile::tempdir().unwrap();
        let (slice, own) = (tree.path().join("slice"), tree.path().join("slice/own"));
        let controllers = ("cgroup.controllers", "cpu memory pids\n");
        make_fake_group(
            &slice,
            &[controllers, ("cgroup.subtree_control", "memory pids\n"), ("cgroup.type", "domain")],
        );
        make_fake_group(
            &own,
            &[
                controllers,
                ("cgroup.subtree_control", "\n"),
                ("cgroup.type", "domain"),
                ("memory.max", "max\n"),
                ("pids.max", "500\n"),
            ],
        );
        let mounts = format!("41 31 0:38 / {} rw - cgroup2 cgroup2 rw\n", tree.path().display());
        let find = || Hierarchy::from_proc("0::/slice/own\n", &mounts);
        if rustix::process::geteuid().is_root() {
            assert!(find().unwrap_err().why.contains("not delegated"), "root is given nothing by owning it");
            let mark = rustix::fs::setxattr(&slice, "user.delegate", b"1", rustix::fs::XattrFlags::empty());
            if mark.is_err() {
                println!("no extended attributes here: the rest is not tested");
                return;
            }
        }
        assert_eq!(find(), Ok(Hierarchy::Unified { place: slice.clone(), processes: Some(500) }));
        fs::write(own.join("memory.max"), "1000000\n").unwrap();
        assert!(find().unwrap_err().why.contains("would escape its memory.max"));
        fs::write(own.join("memory.max"), "max\n").unwrap();
        fs::write(slice.join("cgroup.subtree_control"), "pids\n").unwrap();
        assert!(find().is_ok());
        let asked = fs::read_to_string(slice.join("cgroup.subtree_control")).unwrap();
        assert!(asked.starts_with("+memory +pids"), "{asked}");
    }

    #[test]
    fn version_2_pretended_limits_are_written_and_events_read() {
        let tree = tempfile::tempdir().unwrap();
        let path = tree.path().join("leaf");
        let events = ("memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 1\n");
        make_fake_group(&path, &[("memory.max", ""), ("memory.oom.group", ""), ("pids.max", ""), events]);
        fs::write(path.join("pids.events"), "max 7\n").unwrap();
        let leaf = Leaf {
            groups: vec![Group { handle: lock_group(&path).unwrap(), path: path.clone() }],
            unified: true,
        };
        // Without swap this file does not exist.
        leaf.groups[0].set(&unified_settings(Some(64 << 20), Some(12))).unwrap();
        let written = |file: &str| fs::read_to_string(path.join(file)).unwrap();
        assert_eq!((written("memory.max"), written("pids.max")), ("67108864".to_owned(), "12".to_owned()));
        assert_eq!(written("memory.oom.group"), "1");
        assert_eq!(leaf.groups[0].set(&memory_settings(Some(1))), Err(Errno::NOENT));
        let limits =
            ProcessLimits { memory: Some(64 << 20), processes: Some(12), ..ProcessLimits::default() };
        let reached: Vec<_> = leaf.reached_limits(&limits).into_iter().map(|denial| denial.what).collect();
        assert_eq!(
            reached,
            [
                "more than 67108864 bytes of memory for the step as a whole: 2 killed",
                "more than 12 processes in the step as a whole: 7 not started"
            ]
        );
        std::mem::forget(leaf);
    }

    /// Uses the kernel's own version 2 groups if there are any, with or without the controllers that the
    /// limits need.
    #[test]
    fn version_2_a_process_is_made_inside_and_ended_with_the_leaf() {
        use super::super::sys;
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let own = own_group(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"), "");
        let leaf = own.ok_or_else(|| Lack::new(Errno::NOENT, "no version 2")).and_then(|place| {
            Hierarchy::Unified { place, processes: None }.make_leaf(&ProcessLimits::default())
        });
        let leaf = match leaf {
            Ok(leaf) => leaf,
            Err(lack) => return println!("not tested here: {}", lack.why),
        };
        let Ok(Entrance::Directory(directory)) = leaf.open_entrance() else { panic!("not version 2") };
        let (mut ours, theirs) = io::pipe().unwrap();
        let words = ["sh", "-c", "cat /proc/self/cgroup; sleep 100"];
        let argv = sys::Strings::new(words.map(|word| std::ffi::CString::new(word).unwrap()).to_vec());
        let env = sys::Strings::new(Vec::new());
        let child = sys::spawn_into(&directory, || {
            if rustix::stdio::dup2_stdout(&theirs).is_ok() {
                sys::exec(c"/bin/sh", &argv, &env);
            }
        });
        let child = child.unwrap();
        drop(theirs);
        let mut told = [0; 4096];
        let length = io::Read::read(&mut ours, &mut told).unwrap();
        let told = String::from_utf8_lossy(&told[..length]).into_owned();
        let path = leaf.groups[0].path.clone();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(told.lines().any(|line| line.starts_with("0::") && line.ends_with(name)), "{told}");
        drop(leaf);
        let (_, status) =
            rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.terminating_signal(), Some(libc::SIGKILL));
        assert!(!path.exists() || remove_group(&path).is_ok());
    }

    #[test]
    fn only_what_nobody_holds_is_cleared_away() {
        let tree = tempfile::tempdir().unwrap();
        let path = |name: &str| tree.path().join(name);
        for name in ["lobster-held", "lobster-stale", "other"] {
            fs::create_dir(path(name)).unwrap();
        }
        let held = lock_group(&path("lobster-held")).unwrap();
        remove_leftovers(tree.path());
        assert_eq!(
            ["lobster-held", "lobster-stale", "other"].map(|name| path(name).exists()),
            [true, false, true]
        );
        drop(held);
        // A process that another test forks also holds the lock until it becomes its program.
        for _ in 0..1000 {
            remove_leftovers(tree.path());
            if !path("lobster-held").exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("what nobody holds is still there");
    }
}
