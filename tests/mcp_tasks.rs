//! Calls that outlast a client's patience (MCP Tasks): a handle at once, a status at any time, an answer
//! to what is asked, an end when it is wanted, and all of it also from a server that was started anew.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::home::Home;

const VERSION: &str = "2026-07-28";

/// A client of the newest protocol: it says with each request who it is and what it can do.
struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    next: u64,
    name: &'static str,
    capabilities: Value,
}

impl Client {
    fn start(home: &Home, name: &'static str) -> Self {
        let words = ["mcp", "--workflows", "flows", "--profile", "open"];
        let mut child = home.lobster(words).start_piped();
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let capabilities =
            json!({ "elicitation": { "form": {} }, "extensions": { "io.modelcontextprotocol/tasks": {} } });
        Self { child, stdin, lines, next: 0, name, capabilities }
    }

    fn begin(&mut self, method: &str, mut params: Value) -> u64 {
        self.next += 1;
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": { "name": self.name, "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
        });
        let message = json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
        self.next
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        let lines = self.lines.by_ref().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        lines.into_iter().find(|message| message["id"] == json!(id)).expect("an answer")
    }

    fn run(&mut self, pipeline: &str) -> Value {
        self.call("run", json!({ "pipeline": pipeline }))
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({ "name": tool, "arguments": arguments }))["result"].clone()
    }

    fn get(&mut self, task: &Value) -> Value {
        self.request("tasks/get", json!({ "taskId": task["taskId"] }))["result"].clone()
    }

    /// Asks until the task is in this state.
    fn wait_for(&mut self, task: &Value, status: &str) -> Value {
        let begun = Instant::now();
        loop {
            let now = self.get(task);
            if now["status"] == status {
                return now;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "not {status}: {now}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn home() -> Home {
    let home = Home::new();
    home.write("flows/ask.lobster", "name: ask\nsteps:\n  - {id: slow, run: sleep 1.5}\n  - {id: ok, approval: really?}\n  - {id: after, run: 'echo done | tee after'}\n");
    home
}

fn is_task(result: &Value) -> bool {
    result["resultType"] == "task" && result["taskId"].is_string() && result["status"] == "working"
}

#[test]
fn what_is_quick_is_answered_and_what_is_slow_has_a_handle() {
    let home = home();
    let mut client = Client::start(&home, "one");
    // On a machine that is busy with other things one may take too long to be answered at once.
    let mut quick = client.run("exec --shell 'echo quick'");
    for _ in 0..20 {
        if !is_task(&quick) {
            break;
        }
        quick = client.run("exec --shell 'echo quick'");
    }
    assert_eq!(quick["structuredContent"]["output"], json!(["quick"]), "{quick}");
    let begun = Instant::now();
    let slow = client.run("exec --shell 'sleep 12; echo slow'");
    assert!(is_task(&slow) && begun.elapsed() < Duration::from_secs(10), "{slow}");
    assert_eq!(client.get(&slow)["status"], "working");
    let done = client.wait_for(&slow, "completed");
    assert_eq!(done["result"]["structuredContent"]["output"], json!(["slow"]), "{done}");

    let failed = client.run("exec --shell 'sleep 1.5; exit 3'");
    let failed = client.wait_for(&failed, "completed");
    assert_eq!(failed["result"]["isError"], true, "{failed}");

    // Another client's handle, and none at all.
    let mut other = Client::start(&home, "two");
    for id in [slow["taskId"].clone(), json!("nothing")] {
        for method in ["tasks/get", "tasks/cancel"] {
            let refused = other.request(method, json!({ "taskId": id }));
            assert!(refused["error"]["message"].as_str().unwrap().contains("no task"), "{refused}");
        }
    }
    // Who does not know tasks waits, as before.
    client.capabilities = json!({});
    let waited = client.run("exec --shell 'sleep 1.5; echo waited'");
    assert_eq!(waited["structuredContent"]["output"], json!(["waited"]), "{waited}");
    let refused = client.request("tasks/get", json!({ "taskId": slow["taskId"] }));
    assert!(refused["error"].is_object(), "{refused}");
}

#[test]
fn a_task_that_is_called_off_ends_with_all_that_it_started() {
    let home = home();
    let mut client = Client::start(&home, "one");
    let task = client.run("exec --shell 'while :; do echo x >> ticks; sleep 0.05; done'");
    assert!(is_task(&task), "{task}");
    let ended = client.request("tasks/cancel", json!({ "taskId": task["taskId"] }));
    assert!(ended["error"].is_null(), "{ended}");
    client.wait_for(&task, "cancelled");
    let ticks = home.read("ticks").len();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(home.read("ticks").len(), ticks, "something goes on");
}

#[test]
fn a_question_is_answered_within_the_task() {
    let home = home();
    let mut client = Client::start(&home, "one");
    client.request("tools/list", json!({}));
    let task = client.call("ask", json!({}));
    assert!(is_task(&task), "{task}");
    let asks = client.wait_for(&task, "input_required");
    let question = &asks["inputRequests"]["question"]["params"];
    assert!(question["message"].as_str().unwrap().contains("really?"), "{asks}");
    assert!(home.read("after").is_empty());
    let yes = json!({ "question": { "action": "accept", "content": { "approve": true } } });
    let told = client.request("tasks/update", json!({ "taskId": task["taskId"], "inputResponses": yes }));
    assert!(told["error"].is_null(), "{told}");
    let done = client.wait_for(&task, "completed");
    assert_eq!(done["result"]["structuredContent"]["status"], "ok", "{done}");
    assert_eq!(home.read("after"), "done\n");
    let again = client.request("tasks/update", json!({ "taskId": task["taskId"], "inputResponses": yes }));
    assert!(again["error"]["message"].as_str().unwrap().contains("asks nothing"), "{again}");

    // One that waits is called off, too.
    let task = client.call("ask", json!({}));
    client.wait_for(&task, "input_required");
    client.request("tasks/cancel", json!({ "taskId": task["taskId"] }));
    client.wait_for(&task, "cancelled");
    assert!(!home.lobster(["approvals"]).run().stdout.contains("really?"), "the gate is open");
}

#[test]
fn a_server_that_was_started_anew_knows_what_became_of_its_tasks() {
    let home = home();
    let mut client = Client::start(&home, "one");
    client.request("tools/list", json!({}));
    let done = client.run("exec --shell 'sleep 1.5; echo kept'");
    client.wait_for(&done, "completed");
    let asks = client.call("ask", json!({}));
    client.wait_for(&asks, "input_required");
    let killed = client.run("exec --shell 'sleep 60'");
    assert!(is_task(&killed), "{killed}");
    client.child.kill().unwrap();
    client.child.wait().unwrap();

    let mut client = Client::start(&home, "one");
    let known = client.get(&done);
    assert_eq!(known["result"]["structuredContent"]["output"], json!(["kept"]), "{known}");
    let waits = client.get(&asks);
    assert_eq!(waits["result"]["structuredContent"]["status"], "needs_approval", "{waits}");
    assert!(waits.to_string().contains("really?") && !waits.to_string().contains("resumeToken"), "{waits}");
    let lost = client.wait_for(&killed, "completed");
    assert!(lost["result"]["isError"] == true && lost.to_string().contains("lobster resume"), "{lost}");
    let mut other = Client::start(&home, "two");
    let refused = other.request("tasks/get", json!({ "taskId": done["taskId"] }));
    assert!(refused["error"]["message"].as_str().unwrap().contains("no task"), "{refused}");
}

#[test]
fn what_goes_on_after_an_answer_has_a_handle_too() {
    let home = home();
    home.write(
        "flows/then.lobster",
        "steps:\n  - {id: ok, approval: really?}\n  - {id: after, run: 'sleep 12; echo done | tee after'}\n",
    );
    let mut client = Client::start(&home, "one");
    client.request("tools/list", json!({}));
    let asked = client.call("then", json!({}));
    // On a busy machine the question itself may come too late to be an answer.
    let (task, state) = match is_task(&asked) {
        true => (asked, None),
        false => (json!(null), Some(asked["requestState"].clone())),
    };
    let yes = json!({ "question": { "action": "accept", "content": { "approve": true } } });
    let task = match state {
        Some(state) => {
            let call =
                json!({ "name": "then", "arguments": {}, "requestState": state, "inputResponses": yes });
            let begun = Instant::now();
            let task = client.request("tools/call", call)["result"].clone();
            assert!(is_task(&task) && begun.elapsed() < Duration::from_secs(10), "{task}");
            task
        }
        None => {
            client.wait_for(&task, "input_required");
            client.request("tasks/update", json!({ "taskId": task["taskId"], "inputResponses": yes }));
            task
        }
    };
    let done = client.wait_for(&task, "completed");
    assert_eq!(done["result"]["structuredContent"]["status"], "ok", "{done}");
    // The record has the handle, so a later server finds the run by it.
    client.child.kill().unwrap();
    client.child.wait().unwrap();
    let known = Client::start(&home, "one").get(&task);
    assert_eq!(known["result"]["structuredContent"]["status"], "ok", "{known}");
}

#[test]
fn an_answer_that_is_none_leaves_the_question_open() {
    let home = home();
    home.write("flows/then.lobster", "steps: [{id: ok, approval: really?}]\n");
    let mut client = Client::start(&home, "one");
    client.capabilities = json!({ "elicitation": { "form": {} } });
    client.request("tools/list", json!({}));
    let asked = client.call("then", json!({}));
    let mut answer = |given: Value| {
        let call = json!({ "name": "then", "arguments": {}, "requestState": asked["requestState"],
            "inputResponses": { "question": given } });
        client.request("tools/call", call)["result"]["structuredContent"].clone()
    };
    for given in [
        json!({ "action": "decline" }),
        json!({ "action": "cancel" }),
        json!({ "action": "accept", "content": {} }),
        json!({ "action": "accept", "content": { "approve": "true" } }),
        json!("nonsense"),
    ] {
        let open = answer(given.clone());
        assert_eq!(open["status"], "needs_approval", "{given}: {open}");
        assert!(open["note"].as_str().is_some_and(|note| note.contains("stays open")), "{given}: {open}");
        assert!(!open.to_string().contains("resumeToken"), "{open}");
    }
    let no = answer(json!({ "action": "accept", "content": { "approve": false } }));
    assert_eq!(no["status"], "cancelled", "{no}");
    let audit = home.lobster(["audit", "--kind", "approval", "--jsonl"]).run().stdout;
    let last: Value = serde_json::from_str(audit.lines().last().unwrap()).unwrap();
    assert_eq!((&last["what"], &last["actor"]), (&json!("rejected"), &json!("mcp:one")), "{audit}");
}
