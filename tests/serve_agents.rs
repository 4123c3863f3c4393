//! Agents of the service: `/mcp` under its guard, its roles and its workers.

use serde_json::{Value, json};

use crate::home::{Home, wait_until};
use crate::served::{Reply, Served, agent, register, token};

/// One agent with its session.
pub(crate) struct Client<'s> {
    served: &'s Served,
    pub(crate) token: String,
    session: String,
}

fn post(served: &Served, token: &str, session: Option<&str>, message: &Value) -> Reply {
    let bearer = format!("Bearer {token}");
    let mut headers = vec![
        ("Authorization", bearer.as_str()),
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
    ];
    headers.extend(session.map(|session| ("Mcp-Session-Id", session)));
    served.send("POST", "/mcp", &headers, message.to_string().as_bytes())
}

/// The message with this id among the events of an answer.
fn message(reply: &Reply, id: u64) -> Value {
    assert_eq!(reply.status, 200, "{reply:?}");
    let lines = reply.body.lines().filter_map(|line| line.strip_prefix("data:"));
    let mut messages = lines.filter_map(|line| serde_json::from_str::<Value>(line.trim()).ok());
    messages.find(|message| message["id"] == id).unwrap_or_else(|| panic!("no message {id}: {reply:?}"))
}

impl<'s> Client<'s> {
    pub(crate) fn new(served: &'s Served, token: &str) -> Self {
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": { "elicitation": {} },
            "clientInfo": { "name": "coder", "version": "1" } } });
        let reply = post(served, token, None, &hello);
        assert_eq!(reply.status, 200, "{reply:?}");
        let id = reply.head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("mcp-session-id").then(|| value.trim().to_owned())
        });
        let client = Self { served, token: token.to_owned(), session: id.unwrap() };
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(post(served, token, Some(&client.session), &ready).status, 202);
        client
    }

    fn ask(&self, method: &str, params: Value) -> Value {
        let asked = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        message(&post(self.served, &self.token, Some(&self.session), &asked), 7)
    }

    fn tools(&self) -> Vec<String> {
        let listed = self.ask("tools/list", json!({}));
        let tools = listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed}"));
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    fn call(&self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// What it is told while a tool works.
    pub(crate) fn told(&self, tool: &str, arguments: Value) -> Vec<String> {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": 1 } });
        let asked = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
        let reply = post(self.served, &self.token, Some(&self.session), &asked);
        let lines = reply.body.lines().filter_map(|line| line.strip_prefix("data:"));
        let messages = lines.filter_map(|line| serde_json::from_str::<Value>(line.trim()).ok());
        messages.filter_map(|message| Some(message["params"]["message"].as_str()?.to_owned())).collect()
    }

    /// What a tool answered.
    fn called(&self, tool: &str, arguments: Value) -> Value {
        let answer = self.call(tool, arguments);
        let value = &answer["result"]["structuredContent"];
        assert!(value.is_object(), "{answer}");
        value.clone()
    }
}

fn world() -> (Home, Served) {
    let home = Home::new();
    home.write(
        "greet.lobster",
        "description: Greets.\nargs: {who: {type: string, required: true}}\n\
         steps: [{id: a, run: 'echo hello \"$LOBSTER_ARG_WHO\"'}]\n",
    );
    home.write(
        "ask.lobster",
        "steps:\n  - {id: ask, approval: 'Go on?'}\n  - {id: a, run: 'echo done >> said'}\n",
    );
    home.write("fails.lobster", "steps: [{id: a, run: 'exit 3'}]\n");
    register(&home, &["greet.lobster", "ask.lobster", "fails.lobster"]);
    let served = Served::start(&home, &[]);
    (home, served)
}

#[test]
fn an_agent_starts_registered_workflows_and_sees_how_they_ended() {
    let (home, served) = world();
    let client = Client::new(&served, &agent(&home, "operator", None));
    assert_eq!(client.tools(), ["ask", "cancel", "fails", "greet", "runs", "show"]);
    let greeted = client.called("greet", json!({ "who": "ann" }));
    assert_eq!((&greeted["ok"], &greeted["status"]), (&json!(true), &json!("ok")), "{greeted}");
    assert!(greeted["output"].to_string().contains("hello ann"), "{greeted}");
    let failed = client.called("fails", json!({}));
    assert_eq!(
        (&failed["ok"], &failed["error"]["type"]),
        (&json!(false), &json!("runtime_error")),
        "{failed}"
    );
    assert!(failed["error"]["message"].as_str().unwrap().contains('3'), "{failed}");
    let wrong = client.called("greet", json!({ "whom": "ann" }));
    assert_eq!(wrong["ok"], false, "{wrong}");

    // The run is the service's own: who started it, and how, stands in its history.
    let viewer = token(&home, "admin", None);
    let run = served.get(&viewer, &format!("/api/v1/runs/{}", greeted["runId"].as_str().unwrap())).good();
    assert_eq!((&run["cause"], &run["actor"]), (&json!("mcp"), &json!("coder")), "{run}");
    let trail = served.get(&viewer, "/api/v1/trail").good().to_string();
    assert!(trail.contains("agent-") && trail.contains("\"start\""), "{trail}");
    let shown = client.called("show", json!({ "run": greeted["runId"] }));
    assert_eq!(shown["status"], "ok", "{shown}");
    let runs = client.called("runs", json!({ "status": "ok" }));
    assert_eq!(runs["runs"][0]["runId"], greeted["runId"], "{runs}");

    // A version that nobody has registered does not run.
    home.write("greet.lobster", "steps: [{id: a, run: 'echo other >> said'}]\n");
    let changed = client.called("greet", json!({ "who": "ann" }));
    assert_eq!(changed["ok"], false, "{changed}");
    register(&home, &["greet.lobster"]);
    let stale = client.called("greet", json!({ "who": "ann" }));
    assert_eq!(stale["error"]["type"], "tool_changed", "{stale}");
    assert_eq!(home.read("said"), "");
}

#[test]
fn an_agent_never_answers_whatever_it_asks_for() {
    let (home, served) = world();
    let secret = agent(&home, "operator", None);
    let client = Client::new(&served, &secret);
    let asked = client.called("ask", json!({}));
    assert_eq!(asked["status"], "needs_approval", "{asked}");
    assert!(asked["requiresApproval"]["resumeToken"].is_null(), "{asked}");
    let viewer = token(&home, "viewer", None);
    let gate = served.get(&viewer, "/api/v1/approvals").good()["gates"][0].clone();
    let (id, digest) = (gate["id"].as_str().unwrap(), gate["digest"].as_str().unwrap());
    for tool in ["resume", "run", "answer", "approvals", "approve"] {
        let refused = client.call(tool, json!({ "approvalId": id, "approve": true, "digest": digest }));
        assert!(refused["error"].is_object(), "{tool}: {refused}");
    }
    let yes = json!({ "decision": "approve", "digest": digest });
    let refused = served.post(&secret, &format!("/api/v1/approvals/{id}/answer"), &yes);
    assert_eq!((refused.status, refused.problem().as_str()), (403, "role"));
    let made = served.post(&secret, "/api/v1/tokens", &json!({ "name": "x", "role": "admin", "days": 1 }));
    assert_eq!(made.status, 403, "{made:?}");
    assert_eq!(home.read("said"), "");

    // A person answers, and the agent sees how it went on.
    let approver = token(&home, "approver", None);
    served.post(&approver, &format!("/api/v1/approvals/{id}/answer"), &yes).good();
    wait_until("it went on", || client.called("show", json!({ "run": asked["runId"] }))["status"] == "ok");
    assert_eq!(home.read("said"), "done\n");
}

#[test]
fn a_scope_a_role_and_a_session_are_an_agents_own() {
    let (home, served) = world();
    let scoped = Client::new(&served, &agent(&home, "operator", Some("greet")));
    assert_eq!(scoped.tools(), ["cancel", "greet", "runs", "show"]);
    assert!(scoped.call("ask", json!({}))["error"].is_object());
    let reader = Client::new(&served, &agent(&home, "viewer", None));
    assert_eq!(reader.tools(), ["runs", "show"]);
    assert!(reader.call("greet", json!({ "who": "x" }))["error"].is_object());

    let all = Client::new(&served, &agent(&home, "operator", None));
    let asked = all.called("ask", json!({}));
    let (run, list) = (json!({ "run": asked["runId"] }), |client: &Client<'_>| {
        client.called("runs", json!({}))["runs"].as_array().unwrap().len()
    });
    assert_eq!((list(&all), list(&reader), list(&scoped)), (1, 1, 0));
    for (tool, arguments) in [("show", &run), ("cancel", &run)] {
        let refused = scoped.called(tool, arguments.clone());
        assert!(refused["error"]["message"].as_str().unwrap().contains("no run"), "{refused}");
    }
    // The session of another is none.
    let foreign = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {} });
    assert_eq!(post(&served, &scoped.token, Some(&all.session), &foreign).status, 404);
    // A cancelled run is over for everybody.
    assert_eq!(all.called("cancel", run.clone())["ok"], true);
    wait_until("it is cancelled", || all.called("show", run.clone())["status"] == "cancelled");

    // A token that counts no more ends what it opened.
    let admin = token(&home, "admin", None);
    let tokens = served.get(&admin, "/api/v1/tokens").good();
    let mine = tokens["tokens"].as_array().unwrap().iter().find(|one| one["workflows"] == json!(["greet"]));
    let id = mine.unwrap()["id"].as_str().unwrap().to_owned();
    let bearer = format!("Bearer {admin}");
    let gone = served.send("DELETE", &format!("/api/v1/tokens/{id}"), &[("Authorization", &bearer)], b"");
    assert_eq!(gone.status, 200, "{gone:?}");
    assert_eq!(post(&served, &scoped.token, Some(&scoped.session), &foreign).status, 401);
    // Agents cannot be more than operators.
    let refused = home.lobster(["serve", "token", "new", "--name", "x", "--role", "admin", "--agent"]).run();
    assert!(refused.code() == 2 && refused.stderr.contains("an agent cannot be admin"), "{refused:?}");
}

#[test]
fn a_run_outlives_the_agents_session_and_the_server() {
    let (home, mut served) = world();
    home.write(
        "long.lobster",
        "steps: [{id: a, run: 'while ! test -e go; do sleep 0.05; done; echo done >> said'}]\n",
    );
    register(&home, &["long.lobster"]);
    let secret = agent(&home, "operator", None);
    let run = {
        let client = Client::new(&served, &secret);
        assert!(client.tools().contains(&"long".to_owned()));
        // The call is left alone: the connection goes, the session is deleted, the server is ended.
        let call = json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": { "name": "long", "arguments": {} } });
        let body = call.to_string();
        let mut stream = std::net::TcpStream::connect(&served.address).unwrap();
        std::io::Write::write_all(
            &mut stream,
            format!(
                "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {secret}\r\nMcp-Session-Id: {}\r\n\
                 Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                served.address,
                client.session,
                body.len()
            )
            .as_bytes(),
        )
        .unwrap();
        let mut run = String::new();
        wait_until("it has begun", || {
            let runs = client.called("runs", json!({}));
            run = runs["runs"][0]["runId"].as_str().unwrap_or_default().to_owned();
            runs["runs"][0]["status"] == "running"
        });
        drop(stream);
        let bearer = format!("Bearer {secret}");
        let headers = [("Authorization", bearer.as_str()), ("Mcp-Session-Id", client.session.as_str())];
        let ended = served.send("DELETE", "/mcp", &headers, b"");
        assert!((200..300).contains(&ended.status), "{ended:?}");
        run
    };
    let again = Client::new(&served, &secret);
    assert_eq!(again.called("show", json!({ "run": run }))["status"], "running");
    drop(again);
    served.signal(rustix::process::Signal::TERM);
    home.write("go", "");
    let _ = served.child.wait();
    served = Served::start(&home, &[]);
    let later = Client::new(&served, &secret);
    wait_until("it ended well", || later.called("show", json!({ "run": run }))["status"] == "ok");
    assert_eq!(home.read("said"), "done\n");
}
