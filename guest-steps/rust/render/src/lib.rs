//! Fills in a Jinja template (minijinja): once over all items, or once for each.

use std::collections::BTreeMap;
use std::io::Write;

use lobster_step::{Any, Description, Input, JsonSchema, Output, Step, StepError};
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The name the main template has in messages.
const MAIN: &str = "template";

/// How deep templates may include each other and macros may nest: far below
/// what a component's stack holds.
const DEPTH: usize = 100;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "lobster_step::schemars")]
pub struct Args {
    /// The template. It sees `items` (or `item` and `index` with `each`), `text`
    /// if the input is bytes, and `vars`.
    template: String,
    /// Further templates for `include`, `import` and `extends`, by name.
    #[serde(default)]
    templates: BTreeMap<String, String>,
    /// Values for the template; also reachable without `vars.`.
    #[serde(default)]
    vars: Map<String, Value>,
    /// Whether the template is filled in once for each item, each result an item of text.
    #[serde(default)]
    each: bool,
    /// With `each`: put the text into this field of the item instead of giving it alone.
    into: Option<String>,
    /// What is escaped in `{{ }}`.
    #[serde(default)]
    escape: Escape,
    /// What a missing value does.
    #[serde(default)]
    missing: Missing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "lobster_step::schemars")]
pub enum Escape {
    #[default]
    None,
    Html,
    /// Values are written as JSON.
    Json,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "lobster_step::schemars")]
pub enum Missing {
    /// It is an error.
    #[default]
    Error,
    /// It is empty.
    Empty,
}

pub struct Render;

impl Step for Render {
    type Args = Args;
    type In = Any;
    type Out = Any;

    fn describe() -> Description {
        Description::new("render", env!("CARGO_PKG_VERSION"), "Fills in a Jinja template")
            .fuel(10_000_000_000)
            .memory(128 << 20)
            .example(
                "a list",
                json!({ "template": "{% for m in items %}- {{ m.name }}\n{% endfor %}" }),
                "{\"name\":\"Ada\"}\n{\"name\":\"Bo\"}\n",
                "- Ada\n- Bo\n",
            )
            .example(
                "a text for each item",
                json!({ "template": "Dear {{ item.name }},", "each": true, "into": "body" }),
                "{\"name\":\"Ada\"}\n",
                "{\"name\":\"Ada\",\"body\":\"Dear Ada,\"}\n",
            )
    }

    fn run(args: Args, input: &mut Input<Any>, output: &mut Output<Any>) -> Result<(), StepError> {
        let environment = environment(&args)?;
        let template = environment.get_template(MAIN).map_err(|error| failed(&error, ""))?;
        let context = |more: &[(&str, Value)]| {
            let mut context = args.vars.clone();
            context.insert("vars".to_owned(), Value::Object(args.vars.clone()));
            for (name, value) in more {
                context.insert((*name).to_owned(), value.clone());
            }
            minijinja::Value::from(Serde(context))
        };
        if args.each {
            for (index, item) in input.items::<Value>().enumerate() {
                let mut item = item?;
                let text = template
                    .render(context(&[("item", item.clone()), ("index", index.into())]))
                    .map_err(|error| failed(&error, &format!("item {}: ", index + 1)))?;
                match (&args.into, &mut item) {
                    (None, _) => output.item(&text)?,
                    (Some(field), Value::Object(fields)) => {
                        fields.insert(field.clone(), text.into());
                        output.item(&item)?;
                    }
                    (Some(field), other) => {
                        return Err(StepError::bad_input(format!(
                            "item {}: no field `{field}` can be put into {other}",
                            index + 1
                        )));
                    }
                }
            }
            return Ok(());
        }
        if args.into.is_some() {
            return Err(StepError::bad_args("`into` needs `each`"));
        }
        let context = if input.is_items() {
            context(&[("items", input.items::<Value>().collect::<Result<_, _>>()?)])
        } else {
            context(&[("items", json!([])), ("text", input.text()?.into())])
        };
        let text = template.render(context).map_err(|error| failed(&error, ""))?;
        Ok(output.write_all(text.as_bytes())?)
    }
}

fn environment(args: &Args) -> Result<Environment<'_>, StepError> {
    let mut environment = Environment::new();
    let escape = args.escape;
    environment.set_auto_escape_callback(move |_| match escape {
        Escape::None => AutoEscape::None,
        Escape::Html => AutoEscape::Html,
        Escape::Json => AutoEscape::Json,
    });
    environment.set_undefined_behavior(match args.missing {
        Missing::Error => UndefinedBehavior::SemiStrict,
        Missing::Empty => UndefinedBehavior::Chainable,
    });
    environment.set_recursion_limit(DEPTH);
    // Errors then name what is undefined.
    environment.set_debug(true);
    for (name, source) in &args.templates {
        environment.add_template(name, source).map_err(|error| failed(&error, ""))?;
    }
    environment.add_template(MAIN, &args.template).map_err(|error| failed(&error, ""))?;
    Ok(environment)
}

fn failed(error: &minijinja::Error, place: &str) -> StepError {
    let code = match error.kind() {
        ErrorKind::SyntaxError => "bad-template",
        ErrorKind::UndefinedError => "missing-value",
        _ => "template-error",
    };
    let mut message = format!("{place}{}", error.kind());
    if let Some(detail) = error.detail() {
        message = format!("{message}: {detail}");
    }
    if let (Some(name), Some(line)) = (error.name(), error.line()) {
        message = format!("{message} ({name}, line {line})");
    }
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        message = format!("{message}: {inner}");
        source = inner.source();
    }
    StepError::new(code, message)
}

lobster_step::export_step!(Render);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases() {
        lobster_step::testing::run_cases::<Render>(concat!(env!("CARGO_MANIFEST_DIR"), "/cases"));
    }
}
