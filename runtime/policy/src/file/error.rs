//! Errors of policy files.

/// Reason why a policy file cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PolicyError {
    /// The text is not TOML, or not a policy.
    #[error("{origin}:{line}:{column}: {message}{}", suggestion_text(.suggestion))]
    Syntax {
        /// Name of the file or layer.
        origin: String,
        /// Line of the first wrong byte, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// Description of the error.
        message: String,
        /// Known name nearest to the unknown one.
        suggestion: Option<String>,
    },
    /// The format version is not supported.
    #[error("{origin}: policy format {found} is not supported; this lobster reads format 1")]
    Version {
        /// Name of the file or layer.
        origin: String,
        /// Version in the file.
        found: u32,
    },
    /// An `extends` entry with an unknown name.
    #[error("{origin}: extends {name:?}: there is no such base; known: {known}")]
    UnknownBase {
        /// Name of the file or layer.
        origin: String,
        /// The entry.
        name: String,
        /// Known names.
        known: String,
    },
    /// A rule without a possible meaning.
    #[error("{origin}: rule {rule:?}: {message}")]
    Rule {
        /// Name of the file or layer.
        origin: String,
        /// Id of the rule.
        rule: String,
        /// Description of the error and its correction.
        message: String,
    },
    /// An example of a rule contradicts the rule.
    #[error("{origin}: rule {rule:?}: example {example:?} {message}")]
    Example {
        /// Name of the file or layer.
        origin: String,
        /// Id of the rule.
        rule: String,
        /// The `match` or `not_match` entry.
        example: String,
        /// Nature of the contradiction.
        message: String,
    },
    /// A secret reference that cannot be used.
    #[error("{origin}: secrets.{name}: {message}")]
    Secret {
        /// Name of the file or layer.
        origin: String,
        /// Name of the secret.
        name: String,
        /// Description of the error and its correction.
        message: String,
    },
    /// A path for the audit that cannot be used.
    #[error("{origin}: {key}: {message}")]
    Audit {
        /// Name of the file or layer.
        origin: String,
        /// Key of the path.
        key: String,
        /// Description of the error and its correction.
        message: String,
    },
    /// A path that is neither absolute nor a known root.
    #[error(
        "{origin}: {field}: {path:?} is not a root; write an absolute path, \"~/...\", or a \
         path under @workspace, @tmp, @state, @step-home or @system-ro"
    )]
    Root {
        /// Name of the file or layer.
        origin: String,
        /// Key that holds the path.
        field: String,
        /// The entry.
        path: String,
    },
}

fn suggestion_text(suggestion: &Option<String>) -> String {
    suggestion.as_ref().map_or_else(String::new, |name| format!("; did you mean {name:?}?"))
}

pub(in super::super) fn syntax_error(error: &toml::de::Error, text: &str, origin: &str) -> PolicyError {
    let message = error.message().trim().to_owned();
    let start = error.span().map_or(0, |span| span.start).min(text.len());
    let before = text.get(..start).unwrap_or("");
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    PolicyError::Syntax {
        origin: origin.to_owned(),
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
        suggestion: nearest_name(&message),
        message,
    }
}

/// Finds the nearest expected name in a serde message "unknown field `x`, expected one of `a`, `b`".
fn nearest_name(message: &str) -> Option<String> {
    if !(message.starts_with("unknown field") || message.starts_with("unknown variant")) {
        return None;
    }
    let mut names = message.split('`').skip(1).step_by(2);
    let unknown = names.next()?;
    names
        .map(|name| (strsim::damerau_levenshtein(unknown, name), name))
        .filter(|(distance, name)| *distance <= 1 + name.len() / 3)
        .min()
        .map(|(_, name)| name.to_owned())
}
