//! Arithmetic: what bash evaluates in it, and whether it is arithmetic at all.

use brush_parser::ast;

use super::analysis::{Analysis, Arg};

impl Analysis<'_> {
    /// Follows the code an arithmetic expression runs: substitutions, and the
    /// values of the variables it names, which bash evaluates in turn.
    pub(crate) fn arithmetic(&mut self, text: &str) {
        self.deeper(|a| a.arithmetic_inner(text));
    }

    fn arithmetic_inner(&mut self, text: &str) {
        if text.contains(['$', '`']) {
            let value = self.expand_whole(text);
            self.arithmetic_data(&value);
        }
        let mut rest = text;
        while let Some(start) = rest.find(|c: char| c.is_ascii_alphabetic() || c == '_') {
            let tail = &rest[start..];
            let end = tail.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(tail.len());
            let name = &tail[..end];
            let before = rest[..start].trim_end();
            let after = tail[end..].trim_start();
            let numeric_prefix = before.ends_with(|c: char| c.is_ascii_digit()) && before.len() == start;
            if !numeric_prefix && !before.ends_with(['$', '{']) {
                // What is only given a value is not evaluated.
                let is_read = !after.starts_with('=') || after.starts_with("==");
                if is_read {
                    self.evaluate_variable(name);
                }
                if is_arithmetic_assignment(before, after) {
                    self.assign(name, Arg::number());
                } else if let Some(index) = after.strip_prefix('[') {
                    let behind = after_subscript(index).trim_start();
                    if is_arithmetic_assignment(before, behind) {
                        self.check_assignment(name, &Arg::number());
                        self.set_array(name, vec![Arg::unknown()]);
                    }
                }
            }
            rest = &tail[end..];
        }
    }

    /// Judges the value of a variable, which bash evaluates in turn; once, as
    /// it may name itself.
    fn evaluate_variable(&mut self, name: &str) {
        if self.evaluated.iter().any(|known| known == name) {
            return;
        }
        let before = self.evaluated.len();
        self.evaluated.push(name.to_owned());
        let values = self.array(name).unwrap_or_else(|| vec![self.variable(name)]);
        for value in values.iter().filter(|value| !value.is_surely_unset()) {
            self.arithmetic_data(value);
        }
        if before == 0 {
            self.evaluated.clear();
        }
    }

    /// Judges data that bash would evaluate as arithmetic.
    pub(crate) fn arithmetic_data(&mut self, value: &Arg) {
        if value.text.contains(['$', '`']) {
            let text = value.text.clone();
            self.expand_whole(&text);
            self.deny("arithmetic-code", "arithmetic would evaluate code hidden in data");
        } else if value.is_evaluated_data() {
            self.ask("arithmetic-data", "arithmetic would evaluate data that is not known");
        } else {
            self.arithmetic(&value.text);
        }
    }

    pub(crate) fn extended_test(&mut self, expr: &ast::ExtendedTestExpr) {
        match expr {
            ast::ExtendedTestExpr::And(a, b) | ast::ExtendedTestExpr::Or(a, b) => {
                self.extended_test(a);
                self.extended_test(b);
            }
            ast::ExtendedTestExpr::Not(inner) | ast::ExtendedTestExpr::Parenthesized(inner) => {
                self.extended_test(inner);
            }
            ast::ExtendedTestExpr::UnaryTest(predicate, word) => {
                let value = self.expand_whole(&word.value);
                if matches!(
                    predicate,
                    ast::UnaryPredicate::ShellVariableIsSetAndAssigned
                        | ast::UnaryPredicate::ShellVariableIsSetAndNameRef
                ) {
                    self.refuse_subscript(&value);
                }
            }
            ast::ExtendedTestExpr::BinaryTest(predicate, left, right) => {
                let left = self.expand_whole(&left.value);
                let right = self.expand_whole(&right.value);
                if matches!(
                    predicate,
                    ast::BinaryPredicate::ArithmeticEqualTo
                        | ast::BinaryPredicate::ArithmeticNotEqualTo
                        | ast::BinaryPredicate::ArithmeticLessThan
                        | ast::BinaryPredicate::ArithmeticLessThanOrEqualTo
                        | ast::BinaryPredicate::ArithmeticGreaterThan
                        | ast::BinaryPredicate::ArithmeticGreaterThanOrEqualTo
                ) {
                    for value in [left, right] {
                        self.arithmetic_data(&value);
                    }
                }
            }
        }
    }

    /// Refuses a variable name whose subscript bash would evaluate.
    pub(crate) fn refuse_subscript(&mut self, name: &Arg) {
        if name.text.contains('[') && name.text.contains(['$', '`']) {
            self.expand_whole(&name.text.clone());
            self.deny("arithmetic-code", "the subscript of a variable name is evaluated as code");
        } else if let Some((_, subscript)) = name.text.split_once('[') {
            self.arithmetic(subscript);
        }
        if name.is_evaluated_data() {
            self.ask("arithmetic-data", "the subscript of a name that is not known is evaluated");
        }
    }
}

impl Arg {
    /// Whether bash would find data in it that may be code, where it evaluates it.
    fn is_evaluated_data(&self) -> bool {
        let is_number = self.numeric && !self.stands_for_names();
        self.depends_on_data() && !is_number && !self.is_surely_unset()
    }
}

/// What follows the subscript in which `text` begins.
fn after_subscript(text: &str) -> &str {
    let mut depth = 1usize;
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[at + 1..];
        }
    }
    // Without its end, all that follows may be the assignment.
    text
}

fn is_arithmetic_assignment(before: &str, after: &str) -> bool {
    let assigns = |op: &str| after.starts_with(op) && !after.starts_with("==");
    ["=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "^=", "|=", "++", "--"]
        .iter()
        .any(|op| assigns(op))
        || before.ends_with("++")
        || before.ends_with("--")
}

/// The first `((` of `source` that is not closed by a `))` of its own: bash
/// then reads nested subshells, whatever another parser makes of it.
pub(crate) fn unclosed_arithmetic(source: &str) -> Option<&str> {
    let bytes = source.as_bytes();
    let mut region_end = 0;
    let mut in_double = false;
    let mut in_comment = false;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\n' => in_comment = false,
            b'#' if !in_double && (at == 0 || b" \t\n;&|".contains(&bytes[at - 1])) => {
                in_comment = true;
            }
            b'\\' => at += 1,
            b'\'' if !in_double && !in_comment => {
                at += 1;
                while at < bytes.len() && bytes[at] != b'\'' {
                    at += 1;
                }
            }
            b'"' if !in_comment => in_double = !in_double,
            b'(' if bytes.get(at + 1) == Some(&b'(') => {
                let expansion = at > 0 && bytes[at - 1] == b'$';
                // Inside arithmetic, double quotes and comments, bare
                // parentheses are only parentheses. What looks like a comment
                // may be a line of a here-document, so expansions still count.
                if expansion || (at >= region_end && !in_double && !in_comment) {
                    match closed_arithmetic(&source[at..]) {
                        Some(len) => region_end = region_end.max(at + len),
                        None => return source.get(at..),
                    }
                }
                at += 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The length of the arithmetic that `source` begins with, when the `)` of its
/// second parenthesis is directly followed by that of its first.
pub(crate) fn closed_arithmetic(source: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut quote: Option<u8> = None;
    let bytes = source.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (_, b'\\') => at += 1,
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, c @ (b'\'' | b'"')) => quote = Some(c),
            (None, b'(') => depth += 1,
            (None, b')') => {
                depth = depth.saturating_sub(1);
                if depth == 1 {
                    return (bytes.get(at + 1) == Some(&b')')).then_some(at + 2);
                }
            }
            (None, _) => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_is_only_what_bash_is_sure_to_read_so() {
        for sure in [
            "((1+2))",
            "echo $(((1+2)*3))",
            "((i = 3 * (2 + 1))) && (ls)",
            "((a[\")\"]))",
            "echo '((' \"((\" \\(\\(",
            "echo $(( $((1)) + 2 ))",
            "echo $((1)) # it's ((",
        ] {
            assert_eq!(unclosed_arithmetic(sure), None, "{sure}");
        }
        for unsure in [
            "((reboot) )",
            "echo $((1+$(( reboot )\n)))",
            "echo $(( a ) | ( b ))",
            "echo \"$(( (reboot) ) )\"",
            "((1)) && ((reboot); ls)",
        ] {
            assert!(unclosed_arithmetic(unsure).is_some(), "{unsure}");
        }
    }
}
