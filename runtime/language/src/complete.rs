//! Completion at a position in a workflow file that is being written.
//!
//! The text is incomplete while the user types, so it is not parsed: the position is determined by
//! indentation, as a human reader does, and the proposals come from the schema of workflow files.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;

use super::workflow::{RECORD_FIELDS, json_schema};

/// A longer list is no help.
const MOST: usize = 60;

/// Most lines that are searched for the context of a position.
const LINES: usize = 4000;

/// One proposed text.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Proposal {
    pub label: String,
    /// Description of the proposal.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Text that replaces `replaces`.
    pub insert: String,
    /// Bytes of the text that the user has already typed.
    pub replaces: Range<usize>,
}

/// A step on the path to a position: into the value of a key, or into an entry of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Key(String),
    Entry,
}

/// Proposals at byte `at` of a workflow file in YAML; `commands` are the commands of pipelines.
#[must_use]
pub fn propose_completions(text: &str, at: usize, commands: &[&str]) -> Vec<Proposal> {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let line = &text[start..at];
    if line.trim_start().starts_with('#') || text.trim_start().starts_with('{') {
        return Vec::new();
    }
    if let Some(found) = reference_proposals(text, line, at) {
        return found;
    }
    if is_in_block(&text[..start], line) {
        return Vec::new();
    }
    let place = Place::at_cursor(&text[..start], line);
    let mut found = place.fitting_proposals(text, at, commands);
    found.truncate(MOST);
    found
}

// ---- references

/// Names for `$…` or `${…}`, if the cursor is after one.
fn reference_proposals(text: &str, line: &str, at: usize) -> Option<Vec<Proposal>> {
    let dollar = line.rfind('$')?;
    let typed = &line[dollar + 1..];
    let proposals = |names: Vec<(String, String)>, typed: &str, end: &str| {
        let replaces = at - typed.len()..at;
        let fits = |(name, _): &(String, String)| name.starts_with(typed) && name != typed;
        let names = names.into_iter().filter(fits).take(MOST);
        names
            .map(|(label, about)| {
                let insert = format!("{label}{end}");
                Proposal { label, about, insert, replaces: replaces.clone() }
            })
            .collect()
    };
    if let Some(typed) = typed.strip_prefix('{') {
        let is_name = typed.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
        let names =
            || argument_names(text).into_iter().map(|name| (name, "an argument of this file".to_owned()));
        return is_name.then(|| proposals(names().collect(), typed, "}"));
    }
    if !typed.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c)) {
        return None;
    }
    Some(match typed.split_once('.') {
        None => {
            let steps = step_ids(text, at).into_iter().map(|id| (id, "a step".to_owned())).collect();
            proposals(steps, typed, ".")
        }
        Some((_, field)) if !field.contains('.') => {
            let fields = RECORD_FIELDS.iter().map(|name| ((*name).to_owned(), String::new())).collect();
            proposals(fields, field, "")
        }
        Some(_) => Vec::new(),
    })
}

/// Ids that a reference at `at` can name: the ids above it, or all ids in a file whose steps have
/// `needs`.
fn step_ids(text: &str, at: usize) -> Vec<String> {
    let is_graph =
        text.lines().any(|line| key_of(line.trim_start().trim_start_matches("- ")) == Some("needs"));
    let seen = if is_graph { text } else { &text[..at] };
    let own = text[..at].rfind("id:").filter(|_| !is_graph);
    let mut found: Vec<String> = Vec::new();
    let mut from = 0;
    while let Some(next) = seen[from..].find("id:") {
        let begin = from + next;
        from = begin + 3;
        let before = seen[..begin].chars().next_back();
        if !before.is_none_or(|c| c.is_whitespace() || "{,".contains(c)) {
            continue;
        }
        let value = seen[from..].trim_start_matches(' ');
        let end = value.find(|c: char| c.is_whitespace() || ",}#".contains(c)).unwrap_or(value.len());
        let id = value[..end].trim_matches(['"', '\'']);
        // The step that is being written cannot read its own result.
        let is_own = own == Some(begin) && is_same_entry(&text[begin..at]);
        if !id.is_empty() && !is_own && !found.iter().any(|known| known == id) {
            found.push(id.to_owned());
        }
    }
    found
}

/// True if no other entry of a list begins in the text.
fn is_same_entry(text: &str) -> bool {
    !text.lines().skip(1).any(|line| line.trim_start().starts_with("- "))
}

fn argument_names(text: &str) -> Vec<String> {
    let mut lines = text.lines().skip_while(|line| key_of(line) != Some("args"));
    let Some(first) = lines.next() else { return Vec::new() };
    let rest = first["args:".len()..].trim();
    if let Some(flow) = rest.strip_prefix('{') {
        let mut depth = 0_usize;
        let outer: String = flow
            .chars()
            .filter(|c| {
                let was = depth;
                match c {
                    '{' | '[' => depth += 1,
                    '}' | ']' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                was == 0 && depth == 0
            })
            .collect();
        let keys = outer.split(',').filter_map(|part| part.split(':').next().map(str::trim));
        return keys.filter(|key| !key.is_empty()).map(str::to_owned).collect();
    }
    let mut indent = None;
    let mut found = Vec::new();
    for line in lines.filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#')) {
        let own = indent_of(line);
        if own == 0 {
            break;
        }
        if own == *indent.get_or_insert(own)
            && let Some(key) = key_of(line.trim_start())
        {
            found.push(key.to_owned());
        }
    }
    found
}

// ---- the place

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// The key that a line begins with.
fn key_of(line: &str) -> Option<&str> {
    let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || "_-".contains(c)))?;
    (end > 0
        && line[end..].starts_with(':')
        && line[end + 1..].chars().next().is_none_or(char::is_whitespace))
    .then(|| &line[..end])
}

/// Positions of the dashes of a line, and the start of the rest.
fn parts_of(line: &str) -> (Vec<usize>, usize) {
    let mut at = indent_of(line);
    let mut dashes = Vec::new();
    while line[at..].starts_with("- ") || &line[at..] == "-" {
        dashes.push(at);
        at += 1;
        at += indent_of(&line[at..]);
    }
    (dashes, at)
}

/// True if the line belongs to a block text that began above with `|` or `>`.
fn is_in_block(before: &str, line: &str) -> bool {
    let mut indent = if line.trim().is_empty() { line.len() } else { indent_of(line) };
    for above in before.lines().rev().take(LINES).filter(|above| !above.trim().is_empty()) {
        if indent_of(above) < indent {
            let value = above.trim_end().trim_end_matches(['-', '+', '1', '2', '4', '6', '8']);
            if value.ends_with(": |")
                || value.ends_with(": >")
                || value.ends_with("- |")
                || value.ends_with("- >")
            {
                return true;
            }
            indent = indent_of(above);
        }
    }
    false
}

/// A position in a file.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    path: Vec<Part>,
    /// Key whose value is being written, if any.
    key: Option<String>,
    typed: String,
    /// Column of the text that is being written.
    column: usize,
    /// Keys already in the same map.
    beside: Vec<String>,
}

impl Place {
    fn at_cursor(before: &str, line: &str) -> Self {
        let (dashes, column) = parts_of(line);
        let mut path = Vec::new();
        // A key, or a dash, below this column belongs to an enclosing level.
        let (mut key_limit, mut dash_limit) = (column, column);
        for dash in dashes.iter().rev() {
            path.push(Part::Entry);
            // The list may be at the same indentation as its key.
            (key_limit, dash_limit) = (dash + 1, *dash);
        }
        let mut beside = Vec::new();
        let is_first = !dashes.is_empty();
        for above in before.lines().rev().take(LINES) {
            if above.trim().is_empty() || above.trim_start().starts_with('#') {
                continue;
            }
            let (dashes, begin) = parts_of(above);
            let key = key_of(&above[begin..]);
            if begin == column && !is_first && path.is_empty() {
                beside.extend(key.map(str::to_owned));
            }
            if begin < key_limit
                && let Some(key) = key
            {
                path.push(Part::Key(key.to_owned()));
                (key_limit, dash_limit) = (begin, begin);
            }
            for dash in dashes.iter().rev().filter(|dash| **dash < begin) {
                if *dash < dash_limit {
                    path.push(Part::Entry);
                    (key_limit, dash_limit) = (dash + 1, *dash);
                }
            }
            if key_limit == 0 {
                break;
            }
        }
        path.reverse();
        let place = Self { path, key: None, typed: line[column..].to_owned(), column, beside };
        place.into_flow().into_value()
    }

    /// Goes into `{…}` and `[…]` that are open at the cursor.
    fn into_flow(mut self) -> Self {
        loop {
            let mut open = Vec::new();
            for (at, c) in self.typed.char_indices() {
                match c {
                    '{' | '[' => open.push((at, c)),
                    '}' | ']' => drop(open.pop()),
                    _ => {}
                }
            }
            let Some((at, c)) = open.first().copied() else { return self };
            let before = self.typed[..at].trim_end().to_owned();
            if !(before.is_empty() || before.ends_with(':')) {
                return self;
            }
            if let Some(key) = key_of(&before) {
                self.path.push(Part::Key(key.to_owned()));
            }
            if c == '[' {
                self.path.push(Part::Entry);
            }
            let mut inside = self.typed[at + 1..].to_owned();
            let mut depth = 0_usize;
            let comma = inside.char_indices().filter(|(_, c)| {
                match c {
                    '{' | '[' => depth += 1,
                    '}' | ']' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                depth == 0 && *c == ','
            });
            let cut = comma.last().map_or(0, |(at, _)| at + 1);
            self.beside =
                inside[..cut].split(',').filter_map(|part| key_of(part.trim())).map(str::to_owned).collect();
            inside.drain(..cut);
            self.typed = inside.trim_start().to_owned();
        }
    }

    /// Goes into the value after the colon of a key.
    fn into_value(mut self) -> Self {
        if let Some(key) = key_of(&self.typed).map(str::to_owned) {
            let rest = &self.typed[key.len() + 1..];
            if rest.starts_with(' ') {
                self.typed = rest.trim_start().to_owned();
                self.key = Some(key);
            }
        }
        self
    }

    fn fitting_proposals(&self, text: &str, at: usize, commands: &[&str]) -> Vec<Proposal> {
        let schema = json_schema();
        let root = vec![&schema];
        let nodes = self.path.iter().fold(root, |nodes, part| into(&schema, &nodes, part));
        let of_value = match &self.key {
            Some(key) => Some((key.as_str(), into(&schema, &nodes, &Part::Key(key.clone())))),
            // An entry of a list of texts.
            None => match self.path.as_slice() {
                [.., Part::Key(key), Part::Entry] if fields_of(&schema, &nodes).is_empty() => {
                    Some((key.as_str(), nodes.clone()))
                }
                _ => None,
            },
        };
        match of_value {
            Some((key, nodes)) => self.value_proposals(text, at, key, &schema, &nodes, commands),
            None => self.key_proposals(at, &fields_of(&schema, &nodes), &schema),
        }
    }

    fn key_proposals(&self, at: usize, fields: &BTreeMap<String, Value>, schema: &Value) -> Vec<Proposal> {
        let typed = self.typed.trim_end();
        let fits = |name: &&String| name.starts_with(typed) && !self.beside.contains(name);
        let below = " ".repeat(self.column + 2);
        let names: Vec<&String> = fields.keys().filter(fits).collect();
        let proposal = |name: &String| {
            let field = &fields[name];
            let insert = match kind_of(schema, field) {
                Kind::Text => format!("{name}: "),
                Kind::List => format!("{name}:\n{below}- "),
                Kind::Map => format!("{name}:\n{below}"),
            };
            let about = field["description"].as_str().unwrap_or_default().to_owned();
            Proposal { label: name.clone(), about, insert, replaces: at - typed.len()..at }
        };
        names.into_iter().map(proposal).collect()
    }

    fn value_proposals(
        &self,
        text: &str,
        at: usize,
        key: &str,
        schema: &Value,
        nodes: &[&Value],
        commands: &[&str],
    ) -> Vec<Proposal> {
        let mut typed = self.typed.as_str();
        let mut words: Vec<(String, String)> = Vec::new();
        for node in nodes.iter().flat_map(|node| possible_schemas(schema, node)) {
            let named = node["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
            words.extend(named.map(|word| (word.to_owned(), String::new())));
            if has_type(node, "boolean") {
                words.extend(["true", "false"].map(|word| (word.to_owned(), String::new())));
            }
        }
        match key {
            "needs" => {
                words.extend(step_ids(text, text.len()).into_iter().map(|id| (id, "a step".to_owned())))
            }
            "pipeline" => {
                typed = typed.rsplit('|').next().unwrap_or(typed).trim_start();
                words.extend(commands.iter().map(|name| ((*name).to_owned(), "a command".to_owned())));
            }
            "stdin" | "when" | "condition" | "for_each" | "switch" if typed.is_empty() => {
                let steps = step_ids(text, at);
                words.extend(
                    steps.into_iter().map(|id| (format!("${id}.json"), "what the step gave".to_owned())),
                );
            }
            _ => {}
        }
        words.retain(|(word, _)| word.starts_with(typed) && word != typed);
        words.dedup();
        let replaces = at - typed.len()..at;
        let proposal = |(label, about): (String, String)| Proposal {
            insert: label.clone(),
            label,
            about,
            replaces: replaces.clone(),
        };
        words.into_iter().map(proposal).collect()
    }
}

// ---- the schema

/// Start of a field's value.
enum Kind {
    Text,
    List,
    Map,
}

fn kind_of(schema: &Value, field: &Value) -> Kind {
    let choices = possible_schemas(schema, field);
    // If a text is allowed, it is the usual form.
    if choices.iter().any(|node| {
        ["string", "boolean", "number", "integer"].iter().any(|kind| has_type(node, kind))
            || node.get("enum").is_some()
    }) {
        return Kind::Text;
    }
    match choices.as_slice() {
        [] => Kind::Text,
        [first, ..] if has_type(first, "array") => Kind::List,
        [first, ..] if has_type(first, "object") => Kind::Map,
        _ => Kind::Text,
    }
}

fn has_type(node: &Value, kind: &str) -> bool {
    match &node["type"] {
        Value::String(one) => one == kind,
        Value::Array(several) => several.iter().any(|one| one == kind),
        _ => false,
    }
}

/// Possible schemas of a value, with references resolved.
fn possible_schemas<'s>(schema: &'s Value, node: &'s Value) -> Vec<&'s Value> {
    if let Some(name) = node["$ref"].as_str().and_then(|name| name.strip_prefix("#/definitions/")) {
        return possible_schemas(schema, &schema["definitions"][name]);
    }
    match node["oneOf"].as_array() {
        Some(several) => several.iter().flat_map(|one| possible_schemas(schema, one)).collect(),
        None => vec![node],
    }
}

/// Schemas of the contents of a part.
fn into<'s>(schema: &'s Value, nodes: &[&'s Value], part: &Part) -> Vec<&'s Value> {
    let mut found = Vec::new();
    for node in nodes.iter().flat_map(|node| possible_schemas(schema, node)) {
        let below = match part {
            Part::Key(key) => node["properties"].get(key).or_else(|| node.get("additionalProperties")),
            Part::Entry => node.get("items"),
        };
        found.extend(below.filter(|below| below.is_object()));
    }
    found
}

/// The fields that maps of these schemas may have, by name.
fn fields_of(schema: &Value, nodes: &[&Value]) -> BTreeMap<String, Value> {
    let maps = nodes.iter().flat_map(|node| possible_schemas(schema, node));
    maps.filter_map(|node| node["properties"].as_object())
        .flatten()
        .map(|(name, field)| (name.clone(), field.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proposals at the position of `‸`.
    fn proposed_labels(text: &str) -> Vec<String> {
        proposals_at_mark(text).into_iter().map(|proposal| proposal.label).collect()
    }

    fn proposals_at_mark(text: &str) -> Vec<Proposal> {
        let at = text.find('‸').unwrap();
        propose_completions(&text.replace('‸', ""), at, &["json", "where", "pick"])
    }

    #[test]
    fn fields_are_those_of_the_place() {
        assert!(proposed_labels("‸").contains(&"steps".to_owned()));
        assert_eq!(proposed_labels("name: x\ncost‸"), ["cost_limit"]);
        assert_eq!(proposed_labels("cost_limit:\n  ‸"), ["action", "max_usd", "unpriced"]);
        assert_eq!(proposed_labels("steps:\n  - id: a\n    ret‸"), ["retry"]);
        assert_eq!(proposed_labels("steps:\n- id: a\n  ret‸"), ["retry"]);
        assert_eq!(proposed_labels("steps:\n  - ru‸"), ["run"]);
        assert_eq!(proposed_labels("steps:\n  - {id: a, ru‸"), ["run"]);
        assert_eq!(
            proposed_labels("steps:\n  - id: a\n    run: x\n  - id: b\n    run: y\n    on_e‸"),
            ["on_error"]
        );
        assert_eq!(proposed_labels("steps:\n- id: a\n- id: b\n  on_e‸\n- id: c\n"), ["on_error"]);
        assert_eq!(proposed_labels("steps:\n  - id: a\n    steps:\n      - id: b\n  - ru‸"), ["run"]);
        assert!(
            !proposed_labels("steps:\n  - id: a\n    run: x\n    ‸").contains(&"run".to_owned()),
            "it stands there"
        );
        assert_eq!(
            proposed_labels("steps:\n  - id: a\n    retry:\n      max: 3\n      ‸"),
            ["backoff", "delay_ms", "jitter", "max_delay_ms"]
        );
        assert_eq!(proposed_labels("steps:\n  - {id: a, retry: {max: 3, ba‸"), ["backoff"]);
        assert_eq!(
            proposed_labels(
                "steps:\n  - id: a\n    for_each: $x.json\n    steps:\n      - id: b\n        on_‸"
            ),
            ["on_error"]
        );
        assert_eq!(
            proposed_labels("steps:\n  - id: a\n    cases:\n      big:\n        - id: b\n          pip‸"),
            ["pipeline"]
        );
        assert_eq!(proposed_labels("on:\n  schedule:\n    cr‸"), ["cron"]);
        assert_eq!(proposed_labels("args:\n  who:\n    de‸"), ["default", "description"]);
    }

    #[test]
    fn values_are_those_of_the_field() {
        assert_eq!(proposed_labels("steps:\n  - id: a\n    on_error: ‸"), ["stop", "continue", "skip_rest"]);
        assert_eq!(proposed_labels("steps:\n  - {id: a, on_error: st‸"), ["stop"]);
        assert_eq!(proposed_labels("steps:\n  - id: a\n    idempotent: ‸"), ["true", "false"]);
        assert_eq!(proposed_labels("steps:\n  - id: a\n    pipeline: json | wh‸"), ["where"]);
        assert_eq!(proposed_labels("steps:\n  - id: one\n  - id: two\n    needs: [o‸"), ["one"]);
        assert_eq!(proposed_labels("steps:\n  - id: one\n  - id: two\n    needs:\n      - o‸"), ["one"]);
        assert_eq!(
            proposed_labels("steps:\n  - id: one\n    run: x\n  - id: two\n    stdin: ‸"),
            ["$one.json"]
        );
        assert!(
            proposed_labels("steps:\n  - id: a\n    run: |\n      ru‸").is_empty(),
            "the text of a shell is nobody's field"
        );
        assert!(proposed_labels("# na‸").is_empty() && proposed_labels("name: na‸").is_empty());
    }

    #[test]
    fn references_name_earlier_steps_results_and_arguments() {
        let steps = "args:\n  who: {default: ann}\n  count:\n    type: integer\nsteps:\n  - id: one\n    run: x\n  - id: two\n    run: 'echo ";
        assert_eq!(proposed_labels(&format!("{steps}$‸")), ["one"]);
        assert_eq!(proposed_labels(&format!("{steps}$one.st‸")), ["stdout"]);
        assert_eq!(proposed_labels(&format!("{steps}${{‸")), ["who", "count"]);
        assert_eq!(
            proposed_labels("args: {who: {default: 1}, n: {type: integer}}\nsteps: [{id: a, run: 'echo ${‸"),
            ["who", "n"]
        );
        let one = &proposals_at_mark(&format!("{steps}$o‸"))[0];
        assert_eq!((one.insert.as_str(), &one.replaces), ("one.", &(steps.len() + 1..steps.len() + 2)));
    }

    #[test]
    fn what_is_inserted_goes_on_where_it_must() {
        let text = "steps:\n  - id: a\n    retr‸";
        let retry = &proposals_at_mark(text)[0];
        assert_eq!(retry.insert, "retry:\n      ");
        assert_eq!(&text[retry.replaces.clone()], "retr");
        assert_eq!(proposals_at_mark("ste‸")[0].insert, "steps:\n  - ");
    }

    #[test]
    fn any_text_and_any_place_give_an_answer() {
        let mut seed = 11_u64;
        let mut next = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(seed >> 33).unwrap() % below
        };
        let pieces = [
            "steps:", "\n", "  ", "- ", "id: a", "{", "}", "[", "ü", "$", "${", ".", ",", ": ", "run: |",
            "needs", "#", "\t", "'", "on:", "-", "\r\n",
        ];
        for _ in 0..3000 {
            let text: String = (0..next(30)).map(|_| pieces[next(pieces.len())]).collect();
            let at = next(text.len() + 1);
            for proposal in propose_completions(&text, at, &["json"]) {
                assert!(
                    text.get(proposal.replaces.clone()).is_some() && proposal.replaces.end <= at,
                    "{text:?} {at} {proposal:?}"
                );
            }
        }
    }
}
