//! Effects whose end nobody has seen, and calls that were sent: neither is done again by itself.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::home::{Answer, Home, newest, wait_until};
use crate::server::{Reply, Server};

const SLOW: &str = "
name: slow
steps:
  - id: pay
    run: echo $$ > pid; echo paid >> effects; exec sleep 60
    retry: { max: 3, delay_ms: 10 }
    on_error: continue
  - id: after
    run: echo after >> effects
";

/// Runs the workflow; once its first step has done its work, the process that `whom` names is killed.
fn killed(workflow: &str, whom: impl Fn(i32) -> i32) -> (Home, Answer) {
    let home = Home::new();
    home.write("flow.lobster", workflow);
    let answer = std::thread::scope(|scope| {
        let running = scope.spawn(|| home.tool(["flow.lobster"]));
        let begun = Instant::now();
        let pid = loop {
            if home.read("effects").contains("paid")
                && let Ok(pid) = home.read("pid").trim().parse::<i32>()
            {
                break pid;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "the step never began");
            std::thread::sleep(Duration::from_millis(10));
        };
        let pid = rustix::process::Pid::from_raw(whom(pid)).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        running.join().unwrap()
    });
    (home, answer)
}

fn parent(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn what_was_killed_from_outside_is_asked_about_and_not_retried() {
    type Whom = fn(i32) -> i32;
    let whoms: [(&str, Whom); 2] = [("the process", |pid| pid), ("its supervisor", parent)];
    for (what, whom) in whoms {
        let (home, answer) = killed(SLOW, whom);
        let error = answer.error();
        assert!(error.contains("interrupted") && error.contains("--retry-interrupted"), "{what}: {answer:?}");
        assert_eq!(home.read("effects"), "paid\n", "{what}");
        // Going on does not repeat it unasked either.
        let run = newest(&home);
        let asked = home.lobster(["resume", &run]).run();
        assert!(asked.error().contains("--retry-interrupted"), "{what}: {asked:?}");
        assert_eq!(home.read("effects"), "paid\n", "{what}");
        // A person who has looked says how to go on.
        let skipped = home.lobster(["resume", &run, "--skip-interrupted"]).run();
        skipped.output();
        assert_eq!(home.read("effects"), "paid\nafter\n", "{what}");
    }
}

#[test]
fn what_may_be_repeated_is() {
    let idempotent = SLOW
        .replace("retry: { max: 3, delay_ms: 10 }", "retry: { max: 2, delay_ms: 10 }\n    idempotent: true")
        // It is killed as soon as it has paid: by then it has left word.
        .replace("echo $$ > pid", "mkdir again && first=yes; echo $$ > pid")
        .replace("exec sleep 60", "[ -z \"$first\" ] || exec sleep 60");
    let (home, answer) = killed(&idempotent, |pid| pid);
    answer.output();
    assert_eq!(home.read("effects"), "paid\npaid\nafter\n");
    // A command of the step that was killed is a failure that the step has seen.
    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - id: a\n    run: \"echo try >> effects; sh -c 'kill -9 $$'; exit $?\"\n    retry: { max: 3, delay_ms: 1 }\n",
    );
    home.tool(["flow.lobster"]).error();
    assert_eq!(home.read("effects"), "try\ntry\ntry\n");
}

/// A call with `retry: {max: 3}`, and how many requests came.
fn calls(extra: &str, tail: &str, reply: fn() -> Reply) -> (usize, Answer) {
    let server = Server::start(move |_, _| reply());
    let home = Home::new();
    home.write(
        "flow.lobster",
        format!(
            "steps:\n  - id: send\n    pipeline: openclaw.invoke --url {} --tool message --action send --args-json '{{}}'{tail}\n    \
             retry: {{ max: 3, delay_ms: 1 }}\n{extra}",
            server.url()
        ),
    );
    let answer = home.tool(["flow.lobster"]);
    (server.requests().len(), answer)
}

#[test]
fn a_call_that_was_sent_is_not_sent_again() {
    let failing: fn() -> Reply = || Reply::status(500, "", "{}");
    let broken: fn() -> Reply = || Reply::Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{".to_vec());
    for reply in [failing, broken] {
        let (sent, answer) = calls("", "", reply);
        assert_eq!((sent, answer.code()), (1, 1), "{answer:?}");
        let (sent, answer) = calls("    idempotent: true\n", "", reply);
        assert_eq!((sent, answer.code()), (3, 1), "{answer:?}");
    }
    // It succeeded; what follows in its pipeline fails.
    let (sent, answer) = calls("", " | exec false", || Reply::json(&json!({"ok": true, "result": [1]})));
    assert_eq!((sent, answer.code()), (1, 1), "{answer:?}");
}

#[test]
fn a_call_that_was_never_sent_is_tried_again() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - id: send\n    pipeline: openclaw.invoke --url http://127.0.0.1:9 --tool message --action send\n    \
         retry: { max: 3, delay_ms: 1 }\n",
    );
    let answer = home.tool(["flow.lobster"]);
    answer.error();
    assert_eq!(answer.stderr.matches("[RETRY]").count(), 2, "{answer:?}");
}

/// A kind of effect and a way to lose its end: the lines of the step that does it.
struct Loss {
    name: &'static str,
    step: &'static str,
    /// Where each of its effects leaves a line.
    log: &'static str,
    /// What the question says.
    told: &'static str,
}

const LOSSES: [Loss; 11] = [
    Loss {
        name: "shell, killed",
        step: "run: echo paid >> effects; kill -9 $$; sleep 5",
        log: "effects",
        told: "killed from outside (SIGKILL)",
    },
    Loss {
        name: "shell, told to end",
        step: "run: echo paid >> effects; kill -TERM $$; sleep 5",
        log: "effects",
        told: "killed from outside (SIGTERM)",
    },
    Loss {
        name: "argv, its supervisor killed",
        step: "exec: [sh, kill.sh]",
        log: "effects",
        told: "supervisor",
    },
    Loss {
        name: "exec stage, killed",
        step: "pipeline: exec --shell 'echo paid >> effects; kill -9 $$; sleep 5'",
        log: "effects",
        told: "killed from outside (SIGKILL)",
    },
    Loss {
        name: "gateway, silent until the step's time is over",
        step: "pipeline: openclaw.invoke --url URL/silent --tool message --action send\n    timeout_ms: 4000",
        log: "requests",
        told: "timed out after 4000ms",
    },
    Loss {
        name: "gateway, silent until the call's time is over",
        step: "pipeline: clawd.invoke --url URL/silent --tool message --action send\n    env: { LOBSTER_HTTP_TIMEOUT_MS: '2000' }",
        log: "requests",
        told: "was silent for 2000 ms",
    },
    Loss {
        name: "gateway, breaks off",
        step: "pipeline: openclaw.invoke --url URL/broken --tool message --action send",
        log: "requests",
        told: "broke off",
    },
    Loss {
        name: "agent, killed",
        step: "pipeline: openclaw.agent --agent ops --prompt pay\n    env: { HOW: 'kill -9 $$' }",
        log: "effects",
        told: "killed from outside (SIGKILL)",
    },
    Loss {
        name: "agent, out of time",
        step: "pipeline: openclaw.agent --agent ops --prompt pay\n    timeout_ms: 4000",
        log: "effects",
        told: "timed out after 4000ms",
    },
    Loss {
        name: "tool of a server that dies",
        step: "mcp: { server: dying, tool: say }",
        log: "calls.log",
        told: "no answer came back",
    },
    Loss {
        name: "tool of a server that is silent",
        step: "mcp: { server: silent, tool: say }",
        log: "calls.log",
        told: "no answer within 4000 ms",
    },
];

/// A step in each of the places where a failure is usually made up for.
fn placed(place: &str, step: &str) -> String {
    let indent = |by: &str| step.replace('\n', &format!("\n{by}"));
    let absorbed = "retry: { max: 3, delay_ms: 1 }\n    on_error: continue";
    match place {
        "a loop" => format!(
            "steps:\n  - id: list\n    run: echo '[1]'\n  - id: each\n    for_each: $list.json\n    {absorbed}\n    steps:\n      - id: pay\n        {}\n        {}\n",
            indent("    "),
            absorbed.replace('\n', "\n    "),
        ),
        "a branch" => format!(
            "steps:\n  - id: both\n    on_error: continue\n    parallel:\n      branches:\n        - id: pay\n          {}\n          {}\n        \
             - {{ id: other, run: 'true' }}\n",
            indent("      "),
            absorbed.replace('\n', "\n      "),
        ),
        _ => format!("steps:\n  - id: pay\n    {step}\n    {absorbed}\n"),
    }
}

/// Runs a step whose end is lost; how often it took effect, and the answer.
fn lost(loss: &Loss, place: &str, idempotent: bool) -> (Home, usize, Answer) {
    let server = Server::start(|_, request| match request.body.windows(6).any(|word| word == b"silent") {
        true => Reply::Silence,
        false => Reply::Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{".to_vec()),
    });
    let home = Home::new();
    // The path is the gateway's own, so the arguments say how it shall answer.
    let step =
        loss.step.replace("URL/silent", &format!("{} --args-json '{{\"how\":\"silent\"}}'", server.url()));
    let step = step.replace("URL/broken", &server.url());
    let step = if idempotent { format!("{step}\n    idempotent: true") } else { step };
    home.write("flow.lobster", placed(place, &step));
    home.write("kill.sh", "echo paid >> effects; kill -9 $PPID; sleep 5\n");
    home.write("agent", "#!/bin/sh\necho paid >> effects\neval \"$HOW\"\nexec sleep 20\n");
    let script = crate::binary::repository().join("tests/mcp/hostile_server.py");
    home.write(
        "lobster.mcp.toml",
        format!(
            "version = 1\n[server.dying]\ncommand = {}\n[server.silent]\ncommand = {}\ntimeout = \"4s\"\n",
            json!(["python3", script, "exit"]),
            json!(["python3", script, "silent"]),
        ),
    );
    let agent = home.dir().join("agent");
    let answer =
        home.lobster(["run", "--mode", "tool", "flow.lobster"]).env("LOBSTER_OPENCLAW_BIN", agent).run();
    let count = match loss.log {
        "requests" => server.requests().len(),
        file => home.read(file).lines().count(),
    };
    (home, count, answer)
}

/// Every kind of effect × every way to lose its end × where it stands, with all that
/// makes up for failures: it takes effect once, and a person is asked.
#[test]
fn an_effect_whose_end_is_lost_is_never_repeated_unasked() {
    let places = ["the file", "a loop", "a branch"];
    let cases: Vec<_> = LOSSES.iter().flat_map(|loss| places.map(|place| (loss, place))).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                while let Some((loss, place)) =
                    cases.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    never_repeated(loss, place);
                }
            });
        }
    });
}

fn never_repeated(loss: &Loss, place: &str) {
    let what = format!("{} in {place}", loss.name);
    let (home, count, answer) = lost(loss, place, false);
    assert_eq!(count, 1, "{what}: {answer:?}");
    let error = answer.error();
    for words in [
        "pay",
        "was interrupted",
        loss.told,
        "is not known",
        "--retry-interrupted",
        "--skip-interrupted",
        "--cancel",
    ] {
        assert!(error.contains(words), "{what}: {words:?} is not in {error}");
    }
    // The history says why, wherever one looks.
    let run = newest(&home);
    let journal = home.lobster(["show", &run, "--json"]).run();
    let journal: Value = serde_json::from_str(&journal.stdout).unwrap();
    let ended: Vec<&Value> = journal
        .as_array()
        .unwrap()
        .iter()
        .map(|record| &record["event"])
        .filter(|event| event["type"] == "step_ended" && !event["outcome"]["detail"]["unknown_end"].is_null())
        .collect();
    assert_eq!(ended.len(), 1, "{what}: {journal}");
    assert_eq!(ended[0]["outcome"]["status"], "interrupted", "{what}");
    assert_eq!(ended[0]["outcome"]["detail"]["unknown_end"]["idempotent"], false, "{what}");
    let listed: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    assert_eq!(listed[0]["status"], "interrupted", "{what}: {listed}");
    assert!(listed[0]["unknownEnds"][0]["reason"].as_str().unwrap().contains(loss.told), "{what}: {listed}");
    for words in [vec!["show", &run], vec!["logs", &run]] {
        let said = home.lobster(&words).run();
        assert!(
            said.stdout.split_whitespace().collect::<Vec<_>>().join(" ").contains(loss.told),
            "{what}: {said:?}"
        );
    }
    // Going on asks again, and repeats nothing.
    let asked = home.lobster(["resume", &run]).run();
    assert!(asked.error().contains(loss.told), "{what}: {asked:?}");
    assert_eq!(home.lobster(["replay", &run]).run().code(), 0, "{what}");
}

#[test]
fn an_effect_that_may_be_repeated_is_retried_whatever_was_lost() {
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                while let Some(loss) = LOSSES.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    let (_, count, answer) = lost(loss, "the file", true);
                    let retries = answer.stderr.matches("[RETRY]").count();
                    assert_eq!((retries, answer.code()), (2, 0), "{}: {answer:?}", loss.name);
                    // A server that hangs in its first call never reads the others.
                    let reads_on = !loss.step.contains("server: silent");
                    assert!(!reads_on || count == 3, "{}: {count}, {answer:?}", loss.name);
                }
            });
        }
    });
}

/// lobster itself was killed: its record has the start alone, and whoever goes on adds what it knows.
#[test]
fn what_lobster_itself_left_behind_is_noted_once() {
    let home = Home::new();
    home.write("flow.lobster", SLOW);
    let mut child = home.lobster(["run", "--mode", "tool", "flow.lobster"]).start();
    wait_until("the step began", || home.read("effects").contains("paid"));
    child.kill().unwrap();
    crate::home::wait(&mut child, &"lobster");
    let run = newest(&home);
    for _ in 0..3 {
        let asked = home.lobster(["resume", &run]).run();
        assert!(asked.error().contains("lobster ended while it was under way"), "{asked:?}");
    }
    let journal = home.lobster(["show", &run, "--json"]).run().stdout;
    assert_eq!(journal.matches("\"unknown_end\": {").count(), 1, "{journal}");
    home.lobster(["resume", &run, "--skip-interrupted"]).run().output();
    assert_eq!(home.read("effects"), "paid\nafter\n");
    let shown = home.lobster(["show", &run]).run().stdout;
    assert!(shown.contains("pay: lobster ended while it was under way; skipped"), "{shown}");
}
