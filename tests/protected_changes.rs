//! What a policy protects stays as it is, also where a change set is what becomes of a step's work: of a
//! component, of a step on a layer, and of one on a copy.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::home::Home;
use crate::staged::tree;
use crate::staged_copies::on_overlay;
use crate::staged_model::programs;

/// Makes the directory `DIR`, if that is a name, and then the file `FILE`, below what it may write to.
fn component(dir: &str, file: &str) -> Vec<u8> {
    let made = |call: &str| format!("(drop ({call}))");
    let mkdir = match dir {
        "" => String::new(),
        dir => made(&format!("call $mkdir (i32.const 3) (i32.const 16) (i32.const {})", dir.len())),
    };
    let module = format!(
        r#"(module
  (import "wasi_snapshot_preview1" "path_create_directory" (func $mkdir (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "{dir}") (data (i32.const 128) "{file}") (data (i32.const 300) "evil")
  (func (export "_start")
    {mkdir}
    (i32.store (i32.const 0) (i32.const 300)) (i32.store (i32.const 4) (i32.const 4))
    (if (call $open (i32.const 3) (i32.const 0) (i32.const 128) (i32.const {length}) (i32.const 1)
          (i64.const 64) (i64.const 64) (i32.const 0) (i32.const 12)) (then unreachable))
    (if (call $write (i32.load (i32.const 12)) (i32.const 0) (i32.const 1) (i32.const 8)) (then unreachable))))"#,
        length = file.len(),
    );
    wat::parse_str(module).unwrap()
}

fn with_repositories() -> Home {
    let home = Home::new();
    for file in ["vendor/lib/.git/HEAD", "vendor/lib/.git/hooks/x", "vendor/lib/src", "plain/f", "link/.git"]
    {
        home.write(file, "as it was\n");
    }
    for dir in ["bare/objects", "bare/refs", "bare/hooks"] {
        fs::create_dir_all(home.dir().join(dir)).unwrap();
    }
    home.write("bare/HEAD", "ref: refs/heads/main\n");
    home
}

#[test]
fn a_component_changes_nothing_of_gits() {
    for (grant, dir, file, is_refused) in [
        ("vendor/lib", "", "src2", false),
        ("vendor/lib", "", ".gitignore", false),
        ("vendor/lib", "", ".git/hooks/post-checkout", true),
        ("vendor/lib", "", ".git/config", true),
        ("vendor", "", "lib/.git/HEAD2", true),
        ("vendor/lib/.git", "", "refs", true),
        ("vendor/lib/.git/hooks", "", "pre-commit", true),
        ("link", "", ".git", true),
        ("plain", "", ".git", true),
        ("plain", ".git", ".git/config", true),
        ("plain", "sub", "sub/config", false),
        ("bare", "", "hooks/post-receive", true),
        ("bare", "", "config", true),
    ] {
        let home = with_repositories();
        home.write("p.toml", "version = 1\n").write("c.wasm", component(dir, file));
        home.write(
            "flow.lobster",
            format!("steps:\n  - {{ id: c, component: c.wasm, grants: {{ write: [{grant}] }} }}\n"),
        );
        let before = tree(&home.dir());
        // Without a policy the author's grant is all that counts: the component does what it is made for.
        for policy in [true, false] {
            let args: &[&str] =
                if policy { &["--policy", "p.toml", "flow.lobster"] } else { &["flow.lobster"] };
            let answer = home.tool(args);
            let envelope = answer.envelope();
            if policy && is_refused {
                assert!(answer.error().contains("policy_denied, protected]"), "{grant} {file}: {answer:#?}");
                assert_eq!(tree(&home.dir()), before, "{grant} {file}");
                // The refusal stands when the run goes on.
                let resumed = home.lobster(["resume", "@"]).run();
                assert!(resumed.code() != 0, "{resumed:#?}");
                assert_eq!(tree(&home.dir()), before, "{grant} {file}");
            } else {
                assert_eq!(envelope["status"], "ok", "{grant} {file}: {answer:#?}");
                assert!(home.read(&format!("{grant}/{file}")).starts_with("evil"), "{grant} {file}");
                home.lobster(["undo", "@"]).run();
                assert_eq!(tree(&home.dir()), before, "{grant} {file}, undone");
            }
        }
    }
}

#[test]
fn a_component_changes_of_gits_what_the_policy_names() {
    for (file, is_refused) in [("refs/heads", false), ("hooks/evil", true), ("config", true)] {
        let home = with_repositories();
        home.write("p.toml", "version = 1\n[components]\nwrite = [\"@workspace/vendor/lib/.git\"]\n");
        fs::create_dir(home.dir().join("vendor/lib/.git/refs")).unwrap();
        home.write("c.wasm", component("", file));
        home.write(
            "flow.lobster",
            "steps:\n  - { id: c, component: c.wasm, grants: { write: [vendor/lib/.git] } }\n",
        );
        let answer = home.tool(["--policy", "p.toml", "flow.lobster"]);
        assert_eq!(answer.envelope()["status"] == "ok", !is_refused, "{file}: {answer:#?}");
        assert_eq!(home.dir().join("vendor/lib/.git").join(file).exists(), !is_refused, "{file}");
    }
}

const FLOW: &str = "steps:\n  - { id: s, cwd: tree, changes: MODE, exec: [python3, ../x.py] }\n";

fn policy(protect: &str) -> String {
    format!(
        "version = 1\n[sandbox]\nmode = \"degrade\"\n[sandbox.fs]\nprotect = [{protect}]\n\
         [[rule]]\nid = \"python\"\neffect = \"allow\"\nprogram = \"python3\"\n\
         grant = {{ fs_write = [\"@workspace/tree\"] }}\n"
    )
}

/// A tree with what an attack is after.
fn guarded(home: &Home, script: &str) {
    for file in ["infra/prod/f", "infra/other", "vendor/lib/.git/config", "vendor/lib/src", "a"]
        .map(|file| format!("tree/{file}"))
    {
        home.write(&file, "as it was\n");
    }
    home.write("p.toml", policy("\"@workspace/tree/infra/prod\", \"@workspace/tree/none/yet\""));
    home.write(
        "x.py",
        format!(
            "import os, shutil\n\
             def put(path):\n    os.makedirs(os.path.dirname(path) or '.', exist_ok=True)\n    open(path, 'w').write('evil')\n\
             def tried(act, *args):\n    try: act(*args)\n    except (OSError, shutil.Error): pass\n{script}\nput('a')\n"
        ),
    );
}

/// Runs the step on a layer, or on a copy: none where this machine makes none.
fn run_staged(home: &Home, is_copy: bool) -> Option<String> {
    let call = "\"$L\" run --mode tool --policy p.toml flow.lobster; \"$L\" show @ --full";
    if is_copy {
        let said = on_overlay(home, call)?;
        assert!(said.contains("snapshot"), "{said}");
        return Some(said);
    }
    let answer = home.tool(["--policy", "p.toml", "flow.lobster"]);
    (!answer.stdout.contains("cannot enforce")).then(|| format!("{answer:?}"))
}

/// What is protected, with the directories above it as such.
fn protected(home: &Home) -> BTreeMap<String, String> {
    let all = tree(&home.dir().join("tree"));
    let kept = ["infra/prod", "vendor/lib/.git", "none/yet"];
    let is_protected = |path: &str| kept.iter().any(|place| path.starts_with(place));
    all.into_iter().filter(|(path, _)| is_protected(path)).collect()
}

const ATTACKS: [&str; 9] = [
    "tried(os.rename, 'infra', 'i2'); tried(put, 'infra/prod/f')",
    "tried(os.rename, 'vendor', 'v2'); tried(put, 'vendor/lib/.git/config'); tried(put, 'vendor/lib/.git/hooks/x')",
    "tried(os.rename, 'vendor/lib', 'l2'); tried(put, 'vendor/lib/.git/config')",
    "tried(shutil.rmtree, 'infra'); tried(put, 'infra/prod/f')",
    "tried(shutil.rmtree, 'vendor', True); tried(os.symlink, '/tmp', 'vendor')",
    "tried(put, 'none/yet/f'); tried(os.rename, 'none', 'n2'); tried(put, 'none/yet/f')",
    "tried(put, 'infra/prod/f'); tried(os.remove, 'infra/prod/f'); tried(put, 'infra/prod/new')",
    "tried(os.rename, 'infra/prod', 'p2'); tried(os.rename, 'vendor/lib/.git', 'g2'); tried(put, 'vendor/lib/.git')",
    "tried(os.link, 'infra/prod/f', 'l'); tried(put, 'l'); tried(os.chmod, 'infra/prod/f', 0o777)",
];

/// Where the kernel lays a layer, where it does not, and without any.
#[test]
fn nothing_at_above_or_below_a_protected_place_changes() {
    for script in ATTACKS {
        for (is_copy, mode) in [(false, "staged"), (true, "staged"), (false, "direct")] {
            let home = Home::new();
            guarded(&home, script);
            home.write("flow.lobster", FLOW.replace("MODE", mode));
            let before = protected(&home);
            let Some(said) = run_staged(&home, is_copy) else { return };
            assert_eq!(protected(&home), before, "{mode}, copy: {is_copy}, {script}\n{said}");
            // What does not exist yet is not held in a copy: all of the step's changes are refused.
            let refused = is_copy && said.contains("[policy_denied, protected]");
            let expected = if refused { "as it was\n" } else { "evil" };
            assert_eq!(home.read("tree/a"), expected, "{mode}, copy: {is_copy}, {script}\n{said}");
        }
    }
}

/// Random programs of real tools on random trees, of which two places are protected.
#[test]
fn no_program_changes_a_protected_place() {
    const PLACES: [&str; 2] = ["d/x", "e/f"];
    let kept = |dir: &Path| {
        let mut all = tree(dir);
        all.retain(|path, _| PLACES.iter().any(|place| path.starts_with(place)));
        all
    };
    for (seed, plant, program) in programs(8) {
        for is_copy in [false, true] {
            let home = Home::new();
            let dir = home.dir().join("tree");
            fs::create_dir(&dir).unwrap();
            plant(&dir);
            // A protected place behind a link is refused before anything runs.
            for above in ["d", "e"].map(|name| dir.join(name)) {
                if above.is_symlink() || above.is_file() {
                    fs::remove_file(&above).unwrap();
                }
                fs::create_dir_all(&above).unwrap();
            }
            for place in PLACES.map(|name| dir.join(name)).iter().filter(|place| place.is_symlink()) {
                fs::remove_file(place).unwrap();
            }
            let protect = PLACES.map(|place| format!("\"@workspace/tree/{place}\"")).join(", ");
            home.write("program.sh", &program).write("p.toml", policy(&protect)).write(
                "x.py",
                "import subprocess\nsubprocess.run(['sh', '-c', '. ../program.sh'])\nopen('end', 'w').write('x')\n",
            );
            home.write("flow.lobster", FLOW.replace("MODE", "staged"));
            let before = kept(&dir);
            let Some(said) = run_staged(&home, is_copy) else { return };
            assert_eq!(kept(&dir), before, "seed {seed}, copy: {is_copy}\n{program}\n{said}");
            let done = home.read("tree/end") == "x";
            assert!(done || said.contains("[policy_denied, protected]"), "seed {seed}:\n{program}\n{said}");
        }
    }
}
