use std::sync::LazyLock;

use jiff::civil::DateTime;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};

use super::*;

/// Keeps the time zones that have been read.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

fn schedule(due: Due) -> Schedule {
    Schedule {
        span: Span::default(),
        name: "s".to_owned(),
        due,
        jitter_ms: 0,
        missed: Missed::Skip,
        overlap: Overlap::default(),
        args: Map::new(),
    }
}

fn cron(pattern: &str, timezone: &str) -> Schedule {
    schedule(Due::Cron { pattern: pattern.to_owned(), timezone: timezone.to_owned() })
}

fn ticks(schedule: &Schedule, after: Timestamp) -> Ticks {
    schedule.ticks_after(after, &ZONES).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Instants on the clock of the zone, each with its intended time.
fn shown(pattern: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let clock = ZONES.get(zone).unwrap();
    ticks(&cron(pattern, zone), at(after))
        .take(count)
        .map(|tick| {
            let due = tick.due.to_zoned(clock.clone()).strftime("%d %H:%M%:z");
            format!("{due} {}", tick.key().split_once('-').unwrap().1)
        })
        .collect()
}

#[test]
fn times_of_day_come_once_in_gaps_and_folds() {
    let new_york = "America/New_York";
    assert_eq!(
        shown("30 2 * * *", new_york, "2026-03-08T05:50:00Z", 2),
        ["08 03:00-04:00 03-08T02:30:00", "09 02:30-04:00 03-09T02:30:00"]
    );
    assert_eq!(
        shown("30 1 * * *", new_york, "2026-11-01T04:50:00Z", 2),
        ["01 01:30-04:00 11-01T01:30:00", "02 01:30-05:00 11-02T01:30:00"]
    );
    // For a start between the two, the first one is in the past.
    assert_eq!(shown("30 1 * * *", new_york, "2026-11-01T06:10:00Z", 1), ["02 01:30-05:00 11-02T01:30:00"]);
    assert_eq!(
        shown("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", 2),
        ["04 02:30+11:00 10-04T02:15:00", "05 02:15+11:00 10-05T02:15:00"]
    );
    // Two ticks on one date of the clock, which were intended for two dates.
    assert_eq!(
        shown("30 23 * * *", "America/Nuuk", "2026-03-28T20:00:00Z", 2),
        ["29 00:00-01:00 03-28T23:30:00", "29 23:30-01:00 03-29T23:30:00"]
    );
    // A date that does not exist.
    assert_eq!(
        shown("0 12 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", 3),
        ["29 12:00-10:00 12-29T12:00:00", "31 00:00+14:00 12-30T12:00:00", "31 12:00+14:00 12-31T12:00:00"]
    );
}

#[test]
fn intervals_follow_real_time() {
    let quarters = shown("*/15 * * * *", "America/New_York", "2026-11-01T04:59:00Z", 8);
    assert_eq!(
        quarters,
        [
            "01 01:00-04:00 11-01T01:00:00",
            "01 01:15-04:00 11-01T01:15:00",
            "01 01:30-04:00 11-01T01:30:00",
            "01 01:45-04:00 11-01T01:45:00",
            "01 01:00-05:00 11-01T01:00:00+fold",
            "01 01:15-05:00 11-01T01:15:00+fold",
            "01 01:30-05:00 11-01T01:30:00+fold",
            "01 01:45-05:00 11-01T01:45:00+fold",
        ]
    );
    // A timer of four hours has no gap of a day.
    let sydney: Vec<Tick> =
        ticks(&cron("0 */4 * * *", "Australia/Sydney"), at("2026-10-02T00:00:00Z")).take(18).collect();
    for pair in sydney.windows(2) {
        let hours = pair[0].due.duration_until(pair[1].due).as_hours();
        assert!((3..=5).contains(&hours), "{pair:?}");
    }
}

#[test]
fn an_interval_is_counted_from_the_epoch() {
    let every = schedule(Due::Every { ms: 6 * 3_600_000 });
    let found = |after: &str| ticks(&every, at(after)).take(2).map(|t| t.due.to_string()).collect::<Vec<_>>();
    assert_eq!(found("2026-11-23T05:59:59.5Z"), ["2026-11-23T06:00:00Z", "2026-11-23T12:00:00Z"]);
    assert_eq!(found("2026-11-23T06:00:00Z"), ["2026-11-23T12:00:00Z", "2026-11-23T18:00:00Z"]);
    assert_eq!(found("1969-12-31T23:00:00Z"), ["1970-01-01T00:00:00Z", "1970-01-01T06:00:00Z"]);
    let never = schedule(Due::Every { ms: 0 });
    let error = never.ticks_after(at("2026-01-01T00:00:00Z"), &ZONES).unwrap_err();
    assert_eq!(error, TickError::NoInterval);
}

#[test]
fn the_delay_of_a_schedule_is_its_own() {
    let mut spread = cron("@daily", "UTC");
    assert_eq!(spread.delay_ms("a"), 0);
    spread.jitter_ms = 60_000;
    let drawn: Vec<u64> = (0..100).map(|n| spread.delay_ms(&format!("schedule {n}"))).collect();
    assert_eq!(drawn[7], spread.delay_ms("schedule 7"));
    assert!(drawn.iter().all(|ms| *ms < 60_000));
    // Distributed over the whole range.
    for tenth in 0..10 {
        assert!(drawn.iter().any(|ms| ms / 6000 == tenth), "{tenth}: {drawn:?}");
    }
}

#[test]
fn patterns_that_never_come_are_refused() {
    assert_eq!(cron::parse("0 0 30 2 *").unwrap_err(), cron::PatternError::Never);
    assert_eq!(cron::parse("0 0 31 4,6,9,11 *").unwrap_err(), cron::PatternError::Never);
    for wrong in ["", "* * * *", "61 * * * *", "x", "0 0 1 1 * * 2030", "@sometimes"] {
        assert!(matches!(cron::parse(wrong), Err(cron::PatternError::Syntax(_))), "{wrong}");
    }
    // A rare tick is still due.
    let leap = ticks(&cron("0 0 29 2 *", "UTC"), at("2097-01-01T00:00:00Z")).next().unwrap();
    assert_eq!(leap.due, at("2104-02-29T00:00:00Z"));
    assert!(is_zone("Europe/Berlin") && !is_zone("Europe/Bonn") && !is_zone(""));
}

/// Every change of a zone's clock in a year.
fn changes(zone: &TimeZone, year: i16) -> Vec<Timestamp> {
    let start = jiff::civil::date(year, 1, 1).to_zoned(TimeZone::UTC).unwrap().timestamp();
    let end = jiff::civil::date(year + 1, 1, 1).to_zoned(TimeZone::UTC).unwrap().timestamp();
    zone.following(start).map(|change| change.timestamp()).take_while(|at| *at < end).collect()
}

/// Expected ticks by the rules, found by checking every minute: no search, no offsets.
fn ticks_of_each_minute(
    pattern: &cron::Pattern,
    zone: &TimeZone,
    minutes: &[Timestamp],
) -> Vec<(Timestamp, DateTime)> {
    let fits = |wall: DateTime| pattern.next(wall, true) == Some(wall);
    let clocks: Vec<DateTime> = minutes.iter().map(|at| zone.to_datetime(*at)).collect();
    if pattern.follows_real_time() {
        let both = minutes.iter().copied().zip(clocks);
        return both.filter(|(_, wall)| fits(*wall)).collect();
    }
    // A civil time is due when the clock first shows it or a later time.
    let mut wall = clocks[0];
    let mut found = Vec::new();
    for (at, clock) in minutes.iter().zip(&clocks) {
        while wall <= *clock {
            if fits(wall) {
                found.push((*at, wall));
            }
            wall = wall.checked_add(SignedDuration::from_mins(1)).unwrap();
        }
    }
    found
}

#[test]
fn ticks_are_those_of_each_minute_around_every_change_of_seven_zones() {
    let zones = [
        ("America/New_York", 2026),
        ("Australia/Lord_Howe", 2026),
        ("America/Nuuk", 2026),
        ("Pacific/Apia", 2011),
        ("Africa/Casablanca", 2026),
        ("Africa/Cairo", 2026),
        ("Australia/Sydney", 2026),
    ];
    let patterns = [
        "30 2 * * *",
        "15,45 0,23 * * *",
        "5 1-3 * * *",
        "0 12 * * *",
        "0 0 * * 5",
        "30 1 1 * *",
        "@daily",
        "*/15 * * * *",
        "0 */4 * * *",
        "* 2 * * *",
        "@hourly",
    ];
    let mut compared = 0;
    for (name, year) in zones {
        let zone = ZONES.get(name).unwrap();
        let changes = changes(&zone, year);
        assert!(changes.len() >= 2, "{name}");
        for change in changes {
            // The first minutes precede the window, so that times that began there are seen.
            let minutes: Vec<Timestamp> =
                (-1800..1800).map(|n| change + SignedDuration::from_mins(n)).collect();
            for pattern in patterns {
                let expected = ticks_of_each_minute(&cron::parse(pattern).unwrap(), &zone, &minutes);
                let end = *minutes.last().unwrap();
                for start in minutes.iter().step_by(317).chain([&change]) {
                    let found: Vec<_> = ticks(&cron(pattern, name), *start)
                        .take_while(|tick| tick.due <= end)
                        .map(|tick| (tick.due, tick.intended))
                        .collect();
                    let later: Vec<_> = expected.iter().copied().filter(|(due, _)| due > start).collect();
                    assert_eq!(found, later, "{pattern} in {name} after {start}");
                    compared += found.len();
                }
            }
        }
    }
    assert!(compared > 10_000, "{compared}");
}

#[test]
fn keys_are_unique_and_in_order() {
    for (pattern, zone) in [
        ("*/30 * * * *", "Australia/Lord_Howe"),
        ("15,45 0 * * *", "Africa/Cairo"),
        ("0 1 * * *", "Pacific/Apia"),
    ] {
        let mut keys = std::collections::HashSet::new();
        let mut last = None;
        for tick in ticks(&cron(pattern, zone), at("2026-01-01T00:00:00Z"))
            .take_while(|t| t.due < at("2027-01-01T00:00:00Z"))
        {
            assert!(keys.insert(tick.key()), "{}", tick.key());
            assert!(last.is_none_or(|last| last <= tick.due), "{}", tick.key());
            last = Some(tick.due);
        }
        assert!(keys.len() > 360, "{pattern}");
    }
}

#[test]
fn arguments_are_found_by_their_paths() {
    let path = |parts: &[&str]| Source::Path(parts.iter().map(|part| (*part).to_owned()).collect());
    let args = BTreeMap::from([
        ("id".to_owned(), path(&["items", "1", "id"])),
        ("absent".to_owned(), path(&["items", "x"])),
        ("all".to_owned(), path(&[])),
        ("fixed".to_owned(), Source::Value(7.into())),
    ]);
    let brought = serde_json::json!({"items": [{"id": 1}, {"id": 2}]});
    let found = find_args(&args, &brought);
    assert_eq!(Value::Object(found), serde_json::json!({"id": 2, "all": brought, "fixed": 7}));
}
