//! One login, from discovery to the token: authorization code with PKCE.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use lobster_base::cancel::CancelToken;
use reqwest::Url;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::LoginError;
use super::http::{LoginReply, encode_fields, parse_login_url, post_form, post_json};
use super::kept::Login;
use super::metadata::{Authority, discover_authority};

/// Name under which the client registers.
const CLIENT_NAME: &str = "lobster";

/// Most characters of a server's own message that an error repeats.
const MOST_WORDS: usize = 300;

/// Settings of a login, given by the operator.
#[derive(Clone, Debug)]
pub struct LoginTerms {
    /// The address of the server.
    pub server: String,
    /// A client that was registered by hand.
    pub client_id: Option<String>,
    /// The secret of that client, if it has one.
    pub client_secret: Option<String>,
    /// The scopes of the token. If empty, the scopes that the server says are needed.
    pub scopes: Vec<String>,
    /// The address to which the browser returns.
    pub redirect: String,
}

/// A login that waits for a person.
pub struct LoginAttempt {
    server: String,
    authority: Authority,
    client: Client,
    redirect: String,
    address: String,
    state: String,
    verifier: String,
}

/// The client that requests tokens.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) id: String,
    pub(super) secret: Option<String>,
    /// True if the server gave the secret at registration; it is then stored with the tokens.
    pub(super) is_registered: bool,
    /// True if the secret is sent in the form instead of a header.
    pub(super) is_in_form: bool,
}

impl LoginAttempt {
    /// Finds the authorization server, and registers this client there unless a client is given.
    ///
    /// # Errors
    /// Fails if the server names no authorization server, or if its metadata is invalid.
    pub fn begin(terms: &LoginTerms, cancel: &CancelToken) -> Result<Self, LoginError> {
        let server = parse_login_url(&terms.server)?;
        let authority = discover_authority(&server, cancel)?;
        let client = match &terms.client_id {
            Some(id) => Client {
                id: id.clone(),
                secret: terms.client_secret.clone(),
                is_registered: false,
                is_in_form: authority.wants_secret_in_form,
            },
            None => register_client(&authority, &terms.redirect, cancel)?,
        };
        let (state, verifier) = (random_token()?, random_token()?);
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
        let scopes = if terms.scopes.is_empty() { &authority.scopes } else { &terms.scopes }.join(" ");
        let mut fields = vec![
            ("response_type", "code"),
            ("client_id", &client.id),
            ("redirect_uri", &terms.redirect),
            ("state", &state),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("resource", &authority.resource),
        ];
        if !scopes.is_empty() {
            fields.push(("scope", &scopes));
        }
        let mut address = authority.authorization.clone();
        // The endpoint's own query comes first.
        let own = address.query().filter(|own| !own.is_empty()).map(|own| format!("{own}&"));
        address.set_query(Some(&format!("{}{}", own.unwrap_or_default(), encode_fields(&fields)?)));
        Ok(Self {
            server: terms.server.clone(),
            redirect: terms.redirect.clone(),
            address: address.into(),
            authority,
            client,
            state,
            verifier,
        })
    }

    /// The address that a person opens.
    #[must_use]
    pub fn login_address(&self) -> &str {
        &self.address
    }

    /// True if a query at the callback belongs to this login. Any web page can make a browser send one.
    #[must_use]
    pub fn is_mine(&self, query: &str) -> bool {
        query_field(query, "state").is_some_and(|state| state == self.state)
    }

    /// Exchanges the browser's answer for tokens.
    ///
    /// # Errors
    /// Fails if the person or the server refused, or if the answer does not belong to this login.
    pub fn finish(&self, query: &str, cancel: &CancelToken) -> Result<Login, LoginError> {
        if !self.is_mine(query) {
            return Err(LoginError::Forged("its `state` is another one"));
        }
        // The answer of another authorization server must not be sent to this one (RFC 9207).
        match query_field(query, "iss") {
            Some(issuer) if issuer != self.authority.issuer => {
                return Err(LoginError::Forged("its `iss` names another authorization server"));
            }
            None if self.authority.names_itself => {
                return Err(LoginError::Forged("it does not name the authorization server"));
            }
            Some(_) | None => {}
        }
        if let Some(error) = query_field(query, "error") {
            let why = query_field(query, "error_description")
                .map_or(error.clone(), |more| format!("{error}: {more}"));
            return Err(refusal_error(&self.authority.issuer, "the login", &why));
        }
        let code = query_field(query, "code").ok_or(LoginError::Forged("it has no `code`"))?;
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", &code),
            ("redirect_uri", &self.redirect),
            ("code_verifier", &self.verifier),
            ("resource", &self.authority.resource),
        ];
        let tokens = request_tokens(&self.authority.token, &self.client, &fields, cancel)?;
        let tokens = granted_tokens(&tokens, &self.authority.issuer, "the code of this login")?;
        let mut login = Login {
            version: 1,
            server: self.server.clone(),
            issuer: self.authority.issuer.clone(),
            resource: self.authority.resource.clone(),
            token_endpoint: self.authority.token.as_str().to_owned(),
            client_id: self.client.id.clone(),
            client_secret: self.client.secret.clone().filter(|_| self.client.is_registered),
            secret_in_form: self.client.is_in_form,
            access_token: String::new(),
            refresh_token: None,
            expires_at: None,
            renew_at: None,
        };
        login.update_tokens(&tokens);
        Ok(login)
    }
}

/// Registers this client at an authorization server (RFC 7591).
fn register_client(
    authority: &Authority,
    redirect: &str,
    cancel: &CancelToken,
) -> Result<Client, LoginError> {
    let Some(place) = &authority.registration else {
        return Err(LoginError::NoRegistration { issuer: authority.issuer.clone() });
    };
    let asked = json!({
        "client_name": CLIENT_NAME,
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
    });
    let reply = post_json(place, &asked, cancel)?;
    let what = "to register this client";
    let Some(given) = reply.json_object().filter(|_| reply.status.is_success()) else {
        return Err(server_refusal(&reply, &authority.issuer, what));
    };
    let Some(id) = given["client_id"].as_str() else {
        return Err(refusal_error(&authority.issuer, what, "it answers without a client_id"));
    };
    Ok(Client {
        id: id.to_owned(),
        secret: given["client_secret"].as_str().map(str::to_owned),
        is_registered: true,
        is_in_form: given["token_endpoint_auth_method"] == json!("client_secret_post"),
    })
}

/// Requests tokens.
pub(super) fn request_tokens(
    endpoint: &Url,
    client: &Client,
    fields: &[(&str, &str)],
    cancel: &CancelToken,
) -> Result<LoginReply, LoginError> {
    let mut fields = fields.to_vec();
    let mut header = None;
    match &client.secret {
        Some(secret) if !client.is_in_form => {
            // Both are encoded as in a form before they are joined (RFC 6749 §2.3.1).
            let part =
                |text: &str| encode_fields(&[("", text)]).map(|text| text.trim_start_matches('=').to_owned());
            let pair = format!("{}:{}", part(&client.id)?, part(secret)?);
            header = Some(format!("Basic {}", STANDARD.encode(pair)));
        }
        secret => {
            fields.push(("client_id", &client.id));
            fields.extend(secret.iter().map(|secret| ("client_secret", secret.as_str())));
        }
    }
    post_form(endpoint, &fields, header.as_deref(), cancel)
}

/// The tokens of an answer.
pub(super) fn granted_tokens(
    reply: &LoginReply,
    issuer: &str,
    what: &'static str,
) -> Result<Value, LoginError> {
    let Some(tokens) = reply.json_object().filter(|_| reply.status.is_success()) else {
        return Err(server_refusal(reply, issuer, what));
    };
    let is_bearer = tokens["token_type"].as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("bearer"));
    let fits = |token: &str| !token.is_empty() && token.bytes().all(|byte| (b'!'..=b'~').contains(&byte));
    match tokens["access_token"].as_str() {
        Some(token) if is_bearer && fits(token) => Ok(tokens),
        Some(_) => Err(refusal_error(issuer, what, "its token is not a bearer token")),
        None => Err(refusal_error(issuer, what, "it answers without an access_token")),
    }
}

/// A refusal in the server's words. The request is not repeated in it.
fn server_refusal(reply: &LoginReply, issuer: &str, what: &'static str) -> LoginError {
    let said = reply.json_object().unwrap_or_default();
    let words: Vec<&str> =
        ["error", "error_description"].iter().filter_map(|name| said[*name].as_str()).collect();
    let why = if words.is_empty() { format!("HTTP {}", reply.status.as_u16()) } else { words.join(": ") };
    refusal_error(issuer, what, &why)
}

fn refusal_error(issuer: &str, what: &'static str, why: &str) -> LoginError {
    let plain: String = why.chars().filter(|c| !c.is_control()).take(MOST_WORDS).collect();
    LoginError::Refused { issuer: issuer.to_owned(), what, why: plain }
}

/// Returns a field of a query, or `None` if it occurs twice.
fn query_field(query: &str, name: &str) -> Option<String> {
    let mut url = Url::parse("http://callback.invalid/").ok()?;
    url.set_query(Some(query));
    let mut values = url.query_pairs().filter(|(key, _)| key == name).map(|(_, value)| value.into_owned());
    let first = values.next();
    if values.next().is_some() { None } else { first }
}

/// 256 random bits, encoded for a URL.
fn random_token() -> std::io::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

impl Login {
    /// Stores the tokens of an answer.
    pub(super) fn update_tokens(&mut self, tokens: &Value) {
        if let Some(token) = tokens["access_token"].as_str() {
            token.clone_into(&mut self.access_token);
        }
        // If the server sends no new refresh token, the old one stays valid.
        if let Some(token) = tokens["refresh_token"].as_str() {
            self.refresh_token = Some(token.to_owned());
        }
        let seconds = tokens["expires_in"].as_f64().or_else(|| tokens["expires_in"].as_str()?.parse().ok());
        #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
        self.runs_out_in(seconds.filter(|seconds| *seconds >= 0.0).map(|seconds| seconds as i64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_stands_twice_is_none() {
        assert_eq!(query_field("state=a%20b&code=c", "state").as_deref(), Some("a b"));
        assert_eq!(query_field("state=a&state=a", "state"), None);
        assert_eq!(query_field("", "state"), None);
    }

    #[test]
    fn secrets_are_encoded_before_they_are_joined() {
        assert_eq!(encode_fields(&[("", "a:b c&")]).unwrap(), "=a%3Ab+c%26");
    }
}
