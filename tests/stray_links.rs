//! Random trees and hostile steps: whatever is committed, no link leads out of its granted directory or onto a
//! protected place. Each commit is followed by a walk over the trees that knows nothing of the product's rule.
//!
//! `LOBSTER_LINK_COMMITS` is how many commits are made, `LOBSTER_LINK_SEED` from which seed on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use crate::approved_files::Random;
use crate::home::{Answer, Home};
use crate::setting::number;

/// As many as take some seconds.
const COMMITS: usize = 50;

/// Of one tree.
const STEPS: usize = 8;

const NAMES: [&str; 7] = ["a", "b", "c", "d", "keep", ".git", "st"];

impl Random {
    /// A path in a granted directory, mostly of plain names.
    fn path(&mut self) -> String {
        let names: Vec<&str> = (0..=self.below(3))
            .map(|_| if self.below(12) == 0 { self.pick(&NAMES) } else { self.pick(&NAMES[..4]) })
            .collect();
        names.join("/")
    }

    /// What somebody writes into a link who wants it to lead away, or only to somewhere else.
    fn target(&mut self, work: &Path) -> String {
        let work = work.display();
        match self.below(16) {
            0 => self
                .pick(&["/usr/bin/python3", "/usr/bin/../../etc", "/etc/passwd", "/proc/self/cwd", "/"])
                .to_owned(),
            1 => format!("{work}/tree/{}", self.path()),
            2 => format!(
                "{work}/{}",
                self.pick(&["sibling", "other/a", "tree/../sibling", "tree", "tree/.git"])
            ),
            3 => self
                .pick(&[
                    ".git/config",
                    ".GIT",
                    "keep/f",
                    "st",
                    "a/../.git",
                    "KEEP",
                    "bare",
                    "bare/hooks",
                    "c/../bare/x",
                ])
                .to_owned(),
            4 => self
                .pick(&["/usr/bin", "/usr", "/lib", "/usr/none", "/usr/lib/ssl/private", "/bin/../lib"])
                .to_owned(),
            // Through a link that may lead into the system, or no longer be there.
            5 => {
                let ups = self.pick(&["..", "../..", "../../.."]);
                let end = self.pick(&[
                    "etc/shadow",
                    "usr/bin",
                    "sibling",
                    "proc/self/root",
                    "a",
                    "etc/ssl/private",
                ]);
                format!("{}/{ups}/{end}", self.pick(&NAMES[..4]))
            }
            _ => {
                let piece = |random: &mut Self| match random.below(7) {
                    0..=2 => "..".to_owned(),
                    3 => ".".to_owned(),
                    _ => random.path(),
                };
                let pieces: Vec<String> = (0..=self.below(4)).map(|_| piece(self)).collect();
                pieces.join("/")
            }
        }
    }
}

/// One thing that a step does, in the granted directory of this number.
enum Op {
    Link(String, usize, String),
    Name(String, usize, String),
    Move(String, usize, String),
    Directory(usize, String),
    File(usize, String),
    Remove(usize, String),
}

fn ops(random: &mut Random, work: &Path, grants: usize) -> Vec<Op> {
    let one = |random: &mut Random| {
        let (root, path) = (random.below(grants), random.path());
        match random.below(10) {
            0..=3 => Op::Link(random.target(work), root, path),
            4 => Op::Name(random.path(), root, path),
            5 | 6 => Op::Move(random.path(), root, path),
            7 => Op::Directory(root, path),
            8 => Op::File(root, path),
            _ => Op::Remove(root, path),
        }
    };
    (0..=random.below(5)).map(|_| one(random)).collect()
}

const GRANTS: [&str; 2] = ["tree", "other"];

fn shell(ops: &[Op]) -> String {
    let line = |op: &Op| match op {
        Op::Link(target, _, path) => format!("ln -sfn '{target}' '{path}'"),
        Op::Name(from, _, path) => format!("ln '{from}' '{path}'"),
        Op::Move(from, _, path) => format!("mv -T '{from}' '{path}'"),
        Op::Directory(_, path) => format!("mkdir -p '{path}'"),
        Op::File(_, path) => format!("echo x > '{path}'"),
        Op::Remove(_, path) => format!("rm -rf '{path}'"),
    };
    ops.iter().map(|op| format!("{{ {}; }} 2>/dev/null || :\n", line(op))).collect()
}

fn python(ops: &[Op]) -> String {
    let line = |op: &Op| {
        let at = |root: &usize, path: &String| format!("../{}/{path}", GRANTS[*root]);
        match op {
            Op::Link(target, root, path) => format!("os.symlink({target:?}, {:?})", at(root, path)),
            Op::Name(from, root, path) => format!("os.link({:?}, {:?})", at(root, from), at(root, path)),
            Op::Move(from, root, path) => format!("os.rename({:?}, {:?})", at(root, from), at(root, path)),
            Op::Directory(root, path) => format!("os.makedirs({:?})", at(root, path)),
            Op::File(root, path) => format!("open({:?}, 'w').write('x')", at(root, path)),
            Op::Remove(root, path) => format!("remove({:?})", at(root, path)),
        }
    };
    let remove = "def remove(path):\n    shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)\n";
    let lines = ops.iter().map(|op| format!("try: {}\nexcept OSError: pass\n", line(op)));
    format!("import os, shutil\n{remove}{}", lines.collect::<String>())
}

/// The calls of WASI preview 1 that a component makes, whatever they answer.
fn component(ops: &[Op]) -> Vec<u8> {
    let (mut data, mut calls, mut end) = (String::new(), String::new(), 1024);
    let mut text = |text: &str| {
        let at = end;
        data.push_str(&format!("(data (i32.const {at}) {text:?})\n"));
        end += text.len() + 1;
        format!("(i32.const {at}) (i32.const {})", text.len())
    };
    for op in ops {
        calls.push_str(&match op {
            Op::Link(target, root, path) => {
                let (target, path) = (text(target), text(path));
                format!("(drop (call $symlink {target} (i32.const {}) {path}))", root + 3)
            }
            Op::Name(from, root, path) | Op::Move(from, root, path) => {
                let (from, path, fd) = (text(from), text(path), root + 3);
                format!("(drop (call $rename (i32.const {fd}) {from} (i32.const {fd}) {path}))")
            }
            Op::Directory(root, path) => format!("(drop (call $mkdir (i32.const {}) {}))", root + 3, text(path)),
            Op::File(root, path) => format!(
                "(drop (call $open (i32.const {}) (i32.const 0) {} (i32.const 1) (i64.const 64) (i64.const 64) \
                 (i32.const 0) (i32.const 12)))",
                root + 3,
                text(path)
            ),
            Op::Remove(root, path) => {
                let (fd, path) = (root + 3, text(path));
                format!("(drop (call $unlink (i32.const {fd}) {path})) (drop (call $rmdir (i32.const {fd}) {path}))")
            }
        });
    }
    let import = |name: &str, short: &str, params: &str| {
        format!(
            "(import \"wasi_snapshot_preview1\" \"{name}\" (func ${short} (param {params}) (result i32)))\n"
        )
    };
    let imports = [
        import("path_symlink", "symlink", "i32 i32 i32 i32 i32"),
        import("path_rename", "rename", "i32 i32 i32 i32 i32 i32"),
        import("path_create_directory", "mkdir", "i32 i32 i32"),
        import("path_unlink_file", "unlink", "i32 i32 i32"),
        import("path_remove_directory", "rmdir", "i32 i32 i32"),
        import("path_open", "open", "i32 i32 i32 i32 i32 i64 i64 i32 i32"),
    ];
    let module = format!(
        "(module {} (memory (export \"memory\") 2) {data} (func (export \"_start\") {calls}))",
        imports.concat()
    );
    wat::parse_str(module).unwrap()
}

fn plant(dir: &Path, random: &mut Random, work: &Path) {
    fs::create_dir_all(dir.join("keep")).unwrap();
    fs::create_dir_all(dir.join("b/.git")).unwrap();
    for made in [".git", "bare/objects", "bare/refs"] {
        fs::create_dir_all(dir.join(made)).unwrap();
    }
    for file in ["keep/f", ".git/config", "b/.git/config", "bare/HEAD", "a"] {
        fs::write(dir.join(file), "as it was").unwrap();
    }
    for _ in 0..random.below(14) {
        let path = dir.join(random.path());
        let above = path.parent().unwrap();
        // Never through a link: that may lead anywhere on this machine.
        if path.ancestors().take_while(|at| *at != dir).any(Path::is_symlink)
            || path.symlink_metadata().is_ok()
            || fs::create_dir_all(above).is_err()
        {
            continue;
        }
        match random.below(4) {
            0 => fs::create_dir(&path).unwrap(),
            1 => fs::write(&path, "x").unwrap(),
            _ => symlink(random.target(work), &path).unwrap(),
        }
    }
}

/// Where a link leads, and everything on the way. What is not there is taken for a directory.
fn way(link: &Path) -> Vec<PathBuf> {
    let mut seen = Vec::new();
    let mut at = link.parent().unwrap().to_owned();
    let mut left = vec![link.file_name().unwrap().to_owned()];
    let mut hops = 0;
    while let Some(name) = left.pop() {
        match Path::new(&name).components().next() {
            Some(Component::ParentDir) => drop(at.pop()),
            Some(Component::RootDir) => at = PathBuf::from("/"),
            Some(Component::Normal(name)) => {
                let next = at.join(name);
                match fs::read_link(&next) {
                    Ok(target) => {
                        hops += 1;
                        left.extend(target.components().rev().map(|part| part.as_os_str().to_owned()));
                    }
                    Err(_) => at = next.clone(),
                }
                seen.push(next);
            }
            _ => {}
        }
        // The kernel follows no longer way; what lies on it is looked at all the same.
        if hops > 40 {
            seen.push(at);
            return seen;
        }
    }
    if let Ok(real) = fs::canonicalize(link) {
        assert_eq!(real, at, "{}", link.display());
    }
    seen.push(at);
    seen
}

/// What is in the granted directories: kinds, targets of links, lengths of files.
fn snapshot(work: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut open = GRANTS.map(|name| work.join(name)).to_vec();
    while let Some(path) = open.pop() {
        let look = path.symlink_metadata().unwrap();
        let target = fs::read_link(&path).unwrap_or_default();
        // What lobster keeps for itself is not of a step.
        if look.is_dir() && !path.join("store").is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let length = if look.is_file() { look.len() } else { 0 };
        all.insert(path, format!("{:?} {} {length}", look.file_type(), target.display()));
    }
    all
}

/// The links that lead away, and the files that have a name in a protected place and one elsewhere.
fn stray(work: &Path, protected: &[PathBuf]) -> BTreeSet<(PathBuf, String)> {
    let guard = |path: &Path| -> Option<PathBuf> {
        let names: Vec<Component<'_>> = path.components().collect();
        let git = names.iter().position(|name| name.as_os_str().eq_ignore_ascii_case(".git"));
        let git = git.map(|at| names[..=at].iter().collect());
        let is_bare = |dir: &&Path| {
            ["HEAD", "objects", "refs"].iter().all(|name| dir.join(name).symlink_metadata().is_ok())
        };
        let git = git.or_else(|| path.ancestors().find(is_bare).map(Path::to_owned));
        let lower = |path: &Path| path.to_str().unwrap().to_lowercase();
        git.or_else(|| {
            protected.iter().find(|place| Path::new(&lower(path)).starts_with(lower(place))).cloned()
        })
    };
    let (mut found, mut files) = (BTreeSet::new(), BTreeMap::<u64, Vec<PathBuf>>::new());
    for root in GRANTS.map(|name| work.join(name)) {
        let mut open = vec![root.clone()];
        while let Some(path) = open.pop() {
            let look = path.symlink_metadata().unwrap();
            if look.is_dir() {
                if !path.join("store").is_dir() {
                    open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                }
            } else if look.is_file() {
                files.entry(look.ino()).or_default().push(path);
            } else if look.is_symlink() {
                let target = fs::read_link(&path).unwrap().display().to_string();
                let seen = way(&path);
                let is_system =
                    |place: &Path| ["/usr", "/bin", "/lib"].iter().any(|system| place.starts_with(system));
                let leaves = |place: &PathBuf| {
                    !place.starts_with(&root) && !root.starts_with(place) && !is_system(place)
                };
                let end = seen.last().unwrap();
                let is_out = !is_system(end) && (!end.starts_with(&root) || seen.iter().any(leaves));
                let own = guard(&path);
                let hits = seen.iter().any(|place| guard(place).is_some_and(|at| Some(at) != own));
                let is_git = path.file_name().is_some_and(|name| name.eq_ignore_ascii_case(".git"));
                if is_out || hits || is_git {
                    found.insert((path, target));
                }
            }
        }
    }
    for names in files.into_values() {
        let guards: BTreeSet<Option<PathBuf>> = names.iter().map(|name| guard(name)).collect();
        if guards.len() > 1 {
            found.extend(names.into_iter().map(|name| (name, "hard link".to_owned())));
        }
    }
    found
}

/// A run of the hostile steps, in one of the ways in which changes are committed.
fn attack(home: &Home, random: &mut Random, state: &Path) -> (String, Answer) {
    let work = home.dir();
    let run = |words: &[&str]| {
        let words = ["run", "--mode", "tool"].iter().chain(words);
        home.lobster(words).env("LOBSTER_STATE_DIR", state).run()
    };
    let native = |id: &str, mode: &str, script: &str| {
        home.write(&format!("{id}.sh"), script);
        format!("{{ id: {id}, cwd: tree, changes: {mode}, run: '. ../{id}.sh' }}")
    };
    let wasm = |id: &str, program: &[Op]| {
        home.write(&format!("{id}.wasm"), component(program));
        format!("{{ id: {id}, component: {id}.wasm, grants: {{ write: [tree, other] }} }}")
    };
    let kind = random.below(5);
    let of_component = kind == 2;
    let one = ops(random, &work, if of_component || kind == 1 { 2 } else { 1 });
    let two = ops(random, &work, if kind == 3 { 2 } else { 1 });
    let (flow, policy) = match kind {
        0 => (format!("  - {}\n", native("one", "staged", &shell(&one))), false),
        1 => {
            home.write("x.py", python(&one));
            ("  - { id: one, cwd: tree, changes: staged, exec: [python3, ../x.py] }\n".to_owned(), true)
        }
        2 => (format!("  - {}\n", wasm("one", &one)), false),
        3 => (
            format!(
                "  - id: both\n    parallel:\n      branches:\n        - {}\n        - {}\n",
                native("one", "staged", &shell(&one)),
                wasm("two", &two)
            ),
            false,
        ),
        _ => (
            format!(
                "  - {}\n  - {}\n",
                native("one", "review", &shell(&one)),
                native("two", "review", &shell(&two))
            ),
            false,
        ),
    };
    home.write("flow.lobster", format!("steps:\n{flow}"));
    let mut answer =
        if policy { run(&["--policy", "p.toml", "flow.lobster"]) } else { run(&["flow.lobster"]) };
    let told = format!("kind {kind}\n{flow}{}{}{}", shell(&one), "--\n", shell(&two));
    if answer.envelope()["status"] == "needs_approval" {
        let words = ["resume", "--token", &answer.token(), "--approve", "yes"].map(str::to_owned);
        answer = home.lobster(words).env("LOBSTER_STATE_DIR", state).run();
    }
    (told, answer)
}

/// One of the last runs.
fn any_run(home: &Home, random: &mut Random, state: &Path) -> String {
    let runs = home.lobster(["runs", "--json"]).env("LOBSTER_STATE_DIR", state).run();
    let runs: Vec<Value> = serde_json::from_str(&runs.stdout).unwrap();
    runs[random.below(runs.len().min(5))]["id"].as_str().unwrap().to_owned()
}

#[test]
fn an_undo_of_an_earlier_run_redirects_no_link() {
    let home = Home::new();
    fs::create_dir_all(home.dir().join("tree/d")).unwrap();
    fs::create_dir_all(home.dir().join("tree/p/q")).unwrap();
    let run = |script: &str| {
        let step = format!("steps:\n  - {{ id: a, cwd: tree, changes: staged, run: '{script}' }}\n");
        home.write("flow.lobster", step);
        let answer = home.tool(["flow.lobster"]);
        assert_eq!(answer.code(), 0, "{answer:#?}");
    };
    run("rmdir d && ln -s p/q d");
    run("mkdir secret && ln -s d/../../secret x");
    let dir = home.dir().join("tree");
    for words in [&["undo", "@-"][..], &["undo", "@-", "--step", "a"], &["undo", "@-", "--only", "tree/d"]] {
        // A refused undo is a run as well.
        let first = first_run(&home);
        let words = words.iter().map(|word| if *word == "@-" { first.clone() } else { (*word).to_owned() });
        let undone = home.lobster(words).run();
        let said = format!("{}{}", undone.stdout, undone.stderr);
        assert!(undone.code() != 0 && said.contains("left a link that leads out"), "{undone:#?}");
        assert!(said.contains("tree/x -> d/../../secret. Remove or redirect this link"), "{undone:#?}");
        assert!(dir.join("d").is_symlink());
    }
    fs::remove_file(dir.join("x")).unwrap();
    let undone = home.lobster(["undo", &first_run(&home)]).run();
    assert_eq!(undone.code(), 0, "{undone:#?}");
    assert!(!dir.join("d").is_symlink() && dir.join("d").is_dir());
}

/// The oldest run.
fn first_run(home: &Home) -> String {
    let runs = home.lobster(["runs", "--json", "--limit", "0"]).run();
    let runs: Vec<Value> = serde_json::from_str(&runs.stdout).unwrap();
    runs[runs.len() - 1]["id"].as_str().unwrap().to_owned()
}

#[test]
fn no_committed_link_leads_out_of_its_grant() {
    let wanted = number("LOBSTER_LINK_COMMITS", COMMITS);
    let (mut seed, mut commits, mut refused) = (number("LOBSTER_LINK_SEED", 1_u64), 0, 0);
    let mut undone = 0;
    let mut by_kind = BTreeMap::<char, usize>::new();
    while commits < wanted {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let home = Home::new();
        let work = fs::canonicalize(home.dir()).unwrap();
        fs::create_dir(work.join("sibling")).unwrap();
        home.write(
            "p.toml",
            "version = 1\n[sandbox]\nmode = \"degrade\"\n[sandbox.fs]\nprotect = [\"@workspace/tree/keep\"]\n\
             [[rule]]\nid = \"python\"\neffect = \"allow\"\nprogram = \"python3\"\n\
             grant = { fs_write = [\"@workspace/tree\", \"@workspace/other\"] }\n",
        );
        for grant in GRANTS {
            plant(&work.join(grant), &mut random, &work);
        }
        let has_state = random.below(3) == 0 && work.join("tree/st").symlink_metadata().is_err();
        let state = if has_state { home.second_state("tree/st") } else { home.state() };
        let guarded = |policy: bool| {
            let mut places = vec![fs::canonicalize(&state).unwrap()];
            places.extend(policy.then(|| work.join("tree/keep")));
            places
        };
        // What led away before a step came stays, until it is gone.
        let mut known = [stray(&work, &guarded(false)), stray(&work, &guarded(true))];
        let mut once = known[0].clone();
        for _ in 0..STEPS {
            let before = snapshot(&work);
            let (told, answer) = attack(&home, &mut random, &state);
            let said = format!("{}{}", answer.stdout, answer.stderr);
            let is_policy = told.starts_with("kind 1");
            let is_changed = snapshot(&work) != before;
            if answer.code() == 0 {
                commits += usize::from(is_changed);
                *by_kind.entry(told.as_bytes()[5].into()).or_default() += usize::from(is_changed);
            } else {
                assert!(!is_changed, "seed {seed}: {told}\n{said}");
                refused += usize::from(said.contains("left a link "));
                let expected = ["left a link ", "both changed", "protected]", "changes", "cannot"];
                assert!(expected.iter().any(|part| said.contains(part)), "seed {seed}: {told}\n{said}");
            }
            let mut now = [stray(&work, &guarded(false)), stray(&work, &guarded(true))];
            let which = usize::from(is_policy);
            let new: Vec<_> = now[which].difference(&known[which]).collect();
            assert!(new.is_empty(), "seed {seed}: {new:?}\n{told}\n{said}");
            once.extend(now[0].iter().cloned());
            if random.below(3) == 0 {
                let run = any_run(&home, &mut random, &state);
                let answer = home.lobster(["undo", &run]).env("LOBSTER_STATE_DIR", &state).run();
                undone += usize::from(answer.code() == 0);
                let after = [stray(&work, &guarded(false)), stray(&work, &guarded(true))];
                // An undo may restore what led away before any step came, and nothing else.
                let new: Vec<_> =
                    after[0].difference(&now[0]).filter(|found| !once.contains(*found)).collect();
                assert!(new.is_empty(), "seed {seed}: undo {run}: {new:?}\n{answer:?}");
                now = after;
            }
            // A commit without a policy may lead to what another one's policy protects.
            known = now;
        }
        seed += 1;
    }
    assert!(refused * 10 > commits, "only {refused} attacks were refused");
    println!("{commits} commits ({by_kind:?}), {refused} refused for a link, {undone} undone");
}
