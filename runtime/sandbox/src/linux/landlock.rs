//! Landlock: the file system rules, as the only barrier or the second one.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

use rustix::fs::{FileType, fstat};

use super::super::opened_roots::FileId;
use super::jail::{DEVICES, Obstacle, TERMINALS, obstacle_at, open_exactly, open_held};
use super::sys;
use super::system_files::MADE;
use super::wire::{Confined, Network, Stage};

/// The first version that enforces the promise completely: before it, files outside the roots could be
/// truncated and linked.
const LEAST: ABI = ABI::V3;

/// A ruleset of this kernel, to be applied in the step's process.
pub(super) struct Rules(RulesetCreated);

impl Rules {
    /// Builds the rules for the paths as seen from here. `jailed` means that private directories are mounted
    /// and the network is a namespace.
    pub(super) fn new(spec: &Confined, jailed: bool) -> Result<Self, Obstacle> {
        // In a jail these are mounts, and a path may be covered by now.
        let judged = |path: &Path| if jailed { None } else { spec.held_at(path) };
        let mut opened = Vec::new();
        for path in &spec.write {
            let all = AccessFs::from_all(LEAST);
            opened.push(rule_beneath(path, judged(path), all)?);
        }
        let (held, others): (Vec<_>, Vec<_>) =
            spec.read.iter().partition(|path| judged(path.as_path()).is_some());
        for path in held {
            opened.push(rule_beneath(path, judged(path), AccessFs::from_read(LEAST))?);
        }
        let rules = build(spec, jailed, &others, opened).map_err(as_io);
        Ok(Self(rules.map_err(obstacle_at(Stage::Landlock, "prepare rules"))?))
    }

    /// Restricts this thread and its children for good.
    pub(super) fn restrict_thread(&self) -> io::Result<()> {
        let status = self.0.try_clone()?.restrict_self().map_err(as_io)?;
        // The library reports success even if nothing is restricted.
        if status.ruleset == RulesetStatus::NotEnforced {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        Ok(())
    }
}

/// The version that this kernel offers (`LANDLOCK_CREATE_RULESET_VERSION`).
pub(super) fn version() -> Option<u32> {
    sys::landlock_version().filter(|version| *version > 0)
}

/// A rule for the file at `path`, which must be the file that the policy judged.
fn rule_beneath(
    path: &Path,
    judged: Option<FileId>,
    access: BitFlags<AccessFs>,
) -> Result<PathBeneath<OwnedFd>, Obstacle> {
    let root = || obstacle_at(Stage::Root, path.display().to_string());
    let opened = match judged {
        Some(id) => open_held(path, id)?,
        None => open_exactly(path).map_err(root())?,
    };
    let stat = fstat(&opened).map_err(root())?;
    let directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    let access = if directory { access } else { access & AccessFs::from_file(LEAST) };
    Ok(PathBeneath::new(opened, access))
}

fn build(
    spec: &Confined,
    jailed: bool,
    read_roots: &[&PathBuf],
    opened: Vec<PathBeneath<OwnedFd>>,
) -> Result<RulesetCreated, RulesetError> {
    let read = AccessFs::from_read(LEAST);
    let all = AccessFs::from_all(LEAST);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(all)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::IoctlDev)?
        .scope(Scope::from_all(ABI::V6))?;
    let shares = spec.network == Network::Shared;
    if shares || (!jailed && spec.network != Network::Host) {
        // It has holes (it does not cover UDP), but stops most accesses before seccomp would.
        rules = rules.handle_access(AccessNet::from_all(ABI::V4))?;
    }
    let private: &[PathBuf] = if jailed { &spec.private } else { &[] };
    // In a jail, only granted paths can be listed anyway.
    let listed = Path::new(if jailed { "/" } else { "/dev" });
    let devices = DEVICES.map(|name| Path::new("/dev").join(name));
    let on_devices: BitFlags<AccessFs> =
        AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    let terminals: &[&str] = if jailed { &[TERMINALS] } else { &[] };
    let made: &[&str] = if jailed && !spec.system.is_empty() { &MADE } else { &[] };
    // In a shared network it gets some ports.
    let ports = |ports: &[u16], access: AccessNet| -> Vec<NetPort> {
        if shares { ports.iter().map(|port| NetPort::new(*port, access)).collect() } else { Vec::new() }
    };
    let listens = ports(&spec.listen, AccessNet::BindTcp);
    let connects = ports(&[spec.connect.as_slice(), &spec.listen].concat(), AccessNet::ConnectTcp);
    rules
        .create()?
        .set_compatibility(CompatLevel::BestEffort)
        .add_rules(listens.into_iter().chain(connects).map(Ok::<_, RulesetError>))?
        .add_rules(path_beneath_rules(read_roots, read))?
        .add_rules(path_beneath_rules(["/proc"], AccessFs::ReadFile | AccessFs::ReadDir))?
        .add_rules(path_beneath_rules([listed], AccessFs::ReadDir))?
        .add_rules(path_beneath_rules(devices, on_devices))?
        .add_rules(path_beneath_rules(terminals, on_devices | AccessFs::ReadDir))?
        .add_rules(path_beneath_rules(made, read))?
        .add_rules(path_beneath_rules(private, all))?
        .add_rules(opened.into_iter().map(Ok::<_, RulesetError>))
}

/// Keeps the system's error number, which distinguishes a missing mechanism from a mistake.
fn as_io(error: RulesetError) -> io::Error {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(current) = source {
        if let Some(number) = current.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(number);
        }
        source = current.source();
    }
    // Refused before any call was made: this kernel lacks a required feature.
    io::Error::from_raw_os_error(libc::ENOSYS)
}
