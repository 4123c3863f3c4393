use super::*;

fn hints_on(stderr: &str, spec: &JailSpec, denied: &[Denial], place: &DecisionEnv) -> String {
    let roots = Policy::builtin().resolve_roots(place);
    let bound = |host: &str| (host == "api.example.com:443").then(|| "api_key".to_owned());
    let variable = |name: &str| (name == "DEPLOY_TO").then(|| "prod".to_owned());
    let blocked = Blocked {
        stderr,
        argv: &["sh".to_owned(), "-c".to_owned(), "curl https://example.com".to_owned()],
        cwd: Path::new(&place.workspace),
        spec,
        denied,
        env: &[],
        place,
        roots: &roots,
        credentials: &[],
        bound: &bound,
        variable: &variable,
    };
    blocked.missing_grants().join(" | ")
}

const MADE: &str = "it may not write W/made; missing grant: fs_write = [\"W\"]";

/// A program's message about a refusal, and the hint. W is the workspace, T the directory around it.
const REFUSALS: &[(&str, &str)] = &[
    ("touch: cannot touch 'made': Read-only file system", MADE),
    (
        "sh: 1: cannot create old: Read-only file system",
        "it may not write W/old; missing grant: fs_write = [\"W/old\"]",
    ),
    (
        "rm: cannot remove 'old': Read-only file system",
        "it may not write W/old; missing grant: fs_write = [\"W\"]",
    ),
    (
        "Error: EROFS: read-only file system, rename 'W/old'",
        "it may not write W/old; missing grant: fs_write = [\"W\"]",
    ),
    (
        "cat: T/there: No such file or directory",
        "it may not read T/there; missing grant: fs_read = [\"T/there\"]",
    ),
    (
        "cat: W/link: No such file or directory",
        "it may not read T/there; missing grant: fs_read = [\"T/there\"]",
    ),
    ("cat: T/home/x: No such file or directory", "it may not read ~/x; missing grant: fs_read = [\"~/x\"]"),
    (
        "/bin/sh: 1: cannot create T/home/c/new: Permission denied",
        "it may not write ~/c/new; missing grant: fs_write = [\"~/c\"], which has to exist first",
    ),
    (
        "cat: link: No such file or directory",
        "it may not read T/there; missing grant: fs_read = [\"T/there\"]",
    ),
    ("make: Entering directory 'W/out'\ncp: cannot create regular file 'x': Read-only file system", ""),
    ("cat: W/.env: Permission denied", "it may not see W/.env: sandbox.fs.deny hides it"),
    (
        "cat: W/id_rsa: Permission denied",
        "it may not see W/id_rsa, a built-in secret; missing grant: fs_read = [\"W/id_rsa\"]",
    ),
    ("cat: W/a.key: Permission denied", "it may not see W/a.key: a pattern of sandbox.fs.deny hides it"),
    (
        "[Errno 30] Read-only file system: 'W/out/.git/config'",
        "it may not change W/out/.git/config: sandbox.fs.protect makes it read-only",
    ),
    (
        "x.sh: 3: DEPLOY_TO: parameter not set",
        "it does not receive the variable DEPLOY_TO; missing grant: env = [\"DEPLOY_TO\"]",
    ),
    (
        "KeyError: 'DEPLOY_TO'",
        "it does not receive the variable DEPLOY_TO; missing grant: env = [\"DEPLOY_TO\"]",
    ),
    // The hint names the written file, not the script that wrote it.
    ("W/run.sh: line 3: made: Read-only file system", MADE),
    ("W/run.sh: 3: cannot create made: Permission denied", MADE),
    // A word of a sentence is no path.
    ("cannot open made: Read-only file system at W/run.pl line 3.", ""),
    (
        "cannot open old: Read-only file system at W/run.pl line 3.",
        "it may not write W/old; missing grant: fs_write = [\"W/old\"]",
    ),
    ("tar: made: Cannot open: Read-only file system\ntar: Error is not recoverable: exiting now", MADE),
    ("genrsa: Can't open \"made\" for writing, Read-only file system", MADE),
    ("zip I/O error: Read-only file system", ""),
    (
        "zip error: Could not create output file (x.zip)",
        "it may not write W/x.zip; missing grant: fs_write = [\"W\"]",
    ),
    (
        "error: failed to write `W/made`\n\nCaused by:\n  failed to open: W/made\n\nCaused by:\n  Read-only file system (os error 30)",
        MADE,
    ),
    (
        "sh: 1: cannot create /proc/self/oom_score_adj: Read-only file system",
        "it may not write /proc/self/oom_score_adj, which is the kernel's: no grant allows that",
    ),
    // A new file in a directory that exists and that the command does not see.
    (
        "touch: cannot touch 'T/home/new': No such file or directory",
        "it may not write ~/new; missing grant: fs_write = [\"~/new\"], which has to exist first",
    ),
    (
        "touch: cannot touch 'T/there': No such file or directory",
        "it may not write T/there; missing grant: fs_write = [\"T/there\"]",
    ),
    (
        "mv: cannot move 'old' to 'T/home/d/new': No such file or directory",
        "it may not write ~/d/new; missing grant: fs_write = [\"~/d\"]",
    ),
    (
        "tar: T/home/t.tar: Cannot open: No such file or directory",
        "if it makes ~/t.tar: it may not write ~/t.tar; missing grant: fs_write = [\"~/t.tar\"], which has to exist first",
    ),
    (
        "Error: ENOENT: no such file or directory, open 'T/home/n'",
        "if it makes ~/n: it may not write ~/n; missing grant: fs_write = [\"~/n\"], which has to exist first",
    ),
    (
        "FileNotFoundError: [Errno 2] No such file or directory: 'T/home/n'",
        "if it makes ~/n: it may not write ~/n; missing grant: fs_write = [\"~/n\"], which has to exist first",
    ),
    (
        "cp: cannot create regular file 'T/home/d/': Not a directory",
        "it may not write ~/d; missing grant: fs_write = [\"~/d\"]",
    ),
    ("mkdir: cannot create directory 'old/x': Not a directory", ""),
    (
        "Warning: Failed to open the file T/home/n: No such file or directory",
        "it may not write ~/n; missing grant: fs_write = [\"~/n\"], which has to exist first",
    ),
    ("sh: 1: cd: can't cd to ../home/d", "it may not read ~/d; missing grant: fs_read = [\"~/d\"]"),
    (
        "bash: line 1: cd: ../home/d: No such file or directory",
        "it may not read ~/d; missing grant: fs_read = [\"~/d\"]",
    ),
    (
        "Error: Cannot find module 'T/there'",
        "it may not read T/there; missing grant: fs_read = [\"T/there\"]",
    ),
    (
        "touch: cannot touch 'new:ro': Read-only file system",
        "it may not write W/new:ro; missing grant: fs_write = [\"W\"]",
    ),
    ("sh: 1: cannot create kept:ro: Read-only file system", ""),
    ("cannot open 'made': Read-only file system at W/run.pl line 3.", MADE),
    ("OSError: [Errno 30] Read-only file system: 'made'", MADE),
    ("Error: EROFS: read-only file system, open 'W/made'", MADE),
    ("open W/made: read-only file system", MADE),
    ("error: unable to create file made: Read-only file system", MADE),
    (
        "curl: (6) Could not resolve host: example.com",
        "it may not connect to example.com:443; missing grant: net = { hosts = [\"example.com:443\"] }",
    ),
    (
        "zip error: Could not create output file (src/x.zip)",
        "it may not write W/src/x.zip; missing grant: fs_write = [\"W/src\"]",
    ),
    (
        "Error: unable to open database \"src/x.db\": unable to open database file",
        "it may not write W/src/x.db; missing grant: fs_write = [\"W/src\"]",
    ),
    ("Could not open file : W/run.sh", ""),
    ("cat: W/typo: No such file or directory", ""),
    ("rm: cannot remove 'out/x': Permission denied", ""),
    ("cat: old: Permission denied", ""),
    ("/tmp/x: No such file or directory", ""),
    ("./run.sh: Permission denied", ""),
    ("W/run.sh: line 3: run: Permission denied", ""),
    ("PermissionError: [Errno 13] Permission denied", ""),
    ("Error: Read-only file system (os error 30)", ""),
    ("Error: EROFS: read-only file system, write", ""),
    ("error: something else in /opt/x", ""),
    ("cat: T/nothing: No such file or directory", ""),
    ("sh: 1: typo: not found", ""),
];

#[test]
fn refusals_name_the_missing_grant() {
    let other = tempfile::tempdir_in("/var/tmp").unwrap();
    let (work, home) = (other.path().join("w"), other.path().join("home"));
    for (path, text) in [
        ("there", "x"),
        ("w/old", "x"),
        ("w/run.sh", ""),
        ("w/src/f", ""),
        ("w/out/.git/config", ""),
        ("home/x", ""),
        ("home/d/f", ""),
        ("w/kept:ro", ""),
    ] {
        let path = other.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    std::os::unix::fs::symlink(other.path().join("there"), work.join("link")).unwrap();
    let place = DecisionEnv {
        workspace: work.display().to_string(),
        home: home.display().to_string(),
        ..DecisionEnv::fixture()
    };
    let spec = JailSpec {
        read: vec!["/usr".into(), work.clone()],
        write: vec![work.join("out")],
        deny: vec![work.join(".env")],
        protect: vec![work.join("out/.git")],
        private: vec!["/tmp".into()],
        deny_patterns: secret_patterns(&place, &[]).into_iter().chain(["**/*.key".to_owned()]).collect(),
        ..JailSpec::default()
    };
    // W is the workspace, T the directory around it.
    let filled = |text: &str| {
        text.replace("W/", &format!("{}/", work.display()))
            .replace("W\"", &format!("{}\"", work.display()))
            .replace("T/", &format!("{}/", other.path().display()))
    };
    let hints = |stderr: &str| hints_on(&filled(stderr), &spec, &[], &place);
    for (said, told) in REFUSALS {
        assert_eq!(hints(said), filled(told), "{said}");
    }
    // git copies its templates. The workspace has no repository, and gets none.
    let said =
        filled("fatal: cannot copy '/usr/share/git-core/templates/x' to 'W/.git/x': Read-only file system");
    let told = "it may not make W/.git: no step makes the workspace's repository, so no grant allows that";
    for write in [Vec::new(), vec![work.clone()]] {
        let spec =
            JailSpec { protect_repositories: true, read: vec![work.clone()], write, ..JailSpec::default() };
        let told = told.replace('W', &work.display().to_string());
        assert_eq!(hints_on(&said, &spec, &[], &place), told);
        assert_eq!(hints_on(&filled("W/.git: Read-only file system"), &spec, &[], &place), told);
    }
}

#[test]
fn a_hint_that_a_policy_cannot_have_is_not_told() {
    for (hint, expected) in [
        ("x; missing grant: fs_write = [\"~/a\"], which has to exist first", true),
        ("x; missing grant: net = { hosts = [\"a.example:443\"] }", true),
        ("x; missing grant: listen = [3001]", true),
        ("x; missing grant: fs_read = [\"/a\"], and ~/bin in the PATH of [sandbox.env] set", true),
        ("x; missing grant: ~/bin in the PATH of [sandbox.env] set", true),
        ("x: no grant allows that", true),
        ("x; missing grant: fs_write = [\"a/b\"]", false),
        ("x; missing grant: fs_write = [\"/a\\u{301}\"]", false),
        ("x; missing grant: fs_write = [\"/a:ro\"]", false),
    ] {
        assert_eq!(is_accepted(hint), expected, "{hint}");
    }
}

#[test]
fn a_socket_from_before_the_step_is_to_be_removed() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = dir.path().join("s.sock");
    let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let place = DecisionEnv { workspace: dir.path().display().to_string(), ..DecisionEnv::fixture() };
    let spec = JailSpec { write: vec![dir.path().to_owned()], ..JailSpec::default() };
    let said = |text: &str| hints_on(text, &spec, &[], &place);
    let path = path.display();
    for text in ["Error: listen EADDRINUSE: address already in use s.sock", "s.sock: Address already in use"]
    {
        let told = said(text);
        assert!(told.contains("remove it before the step") && !told.contains("missing grant"), "{told}");
    }
    let told = said("connect s.sock: it is closed");
    assert_eq!(told, format!("it may not reach the socket {path}; missing grant: unix = [\"{path}\"]"));
}

#[test]
fn a_port_beyond_the_granted_ones_is_named() {
    let ports = lobster_sandbox::Ports { network: "n".to_owned(), listen: vec![3000], connect: vec![3002] };
    let spec = JailSpec { ports: Some(ports), ..JailSpec::default() };
    let hints = |stderr: &str| hints_on(stderr, &spec, &[], &DecisionEnv::fixture());
    for (said, told) in [
        (
            "Error: listen EACCES: permission denied 0.0.0.0:3001",
            "it may not listen on port 3001; missing grant: listen = [3001]",
        ),
        (
            "Error: connect EACCES 127.0.0.1:3005",
            "it may not connect to port 3005; missing grant: connect = [3005]",
        ),
        ("Error: connect ECONNREFUSED 127.0.0.1:3002", ""),
        (
            "PermissionError: [Errno 13] Permission denied",
            "if that is about a port: its rule has listen = [3000] and connect = [3002], and no others",
        ),
    ] {
        assert_eq!(hints(said), told, "{said}");
    }
}

#[test]
fn what_the_sandbox_saw_itself_is_told_first() {
    let spec = JailSpec { net: Net::Hosts(Vec::new()), ..JailSpec::default() };
    for (what, told) in [
        (
            "example.com:443: not among the granted hosts",
            "it may not connect to example.com:443: not among the granted hosts; missing grant: net = \
             { hosts = [\"example.com:443\"] }",
        ),
        (
            "db.example.com:5432: it resolves to 10.0.0.5, a private or local address, which must be granted by itself",
            "it may not connect to db.example.com:5432: it resolves to 10.0.0.5, a private or local address, which \
             must be granted by itself; missing grant: net = { hosts = [\"10.0.0.5:5432\"] }",
        ),
        (
            "api.example.com:443: not among the granted hosts",
            "it may not connect to api.example.com:443, which is reached through a credential; missing at the step: \
             credentials: { \"api.example.com\": api_key }",
        ),
    ] {
        let denied = [Denial { promise: Promise::NetHosts, what: what.to_owned() }];
        let stderr = "curl: (6) Could not resolve host: example.com";
        assert_eq!(hints_on(stderr, &spec, &denied, &DecisionEnv::fixture()), told);
    }
}
