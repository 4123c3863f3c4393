//! awk programs: which ones only print.

use super::super::analysis::{Analysis, Arg};
use super::script_operand;

/// One token, as far as the difference between code and data matters.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    Regex,
    Op(String),
    Newline,
}

impl Analysis<'_> {
    /// Follows an awk program for hard blocks; whether it runs commands.
    pub(crate) fn awk(&mut self, name: &str, args: &[Arg]) -> bool {
        let Some(program) = script_operand(args).map(|at| args[at].text.clone()) else {
            return true;
        };
        let tokens = tokenize(&program);
        let runs = tokens.iter().any(|t| matches!(t, Token::Word(w) if w == "system"))
            || tokens.iter().any(|t| matches!(t, Token::Op(op) if op.starts_with('|') && op != "||"));
        if runs {
            for token in &tokens {
                if let Token::Text(text) = token {
                    self.probe_code(text, name);
                }
            }
        }
        self.scan_code(&program, name);
        runs
    }

    pub(super) fn awk_reads(&mut self, name: &str, args: &[Arg]) -> Result<bool, String> {
        let program_at = script_operand(args).ok_or("the program comes from a file")?;
        let mut skip = false;
        for (at, arg) in args.iter().enumerate() {
            if std::mem::take(&mut skip) || at == program_at {
                continue;
            }
            let text = arg.text.as_str();
            if arg.may_be_flag() && at < program_at {
                return Err("a word that is not known yet may turn into an option".to_owned());
            }
            if at < program_at && text.starts_with('-') {
                let plain = matches!(text, "-F" | "-v" | "--")
                    || text.starts_with("-F")
                    || text.starts_with("-v")
                    || matches!(
                        text,
                        "--posix"
                            | "--traditional"
                            | "--csv"
                            | "-n"
                            | "-r"
                            | "-S"
                            | "--sandbox"
                            | "--re-interval"
                    );
                if !plain {
                    return Err(format!("{name} {text} may load code"));
                }
                skip = matches!(text, "-F" | "-v");
                continue;
            }
            // `name=value` between the files is an assignment.
            if text.split_once('=').is_some_and(|(n, _)| super::super::expand::is_name(n)) {
                continue;
            }
            self.read_path(arg);
        }
        if args[program_at].unknown {
            return Err("the program is not known yet".to_owned());
        }
        judge(&tokenize(&args[program_at].text)).map(|()| true)
    }
}

/// Whether the program only prints to standard output.
fn judge(tokens: &[Token]) -> Result<(), String> {
    let mut in_print = false;
    let mut depth = 0usize;
    let mut print_depth = 0usize;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Word(word) => match word.as_str() {
                "system" => return Err("system() runs commands".to_owned()),
                "getline" => return Err("getline reads files or runs commands".to_owned()),
                "close" | "fflush" => {}
                "ENVIRON" | "PROCINFO" => {}
                "print" | "printf" => {
                    in_print = true;
                    print_depth = depth;
                }
                word if word.starts_with('@') => return Err(format!("{word} loads code")),
                _ => {}
            },
            Token::Op(op) => match op.as_str() {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" => depth = depth.saturating_sub(1),
                "}" => {
                    depth = depth.saturating_sub(1);
                    in_print = false;
                }
                ";" => in_print = false,
                ">" | ">>" if in_print && depth == print_depth => {
                    return Err("print > writes a file".to_owned());
                }
                "|" | "|&" => return Err("| runs commands".to_owned()),
                "@" => return Err("@ calls or loads code by name".to_owned()),
                _ => {}
            },
            Token::Newline => {
                let joined = at > 0
                    && matches!(&tokens[at - 1], Token::Op(op) if matches!(op.as_str(), "," | "&&" | "||"));
                if !joined && depth <= print_depth {
                    in_print = false;
                }
            }
            Token::Text(_) | Token::Regex => {}
        }
    }
    Ok(())
}

fn tokenize(program: &str) -> Vec<Token> {
    let chars: Vec<char> = program.chars().collect();
    let mut tokens: Vec<Token> = Vec::new();
    let mut i = 0;
    while i < chars.len() {
        let c = chars[i];
        match c {
            '\n' => {
                tokens.push(Token::Newline);
                i += 1;
            }
            '\\' if chars.get(i + 1) == Some(&'\n') => i += 2,
            c if c.is_whitespace() => i += 1,
            '#' => {
                while i < chars.len() && chars[i] != '\n' {
                    i += 1;
                }
            }
            '"' => {
                let mut text = String::new();
                i += 1;
                while i < chars.len() && chars[i] != '"' {
                    if chars[i] == '\\' && i + 1 < chars.len() {
                        i += 1;
                        text.push(match chars[i] {
                            'n' => '\n',
                            't' => '\t',
                            other => other,
                        });
                    } else {
                        text.push(chars[i]);
                    }
                    i += 1;
                }
                i += 1;
                tokens.push(Token::Text(text));
            }
            '/' if starts_regex(tokens.last()) => {
                i += 1;
                let mut class = false;
                while i < chars.len() && (chars[i] != '/' || class) && chars[i] != '\n' {
                    match chars[i] {
                        '\\' => i += 1,
                        '[' => class = true,
                        ']' => class = false,
                        _ => {}
                    }
                    i += 1;
                }
                i += 1;
                tokens.push(Token::Regex);
            }
            c if c.is_ascii_alphabetic()
                || c == '_'
                || (c == '@' && chars.get(i + 1).is_some_and(char::is_ascii_alphabetic)) =>
            {
                let start = i;
                i += 1;
                while i < chars.len() && (chars[i].is_ascii_alphanumeric() || chars[i] == '_') {
                    i += 1;
                }
                tokens.push(Token::Word(chars[start..i].iter().collect()));
            }
            c if c.is_ascii_digit() => {
                let start = i;
                while i < chars.len() && (chars[i].is_ascii_alphanumeric() || chars[i] == '.') {
                    i += 1;
                }
                tokens.push(Token::Word(chars[start..i].iter().collect()));
            }
            _ => {
                let pair: String = chars[i..(i + 2).min(chars.len())].iter().collect();
                if matches!(
                    pair.as_str(),
                    "||" | "&&"
                        | ">>"
                        | ">="
                        | "<="
                        | "=="
                        | "!="
                        | "|&"
                        | "!~"
                        | "++"
                        | "--"
                        | "+="
                        | "-="
                        | "*="
                        | "/="
                        | "%="
                        | "^="
                        | "**"
                ) {
                    tokens.push(Token::Op(pair));
                    i += 2;
                } else {
                    tokens.push(Token::Op(c.to_string()));
                    i += 1;
                }
            }
        }
    }
    tokens
}

/// Whether a `/` after this token begins a regular expression.
fn starts_regex(before: Option<&Token>) -> bool {
    match before {
        None | Some(Token::Newline) => true,
        Some(Token::Op(op)) => !matches!(op.as_str(), ")" | "]" | "++" | "--"),
        Some(Token::Word(word)) => {
            matches!(word.as_str(), "print" | "printf" | "return" | "in" | "case")
        }
        Some(Token::Text(_) | Token::Regex) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(program: &str) -> bool {
        judge(&tokenize(program)).is_ok()
    }

    #[test]
    fn printing_programs_read() {
        for program in [
            "{print $1}",
            "$3 > 100 {print $1}",
            "BEGIN{print 6*7}",
            "/system/ {n++} END{print n}",
            "{print ($1 > 5 ? \"a\" : \"b\")}",
            "{ if ($1 > 3) print $2 }",
            "$1 ~ /a|b/ {print}",
            "NR>1 && NF>2 {print \"x|y > z\"}",
            "{a[$1]++} END{for (k in a) print k, a[k]}",
        ] {
            assert!(reads(program), "{program}");
        }
    }

    #[test]
    fn writing_and_running_programs_do_not() {
        for program in [
            "BEGIN{system(\"halt\")}",
            "{print > \"x\"}",
            "{print $1 > 5 ? \"a\" : \"b\"}",
            "BEGIN{while((\"id\"|getline l)>0) print l}",
            "{print | \"sh\"}",
            "{printf \"a\" >> f}",
            "@load \"filefuncs\"",
            "{ @f() }",
            "BEGIN { \"id\" |& getline }",
        ] {
            assert!(!reads(program), "{program}");
        }
    }
}
