//! A grant with the value of its secret.

use std::sync::Arc;

use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, HeaderName, HeaderValue};
use lobster_base::credential::{CredentialGrant, EchoMask, OutOfBounds};

/// What a request may be sent with.
#[derive(Clone)]
pub struct Credential {
    grant: Arc<CredentialGrant>,
    header: HeaderName,
    value: HeaderValue,
    mask: EchoMask,
}

/// Why a grant and a value make no credential. It does not say the value.
#[derive(Debug, thiserror::Error)]
#[error("secret {secret}: it cannot be sent to {host}: {why}")]
pub struct Unsendable {
    secret: String,
    host: String,
    why: String,
}

/// Without the value.
impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credential").field("grant", &self.grant).finish_non_exhaustive()
    }
}

impl Credential {
    /// The credential of a grant whose secret has this value.
    ///
    /// # Errors
    /// When no header can hold the value.
    pub fn new(grant: CredentialGrant, value: &str) -> Result<Self, Unsendable> {
        let refuse =
            |why: String| Unsendable { secret: grant.secret.clone(), host: grant.host.to_string(), why };
        let header =
            HeaderName::from_bytes(grant.header.as_bytes()).map_err(|error| refuse(error.to_string()))?;
        let text = grant.header_value(value).map_err(|error| refuse(error.to_string()))?;
        let mut sent = HeaderValue::from_str(&text).map_err(|error| refuse(error.to_string()))?;
        // No library prints it.
        sent.set_sensitive(true);
        let mask = grant.mask(value);
        Ok(Self { grant: Arc::new(grant), header, value: sent, mask })
    }

    /// What was granted.
    #[must_use]
    pub fn grant(&self) -> &CredentialGrant {
        &self.grant
    }

    /// Whether requests to this place may be sent with it.
    #[must_use]
    pub fn is_for(&self, host: &str, port: u16) -> bool {
        self.grant.host.is(host, port)
    }

    /// Adds it to the headers of a request, in place of what the sender had there.
    ///
    /// # Errors
    /// When the request is outside of its bounds; the headers stay as they are.
    pub fn add(&self, method: &str, path: &str, headers: &mut HeaderMap) -> Result<(), OutOfBounds> {
        self.grant.check(method, path)?;
        headers.insert(self.header.clone(), self.value.clone());
        // What is packed could not be searched for the value.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        Ok(())
    }

    /// Hides the value in what came back.
    pub fn hide_in(&self, headers: &mut HeaderMap) {
        for value in headers.values_mut() {
            let mut bytes = value.as_bytes().to_vec();
            self.mask.hide(&mut bytes);
            if bytes != value.as_bytes()
                && let Ok(hidden) = HeaderValue::from_bytes(&bytes)
            {
                *value = hidden;
            }
        }
    }

    /// What hides the value in a body.
    #[must_use]
    pub fn mask(&self) -> EchoMask {
        self.mask.clone()
    }
}
