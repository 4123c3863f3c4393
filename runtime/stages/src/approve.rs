//! `approve`: asks a person for approval; without it the pipeline stops here.

use serde_json::{Value, json};

use super::describe::{Arg, command_schema};
use super::each::emit_items;
use lobster_base::json::pretty;
use lobster_stage::{
    Answer, Flag, Flow, Host, Question, Sink, Stage, StageArgs, StageError, StageKind, StageSpec, Stop,
};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "approve",
    description: "Require confirmation to continue",
    help: "Usage:\n  ... | approve --prompt 'Send these?'\n  ... | approve --emit\n  ... | approve --emit --preview-from-stdin --limit 5\n\n\
           On a terminal it asks; elsewhere the pipeline stops with an approval request that `lobster resume` answers.\n\
           The items pass on unchanged once approved.\n",
    flags: &[
        Flag { name: "prompt", value: Some("TEXT"), help: "The question (default: Approve?)" },
        Flag { name: "emit", value: None, help: "Stop with a request even on a terminal" },
        Flag { name: "preview-from-stdin", value: None, help: "Show the first items in the request" },
        Flag { name: "previewFromStdin", value: None, help: "same as --preview-from-stdin" },
        Flag { name: "limit", value: Some("N"), help: "How many items the preview shows (default 5)" },
        Flag { name: "preview-limit", value: Some("N"), help: "same as --limit" },
        Flag { name: "previewLimit", value: Some("N"), help: "same as --limit" },
    ],
    args_schema: || {
        command_schema(&[
            Arg::text("prompt", "The question").with_default("\"Approve?\""),
            Arg::switch("emit", "Stop with a request even on a terminal"),
            Arg::switch("preview-from-stdin", "Show the first items in the request"),
            Arg::number("limit", "How many items the preview shows").with_default("5"),
        ])
    },
    examples: || json!([{"args": {"prompt": "Send these?"}, "description": "Ask before continuing"}]),
    side_effects: Some(&[]),
    kind: StageKind::Gate,
    build: |args| Ok(Box::new(Approve::new(args))),
};

struct Approve {
    prompt: String,
    emit: bool,
    /// Number of items in the preview, if there is one.
    preview: Option<usize>,
    items: Vec<Value>,
}

/// Length of the preview by default.
const PREVIEW: f64 = 5.0;

impl Approve {
    fn new(args: &StageArgs) -> Self {
        let limit =
            ["limit", "previewLimit", "preview-limit"].iter().find_map(|name| args.number_value(name));
        let limit = limit.filter(|limit| !limit.is_nan()).unwrap_or(PREVIEW).max(0.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative; too large means all"
        )]
        let limit = limit as usize;
        let wanted = args.is_enabled("preview-from-stdin") || args.is_enabled("previewFromStdin");
        Self {
            prompt: args
                .text_value("prompt")
                .filter(|prompt| !prompt.is_empty())
                .unwrap_or("Approve?")
                .to_owned(),
            emit: args.is_enabled("emit"),
            preview: wanted.then_some(limit),
            items: Vec::new(),
        }
    }

    fn preview_text(&self) -> Option<String> {
        let shown = &self.items[..self.items.len().min(self.preview?)];
        let texts: Option<Vec<_>> = shown.iter().map(Value::as_str).collect();
        match texts {
            _ if shown.is_empty() => None,
            Some(texts) => Some(texts.join("\n")).filter(|text| !text.is_empty()),
            None => Some(pretty(&shown)),
        }
    }
}

impl Stage for Approve {
    fn process_item(&mut self, item: Value, _: &mut dyn Host, _: &mut dyn Sink) -> Result<Flow, Stop> {
        self.items.push(item);
        Ok(Flow::More)
    }

    fn end_input(&mut self, host: &mut dyn Host, out: &mut dyn Sink) -> Result<(), Stop> {
        let preview = self.preview_text();
        let items = std::mem::take(&mut self.items);
        let question = Question::Approval {
            prompt: self.prompt.clone(),
            items: items.clone(),
            preview,
            emit: self.emit,
        };
        match host.ask_person(question)? {
            Answer::Approved { .. } => {}
            Answer::Response(_) => {
                return Err(StageError::permanent(
                    "approve was answered with a response instead of yes or no",
                )
                .into());
            }
        }
        emit_items(items, out)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{FakeHost, run};
    use super::*;

    fn question_for(text: &str, items: Value) -> Value {
        let mut host = FakeHost::default();
        assert!(matches!(host.drive_pipeline(text, items), Err(Stop::Paused)));
        serde_json::to_value(host.questions.remove(0)).unwrap()
    }

    #[test]
    fn the_question_holds_all_items_and_a_short_preview() {
        for (text, items, question) in [
            ("approve", json!(["a", 1]), json!({"prompt": "Approve?", "items": ["a", 1], "emit": false})),
            (
                "approve Hello --prompt ''",
                json!([]),
                json!({"prompt": "Approve?", "items": [], "emit": false}),
            ),
            (
                "approve --prompt 'Continue?' --emit --preview-from-stdin --limit 1.9",
                json!(["a", "b"]),
                json!({"prompt": "Continue?", "items": ["a", "b"], "preview": "a", "emit": true}),
            ),
            (
                "approve --previewFromStdin --preview-limit x",
                json!(["0", "1", "2", "3", "4", "5"]),
                json!({"prompt": "Approve?", "items": ["0", "1", "2", "3", "4", "5"], "preview": "0\n1\n2\n3\n4", "emit": false}),
            ),
            (
                "approve --preview-from-stdin",
                json!([{"a": 1}, "x"]),
                json!({"prompt": "Approve?", "items": [{"a": 1}, "x"], "preview": "[\n  {\n    \"a\": 1\n  },\n  \"x\"\n]", "emit": false}),
            ),
            (
                "approve --preview-from-stdin --limit -1",
                json!([1]),
                json!({"prompt": "Approve?", "items": [1], "emit": false}),
            ),
        ] {
            assert_eq!(question_for(text, items), json!({"approval": question}), "{text}");
        }
    }

    #[test]
    fn items_pass_once_approved() {
        let mut host = FakeHost::default().with_answer(Answer::Approved { by: None, part: None });
        assert_eq!(host.drive_pipeline("approve | head --n 1", json!([1, 2])).unwrap(), [json!(1)]);
        assert_eq!(run("head", json!([])), json!([]));
    }
}
