use std::os::unix::fs::symlink;
use std::sync::mpsc;
use std::time::Duration;

use super::copies::NotHeld;
use super::*;
use lobster_base::cancel::CancelToken;
use lobster_sandbox::JailSpec;

/// A workspace, and what an approval of `text` in it covers.
struct Workspace {
    dir: tempfile::TempDir,
    policy: Policy,
}

impl Workspace {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let policy = Policy::load("version = 1\n", "p.toml").unwrap();
        let place = Self { dir, policy };
        for (name, content) in files {
            place.write(name, content);
        }
        place
    }

    fn root(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    fn write(&self, name: &str, content: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.root().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn covered(&self, text: &str) -> Covered {
        let workspace = self.root().display().to_string();
        let programs = std::sync::Arc::new(lobster_policy::HostPrograms);
        let env = DecisionEnv { workspace, programs, ..DecisionEnv::fixture() };
        let place = Place {
            policy: &self.policy,
            env: &env,
            starts: Some("/bin/sh"),
            path: Some("bin:/usr/bin".into()),
        };
        covered(&place, &Proposal::shell(text)).unwrap()
    }

    /// `role name` of each file, without the workspace; `~` where it is only compared.
    fn shown(&self, text: &str) -> String {
        let root = format!("{}/", self.root().display());
        let shown = self.covered(text).files.into_iter().map(|file| {
            let role = serde_json::to_value(file.role).unwrap();
            let mark = if file.compared { "~" } else { "" };
            format!("{mark}{} {}", role.as_str().unwrap(), file.path.replace(&root, ""))
        });
        shown.collect::<Vec<_>>().join(", ")
    }
}

#[test]
fn what_runs_is_found_wherever_it_hides() {
    let place = Workspace::new(&[
        ("d.sh", "#!/bin/sh\n. ./inc.sh\n\"$(dirname \"$0\")/tool\" && cat notes\n"),
        ("inc.sh", "X=1\n"),
        ("tool", "#!/usr/bin/env python3\nimport lib.a\n"),
        ("lib/__init__.py", ""),
        ("lib/a.py", ""),
        ("notes", "n"),
        (
            "Makefile",
            "include rules.mk\nS := ./inc.sh\nall: ; @sh $(S)\n\nother:\n\t-./tool --x $(UNKNOWN)\n",
        ),
        ("rules.mk", "x:\n\tsh notes\n"),
        (
            "package.json",
            r#"{"scripts":{"go":"cli && node s.js","pretest":"sh inc.sh","test":"npm run go","x":"sh d.sh"}}"#,
        ),
        ("node_modules/.bin/cli", "#!/usr/bin/env node\n"),
        ("s.js", "const a = require('./t');\nimport b from \"./u.mjs\";\n"),
        ("t.js", ""),
        ("u.mjs", ""),
        ("justfile", "go:\n    @sh inc.sh {{x}}\n"),
        ("bin/helper", "#!/bin/sh\n"),
        ("data.csv", "1,2"),
    ]);
    for (text, expected) in [
        ("cat data.csv", ""),
        ("touch data.csv; rm notes", ""),
        (
            "./d.sh",
            "read notes, sourced inc.sh, sourced lib/__init__.py, sourced lib/a.py, executed d.sh, executed ./tool",
        ),
        (
            "make -s",
            "sourced Makefile, sourced lib/__init__.py, sourced lib/a.py, sourced rules.mk, executed inc.sh, executed notes, executed tool",
        ),
        ("npm test", "sourced package.json, sourced t.js, sourced u.mjs, executed inc.sh"),
        ("just go", "sourced justfile, executed inc.sh"),
        ("helper data.csv", "~read data.csv, executed bin/helper"),
        ("kubectl apply -f data.csv", "read data.csv"),
        ("psql --file=data.csv notes", "read data.csv, ~read notes"),
        ("./inc.sh >notes; cat notes", "~read notes, executed inc.sh"),
        ("sh -c 'cp data.csv inc.sh; sh inc.sh'", "read data.csv, ~executed inc.sh"),
        ("sh <inc.sh", "sourced inc.sh"),
        ("find . -name 'inc*' -exec sh {} +", "executed inc.sh"),
        ("for f in in*.sh; do . \"./$f\"; done", "sourced inc.sh"),
        ("echo inc.sh", ""),
    ] {
        let mut found: Vec<String> = place.shown(text).split(", ").map(|one| one.replace("./", "")).collect();
        let mut wanted: Vec<String> = expected.split(", ").map(|one| one.replace("./", "")).collect();
        if text == "npm test" {
            found.retain(|one| !one.contains("node_modules") && !one.contains("s.js"));
        }
        found.sort();
        wanted.sort();
        assert_eq!(found, wanted, "{text}");
    }
    assert!(place.shown("npm test").contains("executed node_modules/.bin/cli"));
    let notes = place.covered("make other; python3 \"$WHERE\"; npx x").not_covered.join("\n");
    for note in ["tool", "python3 ", "node_modules"] {
        assert!(notes.contains(note), "{note} in {notes}");
    }
}

#[test]
fn pipes_and_devices_are_left_alone() {
    let place = Workspace::new(&[("d.sh", "#!/bin/sh\n. ./pipe\n. ./zero\n")]);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.root().join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    symlink("/dev/zero", place.root().join("zero")).unwrap();
    symlink("loop", place.root().join("loop")).unwrap();
    assert_eq!(place.shown("./d.sh pipe zero loop /dev/null /proc/self/status"), "executed d.sh");
}

#[test]
fn a_script_that_goes_in_circles_is_read_once() {
    let place = Workspace::new(&[("a", "#!/bin/sh\n./b\n./a\n"), ("b", "#!/bin/sh\n. ./a\n./b\n")]);
    assert_eq!(place.shown("./a"), "executed a, executed b");
}

fn held(place: &Workspace, files: &[BoundFile]) -> Result<(Held, JailSpec), NotHeld> {
    let mut spec = JailSpec { write: vec![place.root()], ..JailSpec::default() };
    let state = place.root().join("state");
    fs::create_dir_all(&state).unwrap();
    let held = Held::take(files, &state, &spec)?;
    held.confine(&mut spec);
    Ok((held, spec))
}

#[test]
fn what_is_held_is_what_was_bound() {
    let place = Workspace::new(&[("d.sh", "one"), ("e.sh", "two"), ("old/d.sh", "one")]);
    symlink("d.sh", place.root().join("link")).unwrap();
    let files = place.covered("./d.sh; ./link").files;
    assert_eq!(files.len(), 2);
    let (kept, spec) = held(&place, &files).unwrap();
    // The same file under two names has one copy.
    let [replaced] = &spec.replaced[..] else { panic!("{spec:?}") };
    assert_eq!(
        (&replaced.path, fs::read_to_string(&replaced.copy).unwrap()),
        (&place.root().join("d.sh"), "one".into())
    );
    // The copies lie below what the step may write, and so are hidden from it.
    assert_eq!(spec.deny, [replaced.copy.parent().unwrap()]);
    let copy = replaced.copy.clone();
    drop(kept);
    assert!(!copy.exists());

    place.write("d.sh", "other");
    assert!(matches!(held(&place, &files), Err(NotHeld::Changed { .. })));
    place.write("d.sh", "on");
    assert!(matches!(held(&place, &files), Err(NotHeld::Changed { .. })));
    place.write("d.sh", "one");
    assert!(held(&place, &files).is_ok());
    // Another file with the same content is another file.
    fs::remove_file(place.root().join("link")).unwrap();
    symlink("old/d.sh", place.root().join("link")).unwrap();
    assert!(matches!(held(&place, &files), Err(NotHeld::Changed { .. })));
    fs::remove_file(place.root().join("link")).unwrap();
    assert!(held(&place, &files).is_err());
}

#[test]
fn a_name_that_is_given_away_stops_what_runs() {
    type Change = fn(&Path);
    let changes: [(&str, bool, Change); 8] = [
        ("nothing", false, |_| {}),
        ("another name in the directory", false, |root| fs::write(root.join("sub/new"), "").unwrap()),
        ("the content, of which there is a copy", false, |root| {
            fs::write(root.join("sub/d.sh"), "x").unwrap()
        }),
        ("replaced", true, |root| fs::rename(root.join("e.sh"), root.join("sub/d.sh")).unwrap()),
        ("exchanged and back", true, |root| {
            for _ in 0..2 {
                let (one, other) = (root.join("e.sh"), root.join("sub/d.sh"));
                let (cwd, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
                rustix::fs::renameat_with(cwd, one, cwd, other, flags).unwrap();
            }
        }),
        ("removed", true, |root| fs::remove_file(root.join("sub/d.sh")).unwrap()),
        ("its directory replaced", true, |root| fs::rename(root.join("sub"), root.join("bus")).unwrap()),
        ("the link on the way led elsewhere", true, |root| {
            fs::remove_file(root.join("link")).unwrap();
            symlink("e.sh", root.join("link")).unwrap();
        }),
    ];
    for (what, stops, change) in changes {
        let place = Workspace::new(&[("sub/d.sh", "one"), ("e.sh", "two")]);
        symlink("sub", place.root().join("way")).unwrap();
        symlink("way/d.sh", place.root().join("link")).unwrap();
        let (kept, _) = held(&place, &place.covered("./link").files).unwrap();
        let root = place.root();
        let (cancelled, changed) = kept.guard(&CancelToken::new(), |cancel| {
            let (sender, done) = mpsc::channel();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    change(&root);
                    sender.send(()).unwrap();
                });
                done.recv().unwrap();
                // Told at once; where nothing is told, there is nothing to wait for.
                cancel.wait(Duration::from_millis(if stops { 5_000 } else { 1 }))
            })
        });
        assert_eq!((cancelled, changed.is_some()), (stops, stops), "{what}");
    }
}

#[test]
fn a_script_is_read_in_the_language_of_the_shell_that_runs_it() {
    // bash prints one line of this; dash and ash run ./evil.
    const TRICK: &str = "echo $'\\'; ./evil; echo ' #'\n";
    let place = Workspace::new(&[
        ("evil", "#!/bin/sh\n"),
        ("plain.sh", TRICK),
        ("dash.sh", &format!("#!/bin/dash\n{TRICK}")),
        ("env.sh", &format!("#!/usr/bin/env dash\n{TRICK}")),
        ("mine.sh", &format!("#!bin/bash\n{TRICK}")),
        ("bash.sh", &format!("#!/bin/bash\n{TRICK}")),
        ("inner.sh", "#!/bin/bash\ndash ./plain.sh\n"),
        ("bin/bash", "#!/bin/dash\n"),
        ("Makefile", "SHELL := /bin/dash\nall:\n\techo $$'\\'; ./evil; echo ' #'\n"),
    ]);
    for text in [
        "dash plain.sh",
        "env dash plain.sh",
        "timeout 5 dash ./plain.sh",
        "dash -c '. ./plain.sh'",
        "find . -name plain.sh -exec dash {} \\;",
        "./dash.sh",
        "./env.sh",
        "./mine.sh",
        "./inner.sh",
        "bash inner.sh",
        "make",
    ] {
        let (files, covered) = (place.shown(text), place.covered(text));
        assert!(files.contains("executed evil"), "{text}: {files}");
        assert!(covered.not_covered.iter().any(|note| note.contains("as bash does")), "{text}: {covered:?}");
    }
    for text in ["bash plain.sh", "./bash.sh", "env bash ./plain.sh", "bash -c '. ./plain.sh'"] {
        let (files, covered) = (place.shown(text), place.covered(text));
        assert!(!files.contains("evil"), "{text}: {files}");
        assert!(covered.not_covered.iter().all(|note| !note.contains("as bash does")), "{text}: {covered:?}");
    }
}

#[test]
fn what_is_run_and_only_compared_is_named_to_the_sandbox() {
    let place = Workspace::new(&[("x.sh", "echo\n"), ("y.sh", "echo\n"), ("data", "d")]);
    let root = place.root();
    let uncopied = |text: &str| {
        let mut spec = JailSpec { write: vec![root.clone()], ..JailSpec::default() };
        let state = tempfile::tempdir().unwrap();
        Held::take(&place.covered(text).files, state.path(), &spec).unwrap().confine(&mut spec);
        let names = spec.uncopied.iter().map(|path| path.strip_prefix(&root).unwrap().display().to_string());
        names.collect::<Vec<_>>()
    };
    assert_eq!(uncopied("sh x.sh data"), [""; 0]);
    assert_eq!(uncopied("cat x.sh > y.sh; sh y.sh"), ["y.sh"]);
    assert_eq!(uncopied("sed -i s/a/b/ x.sh; sh ./x.sh; sh y.sh"), ["x.sh"]);
}
