//! Where the kernel lays no layer, a staged step works on a copy: here the state directory lies on an overlay, which
//! takes no layer on top.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::home::Home;
use crate::staged::{PUTS, SPECIAL_PUTS, THERE, flow, home, put_there, tree};
use crate::staged_model::programs;
use crate::unusable_disks::{in_a_namespace, text};

/// Makes the state directory one of an overlay. What it holds lasts from one namespace to the next.
const OVERLAY: &str = "mkdir -p ../over/lower ../over/upper ../over/work && \
    mount -t overlay -o lowerdir=../over/lower,upperdir=../over/upper,workdir=../over/work,userxattr overlay \"$STATE\" \
    || exit 99\n";

/// Runs a script there; nothing where no overlay can be mounted.
pub(crate) fn on_overlay(home: &Home, script: &str) -> Option<String> {
    in_a_namespace(home, &format!("{OVERLAY}{script}")).map(|output| text(&output))
}

const RUN: &str = "\"$L\" run --mode tool flow.lobster; echo \"exit $?\"; \"$L\" show @ --full";
const UNDO: &str = "\"$L\" undo @; echo \"exit $?\"";

#[test]
fn a_step_works_on_a_copy_and_the_statement_says_so() {
    let home = home("echo three >> a; rm gone; ln d/f h; mkdir new; echo new > new/x; cat a");
    let before = tree(&home.dir().join("tree"));
    let Some(said) = on_overlay(&home, RUN) else { return };
    assert!(said.contains("exit 0") && said.contains("snapshot"), "{said}");
    assert_eq!(home.read("tree/a"), "one\ntwo\nthree\n");
    let after = tree(&home.dir().join("tree"));
    assert!(!after.contains_key("gone") && after["d/f = h"] == "one file", "{after:#?}");
    let shown = on_overlay(&home, "\"$L\" changes @").unwrap();
    assert!(shown.contains("deleted") && shown.contains("new/x"), "{shown}");
    // The copy is gone.
    let left = fs::read_dir(home.dir().join("../over/upper/store/layers")).map_or(0, Iterator::count);
    assert_eq!(left, 0);
    let undone = on_overlay(&home, UNDO).unwrap();
    assert!(undone.contains("exit 0"), "{undone}");
    assert_eq!(tree(&home.dir().join("tree")), before);

    // What fails is dropped, and another program's edit is a conflict.
    home.write("flow.lobster", flow("echo x > a; rm -r d; exit 1"));
    assert!(on_overlay(&home, RUN).unwrap().contains("exit 1"));
    assert_eq!(tree(&home.dir().join("tree")), before);
    home.write("flow.lobster", flow("echo x > a; sleep 2"));
    let edited = on_overlay(&home, &format!("(sleep 1; echo mine > tree/a) & {RUN}")).unwrap();
    assert!(edited.contains("was changed by another program"), "{edited}");
    assert_eq!(home.read("tree/a"), "mine\n");
}

/// Its strict mode says that nothing less than what it asks for will do.
#[test]
fn a_strict_policy_takes_no_copy() {
    let home = home("echo three >> a");
    let policy = "version = 1\n[sandbox]\nmode = \"MODE\"\n[[rule]]\nid = \"all\"\neffect = \"allow\"\nprogram = \"python3\"\n\
        grant = { fs_write = [\"@workspace/tree\"] }\n";
    for (mode, exit) in [("strict", "exit 1"), ("degrade", "exit 0")] {
        home.write("policy.toml", policy.replace("MODE", mode));
        home.write("flow.lobster", "steps:\n  - { id: s, cwd: tree, changes: staged, exec: [python3, -c, 'open(\"new\", \"w\")'] }\n");
        let script = format!("export LOBSTER_POLICY=$PWD/policy.toml; {RUN}");
        let Some(said) = on_overlay(&home, &script) else { return };
        assert!(said.contains(exit), "{mode}: {said}");
        assert_eq!(said.contains("let the policy say"), mode == "strict", "{said}");
        assert_eq!(home.dir().join("tree/new").exists(), mode == "degrade");
    }
}

#[test]
fn steps_that_wait_together_find_the_changes_before_them() {
    let home = home("true");
    home.write(
        "flow.lobster",
        "steps:\n  - { id: one, cwd: tree, changes: review, run: 'rm gone; echo 1 > a; mkdir n; echo n > n/n' }\n  \
         - { id: two, cwd: tree, changes: review, run: 'ls; cat a n/n; rm -r d; echo 2 >> a' }\n",
    );
    let Some(said) = on_overlay(&home, RUN) else { return };
    assert!(said.contains("needs_approval"), "{said}");
    assert_eq!(home.read("tree/a"), "one\ntwo\n");
    let yes = "\"$L\" approvals approve $(\"$L\" approvals --json | sed -n 's/.*\"id\": \"\\(.*\\)\".*/\\1/p' | head -1); echo \"exit $?\"";
    let done = on_overlay(&home, yes).unwrap();
    assert!(done.contains("exit 0"), "{done}");
    let after = tree(&home.dir().join("tree"));
    assert_eq!(home.read("tree/a"), "1\n2\n");
    assert!(
        !after.contains_key("gone") && !after.contains_key("d") && after.contains_key("n/n"),
        "{after:#?}"
    );
    let output = on_overlay(&home, "\"$L\" logs @ two").unwrap();
    assert!(!output.contains("gone") && output.contains("n\n"), "{output}");
}

#[test]
fn every_change_over_everything_in_a_copy_ends_as_if_done_directly() {
    for (what, script) in PUTS {
        for lies in THERE {
            let home = home(script);
            put_there(&home, lies);
            let (staged, direct) = (home.dir().join("tree"), home.dir().join("direct"));
            assert!(Command::new("cp").arg("-a").args([&staged, &direct]).status().unwrap().success());
            let before = tree(&staged);
            let Some(said) = on_overlay(&home, RUN) else { return };
            assert!(said.contains("exit 0") && said.contains("snapshot"), "{what} over {lies}: {said}");
            assert!(Command::new("sh").args(["-c", script]).current_dir(&direct).status().unwrap().success());
            assert_eq!(tree(&staged), tree(&direct), "{what} over {lies}");
            if tree(&staged) != before {
                let undone = on_overlay(&home, UNDO).unwrap();
                assert!(undone.contains("exit 0"), "{undone}");
                assert_eq!(tree(&staged), before, "{what} over {lies}, undone");
            }
        }
    }
    for (what, script) in SPECIAL_PUTS {
        for lies in THERE {
            let home = home(script);
            put_there(&home, lies);
            let before = tree(&home.dir().join("tree"));
            let Some(said) = on_overlay(&home, RUN) else { return };
            assert!(said.contains("a pipe, socket or device"), "{what} over {lies}: {said}");
            assert_eq!(tree(&home.dir().join("tree")), before, "{what} over {lies}");
        }
    }
}

/// The model of staged steps, over copies.
#[test]
fn a_copy_is_direct_undone_is_before_and_dropped_is_nothing() {
    for (seed, plant, program) in programs(12) {
        let home = Home::new();
        let staged = home.dir().join("tree");
        fs::create_dir(&staged).unwrap();
        fs::set_permissions(&staged, fs::Permissions::from_mode(0o755)).unwrap();
        plant(&staged);
        home.write("program.sh", &program);
        let direct = home.dir().join("direct");
        assert!(Command::new("cp").arg("-a").args([&staged, &direct]).status().unwrap().success());
        let before = tree(&staged);
        let step = |end: &str| flow(&format!("umask 022; . ../program.sh{end}"));
        home.write("flow.lobster", step("; exit 1"));
        let Some(said) = on_overlay(&home, RUN) else { return };
        assert!(said.contains("exit 1"), "{said}");
        assert_eq!(tree(&staged), before, "seed {seed}, dropped:\n{program}");
        home.write("flow.lobster", step(""));
        let said = on_overlay(&home, RUN).unwrap();
        assert!(said.contains("exit 0") && said.contains("snapshot"), "seed {seed}:\n{program}\n{said}");
        let sh = home.program("/bin/sh", ["-c", "umask 022; . ../program.sh"]).dir(&direct).run();
        assert_eq!(sh.code(), 0, "{sh:#?}");
        assert_eq!(tree(&staged), tree(&direct), "seed {seed}:\n{program}");
        if tree(&staged) != before {
            let undone = on_overlay(&home, UNDO).unwrap();
            assert!(undone.contains("exit 0"), "seed {seed}: {undone}");
            assert_eq!(tree(&staged), before, "seed {seed}, undone:\n{program}");
        }
    }
}
