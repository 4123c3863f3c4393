//! A grant with the value of its secret, or with the login whose token is sent.

use std::sync::{Arc, Mutex};

use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, HeaderName, HeaderValue};
use lobster_base::credential::{CredentialGrant, EchoMask, OutOfBounds};
use lobster_base::sync::lock;

use crate::login::{HeldLogin, LoginError, TokenError};

/// A credential that requests may be sent with.
#[derive(Clone)]
pub struct Credential {
    grant: Arc<CredentialGrant>,
    header: HeaderName,
    value: Value,
}

#[derive(Clone)]
enum Value {
    Fixed {
        sent: HeaderValue,
        mask: EchoMask,
    },
    /// The token changes while the step runs.
    Login {
        login: Arc<HeldLogin>,
        problem: Arc<Mutex<Option<TokenError>>>,
    },
}

/// The header of one request.
pub struct Proof {
    header: HeaderName,
    value: HeaderValue,
    /// The token, if the value comes from a login.
    token: Option<Arc<str>>,
}

/// Reason why a request is not sent with a credential. Its message never contains the value.
#[derive(Debug, thiserror::Error)]
pub enum Unready {
    /// The request is outside the bounds of the credential.
    #[error(transparent)]
    OutOfBounds(#[from] OutOfBounds),
    /// No token is available.
    #[error(transparent)]
    Login(#[from] TokenError),
    /// The token cannot be sent.
    #[error(transparent)]
    Unsendable(#[from] Unsendable),
}

/// Reason why a grant and a value do not form a credential. Its message never contains the value.
#[derive(Debug, thiserror::Error)]
#[error("secret {secret}: it cannot be sent to {host}: {why}")]
pub struct Unsendable {
    secret: String,
    host: String,
    why: String,
}

/// Leaves out the value.
impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credential").field("grant", &self.grant).finish_non_exhaustive()
    }
}

impl Credential {
    /// Returns the credential of a grant whose secret has this value.
    ///
    /// # Errors
    /// Fails if no header can hold the value.
    pub fn new(grant: CredentialGrant, value: &str) -> Result<Self, Unsendable> {
        let (header, sent) = (header_of(&grant)?, header_value(&grant, value)?);
        let mask = grant.echo_mask([value]);
        Ok(Self { grant: Arc::new(grant), header, value: Value::Fixed { sent, mask } })
    }

    /// Returns the credential of a grant whose secret is the token of this login, read when a request is sent.
    ///
    /// # Errors
    /// Fails if the header name is invalid.
    pub fn of_login(grant: CredentialGrant, login: Arc<HeldLogin>) -> Result<Self, Unsendable> {
        let header = header_of(&grant)?;
        let value = Value::Login { login, problem: Arc::default() };
        Ok(Self { grant: Arc::new(grant), header, value })
    }

    /// The grant that allows this credential.
    #[must_use]
    pub fn grant(&self) -> &CredentialGrant {
        &self.grant
    }

    /// True if requests to this host and port may be sent with it.
    #[must_use]
    pub fn is_for(&self, host: &str, port: u16) -> bool {
        self.grant.host.is_for(host, port)
    }

    /// True if another value can be requested after the server has rejected one.
    #[must_use]
    pub fn is_renewed(&self) -> bool {
        matches!(self.value, Value::Login { .. })
    }

    /// Returns the header for a request. Waits for the authorization server if the token has expired.
    ///
    /// # Errors
    /// Fails if the request is outside the bounds, or if no token is available.
    pub async fn proof_for(&self, method: &str, path: &str, headers: &HeaderMap) -> Result<Proof, Unready> {
        check_all_readings(&self.grant, method, path, headers)?;
        match &self.value {
            Value::Fixed { sent, .. } => {
                Ok(Proof { header: self.header.clone(), value: sent.clone(), token: None })
            }
            Value::Login { login, .. } => match login.at_hand() {
                Some(token) => self.proof_of(token),
                None => {
                    let token = self.run_blocking(login, |login| login.token()).await?;
                    self.proof_of(token)
                }
            },
        }
    }

    /// Returns the header for a second attempt after a server has rejected `refused`, or `None` if no other token
    /// exists.
    ///
    /// # Errors
    /// Fails if the login has ended.
    pub async fn proof_in_place_of(&self, refused: &Proof) -> Result<Option<Proof>, Unready> {
        let (Value::Login { login, .. }, Some(token)) = (&self.value, refused.token.clone()) else {
            return Ok(None);
        };
        let other = self.run_blocking(login, move |login| login.token_in_place_of(&token)).await?;
        other.map(|token| self.proof_of(token)).transpose()
    }

    /// The reason if a request needed a token and none was available.
    #[must_use]
    pub fn token_problem(&self) -> Option<TokenError> {
        match &self.value {
            Value::Fixed { .. } => None,
            Value::Login { problem, .. } => lock(problem).clone(),
        }
    }

    /// Runs the question on a blocking thread: it reads and locks files, and the thread that serves requests also
    /// performs the request for another token.
    async fn run_blocking<T: Send + 'static>(
        &self,
        login: &Arc<HeldLogin>,
        question: impl FnOnce(&HeldLogin) -> Result<T, TokenError> + Send + 'static,
    ) -> Result<T, TokenError> {
        let asked = Arc::clone(login);
        let answer = tokio::task::spawn_blocking(move || question(&asked)).await;
        let answer = answer.unwrap_or_else(|error| {
            Err(login.token_error(LoginError::System(std::io::Error::other(error.to_string()))))
        });
        if let (Err(error), Value::Login { problem, .. }) = (&answer, &self.value) {
            *lock(problem) = Some(error.clone());
        }
        answer
    }

    fn proof_of(&self, token: Arc<str>) -> Result<Proof, Unready> {
        let value = header_value(&self.grant, &token)?;
        Ok(Proof { header: self.header.clone(), value, token: Some(token) })
    }

    /// Hides the value in the headers of an answer.
    pub fn hide_in(&self, headers: &mut HeaderMap) {
        let mask = self.echo_mask();
        for value in headers.values_mut() {
            let mut bytes = value.as_bytes().to_vec();
            mask.hide_values(&mut bytes);
            if bytes != value.as_bytes()
                && let Ok(hidden) = HeaderValue::from_bytes(&bytes)
            {
                *value = hidden;
            }
        }
    }

    /// Returns the mask that hides the value in a body. For a login, it covers every token used so far.
    #[must_use]
    pub fn echo_mask(&self) -> EchoMask {
        match &self.value {
            Value::Fixed { mask, .. } => mask.clone(),
            Value::Login { login, .. } => self.grant.echo_mask(login.used_tokens().iter().map(AsRef::as_ref)),
        }
    }
}

impl Proof {
    /// Adds the header to a request and replaces any that the sender set.
    pub fn add_to(&self, headers: &mut HeaderMap) {
        headers.insert(self.header.clone(), self.value.clone());
        // A compressed body could not be searched for the value.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
}

/// Headers whose value some servers use as the method or as the path.
const METHOD_OVERRIDES: [&str; 3] = ["x-http-method-override", "x-http-method", "x-method-override"];
const PATH_OVERRIDES: [&str; 2] = ["x-original-url", "x-rewrite-url"];

/// Checks every reading that a server may make of the request. Removing such a header would change the request, so a
/// request that leaves the bounds is refused instead.
fn check_all_readings(
    grant: &CredentialGrant,
    method: &str,
    path: &str,
    headers: &HeaderMap,
) -> Result<(), OutOfBounds> {
    let given = |names: &'static [&'static str]| {
        let values = names.iter().flat_map(|name| headers.get_all(*name));
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned())
    };
    grant.check_bounds(method, path)?;
    for other in given(&METHOD_OVERRIDES) {
        grant.check_bounds(&other.to_ascii_uppercase(), path)?;
    }
    for other in given(&PATH_OVERRIDES) {
        grant.check_bounds(method, &other)?;
    }
    Ok(())
}

fn header_of(grant: &CredentialGrant) -> Result<HeaderName, Unsendable> {
    HeaderName::from_bytes(grant.header.as_bytes())
        .map_err(|error| unsendable_error(grant, error.to_string()))
}

fn header_value(grant: &CredentialGrant, value: &str) -> Result<HeaderValue, Unsendable> {
    let text = grant.header_value(value).map_err(|error| unsendable_error(grant, error.to_string()))?;
    let mut sent =
        HeaderValue::from_str(&text).map_err(|error| unsendable_error(grant, error.to_string()))?;
    // Libraries do not print a sensitive value.
    sent.set_sensitive(true);
    Ok(sent)
}

fn unsendable_error(grant: &CredentialGrant, why: String) -> Unsendable {
    Unsendable { secret: grant.secret.clone(), host: grant.host.to_string(), why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lobster_base::credential::CredentialHost;

    #[test]
    fn no_header_leads_out_of_the_bounds() {
        let mut grant = CredentialGrant::new(CredentialHost::parse("a.example").unwrap(), "s".to_owned());
        let check = |grant: &CredentialGrant, headers: &[(&'static str, &'static str)]| {
            let headers = headers
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            let mut map = HeaderMap::new();
            headers.for_each(|(name, value)| {
                map.append(name, value);
            });
            check_all_readings(grant, "POST", "/x", &map).is_ok()
        };
        assert!(check(&grant, &[("x-http-method-override", "DELETE"), ("x-original-url", "/y")]));
        grant.methods = vec!["POST".to_owned(), "PATCH".to_owned()];
        grant.paths = vec!["/x".to_owned()];
        for name in METHOD_OVERRIDES {
            assert!(check(&grant, &[(name, "PATCH")]) && check(&grant, &[(name, " patch ")]), "{name}");
            for value in ["DELETE", "delete", "PATCH, DELETE", ""] {
                assert!(!check(&grant, &[(name, value)]), "{name}: {value}");
                assert!(!check(&grant, &[(name, "PATCH"), (name, value)]), "{name}: {value}");
            }
        }
        for name in PATH_OVERRIDES {
            assert!(check(&grant, &[(name, "/x/y?z")]), "{name}");
            for value in ["/y", "/x/../y", "https://a.example/x", ""] {
                assert!(!check(&grant, &[(name, value)]), "{name}: {value}");
            }
        }
    }
}
