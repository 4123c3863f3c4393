//! A few hundred mutated requests against the real binary: whatever comes in,
//! one envelope comes out. (The parsers' own tests try thousands each.)
//!
//! The seeds hold no command that could harm when mangled.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::home::Home;

const PIPELINES: [&str; 10] = [
    "exec printf '[1,2,3]' | json",
    "exec printf '[{\"a\":1,\"b\":\"x\"},{\"a\":2}]' --json | where a=1 | pick a,b | map --wrap c | head --n 1",
    "exec printf '[3,1,2]' --json | sort --desc | dedupe | approve --prompt 'Go \"on\"?' --limit 2",
    "exec printf '[{\"k\":\"a\"},{\"k\":\"b\"}]' --json | groupBy --key k | table",
    "exec printf '{}' --json | template --text '{{a.b|default:x}} {{n}}'",
    "exec printf '{\"x\":[1]}' --json | state.set key",
    "state.get key | ask --prompt 'Which?' --schema '{\"type\":\"string\"}'",
    "exec printf x | exec cat --stdin json | diff.last --key k",
    "commands.list | where name=exec | pick name,description",
    "exec printf '[{\"date\":\"2024-01-02\"}]' --json | map --unwrap date",
];

const WORKFLOWS: [&str; 5] = [
    "name: a\nargs:\n  n: { default: 3, type: integer }\nsteps:\n  - id: a\n    pipeline: exec printf '[1,2]' --json | head --n 1\n  - id: b\n    when: $a.json == 1 && !($a.skipped) || \"x\" != 'y'\n    approval: { prompt: Sure?, items: [1, {x: y}] }\n    stdin: $a.json\n",
    "steps:\n  - id: list\n    pipeline: exec printf '[[1],[2]]' --json\n  - id: each\n    for_each: $list.json\n    batch_size: 1\n    steps:\n      - id: q\n        input:\n          prompt: \"What?\"\n          responseSchema: { type: object, properties: { a: { type: string, pattern: \"^x\" } }, required: [a] }\n",
    "steps:\n  - id: both\n    timeout_ms: 3000\n    parallel:\n      wait: any\n      branches:\n        - id: l\n          pipeline: exec printf l\n        - id: r\n          exec: [printf, r]\n          retry: { max: 2, delay_ms: 1, backoff: exponential, jitter: true }\n          on_error: continue\n",
    "env: &e { A: \"${x} $s.json\" }\nsteps:\n  - id: s\n    exec: [printf, '%s', \"$A\"]\n    env: *e\n    grants: { read: [.], env: [A] }\n    limits: { memory: 64MiB, output: 1_000 }\n",
    "{\"steps\": [{\"id\": \"j\", \"exec\": [\"printf\", \"{\\\"a\\\":[1,2.5e3,null,\\\"\\u00e9\\\"]}\"]}, {\"id\": \"k\", \"stdin\": \"$j.json.a.3\", \"exec\": [\"cat\"]}]}",
];

/// xorshift64*: the same requests in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next()).unwrap_or(0) % end.max(1)
    }
}

/// Pieces that parsers care about; none is a path or a redirection.
const PIECES: [&str; 30] = [
    "|",
    "'",
    "\"",
    "\\",
    "--",
    "=",
    "$",
    "${",
    "}",
    "{",
    "[",
    "]",
    ":",
    "- ",
    "\n",
    "\t",
    "&a ",
    "*a",
    "!",
    "#",
    "\u{0}",
    "\u{feff}",
    "é",
    "🦞",
    "null",
    "-1",
    "1e999",
    "$a.json",
    "%YAML 1.1\n---\n",
    "99999999999999999999",
];

fn mutated(seed: &str, random: &mut Random) -> String {
    let mut text = seed.as_bytes().to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(text.len() + 1);
        match random.below(6) {
            0 => {
                let end = (at + random.below(12)).min(text.len());
                text.drain(at..end);
            }
            1 => {
                let end = (at + random.below(40)).min(text.len());
                let copy = text[at..end].to_vec();
                let to = random.below(text.len() + 1);
                text.splice(to..to, copy);
            }
            2 if at < text.len() => text[at] = u8::try_from(0x20 + random.below(0x5f)).unwrap_or(b' '),
            3 => text.truncate(at),
            _ => {
                let piece = PIECES[random.below(PIECES.len())];
                text.splice(at..at, piece.bytes());
            }
        }
    }
    // A redirection could write somewhere.
    String::from_utf8_lossy(&text).replace(['>', '<', ';', '&', '`'], "_")
}

/// Runs `count` requests on a few threads; `request` makes one and checks its answer.
fn many(count: u64, request: impl Fn(&Home, &mut Random) + Sync) {
    let next = AtomicU64::new(1);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let home = Home::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number > count {
                        return;
                    }
                    let mut random = Random(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                    request(&home, &mut random);
                }
            });
        }
    });
}

#[test]
fn any_pipeline_text_is_answered_with_one_envelope() {
    many(150, |home, random| {
        let text = mutated(PIPELINES[random.below(PIPELINES.len())], random).replace('\0', "");
        // An empty text is a request for help, one that begins with `-` an option.
        let text =
            if text.trim().is_empty() || text.starts_with('-') { "exec true".to_owned() } else { text };
        home.tool([&text]).envelope();
    });
}

#[test]
fn any_workflow_file_is_answered_with_one_envelope() {
    many(200, |home, random| {
        home.write("flow.lobster", mutated(WORKFLOWS[random.below(WORKFLOWS.len())], random));
        let answer = home.tool(["flow.lobster"]);
        let envelope = answer.envelope();
        for request in ["requiresApproval", "requiresInput"] {
            if let Some(token) = envelope[request]["resumeToken"].as_str() {
                home.lobster(["resume", "--token", token, "--response-json", "{\"a\":\"x\"}"])
                    .run()
                    .envelope();
                home.lobster(["resume", "--token", token, "--approve", "yes"]).run().envelope();
            }
        }
        let checked = home.lobster(["check", "flow.lobster"]).run();
        assert!(!checked.stderr.contains("panicked") && checked.code() <= 1, "{checked:?}");
    });
}

#[test]
fn any_bytes_are_a_workflow_or_an_error() {
    many(60, |home, random| {
        let bytes: Vec<u8> =
            (0..random.below(600)).map(|_| u8::try_from(random.below(256)).unwrap_or(0)).collect();
        home.write("flow.yaml", bytes);
        home.tool(["flow.yaml"]).error();
    });
}

#[test]
fn any_words_for_resume_are_answered_with_one_envelope() {
    let words = [
        "--token",
        "--id",
        "--approve",
        "--cancel",
        "--response-json",
        "yes",
        "no",
        "{}",
        "eyJ2IjoxfQ",
        "x=",
        "--",
        "-",
        "é",
        "--token=",
    ];
    many(60, |home, random| {
        let mut all = vec!["resume"];
        all.extend((0..random.below(5)).map(|_| words[random.below(words.len())]));
        home.lobster(all).run().error();
    });
}
