//! The binding of an approval.
//!
//! One digest covers everything that the person saw and everything that decides which command runs. It
//! is computed again on resume; any difference, however small, makes the approval stale.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Policy;
use super::decide::{Command, Decision, Proposal};
use super::decision_env::DecisionEnv;
use super::dialect::Shell;
use super::inline_code::is_interpreter;
use super::paths::{Roots, SYSTEM_READ_ONLY, is_under};
use super::wrappers::is_shell;
use lobster_base::credential::CredentialGrant;
use lobster_base::digest::Digest;

/// A program file at the time of the question.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BoundProgram {
    /// Real path.
    pub path: String,
    /// Digest of the content.
    pub digest: Digest,
}

/// A tree of files that the command can read, at the time of the question.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BoundTree {
    /// Real path.
    pub path: String,
    /// Digest of the names, kinds, rights and contents of all its entries.
    pub digest: Digest,
    /// Number of files.
    pub files: u64,
    /// Total size of the files.
    pub bytes: u64,
}

/// A file that the command would execute by its name, at the time of the question.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BoundFile {
    /// Path in the command, made absolute.
    pub path: String,
    /// Real path, if symbolic links lead elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Digest of the content.
    pub digest: Digest,
    /// Size in bytes.
    pub bytes: u64,
    /// The command may write the file, or it is very large. It is compared when the command starts, but
    /// the command uses it directly rather than a copy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compared: bool,
}

impl BoundFile {
    /// Path of the content.
    #[must_use]
    pub fn real_path(&self) -> &str {
        self.target.as_deref().unwrap_or(&self.path)
    }
}

/// Everything that one approval is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Binding {
    /// Argument list or shell text, and working directory.
    pub proposal: Proposal,
    /// Shell that reads the text, and its language; `None` for an argument list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<Shell>,
    /// Working directory, with links resolved.
    pub cwd: String,
    /// Variables of the command, each value by its digest.
    pub env: BTreeMap<String, Digest>,
    /// Standard input, if the step pipes data.
    pub stdin: Option<Digest>,
    /// Programs that would start.
    pub programs: Vec<BoundProgram>,
    /// Files that would be executed by their names, ordered by path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<BoundFile>,
    /// Trees that the command can read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trees: Vec<BoundTree>,
    /// Uncommitted changes of earlier steps that the command finds in these trees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_changes: Option<Digest>,
    /// Rights of the command.
    pub grant: super::Grant,
    /// Credentials that are added to its requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialGrant>,
    /// Digest of the policy.
    pub policy: Digest,
}

impl Binding {
    /// Binds an approval to the subject of `decision`. `hash_file` returns the digest of a program
    /// file; in production it is [`Digest::of_reader`] on the opened file.
    ///
    /// # Errors
    /// Errors of `hash_file`: a program that cannot be read cannot be approved.
    pub fn new(
        proposal: &Proposal,
        decision: &Decision,
        env: &DecisionEnv,
        stdin: Option<Digest>,
        mut hash_file: impl FnMut(&Path) -> io::Result<Digest>,
    ) -> io::Result<Self> {
        let mut paths: Vec<&String> =
            decision.commands.iter().filter_map(|command| command.program.as_ref()).collect();
        paths.sort();
        paths.dedup();
        let programs = paths
            .into_iter()
            .map(|path| Ok(BoundProgram { path: path.clone(), digest: hash_file(Path::new(path))? }))
            .collect::<io::Result<_>>()?;
        Ok(Self {
            proposal: proposal.clone(),
            shell: matches!(proposal.command, Command::Shell(_)).then(|| env.shell.clone()),
            cwd: proposal.cwd.clone().unwrap_or_else(|| env.workspace.clone()),
            env: env
                .vars
                .iter()
                .map(|(name, value)| (name.clone(), Digest::of_bytes(value.as_bytes())))
                .collect(),
            stdin,
            programs,
            files: Vec::new(),
            trees: Vec::new(),
            waiting_changes: None,
            grant: decision.grant.clone(),
            credentials: Vec::new(),
            policy: decision.policy,
        })
    }

    /// Identity of the binding: BLAKE3 of its RFC 8785 JSON.
    ///
    /// # Errors
    /// Never in practice: every part has a JSON form.
    pub fn digest(&self) -> serde_json::Result<Digest> {
        Digest::of_json(self)
    }
}

/// True for the name of a shell or interpreter, whose first operand is a script.
#[must_use]
pub fn runs_scripts(name: &str) -> bool {
    is_shell(name) || is_interpreter(name)
}

impl Policy {
    /// True if only the system's administrator can change the file at this real path, as with trusted
    /// programs and the system's own files.
    #[must_use]
    pub fn is_system_file(&self, path: &str, roots: &Roots) -> bool {
        let trusted = self.programs().trusted_dirs.iter().map(String::as_str);
        let mut system = trusted.chain(SYSTEM_READ_ONLY.iter().copied()).chain(["/dev", "/run"]);
        system.any(|directory| is_under(path, directory)) && !roots.is_writable(path)
    }
}

/// Files that have changed, each with its change.
pub fn changed_files(before: &[BoundFile], now: &[BoundFile]) -> Vec<String> {
    let of = |files: &[BoundFile], path: &str| files.iter().find(|file| file.path == path).cloned();
    let mut out = Vec::new();
    for file in before {
        match of(now, &file.path) {
            None => out.push(format!("the file {} (it is gone)", file.path)),
            Some(other) if other.digest != file.digest => {
                let (was, is) = (file.digest.short(), other.digest.short());
                out.push(format!("the file {} (content {was}, now {is})", file.path));
            }
            Some(other) if other.target != file.target => {
                out.push(format!("the file {} (it leads to another file)", file.path));
            }
            Some(other) if other != *file => out.push(format!("how the file {} is held", file.path)),
            Some(_) => {}
        }
    }
    let new = now.iter().filter(|file| of(before, &file.path).is_none());
    out.extend(new.map(|file| format!("the file {} (it is new)", file.path)));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;
    use crate::dialect::Dialect;

    fn bind_command(text: &str, env: &DecisionEnv, content: &[u8]) -> Binding {
        let policy = Policy::load("version = 1\n", "p.toml").unwrap();
        let proposal = Proposal::shell(text);
        let decision = policy.decide(&proposal, env);
        Binding::new(&proposal, &decision, env, None, |_| Ok(Digest::of_bytes(content))).unwrap()
    }

    #[test]
    fn any_difference_gives_another_digest() {
        let mut env = DecisionEnv::fixture();
        let before = bind_command("touch a", &env, b"v1");
        assert_eq!(before.digest().unwrap(), bind_command("touch a", &env, b"v1").digest().unwrap());
        let dash = DecisionEnv::fixture().with_shell(Shell::example(Dialect::Dash));
        let mut others = vec![
            bind_command("touch b", &env, b"v1"),
            bind_command("touch a", &env, b"v2"),
            bind_command("touch a", &dash, b"v1"),
            Binding { waiting_changes: Some(Digest::of_bytes(b"set")), ..before.clone() },
        ];
        env.vars.insert("LANG".to_owned(), "C".to_owned());
        others.push(bind_command("touch a", &env, b"v1"));
        for other in others {
            assert_ne!(before.digest().unwrap(), other.digest().unwrap(), "{other:?}");
        }
    }

    #[test]
    fn a_changed_file_is_named() {
        let file = |path: &str, content: &[u8]| BoundFile {
            path: path.to_owned(),
            target: None,
            digest: Digest::of_bytes(content),
            bytes: content.len() as u64,
            compared: false,
        };
        let env = DecisionEnv::fixture();
        let with = |files: Vec<BoundFile>| Binding { files, ..bind_command("touch a", &env, b"v1") };
        let before = with(vec![file("/w/a", b"1"), file("/w/b", b"1")]);
        let now = with(vec![file("/w/a", b"2"), file("/w/c", b"1")]);
        assert_ne!(before.digest().unwrap(), now.digest().unwrap());
        let (was, is) = (Digest::of_bytes(b"1").short(), Digest::of_bytes(b"2").short());
        assert_eq!(
            changed_files(&before.files, &now.files),
            [
                format!("the file /w/a (content {was}, now {is})"),
                "the file /w/b (it is gone)".to_owned(),
                "the file /w/c (it is new)".to_owned(),
            ]
        );
        // Without files, the digest equals the digest of earlier versions.
        assert!(!serde_json::to_string(&with(Vec::new())).unwrap().contains("files"));
    }

    #[test]
    fn values_of_variables_do_not_appear() {
        let mut env = DecisionEnv::fixture();
        env.vars.insert("TOKEN".to_owned(), "hunter2".to_owned());
        let shown = serde_json::to_string(&bind_command("touch a", &env, b"")).unwrap();
        assert!(shown.contains("TOKEN") && !shown.contains("hunter2"), "{shown}");
    }
}
