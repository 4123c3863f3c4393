//! State directories that are removed, moved or replaced while lobster uses
//! them: nothing is done that nobody could find the record of.

use std::fs;

use crate::home::{Home, wait_until};

/// The second step finds the store replaced by what `damage` does between the two.
const FLOW: &str = "
name: replaced
steps:
  - id: first
    run: touch ready; while [ ! -e go ]; do sleep 0.02; done; echo first >> effects
  - id: second
    run: echo second >> effects
  - id: ask
    approval: Go on?
";

/// Runs the workflow and has `damage` done to the state directory while its first step runs.
fn run_while(damage: impl FnOnce(&Home)) -> (Home, String) {
    let home = Home::new();
    home.write("flow.lobster", FLOW);
    let answer = std::thread::scope(|scope| {
        let running = scope.spawn(|| home.tool(["flow.lobster"]));
        wait_until("the first step began", || home.dir().join("ready").exists());
        damage(&home);
        home.write("go", "");
        running.join().unwrap()
    });
    let error = answer.error();
    (home, error)
}

#[test]
fn no_effect_is_done_without_a_record_that_others_can_read() {
    type Damage = (&'static str, fn(&Home));
    let damages: [Damage; 5] = [
        ("removed", |home| fs::remove_dir_all(home.state()).unwrap()),
        ("moved", |home| fs::rename(home.state(), home.dir().join("elsewhere")).unwrap()),
        ("replaced", |home| {
            let other = Home::new();
            other.tool(["exec true"]);
            fs::remove_dir_all(home.state()).unwrap();
            copy(&other.state().join("store"), &home.state().join("store"));
        }),
        ("database removed", |home| fs::remove_file(home.state().join("store/lobster.db")).unwrap()),
        ("log removed", |home| fs::remove_file(home.state().join("store/lobster.db-wal")).unwrap()),
    ];
    for (what, damage) in damages {
        let (home, error) = run_while(damage);
        assert!(error.contains("no longer the file that this lobster opened"), "{what}: {error}");
        assert_eq!(home.read("effects"), "first\n", "{what}");
    }
}

/// What was moved away and put back is the store again.
#[test]
fn a_directory_that_comes_back_is_fine() {
    let home = Home::new();
    home.write("flow.lobster", FLOW).write("go", "");
    home.tool(["flow.lobster"]);
    let away = home.dir().join("elsewhere");
    fs::rename(home.state(), &away).unwrap();
    fs::rename(&away, home.state()).unwrap();
    assert!(home.lobster(["approvals"]).run().stdout.contains("Go on?"));
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
