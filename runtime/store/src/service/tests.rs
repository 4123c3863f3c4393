use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::{Value, json};

use super::*;
use crate::db::Durability;
use crate::event::{Event, RunStatus};
use crate::journal::NewRun;
use crate::{GcPolicy, RunId};
use lobster_base::digest::Digest;

pub(super) fn service() -> (Service, Arc<AtomicI64>) {
    let time = Arc::new(AtomicI64::new(1_000_000));
    let clock = Arc::clone(&time);
    let store = Store::in_memory_with(Arc::new(move || clock.load(Ordering::SeqCst))).unwrap();
    (store.service().unwrap(), time)
}

fn registration(name: &str, schedules: &[(&str, &str)]) -> Registration {
    Registration {
        name: name.to_owned(),
        path: format!("/flows/{name}.lobster"),
        digest: Digest::of_bytes(name.as_bytes()),
        content: "{}".to_owned(),
        schedules: schedules
            .iter()
            .map(|(name, spec)| SpecOfSchedule {
                name: (*name).to_owned(),
                spec: (*spec).to_owned(),
                next: Some(2_000_000),
            })
            .collect(),
    }
}

fn start(workflow: i64, schedule: Option<i64>, is_serial: bool) -> NewStart {
    NewStart {
        workflow,
        digest: Digest::of_bytes(b"x"),
        schedule,
        cause: "schedule".to_owned(),
        detail: Value::Null,
        args: json!({}),
        actor: None,
        is_serial,
        refusal: None,
    }
}

fn settlement(row: &ScheduleRow, decided: i64, ticks: &[(i64, TickState, Option<usize>)]) -> Settlement {
    let starts = ticks.iter().filter(|(.., start)| start.is_some());
    Settlement {
        schedule: row.n,
        revision: row.revision,
        from: row.decided,
        is_paused: row.paused.is_some(),
        decided,
        next: Some(decided + 1000),
        retraction: None,
        ticks: ticks
            .iter()
            .map(|(due, state, start)| NewTick {
                key: due.to_string(),
                due: *due,
                count: 1,
                last: *due,
                state: *state,
                reason: None,
                start: *start,
            })
            .collect(),
        starts: starts.map(|_| start(row.workflow, Some(row.n), true)).collect(),
        cancel: Vec::new(),
    }
}

fn new_run() -> NewRun {
    NewRun {
        name: "w".to_owned(),
        kind: "workflow".to_owned(),
        plan: Digest::of_bytes(b"plan"),
        args: None,
        mode: "tool".to_owned(),
        actor: None,
        cwd: "/".to_owned(),
        parent: None,
        detail: Value::Null,
    }
}

#[test]
fn a_store_of_runs_alone_has_no_tables_of_a_service() {
    let store = Store::in_memory().unwrap();
    assert!(store.existing_service().unwrap().is_none());
    store.collect_garbage(&GcPolicy { max_age_ms: Some(1), ..GcPolicy::default() }).unwrap();
    assert!(store.existing_service().unwrap().is_none());
    let made = store.service().unwrap();
    assert!(made.list_workflows().unwrap().is_empty() && store.existing_service().unwrap().is_some());
    // A second store of the same directory uses the same tables.
    let other = Store::open(store.dir().parent().unwrap()).unwrap();
    assert!(other.service().unwrap().list_schedules().unwrap().is_empty());
}

#[test]
fn of_two_that_decide_one_counts() {
    let (service, _) = service();
    service.register_workflow(&registration("a", &[("s", "1")]), Some("ann"), "cli", None).unwrap();
    let row = service.list_schedules().unwrap().pop().unwrap();
    let one = settlement(&row, 2_000_000, &[(1_500_000, TickState::Fired, Some(0))]);
    assert_eq!(service.write_settlements(&[one.clone(), one.clone()]).unwrap(), [true, false]);
    assert_eq!(service.write_settlements(&[one]).unwrap(), [false]);
    let ticks = service.list_ticks(row.n, 0, 10).unwrap();
    let starts = service.active_starts(row.n).unwrap();
    assert_eq!((ticks.len(), starts.len()), (1, 1));
    assert_eq!(ticks[0].run, Some(starts[0].run));
    // A tick that ran and is due again because the clock was set back runs once.
    let row = service.list_schedules().unwrap().pop().unwrap();
    let again = settlement(&row, 2_100_000, &[(1_500_000, TickState::Fired, Some(0))]);
    assert_eq!(service.write_settlements(&[again]).unwrap(), [true]);
    assert_eq!(service.active_starts(row.n).unwrap().len(), 1);
}

#[test]
fn neighbours_that_say_the_same_are_one_entry() {
    let (service, _) = service();
    service.register_workflow(&registration("a", &[("s", "1")]), None, "cli", None).unwrap();
    let states = [TickState::Missed, TickState::Missed, TickState::Fired, TickState::Missed];
    let mut decided = 1_000_000;
    for state in states {
        let row = service.list_schedules().unwrap().pop().unwrap();
        decided += 1000;
        let start = (state == TickState::Fired).then_some(0);
        assert_eq!(
            service.write_settlements(&[settlement(&row, decided, &[(decided, state, start)])]).unwrap(),
            [true]
        );
    }
    let row = service.list_schedules().unwrap().pop().unwrap();
    let found: Vec<_> = service
        .list_ticks(row.n, 0, 10)
        .unwrap()
        .iter()
        .map(|tick| (tick.state, tick.count, tick.last))
        .collect();
    assert_eq!(
        found,
        [
            (TickState::Missed, 1, 1_004_000),
            (TickState::Fired, 1, 1_003_000),
            (TickState::Missed, 2, 1_002_000)
        ]
    );
}

#[test]
fn a_changed_schedule_is_a_revision_and_an_equal_one_goes_on() {
    let (service, time) = service();
    service
        .register_workflow(&registration("a", &[("s", "1"), ("t", "1")]), Some("ann"), "cli", None)
        .unwrap();
    let before = service.list_schedules().unwrap();
    time.store(3_000_000, Ordering::SeqCst);
    service
        .register_workflow(&registration("a", &[("s", "1"), ("t", "2")]), Some("bob"), "cli", None)
        .unwrap();
    let after = service.list_schedules().unwrap();
    assert_eq!(before[0], after[0]);
    assert_eq!((after[1].revision, after[1].decided), (2, 3_000_000));
    let ticks = service.list_ticks(after[1].n, 0, 10).unwrap();
    assert_eq!((ticks[0].state, ticks[0].count, ticks[0].due), (TickState::Superseded, 0, 2_000_000));
    assert!(
        service.unregister_workflow("a", None, "cli").unwrap()
            && !service.unregister_workflow("a", None, "cli").unwrap()
    );
    assert!(service.list_schedules().unwrap().is_empty() && service.list_workflows().unwrap().is_empty());
    let verbs: Vec<_> = service.list_deeds(10).unwrap().into_iter().map(|deed| deed.verb).collect();
    assert_eq!(verbs, ["unregister", "register", "register"]);
}

#[test]
fn pausing_is_noted_and_decides_nothing() {
    let (service, _) = service();
    service.register_workflow(&registration("a", &[("s", "1")]), None, "cli", None).unwrap();
    let row = service.list_schedules().unwrap().pop().unwrap();
    assert!(service.set_paused(&row, true, Some("ann"), "cli").unwrap());
    assert!(!service.set_paused(&row, true, Some("ann"), "cli").unwrap());
    // A decision made before the pause changes nothing.
    let late = settlement(&row, 2_000_000, &[(1_500_000, TickState::Fired, Some(0))]);
    assert_eq!(service.write_settlements(&[late]).unwrap(), [false]);
    let row = service.list_schedules().unwrap().pop().unwrap();
    assert_eq!(row.paused, Some((1_000_000, Some("ann".to_owned()))));
    assert!(service.set_paused(&row, false, None, "cli").unwrap());
}

#[test]
fn a_crowd_of_one_workflow_keeps_no_other_waiting() {
    let (service, _) = service();
    let crowd = service.register_workflow(&registration("crowd", &[]), None, "cli", None).unwrap();
    let other = service.register_workflow(&registration("other", &[]), None, "cli", None).unwrap();
    for _ in 0..50 {
        service.enqueue_start(&start(crowd, None, false), "crowd", "api").unwrap();
    }
    service.enqueue_start(&start(other, None, false), "other", "api").unwrap();
    let taken = service.take_starts("one", 9_000_000, 4).unwrap();
    let workflows: Vec<_> = taken.iter().map(|start| start.workflow).collect();
    assert_eq!(workflows, [crowd, other, crowd, crowd]);
    // Starts taken by one server are not taken by another.
    let more: HashSet<_> =
        service.take_starts("two", 9_000_000, 100).unwrap().iter().map(|s| s.run).collect();
    assert_eq!(more.len(), 47);
    assert!(taken.iter().all(|start| !more.contains(&start.run)));
    assert!(service.taken_starts("other", 9_000_000, 100).unwrap().is_empty());
    assert_eq!(service.taken_starts("other", 9_000_001, 100).unwrap().len(), 51);
}

#[test]
fn serial_starts_of_a_schedule_wait_for_one_another() {
    let (service, _) = service();
    let workflow = service.register_workflow(&registration("a", &[("s", "1")]), None, "cli", None).unwrap();
    let row = service.list_schedules().unwrap().pop().unwrap();
    let runs: Vec<RunId> = (0..3)
        .map(|_| service.enqueue_start(&start(workflow, Some(row.n), true), "a", "cli").unwrap())
        .collect();
    for run in &runs {
        let taken = service.take_starts("one", 9_000_000, 10).unwrap();
        assert_eq!(taken.iter().map(|start| start.run).collect::<Vec<_>>(), [*run]);
        service.record_standing(*run, &Standing::Parked).unwrap();
        assert!(service.take_starts("one", 9_000_000, 10).unwrap().is_empty());
        service.record_standing(*run, &Standing::Over).unwrap();
        // A start that is over stays so.
        service.record_standing(*run, &Standing::Again).unwrap();
    }
    assert_eq!(service.count_starts().unwrap(), [(StartState::Over, 3)]);
}

#[test]
fn a_start_begins_once_and_is_called_off_before_it_does() {
    let (service, _) = service();
    let workflow = service.register_workflow(&registration("a", &[]), None, "cli", None).unwrap();
    let run = service.enqueue_start(&start(workflow, None, false), "a", "cli").unwrap();
    let store = service.store();
    store.create_run_as(run, new_run()).unwrap();
    assert!(matches!(store.create_run_as(run, new_run()), Err(StoreError::RunExists(_))));
    assert_eq!(store.run(run).unwrap().id, run);
    // It has begun, so its process is asked to cancel it.
    assert!(service.cancel_start(run, "no need", Some("ann"), "cli").unwrap());
    assert_eq!(service.starts_to_cancel().unwrap().len(), 1);
    let other = service.enqueue_start(&start(workflow, None, false), "a", "cli").unwrap();
    assert!(service.cancel_start(other, "no need", None, "cli").unwrap());
    assert!(!service.cancel_start(other, "no need", None, "cli").unwrap());
    let other = service.start_of(other).unwrap().unwrap();
    assert_eq!((other.state, other.why.as_deref()), (StartState::Withdrawn, Some("no need")));
}

#[test]
fn what_waits_is_ripe_when_its_question_is_answered() {
    let (service, _) = service();
    let workflow = service.register_workflow(&registration("a", &[]), None, "cli", None).unwrap();
    let run = service.enqueue_start(&start(workflow, None, false), "a", "cli").unwrap();
    let store = service.store();
    store.create_run_as(run, new_run()).unwrap();
    let gate = store
        .open_gate(crate::GateRecord {
            run,
            path: "ask".to_owned(),
            kind: crate::GateKind::Approval,
            question: json!({"prompt": "?"}),
            binding: Digest::of_bytes(b"b"),
            expires_at: None,
            required_approver: None,
            detail: Value::Null,
        })
        .unwrap();
    store.append_events(run, vec![Event::RunPaused { detail: Value::Null }], Durability::Synced).unwrap();
    service.record_standing(run, &Standing::Parked).unwrap();
    assert_eq!(store.run(run).unwrap().status, RunStatus::Waiting);
    assert!(service.ripe_starts(2_000_000, 10).unwrap().is_empty());
    store.answer_gate(gate.key, crate::GateAnswer::Approved, Some("ann")).unwrap();
    assert_eq!(service.ripe_starts(2_000_000, 10).unwrap().len(), 1);
}

#[test]
fn a_delivery_is_taken_once() {
    let (service, time) = service();
    let workflow = service.register_workflow(&registration("a", &[]), None, "cli", None).unwrap();
    let delivery = |id: &str, body: &str, same_since| NewDelivery {
        hook: "h".to_owned(),
        id: id.to_owned(),
        body: body.as_bytes().to_vec(),
        headers: "{}".to_owned(),
        same_since,
        start: start(workflow, None, false),
    };
    let Accepted::New(run) = service.accept_delivery(&delivery("1", "x", Some(0))).unwrap() else { panic!() };
    assert_eq!(service.accept_delivery(&delivery("1", "x", Some(0))).unwrap(), Accepted::Again(Some(run)));
    assert_eq!(service.accept_delivery(&delivery("1", "y", Some(0))).unwrap(), Accepted::Differs);
    // The name of a delivery is not signed: the same bytes under another name are the same delivery.
    assert_eq!(service.accept_delivery(&delivery("2", "x", Some(0))).unwrap(), Accepted::Again(Some(run)));
    assert!(matches!(service.accept_delivery(&delivery("3", "x", None)).unwrap(), Accepted::New(_)));
    time.store(9_000_000, Ordering::SeqCst);
    service.forget_deliveries(9_000_000, 0).unwrap();
    assert!(service.find_delivery(1).unwrap().is_some_and(|one| one.body.is_none()));
    assert_eq!(service.accept_delivery(&delivery("1", "x", Some(0))).unwrap(), Accepted::Again(Some(run)));
}

#[test]
fn a_link_opens_one_session() {
    let (service, time) = service();
    let new = |id: &str, kind, secret: &str, expires_at| NewCredential {
        id: id.to_owned(),
        kind,
        hash: Digest::of_bytes(secret.as_bytes()),
        name: "ann".to_owned(),
        role: "admin".to_owned(),
        scope: None,
        expires_at,
    };
    service.add_credential(&new("l1", CredentialKind::Link, "link", Some(1_060_000)), None, "cli").unwrap();
    let session = |id: &str| new(id, CredentialKind::Session, id, Some(9_000_000));
    assert!(service.redeem_link(&Digest::of_bytes(b"link"), &session("s1"), "127.0.0.1").unwrap());
    assert!(!service.redeem_link(&Digest::of_bytes(b"link"), &session("s2"), "127.0.0.1").unwrap());
    assert!(service.find_credential(&Digest::of_bytes(b"link")).unwrap().is_none());
    let found = service.find_credential(&Digest::of_bytes(b"s1")).unwrap().unwrap();
    assert_eq!((found.name.as_str(), found.role.as_str()), ("ann", "admin"));
    time.store(9_000_000, Ordering::SeqCst);
    assert!(service.find_credential(&Digest::of_bytes(b"s1")).unwrap().is_none());
    service.add_credential(&new("l2", CredentialKind::Link, "late", Some(9_000_000)), None, "cli").unwrap();
    assert!(!service.redeem_link(&Digest::of_bytes(b"late"), &session("s3"), "127.0.0.1").unwrap());
    assert!(
        service.revoke_credential("s1", None, "cli").unwrap()
            && !service.revoke_credential("s1", None, "cli").unwrap()
    );
}

#[test]
fn copies_and_rescues_have_what_the_service_keeps() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("state")).unwrap();
    let service = store.service().unwrap();
    let workflow = service.register_workflow(&registration("a", &[("s", "1")]), None, "cli", None).unwrap();
    service.enqueue_start(&start(workflow, None, false), "a", "cli").unwrap();
    for copy in ["backup", "salvaged"] {
        let target = dir.path().join(copy);
        let report = if copy == "backup" { store.backup(&target) } else { store.salvage(&target) };
        assert_eq!(report.unwrap().problems, []);
        let copied = Store::open(&target).unwrap().service().unwrap();
        assert_eq!(copied.list_schedules().unwrap(), service.list_schedules().unwrap(), "{copy}");
        assert_eq!(copied.list_starts(true, 9).unwrap(), service.list_starts(true, 9).unwrap(), "{copy}");
        assert_eq!(copied.list_deeds(9).unwrap().len(), 2);
    }
}

fn wait(path: &str, due: Option<i64>, event: Option<&str>) -> NewWait {
    NewWait { path: path.to_owned(), due, event: event.map(str::to_owned) }
}

#[test]
fn a_run_is_queued_when_one_of_its_waits_is_over_and_not_before() {
    let (service, time) = service();
    let workflow = service.register_workflow(&registration("a", &[]), None, "cli", None).unwrap();
    let run = service.enqueue_start(&start(workflow, None, false), "a", "cli").unwrap();
    assert!(!service.looks_after(run, 0).unwrap(), "no server is at work");
    service.record_heartbeat("s", 1, ("127.0.0.1:1", "http://127.0.0.1:1"), 0).unwrap();
    assert!(service.looks_after(run, 1_000_000).unwrap() && !service.looks_after(run, 1_000_001).unwrap());
    assert!(!service.looks_after(RunId::new().unwrap(), 0).unwrap(), "nobody started it here");
    assert_eq!(service.take_starts("s", 9_000_000, 1).unwrap()[0].run, run);
    service
        .replace_waits(run, 0, &[wait("a", Some(2_000_000), None), wait("b", None, Some("paid"))])
        .unwrap();
    time.store(2_000_000, Ordering::SeqCst);
    assert_eq!(service.wake_due(9).unwrap(), 0, "its process is not gone yet");
    time.store(1_500_000, Ordering::SeqCst);
    service.record_standing(run, &Standing::Parked).unwrap();
    assert_eq!((service.wake_due(9).unwrap(), service.next_wake().unwrap()), (0, Some(2_000_000)));
    assert_eq!(service.send_event("other", &Value::Null, None, "cli").unwrap().waiting, 0);
    assert_eq!(service.send_event("paid", &json!(5), Some("ann"), "cli").unwrap().waiting, 1);
    assert_eq!((service.wake_due(9).unwrap(), service.wake_due(9).unwrap()), (1, 0));
    assert_eq!(service.start_of(run).unwrap().unwrap().state, StartState::Queued);
    assert!(service.list_waits(9).unwrap().is_empty());
    // Events sent before it was parked are valid, and a run that is over waits for nothing.
    service.replace_waits(run, 0, &[wait("b", None, Some("paid"))]).unwrap();
    assert_eq!(service.next_wake().unwrap(), Some(1_500_000));
    // A run that could not continue keeps its waits, the number of attempts, and the reason.
    service.record_standing(run, &Standing::Parked).unwrap();
    assert_eq!(service.wake_due(9).unwrap(), 1);
    assert_eq!(service.take_starts("s", 0, 1).unwrap()[0].attempts, 1);
    service.record_standing(run, &Standing::Later { due: 1_700_000, why: "no space".to_owned() }).unwrap();
    let held_up = service.start_of(run).unwrap().unwrap();
    assert_eq!(
        (held_up.state, held_up.attempts, held_up.why.as_deref()),
        (StartState::Queued, 1, Some("no space"))
    );
    assert_eq!((service.wake_due(9).unwrap(), service.next_wake().unwrap()), (0, Some(1_700_000)));
    time.store(1_700_000, Ordering::SeqCst);
    assert_eq!(service.wake_due(9).unwrap(), 1);
    service.record_standing(run, &Standing::Parked).unwrap();
    let parked = service.start_of(run).unwrap().unwrap();
    assert_eq!((parked.attempts, parked.why), (0, None));
    service.replace_waits(run, 0, &[wait("b", None, Some("paid"))]).unwrap();
    service.record_standing(run, &Standing::Over).unwrap();
    assert!(service.list_waits(9).unwrap().is_empty());
    assert_eq!(service.list_deeds(1).unwrap()[0].verb, "send-event");
}

#[test]
fn a_start_without_a_process_is_put_back_and_rests() {
    let (service, time) = service();
    let workflow = service.register_workflow(&registration("a", &[]), None, "cli", None).unwrap();
    let runs = [(); 2].map(|()| service.enqueue_start(&start(workflow, None, false), "a", "cli").unwrap());
    assert_eq!(service.take_starts("s", 9_000_000, 9).unwrap().len(), 2);
    for run in runs {
        service.put_back(run, 1_002_000, "no process").unwrap();
    }
    let found = service.start_of(runs[0]).unwrap().unwrap();
    assert_eq!(
        (found.state, found.attempts, found.why.as_deref()),
        (StartState::Queued, 0, Some("no process"))
    );
    assert!(service.take_starts("s", 9_000_000, 9).unwrap().is_empty());
    assert!(service.cancel_start(runs[1], "no need", None, "cli").unwrap());
    assert_eq!((service.wake_due(9).unwrap(), service.next_wake().unwrap()), (0, Some(1_002_000)));
    time.store(1_002_000, Ordering::SeqCst);
    assert_eq!((service.wake_due(9).unwrap(), service.next_wake().unwrap()), (1, None));
    assert_eq!(service.take_starts("s", 9_000_000, 9).unwrap()[0].run, runs[0]);
    // Events are received from the time at which the start was accepted, whenever its run begins.
    service.send_event("paid", &json!(1), None, "cli").unwrap();
    time.store(5_000_000, Ordering::SeqCst);
    assert_eq!(service.take_event(runs[0], "w", "paid", 5_000_000).unwrap().map(|event| event.n), Some(1));
    assert_eq!(service.take_event(RunId::new().unwrap(), "w", "paid", 5_000_000).unwrap(), None);
}

#[test]
fn a_run_that_was_answered_is_queued_when_its_process_is_gone_and_one_that_is_over_at_once() {
    let (service, _) = service();
    let workflow = service.register_workflow(&registration("a", &[]), None, "cli", None).unwrap();
    let run = service.enqueue_start(&start(workflow, None, false), "a", "cli").unwrap();
    service.store().create_run_as(run, new_run()).unwrap();
    let state = || service.start_of(run).unwrap().unwrap().state;
    service.take_up(run).unwrap();
    assert_eq!((state(), service.list_waits(9).unwrap().len()), (StartState::Queued, 0));
    service.take_starts("s", 2_000_000, 1).unwrap();
    service.take_up(run).unwrap();
    // The process that asked adds its other waits.
    service.replace_waits(run, 0, &[wait("b", Some(9_000_000), None)]).unwrap();
    assert_eq!((state(), service.wake_due(9).unwrap()), (StartState::Taken, 0));
    service.record_standing(run, &Standing::Parked).unwrap();
    assert_eq!((service.wake_due(9).unwrap(), state()), (1, StartState::Queued));
    service.cancel_start(run, "too late", None, "cli").unwrap();
    for standing in [Standing::Over, Standing::Refused("it died".to_owned())] {
        service.record_standing(run, &standing).unwrap();
        service.take_up(run).unwrap();
        let again = service.start_of(run).unwrap().unwrap();
        assert_eq!((again.state, again.attempts), (StartState::Queued, 0));
        assert_eq!((again.why, again.cancel, again.ended_at), (None, None, None));
    }
    let other = service.enqueue_start(&start(workflow, None, false), "a", "cli").unwrap();
    service.cancel_start(other, "no need", None, "cli").unwrap();
    service.take_up(other).unwrap();
    assert_eq!(service.start_of(other).unwrap().unwrap().state, StartState::Withdrawn);
    // A run of a living server cannot be adopted by another one.
    service.take_starts("s", 2_000_000, 1).unwrap();
    assert!(!service.adopt_run(run, "t", 3_000_000).unwrap());
    assert!(service.adopt_run(run, "s", 3_000_000).unwrap());
}

#[test]
fn a_place_has_one_event_and_each_event_once_a_run() {
    let (service, time) = service();
    let (one, other) = (RunId::new().unwrap(), RunId::new().unwrap());
    for data in 1..=3 {
        service.send_event("e", &json!(data), None, "cli").unwrap();
        time.fetch_add(10, Ordering::SeqCst);
    }
    let take = |run, path, since| service.take_event(run, path, "e", since).unwrap().map(|event| event.data);
    assert_eq!(take(one, "a", 0), Some(json!(1)));
    assert_eq!(take(one, "a", 0), Some(json!(1)), "as it was");
    assert_eq!(
        (take(one, "b", 0), take(one, "c", 0), take(one, "d", 0)),
        (Some(json!(2)), Some(json!(3)), None)
    );
    assert_eq!(take(other, "a", 1_000_011), Some(json!(3)), "what was sent before it began is not for it");
    assert_eq!(service.take_event(other, "a", "f", 0).unwrap(), None);
}

#[test]
fn a_collection_by_age_forgets_what_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let time = Arc::new(AtomicI64::new(1_000_000));
    let clock = Arc::clone(&time);
    let store =
        Store::open_with(&dir.path().join("state"), Arc::new(move || clock.load(Ordering::SeqCst))).unwrap();
    let service = store.service().unwrap();
    let workflow = service.register_workflow(&registration("a", &[("s", "1")]), None, "cli", None).unwrap();
    let rows = || {
        let tables = ["events", "taken_events", "starts", "trail", "schedules"];
        tables.map(|table| {
            let sql = format!("SELECT count(*) FROM {table}");
            service.read_snapshot(|db| Ok(db.query_row(&sql, [], |row| row.get::<_, i64>(0))?)).unwrap()
        })
    };
    for _ in 0..2 {
        let run = service.enqueue_start(&start(workflow, None, false), "a", "cli").unwrap();
        service.send_event("e", &json!(1), None, "cli").unwrap();
        assert!(service.take_event(run, "a", "e", time.load(Ordering::SeqCst)).unwrap().is_some());
        service.record_standing(run, &Standing::Over).unwrap();
        time.fetch_add(1_000_000, Ordering::SeqCst);
    }
    let before = rows();
    assert_eq!(before[..3], [2, 2, 2]);
    let collect =
        |max_age_ms| store.collect_garbage(&GcPolicy { max_age_ms: Some(max_age_ms), ..GcPolicy::default() });
    collect(9_000_000).unwrap();
    assert_eq!(rows(), before, "nothing is that old");
    collect(1_500_000).unwrap();
    assert_eq!(rows(), [1, 1, 1, before[3], before[4]]);
    collect(1).unwrap();
    assert_eq!(rows(), [0, 0, 0, before[3], before[4]]);
}

#[test]
fn a_collection_by_age_keeps_what_tells_that_a_delivery_came() {
    let dir = tempfile::tempdir().unwrap();
    let begun = 1_000_000;
    let time = Arc::new(AtomicI64::new(begun));
    let clock = Arc::clone(&time);
    let store =
        Store::open_with(&dir.path().join("state"), Arc::new(move || clock.load(Ordering::SeqCst))).unwrap();
    let service = store.service().unwrap();
    let workflow = service.register_workflow(&registration("a", &[]), None, "cli", None).unwrap();
    let deliver = |id: &str| {
        service.accept_delivery(&NewDelivery {
            hook: "h".to_owned(),
            id: id.to_owned(),
            body: b"bytes".to_vec(),
            headers: "{}".to_owned(),
            same_since: Some(time.load(Ordering::SeqCst) - SAME_DELIVERY_MS),
            start: start(workflow, None, false),
        })
    };
    let Accepted::New(run) = deliver("1").unwrap() else { panic!("it is new") };
    let collect = || store.collect_garbage(&GcPolicy { max_age_ms: Some(1), ..GcPolicy::default() }).unwrap();
    time.store(begun + SAME_DELIVERY_MS, Ordering::SeqCst);
    collect();
    let kept = service.list_deliveries(9).unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!(service.find_delivery(kept[0].n).unwrap().unwrap().body, None);
    assert_eq!(deliver("2").unwrap(), Accepted::Again(Some(run)));
    time.store(begun + SAME_DELIVERY_MS + 1, Ordering::SeqCst);
    collect();
    assert!(service.list_deliveries(9).unwrap().is_empty());
    assert!(matches!(deliver("3").unwrap(), Accepted::New(_)));
}

/// Ids given by senders, and ids that are the digest of the body, with and without collections of the service.
#[test]
fn a_delivery_is_known_again_for_as_long_as_is_promised() {
    for (id, is_timeless, is_forgotten) in [
        ("named", false, false),
        ("named", true, false),
        ("named", true, true),
        ("digest", true, false),
        ("digest", true, true),
    ] {
        let (service, time) = service();
        let workflow = service.register_workflow(&registration("a", &[]), None, "cli", None).unwrap();
        let body = b"bytes".to_vec();
        let deliver = |days: i64, more: i64| {
            let now = 1_000_000 + days * 86_400_000 + more;
            time.store(now, Ordering::SeqCst);
            if is_forgotten {
                service.forget_deliveries(now - 1, now - SAME_DELIVERY_MS).unwrap();
            }
            let id = if id == "digest" { Digest::of_bytes(&body).to_string() } else { id.to_owned() };
            let accepted = service.accept_delivery(&NewDelivery {
                hook: "h".to_owned(),
                id,
                body: body.clone(),
                headers: "{}".to_owned(),
                same_since: is_timeless.then_some(now - SAME_DELIVERY_MS),
                start: start(workflow, None, false),
            });
            matches!(accepted.unwrap(), Accepted::New(_))
        };
        let found = [(0, 0), (1, 0), (90, 0), (90, 1), (100, 0), (180, 1), (180, 2), (500, 0)];
        let new = found.map(|(days, more)| deliver(days, more));
        assert_eq!(
            new,
            [true, false, false, true, false, false, true, true],
            "{id} {is_timeless} {is_forgotten}"
        );
    }
}

#[test]
fn tables_of_earlier_layouts_are_brought_to_this_one() {
    let third = "DROP TABLE challenge_keys; DROP TABLE used_challenges; UPDATE service SET value = 3 WHERE key = 'version'";
    let second = format!(
        "{third}; ALTER TABLE servers DROP COLUMN url; DROP TABLE passkeys; UPDATE service SET value = 2 WHERE key = 'version';
         INSERT INTO servers VALUES ('s', 1, '127.0.0.1:7', 0, 9000000000000);"
    );
    let first = format!(
        "{second} DROP TABLE waits; DROP TABLE events; DROP TABLE taken_events; DROP TABLE notices;
         DROP TABLE watched; UPDATE service SET value = 1 WHERE key = 'version'"
    );
    for earlier in [second, first] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        Store::open(&path).unwrap().service().unwrap();
        let store = Store::open(&path).unwrap();
        store.write_transaction(Durability::Synced, |tx| Ok(tx.execute_batch(&earlier)?)).unwrap();
        let salvaged = dir.path().join("salvaged");
        assert_eq!(store.salvage(&salvaged).unwrap().problems, []);
        for store in [store, Store::open(&salvaged).unwrap()] {
            let service = store.existing_service().unwrap().unwrap();
            assert!(service.list_waits(1).unwrap().is_empty() && service.list_events(1).unwrap().is_empty());
            assert_eq!(
                service.running_servers().unwrap()[0].url,
                "http://127.0.0.1:7",
                "an earlier lobster's"
            );
            assert_eq!(service.challenge_key([1; 32]).unwrap(), [1; 32]);
        }
    }
}

#[test]
fn rows_of_the_service_that_contradict_each_other_are_named() {
    let (service, _) = service();
    let store = service.store();
    let workflow = service.register_workflow(&registration("a", &[("s", "{}")]), None, "cli", None).unwrap();
    let run = service.enqueue_start(&start(workflow, None, false), "a", "cli").unwrap();
    service.send_event("e", &json!({"a": 1}), None, "cli").unwrap();
    service.replace_waits(run, 0, &[wait("w", None, Some("f"))]).unwrap();
    assert_eq!(store.verify().unwrap().problems, []);
    for (damage, told) in [
        ("UPDATE workflows SET content = '{'", "workflows a: its content is not JSON"),
        ("UPDATE schedules SET workflow = 99", "schedules 1: it belongs to no workflow"),
        (
            "INSERT INTO ticks (schedule, revision, key, due, count, last, state, at) VALUES (7, 1, 'k', 1, 1, 1, 'odd', 1)",
            "ticks 1: its state is unknown",
        ),
        ("UPDATE starts SET state = 'parked'", "starts 1: it waits, but its run is missing"),
        ("UPDATE starts SET workflow = 99", "starts 1: it belongs to no workflow"),
        ("UPDATE waits SET run = zeroblob(16)", "waits 1: the waiting run has no start"),
        ("UPDATE events SET data = 'x'", "events 1: its data is not JSON"),
    ] {
        store
            .write_transaction(Durability::Synced, |tx| {
                tx.execute_batch(damage)?;
                Ok(())
            })
            .unwrap();
        let problems: Vec<String> =
            store.verify().unwrap().problems.iter().map(ToString::to_string).collect();
        assert!(problems.iter().any(|problem| problem.contains(told)), "{damage}: {problems:?}");
    }
}

/// After a clock jumped by years, more ticks were missed than are counted.
#[test]
fn an_entry_for_more_ticks_than_were_counted_is_sound_and_stays_so() {
    let (service, _) = service();
    service.register_workflow(&registration("w", &[("s", "{}")]), None, "cli", None).unwrap();
    for (last, count) in [(2_000_000, 3), (3_000_000, 0), (4_000_000, 5)] {
        let row = service.list_schedules().unwrap().remove(0);
        let mut one = settlement(&row, last, &[(last, TickState::Missed, None)]);
        one.ticks[0].count = count;
        assert_eq!(service.write_settlements(&[one]).unwrap(), [true]);
    }
    let row = service.list_schedules().unwrap().remove(0);
    let ticks = service.list_ticks(row.n, 0, 10).unwrap();
    assert_eq!(ticks.iter().map(|tick| (tick.count, tick.last)).collect::<Vec<_>>(), [(0, 4_000_000)]);
    assert_eq!(service.store().verify().unwrap().problems, []);
}
