//! What `show`, `logs`, `runs` and `audit` say of runs that did not go straight
//! through, of stores that lack something, and of texts that others chose.

use std::path::PathBuf;

use serde_json::Value;

use crate::home::{Answer, Home, wait};

fn json(answer: &Answer) -> Value {
    serde_json::from_str(&answer.stdout).unwrap_or_else(|error| panic!("{error}: {answer:#?}"))
}

fn newest(home: &Home) -> String {
    json(&home.lobster(["runs", "--json"]).run())[0]["id"].as_str().unwrap().to_owned()
}

/// The rows of `lobster show`, each as its indentation and its words up to the state.
fn rows(home: &Home, run: &str) -> Vec<String> {
    let shown = home.lobster(["show", run]).run().stdout;
    let table = shown.lines().skip_while(|line| !line.starts_with("STEP ")).skip(1);
    let columns = |line: &str| {
        let indent = line.len() - line.trim_start().len();
        let cells: Vec<&str> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        format!("{}{}", " ".repeat(indent), cells[..cells.len().min(3)].join(" "))
    };
    table.map(columns).collect()
}

#[test]
fn a_step_that_succeeded_in_the_end_is_shown_so() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        r#"{"name": "comp", "steps": [
            {"id": "list", "run": "echo '[1,2]'"},
            {"id": "loop", "for_each": "$list.json", "steps": [
                {"id": "a", "run": "test -e ok"}, {"id": "b", "js": "1"}]},
            {"id": "both", "parallel": {"branches": [
                {"id": "x", "pipeline": "exec --shell 'sleep 0.3; echo 1' | json"},
                {"id": "y", "pipeline": "exec --shell 'echo 2' | json"}]}},
            {"id": "slow", "run": "test -e fast || { touch begun; sleep 60; }"}]}"#,
    );
    home.tool(["flow.lobster"]).error();
    let run = newest(&home);
    assert_eq!(rows(&home, &run), ["list native ok", "loop for_each failed", "  loop[0]/a native failed"]);

    home.write("ok", "");
    let mut killed = home.lobster(["resume", &run]).start();
    while !home.dir().join("begun").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    killed.kill().unwrap();
    wait(&mut killed, &"resume");
    assert_eq!(rows(&home, &run).last().unwrap(), "slow native interrupted");

    home.write("fast", "").lobster(["resume", &run, "--retry-interrupted"]).run().output();
    let rows = rows(&home, &run);
    let (loops, rest) = rows.split_at(6);
    assert_eq!(
        loops,
        [
            "list native ok",
            "loop for_each ok (failed before)",
            "  loop[0]/a native ok (failed before)",
            "  loop[0]/b component ok",
            "  loop[1]/a native ok",
            "  loop[1]/b component cached",
        ]
    );
    // The branches began in some order.
    let mut branches = rest[1..5].chunks(2).collect::<Vec<_>>();
    branches.sort_unstable();
    let branch = |id| [format!("  both/{id} pipeline ok"), format!("    both/{id}|0.0 native ok")];
    assert_eq!(branches, [branch("x"), branch("y")]);
    assert_eq!([&rest[0], &rest[5]], ["both parallel ok", "slow native ok (interrupted before)"]);
    let shown = home.lobster(["show", &run]).run().stdout;
    assert!(shown.contains("  resumed  2 times, last 20"), "{shown}");
}

#[test]
fn a_run_is_found_by_any_beginning_of_what_the_list_shows() {
    let home = Home::new();
    home.tool(["exec true"]).output();
    home.tool(["exec true"]).output();
    let (run, listed) = (newest(&home), home.lobster(["runs"]).run().stdout);
    let short = listed.lines().nth(1).unwrap().split(' ').next().unwrap();
    for piece in [short, &short[..7], &short[..4], &short[4..], &run, &run.to_uppercase()] {
        let shown = home.lobster(["show", piece]).run();
        assert!(shown.stdout.contains(&run), "{piece}: {shown:?}");
    }
    let both = home.lobster(["show", &run[..4]]).run();
    assert!(both.code() == 2 && both.stderr.contains("could be any of"), "{both:?}");
    assert!(both.stderr.contains(&run), "{both:?}");
    assert_eq!(home.lobster(["show", &short[..3]]).run().code(), 2);
}
