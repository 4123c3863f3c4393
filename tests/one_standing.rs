//! A run stands in one way for whoever asks: each way in which one can stand is the same word at the command line,
//! in the console, over HTTP and over MCP, in lists, in what is told of the run, and as what a list is asked for.

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::home::{Home, newest, wait, wait_until};
use crate::mcp_server::Client;
use crate::served::{Served, register, token};

/// All words there are; a list that is asked for one names only runs that stand so.
const WORDS: [&str; 7] = ["running", "waiting", "interrupted", "cancelling", "ok", "failed", "cancelled"];

const HELD: &str = "touch begun; while ! test -e go; do sleep 0.05; done";

/// Brings a run about, gives its id and how it stands.
type Way = fn(&Home, &Served, &str) -> (String, &'static str);

const WAYS: [(&str, Way); 10] = [
    ("ends well", |home, _, _| (tool(home, "run: 'true'"), "ok")),
    ("fails", |home, _, _| (tool(home, "run: 'false'"), "failed")),
    ("waits", |home, _, _| (tool(home, "approval: Go?"), "waiting")),
    ("is called off", |home, _, _| {
        let run = tool(home, "approval: Go?");
        home.lobster(["resume", &run, "--cancel"]).run();
        (run, "cancelled")
    }),
    ("is at work", |home, served, operator| (of_service(home, served, operator, "held"), "running")),
    ("is killed", |home, _, _| (killed(home), "interrupted")),
    ("is killed and asks", |home, _, _| {
        let run = killed(home);
        assert!(home.lobster(["resume", &run]).run().error().contains("--retry-interrupted"));
        (run, "interrupted")
    }),
    ("has a question that expired", |home, _, _| {
        let run = tool(home, "approval: Go?");
        let gates: Value = serde_json::from_str(&home.lobster(["approvals", "--json"]).run().stdout).unwrap();
        let gates = gates.as_array().unwrap();
        let gate = gates.iter().find(|gate| gate["run"] == run.as_str()).unwrap();
        home.lobster(["approvals", "expire", gate["id"].as_str().unwrap()]).run();
        (run, "interrupted")
    }),
    ("waits at the service", |home, served, operator| {
        let run = of_service(home, served, operator, "asks");
        served.run_with(operator, &run, |status| status == "waiting");
        (run, "waiting")
    }),
    ("is being ended", |home, served, operator| {
        let run = of_service(home, served, operator, "held");
        // It hears of nothing, until the server has had enough.
        let claim = home.state().join(format!("store/locks/run-{run}"));
        let holder = std::fs::read_to_string(claim).unwrap();
        let pid = holder.split(' ').next().and_then(|pid| pid.parse().ok());
        let pid = pid.and_then(rustix::process::Pid::from_raw).expect("the claim names a process");
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        served.post(operator, &format!("/api/v1/runs/{run}/cancel"), &Value::Null);
        (run, "cancelling")
    }),
];

/// Runs a workflow of one step.
fn tool(home: &Home, step: &str) -> String {
    home.write("flow.lobster", format!("steps: [{{ id: a, {step} }}]"));
    home.tool(["flow.lobster"]);
    newest(home)
}

/// A run whose process was killed in the middle of an effect.
fn killed(home: &Home) -> String {
    home.write("flow.lobster", "steps: [{ id: a, run: 'touch half; sleep 30' }]");
    let mut child = home.lobster(["run", "--mode", "tool", "flow.lobster"]).start();
    wait_until("the step began", || home.dir().join("half").exists());
    child.kill().unwrap();
    wait(&mut child, &"lobster");
    std::fs::remove_file(home.dir().join("half")).unwrap();
    newest(home)
}

/// A run that the service has started; of one that is held, when it has begun.
fn of_service(home: &Home, served: &Served, operator: &str, workflow: &str) -> String {
    let path = format!("/api/v1/workflows/{workflow}/runs");
    let started = served.post(operator, &path, &json!({})).good();
    if workflow == "held" {
        wait_until("it works", || home.dir().join("begun").exists());
        std::fs::remove_file(home.dir().join("begun")).unwrap();
    }
    started["run"].as_str().unwrap().to_owned()
}

/// The word for a run in a list of objects.
fn word_in(list: &Value, name: &str, run: &str) -> Option<String> {
    let found = list.as_array().into_iter().flatten().find(|row| row[name] == run);
    found.map(|row| row["status"].as_str().unwrap().to_owned())
}

#[test]
fn a_run_stands_alike_on_every_screen() {
    let home = Home::new();
    home.write("held.lobster", format!("steps:\n  - {{id: a, run: '{HELD}'}}\n"));
    home.write("asks.lobster", "steps:\n  - {id: a, approval: 'Go on?'}\n");
    register(&home, &["held.lobster", "asks.lobster"]);
    let served = Served::start(&home, &[]);
    let operator = token(&home, "operator", None);
    let browser = Browser::log_in(&home, &served, "admin");
    let mut client = Client::ready(&home, &["--all-runs"], None);
    let list = |words: &[&str]| -> Value {
        let listed = home.lobster(["runs", "--json", "--limit", "0"].iter().chain(words)).run();
        serde_json::from_str(&listed.stdout).unwrap()
    };
    for (name, way) in WAYS {
        let (run, expected) = way(&home, &served, &operator);
        let mut screens: Vec<(&str, Option<String>)> = vec![
            ("runs", word_in(&list(&[]), "id", &run)),
            ("runs --status", word_in(&list(&["--status", expected]), "id", &run)),
        ];
        let shown = home.lobster(["show", &run]).run().stdout;
        let head = shown.lines().next().unwrap_or_default();
        screens.push(("show", head.split_whitespace().last().map(str::to_owned)));
        let told = served.get(&operator, &format!("/api/v1/runs/{run}")).good();
        screens.push(("API", told["status"].as_str().map(str::to_owned)));
        for query in ["", &format!("?status={expected}")] {
            let rows = served.get(&operator, &format!("/api/v1/runs{query}")).good();
            screens.push(("API, list", word_in(&rows["runs"], "id", &run)));
        }
        let page = browser.get(&format!("/runs/{run}"));
        let title = page.good_text().split("</title>").next().unwrap_or_default();
        let title = title.split(" · ").nth(1).and_then(|rest| rest.split(' ').next());
        screens.push(("console", title.map(str::to_owned)));
        let rows = browser.get(&format!("/runs?status={expected}"));
        screens.push(("console, list", rows.good_text().contains(&run).then(|| expected.to_owned())));
        let told = client.call("show", json!({ "run": run }));
        screens.push(("MCP", told["status"].as_str().map(str::to_owned)));
        for filter in [json!({}), json!({ "status": expected })] {
            screens.push(("MCP, list", word_in(&client.call("runs", filter)["runs"], "runId", &run)));
        }
        for (screen, word) in &screens {
            assert_eq!(word.as_deref(), Some(expected), "a run that {name}: {screen}, of {screens:?}");
        }
        // And in no other list.
        for other in WORDS.into_iter().filter(|other| *other != expected) {
            assert_eq!(word_in(&list(&["--status", other]), "id", &run), None, "{name}: {other}");
            let rows = served.get(&operator, &format!("/api/v1/runs?status={other}")).good();
            assert_eq!(word_in(&rows["runs"], "id", &run), None, "{name}: {other}");
        }
    }
    home.write("go", "");
}
