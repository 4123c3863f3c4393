//! Conditions: `when:` and `condition:`.
//!
//! ```text
//! or    := and ( "||" and )*
//! and   := cmp ( "&&" cmp )*
//! cmp   := unary [ ( "==" | "!=" | "<=" | ">=" | "<" | ">" ) unary ]
//! unary := "!" unary | prim
//! prim  := "(" or ")" | reference | string | number | true | false | null | word
//! ```
//!
//! A word is a string and may stand only on the right of a comparison. Both
//! sides of `&&` and `||` are always evaluated, so that a misspelt reference
//! fails regardless of the other side.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Number, Value};

use super::template::{ExprError, Lookup, Reference, Scope, reference_at};
use lobster_base::json::exact::Exact;
use lobster_base::json::{self, is_js_space};

/// Deepest nesting of `!` and parentheses. Parsing and evaluation recurse.
const MAX_DEPTH: usize = 100;
/// Longest condition in bytes, which limits the cost of one condition.
const MAX_LENGTH: usize = 16 << 10;

/// Condition under which a step runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Condition {
    #[default]
    Always,
    Never,
    When(Expression),
}

/// A condition that depends on results.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    text: String,
    root: Expr,
}

#[derive(Clone, Debug, PartialEq)]
enum Expr {
    Constant(Value),
    Reference(Reference),
    Not(Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Compare(Box<(Expr, Operator, Expr)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Advice for an author who calls a function in a condition.
const NO_FUNCTIONS: &str = "conditions have no functions; compute it in a step, as in \
     `{id: found, js: \"input.includes('x')\", stdin: $check.stdout}`, and test `$found.json`";

/// Advice for an author who names an argument in a condition.
pub(crate) const ARGUMENT_IN_CONDITION: &str = "arguments cannot be used in conditions; let a step print the argument, as in \
     `{id: given, run: printf %s \"$LOBSTER_ARG_NAME\"}`, and compare `$given.stdout`";

/// A text that is not a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Unsupported condition: {text}")]
pub struct ConditionError {
    /// Text of the condition, trimmed.
    pub text: String,
    /// Position at which reading stopped: a byte offset in the untrimmed text, at most its length.
    pub at: usize,
    /// Description of the error at this position.
    pub reason: String,
}

impl Condition {
    /// Parses a condition.
    ///
    /// # Errors
    /// The text does not match the grammar above.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        let trimmed = text.trim_matches(is_js_space);
        match trimmed {
            "true" => return Ok(Self::Always),
            "false" => return Ok(Self::Never),
            _ => {}
        }
        let offset = text.len() - text.trim_start_matches(is_js_space).len();
        let fail = |(at, reason): (usize, String)| ConditionError {
            text: trimmed.to_owned(),
            at: (offset + at).min(text.len()),
            reason,
        };
        if trimmed.len() > MAX_LENGTH {
            return Err(fail((0, format!("conditions may be {MAX_LENGTH} bytes long"))));
        }
        let mut parser = Parser { text: trimmed, at: 0, depth: 0 };
        let root = parser.parse_whole().map_err(fail)?;
        Ok(Self::When(Expression { text: trimmed.to_owned(), root }))
    }

    /// Makes a condition that cannot be parsed, for drawing the file: no run uses it.
    pub(super) fn from_invalid(text: &str) -> Self {
        let text = text.trim_matches(is_js_space).to_owned();
        Self::When(Expression { text, root: Expr::Constant(Value::Bool(false)) })
    }

    /// True if the step runs regardless of earlier results.
    #[must_use]
    pub fn is_always(&self) -> bool {
        *self == Self::Always
    }

    /// Text of the condition as written, trimmed.
    #[must_use]
    pub fn source_text(&self) -> &str {
        match self {
            Self::Always => "true",
            Self::Never => "false",
            Self::When(expression) => &expression.text,
        }
    }

    /// True if the step runs, given the results so far.
    ///
    /// # Errors
    /// A reference names an unknown step, or a result cannot be read.
    pub fn evaluate(&self, scope: &dyn Scope) -> Result<bool, ExprError> {
        match self {
            Self::Always => Ok(true),
            Self::Never => Ok(false),
            Self::When(expression) => {
                Ok(json::to_boolean(evaluate_expr(&expression.root, scope)?.as_deref()))
            }
        }
    }

    /// Value of the condition as far as it follows before results exist; `None` if it depends on
    /// unknown values.
    ///
    /// # Errors
    /// Errors of `facts`.
    pub fn evaluate_partially<E>(
        &self,
        facts: &dyn Fn(&Reference) -> Result<Fact, E>,
    ) -> Result<Option<bool>, E> {
        match self {
            Self::Always => Ok(Some(true)),
            Self::Never => Ok(Some(false)),
            Self::When(expression) => Ok(match evaluate_expr_partially(&expression.root, facts)? {
                Fact::Unknown => None,
                Fact::Known(value) => Some(json::to_boolean(value.as_ref())),
            }),
        }
    }

    /// Uses of a step's printed text (`$id.stdout`) that are probably mistakes.
    pub(crate) fn doubtful_uses(&self) -> Vec<(&Reference, DoubtfulUse<'_>)> {
        let mut found = Vec::new();
        if let Self::When(expression) = self {
            expression.root.collect_doubtful_uses(true, &mut found);
        }
        found
    }

    /// All references, from left to right.
    #[must_use]
    pub fn all_references(&self) -> Vec<&Reference> {
        let mut found = Vec::new();
        if let Self::When(expression) = self {
            expression.root.collect_references(&mut found);
        }
        found
    }
}

/// A use of a step's printed text that is probably a mistake.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DoubtfulUse<'e> {
    /// As a boolean: any text is true.
    Truth,
    /// Compared with a text without a line break.
    WithoutLineEnd(&'e str),
    /// Compared with a value that is not text.
    NoText(&'e Value),
}

impl Expr {
    fn collect_doubtful_uses<'e>(
        &'e self,
        is_truth: bool,
        found: &mut Vec<(&'e Reference, DoubtfulUse<'e>)>,
    ) {
        let is_stdout = |reference: &Reference| reference.path.len() == 1 && reference.path[0] == "stdout";
        match self {
            Self::Constant(_) => {}
            Self::Reference(reference) if is_truth && is_stdout(reference) => {
                found.push((reference, DoubtfulUse::Truth));
            }
            Self::Reference(_) => {}
            Self::Not(inner) => inner.collect_doubtful_uses(true, found),
            Self::And(parts) | Self::Or(parts) => {
                parts.iter().for_each(|part| part.collect_doubtful_uses(true, found))
            }
            Self::Compare(sides) => match &**sides {
                (Self::Reference(reference), Operator::Equal | Operator::NotEqual, Self::Constant(value))
                | (Self::Constant(value), Operator::Equal | Operator::NotEqual, Self::Reference(reference))
                    if is_stdout(reference) =>
                {
                    match value {
                        Value::String(text) if text.is_empty() || text.ends_with('\n') => {}
                        Value::String(text) => found.push((reference, DoubtfulUse::WithoutLineEnd(text))),
                        other => found.push((reference, DoubtfulUse::NoText(other))),
                    }
                }
                (left, _, right) => {
                    left.collect_doubtful_uses(false, found);
                    right.collect_doubtful_uses(false, found);
                }
            },
        }
    }

    fn collect_references<'e>(&'e self, found: &mut Vec<&'e Reference>) {
        match self {
            Self::Constant(_) => {}
            Self::Reference(reference) => found.push(reference),
            Self::Not(inner) => inner.collect_references(found),
            Self::And(parts) | Self::Or(parts) => {
                parts.iter().for_each(|part| part.collect_references(found))
            }
            Self::Compare(sides) => {
                sides.0.collect_references(found);
                sides.2.collect_references(found);
            }
        }
    }
}

/// Serialised as `true`, `false` or the text; parsed from any of these or null.
impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Always => serializer.serialize_bool(true),
            Self::Never => serializer.serialize_bool(false),
            Self::When(expression) => serializer.serialize_str(&expression.text),
        }
    }
}

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Null | Value::Bool(true) => Ok(Self::Always),
            Value::Bool(false) => Ok(Self::Never),
            Value::String(text) => Self::parse(&text).map_err(serde::de::Error::custom),
            Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                Err(serde::de::Error::custom("Unsupported condition type"))
            }
        }
    }
}

type Fault = (usize, String);

struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn remaining_text(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn skip_blanks(&mut self) {
        let rest = self.remaining_text();
        self.at += rest.len() - rest.trim_start_matches(is_js_space).len();
    }

    fn fail_here<T>(&self, reason: impl Into<String>) -> Result<T, Fault> {
        Err((self.at, reason.into()))
    }

    fn consume_token(&mut self, token: &str) -> bool {
        self.skip_blanks();
        let found = self.remaining_text().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn parse_whole(&mut self) -> Result<Expr, Fault> {
        let root = self.parse_or()?;
        self.skip_blanks();
        if self.at < self.text.len() {
            return self.fail_here(self.describe_trailing_text());
        }
        Ok(root)
    }

    /// Message about text after a possible end of the condition.
    fn describe_trailing_text(&self) -> String {
        let rest = self.remaining_text();
        match rest.chars().next() {
            Some('[') => "list elements are written `.0`, not `[0]`".to_owned(),
            Some('=') => "equality is `==`".to_owned(),
            Some('&') => "and is `&&`".to_owned(),
            Some('|') => "or is `||`".to_owned(),
            Some(')') => "no parenthesis is open".to_owned(),
            Some('+' | '-' | '*' | '/' | '%') => "there is no arithmetic in conditions".to_owned(),
            Some('?') => "there is no `a ? b : c`; write `a && b || !a && c`".to_owned(),
            Some('<' | '>' | '!') => "comparisons cannot be chained".to_owned(),
            Some(_) if rest.starts_with("and ") || rest.starts_with("or ") => {
                "write `&&` and `||`".to_owned()
            }
            Some(_) if ["in ", "contains ", "matches "].iter().any(|word| rest.starts_with(word)) => {
                NO_FUNCTIONS.to_owned()
            }
            _ => "expected the end of the condition or an operator".to_owned(),
        }
    }

    fn parse_or(&mut self) -> Result<Expr, Fault> {
        self.parse_chain("||", Self::parse_and, Expr::Or)
    }

    fn parse_and(&mut self) -> Result<Expr, Fault> {
        self.parse_chain("&&", Self::parse_comparison, Expr::And)
    }

    fn parse_chain(
        &mut self,
        operator: &str,
        part: fn(&mut Self) -> Result<Expr, Fault>,
        join: fn(Vec<Expr>) -> Expr,
    ) -> Result<Expr, Fault> {
        let first = part(self)?;
        if !self.consume_token(operator) {
            return Ok(first);
        }
        let mut parts = vec![first, part(self)?];
        while self.consume_token(operator) {
            parts.push(part(self)?);
        }
        Ok(join(parts))
    }

    fn parse_comparison(&mut self) -> Result<Expr, Fault> {
        let left = self.parse_unary(false)?;
        let operators = [
            ("==", Operator::Equal),
            ("!=", Operator::NotEqual),
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ];
        let Some((_, operator)) = operators.into_iter().find(|(token, _)| self.consume_token(token)) else {
            return Ok(left);
        };
        if matches!(operator, Operator::Equal | Operator::NotEqual) && self.remaining_text().starts_with('=')
        {
            return self.fail_here("write `==` or `!=`");
        }
        let right = self.parse_unary(true)?;
        Ok(Expr::Compare(Box::new((left, operator, right))))
    }

    fn parse_unary(&mut self, words: bool) -> Result<Expr, Fault> {
        self.skip_blanks();
        if self.remaining_text().starts_with('!') && !self.remaining_text().starts_with("!=") {
            self.at += 1;
            return self.parse_nested(|parser| Ok(Expr::Not(Box::new(parser.parse_unary(words)?))));
        }
        self.parse_primary(words)
    }

    fn parse_nested(&mut self, read: impl FnOnce(&mut Self) -> Result<Expr, Fault>) -> Result<Expr, Fault> {
        if self.depth >= MAX_DEPTH {
            return self.fail_here(format!("the condition is nested more than {MAX_DEPTH} levels deep"));
        }
        self.depth += 1;
        let expr = read(self);
        self.depth -= 1;
        expr
    }

    fn parse_primary(&mut self, words: bool) -> Result<Expr, Fault> {
        let rest = self.remaining_text();
        match rest.chars().next() {
            None => self.fail_here("something is missing at the end"),
            Some('(') => {
                self.at += 1;
                self.parse_nested(|parser| {
                    let inner = parser.parse_or()?;
                    if parser.consume_token(")") {
                        Ok(inner)
                    } else {
                        parser.fail_here("a parenthesis is not closed")
                    }
                })
            }
            Some('$') => match reference_at(rest) {
                Some((len, reference)) => {
                    self.at += len;
                    Ok(Expr::Reference(reference))
                }
                None if rest.starts_with("${") => self.fail_here(ARGUMENT_IN_CONDITION),
                None if rest.starts_with("$$") => self.fail_here("a reference begins with one `$`"),
                None => self.fail_here(
                    "a reference is `$id.field`, for example `$check.json.ok`; an approval is `$id.approved`",
                ),
            },
            Some(quote @ ('"' | '\'')) => self.parse_string(quote),
            Some('-' | '0'..='9') => self.parse_number(),
            Some(c) if c.is_ascii_alphabetic() || c == '_' => self.parse_word(words),
            Some('{') => self.fail_here("a reference is `$id.field`, without braces"),
            Some(c) => self.fail_here(format!("{c:?} does not begin a value")),
        }
    }

    fn parse_string(&mut self, quote: char) -> Result<Expr, Fault> {
        let mut text = String::new();
        let mut chars = self.remaining_text().char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    Some((_, literal)) => text.push(literal),
                    None => break,
                },
                _ if c == quote => {
                    self.at += at + 1;
                    return Ok(Expr::Constant(Value::String(text)));
                }
                _ => text.push(c),
            }
        }
        self.fail_here("a quote is not closed")
    }

    fn parse_number(&mut self) -> Result<Expr, Fault> {
        let rest = self.remaining_text();
        let digits = |from: usize| rest[from..].bytes().take_while(u8::is_ascii_digit).count();
        let sign = usize::from(rest.starts_with('-'));
        let whole = digits(sign);
        if whole == 0 {
            return self.fail_here("there is no arithmetic in conditions");
        }
        let mut end = sign + whole;
        if rest[end..].starts_with('.') && digits(end + 1) > 0 {
            end += 1 + digits(end + 1);
        }
        let text = &rest[..end];
        let number = match text.parse::<u64>() {
            Ok(whole) => Some(whole.into()),
            // Negative zero is a double.
            Err(_) => text.parse::<i64>().ok().filter(|whole| *whole != 0).map(Number::from),
        };
        let number = number.or_else(|| Number::from_f64(text.parse().ok()?));
        let Some(number) = number else { return self.fail_here("the number is too large") };
        self.at += end;
        Ok(Expr::Constant(Value::Number(number)))
    }

    fn parse_word(&mut self, allowed: bool) -> Result<Expr, Fault> {
        let rest = self.remaining_text();
        let len = rest.bytes().take_while(|b| super::template::is_id_byte(*b)).count();
        let word = &rest[..len];
        let value = match word {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "null" => Value::Null,
            _ if allowed => Value::String(word.to_owned()),
            _ => return self.fail_here(self.explain_misplaced_word(word, len)),
        };
        self.at += len;
        Ok(Expr::Constant(value))
    }

    /// Reason why a word is not allowed at this position; it has `len` bytes.
    fn explain_misplaced_word(&self, word: &str, len: usize) -> String {
        match self.remaining_text()[len..].bytes().next() {
            Some(b'(') => NO_FUNCTIONS.to_owned(),
            Some(b'.') => format!("a reference begins with `$`: write `${word}.` and so on"),
            _ if word == "not" => "not is `!`".to_owned(),
            _ => format!("the word `{word}` is only allowed on the right of a comparison; quote text"),
        }
    }
}

/// A value; `None` stands for `undefined` of ECMAScript.
type Operand<'s> = Option<Cow<'s, Value>>;

fn evaluate_expr<'s>(expr: &'s Expr, scope: &'s dyn Scope) -> Result<Operand<'s>, ExprError> {
    let boolean = |value: bool| Some(Cow::Owned(Value::Bool(value)));
    Ok(match expr {
        Expr::Constant(value) => Some(Cow::Borrowed(value)),
        Expr::Reference(reference) => match reference.look_up(scope)? {
            Lookup::UnknownStep => return Err(ExprError::UnknownStep(reference.clone())),
            Lookup::NotJson => return Err(ExprError::NotJson(reference.clone())),
            Lookup::Missing => None,
            Lookup::Found(value) => Some(value),
        },
        Expr::Not(inner) => boolean(!json::to_boolean(evaluate_expr(inner, scope)?.as_deref())),
        Expr::And(parts) => boolean(!evaluate_all(parts, scope)?.contains(&false)),
        Expr::Or(parts) => boolean(evaluate_all(parts, scope)?.contains(&true)),
        Expr::Compare(sides) => {
            let (left, right) = (evaluate_expr(&sides.0, scope)?, evaluate_expr(&sides.2, scope)?);
            boolean(compare_operands(left.as_deref(), sides.1, right.as_deref()))
        }
    })
}

/// Knowledge about a value before a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    Unknown,
    /// The value, or the fact that there will be none.
    Known(Option<Value>),
}

impl Fact {
    fn known_truth(&self) -> Option<bool> {
        match self {
            Self::Unknown => None,
            Self::Known(value) => Some(json::to_boolean(value.as_ref())),
        }
    }

    fn from_truth(truth: Option<bool>) -> Self {
        truth.map_or(Self::Unknown, |truth| Self::Known(Some(Value::Bool(truth))))
    }
}

/// Evaluates with three truth values (Kleene): if one known side decides the result, the result is
/// known.
fn evaluate_expr_partially<E>(expr: &Expr, facts: &dyn Fn(&Reference) -> Result<Fact, E>) -> Result<Fact, E> {
    let truths = |parts: &[Expr]| {
        parts
            .iter()
            .map(|part| Ok(evaluate_expr_partially(part, facts)?.known_truth()))
            .collect::<Result<Vec<_>, E>>()
    };
    let settled_by = |truths: &[Option<bool>], settling: bool| {
        if truths.contains(&Some(settling)) {
            Some(settling)
        } else if truths.contains(&None) {
            None
        } else {
            Some(!settling)
        }
    };
    Ok(match expr {
        Expr::Constant(value) => Fact::Known(Some(value.clone())),
        Expr::Reference(reference) => facts(reference)?,
        Expr::Not(inner) => {
            Fact::from_truth(evaluate_expr_partially(inner, facts)?.known_truth().map(|truth| !truth))
        }
        Expr::And(parts) => Fact::from_truth(settled_by(&truths(parts)?, false)),
        Expr::Or(parts) => Fact::from_truth(settled_by(&truths(parts)?, true)),
        Expr::Compare(sides) => {
            match (evaluate_expr_partially(&sides.0, facts)?, evaluate_expr_partially(&sides.2, facts)?) {
                (Fact::Known(left), Fact::Known(right)) => {
                    Fact::from_truth(Some(compare_operands(left.as_ref(), sides.1, right.as_ref())))
                }
                _ => Fact::Unknown,
            }
        }
    })
}

fn evaluate_all(parts: &[Expr], scope: &dyn Scope) -> Result<Vec<bool>, ExprError> {
    parts.iter().map(|part| Ok(json::to_boolean(evaluate_expr(part, scope)?.as_deref()))).collect()
}

fn compare_operands(left: Option<&Value>, operator: Operator, right: Option<&Value>) -> bool {
    let ordered = |holds: fn(Ordering) -> bool| match (comparable_number(left), comparable_number(right)) {
        (Some(left), Some(right)) => left.compare_to(right).is_some_and(holds),
        _ => false,
    };
    match operator {
        Operator::Equal => is_same(left, right),
        Operator::NotEqual => !is_same(left, right),
        Operator::Less => ordered(Ordering::is_lt),
        Operator::LessOrEqual => ordered(Ordering::is_le),
        Operator::Greater => ordered(Ordering::is_gt),
        Operator::GreaterOrEqual => ordered(Ordering::is_ge),
    }
}

/// ECMA-262 `Object.is` for scalars; arrays and objects are compared by content, without regard to the
/// order of keys.
fn is_same(left: Option<&Value>, right: Option<&Value>) -> bool {
    match (left, right) {
        (None, None) => true,
        (Some(left), Some(right)) => same_value(left, right),
        _ => false,
    }
}

fn same_value(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => same_number(left, right),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(l, r)| same_value(l, r))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, l)| right.get(key).is_some_and(|r| same_value(l, r)))
        }
        _ => left == right,
    }
}

/// Equal to the last digit; `-0` differs from `0`.
fn same_number(left: &Number, right: &Number) -> bool {
    let is_negative = |number: &Number| number.as_f64().is_some_and(f64::is_sign_negative);
    Exact::of_number(left).is_equal(Exact::of_number(right)) && is_negative(left) == is_negative(right)
}

/// Operand of `<` and the other order operators: a number, or a text that ECMA-262 `Number` accepts.
fn comparable_number(value: Option<&Value>) -> Option<Exact> {
    match value? {
        Value::Number(number) => Some(Exact::of_number(number)),
        Value::String(text) if text.chars().all(is_js_space) => None,
        Value::String(text) => Some(Exact::of_text(text)),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
#[path = "condition_tests.rs"]
mod tests;
