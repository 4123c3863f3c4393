//! Credentials as written in files, and their validation.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{ADDRESS, CredentialGrant, CredentialHost, Scheme};

/// Headers that only the host sends, with any value.
const HEADERS_OF_THE_HOST: &[&str] = &[
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "accept-encoding",
];

/// A credential as an author or operator writes it. If only the secret is given, it is sent in the form known for its
/// host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialTerms {
    /// The name of the secret.
    pub secret: String,
    /// The header that carries it.
    #[serde(default)]
    pub header: Option<String>,
    /// The word before the value, `basic`, or `none`.
    #[serde(default)]
    pub scheme: Option<String>,
    /// The user of `basic`.
    #[serde(default)]
    pub user: Option<String>,
    /// The methods that it is added to.
    #[serde(default)]
    pub methods: Vec<String>,
    /// The paths that it is added to, including all paths below them.
    #[serde(default)]
    pub paths: Vec<String>,
    /// Variables in which a program finds the address.
    #[serde(default)]
    pub env: Option<AddressVariables>,
}

/// Variables with the address of a host: one by its name, or several, each with a text around it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum AddressVariables {
    /// This variable holds the address.
    One(String),
    /// These variables hold texts with the address in them.
    Each(BTreeMap<String, String>),
}

/// A credential that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}{message}")]
pub struct WrongTerm {
    /// The field that is wrong.
    pub field: &'static str,
    /// The problem, as a continuation of the field's name.
    pub message: String,
    /// True if the field conflicts with another one, and is valid by itself.
    pub is_conflict: bool,
}

impl WrongTerm {
    fn in_field(field: &'static str, message: impl Into<String>) -> Self {
        Self { field, message: message.into(), is_conflict: false }
    }
}

impl CredentialTerms {
    /// The credential for a host.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn grant_for(self, host: CredentialHost) -> Result<CredentialGrant, WrongTerm> {
        let scheme = self.parse_scheme()?;
        let mut grant = CredentialGrant::new(host, self.secret);
        if let Some(header) = self.header {
            let header = header.to_ascii_lowercase();
            let is_token = header.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c));
            if header.is_empty() || !is_token || HEADERS_OF_THE_HOST.contains(&header.as_str()) {
                let message = format!(": {header:?} is not a header that a credential can be sent in");
                return Err(WrongTerm::in_field("header", message));
            }
            // A header other than the usual one contains the value alone, unless the file says otherwise.
            if header != grant.header {
                grant.scheme = Scheme::Plain;
            }
            grant.header = header;
        }
        if let Some(scheme) = scheme {
            grant.scheme = scheme;
        }
        let is_method = |method: &String| method.chars().all(|c| c.is_ascii_alphabetic());
        if let Some(method) = self.methods.iter().find(|method| !is_method(method)) {
            return Err(WrongTerm::in_field("methods", format!(": {method:?} is not a method")));
        }
        grant.methods = self.methods.into_iter().map(|method| method.to_ascii_uppercase()).collect();
        let is_plain = |path: &String| {
            path.starts_with('/')
                && !path.contains(['?', '#', '%', '\\', '*'])
                && !path.contains("//")
                && !path.split('/').any(|segment| matches!(segment, "." | ".."))
        };
        if let Some(path) = self.paths.iter().find(|path| !is_plain(path)) {
            return Err(WrongTerm::in_field(
                "paths",
                format!(": {path:?} must be a plain path, such as /repos/acme"),
            ));
        }
        grant.paths = self.paths;
        if let Some(variables) = self.env {
            grant.variables = variables.variable_texts()?;
        }
        Ok(grant)
    }

    fn parse_scheme(&self) -> Result<Option<Scheme>, WrongTerm> {
        let is_word = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        match (self.scheme.as_deref(), self.user.as_deref()) {
            (Some(scheme), user) if scheme.eq_ignore_ascii_case("basic") => match user.unwrap_or_default() {
                user if user.contains(':') => Err(WrongTerm::in_field("user", " must not have a colon")),
                user => Ok(Some(Scheme::Basic(user.to_owned()))),
            },
            (_, Some(_)) => {
                Err(WrongTerm { is_conflict: true, ..WrongTerm::in_field("user", " needs `scheme: basic`") })
            }
            (Some("none"), None) => Ok(Some(Scheme::Plain)),
            (Some(scheme), None) if is_word(scheme) => Ok(Some(Scheme::Word(scheme.to_owned()))),
            (Some(scheme), None) => {
                let must = "must be basic, none, or the word before the value, such as Bearer";
                Err(WrongTerm::in_field("scheme", format!(": {scheme:?} {must}")))
            }
            (None, None) => Ok(None),
        }
    }
}

impl AddressVariables {
    /// Each variable with its text, in which [`ADDRESS`] is the placeholder of the address.
    fn variable_texts(self) -> Result<Vec<(String, String)>, WrongTerm> {
        let is_variable = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let texts: Vec<(String, String)> = match self {
            Self::One(name) => vec![(name, ADDRESS.to_owned())],
            Self::Each(texts) => texts.into_iter().collect(),
        };
        let fits = |(name, text): &(String, String)| is_variable(name) && text.contains(ADDRESS);
        if !texts.is_empty() && texts.iter().all(fits) {
            return Ok(texts);
        }
        let must = "must be the name of a variable, or a map of variables to texts with";
        Err(WrongTerm::in_field("env", format!(" {must} {ADDRESS} in them")))
    }
}
