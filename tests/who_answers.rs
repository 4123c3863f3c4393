//! Whose answers count (G9): however a run was started, and whatever gives the answer, the table below says whether
//! it is taken, and the audit names somebody for each that was.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::binary;
use crate::home::{Call, Home};
use crate::mcp_server;
use crate::pty::Terminal;
use crate::serve_agents;
use crate::served::{Served, agent, register, token};

/// How a run was started.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Origin {
    Shell,
    Mcp,
    /// `lobster mcp --approvals token`: the operator trusts what the agent reports.
    McpToken,
    AgentToken,
    InStep,
    ForkOfMcp,
}

const ORIGINS: [Origin; 6] =
    [Origin::Shell, Origin::Mcp, Origin::McpToken, Origin::AgentToken, Origin::InStep, Origin::ForkOfMcp];

/// How it is answered.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    AgentOverApi,
    McpDecline,
    McpCancel,
    McpGarbage,
    McpNoUser,
    MarkedShell,
    BareShell,
    MarkedTerminal,
    TerminalInStep,
    McpAccept,
    Terminal,
    ShellWithToken,
    ApproverOverApi,
    Session,
}

/// The refused ones first: they leave the question for the next.
const WAYS: [Way; 14] = [
    Way::AgentOverApi,
    Way::McpDecline,
    Way::McpCancel,
    Way::McpGarbage,
    Way::McpNoUser,
    Way::MarkedShell,
    Way::BareShell,
    Way::MarkedTerminal,
    Way::TerminalInStep,
    Way::McpAccept,
    Way::Terminal,
    Way::ShellWithToken,
    Way::ApproverOverApi,
    Way::Session,
];

/// The rule.
fn is_taken(origin: Origin, way: Way, by_person: bool) -> bool {
    let keeps_the_incumbents_contract = matches!(origin, Origin::Shell | Origin::McpToken);
    match way {
        Way::AgentOverApi | Way::McpDecline | Way::McpCancel | Way::McpGarbage | Way::McpNoUser => false,
        Way::MarkedShell => keeps_the_incumbents_contract && !by_person,
        Way::BareShell | Way::MarkedTerminal | Way::TerminalInStep => keeps_the_incumbents_contract,
        Way::McpAccept | Way::Terminal | Way::ShellWithToken | Way::ApproverOverApi | Way::Session => true,
    }
}

struct World {
    home: Home,
    served: Served,
    policy: Option<PathBuf>,
    approver: String,
    agent: String,
    session: String,
}

impl World {
    fn new(by_person: bool) -> Self {
        let home = Home::new();
        let file = "steps:\n  - {id: ask, approval: 'Go on?'}\n  - {id: after, js: '1 + 1'}\n";
        home.write("flows/ask.lobster", file);
        register(&home, &["flows/ask.lobster"]);
        home.write("p.toml", "version = 1\napprovals = { by = \"person\" }\n");
        let policy = by_person.then(|| home.dir().join("p.toml"));
        let (approver, agent) = (token(&home, "approver", None), agent(&home, "operator", None));
        let serve = home.lobster(["serve", "--listen", "127.0.0.1:0"]);
        let served = Served::started(match &policy {
            Some(policy) => serve.env("LOBSTER_POLICY", policy),
            None => serve,
        });
        let url = format!("http://{}", served.address);
        let link =
            home.lobster(["serve", "link", "--name", "ann", "--role", "approver", "--url", &url]).run();
        let secret = link.stdout.trim().split('#').nth(1).unwrap();
        let login = json!({ "link": secret }).to_string();
        let json_type = ("Content-Type", "application/json");
        let opened = served.send("POST", "/api/v1/login", &[json_type], login.as_bytes());
        let cookie = opened.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
        let session = cookie.split(';').next().unwrap().to_owned();
        Self { home, served, policy, approver, agent, session }
    }

    fn under_policy(&self, call: Call) -> Call {
        match &self.policy {
            Some(policy) => call.env("LOBSTER_POLICY", policy),
            None => call,
        }
    }

    fn lobster(&self, words: &[&str]) -> Call {
        self.under_policy(self.home.lobster(words))
    }

    fn mcp(&self, words: &[&str], user: Option<Value>) -> mcp_server::Client {
        let policy = self.policy.as_ref().map(|policy| policy.display().to_string());
        let mut all = vec!["--workflows", "flows", "--all-runs"];
        all.extend(words);
        match &policy {
            Some(policy) => all.extend(["--policy", policy]),
            None => all.extend(["--profile", "open"]),
        }
        mcp_server::Client::ready(&self.home, &all, user)
    }

    /// A run that waits; gives its question.
    fn start(&self, origin: Origin) -> Value {
        match origin {
            Origin::Shell => _ = self.lobster(&["run", "--mode", "tool", "flows/ask.lobster"]).run().token(),
            Origin::InStep => {
                let run = "018f3c2e-0000-7000-8000-000000000000";
                let start = self.lobster(&["run", "--mode", "tool", "flows/ask.lobster"]);
                start.env("LOBSTER_RUN_ID", run).run().token();
            }
            Origin::Mcp | Origin::ForkOfMcp => {
                let asked = self.mcp(&[], None).call("ask", json!({}));
                assert_eq!(asked["status"], "needs_approval", "{asked}");
                assert!(asked["requiresApproval"]["resumeToken"].is_null(), "{asked}");
                let text = asked.to_string();
                assert!(!text.contains("--approve") && !text.contains("approvals approve"), "{text}");
                if origin == Origin::ForkOfMcp {
                    let run = asked["runId"].as_str().unwrap();
                    self.lobster(&["resume", run, "--cancel", "--mode", "tool"]).run().envelope();
                    self.lobster(&["fork", run]).run().token();
                }
            }
            Origin::McpToken => _ = self.mcp(&["--approvals", "token"], None).call("ask", json!({})),
            Origin::AgentToken => {
                let client = serve_agents::Client::new(&self.served, &self.agent);
                client.told("ask", json!({}));
            }
        }
        let question = self.served.question(&self.approver);
        assert_eq!(question["status"], "open", "{question}");
        question
    }

    /// Gives an answer, whatever becomes of it. Gives what was said.
    fn answer(&self, question: &Value, way: Way) -> String {
        let id = question["id"].as_str().unwrap();
        let words = ["resume", "--id", id, "--approve", "yes", "--mode", "tool"];
        let at_terminal = || {
            let program = binary::lobster().display().to_string();
            let all = ["--ctty", "--wait", &program].into_iter().chain(words);
            self.under_policy(self.home.program("setsid", all))
        };
        let seen = |call: Call| Terminal::start(call, 200, 50).end().1.text();
        let accept = json!({ "action": "accept", "content": { "approve": true } });
        let over_mcp = |user: Option<Value>| {
            let mut client = self.mcp(&[], user);
            client.call("resume", json!({ "approvalId": id, "approve": true })).to_string()
        };
        let over_api = |headers: &[(&str, &str)]| {
            let body = json!({ "decision": "approve", "digest": question["digest"] }).to_string();
            let path = format!("/api/v1/approvals/{id}/answer");
            self.served.send("POST", &path, headers, body.as_bytes()).body
        };
        let json_type = ("Content-Type", "application/json");
        let bearer = |token: &str| format!("Bearer {token}");
        match way {
            Way::AgentOverApi => over_api(&[("Authorization", &bearer(&self.agent)), json_type]),
            Way::ApproverOverApi => over_api(&[("Authorization", &bearer(&self.approver)), json_type]),
            Way::Session => {
                over_api(&[("Cookie", &self.session), ("Sec-Fetch-Site", "same-origin"), json_type])
            }
            Way::McpAccept => over_mcp(Some(accept)),
            Way::McpDecline => over_mcp(Some(json!({ "action": "decline" }))),
            Way::McpCancel => over_mcp(Some(json!({ "action": "cancel" }))),
            Way::McpGarbage => over_mcp(Some(json!({ "action": "accept", "content": { "approve": "yes" } }))),
            Way::McpNoUser => over_mcp(None),
            Way::BareShell => self.lobster(&words).run().stdout,
            Way::MarkedShell => self.lobster(&words).env("CLAUDECODE", "1").run().stdout,
            Way::ShellWithToken => {
                self.lobster(&words).env("LOBSTER_APPROVAL_TOKEN", &self.approver).run().stdout
            }
            Way::Terminal => seen(at_terminal()),
            Way::MarkedTerminal => seen(at_terminal().env("GEMINI_CLI", "1")),
            Way::TerminalInStep => seen(at_terminal().env("LOBSTER_RUN_ID", "018f3c2e-0000")),
        }
    }

    fn is_open(&self, question: &Value) -> bool {
        let id = question["id"].as_str().unwrap();
        let gate = self.served.get(&self.approver, &format!("/api/v1/approvals/{id}")).good();
        gate["status"] == "open"
    }

    /// What the audit says of approvals, a line each.
    fn audit(&self) -> Vec<Value> {
        let all = self.home.lobster(["audit", "--kind", "approval", "--jsonl"]).run();
        all.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn check_all(by_person: bool) {
    let world = World::new(by_person);
    let mut answered = 0;
    for origin in ORIGINS {
        let mut open = None;
        for way in WAYS {
            let question = open.take().unwrap_or_else(|| world.start(origin));
            let said = world.answer(&question, way);
            let was_taken = !world.is_open(&question);
            let wanted = is_taken(origin, way, by_person);
            assert_eq!(was_taken, wanted, "{origin:?} answered by {way:?}, by person: {by_person}: {said}");
            assert!(!said.contains("--approve yes"), "an agent is shown the command: {said}");
            match was_taken {
                true => answered += 1,
                false => open = Some(question),
            }
        }
    }
    let audit = world.audit();
    let answers: Vec<&Value> = audit.iter().filter(|entry| entry["what"] == "approved").collect();
    assert_eq!(answers.len(), answered, "{audit:#?}");
    for entry in &audit {
        let is_answer = entry["what"] != "asked" && entry["what"] != "open";
        let actor = entry["actor"].as_str().unwrap_or_default();
        assert!(!is_answer || !actor.trim().is_empty(), "nobody is named: {entry:#}");
    }
    // Each kind of author says what shows it.
    let has = |holds: &dyn Fn(&Value) -> bool| answers.iter().any(|entry| holds(&entry["author"]));
    assert!(has(&|author| author["tty"].as_str().is_some_and(|tty| tty.starts_with("/dev/"))));
    assert!(has(&|author| author["uid"].is_u64() && author["tty"].is_null()));
    assert!(has(&|author| author["parents"].as_array().is_some_and(|parents| !parents.is_empty())));
    assert!(has(&|author| author["credential"].as_str().is_some_and(|id| id.starts_with("session-"))));
    assert!(has(&|author| author["credential"].as_str().is_some_and(|id| id.starts_with("token-"))));
    assert!(has(&|author| author["via"] == "mcp"));
}

#[test]
fn whoever_may_answers_and_nobody_else() {
    check_all(false);
}

#[test]
fn a_policy_that_wants_a_person_refuses_agents_shells() {
    check_all(true);
}

#[test]
fn an_agents_shell_gives_itself_no_rights() {
    let home = Home::new();
    let token = |role| ["serve", "token", "new", "--name", "it", "--role", role];
    let marked = |words: &[&str]| home.lobster(words).env("CLAUDECODE", "1").run();
    home.write("it.lobster", "steps: [{id: a, run: 'true'}]\n");
    home.write("lobster.policy.toml", "version = 1\n");
    let trusts =
        [["policy", "trust", "--yes"].to_vec(), vec!["schedule", "register", "--trust", "it.lobster"]];
    let links = [["serve", "link"].to_vec(), ["serve", "link", "--role", "approver"].to_vec()];
    let tokens = ["approver", "operator", "author", "admin"].map(|role| token(role).to_vec());
    for words in tokens.iter().chain(&links).chain(&trusts) {
        let refused = marked(words);
        assert_eq!((refused.code(), refused.stdout.as_str()), (1, ""), "{words:?}: {refused:?}");
        assert!(refused.stderr.contains("only a person may"), "{refused:?}");
    }
    for words in [token("viewer").to_vec(), [&token("operator")[..], &["--agent"]].concat()] {
        assert_eq!(marked(&words).code(), 0, "{words:?}");
    }
}

#[test]
fn a_step_that_hides_its_run_is_still_inside_of_it() {
    let home = Home::new();
    home.write("inner.lobster", "steps: [{id: ask, approval: 'Go on?'}]\n");
    let program = binary::lobster().display().to_string();
    let hidden = format!("env -u LOBSTER_RUN_ID {program} run --mode tool inner.lobster");
    home.write("outer.lobster", json!({ "steps": [{ "id": "a", "run": hidden }] }).to_string());
    home.tool(["outer.lobster"]).output();
    let gates: Value = serde_json::from_str(&home.lobster(["approvals", "--json"]).run().stdout).unwrap();
    let id = gates[0]["id"].as_str().unwrap().to_owned();
    let refused = home.lobster(["approvals", "approve", &id]).run();
    assert!(refused.error().contains("a step of run"), "{refused:?}");
    // What ends the run starts nothing.
    let cancelled = home.lobster(["resume", "--id", &id, "--cancel", "--mode", "tool"]).run();
    assert_eq!(cancelled.envelope()["status"], "cancelled", "{cancelled:?}");
}

#[test]
fn a_terminal_asks_nobody_whose_answer_would_not_count() {
    let home = Home::new();
    home.write("ask.lobster", "steps: [{id: ask, approval: 'Go on?'}]\n");
    let inside = home.lobster(["run", "ask.lobster"]).env("LOBSTER_RUN_ID", "018f3c2e-0000");
    let (code, screen) = Terminal::start(inside, 200, 50).end();
    assert_eq!(code, 0, "{}", screen.text());
    assert!(screen.text().contains("The question stays open"), "{}", screen.text());
}

#[test]
fn answers_to_input_and_from_a_terminal_name_their_author() {
    let home = Home::new();
    home.write(
        "input.lobster",
        "steps: [{id: ask, input: {prompt: 'Which?', responseSchema: {type: string}}}]\n",
    );
    home.write("ask.lobster", "steps: [{id: ask, approval: 'Go on?'}]\n");
    assert_eq!(home.tool(["input.lobster"]).envelope()["status"], "needs_input");
    let gates: Value = serde_json::from_str(&home.lobster(["approvals", "--json"]).run().stdout).unwrap();
    let id = gates[0]["id"].as_str().unwrap().to_owned();
    home.lobster(["approvals", "answer", &id, "\"this\""]).run().output();
    let mut terminal = Terminal::start(home.lobster(["run", "ask.lobster"]), 80, 24);
    terminal.wait_until(|screen| screen.contains("Go on?"));
    assert_eq!(terminal.enter_and_end("y").0, 0);
    let audit = home.lobster(["audit", "--kind", "approval", "--jsonl"]).run().stdout;
    let answers: Vec<Value> = audit
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|entry| entry["what"] != "asked")
        .collect();
    assert_eq!(answers.len(), 2, "{audit}");
    for answer in answers {
        assert!(answer["actor"].as_str().is_some_and(|actor| actor.starts_with("uid ")), "{answer}");
        assert!(answer["author"]["parents"].is_array(), "{answer}");
    }
}
