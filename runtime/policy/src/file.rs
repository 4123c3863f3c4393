//! The policy file: TOML text to a typed document, once.

mod audit;
mod error;
mod sandbox;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::component::ComponentPolicy;
use super::reference::{SecretReference, check_references};
use lobster_base::quantity::{Bytes, Span};

pub use self::audit::{Audit, AuditPlaces, AuditSync, Redaction};
pub use self::error::PolicyError;
pub(super) use self::error::syntax_error;
pub use self::sandbox::{
    Control, EnvPolicy, FsRoots, LeastChanges, NetDefault, NetPolicy, Sandbox, SandboxMode, SandboxUser,
};

/// A whole policy document (format 1). Every table may be left out; what is
/// absent takes the strict default shown on the field.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyFile {
    /// Format version; 1.
    pub version: u32,
    /// What happens to commands no rule speaks of.
    #[serde(default)]
    pub profile: Profile,
    /// Versioned catalogues built into lobster: `builtin:readonly-catalog@1`.
    #[serde(default)]
    pub extends: Vec<String>,
    /// Ceilings for every step.
    #[serde(default)]
    pub limits: Limits,
    /// What the sandbox promises.
    #[serde(default)]
    pub sandbox: Sandbox,
    /// Where programs may come from.
    #[serde(default)]
    pub programs: Programs,
    /// The rules; a deny beats an ask beats an allow, order means nothing.
    #[serde(default, rename = "rule")]
    pub rules: Vec<Rule>,
    /// The commands of the `locked` profile.
    #[serde(default)]
    pub locked: Locked,
    /// Additions to the built-in hard blocks.
    #[serde(default)]
    pub hard: Hard,
    /// Who may answer questions.
    #[serde(default, skip_serializing_if = "Approvals::is_default")]
    pub approvals: Approvals,
    /// How decisions are recorded.
    #[serde(default)]
    pub audit: Audit,
    /// What component steps may be granted.
    #[serde(default, skip_serializing_if = "ComponentPolicy::is_default")]
    pub components: ComponentPolicy,
    /// Where secrets come from, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, SecretReference>,
}

/// Who may answer the questions of runs under this policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Approvals {
    /// `person` refuses answers of shells that carry an agent's mark and have no terminal.
    pub by: AnsweredBy,
    /// What an approval does not cover: names and paths of files, with wildcards. The question lists them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unbound: Vec<String>,
}

/// Whose answers are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AnsweredBy {
    /// Any process that may read the store; an agent's own runs are answered by people in any case.
    #[default]
    Anyone,
    /// People: no agent's shell, and no agent that reports an answer.
    Person,
}

impl Approvals {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The answer to commands that no rule speaks of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Reads run, everything else is denied; nothing asks.
    ReadOnly,
    /// Reads run, everything else asks.
    #[default]
    Default,
    /// Only the exact commands of `[locked]` run.
    Locked,
}

impl Profile {
    /// How much the profile lets through; smaller is stricter.
    pub(crate) fn freedom(self) -> u8 {
        match self {
            Self::Locked => 0,
            Self::ReadOnly => 1,
            Self::Default => 2,
        }
    }
}

/// Ceilings: a step may ask for less, never for more.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Wall clock of one step.
    pub timeout: Span,
    /// Processor time of one process.
    pub cpu: Span,
    /// Memory of one step.
    pub memory: Bytes,
    /// Processes and threads of one step.
    pub processes: u64,
    /// Size of any file a step writes.
    pub file_size: Bytes,
    /// What a step adds to the directories it may write, in all.
    #[serde(skip_serializing_if = "is_default_disk")]
    pub disk: Bytes,
    /// Open files of one process.
    pub open_files: u64,
    /// Standard output.
    pub stdout: OutputLimit,
    /// Standard error.
    pub stderr: OutputLimit,
    /// Longest shell text that is analysed at all.
    pub source: Bytes,
    /// Deepest nesting of brackets and keywords in shell text.
    pub nesting: usize,
}

/// Enough for the build of a large project; a disk that is in use has more free.
const DEFAULT_DISK: Bytes = Bytes(8 << 30);

/// Left out of documents that do not name it, so that older policies keep their digests.
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

/// How much of an output is kept, and what happens to the rest.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OutputLimit {
    /// Bytes kept.
    pub cap: Bytes,
    /// Bytes read beyond the cap before the step is killed.
    pub spill: Bytes,
    /// What the overflow does to the step.
    pub on_overflow: Overflow,
}

impl Default for OutputLimit {
    fn default() -> Self {
        Self { cap: Bytes(1 << 20), spill: Bytes(64 << 20), on_overflow: Overflow::Truncate }
    }
}

/// What output beyond the cap does to its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Overflow {
    /// The rest is counted and dropped until `spill`.
    Truncate,
    /// The step is killed at the cap.
    Kill,
}

/// Where programs may come from.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Programs {
    /// Directories whose programs are trusted; looked up in this order, never
    /// through `PATH`.
    pub trusted_dirs: Vec<String>,
    /// Program names tied to one path.
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

/// One rule: which commands, and what happens to them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The name decisions and records use.
    pub id: String,
    /// What a match means.
    pub effect: Effect,
    /// The program's name; with `args`, or alone for every use of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The shape of the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<ArgShape>,
    /// The exact command instead of `program`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<ArgPattern>>,
    /// The rights a matching command gets beyond reading the read roots.
    #[serde(default)]
    pub grant: RuleGrant,
    /// How far what a matching command changes in files is kept apart at least.
    #[serde(default, skip_serializing_if = "LeastChanges::is_direct")]
    pub changes: LeastChanges,
    /// Why the rule is there; shown to whoever approves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Who may approve, for how long, and what is remembered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<AskTerms>,
    /// Commands that must match; checked when the policy is loaded.
    #[serde(default, rename = "match")]
    pub matches: Vec<String>,
    /// Commands that must not match; checked when the policy is loaded.
    #[serde(default)]
    pub not_match: Vec<String>,
}

/// What a matching rule says.
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

/// The shape of a command's arguments. Every given condition must hold.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ArgShape {
    /// The first argument is one of these.
    pub first: Vec<String>,
    /// Some argument is one of these.
    pub contains_any: Vec<String>,
    /// No argument is one of these flags, also abbreviated or with a value
    /// attached. For a rule that denies or asks, only one before `--` counts.
    pub deny_flags: Vec<String>,
    /// No argument contains one of these words, whatever stands around it.
    pub deny_words: Vec<String>,
    /// The options that a command may have. An allow rule that grants a socket, the
    /// network or a credential, or has `deny_words`, matches no other option than these
    /// and those of its `match` examples.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_flags: Vec<String>,
}

/// One position of an exact command.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ArgPattern {
    /// This text.
    Exact(String),
    /// One of these texts.
    OneOf(OneOf),
}

/// Alternatives for one position of an exact command.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OneOf {
    /// The accepted texts.
    pub one_of: Vec<String>,
}

/// Rights beyond reading the policy's read roots.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RuleGrant {
    /// Further paths to read.
    pub fs_read: Vec<String>,
    /// Paths to write; a trailing `:ro` makes one a read.
    pub fs_write: Vec<String>,
    /// Network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net: Option<NetGrantSpec>,
    /// Further variables to pass.
    pub env: Vec<String>,
    /// Unix sockets to reach, each by its own path.
    pub unix: Vec<String>,
    /// TCP ports to listen on, in a network that only steps of the same run see.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listen: Vec<u16>,
    /// TCP ports of that network to connect to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub connect: Vec<u16>,
    /// Why the kernel cannot hold this grant, where it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unenforceable: Option<String>,
}

/// The network part of a grant: `"none"`, `"host-network"`, or a host list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum NetGrantSpec {
    /// A word.
    Word(NetWord),
    /// Named hosts.
    Hosts(NetHosts),
}

/// Network grants that are one word.
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
    /// The hosts.
    pub hosts: Vec<String>,
}

/// The terms of an approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AskTerms {
    /// Who may answer; empty for anybody who can answer a gate.
    pub approvers: Vec<String>,
    /// How long the question stands; then the answer is no.
    pub ttl: Span,
    /// What a yes is good for.
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

/// What an approval is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Remember {
    /// This one step.
    Never,
    /// The same command for the rest of the run.
    Run,
    /// As `run`; and a rule is proposed, for a person to commit:
    /// `lobster policy suggest --approved` prints it.
    Policy,
}

/// The exact commands of the `locked` profile.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Locked {
    /// Argument lists, program first.
    pub argv: Vec<Vec<String>>,
    /// Digests of the components that may be granted what their steps grant.
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

/// One added hard block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HardRule {
    /// The name decisions use.
    pub id: String,
    /// The program that never runs.
    pub program: String,
    /// Only when some argument is one of these; empty for every use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contains_any: Vec<String>,
}

/// Names `extends` may give.
pub(crate) const BUILTIN_BASES: &[&str] = &["builtin:readonly-catalog@1"];

impl PolicyFile {
    /// Parses the text of a policy file. `origin` names it in errors.
    ///
    /// # Errors
    /// [`PolicyError`] with line, column and the nearest known name.
    pub fn parse(text: &str, origin: &str) -> Result<Self, PolicyError> {
        let file: Self = toml::from_str(text).map_err(|error| syntax_error(&error, text, origin))?;
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
                || text == "@system-ro"
                || ["~", "@workspace", "@tmp", "@state", "@step-home"].iter().any(|root| {
                    text.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                });
            if !rooted || text.split('/').any(|c| c == "..") {
                return Err(PolicyError::Root { origin: origin.to_owned(), field, path: path.clone() });
            }
        }
        Ok(())
    }

    /// The JSON Schema of a policy document, for editors.
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
