use super::*;

fn channel(provider: Provider, given: Given<'_>, vars: &[(&str, &str)]) -> Result<Channel, String> {
    let env = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    let token = |name: &str| Ok(env(name).map(Token::of_environment));
    Channel::new("C", provider, given, Variables { env: &env, token: &token, credential: &|_| Ok(None) })
        .map_err(|error| error.message)
}

fn url(provider: Provider, name: &str, value: &str) -> String {
    channel(provider, Given::default(), &[(name, value)]).unwrap().url.to_string()
}

#[test]
fn addresses() {
    assert_eq!(url(Provider::OpenClaw, "OPENCLAW_URL", "http://h/a/b?q=1#f"), "http://h/tools/invoke");
    assert_eq!(url(Provider::OpenClaw, "CLAWD_URL", "http://h"), "http://h/tools/invoke");
    assert_eq!(url(Provider::Http, "LOBSTER_LLM_ADAPTER_URL", "http://h/?k=1"), "http://h/invoke?k=1");
    assert_eq!(url(Provider::Pi, "LOBSTER_PI_LLM_ADAPTER_URL", "http://h/v1/x?k=1"), "http://h/v1/x?k=1");
    assert_eq!(url(Provider::OpenAi, "OPENAI_BASE_URL", "http://h/v1/"), "http://h/v1/chat/completions");
    assert_eq!(url(Provider::OpenAi, "X", ""), "https://api.openai.com/v1/chat/completions");
    assert_eq!(url(Provider::Anthropic, "ANTHROPIC_BASE_URL", "https://h/v1"), "https://h/v1/messages");
    assert_eq!(url(Provider::Anthropic, "X", ""), "https://api.anthropic.com/v1/messages");
    assert_eq!(url(Provider::Responses, "X", ""), "https://api.openai.com/v1/responses");
    let azure = |value| url(Provider::Azure, "AZURE_OPENAI_ENDPOINT", value);
    assert_eq!(azure("https://a.openai.azure.com/"), "https://a.openai.azure.com/openai/v1/chat/completions");
    assert_eq!(
        azure("https://h/deployments/d?api-version=1"),
        "https://h/deployments/d/chat/completions?api-version=1"
    );
    let gemini = channel(Provider::Gemini, Given::default(), &[]).unwrap();
    let asked = Request { model: Some("a/b?c".into()), ..Request::default() };
    assert_eq!(
        gemini.request_url(&asked).unwrap().as_str(),
        "https://generativelanguage.googleapis.com/v1beta/models/a%2Fb%3Fc:generateContent"
    );
}

#[test]
fn addresses_of_embeddings() {
    let of = |provider, vars: &[(&str, &str)]| {
        channel(provider, Given::default(), vars).unwrap().embeddings_post().map(|post| post.url.to_string())
    };
    for (provider, address) in [
        (Provider::OpenAi, "https://api.openai.com/v1/embeddings"),
        (Provider::Responses, "https://api.openai.com/v1/embeddings"),
        (Provider::Gemini, "https://generativelanguage.googleapis.com/v1beta/openai/embeddings"),
    ] {
        assert_eq!(of(provider, &[]).as_deref(), Some(address));
    }
    assert_eq!(of(Provider::Anthropic, &[]), None);
}

#[test]
fn headers_are_sent_and_open_no_door() {
    let with = |text: &str| channel(Provider::OpenAi, Given::default(), &[(HEADERS, text)]);
    let headers = with(r#"{"HTTP-Referer": "https://ours"}"#).unwrap().request_headers();
    assert_eq!(headers, [("HTTP-Referer".to_owned(), "https://ours".to_owned())]);
    for (text, why) in [
        ("[]", "must be a JSON object"),
        (r#"{"Authorization": "Bearer k"}"#, "give a key by --token"),
        (r#"{"x-API-key": "k"}"#, "give a key by --token"),
        (r#"{"Ocp-Apim-Subscription-Key": "k"}"#, "give a key by --token"),
        (r#"{"X-Auth-Token": "k"}"#, "give a key by --token"),
        (r#"{"a b": "k"}"#, "not a valid HTTP header"),
        (r#"{"a": "k\r\nb: c"}"#, "not a valid HTTP header"),
    ] {
        let refused = with(text).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    let field = |vars: &[(&str, &str)]| {
        channel(Provider::OpenAi, Given::default(), vars).unwrap().max_tokens_field().to_owned()
    };
    assert_eq!(field(&[]), "max_completion_tokens");
    assert_eq!(field(&[("OPENAI_BASE_URL", "http://localhost/v1")]), "max_tokens");
    assert_eq!(field(&[(MAX_TOKENS_FIELD, "max_new_tokens")]), "max_new_tokens");
}

#[test]
fn refusals() {
    let refusal = |provider, vars: &[(&str, &str)]| channel(provider, Given::default(), vars).unwrap_err();
    assert_eq!(
        refusal(Provider::OpenClaw, &[]),
        "C requires OPENCLAW_URL (or CLAWD_URL) for provider=openclaw"
    );
    assert_eq!(
        refusal(Provider::OpenClaw, &[("OPENCLAW_URL", ""), ("CLAWD_URL", "http://h")]),
        "C requires OPENCLAW_URL (or CLAWD_URL) for provider=openclaw"
    );
    assert_eq!(refusal(Provider::Pi, &[]), "C requires LOBSTER_PI_LLM_ADAPTER_URL for provider=pi");
    assert_eq!(
        refusal(Provider::Http, &[("LOBSTER_LLM_ADAPTER_URL", "not a url")]),
        "C request failed: Invalid URL"
    );
    assert_eq!(
        refusal(Provider::Http, &[("LOBSTER_LLM_ADAPTER_URL", "ftp://h/")]),
        "C request failed: Invalid URL"
    );
    let remote = [("CLAWD_TOKEN", "t"), ("OPENCLAW_URL", "https://gw.example.test")];
    assert!(refusal(Provider::OpenClaw, &remote).contains("pass --token explicitly"));
    let given = Given { token: Some("t"), ..Given::default() };
    assert!(channel(Provider::OpenClaw, given, &remote).is_ok());
    let plain = [("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", "http://gw.example.test")];
    assert!(refusal(Provider::OpenAi, &plain).contains("unencrypted"));
}

#[test]
fn tokens() {
    let token = |given: Option<&str>, vars: &[(&str, &str)]| {
        let mut all = vec![("OPENCLAW_URL", "http://localhost:1")];
        all.extend(vars);
        channel(Provider::OpenClaw, Given { token: given, ..Given::default() }, &all).unwrap().credential
    };
    let bearer = |text: &str| Secret::new(text).map(RequestAuth::Bearer);
    assert_eq!(token(None, &[("OPENCLAW_TOKEN", "a"), ("CLAWD_TOKEN", "b")]), bearer("a"));
    assert_eq!(token(None, &[("CLAWD_TOKEN", " b ")]), bearer("b"));
    assert_eq!(token(Some("c"), &[("OPENCLAW_TOKEN", "a")]), bearer("c"));
    assert_eq!(token(Some(" "), &[("OPENCLAW_TOKEN", "a")]), None);
    let key = channel(Provider::Anthropic, Given::default(), &[("ANTHROPIC_API_KEY", "k")]).unwrap();
    assert_eq!(key.credential, Secret::new("k").map(|secret| RequestAuth::Header("x-api-key", secret)));
    assert!(!format!("{key:?}").contains("\"k\""));
}

#[test]
fn a_secret_of_the_step_goes_before_the_environment_and_never_in_the_clear() {
    let try_it = |provider: Provider, variable: &str, url: &str| {
        let env = |name: &str| match name {
            "OPENCLAW_TOKEN" | "OPENAI_API_KEY" | "ANTHROPIC_API_KEY" => Some("ambient".to_owned()),
            name if provider.url_variables().contains(&name) => Some(url.to_owned()),
            _ => None,
        };
        let token = |name: &str| {
            let secret = Token { value: "granted".to_owned(), secret: Some("key".to_owned()) };
            Ok(if name == variable { Some(secret) } else { env(name).map(Token::of_environment) })
        };
        let variables = Variables { env: &env, token: &token, credential: &|_| Ok(None) };
        Channel::new("C", provider, Given::default(), variables).map_err(|error| error.message)
    };
    for (provider, variable) in [
        (Provider::OpenAi, "OPENAI_API_KEY"),
        (Provider::Anthropic, "ANTHROPIC_API_KEY"),
        (Provider::OpenClaw, "OPENCLAW_TOKEN"),
        // The second of two variables: the grant decides, not their order.
        (Provider::OpenClaw, "CLAWD_TOKEN"),
        (Provider::Http, "LOBSTER_LLM_ADAPTER_TOKEN"),
        (Provider::Pi, "LOBSTER_PI_LLM_ADAPTER_TOKEN"),
    ] {
        for url in ["https://gw.example.test", "http://127.0.0.1:9"] {
            let channel = try_it(provider, variable, url).unwrap();
            let sent = channel.credential.as_ref().map(|credential| credential.secret().reveal());
            assert_eq!((sent, channel.secret_name()), (Some("granted"), Some("key")), "{variable} {url}");
        }
        let refused = try_it(provider, variable, "http://gw.example.test").unwrap_err();
        assert_eq!(
            refused, "C refuses to send the secret key unencrypted; use an https address",
            "{variable}"
        );
    }
}

#[test]
fn dated_models_are_billed_by_their_family() {
    let b = |reported: Option<&str>, asked: Option<&str>| {
        billed_model(reported.map(str::to_owned), asked.map(str::to_owned))
    };
    assert_eq!(b(Some("gpt-4o-2024-08-06"), Some("gpt-4o")).as_deref(), Some("gpt-4o"));
    assert_eq!(b(Some("gpt-4o-mini"), Some("other")).as_deref(), Some("gpt-4o-mini"));
    assert_eq!(b(None, Some("m")).as_deref(), Some("m"));
    assert_eq!(b(Some("m"), None).as_deref(), Some("m"));
}
