//! Text with arguments and references.
//!
//! `${name}` stands for an argument, and `$id.path` for a part of an earlier step's result. Arguments
//! are filled in first, so the value of an argument may contain references; the values of references
//! are not filled in again. There is no quoting and no escape.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde_json::{Map, Value};

use lobster_base::json;

/// Results that references can read.
pub trait Scope {
    /// Looks a path up in the result of a step, for example `["json", "n"]`.
    ///
    /// # Errors
    /// The result exists but cannot be read.
    fn look_up_path(&self, id: &str, path: &[&str]) -> Result<Lookup<'_>, ExprError>;
}

/// Result of looking up a path.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup<'a> {
    /// No step with this id has a result yet.
    UnknownStep,
    /// The step has a result without that path.
    Missing,
    /// Like `Missing`, but the path leads into the `json` of a step whose output is not JSON.
    NotJson,
    Found(Cow<'a, Value>),
}

/// Reason why a template or condition has no value.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ExprError {
    #[error("Unknown step reference: {0}")]
    UnknownStep(Reference),
    /// A condition or a `switch` reads the JSON of a step whose output is not JSON.
    #[error(
        "`${0}` has no value to decide by: the output of step {id} is not JSON. Let the step print JSON alone, or test \
         `${id}.stdout`",
        id = .0.id
    )]
    NotJson(Reference),
    /// `${env.NAME}` of a variable that may not be inserted into this step.
    #[error("`${{env.{name}}}` is not filled in: {why}")]
    NotInserted { name: String, why: String },
    /// A stored result could not be read.
    #[error("cannot read {reference}: {source}")]
    Unreadable { reference: Reference, source: Arc<dyn Error + Send + Sync> },
}

#[cfg(test)]
impl PartialEq for ExprError {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

/// `$id.path`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    pub id: String,
    /// Path with at least one segment.
    pub path: Vec<String>,
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.id, self.path.join("."))
    }
}

impl Reference {
    /// Looks up the value in a scope.
    ///
    /// # Errors
    /// Errors of the scope.
    pub fn look_up<'s>(&self, scope: &'s dyn Scope) -> Result<Lookup<'s>, ExprError> {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        scope.look_up_path(&self.id, &path)
    }
}

/// Replaces each `${name}` that is an argument with the argument's text (ECMA-262 `String(value)`);
/// others stay unchanged.
#[must_use]
pub fn fill_args<'t>(text: &'t str, args: &Map<String, Value>) -> Cow<'t, str> {
    let mut out = String::new();
    let mut copied = 0;
    for (range, name) in args_in(text) {
        if let Some(value) = args.get(name) {
            out.push_str(&text[copied..range.start]);
            out.push_str(&json::js_string(value));
            copied = range.end;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// Replaces each reference to a known step with its text. References to unknown steps stay unchanged,
/// as they may be meant for the shell.
///
/// # Errors
/// A result cannot be read.
pub fn fill_refs(text: &str, scope: &dyn Scope) -> Result<String, ExprError> {
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    for (range, reference) in references_in(text) {
        let shown = match reference.look_up(scope)? {
            Lookup::UnknownStep => continue,
            Lookup::Missing | Lookup::NotJson => value_as_text(None, &reference),
            Lookup::Found(value) => value_as_text(Some(&value), &reference),
        };
        out.push_str(&text[copied..range.start]);
        out.push_str(&shown);
        copied = range.end;
    }
    out.push_str(&text[copied..]);
    Ok(out)
}

/// Fills in arguments, then references.
///
/// # Errors
/// As [`fill_refs`].
pub fn fill_placeholders(
    text: &str,
    args: &Map<String, Value>,
    scope: &dyn Scope,
) -> Result<String, ExprError> {
    fill_refs(&fill_args(text, args), scope)
}

/// Like [`fill_placeholders`], for a value of `env:`, in which `${env.NAME}` is replaced by the result of `env`.
/// That result is not filled in again, and `${env.NAME}` in the value of an argument or result is not
/// replaced.
///
/// # Errors
/// As [`fill_refs`], and errors of `env`.
pub fn fill_variable(
    text: &str,
    args: &Map<String, Value>,
    scope: &dyn Scope,
    env: &dyn Fn(&str) -> Result<String, ExprError>,
) -> Result<String, ExprError> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, name, after)) = inherited_in(rest) {
        out.push_str(&fill_placeholders(before, args, scope)?);
        out.push_str(&env(name)?);
        rest = after;
    }
    out.push_str(&fill_placeholders(rest, args, scope)?);
    Ok(out)
}

/// The first `${env.NAME}`: the text before it, the name, and the text after it.
fn inherited_in(text: &str) -> Option<(&str, &str, &str)> {
    text.match_indices("${env.").find_map(|(at, opening)| {
        let (name, after) = text[at + opening.len()..].split_once('}')?;
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        (is_name && !name.is_empty()).then(|| (&text[..at], name, after))
    })
}

/// Text of a value inside other text.
fn value_as_text(value: Option<&Value>, reference: &Reference) -> String {
    match value {
        None | Some(Value::Null) => match reference.path.as_slice() {
            [only] if value.is_none() && (only == "approved" || only == "skipped") => "false".to_owned(),
            _ => String::new(),
        },
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Bool(_) | Value::Number(_))) => json::js_string(value),
        Some(value @ (Value::Array(_) | Value::Object(_))) => json::compact(value),
    }
}

/// Value of the text of `stdin:` or `for_each:`.
#[derive(Clone, Debug, PartialEq)]
pub enum Resolved<'a> {
    /// A reference to a part that a known step does not have.
    Missing,
    /// Exactly one reference: the value itself.
    Value(Cow<'a, Value>),
    /// Any other text, with everything filled in.
    Text(String),
}

/// Fills in arguments. If the trimmed text is then exactly one reference, the result is its value,
/// otherwise the text with references filled in.
///
/// # Errors
/// A sole reference names an unknown step, or a result cannot be read.
pub fn resolve_text<'s>(
    text: &str,
    args: &Map<String, Value>,
    scope: &'s dyn Scope,
) -> Result<Resolved<'s>, ExprError> {
    let text = fill_args(text, args);
    let Some(reference) = strict_reference(&text) else {
        return Ok(Resolved::Text(fill_refs(&text, scope)?));
    };
    match reference.look_up(scope)? {
        Lookup::UnknownStep => Err(ExprError::UnknownStep(reference)),
        Lookup::Missing | Lookup::NotJson => Ok(Resolved::Missing),
        Lookup::Found(value) => Ok(Resolved::Value(value)),
    }
}

/// The reference, if the whole trimmed text is exactly one.
#[must_use]
pub fn strict_reference(text: &str) -> Option<Reference> {
    let text = json::trim_js(text);
    let (end, reference) = reference_at(text)?;
    (end == text.len()).then_some(reference)
}

/// All references in a text, from left to right.
pub fn references_in(text: &str) -> impl Iterator<Item = (Range<usize>, Reference)> {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let start = from + text.get(from..)?.find('$')?;
            match reference_at(&text[start..]) {
                Some((len, reference)) => {
                    from = start + len;
                    return Some((start..from, reference));
                }
                None => from = start + 1,
            }
        }
    })
}

/// All `${name}` in a text, from left to right.
pub fn args_in(text: &str) -> impl Iterator<Item = (Range<usize>, &str)> {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let start = from + text.get(from..)?.find("${")?;
            let name_start = start + 2;
            let len = text[name_start..].bytes().take_while(|b| is_id_byte(*b)).count();
            let end = name_start + len;
            if len > 0 && text[end..].starts_with('}') {
                from = end + 1;
                return Some((start..from, &text[name_start..end]));
            }
            from = start + 1;
        }
    })
}

/// True if a text does not depend on arguments or results.
#[must_use]
pub fn is_constant(text: &str) -> bool {
    args_in(text).next().is_none() && references_in(text).next().is_none()
}

pub(crate) fn is_id_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// A reference at the start of the text, and its length.
pub(crate) fn reference_at(text: &str) -> Option<(usize, Reference)> {
    let bytes = text.strip_prefix('$')?.as_bytes();
    let id = bytes.iter().take_while(|b| is_id_byte(**b)).count();
    let mut at = id;
    let mut path = Vec::new();
    while bytes.get(at) == Some(&b'.') {
        let segment = bytes[at + 1..].iter().take_while(|b| is_path_byte(**b)).count();
        if segment == 0 {
            break;
        }
        path.push(text[at + 2..at + 2 + segment].to_owned());
        at += 1 + segment;
    }
    if id == 0 || path.is_empty() {
        return None;
    }
    Some((at + 1, Reference { id: text[1..=id].to_owned(), path }))
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Results by id, all in memory.
    pub(crate) struct Results(pub(crate) Value);

    impl Scope for Results {
        fn look_up_path(&self, id: &str, path: &[&str]) -> Result<Lookup<'_>, ExprError> {
            let Some(record) = self.0.get(id) else { return Ok(Lookup::UnknownStep) };
            Ok(json::descend(record, path)
                .map_or(Lookup::Missing, |value| Lookup::Found(Cow::Borrowed(value))))
        }
    }

    fn sample_scope() -> Results {
        Results(json!({
            "a": {"id": "a", "json": {"n": 1, "s": "x y", "arr": [{"k": "v"}], "nul": null, "t": true, "f": 1.50,
                  "big": 1e21, "neg": -0.0}, "stdout": "hi\n"},
            "a-b": {"id": "a-b", "stdout": "dash"},
            "sk": {"id": "sk", "skipped": true},
        }))
    }

    #[test]
    fn references_render_as_in_the_incumbent() {
        for (text, expected) in [
            ("n=$a.json.n arr=$a.json.arr k=$a.json.arr.0.k", r#"n=1 arr=[{"k":"v"}] k=v"#),
            ("nul=$a.json.nul t=$a.json.t miss=$a.json.zz", "nul= t=true miss="),
            ("$a.skipped $a.approved $sk.skipped $a.json.skipped|", "false false true |"),
            ("unk=$zz.json id=$a.id neg=$a.json.arr.-1", r#"unk=$zz.json id=a neg=[{"k":"v"}].-1"#),
            ("$$a.json.n \\$a.json.n $a-b.stdout", "$1 \\1 dash"),
            ("$a.json.n.txt|$a.json.s.", "|x y."),
            ("$a.json.f $a.json.big $a.json.neg", "1.5 1e+21 0"),
            ("$a.json.arr.length $a.json.arr.1 $a.json.arr.00.k $a.json.s.0", "  v "),
            ("$a $a. $. $ $é.x ${a.json.n} $HOME", "$a $a. $. $ $é.x ${a.json.n} $HOME"),
            ("$a.json.constructor|$a.__proto__", "|"),
            ("$a.stdout", "hi\n"),
        ] {
            assert_eq!(fill_refs(text, &sample_scope()).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn arguments_fill_in_once_and_may_bring_references() {
        let args = json!({"x": "$a.json.n and ${y}", "y": "Y", "o": {"a": 1}, "l": [1, null], "nul": null, "c-d": 2});
        let args = args.as_object().unwrap();
        assert_eq!(
            fill_args("${x} ${y} ${o} ${l} ${nul} ${c-d} ${nope} ${a.b} $x ${ ${}", args),
            "$a.json.n and ${y} Y [object Object] 1, null 2 ${nope} ${a.b} $x ${ ${}"
        );
        assert_eq!(fill_placeholders("<${x}>", args, &sample_scope()).as_deref(), Ok("<1 and ${y}>"));
        assert_eq!(fill_args("$${y}${y}", args), "$YY");
        assert_eq!(fill_args("${${y}}", args), "${Y}");
        assert!(matches!(fill_args("no", args), Cow::Borrowed("no")));
    }

    #[test]
    fn variables_are_inserted_where_the_file_names_them_and_nowhere_else() {
        let args = json!({"x": "${env.HOME}", "env": "e"});
        let env = |name: &str| match name {
            "PATH" => Ok("/bin:$a.json.n:${x}".to_owned()),
            _ => Err(ExprError::NotInserted { name: name.to_owned(), why: "no".to_owned() }),
        };
        let fill = |text: &str| fill_variable(text, args.as_object().unwrap(), &sample_scope(), &env);
        assert_eq!(
            fill("${x} $a.json.n:${env.PATH}:${env}${env.}${env.a b}").as_deref(),
            Ok("${env.HOME} 1:/bin:$a.json.n:${x}:e${env.}${env.a b}")
        );
        assert_eq!(
            fill("${env.HOME}").map_err(|error| error.to_string()),
            Err("`${env.HOME}` is not filled in: no".to_owned())
        );
    }

    #[test]
    fn a_sole_reference_is_the_value_itself() {
        let (args, scope) = (Map::new(), sample_scope());
        let of = |text: &str| resolve_text(text, &args, &scope);
        assert_eq!(of("  $a.json.arr \n"), Ok(Resolved::Value(Cow::Owned(json!([{"k": "v"}])))));
        assert_eq!(of("$a.json.nul"), Ok(Resolved::Value(Cow::Owned(Value::Null))));
        assert_eq!(of("$a.json.zz"), Ok(Resolved::Missing));
        assert_eq!(of("$a.json.arr."), Ok(Resolved::Text(r#"[{"k":"v"}]."#.to_owned())));
        assert_eq!(
            of("$nope.stdout").map_err(|e| e.to_string()),
            Err("Unknown step reference: nope.stdout".to_owned())
        );
    }

    #[test]
    fn strict_references() {
        let shown = |text: &str| strict_reference(text).map(|r| r.to_string());
        assert_eq!(shown(" $a-1.json.0 "), Some("a-1.json.0".to_owned()));
        for text in ["$a", "$a.json x", "$a.json[0]", "a.json", "$a..b", "", "${a.b}", "$a.b-c"] {
            assert_eq!(shown(text), None, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(10_000) })]

        #[test]
        fn any_text_is_filled_without_panic(text in "[$a-z.{}0-9 \\\\é\"'_-]{0,60}") {
            let args = json!({"a": "$a.json", "é": 1, "x": null});
            let filled = fill_placeholders(&text, args.as_object().unwrap(), &sample_scope()).unwrap();
            if !text.contains('$') {
                prop_assert_eq!(filled, text.clone());
            }
            for (range, reference) in references_in(&text) {
                prop_assert_eq!(&text[range], format!("${reference}"));
            }
            for (range, name) in args_in(&text) {
                prop_assert_eq!(&text[range], format!("${{{name}}}"));
            }
        }
    }
}
