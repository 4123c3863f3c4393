//! Steps that decide what runs, how often and beside what: `repeat`, `switch`, `needs`, `concurrency`.

use serde_json::{Value, json};

use crate::home::Home;

fn lines(home: &Home) -> Vec<String> {
    let mut lines: Vec<String> = home.read("log").lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn a_repeat_ends_with_its_condition_and_failing_goes_on_when_resumed() {
    let home = Home::new();
    home.write(
        "poll.lobster",
        "\
steps:
  - id: poll
    repeat: { until: $probe.json.ready == true, every: 5ms, max: 2 }
    steps:
      - {id: probe, run: 'echo x >>log; if [ $(wc -l <log) -ge 5 ]; then echo \"{\\\"ready\\\":true}\"; else echo \"{}\"; fi'}
  - {id: end, run: 'printf %s \"$N\"', env: {N: $poll.json.index}}
",
    );
    let ran = home.tool(["poll.lobster"]);
    let message = ran.envelope()["error"]["message"].to_string();
    assert!(message.contains("does not hold after 2 rounds: $probe.json.ready == true"), "{message}");
    let shown = home.lobster(["show", "@", "--json"]).run();
    assert!(shown.stdout.contains("\"repeat_limit\""), "{shown:?}");
    let again = home.lobster(["resume", "@"]).run();
    assert!(again.code() == 1 && again.stdout.contains("after 4 rounds"), "{again:?}");
    let done = home.lobster(["resume", "@"]).run();
    assert_eq!((done.code(), lines(&home).len()), (0, 5), "{done:?}");
    assert!(done.stdout.contains('4'), "{done:?}");
    assert_eq!(home.lobster(["replay", "@"]).run().code(), 0);
    let forked = home.lobster(["fork", "@", "--from", "end"]).run();
    assert_eq!((forked.code(), lines(&home).len()), (0, 5), "no round is done again: {forked:?}");
}

#[test]
fn a_switch_runs_one_case_and_says_that_the_others_were_skipped() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "\
args: {kind: {default: bug}}
steps:
  - {id: given, run: 'printf \"%s\\n\" \"$LOBSTER_ARG_KIND\"'}
  - id: route
    switch: $given.stdout
    cases:
      bug:
        - {id: fix, run: 'echo fix >>log; echo 1'}
        - {id: tell, run: 'echo tell >>log; echo 2', when: '$fix.json == 1'}
      7: [{id: seven, run: 'echo seven >>log; echo 7'}]
    default: []
  - {id: end, run: 'echo \"$R/$F/$S\"', env: {R: $route.json, F: $fix.skipped, S: $seven.skipped}}
",
    );
    let done = |kind: &str| {
        let args = json!({ "kind": kind }).to_string();
        let ran = home.tool(["flow.lobster", "--args-json", &args]);
        assert_eq!(home.lobster(["replay", "@"]).run().code(), 0);
        ran.envelope()["output"][0].as_str().map(|text| text.trim().to_owned())
    };
    assert_eq!(done("bug").as_deref(), Some("2/false/true"));
    assert_eq!(done("7").as_deref(), Some("7/true/false"));
    assert_eq!(done("other").as_deref(), Some("/true/true"));
    assert_eq!(lines(&home), ["fix", "seven", "tell"]);
    let shown = home.lobster(["run", "--dry-run", "flow.lobster"]).run();
    assert!(shown.stderr.contains("case bug:\n") && shown.stderr.contains("[nothing to do]"), "{shown:?}");

    let text = home.read("flow.lobster").replace("    default: []\n", "");
    home.write("flow.lobster", text);
    let ran = home.tool(["flow.lobster", "--args-json", r#"{"kind":"other"}"#]);
    let message = ran.envelope()["error"]["message"].to_string();
    assert!(message.contains(r#"the value is \"other\", and the cases are bug, 7"#), "{message}");
}

const GRAPH: &str = "\
concurrency: 2
steps:
  - {id: deploy, run: 'echo deploy >>log; cat', stdin: $test.stdout, needs: lint}
  - {id: lint, run: 'echo lint >>log', needs: []}
  - {id: test, run: 'echo test >>log; cat', stdin: $build.stdout}
  - {id: build, run: 'echo build >>log; echo built', approval: Go on?}
";

#[test]
fn a_graph_runs_by_what_its_steps_need() {
    let home = Home::new();
    home.write("flow.lobster", GRAPH);
    let planned = home.lobster(["run", "--dry-run", "flow.lobster"]).run().stderr;
    let order: Vec<usize> = ["1. lint", "2. build", "3. test", "4. deploy"]
        .iter()
        .map(|line| planned.find(line).unwrap())
        .collect();
    assert!(order.is_sorted() && planned.contains("needs: lint, test"), "{planned}");
    let drawn = home.lobster(["graph", "flow.lobster", "--format", "ascii"]).run().stdout;
    assert!(drawn.contains("- lint -> deploy (needs)") && !drawn.contains("(next)"), "{drawn}");
    assert_eq!(home.lobster(["check", "flow.lobster"]).run().code(), 0);

    let asked = home.tool(["flow.lobster"]).envelope();
    assert_eq!(asked["status"], "needs_approval");
    assert_eq!(lines(&home), ["build", "lint"], "what does not need the answer goes on");
    let id = asked["requiresApproval"]["approvalId"].as_str().unwrap();
    let done = home.lobster(["resume", "--id", id, "--approve", "yes"]).run();
    assert!(done.code() == 0 && done.stdout.contains("built"), "{done:?}");
    assert_eq!(lines(&home), ["build", "deploy", "lint", "test"], "each once");
    assert_eq!(home.lobster(["replay", "@"]).run().code(), 0);
}

#[test]
fn skips_and_failures_go_along_the_needs() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "\
steps:
  - {id: off, run: 'echo off >>log', when: false, needs: []}
  - {id: after-off, run: 'echo after-off >>log', needs: [off]}
  - {id: asks, run: 'echo asks >>log', needs: [off], when: $off.skipped}
  - {id: broken, run: 'exit 3', on_error: skip_rest}
  - {id: after-broken, run: 'echo after-broken >>log', needs: [broken], when: $broken.error}
  - {id: far, run: 'echo far >>log', needs: [after-broken], when: $after-broken.skipped}
  - {id: soft, run: 'exit 3', on_error: continue}
  - {id: after-soft, run: 'echo after-soft >>log', needs: [soft]}
",
    );
    let ran = home.lobster(["run", "flow.lobster"]).run();
    assert_eq!((ran.code(), lines(&home)), (0, vec!["after-soft".to_owned(), "asks".to_owned()]), "{ran:?}");
    let planned = home.lobster(["run", "--dry-run", "flow.lobster"]).run().stderr;
    assert!(planned.contains("after-off  [skipped — it needs off, which is skipped]"), "{planned}");

    // A failure lets what is under way end, and nothing else begin; both failures are taken up again.
    home.write(
        "two.lobster",
        "\
steps:
  - {id: a, run: 'echo a >>log2; test -e good', needs: []}
  - {id: b, run: 'echo b >>log2; sleep 0.2; test -e good'}
  - {id: ok, run: 'echo ok >>log2'}
  - {id: end, run: 'echo end >>log2', needs: [a, b, ok]}
",
    );
    assert_eq!(home.lobster(["run", "two.lobster"]).run().code(), 1);
    home.write("good", "");
    let mut resumed = home.lobster(["resume", "@"]).run();
    if resumed.code() != 0 {
        resumed = home.lobster(["resume", "@"]).run();
    }
    assert_eq!(resumed.code(), 0, "{resumed:?}");
    let count = |line: &str| home.read("log2").lines().filter(|found| *found == line).count();
    assert_eq!((count("ok"), count("end")), (1, 1), "{}", home.read("log2"));
    assert_eq!(home.lobster(["replay", "@"]).run().code(), 0);
}

#[test]
fn rounds_with_effects_run_side_by_side_and_give_their_results_in_order() {
    let home = Home::new();
    // Each round waits for the next one, so they are under way together, and end the other way round.
    home.write(
        "flow.lobster",
        "\
steps:
  - {id: list, run: \"echo '[0,1,2,3]'\"}
  - id: each
    for_each: $list.json
    concurrency: 4
    steps:
      - {id: work, exec: [sh, ./work.sh, $item.json]}
",
    );
    home.write(
        "work.sh",
        "i=$1; n=0; while [ $i -lt 3 ] && [ ! -e done$((i+1)) ] && [ $n -lt 2000 ]; do sleep 0.01; n=$((n+1)); done\n\
         test $n -lt 2000 && touch done$i && echo $((i*10))\n",
    );
    let envelope = home.tool(["flow.lobster"]).envelope();
    let results: Vec<&Value> =
        envelope["output"].as_array().unwrap().iter().map(|round| &round["work"]).collect();
    assert_eq!(results, [0, 10, 20, 30], "{envelope}");
    assert_eq!(home.lobster(["replay", "@"]).run().code(), 0);
}

#[test]
fn what_cannot_be_meant_is_told_with_its_place() {
    let home = Home::new();
    for (steps, told) in [
        (
            "[{id: a, repeat: {until: $b.json, max: 2}, steps: [{id: c, run: echo}]}]",
            "Unknown step reference: b.json",
        ),
        (
            "[{id: a, repeat: {until: $c.json}, steps: [{id: c, run: echo}]}]",
            "after how many rounds it gives up",
        ),
        ("[{id: a, repeat: {unti: x, max: 2}, steps: [{id: c, run: echo}]}]", "did you mean `until`?"),
        (
            "[{id: a, repeat: {until: $c.json, max: 2, every: soon}, steps: [{id: c, run: echo}]}]",
            "is not a duration",
        ),
        ("[{id: a, repeat: {until: $c.json, max: 2}}]", "repeat requires a non-empty steps array"),
        ("[{id: a, run: echo}, {id: b, switch: $a, cases: {x: []}}]", "write `$a.json`"),
        ("[{id: a, run: echo}, {id: b, switch: $a.json}]", "switch requires cases"),
        (
            "[{id: a, run: echo}, {id: b, switch: $a.json, cases: {x: {id: c}}}]",
            "case x must be a list of steps",
        ),
        (
            "[{id: a, run: echo}, {id: b, switch: $a.json, cases: {x: [{id: a, run: echo}]}}]",
            "Duplicate workflow step id: a",
        ),
        ("[{id: a, run: echo, needs: [c]}, {id: cc, run: echo}]", "needs c, and the file has no such step"),
        ("[{id: a, run: echo, needs: bulid}, {id: build, run: echo}]", "did you mean `build`?"),
        ("[{id: a, run: echo, needs: [a]}]", "Workflow step a needs itself"),
        (
            "[{id: a, run: echo, needs: [c]}, {id: b, stdin: $a.json, run: cat}, {id: c, run: 'echo $b.stdout'}]",
            "Workflow steps wait for each other: a needs c needs b needs a",
        ),
        (
            "[{id: a, parallel: {branches: [{id: b, run: echo, needs: []}]}}]",
            "only the steps of the file itself have it",
        ),
        ("[{id: a, run: echo, dependsOn: [b]}, {id: b, run: echo}]", "did you mean `needs`?"),
        (
            "[{id: a, run: echo}, {id: b, for_each: $a.json, concurrency: 0, steps: [{id: c, run: echo}]}]",
            "between 1 and 256",
        ),
        (
            "[{id: a, run: echo}, {id: b, for_each: $a.json, concurrency: 2, pause_ms: 5, steps: [{id: c, run: echo}]}]",
            "pause_ms has no meaning",
        ),
    ] {
        home.write("flow.lobster", format!("steps: {steps}\n"));
        let checked = home.lobster(["check", "flow.lobster"]).run();
        let said = format!("{}{}", checked.stdout, checked.stderr);
        assert!(said.contains(told) && said.contains("flow.lobster:1"), "{steps}: {said}");
    }
    home.write("flow.lobster", "concurrency: 3\nsteps: [{id: a, run: echo}]\n");
    let checked = home.lobster(["check", "flow.lobster"]).run();
    assert!(format!("{checked:?}").contains("no step has `needs`"), "{checked:?}");
}
