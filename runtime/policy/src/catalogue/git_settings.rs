//! Settings with which a repository could make a reading git command run code.
//!
//! `GIT_CONFIG_COUNT` has the precedence of the command line, so a setting with a fixed name is
//! overridden for every repository. A setting with a name that the repository chooses
//! (`diff.NAME.textconv`) can be overridden only once it is known: the starting process lists such
//! settings first.

use super::super::Decision;

/// Settings with fixed names, and the values that override them.
const FIXED: &[(&str, &str)] = &[
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("core.editor", "false"),
    ("core.sshCommand", "false"),
    ("core.askPass", "false"),
    ("core.gitProxy", "false"),
    ("core.alternateRefsCommand", "true"),
    ("credential.helper", ""),
    ("gpg.program", "false"),
    ("gpg.openpgp.program", "false"),
    ("gpg.x509.program", "false"),
    ("gpg.ssh.program", "false"),
    ("log.showSignature", "false"),
    // A submodule has settings of its own.
    ("diff.ignoreSubmodules", "dirty"),
    ("diff.submodule", "short"),
    ("status.submoduleSummary", "false"),
    ("submodule.recurse", "false"),
];

/// Variables that disable other actions: no program fetches anything.
const VARIABLES: &[(&str, &str)] = &[
    ("GIT_ALLOW_PROTOCOL", ""),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_PAGER", "cat"),
];

/// Settings whose names the repository chose, and the values that override them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedSettings(Vec<(String, &'static str)>);

impl NamedSettings {
    /// Picks the settings that could run a program from the output of `git config --list --name-only
    /// -z`.
    pub fn from_list(list: &str) -> Self {
        let mut held: Vec<(String, &'static str)> = Vec::new();
        for name in list.split('\0').filter(|name| !name.is_empty()) {
            let lower = name.to_ascii_lowercase();
            let section = lower.split('.').next().unwrap_or("");
            let key = lower.rsplit('.').next().unwrap_or("");
            let value = match (section, key) {
                // git passes the content through the program named here.
                ("diff", "textconv") => "cat",
                // git stops with an error if the value is empty.
                ("diff", "external" | "command") => "",
                ("filter", "clean" | "smudge" | "process") => "",
                ("filter", "required") => "false",
                ("pager", _) => "cat",
                ("merge", "driver") => "false",
                // A hook that settings define, which `core.hooksPath` does not disable.
                ("hook", "command") => "true",
                _ => continue,
            };
            if !held.iter().any(|(known, _)| known == name) {
                held.push((name.to_owned(), value));
            }
        }
        Self(held).with_submodules(list)
    }

    /// Adds settings that keep git out of the submodules in such a list of `.gitmodules`: a setting for
    /// one submodule overrides `diff.ignoreSubmodules`.
    #[must_use]
    pub fn with_submodules(mut self, list: &str) -> Self {
        for name in list.split('\0') {
            let Some((section, _)) = name.rsplit_once('.').filter(|(section, _)| section.contains('.'))
            else {
                continue;
            };
            let ignore = format!("{section}.ignore");
            let is_submodule = section.to_ascii_lowercase().starts_with("submodule.");
            if is_submodule && !self.0.iter().any(|(known, _)| *known == ignore) {
                self.0.push((ignore, "dirty"));
            }
        }
        self
    }
}

/// The git program that a decision lets run because the catalogue covers it.
pub fn catalogued_git(decision: &Decision) -> Option<&str> {
    decision
        .commands
        .iter()
        .filter(|command| command.covered_by.iter().any(|by| by == "catalogue"))
        .filter(|command| command.argv.first().is_some_and(|name| name == "git" || name.ends_with("/git")))
        .find_map(|command| command.program.as_deref())
}

/// Variables that override all these settings, or with no named ones the settings with fixed names, for an environment that already has `count` settings.
pub fn git_settings(named: &NamedSettings, count: usize) -> Vec<(String, String)> {
    let settings: Vec<(&str, &str)> =
        FIXED.iter().copied().chain(named.0.iter().map(|(name, value)| (name.as_str(), *value))).collect();
    let mut vars: Vec<(String, String)> =
        VARIABLES.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    for (at, (name, value)) in settings.iter().enumerate() {
        vars.push((format!("GIT_CONFIG_KEY_{}", count + at), (*name).to_owned()));
        vars.push((format!("GIT_CONFIG_VALUE_{}", count + at), (*value).to_owned()));
    }
    vars.push(("GIT_CONFIG_COUNT".to_owned(), (count + settings.len()).to_string()));
    vars
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::super::super::{DecisionEnv, Policy, Proposal, Verdict};
    use super::*;

    #[test]
    fn settings_that_run_programs_are_picked_by_name() {
        let list = "user.name\0diff.evil.textconv\0DIFF.a.b.Command\0filter.x.clean\0diff.external\0color.ui\0hook.a.command\0";
        let held = NamedSettings::from_list(list).0;
        let names: Vec<&str> = held.iter().map(|(name, _)| name.as_str()).collect();
        let expected =
            ["diff.evil.textconv", "DIFF.a.b.Command", "filter.x.clean", "diff.external", "hook.a.command"];
        assert_eq!(names, expected);
    }

    /// Runs git in `dir` with only the variables `vars`.
    fn run_git(dir: &Path, vars: &[(String, String)], args: &[&str]) -> Option<std::process::Output> {
        Command::new("git")
            .args(args)
            .current_dir(dir)
            .env_clear()
            .env("PATH", std::env::var_os("PATH")?)
            .env("HOME", dir)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .envs(vars.iter().map(|(name, value)| (name, value)))
            .output()
            .ok()
    }

    #[test]
    fn every_submodule_that_is_named_is_held() {
        let settings = "submodule.one.url\0submodule.active\0submodule.recurse\0";
        let named = NamedSettings::from_list(settings)
            .with_submodules("submodule.one.path\0submodule.A.b.ignore\0submodule.A.b.path\0core.x\0");
        let held = [("submodule.one.ignore", "dirty"), ("submodule.A.b.ignore", "dirty")];
        assert_eq!(named.0, held.map(|(name, value)| (name.to_owned(), value)));
    }

    /// A repository with a merge, and two submodules whose files look changed, one of which
    /// `.gitmodules` does not name; the settings of all run `evil`.
    fn with_submodule(place: &Path, evil: &str) -> Option<()> {
        let [sub, unnamed] = ["sub", "unnamed"].map(|name| place.join(name));
        std::fs::create_dir(&sub).unwrap();
        std::fs::create_dir(&unnamed).unwrap();
        let evils = "*.txt diff=evil filter=evil merge=evil\n";
        let done = |dir: &Path, words: &[&str]| {
            let identity = ["-c", "user.email=a@b", "-c", "user.name=x", "-c", "protocol.file.allow=always"];
            run_git(dir, &[], &[&identity, words].concat()).is_some_and(|out| out.status.success())
        };
        // Settings of the outer repository do not hold the filter of the unnamed one.
        for (dir, attributes) in
            [(place, evils), (sub.as_path(), evils), (unnamed.as_path(), "*.txt filter=inner\n")]
        {
            done(dir, &["init", "-q", "-b", "main", "."]).then_some(())?;
            std::fs::write(dir.join(".gitattributes"), attributes).unwrap();
            std::fs::write(dir.join("a.txt"), "a\n").unwrap();
            assert!(done(dir, &["add", "a.txt", ".gitattributes"]) && done(dir, &["commit", "-qm", "1"]));
        }
        assert!(done(place, &["add", "sub", "unnamed"]) && done(place, &["commit", "-qm", "with sub"]));
        std::fs::write(sub.join("a.txt"), "b\n").unwrap();
        assert!(done(&sub, &["commit", "-qam", "2"]) && done(place, &["commit", "-qam", "sub again"]));
        assert!(done(place, &["checkout", "-q", "-b", "side"]));
        std::fs::write(place.join("a.txt"), "side\n").unwrap();
        assert!(done(place, &["commit", "-qam", "side"]) && done(place, &["checkout", "-q", "main"]));
        std::fs::write(place.join("a.txt"), "main\n").unwrap();
        assert!(done(place, &["commit", "-qam", "main"]));
        assert!(done(place, &["merge", "-q", "-s", "ours", "side"]));
        for dir in [place, &sub] {
            for name in ["diff.evil.textconv", "filter.evil.clean", "merge.evil.driver", "core.fsmonitor"] {
                assert!(done(dir, &["config", name, evil]));
            }
        }
        std::fs::write(unnamed.join("a.txt"), "b\n").unwrap();
        assert!(done(&unnamed, &["config", "filter.inner.clean", evil]));
        assert!(done(place, &["config", "diff.submodule", "diff"]));
        let modules = "[submodule \"a.sub\"]\n\tpath = sub\n\turl = ./x\n\tignore = none\n";
        std::fs::write(place.join(".gitmodules"), modules).unwrap();
        Some(())
    }

    /// No use of git that the catalogue covers, in any verb and with any option of the table, runs a
    /// program for a repository with a submodule and a merge.
    #[test]
    fn no_covered_use_of_git_runs_what_a_repository_names() {
        use super::super::options::samples::option_samples;
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("repository");
        std::fs::create_dir(&dir).unwrap();
        let (canary, evil) = (place.path().join("canary"), place.path().join("evil.sh"));
        std::fs::write(&evil, format!("#!/bin/sh\necho ran >>{}\ncat\n", canary.display())).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&evil, mode).unwrap();
        let Some(()) = with_submodule(&dir, &evil.display().to_string()) else { return };
        let list = |source: &[&str]| {
            let words = [&["config", "--list", "--name-only", "-z"], source].concat();
            String::from_utf8(run_git(&dir, &[], &words).unwrap().stdout).unwrap()
        };
        let named = NamedSettings::from_list(&list(&[])).with_submodules(&list(&["--file", ".gitmodules"]));
        let vars = git_settings(&named, 0);
        let mut age = 0;
        let mut runs = |vars: &[(String, String)], words: &[&str]| {
            // The content has to be compared again each time.
            age += 1;
            let then = std::time::SystemTime::now() - std::time::Duration::from_secs(1_000 + age);
            for file in ["a.txt", "sub/a.txt", "unnamed/a.txt"] {
                std::fs::File::options()
                    .write(true)
                    .open(dir.join(file))
                    .unwrap()
                    .set_modified(then)
                    .unwrap();
            }
            run_git(&dir, vars, words).unwrap();
            std::fs::remove_file(&canary).is_ok()
        };
        // Each of these would run a program.
        for words in [&["status"][..], &["diff"], &["show", "HEAD~2"], &["log", "--remerge-diff"]] {
            assert!(runs(&[], words), "{words:?} runs nothing even if nothing is held");
        }
        // No setting keeps these out of the submodule that `.gitmodules` does not name.
        for words in [&["diff-files"][..], &["diff-index", "HEAD"], &["describe", "--always", "--dirty"]] {
            assert!(runs(&vars, words), "{words:?} runs nothing");
        }
        let policy = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/policy/example.toml");
        let policy = Policy::load(&std::fs::read_to_string(policy).unwrap(), "example.toml").unwrap();
        let env = DecisionEnv::fixture();
        let covered = |words: &[&str]| {
            let argv = ["git"].iter().chain(words).map(|word| (*word).to_owned());
            policy.decide(&Proposal::argv(argv), &env).verdict == Verdict::Allow
        };
        let share: usize =
            std::env::var("LOBSTER_GIT_OPTIONS_SHARE").ok().and_then(|n| n.parse().ok()).unwrap_or(120);
        let mut count = 0;
        let samples = option_samples();
        for (name, sample) in &samples {
            let Some(verb) = name.strip_prefix("git/") else { continue };
            let long = sample.long.iter().flat_map(|name| {
                ["", "=none", "=diff", "=log", "=remerge", "=1"].map(|value| format!("--{name}{value}"))
            });
            let options = long.chain(sample.flags.iter().map(|flag| format!("-{flag}")));
            let options = std::iter::once(String::new()).chain(options);
            for (at, option) in options.enumerate() {
                let leads = [
                    "submodule",
                    "merge",
                    "ignore",
                    "recurse",
                    "textconv",
                    "ext-",
                    "dirty",
                    "broken",
                    "super",
                ];
                let is_suspect = option.is_empty() || leads.iter().any(|lead| option.contains(lead));
                if !is_suspect && (at + verb.len()) % share != 0 {
                    continue;
                }
                for more in [&[][..], &["HEAD"], &["-m", "-p", "HEAD"]] {
                    let option = [option.as_str()];
                    let option = if option[0].is_empty() { &[][..] } else { &option[..] };
                    let words = [&[verb][..], option, more].concat();
                    if covered(&words) {
                        count += 1;
                        assert!(!runs(&vars, &words), "git {words:?}");
                    }
                }
            }
        }
        eprintln!("{count} uses of git ran");
        assert!(count > 100, "only {count} uses of git are covered");
    }

    #[test]
    fn a_hostile_repository_runs_nothing_under_the_settings() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path();
        let canary = dir.join("canary");
        let evil = dir.join("evil.sh");
        let script = format!("#!/bin/sh\necho ran >> {}\ncat\n", canary.display());
        std::fs::write(&evil, script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&evil, mode).unwrap();
        let Some(version) = run_git(dir, &[], &["init", "-q", "."]) else { return };
        if !version.status.success() {
            return;
        }
        std::fs::write(dir.join("a.txt"), "a\n").unwrap();
        std::fs::write(dir.join(".gitattributes"), "*.txt diff=evil filter=evil\n").unwrap();
        let identity = ["-c", "user.email=a@b", "-c", "user.name=x"];
        for words in [&["add", "."][..], &["commit", "-q", "-m", "i"]] {
            assert!(run_git(dir, &[], &[&identity, words].concat()).unwrap().status.success());
        }
        let evil = evil.display().to_string();
        for name in [
            "core.fsmonitor",
            "core.pager",
            "core.sshCommand",
            "diff.evil.textconv",
            "filter.evil.clean",
            "gpg.program",
            "pager.log",
        ] {
            assert!(run_git(dir, &[], &["config", name, &evil]).unwrap().status.success());
        }
        let hooks = dir.join(".git/hooks/post-index-change");
        std::fs::create_dir_all(hooks.parent().unwrap()).unwrap();
        std::fs::copy(dir.join("evil.sh"), hooks).unwrap();
        run_git(dir, &[], &["config", "log.showSignature", "true"]).unwrap();
        std::fs::write(dir.join("a.txt"), "a\nb\n").unwrap();
        let verbs: &[&[&str]] = &[
            &["status", "--short"],
            &["diff"],
            &["log", "-p"],
            &["show"],
            &["blame", "a.txt"],
            &["grep", "a"],
            &["ls-files", "-m"],
            &["describe", "--always", "--dirty"],
        ];
        // Without the settings, the repository's program runs, which proves that the test works.
        run_git(dir, &[], &["status"]).unwrap();
        assert!(std::fs::remove_file(&canary).is_ok(), "the repository runs nothing at all");
        let list = run_git(dir, &[], &["config", "--list", "--name-only", "-z"]).unwrap().stdout;
        let named = NamedSettings::from_list(&String::from_utf8(list).unwrap());
        let vars = git_settings(&named, 0);
        for verb in verbs {
            let out = run_git(dir, &vars, verb).unwrap();
            assert!(out.status.success(), "{verb:?}: {}", String::from_utf8_lossy(&out.stderr));
            assert!(!canary.exists(), "{verb:?} ran a program of the repository");
        }
        // A program in place of the diff cannot be disabled by name; git stops instead.
        for name in ["diff.external", "diff.evil.command"] {
            run_git(dir, &[], &["config", name, &evil]).unwrap();
            let list = run_git(dir, &[], &["config", "--list", "--name-only", "-z"]).unwrap().stdout;
            let named = NamedSettings::from_list(&String::from_utf8(list).unwrap());
            assert!(!run_git(dir, &git_settings(&named, 0), &["diff"]).unwrap().status.success());
            assert!(!canary.exists(), "{name} ran");
        }
    }
}
