//! Changes that are isolated from the directory in which they are made.

use std::os::unix::fs::{FileTypeExt, MetadataExt};

use super::confined::{jail, jailed};
use super::*;

#[test]
fn what_a_step_changes_in_a_layer_stays_there() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (root, upper, work) = (dir.path().join("a,b:c"), dir.path().join("upper"), dir.path().join("work"));
    for made in [&root, &upper, &work, &root.join("d")] {
        fs::create_dir(made).unwrap();
    }
    for (name, text) in [("f", "old\n"), ("gone", "x"), ("d/g", "y"), ("kept", "protected\n")] {
        fs::write(root.join(name), text).unwrap();
    }
    let spec = JailSpec {
        layers: vec![Overlay {
            root: root.clone(),
            below: None,
            upper: Some(Upper { dir: upper.clone(), work }),
            copy: None,
        }],
        protect: vec![root.join("kept")],
        ..jail(&root)
    };
    let script = format!(
        "cd '{}' && echo new >> f && rm gone && rm -r d && mkdir d && echo z > d/h && ln -s f l && cat f && \
         ! (echo x > kept) 2>/dev/null",
        root.display()
    );
    let (exit, out, err) = run(&jailed(&script, spec)).unwrap();
    assert_eq!((exit.status, out.as_str()), (ExitStatus::Code(0), "old\nnew\n"), "{err}");
    assert_eq!(exit.enforcement.changes.as_deref(), Some("overlay"));
    assert_eq!(fs::read(root.join("f")).unwrap(), b"old\n");
    assert!(root.join("gone").exists() && root.join("d/g").exists() && !root.join("l").exists());
    assert_eq!(fs::read(upper.join("f")).unwrap(), b"old\nnew\n");
    let gone = fs::symlink_metadata(upper.join("gone")).unwrap();
    assert!(gone.file_type().is_char_device() && gone.rdev() == 0);
}

#[test]
fn a_step_finds_the_changes_that_lie_over_a_directory_and_may_not_change_one_that_it_only_reads() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let made = ["root", "read", "below", "upper", "work", "below_read"].map(|name| dir.path().join(name));
    for path in &made {
        fs::create_dir(path).unwrap();
    }
    let [root, read, below, upper, work, below_read] = made;
    for path in [&root, &read] {
        fs::write(path.join("f"), "old\n").unwrap();
        fs::write(path.join("gone"), "x").unwrap();
    }
    for path in [&below, &below_read] {
        fs::write(path.join("f"), "earlier\n").unwrap();
        let whiteout = rustix::fs::FileType::CharacterDevice;
        let gone = path.join("gone");
        rustix::fs::mknodat(rustix::fs::CWD, &gone, whiteout, rustix::fs::Mode::empty(), 0).unwrap();
    }
    let mut spec = jail(&root);
    spec.read.push(read.clone());
    spec.layers = vec![
        Overlay {
            root: root.clone(),
            below: Some(below),
            upper: Some(Upper { dir: upper.clone(), work }),
            copy: None,
        },
        Overlay { root: read.clone(), below: Some(below_read), upper: None, copy: None },
    ];
    let script = format!(
        "cd '{}' && cat f '{1}/f' && ! ls gone '{1}/gone' 2>/dev/null && echo new >> f && \
         ! (echo x > '{1}/f') 2>/dev/null",
        root.display(),
        read.display()
    );
    let (exit, out, err) = run(&jailed(&script, spec)).unwrap();
    assert_eq!((exit.status, out.as_str()), (ExitStatus::Code(0), "earlier\nearlier\n"), "{err}");
    assert_eq!(fs::read(upper.join("f")).unwrap(), b"earlier\nnew\n");
    assert_eq!(fs::read(root.join("f")).unwrap(), b"old\n");
}
