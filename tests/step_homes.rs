//! The home of a step under a policy is its own: a parallel step finds nothing of it, whatever it was granted, and
//! neither do steps find what a worker keeps of other orders. What was left behind goes with the next step.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::home::Home;
use crate::lesser_kernels::Tools;

/// Writes into its home, says where that is, and looks what has become of it when the other one is done.
const OWNER: &str = r#"
my $home = $ENV{HOME};
open(my $mine, '>', "$home/mine") or die "no home: $!"; print $mine "as it was\n"; close $mine;
open(my $told, '>', 'told'); print $told $home; close $told; rename 'told', 'home-of-owner';
for (1 .. 400) { last if -e 'done'; select undef, undef, undef, 0.05 }
opendir(my $all, $home); print join(' ', sort grep { !/^\./ } readdir $all), "\n";
open(my $now, '<', "$home/mine"); print <$now>;
"#;

/// Tries what it can do with the home of the other step.
const INTRUDER: &str = r#"
use File::Find;
for (1 .. 400) { last if -e 'home-of-owner'; select undef, undef, undef, 0.05 }
open(my $told, '<', 'home-of-owner') or print "never told\n"; my $home = <$told>;
my ($above) = $home =~ m{^(.*)/};
print "seen\n" if -e $home;
print "listed\n" if opendir(my $all, $home);
my $around; print "listed above\n" if opendir($around, $above) && grep { "$above/$_" eq $home } readdir $around;
for (my $up = $ENV{HOME}; $up =~ s{/[^/]*$}{} && $up =~ m{/state}; ) {
    opendir(my $all, $up) or next;
    print "beside $_\n" for grep { !/^\.\.?$/ && index($ENV{HOME}, "$up/$_") != 0 } readdir $all;
}
print "read\n" if open(my $mine, '<', "$home/mine");
print "written\n" if open(my $more, '>>', "$home/mine");
print "made\n" if open(my $new, '>', "$home/new");
print "moved\n" if rename $home, "$home-moved";
find({ no_chdir => 1, wanted => sub { print "found $_\n" if m{/mine$} } }, @ARGV);
print "own\n" if open(my $own, '>', "$ENV{HOME}/own");
rename $above, "$above-moved";
open(my $done, '>', 'done');
"#;

const FLOW: &str = "steps:
  - id: both
    parallel:
      wait: all
      branches:
        - { id: owner, exec: [perl, owner.pl] }
        - { id: intruder, exec: [perl, intruder.pl, ROOT] }
";

fn policy(sandbox: &str, grant: &str) -> String {
    format!(
        "version = 1\n[sandbox]\n{sandbox}\n[[rule]]\nid = \"perl\"\neffect = \"allow\"\nprogram = \"perl\"\n\
         grant = {{ {grant} }}\n"
    )
}

/// What both steps printed, of the envelope of a run.
fn said(envelope: &Value) -> [&str; 2] {
    let both = &envelope["output"][0];
    ["owner", "intruder"].map(|id| both[id].as_str().unwrap_or_else(|| panic!("{envelope}")))
}

const APART: [&str; 2] = ["mine\nas it was\n", "own\n"];

#[test]
fn no_parallel_step_finds_the_home_of_another_one() {
    for has_worker in [false, true] {
        let home = Home::new().with_worker(has_worker);
        let root = home.dir().parent().unwrap().to_owned();
        let around = format!("{:?}", root.display().to_string());
        home.write("owner.pl", OWNER).write("intruder.pl", INTRUDER);
        home.write("x.lobster", FLOW.replace("ROOT", &root.display().to_string()));
        std::fs::create_dir_all(home.dir().join("tmp")).unwrap();
        let grants = [
            "fs_write = [\"@workspace\"]".to_owned(),
            format!("fs_write = [{around}, \"@workspace\"]"),
            format!("fs_read = [{around}], fs_write = [\"@workspace\"]"),
        ];
        for grant in grants {
            for made in ["home-of-owner", "done"] {
                let _ = std::fs::remove_file(home.dir().join(made));
            }
            home.write("p.toml", policy("", &grant));
            let call = home.lobster(["run", "--mode", "tool", "--policy", "p.toml", "x.lobster"]);
            // Where homes once were.
            let answer = call.env("TMPDIR", home.dir().join("tmp")).run();
            if answer.stdout.contains("cannot enforce") {
                return;
            }
            assert_eq!(said(&serde_json::from_str(&answer.stdout).unwrap()), APART, "{grant}: {answer:?}");
            let left: Vec<_> = std::fs::read_dir(home.state().join("store/homes")).unwrap().collect();
            assert!(left.is_empty(), "{grant}: {left:?}");
        }
    }
}

#[test]
fn homes_are_apart_where_there_is_nothing_but_landlock() {
    let Some(tools) = Tools::make() else { return };
    let place = tempfile::Builder::new().prefix("lobster-test-").tempdir_in("/var/tmp").unwrap();
    let work = place.path().join("work");
    std::fs::create_dir_all(work.join("tmp")).unwrap();
    let sandbox = "mode = \"degrade\"\nminimum = [\"fs-read\", \"fs-write\"]";
    let files = [
        ("owner.pl", OWNER.to_owned()),
        ("intruder.pl", INTRUDER.to_owned()),
        ("x.lobster", FLOW.replace("ROOT", &work.display().to_string())),
        ("p.toml", policy(sandbox, "fs_write = [\"@workspace\"]")),
    ];
    for (name, text) in files {
        std::fs::write(work.join(name), text).unwrap();
    }
    let mut command = Command::new(tools.without());
    command.args(["user-namespaces".as_ref(), tools.lobster().as_os_str()]);
    command.args(["run", "--mode", "tool", "--policy", "p.toml", "x.lobster"]);
    command.current_dir(&work).env_clear().env("PATH", "/usr/bin:/bin").env("TMPDIR", work.join("tmp"));
    command.env("HOME", place.path()).env("LOBSTER_STATE_DIR", place.path().join("state"));
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    if text.contains("Landlock") {
        println!("no Landlock here: {text}");
        return;
    }
    // What is there may be seen, as its metadata are not kept apart.
    let envelope: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{output:?}"));
    let [owner, intruder] = said(&envelope);
    assert_eq!([owner, &intruder.replacen("seen\n", "", 1)], APART, "{output:?}");
    assert_eq!(std::fs::read_dir(work.join("tmp")).unwrap().count(), 0, "nothing of a step lies there");
}

#[test]
fn no_step_finds_what_a_worker_keeps_of_others() {
    let home = Home::new();
    let state = home.second_state("of-worker");
    let find = "use File::Find; my $all = ''; my $n = 0;
        find({ no_chdir => 1, wanted => sub { return unless -f; open(my $f, '<', $_) or return; local $/; \
        $n++ if index(<$f> // '', 'nee' . 'dle-77') >= 0 } }, '.'); print $n > 0 ? \"found\\n\" : \"none\\n\";";
    home.write("say.pl", "print 'nee', 'dle-77' x 20000;").write("find.pl", find);
    home.write(
        "x.lobster",
        "steps:\n  - { id: say, exec: [perl, say.pl] }\n  - { id: find, exec: [perl, find.pl], stdin: $say.stdout }\n",
    );
    home.write("p.toml", policy("", "fs_write = [\"@workspace\"]"));
    let worker = json!([
        "/usr/bin/env",
        state_of(&state),
        crate::binary::lobster().display().to_string(),
        "worker",
        "--stdio"
    ]);
    let run = |more: &[&str]| {
        let words = [&["run", "--mode", "tool"], more, &["x.lobster"]].concat();
        home.lobster(words).env("LOBSTER_EXECUTOR", worker.to_string()).run()
    };
    assert_eq!(run(&[]).output()[0], "found\n", "without a policy everything is to be found");
    let held = run(&["--policy", "p.toml"]);
    if !held.stdout.contains("cannot enforce") {
        assert_eq!(held.output()[0], "none\n", "{held:?}");
    }
}

fn state_of(dir: &Path) -> String {
    format!("LOBSTER_STATE_DIR={}", dir.display())
}

#[test]
fn homes_that_were_left_behind_go_with_the_next_step() {
    let home = Home::new();
    let left = home.state().join("store/homes/lobster-home-left");
    std::fs::create_dir_all(left.join("in/it")).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(600);
    std::fs::File::open(&left).unwrap().set_modified(long_ago).unwrap();
    home.write("p.toml", policy("", "fs_write = [\"@workspace\"]"));
    home.write("x.pl", "print 'ran';").write("x.lobster", "steps:\n  - { id: a, exec: [perl, x.pl] }\n");
    let answer = home.tool(["--policy", "p.toml", "x.lobster"]);
    if !answer.stdout.contains("cannot enforce") {
        assert_eq!(answer.output()[0], "ran", "{answer:?}");
        assert!(!left.exists());
    }
}
