//! Switches off settings of a repository that could make git run programs.
//!
//! The repository chooses the names of some settings, so they have to be listed, and only git itself reads its files
//! as git does. So git lists them first, in the step's own jail without the rights to write or to use the network or
//! sockets: it sees the same files as the step. It reads the index and objects for that, so the settings with fixed
//! names are already overridden then.

use lobster_base::code::Code;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::decided::Decided;
use crate::secret_reader::StdoutOnly;
use lobster_base::cancel::CancelToken;
use lobster_policy::{NamedSettings, git_settings};
use lobster_sandbox::{
    Confinement, Ended, ExitStatus, JailSpec, Net, ProcessLimits, Sandbox, SpawnRequest, Stdin,
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
pub(super) fn add_overrides(
    sandbox: &Sandbox,
    git: &str,
    cwd: &Path,
    decided: &mut Decided,
    cancel: &CancelToken,
) -> Result<(), Stop> {
    let count = decided.env.iter().find(|(name, _)| name == COUNT);
    let count = count.and_then(|(_, value)| value.to_str()?.parse().ok()).unwrap_or(0);
    let mut env = decided.env.clone();
    set_variables(&mut env, git_settings(&NamedSettings::default(), count));
    let reader = Reader { sandbox, git, cwd, decided, env, cancel };
    let named = named_settings(cwd, |words| reader.run(words));
    let named = named.map_err(|why| {
        let place = cwd.display();
        let message = format!("the settings of the git repository in {place} cannot be read: {why}");
        Stop::Failed(StageError::permanent(message).with_code(Code::PolicyDenied))
    })?;
    set_variables(&mut decided.env, git_settings(&named, count));
    Ok(())
}

/// Sets `variables` in `env`, in place of equally named ones.
fn set_variables(env: &mut Vec<(OsString, OsString)>, variables: Vec<(String, String)>) {
    env.retain(|(name, _)| !variables.iter().any(|(ours, _)| name == ours.as_str()));
    env.extend(variables.into_iter().map(|(name, value)| (name.into(), value.into())));
}

/// The settings to override in `cwd`: all that git sees there, and those of the submodules. git reads `.gitmodules`
/// from the index or the last commit if the file is missing.
fn named_settings(
    cwd: &Path,
    run: impl Fn(&[OsString]) -> Result<Vec<u8>, String>,
) -> Result<NamedSettings, String> {
    let list = |source: &[OsString]| {
        let words = ["config", "--list", "--name-only", "-z"].map(OsString::from);
        let names = run(&[&words[..], source].concat())?;
        // It could not be overridden by the name that a lossy conversion makes of it.
        String::from_utf8(names).map_err(|_| "the name of a setting is not UTF-8".to_owned())
    };
    let names = list(&["--includes".into()])?;
    let mut named = NamedSettings::from_list(&names);
    let mut files: Vec<PathBuf> = cwd.ancestors().map(|above| above.join(".gitmodules")).collect();
    // A repository may name another work tree, with a `.gitmodules` of its own.
    if names.split('\0').any(|name| name.eq_ignore_ascii_case("core.worktree")) {
        let mut top = run(&["rev-parse", "--show-toplevel"].map(OsString::from))?;
        top.pop_if(|last| *last == b'\n');
        files.push(cwd.join(OsString::from_vec(top)).join(".gitmodules"));
    }
    for file in files.into_iter().filter(|file| file.symlink_metadata().is_ok()) {
        named = named.with_submodules(&list(&["--file".into(), file.into()])?);
    }
    for blob in [":.gitmodules", "HEAD:.gitmodules"] {
        named = named.with_submodules(&list(&["--blob".into(), blob.into()])?);
    }
    Ok(named)
}

/// Asks git about the repository of a step.
struct Reader<'a> {
    sandbox: &'a Sandbox,
    git: &'a str,
    cwd: &'a Path,
    decided: &'a Decided,
    env: Vec<(OsString, OsString)>,
    cancel: &'a CancelToken,
}

impl Reader<'_> {
    /// Runs git with these words, and returns its output.
    fn run(&self, words: &[OsString]) -> Result<Vec<u8>, String> {
        let Confinement::Jail(spec) = &self.decided.confinement else {
            return Err("the command is not confined".to_owned());
        };
        let request = SpawnRequest {
            argv: std::iter::once(OsString::from(self.git)).chain(words.iter().cloned()).collect(),
            env: self.env.clone(),
            cwd: self.cwd.to_owned(),
            stdin: Stdin::Empty,
            limits: ProcessLimits {
                wall: Some(PATIENCE),
                stdout_cap: MAX_LIST,
                stderr_cap: MAX_LIST,
                disk: None,
                ..self.decided.limits.clone()
            },
            confinement: Confinement::Jail(only_reading(spec)),
            upstream: None,
        };
        let mut output = StdoutOnly::default();
        let exit = self.sandbox.run(&request, &mut output, self.cancel).map_err(|error| error.to_string())?;
        match (exit.ended, exit.status) {
            // With a broken settings file every git command fails, so there is nothing to override.
            (Ended::ByItself, ExitStatus::Code(_)) => Ok(output.0),
            (Ended::ByItself, ExitStatus::Signal(signal)) => Err(format!("git was ended by signal {signal}")),
            (Ended::TimedOut, _) => Err(format!("git gave no answer within {} s", PATIENCE.as_secs())),
            (Ended::OutputCap { .. }, _) => Err(format!("it has more than {MAX_LIST} bytes of names")),
            (Ended::Cancelled, _) => Err("it was cancelled".to_owned()),
            (Ended::DiskLimit { .. }, _) => Err("git wrote to the disk".to_owned()),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use lobster_sandbox::Ports;

    #[test]
    fn a_setting_without_a_utf8_name_is_an_error() {
        let run = |words: &[OsString]| {
            let is_blob = words.iter().any(|word| word == ":.gitmodules");
            Ok(if is_blob { b"submodule.\xff.path\0".to_vec() } else { b"core.bare\0".to_vec() })
        };
        assert!(named_settings(Path::new("/nowhere"), run).unwrap_err().contains("UTF-8"));
        let run = |_: &[OsString]| Ok(b"diff.\xff.textconv\0".to_vec());
        assert!(named_settings(Path::new("/nowhere"), run).unwrap_err().contains("UTF-8"));
        assert!(named_settings(Path::new("/nowhere"), |_| Ok(b"diff.a.textconv\0".to_vec())).is_ok());
    }

    #[test]
    fn submodules_of_another_work_tree_are_listed() {
        let other = tempfile::tempdir().unwrap();
        let file = other.path().join(".gitmodules");
        std::fs::write(&file, "").unwrap();
        let top = format!("{}\n", other.path().display());
        let run = |words: &[OsString]| {
            let has = |text: &OsString| words.contains(text);
            Ok(if has(&file.clone().into_os_string()) {
                b"submodule.a.path\0".to_vec()
            } else if has(&"--show-toplevel".into()) {
                top.clone().into_bytes()
            } else {
                b"core.worktree\0".to_vec()
            })
        };
        let named = named_settings(Path::new("/nowhere"), run).unwrap();
        assert_eq!(named, NamedSettings::default().with_submodules("submodule.a.path\0"));
    }

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
