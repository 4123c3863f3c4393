//! The parts of a runtime, and the operator's files for it.

use lobster_base::code::Code;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use lobster_component::CompilerProgram;

use crate::env::Env;
use crate::envelope::Failure;
use crate::known_settings::PROJECT_POLICY;
use crate::project_policy::{FILE_NAME, ProjectPolicy, Trust, TrustedPolicies};
pub use crate::surroundings::PolicyFileUsed;
use crate::{Notes, Notify, Progress, Prompter, Screen};
use lobster_base::cancel::CancelToken;
use lobster_base::config::config_file;
use lobster_models::http::{is_loopback, parse_url};
use lobster_models::pricing::prices_file;
use lobster_policy::{Layer, LayerText, Policy, SecretReference, parse_references};
use lobster_sandbox::SandboxConfig;
use lobster_stage::{HOST_FUNCTIONS, HostFunctions, Mode, Registry};
use lobster_store::state_dir;

/// Path of an organisation's policy, unless `LOBSTER_ORG_POLICY` names another.
const ORGANISATION_POLICY: &str = "/etc/lobster/policy.toml";

/// Sources of policies besides the environment.
#[derive(Clone, Copy, Debug, Default)]
pub struct PolicySources<'s> {
    /// The workflow's directory. The project's file is searched there and above.
    pub place: Option<&'s Path>,
    /// The file for this one run.
    pub run: Option<&'s Path>,
}

/// The parts of a runtime.
pub struct Settings {
    /// The reader of results.
    pub mode: Mode,
    /// The environment that steps inherit.
    pub env: Vec<(OsString, OsString)>,
    /// Start of relative paths.
    pub cwd: PathBuf,
    /// The commands that pipelines may use.
    pub registry: Registry,
    /// Cancelled when all work has to end.
    pub cancel: CancelToken,
    /// A person at a terminal, if there is one.
    pub prompter: Option<Box<dyn Prompter>>,
    /// Receives warnings, retries and the like, one line at a time.
    pub notes: Notes,
    /// Shows the output of renderers to a person; `None` keeps it for the result.
    pub screen: Option<Screen>,
    /// Receives the beginning and the end of work that may take long.
    pub progress: Option<Box<dyn Progress>>,
    /// The operator's command that is notified of each new question.
    pub notify: Option<Notify>,
    /// The way in which native processes are started.
    pub sandbox: SandboxConfig,
    /// The program that compiles components in its own process: this executable, whose `main` calls
    /// `component::compile_main`. With `None` they are compiled in this process without any limit of time or memory,
    /// which is only for trusted components.
    pub compiler: Option<CompilerProgram>,
    /// The rules for native processes.
    pub policy: Policy,
    /// The texts that the policy was made of, most trusted first; empty for the built-in policy.
    pub layers: Vec<LayerText>,
    /// The files that the policy came from.
    pub policy_files: Vec<PolicyFileUsed>,
    /// The directory from which the project's policy was searched, if there is one.
    pub place: Option<PathBuf>,
    /// True if that policy was trusted when it was read.
    pub project_is_trusted: Option<bool>,
    /// The sources of secrets besides those in the policy.
    pub secrets: BTreeMap<String, SecretReference>,
}

impl Settings {
    /// Tool mode in this process's own environment, with all built-in commands and without a prompt.
    ///
    /// # Errors
    /// If the working directory does not exist.
    pub fn from_process() -> io::Result<Self> {
        Ok(Self::in_directory(std::env::current_dir()?))
    }

    /// The same, in another directory than this process.
    #[must_use]
    pub fn in_directory(cwd: PathBuf) -> Self {
        Self {
            mode: Mode::Tool,
            env: std::env::vars_os().collect(),
            cwd,
            registry: lobster_stages::builtin(),
            cancel: CancelToken::new(),
            prompter: None,
            notes: Box::new(|_| {}),
            screen: None,
            progress: None,
            notify: None,
            sandbox: SandboxConfig::default(),
            // The test harness cannot compile components.
            compiler: (!cfg!(test)).then(CompilerProgram::default),
            policy: Policy::builtin(),
            layers: Vec::new(),
            policy_files: Vec::new(),
            place: None,
            project_is_trusted: None,
            secrets: BTreeMap::new(),
        }
    }
}

impl Settings {
    /// Puts native commands under these policies, most trusted first; each later one can only be stricter. Without
    /// any, the built-in policy stays. Returns the warnings for a person.
    ///
    /// A project's file that is not trusted may deny commands, but commands that it allows need an approval. If there
    /// is no other policy, so does everything else that does more than read.
    ///
    /// # Errors
    /// If a file cannot be read or is not a policy. Nothing runs then.
    pub fn use_policies(&mut self, sources: &PolicySources<'_>) -> Result<Vec<String>, Failure> {
        let env = Env::from_inherited(self.env.iter().cloned());
        let organisation = env.get_path("LOBSTER_ORG_POLICY").or_else(|| {
            let usual = PathBuf::from(ORGANISATION_POLICY);
            usual.exists().then_some(usual)
        });
        let operator = env.get_path("LOBSTER_POLICY");
        let mut layers = Vec::new();
        let named = [
            (Layer::Organisation, organisation),
            (Layer::Organisation, operator),
            (Layer::Run, sources.run.map(Path::to_owned)),
        ];
        for (layer, path) in named {
            let Some(path) = path else { continue };
            let path = self.cwd.join(path);
            let text = std::fs::read_to_string(&path).map_err(|error| {
                Failure::new(Code::Setting, format!("cannot read the policy {}: {error}", path.display()))
            })?;
            self.policy_files.push(PolicyFileUsed::from_content(&path, text.as_bytes()));
            layers.push(LayerText { layer, origin: path.display().to_string(), text });
        }
        let place = match env.value_of(&PROJECT_POLICY)? {
            Some(false) => None,
            Some(true) | None => sources.place,
        };
        let warnings = self.use_project(place, &env, &mut layers)?;
        if !layers.is_empty() {
            self.policy = Policy::load_layers(&layers)
                .map_err(|error| Failure::new(Code::Setting, error.to_string()))?;
        }
        self.layers = layers;
        Ok(warnings)
    }

    /// Adds the policy of the project that contains `place`.
    fn use_project(
        &mut self,
        place: Option<&Path>,
        env: &Env,
        layers: &mut Vec<LayerText>,
    ) -> Result<Vec<String>, Failure> {
        let Some(place) = place.map(|place| self.cwd.join(place)) else { return Ok(Vec::new()) };
        let unreadable = |error: io::Error| {
            Failure::new(Code::Setting, format!("cannot read the project's policy {FILE_NAME}: {error}"))
        };
        let Some(file) = ProjectPolicy::find_nearest(&place).map_err(unreadable)? else {
            return Ok(Vec::new());
        };
        // The operator named this file and so has already decided about it.
        if self.policy_files.iter().any(|known| known.path == file.path) {
            return Ok(Vec::new());
        }
        self.policy_files.push(PolicyFileUsed { path: file.path.clone(), digest: Some(file.digest) });
        self.place = Some(place);
        let trust = match state_dir(&|name| env.get_bytes(name)) {
            Some(dir) => TrustedPolicies::in_state_dir(&self.cwd.join(dir))
                .trust_in(&file)
                .map_err(|error| Failure::new(Code::Store, error.to_string()))?,
            None => Trust::Unknown,
        };
        self.project_is_trusted = Some(trust == Trust::Trusted);
        let shown = file.path.display().to_string();
        let layer = LayerText { layer: Layer::Project, origin: shown.clone(), text: file.text };
        let why = match trust {
            Trust::Trusted => {
                layers.push(layer);
                return Ok(Vec::new());
            }
            Trust::Unknown => "is not trusted".to_owned(),
            Trust::Changed { trusted_at } => format!("has changed since it was trusted ({trusted_at})"),
        };
        if !layers.iter().any(|layer| layer.layer == Layer::Organisation) {
            // The strict defaults are the ceiling for an untrusted file.
            let text = "version = 1\n".to_owned();
            layers.push(LayerText { layer: Layer::Organisation, origin: "built in".to_owned(), text });
        }
        let mut warnings = vec![format!(
            "warning: the project's policy {shown} {why}: it may deny commands, but what it allows needs approval. \
             Read it, then `lobster policy trust {shown}`"
        )];
        layers.push(layer);
        if let Err(error) = Policy::load_layers(layers) {
            layers.retain(|layer| layer.layer != Layer::Project);
            warnings.push(format!("warning: it cannot be used at all: {error}"));
        }
        Ok(warnings)
    }

    /// Takes over the functions that the program which started lobster lends to this run (`LOBSTER_HOST_FUNCTIONS`).
    /// Nothing else sees their address and token.
    ///
    /// # Errors
    /// If the variable does not describe functions of a program on this machine.
    pub fn use_host_functions(&mut self) -> Result<(), Failure> {
        let Some(place) = self.env.iter().position(|(name, _)| name == HOST_FUNCTIONS) else {
            return Ok(());
        };
        let (_, text) = self.env.swap_remove(place);
        if text.to_str().is_some_and(|text| text.trim().is_empty()) {
            return Ok(());
        }
        let wrong =
            |why: &str| Failure::new(Code::Setting, format!("{HOST_FUNCTIONS} cannot be used: {why}"));
        // The text contains a token, so no message quotes it.
        let functions: HostFunctions = text
            .to_str()
            .and_then(|text| serde_json::from_str(text).ok())
            .ok_or_else(|| wrong("it is not JSON with url, token, commands and adapters"))?;
        if !parse_url(&functions.url).is_some_and(|url| is_loopback(&url)) {
            return Err(wrong("its url is not an address of this machine"));
        }
        self.registry = lobster_stages::with_host_functions(std::mem::take(&mut self.registry), functions);
        Ok(())
    }

    /// Reads the operator's file of secret references: `LOBSTER_SECRETS`, else `lobster/secrets.toml` in the
    /// configuration directory, if that exists.
    ///
    /// # Errors
    /// If a named file cannot be read, others may write to it, or its content is invalid.
    pub fn use_secrets(&mut self) -> Result<(), Failure> {
        let env = Env::from_inherited(self.env.iter().cloned());
        let named = env.get_path("LOBSTER_SECRETS").is_some();
        let Some(path) = secrets_file(&env).map(|path| self.cwd.join(path)) else { return Ok(()) };
        let wrong =
            |why: String| Failure::new(Code::Setting, format!("secrets file {}: {why}", path.display()));
        // A home that is not a directory (services have `HOME=/dev/null`) has no such file either.
        let is_absent = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        };
        let file = match std::fs::File::open(&path) {
            Err(error) if is_absent(&error) && !named => return Ok(()),
            other => other.map_err(|error| {
                let way_out = if named { "" } else { "; LOBSTER_SECRETS names another one" };
                wrong(format!("cannot be read: {error}{way_out}"))
            })?,
        };
        let mode = file.metadata().map_err(|error| wrong(error.to_string()))?.permissions().mode();
        if mode & 0o022 != 0 {
            let why = "others may write to it, and it names commands that lobster runs; `chmod go-w` it";
            return Err(wrong(why.to_owned()));
        }
        let text = io::read_to_string(file).map_err(|error| wrong(format!("cannot be read: {error}")))?;
        self.secrets = parse_references(&text, &path.display().to_string())
            .map_err(|error| Failure::new(Code::Setting, error.to_string()))?;
        self.policy_files.push(PolicyFileUsed::from_content(&path, text.as_bytes()));
        Ok(())
    }

    /// Protects the operator's price file from steps, since limits depend on it.
    pub fn protect_prices(&mut self) {
        let env = Env::from_inherited(self.env.iter().cloned());
        let Some(path) = prices_file(|name| env.get(name)) else { return };
        if let Ok(text) = std::fs::read(&path) {
            self.policy_files.push(PolicyFileUsed::from_content(&path, &text));
        }
    }
}

/// The operator's file of secrets.
fn secrets_file(env: &Env) -> Option<PathBuf> {
    if let Some(path) = env.get_path("LOBSTER_SECRETS") {
        return Some(path);
    }
    config_file(|name| env.get(name), "secrets.toml")
}

/// The same in words, for a person who has to add a secret.
pub(crate) fn secrets_place(env: &Env) -> String {
    secrets_file(env)
        .map_or_else(|| "the policy".to_owned(), |path| format!("{} or the policy", path.display()))
}
