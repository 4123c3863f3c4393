//! Paths that a jail finds and covers when it is made (patterns, repositories, sockets), and the report if
//! that is impossible.

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use super::confined::{jail, jailed};
use super::*;

/// A project with a secret in many places.
fn project() -> tempfile::TempDir {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    for directory in ["sub/deep", "node_modules/x", ".git/objects", "secrets.d", "shut"] {
        fs::create_dir_all(dir.path().join(directory)).unwrap();
    }
    for file in [
        ".env",
        ".env.local",
        "sub/deep/.env",
        "node_modules/x/.env",
        ".git/objects/.env",
        "secrets.d/a",
        "shut/.env",
    ] {
        fs::write(dir.path().join(file), "PASSWORD=x\n").unwrap();
    }
    for file in [".env.example", "secrets.d/README", "sub/.envrc"] {
        fs::write(dir.path().join(file), "plain\n").unwrap();
    }
    dir
}

fn patterns(list: &[&str]) -> Vec<String> {
    list.iter().map(|pattern| (*pattern).to_owned()).collect()
}

fn hidden(dir: &Path, list: &[&str], script: &str) -> (Exit, String) {
    let spec = JailSpec { deny_patterns: patterns(list), ..jail(dir) };
    let script = format!("cd {} && {script}", dir.display());
    let (exit, out, _) = run(&jailed(&script, spec)).unwrap();
    (exit, out)
}

const ENV: [&str; 3] = ["**/.env", "**/.env.*", "!**/.env.example"];

#[test]
fn what_a_pattern_names_is_read_by_no_command() {
    let dir = project();
    for script in [
        "grep -rh PASSWORD . --exclude-dir=secrets.d",
        "grep -r PASSWORD . --include=.env",
        "for f in .*; do cat \"$f\"; done",
        "tail -n 3 ./.??*",
        "ls -A | while read f; do cat \"$f\"; done",
        "find . -name '.env' -exec cat {} +",
        "ln .env alias; cat alias; mv .env moved; cat moved; ln -s .env s; cat s; mv sub bus; cat bus/deep/.env",
        "chmod 777 .env; cat < .env; cp .env copy; cat copy",
    ] {
        let (_, out) = hidden(dir.path(), &ENV, &format!("({script}) 2>/dev/null"));
        assert!(!out.contains("PASSWORD"), "{script}: {out}");
        let _ = fs::rename(dir.path().join("bus"), dir.path().join("sub"));
    }
    let (exit, out) = hidden(
        dir.path(),
        &ENV,
        "cat .env.example sub/.envrc; echo mine > new; cat new; echo y > sub/.env; cat sub/.env",
    );
    assert_eq!(out, "plain\nplain\nmine\ny\n", "what it makes itself is its own");
    assert!(exit.enforcement.held.contains(&(Promise::FsDenyPatterns, vec![Mechanism::MountNamespace])));
    // Without patterns everything is there.
    let (_, out) = hidden(dir.path(), &[], "grep -rh PASSWORD . | wc -l");
    assert_eq!(out, "7\n");
}

#[test]
fn a_hidden_directory_shows_what_is_excepted() {
    let dir = project();
    let list = ["**/secrets.d", "!**/secrets.d/README"];
    let (_, out) = hidden(dir.path(), &list, "cat secrets.d/* 2>/dev/null");
    assert_eq!(out, "plain\n");
    let (_, out) = hidden(
        dir.path(),
        &list[..1],
        "ls secrets.d 2>/dev/null; cat secrets.d/README 2>/dev/null || echo no",
    );
    assert_eq!(out, "no\n");
    // The last pattern that matches decides.
    let (_, out) = hidden(
        dir.path(),
        &["!**/secrets.d/README", "**/secrets.d"],
        "cat secrets.d/README 2>/dev/null || echo no",
    );
    assert_eq!(out, "no\n");
}

#[test]
fn links_do_not_show_what_is_hidden() {
    let dir = project();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("real"), "PASSWORD=x\n").unwrap();
    symlink("real", at("link.pem")).unwrap();
    fs::write(at("inode"), "PASSWORD=x\n").unwrap();
    fs::hard_link(at("inode"), at("sub/deep/key.pem")).unwrap();
    fs::create_dir(at("store")).unwrap();
    fs::write(at("store/token"), "PASSWORD=x\n").unwrap();
    symlink("store", at("vault")).unwrap();
    symlink(".", at("sub/loop")).unwrap();
    let list = ["**/*.pem", "**/vault/token", "**/loop/**/none"];
    let (exit, out) = hidden(
        dir.path(),
        &list,
        "cat real link.pem inode sub/deep/key.pem store/token vault/token 2>/dev/null; :",
    );
    assert_eq!(out, "");
    assert_eq!(exit.enforcement.missing, []);
}

#[test]
fn a_directory_that_cannot_be_looked_through_is_hidden() {
    let script = "cd WORK; mkdir shut; echo PASSWORD > shut/.env; chmod 000 shut; echo made";
    // As the owner, who could open it again; root can read it anyway.
    for (user, outcome) in confined::as_lobster("patterns", "", script).iter().enumerate() {
        assert_eq!(outcome.trim_end(), "made\nhidden\nended Code(0), missing []", "user {user}");
    }
}

#[test]
fn repositories_are_as_they_were_unless_granted() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    for directory in
        [".git/hooks", ".git/objects", ".git/refs", "a/b/.git/hooks", "bare/objects", "bare/refs", "tree"]
    {
        fs::create_dir_all(dir.path().join(directory)).unwrap();
    }
    for file in [".git/HEAD", ".git/config", "a/b/.git/config", "bare/HEAD", "bare/config", "tree/.git"] {
        fs::write(dir.path().join(file), "as it was\n").unwrap();
    }
    let attempts = "for f in .git/commondir .git/HEAD .git/config .git/hooks/x .git/config.worktree .git/info/attributes \
         .git/objects/info/alternates a/b/.git/config a/b/.git/hooks/x a/b/.git/commondir bare/config tree/.git; do \
         mkdir -p $(dirname $f) 2>/dev/null; (echo x >> $f) 2>/dev/null && echo $f; done; \
         for d in .git a a/b a/b/.git; do mv $d moved 2>/dev/null && echo moved $d; done; \
         rm -rf .git tree/.git 2>/dev/null; echo y > a/b/file && mkdir -p c/.git && echo z > c/.git/config && echo done";
    let spec = |write: &[&str]| JailSpec {
        write: [""].iter().chain(write).map(|path| dir.path().join(path)).collect(),
        protect_repositories: true,
        ..jail(dir.path())
    };
    let go = |write: &[&str]| {
        let script = format!("cd {} && {attempts}", dir.path().display());
        let out = run(&jailed(&script, spec(write))).unwrap().1;
        let _ = fs::remove_dir_all(dir.path().join("c"));
        out
    };
    assert_eq!(go(&[]), "done\n", "what it makes itself is its own");
    // If it is granted by its name, everything except for the parts that make git run code.
    assert_eq!(go(&[".git"]), ".git/HEAD\ndone\n");
    for file in ["commondir", "config.worktree", "info/attributes", "objects/info/alternates", "modules"] {
        assert!(!dir.path().join(".git").join(file).exists(), "{file} was left behind");
    }
    assert_eq!(go(&["a/b/.git"]), "done\n");
    // Without the mechanism everything is possible, as before.
    let open = format!("cd {} && {attempts}", dir.path().display());
    let (_, out, _) = run(&jailed(&open, jail(dir.path()))).unwrap();
    assert!(out.starts_with(".git/commondir\n"), "{out}");
}

#[test]
fn git_works_with_its_directory_granted() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let git = |args: &str| {
        let status = std::process::Command::new("sh")
            .args(["-c", &format!("git {args}")])
            .current_dir(dir.path())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    };
    if !git("init -q") {
        return println!("no git here");
    }
    fs::write(dir.path().join("file"), "1").unwrap();
    let spec = JailSpec {
        write: vec![dir.path().to_owned(), dir.path().join(".git")],
        protect_repositories: true,
        ..jail(dir.path())
    };
    let script = format!(
        "cd {} && export HOME=/tmp PATH=/usr/local/bin:/usr/bin:/bin && git add file && \
         git -c user.name=a -c user.email=a@b commit -qm one && git branch other && git checkout -q other && \
         echo 2 > file && git stash -q && git gc -q && git log --oneline | wc -l && git status --short",
        dir.path().display()
    );
    let mut request =
        jailed(&script.replace("git stash", "git -c user.name=a -c user.email=a@b stash"), spec);
    request.env.clear();
    let (exit, out, err) = run(&request).unwrap();
    assert_eq!((exit.status, out.trim()), (ExitStatus::Code(0), "1"), "{err}");
    assert!(git("fsck") && git("status"));
}

#[test]
fn sockets_are_reached_one_by_one() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let at = |name: &str| dir.path().join(name);
    let _listeners = [UnixListener::bind(at("granted")).unwrap(), UnixListener::bind(at("other")).unwrap()];
    let script = "import socket, sys\n\
        def to(path):\n\
        \x20try: socket.socket(socket.AF_UNIX).connect(path); return 'reached'\n\
        \x20except OSError as e: return e.strerror\n\
        print(to('granted'), '|', to('other'))\n\
        try:\n\
        \x20s = socket.socket(socket.AF_UNIX); s.bind('own'); s.listen(); print(to('own'))\n\
        except OSError as e: print(e.strerror)\n\
        a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1).decode())\n\
        import pwd, getpass; print(pwd.getpwuid(0).pw_name)\n";
    let go = |unix: Vec<PathBuf>| {
        let mut request = jailed("", JailSpec { unix, ..jail(dir.path()) });
        request.argv = ["/usr/bin/python3", "-c", script].map(OsString::from).to_vec();
        request.cwd = dir.path().to_owned();
        let (exit, out, err) = run(&request).unwrap();
        assert_eq!(exit.enforcement.missing, [], "{err}");
        let _ = fs::remove_file(at("own"));
        out
    };
    let refused = "Address family not supported by protocol";
    assert_eq!(go(Vec::new()), format!("{refused} | {refused}\n{refused}\nx\nroot\n"));
    assert_eq!(go(vec![at("granted")]), "reached | Permission denied\nreached\nx\nroot\n");
}

#[test]
fn modes_that_give_rights_are_refused() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let script = "import os\n\
        def tried(f):\n\
        \x20try: f(); return 'made'\n\
        \x20except OSError as e: return e.strerror\n\
        open('f', 'w').close()\n\
        fd = os.open('f', os.O_RDONLY)\n\
        for mode in 0o4755, 0o2755, 0o6755, 0o1755, 0o755:\n\
        \x20print(oct(mode), tried(lambda: os.chmod('f', mode)), tried(lambda: os.fchmod(fd, mode)),\n\
        \x20 tried(lambda: os.close(os.open('n%o' % mode, os.O_CREAT | os.O_WRONLY, mode))),\n\
        \x20 tried(lambda: os.mkdir('d%o' % mode, mode)), tried(lambda: os.mkfifo('p%o' % mode, mode)),\n\
        \x20 tried(lambda: os.close(os.open('.', os.O_TMPFILE | os.O_WRONLY, mode))))\n\
        print(tried(lambda: os.open('f', os.O_RDONLY, 0o4755)))\n";
    let mut request = jailed("", jail(dir.path()));
    request.argv = ["/usr/bin/python3", "-c", script].map(OsString::from).to_vec();
    request.cwd = dir.path().to_owned();
    let (_, out, err) = run(&request).unwrap();
    let no = ["Operation not permitted"; 6].join(" ");
    let yes = ["made"; 6].join(" ");
    assert_eq!(
        out,
        format!("0o4755 {no}\n0o2755 {no}\n0o6755 {no}\n0o1755 {yes}\n0o755 {yes}\nmade\n"),
        "{err}"
    );
}

/// The request of ext4 that changes the bytes of a file and none of its times.
#[test]
fn blocks_of_files_cannot_be_exchanged() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let script = "import fcntl, termios\n\
        f = open('f', 'w+')\n\
        for request in 0xc028660f, termios.TCGETS:\n\
        \x20try: fcntl.ioctl(f, request, bytearray(64)); print('done')\n\
        \x20except OSError as e: print(e.strerror)\n";
    let mut request = jailed("", jail(dir.path()));
    request.argv = ["/usr/bin/python3", "-c", script].map(OsString::from).to_vec();
    request.cwd = dir.path().to_owned();
    let (_, out, err) = run(&request).unwrap();
    assert_eq!(out, "Operation not permitted\nInappropriate ioctl for device\n", "{err}");
}

#[test]
fn what_is_added_is_bounded_in_all() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::write(dir.path().join("old"), vec![1; 8 << 20]).unwrap();
    let go = |script: &str| {
        let mut request = jailed(&format!("cd {}; {script}", dir.path().display()), jail(dir.path()));
        request.limits.disk = Some(24 << 20);
        let (exit, out, _) = run(&request).unwrap();
        for entry in fs::read_dir(dir.path()).unwrap().flatten().filter(|entry| entry.file_name() != "old") {
            let _ = fs::remove_file(entry.path());
        }
        (exit.ended, out)
    };
    let passed = Ended::DiskLimit { limit: 24 << 20 };
    let ten = "for i in 1 2 3 4 5 6 7 8 9 10; do head -c 4194304 /dev/zero > f$i; done";
    assert_eq!(go(&format!("{ten}; sleep 5; echo late")), (passed, String::new()));
    // Removed, but still open.
    let open = "for i in 3 4 5 6 7 8 9; do eval \"exec $i>f$i\"; head -c 6291456 /dev/zero >&$i; rm f$i; done; sleep 5; echo late";
    assert_eq!(go(open), (passed, String::new()));
    // Made and removed repeatedly, but never more than the limit at once.
    let (ended, out) = go(
        "for i in 1 2 3 4 5 6 7 8 9 10; do head -c 8388608 /dev/zero > f; rm f; done; cat old > /dev/null; echo fine",
    );
    assert_eq!((ended, out.as_str()), (Ended::ByItself, "fine\n"));
}

#[test]
fn what_cannot_be_looked_through_is_said_and_refused() {
    let dir = project();
    let long = "/a".repeat(70);
    let spec = |mode| JailSpec { deny_patterns: vec![long.clone()], mode, ..jail(dir.path()) };
    let Err(SpawnError::Sandbox { missing }) = run(&jailed("echo ran", spec(EnforcementMode::Strict))) else {
        panic!("it ran");
    };
    assert_eq!(missing[0].promise, Promise::FsDenyPatterns);
    let (exit, out, _) =
        run(&jailed("echo ran", spec(EnforcementMode::Degrade { minimum: vec![] }))).unwrap();
    assert_eq!((out.as_str(), exit.enforcement.missing.len()), ("ran\n", 1));
    let minimum = vec![Promise::FsDenyPatterns];
    assert!(run(&jailed("echo ran", spec(EnforcementMode::Degrade { minimum }))).is_err());

    // A link in the place of a repository could be replaced.
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    symlink("/elsewhere", dir.path().join(".git")).unwrap();
    let spec = JailSpec { protect_repositories: true, ..jail(dir.path()) };
    let Err(SpawnError::Sandbox { missing }) = run(&jailed("echo ran", spec)) else { panic!("it ran") };
    assert_eq!(missing[0].promise, Promise::FsProtect);

    // Deeper than the search.
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let spec = JailSpec { deny_patterns: patterns(&ENV), ..jail(dir.path()) };
    let make =
        format!("cd {}; for i in $(seq 300); do mkdir d; cd d; done; echo x > .env", dir.path().display());
    run(&jailed(&make, spec.clone())).unwrap();
    let Err(SpawnError::Sandbox { missing }) = run(&jailed("echo ran", spec)) else { panic!("it ran") };
    assert!(missing[0].why.contains("it is nested too deeply"), "{missing:?}");
}
