//! Runs and steps as OpenTelemetry spans, sent to a collector.
//!
//! Off unless the environment names a collector, in the variables of the OpenTelemetry specification. The journal is
//! the only source: spans are created from its events when an execution is over, so that nothing is measured twice and
//! a run is not slowed down. They contain names, places, states and figures, but no arguments, outputs, messages or
//! pipeline texts.

mod otlp;
mod spans;

use std::time::Duration;

use lobster_models::http::{self, Url};
use lobster_store::{Event, Record, RunId, Store, StoreError};
use percent_encoding::percent_decode_str;

pub use spans::{RunTrace, TRACEPARENT, trace_parent};

/// Longest total wait for a collector, unless `OTEL_EXPORTER_OTLP_TIMEOUT` sets another. People would notice the
/// specification's 10 s.
const TIMEOUT: Duration = Duration::from_millis(1500);

/// Spans per request; collectors accept 4 MiB and more.
const BATCH: usize = 2_000;

/// Target of the spans, and the description of their origin.
#[derive(Debug)]
pub struct Exporter {
    url: Url,
    headers: Vec<(String, String)>,
    timeout: Duration,
    resource: Vec<(String, String)>,
}

/// Reason why nothing is exported, although it was requested.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("{name} is not a usable value: {why}")]
    Setting { name: &'static str, why: String },
    #[error("the collector answered {0}")]
    Refused(u16),
    #[error(transparent)]
    Http(#[from] http::HttpError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Exporter {
    /// The exporter configured in the environment, if there is one.
    pub fn from_env(env: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, TelemetryError> {
        let set = |name: &str| env(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let own = |own: &'static str, all: &'static str| {
            set(own).map(|v| (own, v)).or_else(|| set(all).map(|v| (all, v)))
        };
        let off = set("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true"))
            || set("OTEL_TRACES_EXPORTER").is_some_and(|text| !text.eq_ignore_ascii_case("otlp"));
        let endpoint = own("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT");
        let Some((name, endpoint)) = endpoint.filter(|_| !off) else { return Ok(None) };
        if let Some((name, protocol)) =
            own("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
            && protocol != "http/protobuf"
        {
            let why = format!("{protocol:?} is not supported; use http/protobuf");
            return Err(TelemetryError::Setting { name, why });
        }
        let wrong = |why: &str| TelemetryError::Setting { name, why: why.to_owned() };
        let mut url = http::parse_url(&endpoint)
            .filter(http::is_http)
            .ok_or_else(|| wrong("not an http(s) address"))?;
        // The general address is a base; the address for traces is used unchanged.
        if name == "OTEL_EXPORTER_OTLP_ENDPOINT" {
            let path = format!("{}/v1/traces", url.path().trim_end_matches('/'));
            url.set_path(&path);
        }
        let timeout = match own("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT") {
            None => TIMEOUT,
            Some((name, text)) => match text.parse::<u64>() {
                Ok(ms) => Duration::from_millis(ms),
                Err(_) => {
                    return Err(TelemetryError::Setting {
                        name,
                        why: "not a number of milliseconds".to_owned(),
                    });
                }
            },
        };
        let headers = own("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS");
        let mut resource = parse_pairs(&set("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
        let named =
            resource.iter().position(|(key, _)| key == "service.name").map(|index| resource.remove(index).1);
        let service = set("OTEL_SERVICE_NAME").or(named).unwrap_or_else(|| "lobster".to_owned());
        resource.push(("service.name".to_owned(), service));
        resource.push(("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
        let headers = headers.map(|(_, text)| parse_pairs(&text)).unwrap_or_default();
        Ok(Some(Self { url, headers, timeout, resource }))
    }

    /// Sends the spans of the latest execution of `run`.
    pub fn export(&self, store: &Store, run: RunId) -> Result<(), TelemetryError> {
        let began = std::time::Instant::now();
        let spans = spans::of_latest_execution(&latest_execution(store, run)?);
        for batch in spans.chunks(BATCH) {
            let left = self.timeout.saturating_sub(began.elapsed());
            let body = otlp::encode_request(&self.resource, batch);
            let status = http::post_protobuf(&self.url, &self.headers, body, left)?;
            if !(200..300).contains(&status) {
                return Err(TelemetryError::Refused(status));
            }
        }
        tracing::debug!(%run, spans = spans.len(), "exported");
        Ok(())
    }
}

/// Most events of one execution that are exported; a collector takes no more in the available time.
const MAX_EVENTS: usize = 100_000;

/// Records read at a time.
const PAGE: usize = 4_096;

/// The first record of a journal, and the records of the latest execution.
fn latest_execution(store: &Store, run: RunId) -> Result<Vec<Record>, StoreError> {
    let mut kept: Vec<Record> = Vec::new();
    let (mut seq, mut left_out) = (0, 0_usize);
    loop {
        let page = store.events_after(run, seq, PAGE)?;
        let Some(last) = page.last() else { break };
        seq = last.seq;
        for record in page {
            // The text is not needed again, and is half of the memory.
            let record = Record { text: String::new(), ..record };
            if matches!(record.event, Event::RunResumed { .. }) {
                kept.truncate(1);
                left_out = 0;
            }
            let ends = matches!(record.event, Event::RunEnded { .. } | Event::RunPaused { .. });
            if kept.len() < MAX_EVENTS || ends { kept.push(record) } else { left_out += 1 }
        }
    }
    if left_out > 0 {
        tracing::warn!(%run, left_out, "the run has more events than are exported");
    }
    Ok(kept)
}

/// `key=value,key=value` with percent-encoded values, as in W3C baggage.
fn parse_pairs(text: &str) -> Vec<(String, String)> {
    text.split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| {
            (key.trim().to_owned(), percent_decode_str(value.trim()).decode_utf8_lossy().into_owned())
        })
        .filter(|(key, _)| !key.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exporter_from(vars: &[(&str, &str)]) -> Result<Option<Exporter>, String> {
        let env = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Exporter::from_env(&env).map_err(|error| error.to_string())
    }

    fn exporter_url(vars: &[(&str, &str)]) -> Option<String> {
        exporter_from(vars).unwrap().map(|exporter| exporter.url.to_string())
    }

    #[test]
    fn addresses_are_the_standards() {
        assert_eq!(exporter_url(&[]), None);
        assert_eq!(exporter_url(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]), None);
        assert_eq!(
            exporter_url(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h:4318/x/")]).unwrap(),
            "http://h:4318/x/v1/traces"
        );
        assert_eq!(
            exporter_url(&[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h"),
                ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t/own")
            ])
            .unwrap(),
            "http://t/own"
        );
        for off in [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")] {
            assert_eq!(exporter_url(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h"), off]), None);
        }
    }

    #[test]
    fn settings_are_read_and_checked() {
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h");
        let set = exporter_from(&[
            base,
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b%+f, x = y ,bad"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=from-attributes,team=ops"),
        ])
        .unwrap()
        .unwrap();
        assert_eq!(set.headers, [("api-key".into(), "a b%+f".into()), ("x".into(), "y".into())]);
        assert_eq!(set.timeout, Duration::from_millis(250));
        assert_eq!(
            set.resource[..2],
            [("team".into(), "ops".into()), ("service.name".into(), "from-attributes".into())]
        );
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "ftp://h"),
        ] {
            assert!(exporter_from(&[base, (name, value)]).unwrap_err().contains(name));
        }
    }
}
