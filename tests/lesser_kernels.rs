//! Hosts that lack something: strict refuses and names it, degraded runs say
//! what is missing, and no mechanism goes missing in silence. The host is this
//! one with system calls taken away, and where tests run as root, an ordinary user.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::binary;

/// The ordinary user, and nobody's group.
pub(crate) const NOBODY: u32 = 65534;

/// What is missing without namespaces: no mount namespace, no process namespace. What is
/// denied is lobster's own store, which lies in the directory that the step may read.
const UNCONTAINED: &[&str] =
    &["fs-metadata", "fs-deny", "fs-protect", "fs-deny-patterns", "process-isolation"];

/// A kernel, and what may be promised on it.
struct Case {
    /// As `faults/without.c` knows them.
    without: &'static str,
    /// What a jail cannot promise there; with nothing, strict runs.
    missing: &'static [&'static str],
    /// The mechanisms that the statement calls lacking.
    lacking: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case { without: "nothing", missing: &[], lacking: &[] },
    Case { without: "user-namespaces", missing: UNCONTAINED, lacking: &["namespaces"] },
    Case { without: "network-namespaces", missing: UNCONTAINED, lacking: &["namespaces"] },
    Case { without: "mounts", missing: UNCONTAINED, lacking: &["namespaces"] },
    Case { without: "mount-attributes", missing: UNCONTAINED, lacking: &["namespaces"] },
    Case { without: "pivot-root", missing: UNCONTAINED, lacking: &["namespaces"] },
    // Sockets of others are out of sight then.
    Case { without: "seccomp", missing: &["kernel-surface"], lacking: &["seccomp"] },
    // The second wall: the mount namespace holds the same promises alone.
    Case { without: "landlock", missing: &[], lacking: &["Landlock"] },
    Case { without: "landlock-disabled", missing: &[], lacking: &["Landlock"] },
    Case { without: "landlock-restrict", missing: &[], lacking: &["Landlock"] },
    // Used by no confinement.
    Case { without: "pidfd", missing: &[], lacking: &[] },
    Case { without: "clone3", missing: &[], lacking: &[] },
    Case { without: "close-range", missing: &[], lacking: &[] },
    Case {
        without: "user-namespaces,landlock",
        missing: &[
            "fs-read",
            "fs-write",
            "fs-metadata",
            "fs-deny",
            "fs-protect",
            "fs-deny-patterns",
            "process-isolation",
        ],
        lacking: &["namespaces", "Landlock"],
    },
    Case {
        without: "user-namespaces,seccomp",
        missing: &[
            "fs-metadata",
            "fs-deny",
            "fs-protect",
            "fs-deny-patterns",
            "net-deny",
            "unix-deny",
            "process-isolation",
            "kernel-surface",
        ],
        lacking: &["namespaces", "seccomp"],
    },
];

const FLOW: &str = "steps:\n  - { id: touch, exec: [touch, ran] }\n";

fn policy(sandbox: &str) -> String {
    format!(
        "version = 1\n[sandbox]\n{sandbox}\n[[rule]]\nid = \"touch\"\neffect = \"allow\"\nprogram = \"touch\"\n\
         grant = {{ fs_write = [\"@workspace\"] }}\n"
    )
}

/// The launcher and the binary under test, where every user can run them.
pub(crate) struct Tools {
    directory: tempfile::TempDir,
}

impl Tools {
    /// None where it cannot be made.
    pub(crate) fn make() -> Option<Self> {
        let directory = tempfile::Builder::new().prefix("lobster-test-").tempdir_in("/var/tmp").unwrap();
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let tools = Self { directory };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("faults/without.c");
        let compiled = Command::new("cc").args(["-O1", "-w", "-o"]).arg(tools.without()).arg(source).status();
        if !compiled.is_ok_and(|status| status.success()) {
            eprintln!("no lesser kernels without a C compiler");
            return None;
        }
        binary::copy_program(binary::lobster(), &tools.lobster());
        Some(tools)
    }

    pub(crate) fn without(&self) -> PathBuf {
        self.directory.path().join("without")
    }

    pub(crate) fn lobster(&self) -> PathBuf {
        self.directory.path().join("lobster")
    }
}

/// One user's place on one kernel.
struct Host<'t> {
    tools: &'t Tools,
    without: &'t str,
    user: Option<u32>,
    place: tempfile::TempDir,
}

impl<'t> Host<'t> {
    fn new(tools: &'t Tools, without: &'t str, user: Option<u32>) -> Self {
        let place = tempfile::Builder::new().prefix("lobster-test-").tempdir_in("/var/tmp").unwrap();
        std::fs::write(place.path().join("flow.lobster"), FLOW).unwrap();
        chown(place.path(), user, user).unwrap();
        Self { tools, without, user, place }
    }

    fn call(&self, words: &[&str]) -> Output {
        let mut command = match self.user {
            None => Command::new(self.tools.without()),
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.arg(format!("--reuid={user}")).arg(format!("--regid={user}")).arg("--clear-groups");
                command.arg(self.tools.without());
                command
            }
        };
        command.arg(self.without).arg(self.tools.lobster()).args(words);
        command.current_dir(self.place.path()).env_clear().env("PATH", "/usr/bin:/bin");
        command.env("HOME", self.place.path()).env("LOBSTER_STATE_DIR", self.place.path().join("state"));
        command.output().unwrap()
    }

    /// Runs the workflow under a policy; gives the envelope.
    fn run(&self, sandbox: &str) -> Value {
        std::fs::write(self.place.path().join("policy.toml"), policy(sandbox)).unwrap();
        let output = self.call(&["run", "--mode", "tool", "--policy", "policy.toml", "flow.lobster"]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{self}: {error}: {output:?}"))
    }

    fn has_run(&self) -> bool {
        self.place.path().join("ran").exists()
    }

    /// The enforcement statement of the only step of the last run.
    fn statement(&self) -> Value {
        let runs: Value = serde_json::from_slice(&self.call(&["runs", "--json"]).stdout).unwrap();
        let run = runs[0]["id"].as_str().unwrap();
        let shown = String::from_utf8(self.call(&["show", run, "--full"]).stdout).unwrap();
        let line = shown.lines().find_map(|line| line.trim().strip_prefix("enforced "));
        serde_json::from_str(line.unwrap_or_else(|| panic!("{self}: no statement: {shown}"))).unwrap()
    }
}

impl std::fmt::Display for Host<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let user = if self.user.is_some() { "nobody" } else { "the caller" };
        write!(f, "without {} as {user}", self.without)
    }
}

/// What is named, but for the limits of the tree: whether a user has control groups is his host's affair.
fn names<'v>(list: &'v Value, key: &str) -> Vec<&'v str> {
    let named = list.as_array().into_iter().flatten().filter_map(|entry| entry[key].as_str());
    named.filter(|name| !["tree-limits", "control groups"].contains(name)).collect()
}

fn users() -> Vec<Option<u32>> {
    if rustix::process::geteuid().is_root() { vec![None, Some(NOBODY)] } else { vec![None] }
}

#[test]
fn what_a_kernel_lacks_is_refused_or_said() {
    let Some(tools) = Tools::make() else { return };
    for case in CASES {
        for user in users() {
            let host = Host::new(&tools, case.without, user);
            let strict = host.run("mode = \"strict\"");
            if case.missing.is_empty() {
                assert_eq!(strict["status"], "ok", "{host}: {strict}");
                assert_eq!(names(&host.statement()["lacking"], "mechanism"), case.lacking, "{host}");
                std::fs::remove_file(host.place.path().join("ran")).unwrap();
            } else {
                let message = strict["error"]["message"].as_str().unwrap_or_default();
                assert!(message.contains("refused to run: cannot enforce"), "{host}: {strict}");
                for name in case.missing.iter().chain(case.lacking) {
                    assert!(message.contains(name), "{host}: {name} is not named: {message}");
                }
                assert!(!host.has_run(), "{host}");
                // The least that is demanded of a degraded run counts as much.
                let least =
                    case.missing.iter().find(|name| ["fs-read", "fs-write", "net-deny"].contains(name));
                if let Some(least) = least {
                    let refused = host.run(&format!("mode = \"degrade\"\nminimum = [\"{least}\"]"));
                    let message = refused["error"]["message"].as_str().unwrap_or_default();
                    assert!(message.contains(least) && !host.has_run(), "{host}: {refused}");
                }
            }
            let degraded = host.run("mode = \"degrade\"\nminimum = []");
            assert!(degraded["status"] == "ok" && host.has_run(), "{host}: {degraded}");
            let statement = host.statement();
            assert_eq!(names(&statement["missing"], "promise"), case.missing, "{host}");
            assert_eq!(names(&statement["lacking"], "mechanism"), case.lacking, "{host}");
            for missing in statement["missing"].as_array().unwrap() {
                assert!(missing["why"].as_str().is_some_and(|why| why.len() > 10), "{host}: {missing}");
            }
        }
    }
}

#[test]
fn limits_of_the_tree_are_refused_to_who_may_not_make_control_groups() {
    let Some(tools) = Tools::make() else { return };
    for user in users() {
        let host = Host::new(&tools, "nothing", user);
        let can = host.run("mode = \"degrade\"\nminimum = []")["status"] == "ok" && {
            let statement = host.statement();
            let held = statement["held"].as_array().unwrap().iter().any(|held| held[0] == "tree-limits");
            let missing = statement["missing"].as_array().unwrap().iter();
            assert!(
                held != missing.clone().any(|missing| missing["promise"] == "tree-limits"),
                "{statement}"
            );
            held
        };
        std::fs::remove_file(host.place.path().join("ran")).unwrap();
        for mode in ["strict", "degrade"] {
            let demanded = host.run(&format!("mode = \"{mode}\"\nminimum = [\"tree-limits\"]"));
            let message = demanded["error"]["message"].as_str().unwrap_or_default();
            assert_eq!(message.contains("tree-limits (control groups: "), !can, "{host}: {demanded}");
            assert_eq!(host.has_run(), can, "{host}");
        }
    }
}

#[test]
fn a_host_whose_limit_of_namespaces_is_nought_says_so_once() {
    let Some(tools) = Tools::make() else { return };
    let host = Host::new(&tools, "nothing", None);
    std::fs::write(host.place.path().join("policy.toml"), policy("mode = \"strict\"")).unwrap();
    // The limit of a user namespace of its own, which leaves the host alone.
    let script = "echo 0 > /proc/sys/user/max_user_namespaces || exit 88; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", script, "sh"]).arg(tools.lobster());
    command.args(["run", "--mode", "tool", "--policy", "policy.toml", "flow.lobster"]);
    command.current_dir(host.place.path()).env_clear().env("PATH", "/usr/bin:/bin");
    command.env("HOME", host.place.path()).env("LOBSTER_STATE_DIR", host.place.path().join("state"));
    let output = command.output().unwrap();
    let Ok(envelope) = serde_json::from_slice::<Value>(&output.stdout) else {
        println!("no user namespace, or no such limit, here: {output:?}");
        return;
    };
    let message = envelope["error"]["message"].as_str().unwrap_or_default();
    assert_eq!(message.matches("user.max_user_namespaces is 0").count(), 1, "{message}");
    assert!(
        message.contains("sysctl user.max_user_namespaces=") && !message.contains("No space left"),
        "{message}"
    );
    assert!(!host.has_run());
}

#[test]
fn a_protected_path_that_this_user_cannot_make_needs_no_placeholder() {
    let Some(tools) = Tools::make() else { return };
    if !rustix::process::geteuid().is_root() {
        println!("only root can make a directory that is another user's");
        return;
    }
    let host = Host::new(&tools, "nothing", Some(NOBODY));
    let locked = host.place.path().join("locked");
    std::fs::create_dir(&locked).unwrap();
    std::fs::set_permissions(&locked, PermissionsExt::from_mode(0o755)).unwrap();
    let protect = |name: &str| {
        format!("mode = \"degrade\"\nminimum = []\n[sandbox.fs]\nprotect = [\"@workspace/{name}\"]")
    };
    for name in ["locked/none", "locked/none/below", "own/none"] {
        let answer = host.run(&protect(name));
        assert!(answer["status"] == "ok" && host.has_run(), "{name}: {answer}");
        std::fs::remove_file(host.place.path().join("ran")).unwrap();
        assert!(!locked.join("none").exists() && !host.place.path().join("own").exists(), "{name}");
    }
    // What the user owns it could open for itself, so that is no excuse.
    std::fs::create_dir(host.place.path().join("closed")).unwrap();
    chown(host.place.path().join("closed"), Some(NOBODY), Some(NOBODY)).unwrap();
    std::fs::set_permissions(host.place.path().join("closed"), PermissionsExt::from_mode(0o555)).unwrap();
    let answer = host.run(&protect("closed/none"));
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("closed/none") && !host.has_run(), "{answer}");
}
