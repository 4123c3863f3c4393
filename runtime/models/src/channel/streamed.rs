//! Asks for an answer as a stream, and without one where that is refused.
//!
//! What is recorded of a call, and the names of kept answers, are those of the request without a
//! stream: how an answer comes changes nothing of what was asked.

use std::ffi::OsString;

use serde_json::{Value, json};

use super::{Channel, Failure, Provider};
use crate::http::{Post, Reply};
use crate::stream::EventStream;
use lobster_base::json;
use lobster_base::setting::Setting;
use lobster_stage::HttpSender;

/// The variable by which nobody is asked for a stream.
pub const STREAM: Setting<bool> = Setting::switch("LOBSTER_LLM_STREAM");

/// Whether the environment wants streams.
pub(super) fn is_wanted(env: &dyn Fn(&str) -> Option<String>) -> Result<bool, String> {
    let wanted = STREAM.value(|name| env(name).map(OsString::from)).map_err(|error| error.to_string())?;
    Ok(wanted.unwrap_or(true))
}

impl Channel {
    /// Sends the request, whose body is `body`, and reads the answer, whichever way it comes. One
    /// that the provider refuses because of the stream is sent again without.
    pub(super) fn post_streamed(
        &self,
        post: &Post,
        body: Value,
        send: &HttpSender<'_>,
    ) -> Result<Value, Failure> {
        let Some(streamed) = self.streamed(post, body) else { return self.post(post, send) };
        match self.post(&streamed, send) {
            Err(Failure::Status(reply)) if self.is_stream_refused(&reply) => self.post(post, send),
            // Gemini's form of a stream for those who cannot read events.
            Ok(Value::Array(chunks)) if self.provider == Provider::Gemini => {
                let events: String =
                    chunks.iter().map(|chunk| format!("data: {}\n\n", json::compact(chunk))).collect();
                EventStream::whole(&events, u64::MAX)
                    .map_err(|error| Failure::Envelope(format!("of a list of chunks: {error}")))
            }
            other => other,
        }
    }

    /// The request for a stream.
    fn streamed(&self, post: &Post, mut body: Value) -> Option<Post> {
        if !self.is_streamed {
            return None;
        }
        self.ask_for_stream(&mut body);
        let mut url = post.url.clone();
        if self.provider == Provider::Gemini {
            let path = url.path().strip_suffix(":generateContent")?.to_owned();
            url.set_path(&format!("{path}:streamGenerateContent"));
            url.query_pairs_mut().append_pair("alt", "sse");
        }
        Some(Post { url, body: json::compact(&body), ..post.clone() })
    }

    /// Says in a body that its answer should be a stream.
    pub(super) fn ask_for_stream(&self, body: &mut Value) {
        if !self.is_streamed {
            return;
        }
        match self.provider {
            Provider::OpenAi | Provider::Azure => {
                body["stream"] = json!(true);
                // Else nobody learns what the call did cost.
                body["stream_options"] = json!({"include_usage": true});
            }
            Provider::Responses | Provider::Anthropic => body["stream"] = json!(true),
            // Its address says it.
            Provider::Gemini => {}
            Provider::OpenClaw | Provider::Pi | Provider::Http => {}
        }
    }

    /// Whether a refusal may be for the stream alone: it says so, or there is no such path. Who
    /// refuses a request has computed nothing.
    fn is_stream_refused(&self, reply: &Reply) -> bool {
        match reply.status {
            400 | 403 | 415 | 422 if reply.says("stream") => true,
            404 | 405 => {
                // An error in the provider's form comes from its service, which has the path.
                let is_of_service = || reply.json().is_ok_and(|body| body.get("error").is_some());
                reply.says("stream") || self.provider == Provider::Gemini && !is_of_service()
            }
            _ => false,
        }
    }
}
