//! Embeddings of texts, in OpenAI's form (`POST /embeddings`).
//! <https://platform.openai.com/docs/api-reference/embeddings>

use serde_json::{Value, json};

use super::Spend;
use super::bounds::Bounds;
use super::channel::{Channel, Failure};
use crate::http;
use lobster_base::json;
use lobster_stage::{HttpSender, StageError, WorstCase};

/// Most texts of one request.
pub const MAX_TEXTS: usize = 256;

/// Most bytes of the texts of one request: the providers' limit at one token per byte.
pub const MAX_BYTES: usize = 256 << 10;

/// Texts to be embedded by one call.
#[derive(Clone, Debug)]
pub struct Embedding {
    /// The model.
    pub model: String,
    /// The texts, in order.
    pub texts: Vec<String>,
    /// Length of the vectors, if the model offers a choice.
    pub dimensions: Option<u64>,
}

impl Embedding {
    fn request_body(&self) -> Value {
        let mut body = json!({"model": self.model, "input": self.texts});
        if let Some(dimensions) = self.dimensions {
            body["dimensions"] = json!(dimensions);
        }
        body
    }

    /// A description of the call, without secrets.
    ///
    /// # Errors
    /// The provider has no embeddings.
    pub fn describe_request(&self, channel: &Channel) -> Result<Value, StageError> {
        let post = channel.embeddings_post().ok_or_else(|| missing_embeddings(channel))?;
        Ok(json!({
            "operation": "embeddings",
            "provider": channel.provider.name(),
            "method": "POST",
            "url": http::redacted_address(&post.url),
            "body": self.request_body(),
        }))
    }

    /// Requests one vector for each text, once; also returns the spend.
    ///
    /// # Errors
    /// The errors of any model call.
    pub fn request_vectors(
        &self,
        channel: &Channel,
        bounds: &Bounds<'_>,
        send: &HttpSender<'_>,
    ) -> Result<(Vec<Value>, Option<Spend>), Failure> {
        let mut post =
            channel.embeddings_post().ok_or_else(|| Failure::Budget(missing_embeddings(channel)))?;
        post.body = json::compact(&self.request_body());
        let worst = WorstCase {
            model: Some(self.model.clone()),
            input_tokens: post.body.len() as u64,
            output_tokens: Some(0),
        };
        bounds.call_if_affordable(Some(&worst), || self.read_vectors(&channel.post_json(&post, send)?))
    }

    fn read_vectors(&self, answer: &Value) -> Result<(Vec<Value>, Option<Spend>), Failure> {
        let Some(data) = answer.get("data").and_then(Value::as_array) else {
            return Err(match answer.pointer("/error/message").and_then(Value::as_str) {
                Some(message) => Failure::Remote(message.to_owned()),
                None => Failure::Envelope("data must be array".to_owned()),
            });
        };
        let mut vectors = vec![Value::Null; self.texts.len()];
        for (place, entry) in data.iter().enumerate() {
            let index = entry.get("index").and_then(Value::as_u64).map_or(Some(place), |n| n.try_into().ok());
            let vector = entry.get("embedding").filter(|vector| is_vector(vector));
            if let (Some(slot), Some(vector)) = (index.and_then(|index| vectors.get_mut(index)), vector) {
                *slot = vector.clone();
            }
        }
        if let Some(missing) = vectors.iter().position(Value::is_null) {
            return Err(Failure::Envelope(format!("data has no numbers for text {}", missing + 1)));
        }
        let spend = answer.get("usage").filter(|usage| usage.is_object()).map(|usage| {
            let count = |name: &str| usage.get(name).and_then(Value::as_u64);
            let input = count("prompt_tokens").or_else(|| count("total_tokens")).unwrap_or(0);
            Spend {
                call: uuid::Uuid::now_v7().to_string(),
                model: Some(self.model.clone()),
                usage: super::token_usage(input, 0),
                is_lost: false,
            }
        });
        Ok((vectors, spend))
    }
}

fn is_vector(value: &Value) -> bool {
    value.as_array().is_some_and(|numbers| !numbers.is_empty() && numbers.iter().all(Value::is_number))
}

fn missing_embeddings(channel: &Channel) -> StageError {
    StageError::permanent(format!(
        "provider {} has no embeddings; use openai, azure, gemini or any server with /embeddings",
        channel.provider.name()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_embedding() -> Embedding {
        Embedding { model: "m".into(), texts: vec!["a".into(), "b".into()], dimensions: Some(2) }
    }

    #[test]
    fn vectors_come_in_the_order_of_the_texts() {
        let answer = json!({
            "data": [{"index": 1, "embedding": [3, 4]}, {"index": 0, "embedding": [0.5, -2e-3]}],
            "usage": {"prompt_tokens": 7, "total_tokens": 7},
        });
        let (vectors, spend) = sample_embedding().read_vectors(&answer).unwrap();
        assert_eq!(vectors, [json!([0.5, -2e-3]), json!([3, 4])]);
        let spend = spend.unwrap();
        assert_eq!((spend.model.as_deref(), &spend.usage["inputTokens"]), (Some("m"), &json!(7)));
        assert_eq!(
            sample_embedding().request_body(),
            json!({"model": "m", "input": ["a", "b"], "dimensions": 2})
        );
    }

    #[test]
    fn an_answer_that_lacks_a_vector_is_none() {
        for (answer, why) in [
            (json!({"error": {"message": "no"}}), "C remote error: no"),
            (json!([]), "data must be array"),
            (json!({"data": [{"index": 0, "embedding": [1]}]}), "no numbers for text 2"),
            (json!({"data": [{"embedding": [1]}, {"embedding": ["x"]}]}), "no numbers for text 2"),
            (json!({"data": [{"index": 9, "embedding": [1]}, {"embedding": []}]}), "no numbers for text 1"),
        ] {
            let message = sample_embedding().read_vectors(&answer).unwrap_err().message_for("C");
            assert!(message.contains(why), "{message}");
        }
    }
}
