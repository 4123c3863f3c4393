//! `lobster add`

mod signature;
mod source;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use lobster_runtime::component::{Component, ComponentLock, ComponentLockError, LockedStep};
use lobster_runtime::digest::Digest;
use lobster_runtime::runtime::Runtime;
use lobster_runtime::stage::Mode;

use self::signature::Key;
use self::source::{ComponentSource, Taken};
use super::step;
use crate::exit::{CommandError, CommandResult, Exit};
use crate::render::{Quoting, units};
use crate::stdout::stdout;
use crate::whole_files::replace_file;
use crate::{prepare, which};

/// Adds a component to the project: its file to `steps`, its digest to `lobster.lock`.
///
/// SOURCE is the name of a ready step, a file, an https address, or an artifact of an OCI registry
/// (oci://HOST/REPOSITORY:TAG). Before adding a component, lobster prints what it can do and what it asks
/// for. If the file changes later, `run` and `check` refuse it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster add regex                                a ready step
  lobster add https://example.com/classify.wasm
  lobster add oci://ghcr.io/acme/classify:1.2
  lobster add oci://ghcr.io/acme/classify:1.2 --key acme.pub
  lobster add --update classify
  lobster add --locked")]
pub(crate) struct Args {
    /// The source of the component. At a terminal lobster lists the ready steps.
    #[arg(value_name = "SOURCE")]
    source: Option<String>,
    /// The name in this project (default: the component's own).
    #[arg(long, value_name = "NAME", value_parser = step::step_name, requires = "source")]
    name: Option<String>,
    /// The directory for the file, relative to the directory of the project.
    #[arg(long, value_name = "DIR", default_value = "steps", requires = "source")]
    dir: PathBuf,
    /// The BLAKE3 digest that the component must have.
    #[arg(long, value_name = "DIGEST", requires = "source")]
    digest: Option<Digest>,
    /// The public key that must have signed the component, now and at every update (PEM, as cosign writes
    /// it).
    #[arg(long, value_name = "FILE", conflicts_with = "locked")]
    key: Option<PathBuf>,
    /// Fetches the current version of this component from its source.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["source", "locked"])]
    update: Option<String>,
    /// Fetches missing and changed components again, in the versions that were added.
    #[arg(long, conflicts_with_all = ["source", "update"])]
    locked: bool,
    /// Does not ask.
    #[arg(long, short)]
    yes: bool,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let here = std::env::current_dir()?;
    let path = ComponentLock::find_nearest(&here).unwrap_or_else(|| here.join(ComponentLock::FILE));
    let mut project = Project { lock: ComponentLock::read(&path)?, path };
    match (&args.source, &args.update) {
        (Some(text), _) => add_step(&mut project, args, text),
        (None, Some(name)) => update_step(&mut project, args, name),
        (None, None) if args.locked => restore_steps(&project),
        (None, None) => add_step(&mut project, args, &source::pick_ready()?),
    }
}

impl From<ComponentLockError> for CommandError {
    fn from(error: ComponentLockError) -> Self {
        Self::failed(error)
    }
}

/// The lock file with its directory.
struct Project {
    path: PathBuf,
    lock: ComponentLock,
}

impl Project {
    fn dir(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    fn locked_step(&self, name: &str) -> Result<&LockedStep, CommandError> {
        self.lock.steps.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.lock.steps.keys().map(String::as_str).collect();
            CommandError::usage(format!(
                "{} has no {name:?}; it has {}",
                self.path.display(),
                if names.is_empty() { "none yet".to_owned() } else { names.join(", ") }
            ))
        })
    }

    /// Writes the file first and then the lock: a lock never names missing bytes.
    fn save_step(&mut self, name: &str, step: LockedStep, bytes: &[u8]) -> Result<(), CommandError> {
        write_file(&self.dir().join(&step.file), bytes)?;
        self.lock.steps.insert(name.to_owned(), step);
        Ok(self.lock.write(&self.path)?)
    }
}

fn write_file(file: &Path, bytes: &[u8]) -> Result<(), CommandError> {
    replace_file(file, bytes)
        .map_err(|error| CommandError::failed(format!("cannot write {}: {error}", file.display())))
}

fn add_step(project: &mut Project, args: &Args, text: &str) -> CommandResult {
    let source = ComponentSource::parse(text)?;
    let taken = source.read_program()?;
    let Taken { bytes, told, .. } = &taken;
    let digest = Digest::of_bytes(bytes);
    if let Some(wanted) = args.digest.filter(|wanted| *wanted != digest) {
        return Err(CommandError::failed(format!("{told} is blake3:{digest}, not blake3:{wanted}")));
    }
    let runtime = prepare::runtime(Mode::Human)?;
    let (component, about) = load_program(&runtime, bytes, told)?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => {
            let own = component.describe().ok().flatten().map(|step| step.name.clone());
            let name = own.unwrap_or_else(|| source.base_name());
            step::step_name(&name).map_err(|why| {
                CommandError::usage(format!("its own name is {name:?}: {why}"))
                    .with_hint("name it with --name NAME")
            })?
        }
    };
    // A file inside the project is not copied.
    let within = match &source {
        ComponentSource::File(file) => file.canonicalize().ok().and_then(|file| {
            let dir = project.dir().canonicalize().ok()?;
            file.strip_prefix(dir).ok().map(Path::to_owned)
        }),
        _ => None,
    };
    let file = within.unwrap_or_else(|| args.dir.join(format!("{name}.wasm")));
    if file.is_absolute() || file.components().any(|part| part == std::path::Component::ParentDir) {
        return Err(CommandError::usage(format!(
            "{} is not below {}",
            file.display(),
            project.dir().display()
        )));
    }
    if let Some(known) = project.lock.steps.get(&name) {
        // The user changed the file itself, so the new content is intended.
        if known.blake3 != digest && known.file != file {
            return Err(CommandError::usage(format!(
                "{name} was added from {} as blake3:{}; this is blake3:{digest}",
                known.source, known.blake3
            ))
            .with_hint(format!(
                "`lobster add --update {name}` fetches the current version; --name adds this \
                                one under another name"
            )));
        }
    }
    let known_key = project.lock.steps.get(&name).and_then(|known| known.key.as_deref());
    let (key, signed) = check_signature(args, known_key, &taken)?;
    let there = project.dir().join(&file);
    if fs::read(&there).is_ok_and(|old| old != *bytes) && !project.lock.steps.contains_key(&name) {
        return Err(CommandError::usage(format!(
            "{} already exists and is a different file; it was not changed",
            there.display()
        ))
        .with_hint("choose another name with --name, or another directory with --dir"));
    }
    let mut out = stdout();
    Quoting::new(&mut out).write_all(about.as_bytes())?;
    out.write_all(signed.as_bytes())?;
    if !args.yes && which::can_ask() && !which::ask_yes_no(&format!("\nAdd it as {name}?"))? {
        writeln!(out, "nothing was added")?;
        return Ok(Exit::FAILED);
    }
    let size = bytes.len() as u64;
    let step = LockedStep { file: file.clone(), blake3: digest, size, source: told.clone(), key };
    project.save_step(&name, step, bytes)?;
    writeln!(
        out,
        "\nadded {name}: {} ({})\n\nUse it in a workflow beside {}:\n  - id: {name}\n    component: {}",
        file.display(),
        units::format_bytes(size),
        ComponentLock::FILE,
        file.display(),
    )?;
    Ok(Exit::OK)
}

/// The key that must sign the component from now on, in the form of the lock, and a line about its signature.
///
/// # Errors
/// There is a key but no signature by it.
fn check_signature(
    args: &Args,
    known: Option<&str>,
    taken: &Taken,
) -> Result<(Option<String>, String), CommandError> {
    let Taken { bytes, told, signatures } = taken;
    let known = known.map(|text| Key::of_text(text).map_err(CommandError::failed)).transpose()?;
    let given = args.key.as_deref().map(Key::read).transpose()?;
    // A given key replaces an earlier one.
    match given.or(known) {
        Some(key) => {
            signatures.require_signature(bytes, &key, told)?;
            Ok((Some(key.to_text()), "\nsigned with the key\n".to_owned()))
        }
        None if signatures.is_signed(bytes) => Ok((
            None,
            "\nit has a signature that was not checked; name the public key with --key FILE\n".to_owned(),
        )),
        None => Ok((None, String::new())),
    }
}

/// Loads a program and describes it like `step inspect`.
fn load_program(runtime: &Runtime, bytes: &[u8], told: &str) -> Result<(Component, String), CommandError> {
    let refuse = |why: String| CommandError::failed(format!("{told}: {why}"));
    let component = runtime
        .components()
        .load_bytes_within(bytes, &step::compile_patience(runtime))
        .map_err(|error| refuse(error.to_string()))?;
    let about = {
        let description = component.describe().map_err(|error| refuse(step::describe_error(&error)))?;
        step::inspect::describe_program(&component, description)
    };
    Ok((component, about))
}

fn update_step(project: &mut Project, args: &Args, name: &str) -> CommandResult {
    let known = project.locked_step(name)?.clone();
    let taken = source_of_locked(project, &known)?.without_digest().read_program()?;
    let (key, signed) = check_signature(args, known.key.as_deref(), &taken)?;
    let Taken { bytes, told, .. } = taken;
    let digest = Digest::of_bytes(&bytes);
    let mut out = stdout();
    let runtime = prepare::runtime(Mode::Human)?;
    let (_, about) = load_program(&runtime, &bytes, &told)?;
    if digest != known.blake3 {
        Quoting::new(&mut out).write_all(about.as_bytes())?;
        out.write_all(signed.as_bytes())?;
        writeln!(out, "\n{name} was blake3:{}\n{name} is  blake3:{digest}", known.blake3)?;
        if !args.yes && which::can_ask() && !which::ask_yes_no("Use the new one?")? {
            writeln!(out, "nothing was changed")?;
            return Ok(Exit::FAILED);
        }
    }
    let is_new = digest != known.blake3;
    let step = LockedStep { blake3: digest, size: bytes.len() as u64, source: told, key, ..known };
    project.save_step(name, step, &bytes)?;
    writeln!(out, "{name} {}", if is_new { "is updated" } else { "has not changed" })?;
    Ok(Exit::OK)
}

/// The source of a locked component; a file is relative to the project's directory.
fn source_of_locked(project: &Project, step: &LockedStep) -> Result<ComponentSource, CommandError> {
    Ok(match ComponentSource::parse(&step.source)? {
        ComponentSource::File(file) => ComponentSource::File(project.dir().join(file)),
        other => other,
    })
}

fn restore_steps(project: &Project) -> CommandResult {
    let mut out = stdout();
    let mut failed = Vec::new();
    for (name, step) in &project.lock.steps {
        let file = project.dir().join(&step.file);
        if fs::read(&file).is_ok_and(|bytes| Digest::of_bytes(&bytes) == step.blake3) {
            continue;
        }
        let Taken { bytes, told, .. } = source_of_locked(project, step)?.read_program()?;
        let found = Digest::of_bytes(&bytes);
        if found == step.blake3 {
            write_file(&file, &bytes)?;
            writeln!(out, "restored {name}: {}", step.file.display())?;
        } else {
            failed.push(format!("{name}: {told} now has blake3:{found}, not blake3:{}", step.blake3));
        }
    }
    if failed.is_empty() {
        writeln!(
            out,
            "{} as they were added",
            units::count_noun(project.lock.steps.len() as u64, "component")
        )?;
        return Ok(Exit::OK);
    }
    Err(CommandError::failed(failed.join("\n"))
        .with_hint("`lobster add --update NAME` shows the current version and asks"))
}
