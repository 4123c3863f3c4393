//! Confinement: the enforced and missing promises, with and without root.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::*;

/// A confined run by a separate process: `kind` is `none`, `strict` or `degrade`; `lacking` names mechanisms
/// to remove from its kernel. Prints the step's output and then the result.
pub(super) fn run_as_lobster(args: &[&str]) -> ! {
    let [kind, lacking, script, rest @ ..] = args else { std::process::exit(99) };
    take_away(lacking);
    if *kind == "doctor" {
        println!("{}", examine());
        std::process::exit(0);
    }
    let spec = |mode| JailSpec { mode, ..jail(Path::new(rest[0])) };
    let minimum = vec![Promise::FsWrite, Promise::NetDeny, Promise::NoNewPrivs, Promise::TreeKill];
    let confinement = match *kind {
        "strict" => Confinement::Jail(spec(EnforcementMode::Strict)),
        "degrade" => Confinement::Jail(spec(EnforcementMode::Degrade { minimum })),
        "limited" => Confinement::Jail(spec(EnforcementMode::Strict)),
        "limited-by-demand" => {
            Confinement::Jail(JailSpec { tree_limits: true, ..spec(EnforcementMode::Strict) })
        }
        "host-network" => Confinement::Jail(JailSpec { net: Net::Host, ..spec(EnforcementMode::Strict) }),
        "ports" => {
            let ports = Some(Ports { network: "run".into(), listen: vec![3000], connect: vec![] });
            Confinement::Jail(JailSpec { ports, ..spec(EnforcementMode::Strict) })
        }
        "host-network-and-socket" => {
            let unix = vec![PathBuf::from("/nonexistent")];
            Confinement::Jail(JailSpec { net: Net::Host, unix, ..spec(EnforcementMode::Strict) })
        }
        // The script makes the files to hide; then a jail searches for them.
        "patterns" => {
            let made = run(&sh(&script.replace("WORK", rest[0]))).unwrap().1;
            print!("{made}");
            let deny_patterns = vec!["**/.env".to_owned()];
            Confinement::Jail(JailSpec { deny_patterns, ..spec(EnforcementMode::Strict) })
        }
        "walls" => Confinement::LandlockSeccomp(spec(EnforcementMode::Strict)),
        _ => Confinement::None,
    };
    let look =
        format!("chmod 700 {0}/shut 2>/dev/null; cat {0}/shut/.env 2>/dev/null || echo hidden", rest[0]);
    let script = if *kind == "patterns" { &look } else { *script };
    let mut request = SpawnRequest { confinement, ..sh(script) };
    if kind.starts_with("limited") {
        request.limits.memory = Some(256 << 20);
    }
    match run(&request) {
        Ok((exit, out, err)) => {
            let missing: Vec<_> = exit.enforcement.missing.iter().map(|m| m.promise.to_string()).collect();
            println!("{out}{err}ended {:?}, missing {missing:?}", exit.status);
        }
        Err(SpawnError::Sandbox { missing }) => {
            let missing: Vec<_> = missing.iter().map(|m| m.promise.to_string()).collect();
            println!("refused {missing:?}");
        }
        Err(error) => println!("failed: {error}"),
    }
    std::process::exit(0)
}

/// Makes the kernel look older or stricter to this process and its children.
fn take_away(lacking: &str) {
    let when = |argument, value: u64, mask: u64| {
        let operator = SeccompCmpOp::MaskedEq(mask);
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value).unwrap();
        vec![SeccompRule::new(vec![condition]).unwrap()]
    };
    let user_namespace = u64::from(libc::CLONE_NEWUSER.unsigned_abs());
    for name in lacking.split_terminator(',') {
        let (rules, errno) = match name {
            "user-namespaces" => {
                let rule = when(0, user_namespace, user_namespace);
                (vec![(libc::SYS_clone, rule.clone()), (libc::SYS_unshare, rule)], libc::EPERM)
            }
            // Like Ubuntu's AppArmor profile: the namespace is made, but useless.
            "mounts" => {
                let calls = [libc::SYS_mount, libc::SYS_move_mount, libc::SYS_open_tree];
                (calls.map(|call| (call, vec![])).to_vec(), libc::EPERM)
            }
            // As in a container with read-only control groups.
            "cgroups" => {
                // The jail makes its own directories, by descriptor.
                let by_path = when(0, u64::from(libc::AT_FDCWD.cast_unsigned()), u64::MAX);
                (vec![(libc::SYS_mkdir, vec![]), (libc::SYS_mkdirat, by_path)], libc::EROFS)
            }
            "landlock" => {
                let calls = [libc::SYS_landlock_create_ruleset, libc::SYS_landlock_restrict_self];
                (calls.map(|call| (call, vec![])).to_vec(), libc::ENOSYS)
            }
            "seccomp" => {
                let rule = when(0, libc::PR_SET_SECCOMP.unsigned_abs().into(), u64::MAX);
                (vec![(libc::SYS_seccomp, vec![]), (libc::SYS_prctl, rule)], libc::EINVAL)
            }
            _ => std::process::exit(98),
        };
        let filter = SeccompFilter::new(
            rules.into_iter().collect(),
            SeccompAction::Allow,
            SeccompAction::Errno(errno.unsigned_abs()),
            std::env::consts::ARCH.try_into().unwrap(),
        );
        let program: seccompiler::BpfProgram = filter.unwrap().try_into().unwrap();
        rustix::thread::set_no_new_privs(true).unwrap();
        seccompiler::apply_filter(&program).unwrap();
    }
}

/// Runs the script as this user and, if possible, as `nobody`.
pub(super) fn as_lobster(kind: &str, lacking: &str, script: &str) -> Vec<String> {
    let root = rustix::process::geteuid().is_root();
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(outside.path(), PermissionsExt::from_mode(0o777)).unwrap();
    fs::write(outside.path().join("secret"), "secret\n").unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let script = &script
        .replace("OUTSIDE", outside.path().to_str().unwrap())
        .replace("PORT", &listener.local_addr().unwrap().port().to_string());
    let users: &[&str] = if root { &["", "--reuid=65534 --regid=65534 --clear-groups"] } else { &[""] };
    users
        .iter()
        .map(|user| {
            let work = tempfile::tempdir_in("/var/tmp").unwrap();
            let mut command = if user.is_empty() {
                Command::new("/proc/self/exe")
            } else {
                rustix::fs::chown(work.path(), Some(rustix::fs::Uid::from_raw(65534)), None).unwrap();
                let mut command = Command::new("setpriv");
                command.args(user.split(' ')).arg(std::env::current_exe().unwrap());
                command
            };
            let output = command
                .args([entry::RUNNER_ARGUMENT, kind, lacking, script])
                .arg(work.path())
                .current_dir("/")
                .stderr(Stdio::inherit())
                .output()
                .unwrap();
            String::from_utf8_lossy(&output.stdout).replace(work.path().to_str().unwrap(), "WORK")
        })
        .collect()
}

fn for_all_users(kind: &str, lacking: &str, script: &str, expected: &str) {
    for (number, outcome) in as_lobster(kind, lacking, script).iter().enumerate() {
        assert_eq!(outcome.trim_end(), expected, "user {number}, {kind} without {lacking:?}");
    }
}

/// Possible for any user without confinement.
const TRY: &str = "(echo x > OUTSIDE/new$$) 2>/dev/null && echo wrote; \
     (cat OUTSIDE/secret) 2>/dev/null && echo read; \
     (: < /dev/tcp/127.0.0.1/PORT) 2>/dev/null && echo connected; :";

fn bash(script: &str) -> String {
    format!("exec bash -c '{script}'")
}

#[test]
fn what_holds_is_the_same_for_root_and_nobody() {
    for_all_users("none", "", &bash(TRY), "wrote\nsecret\nread\nconnected\nended Code(0), missing []");
    for_all_users("strict", "", &bash(TRY), "ended Code(0), missing []");
    for_all_users("walls", "", &bash(TRY), "ended Code(0), missing []");
}

#[test]
fn strict_refuses_what_the_host_cannot_hold() {
    let without_namespaces = "refused [\"fs-metadata\", \"process-isolation\"]";
    for lacking in ["user-namespaces", "mounts"] {
        for_all_users("strict", lacking, "echo ran", without_namespaces);
    }
    for_all_users("strict", "seccomp", "echo ran", "refused [\"unix-deny\", \"kernel-surface\"]");
    // A second barrier only: the namespaces enforce all promises.
    for_all_users("strict", "landlock", &bash(TRY), "ended Code(0), missing []");
    for_all_users("host-network", "", &bash(TRY), "connected\nended Code(0), missing []");
    for_all_users("host-network", "landlock", &bash(TRY), "connected\nended Code(0), missing []");
    // Abstract sockets are shared with the host then, and only Landlock scopes them.
    for_all_users("host-network-and-socket", "", "echo ran", "ran\nended Code(0), missing []");
    for_all_users("host-network-and-socket", "landlock", "echo ran", "refused [\"unix-deny\"]");
    for_all_users("walls", "landlock", "echo ran", "refused [\"fs-read\", \"fs-write\"]");
}

#[test]
fn degraded_says_what_is_missing_and_keeps_the_minimum() {
    let rest = "ended Code(0), missing [\"fs-metadata\", \"process-isolation\"]";
    for lacking in ["user-namespaces", "mounts"] {
        for_all_users("degrade", lacking, &bash(TRY), rest);
    }
    let rest = "ran\nended Code(0), missing [\"unix-deny\", \"kernel-surface\"]";
    for_all_users("degrade", "seccomp", "echo ran", rest);
    for_all_users("degrade", "user-namespaces,landlock", "echo ran", "refused [\"fs-write\"]");
    for_all_users("degrade", "user-namespaces,seccomp", "echo ran", "refused [\"net-deny\"]");
}

#[test]
fn a_jailed_swarm_dies_at_once() {
    let mark = marker();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let mut request = swarm(&mark, 300);
    let token = CancelToken::new();
    request.argv[0] = "/usr/bin/env".into();
    request.argv[1] = "/usr/bin/python3".into();
    request.confinement = Confinement::Jail(jail(dir.path()));
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
    let (exit, ..) = run_with(&Sandbox::new(SandboxConfig::default()), &request, &token).unwrap();
    println!("jailed swarm of 300 ended in {:?}", watcher.join().unwrap().elapsed());
    assert_eq!((alive(&mark), exit.ended), (0, Ended::Cancelled));
}

#[test]
fn a_replaced_file_is_the_copy_whatever_becomes_of_the_original() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (work, copies) = (dir.path().join("work"), dir.path().join("copies"));
    for path in [&work, &copies] {
        fs::create_dir(path).unwrap();
    }
    let (script, copy) = (work.join("run.sh"), copies.join("0"));
    fs::write(&copy, "#!/bin/sh\necho approved\n").unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    let spec =
        || JailSpec { replaced: vec![Replaced { path: script.clone(), copy: copy.clone() }], ..jail(&work) };
    fs::write(&script, "#!/bin/sh\necho other\n").unwrap();
    let attempts = format!(
        "cd {} && ./run.sh && sh run.sh; (echo echo mine > run.sh) 2>/dev/null || echo cannot change; \
         rm -f run.sh 2>/dev/null || echo cannot remove; mv run.sh x 2>/dev/null || echo cannot move; \
         echo fine > beside && cat beside",
        work.display()
    );
    let (exit, out, err) = run(&jailed(&attempts, spec())).unwrap();
    let expected = "approved\napproved\ncannot change\ncannot remove\ncannot move\nfine\n";
    assert_eq!((out.as_str(), exit.status), (expected, ExitStatus::Code(0)), "{err}");
    let held = exit.enforcement.held.iter().find(|(promise, _)| *promise == Promise::ApprovedFiles);
    assert_eq!(held, Some(&(Promise::ApprovedFiles, vec![Mechanism::MountNamespace])));
    assert_eq!(fs::read_to_string(&script).unwrap(), "#!/bin/sh\necho other\n");

    // A link in its place would put the copy elsewhere.
    fs::rename(&script, work.join("real.sh")).unwrap();
    std::os::unix::fs::symlink("real.sh", &script).unwrap();
    match run(&jailed("true", spec())) {
        Err(SpawnError::Replaced { path }) => assert_eq!(path, script),
        other => panic!("{other:?}"),
    }
    fs::remove_file(&script).unwrap();
    match run(&jailed("true", spec())) {
        Err(SpawnError::Replaced { path }) => assert_eq!(path, script),
        other => panic!("{other:?}"),
    }
    // Not promised without mounts.
    fs::write(&script, "echo other\n").unwrap();
    let request = SpawnRequest { confinement: Confinement::LandlockSeccomp(spec()), ..sh("true") };
    match run(&request) {
        Err(SpawnError::Sandbox { missing }) => {
            let missing = missing.iter().find(|missing| missing.promise == Promise::ApprovedFiles).unwrap();
            assert!(missing.why.contains("no copy of the approved content"), "{missing}");
        }
        other => panic!("{other:?}"),
    }
    // A file that the step writes itself has no copy. The statement reports that, and the run is refused if
    // copies are required.
    let uncopied = |copies_only| JailSpec { uncopied: vec![script.clone()], copies_only, ..spec() };
    let (exit, _, err) =
        run(&jailed("echo more >> run.sh", JailSpec { replaced: Vec::new(), ..uncopied(false) })).unwrap();
    let lost = exit.enforcement.missing.iter().find(|missing| missing.promise == Promise::ApprovedFiles);
    assert!(lost.is_some_and(|lost| lost.why.contains("run.sh")), "{:?}, {err}", exit.enforcement);
    assert!(exit.enforcement.held.iter().all(|(promise, _)| *promise != Promise::ApprovedFiles));
    match run(&jailed("true", uncopied(true))) {
        Err(SpawnError::Sandbox { missing }) => {
            assert_eq!(missing.iter().map(|one| one.promise).collect::<Vec<_>>(), [Promise::ApprovedFiles]);
        }
        other => panic!("{other:?}"),
    }
}

/// A jail that contains everything that an ordinary program needs.
pub(super) fn jail(root: &Path) -> JailSpec {
    JailSpec {
        read: ["/usr", "/bin", "/lib", "/lib64", "/etc/passwd", "/etc/ld.so.cache"]
            .map(PathBuf::from)
            .to_vec(),
        write: vec![root.to_owned()],
        ..JailSpec::default()
    }
}

pub(super) fn jailed(script: &str, spec: JailSpec) -> SpawnRequest {
    SpawnRequest { confinement: Confinement::Jail(spec), ..sh(script) }
}

#[test]
fn a_jail_holds_what_it_promises() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let work = dir.path().join("work");
    let (open, shut) = (work.join("open"), work.join("git/hooks"));
    for path in [&open, &shut] {
        fs::create_dir_all(path).unwrap();
    }
    fs::write(dir.path().join("outside"), "secret").unwrap();
    fs::write(open.join("hidden"), "secret").unwrap();
    let spec = JailSpec { deny: vec![open.join("hidden")], protect: vec![shut.clone()], ..jail(&work) };
    let script = format!(
        "cd {work} && echo written > open/file && mkdir new && cat open/file; \
         cat ../outside 2>/dev/null || echo cannot read; \
         cat open/hidden 2>/dev/null || echo cannot see; \
         (echo x > git/hooks/post) 2>/dev/null || echo cannot change; \
         mv git elsewhere 2>/dev/null || echo cannot move; \
         chmod 777 /usr 2>/dev/null || echo cannot chmod; \
         (echo x > /root/x) 2>/dev/null || echo cannot create; \
         echo tmp > /tmp/x && cat /tmp/x; \
         echo /proc/[0-9]*; id -u; hostname; \
         grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; \
         unshare -U true 2>/dev/null || echo cannot unshare; \
         (echo > /proc/sys/kernel/core_pattern) 2>/dev/null || echo cannot tune; ls /",
        work = work.display()
    );
    let (exit, out, err) = run(&jailed(&script, spec)).unwrap();
    let uid = rustix::process::getuid().as_raw();
    assert_eq!(
        out,
        format!(
            "written\ncannot read\ncannot see\ncannot change\ncannot move\ncannot chmod\ncannot create\ntmp\n/proc/1 /proc/2\n{uid}\n\
             lobster\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n\
             cannot unshare\ncannot tune\nbin\ndev\netc\nlib\nlib64\nproc\ntmp\nusr\nvar\n"
        ),
        "{err}"
    );
    assert_eq!((exit.status, exit.enforcement.missing), (ExitStatus::Code(0), vec![]));
    assert_eq!(fs::read_to_string(open.join("file")).unwrap(), "written\n");
}

#[test]
fn protected_paths_need_not_exist() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let hooks = dir.path().join("git/hooks");
    let spec = JailSpec { protect: vec![hooks.clone(), dir.path().join("config")], ..jail(dir.path()) };
    let script = format!(
        "cd {}; (echo x > git/hooks/a) 2>/dev/null || echo no hook; \
         mv git x 2>/dev/null || echo no move; rm -rf git config 2>/dev/null; \
         (mkdir -p git/hooks && echo x > git/hooks/a) 2>/dev/null || echo still no hook; \
         (echo x > config) 2>/dev/null || echo no config; echo y > git/other; ls -a git",
        dir.path().display()
    );
    let (_, out, err) = run(&jailed(&script, spec.clone())).unwrap();
    assert_eq!(out, "no hook\nno move\nstill no hook\nno config\n.\n..\nhooks\nother\n", "{err}");
    // The user's files stay, lobster's are gone.
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["git"]);
    assert!(!hooks.exists());

    fs::remove_dir_all(dir.path().join("git")).unwrap();
    std::os::unix::fs::symlink("/etc", dir.path().join("git")).unwrap();
    let error = run(&jailed("echo ran", spec)).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("cannot protect {hooks:?}: it is a symbolic link, or its path contains one")
    );
}

#[test]
fn one_run_does_not_lift_the_protection_of_another() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = dir.path().join("shut");
    let spec = JailSpec { protect: vec![path.clone()], ..jail(dir.path()) };
    let sandboxes = [(); 2].map(|()| Sandbox::new(SandboxConfig::default()));
    for other in &sandboxes {
        let sandbox = &sandboxes[0];
        let go = |sandbox: &Sandbox, script: &str| {
            let script = format!("cd {}; {script}", dir.path().display());
            run_with(sandbox, &jailed(&script, spec.clone()), &CancelToken::new()).unwrap().1
        };
        let out = std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                go(
                    sandbox,
                    "touch first; until [ -e second ]; do sleep 0.01; done; (echo x > shut/x) 2>/dev/null || echo shut",
                )
            });
            until_there(&dir.path().join("first"));
            let long = scope.spawn(|| {
                go(
                    other,
                    "touch second; until [ -e first-ended ]; do sleep 0.01; done; \
                     (echo x > shut/x) 2>/dev/null || echo still shut; rmdir shut 2>/dev/null",
                )
            });
            // The run that made the placeholder ends first.
            assert_eq!(first.join().unwrap(), "shut\n");
            fs::write(dir.path().join("first-ended"), "").unwrap();
            long.join().unwrap()
        });
        assert_eq!(out, "still shut\n");
        for name in ["first", "second", "first-ended"] {
            fs::remove_file(dir.path().join(name)).unwrap();
        }
        // The last run removes it.
        assert!(!path.exists());
    }
}

pub(super) fn until_there(path: &Path) {
    let begin = Instant::now();
    while !path.exists() {
        assert!(begin.elapsed() < Duration::from_secs(30), "nobody made {path:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Answers every connection with a line.
fn greeter() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // This test ignores clients that go away.
            let _ =
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n");
            let _ = stream.shutdown(std::net::Shutdown::Write).map(|()| stream.read(&mut [0; 1024]));
        }
    });
    port
}

#[test]
fn granted_hosts_are_reached_and_no_others() {
    let (granted, other) = (greeter(), greeter());
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let net = Net::Hosts(vec![HostPort { host: "127.0.0.1".into(), port: granted }]);
    let client = format!(
        "import os, urllib.request, urllib.error, socket\n\
         del os.environ['NO_PROXY'], os.environ['no_proxy']\n\
         def get(port):\n\
         \x20try: return urllib.request.urlopen(f'http://127.0.0.1:{{port}}/').read().decode().strip()\n\
         \x20except urllib.error.HTTPError as e: return e.code\n\
         def tunnel(port):\n\
         \x20s = socket.create_connection(('127.0.0.1', 3128))\n\
         \x20s.sendall(f'CONNECT 127.0.0.1:{{port}} HTTP/1.1\\r\\n\\r\\n'.encode())\n\
         \x20data = b''\n\
         \x20while chunk := s.recv(4096): data += chunk; s.shutdown(1) if b'hello' in data else None\n\
         \x20return data.split()[1].decode(), b'hello' in data\n\
         def direct(port):\n\
         \x20try: return socket.create_connection(('127.0.0.1', port)).recv(99).decode().split()[-1]\n\
         \x20except OSError as e: return e.strerror\n\
         print(get({granted}), get({other}), tunnel({granted}), tunnel({other}), direct({granted}), direct({other}))\n"
    );
    let mut request = jailed("", JailSpec { net, ..jail(dir.path()) });
    request.argv = ["/usr/bin/python3", "-c", &client].map(OsString::from).to_vec();
    request.env.push(("HTTP_PROXY".into(), "http://elsewhere".into()));
    let (exit, out, err) = run(&request).unwrap();
    assert_eq!(out, "hello 403 ('200', True) ('403', False) hello Connection refused\n", "{err}");
    let what = format!("127.0.0.1:{other}: not among the granted hosts");
    let denial = Denial { promise: Promise::NetHosts, what };
    assert_eq!(exit.enforcement.denied, [denial.clone(), denial]);
    // By a plain request, through a tunnel and directly; reported once.
    assert_eq!(exit.enforcement.reached, [format!("127.0.0.1:{granted}")]);
    assert!(exit.enforcement.held.iter().any(|(promise, by)| {
        *promise == Promise::NetHosts && *by == [Mechanism::NetNamespace, Mechanism::Proxy]
    }));
    // Without namespaces there is no proxy, and nothing can be reached.
    request.confinement =
        Confinement::LandlockSeccomp(JailSpec { net: Net::Hosts(Vec::new()), ..jail(dir.path()) });
    assert!(
        matches!(run(&request), Err(SpawnError::Sandbox { missing }) if missing[0].promise == Promise::NetHosts)
    );
}

/// The doctor's findings in two lines.
fn examine() -> String {
    let checkup = Sandbox::new(SandboxConfig::default()).attack_jail().unwrap();
    let with = |verdict| -> Vec<&str> {
        let findings = checkup.findings.iter().filter(|finding| finding.verdict == verdict);
        findings.map(|finding| finding.action.as_str()).collect()
    };
    let mut open: Vec<_> =
        checkup.probe.jail.missing.iter().map(|missing| missing.promise.to_string()).collect();
    open.sort_unstable();
    let most = if with(ProbeVerdict::Held).len() * 3 > checkup.findings.len() * 2 { "most" } else { "few" };
    eprintln!("impossible: {:?}", with(ProbeVerdict::Impossible));
    format!(
        "broken {:?}, open {:?} {open:?}, {most} held",
        with(ProbeVerdict::Broken),
        with(ProbeVerdict::Unenforceable)
    )
}

#[test]
fn the_doctor_finds_nothing_broken() {
    for (user, outcome) in as_lobster("doctor", "", "").iter().enumerate() {
        // It depends on the host whether this user may make control groups.
        let swell = "take more memory than the step may have, in several processes";
        let without = format!("broken [], open [{swell:?}] [\"tree-limits\"], most held");
        let outcome = outcome.trim_end();
        assert!(["broken [], open [] [], most held", &without].contains(&outcome), "user {user}: {outcome}");
    }
}

#[test]
fn the_doctor_tells_what_a_lesser_host_leaves_open() {
    for outcome in as_lobster("doctor", "user-namespaces", "") {
        assert!(outcome.starts_with("broken [], open ["), "{outcome}");
        assert!(outcome.contains("change the mode of a file"), "{outcome}");
        assert!(outcome.contains("read a file that a pattern denies"), "{outcome}");
        assert!(outcome.contains("run a replacement of an approved file"), "{outcome}");
        assert!(outcome.contains("have git use the settings of another directory"), "{outcome}");
    }
    for outcome in as_lobster("doctor", "seccomp", "") {
        for attack in ["make a user namespace", "leave a set-user-id program behind"] {
            assert!(outcome.contains(attack), "{outcome}");
        }
    }
}

#[test]
fn there_is_always_a_place_for_temporary_files() {
    for kind in ["strict", "walls"] {
        let script = "f=$(mktemp) && echo x > $f && cat $f; (: > /tmp/of-$$) 2>/dev/null && echo tmp; [ -n \"$TMPDIR\" ] && \
                      echo named; :";
        let expected = if kind == "strict" { "x\ntmp" } else { "x\nnamed" };
        for_all_users(kind, "", script, &format!("{expected}\nended Code(0), missing []"));
    }
}

#[test]
fn a_link_is_no_write_root() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("/etc", &link).unwrap();
    for kind in [Confinement::Jail as fn(JailSpec) -> Confinement, Confinement::LandlockSeccomp] {
        let request = SpawnRequest { confinement: kind(jail(&link)), ..sh("echo ran") };
        assert_eq!(
            run(&request).unwrap_err().to_string(),
            format!(
                "cannot grant {:?} to the step: a symbolic link leads to it; name its real path",
                link.display()
            )
        );
        let gone = jail(&dir.path().join("gone"));
        let request = SpawnRequest { confinement: kind(gone), ..sh("echo ran") };
        assert!(
            matches!(run(&request), Err(SpawnError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound)
        );
    }
}

#[test]
fn jails_in_parallel_do_not_meet() {
    let sandbox = Sandbox::new(SandboxConfig::default());
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let sandbox = &sandbox;
            scope.spawn(move || {
                let dir = tempfile::tempdir_in("/var/tmp").unwrap();
                for turn in 0..3 {
                    let script = format!("echo {thread} > /tmp/mine; cat /tmp/mine; echo /proc/[0-9]*");
                    let job = jailed(&script, jail(dir.path()));
                    let (exit, out, err) = run_with(sandbox, &job, &CancelToken::new()).unwrap();
                    // The supervisor and the shell.
                    assert_eq!(
                        (exit.status, out),
                        (ExitStatus::Code(0), format!("{thread}\n/proc/1 /proc/2\n")),
                        "{turn} {err}"
                    );
                }
            });
        }
    });
}
