//! Every route of the service, asked as everybody: who is let in is what the table here says.

use std::collections::BTreeMap;

use lobster_serve::access::Role;
use lobster_serve::http::{Access, Of, Route, Takes, routes};
use serde_json::json;

use crate::home::{Home, wait_until};
use crate::served::{Reply, Served, agent, register, token};

/// The least role of each route; none lets in anybody. A route that is not here fails the test.
const TABLE: &[(&str, &str, Option<&str>)] = &[
    ("GET", "/healthz", None),
    ("GET", "/readyz", None),
    ("POST", "/api/v1/login", None),
    ("POST", "/hooks/{*path}", None),
    ("GET", "/metrics", Some("viewer")),
    ("GET", "/api/v1/openapi.json", Some("viewer")),
    ("POST", "/api/v1/logout", Some("viewer")),
    ("POST", "/api/v1/passkeys/challenge", None),
    ("POST", "/api/v1/login/passkey", None),
    ("GET", "/api/v1/passkeys", Some("viewer")),
    ("POST", "/api/v1/passkeys", Some("viewer")),
    ("DELETE", "/api/v1/passkeys/{passkey}", Some("viewer")),
    ("GET", "/api/v1/me", Some("viewer")),
    ("GET", "/api/v1/servers", Some("viewer")),
    ("GET", "/api/v1/workflows", Some("viewer")),
    ("GET", "/api/v1/workflows/{workflow}", Some("viewer")),
    ("POST", "/api/v1/workflows/{workflow}/runs", Some("operator")),
    ("POST", "/api/v1/workflows/{workflow}/register", Some("author")),
    ("GET", "/api/v1/workflows/{workflow}/file", Some("author")),
    ("PUT", "/api/v1/workflows/{workflow}/file", Some("author")),
    ("POST", "/api/v1/workflows/{workflow}/check", Some("author")),
    ("POST", "/api/v1/workflows/{workflow}/complete", Some("author")),
    ("GET", "/api/v1/runs", Some("viewer")),
    ("GET", "/api/v1/runs/{run}", Some("viewer")),
    ("POST", "/api/v1/runs/{run}/cancel", Some("operator")),
    ("GET", "/api/v1/runs/{run}/events", Some("viewer")),
    ("GET", "/api/v1/runs/{run}/output", Some("viewer")),
    ("GET", "/api/v1/runs/{run}/stream", Some("viewer")),
    ("GET", "/api/v1/approvals", Some("viewer")),
    ("GET", "/api/v1/approvals/{approval}", Some("viewer")),
    ("POST", "/api/v1/approvals/{approval}/answer", Some("approver")),
    ("GET", "/api/v1/schedules", Some("viewer")),
    ("GET", "/api/v1/workflows/{workflow}/schedules/{schedule}/ticks", Some("viewer")),
    ("POST", "/api/v1/workflows/{workflow}/schedules/{schedule}/pause", Some("operator")),
    ("POST", "/api/v1/workflows/{workflow}/schedules/{schedule}/resume", Some("operator")),
    ("POST", "/api/v1/workflows/{workflow}/schedules/{schedule}/backfill", Some("operator")),
    ("GET", "/api/v1/deliveries", Some("viewer")),
    ("POST", "/api/v1/deliveries/{delivery}/redeliver", Some("operator")),
    ("POST", "/api/v1/events", Some("operator")),
    ("GET", "/api/v1/waits", Some("viewer")),
    ("GET", "/api/v1/notices", Some("viewer")),
    ("GET", "/api/v1/tokens", Some("admin")),
    ("POST", "/api/v1/tokens", Some("admin")),
    ("DELETE", "/api/v1/tokens/{token}", Some("admin")),
    ("GET", "/api/v1/trail", Some("admin")),
    ("GET", "/api/v1/changes", Some("viewer")),
    // Of agents, whose tokens open nothing that answers or registers.
    ("POST", "/mcp", Some("viewer")),
    ("GET", "/mcp", Some("viewer")),
    ("DELETE", "/mcp", Some("viewer")),
    // The console.
    ("GET", "/assets/{name}", None),
    ("GET", "/favicon.ico", None),
    ("GET", "/login", None),
    ("POST", "/login", None),
    ("POST", "/logout", Some("viewer")),
    ("GET", "/passkeys", Some("viewer")),
    ("POST", "/passkeys/{passkey}/forget", Some("viewer")),
    ("GET", "/", Some("viewer")),
    ("GET", "/runs", Some("viewer")),
    ("GET", "/runs/{run}", Some("viewer")),
    ("GET", "/runs/{run}/step", Some("viewer")),
    ("GET", "/runs/{run}/output", Some("viewer")),
    ("GET", "/runs/{run}/compare", Some("viewer")),
    ("GET", "/runs/{run}/bundle", Some("viewer")),
    ("POST", "/runs/{run}/cancel", Some("operator")),
    ("POST", "/runs/{run}/resume", Some("operator")),
    ("POST", "/runs/{run}/replay", Some("operator")),
    ("GET", "/runs/{run}/fork", Some("operator")),
    ("POST", "/runs/{run}/fork", Some("operator")),
    ("GET", "/questions/{approval}", Some("viewer")),
    ("POST", "/questions/{approval}", Some("approver")),
    ("GET", "/workflows", Some("viewer")),
    ("GET", "/workflows/{workflow}", Some("viewer")),
    ("POST", "/workflows/{workflow}/runs", Some("operator")),
    ("GET", "/workflows/{workflow}/edit", Some("author")),
    ("POST", "/workflows/{workflow}/edit", Some("author")),
    ("POST", "/workflows/{workflow}/register", Some("author")),
    ("GET", "/new", Some("author")),
    ("GET", "/schedules", Some("viewer")),
    ("POST", "/schedules/{workflow}/{schedule}/pause", Some("operator")),
    ("POST", "/schedules/{workflow}/{schedule}/resume", Some("operator")),
    ("GET", "/audit", Some("admin")),
    ("GET", "/store", Some("viewer")),
    ("POST", "/store/verify", Some("admin")),
    ("POST", "/store/collect", Some("admin")),
    ("POST", "/store/backup", Some("admin")),
    ("GET", "/doctor", Some("viewer")),
    ("GET", "/policy", Some("viewer")),
];

/// The routes that take the token of an agent; no other one does.
const FOR_AGENTS: &[(&str, &str)] = &[
    ("POST", "/mcp"),
    ("GET", "/mcp"),
    ("DELETE", "/mcp"),
    ("GET", "/api/v1/openapi.json"),
    ("GET", "/api/v1/me"),
    ("POST", "/api/v1/logout"),
    ("GET", "/api/v1/workflows"),
    ("GET", "/api/v1/workflows/{workflow}"),
    ("POST", "/api/v1/workflows/{workflow}/runs"),
    ("GET", "/api/v1/workflows/{workflow}/schedules/{schedule}/ticks"),
    ("GET", "/api/v1/runs"),
    ("GET", "/api/v1/runs/{run}"),
    ("POST", "/api/v1/runs/{run}/cancel"),
    ("GET", "/api/v1/runs/{run}/events"),
    ("GET", "/api/v1/runs/{run}/stream"),
    ("GET", "/api/v1/changes"),
    ("GET", "/api/v1/approvals"),
    ("GET", "/api/v1/approvals/{approval}"),
    ("GET", "/api/v1/schedules"),
    ("GET", "/api/v1/waits"),
];

/// The routes of the API and of the console.
fn all_routes() -> impl Iterator<Item = &'static Route> {
    routes().iter().chain(lobster_console::PAGES.routes)
}

/// A server with one of each thing that a route may name.
struct World {
    home: Home,
    served: Served,
    run: String,
    gate: String,
}

impl World {
    fn new() -> Self {
        let home = Home::new();
        home.write(
            "ask.lobster",
            "on: {schedule: {cron: '0 0 1 1 *'}}\nsteps:\n  - {id: ask, approval: 'Go on?'}\n  - {id: a, run: 'echo done >> said'}\n",
        );
        home.write("other.lobster", "steps: [{id: a, run: 'true'}]\n");
        register(&home, &["ask.lobster", "other.lobster"]);
        let served = Served::start(&home, &[]);
        let operator = token(&home, "operator", None);
        let run = served.post(&operator, "/api/v1/workflows/ask/runs", &json!({})).good();
        let run = run["run"].as_str().unwrap().to_owned();
        let gate = served.question(&operator)["id"].as_str().unwrap().to_owned();
        Self { home, served, run, gate }
    }

    fn path(&self, route: &Route) -> String {
        let filled = route.path.replace("{workflow}", "ask").replace("{schedule}", "schedule");
        let filled = filled.replace("{run}", &self.run).replace("{approval}", &self.gate);
        filled
            .replace("{name}", "console.css")
            .replace("{token}", "token-0000000000")
            .replace("{*path}", "nothing/here")
            .replace("{delivery}", "1")
    }

    /// Asks with a body that no route takes, so that nothing comes of it.
    fn ask(&self, route: &Route, token: Option<&str>, more: &[(&str, &str)]) -> Reply {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let mut headers: Vec<(&str, &str)> = more.to_vec();
        headers.extend(bearer.as_deref().map(|bearer| ("Authorization", bearer)));
        let body: &[u8] = if ["POST", "PUT"].contains(&route.method) { b"?" } else { b"" };
        if route.path.ends_with("/stream") || route.path.ends_with("/changes") {
            return self.ask_stream(route, &headers);
        }
        self.served.send(route.method, &self.path(route), &headers, body)
    }

    /// A stream of a run that waits has no end: its head is enough.
    fn ask_stream(&self, route: &Route, headers: &[(&str, &str)]) -> Reply {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(&self.served.address).unwrap();
        let mut head = format!("GET {} HTTP/1.1\r\n", self.path(route));
        if !headers.iter().any(|(name, _)| *name == "Host") {
            head += &format!("Host: {}\r\n", self.served.address);
        }
        headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
        write!(stream, "{head}\r\n").unwrap();
        let mut answer = [0; 4096];
        let length = stream.read(&mut answer).unwrap();
        let text = String::from_utf8_lossy(&answer[..length]).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: head.to_owned(), body: body.to_owned() }
    }
}

fn code(reply: &Reply) -> Option<String> {
    if reply.head.contains("text/html") {
        let rest = reply.body.split("data-problem=\"").nth(1)?;
        return rest.split('"').next().map(str::to_owned);
    }
    let is_problem = reply.head.contains("application/problem+json");
    is_problem
        .then(|| serde_json::from_str::<serde_json::Value>(&reply.body).ok())?
        .map(|body| body["code"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn the_table_has_every_route() {
    let known: BTreeMap<_, _> = TABLE.iter().map(|(method, path, role)| ((*method, *path), *role)).collect();
    let found: BTreeMap<_, _> = all_routes()
        .map(|route| {
            let role = match route.access {
                Access::Open => None,
                Access::To(verb, _) => Some(verb.required_role().as_str()),
            };
            ((route.method, route.path), role)
        })
        .collect();
    assert_eq!(found, known);
}

#[test]
fn every_route_lets_in_whom_the_table_says_and_nobody_else() {
    let world = World::new();
    let tokens: Vec<(Role, String)> =
        Role::ALL.into_iter().map(|role| (role, token(&world.home, role.as_str(), None))).collect();
    let elsewhere = token(&world.home, "admin", Some("other"));
    let agents =
        ["viewer", "operator"].map(|role| (role.parse::<Role>().unwrap(), agent(&world.home, role, None)));
    let admin = &tokens.last().unwrap().1;
    let mut asked = 0;
    for route in all_routes() {
        let needs: Option<Role> = TABLE
            .iter()
            .find(|(method, path, _)| (*method, *path) == (route.method, route.path))
            .and_then(|(.., role)| role.map(|role| role.parse().unwrap()));
        let name = format!("{} {}", route.method, route.path);
        let port = world.served.address.rsplit(':').next().unwrap();
        // Another name, with the best token there is.
        for host in ["evil.example", "127.0.0.1.evil.example", "localhost@evil.example", ""] {
            let host = if host.is_empty() { String::new() } else { format!("{host}:{port}") };
            let refused = world.ask(route, Some(admin), &[("Host", &host)]);
            assert!([421, 400].contains(&refused.status), "{name} {host}: {refused:?}");
            asked += 1;
        }
        // A page of another origin.
        for headers in [
            &[("Origin", "https://evil.example")][..],
            &[("Origin", "null")],
            &[("Sec-Fetch-Site", "cross-site")],
            &[("Sec-Fetch-Site", "same-site"), ("Sec-Fetch-Mode", "cors")],
        ] {
            let refused = world.ask(route, Some(admin), headers);
            assert_eq!(
                (refused.status, code(&refused).as_deref()),
                (403, Some("origin")),
                "{name}: {refused:?}"
            );
            asked += 1;
        }
        // Nobody that the server knows.
        for stranger in [None, Some("lob_guess"), Some(""), Some("Ω")] {
            let reply = world.ask(route, stranger, &[]);
            assert_eq!(code(&reply).as_deref() == Some("login"), needs.is_some(), "{name}: {reply:?}");
            assert!(needs.is_none() || reply.status == 401, "{name}: {reply:?}");
            asked += 1;
        }
        let Some(needs) = needs else { continue };
        for (role, token) in &tokens {
            let own;
            let token = if route.path.ends_with("/logout") {
                own = crate::served::token(&world.home, role.as_str(), None);
                &own
            } else {
                token
            };
            let reply = world.ask(route, Some(token), &[]);
            let is_denied = reply.status == 403 && code(&reply).as_deref() == Some("role");
            assert_eq!(is_denied, *role < needs || route.path == "/mcp", "{name} as {role}: {reply:?}");
            assert!(is_denied || ![401, 403].contains(&reply.status), "{name} as {role}: {reply:?}");
            asked += 1;
        }
        // Agents read and start, and that is all.
        for (role, token) in agents.iter().filter(|_| !route.path.ends_with("/logout")) {
            let reply = world.ask(route, Some(token), &[]);
            let may = *role >= needs && FOR_AGENTS.contains(&(route.method, route.path));
            let is_denied = reply.status == 403 && code(&reply).as_deref() == Some("role");
            assert_eq!(is_denied, !may, "{name} as an agent, {role}: {reply:?}");
            asked += 1;
        }
        // An admin of something else.
        let is_elsewhere = matches!(route.access, Access::To(_, of) if of != Of::List);
        if !route.path.ends_with("/logout") {
            let reply = world.ask(route, Some(&elsewhere), &[]);
            let is_denied = is_elsewhere || route.path == "/mcp";
            assert_eq!(code(&reply).as_deref() == Some("role"), is_denied, "{name}: {reply:?}");
            asked += 1;
        }
    }
    println!("{} routes, {asked} requests", all_routes().count());
    // None of it has answered the question or begun anything.
    let gate = world.served.get(admin, &format!("/api/v1/approvals/{}", world.gate)).good();
    let runs = world.served.get(admin, "/api/v1/runs").good();
    assert!(gate["status"] == "open" || gate["status"] == "cancelled", "{gate}");
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1);
    assert_eq!(world.home.read("said"), "");
}

#[test]
fn the_former_addresses_of_approvals_still_work_and_are_not_described() {
    let world = World::new();
    let approver = token(&world.home, "approver", None);
    let get = |path: &str| world.served.get(&approver, path).good();
    assert_eq!(get("/api/v1/gates"), get("/api/v1/approvals"));
    let former = format!("/api/v1/gates/{}", world.gate);
    let gate = get(&former);
    assert_eq!(gate, get(&format!("/api/v1/approvals/{}", world.gate)));
    let (path, body) =
        (format!("{former}/answer"), json!({ "decision": "reject", "digest": gate["digest"] }));
    for stranger in [token(&world.home, "viewer", None), agent(&world.home, "operator", None)] {
        assert_eq!(world.served.post(&stranger, &path, &body).status, 403);
    }
    assert_eq!(world.served.post(&approver, &path, &body).good()["status"], "answered");
    let described = get("/api/v1/openapi.json").to_string();
    assert!(described.contains("/api/v1/approvals/{approval}/answer"), "{described}");
    assert!(!described.contains("/api/v1/gates"), "{described}");
}

/// Looks at a text that is sent along, or is noted by the runs that it starts.
const NOT_NOTED: [&str; 3] =
    ["/api/v1/workflows/{workflow}/check", "/api/v1/workflows/{workflow}/complete", "/mcp"];

#[test]
fn each_change_that_is_asked_for_is_in_the_trail() {
    let world = World::new();
    let admin = token(&world.home, "admin", None);
    let mut noted: Vec<&Route> = all_routes().collect();
    noted.retain(|route| {
        route.method != "GET" && route.access != Access::Open && !NOT_NOTED.contains(&route.path)
    });
    for route in &noted {
        // Whatever comes of it: some of them end their own token.
        let bearer = format!("Bearer {}", token(&world.home, "admin", None));
        let (kind, body) = match route.takes {
            Takes::Json(_) => ("application/json", &b"{}"[..]),
            Takes::Form => ("application/x-www-form-urlencoded", &b""[..]),
            Takes::Nothing | Takes::Bytes => ("text/plain", &b""[..]),
        };
        let headers = [("Authorization", bearer.as_str()), ("Content-Type", kind)];
        world.served.send(route.method, &world.path(route), &headers, body);
    }
    let trail = world.served.get(&admin, "/api/v1/trail?limit=1000").good();
    let has = |object: &str| trail["trail"].as_array().unwrap().iter().any(|deed| deed["object"] == object);
    for route in noted {
        assert!(has(&format!("{} {}", route.method, route.path)), "{} {}", route.method, route.path);
    }
}

#[test]
fn what_is_not_registered_is_run_again_by_authors_alone_and_by_no_agent() {
    let world = World::new();
    let (operator, author) = (token(&world.home, "operator", None), token(&world.home, "author", None));
    let coder = agent(&world.home, "operator", None);
    world
        .home
        .write("adhoc.lobster", "args: {who: {default: a}}\nsteps: [{id: a, run: 'echo ran >> log'}]\n");
    world.home.lobster(["run", "adhoc.lobster"]).run();
    let adhoc = crate::home::newest(&world.home);
    let again = |token: &str, run: &str, act: &str| {
        let bearer = format!("Bearer {token}");
        let headers =
            [("Authorization", bearer.as_str()), ("Content-Type", "application/x-www-form-urlencoded")];
        world.served.send("POST", &format!("/runs/{run}/{act}"), &headers, b"act=fork&from=a").status
    };
    for act in ["fork", "replay"] {
        assert_eq!([again(&coder, &adhoc, act), again(&operator, &adhoc, act)], [403; 2], "{act}");
        assert_eq!(again(&coder, &world.run, act), 403, "an agent starts registered workflows: {act}");
    }
    assert_eq!(world.home.read("log"), "ran\n");
    assert_eq!(again(&author, &adhoc, "replay"), 200);
    assert_ne!(again(&operator, &world.run, "replay"), 403);
    // Of the version that another one has replaced since, as of one that nobody registered.
    world.home.write("ask.lobster", "steps: [{id: a, run: 'true'}]\n");
    register(&world.home, &["ask.lobster"]);
    assert_eq!(again(&operator, &world.run, "replay"), 403);
    assert_eq!(again(&author, &adhoc, "fork"), 303);
    wait_until("the fork ran", || world.home.read("log") == "ran\nran\n");
    let admin = token(&world.home, "admin", None);
    let trail = world.served.get(&admin, "/api/v1/trail").good().to_string();
    assert!(trail.contains("POST /runs/{run}/fork") && trail.contains(&adhoc), "{trail}");
}

#[test]
fn a_scope_hides_what_is_outside_of_it() {
    let world = World::new();
    let (all, other) = (token(&world.home, "viewer", None), token(&world.home, "viewer", Some("other")));
    for (path, list) in [
        ("/api/v1/workflows", "workflows"),
        ("/api/v1/runs", "runs"),
        ("/api/v1/approvals", "gates"),
        ("/api/v1/schedules", "schedules"),
    ] {
        let names = |token: &str| {
            let found = world.served.get(token, path).good();
            found[list].as_array().unwrap().iter().filter(|row| row["name"] != "other").count()
        };
        assert_eq!((names(&all), names(&other)), (1, 0), "{path}");
    }
}

#[test]
fn an_expired_or_revoked_token_counts_no_more_and_what_was_done_is_written_down() {
    let world = World::new();
    let admin = token(&world.home, "admin", None);
    let made =
        world.served.post(&admin, "/api/v1/tokens", &json!({ "name": "ci", "role": "viewer", "days": 1 }));
    assert_eq!(made.status, 201, "{made:?}");
    let made = made.good();
    let (id, secret) = (made["id"].as_str().unwrap(), made["token"].as_str().unwrap());
    assert_eq!(world.served.get(secret, "/api/v1/me").good()["name"], "ci");
    let revoked = world.home.lobster(["serve", "token", "revoke", id]).run();
    assert_eq!(revoked.code(), 0, "{revoked:?}");
    wait_until("it counts no more", || world.served.get(secret, "/api/v1/me").status == 401);
    let list = world.home.lobster(["serve", "token", "list"]).run();
    assert!(list.stdout.contains("revoked") && !list.stdout.contains("lob_"), "{list:?}");
    let trail = world.served.get(&admin, "/api/v1/trail").good();
    let verbs: Vec<_> =
        trail["trail"].as_array().unwrap().iter().map(|deed| deed["verb"].as_str().unwrap()).collect();
    assert_eq!(verbs[..2], ["revoke", "make-token"], "{trail}");
    // No secret is in the state directory.
    let found = world.home.program("grep", ["-ra", secret.trim_start_matches("lob_"), "../state"]).run();
    assert_eq!(found.stdout, "");
}

#[test]
fn doctor_attacks_a_server_that_is_at_work() {
    let home = Home::new();
    let nobody = home.lobster(["doctor", "--service"]).run();
    assert!(nobody.code() == 1 && nobody.stderr.contains("no server is running"), "{nobody:?}");
    let served = Served::start(&home, &[]);
    let mut told = home.lobster(["doctor", "--service"]).run();
    wait_until("the server is known", || {
        told = home.lobster(["doctor", "--service"]).run();
        told.code() == 0
    });
    for promise in [
        "without a login",
        "made-up token",
        "made-up session",
        "DNS rebinding",
        "another origin",
        "too large",
    ] {
        assert!(told.stdout.contains(promise), "{told:?}");
    }
    assert!(!told.stdout.contains("broken"), "{told:?}");
    let viewer = token(&home, "viewer", None);
    assert_eq!(served.get(&viewer, "/api/v1/me").status, 200, "it still listens to those who may");
}
