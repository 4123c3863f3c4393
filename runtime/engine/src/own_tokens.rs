//! The one list of variables from which lobster itself takes tokens.
//!
//! They belong to lobster and not to its steps: a native step gets one only by a grant that names it, and their values
//! are hidden like secrets in the store and in all output.

use lobster_stage::SHORTEST_HIDDEN;
use std::collections::BTreeSet;
use std::path::Path;

use crate::env::{ARG_PREFIX, Env};
use crate::known_settings::INHERIT;
use lobster_models::channel::Provider;
use lobster_models::pool;

/// Headers of a collector, which contain its key; the value of each header is hidden as well.
const COLLECTOR: [&str; 2] = ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"];

/// The keys of model providers and gateways, including providers that lobster does not call itself: every command
/// would see them, and their output would be recorded. Tokens of code hosts and clouds are not in the list, since
/// everyday steps need them. `docs/secrets.md` has the same list.
pub(crate) const MODEL_KEYS: &[&str] = &[
    "AI_GATEWAY_API_KEY",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "AZURE_OPENAI_API_KEY",
    "CEREBRAS_API_KEY",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAWD_TOKEN",
    "COHERE_API_KEY",
    "DEEPSEEK_API_KEY",
    "FIREWORKS_API_KEY",
    "GEMINI_API_KEY",
    "GROQ_API_KEY",
    "LITELLM_API_KEY",
    "MISTRAL_API_KEY",
    "MOONSHOT_API_KEY",
    "OPENAI_API_KEY",
    "OPENCLAW_GATEWAY_TOKEN",
    "OPENCLAW_TOKEN",
    "OPENROUTER_API_KEY",
    "PERPLEXITY_API_KEY",
    "TOGETHER_API_KEY",
    "VOYAGE_API_KEY",
    "XAI_API_KEY",
    "ZAI_API_KEY",
];

/// Tokens of code hosts and clouds, which steps receive even if a server of `lobster.mcp.toml` takes its token from
/// one of these variables.
const OF_HOSTS: [&str; 4] = ["GH_TOKEN", "GITHUB_TOKEN", "GITLAB_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS"];

/// The same by prefix.
const OF_CLOUDS: [&str; 4] = ["AWS_", "AZURE_CLIENT_", "CLOUDFLARE_", "DIGITALOCEAN_"];

/// Variables that a file of a workspace cannot declare as tokens, since steps need them.
const NEVER: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TMPDIR", "TERM", "LANG", "LC_ALL"];

/// The names of these variables that are set.
pub(crate) fn find_names(env: &Env, cwd: &Path) -> BTreeSet<String> {
    let mut names: BTreeSet<String> =
        COLLECTOR.iter().chain(MODEL_KEYS).map(|name| (*name).to_owned()).collect();
    names.extend(
        env.all_vars().filter_map(|(name, _)| name.to_str()).filter(|name| is_ours(name)).map(str::to_owned),
    );
    let named = pool::key_variables(&|name| env.get(name), cwd)
        .into_iter()
        .chain(crate::mcp::token_variables(env.get_path(crate::mcp::VARIABLE).as_deref(), cwd));
    names.extend(named.filter(|name| !NEVER.contains(&name.as_str()) && !name.starts_with(ARG_PREFIX)));
    // A value that is not text is also withheld from steps.
    names.retain(|name| env.get_bytes(name).is_some());
    names
}

/// `LOBSTER_MCP_TOKEN`, the tokens of adapters, and later variables with such names.
fn is_ours(name: &str) -> bool {
    name.starts_with("LOBSTER_")
        && name.contains("TOKEN")
        && !name.starts_with(ARG_PREFIX)
        && name != INHERIT.name
}

/// The names that no step inherits; the values of the other variables are also hidden.
pub(crate) fn withheld_names(mut names: BTreeSet<String>) -> BTreeSet<String> {
    names.retain(|name| {
        !OF_HOSTS.contains(&name.as_str()) && !OF_CLOUDS.iter().any(|prefix| name.starts_with(prefix))
    });
    names
}

/// True if the variable is only sent to models and decides nothing else.
pub(crate) fn is_of_a_model(name: &str) -> bool {
    Provider::ALL.iter().any(|provider| provider.token_variables().contains(&name))
}

/// True if the operator lets steps inherit all of them.
pub(crate) fn are_inherited(env: &Env) -> bool {
    matches!(env.value_of(&INHERIT), Ok(Some(true)))
}

/// The parts of a variable's value that are hidden, without parts that other text may contain by chance.
pub(crate) fn hidden_parts(name: &str, value: &str) -> Vec<String> {
    let mut values = vec![value.trim().to_owned()];
    if COLLECTOR.contains(&name) {
        values
            .extend(value.split(',').filter_map(|header| Some(header.split_once('=')?.1.trim().to_owned())));
    }
    // A number would be found inside other numbers.
    values.retain(|value| value.len() >= SHORTEST_HIDDEN && !value.bytes().all(|byte| byte.is_ascii_digit()));
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_env(vars: &[(&str, &str)]) -> Env {
        Env::from_inherited(vars.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn the_list_is_that_of_all_places_that_take_tokens() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("lobster.mcp.toml"),
            "version = 1\n[server.a]\nurl = \"https://a.example\"\ntoken_env = \"TICKETS\"\n\
             [server.b]\nurl = \"https://b.example\"\ntoken_env = \"PATH\"\n",
        )
        .unwrap();
        let pool = r#"{"pools":{"x":[{"name":"n","provider":"openai","key_env":"MAIN_KEY"}]}}"#;
        let env = make_env(&[
            ("OPENAI_API_KEY", "a"),
            ("ANTHROPIC_API_KEY", "b"),
            ("OPENCLAW_TOKEN", "c"),
            ("CLAWD_TOKEN", "d"),
            ("LOBSTER_MCP_TOKEN", "e"),
            ("LOBSTER_PI_LLM_ADAPTER_TOKEN", "f"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "g"),
            ("LOBSTER_ARG_TOKEN", "no"),
            ("LOBSTER_LLM_POOL", pool),
            ("MAIN_KEY", "h"),
            ("TICKETS", "i"),
            ("PATH", "/bin"),
            ("OPENROUTER_API_KEY", "j"),
            ("OTHER_API_KEY", "no"),
            ("GITHUB_TOKEN", "no"),
        ]);
        let found: Vec<_> = find_names(&env, dir.path()).into_iter().collect();
        assert_eq!(
            found,
            [
                "ANTHROPIC_API_KEY",
                "CLAWD_TOKEN",
                "LOBSTER_MCP_TOKEN",
                "LOBSTER_PI_LLM_ADAPTER_TOKEN",
                "MAIN_KEY",
                "OPENAI_API_KEY",
                "OPENCLAW_TOKEN",
                "OPENROUTER_API_KEY",
                "OTEL_EXPORTER_OTLP_HEADERS",
                "TICKETS"
            ]
        );
    }

    /// Each key that lobster reads is in the list, and the documents have the same list.
    #[test]
    fn the_list_of_keys_is_whole_and_documented() {
        assert!(MODEL_KEYS.is_sorted());
        for name in Provider::ALL.iter().flat_map(|provider| provider.token_variables()) {
            assert!(MODEL_KEYS.contains(name) || is_ours(name), "{name}");
        }
        let page = include_str!("../../../docs/secrets.md");
        let (_, list) = page.split_once("<!-- keys -->").unwrap();
        let (list, _) = list.split_once("<!-- end of keys -->").unwrap();
        let documented: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
        assert_eq!(documented, MODEL_KEYS);
    }

    #[test]
    fn code_hosts_and_clouds_are_for_steps() {
        let names = ["GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "MISTRAL_API_KEY", "TICKETS"];
        let withheld = withheld_names(names.map(str::to_owned).into());
        assert_eq!(Vec::from_iter(withheld), ["MISTRAL_API_KEY", "TICKETS"]);
    }

    #[test]
    fn short_values_and_numbers_are_not_looked_for() {
        assert_eq!(hidden_parts("OPENAI_API_KEY", " sk-0123456789 "), ["sk-0123456789"]);
        assert!(hidden_parts("OPENAI_API_KEY", "short").is_empty());
        assert!(hidden_parts("OPENAI_API_KEY", "123456789012345").is_empty());
        assert_eq!(
            hidden_parts("OTEL_EXPORTER_OTLP_HEADERS", "api-key=0123456789abc,x=y"),
            ["api-key=0123456789abc,x=y", "0123456789abc"]
        );
    }
}
