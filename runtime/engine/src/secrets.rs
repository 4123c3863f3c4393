//! Secrets: the operator says where a value is, a step is granted it by name,
//! and nothing that lobster writes or prints shows it (invariant S5).
//!
//! Values live in memory only. Plans, actions and journals hold names and
//! references; the value enters the environment of a granted step when that
//! step starts, and nowhere else. The token of a login enters nothing: it is added to what steps send.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use serde::Serialize;
use serde_json::{Value, json};

use crate::current_values::{AsOf, CurrentValues, FileStamp};
use crate::env::Env;
use crate::envelope::Failure;
use crate::own_tokens;
use crate::secret_reader::{MAX_VALUE, SHORTEST, in_home};
use lobster_base::credential::{CredentialGrant, CredentialHost};
use lobster_base::sync::lock;
use lobster_credentials::login::HeldLogin;
use lobster_language::condition::Condition;
use lobster_language::plan::{Plan, SecretGrant, Workflow};
use lobster_models::http;
use lobster_policy::{Policy, SecretOrigin, SecretReference};
use lobster_stage::StageError;
use lobster_store::{Redactions, Store};

pub(crate) use crate::secret_reader::{LoginServers, Reader, SecretError};

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
    /// The login whose token it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login: Option<LoginState>,
}

/// What is known of a login without asking anybody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum LoginState {
    /// Somebody is logged in.
    LoggedIn {
        /// When the token runs out, in seconds since 1970; none if the server did not say.
        #[serde(rename = "expiresAt")]
        expires_at: Option<i64>,
        /// Whether it is renewed then.
        #[serde(rename = "renewed")]
        is_renewed: bool,
    },
    /// Nobody is logged in.
    LoggedOut,
    /// It cannot be said.
    Unknown {
        /// Why.
        why: String,
    },
}

/// What the operator has named, and the values that were needed so far.
pub struct Secrets {
    references: BTreeMap<String, SecretReference>,
    /// Under a policy file, the names that steps may receive.
    allowed: Option<Vec<String>>,
    home: PathBuf,
    /// Where an operator would add a reference.
    place: String,
    hidden: Arc<Hidden>,
    /// Those that were needed so far, by the names of their secrets.
    logins: Mutex<BTreeMap<String, Arc<HeldLogin>>>,
    current: CurrentValues,
}

/// What is kept out of everything that is written and shown.
#[derive(Default)]
struct Hidden {
    known: Mutex<Known>,
    /// What is written.
    store: OnceLock<Store>,
}

impl Hidden {
    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }

    /// Hides from now on what `add` adds.
    fn hide(&self, add: impl FnOnce(&mut Known)) {
        let mut known = self.known();
        add(&mut known);
        self.redact_store(&known);
    }

    fn redact_store(&self, known: &Known) {
        if let Some(store) = self.store.get()
            && !known.redactions.is_empty()
        {
            store.redact(known.redactions.clone());
        }
    }
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
            hidden: Arc::new(Hidden { known: Mutex::new(known), store: OnceLock::new() }),
            logins: Mutex::default(),
            current: CurrentValues::default(),
        }
    }

    /// The same under another policy.
    pub(crate) fn under(&self, policy: &Policy, env: &Env, tokens: &BTreeSet<String>) -> Self {
        Self::new(self.references.clone(), self.place.clone(), policy, env, tokens)
    }

    /// Keeps the values out of this store, those that become known later included.
    pub(crate) fn keep_out_of(&self, store: &Store) {
        self.hidden.store.get_or_init(|| store.clone());
        self.hidden.redact_store(&self.hidden.known());
    }

    /// The variables of lobster's own environment that hold secrets: no step inherits them.
    pub(crate) fn withheld(&self) -> BTreeSet<OsString> {
        self.references
            .values()
            .filter_map(|reference| match &reference.origin {
                SecretOrigin::Env(name) => Some(OsString::from(name)),
                SecretOrigin::File(_) | SecretOrigin::Command(_) | SecretOrigin::Login(_) => None,
            })
            .collect()
    }

    /// What is to be hidden, as far as it is known.
    pub(crate) fn redactions(&self) -> Redactions {
        self.hidden.known().redactions.clone()
    }

    /// Whether there is nothing to hide yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.hidden.known().redactions.is_empty()
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
            if let Some(refusal) = self.refusal(grant) {
                return Err(refusal);
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
            let login = self.login(secret, reader)?;
            self.check_host(grant, login.as_deref().map(HeldLogin::server))?;
            let value = self.value(secret, reader)?;
            grant
                .header_value(&value)
                .map_err(|error| SecretError::Unsendable(secret.clone(), host.to_string(), error))?;
        }
        Ok(())
    }

    /// Refuses a credential whose secret does not go to its host; `server` is the address of the login that it is of.
    fn check_host(&self, grant: &CredentialGrant, server: Option<&str>) -> Result<(), SecretError> {
        let (secret, host) = (&grant.secret, &grant.host);
        let hosts = match server {
            None => self.references.get(secret).map_or_else(Vec::new, |known| known.hosts.clone()),
            Some(server) => match server_host(server) {
                Some(own) => vec![own],
                None => return Err(SecretError::NotHttps(secret.clone(), server.to_owned())),
            },
        };
        if hosts.is_empty() || hosts.contains(host) {
            return Ok(());
        }
        Err(SecretError::OtherHost(secret.clone(), host.to_string(), named_hosts(&hosts)))
    }

    /// Why a secret certainly is not given to a step. Nothing is looked up.
    pub(crate) fn refusal(&self, grant: &SecretGrant) -> Option<SecretError> {
        let hosts = self.bound_to(&grant.secret)?;
        Some(SecretError::Bound(grant.secret.clone(), hosts))
    }

    /// Why a credential certainly is refused. No value is looked up.
    pub(crate) fn refusal_of_credential(
        &self,
        grant: &CredentialGrant,
        servers: &dyn LoginServers,
    ) -> Option<SecretError> {
        let server = match self.references.get(&grant.secret).map(|known| &known.origin) {
            // Where the server is not named, this says nothing about the step.
            Some(SecretOrigin::Login(server)) => Some(servers.login_address(server).ok()?),
            _ => None,
        };
        self.check_host(grant, server.as_deref()).err()
    }

    /// What a secret may only be sent to, where the operator has bound it.
    pub(crate) fn bound_to(&self, secret: &str) -> Option<String> {
        let reference = self.references.get(secret)?;
        match &reference.origin {
            SecretOrigin::Login(server) => Some(format!("the host of MCP server {server}")),
            _ => (!reference.hosts.is_empty()).then(|| named_hosts(&reference.hosts)),
        }
    }

    /// The secret that the operator has bound to `host`, as `name:port`.
    pub(crate) fn bound_to_host(&self, host: &str) -> Option<&str> {
        let is_its = |bound: &CredentialHost| format!("{}:{}", bound.name, bound.port) == host;
        self.references
            .iter()
            .find_map(|(name, known)| known.hosts.iter().any(is_its).then_some(name.as_str()))
    }

    /// Whether it is the token of a login.
    pub(crate) fn is_login(&self, secret: &str) -> bool {
        let reference = self.references.get(secret);
        reference.is_some_and(|reference| matches!(reference.origin, SecretOrigin::Login(_)))
    }

    /// The login whose token a secret is, if it is one.
    pub(crate) fn login(
        &self,
        secret: &str,
        reader: &Reader<'_>,
    ) -> Result<Option<Arc<HeldLogin>>, SecretError> {
        let Some(SecretOrigin::Login(server)) = self.references.get(secret).map(|known| &known.origin) else {
            return Ok(None);
        };
        if let Some(login) = lock(&self.logins).get(secret) {
            return Ok(Some(Arc::clone(login)));
        }
        let term = reader.servers.login_term(secret, server);
        let term = term.map_err(|error| SecretError::LoginServer(secret.to_owned(), error))?;
        let (hidden, name) = (Arc::clone(&self.hidden), secret.to_owned());
        let learn = move |token: &str| hidden.hide(|known| known.hide(&name, token));
        let login = HeldLogin::new(term, reader.servers.logins(), reader.cancel.clone(), Box::new(learn));
        Ok(Some(Arc::clone(lock(&self.logins).entry(secret.to_owned()).or_insert_with(|| Arc::new(login)))))
    }

    /// Refuses a plan or arguments that hold a value in clear: it would be recorded.
    pub(crate) fn check_clear(&self, place: &'static str, text: &str) -> Result<(), SecretError> {
        match self.hidden.known().secrets.first_in(text) {
            Some(mark) => Err(SecretError::InClear { place, mark: mark.to_owned() }),
            None => Ok(()),
        }
    }

    /// What the operator has named, without values.
    pub(crate) fn named_secrets(&self, servers: &dyn LoginServers) -> Vec<NamedSecret> {
        let named = |(name, reference): (&String, &SecretReference)| {
            let mut hosts: Vec<String> = reference.hosts.iter().map(ToString::to_string).collect();
            let mut login = None;
            if let SecretOrigin::Login(server) = &reference.origin {
                let address = servers.login_address(server);
                let host = address.as_ref().ok().and_then(|address| server_host(address));
                hosts.extend(host.map(|host| host.to_string()));
                login = Some(login_state(servers, address));
            }
            NamedSecret {
                name: name.clone(),
                from: reference.describe(),
                hosts,
                is_allowed: !reference.is_for_steps()
                    || self.allowed.as_ref().is_none_or(|allowed| allowed.contains(name)),
                login,
            }
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
        self.hidden.hide(|known| {
            let _ = known.redactions.add(name, token);
        });
    }

    /// The value, if it was needed before.
    pub(crate) fn known_value(&self, name: &str) -> Option<String> {
        if let Some(login) = lock(&self.logins).get(name) {
            return login.used_tokens().last().map(ToString::to_string);
        }
        self.hidden.known().values.get(name).map(|value| value.to_string())
    }

    fn value(&self, name: &str, reader: &Reader<'_>) -> Result<Arc<str>, SecretError> {
        if let Some(login) = self.login(name, reader)? {
            return Ok(login.token()?);
        }
        if let Some(value) = self.hidden.known().values.get(name) {
            return Ok(Arc::clone(value));
        }
        let value: Arc<str> = self.read(name, self.reference(name)?, reader)?.into();
        self.hidden.hide(|known| {
            known.hide(name, &value);
            known.values.insert(name.to_owned(), Arc::clone(&value));
        });
        Ok(value)
    }

    /// The value as it is now: what was read of a file counts as long as the file does not change, what a command
    /// printed for a minute.
    pub(crate) fn current_value(&self, name: &str, reader: &Reader<'_>) -> Result<Arc<str>, Failure> {
        let reference = self.reference(name)?;
        let now = match &reference.origin {
            SecretOrigin::Env(_) | SecretOrigin::Login(_) => return Ok(self.value(name, reader)?),
            SecretOrigin::File(path) => AsOf::File(FileStamp::read(&in_home(path, &self.home))),
            SecretOrigin::Command(_) => AsOf::Time(Instant::now()),
        };
        self.current.get(name, now, |earlier| {
            let value: Arc<str> = self.read(name, reference, reader)?.into();
            if earlier != Some(&value) {
                self.hidden.hide(|known| known.hide(name, &value));
            }
            Ok(value)
        })
    }

    /// Where a value comes from, if the policy lets somebody have it.
    fn reference(&self, name: &str) -> Result<&SecretReference, SecretError> {
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
        Ok(reference)
    }

    fn read(
        &self,
        name: &str,
        reference: &SecretReference,
        reader: &Reader<'_>,
    ) -> Result<String, SecretError> {
        usable(name, reference, reader.read(name, reference, &self.home)?)
    }
}

/// The host of a server's address, if credentials can be sent to it.
fn server_host(address: &str) -> Option<CredentialHost> {
    let url = http::parse_url(address).filter(|url| url.scheme() == "https")?;
    let port = url.port_or_known_default()?;
    CredentialHost::parse(&format!("{}:{port}", url.host_str()?)).ok()
}

fn login_state(servers: &dyn LoginServers, address: Result<String, StageError>) -> LoginState {
    let login = address
        .map_err(|error| error.message)
        .and_then(|address| servers.logins().login(&address).map_err(|error| error.to_string()));
    match login {
        Ok(Some(login)) => {
            LoginState::LoggedIn { expires_at: login.expires_at(), is_renewed: login.is_renewed() }
        }
        Ok(None) => LoginState::LoggedOut,
        Err(why) => LoginState::Unknown { why },
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
