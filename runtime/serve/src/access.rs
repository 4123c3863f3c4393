//! Who may do what: roles, what each may, and the secrets by which callers are known.
//!
//! [`can`] is asked for every route and knows nothing of any of them. Who may answer a question is
//! narrower still: that stands in the workflow and is checked when the answer is given.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lobster_runtime::digest::Digest;
use lobster_runtime::engine::Author;
use lobster_runtime::store::Gate;
use lobster_runtime::store::StoreError;
use lobster_runtime::store::service::{Credential, CredentialKind, NewCredential, Service};
use serde::Deserialize;

/// What a caller is to the service. Each may what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Reads runs, questions and schedules.
    Viewer,
    /// Answers questions.
    Approver,
    /// Starts, cancels and pauses.
    Operator,
    /// Registers workflows: decides what runs.
    Author,
    /// Gives access to others.
    Admin,
}

impl Role {
    /// All of them, the least first.
    pub const ALL: [Self; 5] = [Self::Viewer, Self::Approver, Self::Operator, Self::Author, Self::Admin];

    /// Its one spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Approver => "approver",
            Self::Operator => "operator",
            Self::Author => "author",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Role {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|role| role.as_str() == text);
        known.ok_or_else(|| format!("{text:?} is no role: viewer, approver, operator, author or admin"))
    }
}

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Read,
    Answer,
    /// Start, cancel, pause, make up for.
    Operate,
    /// Speak the Model Context Protocol. That is for agents, which are told apart from people by their tokens.
    Converse,
    Register,
    Administer,
}

impl Verb {
    /// The least role that may.
    #[must_use]
    pub fn needs(self) -> Role {
        match self {
            Self::Read | Self::Converse => Role::Viewer,
            Self::Answer => Role::Approver,
            Self::Operate => Role::Operator,
            Self::Register => Role::Author,
            Self::Administer => Role::Admin,
        }
    }
}

/// What it would be done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object<'o> {
    /// A list of which each caller sees what is theirs.
    List,
    /// A workflow, and whatever belongs to it.
    Workflow(&'o str),
    /// What belongs to no registered workflow, or to all of them.
    Everything,
}

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// What the history calls them.
    pub name: String,
    pub role: Role,
    /// The workflows that they have to do with; none: all.
    pub scope: Option<Vec<String>>,
    /// By which they are known.
    pub credential: String,
    pub kind: CredentialKind,
    /// When a person has logged in here, in milliseconds since 1970; none for programs, and for whom a proxy names.
    pub logged_in_at: Option<i64>,
}

/// Whether somebody may do something. An agent never answers a question and never gives rights, whatever
/// its role is, and nobody else is taken for one.
#[must_use]
pub fn can(actor: &Actor, verb: Verb, object: Object<'_>) -> bool {
    let is_of_kind = match (verb, actor.kind) {
        (Verb::Converse, kind) => kind == CredentialKind::Agent,
        (Verb::Answer, kind) => kind != CredentialKind::Agent,
        (_, CredentialKind::Reply | CredentialKind::Passkey) => false,
        (Verb::Register | Verb::Administer, kind) => kind != CredentialKind::Agent,
        (Verb::Read | Verb::Operate, _) => true,
    };
    let in_scope = match (&actor.scope, object) {
        (None, _) | (Some(_), Object::List) => true,
        (Some(scope), Object::Workflow(name)) => scope.iter().any(|one| one == name),
        (Some(_), Object::Everything) => false,
    };
    is_of_kind && in_scope && actor.role >= verb.needs()
}

/// Bytes of a secret.
const SECRET: usize = 32;

/// What secrets of the service begin with, so that they are found where they should not be.
const PREFIX: &str = "lob_";

/// A new secret, for its owner's eyes alone.
///
/// # Errors
/// When the system has no randomness.
pub fn make_secret() -> Result<String, String> {
    let mut bytes = [0; SECRET];
    getrandom::fill(&mut bytes).map_err(|error| format!("no secret can be made: {error}"))?;
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

/// A short name for a credential.
pub(crate) fn make_id(kind: CredentialKind) -> Result<String, String> {
    let mut bytes = [0; 5];
    getrandom::fill(&mut bytes).map_err(|error| format!("no name can be made: {error}"))?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{kind}-{hex}"))
}

/// By which the store knows a secret. Comparing digests tells nothing about how much of a guess was
/// right, and secrets have too many bits to be tried.
#[must_use]
pub fn hash_of(secret: &str) -> Digest {
    Digest::of(secret.trim().as_bytes())
}

/// A credential that is to be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub kind: CredentialKind,
    pub name: String,
    pub role: Role,
    pub scope: Option<Vec<String>>,
    /// In milliseconds since 1970.
    pub expires_at: Option<i64>,
}

impl Grant {
    /// Whether it gives what its kind can have.
    ///
    /// # Errors
    /// What it may be instead.
    pub fn check(&self) -> Result<(), String> {
        match (self.kind, self.role) {
            (CredentialKind::Agent, Role::Approver | Role::Author | Role::Admin) => Err(format!(
                "an agent cannot be {}: it reads as a viewer, or starts runs as an operator, and answers nothing",
                self.role
            )),
            _ => Ok(()),
        }
    }
}

/// Keeps a new credential, and gives its id and its secret.
///
/// # Errors
/// When it cannot be made or kept.
pub fn grant(
    service: &Service,
    grant: &Grant,
    by: Option<&str>,
    origin: &str,
) -> Result<(String, String), String> {
    grant.check()?;
    let secret = make_secret()?;
    let new = new_credential(grant, &secret)?;
    service.add_credential(&new, by, origin).map_err(|error| error.to_string())?;
    Ok((new.id, secret))
}

/// A credential for a secret.
pub(crate) fn new_credential(grant: &Grant, secret: &str) -> Result<NewCredential, String> {
    Ok(NewCredential {
        id: make_id(grant.kind)?,
        kind: grant.kind,
        hash: hash_of(secret),
        name: grant.name.clone(),
        role: grant.role.as_str().to_owned(),
        scope: grant.scope.clone(),
        expires_at: grant.expires_at,
    })
}

/// The role of a voucher: it is none of those that callers have.
const VOUCHER: &str = "voucher";

/// How long a voucher may be used.
const VOUCHER_MS: i64 = 120_000;

/// What a voucher is known by: it fits one question, as it was shown.
fn hash_of_voucher(secret: &str, gate: &Gate) -> Digest {
    hash_of(&format!("{} {} {}", secret.trim(), gate.id, gate.binding))
}

/// A secret with which another process may answer a question once, in the name of somebody with this credential.
///
/// # Errors
/// When it cannot be made or kept.
pub fn vouch(service: &Service, gate: &Gate, (name, credential): (&str, &str)) -> Result<String, String> {
    let secret = make_secret()?;
    let new = NewCredential {
        id: make_id(CredentialKind::Reply)?,
        kind: CredentialKind::Reply,
        hash: hash_of_voucher(&secret, gate),
        name: name.to_owned(),
        role: VOUCHER.to_owned(),
        scope: None,
        expires_at: Some(service.store().clock_ms() + VOUCHER_MS),
    };
    service.add_voucher(&new, credential).map_err(|error| error.to_string())?;
    Ok(secret)
}

/// The author of an answer to a question, if the secret proves one: a voucher for it, or the token of somebody who
/// may answer questions of this workflow.
///
/// # Errors
/// When the store cannot be read.
pub fn author_by_secret(service: &Service, secret: &str, gate: &Gate) -> Result<Option<Author>, StoreError> {
    let voucher = service.credential(&hash_of_voucher(secret, gate))?;
    if let Some(voucher) = voucher.filter(|one| one.kind == CredentialKind::Reply && one.role == VOUCHER) {
        let credential = voucher.made_by.unwrap_or_default();
        return Ok(Some(Author::of_credential(&credential, &voucher.name)));
    }
    let Some(actor) = actor_of(service, secret, &[CredentialKind::Token])? else { return Ok(None) };
    let start = service.start_of(gate.run)?;
    let workflow = start.map(|start| service.workflow_by_number(start.workflow)).transpose()?.flatten();
    let object = workflow.as_ref().map_or(Object::Everything, |workflow| Object::Workflow(&workflow.name));
    let may = can(&actor, Verb::Answer, object);
    Ok(may.then(|| Author::of_credential(&actor.credential, &actor.name)))
}

/// Who brings a secret, if it counts and is of one of these kinds.
///
/// # Errors
/// When the store cannot be read.
pub fn actor_of(
    service: &Service,
    secret: &str,
    kinds: &[CredentialKind],
) -> Result<Option<Actor>, StoreError> {
    let found = service.credential(&hash_of(secret))?.filter(|one| kinds.contains(&one.kind));
    Ok(found.and_then(actor))
}

/// The actor of a credential; none if its role is none that this version knows.
fn actor(found: Credential) -> Option<Actor> {
    let role = found.role.parse().ok()?;
    Some(Actor {
        name: found.name,
        role,
        scope: found.scope,
        credential: found.id,
        kind: found.kind,
        logged_in_at: (found.kind == CredentialKind::Session).then_some(found.made_at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actor(role: Role, scope: Option<&[&str]>) -> Actor {
        let scope = scope.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        let (name, credential) = ("ann".to_owned(), "token-1".to_owned());
        Actor { name, role, scope, credential, kind: CredentialKind::Token, logged_in_at: None }
    }

    #[test]
    fn each_role_may_what_those_before_it_may() {
        let verbs = [Verb::Read, Verb::Answer, Verb::Operate, Verb::Register, Verb::Administer];
        for (at, role) in Role::ALL.into_iter().enumerate() {
            let may: Vec<bool> =
                verbs.iter().map(|verb| can(&actor(role, None), *verb, Object::Everything)).collect();
            assert_eq!(may, (0..5).map(|verb| verb <= at).collect::<Vec<_>>(), "{role}");
            assert_eq!(role.as_str().parse(), Ok(role));
        }
        assert!("root".parse::<Role>().is_err());
    }

    #[test]
    fn an_agent_reads_and_starts_whatever_its_role_and_nobody_else_converses() {
        for role in Role::ALL {
            let agent = Actor { kind: CredentialKind::Agent, ..actor(role, None) };
            let may = |verb| can(&agent, verb, Object::Everything);
            assert!(may(Verb::Read) && may(Verb::Converse));
            assert_eq!(may(Verb::Operate), role >= Role::Operator);
            assert!(!may(Verb::Answer) && !may(Verb::Register) && !may(Verb::Administer), "{role}");
            for kind in [CredentialKind::Token, CredentialKind::Session, CredentialKind::Link] {
                assert!(!can(&Actor { kind, ..actor(role, None) }, Verb::Converse, Object::List), "{role}");
            }
            let grant = Grant {
                kind: CredentialKind::Agent,
                name: "coder".to_owned(),
                role,
                scope: None,
                expires_at: None,
            };
            assert_eq!(grant.check().is_ok(), matches!(role, Role::Viewer | Role::Operator), "{role}");
        }
    }

    #[test]
    fn whoever_answers_by_a_button_does_nothing_else() {
        for role in Role::ALL {
            let reply = Actor { kind: CredentialKind::Reply, ..actor(role, Some(&["report"])) };
            let may = |verb| can(&reply, verb, Object::Workflow("report"));
            assert_eq!(may(Verb::Answer), role >= Role::Approver);
            assert!(!can(&reply, Verb::Answer, Object::Workflow("other")));
            for verb in [Verb::Read, Verb::Operate, Verb::Converse, Verb::Register, Verb::Administer] {
                assert!(!may(verb), "{role}");
            }
        }
    }

    #[test]
    fn a_scope_ends_at_its_workflows() {
        let scoped = actor(Role::Admin, Some(&["report"]));
        assert!(can(&scoped, Verb::Operate, Object::Workflow("report")));
        assert!(!can(&scoped, Verb::Read, Object::Workflow("reports")));
        assert!(can(&scoped, Verb::Read, Object::List));
        assert!(!can(&scoped, Verb::Administer, Object::Everything));
        assert!(!can(&actor(Role::Admin, Some(&[])), Verb::Read, Object::Workflow("report")));
    }

    #[test]
    fn secrets_are_long_and_differ() {
        let (one, other) = (make_secret().unwrap(), make_secret().unwrap());
        assert!(one != other && one.len() == 4 + 43 && one.starts_with("lob_"));
        assert_eq!(hash_of(&format!(" {one}\n")), hash_of(&one));
    }
}
