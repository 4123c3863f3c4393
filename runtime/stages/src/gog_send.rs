//! `gog.gmail.send`: sends drafts through the `gog` program.
//!
//! All drafts are checked before the first is sent, and each is a separate process in the journal, so
//! that a resumed run sends none twice.

use serde_json::{Value, json};

use super::describe::{Arg, command_schema, example_list};
use super::gog_search::{explain_start_error, gog_program};
use super::tool;
use lobster_base::json;
use lobster_stage::{Flag, Flow, Host, Sink, Stage, StageArgs, StageError, StageKind, StageSpec, Stop};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "gog.gmail.send",
    description: "Send Gmail messages via gog",
    help: "\
Usage:
  ... | approve --prompt 'Send?' | gog.gmail.send
  ... | gog.gmail.send --dry-run

Takes drafts {to, subject, body} and starts `gog gmail send` once for each (GOG_BIN
names another program). All drafts are checked before the first is sent. A step that
sends is never retried; a resumed run continues after the last draft that was sent.
",
    flags: &[
        Flag { name: "dry-run", value: None, help: "check and show the drafts, send nothing" },
        Flag { name: "dryRun", value: None, help: "same as --dry-run" },
    ],
    args_schema: || {
        command_schema(&[Arg::switch("dryRun", "Send nothing"), Arg::switch("dry-run", "Send nothing")])
    },
    examples: || example_list(&[(r#"{"dry-run":true}"#, "Show what would be sent")]),
    side_effects: Some(&["sends_email"]),
    kind: StageKind::Effect,
    build: |args: &StageArgs| {
        let dry_run = args.is_enabled("dry-run") || args.is_enabled("dryRun");
        Ok(Box::new(Send { dry_run, drafts: Vec::new() }))
    },
};

struct Send {
    dry_run: bool,
    drafts: Vec<Draft>,
}

struct Draft {
    to: String,
    subject: String,
    body: String,
}

impl Stage for Send {
    fn process_item(&mut self, item: Value, _host: &mut dyn Host, _out: &mut dyn Sink) -> Result<Flow, Stop> {
        let number = self.drafts.len() + 1;
        let refuse = |text: &str| StageError::permanent(format!("{text} (draft {number}; nothing was sent)"));
        let Value::Object(map) = item else {
            return Err(refuse("gog.gmail.send expects draft objects").into());
        };
        let text = |name: &str| {
            map.get(name)
                .filter(|value| !value.is_null())
                .map(json::js_string)
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let draft = Draft { to: text("to"), subject: text("subject"), body: text("body") };
        if draft.to.is_empty() {
            return Err(refuse("gog.gmail.send draft missing to").into());
        }
        if draft.to.starts_with('-') {
            return Err(refuse("gog.gmail.send draft has an option in the place of an address in to").into());
        }
        for (name, text) in [("to", &draft.to), ("subject", &draft.subject)] {
            // A line break here could start another header, such as `Bcc`.
            if text.chars().any(char::is_control) {
                return Err(refuse(&format!(
                    "gog.gmail.send draft has a line break or control character in {name}"
                ))
                .into());
            }
        }
        self.drafts.push(draft);
        Ok(Flow::More)
    }

    fn end_input(&mut self, host: &mut dyn Host, out: &mut dyn Sink) -> Result<(), Stop> {
        for index in 0..self.drafts.len() {
            let item =
                if self.dry_run { self.drafts[index].preview_item() } else { self.send_draft(index, host)? };
            // Sending was requested: a later stage that has enough items does not cancel it.
            out.emit_item(item)?;
        }
        Ok(())
    }
}

impl Send {
    fn send_draft(&self, index: usize, host: &mut dyn Host) -> Result<Value, Stop> {
        let draft = &self.drafts[index];
        let mut argv = gog_program(host);
        argv.extend(["gmail", "send", "--to"].map(str::to_owned));
        argv.push(draft.to.clone());
        for (name, value) in [("--subject", &draft.subject), ("--body", &draft.body)] {
            if !value.is_empty() {
                argv.extend(tool::option_words(name, value));
            }
        }
        argv.push("--json".to_owned());
        let finished = tool::run(host, argv, None, true, explain_start_error)
            .map_err(|stop| stop.map_failure(|error| self.draft_failure(index, error)))?;
        if !finished.has_succeeded() {
            let error = finished.failure("gog.gmail.send", finished.stderr.trim_end());
            return Err(self.draft_failure(index, error).into());
        }
        let said = finished.stdout.trim();
        if said.is_empty() {
            return Ok(json!({"ok": true}));
        }
        Ok(json::parse(said).unwrap_or_else(|_| json!({"ok": true, "raw": said})))
    }

    /// The failure of one draft, with the drafts sent before it.
    fn draft_failure(&self, index: usize, error: StageError) -> StageError {
        let total = self.drafts.len();
        let sent = match index {
            0 => "none was sent before it".to_owned(),
            1 => format!("sent before it: draft 1 to {}", self.drafts[0].to),
            n => format!("sent before it: drafts 1 to {n}, the last to {}", self.drafts[n - 1].to),
        };
        let message = format!(
            "{} [draft {} of {total}, to {}; {sent}]",
            error.message,
            index + 1,
            self.drafts[index].to
        );
        StageError { permanent: true, ..error.with_message(message) }
    }
}

impl Draft {
    fn preview_item(&self) -> Value {
        json!({"ok": true, "dryRun": true, "to": self.to, "subject": self.subject, "body": self.body})
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::super::recording_host::{RecordingHost, error_of, run};
    use super::*;

    fn sample_drafts() -> Vec<Value> {
        vec![
            json!({"to": "ada@example.test", "subject": "Re: Hi", "body": "Hello\nthere"}),
            json!({"to": " bob@example.test ", "subject": "", "body": null}),
            json!({"to": "eve@example.test", "subject": "-x", "body": "- a\n- b"}),
        ]
    }

    #[test]
    fn sends_each_draft_once_also_over_a_resume() {
        let calls = Rc::new(Cell::new(0));
        let mut host = RecordingHost::new();
        let counter = Rc::clone(&calls);
        host.set_natives(move |_| {
            counter.set(counter.get() + 1);
            Ok(match counter.get() {
                1 => (0, "{\"id\":\"sent\"}\n".into(), String::new()),
                2 => (5, String::new(), "quota\n".into()),
                3 => (0, " \n".into(), String::new()),
                _ => (0, "Sent!\n".into(), String::new()),
            })
        });
        let error = error_of(run(&SPEC, &json!({}), sample_drafts(), &mut host));
        assert_eq!(
            error.message,
            "gog.gmail.send failed (5): quota [draft 2 of 3, to bob@example.test; sent before it: draft 1 to ada@example.test]"
        );
        assert!(error.permanent && host.retry_forbidden);
        host.resume_run();
        let sent = run(&SPEC, &json!({}), sample_drafts(), &mut host).unwrap();
        assert_eq!(sent, [json!({"id": "sent"}), json!({"ok": true}), json!({"ok": true, "raw": "Sent!"})]);
        assert_eq!(calls.get(), 4);
        assert_eq!(
            host.started_programs(),
            [
                vec![
                    "gog",
                    "gmail",
                    "send",
                    "--to",
                    "ada@example.test",
                    "--subject",
                    "Re: Hi",
                    "--body",
                    "Hello\nthere",
                    "--json"
                ],
                vec!["gog", "gmail", "send", "--to", "bob@example.test", "--json"],
                vec![
                    "gog",
                    "gmail",
                    "send",
                    "--to",
                    "eve@example.test",
                    "--subject=-x",
                    "--body=- a\n- b",
                    "--json"
                ],
            ]
        );
    }

    #[test]
    fn nothing_is_sent_unless_all_drafts_are_good() {
        for (bad, part) in [
            (json!("x"), "expects draft objects"),
            (json!({"to": " "}), "draft missing to"),
            (json!({"subject": "x"}), "draft missing to"),
            (json!({"to": "--help"}), "option in the place of an address"),
            (json!({"to": "a@b.test\nBcc: eve@b.test"}), "control character in to"),
            (json!({"to": "a@b.test", "subject": "x\r\nBcc: eve@b.test"}), "control character in subject"),
        ] {
            let mut host = RecordingHost::new();
            let mut items = sample_drafts();
            items.push(bad);
            let error = error_of(run(&SPEC, &json!({}), items, &mut host));
            assert!(error.message.contains(part) && error.message.contains("draft 4"), "{}", error.message);
            assert!(host.recorded_actions().is_empty() && !host.retry_forbidden);
        }
    }

    #[test]
    fn a_dry_run_only_shows() {
        let mut host = RecordingHost::new();
        let shown =
            run(&SPEC, &json!({"dryRun": "false"}), sample_drafts()[..2].to_vec(), &mut host).unwrap();
        assert_eq!(
            shown,
            [
                json!({"ok": true, "dryRun": true, "to": "ada@example.test", "subject": "Re: Hi", "body": "Hello\nthere"}),
                json!({"ok": true, "dryRun": true, "to": "bob@example.test", "subject": "", "body": ""}),
            ]
        );
        assert!(host.recorded_actions().is_empty());
    }
}
