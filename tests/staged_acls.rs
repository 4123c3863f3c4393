//! Access control lists (POSIX ACLs) of files that staged steps make, move, replace and remove: nobody may do more
//! after the commit or its undo than before.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{XattrFlags, lgetxattr, setxattr};
use rustix::io::Errno;

use crate::home::Home;
use crate::staged::flow;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// `u::rw,u:1000:rw,g::---,m::rw,o::---` as the kernel keeps it, or with `rwx`.
fn list(all: u16) -> Vec<u8> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, may, id) in
        [(1_u16, all, u32::MAX), (2, all, 1000), (4, 0, u32::MAX), (16, all, u32::MAX), (32, 0, u32::MAX)]
    {
        list.extend(tag.to_le_bytes());
        list.extend(may.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

type Rights = (u32, Option<Vec<u8>>, Option<Vec<u8>>);

fn rights(dir: &Path) -> BTreeMap<String, Rights> {
    let list = |path: &Path, name: &str| {
        let mut value = [0; 256];
        lgetxattr(path, name, &mut value).ok().map(|length| value[..length].to_vec())
    };
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let mode = fs::metadata(&path).unwrap().mode() & 0o7777;
            (name, (mode, list(&path, ACCESS), list(&path, DEFAULT)))
        })
        .collect()
}

/// A directory with a file and a directory that have lists; none where the file system has no lists.
fn home(script: &str) -> Option<Home> {
    let home = Home::new();
    home.write("flow.lobster", flow(script)).write("tree/f", "one\n").write("tree/plain", "two\n");
    let tree = home.dir().join("tree");
    fs::set_permissions(tree.join("plain"), Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(tree.join("d")).unwrap();
    match setxattr(tree.join("f"), ACCESS, &list(6), XattrFlags::empty()) {
        Err(Errno::NOTSUP) => {
            println!("skipped: the file system has no access control lists");
            return None;
        }
        set => set.unwrap(),
    }
    for name in [ACCESS, DEFAULT] {
        setxattr(tree.join("d"), name, &list(7), XattrFlags::empty()).unwrap();
    }
    Some(home)
}

#[test]
fn an_undo_gives_back_the_lists_of_what_a_step_did_away_with() {
    for script in [
        "rm f",
        "rm -r d",
        "mv f g",
        "rm f && mkdir f",
        "echo more >> f",
        "cp plain new && mv new f",
        "echo x > d/new",
        "chmod 600 f",
        "ln f pair && echo more >> f",
    ] {
        let Some(home) = home(script) else { return };
        let tree = home.dir().join("tree");
        let before = rights(&tree);
        let done = home.tool(["flow.lobster"]);
        assert_eq!(done.code(), 0, "{script}: {done:#?}");
        let after = rights(&tree);
        for (name, (mode, access, _)) in &after {
            // Without a list, the group bits are the group's own.
            let is_tight =
                mode & 0o070 == 0 || access.is_some() || fs::metadata(tree.join(name)).unwrap().is_dir();
            assert!(is_tight, "{script}: {name} {mode:o}");
        }
        if let Some((_, access, _)) = after.get("g") {
            assert_eq!(*access, before["f"].1, "{script}");
        }
        let undone = home.lobster(["undo", "@"]).run();
        assert_eq!(undone.code(), 0, "{script}: {undone:#?}");
        assert_eq!(rights(&tree), before, "{script}");
    }
}

#[test]
fn new_files_have_the_list_that_their_directory_gives_them() {
    let Some(home) = home("echo x > d/new; mkdir d/in; echo y > d/in/deep; echo z > top") else { return };
    let tree = home.dir().join("tree");
    let direct = home.dir().join("tree/d/direct");
    fs::write(&direct, "x").unwrap();
    let wanted = rights(&tree.join("d"))["direct"].clone();
    assert!(wanted.1.is_some());
    let done = home.tool(["flow.lobster"]);
    assert_eq!(done.code(), 0, "{done:#?}");
    let found = rights(&tree.join("d"));
    assert_eq!(found["new"], wanted);
    assert!(found["in"].2.is_some(), "{found:?}");
    assert!(rights(&tree.join("d/in"))["deep"].1.is_some());
    assert_eq!(rights(&tree)["top"].1, None);
}

#[test]
fn a_step_that_changes_a_list_fails_by_name() {
    let script = "python3 -c 'import os; os.setxattr(\"plain\", \"system.posix_acl_access\", os.getxattr(\"f\", \
                  \"system.posix_acl_access\"))'";
    let Some(home) = home(script) else { return };
    let tree = home.dir().join("tree");
    let before = rights(&tree);
    let told = home.tool(["flow.lobster"]);
    if told.code() == 0 || !told.error().contains("posix_acl") {
        // A user namespace that does not know the user 1000 gives no such list.
        println!("skipped: the step could set no list: {told:#?}");
    }
    assert_eq!(rights(&tree), before);
}
