//! Shell text to a syntax tree, within limits.
//!
//! The parser is recursive and foreign, the text is hostile: depth is counted
//! before anything is parsed, and a panic in the parser is a refusal.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use brush_parser::{Parser, ParserOptions, ast};

/// bash as it runs scripts: extended globbing is off unless switched on.
pub(crate) static PARSER_OPTIONS: LazyLock<ParserOptions> =
    LazyLock::new(|| ParserOptions { enable_extended_globbing: false, ..ParserOptions::default() });

/// Openers of nested structure that the parser's own stack is sure to hold.
const SHALLOW: usize = 64;
/// Openers beyond which text is not parsed at all.
const MAX_OPENERS: usize = 4_096;
/// Stack reserved per opener on the parsing thread: four times what the
/// deepest construct was measured to need without optimisation.
const STACK_PER_OPENER: usize = 64 * 1024;

/// Runs a parser call that must not bring the process down: the parser is
/// foreign code fed with hostile text. `None` when it panicked.
pub(crate) fn guarded<T>(parse: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(parse)).ok()
}

/// Here-documents after the first bracket. The parser reads the text of one anew
/// for every one around it, so that each can double the time; whether they are
/// around each other is not known before the text is parsed.
const MAX_HERE_DOCUMENTS: usize = 10;

/// Why text was not parsed.
pub(crate) enum Unread {
    TooDeep,
    Syntax(String),
}

/// Parses `text`, on a thread with a stack to match when it nests deeply.
pub(crate) fn parse(text: &str, nesting: usize) -> Result<ast::Program, Unread> {
    let shape = Shape::of(text);
    if shape.has_computed_end {
        return Err(Unread::Syntax("the end of a here-document is given by an expansion".to_owned()));
    }
    if shape.depth > nesting || shape.openers > MAX_OPENERS || shape.here_documents > MAX_HERE_DOCUMENTS {
        return Err(Unread::TooDeep);
    }
    let run = |text: &str| guarded(|| Parser::new(text.as_bytes(), &PARSER_OPTIONS).parse_program());
    let parsed = if shape.openers <= SHALLOW {
        run(text)
    } else {
        std::thread::scope(|scope| {
            std::thread::Builder::new()
                .stack_size(8 * 1024 * 1024 + shape.openers * STACK_PER_OPENER)
                .spawn_scoped(scope, || run(text))
                .ok()
                .and_then(|thread| thread.join().ok())
                .flatten()
        })
    };
    match parsed {
        Some(Ok(program)) => Ok(program),
        Some(Err(error)) => Err(Unread::Syntax(error.to_string())),
        None => Err(Unread::Syntax("the parser failed on this text".to_owned())),
    }
}

/// How deeply text nests, counted over its bytes without understanding it.
struct Shape {
    /// Every opener: an upper bound of the parser's recursion.
    openers: usize,
    /// Openers less closers.
    depth: usize,
    /// Here-documents after the first bracket.
    here_documents: usize,
    /// The word that ends a here-document has an expansion in it. No shell carries it out, and the parser
    /// takes memory without end where one is not closed (`<<$(( (a`).
    has_computed_end: bool,
}

impl Shape {
    fn of(text: &str) -> Self {
        let (mut openers, mut depth, mut deepest) = (0usize, 0usize, 0usize);
        let (mut here_documents, mut substituted, mut has_computed_end) = (0usize, false, false);
        let mut word_start = 0;
        let bytes = text.as_bytes();
        for at in 0..=bytes.len() {
            let byte = bytes.get(at).copied().unwrap_or(b' ');
            if byte.is_ascii_alphanumeric() || byte == b'_' {
                continue;
            }
            match &bytes[word_start..at] {
                b"if" | b"while" | b"until" | b"for" | b"select" | b"case" | b"coproc" | b"function" => {
                    openers += 1;
                    depth += 1;
                }
                b"fi" | b"done" | b"esac" => depth = depth.saturating_sub(1),
                _ => {}
            }
            word_start = at + 1;
            if byte == b'<' && is_here_document(&bytes[..at], &bytes[at + 1..]) {
                here_documents += usize::from(substituted);
                has_computed_end |= is_computed_end(&bytes[at + 2..]);
            }
            substituted |= matches!(byte, b'(' | b'`');
            match byte {
                b'(' | b'{' | b'[' | b'`' => {
                    openers += 1;
                    if byte != b'`' {
                        depth += 1;
                    }
                }
                b')' | b'}' | b']' => depth = depth.saturating_sub(1),
                b'!' => openers += 1,
                _ => {}
            }
            deepest = deepest.max(depth);
        }
        Self { openers, depth: deepest, here_documents, has_computed_end }
    }
}

/// Whether a `<` between these begins `<<`, and no `<<<`.
fn is_here_document(before: &[u8], after: &[u8]) -> bool {
    !before.ends_with(b"<") && after.starts_with(b"<") && !after.starts_with(b"<<")
}

/// Whether the word behind `<<` has an expansion in it, in quotes or not.
fn is_computed_end(after: &[u8]) -> bool {
    let after = after.strip_prefix(b"-").unwrap_or(after).trim_ascii_start();
    let mut quote = None;
    let mut at = 0;
    while let Some(&byte) = after.get(at) {
        match (byte, quote) {
            (b'`', _) => return true,
            (b'$', _) if matches!(after.get(at + 1), Some(b'(' | b'{' | b'[')) => return true,
            (b'\\', None | Some(b'"')) => at += 1,
            (b'"' | b'\'', None) => quote = Some(byte),
            (_, Some(open)) if byte == open => quote = None,
            (b' ' | b'\t' | b'\n' | b'\r' | b';' | b'|' | b'&' | b'<' | b'>' | b'(' | b')', None) => {
                return false;
            }
            _ => {}
        }
        at += 1;
    }
    false
}

/// The first character of `text` that cannot be shown faithfully, with its
/// position: control characters, bidirectional and invisible ones.
pub(crate) fn unshowable(text: &str) -> Option<(usize, char)> {
    if text.bytes().all(|b| (b' '..0x7f).contains(&b) || b == b'\n' || b == b'\t') {
        return None;
    }
    text.chars().enumerate().find(|(_, c)| {
        matches!(c,
            '\0'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{7f}'..='\u{9f}'
            | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{DecisionEnv, Policy, Proposal, Verdict};

    #[test]
    fn here_documents_around_each_other_are_refused_before_they_take_long() {
        for (opener, end) in
            [("$(d >(cat) <<E\n", ""), ("$(d <<E\n", ""), ("$(d <<E <<F\n", ""), ("$(d <<-E\n", "\n)\nE\n")]
        {
            let text = |levels| format!("git <<E\n{}{}", opener.repeat(levels), end.repeat(levels));
            assert!(!matches!(parse(&text(4), 64), Err(Unread::TooDeep)), "{opener}");
            assert!(matches!(parse(&text(20), 64), Err(Unread::TooDeep)), "{opener}");
        }
        // One after the other, with nothing to run in between, they are no trouble.
        let flat = "cat <<E\nx\nE\n".repeat(40);
        assert!(!matches!(parse(&flat, 64), Err(Unread::TooDeep)));
    }

    #[test]
    fn a_here_document_whose_end_is_computed_is_refused_before_it_is_parsed() {
        let ends = ["$(( (a ", "-$(( (a", "  x$(a", "\"a $(( (\"", "'${a'", "`a", "E\\ $[ (a", "$(a)"];
        for end in ends {
            for text in [format!("cat <<{end}"), format!("$(cat <<{end}\n"), format!("cat <<E <<{end}\nE\n")]
            {
                assert!(
                    matches!(parse(&text, 64), Err(Unread::Syntax(why)) if why.contains("expansion")),
                    "{text}"
                );
            }
        }
        for text in
            ["cat <<E\n$(( (1) ))\nE\n", "cat <<'E' | tee $(x)\nE\n", "cat <<< $(x)", "echo $((1 << 2))"]
        {
            assert!(parse(text, 64).is_ok(), "{text}");
        }
    }

    #[test]
    fn deep_and_long_text_is_refused_before_it_is_parsed() {
        for text in [
            "(".repeat(400),
            "$(".repeat(3_000),
            "if true; then ".repeat(2_000),
            "${a:-".repeat(2_000),
            "`".repeat(5_000),
            "! ".repeat(20_000),
            "a".repeat(70_000),
            format!("{}ls{}", "{ ".repeat(70), "; }".repeat(70)),
        ] {
            let policy = Policy::load("version = 1\n", "p").unwrap();
            let decision = policy.decide(&Proposal::shell(text), &DecisionEnv::fixture());
            assert_eq!(decision.verdict, Verdict::Deny);
            assert!(Policy::builtin().decide(&Proposal::shell("ls"), &DecisionEnv::fixture()).analysed);
        }
    }

    #[test]
    fn text_at_the_depth_limit_is_read() {
        let policy = Policy::load("version = 1\n", "p").unwrap();
        let env = DecisionEnv::fixture();
        for (open, close) in [("{ ", "; }"), ("if true; then ", "; fi"), ("( ", " )"), ("echo $(", ")")] {
            let text = format!("{}ls{}", open.repeat(60), close.repeat(60));
            assert_eq!(policy.decide(&Proposal::shell(text), &env).verdict, Verdict::Allow, "{open}");
            let text = format!("{}reboot{}", open.repeat(60), close.repeat(60));
            assert_eq!(policy.decide(&Proposal::shell(text), &env).verdict, Verdict::Deny, "{open}");
        }
    }

    #[test]
    fn unshowable_characters_are_found() {
        for text in ["a\u{1b}[2K", "a\u{202e}b", "a\u{200b}", "a\rb", "a\0", "a\u{2028}b", "a\u{e0041}"] {
            assert!(unshowable(text).is_some(), "{text:?}");
        }
        assert_eq!(unshowable("café 你好 😀 \t\n"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_500))]

        #[test]
        fn any_text_gets_the_same_answer_twice(
            words in proptest::collection::vec(
                prop_oneof![
                    Just("$(".to_owned()), Just(")".to_owned()), Just("((".to_owned()), Just("))".to_owned()),
                    Just("`".to_owned()), Just("\"".to_owned()), Just("'".to_owned()), Just("\\".to_owned()),
                    Just("${x:-".to_owned()), Just("}".to_owned()), Just("{a,b".to_owned()), Just("<<E\n".to_owned()),
                    Just("\nE\n".to_owned()), Just("|".to_owned()), Just("&".to_owned()), Just(";".to_owned()),
                    Just(">".to_owned()), Just("rm -rf /".to_owned()), Just("x=1".to_owned()), Just("$x".to_owned()),
                    Just("~9".to_owned()), Just("{1..99999999999999999999}".to_owned()), Just("$'\\x".to_owned()),
                    Just("for i in".to_owned()), Just("do".to_owned()), Just("done".to_owned()), Just("a[$".to_owned()),
                    Just("xargs -I{}".to_owned()), Just("env -S".to_owned()), Just("find . -exec".to_owned()),
                    Just("sed -e s/a".to_owned()), Just("awk '{".to_owned()), Just("git -c a=".to_owned()),
                    "[a-z /.*?=-]{0,6}", "\\PC{0,3}",
                ],
                0..14,
            ),
            glue in prop_oneof![Just(" "), Just("")],
        ) {
            let text = words.join(glue);
            let policy = Policy::load("version = 1\n", "p").unwrap();
            let env = DecisionEnv::fixture();
            let first = policy.decide(&Proposal::shell(text.clone()), &env);
            prop_assert_eq!(&first, &policy.decide(&Proposal::shell(text.clone()), &env));
            let open = Policy::builtin().decide(&Proposal::shell(text), &env);
            prop_assert!(open.verdict != Verdict::Ask);
        }
    }
}
