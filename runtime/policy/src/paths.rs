//! Meaning of a path for the policy: root, secret, protected, device.
//!
//! Everything here is lexical. Whether a path exists, or is a symbolic link, is not checked: the
//! decision must be the same on every host, and the sandbox handles links.

use std::path::{Path, PathBuf};

use super::Policy;
use super::decision_env::DecisionEnv;
use lobster_base::glob::glob_match;

/// Files that are secret even if a policy does not name them.
const BUILTIN_SECRETS: &[&str] = text_list!("lists/secrets.txt");

/// Paths that a step never changes, even if the policy allows it: in the workspace, and lobster's own
/// files. The same applies to the entries of [`GIT_RUNS_CODE`] in `@workspace/.git`. A step changes the
/// rest of `.git` only with a grant that names it; the sandbox enforces this here and in repositories
/// below the workspace.
const BUILTIN_PROTECTED: &[&str] = &[
    "@workspace/.lobster",
    "@workspace/.lobster-cache",
    "@workspace/lobster.policy.toml",
    "@state/store",
    "@state/logins",
    "@state/models",
    MARKS_OUTSIDE,
];

/// Path at which stores record their promises, in case a whole state directory is restored to an
/// earlier state.
pub const MARKS_OUTSIDE: &str = "~/.lobster/high-water";

/// Built-in secrets as patterns for the sandbox, which looks for them on disk. A path that is granted
/// by its own name is not hidden by the patterns that match it.
pub fn secret_patterns(env: &DecisionEnv, granted: &[PathBuf]) -> Vec<String> {
    let covers = |text: &str, path: &Path| {
        PathPattern::new(text, env).covers_path(&path_components(&path.to_string_lossy()))
    };
    // The jail's own /proc shows only the step's processes.
    let all = BUILTIN_SECRETS.iter().filter(|text| !text.trim_start_matches('!').starts_with("/proc/"));
    let (covering, others): (Vec<&str>, Vec<&str>) =
        all.partition(|text| granted.iter().any(|path| covers(text, path)));
    let meant = granted.iter().filter(|path| covering.iter().any(|text| covers(text, path)));
    let expanded =
        |texts: Vec<&str>| texts.into_iter().map(|text| expand_root(text, env)).collect::<Vec<_>>();
    let meant: Vec<String> = meant.map(|path| format!("!{}", path.display())).collect();
    [expanded(covering), meant, expanded(others)].concat()
}

/// Entries of a git directory that make git run programs: no grant reaches them.
pub const GIT_RUNS_CODE: &[&str] = text_list!("lists/git-runs-code.txt");

/// All paths that a policy protects in a workspace.
pub fn protected_places(policy: &Policy, env: &DecisionEnv) -> Vec<String> {
    let own = policy.file().sandbox.fs.protect.iter().map(|path| expand_root(path, env));
    own.chain(builtin_protected(env)).chain(env.protected.iter().cloned()).collect()
}

/// Built-in protected paths of a workspace.
pub fn builtin_protected(env: &DecisionEnv) -> impl Iterator<Item = String> {
    let of_git = GIT_RUNS_CODE.iter().map(|name| format!("{}/.git/{name}", env.workspace));
    of_git.chain(BUILTIN_PROTECTED.iter().map(|text| expand_root(text, env)))
}

/// Roots in which a policy lets any step write.
pub fn write_roots(policy: &Policy, env: &DecisionEnv) -> impl Iterator<Item = String> {
    let general =
        policy.file().sandbox.fs.write.iter().chain(policy.file().components.write.iter().flatten());
    let granted = policy.rules().iter().flat_map(|rule| &rule.grant.fs_write);
    let roots = general.chain(granted).filter(|path| !path.ends_with(":ro"));
    let shared = roots.filter(|path| !is_each_steps_own(path));
    shared.map(|path| normalise_path("/", &expand_root(path, env)))
}

/// True if each step has its own directory for this root.
pub(crate) fn is_each_steps_own(root: &str) -> bool {
    root.starts_with("@tmp") || root.starts_with("@step-home")
}

/// The name of the system's directories in `read` and `write`.
pub const SYSTEM_ROOTS: &str = "@system-ro";

/// Contents of `@system-ro`: the operating system's own read-only trees, the kernel's views of itself,
/// and the files of /etc that programs look for and that hold nothing private: no keys, no accounts, no
/// settings with passwords. The sandbox creates users and hosts for each jail.
pub const SYSTEM_READ_ONLY: &[&str] = text_list!("lists/system-read-only.txt");

/// Device nodes that hold no data of the host.
const HARMLESS_DEVICES: &[&str] = text_list!("lists/harmless-devices.txt");

/// Name prefixes of devices that are a disk, memory or ports.
const RAW_DEVICES: &[&str] = &[
    "sd", "hd", "vd", "xvd", "nvme", "mmcblk", "dm-", "md", "loop", "nbd", "sr", "zd", "zram", "mapper/",
    "disk/", "block/", "mem", "kmem", "port", "pmem", "bcache", "drbd", "rbd", "fd0", "st0", "mtd", "ubi",
    "vg", "raw/",
];

/// Directories in which a write reaches the kernel itself.
const KERNEL_TRIGGERS: &[&str] = text_list!("lists/kernel-triggers.txt");

/// Directories below a top directory whose loss ends the system.
const CRITICAL_SECOND_LEVEL: &[&str] = &["/var/lib", "/var/log", "/boot/efi", "/boot/grub"];

/// One pattern of a deny list, split at its slashes.
#[derive(Clone, Debug)]
struct PathPattern {
    negated: bool,
    components: Vec<String>,
}

impl PathPattern {
    fn new(text: &str, env: &DecisionEnv) -> Self {
        let denied = text.strip_prefix('!');
        let expanded = expand_root(denied.unwrap_or(text), env);
        let components = path_components(&expanded).into_iter().map(str::to_owned).collect();
        Self { negated: denied.is_some(), components }
    }

    /// True if the pattern names `path` or a directory above it.
    fn covers_path(&self, path: &[&str]) -> bool {
        pattern_covers(&self.components, path)
    }
}

fn pattern_covers(pattern: &[String], path: &[&str]) -> bool {
    let Some((first, rest)) = pattern.split_first() else {
        return true;
    };
    if first == "**" {
        return (0..=path.len()).any(|skip| pattern_covers(rest, &path[skip..]));
    }
    match path.split_first() {
        Some((component, deeper)) => glob_match(first, component) && pattern_covers(rest, deeper),
        None => false,
    }
}

/// The step's own home in a decision: the jail creates it later. No file of the host has this name.
pub(crate) const STEP_HOME: &str = "/@step-home";

/// Replaces `@workspace`, `@tmp`, `@state`, `@step-home` and a leading `~`, which is the caller's home.
pub fn expand_root(text: &str, env: &DecisionEnv) -> String {
    for (name, root) in [
        ("@workspace", env.workspace.as_str()),
        ("@tmp", env.tmp.as_str()),
        ("@state", env.state.as_str()),
        ("@step-home", STEP_HOME),
        ("~", env.home.as_str()),
    ] {
        if let Some(rest) = text.strip_prefix(name)
            && (rest.is_empty() || rest.starts_with('/'))
        {
            return format!("{root}{rest}");
        }
    }
    text.to_owned()
}

/// The value of a variable that a policy sets. Each of its entries, which `:` separates, may begin with `~`, the
/// caller's home, or `@workspace`, as in paths; `@step-home` stays, because the step's home is made later.
pub fn expand_set_value(value: &str, env: &DecisionEnv) -> String {
    let expanded = value.split(':').map(|entry| {
        let names_root = ["~", "@workspace"].iter().any(|root| {
            entry.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        if names_root { expand_root(entry, env) } else { entry.to_owned() }
    });
    expanded.collect::<Vec<_>>().join(":")
}

/// Path as rules write it: the caller's home is `~`, and the step's is `@step-home`. The workspace
/// keeps its path.
pub fn rule_path(path: &str, env: &DecisionEnv) -> String {
    let is_below_home = env.home.len() > 1 && is_under(path, &env.home) && !is_under(path, &env.workspace);
    if is_below_home { format!("~{}", &path[env.home.len()..]) } else { name_step_home(path) }
}

/// Words of a decision for people.
pub fn name_step_home(text: &str) -> String {
    text.replace(STEP_HOME, "@step-home")
}

/// True if the path has a component `..`. After a symbolic link it leads to the parent of the link's
/// target, which `normalise` does not know.
pub(crate) fn leaves_upwards(text: &str) -> bool {
    text.split('/').any(|component| component == "..")
}

/// Joins `text` to `cwd` and removes `.`, `..` and doubled slashes without reading the file system.
/// `/proc/<pid>/root` becomes the root that it shows.
pub(crate) fn normalise_path(cwd: &str, text: &str) -> String {
    let mut out: Vec<&str> = Vec::new();
    let full = if text.starts_with('/') { text.to_owned() } else { format!("{cwd}/{text}") };
    for component in full.split('/') {
        match component {
            "" | "." => {}
            ".." => {
                out.pop();
            }
            "root" if is_process(&out) => out.clear(),
            "cwd" if is_process(&out) => {
                out.clear();
                out.extend(cwd.split('/').filter(|c| !c.is_empty()));
            }
            other => out.push(other),
        }
    }
    format!("/{}", out.join("/"))
}

/// True if these are the components of `/proc/<pid>` or of one of its tasks.
fn is_process(path: &[&str]) -> bool {
    matches!(path, ["proc", _] | ["proc", _, "task", _])
}

/// True if `path` is equal to or below `root`; both are normalised.
pub(crate) fn is_under(path: &str, root: &str) -> bool {
    root == "/" || path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn path_components(path: &str) -> Vec<&str> {
    path.split('/').filter(|c| !c.is_empty()).collect()
}

/// Roots of one policy, resolved for one decision.
#[derive(Clone, Debug)]
pub struct Roots {
    read: Vec<String>,
    write: Vec<String>,
    protect: Vec<String>,
    secrets: Vec<PathPattern>,
    home: String,
    workspace: String,
}

impl Roots {
    /// Resolves the root names of a policy for `env`.
    pub(crate) fn new(
        read: &[String],
        write: &[String],
        deny: &[String],
        protect: &[String],
        env: &DecisionEnv,
    ) -> Self {
        let resolve = |list: &[String]| {
            let mut out = Vec::new();
            for entry in list {
                if entry == SYSTEM_ROOTS {
                    out.extend(SYSTEM_READ_ONLY.iter().map(|s| (*s).to_owned()));
                } else {
                    out.push(normalise_path("/", &expand_root(entry, env)));
                }
            }
            out
        };
        let mut protect = resolve(protect);
        protect.extend(builtin_protected(env).map(|entry| normalise_path("/", &entry)));
        protect.extend(env.protected.iter().cloned());
        let mut read = resolve(read);
        read.extend(HARMLESS_DEVICES.iter().map(|d| (*d).to_owned()));
        read.push("/dev/fd".to_owned());
        Self {
            read,
            write: resolve(write),
            protect,
            secrets: BUILTIN_SECRETS
                .iter()
                .copied()
                .chain(deny.iter().map(String::as_str))
                .flat_map(|text| {
                    // In the step's home, the same names mean the caller's secrets.
                    let own = text.starts_with(['~', '!']).then(|| text.replacen("~/", "@step-home/", 1));
                    [Some(text.to_owned()), own]
                })
                .flatten()
                .map(|text| PathPattern::new(&text, env))
                .collect(),
            home: env.home.clone(),
            workspace: env.workspace.clone(),
        }
    }

    /// True if reading `path` reveals a secret. The last pattern that matches the path decides, so
    /// `!**/.env.example` can exclude a file again.
    pub(crate) fn is_secret(&self, path: &str) -> bool {
        let path = path_components(path);
        let mut secret = false;
        for pattern in &self.secrets {
            if pattern.negated == secret && pattern.covers_path(&path) {
                secret = !pattern.negated;
            }
        }
        secret
    }

    /// True if a path with shell wildcards can match a secret: some component with more than wildcards
    /// matches at the position of a secret's name.
    pub(crate) fn glob_reaches_secret(&self, path: &str) -> bool {
        let path = path_components(path);
        self.secrets.iter().filter(|pattern| !pattern.negated).any(|pattern| {
            let named: Vec<&str> =
                pattern.components.iter().map(String::as_str).filter(|c| *c != "**").collect();
            let floating = named.len() != pattern.components.len();
            if named.iter().any(|c| c.contains('*')) {
                return false;
            }
            let starts = if floating { 0..path.len() } else { 0..1 };
            starts.into_iter().any(|start| {
                let tail = &path[start..];
                tail.len() >= named.len()
                    && named.iter().zip(tail).all(|(name, part)| glob_match(part, name))
                    && named.iter().zip(tail).all(|(name, part)| {
                        *name == *part
                            || part.chars().filter(|c| !matches!(c, '*' | '?' | '[' | ']')).count() >= 2
                            // Wildcards match hidden names only after a dot.
                            || (part.starts_with('.') && name.starts_with('.'))
                    })
            })
        })
    }

    /// True if a name alone, as in `find -name`, matches a secret.
    pub(crate) fn is_secret_name(&self, name: &str) -> bool {
        let base = name.rsplit('/').next().unwrap_or(name);
        self.secrets.iter().any(|pattern| {
            !pattern.negated
                && pattern.components.last().is_some_and(|last| {
                    last.chars().any(|c| c != '*') && (last == base || glob_match(base, last))
                })
        }) && base.chars().filter(|c| !matches!(c, '*' | '?')).count() >= 2
            && !self.secrets.iter().any(|p| p.negated && p.components.last().is_some_and(|last| last == base))
    }

    /// True if steps may read `path`.
    pub(crate) fn is_readable(&self, path: &str) -> bool {
        is_under(path, STEP_HOME) || self.read.iter().chain(&self.write).any(|root| is_under(path, root))
    }

    /// True if steps may write `path`, apart from protection.
    pub(crate) fn is_writable(&self, path: &str) -> bool {
        is_under(path, STEP_HOME) || self.write.iter().any(|root| is_under(path, root))
    }

    /// True if `path` belongs to git and no write root names it.
    pub(crate) fn is_unnamed_repository(&self, path: &str) -> bool {
        let is_gits = |path: &str| path_components(path).contains(&".git");
        is_gits(path) && !self.write.iter().any(|root| is_gits(root) && is_under(path, root))
    }

    /// True if `path` is protected even inside a write root.
    pub(crate) fn is_protected(&self, path: &str) -> bool {
        self.protect.iter().any(|root| is_under(path, root))
    }

    /// True if the loss of everything at `path` ends the system or the user's work: the root, a top
    /// directory, the home directory, or any directory above home or workspace. `path` may contain
    /// wildcards.
    pub fn is_vital(&self, path: &str) -> bool {
        let mut parts = path_components(path);
        // `/etc/*` empties /etc; `/*/x` reaches into every top directory.
        while parts.last().is_some_and(|last| last.chars().all(|c| matches!(c, '*' | '.' | '?'))) {
            parts.pop();
        }
        let path = format!("/{}", parts.join("/"));
        if parts.is_empty() {
            return true;
        }
        if self.write.contains(&path) || path == self.workspace {
            return false;
        }
        if parts.len() == 1 {
            return path != "/tmp";
        }
        path == self.home
            || is_under(&self.home, &path)
            || (self.workspace != "/" && is_under(&self.workspace, &path))
            || (parts.len() == 2 && parts[0] == "usr")
            || CRITICAL_SECOND_LEVEL.contains(&path.as_str())
            || (parts.len() == 2 && parts[0] == "home" && parts[1].contains(['*', '?', '[']))
    }
}

/// True if `path` is a device node that all programs may use.
pub(crate) fn is_harmless_device(path: &str) -> bool {
    HARMLESS_DEVICES.contains(&path)
        || path.starts_with("/dev/fd/")
        || path.strip_prefix("/proc/self/fd/").is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
}

/// True if `path` is a disk, memory or another raw device. Wildcards stand for any possible match.
pub(crate) fn is_raw_device(path: &str) -> bool {
    path.strip_prefix("/dev/").is_some_and(|name| {
        RAW_DEVICES.iter().any(|device| name.starts_with(device))
            || (name.contains(['*', '?', '[']) && !name.contains('/'))
    })
}

/// True if a write to `path` controls the kernel.
pub(crate) fn is_kernel_trigger(path: &str) -> bool {
    KERNEL_TRIGGERS.iter().any(|root| is_under(path, root))
}

/// True if bash opens a network connection for this path.
pub(crate) fn is_net_pseudo_device(path: &str) -> bool {
    path.starts_with("/dev/tcp/") || path.starts_with("/dev/udp/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_roots() -> Roots {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        Roots::new(
            &own(&["@workspace", "@system-ro", "/etc/hosts", "/var/log"]),
            &own(&["@workspace", "@tmp"]),
            &own(&["~/.ssh", "**/.env", "**/.env.*", "!**/.env.example"]),
            &own(&["@workspace/.git/hooks"]),
            &DecisionEnv::fixture(),
        )
    }

    #[test]
    fn the_value_of_a_set_variable_may_begin_with_a_root() {
        let env = DecisionEnv::fixture();
        for (value, expected) in [
            ("~", env.home.clone()),
            ("~/.cargo", format!("{}/.cargo", env.home)),
            ("~/bin:/usr/bin:@workspace/bin", format!("{}/bin:/usr/bin:{}/bin", env.home, env.workspace)),
            ("@step-home", "@step-home".to_owned()),
            ("a~/b", "a~/b".to_owned()),
            ("~user", "~user".to_owned()),
            ("me@workspace", "me@workspace".to_owned()),
        ] {
            assert_eq!(expand_set_value(value, &env), expected, "{value}");
        }
    }

    #[test]
    fn paths_are_normalised_without_touching_the_disk() {
        assert_eq!(normalise_path("/srv/repo", "../../../etc/shadow"), "/etc/shadow");
        assert_eq!(normalise_path("/srv/repo", "./usr/../"), "/srv/repo");
        assert_eq!(normalise_path("/", "//"), "/");
        assert_eq!(normalise_path("/srv/repo", "/proc/self/root/bin/rm"), "/bin/rm");
        assert_eq!(normalise_path("/srv/repo", "/proc/self/cwd/../x"), "/srv/x");
    }

    #[test]
    fn secrets_follow_the_last_matching_pattern() {
        let roots = sample_roots();
        assert!(roots.is_secret("/srv/repo/.env"));
        assert!(roots.is_secret("/srv/repo/a/.env.local"));
        assert!(!roots.is_secret("/srv/repo/.env.example"));
        assert!(roots.is_secret("/home/agent/.ssh/id_ed25519"));
        assert!(roots.is_secret("/root/.ssh"));
        assert!(roots.is_secret("/proc/1/environ"));
        assert!(!roots.is_secret("/proc/self/environ"));
        assert!(!roots.is_secret("/srv/repo/src/env.rs"));
        assert!(roots.glob_reaches_secret("/etc/sh*"));
        assert!(roots.glob_reaches_secret("/srv/repo/.e*"));
        assert!(!roots.glob_reaches_secret("/srv/repo/*"));
    }

    #[test]
    fn vital_paths_include_globs_and_ancestors() {
        let roots = sample_roots();
        for vital in ["/", "/*", "/etc", "/etc/*", "/home", "/home/agent", "/srv", "/usr/lib"] {
            assert!(roots.is_vital(vital), "{vital}");
        }
        for fine in ["/srv/repo", "/srv/repo/*", "/tmp", "/tmp/x", "/srv/repo/target"] {
            assert!(!roots.is_vital(fine), "{fine}");
        }
    }

    #[test]
    fn the_sandbox_reads_patterns_as_the_policy_does() {
        use lobster_sandbox::JailSpec;
        // Small alphabets, so that names often match.
        const PARTS: [&str; 9] = ["**", "*", "a", "b", "a*", "*b", "?", "[ab]c", "ac"];
        const NAMES: [&str; 6] = ["a", "b", "ac", "bc", "ab", "x"];
        let env = DecisionEnv::fixture();
        let mut state = 1u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % below
        };
        let (mut secret, total) = (0, 20_000);
        for _ in 0..total {
            let deny: Vec<String> = (0..1 + random(4))
                .map(|_| {
                    let not = if random(3) == 0 { "!" } else { "" };
                    let start = if random(2) == 0 { "**" } else { "" };
                    let rest: String = (0..1 + random(3)).map(|_| format!("/{}", PARTS[random(9)])).collect();
                    format!("{not}{start}{rest}")
                })
                .collect();
            let path: String = (0..1 + random(5)).map(|_| format!("/{}", NAMES[random(6)])).collect();
            let roots = Roots::new(&[], &[], &deny, &[], &env);
            let spec = JailSpec { deny_patterns: deny.clone(), ..JailSpec::default() };
            let by_policy = roots.is_secret(&path);
            assert_eq!(spec.hides(Path::new(&path)), by_policy, "{path} by {deny:?}");
            secret += usize::from(by_policy);
        }
        assert!(secret > total / 10 && secret < total * 9 / 10, "{secret} of {total}");
    }
}
