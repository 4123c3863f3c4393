//! An approval of a command is an approval of the bytes that it executes or
//! sources: swapped files never run, unchanged ones always do.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::Value;

use crate::home::{Answer, Home};
use crate::setting::number;

/// Asks about everything that no catalogue covers; jails wherever it can.
pub(crate) const POLICY: &str = "version = 1\n[sandbox]\nmode = \"degrade\"\nminimum = []\n[sandbox.fs]\n\
                      read = [\"@system-ro\", \"@workspace\"]\nwrite = [\"@workspace\", \"@tmp\"]\n[sandbox.env]\npass = [\"PATH\"]\n";

const GOOD: &str = "the-approved-bytes";
const EVIL: &str = "the-swapped-bytes";

/// Shell code that prints and leaves a mark.
fn sh(word: &str) -> String {
    format!("#!/bin/sh\necho {word}\necho {word} > ran.$$\n")
}

pub(crate) fn call(home: &Home, dir: &str, words: &[&str]) -> Answer {
    let call = home.lobster(words).env("LOBSTER_POLICY", home.dir().join("p.toml"));
    call.dir(&home.dir().join(dir)).run()
}

pub(crate) fn ask(home: &Home, dir: &str) -> Answer {
    let asked = call(home, dir, &["run", "--mode", "tool", "f.lobster"]);
    assert_eq!(asked.envelope()["status"], "needs_approval", "{dir}: {asked:?}");
    asked
}

pub(crate) fn approve(home: &Home, dir: &str, asked: &Answer) -> Answer {
    call(home, dir, &["resume", "--token", &asked.token(), "--approve", "yes"])
}

/// A workflow of one command, asked about in a directory of its own.
pub(crate) fn workflow(home: &Home, dir: &str, command: &str) {
    let text = serde_json::to_string(command).unwrap();
    home.write("p.toml", POLICY)
        .write(&format!("{dir}/f.lobster"), format!("steps:\n  - {{ id: a, run: {text} }}\n"));
}

pub(crate) fn files(asked: &Answer) -> Vec<String> {
    let item = &asked.envelope()["requiresApproval"]["items"][0];
    let list = item["files"].as_array().cloned().unwrap_or_default();
    list.iter().map(|file| file["path"].as_str().unwrap().rsplit('/').next().unwrap().to_owned()).collect()
}

pub(crate) fn not_covered(asked: &Answer) -> String {
    asked.envelope()["requiresApproval"]["items"][0]["not_covered"].to_string()
}

/// Whether anything that the swapped file would have done was done.
fn did_evil(home: &Home, dir: &str) -> bool {
    let entries = std::fs::read_dir(home.dir().join(dir)).unwrap();
    let marks = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ran.")));
    marks.map(|mark| std::fs::read_to_string(mark).unwrap()).any(|mark| mark.contains(EVIL))
}

/// A small random number generator, so that a seed tells the whole test.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound).unwrap()).unwrap()
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }
}

/// A command around one file.
#[derive(Debug)]
struct Shape {
    command: String,
    files: Vec<(String, String)>,
    /// A link, and where it leads.
    link: Option<(String, String)>,
    /// The file that is swapped, and what it would be then.
    target: String,
    evil: String,
    swap: Swap,
}

#[derive(Clone, Copy, Debug)]
enum Swap {
    InPlace,
    RenamedOver,
    Exchanged,
    RemovedAndMade,
    Retargeted,
}

/// Ways to run the file at `{}`, an executable shell script, from the same directory.
const RUNS: &[&str] = &[
    "{}",
    "sh {}",
    "bash {}",
    "dash {}",
    "sh -e {}",
    "bash -eu {} one two",
    ". {}",
    "env A=1 sh {}",
    "env -i sh {}",
    "nohup {}",
    "timeout 20 {}",
    "timeout -k 1 20 sh {}",
    "nice -n 3 {}",
    "setsid -w {}",
    "exec {}",
    "exec sh {}",
    "command sh {}",
    "echo {} | xargs sh",
    "xargs sh {} </dev/null",
    "printf '%s\\n' {} | xargs -n 1 sh",
    "printf '%s\\n' {} | xargs -I @ sh @",
    "cat <{} | sh",
    "cat {} | sh",
    "sh <{}",
    "sh -s one <{}",
    "tail -n 9 {} | sh",
    "X={}; $X",
    "X={}; sh \"$X\"",
    "X={}; . \"$X\"",
    "for f in {}; do sh \"$f\"; done",
    "f() { sh \"$1\"; }; f {}",
    "set -- {}; sh \"$1\"",
    "for i in 1; do set -- {}; done; sh \"$1\"",
    "set -- $(echo {}); sh \"$1\"",
    "x=$(echo {}) && sh \"$x\"",
    "set -- a {}; shift; sh \"$1\"",
    "while :; do set -- a {}; shift; break; done; sh \"$1\"",
    "echo {} | { read -r x; sh \"$x\"; }",
    "read -r x <<E\n./d.sh\nE\nsh \"$x\"",
    "sh -c 'sh {}'",
    "sh -c 'exec {}'",
    "sh -c '. {}'",
    "sh -c 'sh \"$1\"' x {}",
    "eval 'sh {}'",
    "trap 'sh {}' EXIT",
    "echo \"$(sh {})\"",
    "echo `sh {}`",
    "if true; then sh {}; fi",
    "case a in (a) sh {};; esac",
    "true && sh {}",
    "false || sh {}",
    "set -- *.sh; sh \"$1\"",
    "( sh {} )",
    "{ sh {}; }",
    "sh {} | cat",
    "sh {} & wait",
    "while true; do sh {}; break; done",
    "sh {} > out.txt; cat out.txt",
    "find . -name d.sh -exec sh '{}' ';'",
    "find . -name '*.sh' -type f -exec sh '{}' +",
    "find . -name d.sh | xargs sh",
    "find . -type f -name d.sh | while read -r f; do sh \"$f\"; done",
    "ls *.sh | xargs -n 1 sh",
    "for f in *.sh; do sh \"$f\"; done",
    "sh d*.sh",
    "xargs sh <list",
    "make",
    "make -s all",
    "make -f other.mk",
    "make -C . all",
];

/// Ways to write the name of a file in the working directory.
const NAMES: &[&str] = &["./{}", "././{}", "./sub/../{}", "$PWD/{}", "./\"{}\"", "'./{}'"];

/// What stands around the whole command.
const AROUND: &[&str] = &[
    "{}",
    "{}",
    "{}",
    "cd . && {}",
    "( {} )",
    "A=1; {}",
    "true; {}",
    "set -e; {}",
    "{ {}; }",
    "if :; then {}; fi",
];

/// A script of an interpreter: its name, its text and how it may be run.
fn script(random: &mut Random) -> (&'static str, String, &'static [&'static str]) {
    match random.below(4) {
        0 => (
            "d.pl",
            format!("print \"{GOOD}\\n\";\n"),
            &["perl d.pl", "perl -w ./d.pl 1", "perl -I sub d.pl", "env perl d.pl", "perl <d.pl"],
        ),
        1 => (
            "d.py",
            format!("print('{GOOD}')\n"),
            &[
                "python3 d.py",
                "python3 -I ./d.py x",
                "python3 -m d",
                "python3 -u -W ignore d.py",
                "python3 <d.py",
            ],
        ),
        2 => ("m.py", format!("print('{GOOD}')\n"), &["python3 main.py", "cd sub && python3 ../main.py"]),
        _ => {
            ("d.awk", format!("BEGIN {{ print \"{GOOD}\" }}\n"), &["awk -f d.awk", "awk -fd.awk; ./true.sh"])
        }
    }
}

fn shape(random: &mut Random) -> Shape {
    let list = ("list".to_owned(), "./d.sh\n".to_owned());
    let makefiles = [
        ("Makefile".to_owned(), "all:\n\t@sh ./d.sh\n".to_owned()),
        ("other.mk".to_owned(), "S = ./d.sh\ninclude more.mk\nall:\n\t@sh $(S)\n".to_owned()),
        ("more.mk".to_owned(), "X = 1\n".to_owned()),
        ("sub/keep".to_owned(), String::new()),
    ];
    let mut files: Vec<(String, String)> = makefiles.into_iter().chain([list]).collect();
    let swap = *random.pick(&[&Swap::InPlace, &Swap::RenamedOver, &Swap::Exchanged, &Swap::RemovedAndMade]);
    let plain = |command: String, files, target: &str, good: &str| Shape {
        command,
        files,
        link: None,
        target: target.to_owned(),
        evil: good.replace(GOOD, EVIL),
        swap,
    };
    match random.below(10) {
        // The scripts of other interpreters, and what they load.
        0 => {
            let (name, good, commands) = script(random);
            files.push(("main.py".to_owned(), "import m\n".to_owned()));
            files.push(("true.sh".to_owned(), "#!/bin/sh\n".to_owned()));
            files.push((name.to_owned(), good.clone()));
            plain(random.pick(commands).to_owned(), files, name, &good)
        }
        // A file that another one sources or starts.
        1..=3 => {
            let good = sh(GOOD);
            let inner = random.pick(&[
                ". ./inc.sh",
                "sh ./inc.sh",
                "./inc.sh",
                "I=./inc.sh; . \"$I\"",
                ". \"$(dirname \"$0\")/inc.sh\"",
                "D=$(cd \"$(dirname \"$0\")\" && pwd); sh \"$D/inc.sh\"",
                "cat inc.sh | sh",
                "load() { . ./inc.sh; }; load",
            ]);
            let chain = random.below(2) == 0;
            let outer = if chain { "sh ./second.sh".to_owned() } else { inner.to_owned() };
            files.push(("inc.sh".to_owned(), good.clone()));
            files.push(("second.sh".to_owned(), format!("#!/bin/sh\n{inner}\n")));
            files.push(("d.sh".to_owned(), format!("#!/bin/sh\nset -e\n{outer}\n")));
            let run =
                random.pick(&["./d.sh", "sh ./d.sh", "bash ./d.sh", "env sh ./d.sh", "make", "(sh ./d.sh)"]);
            plain(run.to_owned(), files, "inc.sh", &good)
        }
        // A script behind a link, which is led elsewhere.
        4 => {
            let good = sh(GOOD);
            files.push(("real.sh".to_owned(), good.clone()));
            let run = random.pick(&["./d.sh", "sh d.sh", ". ./d.sh", "cat d.sh | sh", "sub/../d.sh"]);
            let swap = if random.below(2) == 0 { Swap::Retargeted } else { swap };
            let target = if matches!(swap, Swap::Retargeted) { "d.sh" } else { "real.sh" };
            Shape {
                link: Some(("d.sh".to_owned(), "real.sh".to_owned())),
                swap,
                ..plain(run.to_owned(), files, target, &good)
            }
        }
        // In another directory.
        5 => {
            let good = sh(GOOD);
            files.push(("sub/d.sh".to_owned(), good.clone()));
            let run = random.pick(&[
                "cd sub && ./d.sh",
                "cd sub; sh d.sh",
                "(cd ./sub && . ./d.sh)",
                "env -C sub sh d.sh",
                "sub/d.sh",
                "sh sub/d.sh",
                "D=sub; \"./$D/d.sh\"",
                "cd sub && sh -c ./d.sh",
                "PATH=$PWD/sub:$PATH; export PATH; sh sub/d.sh",
                "find sub -name d.sh -exec sh '{}' ';'",
            ]);
            // An assignment of PATH is denied, not asked about.
            let run = if run.starts_with("PATH") { "sh ./sub/./d.sh" } else { run };
            plain(run.to_owned(), files, "sub/d.sh", &good)
        }
        _ => {
            let good = sh(GOOD);
            files.push(("d.sh".to_owned(), good.clone()));
            let name = random.pick(NAMES).replace("{}", "d.sh");
            let run = random.pick(RUNS);
            // The braces of find's own.
            let nested = run.contains("'{}'") || (run.contains('\'') && name.contains('\''));
            let name = if nested { "./d.sh".to_owned() } else { name };
            let command = if run.contains("'{}'") { (*run).to_owned() } else { fill(run, &name) };
            let command = fill(if command.starts_with('(') { "{}" } else { random.pick(AROUND) }, &command);
            plain(command, files, "d.sh", &good)
        }
    }
}

/// The last `{}` of a template, which may have braces of its own.
fn fill(template: &str, with: &str) -> String {
    match template.rfind("{}") {
        Some(at) => format!("{}{with}{}", &template[..at], &template[at + 2..]),
        None => template.to_owned(),
    }
}

impl Shape {
    fn set_up(&self, home: &Home, dir: &str) {
        workflow(home, dir, &self.command);
        for (name, content) in &self.files {
            home.write(&format!("{dir}/{name}"), content);
        }
        if let Some((name, to)) = &self.link {
            symlink(to, home.dir().join(dir).join(name)).unwrap();
        }
    }

    fn swap(&self, home: &Home, dir: &str) {
        let here = home.dir().join(dir);
        let target = here.join(&self.target);
        let evil = format!("{dir}/{}.new", self.target);
        match self.swap {
            Swap::InPlace => std::fs::write(&target, &self.evil).unwrap(),
            Swap::RenamedOver => {
                home.write(&evil, &self.evil);
                std::fs::rename(home.dir().join(evil), target).unwrap();
            }
            Swap::Exchanged => {
                home.write(&evil, &self.evil);
                exchange(&home.dir().join(evil), &target);
            }
            Swap::RemovedAndMade => {
                std::fs::remove_file(&target).unwrap();
                home.write(&format!("{dir}/{}", self.target), &self.evil);
            }
            Swap::Retargeted => {
                home.write(&evil, &self.evil);
                std::fs::remove_file(&target).unwrap();
                symlink(home.dir().join(evil), target).unwrap();
            }
        }
    }
}

fn exchange(one: &Path, other: &Path) {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
}

/// `LOBSTER_SWAP_SHAPES` and `LOBSTER_SWAP_SEED` ask for more, or others.
#[test]
fn swapped_files_never_run_and_unchanged_ones_do() {
    let (count, seed) = (number("LOBSTER_SWAP_SHAPES", 200), number("LOBSTER_SWAP_SEED", 1));
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ u64::try_from(seed).unwrap());
    let shapes: Vec<Shape> = (0..count).map(|_| shape(&mut random)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let home = Home::new();
        let mut wrong = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(shape) = shapes.get(number) else { return wrong };
            let dir = format!("w{number}");
            shape.set_up(&home, &dir);
            let first = call(&home, &dir, &["run", "--mode", "tool", "f.lobster"]);
            if first.envelope()["status"] != "needs_approval" {
                wrong.push(format!("not asked about: {shape:?} {first:?}"));
                continue;
            }
            let second = ask(&home, &dir);
            let unchanged = approve(&home, &dir, &first);
            if !(unchanged.code() == 0 && unchanged.stdout.contains(GOOD)) {
                wrong.push(format!("not accepted unchanged: {shape:?} {unchanged:?}"));
            }
            shape.swap(&home, &dir);
            let swapped = approve(&home, &dir, &second);
            if swapped.code() == 0 || swapped.stdout.contains(EVIL) || did_evil(&home, &dir) {
                wrong.push(format!("swapped and run: {shape:?} {swapped:?}"));
            } else if !swapped.stdout.contains("is not what would run now") {
                wrong.push(format!("refused for another reason: {shape:?} {swapped:?}"));
            }
        }
    };
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{} of {count} (seed {seed}):\n{}", wrong.len(), wrong.join("\n"));
}

/// Somebody swaps the file while the answer is given and the command runs.
#[test]
fn a_file_that_is_swapped_meanwhile_does_not_run_well() {
    let rounds = number("LOBSTER_SWAP_ROUNDS", 50);
    let home = Home::new();
    let (mut ok, mut random) = (0, Random(7));
    for round in 0..rounds {
        let dir = format!("r{round}");
        let command =
            random.pick(&["./d.sh", "sh ./d.sh; ./d.sh", ". ./d.sh; sh d.sh", "cat d.sh | sh; ./d.sh"]);
        workflow(&home, &dir, &format!("{command}; sleep 0.02; ./d.sh"));
        home.write(&format!("{dir}/d.sh"), sh(GOOD)).write(&format!("{dir}/e.sh"), sh(EVIL));
        let asked = ask(&home, &dir);
        let here = home.dir().join(&dir);
        let (stop, way) = (AtomicBool::new(false), random.below(4));
        // Some begin only when the copies have been made.
        let delay = Duration::from_millis(u64::try_from(random.below(120)).unwrap());
        let done = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(delay);
                let (target, other) = (here.join("d.sh"), here.join("e.sh"));
                let mut turn = 0;
                while !stop.load(Ordering::Relaxed) {
                    turn += 1;
                    let word = if turn % 2 == 1 { EVIL } else { GOOD };
                    match way {
                        0 | 1 => exchange(&target, &other),
                        2 => std::fs::write(&target, sh(word)).unwrap(),
                        _ => {
                            home.write(&format!("{dir}/n.sh"), sh(word));
                            std::fs::rename(here.join("n.sh"), &target).unwrap();
                        }
                    }
                    if way == 1 {
                        std::thread::sleep(Duration::from_millis(3));
                    }
                }
            });
            let done = approve(&home, &dir, &asked);
            stop.store(true, Ordering::Relaxed);
            done
        });
        let told = done.stdout.contains(EVIL);
        assert!(!(done.code() == 0 && told), "round {round}, way {way}, {delay:?}: {done:?}");
        if done.code() == 0 {
            ok += 1;
            assert!(!did_evil(&home, &dir), "round {round}, way {way}, {delay:?}: {done:?}");
        }
    }
    println!("{ok} of {rounds} ran well, with the approved bytes");
}

#[test]
fn the_question_lists_what_would_run() {
    let home = Home::new();
    workflow(&home, "a", "./d.sh data.txt > out.txt && python3 p.py \"$X\"");
    home.write("a/d.sh", "#!/bin/sh\n. ./inc.sh\ncat \"$1\"\n")
        .write("a/inc.sh", "echo inc\n")
        .write("a/data.txt", "data\n")
        .write("a/out.txt", "old\n")
        .write("a/p.py", "import q\n")
        .write("a/q.py", "print('q')\n");
    let asked = ask(&home, "a");
    assert_eq!(files(&asked), ["d.sh", "p.py"], "{asked:?}");
    let item = &asked.envelope()["requiresApproval"]["items"][0];
    let tree = &item["trees"][0];
    let root = std::fs::canonicalize(home.dir().join("a")).unwrap();
    assert_eq!((tree["path"].as_str(), tree["files"].as_u64()), (root.to_str(), Some(7)), "{asked:?}");
    assert_eq!(not_covered(&asked), "null");
    // What it writes is not frozen.
    let done = approve(&home, "a", &asked);
    assert_eq!((done.code(), home.read("a/out.txt")), (0, "inc\ndata\n".to_owned()), "{done:?}");

    // A changed file is named in the refusal.
    let asked = ask(&home, "a");
    home.write("a/inc.sh", "echo other\n");
    let stale = approve(&home, "a", &asked).error();
    assert!(stale.contains("Changed since the question: inc.sh (changed)."), "{stale}");
    // One that is gone or new as well.
    let asked = ask(&home, "a");
    std::fs::remove_file(home.dir().join("a/q.py")).unwrap();
    let stale = approve(&home, "a", &asked).error();
    assert!(stale.contains("Changed since the question: q.py (gone)."), "{stale}");
    let asked = ask(&home, "a");
    for number in 0..12 {
        home.write(&format!("a/new/{number}"), "");
    }
    let stale = approve(&home, "a", &asked).error();
    assert!(stale.contains("new (new), new/0 (new), ") && stale.contains(", 3 more."), "{stale}");
}

#[test]
fn data_that_a_command_writes_can_be_written() {
    let home = Home::new();
    workflow(&home, "a", "./d.sh notes.txt; rm old.txt; touch notes.txt");
    home.write("a/d.sh", "#!/bin/sh\necho more >> \"$1\"\n")
        .write("a/notes.txt", "one\n")
        .write("a/old.txt", "");
    let asked = ask(&home, "a");
    let done = approve(&home, "a", &asked);
    assert_eq!(done.code(), 0, "{done:?}");
    assert_eq!(home.read("a/notes.txt"), "one\nmore\n");
    assert!(!home.dir().join("a/old.txt").exists());
    // The script itself cannot be changed by what it runs, where a jail holds it.
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    let replayed = home.lobster(["replay", runs[0]["id"].as_str().unwrap()]).run();
    assert_eq!(replayed.code(), 0, "{replayed:?}");
}

#[test]
fn what_is_no_file_or_cannot_be_read_is_an_answer_and_no_hang() {
    let home = Home::new();
    workflow(&home, "a", "./d.sh pipe dev missing");
    home.write("a/d.sh", "#!/bin/sh\necho fine\n");
    let here = home.dir().join("a");
    rustix::fs::mknodat(CWD, here.join("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    symlink("/dev/zero", here.join("dev")).unwrap();
    let asked = ask(&home, "a");
    assert_eq!(files(&asked).len(), 1, "{asked:?}");
    assert_eq!(approve(&home, "a", &asked).output()[0], "fine\n");
    // Root reads everything.
    if !rustix::process::geteuid().is_root() {
        std::fs::set_permissions(here.join("d.sh"), std::os::unix::fs::PermissionsExt::from_mode(0o111))
            .unwrap();
        let refused = call(&home, "a", &["run", "--mode", "tool", "f.lobster"]).error();
        assert!(refused.contains("cannot read") && refused.contains("d.sh"), "{refused}");
    }
}

#[test]
fn an_approval_that_is_remembered_holds_for_the_same_files_only() {
    let home = Home::new();
    let rule = "[[rule]]\nid = \"s\"\neffect = \"ask\"\nprogram = \"sh\"\nask = { remember = \"run\" }\n";
    home.write("p.toml", format!("{POLICY}{rule}"))
        .write("a/f.lobster", "steps:\n  - { id: a, run: sh d.sh }\n  - { id: b, run: cp e.sh d.sh }\n  - { id: c, run: sh d.sh }\n")
        .write("a/d.sh", sh(GOOD))
        .write("a/e.sh", sh(EVIL));
    let first = ask(&home, "a");
    let second = approve(&home, "a", &first);
    assert_eq!(second.envelope()["status"], "needs_approval", "{second:?}");
    let third = approve(&home, "a", &second);
    // The same command, but another script.
    assert_eq!(third.envelope()["status"], "needs_approval", "{third:?}");
    assert!(!did_evil(&home, "a"));
    approve(&home, "a", &third).output();
    assert!(did_evil(&home, "a"));
}
