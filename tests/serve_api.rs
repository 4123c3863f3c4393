//! The HTTP API of the service: runs, questions, events, and what it makes of bad input.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::home::{Home, wait_until};
use crate::served::{Served, register, token};

const GREET: &str = "args: {name: {type: string, required: true}, times: {type: integer, default: 1}}\nsteps:\n  - {id: say, run: 'echo \"$LOBSTER_ARG_NAME $LOBSTER_ARG_TIMES\"'}\n";

const ASK: &str = "steps:\n  - {id: ask, approval: 'Go on?'}\n  - {id: after, run: 'echo done >> said', when: $ask.approved}\n";

#[test]
fn a_run_is_started_followed_and_read() {
    let home = Home::new();
    home.write("greet.lobster", GREET);
    register(&home, &["greet.lobster"]);
    let served = Served::start(&home, &[]);
    let operator = token(&home, "operator", None);
    let start =
        |args: Value| served.post(&operator, "/api/v1/workflows/greet/runs", &json!({ "args": args }));
    let accepted = start(json!({ "name": "ann" }));
    assert_eq!(accepted.status, 202, "{accepted:?}");
    let run = accepted.good()["run"].as_str().unwrap().to_owned();
    let ended = served.ended(&operator, &run);
    assert_eq!((ended["status"].as_str(), ended["cause"].as_str()), (Some("ok"), Some("api")), "{ended}");
    assert_eq!(
        (ended["actor"].as_str(), ended["args"]["times"].as_i64()),
        (Some("operator-person"), Some(1))
    );
    for (args, about) in [
        (json!({}), "required"),
        (json!({ "name": 7 }), "must be of type"),
        (json!({ "name": "x", "colour": "red" }), "declares no argument"),
    ] {
        let refused = start(args);
        assert!(refused.status == 400 && refused.body.contains(about), "{refused:?}");
        refused.problem();
    }
    assert_eq!(served.post(&operator, "/api/v1/workflows/nobody/runs", &json!({})).problem(), "not_found");
    // The journal is the feed: as a page, and as a stream that goes on where it broke off.
    let page = served.get(&operator, &format!("/api/v1/runs/{run}/events?limit=2")).good();
    assert_eq!(page["events"][1]["seq"], 2, "{page}");
    let stream = served.get(&operator, &format!("/api/v1/runs/{run}/stream")).body;
    let rest = served.send(
        "GET",
        &format!("/api/v1/runs/{run}/stream"),
        &[("Authorization", &format!("Bearer {operator}")), ("Last-Event-ID", "2")],
        b"",
    );
    let ids = |text: &str| {
        text.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect::<Vec<u64>>()
    };
    let all = ids(&stream);
    assert_eq!(all, (1..=all.len() as u64).collect::<Vec<_>>());
    assert_eq!(ids(&rest.body), all[2..]);
    assert!(
        stream.contains("event: run_ended") && stream.trim_end().ends_with("event: end\ndata: {}"),
        "{stream}"
    );
    let document = served.get(&operator, "/api/v1/openapi.json").good();
    assert!(document["paths"]["/api/v1/runs/{run}/stream"]["get"].is_object());
    wait_until("its figures", || {
        served.get(&operator, "/metrics").body.contains("lobster_starts{state=\"over\"} 1")
    });
    assert_eq!(served.send("GET", "/healthz", &[], b"").good()["status"], "ok");
}

/// The lines of a run's stream, as they come.
fn stream(served: &Served, token: &str, run: &str) -> impl Iterator<Item = String> {
    let mut stream = TcpStream::connect(&served.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(
        stream,
        "GET /api/v1/runs/{run}/stream HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\n\r\n",
        served.address
    )
    .unwrap();
    BufReader::new(stream).lines().map(Result::unwrap)
}

#[test]
fn a_stream_tells_what_happens_while_it_happens() {
    let home = Home::new();
    home.write("slow.lobster", "steps:\n  - {id: one, run: 'while ! test -e go; do sleep 0.05; done'}\n");
    register(&home, &["slow.lobster"]);
    let served = Served::start(&home, &[]);
    let operator = token(&home, "operator", None);
    let run = served.post(&operator, "/api/v1/workflows/slow/runs", &json!({})).good();
    let run = run["run"].as_str().unwrap();
    let mut lines = stream(&served, &operator, run);
    assert!(lines.any(|line| line == "event: step_started"));
    home.write("go", "");
    assert!(lines.any(|line| line == "event: run_ended"));
    assert!(lines.any(|line| line == "event: end"));
}

#[test]
fn what_a_step_says_is_seen_before_it_ends() {
    let home = Home::new();
    let config = home.dir().parent().unwrap().join("home/.config/lobster");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("secrets.toml"), "[secrets.hook]\nenv = \"HOOK_KEY\"\n").unwrap();
    home.write(
        "build.lobster",
        "secrets: [hook]\nsteps:\n  - {id: build, run: 'echo \"the key is $KEY\" >&2; echo \"$((3 + 4)) files with $KEY of them\" >&2; while ! test -e go; do sleep 0.05; done', secrets: {KEY: hook}}\n",
    );
    register(&home, &["build.lobster"]);
    let served = Served::start(&home, &[]);
    let operator = token(&home, "operator", None);
    let browser = Browser::log_in(&home, &served, "viewer");
    let run = served.post(&operator, "/api/v1/workflows/build/runs", &json!({})).good();
    let run = run["run"].as_str().unwrap();
    let page = || browser.page(&format!("/runs/{run}"));
    const SAID: &str = "7 files with «secret:hook» of them";
    wait_until("its words", || page().text.contains(SAID));
    let step = browser.page(&format!("/runs/{run}/step?path=build"));
    assert!(step.text.contains("So far") && step.text.contains(SAID), "{}", step.text);
    assert!(!step.text.contains("s3cret-of-hooks") && !page().text.contains("s3cret-of-hooks"));
    let mut lines = stream(&served, &operator, run);
    assert!(lines.any(|line| line == "event: progress"));
    let told = lines.next().unwrap();
    assert!(told.contains("\"path\":\"build\"") && told.contains(SAID), "{told}");
    home.write("go", "");
    assert!(lines.any(|line| line == "event: end"));
    assert!(!page().text.contains(SAID), "{}", page().text);
}

#[test]
fn a_question_is_answered_by_who_may_and_for_what_was_shown() {
    let home = Home::new();
    home.write("ask.lobster", ASK);
    register(&home, &["ask.lobster"]);
    let served = Served::start(&home, &[]);
    let [viewer, approver, operator] =
        ["viewer", "approver", "operator"].map(|role| token(&home, role, None));
    let run = served.post(&operator, "/api/v1/workflows/ask/runs", &json!({})).good();
    let run = run["run"].as_str().unwrap();
    let gate = served.question(&viewer);
    assert_eq!((gate["prompt"].as_str(), gate["workflow"].as_str()), (Some("Go on?"), Some("ask")));
    let id = gate["id"].as_str().unwrap();
    let shown = served.get(&viewer, &format!("/api/v1/approvals/{id}")).good();
    let digest = shown["digest"].clone();
    let path = format!("/api/v1/approvals/{id}/answer");
    let answer = |token: &str, digest: &Value| {
        served.post(token, &path, &json!({ "decision": "approve", "digest": digest }))
    };
    assert_eq!(answer(&viewer, &digest).problem(), "role");
    assert_eq!(answer(&approver, &json!("00")).problem(), "changed");
    assert_eq!(
        served.post(&approver, &path, &json!({ "decision": "maybe", "digest": digest })).problem(),
        "bad_request"
    );
    let good = answer(&approver, &digest).good();
    assert_eq!(
        (good["status"].as_str(), good["answeredBy"].as_str()),
        (Some("answered"), Some("approver-person"))
    );
    assert_eq!(answer(&approver, &digest).problem(), "closed");
    assert_eq!(served.ended(&operator, run)["status"], "ok");
    assert_eq!(home.read("said"), "done\n");
    drop(served);
    home.assert_deserted();
}

#[test]
fn who_started_a_run_may_be_kept_from_approving_it() {
    let home = Home::new();
    home.write(
        "ask.lobster",
        "steps:\n  - id: ask\n    approval: {prompt: 'Go on?', requireDifferentApprover: true}\n  - {id: after, run: 'echo done >> said'}\n",
    );
    register(&home, &["ask.lobster"]);
    let served = Served::start(&home, &[]);
    let (operator, approver) = (token(&home, "operator", None), token(&home, "approver", None));
    let run = served.post(&operator, "/api/v1/workflows/ask/runs", &json!({})).good();
    let run = run["run"].as_str().unwrap();
    let gate = served.question(&operator);
    let path = format!("/api/v1/approvals/{}/answer", gate["id"].as_str().unwrap());
    let yes = json!({ "decision": "approve", "digest": gate["digest"] });
    let refused = served.post(&operator, &path, &yes);
    assert_eq!((refused.status, refused.problem().as_str()), (403, "refused"), "{refused:?}");
    served.post(&approver, &path, &yes).good();
    assert_eq!(served.ended(&operator, run)["status"], "ok");
}

#[test]
fn a_run_is_cancelled_whether_it_waits_for_its_turn_works_or_asks() {
    let home = Home::new();
    home.write("ask.lobster", ASK);
    home.write("slow.lobster", "steps:\n  - {id: one, run: 'touch begun; sleep 600'}\n");
    register(&home, &["ask.lobster", "slow.lobster"]);
    let served = Served::start(&home, &["--max-runs", "1"]);
    let operator = token(&home, "operator", None);
    let start = |name: &str| {
        let run = served.post(&operator, &format!("/api/v1/workflows/{name}/runs"), &json!({})).good();
        run["run"].as_str().unwrap().to_owned()
    };
    let cancel = |run: &str| served.post(&operator, &format!("/api/v1/runs/{run}/cancel"), &Value::Null);
    let asking = start("ask");
    served.question(&operator);
    let slow = start("slow");
    wait_until("it works", || home.dir().join("begun").exists());
    let queued = start("ask");
    // There is no record of it yet; it is shown as it stands, and a page waits for one.
    let short = &queued[queued.len() - 8..];
    let shown = home.lobster(["show", short]).run();
    assert!(shown.code() == 0 && shown.stdout.starts_with("ask  queued"), "{shown:?}");
    let logs = home.lobster(["logs", short]).run();
    assert!(logs.code() == 2 && logs.stderr.contains("is queued and has not begun"), "{logs:?}");
    let link = home.lobster(["console", short, "--no-browser"]).run();
    assert!(link.stdout.contains(&format!("next=/runs/{queued}#")), "{link:?}");
    for (run, status) in [(&queued, "withdrawn"), (&asking, "cancelled"), (&slow, "cancelled")] {
        assert_eq!(cancel(run).status, 202);
        assert_eq!(served.ended(&operator, run)["status"], status);
    }
    wait_until("nothing is left of it", || cancel(&slow).status == 409);
    assert_eq!(home.read("said"), "");
}

#[test]
fn a_link_opens_one_session_which_ends_with_it() {
    let home = Home::new();
    home.write("greet.lobster", GREET);
    register(&home, &["greet.lobster"]);
    let served = Served::start(&home, &[]);
    let url = format!("http://{}", served.address);
    let made = home.lobster(["serve", "link", "--name", "ann", "--role", "operator", "--url", &url]).run();
    let secret = made.stdout.trim().split('#').nth(1).unwrap().to_owned();
    let json_type = ("Content-Type", "application/json");
    let login = |secret: &str| {
        served.send("POST", "/api/v1/login", &[json_type], json!({ "link": secret }).to_string().as_bytes())
    };
    let opened = login(&secret);
    assert_eq!(opened.status, 200, "{opened:?}");
    let cookie = opened.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let cookie = cookie.split(';').next().unwrap();
    assert_eq!(login(&secret).problem(), "link");
    let me = served.send("GET", "/api/v1/me", &[("Cookie", cookie)], b"").good();
    assert_eq!((me["name"].as_str(), me["role"].as_str()), (Some("ann"), Some("operator")));
    let start = |headers: &[(&str, &str)]| {
        served.send("POST", "/api/v1/workflows/greet/runs", headers, br#"{"args":{"name":"x"}}"#)
    };
    // A cookie comes with whatever a browser is made to send: a write says where it is from.
    assert_eq!(start(&[("Cookie", cookie), json_type]).problem(), "origin");
    assert_eq!(start(&[("Cookie", cookie), json_type, ("Sec-Fetch-Site", "cross-site")]).problem(), "origin");
    assert_eq!(start(&[("Cookie", cookie), json_type, ("Sec-Fetch-Site", "same-origin")]).status, 202);
    let both = format!("{cookie}; {cookie}");
    assert_eq!(served.send("GET", "/api/v1/me", &[("Cookie", &both)], b"").problem(), "login");
    // A session is no token, and a token is no session.
    let bearer = format!("Bearer {}", cookie.split('=').nth(1).unwrap());
    assert_eq!(served.send("GET", "/api/v1/me", &[("Authorization", &bearer)], b"").problem(), "login");
    let out =
        served.send("POST", "/api/v1/logout", &[("Cookie", cookie), ("Sec-Fetch-Site", "same-origin")], b"");
    assert_eq!(out.status, 200, "{out:?}");
    assert_eq!(served.send("GET", "/api/v1/me", &[("Cookie", cookie)], b"").problem(), "login");
    let failures = (0..12).map(|_| login("lob_guess").problem()).collect::<Vec<_>>();
    assert_eq!((failures[0].as_str(), failures[11].as_str()), ("link", "too_many_failures"));
}

#[test]
fn what_is_wrong_is_said_and_the_server_stays_up() {
    let home = Home::new();
    home.write("flows/good.lobster", GREET);
    home.write("flows/broken.lobster", "steps:\n  - {id: a, run: }{\n");
    home.write(
        "flows/never.lobster",
        "on: {schedule: {cron: '0 0 30 2 *'}}\nsteps: [{id: a, run: 'true'}]\n",
    );
    let served = Served::start(&home, &["--workflows", "flows", "--trust"]);
    let admin = token(&home, "admin", None);
    wait_until("the good one is there", || {
        let found = served.get(&admin, "/api/v1/workflows").good();
        let problems = found["problems"].to_string();
        found["workflows"][0]["name"] == "good"
            && problems.contains("broken.lobster")
            && problems.contains("never")
    });
    // A port in use, an address of others, a folder that is none.
    for (words, about) in [
        (vec!["serve", "--listen", &served.address], "is in use"),
        (vec!["serve", "--listen", "0.0.0.0:0"], "--behind-proxy"),
        (vec!["serve", "--listen", "0.0.0.0:0", "--behind-proxy"], "--allow-host"),
        (vec!["serve", "--tls-cert", "cert.pem"], "go together"),
        (vec!["serve", "--tls-cert", "flows/good.lobster", "--tls-key", "key.pem"], "key.pem: No such file"),
        (
            vec!["serve", "--tls-cert", "flows/good.lobster", "--tls-key", "flows/good.lobster"],
            "good.lobster: there is no certificate in it",
        ),
        (vec!["serve", "--workflows", "nowhere"], "is not a directory"),
        (vec!["serve", "--config", "nowhere.toml"], "--config"),
    ] {
        let refused = home.lobster(&words).run();
        assert!(refused.code() > 0 && refused.stderr.contains(about), "{refused:?}");
    }
    // A body that is too large, one that never comes, one that is none.
    let huge = format!("Bearer {admin}");
    let huge = [("Authorization", huge.as_str()), ("Content-Type", "application/json")];
    let path = "/api/v1/workflows/good/runs";
    assert_eq!(served.send("POST", path, &huge, &vec![b'x'; (1 << 20) + 1]).status, 413);
    let mut two_gib = TcpStream::connect(&served.address).unwrap();
    write!(
        two_gib,
        "POST {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {admin}\r\nContent-Type: application/json\r\nContent-Length: 2147483648\r\n\r\n",
        served.address
    )
    .unwrap();
    let mut answer = [0; 12];
    two_gib.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    let mut endless = TcpStream::connect(&served.address).unwrap();
    write!(
        endless,
        "POST {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {admin}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        served.address
    )
    .unwrap();
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    while endless.write_all(chunk.as_bytes()).is_ok() {}
    for (body, content_type, status) in [
        ("{", "application/json", 400),
        ("[]", "application/json", 400),
        ("{}", "text/plain", 415),
        ("{}", "application/jsonx", 415),
    ] {
        let bearer = format!("Bearer {admin}");
        let headers = [("Authorization", bearer.as_str()), ("Content-Type", content_type)];
        assert_eq!(
            served.send("POST", path, &headers, body.as_bytes()).status,
            status,
            "{body} {content_type}"
        );
    }
    // Clients that say nothing make way.
    let idle: Vec<TcpStream> = (0..400).map(|_| TcpStream::connect(&served.address).unwrap()).collect();
    assert_eq!(served.get(&admin, "/api/v1/me").status, 200);
    drop(idle);
    // A folder that vanishes is said; what is registered from elsewhere goes on.
    std::fs::rename(home.dir().join("flows"), home.dir().join("gone")).unwrap();
    wait_until("it says that the folder is gone", || served.has_said("flows"));
    assert_eq!(served.send("GET", "/healthz", &[], b"").status, 200);
}

#[test]
fn a_settings_file_is_read_and_an_unknown_name_in_it_is_said() {
    let home = Home::new();
    home.write("flows/greet.lobster", GREET);
    home.write(
        "serve.toml",
        "listen = \"127.0.0.1:0\"\nworkflows = [\"flows\"]\ntrust = true\nmax_runs = 2\nmax_time = \"1h\"\n",
    );
    home.write("wrong.toml", "port = 7\n");
    let wrong = home.lobster(["serve", "--config", "wrong.toml"]).run();
    assert!(wrong.code() == 2 && wrong.stderr.contains("port"), "{wrong:?}");
    let served = Served::start(&home, &["--config", "serve.toml"]);
    let viewer = token(&home, "viewer", Some("greet"));
    wait_until("it is registered", || {
        !served.get(&viewer, "/api/v1/workflows").good()["workflows"].as_array().unwrap().is_empty()
    });
    let unit = home.lobster(["serve", "unit", "--workflows", "flows"]).run();
    for line in ["ExecStart=", "KillMode=process", "LOBSTER_STATE_DIR=", "serve --workflows"] {
        assert!(unit.stdout.contains(line), "{unit:?}");
    }
    // systemd reads it as it is, where there is systemd.
    home.write("lobster.service", &unit.stdout);
    if std::path::Path::new("/usr/bin/systemd-analyze").exists() {
        let read = home.program("systemd-analyze", ["verify", "--man=no", "--user", "lobster.service"]).run();
        let said: Vec<_> = read.stderr.lines().filter(|line| line.contains("lobster.service")).collect();
        assert!(said.is_empty(), "{read:?}");
    }
}

#[test]
fn the_container_starts_what_its_file_says() {
    let packaging = crate::binary::repository().join("packaging");
    let file = std::fs::read_to_string(packaging.join("Containerfile")).unwrap();
    let words = |instruction: &str| -> Vec<String> {
        let line = file.lines().find_map(|line| line.strip_prefix(instruction)).unwrap();
        serde_json::from_str(line.trim()).unwrap()
    };
    assert_eq!(words("ENTRYPOINT "), ["/usr/local/bin/lobster"]);
    for line in ["ENV LOBSTER_STATE_DIR=/var/lib/lobster/state", "USER lobster", "VOLUME /var/lib/lobster"] {
        assert!(file.lines().any(|known| known == line), "{line}");
    }
    // The same command, with this test's place in place of the container's.
    let home = Home::new();
    home.write("flows/greet.lobster", GREET);
    let settings = std::fs::read_to_string(packaging.join("serve.toml")).unwrap();
    let flows = home.dir().join("flows");
    let settings = settings.replace("/flows", flows.to_str().unwrap()).replace("0.0.0.0:7410", "0.0.0.0:0");
    home.write("serve.toml", settings);
    let command: Vec<String> =
        words("CMD ").into_iter().map(|word| word.replace("/etc/lobster/serve.toml", "serve.toml")).collect();
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let served = Served::start_as(&home, &command);
    assert_eq!(served.send("GET", "/healthz", &[("Host", "localhost:7410")], b"").status, 200);
    assert_eq!(served.send("GET", "/healthz", &[("Host", "0.0.0.0:7410")], b"").status, 421);
}

#[test]
fn a_workflow_starts_after_another_one_once_and_with_what_it_brings() {
    let home = Home::new();
    home.write("first.lobster", "args: {fail: {type: boolean, default: false}}\nsteps:\n  - {id: a, run: 'test \"$LOBSTER_ARG_FAIL\" = false'}\n");
    home.write(
        "then.lobster",
        "args: {status: {type: string}, run: {type: string}}\non: {after: {workflow: first.lobster, ended: ok, args: {status: $run.status, run: $run.id}}}\nsteps:\n  - {id: a, run: 'echo \"$LOBSTER_ARG_STATUS $LOBSTER_ARG_RUN\" >> said'}\n",
    );
    register(&home, &["first.lobster", "then.lobster"]);
    let served = Served::start(&home, &[]);
    let operator = token(&home, "operator", None);
    let start = |args: Value| {
        let run = served.post(&operator, "/api/v1/workflows/first/runs", &json!({ "args": args })).good();
        run["run"].as_str().unwrap().to_owned()
    };
    let failed = start(json!({ "fail": true }));
    assert_eq!(served.ended(&operator, &failed)["status"], "failed");
    let good = start(json!({}));
    wait_until("it follows", || home.read("said") == format!("ok {good}\n"));
    let follower = served.get(&operator, "/api/v1/runs?name=then").good()["runs"][0].clone();
    assert_eq!(
        (follower["cause"].as_str(), follower["actor"].as_str()),
        (Some("after"), Some("after:first"))
    );
}

/// Of two answers of one person at once one was recorded, also when a text in it looks like the mark of a secret.
#[test]
fn of_two_different_answers_at_once_one_is_told_that_it_counts() {
    let home = Home::new();
    home.write(
        "ask.lobster",
        "steps:\n  - {id: ask, input: {prompt: 'Which?', responseSchema: {type: string}}}\n",
    );
    register(&home, &["ask.lobster"]);
    let served = Served::start(&home, &[]);
    let operator = token(&home, "operator", None);
    for is_of_service in [true, false] {
        if is_of_service {
            served.post(&operator, "/api/v1/workflows/ask/runs", &json!({})).good();
        } else {
            home.tool(["ask.lobster"]);
        }
        let gate = served.question(&operator);
        let path = format!("/api/v1/approvals/{}/answer", gate["id"].as_str().unwrap());
        let said = ["«secret:a» one", "«secret:b» two"];
        let answers = std::thread::scope(|scope| {
            let give = |text: &'static str| {
                let body = json!({ "decision": "respond", "response": text, "digest": gate["digest"] });
                let (served, operator, path) = (&served, &operator, &path);
                scope.spawn(move || served.post(operator, path, &body))
            };
            said.map(give).map(|thread| thread.join().unwrap())
        });
        let taken: Vec<&str> = said
            .iter()
            .zip(&answers)
            .filter(|(_, answer)| answer.status == 200)
            .map(|(said, _)| *said)
            .collect();
        assert_eq!(taken.len(), 1, "of the service: {is_of_service}; {answers:#?}");
        let shown = served.get(&operator, path.trim_end_matches("/answer")).good();
        assert!(shown["answer"].to_string().contains(taken[0]), "{shown}, {answers:#?}");
        let other = answers.iter().find(|answer| answer.status != 200).unwrap();
        assert_eq!(other.problem(), "closed");
    }
}
