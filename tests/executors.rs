//! Native effects that another program carries out: what it gives is what a step gives here, and
//! whatever goes wrong with it is said, and asked about.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::home::{Answer, Home, interrupted_steps, wait_until};
use crate::{crash, flows};

/// An executor that keeps to the protocol until the one thing that it is told to do wrong.
const FAKE: &str = r#"#!/usr/bin/python3
import base64, json, os, signal, sys

wrong = sys.argv[1]
digest = "%DIGEST%"

def say(**message):
    print(json.dumps(message), flush=True)

if wrong == "say nothing":
    pass
elif wrong == "babble at once":
    print("I am a teapot", flush=True)
elif wrong == "end at once":
    sys.exit(7)
else:
    protocol = 2 if wrong == "another version" else 1
    tasks = ["dancing"] if wrong == "another kind" else ["native", "component", "mcp"]
    say(type="hello", protocol=protocol, version="0", tasks=tasks)
for line in sys.stdin:
    message = json.loads(line)
    kind = message["type"]
    if kind == "submit":
        open("submitted", "a").write(message["order"]["id"]["path"] + "\n")
        if wrong == "refuse":
            say(type="refused", id=message["order"]["id"], why="not today")
        elif wrong == "take no notice":
            pass
        elif wrong == "die":
            sys.exit(3)
        elif wrong == "be killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif wrong == "babble":
            print("I am a teapot", flush=True)
        else:
            say(type="accepted", id=message["order"]["id"])
    elif kind == "wait":
        if wrong == "lose":
            say(type="unseen", id=message["id"], why="it fell off the table")
        elif wrong == "long line":
            print("x" * (17 << 20), flush=True)
        elif wrong == "half a message":
            print('{"type":"ended","id":', end="", flush=True)
            sys.exit(0)
        elif wrong == "unasked bytes":
            say(type="blob", request=999, data="", last=True)
        else:
            blob = {"digest": digest, "len": 5}
            step = {"status": "ok", "exit": 0, "stdout": blob, "duration_us": 1}
            say(type="ended", id=message["id"], outcome={"step": step})
    elif kind == "fetch":
        if wrong == "no blob":
            say(type="no_blob", request=message["request"], why="eaten")
        elif wrong == "no base64":
            say(type="blob", request=message["request"], data="!!!", last=True)
        else:
            data = b"hello" if wrong == "nothing" else b"HELLO"
            say(type="blob", request=message["request"], data=base64.b64encode(data).decode(), last=True)
"#;

const PAY: &str = "
name: pay
steps:
  - id: pay
    run: echo paid >> effects; printf hello
    retry: { max: 3, delay_ms: 1 }
    on_error: continue
  - id: after
    run: echo after >> effects
";

fn run(home: &Home, executor: &str) -> Answer {
    home.lobster(["run", "--mode", "tool", "flow.lobster"]).env("LOBSTER_EXECUTOR", executor).run()
}

fn newest(home: &Home) -> Value {
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    runs[0].clone()
}

#[test]
fn whatever_is_wrong_with_an_executor_is_said_and_the_step_is_asked_about() {
    let digest = lobster_runtime::digest::Digest::of_bytes(b"hello").to_string();
    let wrongs = [
        ("refuse", "executor_refused", "not today"),
        ("die", "executor_died", "ended with code 3"),
        ("be killed", "executor_died", "SIGKILL"),
        ("babble", "executor_garbled", "I am a teapot"),
        ("lose", "executor_died", "it fell off the table"),
        ("long line", "executor_garbled", "a line of more than"),
        ("half a message", "executor_garbled", "type"),
        ("unasked bytes", "executor_garbled", "for an unknown request"),
        ("no blob", "executor_blob", "eaten"),
        ("no base64", "executor_garbled", "base64"),
        ("wrong bytes", "executor_blob", "sent bytes with the digest"),
    ];
    for (wrong, code, words) in wrongs {
        let home = Home::new();
        home.write("flow.lobster", PAY).write("fake.py", FAKE.replace("%DIGEST%", &digest));
        let fake = home.dir().join("fake.py");
        let answer = run(&home, &serde_json::json!([fake, wrong]).to_string());
        let error = answer.error();
        assert!(error.contains(code) && error.contains(words), "{wrong}: {answer:?}");
        assert!(error.contains("fake.py") || error.contains("lost the order"), "{wrong}: {answer:?}");
        assert_eq!(interrupted_steps(&error).collect::<Vec<_>>(), ["pay"], "{wrong}: {answer:?}");
        assert!(home.read("submitted").lines().count() <= 1, "{wrong}: it was tried again");
        let newest = newest(&home);
        assert_eq!(newest["unknownEnds"][0]["end"]["code"], code, "{wrong}: {newest}");
        // Going on asks again, and does as it is told.
        let id = newest["id"].as_str().unwrap().to_owned();
        let asked = home.lobster(["resume", &id]).run().error();
        assert!(asked.contains("--retry-interrupted") && asked.contains(code), "{wrong}: {asked}");
        assert_eq!(home.read("effects"), "", "{wrong}");
        home.lobster(["resume", &id, "--retry-interrupted"]).run().output();
        assert_eq!(home.read("effects"), "paid\nafter\n", "{wrong}");
    }
}

#[test]
fn an_executor_that_says_nothing_is_killed_and_the_step_has_failed() {
    // One reads what it is told and one does not; both live on until they are killed.
    for program in ["#!/bin/sh\nexec sleep 60\n", "#!/bin/sh\nexec python3 fake.py 'say nothing'\n"] {
        let home = Home::new();
        home.write("flow.lobster", PAY).write("silent", program).write("fake.py", FAKE);
        let executor = serde_json::json!([home.dir().join("silent")]).to_string();
        let run = |patience: &str| {
            let run =
                home.lobster(["run", "--mode", "tool", "flow.lobster"]).env("LOBSTER_EXECUTOR", &executor);
            run.env("LOBSTER_EXECUTOR_HELLO_MS", patience).run()
        };
        let answer = run("700");
        let error = answer.error();
        assert!(error.contains("within 700 ms. Nothing was sent to it"), "{answer:?}");
        assert_failed(&home, &error);
        assert_eq!((home.read("effects"), home.read("submitted")), (String::new(), String::new()));
        home.assert_deserted();
        for wrong in ["0", "soon", "-1"] {
            let answer = run(wrong);
            assert!(
                answer.code() != 0 && format!("{answer:?}").contains("LOBSTER_EXECUTOR_HELLO_MS"),
                "{answer:?}"
            );
        }
    }
}

#[test]
fn an_executor_that_does_not_answer_an_order_is_killed_and_the_step_is_asked_about() {
    let home = Home::new();
    home.write("flow.lobster", PAY).write("fake.py", FAKE);
    let executor = serde_json::json!([home.dir().join("fake.py"), "take no notice"]).to_string();
    let run = home.lobster(["run", "--mode", "tool", "flow.lobster"]).env("LOBSTER_EXECUTOR", executor);
    let answer = run.env("LOBSTER_EXECUTOR_HELLO_MS", "8000").run();
    let error = answer.error();
    assert!(error.contains("executor_died") && error.contains("did not answer within 8000 ms"), "{answer:?}");
    assert_eq!(interrupted_steps(&error).collect::<Vec<_>>(), ["pay"], "{answer:?}");
    assert_eq!((home.read("effects"), home.read("submitted")), (String::new(), "pay\n".to_owned()));
}

#[test]
fn an_executor_that_is_not_there_is_named() {
    let home = Home::new();
    home.write("flow.lobster", PAY);
    for executor in ["/no/such/executor --at all", "[\"/no/such/executor\"]"] {
        let error = run(&home, executor).error();
        assert!(error.contains("/no/such/executor") && error.contains("cannot be started"), "{error}");
        assert_failed(&home, &error);
    }
    for (executor, words) in [("[1]", "is not a JSON list of strings"), ("[]", "names no program")] {
        let answer = run(&home, executor);
        assert!(answer.code() != 0 && format!("{answer:?}").contains(words), "{answer:?}");
    }
    assert_eq!(home.read("effects"), "");
}

#[test]
fn an_executor_that_is_of_no_use_from_the_start_is_sent_nothing_and_the_step_has_failed() {
    for (wrong, words) in [
        ("another version", "speaks version 2 of the protocol, this lobster speaks 1"),
        ("babble at once", "I am a teapot"),
        ("end at once", "ended with code 7"),
        ("another kind", "it carries out no \"native\" tasks"),
    ] {
        let home = Home::new();
        home.write("flow.lobster", PAY).write("fake.py", FAKE);
        let error = run(&home, &serde_json::json!([home.dir().join("fake.py"), wrong]).to_string()).error();
        assert!(error.contains(words) && error.contains("Nothing was sent to it"), "{wrong}: {error}");
        assert_failed(&home, &error);
        assert_eq!((home.read("effects"), home.read("submitted")), (String::new(), String::new()), "{wrong}");
    }
}

/// Where no order was sent, nothing is to be asked: no step may have had an effect.
fn assert_failed(home: &Home, error: &str) {
    assert_eq!(interrupted_steps(error).count(), 0, "{error}");
    let newest = newest(home);
    assert_eq!(newest["status"], "failed", "{newest}");
    assert_eq!(newest["unknownEnds"].as_array().map_or(0, Vec::len), 0, "{newest}");
}

#[test]
fn one_that_keeps_to_the_protocol_is_believed() {
    let digest = lobster_runtime::digest::Digest::of_bytes(b"hello").to_string();
    let home = Home::new();
    home.write("flow.lobster", "steps:\n  - id: a\n    run: echo never started here > effects\n")
        .write("fake.py", FAKE.replace("%DIGEST%", &digest));
    let answer = run(&home, &serde_json::json!([home.dir().join("fake.py"), "nothing"]).to_string());
    assert_eq!(answer.output(), serde_json::json!(["hello"]), "{answer:?}");
    assert_eq!((home.read("effects"), home.read("submitted")), (String::new(), "a\n".to_owned()));
}

#[test]
fn a_killed_worker_is_an_unknown_end_and_takes_its_steps_along() {
    let home = Home::new();
    home.write("worker", format!("#!/bin/sh\necho $$ > worker.pid\nexec {}\n", shell_words(&Home::worker())))
        .write("flow.lobster", PAY.replace("printf hello", "echo $$ > step.pid; exec sleep 300"));
    let worker = home.dir().join("worker");
    let answer = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(&home, &serde_json::json!([worker]).to_string()));
        wait_until("the step began", || !home.read("step.pid").trim().is_empty());
        signal(&home.read("worker.pid"), rustix::process::Signal::KILL);
        running.join().unwrap()
    });
    let error = answer.error();
    assert!(error.contains("executor_died") && error.contains("SIGKILL"), "{answer:?}");
    assert_eq!(interrupted_steps(&error).collect::<Vec<_>>(), ["pay"]);
    assert_eq!(home.read("effects"), "paid\n");
    wait_until("the step ends with its worker", || {
        !std::path::Path::new(&format!("/proc/{}", home.read("step.pid").trim())).exists()
    });
    let listed = newest(&home);
    assert_eq!(listed["status"], "interrupted", "{listed}");
}

pub(crate) fn signal(pid: &str, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// A JSON list of words that need no quoting, as the shell reads them.
pub(crate) fn shell_words(list: &str) -> String {
    let words: Vec<String> = serde_json::from_str(list).unwrap();
    words.join(" ")
}

#[test]
fn what_goes_through_a_worker_arrives_whole() {
    let home = Home::new().with_worker(true);
    // More than a pipe, a message and an inline blob hold; and a failure with its words.
    home.write(
        "flow.lobster",
        "
steps:
  - id: big
    run: head -c 3000000 /dev/zero | tr '\\0' x
  - id: count
    run: wc -c
    stdin: $big.stdout
  - id: small
    run: cat; echo \"$NAME\" >&2
    stdin: '{\"a\": [1, 2]}'
    env: { NAME: wörld }
  - id: bad
    run: echo too bad >&2; exit 7
    on_error: continue
  - id: end
    pipeline: \"exec --json --shell 'echo [1,2]'\"
",
    );
    let answer = home.tool(["flow.lobster"]);
    assert_eq!(answer.output(), serde_json::json!([1, 2]), "{answer:?}");
    let id = newest(&home)["id"].as_str().unwrap().to_owned();
    let logs = |step: &str| home.lobster(["logs", &id, step]).run();
    assert!(format!("{:?}", logs("count")).contains("3000000"), "{:?}", logs("count"));
    assert!(format!("{:?}", logs("small")).contains("wörld"), "{:?}", logs("small"));
    assert!(format!("{:?}", logs("bad")).contains("too bad"), "{:?}", logs("bad"));
    let replayed = home.lobster(["replay", &id]).run();
    assert_eq!(replayed.code(), 0, "{replayed:?}");
}

#[test]
fn a_secret_reaches_a_step_of_a_worker_and_nothing_else() {
    const VALUE: &str = "v3ry-s3cret-0123456789";
    let home = Home::new().with_worker(true);
    let config = home.dir().parent().unwrap().join("home/.config/lobster");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("secrets.toml"), "[secrets.api_token]\ncommand = [\"cat\", \"value\"]\n")
        .unwrap();
    home.write("value", VALUE).write(
        "flow.lobster",
        "secrets: [api_token]\nsteps:\n  - id: a\n    run: test \"$TOKEN\" = \"$(cat value)\" && echo \"same $TOKEN\"\n    \
         secrets: { TOKEN: api_token }\n",
    );
    let answer = home.tool(["flow.lobster"]);
    let output = answer.output().to_string();
    assert!(output.contains("same") && !answer.stdout.contains(VALUE), "{answer:?}");
}

#[test]
fn some_flows_and_crashes_go_through_a_worker() {
    let names = ["exec-argv", "parallel-any", "retry", "shell-and-references", "sub-workflow", "timeout"];
    flows::run_with_worker(&names).unwrap();
    let crashed = crash::crash_with_worker((1..40).step_by(6));
    assert!(crashed >= 5, "only {crashed} points were passed");
}

#[test]
fn a_worker_that_is_not_told_right_says_so_and_ends() {
    let home = Home::new();
    let hello = "{\"type\":\"hello\",\"protocol\":1,\"version\":\"0\"}\n";
    for (said, words) in [
        ("teapot\n".to_owned(), "is not a request"),
        ("{\"type\":\"hello\",\"protocol\":9}\n".to_owned(), "its lobster speaks 9"),
        (format!("{hello}{hello}"), "hello, twice"),
        (format!("{hello}{{\"type\":\"submit\",\"order\":{{}}}}\n"), "is not a request"),
        (
            format!(
                "{hello}{{\"type\":\"blob\",\"digest\":\"{}\",\"data\":\"YQ==\",\"last\":true}}\n",
                "0".repeat(64)
            ),
            "came as the blob",
        ),
    ] {
        let answer = home.lobster(["worker", "--stdio"]).stdin(said.clone()).run();
        assert_eq!(answer.code(), 1, "{said}: {answer:?}");
        assert!(answer.stdout.contains(words) && answer.stderr.contains(words), "{said}: {answer:?}");
        assert!(answer.stdout.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{answer:?}");
    }
    // An order of a kind or with a field that it does not know is no reason to end.
    let id = serde_json::json!({"run": "01978f00-0000-7000-8000-000000000000", "path": "a", "attempt": 1});
    for (task, words) in [
        (serde_json::json!({"kind": "dancing"}), "\"dancing\""),
        (serde_json::json!({"kind": "http", "zz": 1}), "`zz`"),
    ] {
        let order = serde_json::json!({"id": id, "action": "0".repeat(64), "task": task});
        let other = serde_json::json!({"type": "submit", "order": order});
        let answer = home.lobster(["worker", "--stdio"]).stdin(format!("{hello}{other}\n")).run();
        assert_eq!(answer.code(), 0, "{answer:?}");
        let said: Value = serde_json::from_str(answer.stdout.lines().nth(1).unwrap()).unwrap();
        assert_eq!((&said["type"], &said["id"]), (&"refused".into(), &id), "{answer:?}");
        assert!(said["why"].as_str().unwrap().contains(words), "{answer:?}");
    }
    let answer = home.lobster(["worker", "--stdio"]).stdin(hello).run();
    assert_eq!((answer.code(), answer.stdout.lines().count()), (0, 1), "{answer:?}");
    // What it never had it does not pretend to know.
    let id = "{\"run\":\"01978f00-0000-7000-8000-000000000000\",\"path\":\"a\",\"attempt\":1}";
    let asked = format!("{hello}{{\"type\":\"look\",\"id\":{id}}}\n{{\"type\":\"wait\",\"id\":{id}}}\n");
    let answer = home.lobster(["worker", "--stdio"]).stdin(asked).run();
    assert_eq!(answer.code(), 0, "{answer:?}");
    let said: Vec<Value> = answer.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (&said[1]["standing"]["is"], &said[2]["type"]),
        (&"unknown".into(), &"unseen".into()),
        "{answer:?}"
    );
}

/// A worker that writes down what it is told, in `told`.
pub(crate) fn with_noted_worker(home: &Home) -> String {
    let worker = format!("#!/bin/sh\ntee -a told | {}\n", shell_words(&Home::worker()));
    home.write("noted-worker", worker);
    serde_json::json!([home.dir().join("noted-worker")]).to_string()
}

/// The orders that a noted worker was given.
pub(crate) fn orders(home: &Home) -> Vec<Value> {
    let told = home.read("told");
    let told = told.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    told.filter(|message| message["type"] == "submit").map(|message| message["order"].clone()).collect()
}

fn guest(name: &str) -> Vec<u8> {
    std::fs::read(crate::binary::repository().join("tests/guests/dist").join(name)).unwrap()
}

#[test]
fn components_that_are_effects_go_through_a_worker() {
    let home = Home::new();
    let digest = lobster_runtime::digest::Digest::of_bytes(b"of an earlier step").to_string();
    let big = "x".repeat(70_000);
    home.write("hostile.wasm", guest("hostile.wasm")).write("files.wasm", guest("files.wasm"));
    home.write("in/given", "given").write("out/kept", "kept").write("items.json", format!("[\"{digest}\"]"));
    let (begin, end) = digest.split_at(20);
    home.write(
        "flow.lobster",
        format!(
            "
steps:
  - id: text
    run: printf 'of an earlier step'
  - id: named
    component: hostile.wasm
    args: {{ do: blob, begin: \"{digest}\", long: {big} }}
    grants: {{ clock: true }}
  - id: items
    run: cat items.json
  - id: given
    component: hostile.wasm
    args: {{ do: blob-of-input }}
    stdin: $items.json
    grants: {{ clock: true }}
  - id: value
    component: hostile.wasm
    args: {{ do: blob-by-state, begin: \"{begin}\", end: \"{end}\" }}
    grants: {{ clock: true }}
    on_error: continue
  - id: files
    component: files.wasm
    grants: {{ clock: true, read: [{{ from: in, to: /r }}], write: [{{ from: out, to: /w }}] }}
  - id: pure
    component: hostile.wasm
    args: {{ do: blob, begin: \"{digest}\" }}
  - id: last
    run: echo \"$A, $B, $C\"
    env: {{ A: $named.stdout, B: $given.stdout, C: $files.stdout }}
"
        ),
    );
    let worker = with_noted_worker(&home);
    let answer = run(&home, &worker);
    let output = answer.output().to_string();
    assert_eq!(output.matches("of an earlier step").count(), 2, "{answer:?}");
    assert!(output.contains("files are as C has them"), "{answer:?}");
    assert_eq!(home.read("out/sub/moved"), "0123");
    let orders = orders(&home);
    let kinds: Vec<_> = orders.iter().map(|order| order["task"]["kind"].as_str().unwrap()).collect();
    // What is pure reaches nothing and is computed at home.
    let expected = ["native", "component", "native", "component", "component", "component", "native"];
    assert_eq!(kinds, expected, "{answer:?}");
    assert!(orders[1]["task"]["args"]["blob"]["len"].as_u64().unwrap() > 70_000, "{}", orders[1]);
    assert_eq!(orders[3]["task"]["blobs"][0]["digest"], digest.as_str(), "{}", orders[3]);
    // The values that a component keeps come home, whatever became of it.
    let id = newest(&home)["id"].as_str().unwrap().to_owned();
    let failed = home.lobster(["show", &id, "--full"]).run();
    assert!(failed.stdout.contains("not given blob"), "{failed:?}");
    let store = lobster_runtime::store::Store::open(&home.state()).unwrap();
    assert_eq!(store.run_value(id.parse().unwrap(), "mine").unwrap(), Some(digest.into()));
    drop(store);
    let replayed = home.lobster(["replay", &id]).run();
    assert_eq!(replayed.code(), 0, "{replayed:?}");
    // The same action without a worker: what the journal has of it is the same.
    std::fs::remove_dir_all(home.dir().join("out")).unwrap();
    home.write("out/kept", "kept");
    let alone = home.tool(["flow.lobster"]);
    assert_eq!(alone.output(), answer.output());
    let other = newest(&home)["id"].as_str().unwrap().to_owned();
    let compared = home.lobster(["diff", &id, &other]).run();
    assert!(!compared.stdout.contains("differs"), "{compared:?}");
}

#[test]
fn a_component_whose_worker_is_killed_has_an_unknown_end() {
    let home = Home::new();
    let spins =
        "(module (memory (export \"memory\") 1) (func (export \"_start\") (loop $again (br $again))))";
    home.write("spins.wasm", wat::parse_str(spins).unwrap())
        .write("worker", format!("#!/bin/sh\necho $$ > worker.pid\nexec {}\n", shell_words(&Home::worker())))
        .write(
            "flow.lobster",
            "steps:\n  - id: spin\n    component: spins.wasm\n    \
             grants: { clock: true }\n    limits: { fuel: 9000000000000 }\n    retry: { max: 3, delay_ms: 1 }\n",
        );
    let worker = serde_json::json!([home.dir().join("worker")]).to_string();
    let answer = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(&home, &worker));
        wait_until("the step began", || running.is_finished() || worker_is_busy(&home));
        signal(&home.read("worker.pid"), rustix::process::Signal::KILL);
        running.join().unwrap()
    });
    let error = answer.error();
    assert!(error.contains("executor_died") && error.contains("SIGKILL"), "{answer:?}");
    assert_eq!(interrupted_steps(&error).collect::<Vec<_>>(), ["spin"]);
}

/// Whether the worker has used processor time of its own: more than starting takes.
fn worker_is_busy(home: &Home) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{}/stat", home.read("worker.pid").trim())) else {
        return false;
    };
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let used = after_name.split_whitespace().nth(11).and_then(|ticks| ticks.parse::<u64>().ok());
    used.is_some_and(|ticks| ticks > 100)
}

/// A home with the server of `tests/mcp`, in this manner.
fn with_server(mode: &str) -> Home {
    let home = Home::new();
    let script = crate::binary::repository().join("tests/mcp/hostile_server.py");
    let command = serde_json::json!(["python3", script, mode, "Says it back."]);
    home.write(
        "lobster.mcp.toml",
        format!("version = 1\n[server.s]\ncommand = {command}\ntimeout = \"60s\"\n"),
    );
    home
}

#[test]
fn tool_calls_of_a_worker_share_a_session_that_ends_with_the_run() {
    let home = with_server("good");
    home.write(
        "flow.lobster",
        "
steps:
  - id: list
    run: echo '[1, 2, 3]'
  - id: each
    for_each: $list.json
    steps:
      - id: ask
        mcp: { server: s, tool: say }
        args: { text: hi }
  - id: again
    pipeline: \"mcp.call --server s --tool say --args-json '{\\\"text\\\":\\\"ho\\\"}'\"
  - id: refused
    mcp: { server: s, tool: say }
    args: { text: 7 }
    on_error: continue
",
    );
    let worker = with_noted_worker(&home);
    let answer = run(&home, &worker);
    answer.output();
    assert_eq!(home.read("calls.log").lines().count(), 4, "{answer:?}");
    let orders: Vec<_> = orders(&home).into_iter().filter(|order| order["task"]["kind"] == "mcp").collect();
    assert_eq!(orders.len(), 5, "{orders:?}");
    // The first one opens the session that the others use, and it is decided about once.
    assert!(orders[0]["task"]["reach"]["program"].is_object(), "{orders:?}");
    for later in &orders[1..] {
        assert_eq!(later["task"]["reach"], Value::Null, "{later}");
        assert_eq!(later["task"]["session"], orders[0]["id"], "{later}");
    }
    let pid: i32 = home.read("server.pid").trim().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    assert!(rustix::process::test_kill_process(pid).is_err(), "the server is still there");
    let id = newest(&home)["id"].as_str().unwrap().to_owned();
    let replayed = home.lobster(["replay", &id]).run();
    assert_eq!(replayed.code(), 0, "{replayed:?}");
}

#[test]
fn a_tool_call_whose_worker_is_killed_has_an_unknown_end_and_is_made_once() {
    let home = with_server("silent");
    home.write("worker", format!("#!/bin/sh\necho $$ > worker.pid\nexec {}\n", shell_words(&Home::worker())))
        .write(
            "flow.lobster",
            "steps:\n  - id: ask\n    mcp: { server: s, tool: say }\n    args: { text: hi }\n    \
             retry: { max: 3, delay_ms: 1 }\n    on_error: continue\n",
        );
    let worker = serde_json::json!([home.dir().join("worker")]).to_string();
    let answer = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(&home, &worker));
        wait_until("the call went out", || running.is_finished() || !home.read("calls.log").is_empty());
        signal(&home.read("worker.pid"), rustix::process::Signal::KILL);
        running.join().unwrap()
    });
    let error = answer.error();
    assert!(error.contains("executor_died") && error.contains("SIGKILL"), "{answer:?}");
    assert_eq!(interrupted_steps(&error).collect::<Vec<_>>(), ["ask"]);
    assert_eq!(home.read("calls.log").lines().count(), 1, "it was called again");
    wait_until("the server ends with the worker", || {
        !std::path::Path::new(&format!("/proc/{}", home.read("server.pid").trim())).exists()
    });
}

#[test]
fn an_executor_that_carries_out_processes_alone_is_given_nothing_else() {
    for (step, kind) in [
        ("component: spins.wasm\n    grants: { clock: true }", "component"),
        ("mcp: { server: s, tool: say }\n    args: { text: hi }", "mcp"),
        ("pipeline: openclaw.invoke --url http://127.0.0.1:9 --tool t --action a", "http"),
    ] {
        let home = with_server("good");
        let fake = FAKE.replace("[\"native\", \"component\", \"mcp\"]", "[\"native\"]");
        let spins = wat::parse_str("(module (memory (export \"memory\") 1) (func (export \"_start\")))");
        home.write("spins.wasm", spins.unwrap()).write("fake.py", fake);
        home.write("flow.lobster", format!("steps:\n  - id: it\n    {step}\n"));
        let answer = run(&home, &serde_json::json!([home.dir().join("fake.py"), "nothing"]).to_string());
        let error = answer.error();
        let words = format!("it carries out no {kind:?} tasks");
        assert!(error.contains(&words) && error.contains("Nothing was sent to it"), "{answer:?}");
        assert_failed(&home, &error);
        assert_eq!((home.read("submitted"), home.read("calls.log")), (String::new(), String::new()));
    }
}

/// A server whose approved program somebody replaces is cut off, wherever it runs, and the call that
/// it had is asked about.
#[test]
fn a_server_whose_approved_file_is_replaced_is_cut_off() {
    const POLICY: &str = "version = 1\n[sandbox]\nmode = \"degrade\"\nminimum = []\n[sandbox.fs]\n\
                          read = [\"@system-ro\", \"@workspace\"]\nwrite = [\"@workspace\", \"@tmp\"]\n\
                          [sandbox.env]\npass = [\"PATH\"]\n";
    for has_worker in [false, true] {
        let home = Home::new().with_worker(has_worker);
        let python = crate::binary::repository().join("tests/mcp/hostile_server.py");
        home.write("p.toml", POLICY)
            .write("server.py", std::fs::read(python).unwrap())
            .write("server.sh", "#!/bin/sh\nexec python3 server.py silent\n")
            .write("other.sh", "#!/bin/sh\necho other\n")
            .write(
                "lobster.mcp.toml",
                "version = 1\n[server.s]\ncommand = [\"./server.sh\"]\ntimeout = \"50s\"\n",
            )
            .write(
                "flow.lobster",
                "steps:\n  - id: ask\n    mcp: { server: s, tool: say }\n    args: { text: hi }\n",
            );
        assert_eq!(home.lobster(["mcp", "lock"]).run().code(), 0);
        let call = |words: &[&str]| {
            let config = home.dir().join("lobster.mcp.toml");
            let call = home.lobster(words).env("LOBSTER_POLICY", home.dir().join("p.toml"));
            call.env("LOBSTER_MCP_CONFIG", config).run()
        };
        let asked = call(&["run", "--mode", "tool", "flow.lobster"]);
        assert_eq!(asked.envelope()["status"], "needs_approval", "{asked:?}");
        let token = asked.token();
        let begun = Instant::now();
        let answer = std::thread::scope(|scope| {
            let running = scope.spawn(|| call(&["resume", "--token", &token, "--approve", "yes"]));
            while home.read("calls.log").is_empty() {
                assert!(!running.is_finished(), "{:?}", running.join());
                assert!(begun.elapsed() < Duration::from_secs(30), "the call never went out");
                std::thread::sleep(Duration::from_millis(5));
            }
            std::fs::rename(home.dir().join("other.sh"), home.dir().join("server.sh")).unwrap();
            running.join().unwrap()
        });
        let error = answer.error();
        assert!(error.contains("is no longer what was approved"), "{answer:?}");
        assert_eq!(interrupted_steps(&error).collect::<Vec<_>>(), ["ask"], "{answer:?}");
        assert!(begun.elapsed() < Duration::from_secs(45), "it was not cut off: {answer:?}");
    }
}
