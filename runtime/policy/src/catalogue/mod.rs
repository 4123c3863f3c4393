//! The catalogue of programs that only read: versioned data, and the checks
//! that make each entry true.

mod awk;
mod filter;
mod find;
#[cfg(test)]
mod generated;
mod git;
mod git_settings;
mod hunt;
mod options;
#[cfg(test)]
mod probe;
mod sed;

pub use git_settings::{NamedSettings, catalogued_git, git_settings};

use super::analysis::{Analysis, Arg};
use options::{CommandLine, Entry, Operands, Part, VERSIONS, find_entry, read_command_line};

/// True if rights that a rule grants to another command of the text mean nothing to the program.
pub(crate) fn is_pure(name: &str) -> bool {
    find_entry(name).is_some_and(|entry| entry.pure)
}

/// True if the command only prints a version.
pub(crate) fn is_version_query(name: &str, args: &[Arg]) -> bool {
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let answers = |word: &str| {
        VERSIONS.iter().any(|(question, programs)| {
            *question == word && programs.iter().any(|program| *program == name || *program == bare)
        })
    };
    matches!(args, [question] if question.known_text().is_some_and(answers))
}

/// True if the catalogue has the program.
pub(crate) fn names_program(name: &str) -> bool {
    find_entry(name).is_some() || matches!(name, "git" | "find" | "ip" | "openssl" | "go")
}

/// True if no argument of the program is a path that it opens.
pub(crate) fn is_text_only(name: &str) -> bool {
    const NAMES: &[&str] = text_list!("../lists/text-only-programs.txt");
    NAMES.contains(&name)
}

/// Programs whose verbs have lines of their own in the table.
const WITH_VERBS: &[&str] = &["openssl", "go"];

/// For each argument of a known command, true if it is text: a pattern, a script, a message.
pub(crate) fn text_words(name: &str, args: &[Arg]) -> Vec<bool> {
    let is_text = |part: &Part| matches!(part, Part::TextValue | Part::OptionWithText | Part::Pattern);
    match name {
        "git" => git::text_words(args),
        "find" | "gfind" => find::text_words(args),
        "yq" if filter::has_verb(args) => {
            let mut words = text_words(name, &args[1..]);
            words.insert(0, true);
            words
        }
        _ => match find_entry(name) {
            Some(entry) => {
                let line = read_command_line(entry, args);
                let until =
                    if entry.operands == Operands::Free { args.len() } else { line.settled_until(args) };
                line.parts.iter().enumerate().map(|(at, part)| at < until && is_text(part)).collect()
            }
            None => vec![false; args.len()],
        },
    }
}

/// The text of the script operand of sed or awk.
fn script_operand<'a>(name: &str, args: &'a [Arg]) -> Option<&'a Arg> {
    let line = read_command_line(find_entry(name)?, args);
    args.get(line.pattern_position()?)
}

impl Analysis<'_> {
    /// Judges a command by the catalogue: `Ok(false)` for a program that it
    /// does not know, an error with the reason for a use that does more than
    /// read.
    pub(crate) fn judge_catalogued(&mut self, name: &str, args: &[Arg]) -> Result<bool, String> {
        match name {
            "git" => return self.judge_git(args),
            "ip" => return self.judge_ip(args),
            "tee" => {
                return Ok(args.iter().all(|a| a.known_text().is_some_and(super::paths::is_harmless_device)));
            }
            _ => {}
        }
        if WITH_VERBS.contains(&name) {
            let verb = args.first().and_then(Arg::known_text).unwrap_or("");
            let Some(entry) = find_entry(&format!("{name}/{verb}")) else {
                return Err(format!("{name} {verb} is not known to only read"));
            };
            let args = &args[1..];
            self.judge_line(entry, &read_command_line(entry, args), args)?;
            return Ok(true);
        }
        let Some(entry) = find_entry(name) else {
            return Ok(false);
        };
        let rewritten;
        let args = match name {
            "tar" | "bsdtar" => {
                rewritten = without_bundle(args)?;
                &rewritten
            }
            "yq" if filter::has_verb(args) => &args[1..],
            _ => args,
        };
        let line = read_command_line(entry, args);
        let judged = self.judge_line(entry, &line, args);
        self.refuse_hunt(name, &line, args);
        match name {
            "sed" | "gsed" => {
                let script = self.check_sed_script(&line, args);
                judged?;
                script?;
            }
            "awk" | "gawk" | "mawk" | "nawk" | "original-awk" => {
                judged?;
                awk::judge_line(&line, args)?;
            }
            "jq" | "gojq" | "jaq" | "yq" => {
                judged?;
                filter::judge_line(&line, args)?;
            }
            // It asks the loader that the file names, which may be anything.
            "ldd" => {
                judged?;
                let own =
                    |at: usize| self.is_trusted_path(&args[at].text) || args[at].text.starts_with("/usr/");
                if !line.operand_positions().all(|at| args[at].known_text().is_some() && own(at)) {
                    return Err("ldd may run what it looks at".to_owned());
                }
            }
            "tar" | "bsdtar" => {
                judged?;
                let is_local = |archive: &Arg| archive.is_settled() && !archive.text.contains(':');
                if !line.path_values().all(is_local) {
                    return Err("the archive may be on another host".to_owned());
                }
            }
            "date" => {
                judged?;
                let is_format =
                    |arg: &Arg| arg.text.starts_with('+') && !arg.unknown_start && arg.is_one_word();
                if !line.operand_positions().all(|at| is_format(&args[at])) {
                    return Err("an operand without + sets the clock".to_owned());
                }
            }
            "sysctl" => {
                judged?;
                if line.operand_positions().any(|at| !args[at].is_settled() || args[at].text.contains('=')) {
                    return Err("name=value sets a kernel parameter".to_owned());
                }
            }
            _ => {
                judged?;
                judge_modes(name, &line)?;
            }
        }
        Ok(true)
    }

    /// Reads what the line names, and says what in it does more than read.
    fn judge_line(&mut self, entry: &Entry, line: &CommandLine, args: &[Arg]) -> Result<(), String> {
        for path in line.path_values() {
            self.read_path(path);
        }
        let mut problem = line.problem.clone();
        let loader = entry.refuse_schemes.then(|| args.iter().find(|word| may_name_code(word))).flatten();
        if let Some(word) = loader {
            problem.get_or_insert(format!("{} may name code or options to be loaded", word.display_text()));
        }
        let mut refuse = |why: String| {
            problem.get_or_insert(why);
        };
        for (nth, at) in line.operand_positions().enumerate() {
            let arg = &args[at];
            let is_verb = arg.is_settled() && entry.verbs.contains(&arg.text.as_str());
            if nth == 0 && !entry.verbs.is_empty() && !is_verb {
                refuse(format!("{} is not one of the verbs that only read", arg.display_text()));
            }
            match entry.operands {
                Operands::Paths | Operands::Pattern => self.read_path(arg),
                Operands::FirstOnly if nth == 0 && arg.is_one_word() => self.read_path(arg),
                Operands::FirstOnly => refuse("the second operand is written".to_owned()),
                Operands::None => refuse(format!("the operand {} changes something", arg.display_text())),
                Operands::Meta | Operands::Text | Operands::Free | Operands::Git => {}
            }
        }
        problem.map_or(Ok(()), Err)
    }

    fn judge_ip(&mut self, args: &[Arg]) -> Result<bool, String> {
        let Some(words) = find_entry("ip/words") else { return Ok(false) };
        if !args.iter().all(Arg::is_settled) {
            return Err("a word is not known yet".to_owned());
        }
        let mut rest = args.iter();
        let mut object = None;
        while let Some(arg) = rest.next() {
            let text = arg.text.as_str();
            if let Some(flag) = text.strip_prefix('-') {
                let flag = flag.trim_start_matches('-');
                if flag == "b" || (flag.len() > 1 && "batch".starts_with(flag)) {
                    if let Some(file) = rest.next() {
                        self.read_path(file);
                    }
                    return Err("-batch runs commands from a file".to_owned());
                }
                if matches!(flag, "n" | "netns") {
                    return Err("-netns enters another namespace".to_owned());
                }
                match flag {
                    "f" | "family" | "l" | "loops" | "rc" | "rcvbuf" => {
                        rest.next();
                    }
                    _ if words.knows_long(flag) => {}
                    _ => return Err(format!("option -{flag} is not known to only read")),
                }
                continue;
            }
            object = Some(text);
            break;
        }
        let Some(object) = object else { return Ok(true) };
        if !words.verbs.contains(&object) {
            return Err(format!("ip {object} is not known to only read"));
        }
        match rest.next().map(|a| a.text.as_str()) {
            None | Some("show" | "list" | "ls" | "lst" | "get" | "help" | "identify" | "pids") => Ok(true),
            // Elsewhere `s` may be short for `set`.
            Some("s" | "sh") if matches!(object, "address" | "addr" | "a") => Ok(true),
            Some(verb) => Err(format!("ip {object} {verb} changes the network")),
        }
    }
}

/// True if a program may take the word for a URI (`org.openssl.engine:...`) or for a file of options
/// (`@file`). What is not known may be either, unless a path is known to begin before it.
fn may_name_code(word: &Arg) -> bool {
    let text = word.text.as_str();
    if text.starts_with('-') && word.known_text().is_some() {
        return false;
    }
    let scheme = text.split(['/', ':']).next().unwrap_or("");
    let is_scheme = scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+.-".contains(&b));
    let has_scheme = is_scheme && text[scheme.len()..].starts_with(':');
    let begins_as_path = !word.unknown_start && (text.starts_with('/') || text.starts_with("./"));
    text.starts_with('@') || has_scheme || (word.known_text().is_none() && !begins_as_path)
}

/// Programs with several modes, of which the last one given counts: an option
/// that only reads does not answer for another one behind it.
fn judge_modes(name: &str, line: &CommandLine) -> Result<(), String> {
    match name {
        "gzip" | "bzip2" | "xz" | "zstd" | "lz4"
            if line.has_option(&["d", "decompress", "uncompress"]) && !line.has_option(&["c", "stdout"]) =>
        {
            return Err("to decompress without -c replaces the file".to_owned());
        }
        "pacman"
            if line.has_option(&["S"])
                && (line.has_option(&["u"]) || !line.has_option(&["s", "i", "l", "g"])) =>
        {
            return Err("-S without -s, -i, -l or -g installs".to_owned());
        }
        _ => {}
    }
    Ok(())
}

/// tar's first word may be its options without a dash; their values follow in
/// order. Only `f` takes one among those that list.
fn without_bundle(args: &[Arg]) -> Result<Vec<Arg>, String> {
    let Some(first) = args.first().filter(|a| !a.text.starts_with('-')) else {
        return Ok(args.to_vec());
    };
    if !first.is_settled() {
        return Err("the options are not known yet".to_owned());
    }
    let flags: String = first.text.chars().filter(|c| *c != 'f').collect();
    let files = first.text.chars().filter(|c| *c == 'f').count();
    if files > 1 {
        return Err("-f is given twice".to_owned());
    }
    let mut out = Vec::with_capacity(args.len() + 2);
    if !flags.is_empty() {
        out.push(Arg::literal(format!("-{flags}")));
    }
    if files == 1 {
        out.push(Arg::literal("-f"));
    }
    out.extend_from_slice(&args[1..]);
    Ok(out)
}
