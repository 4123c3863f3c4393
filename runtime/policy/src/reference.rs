//! References to secrets: the operator names the source of the value, never the value itself.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file::{PolicyError, syntax_error};
use lobster_base::credential::CredentialHost;

/// A secret: the source of its value, and its permitted use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "ReferenceForm", into = "ReferenceForm")]
#[schemars(with = "ReferenceForm")]
pub struct SecretReference {
    /// Source of the value.
    pub origin: SecretOrigin,
    /// If there are any hosts, no step receives the value: it is only added to requests of steps to
    /// these hosts (`credentials:`).
    pub hosts: Vec<CredentialHost>,
}

/// Source of the value of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretOrigin {
    /// A variable in lobster's own environment. No step inherits it.
    Env(String),
    /// A file, absolute or below `~/`; one final newline is not part of the value.
    File(String),
    /// A program and its arguments; the value is its output.
    Command(Vec<String>),
    /// Token of the login at this MCP server of the operator. It changes, and only goes to the host of
    /// the server.
    Login(String),
}

/// Form of a secret in the file.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReferenceForm {
    /// A variable in lobster's own environment. No step inherits it.
    #[serde(skip_serializing_if = "Option::is_none")]
    env: Option<String>,
    /// A file, absolute or below `~/`; one final newline is not part of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    /// A program and its arguments; the value is its output.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<Vec<String>>,
    /// A server in `lobster.mcp.toml`; the value is the token of `lobster mcp login`, which is renewed.
    /// It is only added to requests of steps to the host of this server.
    #[serde(skip_serializing_if = "Option::is_none")]
    login: Option<String>,
    /// The only hosts to which it may be sent; no step then receives it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    hosts: Vec<String>,
}

impl TryFrom<ReferenceForm> for SecretReference {
    type Error = String;

    fn try_from(form: ReferenceForm) -> Result<Self, String> {
        let origins = [
            form.env.map(SecretOrigin::Env),
            form.file.map(SecretOrigin::File),
            form.command.map(SecretOrigin::Command),
            form.login.map(SecretOrigin::Login),
        ];
        let mut origins = origins.into_iter().flatten();
        let origin = match (origins.next(), origins.next()) {
            (Some(origin), None) => origin,
            (None, _) => return Err("a secret has one of env, file, command and login".to_owned()),
            (Some(_), Some(_)) => {
                return Err("a secret has only one of env, file, command and login".to_owned());
            }
        };
        if matches!(origin, SecretOrigin::Login(_)) && !form.hosts.is_empty() {
            return Err("hosts: the token of a login goes only to the host of its server".to_owned());
        }
        let hosts = form.hosts.iter().map(|host| CredentialHost::parse(host));
        let hosts = hosts.collect::<Result<_, _>>().map_err(|error| format!("hosts: {error}"))?;
        Ok(Self { origin, hosts })
    }
}

impl From<SecretReference> for ReferenceForm {
    fn from(reference: SecretReference) -> Self {
        let mut form = Self { env: None, file: None, command: None, login: None, hosts: Vec::new() };
        match reference.origin {
            SecretOrigin::Env(name) => form.env = Some(name),
            SecretOrigin::File(path) => form.file = Some(path),
            SecretOrigin::Command(words) => form.command = Some(words),
            SecretOrigin::Login(server) => form.login = Some(server),
        }
        form.hosts = reference.hosts.into_iter().map(String::from).collect();
        form
    }
}

impl SecretReference {
    /// The reference on one line.
    #[must_use]
    pub fn describe(&self) -> String {
        self.origin.describe()
    }

    /// True if steps receive the value itself.
    #[must_use]
    pub fn is_for_steps(&self) -> bool {
        self.hosts.is_empty() && !matches!(self.origin, SecretOrigin::Login(_))
    }
}

impl SecretOrigin {
    /// The reference on one line.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Env(name) => format!("environment variable {name}"),
            Self::File(path) => format!("file {path}"),
            Self::Command(words) => format!("command {}", words.join(" ")),
            Self::Login(server) => format!("login at MCP server {server}"),
        }
    }

    fn find_problem(&self) -> Option<&'static str> {
        match self {
            Self::Env(name) if name.is_empty() || name.contains(['=', '\0']) => {
                Some("env must name a variable")
            }
            Self::File(path) if !path.starts_with('/') && !path.starts_with("~/") => {
                Some("file must be absolute or begin with ~/")
            }
            Self::Command(words) if words.first().is_none_or(|word| word.trim().is_empty()) => {
                Some("command must list a program and its arguments")
            }
            Self::Login(server) if server.trim().is_empty() => {
                Some("login must name a server of lobster.mcp.toml")
            }
            Self::Env(_) | Self::File(_) | Self::Command(_) | Self::Login(_) => None,
        }
    }
}

/// The operator's own file: only `[secrets.NAME]` tables.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretsFile {
    #[serde(default)]
    secrets: BTreeMap<String, SecretReference>,
}

/// Reads the operator's file of secret references. `origin` names it in errors.
///
/// # Errors
/// [`PolicyError`] with line and column.
pub fn parse_references(text: &str, origin: &str) -> Result<BTreeMap<String, SecretReference>, PolicyError> {
    let file: SecretsFile = toml::from_str(text).map_err(|error| syntax_error(&error, text, origin))?;
    check_references(&file.secrets, origin)?;
    Ok(file.secrets)
}

/// Rejects names and references without a possible meaning.
pub(super) fn check_references(
    references: &BTreeMap<String, SecretReference>,
    origin: &str,
) -> Result<(), PolicyError> {
    for (name, reference) in references {
        let named = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
        let problem =
            if named { reference.origin.find_problem() } else { Some("a name has letters, digits, _ . -") };
        if let Some(message) = problem {
            return Err(PolicyError::Secret {
                origin: origin.to_owned(),
                name: name.clone(),
                message: message.to_owned(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_one_of_four() {
        let text = "[secrets.a]\nenv = \"A\"\n[secrets.b]\nfile = \"~/b\"\n[secrets.c]\ncommand = [\"pass\", \"show\", \"c\"]\n[secrets.d]\nlogin = \"d\"\n";
        let found = parse_references(text, "s.toml").unwrap();
        let described: Vec<_> = found.values().map(SecretReference::describe).collect();
        assert_eq!(
            described,
            ["environment variable A", "file ~/b", "command pass show c", "login at MCP server d"]
        );
        let for_steps: Vec<_> = found.values().map(SecretReference::is_for_steps).collect();
        assert_eq!(for_steps, [true, true, true, false]);
        for reference in found.into_values() {
            let written = toml::to_string(&reference).unwrap();
            assert_eq!(toml::from_str::<SecretReference>(&written).unwrap(), reference);
        }
        for (text, message) in [
            ("[secrets.a]\nenvironment = \"A\"\n", "unknown field `environment`"),
            ("[secrets.a]\nenv = \"A\"\nfile = \"/b\"\n", "only one of"),
            ("[secrets.a]\n", "one of env, file"),
            ("[secrets.a]\nenv = \"A\"\nlogin = \"b\"\n", "only one of"),
            ("[secrets.a]\nlogin = \" \"\n", "must name a server"),
            ("[secrets.a]\nlogin = \"b\"\nhosts = [\"h\"]\n", "only to the host of its server"),
            ("[secrets.a]\nenv = \"A\"\nhosts = [\"https://h\"]\n", "is not a host"),
            ("[secrets.a]\nfile = \"b\"\n", "must be absolute"),
            ("[secrets.a]\ncommand = []\n", "must list a program"),
            ("[secrets.\"a b\"]\nenv = \"A\"\n", "a name has letters"),
            ("[secret.a]\nenv = \"A\"\n", "did you mean \"secrets\"?"),
        ] {
            let error = parse_references(text, "s.toml").unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
