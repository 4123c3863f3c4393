//! Real processes through the real helper.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::*;
use lobster_base::cancel::{CancelReason, CancelToken};

mod confined;
mod found;
mod held;
mod layered;
mod limits;
mod networks;

/// Lets the test executable be the helper, like the real binary. It runs before `main`, and so before the
/// test harness starts threads.
mod entry {
    /// Lets it also be lobster, for tests that kill it or run it as another user.
    pub(super) const RUNNER_ARGUMENT: &str = "__sandbox_test_runner";

    extern "C" fn helper_if_asked() {
        let cmdline = std::fs::read_to_string("/proc/self/cmdline").unwrap_or_default();
        let args: Vec<&str> = cmdline.trim_end_matches('\0').split('\0').collect();
        match args.get(1).copied() {
            Some(super::HELPER_ARGUMENT) => {
                let ended_well = super::helper_main() == std::process::ExitCode::SUCCESS;
                std::process::exit(i32::from(!ended_well));
            }
            Some(RUNNER_ARGUMENT) => super::confined::run_as_lobster(&args[2..]),
            _ => {}
        }
    }

    #[used]
    #[expect(unsafe_code, reason = "the section of functions that run before main")]
    // SAFETY: the section holds pointers to functions that may be called before main; this one needs nothing
    // that main would set up.
    #[unsafe(link_section = ".init_array")]
    static ENTRY: extern "C" fn() = helper_if_asked;
}

#[derive(Default)]
struct Kept {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl OutputSinks for Kept {
    fn write_stdout(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.stdout.extend_from_slice(chunk);
        Ok(())
    }

    fn write_stderr(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.stderr.extend_from_slice(chunk);
        Ok(())
    }
}

fn request(argv: &[&str]) -> SpawnRequest {
    SpawnRequest {
        argv: argv.iter().map(OsString::from).collect(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        cwd: PathBuf::from("/"),
        stdin: Stdin::Empty,
        limits: ProcessLimits { wall: Some(Duration::from_secs(60)), ..ProcessLimits::default() },
        confinement: Confinement::None,
        upstream: None,
    }
}

fn sh(script: &str) -> SpawnRequest {
    request(&["sh", "-c", script])
}

fn run(request: &SpawnRequest) -> Result<(Exit, String, String), SpawnError> {
    run_with(&Sandbox::new(SandboxConfig::default()), request, &CancelToken::new())
}

fn run_with(
    sandbox: &Sandbox,
    request: &SpawnRequest,
    cancel: &CancelToken,
) -> Result<(Exit, String, String), SpawnError> {
    let mut kept = Kept::default();
    let exit = sandbox.run(request, &mut kept, cancel)?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((exit, text(kept.stdout), text(kept.stderr)))
}

/// Number of processes with `marker` in their command line.
fn alive(marker: &str) -> usize {
    let carries = |pid: &Path| {
        let running = fs::read_to_string(pid.join("stat"))
            .is_ok_and(|stat| !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" Z")));
        running && fs::read_to_string(pid.join("cmdline")).is_ok_and(|line| line.contains(marker))
    };
    let own = std::process::id().to_string();
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| !path.ends_with(&own) && carries(path))
        .count()
}

/// A name that no other process has.
fn marker() -> String {
    format!("lobster-test-{}", uuid::Uuid::new_v4().simple())
}

fn cancel_after(token: &CancelToken, time: Duration) {
    let token = token.clone();
    std::thread::spawn(move || {
        std::thread::sleep(time);
        token.cancel(CancelReason::Signal("SIGTERM".into()));
    });
}

#[test]
fn gives_output_and_status() {
    let (exit, out, err) = run(&sh("echo out; echo err >&2; exit 7")).unwrap();
    assert_eq!((exit.status, exit.ended), (ExitStatus::Code(7), Ended::ByItself));
    assert_eq!((out.as_str(), err.as_str()), ("out\n", "err\n"));
    assert!(exit.max_rss > 100_000 && exit.cpu < Duration::from_secs(5));
    let (exit, ..) = run(&sh("kill -9 $$")).unwrap();
    assert_eq!((exit.status, exit.ended), (ExitStatus::Signal(9), Ended::ByItself));
}

#[test]
fn child_starts_clean() {
    let leaked = File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    let mut request = sh("env; ls /proc/self/fd; grep -E 'Sig(Blk|Ign)' /proc/self/status; \
                          [ $$ = \"$(ps -o sid= $$ | tr -d ' ')\" ] && echo leader; pwd; \
                          (: </dev/tty) 2>/dev/null || echo no tty");
    request.env.push(("ODD".into(), "a b\nc".into()));
    request.cwd = PathBuf::from("/usr");
    let (_, out, _) = run(&request).unwrap();
    // The shell adds PWD and similar variables; 3 is the directory that ls reads.
    let lines: Vec<&str> = out.lines().filter(|l| !l.starts_with("PWD=") && !l.starts_with("_=")).collect();
    let expected = [
        "PATH=/usr/bin:/bin",
        "ODD=a b",
        "c",
        "0",
        "1",
        "2",
        "3",
        "SigBlk:\t0000000000000000",
        "SigIgn:\t0000000000000000",
        "leader",
        "/usr",
        "no tty",
    ];
    let sorted = |mut lines: Vec<String>| {
        lines.sort();
        lines
    };
    assert_eq!(
        sorted(lines.iter().map(ToString::to_string).collect()),
        sorted(expected.iter().map(ToString::to_string).collect())
    );
}

#[test]
fn stdin_is_the_file_or_nothing() {
    assert_eq!(run(&request(&["cat"])).unwrap().1, "");
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&b"x".repeat(300_000)).unwrap();
    file.rewind().unwrap();
    let mut from_file = request(&["wc", "-c"]);
    from_file.stdin = Stdin::File(file);
    assert_eq!(run(&from_file).unwrap().1.trim(), "300000");
}

#[test]
fn both_streams_at_once_do_not_deadlock() {
    let (exit, out, err) = run(&sh("head -c 3000000 /dev/zero >&2; head -c 3000000 /dev/zero")).unwrap();
    assert_eq!((exit.status, out.len(), err.len()), (ExitStatus::Code(0), 3_000_000, 3_000_000));
}

#[test]
fn says_why_nothing_started() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    let path = script.to_str().unwrap();
    assert!(
        matches!(run(&request(&["no-such-program"])), Err(SpawnError::NotFound { program }) if program == Path::new("no-such-program"))
    );
    assert!(matches!(run(&request(&["/no/such"])), Err(SpawnError::NotFound { .. })));
    assert!(matches!(run(&request(&[""])), Err(SpawnError::NotFound { .. })));
    assert!(matches!(run(&request(&[path])), Err(SpawnError::PermissionDenied { doing: "run", .. })));
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert!(matches!(run(&request(&[path])), Err(SpawnError::NoInterpreter { .. })));
    let mut nowhere = sh(":");
    nowhere.cwd = dir.path().join("gone");
    assert!(matches!(run(&nowhere), Err(SpawnError::CwdMissing { path }) if path == nowhere.cwd));
    nowhere.cwd = script.clone();
    assert!(matches!(run(&nowhere), Err(SpawnError::CwdMissing { .. })));
    assert!(matches!(run(&sh(&"x".repeat(200_000))), Err(SpawnError::TooBig { bytes }) if bytes > 200_000));
    assert!(
        matches!(run(&request(&["echo", "a\0b"])), Err(SpawnError::NulByte { place }) if place == "an argument")
    );
    for name in ["", "PATH=/tmp/x:", "=A", "A\0", "BASH_ENV=/tmp/x.sh"] {
        let mut named = sh(":");
        named.env.push((name.into(), String::new().into()));
        assert!(matches!(run(&named), Err(SpawnError::VariableName(at)) if at.0 == name), "{name:?}");
    }
    let cancelled = CancelToken::new();
    cancelled.cancel(CancelReason::Signal("SIGINT".into()));
    let error = run_with(&Sandbox::new(SandboxConfig::default()), &sh(":"), &cancelled).unwrap_err();
    assert_eq!(error.to_string(), "Received SIGINT");
}

#[test]
fn program_lookup_follows_execvp() {
    let dir = tempfile::tempdir().unwrap();
    let tool = dir.path().join("tool");
    // Without a first line, the shell runs it, as in execvp.
    fs::write(&tool, "echo ran $0 $1").unwrap();
    fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut own_path = request(&["tool", "arg"]);
    own_path.env = vec![("PATH".into(), format!("/nonexistent:{}", dir.path().display()).into())];
    assert_eq!(run(&own_path).unwrap().1, format!("ran {} arg\n", tool.display()));
    own_path.env.clear();
    assert!(matches!(run(&own_path), Err(SpawnError::NotFound { .. })));
    let mut no_path = request(&["echo", "hi"]);
    no_path.env.clear();
    assert_eq!(run(&no_path).unwrap().1, "hi\n");
}

#[test]
fn leftovers_get_a_moment_and_no_more() {
    let mark = marker();
    let begin = Instant::now();
    let mut request =
        sh(&format!("(sleep 0.02; echo late) & setsid sh -c 'while :; do sleep 1; done' {mark} & echo hi"));
    request.limits.linger = Duration::from_secs(1);
    let (exit, out, _) = run(&request).unwrap();
    assert_eq!((exit.status, exit.ended, out.as_str()), (ExitStatus::Code(0), Ended::ByItself, "hi\nlate\n"));
    assert!((1..20).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    assert_eq!(alive(&mark), 0);
}

#[test]
fn silent_leftovers_are_not_waited_for() {
    let mut request = sh("sleep 50 >/dev/null 2>&1 & echo hi");
    request.limits.linger = Duration::from_secs(30);
    let (exit, out, _) = run(&request).unwrap();
    assert_eq!(out, "hi\n");
    assert!(exit.wall < Duration::from_secs(10), "{:?}", exit.wall);
}

/// Cancels as soon as the process has printed something, and forces it `later`.
struct CancelAtOutput {
    kept: Kept,
    token: CancelToken,
    later: Option<Duration>,
}

impl OutputSinks for CancelAtOutput {
    fn write_stdout(&mut self, chunk: &[u8]) -> io::Result<()> {
        let reason = || CancelReason::Signal("SIGTERM".into());
        if !self.token.is_cancelled() {
            self.token.cancel(reason());
            if let Some(later) = self.later {
                let token = self.token.clone();
                std::thread::spawn(move || {
                    std::thread::sleep(later);
                    token.force_cancel(reason());
                });
            }
        }
        self.kept.write_stdout(chunk)
    }

    fn write_stderr(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.kept.write_stderr(chunk)
    }
}

fn cancelled(script: &str, term_grace: Duration, later: Option<Duration>) -> (Exit, String) {
    let mut request = sh(script);
    request.limits.term_grace = term_grace;
    let token = CancelToken::new();
    let mut sinks = CancelAtOutput { kept: Kept::default(), token: token.clone(), later };
    let exit = Sandbox::new(SandboxConfig::default()).run(&request, &mut sinks, &token).unwrap();
    (exit, String::from_utf8(sinks.kept.stdout).unwrap())
}

#[test]
fn cancel_is_gentle_first() {
    let polite = "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.01; done";
    let (exit, out) = cancelled(polite, Duration::from_secs(50), None);
    assert_eq!((exit.status, exit.ended, out.as_str()), (ExitStatus::Code(3), Ended::Cancelled, "up\nbye\n"));
    let stubborn = "trap '' TERM; echo up; while :; do sleep 0.01; done";
    let (exit, _) = cancelled(stubborn, Duration::from_millis(250), None);
    assert_eq!((exit.status, exit.ended), (ExitStatus::Signal(9), Ended::Cancelled));
    assert!(exit.wall >= Duration::from_millis(250), "{:?}", exit.wall);
}

#[test]
fn a_second_signal_does_not_wait() {
    let stubborn = "trap '' TERM; echo up; while :; do sleep 0.01; done";
    let (exit, _) = cancelled(stubborn, Duration::from_secs(50), Some(Duration::from_millis(50)));
    assert_eq!((exit.status, exit.ended), (ExitStatus::Signal(9), Ended::Cancelled));
    assert!(exit.wall < Duration::from_secs(20), "{:?}", exit.wall);
}

#[test]
fn a_time_limit_kills_what_ignores_sigterm() {
    let mut slow = sh("trap '' TERM; echo begun; while :; do sleep 0.01; done");
    slow.limits.wall = Some(Duration::from_secs(2));
    let (exit, out, _) = run(&slow).unwrap();
    assert_eq!((exit.status, exit.ended, out.as_str()), (ExitStatus::Signal(9), Ended::TimedOut, "begun\n"));
    slow.argv = sh("trap 'exit 3' TERM; echo begun; while :; do sleep 0.01; done").argv;
    let (exit, ..) = run(&slow).unwrap();
    assert_eq!((exit.status, exit.ended), (ExitStatus::Code(3), Ended::TimedOut));
}

#[test]
fn output_cap_is_exact() {
    let mut loud = sh("exec yes");
    loud.limits.stdout_cap = 100_001;
    let (exit, out, _) = run(&loud).unwrap();
    assert_eq!(exit.ended, Ended::OutputCap { stream: Stream::Stdout, cap: 100_001 });
    assert_eq!(out.len(), 100_001);
    let mut fits = sh("printf 12345 >&2");
    fits.limits.stderr_cap = 5;
    assert_eq!(run(&fits).unwrap().0.ended, Ended::ByItself);
    fits.limits.stderr_cap = 4;
    let (exit, _, err) = run(&fits).unwrap();
    assert_eq!((exit.ended, err.as_str()), (Ended::OutputCap { stream: Stream::Stderr, cap: 4 }, "1234"));
}

#[test]
fn a_failing_sink_ends_the_run() {
    struct Full;
    impl OutputSinks for Full {
        fn write_stdout(&mut self, _: &[u8]) -> io::Result<()> {
            Err(io::Error::new(io::ErrorKind::StorageFull, "disk full"))
        }
        fn write_stderr(&mut self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
    }
    let mark = marker();
    let sandbox = Sandbox::new(SandboxConfig::default());
    let error =
        sandbox.run(&request(&["sh", "-c", "exec yes", &mark]), &mut Full, &CancelToken::new()).unwrap_err();
    assert_eq!(error.to_string(), "cannot keep stdout of the process: disk full");
    assert_eq!(alive(&mark), 0);
}

#[test]
fn limits_reach_the_kernel() {
    let mut limited = sh("ulimit -n; ulimit -f; ulimit -d; ulimit -St; ulimit -Ht");
    limited.limits.open_files = Some(33);
    limited.limits.file_size = Some(512 * 7);
    limited.limits.memory = Some(1024 * 100_000);
    limited.limits.cpu = Some(Duration::from_millis(1500));
    assert_eq!(run(&limited).unwrap().1, "33\n7\n100000\n2\n3\n");
    let mut busy = sh("while :; do :; done");
    busy.limits.cpu = Some(Duration::from_secs(1));
    assert_eq!(run(&busy).unwrap().0.status, ExitStatus::Signal(libc::SIGXCPU));
}

#[test]
fn parallel_runs_do_not_mix() {
    let sandbox = Sandbox::new(SandboxConfig::default());
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let sandbox = &sandbox;
            scope.spawn(move || {
                for turn in 0..5 {
                    let text = format!("{thread}-{turn}");
                    let job = sh(&format!("echo {text}; exit {thread}"));
                    let (exit, out, _) = run_with(sandbox, &job, &CancelToken::new()).unwrap();
                    assert_eq!((exit.status, out), (ExitStatus::Code(thread), format!("{text}\n")));
                }
            });
        }
    });
}

#[test]
fn a_dead_helper_is_replaced_and_a_dead_supervisor_reported() {
    let sandbox = Sandbox::new(SandboxConfig::default());
    let mark = marker();
    // The step's parent is its supervisor.
    let murder = sh(&format!("setsid sh -c 'sleep 100' {mark} & kill -9 $PPID; sleep 100"));
    let error = run_with(&sandbox, &murder, &CancelToken::new()).unwrap_err();
    assert!(error.to_string().contains("its supervisor was killed"), "{error}");
    let begin = Instant::now();
    while alive(&mark) > 0 {
        assert!(begin.elapsed() < Duration::from_secs(5), "the helper ends what a supervisor left");
        std::thread::sleep(Duration::from_millis(10));
    }
    let helper = sh("ps -o ppid= $PPID | tr -d ' '");
    let (_, pid, _) = run_with(&sandbox, &helper, &CancelToken::new()).unwrap();
    let killed = std::process::Command::new("kill").args(["-9", pid.trim()]).status().unwrap();
    assert!(killed.success());
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(run_with(&sandbox, &sh("echo again"), &CancelToken::new()).unwrap().1, "again\n");
}

#[test]
fn a_supervisor_takes_one_step_after_the_other() {
    let sandbox = Sandbox::new(SandboxConfig::default());
    let supervisor = |script: &str| {
        let request = sh(&format!("{script} echo $PPID"));
        let (exit, stdout, _) = run_with(&sandbox, &request, &CancelToken::new()).unwrap();
        (stdout, exit)
    };
    let (first, large) = supervisor("head -c 60000000 /dev/zero | tail -c 50000000 > /dev/null;");
    let (second, small) = supervisor("");
    assert_eq!(first, second);
    assert!(large.max_rss > 40_000_000 && small.max_rss < 20_000_000, "each step is charged for itself");
    // A supervisor that had to kill may have changed, and is not used again.
    assert_eq!(supervisor("sleep 100 &").0, first);
    assert_ne!(supervisor("").0, first);
    // A supervisor that started nothing is used again.
    assert!(run_with(&sandbox, &request(&["/no/such/program"]), &CancelToken::new()).is_err());
    assert!(!supervisor("").0.is_empty());
}

#[test]
fn the_helper_is_not_forked_off_beside_threads() {
    assert!(fork_helper().unwrap_err().to_string().contains("several threads"));
}

/// Children that each make a session and replace themselves for ever.
fn swarm(mark: &str, count: u32) -> SpawnRequest {
    let script = "import os, sys, time\n\
        for _ in range(int(sys.argv[1])):\n\
        \x20if os.fork() == 0:\n\
        \x20 os.setsid()\n\
        \x20 while True:\n\
        \x20  time.sleep(0.5)\n\
        \x20  if os.fork(): os._exit(0)\n\
        print('up', flush=True)\n\
        time.sleep(1000)\n";
    request(&["/usr/bin/env", "python3", "-c", script, &count.to_string(), mark])
}

#[test]
fn no_survivor_of_a_self_replacing_swarm() {
    let mark = marker();
    let mut request = swarm(&mark, 300);
    request.env = std::env::vars_os().collect();
    let token = CancelToken::new();
    let watcher = {
        let (token, mark) = (token.clone(), mark.clone());
        std::thread::spawn(move || {
            let begin = Instant::now();
            while alive(&mark) < 200 && begin.elapsed() < Duration::from_secs(30) {
                std::thread::sleep(Duration::from_millis(20));
            }
            token.force_cancel(CancelReason::Signal("SIGINT".into()));
            Instant::now()
        })
    };
    let sandbox = Sandbox::new(SandboxConfig::default());
    let (exit, ..) = run_with(&sandbox, &request, &token).unwrap();
    let killed_at = watcher.join().unwrap();
    let took = killed_at.elapsed();
    assert_eq!(alive(&mark), 0);
    assert_eq!((exit.ended, exit.enforcement.missing), (Ended::Cancelled, vec![]));
    assert!(took < Duration::from_secs(5), "{took:?}");
    println!("swarm of 300 ended in {took:?}");
}

#[test]
fn no_survivor_of_a_killed_lobster() {
    for kind in ["none", "strict"] {
        kill_lobster(kind);
    }
}

fn kill_lobster(kind: &str) {
    let mark = marker();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let script = format!(
        "for i in 1 2 3 4 5; do setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' {mark} & done; \
         exec sh -c 'sleep 100; :' {mark}"
    );
    let mut lobster = std::process::Command::new("/proc/self/exe")
        .args([entry::RUNNER_ARGUMENT, kind, "", &script])
        .arg(dir.path())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    // The sixth is the main process, and lobster's own command line also contains the marker.
    while alive(&mark) < 7 {
        assert!(begin.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(5));
    }
    lobster.kill().unwrap();
    lobster.wait().unwrap();
    let killed = Instant::now();
    while alive(&mark) > 0 {
        assert!(killed.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("{kind}: all gone {:?} after kill -9", killed.elapsed());
}

#[test]
fn process_groups_do_what_they_can() {
    let sandbox = portable::Sandbox::new(SandboxConfig::default());
    let mut kept = Kept::default();
    let exit = sandbox.run(&sh("echo out; echo err >&2; exit 3"), &mut kept, &CancelToken::new()).unwrap();
    assert_eq!((exit.status, exit.ended), (ExitStatus::Code(3), Ended::ByItself));
    assert_eq!((kept.stdout.as_slice(), kept.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
    assert_eq!(exit.enforcement.missing[0].promise, Promise::TreeKill);
    let token = CancelToken::new();
    cancel_after(&token, Duration::from_millis(50));
    let exit = sandbox.run(&sh("trap '' TERM; sleep 100 & wait; sleep 100"), &mut kept, &token).unwrap();
    assert_eq!((exit.status, exit.ended), (ExitStatus::Signal(9), Ended::Cancelled));
    let mut loud = sh("exec yes");
    loud.limits.stdout_cap = 10;
    let exit = sandbox.run(&loud, &mut Kept::default(), &CancelToken::new()).unwrap();
    assert_eq!(exit.ended, Ended::OutputCap { stream: Stream::Stdout, cap: 10 });
}
