//! Generated programs that make the host do or hold much: files, names, buffers, links, listings,
//! random bytes. Each ends within its time and uses little.

use std::time::{Duration, Instant};

use super::preview1::program;
use super::{load, run};
use crate::DirGrant;

/// Memory of this process, in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// A module that makes calls in an endless loop; `$n` counts the rounds. Names are made at 8192.
fn bomb(seed: u64) -> (&'static str, Vec<u8>) {
    let spread = |least: u64, most: u64| least + seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (most - least);
    let long = spread(1, 4000);
    // Digits of the round and then letters, `long` bytes in all, at least four.
    let name = "(i32.store (i32.const 8192) (i32.or (i32.const 0x61616161)
        (i32.or (i32.and (local.get $n) (i32.const 0x0f)) (i32.or
            (i32.shl (i32.and (local.get $n) (i32.const 0xf0)) (i32.const 4)) (i32.or
            (i32.shl (i32.and (local.get $n) (i32.const 0xf00)) (i32.const 8))
            (i32.shl (i32.and (local.get $n) (i32.const 0xf000)) (i32.const 12)))))))";
    let open = "(drop (call $path_open (i32.const 3) (i32.const 0) (i32.const 8192) (i32.const 4) (i32.const 1) (i64.const 66) (i64.const 0) (i32.const 0) (i32.const 64)))";
    let (kind, body) = match seed % 8 {
        0 => (
            "files far apart",
            format!(
                "{open} (i32.store (i32.const 72) (i32.const 8192)) (i32.store (i32.const 76) (i32.const 1))
                (drop (call $fd_pwrite (i32.load (i32.const 64)) (i32.const 72) (i32.const 1)
                    (i64.mul (i64.extend_i32_u (local.get $n)) (i64.const {})) (i32.const 80)))",
                spread(1, 1 << 32)
            ),
        ),
        1 => (
            "buffers",
            format!(
                "(drop (call $fd_pread (i32.const 3) (i32.const 8192) (i32.const {}) (i64.const 0) (i32.const 64)))",
                spread(1000, 120_000)
            ),
        ),
        2 => (
            "links",
            format!(
                "{name} (drop (call $path_symlink (i32.const 16384) (i32.const {long}) (i32.const 3) (i32.const 8192) (i32.const 4)))"
            ),
        ),
        3 => (
            "directories in one another",
            format!(
                "(drop (call $path_create_directory (if (result i32) (local.get $n) (then (i32.load (i32.const 64))) (else (i32.const 3)))
                    (i32.const 16384) (i32.const {long})))
                (drop (call $path_open (if (result i32) (local.get $n) (then (i32.load (i32.const 64))) (else (i32.const 3)))
                    (i32.const 0) (i32.const 16384) (i32.const {long}) (i32.const 2) (i64.const 0) (i64.const 0) (i32.const 0) (i32.const 64)))"
            ),
        ),
        4 => ("random bytes", "(drop (call $random_get (i32.const 65536) (i32.const 900000)))".to_owned()),
        5 => ("open files", format!("{name} {open}")),
        6 => (
            "listings",
            format!(
                "{name} (drop (call $path_create_directory (i32.const 3) (i32.const 8192) (i32.const 4)))
                (drop (call $path_open (i32.const 3) (i32.const 0) (i32.const 4128) (i32.const 1) (i32.const 2) (i64.const 0) (i64.const 0) (i32.const 0) (i32.const 64)))
                (drop (call $fd_readdir (i32.load (i32.const 64)) (i32.const 65536) (i32.const {}) (i64.const 0) (i32.const 72)))",
                spread(100, 900_000)
            ),
        ),
        _ => (
            "events",
            format!("(drop (call $poll_oneoff (i32.const 65536) (i32.const 65536) (i32.const {}) (i32.const 64)))", spread(5000, 18_000)),
        ),
    };
    let fill = "(memory.fill (i32.const 8192) (i32.const 97) (i32.const 16384))";
    let body = format!(
        "(block (result i32) {fill} (loop $again {body} (local.set $n (i32.add (local.get $n) (i32.const 1))) (br $again)) (i32.const 0))"
    );
    (kind, program(16, &body))
}

/// `LOBSTER_TEST_BOMBS` sets the number of programs.
#[test]
fn host_bombs_end_in_time_and_take_little() {
    let count = std::env::var("LOBSTER_TEST_BOMBS").ok().and_then(|n| n.parse().ok()).unwrap_or(16);
    let mut most = (0, "");
    for seed in 0..count {
        let (kind, module) = bomb(seed);
        let dir = tempfile::tempdir().expect("temporary directory");
        let component = load(&module);
        let (before, begun) = (resident(), Instant::now());
        let ran = run(&component, "{}", |i| {
            i.grants.write = vec![DirGrant { host: dir.path().to_owned(), guest: "/w".into() }];
            i.limits.memory = 1 << 20;
            i.limits.wall = Duration::from_millis(200);
        });
        let (took, name) = (begun.elapsed(), ran.name());
        let what = format!("{seed}, {kind}: {name} after {took:?}");
        println!("{what}");
        assert!(["timeout", "files-limit", "out-of-fuel"].contains(&name), "{what}");
        assert!(took < Duration::from_millis(4200), "{what}");
        most = most.max((resident().saturating_sub(before), kind));
        assert!(most.0 < 1 << 30, "{what}: {} MiB", most.0 >> 20);
        assert_eq!(std::fs::read_dir(dir.path()).expect("lists").count(), 0, "{what}");
    }
    println!("at most {} MiB: {}", most.0 >> 20, most.1);
}
