//! A step that lacks a right names the narrowest grant that it needs, and works with that grant.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use crate::home::Home;

/// Each denied right, a script that needs it, and the grants that its errors name in turn. WORK is the workspace, `~`
/// is outside of it, and PORT is a port of this machine.
const DENIED: &[(&str, &str, &[&str])] = &[
    ("a file outside", "cat ~/notes/a.txt", &["fs_read = [\"~/notes/a.txt\"]"]),
    ("a directory outside", "ls ~/notes", &["fs_read = [\"~/notes\"]"]),
    ("a file that a link leads to", "cat link", &["fs_read = [\"~/notes/a.txt\"]"]),
    ("a new file", "touch built", &["fs_write = [\"WORK\"]"]),
    ("a new directory", "mkdir -p made/deep", &["fs_write = [\"WORK\"]"]),
    ("a file that is there", "echo x > old", &["fs_write = [\"WORK/old\"]"]),
    ("a file in a directory", "touch src/new", &["fs_write = [\"WORK/src\"]"]),
    ("to remove a file", "rm old", &["fs_write = [\"WORK\"]"]),
    ("to rename a file", "mv src/f src/g", &["fs_write = [\"WORK/src\"]"]),
    (
        "to replace a file, which python does not name",
        "python3 -c 'import os; open(\"old\", \"a\"); os.remove(\"old\")'",
        &["fs_write = [\"WORK/old\"]", "fs_write = [\"WORK\"]"],
    ),
    ("the repository", "git add old", &["fs_write = [\"WORK/.git\"]"]),
    ("a file outside, to write", "echo x > ~/notes/a.txt", &["fs_write = [\"~/notes/a.txt\"]"]),
    ("a secret of the workspace", "cat id_rsa", &["fs_read = [\"WORK/id_rsa\"]"]),
    (
        "a port of this machine",
        "curl -fsS http://127.0.0.1:PORT/",
        &["net = { hosts = [\"127.0.0.1:PORT\"] }"],
    ),
    (
        "the same, for python",
        "echo fetching http://127.0.0.1:PORT/ >&2; python3 -c 'import urllib.request as u; u.urlopen(\"http://127.0.0.1:PORT/\").read()'",
        &["net = { hosts = [\"127.0.0.1:PORT\"] }"],
    ),
    (
        "a unix socket",
        "echo \"connecting to $HOST_HOME/s\" >&2; python3 -c 'import os, socket; \
         socket.socket(socket.AF_UNIX).connect(\"~/s\")'",
        &["unix = [\"~/s\"]"],
    ),
    ("a variable", "set -u; echo $DEPLOY_TO", &["env = [\"DEPLOY_TO\"]"]),
    (
        "a variable, for python",
        "python3 -c 'import os; print(os.environ[\"DEPLOY_TO\"])'",
        &["env = [\"DEPLOY_TO\"]"],
    ),
    (
        "a new archive, which tar names in another place",
        "tar cf src/t.tar old",
        &["fs_write = [\"WORK/src\"]"],
    ),
    ("a directory outside, for a new file", "cp old ~/notes/", &["fs_write = [\"~/notes\"]"]),
    ("a directory outside, to enter", "cd ~/notes && ls", &["fs_read = [\"~/notes\"]"]),
    ("a program", "tool", &["fs_read = [\"~/bin/tool\"]"]),
];

/// Hints that no grant of this test can follow, by the script that fails.
const TOLD: &[(&str, &str)] = &[
    ("curl -sS https://example.invalid/", "missing grant: net = { hosts = [\"example.invalid:443\"] }"),
    (
        "echo fetching http://web.example.invalid:81/ >&2; curl -sS http://web.example.invalid:81/",
        "missing grant: net = { hosts = [\"web.example.invalid:81\"] }",
    ),
    (
        "curl -sS https://api.example.invalid/",
        "missing at the step: credentials: { \"api.example.invalid\": api_key }",
    ),
    ("echo x > ~/none/a", "missing grant: fs_write = [\"~/none\"], which has to exist first"),
    ("cat a.key", "a pattern of sandbox.fs.deny hides it"),
    ("touch ~/notes/new", "missing grant: fs_write = [\"~/notes/new\"], which has to exist first"),
    (
        "python3 -c 'open(\"~/notes/new\", \"w\")'",
        "~/notes/new: it may not write ~/notes/new; missing grant: fs_write = [\"~/notes/new\"], which has to exist first",
    ),
    ("echo 500 > /proc/self/oom_score_adj", "which is the kernel's: no grant allows that"),
    ("echo '#!/bin/sh' > .git/hooks/pre-commit", "git would run programs from it, so no grant allows that"),
    ("curl -sS http://10.1.2.3:8080/", "missing grant: net = { hosts = [\"10.1.2.3:8080\"] }"),
    (
        "echo \"connect 10.1.2.3:8080: Network is unreachable\" >&2; exit 1",
        "missing grant: net = { hosts = [\"10.1.2.3:8080\"] }",
    ),
    ("echo 'connect: Network is unreachable' >&2; exit 1", "does not say which"),
    (
        "echo 'ssh: Could not resolve hostname a.example.invalid: Name or service not known' >&2; exit 255",
        "missing grant: net = { hosts = [\"a.example.invalid:22\"] }",
    ),
];

/// Messages and commands that name no path, or a path that no grant concerns.
const UNTOLD: &[&str] = &[
    "echo 'zip I/O error: Read-only file system' >&2; exit 1",
    "echo 'x: Cannot write: Read-only file system' >&2; exit 1",
    "echo 'x: cannot open file: Read-only file system' >&2; exit 1",
    "echo 'connect: Network is unreachable' >&2; exit 1",
    "cat ~/notes/none",
    "cat none",
];

/// Runs the script without its text being part of the command, which the policy would judge.
const DRIVER: &str = "import subprocess, sys; sys.exit(subprocess.run(['sh', 'do.sh']).returncode)\n";

struct Scene {
    home: Home,
    /// The caller's home. It is not below /tmp, which each jail replaces.
    outside: tempfile::TempDir,
    port: u16,
    _socket: UnixListener,
}

impl Scene {
    fn new() -> Self {
        let home = Home::new();
        let outside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for (name, text) in [("notes/a.txt", "one"), ("bin/tool", "#!/bin/sh\necho ok\n")] {
            let file = outside.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, text).unwrap();
        }
        let tool =
            home.program("/bin/chmod", ["+x", outside.path().join("bin/tool").to_str().unwrap()]).run();
        assert_eq!(tool.code(), 0);
        home.write("old", "x").write("src/f", "x").write("id_rsa", "x").write("a.key", "x");
        std::os::unix::fs::symlink(outside.path().join("notes/a.txt"), home.dir().join("link")).unwrap();
        let init = home.program("/usr/bin/git", ["init", "-q", "."]).run();
        assert_eq!(init.code(), 0, "{init:?}");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 4096]);
                let _ =
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
            }
        });
        let socket = UnixListener::bind(outside.path().join("s")).unwrap();
        Self { home, outside, port, _socket: socket }
    }

    /// The error of a step that runs `script` with this grant, if it fails.
    fn error_of(&self, script: &str, grant: &str) -> Option<String> {
        let outside = self.outside.path().display();
        self.home.write(
            "../p.toml",
            format!(
                "version = 1\n[sandbox.fs]\ndeny = [\"**/*.key\"]\n[sandbox.env]\n\
                 set = {{ PATH = \"/usr/bin:/bin:{outside}/bin\", HOST_HOME = \"{outside}\" }}\n\
                 [secrets.api_key]\nenv = \"API_KEY\"\nhosts = [\"api.example.invalid\"]\n\
                 [[rule]]\nid = \"t\"\neffect = \"allow\"\nprogram = \"python3\"\ngrant = {{ {grant} }}\n"
            ),
        );
        let script = script.replace('~', &outside.to_string()).replace("PORT", &self.port.to_string());
        self.home.write("do.sh", script).write("do.py", DRIVER);
        self.home.write("x.lobster", "steps:\n  - { id: a, exec: [python3, do.py] }\n");
        let run = self.home.lobster(["run", "--mode", "tool", "--policy", "../p.toml", "x.lobster"]);
        let answer = run
            .env("HOME", self.outside.path())
            .env("DEPLOY_TO", "prod")
            .env("API_KEY", "k3y-0123456789")
            .run();
        let envelope = answer.envelope();
        (envelope["ok"] != true).then(|| envelope["error"]["message"].as_str().unwrap_or_default().to_owned())
    }

    fn work(&self) -> PathBuf {
        self.home.dir().canonicalize().unwrap()
    }
}

/// The grant that a message names first.
fn hinted(message: &str) -> Option<&str> {
    message.split_once("missing grant: ").and_then(|(_, rest)| rest.lines().next())
}

/// The grants that the errors of a step have named.
#[derive(Default)]
pub(crate) struct Granted(BTreeMap<String, BTreeSet<String>>);

impl Granted {
    /// Adds the grants of a message; false if it names no new one.
    pub(crate) fn add(&mut self, message: &str) -> bool {
        let mut is_new = false;
        for grant in message.split("missing grant: ").skip(1).filter_map(|rest| rest.lines().next()) {
            let Some((key, values)) = grant.split_once(" = ") else { continue };
            let values = values.split('"').skip(1).step_by(2).map(str::to_owned);
            let known = self.0.entry(key.to_owned()).or_default();
            values.for_each(|value| is_new |= known.insert(value));
        }
        is_new
    }

    /// Their keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// As a rule has them.
    pub(crate) fn text(&self) -> String {
        let texts = self.0.iter().map(|(key, values)| match key.as_str() {
            "net" => {
                format!("net = {{ hosts = {values:?} }}").replace("{\"", "[\"").replace("\"} }", "\"] }")
            }
            _ => format!("{key} = {values:?}").replace('{', "[").replace('}', "]"),
        });
        texts.collect::<Vec<_>>().join(", ")
    }
}

#[test]
fn a_denied_step_names_the_narrowest_grant_and_works_with_it() {
    let mut wrong = Vec::new();
    for (what, script, grants) in DENIED {
        let scene = Scene::new();
        let filled = |grant: &str| {
            grant
                .replace("WORK", &scene.work().display().to_string())
                .replace("PORT", &scene.port.to_string())
        };
        let mut granted = String::new();
        for grant in *grants {
            let Some(message) = scene.error_of(script, &granted) else {
                wrong.push(format!("{what}: works with {granted:?}"));
                break;
            };
            if message.contains("cannot enforce") {
                return println!("no jail here: {message}");
            }
            if message.matches("missing grant: ").count() == 0 || hinted(&message) != Some(&filled(grant)) {
                wrong.push(format!("{what}: {grant} is not the grant of {message}"));
            }
            granted = filled(grant);
        }
        if let Some(message) = scene.error_of(script, &granted) {
            wrong.push(format!("{what}: with {granted}: {message}"));
        }
    }
    let scene = Scene::new();
    for (script, told) in TOLD {
        let message = scene.error_of(script, "").unwrap_or_default();
        if !message.contains(told) {
            wrong.push(format!("{script}: {message}"));
        }
    }
    for script in UNTOLD {
        let message = scene.error_of(script, "").unwrap_or_default();
        if message.is_empty() || message.contains("missing grant") {
            wrong.push(format!("{script}: {message:?} names a grant, or nothing failed"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A rule can name the address of a credential, as the step's file writes it: `{url}`.
#[test]
fn a_rule_covers_the_address_of_a_credential() {
    let home = Home::new();
    home.write(
        "p.toml",
        "version = 1\n[secrets.api_key]\nenv = \"API_KEY\"\nhosts = [\"api.example.invalid\"]\n\
         [[rule]]\nid = \"t\"\neffect = \"allow\"\nargv = [\"python3\", \"say.py\", \"base={url}/v1\"]\n",
    );
    home.write("say.py", "import sys; print(sys.argv[1])\n");
    home.write(
        "x.lobster",
        "secrets: [api_key]\nsteps:\n  - id: a\n    run: python3 say.py \"base=$API_BASE/v1\"\n    \
         credentials: { api.example.invalid: { secret: api_key, env: API_BASE } }\n",
    );
    let run = home.lobster(["run", "--mode", "tool", "--policy", "p.toml", "x.lobster"]);
    let answer = run.env("API_KEY", "k3y-0123456789").run();
    let text = answer.envelope().to_string();
    assert!(text.contains("base=http://127.0.0.2:3129") || text.contains("cannot enforce"), "{text}");
}
