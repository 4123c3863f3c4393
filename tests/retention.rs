//! Old runs go by themselves, once a day, unless the operator keeps them.

use std::fs::{File, FileTimes};
use std::time::{Duration, Instant, SystemTime};

use crate::home::Home;

/// As if the last collection had been two days ago.
fn make_due(home: &Home) {
    let marker = File::options().write(true).open(home.state().join("store/collected")).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(2 * 24 * 60 * 60);
    marker.set_times(FileTimes::new().set_modified(long_ago)).unwrap();
}

fn runs(home: &Home) -> usize {
    let listed = home.lobster(["runs", "--json"]).run().stdout;
    serde_json::from_str::<serde_json::Value>(&listed).unwrap().as_array().unwrap().len()
}

fn run(home: &Home, retention: &str) -> crate::home::Answer {
    let answer = home
        .lobster(["run", "--mode", "tool", "exec --shell 'echo x'"])
        .env("LOBSTER_RETENTION", retention)
        .run();
    assert_eq!(answer.code(), 0, "{answer:?}");
    answer
}

#[test]
fn old_runs_go_once_a_day_unless_the_operator_keeps_them() {
    let home = Home::new();
    run(&home, "1ms");
    run(&home, "1ms");
    assert_eq!(runs(&home), 2, "a new store has nothing to collect");
    make_due(&home);
    run(&home, "off");
    make_due(&home);
    run(&home, "off");
    assert_eq!(runs(&home), 4);

    let listed = home.lobster(["runs", "--json"]).run().stdout;
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let oldest = listed[3]["id"].as_str().unwrap();
    assert_eq!(home.lobster(["store", "pin", oldest]).run().code(), 0);
    make_due(&home);
    run(&home, "1ms");
    let begun = Instant::now();
    while runs(&home) > 2 && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(50));
    }
    // The pinned one stays, and perhaps the one that had hardly ended.
    assert!((1..=2).contains(&runs(&home)), "{}", runs(&home));
    assert!(home.lobster(["runs"]).run().stdout.contains(&oldest[oldest.len() - 8..]));

    let by_hand =
        home.lobster(["store", "gc", "--retention", "--dry-run"]).env("LOBSTER_RETENTION", "90d,1GiB").run();
    assert!(by_hand.code() == 0 && by_hand.stdout.starts_with("would remove 0 of "), "{by_hand:?}");
    let wrong = home.lobster(["store", "gc", "--retention"]).env("LOBSTER_RETENTION", "soon").run();
    assert!(wrong.code() == 1 && wrong.stderr.contains("\"soon\""), "{wrong:?}");
}
