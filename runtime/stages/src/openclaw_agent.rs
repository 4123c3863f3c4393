//! `openclaw.agent`: runs one turn of an OpenClaw agent through its command line.

use lobster_base::code::Code;
use serde_json::Value;

use super::describe::{Arg, command_schema, example_list};
use super::tool;
use lobster_base::json;
use lobster_stage::{
    Flag, Flow, Host, Sink, Stage, StageArgs, StageError, StageKind, StageSpec, Stop, byte_limit,
};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "openclaw.agent",
    description: "Run a configured OpenClaw agent turn",
    help: "\
Usage:
  openclaw.agent --agent ops --prompt 'Summarise the log'
  openclaw.agent --session-key main --model m --prompt 'Go on'
  ... | openclaw.agent --agent ops --prompt 'Sort these'

Starts `openclaw agent --json` (LOBSTER_OPENCLAW_BIN names another program) and gives
the object that it prints. Input items follow the prompt, one JSON per line.
",
    flags: &[
        Flag { name: "agent", value: Some("ID"), help: "the agent" },
        Flag { name: "prompt", value: Some("TEXT"), help: "what to say (else --message, else the words)" },
        Flag { name: "message", value: Some("TEXT"), help: "same as --prompt" },
        Flag { name: "model", value: Some("NAME"), help: "the model" },
        Flag { name: "session-key", value: Some("KEY"), help: "the session" },
        Flag { name: "sessionKey", value: Some("KEY"), help: "same as --session-key" },
        Flag { name: "session-id", value: Some("ID"), help: "the session's id" },
        Flag { name: "sessionId", value: Some("ID"), help: "same as --session-id" },
        Flag { name: "thinking", value: Some("LEVEL"), help: "how much to think" },
        Flag { name: "timeout", value: Some("SECONDS"), help: "whole seconds that the turn may take" },
        Flag { name: "local", value: None, help: "run the agent here, not in the gateway" },
    ],
    args_schema: || {
        command_schema(&[
            Arg::text("agent", "Agent id"),
            Arg::text("prompt", "What to say"),
            Arg::text("message", "Same as prompt"),
            Arg::text("model", "Model"),
            Arg::text("sessionKey", "Session key"),
            Arg::text("session-key", "Session key"),
            Arg::text("sessionId", "Session id"),
            Arg::text("session-id", "Session id"),
            Arg::text("thinking", "Thinking level"),
            Arg::number("timeout", "Whole seconds"),
            Arg::switch("local", "Run locally"),
        ])
    },
    examples: || {
        example_list(&[(r#"{"agent":"ops","prompt":"Summarise the log"}"#, "One turn of the agent ops")])
    },
    side_effects: Some(&["calls_openclaw_agent"]),
    kind: StageKind::Effect,
    build,
};

/// Most bytes that the agent may write to either stream.
const MAX_OUTPUT: u64 = 10 * 1024 * 1024;

struct Agent {
    message: String,
    options: Vec<String>,
    input: Vec<Value>,
}

fn build(args: &StageArgs) -> Result<Box<dyn Stage + Send>, StageError> {
    let message =
        args.first_value(&["prompt", "message"]).map_or_else(|| args.positional.join(" "), json::js_string);
    if message.trim().is_empty() {
        return Err(StageError::permanent("openclaw.agent requires --prompt, --message, or positional text"));
    }
    let word = |names: &[&str]| args.first_value(names).map(json::js_string).filter(|text| !text.is_empty());
    let (agent, key, id) =
        (word(&["agent"]), word(&["session-key", "sessionKey"]), word(&["session-id", "sessionId"]));
    if agent.is_none() && key.is_none() && id.is_none() {
        return Err(StageError::permanent("openclaw.agent requires --agent, --session-key, or --session-id"));
    }
    let timeout = args.number_value("timeout").map(whole_seconds).transpose()?;
    let mut options = Vec::new();
    for (name, value) in [
        ("--agent", agent),
        ("--model", word(&["model"])),
        ("--session-key", key),
        ("--session-id", id),
        ("--thinking", word(&["thinking"])),
        ("--timeout", timeout),
    ] {
        if let Some(value) = value {
            options.extend([name.to_owned(), value]);
        }
    }
    if args.get("local") == Some(&Value::Bool(true)) {
        options.push("--local".to_owned());
    }
    Ok(Box::new(Agent { message, options, input: Vec::new() }))
}

fn whole_seconds(number: f64) -> Result<String, StageError> {
    if number >= 0.0 && number.fract() == 0.0 && number.is_finite() {
        return Ok(json::float_text(number));
    }
    Err(StageError::permanent("openclaw.agent --timeout must be a non-negative integer in seconds"))
}

impl Stage for Agent {
    fn process_item(&mut self, item: Value, _host: &mut dyn Host, _out: &mut dyn Sink) -> Result<Flow, Stop> {
        self.input.push(item);
        Ok(Flow::More)
    }

    fn end_input(&mut self, host: &mut dyn Host, out: &mut dyn Sink) -> Result<(), Stop> {
        let mut message = self.message.clone();
        if !self.input.is_empty() {
            let lines: Vec<String> = self.input.iter().map(json::compact).collect();
            message.push_str("\n\nPipeline input (JSONL):\n");
            message.push_str(&lines.join("\n"));
        }
        let bin = host.env_var("LOBSTER_OPENCLAW_BIN").filter(|bin| !bin.trim().is_empty());
        let mut argv = vec![bin.unwrap_or_else(|| "openclaw".to_owned())];
        argv.extend(["agent", "--json", "--message"].map(str::to_owned));
        argv.push(message);
        argv.extend(self.options.iter().cloned());
        // The operator's own limit has the same message for all commands.
        let is_lower = byte_limit(&lobster_stage::MAX_OUTPUT, |name| host.env_var(name))
            .is_ok_and(|asked| asked.is_some_and(|asked| asked < MAX_OUTPUT));
        let finished = tool::run(host, argv, Some(MAX_OUTPUT), true, |error| match error.known_code() {
            Some(Code::ProgramNotFound) => Some(
                "openclaw.agent could not find the OpenClaw CLI (openclaw on PATH, or LOBSTER_OPENCLAW_BIN)"
                    .to_owned(),
            ),
            Some(Code::ProcessOutputLimit) if !is_lower => {
                Some(format!("openclaw.agent output exceeded {MAX_OUTPUT} bytes"))
            }
            _ => None,
        })?;
        if !finished.has_succeeded() {
            let (stderr, stdout) = (finished.stderr.trim(), finished.stdout.trim());
            let said = if stderr.is_empty() { stdout } else { stderr };
            let message = if said.is_empty() {
                format!("openclaw.agent failed: exited with code {}", finished.exit_code())
            } else {
                format!("openclaw.agent failed: {said}")
            };
            return Err(StageError::new(message).with_code(Code::CommandFailed).into());
        }
        match json::parse(finished.stdout.trim()) {
            Ok(item @ Value::Object(_)) => out.emit_item(item).map(drop),
            _ => Err(StageError::new(
                "openclaw.agent expected JSON output from `openclaw agent --json`: one object",
            )
            .into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::recording_host::{RecordingHost, error_of, run};
    use super::*;

    fn host_answering(exit: i32, stdout: &'static str, stderr: &'static str) -> RecordingHost {
        let mut host = RecordingHost::new();
        host.set_natives(move |_| Ok((exit, stdout.to_owned(), stderr.to_owned())));
        host
    }

    #[test]
    fn options_in_their_order() {
        let mut host = host_answering(0, " {\"status\":\"ok\"}\n", "");
        let args = json!({
            "_": ["not", "used"], "local": true, "timeout": "30", "thinking": "high", "sessionId": "i1",
            "session-key": "s1", "model": "m", "agent": "ops", "prompt": "p",
        });
        assert_eq!(run(&SPEC, &args, vec![], &mut host).unwrap(), [json!({"status": "ok"})]);
        assert_eq!(
            host.started_programs()[0].join(" "),
            "openclaw agent --json --message p --agent ops --model m --session-key s1 --session-id i1 --thinking high --timeout 30 --local"
        );
    }

    #[test]
    fn words_and_input_make_the_message() {
        let mut host = host_answering(0, "{}", "");
        host.set("LOBSTER_OPENCLAW_BIN", "/opt/claw");
        let args = json!({"_": ["sort", "these"], "agent": "ops", "local": "yes", "timeout": true});
        run(&SPEC, &args, vec![json!({"a": 1.0}), json!("x")], &mut host).unwrap();
        assert_eq!(
            host.started_programs()[0],
            [
                "/opt/claw",
                "agent",
                "--json",
                "--message",
                "sort these\n\nPipeline input (JSONL):\n{\"a\":1}\n\"x\"",
                "--agent",
                "ops",
                "--timeout",
                "1"
            ]
        );
    }

    #[test]
    fn refusals() {
        for (args, part) in [
            (json!({"agent": "ops"}), "requires --prompt, --message, or positional text"),
            (json!({"agent": "ops", "prompt": "", "message": "m"}), "requires --prompt"),
            (json!({"prompt": "p"}), "requires --agent, --session-key, or --session-id"),
            (
                json!({"prompt": "p", "agent": "a", "timeout": "-1"}),
                "--timeout must be a non-negative integer",
            ),
            (json!({"prompt": "p", "agent": "a", "timeout": "1.5"}), "--timeout"),
            (json!({"prompt": "p", "agent": "a", "timeout": "soon"}), "--timeout"),
            (
                json!({"prompt": "x".repeat(131_072), "agent": "a"}),
                "an argument for openclaw cannot be passed",
            ),
        ] {
            let error = error_of(run(&SPEC, &args, vec![], &mut RecordingHost::new()));
            assert!(error.message.contains(part), "{}", error.message);
        }
    }

    #[test]
    fn failures_of_the_program() {
        let args = json!({"prompt": "p", "agent": "a"});
        for (exit, stdout, stderr, message) in [
            (3, "", "", "openclaw.agent failed: exited with code 3"),
            (3, " out ", "", "openclaw.agent failed: out"),
            (3, "out", "err\n", "openclaw.agent failed: err"),
            (0, "[1]", "", "openclaw.agent expected JSON output from `openclaw agent --json`: one object"),
            (0, "", "", "openclaw.agent expected JSON output from `openclaw agent --json`: one object"),
        ] {
            assert_eq!(
                error_of(run(&SPEC, &args, vec![], &mut host_answering(exit, stdout, stderr))).message,
                message
            );
        }
        let mut host = RecordingHost::new();
        host.set_natives(|_| Err(StageError::new("x").with_code(Code::ProcessOutputLimit)));
        assert_eq!(
            error_of(run(&SPEC, &args, vec![], &mut host)).message,
            "openclaw.agent output exceeded 10485760 bytes"
        );
    }
}
