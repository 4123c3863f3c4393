//! Programs that attack the host: the built `guest-steps/rust/hostile`, and fixtures with forged
//! descriptions. Each ends in its own named error.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::{Ran, engine, fixture, load, run};
use crate::{BlobError, BlobRead, BlobWrite, Component, DirGrant, HostServices, Input, Invocation, RunError};

fn built(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/guests/dist").join(name)
}

fn hostile() -> &'static Component {
    static HOSTILE: OnceLock<Component> = OnceLock::new();
    HOSTILE
        .get_or_init(|| engine().load_file(built("hostile.wasm")).unwrap_or_else(|error| panic!("{error}")))
}

#[test]
fn forged_schemas_end_in_an_error() {
    let began = Instant::now();
    // Each definition is checked twice by the one before: 2^40 checks.
    let doubling = |ends: &str| {
        let step = |n: usize| {
            format!(r##""d{n}":{{"allOf":[{{"$ref":"#/$defs/d{0}"}},{{"$ref":"#/$defs/d{0}"}}]}}"##, n + 1)
        };
        let steps: Vec<_> = (0..40).map(step).collect();
        format!(r##"{{"$ref":"#/$defs/d0","$defs":{{{},"d40":{ends}}}}}"##, steps.join(","))
    };
    let nested = r#"{"allOf":["#.repeat(200) + "{}" + &"]}".repeat(200);
    let links: Vec<_> = (0..1900).map(|n| format!(r##""d{n}":{{"$ref":"#/$defs/d{}"}}"##, n + 1)).collect();
    let chain = format!(r##"{{"$ref":"#/$defs/d0","$defs":{{{},"d1900":{{}}}}}}"##, links.join(","));
    let backtracks = r#"{"properties":{"a":{"pattern":"^(?=(a+)+$)(a*)*\\1b$"}}}"#;
    let schemas = [
        ("not JSON", "{".to_owned()),
        ("not a schema", r#"{"type":"everything"}"#.to_owned()),
        ("of a file", r#"{"$ref":"file:///etc/passwd"}"#.to_owned()),
        ("of the network", r#"{"$ref":"http://127.0.0.1:1/x.json"}"#.to_owned()),
        ("refers to itself", r##"{"$ref":"#"}"##.to_owned()),
        (
            "refers to itself through another",
            r##"{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}"##
                .to_owned(),
        ),
        ("refers to itself twice", r##"{"properties":{"a":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}}"##.to_owned()),
        ("a chain", chain),
        ("nested", nested),
        ("doubles", doubling("{}")),
        ("doubles and refuses", doubling("false")),
        ("backtracks", backtracks.to_owned()),
        ("anchors", r##"{"$ref":"#x","$defs":{"a":{"$anchor":"x","allOf":[{"$ref":"#x"},{"$ref":"#x"}]}}}"##.to_owned()),
        ("names of its own", r##"{"$ref":"#/$defs/a","$defs":{"a":{"$id":"x","$ref":"#"}}}"##.to_owned()),
        ("many parts", format!(r#"{{"allOf":[{}{{}}]}}"#, "{},".repeat(10_000))),
        ("a large repetition", r#"{"properties":{"a":{"pattern":"((a{1000}){1000}){1000}"}}}"#.to_owned()),
        ("a tree", r##"{"properties":{"a":{"$ref":"#"},"b":{"$ref":"#"}},"additionalProperties":{"type":"string"}}"##.to_owned()),
    ];
    let multiply = "its references multiply";
    let said = [
        ("not JSON", "it is not JSON"),
        ("not a schema", "must be equal to one of the allowed values"),
        ("of a file", "can't resolve reference"),
        ("of the network", "can't resolve reference"),
        ("refers to itself", multiply),
        ("refers to itself through another", multiply),
        ("refers to itself twice", multiply),
        ("a chain", multiply),
        ("nested", "nested more than 127 levels"),
        ("doubles", multiply),
        ("doubles and refuses", multiply),
        ("backtracks", "$.a: must match pattern"),
        ("anchors", multiply),
        ("names of its own", "inner $id"),
        ("many parts", "10002 parts"),
        ("a large repetition", "Invalid regular expression"),
        ("a tree", "ok"),
    ];
    let args = format!(r#"{{"a":"{}"}}"#, "a".repeat(64));
    let ends = schemas.map(|(what, schema)| {
        let step = load(&fixture::described_step(&schema, None, None, "", "(call $ok)"));
        let ran = run(&step, &args, |_| {});
        (what, ran.result.err().map_or("ok".to_owned(), |error| error.to_string()))
    });
    for ((what, end), (of, part)) in ends.iter().zip(said) {
        assert!(*what == of && end.contains(part), "{what}: {end}");
    }
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

/// The hostile step under tight limits, with a directory to read and one to write.
fn attack(dir: &Path, args: &str, change: impl FnOnce(&mut Invocation)) -> Ran {
    let grant = |name: &str| DirGrant { host: dir.join(name), guest: format!("/{name}") };
    run(hostile(), args, |i| {
        i.grants.read = vec![grant("in")];
        i.grants.write = vec![grant("out")];
        i.limits.fuel = 200_000_000;
        i.limits.memory = 16 << 20;
        i.limits.output = 1 << 20;
        i.limits.files = 4 << 20;
        change(i);
    })
}

fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("temporary directory");
    std::fs::create_dir_all(dir.path().join("in/sub")).expect("creates");
    std::fs::create_dir(dir.path().join("out")).expect("creates");
    std::fs::write(dir.path().join("in/file"), "fine").expect("writes");
    std::fs::write(dir.path().join("secret"), "secret").expect("writes");
    std::os::unix::fs::symlink("../secret", dir.path().join("in/link")).expect("links");
    std::os::unix::fs::symlink("..", dir.path().join("in/up")).expect("links");
    dir
}

/// Services for a step, with a store that holds one blob of another step.
struct Shelf;

const OTHERS: &str = "somebody else's";

impl HostServices for Shelf {
    fn state_get(&self, _: &str) -> Option<String> {
        Some(format!("\"{}\"", blake3::hash(OTHERS.as_bytes())))
    }
    fn state_set(&self, _: &str, _: &str) -> std::io::Result<()> {
        Ok(())
    }
    fn blob_open(&self, digest: &str) -> Result<Box<dyn BlobRead>, BlobError> {
        assert_eq!(digest, blake3::hash(OTHERS.as_bytes()).to_hex().as_str(), "asked for what was not given");
        Ok(Box::new(Bytes(OTHERS.as_bytes())))
    }
    fn blob_create(&self) -> Result<Box<dyn BlobWrite>, BlobError> {
        Ok(Box::new(Bytes(&[])))
    }
}

struct Bytes(&'static [u8]);

impl std::io::Read for Bytes {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

impl BlobRead for Bytes {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }
}

impl std::io::Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl BlobWrite for Bytes {
    fn finish(self: Box<Self>) -> Result<String, BlobError> {
        Ok(blake3::hash(b"").to_string())
    }
}

/// Result of each attack of the hostile step in Rust.
const ATTACKS: [(&str, &str); 35] = [
    (r#"{"do":"loop"}"#, "out-of-fuel"),
    (r#"{"do":"recurse"}"#, "trap"),
    (r#"{"do":"panic"}"#, "trap"),
    (r#"{"do":"memory"}"#, "memory-limit"),
    (r#"{"do":"items"}"#, "output-limit"),
    (r#"{"do":"item"}"#, "memory-limit"),
    (r#"{"do":"deep"}"#, "output-limit"),
    (r#"{"do":"mix"}"#, "mixed-output"),
    (r#"{"do":"log"}"#, "output-limit"),
    (r#"{"do":"progress"}"#, "output-limit"),
    (r#"{"do":"talk"}"#, "output-limit"),
    (r#"{"do":"values"}"#, "files-limit"),
    (r#"{"do":"handles"}"#, "handle-limit"),
    (r#"{"do":"input"}"#, "ok"),
    (r#"{"do":"ambient"}"#, "ok"),
    (r#"{"do":"open","path":"file"}"#, "ok"),
    (r#"{"do":"open","path":"../secret"}"#, "refused"),
    (r#"{"do":"open","path":"sub/../../secret"}"#, "refused"),
    (r#"{"do":"open","path":"link"}"#, "refused"),
    (r#"{"do":"open","path":"up/secret"}"#, "refused"),
    (r#"{"do":"open","path":"/etc/passwd"}"#, "refused"),
    (r#"{"do":"open","path":"/proc/self/environ"}"#, "refused"),
    (r#"{"do":"make","path":"new"}"#, "refused"),
    (r#"{"do":"make","path":"l","link":"/etc/passwd"}"#, "refused"),
    (r#"{"do":"make","path":"l","link":"../secret"}"#, "refused"),
    (r#"{"do":"swap"}"#, "refused"),
    (r#"{"do":"climb"}"#, "refused"),
    (r#"{"do":"list"}"#, "ok"),
    (r#"{"do":"fill"}"#, "files-limit"),
    (r#"{"do":"blob"}"#, "not-granted"),
    (r#"{"do":"blob-by-state"}"#, "not-granted"),
    (r#"{"do":"blob-of-input"}"#, "not-granted"),
    (r#"{"do":"blob-writers"}"#, "limit"),
    (r#"{"do":"blobs"}"#, "files-limit"),
    (r#"{"do":"what"}"#, "bad-args"),
];

fn end(ran: &Ran) -> String {
    match &ran.result {
        Err(RunError::Step(error)) => error.code.clone(),
        _ => ran.name().to_owned(),
    }
}

/// Runs this test again as the only one of a process.
fn alone(name: &str) -> bool {
    if std::env::var_os("LOBSTER_TEST_ALONE").is_some() {
        return true;
    }
    let this = std::env::current_exe().expect("a test knows its executable");
    let name = format!("tests::hostile::{name}");
    let done = std::process::Command::new(this)
        .args(["--exact", &name, "--nocapture"])
        .env("LOBSTER_TEST_ALONE", "1")
        .output()
        .expect("starts");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(&done.stderr));
    assert!(said.contains("1 passed"), "{said}");
    false
}

fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("Linux says it");
    line.trim_matches([':', '\t', ' ']).trim_end_matches(" kB").parse().expect("a number")
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("Linux has it").count()
}

#[test]
fn attacks_in_rust_end_in_their_named_error_and_leave_nothing() {
    if !alone("attacks_in_rust_end_in_their_named_error_and_leave_nothing") {
        return;
    }
    let dir = place();
    let round = || {
        for (args, expected) in ATTACKS {
            let ran = attack(dir.path(), args, |i| i.services = Arc::new(Shelf));
            assert_eq!(end(&ran), expected, "{args}: {:?}", ran.result);
            assert!(
                !ran.output.contains("secret") && !ran.output.contains("root:"),
                "{args}: {}",
                ran.output
            );
        }
    };
    round();
    let (memory, open, threads) = (status("VmRSS"), descriptors(), status("Threads"));
    (0..5).for_each(|_| round());
    assert_eq!((descriptors(), status("Threads")), (open, threads));
    let grown = status("VmRSS").saturating_sub(memory);
    assert!(grown < 8 << 10, "{grown} KiB more after {} attacks", 5 * ATTACKS.len());
    assert_eq!(std::fs::read_dir(dir.path().join("out")).expect("reads").count(), 0);
    // None of them used more than its memory, its blobs and the limit of one call.
    let peak = status("VmHWM");
    assert!(peak < 160 << 10, "{peak} KiB");
}

#[test]
fn a_program_learns_nothing_from_clocks_and_surroundings() {
    let dir = place();
    let once = |args: &str| attack(dir.path(), args, |i| i.limits.fuel = 2_000_000_000).output;
    let told = once(r#"{"do":"clock"}"#);
    // Reading the clock moves it; the work in between does not.
    assert!(told.starts_with("2000 3600000003000 946684800."), "{told}");
    assert_eq!(told, once(r#"{"do":"clock"}"#));
    assert_eq!(once(r#"{"do":"ambient"}"#), "[] [\"step\"] 2\n");
    let listed = "file DescriptorType::RegularFile 1 Some(946684800)\n\
                  link DescriptorType::SymbolicLink 1 Some(946684800)\n\
                  sub DescriptorType::Directory 1 Some(946684800)\n";
    let list = once(r#"{"do":"list"}"#);
    assert!(list.starts_with(listed), "{list}");
}

#[test]
fn only_blobs_that_a_step_was_given_open() {
    let dir = place();
    let digest = blake3::hash(OTHERS.as_bytes()).to_hex();
    let (begin, rest) = digest.split_at(30);
    let ends = |args: &str, input: &str| {
        let items = vec![Ok(input.to_owned())];
        let ran = attack(dir.path(), args, |i| {
            i.services = Arc::new(Shelf);
            i.input = Input::Items(Box::new(items.into_iter()));
        });
        (end(&ran), ran.output)
    };
    let refused = ("not-granted".to_owned(), String::new());
    let given = ("ok".to_owned(), OTHERS.to_owned());
    for what in ["blob", "blob-by-state"] {
        assert_eq!(ends(&format!(r#"{{"do":"{what}","begin":"{begin}","end":"{rest}"}}"#), "1"), refused);
    }
    // The digest is in the input, but the step has not read it.
    let named = format!("\"{digest}\"");
    assert_eq!(ends(&format!(r#"{{"do":"blob","begin":"{begin}","end":"{rest}"}}"#), &named), refused);
    assert_eq!(ends(r#"{"do":"blob-of-input"}"#, &named), given);
    assert_eq!(ends(&format!(r#"{{"do":"blob","begin":"{digest}"}}"#), "1"), given);
}

#[test]
fn nothing_is_reached_that_is_not_granted() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    listener.set_nonblocking(true).expect("does not block");
    let port = listener.local_addr().expect("has an address").port();
    let program = engine().load_file(built("hostile-net.wasm")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(run(&program, r#"{"do":"connect"}"#, |_| {}).name(), "not-granted");
    for (what, host) in [
        ("resolve", "localhost"),
        ("resolve", "example.org"),
        ("resolve", "127.0.0.1.nip.io"),
        ("connect", "127.0.0.1"),
        ("connect", "localhost"),
        ("connect", "::1"),
        ("connect", "::ffff:127.0.0.1"),
        ("connect", "0.0.0.0"),
        ("connect", "127.1"),
        ("connect", "2130706433"),
        ("connect", "169.254.169.254"),
        ("connect", "10.0.0.1"),
        ("listen", ""),
        ("send", "127.0.0.1"),
        ("send", "8.8.8.8"),
    ] {
        let args = format!(r#"{{"do":"{what}","host":"{host}","port":{port}}}"#);
        let ran = run(&program, &args, |i| i.grants.net = vec!["example.com:443".into()]);
        assert_eq!(end(&ran), "refused", "{args}: {:?}", ran.result);
    }
    assert!(listener.accept().is_err(), "somebody came");
}
