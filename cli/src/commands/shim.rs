//! `openclaw.invoke` and `clawd.invoke` as separate programs: this binary under another name. All words
//! except `--help` are arguments of the stage.

use lobster_runtime::language::pipeline::{Pipeline, StageCall};
use lobster_runtime::stage::Mode;

use super::help;
use crate::exit::{CommandError, CommandResult};
use crate::prepare;

pub(crate) fn run(name: &str, words: &[String]) -> CommandResult {
    if let [word] = words
        && matches!(word.as_str(), "-h" | "--help")
    {
        return help::print_topic(&[name.to_owned()]);
    }
    let reply = crate::reply::ResultPrinter::new(Mode::Human);
    let runtime = prepare::runtime(Mode::Human)?;
    let call = StageCall::from_words(name, words).map_err(|error| CommandError::usage(error.message))?;
    match runtime.plan_pipeline(Pipeline { stages: vec![call] }, name) {
        Ok(planned) => reply.report_result(&runtime, runtime.run_planned(&planned), true),
        Err(failure) => reply.report_failure(&failure),
    }
}
