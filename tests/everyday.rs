//! Everyday commands work in the jail, and one that lacks a grant names it: `everyday/tools.txt` says what each
//! needs. Every template of `policy init` is asked; a run of the tests asks one of them unless
//! `LOBSTER_EVERYDAY_TEMPLATES` names more.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use serde_json::{Value, json};

use crate::hinted_grants::Granted;
use crate::home::Home;

struct Tool {
    name: &'static str,
    programs: Vec<&'static str>,
    needs: Vec<&'static str>,
    command: &'static str,
}

fn tools() -> Vec<Tool> {
    let lines = include_str!("everyday/tools.txt").lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut parts = line.splitn(4, " | ").map(str::trim);
            let mut next = || parts.next().unwrap();
            let (name, programs, needs) = (next(), next(), next());
            let words = |text: &'static str| text.split_whitespace().collect();
            Tool { name, programs: words(programs), needs: words(needs), command: next() }
        })
        .collect()
}

/// Runs the commands that it finds in a file, and says what came of each.
const DRIVER: &str = "import json, subprocess, sys, tempfile, os\n\
    os.environ['TMPDIR'] = '/tmp'\n\
    for name, command in json.load(open('commands.json')):\n\
    \x20r = subprocess.run(['bash', '-o', 'pipefail', '-c', command], capture_output=True, timeout=100)\n\
    \x20print(json.dumps([name, r.returncode, (r.stdout + r.stderr)[-600:].decode(errors='replace')]))\n";

/// As many grants as a command may ask for in turn.
const MOST_GRANTS: usize = 5;

/// The same for one, whose words are the step's own.
const ALONE: &str = "import json, os, subprocess, sys\n\
    os.environ['TMPDIR'] = '/tmp'\n\
    command = json.load(open('commands.json'))[0][1]\n\
    print('+', command, file=sys.stderr, flush=True)\n\
    sys.exit(subprocess.run(['bash', '-o', 'pipefail', '-c', command]).returncode)\n";

/// Serves files of a directory over HTTP, and to whoever speaks otherwise an end.
fn serve(root: &Path) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let root = root.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let root = root.clone();
            // A client that goes away is no concern of this test.
            std::thread::spawn(move || answer(stream, &root));
        }
    });
    port
}

fn answer(mut stream: TcpStream, root: &Path) -> std::io::Result<()> {
    let mut head = [0; 4096];
    let length = stream.read(&mut head)?;
    let text = String::from_utf8_lossy(&head[..length]).into_owned();
    let Some(path) = text.strip_prefix("GET /").and_then(|rest| rest.split([' ', '?']).next()) else {
        return Ok(());
    };
    let (status, body) = match std::fs::read(root.join(path)) {
        Ok(body) => ("200 OK", body),
        Err(_) => ("404 Not Found", Vec::new()),
    };
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len())?;
    stream.write_all(&body)
}

fn project() -> Home {
    let home = Home::new();
    home.write("a.txt", "one:1\nneedle:2\n")
        .write("a.json", "{\"a\": 1}\n")
        .write("a.md", "# title\n")
        .write("a.sh", "#!/bin/sh\nls\n")
        .write("A.java", "class A { public static void main(String[] a) { System.out.println(1); } }\n")
        .write("h.c", "int main(void) { return 0; }\n")
        .write("c.patch", "--- a.txt\n+++ a.txt\n@@ -1,2 +1,2 @@\n-one:1\n+two:1\n needle:2\n")
        .write("src/f", "x\n")
        .write("out/keep", "")
        .write("proj/Makefile", "all:\n\tcp ../a.txt made\n")
        .write("proj/CMakeLists.txt", "cmake_minimum_required(VERSION 3.0)\nproject(p C)\nadd_executable(p p.c)\n")
        .write("proj/p.c", "int main(void) { return 0; }\n")
        .write("proj/Cargo.toml", "[package]\nname = \"p\"\nversion = \"1.0.0\"\nedition = \"2021\"\n")
        .write("proj/src/main.rs", "fn main() {}\n")
        .write("proj/go.mod", "module example.com/p\n")
        .write("proj/main.go", "package main\nfunc main() {}\n")
        .write("proj/test_p.py", "def test_p():\n    assert True\n")
        .write("proj/package.json", "{\"name\": \"p\", \"scripts\": {\"build\": \"cp ../a.txt built\"}}\n")
        .write(
            "proj/fork.js",
            "if (process.send) { process.on('message', m => { process.send(m + 1); process.disconnect() }) }\n\
             else { const c = require('child_process').fork(__filename); c.on('message', m => console.log(m)); c.send(1) }\n",
        );
    let init = "git init -q . && git add -A && git -c user.name=a -c user.email=a@b commit -qm one && \
                git clone -q --bare . ../served/r.git && cd ../served/r.git && git update-server-info && \
                cp ../../work/a.txt ..";
    std::fs::create_dir(home.dir().join("../served")).unwrap();
    let made = home.program("/bin/sh", ["-c", init]).run();
    assert_eq!(made.code(), 0, "{made:?}");
    home
}

/// A template of `policy init` with one rule more.
fn policy(home: &Home, template: &str, grant: &str) {
    let init = home.lobster(["policy", "init", "--kind", template]).run();
    let rule = format!(
        "\n[[rule]]\nid = \"tools\"\neffect = \"allow\"\nprogram = \"python3\"\ngrant = {{ {grant} }}\n"
    );
    home.write("../p.toml", init.stdout + &rule);
}

fn run(home: &Home, commands: &[(&str, String)], driver: &str) -> Value {
    home.write("commands.json", json!(commands).to_string()).write("driver.py", driver);
    home.write("x.lobster", "steps:\n  - { id: a, exec: [python3, driver.py] }\n");
    home.tool(["--policy", "../p.toml", "x.lobster"]).envelope()
}

fn ask(template: &str) {
    let home = project();
    let port = serve(&home.dir().join("../served"));
    let is_there =
        |program: &&str| ["/usr/bin", "/bin"].iter().any(|dir| Path::new(dir).join(program).exists());
    let (there, absent): (Vec<Tool>, Vec<Tool>) =
        tools().into_iter().partition(|tool| tool.programs.iter().all(&is_there));
    for tool in &absent {
        println!("skipped, not installed here: {}", tool.name);
    }
    let with_host = |command: &str| {
        command.replace("HOST", &format!("127.0.0.1:{port}")).replace("PORT", &port.to_string())
    };
    let all: Vec<_> = there.iter().map(|tool| (tool.name, with_host(tool.command))).collect();
    let grant = format!(
        "fs_write = [\"@workspace\", \"@workspace/.git\"], net = {{ hosts = [\"127.0.0.1:{port}\"] }}"
    );
    policy(&home, template, &grant);
    let answer = run(&home, &all, DRIVER);
    let text = answer["output"][0].as_str().unwrap_or_default();
    if answer.to_string().contains("cannot enforce") {
        println!("no jail here: {answer}");
        return;
    }
    let results: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(results.len(), all.len(), "{answer}");
    let failed: Vec<&Value> = results.iter().filter(|result| result[1] != 0).collect();
    assert!(failed.is_empty(), "{template}: {failed:#?}");
    println!("{template}: {} of {} work", results.len() - failed.len(), results.len());

    // Without what they need they fail, and work with the grants that their errors name.
    let mut wrong = Vec::new();
    for tool in there.iter().filter(|tool| !tool.needs.is_empty()) {
        let home = project();
        let mut granted = Granted::default();
        let error = (0..MOST_GRANTS).find_map(|_| {
            policy(&home, template, &granted.text());
            let answer = run(&home, &[(tool.name, with_host(tool.command))], ALONE);
            let error = answer["error"]["message"].as_str().unwrap_or_default();
            let is_over = answer["ok"] == true || !granted.add(error);
            is_over.then(|| error.to_owned())
        });
        let needs = |key: &str| tool.needs.contains(if key == "net" { &"host" } else { &"write" });
        if error.as_deref() != Some("")
            || !granted.keys().all(needs)
            || granted.keys().count() != tool.needs.len()
        {
            wrong.push(format!("{}: {}: {error:?}", tool.name, granted.text()));
        }
    }
    assert!(wrong.is_empty(), "{template}: {wrong:#?}");
}

#[test]
fn everyday_commands_work_in_the_templates() {
    let templates = std::env::var("LOBSTER_EVERYDAY_TEMPLATES").unwrap_or_else(|_| "python".to_owned());
    for template in templates.split_whitespace() {
        ask(template);
    }
}
