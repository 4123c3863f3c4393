//! Text and numbers from outside: what `JSON.parse` takes is taken, no condition decides on what cannot be read, and
//! integers compare to their last digit.

use serde_json::{Value, json};

use crate::home::{Answer, Home};
use crate::models::{openai, text, tool as model};
use crate::server::{Reply, Server};

const HALF: &str = r"\ud83d";
const WARNING: &str = "half a surrogate pair";

fn tool(home: &Home, words: &[&str]) -> Answer {
    home.lobster(["run", "--mode", "tool"].iter().chain(words)).run()
}

/// Every way in: output of a step, of `exec --json` small and large, an argument, an answer, a file in each dialect.
#[test]
fn half_a_surrogate_pair_is_read_wherever_json_comes_in() {
    let home = Home::cold();
    home.write("out.json", format!(r#"{{"t":"cut {HALF}","n":5}}"#))
        .write("large.json", format!(r#"[{{"t":"{HALF}"}},"{}"]"#, "x".repeat(2 << 20)))
        .write(
            "step.lobster",
            "steps:\n  - {id: s, run: cat out.json}\n  - {id: r, run: cat, stdin: $s.json.t, when: $s.json.n == 5}\n",
        )
        .write("ask.lobster", "steps:\n  - {id: q, input: {prompt: t?, responseSchema: {type: object}}}\n");
    let file = format!(r#"{{"steps": [{{"id": "a", "run": "echo '\ud83d\ude80 {HALF}'"}}]}}"#);
    for name in ["file.lobster", "file.yaml", "file.json"] {
        home.write(name, &file);
        let ran = tool(&home, &[name]);
        assert_eq!(ran.output(), json!(["🚀 \u{fffd}\n"]), "{name}");
        let checked = home.lobster(["check", name]).run();
        assert!(checked.code() == 0 && checked.stdout.contains("W0820"), "{checked:?}");
    }
    let ran = tool(&home, &["step.lobster"]);
    assert_eq!(ran.output(), json!(["cut \u{fffd}"]));
    assert!(ran.stderr.contains(&format!("warning: the output of step s escapes {WARNING}")), "{ran:?}");
    let ran = tool(&home, &["exec --json cat out.json | pick t"]);
    assert_eq!(ran.output(), json!([{"t": "cut \u{fffd}"}]));
    assert!(ran.stderr.contains(WARNING), "{ran:?}");
    assert_eq!(
        tool(&home, &["exec --json cat large.json | head --n 1"]).output(),
        json!([{"t": "\u{fffd}"}])
    );
    let args = format!(r#"{{"t": "{HALF}"}}"#);
    home.write("args.lobster", "args: {t: {}}\nsteps: [{id: a, run: 'printf %s \"$LOBSTER_ARG_T\"'}]\n");
    let ran = tool(&home, &["args.lobster", "--args-json", &args]);
    assert_eq!(ran.output(), json!(["\u{fffd}"]));
    assert!(ran.stderr.contains(WARNING), "{ran:?}");
    let asked = tool(&home, &["ask.lobster"]);
    let token = asked.envelope()["requiresInput"]["resumeToken"].as_str().unwrap().to_owned();
    let answered = home.lobster(["resume", "--token", &token, "--response-json", &args]).run();
    assert_eq!(answered.output(), json!([{"t": "\u{fffd}"}]), "{answered:?}");
}

/// What was paid for is not lost.
#[test]
fn half_a_surrogate_pair_in_the_answer_of_a_model_is_read() {
    let body = format!(r#"{{"choices":[{{"message":{{"role":"assistant","content":"cut {HALF}"}}}}]}}"#);
    let server = Server::start(move |_, _| Reply::status(200, "content-type: application/json\r\n", &body));
    let home = Home::cold();
    let call = model(&home, "llm.invoke --model m --prompt cut");
    assert_eq!(text(&openai(call, &server).run()), "cut \u{fffd}");
    assert_eq!(server.requests().len(), 1);
}

/// The text that a model prints around its JSON must not let a guarded step run, wherever the condition stands.
#[test]
fn a_condition_on_output_that_is_not_json_names_the_step() {
    let home = Home::cold();
    home.write("fence", "```json\n{\"verdict\": \"block\"}\n```\n").write("empty", "").write("blank", "\n");
    let flows = [
        (
            "when",
            "steps:\n  - {id: review, run: cat FILE}\n  - {id: merge, run: touch merged, when: $review.json.verdict != \"block\"}\n",
        ),
        (
            "condition",
            "steps:\n  - {id: review, run: cat FILE}\n  - {id: merge, run: touch merged, condition: '!$review.json'}\n",
        ),
        (
            "both sides",
            "steps:\n  - {id: review, run: cat FILE}\n  - {id: merge, run: touch merged, when: '$review.id == review || $review.json.ok'}\n",
        ),
        (
            "branch",
            "steps:\n  - {id: review, run: cat FILE}\n  - id: p\n    parallel:\n      branches: [{id: merge, run: touch merged, when: $review.json.verdict != \"block\"}]\n",
        ),
        (
            "loop",
            "steps:\n  - {id: list, run: 'echo [1]'}\n  - id: each\n    for_each: $list.json\n    steps: [{id: review, run: cat FILE}, {id: merge, run: touch merged, when: $review.json != 1}]\n",
        ),
        (
            "until",
            "steps:\n  - id: again\n    repeat: {until: $review.json.verdict != \"block\", max: 2}\n    steps: [{id: review, run: cat FILE}]\n  - {id: merge, run: touch merged}\n",
        ),
        (
            "switch",
            "steps:\n  - {id: review, run: cat FILE}\n  - id: s\n    switch: $review.json.verdict\n    cases: {block: []}\n    default: [{id: merge, run: touch merged}]\n",
        ),
        (
            "graph",
            "steps:\n  - {id: review, run: cat FILE}\n  - {id: merge, run: touch merged, needs: [review], when: $review.json.verdict != \"block\"}\n",
        ),
    ];
    for (place, flow) in flows {
        home.write("w.lobster", flow.replace("FILE", "fence"));
        let ran = tool(&home, &["w.lobster"]);
        assert_eq!(ran.code(), 1, "{place}: {ran:?}");
        let error = ran.error();
        assert!(
            error.contains("`$review.json") && error.contains("output of step review is not JSON"),
            "{place}: {error}"
        );
        assert!(!home.dir().join("merged").exists(), "{place}");
    }
    // A step that printed nothing, or was skipped, has no value: as before.
    for (file, step) in [("empty", ""), ("blank", ""), ("fence", ", when: 'false'")] {
        let flow = flows[0].1.replace("FILE}", &format!("{file}{step}}}"));
        home.write("w.lobster", flow);
        assert_eq!(tool(&home, &["w.lobster"]).code(), 0, "{file}");
        std::fs::remove_file(home.dir().join("merged")).unwrap();
    }
    // Elsewhere a reference without a value is an empty text.
    home.write(
        "w.lobster",
        "steps:\n  - {id: a, run: cat fence}\n  - {id: b, run: cat, stdin: 'x$a.json.verdict'}\n",
    );
    assert_eq!(tool(&home, &["w.lobster"]).output(), json!(["x"]));
}

#[test]
fn integers_compare_to_the_last_digit_everywhere() {
    let home = Home::cold();
    let (id, next) = ("8202522731445525542", "8202522731445525543");
    home.write(
        "o.json",
        format!(r#"[{{"id": {id}}}, {{"id": {next}}}, {{"id": {id}.0}}, {{"id": 1.0}}, {{"id": 1}}]"#),
    );
    let ids = |pipeline: &str| -> Vec<String> {
        let ran = tool(&home, &[&format!("exec --json cat o.json | {pipeline}")]);
        let ran = ran.output();
        ran.as_array().unwrap().iter().map(|item| item["id"].to_string()).collect()
    };
    assert_eq!(ids(&format!("where id=={next}")), [next]);
    assert_eq!(ids(&format!("where id>{id}")), [next]);
    assert_eq!(ids("where id==1"), ["1", "1"]);
    assert_eq!(ids("dedupe --key id").len(), 4);
    assert_eq!(ids("sort --key id --desc")[0], next);
    let conditions = [
        (format!("$o.json.0.id == {id}"), true),
        (format!("$o.json.0.id == {next}"), false),
        (format!("$o.json.0.id < {next}"), true),
        (format!("$o.json.1.id <= {id}"), false),
        (format!("$o.json.0.id >= {next}"), false),
        (format!("$o.json.0.id < '{next}'"), true),
        ("$o.json.3.id == 1 && $o.json.4.id == 1.0".to_owned(), true),
        ("$o.json.0.id == $o.json.1.id".to_owned(), false),
    ];
    let mut flow = "steps:\n  - {id: o, run: cat o.json}\n".to_owned();
    for (at, (condition, _)) in conditions.iter().enumerate() {
        flow.push_str(&format!("  - {{id: c{at}, run: echo c{at} >> ran, when: \"{condition}\"}}\n"));
    }
    home.write("w.lobster", flow);
    assert_eq!(tool(&home, &["w.lobster"]).code(), 0);
    let held = conditions.iter().enumerate().filter(|(_, (_, holds))| *holds);
    assert_eq!(home.read("ran"), held.map(|(at, _)| format!("c{at}\n")).collect::<String>());
}

/// `${env.NAME}` inserts what was inherited; what is not filled in, and what can hardly be meant, is reported.
#[test]
fn values_of_env_take_what_lobster_was_started_with() {
    let home = Home::cold();
    home.write("tools/mine", "#!/bin/sh\necho mine\n").write(
        "w.lobster",
        "args: {x: {default: '${env.GREETING}'}}\nenv: {BASE: 'b-${env.GREETING}'}\nsteps:\n  - id: a\n    \
         run: 'mine && ls / >/dev/null && echo \"$ALL\"'\n    \
         env: {PATH: \"${env.TOOLS}:${env.PATH}\", ALL: '${env.BASE} ${x} ${env.UNSET}|${env.a b}'}\n",
    );
    let tools = home.dir().join("tools");
    std::fs::set_permissions(tools.join("mine"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let run = |words: &[&str]| {
        let run = home.lobster(["run", "--mode", "tool"].iter().chain(words));
        run.env("GREETING", "$a.stdout").env("TOOLS", &tools).run()
    };
    assert_eq!(run(&["w.lobster"]).output(), json!(["mine\nb-$a.stdout ${env.GREETING} |${env.a b}\n"]));
    home.write("key.lobster", "steps: [{id: a, run: 'true', env: {K: 'x${env.OPENAI_API_KEY}'}}]\n");
    let refused =
        home.lobster(["run", "--mode", "tool", "key.lobster"]).env("OPENAI_API_KEY", "sk-0123456789").run();
    assert!(refused.error().contains("`OPENAI_API_KEY: $OPENAI_API_KEY` passes it on"), "{refused:?}");
    home.write(
        "doubts.lobster",
        "args: {my-arg: {default: 1}, my_arg: {default: 2}}\nsteps:\n  - {id: a, run: echo false, env: {PATH: 'tools:${PATH}', \
         M: $LOBSTER_ARG_MY_ARG, OPENAI_API_KEY: $OPENAI_API_KEY}}\n  - {id: b, run: 'true', when: $a.stdout}\n  \
         - {id: c, run: printf no, when: $a.stdout == false}\n  - {id: d, run: 'true', when: '$a.stdout == \"x\" || $c.stdout == \"no\"'}\n",
    );
    let found = home.lobster(["check", "--json", "doubts.lobster"]).run();
    let found: Value = serde_json::from_str(&found.stdout).unwrap();
    let found: Vec<_> = found
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["code"].as_str().unwrap(), it["line"].as_u64().unwrap()))
        .collect();
    let expected = [("W0824", 1), ("W0823", 3), ("W0823", 3), ("W0822", 4), ("W0821", 5), ("W0821", 6)];
    assert_eq!(found, expected);
    let fixed = home.lobster(["check", "--fix", "doubts.lobster"]).run();
    assert!(home.read("doubts.lobster").contains("tools:${env.PATH}"), "{fixed:?}");
}

/// A failed step, `check` and `doctor` name the keys that are set and withheld, never their values.
#[test]
fn keys_that_are_withheld_are_named() {
    let home = Home::cold();
    let key = "sk-or-0123456789-never-shown";
    home.write("quiet.lobster", "steps: [{id: a, run: 'echo 401 >&2; exit 1'}]\n")
        .write("named.lobster", "steps: [{id: a, run: '[ -n \"$MISTRAL_API_KEY\" ] || { echo no MISTRAL_API_KEY >&2; exit 1; }'}]\n")
        .write("hosts.lobster", "steps: [{id: a, run: 'echo $GITHUB_TOKEN'}]\n");
    let call = |words: &[&str]| {
        home.lobster(words)
            .env("OPENROUTER_API_KEY", key)
            .env("MISTRAL_API_KEY", key)
            .env("GITHUB_TOKEN", "ghp")
            .run()
    };
    let all = "not passed to this step: MISTRAL_API_KEY, OPENROUTER_API_KEY (keys of lobster's own)";
    for words in ["quiet.lobster", "exec --shell 'exit 1'"] {
        let failed = call(&["run", "--mode", "tool", words]);
        assert!(failed.error().contains(all), "{failed:?}");
    }
    let named = call(&["run", "--mode", "tool", "named.lobster"]).error();
    assert!(
        named.contains("this step: MISTRAL_API_KEY (keys")
            && named.contains("`env: { MISTRAL_API_KEY: $MISTRAL_API_KEY }`"),
        "{named}"
    );
    assert_eq!(call(&["run", "--mode", "tool", "hosts.lobster"]).output(), json!(["ghp\n"]));
    let checked = call(&["check", "named.lobster"]);
    assert!(checked.stdout.contains("W0825") && checked.stdout.contains(":1:"), "{checked:?}");
    assert!(
        checked.stderr.contains("steps do not receive MISTRAL_API_KEY, OPENROUTER_API_KEY"),
        "{checked:?}"
    );
    let doctor = call(&["doctor"]);
    assert!(doctor.stderr.contains("steps do not receive MISTRAL_API_KEY, OPENROUTER_API_KEY"), "{doctor:?}");
    assert!(!format!("{checked:?}{doctor:?}").contains(key));
    // None is named that is not set, or that the step was granted.
    let plain = home.lobster(["run", "--mode", "tool", "quiet.lobster"]).run().error();
    assert!(!plain.contains("not passed"), "{plain}");
    home.write(
        "granted.lobster",
        "env: {MISTRAL_API_KEY: $MISTRAL_API_KEY}\nsteps: [{id: a, run: 'exit 1'}]\n",
    );
    let granted = call(&["run", "--mode", "tool", "granted.lobster"]).error();
    assert!(granted.contains("this step: OPENROUTER_API_KEY (keys"), "{granted}");
}

#[test]
fn a_variable_of_a_caller_does_not_stand_for_an_argument_that_is_left_out() {
    let home = Home::new();
    let shows = "printf '%s|%s' \"${LOBSTER_ARG_T-none}\" \"${LOBSTER_ARGS_JSON-none}\"";
    home.write("sub.lobster", format!("args: {{ t: {{}} }}\nsteps:\n  - id: a\n    run: {}\n", json!(shows)))
        .write(
            "main.lobster",
            "args: { t: { default: of the caller } }\nsteps:\n  - { id: big, run: \"printf '%200000s' y\" }\n  \
             - { id: s, workflow: sub.lobster, workflow_args: { t: $big.stdout } }\n",
        );
    assert_eq!(tool(&home, &["main.lobster"]).output(), json!(["none|none"]));
    let outer = home.lobster(["run", "--mode", "tool", "sub.lobster", "--args-json", r#"{"t":"\u0000x"}"#]);
    let shown = outer.env("LOBSTER_ARG_T", "of another run").run().output();
    assert_eq!(shown, json!(["none|{\"t\":\"\\u0000x\"}"]));
}
