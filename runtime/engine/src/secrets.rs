//! Secrets: the operator says where a value is, a step is granted it by name,
//! and nothing that lobster writes or prints shows it (invariant S5).
//!
//! Values live in memory only. Plans, actions and journals hold names and
//! references; the value enters the environment of a granted step when that
//! step starts, and nowhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use crate::env::Env;
use crate::own_tokens;
use lobster_base::cancel::CancelToken;
use lobster_base::credential::{CredentialGrant, CredentialHost, NotForHeaders};
use lobster_language::condition::Condition;
use lobster_language::plan::{Plan, SecretGrant, Workflow};
use lobster_policy::{Policy, SecretOrigin, SecretReference};
use lobster_sandbox::{
    Confinement, Ended, ExitStatus, OutputSinks, ProcessLimits, Sandbox, SpawnRequest, Stdin,
};
use lobster_store::Redactions;

/// A credential is small; a file or output of this size is something else.
const MAX_VALUE: u64 = 64 << 10;
/// A password manager that takes longer waits for somebody who is not there.
const COMMAND_TIME: Duration = Duration::from_secs(30);
/// What replaces the value must not be found everywhere.
const SHORTEST: usize = 4;

/// Why a step cannot have a secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretError {
    #[error(
        "secret {0}: nothing says where it comes from; add [secrets.{0}] with env, file or command to {1}"
    )]
    Unknown(String, String),
    #[error(
        "secret {0}: the policy does not let steps receive it; add it to `secrets` under [sandbox.env] of the policy"
    )]
    Forbidden(String),
    #[error("secret {0}: it cannot be given as {1}, a variable that decides which code runs")]
    Variable(String, String),
    #[error("secret {0}: environment variable {1} is not set")]
    Unset(String, String),
    #[error("secret {0}: cannot read {path}: {source}", path = .1.display(), source = .2)]
    File(String, PathBuf, io::Error),
    #[error("secret {0}: {1} has more than {MAX_VALUE} bytes")]
    TooLarge(String, String),
    #[error("secret {0}: {1} is not UTF-8 text without NUL")]
    NotText(String, String),
    #[error("secret {0}: {1} is empty")]
    Empty(String, String),
    #[error("secret {0}: {1} has fewer than {SHORTEST} bytes, too few to be kept out of records")]
    TooShort(String, String),
    #[error("secret {0}: {1} {2}; run it by hand to see why")]
    Command(String, String, String),
    #[error(
        "secret {0}: it is only added to what steps send to {1}, and no step receives it; use `credentials:` in place of `secrets:`"
    )]
    Bound(String, String),
    #[error("secret {0}: the operator lets it go to {2}, not to {1}")]
    OtherHost(String, String, String),
    #[error("secret {0}: it cannot be sent to {1}: {2}")]
    Unsendable(String, String, NotForHeaders),
    #[error(
        "{place} the value of {mark}; grant the secret to the step (`secrets:`) and use its variable instead"
    )]
    InClear { place: &'static str, mark: String },
}

/// A secret by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NamedSecret {
    /// As workflows name it.
    pub name: String,
    /// Where its value comes from.
    pub from: String,
    /// The only hosts that it may be sent to; no step receives it then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Whether the policy lets steps receive it, or use it for these hosts.
    #[serde(rename = "allowed")]
    pub is_allowed: bool,
}

/// What the operator has named, and the values that were needed so far.
pub struct Secrets {
    references: BTreeMap<String, SecretReference>,
    /// Under a policy file, the names that steps may receive.
    allowed: Option<Vec<String>>,
    home: PathBuf,
    /// Where an operator would add a reference.
    place: String,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    values: BTreeMap<String, Arc<str>>,
    /// All that is hidden.
    redactions: Redactions,
    /// Of that the secrets: no plan and no command may hold them in clear. Lobster's own tokens
    /// may stand there, as `--token` does with the incumbent.
    secrets: Redactions,
}

impl Known {
    fn hide(&mut self, name: &str, value: &str) {
        let _ = self.redactions.add(name, value);
        let _ = self.secrets.add(name, value);
    }
}

/// Names only.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").field("references", &self.references).finish_non_exhaustive()
    }
}

impl Secrets {
    /// The secrets that the operator's file and the policy name; the policy wins. The values of
    /// lobster's own `tokens` are hidden as well.
    pub(crate) fn new(
        mut references: BTreeMap<String, SecretReference>,
        place: String,
        policy: &Policy,
        env: &Env,
        tokens: &BTreeSet<String>,
    ) -> Self {
        references.extend(policy.file().secrets.clone());
        let mut known = Known::default();
        for (name, reference) in &references {
            // What lobster holds already is hidden also where nobody was granted it.
            if let SecretOrigin::Env(variable) = &reference.origin
                && let Some(value) = env.get(variable)
            {
                known.hide(name, &value);
            }
        }
        for name in tokens {
            for value in env.get(name).into_iter().flat_map(|value| own_tokens::hidden(name, &value)) {
                let _ = known.redactions.add(name, &value);
            }
        }
        Self {
            references,
            allowed: (!policy.is_open()).then(|| policy.file().sandbox.env.secrets.clone()),
            home: env.get("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from),
            place,
            known: Mutex::new(known),
        }
    }

    /// The variables of lobster's own environment that hold secrets: no step inherits them.
    pub(crate) fn withheld(&self) -> BTreeSet<OsString> {
        self.references
            .values()
            .filter_map(|reference| match &reference.origin {
                SecretOrigin::Env(name) => Some(OsString::from(name)),
                SecretOrigin::File(_) | SecretOrigin::Command(_) => None,
            })
            .collect()
    }

    /// What is to be hidden, as far as it is known.
    pub(crate) fn redactions(&self) -> Redactions {
        self.known().redactions.clone()
    }

    /// Whether there is nothing to hide yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.known().redactions.is_empty()
    }

    /// Finds the value of each granted secret, before anything runs.
    pub(crate) fn learn<'g>(
        &self,
        grants: impl IntoIterator<Item = &'g SecretGrant>,
        reader: &Reader<'_>,
    ) -> Result<(), SecretError> {
        for grant in grants {
            if Policy::is_protected_variable(&grant.variable) && !own_tokens::is_of_a_model(&grant.variable) {
                return Err(SecretError::Variable(grant.secret.clone(), grant.variable.clone()));
            }
            if let Some(hosts) = self.bound_to(&grant.secret) {
                return Err(SecretError::Bound(grant.secret.clone(), named_hosts(hosts)));
            }
            self.value(&grant.secret, reader)?;
        }
        Ok(())
    }

    /// Finds the values that are added to what steps send, and refuses those that may not go there.
    pub(crate) fn learn_credentials<'g>(
        &self,
        grants: impl IntoIterator<Item = &'g CredentialGrant>,
        reader: &Reader<'_>,
    ) -> Result<(), SecretError> {
        for grant in grants {
            let (secret, host) = (&grant.secret, &grant.host);
            if let Some(hosts) = self.bound_to(secret).filter(|hosts| !hosts.contains(host)) {
                return Err(SecretError::OtherHost(secret.clone(), host.to_string(), named_hosts(hosts)));
            }
            let value = self.value(secret, reader)?;
            grant
                .header_value(&value)
                .map_err(|error| SecretError::Unsendable(secret.clone(), host.to_string(), error))?;
        }
        Ok(())
    }

    /// The only hosts that a secret may be sent to, where the operator has named any.
    pub(crate) fn bound_to(&self, secret: &str) -> Option<&[CredentialHost]> {
        let hosts = self.references.get(secret).map(|reference| reference.hosts.as_slice());
        hosts.filter(|hosts| !hosts.is_empty())
    }

    /// Refuses a plan or arguments that hold a value in clear: it would be recorded.
    pub(crate) fn check_clear(&self, place: &'static str, text: &str) -> Result<(), SecretError> {
        match self.known().secrets.first_in(text) {
            Some(mark) => Err(SecretError::InClear { place, mark: mark.to_owned() }),
            None => Ok(()),
        }
    }

    /// What the operator has named, without values.
    pub(crate) fn named_secrets(&self) -> Vec<NamedSecret> {
        let named = |(name, reference): (&String, &SecretReference)| NamedSecret {
            name: name.clone(),
            from: reference.describe(),
            hosts: reference.hosts.iter().map(ToString::to_string).collect(),
            is_allowed: !reference.is_for_steps()
                || self.allowed.as_ref().is_none_or(|allowed| allowed.contains(name)),
        };
        self.references.iter().map(named).collect()
    }

    /// The file in which an operator names secrets.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// Finds the value of one and says no more than whether there is one.
    pub(crate) fn find(&self, name: &str, reader: &Reader<'_>) -> Result<(), SecretError> {
        self.value(name, reader).map(drop)
    }

    /// The variables of a step with their values.
    pub(crate) fn variables(
        &self,
        grants: &BTreeMap<String, String>,
        reader: &Reader<'_>,
    ) -> Result<Vec<(String, String)>, SecretError> {
        grants
            .iter()
            .map(|(variable, secret)| Ok((variable.clone(), self.value(secret, reader)?.to_string())))
            .collect()
    }

    /// What an action holds instead of the values. Where they come from is the
    /// operator's: of a `recorded` action, whoever recorded it.
    pub(crate) fn named(&self, grants: &BTreeMap<String, String>, recorded: Option<&Value>) -> Value {
        grants
            .iter()
            .map(|(variable, secret)| {
                let from = match recorded {
                    Some(recorded) => recorded[variable]["from"].clone(),
                    None => json!(self.references.get(secret).map(SecretReference::describe)),
                };
                (variable.clone(), json!({ "secret": secret, "from": from }))
            })
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    /// Keeps a token of lobster's own out of what is stored and shown.
    pub(crate) fn hide(&self, name: &str, token: &str) {
        let _ = self.known().redactions.add(name, token);
    }

    /// The value, if it was needed before.
    pub(crate) fn known_value(&self, name: &str) -> Option<String> {
        self.known().values.get(name).map(|value| value.to_string())
    }

    fn value(&self, name: &str, reader: &Reader<'_>) -> Result<Arc<str>, SecretError> {
        if let Some(value) = self.known().values.get(name) {
            return Ok(Arc::clone(value));
        }
        let reference = self
            .references
            .get(name)
            .ok_or_else(|| SecretError::Unknown(name.to_owned(), self.place.clone()))?;
        // What no step receives needs no leave to be received.
        let is_listed =
            || self.allowed.as_ref().is_none_or(|allowed| allowed.iter().any(|known| known == name));
        if reference.is_for_steps() && !is_listed() {
            return Err(SecretError::Forbidden(name.to_owned()));
        }
        let bytes = reader.read(name, reference, &self.home)?;
        let value = usable(name, reference, bytes)?;
        let mut known = self.known();
        known.hide(name, &value);
        Ok(Arc::clone(known.values.entry(name.to_owned()).or_insert_with(|| value.into())))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn named_hosts(hosts: &[CredentialHost]) -> String {
    hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A value that can be given to a step and hidden.
fn usable(name: &str, reference: &SecretReference, bytes: Vec<u8>) -> Result<String, SecretError> {
    let (name, from) = (name.to_owned(), reference.describe());
    if bytes.len() as u64 > MAX_VALUE {
        return Err(SecretError::TooLarge(name, from));
    }
    let Ok(mut value) = String::from_utf8(bytes) else { return Err(SecretError::NotText(name, from)) };
    if !matches!(reference.origin, SecretOrigin::Env(_)) && value.ends_with('\n') {
        value.pop();
        if value.ends_with('\r') {
            value.pop();
        }
    }
    match value.len() {
        _ if value.contains('\0') => Err(SecretError::NotText(name, from)),
        0 => Err(SecretError::Empty(name, from)),
        1..SHORTEST => Err(SecretError::TooShort(name, from)),
        _ => Ok(value),
    }
}

/// Every grant of a plan.
pub(crate) fn grants_of(plan: &Plan) -> Vec<&SecretGrant> {
    match plan {
        Plan::Workflow(workflow) => grants_of_file(workflow),
        Plan::Pipeline(_) => Vec::new(),
    }
}

/// Every grant of a workflow and its children. Steps that never run need nothing.
pub(crate) fn grants_of_file(workflow: &Workflow) -> Vec<&SecretGrant> {
    let own = workflow.all_steps().into_iter().filter(|step| step.when != Condition::Never);
    let own = own.flat_map(|step| &step.extras.secrets);
    own.chain(workflow.children.values().flat_map(grants_of_file)).collect()
}

/// Every credential of a plan.
pub(crate) fn credentials_of(plan: &Plan) -> Vec<&CredentialGrant> {
    match plan {
        Plan::Workflow(workflow) => credentials_of_file(workflow),
        Plan::Pipeline(_) => Vec::new(),
    }
}

/// Every credential of a workflow and its children.
pub(crate) fn credentials_of_file(workflow: &Workflow) -> Vec<&CredentialGrant> {
    let own = workflow.all_steps().into_iter().filter(|step| step.when != Condition::Never);
    let own = own.flat_map(|step| &step.extras.credentials);
    own.chain(workflow.children.values().flat_map(credentials_of_file)).collect()
}

/// What reading a reference needs of the place.
pub(crate) struct Reader<'r> {
    pub(crate) env: &'r Env,
    pub(crate) cwd: &'r Path,
    pub(crate) sandbox: &'r Sandbox,
    pub(crate) cancel: &'r CancelToken,
}

impl Reader<'_> {
    fn read(&self, name: &str, reference: &SecretReference, home: &Path) -> Result<Vec<u8>, SecretError> {
        match &reference.origin {
            SecretOrigin::Env(variable) => self
                .env
                .get(variable)
                .map(String::into_bytes)
                .ok_or_else(|| SecretError::Unset(name.to_owned(), variable.clone())),
            SecretOrigin::File(path) => {
                let path =
                    path.strip_prefix("~/").map_or_else(|| PathBuf::from(path), |rest| home.join(rest));
                let mut bytes = Vec::new();
                std::fs::File::open(&path)
                    .and_then(|file| file.take(MAX_VALUE + 1).read_to_end(&mut bytes))
                    .map_err(|source| SecretError::File(name.to_owned(), path, source))?;
                Ok(bytes)
            }
            SecretOrigin::Command(words) => self.command(name, words),
        }
    }

    /// The operator's own command: it runs as the operator, unconfined.
    fn command(&self, name: &str, words: &[String]) -> Result<Vec<u8>, SecretError> {
        let failed = |why: String| SecretError::Command(name.to_owned(), words.join(" "), why);
        let request = SpawnRequest {
            argv: words.iter().map(OsString::from).collect(),
            env: self.env.all().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            cwd: self.cwd.to_owned(),
            stdin: Stdin::Empty,
            limits: ProcessLimits {
                wall: Some(COMMAND_TIME),
                stdout_cap: MAX_VALUE + 1,
                ..ProcessLimits::default()
            },
            confinement: Confinement::None,
            upstream: None,
        };
        let mut sink = Sink::default();
        let exit = self
            .sandbox
            .run(&request, &mut sink, self.cancel)
            .map_err(|error| failed(format!("cannot run: {error}")))?;
        match (exit.ended, exit.status) {
            (Ended::ByItself, ExitStatus::Code(0)) => Ok(sink.0),
            (Ended::ByItself, ExitStatus::Code(code)) => Err(failed(format!("ended with code {code}"))),
            (Ended::ByItself, ExitStatus::Signal(signal)) => {
                Err(failed(format!("was ended by signal {signal}")))
            }
            (Ended::TimedOut, _) => {
                Err(failed(format!("took longer than {} seconds", COMMAND_TIME.as_secs())))
            }
            (Ended::Cancelled, _) => Err(failed("was cancelled".to_owned())),
            (Ended::OutputCap { .. } | Ended::DiskLimit { .. }, _) => {
                Err(SecretError::TooLarge(name.to_owned(), format!("the output of {}", words.join(" "))))
            }
        }
    }
}

/// Keeps what a command prints; what it says on stderr may hold anything, and goes.
#[derive(Default)]
struct Sink(Vec<u8>);

impl OutputSinks for Sink {
    fn stdout(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.0.extend_from_slice(chunk);
        Ok(())
    }

    fn stderr(&mut self, _chunk: &[u8]) -> io::Result<()> {
        Ok(())
    }
}
