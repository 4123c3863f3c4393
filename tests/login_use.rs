//! The credential of a step is the token of a login: it is renewed under the step, which notices nothing, and is nowhere.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::home::{Answer, Home, assert_nowhere, wait};
use crate::mcp_login::{Authority, code_of_last_run, visit};
use crate::server::{Reply, Request, Server, authority};

/// A server that takes the tokens of its login, and the place of somebody who is logged in there.
struct Place {
    home: Home,
    server: Server,
    elsewhere: Server,
    authority: Arc<Mutex<Authority>>,
}

impl Place {
    fn new(has_worker: bool) -> Self {
        let elsewhere = Server::start_tls(|_, _| Reply::status(200, "", "elsewhere"));
        let away = format!("location: https://localhost:{}/there\r\n", elsewhere.port());
        let authority = Arc::new(Mutex::new(Authority::new()));
        let plays = Arc::clone(&authority);
        let server = Server::start_tls(move |_, request| answer(&mut plays.lock().unwrap(), request, &away));
        let url = format!("https://127.0.0.1:{}", server.port());
        authority.lock().unwrap().url.clone_from(&url);
        let home = Home::new().with_worker(has_worker);
        let config = home.dir().parent().unwrap().join("home/.config/lobster");
        std::fs::create_dir_all(&config).unwrap();
        std::fs::write(config.join("secrets.toml"), "[secrets.web_login]\nlogin = \"web\"\n").unwrap();
        home.write("lobster.mcp.toml", format!("version = 1\n[server.web]\nurl = \"{url}/mcp\"\n"));
        home.write("large", vec![b'x'; 100_000]);
        let guest = crate::binary::repository().join("tests/guests/dist/fetches.wasm");
        home.write("fetches.wasm", std::fs::read(guest).unwrap());
        Self { home, server, elsewhere, authority }
    }

    fn host(&self) -> String {
        format!("127.0.0.1:{}", self.server.port())
    }

    fn set(&self, change: impl FnOnce(&mut Authority)) {
        change(&mut self.authority.lock().unwrap());
    }

    fn run(&self, words: &[&str]) -> Answer {
        let call = self.home.lobster(words).env("SSL_CERT_FILE", authority());
        let base = format!("https://{}/api", self.host());
        call.env("LOBSTER_LOG", "trace").env("OPENAI_BASE_URL", base).run()
    }

    /// Logs in for so many seconds; the token is renewed in the last quarter of them.
    fn log_in(&self, seconds: i64) {
        self.set(|authority| authority.expires_in = Some(seconds));
        let call = self.home.lobster(["mcp", "login", "web", "--timeout", "60"]);
        let mut child = call.env("SSL_CERT_FILE", authority()).start();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let address = lines.by_ref().find(|line| line.starts_with("http"));
        if let Some(address) = &address {
            let ca = authority().display().to_string();
            let went = self.home.program("curl", ["-s", "-D", "-", "--cacert", &ca, address]).run();
            let to = went.stdout.lines().find_map(|line| line.strip_prefix("location: ")).unwrap();
            assert!(visit(to.trim()).contains("You can close this page"));
        }
        let mut said: Vec<String> = lines.collect();
        let mut errors = String::new();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        said.push(errors);
        assert_eq!(wait(&mut child, &said).code(), Some(0), "{said:?}");
        self.set(|authority| authority.expires_in = Some(3600));
    }

    fn flow(&self, steps: &[(&str, &str)]) -> Answer {
        let step = |(id, work): &(&str, &str)| {
            let host = self.host();
            format!(
                "  - id: {id}\n    {}\n    credentials: {{\"{host}\": {{secret: web_login, env: LOGIN_URL}}}}\n",
                work.replace("HOST", &host).replace("curl", "curl -s --max-time 30")
            )
        };
        let steps: String = steps.iter().map(step).collect();
        self.home.write("flow.lobster", format!("secrets: [web_login]\nsteps:\n{steps}"));
        self.run(&["run", "--mode", "tool", "flow.lobster"])
    }

    /// The requests for a path, and the tokens that they had.
    fn asked(&self, path: &str) -> Vec<String> {
        let all = self.server.requests().into_iter().filter(|request| request.path == path);
        all.map(|request| request.header("authorization").unwrap_or("nothing").to_owned()).collect()
    }

    fn renewals(&self) -> usize {
        self.server.requests().iter().filter(|request| request.path == "/token").count() - 1
    }

    /// No token is anywhere but in the file of the login.
    fn assert_hidden(&self, answers: &[&Answer]) {
        let tokens = ["access-token-", "refresh-token-"];
        let mut shown = vec![format!("{answers:?}")];
        for words in [
            &["show", "@", "--full"][..],
            &["show", "@", "--json"],
            &["logs", "@"],
            &["audit", "--json"],
            &["secrets", "list"],
            &["secrets", "check", "--json"],
            &["bundle", "export", "@", "-o", "run.bundle"],
        ] {
            shown.push(format!("{:?}", self.run(words)));
        }
        for token in tokens {
            assert!(shown.iter().all(|shown| !shown.contains(token)), "{token}: {shown:?}");
            for entry in std::fs::read_dir(self.home.state()).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() && entry.file_name() != "logins" {
                    assert_nowhere(&entry.path(), token);
                }
            }
            assert_nowhere(&self.home.dir(), token);
        }
    }
}

/// What lies at the server beside its authority.
fn answer(authority: &mut Authority, request: &Request, away: &str) -> Reply {
    let path = request.path.split('?').next().unwrap();
    let Some(place) = path.strip_prefix("/api/") else { return authority.answer(request) };
    if !authority.takes(request) || place == "never" {
        return Reply::status(401, "", "who are you?");
    }
    let sent = request.header("authorization").unwrap();
    match place {
        // From here on the token is refused.
        "revoke" => authority.good.clear(),
        "end" => {
            authority.good.clear();
            authority.refuses_refresh = true;
        }
        "away" => return Reply::status(302, away, ""),
        "chat/completions" => return Reply::chat("an answer"),
        _ => {}
    }
    Reply::status(200, "", &format!("{} bytes, you sent {sent}\n", request.body.len()))
}

fn told(bytes: usize) -> String {
    format!("{bytes} bytes, you sent Bearer {}\n", "*".repeat("access-token-1".len()))
}

const TOKENS: [&str; 3] = ["Bearer access-token-1", "Bearer access-token-2", "Bearer access-token-3"];

#[test]
fn a_token_that_runs_out_within_a_step_is_renewed_under_it() {
    let place = Place::new(false);
    place.log_in(12);
    let work = "run: 'curl $LOGIN_URL/api/a; sleep 9; curl $LOGIN_URL/api/b; curl $LOGIN_URL/api/c'";
    let answer = place.flow(&[("a", work)]);
    assert_eq!(answer.output(), json!([told(0).repeat(3)]), "{answer:?}");
    assert_eq!(place.asked("/api/a"), TOKENS[..1]);
    assert_eq!([place.asked("/api/b"), place.asked("/api/c")].concat(), [TOKENS[1], TOKENS[1]]);
    assert_eq!(place.renewals(), 1);
    place.assert_hidden(&[&answer]);
    // Now it is good for long, and the next run has it.
    assert_eq!(place.flow(&[("a", "run: 'curl $LOGIN_URL/api/d'")]).output(), json!([told(0)]));
    assert_eq!((place.asked("/api/d"), place.renewals()), (vec![TOKENS[1].to_owned()], 1));
}

#[test]
fn a_refused_token_is_renewed_once_and_the_request_made_once_more() {
    let place = Place::new(false);
    place.log_in(3600);
    let work = "run: 'curl $LOGIN_URL/api/revoke; curl -d body $LOGIN_URL/api/a; curl $LOGIN_URL/api/b'";
    let answer = place.flow(&[("a", work)]);
    let expected = [told(0), told(4), told(0)].concat();
    assert_eq!(answer.output(), json!([expected]), "{answer:?}");
    assert_eq!(place.asked("/api/a"), TOKENS[..2]);
    assert_eq!((place.asked("/api/b"), place.renewals()), (vec![TOKENS[1].to_owned()], 1));
    // What is too long to be kept is not sent again; the next request has another token.
    let work = "run: 'curl $LOGIN_URL/api/revoke; curl --data-binary @large $LOGIN_URL/api/l; curl $LOGIN_URL/api/n'";
    let answer = place.flow(&[("a", work)]);
    assert_eq!(answer.output(), json!([format!("{}who are you?{}", told(0), told(0))]), "{answer:?}");
    assert_eq!(
        (place.asked("/api/l"), place.asked("/api/n")),
        (vec![TOKENS[1].to_owned()], vec![TOKENS[2].to_owned()])
    );
    assert_eq!(place.renewals(), 2);
    // Who refuses every token has one of them renewed, and no request made three times.
    let answer = place.flow(&[("a", "run: 'for i in 1 2 3 4; do curl $LOGIN_URL/api/never; done'")]);
    assert_eq!(answer.output(), json!(["who are you?".repeat(4)]), "{answer:?}");
    assert_eq!((place.asked("/api/never").len(), place.renewals()), (5, 3));
    place.assert_hidden(&[&answer]);
}

#[test]
fn a_component_has_its_token_renewed_too() {
    let place = Place::new(false);
    place.log_in(3600);
    place.set(|authority| authority.good.clear());
    let work =
        "component: fetches.wasm\n    args: {url: \"https://HOST/api/a\"}\n    grants: {net: [\"HOST\"]}";
    let answer = place.flow(&[("a", work)]);
    assert!(answer.output().to_string().contains("you sent Bearer ***"), "{answer:?}");
    assert_eq!(
        (place.asked("/api/a"), place.renewals()),
        (TOKENS[..2].iter().map(ToString::to_string).collect(), 1)
    );
    place.assert_hidden(&[&answer]);
    // What it was answered stands in the record, and is answered again without a login.
    assert_eq!(place.run(&["mcp", "logout", "web"]).code(), 0);
    assert_eq!(place.run(&["replay", "@"]).code(), 0);
    let error = place.flow(&[("a", work)]).error();
    assert!(
        error.contains("nobody is logged in at") && error.contains("`lobster mcp login web` logs in"),
        "{error}"
    );
    // One that ends within the step is told to the component.
    place.log_in(8);
    place.set(|authority| authority.refuses_refresh = true);
    let more = format!("run: sleep 7\n  - id: b\n    {work}");
    let error = place.flow(&[("a", &more)]).error();
    assert!(
        error.contains("refuses to renew the login") && error.contains("`lobster mcp login web`"),
        "{error}"
    );
}

#[test]
fn steps_at_the_same_time_renew_it_once() {
    let place = Place::new(false);
    place.log_in(12);
    let host = place.host();
    let branch = |id: &str| {
        format!(
            "        - id: {id}\n          run: 'sleep 9; curl -s --max-time 30 $LOGIN_URL/api/{id}'\n          \
             credentials: {{\"{host}\": {{secret: web_login, env: LOGIN_URL}}}}\n"
        )
    };
    let branches: String = ["a", "b", "c", "d"].map(branch).concat();
    let text = format!(
        "secrets: [web_login]\nsteps:\n  - id: all\n    parallel:\n      wait: all\n      branches:\n{branches}"
    );
    place.home.write("flow.lobster", &text).write("other.lobster", &text);
    // Two processes, four steps each.
    let answers = std::thread::scope(|threads| {
        let runs = ["flow.lobster", "other.lobster"];
        let runs = runs.map(|file| threads.spawn(|| place.run(&["run", "--mode", "tool", file])));
        runs.map(|run| run.join().unwrap())
    });
    for answer in &answers {
        assert!(answer.output().to_string().contains("you sent Bearer ***"), "{answer:?}");
    }
    for path in ["/api/a", "/api/b", "/api/c", "/api/d"] {
        assert_eq!(place.asked(path), [TOKENS[1], TOKENS[1]]);
    }
    assert_eq!(place.renewals(), 1);
    place.assert_hidden(&[&answers[0], &answers[1]]);
}

#[test]
fn a_login_that_has_ended_is_one_clear_error() {
    let place = Place::new(false);
    let touch = [("a", "run: 'touch made'")];
    let clear = |answer: &Answer, says: &str| {
        let error = answer.error();
        assert!(error.contains("secret web_login: ") && error.contains(says), "{error}");
        assert!(error.contains("`lobster mcp login web` logs in"), "{error}");
        error
    };
    // Before anything runs: without a login, and with one that nobody renews.
    clear(&place.flow(&touch), "nobody is logged in at https://127.0.0.1");
    let check = place.run(&["secrets", "check"]);
    assert!(check.code() == 1 && check.stdout.contains("nobody is logged in"), "{check:?}");
    assert!(place.run(&["secrets", "list"]).stdout.contains("login at MCP server web: not logged in"));
    place.log_in(0);
    place.set(|authority| authority.refuses_refresh = true);
    let answer = place.flow(&touch);
    clear(&answer, "refuses to renew the login: invalid_grant: no");
    assert!(!place.home.dir().join("made").exists());
    // Within a step: the program has the answers of the server, or none, and the run says why.
    place.set(|authority| authority.refuses_refresh = false);
    place.log_in(3600);
    let work = "run: 'curl -f $LOGIN_URL/api/end && for i in 1 2 3; do curl -f $LOGIN_URL/api/a; done; curl -f $LOGIN_URL/api/a'";
    let answer = place.flow(&[("a", work)]);
    let error = clear(&answer, "refuses to renew the login");
    assert!(error.contains("ended with code 22"), "{error}");
    assert_eq!(code_of_last_run(&place.home), "mcp_login");
    assert_eq!(place.asked("/api/a").len(), 4);
    place.assert_hidden(&[&answer]);
    place.set(|authority| authority.refuses_refresh = false);
    place.log_in(3600);
    assert!(place.flow(&[("a", "run: 'curl $LOGIN_URL/api/b'")]).output().to_string().contains("you sent"));
}

#[test]
fn a_token_goes_to_the_host_of_its_login_alone() {
    let place = Place::new(false);
    place.log_in(3600);
    let answer = place.flow(&[("a", "run: 'curl -L --cacert \"$SSL_CERT_FILE\" $LOGIN_URL/api/away'")]);
    assert_eq!(answer.output(), json!(["elsewhere"]), "{answer:?}");
    let reached = place.elsewhere.requests();
    assert_eq!(reached.iter().map(|request| request.header("authorization")).collect::<Vec<_>>(), [None]);
    let other = format!("localhost:{}", place.elsewhere.port());
    for (step, says) in [
        (format!("credentials: {{\"{other}\": web_login}}"), format!("not for {other}")),
        ("secrets: {TOKEN: web_login}".to_owned(), "no step receives it".to_owned()),
    ] {
        let text = format!("secrets: [web_login]\nsteps:\n  - {{id: a, run: touch made, {step}}}\n");
        place.home.write("flow.lobster", text);
        let answer = place.run(&["run", "--mode", "tool", "flow.lobster"]);
        assert!(answer.error().contains(&says), "{answer:?}");
        assert!(!place.home.dir().join("made").exists());
        let check = place.run(&["check", "flow.lobster"]).stdout;
        assert!(check.contains("W0818") && check.contains(&says), "{check}");
    }
    assert_eq!(place.elsewhere.requests().len(), 1);
    let text = "secrets: [web_login]\nsteps:\n  - {id: a, run: 'true', credentials: {\"HOST\": web_login}}\n";
    place.home.write("flow.lobster", text.replace("HOST", &place.host()));
    assert_eq!(place.run(&["check", "--strict", "flow.lobster"]).code(), 0);
    // Whether somebody is logged in, and until when, is told without a token.
    let list = place.run(&["secrets", "list"]).stdout;
    assert!(list.contains("login at MCP server web: logged in, token until 2"), "{list}");
    assert!(list.contains(&format!("only as a credential for {}", place.host())), "{list}");
    let list: Value = serde_json::from_str(&place.run(&["secrets", "list", "--json"]).stdout).unwrap();
    assert_eq!(
        (&list[0]["login"]["state"], &list[0]["login"]["renewed"]),
        (&json!("logged_in"), &json!(true))
    );
    let check = place.run(&["secrets", "check"]);
    assert!(
        check.code() == 0 && check.stdout.contains("web_login: ok, logged in, token until 2"),
        "{check:?}"
    );
    // An executor has the token that is good when it gets the order.
    let place = Place::new(true);
    place.log_in(3600);
    assert_eq!(place.flow(&[("a", "run: 'curl $LOGIN_URL/api/a'")]).output(), json!([told(0)]));
    place.assert_hidden(&[]);
}

/// Models and MCP servers by the same table: each call has the token that is good then.
#[test]
fn models_and_mcp_servers_are_asked_with_the_token_of_a_login() {
    let place = Place::new(false);
    place.log_in(0);
    let model = "pipeline: llm.invoke --provider openai --prompt p --model m --refresh";
    let answer = place.flow(&[("a", model)]);
    assert_eq!(answer.output()[0]["output"]["text"], "an answer");
    assert_eq!(place.asked("/api/chat/completions"), TOKENS[1..2], "{answer:?}");
    place.assert_hidden(&[&answer]);
    // A session whose token the server takes no more is followed by another one, with another token.
    let call = "mcp: {url: 'https://HOST/mcp', tool: say}";
    let revoke = "run: 'curl $LOGIN_URL/api/revoke'";
    let answer = place.flow(&[("a", call), ("b", revoke), ("c", call), ("d", call)]);
    assert_eq!(answer.output(), json!(["you sent [redacted]"]), "{answer:?}");
    assert_eq!(place.renewals(), 2);
    let asked = place.asked("/mcp");
    let used = asked.iter().filter(|sent| *sent == TOKENS[2]).count();
    assert!(used > 1 && asked.last().is_some_and(|sent| sent == TOKENS[2]), "{asked:?}");
    place.assert_hidden(&[&answer]);
    place.set(|authority| {
        authority.good.clear();
        authority.refuses_refresh = true;
    });
    let error = place.flow(&[("a", call)]).error();
    assert!(
        error.contains("refuses to renew the login") && error.contains("`lobster mcp login web`"),
        "{error}"
    );
    assert_eq!(code_of_last_run(&place.home), "mcp_login");
}
