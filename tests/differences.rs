//! `lobster diff` and `lobster why`: what is not the same in two runs.

use crate::home::{Answer, Home, newest};

fn ran(home: &Home, workflow: &str) -> String {
    home.write("flow.lobster", workflow);
    home.tool(["flow.lobster"]);
    newest(home)
}

fn diff(home: &Home, before: &str, after: &str) -> Answer {
    home.lobster(["diff", before, after]).run()
}

#[track_caller]
fn differ(answer: &Answer, lines: &[&str]) {
    assert_eq!(answer.code(), 1, "{answer:?}");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let said: Vec<_> = answer.stdout.lines().map(words).collect();
    for line in lines {
        assert!(said.iter().any(|told| told == line), "{line:?} is not in {said:#?}");
    }
}

#[test]
fn a_run_is_the_same_as_itself_and_as_one_that_did_the_same() {
    let home = Home::new();
    let flow = "
steps:
  - {id: a, js: '[3, 1, 2]'}
  - {id: s, pipeline: 'sort | head --n 2', stdin: $a.json}
  - {id: left, run: exit 1, when: $a.json == 3}
  - {id: each, for_each: $a.json, steps: [{id: x, js: 'args'}]}
";
    let (first, second) = (ran(&home, flow), ran(&home, flow));
    let answer = diff(&home, &first, &second);
    assert_eq!(
        (answer.code(), answer.stdout.as_str()),
        (0, "plan the same, arguments the same, 5 steps the same\n")
    );
}

#[test]
fn steps_without_an_action_are_compared_by_what_they_are_and_runs_by_what_they_give() {
    let home = Home::new();
    let flow = "
steps:
  - {id: a, js: '[3, 1, 2]'}
  - {id: s, pipeline: 'sort | head --n 2', stdin: $a.json}
";
    let first = ran(&home, flow);
    let second = ran(&home, &flow.replace("--n 2", "--n 1"));
    differ(
        &diff(&home, &first, &second),
        &[
            "plan different, arguments the same, 1 step the same",
            "s action differs its definition $.work.pipeline: \"sort | head --n 2\" → \"sort | head --n 1\"",
            "the result of the run differs: its output $: [1,2] → 1",
        ],
    );
    let why = home.lobster(["why", &second, "s"]).run();
    assert!(why.stderr.contains("has no action of its own"), "{why:?}");
}

#[test]
fn answers_are_compared() {
    let home = Home::new();
    let flow = "steps: [{id: in, input: {prompt: which, responseSchema: {type: object}}}]";
    let answered = |answer: &str| {
        home.write("flow.lobster", flow);
        let token = home.tool(["flow.lobster"]).token();
        home.lobster(["resume", "--token", &token, "--response-json", answer]).run().output();
        newest(&home)
    };
    let (first, second) = (answered("{\"d\":1}"), answered("{\"d\":2}"));
    differ(&diff(&home, &first, &second), &["in result differs its answer $.response.d: 1 → 2"]);
    assert_eq!(diff(&home, &first, &first).code(), 0);
}

#[test]
fn a_skipped_step_one_that_was_not_reached_and_one_that_is_gone_are_told_apart() {
    let home = Home::new();
    let flow = "
steps:
  - {id: a, run: echo 1}
  - {id: b, run: echo b, when: $a.json == 1}
  - {id: c, run: echo c}
";
    let first = ran(&home, flow);
    let skipped = ran(&home, &flow.replace("== 1", "== 2"));
    differ(&diff(&home, &first, &skipped), &["b result differs its status: \"ok\" → \"skipped\""]);
    differ(&diff(&home, &skipped, &first), &["b result differs its status: \"skipped\" → \"ok\""]);
    let why = home.lobster(["why", &first, "b", "--vs", &skipped]).run();
    assert!(why.stderr.contains("did not execute step 'b': its condition skipped it"), "{why:?}");

    let failed = ran(&home, &flow.replace("echo b", "exit 3"));
    differ(&diff(&home, &first, &failed), &["status ok → failed", "c not reached"]);
    let gone = ran(&home, &flow.replace("  - {id: c, run: echo c}\n", ""));
    differ(&diff(&home, &first, &gone), &["c removed"]);
    differ(&diff(&home, &gone, &first), &["c added"]);
}

#[test]
fn of_a_step_that_was_tried_again_the_last_attempt_counts() {
    let home = Home::new();
    let flow = "steps: [{id: re, run: 'test -e ok || { touch ok; exit 1; }', retry: {max: 2, delay_ms: 1}}]";
    let twice = ran(&home, flow);
    let once = ran(&home, flow);
    assert_eq!(diff(&home, &twice, &once).code(), 0, "{:?}", diff(&home, &twice, &once));
}

#[test]
fn the_maker_of_what_a_js_step_reads_is_named_and_a_policy_alone_is_no_other_action() {
    let home = Home::new();
    let flow = "
steps:
  - {id: a, run: 'echo \"{\\\"v\\\": [1, 2]}\"'}
  - {id: j, js: input.v.length, stdin: $a.json}
";
    ran(&home, flow);
    let second = ran(&home, &flow.replace("1, 2", "1, 5"));
    let why = home.lobster(["why", &second, "j"]).run();
    assert_eq!(why.stdout, "j differs by the argument input $.v[1] (made by step a): 2 → 5\n");
    home.write("policy.toml", "version = 1\nprofile = \"default\"\n");
    home.lobster(["run", "--mode", "tool", "flow.lobster", "--policy", "policy.toml"]).run();
    let third = newest(&home);
    let why = home.lobster(["why", &third, "j"]).run();
    assert!(why.stdout.starts_with("j did the same under the policy: blake3:"), "{why:?}");
}
