//! sed scripts: which ones only print.

use super::super::analysis::{Analysis, Arg};

/// What a script does beyond editing its stream.
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
    pub(super) fn sed(&mut self, args: &[Arg]) -> Result<bool, String> {
        let mut scripts: Vec<Arg> = Vec::new();
        let mut files: Vec<Arg> = Vec::new();
        let mut in_place = false;
        let mut sandbox = false;
        let mut at = 0;
        while let Some(arg) = args.get(at) {
            at += 1;
            let text = arg.text.as_str();
            if arg.may_be_flag() {
                return Err("a word that is not known yet may turn into an option".to_owned());
            }
            if text == "--" {
                files.extend(args[at..].iter().cloned());
                break;
            }
            if let Some(long) = text.strip_prefix("--") {
                let (name, value) = long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v)));
                if "expression".starts_with(name) {
                    match value {
                        Some(value) => scripts.push(Arg { text: value.to_owned(), ..arg.clone() }),
                        None => {
                            scripts.extend(args.get(at).cloned());
                            at += 1;
                        }
                    }
                } else if "file".starts_with(name) {
                    return Err("a script file may do more than print".to_owned());
                } else if "in-place".starts_with(name) {
                    in_place = true;
                } else if name == "sandbox" {
                    sandbox = true;
                }
                continue;
            }
            if let Some(flags) = text.strip_prefix('-').filter(|f| !f.is_empty()) {
                for (i, c) in flags.char_indices() {
                    match c {
                        'i' => {
                            in_place = true;
                            break;
                        }
                        'f' => return Err("a script file may do more than print".to_owned()),
                        'e' => {
                            let attached = &flags[i + 1..];
                            if attached.is_empty() {
                                scripts.extend(args.get(at).cloned());
                                at += 1;
                            } else {
                                scripts.push(Arg { text: attached.to_owned(), ..arg.clone() });
                            }
                            break;
                        }
                        'l' => {
                            if i + 1 == flags.len() {
                                at += 1;
                            }
                            break;
                        }
                        _ => {}
                    }
                }
                continue;
            }
            files.push(arg.clone());
        }
        if scripts.is_empty() {
            if files.is_empty() {
                return Err("there is no script".to_owned());
            }
            scripts.push(files.remove(0));
        }
        for file in &files {
            self.read_path(file);
        }
        let _ = sandbox;
        if scripts.iter().any(|s| s.unknown) {
            return Err("the script is not known yet".to_owned());
        }
        let script = scripts.iter().map(|s| s.text.as_str()).collect::<Vec<_>>().join("\n");
        let effects = read_script(&script).ok_or("the script is not understood")?;
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
        if in_place {
            return Err("-i changes files".to_owned());
        }
        Ok(true)
    }
}

/// Reads a script; `None` for anything not understood.
fn read_script(script: &str) -> Option<Effects> {
    let mut effects = Effects::default();
    let chars: Vec<char> = script.chars().collect();
    let mut i = 0;
    while i < chars.len() {
        match chars[i] {
            c if c.is_whitespace() || c == ';' || c == '{' || c == '}' => i += 1,
            '#' => i = line_end(&chars, i),
            _ => {
                i = address(&chars, i)?;
                i = command(&chars, i, &mut effects)?;
            }
        }
    }
    Some(effects)
}

fn line_end(chars: &[char], from: usize) -> usize {
    chars[from..].iter().position(|c| *c == '\n').map_or(chars.len(), |n| from + n)
}

fn skip_blanks(chars: &[char], mut i: usize) -> usize {
    while chars.get(i).is_some_and(|c| *c == ' ' || *c == '\t') {
        i += 1;
    }
    i
}

/// Skips the addresses before a command.
fn address(chars: &[char], mut i: usize) -> Option<usize> {
    for _ in 0..2 {
        i = skip_blanks(chars, i);
        match chars.get(i) {
            Some('/') => {
                i = delimited(chars, i + 1, '/')?;
                while chars.get(i).is_some_and(|c| matches!(c, 'I' | 'M')) {
                    i += 1;
                }
            }
            Some('\\') => {
                let delimiter = *chars.get(i + 1)?;
                i = delimited(chars, i + 2, delimiter)?;
                while chars.get(i).is_some_and(|c| matches!(c, 'I' | 'M')) {
                    i += 1;
                }
            }
            Some('$') => i += 1,
            Some(c) if c.is_ascii_digit() || matches!(c, '+' | '~') => {
                while chars.get(i).is_some_and(|c| c.is_ascii_digit() || matches!(c, '+' | '~')) {
                    i += 1;
                }
            }
            _ => {}
        }
        i = skip_blanks(chars, i);
        if chars.get(i) == Some(&',') {
            i += 1;
        } else {
            break;
        }
    }
    while chars.get(i).is_some_and(|c| *c == '!' || *c == ' ') {
        i += 1;
    }
    Some(i)
}

/// The position after the next unescaped `delimiter`.
fn delimited(chars: &[char], mut i: usize, delimiter: char) -> Option<usize> {
    let mut class = false;
    while let Some(c) = chars.get(i) {
        match c {
            '\\' => i += 1,
            '[' if !class && delimiter != '[' => {
                // A bracket expression hides the delimiter; its first ] is literal.
                let close = chars[i + 1..].iter().skip(1).position(|c| *c == ']');
                if let Some(offset) = close
                    && !chars[i..i + 2 + offset].contains(&'\n')
                {
                    let inside = &chars[i + 1..i + 2 + offset];
                    if inside.contains(&delimiter) {
                        // sed versions differ here: not understood.
                        return None;
                    }
                }
                class = false;
            }
            c if *c == delimiter => return Some(i + 1),
            _ => {}
        }
        i += 1;
    }
    None
}

fn word_to_line_end(chars: &[char], i: usize) -> (String, usize) {
    let end = line_end(chars, i);
    (chars[i..end].iter().collect::<String>().trim().to_owned(), end)
}

fn command(chars: &[char], i: usize, effects: &mut Effects) -> Option<usize> {
    let Some(&c) = chars.get(i) else {
        return Some(i);
    };
    let next = i + 1;
    match c {
        '{' | '}' | '=' | 'd' | 'D' | 'g' | 'G' | 'h' | 'H' | 'n' | 'N' | 'p' | 'P' | 'x' | 'z' | 'F' => {
            Some(next)
        }
        'q' | 'Q' | 'l' | 'L' => {
            let mut i = skip_blanks(chars, next);
            while chars.get(i).is_some_and(char::is_ascii_digit) {
                i += 1;
            }
            Some(i)
        }
        ':' | 'b' | 't' | 'T' => {
            let mut i = skip_blanks(chars, next);
            while chars.get(i).is_some_and(|c| !c.is_whitespace() && !matches!(c, ';' | '}')) {
                i += 1;
            }
            Some(i)
        }
        'a' | 'i' | 'c' => {
            // Text to the end of the line; a backslash carries it on.
            let mut i = next;
            while i < chars.len() {
                if chars[i] == '\\' {
                    i += 2;
                } else if chars[i] == '\n' {
                    break;
                } else {
                    i += 1;
                }
            }
            Some(i.min(chars.len()))
        }
        'r' | 'R' => {
            let (file, end) = word_to_line_end(chars, next);
            effects.reads.push(file);
            Some(end)
        }
        'w' | 'W' => {
            let (file, end) = word_to_line_end(chars, next);
            effects.writes.push(file);
            Some(end)
        }
        'e' => {
            let (run, end) = word_to_line_end(chars, next);
            if run.is_empty() {
                effects.runs_data = true;
            } else {
                effects.runs.push(run);
            }
            Some(end)
        }
        's' => {
            let delimiter = *chars.get(next)?;
            if delimiter == '\\' || delimiter == '\n' {
                return None;
            }
            let middle = delimited(chars, next + 1, delimiter)?;
            let mut i = replacement_end(chars, middle, delimiter)?;
            let replacement: String = chars[middle..i - 1].iter().collect();
            loop {
                match chars.get(i) {
                    Some('g' | 'p' | 'i' | 'I' | 'm' | 'M') => i += 1,
                    Some(c) if c.is_ascii_digit() => i += 1,
                    Some('e') => {
                        effects.runs.push(replacement.clone());
                        effects.runs_data = true;
                        i += 1;
                    }
                    Some('w') => {
                        let (file, end) = word_to_line_end(chars, i + 1);
                        effects.writes.push(file);
                        return Some(end);
                    }
                    Some(' ' | '\t') => i += 1,
                    None | Some('\n' | ';' | '}' | '#') => return Some(i),
                    Some(_) => return None,
                }
            }
        }
        'y' => {
            let delimiter = *chars.get(next)?;
            let middle = replacement_end(chars, next + 1, delimiter)?;
            replacement_end(chars, middle, delimiter)
        }
        _ => None,
    }
}

fn replacement_end(chars: &[char], mut i: usize, delimiter: char) -> Option<usize> {
    while let Some(c) = chars.get(i) {
        if *c == '\\' {
            i += 2;
        } else if *c == delimiter {
            return Some(i + 1);
        } else {
            i += 1;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

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
            "s/[0-9]*$//",
        ] {
            assert_eq!(read_script(script), Some(Effects::default()), "{script}");
        }
    }

    #[test]
    fn writing_and_running_are_seen() {
        assert_eq!(read_script("w /tmp/out").unwrap().writes, ["/tmp/out"]);
        assert_eq!(read_script("s/a/b/w out").unwrap().writes, ["out"]);
        assert_eq!(read_script("1e id").unwrap().runs, ["id"]);
        assert!(read_script("s/.*/date/e").unwrap().runs_data);
        assert_eq!(read_script("r /etc/shadow").unwrap().reads, ["/etc/shadow"]);
        assert_eq!(read_script("s/a/b"), None);
        assert_eq!(read_script("k"), None);
    }
}
