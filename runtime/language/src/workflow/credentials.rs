//! `credentials`: secrets that are added to what a step sends to a host, and never reach the step.

use super::super::codes;
use super::super::diagnostic::{Checked, Diagnostic};
use super::super::plan::{Extras, Work};
use super::super::source::{Data, Entry, Node};
use super::Lowering;
use lobster_base::credential::{ADDRESS, CredentialGrant, CredentialHost, Scheme};

/// The fields of a credential that says more than the name of its secret.
pub(super) const CREDENTIAL_FIELDS: &[&str] =
    &["secret", "header", "scheme", "user", "methods", "paths", "env"];

/// Headers that are the host's to send, whatever stands in them.
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

impl Lowering<'_> {
    /// `credentials: {HOST: secret}`, or a map with bounds in place of the secret.
    pub(super) fn credentials(
        &self,
        step: &Node,
        declared: &[String],
        prefix: &str,
    ) -> Checked<Vec<CredentialGrant>> {
        let Some(node) = step.get_some("credentials") else { return Ok(Vec::new()) };
        let name = format!("{prefix}credentials");
        let Some(entries) = node.as_map() else {
            let message = format!("{name} must be a map, not {}", node.kind());
            let error = Diagnostic::error(self.source, codes::FIELD_TYPE, node.span, message);
            return Err(error.with_help("write `credentials: {api.example.com: name_of_the_secret}`").into());
        };
        let mut grants: Vec<CredentialGrant> = Vec::new();
        for entry in entries {
            let grant = self.credential(entry, &name)?;
            if !declared.contains(&grant.secret) {
                let message = format!(
                    "{prefix}secret {:?} is not listed under `secrets:` at the top of the file",
                    grant.secret
                );
                let error = Diagnostic::error(self.source, codes::SECRET, entry.value.span, message);
                let help = format!("add `secrets: [{}]` at the top of the file", grant.secret);
                return Err(error.with_help(help).into());
            }
            if grants.iter().any(|known| known.host == grant.host) {
                let message = format!("{name} names {} twice", grant.host);
                return Err(Diagnostic::error(self.source, codes::CONFLICT, entry.key_span, message));
            }
            let set = grant.environment("").into_iter().map(|(variable, _)| variable);
            let set = set.into_iter().find(|it| step.get("env").is_some_and(|env| env.get(it).is_some()));
            if let Some(variable) = set {
                let message = format!("{prefix}variable {variable} is set by both env and credentials");
                return self.error(codes::CONFLICT, &entry.value, message);
            }
            grants.push(grant);
        }
        Ok(grants)
    }

    fn credential(&self, entry: &Entry, name: &str) -> Checked<CredentialGrant> {
        let host = CredentialHost::parse(&entry.key).map_err(|error| {
            Diagnostic::error(self.source, codes::FIELD_TYPE, entry.key_span, format!("{name}: {error}"))
        })?;
        let name = format!("{name}.{host}");
        let node = &entry.value;
        if let Some(secret) = node.as_text().filter(|text| !text.is_empty()) {
            return Ok(CredentialGrant::new(host, secret.to_owned()));
        }
        self.only(node, CREDENTIAL_FIELDS, &name)?;
        let text = |key: &str| match node.get_some(key) {
            None => Ok(None),
            Some(value) => match value.as_text().filter(|text| !text.is_empty()) {
                Some(text) => Ok(Some((value, text.to_owned()))),
                None => self.error(codes::FIELD_TYPE, value, format!("{name}.{key} must be a text")),
            },
        };
        let Some((_, secret)) = text("secret")? else {
            return self.error(codes::FIELD_TYPE, node, format!("{name} must name its `secret`"));
        };
        let mut grant = CredentialGrant::new(host, secret);
        if let Some((at, header)) = text("header")? {
            let header = header.to_ascii_lowercase();
            let is_token = header.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c));
            if !is_token || HEADERS_OF_THE_HOST.contains(&header.as_str()) {
                return self.error(
                    codes::FIELD_TYPE,
                    at,
                    format!("{name}.header: {header:?} is no header that a credential can be sent in"),
                );
            }
            // Another header than the usual one holds the value alone, unless the file says more.
            if header != grant.header {
                grant.scheme = Scheme::Plain;
            }
            grant.header = header;
        }
        if let Some(scheme) = self.scheme(text("scheme")?, text("user")?, &name)? {
            grant.scheme = scheme;
        }
        grant.methods = self.methods(node, &name)?;
        grant.paths = self.bounds(node, &name)?;
        if let Some(node) = node.get_some("env") {
            grant.variables = self.address_variables(node, &name)?;
        }
        Ok(grant)
    }

    fn scheme(
        &self,
        scheme: Option<(&Node, String)>,
        user: Option<(&Node, String)>,
        name: &str,
    ) -> Checked<Option<Scheme>> {
        let is_word = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        match (scheme, user) {
            (Some((_, scheme)), user) if scheme.eq_ignore_ascii_case("basic") => {
                let user = user.map(|(at, user)| match user.contains(':') {
                    false => Ok(user),
                    true => self.error(codes::FIELD_TYPE, at, format!("{name}.user must not have a colon")),
                });
                Ok(Some(Scheme::Basic(user.transpose()?.unwrap_or_default())))
            }
            (_, Some((at, _))) => {
                self.error(codes::CONFLICT, at, format!("{name}.user needs `scheme: basic`"))
            }
            (Some((_, scheme)), None) if scheme == "none" => Ok(Some(Scheme::Plain)),
            (Some((_, scheme)), None) if is_word(&scheme) => Ok(Some(Scheme::Word(scheme))),
            (Some((at, scheme)), None) => {
                let message = format!(
                    "{name}.scheme: {scheme:?} must be basic, none, or the word before the value, such as Bearer"
                );
                self.error(codes::FIELD_TYPE, at, message)
            }
            (None, None) => Ok(None),
        }
    }

    fn methods(&self, node: &Node, name: &str) -> Checked<Vec<String>> {
        let methods = self.texts(node, "methods", &format!("{name}.methods"))?;
        let is_method = |method: &String| method.chars().all(|c| c.is_ascii_alphabetic());
        match (methods.iter().find(|method| !is_method(method)), node.get("methods")) {
            (Some(method), Some(at)) => {
                self.error(codes::FIELD_TYPE, at, format!("{name}.methods: {method:?} is no method"))
            }
            _ => Ok(methods.into_iter().map(|method| method.to_ascii_uppercase()).collect()),
        }
    }

    fn bounds(&self, node: &Node, name: &str) -> Checked<Vec<String>> {
        let paths = self.texts(node, "paths", &format!("{name}.paths"))?;
        let is_plain = |path: &String| {
            path.starts_with('/')
                && !path.contains(['?', '#', '%', '\\', '*'])
                && !path.contains("//")
                && !path.split('/').any(|segment| matches!(segment, "." | ".."))
        };
        match (paths.iter().find(|path| !is_plain(path)), node.get("paths")) {
            (Some(path), Some(at)) => {
                let message = format!("{name}.paths: {path:?} must be a plain path, such as /repos/acme");
                let error = Diagnostic::error(self.source, codes::FIELD_TYPE, at.span, message);
                Err(error.with_help("it covers itself and what lies below it").into())
            }
            _ => Ok(paths),
        }
    }

    /// `env: NAME`, or `env: {NAME: "text with {url}"}`.
    fn address_variables(&self, node: &Node, name: &str) -> Checked<Vec<(String, String)>> {
        let is_variable = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let variables: Vec<(String, String)> = match &node.data {
            Data::Text(name) => vec![(name.clone(), ADDRESS.to_owned())],
            Data::Map(entries) => entries
                .iter()
                .filter_map(|entry| Some((entry.key.clone(), entry.value.as_text()?.to_owned())))
                .filter(|(_, text)| text.contains(ADDRESS))
                .collect(),
            _ => Vec::new(),
        };
        let all = node.as_map().map_or(1, <[Entry]>::len);
        if variables.len() == all && all > 0 && variables.iter().all(|(variable, _)| is_variable(variable)) {
            return Ok(variables);
        }
        let message = format!(
            "{name}.env must be the name of a variable, or a map of variables to texts with {ADDRESS} in them"
        );
        self.error(codes::FIELD_TYPE, node, message)
    }

    /// Credentials stand where something is sent that the host can add them to.
    pub(super) fn credentials_in_place(
        &self,
        step: &Node,
        work: &Work,
        extras: &Extras,
        prefix: &str,
    ) -> Checked<()> {
        let Some(node) = step.get_some("credentials") else { return Ok(()) };
        match work {
            Work::Shell(_) | Work::Exec(_) | Work::Pipeline(_) | Work::Mcp { .. } => Ok(()),
            Work::Component { .. } => {
                let net = extras.grants.iter().flat_map(|grants| &grants.net);
                let named: Vec<CredentialHost> =
                    net.filter_map(|grant| CredentialHost::parse(grant).ok()).collect();
                match extras.credentials.iter().find(|it| !named.contains(&it.host)) {
                    None => Ok(()),
                    Some(grant) => {
                        let message = format!(
                            "{prefix}credentials: the step may not reach {}, which its grants do not name",
                            grant.host
                        );
                        let error = Diagnostic::error(self.source, codes::CONFLICT, node.span, message);
                        let help =
                            format!("add `grants: {{net: [\"{}:{}\"]}}`", grant.host.name, grant.host.port);
                        Err(error.with_help(help).into())
                    }
                }
            }
            _ => {
                let message =
                    format!("{prefix}credentials has no effect on a step that sends nothing itself");
                let error = Diagnostic::error(self.source, codes::CONFLICT, node.span, message);
                let help = "put it on the run, exec, pipeline, component or mcp steps that send something";
                Err(error.with_help(help).into())
            }
        }
    }
}
