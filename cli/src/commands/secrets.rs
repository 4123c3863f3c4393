//! `lobster secrets`

use std::io::Write;
use std::path::PathBuf;

use lobster_runtime::json;
use lobster_runtime::runtime::{LoginState, NamedSecret, Runtime};
use lobster_runtime::stage::Mode;
use serde_json::json;

use crate::exit::{CommandError, CommandResult, Exit, print_json};
use crate::prepare;
use crate::render::one_line;
use crate::render::table::{Cell, Room, Table};
use crate::render::units;
use crate::stdout::stdout;

/// Lists the secrets that the operator has configured, and checks that they have values.
///
/// Never prints a value.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster secrets list
  lobster secrets check                        all of them; a password manager may ask
  lobster secrets check --workflow deploy.lobster
  lobster secrets check api_token --json")]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Lists the secrets and where their values come from.
    List {
        /// Prints a JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Looks up the values as a run would. The exit code is 1 if one cannot be found.
    Check {
        /// Only these secrets.
        names: Vec<String>,
        /// Also the secrets that this workflow file grants to its steps.
        #[arg(long, value_name = "FILE")]
        workflow: Option<PathBuf>,
        /// Prints a JSON array.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let runtime = prepare::runtime(Mode::Human)?;
    match &args.task {
        Task::List { json } => list_secrets(&runtime, *json),
        Task::Check { names, workflow, json } => {
            let mut wanted = names.clone();
            if let Some(file) = workflow {
                wanted.extend(named_by(&runtime, file)?);
            } else if names.is_empty() {
                wanted.extend(runtime.named_secrets().0.into_iter().map(|secret| secret.name));
            }
            wanted.sort();
            wanted.dedup();
            check_secrets(&runtime, &wanted, *json)
        }
    }
}

/// The secrets that a workflow file grants.
fn named_by(runtime: &Runtime, file: &std::path::Path) -> Result<Vec<String>, CommandError> {
    let workflow = runtime.read_workflow(file).map_err(|failure| CommandError::failed(failure.message))?;
    Ok(runtime.secrets_of(workflow).into_iter().collect())
}

fn list_secrets(runtime: &Runtime, as_json: bool) -> CommandResult {
    let (secrets, place) = runtime.named_secrets();
    let mut out = stdout();
    if as_json {
        return print_json(&mut out, &json!(secrets));
    }
    if secrets.is_empty() {
        writeln!(out, "no secrets are configured; lobster looks for them in {place}")?;
        return Ok(Exit::OK);
    }
    let mut table = Table::new(&["NAME", "FROM", "STEPS"]);
    for NamedSecret { name, from, hosts, is_allowed, login } in &secrets {
        let from =
            login.as_ref().map_or_else(|| from.clone(), |login| format!("{from}: {}", describe_login(login)));
        let steps = match (hosts.as_slice(), *is_allowed) {
            ([], true) if login.is_some() => "only as a credential for its server".into(),
            ([], true) => Cell::state_word("allow"),
            ([], false) => Cell::state_word("deny: not in [sandbox.env] secrets"),
            (hosts, _) => format!("only as a credential for {}", hosts.join(", ")).as_str().into(),
        };
        table.push(vec![one_line(name).as_str().into(), one_line(&from).as_str().into(), steps]);
    }
    table.print_to(&mut out, Room::of_stdout())?;
    Ok(Exit::OK)
}

/// The state of a login, in words.
fn describe_login(login: &LoginState) -> String {
    match login {
        LoginState::LoggedIn { expires_at, is_renewed } => {
            let until = expires_at.map(|at| units::format_time(at.saturating_mul(1000), true));
            match (until, *is_renewed) {
                (Some(until), true) => format!("logged in, token until {until}, then renewed"),
                (Some(until), false) => format!("logged in, token until {until}"),
                (None, true) => "logged in, token renewed when it is refused".to_owned(),
                (None, false) => "logged in".to_owned(),
            }
        }
        LoginState::LoggedOut => "not logged in".to_owned(),
        LoginState::Unknown { why } => why.clone(),
    }
}

fn check_secrets(runtime: &Runtime, names: &[String], as_json: bool) -> CommandResult {
    let found: Vec<(&String, Option<String>)> = names
        .iter()
        .map(|name| (name, runtime.find_secret(name).err().map(|failure| failure.message)))
        .collect();
    // The states after the attempts.
    let (known, _) = runtime.named_secrets();
    let login = |name: &str| {
        let secret = known.iter().find(|secret| secret.name == *name);
        secret.and_then(|secret| secret.login.as_ref())
    };
    let mut out = stdout();
    if as_json {
        let entry = |(name, problem): &(&String, Option<String>)| {
            let mut entry = json!({"name": name, "ok": problem.is_none(), "problem": problem});
            if let Some(login) = login(name) {
                entry["login"] = json!(login);
            }
            entry
        };
        let all: Vec<_> = found.iter().map(entry).collect();
        writeln!(out, "{}", json::pretty(&all))?;
    } else {
        for (name, problem) in &found {
            match problem {
                None => {
                    let login =
                        login(name).map(|login| format!(", {}", describe_login(login))).unwrap_or_default();
                    writeln!(out, "{}: ok{login}", one_line(name))?;
                }
                Some(problem) => writeln!(out, "{}", one_line(problem))?,
            }
        }
        if found.is_empty() {
            writeln!(out, "no secrets to check")?;
        }
    }
    Ok(if found.iter().all(|(_, problem)| problem.is_none()) { Exit::OK } else { Exit::FAILED })
}
