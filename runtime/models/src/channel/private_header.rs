//! Recognises headers with private values by their names.

/// Parts of the names of such headers.
const PRIVATE: [&str; 13] = [
    "key",
    "token",
    "auth",
    "secret",
    "cookie",
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "credential",
    "signature",
    "jwt",
    "bearer",
];

/// Words that contain such a part but are harmless.
const HARMLESS: [&str; 29] = [
    "author",
    "authored",
    "authoring",
    "authority",
    "authorities",
    "authors",
    "authorship",
    "authentic",
    "coauthor",
    "coauthors",
    "hotkey",
    "hotkeys",
    "keyboard",
    "keyboards",
    "keyframe",
    "keyframes",
    "keynote",
    "keynotes",
    "keystroke",
    "keystrokes",
    "keyword",
    "keywords",
    "monkey",
    "secretariat",
    "secretary",
    "tokenization",
    "tokenized",
    "tokenizer",
    "tokenizers",
];

/// Words that turn `tokens` into a number of tokens.
const COUNTING: [&str; 13] = [
    "budget",
    "completion",
    "count",
    "input",
    "limit",
    "max",
    "min",
    "output",
    "per",
    "prompt",
    "remaining",
    "total",
    "used",
];

/// True if the name of a header marks its value as private. Each word of the name is judged as a whole;
/// an unknown word that contains `token` or the like is private, such as `apikey`.
pub(super) fn is_private(header: &str) -> bool {
    let words = split_words(header);
    let counts = words.iter().any(|word| COUNTING.contains(&word.as_str()));
    words.iter().any(|word| {
        let is_harmless = HARMLESS.contains(&word.as_str()) || (counts && word == "tokens");
        !is_harmless && PRIVATE.iter().any(|private| word.contains(private))
    })
}

/// Splits a name: `X-AuthToken` is `x`, `auth` and `token`.
fn split_words(header: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in header.chars() {
        if !c.is_ascii_alphanumeric() || (c.is_ascii_uppercase() && before.is_ascii_lowercase()) {
            words.push(String::new());
        }
        if c.is_ascii_alphanumeric()
            && let Some(last) = words.last_mut()
        {
            last.push(c.to_ascii_lowercase());
        }
        before = c;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_names_are_judged() {
        for name in [
            "Authorization",
            "Proxy-Authorization",
            "X-Auth",
            "X-Auth-Token",
            "X-AuthToken",
            "x-authtoken",
            "X_AUTH_TOKEN",
            "X.Auth.Token",
            "X-Author-Token",
            "X-AuthorToken",
            "x-authortoken",
            "X-Auth-Tokens",
            "X-Max-Token",
            "X-Tokens",
            "X-Refresh-Tokens",
            "Api-Token",
            "apitoken",
            "X-Api-Key",
            "x-API-key",
            "XAPIKEY",
            "apikey",
            "X-Key1",
            "X-Keys",
            "Ocp-Apim-Subscription-Key",
            "Ocp-Apim-SubscriptionKey",
            "X-OAuth2",
            "X-Secret",
            "X-ClientSecret",
            "clientsecrets",
            "Cookie",
            "Set-Cookie",
            "Cookie2",
            "X-Password",
            "X-Passwd",
            "X-Credentials",
            "X-Amz-Signature",
            "X-Bearer",
            "X-JWT",
        ] {
            assert!(is_private(name), "{name}");
        }
        for name in [
            "X-Author",
            "X-Authors",
            "X-Co-Author",
            "X-Authority",
            "X-AuthoredBy",
            "X-Max-Tokens",
            "X-MaxTokens",
            "X-RateLimit-Limit-Tokens",
            "X-Tokens-Per-Minute",
            "X-Tokenizer",
            "X-Keyboard-Layout",
            "Keywords",
            "X-Secretary",
            "HTTP-Referer",
            "X-Title",
            "Content-Type",
            "",
            "-",
        ] {
            assert!(!is_private(name), "{name}");
        }
    }
}
