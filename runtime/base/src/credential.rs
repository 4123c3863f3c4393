//! Credentials that a step uses without seeing them: which secret is sent to which host, in which header, and for
//! which requests. Plain data, without the values, which are passed in where needed.

mod echo;
mod known;
mod terms;

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode;
use serde::{Deserialize, Serialize};

pub use echo::EchoMask;
use known::KnownHost;
pub use terms::{AddressVariables, CredentialTerms, WrongTerm};

/// The default port of https.
const HTTPS: u16 = 443;

/// Most times that text is decoded before it is compared with its bounds; no server decodes more often.
const MOST_DECODINGS: usize = 4;

/// A secret that is added to a step's requests to one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialGrant {
    /// The host to which it is sent, over https.
    pub host: CredentialHost,
    /// The name of the secret.
    pub secret: String,
    /// The header that carries it, in lower case.
    pub header: String,
    /// The form of the header's value.
    pub scheme: Scheme,
    /// The methods that it is added to; an empty list means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// The paths that it is added to, including all paths below them; an empty list means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Variables of a native step with the address to use in place of the host's; their values contain [`ADDRESS`] as
    /// its placeholder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<(String, String)>,
}

/// Placeholder of the address in the value of a variable.
pub const ADDRESS: &str = "{url}";

/// Form of a header value that authenticates the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheme {
    /// A word, a blank and the value.
    Word(String),
    /// `Basic`, with this user and the value as the password.
    Basic(String),
    /// The value alone.
    Plain,
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CredentialHost {
    /// A name in lower case, or an address.
    pub name: String,
    /// Usually the port of https.
    pub port: u16,
}

/// The text is not a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a host; write `api.example.com`, or `api.example.com:8443` if the port is not 443")]
pub struct NoHost {
    text: String,
}

/// Reason why a request is sent without a credential, or not at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutOfBounds {
    /// The method is not in the list.
    #[error("the step may use the credential of {host} for {allowed}, not for {method}")]
    Method {
        /// The host of the credential.
        host: String,
        /// The method of the request.
        method: String,
        /// The allowed methods.
        allowed: String,
    },
    /// The path is not below any path in the list.
    #[error("the step may use the credential of {host} below {allowed}, not for {path}")]
    Path {
        /// The host of the credential.
        host: String,
        /// The path of the request.
        path: String,
        /// The allowed paths.
        allowed: String,
    },
    /// The server could interpret the path as another one.
    #[error("the credential of {host} is bound to paths, and {path} could mean another one to the server")]
    Ambiguous {
        /// The host of the credential.
        host: String,
        /// The path of the request.
        path: String,
    },
    /// Some methods return the request's headers to the reader of the answer.
    #[error("no credential is added to {method} requests")]
    Echoing {
        /// The method of the request.
        method: String,
    },
}

/// A value that does not fit in a header. The error does not contain the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its value has characters that no header can have, such as the end of a line")]
pub struct NotForHeaders;

impl CredentialGrant {
    /// With the defaults of most servers, or those known for this host.
    #[must_use]
    pub fn new(host: CredentialHost, secret: String) -> Self {
        let known = KnownHost::find(&host);
        let (header, scheme) = known.map_or_else(
            || ("authorization", Scheme::Word("Bearer".to_owned())),
            |known| (known.header_name(), known.scheme()),
        );
        let variables = known.map(KnownHost::owned_variables).unwrap_or_default();
        Self {
            header: header.to_owned(),
            scheme,
            host,
            secret,
            variables,
            methods: Vec::new(),
            paths: Vec::new(),
        }
    }

    /// Succeeds if the credential is added to a request for `path`, which begins with a slash and may have a query.
    ///
    /// # Errors
    /// The bound that the request violates.
    pub fn check_bounds(&self, method: &str, path: &str) -> Result<(), OutOfBounds> {
        if matches!(method, "TRACE" | "TRACK" | "CONNECT") {
            return Err(OutOfBounds::Echoing { method: method.to_owned() });
        }
        if !self.methods.is_empty() && !self.methods.iter().any(|known| known == method) {
            return Err(OutOfBounds::Method {
                host: self.host.to_string(),
                method: method.to_owned(),
                allowed: self.methods.join(", "),
            });
        }
        if self.paths.is_empty() {
            return Ok(());
        }
        let path = path.split(['?', '#']).next().unwrap_or_default();
        if is_ambiguous(path) {
            return Err(OutOfBounds::Ambiguous { host: self.host.to_string(), path: path.to_owned() });
        }
        let below = |bound: &String| {
            path.strip_prefix(bound.trim_end_matches('/'))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        match self.paths.iter().any(below) {
            true => Ok(()),
            false => Err(OutOfBounds::Path {
                host: self.host.to_string(),
                path: path.to_owned(),
                allowed: self.paths.join(", "),
            }),
        }
    }

    /// The header's value for this value of the secret.
    ///
    /// # Errors
    /// If the value does not fit in a header.
    pub fn header_value(&self, value: &str) -> Result<String, NotForHeaders> {
        let text = match &self.scheme {
            Scheme::Word(word) => format!("{word} {value}"),
            Scheme::Basic(user) => format!("Basic {}", STANDARD.encode(format!("{user}:{value}"))),
            Scheme::Plain => value.to_owned(),
        };
        let fits = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if fits { Ok(text) } else { Err(NotForHeaders) }
    }

    /// A mask that hides the values if a server repeats them.
    #[must_use]
    pub fn echo_mask<'v>(&self, values: impl IntoIterator<Item = &'v str>) -> EchoMask {
        EchoMask::new(values.into_iter().flat_map(|value| {
            let sent = match &self.scheme {
                Scheme::Basic(user) => Some(STANDARD.encode(format!("{user}:{value}"))),
                Scheme::Word(_) | Scheme::Plain => None,
            };
            let as_json = serde_json::to_string(value).ok().map(|text| text[1..text.len() - 1].to_owned());
            std::iter::once(value.to_owned()).chain(as_json).chain(sent)
        }))
    }

    /// The variables of a native step that reaches the host at `address`.
    #[must_use]
    pub fn environment_for(&self, address: &str) -> Vec<(String, String)> {
        let own = self.variables.iter().map(|(name, text)| (name.clone(), text.replace(ADDRESS, address)));
        std::iter::once((self.address_variable(), address.to_owned())).chain(own).collect()
    }

    /// The variable in which every native step finds the address.
    #[must_use]
    pub fn address_variable(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        let name: String = self.host.to_string().chars().map(plain).collect();
        format!("LOBSTER_URL_{}", name.trim_matches('_'))
    }
}

impl CredentialHost {
    /// Reads `host` or `host:port`.
    ///
    /// # Errors
    /// If the text is neither.
    pub fn parse(text: &str) -> Result<Self, NoHost> {
        let refuse = || NoHost { text: text.to_owned() };
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (name, after) = rest.split_once(']').ok_or_else(refuse)?;
                let port = match after {
                    "" => None,
                    after => Some(after.strip_prefix(':').ok_or_else(refuse)?),
                };
                name.parse::<IpAddr>().map_err(|_| refuse())?;
                (name, port)
            }
            None => text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
        };
        let port = match port {
            None => HTTPS,
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(refuse)?,
        };
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let is_address = name.parse::<IpAddr>().is_ok();
        let is_label = |label: &str| {
            !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        };
        if !is_address && !name.split('.').all(is_label) {
            return Err(refuse());
        }
        Ok(Self { name, port })
    }

    /// True if a request for this host and port gets the credential.
    #[must_use]
    pub fn is_for(&self, name: &str, port: u16) -> bool {
        let name = name.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
        self.port == port && self.name.eq_ignore_ascii_case(name)
    }
}

impl fmt::Display for CredentialHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.contains(':') {
            true => write!(f, "[{}]", self.name)?,
            false => f.write_str(&self.name)?,
        }
        if self.port == HTTPS { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

impl TryFrom<String> for CredentialHost {
    type Error = NoHost;

    fn try_from(text: String) -> Result<Self, NoHost> {
        Self::parse(&text)
    }
}

impl From<CredentialHost> for String {
    fn from(host: CredentialHost) -> Self {
        host.to_string()
    }
}

/// True if a server could interpret the path as another one: it has segments that lead upwards, even encoded ones,
/// encoded slashes, backslashes, or empty segments.
fn is_ambiguous(path: &str) -> bool {
    let mut text = path.as_bytes().to_vec();
    for _ in 0..MOST_DECODINGS {
        let has_slash = |bytes: &[u8]| bytes.windows(2).any(|pair| pair == b"//");
        let is_dots = |segment: &[u8]| {
            let segment = segment.split(|byte| *byte == b';').next().unwrap_or_default();
            matches!(segment, b"." | b"..")
        };
        let is_bad = text.contains(&b'\\')
            || text.iter().any(|byte| byte.is_ascii_control())
            || has_slash(&text)
            || text.split(|byte| *byte == b'/').any(is_dots);
        if is_bad {
            return true;
        }
        let decoded: Vec<u8> = percent_decode(&text).collect();
        if decoded == text {
            return false;
        }
        let slashes = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'/').count();
        if slashes(&decoded) != slashes(&text) {
            return true;
        }
        text = decoded;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant_for(host: &str) -> CredentialGrant {
        CredentialGrant::new(CredentialHost::parse(host).unwrap(), "s".to_owned())
    }

    #[test]
    fn hosts() {
        for (text, shown) in [
            ("API.GitHub.com.", "api.github.com"),
            ("h:443", "h"),
            ("h:8443", "h:8443"),
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("[::1]:8443", "[::1]:8443"),
            ("[::1]", "[::1]"),
        ] {
            assert_eq!(CredentialHost::parse(text).map(|host| host.to_string()), Ok(shown.to_owned()));
        }
        for text in [
            "",
            "https://h",
            "h/x",
            "*.h",
            "h:",
            "h:0",
            "h:x",
            "u@h",
            "a..b",
            "::1",
            "[x]:1",
            "[::1]x",
            "h h",
        ] {
            assert!(CredentialHost::parse(text).is_err(), "{text}");
        }
        let host = CredentialHost::parse("[::1]:8443").unwrap();
        assert!(host.is_for("[::1]", 8443) && host.is_for("::1", 8443) && !host.is_for("::1", 443));
    }

    #[test]
    fn a_credential_is_bound_to_methods_and_paths() {
        let mut bound = grant_for("api.example");
        assert!(bound.check_bounds("DELETE", "/anything/../x").is_ok(), "without bounds");
        bound.methods = vec!["GET".to_owned()];
        bound.paths = vec!["/repos/acme/".to_owned(), "/user".to_owned()];
        for path in
            ["/repos/acme", "/repos/acme/", "/repos/acme/x?y=/../z", "/user", "/user#f", "/repos/acme/a%20b"]
        {
            assert_eq!(bound.check_bounds("GET", path), Ok(()), "{path}");
        }
        for path in [
            "/",
            "/repos/acmeevil",
            "/repos/other",
            "/users",
            "/repos/acme/../other",
            "/repos/acme/..",
            "/repos/acme/%2e%2e/other",
            "/repos/acme/%2E./other",
            "/repos/acme/%252e%252e/other",
            "/repos/acme/%25252525252e%252e/other",
            "/repos/acme/..;/other",
            "/repos/acme/x%2f..%2fother",
            "/repos/acme/..%5cother",
            "/repos/acme/..\\other",
            "/repos/acme//other",
            "/repos/acme/a%0ab",
            "/repos/%61cme",
        ] {
            assert!(bound.check_bounds("GET", path).is_err(), "{path}");
        }
        assert!(matches!(bound.check_bounds("POST", "/user"), Err(OutOfBounds::Method { .. })));
        // Their answers contain the request.
        for method in ["TRACE", "CONNECT"] {
            assert!(grant_for("h").check_bounds(method, "/").is_err());
        }
    }

    #[test]
    fn headers_and_variables() {
        let value = |grant: &CredentialGrant, value| grant.header_value(value);
        assert_eq!(value(&grant_for("h"), "v"), Ok("Bearer v".to_owned()));
        let git = grant_for("github.com");
        assert_eq!(value(&git, "v"), Ok("Basic eC1hY2Nlc3MtdG9rZW46dg==".to_owned()));
        let claude = grant_for("api.anthropic.com");
        assert_eq!((claude.header.as_str(), value(&claude, "v")), ("x-api-key", Ok("v".to_owned())));
        for bad in ["a\nb", "a\0", "ü"] {
            assert_eq!(value(&claude, bad), Err(NotForHeaders));
        }
        // Base64 makes every value fit.
        assert!(value(&git, "ü\n").is_ok());
        let names = |grant: &CredentialGrant| grant.environment_for("http://a/b");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            names(&grant_for("h-1.example:8443")),
            [pair("LOBSTER_URL_H_1_EXAMPLE_8443", "http://a/b")]
        );
        assert_eq!(
            names(&grant_for("api.openai.com")),
            [pair("LOBSTER_URL_API_OPENAI_COM", "http://a/b"), pair("OPENAI_BASE_URL", "http://a/b/v1")]
        );
        // The same host with another port is another host.
        assert_eq!(grant_for("api.openai.com:8443").variables, []);
    }

    #[test]
    fn grants_are_data() {
        let git = grant_for("github.com");
        let text = serde_json::to_string(&git).unwrap();
        assert_eq!(serde_json::from_str::<CredentialGrant>(&text).unwrap(), git);
    }
}
