//! Prompt files: variables with types, and the text to fill.
//!
//! ```text
//! ---
//! customer: string
//! tone: string = "friendly"
//! ---
//! Write to {{customer}} in a {{tone}} tone.
//! ```

use serde_json::{Map, Value};

use super::super::template::Template;
use lobster_base::json;

/// The line around the declarations.
const FENCE: &str = "---";

/// Types of variables: the types of JSON.
const TYPES: [&str; 6] = ["string", "number", "integer", "boolean", "array", "object"];

/// A prompt with placeholders.
pub(super) struct PromptFile<'t> {
    /// `None` if the file declares nothing; then any variable may be given.
    variables: Option<Vec<Variable<'t>>>,
    text: &'t str,
}

struct Variable<'t> {
    name: &'t str,
    kind: &'t str,
    default: Option<Value>,
}

impl<'t> PromptFile<'t> {
    /// Reads a file.
    ///
    /// # Errors
    /// An invalid declaration, with its line.
    pub(super) fn parse(file: &'t str) -> Result<Self, String> {
        let mut rest = file;
        let mut line = || {
            let (line, after) = rest.split_once('\n')?;
            rest = after;
            Some(line.trim_end())
        };
        if line() != Some(FENCE) {
            return Ok(Self { variables: None, text: file });
        }
        let mut variables = Vec::new();
        let mut number = 1;
        loop {
            number += 1;
            let Some(declaration) = line() else {
                return Err(format!(
                    "the declarations of variables have no end: a line {FENCE:?} is missing"
                ));
            };
            if declaration == FENCE {
                return Ok(Self { variables: Some(variables), text: rest });
            }
            if declaration.trim().is_empty() || declaration.trim_start().starts_with('#') {
                continue;
            }
            variables.push(Variable::parse(declaration).map_err(|why| format!("line {number}: {why}"))?);
        }
    }

    /// Fills the prompt. `given` has JSON values; each text of `words` is converted to its variable's type.
    ///
    /// # Errors
    /// A variable is missing, not declared, or of another type.
    pub(super) fn fill_prompt(
        &self,
        given: &Map<String, Value>,
        words: &[(String, String)],
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<String, String> {
        let mut values = given.clone();
        for (name, text) in words {
            let kind = self.find_variable(name).map_or("string", |variable| variable.kind);
            let value = match kind {
                "string" => Value::from(text.as_str()),
                _ => json::parse(text).map_err(|_| format!("--var {name}={text} is no {kind}"))?,
            };
            values.insert(name.clone(), value);
        }
        if let Some(variables) = &self.variables {
            let names: Vec<&str> = variables.iter().map(|variable| variable.name).collect();
            if let Some(name) = values.keys().find(|name| !names.contains(&name.as_str())) {
                let names = names.join(", ");
                return Err(format!("has no variable {name}; it declares: {names}"));
            }
            for variable in variables {
                match (values.get(variable.name), &variable.default) {
                    (Some(value), _) if variable.accepts_value(value) => {}
                    (Some(value), _) => {
                        let (name, kind) = (variable.name, variable.kind);
                        return Err(format!(
                            "needs a value of type {kind} for {name}, not {}",
                            json::compact(value)
                        ));
                    }
                    (None, Some(default)) => {
                        values.insert(variable.name.to_owned(), default.clone());
                    }
                    (None, None) => {
                        return Err(format!("needs a value for {}: --var {0}=VALUE", variable.name));
                    }
                }
            }
        }
        Template::new(self.text.trim())
            .fill_placeholders(&Value::Object(values), env)
            .map_err(|error| error.message)
    }

    fn find_variable(&self, name: &str) -> Option<&Variable<'t>> {
        self.variables.iter().flatten().find(|variable| variable.name == name)
    }
}

impl<'t> Variable<'t> {
    fn parse(declaration: &'t str) -> Result<Self, String> {
        let form = || "a variable is declared by `name: type` or `name: type = default`".to_owned();
        let (name, rest) = declaration.split_once(':').ok_or_else(form)?;
        let name = name.trim();
        let is_name = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
        };
        if !is_name(name) {
            return Err(form());
        }
        let (kind, default) = match rest.split_once('=') {
            Some((kind, default)) => (kind.trim(), Some(default.trim())),
            None => (rest.trim(), None),
        };
        if !TYPES.contains(&kind) {
            return Err(format!("there is no type {kind:?}; types are {}", TYPES.join(", ")));
        }
        let default = default
            .map(|text| json::parse(text).map_err(|_| format!("the default {text} of {name} is not JSON")))
            .transpose()?;
        let variable = Self { name, kind, default };
        match &variable.default {
            Some(default) if !variable.accepts_value(default) => {
                Err(format!("the default {} of {name} is no {kind}", json::compact(default)))
            }
            _ => Ok(variable),
        }
    }

    fn accepts_value(&self, value: &Value) -> bool {
        match self.kind {
            "string" => value.is_string(),
            "number" => value.is_number(),
            "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
            "boolean" => value.is_boolean(),
            "array" => value.is_array(),
            _ => value.is_object(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FILE: &str = "---\n# who\nname: string\nn: integer = 2\n---\n\nHi {{name | upper}}, {{n}} times.\n";

    fn fill_file(file: &str, given: &Value, words: &[(&str, &str)]) -> Result<String, String> {
        let given = given.as_object().cloned().unwrap_or_default();
        let words: Vec<_> = words.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        PromptFile::parse(file)?.fill_prompt(&given, &words, &|_| None)
    }

    #[test]
    fn variables_are_typed_and_filled() {
        assert_eq!(fill_file(FILE, &json!({}), &[("name", "ada")]).unwrap(), "Hi ADA, 2 times.");
        assert_eq!(fill_file(FILE, &json!({"name": "a", "n": 1}), &[("n", "3")]).unwrap(), "Hi A, 3 times.");
        assert_eq!(fill_file("Hi {{x}}!", &json!({"x": [1]}), &[]).unwrap(), "Hi [1]!");
        assert_eq!(fill_file("--- no\nHi {{x}}", &json!({}), &[("x", "5")]).unwrap(), "--- no\nHi 5");
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (file, given, words, why) in [
            (FILE, json!({}), &[][..], "needs a value for name: --var name=VALUE"),
            (FILE, json!({"name": 5}), &[], "needs a value of type string for name, not 5"),
            (FILE, json!({"nam": "a"}), &[], "has no variable nam; it declares: name, n"),
            (FILE, json!({"name": "a"}), &[("n", "many")], "--var n=many is no integer"),
            (FILE, json!({"name": "a"}), &[("n", "1.5")], "needs a value of type integer for n, not 1.5"),
            ("---\na: text\n---\n", json!({}), &[], "line 2: there is no type \"text\""),
            ("---\na string\n---\n", json!({}), &[], "line 2: a variable is declared by"),
            (
                "---\n\na: number = \"x\"\n---\n",
                json!({}),
                &[],
                "line 3: the default \"x\" of a is no number",
            ),
            ("---\na: number = x\n---\n", json!({}), &[], "line 2: the default x of a is not JSON"),
            ("---\na: number\n", json!({}), &[], "have no end"),
            ("{{a | nope}}", json!({}), &[], "Unknown template filter"),
        ] {
            let error = fill_file(file, &given, words).unwrap_err();
            assert!(error.contains(why), "{file:?}: {error}");
        }
    }
}
