//! Suggests a policy from observed runs, and compares a policy with them: commands that it would have
//! stopped, and rights that no run used.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::Policy;
use super::decide::{Command, Decision, Proposal, Verdict};
use super::decision_env::DecisionEnv;
use super::file::Effect;
use super::paths::{is_under, name_step_home, normalise_path, rule_path};
use lobster_sandbox::HostPort;

/// Number of different argument lists of one verb from which a rule names the verb instead of each
/// list.
const VARIANTS_BEFORE_A_SHAPE: usize = 3;

/// Observed actions of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// Id of the run.
    pub run: String,
    /// Programs that the run started.
    pub commands: Vec<ObservedCommand>,
    /// Processes to which these belonged, in the form in which a policy judges them. If there are none,
    /// each command is judged separately.
    #[serde(default)]
    pub starts: Vec<ObservedStart>,
}

/// A process that a step started: one command, or shell text with any number of commands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedStart {
    /// Program and arguments; shell text is the third word, after a shell and `-c`.
    pub argv: Vec<String>,
    /// Working directory; `None` for the workspace.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Variables of the step that its text may use, beside the variables of every step.
    #[serde(default)]
    pub vars: BTreeMap<String, String>,
}

impl ObservedStart {
    fn to_proposal(&self) -> Proposal {
        let command = match self.argv.as_slice() {
            // The form of a `run:` step: the policy judges its text.
            [shell, flag, text] if flag == "-c" && is_path_of_a_shell(shell) => Command::Shell(text.clone()),
            argv => Command::Argv(argv.to_vec()),
        };
        Proposal { command, cwd: self.cwd.clone() }
    }

    fn decision_env(&self, env: &DecisionEnv) -> DecisionEnv {
        let mut env = env.clone();
        env.vars.extend(self.vars.clone());
        env
    }
}

fn is_path_of_a_shell(program: &str) -> bool {
    program
        .rsplit_once('/')
        .is_some_and(|(_, name)| matches!(name, "sh" | "dash" | "ash" | "bash" | "busybox"))
}

/// One program that was started, with the resources that it used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedCommand {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Working directory; `None` for the workspace.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Absolute paths that it read.
    #[serde(default)]
    pub reads: Vec<String>,
    /// Absolute paths that it wrote, created or removed.
    #[serde(default)]
    pub writes: Vec<String>,
    /// `host:port` pairs that it connected to.
    #[serde(default)]
    pub hosts: Vec<String>,
}

/// A proposed policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Suggestion {
    /// Policy file that a person can read, edit and commit.
    pub toml: String,
    /// Commands that are left out because no rule can allow them.
    pub refused: Vec<String>,
    /// Actions of the runs that would still ask or be denied under the proposed policy.
    pub uncovered: Vec<Stopped>,
}

/// Comparison of a policy with observed runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Commands that would not have run without a question.
    pub stopped: Vec<Stopped>,
    /// Allow and ask rules that matched no observed command.
    pub unused_rules: Vec<String>,
    /// Unused write roots and hosts, as `write <root>` or `host <name>`.
    pub unused_rights: Vec<String>,
}

/// A command that the policy would have denied or asked about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stopped {
    /// Id of the run.
    pub run: String,
    /// The command.
    pub argv: Vec<String>,
    /// Verdict of the policy.
    pub verdict: Verdict,
    /// Deciding reason.
    pub reason: String,
}

/// Observations about one group of commands.
#[derive(Default)]
struct Group {
    argvs: BTreeSet<Vec<String>>,
    runs: BTreeSet<String>,
    reads: BTreeSet<String>,
    writes: BTreeSet<String>,
    hosts: BTreeSet<String>,
}

impl Policy {
    /// Proposes a policy under which the observed runs would have run: the catalogue for reading
    /// commands, and a rule with the smallest grant for each other command, annotated with the ids of
    /// its runs. A bare program name is never proposed. The proposal is checked against the runs: a
    /// rule that removes no question is left out, and the commands that are still stopped are listed.
    #[must_use]
    pub fn suggest(runs: &[Observed], env: &DecisionEnv) -> Suggestion {
        let bare = Self::with_catalogue_only();
        let mut groups: BTreeMap<(String, String), Group> = BTreeMap::new();
        let mut refused = BTreeSet::new();
        for run in runs {
            for command in run.commands.iter().filter(|c| !c.argv.is_empty()) {
                let decision = bare.decide(&command_proposal(command), env);
                let hard = decision.is_hard();
                if hard || decision.verdict == Verdict::Deny {
                    refused.insert(format!("{} ({})", command.argv.join(" "), decision.message));
                    continue;
                }
                let quiet = command.writes.is_empty() && command.hosts.is_empty();
                if decision.verdict == Verdict::Allow && quiet {
                    continue;
                }
                let verb = command.argv.get(1).filter(|w| !w.starts_with('-')).cloned();
                let group = groups.entry((command.argv[0].clone(), verb.unwrap_or_default())).or_default();
                group.argvs.insert(command.argv.clone());
                group.runs.insert(run.run.clone());
                group.reads.extend(command.reads.iter().cloned());
                group.writes.extend(command.writes.iter().cloned());
                group.hosts.extend(command.hosts.iter().cloned());
            }
        }
        let rules = rules_of(&groups, env);
        // A rule that removes no question would only look like a permission.
        let all = policy_text(&rules, |_| true);
        let needed =
            Self::load(&all, "proposal").map(|policy| policy.rules_needed(runs, env)).unwrap_or_default();
        let mut toml = policy_text(&rules, |id| needed.contains(id));
        let uncovered = match Self::load(&toml, "proposal") {
            Ok(policy) => policy.check_against(runs, env).stopped,
            Err(_) => Vec::new(),
        };
        let hopeless: BTreeSet<String> = uncovered
            .iter()
            .map(|stopped| {
                format!("{} ({}: {})", stopped.argv.join(" "), stopped.verdict.as_str(), stopped.reason)
            })
            .collect();
        if !hopeless.is_empty() {
            toml.push_str("\n# Seen, and not covered by any rule above:\n");
            for line in &hopeless {
                // Writing to a String cannot fail.
                let _ = writeln!(toml, "#   {}", line.escape_debug());
            }
        }
        Suggestion { toml, refused: refused.into_iter().collect(), uncovered }
    }

    /// Rules without which some action of the runs would need a question or be denied.
    fn rules_needed(&self, runs: &[Observed], env: &DecisionEnv) -> BTreeSet<String> {
        let decisions = runs.iter().flat_map(|run| self.decisions_on(run, env));
        decisions
            .filter(|(_, decision)| decision.verdict == Verdict::Allow)
            .flat_map(|(_, decision)| decision.rule_ids)
            .collect()
    }

    /// Decisions of this policy on each process that a run started.
    pub(crate) fn decisions_on(&self, run: &Observed, env: &DecisionEnv) -> Vec<(Vec<String>, Decision)> {
        if run.starts.is_empty() {
            let commands = run.commands.iter().filter(|command| !command.argv.is_empty());
            return commands
                .map(|command| (command.argv.clone(), self.decide(&command_proposal(command), env)))
                .collect();
        }
        let decide = |start: &ObservedStart| {
            (start.argv.clone(), self.decide(&start.to_proposal(), &start.decision_env(env)))
        };
        run.starts.iter().map(decide).collect()
    }

    /// Programs of a recorded process, with the files that their arguments name: shell text is split
    /// into commands, and wrappers are unwrapped. The `host:port` pairs that the process reached are
    /// attributed to the programs that are known to use the network, or otherwise to all programs that
    /// the catalogue does not let run without it.
    #[must_use]
    pub fn observe_commands(
        start: &ObservedStart,
        hosts: &[String],
        env: &DecisionEnv,
    ) -> Vec<ObservedCommand> {
        let cwd = start.cwd.clone();
        let whole = ObservedCommand {
            argv: start.argv.clone(),
            cwd: cwd.clone(),
            hosts: hosts.to_vec(),
            ..ObservedCommand::default()
        };
        let decision = Self::with_catalogue_only().decide(&start.to_proposal(), &start.decision_env(env));
        let known = |command: &&super::CommandFact| !command.argv.is_empty() && !command.facts.dynamic;
        let parts: Vec<_> = decision.commands.iter().filter(known).collect();
        // A process that cannot be split is kept as one command.
        if parts.len() < decision.commands.len() || parts.is_empty() {
            return vec![whole];
        }
        let files = |paths: &[String]| -> Vec<String> {
            paths.iter().filter(|path| path.starts_with('/') && !path.contains('*')).cloned().collect()
        };
        let named = parts.iter().any(|command| command.facts.net);
        let uncovered = parts.iter().any(|command| command.covered_by.is_empty());
        let reaches = |command: &super::CommandFact| match (named, uncovered) {
            (true, _) => command.facts.net,
            (false, true) => command.covered_by.is_empty(),
            (false, false) => true,
        };
        // One text runs in one sandbox: its commands that need rules must have equal rights, or the
        // text asks.
        let shared = |paths: fn(&super::Facts) -> &Vec<String>| -> Vec<String> {
            let needing = parts.iter().filter(|command| command.covered_by.is_empty());
            let all: BTreeSet<String> = needing.flat_map(|command| files(paths(&command.facts))).collect();
            all.into_iter().collect()
        };
        let (reads, writes) = (shared(|facts| &facts.reads), shared(|facts| &facts.writes));
        let own = |command: &super::CommandFact, shared: &Vec<String>, own: &[String]| {
            if command.covered_by.is_empty() { shared.clone() } else { files(own) }
        };
        let part = |command: &super::CommandFact| ObservedCommand {
            argv: command.argv.clone(),
            cwd: cwd.clone(),
            reads: own(command, &reads, &command.facts.reads),
            writes: own(command, &writes, &command.facts.writes),
            hosts: if reaches(command) { hosts.to_vec() } else { Vec::new() },
        };
        parts.iter().copied().map(part).collect()
    }

    fn with_catalogue_only() -> Self {
        Self::new(Self::builtin().file, super::Stance::Closed)
    }

    /// Compares this policy with observed runs.
    #[must_use]
    pub fn check_against(&self, runs: &[Observed], env: &DecisionEnv) -> Difference {
        let mut difference = Difference::default();
        let mut used_rules = BTreeSet::new();
        let mut writes = BTreeSet::new();
        let mut hosts = BTreeSet::new();
        for run in runs {
            let mut stop = |argv: Vec<String>, verdict, reason| {
                difference.stopped.push(Stopped { run: run.run.clone(), argv, verdict, reason });
            };
            for (argv, decision) in self.decisions_on(run, env) {
                used_rules.extend(decision.rule_ids.iter().cloned());
                if decision.verdict != Verdict::Allow {
                    stop(argv, decision.verdict, decision.message);
                }
            }
            for command in run.commands.iter().filter(|c| !c.argv.is_empty()) {
                let decision = self.decide(&command_proposal(command), env);
                writes.extend(command.writes.iter().cloned());
                hosts.extend(command.hosts.iter().cloned());
                if decision.verdict == Verdict::Allow
                    && let Some(right) = outside_grant(&decision.grant, command, env)
                {
                    let reason = format!("the sandbox would have stopped it: {right}");
                    stop(command.argv.clone(), Verdict::Deny, reason);
                }
            }
        }
        difference.unused_rules = self
            .rules()
            .iter()
            .filter(|rule| rule.effect != Effect::Deny && !used_rules.contains(&rule.id))
            .map(|rule| rule.id.clone())
            .collect();
        let place = |root: &str| normalise_path("/", &super::paths::expand_root(root, env));
        let touched = |root: &str| writes.iter().any(|path| is_under(path, &place(root)));
        let mut roots: BTreeSet<String> = self.file().sandbox.fs.write.iter().cloned().collect();
        let mut granted_hosts: BTreeSet<String> = self.file().sandbox.net.hosts.iter().cloned().collect();
        for rule in self.rules() {
            roots.extend(rule.grant.fs_write.iter().filter(|p| !p.ends_with(":ro")).cloned());
            if let Some(super::NetGrantSpec::Hosts(list)) = &rule.grant.net {
                granted_hosts.extend(list.hosts.iter().cloned());
            }
        }
        difference.unused_rights = roots
            .iter()
            .filter(|root| !touched(root))
            .map(|root| format!("write {root}"))
            .chain(
                granted_hosts
                    .iter()
                    .filter(|granted| !hosts.iter().any(|host| host_covers(granted, host)))
                    .map(|granted| format!("host {granted}")),
            )
            .collect();
        difference
    }
}

fn command_proposal(command: &ObservedCommand) -> Proposal {
    Proposal { command: Command::Argv(command.argv.clone()), cwd: command.cwd.clone() }
}

/// The first right that an observed command used and that is not in its grant.
fn outside_grant(grant: &super::Grant, command: &ObservedCommand, env: &DecisionEnv) -> Option<String> {
    let place = |root: &String| normalise_path("/", &super::paths::expand_root(root, env));
    let writable: Vec<String> = grant.fs_write.iter().map(place).collect();
    let write = command.writes.iter().find(|path| !writable.iter().any(|root| is_under(path, root)));
    if let Some(path) = write {
        return Some(format!("it writes {path}"));
    }
    let host = command.hosts.iter().find(|host| match &grant.net {
        super::NetGrant::None => true,
        super::NetGrant::Hosts(granted) => !granted.iter().any(|granted| host_covers(granted, host)),
        super::NetGrant::HostNetwork => false,
    });
    host.map(|host| format!("it reaches {host}"))
}

/// True if a granted `host:port`, which may begin with `*.`, matches a reached one.
fn host_covers(granted: &str, reached: &str) -> bool {
    match (HostPort::parse(granted), HostPort::parse(reached)) {
        (Some(granted), Some(reached)) => granted.covers(&reached.host, reached.port),
        _ => false,
    }
}

pub(super) fn toml_string(value: &str) -> String {
    toml::Value::from(name_step_home(value)).to_string()
}

pub(super) fn toml_array<'a>(values: impl IntoIterator<Item = &'a String>) -> String {
    let items: Vec<String> = values.into_iter().map(|value| toml_string(value)).collect();
    format!("[{}]", items.join(", "))
}

/// `path` with the names of the workspace and the homes.
fn rooted_path(path: &str, env: &DecisionEnv) -> String {
    for (root, name) in [(&env.workspace, "@workspace"), (&env.tmp, "@tmp")] {
        if is_under(path, root) {
            return format!("{name}{}", &path[root.len()..]);
        }
    }
    rule_path(path, env)
}

/// Directories that contain all of `paths`: one level below their root, or the directory of a single
/// file.
fn common_directories(paths: &BTreeSet<String>, env: &DecisionEnv) -> BTreeSet<String> {
    paths
        .iter()
        .map(|path| {
            let root = [&env.workspace, &env.tmp, &env.home].into_iter().find(|r| is_under(path, r));
            let Some(root) = root else {
                let parent = path.rsplit_once('/').map_or("/", |(dir, _)| dir);
                return if parent.is_empty() { path.clone() } else { parent.to_owned() };
            };
            let below = path[root.len()..].trim_start_matches('/');
            match below.split_once('/') {
                Some((first, _)) => rooted_path(&format!("{root}/{first}"), env),
                // A file cannot be granted before it exists, so its directory is.
                None => rooted_path(root, env),
            }
        })
        .collect()
}

/// Text of each possible rule for these commands, by its id.
fn rules_of(groups: &BTreeMap<(String, String), Group>, env: &DecisionEnv) -> Vec<(String, String)> {
    let mut ids: BTreeSet<String> = BTreeSet::new();
    let mut rules = Vec::new();
    for ((program, verb), group) in groups {
        let base = program.rsplit('/').next().unwrap_or(program);
        let shaped = !verb.is_empty() && group.argvs.len() >= VARIANTS_BEFORE_A_SHAPE;
        let argvs: Vec<Option<&Vec<String>>> =
            if shaped { vec![None] } else { group.argvs.iter().map(Some).collect() };
        for argv in argvs {
            let mut id: String = format!("{base}-{verb}")
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
                .collect();
            id = id.trim_matches('-').to_owned();
            while !ids.insert(id.clone()) {
                id.push_str("-x");
            }
            let mut text = String::new();
            // Writing to a String cannot fail.
            let _ = write_rule(&mut text, &id, (program, verb), argv, group, env);
            rules.push((id, text));
        }
    }
    rules
}

fn policy_text(rules: &[(String, String)], is_wanted: impl Fn(&str) -> bool) -> String {
    let mut out = String::from(
        "# Proposed from recorded runs. Read every rule before you commit it: that a\n\
         # command ran once does not mean that it should always run.\n\
         version = 1\nprofile = \"default\"\nextends = [\"builtin:readonly-catalog@1\"]\n\n\
         [sandbox.fs]\nread = [\"@workspace\", \"@system-ro\"]\nwrite = [\"@workspace\", \"@tmp\"]\n",
    );
    for (_, text) in rules.iter().filter(|(id, _)| is_wanted(id)) {
        out.push_str(text);
    }
    out
}

fn write_rule(
    out: &mut String,
    id: &str,
    (program, verb): (&str, &str),
    argv: Option<&Vec<String>>,
    group: &Group,
    env: &DecisionEnv,
) -> std::fmt::Result {
    let runs: Vec<String> = group.runs.iter().map(|run| run.escape_debug().to_string()).collect();
    writeln!(out, "\n# seen in {}", runs.join(", "))?;
    writeln!(out, "[[rule]]\nid = {}\neffect = \"allow\"", toml_string(id))?;
    match argv {
        Some(argv) => writeln!(out, "argv = {}", toml_array(argv))?,
        None => {
            writeln!(out, "program = {}", toml_string(program))?;
            let words = group.argvs.iter().flatten().filter(|word| word.starts_with('-'));
            let flags = words.filter_map(|word| word.split('=').next().map(str::to_owned));
            let flags: BTreeSet<String> = flags.collect();
            let flags = match flags.is_empty() || group.hosts.is_empty() {
                true => String::new(),
                false => format!(", allow_flags = {}", toml_array(&flags)),
            };
            writeln!(out, "args = {{ first = [{}]{flags} }}", toml_string(verb))?;
        }
    }
    let mut grant = Vec::new();
    let outside: BTreeSet<String> = group
        .reads
        .iter()
        .filter(|path| {
            !is_under(path, &env.workspace)
                && !super::paths::SYSTEM_READ_ONLY.iter().any(|root| is_under(path, root))
        })
        .map(|path| rooted_path(path, env))
        .collect();
    if !outside.is_empty() {
        grant.push(format!("fs_read = {}", toml_array(&outside)));
    }
    let writes = common_directories(&group.writes, env);
    if !writes.is_empty() {
        grant.push(format!("fs_write = {}", toml_array(&writes)));
    }
    if !group.hosts.is_empty() {
        grant.push(format!("net = {{ hosts = {} }}", toml_array(&group.hosts)));
    }
    if !grant.is_empty() {
        writeln!(out, "grant = {{ {} }}", grant.join(", "))?;
    }
    writeln!(out, "why = \"proposed from recorded runs; not reviewed yet\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed_command(argv: &[&str], writes: &[&str], hosts: &[&str]) -> ObservedCommand {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        ObservedCommand { argv: own(argv), writes: own(writes), hosts: own(hosts), ..Default::default() }
    }

    fn sample_runs() -> Vec<Observed> {
        vec![
            Observed {
                run: "run-1".to_owned(),
                commands: vec![
                    observed_command(&["cargo", "build"], &["/srv/repo/target/debug/x"], &[]),
                    observed_command(&["cargo", "build", "--release"], &["/srv/repo/target/release/x"], &[]),
                    observed_command(&["ls", "-l"], &[], &[]),
                    observed_command(&["mkfs.ext4", "/dev/sda"], &[], &[]),
                ],
                starts: Vec::new(),
            },
            Observed {
                run: "run-2".to_owned(),
                commands: vec![
                    observed_command(&["cargo", "build", "-p", "a"], &[], &[]),
                    observed_command(&["curl", "-fsS", "https://api.example/x"], &[], &["api.example:443"]),
                ],
                starts: Vec::new(),
            },
        ]
    }

    #[test]
    fn a_suggestion_allows_exactly_what_was_seen() {
        let env = DecisionEnv::fixture();
        let suggestion = Policy::suggest(&sample_runs(), &env);
        assert_eq!(
            suggestion.toml.trim_end(),
            r#"# Proposed from recorded runs. Read every rule before you commit it: that a
# command ran once does not mean that it should always run.
version = 1
profile = "default"
extends = ["builtin:readonly-catalog@1"]

[sandbox.fs]
read = ["@workspace", "@system-ro"]
write = ["@workspace", "@tmp"]

# seen in run-1, run-2
[[rule]]
id = "cargo-build"
effect = "allow"
program = "cargo"
args = { first = ["build"] }
grant = { fs_write = ["@workspace/target"] }
why = "proposed from recorded runs; not reviewed yet"

# seen in run-2
[[rule]]
id = "curl"
effect = "allow"
argv = ["curl", "-fsS", "https://api.example/x"]
grant = { net = { hosts = ["api.example:443"] } }
why = "proposed from recorded runs; not reviewed yet"

# Seen, and not covered by any rule above:
#   mkfs.ext4 /dev/sda (deny: mkfs.ext4 formats a device)"#
        );
        let policy = Policy::load(&suggestion.toml, "suggested.toml").unwrap();
        let difference = policy.check_against(&sample_runs(), &env);
        assert_eq!(difference.stopped.iter().map(|s| s.argv[0].as_str()).collect::<Vec<_>>(), ["mkfs.ext4"]);
        assert_eq!(difference.unused_rules, Vec::<String>::new());
        assert_eq!(difference.unused_rights, ["write @tmp"]);
    }

    #[test]
    fn missing_rights_are_named() {
        let env = DecisionEnv::fixture();
        let policy = Policy::load("version = 1\n[[rule]]\nid = \"b\"\neffect = \"allow\"\nprogram = \"cargo\"\nargs = { first = [\"build\"] }\n[[rule]]\nid = \"t\"\neffect = \"allow\"\nprogram = \"make\"\n", "p").unwrap();
        let difference = policy.check_against(&sample_runs(), &env);
        let reasons: Vec<_> = difference.stopped.iter().map(|stopped| stopped.reason.as_str()).collect();
        assert!(
            reasons.contains(&"the sandbox would have stopped it: it writes /srv/repo/target/debug/x"),
            "{reasons:?}"
        );
        assert_eq!(difference.unused_rules, ["t"]);
    }
}
