//! What an approval is an approval of.
//!
//! Everything a person saw and everything that decides what will run is named
//! by one digest. At resume it is computed again; any difference, however
//! small, makes the approval stale.

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

/// A program file as it was when the question was put.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BoundProgram {
    /// The real path.
    pub path: String,
    /// The file's content.
    pub digest: Digest,
}

/// A tree of files that the command can read, as it was when the question was put.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BoundTree {
    /// The real path.
    pub path: String,
    /// Over the names, kinds, rights and contents of all that is in it.
    pub digest: Digest,
    /// How many files it has.
    pub files: u64,
    /// Their sizes.
    pub bytes: u64,
}

/// A file that the command would execute by its name, as it was when the question was put.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BoundFile {
    /// As the command names it, made absolute.
    pub path: String,
    /// The real path, where symbolic links lead elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The file's content.
    pub digest: Digest,
    /// Its size.
    pub bytes: u64,
    /// The command may write it, or it is very large: it is compared when the
    /// command starts, but no copy of it takes its place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compared: bool,
}

impl BoundFile {
    /// Where the content lies.
    #[must_use]
    pub fn real(&self) -> &str {
        self.target.as_deref().unwrap_or(&self.path)
    }
}

/// Everything one approval is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Binding {
    /// The argument list or the shell text, and the working directory.
    pub proposal: Proposal,
    /// The shell that reads the text, and in which language; none for an
    /// argument list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<Shell>,
    /// The directory, resolved.
    pub cwd: String,
    /// Variables the command sees, each value by its digest.
    pub env: BTreeMap<String, Digest>,
    /// Standard input, when the step pipes data.
    pub stdin: Option<Digest>,
    /// The programs that would start.
    pub programs: Vec<BoundProgram>,
    /// The files that would be executed by their names, in the order of their paths.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<BoundFile>,
    /// The trees that the command can read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trees: Vec<BoundTree>,
    /// The rights.
    pub grant: super::Grant,
    /// The credentials that are added to what it sends.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialGrant>,
    /// The policy.
    pub policy: Digest,
}

impl Binding {
    /// Binds an approval to what `decision` is about. `hash_file` gives the
    /// digest of a program file, [`Digest::of_reader`] on the opened file in
    /// production.
    ///
    /// # Errors
    /// Whatever `hash_file` fails with: a program that cannot be read cannot
    /// be approved.
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
            env: env.vars.iter().map(|(name, value)| (name.clone(), Digest::of(value.as_bytes()))).collect(),
            stdin,
            programs,
            files: Vec::new(),
            trees: Vec::new(),
            grant: decision.grant.clone(),
            credentials: Vec::new(),
            policy: decision.policy,
        })
    }

    /// Binds the approval to these files as well.
    #[must_use]
    pub fn with_files(mut self, mut files: Vec<BoundFile>) -> Self {
        files.sort();
        self.files = files;
        self
    }

    /// Binds the approval to these trees as well.
    #[must_use]
    pub fn with_trees(self, trees: Vec<BoundTree>) -> Self {
        Self { trees, ..self }
    }

    /// Binds the approval to these credentials as well.
    #[must_use]
    pub fn with_credentials(self, credentials: Vec<CredentialGrant>) -> Self {
        Self { credentials, ..self }
    }

    /// The name of the binding: BLAKE3 of its RFC 8785 JSON.
    ///
    /// # Errors
    /// Never in practice: every part has a JSON form.
    pub fn digest(&self) -> serde_json::Result<Digest> {
        Digest::of_json(self)
    }

    /// The parts in which another binding differs, in words for a person.
    /// Empty exactly when the approval still holds.
    #[must_use]
    pub fn differences(&self, now: &Self) -> Vec<String> {
        let mut out = Vec::new();
        let mut part = |same: bool, what: &str| {
            if !same {
                out.push(what.to_owned());
            }
        };
        part(self.proposal == now.proposal, "the command");
        part(self.shell == now.shell, "the shell");
        part(self.cwd == now.cwd, "the working directory");
        part(self.stdin == now.stdin, "the data on standard input");
        part(self.grant == now.grant, "the rights");
        part(self.credentials == now.credentials, "the credentials");
        part(self.policy == now.policy, "the policy");
        for name in self.env.keys().chain(now.env.keys().filter(|n| !self.env.contains_key(*n))) {
            part(self.env.get(name) == now.env.get(name), &format!("the variable {name}"));
        }
        for program in &self.programs {
            let same = now.programs.contains(program);
            part(same, &format!("the program {}", program.path));
        }
        for program in &now.programs {
            let known = self.programs.iter().any(|before| before.path == program.path);
            part(known, &format!("the program {}", program.path));
        }
        out.extend(changed_files(&self.files, &now.files));
        for tree in self.trees.iter().chain(now.trees.iter().filter(|tree| !self.trees.contains(tree))) {
            if !(self.trees.contains(tree) && now.trees.contains(tree)) {
                out.push(format!("what is in {}", tree.path));
            }
        }
        out.dedup();
        out
    }
}

/// True for the name of a shell or interpreter, whose first operand is a script.
#[must_use]
pub fn runs_scripts(name: &str) -> bool {
    is_shell(name) || is_interpreter(name)
}

impl Policy {
    /// True if only the system's administrator changes what is at this real path: the place of trusted programs
    /// and of the system's own files.
    #[must_use]
    pub fn is_system_file(&self, path: &str, roots: &Roots) -> bool {
        let trusted = self.programs().trusted_dirs.iter().map(String::as_str);
        let mut system = trusted.chain(SYSTEM_READ_ONLY.iter().copied()).chain(["/dev", "/run"]);
        system.any(|directory| is_under(path, directory)) && !roots.is_writable(path)
    }
}

/// The files that are not what they were, each with what happened to it.
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

    fn binding(text: &str, env: &DecisionEnv, content: &[u8]) -> Binding {
        let policy = Policy::load("version = 1\n", "p.toml").unwrap();
        let proposal = Proposal::shell(text);
        let decision = policy.decide(&proposal, env);
        Binding::new(&proposal, &decision, env, None, |_| Ok(Digest::of(content))).unwrap()
    }

    #[test]
    fn any_difference_is_named() {
        let mut env = DecisionEnv::fixture();
        let before = binding("touch a", &env, b"v1");
        assert_eq!(before.differences(&binding("touch a", &env, b"v1")), Vec::<String>::new());
        assert_eq!(before.digest().unwrap(), binding("touch a", &env, b"v1").digest().unwrap());
        assert_eq!(before.differences(&binding("touch b", &env, b"v1")), ["the command"]);
        let replaced = binding("touch a", &env, b"v2");
        assert_eq!(before.differences(&replaced), ["the program /usr/bin/touch"]);
        assert_ne!(before.digest().unwrap(), replaced.digest().unwrap());
        let dash = DecisionEnv::fixture().with_shell(Shell::example(Dialect::Dash));
        let elsewhere = binding("touch a", &dash, b"v1");
        assert_eq!(before.differences(&elsewhere), ["the shell"]);
        assert_ne!(before.digest().unwrap(), elsewhere.digest().unwrap());
        env.vars.insert("LANG".to_owned(), "C".to_owned());
        env.vars.insert("NEW".to_owned(), String::new());
        assert_eq!(
            before.differences(&binding("touch a", &env, b"v1")),
            ["the variable LANG", "the variable NEW"]
        );
    }

    #[test]
    fn a_changed_file_is_named() {
        let file = |path: &str, content: &[u8]| BoundFile {
            path: path.to_owned(),
            target: None,
            digest: Digest::of(content),
            bytes: content.len() as u64,
            compared: false,
        };
        let env = DecisionEnv::fixture();
        let with = |files: Vec<BoundFile>| binding("touch a", &env, b"v1").with_files(files);
        let before = with(vec![file("/w/b", b"1"), file("/w/a", b"1")]);
        assert_eq!(
            before.digest().unwrap(),
            with(vec![file("/w/a", b"1"), file("/w/b", b"1")]).digest().unwrap()
        );
        let now = with(vec![file("/w/a", b"2"), file("/w/c", b"1")]);
        assert_ne!(before.digest().unwrap(), now.digest().unwrap());
        let (was, is) = (Digest::of(b"1").short(), Digest::of(b"2").short());
        assert_eq!(
            before.differences(&now),
            [
                format!("the file /w/a (content {was}, now {is})"),
                "the file /w/b (it is gone)".to_owned(),
                "the file /w/c (it is new)".to_owned(),
            ]
        );
        // Without files the digest is the one that earlier versions made.
        assert!(!serde_json::to_string(&with(Vec::new())).unwrap().contains("files"));
    }

    #[test]
    fn values_of_variables_do_not_appear() {
        let mut env = DecisionEnv::fixture();
        env.vars.insert("TOKEN".to_owned(), "hunter2".to_owned());
        let shown = serde_json::to_string(&binding("touch a", &env, b"")).unwrap();
        assert!(shown.contains("TOKEN") && !shown.contains("hunter2"), "{shown}");
    }
}
