//! Fuzz targets. Each function takes bytes from outside and must neither panic nor hang; it panics if
//! an answer breaks a promise. It returns the class of its result, which shows the driver new
//! behaviour.

#![allow(clippy::expect_used, reason = "a target that cannot be set up ends the fuzzing")]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use lobster_base::json;
use lobster_base::json::scanner::Scanner;
use lobster_base::schema::Schema;
use lobster_component::{Engine, EngineConfig, Patience};
use lobster_engine::runtime::{RunRequest, Runtime, Settings, Target as RunTarget};
use lobster_language::condition::Condition;
use lobster_language::source::Source;
use lobster_language::template::{self, ExprError, Lookup, Scope};
use lobster_language::{pipeline as pipelines, workflow as workflows};
use lobster_models::cost::paid_calls;
use lobster_models::pricing::Pricing;
use lobster_policy::{Command, DecisionEnv, Policy, Proposal};
use lobster_store::RunId;
use serde_json::{Map, Value};

/// A fuzz target.
pub type Target = fn(&[u8]) -> String;

/// All targets with their first texts.
pub const TARGETS: &[(&str, Target, &[&str])] = &[
    (
        "json",
        json,
        &[r#"{"a":[1,-2.5e3,"\u00e9\ud83d\ude00",null,true],"":{}}"#, "[1e999, 12345678901234567890]"],
    ),
    (
        "schema",
        schema,
        &[
            "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/x\"}},\"$defs\":{\"x\":{\"type\":\"integer\"}},\"unevaluatedProperties\":false}\n{\"a\":1,\"b\":2}",
            "{\"prefixItems\":[{\"minimum\":1}],\"items\":false,\"contains\":{\"pattern\":\"^(a+)+$\"},\"maxContains\":2}\n[1,\"aaaa\"]",
            "{\"anyOf\":[{\"required\":[\"a\"]},{\"not\":{\"const\":1.0}}],\"dependentSchemas\":{\"a\":{\"maxProperties\":1}}}\n{\"a\":0}",
        ],
    ),
    (
        "pipeline",
        pipeline,
        &[
            "exec 'git log' | where 'a==1' | sort --key b | json",
            "a --x=\"q \\\" r\" | b | | c",
            "state.get k | llm.invoke --prompt 'x y'",
        ],
    ),
    ("template", template, &["x $a.json.n[0] {{args.b}} ${c} $$ $a.stdout", "$a.json", "{{ args.b }}"]),
    (
        "condition",
        condition,
        &["$a.json.n > 3 && !($b.skipped == true || $c.stdout != 'x')", "$a.approved", "true"],
    ),
    (
        "workflow",
        workflow,
        &[
            "name: x\nargs: {n: {type: integer, default: 3}}\nsteps:\n  - id: a\n    run: echo $n\n    when: $b.json.x == 1\n    retry: {max: 2}\n  - id: b\n    for_each: $a.json\n    steps: [{id: c, pipeline: 'json'}]\n",
            "steps: [{id: a, parallel: {wait: any, branches: [{id: b, run: x}]}}, {id: g, approval: 'ok?'}]",
            "steps: &s\n  - {id: a, workflow: ./b.lobster, args: *s}\n",
        ],
    ),
    (
        "token",
        token,
        &[
            "eyJwcm90b2NvbFZlcnNpb24iOjEsInYiOjEsImtpbmQiOiJ3b3JrZmxvdy1yZXN1bWUiLCJzdGF0ZUtleSI6IngifQ",
            "e30=",
        ],
    ),
    (
        "journal",
        journal,
        &[
            r#"{"run":"01a206a8-e690-7652-8c3a-2fd1fc4c8fba","seq":1,"at":1,"prev":"f9c717888799f4f9c717888799f4f9c717888799f4f9c717888799f4f9c71788","event":{"type":"run_started"}}"#,
        ],
    ),
    (
        "policy_file",
        policy_file,
        &[
            "version = 1\n[sandbox]\nuser = \"inherit\"\n[limits]\ntimeout = \"90s\"\n[[rule]]\nid = \"t\"\neffect = \"allow\"\nprogram = \"git\"\nargs = [\"status\", \"‹?›\"]\n",
            "version = 1\nextends = \"builtin:readonly-catalog@1\"\nprofile = \"locked\"\n",
        ],
    ),
    (
        "shell",
        shell,
        &[
            "git -c a=b status && rm -rf \"$HOME/x\" | tee >(cat) <<E\n$(date)\nE\n",
            "for f in *.c; do cc -o ${f%.c} $f; done; x=$((1+2)) sh -c 'echo $0'",
            "case $1 in a|b) ls -la;; esac",
        ],
    ),
    (
        "mcp_servers",
        mcp_servers,
        &[
            "version = 1\n[server.files]\ncommand = [\"npx\", \"x\"]\ntools = [\"read_*\"]\ntimeout = \"5s\"\nmax_bytes = 100\n[server.web]\nurl = \"https://a.example/mcp\"\ntoken_env = \"TOKEN\"\n",
        ],
    ),
    (
        "model_answer",
        model_answer,
        &[
            r#"{"model":"gpt-5","usage":{"input_tokens":12,"output_tokens":3,"inputTokens":1e3},"items":[{"model":"m","usage":{}}]}"#,
            r#"[{"kind":"llm.invoke","model":"claude-sonnet-4-5","usage":{"prompt_tokens":-1,"completion_tokens":1e300}}]"#,
        ],
    ),
    // Their first inputs are built, see `made_seeds`.
    ("component", component, &[]),
    ("bundle", bundle, &[]),
];

/// First inputs of a target besides its texts.
pub fn made_seeds(target: &str) -> Vec<Vec<u8>> {
    match target {
        "component" => PROGRAMS.iter().filter_map(|text| wat::parse_str(text).ok()).collect(),
        "bundle" => vec![Place::get().bundle_of_a_run()],
        _ => Vec::new(),
    }
}

/// A preview-1 command, a component, and a module that cannot run.
const PROGRAMS: &[&str] = &[
    r#"(module (import "wasi_snapshot_preview1" "proc_exit" (func (param i32)))
        (memory (export "memory") 1 2) (table 2 funcref) (global (mut i64) (i64.const 7))
        (data (i32.const 8) "text") (func $f (result i32) (loop (result i32) (i32.const 1)))
        (func (export "_start") (drop (call $f))))"#,
    r#"(component (core module $m (func (export "run") (result i32) (i32.const 0)))
        (core instance $i (instantiate $m))
        (func $run (result (result)) (canon lift (core func $i "run")))
        (instance $r (export "run" (func $run)))
        (export "wasi:cli/run@0.2.0" (instance $r)))"#,
    "(module (func))",
];

fn class(text: &impl ToString) -> String {
    // Quoted texts and numbers come from the input.
    let text = text.to_string();
    text.split(['"', '\'', '`', ':'])
        .next()
        .unwrap_or_default()
        .chars()
        .filter(|c| !c.is_ascii_digit())
        .take(40)
        .collect()
}

/// JSON text: parsing, writing and parsing again gives the same value, and the parser accepts all texts
/// that the scanner accepts.
pub fn json(data: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(data) else { return "not UTF-8".to_owned() };
    let mut scanner = Scanner::new();
    let scanned =
        data.chunks(7).try_for_each(|piece| scanner.push(piece)).is_ok() && scanner.finish_text().is_ok();
    match json::parse(text) {
        Ok(value) => {
            let written = json::compact(&value);
            let again = json::parse(&written);
            assert_eq!(again.ok().as_ref().map(json::compact), Some(written));
            let _ = (json::stable_text(&value), json::js_string(&value), json::pretty(&value));
            "read".to_owned()
        }
        Err(error) => {
            assert!(!scanned, "the scanner accepts what the reader refuses");
            class(&error)
        }
    }
}

/// A schema, a newline, a value: a matching value gives no error, and no check exceeds its time limit.
pub fn schema(data: &[u8]) -> String {
    let text = String::from_utf8_lossy(data);
    let (schema, value) = text.split_once('\n').unwrap_or((&text, "null"));
    let (Ok(schema), Ok(value)) = (json::parse(schema), json::parse(value)) else {
        return "not JSON".to_owned();
    };
    let _ = Schema::compile(&schema).map(|schema| schema.all_errors(&value));
    match Schema::compile_foreign(&schema) {
        Ok(schema) => {
            let (first, all) = (schema.first_error(&value), schema.all_errors(&value));
            assert_eq!(first.is_none(), all.is_empty());
            first.map_or_else(|| "fits".to_owned(), |error| class(&error.message))
        }
        Err(error) => class(&error),
    }
}

/// Pipeline text; a quoted word is parsed back as the same word.
pub fn pipeline(data: &[u8]) -> String {
    let text = String::from_utf8_lossy(data);
    let quoted = format!("x {}", pipelines::quote_word(&text));
    let _ = pipelines::parse(&quoted);
    match pipelines::parse(&text) {
        Ok(pipeline) => format!("{} stages", pipeline.stages.len().min(9)),
        Err(error) => class(&error.message),
    }
}

struct Results;

impl Scope for Results {
    fn look_up_path(&self, id: &str, path: &[&str]) -> Result<Lookup<'_>, ExprError> {
        Ok(match (id, path) {
            ("a", ["json", ..]) => Lookup::Found(std::borrow::Cow::Owned(serde_json::json!({"n": [1, 2]}))),
            ("a" | "b", _) => Lookup::Missing,
            _ => Lookup::UnknownStep,
        })
    }
}

/// Text with references and arguments.
pub fn template(data: &[u8]) -> String {
    let text = String::from_utf8_lossy(data);
    let args = Map::from_iter([("b".to_owned(), Value::from("$a.json"))]);
    for (range, _) in template::references_in(&text) {
        assert!(text.get(range).is_some(), "a reference lies across a character");
    }
    for (range, _) in template::args_in(&text) {
        assert!(text.get(range).is_some(), "an argument lies across a character");
    }
    let _ = template::strict_reference(&text);
    match template::fill_placeholders(&text, &args, &Results) {
        Ok(filled) => if template::is_constant(&text) {
            "constant"
        } else if filled == text {
            "same"
        } else {
            "filled"
        }
        .to_owned(),
        Err(error) => class(&error),
    }
}

/// A condition whose own text can be parsed again.
pub fn condition(data: &[u8]) -> String {
    let text = String::from_utf8_lossy(data);
    match Condition::parse(&text) {
        Ok(condition) => {
            assert!(
                Condition::parse(condition.source_text()).is_ok(),
                "a condition's text is not a condition"
            );
            condition.evaluate(&Results).map_or_else(|error| class(&error), |answer| answer.to_string())
        }
        Err(error) => class(&error),
    }
}

/// A workflow file whose sub-workflows cannot be read; every diagnostic is within the file.
pub fn workflow(data: &[u8]) -> String {
    let source = Arc::new(Source::new("fuzz.lobster", "/fuzz.lobster", data));
    let loader = |_: &Path| Err(io::Error::from(io::ErrorKind::NotFound));
    match workflows::load(&source, &loader) {
        Ok((_, diagnostics)) => {
            diagnostics.first().map_or_else(|| "fine".to_owned(), |first| class(&first.message))
        }
        Err(diagnostic) => class(&diagnostic.message),
    }
}

/// A resume token.
pub fn token(data: &[u8]) -> String {
    match lobster_engine::token::Token::decode(&String::from_utf8_lossy(data)) {
        Ok(token) => if token.key.is_some() { "a gate" } else { "no gate of lobster" }.to_owned(),
        Err(error) => class(&error),
    }
}

/// A record of a journal.
pub fn journal(data: &[u8]) -> String {
    static RUN: LazyLock<Option<RunId>> =
        LazyLock::new(|| "01a206a8-e690-7652-8c3a-2fd1fc4c8fba".parse().ok());
    let Some(run) = *RUN else { return "no run".to_owned() };
    match lobster_store::parse_record(run, 1, String::from_utf8_lossy(data).into_owned()) {
        Ok(record) => {
            let _ = record.hash();
            "read".to_owned()
        }
        Err(error) => class(&error),
    }
}

/// A policy, and a decision under it.
pub fn policy_file(data: &[u8]) -> String {
    match Policy::load(&String::from_utf8_lossy(data), "fuzz.toml") {
        Ok(policy) => {
            let decision = policy.decide(&Proposal::shell("git status"), &DecisionEnv::fixture());
            format!("{:?}", decision.verdict)
        }
        Err(error) => class(&error),
    }
}

/// Shell text under the built-in policy: the same text gives the same decision.
pub fn shell(data: &[u8]) -> String {
    static POLICY: LazyLock<Policy> = LazyLock::new(Policy::builtin);
    let text = String::from_utf8_lossy(data).into_owned();
    let env = DecisionEnv::fixture();
    let decide = |command| POLICY.decide(&Proposal { command, cwd: None }, &env);
    let decision = decide(Command::Shell(text.clone()));
    assert_eq!(decision.verdict, decide(Command::Shell(text)).verdict);
    let first = decision.reasons.first().map(|reason| format!("{reason:?}")).unwrap_or_default();
    format!("{:?} {}", decision.verdict, class(&first))
}

/// The operator's file of MCP servers.
pub fn mcp_servers(data: &[u8]) -> String {
    let file = Place::get().file("lobster.mcp.toml", data);
    match lobster_engine::mcp::McpConfig::read_file(&file) {
        Ok(_) => "read".to_owned(),
        Err(error) => class(&error.to_string().rsplit(": ").next().unwrap_or_default()),
    }
}

/// Reported cost of a call of a model, or of an adapter for one: never a negative price.
pub fn model_answer(data: &[u8]) -> String {
    static PRICING: LazyLock<Pricing> = LazyLock::new(|| Pricing::configured(|_| None).0);
    let Ok(answer) = json::parse(&String::from_utf8_lossy(data)) else { return "not JSON".to_owned() };
    let calls = paid_calls(&answer, &PRICING);
    format!("{} calls", calls.len().min(9))
}

/// A WebAssembly program, which is loaded and described, or rejected in time.
pub fn component(data: &[u8]) -> String {
    static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::new(EngineConfig::default()));
    match ENGINE.load_bytes_within(data, &Patience::default()) {
        Ok(component) => {
            let seen = component.inspect();
            format!("{:?} {} imports", seen.kind, seen.imports.len().min(9))
        }
        Err(error) => class(&error),
    }
}

/// A bundle: only the original bytes verify.
pub fn bundle(data: &[u8]) -> String {
    let place = Place::get();
    let file = place.file("fuzzed.bundle", data);
    match lobster_record::bundle::verify_bundle(&place.runtime, &file, None) {
        Ok(report) => format!("{} divergences", report.replay.divergences.len().min(9)),
        Err(error) => class(&error.to_string().rsplit(": ").next().unwrap_or_default()),
    }
}

/// A directory for targets that read files, with a runtime.
struct Place {
    dir: tempfile::TempDir,
    runtime: Runtime,
}

impl Place {
    fn get() -> &'static Self {
        static PLACE: LazyLock<Place> = LazyLock::new(|| {
            let dir = tempfile::tempdir().expect("a directory can be made");
            let mut settings = Settings::from_process().expect("there is an environment");
            settings.env.push(("LOBSTER_STATE_DIR".into(), dir.path().join("state").into()));
            settings.cwd = dir.path().to_owned();
            settings.compiler = None;
            Place { runtime: Runtime::new(settings).expect("a runtime can be made"), dir }
        });
        &PLACE
    }

    fn file(&self, name: &str, data: &[u8]) -> PathBuf {
        let file = self.dir.path().join(name);
        std::fs::write(&file, data).expect("a file can be written");
        file
    }

    /// A run that only computes: verifying it starts no process.
    fn bundle_of_a_run(&self) -> Vec<u8> {
        let target = RunTarget::Pipeline("json '[1, 2]' | head --n 1".to_owned());
        let ran = self.runtime.run(&RunRequest { target, args: None });
        let run = ran.run.expect("it ran").to_string();
        let mut bytes = Vec::new();
        let options = lobster_record::bundle::ExportOptions::default();
        lobster_record::bundle::export_bundle_to(&self.runtime, &run, &mut bytes, &options)
            .expect("it can be bundled");
        bytes
    }
}
