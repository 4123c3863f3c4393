//! One supervisor per step: starts it, adopts what it leaves, ends all of it.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{WaitStatus, getpid, set_child_subreaper};

use super::super::ExitStatus;
use super::tree::{self, Tree};
use super::wire::{Job, News, Order, Report, Stage};
use super::{channel, launch, sys};

/// Runs one job to its end and exits. `fds`: control socket, job, stdin, stdout, stderr.
pub(super) fn supervise([control, job, stdin, stdout, stderr]: [OwnedFd; 5]) -> ! {
    let survivors = match start_and_watch(&control, job, [stdin, stdout, stderr]) {
        Ok(survivors) => survivors,
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or_default();
            tell(&control, &News::Failed { stage: Stage::Setup, errno, detail: error.to_string() });
            0
        }
    };
    // A code other than 0 asks the helper to look after what is left.
    sys::exit_now(i32::from(survivors > 0))
}

fn start_and_watch(control: &OwnedFd, job: OwnedFd, stdio: [OwnedFd; 3]) -> io::Result<u64> {
    let job = read_job(job)?;
    set_child_subreaper(Some(getpid()))?;
    let ended = sys::child_signals()?;
    let main = sys::spawn(|| launch::launch(&job, &stdio, control))?;
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
