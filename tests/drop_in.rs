//! What the incumbent's release 2026.9.13 does and 2026.6.11 did not, each behaviour as a user meets it.

use serde_json::{Value, json};

use crate::home::{Answer, Home};
use crate::server::{Reply, Server};

fn pipeline(text: &str) -> Answer {
    Home::new().tool(["--pipeline", text])
}

#[test]
fn json_of_exec_is_a_switch() {
    let home = Home::new();
    for (text, items) in [
        ("exec --json 'echo [1,2,3]' | json", json!([1, 2, 3])),
        ("exec --json printf '{\"a\":%s}' 1", json!([{"a": 1}])),
        ("exec printf '[%s]' 7 --json", json!([7])),
        ("exec --json printf ''", json!([null])),
        ("exec --all-lines printf 'a\\n\\nb'", json!(["a", "", "b"])),
    ] {
        assert_eq!(home.tool(["--pipeline", text]).output(), items, "{text}");
    }
    home.write("bin/gh", "#!/bin/sh\nprintf '[\"%s\"]' \"$*\"\n");
    assert_eq!(home.tool(["--pipeline", "exec --json gh pr list"]).output(), json!(["pr list"]));
}

#[test]
fn quoted_empty_arguments_are_kept() {
    for (text, items) in [
        ("exec printf '%s|' '' b", json!(["|b|"])),
        ("exec printf '%s|' \"\" ' ' ''", json!(["| ||"])),
        ("exec --json printf '[\"%s\",\"%s\"]' '' tail", json!(["", "tail"])),
    ] {
        assert_eq!(pipeline(text).output(), items, "{text}");
    }
    let server = Server::start(|_, request| Reply::json(&json!({"ok": true, "result": request.json()})));
    let text = format!("openclaw.invoke --url {} --tool t --action a --session-key \"\"", server.url());
    assert_eq!(pipeline(&text).output(), json!([{"tool": "t", "action": "a", "args": {}}]));
}

#[test]
fn an_empty_token_is_no_token() {
    let server = Server::start(|_, _| Reply::json(&json!({"ok": true, "result": 1})));
    for token in ["--token \"\"", "--token=", "--token ' '"] {
        let text = format!("openclaw.invoke --url {} {token} --tool t --action a", server.url());
        let home = Home::new();
        let answer = home.lobster(["run", "--mode", "tool", "--pipeline", &text]);
        assert_eq!(answer.env("OPENCLAW_TOKEN", "an-ambient-token").run().output(), json!([1]), "{token}");
    }
    assert_eq!(server.requests().len(), 3);
    assert!(server.requests().iter().all(|request| request.header("authorization").is_none()));
}

#[test]
fn a_call_that_was_sent_is_not_sent_again() {
    for command in
        ["openclaw.invoke", "clawd.invoke", "openclaw.invoke --dry-run", "openclaw.invoke --dryRun"]
    {
        for (failure, after) in [("timed out", ""), ("503", ""), ("exec failed", " | exec false")] {
            let server = Server::start(move |_, _| match failure {
                "timed out" => Reply::Silence,
                "503" => Reply::status(503, "", "unavailable"),
                _ => Reply::json(&json!({"ok": true, "result": "done"})),
            });
            let home = Home::new();
            let text = format!("{command} --url {} --token= --tool t --action a{after}", server.url());
            let flow = json!({"steps": [{
                "id": "s", "pipeline": text, "timeout_ms": 1000, "retry": {"max": 3, "delay_ms": 1},
            }]});
            home.write("flow.json", flow.to_string());
            let answer = home.tool(["flow.json"]);
            assert!(answer.error().contains(failure), "{command}: {}", answer.error());
            assert_eq!(server.requests().len(), 1, "{command} {failure}");
        }
    }
}

#[test]
fn the_help_of_a_link_is_that_of_its_command() {
    let home = Home::new();
    for name in ["openclaw.invoke", "clawd.invoke"] {
        std::os::unix::fs::symlink(crate::binary::lobster(), home.dir().join(name)).unwrap();
        let topic = home.lobster(["help", name]).run();
        for word in ["-h", "--help"] {
            let help = home.program(home.dir().join(name), [word]).run();
            assert_eq!((help.code(), &help.stdout, help.stderr.as_str()), (0, &topic.stdout, ""), "{name}");
        }
    }
}

#[test]
fn an_agent_is_started_once() {
    let home = Home::new();
    home.write("bin/claw", "#!/bin/sh\necho x >> calls\necho failed after dispatch >&2\nexit 1\n");
    let flow = json!({"steps": [{
        "id": "s", "pipeline": "openclaw.agent --agent a --prompt p", "retry": {"max": 3, "delay_ms": 1},
    }]});
    home.write("flow.json", flow.to_string());
    let bin = home.dir().join("bin/claw");
    let answer = home.lobster(["run", "--mode", "tool", "flow.json"]).env("LOBSTER_OPENCLAW_BIN", bin).run();
    assert!(answer.error().contains("failed after dispatch"), "{}", answer.error());
    assert_eq!(home.read("calls"), "x\n");
}

#[test]
fn a_bad_workflow_target_is_a_usage_error() {
    let home = Home::new();
    home.write("flow.txt", "steps: [{id: a, run: echo}]").write("dir/x", "");
    for (file, part) in [
        ("missing.lobster", "ENOENT: no such file or directory, stat '"),
        ("./dir/../missing.json", "/work/missing.json'"),
        ("dir", "Workflow path is not a file"),
        ("flow.txt", "Workflow file must end in .lobster, .yaml, .yml, or .json"),
    ] {
        for more in [&["--file", file][..], &["--file", file, "--dry-run"]] {
            let tool = home.tool(more);
            assert_eq!(tool.code(), 2, "{file}");
            let envelope = tool.envelope();
            assert_eq!(envelope["error"]["type"], "parse_error", "{file}");
            assert!(tool.error().contains(part), "{}", tool.error());
            let human = home.lobster([&["run"], more].concat()).run();
            let said = human.stderr.clone();
            assert_eq!((human.code(), human.stdout.len()), (2, 0), "{said}");
            assert!(said.starts_with("Parse error: ") && said.contains(part), "{said}");
        }
    }
}

const BAD_LIMITS: [&str; 7] = ["0", "-1", "1.5", "abc", "+5", "Infinity", "9007199254740992"];

#[test]
fn answers_over_http_have_a_limit_that_is_asked_for() {
    let server = Server::start(|_, _| {
        Reply::json(&json!({"ok": true, "result": {"output": {"data": "x".repeat(2000)}}}))
    });
    let run = |text: &str, limit: &str| {
        let home = Home::new();
        let call = home.lobster(["run", "--mode", "tool", "--pipeline", text]);
        call.env("LOBSTER_MAX_HTTP_RESPONSE_BYTES", limit).env("LOBSTER_LLM_ADAPTER_URL", server.url()).run()
    };
    let invoke = format!("openclaw.invoke --url {} --tool t --action a", server.url());
    let ask = "llm.invoke --provider http --prompt p --disable-cache";
    for text in [invoke.as_str(), ask] {
        assert_eq!(run(text, "").envelope()["ok"], true, "{text}");
        assert_eq!(run(text, " 100000 ").envelope()["ok"], true, "{text}");
        let error = run(text, "1024").error();
        assert!(error.contains("HTTP response body exceeded 1024 bytes"), "{error}");
    }
    let before = server.requests().len();
    for (bad, text) in BAD_LIMITS.into_iter().flat_map(|bad| [(bad, invoke.as_str()), (bad, ask)]) {
        let error = run(text, bad).error();
        let refused = "LOBSTER_MAX_HTTP_RESPONSE_BYTES must be a positive safe integer (bytes)";
        assert!(error.contains(refused), "{bad}: {error}");
    }
    assert_eq!(server.requests().len(), before, "nothing was sent");

    let home = Home::new();
    let flow = json!({"steps": [{
        "id": "s", "pipeline": invoke, "env": {"LOBSTER_MAX_HTTP_RESPONSE_BYTES": "1024"},
        "retry": {"max": 2, "delay_ms": 1},
    }]});
    home.write("flow.json", flow.to_string());
    let error = home.tool(["flow.json"]).error();
    assert!(error.contains("exceeded 1024 bytes"), "{error}");
    assert_eq!(server.requests().len(), before + 1, "the call was sent once");
}

#[test]
fn output_of_processes_has_a_limit_for_each_stream() {
    let run = |text: &str, limit: &str| {
        let home = Home::new();
        let call = home.lobster(["run", "--mode", "tool", "--pipeline", text]);
        call.env("LOBSTER_MAX_OUTPUT_BYTES", limit).run()
    };
    let (out, err) = ("exec --shell 'printf 12345; printf 1234 >&2'", "exec --shell 'printf 12345 >&2'");
    for limit in ["", " ", "5", "05", "99999"] {
        assert_eq!(run(out, limit).output(), json!(["12345"]), "{limit}");
        assert_eq!(run(err, limit).output(), json!([]), "{limit}");
    }
    for (text, stream) in [(out, "stdout"), (err, "stderr")] {
        let error = run(text, "4").error();
        assert!(error.contains("Process output exceeded 4 bytes") && error.contains(stream), "{error}");
    }
    for bad in BAD_LIMITS {
        let home = Home::new();
        let flow =
            json!({"steps": [{"id": "s", "run": "touch started", "env": {"LOBSTER_MAX_OUTPUT_BYTES": bad}}]});
        home.write("flow.json", flow.to_string());
        for answer in [
            home.tool(["flow.json"]),
            home.lobster(["run", "--mode", "tool", "exec touch started"])
                .env("LOBSTER_MAX_OUTPUT_BYTES", bad)
                .run(),
        ] {
            let error = answer.error();
            let refused = "LOBSTER_MAX_OUTPUT_BYTES must be a positive safe integer (bytes)";
            assert!(error.contains(refused), "{bad}: {error}");
        }
        assert!(!home.dir().join("started").exists(), "{bad}");
    }
}

#[test]
fn a_dry_run_tells_what_a_loop_does_when_it_fails() {
    let home = Home::new();
    let flow = json!({"steps": [{
        "id": "l", "for_each": "[1]", "steps": [{"id": "s", "run": "echo"}],
        "retry": {"max": 3, "backoff": "exponential", "delay_ms": 5}, "timeout_ms": 7, "on_error": "continue",
    }]});
    home.write("flow.json", flow.to_string());
    let said = home.lobster(["run", "--dry-run", "flow.json"]).run().stderr;
    assert!(
        said.ends_with(
            "     timeout: 7ms\n     on_error: continue\n     retry: up to 3 attempts, exponential backoff (base: 5ms)\n"
        ),
        "{said}"
    );
}

#[test]
fn a_limit_of_costs_ends_the_retries_of_the_step_that_paid() {
    let server = Server::start(|_, _| {
        Reply::json(&json!({"ok": true, "result": {"model": "gpt-4o", "output": {"text": "t"},
            "usage": {"inputTokens": 1000, "outputTokens": 1000}}}))
    });
    let home = Home::new();
    let flow = json!({
        "cost_limit": {"max_usd": 0.001, "action": "stop"},
        "steps": [{
            "id": "s", "retry": {"max": 3, "delay_ms": 1},
            "pipeline": "llm.invoke --provider http --prompt p --disable-cache | exec --shell 'echo x >> tried; exit 3'",
        }],
    });
    home.write("flow.json", flow.to_string());
    let pricing = json!({"gpt-4o": {"input": 2.5, "output": 10}}).to_string();
    let answer = home
        .lobster(["run", "--mode", "tool", "flow.json"])
        .env("LOBSTER_LLM_ADAPTER_URL", server.url())
        .env("LOBSTER_LLM_PRICING_JSON", pricing)
        .run();
    assert!(answer.error().starts_with("Cost limit exceeded: $"), "{}", answer.error());
    assert_eq!((home.read("tried"), server.requests().len()), ("x\n".to_owned(), 1));
}

#[test]
fn output_that_is_no_json_is_shown() {
    for (text, why) in [
        ("nope", "Unexpected token 'o', \"nope\" is not valid JSON"),
        ("[1,", "Unexpected end of JSON input"),
        ("<html><body>Sign in</body></html>", "Unexpected token '<', \"<html><bod\"... is not valid JSON"),
        ("{a:1}", "Expected property name or '}' in JSON at position 1 (line 1 column 2)"),
    ] {
        let home = Home::new();
        home.write("out", text);
        let error = home.tool(["--pipeline", "exec --json cat out"]).error();
        assert!(error.ends_with(&format!("could not parse stdout as JSON: {why}")), "{error}");
    }
}

#[test]
fn what_a_gateway_answers_is_read_before_tokens_in_it_are_masked() {
    let answer = json!({"ok": true, "result": {
        "openclaw": "/home/u/.openclaw/workspace/a.md", "id": 12_345_678, "text": "ok 1234",
        "a-token-of-some-length": "it is a-token-of-some-length",
    }});
    let server = Server::start({
        let answer = answer.clone();
        move |_, _| Reply::json(&answer)
    });
    let text = format!("openclaw.invoke --url {} --tool t --action a", server.url());
    for token in ["openclaw", "1234", "ok", "\"", "true"] {
        let home = Home::new();
        let call = home.lobster(["run", "--mode", "tool", "--pipeline", &text]);
        let output = call.env("OPENCLAW_TOKEN", token).run().output();
        assert_eq!(output, json!([answer["result"]]), "{token}");
    }
    let home = Home::new();
    let call = home.lobster(["run", "--mode", "tool", "--pipeline", &text]);
    let run = call.env("OPENCLAW_TOKEN", "a-token-of-some-length").run();
    assert!(run.envelope()["ok"] == true, "{:?}", run.envelope());
    let output: Value = run.output();
    assert!(!output[0].as_object().unwrap().values().any(|value| value.to_string().contains("some-length")));
    assert_eq!(output[0]["openclaw"], answer["result"]["openclaw"]);
}

#[test]
fn typed_arguments_may_be_the_text_of_their_value() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "args:\n  n: {type: number}\n  b: {type: boolean}\nsteps:\n  - {id: a, run: 'echo ${n} ${b}'}\n",
    );
    let run = |args: Value| home.tool(["flow.lobster", "--args-json", &args.to_string()]);
    let answer = run(json!({"n": "7", "b": "true"}));
    assert_eq!(answer.output(), json!(["7 true\n"]));
    let said = &answer.stderr;
    assert!(
        said.contains("warning: argument \"n\" is of type number and was given as text; \"7\" is taken as 7"),
        "{said}"
    );
    assert_eq!(run(json!({"n": 7, "b": true})).stderr.len(), 0);
    // On a command line there is nothing but text.
    let typed = home.tool(["flow.lobster", "--arg", "n=7", "--arg", "b=true"]);
    assert_eq!((typed.output(), typed.stderr.as_str()), (json!(["7 true\n"]), ""));
    for bad in [json!({"n": "7 apples"}), json!({"n": " 7"}), json!({"b": "yes"}), json!({"b": 1})] {
        assert!(run(bad).error().contains("must be of type"));
    }
}

#[test]
fn a_picture_is_drawn_of_what_run_refuses() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "args:\n  repo: {required: true}\n  who: {default: ada}\nsteps:\n  - {id: a, run: 'echo ${who} ${repo}'}\n  - {id: b, run: x, when: 'length($a.json) == 0'}\n",
    );
    let answer = home.lobster(["graph", "flow.lobster", "--format", "ascii"]).run();
    let drawn = &answer.stdout;
    assert_eq!(answer.code(), 0);
    assert!(drawn.contains("echo ada ${repo}") && drawn.contains("when: length($a.json) == 0"), "{drawn}");
    let said = &answer.stderr;
    assert!(
        said.contains("warning: ") && said.contains("Unsupported condition: length($a.json) == 0"),
        "{said}"
    );
    assert!(home.tool(["flow.lobster"]).error().contains("Unsupported condition"));
    for flag in ["--help", "-h"] {
        let help = home.lobster(["graph", flag]).run().stdout;
        assert!(help.contains("--format     Output format: mermaid (default), dot, ascii"), "{help}");
    }
}

#[test]
fn the_version_names_the_release() {
    let home = Home::new();
    let version = home.lobster(["version"]).run().stdout;
    assert!(version.starts_with("2026.9.13-lobster."), "{version}");
}
