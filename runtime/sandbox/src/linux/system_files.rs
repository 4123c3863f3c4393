//! Generated system files of one jail, with names of users, hosts and services. They reveal nothing about the
//! host except the name of the user that the step runs as.

use std::fmt::Write;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::super::proxy;
use super::jail::JailIdentity;
use super::wire::{Confined, Network};

/// Host name in a jail.
pub(super) const HOST_NAME: &str = "lobster";

/// Owner that the kernel shows for files whose owner does not exist in the jail.
const NOBODY: u32 = 65534;

/// Generated files, unless a grant contains the host's.
pub(super) const MADE: [&str; 6] =
    ["/etc/passwd", "/etc/group", "/etc/hostname", "/etc/nsswitch.conf", "/etc/hosts", "/etc/resolv.conf"];

/// The files of [`MADE`] for this jail. `home` is the step's home directory.
pub(super) fn generate_files(
    spec: &Confined,
    identity: JailIdentity,
    home: &[u8],
) -> Vec<(PathBuf, Vec<u8>)> {
    if spec.system.is_empty() {
        return Vec::new();
    }
    let is_granted = |path: &Path| spec.read.iter().chain(&spec.write).any(|root| path.starts_with(root));
    let content = |path: &str| match path {
        "/etc/passwd" => passwd_text(identity, home),
        "/etc/group" => group_text(identity),
        "/etc/hostname" => format!("{HOST_NAME}\n"),
        "/etc/nsswitch.conf" => {
            let of_files =
                ["passwd", "group", "shadow", "networks", "protocols", "services", "ethers", "rpc"];
            of_files.map(|name| format!("{name}: files\n")).concat() + "hosts: files dns\n"
        }
        "/etc/hosts" => hosts_text(spec),
        _ => "# No name server: the granted hosts are in /etc/hosts.\n".to_owned(),
    };
    MADE.iter()
        .filter(|path| !is_granted(Path::new(path)))
        .map(|path| (PathBuf::from(path), content(path).into_bytes()))
        .collect()
}

fn passwd_text(identity: JailIdentity, home: &[u8]) -> String {
    let home =
        std::str::from_utf8(home).ok().filter(|home| home.starts_with('/') && !home.contains([':', '\n']));
    let name = name_of(identity.uid, "/etc/passwd").unwrap_or_else(|| "user".to_owned());
    let (uid, gid) = (identity.uid, identity.gid);
    let mut text = format!("{name}:x:{uid}:{gid}::{}:/bin/sh\n", home.unwrap_or("/"));
    if uid != NOBODY {
        let _ = writeln!(text, "nobody:x:{NOBODY}:{NOBODY}::/nonexistent:/usr/sbin/nologin");
    }
    text
}

fn group_text(identity: JailIdentity) -> String {
    let name = name_of(identity.gid, "/etc/group").unwrap_or_else(|| "user".to_owned());
    let mut text = format!("{name}:x:{}:\n", identity.gid);
    if identity.gid != NOBODY {
        let _ = writeln!(text, "nogroup:x:{NOBODY}:");
    }
    text
}

/// The host's name of a user or group.
fn name_of(id: u32, file: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let id = id.to_string();
    let mut lines = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let line = lines.find(|fields| fields.get(2) == Some(&id.as_str()))?;
    let name = *line.first()?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (!name.is_empty() && name.chars().all(is_plain)).then(|| name.to_owned())
}

/// The loopback interface, and each granted host at its address in the jail.
fn hosts_text(spec: &Confined) -> String {
    let mut text = format!("127.0.0.1 localhost {HOST_NAME}\n::1 localhost ip6-localhost ip6-loopback\n");
    if spec.network == Network::Proxy {
        for (address, name) in proxy::named_addresses(&spec.hosts) {
            let _ = writeln!(text, "{address} {name}");
        }
    }
    text
}

/// Target of this root, if it is a link into another root; the jail then contains the same link. A root that
/// the policy judged is never a link.
pub(super) fn link_of(spec: &Confined, path: &Path) -> Option<PathBuf> {
    if spec.held_at(path).is_some() {
        return None;
    }
    let to = fs::read_link(path).ok()?;
    let mut place = PathBuf::new();
    for part in path.parent()?.join(&to).components() {
        match part {
            Component::ParentDir => drop(place.pop()),
            part => place.push(part),
        }
    }
    let leads_into = |root: &PathBuf| root != path && place.starts_with(root);
    (spec.read.iter().any(leads_into) && place.exists()).then_some(to)
}
