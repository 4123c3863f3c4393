//! `template`: emits a text for each item, with `{{path | filter}}` filled in.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};

use serde_json::{Value, json};

use super::describe::{Arg, command_schema};
use super::filters::{Call, Filter};
use super::item_path::Path;
use lobster_base::json::{compact, js_string};
use lobster_stage::{
    EffectAction, Flag, Flow, Host, Sink, Stage, StageArgs, StageError, StageKind, StageSpec, Stop,
};

/// Longest template read from a file, in bytes.
const MAX_TEMPLATE: u64 = 16 << 20;

pub(super) static SPEC: StageSpec = StageSpec {
    name: "template",
    description: "Render a simple {{path}} template against each input item",
    help: "Usage:\n  ... | template --text 'Hi {{name}}'\n  ... | template --file draft.txt\n\n\
           {{.}} and {{this}} are the whole item. Filters: {{path | filter arg \"arg 2\" | ...}}\n\
           \x20 upper lower trim string json length first last\n\
           \x20 truncate N (80)        the first N characters and ...\n\
           \x20 replace FROM TO        all occurrences\n\
           \x20 split SEP (,)          join SEP (\", \")\n\
           \x20 default TEXT           for null, missing and empty\n\
           \x20 round DIGITS (0)\n\
           \x20 date \"YYYY-MM-DD HH:mm:ss\"   in UTC; without a format ISO 8601\n",
    flags: &[
        Flag { name: "text", value: Some("TEXT"), help: "The template" },
        Flag { name: "file", value: Some("PATH"), help: "Read the template from a file" },
    ],
    args_schema: || {
        let text = Arg::text("text", "The template");
        command_schema(&[text, Arg::text("file", "File that holds the template")])
    },
    examples: || json!([{"args": {"text": "{{from}}: {{subject | truncate 40}}"}, "description": "One line per message"}]),
    side_effects: Some(&[]),
    kind: StageKind::Pure,
    build: |args| {
        let source = Source::from_args(args).ok_or_else(|| {
            StageError::permanent("template requires --text or --file (or positional text)")
        })?;
        Ok(Box::new(Render { source }))
    },
};

struct Render {
    source: Source,
}

enum Source {
    /// Not read yet.
    File(String),
    Ready(Template),
}

impl Source {
    fn from_args(args: &StageArgs) -> Option<Self> {
        let given = |name| args.text_value(name).filter(|text| !text.is_empty());
        match (given("text"), given("file"), args.positional.as_slice()) {
            (Some(text), _, _) => Some(Self::Ready(Template::new(text))),
            (None, Some(path), _) => Some(Self::File(path.to_owned())),
            (None, None, []) => None,
            (None, None, words) => Some(Self::Ready(Template::new(&words.join(" ")))),
        }
    }

    /// Reads the file once, through the journal: a replay must see the same text.
    fn load_template(&mut self, host: &mut dyn Host) -> Result<&Template, Stop> {
        if let Self::File(path) = self {
            let action = EffectAction {
                kind: "read_file".to_owned(),
                detail: json!({"path": path, "cwd": host.working_dir()}),
                idempotent: true,
            };
            let name = path.clone();
            let text = host.perform_effect(action, &mut |effect| {
                let text = (effect.open)(&effect.cwd.join(&name))
                    .and_then(read_text)
                    .map_err(|error| StageError::new(format!("template --file {name}: {error}")))?;
                Ok(String::from_utf8_lossy(&text).into_owned().into())
            })?;
            let text = text.as_str().filter(|text| !text.is_empty());
            let text = text.ok_or_else(|| {
                StageError::permanent(format!(
                    "template requires --text or --file (or positional text): {path} is empty"
                ))
            })?;
            *self = Self::Ready(Template::new(text));
        }
        match self {
            Self::Ready(template) => Ok(template),
            Self::File(path) => Err(StageError::new(format!("template --file {path} was not read")).into()),
        }
    }
}

fn read_text(file: File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.take(MAX_TEMPLATE + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_TEMPLATE {
        return Err(io::Error::other(format!("larger than {MAX_TEMPLATE} bytes, the limit of templates")));
    }
    Ok(text)
}

impl Stage for Render {
    fn process_item(&mut self, item: Value, host: &mut dyn Host, out: &mut dyn Sink) -> Result<Flow, Stop> {
        let template = self.source.load_template(host)?;
        let text = template.fill_placeholders(&item, &|name| host.env_var(name))?;
        out.emit_item(text.into())
    }

    /// Reads the file even if there is no item, since an unreadable file is a failure.
    fn end_input(&mut self, host: &mut dyn Host, _: &mut dyn Sink) -> Result<(), Stop> {
        self.source.load_template(host).map(|_| ())
    }
}

/// A text with placeholders, parsed once.
pub(super) struct Template {
    pieces: Vec<Piece>,
}

enum Piece {
    Text(String),
    Fill { path: Path, filters: Vec<Filter> },
}

impl Template {
    /// Parses a text. A placeholder is `{{`, one or more characters other than `}`, and `}}`; anything
    /// else is text.
    pub(super) fn new(text: &str) -> Self {
        Self::parse_pieces(text, |inside| {
            let mut parts = split_outside_quotes(inside, '|').into_iter();
            let path = path_of(parts.next().unwrap_or_default());
            Piece::Fill { path, filters: parts.map(Filter::parse).collect() }
        })
    }

    /// Parses a text in which everything between the braces is a path (`map`).
    pub(super) fn without_filters(text: &str) -> Self {
        Self::parse_pieces(text, |inside| Piece::Fill { path: path_of(inside), filters: Vec::new() })
    }

    fn parse_pieces(text: &str, place: impl Fn(&str) -> Piece) -> Self {
        let mut pieces = Vec::new();
        let (mut from, mut search) = (0, 0);
        while let Some(open) = text[search..].find("{{").map(|at| search + at) {
            let Some(close) = text[open + 2..].find('}').map(|at| open + 2 + at) else { break };
            if close == open + 2 || !text[close..].starts_with("}}") {
                // No placeholder can begin before this brace either.
                search = close + 1;
                continue;
            }
            if from < open {
                pieces.push(Piece::Text(text[from..open].to_owned()));
            }
            pieces.push(place(&text[open + 2..close]));
            from = close + 2;
            search = from;
        }
        if from < text.len() {
            pieces.push(Piece::Text(text[from..].to_owned()));
        }
        Self { pieces }
    }

    /// The text with all placeholders filled from `item`. `env` is asked for `TZ` if a date has no zone.
    pub(super) fn fill_placeholders(
        &self,
        item: &Value,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<String, StageError> {
        let mut filled = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Fill { path, filters } => {
                    let mut value = path.get(item);
                    for filter in filters {
                        value = filter.apply(Call { value, env })?.map(Cow::Owned);
                    }
                    match value.as_deref() {
                        None | Some(Value::Null) => {}
                        Some(value @ (Value::Array(_) | Value::Object(_))) => {
                            filled.push_str(&compact(value))
                        }
                        Some(Value::String(text)) => filled.push_str(text),
                        Some(value @ (Value::Bool(_) | Value::Number(_))) => {
                            filled.push_str(&js_string(value))
                        }
                    }
                }
            }
        }
        Ok(filled)
    }
}

fn path_of(text: &str) -> Path {
    match text.trim() {
        "this" => Path::new("."),
        text => Path::new(text),
    }
}

/// Splits at a sign that is neither inside quotes nor escaped by a backslash.
pub(super) fn split_outside_quotes(text: &str, sign: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut quote, mut escaped) = (0, None, false);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (_, '\\') => escaped = true,
            (Some(open), _) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, _) if c == sign => {
                parts.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            (Some(_) | None, _) => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use proptest::prelude::*;

    use super::super::testing::{failure_message, run};
    use super::*;

    fn fill_text(template: &str, item: &Value) -> String {
        Template::new(template)
            .fill_placeholders(item, &|_| None)
            .unwrap_or_else(|error| format!("error: {error}"))
    }

    #[test]
    fn places_are_filled_and_all_else_is_text() {
        let item = json!({"name": "ada", "n": 1.50, "t": true, "nul": null, "o": {"x": [1]}, "{x": "brace", "a b": 1});
        for (template, text) in [
            ("Hi {{name}}!", "Hi ada!"),
            ("{name} {{name}} }}", "{name} ada }}"),
            (
                "{{}}{{ }}",
                "{{}}{\"name\":\"ada\",\"n\":1.5,\"t\":true,\"nul\":null,\"o\":{\"x\":[1]},\"{x\":\"brace\",\"a b\":1}",
            ),
            ("{{{x}}}", "brace}"),
            ("{{n}}{{t}}{{nul}}{{nope.x}}{{o}}{{ o.x.0 }}", "1.5true{\"x\":[1]}1"),
            ("{{n . m}}|{{a b}}", "|1"),
            ("{{name", "{{name"),
            ("{{name}", "{{name}"),
            ("{{a}b}}{{name}}", "{{a}b}}ada"),
            ("{{ {{name}}", ""),
            ("{{name | upper | lower}}", "ada"),
            ("{{name | nope}}", "error: Unknown template filter: nope"),
            ("{{name |}}", "error: Unknown template filter: "),
            ("{{name | replace \"|\" \"}\"}}", "{{name | replace \"|\" \"}\"}}"),
        ] {
            assert_eq!(fill_text(template, &item), text, "{template}");
        }
        assert_eq!(fill_text("{{.}}{{this}}{{name}}", &json!("x")), "xx");
    }

    #[test]
    fn a_text_for_each_item() {
        assert_eq!(
            run("template --text 'n{{.}}'", json!([1, null, [1, "a"]])),
            json!(["n1", "n", "n[1,\"a\"]"])
        );
        assert_eq!(run("template --text= a '{{.}}'", json!([1])), json!(["a 1"]));
        assert_eq!(run("template --text '{{x|shout}}'", json!([])), json!([]));
        assert_eq!(
            failure_message("template --text '{{x|shout}}'", json!([1])),
            "Unknown template filter: shout"
        );
        for text in ["template", "template --text", "template --text="] {
            assert_eq!(
                failure_message(text, json!([])),
                "template requires --text or --file (or positional text)",
                "{text}"
            );
        }
    }

    #[test]
    fn a_file_is_read_from_the_working_directory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.txt");
        std::fs::write(&path, "<{{.}}>\n").unwrap();
        assert_eq!(run(&format!("template --file '{}'", path.display()), json!([1])), json!(["<1>\n"]));
        for items in [json!([1]), json!([])] {
            let said = failure_message("template --file no/such.txt", items.clone());
            assert!(said.starts_with("template --file no/such.txt: No such file"), "{items}: {said}");
        }
        assert_eq!(run(&format!("template --file '{}'", path.display()), json!([])), json!([]));
    }

    #[test]
    fn long_blanks_take_linear_time() {
        let start = Instant::now();
        let text = format!("{}{}}}", "{{ ".repeat(100_000), " ".repeat(1_000_000));
        assert_eq!(fill_text(&text, &json!(1)).len(), text.len());
        assert!(start.elapsed().as_secs() < 5);
    }

    proptest! {
        #[test]
        fn no_template_panics(template in r#"[{}|.a1"'\\ é]{0,30}"#) {
            fill_text(&template, &json!({"a": "é"}));
        }
    }
}
