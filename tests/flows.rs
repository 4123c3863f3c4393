//! Workflows as data: each directory of `flows/` is a case, no Rust needed.
//!
//! `flow.lobster` is run in a copy of the directory, in tool mode, with
//! `args.json` if there is one. Files ending in `.wat` are assembled to `.wasm`.
//! `expect.json` says what must come out:
//!
//! ```json
//! {"about": "what the case shows",
//!  "copy": {"name in the directory": "path in the repository"},
//!  "calls": [{"argv": ["resume", "--token", "{{TOKEN}}"], "env": {}, "stdin": "text",
//!             "capture": {"TOKEN": "/requiresApproval/resumeToken"},
//!             "exit": 0, "answer": {}, "stderr_has": [], "files": {"log": "text"}}]}
//! ```
//!
//! A call without `argv` runs the workflow. Tokens, ids and the directory have
//! fixed names in answers; `"any_answer": true` compares none. With
//! `UPDATE_EXPECTED=1` the answers of the binary are written to the files.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::binary;
use crate::home::{Home, copy_tree};

#[test]
fn every_flow_does_what_its_directory_says() {
    let cases: Vec<_> = cases().into_iter().filter(|case| wanted(case)).collect();
    assert!(cases.len() >= 20 || std::env::var_os("LOBSTER_FLOW").is_some(), "only {} flows", cases.len());
    let next = std::sync::atomic::AtomicUsize::new(0);
    let problems = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    if let Err(problem) = run(case, false) {
                        problems.lock().unwrap().push(format!("{}: {problem}", case.display()));
                    }
                }
            });
        }
    });
    let problems = problems.into_inner().unwrap();
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

/// `LOBSTER_FLOW=name` runs one case.
fn wanted(case: &Path) -> bool {
    std::env::var_os("LOBSTER_FLOW").is_none_or(|only| case.file_name() == Some(&only))
}

fn cases() -> Vec<PathBuf> {
    let flows = Path::new(env!("CARGO_MANIFEST_DIR")).join("flows");
    let mut cases: Vec<_> = std::fs::read_dir(flows).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    cases
}

/// The cases of these names, with their native effects carried out by a worker.
pub(crate) fn run_with_worker(names: &[&str]) -> Result<(), String> {
    let of_name =
        |case: &PathBuf| case.file_name().is_some_and(|name| names.iter().any(|wanted| name == *wanted));
    let chosen: Vec<_> = cases().into_iter().filter(of_name).collect();
    assert_eq!(chosen.len(), names.len(), "{chosen:?}");
    chosen
        .iter()
        .try_for_each(|case| run(case, true).map_err(|problem| format!("{}: {problem}", case.display())))
}

fn run(case: &Path, has_worker: bool) -> Result<(), String> {
    let file = case.join("expect.json");
    let text = std::fs::read_to_string(&file).map_err(|error| format!("expect.json: {error}"))?;
    let mut expect: Value = serde_json::from_str(&text).map_err(|error| format!("expect.json: {error}"))?;
    check_keys(&expect, &["about", "copy", "calls"])?;
    if expect["about"].as_str().is_none_or(str::is_empty) {
        return Err("expect.json: no `about`".to_owned());
    }
    let home = Home::new().with_worker(has_worker);
    prepare(&home, case, &expect);
    let update = std::env::var_os("UPDATE_EXPECTED").is_some();
    let mut known = vec![("DIR".to_owned(), home.dir().canonicalize().unwrap().display().to_string())];
    for (index, call) in
        expect["calls"].as_array_mut().ok_or("expect.json: no `calls`")?.iter_mut().enumerate()
    {
        step(&home, call, &mut known, update).map_err(|problem| format!("call {}: {problem}", index + 1))?;
    }
    if update {
        std::fs::write(&file, format!("{expect:#}\n")).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn prepare(home: &Home, case: &Path, expect: &Value) {
    copy_tree(case, &home.dir());
    std::fs::remove_file(home.dir().join("expect.json")).unwrap();
    for (name, source) in expect["copy"].as_object().into_iter().flatten() {
        let source = binary::repository().join(source.as_str().unwrap());
        let target = home.dir().join(name);
        if source.is_dir() {
            copy_tree(&source, &target);
        } else {
            std::fs::copy(source, target).unwrap();
        }
    }
    for entry in std::fs::read_dir(home.dir()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "wat") {
            std::fs::write(path.with_extension("wasm"), wat::parse_file(&path).unwrap()).unwrap();
        }
    }
}

fn step(
    home: &Home,
    call: &mut Value,
    known: &mut Vec<(String, String)>,
    update: bool,
) -> Result<(), String> {
    check_keys(
        call,
        &["argv", "env", "stdin", "capture", "exit", "answer", "any_answer", "stderr_has", "files"],
    )?;
    let mut invocation = home.lobster(words(home, call, known));
    for (name, value) in call["env"].as_object().into_iter().flatten() {
        invocation = invocation.env(name, fill(value.as_str().unwrap(), known));
    }
    if let Some(text) = call["stdin"].as_str() {
        invocation = invocation.stdin(text);
    }
    let answer = invocation.run();
    let said: Value =
        serde_json::from_str(&answer.stdout).unwrap_or_else(|_| json!({ "text": answer.stdout }));
    for (name, pointer) in call["capture"].as_object().into_iter().flatten() {
        let value = said
            .pointer(pointer.as_str().unwrap())
            .ok_or_else(|| format!("nothing at {pointer} in {said:#}"))?;
        known.retain(|(known, _)| known != name);
        known.push((name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
    }
    let said = normalised(&said, known);
    if update {
        call["exit"] = json!(answer.code());
        if call["any_answer"] != true {
            call["answer"] = said.clone();
        }
        for (name, text) in call.get_mut("files").and_then(Value::as_object_mut).into_iter().flatten() {
            *text = json!(home.read(name));
        }
    }
    let mut problems = Vec::new();
    if call["exit"] != answer.code() {
        problems.push(format!("exit {}, expected {}", answer.code(), call["exit"]));
    }
    if call["any_answer"] != true && call["answer"] != said {
        problems.push(format!("answered {said:#}, expected {:#}", call["answer"]));
    }
    for text in call["stderr_has"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !answer.stderr.contains(&fill(text, known)) {
            problems.push(format!("stderr lacks {text:?}"));
        }
    }
    for (name, text) in call["files"].as_object().into_iter().flatten() {
        if home.read(name) != text.as_str().unwrap_or_default() {
            problems.push(format!("{name} is {:?}, expected {text}", home.read(name)));
        }
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(format!("{}\nstderr: {}", problems.join("\n"), answer.stderr))
    }
}

fn words(home: &Home, call: &Value, known: &[(String, String)]) -> Vec<String> {
    if let Some(words) = call["argv"].as_array() {
        return words.iter().map(|word| fill(word.as_str().unwrap(), known)).collect();
    }
    let mut words = ["run", "--mode", "tool", "--file", "flow.lobster"].map(str::to_owned).to_vec();
    if home.dir().join("args.json").exists() {
        words.extend(["--args-json".to_owned(), home.read("args.json")]);
    }
    words
}

fn fill(text: &str, known: &[(String, String)]) -> String {
    known.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{{{name}}}}}"), value))
}

/// Gives what differs from run to run a fixed name.
fn normalised(value: &Value, known: &[(String, String)]) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.iter()
                .map(|(key, value)| match key.as_str() {
                    "resumeToken" | "approvalId" => (key.clone(), json!(format!("<{key}>"))),
                    _ => (key.clone(), normalised(value, known)),
                })
                .collect::<Map<_, _>>(),
        ),
        Value::Array(items) => items.iter().map(|item| normalised(item, known)).collect(),
        Value::String(text) => {
            json!(
                known.iter().fold(text.clone(), |text, (name, value)| text
                    .replace(value, &format!("{{{{{name}}}}}")))
            )
        }
        other => other.clone(),
    }
}

fn check_keys(value: &Value, allowed: &[&str]) -> Result<(), String> {
    match value.as_object().into_iter().flatten().find(|(key, _)| !allowed.contains(&key.as_str())) {
        Some((key, _)) => Err(format!("expect.json: unknown key `{key}`")),
        None => Ok(()),
    }
}
