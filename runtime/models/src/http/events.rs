//! Reads an answer that comes as a stream of events and returns it as a whole.

use std::time::Duration;

use reqwest::Response;
use reqwest::header::CONTENT_TYPE;

use lobster_base::json;

use super::{HttpError, HttpLimits, wait_for};
use crate::stream::{EventStream, StreamError, StreamFlow};

/// Longest wait for data after a complete answer: token counts follow at once or not at all, and some
/// servers keep the connection open.
const AFTER_ANSWER: Duration = Duration::from_secs(5);

/// True if the body is a stream of events.
pub(super) fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("text/event-stream")
}

/// The answer as JSON text. `told` receives the number of its characters so far.
///
/// # Errors
/// The stream ended, or went silent, before the answer was complete.
pub(super) async fn read_answer(
    mut response: Response,
    origin: &str,
    limits: HttpLimits,
    told: &dyn Fn(u64),
) -> Result<String, HttpError> {
    let wrong = |error: StreamError| match error {
        StreamError::TooLarge => HttpError::TooLarge { origin: origin.to_owned(), limit: limits.body },
        other => HttpError::Broken { origin: origin.to_owned(), cause: other.to_string() },
    };
    let mut stream = EventStream::new(limits.body);
    let mut characters = 0;
    loop {
        let is_complete = stream.is_complete();
        let idle = if is_complete { limits.idle.min(AFTER_ANSWER) } else { limits.idle };
        match wait_for(response.chunk(), origin, idle).await {
            Ok(Some(chunk)) => {
                if stream.push(&chunk).map_err(wrong)? == StreamFlow::Last {
                    break;
                }
            }
            Ok(None) => {
                stream.finish_input().map_err(wrong)?;
                break;
            }
            // The answer was paid for and is complete.
            Err(_) if is_complete => break,
            Err(error) => return Err(error),
        }
        if stream.character_count() > characters {
            characters = stream.character_count();
            told(characters);
        }
    }
    stream.into_answer().map(|answer| json::compact(&answer)).map_err(wrong)
}
