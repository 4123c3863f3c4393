//! What follows from reading a text twice.

use std::collections::BTreeSet;

use brush_parser::ast;

use super::super::analysis::{Analysis, Input};
use super::super::dialect::Dialect;
use super::super::parse::parse;
use super::{Flavour, Reading, Skeleton, read};

/// The code of a refusal because of the shell's language.
pub(crate) const DIALECT: &str = "dialect";

const HINT: &str = "write it in the form that every POSIX shell reads alike; \
                    where it needs bash, set LOBSTER_SHELL=/bin/bash for lobster or give the step `bash -c` with the text";
const HINT_ANY: &str = "write it in the form that every POSIX shell reads alike";

impl Analysis<'_> {
    /// Compares what the parser made of `text` with what the shell that runs it
    /// will. `codes` are the substitutions that were followed in it.
    pub(crate) fn check_dialect(&mut self, text: &str, program: Option<&ast::Program>, codes: &[String]) {
        if self.is_second_reading {
            return;
        }
        let reading = read(text, Flavour::Dash);
        if reading.is_portable() {
            let walked: Vec<String> = if reading.codes.is_empty() {
                Vec::new()
            } else {
                codes.iter().map(|code| read(code, Flavour::Dash).rewritten.trim().to_owned()).collect()
            };
            let followed = |code: &String| code.is_empty() || walked.contains(code);
            let agreed = program
                .and_then(|program| Skeleton::of(program, text, self.policy.limits().nesting))
                .is_some_and(|parsed| parsed == reading.skeleton)
                && reading.codes.iter().all(followed);
            if program.is_none() && self.policy.is_open() {
                self.take_hard_blocks(&reading.rewritten);
            } else if !agreed && program.is_some() {
                self.deny_hint(DIALECT, "the text can be read in two ways", HINT_ANY);
                self.take_hard_blocks(&reading.rewritten);
            }
            return;
        }
        if self.policy.is_open() {
            self.judge_other_readings(text, &reading);
        } else if self.dialect == Dialect::Bash {
            if program.is_some() {
                self.judge_as_others_read(text, &reading);
            }
        } else if program.is_some() || !reading.broken {
            let what = reading.oddity.as_ref().map_or("the text", |oddity| oddity.what);
            let shell = self.dialect.name();
            self.deny_hint(DIALECT, format!("{what} is not read by {shell} as it is by bash"), HINT);
            self.judge_other_readings(text, &reading);
        }
    }

    /// Takes over the hard blocks in what dash and ash would read.
    fn judge_other_readings(&mut self, text: &str, reading: &Reading) {
        if matches!(self.dialect, Dialect::Dash | Dialect::Unknown) {
            self.take_hard_blocks(&reading.rewritten);
        }
        if matches!(self.dialect, Dialect::Ash | Dialect::Unknown) {
            let reading = read(text, Flavour::Ash);
            self.take_hard_blocks(&reading.rewritten);
        }
    }

    fn take_hard_blocks(&mut self, rewritten: &str) {
        let Some((findings, _)) = self.second_reading(rewritten) else {
            return;
        };
        for finding in findings {
            self.adopt_hard(&finding, finding.message.clone());
        }
    }

    /// Text for bash that another shell would read as starting another program
    /// or writing another file is refused: a verdict must not depend on which
    /// of the shells a host has.
    fn judge_as_others_read(&mut self, text: &str, reading: &Reading) {
        let what = reading.oddity.as_ref().map_or("the text", |oddity| oddity.what);
        let ash = read(text, Flavour::Ash);
        let same = reading.rewritten == ash.rewritten;
        let clean = !reading.lost
            && self.adds_nothing(&reading.rewritten)
            && (same || (!ash.lost && self.adds_nothing(&ash.rewritten)));
        if !clean {
            self.deny_hint(
                DIALECT,
                format!("because of {what}, other shells would read other commands in it"),
                HINT_ANY,
            );
        }
    }

    fn adds_nothing(&mut self, rewritten: &str) -> bool {
        if rewritten.trim().is_empty() {
            return true;
        }
        let Some((findings, programs)) = self.second_reading(rewritten) else {
            return false;
        };
        let known: BTreeSet<&str> =
            self.commands.iter().filter_map(|command| command.argv.first()).map(String::as_str).collect();
        programs
            .iter()
            .filter(|program| !matches!(program.as_str(), ":" | "time"))
            .all(|program| known.contains(program.as_str()))
            && findings
                .iter()
                // Where the text asks or is refused anyway, another reason for that adds nothing.
                .all(|finding| {
                    self.findings.iter().any(|own| own.code == finding.code || own.level >= finding.level)
                })
    }

    /// Judges text in the place of the one at hand: the findings, and the
    /// programs that would start.
    fn second_reading(&mut self, text: &str) -> Option<(Vec<super::super::analysis::Finding>, Vec<String>)> {
        if self.budget == 0 || self.depth > 12 {
            return None;
        }
        self.budget -= 1;
        let program = parse(text, self.policy.limits().nesting).ok()?;
        let mut probe = self.probe();
        probe.is_second_reading = true;
        probe.scope.functions.clone_from(&self.scope.functions);
        probe.program(&program, &Input::Empty, text);
        self.assigned = probe.assigned;
        let programs =
            probe.commands.into_iter().filter_map(|command| command.argv.into_iter().next()).collect();
        Some((probe.findings, programs))
    }
}
