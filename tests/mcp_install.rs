//! `lobster mcp install`: the entry that a client finds in its own file starts a
//! server that answers, and the rest of the file is as it was.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::home::Home;

/// Each client, its file under the home directory and where the entry stands.
const CLIENTS: &[(&str, &str, &str)] = &[
    ("claude", ".claude.json", "/mcpServers/lobster"),
    ("codex", ".codex/config.toml", "/mcp_servers/lobster"),
    ("cursor", ".cursor/mcp.json", "/mcpServers/lobster"),
    ("openclaw", ".openclaw/openclaw.json", "/mcp/servers/lobster"),
];

fn file_of(home: &Home, name: &str) -> PathBuf {
    home.state().with_file_name("home").join(name)
}

fn read(home: &Home, name: &str) -> Value {
    let text = fs::read_to_string(file_of(home, name)).unwrap();
    match name.ends_with(".toml") {
        true => toml::from_str(&text).unwrap(),
        false => serde_json::from_str(&text).unwrap(),
    }
}

/// Starts what an entry says, in another directory and with nothing else of the environment.
fn tools(entry: &Value) -> Value {
    let words = entry["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
    let env = entry["env"].as_object().into_iter().flatten();
    let mut server = Command::new(entry["command"].as_str().unwrap())
        .args(words)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/")
        .envs(env.map(|(name, value)| (name, value.as_str().unwrap())))
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = server.stdin.take().unwrap();
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    for message in [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}),
    ] {
        writeln!(stdin, "{message}").unwrap();
    }
    let lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let answer = lines
        .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap())
        .find(|message| message["id"] == 2)
        .expect("the tools");
    drop(stdin);
    assert!(server.wait().unwrap().success());
    answer["result"]["tools"].clone()
}

#[test]
fn what_is_written_starts_a_server_and_is_taken_away_again() {
    let home = Home::new();
    home.write("flows/greet.lobster", "name: greet\nsteps: [{id: a, run: echo hi}]\n");
    for (client, name, place) in CLIENTS {
        let install = |more: &[&str]| {
            let words = ["mcp", "install", "--client", client].into_iter().chain(more.iter().copied());
            home.lobster(words).run()
        };
        let done = install(&["--", "--workflows", "flows", "--no-run"]);
        assert_eq!(done.code(), 0, "{done:?}");
        let entry = read(&home, name).pointer(place).unwrap().clone();
        let tools = tools(&entry);
        let names: Vec<_> =
            tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert!(names.contains(&"greet") && !names.contains(&"run"), "{client}: {names:?}");

        let again = install(&["--", "--workflows", "flows", "--no-run"]);
        assert!(again.code() == 0 && again.stdout.contains("already"), "{again:?}");
        let other = install(&[]);
        assert!(other.code() == 1 && other.stderr.contains("--force"), "{other:?}");
        assert_eq!(read(&home, name).pointer(place), Some(&entry));
        assert_eq!(install(&["--force"]).code(), 0);
        assert_eq!(read(&home, name).pointer(place).unwrap()["args"], json!(["mcp"]));
        assert_eq!(install(&["--remove"]).code(), 0);
        assert_eq!(read(&home, name).pointer(place), None, "{client}");
        assert!(install(&["--remove"]).stdout.contains("nothing to remove"));
    }
}

#[test]
fn a_file_that_people_keep_stays_theirs() {
    let home = Home::new();
    let file = file_of(&home, ".cursor/mcp.json");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    for (kept, why) in [
        ("{ // mine\n \"mcpServers\": {} }", "comments"),
        ("{\"mcpServers\": 3}", "is not an object"),
        ("[]", "is not a plain"),
    ] {
        fs::write(&file, kept).unwrap();
        let refused = home.lobster(["mcp", "install", "--client", "cursor"]).run();
        assert!(refused.code() == 1 && refused.stderr.contains(why), "{refused:?}");
        assert!(refused.stderr.contains("--print"), "{refused:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), kept);
    }
    // Dotfiles are often links into a repository.
    let real = home.dir().join("dotfiles.json");
    fs::write(&real, "{\"z\": 1, \"mcpServers\": {\"other\": {\"url\": \"https://x\"}}, \"a\": 2}").unwrap();
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(&real, &file).unwrap();
    assert_eq!(home.lobster(["mcp", "install", "--client", "cursor", "--name", "l2"]).run().code(), 0);
    assert!(fs::symlink_metadata(&file).unwrap().is_symlink());
    let written: Value = serde_json::from_str(&fs::read_to_string(&real).unwrap()).unwrap();
    let keys: Vec<_> = written.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["z", "mcpServers", "a"]);
    assert_eq!(written["mcpServers"]["other"]["url"], "https://x");
    assert_eq!(written["mcpServers"]["l2"]["args"], json!(["mcp"]));
}

#[test]
fn options_that_the_server_would_refuse_are_refused_before_anything_is_written() {
    let home = Home::new();
    for words in [
        &["--client", "claude", "--", "--workflow", "x"][..],
        &["--client", "claude", "--", "--workflows", "nowhere"],
        &["--client", "claude", "--", "--http", "127.0.0.1:7411"],
        &["--client", "openclaw", "--project"],
        &["--client", "claude", "--name", "a b"],
    ] {
        let refused = home.lobster(["mcp", "install"].into_iter().chain(words.iter().copied())).run();
        assert!(refused.code() == 2 && !refused.stderr.is_empty(), "{refused:?}");
    }
    let shown = home.lobster(["mcp", "install", "--client", "codex", "--print"]).run();
    assert!(shown.stdout.contains("[mcp_servers.lobster]\ncommand = "), "{shown:?}");
    for (_, name, _) in CLIENTS {
        assert!(!file_of(&home, name).exists(), "{name}");
    }
}
