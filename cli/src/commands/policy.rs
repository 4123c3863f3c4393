//! `lobster policy`

mod init;
mod trust;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use lobster_runtime::json;
use lobster_runtime::policy::{
    Dialect, LeastChanges, Observed, Policy, PolicyFile, Proposal, Shell, Verdict,
};
use lobster_runtime::replay::{observed_commands, rules_of_approvals};
use lobster_runtime::runtime::{PolicySources, Runtime};
use lobster_runtime::stage::Mode;
use lobster_runtime::store::{RunFilter, RunId};

use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::render::one_line;
use crate::render::pager::PagedOutput;
use crate::render::print_to_stderr;
use crate::render::table::{Room, state_style};
use crate::stdout::stdout;

/// Writes, checks and explains the rules for native commands.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

/// Help of `policy test`: the format of a corpus.
const CORPUS: &str = "A corpus has one case a line:

  {\"id\": \"status\", \"command\": \"git status\", \"expect\": \"allow\", \"why\": \"only reads\"}
  {\"id\": \"push\", \"command\": \"git push\", \"policy_profile\": \"readonly\", \"expect\": \"deny\"}

`expect` is allow, ask or deny. `why`, `cwd` and `policy_profile` (readonly, default, locked) are optional.

Examples:
  lobster policy test --policy lobster.policy.toml corpus.jsonl";

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Prints a policy file to start from.
    ///
    /// It has rules for the project's tools, detected from its files. At a terminal it asks.
    Init {
        /// The kind of project.
        #[arg(long, value_enum)]
        kind: Option<init::ProjectKind>,
    },
    /// Checks the syntax and the examples of a policy file, and lists what a reviewer should look at.
    Check {
        /// The policy file (default: the nearest lobster.policy.toml in this directory or above).
        file: Option<PathBuf>,
        /// Also lists the commands of these runs that the policy would have stopped, and the rights in it
        /// that they did not use.
        #[arg(long, value_name = "RUN", num_args = 1..)]
        against: Vec<String>,
    },
    /// Decides every command of a corpus and compares the verdicts with the expected ones. Runs nothing.
    #[command(after_help = CORPUS)]
    Test {
        /// The corpus, a file of JSON Lines.
        corpus: PathBuf,
        /// The policy (default: `example.toml` beside the corpus).
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
        /// The shell of the commands: dash, ash (busybox) or bash.
        #[arg(long, value_name = "SHELL", default_value = "bash")]
        shell: Dialect,
        /// Prints a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Explains the decision about one command.
    #[command(after_help = "Examples:
  lobster policy explain 'git push | tee log'
  lobster policy explain -- git push --force")]
    Explain {
        /// The command: shell text as one word, or a program and its arguments.
        #[arg(required = true, value_name = "COMMAND")]
        words: Vec<String>,
        /// The policy (default: the one in force here).
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
        /// The shell of the command: dash, ash (busybox) or bash. By default the shell that would run it.
        #[arg(long, value_name = "SHELL")]
        shell: Option<Dialect>,
        /// Prints a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Proposes the smallest policy that covers the commands of recorded runs.
    #[command(after_help = "Examples:
  lobster policy suggest --from @ > lobster.policy.toml
  lobster policy suggest --from @ triage@- triage@-2")]
    Suggest {
        /// The runs.
        #[arg(long, value_name = "RUN", num_args = 1.., required_unless_present = "approved")]
        from: Vec<String>,
        /// Prints instead the rules that approvals proposed (remember = "policy"), in these runs or in all.
        #[arg(long)]
        approved: bool,
    },
    /// Trusts a project's policy file until it changes.
    ///
    /// Prints what the file allows, and asks at the terminal. A run cannot do this.
    Trust {
        /// The file (default: the nearest lobster.policy.toml in this directory or above).
        file: Option<PathBuf>,
        /// Does not ask; for scripts that set up machines.
        #[arg(long)]
        yes: bool,
        /// Lists the trusted files.
        #[arg(long, conflicts_with = "file")]
        list: bool,
    },
    /// No longer trusts a project's policy file.
    Untrust {
        /// The file (default: the nearest lobster.policy.toml in this directory or above).
        file: Option<PathBuf>,
    },
    /// Prints the JSON Schema of policy files.
    Schema,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let mut out = stdout();
    match &args.action {
        Action::Init { kind } => return init::run(*kind, &mut out),
        Action::Check { file, against } => return check_policy(file.as_deref(), against, &mut out),
        Action::Test { corpus, policy, shell, json } => {
            return test_policy(corpus, policy.as_deref(), *shell, *json, &mut out);
        }
        Action::Trust { list: true, .. } => trust::list_trusted(&mut out)?,
        Action::Trust { file, yes, .. } => return trust::trust_file(file.as_deref(), *yes, &mut out),
        Action::Untrust { file } => trust::untrust_file(file.as_deref(), &mut out)?,
        Action::Explain { words, policy, shell, json } => {
            let place = PolicySources { place: Some(Path::new(".")), run: None };
            let runtime = prepare::runtime_under(Mode::Human, &place)?;
            let policy = policy.as_deref().map_or_else(|| Ok(runtime.policy().clone()), load_policy)?;
            let mut env = runtime.decision_env_under(&policy);
            if let Some(dialect) = shell {
                env = env.with_shell(Shell::example(*dialect));
            }
            let decision = match words.as_slice() {
                [text] => policy.decide(&Proposal::shell(text), &env),
                argv => policy.decide(&Proposal::argv(argv.iter().cloned()), &env),
            };
            if *json {
                writeln!(out, "{}", json::pretty(&decision))?;
            } else {
                let room = Room::of_stdout();
                let mut paged = PagedOutput::through_pager();
                for (index, line) in decision.explain(&env).lines().enumerate() {
                    let style = if index == 0 { state_style(line) } else { anstyle::Style::new() };
                    writeln!(paged, "{}", room.paint(style, line))?;
                }
                paged.flush()?;
            }
            return Ok(if decision.verdict == Verdict::Deny { Exit::FAILED } else { Exit::OK });
        }
        Action::Suggest { from, approved: true } => suggest_approved(from, &mut out)?,
        Action::Suggest { from, approved: false } => {
            let runtime = prepare::runtime(Mode::Human)?;
            let suggestion = Policy::suggest(&observe_runs(&runtime, from)?, &runtime.decision_env());
            write!(out, "{}", suggestion.toml)?;
            for stopped in &suggestion.uncovered {
                let command = one_line(&stopped.argv.join(" "));
                let what = if stopped.verdict == Verdict::Deny { "still denied" } else { "still asks" };
                print_to_stderr(&format!("{what}: {command}: {}", one_line(&stopped.reason)));
            }
            if suggestion.uncovered.is_empty() {
                print_to_stderr("checked against these runs: it allows all their commands");
            }
        }
        Action::Schema => writeln!(out, "{}", json::pretty(&PolicyFile::json_schema()))?,
    }
    Ok(Exit::OK)
}

fn load_policy(path: &Path) -> Result<Policy, CommandError> {
    let text = std::fs::read_to_string(path).map_err(CommandError::failed_at(path))?;
    Policy::load(&text, &path.display().to_string()).map_err(CommandError::failed)
}

fn observe_runs(runtime: &Runtime, runs: &[String]) -> Result<Vec<Observed>, CommandError> {
    let store = runtime.store()?;
    let env = runtime.decision_env();
    runs.iter()
        .map(|run| {
            let id = crate::which::run(&store, run)?;
            Ok(observed_commands(&store, id, &env)?)
        })
        .collect()
}

/// Prints each rule once, with the runs whose approvals proposed it.
fn suggest_approved(from: &[String], out: &mut impl Write) -> Result<(), CommandError> {
    let runtime = prepare::runtime(Mode::Human)?;
    let store = runtime.store()?;
    let runs: Vec<RunId> = if from.is_empty() {
        store.list_runs(&RunFilter::default())?.into_iter().map(|run| run.id).collect()
    } else {
        from.iter().map(|run| crate::which::run(&store, run)).collect::<Result<_, _>>()?
    };
    let mut rules: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for run in runs {
        for rule in rules_of_approvals(&store, run)? {
            rules.entry(rule).or_default().push(run.to_string());
        }
    }
    if rules.is_empty() {
        print_to_stderr("no approval of these runs proposed a rule");
    }
    for (rule, runs) in rules {
        writeln!(out, "# approved in {}\n{rule}", runs.join(", "))?;
    }
    Ok(())
}

fn check_policy(file: Option<&Path>, against: &[String], out: &mut impl Write) -> CommandResult {
    let file = &match file {
        Some(file) => file.to_owned(),
        None => trust::find_policy(None)?.path,
    };
    let policy = load_policy(file)?;
    let runtime = prepare::runtime(Mode::Human)?;
    let env = runtime.decision_env();
    for lint in policy.lint(&env) {
        let rule = lint.rule.map(|rule| format!(" (rule {rule})")).unwrap_or_default();
        writeln!(out, "note{rule}: {}", lint.message)?;
    }
    for (who, least) in least_changes(&policy) {
        writeln!(out, "changes to files of {}: {}", one_line(&who), least.describe())?;
    }
    if !against.is_empty() {
        let difference = policy.check_against(&observe_runs(&runtime, against)?, &env);
        for stopped in &difference.stopped {
            let command = one_line(&stopped.argv.join(" "));
            writeln!(
                out,
                "{}: {command} (run {}): {}",
                stopped.verdict.as_str(),
                stopped.run,
                one_line(&stopped.reason)
            )?;
        }
        for unused in difference.unused_rules.iter().chain(&difference.unused_rights) {
            writeln!(out, "unused: {}", one_line(unused))?;
        }
    }
    writeln!(out, "{}: a policy, blake3:{}", file.display(), policy.digest())?;
    Ok(Exit::OK)
}

/// The steps whose file changes the policy requires to be staged or reviewed, with the required mode.
fn least_changes(policy: &Policy) -> Vec<(String, LeastChanges)> {
    let file = policy.file();
    let (all, agents) = (file.sandbox.changes, file.sandbox.agent_changes);
    let rules = file.rules.iter().map(|rule| (format!("rule {}", rule.id), rule.changes));
    let mut demands = vec![("every step".to_owned(), all), ("runs that agents start".to_owned(), agents)];
    demands.extend(rules);
    demands.retain(|(_, least)| *least != LeastChanges::Direct);
    demands
}

fn test_policy(
    corpus: &Path,
    policy: Option<&Path>,
    shell: Dialect,
    as_json: bool,
    out: &mut impl Write,
) -> CommandResult {
    let policy = match policy {
        Some(path) => load_policy(path)?,
        None if corpus.extension().is_some_and(|e| e == "toml") => {
            return Err(CommandError::usage(format!("{} is not a corpus", corpus.display()))
                .with_hint(format!("lobster policy test --policy {} CORPUS.jsonl", corpus.display())));
        }
        // The policy of a corpus is in the same directory.
        None => load_policy(&corpus.with_file_name("example.toml"))
            .map_err(|error| error.with_hint("name the policy with --policy FILE"))?,
    };
    let report = policy.test_corpus(corpus, shell).map_err(CommandError::failed)?;
    if as_json {
        writeln!(out, "{}", json::pretty(&report))?;
    } else {
        for case in report.cases.iter().filter(|case| !case.has_passed()) {
            writeln!(
                out,
                "{}: {}, expected {}: {}",
                case.id,
                case.verdict.as_str(),
                case.expect.as_str(),
                case.reason
            )?;
        }
        writeln!(out, "{} passed, {} failed", report.passed, report.failed)?;
    }
    Ok(if report.failed == 0 { Exit::OK } else { Exit::FAILED })
}
