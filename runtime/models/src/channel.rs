//! Channels: a provider with its address and its key.

mod private_header;
mod streamed;

use std::collections::BTreeMap;

use lobster_base::code::Code;
use serde_json::{Map, Value, json};

use super::request::{Request, Retry};
use super::{adapter_answer, anthropic, gemini, llm_task, openai, reported, responses};
use crate::http::{self, CompleteReply, HttpError, HttpLimits, Post, RequestAuth, Secret, Url};
use lobster_base::json;

use lobster_stage::{Destination, HttpSender, StageError, Token, WorstCase};
use private_header::is_private;
pub use streamed::STREAM;

/// Interfaces through which models are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// The `llm-task` tool of an OpenClaw gateway.
    OpenClaw,
    /// The adapter of a Pi host.
    Pi,
    /// Any adapter that speaks lobster's own payloads.
    Http,
    /// OpenAI's chat completions, which many servers imitate.
    OpenAi,
    /// OpenAI's responses.
    Responses,
    /// OpenAI's models in Azure, by their chat completions.
    Azure,
    /// Anthropic's messages.
    Anthropic,
    /// Google's Gemini models.
    Gemini,
}

impl Provider {
    pub const ALL: [Self; 8] = [
        Self::OpenClaw,
        Self::Pi,
        Self::Http,
        Self::OpenAi,
        Self::Responses,
        Self::Azure,
        Self::Anthropic,
        Self::Gemini,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::OpenClaw => "openclaw",
            Self::Pi => "pi",
            Self::Http => "http",
            Self::OpenAi => "openai",
            Self::Responses => "openai-responses",
            Self::Azure => "azure",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provider| provider.name() == name)
    }

    /// The variables that may hold the address; the first one that is set is used.
    fn url_variables(self) -> &'static [&'static str] {
        match self {
            Self::OpenClaw => &["OPENCLAW_URL", "CLAWD_URL"],
            Self::Pi => &["LOBSTER_PI_LLM_ADAPTER_URL"],
            Self::Http => &["LOBSTER_LLM_ADAPTER_URL"],
            Self::OpenAi | Self::Responses => &["OPENAI_BASE_URL"],
            Self::Azure => &["AZURE_OPENAI_ENDPOINT"],
            Self::Gemini => &["GEMINI_BASE_URL"],
            Self::Anthropic => &["ANTHROPIC_BASE_URL"],
        }
    }

    /// The variables that may hold the token or key.
    pub fn token_variables(self) -> &'static [&'static str] {
        match self {
            Self::OpenClaw => &["OPENCLAW_TOKEN", "CLAWD_TOKEN"],
            Self::Pi => &["LOBSTER_PI_LLM_ADAPTER_TOKEN"],
            Self::Http => &["LOBSTER_LLM_ADAPTER_TOKEN"],
            Self::OpenAi | Self::Responses => &["OPENAI_API_KEY"],
            Self::Azure => &["AZURE_OPENAI_API_KEY"],
            Self::Gemini => &["GEMINI_API_KEY"],
            Self::Anthropic => &["ANTHROPIC_API_KEY"],
        }
    }

    fn default_url(self) -> Option<&'static str> {
        match self {
            Self::OpenClaw | Self::Pi | Self::Http | Self::Azure => None,
            Self::Gemini => Some("https://generativelanguage.googleapis.com/v1beta"),
            Self::OpenAi | Self::Responses => Some("https://api.openai.com/v1"),
            Self::Anthropic => Some("https://api.anthropic.com"),
        }
    }

    /// True if lobster calls the model itself, and so may limit its answers. Adapters receive the
    /// incumbent's fields and choose everything else.
    pub(crate) fn is_direct(self) -> bool {
        !matches!(self, Self::OpenClaw | Self::Pi | Self::Http)
    }

    /// Turns the configured address into the address of the requests.
    fn endpoint_url(self, mut url: Url) -> Url {
        match self {
            Self::OpenClaw => {
                url.set_path("/tools/invoke");
                url.set_query(None);
            }
            Self::Pi | Self::Http => {
                if matches!(url.path(), "" | "/") {
                    url.set_path("/invoke");
                }
            }
            Self::OpenAi => append_path(&mut url, "/chat/completions"),
            Self::Responses => append_path(&mut url, "/responses"),
            Self::Azure => {
                if matches!(url.path(), "" | "/") {
                    url.set_path("/openai/v1");
                }
                append_path(&mut url, "/chat/completions");
            }
            // The path contains the model, so it differs per request.
            Self::Gemini => {}
            Self::Anthropic => {
                let base = url.path().trim_end_matches('/').trim_end_matches("/v1").to_owned();
                url.set_path(&base);
                append_path(&mut url, "/v1/messages");
            }
        }
        url.set_fragment(None);
        url
    }
}

fn append_path(url: &mut Url, path: &str) {
    let base = url.path().trim_end_matches('/');
    if !base.ends_with(path) {
        url.set_path(&format!("{base}{path}"));
    }
}

/// Most tokens of an answer if the request names no limit and a budget needs one.
pub const DEFAULT_OUTPUT_TOKENS: u64 = anthropic::MAX_TOKENS as u64;

/// A provider with address, credential and settings.
#[derive(Clone, Debug)]
pub struct Channel {
    pub provider: Provider,
    url: Url,
    credential: Option<RequestAuth>,
    /// The name of the secret used as the credential.
    secret: Option<String>,
    limits: HttpLimits,
    /// Headers of every request.
    headers: BTreeMap<String, String>,
    /// The field of a chat completion that limits the answer, if the operator names it.
    max_tokens_field: Option<String>,
    /// True if answers are requested as streams.
    is_streamed: bool,
}

/// Sources of addresses, limits and keys.
#[derive(Clone, Copy)]
pub struct Variables<'a> {
    /// The step's environment.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// Variables that hold a token or a key: a secret of the step, else its environment.
    pub token: &'a dyn Fn(&str) -> Result<Option<Token>, StageError>,
    /// The credential granted to the step for the address itself.
    pub credential: &'a dyn Fn(Destination<'_>) -> Result<Option<Token>, StageError>,
}

/// Settings of a channel that replace the variables of its provider.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given<'a> {
    pub url: Option<&'a str>,
    /// Blank means no token.
    pub token: Option<&'a str>,
    /// The variable that the operator named for the key of this address.
    pub key_env: Option<&'a str>,
    /// Longest silence, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Headers of every request.
    pub headers: Option<&'a BTreeMap<String, String>>,
    /// The field of a chat completion that limits the answer.
    pub max_tokens_field: Option<&'a str>,
    /// True if answers are requested as streams.
    pub stream: Option<bool>,
}

/// A model's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The fields of an adapter's `result`.
    pub result: Map<String, Value>,
    /// The model whose price applies.
    pub billed: Option<String>,
}

/// A call without an answer.
#[derive(Debug)]
pub enum Failure {
    Http(HttpError),
    /// A status that is not a success.
    Status(CompleteReply),
    /// The response is unusable.
    Request(String),
    /// A failure reported within an answer, with its status: the call was accepted, and may have been
    /// computed.
    Reported(CompleteReply),
    /// The adapter refused.
    Remote(String),
    /// The answer lacks required fields.
    Envelope(String),
    /// The possible cost exceeds the budget; no request was sent.
    Budget(StageError),
}

/// The token in a provider's variables; a secret of the step is preferred to the environment.
fn own_token(provider: Provider, variables: Variables<'_>) -> Result<Option<Token>, StageError> {
    let mut ambient = None;
    for name in provider.token_variables() {
        match (variables.token)(name)? {
            Some(token) if token.secret.is_some() => return Ok(Some(token)),
            token => ambient = ambient.or(token),
        }
    }
    Ok(ambient)
}

/// The credential granted to the step for this address.
fn granted_credential(url: &Url, variables: Variables<'_>) -> Result<Option<Token>, StageError> {
    match (url.host_str(), url.port_or_known_default()) {
        (Some(host), Some(port)) if url.scheme() == "https" => {
            (variables.credential)(Destination { host, port, path: url.path() })
        }
        _ => Ok(None),
    }
}

/// The variable that names the field of a chat completion that limits the answer.
const MAX_TOKENS_FIELD: &str = "LOBSTER_LLM_MAX_TOKENS_FIELD";

/// The variable with headers for every request to a model, a JSON object.
const HEADERS: &str = "LOBSTER_LLM_HEADERS";

fn ambient_headers(env: &dyn Fn(&str) -> Option<String>) -> Result<BTreeMap<String, String>, String> {
    let Some(text) = env(HEADERS).filter(|text| !text.trim().is_empty()) else {
        return Ok(BTreeMap::new());
    };
    json::parse_as(&text).map_err(|error| format!("{HEADERS} must be a JSON object of texts ({error})"))
}

/// The value of a model setting as it may be recorded, without the keys in addresses and headers.
pub fn recorded_setting(name: &str, value: &str) -> Option<String> {
    let is_pool = name == super::pool::VARIABLE;
    if !is_pool && name != HEADERS {
        return None;
    }
    let Ok(mut parsed) = json::parse(value) else {
        // A pool may be a file name; unreadable headers are refused and reveal nothing.
        return Some(if is_pool && !value.trim_start().starts_with(['[', '{']) {
            value.to_owned()
        } else {
            "…".to_owned()
        });
    };
    if is_pool {
        hide_keys(&mut parsed)
    } else {
        hide_headers(&mut parsed)
    }
    Some(json::compact(&parsed))
}

fn hide_keys(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(hide_keys),
        Value::Object(map) => {
            for (name, value) in map.iter_mut() {
                match value {
                    Value::String(url) if name == "url" => *url = http::without_credentials(url),
                    headers if name == "headers" => hide_headers(headers),
                    other => hide_keys(other),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn hide_headers(headers: &mut Value) {
    let Some(headers) = headers.as_object_mut() else { return };
    for (_, value) in headers.iter_mut().filter(|(name, _)| is_private(name)) {
        *value = "…".into();
    }
}

/// Headers are settings and are recorded, so a credential must be given as a key.
fn check_headers(headers: &BTreeMap<String, String>) -> Result<(), String> {
    for (name, value) in headers {
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || !name.chars().all(is_token) || value.chars().any(char::is_control) {
            return Err(format!("cannot send the header {name:?}: it is not a valid HTTP header"));
        }
        if is_private(name) || name.eq_ignore_ascii_case("host") {
            return Err(format!(
                "does not send the header {name}: give a key by --token, key_env or a secret"
            ));
        }
    }
    Ok(())
}

/// Checks that a credential may be sent to an address that is not this machine.
fn may_be_sent(
    provider: Provider,
    url: &Url,
    secret: Option<&str>,
    (has_value, is_named, is_explicit): (bool, bool, bool),
) -> Result<(), String> {
    let names = provider.token_variables().join("/");
    let is_encrypted = url.scheme() == "https";
    if let Some(secret) = secret {
        // The step names it, so it may be sent to a gateway elsewhere.
        return match is_encrypted {
            true => Ok(()),
            false => Err(format!("refuses to send the secret {secret} unencrypted; use an https address")),
        };
    }
    match provider {
        _ if !has_value || is_explicit => Ok(()),
        // Many programs have the gateway's token in their environment, and others the address; together
        // they must not leak it.
        Provider::OpenClaw if !is_named => Err(format!(
            "refuses to send {names} to a gateway that is not local; pass --token explicitly for remote endpoints"
        )),
        _ if provider.is_direct() && !is_encrypted => {
            Err(format!("refuses to send {names} unencrypted; use an https address"))
        }
        _ => Ok(()),
    }
}

impl Channel {
    /// The channel of a provider, for the command `command`.
    pub fn new(
        command: &str,
        provider: Provider,
        given: Given<'_>,
        variables: Variables<'_>,
    ) -> Result<Self, StageError> {
        let env = variables.env;
        let refuse = |text: String| StageError::permanent(format!("{command} {text}"));
        let url = given
            .url
            .map(str::to_owned)
            .or_else(|| provider.url_variables().iter().find_map(|name| env(name)))
            .filter(|url| !url.trim().is_empty())
            .or_else(|| provider.default_url().map(str::to_owned))
            .ok_or_else(|| {
                let (first, others) = provider.url_variables().split_first().unwrap_or((&"", &[]));
                let others: String = others.iter().map(|name| format!(" (or {name})")).collect();
                refuse(format!("requires {first}{others} for provider={}", provider.name()))
            })?;
        let url = http::parse_url(&url)
            .filter(http::is_http)
            .map(|url| provider.endpoint_url(url))
            .ok_or_else(|| refuse("request failed: Invalid URL".to_owned()))?;
        let granted = match given.token {
            None => granted_credential(&url, variables)?,
            Some(_) => None,
        };
        let (token, is_named) = match (given.token, given.key_env) {
            (Some(token), _) => (Some(Token::of_environment(token.to_owned())), true),
            (None, _) if granted.is_some() => (granted, true),
            (None, Some(name)) => {
                let token = (variables.token)(name)?;
                (Some(token.ok_or_else(|| refuse(format!("needs the variable {name}")))?), true)
            }
            (None, None) => (own_token(provider, variables)?, false),
        };
        let secret = token.as_ref().and_then(|token| token.secret.clone());
        let value = token.as_ref().and_then(Secret::from_token);
        if !http::is_loopback(&url) {
            let origin = (value.is_some(), is_named, given.token.is_some());
            may_be_sent(provider, &url, secret.as_deref(), origin).map_err(refuse)?;
        }
        let mut limits = HttpLimits::from_env(env).map_err(|error| refuse(error.to_string()))?;
        if let Some(ms) = given.timeout_ms {
            limits.idle = std::time::Duration::from_millis(ms);
        }
        let credential = value.map(|value| match provider {
            Provider::Anthropic => RequestAuth::Header("x-api-key", value),
            Provider::Azure => RequestAuth::Header("api-key", value),
            Provider::Gemini => RequestAuth::Header("x-goog-api-key", value),
            _ => RequestAuth::Bearer(value),
        });
        let (headers, max_tokens_field) = if provider.is_direct() {
            let headers = match given.headers {
                Some(headers) => headers.clone(),
                None => ambient_headers(env).map_err(refuse)?,
            };
            check_headers(&headers).map_err(refuse)?;
            let field = given.max_tokens_field.map(str::to_owned).or_else(|| env(MAX_TOKENS_FIELD));
            (headers, field.map(|field| field.trim().to_owned()).filter(|field| !field.is_empty()))
        } else {
            (BTreeMap::new(), None)
        };
        let is_streamed = provider.is_direct()
            && match given.stream {
                Some(is_streamed) => is_streamed,
                None => streamed::is_wanted(env).map_err(refuse)?,
            };
        Ok(Self { provider, url, credential, secret, limits, headers, max_tokens_field, is_streamed })
    }

    /// The name of the secret that is sent.
    #[must_use]
    pub fn secret_name(&self) -> Option<&str> {
        self.secret.as_deref()
    }

    /// The request, with a limit of tokens if a budget must know its highest cost.
    pub fn limit_tokens(&self, request: &Request, has_budget: bool) -> Request {
        let mut request = request.clone();
        if has_budget && self.provider.is_direct() && request.max_output_tokens.is_none() {
            request.max_output_tokens = Some(DEFAULT_OUTPUT_TOKENS.into());
        }
        request
    }

    /// The most that a request can use.
    pub(crate) fn worst_case(&self, request: &Request, retry: Option<&Retry>) -> Option<WorstCase> {
        let mut body = self.request_body(request, retry).ok()?;
        self.ask_for_stream(&mut body);
        Some(request.worst_case(&body))
    }

    /// A description of the request, without secrets.
    pub fn describe_request(&self, request: &Request, retry: Option<&Retry>) -> Value {
        let mut detail = json!({
            "provider": self.provider.name(),
            "method": "POST",
            "url": http::redacted_address(&self.request_url(request).unwrap_or_else(|_| self.url.clone())),
            "body": self.request_body(request, retry).unwrap_or_else(|error| json!({"refused": error.message})),
        });
        if self.provider == Provider::Gemini {
            // The body lacks the model.
            detail["model"] = json!(request.model);
        }
        detail
    }

    fn request_body(&self, request: &Request, retry: Option<&Retry>) -> Result<Value, StageError> {
        match self.provider {
            Provider::OpenClaw => {
                Ok(json!({"tool": "llm-task", "action": "invoke", "args": request.adapter_payload(retry)}))
            }
            Provider::Pi | Provider::Http => Ok(request.adapter_payload(retry)),
            Provider::OpenAi | Provider::Azure => {
                openai::request_body(request, retry, self.max_tokens_field())
            }
            Provider::Responses => responses::request_body(request, retry),
            Provider::Anthropic => anthropic::request_body(request, retry),
            Provider::Gemini => gemini::model_path(request).map(|_| gemini::request_body(request, retry)),
        }
    }

    /// OpenAI's newer models refuse the old name of the field; imitations often know only that one.
    fn max_tokens_field(&self) -> &str {
        let own = self.provider == Provider::Azure || self.url.host_str() == Some("api.openai.com");
        self.max_tokens_field.as_deref().unwrap_or(if own { "max_completion_tokens" } else { "max_tokens" })
    }

    /// The address of a request.
    fn request_url(&self, request: &Request) -> Result<Url, StageError> {
        let mut url = self.url.clone();
        if self.provider == Provider::Gemini {
            let path = gemini::model_path(request)?;
            if let Ok(mut segments) = url.path_segments_mut() {
                segments.pop_if_empty().extend(path);
            }
        }
        Ok(url)
    }

    /// Headers of every request.
    fn request_headers(&self) -> Vec<(String, String)> {
        let mut headers: Vec<(String, String)> = self.headers.clone().into_iter().collect();
        if self.provider == Provider::Anthropic {
            headers.push(("anthropic-version".to_owned(), anthropic::VERSION.to_owned()));
        }
        headers
    }

    /// The address of the provider's embeddings, in OpenAI's form; `None` if it has none.
    pub(crate) fn embeddings_post(&self) -> Option<Post> {
        let mut url = self.url.clone();
        let mut credential = self.credential.clone();
        match self.provider {
            Provider::OpenAi | Provider::Azure | Provider::Responses => {
                let path = url.path().trim_end_matches('/');
                let base = ["/chat/completions", "/responses"].iter().find_map(|end| path.strip_suffix(end));
                let path = format!("{}/embeddings", base.unwrap_or(path));
                url.set_path(&path);
            }
            Provider::Gemini => {
                append_path(&mut url, "/openai/embeddings");
                credential = credential.map(|credential| RequestAuth::Bearer(credential.secret().clone()));
            }
            Provider::OpenClaw | Provider::Pi | Provider::Http | Provider::Anthropic => return None,
        }
        Some(Post { url, headers: self.request_headers(), credential, body: String::new() })
    }

    /// Sends a request and parses the JSON of its answer; an empty body is null, as with the incumbent.
    pub(crate) fn post_json(&self, post: &Post, send: &HttpSender<'_>) -> Result<Value, Failure> {
        let reply = http::post(post, self.limits, send).map_err(Failure::Http)?;
        if !reply.is_success() {
            return Err(Failure::Status(reply));
        }
        match reply.streamed_answer(self.limits.body) {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(error)) => {
                let origin = post.url.origin().ascii_serialization();
                Err(Failure::Http(HttpError::Broken { origin, cause: error.to_string() }))
            }
            None => reply.body_json().map_err(|_| Failure::Request("Response was not JSON".to_owned())),
        }
    }

    /// Asks a gateway. If it refuses the incumbent's field names, asks again with the names of its tool.
    fn ask_gateway(
        &self,
        post: &Post,
        request: &Request,
        retry: Option<&Retry>,
        send: &HttpSender<'_>,
    ) -> Result<Value, Failure> {
        if !llm_task::wants_own_names(&post.url) {
            match self.post_json(post, send) {
                Err(Failure::Status(reply)) if llm_task::is_refusal_of_names(&reply) => {
                    llm_task::note_refusal(&post.url);
                }
                other => return other,
            }
        }
        let args =
            llm_task::tool_arguments(request, retry).map_err(|error| Failure::Request(error.message))?;
        let body = json!({"tool": "llm-task", "action": "invoke", "args": args});
        self.post_json(&Post { body: json::compact(&body), ..post.clone() }, send)
    }

    /// Sends one request.
    pub(crate) fn send_request(
        &self,
        request: &Request,
        retry: Option<&Retry>,
        send: &HttpSender<'_>,
    ) -> Result<Answer, Failure> {
        let body = self.request_body(request, retry).map_err(|error| Failure::Request(error.message))?;
        let post = Post {
            url: self.request_url(request).map_err(|error| Failure::Request(error.message))?,
            headers: self.request_headers(),
            credential: self.credential.clone(),
            body: json::compact(&body),
        };
        let answer = match self.provider {
            Provider::OpenClaw => self.ask_gateway(&post, request, retry, send)?,
            _ => self.post_streamed(&post, body, send)?,
        };
        if let Some(failure) = self.provider.is_direct().then(|| reported::find_failure(&answer)).flatten() {
            return Err(failure);
        }
        let result = match self.provider {
            Provider::OpenClaw => adapter_answer::of_gateway(answer)?,
            Provider::Pi | Provider::Http => adapter_answer::of_adapter(answer)?,
            Provider::OpenAi | Provider::Azure => openai::adapter_result(&answer, request)?,
            Provider::Responses => responses::adapter_result(&answer, request)?,
            Provider::Anthropic => anthropic::adapter_result(&answer, request)?,
            Provider::Gemini => gemini::adapter_result(&answer, request)?,
        };
        let reported = result.get("model").and_then(Value::as_str).map(str::to_owned);
        let billed =
            if self.provider.is_direct() { billed_model(reported, request.model.clone()) } else { reported };
        Ok(Answer { result, billed })
    }
}

/// The model to bill: providers report a dated name (`gpt-4o-2024-08-06`), while prices use the requested
/// name.
fn billed_model(reported: Option<String>, asked: Option<String>) -> Option<String> {
    match (reported, asked) {
        (Some(reported), Some(asked)) if reported.starts_with(&format!("{asked}-")) => Some(asked),
        (None, asked) => asked,
        (reported, _) => reported,
    }
}

impl Failure {
    /// True if a call that failed this way may appear on the provider's bill. A provider that refuses a
    /// request (4xx) has computed nothing. An adapter that chooses the length of its answer cannot be
    /// bounded in advance, so its failures are not billed.
    pub(crate) fn may_be_billed(&self, worst: &WorstCase) -> bool {
        match self {
            Self::Http(error) => error.is_after_sending(),
            Self::Status(reply) if (400..500).contains(&reply.status) => matches!(reply.status, 408 | 499),
            Self::Status(_) | Self::Reported(_) => worst.output_tokens.is_some(),
            Self::Request(_) | Self::Remote(_) | Self::Envelope(_) => worst.output_tokens.is_some(),
            Self::Budget(_) => false,
        }
    }

    /// The message for the calling command.
    pub(crate) fn message_for(&self, command: &str) -> String {
        match self {
            Self::Http(error @ HttpError::Cancelled(_)) => error.to_string(),
            Self::Http(error) => format!("{command} request failed: {error}"),
            Self::Status(reply) | Self::Reported(reply) => {
                format!(
                    "{command} request failed: {} {}: {}",
                    reply.status,
                    reply.reason,
                    reply.body_excerpt()
                )
            }
            Self::Request(text) => format!("{command} request failed: {text}"),
            Self::Remote(text) => format!("{command} remote error: {text}"),
            Self::Envelope(why) => format!("{command} received invalid response envelope ({why})"),
            Self::Budget(error) => error.message.clone(),
        }
    }

    pub fn error_for(&self, command: &str) -> StageError {
        if let Self::Budget(error) = self {
            return error.clone();
        }
        let is_cancelled = matches!(self, Self::Http(HttpError::Cancelled(_)));
        let code = if is_cancelled { Code::Cancelled } else { Code::Model };
        let error = StageError::new(self.message_for(command)).with_code(code);
        let retry_after = if let Self::Status(reply) = self { reply.retry_after } else { None };
        StageError { permanent: self.is_certain(), retry_after, ..error }
    }

    /// True if the same request would be refused again: a wrong request, a refused key, a missing model.
    fn is_certain(&self) -> bool {
        matches!(self, Self::Status(reply) | Self::Reported(reply) if matches!(reply.status, 400..=407 | 410..=424 | 426 | 428 | 431 | 451))
    }
}

#[cfg(test)]
mod tests;
