//! Attempts that stay impossible from one step to the next: no hidden or protected file is moved away with
//! its directory. Also the host files that a step has open besides its roots.

use std::io::Read;
use std::os::unix::fs::{MetadataExt, symlink};

use super::confined::{jail, jailed};
use super::*;

const SECRET: &str = "PASSWORD=x";

/// Hidden and protected files, each with its kind.
const SECRETS: [&str; 8] = [
    "plain/deep/a.key",
    "whole/deep/dir/x",
    "pattern/deep/token",
    "anchored/deep/key",
    "partly/deep/some/x",
    "names/deep/one.pem",
    "other/deep/name",
    "linked/deep/file",
];
const PROTECTED: [&str; 3] = ["guarded/deep/file", "guarded/deep/inner/file", "clone/deep/.git/config"];

/// Moves and exchanges every possible directory, the innermost first, and prints the names of those moved.
const MOVE_ALL: &str = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None)
root = sys.argv[1]
for top, names, _ in list(os.walk(root, topdown=False)):
    for name in names:
        path = os.path.join(top, name)
        if os.path.islink(path): continue
        other = os.path.join(root, "spare")
        os.makedirs(other, exist_ok=True)
        for how in ["rename", "exchange"]:
            if how == "rename":
                try: os.rename(path, path + ".moved"); done = True
                except OSError: done = False
                path = path + ".moved" if done else path
            else:
                done = libc.renameat2(-100, os.fsencode(path), -100, os.fsencode(other), 2) == 0
            if done: print(os.path.relpath(path, root), how)
"#;

fn tree(root: &Path) {
    for file in SECRETS.iter().chain(&PROTECTED).chain(&["partly/deep/some/README", "free/deep/x"]) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let is_other_name = *file == "other/deep/name";
        if is_other_name {
            fs::hard_link(root.join("names/deep/one.pem"), path).unwrap();
        } else {
            fs::write(path, if SECRETS.contains(file) { SECRET } else { "kept" }).unwrap();
        }
    }
    symlink("../linked/deep/file", root.join("free/link.pem")).unwrap();
}

fn spec(root: &Path) -> JailSpec {
    let patterns = ["**/token", "**/*.pem", "**/some", "!**/some/README"].map(str::to_owned);
    JailSpec {
        deny: ["plain/deep/a.key", "whole/deep/dir"].map(|path| root.join(path)).to_vec(),
        deny_patterns: patterns.into_iter().chain([format!("{}/*/deep/key", root.display())]).collect(),
        protect: ["guarded/deep/file", "guarded/deep/inner/file", "absent/deep/file"]
            .map(|path| root.join(path))
            .to_vec(),
        protect_repositories: true,
        ..jail(root)
    }
}

fn move_all(root: &Path, spec: JailSpec) -> String {
    let mut request = request(&["/usr/bin/python3", "-c", MOVE_ALL, root.to_str().unwrap()]);
    request.confinement = Confinement::Jail(spec);
    let (exit, out, err) = run(&request).unwrap();
    assert_eq!(exit.status, ExitStatus::Code(0), "{err}");
    out
}

/// Checks that only directories without files of note were moved.
fn check_moved(moved: &str) {
    let is_free = |line: &&str| line.starts_with("free") || line.starts_with("spare");
    assert!(moved.contains("free/deep.moved rename"), "nothing was tried: {moved}");
    assert_eq!(moved.lines().filter(|line| !is_free(line)).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn what_is_hidden_or_protected_is_so_for_the_next_step() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let root = dir.path().join("root");
    tree(&root);
    check_moved(&move_all(&root, spec(&root)));
    // The link that a pattern names is in a directory that the step may write: it was moved with `free`, or
    // is still there.
    let look =
        format!("grep -rh PASSWORD {0} 2>/dev/null; grep -rh kept {0} 2>/dev/null | wc -l", root.display());
    let (_, out, err) = run(&jailed(&look, spec(&root))).unwrap();
    assert_eq!(out, "5\n", "{err}");
    for path in PROTECTED {
        assert_eq!(fs::read_to_string(root.join(path)).unwrap(), "kept");
    }
    // Without a promise everything can be moved.
    let moved = move_all(&root, jail(&root));
    for path in ["plain", "pattern/deep", "guarded", "clone"] {
        assert!(moved.contains(&format!("{path}.moved rename")), "{path} in {moved}");
    }
}

#[test]
fn it_is_so_in_a_copy_and_below_a_layer() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let [root, copy, upper, work] = ["root", "copy", "upper", "work"].map(|name| dir.path().join(name));
    for path in [&root, &copy] {
        tree(path);
    }
    let layered = |over: Overlay| JailSpec { layers: vec![over], ..spec(&root) };
    let none = || Overlay { root: root.clone(), below: None, upper: None, copy: None };
    for made in [&upper, &work] {
        fs::create_dir(made).unwrap();
    }
    let upper = Some(Upper { dir: upper, work });
    check_moved(&move_all(
        &root,
        layered(Overlay { copy: Some(copy.clone()), upper: upper.clone(), ..none() }),
    ));
    for path in SECRETS.iter().chain(&PROTECTED) {
        assert!(copy.join(path).exists(), "{path}");
    }
    // Moving a directory of the lower layer copies it, and a hidden file cannot be copied.
    let moved = move_all(&root, layered(Overlay { upper, ..none() }));
    assert_eq!(moved.lines().filter(|line| !line.starts_with("spare")).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn holding_a_directory_gives_no_right_to_it() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let root = dir.path();
    for file in ["shut/file", "shut/key", "read/deep/key"] {
        fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
        fs::write(root.join(file), "old").unwrap();
    }
    let spec = JailSpec {
        protect: ["shut", "shut/file"].map(|path| root.join(path)).to_vec(),
        deny: ["shut/key", "read/deep/key"].map(|path| root.join(path)).to_vec(),
        ..jail(root)
    };
    let spec = JailSpec { read: spec.read.iter().cloned().chain([root.join("read")]).collect(), ..spec };
    let script = format!(
        "cd {}; for new in shut/new read/new read/deep/new fine; do (echo x > $new) 2>/dev/null && echo $new; done; :",
        root.display()
    );
    let (_, out, err) = run(&jailed(&script, spec)).unwrap();
    assert_eq!(out, "fine\n", "{err}");
}

#[test]
fn a_step_changes_nothing_of_its_input() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (root, path) = (dir.path().join("root"), dir.path().join("input"));
    fs::create_dir(&root).unwrap();
    fs::write(&path, "skipped\nread\n").unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o444)).unwrap();
    let before = fs::metadata(&path).unwrap();
    // The file is in a write root, like the store's blobs.
    for write in [root.clone(), dir.path().to_owned()] {
        let mut input = File::open(&path).unwrap();
        input.read_exact(&mut [0; 8]).unwrap();
        let script = "cat; for change in 'chmod 600 /dev/stdin' 'touch -c -d @1 /dev/stdin' \
             'setfattr -n user.x -v x /dev/stdin' 'eval echo x >> /dev/stdin' 'eval echo x <> /dev/stdin >&0'; do \
             $change 2>/dev/null && echo \"$change\"; done; :";
        let request = SpawnRequest { stdin: Stdin::File(input), ..jailed(script, jail(&write)) };
        let (_, out, err) = run(&request).unwrap();
        assert_eq!(out, "read\n", "{err}");
        let after = fs::metadata(&path).unwrap();
        assert_eq!((after.mode(), after.mtime()), (before.mode(), before.mtime()));
        assert_eq!(fs::read_to_string(&path).unwrap(), "skipped\nread\n");
    }
    // Without an input it is /dev/null, with the mode that the host's has.
    let script = "test -c /dev/stdin && cat && ! chmod 666 /dev/stdin 2>/dev/null && \
         ! chmod 666 /dev/null 2>/dev/null && ! touch -d @1 /dev/null 2>/dev/null && echo x > /dev/null && echo fine";
    let (_, out, err) = run(&jailed(script, jail(&root))).unwrap();
    assert_eq!(out, "fine\n", "{err}");
}
