//! The policy file: parses TOML text into a typed document, once.

mod audit;
mod error;
mod sandbox;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::component::ComponentPolicy;
use super::paths::SYSTEM_ROOTS;
use super::reference::{SecretReference, check_references};
use lobster_base::quantity::{Bytes, Span};

pub use self::audit::{Audit, AuditPlaces, AuditSync, Redaction};
pub use self::error::PolicyError;
pub(super) use self::error::syntax_error;
pub use self::sandbox::{
    Control, EnvPolicy, FsRoots, LeastChanges, NetDefault, NetPolicy, Sandbox, SandboxMode, SandboxUser,
};

/// A whole policy document (format 1). Every table may be left out; an absent field has the strict
/// default shown on it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyFile {
    /// Format version; 1.
    pub version: u32,
    /// Effect on commands that no rule matches.
    #[serde(default)]
    pub profile: Profile,
    /// Versioned catalogues built into lobster: `builtin:readonly-catalog@1`.
    #[serde(default)]
    pub extends: Vec<String>,
    /// Ceilings for every step.
    #[serde(default)]
    pub limits: Limits,
    /// Guarantees of the sandbox.
    #[serde(default)]
    pub sandbox: Sandbox,
    /// Directories of programs.
    #[serde(default)]
    pub programs: Programs,
    /// The rules. Deny overrides ask, and ask overrides allow; their order does not matter.
    #[serde(default, rename = "rule")]
    pub rules: Vec<Rule>,
    /// The commands of the `locked` profile.
    #[serde(default)]
    pub locked: Locked,
    /// Additions to the built-in hard blocks.
    #[serde(default)]
    pub hard: Hard,
    /// People who may answer questions.
    #[serde(default, skip_serializing_if = "Approvals::is_default")]
    pub approvals: Approvals,
    /// Settings of the audit records.
    #[serde(default)]
    pub audit: Audit,
    /// Grants and limits of component steps.
    #[serde(default, skip_serializing_if = "ComponentPolicy::is_default")]
    pub components: ComponentPolicy,
    /// Sources of secrets, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, SecretReference>,
}

/// People who may answer the questions of runs under this policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Approvals {
    /// `person` refuses answers from a shell that carries an agent's mark and has no terminal.
    pub by: AnsweredBy,
    /// Names and paths of files that an approval does not cover, with wildcards. The question lists
    /// them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unbound: Vec<String>,
}

/// Senders of answers that are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AnsweredBy {
    /// Any process that may read the store. Questions of an agent's own runs are always answered by
    /// people.
    #[default]
    Anyone,
    /// People only: not from an agent's shell, and not reported by an agent.
    Person,
}

impl Approvals {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Effect on commands that no rule matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Reading commands run, and all others are denied; nothing asks.
    ReadOnly,
    /// Reading commands run, and all others ask.
    #[default]
    Default,
    /// Only the exact commands of `[locked]` run.
    Locked,
}

impl Profile {
    /// Rank of the profile by its freedom; smaller is stricter.
    pub(crate) fn freedom_rank(self) -> u8 {
        match self {
            Self::Locked => 0,
            Self::ReadOnly => 1,
            Self::Default => 2,
        }
    }
}

/// Ceilings: a step may request less but never more.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Wall-clock time of one step.
    pub timeout: Span,
    /// Processor time of one process.
    pub cpu: Span,
    /// Memory of one step.
    pub memory: Bytes,
    /// Processes and threads of one step.
    pub processes: u64,
    /// Size of any file a step writes.
    pub file_size: Bytes,
    /// Total size of a step's additions to the directories that it may write.
    #[serde(skip_serializing_if = "is_default_disk")]
    pub disk: Bytes,
    /// Open files of one process.
    pub open_files: u64,
    /// Limit of standard output.
    pub stdout: OutputLimit,
    /// Limit of standard error.
    pub stderr: OutputLimit,
    /// Longest shell text that is analysed at all.
    pub source: Bytes,
    /// Deepest nesting of brackets and keywords in shell text.
    pub nesting: usize,
}

/// Enough for the build of a large project, and less than the usual free space of a disk.
const DEFAULT_DISK: Bytes = Bytes(8 << 30);

/// The default is left out of documents, so that older policies keep their digests.
fn is_default_disk(disk: &Bytes) -> bool {
    *disk == DEFAULT_DISK
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout: Span(std::time::Duration::from_secs(120)),
            cpu: Span(std::time::Duration::from_secs(60)),
            memory: Bytes(2 << 30),
            processes: 256,
            file_size: Bytes(1 << 30),
            disk: DEFAULT_DISK,
            open_files: 256,
            stdout: OutputLimit::default(),
            stderr: OutputLimit { cap: Bytes(256 << 10), spill: Bytes(16 << 20), ..Default::default() },
            source: Bytes(64 << 10),
            nesting: 64,
        }
    }
}

/// Size of the kept output, and the treatment of the rest.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OutputLimit {
    /// Number of bytes kept.
    pub cap: Bytes,
    /// Bytes read beyond the cap before the step is killed.
    pub spill: Bytes,
    /// Effect of an overflow on the step.
    pub on_overflow: Overflow,
}

impl Default for OutputLimit {
    fn default() -> Self {
        Self { cap: Bytes(1 << 20), spill: Bytes(64 << 20), on_overflow: Overflow::Truncate }
    }
}

/// Effect of output beyond the cap on its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Overflow {
    /// The rest is counted and dropped, up to `spill`.
    Truncate,
    /// The step is killed at the cap.
    Kill,
}

/// Directories of programs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Programs {
    /// Directories whose programs are trusted. They are searched in this order; `PATH` is never used.
    pub trusted_dirs: Vec<String>,
    /// Program names with one fixed path each.
    pub pin: BTreeMap<String, String>,
}

impl Default for Programs {
    fn default() -> Self {
        Self {
            trusted_dirs: ["/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(str::to_owned).into(),
            pin: BTreeMap::new(),
        }
    }
}

/// One rule: the commands that it matches, and its effect on them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Name in decisions and records.
    pub id: String,
    /// Effect of a match.
    pub effect: Effect,
    /// Name of the program; with `args`, or alone for every use of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The shape of the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<ArgShape>,
    /// Exact command instead of `program`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<ArgPattern>>,
    /// Rights of a matching command beyond the read roots.
    #[serde(default)]
    pub grant: RuleGrant,
    /// Minimum isolation of the changes that a matching command makes to files.
    #[serde(default, skip_serializing_if = "LeastChanges::is_direct")]
    pub changes: LeastChanges,
    /// Reason for the rule, shown to the approver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Approvers, time limit and validity of an approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<AskTerms>,
    /// Commands that must match; checked when the policy is loaded.
    #[serde(default, rename = "match")]
    pub matches: Vec<String>,
    /// Commands that must not match; checked when the policy is loaded.
    #[serde(default)]
    pub not_match: Vec<String>,
}

/// Effect of a matching rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// The command runs with the rule's grant.
    Allow,
    /// A person decides.
    Ask,
    /// The command never runs.
    Deny,
}

/// Shape of a command's arguments. All given conditions must be met.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ArgShape {
    /// The first argument is in this list.
    pub first: Vec<String>,
    /// Some argument is in this list.
    pub contains_any: Vec<String>,
    /// No argument is a flag in this list, even if it is abbreviated or has a value attached. For a
    /// rule that denies or asks, only a flag before `--` is considered.
    pub deny_flags: Vec<String>,
    /// No argument contains a word of this list, even inside other text.
    pub deny_words: Vec<String>,
    /// Options that a command may have. An allow rule that grants a socket, the network or a
    /// credential, or has `deny_words`, matches only these options and the options in its `match`
    /// examples.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_flags: Vec<String>,
}

/// One position of an exact command.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ArgPattern {
    /// Exactly this text.
    Exact(String),
    /// Any text of a list.
    OneOf(OneOf),
}

/// Alternatives for one position of an exact command.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OneOf {
    /// Accepted texts.
    pub one_of: Vec<String>,
}

/// Rights beyond the policy's read roots.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RuleGrant {
    /// Further paths to read.
    pub fs_read: Vec<String>,
    /// Paths to write; a path with a trailing `:ro` may only be read.
    pub fs_write: Vec<String>,
    /// Network rights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net: Option<NetGrantSpec>,
    /// Further variables to pass.
    pub env: Vec<String>,
    /// Unix sockets that may be reached, each by its path.
    pub unix: Vec<String>,
    /// TCP ports to listen on, in a network that only steps of the same run can reach.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listen: Vec<u16>,
    /// TCP ports of that network to connect to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub connect: Vec<u16>,
    /// Reason why the kernel cannot enforce this grant, if it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unenforceable: Option<String>,
}

/// Network part of a grant: `"none"`, `"host-network"`, or a list of hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum NetGrantSpec {
    /// A grant without a list.
    Word(NetWord),
    /// Named hosts.
    Hosts(NetHosts),
}

/// Network grants without a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NetWord {
    /// No network.
    None,
    /// The host's own network.
    HostNetwork,
}

/// A list of `host:port` entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetHosts {
    /// `host:port` entries.
    pub hosts: Vec<String>,
}

/// Terms of an approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AskTerms {
    /// People who may answer; if empty, anyone who can answer an approval.
    pub approvers: Vec<String>,
    /// Time after which the question expires and the command is rejected.
    pub ttl: Span,
    /// Validity of an approval.
    pub remember: Remember,
}

impl Default for AskTerms {
    fn default() -> Self {
        Self {
            approvers: Vec::new(),
            ttl: Span(std::time::Duration::from_secs(900)),
            remember: Remember::Never,
        }
    }
}

/// Validity of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Remember {
    /// Only this step.
    Never,
    /// The same command for the rest of the run.
    Run,
    /// Like `run`. In addition, a rule is proposed, which `lobster policy suggest --approved` prints
    /// for a person to commit.
    Policy,
}

/// Exact commands of the `locked` profile.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Locked {
    /// Argument lists with the program first.
    pub argv: Vec<Vec<String>>,
    /// Digests of the components that may get the grants of their steps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<String>,
}

/// Hard blocks beyond the built-in ones.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Hard {
    /// The additions.
    pub extra: Vec<HardRule>,
}

/// One additional hard block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HardRule {
    /// Name in decisions.
    pub id: String,
    /// Program that never runs.
    pub program: String,
    /// Only if some argument is in this list; if empty, every use of the program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contains_any: Vec<String>,
}

/// Names allowed in `extends`.
pub(crate) const BUILTIN_BASES: &[&str] = &["builtin:readonly-catalog@1"];

impl PolicyFile {
    /// Parses the text of a policy file. `origin` names it in errors.
    ///
    /// # Errors
    /// [`PolicyError`] with line, column and the nearest known name.
    pub fn parse(text: &str, origin: &str) -> Result<Self, PolicyError> {
        let mut file: Self = toml::from_str(text).map_err(|error| syntax_error(&error, text, origin))?;
        file.drop_read_marks();
        if file.version != 1 {
            return Err(PolicyError::Version { origin: origin.to_owned(), found: file.version });
        }
        for name in &file.extends {
            if !BUILTIN_BASES.contains(&name.as_str()) {
                return Err(PolicyError::UnknownBase {
                    origin: origin.to_owned(),
                    name: name.clone(),
                    known: BUILTIN_BASES.join(", "),
                });
            }
        }
        file.check_roots(origin)?;
        check_references(&file.secrets, origin)?;
        Ok(file)
    }

    /// Drops the mark `:ro` of paths that may only be read in any case.
    fn drop_read_marks(&mut self) {
        let granted = self.rules.iter_mut().flat_map(|rule| &mut rule.grant.fs_read);
        let general = self.sandbox.fs.read.iter_mut().chain(self.components.read.iter_mut().flatten());
        for path in granted.chain(general) {
            if let Some(unmarked) = path.strip_suffix(":ro").map(str::to_owned) {
                *path = unmarked;
            }
        }
    }

    fn check_roots(&self, origin: &str) -> Result<(), PolicyError> {
        let fs = &self.sandbox.fs;
        let none = Vec::new();
        let mut all: Vec<(String, &String)> = Vec::new();
        for (field, list) in [
            ("sandbox.fs.read", &fs.read),
            ("sandbox.fs.write", &fs.write),
            ("sandbox.fs.protect", &fs.protect),
            ("components.read", self.components.read.as_ref().unwrap_or(&none)),
            ("components.write", self.components.write.as_ref().unwrap_or(&none)),
            ("programs.trusted_dirs", &self.programs.trusted_dirs),
        ] {
            all.extend(list.iter().map(|path| (field.to_owned(), path)));
        }
        all.extend(
            fs.deny
                .iter()
                .filter(|p| !p.trim_start_matches('!').starts_with("**/"))
                .map(|p| ("sandbox.fs.deny".to_owned(), p)),
        );
        for rule in &self.rules {
            for (key, list) in [("fs_read", &rule.grant.fs_read), ("fs_write", &rule.grant.fs_write)] {
                all.extend(list.iter().map(|p| (format!("rule {:?} grant.{key}", rule.id), p)));
            }
        }
        for (field, path) in [("audit.path", &self.audit.path), ("audit.anchor", &self.audit.anchor)] {
            let Some(path) = path else { continue };
            if ["@workspace", "@tmp", "@step-home"].iter().any(|root| path.starts_with(root)) {
                let message = "steps may write there; name an absolute path, or one under @state";
                return Err(PolicyError::Audit {
                    origin: origin.to_owned(),
                    key: field.to_owned(),
                    message: message.to_owned(),
                });
            }
            all.push((field.to_owned(), path));
        }
        for (field, path) in all {
            let text = path.trim_start_matches('!').trim_end_matches(":ro");
            let rooted = text.starts_with('/')
                || text == SYSTEM_ROOTS
                || ["~", "@workspace", "@tmp", "@state", "@step-home"].iter().any(|root| {
                    text.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                });
            if !rooted || text.split('/').any(|c| c == "..") {
                return Err(PolicyError::Root { origin: origin.to_owned(), field, path: path.clone() });
            }
        }
        Ok(())
    }

    /// JSON Schema of a policy document, for editors.
    #[must_use]
    pub fn json_schema() -> serde_json::Value {
        schemars::schema_for!(PolicyFile).to_value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_keys_name_line_column_and_the_nearest_key() {
        let error = PolicyFile::parse("version = 1\n[sandbox.fs]\nraed = []\n", "p.toml").unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"p.toml:3:1: unknown field `raed`, expected one of `read`, `write`, `deny`, `protect`; did you mean "read"?"#
        );
    }

    #[test]
    fn wrong_values_are_named() {
        let error = PolicyFile::parse("version = 1\nprofile = \"read-only\"\n", "p.toml").unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"p.toml:2:11: unknown variant `read-only`, expected one of `readonly`, `default`, `locked`; did you mean "readonly"?"#
        );
        let error =
            PolicyFile::parse("version = 1\n[sandbox]\nuser = \"dedicated\"\n", "p.toml").unwrap_err();
        assert_eq!(error.to_string(), "p.toml:3:8: unknown variant `dedicated`, expected `inherit`");
        let error = PolicyFile::parse("version = 1\n[limits]\ntimeout = \"soon\"\n", "p.toml").unwrap_err();
        assert_eq!(error.to_string(), r#"p.toml:3:11: "soon" is not a duration such as "90s" or "15m""#);
        let error = PolicyFile::parse("version = 2\n", "p.toml").unwrap_err();
        assert_eq!(
            error.to_string(),
            "p.toml: policy format 2 is not supported; this lobster reads format 1"
        );
    }

    #[test]
    fn relative_roots_are_refused() {
        let error = PolicyFile::parse("version = 1\n[sandbox.fs]\nread = [\"src\"]\n", "p.toml").unwrap_err();
        assert!(matches!(error, PolicyError::Root { ref path, .. } if path == "src"), "{error}");
        let error =
            PolicyFile::parse("version = 1\n[sandbox.fs]\nwrite = [\"@workspace/../x\"]\n", "p").unwrap_err();
        assert!(matches!(error, PolicyError::Root { .. }), "{error}");
    }

    #[test]
    fn unknown_bases_are_refused() {
        let error = PolicyFile::parse("version = 1\nextends = [\"builtin:all\"]\n", "p.toml").unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"p.toml: extends "builtin:all": there is no such base; known: builtin:readonly-catalog@1"#
        );
    }
}
