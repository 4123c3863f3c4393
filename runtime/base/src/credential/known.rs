//! Known hosts: the header in which each expects its credential, and the variables in which programs look for its
//! address.

use super::{CredentialHost, HTTPS, Scheme};

/// Form in which a host expects a credential.
enum Sent {
    Bearer,
    /// As the password of this user.
    Basic(&'static str),
    /// Alone, in this header.
    Header(&'static str),
}

pub(super) struct KnownHost {
    name: &'static str,
    sent: Sent,
    variables: &'static [(&'static str, &'static str)],
}

const KNOWN: &[KnownHost] = &[
    KnownHost { name: "api.github.com", sent: Sent::Bearer, variables: &[("GITHUB_API_URL", "{url}")] },
    // For git, the token is the password.
    KnownHost {
        name: "github.com",
        sent: Sent::Basic("x-access-token"),
        variables: &[("GITHUB_SERVER_URL", "{url}")],
    },
    KnownHost { name: "gitlab.com", sent: Sent::Basic("oauth2"), variables: &[("CI_SERVER_URL", "{url}")] },
    KnownHost { name: "api.openai.com", sent: Sent::Bearer, variables: &[("OPENAI_BASE_URL", "{url}/v1")] },
    KnownHost {
        name: "api.anthropic.com",
        sent: Sent::Header("x-api-key"),
        variables: &[("ANTHROPIC_BASE_URL", "{url}")],
    },
    KnownHost {
        name: "generativelanguage.googleapis.com",
        sent: Sent::Header("x-goog-api-key"),
        variables: &[("GOOGLE_GEMINI_BASE_URL", "{url}")],
    },
    KnownHost {
        name: "registry.npmjs.org",
        sent: Sent::Bearer,
        variables: &[("npm_config_registry", "{url}/")],
    },
    KnownHost { name: "huggingface.co", sent: Sent::Bearer, variables: &[("HF_ENDPOINT", "{url}")] },
];

impl KnownHost {
    pub(super) fn find(host: &CredentialHost) -> Option<&'static Self> {
        KNOWN.iter().find(|known| host.port == HTTPS && known.name == host.name)
    }

    pub(super) fn header_name(&self) -> &'static str {
        match self.sent {
            Sent::Bearer | Sent::Basic(_) => "authorization",
            Sent::Header(name) => name,
        }
    }

    pub(super) fn scheme(&self) -> Scheme {
        match self.sent {
            Sent::Bearer => Scheme::Word("Bearer".to_owned()),
            Sent::Basic(user) => Scheme::Basic(user.to_owned()),
            Sent::Header(_) => Scheme::Plain,
        }
    }

    pub(super) fn owned_variables(&self) -> Vec<(String, String)> {
        self.variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }
}
