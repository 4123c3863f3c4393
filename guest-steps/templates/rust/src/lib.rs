//! Greets people.

use lobster_step::{Description, Input, JsonSchema, Output, Step, StepError};
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "lobster_step::schemars")]
pub struct Args {
    /// The word before the name.
    #[serde(default = "hello")]
    greeting: String,
}

fn hello() -> String {
    "Hello".to_owned()
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "lobster_step::schemars")]
pub struct Person {
    name: String,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "lobster_step::schemars")]
pub struct Greeting {
    text: String,
}

pub struct Greet;

impl Step for Greet {
    type Args = Args;
    type In = Person;
    type Out = Greeting;

    fn describe() -> Description {
        Description::new("step-name", env!("CARGO_PKG_VERSION"), "Greets people").fuel(100_000_000).example(
            "one person",
            json!({ "greeting": "Hi" }),
            "{\"name\":\"Ada\"}\n",
            "{\"text\":\"Hi Ada!\"}\n",
        )
    }

    fn run(args: Args, input: &mut Input<Person>, output: &mut Output<Greeting>) -> Result<(), StepError> {
        for person in input {
            let name = person?.name;
            if name.is_empty() {
                return Err(StepError::bad_input("a person has no name"));
            }
            output.emit(&Greeting { text: format!("{} {name}!", args.greeting) })?;
        }
        Ok(())
    }
}

lobster_step::export_step!(Greet);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases() {
        lobster_step::testing::run_cases::<Greet>(concat!(env!("CARGO_MANIFEST_DIR"), "/cases"));
    }
}
