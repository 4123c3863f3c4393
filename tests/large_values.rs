//! Values that are larger than what lobster may hold of them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::home::Home;

/// Prints a list of `count` objects of a kilobyte each, not as compactly as it could.
fn list(count: usize) -> String {
    format!(
        "awk 'BEGIN {{ for (pad = \"x\"; length(pad) < 1000;) pad = pad pad; printf \" [\\n\"; \
         for (n = 0; n < {count}; n++) printf \"%s{{\\\"n\\\": %d.0, \\\"n\\\": %d, \\\"pad\\\": \\\"%s\\\"}}\", \
         n ? \" ,\\n\" : \"\", n, n, pad; print \"]\" }}'"
    )
}

#[test]
fn a_large_list_reaches_every_kind_of_step_as_it_would_if_it_were_small() {
    let home = Home::new();
    let count = 3000;
    home.write(
        "flow.lobster",
        json!({ "steps": [
            { "id": "all", "run": list(count) },
            { "id": "native", "run": "cat", "stdin": "$all.json" },
            { "id": "pipeline", "pipeline": "where n=2999 | pick n", "stdin": "$all.json" },
            { "id": "js", "js": "input.length + input[7].n", "stdin": "$all.json" },
            { "id": "rounds", "for_each": "$all.json", "steps": [{ "id": "n", "js": "args" }] },
            { "id": "told", "run": "wc -c", "stdin": "$native.stdout" },
            { "id": "end", "js": "({ native: steps.native, pipeline: steps.pipeline, js: steps.js, \
                                     rounds: steps.rounds.length, told: steps.told })" },
        ] })
        .to_string(),
    );
    let pad = "x".repeat(1024);
    let items: Vec<Value> = (0..count).map(|n| json!({ "n": n, "pad": pad })).collect();
    let told = serde_json::to_string(&items).unwrap().len();
    assert_eq!(
        home.tool(["flow.lobster"]).output(),
        json!([{ "native": items, "pipeline": { "n": 2999 }, "js": count + 7, "rounds": count, "told": told }])
    );
    let runs = home.lobster(["runs", "--json"]).run();
    let runs: Value = serde_json::from_str(&runs.stdout).unwrap();
    let replay = home.lobster(["replay", runs[0]["id"].as_str().unwrap()]).run();
    assert_eq!(replay.code(), 0, "{replay:#?}");
}

/// Prints an object that has such a list, between two fields that are asked for.
fn object(count: usize) -> String {
    let list = list(count).replace("\\\"n\\\": %d.0, ", "").replace("n, n, pad", "n, pad");
    format!(
        "printf '{{ \"head\" : {{\"n\": 1.0}}, \"list\":'; {list}; printf ', \"tail\": [ \"\\\\u0041/\" ] }}'"
    )
}

#[test]
fn a_large_object_reaches_every_kind_of_step_as_it_would_if_it_were_small() {
    let home = Home::new();
    let count = 3000;
    home.write(
        "flow.lobster",
        json!({ "steps": [
            { "id": "all", "run": object(count) },
            { "id": "native", "run": "cat", "stdin": "$all.json" },
            { "id": "carried", "run": " ", "stdin": "$all.json" },
            { "id": "part", "run": "cat", "stdin": "$all.json.list.2999.n" },
            { "id": "text", "run": "echo $all.json.head.n ${GONE:-none} $all.json.tail.0", "when": "$all.json.head.n == 1" },
            { "id": "left", "run": "echo ran", "when": "$all.json.head.n != 1" },
            { "id": "rounds", "for_each": "$all.json.tail", "steps": [{ "id": "n", "js": "args" }] },
            { "id": "js", "js": "[input.list.length, input.tail]", "stdin": "$all.json" },
            { "id": "told", "run": "wc -c", "stdin": "$native.stdout" },
            { "id": "end", "js": "[steps.carried.list.length, steps.part, steps.text, steps.left, steps.rounds.length, \
                                   steps.js, steps.told, steps.native.list[7].n]" },
        ] })
        .to_string(),
    );
    let pad = "x".repeat(1024);
    let items: Vec<Value> = (0..count).map(|n| json!({ "n": n, "pad": pad })).collect();
    let told =
        serde_json::to_string(&json!({ "head": { "n": 1 }, "list": items, "tail": ["A/"] })).unwrap().len();
    assert_eq!(
        home.tool(["flow.lobster"]).output(),
        json!([count, 2999, "1 none A/\n", null, 1, [count, ["A/"]], told, 7])
    );
    let runs = home.lobster(["runs", "--json"]).run();
    let runs: Value = serde_json::from_str(&runs.stdout).unwrap();
    let replay = home.lobster(["replay", runs[0]["id"].as_str().unwrap()]).run();
    assert_eq!(replay.code(), 0, "{replay:#?}");
}

#[test]
fn a_list_is_handed_on_without_being_loaded() {
    handed_on_without_being_loaded(&list(100_000), 100_000, None);
}

#[test]
fn an_object_is_handed_on_and_looked_into_without_being_loaded() {
    handed_on_without_being_loaded(&object(100_000), 100_000, Some("$all.json.tail.0 == \"A/\""));
}

/// Runs a step that prints `count` kilobytes and one that reads them as JSON, and
/// looks at what the process has held when the second has all of it.
fn handed_on_without_being_loaded(print: &str, count: usize, when: Option<&str>) {
    let home = Home::new();
    let mut sink = json!({
        "id": "sink", "stdin": "$all.json",
        "run": "wc -c > size; touch full; while [ ! -e go ]; do sleep 0.02; done",
    });
    if let Some(when) = when {
        sink["when"] = when.into();
    }
    home.write("flow.lobster", json!({ "steps": [{ "id": "all", "run": print }, sink] }).to_string());
    let mut child = home.lobster(["run", "--mode", "tool", "flow.lobster"]).start();
    let begun = Instant::now();
    while !home.dir().join("full").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended early");
        assert!(begun.elapsed() < Duration::from_secs(120), "nothing has arrived");
        std::thread::sleep(Duration::from_millis(20));
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    home.write("go", "");
    assert!(child.wait().unwrap().success());
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: usize = peak.trim().trim_end_matches(" kB").parse().unwrap();
    let given: usize = home.read("size").trim().parse().unwrap();
    assert!(given > count << 10, "only {given} bytes arrived");
    // Loaded, the text alone would take as much as was given.
    assert!(peak << 10 < given, "{peak} KiB held of {given} bytes");
}
