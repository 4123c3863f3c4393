//! What a staged step cannot do on this disk or with these files fails whole, and says what to do.

use std::os::unix::fs::chown;
use std::time::{Duration, Instant};

use crate::staged;

/// More than any disk of a test has free, and no more than ext4, XFS, Btrfs and tmpfs take for a file.
const LENGTH: &str = "12T";

/// A group of nobody in a jail.
const FOREIGN: u32 = 54321;

#[test]
fn a_sparse_file_that_has_no_room_fails_before_it_is_written() {
    let home = staged::home(&format!("truncate -s {LENGTH} huge && echo small > small"));
    let before = staged::tree(&home.dir().join("tree"));
    let begun = Instant::now();
    let answer = home.tool(["flow.lobster"]);
    // A file system that clones files takes no room for it.
    if answer.stdout.contains("truncate: ") || answer.stdout.contains("\"ok\": true") {
        println!("no such file is possible, or all are, here: {answer:?}");
        return;
    }
    let error = answer.error();
    for words in ["is almost full", "bytes are free and 13194139533312 are needed", "LOBSTER_STATE_DIR"] {
        assert!(error.contains(words), "{answer:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(50), "it was not written first");
    assert_eq!(staged::tree(&home.dir().join("tree")), before, "nothing of the step is done");
}

#[test]
fn a_file_of_another_group_is_told_with_what_to_do() {
    let home = staged::home("echo more >> a");
    let file = home.dir().join("tree/a");
    if chown(&file, None, Some(FOREIGN)).is_err() {
        println!("only root gives files to groups that it is not in");
        return;
    }
    let answer = home.tool(["flow.lobster"]);
    // Where the kernel lays no layer the step works on a copy, in which all is its own.
    if answer.stdout.contains("\"ok\": true") {
        return;
    }
    let error = answer.error();
    assert!(
        error.contains("belongs to another user or to another group") && error.contains("chgrp"),
        "{answer:?}"
    );
    assert_eq!(home.read("tree/a"), "one\ntwo\n");
}
