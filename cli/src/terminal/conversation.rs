//! One question at the terminal, from the first screen to the answer.

use std::io;

use anstyle::{AnsiColor, Style};
use lobster_runtime::cancel::CancelToken;
use lobster_runtime::engine::{Asked, PromptError, QuestionKind, Said};
use lobster_runtime::stage::Answer;

use super::rule::{Draft, Sources, Weighed};
use super::stdin_lines::{Deadline, Lines, Typed};
use super::{Left, Voice};
use crate::render::question::{BOLD, DIM, Paper, answer_line, screen_lines, shows_every_command};
use crate::render::text::wrap;
use crate::render::units::format_count;
use crate::render::{harmless, one_line};

const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Yellow.on_default();

const ALL: &str = "s shows all";
const ALL_OF_INPUT: &str = ":s shows all";

/// Lines below the view: the prompt line and an empty one.
const BELOW: usize = 2;

/// Most commands that are named of those that a rule would also allow.
const NAMED: usize = 5;

/// A conversation that ended without an answer: the input has ended, or the output failed.
enum Broken {
    Gone,
    Prompt(PromptError),
}

impl From<io::Error> for Broken {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

impl From<PromptError> for Broken {
    fn from(error: PromptError) -> Self {
        Self::Prompt(error)
    }
}

/// The request in a line.
#[derive(Debug, PartialEq)]
enum Wish<'a> {
    Answer(&'a str),
    No,
    ShowAll,
    Later,
    /// Make a policy rule for the command.
    Rule,
    Help,
    Unclear,
}

pub(super) struct Conversation<'a> {
    question: &'a Asked<'a>,
    sources: &'a Sources,
    lines: &'a mut Lines,
    cancel: &'a CancelToken,
    voice: Voice,
    deadline: Option<Deadline>,
    /// True once every command was on the screen: before that, approval is not accepted.
    has_shown_commands: bool,
}

impl<'a> Conversation<'a> {
    pub(super) fn new(
        question: &'a Asked<'a>,
        sources: &'a Sources,
        lines: &'a mut Lines,
        cancel: &'a CancelToken,
        voice: Voice,
    ) -> Self {
        let deadline = question.timeout.map(Deadline::after);
        Self { question, sources, lines, cancel, voice, deadline, has_shown_commands: false }
    }

    /// Asks until there is an answer; if the question is left waiting, returns the reason as well.
    pub(super) fn ask_until_answered(mut self) -> Result<(Said, Option<Left>), PromptError> {
        let said = match self.voice {
            Voice::Unseen => self.ask_once(),
            Voice::Stderr | Voice::Stdout => self.run_dialogue(),
        };
        match said {
            Ok((said, left)) => Ok((said, left)),
            Err(Broken::Gone) => Ok((Said::Later, Some(Left::Gone))),
            Err(Broken::Prompt(error)) => {
                // The next text begins on a new line.
                let _ = self.voice.print_text("\n");
                Err(error)
            }
        }
    }

    fn run_dialogue(&mut self) -> Result<(Said, Option<Left>), Broken> {
        self.show_screen()?;
        loop {
            self.show_choices()?;
            // An incomplete line is not an answer.
            let Typed::Line(line) = self.lines.next(self.deadline, self.cancel)? else {
                let _ = self.voice.print_text("\n");
                return Ok((Said::Later, Some(Left::Gone)));
            };
            match self.parse_wish(&line) {
                Wish::Answer(_) if !(self.is_input() || self.has_shown_commands) => {
                    self.show_error("The screen does not show every command that would start: s shows all")?;
                }
                Wish::Answer(text) => match (self.question.accept)(text) {
                    Ok(answer) => {
                        self.show_answer(&answer)?;
                        return Ok((Said::Answer(answer), None));
                    }
                    Err(why) => self.show_error(&why)?,
                },
                Wish::No => return Ok((Said::No, None)),
                Wish::Later => return Ok((Said::Later, Some(Left::Later))),
                Wish::ShowAll => {
                    self.show_all()?;
                    self.has_shown_commands = true;
                }
                Wish::Help => self.show_help()?,
                Wish::Rule => self.make_rule()?,
                Wish::Unclear => {
                    let typed = one_line(line.trim());
                    let typed = crate::render::clip(&typed, 20);
                    let what = if typed.is_empty() { "That".to_owned() } else { format!("'{typed}'") };
                    self.show_error(&format!(
                        "{what} is not an answer: y is yes, n is no, s shows all, l leaves it for later"
                    ))?;
                }
            }
        }
    }

    /// Asks once and reads one line, for a terminal on which a second question would not be seen.
    fn ask_once(&mut self) -> Result<(Said, Option<Left>), Broken> {
        let paper = Paper::with_size(None, false, "").without_limit();
        self.say_lines(&screen_lines(self.question.view, &paper))?;
        let prompt = one_line(&self.question.view.prompt);
        self.voice.print_text(&match self.is_input() {
            true => format!("{prompt}\n> "),
            false => format!("{prompt} [y/N] "),
        })?;
        let (Typed::Line(line) | Typed::End(line)) = self.lines.next(self.deadline, self.cancel)?;
        let refused = |why: String| Ok((Said::Later, Some(Left::Unanswered(why))));
        match self.parse_wish(&line) {
            Wish::Answer(text) => match (self.question.accept)(text) {
                Ok(answer) => Ok((Said::Answer(answer), None)),
                Err(why) => refused(why),
            },
            Wish::No => Ok((Said::No, None)),
            Wish::Later => Ok((Said::Later, Some(Left::Later))),
            Wish::ShowAll | Wish::Help | Wish::Rule | Wish::Unclear => refused(match line.trim() {
                "" => "there was no answer".to_owned(),
                typed => format!("'{}' is neither yes nor no", crate::render::clip(&one_line(typed), 20)),
            }),
        }
    }

    fn is_input(&self) -> bool {
        self.question.view.kind == QuestionKind::Input
    }

    /// An input request accepts any line, so its commands begin with a colon.
    fn parse_wish<'l>(&self, line: &'l str) -> Wish<'l> {
        let word = line.trim().to_ascii_lowercase();
        match (self.is_input(), word.as_str()) {
            (true, ":s") | (false, "s" | "show") => Wish::ShowAll,
            (true, ":l") | (false, "l" | "later") => Wish::Later,
            (true, ":?") | (false, "?" | "h" | "help") => Wish::Help,
            (true, _) => Wish::Answer(line),
            (false, "e" | "edit") if self.question.command.is_some() => Wish::Rule,
            (false, "y" | "yes") => Wish::Answer("yes"),
            (false, "n" | "no") => Wish::No,
            (false, _) => Wish::Unclear,
        }
    }

    fn sized_paper(&self) -> Paper<'static> {
        let more = if self.is_input() { ALL_OF_INPUT } else { ALL };
        Paper::with_size(self.voice.screen_size(), self.voice.is_styled(), more)
    }

    fn show_screen(&mut self) -> io::Result<()> {
        let paper = self.sized_paper();
        let paper = Paper { rows: paper.rows.map(|rows| rows.saturating_sub(BELOW)), ..paper };
        let (view, lines) = (self.question.view, screen_lines(self.question.view, &paper));
        self.has_shown_commands = shows_every_command(view, &paper, lines.iter().map(String::as_str));
        self.say_lines(&lines)
    }

    fn show_choices(&self) -> io::Result<()> {
        let paper = self.sized_paper();
        let (question, choices) = match self.is_input() {
            true if paper.columns < 60 => ("Answer", "[JSON, :?]"),
            true => ("Answer", "[JSON; :s all, :l later, :? help]"),
            false if self.question.command.is_some() => ("Approve?", "[y/n/e/s/l/?]"),
            false => ("Approve?", "[y/n/s/l/?]"),
        };
        self.voice.print_text(&format!("{} {} ", paper.paint(BOLD, question), paper.paint(DIM, choices)))
    }

    fn show_help(&self) -> io::Result<()> {
        let rule = "  e  edit: write a policy rule that allows it from the next run on";
        let lines = match self.is_input() {
            true => vec![
                "  A line of JSON is the answer.",
                "  :s  show everything, one screen at a time",
                "  :l  later: leave the question waiting",
                "  :?  this help",
            ],
            false => vec![
                "  y  yes: run exactly this",
                "  n  no: the run is cancelled",
                rule,
                "  s  show everything, one screen at a time",
                "  l  later: leave the question waiting",
                "  ?  this help",
            ],
        };
        let has_rule = self.question.command.is_some();
        let lines = lines.into_iter().filter(|line| has_rule || *line != rule);
        self.say_lines(&lines.map(str::to_owned).collect::<Vec<_>>())
    }

    fn show_error(&self, why: &str) -> io::Result<()> {
        let paper = self.sized_paper();
        let lines: Vec<_> =
            wrap(&harmless(why), paper.columns).iter().map(|line| paper.paint(BAD, line)).collect();
        self.say_lines(&lines)
    }

    /// Repeats the answer on the screen.
    fn show_answer(&self, answer: &Answer) -> io::Result<()> {
        let paper = self.sized_paper();
        let digest = self.question.view.facts.iter().find(|fact| fact.label == "digest");
        let digest = digest.and_then(|fact| fact.values.first()).map(String::as_str).unwrap_or_default();
        let what = match answer {
            Answer::Approved { by: Some(by), .. } => format!("approved by {}", one_line(by)),
            Answer::Approved { by: None, .. } => "approved".to_owned(),
            Answer::Response(value) => {
                format!("answered {}", answer_line(value, paper.columns.saturating_sub(34).max(8)))
            }
        };
        let line =
            format!("{} · {}", paper.paint(GOOD, &what), paper.paint(DIM, &format!("digest {digest}")));
        self.say_lines(&[line])
    }

    /// Shows everything, one screen at a time.
    fn show_all(&mut self) -> Result<(), Broken> {
        let paper = self.sized_paper();
        let lines = screen_lines(self.question.view, &paper.without_limit());
        let page = paper.rows.unwrap_or(usize::MAX).saturating_sub(1).max(1);
        let mut shown = 0;
        while shown < lines.len() {
            let next = (shown + page).min(lines.len());
            self.say_lines(&lines[shown..next])?;
            shown = next;
            if shown == lines.len() {
                break;
            }
            let (seen, all) = (format_count(shown as u64), format_count(lines.len() as u64));
            let ask = match paper.columns {
                0..60 => format!("{seen}/{all} [Enter, a, q] "),
                _ => format!("{seen} of {all} lines [Enter: more, a: all, q: back] "),
            };
            self.voice.print_text(&paper.paint(DIM, &ask))?;
            let Typed::Line(line) = self.lines.next(self.deadline, self.cancel)? else {
                return Err(Broken::Gone);
            };
            if paper.styled {
                // The prompt line is replaced by the next page.
                self.voice.print_text("\u{1b}[1A\u{1b}[2K")?;
            }
            match line.trim() {
                "q" | "Q" => break,
                "a" | "A" => {
                    self.say_lines(&lines[shown..])?;
                    break;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Drafts a rule for the command, shows it, and lets the person edit and keep it. The question
    /// stays open.
    fn make_rule(&mut self) -> Result<(), Broken> {
        let Some(asked) = &self.question.command else { return Ok(()) };
        let mut draft = match Draft::for_command(asked, self.sources) {
            Ok(draft) => draft,
            Err(why) => return Ok(self.show_error(&format!("No rule can be written for it: {why}"))?),
        };
        loop {
            let rule = draft.text.lines().map(|line| format!("  {}", harmless(line)));
            self.say_lines(&rule.collect::<Vec<_>>())?;
            let weighed = draft.check_rule();
            match &weighed {
                Ok(weighed) => {
                    self.say_lines(&wrap(&harmless(&describe_effect(weighed)), self.sized_paper().columns))?
                }
                Err(why) => self.show_error(why)?,
            }
            let paper = self.sized_paper();
            let choices = match (&weighed, paper.columns) {
                (Ok(_), 0..60) => "[k/e/q]",
                (Ok(_), _) => "[k: keep, e: edit, q: back to the question]",
                (Err(_), _) => "[e: edit, q: back]",
            };
            self.voice.print_text(&format!(
                "{} {} ",
                paper.paint(BOLD, "Rule?"),
                paper.paint(DIM, choices)
            ))?;
            let Typed::Line(line) = self.lines.next(self.deadline, self.cancel)? else {
                return Err(Broken::Gone);
            };
            match (line.trim().to_ascii_lowercase().as_str(), weighed) {
                ("k" | "keep", Ok(weighed)) => match draft.save_rule(&weighed) {
                    Ok(()) => {
                        let kept = format!(
                            "Saved in {}. The rule applies from the next run on; this question still needs an \
                             answer.",
                            weighed.file.display()
                        );
                        return Ok(self.say_lines(&wrap(&harmless(&kept), paper.columns))?);
                    }
                    Err(why) => self.show_error(&why)?,
                },
                ("e" | "edit", _) => {
                    if let Err(why) = draft.edit_text() {
                        self.show_error(&why)?;
                    }
                }
                ("q" | "quit" | "back", _) => return Ok(()),
                _ => {}
            }
        }
    }

    fn say_lines(&self, lines: &[String]) -> io::Result<()> {
        let mut text = String::with_capacity(lines.iter().map(|line| line.len() + 1).sum());
        for line in lines {
            text.push_str(line);
            text.push('\n');
        }
        self.voice.print_text(&text)
    }
}

/// The effect of a rule, in a sentence or two.
fn describe_effect(weighed: &Weighed) -> String {
    let also: Vec<String> =
        weighed.also.iter().take(NAMED).map(|argv| format!("`{}`", one_line(&argv.join(" ")))).collect();
    let more = weighed.also.len().saturating_sub(NAMED);
    let also = match (also.is_empty(), more) {
        (true, _) => "no other recorded command".to_owned(),
        (false, 0) => also.join(", "),
        (false, more) => {
            format!("{} and {} more recorded commands", also.join(", "), format_count(more as u64))
        }
    };
    format!("In {} it would allow this command, and also: {also}.", weighed.file.display())
}
