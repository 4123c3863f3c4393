//! `changes: staged`: what a step changes in files is committed whole when it succeeds,
//! dropped when it fails, shown by `lobster changes` and taken back by `lobster undo`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::home::{Answer, Home};
use crate::setting::number;

/// All that a reader can tell of a tree, and which names are one file.
pub(crate) fn tree(dir: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut linked: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut pending = vec![dir.to_owned()];
    while let Some(at) = pending.pop() {
        let mut entries: Vec<_> = fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            let name = path.strip_prefix(dir).unwrap().to_string_lossy().into_owned();
            let found = fs::symlink_metadata(&path).unwrap();
            let mode = found.mode() & 0o7777;
            let told = if found.is_dir() {
                pending.push(path.clone());
                format!("directory {mode:o}")
            } else if found.is_symlink() {
                format!("link {}", fs::read_link(&path).unwrap().display())
            } else if found.is_file() {
                if found.nlink() > 1 {
                    linked.entry(found.ino()).or_default().push(name.clone());
                }
                format!("file {mode:o} {:?}", String::from_utf8_lossy(&fs::read(&path).unwrap()))
            } else {
                "other".to_owned()
            };
            all.insert(name, told);
        }
    }
    for mut names in linked.into_values() {
        names.sort();
        all.insert(names.join(" = "), "one file".to_owned());
    }
    all
}

pub(crate) fn flow(script: &str) -> String {
    format!(
        "steps:\n  - id: fix\n    changes: staged\n    cwd: tree\n    run: |\n      {}\n",
        script.replace('\n', "\n      ")
    )
}

pub(crate) fn home(script: &str) -> Home {
    let home = Home::new();
    home.write("flow.lobster", flow(script));
    home.write("tree/a", "one\ntwo\n").write("tree/gone", "x\n").write("tree/d/f", "in d\n");
    home.write("tree/run.sh", "#!/bin/sh\n");
    home
}

fn ok(answer: &Answer) {
    assert_eq!(answer.code(), 0, "{answer:#?}");
}

fn last_run(home: &Home) -> String {
    let runs = home.lobster(["runs", "--json"]).run();
    let runs: Value = serde_json::from_str(&runs.stdout).unwrap();
    runs[0]["id"].as_str().unwrap().to_owned()
}

const EDITS: &str = "echo three >> a && rm gone && rm -r d && mkdir -p new/deep && echo n > new/deep/n\nln -s a l && chmod 700 run.sh && ! ls -A .. | grep -q nothing\ncat a";

#[test]
fn what_a_step_changed_is_committed_shown_and_taken_back() {
    let home = home(EDITS);
    let before = tree(&home.dir().join("tree"));
    let done = home.tool(["flow.lobster"]);
    assert_eq!(done.output()[0], "one\ntwo\nthree\n");
    let run = last_run(&home);
    let after = tree(&home.dir().join("tree"));
    assert_eq!(home.read("tree/a"), "one\ntwo\nthree\n");
    assert_eq!(after["l"], "link a");
    assert_eq!(after["run.sh"], "file 700 \"#!/bin/sh\\n\"");
    assert!(!after.contains_key("gone") && !after.contains_key("d") && after.contains_key("new/deep/n"));

    let shown = home.lobster(["changes", &run]).run();
    ok(&shown);
    let lines: Vec<&str> = shown.stdout.lines().collect();
    assert_eq!(lines[0], "fix: 9 changes", "{shown:#?}");
    // Deletions come first.
    assert!(lines[1].contains("deleted") && lines[1].ends_with("/tree/d/"), "{shown:#?}");
    let patch = home.lobster(["changes", "@", "fix", "--patch"]).run();
    for part in ["--- a/a\n+++ b/a\n", "+three\n", "--- a/gone\n+++ /dev/null\n", "0755 -> 0700"] {
        assert!(patch.stdout.contains(part), "{part:?}: {patch:#?}");
    }
    let json = home.lobster(["changes", &run, "--json"]).run();
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json[0]["step"], "fix");
    assert_eq!(json[0]["committed"], true);
    assert_eq!(json[0]["changes"].as_array().map(Vec::len), Some(9));

    let replay = home.lobster(["replay", &run]).run();
    ok(&replay);
    assert_eq!(tree(&home.dir().join("tree")), after, "a replay commits nothing");

    let planned = home.lobster(["undo", &run, "--dry-run"]).run();
    ok(&planned);
    assert!(planned.stdout.contains("deleted") && planned.stdout.contains("new/deep/n"), "{planned:#?}");
    assert_eq!(tree(&home.dir().join("tree")), after);
    let undone = home.lobster(["undo", &run]).run();
    ok(&undone);
    assert_eq!(tree(&home.dir().join("tree")), before);
    let again = home.lobster(["undo", &run]).run();
    assert!(again.code() != 0 && again.stderr.contains("is undone already"), "{again:#?}");
    // The undo is a run, and can be taken back as one.
    ok(&home.lobster(["undo", "@"]).run());
    assert_eq!(tree(&home.dir().join("tree")), after);
}

#[test]
fn what_a_failed_step_changed_is_dropped() {
    let home = home("echo three >> a; rm -rf d; touch new; echo said; exit 3");
    let before = tree(&home.dir());
    let answer = home.tool(["flow.lobster"]);
    assert!(answer.error().contains("(3)"), "{answer:#?}");
    assert_eq!(tree(&home.dir()), before);
    let shown = home.lobster(["changes", "@"]).run();
    assert!(shown.stdout.contains("no recorded changes to files"), "{shown:#?}");
    let undo = home.lobster(["undo", "@"]).run();
    assert!(undo.code() != 0 && undo.stderr.contains("committed no changes"), "{undo:#?}");
}

#[test]
fn a_whole_run_is_staged_by_an_option_and_what_it_may_not_write_stays() {
    let home = Home::new();
    home.write("elsewhere/kept", "kept\n").write("tree/a", "old\n");
    let steps = "steps:\n  - {id: one, cwd: tree, changes: direct, run: echo new > a; echo b > b}\n  - {id: two, cwd: tree, run: 'cat b; (echo no > ../elsewhere/kept) 2>/dev/null || echo refused'}\n";
    home.write("flow.lobster", steps);
    let answer = home.tool(["--staged", "flow.lobster"]);
    assert_eq!(answer.output()[0], "b\nrefused\n");
    assert_eq!((home.read("tree/a"), home.read("elsewhere/kept")), ("new\n".to_owned(), "kept\n".to_owned()));
    let json = home.lobster(["changes", "@", "--json"]).run();
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json[0]["changes"].as_array().map(Vec::len), Some(2), "{json:#}");
    let shown = home.lobster(["show", "@", "--json"]).run();
    assert!(shown.stdout.contains("\"changes\": \"overlay\""), "{shown:#?}");
    let refused = home.lobster(["run", "--staged", "exec --shell 'echo x'"]).run();
    assert!(refused.code() == 2 && refused.stderr.contains("--staged needs a workflow file"), "{refused:#?}");
}

#[test]
fn an_edit_between_run_and_undo_is_not_overwritten() {
    let home = home(EDITS);
    ok(&home.tool(["flow.lobster"]));
    home.write("tree/a", "mine\n");
    let before = tree(&home.dir().join("tree"));
    let undo = home.lobster(["undo", "@"]).run();
    assert!(undo.code() != 0 && undo.stderr.contains("nothing was undone"), "{undo:#?}");
    assert!(undo.stderr.contains("a in ") && undo.stderr.contains("has different content"), "{undo:#?}");
    assert_eq!(tree(&home.dir().join("tree")), before);
}

#[test]
fn an_edit_while_the_step_runs_is_a_conflict_that_names_the_file() {
    // It edits the file beneath its own layer, as somebody outside would.
    let home = home(
        "echo three >> a\ntouch ready\nn=0; while ! test -e ../go && test $n -lt 600; do sleep 0.1; n=$((n+1)); done",
    );
    let child = home.lobster(["run", "--mode", "tool", "flow.lobster"]).start();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let layers = home.state().join("store/layers");
    let is_ready = || {
        let dirs = fs::read_dir(&layers).into_iter().flatten().flatten();
        dirs.into_iter().any(|dir| dir.path().join("0/upper/ready").exists())
    };
    while !is_ready() {
        assert!(std::time::Instant::now() < deadline, "the step does not begin");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    home.write("tree/a", "mine\n");
    home.write("go", "");
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("a in ") && said.contains("while the step worked on it"), "{said}");
    assert_eq!(home.read("tree/a"), "mine\n");
    assert!(!home.dir().join("tree/ready").exists());
    // Done again, it works on what is there now.
    ok(&home.lobster(["resume", &last_run(&home)]).run());
    assert_eq!(home.read("tree/a"), "mine\nthree\n");
}

#[test]
fn a_pair_of_hard_links_stays_one_and_no_trace_of_the_layer_is_left() {
    let home =
        home("echo more >> h1\nmv d e 2>/dev/null || { cp -r d e && rm -r d; }\nmkdir gone2 && rmdir gone2");
    fs::write(home.dir().join("tree/h1"), "linked\n").unwrap();
    fs::hard_link(home.dir().join("tree/h1"), home.dir().join("tree/h2")).unwrap();
    ok(&home.tool(["flow.lobster"]));
    let after = tree(&home.dir().join("tree"));
    assert_eq!(after["h1 = h2"], "one file");
    assert_eq!(home.read("tree/h2"), "linked\nmore\n");
    assert_eq!(home.read("tree/e/f"), "in d\n");
    assert!(!after.keys().any(|name| name.starts_with(".lobster")), "{after:#?}");
    let dirs = ["", "e"].map(|name| home.dir().join("tree").join(name));
    for path in dirs {
        let mut list = vec![0; 4096];
        let length = rustix::fs::llistxattr(&path, &mut list).unwrap_or(0);
        assert!(!String::from_utf8_lossy(&list[..length]).contains("overlay"), "{path:?}");
    }
    // Nor beside the store.
    assert_eq!(fs::read_dir(home.state().join("store/layers")).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_committed_fails_the_step_and_changes_nothing() {
    for (script, said) in [
        ("mkfifo pipe", "a pipe, socket or device"),
        ("cp /bin/true t && chmod 4755 t", "set-user-id"),
        ("chmod 700 .", "the mode of"),
        ("python3 -c 'import os; os.setxattr(\"a\", \"user.mine\", b\"x\")'", "extended attribute user.mine"),
        (
            "python3 -c 'import os; os.setxattr(\"a\", \"user.overlay.opaque\", b\"y\")'",
            "extended attribute user.overlay.overlay.opaque",
        ),
    ] {
        let home = home(&format!("echo x > made\n{script}"));
        fs::set_permissions(home.dir().join("tree"), fs::Permissions::from_mode(0o755)).unwrap();
        let before = tree(&home.dir());
        let answer = home.tool(["flow.lobster"]);
        let error = answer.error();
        // A kernel may refuse the attribute itself.
        assert!(error.contains(said) || error.contains("command failed"), "{script}: {error}");
        assert_eq!(tree(&home.dir()), before, "{script}");
    }
    let elsewhere = Home::new();
    elsewhere.write("flow.lobster", "steps:\n  - {id: a, changes: staged, cwd: /, run: 'true'}\n");
    assert!(elsewhere.tool(["flow.lobster"]).error().contains("cannot have / as its working directory"));
}

#[test]
fn mistakes_in_the_field_are_told_with_their_place() {
    for (text, said) in [
        ("steps:\n  - {id: a, run: ls, changes: maybe}\n", "must be direct, staged or review"),
        ("changes: 3\nsteps:\n  - {id: a, run: ls}\n", "must be direct, staged or review"),
        (
            "steps:\n  - {id: a, js: '1', changes: staged}\n",
            "only run, command, exec, pipeline and component steps",
        ),
    ] {
        let home = Home::new();
        home.write("flow.lobster", text);
        let answer = home.lobster(["check", "flow.lobster"]).run();
        let all = format!("{}{}", answer.stdout, answer.stderr);
        assert!(answer.code() != 0 && all.contains(said), "{answer:#?}");
    }
}

#[test]
fn the_write_roots_of_a_policy_are_layered_and_what_it_protects_stays_protected() {
    let home = Home::new();
    home.write("a", "one\n").write(".git/config", "as it was\n").write("elsewhere", "");
    home.write(
        "p.toml",
        "version = 1\n[[rule]]\nid = \"perl\"\neffect = \"allow\"\nprogram = \"perl\"\n\
         grant = { fs_write = [\"@workspace\"] }\n",
    );
    let script = "open(my $h, '>>', 'a'); print $h \"two\\n\"; close $h;\n\
                  open(my $g, '>>', '.git/config') or print 'refused';";
    home.write("x.pl", script);
    home.write("x.lobster", "steps:\n  - { id: a, changes: staged, exec: [perl, x.pl] }\n");
    let policy = home.dir().join("p.toml");
    let before = tree(&home.dir());
    let answer = home.lobster(["run", "--mode", "tool", "x.lobster"]).env("LOBSTER_POLICY", &policy).run();
    if answer.stdout.contains("cannot enforce") {
        return;
    }
    assert_eq!(answer.output()[0], "refused");
    assert_eq!(
        (home.read("a"), home.read(".git/config")),
        ("one\ntwo\n".to_owned(), "as it was\n".to_owned())
    );
    ok(&home.lobster(["undo", "@"]).env("LOBSTER_POLICY", &policy).run());
    assert_eq!(tree(&home.dir()), before);
}

/// A file that is moved or linked in the layer is the step's own doing, also where its old name is taken again.
#[test]
fn files_that_a_step_moves_and_links_are_committed_as_if_done_directly() {
    for script in [
        "mv a b",
        "mv a d/b",
        "mv d/y a0",
        "mv a b; echo other > a",
        "ln a b",
        "ln d/y a0; echo more >> a0",
        "mv a b; mv b c; rm -r d",
        "mv d/y z; rm -r d; mkdir d; mv z d/new",
        "mv a x; mv d/y a; mv x d/y",
    ] {
        let home = Home::new();
        home.write("tree/a", "one\n").write("tree/d/y", "two\n");
        let (staged, direct) = (home.dir().join("tree"), home.dir().join("direct"));
        assert!(Command::new("cp").arg("-a").args([&staged, &direct]).status().unwrap().success());
        home.write(
            "x.lobster",
            format!("steps:\n  - {{ id: a, cwd: tree, changes: staged, run: '{script}' }}\n"),
        );
        let before = tree(&staged);
        let done = home.tool(["x.lobster"]);
        assert_eq!(done.code(), 0, "{script}: {done:#?}");
        assert!(Command::new("sh").args(["-c", script]).current_dir(&direct).status().unwrap().success());
        assert_eq!(tree(&staged), tree(&direct), "{script}");
        ok(&home.lobster(["undo", "@"]).run());
        assert_eq!(tree(&staged), before, "{script}, undone");
    }
}

/// What a step puts at a path.
pub(crate) const PUTS: [(&str, &str); 5] = [
    ("opaque directory", "rm -rf p; mkdir p; echo n > p/n"),
    ("directory", "mkdir -p p 2>/dev/null && echo n > p/n; true"),
    ("file", "rm -rf p; echo new > p"),
    ("link", "rm -rf p; ln -s a p"),
    ("whiteout", "rm -rf p"),
];

/// The same, of what can be in no change set.
pub(crate) const SPECIAL_PUTS: [(&str, &str); 2] = [
    ("fifo", "rm -rf p; mkfifo p"),
    ("socket", "rm -rf p; python3 -c 'import os, stat; os.mknod(\"p\", stat.S_IFSOCK | 0o600)'"),
];

/// What may lie there.
pub(crate) const THERE: [&str; 4] = ["directory", "file", "link", "nothing"];

/// Puts it there before the step.
pub(crate) fn put_there(home: &Home, lies: &str) {
    let p = home.dir().join("tree/p");
    match lies {
        "directory" => {
            home.write("tree/p/old", "old\n").write("tree/p/sub/older", "older\n");
        }
        "file" => fs::write(&p, "there\n").unwrap(),
        "link" => symlink("d", &p).unwrap(),
        _ => {}
    }
}

/// The matrix: what a step puts at a path, and what lay there. Each ends as if done directly.
#[test]
fn every_change_over_everything_ends_as_if_done_directly() {
    for (what, script) in PUTS {
        for lies in THERE {
            let trees = ["staged", "direct"].map(|mode| {
                let home = home(script);
                put_there(&home, lies);
                home.write(
                    "flow.lobster",
                    flow(script).replace("changes: staged", &format!("changes: {mode}")),
                );
                let before = tree(&home.dir().join("tree"));
                ok(&home.tool(["flow.lobster"]));
                let after = tree(&home.dir().join("tree"));
                if mode == "staged" && before != after {
                    ok(&home.lobster(["undo", "@"]).run());
                    assert_eq!(tree(&home.dir().join("tree")), before, "{what} over {lies}, undone");
                }
                after
            });
            assert_eq!(trees[0], trees[1], "{what} over {lies}");
        }
    }
    for (what, script) in SPECIAL_PUTS {
        for lies in THERE {
            let home = home(script);
            put_there(&home, lies);
            let before = tree(&home.dir());
            let told = home.tool(["flow.lobster"]).error();
            assert!(told.contains("a pipe, socket or device"), "{what} over {lies}: {told}");
            assert_eq!(tree(&home.dir()), before, "{what} over {lies}");
        }
    }
}

#[test]
fn who_goes_on_with_a_run_finishes_first_what_a_crash_left_of_a_commit() {
    let home = home("echo three >> a; rm gone");
    home.write(
        "asks.lobster",
        "steps:\n  - {id: ask, approval: Go?}\n  - {id: look, run: 'cat tree/a; ls tree'}\n  - {id: fail, run: 'false'}\n",
    );
    let token = home.tool(["asks.lobster"]).token();
    let cut = || {
        let call = home.lobster(["run", "--mode", "tool", "flow.lobster"]);
        assert_eq!(call.env("LOBSTER_FAULT", "rename:kill").run().code(), 137);
        home.read("tree/a")
    };
    let before = cut();
    home.lobster(["resume", "--token", &token, "--approve", "yes"]).run().error();
    let after = home.read("tree/a");
    assert!(after != before && after.contains("three"), "{after}");
    let looked = home.lobster(["logs", "asks@", "look"]).run().stdout;
    assert!(looked.contains("three") && !looked.contains("gone"), "{looked}");
}

#[test]
fn a_kill_at_any_change_of_the_disk_leaves_all_or_nothing() {
    let script = "echo three >> a && rm gone && rm -r d && mkdir new && echo n > new/n";
    let (old, new) = {
        let home = home(script);
        let old = tree(&home.dir().join("tree"));
        ok(&home.tool(["flow.lobster"]));
        (old, tree(&home.dir().join("tree")))
    };
    let every = number("LOBSTER_CHANGES_KILLS", 3);
    let (mut kills, mut between) = (0, 0);
    for point in (1..).step_by(every) {
        let home = home(script);
        home.write("other.lobster", "steps:\n  - {id: a, run: 'true'}\n");
        let fault = format!("{point}:kill");
        let call = home.lobster(["run", "--mode", "tool", "flow.lobster"]).env("LOBSTER_FAULT", fault);
        if call.run().code() != 137 {
            break;
        }
        kills += 1;
        let now = tree(&home.dir().join("tree"));
        between += usize::from(now != old && now != new);
        // Whatever runs next finds one of both.
        ok(&home.tool(["other.lobster"]));
        let now = tree(&home.dir().join("tree"));
        assert!(now == old || now == new, "killed at {point}: {now:#?}");
        // And the run can be brought to its end.
        let runs = home.lobster(["runs", "--json"]).run();
        let runs: Value = serde_json::from_str(&runs.stdout).unwrap();
        let run = runs.as_array().unwrap().iter().find(|run| run["name"] == "flow");
        let Some(run) = run.filter(|run| run["status"] != "ok") else { continue };
        let id = run["id"].as_str().unwrap();
        let answer = home.lobster(["resume", id]).run();
        if answer.code() != 0 {
            ok(&home.lobster(["resume", id, "--retry-interrupted"]).run());
        }
        assert_eq!(tree(&home.dir().join("tree")), new, "killed at {point}, then resumed");
    }
    assert!(kills > 10, "only {kills} kills");
    assert!(every > 1 || between > 0, "no kill hit the commit");
}
