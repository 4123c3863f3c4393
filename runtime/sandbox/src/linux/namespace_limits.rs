//! Explains why a host refuses namespaces by naming the setting that forbids them. The kernel's own errors
//! mislead: it reports "no space left on device" if a limit is 0.

use std::fs;
use std::path::Path;

/// Operation that fails if the kernel makes no namespaces.
pub(super) const MAKE_PROCESS: &str = "make a process";

/// Directory of the kernel's settings.
const SETTINGS: &str = "/proc/sys";

/// Limits of the namespaces of each kind per user.
const LIMITS: [&str; 6] = ["user", "mnt", "pid", "net", "uts", "ipc"];

/// Settings that let only root make user namespaces, with the value that does so.
const SWITCHES: [(&str, &str); 2] =
    [("kernel/unprivileged_userns_clone", "0"), ("kernel/apparmor_restrict_unprivileged_userns", "1")];

/// The missing permission and its remedy, if the kernel refused to make the namespaces.
pub(super) fn explain_refusal(errno: i32, detail: &str) -> Option<String> {
    let is_switched_off = match errno {
        // Other calls report the same error for full disks.
        libc::ENOSPC => detail == MAKE_PROCESS,
        // With AppArmor, namespaces are made but everything in them is refused, except to root.
        libc::EPERM | libc::EACCES => !rustix::process::geteuid().is_root(),
        _ => false,
    };
    is_switched_off.then(|| explain_by(errno, Path::new(SETTINGS)))?
}

fn explain_by(errno: i32, settings: &Path) -> Option<String> {
    let read = |name: &str| fs::read_to_string(settings.join(name)).ok().map(|text| text.trim().to_owned());
    let named = |name: &str| name.replace('/', ".");
    if errno == libc::ENOSPC {
        let limits = LIMITS.map(|kind| format!("user/max_{kind}_namespaces"));
        let zero: Vec<String> =
            limits.iter().filter(|name| read(name).as_deref() == Some("0")).map(|name| named(name)).collect();
        return Some(match zero.as_slice() {
            [] => "the limit of namespaces for this user is reached; raise user.max_user_namespaces and the like, or \
                   run fewer steps at once"
                .to_owned(),
            [first, ..] => format!(
                "{} {} 0; as root set {first} to a larger number, as in `sysctl {first}=15000`",
                zero.join(", "),
                if zero.len() > 1 { "are" } else { "is" },
            ),
        });
    }
    let (name, value) = SWITCHES.iter().find(|(name, value)| read(name).as_deref() == Some(value))?;
    let (name, other) = (named(name), if *value == "0" { "1" } else { "0" });
    Some(format!("{name} is {value}; as root set it, as in `sysctl {name}={other}`, or run lobster as root"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_is_named_that_refuses_namespaces() {
        let settings = tempfile::tempdir().unwrap();
        for (name, value) in [("user/max_user_namespaces", "0\n"), ("user/max_net_namespaces", "9\n")] {
            let path = settings.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value).unwrap();
        }
        let explain = |errno| explain_by(errno, settings.path());
        let text = explain(libc::ENOSPC).unwrap();
        assert!(text.starts_with("user.max_user_namespaces is 0; ") && !text.contains("net"), "{text}");
        fs::write(settings.path().join("user/max_user_namespaces"), "9").unwrap();
        assert!(explain(libc::ENOSPC).unwrap().starts_with("the limit of namespaces"));
        assert_eq!(explain(libc::EPERM), None);
        fs::create_dir(settings.path().join("kernel")).unwrap();
        fs::write(settings.path().join("kernel/apparmor_restrict_unprivileged_userns"), "1\n").unwrap();
        let text = explain(libc::EPERM).unwrap();
        assert!(text.contains("`sysctl kernel.apparmor_restrict_unprivileged_userns=0`"), "{text}");
        assert_eq!(explain_refusal(libc::ENOSPC, "mount /proc"), None);
        assert_eq!(explain_refusal(libc::EINVAL, MAKE_PROCESS), None);
    }
}
