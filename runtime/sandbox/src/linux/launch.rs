//! Inside the step's own process, between `fork` and `execve`.

use std::convert::Infallible;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Access, access};
use rustix::process::{
    Resource, Rlimit, Signal, chdir, getppid, getrlimit, set_parent_process_death_signal, setrlimit, setsid,
};
use rustix::thread::set_no_new_privs;

use super::jail::{Obstacle, obstacle_at};
use super::landlock::Rules;
use super::seccomp::{Filters, Sockets};
use super::sys::Strings;
use super::wire::{Groups, Job, Network, News, Stage};
use super::{datagrams, sys};

/// Resources by their number in the limits of a job.
const LIMITS: [(Resource, &str); 5] = [
    (Resource::Cpu, "cpu"),
    (Resource::Data, "memory"),
    (Resource::Nproc, "processes"),
    (Resource::Fsize, "file_size"),
    (Resource::Nofile, "open_files"),
];

/// Search path if the step's environment has no `PATH` (`confstr(_CS_PATH)`).
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";

/// Restrictions that the step's process applies to itself before it becomes the program. The supervisor
/// prepares them, because it has time and memory for it.
pub(super) struct Bonds {
    confined: bool,
    rules: Option<Rules>,
    filters: Option<Filters>,
}

impl Bonds {
    pub(super) fn prepare(job: &Job, jailed: bool) -> Result<Self, Obstacle> {
        let Some(spec) = &job.confined else {
            return Ok(Self { confined: false, rules: None, filters: None });
        };
        let rules = || Rules::new(spec, jailed);
        let sockets = match (spec.network, jailed) {
            (Network::Host, _) => Sockets::Host,
            (Network::None | Network::Proxy, true) => Sockets::Internet,
            (Network::Shared, true) => Sockets::Shared,
            (Network::None | Network::Proxy | Network::Shared, false) => Sockets::Unix,
        };
        let filters =
            || Filters::new(sockets, spec.unix).map_err(obstacle_at(Stage::Seccomp, "prepare the filter"));
        Ok(Self {
            confined: true,
            rules: spec.landlock.then(rules).transpose()?,
            filters: spec.seccomp.then(filters).transpose()?,
        })
    }

    fn put_on(&self) -> Result<(), Obstacle> {
        if !self.confined {
            return Ok(());
        }
        // A core dump may start a program of the host as root. A limit of one byte prevents that, while 0
        // does not.
        set_limit(Resource::Core, 1).map_err(obstacle_at(Stage::Limit, "core"))?;
        sys::drop_capabilities().map_err(obstacle_at(Stage::Setup, "drop capabilities"))?;
        set_no_new_privs(true).map_err(obstacle_at(Stage::Setup, "refuse new privileges"))?;
        if let Some(rules) = &self.rules {
            rules.restrict_thread().map_err(obstacle_at(Stage::Landlock, "apply rules"))?;
        }
        // Last, because it may refuse calls that the others need.
        if let Some(filters) = &self.filters {
            filters.load_filters().map_err(obstacle_at(Stage::Seccomp, "load the filter"))?;
        }
        Ok(())
    }
}

/// Arguments of `execve`. The supervisor prepares them, because memory that the step's process allocates is
/// shared by both and never freed.
pub(super) struct LaunchProgram {
    argv: Strings,
    env: Strings,
    /// Paths to try, in this order.
    candidates: Vec<CString>,
}

impl LaunchProgram {
    pub(super) fn prepare(job: &Job) -> Result<Self, Obstacle> {
        let strings = |list: &[Vec<u8>]| -> Result<Vec<CString>, Obstacle> {
            list.iter()
                .map(|bytes| CString::new(bytes.as_slice()))
                .collect::<Result<_, _>>()
                .map_err(obstacle_at(Stage::Setup, "arguments"))
        };
        let candidates =
            job.argv.first().map(|program| program_candidates(program, &job.env)).unwrap_or_default();
        Ok(Self {
            argv: Strings::new(strings(&job.argv)?),
            env: Strings::new(strings(&job.env)?),
            candidates: strings(&candidates)?,
        })
    }
}

/// Descriptors with which the step's process starts.
pub(super) struct Inherited {
    pub(super) stdio: [OwnedFd; 3],
    /// Descriptors for entering its control groups, as described by [`Job::groups`].
    pub(super) groups: Vec<OwnedFd>,
}

/// Becomes the step, or reports the reason on `control` if it cannot.
pub(super) fn become_or_report(
    job: &Job,
    program: &LaunchProgram,
    bonds: &Bonds,
    inherited: &Inherited,
    control: &OwnedFd,
) -> ! {
    let Err(Obstacle { stage, error, detail }) = become_step(job, program, bonds, inherited);
    let news = News::Failed { stage, errno: error.raw_os_error().unwrap_or_default(), detail };
    let _ = datagrams::send(control.as_fd(), &news.encode(), &[]);
    sys::exit_now(127)
}

fn become_step(
    job: &Job,
    program: &LaunchProgram,
    bonds: &Bonds,
    Inherited { stdio: [stdin, stdout, stderr], groups }: &Inherited,
) -> Result<Infallible, Obstacle> {
    // The step must not outlive a supervisor that is killed. Requested before the parent is checked,
    // otherwise a death in between would be missed.
    let supervisor = getppid();
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(obstacle_at(Stage::Setup, "prctl"))?;
    if getppid() != supervisor {
        sys::exit_now(127);
    }
    setsid().map_err(obstacle_at(Stage::Setup, "setsid"))?;
    // Before it can start anything, so that no process of the step is outside.
    if job.groups == Groups::Tasks {
        for tasks in groups {
            rustix::io::write(tasks, b"0")
                .map_err(obstacle_at(Stage::ControlGroup, "enter the control group"))?;
        }
    }
    rustix::stdio::dup2_stdin(stdin).map_err(obstacle_at(Stage::Setup, "stdin"))?;
    rustix::stdio::dup2_stdout(stdout).map_err(obstacle_at(Stage::Setup, "stdout"))?;
    rustix::stdio::dup2_stderr(stderr).map_err(obstacle_at(Stage::Setup, "stderr"))?;
    chdir(job.cwd.as_slice()).map_err(obstacle_at(Stage::Cwd, ""))?;
    for (number, value) in &job.limits {
        let Some((resource, name)) = LIMITS.get(usize::from(*number)) else { continue };
        set_limit(*resource, *value).map_err(obstacle_at(Stage::Limit, *name))?;
    }
    bonds.put_on()?;
    let (stage, error) = exec_program(program);
    Err(Obstacle { stage, error, detail: String::new() })
}

fn set_limit(resource: Resource, value: u64) -> rustix::io::Result<()> {
    let ceiling = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let current = value.min(ceiling);
    // One second more before SIGKILL, so that SIGXCPU shows the reason.
    let maximum = if resource == Resource::Cpu { current.saturating_add(1).min(ceiling) } else { current };
    setrlimit(resource, Rlimit { current: Some(current), maximum: Some(maximum) })
}

/// `execvpe` with the step's own `PATH`.
fn exec_program(program: &LaunchProgram) -> (Stage, io::Error) {
    // Without a program, only the confinement itself is tested.
    if program.argv.as_slice().is_empty() {
        sys::exit_now(0);
    }
    sys::unblock_signals();
    let mut refused = None;
    let mut headless = false;
    for path in &program.candidates {
        let mut error = sys::exec(path, &program.argv, &program.env);
        if error.raw_os_error() == Some(libc::ENOEXEC) {
            let mut script = vec![c"/bin/sh".to_owned(), path.clone()];
            script.extend(program.argv.as_slice().iter().skip(1).cloned());
            error = sys::exec(c"/bin/sh", &Strings::new(script), &program.env);
        }
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT) => {
                headless |= access(path, Access::EXISTS).is_ok();
            }
            Some(libc::EACCES) => refused = Some(error),
            _ => return (Stage::Exec, error),
        }
    }
    match refused {
        Some(error) => (Stage::Exec, error),
        None if headless => (Stage::Interpreter, not_found()),
        None => (Stage::Exec, not_found()),
    }
}

fn program_candidates(program: &[u8], env: &[Vec<u8>]) -> Vec<Vec<u8>> {
    if program.contains(&b'/') {
        return vec![program.to_vec()];
    }
    let path = env.iter().find_map(|entry| entry.strip_prefix(b"PATH=")).unwrap_or(DEFAULT_PATH);
    path.split(|byte| *byte == b':')
        .map(|directory| match directory {
            // An empty entry is the working directory.
            b"" => program.to_vec(),
            _ => [directory, b"/", program].concat(),
        })
        .collect()
}

fn not_found() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}
