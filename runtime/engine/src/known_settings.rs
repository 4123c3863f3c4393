//! The environment variables that configure the runtime, in one list. Each value is checked before anything runs.

use std::ffi::OsString;
use std::time::Duration;

use lobster_base::json;
use lobster_base::quantity::{Bytes, Span};
use lobster_base::setting::{BadSetting, Checked, Setting, read_count};
use lobster_models::{channel, http};

/// Requires another person than the one who started the run, for gates that do not say so themselves.
pub(crate) const DIFFERENT_APPROVER: Setting<bool> =
    Setting::switch("LOBSTER_APPROVAL_REQUIRE_DIFFERENT_APPROVER");

/// Time limit of a question at a terminal; with 0 or less it waits for ever, as in the incumbent.
pub(crate) const INPUT_TIMEOUT: Setting<Option<Duration>> =
    Setting::new("LOBSTER_APPROVAL_INPUT_TIMEOUT_MS", "a number of milliseconds, 0 for no limit", |text| {
        let ms = json::js_number(text).floor();
        let time = || Duration::try_from_secs_f64(ms / 1000.0).ok();
        if ms <= 0.0 { Some(None) } else { time().map(Some) }
    });

/// The largest envelope that is requested; numbers are parsed like the incumbent's.
pub(crate) const ENVELOPE_LIMIT: Setting<usize> =
    Setting::new("LOBSTER_MAX_TOOL_ENVELOPE_BYTES", "a number of bytes from 1024", |text| {
        let max = json::js_number(text).floor();
        (max.is_finite() && max >= 1024.0).then_some(max as usize)
    });

/// Milliseconds that the executor program (`LOBSTER_EXECUTOR`) has for its first message.
pub(crate) const HELLO: Setting<u64> =
    Setting::new("LOBSTER_EXECUTOR_HELLO_MS", "a number of milliseconds above 0", read_count);

/// Limits for compiling one component: resident memory, and time.
pub(crate) const COMPILE_MEMORY: Setting<u64> =
    Setting::new("LOBSTER_COMPILE_MEMORY", "a size such as 8GiB", |text| {
        Bytes::parse_or_bytes(text).ok().map(|size| size.0)
    });
pub(crate) const COMPILE_TIME: Setting<Duration> =
    Setting::new("LOBSTER_COMPILE_TIME", "a time such as 20m", |text| {
        text.parse::<Span>().ok().map(|span| span.0)
    });

/// `LOBSTER_PROJECT_POLICY=off`: the operator ignores the policies of projects.
pub(crate) const PROJECT_POLICY: Setting<bool> = Setting::switch("LOBSTER_PROJECT_POLICY");

/// Lets steps inherit the variables with lobster's own tokens, as in earlier versions.
pub(crate) const INHERIT: Setting<bool> = Setting::switch("LOBSTER_INHERIT_TOKENS");

/// The person who starts a run, for gates that do not name one.
pub const INITIATED_BY: Setting<String> = Setting::any_text("LOBSTER_APPROVAL_INITIATED_BY");

/// A token of `lobster serve` whose owner may answer; it proves a person where there is no terminal.
pub const ANSWER_TOKEN: Setting<String> = Setting::any_text("LOBSTER_APPROVAL_TOKEN").kept_secret();

/// The agent for which a server of lobster starts this process.
pub const FOR_AGENT: Setting<String> = Setting::any_text("LOBSTER_FOR_AGENT");

/// Settings whose values have a format of their own.
static FORMED: [&dyn Checked; 15] = [
    &COMPILE_MEMORY,
    &COMPILE_TIME,
    &INITIATED_BY,
    &DIFFERENT_APPROVER,
    &INPUT_TIMEOUT,
    &ENVELOPE_LIMIT,
    &HELLO,
    &PROJECT_POLICY,
    &INHERIT,
    &lobster_stage::MAX_OUTPUT,
    &http::MAX_RESPONSE,
    &http::MAX_BYTES,
    &http::IDLE,
    &channel::STREAM,
    &RETRIES,
];

/// A number, parsed like the incumbent's; a negative number is read as 0.
const RETRIES: Setting<f64> = Setting::new("LOBSTER_LLM_VALIDATION_RETRIES", "a number", |text| {
    Some(json::js_number(text)).filter(|number| !number.is_nan())
});

/// Any text.
const TEXTS: [&str; 20] = [
    "HOME",
    "XDG_CONFIG_HOME",
    "LOBSTER_ACTOR",
    "LOBSTER_APPROVAL_APPROVED_BY",
    "LOBSTER_APPROVAL_REASON",
    "LOBSTER_APPROVAL_REQUIRED_APPROVER",
    "LOBSTER_CACHE_DIR",
    FOR_AGENT.name,
    "LOBSTER_LLM_FORCE_REFRESH",
    "LOBSTER_LLM_MAX_TOKENS_FIELD",
    "LOBSTER_LLM_MODEL",
    "LOBSTER_LLM_PROVIDER",
    "LOBSTER_LLM_SCHEMA_VERSION",
    "LOBSTER_LOGIN_SHELL",
    "LOBSTER_MESSAGE_ID",
    "LOBSTER_NO_CACHE",
    "LOBSTER_OPENCLAW_BIN",
    "LOBSTER_SHELL",
    "GOG_BIN",
    "OTEL_SERVICE_NAME",
];

/// Text that may be confidential: tokens, addresses with tokens, commands.
const HIDDEN: [&str; 30] = [
    ANSWER_TOKEN.name,
    "LOBSTER_EXECUTOR",
    "LOBSTER_NOTIFY",
    "LOBSTER_LLM_ADAPTER_TOKEN",
    "LOBSTER_LLM_ADAPTER_URL",
    "LOBSTER_LLM_HEADERS",
    "LOBSTER_LLM_POOL",
    "LOBSTER_LLM_PRICING_JSON",
    "LOBSTER_MCP_TOKEN",
    "LOBSTER_PI_LLM_ADAPTER_TOKEN",
    "LOBSTER_PI_LLM_ADAPTER_URL",
    "LOBSTER_RUN_STATE_KEY",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "AZURE_OPENAI_API_KEY",
    "AZURE_OPENAI_ENDPOINT",
    "CLAWD_TOKEN",
    "CLAWD_URL",
    "GEMINI_API_KEY",
    "GEMINI_BASE_URL",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENCLAW_TOKEN",
    "OPENCLAW_URL",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_RESOURCE_ATTRIBUTES",
    "TRACEPARENT",
];

/// Checks that each setting of an environment can be read.
///
/// # Errors
/// For the first setting that cannot.
pub fn check_settings(env: &dyn Fn(&str) -> Option<OsString>) -> Result<(), BadSetting> {
    FORMED.iter().try_for_each(|setting| setting.check_env(env))?;
    TEXTS.iter().try_for_each(|name| Setting::any_text(name).check_env(env))?;
    HIDDEN.iter().try_for_each(|name| Setting::any_text(name).kept_secret().check_env(env))
}
