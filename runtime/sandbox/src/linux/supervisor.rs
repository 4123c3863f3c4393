//! A supervisor starts a step, adopts its orphans, and ends them all.
//!
//! If everything of an unconfined step has ended, its supervisor takes the next step, because a fork costs
//! more than a small step.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{DumpableBehavior, Pid, getpid, getppid, set_child_subreaper, set_dumpable_behavior};

use super::super::{ExitStatus, UPSTREAM, proxy};
use super::disk_use::Growth;
use super::jail::{self, JailIdentity, Obstacle, obstacle_at};
use super::launch::{Bonds, Inherited, LaunchProgram};
use super::tree::{self, Tree};
use super::wire::{Groups, Job, Network, News, Order, Report, Stage};
use super::{datagrams, launch, mount_stubs, sys};

/// State of a supervisor after a step.
enum After {
    /// No process of the step is left, and nothing has changed in this process.
    Clean,
    /// No process of the step is left.
    Spent,
    /// Some of its processes could not be killed.
    Survivors,
}

/// Runs jobs that arrive over `control` and exits. With an identity, this is the first process of new
/// namespaces, made for one job. `guard` is the pipe to the guard.
pub(super) fn run_jobs(control: &OwnedFd, guard: &OwnedFd, jail: Option<JailIdentity>) -> ! {
    let helper = getppid();
    loop {
        let mut fds = match datagrams::receive(control.as_fd()) {
            Ok(Some((message, fds))) if message == datagrams::JOB => fds,
            // An order for the previous step that came too late.
            Ok(Some(_)) => continue,
            _ => sys::exit_now(0),
        };
        let groups = fds.split_off(fds.len().min(4));
        let Ok([job, stdin, stdout, stderr]) = <[OwnedFd; 4]>::try_from(fds) else { sys::exit_now(0) };
        let inherited = Inherited { stdio: [stdin, stdout, stderr], groups };
        match start_and_watch((control, guard), job, inherited, jail, helper) {
            Ok(After::Clean) => {}
            Ok(After::Spent) => sys::exit_now(0),
            // A code other than 0 requests that the helper end the remaining processes.
            Ok(After::Survivors) => sys::exit_now(1),
            Err(Obstacle { stage, error, detail }) => {
                let errno = error.raw_os_error().unwrap_or_default();
                send_news(control, &News::Failed { stage, errno, detail });
                sys::exit_now(0)
            }
        }
    }
}

fn start_and_watch(
    (control, guard): (&OwnedFd, &OwnedFd),
    job: OwnedFd,
    mut inherited: Inherited,
    jail: Option<JailIdentity>,
    helper: Option<Pid>,
) -> Result<After, Obstacle> {
    let job = read_job(job).map_err(obstacle_at(Stage::Setup, "read the job"))?;
    if let (Some(identity), Some(spec)) = (jail, &job.confined) {
        // If the guard is gone, the next run removes them. Single lines are short enough to be written at
        // once.
        for line in
            mount_stubs::placeholder_lines(&spec.protect, &spec.write).split_inclusive(|byte| *byte == b'\n')
        {
            let _ = rustix::io::write(guard, line);
        }
        let [stdin, ..] = &mut inherited.stdio;
        let home = job.env.iter().find_map(|entry| entry.strip_prefix(b"HOME=")).unwrap_or_default();
        jail::set_up_namespaces(spec, identity, home, stdin)?;
        if spec.network == Network::Proxy {
            let open = || {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, proxy::PORT))?;
                let upstream = spec.upstream.then(|| TcpListener::bind(UPSTREAM)).transpose()?;
                // An address that cannot be opened, for example without IPv6, is left out: the proxy reaches
                // its host.
                let ways = proxy::plan_ways(&spec.hosts);
                let ways: Vec<_> =
                    ways.iter().filter_map(|way| TcpListener::bind(way.address).ok()).collect();
                let sockets: Vec<_> =
                    std::iter::once(&listener).chain(&upstream).chain(&ways).map(AsFd::as_fd).collect();
                datagrams::send(control.as_fd(), &News::Listening.encode(), &sockets)
            };
            open().map_err(obstacle_at(Stage::Namespaces, "open the way to the proxy"))?;
        }
        // Prevents processes inside from inspecting this one.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    } else {
        set_child_subreaper(Some(getpid())).map_err(obstacle_at(Stage::Setup, "adopt orphans"))?;
    }
    let bonds = Bonds::prepare(&job, jail.is_some())?;
    let program = LaunchProgram::prepare(&job)?;
    let ended = sys::child_signals().map_err(obstacle_at(Stage::Setup, "watch for ended processes"))?;
    let growth = match (job.disk, &job.confined) {
        (Some(limit), Some(spec)) => Some(Growth::start_watch(limit, &spec.write)),
        _ => None,
    };
    let step = || launch::become_or_report(&job, &program, &bonds, &inherited, control);
    let main = match (job.groups, inherited.groups.first()) {
        (Groups::Directory, Some(group)) => sys::spawn_into(group, step)
            .map_err(obstacle_at(Stage::ControlGroup, "make a process in the control group"))?,
        _ => sys::spawn(step).map_err(obstacle_at(Stage::Setup, "make a process"))?,
    };
    // If they stayed open here, the step's pipes would never end.
    drop(inherited);
    // Without its helper, no process would kill the leftovers if the supervisor is killed.
    let reusable = job.confined.is_none() && getppid() == helper;
    Ok(watch_step(control, &ended, Tree::new(main), &job, reusable, growth))
}

fn read_job(job: OwnedFd) -> io::Result<Job> {
    let mut file = File::from(job);
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Job::decode(&bytes)
}

/// Watches until no process of the step is left, and reports.
fn watch_step(
    control: &OwnedFd,
    ended: &OwnedFd,
    mut tree: Tree,
    job: &Job,
    reusable: bool,
    mut growth: Option<Growth>,
) -> After {
    let mut until = None;
    loop {
        if !tree.collect_ended() {
            send_news(control, &News::Over(build_report(&tree, 0, reusable)));
            return if reusable { After::Clean } else { After::Spent };
        }
        if tree.status.is_some() && until.is_none() {
            until = Some(Instant::now() + job.linger);
            send_news(control, &News::MainExited);
        }
        let left = until.map(|until: Instant| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            break;
        }
        if growth.as_mut().is_some_and(Growth::has_passed) {
            send_news(control, &News::DiskFull);
            break;
        }
        let looks = growth.as_ref().map(Growth::due_in);
        let timeout = left.into_iter().chain(looks).min().and_then(|left| Timespec::try_from(left).ok());
        let mut fds = [PollFd::new(control, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
        // Even after an interruption, the loop checks everything again.
        let _ = poll(&mut fds, timeout.as_ref());
        let ordered = !fds[0].revents().is_empty();
        tree::drain_signals(ended);
        if ordered {
            match datagrams::receive(control.as_fd()) {
                Ok(Some((message, _))) if Order::decode(&message) == Some(Order::Terminate) => {
                    tree.terminate()
                }
                // An order to kill, or lobster is gone.
                _ => break,
            }
        }
    }
    // Killing may raise the priority of this process, which the next step would inherit.
    let survivors = tree.kill_all(ended);
    send_news(control, &News::Over(build_report(&tree, survivors, false)));
    if survivors == 0 { After::Spent } else { After::Survivors }
}

fn build_report(tree: &Tree, survivors: u64, reusable: bool) -> Report {
    // A main process that could not be killed has no status; it was sent SIGKILL.
    let status = tree.status.unwrap_or(ExitStatus::Signal(libc::SIGKILL));
    Report { status, cpu: tree.usage.cpu, max_rss: tree.usage.max_rss, survivors, reusable }
}

fn send_news(control: &OwnedFd, news: &News) {
    // If lobster is gone, the next poll sees the closed socket.
    let _ = datagrams::send(control.as_fd(), &news.encode(), &[]);
}
