//! Schedules over a real store, with a clock that the test controls.

mod model;
mod zone_changes;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use jiff::tz::TimeZoneDatabase;
use lobster_runtime::digest::Digest;
use lobster_runtime::language::triggers::{Due, Missed, Overlap, Schedule, Triggers};
use lobster_runtime::store::Store;
use lobster_runtime::store::service::{Registration, ScheduleRow, Service, Standing, StartState, TickState};
use serde_json::{Map, json};

use super::{Scheduler, parse_spec, specs_of};

/// A store whose clock the test sets.
struct World {
    store: Store,
    time: Arc<AtomicI64>,
}

fn ms(text: &str) -> i64 {
    text.parse::<Timestamp>().unwrap().as_millisecond()
}

fn schedule(name: &str, due: Due, missed: Missed, overlap: Overlap) -> Schedule {
    Schedule {
        span: Default::default(),
        name: name.to_owned(),
        due,
        jitter_ms: 0,
        missed,
        overlap,
        args: Map::new(),
    }
}

fn cron(pattern: &str, zone: &str) -> Due {
    Due::Cron { pattern: pattern.to_owned(), timezone: zone.to_owned() }
}

impl World {
    fn at(text: &str) -> Self {
        let time = Arc::new(AtomicI64::new(ms(text)));
        let clock = Arc::clone(&time);
        let store = Store::in_memory_with(Arc::new(move || clock.load(Ordering::SeqCst))).unwrap();
        Self { store, time }
    }

    /// Opens the same directory as another process would.
    fn another_store(&self) -> Store {
        let clock = Arc::clone(&self.time);
        let dir = self.store.dir().parent().unwrap();
        Store::open_with(dir, Arc::new(move || clock.load(Ordering::SeqCst))).unwrap()
    }

    fn now(&self) -> i64 {
        self.time.load(Ordering::SeqCst)
    }

    fn set(&self, ms: i64) {
        self.time.store(ms, Ordering::SeqCst);
    }

    fn service(&self) -> Service {
        self.store.service().unwrap()
    }

    fn register(&self, name: &str, schedules: Vec<Schedule>) {
        self.register_in(name, schedules, &TimeZoneDatabase::bundled());
    }

    fn register_in(&self, name: &str, schedules: Vec<Schedule>, zones: &TimeZoneDatabase) {
        let triggers = Triggers { schedules, ..Triggers::default() };
        let schedules = specs_of(name, &triggers, self.now(), zones).unwrap();
        let registration = Registration {
            name: name.to_owned(),
            path: format!("/{name}.lobster"),
            digest: Digest::of_bytes(name.as_bytes()),
            content: "{}".to_owned(),
            schedules,
        };
        self.service().register_workflow(&registration, Some("ann"), "test", None).unwrap();
    }

    fn scheduler(&self) -> Scheduler {
        Scheduler::new(&self.store).unwrap().with_zones(TimeZoneDatabase::bundled())
    }

    fn row(&self) -> ScheduleRow {
        self.service().list_schedules().unwrap().pop().unwrap()
    }

    /// The ledger of the only schedule, oldest entry first.
    fn ledger(&self) -> Vec<(String, TickState, u64)> {
        let mut ticks = self.service().list_ticks(self.row().n, i64::MIN, 1000).unwrap();
        ticks.reverse();
        ticks.into_iter().map(|tick| (tick.key, tick.state, tick.count)).collect()
    }

    /// Ends all runs.
    fn end_runs(&self) {
        for start in self.service().list_starts(false, 1000).unwrap() {
            self.service().record_standing(start.run, &Standing::Over).unwrap();
        }
    }
}

fn found(key: &str, state: TickState, count: u64) -> (String, TickState, u64) {
    (key.to_owned(), state, count)
}

#[test]
fn a_spec_does_not_say_where_it_stands() {
    let one = schedule("s", cron("0 9 * * *", "Europe/Berlin"), Missed::Skip, Overlap::Skip);
    let mut other = one.clone();
    (other.span.start, other.span.end) = (7, 9);
    let spec = |schedule: &Schedule| {
        let triggers = Triggers { schedules: vec![schedule.clone()], ..Triggers::default() };
        specs_of("w", &triggers, 0, &TimeZoneDatabase::bundled()).unwrap().pop().unwrap()
    };
    assert_eq!(spec(&one), spec(&other));
    assert_eq!(parse_spec(&spec(&other).spec).unwrap(), one);
}

#[test]
fn a_tick_fires_when_it_is_due_and_names_when_to_look_again() {
    let world = World::at("2026-11-20T07:00:00Z");
    let due = cron("0 9 * * *", "Europe/Berlin");
    world.register("a", vec![schedule("s", due, Missed::Skip, Overlap::Skip)]);
    let mut scheduler = world.scheduler();
    let turn = scheduler.decide_due().unwrap();
    assert_eq!((turn.starts, turn.next), (0, Some(ms("2026-11-20T08:00:00Z"))));
    world.set(ms("2026-11-20T08:00:00.030Z"));
    let turn = scheduler.decide_due().unwrap();
    assert_eq!((turn.starts, turn.next), (1, Some(ms("2026-11-21T08:00:00Z"))));
    assert_eq!(world.ledger(), [found("2026-11-20T09:00:00", TickState::Fired, 1)]);
    let start = world.service().list_starts(false, 9).unwrap().pop().unwrap();
    assert_eq!((start.cause.as_str(), start.actor.as_deref()), ("schedule", Some("schedule:a/s")));
    assert_eq!(start.detail["tick"], json!("2026-11-20T09:00:00"));
    assert_eq!(scheduler.decide_due().unwrap().starts, 0);
}

#[test]
fn a_gap_and_a_fold_of_the_clock_have_the_ticks_that_people_expect() {
    let cases = [
        ("30 2 * * *", "America/New_York", "2026-03-08T05:00:00Z", "2026-03-08T12:00:00Z", 1),
        ("30 1 * * *", "America/New_York", "2026-11-01T04:50:00Z", "2026-11-01T12:00:00Z", 1),
        ("*/15 * * * *", "America/New_York", "2026-11-01T04:59:00Z", "2026-11-01T06:59:00Z", 8),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T14:00:00Z", "2026-10-04T14:00:00Z", 1),
        ("30 23 * * *", "America/Nuuk", "2026-03-28T20:00:00Z", "2026-03-29T20:00:00Z", 1),
        ("0 12 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", "2011-12-31T23:00:00Z", 4),
        ("0 */4 * * *", "Australia/Sydney", "2026-10-03T00:00:00Z", "2026-10-05T00:00:00Z", 12),
        ("30 0 * * *", "Africa/Cairo", "2026-04-23T12:00:00Z", "2026-04-24T12:00:00Z", 1),
    ];
    for (pattern, zone, from, to, expected) in cases {
        let world = World::at(from);
        world.register("a", vec![schedule("s", cron(pattern, zone), Missed::Skip, Overlap::Allow)]);
        let mut scheduler = world.scheduler();
        let mut starts = 0;
        while let Some(next) = scheduler.decide_due().unwrap().next.filter(|next| *next <= ms(to)) {
            world.set(next);
            starts += scheduler.decide_due().unwrap().starts;
        }
        assert_eq!(starts, expected, "{pattern} in {zone}: {:?}", world.ledger());
        assert!(world.ledger().iter().all(|(_, state, _)| *state == TickState::Fired));
    }
}

#[test]
fn three_days_without_a_server_are_no_avalanche() {
    let minutes = || cron("* * * * *", "UTC");
    for (missed, run, left_out) in [
        (Missed::All { max: 10, within_ms: None }, 10, 4310),
        (Missed::Last { within_ms: None }, 1, 4319),
        (Missed::Skip, 1, 4319),
    ] {
        let world = World::at("2026-11-20T12:00:00Z");
        world.register("a", vec![schedule("s", minutes(), missed, Overlap::Skip)]);
        world.set(ms("2026-11-23T12:00:00.010Z"));
        assert_eq!(world.scheduler().decide_due().unwrap().starts, run, "{missed:?}");
        assert_eq!(world.ledger()[0], found("2026-11-20T12:01:00", TickState::Missed, left_out));
        let ran: u64 = world.ledger()[1..].iter().map(|(.., count)| count).sum();
        assert_eq!((ran, left_out + ran), (run as u64, 4320), "{missed:?}: {:?}", world.ledger());
    }
}

/// A cap on the number of ticks, or a window that ends at the minute of a tick, makes some other schedulers drop that
/// tick for days. Around the minute, every tick either runs or has an entry with the reason.
#[test]
fn no_cap_drops_a_tick_at_the_exact_minute() {
    let due = "2026-11-20T09:00:00Z";
    for missed in [
        Missed::Skip,
        Missed::Last { within_ms: None },
        Missed::Last { within_ms: Some(60_000) },
        Missed::All { max: 1, within_ms: Some(60_000) },
    ] {
        for late in [-1, 0, 1, 999, 59_999, 60_000, 60_001, 119_999, 120_000, 120_001] {
            for window in [1, 60, 1440] {
                let world = World::at("2026-11-20T08:59:00Z");
                let pattern = match window {
                    1 => "* * * * *",
                    60 => "0 * * * *",
                    _ => "0 9 * * *",
                };
                world.register("a", vec![schedule("s", cron(pattern, "UTC"), missed, Overlap::Allow)]);
                let mut scheduler = world.scheduler();
                world.set(ms(due) + late);
                let starts = scheduler.decide_due().unwrap().starts;
                let counted: u64 = world.ledger().iter().map(|(_, _, count)| count).sum();
                // Number of ticks due after 8:59 and until now.
                let passed = u64::try_from((late + 60_000) / 60_000).unwrap();
                let wanted = match (window, late) {
                    (_, ..0) => 0,
                    (1, _) => passed,
                    _ => 1,
                };
                let told = format!("{missed:?} {pattern} {late} ms late: {:?}", world.ledger());
                assert_eq!(counted, wanted, "{told}");
                assert!(starts as u64 <= counted, "{told}");
                if (0..1000).contains(&late) {
                    assert_eq!(starts, 1, "{told}");
                }
                for tick in world.service().list_ticks(world.row().n, i64::MIN, 9).unwrap() {
                    assert!(tick.run.is_some() || tick.reason.is_some(), "{told}: {tick:?}");
                }
            }
        }
    }
}

/// Ticks that became due while a machine slept are in the ledger when it wakes, with the reason.
#[test]
fn what_was_due_while_a_machine_slept_is_accounted_for() {
    for hours in [1, 5, 30, 200] {
        for missed in [Missed::Skip, Missed::Last { within_ms: None }] {
            let world = World::at("2026-11-20T20:30:00Z");
            world.register("a", vec![schedule("s", cron("0 * * * *", "UTC"), missed, Overlap::Skip)]);
            // The program is not restarted: it sleeps with the machine.
            let mut scheduler = world.scheduler();
            scheduler.decide_due().unwrap();
            world.set(world.now() + hours * 3_600_000);
            let turn = scheduler.decide_due().unwrap();
            let ticks = world.service().list_ticks(world.row().n, i64::MIN, 99).unwrap();
            let all: u64 = ticks.iter().map(|tick| tick.count).sum();
            assert_eq!(all, hours.unsigned_abs(), "{missed:?} {ticks:?}");
            assert_eq!(turn.starts, usize::from(missed != Missed::Skip), "{ticks:?}");
            let told = |tick: &lobster_runtime::store::service::Tick| {
                tick.run.is_some()
                    || tick.reason.as_deref().is_some_and(|why| why.contains("no server was running"))
            };
            assert!(ticks.iter().all(told), "{ticks:?}");
        }
    }
}

#[test]
fn an_interval_does_not_begin_anew_when_a_machine_sleeps() {
    let world = World::at("2026-11-20T12:00:00Z");
    let due = Due::Every { ms: 4 * 3_600_000 };
    world.register("a", vec![schedule("s", due, Missed::Last { within_ms: None }, Overlap::Skip)]);
    // The machine is awake for short times, and never at the moment when four hours since the start have passed.
    for (wake, starts) in [("13:00", 0), ("17:10", 1), ("19:30", 0), ("21:00", 1), ("23:50", 0)] {
        world.set(ms(&format!("2026-11-20T{wake}:00Z")));
        let mut scheduler = world.scheduler();
        assert_eq!(scheduler.decide_due().unwrap().starts, starts, "{wake}: {:?}", world.ledger());
        world.end_runs();
    }
}

#[test]
fn a_run_that_waits_overnight_is_the_reason_for_what_is_skipped() {
    let world = World::at("2026-11-20T20:00:00Z");
    let due = cron("*/5 * * * *", "UTC");
    world.register("a", vec![schedule("s", due, Missed::Skip, Overlap::Skip)]);
    let mut scheduler = world.scheduler();
    let mut at = |until: &str| {
        while let Some(next) = scheduler.decide_due().unwrap().next.filter(|next| *next <= ms(until)) {
            world.set(next);
        }
    };
    at("2026-11-20T20:05:00Z");
    let start = world.service().list_starts(false, 9).unwrap().pop().unwrap();
    world.service().record_standing(start.run, &Standing::Parked).unwrap();
    at("2026-11-21T08:05:00Z");
    assert_eq!(world.ledger()[1..], [found("2026-11-20T20:10:00", TickState::Skipped, 144)]);
    let reason = world.service().list_ticks(world.row().n, 0, 1).unwrap()[0].reason.clone().unwrap();
    assert!(reason.contains(&start.run.short_id()) && reason.contains("waits for an answer"), "{reason}");
    world.service().record_standing(start.run, &Standing::Over).unwrap();
    at("2026-11-21T08:10:00Z");
    assert_eq!(world.ledger()[2], found("2026-11-21T08:10:00", TickState::Fired, 1));
}

#[test]
fn a_queue_has_an_end_and_the_previous_run_is_cancelled() {
    let world = World::at("2026-11-20T20:00:00Z");
    let due = cron("* * * * *", "UTC");
    world.register("a", vec![schedule("s", due.clone(), Missed::Skip, Overlap::Queue { max: 2 })]);
    let mut scheduler = world.scheduler();
    for minute in 1..=5 {
        world.set(ms("2026-11-20T20:00:00Z") + minute * 60_000);
        scheduler.decide_due().unwrap();
        if minute == 1 {
            world.service().take_starts("x", i64::MAX, 9).unwrap();
        }
    }
    let states: Vec<_> = world.ledger().into_iter().map(|(_, state, count)| (state, count)).collect();
    assert_eq!(
        states,
        [(TickState::Fired, 1), (TickState::Fired, 1), (TickState::Fired, 1), (TickState::Skipped, 2)]
    );

    world.end_runs();
    world.register("a", vec![schedule("s", due, Missed::Skip, Overlap::CancelPrevious)]);
    let run = |minute: i64| {
        world.set(ms("2026-11-20T20:00:00Z") + minute * 60_000);
        world.scheduler().decide_due().unwrap();
        let taken = world.service().take_starts("x", i64::MAX, 9).unwrap();
        taken.into_iter().next()
    };
    let first = run(6).unwrap();
    // The next run waits for the end of the cancelled one.
    assert!(run(7).is_none());
    let cancelled = world.service().start_of(first.run).unwrap().unwrap();
    assert!(
        cancelled.cancel.is_some_and(|why| why.contains("20:07:00")) && cancelled.state == StartState::Taken
    );
    world.service().record_standing(first.run, &Standing::Over).unwrap();
    assert!(run(8).is_some());
}

#[test]
fn a_clock_that_jumps_fires_nothing_twice() {
    let day = 86_400_000;
    for jump in [1_000, 3_600_000, 400 * day] {
        let world = World::at("2026-11-20T20:00:30Z");
        let due = cron("* * * * *", "UTC");
        world.register("a", vec![schedule("s", due, Missed::Last { within_ms: None }, Overlap::Allow)]);
        let mut scheduler = world.scheduler();
        let begin = world.now();
        for step in 1..=10 {
            world.set(begin + step * 60_000);
            scheduler.decide_due().unwrap();
        }
        world.set(world.now() + jump);
        scheduler.decide_due().unwrap();
        let before = world.ledger();
        // The clock is set back again, like a clock that was wrong for a while.
        world.set(begin + 10 * 60_000 + 1);
        scheduler.decide_due().unwrap();
        for step in 11..=200 {
            world.set(begin + step * 60_000);
            scheduler.decide_due().unwrap();
        }
        let ticks: Vec<_> = world.service().list_ticks(world.row().n, i64::MIN, 1000).unwrap();
        let runs = ticks.iter().filter(|tick| tick.run.is_some()).count();
        let mut starts = world.service().list_starts(true, 1000).unwrap();
        starts.retain(|start| start.state != StartState::Withdrawn);
        assert_eq!(starts.len(), runs, "{jump}: {before:?}");
        // 200 minutes: no process had begun with the starts that were queued while the clock was ahead.
        let all: u64 = ticks.iter().map(|tick| tick.count).sum();
        assert_eq!(all, 200, "{jump}: {before:?} {:?}", world.ledger());
        assert!(runs >= 199, "{jump}: {runs}");
    }
}

#[test]
fn what_a_wrong_clock_queued_is_withdrawn_and_due_again() {
    const DAY: i64 = 86_400_000;
    let world = World::at("2026-11-20T20:00:30Z");
    let due = cron("* * * * *", "UTC");
    world.register("a", vec![schedule("s", due, Missed::All { max: 100, within_ms: None }, Overlap::Allow)]);
    let (mut scheduler, service, begin) = (world.scheduler(), world.service(), world.now());
    let queued = || service.count_queued().unwrap();
    world.set(begin + 60_000);
    scheduler.decide_due().unwrap();
    world.set(begin + DAY);
    scheduler.decide_due().unwrap();
    assert_eq!(queued(), 101);
    let tomorrow = service.list_starts(false, 1).unwrap()[0].run;
    world.set(begin + 64_000);
    scheduler.decide_due().unwrap();
    assert_eq!(queued(), 1, "only due ticks stay queued");
    let withdrawn = service.start_of(tomorrow).unwrap().unwrap();
    assert_eq!(withdrawn.state, StartState::Withdrawn);
    assert!(withdrawn.why.is_some_and(|why| why.contains("the clock was ahead")));
    // A clock that has lost the time retracts nothing.
    let ledger = world.ledger();
    world.set(1_000);
    scheduler.decide_due().unwrap();
    assert_eq!((queued(), world.ledger()), (1, ledger));
    for minute in 2..=24 * 60 {
        world.set(begin + minute * 60_000);
        scheduler.decide_due().unwrap();
    }
    assert_eq!(queued(), 24 * 60, "each minute of the day is due once");
}

#[test]
fn what_is_paused_is_accounted_for() {
    let world = World::at("2026-11-20T20:00:30Z");
    let due = cron("* * * * *", "UTC");
    world.register("a", vec![schedule("s", due, Missed::All { max: 9, within_ms: None }, Overlap::Allow)]);
    let mut scheduler = world.scheduler();
    let service = world.service();
    world.set(ms("2026-11-20T20:01:00Z"));
    scheduler.decide_due().unwrap();
    assert!(scheduler.settle_schedule(&world.row()).unwrap());
    service.set_paused(&world.row(), true, Some("ann"), "test").unwrap();
    world.set(ms("2026-11-20T21:00:10Z"));
    let turn = scheduler.decide_due().unwrap();
    assert_eq!((turn.decided, turn.next), (0, None));
    assert!(scheduler.settle_schedule(&world.row()).unwrap());
    service.set_paused(&world.row(), false, Some("bob"), "test").unwrap();
    let turn = scheduler.decide_due().unwrap();
    assert_eq!((turn.starts, turn.next), (0, Some(ms("2026-11-20T21:01:00Z"))));
    assert_eq!(
        world.ledger(),
        [
            found("2026-11-20T20:01:00", TickState::Fired, 1),
            found("2026-11-20T20:02:00", TickState::Paused, 59)
        ]
    );
    let reason = service.list_ticks(world.row().n, 0, 1).unwrap()[0].reason.clone();
    assert_eq!(reason.as_deref(), Some("paused by ann"));
}

#[test]
fn jitter_is_the_same_on_every_server_and_puts_off_by_less_than_it_says() {
    let world = World::at("2026-11-20T20:00:00Z");
    let many = (0..50).map(|n| Schedule {
        jitter_ms: 60_000,
        ..schedule(&format!("s{n}"), cron("0 21 * * *", "UTC"), Missed::Skip, Overlap::Skip)
    });
    world.register("a", many.collect());
    let starts: Vec<i64> =
        world.service().list_schedules().unwrap().iter().filter_map(|row| row.next).collect();
    let due = ms("2026-11-20T21:00:00Z");
    assert!(starts.iter().all(|start| (due..due + 60_000).contains(start)));
    assert!(starts.iter().collect::<std::collections::HashSet<_>>().len() > 40);
    let (mut one, mut other) = (world.scheduler(), Scheduler::new(&world.another_store()).unwrap());
    world.set(due + 60_000);
    assert_eq!(one.decide_due().unwrap().starts + other.decide_due().unwrap().starts, 50);
    let ticks = world.service().list_schedules().unwrap();
    let ticks = ticks.iter().flat_map(|row| world.service().list_ticks(row.n, 0, 9).unwrap());
    assert!(ticks.into_iter().all(|tick| tick.due == due && tick.state == TickState::Fired));
}

/// Decides `LOBSTER_SCHEDULES` schedules that are due at once, and prints the cost of a turn.
#[test]
fn many_schedules_are_decided_in_one_turn() {
    let count = std::env::var("LOBSTER_SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(500);
    let world = World::at("2026-11-20T20:00:30Z");
    let many = (0..count)
        .map(|n| schedule(&format!("s{n}"), cron("* * * * *", "Europe/Berlin"), Missed::Skip, Overlap::Skip));
    world.register("a", many.collect());
    let mut scheduler = world.scheduler();
    world.set(ms("2026-11-20T20:01:00Z"));
    let begun = std::time::Instant::now();
    assert_eq!(scheduler.decide_due().unwrap().starts, count);
    let busy = begun.elapsed();
    let begun = std::time::Instant::now();
    assert_eq!(scheduler.decide_due().unwrap().decided, 0);
    println!("{count} schedules: due at once {busy:?}, nothing due {:?}", begun.elapsed());
}
