//! The directory in which `state.get` and `state.set` keep their values. A workflow may name another directory in its
//! `env`; the store stays in its place, and the named directory must not contain it.

use std::borrow::Cow;
use std::path::Path;

use lobster_base::code::Code;
use lobster_stage::StageError;
use lobster_store::state_dir;

use super::jail_spec::real_place;
use super::own_places::kept_from_steps;
use super::policy_gate::policy_denied;
use crate::env::Env;
use crate::services::Services;

const VARIABLE: &str = "LOBSTER_STATE_DIR";

/// The directory of users' state for an effect of this kind in this environment.
pub(crate) fn directory<'s>(
    services: &'s Services,
    env: &Env,
    kind: &str,
) -> Result<Cow<'s, Path>, StageError> {
    let usual = Cow::Borrowed(services.state_dir.as_path());
    if env.get(VARIABLE) == services.env.get(VARIABLE) {
        return Ok(usual);
    }
    let Some(dir) = state_dir(&|name| env.get(name).map(Into::into)).map(|dir| services.cwd.join(dir)) else {
        return Ok(usual);
    };
    let real = real_place(&dir);
    if real == real_place(&usual) {
        return Ok(usual);
    }
    let named = format!("{VARIABLE} of the step's env names {}", dir.display());
    let ours = kept_from_steps(&services.state_dir);
    if ours.iter().any(|ours| real.starts_with(real_place(ours))) {
        let message = format!("{named}, which is lobster's own; name another directory");
        return Err(StageError::permanent(message).with_code(Code::Setting));
    }
    if services.policy.is_open() {
        return Ok(Cow::Owned(dir));
    }
    // The policy does not judge what lobster itself writes there. Other effects do without the directory.
    if kind.starts_with("state.") {
        let hint = "without that variable it uses the state directory";
        return Err(policy_denied(kind, &named, "state-directory", Some(hint)));
    }
    Ok(usual)
}
