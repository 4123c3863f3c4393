//! `openclaw.invoke` and its older name `clawd.invoke`: calls a tool of an OpenClaw gateway.

use lobster_base::code::Code;
use serde_json::{Value, json};

use super::describe::{Arg, command_schema, example_list};
use super::each::{self, Each};
use lobster_base::json;
use lobster_models::http::{self, CompleteReply, HttpError, HttpLimits, Post, RequestAuth, Secret, Url};
use lobster_stage::{
    EffectAction, Flag, Flow, Host, Sink, Stage, StageArgs, StageError, StageKind, StageSpec, Stop, Token,
};

pub(super) static OPENCLAW: StageSpec =
    StageSpec { name: "openclaw.invoke", build: |args| build("openclaw.invoke", args), ..COMMON };

pub(super) static CLAWD: StageSpec =
    StageSpec { name: "clawd.invoke", build: |args| build("clawd.invoke", args), ..COMMON };

const COMMON: StageSpec = StageSpec {
    name: "",
    description: "Call a local OpenClaw tool endpoint",
    help: "\
Usage:
  openclaw.invoke --tool message --action send --args-json '{\"to\":\"me\"}'
  ... | openclaw.invoke --tool message --action send --each --item-key message

Posts the call to /tools/invoke of the gateway (--url, OPENCLAW_URL or CLAWD_URL).
With --each there is one call per input item; a resumed run repeats none that was answered.
Without it the input is ignored.

The token is --token, else OPENCLAW_TOKEN or CLAWD_TOKEN; one from the environment is sent to this machine \
    only (localhost, 127.0.0.1, ::1).
--token \"\" sends none. LOBSTER_HTTP_TIMEOUT_MS and LOBSTER_MAX_HTTP_RESPONSE_BYTES
bound the call.
",
    flags: &[
        Flag { name: "url", value: Some("URL"), help: "the gateway (OPENCLAW_URL, CLAWD_URL)" },
        Flag { name: "token", value: Some("TOKEN"), help: "bearer token (OPENCLAW_TOKEN, CLAWD_TOKEN)" },
        Flag { name: "tool", value: Some("NAME"), help: "the tool" },
        Flag { name: "action", value: Some("NAME"), help: "the tool's action" },
        Flag { name: "args-json", value: Some("JSON"), help: "the tool's arguments, {} by default" },
        Flag { name: "session-key", value: Some("KEY"), help: "the session to act in" },
        Flag { name: "sessionKey", value: Some("KEY"), help: "same as --session-key" },
        Flag { name: "dry-run", value: None, help: "ask the tool not to act" },
        Flag { name: "dryRun", value: None, help: "same as --dry-run" },
        Flag { name: "each", value: None, help: "one call per input item" },
        Flag { name: "item-key", value: Some("KEY"), help: "the argument that holds the item (item)" },
        Flag { name: "itemKey", value: Some("KEY"), help: "same as --item-key" },
    ],
    args_schema: || {
        command_schema(&[
            Arg::text("url", "Gateway address"),
            Arg::text("token", "Bearer token"),
            Arg::text("tool", "Tool name").required(),
            Arg::text("action", "Tool action").required(),
            Arg::text("args-json", "Arguments as JSON"),
            Arg::text("sessionKey", "Session to act in"),
            Arg::text("session-key", "Session to act in"),
            Arg::switch("dryRun", "Ask the tool not to act"),
            Arg::switch("dry-run", "Ask the tool not to act"),
            Arg::switch("each", "One call per input item"),
            Arg::text("itemKey", "Argument that holds the item"),
            Arg::text("item-key", "Argument that holds the item"),
        ])
    },
    examples: || {
        example_list(&[(
            r#"{"tool":"message","action":"send","args-json":"{\"to\":\"me\",\"message\":\"hi\"}"}"#,
            "Send a message",
        )])
    },
    side_effects: Some(&["calls_clawd_tool"]),
    kind: StageKind::Effect,
    build: |args| build("", args),
};

struct Invoke {
    name: &'static str,
    url: Option<String>,
    token: Option<String>,
    call: Call,
    each: Option<Each>,
    gateway: Option<Gateway>,
}

/// The part that all calls of the stage share.
#[derive(Clone)]
struct Call {
    tool: String,
    action: String,
    args: Value,
    session_key: Option<String>,
    dry_run: Option<bool>,
}

/// Address and limits of the calls, read from the environment.
struct Gateway {
    url: Url,
    limits: HttpLimits,
}

fn build(name: &'static str, args: &StageArgs) -> Result<Box<dyn Stage + Send>, StageError> {
    let word =
        |flag| args.text_or_true(flag).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let (Some(tool), Some(action)) = (word("tool"), word("action")) else {
        return Err(StageError::permanent(format!("{name} requires --tool and --action")));
    };
    let text =
        args.text_or_true("args-json").filter(|text| !text.is_empty()).unwrap_or_else(|| "{}".to_owned());
    let arguments = json::parse(&text)
        .map_err(|error| StageError::permanent(format!("{name} --args-json must be valid JSON ({error})")))?;
    let each = Each::from_args(args);
    if each.is_some() && !arguments.is_object() {
        return Err(StageError::permanent(format!("{name} --each requires --args-json to be an object")));
    }
    if args.get("token") == Some(&Value::Bool(true)) {
        return Err(StageError::permanent(format!("{name} --token has no value; --token \"\" sends none")));
    }
    let call = Call {
        tool,
        action,
        args: arguments,
        session_key: args
            .first_value(&["session-key", "sessionKey"])
            .map(json::js_string)
            .filter(|key| !key.is_empty()),
        dry_run: args.first_value(&["dry-run", "dryRun"]).map(|value| value.as_str() != Some("")),
    };
    let (url, token) = (args.text_or_true("url"), args.text_or_true("token"));
    Ok(Box::new(Invoke { name, url, token, call, each, gateway: None }))
}

impl Stage for Invoke {
    fn process_item(&mut self, item: Value, host: &mut dyn Host, out: &mut dyn Sink) -> Result<Flow, Stop> {
        let (Some(each), Value::Object(args)) = (&self.each, &self.call.args) else { return Ok(Flow::More) };
        let args = Value::Object(each.call_arguments(args, item));
        let answer = self.call_gateway(args, host)?;
        // Each item is a requested call: a later stage that has enough items does not cancel it.
        each::hand_on(answer, out).map(|_| Flow::More)
    }

    fn end_input(&mut self, host: &mut dyn Host, out: &mut dyn Sink) -> Result<(), Stop> {
        if self.each.is_none() {
            let answer = self.call_gateway(self.call.args.clone(), host)?;
            each::hand_on(answer, out)?;
        } else {
            // An unusable gateway is an error even without items.
            self.resolved_gateway(host)?;
        }
        Ok(())
    }
}

impl Invoke {
    fn call_gateway(&mut self, args: Value, host: &mut dyn Host) -> Result<Value, Stop> {
        let name = self.name;
        let call = Call { args, ..self.call.clone() };
        let gateway = self.resolved_gateway(host)?;
        let body = call.request_body();
        let mut post = Post {
            url: gateway.url.clone(),
            headers: Vec::new(),
            credential: None,
            body: json::compact(&body),
        };
        let limits = gateway.limits;
        let given = self.token.clone();
        let action = EffectAction {
            kind: "http".to_owned(),
            detail: json!({"method": "POST", "url": http::redacted_address(&post.url), "body": body}),
            idempotent: false,
        };
        let mut is_sent = true;
        let answer = host.perform_effect(action, &mut |effect| {
            let is_late = effect.cancel.is_cancelled();
            let token = choose_token(name, given.as_deref(), &post.url, effect.token)
                .inspect_err(|_| is_sent = false)?;
            post.credential = token.map(RequestAuth::Bearer);
            let reply = http::post(&post, limits, effect.send).map_err(|error| {
                is_sent = error.is_after_sending() && !is_late;
                let failure = http_failure(name, &error);
                if error.is_answer_lost() && !is_late { failure.with_code(Code::UnknownEnd) } else { failure }
            })?;
            reply_result(name, &reply)
        });
        // The tool may have done its work, even if the call or a later step fails.
        if is_sent {
            host.no_retry();
        }
        let Some(each) = &mut self.each else { return answer };
        let answer = answer.map_err(|stop| each.explain_failure(stop))?;
        each.count_answer();
        Ok(answer)
    }

    fn resolved_gateway(&mut self, host: &dyn Host) -> Result<&Gateway, StageError> {
        if self.gateway.is_none() {
            self.gateway = Some(self.resolve_gateway(host)?);
        }
        self.gateway.as_ref().ok_or_else(|| StageError::permanent("no gateway"))
    }

    fn resolve_gateway(&self, host: &dyn Host) -> Result<Gateway, StageError> {
        let name = self.name;
        let refuse = |text: &str| StageError::permanent(format!("{name} {text}"));
        let url = self
            .url
            .clone()
            .or_else(|| host.env_var("OPENCLAW_URL"))
            .or_else(|| host.env_var("CLAWD_URL"))
            .filter(|url| !url.trim().is_empty())
            .ok_or_else(|| refuse("requires --url or OPENCLAW_URL"))?;
        let mut url = http::parse_url(&url).ok_or_else(|| refuse("--url: Invalid URL"))?;
        if !http::is_http(&url) {
            return Err(refuse("requires an http(s) --url"));
        }
        url.set_path("/tools/invoke");
        url.set_query(None);
        url.set_fragment(None);
        // A token that may not be sent is refused before anything is recorded.
        choose_token(name, self.token.as_deref(), &url, &|name| host.find_token(name))?;
        let limits =
            HttpLimits::from_env(|name| host.env_var(name)).map_err(|error| refuse(&error.to_string()))?;
        Ok(Gateway { url, limits })
    }
}

/// The token to send: `--token`, else the value of a variable, preferring a secret of the step.
fn choose_token(
    name: &str,
    given: Option<&str>,
    url: &Url,
    find: &dyn Fn(&str) -> Result<Option<Token>, StageError>,
) -> Result<Option<Secret>, StageError> {
    let refuse = |text: String| Err(StageError::permanent(format!("{name} refuses to send {text}")));
    if let Some(token) = given {
        return Ok(Secret::new(token));
    }
    let mut found = None;
    for variable in ["OPENCLAW_TOKEN", "CLAWD_TOKEN"] {
        match find(variable)? {
            Some(token) if token.secret.is_some() => {
                found = Some(token);
                break;
            }
            token => found = found.or(token),
        }
    }
    let Some(found) = found else { return Ok(None) };
    let value = Secret::from_token(&found);
    match &found.secret {
        _ if http::is_loopback(url) => Ok(value),
        Some(secret) if url.scheme() != "https" => {
            refuse(format!("the secret {secret} unencrypted; use an https address"))
        }
        None if value.is_some() => refuse(
            "OPENCLAW_TOKEN/CLAWD_TOKEN to non-local --url; pass --token explicitly for remote endpoints"
                .to_owned(),
        ),
        Some(_) | None => Ok(value),
    }
}

impl Call {
    fn request_body(&self) -> Value {
        let mut body = json!({"tool": self.tool, "action": self.action, "args": self.args});
        if let Some(key) = &self.session_key {
            body["sessionKey"] = json!(key);
        }
        if let Some(dry_run) = self.dry_run {
            body["dryRun"] = json!(dry_run);
        }
        body
    }
}

/// The result of a gateway's answer: its field `result`, or the whole answer if it has none.
fn reply_result(name: &str, reply: &CompleteReply) -> Result<Value, StageError> {
    if !reply.is_success() {
        let error = StageError::new(format!("{name} failed ({}): {}", reply.status, reply.body_excerpt()));
        return Err(StageError { retry_after: reply.retry_after, ..error });
    }
    let value = reply
        .body_json()
        .map_err(|error| StageError::new(format!("{name} expected JSON response ({error})")))?;
    match value {
        Value::Object(mut map) if map.contains_key("ok") => {
            if map.get("ok") == Some(&Value::Bool(true)) {
                return Ok(map.remove("result").unwrap_or_default());
            }
            let message = map.get("error").and_then(|error| error.get("message")).map(json::js_string);
            let message =
                message.filter(|text| !text.is_empty()).unwrap_or_else(|| "Unknown error".to_owned());
            Err(StageError::new(format!("{name} tool error: {message}")))
        }
        value => Ok(value),
    }
}

fn http_failure(name: &str, error: &HttpError) -> StageError {
    match error {
        HttpError::Cancelled(_) => StageError::new(error.to_string()).with_code(Code::Cancelled),
        _ => StageError::new(format!("{name}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::recording_host::{RecordingHost, error_of, run};
    use super::*;
    use crate::http_server::{Answer, Server};

    fn ok_answer(result: Value) -> Answer {
        Answer::json(&json!({"ok": true, "result": result}))
    }

    #[test]
    fn posts_to_the_origin_and_spreads_the_result() {
        let server = Server::start([
            ok_answer(json!([1, {"a": 2}])),
            Answer::json(&json!({"plain": 1})),
            Answer::new(200, " "),
            Answer::json(&json!({"ok": true})),
        ]);
        let mut host = RecordingHost::new();
        host.set("OPENCLAW_URL", &server.url("/base/path?x=1"));
        host.set("OPENCLAW_TOKEN", " tok ");
        let args = json!({"tool": "t", "action": "a", "args-json": "{\"n\":1}", "session-key": "s", "dryRun": "false"});
        assert_eq!(
            run(&OPENCLAW, &args, vec![json!("ignored")], &mut host).unwrap(),
            [json!(1), json!({"a": 2})]
        );
        let args = json!({"tool": "t", "action": "a"});
        for expected in [json!({"plain": 1}), json!(null), json!(null)] {
            assert_eq!(run(&CLAWD, &args, vec![], &mut host).unwrap(), [expected]);
        }
        let seen = server.requests();
        assert_eq!(seen[0].path, "/tools/invoke");
        assert_eq!(seen[0].header("authorization"), Some("Bearer tok"));
        assert_eq!(
            seen[0].body,
            r#"{"tool":"t","action":"a","args":{"n":1},"sessionKey":"s","dryRun":true}"#
        );
        assert!(!format!("{:?}", host.recorded_actions()).contains("tok"));
    }

    #[test]
    fn each_is_one_effect_per_item_and_none_is_repeated() {
        let server = Server::start([ok_answer(json!([1, 2])), Answer::new(503, "busy"), ok_answer(json!(3))]);
        let mut host = RecordingHost::new();
        let args = json!({"url": server.url(""), "tool": "t", "action": "a", "each": true, "itemKey": "m", "args-json": "{\"to\":\"x\"}"});
        let items = vec![json!("a"), json!({"b": 1}), json!(null)];
        let error = error_of(run(&OPENCLAW, &args, items.clone(), &mut host));
        assert_eq!(
            error.message,
            "openclaw.invoke failed (503): busy [--each stopped at item 2; the call for item 1 was answered]"
        );
        assert!(error.permanent);
        // A resume forgets the failed effect and tries it again; the completed one is kept.
        host.resume_run();
        assert_eq!(run(&OPENCLAW, &args, items, &mut host).unwrap(), [1, 2, 3, 3]);
        let bodies: Vec<Value> = server.requests().iter().map(|seen| seen.json()["args"].clone()).collect();
        assert_eq!(
            bodies,
            [
                json!({"to": "x", "m": "a"}),
                json!({"to": "x", "m": {"b": 1}}),
                json!({"to": "x", "m": {"b": 1}}),
                json!({"to": "x", "m": null})
            ]
        );
    }

    #[test]
    fn refuses_what_it_can_know_before_any_call() {
        let mut host = RecordingHost::new();
        for (args, message) in [
            (json!({"tool": "t"}), "openclaw.invoke requires --tool and --action"),
            (
                json!({"tool": "t", "action": "a", "each": true, "args-json": "[1]"}),
                "openclaw.invoke --each requires --args-json to be an object",
            ),
            (
                json!({"tool": "t", "action": "a", "token": true}),
                "openclaw.invoke --token has no value; --token \"\" sends none",
            ),
            (json!({"tool": "t", "action": "a"}), "openclaw.invoke requires --url or OPENCLAW_URL"),
            (
                json!({"tool": "t", "action": "a", "url": " "}),
                "openclaw.invoke requires --url or OPENCLAW_URL",
            ),
            (json!({"tool": "t", "action": "a", "url": "nonsense"}), "openclaw.invoke --url: Invalid URL"),
            (
                json!({"tool": "t", "action": "a", "url": "file:///x"}),
                "openclaw.invoke requires an http(s) --url",
            ),
        ] {
            assert_eq!(error_of(run(&OPENCLAW, &args, vec![], &mut host)).message, message);
        }
        let args = json!({"tool": "t", "action": "a", "args-json": "{oops"});
        assert!(
            error_of(run(&OPENCLAW, &args, vec![], &mut host))
                .message
                .starts_with("openclaw.invoke --args-json must be valid JSON")
        );
        assert!(host.recorded_actions().is_empty());
    }

    #[test]
    fn an_ambient_token_stays_on_this_machine() {
        let mut host = RecordingHost::new();
        host.set("CLAWD_TOKEN", "tok");
        let args = json!({"tool": "t", "action": "a", "url": "http://gateway.invalid:80"});
        let error = error_of(run(&CLAWD, &args, vec![], &mut host));
        assert!(
            error.message.starts_with("clawd.invoke refuses to send") && error.message.contains("--token")
        );
        let server = Server::start([ok_answer(json!(1))]);
        let args = json!({"tool": "t", "action": "a", "url": server.url(""), "token": " "});
        run(&CLAWD, &args, vec![], &mut host).unwrap();
        assert_eq!(server.requests()[0].header("authorization"), None);
    }

    #[test]
    fn answers_that_are_failures() {
        for (answer, message) in [
            (
                Answer::json(&json!({"ok": false, "error": {"message": "not allowed"}})),
                "openclaw.invoke tool error: not allowed",
            ),
            (Answer::json(&json!({"ok": "true"})), "openclaw.invoke tool error: Unknown error"),
            (
                Answer::new(500, &"x".repeat(900)),
                &*format!("openclaw.invoke failed (500): {}", "x".repeat(400)),
            ),
        ] {
            let server = Server::start([answer]);
            let args = json!({"tool": "t", "action": "a", "url": server.url("")});
            let error = error_of(run(&OPENCLAW, &args, vec![], &mut RecordingHost::new()));
            assert_eq!((error.message.as_str(), error.permanent), (message, false));
        }
        let server = Server::start([Answer::new(200, "<html>")]);
        let args = json!({"tool": "t", "action": "a", "url": server.url("")});
        let error = error_of(run(&OPENCLAW, &args, vec![], &mut RecordingHost::new()));
        assert!(error.message.starts_with("openclaw.invoke expected JSON response"));
    }

    #[test]
    fn a_recorded_answer_needs_no_server() {
        let server = Server::start([ok_answer(json!({"sent": true}))]);
        let mut host = RecordingHost::new();
        let args = json!({"tool": "t", "action": "a", "url": server.url("")});
        let live = run(&OPENCLAW, &args, vec![], &mut host).unwrap();
        drop(server);
        host.resume_run();
        assert_eq!(run(&OPENCLAW, &args, vec![], &mut host).unwrap(), live);
    }
}
