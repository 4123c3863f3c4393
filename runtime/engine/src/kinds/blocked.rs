//! Hints for a person about the narrowest grant that a command in the sandbox most likely lacked, taken from its
//! output and from the sandbox's denials. A hint grants nothing and decides nothing.

mod endpoints;

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::decided::Decided;
use super::decision_env::decision_env;
use super::native::Job;
use crate::run::Run;
use crate::value::Text;
use lobster_base::credential::CredentialGrant;
use lobster_policy::{DecisionEnv, HostPrograms, Resolve, Roots, named, secret_patterns};
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
const REFUSED: [&str; 5] =
    [READ_ONLY, BUSY, "directory nonexistent", "permission denied", "operation not permitted"];
/// The words of C libraries for a missing path, such as a path without a grant; shells have their own for programs.
const ABSENT: [&str; 2] = ["no such file or directory", "not found"];
/// Verbs of programs for a change to a directory, not to the file in it.
const REPLACES: [&str; 7] = ["remove", "unlink", "rename", "move", "rmdir", "delete", "->"];
/// Verbs for a write. A plain refusal next to one of them is the refusal of a write.
const WRITES: [&str; 4] = ["create", "touch", "write", "mkdir"];
/// Words of programs for a file that they could not create, without the reason.
const NOT_MADE: [&str; 5] =
    ["not create", "not open", "unable to open", "unable to create", "unable to (re)create"];
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
    let (Some(spec), Some(stderr)) = (decision.confinement.spec(), outcome.stderr) else { return };
    let (policy, secrets) = (&run.services.policy, &run.services.secrets);
    let place = decision_env(policy, &run.surroundings, &run.cwd, &job.env);
    let enforcement = serde_json::from_value::<Enforcement>(outcome.enforcement.clone()).unwrap_or_default();
    let blocked = |said: Blob| {
        Blocked {
            stderr: &Text::stored(&run.store, said).load().unwrap_or_default(),
            argv,
            cwd: &job.cwd,
            spec,
            denied: &enforcement.denied,
            env: &decision.env,
            roots: &policy.roots(&place),
            place: &place,
            credentials: job.env.credentials(),
            bound: &|host| secrets.bound_to_host(host).map(str::to_owned),
            variable: &|name| job.env.passed(name),
        }
        .hints()
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
        outcome.note(SANDBOX_BLOCKED, json!(hints));
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
    fn hints(&self) -> Vec<String> {
        let mut hints = Vec::new();
        let mut say = |hint: String| {
            if !hints.contains(&hint) && hints.len() < MOST {
                hints.push(hint);
            }
        };
        for denial in self.denied {
            match denial.promise {
                Promise::NetHosts => say(self.host(&denial.what, &endpoints::granted_host(&denial.what))),
                Promise::TreeLimits => say(format!("it wanted {}; see [limits] of the policy", denial.what)),
                _ => say(format!("it was refused {}", denial.what)),
            }
        }
        let all = format!("{}\n{}", self.stderr, self.argv.join(" "));
        let has_net = self.denied.iter().any(|denial| denial.promise == Promise::NetHosts);
        let mut cwd = self.cwd.to_owned();
        // Some programs name the path on the next line.
        let stderr = self.stderr.replace(":\n/", ": /");
        for line in stderr.lines() {
            // make prints the directory like this.
            if let Some((_, entered)) = line.split_once(": Entering directory ") {
                cwd = cwd.join(entered.trim_matches(is_quote));
            }
            if !has_net && self.spec.net != Net::Host && self.spec.ports.is_none() {
                let host = endpoints::unresolved(line, &all);
                host.into_iter().for_each(|host| say(self.host(&host, &host)));
                let port = endpoints::refused_on_loopback(line, &all).map(endpoints::loopback);
                port.into_iter().for_each(|host| say(self.host(&host, &host)));
            }
            self.lacked_variable(line).into_iter().for_each(&mut say);
            let lower = line.to_ascii_lowercase();
            let said = REFUSED.iter().chain(&ABSENT).find_map(|words| Some((lower.find(words)?, *words)));
            let Some((at, words)) = said else {
                if NOT_MADE.iter().any(|words| lower.contains(words)) {
                    self.not_made(line, &cwd).into_iter().for_each(&mut say);
                }
                continue;
            };
            if ABSENT.contains(&words) {
                self.lacked_program(&line[..at]).into_iter().for_each(&mut say);
            }
            let says = |verbs: &[&str]| lower.split_whitespace().any(|word| verbs.contains(&word));
            let want = match words {
                _ if ABSENT.contains(&words) => Want::Read,
                READ_ONLY | BUSY | "directory nonexistent" if says(&REPLACES) => Want::Replace,
                BUSY => Want::Replace,
                READ_ONLY | "directory nonexistent" => Want::Write,
                _ if says(&REPLACES) => Want::Replace,
                _ if says(&WRITES) => Want::Write,
                _ => Want::See,
            };
            for path in paths(line, at, words, &cwd) {
                self.about(&path, want).into_iter().for_each(&mut say);
            }
        }
        self.lacked_sockets(&all).into_iter().for_each(say);
        hints
    }

    /// The grant for a host that the command did not reach: a credential, else the network.
    fn host(&self, what: &str, grant: &str) -> String {
        if let Some(own) =
            self.credentials.iter().find(|own| format!("{}:{}", own.host.name, own.host.port) == grant)
        {
            let names: Vec<String> = own.environment("").into_iter().map(|(name, _)| name).collect();
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
            !word.is_empty() && self.received(word).is_none() && (self.variable)(word).is_some()
        })?;
        Some(format!("it does not receive the variable {name}; missing grant: env = [{name:?}]"))
    }

    fn received(&self, name: &str) -> Option<&OsStr> {
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
        let own: Vec<PathBuf> =
            self.received("PATH").map(|path| std::env::split_paths(path).collect()).unwrap_or_default();
        let callers = (self.variable)("PATH").unwrap_or_default();
        let file = own.iter().cloned().chain(std::env::split_paths(&callers)).map(|dir| dir.join(name));
        let (file, real) =
            file.filter_map(|file| Some((file.clone(), HostPrograms.real_path(&file)?))).next()?;
        let mut files: Vec<String> = [&file, &real]
            .into_iter()
            .filter(|file| !self.is_seen(file))
            .map(|file| self.name(file))
            .collect();
        files.dedup();
        let on_path = own.iter().any(|dir| file.parent() == Some(dir));
        let path = (!on_path).then(|| {
            format!("{} in the PATH of [sandbox.env] set", self.name(file.parent().unwrap_or(&file)))
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
        let paths =
            words.map(|word| word.strip_prefix("unix://").unwrap_or(word).trim_end_matches([':', '.', ';']));
        let is_socket = |path: &Path| path.metadata().is_ok_and(|file| file.file_type().is_socket());
        let lacked = paths.filter(|path| path.starts_with('/')).map(Path::new).filter(|path| is_socket(path));
        let lacked = lacked.filter(|path| !self.spec.unix.iter().any(|granted| granted == path));
        lacked
            .map(|path| {
                format!("it may not reach the socket {0}; missing grant: unix = [{0:?}]", self.name(path))
            })
            .collect()
    }

    /// The first file of a line that does not exist, in a directory that the command may only read.
    fn not_made(&self, line: &str, cwd: &Path) -> Option<String> {
        let words = line.split(|c: char| c.is_whitespace() || is_quote(c) || "()".contains(c));
        let files = words.filter(|word| word.contains('/')).map(|word| cwd.join(word.trim_end_matches(':')));
        let is_made_there = |file: &PathBuf| {
            let parent = file.parent().filter(|_| file.symlink_metadata().is_err());
            parent.is_some_and(|parent| self.is_seen(parent) && (parent.is_dir() || line.contains("create")))
        };
        files.filter(is_made_there).find_map(|file| self.about(&file, Want::Write))
    }

    /// A path as rules spell it.
    fn name(&self, path: &Path) -> String {
        named(&path.to_string_lossy(), self.place)
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
    fn about(&self, path: &Path, want: Want) -> Option<String> {
        let spec = self.spec;
        let shown = self.name(path);
        if want != Want::Read && spec.hides(path) {
            return Some(self.hidden(path, &shown));
        }
        if want != Want::Read
            && let Some(hint) = self.in_repository(path)
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
                self.about(&real, want)
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
            let made = self.name(made);
            return format!(
                "it may not write {shown}; missing grant: fs_write = [{made:?}], which has to exist first"
            );
        }
        format!("it may not write {shown}; missing grant: fs_write = [{:?}]", self.name(root))
    }

    /// A built-in secret is shown to a command whose rule names it, unless the policy's own list hides it.
    fn hidden(&self, path: &Path, shown: &str) -> String {
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
    fn in_repository(&self, path: &Path) -> Option<String> {
        let spec = self.spec;
        let repository =
            path.ancestors().find(|above| above.file_name().is_some_and(|name| name == ".git"))?;
        if !spec.protect_repositories || !spec.write.iter().any(|root| repository.starts_with(root)) {
            return None;
        }
        let shown = self.name(path);
        Some(if spec.write.iter().any(|root| root == repository) {
            format!("it may not change {shown}: git would run programs from it, so no grant allows that")
        } else {
            format!("it may not change {shown}; missing grant: fs_write = [{:?}]", self.name(repository))
        })
    }
}

/// The paths that a message is about. `words` begin at `at`: C libraries put the path just before them, other programs
/// after them. The beginning of the line is the program that printed it, or its script and the line number.
fn paths(line: &str, at: usize, words: &str, cwd: &Path) -> Vec<PathBuf> {
    let before = line[..at].trim_end_matches([' ', ':', '(', '[']);
    let mut parts = before.split(": ");
    let speaker = parts.next().unwrap_or_default();
    let mut parts: Vec<&str> = parts.collect();
    if parts.is_empty() {
        parts.push(speaker);
    }
    let last = parts.last().copied().unwrap_or_default();
    let found = paths_in(last, cwd);
    if !found.is_empty() {
        return found;
    }
    // Perl adds the place in its script.
    let after = &line[at + words.len()..];
    let after = if after.contains(" line ") { after.split(" at ").next().unwrap_or_default() } else { after };
    let found = paths_in(after, cwd);
    if !found.is_empty() {
        return found;
    }
    // A relative name without quotes is taken only if the file exists, or if nothing but a write fails with these
    // words.
    let word = last.rsplit(' ').next().unwrap_or_default();
    let is_object = last != speaker || last.contains(' ');
    let is_there = || cwd.join(word).symlink_metadata().is_ok();
    if is_object && is_name(word) && (words == READ_ONLY || last.starts_with("cannot create ") || is_there())
    {
        return vec![cwd.join(word)];
    }
    let earlier = parts.iter().rev().skip(1).map(|part| paths_in(part, cwd));
    earlier.into_iter().find(|found| !found.is_empty()).unwrap_or_default()
}

/// True if a word can be the name of a file, and is neither the name of an error nor a number.
fn is_name(word: &str) -> bool {
    word != "EROFS"
        && !word.is_empty()
        && !word.contains(['[', ']', '(', ')'])
        && !word.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_quote(c: char) -> bool {
    "'\"`‘’“”".contains(c)
}

/// Quoted text, and words that begin with a slash.
fn paths_in(text: &str, cwd: &Path) -> Vec<PathBuf> {
    let quoted = text.split(is_quote).skip(1).step_by(2);
    let quoted = quoted.filter(|word| !word.is_empty() && !word.contains(char::is_whitespace));
    let words = text.split(|c: char| c.is_whitespace() || is_quote(c));
    let absolute = words
        .map(|word| word.trim_matches([':', ',', ';', '(', ')', '[', ']']))
        .filter(|word| word.starts_with('/') && word.len() > 1);
    let mut found: Vec<PathBuf> = quoted.chain(absolute).map(|word| cwd.join(word)).collect();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use lobster_policy::Policy;

    use super::*;

    fn hints_on(stderr: &str, spec: &JailSpec, denied: &[Denial], place: &DecisionEnv) -> String {
        let roots = Policy::builtin().roots(place);
        let bound = |host: &str| (host == "api.example.com:443").then(|| "api_key".to_owned());
        let variable = |name: &str| (name == "DEPLOY_TO").then(|| "prod".to_owned());
        let blocked = Blocked {
            stderr,
            argv: &["sh".to_owned(), "-c".to_owned(), "curl https://example.com".to_owned()],
            cwd: Path::new(&place.workspace),
            spec,
            denied,
            env: &[],
            place,
            roots: &roots,
            credentials: &[],
            bound: &bound,
            variable: &variable,
        };
        blocked.hints().join(" | ")
    }

    const MADE: &str = "it may not write W/made; missing grant: fs_write = [\"W\"]";

    /// A program's message about a refusal, and the hint. W is the workspace, T the directory around it.
    const REFUSALS: &[(&str, &str)] = &[
        ("touch: cannot touch 'made': Read-only file system", MADE),
        (
            "sh: 1: cannot create old: Read-only file system",
            "it may not write W/old; missing grant: fs_write = [\"W/old\"]",
        ),
        (
            "rm: cannot remove 'old': Read-only file system",
            "it may not write W/old; missing grant: fs_write = [\"W\"]",
        ),
        (
            "Error: EROFS: read-only file system, rename 'W/old'",
            "it may not write W/old; missing grant: fs_write = [\"W\"]",
        ),
        (
            "cat: T/there: No such file or directory",
            "it may not read T/there; missing grant: fs_read = [\"T/there\"]",
        ),
        (
            "cat: W/link: No such file or directory",
            "it may not read T/there; missing grant: fs_read = [\"T/there\"]",
        ),
        (
            "cat: T/home/x: No such file or directory",
            "it may not read ~/x; missing grant: fs_read = [\"~/x\"]",
        ),
        (
            "/bin/sh: 1: cannot create T/home/c/new: Permission denied",
            "it may not write ~/c/new; missing grant: fs_write = [\"~/c\"], which has to exist first",
        ),
        (
            "cat: link: No such file or directory",
            "it may not read T/there; missing grant: fs_read = [\"T/there\"]",
        ),
        ("make: Entering directory 'W/out'\ncp: cannot create regular file 'x': Read-only file system", ""),
        ("cat: W/.env: Permission denied", "it may not see W/.env: sandbox.fs.deny hides it"),
        (
            "cat: W/id_rsa: Permission denied",
            "it may not see W/id_rsa, a built-in secret; missing grant: fs_read = [\"W/id_rsa\"]",
        ),
        ("cat: W/a.key: Permission denied", "it may not see W/a.key: a pattern of sandbox.fs.deny hides it"),
        (
            "[Errno 30] Read-only file system: 'W/out/.git/config'",
            "it may not change W/out/.git/config: sandbox.fs.protect makes it read-only",
        ),
        (
            "x.sh: 3: DEPLOY_TO: parameter not set",
            "it does not receive the variable DEPLOY_TO; missing grant: env = [\"DEPLOY_TO\"]",
        ),
        (
            "KeyError: 'DEPLOY_TO'",
            "it does not receive the variable DEPLOY_TO; missing grant: env = [\"DEPLOY_TO\"]",
        ),
        // The hint names the written file, not the script that wrote it.
        ("W/run.sh: line 3: made: Read-only file system", MADE),
        ("W/run.sh: 3: cannot create made: Permission denied", MADE),
        ("cannot open made: Read-only file system at W/run.pl line 3.", MADE),
        ("cannot open 'made': Read-only file system at W/run.pl line 3.", MADE),
        ("OSError: [Errno 30] Read-only file system: 'made'", MADE),
        ("Error: EROFS: read-only file system, open 'W/made'", MADE),
        ("open W/made: read-only file system", MADE),
        ("error: unable to create file made: Read-only file system", MADE),
        (
            "curl: (6) Could not resolve host: example.com",
            "it may not connect to example.com:443; missing grant: net = { hosts = [\"example.com:443\"] }",
        ),
        (
            "zip error: Could not create output file (src/x.zip)",
            "it may not write W/src/x.zip; missing grant: fs_write = [\"W/src\"]",
        ),
        (
            "Error: unable to open database \"src/x.db\": unable to open database file",
            "it may not write W/src/x.db; missing grant: fs_write = [\"W/src\"]",
        ),
        ("Could not open file : W/run.sh", ""),
        ("cat: W/typo: No such file or directory", ""),
        ("rm: cannot remove 'out/x': Permission denied", ""),
        ("cat: old: Permission denied", ""),
        ("/tmp/x: No such file or directory", ""),
        ("./run.sh: Permission denied", ""),
        ("W/run.sh: line 3: run: Permission denied", ""),
        ("PermissionError: [Errno 13] Permission denied", ""),
        ("Error: Read-only file system (os error 30)", ""),
        ("Error: EROFS: read-only file system, write", ""),
        ("error: something else in /opt/x", ""),
        ("cat: T/nothing: No such file or directory", ""),
        ("sh: 1: typo: not found", ""),
    ];

    #[test]
    fn refusals_name_the_missing_grant() {
        let other = tempfile::tempdir_in("/var/tmp").unwrap();
        let (work, home) = (other.path().join("w"), other.path().join("home"));
        for (path, text) in [
            ("there", "x"),
            ("w/old", "x"),
            ("w/run.sh", ""),
            ("w/src/f", ""),
            ("w/out/.git/config", ""),
            ("home/x", ""),
        ] {
            let path = other.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        std::os::unix::fs::symlink(other.path().join("there"), work.join("link")).unwrap();
        let place = DecisionEnv {
            workspace: work.display().to_string(),
            home: home.display().to_string(),
            ..DecisionEnv::fixture()
        };
        let spec = JailSpec {
            read: vec!["/usr".into(), work.clone()],
            write: vec![work.join("out")],
            deny: vec![work.join(".env")],
            protect: vec![work.join("out/.git")],
            private: vec!["/tmp".into()],
            deny_patterns: secret_patterns(&place, &[]).into_iter().chain(["**/*.key".to_owned()]).collect(),
            ..JailSpec::default()
        };
        // W is the workspace, T the directory around it.
        let filled = |text: &str| {
            text.replace("W/", &format!("{}/", work.display()))
                .replace("W\"", &format!("{}\"", work.display()))
                .replace("T/", &format!("{}/", other.path().display()))
        };
        let hints = |stderr: &str| hints_on(&filled(stderr), &spec, &[], &place);
        for (said, told) in REFUSALS {
            assert_eq!(hints(said), filled(told), "{said}");
        }
    }

    #[test]
    fn what_the_sandbox_saw_itself_is_told_first() {
        let spec = JailSpec { net: Net::Hosts(Vec::new()), ..JailSpec::default() };
        for (what, told) in [
            (
                "example.com:443: not among the granted hosts",
                "it may not connect to example.com:443: not among the granted hosts; missing grant: net = \
                 { hosts = [\"example.com:443\"] }",
            ),
            (
                "db.example.com:5432: it resolves to 10.0.0.5, a private or local address, which must be granted by itself",
                "it may not connect to db.example.com:5432: it resolves to 10.0.0.5, a private or local address, which \
                 must be granted by itself; missing grant: net = { hosts = [\"10.0.0.5:5432\"] }",
            ),
            (
                "api.example.com:443: not among the granted hosts",
                "it may not connect to api.example.com:443, which is reached through a credential; missing at the step: \
                 credentials: { \"api.example.com\": api_key }",
            ),
        ] {
            let denied = [Denial { promise: Promise::NetHosts, what: what.to_owned() }];
            let stderr = "curl: (6) Could not resolve host: example.com";
            assert_eq!(hints_on(stderr, &spec, &denied, &DecisionEnv::fixture()), told);
        }
    }
}
