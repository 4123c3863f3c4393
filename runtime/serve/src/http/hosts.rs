//! The names of the server, and the origins of its pages.

use std::net::SocketAddr;

use axum::http::uri::Authority;

/// The names and origins of the server.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    names: Vec<String>,
    /// The address that people use, if it is set.
    url: Option<Origin>,
    /// Origins under which devices may keep keys for the server. They do not depend on the request: a program that
    /// relays a signature made for another page can send any host name.
    keeping: Vec<Origin>,
}

/// The ways to reach a server, besides its names.
#[derive(Clone, Copy, Debug)]
pub struct Reached<'r> {
    pub listen: SocketAddr,
    /// True if the server encrypts the connections of its port itself.
    pub has_tls: bool,
    /// True if a proxy with TLS is in front of the server.
    pub has_proxy: bool,
    /// The address that people use, if it is set.
    pub url: Option<&'r str>,
}

/// True if a name means the machine of the caller itself.
pub(crate) fn is_own_name(name: &str) -> bool {
    matches!(name.trim(), "localhost" | "127.0.0.1" | "::1")
}

impl Hosts {
    /// Collects this machine's names for itself, the listening address, and the names that the operator adds.
    #[must_use]
    pub fn new(reached: Reached<'_>, more: &[String]) -> Self {
        let mut names: Vec<String> = more.iter().map(|name| name.trim().to_ascii_lowercase()).collect();
        let (ip, port) = (reached.listen.ip(), reached.listen.port());
        if ip.is_loopback() {
            names.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
        }
        if !ip.is_unspecified() {
            names.push(ip.to_string());
        }
        let url = reached.url.and_then(Origin::of_url);
        let mut keeping: Vec<Origin> = url.iter().cloned().collect();
        for host in &names {
            let origin = |is_tls, port| Origin { is_tls, host: host.clone(), port };
            match is_own_name(host) {
                _ if reached.has_tls => keeping.push(origin(true, port)),
                true => keeping.push(origin(false, port)),
                false => {}
            }
            // A port without TLS is reached under another name either over TLS or not at all.
            if !is_own_name(host) && (reached.has_proxy || !reached.has_tls) {
                keeping.push(origin(true, HTTPS));
            }
        }
        Self { names, url, keeping }
    }

    /// True if a name, with or without a port, is a name of the server. Only whole names match: `127.0.0.1.example.com`
    /// is another machine.
    pub(super) fn has_name(&self, authority: &str) -> bool {
        host_and_port(authority).is_some_and(|(host, _)| self.names.contains(&host))
    }

    /// True if a page of this origin is the server's, which was called by this name: a browser sends the true name.
    /// `is_secure` is true if browsers use TLS.
    pub(super) fn has_page(&self, origin: &str, called: &str, is_secure: bool) -> bool {
        let Some(origin) = Origin::parse(origin) else { return false };
        let Some((host, port)) = host_and_port(called) else { return false };
        // This machine's own names reach the port without the proxy.
        let may_be_clear = !is_secure || is_own_name(&host);
        let port = port.unwrap_or(default_port(origin.is_tls));
        let is_called = self.names.contains(&host) && origin.host == host && origin.port == port;
        (is_called && (origin.is_tls || may_be_clear)) || self.url.as_ref() == Some(&origin)
    }

    /// True if devices keep keys for this server under this origin.
    pub(super) fn has_keys(&self, origin: &str) -> bool {
        Origin::parse(origin).is_some_and(|origin| self.keeping.contains(&origin))
    }
}

/// The origin of a page. Another port of the same machine is another server.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin {
    is_tls: bool,
    host: String,
    port: u16,
}

const HTTP: u16 = 80;
const HTTPS: u16 = 443;

fn default_port(is_tls: bool) -> u16 {
    if is_tls { HTTPS } else { HTTP }
}

impl Origin {
    fn parse(text: &str) -> Option<Self> {
        let (scheme, authority) = text.split_once("://")?;
        let is_tls = match scheme {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let (host, port) = host_and_port(authority)?;
        Some(Self { is_tls, host, port: port.unwrap_or(default_port(is_tls)) })
    }

    /// The origin of the pages below an address.
    fn of_url(url: &str) -> Option<Self> {
        let (scheme, rest) = url.trim().split_once("://")?;
        Self::parse(&format!("{}://{}", scheme.to_ascii_lowercase(), rest.split('/').next()?))
    }
}

/// The name and the port of `name:port`, in comparable form.
fn host_and_port(authority: &str) -> Option<(String, Option<u16>)> {
    let authority: Authority = authority.parse().ok()?;
    // Text before an `@` is not part of a name, and lobster's clients never send it.
    if authority.as_str().contains('@') {
        return None;
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    Some((host, authority.port_u16()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7410);

    const CLEAR: Reached<'static> = Reached { listen: LISTEN, has_tls: false, has_proxy: false, url: None };

    fn sample_hosts(reached: Reached<'_>) -> Hosts {
        Hosts::new(reached, &["Flows.example".to_owned()])
    }

    #[test]
    fn only_whole_names_are_names_of_this_server() {
        let hosts = sample_hosts(CLEAR);
        for good in ["127.0.0.1", "127.0.0.1:7410", "localhost:1", "[::1]:7410", "flows.example", "LOCALHOST"]
        {
            assert!(hosts.has_name(good), "{good}");
        }
        for bad in [
            "127.0.0.1.evil.example",
            "evil.example",
            "127.evil.example:7410",
            "localhost.",
            "",
            "a@localhost",
            "127.0.0.2",
            "local host",
        ] {
            assert!(!hosts.has_name(bad), "{bad}");
        }
        let listen = SocketAddr::from(([10, 0, 0, 1], 7410));
        assert!(!Hosts::new(Reached { listen, ..CLEAR }, &[]).has_name("localhost"));
    }

    #[test]
    fn a_page_of_another_port_or_scheme_is_another_servers() {
        let (clear, secure) = (false, true);
        let hosts = sample_hosts(CLEAR);
        for (origin, called, is_secure, is_own) in [
            ("http://localhost:7410", "localhost:7410", clear, true),
            ("http://127.0.0.1:7410", "127.0.0.1:7410", clear, true),
            ("http://[::1]:7410", "[::1]:7410", clear, true),
            // A forwarded port.
            ("http://localhost:8000", "localhost:8000", clear, true),
            ("http://localhost:3000", "localhost:7410", clear, false),
            ("http://localhost", "localhost:7410", clear, false),
            ("http://127.0.0.1:7410", "localhost:7410", clear, false),
            // The port of a container, reached without the proxy.
            ("http://localhost:7410", "localhost:7410", secure, true),
            ("https://flows.example", "flows.example", secure, true),
            ("https://FLOWS.example", "flows.example:443", secure, true),
            ("https://flows.example:8443", "flows.example:8443", secure, true),
            ("https://flows.example:9999", "flows.example", secure, false),
            ("https://flows.example", "flows.example:9999", secure, false),
            ("http://flows.example", "flows.example", secure, false),
            ("http://flows.example:443", "flows.example", secure, false),
            ("https://evil.example", "evil.example", secure, false),
            ("ftp://localhost:7410", "localhost:7410", clear, false),
            ("null", "localhost:7410", clear, false),
        ] {
            assert_eq!(hosts.has_page(origin, called, is_secure), is_own, "{origin} {called} {is_secure}");
        }
        // A proxy that drops the port, and a server whose users have no TLS.
        let reached = Reached { url: Some("https://flows.example:8443/"), ..CLEAR };
        assert!(sample_hosts(reached).has_page("https://flows.example:8443", "flows.example", secure));
        let reached = Reached { url: Some("HTTP://flows.example"), ..CLEAR };
        assert!(sample_hosts(reached).has_page("http://flows.example", "flows.example", secure));
    }

    #[test]
    fn keys_are_for_the_addresses_that_the_settings_name() {
        let of_tls = Reached { has_tls: true, ..CLEAR };
        let of_proxy = Reached { has_proxy: true, ..CLEAR };
        let both = Reached { has_proxy: true, ..of_tls };
        let url = Some("https://flows.example:8443");
        for (reached, origins) in [
            (CLEAR, &["http://localhost:7410", "https://flows.example"][..]),
            (of_proxy, &["http://localhost:7410", "https://flows.example"]),
            (of_tls, &["https://localhost:7410", "https://flows.example:7410"]),
            (both, &["https://localhost:7410", "https://flows.example:7410", "https://flows.example"]),
            (
                Reached { url, ..of_proxy },
                &["http://localhost:7410", "https://flows.example", "https://flows.example:8443"],
            ),
        ] {
            let hosts = sample_hosts(reached);
            for origin in [
                "http://localhost:7410",
                "https://localhost:7410",
                "http://localhost:3000",
                "https://localhost",
                "http://flows.example",
                "https://flows.example",
                "https://flows.example:7410",
                "https://flows.example:8443",
                "https://flows.example:9999",
                "https://evil.example",
                "null",
            ] {
                assert_eq!(hosts.has_keys(origin), origins.contains(&origin), "{reached:?} {origin}");
            }
        }
    }
}
