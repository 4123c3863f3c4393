//! Callers named by a proxy in front of the server. The header is trusted only on the proxy's own socket file, because
//! any client of a port could set it.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderName, StatusCode};
use lobster_runtime::store::service::CredentialKind;

use super::problem::Problem;
use crate::access::{Actor, Role};

/// The credential in the history of a caller named by the proxy.
const CREDENTIAL: &str = "proxy";

/// The longest name of a caller, in bytes.
const LONGEST: usize = 200;

/// The header with the caller's name, and the rights of each caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedByProxy {
    /// The header that contains the name.
    pub header: HeaderName,
    pub people: BTreeMap<String, Rights>,
    /// Rights of all other callers that the proxy names; without it, they are refused.
    pub others: Option<Rights>,
}

/// The role of a caller, and the workflows that it applies to; none: all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    pub role: Role,
    pub workflows: Option<Vec<String>>,
}

impl NamedByProxy {
    /// Returns the caller, if the proxy names one.
    pub(super) fn named_caller(&self, headers: &HeaderMap) -> Result<Option<Actor>, Problem> {
        let mut given = headers.get_all(&self.header).iter();
        let name = match (given.next(), given.next()) {
            (None, _) => return Ok(None),
            (Some(value), None) => value.to_str().map(str::trim).unwrap_or_default(),
            // The client has also sent the header, and the proxy has passed it on.
            (Some(_), Some(_)) => "",
        };
        if name.is_empty() || name.len() > LONGEST {
            return Err(Problem::new(
                StatusCode::UNAUTHORIZED,
                "proxy",
                format!("the proxy does not name one caller in {}", self.header),
            ));
        }
        let Some(rights) = self.people.get(name).or(self.others.as_ref()) else {
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                "role",
                format!("the proxy names {name:?}, who has no role here; add one in [proxy.people]"),
            ));
        };
        Ok(Some(Actor {
            name: name.to_owned(),
            role: rights.role,
            scope: rights.workflows.clone(),
            credential: CREDENTIAL.to_owned(),
            kind: CredentialKind::Session,
            logged_in_at: None,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header_map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn one_name_with_a_role_is_a_caller() {
        let rights = |role| Rights { role, workflows: None };
        let mut named = NamedByProxy {
            header: HeaderName::from_static("remote-user"),
            people: [("ann".to_owned(), rights(Role::Approver))].into(),
            others: None,
        };
        let ann = named.named_caller(&header_map(&[("remote-user", " ann ")])).ok().flatten().unwrap();
        assert_eq!((ann.name.as_str(), ann.role), ("ann", Role::Approver));
        assert!(named.named_caller(&header_map(&[("x-user", "ann")])).is_ok_and(|none| none.is_none()));
        for (sent, code) in [
            (&[("remote-user", "ann"), ("remote-user", "eve")][..], "proxy"),
            (&[("remote-user", "")], "proxy"),
            (&[("remote-user", "eve")], "role"),
            // Names are case-sensitive.
            (&[("remote-user", "Ann")], "role"),
        ] {
            assert_eq!(
                named.named_caller(&header_map(sent)).err().map(|problem| problem.code),
                Some(code),
                "{sent:?}"
            );
        }
        named.others = Some(rights(Role::Viewer));
        let eve = named.named_caller(&header_map(&[("remote-user", "eve")])).ok().flatten();
        assert_eq!(eve.map(|eve| eve.role), Some(Role::Viewer));
    }
}
