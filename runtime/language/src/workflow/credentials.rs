//! `credentials`: secrets that are added to a step's requests to a host and that the step never
//! receives.

use super::super::codes;
use super::super::diagnostic::{Checked, Diagnostic};
use super::super::plan::{Extras, Work};
use super::super::source::{Data, MappingEntry, Node};
use super::Lowering;
use lobster_base::credential::{AddressVariables, CredentialGrant, CredentialHost, CredentialTerms};

/// Fields of a credential in its long form.
pub(super) const CREDENTIAL_FIELDS: &[&str] =
    &["secret", "header", "scheme", "user", "methods", "paths", "env"];

impl Lowering<'_> {
    /// `credentials: {HOST: secret}`, or a map with bounds in place of the secret.
    pub(super) fn lower_credentials(
        &self,
        step: &Node,
        declared: &[String],
        prefix: &str,
    ) -> Checked<Vec<CredentialGrant>> {
        let Some(node) = step.get_some("credentials") else { return Ok(Vec::new()) };
        let name = format!("{prefix}credentials");
        let Some(entries) = node.as_map() else {
            let message = format!("{name} must be a map, not {}", node.kind_name());
            let error = Diagnostic::error(self.source, codes::FIELD_TYPE, node.span, message);
            return Err(error.with_help("write `credentials: {api.example.com: name_of_the_secret}`").into());
        };
        let mut grants: Vec<CredentialGrant> = Vec::new();
        for entry in entries {
            let grant = self.lower_credential_grant(entry, &name)?;
            if !declared.contains(&grant.secret) {
                let message = format!(
                    "{prefix}secret {:?} is not listed under `secrets:` at the top of the file",
                    grant.secret
                );
                let help = format!("add `secrets: [{}]` at the top of the file", grant.secret);
                return self.reject_with_help(codes::SECRET, entry.value.span, message, help);
            }
            if grants.iter().any(|known| known.host == grant.host) {
                let message = format!("{name} names {} twice", grant.host);
                return Err(Diagnostic::error(self.source, codes::CONFLICT, entry.key_span, message));
            }
            let set = grant.environment_for("").into_iter().map(|(variable, _)| variable);
            let set = set.into_iter().find(|it| step.get("env").is_some_and(|env| env.get(it).is_some()));
            if let Some(variable) = set {
                let message = format!("{prefix}variable {variable} is set by both env and credentials");
                return self.reject_node(codes::CONFLICT, &entry.value, message);
            }
            grants.push(grant);
        }
        Ok(grants)
    }

    fn lower_credential_grant(&self, entry: &MappingEntry, name: &str) -> Checked<CredentialGrant> {
        let host = CredentialHost::parse(&entry.key).map_err(|error| {
            Diagnostic::error(self.source, codes::FIELD_TYPE, entry.key_span, format!("{name}: {error}"))
        })?;
        let name = format!("{name}.{host}");
        let node = &entry.value;
        if let Some(secret) = node.as_text().filter(|text| !text.is_empty()) {
            return Ok(CredentialGrant::new(host, secret.to_owned()));
        }
        self.reject_unknown_keys(node, CREDENTIAL_FIELDS, &name)?;
        let text = |key: &str| match node.get_some(key) {
            None => Ok(None),
            Some(value) => match value.as_text().filter(|text| !text.is_empty()) {
                Some(text) => Ok(Some(text.to_owned())),
                None => self.reject_type(value, format!("{name}.{key} must be a text")),
            },
        };
        let Some(secret) = text("secret")? else {
            return self.reject_type(node, format!("{name} must name its `secret`"));
        };
        let terms = CredentialTerms {
            secret,
            header: text("header")?,
            scheme: text("scheme")?,
            user: text("user")?,
            methods: self.text_list(node, "methods", &format!("{name}.methods"))?,
            paths: self.text_list(node, "paths", &format!("{name}.paths"))?,
            env: node.get_some("env").map(address_variables),
        };
        terms.grant_for(host).map_err(|wrong| {
            let code = if wrong.is_conflict { codes::CONFLICT } else { codes::FIELD_TYPE };
            let at = node.get(wrong.field).unwrap_or(node);
            let error = Diagnostic::error(self.source, code, at.span, format!("{name}.{wrong}"));
            match wrong.field {
                "paths" => error.with_help("it covers this path and everything below it").into(),
                _ => error,
            }
        })
    }

    /// Checks that the step sends requests to which the host can add credentials.
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
                        let help =
                            format!("add `grants: {{net: [\"{}:{}\"]}}`", grant.host.name, grant.host.port);
                        self.reject_with_help(codes::CONFLICT, node.span, message, help)
                    }
                }
            }
            _ => {
                let message =
                    format!("{prefix}credentials has no effect on a step that sends nothing itself");
                let help = "put it on the run, exec, pipeline, component or mcp steps that send something";
                self.reject_with_help(codes::CONFLICT, node.span, message, help)
            }
        }
    }
}

/// `env: NAME`, or `env: {NAME: "text with {url}"}`. A value that is not text names no address.
fn address_variables(node: &Node) -> AddressVariables {
    let text = |node: &Node| node.as_text().unwrap_or_default().to_owned();
    match &node.data {
        Data::Map(entries) => AddressVariables::Each(
            entries.iter().map(|entry| (entry.key.clone(), text(&entry.value))).collect(),
        ),
        _ => AddressVariables::One(text(node)),
    }
}
