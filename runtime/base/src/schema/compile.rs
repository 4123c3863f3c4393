//! Compiles schema documents into [`Node`]s.

use std::collections::HashMap;
use std::ptr;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::{
    Additional, ArrayRules, Condition, Contains, Dialect, Items, Node, NumberRules, ObjectRules, Pattern,
    Schema, StringRules, Type, Types, Unique, validate,
};
use crate::json::exact::Exact;
use crate::json::{js_string, parse};
use crate::percent;

/// The meta-schema of draft-07 (json-schema.org, AFL-2.1 or BSD-3-Clause).
const META_TEXT: &str = include_str!("draft-07.json");
const META_ID: &str = "http://json-schema.org/draft-07/schema";

static META: LazyLock<Result<(Value, Schema), String>> = LazyLock::new(|| {
    let document = parse(META_TEXT).map_err(|error| error.to_string())?;
    let schema = Compiler::run(&document, None, Dialect::Ajv)?;
    Ok((document, schema))
});

/// Steps after which a pattern that needs backtracking gives up instead of hanging.
const BACKTRACKING_STEPS: usize = 1_000_000;

/// The same for patterns in foreign schemas.
const FOREIGN_BACKTRACKING_STEPS: usize = 10_000;

/// Allowed values of `$schema` in a foreign schema.
const DRAFTS: [&str; 6] = [
    "http://json-schema.org/draft-06/schema",
    META_ID,
    "http://json-schema.org/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/schema",
];

pub(super) fn compile_ajv(document: &Value) -> Result<Schema, String> {
    if !document.is_object() && !document.is_boolean() {
        return Err("schema must be object or boolean".to_owned());
    }
    if let Some(other) = document.get("$schema").filter(|uri| !is_draft_07(uri)) {
        return Err(format!("no schema with key or ref \"{}\"", js_string(other)));
    }
    check_and_compile(document, Dialect::Ajv)
}

pub(super) fn compile_foreign(document: &Value) -> Result<Schema, String> {
    if !document.is_object() && !document.is_boolean() {
        return Err("a schema is an object or a boolean".to_owned());
    }
    let known = |uri: &&Value| uri.as_str().is_some_and(|uri| DRAFTS.contains(&uri.trim_end_matches('#')));
    if let Some(other) = document.get("$schema").filter(|uri| !known(uri)) {
        return Err(format!("its $schema \"{}\" is not a draft from 06 to 2020-12", js_string(other)));
    }
    check_and_compile(document, Dialect::Foreign)
}

/// Later drafts add keywords, and change none in a way that the meta-schema of draft-07 would reject.
fn check_and_compile(document: &Value, dialect: Dialect) -> Result<Schema, String> {
    let (meta_document, meta) = META.as_ref().map_err(Clone::clone)?;
    let errors = validate::find_errors(meta, document, false);
    if !errors.is_empty() {
        let errors: Vec<_> =
            errors.iter().map(|error| format!("data{} {}", error.pointer, error.message)).collect();
        return Err(format!("schema is invalid: {}", errors.join(", ")));
    }
    Compiler::run(document, Some(meta_document), dialect)
}

fn is_draft_07(uri: &Value) -> bool {
    let uri = uri.as_str().map(|uri| uri.trim_end_matches('#'));
    matches!(uri, Some(META_ID | "http://json-schema.org/schema"))
}

struct Compiler<'a> {
    /// Documents by absolute address: the schema itself, parts with an `$id`, the meta-schema.
    by_uri: HashMap<String, Place<'a>>,
    nodes: Vec<Node>,
    /// Index to which a schema was, or will be, compiled.
    done: HashMap<*const Value, usize>,
    dialect: Dialect,
    /// Number of parts with each `$dynamicAnchor`.
    dynamic: HashMap<&'a str, usize>,
}

/// A schema, and the base address of references in it.
#[derive(Clone)]
struct Place<'a> {
    schema: &'a Value,
    base: String,
}

impl<'a> Compiler<'a> {
    fn run(document: &'a Value, meta: Option<&'a Value>, dialect: Dialect) -> Result<Schema, String> {
        let (by_uri, dynamic, done) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut compiler = Self { by_uri, nodes: Vec::new(), done, dialect, dynamic };
        if let Some(meta) = meta {
            compiler.by_uri.insert(META_ID.to_owned(), Place { schema: meta, base: META_ID.to_owned() });
        }
        let base = own_id(document).map_or_else(String::new, |id| without_fragment(id).to_owned());
        let root = Place { schema: document, base };
        compiler.by_uri.insert(root.base.clone(), root.clone());
        compiler.collect_ids(&root);
        let root = compiler.add_node(root)?;
        let schema = Schema { nodes: compiler.nodes, root, dialect };
        schema.refuse_endless()?;
        Ok(schema)
    }

    fn collect_ids(&mut self, place: &Place<'a>) {
        match place.schema {
            Value::Object(map) => {
                let mut place = place.clone();
                if let Some(id) = own_id(place.schema) {
                    let uri = join_uri(&place.base, id);
                    let here = place.clone();
                    place.base = without_fragment(&uri).to_owned();
                    self.by_uri.entry(uri.trim_end_matches('#').to_owned()).or_insert(here);
                }
                if self.dialect == Dialect::Foreign {
                    for anchor in
                        ["$anchor", "$dynamicAnchor"].iter().filter_map(|name| map.get(*name)?.as_str())
                    {
                        let uri = format!("{}#{anchor}", place.base);
                        self.by_uri.entry(uri).or_insert_with(|| place.clone());
                    }
                    if let Some(anchor) = map.get("$dynamicAnchor").and_then(Value::as_str) {
                        *self.dynamic.entry(anchor).or_default() += 1;
                    }
                }
                for (key, value) in map {
                    // The values of these keywords are data, not schemas.
                    if !matches!(key.as_str(), "const" | "enum" | "default" | "examples") {
                        self.collect_ids(&Place { schema: value, base: place.base.clone() });
                    }
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.collect_ids(&Place { schema: item, base: place.base.clone() });
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn add_node(&mut self, place: Place<'a>) -> Result<usize, String> {
        let key = ptr::from_ref(place.schema);
        if let Some(index) = self.done.get(&key) {
            return Ok(*index);
        }
        let index = self.nodes.len();
        self.nodes.push(Node::default());
        self.done.insert(key, index);
        let node = match place.schema {
            Value::Object(map) => self.compile_keywords(map, &place)?,
            Value::Bool(false) => Node { never: true, ..Node::default() },
            _ => Node::default(),
        };
        if let Some(slot) = self.nodes.get_mut(index) {
            *slot = node;
        }
        Ok(index)
    }

    fn compile_keywords(&mut self, map: &'a Map<String, Value>, place: &Place<'a>) -> Result<Node, String> {
        let base = match map.get("$id").and_then(Value::as_str) {
            Some(id) if !id.starts_with('#') => without_fragment(&join_uri(&place.base, id)).to_owned(),
            _ => place.base.clone(),
        };
        let dialect = self.dialect;
        let mut sub = |schema: &'a Value| self.add_node(Place { schema, base: base.clone() });
        let mut node = Node { types: read_types(map, dialect)?, ..Node::default() };
        node.not = map.get("not").map(&mut sub).transpose()?;
        let mut list = |name| -> Result<Option<Vec<usize>>, String> {
            map.get(name)
                .and_then(Value::as_array)
                .map(|schemas| schemas.iter().map(&mut sub).collect())
                .transpose()
        };
        node.any_of = list("anyOf")?;
        node.one_of = list("oneOf")?;
        node.all_of = list("allOf")?.unwrap_or_default();
        if let Some(test) = map.get("if") {
            node.condition = Some(Condition {
                test: sub(test)?,
                then: map.get("then").map(&mut sub).transpose()?,
                otherwise: map.get("else").map(&mut sub).transpose()?,
            });
        }
        node.constant = map.get("const").cloned();
        node.choices = map.get("enum").and_then(Value::as_array).cloned();
        if node.choices.as_ref().is_some_and(Vec::is_empty) {
            return Err("enum must have non-empty array".to_owned());
        }
        node.number = has_any_keyword(map, NUMBER).then(|| number_rules(map));
        node.string = has_any_keyword(map, STRING).then(|| string_rules(map, dialect)).transpose()?;
        node.array = has_any_keyword(map, ARRAY).then(|| array_rules(map, dialect, &mut sub)).transpose()?;
        node.object =
            has_any_keyword(map, OBJECT).then(|| object_rules(map, dialect, &mut sub)).transpose()?;
        if dialect == Dialect::Foreign {
            node.unevaluated_items = additional_rule(map.get("unevaluatedItems"), dialect, &mut sub)?;
            node.unevaluated_properties =
                additional_rule(map.get("unevaluatedProperties"), dialect, &mut sub)?;
            for name in ["$dynamicRef", "$recursiveRef"] {
                if let Some(reference) = map.get(name).and_then(Value::as_str) {
                    // With several such anchors, the target depends on the way in which the reference was reached.
                    let anchor = reference.split_once('#').map_or("", |(_, anchor)| anchor);
                    if self.dynamic.get(anchor).is_some_and(|count| *count > 1) {
                        return Err(format!("its {name} \"{reference}\" could lead to more than one place"));
                    }
                    node.all_of.push(self.resolve_reference(reference, &base)?);
                }
            }
        }
        if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
            node.reference = Some(self.resolve_reference(reference, &base)?);
        }
        Ok(node)
    }

    fn resolve_reference(&mut self, reference: &str, base: &str) -> Result<usize, String> {
        let place = self.find_target(reference, base).ok_or_else(|| {
            let from = if base.is_empty() { "#" } else { base };
            format!("can't resolve reference {reference} from id {from}")
        })?;
        self.add_node(place)
    }

    fn find_target(&self, reference: &str, base: &str) -> Option<Place<'a>> {
        let uri = join_uri(base, reference);
        let (document, fragment) = uri.split_once('#').unwrap_or((&uri, ""));
        if let Some(place) = self.by_uri.get(&uri) {
            return Some(place.clone());
        }
        let mut place = self.by_uri.get(document)?.clone();
        let pointer = percent::decode(fragment)?;
        if pointer.is_empty() {
            return Some(place);
        }
        for name in pointer.strip_prefix('/')?.split('/') {
            let name = name.replace("~1", "/").replace("~0", "~");
            if let Some(id) = own_id(place.schema) {
                place.base = without_fragment(&join_uri(&place.base, id)).to_owned();
            }
            place.schema = match place.schema {
                Value::Object(map) => map.get(&name)?,
                Value::Array(items) => items.get(name.parse::<usize>().ok()?)?,
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
            };
        }
        (place.schema.is_object() || place.schema.is_boolean()).then_some(place)
    }
}

fn own_id(schema: &Value) -> Option<&str> {
    schema.get("$id").and_then(Value::as_str)
}

fn without_fragment(uri: &str) -> &str {
    uri.split_once('#').map_or(uri, |(document, _)| document)
}

/// RFC 3986 §5.2 as far as schema addresses need it: fragments, absolute addresses, and names relative to the base.
fn join_uri(base: &str, reference: &str) -> String {
    if reference.is_empty() || reference.starts_with('#') {
        return format!("{}{reference}", without_fragment(base));
    }
    let has_scheme = reference.find([':', '/', '?', '#']).is_some_and(|at| reference[at..].starts_with(':'));
    if has_scheme {
        return reference.to_owned();
    }
    let reference = reference.strip_prefix("./").unwrap_or(reference);
    let path_at = base.find("://").map_or(0, |at| at + 3);
    let keep = match (reference.starts_with('/'), base[path_at..].find('/')) {
        (true, Some(slash)) => path_at + slash,
        (true, None) => base.len(),
        (false, _) => base[path_at..]
            .rfind('/')
            .map_or(if path_at == 0 { 0 } else { base.len() }, |at| path_at + at + 1),
    };
    format!("{}{reference}", &base[..keep])
}

const NUMBER: &[&str] = &["maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf"];
const STRING: &[&str] = &["maxLength", "minLength", "pattern", "format"];
const ARRAY: &[&str] =
    &["maxItems", "minItems", "additionalItems", "items", "contains", "uniqueItems", "prefixItems"];
const OBJECT: &[&str] = &[
    "maxProperties",
    "minProperties",
    "required",
    "propertyNames",
    "additionalProperties",
    "dependencies",
    "properties",
    "patternProperties",
    "dependentRequired",
    "dependentSchemas",
];

fn has_any_keyword(map: &Map<String, Value>, keywords: &[&str]) -> bool {
    keywords.iter().any(|keyword| map.contains_key(*keyword))
}

fn read_types(map: &Map<String, Value>, dialect: Dialect) -> Result<Option<Types>, String> {
    let nullable = map.get("nullable").filter(|_| dialect == Dialect::Ajv);
    let Some(value) = map.get("type") else {
        return match nullable {
            Some(_) => Err("\"nullable\" cannot be used without \"type\"".to_owned()),
            None => Ok(None),
        };
    };
    let mut allowed = type_list(value);
    // The meta-schema has not checked the content of `$defs`.
    if allowed.len() != value.as_array().map_or(1, Vec::len) {
        return Err(format!("{value} is not a type"));
    }
    match (allowed.contains(&Type::Null), nullable) {
        (true, Some(Value::Bool(false))) => {
            return Err("type: null contradicts nullable: false".to_owned());
        }
        (false, Some(Value::Bool(true))) => allowed.push(Type::Null),
        _ => {}
    }
    let own_keywords = match allowed.as_slice() {
        [Type::Number] => has_any_keyword(map, NUMBER),
        [Type::String] => has_any_keyword(map, STRING),
        [Type::Array] => has_any_keyword(map, ARRAY),
        [Type::Object] => has_any_keyword(map, OBJECT),
        _ => false,
    };
    Ok(Some(Types { allowed, text: js_string(value), first: !own_keywords }))
}

fn type_list(value: &Value) -> Vec<Type> {
    let one = |name: &Value| match name.as_str()? {
        "null" => Some(Type::Null),
        "boolean" => Some(Type::Boolean),
        "integer" => Some(Type::Integer),
        "number" => Some(Type::Number),
        "string" => Some(Type::String),
        "array" => Some(Type::Array),
        "object" => Some(Type::Object),
        _ => None,
    };
    match value {
        Value::Array(names) => names.iter().filter_map(one).collect(),
        name => one(name).into_iter().collect(),
    }
}

fn number_keyword(map: &Map<String, Value>, keyword: &str) -> Option<f64> {
    map.get(keyword).and_then(Value::as_f64)
}

fn number_rules(map: &Map<String, Value>) -> NumberRules {
    let limit = |keyword| map.get(keyword).and_then(Value::as_number).map(Exact::of_number);
    NumberRules {
        maximum: limit("maximum"),
        minimum: limit("minimum"),
        exclusive_maximum: limit("exclusiveMaximum"),
        exclusive_minimum: limit("exclusiveMinimum"),
        multiple_of: number_keyword(map, "multipleOf"),
    }
}

fn string_rules(map: &Map<String, Value>, dialect: Dialect) -> Result<StringRules, String> {
    Ok(StringRules {
        max_length: number_keyword(map, "maxLength"),
        min_length: number_keyword(map, "minLength"),
        pattern: map
            .get("pattern")
            .and_then(Value::as_str)
            .map(|source| compile_pattern(source, dialect))
            .transpose()?,
    })
}

fn compile_pattern(source: &str, dialect: Dialect) -> Result<Pattern, String> {
    let steps = match dialect {
        Dialect::Ajv => BACKTRACKING_STEPS,
        Dialect::Foreign => FOREIGN_BACKTRACKING_STEPS,
    };
    let translated = jsonschema_regex::to_rust_regex(source)
        .map_err(|()| format!("Invalid regular expression: /{source}/"))?;
    let regex = fancy_regex::RegexBuilder::new(&translated)
        .backtrack_limit(steps)
        .build()
        .map_err(|error| format!("Invalid regular expression: /{source}/: {error}"))?;
    Ok(Pattern { source: source.to_owned(), regex })
}

/// The rule for parts that other keywords do not mention. In foreign schemas, `true` counts as mentioning them.
fn additional_rule<'a>(
    schema: Option<&'a Value>,
    dialect: Dialect,
    sub: &mut dyn FnMut(&'a Value) -> Result<usize, String>,
) -> Result<Option<Additional>, String> {
    Ok(match schema {
        None => None,
        Some(Value::Bool(true)) if dialect == Dialect::Ajv => None,
        Some(Value::Bool(false)) => Some(Additional::Nothing),
        Some(schema) => Some(Additional::All(sub(schema)?)),
    })
}

fn array_rules<'a>(
    map: &'a Map<String, Value>,
    dialect: Dialect,
    sub: &mut dyn FnMut(&'a Value) -> Result<usize, String>,
) -> Result<ArrayRules, String> {
    let prefix = map.get("prefixItems").filter(|_| dialect == Dialect::Foreign);
    let (tuple, others) = match (prefix, map.get("items")) {
        (Some(Value::Array(schemas)), items) => (Some(schemas), items),
        (_, Some(Value::Array(schemas))) => (Some(schemas), map.get("additionalItems")),
        (_, items) => (None, items),
    };
    let items = match (tuple, others) {
        (Some(schemas), others) => {
            let schemas = schemas.iter().map(&mut *sub).collect::<Result<_, _>>()?;
            Items::Tuple(schemas, additional_rule(others, dialect, sub)?)
        }
        (None, None) => Items::Any,
        (None, Some(schema)) => Items::All(sub(schema)?),
    };
    let unique = (map.get("uniqueItems") == Some(&Value::Bool(true))).then(|| {
        let types = map.get("items").and_then(|items| read_types(items.as_object()?, dialect).ok()?);
        match types.map(|types| types.allowed) {
            Some(types)
                if !types.is_empty() && !types.iter().any(|t| matches!(t, Type::Array | Type::Object)) =>
            {
                Unique::Scalars(types)
            }
            _ => Unique::AnyType,
        }
    });
    Ok(ArrayRules {
        max_items: number_keyword(map, "maxItems"),
        min_items: number_keyword(map, "minItems"),
        items,
        contains: contains_rule(map, dialect, sub)?,
        unique,
    })
}

fn contains_rule<'a>(
    map: &'a Map<String, Value>,
    dialect: Dialect,
    sub: &mut dyn FnMut(&'a Value) -> Result<usize, String>,
) -> Result<Option<Contains>, String> {
    let Some(schema) = map.get("contains") else { return Ok(None) };
    let limit = |keyword| number_keyword(map, keyword).filter(|_| dialect == Dialect::Foreign);
    let least = limit("minContains").unwrap_or(1.0);
    Ok(Some(Contains { schema: sub(schema)?, least, most: limit("maxContains") }))
}

fn object_rules<'a>(
    map: &'a Map<String, Value>,
    dialect: Dialect,
    sub: &mut dyn FnMut(&'a Value) -> Result<usize, String>,
) -> Result<ObjectRules, String> {
    let fields = |keyword: &str| map.get(keyword).and_then(Value::as_object).into_iter().flatten();
    let mut rules = ObjectRules {
        max_properties: number_keyword(map, "maxProperties"),
        min_properties: number_keyword(map, "minProperties"),
        required: map.get("required").map(string_items).unwrap_or_default(),
        names: map.get("propertyNames").map(&mut *sub).transpose()?,
        additional: additional_rule(map.get("additionalProperties"), dialect, sub)?,
        ..ObjectRules::default()
    };
    for (name, dependency) in fields("dependencies") {
        match dependency {
            Value::Array(_) => rules.needed_with.push((name.clone(), string_items(dependency))),
            schema => rules.schema_with.push((name.clone(), sub(schema)?)),
        }
    }
    if dialect == Dialect::Foreign {
        for (name, needed) in fields("dependentRequired") {
            rules.needed_with.push((name.clone(), string_items(needed)));
        }
        for (name, schema) in fields("dependentSchemas") {
            rules.schema_with.push((name.clone(), sub(schema)?));
        }
    }
    for (name, schema) in fields("properties") {
        rules.properties.push((name.clone(), sub(schema)?));
    }
    for (source, schema) in fields("patternProperties") {
        rules.patterns.push((compile_pattern(source, dialect)?, sub(schema)?));
    }
    Ok(rules)
}

fn string_items(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

impl Schema {
    /// Rejects schemas that refer back to themselves for the same value: checking one would never end.
    fn refuse_endless(&self) -> Result<(), String> {
        #[derive(Clone, Copy, PartialEq)]
        enum Mark {
            New,
            Open,
            Done,
        }
        let mut marks = vec![Mark::New; self.nodes.len()];
        for start in 0..self.nodes.len() {
            let mut path = vec![(start, self.in_place(start))];
            if marks[start] != Mark::New {
                continue;
            }
            marks[start] = Mark::Open;
            while let Some((node, next)) = path.last_mut() {
                match next.pop() {
                    Some(target) if marks[target] == Mark::Open => {
                        return Err("the schema refers to itself without end".to_owned());
                    }
                    Some(target) if marks[target] == Mark::New => {
                        marks[target] = Mark::Open;
                        path.push((target, self.in_place(target)));
                    }
                    Some(_) => {}
                    None => {
                        marks[*node] = Mark::Done;
                        path.pop();
                    }
                }
            }
        }
        Ok(())
    }

    /// The schemas that are applied to the same value as this one.
    fn in_place(&self, index: usize) -> Vec<usize> {
        let node = &self.nodes[index];
        let condition = node.condition.iter().flat_map(|c| [Some(c.test), c.then, c.otherwise]).flatten();
        let dependent =
            node.object.iter().flat_map(|rules| rules.schema_with.iter().map(|(_, schema)| *schema));
        let lists = [&node.any_of, &node.one_of].into_iter().flatten().flatten().copied();
        node.reference
            .into_iter()
            .chain(node.not)
            .chain(lists)
            .chain(node.all_of.iter().copied())
            .chain(condition)
            .chain(dependent)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_no_schema_is_refused_with_the_words_of_ajv() {
        for (schema, message) in [
            (json!(5), "schema must be object or boolean"),
            (
                json!({"type": "strng"}),
                "schema is invalid: data/type must be equal to one of the allowed values, data/type must be array, \
                 data/type must match a schema in anyOf",
            ),
            (json!({"minimum": "x"}), "schema is invalid: data/minimum must be number"),
            (json!({"properties": [1]}), "schema is invalid: data/properties must be object"),
            (json!({"$ref": "#/nowhere"}), "can't resolve reference #/nowhere from id #"),
            (json!({"$ref": "http://x/y"}), "can't resolve reference http://x/y from id #"),
            (
                json!({"$schema": "https://json-schema.org/draft/2020-12/schema"}),
                "no schema with key or ref \"https://json-schema.org/draft/2020-12/schema\"",
            ),
            (json!({"nullable": true}), "\"nullable\" cannot be used without \"type\""),
            (json!({"$ref": "#"}), "the schema refers to itself without end"),
            (
                json!({"anyOf": [{"$ref": "#/definitions/a"}], "definitions": {"a": {"allOf": [{"$ref": "#"}]}}}),
                "the schema refers to itself without end",
            ),
        ] {
            assert_eq!(Schema::compile(&schema).err().as_deref(), Some(message), "{schema}");
        }
        let error = Schema::compile(&json!({"pattern": "("})).err().unwrap_or_default();
        assert!(error.starts_with("Invalid regular expression: /(/"), "{error}");
    }

    #[test]
    fn references_lead_into_the_schema() {
        let integer = json!({"a": "x"});
        for schema in [
            json!({"properties": {"a": {"$ref": "#/definitions/i%25~1"}}, "definitions": {"i%/": {"type": "integer"}}}),
            json!({"properties": {"a": {"$ref": "#/$defs/i"}}, "$defs": {"i": {"type": "integer"}}}),
            json!({"properties": {"a": {"$ref": "#i"}}, "definitions": {"x": {"$id": "#i", "type": "integer"}}}),
            json!({"$id": "http://x/root", "properties": {"a": {"$ref": "item"}}, "definitions": {"x": {"$id": "item", "type": "integer"}}}),
            json!({"$id": "http://x/root", "properties": {"a": {"$ref": "/item#/definitions/y"}},
                "definitions": {"x": {"$id": "item", "definitions": {"y": {"$ref": "#/definitions/z"}, "z": {"type": "integer"}}}}}),
            json!({"type": "object", "additionalProperties": {"anyOf": [{"type": "integer"}, {"type": "object", "additionalProperties": {"$ref": "#"}}]}}),
        ] {
            let compiled = Schema::compile(&schema).unwrap_or_else(|error| panic!("{schema}: {error}"));
            assert_eq!(
                compiled.first_error(&integer).map(|e| e.to_string()).as_deref(),
                Some("/a: must be integer"),
                "{schema}"
            );
            assert_eq!(compiled.first_error(&json!({"a": 1})), None);
        }
        let meta = Schema::compile(&json!({"$ref": "http://json-schema.org/draft-07/schema#"})).unwrap();
        assert_eq!(meta.first_error(&json!({"type": 5})).map(|e| e.pointer).as_deref(), Some("/type"));
    }

    #[test]
    fn patterns_are_those_of_ecmascript_and_never_hang() {
        let matches = |pattern: &str, text: &str| {
            Schema::compile(&json!({"pattern": pattern})).unwrap().first_error(&json!(text)).is_none()
        };
        for (pattern, text, expected) in [
            ("^\\d+$", "١", false),
            ("^\\w$", "é", false),
            ("^[^\\s]$", "\u{feff}", false),
            ("^a(?=b)", "ab", true),
            ("^(a)\\1$", "aa", true),
            ("^\\p{L}+$", "é", true),
            ("^[[]$", "[", true),
            ("^a/b\\/c$", "a/b/c", true),
            ("^a.c$", "a😀c", true),
            ("^(a+)+$", &format!("{}b", "a".repeat(5000)), false),
            ("^(?=(a+)+$)", &format!("{}b", "a".repeat(5000)), false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {}", &text[..text.len().min(9)]);
        }
    }
}
