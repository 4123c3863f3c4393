//! How soon, how often and at what cost the service starts runs. A change runs it small, with bounds that hold on a
//! busy machine; `just serve` runs it large and prints the figures.

use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use crate::home::{Home, wait_until};
use crate::served::{Served, register, token};
use crate::setting::number;

/// What a server takes that waits, in a build with debug information as well.
const MOST_MEMORY_KIB: u64 = 120 << 10;

const DAY_MS: i64 = 86_400_000;

/// Milliseconds of the day.
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap() % DAY_MS
}

/// The same of a time as the API writes it.
pub(crate) fn time_of(text: &Value) -> i64 {
    let time = text.as_str().unwrap().split('T').nth(1).unwrap().trim_end_matches('Z');
    let mut parts = time.split([':', '.']).map(|part| part.parse::<i64>().unwrap());
    let mut next = || parts.next().unwrap_or(0);
    ((next() * 60 + next()) * 60 + next()) * 1000 + next()
}

/// Milliseconds from one to the other, also over midnight.
pub(crate) fn between(from: i64, to: i64) -> i64 {
    (to - from + DAY_MS / 2).rem_euclid(DAY_MS) - DAY_MS / 2
}

/// Later than this no run begins, in the middle, on a machine that does other things as well.
const LATE_MS: i64 = 2000;

/// What is at one part of them in a hundred, from the least on.
fn part_of(all: &[i64], part: usize) -> i64 {
    let mut all = all.to_vec();
    all.sort_unstable();
    all[(all.len() - 1) * part / 100]
}

/// Middle, nearly worst and worst.
fn spread(all: &[i64]) -> String {
    let [middle, most, worst] = [50, 95, 100].map(|part| part_of(all, part));
    format!("p50 {middle} ms, p95 {most} ms, max {worst} ms")
}

/// Processor time of a process, in milliseconds.
fn cpu_ms(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: u64 = [11, 12].iter().map(|at| fields[*at].parse::<u64>().unwrap()).sum();
    ticks * 10
}

/// `LOBSTER_SERVE_STARTS` runs, one after the other and then 50 a second.
#[test]
fn runs_begin_soon_after_they_are_accepted() {
    let wanted = number("LOBSTER_SERVE_STARTS", 4);
    let home = Home::new();
    home.write("quick.lobster", "steps: [{id: a, run: 'echo x >> said'}]\n");
    register(&home, &["quick.lobster"]);
    let served = Served::start(&home, &["--max-runs", "16"]);
    let operator = token(&home, "operator", None);
    let begin = || {
        let run = served.post(&operator, "/api/v1/workflows/quick/runs", &json!({})).good();
        (run["run"].as_str().unwrap().to_owned(), now_ms())
    };
    let delay = |run: &str, accepted: i64| {
        let ended = served.ended(&operator, run);
        assert_eq!(ended["status"], "ok", "{ended}");
        between(accepted, time_of(&ended["startedAt"])).max(0)
    };
    let mut alone = Vec::new();
    // From the request until the run has ended, and what a shell waits for the same run.
    let (mut served_whole, mut own) = (Vec::new(), Vec::new());
    for _ in 0..wanted.min(50) {
        let (run, accepted) = begin();
        alone.push(delay(&run, accepted));
        served_whole.push(between(accepted, time_of(&served.ended(&operator, &run)["endedAt"])));
        let clock = Instant::now();
        home.lobster(["run", "quick.lobster"]).run();
        own.push(i64::try_from(clock.elapsed().as_millis()).unwrap());
    }
    let (mut crowd, clock) = (Vec::new(), Instant::now());
    for n in 0..wanted {
        let due = Duration::from_millis(20 * n as u64);
        std::thread::sleep(due.saturating_sub(clock.elapsed()));
        crowd.push(begin());
    }
    let took = clock.elapsed();
    while home.read("said").lines().count() < wanted + 2 * alone.len() {
        assert!(clock.elapsed() < Duration::from_secs(60 + wanted as u64), "not all have run");
        std::thread::sleep(Duration::from_millis(5));
    }
    let all = clock.elapsed();
    let crowd: Vec<i64> = crowd.iter().map(|(run, accepted)| delay(run, *accepted)).collect();
    println!("alone: {}", spread(&alone));
    println!("until it has ended: {}; in a shell: {}", spread(&served_whole), spread(&own));
    println!(
        "{wanted} starts in {:.1} s, all ended after {:.1} s: {}",
        took.as_secs_f64(),
        all.as_secs_f64(),
        spread(&crowd)
    );
    assert!(part_of(&alone, 50) < LATE_MS, "{alone:?}");
}

/// `LOBSTER_SERVE_SCHEDULES` schedules, of which one is due each second.
#[test]
fn many_schedules_wait_without_work_and_are_not_late() {
    let wanted: usize = number("LOBSTER_SERVE_SCHEDULES", 20);
    let home = Home::new();
    let each = 100;
    let mut files = vec!["second.lobster".to_owned()];
    home.write(
        "second.lobster",
        "on: {schedule: {cron: '* * * * * *', overlap: allow}}\nsteps: [{id: a, run: 'true'}]\n",
    );
    for file in 0..wanted.div_ceil(each) {
        let rows: Vec<String> = (0..each.min(wanted - file * each))
            .map(|n| format!("    - {{name: s{n}, cron: '{} {} 1 1 *'}}\n", n % 60, file % 24))
            .collect();
        home.write(
            &format!("f{file}.lobster"),
            format!("on:\n  schedule:\n{}steps: [{{id: a, run: 'true'}}]\n", rows.concat()),
        );
        files.push(format!("f{file}.lobster"));
    }
    for some in files.chunks(20) {
        register(&home, &some.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let served = Served::start(&home, &[]);
    // What was due before that is late by when the server was started.
    let listens = now_ms();
    let viewer = token(&home, "viewer", None);
    let ticks = || {
        let path = "/api/v1/workflows/second/schedules/schedule/ticks?limit=200";
        let found = served.get(&viewer, path).good();
        found["ticks"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|tick| tick["state"] == "fired" && between(listens, time_of(&tick["due"])) > 0)
            .cloned()
            .collect::<Vec<_>>()
    };
    wait_until("some ticks", || ticks().len() >= (wanted / 5).clamp(2, 10));
    home.lobster(["schedule", "pause", "second"]).run();
    let late: Vec<i64> = ticks()
        .iter()
        .filter_map(|tick| {
            let run = served.ended(&viewer, tick["run"].as_str()?);
            Some(between(time_of(&tick["due"]), time_of(&run["startedAt"])))
        })
        .collect();
    let pid = served.child.id();
    std::thread::sleep(Duration::from_millis(500));
    let (before, clock) = (cpu_ms(pid), Instant::now());
    std::thread::sleep(Duration::from_secs(if wanted > 100 { 20 } else { 1 }));
    let idle = (cpu_ms(pid) - before) as f64 / clock.elapsed().as_millis() as f64 * 100.0;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let memory = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default().to_owned();
    println!("{wanted} schedules: due to begun {}; idle {idle:.2} % of a core; {memory}", spread(&late));
    assert!(part_of(&late, 50) < LATE_MS, "late: {late:?}");
    assert!(idle < 10.0, "idle, it takes {idle:.2} % of a core");
    let kib: u64 = memory.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap();
    assert!(kib < MOST_MEMORY_KIB, "{memory}");
}
