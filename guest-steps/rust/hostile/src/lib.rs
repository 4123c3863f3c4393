//! A step that does what its argument `do` says; nothing of it is nice. What it
//! was refused it says as the error `refused`; what it should not have been able
//! to do, as `breach`.

mod blobs;
mod files;
mod floods;

use serde_json::Value;

wit_bindgen::generate!({ path: "../../../wit", world: "step" });

use lobster::step::types::{Capability, SuggestedLimits, Want};

/// The schema of the arguments. The dots are room for what tests put in its place.
const ARGS: &str = concat!(
    r#"{"type":"object","description":""#,
    "................................................................................................",
    "................................................................................................",
    r#""}"#
);

struct Hostile;

export!(Hostile);

impl Guest for Hostile {
    fn describe() -> Description {
        let want = |capability| Want { capability, reason: "to misuse it".to_owned(), optional: true };
        Description {
            name: "hostile".to_owned(),
            version: "0.1.0".to_owned(),
            summary: "Does what it should not".to_owned(),
            args_schema: ARGS.to_owned(),
            input_schema: None,
            output_schema: None,
            wants: vec![want(Capability::Read("/in".to_owned())), want(Capability::Write("/out".to_owned()))],
            limits: SuggestedLimits {
                fuel: Some(2_000_000_000),
                memory: None,
                output: None,
                timeout_ms: None,
            },
            examples: Vec::new(),
        }
    }

    fn run(args: String, input: Input, output: Output) -> Result<(), StepError> {
        let args: Value = serde_json::from_str(&args).map_err(|error| failed("bad-args", error))?;
        let text = |name: &str| args[name].as_str().unwrap_or_default();
        match text("do") {
            "loop" => floods::spin(),
            "recurse" => drop(floods::recurse(0)),
            "panic" => floods::panic(&args),
            "memory" => floods::memory(),
            "items" => return floods::items(&output),
            "item" => return floods::item(&output),
            "deep" => return floods::deep(&output),
            "mix" => return floods::mix(&output),
            "log" => floods::log(),
            "progress" => floods::progress(),
            "talk" => floods::talk(),
            "values" => floods::values(),
            "handles" => floods::handles(),
            "input" => return floods::input(&input),
            "clock" => return floods::clock(&output),
            "ambient" => return floods::ambient(&output),
            "open" => return files::open(text("path"), &output),
            "make" => return files::make(text("path"), text("link")),
            "swap" => return files::swap(),
            "climb" => return files::climb(),
            "list" => return files::list(&output),
            "fill" => return files::fill(),
            "names" => return files::names(),
            "blob" => return blobs::open(&format!("{}{}", text("begin"), text("end")), &output),
            "blob-of-input" => return blobs::of_input(&input, &output),
            "blob-by-state" => return blobs::by_state(&format!("{}{}", text("begin"), text("end")), &output),
            "blob-writers" => return blobs::hoard(),
            "blobs" => return blobs::fill(),
            other => return Err(failed("bad-args", format!("what is {other}?"))),
        }
        Ok(())
    }
}

fn failed(code: &str, message: impl ToString) -> StepError {
    StepError { code: code.to_owned(), message: message.to_string(), retryable: false }
}

fn refused(why: impl std::fmt::Debug) -> StepError {
    failed("refused", format!("{why:?}"))
}

fn breach(what: &str) -> StepError {
    failed("breach", what)
}

fn say(output: &Output, text: &str) -> Result<(), StepError> {
    output.write(text.as_bytes()).map_err(|error| failed(&error.code, error.message))
}
