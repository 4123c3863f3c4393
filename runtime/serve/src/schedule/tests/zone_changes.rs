//! Time zone databases that change while schedules wait: governments change rules a few weeks in advance.

use std::path::Path;

use jiff::tz::TimeZoneDatabase;
use lobster_runtime::language::triggers::{Missed, Overlap};
use lobster_runtime::store::service::TickState;

use super::super::Scheduler;
use super::{World, cron, ms, schedule};

/// A time zone file (RFC 9636, version 2) with a fixed offset of this many hours ahead of UTC.
fn zone_file(hours: i32) -> Vec<u8> {
    let block = |of_times: usize| {
        let mut block = b"TZif2".to_vec();
        block.extend([0; 15]);
        // No indicators, leap seconds or transitions; one type, and four bytes of names.
        for count in [0_u32, 0, 0, 0, 1, 4] {
            block.extend(count.to_be_bytes());
        }
        block.extend(vec![0; of_times]);
        block.extend((hours * 3600).to_be_bytes());
        block.extend([0, 0]);
        block.extend(b"XXX\0");
        block
    };
    let mut file = block(0);
    file.extend(block(0));
    // POSIX uses the opposite sign.
    file.extend(format!("\nXXX{}\n", -hours).bytes());
    file
}

fn zones(dir: &Path, hours: i32) -> TimeZoneDatabase {
    let dir = dir.join(hours.to_string());
    std::fs::create_dir_all(dir.join("Test")).unwrap();
    std::fs::write(dir.join("Test/Zone"), zone_file(hours)).unwrap();
    TimeZoneDatabase::from_dir(dir).unwrap()
}

#[test]
fn changed_rules_of_a_zone_move_the_ticks_to_come_and_are_told() {
    let dir = tempfile::tempdir().unwrap();
    for (before, after) in [(1, 2), (2, 1), (0, 10), (10, 0), (-11, 13), (5, 5)] {
        let world = World::at("2026-11-20T00:30:00Z");
        let due = cron("0 12 * * *", "Test/Zone");
        world.register_in(
            "a",
            vec![schedule("s", due, Missed::Skip, Overlap::Skip)],
            &zones(dir.path(), before),
        );
        let first = world.row().next.unwrap();
        let noon = |hours: i64, day: i64| ms("2026-11-20T12:00:00Z") + day * 86_400_000 - hours * 3_600_000;
        // Covers a restarted program and a program that reloads its database.
        let mut scheduler = Scheduler::new(&world.store).unwrap().with_zones(zones(dir.path(), before));
        scheduler.decide_due().unwrap();
        assert_eq!(world.service().last_rescheduling(&world.row()).unwrap(), None, "{before} {after}");
        scheduler = scheduler.with_zones(zones(dir.path(), after));
        world.set(world.now() + 11 * 60_000);
        let turn = scheduler.decide_due().unwrap();
        let next = turn.next.unwrap();
        let wanted = (0..3).map(|day| noon(after.into(), day)).find(|at| *at > world.now()).unwrap();
        assert_eq!(next, wanted, "{before} to {after}");
        let told = world.service().last_rescheduling(&world.row()).unwrap();
        assert_eq!(told.map(|(_, was, is)| (was, is)), (first != next).then_some((first, next)));
        // The tick fires once at its new time, and not at the old one.
        world.set(next);
        assert_eq!(scheduler.decide_due().unwrap().starts, 1, "{before} to {after}");
        world.end_runs();
        world.set(next + 23 * 3_600_000);
        assert_eq!(scheduler.decide_due().unwrap().starts, 0, "{before} to {after}: {:?}", world.ledger());
        assert!(world.ledger().iter().all(|(_, state, count)| (*state, *count) == (TickState::Fired, 1)));
    }
}

#[test]
fn rules_that_put_a_tick_into_the_past_have_it_decided_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::at("2026-11-20T08:00:00Z");
    let due = cron("0 12 * * *", "Test/Zone");
    world.register_in(
        "a",
        vec![schedule("s", due, Missed::Last { within_ms: None }, Overlap::Skip)],
        &zones(dir.path(), 0),
    );
    world.set(ms("2026-11-20T11:30:00Z"));
    // By the new rules, noon was at ten.
    let mut scheduler = Scheduler::new(&world.store).unwrap().with_zones(zones(dir.path(), 2));
    assert_eq!(scheduler.decide_due().unwrap().starts, 1);
    assert_eq!(world.ledger(), [super::found("2026-11-20T12:00:00", TickState::CaughtUp, 1)]);
    world.end_runs();
    world.set(ms("2026-11-20T12:00:00Z"));
    assert_eq!(
        scheduler.decide_due().unwrap().starts,
        0,
        "the same noon does not fire twice: {:?}",
        world.ledger()
    );
}
