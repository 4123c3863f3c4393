//! sed scripts that only print.
//!
//! Only the subset that GNU, busybox and BSD sed read in the same way is accepted. Any other script is
//! not understood, and the command asks.

use super::super::analysis::{Analysis, Arg};
use super::options::CommandLine;

/// Effects of a script beyond editing its stream.
#[derive(Debug, Default, PartialEq, Eq)]
struct Effects {
    /// Files read by `r` and `R`.
    reads: Vec<String>,
    /// Shell commands of `e`.
    runs: Vec<String>,
    /// Some pattern space is run as a command.
    runs_data: bool,
    /// Files written by `w`, `W` and `s///w`.
    writes: Vec<String>,
}

impl Analysis<'_> {
    /// Checks that the script on this line only prints.
    pub(super) fn check_sed_script(&mut self, line: &CommandLine, args: &[Arg]) -> Result<(), String> {
        let mut scripts: Vec<&Arg> = line.option_values(&["e", "expression"]).collect();
        scripts.extend(line.pattern_position().map(|at| &args[at]));
        if scripts.is_empty() {
            return Err("there is no script".to_owned());
        }
        if scripts.iter().any(|s| s.known_text().is_none()) {
            return Err("the script is not known yet".to_owned());
        }
        let script = scripts.iter().map(|s| s.text.as_str()).collect::<Vec<_>>().join("\n");
        let mut effects = Effects::default();
        let understood = read_script(&script, &mut effects);
        for path in &effects.reads {
            self.read_path(&Arg::literal(path.clone()));
        }
        for command in &effects.runs {
            self.probe_code(command, "sed");
        }
        if effects.runs_data || !effects.runs.is_empty() {
            return Err("the script runs commands".to_owned());
        }
        if !effects.writes.is_empty() {
            return Err("the script writes files".to_owned());
        }
        if !effects.reads.is_empty() {
            return Err("the script reads another file".to_owned());
        }
        understood.ok_or_else(|| "the script is not understood".to_owned())
    }
}

/// Position in a script.
struct Script<'s> {
    chars: &'s [char],
    at: usize,
}

/// Reads a script; `None` if some part is not understood. `effects` then has the effects of the part
/// before it.
fn read_script(script: &str, effects: &mut Effects) -> Option<()> {
    if !script.is_ascii() {
        // In some locales, a character of several bytes may end in a delimiter.
        return None;
    }
    let chars: Vec<char> = script.chars().collect();
    let mut script = Script { chars: &chars, at: 0 };
    loop {
        match script.peek() {
            None => return Some(()),
            Some(c) if c.is_whitespace() || matches!(c, ';' | '{' | '}') => script.at += 1,
            Some('#') => script.skip_line(),
            Some(_) => {
                script.skip_addresses()?;
                script.read_command(effects)?;
            }
        }
    }
}

impl Script<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn skip_while(&mut self, wanted: impl Fn(char) -> bool) {
        while self.peek().is_some_and(&wanted) {
            self.at += 1;
        }
    }

    fn skip_line(&mut self) {
        self.skip_while(|c| c != '\n');
    }

    fn skip_blanks(&mut self) {
        self.skip_while(|c| c == ' ' || c == '\t');
    }

    fn rest_of_line(&mut self) -> String {
        let from = self.at;
        self.skip_line();
        self.chars[from..self.at].iter().collect::<String>().trim().to_owned()
    }

    /// Addresses before a command.
    fn skip_addresses(&mut self) -> Option<()> {
        for _ in 0..2 {
            self.skip_blanks();
            match self.peek() {
                Some('/') => {
                    self.at += 1;
                    self.skip_regex('/')?;
                    self.skip_while(|c| c == 'I');
                }
                Some('$') => self.at += 1,
                Some(c) if c.is_ascii_digit() || matches!(c, '+' | '~') => {
                    self.skip_while(|c| c.is_ascii_digit() || matches!(c, '+' | '~'));
                }
                Some('\\') => return None,
                _ => {}
            }
            self.skip_blanks();
            if self.peek() == Some(',') {
                self.at += 1;
            } else {
                break;
            }
        }
        self.skip_while(|c| c == '!' || c == ' ');
        Some(())
    }

    /// A regular expression up to and including its delimiter. A delimiter inside a bracket expression
    /// ends it in some seds only, so it is refused.
    fn skip_regex(&mut self, delimiter: char) -> Option<()> {
        let from = self.at;
        self.skip_text(delimiter)?;
        brackets_are_closed(&self.chars[from..self.at - 1]).then_some(())
    }

    /// Text up to and including the next unescaped `delimiter`, on one line.
    fn skip_text(&mut self, delimiter: char) -> Option<()> {
        loop {
            match self.peek()? {
                '\n' => return None,
                '\\' if matches!(self.chars.get(self.at + 1), None | Some('\n')) => return None,
                '\\' => self.at += 2,
                c if c == delimiter => {
                    self.at += 1;
                    return Some(());
                }
                _ => self.at += 1,
            }
        }
    }

    fn read_command(&mut self, effects: &mut Effects) -> Option<()> {
        let c = self.peek()?;
        self.at += 1;
        match c {
            '{' => return Some(()),
            '=' | 'd' | 'D' | 'g' | 'G' | 'h' | 'H' | 'n' | 'N' | 'p' | 'P' | 'x' | 'z' | 'F' | 'l' => {}
            'q' | 'Q' => {
                self.skip_blanks();
                self.skip_while(|c| c.is_ascii_digit());
            }
            ':' | 'b' | 't' | 'T' => {
                // Some seds end a label at `;` or `}`, others at the end of the line; the latter then
                // see fewer commands.
                self.skip_blanks();
                self.skip_while(|c| c.is_ascii_alphanumeric() || c == '_');
            }
            'a' | 'i' | 'c' => return self.inserted_text(),
            'r' | 'R' => effects.reads.push(self.rest_of_line()),
            'w' | 'W' => effects.writes.push(self.rest_of_line()),
            'e' => match self.rest_of_line() {
                run if run.is_empty() => effects.runs_data = true,
                run => effects.runs.push(run),
            },
            's' => self.read_substitution(effects)?,
            'y' => {
                let delimiter = self.read_delimiter()?;
                self.skip_text(delimiter)?;
                self.skip_text(delimiter)?;
            }
            _ => return None,
        }
        self.end_of_command()
    }

    /// Text for `a`, `i` and `c`, up to the end of the line.
    fn inserted_text(&mut self) -> Option<()> {
        self.skip_blanks();
        if self.peek() == Some('\\') {
            self.at += 1;
            if self.peek() != Some('\n') {
                return None;
            }
            self.at += 1;
        }
        let from = self.at;
        self.skip_line();
        let text = &self.chars[from..self.at];
        (!text.is_empty() && !text.contains(&'\\')).then_some(())
    }

    fn read_delimiter(&mut self) -> Option<char> {
        let delimiter = self.peek()?;
        self.at += 1;
        "/,#|@:!%~+=_^&".contains(delimiter).then_some(delimiter)
    }

    fn read_substitution(&mut self, effects: &mut Effects) -> Option<()> {
        let delimiter = self.read_delimiter()?;
        self.skip_regex(delimiter)?;
        let from = self.at;
        self.skip_text(delimiter)?;
        let replacement: String = self.chars[from..self.at - 1].iter().collect();
        loop {
            match self.peek() {
                Some('g' | 'p' | 'i' | 'I' | 'm' | 'M' | '0'..='9') => self.at += 1,
                Some('e') => {
                    effects.runs.push(replacement.clone());
                    effects.runs_data = true;
                    self.at += 1;
                }
                Some('w') => {
                    self.at += 1;
                    effects.writes.push(self.rest_of_line());
                    return Some(());
                }
                _ => return Some(()),
            }
        }
    }

    fn end_of_command(&mut self) -> Option<()> {
        self.skip_blanks();
        matches!(self.peek(), None | Some('\n' | ';' | '}' | '#')).then_some(())
    }
}

/// True if every bracket expression of a regular expression ends within it, whether `\` and an initial
/// `]` are read as special or not.
pub(super) fn brackets_are_closed(regex: &[char]) -> bool {
    let closed = |escapes: bool, first_is_literal: bool| {
        let mut at = 0;
        while let Some(c) = regex.get(at) {
            at += 1;
            match c {
                '\\' => at += 1,
                '[' => {
                    at += usize::from(regex.get(at) == Some(&'^'));
                    at += usize::from(first_is_literal && regex.get(at) == Some(&']'));
                    loop {
                        match regex.get(at) {
                            None => return false,
                            Some(']') => break,
                            Some('\\') if escapes => at += 2,
                            Some('[') if matches!(regex.get(at + 1), Some(':' | '.' | '=')) => {
                                let kind = regex[at + 1];
                                let end = regex[at + 2..].windows(2).position(|w| w == [kind, ']']);
                                let Some(end) = end else { return false };
                                at += end + 4;
                            }
                            Some(_) => at += 1,
                        }
                    }
                    at += 1;
                }
                _ => {}
            }
        }
        true
    };
    closed(true, true) && closed(true, false) && closed(false, true) && closed(false, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script_effects(script: &str) -> (Option<()>, Effects) {
        let mut effects = Effects::default();
        let understood = read_script(script, &mut effects);
        (understood, effects)
    }

    #[test]
    fn printing_scripts_have_no_effects() {
        for script in [
            "1,20p",
            "/^fn /p",
            "s/reboot/restart/g",
            "1d\n$d",
            "s#/w#/e#",
            "$!N;s/a/b/;P;D",
            "/a/,/b/{p;q}",
            "s/w/e/2p",
            "y/abc/def/",
            "a\\\nw /tmp/x",
            "1i # generated",
            "s/[0-9]*$//",
            "s/[^]/]*x//",
            ":a;N;$!ba;s/\\n/ /g",
            ":a;$!{N;ba};s/\\n/,/g",
            "/^$/d",
            "/x/Id",
            "2q",
            "s/^[[:space:]]*//;s/[[:space:]]*$//",
            "s|/usr|/opt|",
        ] {
            if script == "s/[^]/]*x//" {
                assert_eq!(script_effects(script).0, None, "{script}");
            } else {
                assert_eq!(script_effects(script), (Some(()), Effects::default()), "{script}");
            }
        }
    }

    #[test]
    fn writing_and_running_are_seen() {
        assert_eq!(script_effects("w /tmp/out").1.writes, ["/tmp/out"]);
        assert_eq!(script_effects("s/a/b/w out").1.writes, ["out"]);
        assert_eq!(script_effects("1e id").1.runs, ["id"]);
        assert_eq!(script_effects("p;p;1 e id").1.runs, ["id"]);
        assert_eq!(script_effects(":a;e id").1.runs, ["id"]);
        assert_eq!(script_effects("b a}e id").1.runs, ["id"]);
        assert_eq!(script_effects("a foo\ne id").1.runs, ["id"]);
        assert!(script_effects("s/.*/date/e").1.runs_data);
        assert!(script_effects("s,a\\,b,c,e").1.runs_data);
        assert_eq!(script_effects("r /etc/shadow").1.reads, ["/etc/shadow"]);
    }

    #[test]
    fn what_versions_read_in_two_ways_is_not_understood() {
        for script in [
            "s/a/b",
            "k",
            "s/[/]/b/e",
            "\\%[%]%e id",
            "s/é/e/",
            "s;a;b;",
            "sxaxbx",
            "s/a/b\\\nc/",
            "a\\foo",
            "c foo\\\nx\ne id",
            "v 4.2",
            "l 5",
            "s/a/b/x",
            "y/a/b",
            "p p",
            "a",
            "/x",
        ] {
            assert_eq!(script_effects(script).0, None, "{script}");
        }
    }
}
