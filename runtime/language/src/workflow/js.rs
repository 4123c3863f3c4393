//! `js` steps without a value: statements without `return`.

use super::super::codes;
use super::super::diagnostic::Diagnostic;
use super::super::plan::{Step, Work};
use super::super::source::Node;
use super::Lowering;

/// Words that make a text a sequence of statements.
const STATEMENTS: &[&str] = &["const", "let", "var", "for", "while", "do", "if", "switch", "try"];

impl Lowering<'_> {
    /// Statements are the body of a function, which gives null without `return`.
    pub(super) fn lint_js(&mut self, node: &Node, step: &Step) {
        let (Work::Js(text), Some(written)) = (&step.work, node.get("js")) else { return };
        if !gives_nothing(text) {
            return;
        }
        let message = "the statements of this `js` return nothing, so the step gives null".to_owned();
        let span = written.part_span(self.source, 0..text.len());
        let warning = Diagnostic::warning(self.source, codes::JS_WITHOUT_RETURN, span, message)
            .with_help("write `return` before the value that the step is to give");
        self.warnings.push(warning);
    }
}

/// True if the text consists of statements without any `return` or `throw`. Unclear cases are false.
fn gives_nothing(text: &str) -> bool {
    let Some(code) = without_quoted(text) else { return false };
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
    let mut words = code.split(|c| !is_name(c)).filter(|word| !word.is_empty());
    let begins = code.trim_start().chars().take_while(|c| is_name(*c)).collect::<String>();
    STATEMENTS.contains(&begins.as_str()) && !words.any(|word| matches!(word, "return" | "throw"))
}

/// The text with spaces in place of comments and strings; `None` if it may contain a regular
/// expression.
fn without_quoted(text: &str) -> Option<String> {
    let mut code = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match (c, rest.peek().copied()) {
            ('/', Some('/')) => while rest.next_if(|c| *c != '\n').is_some() {},
            ('/', Some('*')) => {
                rest.next();
                let mut last = ' ';
                for c in rest.by_ref() {
                    if (last, c) == ('*', '/') {
                        break;
                    }
                    last = c;
                }
                code.push(' ');
            }
            // A quote in a regular expression would not begin a string.
            ('/', _) if rest.clone().take_while(|c| *c != '\n').any(|c| c == '/') => return None,
            // A template may contain code that returns.
            ('`', _) if text.contains("${") => return None,
            ('"' | '\'' | '`', _) => {
                while let Some(inside) = rest.next() {
                    match inside {
                        '\\' => drop(rest.next()),
                        end if end == c => break,
                        _ => {}
                    }
                }
                code.push_str("''");
            }
            _ => code.push(c),
        }
    }
    Some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_without_return_give_nothing() {
        for text in [
            "const a = 1;\na",
            "// the sum\nlet n = 0; for (const x of input) n += x; n",
            "for (const x of input) {}",
            "if (input) { 'return' }",
        ] {
            assert!(gives_nothing(text), "{text}");
        }
        for text in [
            "input.filter(m => m.score > 0.8)",
            "({ const: 1 })",
            "constant + 1",
            "const a = 1; return a",
            "if (input) { return 1 } else { throw new Error('x') }",
            "const f = x => { return x }; f(1)",
            "[1, 2].map(n => n / 2)",
            "let a = /return'/; a",
            "",
        ] {
            assert!(!gives_nothing(text), "{text}");
        }
    }
}
