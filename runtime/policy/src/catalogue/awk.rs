//! awk programs that only print.
//!
//! A `/` begins a regular expression or divides, and awks differ in how they decide. Unless the token
//! before it settles this in all awks, the program is not understood, and the command asks.

use super::super::analysis::{Analysis, Arg};
use super::options::CommandLine;
use super::script_operand;
use super::sed::brackets_are_closed;

/// One token, in enough detail to separate code from data.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Number,
    Text(String),
    Regex,
    Op(String),
    Newline,
}

/// Words of the language, and functions that only compute.
const KNOWN_CALLS: &[&str] = &[
    "length", "substr", "index", "split", "sub", "gsub", "match", "sprintf", "tolower", "toupper", "int",
    "sqrt", "exp", "log", "sin", "cos", "atan2", "rand", "srand", "gensub", "strftime", "systime", "mktime",
    "asort", "asorti", "strtonum", "and", "or", "xor", "compl", "lshift", "rshift", "patsplit", "isarray",
    "typeof",
];
const KEYWORDS: &[&str] = &[
    "BEGIN", "END", "if", "else", "while", "for", "do", "in", "next", "exit", "print", "printf", "delete",
    "break", "continue", "nextfile", "return",
];
/// Words that do more than compute, or change which files are read.
const REFUSED: &[(&str, &str)] = &[
    ("system", "system() runs commands"),
    ("getline", "getline reads files or runs commands"),
    ("function", "functions are not followed"),
    ("func", "functions are not followed"),
    ("switch", "switch is not followed"),
    ("case", "switch is not followed"),
    ("ARGV", "ARGV decides which files are read"),
    ("ARGC", "ARGC decides which files are read"),
    ("SYMTAB", "SYMTAB reaches every variable"),
    ("FUNCTAB", "FUNCTAB reaches every function"),
    ("close", "close() belongs to commands and files"),
    ("fflush", "fflush() belongs to commands and files"),
    ("BEGINFILE", "BEGINFILE is not followed"),
    ("ENDFILE", "ENDFILE is not followed"),
];

impl Analysis<'_> {
    /// Follows an awk program for hard blocks; true if it runs commands.
    pub(crate) fn follow_awk(&mut self, name: &str, args: &[Arg]) -> bool {
        let Some(program) = script_operand(name, args).map(|arg| arg.text.clone()) else {
            return true;
        };
        let (tokens, certain) = tokenize_program(&program);
        let runs = !certain
            || tokens.iter().any(|t| matches!(t, Token::Word(w) if w == "system"))
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
}

/// Checks that the program on this line only prints.
pub(super) fn judge_line(line: &CommandLine, args: &[Arg]) -> Result<(), String> {
    let Some(at) = line.pattern_position() else {
        return if line.has_option(&["help", "version"]) {
            Ok(())
        } else {
            Err("there is no program".to_owned())
        };
    };
    if args[at].known_text().is_none() {
        return Err("the program is not known yet".to_owned());
    }
    check_program(&args[at].text)
}

/// Checks that the program only prints to standard output.
fn check_program(program: &str) -> Result<(), String> {
    if !program.is_ascii() {
        return Err("the program is not plain ASCII".to_owned());
    }
    let (tokens, certain) = tokenize_program(program);
    let mut in_print = false;
    let mut depth = 0usize;
    let mut print_depth = 0usize;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Word(word) => {
                if let Some((_, why)) = REFUSED.iter().find(|(name, _)| name == word) {
                    return Err((*why).to_owned());
                }
                let called = matches!(tokens.get(at + 1), Some(Token::Op(op)) if op == "(");
                if called && !KNOWN_CALLS.contains(&word.as_str()) && !KEYWORDS.contains(&word.as_str()) {
                    return Err(format!("{word}() is not known to only compute"));
                }
                if matches!(word.as_str(), "print" | "printf") {
                    in_print = true;
                    print_depth = depth;
                }
            }
            Token::Op(op) => match op.as_str() {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" => depth = depth.saturating_sub(1),
                "}" => {
                    depth = depth.saturating_sub(1);
                    in_print = false;
                }
                ";" => in_print = false,
                ">" | ">>" if in_print && depth <= print_depth => {
                    return Err("print > writes a file".to_owned());
                }
                ">>" => return Err(">> writes a file".to_owned()),
                "|" | "|&" => return Err("| runs commands".to_owned()),
                "@" => return Err("@ calls or loads code by name".to_owned()),
                _ => {}
            },
            // Some awks continue the statement after an operator at the end of a line.
            Token::Newline => {
                let ends = match at.checked_sub(1).map(|before| &tokens[before]) {
                    Some(Token::Op(op)) => matches!(op.as_str(), ")" | "]" | "}" | ";" | "++" | "--"),
                    _ => true,
                };
                if ends && depth <= print_depth {
                    in_print = false;
                }
            }
            Token::Text(_) | Token::Regex | Token::Number => {}
        }
    }
    if certain { Ok(()) } else { Err("the program can be read in more than one way".to_owned()) }
}

/// Tokens of a program; true if every awk reads the same tokens.
fn tokenize_program(program: &str) -> (Vec<Token>, bool) {
    let chars: Vec<char> = program.chars().collect();
    let mut tokens: Vec<Token> = Vec::new();
    let mut certain = true;
    // Open parentheses, each with true if it belongs to `if`, `while` or `for`, and the same of the
    // parenthesis that was closed last.
    let mut open: Vec<bool> = Vec::new();
    let mut closed_condition = false;
    let mut i = 0;
    while i < chars.len() {
        let c = chars[i];
        match c {
            '\n' => {
                tokens.push(Token::Newline);
                i += 1;
            }
            c if c.is_whitespace() => i += 1,
            '#' => {
                while i < chars.len() && chars[i] != '\n' {
                    i += 1;
                }
                certain &= chars[i - 1] != '\\';
            }
            '"' => {
                let (text, end) = read_string(&chars, i + 1, &mut certain);
                i = end;
                tokens.push(Token::Text(text));
            }
            '/' => match slash_meaning(tokens.last(), closed_condition) {
                Some(Slash::Regex) => {
                    let from = i + 1;
                    i = from;
                    // Some awks read `/=` as an assignment here.
                    certain &= chars.get(i) != Some(&'=');
                    while i < chars.len() && chars[i] != '/' && chars[i] != '\n' {
                        i += if chars[i] == '\\' { 2 } else { 1 };
                    }
                    let end = i.min(chars.len());
                    certain &= chars.get(i) == Some(&'/') && brackets_are_closed(&chars[from..end]);
                    i += 1;
                    tokens.push(Token::Regex);
                }
                divides => {
                    certain &= divides.is_some();
                    tokens.push(Token::Op("/".to_owned()));
                    i += 1;
                }
            },
            c if c.is_ascii_alphabetic() || c == '_' => {
                let start = i;
                while i < chars.len() && (chars[i].is_ascii_alphanumeric() || chars[i] == '_') {
                    i += 1;
                }
                tokens.push(Token::Word(chars[start..i].iter().collect()));
            }
            c if c.is_ascii_digit() => {
                while i < chars.len() && (chars[i].is_ascii_digit() || chars[i] == '.') {
                    i += 1;
                }
                // `1e` and `0x` begin numbers in some awks only.
                certain &= !chars.get(i).is_some_and(|c| c.is_ascii_alphabetic() || *c == '_');
                tokens.push(Token::Number);
            }
            '\\' => {
                certain = false;
                i += 1;
            }
            _ => {
                let pair: String = chars[i..(i + 2).min(chars.len())].iter().collect();
                if PAIRS.contains(&pair.as_str()) {
                    tokens.push(Token::Op(pair));
                    i += 2;
                } else {
                    match c {
                        '(' => open.push(
                            matches!(tokens.last(), Some(Token::Word(w)) if matches!(w.as_str(), "if" | "while" | "for")),
                        ),
                        ')' => closed_condition = open.pop().unwrap_or(true),
                        _ => {}
                    }
                    tokens.push(Token::Op(c.to_string()));
                    i += 1;
                }
            }
        }
    }
    (tokens, certain)
}

/// Operators of two characters.
const PAIRS: &[&str] =
    &["||", "&&", ">>", ">=", "<=", "==", "!=", "|&", "!~", "++", "--", "+=", "-=", "*=", "%=", "^=", "**"];

/// Text of the string constant whose first character is at `i`, and the position after it.
fn read_string(chars: &[char], mut i: usize, certain: &mut bool) -> (String, usize) {
    let mut text = String::new();
    while i < chars.len() && chars[i] != '"' {
        *certain &= chars[i] != '\n';
        if chars[i] == '\\' && i + 1 < chars.len() {
            i += 1;
            *certain &= chars[i] != '\n';
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
    *certain &= i < chars.len();
    (text, i + 1)
}

enum Slash {
    Regex,
    Division,
}

/// Meaning of a `/` after this token, if all awks agree.
fn slash_meaning(before: Option<&Token>, closed_condition: bool) -> Option<Slash> {
    match before {
        None | Some(Token::Newline) => Some(Slash::Regex),
        Some(Token::Op(op)) => match op.as_str() {
            ";" | "{" | "}" | "(" | "," | "!" | "~" | "!~" | "&&" | "||" => Some(Slash::Regex),
            "]" => Some(Slash::Division),
            ")" if !closed_condition => Some(Slash::Division),
            _ => None,
        },
        Some(Token::Number) => Some(Slash::Division),
        Some(Token::Word(word)) => {
            let is_name = !KEYWORDS.contains(&word.as_str())
                && !KNOWN_CALLS.contains(&word.as_str())
                && !REFUSED.iter().any(|(name, _)| name == word);
            is_name.then_some(Slash::Division)
        }
        Some(Token::Text(_) | Token::Regex) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            "{s+=$1} END{print s/NR}",
            "NR==FNR{a[$1];next} $1 in a",
            "!seen[$0]++",
            "BEGIN{FS=\":\"} /^[a-z/]/{x=1} {print}",
            "{gsub(/[0-9]+/, \"\"); print toupper($0)}",
            "{printf \"%s %d\\n\", $1, $2 / 2}",
            "{print ($2 - $1) / $2 * 100}",
        ] {
            if program.contains("[a-z/]") {
                assert!(check_program(program).is_err(), "{program}");
            } else {
                assert_eq!(check_program(program), Ok(()), "{program}");
            }
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
            "{print a,\n b > \"f\"}",
            "{print a ?\n b : c > \"f\"}",
            "@load \"filefuncs\"",
            "{ @f() }",
            "BEGIN { \"id\" |& getline }",
            "BEGIN{if(1)/\"/;system(\"id\");x=/\"/}",
            "BEGIN{if(0);else /\"/;system(\"id\");x=/\"/}",
            "BEGIN{do /\"/;while(0)}",
            "BEGIN{sys\\\ntem(\"id\")}",
            "BEGIN{ARGV[1]=\".env\";ARGC=2} {print}",
            "{x = a++ /1; print > \"f\"}",
            "BEGIN{x=1e/\"/;system(\"id\")}",
            "{print \"unclosed",
            "{ extension(\"x\") }",
        ] {
            assert!(check_program(program).is_err(), "{program}");
        }
    }
}
