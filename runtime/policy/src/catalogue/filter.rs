//! jq and yq programs that only transform their input.
//!
//! A filter is certain if every function that it calls is known only to compute. Any other function may
//! print the environment, load files or, in some version, run a command.

use super::super::analysis::Arg;
use super::options::CommandLine;

/// Functions and words that only compute.
const PURE: &[&str] = text_list!("../lists/jq-functions.txt");

/// The `@name` formats.
const FORMATS: &[&str] = &["text", "json", "html", "uri", "csv", "tsv", "sh", "base64", "base64d"];

/// True if yq is called with one of its verbs that evaluate a filter.
pub(super) fn has_verb(args: &[Arg]) -> bool {
    args.first().is_some_and(|arg| matches!(arg.text.as_str(), "eval" | "e" | "eval-all" | "ea"))
}

/// Checks that the filter on this line only transforms its input.
pub(super) fn judge_line(line: &CommandLine, args: &[Arg]) -> Result<(), String> {
    let Some(at) = line.pattern_position() else {
        return if args.is_empty() || line.has_option(&["help", "version", "V"]) {
            Ok(())
        } else {
            Err("there is no filter to read".to_owned())
        };
    };
    if args[at].known_text().is_none() {
        return Err("the filter is not known yet".to_owned());
    }
    check_filter(&args[at].text)
}

fn check_filter(filter: &str) -> Result<(), String> {
    let chars: Vec<char> = filter.chars().collect();
    // Open brackets at this position: `{`, `(`, `[`, and `"` for an open string.
    let mut open: Vec<char> = Vec::new();
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        if open.last() == Some(&'"') {
            match c {
                '\\' if chars.get(at + 1) == Some(&'(') => {
                    open.push('(');
                    at += 2;
                }
                '\\' => at += 2,
                '"' => {
                    open.pop();
                    at += 1;
                }
                _ => at += 1,
            }
            continue;
        }
        match c {
            '"' | '(' | '[' | '{' => {
                open.push(c);
                at += 1;
            }
            ')' | ']' | '}' => {
                open.pop();
                at += 1;
            }
            '#' | '\\' | '\'' | '`' => return Err(format!("{c} in a filter is not read")),
            '.' | '$' | '@' if chars.get(at + 1).is_some_and(|c| is_word(*c)) => {
                let (word, end) = read_word(&chars, at + 1);
                match c {
                    '$' if word == "ENV" || word.starts_with("__") => {
                        return Err(format!("${word} shows the environment or the program"));
                    }
                    '@' if !FORMATS.contains(&word.as_str()) => {
                        return Err(format!("@{word} is not a format that is known"));
                    }
                    _ => at = end,
                }
            }
            c if is_word(c) => {
                let (word, end) = read_word(&chars, at);
                let next = chars[end..].iter().find(|c| !c.is_whitespace());
                let qualified = chars.get(end) == Some(&':') && chars.get(end + 1) == Some(&':');
                let is_key = open.last() == Some(&'{') && next == Some(&':') && !qualified;
                let before = chars[..at].iter().rfind(|c| !c.is_whitespace());
                let is_field = open.last() == Some(&'{')
                    && matches!(before, Some('{' | ','))
                    && matches!(next, Some(',' | '}'));
                let is_number = word.chars().all(|c| c.is_ascii_digit() || c == 'e' || c == 'E')
                    && word.starts_with(|c: char| c.is_ascii_digit());
                if qualified || !(is_key || is_field || is_number || PURE.contains(&word.as_str())) {
                    return Err(format!("{word} is not known to only compute"));
                }
                at = end;
            }
            c if c.is_ascii() => at += 1,
            _ => return Err("the filter is not plain ASCII outside strings".to_owned()),
        }
    }
    Ok(())
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn read_word(chars: &[char], from: usize) -> (String, usize) {
    let end = chars[from..].iter().position(|c| !is_word(*c)).map_or(chars.len(), |n| from + n);
    (chars[from..end].iter().collect(), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_that_compute_are_read() {
        for filter in [
            ".",
            ".version",
            ".env",
            ".scripts | keys[]",
            ".a > 3",
            ".packages[].name",
            "map(select(.size > 10)) | sort_by(.name) | .[0:3]",
            "{name: .n, env: .environment}",
            "\"\\(.a) and env\"",
            "to_entries[] | \"\\(.key)=\\(.value)\"",
            "[.[] | {a, b}] | length",
        ] {
            assert_eq!(check_filter(filter), Ok(()), "{filter}");
        }
    }

    #[test]
    fn filters_that_may_do_more_are_not() {
        for filter in [
            "env",
            "$ENV",
            "$ENV.PATH",
            "\"\\(env)\"",
            "\"\\(\"\\(env)\")\"",
            "include\"x\";.",
            "import \"x\" as x; x::f",
            "{(env|tostring): 1}",
            "{a: env}",
            ".a | input_filename",
            "def f: env; f",
            "load(\"x\")",
            "load_str (\"x\")",
            "system(\"id\")",
            "strenv(X)",
            "env.X",
            ".[env:]",
            "debug",
            "halt_error",
            "eval(.x)",
            "'env'",
        ] {
            assert!(check_filter(filter).is_err(), "{filter}");
        }
    }
}
