//! What goes with a prompt, and how each provider is asked.

use serde_json::{Value, json};

use crate::home::{Home, assert_nowhere};
use crate::models::{KEY, openai, text, tool};
use crate::server::{Reply, Server};

#[test]
fn a_prompt_file_with_variables_a_schema_file_and_an_image_reach_the_model() {
    let server = Server::start(|index, _| Reply::chat(if index == 0 { "[5]" } else { "{\"n\": 5}" }));
    let home = Home::new();
    home.write(
        "ask.md",
        "---\nwho: string\nn: integer = 2\n---\nHow many does {{who}} have, at least {{n}}?\n",
    );
    home.write("answer.json", r#"{"type": "object", "required": ["n"]}"#);
    home.write("dot.gif", "GIF89a");
    home.write(
        "flow.lobster",
        "steps:\n  - id: ask\n    pipeline: llm.invoke --prompt-file ask.md --var who=Ada --output-schema @answer.json \
         --file dot.gif --system 'Be exact' --seed 7 --effort low --stop END --model m\n",
    );
    let run = || openai(home.lobster(["run", "--mode", "tool", "flow.lobster"]), &server).run();
    let answer = run();
    assert_eq!(answer.output()[0]["output"]["data"], json!({"n": 5}), "{answer:?}");
    assert_eq!(answer.output()[0]["attemptCount"], 2);
    let asked: Value = server.requests()[1].json();
    assert_eq!(
        asked["messages"],
        json!([
            {"role": "system", "content": "Be exact"},
            {"role": "user", "content": [
                {"type": "text", "text": "How many does Ada have, at least 2?"},
                {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lGODlh"}},
            ]},
            {"role": "assistant", "content": "[5]"},
            {"role": "user", "content": "[The previous answer did not fit the schema: / must be object. Answer again so that it fits.]"},
        ])
    );
    assert_eq!(
        (&asked["seed"], &asked["reasoning_effort"], &asked["stop"]),
        (&json!(7), &json!("low"), &json!(["END"]))
    );
    // The same again costs nothing; another text in the file is another question.
    run();
    assert_eq!(server.requests().len(), 2);
    home.write("ask.md", "---\nwho: string\n---\nHow many has {{who}}?\n");
    run();
    assert_eq!(server.requests().len(), 3);
    // The record holds what was read: a replay needs no file.
    std::fs::remove_file(home.dir().join("ask.md")).unwrap();
    let replayed = home.lobster(["replay", "@"]).run();
    assert_eq!(replayed.code(), 0, "{replayed:?}");
    let missing = run().error();
    assert!(missing.contains("--prompt-file ask.md") && missing.contains("No such file"), "{missing}");
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn every_provider_is_asked_in_its_own_words_and_its_key_is_nowhere() {
    let ways = [
        (
            "openai-responses",
            "OPENAI_BASE_URL",
            "OPENAI_API_KEY",
            "/responses",
            "authorization",
            json!({"model": "m", "output": [{"type": "message", "content": [{"type": "output_text", "text": "hi"}]}], "usage": {"input_tokens": 1, "output_tokens": 2}}),
        ),
        (
            "gemini",
            "GEMINI_BASE_URL",
            "GEMINI_API_KEY",
            "/models/m:streamGenerateContent?alt=sse",
            "x-goog-api-key",
            json!({"candidates": [{"content": {"parts": [{"text": "hi"}]}, "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 2}}),
        ),
        (
            "azure",
            "AZURE_OPENAI_ENDPOINT",
            "AZURE_OPENAI_API_KEY",
            "/openai/v1/chat/completions",
            "api-key",
            json!({"model": "m", "choices": [{"message": {"content": "hi"}}], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}),
        ),
    ];
    for (provider, address, key, path, header, reply) in ways {
        let server = Server::start(move |_, _| Reply::json(&reply));
        let home = Home::new();
        let line = format!("llm.invoke --provider {provider} --model m --prompt p --disable-cache");
        let answer = tool(&home, &line)
            .env(address, server.url())
            .env(key, KEY)
            .env("LOBSTER_LLM_HEADERS", r#"{"x-title": "ours"}"#)
            .run();
        assert_eq!(text(&answer), "hi", "{provider}: {answer:?}");
        assert_eq!(answer.output()[0]["usage"]["totalTokens"], 3, "{provider}");
        let seen = &server.requests()[0];
        assert!(seen.path.ends_with(path), "{provider}: {}", seen.path);
        let sent = seen.header(header).unwrap_or_default();
        assert_eq!(sent.trim_start_matches("Bearer "), KEY, "{provider}");
        assert_eq!(seen.header("x-title"), Some("ours"), "{provider}");
        assert_nowhere(&home.dir(), KEY);
        assert_nowhere(&home.state(), KEY);
        // What would be refused again is asked once, whoever is asked.
        let refusing = Server::start(|_, _| Reply::status(401, "", "no such key"));
        let refused = tool(&home, &line).env(address, refusing.url()).env(key, KEY).run().error();
        assert!(refused.contains("401"), "{provider}: {refused}");
        assert_eq!(refusing.requests().len(), 1, "{provider}");
    }
}

#[test]
fn embeddings_come_in_order_and_count_against_the_limit() {
    let server = Server::start(|_, _| {
        Reply::json(&json!({
            "data": [{"index": 1, "embedding": [3, 4]}, {"index": 0, "embedding": [1, 2]}],
            "model": "m", "usage": {"prompt_tokens": 6, "total_tokens": 6},
        }))
    });
    let home = Home::new();
    home.write("notes.json", r#"[{"body": "a"}, {"body": "b"}]"#);
    let flow = |limit: &str| {
        home.write(
            "flow.lobster",
            format!(
                "cost_limit: {{max_usd: {limit}, action: stop}}\nsteps:\n  - id: read\n    run: cat notes.json\n  \
                 - id: embed\n    pipeline: llm.embed --model text-embedding-3-small --field body\n    stdin: $read.json\n"
            ),
        );
        openai(home.lobster(["run", "--mode", "tool", "flow.lobster"]), &server).run()
    };
    let answer = flow("1");
    assert_eq!(
        answer.output(),
        json!([{"input": {"body": "a"}, "embedding": [1, 2]}, {"input": {"body": "b"}, "embedding": [3, 4]}]),
        "{answer:?}"
    );
    let refused = flow("0.0000001").error();
    assert!(refused.contains("Cost limit"), "{refused}");
    assert_eq!(server.requests().len(), 1);
}
