//! The one-line form: `exec git log | head --n 3 | json`.
//!
//! Text is cut at `|`, each piece into words, and the words of a piece become options and positionals.
//! Only space, tab, line feed and carriage return are blanks. All parts have their position in the
//! text, so that errors can point at it.

use std::fmt::Write as _;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use lobster_base::json::{is_js_space, js_string, trim_js};
use lobster_stage::StageArgs;

/// A parsed pipeline: at least one stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pipeline {
    pub stages: Vec<StageCall>,
}

/// One command with its arguments, as written. Its existence is not checked here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageCall {
    pub name: String,
    pub args: StageArgs,
    /// Text of the call, without surrounding blanks.
    pub raw: String,
    /// Position of `raw` in the pipeline's text, in bytes.
    #[serde(default)]
    pub span: Range<usize>,
}

impl StageCall {
    /// Makes a call from separate words (a command line), so nothing is cut or unquoted. Empty words
    /// keep their position as values of options.
    ///
    /// # Errors
    /// An option that no command can have.
    pub fn from_words(name: &str, words: &[String]) -> Result<Self, PipelineError> {
        let words = words.iter().map(|text| Word { text: text.clone(), at: 0 });
        let args = parse_arguments(words, switches_of(name))?;
        Ok(Self { name: name.to_owned(), args, raw: name.to_owned(), span: 0..name.len() })
    }
}

/// Reason why a text is not a pipeline, and the byte at which the error begins.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PipelineError {
    pub message: String,
    pub offset: usize,
}

impl PipelineError {
    fn new(message: impl Into<String>, offset: usize) -> Self {
        Self { message: message.into(), offset }
    }
}

/// Parses pipeline text.
///
/// # Errors
/// `Unclosed quote`, `Empty pipeline`, `Empty command stage`, or an option named `_`, which stored
/// pipelines use for positional words.
pub fn parse(text: &str) -> Result<Pipeline, PipelineError> {
    let pieces = split_stages(text)?;
    if pieces.is_empty() {
        return Err(PipelineError::new("Empty pipeline", 0));
    }
    let stages = pieces.into_iter().map(|span| parse_stage(text, span)).collect::<Result<_, _>>()?;
    Ok(Pipeline { stages })
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

/// Pieces between the `|` outside quotes, without surrounding blanks. An empty text after the last `|`
/// is not a piece.
fn split_stages(text: &str) -> Result<Vec<Range<usize>>, PipelineError> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut quote = None;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match (quote, c) {
            (Some(_), '\\') => {
                chars.next();
            }
            (Some((_, open)), _) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some((at, c)),
            (None, '|') => {
                pieces.push(trim_span(text, start..at));
                start = at + 1;
            }
            (Some(_) | None, _) => {}
        }
    }
    if let Some((at, _)) = quote {
        return Err(PipelineError::new("Unclosed quote", at));
    }
    let last = trim_span(text, start..text.len());
    if !last.is_empty() {
        pieces.push(last);
    }
    Ok(pieces)
}

/// Removes JavaScript white space at the ends, which is more than the blanks between words.
fn trim_span(text: &str, span: Range<usize>) -> Range<usize> {
    let piece = &text[span.clone()];
    let start = span.start + (piece.len() - piece.trim_start_matches(is_js_space).len());
    start..start + trim_js(piece).len()
}

struct Word {
    text: String,
    at: usize,
}

fn parse_stage(text: &str, span: Range<usize>) -> Result<StageCall, PipelineError> {
    let raw = &text[span.clone()];
    let mut words = split_words(raw, span.start)?.into_iter();
    let name = words.next().ok_or_else(|| PipelineError::new("Empty command stage", span.start))?;
    let args = parse_arguments(words, switches_of(&name.text))?;
    Ok(StageCall { name: name.text, args, raw: raw.to_owned(), span })
}

/// Options of a command that never take the next word as their value, because it is the program to run,
/// as in `exec --json gh pr list`.
fn switches_of(command: &str) -> &'static [&'static str] {
    if command == "exec" { &["json", "all-lines"] } else { &[] }
}

/// Words by the quoting rules; `base` is the position of `piece` in the whole text. A pair of quotes is
/// a word, even if it is empty.
fn split_words(piece: &str, base: usize) -> Result<Vec<Word>, PipelineError> {
    let mut words = Vec::new();
    // The current word, from its first character or quote on.
    let mut word: Option<Word> = None;
    let mut quote = None;
    let mut chars = piece.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if quote.is_none() && is_blank(c) {
            words.extend(word.take());
            continue;
        }
        let word = word.get_or_insert_with(|| Word { text: String::new(), at: base + at });
        match quote {
            None if matches!(c, '"' | '\'') => quote = Some((at, c)),
            None => word.text.push(c),
            Some((_, open)) if c == open => quote = None,
            Some((_, open)) if c == '\\' => {
                let next = chars.peek().map(|(_, next)| *next);
                match (open, next) {
                    ('\'', Some('\'')) | ('"', Some('"' | '\\' | '$' | '`')) => word.text.extend(next),
                    ('"', Some('\n')) => {}
                    // A pair stays a pair, as when the text was cut at `|`: the second backslash does
                    // not escape the quote after it.
                    ('\'', Some('\\')) => word.text.push_str("\\\\"),
                    _ => {
                        word.text.push('\\');
                        continue;
                    }
                }
                chars.next();
            }
            Some(_) => word.text.push(c),
        }
    }
    if let Some((at, _)) = quote {
        return Err(PipelineError::new("Unclosed quote", base + at));
    }
    words.extend(word);
    Ok(words)
}

/// `--key=value`, `--key value` and `--switch` become options; an option in `switches` never takes the
/// next word. A bare `--` ends the options: all words after it are positional, even if they look like
/// options.
fn parse_arguments(words: impl Iterator<Item = Word>, switches: &[&str]) -> Result<StageArgs, PipelineError> {
    let mut args = StageArgs::default();
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        let Some(option) = word.text.strip_prefix("--") else {
            args.positional.push(word.text);
            continue;
        };
        if option.is_empty() {
            args.positional.extend(words.by_ref().map(|word| word.text));
            break;
        }
        let (key, value) = match option.split_once('=') {
            Some((key, value)) => (key, Value::from(value)),
            None if switches.contains(&option) => (option, Value::Bool(true)),
            None => {
                let value = words.next_if(|next| !next.text.starts_with("--"));
                (option, value.map_or(Value::Bool(true), |value| Value::from(value.text)))
            }
        };
        if key == "_" {
            return Err(PipelineError::new(
                "--_ is not an option; write the words of no option without dashes",
                word.at,
            ));
        }
        if let Some(earlier) = args.options.insert(key.to_owned(), value) {
            args.earlier.entry(key.to_owned()).or_default().push(earlier);
        }
    }
    Ok(args)
}

/// Writes one word so that [`parse`] reads it back unchanged. A word that begins with `--` is still
/// read as an option unless a bare `--` precedes it.
#[must_use]
pub fn quote_word(word: &str) -> String {
    if !word.is_empty() && !word.contains(|c| is_blank(c) || matches!(c, '"' | '\'' | '|')) {
        return word.to_owned();
    }
    let mut quoted = String::with_capacity(word.len() + 2);
    quoted.push('"');
    for c in word.chars() {
        if matches!(c, '"' | '\\' | '$' | '`') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted.push('"');
    quoted
}

/// Options whose values a plan does not show.
const SECRET_OPTIONS: [&str; 5] = ["token", "password", "secret", "api-key", "apiKey"];

impl Pipeline {
    /// Text for `--dry-run`: the stages with their parsed arguments.
    #[must_use]
    pub fn dry_run_text(&self) -> String {
        let count = self.stages.len();
        let plural = if count == 1 { "" } else { "s" };
        let mut plan = format!("[DRY RUN] Pipeline ({count} stage{plural}):\n");
        for (index, stage) in self.stages.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = write!(plan, "  {}. {}", index + 1, stage.name);
            let words = stage.args.positional.iter().cloned();
            let options = stage.args.options.iter().map(|(key, value)| {
                let secret = SECRET_OPTIONS.contains(&key.as_str()) && value.is_string();
                format!("{key}={}", if secret { "[hidden]".to_owned() } else { js_string(value) })
            });
            let shown: Vec<_> = words.chain(options).collect();
            if !shown.is_empty() {
                let _ = write!(plan, "  args: {}", shown.join(", "));
            }
            plan.push('\n');
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn parsed_stages(text: &str) -> Value {
        match parse(text) {
            Ok(pipeline) => pipeline
                .stages
                .into_iter()
                .map(|s| json!([s.name, serde_json::to_value(s.args).unwrap()]))
                .collect(),
            Err(error) => json!([error.message, error.offset]),
        }
    }

    #[test]
    fn words_follow_the_quoting_rules() {
        for (text, words) in [
            (r#"x a"b c"d"#, json!(["ab cd"])),
            (r"x y\ z \c", json!(["y\\", "z", "\\c"])),
            (r"x 'it\'s'", json!(["it's"])),
            (r#"x "it's" "say \"hi\"" "a\\b""#, json!(["it's", "say \"hi\"", "a\\b"])),
            (r#"x "\$HOME \`x\`""#, json!(["$HOME `x`"])),
            (r#"x "a\nb\tc""#, json!(["a\\nb\\tc"])),
            ("x \"a\\\nb\"", json!(["ab"])),
            ("x 'a\nb'", json!(["a\nb"])),
            (r"x 'a\\' b", json!(["a\\\\", "b"])),
            (r"x 'a\nb'", json!(["a\\nb"])),
            (r#"x "" '' y """#, json!(["", "", "y", ""])),
            (r#"x ""a '' ' '"#, json!(["a", "", " "])),
            ("x a\u{a0}b", json!(["a\u{a0}b"])),
            (r#"x "a | b" 'c|d'"#, json!(["a | b", "c|d"])),
            (r#"x "a \" | b""#, json!(["a \" | b"])),
            (r#"x "{\"a\":[1,\"x|y\"]}""#, json!([r#"{"a":[1,"x|y"]}"#])),
        ] {
            assert_eq!(parsed_stages(text), json!([["x", { "_": words }]]), "{text}");
        }
    }

    #[test]
    fn options_take_the_next_word_unless_it_is_one() {
        for (text, expected) in [
            ("x --a 1 --b --c=2 --d= y", json!({"_": ["y"], "a": "1", "b": true, "c": "2", "d": ""})),
            ("x --a -1 -z --a=k=v", json!({"_": ["-z"], "=": {"a": ["-1"]}, "a": "k=v"})),
            ("x '--v' w", json!({"_": [], "v": "w"})),
            ("x --p '' y", json!({"_": ["y"], "p": ""})),
            ("x --p ''", json!({"_": [], "p": ""})),
            ("x --json gh pr", json!({"_": ["pr"], "json": "gh"})),
            ("x --=a", json!({"_": [], "": "a"})),
            ("x --__proto__ a", json!({"_": [], "__proto__": "a"})),
            (
                "x --json -- git log --oneline -- f",
                json!({"_": ["git", "log", "--oneline", "--", "f"], "json": true}),
            ),
        ] {
            assert_eq!(parsed_stages(text), json!([["x", expected]]), "{text}");
        }
    }

    #[test]
    fn json_of_exec_is_a_switch() {
        for (text, expected) in [
            ("exec --json gh pr list", json!({"_": ["gh", "pr", "list"], "json": true})),
            (
                "exec curl --json x --all-lines y",
                json!({"_": ["curl", "x", "y"], "all-lines": true, "json": true}),
            ),
            ("exec --json=no gh", json!({"_": ["gh"], "json": "no"})),
            ("exec --stdin json cat", json!({"_": ["cat"], "stdin": "json"})),
        ] {
            assert_eq!(parsed_stages(text), json!([["exec", expected]]), "{text}");
        }
        let words = ["--json", "gh", ""].map(str::to_owned);
        let call = StageCall::from_words("exec", &words).unwrap();
        assert_eq!(call.args.positional, ["gh", ""]);
    }

    #[test]
    fn pieces_and_mistakes_have_places() {
        for (text, error) in [
            ("", json!(["Empty pipeline", 0])),
            (" \n\t ", json!(["Empty pipeline", 0])),
            ("a | | b", json!(["Empty command stage", 4])),
            ("| a", json!(["Empty command stage", 0])),
            ("|", json!(["Empty command stage", 0])),
            ("é it's", json!(["Unclosed quote", 5])),
            ("exec touch ran | template 'x", json!(["Unclosed quote", 26])),
            ("exec 'it'\\''s'", json!(["Unclosed quote", 13])),
            ("pick --_ ab", json!(["--_ is not an option; write the words of no option without dashes", 5])),
        ] {
            assert_eq!(parsed_stages(text), error, "{text}");
        }
        // At the ends of a stage, all JavaScript white space is removed, except between quotes.
        for blank in ["\u{a0}", "\u{b}", "\u{2028}", "\u{3000}", "\u{feff}", " \u{202f}\t"] {
            let stages = json!([["x", {"_": ["a"]}], ["y", {"_": [blank]}]]);
            assert_eq!(
                parsed_stages(&format!("{blank}x a{blank}|{blank}y '{blank}'|{blank}")),
                stages,
                "{blank:?}"
            );
        }
        for letter in ["\u{85}", "\u{180e}", "\u{200b}"] {
            assert_eq!(parsed_stages(&format!("x a{letter}")), json!([["x", {"_": [format!("a{letter}")]}]]));
        }
        let pipeline = parse(" ex'ec' é\n |head --n 1 | \n").unwrap();
        let pieces: Vec<_> =
            pipeline.stages.iter().map(|s| (s.name.as_str(), s.raw.as_str(), s.span.clone())).collect();
        assert_eq!(pieces, [("exec", "ex'ec' é", 1..10), ("head", "head --n 1", 13..23)]);
        assert_eq!(parse("a\\|b").unwrap().stages[1].name, "b");
    }

    #[test]
    fn the_plan_names_arguments_and_hides_secrets() {
        assert_eq!(
            parse("exec echo hi --k v --b | json").unwrap().dry_run_text(),
            "[DRY RUN] Pipeline (2 stages):\n  1. exec  args: echo, hi, k=v, b=true\n  2. json\n"
        );
        assert_eq!(
            parse("openclaw.invoke --token s3cret --tool t").unwrap().dry_run_text(),
            "[DRY RUN] Pipeline (1 stage):\n  1. openclaw.invoke  args: token=[hidden], tool=t\n"
        );
    }

    #[test]
    fn a_stored_pipeline_reads_back() {
        let pipeline = parse("exec -- a --b 'c d' | approve --prompt 'Go on?' --emit").unwrap();
        let stored = serde_json::to_string(&pipeline).unwrap();
        assert_eq!(serde_json::from_str::<Pipeline>(&stored).unwrap(), pipeline);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]
        #[test]
        fn no_text_panics_and_all_places_are_characters(text in r#"([a-c|"'\\= \n$é😀]|--){0,40}"#) {
            match parse(&text) {
                Ok(pipeline) => for stage in pipeline.stages {
                    prop_assert_eq!(text.get(stage.span), Some(stage.raw.as_str()));
                },
                Err(error) => prop_assert!(text.is_char_boundary(error.offset)),
            }
        }

        #[test]
        fn quoted_words_read_back(words in proptest::collection::vec(r#"[a-c|"'\\= \n$`é-]{0,8}"#, 1..5)) {
            let quoted: Vec<_> = words.iter().map(|word| quote_word(word)).collect();
            let pipeline = parse(&format!("exec -- {}", quoted.join(" "))).unwrap();
            prop_assert_eq!(&pipeline.stages[0].args.positional, &words);
            prop_assert_eq!(pipeline.stages.len(), 1);
        }
    }
}
