//! Errors of requests over HTTP, in words for people.

use std::error::Error;

/// The causes of a failed HTTP request, outermost first. The HTTP client's own message only says that it failed, and
/// repeats the address.
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
