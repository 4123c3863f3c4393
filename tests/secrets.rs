//! A secret reaches the step that was granted it, and nothing else: not the
//! state directory, not what is printed, not a bundle.

use std::path::Path;

use serde_json::{Value, json};

use crate::home::{Answer, Home, assert_nowhere, contents_below};

/// Long, with characters that every encoding writes in another way.
const VALUE: &str = "t0p/S3cret+\"quoted\" & %wörd-0123456789abcdef";

fn home_with(reference: &str) -> Home {
    let home = Home::new();
    let config = home.dir().parent().unwrap().join("home/.config/lobster");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("secrets.toml"), format!("[secrets.api_token]\n{reference}\n")).unwrap();
    home
}

fn tool(home: &Home, words: &[&str]) -> Answer {
    let mut all = vec!["run", "--mode", "tool"];
    all.extend(words);
    home.lobster(all).env("THE_TOKEN", VALUE).env("LOBSTER_LOG", "trace").run()
}

/// The value as programs would write it; parts long enough to be worth having count too.
fn traces() -> Vec<String> {
    let json = serde_json::to_string(VALUE).unwrap();
    let hex: String = VALUE.bytes().map(|byte| format!("{byte:02x}")).collect();
    vec![
        VALUE.to_owned(),
        VALUE[..24].to_owned(),
        VALUE[VALUE.len() - 16..].to_owned(),
        json[1..json.len() - 1].to_owned(),
        hex,
        "dDBwL1MzY3JldC".to_owned(),
        "t0p%2FS3cret".to_owned(),
        "t0p%2fS3cret".to_owned(),
        "0123456789abcdef".to_owned(),
    ]
}

fn assert_clean(what: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for trace in traces() {
        assert!(!text.contains(&trace), "{what} holds {trace:?}");
    }
}

fn assert_clean_tree(dir: &Path) {
    for (path, bytes) in contents_below(dir) {
        assert_clean(&path.display().to_string(), &bytes);
    }
}

fn assert_clean_answer(answer: &Answer) {
    assert_clean("stdout", answer.stdout.as_bytes());
    assert_clean("stderr", answer.stderr.as_bytes());
}

/// Prints the token in every way it can think of.
const LEAKY: &str = r#"#!/usr/bin/python3
import base64, json, os, sys, time, urllib.parse
t = os.environ["TOKEN"]
out = sys.stdout.buffer if len(sys.argv) < 2 else sys.stderr.buffer
def say(text):
    out.write(text if isinstance(text, bytes) else text.encode())
    out.write(b"\n")
say(t)
say(json.dumps({"t": t}))
say(json.dumps(json.dumps(t)))
say(json.dumps(t, ensure_ascii=False))
say(base64.b64encode(t.encode()))
say(base64.urlsafe_b64encode(("user:" + t).encode()))
say(base64.b64encode(("ab" + t + "cd").encode()))
say(base64.encodebytes(("x" * 3 + t).encode()))
say(urllib.parse.quote(t))
say(urllib.parse.quote(t, safe=""))
say(urllib.parse.quote_plus(t))
say(t.encode().hex())
say(t.encode().hex().upper())
for byte in t.encode():
    out.write(bytes([byte]))
    out.flush()
    time.sleep(0.0005)
# Across the borders of pipes and buffers.
for pad in (4095, 65535 - 10, 131072 - 5):
    out.write(b"." * pad + t.encode() + b"\n")
out.flush()
"#;

#[test]
fn a_granted_secret_leaves_no_trace() {
    let home = home_with("env = \"THE_TOKEN\"");
    home.write("leaky", LEAKY);
    home.write(
        "flow.lobster",
        "secrets: [api_token]\nsteps:\n\
         \x20 - { id: use, run: 'test \"${#TOKEN}\" = 45 && ./leaky && ./leaky err', secrets: { TOKEN: api_token } }\n\
         \x20 - { id: other, run: 'env; set', stdin: $use.stdout }\n\
         \x20 - { id: pipe, pipeline: 'exec ./leaky | state.set leaked', secrets: { TOKEN: api_token } }\n\
         \x20 - { id: ask, approval: { prompt: 'Go on?' }, stdin: $use.stdout }\n\
         \x20 - { id: fail, run: './leaky err; ./leaky; exit 3', secrets: { TOKEN: api_token } }\n",
    );
    let asked = tool(&home, &["flow.lobster"]);
    assert_clean_answer(&asked);
    let failed =
        home.lobster(["resume", "--token", &asked.token(), "--approve", "yes"]).env("THE_TOKEN", VALUE).run();
    assert!(failed.error().contains("«secret:api_token»"), "{failed:?}");
    assert_clean_answer(&failed);
    let runs = home.lobster(["runs", "--json"]).run();
    let runs: Value = serde_json::from_str(&runs.stdout).unwrap();
    let id = runs[0]["id"].as_str().unwrap().to_owned();
    for words in [&["show", &id, "--full"][..], &["show", &id, "--json"], &["logs", &id]] {
        let shown = home.lobster(words).run();
        assert_eq!(shown.code(), 0, "{shown:?}");
        assert_clean_answer(&shown);
    }
    let bundle = home.lobster(["bundle", "export", &id, "-o", "run.bundle"]).run();
    assert_eq!(bundle.code(), 0, "{bundle:?}");
    assert_clean("the bundle", &std::fs::read(home.dir().join("run.bundle")).unwrap());
    let named =
        "warning: steps of this run had secrets: fail (api_token); pipe (api_token); use (api_token)\n";
    assert!(bundle.stderr.starts_with(named), "{bundle:?}");
    assert!(
        bundle.stderr.contains("\n  not in the bundle: ") && bundle.stderr.contains("\n  in the bundle: ")
    );
    assert!(bundle.stdout.starts_with("wrote run") && !bundle.stdout.contains("warning"), "{bundle:?}");
    let bundle = home.lobster(["bundle", "export", &id, "-o", "run.bundle", "--json"]).run();
    let summary: Value = serde_json::from_str(&bundle.stdout).unwrap();
    assert_eq!(summary["secrets"][0], json!({ "step": "fail", "secrets": ["api_token"] }));
    let piped = home.lobster(["bundle", "export", &id, "-o", "-"]).run();
    assert!(piped.stderr.starts_with(named) && !piped.stdout.contains("warning"), "{:?}", piped.stderr);
    // A replay needs no value: what was done is answered from the record.
    let replay = home.lobster(["replay", &id]).run();
    assert_eq!(replay.code(), 0, "{replay:?}");
    assert_clean_tree(&home.state());
}

#[test]
fn no_step_inherits_what_a_secret_is_read_from() {
    let home = home_with("env = \"THE_TOKEN\"");
    home.write("flow.lobster", "steps:\n  - { id: a, run: 'echo ${THE_TOKEN-none}' }\n");
    assert_eq!(tool(&home, &["flow.lobster"]).output()[0], "none\n");
    assert_eq!(tool(&home, &["exec sh -c 'echo ${THE_TOKEN-none}'"]).output()[0], "none");
}

#[test]
fn values_come_from_files_and_commands() {
    for reference in ["file = \"~/token\"", "command = [\"cat\", \"../home/token\"]"] {
        let home = home_with(reference);
        std::fs::write(home.dir().parent().unwrap().join("home/token"), "from a file\n").unwrap();
        home.write(
            "flow.lobster",
            "secrets: [api_token]\nsteps:\n  - { id: a, run: 'printf %s \"$api_token\" | wc -c', secrets: [api_token] }\n",
        );
        let answer = tool(&home, &["flow.lobster"]);
        assert_eq!(answer.output()[0], 11, "{answer:?}");
    }
}

/// A module that prints its environment to stdout and stderr, and fails.
const PRINTS_ENVIRONMENT: &str = r#"(module
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_get" (func $environ (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 2)
  (func (export "_start")
    (drop (call $sizes (i32.const 0) (i32.const 4)))
    (drop (call $environ (i32.const 1024) (i32.const 8192)))
    (i32.store (i32.const 8) (i32.const 8192))
    (i32.store (i32.const 12) (i32.load (i32.const 4)))
    (drop (call $write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 16)))
    (drop (call $write (i32.const 2) (i32.const 8) (i32.const 1) (i32.const 16)))
    (call $exit (i32.const CODE))))"#;

#[test]
fn components_receive_secrets_as_variables() {
    let home = home_with("env = \"THE_TOKEN\"");
    for (code, name) in [("0", "good.wasm"), ("9", "bad.wasm")] {
        home.write(name, wat::parse_str(PRINTS_ENVIRONMENT.replace("CODE", code)).unwrap());
    }
    let flow = |component: &str, fields: &str| {
        home.write(
            "flow.lobster",
            format!("secrets: [api_token]\nsteps:\n  - {{ id: a, component: {component}, {fields} }}\n"),
        );
        let answer = tool(&home, &["flow.lobster"]);
        assert_clean_answer(&answer);
        answer
    };
    let granted = flow("good.wasm", "secrets: { TOKEN: api_token }").output();
    assert_eq!(granted[0], "TOKEN=«secret:api_token»\0");
    assert_eq!(flow("good.wasm", "cache: true").output().as_array().map(Vec::len), Some(0));
    // Asking for the variable that lobster reads it from does not help.
    let asked = flow("good.wasm", "grants: { env: [THE_TOKEN] }").output();
    assert_eq!(asked.as_array().map(Vec::len), Some(0));
    let failed = flow("bad.wasm", "secrets: { TOKEN: api_token }").error();
    assert!(failed.contains("TOKEN=«secret:api_token»"), "{failed}");
    assert_clean_tree(&home.state());
}

#[test]
fn a_replay_needs_no_secret() {
    let home = home_with("env = \"THE_TOKEN\"");
    home.write("good.wasm", wat::parse_str(PRINTS_ENVIRONMENT.replace("CODE", "0")).unwrap());
    home.write(
        "flow.lobster",
        "name: granted\nsecrets: [api_token]\nsteps:\n  - { id: fetch, run: 'test -n \"$TOKEN\" && echo ok', secrets: { TOKEN: api_token } }\n  - { id: pipe, pipeline: 'exec sh -c \"echo ok\"', secrets: [api_token] }\n  - { id: guest, component: good.wasm, secrets: { TOKEN: api_token } }\n  - { id: sum, js: '1 + 1' }\n",
    );
    tool(&home, &["flow.lobster"]).output();
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    let run = runs[0]["id"].as_str().unwrap();
    assert_eq!(home.lobster(["bundle", "export", run, "-o", "b"]).run().code(), 0);
    let there = Home::new();
    there.write("b", std::fs::read(home.dir().join("b")).unwrap());
    home.write("none.toml", "");
    // Neither where nothing names it nor where it comes from somewhere else.
    let other = home_with("command = [\"touch\", \"asked\"]");
    other.write("b", std::fs::read(home.dir().join("b")).unwrap());
    for answer in [
        there.lobster(["bundle", "verify", "b"]).run(),
        other.lobster(["bundle", "verify", "b"]).run(),
        home.lobster(["replay", run]).env("LOBSTER_SECRETS", home.dir().join("none.toml")).run(),
    ] {
        assert_eq!(answer.code(), 0, "{answer:?}");
        assert!(answer.stdout.contains("not computed: guest, because it was granted a secret"), "{answer:?}");
    }
    assert!(!other.dir().join("asked").exists());
}

#[test]
fn what_is_wrong_is_said_before_anything_runs() {
    let flow = |fields: &str| {
        format!(
            "secrets: [api_token]\nsteps:\n  - {{ id: first, run: 'touch ran' }}\n  - {{ id: a, {fields} }}\n"
        )
    };
    let granted = flow("run: 'true', secrets: { TOKEN: api_token }");
    let file = "file = \"~/gone\"";
    let env = "env = \"THE_TOKEN\"";
    for (reference, text, message) in [
        ("env = \"NOT_SET\"", granted.as_str(), "environment variable NOT_SET is not set"),
        (file, &granted, "cannot read"),
        ("command = [\"sh\", \"-c\", \"echo no >&2; exit 7\"]", &granted, "ended with code 7"),
        ("command = [\"no-such-program\"]", &granted, "cannot run"),
        ("command = [\"true\"]", &granted, "is empty"),
        ("command = [\"echo\", \"abc\"]", &granted, "fewer than 4 bytes"),
        ("command = [\"head\", \"-c\", \"70000\", \"/dev/zero\"]", &granted, "more than 65536 bytes"),
        (env, &flow("run: 'true', secrets: [other]"), "\"other\" is not listed"),
        (env, &flow("run: 'true', secrets: { LD_PRELOAD: api_token }"), "decides which code runs"),
        (env, &flow("run: 'true', secrets: { 'a b': api_token }"), "cannot name one"),
        (env, &flow("run: 'echo $api_token'"), "not granted that secret"),
        (env, &flow("run: 'echo ${{ secrets.api_token }}', secrets: [api_token]"), "not filled into text"),
        (env, &flow("exec: [echo, '${api_token}'], secrets: [api_token]"), "not filled into text"),
        (env, &flow("run: cat, stdin: 'x ${api_token}', secrets: [api_token]"), "not filled into text"),
        (env, &flow("js: '1', secrets: [api_token]"), "sees no variables"),
        (env, &flow("run: 'true', env: { T: x }, secrets: { T: api_token }"), "both env and secrets"),
        (
            env,
            &flow(&format!("run: 'echo ''{VALUE}'' '")),
            "the workflow holds the value of «secret:api_token»",
        ),
    ] {
        let home = home_with(reference);
        home.write("flow.lobster", text);
        let answer = tool(&home, &["flow.lobster"]);
        let said = answer.error();
        assert!(said.contains(message), "{text}: {said}");
        assert_clean_answer(&answer);
        assert!(!home.dir().join("ran").exists(), "{text}: something ran");
    }
    // A name that the operator does not know, and a value among the arguments.
    let home = home_with("env = \"THE_TOKEN\"");
    home.write("unknown.lobster", granted.replace("api_token", "nobody"));
    let said = tool(&home, &["unknown.lobster"]).error();
    assert!(said.contains("it has no source yet") && said.contains("secrets.toml"), "{said}");
    home.write("args.lobster", "args: { t: {} }\nsteps:\n  - { id: a, run: 'touch ran; echo ${t}' }\n");
    let answer =
        tool(&home, &["args.lobster", "--args-json", &serde_json::json!({ "t": VALUE }).to_string()]);
    assert!(answer.error().contains("the arguments of the run hold"), "{answer:?}");
    assert_clean_answer(&answer);
    assert_clean_tree(&home.state());
    assert!(!home.dir().join("ran").exists());
}

#[test]
fn a_policy_lists_the_secrets_that_steps_may_receive() {
    let home = home_with("env = \"THE_TOKEN\"");
    home.write(
        "flow.lobster",
        "secrets: [api_token]\nsteps:\n  - { id: a, exec: [printenv, TOKEN], secrets: { TOKEN: api_token } }\n",
    );
    let policy = |secrets: &str| {
        home.write(
            "policy.toml",
            format!(
                "version = 1\n[sandbox]\nmode = \"degrade\"\nminimum = []\n[sandbox.env]\nsecrets = {secrets}\n\
                 [[rule]]\nid = \"p\"\neffect = \"allow\"\nprogram = \"printenv\"\n"
            ),
        );
        tool(&home, &["--policy", "policy.toml", "flow.lobster"])
    };
    assert!(policy("[]").error().contains("the policy does not let steps receive it"));
    assert_eq!(policy("[\"api_token\"]").output()[0], "«secret:api_token»\n");
}

#[test]
fn a_file_of_references_that_others_may_write_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let home = home_with("env = \"THE_TOKEN\"");
    let file = home.dir().parent().unwrap().join("home/.config/lobster/secrets.toml");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(tool(&home, &["exec echo hi"]).error().contains("others may write to it"));
}

/// A key that lobster itself uses.
const KEY: &str = "sk-live-0123456789-visible";

fn with_key(home: &Home, words: &[&str]) -> crate::home::Call {
    home.lobster(["run", "--mode", "tool"].iter().chain(words))
        .env("OPENAI_API_KEY", KEY)
        .env("CLAWD_TOKEN", KEY)
}

#[test]
fn lobsters_own_tokens_are_not_for_steps_that_do_not_name_them() {
    let home = Home::new();
    home.write("none.lobster", "steps: [{ id: a, run: 'echo \"<$OPENAI_API_KEY$CLAWD_TOKEN>\"' }]")
        .write(
            "named.lobster",
            "steps:\n  - id: a\n    env: { OPENAI_API_KEY: $OPENAI_API_KEY }\n    run: 'echo \"$OPENAI_API_KEY\" >got; \
             echo \"$OPENAI_API_KEY\"; echo \"$OPENAI_API_KEY\" | base64 -w 7; echo \"[$CLAWD_TOKEN]\" >&2'\n",
        )
        .write("own.lobster", "steps: [{ id: a, env: { OPENAI_API_KEY: mine }, run: 'echo $OPENAI_API_KEY' }]");
    assert_eq!(with_key(&home, &["none.lobster"]).run().output(), serde_json::json!(["<>\n"]));
    let inherited = with_key(&home, &["none.lobster"]).env("LOBSTER_INHERIT_TOKENS", "1").run();
    assert!(inherited.stdout.contains("«secret:") && !inherited.stdout.contains(KEY), "{inherited:?}");
    let named = with_key(&home, &["named.lobster"]).run();
    assert_eq!(home.read("got").trim(), KEY);
    assert!(named.stdout.contains("«secret:"), "{named:?}");
    std::fs::remove_file(home.dir().join("got")).unwrap();
    assert_eq!(with_key(&home, &["own.lobster"]).run().output(), serde_json::json!(["mine\n"]));
    // Nothing of it is on record, however it was printed.
    let encoded = "c2stbGl2ZS0wMTIzNDU2Nzg5";
    for (path, bytes) in contents_below(&home.state()) {
        let text = String::from_utf8_lossy(&bytes).replace(['\n', '\\'], "");
        for trace in [KEY, encoded] {
            assert!(!text.contains(trace), "{} holds {trace}", path.display());
        }
    }
    // A text that the author wrote in clear is the author's: the run goes on, and a resume finds it.
    let clear = with_key(&home, &[&format!("exec echo {KEY}")]).run();
    assert!(clear.code() == 0 && !clear.stdout.contains(KEY), "{clear:?}");
}

/// The settings of a run stand in its record: not the keys in the addresses and headers of models.
#[test]
fn keys_in_settings_of_models_are_in_no_record() {
    let key = "k3y-in-a-setting-0123456789";
    let home = Home::new();
    let pool = format!(
        "[{{\"name\":\"a\",\"provider\":\"openai\",\"url\":\"http://127.0.0.1:9/?api_key={key}\",\"headers\":{{\"X-My-Key\":\"{key}\"}}}}]"
    );
    let run = home
        .lobster(["run", "--mode", "tool", "exec echo 1"])
        .env("LOBSTER_LLM_POOL", pool)
        .env("LOBSTER_LLM_HEADERS", format!("{{\"Ocp-Apim-Subscription-Key\":\"{key}\"}}"))
        .env("AZURE_OPENAI_ENDPOINT", format!("https://h/?key={key}"))
        .run();
    assert_eq!(run.code(), 0, "{run:?}");
    assert_nowhere(&home.state(), key);
    let bundle = home.lobster(["bundle", "export", "@", "-o", "b.lobster-bundle"]).run();
    assert_eq!(bundle.code(), 0, "{bundle:?}");
    assert_nowhere(&home.dir(), key);
}

/// What others bring into a run may hold a secret, too: the name of who approves, the data of an event, the name of a
/// file that is put together.
#[test]
fn what_others_bring_leaves_no_trace() {
    let home = home_with("env = \"THE_TOKEN\"");
    // It is found when a run needs it; who answers does not know it.
    let value = "n0t-for-others-0123456789abcdef";
    let token = home.dir().join("token");
    std::fs::write(&token, value).unwrap();
    let config = home.dir().parent().unwrap().join("home/.config/lobster/secrets.toml");
    std::fs::write(config, format!("[secrets.api_token]\nfile = {token:?}\n")).unwrap();
    home.write(
        "flow.lobster",
        "secrets: [api_token]\nsteps:\n\
         \x20 - { id: use, run: ':', secrets: { TOKEN: api_token } }\n\
         \x20 - { id: ask, approval: { prompt: 'Go on?' } }\n\
         \x20 - { id: word, input: { prompt: 'Which?', responseSchema: { type: string } } }\n\
         \x20 - { id: came, wait: { event: go } }\n\
         \x20 - { id: parts, run: 'printf \"{\\\"a\\\":\\\"n0t-for-others-\\\",\\\"b\\\":\\\"0123456789abcdef.lobster\\\"}\"' }\n\
         \x20 - { id: child, on_error: continue, workflow: './$parts.json.a$parts.json.b' }\n\
         \x20 - id: all\n    run: cat\n    stdin: 'by $ask.approvedBy, $word.response, $came.json.x'\n",
    );
    let child = "budget: { day: { calls: 5 } }\nsteps:\n  - id: call\n    on_error: continue\n    pipeline: exec echo x | llm.invoke --provider http --model m --prompt p --max-output-tokens 5\n";
    home.write(&format!("{value}.lobster"), child);
    let lobster = |words: &[&str]| {
        let command = home.lobster(words).env("LOBSTER_APPROVAL_APPROVED_BY", value);
        command.env("LOBSTER_LLM_ADAPTER_URL", "http://127.0.0.1:9/")
    };
    let asked = lobster(&["run", "--mode", "tool", "flow.lobster"]).run();
    let asked = lobster(&["resume", "--token", &asked.token(), "--approve", "yes"]).run();
    let response = format!("\"{value}\"");
    let token = asked.token();
    let done = std::thread::scope(|scope| {
        let words = ["resume", "--token", &token, "--response-json", &response];
        let run = scope.spawn(move || lobster(&words).run());
        while !run.is_finished() {
            let data = format!("{{\"x\":\"{value}\"}}");
            assert_eq!(home.lobster(["event", "send", "go", "--data", &data]).run().code(), 0);
            std::thread::sleep(std::time::Duration::from_millis(500));
        }
        run.join().unwrap()
    });
    let hidden = "«secret:api_token»";
    assert_eq!(done.output()[0], format!("by {hidden}, {hidden}, {hidden}"), "{done:?}");
    for words in [
        &["show", "@", "--full"][..],
        &["show", "@", "--json"],
        &["logs", "@"],
        &["cost", "--json"],
        &["audit"],
    ] {
        let shown = home.lobster(words).run();
        assert!(!shown.stdout.contains(value) && !shown.stderr.contains(value), "{words:?}: {shown:?}");
    }
    let bundle = home.lobster(["bundle", "export", "@", "-o", "run.bundle"]).run();
    assert_eq!(bundle.code(), 0, "{bundle:?}");
    let bundle = std::fs::read(home.dir().join("run.bundle")).unwrap();
    assert!(!String::from_utf8_lossy(&bundle).contains(value));
}
