//! Makes a rule of the operator's policy from a policy question.
//!
//! The rule is a draft until it is kept: it is checked against the files that apply to a new run, and
//! against the recorded commands of earlier runs. Only a rule that removes this question is kept.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;

use lobster_runtime::engine::AskedCommand;
use lobster_runtime::policy::{Command, DecisionEnv, LayerText, Observed, Policy, Proposal, Verdict};
use lobster_runtime::project_policy::{ProjectPolicy, Trust, TrustedPolicies};
use lobster_runtime::replay::observed_commands;
use lobster_runtime::runtime::{PolicySources, Runtime, Settings};
use lobster_runtime::setting::Setting;
use lobster_runtime::store::RunFilter;

use crate::whole_files::replace_file;

/// The newest runs that a rule is checked against.
const RUNS: usize = 200;

/// The sources of a run's policies, in addition to the environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    place: Option<PathBuf>,
    run: Option<PathBuf>,
}

impl From<&PolicySources<'_>> for Sources {
    fn from(sources: &PolicySources<'_>) -> Self {
        Self { place: sources.place.map(Path::to_owned), run: sources.run.map(Path::to_owned) }
    }
}

/// A draft of a rule for the command of one question.
pub(super) struct Draft {
    /// The policy of a new run.
    policy: Policy,
    layers: Vec<LayerText>,
    env: DecisionEnv,
    proposal: Proposal,
    seen: Vec<Observed>,
    state_dir: PathBuf,
    /// The current text of the rule, in the form of a policy file.
    pub(super) text: String,
}

/// The effect of a draft.
pub(super) struct Weighed {
    /// The file to change, and its content with the rule.
    pub(super) file: PathBuf,
    layer: usize,
    content: String,
    /// Other recorded commands that this rule would allow.
    pub(super) also: Vec<Vec<String>>,
}

impl Draft {
    /// The narrowest rule for the command of the question.
    ///
    /// # Errors
    /// No rule is possible, or something cannot be read.
    pub(super) fn for_command(asked: &AskedCommand, sources: &Sources) -> Result<Self, String> {
        let mut settings = Settings::from_process().map_err(|error| error.to_string())?;
        let from = PolicySources { place: sources.place.as_deref(), run: sources.run.as_deref() };
        settings.use_policies(&from).map_err(|failure| failure.message)?;
        let layers = settings.layers.clone();
        if layers.is_empty() {
            return Err("no policy applies to a new run; `lobster policy init` writes one".to_owned());
        }
        let runtime = Runtime::new(settings).map_err(|failure| failure.message)?;
        let mut env = runtime.decision_env();
        env.workspace = asked.workspace.display().to_string();
        let policy = runtime.policy().clone();
        let text = policy.narrowest_rules(&asked.proposal, &env)?;
        let store = runtime.store().map_err(|error| error.to_string())?;
        let filter = RunFilter { limit: RUNS, ..RunFilter::default() };
        let runs = store.list_runs(&filter).map_err(|error| error.to_string())?;
        // Unreadable old runs are ignored.
        let seen = runs.iter().filter_map(|run| observed_commands(&store, run.id, &env).ok()).collect();
        let proposal = asked.proposal.clone();
        let state_dir = runtime.state_dir().to_owned();
        Ok(Self { policy, layers, env, proposal, seen, state_dir, text })
    }

    /// Checks the text against the files: picks the least trusted file in which the rule removes the
    /// question.
    ///
    /// # Errors
    /// The text is invalid, or a policy would still ask or refuse.
    pub(super) fn check_rule(&self) -> Result<Weighed, String> {
        let mut stopped = None;
        for layer in (0..self.layers.len()).rev() {
            let path = PathBuf::from(&self.layers[layer].origin);
            // The strict defaults are not in a file.
            if !path.is_file() {
                continue;
            }
            let mut layers = self.layers.clone();
            let before = &self.layers[layer].text;
            let gap = if before.is_empty() || before.ends_with('\n') { "\n" } else { "\n\n" };
            let content = format!("{before}{gap}{}\n", self.text.trim_end());
            layers[layer].text.clone_from(&content);
            let wider = Policy::load_layers(&layers).map_err(|error| error.to_string())?;
            let decision = wider.decide(&self.proposal, &self.env);
            if decision.verdict == Verdict::Allow {
                let mut also = self.policy.newly_allowed(&wider, &self.seen, &self.env);
                also.retain(|argv| !self.is_asked(argv));
                return Ok(Weighed { file: path, layer, content, also });
            }
            stopped = Some(decision.message);
        }
        Err(match stopped {
            Some(why) => format!("even with this rule it would be stopped: {why}"),
            None => "the policy is not in a file that a rule could be added to".to_owned(),
        })
    }

    fn is_asked(&self, argv: &[String]) -> bool {
        match &self.proposal.command {
            Command::Argv(words) => words == argv,
            // The shell's own words before the text.
            Command::Shell(text) => argv.last() == Some(text),
        }
    }

    /// Writes the rule to its file. If a project's file was trusted, it stays trusted.
    ///
    /// # Errors
    /// The file has changed since the question came, or cannot be written.
    pub(super) fn save_rule(&self, weighed: &Weighed) -> Result<(), String> {
        let shown = weighed.file.display();
        let file = ProjectPolicy::read_file(&weighed.file).map_err(|error| format!("{shown}: {error}"))?;
        if file.text != self.layers[weighed.layer].text {
            return Err(format!("{shown} was changed in the meantime; nothing was written"));
        }
        let trusted = TrustedPolicies::in_state_dir(&self.state_dir);
        let was_trusted = trusted.trust_in(&file).map_err(|error| error.to_string())? == Trust::Trusted;
        replace_file(&weighed.file, &weighed.content).map_err(|error| format!("{shown}: {error}"))?;
        if was_trusted {
            let file =
                ProjectPolicy::read_file(&weighed.file).map_err(|error| format!("{shown}: {error}"))?;
            if file.text == weighed.content {
                trusted.trust_file(&file).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// Lets the person edit the text in an editor: `VISUAL`, `EDITOR`, else `vi`.
    ///
    /// # Errors
    /// The editor cannot be started or fails; the text is then unchanged.
    pub(super) fn edit_text(&mut self) -> Result<(), String> {
        let failed = |error: io::Error| format!("the rule cannot be edited: {error}");
        let set = |name: &'static str| {
            Setting::any_text(name).read_env(|name| std::env::var_os(name)).map_err(|error| error.to_string())
        };
        let editor = set("VISUAL")?.or(set("EDITOR")?).unwrap_or_else(|| "vi".to_owned());
        let file = tempfile::Builder::new().prefix("lobster-rule-").suffix(".toml").tempfile();
        let file = file.map_err(failed)?.into_temp_path();
        fs::write(&file, &self.text).map_err(failed)?;
        // The variables contain shell text with options.
        let mut command = process::Command::new("/bin/sh");
        command.args(["-c", &format!("{editor} \"$1\""), "editor"]).arg(&file);
        let status = command.status().map_err(failed)?;
        if !status.success() {
            return Err(format!("the editor `{editor}` failed ({status}); the rule is unchanged"));
        }
        self.text = fs::read_to_string(&file).map_err(failed)?;
        Ok(())
    }
}
