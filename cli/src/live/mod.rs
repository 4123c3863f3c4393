//! The live view of a run on stderr: the work of each step and its result.
//!
//! The shown state is a [`model::Model`], which only knows events; [`draw_frame`] turns it into lines. This
//! module has what both need: the clock, the terminal with its size, and the coordination with other
//! writers. The lines of finished steps are written once and stay; the steps that are running are below
//! them and are redrawn by a thread, so that drawing does not slow down the run. Events of a run never
//! wait for the terminal, which may be stopped for hours (Ctrl-S).

mod draw;
mod model;

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anstream::ColorChoice;
use lobster_runtime::engine::{Heard, Progress};
use lobster_runtime::language::plan::Plan;
use lobster_runtime::runtime::{Runtime, load_recorded};
use lobster_runtime::setting::Setting;
use lobster_runtime::store::{Event, GateFilter, GateStatus, RunId, StepOutcome, Store};
use lobster_runtime::sync::lock;

use self::draw::Look;
use self::model::Model;

/// Time between two pictures.
const TICK: Duration = Duration::from_millis(100);

/// Running time after which a step appears in the picture.
const PATIENCE: Duration = Duration::from_millis(300);

/// The setting that turns progress off.
pub(crate) const SETTING: Setting<Wanted> =
    Setting::new("LOBSTER_PROGRESS", "on, plain or off", |word| match word.to_ascii_lowercase().as_str() {
        "off" | "none" | "no" | "false" | "0" => Some(Wanted::Nothing),
        "plain" => Some(Wanted::Plain),
        "on" | "yes" | "true" | "1" => Some(Wanted::Everything),
        _ => None,
    });

/// The choices of the setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Everything,
    Plain,
    Nothing,
}

/// The process has one terminal, and so one view.
static VIEW: OnceLock<View> = OnceLock::new();

/// The form of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Lines that change while steps run.
    Moving,
    /// A line for each finished step: for files, pipes and terminals that cannot move the cursor.
    Plain,
}

struct View {
    form: Form,
    begun: Instant,
    /// Locked after the screen if both are needed, and never during a write.
    model: Mutex<Model>,
    screen: Mutex<Screen>,
    changed: Condvar,
    over: AtomicBool,
}

#[derive(Default)]
struct Screen {
    /// Widths of the lines on the screen that will be redrawn.
    drawn: Vec<usize>,
    /// Number of lines of the model that are written for good.
    written: usize,
    /// Number of other users of the terminal.
    paused: usize,
}

/// Hides the view until it is dropped.
pub(crate) struct Paused(());

impl Drop for Paused {
    fn drop(&mut self) {
        if let Some(view) = VIEW.get() {
            let mut screen = lock(&view.screen);
            screen.paused = screen.paused.saturating_sub(1);
        }
    }
}

/// Starts the view of this process, if it can be seen. The runtime reports events to the returned value.
pub(crate) fn start_view() -> Option<Box<dyn Progress>> {
    let form = chosen_form()?;
    let view = VIEW.get_or_init(|| View {
        form,
        begun: Instant::now(),
        model: Mutex::default(),
        screen: Mutex::default(),
        changed: Condvar::new(),
        over: AtomicBool::new(false),
    });
    Some(Box::new(Feed(view)))
}

fn chosen_form() -> Option<Form> {
    let wanted = SETTING.read_env(|name| std::env::var_os(name)).ok().flatten().unwrap_or(Wanted::Everything);
    let can_move = io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    match wanted {
        Wanted::Nothing => None,
        Wanted::Everything if can_move => Some(Form::Moving),
        Wanted::Everything | Wanted::Plain => Some(Form::Plain),
    }
}

/// Announces the plan, so that steps are shown with their work.
pub(crate) fn announce_plan(plan: &Plan) {
    if let Some(view) = VIEW.get() {
        lock(&view.model).set_plan(plan);
    }
}

/// Announces the plan of a recorded run.
pub(crate) fn expect_plan_of(store: &Store, run: RunId) {
    if VIEW.get().is_some()
        && let Some(plan) = store.run(run).ok().and_then(|run| load_recorded::<Plan>(store, &run.plan).ok())
    {
        announce_plan(&plan);
    }
}

/// Adds the earlier events of a run before it is continued.
pub(crate) fn expect_rest_of(store: &Store, run: RunId) {
    let Some(view) = VIEW.get() else { return };
    expect_plan_of(store, run);
    if let Ok((records, _)) = store.found_events(run) {
        let mut model = lock(&view.model);
        for record in &records {
            model.record_event(&record.event, Duration::ZERO);
        }
        model.leave_to_earlier();
    }
}

/// Hides the view while a question uses the terminal.
pub(crate) fn hide_view() -> Paused {
    if let Some(view) = VIEW.get() {
        let mut screen = lock(&view.screen);
        screen.paused += 1;
        view.clear_changing(&mut screen);
    }
    Paused(())
}

/// Writes to the terminal above the changing lines.
pub(crate) fn write_above_view<T>(write: impl FnOnce() -> T) -> T {
    let Some(view) = VIEW.get() else { return write() };
    let mut screen = lock(&view.screen);
    view.clear_changing(&mut screen);
    write()
}

/// Ends the view: the lines stay, and a summary follows. `run` is the executed run, if there is one.
pub(crate) fn end_view(runtime: &Runtime, run: Option<RunId>) {
    let Some(view) = VIEW.get() else { return };
    let open = GateFilter { status: Some(GateStatus::Open), run, limit: 0 };
    let gates = run.and_then(|_| runtime.store().ok()?.list_approvals(&open).ok()).unwrap_or_default();
    let mut screen = lock(&view.screen);
    if view.over.swap(true, Ordering::SeqCst) {
        return;
    }
    let look = view.current_look();
    let sum = {
        let mut model = lock(&view.model);
        for gate in gates {
            model.wait_for_answer(&gate.path);
        }
        model.end_run(view.elapsed_time());
        draw::summary_line(&model, run, view.elapsed_time(), &look)
    };
    view.clear_changing(&mut screen);
    if let Some(sum) = sum {
        view.write_text(&format!("{sum}\n"));
    }
    view.changed.notify_all();
}

impl View {
    fn elapsed_time(&self) -> Duration {
        self.begun.elapsed()
    }

    /// The terminal's current size, which may have changed.
    fn current_look(&self) -> Look {
        let (columns, rows) = crate::terminal::terminal_size(io::stderr()).unwrap_or((80, 24));
        Look {
            columns: if self.form == Form::Plain { usize::MAX } else { columns },
            rows,
            styled: anstream::AutoStream::choice(&io::stderr()) != ColorChoice::Never,
        }
    }

    /// A closed terminal is not an error.
    fn write_text(&self, text: &str) {
        let mut out = io::stderr().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }

    /// Removes the changing lines and writes the complete ones.
    fn clear_changing(&self, screen: &mut Screen) {
        let look = self.current_look();
        let text = rub_out(&mut screen.drawn, look.columns)
            + &self.finished_lines(&lock(&self.model), &mut screen.written, &look);
        if !text.is_empty() {
            self.write_text(&text);
        }
    }

    /// The lines of newly finished steps, in the order in which the steps began: a running step delays
    /// the lines of later ones.
    fn finished_lines(&self, model: &Model, written: &mut usize, look: &Look) -> String {
        let mut text = String::new();
        while let Some(line) = model.lines().get(*written).filter(|line| line.has_ended()) {
            if model.is_lasting() {
                let shown = match self.form {
                    Form::Moving => draw::step_line(line, model, self.elapsed_time(), look),
                    Form::Plain => draw::plain_line(line),
                };
                let _ = writeln!(text, "{shown}");
            }
            *written += 1;
        }
        text
    }

    /// Draws one picture.
    fn draw_frame(&self, screen: &mut Screen) {
        let look = self.current_look();
        let (done, lines) = {
            let model = lock(&self.model);
            let done = self.finished_lines(&model, &mut screen.written, &look);
            let lines = match self.form {
                Form::Moving => draw::changing_lines(&model, screen.written, self.elapsed_time(), &look),
                Form::Plain => Vec::new(),
            };
            (done, lines)
        };
        if done.is_empty() && lines.is_empty() && screen.drawn.is_empty() {
            return;
        }
        let mut text = rub_out(&mut screen.drawn, look.columns) + &done;
        for (line, wide) in &lines {
            let _ = writeln!(text, "{line}");
            screen.drawn.push(*wide);
        }
        self.write_text(&text);
    }

    /// Redraws until the run ends.
    fn keep_drawing(&self) {
        let mut screen = lock(&self.screen);
        while !self.over.load(Ordering::SeqCst) {
            if screen.paused == 0 {
                self.draw_frame(&mut screen);
            }
            screen = self.changed.wait_timeout(screen, TICK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The control sequence that removes lines of these widths; a terminal that became narrower has wrapped them.
fn rub_out(drawn: &mut Vec<usize>, columns: usize) -> String {
    let rows: usize = drawn.drain(..).map(|wide| wide.div_ceil(columns.max(1)).max(1)).sum();
    if rows == 0 { String::new() } else { format!("\x1b[{rows}A\r\x1b[J") }
}

/// The receiver of the runtime's events.
struct Feed(&'static View);

impl Feed {
    fn change_model(&self, change: impl FnOnce(&mut Model, Duration)) {
        if self.0.over.load(Ordering::SeqCst) {
            return;
        }
        let mut model = lock(&self.0.model);
        let is_first = model.is_empty();
        change(&mut model, self.0.elapsed_time());
        if is_first && !model.is_empty() {
            let view = self.0;
            // Without the thread the lines are written when the run ends.
            let _ = std::thread::Builder::new().name("view".to_owned()).spawn(move || view.keep_drawing());
        }
    }
}

impl Progress for Feed {
    fn work_started(&self, place: &str, kind: &str) {
        self.change_model(|model, now| model.record_start(place, kind, now));
    }

    fn work_ended(&self, place: &str) {
        self.change_model(|model, _| model.record_end(place));
    }

    fn loop_started(&self, place: &str, count: usize) {
        self.change_model(|model, now| model.count_rounds(place, count, now));
    }

    fn step_ended(&self, place: &str, outcome: &StepOutcome) {
        self.change_model(|model, now| model.end_step(place, outcome, now));
    }

    fn events_recorded(&self, events: &[Event]) {
        // Some steps have no summary in the journal; the end of each step is reported separately.
        let is_summary = |event: &&Event| matches!(event, Event::StepEnded { attempt: 0, .. });
        self.change_model(|model, now| {
            events.iter().filter(|event| !is_summary(event)).for_each(|event| model.record_event(event, now));
        });
    }

    fn output_arrived(&self, place: &str, heard: &Heard) {
        self.change_model(|model, _| model.record_report(place, heard));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_that_was_made_narrower_has_more_rows_to_rub_out() {
        assert_eq!(rub_out(&mut vec![], 80), "");
        assert_eq!(rub_out(&mut vec![79, 0], 80), "\x1b[2A\r\x1b[J");
        assert_eq!(rub_out(&mut vec![79, 10], 40), "\x1b[3A\r\x1b[J");
    }
}
