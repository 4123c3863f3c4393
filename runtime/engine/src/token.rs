//! Resume tokens: opaque names of gates, in the incumbent's form.
//!
//! A token is base64url (RFC 4648 §5, no padding) of `{"protocolVersion":1,"v":1,"kind":…,"stateKey":…}`. It carries
//! no state; the random part of `stateKey` names a gate in the store. The incumbent's tokens with state are refused,
//! since anyone who can make one could skip any gate.

use serde_json::{Value, json};

use lobster_base::json;
use lobster_store::{Gate, GateKey, Store, StoreError};

/// The kind of run that a token resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    Pipeline,
    Workflow,
}

impl TokenKind {
    fn name(self) -> &'static str {
        match self {
            Self::Pipeline => "pipeline-resume",
            Self::Workflow => "workflow-file",
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Pipeline => "pipeline_resume_",
            Self::Workflow => "workflow_resume_",
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Pipeline => "pipeline",
            Self::Workflow => "workflow",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Pipeline => "Pipeline",
            Self::Workflow => "Workflow",
        }
    }

    pub fn wants_approval(self) -> &'static str {
        match self {
            Self::Pipeline => "approval resumes require approved=true|false, not response",
            Self::Workflow => "Workflow resume requires --approve yes|no for approval requests",
        }
    }

    pub fn wants_response(self) -> &'static str {
        match self {
            Self::Pipeline => "pipeline input resumes require response",
            Self::Workflow => "Workflow resume requires --response-json for input requests",
        }
    }
}

/// A decoded token. `None` means that its key names no gate of lobster.
#[derive(Debug)]
pub struct Token {
    pub kind: TokenKind,
    pub key: Option<GateKey>,
    /// The token's own key, which may name a question of the incumbent.
    pub state_key: String,
}

/// The reason why a text is not a token.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("Invalid token")]
    Invalid,
    #[error("Unsupported protocol version")]
    Protocol,
    #[error("Unsupported token version")]
    Version,
    #[error("Invalid workflow token")]
    Workflow,
    #[error(
        "Invalid workflow token: it carries its own state, which anyone could have written; \
         run the workflow again to get one that only names its question"
    )]
    Embedded,
}

/// The token that reopens a gate.
///
/// # Errors
/// If its run cannot be found.
pub fn gate_token(store: &Store, gate: &Gate) -> Result<String, StoreError> {
    let kind =
        if store.run(gate.run)?.kind == "pipeline" { TokenKind::Pipeline } else { TokenKind::Workflow };
    Ok(Token::encode(kind, gate.key))
}

/// Longest text that is decoded; real tokens have about 160 characters.
const MAX_TOKEN: usize = 16 << 10;

impl Token {
    /// The text form of a gate's token.
    pub(crate) fn encode(kind: TokenKind, key: GateKey) -> String {
        Self::encode_key(kind, &format!("{}{key}", kind.prefix()))
    }

    /// The text form of a token that names a state key.
    pub fn encode_key(kind: TokenKind, state_key: &str) -> String {
        encode_base64(
            json::compact(&json!({
                "protocolVersion": 1,
                "v": 1,
                "kind": kind.name(),
                "stateKey": state_key,
            }))
            .as_bytes(),
        )
    }

    /// Reads a token. Characters outside the alphabet are skipped, as the incumbent does.
    pub fn decode(text: &str) -> Result<Self, TokenError> {
        if text.len() > MAX_TOKEN {
            return Err(TokenError::Invalid);
        }
        let payload = String::from_utf8(decode_base64(text)).map_err(|_| TokenError::Invalid)?;
        let value = json::parse(&payload).map_err(|_| TokenError::Invalid)?;
        if !value.is_object() && !value.is_array() {
            return Err(TokenError::Invalid);
        }
        if value.get("protocolVersion").and_then(Value::as_f64) != Some(1.0) {
            return Err(TokenError::Protocol);
        }
        if value.get("v").and_then(Value::as_f64) != Some(1.0) {
            return Err(TokenError::Version);
        }
        let state_key = value.get("stateKey").and_then(Value::as_str);
        match (value.get("kind").and_then(Value::as_str), state_key) {
            (Some("pipeline-resume"), Some(key)) => Ok(Self::from_state_key(TokenKind::Pipeline, key)),
            (Some("workflow-file"), Some(key)) => Ok(Self::from_state_key(TokenKind::Workflow, key)),
            (Some("workflow-file"), None) => {
                let has = |key: &str| value.get(key).is_some_and(|v| !v.is_null());
                let embedded = has("filePath") && has("resumeAtIndex") && has("steps") && has("args");
                Err(if embedded { TokenError::Embedded } else { TokenError::Workflow })
            }
            _ => Err(TokenError::Invalid),
        }
    }

    fn from_state_key(kind: TokenKind, state_key: &str) -> Self {
        let name = state_key
            .strip_prefix(kind.prefix())
            .or_else(|| state_key.strip_prefix("workflow-resume_").filter(|_| kind == TokenKind::Workflow));
        Self { kind, key: name.and_then(|name| name.parse().ok()), state_key: state_key.to_owned() }
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn encode_base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group =
            chunk.iter().fold(0u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for index in 0..=chunk.len() {
            let six = usize::try_from(group >> (18 - 6 * index) & 63).unwrap_or(0);
            out.push(char::from(ALPHABET[six]));
        }
    }
    out
}

fn decode_base64(text: &str) -> Vec<u8> {
    let (mut out, mut group, mut bits) = (Vec::with_capacity(text.len() * 3 / 4), 0u32, 0);
    for byte in text.bytes() {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'-' | b'+' => 62,
            b'_' | b'/' => 63,
            b'=' => break,
            _ => continue,
        };
        group = group << 6 | u32::from(six);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push(u8::try_from(group >> bits & 0xff).unwrap_or(0));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_alphabet_is_rfc_4648_base64url() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
            ("\u{fb}\u{ff}", "w7vDvw"),
        ] {
            assert_eq!(encode_base64(bytes.as_bytes()), text);
            assert_eq!(decode_base64(text), bytes.as_bytes());
        }
        assert_eq!(decode_base64(" Zm 9v== trailing"), b"foo");
    }

    #[test]
    fn wrong_tokens_say_what_is_wrong() {
        let error = |value: Value| Token::decode(&encode_base64(value.to_string().as_bytes())).err();
        assert_eq!(Token::decode("xx").err(), Some(TokenError::Invalid));
        assert_eq!(error(json!(null)), Some(TokenError::Invalid));
        assert_eq!(error(json!([1])), Some(TokenError::Protocol));
        assert_eq!(error(json!({"protocolVersion": 1, "v": 2})), Some(TokenError::Version));
        assert_eq!(
            error(json!({"protocolVersion": 1, "v": 1, "kind": "workflow-file"})),
            Some(TokenError::Workflow)
        );
        assert_eq!(
            error(json!({"protocolVersion": 1, "v": 1, "kind": "pipeline-resume"})),
            Some(TokenError::Invalid)
        );
        let embedded = json!({"protocolVersion": 1, "v": 1, "kind": "workflow-file", "filePath": "/x", "resumeAtIndex": 1, "steps": {}, "args": {}});
        assert_eq!(error(embedded), Some(TokenError::Embedded));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]
        #[test]
        fn any_text_is_a_token_or_an_error(text in ".*") {
            let _ = Token::decode(&text);
        }

        #[test]
        fn encoding_round_trips(bytes: Vec<u8>) {
            prop_assert_eq!(decode_base64(&encode_base64(&bytes)), bytes);
        }
    }
}
