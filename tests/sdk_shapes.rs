//! What the official Python SDKs send and read, recorded by `tests/models/record.py`, against what lobster sends and reads.

use std::collections::BTreeSet;

use lobster_runtime::schema::Schema;
use serde_json::{Value, json};

use crate::home::Home;
use crate::server::{Reply, Request, Server};

const KEY: &str = "sk-recorded-not-a-key";
const SCHEMA: &str = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}"#;
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

fn recorded() -> Value {
    let text = include_str!("models/shapes.json");
    serde_json::from_str(text).expect("the recording is JSON")
}

/// The words of `llm.invoke` for a recorded call.
fn words(provider: &str, case: &str) -> String {
    match case {
        "text" => String::new(),
        "system" => "--system 'Be brief'".to_owned(),
        // The types of Anthropic's SDK have no temperature.
        "limit" if provider == "anthropic" => "--max-output-tokens 64".to_owned(),
        "limit" => "--max-output-tokens 64 --temperature 0.5".to_owned(),
        "stop" => "--stop END".to_owned(),
        "seed" => "--seed 7".to_owned(),
        "effort" => "--effort low".to_owned(),
        "image" => "--file dot.png".to_owned(),
        "schema" => format!("--output-schema '{SCHEMA}'"),
        other => panic!("no words for {other}"),
    }
}

/// Asks as `provider`, and gives what was sent and what came of it.
fn ask(
    provider: &str,
    pipeline: &str,
    answer: impl Fn() -> Reply + Send + Sync + 'static,
) -> (Vec<Request>, Value) {
    let server = Server::start(move |_, _| answer());
    let home = Home::new();
    home.write("dot.png", base64::Engine::decode(&base64::engine::general_purpose::STANDARD, PNG).unwrap());
    let call = home.lobster(["run", "--mode", "tool", pipeline]);
    let call = call
        .env("LOBSTER_LLM_PROVIDER", provider)
        .env("OPENAI_BASE_URL", format!("{}/v1", server.url()))
        .env("OPENAI_API_KEY", KEY)
        // So that the field is that of OpenAI's own address.
        .env("LOBSTER_LLM_MAX_TOKENS_FIELD", "max_completion_tokens")
        .env("ANTHROPIC_BASE_URL", server.url())
        .env("ANTHROPIC_API_KEY", KEY)
        .env("GEMINI_BASE_URL", format!("{}/v1beta", server.url()))
        .env("GEMINI_API_KEY", KEY);
    let answer = call.run();
    (server.requests(), answer.envelope())
}

fn model(provider: &str) -> &'static str {
    match provider {
        "anthropic" => "claude-haiku-4-5",
        "gemini" => "gemini-2.5-flash",
        _ => "gpt-4o",
    }
}

fn fields(value: &Value) -> BTreeSet<String> {
    // An empty object says nothing.
    let fields = value.as_object().into_iter().flatten();
    fields.filter(|(_, value)| **value != json!({})).map(|(name, _)| name.clone()).collect()
}

/// Fields of ours that the SDK's equal call lacks, and that its types have.
const MORE: &[(&str, &str, &[&str])] = &[
    // The API wants it; the recorded calls give it themselves.
    ("anthropic", "", &["max_tokens"]),
];

#[test]
fn requests_fit_the_types_of_the_sdks_and_are_those_of_equal_calls() {
    let recorded = recorded();
    let mut compared = 0;
    for (provider, cases) in recorded["requests"].as_object().unwrap() {
        for (case, theirs) in cases.as_object().unwrap() {
            let (pipeline, schema) = match case.as_str() {
                "embeddings" => (
                    "exec --json --shell 'echo \"[{\\\"t\\\":\\\"Hello\\\"}]\"' | llm.embed --model \
                     text-embedding-3-small --field t"
                        .to_owned(),
                    "embeddings",
                ),
                _ => (
                    format!(
                        "llm.invoke --prompt Hello --disable-cache --model {} {}",
                        model(provider),
                        words(provider, case)
                    ),
                    provider.as_str(),
                ),
            };
            let answers = &recorded["responses"][provider];
            let answer = answers.get(case).unwrap_or(&answers["text"]).clone();
            let (sent, envelope) = ask(provider, &pipeline, move || Reply::json(&answer));
            assert_eq!(envelope["ok"], true, "{provider} {case}: {envelope}");
            let [request] = sent.as_slice() else { panic!("{provider} {case}: {} requests", sent.len()) };
            let path =
                |path: &str| path.split_once("/models/").map_or(path.to_owned(), |(_, rest)| rest.to_owned());
            assert_eq!(path(&request.path), path(theirs["path"].as_str().unwrap()), "{provider} {case}");
            let body = request.json();
            let schema = Schema::compile(&recorded["schemas"][schema]).unwrap();
            assert_eq!(schema.first_error(&body), None, "{provider} {case}: {body:#}");
            let more = MORE.iter().filter(|(of, at, _)| of == provider && (at.is_empty() || at == case));
            let more: BTreeSet<String> =
                more.flat_map(|(.., names)| *names).map(|name| (*name).to_owned()).collect();
            let (own, sdk) = (fields(&body), fields(&theirs["body"]));
            // Numbers are what the API sends unless it is asked for something else.
            let missing: Vec<_> = sdk.difference(&own).filter(|name| *name != "encoding_format").collect();
            let extra: Vec<_> = own.difference(&sdk).filter(|name| !more.contains(*name)).collect();
            assert!(
                missing.is_empty() && extra.is_empty(),
                "{provider} {case}: lacks {missing:?}, has also {extra:?}: {body}"
            );
            let is_plain = !["image", "schema", "embeddings", "system"].contains(&case.as_str());
            for name in sdk.iter().filter(|_| is_plain) {
                let theirs = &theirs["body"][name];
                // What the API wants is 64 in every recorded call.
                let is_given = name != "max_tokens" || case == "limit";
                // A text may also be sent as a list of parts: the types say so.
                if is_given && !body[name].is_array() && (theirs.is_string() || theirs.is_number()) {
                    assert_eq!(&body[name], theirs, "{provider} {case} {name}");
                }
            }
            for (name, value) in theirs["headers"].as_object().unwrap() {
                // Anthropic's SDK sends a bearer token and a newer version; lobster an `x-api-key`.
                if provider != "anthropic" {
                    assert_eq!(request.header(name), value.as_str(), "{provider} {case} {name}");
                }
            }
            compared += 1;
        }
    }
    assert!(compared >= 24, "{compared}");
}

#[test]
fn whole_responses_as_the_sdks_write_them_are_read() {
    responses_are_read("responses", Reply::json);
}

#[test]
fn streams_as_the_sdks_write_them_are_read() {
    responses_are_read("streams", |events| {
        let body: String = events.as_array().unwrap().iter().map(event).collect();
        Reply::status(200, "content-type: text/event-stream; charset=utf-8\r\n", &body)
    });
}

/// An event as it stands in a stream.
pub(crate) fn event(event: &Value) -> String {
    match (event.as_str(), event["type"].as_str()) {
        (Some(text), _) => format!("data: {text}\n\n"),
        (None, Some(name)) => format!("event: {name}\ndata: {event}\n\n"),
        (None, None) => format!("data: {event}\n\n"),
    }
}

fn responses_are_read(kind: &str, reply: fn(&Value) -> Reply) {
    let recorded = recorded();
    for (provider, answers) in recorded[kind].as_object().unwrap() {
        for (case, answer) in answers.as_object().unwrap().iter().filter(|(case, _)| *case != "embeddings") {
            let answer = answer.clone();
            let pipeline = format!(
                "llm.invoke --prompt Hello --disable-cache --model {} {}",
                model(provider),
                words(provider, "schema")
            );
            // A model that is made to answer by a tool does so; one that is asked for JSON gives text.
            if provider == "anthropic" && case == "text" {
                continue;
            }
            let (sent, envelope) = ask(provider, &pipeline, move || reply(&answer));
            assert_eq!(sent.len(), 1, "{provider} {case}");
            let item = &envelope["output"][0];
            assert_eq!(item["output"]["data"], json!({"n": 7}), "{provider} {case}: {envelope}");
            assert_eq!(item["usage"]["inputTokens"], 19, "{provider} {case}: {envelope}");
            assert_eq!(item["usage"]["outputTokens"], 10, "{provider} {case}: {envelope}");
        }
    }
}

#[test]
fn a_status_is_tried_again_where_the_sdks_do() {
    let recorded = recorded();
    for (provider, statuses) in recorded["statuses"].as_object().unwrap() {
        for (status, times) in statuses.as_object().unwrap() {
            let number: u16 = status.parse().unwrap();
            let server =
                Server::start(move |_, _| Reply::status(number, "", r#"{"error":{"message":"no"}}"#));
            let home = Home::new();
            home.write(
                "flow.lobster",
                format!(
                    "steps:\n  - id: ask\n    retry: {{max: 3, delay_ms: 1}}\n    pipeline: llm.invoke --prompt Hello \
                     --disable-cache --provider {provider} --model {}\n",
                    model(provider)
                ),
            );
            let call = home.lobster(["run", "--mode", "tool", "flow.lobster"]);
            let call = call.env("OPENAI_BASE_URL", format!("{}/v1", server.url())).env("OPENAI_API_KEY", KEY);
            let answer = call.env("ANTHROPIC_BASE_URL", server.url()).env("ANTHROPIC_API_KEY", KEY).run();
            assert!(answer.error().contains(status), "{provider} {status}: {answer:?}");
            let sent = server.requests().len();
            assert_eq!(sent as u64, times.as_u64().unwrap(), "{provider} {status}: {answer:?}");
        }
    }
}
