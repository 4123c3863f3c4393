//! Diagnostics of `on:`.

use std::io;
use std::sync::Arc;

use super::super::diagnostic::{Diagnostic, Severity};
use super::super::source::Source;
use super::super::triggers::{Due, Missed, Overlap, Source as From, Triggers, Verify};
use super::{check, load_to_run};

const STEPS: &str =
    "args: {n: {type: integer}, branch: {type: string, default: main}}\nsteps: [{id: a, run: 'true'}]\n";

fn source(text: &str) -> Arc<Source> {
    Arc::new(Source::new("t.lobster", "/d/t.lobster", text.as_bytes()))
}

fn diagnostics_of(text: &str) -> Vec<Diagnostic> {
    let commands = lobster_stages::builtin();
    check(&source(text), &|_| Err(io::ErrorKind::NotFound.into()), &commands).diagnostics
}

fn valid_triggers(on: &str) -> Triggers {
    let text = format!("{STEPS}on:\n{on}");
    let report = check(&source(&text), &|_| Err(io::ErrorKind::NotFound.into()), &lobster_stages::builtin());
    assert_eq!(report.diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>(), [] as [String; 0]);
    report.workflow.unwrap().triggers
}

#[test]
fn triggers_are_read() {
    let found = valid_triggers(
        "  schedule:\n  - {name: night, cron: '30 2 * * *', timezone: Europe/Berlin, jitter: 5m, args: {n: 3}}\n\
         \x20 - {name: often, every: 15m, missed: {policy: all, max: 5, within: 2h}, overlap: {policy: queue, max: 3}}\n\
         \x20 - {name: plain, every: 1d, overlap: cancel_previous}\n\
         \x20 webhook:\n  - {path: /git/push, verify: github, secret: GIT, args: {branch: $body.ref, n: $body.commits.0.n}}\n\
         \x20 - {path: x, verify: hmac, header: X-Sig, secret: [NEW, OLD]}\n\
         \x20 after: {workflow: fetch.lobster, ended: any, args: {branch: $run.status}}\n\
         \x20 watch: {paths: ['in/*.csv'], settle: 5s, args: {branch: $watch.paths.0}}\n",
    );
    let due = Due::Cron { pattern: "30 2 * * *".to_owned(), timezone: "Europe/Berlin".to_owned() };
    assert_eq!((&found.schedules[0].due, found.schedules[0].jitter_ms), (&due, 300_000));
    assert_eq!(found.schedules[0].missed, Missed::Last { within_ms: None });
    assert_eq!(found.schedules[0].args["n"], 3);
    assert_eq!(found.schedules[1].missed, Missed::All { max: 5, within_ms: Some(7_200_000) });
    assert_eq!(found.schedules[1].overlap, Overlap::Queue { max: 3 });
    assert_eq!(found.schedules[2].overlap, Overlap::CancelPrevious);
    assert_eq!(found.webhooks[0].path, "git/push");
    assert_eq!(found.webhooks[0].args["branch"], From::Path(vec!["ref".to_owned()]));
    assert_eq!(found.webhooks[1].verify, Verify::Hmac { header: "x-sig".to_owned() });
    assert_eq!(found.webhooks[1].secrets, ["NEW", "OLD"]);
    assert_eq!((found.after.len(), found.watch[0].settle_ms), (1, 5000));
    // The server stores triggers as JSON, which must restore the same value.
    let kept: Triggers = serde_json::from_value(serde_json::to_value(&found).unwrap()).unwrap();
    assert_eq!(kept, found);
    assert_eq!(valid_triggers("  schedule: {every: 5m}\n").schedules[0].missed, Missed::Skip);
}

#[test]
fn what_could_only_fail_when_due_is_an_error() {
    for (on, marked, message) in [
        ("  schedule: {cron: 0 0 30 2 *}", "0 0 30 2 *", "never due"),
        ("  schedule: {cron: 99 * * * *}", "99 * * * *", "on.schedule.cron"),
        ("  schedule: {cron: 5}", "5", "must be a text"),
        ("  schedule: {cron: '@daily', timezone: Europe/Berlim}", "Europe/Berlim", "no time zone"),
        ("  schedule: {every: 10m, timezone: UTC}", "UTC", "no meaning with `every`"),
        ("  schedule: {every: 10ms}", "10ms", "at least 1s"),
        ("  schedule: {every: soon}", "soon", "must be a duration"),
        ("  schedule: {every: 10m, jitter: 10m}", "10m", "shorter than the time between"),
        ("  schedule: {}", "{}", "takes one of cron and every"),
        ("  schedule: {cron: '@daily', every: 1h}", "{cron: '@daily', every: 1h}", "takes one of"),
        ("  schedule: [{name: b, every: 1h}, {every: 2h}]", "{every: 2h}", "needs a name"),
        ("  schedule: []", "[]", "must be a map"),
        ("  schedule: {every: 1h, mised: skip}", "mised", "no field"),
        ("  schedule: {every: 1h, missed: none}", "none", "must be one of skip, last, all"),
        ("  schedule: {every: 1h, missed: {policy: last, max: 3}}", "3", "no meaning with the policy last"),
        ("  schedule: {every: 1h, missed: {policy: all, max: 0}}", "0", "between 1 and 1000"),
        ("  schedule: {every: 1h, overlap: {policy: skip, max: 3}}", "3", "no meaning"),
        ("  schedule: {every: 1h, args: {m: 1}}", "m", "declares no argument"),
        ("  schedule: {every: 1h, args: {n: text}}", "text", "must be of type integer"),
        ("  schedule: {every: 1h, args: {branch: $body.ref}}", "$body.ref", "a schedule provides no data"),
        ("  webhook: {path: x, verify: github}", "{path: x, verify: github}", "on.webhook.secret"),
        ("  webhook: {path: x, secret: S}", "{path: x, secret: S}", "verify is missing"),
        ("  webhook: {path: ../x, verify: github, secret: S}", "../x", "segments"),
        ("  webhook: {path: x, verify: hmac, secret: S}", "hmac", "header is missing"),
        ("  webhook: {path: x, verify: slack, header: h, secret: S}", "h", "no meaning"),
        ("  webhook: {path: x, verify: none, secret: S}", "none", "must be one of standard"),
        ("  webhook: {path: x, verify: slack, secret: S, args: {brunch: $body.x}}", "brunch", "declares no"),
        ("  webhook: {path: x, verify: slack, secret: S, args: {n: $boddy.x}}", "$boddy.x", "there is no"),
        (
            "  webhook: {path: x, verify: slack, secret: S, args: {branch: '$.issue.title'}}",
            "$.issue.title",
            "is not a reference",
        ),
        (
            "  webhook: {path: x, verify: slack, secret: S, args: {branch: '$boddy'}}",
            "$boddy",
            "is not a reference",
        ),
        (
            "  webhook: {path: x, verify: slack, secret: S, args: {branch: '${body.ref}'}}",
            "${body.ref}",
            "is not a reference",
        ),
        (
            "  webhook: {path: x, verify: slack, secret: S, args: {branch: 'ref $body.ref'}}",
            "ref $body.ref",
            "is not a reference",
        ),
        (
            "  webhook: {path: x, verify: slack, secret: S, args: {branch: '$body.ref now'}}",
            "$body.ref now",
            "is not a reference",
        ),
        ("  schedule: {every: 1h, args: {branch: $body}}", "$body", "is not a reference"),
        ("  after: {workflow: t.lobster}", "t.lobster", "names this file"),
        ("  after: {workflow: o.lobster, ended: well}", "well", "must be one of ok"),
        ("  after: {}", "{}", "workflow is missing"),
        ("  watch: {settle: 1s}", "{settle: 1s}", "names no file"),
        ("  wach: {}", "wach", "no field"),
    ] {
        let text = format!("{STEPS}on:\n{on}\n");
        let said = diagnostics_of(&text);
        assert_eq!(said.len(), 1, "{on}: {said:?}");
        let error = &said[0];
        assert_eq!((error.code, error.severity), ("E0210", Severity::Error), "{on}");
        assert!(error.message.contains(message), "{on}: {}", error.message);
        let shown = &text[error.span.start..error.span.end];
        assert_eq!(shown.trim_matches('\''), marked, "{on}");
        assert!(error.line >= 4, "{on}: {}", error.line);
        // A run does not use triggers, so they do not prevent it.
        let run =
            load_to_run(&source(&text), &|_| Err(io::ErrorKind::NotFound.into()), &lobster_stages::builtin());
        assert!(run.unwrap().1.is_empty(), "{on}");
    }
}

#[test]
fn every_wrong_trigger_is_named() {
    let text = format!(
        "{STEPS}on:\n  schedule: [{{name: a, every: 0s}}, {{name: b, cron: x}}, {{name: c, every: 1h}}, {{name: c, every: 2h}}]\n"
    );
    let said = diagnostics_of(&text);
    let messages: Vec<&str> = said.iter().map(|error| error.message.as_str()).collect();
    assert_eq!(messages.len(), 3, "{messages:?}");
    assert!(messages[2].contains("taken twice"), "{messages:?}");
    let needed = "args: {n: {required: true}}\nsteps: [{id: a, run: 'true'}]\non: {schedule: {every: 1h}}\n";
    assert!(diagnostics_of(needed)[0].message.contains("\"n\" is required"));
}

#[test]
fn who_is_told_stands_there_by_name_alone() {
    let told = |written: &str| {
        let text = format!("{STEPS}notify: {written}\n");
        let report =
            check(&source(&text), &|_| Err(io::ErrorKind::NotFound.into()), &lobster_stages::builtin());
        assert!(report.diagnostics.is_empty(), "{written}: {:?}", report.diagnostics);
        let told = report.workflow.unwrap().notify;
        told.into_iter()
            .map(|one| format!("{}={}", one.target, one.on.join("+")))
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(told("phone"), "phone=");
    assert_eq!(told("[phone, team.a]"), "phone= team.a=");
    assert_eq!(told("{failed: [phone, team], ok: team}"), "phone=failed team=failed+ok");
    assert_eq!((told("null"), told("[]"), told("{}")), (String::new(), String::new(), String::new()));
    for (written, about) in [
        ("5", "names targets of the server"),
        ("https://ntfy.sh/topic", "names targets of the server"),
        ("{command: [/bin/mail]}", "notify has no field \"command\""),
        ("{failed: /bin/mail}", "notify.failed names targets"),
        ("{faild: phone}", "no field \"faild\""),
        ("[phone, phone]", "names phone twice"),
        ("[[phone]]", "names targets of the server"),
    ] {
        let said = diagnostics_of(&format!("{STEPS}notify: {written}\n"));
        assert_eq!(said.len(), 1, "{written}: {said:?}");
        assert_eq!((said[0].code, said[0].severity), ("E0210", Severity::Error), "{written}");
        assert!(said[0].message.contains(about), "{written}: {}", said[0].message);
    }
}

#[test]
fn what_others_send_is_no_part_of_a_command() {
    let on = "on: {webhook: {path: x, verify: slack, secret: S, args: {branch: $body.ref, n: 5}}}\n";
    let args = "args: {n: {}, branch: {}}\n";
    for step in [
        "{id: a, run: 'git log ${branch}'}",
        "{id: a, command: 'git log ${branch}'}",
        "{id: a, pipeline: 'exec git log ${branch}'}",
        "{id: a, workflow: '${branch}'}",
        "{id: a, exec: ['${branch}']}",
        "{id: p, parallel: {branches: [{id: a, run: 'echo ${branch}'}]}}",
        "{id: l, for_each: '${n}', steps: [{id: a, run: 'echo ${branch}'}]}",
    ] {
        let found = diagnostics_of(&format!("{args}{on}steps:\n- {step}\n"));
        let errors: Vec<_> = found.iter().filter(|d| d.code == "E0211").collect();
        assert_eq!(errors.len(), 1, "{step}: {found:?}");
        assert_eq!(errors[0].severity, Severity::Error);
    }
    for step in [
        "{id: a, run: 'git log \"$LOBSTER_ARG_BRANCH\"'}",
        "{id: a, run: cat, stdin: '${branch}'}",
        "{id: a, exec: [git, log, '${branch}']}",
        // The file itself sets this value.
        "{id: a, run: 'head -n ${n}'}",
    ] {
        let found = diagnostics_of(&format!("{args}{on}steps:\n- {step}\n"));
        assert!(found.iter().all(|d| d.code != "E0211"), "{step}: {found:?}");
    }
}

#[test]
fn what_others_send_is_no_part_of_a_command_of_a_sub_workflow() {
    let on =
        "args: {branch: {}}\non: {webhook: {path: x, verify: slack, secret: S, args: {branch: $body.ref}}}\n";
    let file = |path: &std::path::Path| -> io::Result<Arc<Source>> {
        let text = match path.to_str().unwrap() {
            "/d/middle.lobster" => {
                "args: {b: {}}\nsteps: [{id: m, workflow: inner.lobster, workflow_args: {c: '${b}', d: main}}]\n"
            }
            "/d/inner.lobster" => "args: {c: {}, d: {}}\nsteps: [{id: i, run: 'git log ${d} ${c}'}]\n",
            "/d/sound.lobster" => "args: {c: {}}\nsteps: [{id: i, run: 'git log \"$LOBSTER_ARG_C\"'}]\n",
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Arc::new(Source::new(path.display().to_string(), path, text.as_bytes())))
    };
    for (step, is_refused) in [
        ("{id: s, workflow: middle.lobster, workflow_args: {b: '${branch}'}}", true),
        ("{id: s, workflow: inner.lobster, workflow_args: {c: 'x-${branch}'}}", true),
        (
            "{id: p, parallel: {branches: [{id: s, workflow: inner.lobster, workflow_args: {c: '${branch}'}}]}}",
            true,
        ),
        ("{id: s, workflow: middle.lobster, workflow_args: {b: main}}", false),
        ("{id: s, workflow: sound.lobster, workflow_args: {c: '${branch}'}}", false),
    ] {
        let text = format!("{on}steps:\n- {step}\n");
        let found = check(&source(&text), &file, &lobster_stages::builtin()).diagnostics;
        let errors: Vec<_> = found.iter().filter(|d| d.code == "E0211").collect();
        assert_eq!(errors.len(), usize::from(is_refused), "{step}: {found:?}");
    }
}
