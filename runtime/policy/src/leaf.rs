//! A command that starts no other command that we can read: its program, rules, effects and catalogue
//! entry.

use std::path::Path;

use super::analysis::{Analysis, Arg, CommandFact, FindingLevel, Flow};
use super::catalogue;
use super::command::{Invocation, combined_taint};
use super::decision_env::DecisionEnv;
use super::file::{Effect, Rule};
use super::inline_code::is_interpreter;
use super::paths::{
    Roots, is_harmless_device, is_kernel_trigger, is_net_pseudo_device, is_raw_device, normalise_path,
    rule_path,
};

/// Programs whose output comes from the network, or that act on it.
const NETWORK: &[&str] = text_list!("lists/network-programs.txt");

/// Programs that can download from the network.
const DOWNLOADERS: &[&str] = &[
    "curl", "wget", "wget2", "fetch", "aria2c", "axel", "http", "https", "xh", "httpie", "lynx", "links",
    "w3m", "elinks", "nc", "ncat", "netcat", "socat", "telnet", "ssh", "sftp", "ftp", "tftp", "lftp", "gh",
    "aws", "gsutil", "websocat", "dig", "host", "nslookup", "rsync", "scp",
];

/// Programs that turn unreadable data into readable data.
const DECODERS: &[&str] = text_list!("lists/decoders.txt");

/// Verdicts of the rules on one command.
struct Judged<'a> {
    /// Ids of the allow rules that cover it.
    covered: Vec<String>,
    /// Some rule asks.
    asked: bool,
    /// Rules whose rights it draws.
    rules: Vec<&'a Rule>,
}

impl super::Policy {
    fn is_in_trusted_dir(&self, path: &str, roots: &Roots) -> bool {
        self.programs().trusted_dirs.iter().any(|dir| super::paths::is_under(path, dir))
            && !roots.is_writable(path)
    }

    /// True if the file at this real path may be used for a bare name: a pinned name has one file.
    pub fn trusts_program(&self, name: &str, file: &Path, env: &DecisionEnv) -> bool {
        match self.programs().pin.get(name) {
            Some(pin) => env.programs.real_path(Path::new(pin)).as_deref() == Some(file),
            None => file.to_str().is_some_and(|path| self.is_in_trusted_dir(path, &self.resolve_roots(env))),
        }
    }
}

/// True if `name` starts a version manager, which runs another program that files of the directory may
/// name, even for `--version`.
fn is_version_manager(name: &str, program: &str) -> bool {
    const MANAGERS: &[&str] = &["rustup", "volta-shim", "mise", "rtx", "asdf", "proto-shim", "swiftly"];
    let file = program.rsplit('/').next().unwrap_or(program);
    (file != name && MANAGERS.contains(&file)) || program.split('/').any(|part| part == "shims")
}

impl<'a> Analysis<'a> {
    /// Judges a program that is neither a wrapper nor a shell.
    pub(crate) fn judge_program(&mut self, name: &str, inv: &Invocation) -> Flow {
        let args = &inv.args[1..];
        self.facts.dynamic |= args.iter().any(|a| a.unknown);
        self.check_hard(name, args, &inv.input);
        let program = self.resolve_program(&inv.args[0].text);
        let Judged { mut covered, asked, rules } = self.judge_rules(name, inv, program.as_deref());
        let allowed = !covered.is_empty();
        self.judge_resources(name, args, allowed);
        let mut flow = Flow { taint: combined_taint(args), ..Flow::default() };
        let is_proxy = program.as_deref().is_some_and(|program| is_version_manager(name, program));
        let version = catalogue::is_version_query(name, args) && !is_proxy;
        if name == "awk" || matches!(name, "gawk" | "mawk" | "nawk" | "original-awk") {
            flow.shell = self.follow_awk(name, args);
        } else if is_interpreter(name) && !version && !allowed {
            flow = flow.join(self.judge_interpreter(name, inv));
        }
        let network = NETWORK.contains(&name);
        self.facts.net |= network;
        // A rule that asks has already asked, with its own grant.
        if !allowed && !asked {
            if version {
                covered.push("catalogue".to_owned());
            } else {
                // The catalogue does not cover a proxy, even if it knows the name.
                let catalogued = if is_proxy { Ok(false) } else { self.judge_catalogued(name, args) };
                match catalogued {
                    Ok(true) => covered.push("catalogue".to_owned()),
                    Ok(false) if network => {
                        self.require_approval("network", format!("{name} uses the network"));
                    }
                    Ok(false) => {
                        self.require_approval("uncovered", format!("no rule and no catalogue covers {name}"));
                        self.probe_unknown(name, args);
                    }
                    Err(reason) => {
                        self.require_approval("not-read-only", format!("{name}: {reason}"));
                        // `fd -x rm -rf /`: the refused flag may begin a command.
                        self.probe_suffixes(args);
                    }
                }
            }
        }
        if program.is_none() && !allowed && !asked {
            self.require_approval("unknown-program", format!("{name} is not in a trusted directory"));
        }
        flow.taint.network |= DOWNLOADERS.contains(&name);
        flow.taint.decoded |= DECODERS.contains(&name);
        flow.numeric = prints_numbers(name, args);
        // Filters that pass their input on unchanged.
        if matches!(name, "cat" | "tee") && args.iter().all(|a| name == "tee" || a.text == "-") {
            flow.known = inv.input.known_text().map(str::to_owned);
        }
        let catalogued = rules.is_empty() && !covered.is_empty();
        self.record_draw(name, rules, catalogued);
        self.record_command(&inv.args, program, covered);
        flow
    }

    /// Judges a program at a path outside the trusted directories.
    pub(crate) fn judge_untrusted_program(&mut self, full: &str, name: &str, inv: &Invocation) -> Flow {
        let args = &inv.args[1..];
        self.facts.opaque = true;
        self.check_hard(name, args, &inv.input);
        let rules = self.judge_rules(name, inv, None).rules;
        self.record_draw(name, rules, false);
        self.require_approval("untrusted-program", format!("{full} is not a program of a trusted directory"));
        self.judge_resources(name, args, false);
        self.probe_unknown(name, args);
        if super::wrappers::is_shell(name) {
            let mut probe = self.start_probe();
            probe.shell_command(name, inv);
            self.adopt_hard_of(&probe);
        }
        let mut probe = self.start_probe();
        probe.follow_wrapper(name, inv);
        self.adopt_hard_of(&probe);
        self.record_command(&inv.args, None, Vec::new());
        Flow { shell: true, taint: combined_taint(args), ..Flow::default() }
    }

    pub(crate) fn adopt_hard_of(&mut self, probe: &Analysis<'_>) {
        if let Some(hit) = probe.hard_finding() {
            self.adopt_hard(hit, hit.message.clone());
        }
    }

    /// Real path of the program `name`, if it is a trusted one.
    pub(crate) fn resolve_program(&self, name: &str) -> Option<String> {
        let programs = self.policy.programs();
        let real = |path: &str| {
            self.env.programs.real_path(Path::new(path)).map(|p| p.to_string_lossy().into_owned())
        };
        if name.contains('/') {
            if !self.is_certain_path(name) {
                return None;
            }
            let path = normalise_path(&self.scope.cwd, name);
            let found = real(&path)?;
            let trusted = self.is_in_trusted_dir(&path) && self.is_trusted_target(&found);
            let pinned = programs.pin.values().any(|pin| *pin == path);
            return (trusted || pinned).then_some(found);
        }
        if let Some(pin) = programs.pin.get(name) {
            return real(pin);
        }
        let found = programs.trusted_dirs.iter().find_map(|dir| real(&format!("{dir}/{name}")))?;
        self.is_trusted_target(&found).then_some(found)
    }

    /// True if the file to which a name in a trusted directory leads is trusted: it is in such a directory, or it is
    /// the system's (`/usr/lib/node_modules/npm/bin/npm-cli.js`) and only the administrator can change it.
    fn is_trusted_target(&self, file: &str) -> bool {
        self.is_in_trusted_dir(file)
            || (super::paths::is_under(file, "/usr")
                && !self.roots.is_writable(file)
                && self.env.programs.is_administrators(Path::new(file)))
    }

    fn is_in_trusted_dir(&self, path: &str) -> bool {
        self.policy.is_in_trusted_dir(path, self.roots)
    }

    /// True if the file that `path` names is certain. A file in a directory that the shell may not have
    /// entered is not.
    fn is_certain_path(&self, path: &str) -> bool {
        path.starts_with('/') || self.scope.visited.is_empty()
    }

    /// True if `path` names a program in a trusted directory.
    pub(crate) fn is_trusted_path(&self, path: &str) -> bool {
        if !self.is_certain_path(path) {
            return false;
        }
        let path = normalise_path(&self.scope.cwd, path);
        let loader = path
            .rsplit('/')
            .next()
            .is_some_and(|n| n.starts_with("ld-linux") || n.starts_with("ld.so") || n.starts_with("ld-musl"));
        !loader
            && (self.is_in_trusted_dir(&path) || self.policy.programs().pin.values().any(|pin| *pin == path))
    }

    /// Applies the rules to one command.
    fn judge_rules(&mut self, name: &str, inv: &Invocation, program: Option<&str>) -> Judged<'a> {
        let mut allowed = Vec::new();
        let mut asked = false;
        let mut rules = Vec::new();
        let policy: &'a super::Policy = self.policy;
        for rule in policy.rules() {
            if !self.rule_matches(rule, name, &inv.args, program) {
                continue;
            }
            let why = |unsaid| format!("{name}: {}", rule.why.as_deref().unwrap_or(unsaid));
            match rule.effect {
                Effect::Deny => self.by_rule(FindingLevel::Deny, rule, why("a rule denies it")),
                Effect::Ask => {
                    asked = true;
                    rules.push(rule);
                    self.by_rule(FindingLevel::Ask, rule, why("a rule asks"));
                }
                Effect::Allow if policy.may_grant(rule) => {
                    rules.push(rule);
                    allowed.push(rule.id.clone());
                }
                Effect::Allow => {}
            }
        }
        if asked {
            allowed.clear();
        }
        self.rules.extend(&rules);
        Judged { covered: allowed, asked, rules }
    }

    /// Judges a shell or wrapper itself by the rules that deny or ask.
    pub(crate) fn judge_rules_quietly(&mut self, name: &str, inv: &Invocation) {
        let program = self.resolve_program(&inv.args[0].text);
        let rules = self.judge_rules(name, inv, program.as_deref()).rules;
        if !rules.is_empty() {
            self.record_draw(name, rules, false);
        }
    }

    /// True if one rule matches this command.
    pub(crate) fn rule_matches(&self, rule: &Rule, name: &str, args: &[Arg], program: Option<&str>) -> bool {
        super::rules::matches_command(self, rule, name, args, program)
    }

    /// Records one command for the decision's report.
    pub(crate) fn record_command(&mut self, args: &[Arg], program: Option<String>, covered: Vec<String>) {
        let program = program
            .or_else(|| args.first().filter(|a| !a.unknown).and_then(|a| self.resolve_program(&a.text)));
        let fact = CommandFact {
            argv: args.iter().map(Arg::display_text).collect(),
            program,
            covered_by: covered,
            facts: std::mem::take(&mut self.facts),
        };
        if !self.commands.contains(&fact) && self.commands.len() < 256 {
            self.commands.push(fact);
        }
    }

    /// Judges reading the file that a word names.
    pub(crate) fn read_path(&mut self, arg: &Arg) {
        if arg.unknown_start || (arg.text.is_empty() && arg.unknown) {
            self.facts.dynamic = true;
            return;
        }
        if arg.text == "-" || arg.text.is_empty() {
            return;
        }
        let path = normalise_path(&self.scope.cwd, &arg.text);
        if is_harmless_device(&path) {
            return;
        }
        self.facts.reads.push(path.clone());
        if arg.unknown && path.starts_with("/proc") {
            self.require_approval("dynamic", format!("{} is a file of the kernel", arg.display_text()));
        }
        self.refuse_secret_where_it_may_be(arg, &arg.text);
        if self.refuse_secret(&path, arg.stands_for_names()) {
        } else if is_net_pseudo_device(&path) {
            self.add_denial("net-device", format!("{path} is a network connection of bash"));
        } else if is_raw_device(&path) {
            self.add_denial("raw-device", format!("{path} is a raw device"));
        } else if !self.roots.is_readable(&path) {
            self.ask_to_read_outside(&path);
        }
    }

    /// Judges the directory that a wildcard lists, even if the command ignores the names.
    pub(crate) fn list_wildcard(&mut self, arg: &Arg) {
        if arg.unknown_start || !arg.text.contains('/') {
            return;
        }
        let before = arg.text.find(['*', '?', '[']).map_or("", |at| &arg.text[..at]);
        let directory = before.rsplit_once('/').map_or("", |(directory, _)| directory);
        let path = normalise_path(
            &self.scope.cwd,
            if before.starts_with('/') && directory.is_empty() { "/" } else { directory },
        );
        if !self.refuse_secret(&path, false) && !self.roots.is_readable(&path) && path != "/dev" {
            self.ask_to_read_outside(&path);
        }
    }

    /// Asks about a path that no read root covers.
    pub(crate) fn ask_to_read_outside(&mut self, path: &str) {
        let message = format!("{} is outside the read roots", rule_path(path, self.env));
        self.require_approval("read-outside", message);
    }

    /// Denies a path to a secret, or a pattern that matches one.
    pub(crate) fn refuse_secret(&mut self, path: &str, glob: bool) -> bool {
        let secret = self.roots.is_secret(path) || (glob && self.roots.glob_reaches_secret(path));
        if secret {
            self.deny_hint(
                "secret",
                format!("{} is a secret", rule_path(path, self.env)),
                "pass the value as a secret reference of the step",
            );
        }
        secret
    }

    /// Denies a relative path that is a secret in another possible directory of the command, since a
    /// `cd` may have failed.
    fn refuse_secret_where_it_may_be(&mut self, arg: &Arg, text: &str) {
        if self.scope.visited.is_empty() || text.starts_with('/') {
            return;
        }
        for directory in [std::slice::from_ref(&self.start), &self.scope.visited].concat() {
            self.refuse_secret(&normalise_path(&directory, text), arg.stands_for_names());
        }
    }

    /// Judges writing, creating or removing the path that a word names.
    pub(crate) fn write_path(&mut self, arg: &Arg, what: &str) {
        if arg.unknown_start || (arg.text.is_empty() && arg.unknown) {
            self.facts.dynamic = true;
            self.require_approval("dynamic-write", format!("{what}, to a place that is not known"));
            return;
        }
        let path = normalise_path(&self.scope.cwd, &arg.text);
        if is_harmless_device(&path) {
            return;
        }
        self.facts.writes.push(path.clone());
        if is_raw_device(&path) {
            self.add_hard_block("raw-device", format!("{path} is a raw device"), None);
        } else if is_kernel_trigger(&path) {
            self.add_hard_block("kernel", format!("writing {path} commands the kernel"), None);
        } else if is_net_pseudo_device(&path) {
            self.add_denial("net-device", format!("{path} is a network connection of bash"));
        } else if self.roots.is_protected(&path) {
            self.add_denial("protected", format!("{} is protected: {what}", rule_path(&path, self.env)));
        } else if self.refuse_secret(&path, arg.stands_for_names()) {
        } else if !self.roots.is_writable(&path) {
            self.deny_hint(
                "write-outside",
                format!("{} is outside the write roots: {what}", rule_path(&path, self.env)),
                "write below the workspace, or have the policy grant the path",
            );
        } else {
            self.require_approval("write", format!("{what}: {}", rule_path(&path, self.env)));
        }
    }

    /// A `<` redirect; true if it is a network connection.
    pub(crate) fn read_redirect(&mut self, target: &Arg) -> bool {
        self.read_path(target);
        is_net_pseudo_device(&normalise_path(&self.scope.cwd, &target.text))
    }

    /// A `>` redirect; true if it is a network connection.
    pub(crate) fn write_redirect(&mut self, target: &Arg) -> bool {
        self.write_path(target, "a redirect writes a file");
        is_net_pseudo_device(&normalise_path(&self.scope.cwd, &target.text))
    }

    /// Checks every operand of every program: no option may name a secret, and a program that is not
    /// known to read may not name a protected path.
    pub(crate) fn check_operand(&mut self, arg: &Arg, may_write: bool) {
        if arg.unknown_start && !arg.text.starts_with('/') {
            return;
        }
        for text in operand_paths(&arg.text) {
            if text.is_empty() || text.len() > 4096 {
                continue;
            }
            let path = normalise_path(&self.scope.cwd, text);
            self.refuse_secret_where_it_may_be(arg, text);
            self.refuse_secret(&path, arg.stands_for_names());
            if may_write && self.roots.is_protected(&path) {
                self.add_denial("protected", format!("{} is protected", rule_path(&path, self.env)));
            }
        }
    }

    /// Probes the arguments of an unknown program as commands: an unlisted wrapper must not hide a hard
    /// block.
    fn probe_unknown(&mut self, name: &str, args: &[Arg]) {
        self.probe_suffixes(args);
        for arg in args {
            let text = arg.text.clone();
            if text.contains(char::is_whitespace) {
                self.probe_text(&text, name, true);
            }
            if let Some((_, value)) = text.split_once('=')
                && value.contains(char::is_whitespace)
            {
                let value = value.strip_prefix("exec=").unwrap_or(value);
                self.probe_text(value, name, true);
            }
        }
    }

    /// Judges every tail of `args` that begins with a destructive program.
    pub(crate) fn probe_suffixes(&mut self, args: &[Arg]) {
        for at in 0..args.len() {
            let base = args[at].text.rsplit('/').next().unwrap_or("");
            let destructive = matches!(
                base,
                "rm" | "dd"
                    | "shred"
                    | "wipefs"
                    | "chmod"
                    | "chown"
                    | "chgrp"
                    | "find"
                    | "mv"
                    | "blkdiscard"
                    | "env"
                    | "busybox"
                    | "xargs"
                    | "nsenter"
            ) || base.starts_with("mkfs")
                || super::wrappers::is_shell(base);
            if !destructive || at + 1 >= args.len() || self.budget == 0 {
                continue;
            }
            self.budget -= 1;
            let mut probe = self.start_probe();
            probe.wrapped += 1;
            if probe.wrapped > super::analysis::WRAPPER_DEPTH {
                return;
            }
            probe.judge_command(Invocation { args: args[at..].to_vec(), ..Invocation::default() });
            self.adopt_hard_of(&probe);
        }
    }
}

/// True if the program, used in this way, prints only numbers.
fn prints_numbers(name: &str, args: &[Arg]) -> bool {
    let known: Option<Vec<&str>> =
        args.iter().map(|arg| arg.known_text().filter(|_| arg.is_settled())).collect();
    let Some(words) = known else { return false };
    match (name, words.as_slice()) {
        ("nproc", []) | ("nproc", ["--all"]) | ("id", ["-u" | "-g"]) => true,
        // A file name argument is printed as well.
        ("wc", flags) => !flags.is_empty() && flags.iter().all(|f| matches!(*f, "-c" | "-l" | "-m" | "-w")),
        ("date", [format] | ["-u", format]) => format.strip_prefix('+').is_some_and(is_numeric_format),
        _ => false,
    }
}

/// True if the format of a date gives only digits.
fn is_numeric_format(format: &str) -> bool {
    let mut chars = format.chars();
    std::iter::from_fn(|| chars.next().map(|c| (c, if c == '%' { chars.next() } else { None }))).all(
        |(c, letter)| match letter {
            Some(letter) => "CGHMSUVWYdgjmsuwy".contains(letter),
            None => c.is_ascii_digit(),
        },
    )
}

/// Parts of a word that may be a path: the whole word, the text after `=`, `@` or `:`, and the value of
/// a short option.
fn operand_paths(text: &str) -> Vec<&str> {
    let mut out = Vec::with_capacity(2);
    let is_flag = text.starts_with('-');
    if !is_flag {
        out.push(text.trim_start_matches('@'));
    }
    if let Some((_, value)) = text.split_once('=') {
        out.push(value.trim_start_matches('@'));
    }
    if is_flag
        && !text.starts_with("--")
        && let Some(at) = text.find(['/', '.', '~'])
    {
        out.push(&text[at..]);
    }
    if let Some((before, after)) = text.rsplit_once(':')
        && !text.contains("://")
    {
        out.push(after);
        if !is_flag {
            out.push(before);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use super::super::{DecisionEnv, Policy, Proposal, Resolve, Verdict};

    /// Every program is this file.
    struct Only(&'static str);

    impl Resolve for Only {
        fn real_path(&self, _: &Path) -> Option<PathBuf> {
            Some(self.0.into())
        }
    }

    /// One program, which is a link to a file that is the administrator's or not.
    struct Linked(&'static str, bool);

    impl Resolve for Linked {
        fn real_path(&self, _: &Path) -> Option<PathBuf> {
            Some(self.0.into())
        }

        fn is_administrators(&self, _: &Path) -> bool {
            self.1
        }
    }

    #[test]
    fn a_link_in_a_trusted_directory_may_lead_to_the_administrators_files_below_usr() {
        let rule =
            "[[rule]]\nid = \"npm\"\neffect = \"allow\"\nprogram = \"npm\"\nargs = { first = [\"test\"] }\n";
        let written = "[sandbox.fs]\nwrite = [\"/usr/lib/node_modules\"]\n";
        for (more, file, is_administrators, expected) in [
            ("", "/usr/lib/node_modules/npm/bin/npm-cli.js", true, Verdict::Allow),
            ("", "/usr/lib/node_modules/npm/bin/npm-cli.js", false, Verdict::Ask),
            (written, "/usr/lib/node_modules/npm/bin/npm-cli.js", true, Verdict::Ask),
            ("", "/home/agent/npm-cli.js", true, Verdict::Ask),
            ("", "/usrlocal/npm", true, Verdict::Ask),
        ] {
            let policy = Policy::load(&format!("version = 1\n{more}{rule}"), "p.toml").unwrap();
            for command in ["npm test", "/usr/bin/npm test"] {
                let programs = Arc::new(Linked(file, is_administrators));
                let env = DecisionEnv { programs, ..DecisionEnv::fixture() };
                let verdict = policy.decide(&Proposal::shell(command), &env).verdict;
                assert_eq!(verdict, expected, "{command}: {file} {is_administrators} {more}");
            }
        }
    }

    #[test]
    fn the_administrators_files_are_roots_and_not_writable_by_others() {
        use crate::decision_env::HostPrograms;
        assert!(!HostPrograms.is_administrators(Path::new("usr/bin/env")));
        assert!(!HostPrograms.is_administrators(Path::new("/no/such/file")));
        // A directory that everybody may write.
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::write(dir.path().join("x"), "").unwrap();
        assert!(!HostPrograms.is_administrators(&dir.path().join("x")));
    }

    #[test]
    fn a_version_that_the_workspace_decides_asks() {
        let policy = Policy::load("version = 1\n", "p.toml").unwrap();
        let verdict = |command: &str, file: &'static str| {
            let env = DecisionEnv { programs: Arc::new(Only(file)), ..DecisionEnv::fixture() };
            policy.decide(&Proposal::shell(command), &env).verdict
        };
        for command in ["gcc --version", "jq --version", "jq -n 1"] {
            assert_eq!(verdict(command, "/usr/bin/real"), Verdict::Allow, "{command}");
            for manager in ["/usr/bin/mise", "/usr/bin/asdf", "/usr/bin/shims/real"] {
                assert_eq!(verdict(command, manager), Verdict::Ask, "{command}");
            }
        }
        // Their file may be a hard link to rustup.
        let rust = ["rustc --version", "rustc -vV", "rustc --explain E1", "cargo -V", "rustfmt --version"];
        for command in rust.into_iter().chain(["dotnet --version", "sbt --version"]) {
            assert_eq!(verdict(command, "/usr/bin/real"), Verdict::Ask, "{command}");
        }
    }
}
