//! The named workflows `github.pr.monitor` and `github.pr.monitor.notify`.

use lobster_base::code::Code;
use serde_json::{Map, Value, json};

use super::{diff_last, tool};
use lobster_base::json;
use lobster_stage::{Host, StageError, Stop};

/// Fields requested from `gh`.
const FIELDS: &str =
    "number,title,url,state,isDraft,mergeable,reviewDecision,author,baseRefName,headRefName,updatedAt";

/// Fields compared in a summary. (The author is only in the snapshot, as with the incumbent.)
const COMPARED: [&str; 10] = [
    "number",
    "title",
    "url",
    "state",
    "isDraft",
    "mergeable",
    "reviewDecision",
    "updatedAt",
    "baseRefName",
    "headRefName",
];

/// Changes of a pull request since the last successful run.
struct Observed {
    repo: Value,
    number: Value,
    key: Value,
    changed: bool,
    before: Value,
    now: Value,
}

/// `github.pr.monitor`.
pub(super) fn monitor_pr(args: &Map<String, Value>, host: &mut dyn Host) -> Result<Value, Stop> {
    let seen = observe_pr(args, host)?;
    let mut item = json!({
        "kind": "github.pr.monitor",
        "repo": seen.repo,
        "prNumber": seen.number,
        "key": seen.key,
        "changed": seen.changed,
    });
    if !seen.changed && json::to_boolean(args.get("changesOnly")) {
        item["suppressed"] = json!(true);
        return Ok(item);
    }
    item["summary"] = summarize_changes(&seen.before, &seen.now);
    if json::to_boolean(args.get("summaryOnly")) {
        item["pr"] = brief_fields(&seen.now);
    } else {
        item["prSnapshot"] = seen.now;
    }
    Ok(item)
}

/// `github.pr.monitor.notify`.
pub(super) fn notify_change(args: &Map<String, Value>, host: &mut dyn Host) -> Result<Value, Stop> {
    let kind = "github.pr.monitor.notify";
    let seen = observe_pr(args, host)?;
    if !seen.changed {
        return Ok(json!({"kind": kind, "suppressed": true}));
    }
    let summary = summarize_changes(&seen.before, &seen.now);
    Ok(json!({
        "kind": kind,
        "changed": true,
        "repo": seen.repo,
        "prNumber": seen.number,
        "message": update_message(&seen, &summary),
        "pr": brief_fields(&seen.now),
        "summary": summary,
    }))
}

fn observe_pr(args: &Map<String, Value>, host: &mut dyn Host) -> Result<Observed, Stop> {
    let field = |name: &str| args.get(name).filter(|value| json::to_boolean(Some(value))).cloned();
    let (Some(repo), Some(number)) = (field("repo"), field("pr")) else {
        return Err(StageError::permanent("github.pr.monitor requires args.repo and args.pr").into());
    };
    let (repo_text, number_text) = (json::js_string(&repo), json::js_string(&number));
    if repo_text.starts_with('-') || number_text.starts_with('-') {
        return Err(
            StageError::permanent("github.pr.monitor args.repo and args.pr must not begin with -").into()
        );
    }
    let key = field("key").unwrap_or_else(|| json!(format!("github.pr:{repo_text}#{number_text}")));
    let now = view_pr(&repo_text, &number_text, host)?;
    let diff = diff_last::compare_snapshot(&json::js_string(&key), now, host)?;
    Ok(Observed { repo, number, key, changed: diff.changed, before: diff.before, now: diff.after })
}

fn view_pr(repo: &str, number: &str, host: &mut dyn Host) -> Result<Value, Stop> {
    let argv = ["gh", "pr", "view", number, "--repo", repo, "--json", FIELDS].map(str::to_owned).to_vec();
    let finished = tool::run(host, argv, None, false, |error| {
        (error.has_code(Code::ProgramNotFound))
            .then(|| "gh not found on PATH (install GitHub CLI)".to_owned())
    })?;
    if !finished.has_succeeded() {
        let (stderr, stdout) = (finished.stderr.trim(), finished.stdout.trim());
        return Err(finished.failure("gh", if stderr.is_empty() { stdout } else { stderr }).into());
    }
    json::parse(finished.stdout.trim())
        .map_err(|error| StageError::new(format!("gh returned non-JSON output ({error})")).into())
}

fn summarize_changes(before: &Value, now: &Value) -> Value {
    let value = |of: &Value, name: &str| of.get(name).cloned().unwrap_or_default();
    let mut changes = Map::new();
    for name in COMPARED {
        let (from, to) = (value(before, name), value(now, name));
        if before.is_null() || json::stable_text(&from) != json::stable_text(&to) {
            changes.insert(name.to_owned(), json!({"from": from, "to": to}));
        }
    }
    let fields: Vec<&String> = changes.keys().collect();
    json!({"changedFields": fields, "changes": changes})
}

fn brief_fields(pr: &Value) -> Value {
    let fields = ["number", "title", "url", "state", "updatedAt"];
    fields
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), pr.get(name)?.clone())))
        .collect::<Map<_, _>>()
        .into()
}

fn update_message(seen: &Observed, summary: &Value) -> String {
    let text =
        |name: &str| seen.now.get(name).filter(|value| json::to_boolean(Some(value))).map(json::js_string);
    let mut message =
        format!("PR updated: {}#{}", json::js_string(&seen.repo), json::js_string(&seen.number));
    if let Some(title) = text("title") {
        message.push_str(&format!(": {title}"));
    }
    let fields: Vec<&str> =
        summary["changedFields"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !fields.is_empty() {
        message.push_str(&format!(" ({})", fields.join(", ")));
    }
    message.push('.');
    if let Some(url) = text("url") {
        message.push_str(&format!(" {url}"));
    }
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::recording_host::{RecordingHost, error_of, run};
    use super::super::workflows_run::SPEC;
    use super::*;

    fn sample_pr(state: &str) -> String {
        json!({
            "number": 7, "title": "Add  claws", "url": "https://example.test/pr/7", "state": state, "isDraft": false,
            "mergeable": "MERGEABLE", "reviewDecision": "", "author": {"login": "ada"}, "baseRefName": "main",
            "headRefName": "claws", "updatedAt": "2024-01-02T03:04:05Z",
        })
        .to_string()
    }

    fn host_with_pr(state: &str) -> RecordingHost {
        let mut host = RecordingHost::new();
        let answer = sample_pr(state);
        host.set_natives(move |_| Ok((0, answer.clone(), String::new())));
        host
    }

    fn workflow_args(name: &str, args: &Value) -> Value {
        json!({"name": name, "args-json": args.to_string()})
    }

    #[test]
    fn monitors_from_run_to_run() {
        let mut host = host_with_pr("OPEN");
        let plain = workflow_args("github.pr.monitor", &json!({"repo": "acme/shop", "pr": 7}));
        let first = run(&SPEC, &plain, vec![], &mut host).unwrap().remove(0);
        assert_eq!(
            host.started_programs()[0],
            ["gh", "pr", "view", "7", "--repo", "acme/shop", "--json", FIELDS]
        );
        assert_eq!(first["key"], "github.pr:acme/shop#7");
        assert_eq!(first["summary"]["changedFields"], json!(COMPARED));
        assert_eq!(first["summary"]["changes"]["isDraft"], json!({"from": null, "to": false}));
        assert_eq!(first["prSnapshot"].to_string(), sample_pr("OPEN"));
        // A later stage of the pipeline failed: the next run sees the change again.
        host.start_new_run();
        assert_eq!(run(&SPEC, &plain, vec![], &mut host).unwrap()[0], first);
        host.complete_run();
        host.start_new_run();
        let quiet =
            workflow_args("github.pr.monitor", &json!({"repo": "acme/shop", "pr": 7, "changesOnly": true}));
        assert_eq!(
            run(&SPEC, &quiet, vec![], &mut host).unwrap()[0],
            json!({"kind": "github.pr.monitor", "repo": "acme/shop", "prNumber": 7, "key": "github.pr:acme/shop#7", "changed": false, "suppressed": true})
        );
        host.start_new_run();
        host.set_natives(|_| Ok((0, sample_pr("MERGED"), String::new())));
        let brief =
            workflow_args("github.pr.monitor", &json!({"repo": "acme/shop", "pr": 7, "summaryOnly": true}));
        assert_eq!(
            run(&SPEC, &brief, vec![], &mut host).unwrap()[0],
            json!({
                "kind": "github.pr.monitor", "repo": "acme/shop", "prNumber": 7, "key": "github.pr:acme/shop#7", "changed": true,
                "summary": {"changedFields": ["state"], "changes": {"state": {"from": "OPEN", "to": "MERGED"}}},
                "pr": {"number": 7, "title": "Add  claws", "url": "https://example.test/pr/7", "state": "MERGED", "updatedAt": "2024-01-02T03:04:05Z"},
            })
        );
    }

    #[test]
    fn notifies_once_per_change() {
        let mut host = host_with_pr("OPEN");
        let args =
            workflow_args("github.pr.monitor.notify", &json!({"repo": "a/b", "pr": "1", "key": "mine"}));
        let item = run(&SPEC, &args, vec![], &mut host).unwrap().remove(0);
        assert_eq!(
            item["message"],
            "PR updated: a/b#1: Add claws (number, title, url, state, isDraft, mergeable, reviewDecision, updatedAt, baseRefName, headRefName). https://example.test/pr/7"
        );
        let keys: Vec<_> = item.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["kind", "changed", "repo", "prNumber", "message", "pr", "summary"]);
        host.complete_run();
        host.start_new_run();
        assert_eq!(
            run(&SPEC, &args, vec![], &mut host).unwrap()[0],
            json!({"kind": "github.pr.monitor.notify", "suppressed": true})
        );
    }

    #[test]
    fn failures_of_gh() {
        let plain = workflow_args("github.pr.monitor", &json!({"repo": "a/b", "pr": 1}));
        for (exit, stdout, stderr, part) in [
            (2, "", "no auth\n", "gh failed (2): no auth"),
            (4, "out", "", "gh failed (4): out"),
            (0, "hello", "", "gh returned non-JSON output"),
        ] {
            let mut host = RecordingHost::new();
            host.set_natives(move |_| Ok((exit, stdout.to_owned(), stderr.to_owned())));
            let error = error_of(run(&SPEC, &plain, vec![], &mut host));
            assert!(error.message.starts_with(part), "{}", error.message);
        }
        let mut host = RecordingHost::new();
        host.set_natives(|_| Err(StageError::new("x").with_code(Code::ProgramNotFound)));
        assert_eq!(
            error_of(run(&SPEC, &plain, vec![], &mut host)).message,
            "gh not found on PATH (install GitHub CLI)"
        );
        let args = workflow_args("github.pr.monitor", &json!({"repo": "a/b", "pr": "--web"}));
        assert!(
            error_of(run(&SPEC, &args, vec![], &mut RecordingHost::new()))
                .message
                .contains("must not begin with -")
        );
    }
}
