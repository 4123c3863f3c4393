//! The OpenAPI document, made from the table of routes.

use serde_json::{Map, Value, json};

use super::routes::{Access, Route, Takes, routes};

/// The document.
pub(super) fn document() -> Value {
    let mut paths = Map::new();
    for route in routes() {
        let path = route.path.replace("{*", "{");
        let entry = paths.entry(path).or_insert_with(|| json!({}));
        entry[route.method.to_ascii_lowercase()] = describe_operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "lobster serve",
            "version": "1",
            "description": "Workflows, runs, approvals, input requests and schedules of one store. Errors are application/problem+json.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer" },
                "session": { "type": "apiKey", "in": "cookie", "name": super::COOKIE },
            },
            "schemas": {
                "Problem": {
                    "type": "object",
                    "required": ["type", "title", "status", "code", "detail"],
                    "properties": {
                        "type": { "type": "string" },
                        "title": { "type": "string" },
                        "status": { "type": "integer" },
                        "code": { "type": "string" },
                        "detail": { "type": "string" },
                    },
                },
            },
        },
    })
}

fn describe_operation(route: &Route) -> Value {
    let problem = json!({
        "description": "why not",
        "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
    });
    let mut operation = json!({
        "summary": route.summary,
        "parameters": describe_parameters(route),
        "responses": { route.status.to_string(): { "description": "done" }, "default": problem },
    });
    match route.access {
        Access::Open => operation["security"] = json!([]),
        Access::To(verb, _) => {
            operation["security"] = json!([{ "token": [] }, { "session": [] }]);
            operation["x-lobster-role"] = verb.required_role().as_str().into();
        }
    }
    match route.takes {
        Takes::Nothing => {}
        Takes::Json(schema) => {
            operation["requestBody"] =
                json!({ "required": true, "content": { "application/json": { "schema": schema() } } });
        }
        Takes::Form => {
            operation["requestBody"] =
                json!({ "required": true, "content": { "application/x-www-form-urlencoded": {} } });
        }
        Takes::Bytes => operation["requestBody"] = json!({ "required": true, "content": { "*/*": {} } }),
    }
    operation
}

fn describe_parameters(route: &Route) -> Vec<Value> {
    let names = route.path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let names = names.map(|name| name.trim_start_matches('*'));
    let in_path = names
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }));
    let in_query =
        route.query.iter().map(|name| json!({ "name": name, "in": "query", "schema": { "type": "string" } }));
    in_path.chain(in_query).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_described_with_what_it_needs() {
        let document = document();
        let operations: usize =
            document["paths"].as_object().unwrap().values().map(|path| path.as_object().unwrap().len()).sum();
        assert_eq!(operations, routes().len());
        let answer = &document["paths"]["/api/v1/approvals/{approval}/answer"]["post"];
        assert_eq!(answer["x-lobster-role"], "approver");
        assert_eq!(answer["parameters"][0]["name"], "approval");
        assert_eq!(document["paths"]["/hooks/{path}"]["post"]["security"], json!([]));
    }
}
