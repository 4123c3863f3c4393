//! Secrets: the operator names the source of a value, a step is granted it by name, and it never appears in lobster's
//! records or output (invariant S5).
//!
//! Values exist in memory only. Plans, actions and journals hold names and references. The value enters the
//! environment of a granted step when that step starts, and nothing else. The token of a login enters no environment:
//! it is added to the requests that steps send.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
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
    /// Its name in workflows.
    pub name: String,
    /// The source of its value.
    pub from: String,
    /// The only hosts that it may be sent to. If there are any, no step receives it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// True if the policy lets steps receive it, or use it for these hosts.
    #[serde(rename = "allowed")]
    pub is_allowed: bool,
    /// The login that provides the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login: Option<LoginState>,
}

/// The state of a login, as far as known without a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum LoginState {
    /// A user is logged in.
    LoggedIn {
        /// Expiry of the token in seconds since 1970; `None` if the server sent no expiry.
        #[serde(rename = "expiresAt")]
        expires_at: Option<i64>,
        /// True if the token is renewed then.
        #[serde(rename = "renewed")]
        is_renewed: bool,
    },
    /// No user is logged in.
    LoggedOut,
    /// The state could not be found out.
    Unknown {
        /// The reason.
        why: String,
    },
}

/// The secrets that the operator has named, and the values that were needed so far.
pub struct Secrets {
    references: BTreeMap<String, SecretReference>,
    /// The names that steps may receive, under a policy file.
    allowed: Option<Vec<String>>,
    home: PathBuf,
    /// The file in which an operator would add a reference.
    place: String,
    hidden: Arc<Hidden>,
    /// The logins that were needed so far, by the names of their secrets.
    logins: Mutex<BTreeMap<String, Arc<HeldLogin>>>,
    current: CurrentValues,
}

/// The values that are kept out of all records and output.
#[derive(Default)]
struct Hidden {
    known: Mutex<Known>,
    /// The store whose records are redacted.
    store: OnceLock<Store>,
}

impl Hidden {
    /// Applies `add`; the values that it adds are hidden from now on.
    fn hide_values(&self, add: impl FnOnce(&mut Known)) {
        let mut known = lock(&self.known);
        add(&mut known);
        self.redact_store(&known);
    }

    fn redact_store(&self, known: &Known) {
        if let Some(store) = self.store.get()
            && !known.redactions.is_empty()
        {
            store.set_redactions(known.redactions.clone());
        }
    }
}

#[derive(Default)]
struct Known {
    values: BTreeMap<String, Arc<str>>,
    /// All hidden values.
    redactions: Redactions,
    /// Only the secrets: no plan and no command may contain them in clear text. lobster's own tokens may appear there,
    /// like the incumbent's `--token`.
    secrets: Redactions,
}

impl Known {
    fn hide_value(&mut self, name: &str, value: &str) {
        let _ = self.redactions.add_secret(name, value);
        let _ = self.secrets.add_secret(name, value);
    }
}

/// Prints names only.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").field("references", &self.references).finish_non_exhaustive()
    }
}

impl Secrets {
    /// The secrets that the operator's file and the policy name; the policy has priority. The values of lobster's own
    /// `tokens` are hidden as well.
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
            // A value that lobster already holds is hidden even if no step is granted it.
            if let SecretOrigin::Env(variable) = &reference.origin
                && let Some(value) = env.get(variable)
            {
                known.hide_value(name, &value);
            }
        }
        for name in tokens {
            for value in env.get(name).into_iter().flat_map(|value| own_tokens::hidden_parts(name, &value)) {
                let _ = known.redactions.add_secret(name, &value);
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
    pub(crate) fn under_policy(&self, policy: &Policy, env: &Env, tokens: &BTreeSet<String>) -> Self {
        Self::new(self.references.clone(), self.place.clone(), policy, env, tokens)
    }

    /// Keeps the values out of this store, including values that become known later.
    pub(crate) fn keep_out_of(&self, store: &Store) {
        self.hidden.store.get_or_init(|| store.clone());
        self.hidden.redact_store(&lock(&self.hidden.known));
    }

    /// The variables of lobster's own environment that hold secrets; no step inherits them.
    pub(crate) fn withheld_variables(&self) -> BTreeSet<OsString> {
        self.references
            .values()
            .filter_map(|reference| match &reference.origin {
                SecretOrigin::Env(name) => Some(OsString::from(name)),
                SecretOrigin::File(_) | SecretOrigin::Command(_) | SecretOrigin::Login(_) => None,
            })
            .collect()
    }

    /// The values to hide that are known so far.
    pub(crate) fn redactions(&self) -> Redactions {
        lock(&self.hidden.known).redactions.clone()
    }

    /// True if no value has to be hidden yet.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.hidden.known).redactions.is_empty()
    }

    /// Finds the value of each granted secret, before anything runs.
    pub(crate) fn learn_secrets<'g>(
        &self,
        grants: impl IntoIterator<Item = &'g SecretGrant>,
        reader: &Reader<'_>,
    ) -> Result<(), SecretError> {
        for grant in grants {
            if Policy::is_protected_variable(&grant.variable) && !own_tokens::is_of_a_model(&grant.variable) {
                return Err(SecretError::Variable(grant.secret.clone(), grant.variable.clone()));
            }
            if let Some(refusal) = self.refusal_reason(grant) {
                return Err(refusal);
            }
            self.secret_value(&grant.secret, reader)?;
        }
        Ok(())
    }

    /// Finds the values that are added to the requests of steps, and refuses credentials for hosts that are not
    /// allowed.
    pub(crate) fn learn_credentials<'g>(
        &self,
        grants: impl IntoIterator<Item = &'g CredentialGrant>,
        reader: &Reader<'_>,
    ) -> Result<(), SecretError> {
        for grant in grants {
            let (secret, host) = (&grant.secret, &grant.host);
            let login = self.find_login(secret, reader)?;
            self.check_host(grant, login.as_deref().map(HeldLogin::server))?;
            let value = self.secret_value(secret, reader)?;
            grant
                .header_value(&value)
                .map_err(|error| SecretError::Unsendable(secret.clone(), host.to_string(), error))?;
        }
        Ok(())
    }

    /// Refuses a credential for a host that its secret may not be sent to; `server` is the address of its login, if it
    /// has one.
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

    /// The reason why a secret certainly cannot be given to a step. Nothing is looked up.
    pub(crate) fn refusal_reason(&self, grant: &SecretGrant) -> Option<SecretError> {
        let hosts = self.bound_to(&grant.secret)?;
        Some(SecretError::Bound(grant.secret.clone(), hosts))
    }

    /// The reason why a credential certainly is refused. No value is looked up.
    pub(crate) fn refusal_of_credential(
        &self,
        grant: &CredentialGrant,
        servers: &dyn LoginServers,
    ) -> Option<SecretError> {
        let server = match self.references.get(&grant.secret).map(|known| &known.origin) {
            // If the server is not named, this cannot be decided here.
            Some(SecretOrigin::Login(server)) => Some(servers.login_address(server).ok()?),
            _ => None,
        };
        self.check_host(grant, server.as_deref()).err()
    }

    /// The only destinations of a secret that the operator has bound to hosts.
    pub(crate) fn bound_to(&self, secret: &str) -> Option<String> {
        let reference = self.references.get(secret)?;
        match &reference.origin {
            SecretOrigin::Login(server) => Some(format!("the host of MCP server {server}")),
            _ => (!reference.hosts.is_empty()).then(|| named_hosts(&reference.hosts)),
        }
    }

    /// The secret that the operator has bound to `host`, given as `name:port`.
    pub(crate) fn bound_to_host(&self, host: &str) -> Option<&str> {
        let is_its = |bound: &CredentialHost| format!("{}:{}", bound.name, bound.port) == host;
        self.references
            .iter()
            .find_map(|(name, known)| known.hosts.iter().any(is_its).then_some(name.as_str()))
    }

    /// True if the secret is the token of a login.
    pub(crate) fn is_login(&self, secret: &str) -> bool {
        let reference = self.references.get(secret);
        reference.is_some_and(|reference| matches!(reference.origin, SecretOrigin::Login(_)))
    }

    /// The login that provides the secret, if it is a token of a login.
    pub(crate) fn find_login(
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
        let learn = move |token: &str| hidden.hide_values(|known| known.hide_value(&name, token));
        let login = HeldLogin::new(term, reader.servers.logins(), reader.cancel.clone(), Box::new(learn));
        Ok(Some(Arc::clone(lock(&self.logins).entry(secret.to_owned()).or_insert_with(|| Arc::new(login)))))
    }

    /// Refuses a plan or arguments that contain a value in clear text, since it would be recorded.
    pub(crate) fn check_clear(&self, place: &'static str, text: &str) -> Result<(), SecretError> {
        match lock(&self.hidden.known).secrets.first_in(text) {
            Some(mark) => Err(SecretError::InClear { place, mark: mark.to_owned() }),
            None => Ok(()),
        }
    }

    /// The secrets that the operator has named, without values.
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
    pub(crate) fn secrets_file(&self) -> &str {
        &self.place
    }

    /// The variables of a step with their values.
    pub(crate) fn variable_values(
        &self,
        grants: &BTreeMap<String, String>,
        reader: &Reader<'_>,
    ) -> Result<Vec<(String, String)>, SecretError> {
        grants
            .iter()
            .map(|(variable, secret)| Ok((variable.clone(), self.secret_value(secret, reader)?.to_string())))
            .collect()
    }

    /// The description of granted secrets in an action, in place of their values. The source of a value is the
    /// operator's choice; for a `recorded` action the recorded source is kept.
    pub(crate) fn describe_grants(
        &self,
        grants: &BTreeMap<String, String>,
        recorded: Option<&Value>,
    ) -> Value {
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

    /// Keeps one of lobster's own tokens out of all records and output.
    pub(crate) fn hide_token(&self, name: &str, token: &str) {
        self.hidden.hide_values(|known| {
            let _ = known.redactions.add_secret(name, token);
        });
    }

    /// The value, if it was needed before.
    pub(crate) fn known_value(&self, name: &str) -> Option<String> {
        if let Some(login) = lock(&self.logins).get(name) {
            return login.used_tokens().last().map(ToString::to_string);
        }
        lock(&self.hidden.known).values.get(name).map(|value| value.to_string())
    }

    pub(crate) fn secret_value(&self, name: &str, reader: &Reader<'_>) -> Result<Arc<str>, SecretError> {
        if let Some(login) = self.find_login(name, reader)? {
            return Ok(login.token()?);
        }
        if let Some(value) = lock(&self.hidden.known).values.get(name) {
            return Ok(Arc::clone(value));
        }
        let value: Arc<str> = self.read_value(name, self.allowed_reference(name)?, reader)?.into();
        self.hidden.hide_values(|known| {
            known.hide_value(name, &value);
            known.values.insert(name.to_owned(), Arc::clone(&value));
        });
        Ok(value)
    }

    /// The current value: the content of a file is valid until the file changes, the output of a command for a minute.
    pub(crate) fn current_value(&self, name: &str, reader: &Reader<'_>) -> Result<Arc<str>, Failure> {
        let reference = self.allowed_reference(name)?;
        let now = match &reference.origin {
            SecretOrigin::Env(_) | SecretOrigin::Login(_) => return Ok(self.secret_value(name, reader)?),
            SecretOrigin::File(path) => AsOf::File(FileStamp::read_metadata(&in_home(path, &self.home))),
            SecretOrigin::Command(_) => AsOf::Time(Instant::now()),
        };
        self.current.get(name, now, |earlier| {
            let value: Arc<str> = self.read_value(name, reference, reader)?.into();
            if earlier != Some(&value) {
                self.hidden.hide_values(|known| known.hide_value(name, &value));
            }
            Ok(value)
        })
    }

    /// The source of a value, if the policy allows its use.
    fn allowed_reference(&self, name: &str) -> Result<&SecretReference, SecretError> {
        let reference = self
            .references
            .get(name)
            .ok_or_else(|| SecretError::Unknown(name.to_owned(), self.place.clone()))?;
        // A secret that no step receives need not be in the list.
        let is_listed =
            || self.allowed.as_ref().is_none_or(|allowed| allowed.iter().any(|known| known == name));
        if reference.is_for_steps() && !is_listed() {
            return Err(SecretError::Forbidden(name.to_owned()));
        }
        Ok(reference)
    }

    fn read_value(
        &self,
        name: &str,
        reference: &SecretReference,
        reader: &Reader<'_>,
    ) -> Result<String, SecretError> {
        check_usable(name, reference, reader.read_secret(name, reference, &self.home)?)
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
        .and_then(|address| servers.logins().find_login(&address).map_err(|error| error.to_string()));
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
fn check_usable(name: &str, reference: &SecretReference, bytes: Vec<u8>) -> Result<String, SecretError> {
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
