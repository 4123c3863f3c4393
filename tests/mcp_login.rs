//! Logins at MCP servers, against an authorization server that takes the protocol at its word.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::Digest as _;

use crate::credentials::mcp_over_http;
use crate::home::{Answer, Home, assert_nowhere, wait};
use crate::server::{Reply, Request, Server};

/// The secret of a client that was registered by hand, with what must be encoded in it.
const CLIENT_SECRET: &str = "a:b c&d/e+f";

/// What the authorization server does, and what it has seen.
#[derive(Clone, Default)]
pub(crate) struct Authority {
    pub(crate) url: String,
    /// How long a token is good, as it says.
    pub(crate) expires_in: Option<i64>,
    /// The tokens that it takes.
    pub(crate) good: Vec<String>,
    refresh: String,
    given: usize,
    challenge: String,
    redirect: String,
    is_denied: bool,
    pub(crate) refuses_refresh: bool,
    /// Who it says that it is when it sends the browser back.
    issuer: Option<String>,
    wants_secret: bool,
    registers: bool,
    /// What its tokens are for, if that is not the server.
    resource: Option<String>,
}

fn fields(text: &str) -> BTreeMap<String, String> {
    let decoded = |text: &str| {
        let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
        while let [first, after @ ..] = rest {
            rest = after;
            match (first, after) {
                (b'%', [high, low, after @ ..]) => {
                    let digits = [*high, *low];
                    bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
                    rest = after;
                }
                (b'+', _) => bytes.push(b' '),
                (other, _) => bytes.push(*other),
            }
        }
        String::from_utf8(bytes).unwrap()
    };
    let pair = |pair: &str| pair.split_once('=').map(|(key, value)| (decoded(key), decoded(value)));
    text.split('&').filter_map(pair).collect()
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self { registers: true, ..Self::default() }
    }

    /// Whether a request has one of the tokens that it takes.
    pub(crate) fn takes(&self, request: &Request) -> bool {
        let sent = request.header("authorization").and_then(|text| text.strip_prefix("Bearer "));
        sent.is_some_and(|token| self.good.iter().any(|good| good == token))
    }

    pub(crate) fn answer(&mut self, request: &Request) -> Reply {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let url = self.url.clone();
        match path {
            "/mcp" => {
                if self.takes(request) {
                    return mcp_over_http(request);
                }
                let challenge = format!(
                    "www-authenticate: Bearer error=\"invalid_token\", scope=\"tickets:read\", \
                     resource_metadata=\"{url}/.well-known/oauth-protected-resource/mcp\"\r\n"
                );
                Reply::status(401, &challenge, "")
            }
            "/.well-known/oauth-protected-resource/mcp" => Reply::json(&json!({
                "resource": self.resource.clone().unwrap_or_else(|| format!("{url}/mcp")), "authorization_servers": [format!("{url}/as")],
            })),
            "/.well-known/oauth-authorization-server/as" => {
                let mut metadata = json!({
                    "issuer": format!("{url}/as"), "authorization_endpoint": format!("{url}/authorize?tenant=7"),
                    "token_endpoint": format!("{url}/token"), "code_challenge_methods_supported": ["S256"],
                    "authorization_response_iss_parameter_supported": true, "scopes_supported": ["offline_access"],
                });
                if self.registers {
                    metadata["registration_endpoint"] = json!(format!("{url}/register"));
                }
                Reply::json(&metadata)
            }
            "/register" => {
                assert_eq!(request.json()["token_endpoint_auth_method"], "none");
                self.redirect = request.json()["redirect_uris"][0].as_str().unwrap().to_owned();
                Reply::json(&json!({"client_id": "registered"}))
            }
            "/authorize" => self.authorize(&fields(query)),
            "/token" => self.token(request),
            _ => Reply::status(404, "", ""),
        }
    }

    fn authorize(&mut self, asked: &BTreeMap<String, String>) -> Reply {
        for (name, value) in [
            ("tenant", "7"),
            ("response_type", "code"),
            ("code_challenge_method", "S256"),
            ("scope", "tickets:read offline_access"),
        ] {
            assert_eq!(asked[name], value, "{asked:?}");
        }
        assert_eq!(asked["resource"], format!("{}/mcp", self.url));
        if self.registers {
            assert_eq!(asked["redirect_uri"], self.redirect);
        }
        self.redirect.clone_from(&asked["redirect_uri"]);
        self.challenge.clone_from(&asked["code_challenge"]);
        let issuer = self.issuer.clone().unwrap_or_else(|| format!("{}/as", self.url));
        let said =
            if self.is_denied { "error=access_denied&error_description=not+today" } else { "code=the-code" };
        let to = format!("{}?{said}&state={}&iss={issuer}", self.redirect, asked["state"]);
        Reply::status(302, &format!("location: {to}\r\n"), "")
    }

    fn token(&mut self, request: &Request) -> Reply {
        let asked = fields(std::str::from_utf8(&request.body).unwrap());
        let refuse = |error: &str| {
            Reply::status(400, "", &json!({"error": error, "error_description": "no"}).to_string())
        };
        if self.wants_secret {
            let expected = format!("Basic {}", STANDARD.encode("by-hand:a%3Ab+c%26d%2Fe%2Bf"));
            assert_eq!(request.header("authorization"), Some(expected.as_str()));
        } else {
            assert_eq!(asked["client_id"], "registered");
        }
        assert_eq!(asked["resource"], format!("{}/mcp", self.url));
        match asked["grant_type"].as_str() {
            "authorization_code" => {
                let challenge =
                    URL_SAFE_NO_PAD.encode(sha2::Sha256::digest(asked["code_verifier"].as_bytes()));
                if challenge != self.challenge
                    || asked["code"] != "the-code"
                    || asked["redirect_uri"] != self.redirect
                {
                    return refuse("invalid_grant");
                }
            }
            // Each refresh token is good once.
            _ if self.refuses_refresh || asked["refresh_token"] != self.refresh => {
                return refuse("invalid_grant");
            }
            _ => {}
        }
        self.given += 1;
        let token = format!("access-token-{}", self.given);
        self.refresh = format!("refresh-token-{}", self.given);
        self.good = vec![token.clone()];
        let mut tokens =
            json!({"access_token": token, "token_type": "bearer", "refresh_token": self.refresh});
        if let Some(seconds) = self.expires_in {
            tokens["expires_in"] = json!(seconds);
        }
        Reply::json(&tokens)
    }
}

struct Place {
    home: Home,
    server: Server,
    authority: Arc<Mutex<Authority>>,
}

impl Place {
    fn new(login: &str) -> Self {
        let authority = Arc::new(Mutex::new(Authority::new()));
        let plays = Arc::clone(&authority);
        let server = Server::start(move |_, request| plays.lock().unwrap().answer(request));
        authority.lock().unwrap().url = server.url();
        let home = Home::new();
        let config = home.dir().parent().unwrap().join("home/.config/lobster");
        std::fs::create_dir_all(&config).unwrap();
        std::fs::write(config.join("secrets.toml"), "[secrets.client]\nenv = \"THE_SECRET\"\n").unwrap();
        home.write(
            "lobster.mcp.toml",
            format!("version = 1\n[server.web]\nurl = \"{}/mcp\"\n{login}", server.url()),
        );
        Self { home, server, authority }
    }

    fn set(&self, change: impl FnOnce(&mut Authority)) {
        change(&mut self.authority.lock().unwrap());
    }

    /// Logs in, with a browser that does what it is told. Gives the exit code and what was printed.
    fn log_in(&self) -> (i32, String) {
        let words = ["mcp", "login", "web", "--timeout", "60"];
        let mut child = self.home.lobster(words).env("THE_SECRET", CLIENT_SECRET).start();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let address = lines.by_ref().find(|line| line.starts_with("http"));
        if let Some(address) = &address {
            let went = visit(address);
            let to = went.lines().find_map(|line| line.strip_prefix("location: ")).unwrap();
            // What any page could have the browser send is not taken for the answer.
            assert!(visit(&self.authority.lock().unwrap().redirect.clone()).contains("404"));
            let forged = format!("{}?code=x&state=y", to.split('?').next().unwrap());
            assert!(visit(&forged).contains("404"));
            assert!(visit(to).contains("You can close this page"));
        }
        let mut said: Vec<String> = lines.collect();
        let mut errors = String::new();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        said.push(errors);
        (wait(&mut child, &said).code().unwrap(), said.join("\n"))
    }

    fn say(&self) -> Answer {
        let call = self.home.lobster(["run", "--mode", "tool", "mcp.call --server web --tool say"]);
        call.env("THE_SECRET", CLIENT_SECRET).run()
    }

    fn token_requests(&self) -> usize {
        self.server.requests().iter().filter(|request| request.path == "/token").count()
    }
}

pub(crate) fn visit(address: &str) -> String {
    let rest = address.strip_prefix("http://").unwrap();
    let (host, target) = rest.split_at(rest.find('/').unwrap());
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_login_is_found_kept_used_renewed_and_forgotten() {
    let place = Place::new("");
    let error = place.say();
    assert!(error.error().contains("it wants a login (`lobster mcp login NAME`"), "{error:?}");
    assert_eq!(code_of_last_run(&place.home), "mcp_login");
    let (code, said) = place.log_in();
    assert!(code == 0 && said.contains("/as; it is renewed when it runs out"), "{said}");
    assert_eq!(place.say().output(), json!(["you sent [redacted]"]));
    assert_eq!(place.token_requests(), 1);
    // The server takes it no more, although it has not said when: another one is had, and the call made once.
    place.set(|authority| authority.good.clear());
    place.set(|authority| authority.expires_in = Some(0));
    assert_eq!(place.say().output(), json!(["you sent [redacted]"]));
    assert_eq!(place.token_requests(), 2);
    // It would run out within the call: another one is had before, by one of those that want it.
    place.set(|authority| authority.expires_in = Some(3600));
    std::thread::scope(|threads| {
        let calls: Vec<_> = (0..3).map(|_| threads.spawn(|| place.say())).collect();
        for call in calls {
            assert_eq!(call.join().unwrap().output(), json!(["you sent [redacted]"]));
        }
    });
    assert_eq!(place.token_requests(), 3);
    // The tokens are in the one file of this user alone, and in no record.
    let logins = place.home.state().join("logins");
    for entry in std::fs::read_dir(&logins).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o077, 0, "{entry:?}");
    }
    let kept = std::fs::read_dir(&logins).unwrap().count();
    for entry in std::fs::read_dir(place.home.state()).unwrap().map(Result::unwrap) {
        if entry.path() != logins && entry.file_type().unwrap().is_dir() {
            for token in ["access-token-2", "access-token-3", "refresh-token-3"] {
                assert_nowhere(&entry.path(), token);
            }
        }
    }
    assert!(kept <= 2, "one file and its lock");
    let said = place.home.lobster(["mcp", "logout", "web"]).run();
    assert!(said.code() == 0 && said.stdout.contains("are forgotten"), "{said:?}");
    assert!(place.say().error().contains("it wants a login"));
    let said = place.home.lobster(["mcp", "logout", "web"]).run();
    assert!(said.stdout.contains("there are no tokens of web"), "{said:?}");
}

/// The code that the journal of the last run ends with.
pub(crate) fn code_of_last_run(home: &Home) -> Value {
    let shown = home.lobster(["show", "@", "--json"]).run().stdout;
    let journal: Value = serde_json::from_str(&shown).unwrap();
    let end = journal.as_array().unwrap().iter().rfind(|record| record["event"]["type"] == "run_ended");
    end.unwrap()["event"]["detail"]["code"].clone()
}

#[test]
fn a_login_that_ended_says_how_to_log_in_again() {
    let place = Place::new("");
    place.set(|authority| authority.expires_in = Some(0));
    assert_eq!(place.log_in().0, 0);
    place.set(|authority| authority.refuses_refresh = true);
    let error = place.say();
    let message = error.error();
    assert!(message.contains("refuses to renew the login: invalid_grant: no"), "{message}");
    assert!(message.contains("`lobster mcp login web` logs in again"), "{message}");
    assert_eq!(code_of_last_run(&place.home), "mcp_login");
    // Nothing was sent to the server: it would have been refused.
    let last = place.server.requests().pop().unwrap();
    assert_eq!(last.path, "/token");
}

#[test]
fn what_a_login_must_not_take_it_refuses() {
    for (change, says) in [
        (
            (|authority| authority.is_denied = true) as fn(&mut Authority),
            "refuses the login: access_denied: not today",
        ),
        (
            |authority| authority.issuer = Some("https://evil.example".to_owned()),
            "names another authorization server",
        ),
        (|authority| authority.registers = false, "registers no clients by itself"),
        (
            |authority| authority.resource = Some("https://other.example/mcp".to_owned()),
            "it is about \"https://other.example/mcp\"",
        ),
    ] {
        let place = Place::new("");
        place.set(change);
        let (code, said) = place.log_in();
        assert!(code == 1 && said.contains(says), "{says}: {said}");
        assert!(!place.home.state().join("logins").exists(), "{says}");
        assert_eq!(place.token_requests(), 0, "{says}");
    }
}

#[test]
fn a_client_that_was_registered_by_hand_proves_itself() {
    let place = Place::new("login = { client_id = \"by-hand\", client_secret = \"client\" }\n");
    place.set(|authority| (authority.wants_secret, authority.registers) = (true, false));
    place.set(|authority| authority.expires_in = Some(0));
    let (code, said) = place.log_in();
    assert_eq!(code, 0, "{said}");
    assert_eq!(place.say().output(), json!(["you sent [redacted]"]));
    assert_eq!(place.token_requests(), 2);
    // The secret is the operator's, and is not kept.
    assert_nowhere(&place.home.state(), CLIENT_SECRET);
}

/// A step may read the directory around the state, and finds no tokens in it.
#[test]
fn a_step_in_a_jail_finds_no_tokens() {
    let place = Place::new("");
    assert_eq!(place.log_in().0, 0);
    let around = place.home.state().parent().unwrap().display().to_string();
    let rule = format!("program = \"make\"\ngrant = {{ fs_read = [\"{around}\"] }}");
    place.home.write("p.toml", format!("version = 1\n[[rule]]\nid = \"make\"\neffect = \"allow\"\n{rule}\n"));
    place
        .home
        .write("Makefile", format!("all:\n\t@ls {around}/state; cat {around}/state/logins/*.json || true\n"));
    place.home.write("flow.lobster", "steps:\n  - {id: a, exec: [make, -s, all]}\n");
    let answer = place.home.lobster(["run", "--mode", "tool", "--policy", "p.toml", "flow.lobster"]).run();
    if ["cannot enforce", "not found"].iter().any(|lack| answer.stdout.contains(lack)) {
        return println!("no jail, or no make, here: {answer:?}");
    }
    let said = answer.output().to_string();
    // Nothing of the state is there.
    assert!(!said.contains("logins") && !said.contains("access-token"), "{answer:?}");
}
