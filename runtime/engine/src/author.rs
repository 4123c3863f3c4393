//! The author of an answer, and the evidence that it is a person (invariant G9).

use std::fs::File;
use std::io::{self, IsTerminal};

use rustix::process::{getpgrp, getuid};
use rustix::termios::{tcgetpgrp, ttyname};
use serde_json::{Value, json};

use super::ancestors::ancestors_in_session;
use super::env::Env;
use super::origin::{Origin, surrounding_run};

/// The variables with which agents mark the shells that they open.
pub const AGENT_MARKS: [&str; 15] = [
    "AGENT",
    "AI_AGENT",
    "AUGMENT_AGENT",
    "CLAUDECODE",
    "CLAUDE_CODE",
    "CLINE_ACTIVE",
    "CODEX_SANDBOX",
    "CODEX_SESSION_ID",
    "CODEX_THREAD_ID",
    "COPILOT_AGENT",
    "CURSOR_AGENT",
    "GEMINI_CLI",
    "GOOSE_TERMINAL",
    "OPENCODE",
    "OPENCODE_CLIENT",
];

/// The ways in which people answer, as the error of an unproven answer lists them.
const WAYS: &str = "A person answers it: at a terminal of their own, in the console, with a passkey, or with the token \
                    of an approver";

/// The author of an answer.
#[derive(Clone, Debug)]
pub struct Author {
    /// The missing evidence that a person answers; `None` if there is enough.
    lacks: Option<String>,
    /// True if it is an agent's own answer, as far as lobster can see.
    is_agent: bool,
    /// The proven name of a person.
    pub name: Option<String>,
    /// The author in the record.
    pub detail: Value,
}

impl Author {
    /// The user of this process.
    #[must_use]
    pub fn of_process(env: &Env) -> Self {
        let is_marked = |name: &&&str| env.non_blank(name).is_some();
        let above: Vec<_> = ancestors_in_session().collect();
        let mark = AGENT_MARKS.iter().find(is_marked).or_else(|| {
            let is_above = |name: &&&str| above.iter().any(|process| process.env_variable(name).is_some());
            AGENT_MARKS.iter().find(is_above)
        });
        let step = surrounding_run(env);
        let terminal = own_terminal();
        let lacks = match (&step, mark, &terminal) {
            (Some(run), ..) => Some(format!("this process runs in a step of run {run}")),
            (None, Some(mark), _) => Some(format!("{mark} marks this shell as an agent's")),
            (None, None, None) => Some("stdin is not a terminal that this process controls".to_owned()),
            (None, None, Some(_)) => None,
        };
        let parents: Vec<String> =
            above.iter().map(|process| format!("{} {}", process.pid, process.program)).collect();
        let mut detail =
            json!({ "via": "shell", "uid": getuid().as_raw(), "tty": terminal, "parents": parents });
        if let Some(mark) = mark {
            detail["agent"] = json!(mark);
        }
        if let Some(run) = step {
            detail["step_of"] = json!(run);
        }
        Self { lacks, is_agent: mark.is_some() && terminal.is_none(), name: None, detail }
    }

    /// A person who has shown a credential of the service: a session, a token, or a personal button.
    #[must_use]
    pub fn of_credential(credential: &str, name: &str) -> Self {
        let detail = json!({ "via": "service", "name": name, "credential": credential });
        Self { lacks: None, is_agent: false, name: Some(name.to_owned()), detail }
    }

    /// The user of an MCP client, whom the client asked.
    #[must_use]
    pub fn of_client(name: Option<&str>) -> Self {
        let detail = json!({ "via": "mcp", "name": name.unwrap_or("mcp") });
        Self { lacks: None, is_agent: false, name: None, detail }
    }

    /// An agent that reports its user's answer.
    #[must_use]
    pub fn of_agent(name: Option<&str>) -> Self {
        let lacks = Some("an agent's report of an answer proves no person".to_owned());
        let detail = json!({ "via": "agent", "name": name.unwrap_or("mcp") });
        Self { lacks, is_agent: true, name: None, detail }
    }

    /// True if there is evidence that a person answers.
    #[must_use]
    pub fn is_person(&self) -> bool {
        self.lacks.is_none()
    }

    /// The evidence that a step or an agent's shell contains this process; `None` if there is none.
    #[must_use]
    pub fn agent_evidence(&self) -> Option<&str> {
        let is_shown = ["agent", "step_of"].iter().any(|name| self.detail.get(name).is_some());
        self.lacks.as_deref().filter(|_| is_shown)
    }

    /// Checks that this author may answer the questions of a run.
    ///
    /// # Errors
    /// The reason why a person has to answer, and the missing evidence.
    pub fn check_may_answer(&self, origin: Option<&Origin>, policy_wants_person: bool) -> Result<(), String> {
        let Some(lacks) = &self.lacks else { return Ok(()) };
        let why = match origin {
            Some(origin) => origin.to_string(),
            None if policy_wants_person && self.is_agent => {
                "the policy wants a person's answer (approvals.by)".to_owned()
            }
            None => return Ok(()),
        };
        Err(format!("The question stays open: {why}, and {lacks}. {WAYS}."))
    }
}

/// The terminal that this process reads from, if the process controls it and is in its foreground.
fn own_terminal() -> Option<String> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return None;
    }
    let controlling = File::open("/dev/tty").ok()?;
    let foreground = tcgetpgrp(&controlling).ok()?;
    // The kernel reports nothing about a terminal of another session.
    if tcgetpgrp(&stdin).ok()? != foreground || foreground != getpgrp() {
        return None;
    }
    Some(ttyname(&stdin, Vec::new()).ok()?.to_string_lossy().into_owned())
}
