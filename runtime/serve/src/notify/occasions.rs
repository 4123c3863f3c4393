//! Occasions for notices, and their texts.

use lobster_runtime::replay;
use lobster_runtime::store::service::{NewNotice, Notice, Occasion, Service, StartState};
use lobster_runtime::store::{Gate, RunStatus, StoreError, iso};
use lobster_runtime::text::{Count, clip};
use serde_json::{Value, json};

use super::settings::{NotifySettings, Recipient};
use crate::workflows::Content;

/// Marks in the store: the last question and tick that were checked, and the time of the last check of ends.
const GATES: &str = "told_gates";
const TICKS: &str = "told_ticks";
const ENDS: &str = "told_ends";

/// Time by which the search for ends overlaps the last one, in milliseconds: a clock may be set back, and a transaction
/// may commit late.
const OVERLAP_MS: i64 = 60_000;

/// Longest text of a question or an error in a notice, in characters.
const MAX_TEXT: usize = 1000;

/// Queues notices about everything new since the last check for its recipients. The very first check only sets the
/// marks.
pub(super) fn queue_notices(service: &Service, settings: &NotifySettings) -> Result<(), StoreError> {
    let now = service.store().clock_ms();
    let (gates, ticks) = service.newest_numbers()?;
    let seen = (service.read_mark(GATES)?, service.read_mark(TICKS)?, service.read_mark(ENDS)?);
    let (Some(seen_gates), Some(seen_ticks), Some(seen_ends)) = seen else {
        return service.queue_notices(&[(GATES, gates), (TICKS, ticks), (ENDS, now)], &[]);
    };
    let since = (seen_ends - OVERLAP_MS).max(0);
    let occasions = service.new_occasions(seen_gates, seen_ticks, since)?;
    let mut notices = Vec::new();
    // Covers what was checked, and not what was added meanwhile.
    let (mut to_gate, mut to_tick) = (seen_gates, seen_ticks);
    for occasion in &occasions {
        match occasion {
            Occasion::Question { n, .. } => to_gate = to_gate.max(*n),
            Occasion::Missed { n, .. } => to_tick = to_tick.max(*n),
            Occasion::Answered { .. } | Occasion::Ended { .. } => {}
        }
        notices.extend(notices_of(service, settings, occasion, now)?);
    }
    // Writing costs a sync, so the mark of ends moves only with other writes or from time to time.
    if notices.is_empty() && (to_gate, to_tick) == (seen_gates, seen_ticks) && now - seen_ends < OVERLAP_MS {
        return Ok(());
    }
    service.queue_notices(&[(GATES, to_gate), (TICKS, to_tick), (ENDS, now)], &notices)
}

fn notices_of(
    service: &Service,
    settings: &NotifySettings,
    occasion: &Occasion,
    now: i64,
) -> Result<Vec<NewNotice>, StoreError> {
    let targets = settings.targets.iter();
    let link =
        |path: String| settings.url.as_ref().map(|url| format!("{}/{path}", url.trim_end_matches('/')));
    let new = |target: &Recipient, kind: &str, what: &str, content: &Value| NewNotice {
        key: format!("{kind}/{what}/{}", target.name),
        target: target.name.clone(),
        kind: kind.to_owned(),
        run: None,
        gate: None,
        content: content.clone(),
        due: target.due_time(kind, now),
    };
    let named = match occasion {
        Occasion::Question { workflow, .. }
        | Occasion::Answered { workflow, .. }
        | Occasion::Ended { workflow, .. }
        | Occasion::Missed { workflow, .. } => service
            .find_workflow(workflow)?
            .map(|registered| Content::from_registered(&registered).notify)
            .unwrap_or_default(),
    };
    Ok(match occasion {
        Occasion::Question { gate, run, workflow, .. } => {
            let found = service.store().find_gate(gate)?;
            let content = json!({
                "type": "question", "workflow": workflow, "run": run.to_string(), "gate": gate,
                "question": prompt_of(&found), "kind": found.kind, "digest": found.binding,
                "approver": found.required_approver, "expiresAt": found.expires_at.map(iso),
                "link": link(format!("questions/{gate}")),
            });
            let wanting = targets.filter(|target| target.wants_notice("question", workflow, &named));
            let about = |one: NewNotice| NewNotice { run: Some(*run), gate: Some(gate.clone()), ..one };
            wanting.map(|target| about(new(target, "question", gate, &content))).collect()
        }
        Occasion::Answered { gate, target, run, workflow } => {
            let found = service.store().find_gate(gate)?;
            let content = json!({
                "type": "answered", "workflow": workflow, "run": run.to_string(), "gate": gate,
                "question": prompt_of(&found), "status": found.status, "answer": found.answer,
                "by": found.answered_by, "link": link(format!("runs/{run}")),
            });
            // Recipients of the question are notified of its answer, whatever their other settings.
            let wanting = targets.filter(|one| one.name == *target);
            let about = |one: NewNotice| NewNotice { run: Some(*run), gate: Some(gate.clone()), ..one };
            wanting.map(|target| about(new(target, "answered", gate, &content))).collect()
        }
        Occasion::Ended { run, workflow, state, why, ended_at, asked } => {
            let summary = service.store().run(*run).ok();
            let status = match (&summary, state) {
                (None, _) => "refused",
                // The run has begun, and continues only if a person resumes it.
                (Some(summary), StartState::Refused) => {
                    replay::read_standing(service.store(), summary).as_str()
                }
                (Some(summary), _) => summary.status.as_str(),
            };
            let kind = if status == RunStatus::Ok.as_str() { "ok" } else { "failed" };
            let error = match state {
                StartState::Refused => why.clone(),
                StartState::Queued
                | StartState::Taken
                | StartState::Parked
                | StartState::Over
                | StartState::Withdrawn => summary.and_then(|summary| summary.error).or_else(|| why.clone()),
            };
            let content = json!({
                "type": kind, "workflow": workflow, "run": run.to_string(), "status": status,
                "error": error.map(|error| clip_line(&error)), "endedAt": iso(*ended_at),
                "link": link(format!("runs/{run}")),
            });
            let wanting =
                targets.filter(|one| one.wants_notice(kind, workflow, &named) || asked.contains(&one.name));
            let about = |one: NewNotice| NewNotice { run: Some(*run), ..one };
            wanting.map(|target| about(new(target, kind, &run.to_string(), &content))).collect()
        }
        Occasion::Missed { n, schedule, workflow, due, count, reason } => {
            let content = json!({
                "type": "missed", "workflow": workflow, "schedule": format!("{workflow}/{schedule}"),
                "due": iso(*due), "count": count, "reason": reason, "link": link("schedules".to_owned()),
            });
            let wanting = targets.filter(|target| target.wants_notice("missed", workflow, &named));
            wanting.map(|target| new(target, "missed", &n.to_string(), &content)).collect()
        }
    })
}

fn prompt_of(gate: &Gate) -> String {
    clip_line(gate.question.get("prompt").and_then(Value::as_str).unwrap_or("a question"))
}

/// Clips text from outside to one line of limited length.
fn clip_line(text: &str) -> String {
    clip(text, MAX_TEXT, Count::Chars).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The text of a notice: a title and lines.
pub(super) fn text_of(notice: &Notice) -> (String, String) {
    let content = &notice.content;
    let text = |name: &str| content[name].as_str().unwrap_or_default().to_owned();
    let workflow = text("workflow");
    let (title, mut lines) = match notice.kind.as_str() {
        "question" => {
            let approver = content["approver"].as_str().map(|who| format!("Only {who} may answer."));
            let mut lines = vec![text("question")];
            lines.extend(approver);
            lines.push(format!("lobster approvals show {}", text("gate")));
            (format!("{workflow} asks"), lines)
        }
        "answered" => {
            let by = content["by"].as_str().map(|by| format!(" by {by}")).unwrap_or_default();
            (format!("{workflow}: {}{by}", text("status")), vec![text("question")])
        }
        "ok" => (format!("{workflow} has succeeded"), vec![format!("lobster show {}", text("run"))]),
        "failed" => {
            let lines = vec![text("error"), format!("lobster show {}", text("run"))];
            (format!("{workflow}: {}", text("status")), lines)
        }
        _ => {
            let count = content["count"].as_u64().unwrap_or(1);
            let times = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
            let lines = vec![
                format!("due {}{times}", text("due")),
                text("reason"),
                format!("lobster schedule why {}", text("schedule")),
            ];
            (format!("{workflow} was not run"), lines)
        }
    };
    lines.extend(content["link"].as_str().map(str::to_owned));
    lines.retain(|line| !line.is_empty());
    (title, lines.join("\n"))
}
