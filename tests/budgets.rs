//! Budgets: calls, tokens and dollars of a step, a run, a day and the service, across resumes, forks and processes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::home::{Answer, Home};
use crate::models::openai;
use crate::served::{Served, register, token};
use crate::server::{Reply, Server};

fn flow(home: &Home, file: &str, budget: &str, steps: &[&str]) {
    let steps: String = steps
        .iter()
        .enumerate()
        .map(|(at, rest)| {
            format!("  - id: s{at}\n    pipeline: llm.invoke --model gpt-4o --disable-cache --prompt p{at} {rest}\n")
        })
        .collect();
    home.write(file, format!("{budget}\nsteps:\n{steps}"));
}

fn run(home: &Home, server: &Server, file: &str) -> Answer {
    openai(home.lobster(["run", "--mode", "tool", file]), server).run()
}

/// Answers, and says that so many tokens were read and written.
fn reply(input: u64, output: u64) -> Reply {
    Reply::json(&json!({
        "id": "c", "model": "gpt-4o",
        "usage": {"prompt_tokens": input, "completion_tokens": output},
        "choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}],
    }))
}

#[test]
fn each_limit_of_a_run_is_held_and_the_error_says_what_is_used() {
    for (budget, made, expected) in [
        (
            "budget: {calls: 2}",
            2,
            "Budget: the call was not made, since the budget of this run of flow.lobster has used 2 of 2 calls, and \
             this would be one more. Raise budget.calls of the file.",
        ),
        ("budget: {tokens: 1000}", 1, "has used 600 of 1000 tokens, and it may use"),
        ("budget: {usd: 0.01}", 1, "has used $0.00525 of $0.01, and it may cost up to $0.0"),
        ("budget: {calls: 0}", 0, "has used 0 of 0 calls, and this would be one more"),
    ] {
        let server = Server::start(|_, _| reply(100, 500));
        let home = Home::new();
        flow(&home, "flow.lobster", budget, &["--max-output-tokens 500"; 4]);
        let answer = run(&home, &server, "flow.lobster");
        assert!(answer.error().contains(expected), "{budget}: {answer:?}");
        let shown = home.lobster(["show", "@", "--json"]).run().stdout;
        assert!(shown.contains(r#""code": "budget""#), "{budget}: {shown}");
        assert_eq!(server.requests().len(), made, "{budget}");
    }
}

#[test]
fn the_budget_of_a_step_fails_the_step_and_the_run_may_go_on() {
    let server = Server::start(|_, _| reply(10, 10));
    let home = Home::new();
    let ask = "pipeline: llm.invoke --model gpt-4o --disable-cache --prompt p --max-output-tokens 10";
    home.write(
        "flow.lobster",
        format!(
            "budget: {{calls: 4}}\nsteps:\n  - id: list\n    run: echo '[1,2,3,4]'\n  - id: loop\n    budget: {{calls: 2}}\n    \
             on_error: continue\n    for_each: $list.json\n    steps:\n      - id: inner\n        {ask}\n  - id: after\n    {ask}\n  \
             - id: twice\n    budget: {{calls: 1}}\n    retry: {{max: 3, delay_ms: 1}}\n    on_error: continue\n    {ask} | exec --shell 'exit 3'\n"
        ),
    );
    let answer = run(&home, &server, "flow.lobster");
    assert_eq!(answer.code(), 0, "{answer:?}");
    // Two rounds, the step after the loop, and one attempt of the last: the second is refused.
    assert_eq!(server.requests().len(), 4);
    let shown = home.lobster(["show", "@"]).run().stdout;
    assert!(shown.contains("4 of 4 calls used"), "{shown}");
    assert!(
        home.lobster(["show", "@", "--full"])
            .run()
            .stdout
            .contains("the budget of step loop has used 2 of 2 calls"),
        "{shown}"
    );
}

#[test]
fn what_is_lost_stays_used_and_what_was_refused_does_not() {
    type Play = fn(usize) -> Reply;
    let plays: [(&str, Play, usize); 4] = [
        // 429 and 400 cost nothing: the budget of one call is still there afterwards.
        ("429", |at| if at == 0 { Reply::status(429, "", "slow down") } else { reply(1, 1) }, 2),
        ("400", |at| if at == 0 { Reply::status(400, "", "no") } else { reply(1, 1) }, 2),
        ("503", |_| Reply::status(503, "", "overloaded"), 1),
        ("cut", |_| Reply::Bytes(b"HTTP/1.1 200 X\r\ncontent-length: 900\r\n\r\n{\"ch".to_vec()), 1),
    ];
    for (name, play, made) in plays {
        let server = Server::start(move |at, _| play(at));
        let home = Home::new();
        let ask = "pipeline: llm.invoke --model gpt-4o --disable-cache --max-output-tokens 9 --prompt";
        home.write(
            "flow.lobster",
            format!(
                "budget: {{calls: 1}}\nsteps:\n  - {{id: a, on_error: continue, {ask} a}}\n  - {{id: b, {ask} b}}\n"
            ),
        );
        let answer = run(&home, &server, "flow.lobster");
        assert_eq!(server.requests().len(), made, "{name}: {answer:?}");
        assert_eq!(answer.envelope()["ok"], made == 2, "{name}: {answer:?}");
    }
    // A connection that is refused was no call.
    let home = Home::new();
    flow(&home, "flow.lobster", "budget: {calls: 1, day: {calls: 1}}", &["--max-output-tokens 9"]);
    let call = home.lobster(["run", "--mode", "tool", "flow.lobster"]);
    call.env("OPENAI_BASE_URL", "http://127.0.0.1:9").env("LOBSTER_LLM_PROVIDER", "openai").run();
    let server = Server::start(|_, _| reply(1, 1));
    run(&home, &server, "flow.lobster").output();
}

#[test]
fn a_budget_survives_a_resume_and_a_fork_begins_with_its_own() {
    let server = Server::start(|at, _| if at == 2 { Reply::status(500, "", "down") } else { reply(10, 10) });
    let home = Home::new();
    flow(&home, "flow.lobster", "budget: {calls: 3, day: {calls: 5}}", &["--max-output-tokens 9"; 4]);
    let answer = run(&home, &server, "flow.lobster");
    assert!(answer.error().contains("500"), "{answer:?}");
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    let id = runs[0]["id"].as_str().expect("a run").to_owned();
    let resume = |run: &str| {
        openai(home.lobster(["resume", run, "--mode", "tool", "--retry-interrupted"]), &server).run()
    };
    let resumed = resume(&id);
    assert!(resumed.error().contains("has used 3 of 3 calls"), "{resumed:?}");
    assert_eq!(server.requests().len(), 3, "the lost call counts after the resume");

    let fork = openai(home.lobster(["fork", &id, "--from", "s1"]), &server).run();
    assert!(
        fork.stderr
            .contains("budget      3 calls, of which nothing is used: reused results are not counted again"),
        "{fork:?}"
    );
    // One result is reused; of the three that follow, the day has two left.
    assert!(
        fork.stdout.contains("for today (UTC) has used 5 of 5 calls")
            || fork.stderr.contains("has used 5 of 5 calls"),
        "{fork:?}"
    );
    assert_eq!(server.requests().len(), 5);

    let cost = home.lobster(["cost"]).run().stdout;
    assert!(cost.contains("for today (UTC): 5 of 5 calls used"), "{cost}");
    let cost: Value = serde_json::from_str(&home.lobster(["cost", "--json"]).run().stdout).unwrap();
    assert_eq!(cost["budgetsOfToday"][0]["calls"], json!({"limit": 5, "used": 5, "left": 0}), "{cost}");
}

#[test]
fn processes_share_the_budget_of_a_day() {
    let most: Arc<Mutex<usize>> = Arc::default();
    let seen = Arc::clone(&most);
    let server = Server::start(move |_, _| {
        *seen.lock().unwrap() += 1;
        std::thread::sleep(Duration::from_millis(30));
        reply(1, 1)
    });
    let home = Home::new();
    flow(&home, "flow.lobster", "budget: {day: {calls: 7}}", &["--max-output-tokens 9"; 3]);
    let mut running: Vec<_> = (0..6)
        .map(|_| openai(home.lobster(["run", "--mode", "tool", "flow.lobster"]), &server).start_piped())
        .collect();
    for child in &mut running {
        child.wait().unwrap();
    }
    assert_eq!(*most.lock().unwrap(), 7, "eighteen were wanted");
}

#[test]
fn what_cannot_be_held_is_refused_and_check_says_so_before() {
    let server = Server::start(|_, _| reply(1, 1));
    for (budget, step, refused, checked) in [
        (
            "{usd: 1}",
            "--model no-price --provider openai",
            "has no price, so the budget",
            "no-price\\\" has no price",
        ),
        ("{usd: 1}", "--provider http --max-output-tokens 5", "Give --model", ""),
        (
            "{tokens: 9000}",
            "--provider http --model gpt-4o",
            "Give --max-output-tokens",
            "give --max-output-tokens",
        ),
        ("{tokens: 400}", "--model gpt-4o --provider openai", "it may use", "may have 4096 tokens"),
        ("{usd: 0.01}", "--model gpt-4o --provider openai", "it may cost up to", "costs $0.04096"),
    ] {
        let home = Home::new();
        home.write(
            "flow.lobster",
            format!("budget: {budget}\nsteps:\n  - id: s\n    pipeline: llm.invoke --prompt p --disable-cache {step}\n"),
        );
        let call = home.lobster(["run", "--mode", "tool", "flow.lobster"]);
        let answer =
            call.env("OPENAI_BASE_URL", server.url()).env("LOBSTER_LLM_ADAPTER_URL", server.url()).run();
        assert!(answer.error().contains(refused), "{budget}: {answer:?}");
        let said = home.lobster(["check", "--json", "flow.lobster"]).run().stdout;
        match checked {
            "" => {}
            checked => assert!(said.contains("W0817") && said.contains(checked), "{budget}: {said}"),
        }
    }
    assert_eq!(server.requests().len(), 0);
    let home = Home::new();
    home.write("flow.lobster", "steps:\n  - {id: s, run: echo, budget: {calls: 1}}\n");
    let said = home.lobster(["check", "flow.lobster"]).run().stdout;
    assert!(said.contains("W0809") && said.contains("budget limits nothing"), "{said}");
}

#[test]
fn a_budget_is_read_strictly() {
    for (budget, expected) in [
        ("5", "Workflow budget must be an object"),
        ("{}", "Workflow budget limits nothing: it needs calls, tokens or usd"),
        ("{calls: -1}", "Workflow budget.calls must be a whole number, 0 or more"),
        ("{tokens: 1.5}", "Workflow budget.tokens must be a whole number, 0 or more"),
        ("{usd: .inf}", "Workflow budget.usd must be dollars"),
        ("{calls: 1, tokns: 5}", "Workflow budget has no field \"tokns\""),
        ("{day: 3}", "Workflow budget.day must be an object"),
        ("{calls: 1, unpriced: maybe}", "Workflow budget.unpriced must be"),
    ] {
        let home = Home::new();
        home.write("flow.lobster", format!("budget: {budget}\nsteps:\n  - {{id: s, run: 'true'}}\n"));
        let answer = home.tool(["flow.lobster"]);
        assert!(answer.error().contains(expected), "{budget}: {answer:?}");
    }
    let home = Home::new();
    home.write("flow.lobster", "steps:\n  - {id: s, run: 'true', budget: {day: {calls: 1}}}\n");
    let answer = home.tool(["flow.lobster"]);
    assert!(answer.error().contains("budget.day: only the file has a budget for a day"), "{answer:?}");
}

#[test]
fn the_budget_of_a_service_holds_all_that_it_starts() {
    let server = Server::start(|_, _| reply(1, 1));
    let home = Home::new();
    for name in ["one", "two"] {
        flow(&home, &format!("{name}.lobster"), "", &["--max-output-tokens 9"; 2]);
    }
    home.write("serve.toml", "listen = \"127.0.0.1:0\"\n\n[budget]\ncalls = 3\n");
    register(&home, &["one.lobster", "two.lobster"]);
    let operator = token(&home, "operator", None);
    let served = Served::started(openai(home.lobster(["serve", "--config", "serve.toml"]), &server));
    let run = |name: &str| {
        let started = served.post(&operator, &format!("/api/v1/workflows/{name}/runs"), &json!({})).good();
        let id = started["run"].as_str().unwrap_or_else(|| panic!("{started}")).to_owned();
        (served.ended(&operator, &id), id)
    };
    assert_eq!(run("one").0["status"], "ok");
    let (second, id) = run("two");
    assert_eq!(second["status"], "failed", "{second}");
    assert_eq!(server.requests().len(), 3);
    drop(served);
    // It holds also for who takes the run up by hand, and not for other runs.
    let resumed = openai(home.lobster(["resume", &id, "--mode", "tool"]), &server).run();
    let expected = "the budget of the service for today (UTC) has used 3 of 3 calls";
    assert!(resumed.error().contains(expected), "{resumed:?}");
    run_alone(&home, &server);
    let cost = home.lobster(["cost"]).run().stdout;
    assert!(cost.contains("budget of the service for today (UTC): 3 of 3 calls used"), "{cost}");
    // Nothing limits nothing.
    home.write("serve.toml", "listen = \"127.0.0.1:0\"\n\n[budget]\n");
    let refused = home.lobster(["serve", "--config", "serve.toml"]).run();
    assert!(refused.stderr.contains("[budget] limits nothing"), "{refused:?}");
}

fn run_alone(home: &Home, server: &Server) {
    run(home, server, "one.lobster").output();
    assert_eq!(server.requests().len(), 5);
}
