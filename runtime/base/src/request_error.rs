//! Errors of requests over HTTP, in words for people.

use std::error::Error;

/// Why a request over HTTP failed: what caused the error, outermost first. The client's own words only say that
/// it failed, and name the address.
#[must_use]
pub fn request_causes(error: &dyn Error) -> String {
    let mut causes: Vec<String> = Vec::new();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if causes.last() != Some(&text) && !text.starts_with("client error (") {
            causes.push(text);
        }
        source = cause.source();
    }
    if causes.is_empty() { "the request could not be made".to_owned() } else { causes.join(": ") }
}
