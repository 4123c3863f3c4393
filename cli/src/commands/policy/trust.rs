//! `lobster policy trust` and `untrust`: record a person's trust in a project's policy.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use lobster_runtime::policy::{Effect, LeastChanges, Policy};
use lobster_runtime::project_policy::{FILE_NAME, ProjectPolicy, Trust, TrustedPolicies};
use lobster_runtime::runtime::Runtime;
use lobster_runtime::stage::Mode;

use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::which;

pub(super) fn trust_file(file: Option<&Path>, yes: bool, out: &mut impl Write) -> CommandResult {
    prepare::refuse_inside_a_run("trust a policy")?;
    if !yes && !io::stdin().is_terminal() {
        return Err(CommandError::failed("cannot ask: standard input is not a terminal")
            .with_hint("run it at a terminal; --yes is for operators who have read the file"));
    }
    let runtime = prepare::runtime(Mode::Human)?;
    prepare::refuse_agents(&runtime, "trust a policy")?;
    let file = find_policy(file)?;
    let shown = file.path.display().to_string();
    let policy = Policy::load(&file.text, &shown).map_err(CommandError::failed)?;
    let trusted = TrustedPolicies::in_state_dir(runtime.state_dir());
    match trusted.trust_in(&file)? {
        Trust::Trusted => {
            writeln!(out, "{shown} is trusted already")?;
            return Ok(Exit::OK);
        }
        Trust::Changed { trusted_at } => writeln!(out, "{shown} has changed since {trusted_at}")?,
        Trust::Unknown => writeln!(out, "{shown}")?,
    }
    print_rights(&runtime, &policy, out)?;
    if !yes {
        write!(out, "Trust these bytes (blake3:{})? [y/N] ", file.digest.short())?;
        out.flush()?;
        if !which::reads_yes()? {
            writeln!(out, "not trusted")?;
            return Ok(Exit::FAILED);
        }
    }
    trusted.trust_file(&file)?;
    writeln!(out, "trusted blake3:{}, until the file changes", file.digest)?;
    Ok(Exit::OK)
}

pub(super) fn untrust_file(file: Option<&Path>, out: &mut impl Write) -> Result<(), CommandError> {
    let runtime = prepare::runtime(Mode::Human)?;
    // A missing file can be removed from the list as well.
    let path = match file {
        Some(path) => std::fs::canonicalize(path).or_else(|_| std::path::absolute(path))?,
        None => find_policy(None)?.path,
    };
    let known = TrustedPolicies::in_state_dir(runtime.state_dir()).untrust_file(&path)?;
    let what = if known { "is no longer trusted" } else { "was not trusted" };
    writeln!(out, "{} {what}", path.display())?;
    Ok(())
}

pub(super) fn list_trusted(out: &mut impl Write) -> Result<(), CommandError> {
    let runtime = prepare::runtime(Mode::Human)?;
    let all = TrustedPolicies::in_state_dir(runtime.state_dir()).trusted_files()?;
    for known in &all {
        let state = match ProjectPolicy::read_file(&known.path) {
            Ok(file) if file.digest == known.digest => "trusted",
            Ok(_) => "changed",
            Err(_) => "gone",
        };
        writeln!(out, "{state:<8} {}  {}", known.at, known.path.display())?;
    }
    if all.is_empty() {
        writeln!(out, "no policy of a project is trusted")?;
    }
    Ok(())
}

pub(super) fn find_policy(file: Option<&Path>) -> Result<ProjectPolicy, CommandError> {
    match file {
        Some(path) => ProjectPolicy::read_file(path).map_err(CommandError::failed_at(path)),
        None => {
            let nearest = ProjectPolicy::find_nearest(Path::new("."));
            nearest.map_err(CommandError::failed_at(Path::new(FILE_NAME)))?.ok_or_else(|| {
                CommandError::failed(format!("there is no {FILE_NAME} in this directory or above"))
            })
        }
    }
}

/// Prints the rights that the file grants.
fn print_rights(runtime: &Runtime, policy: &Policy, out: &mut impl Write) -> io::Result<()> {
    let file = policy.file();
    let rules = |effect: Effect| {
        let ids: Vec<_> =
            file.rules.iter().filter(|rule| rule.effect == effect).map(|rule| rule.id.as_str()).collect();
        if ids.is_empty() { "nothing".to_owned() } else { ids.join(", ") }
    };
    writeln!(out, "  allows  {}", rules(Effect::Allow))?;
    writeln!(out, "  asks    {}", rules(Effect::Ask))?;
    writeln!(out, "  denies  {}", rules(Effect::Deny))?;
    writeln!(out, "  writes  {}", file.sandbox.fs.write.join(", "))?;
    for (what, least) in [("changes", file.sandbox.changes), ("agents", file.sandbox.agent_changes)] {
        if least != LeastChanges::Direct {
            writeln!(out, "  {what:<7} {}", least.describe())?;
        }
    }
    for (name, reference) in &file.secrets {
        writeln!(out, "  secret  {name} from {}", reference.describe())?;
    }
    for lint in policy.lint(&runtime.decision_env()) {
        let rule = lint.rule.map(|rule| format!(" (rule {rule})")).unwrap_or_default();
        writeln!(out, "  note{rule}: {}", lint.message)?;
    }
    Ok(())
}
