//! Options of `llm.invoke` and `llm_task.invoke`.

use super::super::describe::{Arg, command_schema, example_list, option};
use super::build;
use lobster_models::channel::Provider;
use lobster_stage::{Flag, StageKind, StageSpec};

pub(in super::super) static INVOKE: StageSpec = StageSpec {
    name: "llm.invoke",
    description: "Call a configured LLM adapter with typed payloads and caching",
    build: |args| build("llm.invoke", None, args),
    ..COMMON
};

pub(in super::super) static TASK: StageSpec = StageSpec {
    name: "llm_task.invoke",
    description: "Backward-compatible alias for llm.invoke using the OpenClaw adapter",
    build: |args| build("llm_task.invoke", Some(Provider::OpenClaw), args),
    ..COMMON
};

const COMMON: StageSpec = StageSpec {
    name: "",
    description: "",
    help: "\
Usage:
  llm.invoke --prompt 'Say hello'
  ... | llm.invoke --prompt 'Summarise' --model m --output-schema '{\"type\":\"object\"}'
  llm.invoke --prompt-file reply.md --var name=Ada --system 'Be brief' --file photo.png

Input items go to the model as artifacts. If the answer's data does not fit --output-schema,
the model is asked again, with its answer and the errors.
A prompt file may declare variables between two lines `---` (`name: string`,
`tone: string = \"kind\"`) and uses them as {{name}}, with the filters of `template`.

Providers (--provider or LOBSTER_LLM_PROVIDER), each with its variables:
  openclaw   OPENCLAW_URL, OPENCLAW_TOKEN (CLAWD_URL, CLAWD_TOKEN)
  pi         LOBSTER_PI_LLM_ADAPTER_URL, LOBSTER_PI_LLM_ADAPTER_TOKEN
  http       LOBSTER_LLM_ADAPTER_URL, LOBSTER_LLM_ADAPTER_TOKEN
  openai     OPENAI_BASE_URL, OPENAI_API_KEY; any server with /chat/completions
  openai-responses  the same, by /responses
  azure      AZURE_OPENAI_ENDPOINT, AZURE_OPENAI_API_KEY; --model is the deployment
  anthropic  ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY
  gemini     GEMINI_BASE_URL, GEMINI_API_KEY
  pool       LOBSTER_LLM_POOL: channels as JSON, or a file with them; the first healthy
             one answers: [{\"name\":\"a\",\"provider\":\"openai\",\"model\":\"m\",\"url\":\"https://...\",
             \"key_env\":\"A_KEY\",\"priority\":1}, ...]; several as {\"pools\":{\"fast\":[...]}},
             chosen by --provider pool:fast
Without a choice: pool, pi, openclaw or http, whichever is configured first.

Answers are kept in LOBSTER_CACHE_DIR (.lobster-cache; under a policy in the state directory)
and, with --state-key or LOBSTER_RUN_STATE_KEY, in the state; a cached answer costs nothing.
",
    flags: &[
        option("prompt", "TEXT", "what to ask (or the words)"),
        option("prompt-file", "PATH", "the prompt, with {{variables}}"),
        option("var", "NAME=VALUE", "fills a variable of the prompt file; repeat it"),
        option("vars-json", "JSON", "fills them from an object"),
        option("system", "TEXT", "instructions; @PATH reads a file"),
        option("file", "PATH", "an image, a PDF or a text sent with the prompt; repeat it"),
        option("provider", "NAME", "the provider (LOBSTER_LLM_PROVIDER)"),
        option("model", "NAME", "the model (LOBSTER_LLM_MODEL)"),
        option("token", "TOKEN", "bearer token or key"),
        option("artifacts-json", "JSON", "more artifacts, an array"),
        option("metadata-json", "JSON", "passed on to the adapter, an object"),
        option("output-schema", "JSON", "JSON Schema of the answer's data; @PATH reads a file"),
        option("schema-version", "TEXT", "names the schema (LOBSTER_LLM_SCHEMA_VERSION, v1)"),
        option(
            "max-validation-retries",
            "N",
            "most repetitions for an invalid answer (LOBSTER_LLM_VALIDATION_RETRIES, 1; at most 10)",
        ),
        option("temperature", "N", "passed on"),
        option("max-output-tokens", "N", "passed on"),
        option("effort", "WORD", "reasoning effort, in the provider's words: low, medium, high"),
        option("seed", "N", "for repeatable answers, where the provider can"),
        option("stop", "TEXT", "the answer ends here; repeat it"),
        option("state-key", "KEY", "keep the answer in the state (LOBSTER_RUN_STATE_KEY)"),
        Flag {
            name: "refresh",
            value: None,
            help: "ask even if an answer is cached (LOBSTER_LLM_FORCE_REFRESH)",
        },
        Flag { name: "disable-cache", value: None, help: "no cache files" },
    ],
    args_schema: || {
        command_schema(&[
            Arg::text(
                "provider",
                "openclaw, pi, http, openai, openai-responses, azure, anthropic, gemini or pool",
            ),
            Arg::text("token", "Bearer token or key"),
            Arg::text("prompt", "What to ask"),
            Arg::text("prompt-file", "File with the prompt"),
            Arg::text("var", "NAME=VALUE for a variable of the prompt file"),
            Arg::text("vars-json", "Variables of the prompt file, a JSON object"),
            Arg::text("system", "Instructions; @PATH reads a file"),
            Arg::text("file", "An image, a PDF or a text to go along"),
            Arg::text("model", "Model"),
            Arg::text("artifacts-json", "More artifacts, a JSON array"),
            Arg::text("metadata-json", "Passed on, a JSON object"),
            Arg::text("output-schema", "JSON Schema of the answer's data; @PATH reads a file"),
            Arg::text("schema-version", "Names the schema"),
            Arg::number("max-validation-retries", "How often to ask again"),
            Arg::number("temperature", "Temperature"),
            Arg::number("max-output-tokens", "Most tokens of the answer"),
            Arg::text("effort", "How much to reason, in the provider's words"),
            Arg::number("seed", "For repeatable answers"),
            Arg::text("stop", "Where the answer ends"),
            Arg::text("state-key", "State key for the answer"),
            Arg::switch("refresh", "Ask even if an answer is kept"),
            Arg::switch("disable-cache", "No cache files"),
        ])
    },
    examples: || example_list(&[(r#"{"prompt":"Say hello","model":"m"}"#, "One question")]),
    side_effects: Some(&["calls_llm"]),
    kind: StageKind::Effect,
    build: |args| build("", None, args),
};
