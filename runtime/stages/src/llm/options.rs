//! Options of `llm.invoke` and `llm_task.invoke`.

use super::super::describe::{Arg, command_schema, example_list};
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
        Flag { name: "prompt", value: Some("TEXT"), help: "what to ask (or the words)" },
        Flag { name: "prompt-file", value: Some("PATH"), help: "the prompt, with {{variables}}" },
        Flag {
            name: "var",
            value: Some("NAME=VALUE"),
            help: "fills a variable of the prompt file; repeat it",
        },
        Flag { name: "vars-json", value: Some("JSON"), help: "fills them from an object" },
        Flag { name: "system", value: Some("TEXT"), help: "instructions; @PATH reads a file" },
        Flag {
            name: "file",
            value: Some("PATH"),
            help: "an image, a PDF or a text sent with the prompt; repeat it",
        },
        Flag { name: "provider", value: Some("NAME"), help: "the provider (LOBSTER_LLM_PROVIDER)" },
        Flag { name: "model", value: Some("NAME"), help: "the model (LOBSTER_LLM_MODEL)" },
        Flag { name: "token", value: Some("TOKEN"), help: "bearer token or key" },
        Flag { name: "artifacts-json", value: Some("JSON"), help: "more artifacts, an array" },
        Flag { name: "metadata-json", value: Some("JSON"), help: "passed on to the adapter, an object" },
        Flag {
            name: "output-schema",
            value: Some("JSON"),
            help: "JSON Schema of the answer's data; @PATH reads a file",
        },
        Flag {
            name: "schema-version",
            value: Some("TEXT"),
            help: "names the schema (LOBSTER_LLM_SCHEMA_VERSION, v1)",
        },
        Flag {
            name: "max-validation-retries",
            value: Some("N"),
            help: "most repetitions for an invalid answer (LOBSTER_LLM_VALIDATION_RETRIES, 1; at most 10)",
        },
        Flag { name: "temperature", value: Some("N"), help: "passed on" },
        Flag { name: "max-output-tokens", value: Some("N"), help: "passed on" },
        Flag {
            name: "effort",
            value: Some("WORD"),
            help: "reasoning effort, in the provider's words: low, medium, high",
        },
        Flag { name: "seed", value: Some("N"), help: "for repeatable answers, where the provider can" },
        Flag { name: "stop", value: Some("TEXT"), help: "the answer ends here; repeat it" },
        Flag {
            name: "state-key",
            value: Some("KEY"),
            help: "keep the answer in the state (LOBSTER_RUN_STATE_KEY)",
        },
        Flag {
            name: "refresh",
            value: None,
            help: "ask even if an answer is cached (LOBSTER_LLM_FORCE_REFRESH)",
        },
        Flag { name: "disable-cache", value: None, help: "no cache files" },
    ],
    args_schema: || {
        command_schema(
            &[
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
            ],
            &[],
        )
    },
    examples: || example_list(&[(r#"{"prompt":"Say hello","model":"m"}"#, "One question")]),
    side_effects: Some(&["calls_llm"]),
    kind: StageKind::Effect,
    build: |args| build("", None, args),
};
