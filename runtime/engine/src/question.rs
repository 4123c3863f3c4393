//! The view of a question: the same facts in a terminal, in `lobster approvals`, in the message to the notify command and
//! over MCP (invariant G5).
//!
//! A view is plain data, made from the stored question, its path and the digest that an answer is bound to. Each
//! screen has its own layout, but only this module decides which facts there are.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::binding::{Asker, GateQuestion, KEPT, SetsGoing};
use super::upcoming::plan_after;
use crate::recorded_plan::load_recorded;
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_base::visible::exact;
use lobster_language::plan::Plan;
use lobster_policy::{Policy, name_step_home};
use lobster_stage::Question;
use lobster_stages as stages;
use lobster_store::{Gate, RunId, RunSummary, Store, StoreError, iso};

/// Fields of a policy question's item: the trees that the answer covers, and the system's roots, which are not compared.
pub(crate) const TREES: &str = "trees";
pub(crate) const NOT_COMPARED: &str = "not_compared";

/// Field with the uncommitted changes of earlier steps that the command finds.
pub(crate) const WAITING_CHANGES: &str = "waiting_changes";

/// The field with the variables that a command gets from the environment, by the digests of their values. Their names
/// are shown with the grant.
pub(crate) const PASSED: &str = "passed";

/// The kind of answer that is requested, and its asker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionKind {
    /// A workflow or a pipeline asks for an approval.
    Approval,
    /// The policy asks before a command or a component starts.
    Policy,
    /// A JSON value is requested.
    Input,
}

/// Importance of a fact for the first screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The text of a command: shown exactly, as far as there is room.
    Exact,
    /// Always shown.
    Main,
    /// Shown only in the full view if there is no room.
    Minor,
}

/// The label of the effects that begin after an approval.
pub const AT_ONCE: &str = "at once";

/// The label of the variables that are set for these effects.
const WITH: &str = "with";

/// The label of the beginnings of their inputs.
const READS: &str = "reads";

/// The label of the error that would stop the run after an approval.
const FAILS: &str = "a yes fails";

/// The label of the asker; the facts about the subject of the question come before it.
const ASKED_BY: &str = "asked by";

/// One fact about a question, such as `network` with the granted hosts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fact {
    pub label: String,
    pub values: Vec<String>,
    #[serde(skip)]
    pub weight: Weight,
}

impl Fact {
    fn new(label: impl Into<String>, values: Vec<String>, weight: Weight) -> Self {
        Self { label: label.into(), values, weight }
    }

    fn main(label: &str, value: impl Into<String>) -> Self {
        Self::new(label, vec![value.into()], Weight::Main)
    }

    fn minor(label: &str, value: impl Into<String>) -> Self {
        Self::new(label, vec![value.into()], Weight::Minor)
    }
}

/// A question for a person.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QuestionView {
    pub kind: QuestionKind,
    pub prompt: String,
    /// A preview, unless it repeats the items.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    /// The items to approve; empty if the facts describe them better.
    pub items: Vec<Value>,
    /// The subject of an input request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<Value>,
    pub facts: Vec<Fact>,
    /// The lines of the plan after this question, as a dry run prints them.
    pub then: Vec<String>,
}

/// The circumstances of a question.
pub(crate) struct Occasion<'a> {
    pub(crate) run: RunId,
    pub(crate) path: &'a str,
    pub(crate) binding: Digest,
    /// Milliseconds since 1970.
    pub(crate) expires_at: Option<i64>,
}

impl Occasion<'_> {
    /// True if the policy asks at this path.
    pub(crate) fn is_of_policy(path: &str) -> bool {
        // Characters that structure a path are escaped in ids, so no step can have this path.
        path.ends_with("!policy!approval")
    }
}

impl QuestionView {
    /// The view of a question in the store.
    ///
    /// # Errors
    /// If the run's record cannot be read.
    pub fn of_gate(store: &Store, gate: &Gate) -> Result<Self, StoreError> {
        let occasion =
            Occasion { run: gate.run, path: &gate.path, binding: gate.binding, expires_at: gate.expires_at };
        match serde_json::from_value::<GateQuestion>(gate.detail.clone()) {
            Ok(question) => {
                // Questions of earlier versions are without it.
                let going = serde_json::from_value(gate.detail[KEPT].clone()).unwrap_or_default();
                Self::new(store, &question, &occasion, &going)
            }
            // Written by another version; the stored question is shown in any case.
            Err(_) => Ok(Self {
                kind: QuestionKind::Approval,
                prompt: gate.question.get("prompt").map(json::js_string).unwrap_or_default(),
                preview: None,
                items: vec![gate.question.clone()],
                subject: None,
                facts: vec![Fact::main("digest", gate.binding.short())],
                then: Vec::new(),
            }),
        }
    }

    /// The view of a new question.
    pub(crate) fn new(
        store: &Store,
        question: &GateQuestion,
        occasion: &Occasion<'_>,
        going: &SetsGoing,
    ) -> Result<Self, StoreError> {
        let summary = store.run(occasion.run)?;
        let plan: Option<Plan> = load_recorded(store, &summary.plan).ok();
        let args = summary.args.and_then(|args| load_recorded(store, &args).ok()).unwrap_or_default();
        let then = plan.as_ref().map(|plan| plan_after(&stages::builtin(), plan, &args, occasion.path));
        let of_policy = Occasion::is_of_policy(occasion.path);
        let mut view = match &question.question {
            Question::Approval { prompt, items, preview, .. } if of_policy => Self {
                kind: QuestionKind::Policy,
                facts: items
                    .iter()
                    .flat_map(|item| policy_facts(item, preview.as_deref(), is_confined(store, occasion.run)))
                    .collect(),
                ..Self::with_prompt(prompt)
            },
            Question::Approval { prompt, items, preview, .. } => Self {
                preview: preview.clone().filter(|preview| !is_repetition(preview, items)),
                items: items.clone(),
                ..Self::with_prompt(prompt)
            },
            Question::Input { prompt, schema, defaults, subject, items, .. } => Self {
                kind: QuestionKind::Input,
                subject: subject.clone().filter(|subject| !subject.is_null()),
                items: if subject.is_none() { items.clone() } else { Vec::new() },
                facts: answer_facts(schema, defaults.as_ref()),
                ..Self::with_prompt(prompt)
            },
        };
        view.then = then.unwrap_or_default().lines().map(str::to_owned).collect();
        view.facts.extend(going_facts(going));
        view.facts.extend(who_asks(question, occasion, &summary, plan.as_ref()));
        Ok(view)
    }

    fn with_prompt(prompt: &str) -> Self {
        Self {
            kind: QuestionKind::Approval,
            prompt: prompt.to_owned(),
            preview: None,
            items: Vec::new(),
            subject: None,
            facts: Vec::new(),
            then: Vec::new(),
        }
    }

    /// Replaces the consequences of an approval by newly found ones; returns true if they differ from those that were
    /// shown when the question was asked.
    pub fn update_sets_going(&mut self, going: &SetsGoing) -> bool {
        if self.kind != QuestionKind::Approval {
            return false;
        }
        let is_going = |fact: &Fact| [AT_ONCE, WITH, READS, FAILS].contains(&fact.label.as_str());
        let shown: Vec<Fact> = self.facts.iter().filter(|fact| is_going(fact)).cloned().collect();
        let now = going_facts(going);
        if shown == now {
            return false;
        }
        // A question of an earlier version may lack some of them.
        let is_same = |label| {
            let of = |facts: &[Fact]| facts.iter().find(|fact| fact.label == label).cloned();
            of(&shown) == of(&now) || ([WITH, READS].contains(&label) && of(&shown).is_none())
        };
        let is_as_shown = [AT_ONCE, WITH, READS, FAILS].into_iter().all(is_same);
        self.facts.retain(|fact| !is_going(fact));
        let at = self.facts.iter().position(|fact| fact.label == ASKED_BY).unwrap_or(self.facts.len());
        self.facts.splice(at..at, now);
        !shown.is_empty() && !is_as_shown
    }

    /// Number of items to approve.
    #[must_use]
    pub fn item_count(&self) -> usize {
        self.items.len()
    }
}

/// True if the steps of a run are confined. Under the built-in policy they are not, even if a decision lists grants.
fn is_confined(store: &Store, run: RunId) -> bool {
    super::stale::began_under(store, run) != Some(Policy::builtin().digest().to_string())
}

/// The consequences of an approval: the exact commands, with references resolved.
fn going_facts(going: &SetsGoing) -> Vec<Fact> {
    let mut facts = Vec::new();
    if !going.at_once.is_empty() {
        facts.push(Fact::new(AT_ONCE, going.at_once.clone(), Weight::Exact));
    }
    for (label, values) in [(WITH, &going.with), (READS, &going.reads)] {
        if !values.is_empty() {
            facts.push(Fact::new(label, values.clone(), Weight::Exact));
        }
    }
    if let Some(why) = &going.fails {
        facts.push(Fact::main(FAILS, why.as_str()));
    }
    facts
}

/// The origin of the question, the permitted approvers, its expiry, and the digest that the answer is bound to.
fn who_asks(
    question: &GateQuestion,
    occasion: &Occasion<'_>,
    run: &RunSummary,
    plan: Option<&Plan>,
) -> Vec<Fact> {
    let mut facts = Vec::new();
    let file = match plan {
        Some(Plan::Workflow(workflow)) => {
            let file = workflow.file.strip_prefix(&run.cwd).unwrap_or(&workflow.file);
            Some(file.display().to_string())
        }
        Some(Plan::Pipeline(_)) | None => None,
    };
    let place = match (&question.asker, file) {
        (Asker::Step(step), Some(file)) => format!("step {step} of {file}"),
        (Asker::Step(step), None) => format!("step {step} of {}", run.name),
        (Asker::Pipeline, _) => format!("the pipeline {}", run.name),
    };
    facts.push(Fact::main(ASKED_BY, place));
    facts.push(Fact::minor("run", format!("{} at {}", occasion.run.short_id(), occasion.path)));
    let identity = &question.identity;
    if let Some(by) = &identity.initiated_by {
        facts.push(Fact::minor("started by", by.as_str()));
    }
    let mut may = Vec::new();
    if let Some(required) = &identity.required_approver {
        may.push(format!("only {required} may approve"));
    }
    if !identity.approvers.is_empty() {
        may.push(format!("only {} may approve", identity.approvers.join(" or ")));
    }
    if identity.require_different_approver {
        let starter = identity.initiated_by.as_deref().unwrap_or("the person who started the run");
        may.push(format!("{starter} may not approve"));
    }
    if !may.is_empty() {
        facts.push(Fact::new("approver", may, Weight::Main));
    }
    if let Some(at) = occasion.expires_at {
        facts.push(Fact::minor("until", iso(at)));
    }
    facts.push(Fact::main("digest", occasion.binding.short()));
    facts
}

/// The subject of a policy's question: the command with everything that it would start and get.
fn policy_facts(item: &Value, preview: Option<&str>, confined: bool) -> Vec<Fact> {
    let Some(item) = item.as_object() else { return vec![Fact::main("item", json::compact(item))] };
    let mut facts = Vec::new();
    let mut known = BTreeSet::from([
        "command",
        "cwd",
        "commands",
        "grant",
        "programs",
        "files",
        TREES,
        NOT_COMPARED,
        PASSED,
        "binding",
    ]);
    let command = match item.get("command") {
        Some(Value::String(name)) => name.clone(),
        Some(Value::Object(one)) => one
            .get("shell")
            .and_then(Value::as_str)
            .map(str::to_owned)
            .or_else(|| one.get("argv").and_then(Value::as_array).map(|words| quote_words(words)))
            .unwrap_or_else(|| json::compact(one)),
        Some(Value::Array(words)) => quote_words(words),
        _ => preview.unwrap_or_default().to_owned(),
    };
    let words: Vec<&Vec<Value>> =
        array_items(item, "commands").filter_map(|one| one["argv"].as_array()).collect();
    // The text of one simple command needs no list.
    if words.len() != 1
        || words.iter().any(|words| join_words(words) != command && quote_words(words) != command)
    {
        // A command that is started several times is listed once.
        let mut starts: Vec<String> = Vec::new();
        for words in words.iter().map(|words| quote_words(words)) {
            if !starts.contains(&words) {
                starts.push(words);
            }
        }
        if !starts.is_empty() {
            facts.push(Fact::new("starts", starts, Weight::Main));
        }
    }
    facts.insert(0, Fact::new("command", vec![command], Weight::Exact));
    if let Some(cwd) = item.get("cwd").and_then(Value::as_str) {
        facts.push(Fact::minor("in", exact(cwd)));
    }
    let digests = |key: &str| -> Vec<String> {
        array_items(item, key)
            .map(|file| {
                let digest = file["digest"].as_str().unwrap_or_default();
                let path = file["path"].as_str().map_or_else(|| json::compact(file), str::to_owned);
                format!("{}  {}", exact(&path), digest.get(..12).unwrap_or(digest)).trim_end().to_owned()
            })
            .collect()
    };
    let files = digests("files");
    if !files.is_empty() {
        facts.push(Fact::new("runs files", files, Weight::Main));
    }
    let trees: Vec<String> = array_items(item, TREES).map(shown_tree).collect();
    if !trees.is_empty() {
        facts.push(Fact::new("bound", trees, Weight::Minor));
    }
    if let Some(Value::Object(grant)) = item.get("grant") {
        if confined {
            facts.extend(grant_facts(grant));
        } else {
            facts.push(Fact::main("confined", "no: without a policy it runs with all of your rights"));
        }
    }
    if let Some(Value::Object(grants)) = item.get("grants") {
        known.insert("grants");
        for (name, value) in grants.iter().filter(|(_, value)| says_something(value)) {
            facts.push(Fact::new(name.replace('_', " "), values_of(value), Weight::Main));
        }
    }
    let programs = digests("programs");
    if !programs.is_empty() {
        facts.push(Fact::new("programs", programs, Weight::Minor));
    }
    for (name, value) in
        item.iter().filter(|(name, value)| !known.contains(name.as_str()) && says_something(value))
    {
        facts.push(Fact::new(name.replace('_', " "), values_of(value), Weight::Main));
    }
    facts
}

/// A tree of files that an approval covers.
fn shown_tree(tree: &Value) -> String {
    let (path, files) = (json::js_string(&tree["path"]), tree["files"].as_u64().unwrap_or(0));
    let digest = tree["digest"].as_str().unwrap_or_default();
    let noun = if files == 1 { "file" } else { "files" };
    format!("{}  {files} {noun}  {}", exact(&path), digest.get(..12).unwrap_or(digest))
}

/// The rights of a jailed command, in words. A right that this version does not know is shown by its name.
fn grant_facts(grant: &Map<String, Value>) -> Vec<Fact> {
    let net = match grant.get("net") {
        Some(Value::String(word)) if word == "host-network" => {
            vec!["all that this machine reaches".to_owned()]
        }
        Some(Value::Object(net)) => net.get("hosts").map(values_of).unwrap_or_else(|| values_of(&json!(net))),
        Some(Value::String(_) | Value::Null) | None => vec!["none".to_owned()],
        Some(other) => values_of(other),
    };
    let mut facts = vec![Fact::new("network", net, Weight::Main)];
    let writes = grant.get("fs_write").map(values_of).unwrap_or_default();
    let writes = if writes.is_empty() { vec!["nothing that stays".to_owned()] } else { writes };
    facts.push(Fact::new("may write", writes, Weight::Main));
    let named = [
        ("unix", "sockets", Weight::Main),
        ("unenforceable", "not held", Weight::Main),
        ("fs_read", "may read", Weight::Minor),
        ("env", "variables", Weight::Minor),
        ("fs_protect", "protected", Weight::Minor),
        ("fs_deny", "hidden", Weight::Minor),
    ];
    for (name, label, weight) in named {
        let values = grant.get(name).map(values_of).unwrap_or_default();
        if !values.is_empty() {
            facts.push(Fact::new(label, values, weight));
        }
    }
    let known = ["net", "fs_write"].into_iter().chain(named.iter().map(|(name, ..)| *name));
    let known: BTreeSet<&str> = known.collect();
    for (name, value) in
        grant.iter().filter(|(name, value)| !known.contains(name.as_str()) && says_something(value))
    {
        facts.push(Fact::new(name.replace('_', " "), values_of(value), Weight::Main));
    }
    facts
}

/// The format of an answer.
fn answer_facts(schema: &Value, defaults: Option<&Value>) -> Vec<Fact> {
    let mut facts = Vec::new();
    let properties = schema.get("properties").and_then(Value::as_object);
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if let Some(properties) = properties {
        let fields = properties.iter().map(|(name, field)| {
            let default = defaults.and_then(|defaults| defaults.get(name));
            let mut text = format!("{name}: {}", describe_schema(field, default));
            if required.contains(&name.as_str()) {
                text.push_str(", required");
            }
            text
        });
        facts.push(Fact::new("fields", fields.collect(), Weight::Main));
    } else {
        facts.push(Fact::main("answer", describe_schema(schema, defaults)));
        if let Some(default) = defaults.filter(|_| schema.get("default").is_none()) {
            facts.push(Fact::minor("default", json::compact(default)));
        }
    }
    facts
}

/// A schema in a few words: type, choices, default, description.
fn describe_schema(schema: &Value, default: Option<&Value>) -> String {
    let mut parts = Vec::new();
    match schema.get("type") {
        Some(Value::String(kind)) => parts.push(kind.clone()),
        Some(Value::Array(kinds)) => {
            parts.push(kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "));
        }
        _ => {}
    }
    if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
        parts.push(format!("one of {}", choices.iter().map(json::compact).collect::<Vec<_>>().join(", ")));
    }
    if let Some(only) = schema.get("const") {
        parts.push(format!("only {}", json::compact(only)));
    }
    for (key, word) in
        [("minimum", "from"), ("maximum", "to"), ("minLength", "at least"), ("maxLength", "at most")]
    {
        if let Some(bound) = schema.get(key) {
            parts.push(format!("{word} {}", json::compact(bound)));
        }
    }
    if let Some(default) = default.or_else(|| schema.get("default")) {
        parts.push(format!("default {}", json::compact(default)));
    }
    if parts.is_empty() {
        parts.push(match schema {
            Value::Object(map) if !map.is_empty() => json::compact(schema),
            _ => "any JSON value".to_owned(),
        });
    }
    let mut text = parts.join(", ");
    if let Some(about) = schema.get("description").and_then(Value::as_str) {
        text.push_str(&format!(" ({about})"));
    }
    text
}

fn array_items<'a>(item: &'a Map<String, Value>, key: &str) -> impl Iterator<Item = &'a Value> {
    item.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn values_of(value: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().map_or_else(|| json::compact(value), str::to_owned);
    match value {
        Value::Null => Vec::new(),
        Value::Array(values) => {
            let mut seen = BTreeSet::new();
            values.iter().map(text).filter(|value| seen.insert(value.clone())).collect()
        }
        one => vec![text(one)],
    }
}

fn says_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(values) => !values.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

fn join_words(words: &[Value]) -> String {
    words.iter().map(json::js_string).collect::<Vec<_>>().join(" ")
}

/// Words with quotes where needed, so that a reader sees where each one ends.
pub(crate) fn quote_words(words: &[Value]) -> String {
    let bare = |c: char| c.is_alphanumeric() || "-_./:=@%+,‹›?~".contains(c);
    let shown = words.iter().map(|word| name_step_home(&json::js_string(word)));
    let quoted = shown.map(|word| match word.is_empty() || !word.chars().all(bare) {
        true => format!("'{}'", word.replace('\'', r"'\''")),
        false => word,
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// True if a preview only repeats the items, or their beginning, in another layout.
fn is_repetition(preview: &str, items: &[Value]) -> bool {
    if items.is_empty() {
        return false;
    }
    let without_blanks = |text: &str| text.split_whitespace().collect::<String>();
    let preview = without_blanks(preview);
    let all: String = items.iter().map(json::compact).collect::<Vec<_>>().join(",");
    let lines: String = items.iter().map(json::compact).collect();
    let texts: String = items.iter().map(json::js_string).collect();
    let listed = preview.strip_prefix('[').map(|rest| rest.strip_suffix(']').unwrap_or(rest));
    listed.is_some_and(|listed| without_blanks(&all).starts_with(listed))
        || without_blanks(&lines).starts_with(&preview)
        || without_blanks(&texts).starts_with(&preview)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labelled_values(facts: &[Fact]) -> Vec<(&str, Vec<&str>)> {
        facts
            .iter()
            .map(|fact| (fact.label.as_str(), fact.values.iter().map(String::as_str).collect()))
            .collect()
    }

    #[test]
    fn the_policy_shows_what_would_start_and_what_it_gets() {
        let item = json!({
            "command": {"shell": "git push -f x; curl -d @a b"}, "cwd": "/w",
            "commands": [{"argv": ["git", "push", "-f", "x"]}, {"argv": ["curl", "-d", "@a b"]}],
            "grant": {"fs_read": ["@system-ro"], "fs_write": ["/w"], "net": {"hosts": ["b:443"]}, "env": [], "listen": [3000],
                      "unix": ["/run/d.sock"], "unenforceable": ["bytes out"]},
            "files": [{"path": "/w/x.sh", "digest": "0123456789abcdef"}],
            "programs": [{"path": "/usr/bin/git", "digest": "abcdef0123456789"}], "later": "news",
        });
        assert_eq!(
            labelled_values(&policy_facts(&item, None, true)),
            [
                ("command", vec!["git push -f x; curl -d @a b"]),
                ("starts", vec!["git push -f x", "curl -d '@a b'"]),
                ("in", vec!["/w"]),
                ("runs files", vec!["/w/x.sh  0123456789ab"]),
                ("network", vec!["b:443"]),
                ("may write", vec!["/w"]),
                ("sockets", vec!["/run/d.sock"]),
                ("not held", vec!["bytes out"]),
                ("may read", vec!["@system-ro"]),
                ("listen", vec!["3000"]),
                ("programs", vec!["/usr/bin/git  abcdef012345"]),
                ("later", vec!["news"]),
            ]
        );
        let open = policy_facts(&item, None, false);
        assert!(open.iter().any(|fact| fact.label == "confined"), "{open:?}");
        assert!(open.iter().all(|fact| fact.label != "network"), "{open:?}");
        let one = json!({"command": {"argv": ["rm", "a b"]}, "commands": [{"argv": ["rm", "a b"]}]});
        assert_eq!(labelled_values(&policy_facts(&one, None, true))[0], ("command", vec!["rm 'a b'"]));
    }

    #[test]
    fn a_preview_that_only_repeats_the_items_is_not_shown_twice() {
        let items = [json!({"a": 1}), json!({"a": 2}), json!("x y")];
        for preview in ["[\n  {\"a\": 1},\n  {\"a\": 2}\n]", "{\"a\":1}\n{\"a\":2}", "[{\"a\":1},{\"a"] {
            assert!(is_repetition(preview, &items), "{preview}");
        }
        assert!(is_repetition("x y", &items[2..]));
        for preview in ["two rows", "[{\"a\":3}]"] {
            assert!(!is_repetition(preview, &items), "{preview}");
        }
        assert!(!is_repetition("text", &[]));
    }

    #[test]
    fn an_answer_is_described_by_its_schema() {
        let schema = json!({"type": "object", "required": ["n"], "properties": {
            "n": {"type": "integer", "minimum": 1, "description": "how many"}, "c": {"enum": ["a", "b"], "default": "a"}}});
        assert_eq!(
            labelled_values(&answer_facts(&schema, Some(&json!({"n": 3})))),
            [(
                "fields",
                vec![
                    "n: integer, from 1, default 3 (how many), required",
                    r#"c: one of "a", "b", default "a""#
                ]
            )]
        );
        assert_eq!(labelled_values(&answer_facts(&json!({}), None)), [("answer", vec!["any JSON value"])]);
    }
}
