//! What schedules promise, and the tests that hold each of it. A promise without a test is none.

use std::collections::BTreeSet;

use crate::binary;

/// A promise, and the tests that hold it: `file::name`.
const PROMISES: [(&str, &[&str]); 17] = [
    (
        "every tick that is due has exactly one entry, with a reason",
        &["runtime/serve/src/schedule/tests/model.rs::the_ledger_is_what_the_model_says"],
    ),
    (
        "fixed times run once for each time that was meant, in gaps and folds of the clock",
        &[
            "runtime/language/src/triggers/tests.rs::times_of_day_come_once_in_gaps_and_folds",
            "runtime/language/src/triggers/tests.rs::ticks_are_those_of_each_minute_around_every_change_of_seven_zones",
            "runtime/serve/src/schedule/tests/mod.rs::a_gap_and_a_fold_of_the_clock_have_the_ticks_that_people_expect",
        ],
    ),
    ("intervals follow real time", &["runtime/language/src/triggers/tests.rs::intervals_follow_real_time"]),
    (
        "a clock that jumps fires nothing twice",
        &[
            "runtime/serve/src/schedule/tests/mod.rs::a_clock_that_jumps_fires_nothing_twice",
            "runtime/serve/src/schedule/tests/mod.rs::what_a_wrong_clock_queued_is_withdrawn_and_due_again",
        ],
    ),
    (
        "a server that is killed between due and started loses no tick",
        &["tests/schedules.rs::two_servers_of_which_one_is_frozen_or_killed_run_each_tick_once"],
    ),
    (
        "two servers on one store run each tick once, also if one was frozen",
        &["tests/schedules.rs::two_servers_of_which_one_is_frozen_or_killed_run_each_tick_once"],
    ),
    (
        "what was missed follows its policy and is never an avalanche",
        &["runtime/serve/src/schedule/tests/mod.rs::three_days_without_a_server_are_no_avalanche"],
    ),
    (
        "overlap is decided, and the reason names the run and what it waits for",
        &[
            "runtime/serve/src/schedule/tests/mod.rs::a_run_that_waits_overnight_is_the_reason_for_what_is_skipped",
            "runtime/serve/src/schedule/tests/mod.rs::a_queue_has_an_end_and_the_previous_run_is_cancelled",
        ],
    ),
    (
        "jitter is the same after a restart and on every server",
        &[
            "runtime/serve/src/schedule/tests/mod.rs::jitter_is_the_same_on_every_server_and_puts_off_by_less_than_it_says",
            "runtime/language/src/triggers/tests.rs::the_delay_of_a_schedule_is_its_own",
        ],
    ),
    (
        "a change or a pause loses nothing silently, and what is made up for says so",
        &[
            "runtime/serve/src/schedule/tests/mod.rs::what_is_paused_is_accounted_for",
            "tests/schedules.rs::without_a_server_a_schedule_is_paused_made_up_for_and_asked_about",
        ],
    ),
    (
        "10,000 schedules cost next to nothing and are not late",
        &[
            "runtime/serve/src/schedule/tests/mod.rs::many_schedules_are_decided_in_one_turn",
            "tests/serve_load.rs::many_schedules_wait_without_work_and_are_not_late",
        ],
    ),
    (
        "a changed database of time zones moves the ticks to come, and that is told",
        &[
            "runtime/serve/src/schedule/tests/zone_changes.rs::changed_rules_of_a_zone_move_the_ticks_to_come_and_are_told",
            "runtime/serve/src/schedule/tests/zone_changes.rs::rules_that_put_a_tick_into_the_past_have_it_decided_at_once",
        ],
    ),
    (
        "a schedule that never comes is an error of the file",
        &[
            "runtime/language/src/triggers/tests.rs::patterns_that_never_come_are_refused",
            "tests/mistakes.rs::each_is_named_and_its_cure_is_accepted",
        ],
    ),
    // What hurts users of other schedulers.
    (
        "an interval comes due on a laptop that sleeps",
        &[
            "runtime/serve/src/schedule/tests/mod.rs::an_interval_does_not_begin_anew_when_a_machine_sleeps",
            "runtime/language/src/triggers/tests.rs::an_interval_is_counted_from_the_epoch",
        ],
    ),
    (
        "no cap drops a tick at the exact minute",
        &["runtime/serve/src/schedule/tests/mod.rs::no_cap_drops_a_tick_at_the_exact_minute"],
    ),
    (
        "what was due while a machine slept leaves a trace",
        &["runtime/serve/src/schedule/tests/mod.rs::what_was_due_while_a_machine_slept_is_accounted_for"],
    ),
    (
        "a script that needs no model pays for none, and the ledger says so",
        &["tests/schedules.rs::a_script_that_is_due_calls_no_model_and_its_tick_says_so"],
    ),
];

#[test]
fn each_promise_of_schedules_has_its_tests() {
    let root = binary::repository();
    let mut known = BTreeSet::new();
    for (promise, tests) in PROMISES {
        assert!(known.insert(promise) && !tests.is_empty(), "{promise}");
        for test in tests {
            let (file, name) = test.split_once("::").unwrap();
            let source = std::fs::read_to_string(root.join(file)).unwrap_or_default();
            let lines: Vec<&str> = source.lines().map(str::trim).collect();
            let at = lines.iter().position(|line| *line == format!("fn {name}() {{"));
            let is_test = at.is_some_and(|at| lines[at.saturating_sub(3)..at].contains(&"#[test]"));
            assert!(is_test, "{promise}: there is no test {test}");
        }
    }
}
