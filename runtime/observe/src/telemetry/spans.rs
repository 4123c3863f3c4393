//! Converts the events of a journal to spans.
//!
//! All executions of a run are one trace. Its id is the run's id, unless the caller passed a trace (`TRACEPARENT`) to
//! join. Span ids are digests of the run and the attempt at a step, or of the position in the journal: exporting twice
//! gives the same spans, and a step knows its own id when it begins.

use std::collections::HashMap;

use super::otlp::Value;
use lobster_base::digest::Digest;
use lobster_base::place::containing_places;
use lobster_store::{Event, Record, RunId, RunStatus, StepOutcome, StepStatus};

/// One span, with times in nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TelemetrySpan {
    pub(super) trace: [u8; 16],
    pub(super) id: [u8; 8],
    pub(super) parent: Option<[u8; 8]>,
    /// A span of another trace that caused this one.
    pub(super) link: Option<TraceParent>,
    pub(super) name: String,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) attributes: Attributes,
    pub(super) events: Vec<Moment>,
    pub(super) failed: bool,
    /// True if another program did the work, and lobster waited for its answer.
    pub(super) is_remote_call: bool,
}

pub(super) type Attributes = Vec<(&'static str, Value)>;

/// An event within a span.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Moment {
    pub(super) at: u64,
    pub(super) name: &'static str,
    pub(super) attributes: Attributes,
}

/// The variable that passes on a `traceparent` (OpenTelemetry's environment propagation).
pub const TRACEPARENT: &str = "TRACEPARENT";

/// A position in a trace, as in a W3C `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
}

/// Parses a `traceparent`; `None` if it is invalid.
pub fn trace_parent(text: &str) -> Option<TraceParent> {
    let mut parts = text.trim().split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let parent = TraceParent { trace: parse_hex(trace)?, span: parse_hex(span)? };
    let [version] = parse_hex::<1>(version)?;
    parse_hex::<1>(flags)?;
    let is_whole = parts.next().is_none() || version > 0;
    (version != 0xff && is_whole && parent.trace != [0; 16] && parent.span != [0; 8]).then_some(parent)
}

fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// The trace of a run's executions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunTrace {
    run: RunId,
    id: [u8; 16],
}

impl RunTrace {
    /// The trace of a run that a caller with this `traceparent` started.
    #[must_use]
    pub fn new(run: RunId, caller: Option<&str>) -> Self {
        let id = caller.and_then(trace_parent).map_or(*run.as_bytes(), |caller| caller.trace);
        Self { run, id }
    }

    /// The `traceparent` for the process of an attempt at a step: the step's own span.
    #[must_use]
    pub fn parent_for(&self, path: &str, attempt: u32) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        format!("00-{}-{}-01", hex(&self.id), hex(&attempt_span_id(self.run, path, attempt)))
    }
}

/// The spans of the latest execution in a journal: the span of the execution, and one for each attempt of a step.
pub(super) fn of_latest_execution(journal: &[Record]) -> Vec<TelemetrySpan> {
    let Some((first, Event::RunStarted { name, kind, mode, detail, .. })) =
        journal.first().map(|record| (record, &record.event))
    else {
        return Vec::new();
    };
    let begins =
        |record: &Record| matches!(record.event, Event::RunStarted { .. } | Event::RunResumed { .. });
    let from = journal.iter().rposition(begins).unwrap_or(0);
    let Some((begin, events)) = journal[from..].split_first() else { return Vec::new() };
    let asked = |detail: &serde_json::Value| {
        detail.get("traceparent").and_then(|v| v.as_str()).and_then(trace_parent)
    };
    let caller = asked(detail);
    let trace = Trace {
        run: first.run,
        id: caller.map_or(*first.run.as_bytes(), |caller| caller.trace),
        execution: span_id(first.run, begin.seq),
    };
    let mut steps = trace.step_spans(events);
    let last = events.last().unwrap_or(begin);
    let end = steps.iter().map(|step| step.end).fold(unix_nanos(last.at), u64::max);
    let ended = events.iter().rev().find_map(|record| match &record.event {
        Event::RunEnded { status, detail, .. } => {
            Some((*status, detail.get("code").and_then(|code| code.as_str())))
        }
        Event::RunPaused { .. } => Some((RunStatus::Waiting, None)),
        _ => None,
    });
    let (status, code) = ended.unwrap_or((RunStatus::Running, None));
    let resumed = from > 0;
    let mut attributes = vec![
        ("lobster.run.id", text_value(first.run.to_string())),
        ("lobster.run.kind", text_value(kind)),
        ("lobster.run.mode", text_value(mode)),
        ("lobster.run.status", text_value(status.as_str())),
    ];
    // The name of a pipeline is its text, which may contain anything.
    let is_file = kind == "workflow";
    if is_file {
        attributes.push(("lobster.run.name", text_value(name)));
    }
    if let Some(code) = code {
        attributes.push(("error.type", text_value(code)));
    }
    let verb = if resumed { "resume" } else { "run" };
    let execution = TelemetrySpan {
        trace: trace.id,
        id: trace.execution,
        parent: if resumed { Some(span_id(first.run, first.seq)) } else { caller.map(|caller| caller.span) },
        link: match &begin.event {
            Event::RunResumed { detail, .. } => asked(detail),
            _ => None,
        },
        name: if is_file { format!("{verb} {name}") } else { format!("{verb} {kind}") },
        start: unix_nanos(begin.at),
        end,
        attributes,
        events: approval_events(events),
        failed: status == RunStatus::Failed,
        is_remote_call: false,
    };
    steps.insert(0, execution);
    steps
}

struct Trace {
    run: RunId,
    id: [u8; 16],
    execution: [u8; 8],
}

/// A step's span and its path, until its parent is known.
struct Placed<'j> {
    path: &'j str,
    /// True if it contains steps, whose paths begin with its own.
    is_composite: bool,
    span: TelemetrySpan,
}

impl Trace {
    fn step_spans(&self, events: &[Record]) -> Vec<TelemetrySpan> {
        let mut started: HashMap<(&str, u32), &Record> = HashMap::new();
        let mut placed = Vec::new();
        for record in events {
            match &record.event {
                Event::StepStarted { path, attempt, .. } => {
                    started.insert((path, *attempt), record);
                }
                Event::StepEnded { path, attempt, begun, outcome } => {
                    let begin = started.remove(&(path.as_str(), *attempt));
                    // Results that were only determined and stored are not work.
                    if begin.is_some() || begun.is_some() || *attempt == 0 {
                        let id = match begin.is_some() || begun.is_some() {
                            true => attempt_span_id(self.run, path, *attempt),
                            false => span_id(self.run, record.seq),
                        };
                        placed.push(self.step_span(id, path, begin, record, outcome));
                    }
                }
                _ => {}
            }
        }
        nest_spans(placed, self.execution)
    }

    fn step_span<'j>(
        &self,
        id: [u8; 8],
        path: &'j str,
        begin: Option<&Record>,
        end: &Record,
        outcome: &StepOutcome,
    ) -> Placed<'j> {
        let kind = match (begin.map(|record| &record.event), &end.event) {
            (Some(Event::StepStarted { kind, .. }), _) => kind.clone(),
            (_, Event::StepEnded { begun: Some(begun), .. }) => begun.kind.clone(),
            _ => outcome.detail.get("kind").and_then(|kind| kind.as_str()).unwrap_or("step").to_owned(),
        };
        let duration = outcome.duration_us.saturating_mul(1_000);
        let ended = unix_nanos(end.at);
        // Lazy events have the time at which they were written, which is the same for both.
        let (start, end_at) = match begin.map(|record| unix_nanos(record.at)) {
            Some(at) if ended.saturating_sub(at).saturating_add(1_000_000) >= duration => {
                (at, at.saturating_add(duration))
            }
            _ => (ended.saturating_sub(duration), ended),
        };
        let mut attributes = vec![
            ("lobster.run.id", text_value(self.run.to_string())),
            ("lobster.step.path", text_value(path)),
            ("lobster.step.kind", text_value(&kind)),
            ("lobster.step.status", text_value(outcome.status.as_str())),
        ];
        attributes.extend(outcome.exit.map(|exit| ("process.exit.code", Value::Number(exit.into()))));
        attributes.extend(outcome.fuel.map(|fuel| ("lobster.step.fuel", number_value(fuel))));
        attributes.extend(outcome.peak_memory.map(|bytes| ("lobster.step.peak_memory", number_value(bytes))));
        attributes.extend(outcome.code.as_ref().map(|code| ("error.type", text_value(code))));
        if outcome.cached {
            attributes.push(("lobster.step.cached", Value::Flag(true)));
        }
        let is_model_call = kind == lobster_models::CALL;
        let tool = (kind == "mcp").then(|| tool_call(outcome));
        let mut name = format!("{kind} {}", stable_path(path));
        if is_model_call {
            let call = model_call(outcome);
            // The span's name according to the conventions; its place is an attribute.
            let operation = model_operation(outcome);
            let model = call.iter().find(|(key, _)| *key == "gen_ai.request.model");
            name = match model {
                Some((_, Value::Text(model))) => format!("{operation} {model}"),
                _ => operation.to_owned(),
            };
            attributes.extend(call);
        }
        if let Some(call) = &tool {
            // According to the conventions for MCP. Tool names come from servers, and there are few of them.
            if let Some(tool) = outcome.detail["request"]["tool"].as_str() {
                name = format!("tools/call {tool}");
            }
            attributes.extend(call.iter().cloned());
        }
        let span = TelemetrySpan {
            trace: self.id,
            id,
            parent: None,
            link: None,
            name,
            start,
            end: end_at,
            attributes,
            events: Vec::new(),
            failed: match outcome.status {
                StepStatus::Ok | StepStatus::Skipped | StepStatus::Waiting => false,
                StepStatus::Failed
                | StepStatus::Interrupted
                | StepStatus::Cancelled
                | StepStatus::TimedOut
                | StepStatus::Refused => true,
            },
            is_remote_call: is_model_call || tool.is_some(),
        };
        let begun = matches!(&end.event, Event::StepEnded { begun: Some(_), .. });
        Placed { path, is_composite: begin.is_none() && !begun, span }
    }
}

/// Finds the parents, and extends them to cover their children: the time at which a composite step's record was
/// written says little about its running time.
fn nest_spans(mut placed: Vec<Placed<'_>>, root: [u8; 8]) -> Vec<TelemetrySpan> {
    let composites: HashMap<&str, usize> = placed
        .iter()
        .enumerate()
        .filter(|(_, step)| step.is_composite)
        .map(|(index, step)| (step.path, index))
        .collect();
    let parents: Vec<Option<usize>> = placed
        .iter()
        .enumerate()
        .map(|(own, step)| enclosing_composite(step.path, own, &composites))
        .collect();
    // Longer paths first, so that an extended parent extends its own parent in turn.
    let mut order: Vec<usize> = (0..placed.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(placed[*index].path.len()));
    let mut touched = vec![false; placed.len()];
    for child in order {
        let Some(parent) = parents[child] else {
            placed[child].span.parent = Some(root);
            continue;
        };
        let (start, end, id) = (placed[child].span.start, placed[child].span.end, placed[parent].span.id);
        placed[child].span.parent = Some(id);
        let span = &mut placed[parent].span;
        (span.start, span.end) =
            if touched[parent] { (span.start.min(start), span.end.max(end)) } else { (start, end) };
        touched[parent] = true;
    }
    placed.into_iter().map(|step| step.span).collect()
}

/// The innermost composite step around a path.
fn enclosing_composite(path: &str, own: usize, composites: &HashMap<&str, usize>) -> Option<usize> {
    containing_places(path)
        .rev()
        .filter_map(|around| composites.get(around))
        .copied()
        .find(|found| *found != own)
}

/// The questions and answers of an execution.
fn approval_events(events: &[Record]) -> Vec<Moment> {
    let moment = |record: &Record| {
        let (name, gate, kind) = match &record.event {
            Event::GateOpened { gate, kind, .. } => ("gate.opened", gate, Some(kind)),
            Event::GateAnswered { gate, .. } => ("gate.answered", gate, None),
            Event::GateClosed { gate, .. } => ("gate.closed", gate, None),
            _ => return None,
        };
        let mut attributes = vec![("lobster.gate.id", text_value(gate))];
        attributes.extend(kind.map(|kind| ("lobster.gate.kind", text_value(kind))));
        Some(Moment { at: unix_nanos(record.at), name, attributes })
    };
    events.iter().filter_map(moment).collect()
}

/// The kind of request to a model, in the conventions' term.
fn model_operation(outcome: &StepOutcome) -> &str {
    outcome.detail["request"]["operation"].as_str().unwrap_or("chat")
}

/// The server and tool that were called, by the semantic conventions for MCP.
fn tool_call(outcome: &StepOutcome) -> Attributes {
    let asked = &outcome.detail["request"];
    let mut attributes = vec![
        ("mcp.method.name", text_value("tools/call")),
        ("gen_ai.operation.name", text_value("execute_tool")),
    ];
    let texts =
        [("gen_ai.tool.name", "tool"), ("lobster.mcp.server", "server"), ("server.address", "address")];
    attributes
        .extend(texts.into_iter().filter_map(|(key, name)| Some((key, text_value(asked[name].as_str()?)))));
    attributes.extend(asked["port"].as_u64().map(|port| ("server.port", number_value(port))));
    attributes
}

/// The model that answered and its use, by the semantic conventions for models.
fn model_call(outcome: &StepOutcome) -> Attributes {
    let (answer, asked) = (&outcome.value, &outcome.detail["request"]);
    let mut attributes = vec![("gen_ai.operation.name", text_value(model_operation(outcome)))];
    let texts = [
        ("gen_ai.provider.name", answer.get("provider").or_else(|| asked.get("provider"))),
        ("gen_ai.request.model", asked.get("model")),
        ("gen_ai.response.id", answer.pointer("/result/runId")),
        ("gen_ai.response.model", answer.pointer("/result/model")),
        ("server.address", asked.get("server")),
    ];
    attributes.extend(asked["port"].as_u64().map(|port| ("server.port", number_value(port))));
    attributes.extend(outcome.detail["costUsd"].as_f64().map(|usd| ("lobster.cost.usd", Value::Amount(usd))));
    attributes.extend(texts.into_iter().filter_map(|(key, value)| Some((key, text_value(value?.as_str()?)))));
    let numbers = [
        ("gen_ai.usage.input_tokens", answer.pointer("/result/usage/inputTokens")),
        ("gen_ai.usage.output_tokens", answer.pointer("/result/usage/outputTokens")),
    ];
    attributes
        .extend(numbers.into_iter().filter_map(|(key, value)| Some((key, number_value(value?.as_u64()?)))));
    attributes.extend(
        answer
            .get("hops")
            .and_then(|hops| hops.as_array())
            .map(|hops| ("lobster.model.hops", number_value(hops.len() as u64))),
    );
    attributes
}

/// A path without the parts that differ between iterations and attempts, so that there are few names of spans.
fn stable_path(path: &str) -> String {
    let mut place = String::new();
    let mut skipping = false;
    for c in path.chars() {
        skipping = match c {
            '[' | '#' => true,
            ']' => false,
            _ => skipping && c.is_ascii_digit(),
        };
        if !skipping && c != ']' {
            place.push(c);
        }
    }
    place
}

/// The id of the span for a record of the journal.
fn span_id(run: RunId, seq: u64) -> [u8; 8] {
    id_of(&format!("{run} {seq}"))
}

/// The id of the span for an attempt at a step.
fn attempt_span_id(run: RunId, path: &str, attempt: u32) -> [u8; 8] {
    id_of(&format!("{run} {attempt} {path}"))
}

fn id_of(name: &str) -> [u8; 8] {
    let mut id = [0; 8];
    id.copy_from_slice(&Digest::of_bytes(name.as_bytes()).as_bytes()[..8]);
    id
}

fn unix_nanos(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000)
}

fn text_value(value: impl AsRef<str>) -> Value {
    Value::Text(value.as_ref().to_owned())
}

fn number_value(value: u64) -> Value {
    Value::Number(i64::try_from(value).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample_journal(events: &[(i64, serde_json::Value)]) -> Vec<Record> {
        let run: RunId = "018f3c2e-0000-7000-8000-000000000001".parse().unwrap();
        events
            .iter()
            .zip(1..)
            .map(|((at, event), seq)| Record {
                run,
                seq,
                at: *at,
                prev: Digest::of_bytes(b""),
                event: serde_json::from_value(event.clone()).unwrap(),
                text: String::new(),
            })
            .collect()
    }

    fn run_started(traceparent: Option<&str>) -> serde_json::Value {
        json!({"type": "run_started", "name": "flow", "kind": "workflow", "plan": Digest::of_bytes(b""), "mode": "tool",
               "cwd": "/", "detail": {"traceparent": traceparent}})
    }

    fn step_started(path: &str, kind: &str) -> serde_json::Value {
        json!({"type": "step_started", "path": path, "attempt": 1, "kind": kind, "effect": true})
    }

    fn step_ended(path: &str, attempt: u32, status: &str, us: u64) -> serde_json::Value {
        json!({"type": "step_ended", "path": path, "attempt": attempt,
               "outcome": {"status": status, "error": "secret text", "duration_us": us, "detail": {"kind": "pipeline"}}})
    }

    #[test]
    fn steps_stand_in_what_encloses_them() {
        let spans = of_latest_execution(&sample_journal(&[
            (1_000, run_started(None)),
            (1_010, step_started("fetch|0.0", "native")),
            (1_030, step_ended("fetch|0.0", 1, "ok", 20_000)),
            (1_040, step_started("other", "native")),
            (1_050, step_ended("other", 1, "failed", 10_000)),
            (1_050, step_ended("fetch", 0, "ok", 21_000)),
            (1_060, json!({"type": "run_ended", "status": "failed", "detail": {"code": "oops"}})),
        ]));
        let shown: Vec<_> = spans
            .iter()
            .map(|s| (s.name.as_str(), s.start / 1_000_000, s.end / 1_000_000, s.failed))
            .collect();
        assert_eq!(
            shown,
            [
                ("run flow", 1_000, 1_060, true),
                ("native fetch|0.0", 1_010, 1_030, false),
                ("native other", 1_040, 1_050, true),
                ("pipeline fetch", 1_010, 1_030, false),
            ]
        );
        assert_eq!(spans[1].parent, Some(spans[3].id));
        assert_eq!(
            (spans[2].parent, spans[3].parent, spans[0].parent),
            (Some(spans[0].id), Some(spans[0].id), None)
        );
        assert_eq!(
            &spans[0].trace,
            "018f3c2e-0000-7000-8000-000000000001".parse::<RunId>().unwrap().as_bytes()
        );
        assert!(!format!("{spans:?}").contains("secret"));
    }

    #[test]
    fn a_model_call_is_named_and_told_as_the_conventions_want() {
        let asked = json!({"provider": "openai", "model": "gpt-4o", "server": "api.openai.com", "port": 443});
        let answer = json!({"provider": "openai", "result": {"model": "gpt-4o-2024-08-06", "runId": "c1",
                            "usage": {"inputTokens": 3, "outputTokens": 4}}});
        let ended = |path: &str, outcome: serde_json::Value| json!({"type": "step_ended", "path": path, "attempt": 1, "outcome": outcome});
        let spans = of_latest_execution(&sample_journal(&[
            (1_000, run_started(None)),
            (1_001, step_started("a|0.0", "llm")),
            (
                1_002,
                ended(
                    "a|0.0",
                    json!({"status": "ok", "value": answer, "duration_us": 1, "detail": {"request": asked, "costUsd": 0.25}}),
                ),
            ),
            (1_003, step_started("b|0.0", "llm")),
            (
                1_004,
                ended(
                    "b|0.0",
                    json!({"status": "failed", "code": "model", "duration_us": 1, "detail": {"request": asked}}),
                ),
            ),
            (1_005, step_started("old|0.0", "llm")),
            (1_006, ended("old|0.0", json!({"status": "failed", "duration_us": 1}))),
            (1_007, json!({"type": "run_ended", "status": "ok"})),
        ]));
        let names: Vec<_> = spans.iter().map(|span| (span.name.as_str(), span.is_remote_call)).collect();
        assert_eq!(
            names,
            [("run flow", false), ("chat gpt-4o", true), ("chat gpt-4o", true), ("chat", true)]
        );
        let has =
            |span: &TelemetrySpan, key: &'static str, value: Value| span.attributes.contains(&(key, value));
        for span in &spans[1..3] {
            assert!(has(span, "gen_ai.operation.name", text_value("chat")));
            assert!(has(span, "gen_ai.provider.name", text_value("openai")));
            assert!(has(span, "gen_ai.request.model", text_value("gpt-4o")));
            assert!(
                has(span, "server.address", text_value("api.openai.com"))
                    && has(span, "server.port", number_value(443))
            );
        }
        assert!(has(&spans[1], "gen_ai.response.model", text_value("gpt-4o-2024-08-06")));
        assert!(has(&spans[1], "gen_ai.usage.output_tokens", number_value(4)));
        assert!(has(&spans[1], "lobster.cost.usd", Value::Amount(0.25)));
        assert!(has(&spans[2], "error.type", text_value("model")) && spans[2].failed);
    }

    #[test]
    fn a_tool_call_names_its_server_and_tool() {
        let asked = json!({"server": "tickets", "tool": "create", "address": "tickets.example", "port": 443});
        let outcome =
            json!({"status": "failed", "code": "mcp_login", "duration_us": 1, "detail": {"request": asked}});
        let spans = of_latest_execution(&sample_journal(&[
            (1_000, run_started(None)),
            (1_001, step_started("file", "mcp")),
            (1_002, json!({"type": "step_ended", "path": "file", "attempt": 1, "outcome": outcome})),
            (1_003, json!({"type": "run_ended", "status": "failed"})),
        ]));
        let span = &spans[1];
        assert_eq!((span.name.as_str(), span.is_remote_call, span.failed), ("tools/call create", true, true));
        for (key, value) in [
            ("mcp.method.name", text_value("tools/call")),
            ("gen_ai.operation.name", text_value("execute_tool")),
            ("gen_ai.tool.name", text_value("create")),
            ("lobster.mcp.server", text_value("tickets")),
            ("server.address", text_value("tickets.example")),
            ("server.port", number_value(443)),
            ("error.type", text_value("mcp_login")),
        ] {
            assert!(span.attributes.contains(&(key, value)), "{key}: {:?}", span.attributes);
        }
    }

    #[test]
    fn a_resumed_run_goes_on_in_its_trace() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let other = "00-11111111111111111111111111111111-2222222222222222-01";
        let first = [
            (1_000, run_started(Some(parent))),
            (1_001, step_started("a", "native")),
            (1_002, step_ended("a", 1, "ok", 1_000)),
            (1_002, json!({"type": "run_paused"})),
            (
                1_003,
                json!({"type": "gate_opened", "path": "b!approval", "gate": "4f90c468", "kind": "approval",
                           "binding": Digest::of_bytes(b""), "question": Digest::of_bytes(b"")}),
            ),
        ];
        let whole = of_latest_execution(&sample_journal(&first));
        assert_eq!((whole.len(), whole[0].events[0].name), (2, "gate.opened"));
        let caller = trace_parent(parent).unwrap();
        assert_eq!((whole[0].trace, whole[0].parent), (caller.trace, Some(caller.span)));
        let mut second = Vec::from(first);
        second.push((5_000, json!({"type": "run_resumed", "detail": {"traceparent": other}})));
        second.push((5_001, json!({"type": "run_ended", "status": "ok"})));
        let resumed = of_latest_execution(&sample_journal(&second));
        assert_eq!((resumed.len(), resumed[0].name.as_str()), (1, "resume flow"));
        assert_eq!((resumed[0].trace, resumed[0].parent), (caller.trace, Some(whole[0].id)));
        assert_eq!(resumed[0].link, trace_parent(other));
    }

    #[test]
    fn trace_parents_are_checked() {
        for wrong in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "00-é-b7ad6b7169203331-01",
        ] {
            assert_eq!(trace_parent(wrong), None, "{wrong}");
        }
        assert!(trace_parent("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more").is_some());
    }
}
