//! `secrets`: names at the top of a file, and the steps that receive them.

use super::super::codes;
use super::super::diagnostic::{Checked, Diagnostic};
use super::super::plan::{ArgSpec, SecretGrant, Work};
use super::super::source::{Data, Node};
use super::Lowering;
use lobster_stage::{MCP_TOKEN, McpServer};

impl Lowering<'_> {
    /// Rejects names that could be mistaken for an argument.
    pub(super) fn declared_secrets(&self, root: &Node, names: &[String], args: &[ArgSpec]) -> Checked<()> {
        let Some(node) = root.get("secrets") else { return Ok(()) };
        let taken = names.iter().find(|name| args.iter().any(|arg| arg.name == **name));
        if let Some(name) = taken {
            let message =
                format!("secret {name:?} has the name of an argument, so `${{{name}}}` would be filled in");
            return self.reject_node(codes::SECRET, node, message);
        }
        Ok(())
    }

    /// `secrets: [NAME]`, or `secrets: {VARIABLE: name}` if the variable has another name.
    pub(super) fn lower_secrets(
        &self,
        step: &Node,
        declared: &[String],
        prefix: &str,
    ) -> Checked<Vec<SecretGrant>> {
        let name = format!("{prefix}secrets");
        let Some(node) = step.get_some("secrets") else { return Ok(Vec::new()) };
        let grants: Vec<SecretGrant> = match &node.data {
            Data::Map(entries) => entries
                .iter()
                .map(|entry| match entry.value.as_text() {
                    Some(secret) => {
                        Ok(SecretGrant { secret: secret.to_owned(), variable: entry.key.clone() })
                    }
                    None => self.reject_type(
                        &entry.value,
                        format!("{name} must give the name of a secret for each variable"),
                    ),
                })
                .collect::<Checked<_>>()?,
            _ => self
                .text_list(step, "secrets", &name)?
                .into_iter()
                .map(|secret| SecretGrant { variable: secret.clone(), secret })
                .collect(),
        };
        for SecretGrant { secret, variable } in &grants {
            if !declared.contains(secret) {
                let message = format!(
                    "{prefix}secret {secret:?} is not listed under `secrets:` at the top of the file"
                );
                let help = format!("add `secrets: [{secret}]` at the top of the file");
                return self.reject_with_help(codes::SECRET, node.span, message, help);
            }
            if !is_variable(variable) {
                let message =
                    format!("{prefix}secret {secret:?} needs a variable: {variable:?} cannot name one");
                let error = Diagnostic::error(self.source, codes::SECRET, node.span, message);
                return Err(error.with_help(format!("write `secrets: {{VARIABLE: {secret}}}`")).into());
            }
            if step.get("env").is_some_and(|env| env.get(variable).is_some()) {
                let message = format!("{prefix}variable {variable} is set by both env and secrets");
                return self.reject_node(codes::CONFLICT, node, message);
            }
        }
        Ok(grants)
    }

    /// Rejects secrets in text. A step receives a secret as a variable; inserted into text, it would
    /// get into records and process lists.
    pub(super) fn secrets_in_text(
        &self,
        step: &Node,
        work: &Work,
        granted: &[SecretGrant],
        declared: &[String],
        prefix: &str,
    ) -> Checked<()> {
        if matches!(work, Work::Js(_)) && !granted.is_empty() {
            let message = format!("{prefix}secrets has no effect on js, which sees no variables");
            return self.reject_node(codes::CONFLICT, step, message);
        }
        if let Work::Mcp { server: McpServer::Url(_), .. } = work
            && let Some(grant) = granted.iter().find(|grant| grant.variable != MCP_TOKEN)
        {
            let message = format!(
                "{prefix}secret {:?}: a server that is named by its address takes one secret, its token, as {MCP_TOKEN}",
                grant.secret
            );
            let help = format!("write `secrets: {{{MCP_TOKEN}: {}}}`", grant.secret);
            return self.reject_with_help(codes::SECRET, step.span, message, help);
        }
        for key in ["run", "command", "shell", "exec", "pipeline", "args", "stdin", "env", "cwd", "approval"]
        {
            let Some(node) = step.get_some(key) else { continue };
            let is_shell = matches!(work, Work::Shell(_)) && matches!(key, "run" | "command" | "shell");
            let mut texts = Vec::new();
            texts_in(node, &mut texts);
            for text in texts {
                if let Some(name) = find_namespaced_secret(text) {
                    let message = format!("{prefix}{key} uses {name}, but secrets are not filled into text");
                    let error = Diagnostic::error(self.source, codes::SECRET, node.span, message);
                    return Err(error.with_help("grant it with `secrets:` and use its variable").into());
                }
                for secret in declared {
                    let reaches = granted.iter().any(|grant| grant.variable == *secret);
                    if is_shell && !reaches && uses_variable(text, secret, true) {
                        let message =
                            format!("{prefix}uses ${secret}, but the step is not granted that secret");
                        let error = Diagnostic::error(self.source, codes::SECRET, node.span, message);
                        return Err(error.with_help(format!("add `secrets: [{secret}]` to the step")).into());
                    }
                    if !is_shell && key != "pipeline" && uses_variable(text, secret, false) {
                        let message =
                            format!("{prefix}{key} uses ${{{secret}}}, but secrets are not filled into text");
                        let help = format!("the program finds it in its variable {secret}");
                        return self.reject_with_help(codes::SECRET, node.span, message, help);
                    }
                }
            }
        }
        Ok(())
    }
}

/// All texts inside a field.
fn texts_in<'n>(node: &'n Node, found: &mut Vec<&'n str>) {
    match &node.data {
        Data::Text(text) => found.push(text),
        Data::List(items) => items.iter().for_each(|item| texts_in(item, found)),
        Data::Map(entries) => entries.iter().for_each(|entry| texts_in(&entry.value, found)),
        Data::Null | Data::Bool(_) | Data::Number(_) | Data::NotFinite => {}
    }
}

/// `${secrets.X}` or `${{ secrets.X }}`, the notation of other systems.
fn find_namespaced_secret(text: &str) -> Option<&str> {
    let start = text.find("${secrets.").or_else(|| {
        let start = text.find("${{")?;
        text[start + 3..].trim_start().starts_with("secrets.").then_some(start)
    })?;
    let end = text[start..].find('}').map_or(text.len(), |end| start + end + 1);
    text.get(start..end)
}

/// True if text refers to a variable: `${NAME`, or in shell text also `$NAME`.
fn uses_variable(text: &str, name: &str, bare: bool) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    text.match_indices('$').any(|(at, _)| {
        let rest = &text[at + 1..];
        rest.strip_prefix('{').and_then(|rest| rest.strip_prefix(name)).is_some_and(ends)
            || bare && rest.strip_prefix(name).is_some_and(ends)
    })
}

fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
