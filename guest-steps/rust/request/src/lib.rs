//! A step that makes one HTTP request over `wasi:http`: `authority` and `path` in its
//! arguments, and a `body` that is posted if there is one. What came back is its output,
//! as JSON; a request that was refused or failed is the error `refused`.

use serde_json::{Value, json};
use wasip2::http::outgoing_handler::handle;
use wasip2::http::types::{
    Fields, IncomingBody, IncomingResponse, Method, OutgoingBody, OutgoingRequest, Scheme,
};
use wasip2::io::streams::{InputStream, StreamError};

wit_bindgen::generate!({ path: "../../../wit", world: "step" });

use lobster::step::types::{Capability, SuggestedLimits, Want};

struct Request;

export!(Request);

/// Bytes that a stream takes, or gives, at once.
const PART: usize = 4096;

impl Guest for Request {
    fn describe() -> Description {
        Description {
            name: "request".to_owned(),
            version: "0.1.0".to_owned(),
            summary: "Makes one HTTP request".to_owned(),
            args_schema: "true".to_owned(),
            input_schema: None,
            output_schema: None,
            wants: vec![Want {
                capability: Capability::Net(String::new()),
                reason: "to make the request".to_owned(),
                optional: false,
            }],
            limits: SuggestedLimits { fuel: None, memory: None, output: None, timeout_ms: None },
            examples: Vec::new(),
        }
    }

    fn run(args: String, _: Input, output: Output) -> Result<(), StepError> {
        let args: Value = serde_json::from_str(&args).map_err(|error| failed("bad-args", error))?;
        let text = |name: &str| args[name].as_str().unwrap_or_default();
        let answer = ask(text("authority"), text("path"), args["body"].as_str())?;
        output.write(answer.to_string().as_bytes()).map_err(|error| failed("output", format!("{error:?}")))
    }
}

fn failed(code: &str, message: impl ToString) -> StepError {
    StepError { code: code.to_owned(), message: message.to_string(), retryable: false }
}

fn refused(why: impl std::fmt::Debug) -> StepError {
    failed("refused", format!("{why:?}"))
}

fn ask(authority: &str, path: &str, body: Option<&str>) -> Result<Value, StepError> {
    let headers = Fields::new();
    headers.append("x-from", b"a component").map_err(refused)?;
    let request = OutgoingRequest::new(headers);
    let method = if body.is_some() { Method::Post } else { Method::Get };
    request.set_method(&method).map_err(refused)?;
    request.set_scheme(Some(&Scheme::Http)).map_err(refused)?;
    request.set_authority(Some(authority)).map_err(refused)?;
    request.set_path_with_query(Some(path)).map_err(refused)?;
    let outgoing = request.body().map_err(refused)?;
    let answer = handle(request, None).map_err(refused)?;
    if let Some(body) = body {
        let stream = outgoing.write().map_err(refused)?;
        for part in body.as_bytes().chunks(PART) {
            stream.blocking_write_and_flush(part).map_err(refused)?;
        }
    }
    OutgoingBody::finish(outgoing, None).map_err(refused)?;
    answer.subscribe().block();
    let response = answer.get().ok_or_else(|| refused("no answer"))?;
    read(response.map_err(refused)?.map_err(refused)?)
}

fn read(response: IncomingResponse) -> Result<Value, StepError> {
    let mut headers = serde_json::Map::new();
    for (name, value) in response.headers().entries() {
        headers.insert(name, String::from_utf8_lossy(&value).into());
    }
    let body = response.consume().map_err(refused)?;
    let text = drain(&body.stream().map_err(refused)?)?;
    drop(IncomingBody::finish(body));
    Ok(json!({ "status": response.status(), "headers": headers, "body": text }))
}

fn drain(stream: &InputStream) -> Result<String, StepError> {
    let mut bytes = Vec::new();
    loop {
        match stream.blocking_read(PART as u64) {
            Ok(part) => bytes.extend(part),
            Err(StreamError::Closed) => return String::from_utf8(bytes).map_err(refused),
            Err(error) => return Err(refused(error)),
        }
    }
}
