//! Details of preview 1 that the official test suite checks, call by call.

use std::fs;
use std::io::Read;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::Rng;

use super::{Ran, load, run};
use crate::host::random::Seeded;
use crate::{DirGrant, Input};

const BADF: i32 = 8;
const EXIST: i32 = 20;
const INVAL: i32 = 28;
const NAMETOOLONG: i32 = 37;
const NOENT: i32 = 44;
const NOTDIR: i32 = 54;
const ISDIR: i32 = 31;
const NOTSOCK: i32 = 57;
const NOTSUP: i32 = 58;

/// Calls of the programs here, with their parameters.
const CALLS: [(&str, &str); 22] = [
    ("fd_allocate", "i32 i64 i64"),
    ("fd_fdstat_get", "i32 i32"),
    ("fd_filestat_get", "i32 i32"),
    ("fd_filestat_set_times", "i32 i64 i64 i32"),
    ("fd_pread", "i32 i32 i32 i64 i32"),
    ("fd_pwrite", "i32 i32 i32 i64 i32"),
    ("fd_read", "i32 i32 i32 i32"),
    ("fd_readdir", "i32 i32 i32 i64 i32"),
    ("fd_seek", "i32 i64 i32 i32"),
    ("fd_write", "i32 i32 i32 i32"),
    ("path_create_directory", "i32 i32 i32"),
    ("path_filestat_get", "i32 i32 i32 i32 i32"),
    ("path_filestat_set_times", "i32 i32 i32 i32 i64 i64 i32"),
    ("path_open", "i32 i32 i32 i32 i32 i64 i64 i32 i32"),
    ("path_symlink", "i32 i32 i32 i32 i32"),
    ("path_unlink_file", "i32 i32 i32"),
    ("poll_oneoff", "i32 i32 i32 i32"),
    ("random_get", "i32 i32"),
    ("sock_accept", "i32 i32 i32"),
    ("sock_recv", "i32 i32 i32 i32 i32 i32"),
    ("sock_send", "i32 i32 i32 i32 i32"),
    ("sock_shutdown", "i32 i32"),
];

/// Runs `body`, which leaves a number that becomes the exit code. Memory holds "target/" at 4096 and
/// "link" at 4112; descriptor 3 is a directory that may be written to.
pub(super) fn program(pages: u32, body: &str) -> Vec<u8> {
    let imports: String = CALLS
        .iter()
        .map(|(name, params)| {
            format!(
                r#"(import "wasi_snapshot_preview1" "{name}" (func ${name} (param {params}) (result i32)))"#
            )
        })
        .collect();
    let wat = format!(
        r#"(module {imports}
        (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
        (memory (export "memory") {pages})
        (data (i32.const 4096) "target/") (data (i32.const 4112) "link") (data (i32.const 4128) ".")
        (func (export "_start") (local $n i32) (call $exit {body})))"#
    );
    wat::parse_str(&wat).unwrap_or_else(|error| panic!("{error}\n{wat}"))
}

fn ran(body: &str) -> (Ran, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("temporary directory");
    fs::write(dir.path().join("file"), "file").expect("writes");
    let grant = DirGrant { host: dir.path().to_owned(), guest: "/w".into() };
    let ran = run(&load(&program(4, body)), "{}", |i| i.grants.write = vec![grant]);
    (ran, dir)
}

fn code(body: &str) -> i32 {
    ran(body).0.outcome().exit_code
}

#[test]
fn details_of_the_official_suite() {
    let c = |n: u64| format!("(i32.const {n})");
    let l = |n: u64| format!("(i64.const {n})");
    let call = |name: &str, args: &[String]| format!("(call ${name} {})", args.join(" "));
    // An invalid descriptor is reported before the buffers are read, of which there are none.
    for name in ["fd_read", "fd_write"] {
        assert_eq!(code(&call(name, &[c(77), c(0), c(0), c(8)])), BADF, "{name}");
    }
    for name in ["fd_pread", "fd_pwrite"] {
        assert_eq!(code(&call(name, &[c(77), c(0), c(0), l(0), c(8)])), BADF, "{name}");
    }
    for (fd, expected) in [(77, BADF), (3, BADF), (1, BADF)] {
        assert_eq!(code(&call("fd_allocate", &[c(fd), l(0), l(8)])), expected, "{fd}");
    }
    let opened = |name: (u64, u64), flags: u64, rights: u64| {
        call("path_open", &[c(3), c(0), c(name.0), c(name.1), c(flags), l(rights), l(0), c(0), c(64)])
    };
    let target = (4096, 6);
    let file = format!("(i32.add {} {})", opened(target, 1, 64), call("fd_allocate", &[c(4), l(0), l(8)]));
    assert_eq!(code(&file), NOTSUP);
    // The rights of a directory exclude operations that make no sense on it. The remaining rights can
    // be requested when it is opened again.
    let rights = format!(
        "(i32.add {} (i32.and (i32.load (i32.const 72)) (i32.const {})))",
        call("fd_fdstat_get", &[c(3), c(64)]),
        1 << 2 | 1 << 6 | 1 << 19 | 1 << 22
    );
    assert_eq!(code(&rights), 0);
    let again = format!(
        "(i32.add {} (call $path_open (i32.const 3) (i32.const 0) (i32.const 4128) (i32.const 1) (i32.const 0) (i64.load (i32.const 72)) (i64.const 0) (i32.const 0) (i32.const 128)))",
        call("fd_fdstat_get", &[c(3), c(64)])
    );
    assert_eq!(code(&again), 0);
    // Writing to a directory is refused whatever flags are set.
    for flags in [0, 2] {
        assert_eq!(code(&opened((4128, 1), flags, 2 | 64)), ISDIR, "{flags}");
    }
    // No open descriptor is a socket.
    for (name, rest) in [("sock_accept", 2), ("sock_recv", 5), ("sock_send", 4), ("sock_shutdown", 1)] {
        for (fd, expected) in [(77, BADF), (0, NOTSOCK), (3, NOTSOCK)] {
            let args: Vec<_> = std::iter::once(c(fd)).chain((0..rest).map(|_| c(0))).collect();
            assert_eq!(code(&call(name, &args)), expected, "{name} {fd}");
        }
    }
    // Times that contradict each other.
    for flags in [0b0011, 0b1100, 0b1111] {
        let args = [c(3), c(0), c(4096), c(6), l(0), l(0), c(flags)];
        let made = format!("(i32.add {} {})", opened(target, 1, 64), call("path_filestat_set_times", &args));
        assert_eq!(code(&made), INVAL, "{flags:b}");
        let made = format!(
            "(i32.add {} {})",
            opened(target, 1, 64),
            call("fd_filestat_set_times", &[c(4), l(0), l(0), c(flags)])
        );
        assert_eq!(code(&made), INVAL, "{flags:b}");
    }
    // A link may have the name of a directory (with a slash) only if that exists, and then the name is
    // taken.
    let link = |name: (u64, u64)| call("path_symlink", &[c(4112), c(4), c(3), c(name.0), c(name.1)]);
    assert_eq!(code(&link((4096, 7))), NOENT);
    assert_eq!(code(&link(target)), 0);
    let directory = call("path_create_directory", &[c(3), c(4096), c(6)]);
    assert_eq!(code(&format!("(i32.add {directory} {})", link((4096, 7)))), EXIST);
    assert_eq!(code(&format!("(i32.add {} {})", opened(target, 1, 64), link((4096, 7)))), NOTDIR);
    // The times of a link itself.
    let args = [c(3), c(0), c(4096), c(6), l(0), l(1_577_836_800_000_000_000), c(0b0100)];
    let (ran, dir) = ran(&format!("(i32.add {} {})", link(target), call("path_filestat_set_times", &args)));
    assert_eq!(ran.outcome().exit_code, 0);
    let writes = ran.result.expect("runs").writes;
    writes.commit().expect("commits");
    let meta = fs::symlink_metadata(dir.path().join("target")).expect("is there");
    assert_eq!(meta.modified().ok(), Some(std::time::UNIX_EPOCH + Duration::from_secs(1_577_836_800)));
    // `.` in a listing is the directory itself.
    let inode = format!(
        "(i32.add (i32.add {} {}) (i64.ne (i64.load (i32.const 136)) (i64.load (i32.const 1032))))",
        call("fd_filestat_get", &[c(3), c(128)]),
        call("fd_readdir", &[c(3), c(1024), c(1000), l(0), c(64)])
    );
    assert_eq!(code(&inode), 0);
}

#[test]
fn a_call_is_bounded_in_buffers_events_and_paths() {
    let most =
        "(call $fd_pread (i32.const 3) (i32.const 8192) (i32.const COUNT) (i64.const 0) (i32.const 64))";
    // A directory cannot be read; this is reported after the number of buffers is checked.
    assert_eq!(code(&most.replace("COUNT", "1025")), INVAL);
    assert_eq!(code(&most.replace("COUNT", "1024")), 0);
    let events = "(call $poll_oneoff (i32.const 0) (i32.const 0) (i32.const 10001) (i32.const 64))";
    assert_eq!(code(events), INVAL);
    let path = "(call $path_unlink_file (i32.const 3) (i32.const 0) (i32.const 4097))";
    assert_eq!(code(path), NAMETOOLONG);
}

#[test]
fn random_bytes_are_the_same_in_parts() {
    let body = "(block (result i32)
        (i32.store (i32.const 64) (i32.const 65536)) (i32.store (i32.const 68) (i32.const 3000000))
        (i32.add (call $random_get (i32.const 65536) (i32.const 3000000))
            (call $fd_write (i32.const 1) (i32.const 64) (i32.const 1) (i32.const 8))))";
    let kept = Arc::new(Mutex::new(Vec::new()));
    let ran = run(&load(&program(64, body)), "{}", |i| i.output = Box::new(kept.clone()));
    assert_eq!(ran.outcome().exit_code, 0);
    let mut expected = vec![0; 3_000_000];
    Seeded::new(&[0; 32], "secure").fill_bytes(&mut expected);
    assert!(*kept.lock().expect("is kept") == expected);
    // The time runs out during the call.
    let begun = std::time::Instant::now();
    let ran = run(
        &load(&program(16_000, "(call $random_get (i32.const 65536) (i32.const 1000000000))")),
        "{}",
        |i| {
            i.limits.memory = 2 << 30;
            i.limits.wall = Duration::from_millis(100);
        },
    );
    assert_eq!(ran.name(), "timeout");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

struct Slow;

impl Read for Slow {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        std::thread::sleep(Duration::from_millis(60));
        Ok(0)
    }
}

#[test]
fn a_run_that_ends_too_late_is_a_timeout() {
    // Nothing after the call checks the time.
    let body = "(call $fd_read (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 8))";
    let body = format!("(block (result i32) (i32.store (i32.const 68) (i32.const 9)) {body})");
    let module = load(&program(1, &body));
    let ran = run(&module, "{}", |i| {
        i.input = Input::Bytes(Box::new(Slow));
        i.limits.wall = Duration::from_millis(30);
    });
    assert_eq!(ran.name(), "timeout");
}
