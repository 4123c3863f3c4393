//! The guard of a helper: it kills the leftover processes of the steps if lobster, the helper and all
//! supervisors were killed.
//!
//! ```text
//! lobster ──► guard ──fork──► helper ──fork──► supervisor ──spawn──► step
//! ```
//! It is the subreaper above the helper, so a process whose supervisor and helper are both
//! gone becomes its child. Only the helper and its supervisors hold a pipe open, whose end shows the
//! guard that they are gone. On this pipe supervisors also list the placeholders that lobster made,
//! which the guard removes. After a moment it becomes a shell that does the same, because
//! `pkill lobster` kills every process of this program. A helper or supervisor that is stopped
//! (SIGSTOP) would not notice that lobster is gone, so the guard continues them then: the
//! kernel sends it SIGCONT, which also reaches a guard that is stopped itself.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, getppid, kill_process, set_child_subreaper,
    set_parent_process_death_signal, wait, waitpid,
};

use super::sys::Strings;
use super::{mount_stubs, stopped, sys, tree};

/// Process name of the guard.
pub(super) const NAME: &std::ffi::CStr = c"step-guard";

/// Shorter runs do not pay for starting a shell.
const MOMENT: Duration = Duration::from_millis(100);

/// Time for which it keeps killing.
const INSIST: Duration = Duration::from_secs(3);

/// Interval between checks of a guard that is not a shell.
const LOOK: Duration = Duration::from_secs(1);

/// The guard as a shell script. A thread of lobster that ends also sends it SIGCONT, which is harmless. The
/// command in parentheses is a child to wait for, and waiting collects the others. The number is the
/// modification time that identifies a placeholder.
const SCRIPT: &std::ffi::CStr = c"trap '' HUP INT QUIT TERM
stubs=$1
wake() {
  list=
  read -r list < /proc/$1/task/$1/children
  for pid in $list; do
    name=
    read -r name < /proc/$pid/comm
    [ \"$name\" = lobster-sandbox ] || continue
    kill -CONT $pid
    wake $pid
  done
}
trap 'woken=1; wake $$' CONT
wake $$
while woken= path=; IFS= read -r path || [ -n \"$woken\" ]; do
  case \"$stubs\" in *\"$path
\"*) ;; *) stubs=\"$stubs$path
\" ;; esac
done
n=0
while [ $n -lt 150 ]; do
  left=
  read -r left < /proc/$$/task/$$/children
  [ -n \"$left\" ] || break
  kill -KILL $left
  ([ $n -lt 3 ] || exec sleep 0.02)
  n=$((n + 1))
done
printf %s \"$stubs\" | while IFS= read -r path; do
  [ -e \"$path\" ] && [ \"$(stat -c %Y \"$path\")\" = 987654322 ] && printf '%s\\n' \"$path\"
done 2>/dev/null | while IFS= read -r path; do
  flock -n \"$path\" rmdir \"$path\" || [ -s \"$path\" ] || flock -n \"$path\" rm \"$path\"
done 2>/dev/null";

/// Makes this process the guard and returns in its child, which continues as the helper. The returned end of
/// the pipe is held open by the helper and its supervisors.
pub(super) fn continue_below(socket: &mut Option<OwnedFd>) -> std::io::Result<OwnedFd> {
    set_child_subreaper(Some(getpid()))?;
    let lobster = getppid();
    let (alive, held) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match sys::fork()? {
        sys::Fork::Child => Ok(held),
        sys::Fork::Parent(helper) => {
            // lobster must notice the end of the helper, and this process the end of the helper and all
            // supervisors.
            drop((held, socket.take()));
            let _ = set_parent_process_death_signal(Some(Signal::CONT));
            let _ = rustix::thread::set_name(NAME);
            // Keeps no directory busy that may have to be unmounted.
            let _ = rustix::process::chdir("/");
            keep_watch(&alive, helper, lobster)
        }
    }
}

fn keep_watch(alive: &OwnedFd, helper: Pid, lobster: Option<Pid>) -> ! {
    let (mut placeholders, begin, mut is_over) = (Vec::new(), Instant::now(), false);
    while !is_over && begin.elapsed() < MOMENT {
        let left = MOMENT.saturating_sub(begin.elapsed());
        is_over = read_on(alive, left, &mut placeholders).is_none();
    }
    if !is_over {
        become_shell(alive, &placeholders);
        while read_on(alive, LOOK, &mut placeholders).is_some() {
            if getppid() != lobster {
                stopped::wake_processes(getpid());
            }
        }
    }
    // The helper held the pipe, so it is ending. Its resource use is charged to lobster.
    let _ = waitpid(Some(helper), WaitOptions::empty());
    let begin = Instant::now();
    loop {
        while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        let left = tree::direct_children();
        if left.is_empty() || begin.elapsed() > INSIST {
            mount_stubs::remove_left(&placeholders);
            sys::exit_now(0);
        }
        for pid in left {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Appends the next bytes of the pipe to `read`, if any arrive in time. Returns `None` at the end of the
/// pipe.
fn read_on(alive: &OwnedFd, timeout: Duration, read: &mut Vec<u8>) -> Option<()> {
    let timeout = Timespec::try_from(timeout).ok();
    if !matches!(poll(&mut [PollFd::new(alive, PollFlags::IN)], timeout.as_ref()), Ok(1..)) {
        return Some(());
    }
    // As much as a pipe holds, so that no line is cut.
    let mut bytes = vec![0; 1 << 16];
    match rustix::io::read(alive, &mut bytes) {
        Ok(0) => return None,
        Ok(length) => read.extend(&bytes[..length]),
        Err(_) => {}
    }
    Some(())
}

/// Returns if the system has no shell or does not list children.
fn become_shell(alive: &OwnedFd, placeholders: &[u8]) {
    let own = getpid().as_raw_nonzero();
    if !Path::new(&format!("/proc/self/task/{own}/children")).exists()
        || rustix::stdio::dup2_stdin(alive.as_fd()).is_err()
    {
        return;
    }
    sys::unblock_signals();
    let Ok(placeholders) = std::ffi::CString::new(placeholders) else { return };
    let mut argv = [NAME, c"-c", SCRIPT, NAME].map(std::ffi::CStr::to_owned).to_vec();
    argv.push(placeholders);
    let env = [c"PATH=/usr/bin:/bin".to_owned()];
    let _ = sys::exec(c"/bin/sh", &Strings::new(argv), &Strings::new(env.into()));
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_script_removes_what_bears_the_stamp_of_placeholders() {
        let test = format!(" = {} ]", super::super::mount_stubs::STAMP);
        assert!(super::SCRIPT.to_str().unwrap().contains(&test));
    }
}
