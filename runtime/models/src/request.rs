//! Requests to a model, independent of the provider.

use serde_json::{Map, Number, Value, json};
use sha2::{Digest, Sha256};

use crate::attachment::Attachment;
use lobster_base::json;
use lobster_stage::{StageError, WorstCase};

/// Fields of an artifact that are text wherever they occur.
const TEXT_FIELDS: [&str; 6] = ["kind", "role", "name", "mimeType", "text", "uri"];

/// A request before it takes a provider's form.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub prompt: String,
    /// Instructions for the whole conversation.
    pub system: Option<String>,
    /// Files sent with the prompt.
    pub files: Vec<Attachment>,
    pub model: Option<String>,
    /// Normalised: each is an object.
    pub artifacts: Vec<Value>,
    pub artifact_hashes: Vec<String>,
    pub metadata: Option<Value>,
    pub output_schema: Option<Value>,
    pub schema_version: String,
    pub max_output_tokens: Option<Number>,
    pub temperature: Option<Number>,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// Makes answers repeatable, as far as the provider can.
    pub seed: Option<Number>,
    /// Reasoning effort, in the provider's own word.
    pub effort: Option<String>,
}

/// The reason for asking the model again.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// 2 for the first repetition.
    pub attempt: u32,
    /// Violations of the schema, each with its path.
    pub errors: Vec<String>,
    /// The answer that did not fit; blank if it had no text.
    pub said: String,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChatTurn<'r> {
    /// True if it is the model's message.
    pub is_model: bool,
    /// The text, including text files.
    pub text: String,
    /// The other files.
    pub files: Vec<&'r Attachment>,
}

impl Request {
    /// Takes the items of the pipeline and of `--artifacts-json` as artifacts.
    pub fn set_artifacts(&mut self, items: Vec<Value>) {
        self.artifacts = items.into_iter().map(to_artifact).collect();
        self.artifact_hashes =
            self.artifacts.iter().map(|artifact| sha256_hex(&json::stable_text(artifact))).collect();
    }

    /// Fields of artifacts that adapters would refuse because they must be text and are not.
    pub fn artifact_violations(&self) -> Vec<String> {
        let fields = |(index, artifact): (usize, &Value)| {
            TEXT_FIELDS
                .iter()
                .filter(|name| artifact.get(**name).is_some_and(|value| !value.is_string()))
                .map(|name| format!("data/artifacts/{index}/{name} must be string"))
                .collect::<Vec<_>>()
        };
        self.artifacts.iter().enumerate().flat_map(fields).collect()
    }

    /// The body for adapters.
    pub fn adapter_payload(&self, retry: Option<&Retry>) -> Value {
        let mut body = Map::new();
        body.insert("prompt".into(), json!(self.prompt));
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                body.insert(name.to_owned(), value);
            }
        };
        put("model", self.model.as_ref().map(|model| json!(model)));
        put("artifacts", Some(json!(self.artifacts)));
        put("artifactHashes", Some(json!(self.artifact_hashes)));
        put("metadata", self.metadata.clone());
        put("outputSchema", self.output_schema.clone());
        put("schemaVersion", Some(json!(self.schema_version)));
        put("maxOutputTokens", self.max_output_tokens.clone().map(Value::Number));
        put("temperature", self.temperature.clone().map(Value::Number));
        for (name, value) in self.added_fields() {
            put(name, Some(value));
        }
        put("retryContext", retry.map(|r| json!({"attempt": r.attempt, "validationErrors": r.errors})));
        Value::Object(body)
    }

    /// The most that a request with this body can use. No tokenizer makes more than one token per byte.
    pub(crate) fn worst_case(&self, body: &Value) -> WorstCase {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates at both ends")]
        let whole = |tokens: f64| tokens.ceil() as u64;
        WorstCase {
            model: self.model.clone(),
            input_tokens: json::compact(body).len() as u64,
            output_tokens: self.max_output_tokens.as_ref().and_then(Number::as_f64).map(whole),
        }
    }

    /// The cache key of the answer; the incumbent's caches are shared.
    pub fn cache_key(&self, provider: &str) -> String {
        let model = self.model.clone().unwrap_or_else(|| format!("{provider}-default"));
        let mut key = json!({
            "artifactHashes": self.artifact_hashes,
            "cacheKeyVersion": 2,
            "maxOutputTokens": self.max_output_tokens,
            "model": model,
            "outputSchema": self.output_schema,
            "prompt": self.prompt,
            "provider": provider,
            "schemaVersion": self.schema_version,
            "temperature": self.temperature,
        });
        for (name, value) in self.added_fields() {
            key[name] = value;
        }
        sha256_hex(&json::stable_text(&key))
    }

    /// Fields unknown to the incumbent: sent, and part of a key, only if set.
    fn added_fields(&self) -> Vec<(&'static str, Value)> {
        let all = [
            ("system", json!(self.system)),
            ("files", json!(self.files)),
            ("stop", json!(self.stop)),
            ("seed", json!(self.seed)),
            ("reasoningEffort", json!(self.effort)),
        ];
        all.into_iter().filter(|(_, value)| is_set(value)).collect()
    }

    /// Refuses settings that a provider has no field for: a setting must not be dropped silently.
    pub(crate) fn refuse_settings(&self, provider: &str, without: &[&str]) -> Result<(), StageError> {
        let unknown = self.added_fields().into_iter().find(|(name, _)| without.contains(name));
        match unknown {
            None => Ok(()),
            Some((name, _)) => {
                let option = if name == "reasoningEffort" { "effort" } else { name };
                Err(StageError::permanent(format!("provider {provider} has no setting for --{option}")))
            }
        }
    }

    /// The conversation: the request and, after an invalid answer, that answer with its errors.
    pub(crate) fn chat_turns(&self, retry: Option<&Retry>) -> Vec<ChatTurn<'_>> {
        let files = self.files.iter().filter(|file| file.data.is_some()).collect();
        let mut turns = vec![ChatTurn { is_model: false, text: self.prompt_text(), files }];
        match retry {
            None => {}
            Some(retry) if retry.said.trim().is_empty() => {
                turns[0].text.push_str("\n\n");
                turns[0].text.push_str(&retry.correction_text());
            }
            Some(retry) => turns.extend(
                [(true, retry.said.clone()), (false, retry.correction_text())]
                    .map(|(is_model, text)| ChatTurn { is_model, text, files: Vec::new() }),
            ),
        }
        turns
    }

    /// The conversation as messages of a role and a content, which `with_files` makes of a text and files.
    pub(crate) fn chat_messages(
        &self,
        retry: Option<&Retry>,
        with_files: impl Fn(Value, Vec<&Attachment>) -> Value,
    ) -> impl Iterator<Item = Value> {
        self.chat_turns(retry).into_iter().map(move |turn| {
            let role = if turn.is_model { "assistant" } else { "user" };
            let content = match turn.files.is_empty() {
                true => json!(turn.text),
                false => with_files(json!({"type": "text", "text": turn.text}), turn.files),
            };
            json!({"role": role, "content": content})
        })
    }

    /// The model, for a provider that requires one.
    pub(crate) fn named_model(&self, provider: &str) -> Result<&str, StageError> {
        self.model.as_deref().ok_or_else(|| {
            StageError::permanent(format!("provider {provider} needs --model or LOBSTER_LLM_MODEL"))
        })
    }

    /// The prompt with the artifacts as text, for providers that accept only messages.
    fn prompt_text(&self) -> String {
        let mut text = self.prompt.clone();
        for (index, artifact) in self.artifacts.iter().enumerate() {
            let only_text = artifact
                .as_object()
                .filter(|map| map.keys().all(|key| matches!(key.as_str(), "kind" | "text")))
                .and_then(|map| map.get("text")?.as_str());
            let content = only_text.map_or_else(|| json::compact(artifact), str::to_owned);
            text.push_str(&format!("\n\n[artifact {}]\n{content}", index + 1));
        }
        for file in self.files.iter().filter_map(Attachment::as_prompt) {
            text.push_str(&format!("\n\n{file}"));
        }
        text
    }
}

impl Retry {
    /// The correction sent to the model.
    pub(crate) fn correction_text(&self) -> String {
        format!(
            "[The previous answer did not fit the schema: {}. Answer again so that it fits.]",
            self.errors.join("; ")
        )
    }
}

/// True if a setting has a value: neither null nor an empty list.
fn is_set(value: &Value) -> bool {
    !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty())
}

/// The settings with a value, as fields of a body.
pub(crate) fn set_fields<const N: usize>(
    fields: [(&str, Value); N],
) -> impl Iterator<Item = (String, Value)> {
    fields.into_iter().filter(|(_, value)| is_set(value)).map(|(name, value)| (name.to_owned(), value))
}

/// An item as an artifact.
fn to_artifact(item: Value) -> Value {
    match item {
        Value::Object(_) => item,
        Value::String(_) | Value::Number(_) | Value::Bool(_) => {
            json!({"kind": "text", "text": json::js_string(&item)})
        }
        Value::Null | Value::Array(_) => json!({"kind": "json", "data": item}),
    }
}

fn sha256_hex(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A number as ECMAScript prints it in JSON; `None` for a value that JSON cannot represent.
pub fn json_number(value: f64) -> Option<Number> {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53
    if value.fract() == 0.0 && value.abs() <= EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "a whole number of at most 2^53")]
        return Some(Number::from(value as i64));
    }
    Number::from_f64(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_request(prompt: &str) -> Request {
        Request { prompt: prompt.into(), schema_version: "v1".into(), ..Request::default() }
    }

    #[test]
    fn hashes_and_keys_are_the_incumbents() {
        assert_eq!(
            sample_request("hi1").cache_key("openclaw"),
            "c19776fcb9312487823a190e1a071196a937064a535b280e49b24af3f5dd60ce"
        );
        let mut with = sample_request("x");
        with.set_artifacts(vec![json!("t"), json!({"b": 1, "a": 2})]);
        assert_eq!(
            with.artifact_hashes[0],
            "986f63dbbb5eb49dea4d21721a42ea81e12c9dbed805ed444775dae591fe56c3"
        );
        let mut other = sample_request("x");
        other.set_artifacts(vec![json!("t"), json!({"a": 2, "b": 1.0})]);
        assert_eq!(with.cache_key("http"), other.cache_key("http"));
        assert_ne!(with.cache_key("http"), with.cache_key("pi"));
        let named = Request { model: Some("http-default".into()), ..with.clone() };
        assert_eq!(named.cache_key("http"), with.cache_key("http"));
    }

    #[test]
    fn payloads_hold_what_is_there_in_order() {
        assert_eq!(
            json::compact(&sample_request("hi1").adapter_payload(None)),
            r#"{"prompt":"hi1","artifacts":[],"artifactHashes":[],"schemaVersion":"v1"}"#
        );
        let full = Request {
            model: Some("m".into()),
            metadata: Some(json!({"a": 1})),
            output_schema: Some(json!({"type": "object"})),
            max_output_tokens: json_number(100.0),
            temperature: json_number(0.5),
            ..sample_request("p")
        };
        assert_eq!(
            json::compact(&full.adapter_payload(Some(&Retry {
                attempt: 2,
                errors: vec!["/ must be object".into()],
                said: "5".into()
            }))),
            r#"{"prompt":"p","model":"m","artifacts":[],"artifactHashes":[],"metadata":{"a":1},"outputSchema":{"type":"object"},"schemaVersion":"v1","maxOutputTokens":100,"temperature":0.5,"retryContext":{"attempt":2,"validationErrors":["/ must be object"]}}"#
        );
        assert_eq!(json_number(f64::NAN), None);
        assert_eq!(json_number(f64::INFINITY), None);
    }

    #[test]
    fn what_the_incumbent_does_not_know_is_sent_where_it_is_set() {
        let with = Request {
            system: Some("be brief".into()),
            stop: vec!["END".into()],
            seed: json_number(7.0),
            effort: Some("low".into()),
            ..sample_request("p")
        };
        assert_eq!(
            json::compact(&with.adapter_payload(None)),
            r#"{"prompt":"p","artifacts":[],"artifactHashes":[],"schemaVersion":"v1","system":"be brief","stop":["END"],"seed":7,"reasoningEffort":"low"}"#
        );
        assert_ne!(with.cache_key("http"), sample_request("p").cache_key("http"));
        let refused = with.refuse_settings("x", &["seed", "reasoningEffort"]).unwrap_err().message;
        assert_eq!(refused, "provider x has no setting for --seed");
        assert!(with.refuse_settings("x", &["files"]).is_ok());
    }

    #[test]
    fn a_model_is_shown_its_own_answer_and_what_is_wrong_with_it() {
        let retry =
            |said: &str| Retry { attempt: 2, errors: vec!["/n must be integer".into()], said: said.into() };
        let fit =
            "[The previous answer did not fit the schema: /n must be integer. Answer again so that it fits.]";
        let turn = |is_model: bool, text: &str| ChatTurn { is_model, text: text.into(), files: vec![] };
        assert_eq!(sample_request("p").chat_turns(None), [turn(false, "p")]);
        assert_eq!(
            sample_request("p").chat_turns(Some(&retry("{\"n\":\"x\"}"))),
            [turn(false, "p"), turn(true, "{\"n\":\"x\"}"), turn(false, fit)]
        );
        assert_eq!(sample_request("p").chat_turns(Some(&retry(" "))), [turn(false, &format!("p\n\n{fit}"))]);
    }

    #[test]
    fn items_become_artifacts() {
        let mut request = sample_request("p");
        request.set_artifacts(vec![
            json!("text"),
            json!(5),
            json!(true),
            json!({"any": 1}),
            json!([1, 2]),
            json!(null),
            json!({"kind": 3, "text": null}),
        ]);
        assert_eq!(
            json!(request.artifacts),
            json!([
                {"kind": "text", "text": "text"}, {"kind": "text", "text": "5"}, {"kind": "text", "text": "true"},
                {"any": 1}, {"kind": "json", "data": [1, 2]}, {"kind": "json", "data": null}, {"kind": 3, "text": null}
            ])
        );
        assert_eq!(
            request.artifact_violations(),
            ["data/artifacts/6/kind must be string", "data/artifacts/6/text must be string"]
        );
        assert!(request.prompt_text().starts_with("p\n\n[artifact 1]\ntext\n\n[artifact 2]\n5\n"));
        assert!(request.prompt_text().contains("[artifact 4]\n{\"any\":1}"));
    }
}
