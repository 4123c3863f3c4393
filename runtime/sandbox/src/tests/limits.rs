//! Limits of the whole tree of a step.

use std::process::{Command, Stdio};

use super::confined::{as_lobster, jail, jailed};
use super::*;

/// True if this user can have control groups here.
fn has_groups() -> bool {
    let probe = Sandbox::new(SandboxConfig::default()).probe_host().unwrap();
    let missing = probe.jail.missing.iter().find(|missing| missing.promise == Promise::TreeLimits);
    if let Some(missing) = missing {
        println!("not tested here: {missing}");
    }
    missing.is_none()
}

/// Starts this many processes, each with that many bytes, and prints the number of processes alive then.
fn crowd(count: u64, bytes: u64, limits: ProcessLimits) -> SpawnRequest {
    let script = "import os, sys, time\n\
        count, size = int(sys.argv[1]), int(sys.argv[2])\n\
        here = 0\n\
        for _ in range(count):\n\
        \x20r, w = os.pipe()\n\
        \x20try: child = os.fork()\n\
        \x20except OSError: break\n\
        \x20if child == 0:\n\
        \x20 kept = b'x' * size\n\
        \x20 os.write(w, b'x')\n\
        \x20 time.sleep(60)\n\
        \x20os.close(w)\n\
        \x20if not os.read(r, 1): break\n\
        \x20here += 1\n\
        while here:\n\
        \x20if os.waitpid(-1, os.WNOHANG)[0] == 0: break\n\
        \x20here -= 1\n\
        print(here, flush=True)\n";
    let mut request = jailed("", jail(Path::new("/var/tmp")));
    request.argv = ["/usr/bin/python3", "-c", script].map(OsString::from).to_vec();
    request.argv.extend([count, bytes].map(|number| number.to_string().into()));
    request.limits = ProcessLimits { wall: Some(Duration::from_secs(60)), ..limits };
    request
}

#[test]
fn the_limits_hold_for_the_whole_tree() {
    if !has_groups() {
        return;
    }
    let memory = ProcessLimits { memory: Some(96 << 20), ..ProcessLimits::default() };
    let processes = ProcessLimits { processes: Some(20), ..ProcessLimits::default() };
    let by_group = (Promise::TreeLimits, vec![Mechanism::ControlGroup]);
    for (count, bytes, limits, most) in [(6, 30 << 20, memory, 3), (60, 0, processes, 19)] {
        let mut request = crowd(count, bytes, limits);
        let (exit, out, err) = run(&request).unwrap();
        // Version 2 kills the whole step when memory runs out.
        let started: u64 =
            if exit.status == ExitStatus::Signal(9) { 0 } else { out.trim().parse().expect(&err) };
        assert!(started <= most, "{started}");
        assert!(exit.enforcement.held.contains(&by_group), "{:?}", exit.enforcement);
        let denied: Vec<_> = exit.enforcement.denied.iter().map(|denial| denial.promise).collect();
        assert_eq!(denied, [Promise::TreeLimits], "{:?}", exit.enforcement);
        // The same within the limits.
        request.argv[3] = "2".into();
        let (exit, out, _) = run(&request).unwrap();
        assert_eq!((out.as_str(), exit.enforcement.denied), ("2\n", vec![]));
    }
}

#[test]
fn a_control_group_is_removed_with_its_step_or_with_the_next() {
    if !has_groups() {
        return;
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let groups = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let groups: Vec<_> = groups
        .lines()
        .filter(|line| line.contains(" - cgroup"))
        .map(|line| line.split(' ').nth(4).unwrap().to_owned())
        .collect();
    let of = |pid: u32| {
        let name = format!("lobster-{pid}-*");
        let found = Command::new("find").args(&groups).args(["-type", "d", "-name", &name]).output().unwrap();
        String::from_utf8(found.stdout).unwrap().lines().count()
    };
    let lobster = |script: &str| {
        Command::new("/proc/self/exe")
            .args([entry::RUNNER_ARGUMENT, "limited", "", script])
            .arg(dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let ended = lobster("echo ran");
    let pid = ended.id();
    let output = ended.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ran\nended Code(0), missing []\n");
    assert_eq!(of(pid), 0);

    let mut killed = lobster("echo up; sleep 100");
    let begin = Instant::now();
    while of(killed.id()) == 0 {
        assert!(begin.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(10));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    // Its step is killed at about the same time, and a group with processes stays.
    while of(killed.id()) > 0 {
        assert!(begin.elapsed() < Duration::from_secs(30), "left behind for good");
        lobster("echo ran").wait_with_output().unwrap();
    }
}

#[test]
fn limits_of_the_tree_are_a_demand_only_when_the_minimum_lists_them() {
    // As an ordinary user in a session without delegation, or as root here.
    let may = has_groups();
    for (kind, demanded) in [("limited", false), ("limited-by-demand", true)] {
        for outcome in as_lobster(kind, "cgroups", "echo ran") {
            let expected = if demanded {
                "refused [\"tree-limits\"]"
            } else {
                "ran\nended Code(0), missing [\"tree-limits\"]"
            };
            assert_eq!(outcome.trim_end(), expected, "{kind}");
        }
        if may {
            assert_eq!(as_lobster(kind, "", "echo ran")[0], "ran\nended Code(0), missing []\n");
        }
    }
}

#[test]
fn a_fork_bomb_is_bounded() {
    // As many as it can get, all alive at once.
    let bomb = "import os, time\n\
        n = 0\n\
        try:\n\
        \x20while n < 3000:\n\
        \x20 if os.fork() == 0: time.sleep(60); os._exit(0)\n\
        \x20 n += 1\n\
        except OSError: pass\n\
        print(n, flush=True)\n";
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let mut request = jailed("", jail(dir.path()));
    request.argv = ["/usr/bin/python3", "-c", bomb].map(OsString::from).to_vec();
    request.limits.processes = Some(50);
    match run(&request) {
        Ok((exit, out, _)) => {
            let started: u64 = out.trim().parse().unwrap();
            assert!((40..=350).contains(&started), "{started}");
            assert!(exit.wall < Duration::from_secs(30));
        }
        // An older kernel cannot limit root, and strict mode reports that.
        Err(SpawnError::Sandbox { missing }) => assert_eq!(missing[0].promise, Promise::ProcessLimit),
        Err(error) => panic!("{error}"),
    }
    request.confinement = Confinement::None;
    let root = rustix::process::geteuid().is_root();
    request.argv = ["/bin/true"].map(OsString::from).to_vec();
    let missing = run(&request).unwrap().0.enforcement.missing;
    assert_eq!(missing.iter().any(|missing| missing.promise == Promise::ProcessLimit), root);
}
