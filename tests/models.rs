//! Calls of models against a server that plays faults: fail-over, budgets,
//! keys, interrupted calls.

use serde_json::{Value, json};

use crate::home::{Answer, Call, Home, assert_nowhere, wait};
use crate::server::{Reply, Server};

pub(crate) const KEY: &str = "sk-4f2a-never-to-be-seen-9c1e";

pub(crate) fn openai(call: Call, server: &Server) -> Call {
    call.env("OPENAI_BASE_URL", server.url()).env("OPENAI_API_KEY", KEY).env("LOBSTER_LLM_PROVIDER", "openai")
}

pub(crate) fn tool(home: &Home, text: &str) -> Call {
    home.lobster(["run", "--mode", "tool", text])
}

pub(crate) fn text(answer: &Answer) -> String {
    answer.output()[0]["output"]["text"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_pool_fails_over_and_the_next_run_knows() {
    let sick = Server::start(|_, _| Reply::status(429, "retry-after: 60\r\n", "slow down"));
    let cut =
        Server::start(|_, _| Reply::Bytes(b"HTTP/1.1 200 X\r\ncontent-length: 900\r\n\r\n{\"ch".to_vec()));
    let silent = Server::start(|_, _| Reply::Silence);
    let well = Server::start(|_, _| Reply::chat("well"));
    let channel = |name: &str, server: &Server, priority: u32| {
        json!({"name": name, "provider": "openai", "model": "gpt-4o", "url": server.url(), "key_env": "POOL_KEY",
               "priority": priority, "timeout_ms": 400})
    };
    let pool = json!([
        channel("well", &well, 9),
        channel("sick", &sick, 1),
        channel("cut", &cut, 2),
        channel("silent", &silent, 3),
    ]);
    let home = Home::new();
    home.write("pool.json", pool.to_string());
    let ask = |prompt: &str| {
        let call = tool(&home, &format!("llm.invoke --prompt '{prompt}' --disable-cache"));
        call.env("LOBSTER_LLM_POOL", "pool.json").env("POOL_KEY", KEY).run()
    };
    let first = ask("one");
    assert_eq!(text(&first), "well");
    let warnings = first.output()[0]["warnings"].to_string();
    for (name, why) in [("sick", "429"), ("cut", "broke off"), ("silent", "silent for 400 ms")] {
        assert!(
            warnings.contains(&format!("passed over: {name} request failed")) && warnings.contains(why),
            "{warnings}"
        );
    }
    // Another process: what rests is not asked again.
    let second = ask("two");
    assert_eq!(second.output()[0]["warnings"], Value::Null);
    assert_eq!([&sick, &cut, &silent, &well].map(|server| server.requests().len()), [1, 1, 1, 2]);
    // Which hops there were is in the record.
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    let hops = runs.as_array().unwrap().iter().map(|run| {
        let shown = home.lobster(["show", run["id"].as_str().unwrap(), "--json"]).run();
        shown.stdout.matches("\"channel\"").count()
    });
    assert_eq!(hops.max(), Some(4));
}

#[test]
fn a_schema_is_on_the_wire_and_a_misfit_is_asked_again() {
    let server =
        Server::start(|index, _| Reply::chat(["no json", "{\"n\":\"x\"}", "{\"n\":1}"][index.min(2)]));
    let home = Home::new();
    let schema = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}"#;
    let line =
        format!("llm.invoke --prompt p --model gpt-4o --output-schema '{schema}' --max-validation-retries 3");
    let answer = openai(tool(&home, &line), &server).run();
    assert_eq!(answer.output()[0]["output"]["data"], json!({"n": 1}));
    assert_eq!(answer.output()[0]["attemptCount"], 3);
    let requests = server.requests();
    let format = &requests[0].json()["response_format"];
    assert_eq!((&format["type"], &format["json_schema"]["strict"]), (&json!("json_schema"), &json!(true)));
    assert_eq!(format["json_schema"]["schema"], serde_json::from_str::<Value>(schema).unwrap());
    let asked = requests[2].json();
    assert_eq!(asked["messages"][1], json!({"role": "assistant", "content": "{\"n\":\"x\"}"}));
    assert!(asked["messages"][2]["content"].as_str().unwrap().contains("/n must be integer"));

    let claude = Server::start(|_, _| {
        Reply::json(
            &json!({"content": [{"type": "tool_use", "input": {"n": 7}}], "model": "m", "stop_reason": "tool_use"}),
        )
    });
    let line = format!("llm.invoke --provider anthropic --prompt p --model m --output-schema '{schema}'");
    let answer =
        tool(&home, &line).env("ANTHROPIC_BASE_URL", claude.url()).env("ANTHROPIC_API_KEY", KEY).run();
    assert_eq!(answer.output()[0]["output"]["data"], json!({"n": 7}));
    let request = &claude.requests()[0];
    assert_eq!(request.header("x-api-key"), Some(KEY));
    assert_eq!(request.json()["tool_choice"], json!({"type": "tool", "name": "answer"}));
}

#[test]
fn a_key_is_nowhere_but_on_the_wire() {
    // Servers that repeat what they were sent, as badly made ones do.
    let server = Server::start(|index, request| {
        let key = request.header("authorization").unwrap_or_default();
        match index {
            0 => Reply::status(401, "", &format!("wrong key: {key}")),
            1 => Reply::chat(&format!("you sent {key}")),
            _ => Reply::status(500, "", &format!("<p>{key}</p>")),
        }
    });
    let home = Home::new();
    home.write("flow.lobster", "steps:\n  - id: ask\n    pipeline: llm.invoke --prompt p --model m --refresh\n    on_error: continue\n  - id: again\n    pipeline: llm.invoke --prompt p --model m --refresh\n  - id: last\n    pipeline: llm.invoke --prompt p --model m --refresh\n");
    let answer = openai(home.lobster(["run", "--mode", "tool", "flow.lobster"]), &server)
        .env("LOBSTER_LOG", "trace")
        .run();
    assert_eq!(server.requests().len(), 3);
    assert!(server.requests()[0].header("authorization").unwrap().contains(KEY));
    assert!(answer.error().contains("500"), "{answer:?}");
    assert!(!answer.stdout.contains(KEY) && !answer.stderr.contains(KEY), "{answer:?}");
    for words in [vec!["runs", "--json"], vec!["show", "--full"], vec!["logs"]] {
        let said = home.lobster(&words).run();
        assert!(!said.stdout.contains(KEY), "{words:?}");
    }
    for dir in [home.state(), home.dir()] {
        assert_nowhere(&dir, KEY);
    }
}

fn budget(max_usd: f64, extra: &str) -> Home {
    let home = Home::new();
    home.write(
        "flow.lobster",
        format!(
            "cost_limit: {{ max_usd: {max_usd}, action: stop }}\nsteps:\n  - id: ask\n    \
             pipeline: llm.invoke --prompt 'some words' --model gpt-4o --disable-cache {extra}\n    on_error: continue\n"
        ),
    );
    home
}

#[test]
fn a_call_that_might_cost_too_much_is_not_made() {
    let server = Server::start(|_, _| Reply::chat("ok"));
    // 4096 tokens out at 10 dollars a million.
    let home = budget(0.04, "");
    let answer = openai(home.lobster(["run", "--mode", "tool", "flow.lobster"]), &server).run();
    let message = answer.error();
    assert!(
        message.contains("was not made") && message.contains("gpt-4o") && message.contains("$0.04"),
        "{message}"
    );
    assert_eq!(server.requests().len(), 0);

    let home = budget(0.05, "");
    openai(home.lobster(["run", "--mode", "tool", "flow.lobster"]), &server).run().output();
    assert_eq!(server.requests()[0].json()["max_tokens"], 4096, "the bound is on the wire");

    let home = budget(0.01, "--max-output-tokens 500");
    openai(home.lobster(["run", "--mode", "tool", "flow.lobster"]), &server).run().output();
    assert_eq!(server.requests()[1].json()["max_tokens"], 500);
}

#[test]
fn a_call_by_an_adapter_that_might_cost_too_much_is_not_made() {
    for (provider, variable) in [
        ("openclaw", "OPENCLAW_URL"),
        ("pi", "LOBSTER_PI_LLM_ADAPTER_URL"),
        ("http", "LOBSTER_LLM_ADAPTER_URL"),
    ] {
        let server = Server::start(|_, _| {
            Reply::json(
                &json!({"ok": true, "result": {"output": {"text": "ok"}, "model": "gpt-4o", "usage": {"outputTokens": 1}}}),
            )
        });
        let asked = |max_usd: f64, extra: &str| {
            let home = budget(max_usd, &format!("--provider {provider} {extra}"));
            home.lobster(["run", "--mode", "tool", "flow.lobster"]).env(variable, server.url()).run()
        };
        // 4000 tokens out at 10 dollars a million, and the request.
        let answer = asked(0.04, "--max-output-tokens 4000");
        assert!(
            answer.error().contains("was not made, since it may cost up to $0.04"),
            "{provider}: {answer:?}"
        );
        assert_eq!(server.requests().len(), 0, "{provider}");
        asked(0.05, "--max-output-tokens 4000").output();
        // Whatever an adapter is left to choose is counted afterwards, and what it is sent is the incumbent's.
        asked(0.04, "").output();
        let bodies: Vec<Value> = server.requests().iter().map(|request| request.json()).collect();
        let payload = |body: &Value| if provider == "openclaw" { body["args"].clone() } else { body.clone() };
        assert_eq!(payload(&bodies[0])["maxOutputTokens"], 4000, "{provider}");
        assert!(payload(&bodies[1]).get("maxOutputTokens").is_none(), "{provider}");
    }
}

#[test]
fn a_strict_limit_refuses_a_model_without_a_price() {
    let server = Server::start(|_, _| Reply::status(500, "", "down"));
    let run = |limit: &str, pricing: &str| {
        let home = Home::new();
        home.write(
            "flow.lobster",
            format!(
                "cost_limit: {{ max_usd: 0.01, {limit} }}\nsteps:\n  - id: ask\n    \
                 pipeline: llm.invoke --prompt p --model mine --max-output-tokens 4000 --disable-cache\n"
            ),
        );
        let call = home.lobster(["run", "--mode", "tool", "flow.lobster"]);
        let answer =
            call.env("LOBSTER_LLM_ADAPTER_URL", server.url()).env("LOBSTER_LLM_PRICING_JSON", pricing).run();
        (answer.error(), answer.stderr, server.requests().len())
    };
    const UNPRICED: &str = "[WARN] No LLM pricing configured for model \"mine\"";
    let (error, _, asked) = run("action: stop", "");
    assert!(error.contains("model \"mine\" has no price") && error.contains("unpriced: allow"), "{error}");
    assert_eq!(asked, 0);
    let (error, stderr, asked) = run("action: stop, unpriced: allow", "");
    assert!(error.contains("500") && stderr.matches(UNPRICED).count() == 1, "{error} {stderr}");
    assert_eq!(asked, 1);
    let (error, stderr, asked) = run("action: warn", "");
    assert!(error.contains("500") && !stderr.contains(UNPRICED), "nothing was billed: {error} {stderr}");
    assert_eq!(asked, 2);
    let (error, ..) = run("action: stop", r#"{"mine":{"input":0,"output":10}}"#);
    assert!(error.contains("it may cost up to $0.0400"), "{error}");
    // A table that cannot be read is not a table without prices.
    let (error, ..) = run("action: stop, unpriced: allow", r#"{"mine":{"input":"0"}}"#);
    assert!(error.contains("LOBSTER_LLM_PRICING_JSON is not a table of prices"), "{error}");
    let (_, stderr, asked) = run("action: warn", r#"{"mine":{"input":"0"}}"#);
    assert!(stderr.contains("Ignoring invalid LOBSTER_LLM_PRICING_JSON"), "{stderr}");
    assert_eq!(asked, 3);
}

/// A step of which each call may cost a little over a cent.
fn cent(max_usd: f64, more: &str) -> Home {
    let home = Home::new();
    home.write(
        "flow.lobster",
        format!(
            "cost_limit: {{ max_usd: {max_usd}, action: stop }}\nsteps:\n  - id: ask\n    \
             pipeline: llm.invoke --prompt p --model gpt-4o --max-output-tokens 1000 --disable-cache\n{more}"
        ),
    );
    home
}

#[test]
fn a_call_whose_answer_is_lost_counts_with_all_that_it_may_cost() {
    const CUT: &[u8] = b"HTTP/1.1 200 X\r\ncontent-length: 900\r\n\r\n{\"ch";
    type Fault = fn() -> Reply;
    let faults: [(&str, Fault, usize); 7] = [
        ("cut", || Reply::Bytes(CUT.to_vec()), 2),
        ("no json", || Reply::status(200, "", "<html>"), 2),
        ("other json", || Reply::json(&json!({"hello": 1})), 2),
        ("down", || Reply::status(503, "", "overloaded"), 2),
        ("dropped", || Reply::Bytes(Vec::new()), 2),
        // These were certainly not computed.
        ("too many", || Reply::status(429, "", "slow down"), 5),
        ("refused", || Reply::status(409, "", "conflict"), 5),
    ];
    for (name, fault, requests) in faults {
        let server = Server::start(move |_, _| fault());
        let home = cent(0.025, "    retry: {max: 5, delay_ms: 1}\n");
        let answer = openai(home.lobster(["run", "--mode", "tool", "flow.lobster"]), &server).run();
        assert_eq!(server.requests().len(), requests, "{name}: {answer:?}");
        if requests == 2 {
            assert!(answer.error().contains("of the limit of $0.025 is left"), "{name}: {answer:?}");
        }
    }
}

#[test]
fn what_would_be_refused_again_is_not_asked_again() {
    for (status, requests) in
        [(400, 1), (401, 1), (403, 1), (404, 1), (422, 1), (408, 3), (429, 3), (500, 3), (529, 3)]
    {
        let server = Server::start(move |_, _| Reply::status(status, "", "no"));
        let home = Home::new();
        home.write(
            "flow.lobster",
            "steps:\n  - id: ask\n    pipeline: llm.invoke --prompt p --model m\n    retry: {max: 3, delay_ms: 1}\n",
        );
        let answer = openai(home.lobster(["run", "--mode", "tool", "flow.lobster"]), &server).run();
        assert!(answer.error().contains(&status.to_string()), "{answer:?}");
        assert_eq!(server.requests().len(), requests, "{status}");
    }
}

#[test]
fn json_in_a_fence_is_json_and_an_answer_cut_short_is_not_asked_for_again() {
    let fenced = "Here it is:\n```json\n{\"n\": 1}\n```\nAnything else?";
    let server = Server::start(move |index, _| match index {
        0 => Reply::chat(fenced),
        _ => Reply::json(&json!({
            "id": "c", "model": "m", "usage": {"prompt_tokens": 1, "completion_tokens": 5},
            "choices": [{"message": {"content": "{\"n\": "}, "finish_reason": "length"}],
        })),
    });
    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - id: ask\n    retry: {max: 3, delay_ms: 1}\n    pipeline: llm.invoke --prompt p --model m \
         --max-validation-retries 5 --max-output-tokens 5 --refresh --output-schema '{\"type\":\"object\",\"required\":[\"n\"]}'\n",
    );
    let run = || openai(home.lobster(["run", "--mode", "tool", "flow.lobster"]), &server).run();
    assert_eq!(run().output()[0]["output"]["data"], json!({"n": 1}));
    let error = run().error();
    assert!(error.contains("--max-output-tokens"), "{error}");
    assert_eq!(server.requests().len(), 2, "the same limit would cut it again");
}

#[test]
fn what_was_paid_stays_paid_when_a_failure_is_tried_again_in_another_process() {
    let server = Server::start(|_, _| Reply::status(503, "", "overloaded"));
    let home = cent(0.025, "");
    openai(home.lobster(["run", "--mode", "tool", "flow.lobster"]), &server).run();
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    let run = runs[0]["id"].as_str().unwrap().to_owned();
    let mut last = String::new();
    for _ in 0..4 {
        last = openai(home.lobster(["resume", &run]), &server).run().error();
    }
    assert_eq!(server.requests().len(), 2, "{last}");
    assert!(last.contains("Cost limit"), "{last}");
}

#[test]
fn the_record_is_summed_up_by_run_model_workflow_and_day() {
    let server = Server::start(|index, _| match index {
        0 => Reply::chat("ok"),
        _ => Reply::status(503, "", "overloaded"),
    });
    let home = cent(
        0.025,
        "  - id: other\n    pipeline: llm.invoke --prompt q --model gpt-4o-mini --max-output-tokens 1000 --disable-cache\n",
    );
    assert_eq!(home.lobster(["cost"]).run().stdout, "no model calls\n");
    openai(home.lobster(["run", "--mode", "tool", "flow.lobster"]), &server).run();
    let cost = |by: &str| -> Value {
        serde_json::from_str(&home.lobster(["cost", "--by", by, "--json"]).run().stdout).unwrap()
    };
    let by_model = cost("model");
    let body = server.requests()[1].body.len();
    let row = |model: &str| {
        by_model["rows"].as_array().unwrap().iter().find(|row| row["model"] == model).unwrap().clone()
    };
    // 10 tokens in and 5 out, as the server said; the other was lost.
    assert_eq!(
        row("gpt-4o"),
        json!({"model": "gpt-4o", "calls": 1, "lostCalls": 0, "unpricedCalls": 0, "inputTokens": 10,
               "outputTokens": 5, "costUsd": 0.000_075})
    );
    let lost = row("gpt-4o-mini");
    assert_eq!(
        (&lost["lostCalls"], &lost["inputTokens"], &lost["outputTokens"]),
        (&json!(1), &json!(body), &json!(1000))
    );
    for by in ["run", "workflow", "day"] {
        let answer = cost(by);
        assert_eq!(
            (answer["rows"].as_array().unwrap().len(), &answer["total"]["calls"]),
            (1, &json!(2)),
            "{by}"
        );
        assert_eq!(answer["total"], by_model["total"], "{by}");
    }
    assert_eq!(cost("workflow")["rows"][0]["workflow"], "flow");
    let table = home.lobster(["cost", "--by", "model"]).run().stdout;
    assert!(table.contains("gpt-4o-mini") && table.contains("1 lost") && table.contains("total"), "{table}");
    let shown = home.lobster(["show", "@"]).run().stdout;
    assert!(shown.contains("2 model calls: ") && shown.contains("1 lost"), "{shown}");
}

#[test]
fn prices_of_the_operator_are_kept_and_hold() {
    let home = Home::new();
    let config = home.dir().join("config");
    let lobster = |words: &[&str]| home.lobster(words).env("XDG_CONFIG_HOME", &config);
    home.write("new.json", r#"{"gpt-5":{"input":2.5,"output":10},"house-1":{"input":0.125,"output":1}}"#);
    let answer = lobster(&["models", "prices", "--update", "new.json"]).run();
    assert_eq!(answer.code(), 0, "{}", answer.stderr);
    assert!(
        answer.stdout.contains("gpt-5: $2.50 in, $10.00 out (before $1.25 in, $10.00 out)"),
        "{}",
        answer.stdout
    );
    assert!(answer.stdout.contains("house-1: $0.125 in, $1.00 out (no price before)"), "{}", answer.stdout);
    // The rest stays as it was: what comes later is added, all or none.
    home.write("more.json", r#"{"o3":{"input":2,"output":8},"gpt-5":{"input":3,"output":10}}"#);
    assert_eq!(lobster(&["models", "prices", "--update", "more.json"]).run().code(), 0);
    home.write("bad.json", r#"{"o3":{"input":9,"output":8},"gpt-5":{"input":"3","output":10}}"#);
    let refused = lobster(&["models", "prices", "--update", "bad.json"]).run();
    assert_eq!(refused.code(), 1);
    assert!(
        refused.stderr.contains("bad.json is not a table of prices, and nothing was changed"),
        "{}",
        refused.stderr
    );
    let known =
        lobster(&["models", "prices", "openai/gpt-5-2025-08-07", "house-1", "o3", "other", "--json"]).run();
    assert_eq!(known.code(), 1, "{}", known.stderr);
    let known: Value = serde_json::from_str(&known.stdout).unwrap();
    let (price, from) =
        (|at: usize| &known["models"][at]["price"]["input"], |at: usize| &known["models"][at]["from"]);
    assert_eq!((price(0), from(0)), (&json!(3), &json!("prices.json")));
    assert_eq!((price(1), from(1)), (&json!(0.125), &json!("prices.json")));
    assert_eq!((price(2), from(2)), (&json!(2), &json!("prices.json")));
    assert_eq!(known["models"][3], json!({ "model": "other", "price": null }));
    // A limit counts with them, and a table that is of no use stops it.
    let server = Server::start(|_, _| {
        Reply::json(&json!({"ok": true, "result": {"output": {"text": "x"},
        "model": "house-1", "usage": {"inputTokens": 1_000_000, "outputTokens": 1_000_000}}}))
    });
    home.write(
        "f.lobster",
        "cost_limit: {max_usd: 1, action: stop}\nsteps:\n  - id: m\n    pipeline: llm.invoke --prompt p\n",
    );
    let run = || {
        lobster(&["run", "--mode", "tool", "f.lobster"]).env("LOBSTER_LLM_ADAPTER_URL", server.url()).run()
    };
    let over = run();
    assert!(over.error().contains("1.125"), "{}", over.stdout);
    std::fs::write(config.join("lobster/prices.json"), "{").unwrap();
    let stopped = run().error();
    assert!(stopped.contains("prices.json is not a table of prices"), "{stopped}");
}

#[test]
fn a_call_that_was_killed_counts_with_all_that_it_may_cost() {
    let server = Server::start(|_, _| Reply::Silence);
    let home = cent(0.015, "");
    let run = killed_while_asking(&home, &server);
    let answer = openai(home.lobster(["resume", &run, "--retry-interrupted"]), &server).run();
    assert!(answer.error().contains("Cost limit"), "{answer:?}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_pool_under_a_limit_does_not_go_to_a_model_without_a_price() {
    let dear = Server::start(|_, _| Reply::chat("dear"));
    let unpriced = Server::start(|_, _| Reply::chat("unpriced"));
    let pool = json!([
        {"name": "unpriced", "provider": "openai", "model": "gpt-none", "url": unpriced.url(), "priority": 1},
        {"name": "dear", "provider": "openai", "model": "gpt-4o", "url": dear.url(), "priority": 2},
    ]);
    let ask = |max_usd: f64, limit: &str| {
        let home = Home::new();
        home.write("pool.json", pool.to_string());
        home.write(
            "flow.lobster",
            format!(
                "cost_limit: {{ max_usd: {max_usd}, action: stop{limit} }}\nsteps:\n  - id: ask\n    \
                 pipeline: llm.invoke --provider pool --prompt p --max-output-tokens 1000 --disable-cache\n"
            ),
        );
        home.lobster(["run", "--mode", "tool", "flow.lobster"]).env("LOBSTER_LLM_POOL", "pool.json").run()
    };
    for limit in ["", ", unpriced: allow"] {
        assert_eq!(text(&ask(0.02, limit)), "dear", "the one with a price is asked first: {limit}");
        let answer = ask(0.005, limit);
        assert!(answer.error().contains("Cost limit") && answer.error().contains("$0.005"), "{answer:?}");
    }
    assert_eq!((dear.requests().len(), unpriced.requests().len()), (2, 0));
}

#[test]
fn an_answer_that_does_not_fit_is_not_asked_again_above_the_limit() {
    let server = Server::start(|_, _| {
        Reply::json(&json!({"output": {"data": "no"}, "model": "gpt-4o", "usage": {"outputTokens": 2000}}))
    });
    let home = budget(0.01, r#"--output-schema '{"type":"object"}' --max-validation-retries 5"#);
    let answer = home
        .lobster(["run", "--mode", "tool", "flow.lobster"])
        .env("LOBSTER_LLM_ADAPTER_URL", server.url())
        .run();
    assert!(answer.error().contains("Cost limit"), "{answer:?}");
    assert_eq!(server.requests().len(), 1, "one call has passed the limit");
}

/// Kills a run while its model thinks; gives the run's id.
fn killed_while_asking(home: &Home, server: &Server) -> String {
    let mut child = openai(home.lobster(["run", "--mode", "tool", "flow.lobster"]), server).start();
    server.wait_for(1);
    child.kill().unwrap();
    wait(&mut child, &"lobster");
    let runs = home.lobster(["runs", "--interrupted", "--json"]).run();
    let runs: Value = serde_json::from_str(&runs.stdout).unwrap();
    runs[0]["id"].as_str().expect("the run is listed as interrupted").to_owned()
}

#[test]
fn a_call_that_was_cut_off_is_asked_about_before_it_is_paid_again() {
    let server = Server::start(|index, _| if index == 0 { Reply::Silence } else { Reply::chat("second") });
    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - id: ask\n    pipeline: llm.invoke --prompt p --model m --disable-cache\n",
    );
    let run = killed_while_asking(&home, &server);
    let answer = openai(home.lobster(["resume", &run]), &server).run();
    assert!(answer.error().contains("--retry-interrupted"), "{answer:?}");
    assert_eq!(server.requests().len(), 1, "nothing was paid");
    let answer = openai(home.lobster(["resume", &run, "--retry-interrupted"]), &server).run();
    assert_eq!(text(&answer), "second");
}

#[test]
fn an_idempotent_step_is_asked_again_unasked() {
    let server = Server::start(|index, _| if index == 0 { Reply::Silence } else { Reply::chat("second") });
    let home = Home::new();
    home.write("flow.lobster", "steps:\n  - id: ask\n    pipeline: llm.invoke --prompt p --model m --disable-cache\n    idempotent: true\n");
    let run = killed_while_asking(&home, &server);
    assert_eq!(text(&openai(home.lobster(["resume", &run]), &server).run()), "second");
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn a_replay_asks_what_the_run_asked_whatever_is_set_here() {
    let server = Server::start(|_, _| Reply::chat("well"));
    let home = Home::new();
    let line = "llm.invoke --prompt p --model m --max-output-tokens 50";
    let asked = openai(tool(&home, line), &server).env("LOBSTER_RUN_STATE_KEY", "slot1").run();
    assert_eq!(text(&asked), "well");
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    let run = runs[0]["id"].as_str().unwrap();
    for (name, value) in
        [("X", ""), ("OPENAI_BASE_URL", "http://elsewhere"), ("LOBSTER_RUN_STATE_KEY", "two")]
    {
        let replay = home.lobster(["replay", run]).env(name, value).run();
        assert_eq!(replay.code(), 0, "{name}: {replay:?}");
    }
}

#[test]
fn what_an_address_lets_in_is_not_recorded() {
    let home = Home::new();
    let line = "llm.invoke --prompt p --provider openai --model m";
    let address = format!("https://ann:{KEY}@127.0.0.1:1/v1?token={KEY}");
    let answer = tool(&home, line).env("OPENAI_BASE_URL", &address).run();
    assert!(answer.error().contains("user name or password") && !answer.stderr.contains(KEY), "{answer:?}");
    assert_nowhere(&home.state(), KEY);
}

#[test]
fn a_workspace_does_not_decide_what_a_model_has_said() {
    let server = Server::start(|_, _| Reply::chat("{\"ok\": true}"));
    let home = Home::new();
    home.write("policy.toml", "version = 1\n");
    let schema = r#"{"type":"object","required":["ok"]}"#;
    let ask = |words: &[&str], more: &str| {
        let line = format!("llm.invoke --model m --prompt Approve? --output-schema '{schema}' {more}");
        openai(home.lobster(["run", "--mode", "tool"].iter().chain(words).chain(&[line.as_str()])), &server)
            .run()
    };
    let first = ask(&[], "");
    let key = first.output()[0]["cacheKey"].as_str().unwrap().to_owned();
    let file = format!(".lobster-cache/llm.invoke/{key}.json");
    let kept = home.read(&file);
    assert_eq!(ask(&[], "").output()[0]["cached"], true);

    // What does not fit the schema, or answers something else, is as good as none.
    for poisoned in
        [kept.replace("\"ok\": true", "\"no\": 1"), kept.replacen(&key, &"0".repeat(key.len()), 1)]
    {
        assert_ne!(poisoned, kept);
        home.write(&file, &poisoned);
        let before = server.requests().len();
        let answer = ask(&[], "");
        assert_eq!(
            (server.requests().len(), answer.output()[0]["cached"].clone()),
            (before + 1, json!(false))
        );
        assert!(answer.stderr.contains("is not used"), "{answer:?}");
    }

    // Under a policy the workspace is not looked at, and what is kept there is not written to.
    home.write(&file, kept.replace("{\\\"ok\\\": true}", "POISONED"));
    let before = server.requests().len();
    let policy = home.dir().join("policy.toml").display().to_string();
    let answer = ask(&["--policy", &policy], "");
    assert_eq!(answer.output()[0]["cached"], false, "{answer:?}");
    assert!(!answer.stdout.contains("POISONED"), "{answer:?}");
    assert_eq!(server.requests().len(), before + 1);
    assert_eq!(ask(&["--policy", &policy], "").output()[0]["cached"], true);
    assert_eq!(server.requests().len(), before + 1);
    assert!(home.state().join("store/answers/llm.invoke").join(format!("{key}.json")).exists());
}

/// Steps that put an answer where answers are kept, wherever that may be, and then ask for it.
const POISONER: &str = r#"
steps:
  - id: old-place
    exec: [cp, poisoned, .lobster-cache/llm.invoke/KEY.json]
    on_error: continue
  - id: new-place
    exec: [cp, poisoned, STATE/store/answers/llm.invoke/KEY.json]
    on_error: continue
  - id: ask
    pipeline: llm.invoke --model m --prompt Approve?
"#;

#[test]
fn a_jailed_step_does_not_decide_what_a_model_has_said() {
    let server = Server::start(|_, _| Reply::chat("honest"));
    let home = Home::new();
    // The state lies in the workspace, which the step may write.
    let state = home.dir().join("state");
    let policy = "version = 1\n[[rule]]\nid = \"cp\"\neffect = \"allow\"\nprogram = \"cp\"\n\
                  grant = { fs_write = [\"@workspace\"] }\n";
    home.write("policy.toml", policy);
    let policy = home.dir().join("policy.toml").display().to_string();
    let run = |words: &[&str]| {
        let call = home.lobster(["run", "--mode", "tool"].iter().chain(words));
        openai(call, &server).env("LOBSTER_STATE_DIR", &state).run()
    };
    let line = "llm.invoke --model m --prompt Approve?";
    let first = run(&[line]);
    let key = first.output()[0]["cacheKey"].as_str().unwrap().to_owned();
    let old = format!(".lobster-cache/llm.invoke/{key}.json");
    let kept = home.read(&old);
    let poisoned = kept.replace("honest", "POISONED");
    assert_ne!(poisoned, kept);
    home.write("poisoned", poisoned);
    let workflow = POISONER.replace("KEY", &key).replace("STATE", state.to_str().unwrap());
    home.write("w.lobster", workflow);
    // Both places are there, so that it is the jail that keeps the step from them.
    assert_eq!(run(&["--policy", &policy, line]).code(), 0);
    let new = format!("state/store/answers/llm.invoke/{key}.json");
    let answers = [home.read(&old), home.read(&new)];
    assert!(answers.iter().all(|answer| answer.contains("honest")), "{answers:?}");

    let held = run(&["--policy", &policy, "w.lobster"]);
    if ["cannot enforce", "not found"].iter().any(|lack| held.stdout.contains(lack)) {
        return println!("no jail here: {held:?}");
    }
    assert_eq!(held.code(), 0, "{held:?}");
    assert!(!held.stdout.contains("POISONED") && held.stdout.contains("honest"), "{held:?}");
    assert_eq!([home.read(&old), home.read(&new)], answers);
    // Without a policy the same steps say what the model has said.
    let open = run(&["w.lobster"]);
    assert!(open.stdout.contains("POISONED"), "{open:?}");
}
