//! `gog.gmail.search`: searches mail threads with the `gog` program.

use lobster_base::code::Code;
use serde_json::Value;

use super::describe::{Arg, command_schema, example_list};
use super::each::emit_items;
use super::tool;
use lobster_base::json;
use lobster_stage::{Flag, Host, Sink, Stage, StageArgs, StageError, StageKind, StageSpec, Stop};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "gog.gmail.search",
    description: "Fetch Gmail threads via gog (JSON)",
    help: "\
Usage:
  gog.gmail.search --query 'newer_than:1d' --max 20

Starts `gog gmail search QUERY --json --max N` (GOG_BIN names another program).
",
    flags: &[
        Flag { name: "query", value: Some("QUERY"), help: "a Gmail search, newer_than:1d by default" },
        Flag { name: "max", value: Some("N"), help: "most results, 20 by default" },
        Flag { name: "limit", value: Some("N"), help: "same as --max" },
    ],
    args_schema: || {
        command_schema(&[
            Arg::text("query", "Gmail search").with_default("\"newer_than:1d\""),
            Arg::number("max", "Most results").with_default("20"),
            Arg::number("limit", "Same as max"),
        ])
    },
    examples: || example_list(&[(r#"{"query":"is:unread","max":5}"#, "The newest five unread threads")]),
    side_effects: Some(&["reads_email"]),
    kind: StageKind::Effect,
    build,
};

struct Search {
    query: String,
    max: String,
}

fn build(args: &StageArgs) -> Result<Box<dyn Stage + Send>, StageError> {
    let query = args.text_or_true("query").unwrap_or_else(|| "newer_than:1d".to_owned());
    let max = args.number_value("max").or_else(|| args.number_value("limit")).unwrap_or(20.0);
    Ok(Box::new(Search { query, max: json::float_text(max) }))
}

/// The `gog` program named by the environment.
pub(super) fn gog_program(host: &dyn Host) -> Vec<String> {
    let bin = host.env_var("GOG_BIN").map(|bin| bin.trim().to_owned()).filter(|bin| !bin.is_empty());
    tool::program_words(bin.unwrap_or_else(|| "gog".to_owned()))
}

/// Message if it cannot be started.
pub(super) fn explain_start_error(error: &StageError) -> Option<String> {
    (error.has_code(Code::ProgramNotFound))
        .then(|| "gog not found on PATH (install: https://github.com/steipete/gogcli)".to_owned())
}

impl Stage for Search {
    fn end_input(&mut self, host: &mut dyn Host, out: &mut dyn Sink) -> Result<(), Stop> {
        let mut argv = gog_program(host);
        argv.extend(["gmail", "search"].map(str::to_owned));
        let limits = ["--json".to_owned(), "--max".to_owned(), self.max.clone()];
        if self.query.starts_with('-') {
            // Otherwise a search such as `-in:spam` would be read as an option.
            argv.extend(limits);
            argv.extend(["--".to_owned(), self.query.clone()]);
        } else {
            argv.push(self.query.clone());
            argv.extend(limits);
        }
        let finished = tool::run(host, argv, None, false, explain_start_error)?;
        if !finished.has_succeeded() {
            return Err(finished.failure("gog.gmail.search", &finished.stderr).into());
        }
        let answer = json::parse(finished.stdout.trim())
            .map_err(|error| StageError::new(format!("gog.gmail.search expected JSON output ({error})")))?;
        let found = match take_threads(answer) {
            Ok(threads) => threads,
            Err(Value::Array(items)) => items
                .into_iter()
                .flat_map(|item| take_threads(item).unwrap_or_else(|item| vec![item]))
                .collect(),
            Err(other) => vec![other],
        };
        emit_items(found, out)
    }
}

/// The threads of an object that has any, else the value itself.
fn take_threads(value: Value) -> Result<Vec<Value>, Value> {
    match value {
        Value::Object(mut map) => match map.remove("threads") {
            Some(Value::Array(threads)) => Ok(threads),
            Some(other) => {
                map.insert("threads".to_owned(), other);
                Err(Value::Object(map))
            }
            None => Err(Value::Object(map)),
        },
        other => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::recording_host::{RecordingHost, error_of, run};
    use super::*;

    fn run_search(args: &Value, stdout: &'static str) -> (Result<Vec<Value>, Stop>, Vec<String>) {
        let mut host = RecordingHost::new();
        host.set_natives(move |_| Ok((0, stdout.to_owned(), String::new())));
        let result = run(&SPEC, args, vec![json!("dropped")], &mut host);
        (result, host.started_programs().remove(0))
    }

    #[test]
    fn asks_gog() {
        let words = |args: Value| run_search(&args, "[]").1.join(" ");
        assert_eq!(words(json!({"_": ["x"]})), "gog gmail search newer_than:1d --json --max 20");
        assert_eq!(words(json!({"query": "a b", "limit": "1e1"})), "gog gmail search a b --json --max 10");
        assert_eq!(
            words(json!({"max": "x", "limit": "3"})),
            "gog gmail search newer_than:1d --json --max NaN"
        );
        assert_eq!(words(json!({"query": "-in:spam"})), "gog gmail search --json --max 20 -- -in:spam");
    }

    #[test]
    fn finds_the_threads() {
        for (stdout, items) in [
            ("[]", json!([])),
            ("{\"threads\":[1,2]}", json!([1, 2])),
            ("[{\"threads\":[1]},{\"id\":2},3,{\"threads\":4}]", json!([1, {"id": 2}, 3, {"threads": 4}])),
            ("{\"id\":1}", json!([{"id": 1}])),
            ("null", json!([null])),
        ] {
            assert_eq!(json!(run_search(&json!({}), stdout).0.unwrap()), items, "{stdout}");
        }
    }

    #[test]
    fn failures() {
        for stdout in ["", "hello"] {
            let error = error_of(run_search(&json!({}), stdout).0);
            assert!(error.message.starts_with("gog.gmail.search expected JSON output"), "{}", error.message);
        }
        let mut host = RecordingHost::new();
        host.set("GOG_BIN", "/x/gog.mjs");
        host.set_natives(|_| Ok((-1, String::new(), "killed".into())));
        assert_eq!(
            error_of(run(&SPEC, &json!({}), vec![], &mut host)).message,
            "gog.gmail.search failed (?): killed"
        );
        assert_eq!(host.started_programs()[0][..2], ["node", "/x/gog.mjs"]);
        host.start_new_run();
        host.set_natives(|_| Err(StageError::new("no").with_code(Code::ProgramNotFound)));
        assert!(
            error_of(run(&SPEC, &json!({}), vec![], &mut host)).message.starts_with("gog not found on PATH")
        );
    }
}
