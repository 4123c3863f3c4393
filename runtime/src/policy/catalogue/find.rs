//! find: its predicates read, its actions may do anything.

use super::super::analysis::{Analysis, Arg, Flow};
use super::super::command::Invocation;
use super::super::paths::normalise;
use super::super::wrappers::substitute;

const EXEC: &[&str] = &["-exec", "-execdir", "-ok", "-okdir"];
/// Tests that take a value which is text or a number.
const TEXT_VALUES: &[&str] = &[
    "-name",
    "-iname",
    "-path",
    "-ipath",
    "-wholename",
    "-iwholename",
    "-regex",
    "-iregex",
    "-lname",
    "-ilname",
    "-type",
    "-xtype",
    "-size",
    "-mtime",
    "-atime",
    "-ctime",
    "-mmin",
    "-amin",
    "-cmin",
    "-maxdepth",
    "-mindepth",
    "-user",
    "-group",
    "-uid",
    "-gid",
    "-perm",
    "-links",
    "-inum",
    "-fstype",
    "-printf",
    "-regextype",
    "-used",
    "-context",
    "-newermt",
    "-newerat",
    "-newerct",
    "-D",
    "-since",
];
const PATH_VALUES: &[&str] = &["-newer", "-anewer", "-cnewer", "-samefile", "-files0-from"];
const WRITE_VALUES: &[&str] = &["-fprint", "-fprint0", "-fls", "-fprintf"];

/// Whether the word at `at` is the value of a test, or an expression.
pub(super) fn is_text_at(args: &[Arg], at: usize) -> bool {
    at > 0 && TEXT_VALUES.contains(&args[at - 1].text.as_str())
}

impl Analysis<'_> {
    /// Judges a find command: starting points are read, actions are followed.
    pub(crate) fn find_command(&mut self, inv: &Invocation) -> Flow {
        let args: Vec<Arg> = inv.args[1..].to_vec();
        let mut at = 0;
        let mut starts: Vec<Arg> = Vec::new();
        let mut covered = true;
        // Global options, then starting points, then the expression.
        while let Some(arg) = args.get(at) {
            let text = arg.text.as_str();
            if matches!(text, "-H" | "-L" | "-P") || text.starts_with("-O") {
                at += 1;
            } else if text == "-D" {
                at += 2;
            } else {
                break;
            }
        }
        while let Some(arg) = args.get(at) {
            if !arg.unknown_start && arg.text.starts_with(['-', '(', '!', ',']) {
                break;
            }
            if arg.may_be_flag() {
                covered = false;
                self.ask("not-read-only", "find: a word that is not known yet may turn into an action");
            }
            starts.push(arg.clone());
            at += 1;
        }
        if starts.is_empty() {
            starts.push(Arg::literal("."));
        }
        self.mention_listing(&starts, &args, true);
        let mut acts = false;
        let mut secret_hunt = false;
        while let Some(arg) = args.get(at) {
            let text = arg.text.clone();
            at += 1;
            if arg.unknown || arg.glob {
                covered = false;
                self.ask("not-read-only", "find: a word that is not known yet may turn into an action");
            }
            if text == "-delete" {
                acts = true;
                covered = false;
                for start in &starts {
                    self.find_removes(start);
                }
            } else if EXEC.contains(&text.as_str()) {
                acts = true;
                let end = args[at..]
                    .iter()
                    .position(|a| a.text == ";" || (a.text == "+" && !a.unknown))
                    .map_or(args.len(), |n| at + n);
                let command = args[at..end].to_vec();
                at = end + 1;
                for start in &starts {
                    // The file stands for something below its starting point.
                    let item = Arg { unknown: true, glob: false, ..start.clone() };
                    let words: Vec<Arg> = command.iter().map(|word| substitute(word, "{}", &item)).collect();
                    let cwd = self.scope.cwd.clone();
                    if text.ends_with("dir") {
                        self.scope.cwd = normalise(&cwd, &start.text);
                    }
                    let outer = Invocation::default();
                    self.inner(words, &outer, false);
                    self.scope.cwd = cwd;
                }
            } else if WRITE_VALUES.contains(&text.as_str()) {
                covered = false;
                if let Some(file) = args.get(at) {
                    self.write_path(&file.clone(), "find writes a file");
                }
                at += if text == "-fprintf" { 2 } else { 1 };
            } else if PATH_VALUES.contains(&text.as_str()) {
                if let Some(file) = args.get(at) {
                    self.read_path(&file.clone());
                }
                at += 1;
            } else if TEXT_VALUES.contains(&text.as_str()) {
                if matches!(text.as_str(), "-name" | "-iname" | "-path" | "-ipath" | "-wholename" | "-regex")
                    && args.get(at).is_some_and(|value| self.roots.is_secret_name(&value.text))
                {
                    secret_hunt = true;
                }
                at += 1;
            }
        }
        let outside = starts.iter().any(|start| {
            !start.unknown_start && !self.roots.is_readable(&normalise(&self.scope.cwd, &start.text))
        });
        if secret_hunt && (acts || outside) {
            self.deny("secret", "find looks for secrets");
        }
        for start in &starts {
            self.read_path(start);
        }
        let program = self.resolve(&inv.args[0].text);
        if program.is_none() {
            self.ask("unknown-program", "find is not in a trusted directory");
        }
        self.judge_rules_quietly("find", inv);
        self.record(&inv.args, program, if covered { vec!["catalogue".to_owned()] } else { Vec::new() });
        Flow::default()
    }

    fn find_removes(&mut self, start: &Arg) {
        let path = normalise(&self.scope.cwd, &start.text);
        if !start.unknown_start && self.roots.is_vital(&path) {
            self.hard(
                "rm-root",
                format!("find -delete removes {path} and everything below"),
                Some("name a directory below the workspace"),
            );
        } else {
            self.write_path(start, "find -delete removes files");
        }
    }
}
