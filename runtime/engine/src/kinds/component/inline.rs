//! The view that the code of a `js:` step has of its workflow.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Arguments, Member, Members};
use crate::path::StepPath;
use crate::record::Scope;
use crate::value::InputValue as StepInput;
use crate::workflow::Frame;
use lobster_base::json;
use lobster_language::plan::Step;
use lobster_stage::{Stop, store_failure};

/// The evaluator's arguments: the code with `input`, `args`, and the earlier steps that it may read.
pub(super) fn js_args(
    frame: &Frame<'_>,
    code: &str,
    step: &Step,
    scope: &Scope<'_>,
    path: &StepPath,
) -> Result<Arguments, Stop> {
    let input = match frame.step_input(step, scope, path)? {
        StepInput::Text(text) => {
            let text = text.load().map_err(store_failure)?;
            Arc::new(json::parse(text.trim()).unwrap_or_else(|_| Value::String(text.to_string())))
        }
        other => other.load_value()?.unwrap_or_default(),
    };
    let mut visible = match Seen::from_code(code) {
        Seen::Named(names) if names.is_empty() => Vec::new(),
        Seen::Named(names) => {
            let mut visible = scope.visible_records();
            visible.retain(|record| names.contains(record.id.as_str()));
            visible
        }
        Seen::All => scope.visible_records(),
    };
    // The order is fixed: neither the code's view nor its fuel may vary.
    visible.sort_by(|a, b| a.id.cmp(&b.id));
    let mut steps = Vec::new();
    for record in visible {
        let value = record.main_value()?.unwrap_or_default();
        steps.push((record.id.clone(), Member::Value(value)));
    }
    let value = |value| Member::Value(Arc::new(value));
    let bound = [
        value(json!(code)),
        Member::Value(input),
        value(json!(frame.args)),
        Member::Object(Members(steps)),
        value(json!("value")),
    ];
    Ok(Members(BOUND.iter().map(|name| (*name).to_owned()).zip(bound).collect()).into())
}

/// The names that the evaluator gets for a `js:` step, in this order.
const BOUND: [&str; 5] = ["code", "input", "args", "steps", "as"];

/// The arguments of a `js:` step in the order in which the evaluator got them. They were recorded without their order.
pub(super) fn in_order(mut recorded: Map<String, Value>) -> Option<Map<String, Value>> {
    let ordered: Option<Map<_, _>> =
        BOUND.iter().map(|name| Some(((*name).to_owned(), recorded.remove(*name)?))).collect();
    ordered.filter(|_| recorded.is_empty())
}

/// The earlier steps that a piece of code can read. Other steps are left out of its arguments, so that the step's
/// action does not depend on them.
#[derive(Debug, PartialEq)]
enum Seen<'c> {
    /// Only the steps that the code names: all its uses of `steps` are `steps.x` or `steps["x"]`.
    Named(BTreeSet<&'c str>),
    All,
}

/// Other names through which code reaches, or may reach, its own bindings. The evaluator makes a function of the code,
/// so its parameters are in `arguments` and in reach of `eval`.
const OTHER_WAYS: [&str; 5] = ["arguments", "eval", "Function", "this", "globalThis"];

/// Properties that every object has; `steps.toString` is no use of a step.
const OF_EVERY_OBJECT: [&str; 12] = [
    "__defineGetter__",
    "__defineSetter__",
    "__lookupGetter__",
    "__lookupSetter__",
    "__proto__",
    "constructor",
    "hasOwnProperty",
    "isPrototypeOf",
    "propertyIsEnumerable",
    "toLocaleString",
    "toString",
    "valueOf",
];

impl<'c> Seen<'c> {
    /// Reads words, not JavaScript: a word in a comment or a text is also taken as a use. So the result may name more
    /// steps than the code uses, and never fewer.
    fn from_code(code: &'c str) -> Self {
        let mut names = BTreeSet::new();
        let mut rest = code;
        while let Some(start) = rest.find(|c| is_word(c) || c == '\\') {
            rest = &rest[start..];
            if let Some(escaped) = rest.strip_prefix('\\') {
                // A name may be spelled with escapes.
                if spells_letter(escaped) {
                    return Self::All;
                }
                rest = escaped;
                continue;
            }
            let (word, after) = rest.split_at(rest.find(|c| !is_word(c)).unwrap_or(rest.len()));
            rest = after;
            if OTHER_WAYS.contains(&word) {
                return Self::All;
            }
            if word == "steps" {
                match property_name(after) {
                    Some(name) if !OF_EVERY_OBJECT.contains(&name) => names.insert(name),
                    _ => return Self::All,
                };
            }
        }
        Self::Named(names)
    }
}

/// The name in `.x`, `["x"]` or `['x']`, with or without `?.`, at the start of a text.
fn property_name(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let (text, dotted) = match text.strip_prefix("?.").or_else(|| text.strip_prefix('.')) {
        Some(rest) => (rest.trim_start(), true),
        None => (text, false),
    };
    if let Some(inside) = text.strip_prefix('[') {
        let inside = inside.trim_start();
        let quote = inside.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let (name, after) = inside[1..].split_once(quote)?;
        return (after.trim_start().starts_with(']') && !name.contains(['\\', '\n'])).then_some(name);
    }
    let name = &text[..text.find(|c| !is_word(c)).unwrap_or(text.len())];
    // A name that continues with an escape is another name.
    let ends = !text[name.len()..].starts_with('\\');
    (dotted && !name.is_empty() && ends).then_some(name)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '\u{200c}' | '\u{200d}')
}

/// True if the text after a backslash is an escaped ASCII letter: `u0065`, `u{65}`.
fn spells_letter(escaped: &str) -> bool {
    let Some(digits) = escaped.strip_prefix('u') else { return false };
    let digits = match digits.strip_prefix('{') {
        Some(rest) => rest.split('}').next(),
        None => digits.get(..4),
    };
    let number = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    number.and_then(char::from_u32).is_some_and(|c| c.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_steps_named_literally_narrow_what_code_sees() {
        let named = |names: &[&'static str]| Seen::Named(names.iter().copied().collect());
        for (code, seen) in [
            ("input.length", named(&[])),
            ("mysteps + stepsy + 'we'", named(&[])),
            ("steps.a.total + steps . b?.x", named(&["a", "b"])),
            ("steps?.a ?? steps?.['b-c'] ?? steps[ \"d\" ].e", named(&["a", "b-c", "d"])),
            ("({...steps.a, n: \"\\u00e9\"})", named(&["a"])),
            ("steps\n  .aa", named(&["aa"])),
            ("steps.größe", named(&["größe"])),
        ] {
            assert_eq!(Seen::from_code(code), seen, "{code}");
        }
        for code in [
            "Object.keys(steps)",
            "const name='we'+'b'; return steps[name]",
            "for (const k in steps) n++",
            "const {a} = steps; return a",
            "steps[`a`]",
            "steps['a' + 'b']",
            "steps['\\x61']",
            "steps.a\\u0061",
            "steps.hasOwnProperty('a')",
            "steps/**/.a",
            "st\\u0065ps",
            "st\\u{65}ps",
            "st\\u{000065}ps",
            "arguments[2]",
            "eval('ste' + 'ps')",
            "steps.a + Object.entries(steps).length",
        ] {
            assert_eq!(Seen::from_code(code), Seen::All, "{code}");
        }
    }
}
