//! A command implemented by a function of the program that started lobster, called once per run.

use std::sync::Arc;

use serde_json::{Value, json};

use super::each::emit_items;
use lobster_base::code::Code;
use lobster_base::json;
use lobster_models::channel::Failure;
use lobster_models::host_functions::{call_function, place_of};
use lobster_models::{CALL, Spend};
use lobster_stage::{
    Answer, EffectAction, Flow, Host, HostFunctions, Question, Rendering, Sink, Stage, StageArgs, StageError,
    Stop, WorstCase,
};

/// The kind of the effect that calls such a command.
pub const HOST_COMMAND: &str = "host.command";

/// Commands that ask a model: lobster bills their answers, even if the host has replaced the command.
const ASK_A_MODEL: [&str; 2] = ["llm.invoke", "llm_task.invoke"];

/// Commands that send an order or a message: stopping them does not undo it.
const DISPATCH: [&str; 4] = ["openclaw.invoke", "clawd.invoke", "openclaw.agent", "gog.gmail.send"];

struct HostCommand {
    functions: Arc<HostFunctions>,
    name: String,
    args: StageArgs,
    items: Vec<Value>,
}

pub(super) fn build(functions: &Arc<HostFunctions>, name: &str, args: &StageArgs) -> Box<dyn Stage + Send> {
    let (functions, name, args) = (Arc::clone(functions), name.to_owned(), args.clone());
    Box::new(HostCommand { functions, name, args, items: Vec::new() })
}

impl Stage for HostCommand {
    fn process_item(&mut self, item: Value, _: &mut dyn Host, _: &mut dyn Sink) -> Result<Flow, Stop> {
        self.items.push(item);
        Ok(Flow::More)
    }

    fn end_input(&mut self, host: &mut dyn Host, out: &mut dyn Sink) -> Result<(), Stop> {
        let mut items = std::mem::take(&mut self.items);
        let mut resume = Value::Null;
        loop {
            let mut answer = self.call_host(&items, &resume, host)?;
            if let Some(shown) = answer["shown"].as_str() {
                let is_list = answer["isList"] == true;
                host.show_text(shown, if is_list { Rendering::List } else { Rendering::Text })?;
            }
            let mut request = answer["request"].take();
            if request.is_null() {
                return emit_items(array_items(answer["output"].take()), out);
            }
            let waiting = array_items(request["items"].take());
            match host.ask_person(read_question(&self.name, &mut request, &waiting)?)? {
                Answer::Approved { .. } => return emit_items(waiting, out),
                // The command is called again and continues its work.
                Answer::Response(response) if request["commandInput"].is_object() => {
                    resume = json!({"state": request["commandInput"].take(), "response": response});
                    items = waiting;
                }
                Answer::Response(response) => return out.emit_item(response).map(drop),
            }
        }
    }
}

impl HostCommand {
    /// Makes one call and returns its results, questions and displayed texts.
    fn call_host(&self, items: &[Value], resume: &Value, host: &mut dyn Host) -> Result<Value, Stop> {
        let asks_a_model = ASK_A_MODEL.contains(&self.name.as_str());
        let mut recorded = self.args.clone();
        recorded.options.remove("token");
        let action = EffectAction {
            kind: if asks_a_model { CALL } else { HOST_COMMAND }.to_owned(),
            detail: json!({
                "provider": "host",
                "command": self.name,
                "model": self.args.text_or_true("model"),
                "args": recorded,
                "input": items,
                "resume": resume,
            }),
            idempotent: false,
        };
        let has_budget = asks_a_model && host.has_budget();
        let mut is_dispatched = DISPATCH.contains(&self.name.as_str());
        let answer = host.perform_effect(action, &mut |effect| {
            let mut body = place_of(effect, &self.args);
            body["input"] = json!(items);
            body["resume"] = resume.clone();
            if has_budget {
                (effect.reserve)(&self.worst_case(&body))?;
            }
            let is_late = effect.cancel.is_cancelled();
            let said = call_function(&self.functions, ("command", &self.name), &body, effect.cancel);
            let mut answer = said.map_err(|failure| self.call_failure(&failure, is_late || asks_a_model))?;
            is_dispatched |= answer["isDispatched"] == true;
            if let Some(message) = answer.get("error") {
                return Err(StageError::new(json::js_string(message)));
            }
            if asks_a_model {
                record_spend(&mut answer);
            }
            Ok(answer)
        });
        if is_dispatched || answer.as_ref().is_ok_and(|answer| answer["isDispatched"] == true) {
            host.no_retry();
        }
        answer
    }

    /// The failure of a call. If the connection was lost, the outcome is unknown, unless the call only
    /// asks a model.
    fn call_failure(&self, failure: &Failure, is_harmless: bool) -> StageError {
        let error = failure.error_for(&self.name);
        match failure {
            Failure::Http(lost) if lost.is_answer_lost() && !is_harmless => error.with_code(Code::UnknownEnd),
            _ => error,
        }
    }

    /// The most that asking a model can use, as far as the arguments limit it.
    fn worst_case(&self, body: &Value) -> WorstCase {
        let output = self.args.text_or_true("max-output-tokens").and_then(|text| text.trim().parse().ok());
        WorstCase {
            model: self.args.text_or_true("model"),
            input_tokens: json::compact(body).len() as u64,
            output_tokens: output,
        }
    }
}

/// Notes the cost of a model's answers; a cached answer costs nothing.
fn record_spend(answer: &mut Value) {
    let mut spend = Vec::new();
    for item in answer["output"].as_array().into_iter().flatten() {
        let Some(usage) = item["usage"].as_object().filter(|_| item["replayed"] != true) else { continue };
        spend.push(Spend {
            call: uuid::Uuid::now_v7().to_string(),
            model: item["model"].as_str().map(str::to_owned),
            usage: usage.clone(),
            is_lost: false,
        });
    }
    // Without this the step's result would be billed as the work of another program.
    let usage = answer["output"][0]["usage"].clone();
    answer["result"] = json!({ "usage": usage });
    answer["spend"] = json!(spend);
}

/// The question that the command asks a person.
fn read_question(name: &str, request: &mut Value, items: &[Value]) -> Result<Question, StageError> {
    let Some(prompt) = request["prompt"].as_str().map(str::to_owned) else {
        return Err(StageError::permanent(format!("{name} asks without a prompt")));
    };
    let mut field = |name: &str| Some(request[name].take()).filter(|value| !value.is_null());
    Ok(match field("type").as_ref().and_then(Value::as_str) {
        Some("approval_request") => Question::Approval {
            prompt,
            items: items.to_vec(),
            preview: field("preview").map(|preview| json::js_string(&preview)),
            emit: true,
        },
        _ => Question::Input {
            prompt,
            schema: field("responseSchema").unwrap_or_else(|| json!({})),
            defaults: field("defaults"),
            subject: field("subject"),
            items: items.to_vec(),
            emit: true,
        },
    })
}

fn array_items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}
