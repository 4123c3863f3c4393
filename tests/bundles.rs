//! Bundles through the binary: carried elsewhere, signed, damaged.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use serde_json::Value;

use crate::home::{Answer, Home, wait};
use crate::unusable_disks::{in_a_namespace, text};

const WORKFLOW: &str = "
name: small
steps:
  - id: say
    run: printf '[1,2]'
  - id: sum
    js: input[0] + input[1]
    stdin: $say.json
";

fn run_of(home: &Home) -> String {
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    runs[0]["id"].as_str().unwrap().to_owned()
}

fn exported(extra: &[&str]) -> Home {
    let home = Home::new();
    home.write("flow.lobster", WORKFLOW).tool(["flow.lobster"]).output();
    assert_eq!(home.lobster(["bundle", "keygen", "key.pem"]).run().code(), 0);
    let run = run_of(&home);
    let mut words = vec!["bundle", "export", run.as_str(), "-o", "run.bundle"];
    words.extend(extra);
    let answer = home.lobster(words).run();
    assert_eq!(answer.code(), 0, "{answer:?}");
    home
}

fn says(answer: &Answer, code: i32, text: &str) {
    assert_eq!(answer.code(), code, "{answer:?}");
    let said = format!("{}{}", answer.stdout, answer.stderr);
    assert!(said.contains(text) && !said.contains("panicked"), "{text}: {answer:?}");
}

#[test]
fn a_signed_bundle_verifies_by_its_key_alone() {
    let home = exported(&["--sign", "key.pem"]);
    says(&home.lobster(["bundle", "verify", "run.bundle", "--key", "key.pem.pub"]).run(), 0, "signed");
    says(&home.lobster(["bundle", "verify", "run.bundle"]).run(), 0, "--key checks");
    assert_eq!(home.lobster(["bundle", "keygen", "other.pem"]).run().code(), 0);
    says(
        &home.lobster(["bundle", "verify", "run.bundle", "--key", "other.pem.pub"]).run(),
        1,
        "is signed by ed25519:",
    );
    says(&home.lobster(["bundle", "keygen", "key.pem"]).run(), 2, "cannot write the key");
    says(
        &home.lobster(["bundle", "verify", "run.bundle", "--key", "key.pem"]).run(),
        2,
        "not an ed25519 public key",
    );
    says(
        &home.lobster(["bundle", "verify", "run.bundle", "--key", "gone.pem"]).run(),
        2,
        "cannot read the key",
    );

    let run = run_of(&home);
    let wrong = home.lobster(["bundle", "export", &run, "-o", "x", "--sign", "key.pem.pub"]).run();
    says(&wrong, 2, "not an ed25519 private key");
    assert!(!home.dir().join("x").exists());
    assert_eq!(home.lobster(["bundle", "export", &run, "-o", "plain.bundle"]).run().code(), 0);
    says(
        &home.lobster(["bundle", "verify", "plain.bundle", "--key", "key.pem.pub"]).run(),
        1,
        "is not signed",
    );
    says(
        &home.lobster(["bundle", "import", "plain.bundle", "--key", "key.pem.pub"]).run(),
        1,
        "is not signed",
    );

    let mut bytes = std::fs::read(home.dir().join("run.bundle")).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    home.write("bad.bundle", &bytes);
    says(&home.lobster(["bundle", "verify", "bad.bundle"]).run(), 1, "the signature does not match");
    bytes[last] ^= 1;
    bytes[200] ^= 1;
    home.write("bad.bundle", &bytes);
    says(&home.lobster(["bundle", "verify", "bad.bundle", "--key", "key.pem.pub"]).run(), 1, "the manifest");
}

#[test]
fn openssl_keys_and_signatures_are_ours() {
    let home = exported(&["--sign", "key.pem"]);
    let openssl = |words: &[&str]| {
        Command::new("openssl")
            .args(words)
            .current_dir(home.dir())
            .output()
            .is_ok_and(|done| done.status.success())
    };
    if !openssl(&["genpkey", "-algorithm", "ed25519", "-out", "o.pem"]) {
        eprintln!("no openssl with ed25519 here");
        return;
    }
    assert!(openssl(&["pkey", "-in", "o.pem", "-pubout", "-out", "o.pub"]));
    let run = run_of(&home);
    assert_eq!(home.lobster(["bundle", "export", &run, "-o", "o.bundle", "--sign", "o.pem"]).run().code(), 0);
    says(&home.lobster(["bundle", "verify", "o.bundle", "--key", "o.pub"]).run(), 0, "signed");
    // And the other way round: openssl reads our keys and checks our signature.
    assert!(openssl(&["pkey", "-in", "key.pem", "-pubout", "-out", "again.pub"]));
    assert_eq!(home.read("again.pub"), home.read("key.pem.pub"));
    let bytes = std::fs::read(home.dir().join("run.bundle")).unwrap();
    home.write("head", &bytes[..48]).write("signature", &bytes[bytes.len() - 64..]);
    assert!(openssl(&[
        "pkeyutl",
        "-verify",
        "-pubin",
        "-inkey",
        "key.pem.pub",
        "-rawin",
        "-in",
        "head",
        "-sigfile",
        "signature",
    ]));
}

#[test]
fn a_bundle_needs_nothing_else() {
    let home = exported(&[]);
    let there = Home::new();
    there.write("run.bundle", std::fs::read(home.dir().join("run.bundle")).unwrap());
    says(&there.lobster(["bundle", "verify", "run.bundle"]).run(), 0, "the same: small");
    assert_eq!(there.lobster(["bundle", "import", "run.bundle"]).run().code(), 0);
    says(&there.lobster(["bundle", "import", "run.bundle"]).run(), 1, "already in this store");
    says(&there.lobster(["replay", &run_of(&there)]).run(), 0, "1 computed again, 1 answered");
    there.write("text", "hello");
    says(&there.lobster(["bundle", "verify", "text"]).run(), 1, "not a lobster bundle");
}

#[test]
fn a_bundle_that_is_not_replayed_is_taken_in_on_request_alone() {
    let home = exported(&[]);
    let there = Home::new();
    there.write("run.bundle", std::fs::read(home.dir().join("run.bundle")).unwrap());
    // Whoever can write there could have others run their code.
    let code = there.state().join("store/code");
    std::fs::create_dir_all(&code).unwrap();
    std::fs::set_permissions(&code, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let import = |words: &[&str]| there.lobster(["bundle", "import", "run.bundle"].iter().chain(words)).run();
    let refused = import(&[]);
    says(&refused, 1, "cannot be replayed here");
    says(&refused, 1, "--no-replay` imports it nevertheless");
    assert_eq!(there.lobster(["runs", "--json"]).run().stdout.trim(), "[]");
    says(&import(&["--no-replay"]), 0, "took in run");
    says(&import(&["--no-replay"]), 1, "already in this store");
}

#[test]
fn a_bundle_cut_short_is_refused_and_nothing_of_it_stays() {
    let home = exported(&[]);
    let bytes = std::fs::read(home.dir().join("run.bundle")).unwrap();
    let there = Home::new();
    for len in [0, 10, 16, 40, 56, 57, 500, bytes.len() / 2, bytes.len() - 1] {
        there.write("cut", &bytes[..len]);
        let why = if len < 16 { "not a lobster bundle" } else { "cut off" };
        says(&there.lobster(["bundle", "verify", "cut"]).run(), 1, why);
        says(&there.lobster(["bundle", "import", "cut"]).run(), 1, why);
    }
    assert_eq!(there.lobster(["runs", "--json"]).run().stdout.trim(), "[]");
    there.write("whole", &bytes);
    assert_eq!(there.lobster(["bundle", "import", "whole"]).run().code(), 0);
    assert_eq!(there.lobster(["store", "verify"]).run().code(), 0);
}

#[test]
fn a_bundle_verifies_where_nothing_can_be_written() {
    let home = exported(&[]);
    let answer =
        home.lobster(["bundle", "verify", "run.bundle"]).env("LOBSTER_STATE_DIR", "/proc/nope").run();
    says(&answer, 0, "the same: small");
    says(&answer, 0, "1 computed again");
}

#[test]
fn what_this_machine_fails_at_is_no_difference() {
    let home = exported(&[]);
    // Whoever can write there could have others run their code.
    let code = home.dir().join("open/store/code");
    std::fs::create_dir_all(&code).unwrap();
    std::fs::set_permissions(&code, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let answer = home
        .lobster(["bundle", "verify", "run.bundle"])
        .env("LOBSTER_STATE_DIR", home.dir().join("open"))
        .run();
    says(&answer, 1, "cannot be replayed here");
    assert!(answer.stderr.contains("code cache") && !answer.stdout.contains("not the same"), "{answer:?}");
}

#[test]
fn nothing_but_a_bundle_is_replaced_and_links_are_followed() {
    let home = exported(&[]);
    let run = run_of(&home);
    let export = |to: &str| home.lobster(["bundle", "export", &run, "-o", to]).run();
    let key = home.read("key.pem");
    says(&export("key.pem"), 2, "is not a bundle");
    assert_eq!(home.read("key.pem"), key);
    assert_eq!(home.lobster(["bundle", "export", &run, "-o", "key.pem", "--force"]).run().code(), 0);
    assert!(home.read("key.pem").is_empty(), "no text any more");
    says(&home.lobster(["bundle", "verify", "key.pem"]).run(), 0, "intact");
    assert_eq!(export("run.bundle").code(), 0, "a bundle is replaced by a bundle");

    let link = home.dir().join("link");
    std::os::unix::fs::symlink("run.bundle", &link).unwrap();
    assert_eq!(export("link").code(), 0);
    assert!(link.is_symlink());
    says(&home.lobster(["bundle", "verify", "run.bundle"]).run(), 0, "intact");
    std::os::unix::fs::symlink("gone", home.dir().join("nowhere")).unwrap();
    says(&export("nowhere"), 1, "a link to a missing file");
    assert!(home.dir().join("nowhere").is_symlink());
    // What a link to a device leads to takes the bytes; the link stays.
    let device = home.dir().join("device");
    std::os::unix::fs::symlink("/dev/null", &device).unwrap();
    assert_eq!(export("device").code(), 0);
    assert!(device.is_symlink());
    says(&export("."), 1, "cannot write");

    let answer = export("-");
    assert!(answer.code() == 0 && answer.stdout.starts_with("lobster bundle\n"), "{answer:?}");
    assert!(answer.stderr.contains("wrote run"), "{answer:?}");
}

#[test]
fn half_a_pair_of_keys_is_not_left_behind() {
    let home = Home::new();
    home.write("mine.pem.pub", "somebody's");
    says(&home.lobster(["bundle", "keygen", "mine.pem"]).run(), 2, "cannot write the key");
    assert!(!home.dir().join("mine.pem").exists());
    assert_eq!(home.read("mine.pem.pub"), "somebody's");
}

#[test]
fn what_was_redacted_is_not_missing_where_it_is_taken_in() {
    let (home, there) = (Home::new(), Home::new());
    home.write(
        "flow.lobster",
        "name: r\nsteps:\n  - id: fetch\n    run: printf '%s\\n' '{\"pin\":\"SENSI''TIVE\"}'\n  - id: sum\n    js: input.pin.length\n    stdin: $fetch.json\n  - id: pass\n    run: cat > /dev/null\n    stdin: $fetch.json\n",
    );
    home.tool(["flow.lobster"]).envelope();
    let run = run_of(&home);
    let words = ["bundle", "export", &run, "-o", "b", "--redact", "fetch"];
    says(&home.lobster(words).run(), 0, "also left out, because it contains a copy: action of step sum");
    let bytes = std::fs::read(home.dir().join("b")).unwrap();
    assert!(!String::from_utf8_lossy(&bytes).contains("SENSITIVE"));
    there.write("b", bytes);
    says(
        &there.lobster(["bundle", "verify", "b"]).run(),
        0,
        "not computed: sum, because it needs redacted data",
    );
    assert_eq!(there.lobster(["bundle", "import", "b"]).run().code(), 0);
    says(&there.lobster(["store", "verify"]).run(), 0, "all is well");
    says(&there.lobster(["replay", &run]).run(), 0, "not computed: sum, because it needs redacted data");
}

/// Steps that read what is redacted, in every way, and steps that do not.
const REDACTED: &str = r#"
name: red
steps:
  - { id: fetch, run: 'echo "payload-$(date +%N%s)-SEC"' }
  - { id: js, js: input.length, stdin: $fetch.stdout }
  - { id: native, run: wc -c, stdin: $fetch.stdout }
  - { id: word, exec: [printf, '%.3s', $fetch.stdout] }
  - { id: done, run: echo done, when: $fetch.stdout != "x" }
  - { id: never, run: echo no, when: $fetch.stdout == "x" }
  - { id: fails, run: 'cat > /dev/null; exit 3', stdin: $fetch.stdout, on_error: continue }
  - { id: pipe, pipeline: head --n 1, stdin: $fetch.stdout }
  - id: both
    parallel:
      branches:
        - { id: left, run: cat, stdin: $fetch.stdout }
        - { id: right, js: 20 + 1 }
  - { id: twice, js: input * 2, stdin: $right.json }
  - { id: list, run: 'printf "[1,2]"' }
  - id: rounds
    for_each: $list.json
    steps:
      - { id: count, run: wc -c, stdin: $fetch.stdout }
      - { id: passed, run: cat, stdin: $fetch.stdout }
      - { id: inner, js: 1 + 1 }
  - { id: of_rounds, js: input.length, stdin: $rounds.json }
  - { id: of_native, js: input + 1, stdin: $native.json }
  - { id: sum, js: 3 + 4 }
"#;

#[test]
fn what_needs_what_was_redacted_ends_as_recorded_and_the_rest_is_compared() {
    let home = Home::new();
    home.write("flow.lobster", REDACTED).tool(["flow.lobster"]).output();
    let run = run_of(&home);
    assert_eq!(home.lobster(["bundle", "export", &run, "-o", "b", "--redact", "fetch"]).run().code(), 0);
    let there = Home::new();
    there.write("b", std::fs::read(home.dir().join("b")).unwrap());
    let said = there.lobster(["bundle", "verify", "b"]).run();
    says(&said, 0, "nothing differs: red, but ");
    assert!(!said.stdout.contains("the same"), "{said:?}");
    let report = there.lobster(["bundle", "verify", "b", "--json"]).run();
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    let replay = &report["replay"];
    let mut steps: Vec<_> =
        replay["unverified"].as_array().unwrap().iter().map(|step| step["step"].as_str().unwrap()).collect();
    steps.sort_unstable();
    assert_eq!(
        steps,
        [
            "both",
            "both/left",
            "done",
            "fails",
            "js",
            "native",
            "never",
            "of_rounds",
            "pipe",
            "rounds",
            "rounds[0]/count",
            "rounds[0]/passed",
            "rounds[1]/count",
            "rounds[1]/passed",
            "word",
        ],
        "{replay:#}"
    );
    // right, twice, inner of both rounds, of_native, sum
    assert_eq!(replay["computed"], 6, "{replay:#}");
    assert_eq!(there.lobster(["bundle", "import", "b"]).run().code(), 0);
    says(&there.lobster(["replay", &run]).run(), 0, "nothing differs: red, but 15 steps were not computed");
}

#[test]
fn an_answer_to_a_question_that_was_redacted_is_taken_as_it_was_given() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "name: asks\nsteps:\n  - { id: fetch, run: 'echo \"payload-$(date +%N%s)-SEC\"' }\n  - { id: ask, approval: { prompt: 'Go?' }, stdin: $fetch.stdout }\n  \
         - { id: go, run: echo gone, when: $ask.approved }\n  - { id: sum, js: 3 + 4 }\n",
    );
    let token = home.tool(["flow.lobster"]).token();
    home.lobster(["resume", "--token", &token, "--approve", "yes"]).run().output();
    let run = run_of(&home);
    assert_eq!(home.lobster(["bundle", "export", &run, "-o", "b", "--redact", "fetch"]).run().code(), 0);
    let said = home.lobster(["bundle", "verify", "b"]).run();
    says(&said, 0, "not computed: ask, because it needs redacted data");
    says(&said, 0, "1 computed again, 2 answered");
}

/// An unfinished run that was imported may still go on where it came from.
#[test]
fn an_imported_run_that_waits_goes_on_in_one_store() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - id: ask\n    approval: Go on?\n  - id: go\n    run: echo gone >> effects\n",
    );
    home.tool(["flow.lobster"]);
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    let run = runs[0]["id"].as_str().unwrap().to_owned();
    home.lobster(["bundle", "export", &run, "-o", "flow.bundle"]).run();
    let other = home.dir().join("other");
    let elsewhere = |words: &[&str]| home.lobster(words).env("LOBSTER_STATE_DIR", &other).run();
    let imported = elsewhere(&["bundle", "import", "flow.bundle"]);
    assert_eq!(imported.code(), 0, "{imported:?}");
    let refused = elsewhere(&["resume", &run]);
    assert!(refused.error().contains("--take-over"), "{refused:?}");
    // Whoever takes it over is asked there.
    let asked = elsewhere(&["resume", &run, "--take-over"]);
    assert!(asked.stdout.contains("needs_approval"), "{asked:?}");
    let token = asked.token();
    elsewhere(&["resume", "--token", &token, "--approve", "yes"]).output();
    assert_eq!(home.read("effects"), "gone\n");
    let again = elsewhere(&["bundle", "import", "flow.bundle"]);
    assert!(again.code() == 1 && again.stderr.contains("and further"), "{again:?}");
    // What went on in both is two records of one run.
    let gates: Value = serde_json::from_str(&home.lobster(["approvals", "--json"]).run().stdout).unwrap();
    home.lobster(["approvals", "approve", gates[0]["id"].as_str().unwrap()]).run().output();
    home.lobster(["bundle", "export", &run, "-o", "other.bundle"]).run();
    let other = elsewhere(&["bundle", "import", "other.bundle"]);
    assert!(
        other.code() == 1 && other.stderr.contains("its record differs from that of the bundle"),
        "{other:?}"
    );
}

#[test]
fn a_run_that_was_taken_in_while_it_waited_is_continued_by_its_later_record() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - id: ask\n    approval: Go on?\n  - id: go\n    run: echo gone >> effects\n",
    );
    let token = home.tool(["flow.lobster"]).token();
    let run = run_of(&home);
    home.lobster(["bundle", "export", &run, "-o", "waits.bundle"]).run();
    home.lobster(["resume", "--token", &token, "--approve", "yes"]).run().output();
    home.lobster(["bundle", "export", &run, "-o", "over.bundle"]).run();
    let other = home.dir().join("other");
    let elsewhere = |words: &[&str]| home.lobster(words).env("LOBSTER_STATE_DIR", &other).run();
    let import = |file: &str| elsewhere(&["bundle", "import", file]);
    assert_eq!(import("waits.bundle").code(), 0);
    let known = import("waits.bundle");
    assert!(known.code() == 1 && known.stderr.contains("already in this store"), "{known:?}");
    let continued = import("over.bundle");
    assert_eq!(continued.code(), 0, "{continued:?}");
    let records = |answer: Answer| answer.stdout;
    let here = records(home.lobster(["show", &run, "--json"]).run());
    assert_eq!(records(elsewhere(&["show", &run, "--json"])), here);
    assert_eq!(elsewhere(&["replay", &run]).code(), 0);
    for words in [&["store", "verify"][..], &["audit", "verify"]] {
        let sound = elsewhere(words);
        assert_eq!(sound.code(), 0, "{sound:?}");
    }
    let earlier = import("waits.bundle");
    assert!(earlier.code() == 1 && earlier.stderr.contains("and further"), "{earlier:?}");
    // Where it began it is not a copy, so nothing of it is replaced.
    let own = home.lobster(["bundle", "import", "over.bundle"]).run();
    assert!(own.code() == 1 && own.stderr.contains("already in this store"), "{own:?}");
    let undecided = elsewhere(&["resume", &run]);
    assert!(!format!("{undecided:?}").contains("--take-over"), "{undecided:?}");
}

/// A run of some steps that are computed, as a bundle.
fn many_steps() -> (Home, String) {
    let home = Home::new();
    let step =
        |n: usize| format!("  - id: s{n}\n    js: \"let x = 0; while (x < 100000) x++; return x + {n}\"\n");
    let steps: String = (0..12).map(step).collect();
    home.write("flow.lobster", format!("name: many\nsteps:\n{steps}")).tool(["flow.lobster"]).output();
    let run = run_of(&home);
    assert_eq!(home.lobster(["bundle", "export", &run, "-o", "many.bundle"]).run().code(), 0);
    (home, run)
}

fn interrupt(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Whenever a signal ends a comparison, nothing is said of what was compared.
#[test]
fn what_a_signal_ends_half_way_gives_no_verdict() {
    let (home, run) = many_steps();
    for words in [
        &["replay", &run, "--json"][..],
        &["bundle", "verify", "many.bundle"],
        &["bundle", "import", "many.bundle"],
    ] {
        let mut interrupted = 0;
        for after in [5, 20, 40, 80, 160, 320] {
            let state = home.second_state(&format!("other-{after}-{}", words[words.len() - 1].len()));
            let mut call = home.lobster(words);
            if words[0] == "bundle" {
                call = call.env("LOBSTER_STATE_DIR", &state);
            }
            let mut child = call.start();
            std::thread::sleep(Duration::from_millis(after));
            interrupt(&child, rustix::process::Signal::TERM);
            let (mut out, mut err) = (String::new(), String::new());
            child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
            child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
            wait(&mut child, &words);
            let said = format!("{words:?} after {after} ms: {out}{err}");
            assert!(!said.contains("not the same") && !said.contains("does not replay"), "{said}");
            assert!(!out.contains("\"recorded\""), "{said}");
            interrupted += usize::from(err.contains("interrupted before"));
        }
        eprintln!("{words:?}: {interrupted} were interrupted");
    }
}

#[test]
fn a_pipe_that_nobody_writes_to_is_waited_for_until_a_signal_comes() {
    let home = exported(&[]);
    let pipe = home.dir().join("pipe");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    let mut child = home.lobster(["bundle", "verify", "pipe"]).start();
    std::fs::write(&pipe, std::fs::read(home.dir().join("run.bundle")).unwrap()).unwrap();
    assert_eq!(wait(&mut child, &"verify").code(), Some(0));
    let mut child = home.lobster(["bundle", "verify", "pipe"]).start();
    std::thread::sleep(Duration::from_millis(500));
    interrupt(&child, rustix::process::Signal::TERM);
    assert_eq!(wait(&mut child, &"verify").code(), Some(143));
}

/// A run whose result is too large for the database, as a bundle.
fn large_bundle() -> Home {
    let home = Home::new();
    home.write("flow.lobster", "steps:\n  - id: big\n    run: head -c 300000 /dev/zero | tr '\\0' x\n");
    home.tool(["flow.lobster"]).output();
    let run = run_of(&home);
    assert_eq!(home.lobster(["bundle", "export", &run, "-o", "big.bundle"]).run().code(), 0);
    home
}

#[test]
fn a_bundle_that_finds_no_room_is_not_called_damaged() {
    let home = large_bundle();
    for (task, nth) in [("verify", 1), ("import", 1), ("import", 2)] {
        let state = home.second_state(&format!("{task}-{nth}"));
        // Each point of that name in turn: the scratch store's, then the store's own.
        for point in ["blob file", "blob write", "blob rename"] {
            let call = home.lobster(["bundle", task, "big.bundle"]).env("LOBSTER_STATE_DIR", &state);
            let answer = call.env("LOBSTER_FAULT", format!("{point}:fail")).run();
            says(&answer, 1, "fault injected");
            assert!(!answer.stderr.contains("the bundle is damaged"), "{answer:?}");
        }
    }
    let script = "mount -t tmpfs -o size=500k tmpfs \"$STATE\" || exit 99
        export TMPDIR=\"$STATE\"
        \"$L\" bundle verify big.bundle; echo \"exit $?\"
        \"$L\" bundle import --no-replay big.bundle; echo \"exit $?\"";
    let Some(output) = in_a_namespace(&home, script) else { return };
    let said = text(&output);
    assert!(said.contains("no space left") && !said.contains("damaged"), "{said}");
    assert_eq!(said.matches("exit 1").count(), 2, "{said}");
}

#[test]
fn what_a_killed_check_of_a_bundle_leaves_is_removed() {
    let home = large_bundle();
    let state = home.second_state("other");
    let left = || -> Vec<PathBuf> {
        let entries = std::fs::read_dir(state.join("store/tmp")).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
    };
    let verify = || home.lobster(["bundle", "verify", "big.bundle"]).env("LOBSTER_STATE_DIR", &state);
    let gc = || home.lobster(["store", "gc"]).env("LOBSTER_STATE_DIR", &state).run();
    for next in ["verify", "gc"] {
        verify().env("LOBSTER_FAULT", "blob rename:kill").run();
        let found = left();
        assert_eq!(found.len(), 1, "{found:?}");
        match next {
            "gc" => says(&gc(), 0, ""),
            _ => says(&verify().run(), 0, "intact"),
        }
        assert_eq!(left(), Vec::<PathBuf>::new(), "{next}");
    }
}
