use serde_json::{Value, json};

use super::*;

/// Events as text; `[DONE]` is left as it is.
fn text_of(events: &[Value]) -> String {
    let line = |event: &Value| match event.as_str() {
        Some(text) => format!("data: {text}\n\n"),
        None => {
            let name = event.get("type").and_then(Value::as_str);
            let name = name.map(|name| format!("event: {name}\n")).unwrap_or_default();
            format!("{name}data: {event}\n\n")
        }
    };
    events.iter().map(line).collect()
}

fn chat() -> Vec<Value> {
    let chunk = |delta: Value, finish: Value| json!({"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": null});
    vec![
        chunk(json!({"role": "assistant", "content": ""}), Value::Null),
        chunk(json!({"content": "hé"}), Value::Null),
        chunk(json!({"content": "llo"}), Value::Null),
        chunk(json!({}), json!("stop")),
        json!({"id": "c", "model": "m", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}),
        json!("[DONE]"),
    ]
}

fn responses() -> Vec<Value> {
    let message = json!({"type": "message", "content": [{"type": "output_text", "text": "héllo"}]});
    vec![
        json!({"type": "response.created", "response": {"id": "r", "output": [], "error": null}}),
        json!({"type": "response.output_text.delta", "delta": "hé"}),
        json!({"type": "response.output_text.delta", "delta": "llo"}),
        json!({"type": "response.output_item.done", "item": message}),
        json!({"type": "response.completed", "response": {"id": "r", "error": null, "output": [message], "usage": {"input_tokens": 1, "output_tokens": 2}}}),
    ]
}

fn messages() -> Vec<Value> {
    vec![
        json!({"type": "message_start", "message": {"id": "m", "content": [], "stop_reason": null, "usage": {"input_tokens": 1, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "ping"}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hé"}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "llo"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "name": "answer", "input": {}}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": ""}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{\"n\":"}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "7}"}}),
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}}),
        json!({"type": "message_stop"}),
    ]
}

fn gemini() -> Vec<Value> {
    let chunk = |text: &str, finish: Value| json!({"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": finish}], "responseId": "g", "usageMetadata": {"promptTokenCount": 1}});
    let thought = json!({"candidates": [{"content": {"parts": [{"text": "hm", "thought": true}]}}]});
    vec![thought, chunk("hé", Value::Null), chunk("llo", json!("STOP"))]
}

/// Every form with its answer.
fn forms() -> [(Vec<Value>, Value); 4] {
    let message = json!({"role": "assistant", "content": "héllo", "refusal": null});
    let output = json!([{"type": "message", "content": [{"type": "output_text", "text": "héllo"}]}]);
    [
        (
            chat(),
            json!({
                "id": "c", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 2},
            }),
        ),
        (
            responses(),
            json!({"id": "r", "error": null, "output": output, "usage": {"input_tokens": 1, "output_tokens": 2}}),
        ),
        (
            messages(),
            json!({
                "id": "m", "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 2},
                "content": [{"type": "text", "text": "héllo"}, {"type": "tool_use", "name": "answer", "input": {"n": 7}}],
            }),
        ),
        (
            gemini(),
            json!({
                "responseId": "g", "usageMetadata": {"promptTokenCount": 1},
                "candidates": [{"content": {"role": "model", "parts": [{"text": "héllo"}]}, "finishReason": "STOP"}],
            }),
        ),
    ]
}

#[test]
fn streams_are_put_together_to_what_they_stand_for_however_they_come() {
    for (events, whole) in forms() {
        let text = text_of(&events);
        for text in [
            text.clone(),
            text.replace('\n', "\r\n"),
            text.replace('\n', "\r"),
            format!("\u{feff}: hi\n\n{text}"),
        ] {
            assert!(EventStream::is_events(text.trim_start_matches('\u{feff}')));
            assert_eq!(EventStream::parse_whole(&text, 1 << 20).unwrap(), whole);
            for size in [1, 2, 7, 64] {
                let mut stream = EventStream::new(1 << 20);
                let mut parts = text.as_bytes().chunks(size);
                let last = parts.any(|part| stream.push(part).unwrap() == StreamFlow::Last);
                if !last {
                    stream.finish_input().unwrap();
                }
                assert_eq!(stream.into_answer().unwrap(), whole, "in parts of {size}");
            }
        }
    }
}

/// The answer without the token counts.
fn said(answer: &Value) -> Value {
    let mut answer = answer.clone();
    answer
        .as_object_mut()
        .unwrap()
        .retain(|name, _| ["choices", "output", "content", "candidates"].contains(&name.as_str()));
    answer
}

/// All cuts: wherever a stream breaks off, the result is either no answer or the whole one.
#[test]
fn a_stream_that_is_cut_anywhere_is_no_shorter_answer() {
    for (events, whole) in forms() {
        let text = text_of(&events);
        let mut complete = 0;
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            match EventStream::parse_whole(&text[..end], 1 << 20) {
                Ok(answer) => {
                    assert_eq!(said(&answer), said(&whole), "{}", &text[..end]);
                    complete += 1;
                }
                Err(error) => assert_eq!(error, StreamError::Unfinished, "{}", &text[..end]),
            }
        }
        assert!(complete < text.len() / 2, "{complete} of {}", text.len());
    }
}

#[test]
fn errors_within_streams_are_those_of_answers() {
    for (error, told) in [
        (
            json!({"type": "error", "error": {"type": "overloaded_error", "message": "no"}}),
            json!({"type": "overloaded_error", "message": "no"}),
        ),
        (
            json!({"type": "error", "code": "server_error", "message": "no"}),
            json!({"code": "server_error", "message": "no"}),
        ),
        (json!({"error": {"code": 503, "message": "no"}}), json!({"code": 503, "message": "no"})),
        (json!({"error": "no"}), json!({"message": "no"})),
    ] {
        for (events, _) in forms() {
            for before in 0..2 {
                let mut events = events[..before].to_vec();
                events.push(error.clone());
                assert_eq!(
                    EventStream::parse_whole(&text_of(&events), 1 << 20).unwrap(),
                    json!({"error": told})
                );
            }
        }
    }
    let failed = json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": "server_error"}}});
    let answer = EventStream::parse_whole(&text_of(&[responses()[0].clone(), failed]), 1 << 20).unwrap();
    assert_eq!(answer["error"]["code"], "server_error");
}

#[test]
fn what_is_no_event_ends_a_stream() {
    for (text, error) in [
        ("data: {\"choices\": [\n\n", StreamError::NotJson),
        ("data: <html>\n\n", StreamError::NotJson),
        ("data: [DONE]\n\n", StreamError::Unfinished),
        (": ping\n\n", StreamError::Unfinished),
        ("data: {\"hello\": 1}\n\n", StreamError::Unfinished),
        ("data: 7\n\n", StreamError::Unfinished),
        ("", StreamError::Unfinished),
    ] {
        assert_eq!(EventStream::parse_whole(text, 1 << 20), Err(error), "{text}");
    }
}

#[test]
fn the_limit_holds_for_the_answer_and_for_what_comes_around_it() {
    for (events, _) in forms() {
        let text = text_of(&events);
        let longest = text.lines().map(str::len).max().unwrap() as u64;
        assert!(EventStream::parse_whole(&text, longest).is_ok());
        assert_eq!(EventStream::parse_whole(&text, 100), Err(StreamError::TooLarge));
    }
    let chunk = json!({"choices": [{"delta": {"content": "x".repeat(50)}}]});
    let long = text_of(&[chunk.clone(), chunk.clone(), chunk]);
    assert_eq!(EventStream::parse_whole(&long, 140), Err(StreamError::TooLarge));
    let pings = ": ping\n\n".repeat(10_000);
    assert_eq!(EventStream::parse_whole(&pings, 1000), Err(StreamError::TooLarge));
}

#[test]
fn arguments_that_were_cut_are_what_the_model_said() {
    let mut events = messages();
    events.truncate(9);
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}));
    let answer = EventStream::parse_whole(&text_of(&events), 1 << 20).unwrap();
    assert_eq!(answer["content"][1], json!({"type": "text", "text": "{\"n\":"}));
    assert_eq!(answer["stop_reason"], "max_tokens");
}
