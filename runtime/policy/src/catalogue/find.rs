//! find: its tests read, and its actions may do anything.

use super::super::analysis::{Analysis, Arg, Flow};
use super::super::command::Invocation;
use super::super::paths::normalise_path;
use super::super::wrappers::substitute_mark;

const EXEC: &[&str] = &["-exec", "-execdir", "-ok", "-okdir"];
/// Tests whose value is text or a number.
const TEXT_VALUES: &[&str] = text_list!("../lists/find-text-values.txt");
const PATH_VALUES: &[&str] = &["-newer", "-anewer", "-cnewer", "-samefile", "-files0-from"];
/// Tests, actions and operators that take no value and at most print.
const PLAIN: &[&str] = text_list!("../lists/find-plain.txt");
const WRITE_VALUES: &[&str] = &["-fprint", "-fprint0", "-fls", "-fprintf"];

/// For a test that compares times as `-newermt` does, its value is a time or a file, depending on the
/// last letter.
fn compares_times(test: &str) -> Option<bool> {
    let letters = test.strip_prefix("-newer")?.as_bytes();
    match letters {
        [a, b] if b"aBcm".contains(a) && b"aBcmt".contains(b) => Some(*b == b't'),
        _ => None,
    }
}

fn takes_text(test: &str) -> bool {
    TEXT_VALUES.contains(&test) || compares_times(test) == Some(true)
}

/// Marks the words that are text values of tests.
pub(super) fn text_words(args: &[Arg]) -> Vec<bool> {
    (0..args.len()).map(|at| at > 0 && takes_text(&args[at - 1].text)).collect()
}

impl Analysis<'_> {
    /// Judges a find command: starting points are read, actions are followed.
    pub(crate) fn find_command(&mut self, inv: &Invocation) -> Flow {
        let args: Vec<Arg> = inv.args[1..].to_vec();
        let mut at = 0;
        let mut covered = true;
        let starts = self.find_starts(&args, &mut at, &mut covered);
        let mut acts = false;
        let mut selects = false;
        let mut secret_hunt = false;
        while let Some(arg) = args.get(at) {
            let text = arg.text.clone();
            at += 1;
            selects |= !PLAIN.contains(&text.as_str())
                && !matches!(text.as_str(), "-maxdepth" | "-mindepth" | "-type" | "-printf");
            selects |= matches!(text.as_str(), "-empty" | "-nouser" | "-nogroup");
            if !arg.keeps_its_place(false) {
                covered = false;
                self.require_approval(
                    "not-read-only",
                    "find: a word that is not known yet may turn into an action",
                );
            }
            if text == "-delete" {
                acts = true;
                covered = false;
                for start in &starts {
                    self.find_removes(start);
                }
            } else if EXEC.contains(&text.as_str()) {
                acts = true;
                let (end, is_certain) = self.find_executes(&text, &args, at, &starts);
                covered &= is_certain;
                at = end + 1;
            } else if WRITE_VALUES.contains(&text.as_str()) {
                covered = false;
                if let Some(file) = args.get(at) {
                    self.write_path(&file.clone(), "find writes a file");
                }
                at += if text == "-fprintf" { 2 } else { 1 };
            } else if PATH_VALUES.contains(&text.as_str()) || compares_times(&text) == Some(false) {
                if let Some(file) = args.get(at) {
                    covered &= self.find_value(&text, file);
                    self.read_path(&file.clone());
                }
                at += 1;
            } else if takes_text(&text) {
                if matches!(text.as_str(), "-name" | "-iname" | "-path" | "-ipath" | "-wholename" | "-regex")
                    && args.get(at).is_some_and(|value| self.roots.is_secret_name(&value.text))
                {
                    secret_hunt = true;
                }
                covered &= args.get(at).is_none_or(|value| self.find_value(&text, value));
                at += 1;
            } else if !PLAIN.contains(&text.as_str()) {
                covered = false;
                self.require_approval("not-read-only", format!("find: {text} is not known to only read"));
            }
        }
        let outside = starts.iter().any(|start| {
            !start.unknown_start && !self.roots.is_readable(&normalise_path(&self.scope.cwd, &start.text))
        });
        if secret_hunt && (acts || outside) {
            self.add_denial("secret", "find looks for secrets");
        }
        for start in &starts {
            self.read_path(start);
        }
        let program = self.resolve_program(&inv.args[0].text);
        if program.is_none() {
            self.require_approval("unknown-program", "find is not in a trusted directory");
        }
        self.judge_rules_quietly("find", inv);
        self.record_draw("find", Vec::new(), covered);
        let covered_by = covered.then(|| "catalogue".to_owned());
        self.record_command(&inv.args, program, covered_by.into_iter().collect());
        let is_vital = |start: &Arg| {
            start.vital
                || (!start.unknown_start
                    && self.roots.is_vital(&normalise_path(&self.scope.cwd, &start.text)))
        };
        Flow { vital: !selects && !acts && starts.iter().any(is_vital), ..Flow::default() }
    }

    /// True if the value of a test is exactly one word.
    fn find_value(&mut self, test: &str, value: &Arg) -> bool {
        let is_one = value.keeps_its_place(true);
        if !is_one {
            self.require_approval(
                "not-read-only",
                format!("find: the value of {test} may become several words"),
            );
        }
        is_one
    }

    /// Starting points, between the global options and the expression.
    fn find_starts(&mut self, args: &[Arg], at: &mut usize, covered: &mut bool) -> Vec<Arg> {
        let mut starts: Vec<Arg> = Vec::new();
        // Global options, then starting points, then the expression.
        while let Some(arg) = args.get(*at) {
            let text = arg.text.as_str();
            let optimises = text.strip_prefix("-O").is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
            if arg.is_settled() && (matches!(text, "-H" | "-L" | "-P") || optimises) {
                *at += 1;
            } else {
                break;
            }
        }
        while let Some(arg) = args.get(*at) {
            if !arg.unknown_start && arg.text.starts_with(['-', '(', '!', ',']) {
                break;
            }
            // A number is not a word of an expression.
            if arg.may_be_flag() || arg.loose {
                *covered = false;
                self.require_approval(
                    "not-read-only",
                    "find: a word that is not known yet may turn into an action",
                );
            }
            starts.push(arg.clone());
            *at += 1;
        }
        if starts.is_empty() {
            starts.push(Arg::literal("."));
        }
        starts
    }

    /// Judges the command of an `-exec`, whose words begin at `at`. Returns its end, and true if that
    /// is certain.
    fn find_executes(&mut self, text: &str, args: &[Arg], at: usize, starts: &[Arg]) -> (usize, bool) {
        // `+` ends the command only after `{}`.
        let ends =
            |n: usize| args[n].text == ";" || (args[n].text == "+" && n > at && args[n - 1].text == "{}");
        let end = (at..args.len()).find(|n| ends(*n)).unwrap_or(args.len());
        let command = args[at..end].to_vec();
        // An unknown word may be the terminator.
        let is_certain =
            end < args.len() && command.iter().all(|word| word.text != "+" && word.keeps_its_place(false));
        if !is_certain {
            self.require_approval("not-read-only", format!("find: the end of {text} is uncertain"));
        }
        for start in starts {
            // The item is a file below its starting point.
            let item = Arg { unknown: true, glob: false, ..start.clone() };
            let words: Vec<Arg> = command.iter().map(|word| substitute_mark(word, "{}", &item)).collect();
            let outside = (self.scope.cwd.clone(), self.scope.visited.clone());
            if text.ends_with("dir") {
                self.scope.cwd = normalise_path(&outside.0, &start.text);
                // It runs in the directory of the file, below the starting point.
                self.note_visited(format!("{}/*", self.scope.cwd));
            }
            let outer = Invocation::default();
            self.follow_wrapped_command(words, &outer, false);
            (self.scope.cwd, self.scope.visited) = outside;
        }
        (end, is_certain)
    }

    fn find_removes(&mut self, start: &Arg) {
        let path = normalise_path(&self.scope.cwd, &start.text);
        if !start.unknown_start && self.roots.is_vital(&path) {
            self.add_hard_block(
                "rm-root",
                format!("find -delete removes {path} and everything below"),
                Some("name a directory below the workspace"),
            );
        } else {
            self.write_path(start, "find -delete removes files");
        }
    }
}
