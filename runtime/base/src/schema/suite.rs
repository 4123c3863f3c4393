//! The official test suite of JSON Schema for draft 2020-12 (github.com/json-schema-org/JSON-Schema-Test-Suite at
//! 44401e0c, MIT, copyright Julian Berman), one group of cases per line, without the cases about other documents,
//! vocabularies, formats and contents.

use serde_json::Value;

use super::{Schema, validate};
use crate::json::parse;

const SUITE: &str = include_str!("suite.json");

/// Groups with results that differ from the suite. Each of these schemas is rejected: it refers to another document or
/// to the meta-schema of its draft, or a `$dynamicRef` in it could lead to more than one place.
const REFUSED: &[&str] = &[
    "defs: validate definition against metaschema",
    "dynamicRef: A $dynamicRef resolves to the first $dynamicAnchor still in scope that is encountered when the schema is evaluated",
    "dynamicRef: A $dynamicRef with intermediate scopes that don't include a matching $dynamicAnchor does not affect dynamic scope resolution",
    "dynamicRef: A $dynamicRef that initially resolves to a schema with a matching $dynamicAnchor resolves to the first $dynamicAnchor in the dynamic scope",
    "dynamicRef: multiple dynamic paths to the $dynamicRef keyword",
    "dynamicRef: after leaving a dynamic scope, it is not used by a $dynamicRef",
    "dynamicRef: $dynamicRef skips over intermediate resources - direct reference",
    "dynamicRef: strict-tree schema, guards against misspelled properties",
    "dynamicRef: tests for implementation dynamic anchor and reference link",
    "dynamicRef: $ref and $dynamicAnchor are independent of order - $defs first",
    "dynamicRef: $ref and $dynamicAnchor are independent of order - $ref first",
    "dynamicRef: $ref to $dynamicRef finds detached $dynamicAnchor",
    "dynamicRef: $dynamicRef avoids the root of each schema, but scopes are still registered",
    "enum: empty enum",
    "ref: remote ref, containing refs itself",
    "unevaluatedItems: unevaluatedItems with $dynamicRef",
    "unevaluatedProperties: unevaluatedProperties with $dynamicRef",
];

#[test]
fn foreign_schemas_mean_what_the_official_suite_says() {
    let groups = parse(SUITE).unwrap();
    let mut checked = 0;
    let mut wrong = Vec::new();
    for group in groups.as_array().unwrap() {
        let name = format!("{}: {}", group["file"].as_str().unwrap(), group["description"].as_str().unwrap());
        let found = find_differences(group, &mut checked);
        let refused = Schema::compile_foreign(&group["schema"]).is_err();
        if refused != REFUSED.contains(&name.as_str()) || !refused && !found.is_empty() {
            wrong.push(format!(
                "{name}{}\n  {}",
                if refused { " is refused" } else { "" },
                found.join("\n  ")
            ));
        }
    }
    assert!(checked > 1000, "{checked}");
    assert!(wrong.is_empty(), "{} groups:\n{}", wrong.len(), wrong.join("\n"));
}

fn find_differences(group: &Value, checked: &mut usize) -> Vec<String> {
    let schema = match Schema::compile_foreign(&group["schema"]) {
        Ok(schema) => schema,
        Err(error) => return vec![error],
    };
    let cases = group["tests"].as_array().unwrap();
    *checked += cases.len();
    let wrong = cases.iter().filter(|case| {
        let error = schema.first_error(&case["data"]);
        let all = schema.all_errors(&case["data"]);
        error.is_none() != case["valid"].as_bool().unwrap() || error.is_none() != all.is_empty()
    });
    wrong.map(|case| case["description"].to_string()).collect()
}

#[test]
fn checking_ends_whatever_the_schema_asks_for() {
    let mut defs = serde_json::Map::new();
    for at in 0..60 {
        let next = serde_json::json!({"$ref": format!("#/$defs/d{}", at + 1)});
        defs.insert(format!("d{at}"), serde_json::json!({"allOf": [next, next]}));
    }
    defs.insert("d60".to_owned(), Value::Bool(true));
    for root in
        [serde_json::json!({"$ref": "#/$defs/d0"}), serde_json::json!({"not": {"$ref": "#/$defs/d0"}})]
    {
        let mut root = root;
        root["$defs"] = Value::Object(defs.clone());
        let schema = Schema::compile_foreign(&root).unwrap();
        let errors = validate::errors_within(&schema, &Value::Null, false, 10_000);
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].to_string(), "/: checking it takes more than 10000 steps");
    }
}
