//! `llm.embed`: computes vectors that represent the meaning of texts.
//!
//! Each request is a separate effect, so that a resumed run pays for none twice.

use lobster_base::code::Code;
use serde_json::{Value, json};

use super::describe::{Arg, command_schema, example_list};
use super::item_path::Path;
use lobster_base::json;
use lobster_models::CALL;
use lobster_models::bounds::Bounds;
use lobster_models::channel::{Channel, Given, Provider, Variables};
use lobster_models::embedding::{Embedding, MAX_BYTES, MAX_TEXTS};
use lobster_stage::{
    Destination, EffectAction, Flag, Flow, Host, Sink, Stage, StageArgs, StageError, StageKind, StageSpec,
    Stop,
};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "llm.embed",
    description: "Embed texts as vectors",
    help: "\
Usage:
  ... | llm.embed --provider openai --model text-embedding-3-small --field body

Gives {\"input\": ITEM, \"embedding\": [NUMBERS]} for each item, in order. An item that is no
text is embedded as JSON, unless --field names its text. Up to 256 texts go into a request,
and each request is recorded, so that a resumed run pays for none twice.

Providers (--provider or LOBSTER_LLM_PROVIDER): openai (or any server with /embeddings, by
OPENAI_BASE_URL), azure, gemini; with the variables of llm.invoke.
",
    flags: &[
        Flag { name: "model", value: Some("NAME"), help: "the model (LOBSTER_LLM_MODEL)" },
        Flag { name: "provider", value: Some("NAME"), help: "the provider (LOBSTER_LLM_PROVIDER)" },
        Flag { name: "field", value: Some("PATH"), help: "path of the text in an item" },
        Flag { name: "dimensions", value: Some("N"), help: "length of the vectors" },
        Flag { name: "token", value: Some("TOKEN"), help: "bearer token or key" },
    ],
    args_schema: || {
        command_schema(&[
            Arg::text("model", "Model"),
            Arg::text("provider", "openai, azure or gemini"),
            Arg::text("field", "Path of the text in an item"),
            Arg::number("dimensions", "Length of the vectors"),
            Arg::text("token", "Bearer token or key"),
        ])
    },
    examples: || {
        example_list(&[(r#"{"model":"text-embedding-3-small","field":"body"}"#, "Each item's body")])
    },
    side_effects: Some(&["calls_llm"]),
    kind: StageKind::Effect,
    build,
};

struct Embed {
    model: Option<String>,
    provider: Option<String>,
    token: Option<String>,
    field: Option<Path>,
    dimensions: Option<u64>,
    batch: Vec<(Value, String)>,
    bytes: usize,
}

fn build(args: &StageArgs) -> Result<Box<dyn Stage + Send>, StageError> {
    let refuse = |text: &str| StageError::permanent(format!("llm.embed {text}"));
    let word = |name: &str| {
        args.text_or_true(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    if args.get("token") == Some(&Value::Bool(true)) {
        return Err(refuse("--token has no value"));
    }
    let dimensions = word("dimensions")
        .map(|text| {
            text.parse::<u64>()
                .ok()
                .filter(|n| *n > 0)
                .ok_or_else(|| refuse("--dimensions must be a whole number above 0"))
        })
        .transpose()?;
    Ok(Box::new(Embed {
        model: word("model"),
        provider: word("provider").map(|name| name.to_lowercase()),
        token: args.text_or_true("token"),
        field: word("field").map(|path| Path::new(&path)),
        dimensions,
        batch: Vec::new(),
        bytes: 0,
    }))
}

impl Stage for Embed {
    fn process_item(&mut self, item: Value, host: &mut dyn Host, out: &mut dyn Sink) -> Result<Flow, Stop> {
        let text = self.item_text(&item)?;
        let is_full = self.batch.len() == MAX_TEXTS || self.bytes + text.len() > MAX_BYTES;
        if is_full && !self.batch.is_empty() {
            self.flush_batch(host, out)?;
        }
        self.bytes += text.len();
        self.batch.push((item, text));
        Ok(Flow::More)
    }

    fn end_input(&mut self, host: &mut dyn Host, out: &mut dyn Sink) -> Result<(), Stop> {
        self.flush_batch(host, out)
    }
}

impl Embed {
    fn item_text(&self, item: &Value) -> Result<String, StageError> {
        let value = match &self.field {
            Some(path) => path.get(item),
            None => Some(std::borrow::Cow::Borrowed(item)),
        };
        let text = match value.as_deref() {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(value) => json::compact(value),
        };
        match text.trim().is_empty() {
            true => Err(StageError::permanent(
                "llm.embed: an item has no text to embed; filter such items with `where`, or name the text with --field",
            )),
            false => Ok(text),
        }
    }

    fn choose_provider(&self, host: &dyn Host) -> Result<Provider, StageError> {
        let ambient = || host.env_var("LOBSTER_LLM_PROVIDER").map(|name| name.trim().to_lowercase());
        let name = self.provider.clone().or_else(ambient).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| {
            StageError::permanent(
                "llm.embed could not resolve a provider. Set --provider or LOBSTER_LLM_PROVIDER",
            )
        })?;
        Provider::from_name(&name).ok_or_else(|| {
            StageError::permanent(format!(
                "llm.embed: unsupported provider {name}; openai, azure and gemini have embeddings"
            ))
        })
    }

    /// Embeds the collected items with one request.
    fn flush_batch(&mut self, host: &mut dyn Host, out: &mut dyn Sink) -> Result<(), Stop> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let provider = self.choose_provider(host)?;
        let model = self
            .model
            .clone()
            .or_else(|| host.env_var("LOBSTER_LLM_MODEL").filter(|name| !name.trim().is_empty()));
        let model =
            model.ok_or_else(|| StageError::permanent("llm.embed needs --model or LOBSTER_LLM_MODEL"))?;
        let (items, texts): (Vec<Value>, Vec<String>) = std::mem::take(&mut self.batch).into_iter().unzip();
        self.bytes = 0;
        let embedding = Embedding { model, texts, dimensions: self.dimensions };
        let token = self.token.as_deref();
        let channel = |variables: Variables<'_>| {
            Channel::new("llm.embed", provider, Given { token, ..Given::default() }, variables)
        };
        let detail = {
            let credential = |to: Destination<'_>| host.find_credential(to);
            let variables = Variables {
                env: &|name: &str| host.env_var(name),
                token: &|name: &str| host.find_token(name),
                credential: &credential,
            };
            embedding.describe_request(&channel(variables)?)?
        };
        let action = EffectAction { kind: CALL.to_owned(), detail, idempotent: false };
        let has_budget = host.has_budget();
        let answer = host.perform_effect(action, &mut |effect| {
            let variables = Variables { env: effect.env, token: effect.token, credential: effect.credential };
            let channel = channel(variables)?;
            let bounds = Bounds { has_budget, reserve: effect.reserve, give_back: effect.give_back };
            let (vectors, spend) = embedding
                .request_vectors(&channel, &bounds, effect.send)
                .map_err(|failure| failure.error_for("llm.embed"))?;
            let usage = spend.as_ref().map(|spend| Value::Object(spend.usage.clone()));
            let mut record = json!({
                "result": {"model": embedding.model, "usage": usage},
                "spend": Vec::from_iter(spend),
                "vectors": vectors,
                "provider": provider.name(),
            });
            if let Some(secret) = channel.secret_name() {
                record["secret"] = json!(secret);
            }
            Ok(record)
        })?;
        let vectors = answer["vectors"].as_array().cloned().unwrap_or_default();
        if vectors.len() != items.len() {
            return Err(StageError::new("llm.embed: the recorded answer has other texts")
                .with_code(Code::Model)
                .into());
        }
        for (item, vector) in items.into_iter().zip(vectors) {
            out.emit_item(json!({"input": item, "embedding": vector}))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::recording_host::{RecordingHost, error_of, run};
    use super::*;
    use crate::http_server::{Answer, Server};

    fn embedding_answer(vectors: &[Value]) -> Answer {
        let data: Vec<Value> = vectors
            .iter()
            .enumerate()
            .map(|(index, vector)| json!({"index": index, "embedding": vector}))
            .collect();
        Answer::json(&json!({"data": data, "model": "m-1", "usage": {"prompt_tokens": 4, "total_tokens": 4}}))
    }

    fn openai_host(server: &Server) -> RecordingHost {
        let mut host = RecordingHost::new();
        host.set("OPENAI_BASE_URL", &server.url("/v1"));
        host.set("OPENAI_API_KEY", "okey");
        host
    }

    #[test]
    fn each_item_gets_its_vector_and_a_resumed_run_asks_nobody() {
        let server = Server::start([embedding_answer(&[json!([1, 2]), json!([3, 4])])]);
        let mut host = openai_host(&server);
        let args = json!({"provider": "openai", "model": "m", "field": "body"});
        let items = vec![json!({"id": 1, "body": "a"}), json!({"id": 2, "body": {"x": 1}})];
        let embedded = run(&SPEC, &args, items.clone(), &mut host).unwrap();
        assert_eq!(
            embedded,
            [
                json!({"input": {"id": 1, "body": "a"}, "embedding": [1, 2]}),
                json!({"input": {"id": 2, "body": {"x": 1}}, "embedding": [3, 4]}),
            ]
        );
        host.resume_run();
        assert_eq!(run(&SPEC, &args, items, &mut host).unwrap(), embedded);
        let seen = server.requests();
        assert_eq!((seen.len(), seen[0].path.as_str()), (1, "/v1/embeddings"));
        assert_eq!(seen[0].header("authorization"), Some("Bearer okey"));
        assert_eq!(seen[0].json(), json!({"model": "m", "input": ["a", "{\"x\":1}"]}));
        let (action, recorded) = &host.recorded_effects()[0];
        assert_eq!((action.kind.as_str(), &recorded["spend"][0]["usage"]["inputTokens"]), (CALL, &json!(4)));
        assert!(!format!("{:?}", host.recorded_actions()).contains("okey"));
    }

    #[test]
    fn many_texts_go_in_several_requests() {
        let full: Vec<Value> = (0..MAX_TEXTS).map(|n| json!([n])).collect();
        let server = Server::start([embedding_answer(&full), embedding_answer(&[json!([9])])]);
        let mut host = openai_host(&server);
        let items = (0..=MAX_TEXTS).map(|n| json!(format!("text {n}"))).collect();
        let embedded = run(&SPEC, &json!({"provider": "openai", "model": "m"}), items, &mut host).unwrap();
        assert_eq!(embedded.len(), MAX_TEXTS + 1);
        assert_eq!(embedded[MAX_TEXTS], json!({"input": format!("text {MAX_TEXTS}"), "embedding": [9]}));
        assert_eq!(server.requests().len(), 2);
    }

    #[test]
    fn refusals() {
        let server = Server::start([embedding_answer(&[])]);
        for (args, item, message) in [
            (json!({}), json!("a"), "could not resolve a provider"),
            (json!({"provider": "nope"}), json!("a"), "unsupported provider nope"),
            (
                json!({"provider": "anthropic", "model": "m"}),
                json!("a"),
                "provider anthropic has no embeddings",
            ),
            (json!({"provider": "openai"}), json!("a"), "needs --model"),
            (json!({"provider": "openai", "model": "m"}), json!(" "), "has no text to embed"),
            (
                json!({"provider": "openai", "model": "m", "dimensions": "-1"}),
                json!("a"),
                "--dimensions must be",
            ),
        ] {
            let error = error_of(run(&SPEC, &args, vec![item], &mut openai_host(&server)));
            assert!(error.message.contains(message), "{}", error.message);
        }
        assert!(server.requests().is_empty());
        let short = error_of(run(
            &SPEC,
            &json!({"provider": "openai", "model": "m"}),
            vec![json!("a")],
            &mut openai_host(&server),
        ));
        assert!(short.message.contains("no numbers for text 1"), "{}", short.message);
    }
}
