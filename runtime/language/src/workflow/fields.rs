//! Known fields, and the probable meaning of unknown ones.

use super::super::codes;
use super::super::diagnostic::Diagnostic;
use super::super::source::Node;
use super::Lowering;

pub(super) const TOP_FIELDS: &[&str] = &[
    "name",
    "description",
    "args",
    "env",
    "cwd",
    "steps",
    "cost_limit",
    "budget",
    "secrets",
    "version",
    "changes",
    "concurrency",
    "on",
    "notify",
];

/// Fields of a step. `name` and `description` are notes for readers.
pub(crate) const STEP_FIELDS: &[&str] = &[
    "id",
    "name",
    "description",
    "run",
    "command",
    "pipeline",
    "workflow",
    "workflow_args",
    "parallel",
    "for_each",
    "repeat",
    "steps",
    "item_var",
    "index_var",
    "batch_size",
    "pause_ms",
    "concurrency",
    "switch",
    "cases",
    "default",
    "component",
    "args",
    "js",
    "mcp",
    "exec",
    "env",
    "cwd",
    "stdin",
    "approval",
    "input",
    "wait",
    "when",
    "condition",
    "needs",
    "retry",
    "timeout_ms",
    "on_error",
    "cache",
    "inputs",
    "idempotent",
    "stop_grace",
    "secrets",
    "credentials",
    "budget",
    "grants",
    "limits",
    "changes",
    "undo",
];

/// Fields of a step's `undo:`.
pub(super) const UNDO_FIELDS: &[&str] = &[
    "run",
    "exec",
    "component",
    "workflow",
    "args",
    "workflow_args",
    "stdin",
    "env",
    "cwd",
    "timeout_ms",
    "grants",
    "limits",
    "secrets",
    "credentials",
];

/// Fields of `undo:` of which one is required.
pub(super) const UNDO_WORK: &[&str] = &["run", "exec", "component", "workflow"];

pub(super) const PARALLEL_FIELDS: &[&str] = &["wait", "timeout_ms", "branches"];
pub(super) const REPEAT_FIELDS: &[&str] = &["until", "every", "max"];
pub(super) const WAIT_FIELDS: &[&str] = &["until", "event", "timeout"];
pub(super) const RETRY_FIELDS: &[&str] = &["max", "backoff", "delay_ms", "max_delay_ms", "jitter"];
pub(super) const INPUT_FIELDS: &[&str] = &["prompt", "responseSchema", "defaults"];
pub(super) const COST_FIELDS: &[&str] = &["max_usd", "action", "unpriced"];
/// Fields of a step's `budget:` and of `day:` in the budget of a file.
pub(super) const BUDGET_FIELDS: &[&str] = &["calls", "tokens", "usd", "unpriced"];
pub(super) const FILE_BUDGET_FIELDS: &[&str] = &["calls", "tokens", "usd", "unpriced", "day"];
pub(super) const DAY_BUDGET_FIELDS: &[&str] = &["calls", "tokens", "usd"];
pub(super) const APPROVAL_FIELDS: &[&str] = &[
    "prompt",
    "items",
    "preview",
    "initiated_by",
    "initiatedBy",
    "required_approver",
    "requiredApprover",
    "require_different_approver",
    "requireDifferentApprover",
];

/// Names from other tools and older versions, with the correct form.
const FOREIGN: &[(&str, &str)] = &[
    ("on_success", "put `when: $<id>.json` or the like on the step that should follow"),
    ("on_fail", "use `on_error: continue`, and `when: $<id>.error` on the step that should follow"),
    ("on_failure", "use `on_error: continue`, and `when: $<id>.error` on the step that should follow"),
    ("on_approve", "put `when: $<id>.approved` on the step that should follow"),
    ("on_reject", "a refused approval ends the run; steps after it do not run"),
    ("goto", "choose with `when:` or `switch:`, repeat with `repeat:`"),
    ("depends_on", "did you mean `needs`?"),
    ("dependsOn", "did you mean `needs`?"),
    ("requires", "did you mean `needs`?"),
    ("until", "steps are repeated with `repeat: {until: ..., max: ...}` and `steps:`"),
    ("max_parallel", "did you mean `concurrency`?"),
    ("parallelism", "did you mean `concurrency`?"),
    ("capture", "output is always captured; read it with `$<id>.json` or `$<id>.stdout`"),
    ("output", "output is always captured; read it with `$<id>.json` or `$<id>.stdout`"),
    ("outputs", "output is always captured; read it with `$<id>.json` or `$<id>.stdout`"),
    ("foreach", "did you mean `for_each`?"),
    ("approve", "did you mean `approval`?"),
    ("if", "did you mean `when`?"),
    ("timeout", "did you mean `timeout_ms`?"),
    ("retries", "did you mean `retry: {max: ...}`?"),
    ("shell", "did you mean `run`?"),
    ("script", "did you mean `run`?"),
    ("branches", "branches are listed under `parallel:`"),
    ("max_attempts", "did you mean `max`?"),
    ("attempts", "did you mean `max`?"),
    ("schema", "did you mean `responseSchema`?"),
    ("inputs", "did you mean `args`?"),
    ("parameters", "did you mean `args`?"),
];

/// Known name closest to an unknown one, if one is close.
pub(crate) fn nearest_field<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let bare = |name: &str| name.to_ascii_lowercase().replace(['_', '-', '.'], "");
    let wanted = bare(name);
    // Longer names are never close, and the cost of the distance grows with the square of the length.
    if wanted.len() > 40 || known.len() > 1000 {
        return None;
    }
    let distance = |known: &&'k str| strsim::damerau_levenshtein(&wanted, &bare(known));
    let allowed = match wanted.len() {
        0..=2 => 0,
        3..=5 => 1,
        _ => 2,
    };
    known.iter().copied().min_by_key(distance).filter(|known| distance(known) <= allowed)
}

impl Lowering<'_> {
    /// Warns of every key without effect. Keys that begin with `x-` or `.` belong to the author.
    pub(super) fn unknown_fields(&mut self, node: &Node, known: &[&str], place: &str) {
        for entry in node.as_map().unwrap_or_default() {
            let key = entry.key.as_str();
            if self.is_full() {
                return;
            }
            if known.contains(&key) || key.starts_with("x-") || key.starts_with('.') {
                continue;
            }
            let message = format!("unknown field {key:?} in {place} has no effect");
            let mut warning = Diagnostic::warning(self.source, codes::UNKNOWN_FIELD, entry.key_span, message);
            if let Some(name) = nearest_field(key, known) {
                warning = warning
                    .with_help(format!("did you mean `{name}`?"))
                    .with_fix(entry.key_span, name.to_owned());
            } else if let Some((_, help)) = FOREIGN.iter().find(|(foreign, _)| *foreign == key) {
                warning = warning.with_help(*help);
            }
            self.warnings.push(warning);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_names() {
        for (written, meant) in [
            ("timeoutMs", Some("timeout_ms")),
            ("onError", Some("on_error")),
            ("forEach", Some("for_each")),
            ("stdn", Some("stdin")),
            ("aproval", Some("approval")),
            ("comand", Some("command")),
            ("notes", None),
            ("tags", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest_field(written, STEP_FIELDS), meant, "{written}");
        }
        assert_eq!(nearest_field(&"a".repeat(1 << 20), STEP_FIELDS), None);
    }
}
