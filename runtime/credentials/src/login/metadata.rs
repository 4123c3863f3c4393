//! Discovery of the authorization server: the metadata of the protected resource (RFC 9728), then the metadata of its
//! authorization server (RFC 8414 or OpenID), each checked against the address from which it was requested.

use lobster_base::cancel::CancelToken;
use reqwest::Url;
use serde_json::{Value, json};

use super::LoginError;
use super::http::{get, parse_login_url, post_json, without_query};

/// Facts about a server that a login needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Authority {
    /// The resource for which tokens are requested.
    pub(super) resource: String,
    pub(super) issuer: String,
    pub(super) authorization: Url,
    pub(super) token: Url,
    pub(super) registration: Option<Url>,
    /// True if the server names itself in its answers (RFC 9207).
    pub(super) names_itself: bool,
    /// True if a client sends its secret in the form instead of a header.
    pub(super) wants_secret_in_form: bool,
    /// The scopes that a client needs, according to the server.
    pub(super) scopes: Vec<String>,
}

/// Queries the server, and then the authorization server that it names.
pub(super) fn discover_authority(server: &Url, cancel: &CancelToken) -> Result<Authority, LoginError> {
    let challenge = fetch_challenge(server, cancel)?;
    let said = |name| challenge.as_deref().and_then(|text| challenge_parameter(text, name));
    let named = said("resource_metadata").map(|text| parse_login_url(&text)).transpose()?;
    let resource = protected_resource(server, named, cancel)?;
    let (identifier, issuers, supported) = match &resource {
        Some(found) => (found.identifier.clone(), found.issuers.clone(), found.scopes.clone()),
        // Before metadata of resources existed, servers were their own authorization servers.
        None => (without_query(server), vec![server.origin().ascii_serialization()], Vec::new()),
    };
    let mut scopes = said("scope").map_or(supported, |text| split_words(&text));
    let mut problem = LoginError::NoLogin { server: without_query(server) };
    for issuer in &issuers {
        match fetch_metadata(issuer, cancel) {
            Ok(Some(metadata)) => {
                let mut found = read_authority(issuer, &metadata)?;
                // Most servers give no refresh token without it.
                let offline = "offline_access".to_owned();
                if string_list(&metadata, "scopes_supported").contains(&offline) && !scopes.contains(&offline)
                {
                    scopes.push(offline);
                }
                found.resource = identifier;
                found.scopes = scopes;
                return Ok(found);
            }
            Ok(None) => {}
            Err(error @ (LoginError::Cancelled | LoginError::Metadata { .. })) => return Err(error),
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

/// Returns the server's challenge to a client without a token.
fn fetch_challenge(server: &Url, cancel: &CancelToken) -> Result<Option<String>, LoginError> {
    let reply = get(server, cancel)?;
    if reply.challenge.is_some() {
        return Ok(reply.challenge);
    }
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    Ok(post_json(server, &ping, cancel)?.challenge)
}

struct Resource {
    identifier: String,
    issuers: Vec<String>,
    scopes: Vec<String>,
}

fn protected_resource(
    server: &Url,
    named: Option<Url>,
    cancel: &CancelToken,
) -> Result<Option<Resource>, LoginError> {
    let mut places: Vec<Url> = named.into_iter().collect();
    if places.is_empty() {
        places = well_known(server, "oauth-protected-resource");
    }
    for place in places {
        let reply = get(&place, cancel)?;
        let Some(metadata) = reply.json_object().filter(|_| reply.status.is_success()) else { continue };
        let wrong = |why: String| LoginError::Metadata { url: without_query(&place), why };
        let identifier = metadata["resource"].as_str().unwrap_or_default().to_owned();
        if !resource_covers(&identifier, server) {
            let why = format!("it is about {identifier:?} and not about {}", without_query(server));
            return Err(wrong(why));
        }
        let issuers = string_list(&metadata, "authorization_servers");
        if issuers.is_empty() {
            return Err(wrong("it names no authorization server".to_owned()));
        }
        return Ok(Some(Resource {
            identifier,
            issuers,
            scopes: string_list(&metadata, "scopes_supported"),
        }));
    }
    Ok(None)
}

/// True if a token for this resource is valid at the server: the same origin, and the same path or a parent of it.
fn resource_covers(resource: &str, server: &Url) -> bool {
    let Ok(resource) = Url::parse(resource) else { return false };
    let above = resource.path().trim_end_matches('/');
    let rest = server.path().strip_prefix(above);
    resource.origin() == server.origin() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn fetch_metadata(issuer: &str, cancel: &CancelToken) -> Result<Option<Value>, LoginError> {
    let url = parse_login_url(issuer)?;
    let mut places = well_known(&url, "oauth-authorization-server");
    places.truncate(1);
    places.extend(well_known(&url, "openid-configuration").into_iter().take(1));
    let mut below = url.clone();
    below.set_path(&format!("{}/.well-known/openid-configuration", url.path().trim_end_matches('/')));
    if !places.contains(&below) {
        places.push(below);
    }
    for place in places {
        let reply = get(&place, cancel)?;
        if let Some(metadata) = reply.json_object().filter(|_| reply.status.is_success()) {
            return Ok(Some(metadata));
        }
    }
    Ok(None)
}

fn read_authority(issuer: &str, metadata: &Value) -> Result<Authority, LoginError> {
    let wrong = |why: String| LoginError::Metadata { url: issuer.to_owned(), why };
    let claimed = metadata["issuer"].as_str().unwrap_or_default();
    // A server that claims another's name could get clients to send it codes of that other server.
    if claimed.trim_end_matches('/') != issuer.trim_end_matches('/') {
        return Err(wrong(format!("it says that its issuer is {claimed:?}")));
    }
    if !string_list(metadata, "code_challenge_methods_supported").iter().any(|method| method == "S256") {
        return Err(wrong("it does not offer PKCE with S256, which MCP requires".to_owned()));
    }
    let endpoint = |name: &str| metadata[name].as_str().map(parse_login_url).transpose();
    let needed = |name: &str| endpoint(name)?.ok_or_else(|| wrong(format!("it has no {name}")));
    let methods = string_list(metadata, "token_endpoint_auth_methods_supported");
    let offers = |method: &str| methods.iter().any(|known| known == method);
    Ok(Authority {
        resource: String::new(),
        issuer: claimed.to_owned(),
        authorization: needed("authorization_endpoint")?,
        token: needed("token_endpoint")?,
        registration: endpoint("registration_endpoint")?,
        names_itself: metadata["authorization_response_iss_parameter_supported"] == json!(true),
        wants_secret_in_form: offers("client_secret_post") && !offers("client_secret_basic"),
        scopes: Vec::new(),
    })
}

/// The addresses of a document about a URL: first with the URL's path appended, then for the whole host.
fn well_known(url: &Url, name: &str) -> Vec<Url> {
    let at = |path: &str| {
        let mut place = url.clone();
        place.set_query(None);
        place.set_path(&format!("/.well-known/{name}{path}"));
        place
    };
    let path = url.path().trim_end_matches('/');
    if path.is_empty() { vec![at("")] } else { vec![at(path), at("")] }
}

fn string_list(value: &Value, name: &str) -> Vec<String> {
    let list = value[name].as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn split_words(text: &str) -> Vec<String> {
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

/// A parameter of a challenge, `Bearer a="b", c=d`, quoted or not.
fn challenge_parameter(challenge: &str, name: &str) -> Option<String> {
    let mut rest = challenge;
    while let Some(equals) = rest.find('=') {
        let key = rest[..equals].rsplit([' ', ',', '\t']).next().unwrap_or_default();
        let after = &rest[equals + 1..];
        let (value, end) = match after.strip_prefix('"') {
            Some(quoted) => quoted_text(quoted),
            None => {
                let end = after.find([',', ' ']).unwrap_or(after.len());
                (after[..end].to_owned(), end)
            }
        };
        if key.eq_ignore_ascii_case(name) {
            return Some(value);
        }
        rest = &after[end..];
    }
    None
}

/// Returns the text up to the closing quote, and the length including both quotes.
fn quoted_text(text: &str) -> (String, usize) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, at + 2),
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            _ => value.push(c),
        }
    }
    (value, text.len() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_challenges() {
        let text = r#"Bearer realm="a, \"scope=x\"", error=invalid_token,scope="a b", resource_metadata="https://h/m=1""#;
        assert_eq!(challenge_parameter(text, "resource_metadata").as_deref(), Some("https://h/m=1"));
        assert_eq!(challenge_parameter(text, "scope").as_deref(), Some("a b"));
        assert_eq!(challenge_parameter(text, "error").as_deref(), Some("invalid_token"));
        assert_eq!(challenge_parameter(text, "realm").as_deref(), Some("a, \"scope=x\""));
        for text in ["", "Bearer", "Bearer x", "=", "a=\"", "a=\"\\"] {
            assert_eq!(challenge_parameter(text, "scope"), None, "{text}");
        }
    }

    #[test]
    fn a_resource_covers_what_lies_below_it() {
        let server = Url::parse("https://h.example/a/mcp").unwrap();
        for (resource, covered) in [
            ("https://h.example/a/mcp", true),
            ("https://h.example:443/a/", true),
            ("https://h.example", true),
            ("https://h.example/a/mc", false),
            ("https://h.example/b", false),
            ("https://h.example:8443/a/mcp", false),
            ("http://h.example/a/mcp", false),
            ("https://h.example.evil/a/mcp", false),
            ("", false),
        ] {
            assert_eq!(resource_covers(resource, &server), covered, "{resource}");
        }
    }

    #[test]
    fn an_authority_speaks_for_itself_and_offers_pkce() {
        let good = json!({
            "issuer": "https://as.example/", "code_challenge_methods_supported": ["plain", "S256"],
            "authorization_endpoint": "https://as.example/authorize", "token_endpoint": "https://as.example/token",
        });
        assert!(read_authority("https://as.example", &good).is_ok());
        for (field, value, says) in [
            ("issuer", json!("https://evil.example"), "its issuer is"),
            ("issuer", json!(null), "its issuer is"),
            ("code_challenge_methods_supported", json!(["plain"]), "PKCE"),
            ("code_challenge_methods_supported", json!(null), "PKCE"),
            ("token_endpoint", json!(null), "no token_endpoint"),
            ("token_endpoint", json!("http://as.example/token"), "https"),
            ("authorization_endpoint", json!("javascript:alert(1)"), "https"),
        ] {
            let mut bad = good.clone();
            bad[field] = value;
            let error = read_authority("https://as.example", &bad).unwrap_err().to_string();
            assert!(error.contains(says), "{field}: {error}");
        }
    }
}
