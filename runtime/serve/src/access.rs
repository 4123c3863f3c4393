//! Access control: roles, their rights, and the secrets that identify callers.
//!
//! [`is_allowed`] is called for every route and is independent of all routes. The right to answer a question is narrower
//! still: the workflow defines it, and it is checked when the answer is given.

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

/// The role of a caller. Each role includes the rights of those before it.
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
    /// All roles, in ascending order.
    pub const ALL: [Self; 5] = [Self::Viewer, Self::Approver, Self::Operator, Self::Author, Self::Admin];

    /// The name of the role.
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
        known.ok_or_else(|| format!("{text:?} is not a role: viewer, approver, operator, author or admin"))
    }
}

/// A kind of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Read,
    Answer,
    /// Start, cancel, pause, backfill.
    Operate,
    /// Use the Model Context Protocol. Only agents may do that; their tokens distinguish them from people.
    Converse,
    Register,
    Administer,
}

impl Verb {
    /// The lowest role with this right.
    #[must_use]
    pub fn required_role(self) -> Role {
        match self {
            Self::Read | Self::Converse => Role::Viewer,
            Self::Answer => Role::Approver,
            Self::Operate => Role::Operator,
            Self::Register => Role::Author,
            Self::Administer => Role::Admin,
        }
    }
}

/// The target of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object<'o> {
    /// A list in which each caller sees only their own entries.
    List,
    /// A workflow and everything that belongs to it.
    Workflow(&'o str),
    /// Things that belong to no registered workflow or to all of them.
    Everything,
}

/// A caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// The caller's name in the history.
    pub name: String,
    pub role: Role,
    /// The workflows that the caller may access; none: all.
    pub scope: Option<Vec<String>>,
    /// Id of the caller's credential.
    pub credential: String,
    pub kind: CredentialKind,
    /// Login time of a person's session, in milliseconds since 1970; none for programs, and for callers named by a
    /// proxy.
    pub logged_in_at: Option<i64>,
}

/// True if the actor may do this. An agent never answers questions or grants rights, whatever its role, and only agents
/// may use the agent protocol.
#[must_use]
pub fn is_allowed(actor: &Actor, verb: Verb, object: Object<'_>) -> bool {
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
    is_of_kind && in_scope && actor.role >= verb.required_role()
}

/// Length of a secret in bytes.
const SECRET: usize = 32;

/// Prefix of the service's secrets, which makes leaked ones easy to find.
const PREFIX: &str = "lob_";

/// Makes a new secret, to be shown only to its owner.
///
/// # Errors
/// Fails if the system provides no randomness.
pub fn make_secret() -> Result<String, String> {
    let mut bytes = [0; SECRET];
    getrandom::fill(&mut bytes).map_err(|error| format!("no secret can be made: {error}"))?;
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

/// Makes a short id for a credential.
pub(crate) fn make_id(kind: CredentialKind) -> Result<String, String> {
    let mut bytes = [0; 5];
    getrandom::fill(&mut bytes).map_err(|error| format!("no name can be made: {error}"))?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{kind}-{hex}"))
}

/// Returns the digest by which the store knows a secret. The time of comparing digests does not reveal how much of a
/// guess was right, and secrets have too many bits for guessing.
#[must_use]
pub fn hash_of(secret: &str) -> Digest {
    Digest::of_bytes(secret.trim().as_bytes())
}

/// A credential to be created.
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
    /// Checks that the kind of credential may have this role.
    ///
    /// # Errors
    /// Returns the roles that are possible.
    pub fn check_role(&self) -> Result<(), String> {
        match (self.kind, self.role) {
            (CredentialKind::Agent, Role::Approver | Role::Author | Role::Admin) => Err(format!(
                "an agent cannot be {}: it reads as a viewer, or starts runs as an operator, and cannot answer questions",
                self.role
            )),
            _ => Ok(()),
        }
    }
}

/// Stores a new credential and returns its id and its secret.
///
/// # Errors
/// Fails if the credential cannot be made or stored.
pub fn grant_credential(
    service: &Service,
    grant: &Grant,
    by: Option<&str>,
    origin: &str,
) -> Result<(String, String), String> {
    grant.check_role()?;
    let secret = make_secret()?;
    let new = new_credential(grant, &secret)?;
    service.add_credential(&new, by, origin).map_err(|error| error.to_string())?;
    Ok((new.id, secret))
}

/// Builds a credential for a secret.
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

/// The role of a voucher, which no caller has.
const VOUCHER: &str = "voucher";

/// Validity of a voucher.
const VOUCHER_MS: i64 = 120_000;

/// The digest by which a voucher is known. It is valid for one question in the version that was shown.
fn hash_of_voucher(secret: &str, gate: &Gate) -> Digest {
    hash_of(&format!("{} {} {}", secret.trim(), gate.id, gate.binding))
}

/// Makes a secret with which another process may answer a question once, in the name of the owner of this credential.
///
/// # Errors
/// Fails if the secret cannot be made or stored.
pub fn issue_voucher(
    service: &Service,
    gate: &Gate,
    (name, credential): (&str, &str),
) -> Result<String, String> {
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

/// Returns the author of an answer to a question, if the secret proves one: a voucher for the question, or the token of
/// a person who may answer questions of this workflow.
///
/// # Errors
/// Fails if the store cannot be read.
pub fn author_by_secret(service: &Service, secret: &str, gate: &Gate) -> Result<Option<Author>, StoreError> {
    let voucher = service.find_credential(&hash_of_voucher(secret, gate))?;
    if let Some(voucher) = voucher.filter(|one| one.kind == CredentialKind::Reply && one.role == VOUCHER) {
        let credential = voucher.made_by.unwrap_or_default();
        return Ok(Some(Author::of_credential(&credential, &voucher.name)));
    }
    let Some(actor) = actor_of(service, secret, &[CredentialKind::Token])? else { return Ok(None) };
    let start = service.start_of(gate.run)?;
    let workflow = start.map(|start| service.workflow_by_number(start.workflow)).transpose()?.flatten();
    let object = workflow.as_ref().map_or(Object::Everything, |workflow| Object::Workflow(&workflow.name));
    let may = is_allowed(&actor, Verb::Answer, object);
    Ok(may.then(|| Author::of_credential(&actor.credential, &actor.name)))
}

/// Returns the owner of a secret, if the secret is valid and of one of these kinds.
///
/// # Errors
/// Fails if the store cannot be read.
pub fn actor_of(
    service: &Service,
    secret: &str,
    kinds: &[CredentialKind],
) -> Result<Option<Actor>, StoreError> {
    let found = service.find_credential(&hash_of(secret))?.filter(|one| kinds.contains(&one.kind));
    Ok(found.and_then(actor_from_credential))
}

/// Returns the actor of a credential, or `None` if this version does not know its role.
fn actor_from_credential(found: Credential) -> Option<Actor> {
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

    fn sample_actor(role: Role, scope: Option<&[&str]>) -> Actor {
        let scope = scope.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        let (name, credential) = ("ann".to_owned(), "token-1".to_owned());
        Actor { name, role, scope, credential, kind: CredentialKind::Token, logged_in_at: None }
    }

    #[test]
    fn each_role_may_what_those_before_it_may() {
        let verbs = [Verb::Read, Verb::Answer, Verb::Operate, Verb::Register, Verb::Administer];
        for (at, role) in Role::ALL.into_iter().enumerate() {
            let may: Vec<bool> = verbs
                .iter()
                .map(|verb| is_allowed(&sample_actor(role, None), *verb, Object::Everything))
                .collect();
            assert_eq!(may, (0..5).map(|verb| verb <= at).collect::<Vec<_>>(), "{role}");
            assert_eq!(role.as_str().parse(), Ok(role));
        }
        assert!("root".parse::<Role>().is_err());
    }

    #[test]
    fn an_agent_reads_and_starts_whatever_its_role_and_nobody_else_converses() {
        for role in Role::ALL {
            let agent = Actor { kind: CredentialKind::Agent, ..sample_actor(role, None) };
            let may = |verb| is_allowed(&agent, verb, Object::Everything);
            assert!(may(Verb::Read) && may(Verb::Converse));
            assert_eq!(may(Verb::Operate), role >= Role::Operator);
            assert!(!may(Verb::Answer) && !may(Verb::Register) && !may(Verb::Administer), "{role}");
            for kind in [CredentialKind::Token, CredentialKind::Session, CredentialKind::Link] {
                assert!(
                    !is_allowed(&Actor { kind, ..sample_actor(role, None) }, Verb::Converse, Object::List),
                    "{role}"
                );
            }
            let grant = Grant {
                kind: CredentialKind::Agent,
                name: "coder".to_owned(),
                role,
                scope: None,
                expires_at: None,
            };
            assert_eq!(grant.check_role().is_ok(), matches!(role, Role::Viewer | Role::Operator), "{role}");
        }
    }

    #[test]
    fn whoever_answers_by_a_button_does_nothing_else() {
        for role in Role::ALL {
            let reply = Actor { kind: CredentialKind::Reply, ..sample_actor(role, Some(&["report"])) };
            let may = |verb| is_allowed(&reply, verb, Object::Workflow("report"));
            assert_eq!(may(Verb::Answer), role >= Role::Approver);
            assert!(!is_allowed(&reply, Verb::Answer, Object::Workflow("other")));
            for verb in [Verb::Read, Verb::Operate, Verb::Converse, Verb::Register, Verb::Administer] {
                assert!(!may(verb), "{role}");
            }
        }
    }

    #[test]
    fn a_scope_ends_at_its_workflows() {
        let scoped = sample_actor(Role::Admin, Some(&["report"]));
        assert!(is_allowed(&scoped, Verb::Operate, Object::Workflow("report")));
        assert!(!is_allowed(&scoped, Verb::Read, Object::Workflow("reports")));
        assert!(is_allowed(&scoped, Verb::Read, Object::List));
        assert!(!is_allowed(&scoped, Verb::Administer, Object::Everything));
        assert!(!is_allowed(&sample_actor(Role::Admin, Some(&[])), Verb::Read, Object::Workflow("report")));
    }

    #[test]
    fn secrets_are_long_and_differ() {
        let (one, other) = (make_secret().unwrap(), make_secret().unwrap());
        assert!(one != other && one.len() == 4 + 43 && one.starts_with("lob_"));
        assert_eq!(hash_of(&format!(" {one}\n")), hash_of(&one));
    }
}
