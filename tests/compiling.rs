//! Compiling is part of a step (invariant C6): generated programs that keep a
//! compiler busy end within their time and a bounded memory, and whoever wants
//! to end lobster meanwhile can.

use std::io::Read;
use std::process::Child;
use std::time::{Duration, Instant};

use crate::home::{Home, wait_until};
use crate::setting::number;

/// Later than this a machine that is busy with other things is not; what is compiled here takes longer.
const LATE: Duration = Duration::from_secs(10);

/// Reproducible choices (SplitMix64).
struct Chance(u64);

impl Chance {
    fn up_to(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % (most + 1)
    }
}

fn leb(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            bytes.push(byte);
            return bytes;
        }
        bytes.push(byte | 0x80);
    }
}

fn section(id: u8, count: u64, content: &[u8]) -> Vec<u8> {
    let body = [leb(count), content.to_vec()].concat();
    [vec![id], leb(body.len() as u64), body].concat()
}

/// A preview-1 command of functions without parameters, each with so many locals of i64.
fn module(functions: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let count = functions.len() as u64;
    let mut code = Vec::new();
    for (locals, body) in functions {
        let function = [vec![1], leb(*locals), vec![0x7e], body.clone(), vec![0x0b]].concat();
        code.extend(leb(function.len() as u64));
        code.extend(function);
    }
    let mut bytes = b"\0asm\x01\0\0\0".to_vec();
    bytes.extend(section(1, 1, &[0x60, 0, 0]));
    bytes.extend(section(3, count, &vec![0; functions.len()]));
    bytes.extend(section(7, 1, b"\x06_start\0\0"));
    bytes.extend(section(10, count, &code));
    bytes
}

/// local.get a; local.get b; i64.add; local.set c
fn mix(locals: u64, at: u64) -> Vec<u8> {
    let [a, b, c] = [at, at.wrapping_mul(7) + 1, at.wrapping_mul(13) + 2].map(|n| leb(n % locals));
    [&[0x20], &a[..], &[0x20], &b[..], &[0x7c, 0x21], &c[..]].concat()
}

/// local.get n; i32.wrap_i64
fn test(locals: u64, at: u64) -> Vec<u8> {
    [vec![0x20], leb(at % locals), vec![0xa7]].concat()
}

/// One program that is hard to compile, of a kind that its number chooses.
fn bomb(seed: u64) -> (&'static str, Vec<u8>) {
    let mut chance = Chance(seed);
    let kind = seed % 6;
    let mut body = Vec::new();
    let uses = |body: &mut Vec<u8>, locals: u64| (0..locals).for_each(|at| body.extend(mix(locals, at)));
    match kind {
        0 => {
            let (loops, locals) = (400 + chance.up_to(600), 500 + chance.up_to(4000));
            body.extend([0x03, 0x40].repeat(loops as usize));
            uses(&mut body, locals);
            body.extend([0x0b].repeat(loops as usize));
            ("loops in one another", module(&[(locals, body)]))
        }
        1 => {
            let (ifs, locals) = (2000 + chance.up_to(12_000), 1000 + chance.up_to(3000));
            for at in 0..ifs {
                body.extend([test(locals, at), vec![0x04, 0x40], mix(locals, at), vec![0x0b]].concat());
            }
            uses(&mut body, locals);
            ("branches after one another", module(&[(locals, body)]))
        }
        2 => {
            let (blocks, locals) = (200 + chance.up_to(700), 200 + chance.up_to(1000));
            body.extend([0x02, 0x40].repeat(blocks as usize));
            for at in 0..600 {
                body.extend([vec![0x02, 0x40], test(locals, at), vec![0x0e], leb(blocks)].concat());
                (0..=blocks).for_each(|target| body.extend(leb(target)));
                body.push(0x0b);
                body.extend(mix(locals, at));
            }
            for at in 0..blocks {
                body.push(0x0b);
                body.extend(mix(locals, at));
            }
            ("tables of branches", module(&[(locals, body)]))
        }
        3 => {
            let locals = 50 + chance.up_to(5000);
            for at in 0.. {
                body.extend(mix(locals, at));
                if body.len() > 3_900_000 {
                    break;
                }
            }
            ("one long function", module(&[(locals, body)]))
        }
        4 => {
            let (functions, locals) = (20_000 + chance.up_to(60_000), 1 + chance.up_to(20));
            (0..20).for_each(|at| body.extend(mix(locals, at)));
            ("many functions", module(&vec![(locals, body); functions as usize]))
        }
        _ => {
            // Each loop jumps back from within each of those inside it.
            let (loops, locals) = (100 + chance.up_to(200), 800 + chance.up_to(2400));
            for at in 0..loops {
                body.extend([0x03, 0x40]);
                for out in 0..at.min(40) {
                    body.extend([test(locals, at + out), vec![0x0d], leb(out)].concat());
                }
                (0..30).for_each(|n| body.extend(mix(locals, at * 31 + n)));
            }
            uses(&mut body, locals);
            body.extend([0x0b].repeat(loops as usize));
            ("jumps back", module(&[(locals, body)]))
        }
    }
}

/// The memory of a process and of those that it started, in bytes.
fn resident(pid: u32) -> u64 {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let pages: u64 = read("statm").split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    let children = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children: Vec<u32> = children
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|pids| pids.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect();
    pages * 4096 + children.into_iter().map(resident).sum::<u64>()
}

struct Watched {
    took: Duration,
    most: u64,
    stderr: String,
    success: bool,
}

/// Waits for the end, and looks at the memory meanwhile.
fn watch(mut child: Child, begun: Instant) -> Watched {
    let mut most = 0;
    let status = loop {
        most = most.max(resident(child.id()));
        match child.try_wait().expect("can be waited for") {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(10)),
        }
        if begun.elapsed() > Duration::from_secs(60) {
            child.kill().expect("can be killed");
        }
    };
    let took = begun.elapsed();
    let mut stderr = String::new();
    let _ = child.stderr.take().map(|mut from| from.read_to_string(&mut stderr));
    Watched { took, most, stderr, success: status.success() }
}

fn start(home: &Home, words: &[&str]) -> Child {
    home.lobster(words).start()
}

/// `LOBSTER_TEST_BOMBS` says how many, `LOBSTER_TEST_BOMB_TIME` how many seconds each may take.
#[test]
fn compile_bombs_end_in_time_and_in_bounded_memory() {
    let count = number("LOBSTER_TEST_BOMBS", 6);
    let seconds = number("LOBSTER_TEST_BOMB_TIME", 1);
    let time = format!("{seconds}s");
    crate::binary::lobster();
    let home = Home::new();
    let mut ends = [0; 4];
    for seed in 0..count {
        let (kind, program) = bomb(seed);
        home.write("bomb.wasm", &program);
        let begun = Instant::now();
        let command = home.lobster(["step", "run", "bomb.wasm"]);
        let limits = command.env("LOBSTER_COMPILE_TIME", &time).env("LOBSTER_COMPILE_MEMORY", "900MiB");
        let ran = watch(limits.start(), begun);
        let what = format!(
            "{seed}, {kind}, {} bytes: {:?}, {} MiB, {}",
            program.len(),
            ran.took,
            ran.most >> 20,
            ran.stderr.trim()
        );
        println!("{what}");
        assert!(ran.took < Duration::from_secs(seconds) + LATE, "{what}");
        assert!(ran.most < 1 << 30, "{what}");
        let end = match &ran.stderr {
            _ if ran.success => 0,
            text if text.contains("too much to compile") => 1,
            text if text.contains("took longer than") => 2,
            text if text.contains("takes more than 900MiB") => 3,
            _ => panic!("{what}"),
        };
        ends[end] += 1;
    }
    println!("compiled, refused, too slow, too large: {ends:?}");
    assert!(ends[1] > 0 && ends[2] + ends[3] > 0, "{ends:?}");
}

/// The program that a reviewer found: 900 loops in one another over 4000 locals.
#[test]
fn the_bomb_of_the_review_is_refused_with_its_figures() {
    let home = Home::new();
    let body =
        [[0x03, 0x40].repeat(900), (0..4000).flat_map(|at| mix(4000, at)).collect(), [0x0b].repeat(900)];
    home.write("bomb.wasm", module(&[(4000, body.concat())]));
    let answer = home.lobster(["step", "run", "bomb.wasm"]).run();
    assert!(answer.stderr.contains("3600000 locals times loops in one function"), "{}", answer.stderr);
}

/// A program that compiles for long and is not refused.
pub(crate) fn slow_program() -> Vec<u8> {
    (0..60).map(bomb).find(|(kind, _)| *kind == "tables of branches").expect("there is one").1
}

fn slow(home: &Home) {
    home.write("slow.wasm", slow_program());
}

#[test]
fn every_way_to_a_component_ends_its_compiling() {
    crate::binary::lobster();
    let home = Home::new();
    slow(&home);
    let step = "steps:\n  - id: a\n    component: slow.wasm\n    timeout_ms: 300\n";
    home.write("flow.lobster", step);
    let late = step.replace("    component: slow.wasm", "    when: $first.json\n    component: slow.wasm");
    home.write("late.lobster", late.replace("steps:\n", "steps:\n  - id: first\n    run: echo true\n"));
    let each = "steps:\n  - id: list\n    js: '[1, 2]'\n  - id: all\n    for_each: $list.json\n    steps:\n      - id: a\n        component: slow.wasm\n        timeout_ms: 300\n";
    home.write("each.lobster", each);
    // A program that was refused is compiled again under a higher limit.
    for (limit, words) in (300..).step_by(10).zip([
        &["run", "--mode", "tool", "flow.lobster"][..],
        &["run", "--mode", "tool", "late.lobster"],
        &["run", "--mode", "tool", "each.lobster"],
        &["run", "--mode", "tool", "component ./slow.wasm"],
        &["step", "run", "slow.wasm"],
        &["step", "compile", "slow.wasm"],
    ]) {
        let begun = Instant::now();
        let answer = home.lobster(words).env("LOBSTER_COMPILE_TIME", format!("{limit}ms")).run();
        assert!(begun.elapsed() < LATE, "{words:?}: {:?}", begun.elapsed());
        let said = format!("{}{}", answer.stdout, answer.stderr);
        let by_compiler = said.contains(&format!("compiling the program took longer than {limit}ms"));
        // The time of the step itself ends it as well, and the error names the way out.
        let by_step =
            said.contains("timed out after 300ms; it was being compiled, which `lobster step compile");
        assert!(by_compiler || by_step, "{words:?}: {said}");
    }
}

#[test]
fn a_refusal_is_remembered_until_the_program_is_compiled_ahead() {
    let home = Home::new();
    // Large enough that its compiler is seen at work.
    let rest =
        "(func (param i32) (result i32) local.get 0 local.get 0 i32.mul i32.const 7 i32.rem_s)".repeat(5000);
    let program = format!(r#"(module (memory (export "memory") 1) (func (export "_start")) {rest})"#);
    home.write("a.wasm", wat::parse_str(program).unwrap());
    let run = || home.lobster(["step", "run", "a.wasm"]).env("LOBSTER_COMPILE_MEMORY", "1MiB").run();
    let first = run();
    assert!(
        first.stderr.contains("compiling the program takes more than 1MiB of memory"),
        "{}",
        first.stderr
    );
    assert_eq!(run().stderr, first.stderr);
    // The note answers, not the compiler.
    let code = home.state().join("store/code");
    let notes = || -> Vec<_> {
        let dirs = std::fs::read_dir(&code).unwrap().flatten();
        let files = dirs.filter_map(|dir| std::fs::read_dir(dir.path()).ok()).flatten().flatten();
        files
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "refused"))
            .collect()
    };
    let note = std::fs::read_to_string(&notes()[0]).unwrap();
    std::fs::write(&notes()[0], note.replace("1048576", "2097152")).unwrap();
    assert!(run().stderr.contains("takes more than 2MiB"), "{}", run().stderr);
    let again = home.lobster(["step", "compile", "a.wasm", "--memory", "1MiB"]).run();
    assert!(again.stderr.contains("takes more than 1MiB"), "{}", again.stderr);
    let ahead = home.lobster(["step", "compile", "a.wasm", "--memory", "1GiB", "--timeout", "1m"]).run();
    assert!(ahead.status.success(), "{}", ahead.stderr);
    assert!(notes().is_empty() && run().status.success());
    for (name, value) in [("LOBSTER_COMPILE_MEMORY", "much"), ("LOBSTER_COMPILE_TIME", "20")] {
        let refused = home.lobster(["step", "run", "a.wasm"]).env(name, value).run();
        assert!(refused.stderr.contains(name), "{}", refused.stderr);
    }
}

/// Whether the process has a handler for SIGTERM (`SigCgt` of proc(5)).
fn handles_sigterm(child: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("proc tells it");
    u64::from_str_radix(caught.trim(), 16).unwrap() >> (rustix::process::Signal::TERM.as_raw() - 1) & 1 == 1
}

#[test]
fn a_signal_ends_compiling_and_a_second_one_ends_everything() {
    crate::binary::lobster();
    let home = Home::new();
    slow(&home);
    let signal = |child: &Child| {
        let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("is there");
    };
    let child = start(&home, &["step", "run", "slow.wasm"]);
    wait_until("it handles signals", || handles_sigterm(&child));
    std::thread::sleep(Duration::from_millis(400));
    let begun = Instant::now();
    signal(&child);
    let ended = watch(child, begun);
    assert!(!ended.success && ended.took < LATE, "{:?} {}", ended.took, ended.stderr);
    assert!(ended.stderr.contains("SIGTERM"), "{}", ended.stderr);
    // Reading blocks, and only its source could end that.
    let read = r#"(module
        (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (func (export "_start") (i32.store (i32.const 4) (i32.const 8))
            (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 16)))))"#;
    home.write("read.wasm", wat::parse_str(read).unwrap());
    let child = home.lobster(["step", "run", "read.wasm", "--input", "-"]).start_piped();
    wait_until("it handles signals", || handles_sigterm(&child));
    std::thread::sleep(Duration::from_millis(1000));
    signal(&child);
    std::thread::sleep(Duration::from_millis(200));
    let begun = Instant::now();
    signal(&child);
    // Keeps its input open.
    let mut child = child;
    let open = child.stdin.take();
    let ended = watch(child, begun);
    drop(open);
    assert!(ended.took < LATE, "{:?}", ended.took);
}

/// What does not run is said in the same words wherever a program is named.
#[test]
fn what_a_program_uses_that_does_not_run_is_named_everywhere() {
    let home = Home::new();
    for (name, fields, said) in [
        ("shared.wasm", "(memory 1 1 shared)", "threads"),
        ("gc.wasm", "(type (struct (field i32)))", "garbage collection"),
        ("old.wasm", "(tag $e) (func try throw $e catch $e end)", "legacy exceptions"),
        (
            "wide.wasm",
            "(func (param i64) (result i64 i64) (i64.mul_wide_u (local.get 0) (local.get 0)))",
            "wide arithmetic",
        ),
    ] {
        let module = wat::parse_str(format!(r#"(module {fields} (func (export "_start")))"#)).unwrap();
        home.write(name, module);
        home.write("flow.lobster", format!("steps:\n  - id: a\n    component: {name}\n"));
        let said = format!("the program uses {said}, which this host does not run");
        for words in [
            &["step", "inspect", name][..],
            &["step", "run", name],
            &["check", "flow.lobster"],
            &["run", "--mode", "tool", "flow.lobster"],
            &["run", "--mode", "tool", &format!("component ./{name}")],
        ] {
            let answer = home.lobster(words).run();
            let text = format!("{}{}", answer.stdout, answer.stderr);
            assert!(text.contains(&said) && !answer.status.success(), "{words:?}: {text}");
        }
    }
}
