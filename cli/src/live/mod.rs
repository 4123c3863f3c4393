//! The live view of a run on stderr: what each step does now, and how it ended.
//!
//! What is shown is a [`model::Model`], which only knows events; [`draw`] makes
//! lines of it. Here is what both need of the world: the clock, the terminal and
//! its size, and whoever else writes to it meanwhile. Lines of steps that have
//! ended are written once and stay; below them are the steps that run, drawn anew
//! by a thread, so that a run pays for no drawing.

mod draw;
mod model;

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anstream::ColorChoice;
use lobster_runtime::engine::Progress;
use lobster_runtime::language::plan::Plan;
use lobster_runtime::runtime::{Runtime, recorded};
use lobster_runtime::store::{Event, GateFilter, GateStatus, RunId, StepOutcome, Store};

use self::draw::Look;
use self::model::Model;

/// Between two pictures.
const TICK: Duration = Duration::from_millis(100);

/// Steps shorter than this are over before anyone wonders.
const PATIENCE: Duration = Duration::from_millis(300);

/// What people set to have nothing told while a run goes on.
const SETTING: &str = "LOBSTER_PROGRESS";

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
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    model: Model,
    /// Widths of the lines that are on the screen and will be drawn anew.
    drawn: Vec<usize>,
    /// Lines of the model that are written for good.
    written: usize,
    /// Somebody else has the terminal.
    paused: usize,
    over: bool,
}

/// The view is away until this goes.
pub(crate) struct Paused(());

impl Drop for Paused {
    fn drop(&mut self) {
        if let Some(view) = VIEW.get() {
            let mut state = view.lock();
            state.paused = state.paused.saturating_sub(1);
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
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    Some(Box::new(Feed(view)))
}

fn form() -> Option<Form> {
    let set = std::env::var(SETTING).unwrap_or_default();
    let can_move = io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    match set.as_str() {
        "off" | "none" | "0" => None,
        "plain" => Some(Form::Plain),
        _ if can_move => Some(Form::Moving),
        _ => Some(Form::Plain),
    }
}

/// What will run, so that steps are shown with what they do.
pub(crate) fn expect(plan: &Plan) {
    if let Some(view) = VIEW.get() {
        view.lock().model.expect(plan);
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
        let mut state = view.lock();
        for record in &records {
            state.model.record(&record.event, Duration::ZERO);
        }
        state.model.leave_to_earlier();
    }
}

/// Leaves the terminal to a question.
pub(crate) fn pause() -> Paused {
    if let Some(view) = VIEW.get() {
        let mut state = view.lock();
        state.paused += 1;
        view.clear(&mut state);
    }
    Paused(())
}

/// Does something that writes to the terminal, above what moves.
pub(crate) fn above<T>(write: impl FnOnce() -> T) -> T {
    let Some(view) = VIEW.get() else { return write() };
    let mut state = view.lock();
    view.clear(&mut state);
    write()
}

/// Ends the view: the lines stay as they are, and a last one sums up. `run` is what was
/// executed, if it came that far.
pub(crate) fn end(runtime: &Runtime, run: Option<RunId>) {
    let Some(view) = VIEW.get() else { return };
    let open = GateFilter { status: Some(GateStatus::Open), run, limit: 0 };
    let gates = run.and_then(|_| runtime.store().ok()?.gates(&open).ok()).unwrap_or_default();
    let mut state = view.lock();
    if std::mem::replace(&mut state.over, true) {
        return;
    }
    for gate in gates {
        state.model.wait_for_answer(&gate.path);
    }
    state.model.stop(view.now());
    view.clear(&mut state);
    let look = view.look();
    if let Some(sum) = draw::summary(&state.model, run, view.now(), &look) {
        view.put(&format!("{sum}\n"));
    }
    view.changed.notify_all();
}

impl View {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

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
    fn clear(&self, state: &mut State) {
        let look = self.look();
        let text = rub_out(&mut state.drawn, look.columns) + &self.complete(state, &look);
        if !text.is_empty() {
            self.put(&text);
        }
    }

    /// The lines of steps that have ended since; in the order in which they began, so one that
    /// still runs holds up those behind it.
    fn complete(&self, state: &mut State, look: &Look) -> String {
        let mut text = String::new();
        while let Some(line) = state.model.lines().get(state.written).filter(|line| line.has_ended()) {
            if state.model.is_lasting() {
                let shown = match self.form {
                    Form::Moving => draw::line(line, &state.model, self.now(), look),
                    Form::Plain => draw::plain(line),
                };
                let _ = writeln!(text, "{shown}");
            }
            state.written += 1;
        }
        text
    }

    /// One picture.
    fn draw(&self, state: &mut State) {
        let look = self.look();
        let done = self.complete(state, &look);
        let lines = match self.form {
            Form::Moving => draw::moving(&state.model, state.written, self.now(), &look),
            Form::Plain => Vec::new(),
        };
        if done.is_empty() && lines.is_empty() && state.drawn.is_empty() {
            return;
        }
        let mut text = rub_out(&mut state.drawn, look.columns) + &done;
        for (line, wide) in &lines {
            let _ = writeln!(text, "{line}");
            state.drawn.push(*wide);
        }
        self.put(&text);
    }

    /// Draws until the run is over.
    fn keep_drawing(&self) {
        let mut state = self.lock();
        while !state.over {
            if state.paused == 0 {
                self.draw(&mut state);
            }
            state = self.changed.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0;
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
    fn tell(&self, change: impl FnOnce(&mut Model, Duration)) {
        let mut state = self.0.lock();
        if state.over {
            return;
        }
        let is_first = state.model.is_empty();
        change(&mut state.model, self.0.now());
        if is_first && !state.model.is_empty() {
            let view = self.0;
            // Without the thread the lines come when the run ends.
            let _ = std::thread::Builder::new().name("view".to_owned()).spawn(move || view.keep_drawing());
        }
    }
}

impl Progress for Feed {
    fn started(&self, place: &str, kind: &str) {
        self.tell(|model, now| model.start(place, kind, now));
    }

    fn ended(&self, place: &str) {
        self.tell(|model, _| model.end(place));
    }

    fn rounds(&self, place: &str, count: usize) {
        self.tell(|model, now| model.count_rounds(place, count, now));
    }

    fn step_ended(&self, place: &str, outcome: &StepOutcome) {
        self.tell(|model, now| model.end_step(place, outcome, now));
    }

    fn recorded(&self, events: &[Event]) {
        // Not every step has a summary in the journal; the end of each is told by itself.
        let is_summary = |event: &&Event| matches!(event, Event::StepEnded { attempt: 0, .. });
        self.tell(|model, now| {
            events.iter().filter(|event| !is_summary(event)).for_each(|event| model.record(event, now));
        });
    }

    fn stderr(&self, place: &str, chunk: &[u8]) {
        self.tell(|model, _| model.hear(place, chunk));
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
