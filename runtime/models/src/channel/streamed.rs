//! Asks for an answer as a stream, and without a stream if that is refused.
//!
//! Records and names of cached answers describe the request without a stream: the form of an answer does
//! not change the question.

use std::ffi::OsString;

use serde_json::{Value, json};

use super::{Channel, Failure, Provider};
use crate::http::{CompleteReply, Post};
use crate::stream::EventStream;
use lobster_base::json;
use lobster_base::setting::Setting;
use lobster_stage::HttpSender;

/// The variable that turns streams off.
pub const STREAM: Setting<bool> = Setting::switch("LOBSTER_LLM_STREAM");

/// True if the environment allows streams.
pub(super) fn is_wanted(env: &dyn Fn(&str) -> Option<String>) -> Result<bool, String> {
    let wanted = STREAM.read_env(|name| env(name).map(OsString::from)).map_err(|error| error.to_string())?;
    Ok(wanted.unwrap_or(true))
}

impl Channel {
    /// Sends the request, whose body is `body`, and reads the answer in either form. A request that the
    /// provider refuses because of the stream is sent again without it.
    pub(super) fn post_streamed(
        &self,
        post: &Post,
        body: Value,
        send: &HttpSender<'_>,
    ) -> Result<Value, Failure> {
        let Some(streamed) = self.streamed_post(post, body) else { return self.post_json(post, send) };
        match self.post_json(&streamed, send) {
            Err(Failure::Status(reply)) if self.is_stream_refused(&reply) => self.post_json(post, send),
            // Gemini's form of a stream for clients that cannot read events.
            Ok(Value::Array(chunks)) if self.provider == Provider::Gemini => {
                let events: String =
                    chunks.iter().map(|chunk| format!("data: {}\n\n", json::compact(chunk))).collect();
                EventStream::parse_whole(&events, u64::MAX)
                    .map_err(|error| Failure::Envelope(format!("of a list of chunks: {error}")))
            }
            other => other,
        }
    }

    /// The request for a stream.
    fn streamed_post(&self, post: &Post, mut body: Value) -> Option<Post> {
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

    /// Marks a body as a request for a stream.
    pub(super) fn ask_for_stream(&self, body: &mut Value) {
        if !self.is_streamed {
            return;
        }
        match self.provider {
            Provider::OpenAi | Provider::Azure => {
                body["stream"] = json!(true);
                // Otherwise the cost of the call would be unknown.
                body["stream_options"] = json!({"include_usage": true});
            }
            Provider::Responses | Provider::Anthropic => body["stream"] = json!(true),
            // The address asks for it.
            Provider::Gemini => {}
            Provider::OpenClaw | Provider::Pi | Provider::Http => {}
        }
    }

    /// True if a refusal may concern only the stream: its text mentions it, or the path does not exist. A
    /// refused request has computed nothing.
    fn is_stream_refused(&self, reply: &CompleteReply) -> bool {
        match reply.status {
            400 | 403 | 415 | 422 if reply.body_contains("stream") => true,
            404 | 405 => {
                // An error in the provider's form comes from its service, so the path exists.
                let is_of_service = || reply.body_json().is_ok_and(|body| body.get("error").is_some());
                reply.body_contains("stream") || self.provider == Provider::Gemini && !is_of_service()
            }
            _ => false,
        }
    }
}
