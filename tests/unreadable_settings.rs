//! What the environment sets holds, or is an error before anything runs: nothing that cannot be read
//! counts as not set. The rows are those of docs/settings.md, so that a new one must be decided on.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::home::{Answer, Home};
use crate::markdown::Document;

/// Settings that take any text.
const ANY_TEXT: &[&str] = &[
    "LOBSTER_ACTOR",
    "LOBSTER_APPROVAL_APPROVED_BY",
    "LOBSTER_APPROVAL_INITIATED_BY",
    "LOBSTER_APPROVAL_REASON",
    "LOBSTER_APPROVAL_REQUIRED_APPROVER",
    "LOBSTER_APPROVAL_TOKEN",
    "LOBSTER_CACHE_DIR",
    "LOBSTER_FOR_AGENT",
    "LOBSTER_LOGIN_SHELL",
    "LOBSTER_MESSAGE_ID",
    "LOBSTER_NO_CACHE",
    "LOBSTER_NOTIFY",
    "LOBSTER_PAGER",
    "LOBSTER_RUN_STATE_KEY",
    // Told where they are used: by the step that asks a model or calls a program.
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "AZURE_OPENAI_API_KEY",
    "AZURE_OPENAI_ENDPOINT",
    "CLAWD_TOKEN",
    "CLAWD_URL",
    "GEMINI_API_KEY",
    "GEMINI_BASE_URL",
    "GOG_BIN",
    "LOBSTER_LLM_ADAPTER_TOKEN",
    "LOBSTER_LLM_ADAPTER_URL",
    "LOBSTER_LLM_FORCE_REFRESH",
    "LOBSTER_LLM_HEADERS",
    "LOBSTER_LLM_MAX_TOKENS_FIELD",
    "LOBSTER_LLM_MODEL",
    "LOBSTER_LLM_POOL",
    "LOBSTER_LLM_PRICING_JSON",
    "LOBSTER_LLM_PROVIDER",
    "LOBSTER_LLM_SCHEMA_VERSION",
    "LOBSTER_MCP_TOKEN",
    "LOBSTER_OPENCLAW_BIN",
    "LOBSTER_PI_LLM_ADAPTER_TOKEN",
    "LOBSTER_PI_LLM_ADAPTER_URL",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENCLAW_TOKEN",
    "OPENCLAW_URL",
    // As its specification says, a path that is not absolute counts as not set.
    "XDG_CONFIG_HOME",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];

/// Paths, whose bytes need not be text, but for those of files that a policy must protect.
const PATHS: &[&str] = &["LOBSTER_STATE_DIR", "LOBSTER_MCP_CONFIG", "LOBSTER_STEPS_DIR", "XDG_RUNTIME_DIR"];

/// What other programs set as they like, and only the terminal and an editor are concerned.
const OF_OTHERS: &[&str] = &["NO_COLOR", "TERM", "VISUAL", "EDITOR"];

/// The variables of the page, but for those that steps and commands are given.
fn rows() -> Vec<String> {
    let page = Document::read("docs/settings.md");
    let text = page.text.split("## What steps").next().unwrap();
    let names_of_entries = text.lines().filter_map(|line| line.strip_prefix("- `")?.split(": ").next());
    let names: Vec<String> = names_of_entries
        .flat_map(|names| names.split(|c: char| !(c.is_ascii_uppercase() || c == '_')))
        .filter(|name| name.contains('_') && !OF_OTHERS.contains(name))
        .map(str::to_owned)
        .collect();
    assert!(names.len() > 60, "{names:?}");
    names
}

fn run(home: &Home, name: &str, value: &[u8]) -> Answer {
    home.lobster(["run", "--mode", "tool", "exec --shell 'touch started; echo x'"])
        .env(name, OsStr::from_bytes(value))
        .run()
}

#[test]
fn a_setting_holds_or_is_an_error() {
    for name in rows() {
        let name = name.as_str();
        let home = Home::new();
        assert_eq!(run(&home, name, b" ").output(), serde_json::json!(["x\n".trim_end()]), "{name}");
        std::fs::remove_file(home.dir().join("started")).unwrap();

        let garbled = run(&home, name, b"s3cret\xff/x");
        if PATHS.contains(&name) {
            assert_eq!(garbled.envelope()["ok"], true, "{name}");
        } else {
            let error = garbled.error();
            let is_of_file = ["LOBSTER_POLICY", "LOBSTER_ORG_POLICY", "LOBSTER_SECRETS"].contains(&name);
            assert!(error.contains(name) || (is_of_file && error.contains("s3cret")), "{name}: {error}");
            assert!(garbled.code() == 1 && !home.dir().join("started").exists(), "{name}: it was run");
            let keeps_secret =
                ["TOKEN", "KEY", "URL", "POOL", "NOTIFY"].iter().any(|word| name.ends_with(word));
            assert!(!keeps_secret || !format!("{garbled:?}").contains("s3cret"), "{name}: {garbled:?}");
        }

        if ANY_TEXT.contains(&name) || PATHS.contains(&name) {
            continue;
        }
        let wrong = run(&home, name, b"[{no such/va lue=");
        let error = wrong.error();
        assert!(error.contains(name) || error.contains("no such"), "{name}: {error}");
        assert!(!home.dir().join("started").exists(), "{name}: it was run");
    }
}

#[test]
fn a_path_of_any_bytes_is_the_one_that_is_used() {
    let home = Home::new();
    let odd = home.dir().join(OsStr::from_bytes(b"st\xffate"));
    assert_eq!(run(&home, "LOBSTER_STATE_DIR", odd.as_os_str().as_bytes()).envelope()["ok"], true);
    assert!(odd.join("store/lobster.db").exists());

    // A file of a policy that no rule could name protects nothing.
    let policy = home.dir().join(OsStr::from_bytes(b"p\xff.toml"));
    std::fs::write(&policy, "version = 1\n").unwrap();
    let error = run(&home, "LOBSTER_POLICY", policy.as_os_str().as_bytes()).error();
    assert!(error.contains("under a policy"), "{error}");
    home.write("strict.toml", "version = 1\n");
    let under = home
        .lobster(["run", "--mode", "tool", "--policy", "strict.toml", "exec true"])
        .env("LOBSTER_STATE_DIR", &odd)
        .run();
    assert!(under.error().contains("under a policy"), "{under:?}");

    let servers = home.dir().join(OsStr::from_bytes(b"m\xff.toml"));
    let call = home.lobster(["run", "--mode", "tool", "mcp.call --server s --tool t"]);
    let error = call.env("LOBSTER_MCP_CONFIG", servers).run().error();
    assert!(error.contains('\u{fffd}') || error.contains("\\xFF"), "{error}");
}

#[test]
fn what_the_incumbent_reads_as_a_value_is_one() {
    let home = Home::new();
    for (name, values) in [
        ("LOBSTER_MAX_TOOL_ENVELOPE_BYTES", ["1024", " 2e6 ", "0x1000", "5000.7"]),
        ("LOBSTER_APPROVAL_INPUT_TIMEOUT_MS", ["0", "-1", "1e3", "300.5"]),
        ("LOBSTER_APPROVAL_REQUIRE_DIFFERENT_APPROVER", ["1", "TRUE", "y", "no"]),
        ("LOBSTER_LLM_VALIDATION_RETRIES", ["0", "-1", "2.5", "1e1"]),
        ("LOBSTER_LLM_FORCE_REFRESH", ["no", "yes", "0", "whatever"]),
    ] {
        for value in values {
            assert_eq!(run(&home, name, value.as_bytes()).envelope()["ok"], true, "{name}={value}");
        }
    }
    // A longer word for yes is one, too.
    let flow = serde_json::json!({"steps": [{"id": "g", "approval": "go?"}]});
    home.write("flow.json", flow.to_string());
    let asked = home
        .lobster(["run", "--mode", "tool", "flow.json"])
        .env("LOBSTER_APPROVAL_REQUIRE_DIFFERENT_APPROVER", "on")
        .env("LOBSTER_APPROVAL_INITIATED_BY", "ann")
        .run();
    let token = asked.token();
    let own = home
        .lobster(["resume", "--token", &token, "--approve", "yes"])
        .env("LOBSTER_APPROVAL_APPROVED_BY", "ann")
        .run();
    assert!(own.error().contains("ann"), "{own:?}");
}

#[test]
fn commands_that_answer_programs_say_it_in_an_envelope_and_help_is_always_there() {
    let home = Home::new();
    let wrong = |words: &[&str]| home.lobster(words).env("LOBSTER_PROGRESS", "\u{1b}[2Jloud").run();
    for words in [
        ["resume", "@"].as_slice(),
        &["fork", "@"],
        &["approvals", "approve", "x"],
        &["doctor"],
        &["run", "--mode=tool", "x"],
    ] {
        let error = wrong(words).error();
        assert_eq!(error, "LOBSTER_PROGRESS must be on, plain or off, not \"\\u{1b}[2Jloud\"", "{words:?}");
    }
    let told = wrong(&["runs"]);
    assert!(
        told.code() == 1 && told.stdout.is_empty() && told.stderr.contains("LOBSTER_PROGRESS"),
        "{told:?}"
    );
    for words in [["help", "run"].as_slice(), &["version"], &["--help"]] {
        assert_eq!(wrong(words).code(), 0, "{words:?}");
    }
}
