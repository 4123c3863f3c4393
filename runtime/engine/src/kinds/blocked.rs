//! Hints for a person about the narrowest grant that a command in the sandbox most likely lacked, taken from its
//! output and from the sandbox's denials. A hint grants nothing and decides nothing.

mod endpoints;
mod paths;

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use self::paths::{is_copy, is_like_a_file, is_quote, join_causes, joined, paths};
use super::bound_trees::KERNEL_VIEWS;
use super::decided::Decided;
use super::decision_env::decision_env;
use super::native::Job;
use crate::run::Run;
use crate::value::Text;
use lobster_base::credential::CredentialGrant;
use lobster_policy::{
    DecisionEnv, GIT_RUNS_CODE, HostPrograms, Policy, Resolve, Roots, rule_path, secret_patterns,
};
use lobster_sandbox::{Denial, Enforcement, JailSpec, Net, Promise};
use lobster_stage::SANDBOX_BLOCKED;
use lobster_store::{Blob, StepOutcome, StepStatus};

/// Longest stdout that is read for errors; a longer one holds data.
const MOST_STDOUT: u64 = 64 << 10;

/// Most hints of one failure; a person would not read more.
const MOST: usize = 5;

/// The words of C libraries for a refused write. Other languages print them in lower case.
const READ_ONLY: &str = "read-only file system";
/// The words of C libraries for a mount point, such as a granted file, that cannot be replaced.
const BUSY: &str = "device or resource busy";
/// The words of C libraries for a refusal.
const REFUSED: [&str; 6] =
    [READ_ONLY, BUSY, "directory nonexistent", "permission denied", "operation not permitted", NO_DIRECTORY];
/// The words of C libraries for a directory that a program does not see, if its name ends with a slash.
const NO_DIRECTORY: &str = "not a directory";
/// The words of C libraries for a missing path, such as a path without a grant; shells have their own for programs.
const ABSENT: [&str; 3] = ["no such file or directory", "cannot find module", "not found"];
/// Words next to them of programs that may have wanted to make the file.
const MAY_MAKE: [&str; 4] = ["open", "opening", "copy", "errno"];
/// Words of curl for the file in which it keeps its answer.
const KEEPS: &str = "failed to open the file";
/// Verbs of programs for a change to a directory, not to the file in it.
const REPLACES: [&str; 7] = ["remove", "unlink", "rename", "move", "rmdir", "delete", "->"];
/// Verbs for a write. A plain refusal next to one of them is the refusal of a write.
const WRITES: [&str; 5] = ["create", "touch", "write", "writing", "mkdir"];
/// Words of programs for a file that they could not create, without the reason.
const NOT_MADE: [&str; 5] =
    ["not create", "not open", "unable to open", "unable to create", "unable to (re)create"];
/// Words of programs for a socket that exists already.
const IN_USE: [&str; 2] = ["address already in use", "eaddrinuse"];
/// Words of programs for a missing variable.
const UNSET: [&str; 7] =
    ["unbound variable", "not set", "keyerror", "undefined", "missing", "required", "environment variable"];

/// Adds hints to the outcome of a command that failed in its sandbox.
pub(super) fn note_hints(
    run: &Run<'_>,
    job: &Job,
    argv: &[String],
    decision: &Decided,
    outcome: &mut StepOutcome,
) {
    let is_cut_off = outcome.detail.get("permanent").is_some();
    if outcome.status != StepStatus::Failed || outcome.exit == Some(0) || is_cut_off {
        return;
    }
    let (Some(spec), Some(stderr)) = (decision.confinement.jail_spec(), outcome.stderr) else { return };
    let (policy, secrets) = (&run.services.policy, &run.services.secrets);
    let place = decision_env(policy, &run.surroundings, &run.cwd, &job.env);
    let enforcement = serde_json::from_value::<Enforcement>(outcome.enforcement.clone()).unwrap_or_default();
    let blocked = |said: Blob| {
        Blocked {
            stderr: &Text::from_blob(&run.store, said).load().unwrap_or_default(),
            argv,
            cwd: &job.cwd,
            spec,
            denied: &enforcement.denied,
            env: &decision.env,
            roots: &policy.resolve_roots(&place),
            place: &place,
            credentials: job.env.credentials(),
            bound: &|host| secrets.bound_to_host(host).map(str::to_owned),
            variable: &|name| job.env.get_passed(name),
        }
        .missing_grants()
    };
    let mut hints = blocked(stderr);
    // Some programs print their errors to stdout.
    if hints.is_empty()
        && let Some(stdout) = outcome.stdout.filter(|stdout| stdout.len <= MOST_STDOUT)
    {
        hints = blocked(stdout);
    }
    let known = outcome.detail.get(SANDBOX_BLOCKED).and_then(Value::as_array).cloned().unwrap_or_default();
    hints.extend(known.iter().filter_map(Value::as_str).map(str::to_owned));
    if !hints.is_empty() {
        outcome.add_detail(SANDBOX_BLOCKED, json!(hints));
    }
}

/// The purpose for which a command wanted a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    /// To find it: the path was missing.
    Read,
    /// Unknown: the path was refused.
    See,
    Write,
    /// To remove, rename or replace it, which changes its directory.
    Replace,
}

/// A command that failed in its sandbox, and what it was allowed.
struct Blocked<'a> {
    stderr: &'a str,
    /// The command that ran.
    argv: &'a [String],
    cwd: &'a Path,
    spec: &'a JailSpec,
    denied: &'a [Denial],
    /// The environment of the command.
    env: &'a [(OsString, OsString)],
    place: &'a DecisionEnv,
    roots: &'a Roots,
    credentials: &'a [CredentialGrant],
    /// Returns the secret that the operator has bound to a host, given as `host:port`.
    bound: &'a dyn Fn(&str) -> Option<String>,
    /// Returns the value of one of the caller's variables.
    variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Blocked<'_> {
    /// The grants that the command seems to lack, each with its reason.
    fn missing_grants(&self) -> Vec<String> {
        let mut hints = Vec::new();
        let mut say = |hint: String| {
            if !hints.contains(&hint) && hints.len() < MOST {
                hints.push(hint);
            }
        };
        for denial in self.denied {
            match denial.promise {
                Promise::NetHosts => {
                    say(self.host_hint(&denial.what, &endpoints::granted_host(&denial.what)))
                }
                Promise::TreeLimits => say(format!("it wanted {}; see [limits] of the policy", denial.what)),
                _ => say(format!("it was refused {}", denial.what)),
            }
        }
        let all = format!("{}\n{}", self.stderr, self.argv.join(" "));
        let has_net = self.denied.iter().any(|denial| denial.promise == Promise::NetHosts);
        let mut is_nameless = false;
        let mut cwd = self.cwd.to_owned();
        // Some programs name the path on the next line.
        let stderr = join_causes(&self.stderr.replace(":\n/", ": /"));
        for line in stderr.lines() {
            // make prints the directory like this.
            if let Some((_, entered)) = line.split_once(": Entering directory ") {
                cwd = cwd.join(entered.trim_matches(is_quote));
            }
            if !has_net && self.spec.net != Net::Host {
                let host = self.unreached(line, &all);
                is_nameless |= host.is_none() && self.spec.ports.is_none() && endpoints::is_unresolved(line);
                host.into_iter().for_each(&mut say);
            }
            self.lacked_variable(line).into_iter().for_each(&mut say);
            self.on_paths(line, &cwd).into_iter().for_each(&mut say);
        }
        self.lacked_sockets(&all).into_iter().for_each(&mut say);
        if hints.is_empty() && is_nameless {
            let how = "a rule names it: net = { hosts = [\"NAME:PORT\"] }";
            hints.push(format!("it wanted a host of the network and does not say which; {how}"));
        }
        if hints.is_empty() {
            hints.extend(self.own_ports());
        }
        hints
    }

    /// The hints for the paths that a line names.
    fn on_paths(&self, line: &str, cwd: &Path) -> Vec<String> {
        let lower = line.to_ascii_lowercase();
        // dash gives no reason.
        let entered = line.split_once("can't cd").and_then(|(_, rest)| rest.strip_prefix(" to "));
        if let Some(directory) = entered {
            let hint = self.path_hint(&joined(cwd, directory.trim_matches(is_quote)), Want::Read);
            return hint.filter(|hint| is_accepted(hint)).into_iter().collect();
        }
        let said = REFUSED.iter().chain(&ABSENT).find_map(|words| Some((lower.find(words)?, *words)));
        let Some((at, words)) = said else {
            let is_unmade = NOT_MADE.iter().any(|words| lower.contains(words));
            let hint = is_unmade.then(|| self.not_made(line, cwd)).flatten();
            return hint.filter(|hint| is_accepted(hint)).into_iter().collect();
        };
        let is_absent = ABSENT.contains(&words);
        let process = line.split_once("could not execute process `").map(|(_, process)| process);
        let started = process.and_then(|process| process.split([' ', '`']).next()).unwrap_or(&line[..at]);
        let program = is_absent.then(|| self.lacked_program(started)).flatten();
        let says = |verbs: &[&str]| {
            let mut said = lower.split_whitespace().map(|word| word.trim_matches([':', ',', '[', ']', '(']));
            said.any(|word| verbs.contains(&word))
        };
        let replaces = says(&REPLACES) && !is_copy(line);
        let want = match words {
            NO_DIRECTORY if says(&WRITES) => Want::Write,
            READ_ONLY | BUSY | "directory nonexistent" if replaces => Want::Replace,
            BUSY => Want::Replace,
            READ_ONLY | "directory nonexistent" => Want::Write,
            _ if is_absent && !says(&WRITES) && !replaces && !lower.contains(KEEPS) => Want::Read,
            _ if replaces => Want::Replace,
            _ if says(&WRITES) || is_absent => Want::Write,
            _ => Want::See,
        };
        let mut hints: Vec<String> = program.into_iter().collect();
        for path in paths(line, at, words, cwd) {
            let hint = match words {
                NO_DIRECTORY if !path.is_dir() => None,
                _ if !is_absent => self.path_hint(&path, want),
                _ if want != Want::Read && self.is_hidden_place(&path) => self.path_hint(&path, want),
                _ if says(&MAY_MAKE) && path.symlink_metadata().is_err() && self.is_hidden_place(&path) => {
                    let hint = self.path_hint(&path, Want::Write);
                    hint.map(|hint| format!("if it makes {}: {hint}", self.rule_path(&path)))
                }
                _ => self.path_hint(&path, Want::Read),
            };
            hints.extend(hint.filter(|hint| is_accepted(hint)));
        }
        hints
    }

    /// True if the directory above a path exists and the command does not see it.
    fn is_hidden_place(&self, path: &Path) -> bool {
        path.parent().is_some_and(|parent| parent.is_dir() && !self.is_seen(parent))
    }

    /// The grant for a host or a port that a line names.
    fn unreached(&self, line: &str, all: &str) -> Option<String> {
        if let Some(ports) = &self.spec.ports {
            let (listens, port) = endpoints::refused_port(line)?;
            let (key, verb) = if listens { ("listen", "listen on") } else { ("connect", "connect to") };
            let is_granted = ports.listen.contains(&port) || !listens && ports.connect.contains(&port);
            return (!is_granted)
                .then(|| format!("it may not {verb} port {port}; missing grant: {key} = [{port}]"));
        }
        let has_none = self.spec.net == Net::None;
        let host = has_none.then(|| endpoints::unreached_address(line, all)).flatten();
        let host = host.or_else(|| endpoints::unresolved_endpoint(line, all));
        let host =
            host.or_else(|| endpoints::refused_on_loopback(line, all).map(endpoints::loopback_endpoint))?;
        Some(self.host_hint(&host, &host))
    }

    /// The ports of a command that was refused something and names nothing.
    fn own_ports(&self) -> Option<String> {
        let ports = self.spec.ports.as_ref()?;
        let lower = self.stderr.to_ascii_lowercase();
        lower.contains("permission denied").then(|| {
            let (listen, connect) = (&ports.listen, &ports.connect);
            format!(
                "if that is about a port: its rule has listen = {listen:?} and connect = {connect:?}, and no others"
            )
        })
    }

    /// The grant for a host that the command did not reach: a credential, else the network.
    fn host_hint(&self, what: &str, grant: &str) -> String {
        if let Some(own) =
            self.credentials.iter().find(|own| format!("{}:{}", own.host.name, own.host.port) == grant)
        {
            let names: Vec<String> = own.environment_for("").into_iter().map(|(name, _)| name).collect();
            return format!(
                "it may not connect to {grant}, which it reaches with the secret {} at the address in {}",
                own.secret,
                names.join(" or ")
            );
        }
        if let Some(secret) = (self.bound)(grant) {
            let host = grant.strip_suffix(":443").unwrap_or(grant);
            return format!(
                "it may not connect to {grant}, which is reached through a credential; missing at the step: \
                 credentials: {{ {host:?}: {secret} }}"
            );
        }
        format!("it may not connect to {what}; missing grant: net = {{ hosts = [{grant:?}] }}")
    }

    /// A variable that the caller has and the step does not.
    fn lacked_variable(&self, line: &str) -> Option<String> {
        let lower = line.to_ascii_lowercase();
        UNSET.iter().find(|words| lower.contains(*words))?;
        let mut words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let name = words.find(|word| {
            !word.is_empty() && self.received_variable(word).is_none() && (self.variable)(word).is_some()
        })?;
        Some(format!("it does not receive the variable {name}; missing grant: env = [{name:?}]"))
    }

    fn received_variable(&self, name: &str) -> Option<&OsStr> {
        self.env.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_os_str())
    }

    /// A program on the caller's search path that the step does not find or may not read.
    fn lacked_program(&self, before: &str) -> Option<String> {
        let name = before.trim_end_matches([' ', ':']);
        let name = name.strip_suffix(" command").unwrap_or(name).trim_end_matches(':');
        let name = name.rsplit([' ', ':']).next()?.trim_matches(is_quote);
        if name.is_empty() || name.contains('/') {
            return None;
        }
        let own: Vec<PathBuf> = self
            .received_variable("PATH")
            .map(|path| std::env::split_paths(path).collect())
            .unwrap_or_default();
        let callers = (self.variable)("PATH").unwrap_or_default();
        let file = own.iter().cloned().chain(std::env::split_paths(&callers)).map(|dir| dir.join(name));
        let (file, real) =
            file.filter_map(|file| Some((file.clone(), HostPrograms.real_path(&file)?))).next()?;
        if real.ends_with("rustup") && name != "rustup" && !self.is_seen(&real) {
            return Some(format!(
                "it does not find the program {name}, which rustup runs from a toolchain; a rule needs its directory \
                 (`rustc --print sysroot`) in fs_read, and [sandbox.env] set its bin directory in PATH"
            ));
        }
        let mut files: Vec<String> = [&file, &real]
            .into_iter()
            .filter(|file| !self.is_seen(file))
            .map(|file| self.rule_path(file))
            .collect();
        files.dedup();
        let on_path = own.iter().any(|dir| file.parent() == Some(dir));
        let path = (!on_path).then(|| {
            format!("{} in the PATH of [sandbox.env] set", self.rule_path(file.parent().unwrap_or(&file)))
        });
        let grant = (!files.is_empty()).then(|| format!("fs_read = {files:?}"));
        let missing: Vec<String> = grant.into_iter().chain(path).collect();
        (!missing.is_empty()).then(|| {
            format!("it does not find the program {name}; missing grant: {}", missing.join(", and "))
        })
    }

    /// Sockets of the host that the command's output names and that it may not connect to.
    fn lacked_sockets(&self, all: &str) -> Vec<String> {
        let words = all.split(|c: char| c.is_whitespace() || is_quote(c) || "=,()".contains(c));
        let words =
            words.map(|word| word.strip_prefix("unix://").unwrap_or(word).trim_end_matches([':', '.', ';']));
        let paths = words.filter(|word| word.contains('/') || word.ends_with(".sock"));
        let is_socket = |path: &PathBuf| path.metadata().is_ok_and(|file| file.file_type().is_socket());
        let lacked = paths.map(|word| joined(self.cwd, word)).filter(is_socket);
        let lacked = lacked.filter(|path| !self.spec.unix.iter().any(|granted| granted == path));
        let is_taken = IN_USE.iter().any(|words| all.to_ascii_lowercase().contains(words));
        let roots = &self.spec.write;
        lacked
            .filter_map(|path| {
                let shown = self.rule_path(&path);
                if is_taken && roots.iter().any(|root| path.starts_with(root)) {
                    return Some(format!(
                        "the socket {shown} exists, and a step may not replace one from before its start: remove it \
                         before the step"
                    ));
                }
                let hint = format!("it may not reach the socket {shown}; missing grant: unix = [{shown:?}]");
                is_accepted(&hint).then_some(hint)
            })
            .collect()
    }

    /// The first file of a line that does not exist, in a directory that the command may only read.
    fn not_made(&self, line: &str, cwd: &Path) -> Option<String> {
        let words = line.split(|c: char| c.is_whitespace() || is_quote(c) || "()".contains(c));
        let is_path =
            |word: &&str| word.contains('/') || is_like_a_file(word) && line.contains(&format!("({word})"));
        let files = words.filter(is_path).map(|word| joined(cwd, word.trim_end_matches(':')));
        let is_made_there = |file: &PathBuf| {
            let parent = file.parent().filter(|_| file.symlink_metadata().is_err());
            parent.is_some_and(|parent| self.is_seen(parent) && (parent.is_dir() || line.contains("create")))
        };
        files.filter(is_made_there).find_map(|file| self.path_hint(&file, Want::Write))
    }

    /// A path as rules spell it.
    fn rule_path(&self, path: &Path) -> String {
        rule_path(&path.to_string_lossy(), self.place)
    }

    fn is_seen(&self, path: &Path) -> bool {
        self.spec
            .read
            .iter()
            .chain(&self.spec.write)
            .chain(&self.spec.private)
            .any(|root| path.starts_with(root))
    }

    /// The hint for a path that a command wanted, if the sandbox was in its way.
    fn path_hint(&self, path: &Path, want: Want) -> Option<String> {
        let spec = self.spec;
        let shown = self.rule_path(path);
        let changes = matches!(want, Want::Write | Want::Replace);
        if changes && KERNEL_VIEWS.iter().any(|view| path.starts_with(view)) {
            return Some(format!("it may not write {shown}, which is the kernel's: no grant allows that"));
        }
        if want != Want::Read && spec.hides(path) {
            return Some(self.hidden_path_hint(path, &shown));
        }
        if want != Want::Read
            && let Some(hint) = self.in_repository(path, changes)
        {
            return Some(hint);
        }
        // The innermost root decides; among equals, the strictest.
        let depth = |roots: &[PathBuf]| {
            let under = roots.iter().filter(|root| path.starts_with(root));
            under.map(|root| root.components().count()).max()
        };
        let roots =
            [&spec.deny, &spec.protect, &spec.write, &spec.read, &spec.private].map(|roots| depth(roots));
        let innermost = roots.iter().flatten().max();
        let root =
            innermost.and_then(|innermost| roots.iter().position(|depth| depth.as_ref() == Some(innermost)));
        match (root, want) {
            (Some(0), _) => Some(format!("it may not see {shown}: sandbox.fs.deny hides it")),
            (Some(1), Want::Read) => None,
            (Some(1), _) => Some(format!("it may not change {shown}: sandbox.fs.protect makes it read-only")),
            // A file that is itself a root cannot be replaced.
            (Some(2), Want::Write | Want::Replace) if spec.write.iter().any(|root| root == path) => {
                Some(self.lacks_write(path, &shown, Want::Replace))
            }
            (Some(3) | None, Want::Write | Want::Replace) => Some(self.lacks_write(path, &shown, want)),
            // A link there may lead to a place that the command does not see.
            (Some(2 | 3), Want::Read) => {
                let real = path.canonicalize().ok().filter(|real| real != path && !self.is_seen(real))?;
                self.path_hint(&real, want)
            }
            (Some(4) | None, Want::Read | Want::See) => {
                path.symlink_metadata().ok()?;
                Some(format!("it may not read {shown}; missing grant: fs_read = [{shown:?}]"))
            }
            (Some(_), _) => None,
        }
    }

    /// The root that has to be writable for this: an existing file or directory, else the directory of the file to be
    /// created. A root outside the workspace would be too wide, so there the file has to exist first.
    fn lacks_write(&self, path: &Path, shown: &str, want: Want) -> String {
        let is_there = |path: &Path| path.symlink_metadata().is_ok();
        let made = path.ancestors().take_while(|above| !is_there(above)).last().unwrap_or(path);
        let replaces = want == Want::Replace;
        let root = if replaces || !is_there(path) { made.parent().unwrap_or(path) } else { path };
        let is_too_much = !replaces && !is_there(path) && !root.starts_with(&self.place.workspace);
        if is_too_much || self.roots.is_vital(&root.to_string_lossy()) {
            let made = self.rule_path(made);
            return format!(
                "it may not write {shown}; missing grant: fs_write = [{made:?}], which has to exist first"
            );
        }
        format!("it may not write {shown}; missing grant: fs_write = [{:?}]", self.rule_path(root))
    }

    /// A built-in secret is shown to a command whose rule names it, unless the policy's own list hides it.
    fn hidden_path_hint(&self, path: &Path, shown: &str) -> String {
        let builtin = secret_patterns(self.place, &[]);
        if self.spec.deny.iter().any(|denied| path.starts_with(denied)) {
            return format!("it may not see {shown}: sandbox.fs.deny hides it");
        }
        let own = self.spec.deny_patterns.iter().filter(|pattern| !builtin.contains(pattern));
        if (JailSpec { deny_patterns: own.cloned().collect(), ..JailSpec::default() }).hides(path) {
            return format!("it may not see {shown}: a pattern of sandbox.fs.deny hides it");
        }
        format!("it may not see {shown}, a built-in secret; missing grant: fs_read = [{shown:?}]")
    }

    /// A directory of git is read-only unless a grant names it.
    fn in_repository(&self, path: &Path, changes: bool) -> Option<String> {
        let spec = self.spec;
        let repository =
            path.ancestors().find(|above| above.file_name().is_some_and(|name| name == ".git"))?;
        let is_workspaces = repository.parent() == Some(Path::new(&self.place.workspace));
        let is_changeable = spec.write.iter().any(|root| repository.starts_with(root));
        if !spec.protect_repositories || !(is_changeable || is_workspaces && changes) {
            return None;
        }
        let shown = self.rule_path(path);
        if is_workspaces && repository.symlink_metadata().is_err() {
            return Some(format!(
                "it may not make {}: no step makes the workspace's repository, so no grant allows that",
                self.rule_path(repository)
            ));
        }
        let runs_code = GIT_RUNS_CODE.iter().any(|name| path.starts_with(repository.join(name)));
        Some(if runs_code || spec.write.iter().any(|root| root == repository) {
            format!("it may not change {shown}: git would run programs from it, so no grant allows that")
        } else {
            format!("it may not change {shown}; missing grant: fs_write = [{:?}]", self.rule_path(repository))
        })
    }
}

/// True if a policy can have the grant of a hint.
fn is_accepted(hint: &str) -> bool {
    let Some((_, grant)) = hint.split_once("missing grant: ") else { return true };
    // Advice may follow.
    let end = grant.find("], ").map_or(grant.len(), |at| at + 1);
    let grant = &grant[..end];
    if !grant.ends_with([']', '}']) {
        return true;
    }
    // At the end of a path that is a mark, not part of the name.
    if grant.contains(":ro\"") {
        return false;
    }
    let rule = "[[rule]]\nid = \"hint\"\neffect = \"allow\"\nprogram = \"x\"\n";
    Policy::load(&format!("version = 1\n{rule}grant = {{ {grant} }}\n"), "hint").is_ok()
}

#[cfg(test)]
mod tests;
