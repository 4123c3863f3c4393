//! The environment of steps: layers over the process's own environment.

mod terminal;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};

use lobster_base::credential::CredentialGrant;
use lobster_base::json;
use lobster_base::setting::{self, BadSetting, Setting};
use lobster_base::variable_name::{self, is_variable_name};
use lobster_language::plan::SecretGrant;
use lobster_language::template::ExprError;
use lobster_models::channel::recorded_setting;
use lobster_models::http;
use lobster_policy::Policy;

/// The variable that names the program which executes effects.
pub const EXECUTOR_VARIABLE: &str = "LOBSTER_EXECUTOR";

/// The variable with the operator's command for notifications of questions and ends.
pub const NOTIFY_VARIABLE: &str = "LOBSTER_NOTIFY";

/// The variable with the directory of the workflow file, so that a workflow can have its own scripts.
pub const WORKFLOW_DIR: &str = "LOBSTER_WORKFLOW_DIR";

/// Variables of one step. Clones share them; [`Env::with_vars`] copies the plan's own variables.
#[derive(Clone, Debug, Default)]
pub struct Env {
    inherited: Arc<BTreeMap<OsString, OsString>>,
    /// The plan's own variables. Only these belong to actions, not the inherited ones.
    granted: Arc<BTreeMap<String, String>>,
    /// Inherited variables that hold secrets: lobster may read them, but no step inherits them.
    withheld: Arc<BTreeSet<OsString>>,
    /// Inherited variables from which lobster itself takes tokens: a step gets them only by a grant that names them.
    tokens: Arc<BTreeSet<String>>,
    /// Granted secrets by their variables; the values are added when the step starts.
    secrets: Arc<BTreeMap<String, String>>,
    /// Secrets that are added to the step's requests and never reach the step.
    credentials: Arc<[CredentialGrant]>,
}

impl Env {
    /// The environment that the run inherits. An entry such as `=X=Y` has no name by which it could be passed on.
    pub(crate) fn from_inherited(vars: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let vars = vars.into_iter().filter(|(name, _)| is_variable_name(name));
        Self { inherited: Arc::new(vars.collect()), ..Self::default() }
    }

    /// Adds variables that no step inherits.
    pub(crate) fn with_withheld(mut self, names: BTreeSet<OsString>) -> Self {
        self.withheld = Arc::new(names);
        self
    }

    /// Adds variables that are lobster's own tokens.
    pub(crate) fn with_own_tokens(mut self, tokens: BTreeSet<String>) -> Self {
        self.tokens = Arc::new(tokens);
        self
    }

    /// This environment with granted secrets.
    pub(crate) fn with_secrets<'g>(&self, grants: impl IntoIterator<Item = &'g SecretGrant>) -> Self {
        let secrets: BTreeMap<_, _> =
            grants.into_iter().map(|grant| (grant.variable.clone(), grant.secret.clone())).collect();
        if secrets.is_empty() { self.clone() } else { Self { secrets: Arc::new(secrets), ..self.clone() } }
    }

    /// This environment with credentials.
    pub(crate) fn with_credentials(&self, grants: &[CredentialGrant]) -> Self {
        if grants.is_empty() { self.clone() } else { Self { credentials: grants.into(), ..self.clone() } }
    }

    /// This environment with further credentials, for hosts without one.
    pub(crate) fn with_more_credentials(&self, grants: &[CredentialGrant]) -> Self {
        let is_new = |grant: &&CredentialGrant| self.credentials.iter().all(|own| own.host != grant.host);
        let more: Vec<_> = grants.iter().filter(is_new).cloned().collect();
        if more.is_empty() {
            return self.clone();
        }
        Self { credentials: self.credentials.iter().cloned().chain(more).collect(), ..self.clone() }
    }

    /// This environment with exactly these secrets, by their variables.
    pub(crate) fn holding_secrets(&self, secrets: BTreeMap<String, String>) -> Self {
        Self { secrets: Arc::new(secrets), ..self.clone() }
    }

    /// This environment with more variables; the last value of a name is used.
    pub(crate) fn with_vars(&self, vars: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut vars = vars.into_iter().peekable();
        if vars.peek().is_none() {
            return self.clone();
        }
        let mut granted = BTreeMap::clone(&self.granted);
        granted.extend(vars);
        Self { granted: Arc::new(granted), ..self.clone() }
    }

    /// This environment without these variables, wherever they come from.
    pub(crate) fn without_vars(&self, names: &[String]) -> Self {
        if names.is_empty() {
            return self.clone();
        }
        let (mut inherited, mut granted) = (BTreeMap::clone(&self.inherited), BTreeMap::clone(&self.granted));
        for name in names {
            inherited.remove(OsStr::new(name));
            granted.remove(name);
        }
        Self { inherited: Arc::new(inherited), granted: Arc::new(granted), ..self.clone() }
    }

    /// This environment with one more inherited variable.
    pub(crate) fn with_inherited(&self, name: &str, value: &str) -> Self {
        let mut inherited = BTreeMap::clone(&self.inherited);
        inherited.insert(name.into(), value.into());
        Self { inherited: Arc::new(inherited), ..self.clone() }
    }

    /// The value of a variable, if it is text.
    pub fn get(&self, name: &str) -> Option<String> {
        let inherited = || self.inherited.get(OsStr::new(name)).and_then(|value| value.to_str());
        let granted = self.granted.get(name).filter(|value| !self.is_reference(name, value));
        granted.map(String::as_str).or_else(inherited).map(str::to_owned)
    }

    /// The trimmed value, unless it is blank.
    pub fn non_blank(&self, name: &str) -> Option<String> {
        self.get(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// The value of a variable, which need not be text.
    pub(crate) fn get_bytes(&self, name: &str) -> Option<OsString> {
        self.get(name).map(OsString::from).or_else(|| self.inherited.get(OsStr::new(name)).cloned())
    }

    /// The value of a setting in this environment.
    pub(crate) fn value_of<T>(&self, setting: &Setting<T>) -> Result<Option<T>, BadSetting> {
        setting.read_env(|name| self.get_bytes(name))
    }

    /// The path in a variable, unless it is blank.
    pub(crate) fn get_path(&self, name: &str) -> Option<PathBuf> {
        self.get_bytes(name).and_then(setting::read_path)
    }

    /// The value of a variable that a step is granted by name: any variable except a secret.
    pub(crate) fn get_passed(&self, name: &str) -> Option<String> {
        if self.is_withheld(OsStr::new(name)) { None } else { self.get(name) }
    }

    /// The value for `${env.NAME}`; empty if the variable is not set.
    pub(crate) fn template_value(&self, name: &str, policy: &Policy) -> Result<String, ExprError> {
        let refused = |why: &str| ExprError::NotInserted { name: name.to_owned(), why: why.to_owned() };
        if self.is_token(OsStr::new(name)) {
            return Err(refused(&format!(
                "it is a key of lobster's own; `{name}: ${name}` passes it on, without its value in the plan"
            )));
        }
        let sandbox = &policy.file().sandbox.env;
        let is_passed = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => pattern == name,
        };
        let is_free =
            policy.is_open() || self.granted.contains_key(name) || sandbox.pass.iter().any(is_passed);
        match sandbox.set.get(name).filter(|_| !self.granted.contains_key(name)) {
            Some(value) => Ok(value.clone()),
            None if is_free => Ok(self.get_passed(name).unwrap_or_default()),
            None => Err(refused("the policy passes it to no step; name it in `pass` of [sandbox.env]")),
        }
    }

    /// lobster's own tokens that are set here and withheld from a step.
    pub(crate) fn withheld_tokens(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().map(String::as_str).filter(|name| !self.granted.contains_key(*name))
    }

    /// The variables of a child process, without its secrets.
    pub(crate) fn child_vars(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.for_operator().filter(|(name, _)| !self.is_reserved(name))
    }

    /// The same with lobster's own tokens, for the operator's commands and for variables that a policy names.
    pub(crate) fn for_operator(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.all_vars().filter(|(name, _)| !self.is_withheld(name))
    }

    /// True if a variable is one of lobster's own tokens.
    pub(crate) fn is_token(&self, name: &OsStr) -> bool {
        name.to_str().is_some_and(|name| self.tokens.contains(name))
    }

    /// True for a token that the plan does not name.
    fn is_reserved(&self, name: &OsStr) -> bool {
        self.is_token(name) && !name.to_str().is_some_and(|name| self.granted.contains_key(name))
    }

    /// `env: { OPENAI_API_KEY: $OPENAI_API_KEY }` grants a token by its name, so the plan never holds the value.
    pub(crate) fn is_reference(&self, name: &str, value: &str) -> bool {
        value.strip_prefix('$') == Some(name) && self.tokens.contains(name)
    }

    /// All variables by name, for the operator's commands.
    pub(crate) fn all_vars(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        let inherited = self.inherited.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()));
        let granted = self.granted.iter().filter(|(name, value)| !self.is_reference(name, value));
        let granted = granted.map(|(name, value)| (OsStr::new(name), OsStr::new(value)));
        inherited.chain(granted).collect::<BTreeMap<_, _>>().into_iter()
    }

    /// The granted secrets by their variables.
    pub(crate) fn secrets(&self) -> &BTreeMap<String, String> {
        &self.secrets
    }

    /// The secrets that are added to the step's requests.
    pub(crate) fn credentials(&self) -> &[CredentialGrant] {
        &self.credentials
    }

    fn is_withheld(&self, name: &OsStr) -> bool {
        // A variable that the plan itself sets under the same name is not the secret.
        self.withheld.contains(name) && !name.to_str().is_some_and(|name| self.granted.contains_key(name))
    }

    /// The variables with which people control lobster itself, without possible secrets.
    pub(crate) fn lobster_settings(&self) -> Map<String, Value> {
        let unset = ADDED_SETTINGS.iter().map(|name| ((*name).to_owned(), Value::Null));
        let set = self.all_vars().filter_map(|(name, value)| {
            let name = name.to_str().filter(|name| is_setting(name))?;
            let value = value.to_str()?;
            let is_address = name.ends_with("_URL") || name.ends_with("_ENDPOINT");
            let value = match recorded_setting(name, value) {
                Some(recorded) => recorded,
                None if is_address => http::without_credentials(value),
                None => value.into(),
            };
            Some((name.to_owned(), value.into()))
        });
        unset.chain(set).collect()
    }

    /// This environment with exactly these settings.
    pub fn with_settings(&self, settings: &Map<String, Value>) -> Self {
        let recorded = |name: &str| !ADDED_SETTINGS.contains(&name) || settings.contains_key(name);
        let mut inherited = BTreeMap::clone(&self.inherited);
        // Records never hold a path that is not text.
        inherited.retain(|name, value| {
            value.to_str().is_none() || !name.to_str().is_some_and(|name| is_setting(name) && recorded(name))
        });
        inherited
            .extend(settings.iter().filter_map(|(name, value)| Some((name.into(), value.as_str()?.into()))));
        Self { inherited: Arc::new(inherited), ..self.clone() }
    }

    /// The same, shared, for records.
    pub(crate) fn shared_granted(&self) -> Arc<BTreeMap<String, String>> {
        Arc::clone(&self.granted)
    }

    /// The same, without the tokens that the plan only names.
    pub(crate) fn granted_values(&self) -> BTreeMap<String, String> {
        let granted = self.granted.iter().filter(|(name, value)| !self.is_reference(name, value));
        granted.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// The plan's own variables.
    pub(crate) fn plan_vars(&self) -> &BTreeMap<String, String> {
        &self.granted
    }
}

/// Settings that earlier versions did not record. If unset, they are recorded as null; a record without them leaves
/// them unchanged.
const ADDED_SETTINGS: [&str; 5] =
    ["ANTHROPIC_BASE_URL", "AZURE_OPENAI_ENDPOINT", "GEMINI_BASE_URL", "OPENAI_BASE_URL", RUN_STATE_KEY];

/// The name under which a run keeps its model answers; it is not a credential.
const RUN_STATE_KEY: &str = "LOBSTER_RUN_STATE_KEY";

fn is_setting(name: &str) -> bool {
    let ours = name.starts_with("LOBSTER_")
        || matches!(
            name,
            "ANTHROPIC_BASE_URL"
                | "AZURE_OPENAI_ENDPOINT"
                | "CLAWD_URL"
                | "GEMINI_BASE_URL"
                | "GOG_BIN"
                | "OPENAI_BASE_URL"
                | "OPENCLAW_URL"
        );
    let private =
        ["TOKEN", "KEY", "SECRET", "PASSWORD", "CREDENTIAL", "AUTH"].iter().any(|word| name.contains(word));
    ours && (!private || name == RUN_STATE_KEY)
        && !name.starts_with("LOBSTER_ARG")
        && !matches!(
            name,
            "LOBSTER_STATE_DIR" | "LOBSTER_DIE_WITH_PARENT" | NOTIFY_VARIABLE | EXECUTOR_VARIABLE
        )
}

/// A variable of this size or more exceeds `execve`'s limit for one string (`MAX_ARG_STRLEN`, 128 KiB on Linux, with
/// the name and its `=`).
const MAX_VARIABLE: usize = 120 * 1024;

/// The variable with all arguments of a workflow.
pub const ARGS_JSON: &str = "LOBSTER_ARGS_JSON";

/// Prefix of the variables with one argument each.
pub const ARG_PREFIX: &str = "LOBSTER_ARG_";

/// `LOBSTER_ARGS_JSON` and `LOBSTER_ARG_<NAME>` for a workflow's arguments. A value that is too long for a variable is
/// left out; steps get it by `stdin` or `${name}`.
pub fn argument_vars(args: &Map<String, Value>) -> Vec<(String, String)> {
    split_argument_vars(args).0
}

/// The same, and the names of the variables that are left out, since the caller may have an argument of such a name.
pub(crate) fn split_argument_vars(args: &Map<String, Value>) -> (Vec<(String, String)>, Vec<String>) {
    let all = (ARGS_JSON.to_owned(), json::compact(args));
    let each = args.iter().filter_map(|(name, value)| {
        let name = variable_name::for_argument(name);
        (!name.is_empty()).then(|| (format!("{ARG_PREFIX}{name}"), json::js_string(value)))
    });
    let all = std::iter::once(all).chain(each);
    let (kept, left_out): (Vec<_>, Vec<_>) =
        all.partition(|(_, value)| value.len() < MAX_VARIABLE && !value.contains('\0'));
    (kept, left_out.into_iter().map(|(name, _)| name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_layers_win_and_only_layers_are_granted() {
        let base = Env::from_inherited([("A".into(), "1".into()), ("B".into(), "1".into())]);
        let env =
            base.with_vars([("B".to_owned(), "2".to_owned())]).with_vars([("C".to_owned(), " ".to_owned())]);
        assert_eq!(
            (env.get("A"), env.get("B"), env.non_blank("C")),
            (Some("1".into()), Some("2".into()), None)
        );
        assert_eq!(env.plan_vars().keys().collect::<Vec<_>>(), ["B", "C"]);
    }

    #[test]
    fn tokens_are_for_steps_that_name_them() {
        let base = Env::from_inherited([("KEY".into(), "k".into()), ("A".into(), "1".into())]);
        let base = base.with_own_tokens(BTreeSet::from(["KEY".to_owned()]));
        let names = |env: &Env| -> Vec<String> {
            env.child_vars().map(|(name, value)| format!("{}={}", name.display(), value.display())).collect()
        };
        assert_eq!(names(&base), ["A=1"]);
        assert_eq!((base.get("KEY"), base.get_passed("KEY")), (Some("k".into()), Some("k".into())));
        let granted = base.with_vars([("KEY".to_owned(), "$KEY".to_owned())]);
        assert_eq!(names(&granted), ["A=1", "KEY=k"]);
        assert_eq!(granted.get("KEY"), Some("k".into()));
        let own = base.with_vars([("KEY".to_owned(), "mine".to_owned()), ("A".to_owned(), "$A".to_owned())]);
        assert_eq!(names(&own), ["A=$A", "KEY=mine"]);
    }

    #[test]
    fn settings_are_recorded_without_credentials_and_put_back_as_they_were() {
        let env = |vars: &[(&str, &str)]| {
            Env::from_inherited(vars.iter().map(|(name, value)| (name.into(), value.into())))
        };
        let there = env(&[
            ("OPENAI_BASE_URL", "https://ann:pw@h/v1?key=k"),
            ("OPENCLAW_URL", "ann:pw@h"),
            ("LOBSTER_RUN_STATE_KEY", "slot1"),
            ("LOBSTER_LLM_ADAPTER_TOKEN", "t"),
            ("AZURE_OPENAI_ENDPOINT", "https://h?key=k"),
            (
                "LOBSTER_LLM_POOL",
                r#"{"pools":{"p":[{"name":"a","url":"https://ann:pw@h/?api_key=k","headers":{"X-Sub-Key":"k","X-Team":"t"}}]}}"#,
            ),
            ("LOBSTER_LLM_HEADERS", r#"{"Ocp-Apim-Subscription-Key":"k","X-Team":"t"}"#),
        ]);
        let settings = there.lobster_settings();
        assert_eq!(
            Value::Object(settings.clone()),
            json::json!({
                "ANTHROPIC_BASE_URL": null,
                "AZURE_OPENAI_ENDPOINT": "https://h/?key=%E2%80%A6",
                "GEMINI_BASE_URL": null,
                "LOBSTER_LLM_HEADERS": r#"{"Ocp-Apim-Subscription-Key":"…","X-Team":"t"}"#,
                "LOBSTER_LLM_POOL":
                    r#"{"pools":{"p":[{"name":"a","url":"https://h/?api_key=%E2%80%A6","headers":{"X-Sub-Key":"…","X-Team":"t"}}]}}"#,
                "LOBSTER_RUN_STATE_KEY": "slot1",
                "OPENAI_BASE_URL": "https://h/v1?key=%E2%80%A6",
                "OPENCLAW_URL": "h",
            })
        );
        let here = env(&[("ANTHROPIC_BASE_URL", "http://other"), ("LOBSTER_SHELL", "sh")]);
        let again = here.with_settings(&settings);
        assert_eq!(again.lobster_settings(), settings);
        assert_eq!(again.get("LOBSTER_SHELL"), None);
        // A record of an earlier version does not have it.
        assert_eq!(here.with_settings(&Map::new()).get("ANTHROPIC_BASE_URL"), Some("http://other".into()));
    }

    #[test]
    fn oversized_arguments_stay_out_of_the_environment() {
        let args = Map::from_iter([
            ("big".to_owned(), Value::String("x".repeat(200_000))),
            ("k".to_owned(), json::json!([1])),
        ]);
        let vars = argument_vars(&args);
        assert_eq!(vars, [("LOBSTER_ARG_K".to_owned(), "1".to_owned())]);
        let caller = Env::from_inherited([("LOBSTER_ARG_BIG".into(), "of the caller".into())])
            .with_vars([("LOBSTER_ARGS_JSON".to_owned(), "{}".to_owned())]);
        let own = caller.without_vars(&split_argument_vars(&args).1);
        assert_eq!((own.get("LOBSTER_ARG_BIG"), own.get("LOBSTER_ARGS_JSON")), (None, None));
    }
}
