//! Access checks: the host that was called, the page that calls, and the caller's secret.
//!
//! The order matters. A page that reaches this server under its own name (DNS rebinding) claims the same origin, so the
//! name is checked first, then the origin of the request, and then the caller.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, Method, StatusCode, header};
use lobster_runtime::store::service::{CredentialKind, Service};
use lobster_runtime::sync::lock;

use super::hosts::Hosts;
use super::problem::Problem;
use super::proxy::NamedByProxy;
use crate::access::{Actor, actor_of};

/// The cookie of a session.
pub const COOKIE: &str = "lobster_session";

fn header_text(headers: &HeaderMap, name: impl header::AsHeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Refuses requests to another host name.
pub(super) fn check_host(hosts: &Hosts, headers: &HeaderMap) -> Result<(), Problem> {
    let mut given = headers.get_all(header::HOST).iter();
    match (given.next().and_then(|host| host.to_str().ok()), given.next()) {
        (Some(host), None) if hosts.has_name(host) => Ok(()),
        _ => Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "host",
            "this server is not called by that name; `lobster serve --allow-host NAME` adds one",
        )),
    }
}

/// Refuses requests from pages of another origin. `is_secure` is true if browsers use TLS on this connection.
pub(super) fn check_origin(
    hosts: &Hosts,
    is_secure: bool,
    (method, headers): (&Method, &HeaderMap),
) -> Result<(), Problem> {
    let foreign = || {
        Problem::new(
            StatusCode::FORBIDDEN,
            "origin",
            "a page of another origin may not call this server; set `url` in its settings to the address that people use",
        )
    };
    let called = header_text(headers, header::HOST).unwrap_or_default();
    let is_own = |origin| hosts.has_page(origin, called, is_secure);
    if headers.contains_key(header::ORIGIN) && !header_text(headers, header::ORIGIN).is_some_and(is_own) {
        return Err(foreign());
    }
    let is_link = *method == Method::GET && header_text(headers, "sec-fetch-mode") == Some("navigate");
    match header_text(headers, "sec-fetch-site") {
        None | Some("same-origin" | "none") => Ok(()),
        // A followed link only reads, like every GET.
        Some(_) if is_link => Ok(()),
        Some(_) => Err(foreign()),
    }
}

/// Identifies the caller, if the service knows them. `by_proxy` is set if the request came through a proxy that names
/// its callers.
pub(super) fn check_caller(
    service: &Service,
    by_proxy: Option<&NamedByProxy>,
    (method, headers): (&Method, &HeaderMap),
) -> Result<Option<Actor>, Problem> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let token = value.to_str().ok().and_then(|value| value.split_once(' '));
        let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token);
        let Some(token) = token else { return Ok(None) };
        return Ok(actor_of(service, token, &[CredentialKind::Token, CredentialKind::Agent])?);
    }
    let named = by_proxy.map(|proxy| proxy.named_caller(headers)).transpose()?.flatten();
    let of_session = || match session_of(headers) {
        Some(session) => actor_of(service, session, &[CredentialKind::Session]),
        None => Ok(None),
    };
    let Some(actor) = named.map_or_else(of_session, |named| Ok(Some(named)))? else { return Ok(None) };
    // A browser sends its session, here or to the proxy, even if another site causes the request. So a request that
    // changes something must name its origin.
    let says = headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site");
    if *method != Method::GET && !says {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "origin",
            "a request with a session must come from a page of this server; programs use a token",
        ));
    }
    Ok(Some(actor))
}

/// Returns the secret in the cookie. Two such cookies are ignored, because another site may have set one.
pub(super) fn session_of(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut found = pairs.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value);
    match (found.next(), found.next()) {
        (Some(one), None) => Some(one),
        _ => None,
    }
}

/// Failed login attempts, by address.
#[derive(Default)]
pub(crate) struct Failures(Mutex<HashMap<IpAddr, (u32, Instant)>>);

/// Failed attempts allowed within [`FAILURE_TIME`].
const FAILURES: u32 = 10;

const FAILURE_TIME: Duration = Duration::from_secs(60);

/// Most addresses that are remembered.
const ADDRESSES: usize = 10_000;

impl Failures {
    /// Counts a failed attempt, and returns the answer to it: the reason, or that there were too many. Successful
    /// attempts are never limited: many people may share an address, and secrets have too many bits for guessing.
    pub(super) fn count_failure(&self, from: IpAddr, why: Problem) -> Problem {
        let mut all = lock(&self.0);
        all.retain(|_, (_, since)| since.elapsed() < FAILURE_TIME);
        if all.len() >= ADDRESSES && !all.contains_key(&from) {
            return why;
        }
        let (count, _) = all.entry(from).or_insert((0, Instant::now()));
        if *count < FAILURES {
            *count += 1;
            return why;
        }
        Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too_many_failures",
            "too many attempts from this address failed recently; a correct one is accepted at any time",
        )
        .retry_after(60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_that_somebody_added_is_no_session() {
        let headers = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::COOKIE, value.parse().unwrap());
            }
            headers
        };
        assert_eq!(session_of(&headers(&["a=b; lobster_session=x"])), Some("x"));
        assert_eq!(session_of(&headers(&["lobster_session=x", "lobster_session=y"])), None);
        assert_eq!(session_of(&headers(&["not_lobster_session=x"])), None);
    }
}
