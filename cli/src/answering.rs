//! Identifies the person who answers a question from the command line.

use lobster_runtime::code::Code;
use lobster_runtime::engine::{ANSWER_TOKEN, Author};
use lobster_runtime::envelope::Failure;
use lobster_runtime::replay::{self, GateRef};
use lobster_runtime::runtime::Runtime;
use lobster_serve::access::author_by_secret;

/// The owner of the token in the environment; `None` if there is no token, or no such open question.
///
/// # Errors
/// The token's owner may not answer the question, or the token is unknown.
pub(crate) fn author_by_token(runtime: &Runtime, gate: &GateRef) -> Result<Option<Author>, Failure> {
    let Some(secret) = ANSWER_TOKEN.read_env(|name| std::env::var_os(name))? else { return Ok(None) };
    // Answering reports a closed question.
    let Ok(gate) = replay::open_gate(runtime, gate) else { return Ok(None) };
    let service = runtime.store()?.existing_service()?;
    let author = service.map(|service| author_by_secret(&service, &secret, &gate)).transpose()?.flatten();
    author.map(Some).ok_or_else(|| {
        let name = ANSWER_TOKEN.name;
        Failure::new(
            Code::PersonRequired,
            format!(
                "{name} holds no token of this store whose owner may answer this question. \
                 `lobster serve token new --role approver` makes one"
            ),
        )
    })
}
