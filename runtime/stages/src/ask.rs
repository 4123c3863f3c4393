//! `ask`: asks a person for a JSON value that fits a schema.

use serde_json::{Value, json};

use super::describe::{Arg, command_schema};
use lobster_base::json::{self, compact};
use lobster_base::schema::Schema;
use lobster_stage::{
    Answer, Flag, Flow, Host, Question, Sink, Stage, StageArgs, StageError, StageKind, StageSpec, Stop,
};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "ask",
    description: "Pause and request structured input from the user",
    help: "Usage:\n  ask --prompt 'Which one?' --schema '{\"type\":\"string\"}'\n  ... | ask --subject-from-stdin\n\n\
           Without --schema the answer is {decision: approve|reject|redraft, feedback}. The answer is the only item\n\
           passed on; with --keep-items it is {response, items}, which keeps what came before.\n",
    flags: &[
        Flag { name: "prompt", value: Some("TEXT"), help: "The question (default: Input required)" },
        Flag { name: "schema", value: Some("JSON"), help: "JSON Schema (draft-07) of the answer" },
        Flag { name: "subject-from-stdin", value: None, help: "Show the input items with the question" },
        Flag { name: "subjectFromStdin", value: None, help: "same as --subject-from-stdin" },
        Flag {
            name: "keep-items",
            value: None,
            help: "Pass on {response, items} instead of the answer alone",
        },
        Flag { name: "emit", value: None, help: "Stop with a request even on a terminal" },
    ],
    args_schema: || {
        command_schema(&[
            Arg::text("prompt", "The question").with_default("\"Input required\""),
            Arg::text("schema", "JSON Schema of the answer"),
            Arg::switch("subject-from-stdin", "Show the input items with the question"),
            Arg::switch("emit", "Stop with a request even on a terminal"),
        ])
    },
    examples: || json!([{"args": {"prompt": "Which one?"}, "description": "Ask for a decision"}]),
    side_effects: Some(&[]),
    kind: StageKind::Gate,
    build: |args| Ok(Box::new(Ask::new(args)?)),
};

/// Most UTF-16 units of the input shown with a question.
const SUBJECT_UNITS: usize = 2000;

struct Ask {
    prompt: String,
    schema: Value,
    emit: bool,
    show_subject: bool,
    keep_items: bool,
    items: Vec<Value>,
}

fn default_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "decision": {"type": "string", "enum": ["approve", "reject", "redraft"]},
            "feedback": {"type": "string", "description": "Feedback for redraft"},
        },
        "required": ["decision"],
    })
}

impl Ask {
    fn new(args: &StageArgs) -> Result<Self, StageError> {
        let schema = match args.text_value("schema") {
            None => default_schema(),
            Some(text) => json::parse(text).map_err(|error| {
                StageError::permanent(format!("ask --schema must be valid JSON: {error}"))
            })?,
        };
        if !schema.is_object() {
            return Err(StageError::permanent("ask --schema must decode to a JSON schema object"));
        }
        Schema::compile(&schema)
            .map_err(|error| StageError::permanent(format!("ask response schema is invalid: {error}")))?;
        Ok(Self {
            prompt: args
                .text_value("prompt")
                .filter(|prompt| !prompt.is_empty())
                .unwrap_or("Input required")
                .to_owned(),
            schema,
            emit: args.is_enabled("emit"),
            show_subject: args.is_enabled("subject-from-stdin") || args.is_enabled("subjectFromStdin"),
            keep_items: args.is_enabled("keep-items"),
            items: Vec::new(),
        })
    }

    fn input_subject(&self) -> Option<Value> {
        if !self.show_subject || self.items.is_empty() {
            return None;
        }
        let mut text = String::new();
        let mut units = 0;
        for (index, item) in self.items.iter().enumerate() {
            let line = item.as_str().map_or_else(|| compact(item), str::to_owned);
            let line = if index == 0 { line } else { format!("\n{line}") };
            for c in line.chars() {
                units += c.len_utf16();
                if units > SUBJECT_UNITS {
                    return Some(json!({"text": text}));
                }
                text.push(c);
            }
        }
        Some(json!({"text": text}))
    }
}

impl Stage for Ask {
    fn process_item(&mut self, item: Value, _: &mut dyn Host, _: &mut dyn Sink) -> Result<Flow, Stop> {
        self.items.push(item);
        Ok(Flow::More)
    }

    fn end_input(&mut self, host: &mut dyn Host, out: &mut dyn Sink) -> Result<(), Stop> {
        let subject = self.input_subject();
        let items = std::mem::take(&mut self.items);
        let kept = self.keep_items.then(|| items.clone());
        let question = Question::Input {
            prompt: self.prompt.clone(),
            schema: std::mem::take(&mut self.schema),
            defaults: None,
            subject,
            items,
            emit: self.emit,
        };
        let response = match host.ask_person(question)? {
            Answer::Response(response) => response,
            Answer::Approved { .. } => {
                return Err(
                    StageError::permanent("ask was answered with yes or no instead of a response").into()
                );
            }
        };
        out.emit_item(match kept {
            Some(items) => json!({"response": response, "items": items}),
            None => response,
        })?;
        Ok(())
    }
}

/// Reads the line that a person typed as the answer to `ask`: as JSON, as text, or as `{"decision":
/// text}`. The first reading that fits the schema is the answer.
///
/// # Errors
/// The violation of the schema by the last reading.
pub fn read_answer(line: &str, schema: &Schema) -> Result<Value, StageError> {
    let line = line.trim();
    let candidates = match json::parse(line) {
        Ok(Value::String(text)) => text_readings(text),
        Ok(value) => vec![value],
        Err(_) => text_readings(line.to_owned()),
    };
    let mut message = String::new();
    for candidate in candidates {
        match schema.first_error(&candidate) {
            None => return Ok(candidate),
            Some(error) => message = format!("ask response failed schema validation at {error}"),
        }
    }
    Err(StageError::permanent(message))
}

fn text_readings(text: String) -> Vec<Value> {
    vec![json!(text), json!({"decision": text})]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{FakeHost, failure_message};
    use super::*;

    fn question_for(text: &str, items: Value) -> Value {
        let mut host = FakeHost::default();
        assert!(matches!(host.drive_pipeline(text, items), Err(Stop::Paused)));
        serde_json::to_value(host.questions.remove(0)).unwrap()["input"].clone()
    }

    #[test]
    fn the_question_shows_what_it_is_about() {
        assert_eq!(
            question_for("ask", json!([])),
            json!({"prompt": "Input required", "schema": default_schema(), "items": [], "emit": false})
        );
        assert_eq!(
            question_for("ask --prompt q --schema '{}' --subject-from-stdin --emit", json!(["a", {"b": 1}])),
            json!({"prompt": "q", "schema": {}, "subject": {"text": "a\n{\"b\":1}"}, "items": ["a", {"b": 1}], "emit": true})
        );
        let long = question_for("ask --subjectFromStdin", json!(["x".repeat(1999), "é".repeat(9)]));
        assert_eq!(long["subject"]["text"].as_str().unwrap(), format!("{}\n", "x".repeat(1999)));
        let astral = question_for("ask --subject-from-stdin", json!([format!("{}😀", "x".repeat(1999))]));
        assert_eq!(astral["subject"]["text"].as_str().unwrap(), "x".repeat(1999));
    }

    #[test]
    fn the_answer_replaces_the_items_unless_they_are_kept() {
        let answer = || FakeHost::default().with_answer(Answer::Response(json!({"decision": "approve"})));
        assert_eq!(
            answer().drive_pipeline("ask | pick decision", json!([1])).unwrap(),
            [json!({"decision": "approve"})]
        );
        assert_eq!(
            answer().drive_pipeline("ask --keep-items", json!([1, 2])).unwrap(),
            [json!({"response": {"decision": "approve"}, "items": [1, 2]})]
        );
    }

    #[test]
    fn a_schema_that_is_none_is_refused() {
        for (text, message) in [
            ("ask --schema oops", "ask --schema must be valid JSON: expected value at line 1 column 1"),
            ("ask --schema '[1]'", "ask --schema must decode to a JSON schema object"),
            ("ask --schema '\"x\"'", "ask --schema must decode to a JSON schema object"),
        ] {
            assert_eq!(failure_message(text, json!([])), message);
        }
        for schema in [r#"{"type":"strng"}"#, r##"{"$ref":"#/nowhere"}"##] {
            let message = failure_message(&format!("ask --schema '{schema}'"), json!([]));
            assert!(message.starts_with("ask response schema is invalid: "), "{message}");
        }
    }

    #[test]
    fn a_typed_line_is_read_as_leniently_as_the_schema_allows() {
        let read = |line: &str, schema: Value| {
            read_answer(line, &Schema::compile(&schema).unwrap()).map_err(|error| error.message)
        };
        let default = default_schema();
        for (line, schema, answer) in [
            (" {\"decision\":\"approve\"}\n", default.clone(), Ok(json!({"decision": "approve"}))),
            ("approve", default.clone(), Ok(json!({"decision": "approve"}))),
            ("\"reject\"", default.clone(), Ok(json!({"decision": "reject"}))),
            ("42", json!({"type": "integer"}), Ok(json!(42))),
            ("some text", json!({"type": "string"}), Ok(json!("some text"))),
            (
                "whatever",
                default,
                Err("ask response failed schema validation at /decision: must be equal to one of the allowed values".to_owned()),
            ),
            ("42", json!({"type": "string"}), Err("ask response failed schema validation at /: must be string".to_owned())),
        ] {
            assert_eq!(read(line, schema), answer, "{line}");
        }
    }
}
