//! Why a policy file cannot be used.

/// Why a policy file cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PolicyError {
    /// The text is not TOML, or not a policy.
    #[error("{origin}:{line}:{column}: {message}{}", suggestion_text(.suggestion))]
    Syntax {
        /// The file or layer name.
        origin: String,
        /// 1-based line of the first offending byte.
        line: usize,
        /// 1-based column, in characters.
        column: usize,
        /// What is wrong.
        message: String,
        /// The known name nearest to the unknown one.
        suggestion: Option<String>,
    },
    /// The format version is not one this engine reads.
    #[error("{origin}: policy format {found} is not supported; this lobster reads format 1")]
    Version {
        /// The file or layer name.
        origin: String,
        /// The version found.
        found: u32,
    },
    /// An `extends` entry that names nothing.
    #[error("{origin}: extends {name:?}: there is no such base; known: {known}")]
    UnknownBase {
        /// The file or layer name.
        origin: String,
        /// The entry.
        name: String,
        /// What could have been meant.
        known: String,
    },
    /// A rule that cannot mean anything.
    #[error("{origin}: rule {rule:?}: {message}")]
    Rule {
        /// The file or layer name.
        origin: String,
        /// The rule's id.
        rule: String,
        /// What is wrong and what to write.
        message: String,
    },
    /// One of a rule's own examples contradicts it.
    #[error("{origin}: rule {rule:?}: example {example:?} {message}")]
    Example {
        /// The file or layer name.
        origin: String,
        /// The rule's id.
        rule: String,
        /// The `match` or `not_match` entry.
        example: String,
        /// Which way it contradicts the rule.
        message: String,
    },
    /// A secret reference that cannot be used.
    #[error("{origin}: secrets.{name}: {message}")]
    Secret {
        /// The file or layer name.
        origin: String,
        /// The secret's name.
        name: String,
        /// What is wrong and what to write.
        message: String,
    },
    /// A place for the audit that cannot be used.
    #[error("{origin}: {key}: {message}")]
    Audit {
        /// The file or layer name.
        origin: String,
        /// The key.
        key: String,
        /// What is wrong and what to write.
        message: String,
    },
    /// A path that is neither absolute nor a known root.
    #[error(
        "{origin}: {field}: {path:?} is not a root; write an absolute path, \"~/...\", or a \
         path under @workspace, @tmp, @state, @step-home or @system-ro"
    )]
    Root {
        /// The file or layer name.
        origin: String,
        /// The key that holds the path.
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

/// Finds the nearest expected name in serde's "unknown field `x`, expected one
/// of `a`, `b`" message.
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
