//! The live view of a run on stderr: what each step does now, and how it ended.
//!
//! What is shown is a [`model::Model`], which only knows events; [`draw`] makes
//! lines of it. Here is what both need of the world: the clock, the terminal and
//! its size, and whoever else writes to it meanwhile. Lines of steps that have
//! ended are written once and stay; below them are the steps that run, drawn anew
//! by a thread, so that a run pays for no drawing. What a run tells never waits for
//! the terminal, which may be stopped for hours (Ctrl-S).

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
use lobster_runtime::runtime::{Runtime, recorded};
use lobster_runtime::setting::Setting;
use lobster_runtime::store::{Event, GateFilter, GateStatus, RunId, StepOutcome, Store};
use lobster_runtime::sync::lock;

use self::draw::Look;
use self::model::Model;

/// Between two pictures.
const TICK: Duration = Duration::from_millis(100);

/// Steps shorter than this are over before anyone wonders.
const PATIENCE: Duration = Duration::from_millis(300);

/// What people set to have nothing told while a run goes on.
pub(crate) const SETTING: Setting<Wanted> =
    Setting::new("LOBSTER_PROGRESS", "on, plain or off", |word| match word.to_ascii_lowercase().as_str() {
        "off" | "none" | "no" | "false" | "0" => Some(Wanted::Nothing),
        "plain" => Some(Wanted::Plain),
        "on" | "yes" | "true" | "1" => Some(Wanted::Everything),
        _ => None,
    });

/// What people want told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Everything,
    Plain,
    Nothing,
}

/// The terminal is one for the whole process, and so is its view.
static VIEW: OnceLock<View> = OnceLock::new();

/// How steps are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Lines that change while steps run.
    Moving,
    /// A line for each step when it has ended: for files, pipes and terminals that cannot go back.
    Plain,
}

struct View {
    form: Form,
    begun: Instant,
    /// Locked after the screen where both are needed, and never while something is written.
    model: Mutex<Model>,
    screen: Mutex<Screen>,
    changed: Condvar,
    over: AtomicBool,
}

#[derive(Default)]
struct Screen {
    /// Widths of the lines that are on the screen and will be drawn anew.
    drawn: Vec<usize>,
    /// Lines of the model that are written for good.
    written: usize,
    /// Somebody else has the terminal.
    paused: usize,
}

/// The view is away until this goes.
pub(crate) struct Paused(());

impl Drop for Paused {
    fn drop(&mut self) {
        if let Some(view) = VIEW.get() {
            let mut screen = lock(&view.screen);
            screen.paused = screen.paused.saturating_sub(1);
        }
    }
}

/// Starts the view of this process, if there is somebody to see it. What is
/// given to the runtime tells it what happens.
pub(crate) fn start() -> Option<Box<dyn Progress>> {
    let form = form()?;
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

fn form() -> Option<Form> {
    let wanted = SETTING.value(|name| std::env::var_os(name)).ok().flatten().unwrap_or(Wanted::Everything);
    let can_move = io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    match wanted {
        Wanted::Nothing => None,
        Wanted::Everything if can_move => Some(Form::Moving),
        Wanted::Everything | Wanted::Plain => Some(Form::Plain),
    }
}

/// What will run, so that steps are shown with what they do.
pub(crate) fn expect(plan: &Plan) {
    if let Some(view) = VIEW.get() {
        lock(&view.model).expect(plan);
    }
}

/// What will run: the plan of a run that is on record.
pub(crate) fn expect_plan_of(store: &Store, run: RunId) {
    if VIEW.get().is_some()
        && let Some(plan) = store.run(run).ok().and_then(|run| recorded::<Plan>(store, &run.plan).ok())
    {
        expect(&plan);
    }
}

/// What a run did before it is gone on with.
pub(crate) fn expect_rest_of(store: &Store, run: RunId) {
    let Some(view) = VIEW.get() else { return };
    expect_plan_of(store, run);
    if let Ok((records, _)) = store.found_events(run) {
        let mut model = lock(&view.model);
        for record in &records {
            model.record(&record.event, Duration::ZERO);
        }
        model.leave_to_earlier();
    }
}

/// Leaves the terminal to a question.
pub(crate) fn pause() -> Paused {
    if let Some(view) = VIEW.get() {
        let mut screen = lock(&view.screen);
        screen.paused += 1;
        view.clear(&mut screen);
    }
    Paused(())
}

/// Does something that writes to the terminal, above what moves.
pub(crate) fn write_above_view<T>(write: impl FnOnce() -> T) -> T {
    let Some(view) = VIEW.get() else { return write() };
    let mut screen = lock(&view.screen);
    view.clear(&mut screen);
    write()
}

/// Ends the view: the lines stay as they are, and a last one sums up. `run` is what was
/// executed, if it came that far.
pub(crate) fn end(runtime: &Runtime, run: Option<RunId>) {
    let Some(view) = VIEW.get() else { return };
    let open = GateFilter { status: Some(GateStatus::Open), run, limit: 0 };
    let gates = run.and_then(|_| runtime.store().ok()?.gates(&open).ok()).unwrap_or_default();
    let mut screen = lock(&view.screen);
    if view.over.swap(true, Ordering::SeqCst) {
        return;
    }
    let look = view.look();
    let sum = {
        let mut model = lock(&view.model);
        for gate in gates {
            model.wait_for_answer(&gate.path);
        }
        model.stop(view.now());
        draw::summary(&model, run, view.now(), &look)
    };
    view.clear(&mut screen);
    if let Some(sum) = sum {
        view.put(&format!("{sum}\n"));
    }
    view.changed.notify_all();
}

impl View {
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// As the terminal is now: it may have another size than before.
    fn look(&self) -> Look {
        let (columns, rows) = crate::terminal::size_of_stderr().unwrap_or((80, 24));
        Look {
            columns: if self.form == Form::Plain { usize::MAX } else { columns },
            rows,
            styled: anstream::AutoStream::choice(&io::stderr()) != ColorChoice::Never,
        }
    }

    /// A terminal that was closed meanwhile is nobody's fault.
    fn put(&self, text: &str) {
        let mut out = io::stderr().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }

    /// Takes away what moves, and writes the lines that are complete.
    fn clear(&self, screen: &mut Screen) {
        let look = self.look();
        let text = rub_out(&mut screen.drawn, look.columns)
            + &self.complete(&lock(&self.model), &mut screen.written, &look);
        if !text.is_empty() {
            self.put(&text);
        }
    }

    /// The lines of steps that have ended since; in the order in which they began, so one that
    /// still runs holds up those behind it.
    fn complete(&self, model: &Model, written: &mut usize, look: &Look) -> String {
        let mut text = String::new();
        while let Some(line) = model.lines().get(*written).filter(|line| line.has_ended()) {
            if model.is_lasting() {
                let shown = match self.form {
                    Form::Moving => draw::line(line, model, self.now(), look),
                    Form::Plain => draw::plain(line),
                };
                let _ = writeln!(text, "{shown}");
            }
            *written += 1;
        }
        text
    }

    /// One picture.
    fn draw(&self, screen: &mut Screen) {
        let look = self.look();
        let (done, lines) = {
            let model = lock(&self.model);
            let done = self.complete(&model, &mut screen.written, &look);
            let lines = match self.form {
                Form::Moving => draw::moving(&model, screen.written, self.now(), &look),
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
        self.put(&text);
    }

    /// Draws until the run is over.
    fn keep_drawing(&self) {
        let mut screen = lock(&self.screen);
        while !self.over.load(Ordering::SeqCst) {
            if screen.paused == 0 {
                self.draw(&mut screen);
            }
            screen = self.changed.wait_timeout(screen, TICK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// What takes lines of these widths off a terminal; one that was made narrower has broken them.
fn rub_out(drawn: &mut Vec<usize>, columns: usize) -> String {
    let rows: usize = drawn.drain(..).map(|wide| wide.div_ceil(columns.max(1)).max(1)).sum();
    if rows == 0 { String::new() } else { format!("\x1b[{rows}A\r\x1b[J") }
}

/// The view, as the runtime knows it.
struct Feed(&'static View);

impl Feed {
    fn change_model(&self, change: impl FnOnce(&mut Model, Duration)) {
        if self.0.over.load(Ordering::SeqCst) {
            return;
        }
        let mut model = lock(&self.0.model);
        let is_first = model.is_empty();
        change(&mut model, self.0.now());
        if is_first && !model.is_empty() {
            let view = self.0;
            // Without the thread the lines come when the run ends.
            let _ = std::thread::Builder::new().name("view".to_owned()).spawn(move || view.keep_drawing());
        }
    }
}

impl Progress for Feed {
    fn started(&self, place: &str, kind: &str) {
        self.change_model(|model, now| model.start(place, kind, now));
    }

    fn ended(&self, place: &str) {
        self.change_model(|model, _| model.end(place));
    }

    fn rounds(&self, place: &str, count: usize) {
        self.change_model(|model, now| model.count_rounds(place, count, now));
    }

    fn step_ended(&self, place: &str, outcome: &StepOutcome) {
        self.change_model(|model, now| model.end_step(place, outcome, now));
    }

    fn recorded(&self, events: &[Event]) {
        // Not every step has a summary in the journal; the end of each is told by itself.
        let is_summary = |event: &&Event| matches!(event, Event::StepEnded { attempt: 0, .. });
        self.change_model(|model, now| {
            events.iter().filter(|event| !is_summary(event)).for_each(|event| model.record(event, now));
        });
    }

    fn heard(&self, place: &str, heard: &Heard) {
        self.change_model(|model, _| model.hear(place, heard));
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
