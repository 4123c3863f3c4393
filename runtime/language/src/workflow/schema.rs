//! JSON Schema of workflow files, for editors and for programs that write such files.
//!
//! The names of the fields come from [`super::fields`]; their values are described here. The schema is
//! stricter than the reader: a field without effect is a warning there and an error here.

use serde_json::{Map, Value, json};

use super::{fields, notify, triggers};

/// The schema.
#[must_use]
pub fn json_schema() -> Value {
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "lobster workflow",
        "type": "object",
        "required": ["steps"],
        "properties": field_schemas(fields::TOP_FIELDS, top_field_schema),
        "patternProperties": author_keys(),
        "additionalProperties": false,
        "definitions": {
            "step": {
                "type": "object",
                "required": ["id"],
                "properties": field_schemas(fields::STEP_FIELDS, step_field_schema),
                "patternProperties": author_keys(),
                "additionalProperties": false,
            },
            "steps": { "type": "array", "items": { "$ref": "#/definitions/step" }, "minItems": 1 },
            "texts": { "type": "array", "items": { "type": "string" } },
            "env": { "type": "object", "additionalProperties": { "type": ["string", "number", "boolean", "null"] } },
            "size": { "type": ["integer", "string"], "description": "bytes, or as 64MiB" },
            "directory": {
                "oneOf": [
                    { "type": "string" },
                    object_schema(json!({ "from": { "type": "string" }, "to": { "type": "string" } }), &["from"]),
                ],
            },
        },
    })
}

/// Keys that belong to the author.
fn author_keys() -> Value {
    json!({ "^(x-|\\.)": {} })
}

fn field_schemas(names: &[&str], describe: fn(&str) -> Option<Value>) -> Map<String, Value> {
    names.iter().map(|name| ((*name).to_owned(), describe(name).unwrap_or_else(|| json!({})))).collect()
}

fn object_schema(properties: Value, required: &[&str]) -> Value {
    json!({
        "type": "object", "properties": properties, "required": required,
        "patternProperties": author_keys(), "additionalProperties": false,
    })
}

fn with_description(mut schema: Value, description: &str) -> Option<Value> {
    schema["description"] = description.into();
    Some(schema)
}

fn text_schema(description: &str) -> Option<Value> {
    with_description(json!({ "type": "string" }), description)
}

fn texts_schema(description: &str) -> Option<Value> {
    with_description(json!({ "$ref": "#/definitions/texts" }), description)
}

fn top_field_schema(name: &str) -> Option<Value> {
    match name {
        "name" | "description" => text_schema("A note for readers"),
        "version" => with_description(json!({ "type": ["string", "number"] }), "A note for readers"),
        "steps" => with_description(json!({ "$ref": "#/definitions/steps" }), "What is done, in order"),
        "args" => with_description(
            json!({
                "type": "object",
                "additionalProperties": {
                    "type": ["object", "null"],
                    "properties": {
                        "default": {},
                        "description": { "type": "string" },
                        "required": { "type": "boolean" },
                        "type": { "enum": ["string", "number", "integer", "boolean", "array", "object"] },
                        "enum": { "type": "array" },
                    },
                },
            }),
            "Arguments by name; steps read them as ${name} or $LOBSTER_ARG_NAME",
        ),
        "env" => with_description(json!({ "$ref": "#/definitions/env" }), "Variables of every step"),
        "cwd" => text_schema("Working directory of every step"),
        "cost_limit" => with_description(
            object_schema(
                json!({
                    "max_usd": { "type": "number", "minimum": 0 },
                    "action": { "enum": ["warn", "stop"] },
                    "unpriced": { "enum": ["refuse", "allow"] },
                }),
                &["max_usd"],
            ),
            "Most that model calls may cost",
        ),
        "budget" => with_description(
            budget_schema(fields::FILE_BUDGET_FIELDS),
            "Most that model calls may use in one run, and under `day` in all runs of a day (UTC)",
        ),
        "changes" => with_description(
            json!({ "enum": ["direct", "staged", "review"] }),
            "Isolation of its steps' file changes: none, until the step succeeds, or until a person approves",
        ),
        "secrets" => texts_schema("Names of the secrets that steps may ask for"),
        "concurrency" => at_once("Most steps at the same time, in a file whose steps have `needs`"),
        "on" => with_description(
            object_schema(schemas_by_name(triggers::TRIGGER_FIELDS, trigger_schema), &[]),
            "Triggers that start the workflow under a service",
        ),
        "notify" => {
            let kinds = schemas_by_name(notify::OCCASIONS, |_| json!({ "$ref": "#/definitions/texts" }));
            with_description(
                json!({ "oneOf": [{ "type": "string" }, { "$ref": "#/definitions/texts" }, object_schema(kinds, &[])] }),
                "Recipients of notifications about its runs under a service: names of the operator's targets",
            )
        }
        _ => None,
    }
}

/// The limits of a budget.
fn budget_schema(known: &[&'static str]) -> Value {
    let limit = |field: &str| match field {
        "usd" => json!({ "type": "number", "minimum": 0 }),
        "unpriced" => json!({ "enum": ["refuse", "allow"] }),
        "day" => budget_schema(fields::DAY_BUDGET_FIELDS),
        _ => json!({ "type": "integer", "minimum": 0 }),
    };
    object_schema(schemas_by_name(known, limit), &[])
}

fn at_once(description: &str) -> Option<Value> {
    with_description(json!({ "type": "integer", "minimum": 1, "maximum": 256 }), description)
}

/// One entry, or a list of them.
fn trigger_schema(name: &str) -> Value {
    let (fields, needed): (&[&str], &[&str]) = match name {
        "schedule" => (triggers::SCHEDULE_FIELDS, &[]),
        "webhook" => (triggers::WEBHOOK_FIELDS, &["path", "verify", "secret"]),
        "after" => (triggers::AFTER_FIELDS, &["workflow"]),
        _ => (triggers::WATCH_FIELDS, &["paths"]),
    };
    let entry = object_schema(schemas_by_name(fields, trigger_field), needed);
    json!({ "oneOf": [entry, { "type": "array", "items": entry, "minItems": 1 }] })
}

fn trigger_field(name: &str) -> Value {
    let policy = |choices: &[&str], fields: &[&str]| {
        let of_map = schemas_by_name(fields, |field| match field {
            "max" => json!({ "type": "integer", "minimum": 1, "maximum": 1000 }),
            _ => json!({ "type": "string" }),
        });
        let mut map = object_schema(of_map, &["policy"]);
        map["properties"]["policy"] = json!({ "enum": choices });
        json!({ "oneOf": [{ "enum": choices }, map] })
    };
    match name {
        "args" => json!({ "type": "object" }),
        "missed" => policy(triggers::MISSED, triggers::MISSED_FIELDS),
        "overlap" => policy(triggers::OVERLAP, triggers::OVERLAP_FIELDS),
        "verify" => json!({ "enum": triggers::VERIFY }),
        "ended" => json!({ "enum": triggers::ENDED }),
        "secret" | "paths" => json!({ "oneOf": [{ "type": "string" }, { "$ref": "#/definitions/texts" }] }),
        _ => json!({ "type": "string", "minLength": 1 }),
    }
}

fn step_field_schema(name: &str) -> Option<Value> {
    work_field_schema(name).or_else(|| common_field_schema(name)).or_else(|| rights_field_schema(name))
}

/// Work of a step.
fn work_field_schema(name: &str) -> Option<Value> {
    let number = |description: &str| with_description(json!({ "type": ["number", "string"] }), description);
    match name {
        "run" | "command" => text_schema("Text for the shell"),
        "pipeline" => text_schema("lobster commands joined by |"),
        "workflow" => text_schema("Another workflow file, relative to this one"),
        "workflow_args" => with_description(json!({ "type": "object" }), "Its arguments"),
        "parallel" => with_description(
            object_schema(
                schemas_by_name(fields::PARALLEL_FIELDS, |field| match field {
                    "wait" => json!({ "enum": ["all", "any"] }),
                    "timeout_ms" => json!({ "type": ["number", "string"] }),
                    _ => json!({ "$ref": "#/definitions/steps" }),
                }),
                &["branches"],
            ),
            "Steps at the same time",
        ),
        "for_each" => text_schema("A reference to a list, $id.json"),
        "repeat" => with_description(
            object_schema(
                schemas_by_name(fields::REPEAT_FIELDS, |field| match field {
                    "until" => json!({ "type": ["string", "boolean"] }),
                    "every" => json!({ "type": "string", "minLength": 1 }),
                    _ => json!({ "type": "integer", "minimum": 1 }),
                }),
                &["until", "max"],
            ),
            "Repeats its steps until a condition is true",
        ),
        "steps" => with_description(
            json!({ "$ref": "#/definitions/steps" }),
            "Steps that run for each item or in each round",
        ),
        "switch" => text_schema("A reference to the value that chooses among the cases"),
        "cases" => {
            let steps = json!({ "type": "array", "items": { "$ref": "#/definitions/step" } });
            with_description(
                json!({ "type": "object", "additionalProperties": steps, "minProperties": 1 }),
                "Steps for each value",
            )
        }
        "default" => with_description(
            json!({ "type": "array", "items": { "$ref": "#/definitions/step" } }),
            "Steps for any other value",
        ),
        "concurrency" => at_once("Most rounds at once"),
        "item_var" | "index_var" => text_schema("The name by which sub-steps refer to it"),
        "batch_size" => number("Items of one round"),
        "pause_ms" => number("Pause between rounds"),
        "component" => text_schema("A WebAssembly component: a path, or blake3:<digest>"),
        "args" => with_description(json!({ "type": "object" }), "Arguments of the component"),
        "mcp" => with_description(
            object_schema(
                json!({
                    "server": { "type": "string", "minLength": 1 }, "command": { "$ref": "#/definitions/texts" },
                    "url": { "type": "string", "minLength": 1 }, "tool": { "type": "string", "minLength": 1 },
                }),
                &["tool"],
            ),
            "A tool of another MCP server, by the operator's name for it, a program or a URL",
        ),
        "js" => text_schema("JavaScript over `input`, in a sandbox"),
        "wait" => with_description(
            json!({ "oneOf": [
                { "type": "string", "minLength": 1 },
                object_schema(schemas_by_name(fields::WAIT_FIELDS, |_| json!({ "type": "string", "minLength": 1 })), &[]),
            ] }),
            "A duration such as 90s, a time, or an event",
        ),
        "exec" => texts_schema("A program and its arguments, without a shell"),
        "input" => with_description(
            object_schema(
                schemas_by_name(fields::INPUT_FIELDS, |field| match field {
                    "prompt" => json!({ "type": "string" }),
                    "responseSchema" => json!({ "type": ["object", "boolean"] }),
                    _ => json!({}),
                }),
                &["prompt", "responseSchema"],
            ),
            "Asks a person for JSON",
        ),
        _ => None,
    }
}

/// Fields of any step.
fn common_field_schema(name: &str) -> Option<Value> {
    match name {
        "id" => with_description(
            json!({ "type": "string", "minLength": 1 }),
            "Later steps refer to it: $id.json, $id.stdout",
        ),
        "name" | "description" => text_schema("A note for readers"),
        "env" => with_description(json!({ "$ref": "#/definitions/env" }), "Variables on top of the file's"),
        "cwd" => text_schema("Working directory"),
        "stdin" => with_description(json!({}), "Its input: $id.json, $id.stdout, text, or a value"),
        "approval" => with_description(
            json!({
                "oneOf": [
                    { "type": "boolean" },
                    { "type": "string", "minLength": 1, "description": "The question" },
                    object_schema(
                        schemas_by_name(fields::APPROVAL_FIELDS, |field| match field {
                            "items" => json!({}),
                            "require_different_approver" | "requireDifferentApprover" => json!({ "type": "boolean" }),
                            _ => json!({ "type": "string" }),
                        }),
                        &[],
                    ),
                ],
            }),
            "Stops after the work until a person approves",
        ),
        "when" | "condition" => with_description(
            json!({ "type": ["string", "boolean"] }),
            "Condition for running it: $id.approved, $id.json.n > 3 && ...",
        ),
        "needs" => with_description(
            json!({ "oneOf": [{ "type": "string" }, { "$ref": "#/definitions/texts" }] }),
            "Steps that must end before it begins; in a file with `needs`, steps run in the order of their needs",
        ),
        "retry" => with_description(
            object_schema(
                schemas_by_name(fields::RETRY_FIELDS, |field| match field {
                    "backoff" => json!({ "enum": ["fixed", "exponential"] }),
                    "jitter" => json!({ "type": "boolean" }),
                    _ => json!({ "type": "number", "minimum": 0 }),
                }),
                &[],
            ),
            "Retries after a failure",
        ),
        "timeout_ms" => with_description(json!({ "type": ["number", "string"] }), "For each attempt"),
        "on_error" => {
            with_description(json!({ "enum": ["stop", "continue", "skip_rest"] }), "Effect of a failure")
        }
        _ => None,
    }
}

/// Confinement, caching, recovery.
fn rights_field_schema(name: &str) -> Option<Value> {
    match name {
        "cache" => with_description(
            json!({ "oneOf": [{ "type": "boolean" }, object_schema(json!({ "ttl": { "type": ["string", "integer"] } }), &["ttl"])] }),
            "Reuse the outcome of an equal action, on the author's word; of run, command, exec, component and js steps",
        ),
        "inputs" => {
            texts_schema("Glob patterns of files that belong to the action; of run, command and exec steps")
        }
        "changes" => with_description(
            json!({ "enum": ["direct", "staged", "review"] }),
            "Isolation of its file changes: none, until it succeeds, or until a person approves; of run, command, exec and pipeline steps",
        ),
        "undo" => with_description(
            object_schema(
                schemas_by_name(fields::UNDO_FIELDS, |field| step_field_schema(field).unwrap_or_default()),
                &[],
            ),
            "A step that undoes its other effects, proposed by `lobster undo`; of steps that have effects",
        ),
        "idempotent" => with_description(
            json!({ "type": "boolean" }),
            "An interrupted attempt may be repeated without asking",
        ),
        "stop_grace" => with_description(
            json!({ "type": ["string", "integer"] }),
            "Time between SIGTERM and SIGKILL for its processes (10s); of run, command, exec and pipeline \
             steps",
        ),
        "secrets" => with_description(
            json!({ "oneOf": [
                { "$ref": "#/definitions/texts" },
                { "type": "object", "additionalProperties": { "type": "string" } },
            ] }),
            "Secrets that it receives as variables, with the same names or others: VARIABLE: secret",
        ),
        "budget" => with_description(
            budget_schema(fields::BUDGET_FIELDS),
            "Most that model calls in the step may use, in all its attempts",
        ),
        "credentials" => {
            let texts = json!({ "$ref": "#/definitions/texts" });
            let text = json!({ "type": "string" });
            let credential = object_schema(
                json!({
                    "secret": text, "header": text, "scheme": text, "user": text, "methods": texts, "paths": texts,
                    "env": { "oneOf": [text, { "type": "object", "additionalProperties": text }] },
                }),
                &["secret"],
            );
            with_description(
                json!({ "type": "object", "additionalProperties": { "oneOf": [text, credential] } }),
                "Secrets that are added to its https requests to a host; it does not receive them: HOST: secret",
            )
        }
        "grants" => {
            let directories = json!({ "type": "array", "items": { "$ref": "#/definitions/directory" } });
            with_description(
                object_schema(
                    json!({
                        "read": directories, "write": directories,
                        "env": { "$ref": "#/definitions/texts" }, "net": { "$ref": "#/definitions/texts" },
                        "clock": { "type": "boolean" }, "random": { "type": "boolean" },
                    }),
                    &[],
                ),
                "Resources that it may use; all others are denied",
            )
        }
        "limits" => with_description(
            object_schema(
                json!({
                    "fuel": { "type": ["integer", "string"] },
                    "memory": { "$ref": "#/definitions/size" }, "output": { "$ref": "#/definitions/size" },
                }),
                &[],
            ),
            "What it may use",
        ),
        _ => None,
    }
}

fn schemas_by_name(names: &[&str], describe: fn(&str) -> Value) -> Value {
    names.iter().map(|name| ((*name).to_owned(), describe(name))).collect::<Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lobster_base::schema::Schema;

    #[test]
    fn every_field_that_is_read_is_described() {
        let schema = json_schema();
        let described = |properties: &Value, names: &[&str]| {
            for name in names {
                let field = &properties[*name];
                assert!(field.get("description").is_some(), "{name} has no description: {field}");
            }
        };
        described(&schema["properties"], fields::TOP_FIELDS);
        described(&schema["definitions"]["step"]["properties"], fields::STEP_FIELDS);
    }

    #[test]
    fn workflows_that_run_fit() {
        let schema = Schema::compile(&json_schema()).unwrap();
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut files = vec![root.join("examples/inbox-triage/triage.lobster")];
        for entry in std::fs::read_dir(root.join("tests/flows")).unwrap() {
            files.push(entry.unwrap().path().join("flow.lobster"));
        }
        assert!(files.len() > 20);
        for file in files {
            let source = std::sync::Arc::new(crate::source::Source::new(
                "flow.lobster",
                &*file,
                &std::fs::read(&file).unwrap(),
            ));
            let error = schema.first_error(&source.parse_tree().unwrap().to_value());
            assert!(error.is_none(), "{}: {}", file.display(), error.unwrap());
        }
    }

    #[test]
    fn mistakes_are_found() {
        let schema = Schema::compile(&json_schema()).unwrap();
        let error = |workflow: Value| schema.first_error(&workflow).map(|error| error.pointer.clone());
        assert_eq!(error(json!({"steps": [{"id": "a", "run": "true", "x-mine": 1}]})), None);
        assert_eq!(error(json!({"steps": [{"id": "a", "retry": {"max": 3}, "pipeline": "json"}]})), None);
        let on = json!({"schedule": [{"cron": "@daily", "missed": {"policy": "all", "max": 3}}], "watch": {"paths": "in/*"},
            "webhook": {"path": "x", "verify": "github", "secret": ["A", "B"], "args": {"x": "$body.x"}}});
        assert_eq!(error(json!({"steps": [{"id": "a"}], "on": on})), None);
        for wrong in [
            json!({}),
            json!({"steps": []}),
            json!({"steps": [{"run": "true"}]}),
            json!({"steps": [{"id": "a", "timeoutMs": 1}]}),
            json!({"steps": [{"id": "a", "approval": ""}]}),
            json!({"steps": [{"id": "a", "for_each": "$b.json", "steps": [{"id": "c", "nope": 1}]}]}),
            json!({"steps": [{"id": "a", "parallel": {"branches": [{"id": "b", "on_error": "x"}]}}]}),
            json!({"steps": [{"id": "a", "js": "1", "grants": {"everything": true}}]}),
            json!({"steps": [{"id": "a"}], "on": {"schedule": {"every": "1h", "missed": "some"}}}),
            json!({"steps": [{"id": "a"}], "on": {"webhook": [{"path": "x", "secret": "S"}]}}),
        ] {
            assert!(error(wrong.clone()).is_some(), "{wrong}");
        }
    }
}
