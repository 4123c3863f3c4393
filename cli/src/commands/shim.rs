//! `openclaw.invoke` and `clawd.invoke` as programs of their own: this binary
//! under another name. The words are the stage's arguments as they stand.

use lobster_runtime::language::pipeline::{Pipeline, StageCall};
use lobster_runtime::stage::Mode;

use crate::exit::{CommandError, CommandResult};

pub(crate) fn run(name: &str, words: &[String]) -> CommandResult {
    let reply = super::run::Reply { mode: Mode::Human };
    let runtime = super::runtime(Mode::Human)?;
    let call = StageCall::from_words(name, words).map_err(|error| CommandError::usage(error.message))?;
    match runtime.plan_pipeline(Pipeline { stages: vec![call] }, name) {
        Ok(planned) => reply.result(&runtime, runtime.run_planned(&planned), true),
        Err(failure) => reply.failure(&failure),
    }
}
