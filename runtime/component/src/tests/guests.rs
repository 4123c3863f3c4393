//! The ready steps in the tree, run as users run them.

use std::path::PathBuf;

use super::{engine, run};
use crate::{Component, DirGrant, Input, Kind, MAX_NESTING};

/// A file below `guest-steps`.
fn guest_steps(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../guest-steps").join(path)
}

fn shipped(name: &str) -> Component {
    engine().load_file(guest_steps("dist").join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn the_evaluator_evaluates_and_names_errors() {
    let js = shipped("js-eval.wasm");
    assert_eq!(js.kind(), Kind::Step);
    let filter = r#"{"code":"input.filter(m => m.score > 0.8)"}"#;
    let mails = [r#"{"id":1,"score":0.9}"#, r#"{"id":2,"score":0.1}"#];
    let ran =
        run(&js, filter, |i| i.input = Input::Items(Box::new(mails.map(|m| Ok(m.to_owned())).into_iter())));
    assert_eq!(ran.name(), "ok", "{:?}", ran.result);
    assert_eq!((ran.name(), ran.output.as_str()), ("ok", "{\"id\":1,\"score\":0.9}\n"));
    let again =
        run(&js, filter, |i| i.input = Input::Items(Box::new(mails.map(|m| Ok(m.to_owned())).into_iter())));
    assert_eq!(again.outcome().fuel_used, ran.outcome().fuel_used);
    assert_eq!(run(&js, r#"{"code":"while(true){}"}"#, |i| i.limits.fuel = 50_000_000).name(), "out-of-fuel");
    assert_eq!(run(&js, r#"{"code":"nope.nope"}"#, |_| {}).name(), "step-error");
    assert_eq!(run(&js, r#"{"cod":"1"}"#, |_| {}).name(), "bad-args");
    let hog = r#"{"code":"const a=[]; for(;;) a.push(new Uint8Array(1<<20).fill(1))"}"#;
    let ran = run(&js, hog, |i| i.limits.memory = 16 << 20);
    assert!(matches!(ran.name(), "memory-limit" | "step-error"), "{:?}", ran.result);
}

/// A function `f(n)` that calls itself `n` times, each in a different way.
const RECURSIONS: [(&str, &str); 16] = [
    ("plain", "function f(n) { return n ? 1 + f(n - 1) : 0 }"),
    ("map", "const f = n => n ? 1 + [n].map(m => f(m - 1))[0] : 0"),
    ("reduce", "const f = n => n ? Object.entries({n}).reduce((sum, [_, m]) => sum + 1 + f(m - 1), 0) : 0"),
    ("spread", "const f = n => n ? 1 + [{...{n}, c: [f(n - 1)]}][0].c[0] : 0"),
    ("apply", "function f(n) { return n ? 1 + f.apply(null, [n - 1]) : 0 }"),
    ("bound", "function f(n) { return n ? 1 + f.bind(null, n - 1)() : 0 }"),
    ("getter", "const f = n => n ? 1 + ({ get m() { return f(n - 1) } }).m : 0"),
    ("proxy", "const f = n => n ? 1 + new Proxy({}, { get: () => f(n - 1) }).m : 0"),
    (
        "class",
        "class C { constructor(n) { this.n = n ? 1 + new C(n - 1).n : 0 } }; const f = n => new C(n).n",
    ),
    ("generator", "function* g(n) { if (n) yield* g(n - 1); yield 1 }; const f = n => [...g(n)].length - 1"),
    ("iterator", "const f = n => n ? 1 + [...{ *[Symbol.iterator]() { yield f(n - 1) } }][0] : 0"),
    ("replace", "const f = n => n ? 1 + Number('x'.replace(/x/, () => f(n - 1))) : 0"),
    ("sort", "const f = n => { let m = 0; if (n) [1, 2].sort(() => (m = 1 + f(n - 1), 0)); return m }"),
    ("toJSON", "const f = n => n ? 1 + Number(JSON.stringify({ toJSON: () => f(n - 1) })) : 0"),
    ("reviver", "const f = n => n ? 1 + JSON.parse('1', () => f(n - 1)) : 0"),
    ("eval", "globalThis.f = n => n ? 1 + eval('f(n - 1)') : 0; const f = globalThis.f"),
];

/// Output of a script in the evaluator.
fn evaluated(js: &Component, code: &str) -> (String, Option<u64>) {
    let args = serde_json::json!({ "code": code }).to_string();
    let ran = run(js, &args, |invocation| {
        invocation.described_limits = false;
        invocation.limits.fuel = u64::MAX / 2;
    });
    let fuel = ran.result.as_ref().ok().map(|outcome| outcome.fuel_used);
    (if fuel.is_some() { ran.output } else { format!("{:?}", ran.result) }, fuel)
}

#[test]
fn scripts_recurse_deeply_and_can_catch_endless_recursion() {
    let js = shipped("js-eval.wasm");
    for (name, function) in RECURSIONS {
        let levels = if name == "plain" { 2_000 } else { 500 };
        let deep = evaluated(&js, &format!("{function}; return f({levels})")).0;
        assert_eq!(deep.trim(), levels.to_string(), "{name}");
        let endless = format!("{function}; try {{ f(1e9) }} catch (error) {{ return error.name + f(9) }}");
        let (caught, fuel) = evaluated(&js, &endless);
        assert_eq!(caught.trim(), "\"RangeError9\"", "{name}");
        assert_eq!(evaluated(&js, &endless), (caught, fuel), "{name}");
    }
    for nested in ["eval('('.repeat(1e6))", "new RegExp('('.repeat(1e6))"] {
        let code = format!("try {{ {nested} }} catch (error) {{ return error.name }}");
        let given = evaluated(&js, &code).0;
        assert!(given.contains("Error\""), "{nested}: {given}");
    }
    let code = "JSON.stringify(JSON.parse('['.repeat(2000) + ']'.repeat(2000))).length";
    assert_eq!(evaluated(&js, code).0.trim(), "4000");
}

#[test]
fn deep_values_meet_one_limit_in_both_directions() {
    let js = shipped("js-eval.wasm");
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    for (levels, fits) in
        [(MAX_NESTING - 1, true), (MAX_NESTING, true), (MAX_NESTING + 1, false), (1000, false)]
    {
        let code = format!("let a = []; for (let i = 1; i < {levels}; i++) a = [a]; return a");
        let args = serde_json::json!({ "code": code, "as": "value" }).to_string();
        let ran = run(&js, &args, |_| {});
        assert_eq!(ran.name(), if fits { "ok" } else { "bad-output" }, "{levels}: {:?}", ran.result);
        if let Err(error) = ran.result {
            let said = error.to_string();
            assert!(said.contains("nested more than 127 levels of arrays and objects deep"), "{said}");
        }
        // The arguments themselves are one level.
        let args = format!(r#"{{"code":"1","input":{}}}"#, nested(levels - 1));
        let ran = run(&js, &args, |_| {});
        assert_eq!(ran.name(), if fits { "ok" } else { "bad-args" }, "{levels}: {:?}", ran.result);
        if let Err(error) = ran.result {
            let said = error.to_string();
            assert!(
                said.contains("nested more than 127 levels") && said.contains("one level is around `input`"),
                "{said}"
            );
        }
    }
}

#[test]
fn a_result_too_large_for_one_call_tells_what_a_script_can_do() {
    let js = shipped("js-eval.wasm");
    let ran = run(&js, r#"{"code":"'x'.repeat(34e6)"}"#, |invocation| {
        invocation.described_limits = false;
        invocation.limits.memory = 1 << 30;
    });
    assert_eq!(ran.name(), "host-call-too-large", "{:?}", ran.result);
    let said = ran.result.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(said.contains("33554432 bytes") && said.contains("it must return less"), "{said}");
}

#[test]
fn the_mail_step_reads_a_granted_directory() {
    let categorize = shipped("categorize-mail.wasm");
    let description = categorize.describe().ok().flatten().expect("describes itself");
    assert_eq!(description.name, "categorize-mail");
    let dir = tempfile::tempdir().expect("temporary directory");
    let mail = "From: Ann <ann@example.com>\r\nTo: me@example.com\r\nSubject: Can you confirm?\r\n\
                Date: Mon, 2 Nov 2026 10:00:00 +0000\r\nMessage-ID: <1@example.com>\r\n\r\nCould you confirm by Friday?\r\n";
    for name in ["b.eml", "a.eml"] {
        std::fs::write(dir.path().join(name), mail).expect("writes");
    }
    let grant = DirGrant { host: dir.path().to_owned(), guest: "/mail".to_owned() };
    let once = || run(&categorize, "{}", |i| i.grants.read = vec![grant.clone()]);
    let ran = once();
    assert_eq!(ran.name(), "ok", "{:?}", ran.result);
    assert_eq!(ran.outcome().output_items, 2);
    assert_eq!(ran.output, once().output);
    // Without the grant, the directory does not exist.
    assert_eq!(run(&categorize, "{}", |_| {}).name(), "step-error");
}

/// Parts of the contract without their comments, in the order of `resolve`.
fn contract(resolve: &wit_parser::Resolve) -> Vec<String> {
    let known = |(_, package): &(_, &wit_parser::Package)| package.name.to_string() == "lobster:step@0.1.0";
    let (id, _) = resolve.packages.iter().find(known).expect("the package is there");
    // The line of the package is printed before the first interface.
    let mut printer = wit_component::WitPrinter::default();
    printer.emit_docs(false).print(resolve, id, &[]).expect("prints");
    let mut parts: Vec<_> = printer
        .output
        .to_string()
        .split("\n}\n")
        .map(|part| part.trim_start_matches("package lobster:step@0.1.0;").trim().to_owned())
        .collect();
    parts.sort();
    parts
}

#[test]
fn the_bindings_for_c_are_of_this_contract() {
    let mut resolve = wit_parser::Resolve::default();
    resolve.push_source("step.wit", include_str!("../../../../wit/step.wit")).expect("the contract parses");
    let object = std::fs::read(guest_steps("c/gen/step_component_type.o")).expect("reads");
    let (_, theirs) = wit_component::metadata::decode(&object).expect("holds a world");
    // After a change of wit/, follow guest-steps/c/gen/README.md.
    let mut ours = contract(&resolve);
    // They are from the larger world, which contains everything of this one.
    ours.retain(|part| !part.starts_with("world step {"));
    assert_eq!(contract(&theirs.resolve), ours);
}
