//! What killed steps leave on the disk: nothing but the record, once the next run began and a collection went by.

use std::fs;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::home::{Home, wait_until};
use crate::server::{Reply, Server};
use crate::setting::number;

/// A kind of step that does something and stays. It has begun when its output is `said`, or when a file `ready` is there;
/// of those that can do neither, an earlier step makes it.
struct Kind {
    name: &'static str,
    step: String,
    policy: &'static str,
    has_worker: bool,
}

const POLICY: &str = "version = 1\n[sandbox]\nmode = \"degrade\"\nminimum = []\n[[rule]]\nid = \"p\"\n\
                      effect = \"allow\"\nprogram = \"perl\"\ngrant = { fs_write = [\"@workspace\"] }\n";

fn kinds(server: &Server) -> Vec<Kind> {
    let stays =
        "head -c 3000000 /dev/zero > big; mkdir -p closed; chmod 0500 closed; echo said; exec sleep 60";
    let run = |more: &str| format!("steps: [{{id: a, {more} run: '{stays}'}}]\n");
    let kind = |name, step, policy, has_worker| Kind { name, step, policy, has_worker };
    let first = |step: &str| format!("steps:\n  - {{id: first, run: 'touch ready'}}\n  - {step}\n");
    vec![
        kind("native", run(""), "", false),
        kind("native by a worker", run(""), "", true),
        kind("staged", run("changes: staged,"), "", false),
        kind("review", run("changes: review,"), "", false),
        kind("policy jail", "steps: [{id: a, exec: [perl, stays.pl]}]\n".to_owned(), POLICY, false),
        kind("pipeline", format!("steps: [{{id: a, pipeline: \"exec --shell '{stays}'\"}}]\n"), "", false),
        kind("js", first("{id: a, js: 'while (true) {}'}"), "", false),
        kind(
            "model",
            first(&format!(
                "{{id: a, pipeline: \"openclaw.invoke --url {} --tool t --action a\"}}",
                server.url()
            )),
            "",
            false,
        ),
        kind("mcp", "steps: [{id: a, mcp: {command: [./server.sh], tool: say}}]\n".to_owned(), "", false),
    ]
}

fn has_begun(home: &Home) -> bool {
    let kept = fs::read_dir(home.state().join("store/output")).into_iter().flatten().flatten();
    let mut kept = kept.filter_map(|file| fs::read(file.path()).ok());
    kept.any(|bytes| bytes.windows(4).any(|four| four == b"said")) || home.dir().join("ready").exists()
}

fn stats(home: &Home) -> Value {
    let answer = home.lobster(["store", "stats", "--json"]).run();
    serde_json::from_str(&answer.stdout).unwrap_or_else(|_| panic!("{answer:?}"))
}

fn bytes_of(stats: &Value, part: &str) -> u64 {
    let parts = stats["parts"].as_array().unwrap();
    parts.iter().find(|one| one["path"] == part).map_or(0, |one| one["bytes"].as_u64().unwrap())
}

const TEMPORARY: [&str; 5] = ["store/layers/", "store/homes/", "store/workers/", "store/tmp/", "approved-*/"];

#[test]
fn killed_steps_of_every_kind_leave_nothing_but_their_record() {
    let kills: usize = number("LOBSTER_KILLED_STEPS", 1);
    let server = Server::start(|_, _| Reply::Silence);
    for Kind { name, step, policy, has_worker } in kinds(&server) {
        let home = Home::cold().with_worker(has_worker);
        home.write("flow.lobster", &step).write("after.lobster", "steps: [{id: a, run: 'true'}]\n");
        home.write(
            "stays.pl",
            "open(my $big, '>', \"$ENV{HOME}/big\"); print $big 'x' x 3e6; $| = 1; print \"said\\n\"; sleep 60;\n",
        );
        home.write("server.sh", "#!/bin/sh\ntouch ready\nexec sleep 60\n");
        let mut words = vec!["run", "flow.lobster"];
        if !policy.is_empty() {
            home.write("policy.toml", policy);
            words.extend(["--policy", "policy.toml"]);
        }
        let (before, mut kept) = (bytes_on_disk(&home), 0);
        for _ in 0..kills {
            let mut child = home.lobster(&words).start_with_stdout(Stdio::null());
            wait_until(name, || has_begun(&home) || child.try_wait().unwrap().is_some());
            assert!(
                child.try_wait().unwrap().is_none(),
                "{name} ended by itself: {:?}",
                home.lobster(&words).run()
            );
            kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
            child.wait().unwrap();
            home.assert_deserted();
            wait_until("its placeholders are gone", || placeholders(&home).is_empty());
            let _ = fs::remove_file(home.dir().join("ready"));
            fs::read_dir(home.state().join("store/output")).into_iter().flatten().flatten().for_each(
                |file| {
                    kept += file.metadata().unwrap().len();
                    fs::remove_file(file.path()).unwrap();
                },
            );
        }
        // Each file has an owner.
        let told = stats(&home);
        let unknown: Vec<_> =
            told["parts"].as_array().unwrap().iter().filter(|part| part["isKnown"] != true).collect();
        assert!(unknown.is_empty(), "{name}: {unknown:?}");
        // The next run removes what was left, at once.
        assert_eq!(home.lobster(["run", "after.lobster"]).run().code(), 0);
        let told = stats(&home);
        for part in TEMPORARY {
            assert_eq!(bytes_of(&told, part), 0, "{name}: {part}: {told:#}");
        }
        assert!(kept < 1000 * kills as u64, "{name}: {kept}");
        let grown = bytes_on_disk(&home).saturating_sub(before);
        assert!(
            grown < 5_000_000 + 100_000 * kills as u64,
            "{name}: the state directory has grown by {grown}"
        );
        // The runs go, and their output with them.
        let gone =
            home.lobster(["store", "gc", "--keep", "0", "--older-than", "0s", "--abandoned", "0s"]).run();
        assert_eq!(gone.code(), 0, "{name}: {gone:?}");
        let told = stats(&home);
        for part in TEMPORARY.into_iter().chain(["store/output/"]) {
            assert_eq!(bytes_of(&told, part), 0, "{name}: {part}");
        }
        let locks = fs::read_dir(home.state().join("store/locks")).map_or(0, Iterator::count);
        assert_eq!(locks, 0, "{name}");
    }
}

/// What a jail puts into a workspace for what it protects and is not there.
fn placeholders(home: &Home) -> Vec<&'static str> {
    let names = [".git", ".lobster", ".lobster-cache", "lobster.policy.toml"];
    names.into_iter().filter(|name| home.dir().join(name).exists()).collect()
}

/// If nothing of a killed lobster is left to do it, the next run removes its placeholders, and nothing of a person's.
#[test]
fn placeholders_of_a_lost_machine_go_with_the_next_run() {
    let home = Home::new();
    home.write("policy.toml", POLICY).write("flow.lobster", "steps: [{id: a, exec: [perl, a.pl]}]\n");
    home.write(
        "a.pl",
        "mkdir('.git/hooks') and print 'made'; opendir(my $d, '.lobster') and print 'seen';\n",
    );
    for name in [".git", ".lobster", ".lobster-cache"] {
        fs::create_dir(home.dir().join(name)).unwrap();
    }
    // As lobster marks them.
    let marked = home.program("/bin/touch", ["-d", "@987654322", ".git", ".lobster"]).run();
    assert_eq!(marked.code(), 0, "{marked:?}");
    let answer = home.tool(["--policy", "policy.toml", "flow.lobster"]);
    assert_eq!(answer.output(), serde_json::json!(["seen"]));
    assert_eq!(placeholders(&home), [".lobster-cache"]);
}

fn bytes_on_disk(home: &Home) -> u64 {
    let told = stats(home);
    let parts = told["parts"].as_array().unwrap();
    parts.iter().map(|part| part["bytes"].as_u64().unwrap()).sum::<u64>()
        + told["blobFileBytes"].as_u64().unwrap()
}
