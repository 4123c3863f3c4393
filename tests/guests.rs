//! Steps in C, built here: the project that `step new` makes, the SDK, and
//! programs that attack; and an attacker in Rust, as it is checked in.

use std::path::PathBuf;
use std::process::Command;

use crate::binary::repository;
use crate::home::{Answer, Home};
use crate::server::{Reply, Server};

/// Whether there is a C compiler for WebAssembly. A machine that must have one
/// sets `LOBSTER_REQUIRE_C`.
fn has_compiler() -> bool {
    let found = compiler().arg("--version").output().unwrap();
    let said = String::from_utf8_lossy(&found.stderr);
    assert!(found.status.success() || std::env::var_os("LOBSTER_REQUIRE_C").is_none(), "{said}");
    if !found.status.success() {
        eprintln!("SKIPPED: {said}");
    }
    found.status.success()
}

fn compiler() -> Command {
    let mut command = Command::new("bash");
    command.arg(sdk().join("wasm-cc.sh"));
    command
}

fn sdk() -> PathBuf {
    repository().join("guest-steps/c")
}

/// Builds a program of `tests/guests/c`; a step if it has the SDK's words.
fn build(home: &Home, source: &str, words: &[&str]) {
    let to = home.dir().join(source.replace(".c", ".wasm"));
    let mut command = compiler();
    command.args(["-O1", "-Wall", "-Wextra", "-Werror", "-std=c11", "-D_GNU_SOURCE"]).args(words);
    command.arg(repository().join("tests/guests/c").join(source));
    if words.contains(&"-mexec-model=reactor") {
        command.arg("-I").arg(sdk());
        for file in ["json.c", "lobster_http.c", "lobster_step.c", "gen/step.c", "gen/step_component_type.o"]
        {
            command.arg(sdk().join(file));
        }
    }
    let done = command.arg("-o").arg(to).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// A call with the compiler that this process would find.
fn call(home: &Home, words: &[&str]) -> Answer {
    let call = home.lobster(words).env("PATH", std::env::var_os("PATH").unwrap_or_default());
    match std::env::var_os("WASI_SDK_PATH") {
        Some(path) => call.env("WASI_SDK_PATH", path).run(),
        None => call.run(),
    }
}

#[test]
fn the_project_for_c_builds_and_passes_as_it_is_generated() {
    if !has_compiler() {
        return;
    }
    let home = Home::new();
    assert_eq!(call(&home, &["step", "new", "--lang", "c", "tidy-names"]).code(), 0);
    let built = call(&home, &["step", "build", "tidy-names"]);
    assert_eq!(built.code(), 0, "{built:?}");
    assert!(built.stdout.contains("lobster:step component"), "{built:?}");
    let tested = call(&home, &["step", "test", "tidy-names"]);
    assert!(tested.stdout.contains("all 2 cases pass"), "{tested:?}");
    let seen = call(&home, &["step", "inspect", "tidy-names/tidy-names.wasm"]);
    assert!(seen.stdout.contains("tidy-names 0.1.0 — Greets people"), "{seen:?}");
    // A step that opens no file cannot open one, whatever is granted.
    assert!(seen.stdout.contains("open files: it imports no file system"), "{seen:?}");
}

#[test]
fn a_c_program_without_a_project_is_a_command() {
    if !has_compiler() {
        return;
    }
    let home = Home::new();
    home.write("upper/main.c", "#include <ctype.h>\n#include <stdio.h>\nint main(void) { int c; while ((c = getchar()) != EOF) putchar(toupper(c)); }\n");
    let built = call(&home, &["step", "build", "upper"]);
    assert!(built.stdout.contains("WASI preview-1 command module"), "{built:?}");
    let ran = home.lobster(["step", "run", "upper/upper.wasm", "--input", "-"]).stdin("quiet").run();
    assert_eq!(ran.stdout, "QUIET", "{ran:?}");
}

#[test]
fn a_missing_compiler_is_named_with_how_to_get_one() {
    let home = Home::new();
    for tool in ["bash", "cat", "dirname"] {
        let from = ["/usr/bin", "/bin"].map(|dir| PathBuf::from(dir).join(tool));
        let from = from.iter().find(|path| path.exists()).unwrap();
        std::fs::create_dir_all(home.dir().join("tools")).unwrap();
        std::os::unix::fs::symlink(from, home.dir().join("tools").join(tool)).unwrap();
    }
    let bare = |words: &[&str]| home.lobster(words).env("PATH", home.dir().join("tools"));
    assert_eq!(bare(&["step", "new", "--lang", "c", "x"]).run().code(), 0);
    let built = bare(&["step", "build", "x"]).run();
    assert_eq!(built.code(), 1, "{built:?}");
    for part in ["clang is missing", "apt-get install clang lld wasi-libc libclang-rt-dev-wasm32", "ziglang"]
    {
        assert!(built.stderr.contains(part), "{part}: {built:?}");
    }
    let wrong = bare(&["step", "build", "x"]).env("WASI_SDK_PATH", "/nowhere").run();
    assert!(wrong.stderr.contains("WASI_SDK_PATH=/nowhere: there is no bin/clang"), "{wrong:?}");
}

#[test]
fn the_sdk_for_c_does_what_the_contract_offers() {
    if !has_compiler() {
        return;
    }
    let home = Home::new();
    build(&home, "contract.c", &["-mexec-model=reactor"]);
    let run = |what: &str, input: &str, words: &[&str]| {
        let what = format!("do={what}");
        let mut all = vec!["step", "run", "contract.wasm", "--arg", &what, "--input", "-"];
        all.extend(words);
        home.lobster(all).stdin(input).run()
    };
    let items = "[1,2.50,\"a\\u00e9\\ud83d\\ude00\\ud83d\\u0000\\n\\\\\"]\n{\"b\":null,\"a\":{\"x\":[true,false]}}\n1e400\n\"\"\n";
    let copied = run("copy", items, &["--items"]);
    let wanted =
        "[1,2.50,\"aé😀\u{fffd}\\u0000\\n\\\\\"]\n{\"b\":null,\"a\":{\"x\":[true,false]}}\n1e400\n\"\"\n";
    assert_eq!(copied.stdout, wanted, "{copied:?}");
    assert!(copied.stderr.contains("progress: 4"), "{copied:?}");
    let large = "x".repeat(3 << 20);
    let blob = run("blob", &large, &[]);
    assert!(blob.stdout == large, "{} bytes; {}", blob.stdout.len(), blob.stderr);
    assert!(
        blob.stderr.contains("info: ") && blob.stderr.contains("{\"where\":\"blob\"}"),
        "{}",
        blob.stderr
    );
    assert_eq!(run("state", "", &[]).stdout, "{\"before\":null,\"half\":0.5}\n");
    for (what, error) in [
        ("fail", "busy: try again in 5 s"),
        ("silent", "failed: the step failed without a reason"),
        ("nope", "bad-args: what is nope?"),
        ("mix", "mixed-output: "),
        ("broken", "invalid-json: output item 1"),
        ("state-not-json", "state: state-set(\"x\"): the value is not JSON"),
        ("blob-of-others", "not-granted: this step was not given blob 0000"),
        ("handles", "handle-limit: the step holds more than 10000 handles"),
    ] {
        let ran = run(what, "1\n", &["--items"]);
        assert_eq!(ran.code(), 1, "{what}: {ran:?}");
        assert!(ran.stderr.contains(error), "{what}: {ran:?}");
    }
    let seen = home.lobster(["step", "inspect", "contract.wasm"]).run().stdout;
    for part in [
        "read a directory at /data (optional): nothing, really",
        "the real clock (optional): to be late",
        "fuel 500,000,000",
        "Copies: --args-json '{\"do\":\"copy\"}'",
    ] {
        assert!(seen.contains(part), "{part}: {seen}");
    }
}

#[test]
fn a_step_in_c_that_lies_about_its_output_is_caught() {
    if !has_compiler() {
        return;
    }
    let home = Home::new();
    build(&home, "contract.c", &["-mexec-model=reactor", "-DLIES"]);
    let ran = home.lobster(["step", "run", "contract.wasm", "--arg", "do=lie"]).run();
    assert!(
        ran.stderr.contains("bad-output: the step broke its own output schema with item 1: $"),
        "{ran:?}"
    );
    assert_eq!(ran.stdout, "");
}

/// What each attack of `hostile.c` ends with: the exit code of `step run`, and
/// what stands on stderr.
const ATTACKS: [(&[&str], i32, &str); 20] = [
    (&["loop"], 1, "out-of-fuel: the step used up its fuel (300000000)"),
    (&["recurse"], 1, "trap: "),
    (&["call"], 1, "stack-exhausted: "),
    (&["memory"], 3, "no more after"),
    (&["output"], 1, "output-limit: the step put out more than 1000000 bytes"),
    (&["talk"], 1, "output-limit: "),
    (&["open", "/in/../secret"], 3, "refused: "),
    (&["open", "/in/link"], 3, "refused: "),
    (&["open", "/in/up/secret"], 3, "refused: "),
    (&["open", "/etc/passwd"], 3, "refused: "),
    (&["open", "secret"], 3, "refused: "),
    (&["open", "/proc/self/environ"], 3, "refused: "),
    (&["create", "/in/new"], 3, "refused: Read-only file system"),
    (&["descriptors", "/in/file"], 3, "256 descriptors"),
    (&["guess"], 3, "refused: Bad file descriptor"),
    (&["swap"], 3, "refused: "),
    (&["pointers"], 3, "refused: Invalid argument"),
    // Eleven days of virtual time pass at once.
    (&["sleep"], 0, ""),
    (&["abort"], 1, "trap: "),
    (&["what"], 2, "what is what?"),
];

#[test]
fn hostile_programs_in_c_end_in_their_named_error() {
    if !has_compiler() {
        return;
    }
    let home = Home::new();
    build(&home, "hostile.c", &[]);
    home.write("secret", "secret").write("in/file", "fine").write("out/.keep", "");
    std::os::unix::fs::symlink("../secret", home.dir().join("in/link")).unwrap();
    std::os::unix::fs::symlink("..", home.dir().join("in/up")).unwrap();
    let run = |words: &[&str]| {
        let mut all = vec!["step", "run", "hostile.wasm", "--read", "in:/in", "--write", "out:/out"];
        all.extend(["--memory", "16MiB", "--output", "1MB", "--fuel", "300_000_000", "--"]);
        all.extend(words);
        home.lobster(all).run()
    };
    assert_eq!(run(&["open", "/in/file"]).stdout, "got: fine\n");
    // A clock that stands still but for being looked at tells nothing of the work in between.
    assert_eq!(run(&["clock"]).stdout, run(&["clock"]).stdout);
    for (words, code, said) in ATTACKS {
        let ran = run(words);
        assert_eq!(ran.code(), code, "{words:?}: {ran:?}");
        assert!(ran.stderr.contains(said), "{words:?}: {}", ran.stderr);
        assert!(!ran.stdout.contains("secret") && !ran.stdout.contains("root:"), "{words:?}: {ran:?}");
    }
    let left: Vec<_> = std::fs::read_dir(home.dir().join("out")).unwrap().collect();
    assert_eq!(left.len(), 1, "a program that failed left something: {left:?}");
}

/// What each attack of the hostile step in Rust says on stderr.
const RUST_ATTACKS: [(&str, &str); 16] = [
    (r#"{"do":"loop"}"#, "out-of-fuel: the step used up its fuel (300000000)"),
    (r#"{"do":"recurse"}"#, "trap: the step trapped: "),
    (r#"{"do":"memory"}"#, "memory-limit: the step needs more memory than its limit"),
    (r#"{"do":"items"}"#, "output-limit: the step put out more than 1000000 bytes"),
    (r#"{"do":"log"}"#, "output-limit: "),
    (r#"{"do":"progress"}"#, "output-limit: "),
    (r#"{"do":"handles"}"#, "handle-limit: the step holds more than 10000 handles"),
    (r#"{"do":"open","path":"../secret"}"#, "refused: "),
    (r#"{"do":"open","path":"link"}"#, "refused: "),
    (r#"{"do":"open","path":"up/secret"}"#, "refused: "),
    (r#"{"do":"open","path":"/proc/self/environ"}"#, "refused: "),
    (r#"{"do":"make","path":"l","link":"../secret"}"#, "refused: "),
    (r#"{"do":"swap"}"#, "refused: "),
    (r#"{"do":"climb"}"#, "refused: "),
    (r#"{"do":"names"}"#, "files-limit: the step wrote more than 1073741824 bytes (or 100000 names)"),
    (r#"{"do":"blob-writers"}"#, "limit: a step may have 256 files and blobs open at once"),
];

#[test]
fn hostile_steps_in_rust_end_in_their_named_error() {
    let home = Home::new();
    std::fs::copy(repository().join("tests/guests/dist/hostile.wasm"), home.dir().join("hostile.wasm"))
        .unwrap();
    home.write("secret", "secret").write("in/sub/file", "fine").write("out/.keep", "");
    std::os::unix::fs::symlink("../secret", home.dir().join("in/link")).unwrap();
    std::os::unix::fs::symlink("..", home.dir().join("in/up")).unwrap();
    for (args, said) in RUST_ATTACKS {
        let mut words = vec!["step", "run", "hostile.wasm", "--read", "in:/in", "--write", "out:/out"];
        words.extend(["--memory", "16MiB", "--output", "1MB", "--fuel", "300_000_000", "--args-json", args]);
        let ran = home.lobster(words).run();
        assert_eq!(ran.code(), 1, "{args}: {ran:?}");
        assert!(ran.stderr.contains(said), "{args}: {}", ran.stderr);
        assert!(!ran.stderr.contains('\u{1b}'), "{args}: a terminal is told what to do: {}", ran.stderr);
        assert!(!ran.stdout.contains("secret") && !ran.stderr.contains("breach"), "{args}: {ran:?}");
    }
    let left: Vec<_> = std::fs::read_dir(home.dir().join("out")).unwrap().collect();
    assert_eq!(left.len(), 1, "a step that failed left something: {left:?}");
}

/// `lobster:step/http` through the SDK: what it may ask, what it is told when it may not.
#[test]
fn a_step_in_c_asks_hosts_that_it_is_granted_and_no_others() {
    if !has_compiler() {
        return;
    }
    let home = Home::new();
    build(&home, "asks.c", &["-mexec-model=reactor"]);
    let server = Server::start(|_, request| match request.path.as_str() {
        "/away" => Reply::status(302, "location: http://127.0.0.1:1/\r\n", ""),
        "/silent" => Reply::Silence,
        "/large" => Reply::status(200, "", &"x".repeat((16 << 20) + 1)),
        _ => Reply::status(203, "x-kind: real\r\n", "hello"),
    });
    let at = server.url().trim_start_matches("http://").trim_end_matches('/').to_owned();
    let ask = |args: &str, net: &str| {
        let args = args.replace("HERE", &format!("http://{at}"));
        home.lobster(["step", "run", "asks.wasm", "--net", net, "--args-json", &args]).run()
    };
    let asked = ask(
        r#"{"method": "PUT", "url": "HERE/a?b=%FC", "name": "X-Of", "value": "one", "body": "12345"}"#,
        &at,
    );
    assert_eq!(asked.stdout, "{\"status\":203,\"kind\":\"real\",\"bytes\":5}\n", "{asked:?}");
    let seen = server.requests().pop().unwrap();
    assert_eq!((seen.path.as_str(), seen.body.as_slice()), ("/a?b=%FC", b"12345".as_slice()));
    assert_eq!(seen.header("x-of"), Some("one"));
    assert_eq!((seen.header("host"), seen.header("content-length")), (Some(at.as_str()), Some("5")));
    let away = ask(r#"{"url": "HERE/away"}"#, &at);
    assert_eq!(away.stdout, "{\"status\":302,\"kind\":\"\",\"bytes\":0}\n", "{away:?}");

    let before = server.requests().len();
    for (args, net, told) in [
        (r#"{"url": "http://127.0.0.2:1/"}"#, at.as_str(), ": denied: "),
        (r#"{"url": "http://169.254.169.254/latest"}"#, &at, ": denied: "),
        (r#"{"url": "HERE/"}"#, "a.example:80", ": denied: "),
        (r#"{"url": "ftp://a.example/"}"#, &at, ": bad-request: "),
        (r#"{"url": "/a"}"#, &at, ": bad-request: "),
        (r#"{"url": "HERE/ a"}"#, &at, ": bad-request: "),
        (r#"{"url": "http://me:secret@a.example/"}"#, &at, ": bad-request: a URL cannot carry"),
        (r#"{"url": "HERE/", "method": "G T"}"#, &at, ": bad-request: \"G T\" is not an HTTP method"),
        (r#"{"url": "HERE/", "name": "Host", "value": "b"}"#, &at, ": bad-request: the header host"),
        (r#"{"url": "HERE/", "name": "content-length", "value": "9"}"#, &at, ": bad-request: "),
        (r#"{"url": "HERE/", "name": "transfer-encoding", "value": "chunked"}"#, &at, ": bad-request: "),
        (r#"{"url": "HERE/", "name": "a", "value": "b\r\nc: d"}"#, &at, ": bad-request: "),
        (r#"{"url": "HERE/", "name": "a", "value": "😀"}"#, &at, ": bad-request: "),
        (r#"{"url": "http://localhost:1/"}"#, "localhost:1", ": refused: "),
    ] {
        let refused = ask(args, net);
        assert_eq!((refused.code(), refused.stdout.as_str()), (1, ""), "{args}: {refused:?}");
        assert!(refused.stderr.contains("http: ") && refused.stderr.contains(told), "{args}: {refused:?}");
    }
    assert_eq!(server.requests().len(), before, "nothing of that was sent");
    let late = ask(r#"{"url": "HERE/silent", "timeout": 50}"#, &at);
    assert!(late.stderr.contains(": timeout: "), "{late:?}");
    let large = ask(r#"{"url": "HERE/large"}"#, &at);
    assert!(large.stderr.contains(": too-large: "), "{large:?}");
    let silent = format!(r#"{{"url": "http://{at}/silent"}}"#);
    let words = ["step", "run", "asks.wasm", "--net", &at, "--timeout", "300ms", "--args-json", &silent];
    let stopped = home.lobster(words).run();
    assert!(stopped.stderr.contains("timeout: "), "{stopped:?}");
    let bare =
        home.lobster(["step", "run", "asks.wasm", "--args-json", r#"{"url": "http://a.example/"}"#]).run();
    assert!(bare.stderr.contains("not-granted") && bare.stderr.contains("lobster:step/http"), "{bare:?}");
}

#[test]
fn what_a_step_in_c_was_answered_is_replayed_without_the_server() {
    if !has_compiler() {
        return;
    }
    let home = Home::new();
    build(&home, "asks.c", &["-mexec-model=reactor"]);
    let server = Server::start(|n, _| Reply::status(200, &format!("x-kind: {n}\r\n"), "hello"));
    let at = server.url().trim_start_matches("http://").trim_end_matches('/').to_owned();
    home.write(
        "ask.lobster",
        format!(
            "steps:\n  - id: ask\n    component: ./asks.wasm\n    args: {{ url: 'http://{at}/' }}\n    grants: {{ net: ['{at}'] }}\n"
        ),
    );
    let ran = home.lobster(["run", "ask.lobster"]).run();
    assert_eq!(ran.code(), 0, "{ran:?}");
    assert_eq!(server.requests().len(), 1);
    drop(server);
    let replayed = home.lobster(["replay", "@"]).run();
    assert_eq!(replayed.code(), 0, "{replayed:?}");
    assert!(ran.stdout.contains("\"bytes\": 5"), "{ran:?}");
}
