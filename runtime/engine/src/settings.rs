//! What a runtime is made of, and the operator's files that belong to it.

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

/// Where an organisation keeps its policy, unless `LOBSTER_ORG_POLICY` says otherwise.
const ORGANISATION_POLICY: &str = "/etc/lobster/policy.toml";

/// Where policies come from, besides the environment.
#[derive(Clone, Copy, Debug, Default)]
pub struct PolicySources<'s> {
    /// Where the project's file is looked for, there and above: the workflow's directory.
    pub place: Option<&'s Path>,
    /// The file of this one run.
    pub run: Option<&'s Path>,
}

/// What a runtime is made of.
pub struct Settings {
    /// Who reads results.
    pub mode: Mode,
    /// The environment that steps inherit.
    pub env: Vec<(OsString, OsString)>,
    /// Where relative paths start.
    pub cwd: PathBuf,
    /// The commands that pipelines may use.
    pub registry: Registry,
    /// Cancelled when everything should end.
    pub cancel: CancelToken,
    /// Somebody at a terminal, if there is one.
    pub prompter: Option<Box<dyn Prompter>>,
    /// Warnings, retries and the like, a line at a time.
    pub notes: Notes,
    /// Where a person sees what renderers show; none keeps it for the result.
    pub screen: Option<Screen>,
    /// Told when something that may take long begins and ends.
    pub progress: Option<Box<dyn Progress>>,
    /// The operator's command that is told of each new question.
    pub notify: Option<Notify>,
    /// How native processes are started.
    pub sandbox: SandboxConfig,
    /// The program that compiles components, in a process of its own: this executable,
    /// whose `main` calls `component::compile_main`. None compiles them in this process,
    /// where neither a time limit nor a memory limit reaches: for components that are trusted.
    pub compiler: Option<CompilerProgram>,
    /// What native processes may do.
    pub policy: Policy,
    /// The texts that the policy was made of, most trusted first; none for the built-in one.
    pub layers: Vec<LayerText>,
    /// The files that the policy came from.
    pub policy_files: Vec<PolicyFileUsed>,
    /// Where the project's policy was looked for, if there is one.
    pub place: Option<PathBuf>,
    /// Whether that policy was trusted when it was read.
    pub project_is_trusted: Option<bool>,
    /// Where secrets come from, beside what the policy says.
    pub secrets: BTreeMap<String, SecretReference>,
}

impl Settings {
    /// Tool mode in this process's own environment, with all built-in commands and nobody to ask.
    ///
    /// # Errors
    /// When the working directory is gone.
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
            // The harness of unit tests is not a compiler.
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
    /// Puts native commands under these policies, most trusted first; each
    /// later one can only be stricter. Without any, the built-in policy stays.
    /// Gives what a person should hear about it.
    ///
    /// A project's file that nobody trusts may forbid, but what it allows is
    /// asked about; if there is no other policy, so is everything else that
    /// does more than read.
    ///
    /// # Errors
    /// When a file cannot be read or is not a policy. Nothing runs then.
    pub fn use_policies(&mut self, sources: &PolicySources<'_>) -> Result<Vec<String>, Failure> {
        let env = Env::inherited(self.env.iter().cloned());
        let organisation = env.path("LOBSTER_ORG_POLICY").or_else(|| {
            let usual = PathBuf::from(ORGANISATION_POLICY);
            usual.exists().then_some(usual)
        });
        let operator = env.path("LOBSTER_POLICY");
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
            self.policy_files.push(PolicyFileUsed::read(&path, text.as_bytes()));
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

    /// Adds the policy of the project that a place belongs to.
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
        let Some(file) = ProjectPolicy::find(&place).map_err(unreadable)? else { return Ok(Vec::new()) };
        // Whoever named this very file has decided about it already.
        if self.policy_files.iter().any(|known| known.path == file.path) {
            return Ok(Vec::new());
        }
        self.policy_files.push(PolicyFileUsed { path: file.path.clone(), digest: Some(file.digest) });
        self.place = Some(place);
        let trust = match state_dir(&|name| env.bytes(name)) {
            Some(dir) => TrustedPolicies::of(&self.cwd.join(dir))
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
            // The strict defaults are the ceiling that an untrusted file cannot raise.
            let text = "version = 1\n".to_owned();
            layers.push(LayerText { layer: Layer::Organisation, origin: "built in".to_owned(), text });
        }
        let mut warnings = vec![format!(
            "warning: the project's policy {shown} {why}: it may forbid, but what it allows is asked about. \
             Read it, then `lobster policy trust {shown}`"
        )];
        layers.push(layer);
        if let Err(error) = Policy::load_layers(layers) {
            layers.retain(|layer| layer.layer != Layer::Project);
            warnings.push(format!("warning: it cannot be used at all: {error}"));
        }
        Ok(warnings)
    }

    /// Takes over the functions that the program which started lobster lends to this run
    /// (`LOBSTER_HOST_FUNCTIONS`). Nothing else sees how they are reached.
    ///
    /// # Errors
    /// When the variable does not describe functions of a program on this machine.
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
        // The text holds a token, so no message quotes it.
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

    /// Reads the operator's file of secret references: `LOBSTER_SECRETS`, else
    /// `lobster/secrets.toml` in the configuration directory, if it is there.
    ///
    /// # Errors
    /// When a file that was named cannot be read, others may write to it, or it is not what it should be.
    pub fn use_secrets(&mut self) -> Result<(), Failure> {
        let env = Env::inherited(self.env.iter().cloned());
        let named = env.path("LOBSTER_SECRETS").is_some();
        let Some(path) = secrets_file(&env).map(|path| self.cwd.join(path)) else { return Ok(()) };
        let wrong =
            |why: String| Failure::new(Code::Setting, format!("secrets file {}: {why}", path.display()));
        // Below a home that is none (`HOME=/dev/null`, as services have it) there is no file either.
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
        self.policy_files.push(PolicyFileUsed::read(&path, text.as_bytes()));
        Ok(())
    }

    /// Keeps steps from the operator's file of prices, which says what a limit comes to.
    pub fn protect_prices(&mut self) {
        let env = Env::inherited(self.env.iter().cloned());
        let Some(path) = prices_file(|name| env.get(name)) else { return };
        if let Ok(text) = std::fs::read(&path) {
            self.policy_files.push(PolicyFileUsed::read(&path, &text));
        }
    }
}

/// Where the operator names secrets.
fn secrets_file(env: &Env) -> Option<PathBuf> {
    if let Some(path) = env.path("LOBSTER_SECRETS") {
        return Some(path);
    }
    config_file(|name| env.get(name), "secrets.toml")
}

/// The same in words, for whoever must add one.
pub(crate) fn secrets_place(env: &Env) -> String {
    secrets_file(env)
        .map_or_else(|| "the policy".to_owned(), |path| format!("{} or the policy", path.display()))
}
