//! Every server fault with every provider: one clear error or the right recovery, and no call is repeated
//! that must not be.

use super::super::recording_host::{RecordingHost, run};
use super::*;
use crate::http_server::{Answer, Server};

const SCHEMA: &str = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;

const PROVIDERS: [Provider; 4] =
    [Provider::OpenAi, Provider::Responses, Provider::Anthropic, Provider::Gemini];

/// An answer in the provider's form, optionally cut at the limit of tokens.
fn answer_with(provider: Provider, text: &str, is_cut: bool) -> Value {
    match provider {
        Provider::Responses => json!({
            "id": "r", "model": "m", "usage": {"input_tokens": 3, "output_tokens": 4},
            "incomplete_details": is_cut.then(|| json!({"reason": "max_output_tokens"})),
            "output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}],
        }),
        Provider::Anthropic => json!({
            "id": "r", "model": "m", "usage": {"input_tokens": 3, "output_tokens": 4},
            "stop_reason": if is_cut { "max_tokens" } else { "end_turn" },
            "content": [{"type": "text", "text": text}],
        }),
        Provider::Gemini => json!({
            "responseId": "r", "modelVersion": "m",
            "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4},
            "candidates": [{
                "content": {"parts": [{"text": text}]},
                "finishReason": if is_cut { "MAX_TOKENS" } else { "STOP" },
            }],
        }),
        _ => json!({
            "id": "r", "model": "m", "usage": {"prompt_tokens": 3, "completion_tokens": 4},
            "choices": [{"message": {"content": text}, "finish_reason": if is_cut { "length" } else { "stop" }}],
        }),
    }
}

fn refusal_answer(provider: Provider) -> Value {
    match provider {
        Provider::Responses => {
            json!({"output": [{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}]})
        }
        Provider::Anthropic => json!({"stop_reason": "refusal", "content": []}),
        Provider::Gemini => json!({"candidates": [{"finishReason": "SAFETY"}]}),
        _ => json!({"choices": [{"message": {"refusal": "no"}}]}),
    }
}

enum End {
    /// A failure with this text; true if no retry may follow.
    Fails(&'static str, bool),
    /// An answer after this number of attempts.
    Answers(u32),
}

struct Fault {
    name: &'static str,
    plays: Vec<Answer>,
    end: End,
    requests: usize,
}

fn provider_faults(provider: Provider) -> Vec<Fault> {
    let good = |text: &str| Answer::json(&answer_with(provider, text, false));
    let once = |name, answer, says, is_certain| Fault {
        name,
        plays: vec![answer],
        end: End::Fails(says, is_certain),
        requests: 1,
    };
    let status = |status: u16, says, is_certain| {
        once("status", Answer::new(status, "{\"error\": {\"message\": \"why\"}}"), says, is_certain)
    };
    let text = answer_with(provider, "{\"n\": 1}", false).to_string();
    let length = text.len();
    let head = |length: usize| format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
    vec![
        status(400, "400 Bad Request", true),
        status(401, "401 Unauthorized", true),
        status(402, "402 Payment Required", true),
        status(403, "403 Forbidden", true),
        status(404, "404 Not Found", true),
        status(408, "408 Request Timeout", false),
        status(409, "409 Conflict", false),
        status(413, "413", true),
        status(422, "422", true),
        status(429, "429 Too Many Requests", false),
        status(500, "500 Internal Server Error", false),
        status(502, "502 Bad Gateway", false),
        status(503, "503 Service Unavailable", false),
        status(504, "504 Gateway Timeout", false),
        status(529, "529", false),
        once("nothing", Answer::new(200, ""), "envelope", false),
        once("no content", Answer::raw("HTTP/1.1 204 X\r\n\r\n"), "envelope", false),
        once("a page", Answer::new(200, "<html>busy</html>"), "was not JSON", false),
        once("half the JSON", Answer::new(200, &text[..length / 2]), "was not JSON", false),
        once("cut off", Answer::raw(&format!("{}{text}", head(length + 9))), "broke off", false),
        once("silence", Answer::hang(), "silent for 200 ms", false),
        once("half, then silence", Answer::hang_after(&head(length)), "silent for 200 ms", false),
        once("no HTTP", Answer::raw("SSH-2.0-OpenSSH_9\r\n"), "request failed", false),
        once("hangs up", Answer::raw(""), "request failed", false),
        once(
            "an error with status 200",
            Answer::new(200, r#"{"error": {"message": "boom"}}"#),
            "remote error: boom",
            false,
        ),
        once("something else", Answer::new(200, r#"{"hello": 1}"#), "envelope", false),
        once("a refusal", Answer::json(&refusal_answer(provider)), "the model refuses", false),
        once("too long", good(&"x".repeat(9000)), "8192", false),
        once(
            "cut at the limit",
            Answer::json(&answer_with(provider, "{\"n\":", true)),
            "Raise --max-output-tokens",
            true,
        ),
        Fault {
            name: "another shape",
            plays: vec![good("[]"), good("{}"), good("{\"n\": 1}")],
            end: End::Answers(3),
            requests: 3,
        },
        Fault {
            name: "in a fence",
            plays: vec![good("So:\n```json\n{\"n\": 1}\n```")],
            end: End::Answers(1),
            requests: 1,
        },
        Fault {
            name: "prose for ever",
            plays: vec![good("as you like")],
            end: End::Fails("failed schema validation", false),
            requests: 4,
        },
    ]
}

/// A failure carries the server's `Retry-After` to the retry.
#[test]
fn the_pause_that_a_server_asks_for_is_told() {
    for (status, header, pause) in
        [(429, "retry-after: 7\r\n", Some(7)), (503, "retry-after: 7\r\n", Some(7)), (429, "", None)]
    {
        let answer = format!("HTTP/1.1 {status} X\r\n{header}content-length: 0\r\n\r\n");
        let server = Server::start(vec![Answer::raw(&answer)]);
        let mut host = RecordingHost::new();
        host.set("OPENAI_BASE_URL", &server.url(""));
        let args = json!({"prompt": "p", "model": "m", "provider": "openai", "disable-cache": true});
        let Err(Stop::Failed(error)) = run(&INVOKE, &args, vec![], &mut host) else { panic!("it failed") };
        assert_eq!(error.retry_after, pause.map(std::time::Duration::from_secs), "{status} {header}");
        assert!(!error.permanent);
    }
}

#[test]
fn every_fault_of_every_provider_is_one_clear_error_or_the_right_recovery() {
    let mut played = 0;
    for provider in PROVIDERS {
        for fault in provider_faults(provider) {
            let server = Server::start(fault.plays);
            let mut host = RecordingHost::new();
            for name in ["OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "GEMINI_BASE_URL"] {
                host.set(name, &server.url(""));
            }
            // Only a silent server is given up early, even on a busy machine.
            let is_silent = matches!(fault.end, End::Fails("silent for 200 ms", _));
            host.set("LOBSTER_HTTP_TIMEOUT_MS", if is_silent { "200" } else { "60000" });
            host.set("LOBSTER_HTTP_MAX_BYTES", "8192");
            let args = json!({
                "prompt": "p", "model": "m", "provider": provider.name(), "output-schema": SCHEMA,
                "max-validation-retries": "3", "disable-cache": true,
            });
            let ended = run(&INVOKE, &args, vec![], &mut host);
            let place = format!("{} {}: {ended:?}", provider.name(), fault.name);
            match (fault.end, ended) {
                (End::Fails(says, is_certain), Err(Stop::Failed(error))) => {
                    assert!(
                        error.message.starts_with("llm.invoke ") && error.message.contains(says),
                        "{place}"
                    );
                    assert_eq!(error.permanent, is_certain, "{place}");
                    assert!(error.has_code(Code::Model), "{place}");
                }
                (End::Answers(attempts), Ok(items)) => {
                    assert_eq!(items[0]["output"]["data"], json!({"n": 1}), "{place}");
                    assert_eq!(items[0]["attemptCount"], attempts, "{place}");
                }
                _ => panic!("{place}"),
            }
            assert_eq!(server.requests().len(), fault.requests, "{place}");
            played += 1;
        }
    }
    assert!(played >= 100, "{played}");
}
