use lobster_base::code::Code;
use std::time::{Duration, Instant};

use super::super::email_triage;
use super::super::recording_host::{Action, RecordingHost, error_of, run};
use super::*;
use crate::http_server::{Answer, Server};
use lobster_base::cancel::CancelReason;
use lobster_models::cost::{CostTracker, Spending};
use lobster_models::pricing::Pricing;

const SCHEMA: &str = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;

fn host(server: &Server) -> RecordingHost {
    let mut host = RecordingHost::new();
    host.set("LOBSTER_LLM_ADAPTER_URL", &server.url(""));
    let cache = host.state_dir().join("cache");
    host.set("LOBSTER_CACHE_DIR", &cache.display().to_string());
    host
}

fn answer(output: Value) -> Answer {
    Answer::json(&json!({"ok": true, "result": {"output": output}}))
}

fn one(args: &Value, host: &mut RecordingHost) -> Value {
    run(&INVOKE, args, vec![], host).unwrap().remove(0)
}

fn failure(args: &Value, host: &mut RecordingHost) -> String {
    error_of(run(&INVOKE, args, vec![], host)).message
}

fn kinds(host: &RecordingHost) -> Vec<String> {
    host.recorded_effects().into_iter().map(|(action, _)| action.kind).collect()
}

#[test]
fn every_field_of_an_answer_comes_through_in_order() {
    let server = Server::start([Answer::json(&json!({"ok": true, "result": {
        "output": {"text": "t", "data": {"a": [1]}, "format": "json"}, "runId": "r1", "model": "m9", "prompt": "seen",
        "status": "done", "usage": {"inputTokens": 3}, "warnings": ["w"], "metadata": {"k": 1}, "diagnostics": {"ms": 5},
    }}))]);
    let mut host = host(&server);
    let mut item = one(&json!({"prompt": "p"}), &mut host);
    assert!(item["createdAt"].take().as_str().is_some_and(|at| at.ends_with('Z') && at.len() == 24));
    assert_eq!(item["cacheKey"].take().as_str().map(str::len), Some(64));
    assert_eq!(
        item.to_string(),
        r#"{"kind":"llm.invoke","runId":"r1","prompt":"seen","model":"m9","schemaVersion":"v1","status":"done","cacheKey":null,"artifactHashes":[],"output":{"format":"json","text":"t","data":{"a":[1]}},"usage":{"inputTokens":3},"metadata":{"k":1},"warnings":["w"],"diagnostics":{"ms":5},"createdAt":null,"source":"http","cached":false,"attemptCount":1}"#
    );
    assert_eq!(server.requests()[0].path, "/invoke");
    assert_eq!(
        server.requests()[0].body,
        r#"{"prompt":"p","artifacts":[],"artifactHashes":[],"schemaVersion":"v1"}"#
    );
}

#[test]
fn a_resumed_run_answers_from_the_record_and_a_new_one_from_the_cache() {
    let server = Server::start([answer(json!({"text": "first"})), answer(json!({"text": "second"}))]);
    let mut host = host(&server);
    let args = json!({"prompt": "p", "state-key": "k"});
    let first = one(&args, &mut host);
    assert_eq!(kinds(&host), [LOOKUP, CALL, KEEP]);
    host.resume_run();
    assert_eq!(one(&args, &mut host), first);
    host.start_new_run();
    let replayed = one(&args, &mut host);
    let mut expected = first.clone();
    expected["source"] = json!("run_state");
    expected["cached"] = json!(true);
    expected["replayed"] = json!(true);
    assert_eq!(replayed.to_string(), expected.to_string());
    assert_eq!(kinds(&host), [LOOKUP]);
    host.start_new_run();
    assert_eq!(one(&json!({"_": ["p"]}), &mut host)["source"], "cache");
    host.start_new_run();
    assert_eq!(one(&json!({"prompt": "p", "refresh": true}), &mut host)["output"]["text"], "second");
    host.start_new_run();
    host.set("LLM_TASK_FORCE_REFRESH", "no");
    assert_eq!(one(&json!({"prompt": "p"}), &mut host)["output"]["text"], "second");
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn without_a_place_to_keep_answers_nothing_is_looked_up() {
    let server = Server::start([answer(json!({}))]);
    let mut host = host(&server);
    let item = one(&json!({"prompt": "p", "disable-cache": true}), &mut host);
    assert_eq!(item["output"], json!({"format": "text", "text": null, "data": null}));
    assert_eq!(kinds(&host), [CALL]);
    host.start_new_run();
    one(&json!({"prompt": "p", "disable-cache": "false"}), &mut host);
    assert_eq!(kinds(&host), [LOOKUP, CALL, KEEP]);
}

#[test]
fn the_model_is_asked_again_with_the_violations() {
    let server = Server::start([
        answer(json!({"data": {}})),
        answer(json!({"data": {"n": "x"}})),
        answer(json!({"data": {"n": 3}})),
    ]);
    let mut host = host(&server);
    let item =
        one(&json!({"prompt": "p", "output-schema": SCHEMA, "max-validation-retries": "3"}), &mut host);
    assert_eq!((&item["attemptCount"], &item["output"]["format"]), (&json!(3), &json!("json")));
    let retries: Vec<Value> =
        server.requests().iter().map(|seen| seen.json()["retryContext"].clone()).collect();
    assert_eq!(
        retries,
        [
            json!(null),
            json!({"attempt": 2, "validationErrors": ["/ must have required property 'n'"]}),
            json!({"attempt": 3, "validationErrors": ["/n must be integer"]}),
        ]
    );
    assert_eq!(kinds(&host), [LOOKUP, CALL, CALL, CALL, KEEP]);
}

#[test]
fn retries_are_bounded() {
    for (retries, env, calls) in [
        (json!("0"), None, 1),
        (json!("-2"), None, 1),
        (json!("some"), None, 2),
        (json!(null), None, 2),
        (json!(null), Some("3"), 4),
        (json!("1e9"), None, 11),
    ] {
        let server = Server::start([answer(json!({"text": "{\"n\":1}"}))]);
        let mut host = host(&server);
        let mut args = json!({"prompt": "p", "output-schema": SCHEMA});
        if !retries.is_null() {
            args["max-validation-retries"] = retries.clone();
        }
        if let Some(value) = env {
            host.set("LOBSTER_LLM_VALIDATION_RETRIES", value);
        }
        assert_eq!(failure(&args, &mut host), "llm.invoke output failed schema validation: / must be object");
        assert_eq!(server.requests().len(), calls, "{retries}");
        assert!(!kinds(&host).contains(&KEEP.to_owned()));
    }
    let server = Server::start([answer(json!({}))]);
    one(&json!({"prompt": "p", "max-validation-retries": "5"}), &mut host(&server));
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn what_options_say_is_sent() {
    let server = Server::start([answer(json!({}))]);
    let mut host = host(&server);
    host.set("LOBSTER_LLM_MODEL", "envmodel");
    host.set("LLM_TASK_SCHEMA_VERSION", "v9");
    host.set("LOBSTER_LLM_ADAPTER_TOKEN", "s3cret");
    let args = json!({
        "prompt": "p", "model": " ", "temperature": "0.5", "max-output-tokens": "100", "metadata-json": "{\"a\":1}",
        "artifacts-json": "[\"more\"]",
    });
    run(&INVOKE, &args, vec![json!(5)], &mut host).unwrap();
    host.start_new_run();
    one(
        &json!({"prompt": true, "token": "mine", "temperature": "warm", "max-output-tokens": "many"}),
        &mut host,
    );
    let seen = server.requests();
    assert_eq!(seen[0].header("authorization"), Some("Bearer s3cret"));
    let mut body = seen[0].json();
    assert_eq!(body["artifactHashes"].take().as_array().map(Vec::len), Some(2));
    assert_eq!(
        body.to_string(),
        r#"{"prompt":"p","model":"envmodel","artifacts":[{"kind":"text","text":"5"},{"kind":"text","text":"more"}],"artifactHashes":null,"metadata":{"a":1},"schemaVersion":"v9","maxOutputTokens":100,"temperature":0.5}"#
    );
    assert_eq!(seen[1].header("authorization"), Some("Bearer mine"));
    assert_eq!(seen[1].json()["prompt"], "true");
    assert_eq!(seen[1].json().get("temperature"), None);
    let journal = format!("{:?}", host.recorded_actions());
    assert!(!journal.contains("s3cret") && !journal.contains("mine"), "{journal}");
}

#[test]
fn providers_in_their_order() {
    let server = Server::start([Answer::json(&json!({"ok": true, "result": {"output": {"text": "t"}}}))]);
    let mut host = RecordingHost::new();
    let args = json!({"prompt": "p", "disable-cache": true});
    assert_eq!(
        failure(&args, &mut host),
        "llm.invoke could not resolve a provider. Set --provider or LOBSTER_LLM_PROVIDER"
    );
    for (name, path, source) in [
        ("LOBSTER_LLM_ADAPTER_URL", "/h", "http"),
        ("CLAWD_URL", "/tools/invoke", "openclaw"),
        ("LOBSTER_PI_LLM_ADAPTER_URL", "/pi", "pi"),
    ] {
        host.set(name, &server.url(path));
        host.start_new_run();
        assert_eq!(one(&args, &mut host)["source"], source);
        assert_eq!(server.requests().last().unwrap().path, path);
    }
    assert_eq!(
        server.requests()[1].body,
        r#"{"tool":"llm-task","action":"invoke","args":{"prompt":"p","artifacts":[],"artifactHashes":[],"schemaVersion":"v1"}}"#
    );
    host.set("LOBSTER_LLM_PROVIDER", " OpenClaw ");
    host.start_new_run();
    assert_eq!(one(&args, &mut host)["source"], "openclaw");
    host.start_new_run();
    assert_eq!(
        one(&json!({"prompt": "p", "provider": "HTTP", "disable-cache": true}), &mut host)["source"],
        "http"
    );
    host.start_new_run();
    assert_eq!(
        failure(&json!({"prompt": "p", "provider": "nope"}), &mut host),
        "Unsupported llm provider: nope"
    );
    assert_eq!(
        one(&json!({"prompt": "p", "provider": " ", "disable-cache": true}), &mut host)["source"],
        "pi"
    );
    host.unset_variable("LOBSTER_LLM_PROVIDER");
    host.start_new_run();
    let task =
        run(&TASK, &json!({"prompt": "p", "provider": "http", "disable-cache": true}), vec![], &mut host)
            .unwrap();
    assert_eq!((&task[0]["kind"], &task[0]["source"]), (&json!("llm_task.invoke"), &json!("clawd")));
    host.start_new_run();
    run(&TASK, &json!({"prompt": "p", "disable-cache": true}), vec![], &mut host).unwrap();
    assert_eq!(server.requests().last().unwrap().path, "/tools/invoke");
}

#[test]
fn refusals_before_any_call() {
    let server = Server::start([answer(json!({}))]);
    let mut host = host(&server);
    for (args, message) in [
        (json!({}), "llm.invoke requires --prompt or positional text"),
        (json!({"prompt": "p", "artifacts-json": "{}"}), "llm.invoke --artifacts-json must be a JSON array"),
        (json!({"prompt": "p", "metadata-json": "[]"}), "llm.invoke --metadata-json must be a JSON object"),
        (json!({"prompt": "p", "output-schema": "x"}), "llm.invoke --output-schema must be a JSON object"),
        (json!({"prompt": "p", "token": true}), "llm.invoke --token has no value"),
        (
            json!({"prompt": "p", "artifacts-json": "[{\"kind\":1}]"}),
            "llm.invoke payload invalid: data/artifacts/0/kind must be string",
        ),
    ] {
        assert_eq!(failure(&args, &mut host), message);
    }
    let message = failure(&json!({"prompt": "p", "output-schema": "{\"type\":\"strng\"}"}), &mut host);
    assert!(message.starts_with("schema is invalid: "), "{message}");
    assert!(server.requests().is_empty());
}

#[test]
fn failures_of_the_adapter_are_not_asked_again() {
    for (answer, message) in [
        (
            Answer::new(503, &"b".repeat(500)),
            format!("llm.invoke request failed: 503 Service Unavailable: {}", "b".repeat(400)),
        ),
        (Answer::new(200, "<html>"), "llm.invoke request failed: Response was not JSON".to_owned()),
        (
            Answer::new(200, ""),
            "llm.invoke received invalid response envelope (result must be object)".to_owned(),
        ),
        (
            Answer::json(&json!({"ok": false, "error": {"message": "denied"}})),
            "llm.invoke remote error: denied".to_owned(),
        ),
    ] {
        let server = Server::start([answer]);
        let args = json!({"prompt": "p", "output-schema": SCHEMA, "max-validation-retries": "3"});
        assert_eq!(failure(&args, &mut host(&server)), message);
        assert_eq!(server.requests().len(), 1);
    }
    let mut host = RecordingHost::new();
    host.set("LOBSTER_LLM_ADAPTER_URL", "http://127.0.0.1:1");
    let message = failure(&json!({"prompt": "p", "disable-cache": true}), &mut host);
    assert!(message.starts_with("llm.invoke request failed: fetch failed"), "{message}");
}

#[test]
fn cancelling_ends_the_call() {
    let server = Server::start([Answer::hang()]);
    let mut host = host(&server);
    let token = host.cancel.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        token.cancel(CancelReason::Timeout("Step 'a' timed out after 100ms".into()));
    });
    let since = Instant::now();
    let result = run(&INVOKE, &json!({"prompt": "p", "disable-cache": true}), vec![], &mut host);
    assert!(matches!(result, Err(Stop::Cancelled)), "{result:?}");
    assert!(since.elapsed() < Duration::from_secs(10));
    let error =
        Failure::Http(lobster_models::http::HttpError::Cancelled(CancelReason::Superseded)).error_for("C");
    assert!(error.has_code(Code::Cancelled));
}

#[test]
fn calls_are_billed_by_their_effects() {
    let usage = json!({"inputTokens": 1_000_000, "outputTokens": 100_000});
    let reply =
        |data: Value| Answer::json(&json!({"output": {"data": data}, "model": "gpt-4o", "usage": usage}));
    let server = Server::start([reply(json!({})), reply(json!({"n": 1}))]);
    let mut host = host(&server);
    let mut tracker = CostTracker::new(Pricing::default(), None, Spending::default());
    let args = json!({"prompt": "p", "output-schema": SCHEMA});
    for _ in 0..2 {
        // The second answer comes from the cache and costs nothing.
        let item = one(&args, &mut host);
        for (action, answer) in host.recorded_effects() {
            tracker.record_effect("m", &action, &answer);
        }
        assert!(tracker.step_done("m", Some(&item)).is_empty());
        host.start_new_run();
    }
    assert_eq!(tracker.summary().unwrap()["estimatedCostUsd"], json!(7.0));
    assert_eq!(tracker.summary().unwrap()["byStep"].as_array().map(Vec::len), Some(2));
}

#[test]
fn openai_and_anthropic() {
    let server = Server::start([
        Answer::json(
            &json!({"id": "c", "model": "gpt-4o-2024-08-06", "choices": [{"message": {"content": "{\"n\":1}"}}], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}}),
        ),
        Answer::json(
            &json!({"id": "m", "model": "claude-x", "content": [{"type": "tool_use", "input": {"n": 2}}], "usage": {"input_tokens": 4, "output_tokens": 5}}),
        ),
    ]);
    let mut host = RecordingHost::new();
    host.set("OPENAI_BASE_URL", &server.url("/v1"));
    host.set("OPENAI_API_KEY", "okey");
    host.set("ANTHROPIC_BASE_URL", &server.url(""));
    host.set("ANTHROPIC_API_KEY", "akey");
    let args = |provider: &str, model: &str| json!({"prompt": "p", "provider": provider, "model": model, "output-schema": SCHEMA, "disable-cache": true});
    let item = one(&args("openai", "gpt-4o"), &mut host);
    assert_eq!((&item["output"]["data"], &item["source"]), (&json!({"n": 1}), &json!("openai")));
    assert_eq!(host.recorded_effects()[0].1["spend"][0]["model"], "gpt-4o");
    host.start_new_run();
    let item = one(&args("anthropic", "claude-x"), &mut host);
    assert_eq!((&item["output"]["data"], &item["usage"]["totalTokens"]), (&json!({"n": 2}), &json!(9)));
    let seen = server.requests();
    assert_eq!(
        (seen[0].path.as_str(), seen[0].header("authorization")),
        ("/v1/chat/completions", Some("Bearer okey"))
    );
    assert_eq!((seen[1].path.as_str(), seen[1].header("x-api-key")), ("/v1/messages", Some("akey")));
    assert_eq!(seen[1].header("anthropic-version"), Some("2023-06-01"));
    assert!(!format!("{:?}", host.recorded_actions()).contains("key\""));
    host.start_new_run();
    let message = failure(&json!({"prompt": "p", "provider": "openai", "disable-cache": true}), &mut host);
    assert_eq!(message, "llm.invoke request failed: provider openai needs --model or LOBSTER_LLM_MODEL");
}

#[test]
fn a_pool_answers_and_tells_of_its_hops() {
    let sick = Server::start([Answer::new(500, "boom")]);
    let well = Server::start([Answer::json(&json!({"output": {"text": "t"}, "warnings": ["own"]}))]);
    let mut host = RecordingHost::new();
    host.set(
        "LOBSTER_LLM_POOL",
        &json!([
            {"name": "llm-sick", "provider": "http", "url": sick.url("")},
            {"name": "llm-well", "provider": "pi", "url": well.url("")},
        ])
        .to_string(),
    );
    let item = one(&json!({"prompt": "p", "disable-cache": true}), &mut host);
    assert_eq!(item["source"], "pi");
    assert_eq!(
        item["warnings"],
        json!(["own", "passed over: llm-sick request failed: 500 Internal Server Error: boom"])
    );
    assert_eq!(host.recorded_effects()[0].1["hops"].as_array().map(Vec::len), Some(2));
    let [Action::Effect(action)] = &host.recorded_actions()[..] else { panic!("one effect expected") };
    assert_eq!(action.detail["provider"], "pool");
}

#[test]
fn triage_asks_through_this_command() {
    let server = Server::start([answer(json!({"data": {"decisions": [
        {"id": "m1", "category": "needs_reply", "rationale": "asks", "reply": {"body": "Sure!"}},
        {"id": "m2", "category": "needs_reply", "reply": {"body": "thanks"}},
        {"id": "x", "category": "needs_action"},
        {"id": "", "category": "fyi"},
    ]}}))]);
    let mut host = host(&server);
    host.register_commands(&[&INVOKE]);
    let mails = vec![
        json!({"id": "m1", "from": "Ada <ada@example.test>", "subject": "Lunch?", "labels": ["UNREAD"]}),
    ];
    let args = json!({"llm": true, "model": "m", "temperature": "0.2", "max-output-tokens": "50"});
    let report = run(&email_triage::SPEC, &args, mails.clone(), &mut host).unwrap().remove(0);
    assert_eq!(report["summary"], "2 need replies, 1 need action, 0 FYI");
    assert_eq!(
        report["drafts"],
        json!([{"emailId": "m1", "to": "ada@example.test", "subject": "Re: Lunch?", "body": "Sure!"}])
    );
    assert_eq!((report["decisions"].as_array().map(Vec::len), &report["mode"]), (Some(3), &json!("llm")));
    let body = server.requests()[0].json();
    assert_eq!(
        (&body["schemaVersion"], &body["model"], &body["temperature"]),
        (&json!("email_triage.v1"), &json!("m"), &json!(0.2))
    );
    assert_eq!(body["artifacts"][0]["threadId"], "m1");
    host.start_new_run();
    let args =
        json!({"llm": true, "model": "m", "temperature": "0.2", "max-output-tokens": "50", "emit": "drafts"});
    let drafts = run(&email_triage::SPEC, &args, mails, &mut host).unwrap();
    assert_eq!(
        drafts[0].to_string(),
        r#"{"to":"ada@example.test","subject":"Re: Lunch?","body":"Sure!","emailId":"m1"}"#
    );
    assert_eq!(server.requests().len(), 1);
}
