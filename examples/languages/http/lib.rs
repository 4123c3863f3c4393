//! Reads a URL, and posts to it.

use lobster_step::{Any, Capability, Description, Input, JsonSchema, Output, Step, StepError};
use serde::Deserialize;
use serde_json::{Value, json};
use waki::Client;

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "lobster_step::schemars")]
pub struct Args {
    url: String,
}

pub struct Fetch;

impl Step for Fetch {
    type Args = Args;
    type In = Any;
    type Out = Value;

    fn describe() -> Description {
        Description::new("fetch", env!("CARGO_PKG_VERSION"), "Reads a URL, and posts to it")
            .needs(Capability::Net(String::new()), "to read the URL")
    }

    fn run(args: Args, _: &mut Input<Any>, output: &mut Output<Value>) -> Result<(), StepError> {
        let failed = |error: &dyn std::fmt::Display| StepError::new("http", error.to_string());
        let asked = Client::new().get(&args.url).header("x-from", "rust");
        let answer = asked.send().map_err(|error| failed(&error))?;
        let kind = answer.header("content-type").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let status = answer.status_code();
        let text = String::from_utf8(answer.body().map_err(|error| failed(&error))?);
        let text = text.map_err(|error| failed(&error))?;
        output.emit(&json!({ "status": status, "type": kind, "text": text }))?;

        let posted = Client::new().post(&args.url).body("ü".repeat(5000)).send();
        output.emit(&json!({ "status": posted.map_err(|error| failed(&error))?.status_code() }))
    }
}

lobster_step::export_step!(Fetch);
