//! What is certain to fail is one error with its place before the first effect, wherever in a file it stands, and
//! `lobster check` says the same.

use crate::home::Home;

/// Pipelines that can never run, and what is said of them.
const WRONG: [(&str, &str, &str); 8] = [
    ("exec echo x | jsn", "E0601", "unknown command: jsn"),
    ("exec echo x | head --n many", "E0604", "head --n must be a non-negative number"),
    ("exec echo x | where", "E0604", "where requires an expression"),
    ("mcp.call --sever x --tool y", "E0604", "unknown option --sever"),
    // The rest of the text is not known yet.
    ("exec echo $a.stdout | jsn", "E0601", "unknown command: jsn"),
    ("exec echo ${who} | head --n many", "E0604", "head --n must be a non-negative number"),
    ("mcp.call --sever $a.stdout --tool y", "E0604", "unknown option --sever"),
    ("exec 'echo", "E0602", "Unclosed quote"),
];

/// Places in a file. `{}` is the pipeline; the file begins with a step that makes the file `made`.
const PLACES: [&str; 9] = [
    "  - {id: b, pipeline: \"{}\"}\n",
    "  - {id: b, when: $a.json.never, pipeline: \"{}\"}\n",
    "  - {id: l, for_each: $a.json.list, steps: [{id: b, pipeline: \"{}\"}]}\n",
    "  - {id: p, parallel: {branches: [{id: c, run: echo}, {id: b, pipeline: \"{}\"}]}}\n",
    "  - {id: r, repeat: {max: 2, until: $b.json.done}, steps: [{id: b, pipeline: \"{}\"}]}\n",
    "  - {id: s, switch: $a.json.kind, cases: {x: [{id: b, pipeline: \"{}\"}]}}\n",
    "  - {id: s, switch: $a.json.kind, cases: {x: [{id: c, run: echo}]}, default: [{id: b, pipeline: \"{}\"}]}\n",
    "  - {id: q, when: $a.json.never, on_error: skip_rest, run: echo}\n  - {id: b, pipeline: \"{}\"}\n",
    "  - {id: l, for_each: $a.json.list, steps: [{id: k, parallel: {branches: [{id: b, pipeline: \"{}\"}]}}]}\n",
];

/// Places where the failure is provided for, or never comes.
const PROVIDED_FOR: [&str; 4] = [
    "  - {id: b, on_error: continue, pipeline: \"{}\"}\n",
    "  - {id: b, when: false, pipeline: \"{}\"}\n",
    "  - {id: l, for_each: $a.json.list, on_error: continue, steps: [{id: b, pipeline: \"{}\"}]}\n",
    "  - {id: p, parallel: {wait: any, branches: [{id: c, run: echo}, {id: b, pipeline: \"{}\"}]}}\n",
];

fn file(place: &str, pipeline: &str) -> String {
    let steps = place.replace("{}", pipeline);
    format!(
        "args: {{who: {{default: you}}}}\nsteps:\n  - {{id: a, run: 'touch made; echo \"{{}}\"'}}\n{steps}"
    )
}

#[test]
fn stages_that_can_never_run() {
    for (pipeline, code, message) in WRONG {
        for place in PLACES {
            let home = Home::new();
            home.write("flow.lobster", file(place, pipeline));
            let line = place.lines().count() + 3;
            let run = home.tool(["flow.lobster"]);
            let check = home.lobster(["check", "flow.lobster"]).run();
            let (says, at) = (run.error(), format!("flow.lobster:{line}:"));
            assert!(says.contains(message) && says.contains(&at), "{pipeline} in {place}{says}");
            assert!(!home.dir().join("made").exists(), "{pipeline} in {place}");
            assert_eq!(check.code(), 1, "{pipeline} in {place}{check:?}");
            for part in [code, message, &at] {
                assert!(check.stdout.contains(part), "{pipeline} in {place}{check:?}");
            }
        }
        for place in PROVIDED_FOR {
            let home = Home::new();
            home.write("flow.lobster", file(place, pipeline));
            let run = home.tool(["flow.lobster"]);
            assert!(home.dir().join("made").exists(), "{pipeline} in {place}{run:?}");
            // Of text that is none, a person is told.
            assert!(code == "E0602" || !run.stderr.contains(message), "{pipeline} in {place}{run:?}");
            let check = home.lobster(["check", "flow.lobster"]).run();
            assert_eq!(check.code(), 0, "{pipeline} in {place}{check:?}");
            assert!(check.stdout.contains(code), "{pipeline} in {place}{check:?}");
        }
    }
}

/// Many warnings before it hide nothing.
#[test]
fn a_mistake_after_many_oddities() {
    let odd: String = (0..250).map(|n| format!("  - {{id: o{n}, run: echo, odd: 1}}\n")).collect();
    let home = Home::new();
    home.write("flow.lobster", file(&format!("{odd}{}", PLACES[0]), "head --n many"));
    let says = home.tool(["flow.lobster"]).error();
    assert!(says.contains("head --n") && says.contains("flow.lobster:254:"), "{says}");
    assert!(!home.dir().join("made").exists());
}

#[test]
fn mistakes_of_sub_workflows() {
    let child = "steps: [{id: n, run: touch child}, {id: b, pipeline: head --n many}]";
    let made = "steps:\n  - {id: a, run: touch made}\n";
    for (step, is_refused) in [
        ("{id: c, workflow: child.lobster}", true),
        ("{id: c, when: $a.json, workflow: child.lobster}", true),
        ("{id: c, on_error: continue, workflow: child.lobster}", false),
        // One call provides for it, and another one does not.
        (
            "{id: p, parallel: {branches: [{id: c, on_error: continue, workflow: child.lobster}, {id: d, workflow: child.lobster}]}}",
            true,
        ),
    ] {
        let home = Home::new();
        home.write("child.lobster", child).write("flow.lobster", format!("{made}  - {step}\n"));
        let run = home.tool(["flow.lobster"]);
        assert_eq!(home.dir().join("made").exists(), !is_refused, "{step}: {run:?}");
        assert_eq!(home.lobster(["check", "flow.lobster"]).run().code(), i32::from(is_refused), "{step}");
        if is_refused {
            assert!(run.error().contains("child.lobster:1:"), "{step}: {run:?}");
        }
    }
    // A path that an argument gives is read at the call, and nothing of the child runs.
    let home = Home::new();
    let flow = "args: {f: {}}\nsteps:\n  - {id: a, run: touch made}\n  - {id: c, workflow: \"${f}\"}\n";
    home.write("child.lobster", child).write("flow.lobster", flow);
    let run = home.tool(["flow.lobster", "--arg", "f=child.lobster"]);
    assert!(run.error().contains("child.lobster:1:"), "{run:?}");
    assert!(home.dir().join("made").exists() && !home.dir().join("child").exists(), "{run:?}");
}

#[test]
fn workflows_that_call_themselves() {
    let made = "steps:\n  - {id: a, run: touch made}\n";
    for (step, child, place) in [
        ("{id: b, workflow: flow.lobster}", "", "flow.lobster:3:"),
        ("{id: b, workflow: ./flow.lobster}", "", "flow.lobster:3:"),
        ("{id: b, when: $a.json.more, workflow: flow.lobster}", "", "flow.lobster:3:"),
        ("{id: l, for_each: $a.json, steps: [{id: b, workflow: flow.lobster}]}", "", "flow.lobster:3:"),
        ("{id: b, workflow: child.lobster}", "{id: c, workflow: flow.lobster}", "child.lobster:1:"),
        ("{id: b, workflow: child.lobster}", "{id: c, workflow: child.lobster}", "child.lobster:1:"),
    ] {
        let home = Home::new();
        home.write("child.lobster", format!("steps: [{child}]"))
            .write("flow.lobster", format!("{made}  - {step}\n"));
        let run = home.tool(["flow.lobster"]);
        assert!(run.error().contains("creates a cycle") && run.error().contains(place), "{step}: {run:?}");
        assert!(!home.dir().join("made").exists(), "{step}: {run:?}");
        assert_eq!(home.lobster(["check", "flow.lobster"]).run().code(), 1, "{step}");
    }
    // What provides for the failure, and a path that is not known before, find it at the call.
    for step in ["{id: b, on_error: continue, workflow: flow.lobster}", "{id: b, workflow: \"${f}\"}"] {
        let home = Home::new();
        home.write("flow.lobster", format!("args: {{f: {{default: flow.lobster}}}}\n{made}  - {step}\n"));
        let run = home.tool(["flow.lobster"]);
        assert!(home.dir().join("made").exists(), "{step}: {run:?}");
    }
}
