//! Finds the parts of an action that differ between two runs.
//!
//! An action is identified by the digest of its pre-image. The pre-images are kept, so that different digests
//! can be explained.

use serde::Serialize;
use serde_json::Value;

use super::contents;
use super::json_path::{self, DifferencePlace};
use lobster_base::digest::Digest;
use lobster_base::text::{self, Count};
use lobster_store::Store;

/// A part of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The kind of action.
    Kind,
    /// The program.
    Component,
    /// The words of a native command.
    Command,
    /// A program that a command would start, known only by its digest.
    Program,
    /// An argument.
    Argument,
    /// The order of the arguments or the format of their numbers, known only by a digest.
    Spelling,
    /// An environment variable, known only by its name and a digest.
    Environment,
    /// The input.
    Input,
    /// A file that the step declares as its input, known only by its digest.
    InputFile,
    /// The request of a built-in effect.
    Request,
    /// The working directory.
    Directory,
    /// The directories it may use.
    Files,
    /// Another permission.
    Grant,
    /// A resource limit.
    Limit,
    /// The policy that decided it.
    Policy,
    /// The execution profile of the engine.
    Profile,
    /// The definition of a step without its own action.
    Definition,
    /// The result, which is not part of the action.
    Result,
    /// A part that is unknown to this version.
    Other,
}

impl Part {
    /// Name in sentences.
    #[must_use]
    pub fn noun(self) -> &'static str {
        match self {
            Self::Kind => "the kind of action",
            Self::Component => "the component",
            Self::Command => "the command",
            Self::Program => "the program",
            Self::Argument => "the argument",
            Self::Spelling => "the order or spelling of the arguments",
            Self::Environment => "the environment variable",
            Self::Input => "the input",
            Self::InputFile => "the input file",
            Self::Request => "the request",
            Self::Directory => "the working directory",
            Self::Files => "the contents of the granted directory",
            Self::Grant => "the grant",
            Self::Limit => "the limit",
            Self::Policy => "the policy",
            Self::Profile => "the engine profile",
            Self::Definition => "its definition",
            Self::Result => "its",
            Self::Other => "the part",
        }
    }
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    pub part: Part,
    /// Name, if there are several: of an argument or a variable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Path inside the part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Values before and now; null if missing.
    pub was: Value,
    pub is: Value,
    /// The step with this output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made_by: Option<String>,
}

impl Difference {
    /// The difference in one line.
    #[must_use]
    pub fn to_sentence(&self) -> String {
        let mut text = self.part.noun().to_owned();
        for word in [&self.name, &self.path].into_iter().flatten() {
            text.push(' ');
            text.push_str(word);
        }
        if let Some(step) = &self.made_by {
            text.push_str(&format!(" (made by step {step})"));
        }
        format!("{text}: {} → {}", describe_value(&self.was), describe_value(&self.is))
    }

    pub(super) fn new(part: Part, was: &Value, is: &Value) -> Self {
        Self { part, name: None, path: None, was: was.clone(), is: is.clone(), made_by: None }
    }

    pub(super) fn at(part: Part, place: DifferencePlace) -> Self {
        let (path, was, is) = place.into_parts();
        Self { part, name: None, path, was, is, made_by: None }
    }
}

/// A value in one line: shortened, and digests in their usual format.
fn describe_value(value: &Value) -> String {
    const MAX: usize = 60;
    let text = match value {
        Value::Null => return "nothing".to_owned(),
        Value::String(text) if text.parse::<Digest>().is_ok() => return format!("blake3:{}…", &text[..12]),
        other => lobster_base::json::compact(other),
    };
    text::fit(&text, MAX, Count::Chars).into_owned()
}

/// Order in which parts are compared: the likeliest reasons for a difference first.
const ORDER: [(&str, Part); 16] = [
    ("kind", Part::Kind),
    ("component", Part::Component),
    ("argv", Part::Command),
    ("programs", Part::Program),
    ("args", Part::Argument),
    ("given", Part::Spelling),
    ("env", Part::Environment),
    ("input", Part::Input),
    ("stdin", Part::Input),
    ("inputs", Part::InputFile),
    ("detail", Part::Request),
    ("cwd", Part::Directory),
    ("grants", Part::Grant),
    ("limits", Part::Limit),
    ("policy", Part::Policy),
    ("profile", Part::Profile),
];

/// Differences that are listed within one part.
const MAX_PLACES: usize = 100;

/// All parts in which two pre-images differ. Inputs are compared by their contents if the store has them.
pub(super) fn differences(store: Option<&Store>, was: &Value, is: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    for (key, part) in ORDER {
        let (old, new) = (&was[key], &is[key]);
        // Other arguments also change the text, and earlier profiles had no digest of it.
        let follows = part == Part::Spelling && ["args", "profile"].iter().any(|key| was[key] != is[key]);
        if old == new || follows {
            continue;
        }
        match part {
            Part::Argument | Part::Limit => compare_members(part, old, new, &mut found),
            Part::Environment | Part::InputFile | Part::Program => names_only(part, old, new, &mut found),
            Part::Grant => compare_grants(old, new, &mut found),
            Part::Input => found.push(compare_inputs(store, old, new)),
            Part::Command | Part::Request => compare_inside(part, old, new, &mut found),
            Part::Kind
            | Part::Component
            | Part::Spelling
            | Part::Directory
            | Part::Files
            | Part::Policy
            | Part::Profile
            | Part::Definition
            | Part::Result
            | Part::Other => {
                found.push(Difference::new(part, old, new));
            }
        }
        if part == Part::Kind {
            return found; // nothing else of them can be compared
        }
    }
    let known = |key: &str| ORDER.iter().any(|(name, _)| *name == key);
    for place in json_path::all_differences(was, is, MAX_PLACES) {
        let key = place.path.trim_start_matches("$.").split(['.', '[']).next().unwrap_or_default().to_owned();
        if !known(&key) {
            found.push(Difference { name: Some(key), ..Difference::at(Part::Other, place) });
        }
    }
    found
}

/// Compares the members of an object, each by its name and with the place inside.
pub(super) fn compare_members(part: Part, old: &Value, new: &Value, found: &mut Vec<Difference>) {
    each_name(old, new, |name, old, new| {
        let place = json_path::first_difference(old, new);
        let found_at =
            place.map_or_else(|| Difference::new(part, old, new), |place| Difference::at(part, place));
        let path = found_at.path.filter(|path| path != "$");
        found.push(Difference { name: Some(name.to_owned()), path, ..found_at });
    });
}

/// Compares the members of an object that are known only by their digests.
fn names_only(part: Part, old: &Value, new: &Value, found: &mut Vec<Difference>) {
    each_name(old, new, |name, old, new| {
        found.push(Difference { name: Some(name.to_owned()), ..Difference::new(part, old, new) });
    });
}

fn compare_grants(old: &Value, new: &Value, found: &mut Vec<Difference>) {
    each_name(old, new, |name, old, new| match name {
        "env" => names_only(Part::Environment, old, new, found),
        "read" | "write" => {
            let mount = |value: &Value, index: usize| value.get(index).map(|dir| dir["to"].clone());
            for place in json_path::all_differences(old, new, MAX_PLACES) {
                let index = place
                    .path
                    .trim_start_matches("$[")
                    .split(']')
                    .next()
                    .and_then(|text| text.parse().ok())
                    .unwrap_or(0);
                let dir = mount(new, index)
                    .or_else(|| mount(old, index))
                    .and_then(|dir| dir.as_str().map(str::to_owned));
                found.push(Difference { name: dir, path: None, ..Difference::at(Part::Files, place) });
            }
        }
        _ => found.push(Difference { name: Some(name.to_owned()), ..Difference::new(Part::Grant, old, new) }),
    });
}

fn compare_inside(part: Part, old: &Value, new: &Value, found: &mut Vec<Difference>) {
    for place in json_path::all_differences(old, new, MAX_PLACES) {
        found.push(Difference::at(part, place));
    }
}

fn compare_inputs(store: Option<&Store>, old: &Value, new: &Value) -> Difference {
    let inside = match (store, input_digest(old), input_digest(new)) {
        (Some(store), Some(was), Some(is)) => contents::first_difference(store, &was, &is),
        _ => None,
    };
    inside.map_or_else(|| Difference::new(Part::Input, old, new), |place| Difference::at(Part::Input, place))
}

/// The digest of an action's input, in any of the formats of pre-images.
pub(super) fn input_digest(input: &Value) -> Option<Digest> {
    let text = input.as_str().or_else(|| input["bytes"].as_str()).or_else(|| input["items"].as_str())?;
    text.parse().ok()
}

fn each_name(old: &Value, new: &Value, mut differs: impl FnMut(&str, &Value, &Value)) {
    let names = |value: &Value| {
        value.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>()).unwrap_or_default()
    };
    let mut all = names(old);
    all.extend(names(new).into_iter().filter(|name| old.get(name).is_none()));
    for name in all {
        if old[&name] != new[&name] || old.get(&name).is_some() != new.get(&name).is_some() {
            differs(&name, &old[&name], &new[&name]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn hex_digest(n: u64) -> String {
        Digest::of_bytes(&n.to_le_bytes()).to_string()
    }

    /// A random action, and the parts in which it can be changed.
    fn action() -> impl Strategy<Value = Value> {
        (any::<bool>(), any::<u64>(), prop::collection::vec("[a-z]{1,6}", 1..4), prop::collection::btree_map("[A-Z]{1,5}", any::<u64>(), 1..4), prop::collection::btree_map("[a-z]{1,5}", any::<i64>(), 1..4)).prop_map(
            |(native, n, words, env, args)| {
                let env: serde_json::Map<_, _> = env.into_iter().map(|(name, n)| (name, json!(hex_digest(n)))).collect();
                if native {
                    json!({ "kind": "native", "argv": words, "stdin": hex_digest(n), "env": env, "cwd": format!("/{n}"),
                            "limits": { "stdout": n } })
                } else {
                    json!({ "kind": "component", "profile": "component@1", "component": hex_digest(n), "args": args, "given": hex_digest(n),
                            "input": { "bytes": hex_digest(n) },
                            "grants": { "read": [{ "to": "/in", "tree": hex_digest(n) }], "write": [], "env": env, "net": [], "clock": false, "random": false },
                            "limits": { "fuel": n, "memory": n } })
                }
            },
        )
    }

    /// Changes one part, and returns it.
    fn change(action: &mut Value, which: usize) -> (Part, Option<String>) {
        let first =
            |map: &Value| map.as_object().and_then(|map| map.keys().next().cloned()).unwrap_or_default();
        if action["kind"] == "native" {
            match which % 6 {
                0 => {
                    action["argv"][0] = json!("OTHER");
                    (Part::Command, None)
                }
                1 => {
                    action["stdin"] = json!("0".repeat(64));
                    (Part::Input, None)
                }
                2 => {
                    let name = first(&action["env"]);
                    action["env"][&name] = json!("changed");
                    (Part::Environment, Some(name))
                }
                3 => {
                    action["cwd"] = json!("relative");
                    (Part::Directory, None)
                }
                4 => {
                    action["limits"]["stdout"] = json!("none");
                    (Part::Limit, Some("stdout".into()))
                }
                _ => {
                    action["env"]["new-name"] = json!("x");
                    (Part::Environment, Some("new-name".into()))
                }
            }
        } else {
            match which % 10 {
                0 => {
                    action["component"] = json!("0".repeat(64));
                    (Part::Component, None)
                }
                1 => {
                    let name = first(&action["args"]);
                    action["args"][&name] = json!("changed");
                    (Part::Argument, Some(name))
                }
                2 => {
                    action["input"] = json!({ "bytes": "0".repeat(64) });
                    (Part::Input, None)
                }
                3 => {
                    let name = first(&action["grants"]["env"]);
                    action["grants"]["env"][&name] = json!("changed");
                    (Part::Environment, Some(name))
                }
                4 => {
                    action["grants"]["read"][0]["tree"] = json!("changed");
                    (Part::Files, Some("/in".into()))
                }
                5 => {
                    action["grants"]["clock"] = json!(true);
                    (Part::Grant, Some("clock".into()))
                }
                6 => {
                    action["limits"]["fuel"] = json!("more");
                    (Part::Limit, Some("fuel".into()))
                }
                7 => {
                    action["profile"] = json!("component@2");
                    (Part::Profile, None)
                }
                8 => {
                    action["given"] = Value::Null;
                    (Part::Spelling, None)
                }
                _ => {
                    action["kind"] = json!("other");
                    (Part::Kind, None)
                }
            }
        }
    }

    proptest! {
        #[test]
        fn exactly_the_changed_part_is_named(was in action(), which in 0_usize..60) {
            let mut is = was.clone();
            let expected = change(&mut is, which);
            let found: Vec<_> = differences(None, &was, &is).into_iter().map(|d| (d.part, d.name)).collect();
            prop_assert_eq!(found, vec![expected]);
            prop_assert_eq!(differences(None, &was, &was), vec![]);
        }
    }

    #[test]
    fn inputs_are_compared_by_their_contents() {
        let store = Store::in_memory().unwrap();
        let put =
            |value: Value| store.put_blob(lobster_base::json::compact(&value).as_bytes()).unwrap().digest;
        let (a, b) = (put(json!([{ "id": 1, "n": "x" }])), put(json!([{ "id": 1, "n": "y" }])));
        let found = differences(
            Some(&store),
            &json!({ "input": { "items": a } }),
            &json!({ "input": { "items": b } }),
        );
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].path.as_deref(), &found[0].was, &found[0].is),
            (Some("$[0].n"), &json!("x"), &json!("y"))
        );
    }

    #[test]
    fn a_part_that_is_new_to_this_version_still_shows() {
        let found = differences(None, &json!({ "kind": "x", "flux": 1 }), &json!({ "kind": "x", "flux": 2 }));
        assert_eq!(
            found,
            [Difference {
                name: Some("flux".into()),
                path: Some("$.flux".into()),
                ..Difference::new(Part::Other, &json!(1), &json!(2))
            }]
        );
    }
}
