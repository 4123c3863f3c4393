//! Resources used by the processes of a run, summed over all descendants of its worker.

use std::collections::HashMap;
use std::time::Duration;

use lobster_runtime::ticks::time_of_ticks;

/// Resources used by a tree of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Resident memory, in bytes. Shared memory is counted for each process.
    pub(crate) memory: u64,
    /// Processor time, including processes that have ended.
    pub(crate) cpu: Duration,
}

/// One process as the system describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    parent: u32,
    /// Clock ticks of the process and of the children that it has waited for.
    ticks: u64,
}

/// All processes, read once for all runs of a round.
pub(crate) struct Processes {
    all: HashMap<u32, Process>,
    children: HashMap<u32, Vec<u32>>,
}

impl Processes {
    /// Reads the processes that are visible to this process now.
    pub(crate) fn read_all() -> Self {
        let mut all = HashMap::new();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok();
            all.extend(stat.and_then(|stat| parse_stat(&stat)).map(|process| (pid, process)));
        }
        Self::from_map(all)
    }

    fn from_map(all: HashMap<u32, Process>) -> Self {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for (pid, process) in &all {
            children.entry(process.parent).or_default().push(*pid);
        }
        Self { all, children }
    }

    /// Resources used by a process and all its descendants.
    pub(crate) fn tree_usage(&self, root: u32) -> Usage {
        let mut usage = Usage::default();
        let mut ticks = 0;
        let mut open = vec![root];
        // Each process has one parent, so none is visited twice.
        while let Some(pid) = open.pop() {
            if let Some(process) = self.all.get(&pid) {
                ticks += process.ticks;
                usage.memory += memory_of(pid);
            }
            open.extend(self.children.get(&pid).into_iter().flatten().filter(|child| **child != root));
        }
        usage.cpu = time_of_ticks(ticks);
        usage
    }
}

/// Parses `/proc/PID/stat`. The program's name is in brackets and may itself contain brackets.
fn parse_stat(stat: &str) -> Option<Process> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Process { parent: fields.get(1)?.parse().ok()?, ticks: (11..=14).filter_map(number).sum() })
}

/// Resident memory of a process in bytes; 0 if it has ended.
fn memory_of(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_counted_whole() {
        let stat = "7 (a) b (c)) S 3 7 7 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 99 1000 55 18446744073709551615 1";
        assert_eq!(parse_stat(stat), Some(Process { parent: 3, ticks: 100 }));
        assert_eq!(parse_stat("7 (a"), None);
        let process = |parent| Process { parent, ticks: 50 };
        let all = Processes::from_map(HashMap::from([
            (2, process(1)),
            (3, process(2)),
            (4, process(3)),
            (5, process(1)),
        ]));
        assert_eq!(all.tree_usage(2).cpu, time_of_ticks(150));
        assert_eq!(all.tree_usage(9), Usage::default());
        assert!(Processes::read_all().tree_usage(std::process::id()).memory > 0);
    }
}
