//! `llm.invoke` and its older name `llm_task.invoke`: ask a language model.
//!
//! A call makes three kinds of effects: looking for a cached answer, asking (once per attempt, so that no
//! attempt is paid twice), and keeping the answer.

mod files;
mod options;
mod prompt_file;

use std::sync::Arc;

use lobster_base::code::Code;
use serde_json::{Map, Value, json};

use lobster_base::json;
use lobster_base::schema::Schema;
use lobster_models::bounds::Bounds;
use lobster_models::cache::{self, Found, Slot};
use lobster_models::channel::{Channel, Failure, Given, Provider, Variables};
use lobster_models::health::Health;
use lobster_models::host_functions::{self, place_of};
use lobster_models::pool::{self, Pool};
use lobster_models::pricing::Pricing;
use lobster_models::request::{Request, Retry, json_number};
use lobster_models::{CALL, CUT_SHORT, KEEP, LOOKUP, Spend};
use lobster_stage::{
    Destination, EffectAction, EffectHost, Flow, Host, HostFunctions, Sink, Stage, StageArgs, StageError,
    Stop,
};
use lobster_store::{iso, system_clock};
use prompt_file::PromptFile;

pub(super) use options::{INVOKE, TASK};

/// Most repetitions for an answer that does not fit its schema. A model that fails more often does not
/// understand the schema, and each attempt costs.
const MAX_RETRIES: u32 = 10;

/// The sources that the incumbent knows.
const SOURCES: [&str; 5] = ["remote", "openclaw", "clawd", "pi", "http"];

struct Llm {
    command: &'static str,
    default_provider: Option<Provider>,
    /// The request as set by options; the environment completes it.
    request: Request,
    schema: Option<Schema>,
    /// Blank leaves the choice open, even if the environment sets a provider.
    provider: Option<String>,
    token: Option<String>,
    retries: Option<Value>,
    /// Blank keeps nothing, even if the environment sets a key.
    state_key: Option<String>,
    /// The arguments as given, for an adapter that is a function.
    args: StageArgs,
    refresh: Option<bool>,
    disable_cache: bool,
    more_artifacts: Vec<Value>,
    items: Vec<Value>,
    from_files: FromFiles,
}

/// Options whose texts are read from files when the command runs.
#[derive(Default)]
struct FromFiles {
    prompt: Option<String>,
    given: Map<String, Value>,
    words: Vec<(String, String)>,
    system: Option<String>,
    schema: Option<String>,
    attachments: Vec<String>,
}

/// The adapter that a call uses.
enum Way {
    One(Box<Channel>),
    /// A pool, by name if it has one. Read when the effect is performed, because it may be a file.
    Pool(Option<String>),
    /// The adapter of this name in the program that started lobster.
    Host(Arc<HostFunctions>, String),
}

fn build(
    command: &'static str,
    default_provider: Option<Provider>,
    args: &StageArgs,
) -> Result<Box<dyn Stage + Send>, StageError> {
    let refuse = |text: &str| StageError::permanent(format!("{command} {text}"));
    let prompt = args
        .text_or_true("prompt")
        .filter(|prompt| !prompt.is_empty())
        .unwrap_or_else(|| args.positional.join(" "));
    let prompt_file = args.text_value("prompt-file").map(str::to_owned).filter(|path| !path.is_empty());
    match (&prompt_file, prompt.is_empty()) {
        (None, true) => return Err(refuse("requires --prompt or positional text")),
        (Some(_), false) => return Err(refuse("takes --prompt or --prompt-file, not both")),
        _ => {}
    }
    let word = |name: &str| {
        args.text_or_true(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let structure = |name: &str, kind: &str, fits: fn(&Value) -> bool| match word(name) {
        None => Ok(None),
        Some(text) => match json::parse(&text) {
            Ok(value) if fits(&value) => Ok(Some(value)),
            _ => Err(refuse(&format!("--{name} must be a JSON {kind}"))),
        },
    };
    let artifacts = structure("artifacts-json", "array", Value::is_array)?;
    let path_of = |name: &str| word(name).and_then(|text| text.strip_prefix('@').map(str::to_owned));
    let schema_file = path_of("output-schema");
    let output_schema = match &schema_file {
        None => structure("output-schema", "object", Value::is_object)?,
        Some(_) => None,
    };
    let schema = output_schema.as_ref().map(Schema::compile).transpose().map_err(StageError::permanent)?;
    if args.get("token") == Some(&Value::Bool(true)) {
        return Err(refuse("--token has no value"));
    }
    let texts = |name: &str| -> Result<Vec<String>, StageError> {
        let texts = args.all_values(name).into_iter().map(|value| value.as_str().map(str::to_owned));
        texts.collect::<Option<Vec<_>>>().ok_or_else(|| refuse(&format!("--{name} has no value")))
    };
    let words = texts("var")?.into_iter().map(|text| {
        let pair = text.split_once('=').map(|(name, value)| (name.trim().to_owned(), value.to_owned()));
        pair.ok_or_else(|| refuse(&format!("--var takes NAME=VALUE, not {text:?}")))
    });
    let words = words.collect::<Result<Vec<_>, _>>()?;
    let given = structure("vars-json", "object", Value::is_object)?;
    if prompt_file.is_none() && (given.is_some() || !words.is_empty()) {
        return Err(refuse("has variables, but no --prompt-file to fill"));
    }
    let system_file = path_of("system");
    let amount = |name: &str| word(name).and_then(|_| args.number_value(name)).and_then(json_number);
    Ok(Box::new(Llm {
        command,
        default_provider,
        request: Request {
            prompt,
            system: word("system").filter(|_| system_file.is_none()),
            stop: texts("stop")?,
            seed: amount("seed"),
            effort: word("effort"),
            model: word("model"),
            metadata: structure("metadata-json", "object", Value::is_object)?,
            output_schema,
            schema_version: word("schema-version").unwrap_or_default(),
            max_output_tokens: amount("max-output-tokens"),
            temperature: amount("temperature"),
            ..Request::default()
        },
        schema,
        provider: args.text_or_true("provider").map(|name| name.trim().to_lowercase()),
        token: args.text_or_true("token"),
        retries: args.get("max-validation-retries").cloned(),
        state_key: args.text_or_true("state-key").map(|key| key.trim().to_owned()),
        args: args.clone(),
        refresh: args.get("refresh").map(|value| is_on(&json::js_string(value))),
        disable_cache: args.get("disable-cache").is_some_and(|value| is_on(&json::js_string(value))),
        more_artifacts: match artifacts {
            Some(Value::Array(artifacts)) => artifacts,
            _ => Vec::new(),
        },
        items: Vec::new(),
        from_files: FromFiles {
            prompt: prompt_file,
            given: given.and_then(|given| given.as_object().cloned()).unwrap_or_default(),
            words,
            system: system_file,
            schema: schema_file,
            attachments: texts("file")?,
        },
    }))
}

/// True if a switch is on; its value may be spelt out.
fn is_on(text: &str) -> bool {
    !matches!(text.trim().to_lowercase().as_str(), "" | "false" | "0" | "no")
}

impl Stage for Llm {
    fn process_item(&mut self, item: Value, _host: &mut dyn Host, _out: &mut dyn Sink) -> Result<Flow, Stop> {
        self.items.push(item);
        Ok(Flow::More)
    }

    fn end_input(&mut self, host: &mut dyn Host, out: &mut dyn Sink) -> Result<(), Stop> {
        let (way, name) = self.choose_adapter(host)?;
        self.read_files(host)?;
        let request = self.complete_request(host)?;
        let request = match &way {
            Way::One(channel) => channel.limit_tokens(&request, host.has_budget()),
            Way::Pool(_) | Way::Host(..) => request,
        };
        let slot = self.cache_slot(&request, &name, host);
        if !self.is_refresh_forced(host)
            && let Some(item) = self.look_up(&slot, host)?
        {
            return out.emit_item(item).map(drop);
        }
        let item = self.ask_model(&way, &request, &slot, host)?;
        store_answer(self.command, &slot, &item, host)?;
        out.emit_item(item).map(drop)
    }
}

impl Llm {
    /// The adapter to ask, and the provider's name in cache keys.
    fn choose_adapter(&self, host: &dyn Host) -> Result<(Way, String), StageError> {
        let command = self.command;
        let env = |name: &str| host.env_var(name);
        let set = |name: &str| host.env_var(name).is_some_and(|value| !value.trim().is_empty());
        let ambient = || host.env_var("LOBSTER_LLM_PROVIDER").map(|name| name.trim().to_lowercase());
        let chosen = self.provider.clone().or_else(ambient);
        let functions = host.command_registry().host_functions();
        let of_host = |name: &str| {
            let functions = functions.filter(|functions| functions.adapters.contains_key(name))?;
            Some((Way::Host(Arc::clone(functions), name.to_owned()), name.to_owned()))
        };
        let chosen = chosen.as_deref().filter(|name| !name.is_empty());
        let named = chosen.or_else(|| self.default_provider.map(Provider::name));
        let only = functions.map(|functions| &functions.adapters).filter(|adapters| adapters.len() == 1);
        let only = only.and_then(|adapters| adapters.keys().next());
        if let Some(way) = named.or(only.map(String::as_str)).and_then(of_host) {
            return Ok(way);
        }
        let provider = match chosen {
            Some("pool") => return Ok((Way::Pool(None), "pool".to_owned())),
            Some(name) if name.starts_with("pool:") => {
                let pool = name.strip_prefix("pool:").map(|pool| pool.trim().to_owned());
                return Ok((Way::Pool(pool), name.to_owned()));
            }
            Some(name) => Provider::from_name(name)
                .ok_or_else(|| StageError::permanent(format!("Unsupported llm provider: {name}")))?,
            None => match self.default_provider {
                Some(provider) => provider,
                None if set(pool::VARIABLE) => return Ok((Way::Pool(None), "pool".to_owned())),
                None if set("LOBSTER_PI_LLM_ADAPTER_URL") => Provider::Pi,
                None if set("OPENCLAW_URL") || set("CLAWD_URL") => Provider::OpenClaw,
                None if set("LOBSTER_LLM_ADAPTER_URL") => Provider::Http,
                None => {
                    return Err(StageError::permanent(format!(
                        "{command} could not resolve a provider. Set --provider or LOBSTER_LLM_PROVIDER"
                    )));
                }
            },
        };
        let token = |name: &str| host.find_token(name);
        let credential = |to: Destination<'_>| host.find_credential(to);
        let variables = Variables { env: &env, token: &token, credential: &credential };
        Ok((Way::One(Box::new(self.open_channel(provider, variables)?)), provider.name().to_owned()))
    }

    fn open_channel(&self, provider: Provider, variables: Variables<'_>) -> Result<Channel, StageError> {
        let given = Given { token: self.token.as_deref(), ..Given::default() };
        Channel::new(self.command, provider, given, variables)
    }

    /// Completes the request with the texts of files.
    fn read_files(&mut self, host: &mut dyn Host) -> Result<(), Stop> {
        let command = self.command;
        let files = std::mem::take(&mut self.from_files);
        if let Some(path) = &files.prompt {
            let text = files::read_text(command, "prompt-file", path, host)?;
            let prompt = PromptFile::parse(&text)
                .and_then(|file| file.fill_prompt(&files.given, &files.words, &|name| host.env_var(name)))
                .map_err(|why| StageError::permanent(format!("{command} --prompt-file {path}: {why}")))?;
            if prompt.is_empty() {
                return Err(StageError::permanent(format!("{command} --prompt-file {path} is empty")).into());
            }
            self.request.prompt = prompt;
        }
        if let Some(path) = &files.system {
            self.request.system = Some(files::read_text(command, "system", path, host)?.trim().to_owned());
        }
        if let Some(path) = &files.schema {
            let text = files::read_text(command, "output-schema", path, host)?;
            let wrong =
                |why: String| StageError::permanent(format!("{command} --output-schema @{path}: {why}"));
            let schema = json::parse(&text).map_err(|error| wrong(error.to_string()))?;
            self.schema = Some(Schema::compile(&schema).map_err(wrong)?);
            self.request.output_schema = Some(schema);
        }
        for path in &files.attachments {
            self.request.files.push(files::read_attachment(command, path, host)?);
        }
        Ok(())
    }

    /// The request, completed from the environment and the input.
    fn complete_request(&mut self, host: &dyn Host) -> Result<Request, StageError> {
        let mut request = self.request.clone();
        request.model = request.model.or_else(|| env_setting(host, "MODEL"));
        if request.schema_version.is_empty() {
            request.schema_version = env_setting(host, "SCHEMA_VERSION").unwrap_or_else(|| "v1".to_owned());
        }
        let mut items = std::mem::take(&mut self.items);
        items.append(&mut self.more_artifacts);
        request.set_artifacts(items);
        let violations = request.artifact_violations();
        if violations.is_empty() {
            return Ok(request);
        }
        Err(StageError::permanent(format!("{} payload invalid: {}", self.command, violations.join(", "))))
    }

    fn cache_slot(&self, request: &Request, provider: &str, host: &dyn Host) -> Slot {
        let run_key = || host.env_var("LOBSTER_RUN_STATE_KEY").filter(|key| !key.trim().is_empty());
        Slot {
            command: self.command,
            key: request.cache_key(provider),
            state_key: self
                .state_key
                .clone()
                .or_else(run_key)
                .map(|key| key.trim().to_owned())
                .filter(|key| !key.is_empty()),
            files: !self.disable_cache,
        }
    }

    fn is_refresh_forced(&self, host: &dyn Host) -> bool {
        self.refresh.unwrap_or_else(|| env_setting(host, "FORCE_REFRESH").is_some_and(|text| is_on(&text)))
    }

    /// Number of times to ask again if an answer does not fit.
    fn retry_count(&self, host: &mut dyn Host) -> u32 {
        if self.schema.is_none() {
            return 0;
        }
        let text = match &self.retries {
            Some(Value::String(text)) => Some(text.clone()).filter(|text| !text.trim().is_empty()),
            // A bare option is 1, like `Number(true)`.
            Some(_) => Some("1".to_owned()),
            None => None,
        };
        let wanted = text
            .or_else(|| env_setting(host, "VALIDATION_RETRIES"))
            .map_or(1.0, |text| json::js_number(&text));
        if wanted.is_nan() {
            return 1;
        }
        if wanted > f64::from(MAX_RETRIES) {
            host.print_note(&format!(
                "[WARN] {}: --max-validation-retries is at most {MAX_RETRIES}",
                self.command
            ));
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=10")]
        let retries = wanted.floor().clamp(0.0, f64::from(MAX_RETRIES)) as u32;
        retries
    }

    /// An earlier answer to the same request that fits the schema, marked as replayed.
    fn look_up(&self, slot: &Slot, host: &mut dyn Host) -> Result<Option<Value>, Stop> {
        if !slot.files && slot.state_key.is_none() {
            return Ok(None);
        }
        let misfit = |item: &Value| {
            let violations = self.schema_violations(&item["output"]["data"]);
            (!violations.is_empty())
                .then(|| format!("it does not fit --output-schema: {}", violations.join("; ")))
        };
        let action = EffectAction { kind: LOOKUP.to_owned(), detail: describe_slot(slot), idempotent: true };
        let answer = host.perform_effect(action, &mut |effect| {
            let looked_up = slot
                .look_up(effect.state_dir, &cache_dir(effect), &misfit)
                .map_err(StageError::from_error)?;
            let item = looked_up.found.map_or(Value::Null, |(item, found)| mark_replayed(item, found));
            let mut answer = json!({"item": item});
            if !looked_up.passed_over.is_empty() {
                answer["passedOver"] = json!(looked_up.passed_over);
            }
            Ok(answer)
        })?;
        for why in answer["passedOver"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            host.print_note(&format!("[WARN] {}: {why}", self.command));
        }
        Ok(answer.get("item").filter(|item| !item.is_null()).cloned())
    }

    fn ask_model(
        &self,
        way: &Way,
        request: &Request,
        slot: &Slot,
        host: &mut dyn Host,
    ) -> Result<Value, Stop> {
        let attempts = self.retry_count(host) + 1;
        let mut retry = None;
        for attempt in 1..=attempts {
            let answer = self.ask_once(way, request, retry.as_ref(), host)?;
            let item = self.answer_item(request, slot, &answer, attempt);
            let violations = self.schema_violations(&item["output"]["data"]);
            if self.schema.is_some() && is_cut(&item) {
                // The same limit would also cut the next answer, and a cut answer that fits by chance
                // means something else.
                let why = match violations.as_slice() {
                    [] => "it may not mean what the model intended".to_owned(),
                    violations => format!("it does not fit the schema ({})", violations.join("; ")),
                };
                let message = format!("{} {CUT_SHORT}, so {why}. Raise --max-output-tokens", self.command);
                return Err(StageError::permanent(message).with_code(Code::Model).into());
            }
            if violations.is_empty() {
                return Ok(item);
            }
            if attempt == attempts {
                let message =
                    format!("{} output failed schema validation: {}", self.command, violations.join("; "));
                return Err(StageError::new(message).with_code(Code::Model).into());
            }
            retry = Some(Retry {
                attempt: attempt + 1,
                errors: violations,
                said: text_of_answer(&item["output"]),
            });
        }
        Err(StageError::new("no attempt was made").into())
    }

    /// Violations of the schema by the answer's data, each with its path.
    fn schema_violations(&self, data: &Value) -> Vec<String> {
        let errors = self.schema.as_ref().map(|schema| schema.all_errors(data)).unwrap_or_default();
        let place = |pointer: &str| if pointer.is_empty() { "/".to_owned() } else { pointer.to_owned() };
        errors.iter().map(|error| format!("{} {}", place(&error.pointer), error.message)).collect()
    }

    /// Makes one call and returns the answer that its effect records, with the tokens and cost.
    fn ask_once(
        &self,
        way: &Way,
        request: &Request,
        retry: Option<&Retry>,
        host: &mut dyn Host,
    ) -> Result<Value, Stop> {
        let command = self.command;
        let detail = match way {
            Way::One(channel) => channel.describe_request(request, retry),
            Way::Pool(name) => {
                json!({"provider": "pool", "pool": name, "body": request.adapter_payload(retry)})
            }
            Way::Host(_, name) => json!({"provider": name, "body": request.adapter_payload(retry)}),
        };
        // Asking twice costs twice, and an answer that was paid for may steer a tool: an interrupted call
        // needs a decision, unless its step sets `idempotent: true`.
        let action = EffectAction { kind: CALL.to_owned(), detail, idempotent: false };
        let has_budget = host.has_budget();
        host.perform_effect(action, &mut |effect| {
            let failed = |failure: Failure| failure.error_for(command);
            let asking = pool::Asking {
                request,
                retry,
                bounds: Bounds { has_budget, reserve: effect.reserve, give_back: effect.give_back },
                send: effect.send,
            };
            let variables = Variables { env: effect.env, token: effect.token, credential: effect.credential };
            let (mut answer, provider, secret, hops) = match way {
                Way::One(channel) => {
                    // Now with its key, which a look at the record does not need.
                    let channel = self.open_channel(channel.provider, variables)?;
                    let answer = asking.ask_channel(&channel, request).map_err(failed)?;
                    (answer, channel.provider.name(), channel.secret_name().map(str::to_owned), Vec::new())
                }
                Way::Pool(name) => {
                    let pool = Pool::from_env(command, name.as_deref(), variables, effect.cwd)?;
                    // An unusable price table is reported at the beginning of the run.
                    let (pricing, _) = Pricing::configured(effect.env);
                    let (answer, channel, hops) = pool
                        .ask_channels(&asking, &Health::at(effect.state_dir), &pricing)
                        .map_err(failed)?;
                    (answer, channel.provider.name(), channel.secret_name().map(str::to_owned), hops)
                }
                Way::Host(functions, name) => {
                    let place = place_of(effect, &self.args);
                    let answer = host_functions::ask_adapter(functions, name, &asking, place, effect.cancel);
                    (answer.map_err(failed)?, name.as_str(), None, Vec::new())
                }
            };
            let passed_over = pool::hop_warnings(&hops);
            if !passed_over.is_empty()
                && let Some(warnings) =
                    answer.result.entry("warnings").or_insert_with(|| json!([])).as_array_mut()
            {
                warnings.extend(passed_over);
            }
            let spend = answer.result.get("usage").and_then(Value::as_object).map(|usage| Spend {
                call: uuid::Uuid::now_v7().to_string(),
                model: answer.billed.clone(),
                usage: usage.clone(),
                is_lost: false,
            });
            let mut record =
                json!({"spend": Vec::from_iter(spend), "result": answer.result, "provider": provider});
            if let Way::Host(functions, name) = way {
                record["source"] = json!(functions.adapters.get(name));
            }
            record["createdAt"] = json!(current_time());
            if let Some(secret) = secret {
                record["secret"] = json!(secret);
            }
            if !hops.is_empty() {
                record["hops"] = json!(hops);
            }
            Ok(record)
        })
    }

    fn answer_item(&self, request: &Request, slot: &Slot, answer: &Value, attempt: u32) -> Value {
        let field = |name: &str| answer["result"].get(name).cloned().unwrap_or_default();
        let output = |name: &str| field("output").get(name).cloned().unwrap_or_default();
        let (data, status) = (output("data"), field("status"));
        let format = match output("format") {
            Value::Null if json::to_boolean(Some(&data)) => json!("json"),
            Value::Null => json!("text"),
            format => format,
        };
        let source = match (&answer["source"], self.default_provider) {
            // The alias has always used this name, whichever gateway answered.
            (Value::Null, Some(_)) => json!("clawd"),
            (Value::Null, None) => answer["provider"].clone(),
            (own, _) => own.clone(),
        };
        // Like the incumbent, which takes every source that it does not know for a cache.
        let is_foreign = answer["source"].as_str().is_some_and(|source| !SOURCES.contains(&source));
        json!({
            "kind": self.command,
            "runId": field("runId"),
            "prompt": field("prompt"),
            "model": field("model"),
            "schemaVersion": request.schema_version,
            "status": if status.is_null() { json!("completed") } else { status },
            "cacheKey": slot.key,
            "artifactHashes": request.artifact_hashes,
            "output": {"format": format, "text": output("text"), "data": data},
            "usage": field("usage"),
            "metadata": field("metadata"),
            "warnings": field("warnings"),
            "diagnostics": field("diagnostics"),
            "createdAt": answer["createdAt"],
            "source": source,
            "cached": is_foreign,
            "attemptCount": attempt,
        })
    }
}

/// The model's text in an answer.
fn text_of_answer(output: &Value) -> String {
    match (&output["text"], &output["data"]) {
        (Value::String(text), _) => text.clone(),
        (_, Value::Null) => String::new(),
        (_, data) => json::compact(data),
    }
}

fn mark_replayed(mut item: Value, found: Found) -> Value {
    item["source"] = json!(found.name());
    item["cached"] = json!(true);
    item["replayed"] = json!(true);
    item
}

/// True if the provider ended the answer at a limit.
fn is_cut(item: &Value) -> bool {
    item["warnings"].as_array().into_iter().flatten().any(|warning| warning == CUT_SHORT)
}

fn store_answer(command: &str, slot: &Slot, item: &Value, host: &mut dyn Host) -> Result<(), Stop> {
    if !slot.files && slot.state_key.is_none() {
        return Ok(());
    }
    let action = EffectAction { kind: KEEP.to_owned(), detail: describe_slot(slot), idempotent: true };
    host.perform_effect(action, &mut |effect| {
        slot.store_answer(item, &current_time(), effect.state_dir, &cache_dir(effect))
            .map_err(|error| StageError::new(format!("{command}: {error}")))?;
        Ok(json!({}))
    })?;
    Ok(())
}

fn describe_slot(slot: &Slot) -> Value {
    json!({"command": slot.command, "cacheKey": slot.key, "stateKey": slot.state_key, "files": slot.files})
}

fn cache_dir(effect: &EffectHost<'_>) -> std::path::PathBuf {
    cache::directory(effect.env, effect.state_dir, effect.is_under_policy)
}

fn current_time() -> String {
    iso(system_clock()())
}

/// A setting of the environment by its new or its old name; blank is unset.
fn env_setting(host: &dyn Host, name: &str) -> Option<String> {
    ["LOBSTER_LLM_", "LLM_TASK_"]
        .iter()
        .filter_map(|prefix| host.env_var(&format!("{prefix}{name}")))
        .map(|text| text.trim().to_owned())
        .find(|text| !text.is_empty())
}

#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod tests;
