//! `--each`: one call of a tool per input item, for the stages that call tools.

use lobster_base::code::Code;
use serde_json::{Map, Value};

use lobster_base::json;
use lobster_stage::{Flow, Sink, StageArgs, StageError, Stop};

/// The calls of one stage, made one after the other.
#[derive(Debug)]
pub(super) struct Each {
    /// The argument that holds the item.
    key: String,
    /// Calls that were answered.
    done: usize,
}

impl Each {
    /// The calls that `--each` and `--item-key` ask for; none without `--each`.
    pub(super) fn from_args(args: &StageArgs) -> Option<Self> {
        let key =
            args.first_value(&["item-key", "itemKey"]).map(json::js_string).filter(|key| !key.is_empty());
        args.is_enabled("each").then(|| Self { key: key.unwrap_or_else(|| "item".to_owned()), done: 0 })
    }

    /// The arguments of the call for `item`: the arguments of all calls plus the item.
    pub(super) fn call_arguments(&self, given: &Map<String, Value>, item: Value) -> Map<String, Value> {
        let mut args = given.clone();
        args.insert(self.key.clone(), item);
        args
    }

    /// Notes that the next call was answered.
    pub(super) fn count_answer(&mut self) {
        self.done += 1;
    }

    /// Adds to a call's failure which calls were answered before it.
    pub(super) fn explain_failure(&self, stop: Stop) -> Stop {
        match stop {
            Stop::Failed(error) if !error.has_code(Code::Cancelled) => {
                let done = match self.done {
                    0 => "no call before it".to_owned(),
                    1 => "the call for item 1 was answered".to_owned(),
                    n => format!("the calls for items 1 to {n} were answered"),
                };
                let message = format!("{} [--each stopped at item {}; {done}]", error.message, self.done + 1);
                // A retry would repeat the calls that were answered.
                Stop::Failed(StageError {
                    permanent: error.permanent || self.done > 0,
                    ..error.with_message(message)
                })
            }
            other => other,
        }
    }
}

/// Passes items on until the next stage has enough of them.
pub(super) fn emit_items(items: impl IntoIterator<Item = Value>, out: &mut dyn Sink) -> Result<(), Stop> {
    for item in items {
        if out.emit_item(item)? == Flow::Enough {
            break;
        }
    }
    Ok(())
}

/// Passes a tool's answer on, the items of a list one by one.
pub(super) fn hand_on(answer: Value, out: &mut dyn Sink) -> Result<Flow, Stop> {
    let Value::Array(items) = answer else { return out.emit_item(answer) };
    let mut flow = Flow::More;
    for item in items {
        flow = out.emit_item(item)?;
    }
    Ok(flow)
}
