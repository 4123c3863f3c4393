//! Switches off settings of a repository that could make git run programs.
//!
//! The repository chooses the names of some settings, so they have to be listed, and only git itself reads its files
//! as git does. So git lists them first, which runs nothing, in the step's own jail without the rights to write or to
//! use the network or sockets: it sees the same files as the step.

use lobster_base::code::Code;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::decided::Decided;
use lobster_base::cancel::CancelToken;
use lobster_policy::{NamedSettings, git_settings};
use lobster_sandbox::{
    Confinement, Ended, ExitStatus, JailSpec, Net, OutputSinks, ProcessLimits, Sandbox, SpawnRequest, Stdin,
};
use lobster_stage::{StageError, Stop};

/// Time limit for git. Reading a few files takes milliseconds; only a pipe in their place takes longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Most bytes of names that are read; an ordinary repository has fewer.
const MAX_LIST: u64 = 4 << 20;

/// The variable with the number of settings in the environment.
const COUNT: &str = "GIT_CONFIG_COUNT";

/// Adds variables to the environment of a step that keep `git` from running code of the repository in `cwd`. If the
/// settings cannot be listed, the step does not run.
pub(super) fn hold(
    sandbox: &Sandbox,
    git: &str,
    cwd: &Path,
    decided: &mut Decided,
    cancel: &CancelToken,
) -> Result<(), Stop> {
    let named = named_settings(cwd, |source| list(sandbox, git, source, cwd, decided, cancel));
    let named = named.map_err(|why| {
        let place = cwd.display();
        let message = format!("the settings of the git repository in {place} cannot be read: {why}");
        Stop::Failed(StageError::permanent(message).with_code(Code::PolicyDenied))
    })?;
    let env = &mut decided.env;
    let count = env.iter().find(|(name, _)| name == COUNT);
    let count = count.and_then(|(_, value)| value.to_str()?.parse().ok()).unwrap_or(0);
    let held = git_settings(&named, count);
    env.retain(|(name, _)| !held.iter().any(|(ours, _)| name == ours.as_str()));
    env.extend(held.into_iter().map(|(name, value)| (name.into(), value.into())));
    Ok(())
}

/// The settings to override in `cwd`: all that git sees there, and those of the submodules. git reads `.gitmodules`
/// from the index or the last commit if the file is missing.
fn named_settings(
    cwd: &Path,
    mut list: impl FnMut(&[OsString]) -> Result<String, String>,
) -> Result<NamedSettings, String> {
    let mut named = NamedSettings::from_list(&list(&["--includes".into()])?);
    let files = cwd.ancestors().map(|above| above.join(".gitmodules"));
    for file in files.filter(|file| file.symlink_metadata().is_ok()) {
        named = named.with_submodules(&list(&["--file".into(), file.into()])?);
    }
    for blob in [":.gitmodules", "HEAD:.gitmodules"] {
        named = named.with_submodules(&list(&["--blob".into(), blob.into()])?);
    }
    Ok(named)
}

/// The names of all settings that git sees in `cwd` or in `source`, each followed by a NUL.
fn list(
    sandbox: &Sandbox,
    git: &str,
    source: &[OsString],
    cwd: &Path,
    decided: &Decided,
    cancel: &CancelToken,
) -> Result<String, String> {
    let Confinement::Jail(spec) = &decided.confinement else {
        return Err("the command is not confined".to_owned());
    };
    let argv = [git, "config", "--list", "--name-only", "-z"].map(OsString::from);
    let request = SpawnRequest {
        argv: argv.iter().chain(source).cloned().collect(),
        env: decided.env.clone(),
        cwd: cwd.to_owned(),
        stdin: Stdin::Empty,
        limits: ProcessLimits {
            wall: Some(PATIENCE),
            stdout_cap: MAX_LIST,
            stderr_cap: MAX_LIST,
            disk: None,
            ..decided.limits.clone()
        },
        confinement: Confinement::Jail(only_reading(spec)),
        upstream: None,
    };
    let mut names = Names::default();
    let exit = sandbox.run(&request, &mut names, cancel).map_err(|error| error.to_string())?;
    match (exit.ended, exit.status) {
        // With a broken settings file every git command fails, so there is nothing to override.
        (Ended::ByItself, ExitStatus::Code(_)) => Ok(String::from_utf8_lossy(&names.0).into_owned()),
        (Ended::ByItself, ExitStatus::Signal(signal)) => Err(format!("git was ended by signal {signal}")),
        (Ended::TimedOut, _) => Err(format!("git gave no answer within {} s", PATIENCE.as_secs())),
        (Ended::OutputCap { .. }, _) => Err(format!("it has more than {MAX_LIST} bytes of names")),
        (Ended::Cancelled, _) => Err("it was cancelled".to_owned()),
        (Ended::DiskLimit { .. }, _) => Err("git wrote to the disk".to_owned()),
    }
}

/// The same jail without any way to change something or to communicate.
fn only_reading(spec: &JailSpec) -> JailSpec {
    let mut only = spec.clone();
    only.read.append(&mut only.write);
    only.protect.clear();
    only.protect_repositories = false;
    only.unix.clear();
    only.own_sockets = false;
    only.net = Net::None;
    only.ports = None;
    only
}

#[derive(Default)]
struct Names(Vec<u8>);

impl OutputSinks for Names {
    fn stdout(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.0.extend_from_slice(chunk);
        Ok(())
    }

    fn stderr(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use lobster_sandbox::Ports;

    #[test]
    fn who_lists_the_settings_changes_nothing_and_talks_to_nobody() {
        let spec = JailSpec {
            read: vec![PathBuf::from("/usr")],
            write: vec![PathBuf::from("/work")],
            unix: vec![PathBuf::from("/run/s")],
            net: Net::Host,
            ports: Some(Ports { network: "n".to_owned(), listen: vec![1], connect: vec![2] }),
            deny: vec![PathBuf::from("/work/secret")],
            ..JailSpec::default()
        };
        let only = only_reading(&spec);
        assert_eq!(only.read, [PathBuf::from("/usr"), PathBuf::from("/work")]);
        assert!(only.write.is_empty() && only.unix.is_empty() && only.ports.is_none());
        assert_eq!((only.net, only.deny), (Net::None, spec.deny));
    }
}
