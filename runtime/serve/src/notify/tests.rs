use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use lobster_runtime::language::plan::Told;
use serde_json::{Value, json};

use super::send::{Message, signature_headers};
use super::settings::{Channel, Email, Quiet, Tls};
use super::{BACKOFF_MS, NotifySettings, Recipient, email, occasions};
use crate::hooks::verify::verify_delivery;

fn target(written: Value) -> Result<Recipient, String> {
    serde_json::from_value(written).map_err(|error| error.to_string())
}

fn message(title: &str, text: &str) -> Message {
    Message {
        target: "team".to_owned(),
        offer: None,
        channel: Arc::new(Channel::Command(vec!["/bin/true".to_owned()])),
        secret: Some("whsec_c2VjcmV0".to_owned()),
        key: "question/1a2b3c4d/team".to_owned(),
        at: 5,
        text: (title.to_owned(), text.to_owned()),
        content: json!({ "type": "question" }),
        dir: PathBuf::from("/"),
    }
}

#[test]
fn what_cannot_be_sent_is_refused_with_its_name() {
    let email = |more: Value| {
        let mut email = json!({ "server": "127.0.0.1:25", "from": "a@b.example", "to": ["c@d.example"] });
        email.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "name": "m", "email": email })
    };
    for (written, about) in [
        (json!({ "name": "a b", "command": ["/bin/true"] }), "a name has letters"),
        (json!({ "name": "a" }), "one of command, webhook, ntfy, email, telegram and slack"),
        (
            json!({ "name": "a", "command": ["/bin/true"], "ntfy": { "url": "https://n.example/t" } }),
            "one of command",
        ),
        (json!({ "name": "a", "command": ["tell"] }), "the absolute path"),
        (
            json!({ "name": "a", "command": ["/bin/true"], "on": ["asked"] }),
            "\"asked\" is not one of question",
        ),
        (json!({ "name": "a", "ntfy": { "url": "n.example/t" } }), "url ="),
        (json!({ "name": "a", "ntfy": { "url": "http://n.example/t", "token": "T" } }), "in the clear"),
        (json!({ "name": "a", "ntfy": { "url": "http://127.n.example/t", "token": "T" } }), "in the clear"),
        (json!({ "name": "a", "webhook": { "url": "https://n.example" } }), "secret"),
        (json!({ "name": "a", "webhook": { "url": "file:///x", "secret": "S" } }), "names no host"),
        (email(json!({ "to": ["no address"] })), "\"no address\" is not an address"),
        (email(json!({ "to": [] })), "to is empty"),
        (email(json!({ "server": "mail.example" })), "is not HOST:PORT"),
        (email(json!({ "user": "u" })), "go together"),
        (
            email(json!({ "server": "m.example:25", "tls": "none", "user": "u", "password": "P" })),
            "in the clear",
        ),
        (json!({ "name": "a", "command": ["/bin/true"], "quiet_hours": "late" }), "22:00-07:00"),
        (
            json!({ "name": "a", "command": ["/bin/true"], "quiet_hours": "22:00-07:00", "timezone": "Mars/Base" }),
            "timezone = \"Mars/Base\"",
        ),
        (json!({ "name": "a", "command": ["/bin/true"], "colour": 1 }), "unknown field"),
    ] {
        let refused = target(written.clone()).map(|target| target.name);
        assert!(refused.as_ref().is_err_and(|why| why.contains(about)), "{written}: {refused:?}");
    }
    let good = target(json!({ "name": "a", "command": ["/bin/true"], "workflows": ["report"] })).unwrap();
    let wants = |kind, workflow, named: &[Told]| good.wants_notice(kind, workflow, named);
    assert!(
        wants("question", "report", &[]) && !wants("ok", "report", &[]) && !wants("failed", "other", &[])
    );
    // A workflow that names the target adds to this: with its own kinds, or with the operator's.
    let told = |target: &str, on: &[&str]| {
        vec![Told { target: target.to_owned(), on: on.iter().map(|kind| (*kind).to_owned()).collect() }]
    };
    assert!(wants("failed", "other", &told("a", &[])) && !wants("ok", "other", &told("a", &[])));
    assert!(wants("ok", "other", &told("a", &["ok"])) && !wants("failed", "other", &told("a", &["ok"])));
    assert!(!wants("ok", "other", &told("b", &["ok"])) && wants("question", "report", &told("a", &["ok"])));
}

#[test]
fn quiet_hours_end_where_the_clock_of_the_zone_says() {
    let quiet = Quiet::parse("22:00-07:00", Some("Europe/Zurich"), vec!["question".to_owned()]).unwrap();
    let at = |text: &str| text.parse::<Timestamp>().unwrap().as_millisecond();
    for (now, kind, due) in [
        ("2026-06-01T12:00:00Z", "failed", "2026-06-01T12:00:00Z"),
        ("2026-06-01T20:00:00Z", "failed", "2026-06-02T05:00:00Z"),
        ("2026-06-02T04:59:59Z", "failed", "2026-06-02T05:00:00Z"),
        ("2026-06-02T05:00:00Z", "failed", "2026-06-02T05:00:00Z"),
        ("2026-06-01T23:00:00Z", "question", "2026-06-01T23:00:00Z"),
        // The night in which clocks are set back has an extra hour.
        ("2026-10-24T21:00:00Z", "failed", "2026-10-25T06:00:00Z"),
    ] {
        assert_eq!(quiet.due_time(kind, at(now)), at(due), "{kind} at {now}");
    }
    let noon = Quiet::parse("12:00-13:00", Some("UTC"), Vec::new()).unwrap();
    assert_eq!(noon.due_time("ok", at("2026-06-01T12:30:00Z")), at("2026-06-01T13:00:00Z"));
    assert_eq!(noon.due_time("ok", at("2026-06-01T13:00:00Z")), at("2026-06-01T13:00:00Z"));
}

#[test]
fn our_signature_is_what_our_own_webhooks_believe() {
    let message = message("t", "x");
    let body = r#"{"type":"question"}"#;
    let headers = signature_headers(&message, "1800000000", body);
    let headers =
        headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
    let how = lobster_runtime::language::triggers::Verify::Standard;
    let secrets = [message.secret.clone().unwrap()];
    let now = 1_800_000_000_000;
    assert!(
        verify_delivery(&how, &headers, body.as_bytes(), &secrets, now)
            .is_ok_and(|found| found.id == Some(message.notice_id()))
    );
    assert!(verify_delivery(&how, &headers, b"{}", &secrets, now).is_err());
    assert!(verify_delivery(&how, &headers, body.as_bytes(), &["other".to_owned()], now).is_err());
}

#[test]
fn a_mail_is_a_mail_whatever_its_words_are() {
    let settings = Email {
        server: "localhost:25".to_owned(),
        tls: Tls::None,
        from: "lobster@example.org".to_owned(),
        to: vec!["ann@example.org".to_owned(), "ben@example.org".to_owned()],
        user: None,
        password: None,
    };
    let title = "Prüfung läuft\r\nBcc: eve@example.org ".repeat(4);
    let mail = email::mail_of(&message(&title, ".\r\n.\r\nQUIT\r\n"), &settings);
    let (head, body) = mail.split_once("\r\n\r\n").unwrap();
    assert!(!head.contains("Bcc") && head.contains("To: <ann@example.org>, <ben@example.org>"), "{head}");
    assert!(mail.lines().all(|line| line.len() <= 78 && !line.starts_with('.')), "{mail}");
    assert!(head.is_ascii() && !body.contains("QUIT"), "{mail}");
}

#[test]
fn a_tick_that_was_missed_is_told_once_with_how_many_there_were() {
    use std::sync::atomic::{AtomicI64, Ordering};

    use jiff::tz::TimeZoneDatabase;
    use lobster_runtime::digest::Digest;
    use lobster_runtime::language::triggers::{Due, Missed, Overlap, Schedule, Triggers};
    use lobster_runtime::store::Store;
    use lobster_runtime::store::service::Registration;

    let at = |text: &str| text.parse::<Timestamp>().unwrap().as_millisecond();
    let time = Arc::new(AtomicI64::new(at("2026-06-01T12:00:30Z")));
    let clock = Arc::clone(&time);
    let store = Store::in_memory_with(Arc::new(move || clock.load(Ordering::SeqCst))).unwrap();
    let service = store.service().unwrap();
    let schedule = Schedule {
        span: Default::default(),
        name: "minutely".to_owned(),
        due: Due::Cron { pattern: "* * * * *".to_owned(), timezone: "UTC".to_owned() },
        jitter_ms: 0,
        missed: Missed::Skip,
        overlap: Overlap::Allow,
        args: serde_json::Map::new(),
    };
    let triggers = Triggers { schedules: vec![schedule], ..Triggers::default() };
    let zones = TimeZoneDatabase::bundled();
    let schedules = crate::schedule::specs_of("report", &triggers, store.clock_ms(), &zones).unwrap();
    let registration = Registration {
        name: "report".to_owned(),
        path: "/report.lobster".to_owned(),
        digest: Digest::of_bytes(b"report"),
        content: "{}".to_owned(),
        schedules,
    };
    service.register_workflow(&registration, Some("ann"), "test", None).unwrap();
    let wants = |name: &str, on: &[&str]| {
        target(json!({ "name": name, "command": ["/bin/true"], "on": on })).unwrap()
    };
    let targets = vec![wants("ann", &["missed"]), wants("ben", &["question", "failed", "ok"])];
    let settings = NotifySettings { url: Some("https://flows.example".to_owned()), targets };
    let mut scheduler = crate::schedule::Scheduler::new(&store).unwrap().with_zones(zones);
    scheduler.decide_due().unwrap();
    occasions::queue_notices(&service, &settings).unwrap();
    // No server ran for an hour.
    time.store(at("2026-06-01T13:00:30Z"), Ordering::SeqCst);
    scheduler.decide_due().unwrap();
    occasions::queue_notices(&service, &settings).unwrap();
    occasions::queue_notices(&service, &settings).unwrap();
    let told = service.list_notices(10).unwrap();
    let missed: Vec<_> = told.iter().filter(|notice| notice.kind == "missed").collect();
    assert_eq!((told.len(), missed.len(), missed[0].target.as_str()), (1, 1, "ann"), "{told:?}");
    assert_eq!(missed[0].content["count"], 59, "{missed:?}");
    let (title, text) = occasions::text_of(missed[0]);
    assert_eq!(title, "report was not run");
    assert!(text.contains("and 58 more") && text.contains("schedule why report/minutely"), "{text}");
    assert!(text.contains("https://flows.example/schedules"), "{text}");
}

#[test]
fn a_notice_is_tried_for_most_of_a_day() {
    assert!(BACKOFF_MS.is_sorted() && BACKOFF_MS.iter().sum::<i64>() > 18 * 3_600_000);
}
