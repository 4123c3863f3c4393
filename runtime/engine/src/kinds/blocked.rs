//! What a failed command in the sandbox most likely lacked: read from its own
//! words and from what the sandbox has refused. A hint to a person, who may
//! grant it; it grants nothing and decides nothing.

use std::path::{Path, PathBuf};

use lobster_sandbox::{Enforcement, JailSpec, Net, Promise};

/// More hints than a person would read.
const MOST: usize = 5;

/// How C libraries say that something may not be written, in lower case, as other languages write it.
const READ_ONLY: &str = "read-only file system";
/// How they say that something was refused.
const REFUSED: [&str; 3] = [READ_ONLY, "permission denied", "operation not permitted"];
/// How they say that something is not there, as what was not granted is not.
const ABSENT: &str = "no such file or directory";
/// How programs say that there is no network.
const UNREACHABLE: [&str; 5] = [
    "Could not resolve",
    "Temporary failure in name resolution",
    "Name or service not known",
    "Network is unreachable",
    "unable to resolve host address",
];

/// The grants that the command seems to have missed, each with its reason.
pub(crate) fn hints(stderr: &[u8], cwd: &Path, spec: &JailSpec, enforcement: &Enforcement) -> Vec<String> {
    let mut hints = Vec::new();
    let mut say = |hint: String| {
        if !hints.contains(&hint) && hints.len() < MOST {
            hints.push(hint);
        }
    };
    for denial in &enforcement.denied {
        match denial.promise {
            Promise::NetHosts => {
                // As the proxy says it: the host, a colon and a space, the reason.
                let host = denial.what.split(": ").next().unwrap_or_default();
                say(format!(
                    "it may not connect to {}; missing grant: net = {{ hosts = [{host:?}] }}",
                    denial.what
                ));
            }
            Promise::TreeLimits => say(format!("it wanted {}; see [limits] of the policy", denial.what)),
            _ => say(format!("it was refused {}", denial.what)),
        }
    }
    let text = String::from_utf8_lossy(stderr);
    let has_net = enforcement.denied.iter().any(|denial| denial.promise == Promise::NetHosts);
    for line in text.lines() {
        if !has_net && spec.net != Net::Host && UNREACHABLE.iter().any(|words| line.contains(words)) {
            say("it has no network; missing grant: net = { hosts = [\"HOST:PORT\"] }".to_owned());
        }
        let lower = line.to_ascii_lowercase();
        let said = REFUSED.iter().chain([&ABSENT]).find_map(|words| Some((lower.find(words)?, *words)));
        let Some((at, words)) = said else { continue };
        for path in paths(line, at, words, cwd) {
            if let Some(hint) = about(&path, words != ABSENT, spec) {
                say(hint);
            }
        }
    }
    hints
}

/// What the sandbox has to do with a path that was refused, or not found.
fn about(path: &Path, refused: bool, spec: &JailSpec) -> Option<String> {
    if refused && spec.hides(path) {
        let shown = path.display();
        return Some(format!("it may not see {shown}: a built-in secret, or a pattern of sandbox.fs.deny"));
    }
    if refused && let Some(hint) = in_repository(path, spec) {
        return Some(hint);
    }
    // The innermost root decides, of equal ones the strictest.
    let depth = |roots: &[PathBuf]| {
        let under = roots.iter().filter(|root| path.starts_with(root));
        under.map(|root| root.components().count()).max()
    };
    let roots = [&spec.deny, &spec.protect, &spec.write, &spec.read, &spec.private].map(|roots| depth(roots));
    let innermost = roots.iter().flatten().max();
    let shown = path.display().to_string();
    let lacks_write = || format!("it may not write {shown}; missing grant: fs_write = [{shown:?}]");
    match innermost.and_then(|innermost| roots.iter().position(|depth| depth.as_ref() == Some(innermost))) {
        Some(0) => return Some(format!("it may not see {shown}: sandbox.fs.deny hides it")),
        Some(1) => {
            return refused
                .then(|| format!("it may not change {shown}: sandbox.fs.protect keeps it as it is"));
        }
        Some(3) => return refused.then(lacks_write),
        Some(_) => return None,
        None => {}
    }
    // There, but not for the step.
    let there = path.symlink_metadata().is_ok();
    match (there, refused) {
        (true, false) => Some(format!("it may not read {shown}; missing grant: fs_read = [{shown:?}]")),
        (_, true) => Some(lacks_write()),
        (false, false) => {
            let parent = path.parent().filter(|parent| parent.parent().is_some() && parent.is_dir())?;
            let may_see = spec.read.iter().chain(&spec.write).any(|root| parent.starts_with(root));
            (!may_see)
                .then(|| format!("it may not see {0}; missing grant: fs_read = [{0:?}]", parent.display()))
        }
    }
}

/// A directory of git's is read-only unless it is granted by its name.
fn in_repository(path: &Path, spec: &JailSpec) -> Option<String> {
    let repository = path.ancestors().find(|above| above.file_name().is_some_and(|name| name == ".git"))?;
    if !spec.protect_repositories || !spec.write.iter().any(|root| repository.starts_with(root)) {
        return None;
    }
    let shown = path.display();
    Some(if spec.write.iter().any(|root| root == repository) {
        format!("it may not change {shown}: by it git would run programs, so no grant reaches it")
    } else {
        let repository = repository.display().to_string();
        format!("it may not change {shown}; missing grant: fs_write = [{repository:?}]")
    })
}

/// The paths that a message is about, which has these words at `at`: what stands just before them, as C libraries
/// say it, else what stands behind them. What comes first is the program that speaks, or its script and the line.
fn paths(line: &str, at: usize, words: &str, cwd: &Path) -> Vec<PathBuf> {
    let before = line[..at].trim_end_matches([' ', ':', '(', '[']);
    let mut parts = before.split(": ");
    let speaker = parts.next().unwrap_or_default();
    let mut parts: Vec<&str> = parts.collect();
    if parts.is_empty() {
        parts.push(speaker);
    }
    let last = parts.last().copied().unwrap_or_default();
    let found = named(last, cwd);
    if !found.is_empty() {
        return found;
    }
    // Perl says where in its script.
    let after = &line[at + words.len()..];
    let after = if after.contains(" line ") { after.split(" at ").next().unwrap_or_default() } else { after };
    let found = named(after, cwd);
    if !found.is_empty() {
        return found;
    }
    // A relative name without quotes is taken for one only where nothing but a write fails like this.
    let word = last.rsplit(' ').next().unwrap_or_default();
    let is_object = last != speaker || last.contains(' ');
    if (words == READ_ONLY || last.starts_with("cannot create ")) && is_object && is_name(word) {
        return vec![cwd.join(word)];
    }
    let earlier = parts.iter().rev().skip(1).map(|part| named(part, cwd));
    earlier.into_iter().find(|found| !found.is_empty()).unwrap_or_default()
}

/// Whether a word can be the name of a file, and neither that of an error nor a number.
fn is_name(word: &str) -> bool {
    word != "EROFS"
        && !word.is_empty()
        && !word.contains(['[', ']', '(', ')'])
        && !word.bytes().all(|byte| byte.is_ascii_digit())
}

/// What is quoted, and words that begin with a slash.
fn named(text: &str, cwd: &Path) -> Vec<PathBuf> {
    let is_quote = |c: char| "'\"`‘’“”".contains(c);
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
    use super::*;
    use lobster_sandbox::Denial;

    #[test]
    fn refusals_name_the_missing_grant() {
        let other = tempfile::tempdir_in("/var/tmp").unwrap();
        let there = other.path().join("there");
        std::fs::write(&there, "x").unwrap();
        let there = there.display();
        let spec = JailSpec {
            read: vec!["/usr".into(), "/srv/repo".into()],
            write: vec!["/srv/repo/out".into()],
            deny: vec!["/srv/repo/.env".into()],
            protect: vec!["/srv/repo/out/.git".into()],
            private: vec!["/tmp".into()],
            ..JailSpec::default()
        };
        let hints = |stderr: &str| {
            hints(stderr.as_bytes(), Path::new("/srv/repo"), &spec, &Enforcement::default()).join(" | ")
        };
        assert_eq!(
            hints("touch: cannot touch 'ran': Read-only file system\n"),
            "it may not write /srv/repo/ran; missing grant: fs_write = [\"/srv/repo/ran\"]"
        );
        assert_eq!(
            hints(&format!("cat: {there}: No such file or directory\n")),
            format!("it may not read {there}; missing grant: fs_read = [\"{there}\"]")
        );
        assert_eq!(
            hints("/bin/sh: 1: cannot create /opt/x: Permission denied"),
            "it may not write /opt/x; missing grant: fs_write = [\"/opt/x\"]"
        );
        assert_eq!(
            hints("cat: /srv/repo/.env: Permission denied"),
            "it may not see /srv/repo/.env: sandbox.fs.deny hides it"
        );
        assert_eq!(
            hints("[Errno 30] Read-only file system: '/srv/repo/out/.git/config'"),
            "it may not change /srv/repo/out/.git/config: sandbox.fs.protect keeps it as it is"
        );
        // It names what was written, and not the script that did it.
        for said in [
            "/srv/repo/run.sh: line 3: made: Read-only file system",
            "/srv/repo/run.sh: 3: cannot create made: Permission denied",
            "/srv/repo/run.sh: 3: cannot create made: Read-only file system",
            "cannot open made: Read-only file system at /srv/repo/run.pl line 3.",
            "cannot open 'made': Read-only file system at /srv/repo/run.pl line 3.",
            "OSError: [Errno 30] Read-only file system: 'made'",
            "Error: EROFS: read-only file system, open '/srv/repo/made'",
            "open /srv/repo/made: read-only file system",
            "touch: cannot touch 'made': Read-only file system",
            "error: unable to create file made: Read-only file system",
        ] {
            let told = "it may not write /srv/repo/made; missing grant: fs_write = [\"/srv/repo/made\"]";
            assert_eq!(hints(said), told, "{said}");
        }
        assert!(hints("curl: (6) Could not resolve host: example.com").contains("missing grant: net"));
        for ordinary in [
            "cat: /srv/repo/typo: No such file or directory",
            "rm: cannot remove 'out/x': Permission denied",
            "/tmp/x: No such file or directory",
            "./run.sh: Permission denied",
            "/srv/repo/run.sh: line 3: run: Permission denied",
            "PermissionError: [Errno 13] Permission denied",
            "Error: Read-only file system (os error 30)",
            "Error: EROFS: read-only file system, write",
            "error: something else in /opt/x",
            "cat: /nonexistent-at-all: No such file or directory",
        ] {
            assert_eq!(hints(ordinary), "", "{ordinary}");
        }
    }

    #[test]
    fn what_the_sandbox_saw_itself_is_told_first() {
        let spec = JailSpec { net: Net::Hosts(Vec::new()), ..JailSpec::default() };
        let what = "example.com:443: not among the granted hosts".to_owned();
        let denied = vec![Denial { promise: Promise::NetHosts, what }];
        let enforcement = Enforcement { denied, ..Enforcement::default() };
        assert_eq!(
            hints(b"curl: (6) Could not resolve host: example.com", Path::new("/"), &spec, &enforcement),
            ["it may not connect to example.com:443: not among the granted hosts; missing grant: net = \
              { hosts = [\"example.com:443\"] }"]
        );
    }
}
