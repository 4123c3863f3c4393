//! State directories that cannot be used, and state that is not ours to touch.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::home::Home;

#[test]
fn a_file_where_the_state_directory_should_be() {
    let home = Home::new();
    home.write("state-file", "mine");
    let answer = home
        .lobster(["run", "--mode", "tool", "exec echo hi"])
        .env("LOBSTER_STATE_DIR", home.dir().join("state-file"))
        .run();
    assert!(answer.error().contains("state-file"), "{answer:?}");
    assert_eq!(home.read("state-file"), "mine");
    for words in [&["runs"][..], &["approvals"], &["show", "x"]] {
        let answer = home.lobster(words).env("LOBSTER_STATE_DIR", home.dir().join("state-file")).run();
        assert!(
            answer.code() != 0 && answer.stdout.is_empty() && answer.stderr.contains("state-file"),
            "{answer:?}"
        );
    }
}

#[test]
fn a_state_directory_that_cannot_be_written() {
    if rustix::process::geteuid().is_root() {
        // Root may write anywhere but into a file system that cannot.
        let answer = Home::new()
            .lobster(["run", "--mode", "tool", "exec echo hi"])
            .env("LOBSTER_STATE_DIR", "/proc/lobster")
            .run();
        assert!(answer.error().contains("/proc/lobster"), "{answer:?}");
        return;
    }
    let home = Home::new();
    std::fs::set_permissions(home.state(), std::fs::Permissions::from_mode(0o555)).unwrap();
    home.write("flow.lobster", "steps: [{ id: a, run: echo ran >> log }]");
    assert!(home.tool(["flow.lobster"]).error().contains("state"));
    assert_eq!(home.read("log"), "");
}

#[test]
fn no_home_and_no_state_directory() {
    let home = Home::new();
    let answer = home
        .lobster(["run", "--mode", "tool", "exec echo hi"])
        .env("LOBSTER_STATE_DIR", "")
        .env("HOME", "/dev/null/none")
        .run();
    assert!(answer.error().contains("/dev/null/none"), "{answer:?}");
}

#[test]
fn a_database_that_is_none_is_left_alone() {
    for content in [
        &b"this is not a database, but it may be somebody's"[..],
        b"SQLite format 3\0 and then nothing",
        &[0; 4096],
    ] {
        let home = Home::new();
        let database = home.state().join("store/lobster.db");
        std::fs::create_dir_all(database.parent().unwrap()).unwrap();
        std::fs::write(&database, content).unwrap();
        let message = home.tool(["exec echo hi"]).error();
        assert!(message.contains("lobster.db"), "{message}");
        assert_eq!(std::fs::read(&database).unwrap(), content);
    }
}

#[test]
fn state_of_a_newer_version_is_not_touched() {
    let home = Home::new();
    home.tool(["exec echo hi"]).output();
    let database = home.state().join("store/lobster.db");
    let mut bytes = std::fs::read(&database).unwrap();
    // The user version lies at offset 60 of an SQLite file, big-endian.
    bytes[60..64].copy_from_slice(&9999_u32.to_be_bytes());
    for extra in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(home.state().join(format!("store/lobster.db{extra}")));
    }
    std::fs::write(&database, &bytes).unwrap();
    let message = home.tool(["exec echo hi"]).error();
    assert!(message.contains("newer") || message.contains("9999"), "{message}");
    assert_eq!(std::fs::read(&database).unwrap()[..100], bytes[..100]);
}

#[test]
fn a_database_that_lost_its_tail_is_refused() {
    let home = Home::new();
    for _ in 0..3 {
        home.tool(["exec echo hi"]).output();
    }
    let database = home.state().join("store/lobster.db");
    let bytes = std::fs::read(&database).unwrap();
    let half = &bytes[..bytes.len() / 2];
    std::fs::write(&database, half).unwrap();
    for extra in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(home.state().join(format!("store/lobster.db{extra}")));
    }
    let message = home.tool(["exec echo hi"]).error();
    assert!(message.contains("lobster.db"), "{message}");
    assert_eq!(std::fs::read(&database).unwrap(), half, "what is left is there to be rescued");
}

#[test]
fn many_processes_share_a_state_directory() {
    let home = Home::new();
    let homes = &home;
    std::thread::scope(|scope| {
        for n in 0..8 {
            scope.spawn(move || {
                for round in 0..4 {
                    assert_eq!(
                        homes.tool([format!("exec echo {n}-{round}")]).output()[0],
                        format!("{n}-{round}")
                    );
                }
            });
        }
    });
    let listed = home.lobster(["runs", "--json", "--limit", "0"]).run();
    let runs: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(runs.as_array().map(Vec::len), Some(32));
    assert!(runs.as_array().into_iter().flatten().all(|run| run["status"] == "ok"));
}

#[test]
fn state_is_the_owners_alone() {
    let home = Home::new();
    home.tool(["exec echo hi"]).output();
    let mode = |path: &str| std::fs::metadata(home.state().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("store"), 0o700);
    assert_eq!(mode("store/lobster.db") & 0o077, 0);
}

/// Everything below a directory with its mode. What goes meanwhile is left out.
fn modes(dir: &Path) -> Vec<(String, u32, bool)> {
    let mut all = Vec::new();
    if let Ok(found) = std::fs::symlink_metadata(dir) {
        all.push((dir.display().to_string(), found.permissions().mode() & 0o777, found.is_dir()));
        let entries = if found.is_dir() { std::fs::read_dir(dir).ok() } else { None };
        for entry in entries.into_iter().flatten().filter_map(Result::ok) {
            all.extend(modes(&entry.path()));
        }
    }
    all
}

#[test]
fn the_state_is_its_users_alone_whatever_the_umask_is() {
    for (umask, existing) in [("000", false), ("022", false), ("000", true), ("022", true)] {
        let home = Home::new();
        let state = home.dir().join("new/state");
        if existing {
            let first = home.lobster(["run", "--mode", "tool", "exec echo 1 | state.set k"]);
            assert_eq!(first.env("LOBSTER_STATE_DIR", &state).run().code(), 0);
            std::fs::create_dir(state.join("models")).unwrap();
            for (path, _, is_dir) in modes(&state) {
                let open = if is_dir { 0o777 } else { 0o666 };
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(open)).unwrap();
            }
        }
        home.write(
            "flow.lobster",
            "steps:\n  - id: a\n    run: head -c 200000 /dev/zero | tr '\\\\0' x\n  - id: b\n    pipeline: exec echo 1 | state.set key\n\
             \x20 - id: c\n    approval: Go?\n",
        );
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", &format!("umask {umask}; exec \"$0\" \"$@\"")]).arg(crate::binary::lobster());
        shell.args(["run", "--mode", "tool", "flow.lobster"]).current_dir(home.dir());
        shell.env("LOBSTER_STATE_DIR", &state).env("HOME", home.dir());
        let answer = shell.output().unwrap();
        assert!(String::from_utf8_lossy(&answer.stdout).contains("needs_approval"), "{answer:?}");
        assert!(state.join("key.json").exists());
        assert_private(&state, &format!("umask {umask}, existing {existing}"));
    }
}

fn assert_private(state: &Path, when: &str) {
    for (path, mode, is_dir) in modes(state) {
        let most = if is_dir { 0o700 } else { 0o600 };
        assert_eq!(mode & !most, 0, "{when}: {path} has mode {mode:o}");
    }
}

#[test]
fn what_lies_in_the_state_for_a_moment_is_its_users_alone_too() {
    let home = Home::new();
    let state = home.dir().join("new/state");
    home.write("policy.toml", "version = 1\n[sandbox]\nmode = \"degrade\"\nminimum = []\n");
    home.write(
        "flow.lobster",
        "steps:\n  - id: a\n    run: head -c 3000000 /dev/zero | tr '\\\\0' x; touch running; sleep 1\n\
         \x20 - id: b\n    run: cat\n    stdin: $a.stdout\n  - id: c\n    approval: Go?\n",
    );
    let with_umask = |words: &[&str]| {
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", "umask 000; exec \"$0\" \"$@\""]).arg(crate::binary::lobster()).args(words);
        shell.current_dir(home.dir()).env("LOBSTER_STATE_DIR", &state).env("HOME", home.dir());
        shell.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
        shell
    };
    // The database's log, its index, locks, drafts and spooled output are seen while it runs.
    let mut running = with_umask(&["run", "--mode", "tool", "flow.lobster"]).spawn().unwrap();
    let mut seen = std::collections::BTreeSet::new();
    while running.try_wait().unwrap().is_none() {
        for (path, mode, is_dir) in modes(&state) {
            let most = if is_dir { 0o700 } else { 0o600 };
            assert_eq!(mode & !most, 0, "while it runs: {path} has mode {mode:o}");
            seen.insert(path);
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    assert!(home.dir().join("running").exists());
    for name in ["lobster.db-wal", "lobster.db-shm"] {
        assert!(seen.iter().any(|path| path.ends_with(name)), "{name} was there: {seen:?}");
    }
    // A bundle that is written anywhere else holds all of a run too.
    let listed = with_umask(&["runs", "--json"]).output().unwrap();
    let runs: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let bundle = home.dir().join("run.bundle");
    let run = runs[0]["id"].as_str().unwrap();
    let exported = with_umask(&["bundle", "export", run, "-o", bundle.to_str().unwrap()]).output().unwrap();
    assert!(exported.status.success(), "{exported:?}");
    let bundle_mode = std::fs::metadata(&bundle).unwrap().permissions().mode() & 0o777;
    assert_eq!(bundle_mode & 0o077, 0, "the bundle has mode {bundle_mode:o}");
    assert_private(&state, "afterwards");
}

#[test]
fn a_steps_own_state_directory_is_for_its_state_alone() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - id: own\n    env: { LOBSTER_STATE_DIR: ./own }\n    pipeline: exec --json echo 1 | state.set k\n\
         \x20 - id: usual\n    pipeline: state.get k\n\
         \x20 - id: again\n    env: { LOBSTER_STATE_DIR: ./own }\n    pipeline: state.get k\n",
    );
    let answer = home.tool(["flow.lobster"]);
    assert_eq!(answer.output(), serde_json::json!([1]), "{answer:?}");
    assert_eq!(home.read("own/k.json"), "1\n");
    assert!(!home.dir().join("own/store/lobster.db").exists() && !home.state().join("k.json").exists());
    // What lobster itself writes somewhere, no policy would judge; and its own files are not state.
    home.write("policy.toml", "version = 1\n").write(
        "flow.lobster",
        "steps:\n  - id: own\n    env: { LOBSTER_STATE_DIR: ./own }\n    pipeline: state.set k\n",
    );
    let answer = home.tool(["--policy", "policy.toml", "flow.lobster"]);
    assert!(answer.error().contains("LOBSTER_STATE_DIR"), "{answer:?}");
    let store = home.state().join("store/trust");
    home.write(
        "flow.lobster",
        format!(
            "env: {{ LOBSTER_STATE_DIR: {} }}\nsteps: [{{ id: a, pipeline: state.set k }}]\n",
            store.display()
        ),
    );
    let answer = home.tool(["flow.lobster"]);
    assert!(answer.error().contains("lobster's own"), "{answer:?}");
}

#[test]
fn a_home_that_is_none_is_an_error_and_is_not_made() {
    let home = Home::new();
    let missing = home.dir().join("missing");
    let tool = |name: &str, state: Option<&str>| {
        let call = home.lobster(["run", "--mode", "tool", "exec true"]).env("HOME", name);
        match state {
            Some(state) => call.env("LOBSTER_STATE_DIR", state).run(),
            None => call.run(),
        }
    };
    for (name, error) in
        [(missing.to_str().unwrap(), "does not exist"), ("relative", "the absolute path of a home")]
    {
        let answer = tool(name, Some(""));
        assert!(answer.error().contains(error), "{name}: {answer:?}");
        // With a state directory no home is needed, and none is made.
        tool(name, None).output();
        assert!(!missing.exists() && !home.dir().join("relative").exists(), "{name}");
    }
}

#[test]
fn commands_that_need_the_store_alone_work_in_a_deleted_directory() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - { id: ask, approval: Go on? }\n  - { id: go, run: echo gone >> effects }\n",
    );
    let token = home.tool(["flow.lobster"]).token();
    home.tool(["flow.lobster"]).token();
    let gates: serde_json::Value =
        serde_json::from_str(&home.lobster(["approvals", "--json"]).run().stdout).unwrap();
    let newest = gates[0]["id"].as_str().unwrap();
    let gone = |words: &[&str]| {
        let script = "mkdir gone && cd gone && rmdir ../gone && exec \"$0\" \"$@\"";
        let binary = crate::binary::lobster().to_str().unwrap();
        home.program("/bin/sh", [&["-c", script, binary], words].concat()).run()
    };
    for words in [
        &["runs"][..],
        &["approvals"],
        &["show", "@"],
        &["logs", "@"],
        &["store", "verify"],
        &["store", "stats"],
    ] {
        let answer = gone(words);
        assert_eq!(answer.code(), 0, "{words:?}: {answer:?}");
    }
    gone(&["approvals", "approve", newest]).output();
    gone(&["resume", "--token", &token, "--approve", "yes"]).output();
    assert_eq!(home.read("effects"), "gone\ngone\n", "they run where they were started");
    let refused = gone(&["run", "--mode", "tool", "exec true"]);
    assert!(refused.error().contains("the working directory cannot be used"), "{refused:?}");
}
