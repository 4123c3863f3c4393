//! Where a file system can share blocks between files, a large file that a step changes is copied nowhere: not into
//! the layer, not into the store, and not back at the commit. Needs root, for a file system of its own.

use std::process::Command;

use crate::home::Home;
use crate::unusable_disks::text;
use crate::{binary, staged::flow};

/// In the working directory: a file of 64 MiB, changed in one place by a staged step, reverted by an undo. Says how
/// many KiB of the disk each of them took.
const SCRIPT: &str =
    "truncate -s 700M image && mkfs.FS -q image >mkfs 2>&1 && mkdir -p disk && mount -o loop image disk || exit 99
    mkdir -p disk/work/tree disk/state && cp flow.lobster disk/work/ && cd disk/work || exit 1
    export LOBSTER_STATE_DIR=$PWD/../state
    used() { sync -f . && df -k --output=used . | tail -n 1; }
    head -c 67108864 /dev/urandom > tree/large && cp tree/large ../before
    used
    \"$L\" run flow.lobster > ../said 2>&1 || cat ../said
    used
    cmp -s tree/large ../before && echo 'not changed'
    \"$L\" undo @ > ../said 2>&1 || cat ../said
    used
    cmp tree/large ../before";

/// More than the store takes for itself, less than a copy.
const MOST: u64 = 24 << 10;

#[test]
fn a_large_file_is_copied_nowhere() {
    for fs in ["btrfs", "xfs"] {
        let home = Home::new();
        home.write("flow.lobster", flow("printf x | dd of=large conv=notrunc bs=1 seek=5000000 status=none"));
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", &SCRIPT.replace("FS", fs)])
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin")
            .env("HOME", home.dir())
            .env("L", binary::lobster())
            .current_dir(home.dir())
            .output()
            .unwrap();
        let said = text(&output);
        if output.status.code() == Some(99) || said.contains("unshare:") {
            eprintln!("no {fs} of its own: {said}");
            continue;
        }
        let used: Vec<u64> = said.lines().map(|line| line.trim().parse().expect(&said)).collect();
        let [before, changed, undone] = used[..] else { panic!("{fs}: {said}") };
        assert!(output.status.success(), "{fs}: {said}");
        assert!(changed < before + MOST && undone < changed + MOST, "{fs}: {said}");
    }
}
