//! The names of fields that `llm.invoke --provider openclaw` sends to gateways of different ages.

use serde_json::{Value, json};

use crate::home::Home;
use crate::models::tool;
use crate::server::{Reply, Server};

/// A gateway whose `llm-task` takes its own names of fields only, as newer ones do.
fn newer_gateway() -> Server {
    Server::start(|_, request| {
        let body = request.json();
        let refused = |message: &str| {
            let error = json!({"ok": false, "error": {"type": "tool_error", "message": message}});
            Reply::status(400, "content-type: application/json\r\n", &error.to_string())
        };
        let known = ["prompt", "input", "schema", "model", "thinking", "temperature", "maxTokens"];
        let args = body["args"].as_object().unwrap();
        if let Some(name) = args.keys().find(|name| !known.contains(&name.as_str())) {
            return refused(&format!(
                "Validation failed for tool \"llm-task\":\n  - {name}: must not have additional properties"
            ));
        }
        if args["prompt"] == "misfit" {
            return refused(
                "LLM JSON did not match schema: <root> must NOT have additional properties (artifacts)",
            );
        }
        Reply::json(&json!({"ok": true, "result": {
            "content": [{"type": "text", "text": "{\"n\":1}"}],
            "details": {"json": {"n": 1}, "provider": "p", "model": "m"},
        }}))
    })
}

#[test]
fn a_gateway_that_refuses_the_incumbents_names_of_fields_is_sent_those_of_its_tool() {
    let gateway = newer_gateway();
    let home = Home::new();
    let ask = |text: &str| {
        tool(&home, &format!("llm.invoke --provider openclaw --disable-cache {text}"))
            .env("OPENCLAW_URL", gateway.url())
            .run()
    };
    let schema = r#"--output-schema '{"type":"object"}' --max-output-tokens 9"#;
    // The second call of the same process knows.
    let answer =
        ask(&format!("--prompt one {schema} | llm.invoke --provider openclaw --prompt two --disable-cache"));
    assert_eq!(
        answer.output()[0]["output"],
        json!({"format": "json", "text": "{\"n\":1}", "data": {"n": 1}})
    );
    let bodies: Vec<Value> =
        gateway.requests().iter().map(|request| request.json()["args"].clone()).collect();
    assert_eq!(bodies.len(), 3, "{bodies:#?}");
    assert_eq!(bodies[0]["artifacts"], json!([]));
    assert_eq!(bodies[1], json!({"prompt": "one", "schema": {"type": "object"}, "maxTokens": 9}));
    assert_eq!(bodies[2]["input"][0]["output"]["data"], json!({"n": 1}));

    // What a model answered is never asked for again, however much the words are alike.
    let misfit = ask("--prompt misfit");
    assert!(misfit.error().contains("did not match schema"), "{misfit:?}");
    assert_eq!(gateway.requests().len(), 5);
    // A setting without a field is an error, not dropped.
    let unknown = ask("--prompt x --system s");
    assert!(unknown.error().contains("provider openclaw has no setting for --system"), "{unknown:?}");
}

#[test]
fn a_gateway_that_refuses_otherwise_is_asked_once() {
    for (status, message) in [
        (400, "LLM JSON did not match schema: <root> must NOT have additional properties (artifacts)"),
        (500, "unknown field artifacts"),
        (404, "Tool not available: llm-task"),
    ] {
        let error = json!({"ok": false, "error": {"type": "tool_error", "message": message}}).to_string();
        let gateway = Server::start(move |_, _| Reply::status(status, "", &error));
        let home = Home::new();
        let call = tool(&home, "llm.invoke --provider openclaw --prompt x --disable-cache");
        let answer = call.env("OPENCLAW_URL", gateway.url()).run();
        assert!(answer.error().contains(message), "{answer:?}");
        assert_eq!(gateway.requests().len(), 1, "{message}");
    }
}
