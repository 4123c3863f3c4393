//! Credentials of orders with the values of their secrets.

use std::collections::BTreeMap;

use super::SecretSource;
use lobster_base::code::Code;
use lobster_base::credential::CredentialGrant;
use lobster_credentials::Credential;
use lobster_stage::StageError;

/// Finds the values of these.
pub(super) fn with_values(
    grants: &[CredentialGrant],
    secrets: &dyn SecretSource,
) -> Result<Vec<Credential>, StageError> {
    let names: BTreeMap<String, String> =
        grants.iter().map(|grant| (grant.secret.clone(), grant.secret.clone())).collect();
    let values: BTreeMap<String, String> = secrets.values(&names)?.into_iter().collect();
    let credential = |grant: &CredentialGrant| {
        let value = values.get(&grant.secret).map(String::as_str).unwrap_or_default();
        Credential::new(grant.clone(), value)
            .map_err(|error| StageError::permanent_from(error).with_code(Code::Secret))
    };
    grants.iter().map(credential).collect()
}
