//! OTLP messages, as far as spans need them. The tags are those of `opentelemetry-proto` 1.x (`trace/v1/trace.proto`,
//! `common/v1/common.proto`).

use prost::Message;

use super::spans::TelemetrySpan;

#[derive(Clone, PartialEq, Message)]
struct ExportTraceServiceRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<WireSpan>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct WireSpan {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "11")]
    events: Vec<Event>,
    #[prost(message, repeated, tag = "13")]
    links: Vec<Link>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(fixed64, tag = "1")]
    time_unix_nano: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(message, repeated, tag = "3")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct Link {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 2, 3, 4")]
    value: Option<Value>,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Flag(bool),
    #[prost(int64, tag = "3")]
    Number(i64),
    #[prost(double, tag = "4")]
    Amount(f64),
}

/// `SPAN_KIND_INTERNAL`
const INTERNAL: i32 = 1;
/// `SPAN_KIND_CLIENT`
const CLIENT: i32 = 3;
/// `STATUS_CODE_ERROR`
const ERROR: i32 = 2;

/// The body of one export.
pub(super) fn encode_request(resource: &[(String, String)], spans: &[TelemetrySpan]) -> Vec<u8> {
    let resource =
        resource.iter().map(|(key, text)| key_value(key, Value::Text(text.clone()))).collect::<Vec<_>>();
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource { attributes: resource }),
            scope_spans: vec![ScopeSpans {
                scope: Some(Scope {
                    name: "lobster".to_owned(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                }),
                spans: spans.iter().map(wire_span).collect(),
            }],
        }],
    }
    .encode_to_vec()
}

fn wire_span(span: &TelemetrySpan) -> WireSpan {
    WireSpan {
        trace_id: span.trace.to_vec(),
        span_id: span.id.to_vec(),
        parent_span_id: span.parent.map(|id| id.to_vec()).unwrap_or_default(),
        name: span.name.clone(),
        kind: if span.is_remote_call { CLIENT } else { INTERNAL },
        start_time_unix_nano: span.start,
        end_time_unix_nano: span.end,
        attributes: key_values(&span.attributes),
        events: span
            .events
            .iter()
            .map(|event| Event {
                time_unix_nano: event.at,
                name: event.name.to_owned(),
                attributes: key_values(&event.attributes),
            })
            .collect(),
        links: span
            .link
            .iter()
            .map(|link| Link { trace_id: link.trace.to_vec(), span_id: link.span.to_vec() })
            .collect(),
        status: span.failed.then(|| Status { message: String::new(), code: ERROR }),
    }
}

fn key_values(attributes: &[(&str, Value)]) -> Vec<KeyValue> {
    attributes.iter().map(|(key, value)| key_value(key, value.clone())).collect()
}

fn key_value(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}
