//! The credentials of orders, with the values of their secrets.

use std::collections::BTreeMap;

use super::SecretSource;
use lobster_base::code::Code;
use lobster_base::credential::CredentialGrant;
use lobster_credentials::Credential;
use lobster_credentials::login::TokenError;
use lobster_stage::StageError;
use lobster_store::{StepOutcome, StepStatus};
use serde_json::json;

/// Finds the values of these credentials, and the logins behind values that change.
pub(super) fn with_values(
    grants: &[CredentialGrant],
    secrets: &dyn SecretSource,
) -> Result<Vec<Credential>, StageError> {
    grants.iter().map(|grant| with_value(grant, secrets)).collect()
}

fn with_value(grant: &CredentialGrant, secrets: &dyn SecretSource) -> Result<Credential, StageError> {
    let credential = match secrets.secret_login(&grant.secret)? {
        Some(login) => Credential::of_login(grant.clone(), login),
        None => {
            let named = BTreeMap::from([(grant.secret.clone(), grant.secret.clone())]);
            let value = secrets.secret_values(&named)?.into_iter().next().map(|(_, value)| value);
            Credential::new(grant.clone(), &value.unwrap_or_default())
        }
    };
    credential.map_err(|error| StageError::permanent_from(error).with_code(Code::Secret))
}

/// Replaces the error of a failed step by the missing token, since a person can do something about that.
pub(super) fn explain_failure(outcome: &mut StepOutcome, problem: Option<TokenError>) {
    let Some(problem) = problem.filter(|_| outcome.status == StepStatus::Failed) else { return };
    let ended = outcome.exit.map(|code| format!(" (the program ended with code {code})"));
    outcome.error = Some(format!("{problem}{}", ended.unwrap_or_default()));
    outcome.code = Some(Code::McpLogin.to_string());
    if problem.needs_person() {
        outcome.detail["permanent"] = json!(true);
    }
}
