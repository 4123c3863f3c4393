//! One supervisor per step: starts it, adopts what it leaves, ends all of it.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{DumpableBehavior, WaitStatus, getpid, set_child_subreaper, set_dumpable_behavior};

use super::super::{ExitStatus, proxy};
use super::jail::{self, Identity, Obstacle, at};
use super::launch::Bonds;
use super::tree::{self, Tree};
use super::wire::{Job, Network, News, Order, Report, Stage};
use super::{channel, launch, sys};

/// Runs one job to its end and exits. `fds`: control socket, job, stdin, stdout, stderr.
/// With an identity, this is the first process of new namespaces.
pub(super) fn supervise([control, job, stdin, stdout, stderr]: [OwnedFd; 5], jail: Option<Identity>) -> ! {
    let survivors = match start_and_watch(&control, job, [stdin, stdout, stderr], jail) {
        Ok(survivors) => survivors,
        Err(Obstacle { stage, error, detail }) => {
            let errno = error.raw_os_error().unwrap_or_default();
            tell(&control, &News::Failed { stage, errno, detail });
            0
        }
    };
    // A code other than 0 asks the helper to look after what is left.
    sys::exit_now(i32::from(survivors > 0))
}

fn start_and_watch(
    control: &OwnedFd,
    job: OwnedFd,
    stdio: [OwnedFd; 3],
    jail: Option<Identity>,
) -> Result<u64, Obstacle> {
    let job = read_job(job).map_err(at(Stage::Setup, "read the job"))?;
    if let (Some(identity), Some(spec)) = (jail, &job.confined) {
        jail::furnish(spec, identity)?;
        if spec.network == Network::Proxy {
            let open = || {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, proxy::PORT))?;
                channel::send(control.as_fd(), &News::Listening.encode(), &[listener.as_fd()])
            };
            open().map_err(at(Stage::Namespaces, "open the way to the proxy"))?;
        }
        // Nothing inside may look into this process.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    } else {
        set_child_subreaper(Some(getpid())).map_err(at(Stage::Setup, "adopt orphans"))?;
    }
    let bonds = Bonds::prepare(&job, jail.is_some())?;
    let ended = sys::child_signals().map_err(at(Stage::Setup, "watch for ends"))?;
    let main = sys::spawn(|| launch::launch(&job, &bonds, &stdio, control))
        .map_err(at(Stage::Setup, "make a process"))?;
    // Kept open here, the step's pipes would never end.
    drop(stdio);
    Ok(watch(control, &ended, Tree::new(main), &job))
}

fn read_job(job: OwnedFd) -> io::Result<Job> {
    let mut file = File::from(job);
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Job::decode(&bytes)
}

/// Watches until nothing of the step is left; gives the number of survivors.
fn watch(control: &OwnedFd, ended: &OwnedFd, mut tree: Tree, job: &Job) -> u64 {
    let mut until = None;
    loop {
        if !tree.collect() {
            tell(control, &News::Over(report(&tree, 0)));
            return 0;
        }
        if tree.status.is_some() && until.is_none() {
            until = Some(Instant::now() + job.linger);
            tell(control, &News::MainExited);
        }
        let left = until.map(|until: Instant| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            break;
        }
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut fds = [PollFd::new(control, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
        // Interrupted or not, the loop looks at everything again.
        let _ = poll(&mut fds, timeout.as_ref());
        let ordered = !fds[0].revents().is_empty();
        tree::drain(ended);
        if ordered {
            match channel::receive(control.as_fd()) {
                Ok(Some((message, _))) if Order::decode(&message) == Some(Order::Terminate) => {
                    tree.terminate()
                }
                // Told to kill, or nobody is there any more to tell us.
                _ => break,
            }
        }
    }
    let survivors = tree.kill(ended);
    tell(control, &News::Over(report(&tree, survivors)));
    survivors
}

fn report(tree: &Tree, survivors: u64) -> Report {
    let status = |status: WaitStatus| match status.terminating_signal() {
        Some(signal) => ExitStatus::Signal(signal),
        None => ExitStatus::Code(status.exit_status().unwrap_or_default()),
    };
    let (cpu, max_rss) = sys::children_usage();
    // A main process that could not be killed has no status; it was sent SIGKILL.
    let status = tree.status.map_or(ExitStatus::Signal(libc::SIGKILL), status);
    Report { status, cpu, max_rss, survivors }
}

fn tell(control: &OwnedFd, news: &News) {
    // Nobody there means that the next poll sees the closed socket.
    let _ = channel::send(control.as_fd(), &news.encode(), &[]);
}
