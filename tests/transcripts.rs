//! Sessions at a shell, as documents show them: commands behind `$ `, then what is printed.
//!
//! All commands of a document run in one shell, so directories and variables stay. In
//! what is expected, `…` stands for anything within a line, a line of `…` alone for any
//! lines; `? 3` as the last line is an exit code other than 0. Ids of eight and more
//! hexadecimal digits stand for those of this run, in later commands too; times that
//! something took fit each other; so do blanks.

use std::collections::HashMap;
use std::io::{PipeReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::binary;
use crate::home::Home;
use crate::markdown::Block;
use crate::pty::Terminal;

/// No command of a document may take longer.
const PATIENCE: Duration = Duration::from_secs(100);

/// Between what commands print.
const MARK: char = '\u{1e}';

/// Where the terminal asks and waits: for one of these keys, or for a number.
const PROMPTS: [&str; 2] = ["/s/l/?]", "? [1]"];

/// The ids of a document and what they are in this run.
pub(crate) type Ids = HashMap<String, String>;

/// A command with what it should print.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Command {
    pub(crate) text: String,
    pub(crate) expected: Vec<String>,
    pub(crate) code: i32,
    /// Where the expected lines stand in the block.
    pub(crate) from: usize,
}

/// The commands of a block of kind `console`.
pub(crate) fn commands(block: &Block) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    for (number, line) in block.lines.iter().enumerate() {
        if let Some(text) = line.strip_prefix("$ ") {
            commands.push(Command { text: text.to_owned(), from: number + 1, ..Command::default() });
            continue;
        }
        let command = commands.last_mut().expect("a console block begins with a command");
        if let Some(more) = line.strip_prefix("> ")
            && command.expected.is_empty()
        {
            command.text.push('\n');
            command.text.push_str(more);
            command.from = number + 1;
        } else if let Some(code) = line.strip_prefix("? ").and_then(|code| code.parse().ok()) {
            command.code = code;
        } else {
            command.expected.push(line.clone());
        }
    }
    commands
}

/// What a command printed, stdout and stderr as they came, and how it ended.
pub(crate) struct Printed {
    pub(crate) text: String,
    pub(crate) code: i32,
}

/// A shell that runs commands one after the other.
pub(crate) struct Session {
    shell: Child,
    input: ChildStdin,
    output: Receiver<Vec<u8>>,
    home: Home,
    pub(crate) ids: Ids,
}

impl Session {
    /// In a copy of what a reader of the documents has: the examples, and the steps that come with lobster.
    pub(crate) fn new() -> Self {
        let home = Home::new();
        let root = home.dir().join("lobster");
        crate::home::copy_tree(&binary::repository().join("examples"), &root.join("examples"));
        std::fs::create_dir_all(root.join("guest-steps")).unwrap();
        // What somebody's own try has left in the folders.
        let ignored = std::fs::read_to_string(binary::repository().join(".gitignore")).unwrap();
        for left in ignored.lines().filter_map(|line| line.strip_prefix("/examples/")) {
            let path = root.join("examples").join(left);
            let _ = std::fs::remove_dir_all(&path).or_else(|_| std::fs::remove_file(&path));
        }
        for shared in ["guest-steps/dist", "tests/policy"] {
            let to = root.join(shared);
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(binary::repository().join(shared), to).unwrap();
        }
        std::fs::create_dir_all(home.dir().join("bin")).unwrap();
        std::os::unix::fs::symlink(binary::lobster(), home.dir().join("bin/lobster")).unwrap();
        let (output, input) = std::io::pipe().unwrap();
        let call = home.program("sh", [] as [&str; 0]).dir(&root);
        let mut shell = call.start_on(Stdio::piped(), input.try_clone().unwrap().into(), Stdio::from(input));
        let input = shell.stdin.take().unwrap();
        Self { shell, input, output: chunks(output), home, ids: Ids::new() }
    }

    /// Where documents begin.
    pub(crate) fn root(&self) -> PathBuf {
        self.home.dir().join("lobster")
    }

    /// Runs one command, its stdin closed as in a cron job.
    pub(crate) fn run(&mut self, text: &str) -> Printed {
        let script = format!("{{\n{text}\n}} </dev/null\nprintf '{MARK}%d{MARK}' $?\n");
        self.input.write_all(script.as_bytes()).unwrap();
        let mut all = Vec::new();
        loop {
            let printed = String::from_utf8_lossy(&all).into_owned();
            let mut parts = printed.split(MARK);
            if let (Some(text), Some(code), Some(_)) = (parts.next(), parts.next(), parts.next()) {
                return Printed { text: text.to_owned(), code: code.parse().unwrap() };
            }
            match self.output.recv_timeout(PATIENCE) {
                Ok(chunk) => all.extend(chunk),
                Err(why) => panic!("{text}: {why}; so far: {printed}"),
            }
        }
    }

    /// Runs one command on a terminal, typing what `expected` has behind each prompt.
    pub(crate) fn run_on_terminal(&mut self, text: &str, expected: &[String]) -> Printed {
        let place = self.run("pwd").text;
        // As at any terminal: it controls the processes that read from it.
        let call = self
            .home
            .program("setsid", ["--ctty", "--wait", "sh", "-c", text])
            .dir(Path::new(place.trim_end()));
        let call = call.env("TERM", "xterm").env("LOBSTER_PAGER", "cat");
        let mut terminal = Terminal::start(call, 120, 60);
        let asked = |line: &String| {
            PROMPTS.iter().find_map(|prompt| Some((*prompt, line.split_once(prompt)?.1.trim().to_owned())))
        };
        for (prompt, answer) in expected.iter().filter_map(asked) {
            terminal.wait_for(prompt);
            terminal.enter(&answer);
        }
        let (code, screen) = terminal.end();
        Printed { text: screen.text(), code }
    }

    /// Whether a program is to be found.
    pub(crate) fn has(&mut self, program: &str) -> bool {
        self.run(&format!("command -v {program}")).code == 0
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // What a document leaves running in the background goes with it.
        if let Some(group) = i32::try_from(self.shell.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.shell.wait();
    }
}

fn chunks(mut from: PipeReader) -> Receiver<Vec<u8>> {
    let (to, chunks) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 8192];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if to.send(buffer[..count].to_vec()).is_err() {
                break;
            }
        }
    });
    chunks
}

/// Puts the ids of this run in the place of those that the document shows.
pub(crate) fn with_ids(text: &str, ids: &Ids) -> String {
    ids.iter().fold(text.to_owned(), |text, (shown, real)| text.replace(shown, real))
}

/// Whether what was printed is what was expected; learns the ids.
pub(crate) fn matches(expected: &[String], printed: &str, ids: &mut Ids) -> bool {
    let actual: Vec<Vec<char>> = printed.lines().map(one_blank).collect();
    let expected: Vec<Vec<char>> = expected.iter().map(|line| one_blank(line)).collect();
    let end = actual.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
    let learnt = lines_match(&expected, &actual[..end], ids);
    learnt.map(|learnt| *ids = learnt).is_some()
}

/// Learns the ids of something that was printed otherwise than expected, by their order, so that
/// what comes later is still about the same things.
pub(crate) fn learn_ids(expected: &[String], printed: &str, ids: &mut Ids) {
    let shown = ids_in(expected.iter().map(String::as_str)).into_iter().filter(|id| !ids.contains_key(id));
    let known: Vec<&String> = ids.values().collect();
    let real = ids_in(printed.lines()).into_iter().filter(|id| !known.contains(&id));
    let learnt: Vec<(String, String)> = shown.zip(real).collect();
    ids.extend(learnt);
}

/// The ids of a text, each once, in their order.
fn ids_in<'t>(lines: impl Iterator<Item = &'t str>) -> Vec<String> {
    let mut found = Vec::new();
    for word in lines.flat_map(|line| line.split(|c: char| !c.is_alphanumeric())) {
        let word: Vec<char> = word.chars().collect();
        if let Some(id) = id(&word).filter(|id| !found.contains(id)) {
            found.push(id);
        }
    }
    found
}

fn lines_match(expected: &[Vec<char>], actual: &[Vec<char>], ids: &Ids) -> Option<Ids> {
    let Some((first, rest)) = expected.split_first() else {
        return actual.is_empty().then(|| ids.clone());
    };
    if first == &['…'] {
        return (0..=actual.len()).find_map(|skipped| lines_match(rest, &actual[skipped..], ids));
    }
    let (line, after) = actual.split_first()?;
    lines_match(rest, after, &line_matches(first, line, ids)?)
}

/// A line without the blanks at its ends, and with one for several.
fn one_blank(line: &str) -> Vec<char> {
    line.split_whitespace().collect::<Vec<_>>().join(" ").chars().collect()
}

fn line_matches(expected: &[char], actual: &[char], ids: &Ids) -> Option<Ids> {
    let Some(first) = expected.first() else { return actual.is_empty().then(|| ids.clone()) };
    if *first == '…' {
        return (0..=actual.len()).find_map(|skipped| line_matches(&expected[1..], &actual[skipped..], ids));
    }
    if let (Some(a), Some(b)) = (duration(expected), duration(actual))
        && let Some(learnt) = line_matches(&expected[a..], &actual[b..], ids)
    {
        return Some(learnt);
    }
    if let (Some(shown), Some(real)) = (id(expected), id(actual)) {
        let (length, taken) = (shown.len(), real.len());
        let learnt = match ids.get(&shown) {
            Some(known) if *known != real => return None,
            Some(_) => ids.clone(),
            None => ids.iter().map(|(a, b)| (a.clone(), b.clone())).chain([(shown, real)]).collect(),
        };
        return line_matches(&expected[length..], &actual[taken..], &learnt);
    }
    (actual.first() == Some(first)).then(|| line_matches(&expected[1..], &actual[1..], ids)).flatten()
}

/// The length of a time that something took at the beginning of a line: `12 ms`, `1.5 s`, `3m`.
fn duration(line: &[char]) -> Option<usize> {
    let digits = line.iter().position(|c| !c.is_ascii_digit() && *c != '.').filter(|count| *count > 0)?;
    let blank = usize::from(line[digits] == ' ');
    let rest: String = line[digits + blank..].iter().take(3).collect();
    let unit = ["µs", "ms", "s", "m", "h"].into_iter().find(|unit| {
        rest.strip_prefix(unit).is_some_and(|after| !after.starts_with(|c: char| c.is_alphanumeric()))
    })?;
    Some(digits + blank + unit.chars().count())
}

/// An id at the beginning of a line: eight hexadecimal digits or more, at least one of them a digit.
fn id(line: &[char]) -> Option<String> {
    let word: String = line.iter().take_while(|c| c.is_alphanumeric()).collect();
    let hexadecimal = word.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
    (word.len() >= 8 && hexadecimal && word.contains(|c: char| c.is_ascii_digit())).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(expected: &str, printed: &str) -> bool {
        let lines: Vec<String> = expected.lines().map(str::to_owned).collect();
        matches(&lines, printed, &mut Ids::new())
    }

    #[test]
    fn what_varies_fits_and_what_does_not_does_not() {
        assert!(fits("a … c\n…\nend", "a b  c\nx\ny\nend\n"));
        assert!(!fits("a … c\nend", "a b d\nend"));
        assert!(fits("took 12 ms", "took 1.5 s"));
        assert!(!fits("took 12 mails", "took 13 mails"));
        assert!(fits("run 3f9a1c2b\nshow 3f9a1c2b", "run 00000001\nshow 00000001"));
        assert!(!fits("run 3f9a1c2b\nshow 3f9a1c2b", "run 00000001\nshow 00000002"));
        assert!(!fits("one", "one\ntwo") && !fits("one\ntwo", "one"));
        assert!(fits("", "") && fits("…", ""));
    }

    #[test]
    fn ids_are_learnt_in_their_order() {
        let mut ids = Ids::from([("11111111".to_owned(), "aaaaaaa1".to_owned())]);
        let expected = ["run 11111111 gate 22222222".to_owned(), "3f9a1c2b".to_owned()];
        learn_ids(&expected, "GATE bbbbbbb2 of aaaaaaa1, ccccccc3 bbbbbbb2", &mut ids);
        assert_eq!(with_ids("22222222 3f9a1c2b 11111111", &ids), "bbbbbbb2 ccccccc3 aaaaaaa1");
    }
}
