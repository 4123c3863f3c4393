//! The processes below a lobster that a test has started, by what they are to it.

use std::path::Path;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

/// What a process is to lobster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Main,
    Worker,
    Guard,
    Helper,
    Supervisor,
    /// The process of a step that its supervisor has started.
    Step,
    /// A process that a step has started.
    BelowStep,
}

impl Kind {
    /// True for the processes that `pkill lobster` or their program names as lobster's.
    pub(crate) fn is_lobster(self) -> bool {
        matches!(self, Self::Main | Self::Worker | Self::Helper | Self::Supervisor)
    }
}

/// The processes below `child` and itself.
pub(crate) fn tree_of(child: &Child) -> Vec<(Pid, Kind)> {
    let mut found = Vec::new();
    let mut next = vec![(child.id().to_string(), None::<Kind>)];
    while let Some((pid, above)) = next.pop() {
        let place = Path::new("/proc").join(&pid);
        let Ok(name) = std::fs::read_to_string(place.join("comm")) else { continue };
        let words = std::fs::read(place.join("cmdline")).unwrap_or_default();
        let is_own = name.trim() == "lobster-sandbox";
        let kind = match above {
            None => Kind::Main,
            Some(Kind::Guard) => Kind::Helper,
            Some(Kind::Helper) if is_own => Kind::Supervisor,
            Some(Kind::Supervisor) if is_own => Kind::Supervisor,
            Some(Kind::Helper | Kind::Supervisor) => Kind::Step,
            Some(Kind::Step | Kind::BelowStep) => Kind::BelowStep,
            Some(Kind::Main) if words.ends_with(b"--stdio\0") => Kind::Worker,
            Some(Kind::Main | Kind::Worker) => Kind::Guard,
        };
        for thread in std::fs::read_dir(place.join("task")).into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            next.extend(children.split_whitespace().map(|child| (child.to_owned(), Some(kind))));
        }
        found.push((Pid::from_raw(pid.parse().unwrap()).unwrap(), kind));
    }
    found
}

/// Sends a signal to the processes of these kinds; gives their number.
pub(crate) fn signal(child: &Child, signal: Signal, kinds: impl Fn(Kind) -> bool) -> usize {
    let fitting = tree_of(child).into_iter().filter(|(_, kind)| kinds(*kind));
    fitting.filter(|(pid, _)| kill_process(*pid, signal).is_ok()).count()
}

/// One line for each process of `child`: what it is, its state, and where in the kernel it waits.
pub(crate) fn describe_tree(child: &Child) -> String {
    let mut lines = String::new();
    for (pid, kind) in tree_of(child) {
        let read = |name: &str| {
            let text = std::fs::read_to_string(format!("/proc/{}/{name}", pid.as_raw_nonzero()));
            text.unwrap_or_default().replace('\0', " ")
        };
        let status = read("status");
        let kept = ["State:", "PPid:", "SigQ:", "SigBlk:", "SigIgn:", "Threads:"];
        let fields = status.lines().filter(|line| kept.iter().any(|field| line.starts_with(field)));
        let fields = fields.collect::<Vec<_>>().join(" ").replace('\t', " ");
        let (waits_in, call, words) = (read("wchan"), read("syscall"), read("cmdline"));
        lines += &format!("{pid:?} {kind:?} {fields} wchan {waits_in} syscall {} {words}\n", call.trim());
    }
    lines
}
