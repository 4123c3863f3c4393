//! A policy's grant in the sandbox's terms.

use std::fs;
use std::path::{Path, PathBuf};

use super::granted_roots::RootOpener;
use lobster_policy::{
    Control, DecisionEnv, Grant, NetGrant, Policy, SYSTEM_READ_ONLY, SYSTEM_ROOTS, SandboxMode,
    builtin_protected, expand_root, secret_patterns,
};
use lobster_sandbox::{EnforcementMode, HostPort, JailSpec, Net, Ports, Promise};
use lobster_stage::StageError;

/// Files that name the hosts of the host's network; any other network has its own.
const OF_HOST_NETWORK: [&str; 2] = ["/etc/hosts", "/etc/resolv.conf"];

/// The jail for a command with this grant. `home` is the step's own; `network` names the network that the steps of its
/// run share.
pub(super) fn command_jail(
    policy: &Policy,
    grant: &Grant,
    home: &Path,
    place: &DecisionEnv,
    network: &str,
) -> Result<JailSpec, StageError> {
    let defaults = JailSpec::default();
    let own = vec![home.to_owned()];
    let mut spec = JailSpec { read: Vec::new(), write: own.clone(), own, own_sockets: true, ..defaults };
    let mut granted = Vec::new();
    let roots = RootOpener::from_policy(policy, place);
    for root in &grant.fs_read {
        match root.as_str() {
            SYSTEM_ROOTS => {
                let trees = || SYSTEM_READ_ONLY.iter().filter(|path| **path != "/proc").map(PathBuf::from);
                spec.read.extend(trees());
                spec.system.extend(trees());
                if grant.net == NetGrant::HostNetwork {
                    spec.read.extend(OF_HOST_NETWORK.map(PathBuf::from));
                }
            }
            path if path.starts_with('@') => {}
            // A missing root is also missing for the step.
            path => {
                let Some(held) = roots.open_root("read", &expand_root(path, place))? else { continue };
                spec.read.push(held.path().to_owned());
                granted.push(held.path().to_owned());
                spec.held.push(held);
            }
        }
    }
    for root in grant.fs_write.iter().filter(|root| !root.starts_with('@')) {
        let Some(held) = roots.open_root("write", &expand_root(root, place))? else { continue };
        spec.write.push(held.path().to_owned());
        granted.push(held.path().to_owned());
        spec.held.push(held);
    }
    open_sockets(&mut spec, &roots, grant.unix.iter().map(|path| expand_root(path, place)))?;
    // A secret that is named by its path is hidden by that path, even if the search for patterns fails.
    let expanded = |paths: &[String]| -> Vec<String> {
        let whole = |path: &String| match path.strip_prefix('!') {
            Some(path) => format!("!{}", expand_root(path, place)),
            None => expand_root(path, place),
        };
        paths.iter().map(whole).collect()
    };
    let (denied, protected) = (expanded(&grant.fs_deny), expanded(&grant.fs_protect));
    spec.deny = denied.iter().filter(|path| is_plain(path)).map(real_path).collect();
    spec.deny_patterns = secret_patterns(place, &granted);
    spec.deny_patterns.extend(denied.iter().map(|pattern| real_pattern(pattern)));
    let repository = real_path(&place.workspace).join(".git");
    let protected = protected.iter().filter(|path| is_plain(path)).map(real_path);
    // The sandbox knows which files of a repository to protect, in this directory and below.
    let builtin = builtin_protected(place).map(|path| real_path(&path));
    let builtin = builtin.filter(|path| !path.starts_with(&repository));
    spec.protect = protected.chain(builtin).map(first_file).collect();
    protect_repository(&mut spec, &repository);
    spec.net = match &grant.net {
        NetGrant::None => Net::None,
        NetGrant::HostNetwork => Net::Host,
        NetGrant::Hosts(hosts) => Net::Hosts(hosts.iter().filter_map(|host| HostPort::parse(host)).collect()),
    };
    if !grant.listen.is_empty() || !grant.connect.is_empty() {
        if spec.net != Net::None {
            return Err(StageError::permanent(
                "the policy grants the command ports of the run's own network (listen, connect) and another \
                 network as well; it can have one of them: split the step, or set net = \"none\" in the rule",
            ));
        }
        let (listen, connect) = (grant.listen.clone(), grant.connect.clone());
        spec.ports = Some(Ports { network: network.to_owned(), listen, connect });
    }
    let sandbox = &policy.file().sandbox;
    spec.tree_limits = sandbox.minimum.contains(&Control::TreeLimits);
    spec.copies_only = sandbox.minimum.contains(&Control::ApprovedFiles);
    spec.mode = match sandbox.mode {
        SandboxMode::Strict => EnforcementMode::Strict,
        SandboxMode::Degrade => {
            let mut minimum: Vec<Promise> =
                sandbox.minimum.iter().map(|control| required_promise(*control)).collect();
            // Takes the place of `NetDeny` for commands with granted ports.
            if minimum.contains(&Promise::NetDeny) {
                minimum.push(Promise::NetPorts);
            }
            EnforcementMode::Degrade { minimum }
        }
    };
    Ok(spec)
}

/// git's directories are found when the step starts. If the workspace has no repository, the step must not create one,
/// with its own hooks and settings.
fn protect_repository(spec: &mut JailSpec, repository: &Path) {
    spec.protect_repositories = true;
    // An empty one may be another lobster's placeholder, which that lobster will remove.
    let is_empty = || fs::read_dir(repository).is_ok_and(|mut entries| entries.next().is_none());
    if repository.symlink_metadata().is_err() || is_empty() {
        // One placeholder is enough.
        spec.protect.retain(|path| !path.starts_with(repository));
        spec.protect.push(repository.to_owned());
    } else if !spec.write.iter().any(|root| root == repository) {
        // The whole directory is read-only.
        spec.protect.retain(|path| path.exists() || !path.starts_with(repository));
    }
}

/// Each socket is granted by its own path; a directory would grant other sockets as well.
fn open_sockets(
    spec: &mut JailSpec,
    roots: &RootOpener,
    paths: impl Iterator<Item = String>,
) -> Result<(), StageError> {
    for path in paths {
        // A socket that does not exist yet cannot be reached.
        let Some(held) = roots.open_root("reach", &path)? else { continue };
        if !held.is_socket() {
            let message = format!(
                "the policy grants unix = [{path:?}], which is not a socket; name each socket by its own path"
            );
            return Err(StageError::permanent(message));
        }
        spec.unix.push(held.path().to_owned());
        spec.held.push(held);
    }
    Ok(())
}

/// The path without links, as mounts need it.
pub(super) fn real_path(path: impl AsRef<Path>) -> PathBuf {
    fs::canonicalize(&path).unwrap_or_else(|_| path.as_ref().to_owned())
}

/// A path with its links resolved, as far as it exists.
pub(super) fn real_place(path: &Path) -> PathBuf {
    for above in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (fs::canonicalize(above), path.strip_prefix(above)) {
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    path.to_owned()
}

fn is_plain(path: &str) -> bool {
    path.starts_with('/') && !is_pattern(path)
}

fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '['])
}

/// A pattern whose fixed beginning is the real path, like the roots.
fn real_pattern(text: &str) -> String {
    let (not, path) = text.strip_prefix('!').map_or(("", text), |path| ("!", path));
    if !path.starts_with('/') {
        return text.to_owned();
    }
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    let fixed = names.iter().take_while(|name| !is_pattern(name)).count();
    for known in (1..=fixed).rev() {
        if let Ok(found) = fs::canonicalize(format!("/{}", names[..known].join("/"))) {
            let rest = names[known..].iter().map(|name| format!("/{name}"));
            return format!("{not}{}{}", found.display(), rest.collect::<String>());
        }
    }
    text.to_owned()
}

/// The first file on a path, if there is one: nothing can be below a file, so protecting the file protects the named
/// path.
pub(super) fn first_file(path: PathBuf) -> PathBuf {
    let above = path.ancestors().skip(1).find(|above| above.symlink_metadata().is_ok());
    match above {
        Some(above) if above.is_file() => above.to_owned(),
        _ => path,
    }
}

fn required_promise(control: Control) -> Promise {
    match control {
        Control::FsWrite => Promise::FsWrite,
        Control::FsRead => Promise::FsRead,
        Control::FsDeny => Promise::FsDeny,
        Control::FsDenyPatterns => Promise::FsDenyPatterns,
        Control::FsProtect => Promise::FsProtect,
        Control::NetDeny => Promise::NetDeny,
        Control::UnixDeny => Promise::UnixDeny,
        Control::NoNewPrivs => Promise::NoNewPrivs,
        Control::TreeKill => Promise::TreeKill,
        Control::EnvScrub => Promise::EnvScrub,
        Control::FdClose => Promise::FdClose,
        Control::Seccomp => Promise::KernelSurface,
        Control::TreeLimits => Promise::TreeLimits,
        Control::ApprovedFiles => Promise::ApprovedFiles,
    }
}
