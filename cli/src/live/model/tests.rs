//! Events in, lines out.

use std::sync::Arc;

use lobster_runtime::digest::Digest;
use lobster_runtime::store::Blob;
use proptest::prelude::*;
use serde_json::json;

use super::super::draw::{Look, changing_lines, plain_line, step_line, summary_line};
use super::*;

const LOOK: Look = Look { columns: 80, rows: 24, styled: false };

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn ended(path: &str, attempt: u32, status: StepStatus) -> Event {
    let mut outcome = StepOutcome::new(status);
    outcome.duration_us = 1_200_000;
    if attempt > 0 {
        outcome.stdout = Some(Blob { digest: Digest::of_bytes(b"x"), len: 2048 });
    }
    Event::StepEnded { path: path.to_owned(), attempt, begun: None, outcome: Arc::new(outcome) }
}

fn cached(path: &str) -> Event {
    let mut outcome = StepOutcome::new(StepStatus::Ok);
    outcome.cached = true;
    outcome.fuel = Some(1_000_000);
    Event::StepEnded { path: path.to_owned(), attempt: 1, begun: None, outcome: Arc::new(outcome) }
}

fn looped(per_round: usize) -> Model {
    let fold = Fold { kind: FoldKind::Rounds, per_round, ..Fold::default() };
    let outline = [("each".to_owned(), (String::new(), Some(fold)))].into();
    Model { outline, ..Model::default() }
}

fn marks(model: &Model) -> Vec<Mark> {
    model.lines().iter().map(|line| line.mark).collect()
}

#[test]
fn each_end_has_its_mark_and_lines_stay_in_order() {
    let mut model = Model::default();
    model.record_start("fetch", "native", ms(0));
    assert_eq!(model.lines()[0].stderr_line(), None);
    model.record_report("fetch", &Heard::Stderr("second".to_owned()));
    assert_eq!(model.lines()[0].stderr_line(), Some("second"));
    model.record_report("fetch|0.0", &Heard::Answering(1234));
    assert_eq!(model.lines()[0].stderr_line(), Some("1234 characters of the answer so far"));
    model.record_end("fetch");
    model.record_event(&ended("fetch", 1, StepStatus::Ok), ms(1200));
    assert_eq!(marks(&model), [Mark::Running], "the step itself has not ended");
    model.record_event(&ended("fetch", 0, StepStatus::Ok), ms(1200));
    model.record_event(&cached("sum"), ms(1300));
    model.record_event(&ended("sum", 0, StepStatus::Ok), ms(1300));
    model.record_event(&ended("maybe", 0, StepStatus::Skipped), ms(1300));
    model.record_start("push", "native", ms(1300));
    model.record_event(&ended("push", 1, StepStatus::Failed), ms(1400));
    model.end_run(ms(1500));
    assert_eq!(marks(&model), [Mark::Ok, Mark::Reused, Mark::Skipped, Mark::Failed]);
    assert_eq!(model.sums.fuel, 0, "what was reused used nothing");
    assert_eq!(plain_line(&model.lines()[0]), "ok fetch (1.2 s, 2.0 KiB)");
    assert_eq!(plain_line(&model.lines()[1]), "reused sum");
    let sum = summary_line(&model, None, ms(2000), &LOOK).unwrap();
    assert_eq!(sum, "4 steps, 1 reused, 1 skipped, 1 failed, 2.0 s");
}

#[test]
fn a_loop_is_one_line_with_its_rounds_and_their_rate() {
    let mut model = looped(2);
    model.count_rounds("each", 40, ms(0));
    for round in 0..10 {
        model.record_start(&format!("each[{round}]/a"), "native", ms(0));
        for step in ["a", "b"] {
            model.record_event(&ended(&format!("each[{round}]/{step}"), 1, StepStatus::Ok), ms(0));
            model.record_event(&ended(&format!("each[{round}]/{step}"), 0, StepStatus::Ok), ms(0));
        }
        model.record_end(&format!("each[{round}]/a"));
    }
    model.record_start("each[10]/a", "native", ms(0));
    let shown = step_line(&model.lines()[0], &model, ms(4000), &LOOK);
    assert!(shown.contains("10/40 rounds, 2.5/s · a") && shown.contains("40.0 KiB"), "{shown}");
    assert_eq!(model.lines().len(), 1);
    // The steps of a nested loop are not rounds of the outer one.
    model.record_event(&ended("each[10]/in[0]/x", 0, StepStatus::Ok), ms(0));
    assert_eq!(model.lines()[0].fold.as_ref().unwrap().rounds_done(), 10);
    // Another attempt starts at zero.
    model.record_start("each#2[0]/a", "native", ms(5000));
    assert_eq!((model.lines()[0].attempt, model.lines()[0].fold.as_ref().unwrap().rounds_done()), (2, 0));
}

#[test]
fn what_a_fork_takes_over_is_reused_and_what_is_done_before_a_resume_says_so() {
    let mut model = Model::default();
    let started = Event::StepStarted {
        path: "a".to_owned(),
        attempt: 1,
        kind: "native".to_owned(),
        action: None,
        effect: true,
        idempotent: false,
        decision: Value::Null,
        detail: json!({"reused": true}),
    };
    model.record_event(&started, ms(0));
    model.record_event(&ended("a", 1, StepStatus::Ok), ms(0));
    model.record_event(&ended("a", 0, StepStatus::Ok), ms(0));
    model.record_start("b", "native", ms(0));
    model.record_event(&ended("b", 1, StepStatus::Failed), ms(0));
    assert_eq!(marks(&model)[0], Mark::Reused);
    model.leave_to_earlier();
    assert_eq!(marks(&model), [Mark::Reused]);
    assert!(step_line(&model.lines()[0], &model, ms(0), &LOOK).contains("done before"));
    model.record_start("b", "native", ms(10));
    assert_eq!(marks(&model), [Mark::Reused, Mark::Running]);
    model.wait_for_answer("b!approval");
    assert_eq!(marks(&model)[1], Mark::Waiting);
}

#[test]
fn short_steps_do_not_flicker() {
    let mut model = Model::default();
    model.record_start("a", "native", ms(1000));
    assert!(changing_lines(&model, 0, ms(1200), &LOOK).is_empty());
    assert_eq!(changing_lines(&model, 0, ms(1400), &LOOK).len(), 1);
}

proptest! {
    /// For any events in any order: every line fits, the picture fits, and nothing is left running at
    /// the end of the run.
    #[test]
    fn every_picture_fits_the_terminal(
        happenings in prop::collection::vec((0..6_u8, 0..5_usize, 0..4_usize, "[a-zé漢\\x1b\\n]{0,40}"), 0..60),
        columns in 1..140_usize,
        rows in 1..30_usize,
    ) {
        let places = ["a", "each[1]/b", "each#2[0]/b|0.1", "a漢字-with-a-name-that-goes-on-and-on-and-on", "|0.0"];
        let statuses = [StepStatus::Ok, StepStatus::Failed, StepStatus::Skipped, StepStatus::Cancelled];
        let mut model = looped(3);
        let look = Look { columns, rows, styled: false };
        for (at, (what, place, status, words)) in happenings.iter().enumerate() {
            let (place, now) = (places[*place], ms(at as u64 * 70));
            match what {
                0 => model.record_start(place, words, now),
                1 => model.record_end(place),
                2 => model.record_event(&ended(place, 1, statuses[*status]), now),
                3 => model.record_event(&ended(place, 0, statuses[*status]), now),
                4 => model.record_report(place, &Heard::Stderr(words.clone())),
                _ => model.count_rounds(place, *status, now),
            }
            let picture = changing_lines(&model, 0, now, &look);
            prop_assert!(picture.len() < rows.max(3), "{} lines in {rows} rows", picture.len());
            for (text, wide) in picture {
                prop_assert_eq!(crate::render::text::display_width(&text), wide, "{:?}", text);
                prop_assert!(wide < columns.max(2), "{wide} of {columns}: {text:?}");
                prop_assert!(!text.contains(['\n', '\u{1b}']), "{text:?}");
            }
        }
        model.end_run(ms(9000));
        prop_assert!(model.lines().iter().all(Line::has_ended));
    }
}
