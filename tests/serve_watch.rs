//! Workflows that start when files have changed: once for what changed, whatever becomes of the server.

use std::time::Duration;

use crate::home::{Home, wait_until};
use crate::served::{Served, register};

const INBOX: &str = "args: {paths: {type: array, default: []}, first: {type: string, default: none}}\non:\n  watch: {paths: ['inbox/*.csv'], settle: 1s, args: {paths: $watch.paths, first: $watch.paths.0}}\nsteps:\n  - {id: say, run: 'echo \"$LOBSTER_ARG_FIRST\" >> said'}\n";

fn lines(home: &Home) -> Vec<String> {
    home.read("said").lines().map(str::to_owned).collect()
}

/// Long enough for a change to be seen and to settle.
fn several_looks() {
    std::thread::sleep(Duration::from_secs(4));
}

#[test]
fn files_that_have_changed_start_one_run_when_they_have_settled() {
    let home = Home::new();
    home.write("inbox.lobster", INBOX);
    home.write("inbox/old.csv", "1");
    register(&home, &["inbox.lobster"]);
    let mut served = Served::start(&home, &[]);
    let other = Served::start(&home, &[]);
    several_looks();
    assert!(lines(&home).is_empty(), "what was there before is not new: {:?}", lines(&home));
    // Written in pieces, and beside it something else: one run, when all is there.
    for part in 0..4 {
        home.write("inbox/new.csv", "x".repeat(part + 1));
        home.write("inbox/note.txt", part.to_string());
        std::thread::sleep(Duration::from_millis(300));
    }
    wait_until("the run", || lines(&home) == ["inbox/new.csv"]);
    // The same bytes again, and a file that goes, are no change to run for; two servers see it all.
    home.write("inbox/new.csv", "xxxx");
    std::fs::remove_file(home.dir().join("inbox/old.csv")).unwrap();
    served.kill();
    drop(other);
    served = Served::start(&home, &[]);
    several_looks();
    assert_eq!(lines(&home), ["inbox/new.csv"]);
    // What changes while nobody looks is seen afterwards.
    served.kill();
    home.write("inbox/new.csv", "other");
    home.write("inbox/old.csv", "1");
    let _served = Served::start(&home, &[]);
    wait_until("the second run", || lines(&home).len() == 2);
    let runs = home.lobster(["runs"]).run();
    assert_eq!(runs.stdout.matches("inbox").count(), 2, "{runs:?}");
}

/// What a server tells by a command, all of it.
fn config_that_tells(home: &Home) -> std::path::PathBuf {
    let told = home.dir().join("told");
    let tell = format!("cat >> {0}; echo >> {0}", told.display());
    home.write("serve.toml", format!("[[notify]]\nname = 'all'\ncommand = ['/bin/sh', '-c', '{tell}']\n"));
    told
}

#[test]
fn what_a_trigger_brings_and_does_not_fit_is_a_refused_start_that_people_hear_of() {
    let home = Home::new();
    let trigger = |on: &str| {
        format!("args: {{n: {{type: integer, default: 0}}}}\non:\n  {on}\nsteps:\n  - {{id: a, js: '1'}}\n")
    };
    home.write(
        "inbox.lobster",
        trigger("watch: {paths: ['inbox/*'], settle: 1s, args: {n: $watch.paths.0}}"),
    );
    home.write("first.lobster", "steps:\n  - {id: a, js: \"'text'\"}\n");
    home.write("next.lobster", trigger("after: {workflow: first.lobster, args: {n: $run.status}}"));
    home.write("inbox/old", "1");
    register(&home, &["inbox.lobster", "first.lobster", "next.lobster"]);
    let told = config_that_tells(&home);
    let _served = Served::start(&home, &["--config", "serve.toml"]);
    several_looks();
    home.write("inbox/new", "1");
    assert_eq!(home.lobster(["schedule", "run-now", "first"]).run().code(), 0);
    let refused = |workflow: &str| {
        let told = std::fs::read_to_string(&told).unwrap_or_default();
        let all = serde_json::Deserializer::from_str(&told).into_iter::<serde_json::Value>();
        let refused = all.filter_map(Result::ok).filter(|one| one["status"] == "refused");
        refused
            .filter(|one| one["workflow"] == workflow && one["error"].to_string().contains("does not fit"))
            .count()
    };
    wait_until("both are told", || refused("inbox") == 1 && refused("next") == 1);
    let listed = home.lobster(["runs", "--status", "refused", "--json"]).run();
    let listed: Vec<serde_json::Value> = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert_eq!(home.lobster(["runs"]).run().stdout.matches("refused").count(), 2);
    for start in listed {
        let (id, name) = (start["id"].as_str().unwrap(), start["name"].as_str().unwrap());
        for id in [id, &id[id.len() - 8..]] {
            let shown = home.lobster(["show", id]).run();
            assert_eq!(shown.code(), 0, "{shown:?}");
            for said in [name, "refused", "does not fit", &format!("schedule run-now {name}")] {
                assert!(shown.stdout.contains(said), "{said}: {shown:?}");
            }
            let logs = home.lobster(["logs", id]).run();
            assert_eq!(logs.code(), 2, "{logs:?}");
            for said in [name, "refused and never began", "does not fit"] {
                assert!(logs.stderr.contains(said), "{said}: {logs:?}");
            }
        }
    }
    // The same files are refused once.
    several_looks();
    assert_eq!((refused("inbox"), refused("next")), (1, 1));
}

#[test]
fn a_file_that_cannot_be_read_is_told_once_and_the_others_are_watched() {
    let home = Home::new();
    home.write("inbox.lobster", INBOX);
    home.write("inbox/big.csv", "1");
    register(&home, &["inbox.lobster"]);
    let told = config_that_tells(&home);
    let mut served = Served::start(&home, &["--config", "serve.toml"]);
    several_looks();
    let set_len = |len: u64| {
        let file = std::fs::OpenOptions::new().write(true).open(home.dir().join("inbox/big.csv"));
        file.unwrap().set_len(len).unwrap();
    };
    set_len(1100 << 20);
    home.write("inbox/new.csv", "1");
    wait_until("the run", || lines(&home) == ["inbox/new.csv"]);
    let refused = || {
        std::fs::read_to_string(&told)
            .unwrap_or_default()
            .matches("changes of inbox/big.csv start no run")
            .count()
    };
    wait_until("it is told", || refused() == 1);
    let list = home.lobster(["schedule", "list"]).run();
    assert!(list.stdout.contains("inbox does not watch inbox/big.csv: it is larger"), "{list:?}");
    // Neither another server tells it again, nor does a file run that is again what it was.
    served.kill();
    let _served = Served::start(&home, &["--config", "serve.toml"]);
    several_looks();
    set_len(1);
    several_looks();
    assert_eq!((refused(), lines(&home).len()), (1, 1));
    let list = home.lobster(["schedule", "list"]).run();
    assert!(!list.stdout.contains("does not watch"), "{list:?}");
    // Too many files keep the whole watch from looking.
    for at in 0..=10_000 {
        std::fs::write(home.dir().join(format!("inbox/{at}.csv")), "").unwrap();
    }
    wait_until("it is told of all", || {
        std::fs::read_to_string(&told).unwrap_or_default().contains("changes of inbox/*.csv start no run")
    });
    let list = home.lobster(["schedule", "list"]).run();
    assert!(list.stdout.contains("inbox does not watch inbox/*.csv: more than"), "{list:?}");
}
