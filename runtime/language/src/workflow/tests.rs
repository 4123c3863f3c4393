use std::io;

use proptest::prelude::*;
use serde_json::json;

use super::super::diagnostic::Severity;
use super::super::plan::{Approval, OnError, Stdin};
use super::*;

fn nothing(_: &Path) -> io::Result<Arc<Source>> {
    Err(io::ErrorKind::NotFound.into())
}

fn source(name: &str, path: &str, text: &str) -> Arc<Source> {
    Arc::new(Source::new(name, path, text.as_bytes()))
}

fn read(text: &str) -> Checked<(Workflow, Vec<Diagnostic>)> {
    load(&source("t.lobster", "/w/t.lobster", text), &nothing)
}

fn good(text: &str) -> Workflow {
    read(text).unwrap_or_else(|e| panic!("{text}\n{e}")).0
}

/// Error message of a file with these steps.
fn refusal(steps: &str) -> String {
    match read(&format!("steps:\n{steps}\n")) {
        Ok((_, diagnostics)) => diagnostics
            .iter()
            .find(|d| d.severity == Severity::Error)
            .map_or_else(|| "accepted".to_owned(), |d| d.message.clone()),
        Err(error) => error.message.clone(),
    }
}

#[test]
fn messages_of_the_incumbent_are_kept() {
    for (text, message) in [
        ("", "Workflow file must be a JSON/YAML object"),
        ("hello", "Workflow file must be a JSON/YAML object"),
        ("- id: a", "Workflow file requires a non-empty steps array"),
        ("name: x", "Workflow file requires a non-empty steps array"),
        ("steps:", "Workflow file requires a non-empty steps array"),
        ("steps: {a: 1}", "Workflow file requires a non-empty steps array"),
        ("cost_limit:\nsteps: [1]", "Workflow cost_limit must be an object"),
        (
            "cost_limit: {action: stop}\nsteps: [1]",
            "Workflow cost_limit.max_usd must be a non-negative number",
        ),
        (
            "cost_limit: {max_usd: .inf}\nsteps: [1]",
            "Workflow cost_limit.max_usd must be a non-negative number",
        ),
        (
            "cost_limit: {max_usd: '0.5', action: null}\nsteps: [1]",
            "Workflow cost_limit.action must be \"warn\" or \"stop\"",
        ),
        (
            "cost_limit: {max_usd: 1, unpriced: true}\nsteps: [1]",
            "Workflow cost_limit.unpriced must be \"allow\" or \"refuse\"",
        ),
    ] {
        assert_eq!(read(text).expect_err(text).message, message, "{text}");
    }
}

/// Steps that the incumbent rejects, with the start of its message.
const REFUSED_STEPS: &[(&str, &str)] = &[
    ("- 5", "Workflow step must be an object"),
    ("- {run: x}", "Workflow step requires an id"),
    ("- []", "Workflow step requires an id"),
    ("- {id: 5, run: x}", "Workflow step requires an id"),
    ("- {id: a, workflow: 5}", "Workflow step a workflow must be a string (file path)"),
    ("- {id: a, workflow: ' '}", "Workflow step a workflow path cannot be blank"),
    ("- {id: a, run: x, workflow_args: [1]}", "Workflow step a workflow_args must be a plain object"),
    ("- {id: a, parallel: [x]}", "Workflow step a parallel must be an object"),
    ("- {id: a, parallel: {wait: all}}", "Workflow step a parallel requires a non-empty branches array"),
    (
        "- {id: a, parallel: {wait: x, branches: [1]}}",
        "Workflow step a parallel wait must be \"all\" or \"any\"",
    ),
    (
        "- {id: a, parallel: {timeout_ms: 0, branches: [1]}}",
        "Workflow step a parallel timeout_ms must be a positive integer between 1 and 2147483647",
    ),
    ("- {id: a, parallel: {branches: [1]}}", "Workflow step a parallel branches must be objects"),
    ("- {id: a, parallel: {branches: [{run: x}]}}", "Workflow step a parallel branch requires an id"),
    (
        "- {id: a, parallel: {branches: [{id: a, run: x}]}}",
        "Workflow step a parallel branch id cannot match the step id",
    ),
    (
        "- {id: a, parallel: {branches: [{id: b, run: x}, {id: b, run: x}]}}",
        "Workflow step a duplicate parallel branch id: b",
    ),
    (
        "- {id: b, run: x}\n- {id: a, parallel: {branches: [{id: b, run: x}]}}",
        "Duplicate workflow id across steps/parallel branches: b",
    ),
    (
        "- {id: a, parallel: {branches: [{id: b}]}}",
        "Workflow step a parallel branch b requires run, command, or pipeline",
    ),
    (
        "- {id: a, parallel: {branches: [{id: b, run: x, pipeline: y}]}}",
        "Workflow step a parallel branch b can only define one of run, command, or pipeline",
    ),
    (
        "- {id: a, parallel: {branches: [{id: b, run: 5}]}}",
        "Workflow step a parallel branch b run must be a string",
    ),
    ("- {id: a, for_each: 3}", "Workflow step a for_each must be a string (step reference expression)"),
    ("- {id: a, for_each: ''}", "Workflow step a for_each requires a non-empty steps array"),
    (
        "- {id: a, for_each: x, steps: [1], batch_size: 1.5}",
        "Workflow step a batch_size must be a positive integer",
    ),
    (
        "- {id: a, for_each: x, steps: [1], pause_ms: -1}",
        "Workflow step a pause_ms must be a finite non-negative number",
    ),
    (
        "- {id: a, for_each: x, steps: [1], approval: ok}",
        "Workflow step a for_each steps cannot define approval (use a separate step after the loop)",
    ),
    (
        "- {id: a, for_each: x, steps: [1], input: {}}",
        "Workflow step a for_each steps cannot define input (use a separate step after the loop)",
    ),
    (
        "- {id: a, for_each: x, steps: [1], stdin: y}",
        "Workflow step a for_each steps cannot define stdin (loop input comes from the for_each expression)",
    ),
    (
        "- {id: a, for_each: x, steps: [1], run: y}",
        "Workflow step a for_each cannot also define run, command, pipeline, workflow, or parallel",
    ),
    ("- {id: a, for_each: x, steps: [1], item_var: 5}", "Workflow step a item_var must be a string"),
    ("- {id: a, for_each: x, steps: [1], index_var: [i]}", "Workflow step a index_var must be a string"),
    (
        "- {id: a, for_each: x, steps: [1], item_var: v, index_var: v}",
        "Workflow step a item_var and index_var cannot be the same",
    ),
    ("- {id: a, for_each: x, steps: [1]}", "Workflow step a for_each sub-step requires an id"),
    (
        "- {id: a, for_each: x, steps: [{id: item, run: x}]}",
        "Workflow step a for_each sub-step id 'item' conflicts with loop variable",
    ),
    (
        "- {id: a, for_each: x, steps: [{id: s, run: x}, {id: s, run: x}]}",
        "Workflow step a duplicate for_each sub-step id: s",
    ),
    (
        "- {id: a, for_each: x, steps: [{id: s, run: 5}]}",
        "Workflow step a for_each sub-step s run must be a string",
    ),
    (
        "- {id: a, for_each: x, steps: [{id: s, run: ' '}]}",
        "Workflow step a for_each sub-step s requires run, command, or pipeline",
    ),
    (
        "- {id: a, for_each: x, steps: [{id: s, run: x, pipeline: y}]}",
        "Workflow step a for_each sub-step s can only define one of run, command, or pipeline",
    ),
    (
        "- {id: a}",
        "Workflow step a requires run, command, pipeline, workflow, parallel, for_each, approval, or input",
    ),
    (
        "- {id: a, run: ''}",
        "Workflow step a requires run, command, pipeline, workflow, parallel, for_each, approval, or input",
    ),
    (
        "- {id: a, run: x, pipeline: y}",
        "Workflow step a can only define one of run, command, pipeline, workflow, parallel, or for_each",
    ),
    (
        "- {id: a, run: x, input: {}}",
        "Workflow step a input steps cannot define run, command, pipeline, workflow, parallel, or for_each",
    ),
    ("- {id: a, approval: true, input: {}}", "Workflow step a cannot define both approval and input"),
    ("- {id: a, approval: true, run: }", "Workflow step a run must be a string"),
    ("- {id: a, command: [echo]}", "Workflow step a command must be a string"),
    ("- {id: a, approval: true, pipeline: 5}", "Workflow step a pipeline must be a string"),
    ("- {id: a, input: x}", "Workflow step a input must be an object"),
    ("- {id: a, input: {responseSchema: {}}}", "Workflow step a input.prompt must be a string"),
    (
        "- {id: a, input: {prompt: p, responseSchema: 1}}",
        "Workflow step a input.responseSchema must be an object",
    ),
    (
        "- {id: a, input: {prompt: p, responseSchema: {type: strng}}}",
        "Workflow step a input.responseSchema is invalid: schema is invalid: data/type must be equal to one of the allowed values",
    ),
    ("- {id: a, approval: {initiated_by: 5}}", "Workflow step a approval.initiated_by must be a string"),
    (
        "- {id: a, approval: {requireDifferentApprover: 1}}",
        "Workflow step a approval.requireDifferentApprover must be a boolean",
    ),
    (
        "- {id: a, run: x, timeout_ms: 3000000000}",
        "Workflow step a timeout_ms must be a positive integer between 1 and 2147483647",
    ),
    (
        "- {id: a, run: x, timeout_ms: }",
        "Workflow step a timeout_ms must be a positive integer between 1 and 2147483647",
    ),
    (
        "- {id: a, run: x, on_error: skip}",
        "Workflow step a on_error must be \"stop\", \"continue\", or \"skip_rest\"",
    ),
    ("- {id: a, run: x, retry: }", "Workflow step a retry must be an object"),
    ("- {id: a, run: x, retry: {max: '3'}}", "Workflow step a retry.max must be a positive integer"),
    (
        "- {id: a, run: x, retry: {backoff: linear}}",
        "Workflow step a retry.backoff must be \"fixed\" or \"exponential\"",
    ),
    (
        "- {id: a, run: x, retry: {delay_ms: '10'}}",
        "Workflow step a retry.delay_ms must be a finite non-negative number",
    ),
    (
        "- {id: a, run: x, retry: {max_delay_ms: .inf}}",
        "Workflow step a retry.max_delay_ms must be a finite non-negative number",
    ),
    ("- {id: a, run: x, retry: {jitter: 'yes'}}", "Workflow step a retry.jitter must be a boolean"),
    ("- {id: a, run: x}\n- {id: a, run: x}", "Duplicate workflow step id: a"),
    (
        "- {id: a, parallel: {branches: [{id: b, run: x}]}}\n- {id: b, run: x}",
        "Duplicate workflow step id: b",
    ),
    ("- {id: a, run: x, when: 5}", "Unsupported condition type"),
    ("- {id: a, run: x, when: yes}", "Unsupported condition: yes"),
];

#[test]
fn step_messages_of_the_incumbent_are_kept() {
    let run = "run: echo";
    for (steps, message) in REFUSED_STEPS {
        let said = refusal(steps);
        assert!(said.starts_with(message), "{steps}\n  said: {said}\n  want: {message}");
    }
    assert_eq!(refusal(&format!("- {{id: a, {run}}}")), "accepted");
}

#[test]
fn names_that_would_set_another_variable_are_refused() {
    for name in ["", "PATH=/x:", "=A", "A=", "A\\0"] {
        let env = format!("env: {{\"{name}\": x}}");
        let shown = name.replace("\\0", "\0");
        let said = format!("{shown:?} cannot name a variable: it is empty, or holds `=` or a NUL character");
        for file in [
            format!("{env}\nsteps: [{{id: a, run: x}}]"),
            format!("steps: [{{id: a, run: x, {env}}}]"),
            format!("steps: [{{id: a, mcp: {{server: x, tool: y}}, {env}}}]"),
            format!("steps: [{{id: a, run: x, undo: {{run: y, {env}}}}}]"),
            format!(
                "steps: [{{id: a, js: '[1]'}}, {{id: l, for_each: $a.json, {env}, steps: [{{id: b, run: x}}]}}]"
            ),
        ] {
            let error = read(&file).expect_err(&file);
            assert_eq!((error.code, error.message.as_str()), (codes::FIELD_TYPE, said.as_str()), "{file}");
            let span = &file[error.span.start..error.span.end];
            assert_eq!(span, format!("\"{name}\""), "{file}");
        }
    }
    for name in ["A.b", "npm_config_//host/:_auth", "BASH_FUNC_x%%"] {
        good(&format!("steps: [{{id: a, run: x, env: {{\"{name}\": x}}}}]"));
    }
}

#[test]
fn mistyped_gates_are_refused() {
    for value in ["1", "[x]", "''", "'  '", ".nan"] {
        for run in ["", ", run: echo pushed"] {
            let said = refusal(&format!("- {{id: g, approval: {value}{run}}}"));
            assert!(
                said.starts_with("Workflow step g approval must be true, a prompt, or an object"),
                "{value}: {said}"
            );
        }
    }
    let gate =
        |text: &str| good(&format!("steps: [{{id: g, run: x, approval: {text}}}]")).steps[0].approval.clone();
    assert_eq!(gate("false"), None);
    assert_eq!(gate("null"), None);
    for default in ["true", "required", "{}", "{prompt: 5, items: x}"] {
        assert_eq!(gate(default), Some(Approval::default()), "{default}");
    }
    assert_eq!(gate("yes"), Some(Approval { prompt: Some("yes".into()), ..Approval::default() }));
    assert_eq!(
        gate(
            "{prompt: ok?, items: [9], initiated_by: ' ann ', requiredApprover: bob, required_approver: eve, require_different_approver: true}"
        ),
        Some(Approval {
            prompt: Some("ok?".into()),
            items: Some(vec![json!(9)]),
            initiated_by: Some("ann".into()),
            required_approver: Some("bob".into()),
            require_different_approver: true,
            ..Approval::default()
        })
    );
}

#[test]
fn everything_works_at_every_depth() {
    let workflow = good(
        "steps:\n\
         - {id: src, run: echo}\n\
         - id: l\n  for_each: $src.json\n  steps:\n\
         \x20 - {id: g, approval: ok?, stdin: $item.json}\n\
         \x20 - {id: i, input: {prompt: p, responseSchema: {}}, when: $g.approved}\n\
         \x20 - {id: w, workflow: child.lobster, retry: {max: 2}, timeout_ms: 5, on_error: continue}\n\
         \x20 - {id: p, parallel: {wait: any, branches: [{id: x, workflow: y.lobster}, {id: n, for_each: $item.json, item_var: it, steps: [{id: z, run: x}]}]}}\n",
    );
    let Work::ForEach { steps, item_var, batch_size, .. } = &workflow.steps[1].work else {
        panic!("no loop")
    };
    assert_eq!((item_var.as_str(), *batch_size), ("item", 1));
    assert_eq!(steps.iter().map(|s| s.id.as_str()).collect::<Vec<_>>(), ["g", "i", "w", "p"]);
    assert_eq!((steps[2].timeout_ms, steps[2].on_error), (Some(5), OnError::Continue));
    let Work::Parallel { wait: Wait::Any, branches, .. } = &steps[3].work else { panic!("no parallel") };
    assert!(matches!(&branches[1].work, Work::ForEach { item_var, .. } if item_var == "it"));
}

#[test]
fn work_and_input_are_read_as_the_incumbent_reads_them() {
    let workflow = good(
        "env: {A: x, N: 5}\ncwd: ${d}\ncost_limit: {max_usd: '0.5', action: stop}\nsteps:\n\
         - {id: a, run: '   ', stdin: {x: $b.json}}\n- {id: b, run: one, command: two, when: , condition: false}\n\
         - {id: c, command: two, stdin: ' $a.json '}\n- {id: d, run: ' ', command: real}\n\
         - {id: e, exec: [git, -n, 5]}\n- {id: f, js: input.x}\n",
    );
    let work: Vec<_> = workflow.steps.iter().map(|s| s.work.clone()).collect();
    let shell = |text: &str| Work::Shell(text.to_owned());
    assert_eq!(
        work,
        [
            Work::Nothing,
            shell("one"),
            shell("two"),
            shell("real"),
            Work::Exec(vec!["git".into(), "-n".into(), "5".into()]),
            Work::Js("input.x".into())
        ]
    );
    assert_eq!(workflow.steps[0].stdin, Stdin::Literal(json!({"x": "$b.json"})));
    assert_eq!(workflow.steps[1].when, Condition::Never);
    assert_eq!(workflow.steps[2].stdin, Stdin::Text(" $a.json ".to_owned()));
    assert_eq!(workflow.env, [("A".to_owned(), "x".to_owned())]);
    assert_eq!(workflow.cwd.as_deref(), Some("${d}"));
    assert_eq!(workflow.cost_limit, Some(CostLimit { max_usd: 0.5, stop: true, allows_unpriced: false }));
}

#[test]
fn own_fields_are_typed() {
    let workflow = good(
        "secrets: [TOKEN]\nsteps:\n- id: a\n  component: ./x.wasm\n  args: {m: small}\n\
         \x20 grants: {read: [./data, './e:/e', {from: ./d, to: /in}], env: [TZ], net: ['api.example.com:443'], clock: true}\n\
         \x20 limits: {fuel: 2_000_000_000, memory: 64MiB, output: 8MiB}\n  secrets: [TOKEN]\n\
         - {id: b, run: x, cache: {ttl: 10m}, inputs: ./inbox/**, idempotent: true}\n",
    );
    let extras = &workflow.steps[0].extras;
    assert_eq!(
        serde_json::to_value(extras).unwrap(),
        json!({"idempotent": false, "secrets": ["TOKEN"],
            "grants": {"read": [{"from": "./data"}, {"from": "./e", "to": "/e"}, {"from": "./d", "to": "/in"}],
                "env": ["TZ"],
                "net": ["api.example.com:443"], "clock": true, "random": false},
            "limits": {"fuel": 2_000_000_000_u64, "memory": 64 << 20, "output": 8 << 20}})
    );
    assert_eq!(workflow.steps[1].extras.cache_ttl_ms, Some(600_000));
    for (step, message) in [
        ("{id: a, component: x, grants: {raed: [.]}}", "Workflow step a grants has no field \"raed\""),
        ("{id: a, component: x, grants: [x]}", "Workflow step a grants must be a map"),
        (
            "{id: a, component: x, limits: {memory: lots}}",
            "Workflow step a limits.memory must be a positive size",
        ),
        ("{id: a, component: x, grants: {net: ['http://x']}}", "Workflow step a grants.net takes"),
        (
            "{id: a, component: x, grants: {read: [{from: ., to: ../x}]}}",
            "Workflow step a grants.read guest path",
        ),
        ("{id: a, component: x, grants: {read: ['.:/../x']}}", "Workflow step a grants.read guest path"),
        ("{id: a, component: 'blake3:xyz'}", "Workflow step a component digest"),
        ("{id: a, component: x, run: y}", "Workflow step a can only define one of"),
        ("{id: a, exec: {command: x}}", "Workflow step a exec must be a list"),
        ("{id: a, run: x, secrets: [T]}", "Workflow step a secret \"T\" is not listed"),
        ("{id: a, workflow: x, grants: {read: [.]}}", "Workflow step a grants has no effect"),
        ("{id: a, run: x, cache: yes}", "Workflow step a cache must be"),
        ("{id: a, run: x, idempotent: 1}", "Workflow step a idempotent must be"),
        ("{id: a, run: x, stop_grace: 61s}", "Workflow step a stop_grace must be a duration from 0s to 60s"),
        ("{id: a, js: '1', stop_grace: 1s}", "Workflow step a stop_grace: only steps that run a program"),
        (
            "{id: a, pipeline: json, stop_grace: 1s}",
            "Workflow step a stop_grace: only steps that run a program",
        ),
    ] {
        let said = refusal(&format!("- {step}"));
        assert!(said.starts_with(message), "{step}: {said}");
    }
}

#[test]
fn references_that_must_fail_are_found_before_anything_runs() {
    for (steps, said) in [
        (
            "- {id: a, run: cat, stdin: $nope.stdout}",
            "Workflow step a stdin: Unknown step reference: nope.stdout",
        ),
        ("- {id: a, run: cat, stdin: $a.stdout}", "Workflow step a stdin: Unknown step reference: a.stdout"),
        ("- {id: a, run: x, when: $b.json}\n- {id: b, run: x}", "Unknown step reference: b.json"),
        (
            "- {id: a, for_each: '[1,2]', steps: [{id: x, run: x}]}",
            "Workflow step a for_each: expected array, got string",
        ),
        (
            "- {id: a, for_each: $b.json, steps: [{id: x, run: x}]}",
            "Workflow step a for_each: Unknown step reference: b.json",
        ),
        (
            "- {id: a, parallel: {branches: [{id: x, run: x}, {id: y, run: x, stdin: $x.json}]}}",
            "Workflow step y stdin: Unknown step reference: x.json",
        ),
        ("- {id: a, pipeline: \"exec 'oops\"}", "Workflow step a pipeline parse failed: Unclosed quote"),
        ("- {id: a, pipeline: \"exec 'oops\", on_error: continue}", "accepted"),
        ("- {id: a, pipeline: \"exec ${x}'oops\"}", "accepted"),
        // A step that may never be reached, or whose failure is handled, is accepted.
        ("- {id: a, run: cat, stdin: $nope.stdout, on_error: continue}", "accepted"),
        ("- {id: a, run: cat, stdin: $nope.stdout, when: false}", "accepted"),
        ("- {id: a, workflow: x, stdin: $nope.stdout}", "accepted"),
        ("- {id: a, run: 'echo $nope.stdout'}", "accepted"),
        ("- {id: a, for_each: '${l}', steps: [{id: x, run: x}]}", "accepted"),
        ("- {id: a, parallel: {branches: [{id: x, run: x}]}}\n- {id: b, run: x, when: $x.json}", "accepted"),
    ] {
        assert_eq!(refusal(steps), said, "{steps}");
    }
}

fn files<'f>(files: &'f [(&'f str, &'f str)]) -> impl Fn(&Path) -> io::Result<Arc<Source>> + 'f {
    move |path| {
        let (name, text) =
            files.iter().find(|(name, _)| Path::new(name) == path).ok_or(io::ErrorKind::NotFound)?;
        Ok(source(name, name, text))
    }
}

#[test]
fn fixed_sub_workflows_come_along() {
    let parent = "steps:\n- {id: a, workflow: kids/c.lobster}\n- {id: b, workflow: '${x}.lobster'}\n- {id: c, workflow: gone.lobster}\n";
    let tree = [
        ("/w/kids/c.lobster", "steps: [{id: x, workflow: ../t.lobster}]"),
        ("/w/kids/../t.lobster", "steps: [{id: x, run: x}]"),
    ];
    let (workflow, said) = load(&source("t", "/w/t.lobster", parent), &files(&tree)).unwrap();
    assert_eq!(workflow.children.keys().collect::<Vec<_>>(), ["kids/c.lobster"]);
    assert_eq!(workflow.children["kids/c.lobster"].children["../t.lobster"].steps.len(), 1);
    assert_eq!(
        said.iter().map(|d| (d.severity, d.code)).collect::<Vec<_>>(),
        [(Severity::Warning, codes::CHILD_MISSING)]
    );
    let json = serde_json::to_string(&workflow).unwrap();
    assert_eq!(serde_json::from_str::<Workflow>(&json).unwrap(), workflow);
}

#[test]
fn circles_end_and_broken_children_are_refused_unless_prepared_for() {
    let tree = [
        ("/a", "steps: [{id: x, workflow: b}]"),
        ("/b", "steps: [{id: x, workflow: a}]"),
        ("/broken", "steps: []"),
    ];
    let read = |text: &str| load(&source("a", "/a", text), &files(&tree));
    let (workflow, _) = read(tree[0].1).unwrap();
    assert!(workflow.children["b"].children.is_empty());
    let refused = read("steps: [{id: x, workflow: broken}]").expect_err("broken");
    assert_eq!(
        (refused.file.as_str(), refused.message.as_str()),
        ("/broken", "Workflow file requires a non-empty steps array")
    );
    let (workflow, said) = read("steps: [{id: x, workflow: broken, on_error: continue}]").unwrap();
    assert!(workflow.children.is_empty());
    assert_eq!(
        said[0].message,
        "Workflow step x workflow broken cannot be used: Workflow file requires a non-empty steps array"
    );
}

#[test]
fn a_picture_needs_no_conditions_that_can_be_read() {
    let text =
        "steps: [{id: a, run: x}, {id: b, run: x, when: 'length($a.json) == 0'}, {id: c, run: x, when: [1]}]";
    let source = source("t.lobster", "/t.lobster", text);
    assert!(load(&source, &nothing).is_err());
    let (workflow, said) = load_to_draw(&source, &nothing).unwrap();
    assert_eq!(workflow.steps[1].when.source_text(), "length($a.json) == 0");
    assert!(said.iter().all(|said| said.severity == Severity::Warning), "{said:?}");
    assert_eq!(said.iter().filter(|said| said.code == codes::CONDITION).count(), 2);
}

#[test]
fn arguments_are_merged_and_checked() {
    let workflow = good(
        "args:\n  x: {default: D}\n  n: {type: integer}\n  e: {enum: [a, 1], default: a}\n  r: {required: true, description: the repo}\n  nul: {default: }\nsteps: [{id: a, run: x}]",
    );
    let bind = |given: Value| bind_args(&workflow, &given).map(Value::Object).map_err(|e| e.to_string());
    assert_eq!(
        bind(json!({"r": 1, "x": null, "n": 5.0, "z": "extra"})),
        Ok(json!({"x": null, "e": "a", "nul": null, "r": 1, "n": 5.0, "z": "extra"}))
    );
    assert_eq!(bind(json!({})), Err("argument \"r\" is required (the repo)".to_owned()));
    // A null is no value: `rm -rf /data/${r}/` would contain the word.
    let null_is_no_value = [json!({"r": null}), lobster_base::json::parse(r#"{"r": 1e400}"#).unwrap()];
    for given in null_is_no_value {
        assert_eq!(bind(given.clone()), Err("argument \"r\" is required (the repo)".to_owned()), "{given}");
        let given = given.as_object().unwrap();
        assert!(check_args(&workflow.args, given).is_err(), "{given:?}");
    }
    assert_eq!(bind(json!({"r": 1, "n": "5"})), Ok(json!({"x": "D", "e": "a", "nul": null, "r": 1, "n": 5})));
    for text in ["", " 5", "5.5", "five", "0x5", "true", "[5]", "null"] {
        let refused = format!("argument \"n\" must be of type integer, not {}", json!(text));
        assert_eq!(bind(json!({"r": 1, "n": text})), Err(refused));
    }
    assert_eq!(
        reread_arguments(&workflow, &json!({"n": "5", "e": "a", "z": "1"}), |_| false),
        ["argument \"n\" is of type integer and was given as text; \"5\" is taken as 5"]
    );
    assert!(reread_arguments(&workflow, &json!({"n": 5}), |_| false).is_empty());
    assert!(reread_arguments(&workflow, &json!({"n": "5"}), |name| name == "n").is_empty());
    // For a drawing, all defaults apply, even if values are missing.
    assert_eq!(Value::Object(merge_args(&workflow, &json!({}))), json!({"x": "D", "e": "a", "nul": null}));
    assert_eq!(
        bind(json!({"r": 1, "e": "b"})),
        Err("argument \"e\" must be one of \"a\", 1, not \"b\"".to_owned())
    );
    let plain = good("args: {x: {default: D}, y: 5}\nsteps: [{id: a, run: x}]");
    let bind = |given: Value| bind_args(&plain, &given).map(Value::Object).map_err(|e| e.to_string());
    assert_eq!(bind(json!([1, 2])), Ok(json!({"x": "D", "0": 1, "1": 2})));
    assert_eq!(bind(json!("str")), Ok(json!({"x": "D", "0": "s", "1": "t", "2": "r"})));
    for nothing in [json!(5), json!(null), json!(true)] {
        assert_eq!(bind(nothing), Ok(json!({"x": "D"})));
    }
}

use serde_json::Value;

#[test]
fn little_is_said_about_a_file_with_countless_faults() {
    let steps: String = (0..5000)
        .map(|n| format!("- {{id: s{n}, run: x, foo{n}: 1, bar: 2, env: {{A: 1}}, stdin: $zz{n}.json}}\n"))
        .collect();
    let (_, said) = read(&format!("steps:\n{steps}")).unwrap();
    assert!(said.len() < 250, "{}", said.len());
    assert!(certain_failure(&said).is_some());
}

const SEED: &str = "name: x\nargs: {who: {default: ada}}\nenv: {A: '${who}'}\nsteps:\n  - id: a\n    run: |\n      echo \"é\" $a.json\n  - {id: g, approval: {prompt: ok?}, stdin: $a.json}\n  - id: l\n    for_each: $a.json\n    steps:\n      - {id: s, run: x, when: $item.json > 1}\n  - id: p\n    parallel:\n      wait: any\n      branches: [{id: b1, run: x}, {id: b2, pipeline: json}]\n  - &anchor {id: w, workflow: kid.lobster, workflow_args: {a: 1}}\n  - id: q\n    input: {prompt: p, responseSchema: {type: object}}\n";

fn one_sound_answer(name: &str, text: &str) {
    let source = source(name, &format!("/w/{name}"), text);
    let said = match load(&source, &nothing) {
        Ok((_, said)) => said,
        Err(error) => vec![*error],
    };
    for diagnostic in &said {
        assert!(diagnostic.span.end <= diagnostic.source().text.len(), "{diagnostic:?}");
        assert!(diagnostic.line >= 1 && diagnostic.column >= 1 && !diagnostic.message.is_empty());
        assert!(codes::find_page(diagnostic.code).is_some());
    }
    if let Some(first) = said.first() {
        let _ = (first.render_human(false), first.one_line_with_snippet());
    }
    let _ = check(&source, &nothing, &lobster_stages::builtin());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(10_000) })]

    #[test]
    fn mutated_files_give_one_sound_answer(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..4_usize, "[\\[\\]{}:,\\-&*!|>'\"%@`#?~ \n\t\ra0é☃\u{feff}\u{0}\u{85}$.]{0,3}"), 1..8)
    ) {
        let mut text: Vec<char> = SEED.chars().collect();
        for (at, removed, inserted) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + removed).min(text.len());
            text.splice(at..end, inserted.chars());
        }
        let text: String = text.into_iter().collect();
        one_sound_answer("t.lobster", &text);
    }

    #[test]
    fn any_text_gives_one_sound_answer(text in "[\\[\\]{}:,\\-&*!|>'\"%@`#?~ \n\ta0é\u{feff}<=]{0,40}") {
        one_sound_answer("t.lobster", &text);
        one_sound_answer("t.json", &text);
    }

    #[test]
    fn mutated_json_gives_one_sound_answer(at in any::<prop::sample::Index>(), removed in 0..4_usize, inserted in "[\\[\\]{}:,\"\\\\u0dE+.é-]{0,4}") {
        let seed = r#"{"steps":[{"id":"a","run":"echo \u00e9 \ud83d\ude00","retry":{"max":3,"delay_ms":1.5e2}},{"id":"b","when":"$a.json","approval":true}]}"#;
        let mut text: Vec<char> = seed.chars().collect();
        let at = at.index(text.len() + 1);
        let end = (at + removed).min(text.len());
        text.splice(at..end, inserted.chars());
        one_sound_answer("t.json", &text.into_iter().collect::<String>());
    }
}
