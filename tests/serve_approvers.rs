//! Who may approve: a workflow can keep the person who has started a run from it, at every gate and however the run
//! came there.

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::home::{Home, wait_until};
use crate::served::{Reply, Served, register};

const AFTER: &str = "  - {id: after, run: 'echo done >> said'}\n";

fn gate(id: &str, also: &str) -> String {
    format!("  - {{id: {id}, approval: {{prompt: '{id}?'{also}}}}}\n")
}

fn home() -> Home {
    let home = Home::new();
    let (first, last) = (gate("first", ""), gate("last", ", requireDifferentApprover: true"));
    home.write("one.lobster", format!("steps:\n{last}{AFTER}"));
    home.write("two.lobster", format!("steps:\n{first}{last}{AFTER}"));
    home.write("fails.lobster", format!("steps:\n  - {{id: a, run: 'test -e good'}}\n{last}{AFTER}"));
    register(&home, &["one.lobster", "two.lobster", "fails.lobster"]);
    home
}

/// A server, and the tokens of those who use it.
struct Place {
    home: Home,
    served: Served,
    /// Starts runs, tries them again and forks them.
    starter: String,
    /// Has nothing to do with them.
    other: String,
}

impl Place {
    fn new() -> Self {
        let home = home();
        let served = Served::start(&home, &[]);
        let token = |name: &str| {
            let made = home.lobster(["serve", "token", "new", "--name", name, "--role", "operator"]).run();
            made.stdout.trim().to_owned()
        };
        let (starter, other) = (token("operator"), token("other"));
        Self { home, served, starter, other }
    }

    fn start(&self, token: &str, workflow: &str) -> String {
        let started =
            self.served.post(token, &format!("/api/v1/workflows/{workflow}/runs"), &json!({})).good();
        started["run"].as_str().unwrap().to_owned()
    }

    /// Waits until this question is asked.
    fn question(&self, prompt: &str) -> Value {
        let mut found = json!(null);
        wait_until(prompt, || {
            let gates = self.served.get(&self.other, "/api/v1/approvals").good();
            let gates = gates["gates"].as_array().unwrap();
            found = gates.iter().find(|gate| gate["prompt"] == prompt).cloned().unwrap_or_default();
            !found.is_null()
        });
        found
    }

    fn answer(&self, token: &str, gate: &Value, decision: &str) -> Reply {
        let path = format!("/api/v1/approvals/{}/answer", gate["id"].as_str().unwrap());
        self.served.post(token, &path, &json!({ "decision": decision, "digest": gate["digest"] }))
    }

    /// A button of the console, pressed by the starter.
    fn press(&self, run: &str, what: &str, fields: &[(&str, &str)]) -> Reply {
        let reply = Browser::log_in(&self.home, &self.served, "operator")
            .post(&format!("/runs/{run}/{what}"), fields);
        assert_eq!(reply.status, 303, "{reply:?}");
        reply
    }

    /// Forks a run, and gives the fork.
    fn fork(&self, run: &str) -> String {
        let forked = self.press(run, "fork", &[("act", "fork"), ("from", "after")]);
        crate::browser::header(&forked, "location").unwrap().rsplit('/').next().unwrap().to_owned()
    }

    /// The starter may not approve the last question, and the other one may.
    fn assert_kept_apart(&self, run: &str) {
        let gate = self.question("last?");
        let refused = self.answer(&self.starter, &gate, "approve");
        assert_eq!((refused.status, refused.problem().as_str()), (403, "refused"), "{refused:?}");
        let shown =
            self.served.get(&self.other, &format!("/api/v1/approvals/{}", gate["id"].as_str().unwrap()));
        assert!(shown.body.contains("operator may not approve"), "{shown:?}");
        self.answer(&self.other, &gate, "approve").good();
        assert_eq!(self.served.ended(&self.other, run)["status"], "ok");
    }
}

#[test]
fn whoever_starts_a_run_does_not_approve_its_first_gate_nor_one_after_an_answer() {
    let place = Place::new();
    let run = place.start(&place.starter, "one");
    place.assert_kept_apart(&run);
    // The first question may be answered by anybody.
    let run = place.start(&place.starter, "two");
    place.answer(&place.starter, &place.question("first?"), "approve").good();
    place.assert_kept_apart(&run);
    // In a shell the run goes on where it is answered.
    let run = place.start(&place.starter, "two");
    let first = place.question("first?");
    let answer = ["resume", "--id", first["id"].as_str().unwrap(), "--approve", "yes"];
    let envelope = place.home.lobster(answer).env("LOBSTER_APPROVAL_APPROVED_BY", "cy").run().envelope();
    assert_eq!(envelope["requiresApproval"]["initiatedBy"], "operator", "{envelope}");
    place.assert_kept_apart(&run);
}

#[test]
fn whoever_starts_a_run_in_a_shell_does_not_approve_it() {
    let home = Home::new();
    let gate = gate("last", ", requireDifferentApprover: true");
    home.write("one.lobster", format!("on: {{schedule: {{every: 1h}}}}\nsteps:\n{gate}{AFTER}"));
    register(&home, &["one.lobster"]);
    // What the environment says, and who has started the run then. As for `lobster run`, the first names the initiator.
    let cases = [
        (vec![("LOBSTER_APPROVAL_INITIATED_BY", " ann ")], "ann"),
        (vec![("LOBSTER_APPROVAL_INITIATED_BY", "ann"), ("LOBSTER_ACTOR", "ben"), ("USER", "cy")], "ann"),
        (vec![("LOBSTER_APPROVAL_INITIATED_BY", " "), ("LOBSTER_ACTOR", "ben"), ("USER", "cy")], "ben"),
        (vec![("USER", "cy"), ("LOGNAME", "dee")], "cy"),
        (vec![("LOGNAME", "dee")], "dee"),
    ];
    let start = |words: &[&str], env: &[(&str, &str)]| {
        let none = [("USER", ""), ("LOGNAME", ""), ("LOBSTER_ACTOR", "")];
        let call =
            none.iter().chain(env).fold(home.lobster(words), |call, (name, value)| call.env(name, value));
        let started = call.run();
        assert_eq!(started.code(), 0, "{started:?}");
        started.stdout.split_whitespace().last().unwrap().to_owned()
    };
    let mut started = Vec::new();
    for (index, (env, who)) in cases.iter().enumerate() {
        started.push((start(&["schedule", "run-now", "one"], env), *who));
        let (from, to) = (format!("{}h", 2 * index + 3), format!("{}h", 2 * index + 2));
        started.push((start(&["schedule", "backfill", "one", "--from", &from, "--to", &to], env), *who));
    }
    let _served = Served::start(&home, &["--max-runs", "10"]);
    for (run, who) in started {
        let mut gate = json!(null);
        // Ticks that are made up for run one after another: each is called off when it has been looked at.
        wait_until("the question", || {
            let all = home.lobster(["approvals", "--json"]).run();
            let all: Vec<Value> = serde_json::from_str(&all.stdout).unwrap();
            gate = all.into_iter().find(|gate| gate["run"] == run.as_str()).unwrap_or_default();
            !gate.is_null()
        });
        assert_eq!(gate["request"]["initiatedBy"], who, "{gate}");
        let id = gate["id"].as_str().unwrap();
        let approved =
            home.lobster(["approvals", "approve", id]).env("LOBSTER_APPROVAL_APPROVED_BY", who).run();
        assert!(approved.error().contains(&format!("other than '{who}'")), "{approved:?}");
        assert_eq!(home.lobster(["approvals", "reject", id]).run().envelope()["status"], "cancelled");
    }
    assert!(!home.dir().join("said").exists());
}

#[test]
fn whoever_starts_a_run_does_not_approve_it_after_a_retry() {
    let place = Place::new();
    let run = place.start(&place.starter, "fails");
    assert_eq!(place.served.ended(&place.starter, &run)["status"], "failed");
    place.home.write("good", "");
    place.press(&run, "resume", &[]);
    place.assert_kept_apart(&run);
    let journal = place.home.lobster(["show", &run, "--json"]).run().stdout;
    assert!(journal.contains("retry_requested"), "{journal}");
}

#[test]
fn whoever_forks_a_run_does_not_approve_the_fork() {
    let place = Place::new();
    for workflow in ["one", "two"] {
        let run = place.start(&place.other, workflow);
        if workflow == "two" {
            place.answer(&place.other, &place.question("first?"), "approve").good();
        }
        place.answer(&place.starter, &place.question("last?"), "approve").good();
        assert_eq!(place.served.ended(&place.other, &run)["status"], "ok");
        let fork = place.fork(&run);
        if workflow == "two" {
            place.answer(&place.starter, &place.question("first?"), "approve").good();
        }
        place.assert_kept_apart(&fork);
    }
}

#[test]
fn of_a_yes_and_a_no_at_once_one_counts_and_the_other_is_told() {
    let place = Place::new();
    for _ in 0..3 {
        let run = place.start(&place.other, "one");
        let gate = place.question("last?");
        // One person, in two places.
        let given = std::thread::scope(|scope| {
            let (place, gate) = (&place, &gate);
            ["approve", "reject"]
                .map(|decision| scope.spawn(move || place.answer(&place.starter, gate, decision)))
                .map(|one| one.join().unwrap())
        });
        let taken = given.iter().position(|reply| reply.status == 200).unwrap_or_else(|| panic!("{given:?}"));
        assert_eq!(given[1 - taken].problem(), "closed", "{given:?}");
        let status = if taken == 0 { "ok" } else { "cancelled" };
        assert_eq!(place.served.ended(&place.other, &run)["status"], status, "{given:?}");
    }
}
