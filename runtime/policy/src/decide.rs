//! Decisions: from a proposed command to a verdict with its reasons.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::analysis::{Analysis, Arg, CommandFact, CommandFinding, FindingLevel, TextSpan};
use super::command::Invocation;
use super::decision_env::DecisionEnv;
use super::dialect::Dialect;
use super::file::{LeastChanges, NetDefault, NetGrantSpec, NetWord, Profile, Rule};
use super::paths::{Roots, expand_root, is_each_steps_own, normalise_path, rule_path};
use super::shell::{LANGUAGE, find_unshowable, read_script};
use super::{ENGINE_VERSION, Policy};
use lobster_base::digest::Digest;
pub use lobster_base::program::Program as Command;
use lobster_base::quantity::Span;

/// A proposed command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// The command.
    pub command: Command,
    /// Working directory; `None` for the workspace.
    pub cwd: Option<String>,
}

impl Proposal {
    /// Shell text in the workspace.
    #[must_use]
    pub fn shell(text: impl Into<String>) -> Self {
        Self { command: Command::Shell(text.into()), cwd: None }
    }

    /// A program with arguments in the workspace.
    #[must_use]
    pub fn argv<S: Into<String>>(words: impl IntoIterator<Item = S>) -> Self {
        Self { command: Command::Argv(words.into_iter().map(Into::into).collect()), cwd: None }
    }
}

/// Outcome of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The command may run, with the decision's grant.
    Allow,
    /// A person decides; after approval, the command runs with the decision's grant.
    Ask,
    /// The command does not run.
    Deny,
}

impl Verdict {
    /// Name of the verdict in corpora and records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// A reason against running the command without a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// Verdict that this reason alone leads to.
    pub verdict: Verdict,
    /// Stable code; a command with a `hard:*` reason cannot be approved.
    pub code: String,
    /// Description of the finding.
    pub message: String,
    /// Position in the shell text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span: Option<TextSpan>,
}

/// A verdict with its grounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// Code of the deciding reason; `covered` if there was no reason against the command.
    pub reason_code: String,
    /// Deciding reason in one sentence.
    pub message: String,
    /// Advice on what to do instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Position of the deciding reason in the shell text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span: Option<TextSpan>,
    /// All reasons, strictest first.
    pub reasons: Vec<Reason>,
    /// Ids of the matching rules.
    pub rule_ids: Vec<String>,
    /// Every simple command that would start.
    pub commands: Vec<CommandFact>,
    /// Rights of the command if it runs.
    pub grant: Grant,
    /// Minimum isolation of the command's changes to files.
    #[serde(skip_serializing_if = "LeastChanges::is_direct")]
    pub changes: LeastChanges,
    /// True if the deciding reason is a hard block.
    #[serde(skip)]
    hard: bool,
    /// Terms of the approval, if one is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask: Option<super::AskTerms>,
    /// True if the whole command was read. False only under the built-in policy, which lets text run
    /// that it could not read.
    pub analysed: bool,
    /// Digest of the policy.
    pub policy: Digest,
    /// Version of the engine and catalogue that decided.
    pub engine_version: &'static str,
}

impl Decision {
    /// True if a hard block decided: no rule and no approval can allow the command.
    #[must_use]
    pub fn is_hard(&self) -> bool {
        self.hard
    }
}

/// Network rights of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetGrant {
    /// No network.
    #[default]
    None,
    /// These `host:port` pairs.
    Hosts(Vec<String>),
    /// The host's own network.
    HostNetwork,
}

/// Rights of one command. Paths are absolute or begin with `~`, the caller's home. `@system-ro`, `@tmp`
/// and `@step-home` are provided by the sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Grant {
    /// Readable roots.
    pub fs_read: Vec<String>,
    /// Writable roots.
    pub fs_write: Vec<String>,
    /// Never readable; in order, with `!` exceptions.
    pub fs_deny: Vec<String>,
    /// Read-only even below a writable root.
    pub fs_protect: Vec<String>,
    /// Network rights.
    pub net: NetGrant,
    /// Names of variables that are passed on; a trailing `*` matches any rest.
    pub env: Vec<String>,
    /// Unix sockets.
    pub unix: Vec<String>,
    /// Ports of the run's own network on which it may listen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listen: Vec<u16>,
    /// Ports of the run's own network that it may connect to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub connect: Vec<u16>,
    /// Rights that the kernel cannot enforce, in the words of the rules.
    pub unenforceable: Vec<String>,
}

impl Policy {
    /// Decides about one command. The same arguments always give the same decision; nothing is started,
    /// and only program files are looked up.
    #[must_use]
    pub fn decide(&self, proposal: &Proposal, env: &DecisionEnv) -> Decision {
        let roots = self.resolve_roots(env);
        let cwd = match &proposal.cwd {
            Some(cwd) => normalise_path(&env.workspace, cwd),
            None => env.workspace.clone(),
        };
        let mut analysis = Analysis::new(self, env, &roots, cwd);
        let mut analysed = self.walk_proposal(&mut analysis, proposal);
        analysed &= !analysis
            .findings
            .iter()
            .any(|f| matches!(f.code.as_str(), "syntax" | LANGUAGE) || f.code.starts_with("limit:"));
        if self.file().profile == Profile::Locked && !self.is_open() && analysis.hard_finding().is_none() {
            self.judge_locked(&mut analysis, proposal);
        }
        if !self.is_open() {
            analysis.check_given();
        }
        self.conclude_decision(analysis, env, analysed)
    }

    /// Reads the whole proposal; false if it cannot be read.
    pub(super) fn walk_proposal(&self, analysis: &mut Analysis<'_>, proposal: &Proposal) -> bool {
        let env = analysis.env;
        match &proposal.command {
            Command::Shell(text) => {
                if env.shell.dialect == Dialect::Unknown && !self.is_open() {
                    analysis.deny_hint(
                        "shell",
                        format!(
                            "shell text would be run by {}, which is not dash, busybox ash or bash \
                             in a directory that the policy trusts",
                            env.shell.program.display()
                        ),
                        "set LOBSTER_SHELL=/bin/bash, or give the step a program with its arguments instead of shell text",
                    );
                }
                let readable = self.within_limits(analysis, text);
                if readable {
                    analysis.walk_text(text);
                }
                readable
            }
            Command::Argv(words) => {
                let readable = words.iter().all(|word| self.within_limits(analysis, word));
                if readable {
                    let args = words.iter().map(|word| Arg::literal(word.clone())).collect();
                    analysis.judge_command(Invocation { args, ..Invocation::default() });
                }
                readable
            }
        }
    }

    pub fn resolve_roots(&self, env: &DecisionEnv) -> Roots {
        let fs = &self.file().sandbox.fs;
        Roots::new(&fs.read, &fs.write, &fs.deny, &fs.protect, env)
    }

    /// True if every step may read the host file at this real path. The temporary directory and the
    /// home of a step do not belong to the host.
    pub fn may_read(&self, file: &Path, env: &DecisionEnv) -> bool {
        let fs = &self.file().sandbox.fs;
        let shared = |list: &[String]| -> Vec<String> {
            list.iter().filter(|path| !is_each_steps_own(path)).cloned().collect()
        };
        let roots = Roots::new(&shared(&fs.read), &shared(&fs.write), &fs.deny, &fs.protect, env);
        file.to_str().is_some_and(|path| roots.is_readable(path) && !roots.is_secret(path))
    }

    fn within_limits(&self, analysis: &mut Analysis<'_>, text: &str) -> bool {
        let limit = self.limits().source.0;
        if u64::try_from(text.len()).unwrap_or(u64::MAX) > limit {
            analysis.deny_hint(
                "limit:source",
                format!("the text is {} bytes long; the limit is {limit}", text.len()),
                "put the data into a file and pass its name",
            );
            return false;
        }
        if let Some((at, c)) = find_unshowable(text) {
            analysis.span = Some(TextSpan { start: at, end: at + 1 });
            analysis.deny_hint(
                "unshowable",
                format!("character U+{:04X} cannot be shown faithfully", u32::from(c)),
                "remove it, or let `printf` write it from an escape",
            );
            // Under the built-in policy, the text is still followed.
            return self.is_open() && c != '\0';
        }
        true
    }

    /// The `locked` profile: one simple command that equals a listed one.
    fn judge_locked(&self, analysis: &mut Analysis<'_>, proposal: &Proposal) {
        let words = match &proposal.command {
            Command::Argv(words) => Some(words.clone()),
            Command::Shell(text) => only_simple_command(self, analysis, text),
        };
        let allowed = words.is_some_and(|words| {
            let Some((program, args)) = words.split_first() else {
                return false;
            };
            let program = analysis.resolve_program(program);
            program.is_some()
                && self.file().locked.argv.iter().any(|listed| {
                    listed
                        .split_first()
                        .is_some_and(|(name, rest)| analysis.resolve_program(name) == program && rest == args)
                })
        });
        // The shell may read other words than the listed ones.
        let misread = |f: &CommandFinding| matches!(f.code.as_str(), LANGUAGE | "shell");
        if allowed && !analysis.findings.iter().any(misread) {
            analysis.findings.clear();
        } else {
            analysis.deny_hint(
                "locked",
                "the profile is locked and does not list this command",
                "run one of the commands listed under [locked]",
            );
        }
    }

    fn conclude_decision(&self, mut analysis: Analysis<'_>, env: &DecisionEnv, analysed: bool) -> Decision {
        if self.file().profile != Profile::Locked && !self.is_open() {
            self.keep_grants_apart(&mut analysis, env);
        }
        // Commands of the catalogue never get the network, even if the default grants it.
        let quiet = analysis.draws.iter().all(|draw| draw.catalogued);
        let Analysis { mut findings, commands, rules, roots, .. } = analysis;
        if self.is_open() {
            findings.retain(|f| f.level == FindingLevel::Hard);
        }
        findings.sort_by_key(|f| std::cmp::Reverse(f.level));
        let unattended = self.file().profile == Profile::ReadOnly;
        let verdict_of = |finding: &CommandFinding| match finding.level {
            FindingLevel::Ask if unattended => Verdict::Deny,
            FindingLevel::Ask => Verdict::Ask,
            FindingLevel::Deny | FindingLevel::Hard => Verdict::Deny,
        };
        let verdict = findings.first().map_or(Verdict::Allow, verdict_of);
        let (reason_code, message, hint, span) = match findings.first() {
            Some(f) => {
                let suffix = if f.level == FindingLevel::Ask && unattended {
                    " (the readonly profile never asks)"
                } else {
                    ""
                };
                (f.code.clone(), format!("{}{suffix}", f.message), f.hint.map(str::to_owned), f.span)
            }
            None if !analysed => (
                "not-analysed".to_owned(),
                "no policy file is in force, and the text could not be read".to_owned(),
                None,
                None,
            ),
            None if self.is_open() => {
                ("open".to_owned(), "no policy file is in force".to_owned(), None, None)
            }
            None => (
                "covered".to_owned(),
                "every command is covered by a rule or the catalogue".to_owned(),
                None,
                None,
            ),
        };
        let mut rule_ids: Vec<String> = rules.iter().map(|r| r.id.clone()).collect();
        rule_ids.extend(findings.iter().filter_map(|f| f.rule.clone()));
        rule_ids.sort();
        rule_ids.dedup();
        let asks_itself = findings.iter().any(|f| f.level == FindingLevel::Ask && f.rule.is_none());
        let mut grant = match verdict {
            Verdict::Deny => Grant::default(),
            Verdict::Allow | Verdict::Ask => self.granted_rights(&rules, asks_itself, quiet, env, roots),
        };
        // Git cannot commit without this right, and the person sees that it is granted.
        let repository = format!("{}/.git", env.workspace);
        if verdict == Verdict::Ask
            && grant.fs_write.contains(&env.workspace)
            && !grant.fs_write.contains(&repository)
            && commands.iter().any(|command| command.program.as_deref().is_some_and(is_git))
        {
            grant.fs_write.push(repository);
        }
        let ask = (verdict == Verdict::Ask).then(|| ask_terms(&rules));
        let of_rules = rules.iter().map(|rule| rule.changes);
        let changes = match verdict {
            Verdict::Deny => LeastChanges::Direct,
            Verdict::Allow | Verdict::Ask => of_rules.fold(self.file().sandbox.changes, Ord::max),
        };
        Decision {
            verdict,
            reason_code,
            hard: findings.first().is_some_and(|f| f.level == FindingLevel::Hard),
            message,
            hint,
            span,
            reasons: findings
                .iter()
                .map(|f| Reason {
                    verdict: verdict_of(f),
                    code: f.code.clone(),
                    message: f.message.clone(),
                    span: f.span,
                })
                .collect(),
            rule_ids,
            commands,
            grant,
            changes,
            ask,
            analysed,
            policy: self.digest(),
            engine_version: ENGINE_VERSION,
        }
    }

    /// Rights that the matched rules grant in addition to the rights of every step. Rights of several
    /// commands have already been separated. A command that needs approval beyond any rule gets the
    /// policy's write roots: the person sees the command, and the roots limit it.
    pub(super) fn granted_rights(
        &self,
        rules: &[&Rule],
        whole_roots: bool,
        quiet: bool,
        env: &DecisionEnv,
        roots: &Roots,
    ) -> Grant {
        let sandbox = &self.file().sandbox;
        let resolve = |path: &String| {
            let (not, path) = path.strip_prefix('!').map_or(("", path.as_str()), |path| ("!", path));
            match path.starts_with("@tmp") {
                true => path.to_owned(),
                false => format!("{not}{}", rule_path(&expand_root(path, env), env)),
            }
        };
        let mut grant = Grant {
            fs_read: sandbox.fs.read.iter().map(resolve).collect(),
            fs_deny: sandbox.fs.deny.iter().map(resolve).collect(),
            fs_protect: sandbox.fs.protect.iter().chain(&env.protected).map(resolve).collect(),
            env: sandbox.env.pass.clone(),
            net: match sandbox.net.default {
                _ if quiet => NetGrant::None,
                NetDefault::None => NetGrant::None,
                NetDefault::Hosts => NetGrant::Hosts(sandbox.net.hosts.clone()),
                NetDefault::HostNetwork => NetGrant::HostNetwork,
            },
            ..Grant::default()
        };
        if whole_roots || self.is_open() {
            grant.fs_write.extend(sandbox.fs.write.iter().map(resolve));
        }
        for rule in rules {
            grant.fs_read.extend(rule.grant.fs_read.iter().map(resolve));
            for path in &rule.grant.fs_write {
                match path.strip_suffix(":ro") {
                    Some(read) => grant.fs_read.push(resolve(&read.to_owned())),
                    None => grant.fs_write.push(resolve(path)),
                }
            }
            grant.env.extend(rule.grant.env.iter().cloned());
            grant.unix.extend(rule.grant.unix.iter().cloned());
            grant.listen.extend(&rule.grant.listen);
            grant.connect.extend(&rule.grant.connect);
            grant.unenforceable.extend(rule.grant.unenforceable.iter().cloned());
            match (&mut grant.net, &rule.grant.net) {
                (_, None | Some(NetGrantSpec::Word(NetWord::None))) | (NetGrant::HostNetwork, Some(_)) => {}
                (net, Some(NetGrantSpec::Word(NetWord::HostNetwork))) => *net = NetGrant::HostNetwork,
                (NetGrant::Hosts(hosts), Some(NetGrantSpec::Hosts(more))) => {
                    hosts.extend(more.hosts.iter().cloned());
                }
                (net @ NetGrant::None, Some(NetGrantSpec::Hosts(more))) => {
                    *net = NetGrant::Hosts(more.hosts.clone());
                }
            }
        }
        // No rule can grant access to protected paths.
        grant.fs_write.retain(|path| !roots.is_protected(&expand_root(path, env)));
        for list in [
            &mut grant.fs_read,
            &mut grant.fs_write,
            &mut grant.env,
            &mut grant.unix,
            &mut grant.unenforceable,
        ] {
            let mut seen = std::collections::HashSet::new();
            list.retain(|entry| seen.insert(entry.clone()));
        }
        grant
    }
}

fn is_git(program: &str) -> bool {
    program.rsplit('/').next() == Some("git")
}

/// A denial as text: the subject, the reason, its code and the advice. Envelopes have no fields for
/// these, so the message holds them all.
pub fn denial_message(subject: &str, message: &str, reason_code: &str, hint: Option<&str>) -> String {
    let hint = hint.map(|hint| format!("; hint: {hint}")).unwrap_or_default();
    format!(
        "policy denied {subject}: {message} [{}, {reason_code}]{hint}",
        lobster_base::code::Code::PolicyDenied
    )
}

/// The strictest terms of all rules that ask.
fn ask_terms(rules: &[&Rule]) -> super::AskTerms {
    /// Without a limit in any rule, a question expires after a day.
    const UNSAID: Span = Span(std::time::Duration::from_secs(24 * 3600));
    /// Matches no approver, for rules whose approvers have no one in common.
    const NOBODY: &str = "no one: the rules name different approvers";
    let mut asks = rules.iter().filter_map(|rule| rule.ask.as_ref());
    let Some(mut terms) = asks.next().cloned() else {
        return super::AskTerms { ttl: UNSAID, ..super::AskTerms::default() };
    };
    for ask in asks {
        terms.ttl = terms.ttl.min(ask.ttl);
        terms.remember = terms.remember.min(ask.remember);
        if terms.approvers.is_empty() {
            terms.approvers.clone_from(&ask.approvers);
        } else if !ask.approvers.is_empty() {
            terms.approvers.retain(|who| ask.approvers.contains(who));
            if terms.approvers.is_empty() {
                terms.approvers.push(NOBODY.to_owned());
            }
        }
    }
    terms
}

/// Words of `text` if it is exactly one simple command of plain words.
fn only_simple_command(policy: &Policy, analysis: &mut Analysis<'_>, text: &str) -> Option<Vec<String>> {
    let script = read_script(text, policy.limits().nesting).ok()?;
    let words = script.only_words()?.iter().flat_map(|word| analysis.expand_word(word)).collect::<Vec<Arg>>();
    words.iter().map(|word| word.known_text().map(str::to_owned)).collect()
}
