//! The ledger compared with a model: random schedules, outages, and two servers of which one is frozen at times.
//!
//! The model knows when each server read the clock, and which runs had not ended then. From that alone it predicts the
//! state of each tick, one after another and without the database.

use std::collections::{BTreeMap, BTreeSet};

use jiff::tz::TimeZoneDatabase;
use lobster_runtime::language::triggers::{Due, DueTick, Missed, Overlap, Schedule};
use lobster_runtime::store::RunId;
use lobster_runtime::store::service::{ScheduleRow, Settlement, Standing, StartState, TickState};

use super::super::spec::instant_from_ms;
use super::super::{Scheduler, Turn};
use super::{World, cron, ms, schedule};

/// Numbers that look random and are the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()].clone()
    }
}

const ZONES: [&str; 3] = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"];

fn random_schedule(random: &mut Random, n: u64) -> Schedule {
    let zone = random.of(&ZONES);
    let patterns = [
        "30 2 * * *",
        "0 */2 * * *",
        "15 1,2,3 * * *",
        "45 * * * *",
        "10 0-23/3 * * *",
        "30 1 * * *",
        "0 9 * * 1-5",
    ];
    let due = match random.below(4) {
        0 => Due::Every { ms: (20 + random.below(400)) * 60_000 },
        _ => cron(random.of(&patterns), zone),
    };
    let missed = match random.below(3) {
        0 => Missed::Skip,
        1 => Missed::Last { within_ms: None },
        _ => Missed::All { max: 1 + random.below(4), within_ms: None },
    };
    let overlap = match random.below(4) {
        0 => Overlap::Allow,
        1 => Overlap::Skip,
        2 => Overlap::Queue { max: 1 + random.below(2) },
        _ => Overlap::CancelPrevious,
    };
    let jitter_ms = random.of(&[0, 0, 0, 50_000]);
    Schedule { jitter_ms, ..schedule(&format!("s{n}"), due, missed, overlap) }
}

/// State of one schedule in the model.
struct Modelled {
    row: ScheduleRow,
    schedule: Schedule,
    ticks: Vec<DueTick>,
    /// Number of ticks that are decided.
    done: usize,
    /// Time of the last decision, by the schedule's own clock.
    decided: i64,
    outcome: BTreeMap<String, TickState>,
}

impl Modelled {
    /// A server has read the clock. `busy` is true if runs had not ended, and `queued` is the number of queued ones.
    fn look(&mut self, now: i64, busy: bool, queued: u64) {
        let clock = now - i64::try_from(self.schedule.delay_ms(&self.row.display_name())).unwrap();
        let due: Vec<DueTick> = self.ticks[self.done..]
            .iter()
            .take_while(|tick| tick.due.as_millisecond() <= clock)
            .copied()
            .collect();
        if due.is_empty() {
            return;
        }
        let gap = match &self.schedule.due {
            Due::Every { ms } => i64::try_from(*ms).unwrap(),
            Due::Cron { .. } => match self.ticks.get(self.done + 1) {
                Some(second) => second.due.as_millisecond() - due[0].due.as_millisecond(),
                None => i64::MAX,
            },
        };
        let punctual = clock - gap.clamp(1000, 60_000);
        let late = |tick: &DueTick| tick.due.as_millisecond() <= punctual;
        let most = match self.schedule.missed {
            _ if !due.iter().any(late) => due.len(),
            Missed::Skip => due.iter().filter(|tick| !late(tick)).count(),
            Missed::Last { .. } => 1,
            Missed::All { max, .. } => usize::try_from(max).unwrap(),
        };
        let left_out = due.len().saturating_sub(most);
        let are_made_up_for = due.iter().any(late) && self.schedule.missed != Missed::Skip;
        let (mut busy, mut queued) = (busy, queued);
        for (at, tick) in due.iter().enumerate() {
            let run = if late(tick) { TickState::CaughtUp } else { TickState::Fired };
            let state = if at < left_out {
                TickState::Missed
            } else {
                match self.schedule.overlap {
                    Overlap::Allow => run,
                    Overlap::CancelPrevious if at + 1 < due.len() => TickState::Skipped,
                    Overlap::CancelPrevious => run,
                    Overlap::Skip | Overlap::Queue { .. } if are_made_up_for => run,
                    Overlap::Skip if busy => TickState::Skipped,
                    Overlap::Queue { max } if busy && queued >= max => TickState::Skipped,
                    Overlap::Skip | Overlap::Queue { .. } => {
                        queued += u64::from(busy);
                        run
                    }
                }
            };
            busy |= matches!(state, TickState::Fired | TickState::CaughtUp);
            self.outcome.insert(tick.key(), state);
        }
        self.done += due.len();
        self.decided = clock;
    }
}

/// Runs of random duration.
#[derive(Default)]
struct Executor {
    ends: BTreeMap<RunId, i64>,
}

impl Executor {
    fn work(&mut self, world: &World, random: &mut Random) {
        let (service, now) = (world.service(), world.now());
        let over: Vec<RunId> =
            self.ends.iter().filter(|(_, end)| **end <= now).map(|(run, _)| *run).collect();
        for run in over {
            self.ends.remove(&run);
            service.record_standing(run, &Standing::Over).unwrap();
        }
        for start in service.starts_to_cancel().unwrap() {
            self.ends.remove(&start.run);
            service.record_standing(start.run, &Standing::Over).unwrap();
        }
        for start in service.take_starts("executor", i64::MAX, 1000).unwrap() {
            self.ends.insert(start.run, now + 1 + i64::try_from(random.below(5 * 3_600_000)).unwrap());
        }
    }
}

/// Updates the model of each schedule, and runs one turn of a server.
fn look(world: &World, scheduler: &mut Scheduler, models: &mut [Modelled]) -> Turn {
    let now = world.now();
    let service = world.service();
    for model in models {
        let active = service.active_starts(model.row.n).unwrap();
        let queued = active.iter().filter(|start| start.state == StartState::Queued).count();
        model.look(now, !active.is_empty(), queued as u64);
    }
    scheduler.decide_due().unwrap()
}

/// The ticks that the entries of a schedule cover, each as often as it is covered.
fn accounted(world: &World, model: &Modelled) -> Vec<(String, TickState)> {
    let mut all = Vec::new();
    let mut entries = world.service().list_ticks(model.row.n, i64::MIN, usize::MAX).unwrap();
    entries.reverse();
    for entry in entries {
        let mut covered: Vec<_> = model
            .ticks
            .iter()
            .filter(|tick| (entry.due..=entry.last).contains(&tick.due.as_millisecond()))
            .map(DueTick::key)
            .collect();
        if entry.count == 1 {
            // Two ticks may be due at the same instant.
            covered.retain(|key| *key == entry.key);
        }
        assert_eq!(covered.len() as u64, entry.count, "{entry:?}");
        all.extend(covered.into_iter().map(|key| (key, entry.state)));
    }
    all
}

fn simulate(seed: u64, from: &str, count: u64) {
    let mut random = Random(seed);
    let world = World::at(from);
    let zones = TimeZoneDatabase::bundled();
    let end = world.now() + 72 * 3_600_000;
    let schedules: Vec<Schedule> = (0..count).map(|n| random_schedule(&mut random, n)).collect();
    world.register("a", schedules.clone());
    let begin = world.now();
    let rows = world.service().list_schedules().unwrap();
    let mut models: Vec<Modelled> = rows
        .into_iter()
        .map(|row| {
            let schedule = schedules.iter().find(|one| one.name == row.name).unwrap().clone();
            let ticks = schedule.ticks_after(instant_from_ms(begin), &zones).unwrap();
            let ticks = ticks.take_while(|tick| tick.due.as_millisecond() <= end + 86_400_000).collect();
            Modelled { row, schedule, ticks, done: 0, decided: begin, outcome: BTreeMap::new() }
        })
        .collect();
    let other = world.another_store();
    let mut servers =
        [world.scheduler(), Scheduler::new(&other).unwrap().with_zones(TimeZoneDatabase::bundled())];
    let outages: BTreeSet<i64> =
        (0..5).map(|_| begin + i64::try_from(random.below(72 * 3_600_000)).unwrap()).collect();
    let mut outages = outages.into_iter().peekable();
    let mut executor = Executor::default();
    let mut frozen: Option<(i64, Vec<Settlement>)> = None;
    let mut stale = 0;
    while world.now() < end {
        if outages.next_if(|at| *at <= world.now()).is_some() {
            // No server runs for a few minutes to half a day.
            world.set(world.now() + i64::try_from(300_000 + random.below(12 * 3_600_000)).unwrap());
        }
        executor.work(&world, &mut random);
        // One of the two servers is stopped in the middle of a decision, for longer than any lease.
        if frozen.is_none() && random.below(20) == 0 {
            let due = world.service().due_schedules(world.now(), 1000).unwrap();
            let held: Vec<_> =
                due.iter().map(|row| servers[1].make_settlement(row, world.now()).unwrap()).collect();
            frozen = Some((world.now() + 3_600_000, held));
        }
        let which = usize::from(frozen.is_none() && random.below(2) == 0);
        let turn = look(&world, &mut servers[which], &mut models);
        if let Some((_, held)) = frozen.take_if(|(until, _)| *until <= world.now()) {
            stale += held.len();
            let counted = servers[1].service.write_settlements(&held).unwrap();
            assert!(counted.iter().all(|counted| !counted), "a decision of a frozen server was written");
        }
        let next = turn.next.unwrap_or(end).max(world.now() + 1);
        world.set(next + i64::try_from(random.below(40)).unwrap());
    }
    let mut ticks = 0;
    for model in &models {
        let accounted = accounted(&world, model);
        let expected: Vec<(String, TickState)> =
            model.ticks[..model.done].iter().map(|tick| (tick.key(), model.outcome[&tick.key()])).collect();
        assert_eq!(accounted, expected, "seed {seed}: {:?} decided {}", model.schedule, model.decided);
        ticks += expected.len();
        let entries = world.service().list_ticks(model.row.n, i64::MIN, usize::MAX).unwrap();
        let ran = |state| matches!(state, TickState::Fired | TickState::CaughtUp);
        assert!(entries.iter().all(|entry| entry.run.is_some() == ran(entry.state)));
    }
    println!("seed {seed}: {count} schedules, {ticks} ticks, {stale} decisions of a frozen server");
}

/// `LOBSTER_SCHEDULE_MODELS` seeds, with 200 schedules each.
#[test]
fn the_ledger_is_what_the_model_says() {
    let given = std::env::var("LOBSTER_SCHEDULE_MODELS").ok().and_then(|text| text.parse().ok());
    let from = ["2026-10-24T06:00:00Z", "2026-03-07T06:00:00Z", "2026-04-04T00:00:00Z"];
    match given {
        None => simulate(1, from[0], 40),
        Some(seeds) => {
            for seed in 1..=seeds {
                simulate(seed, from[usize::try_from(seed).unwrap() % 3], 200);
            }
        }
    }
    assert!(ms(from[0]) > 0);
}
