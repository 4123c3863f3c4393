//! Webhooks: what is signed runs once, what is not does not, whatever the server goes through.

use std::collections::HashSet;

use ring::hmac;
use serde_json::{Value, json};

use crate::home::{Home, wait_until};
use crate::served::{Reply, Served, register, token};
use crate::setting::number;

const SECRET: &str = "s3cret-of-hooks";

const HOOK: &str = "args: {title: {type: string, required: true}, n: {type: integer, default: 0}}\non:\n  webhook: {path: issues/new, verify: VERIFY, secret: hook_key, args: {title: $body.issue.title, n: $body.n}}\nsteps:\n  - {id: say, run: 'echo \"$LOBSTER_ARG_TITLE\" >> said'}\n";

fn home(verify: &str) -> Home {
    home_with("env = \"HOOK_KEY\"", verify)
}

/// A home whose secret of the hook is there.
fn home_with(secret: &str, verify: &str) -> Home {
    let home = Home::new();
    let config = home.dir().join("../home/.config/lobster");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("secrets.toml"), format!("[secrets.hook_key]\n{secret}\n")).unwrap();
    home.write("hook.lobster", HOOK.replace("VERIFY", verify));
    register(&home, &["hook.lobster"]);
    home
}

fn signature(body: &str) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), body.as_bytes());
    format!("sha256={}", tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

fn github(served: &Served, id: &str, body: &str, signature: &str) -> std::io::Result<Reply> {
    let headers =
        [("X-GitHub-Delivery", id), ("X-Hub-Signature-256", signature), ("Content-Type", "application/json")];
    served.try_send("POST", "/hooks/issues/new", &headers, body.as_bytes())
}

fn body(title: &str) -> String {
    json!({ "issue": { "title": title }, "n": 7 }).to_string()
}

#[test]
fn a_delivery_fills_declared_arguments_and_runs_once() {
    let home = home("github");
    let served = Served::start(&home, &[]);
    let operator = token(&home, "operator", None);
    let send = |id: &str, body: &str, signature: &str| github(&served, id, body, signature).unwrap();
    let text = body("$(touch pwned) `x`");
    let first = send("1", &text, &signature(&text));
    assert_eq!(first.status, 202, "{first:?}");
    let run = first.good()["run"].as_str().unwrap().to_owned();
    let ended = served.ended(&operator, &run);
    assert_eq!(
        (ended["status"].as_str(), ended["actor"].as_str(), ended["args"]["n"].as_i64()),
        (Some("ok"), Some("webhook:issues/new"), Some(7))
    );
    assert_eq!(home.read("said"), "$(touch pwned) `x`\n");
    assert!(!home.dir().join("pwned").exists());
    // The same again, under its name and under another one: GitHub does not sign names.
    for id in ["1", "2"] {
        let again = send(id, &text, &signature(&text));
        assert_eq!((again.status, again.good()["run"].as_str()), (208, Some(run.as_str())), "{again:?}");
    }
    let other = body("other");
    assert_eq!(send("1", &other, &signature(&other)).problem(), "duplicate");
    for (sign, about) in
        [(signature("x"), "forged"), ("sha256=00".to_owned(), "short"), (String::new(), "empty")]
    {
        assert_eq!(send("3", &other, &sign).problem(), "signature", "{about}");
    }
    let unsigned = served.send("POST", "/hooks/issues/new", &[], other.as_bytes());
    // Whether there is such an address is nobody's business.
    assert_eq!(unsigned.problem(), "signature");
    assert_eq!(served.send("POST", "/hooks/nothing/here", &[], other.as_bytes()).problem(), "signature");
    for text in ["{}", "no json", r#"{"issue":{"title":5}}"#, "\u{feff}{}"] {
        let refused = send("4", text, &signature(text));
        assert_eq!((refused.status, refused.problem().as_str()), (422, "arguments"), "{text}");
    }
    let deliveries = served.get(&operator, "/api/v1/deliveries").good();
    assert_eq!(deliveries["deliveries"].as_array().unwrap().len(), 1, "{deliveries}");
    let again = format!("/api/v1/deliveries/{}/redeliver", deliveries["deliveries"][0]["n"]);
    let again = served.post(&operator, &again, &Value::Null);
    assert_eq!(again.status, 202, "{again:?}");
    let again = served.ended(&operator, again.good()["run"].as_str().unwrap());
    assert_eq!((again["status"].as_str(), again["actor"].as_str()), (Some("ok"), Some("operator-person")));
    drop(served);
    // The value of the secret is nowhere in the store.
    assert_eq!(home.program("grep", ["-ra", SECRET, "../state"]).run().stdout, "");
}

#[test]
fn a_token_is_a_secret_in_a_header() {
    let home = home("token");
    let served = Served::start(&home, &[]);
    let send = |bearer: &str, id: &str| {
        served.send(
            "POST",
            "/hooks/issues/new",
            &[("Authorization", bearer), ("Idempotency-Key", id)],
            body(id).as_bytes(),
        )
    };
    assert_eq!(send("Bearer wrong", "a").problem(), "signature");
    let good = format!("Bearer {SECRET}");
    assert_eq!(send(&good, "a").status, 202);
    assert_eq!(send(&good, "a").status, 208);
    wait_until("it ran", || home.read("said") == "a\n");
}

/// A delivery that brings this token.
fn bring(served: &Served, token: &str, id: &str) -> Reply {
    let bearer = format!("Bearer {token}");
    let headers = [("Authorization", bearer.as_str()), ("Idempotency-Key", id)];
    served.send("POST", "/hooks/issues/new", &headers, body(id).as_bytes())
}

#[test]
fn a_secret_that_is_replaced_counts_no_more() {
    let home = home_with("file = \"~/hook_key\"", "token");
    let file = home.dir().join("../home/hook_key");
    std::fs::write(&file, "the-first-one").unwrap();
    let served = Served::start(&home, &[]);
    assert_eq!(bring(&served, "the-first-one", "a").status, 202);
    std::fs::write(&file, "the-other-one").unwrap();
    assert_eq!(bring(&served, "the-first-one", "b").problem(), "signature");
    assert_eq!(bring(&served, "the-other-one", "c").status, 202);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(bring(&served, "the-other-one", "d").problem(), "secret");
    std::fs::write(&file, "the-third-one").unwrap();
    assert_eq!(bring(&served, "the-third-one", "e").status, 202);
    drop(served);
    for value in ["the-first-one", "the-other-one", "the-third-one"] {
        assert_eq!(home.program("grep", ["-ra", value, "../state"]).run().stdout, "");
    }
}

#[test]
fn a_stranger_starts_no_process_with_each_delivery() {
    let home = home_with("command = [\"sh\", \"-c\", \"echo asked >> ~/asked; sleep 1; exit 1\"]", "token");
    let served = Served::start(&home, &[]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..5).for_each(|_| assert_eq!(bring(&served, "x", "a").problem(), "secret")));
        }
    });
    assert_eq!(std::fs::read_to_string(home.dir().join("../home/asked")).unwrap(), "asked\n");
}

#[test]
fn a_path_is_that_of_one_workflow() {
    let home = home("token");
    let other = HOOK.replace("VERIFY", "token").replace("say", "tell");
    home.write("a.lobster", &other);
    let register = |file: &str| home.lobster(["schedule", "register", "--trust", file]).run();
    let refused = register("a.lobster");
    assert!(refused.code() > 0, "{refused:?}");
    for named in
        ["a.lobster: the webhook path \"issues/new\"", "/hook.lobster", "lobster schedule unregister hook"]
    {
        assert!(refused.stderr.contains(named), "{refused:?}");
    }
    // It is nobody else's in its own later versions, and free when its workflow is forgotten.
    home.write("hook.lobster", &other);
    assert_eq!(register("hook.lobster").code(), 0);
    assert_eq!(home.lobster(["schedule", "unregister", "hook"]).run().code(), 0);
    assert_eq!(register("a.lobster").code(), 0);
}

/// `LOBSTER_SERVE_DELIVERIES` deliveries, of which 30 % come twice and 10 % are forged, to a server
/// that is killed again and again.
#[test]
fn no_delivery_is_lost_or_runs_twice_when_the_server_is_killed() {
    let count = number("LOBSTER_SERVE_DELIVERIES", 30);
    let kills = number("LOBSTER_SERVE_KILLS", 3);
    let home = home("github");
    let mut served = Served::start(&home, &["--max-runs", "8"]);
    let (mut taken, mut forged, mut twice) = (HashSet::new(), 0, 0);
    for n in 0..count {
        let text = body(&format!("issue-{n}"));
        if n % 10 == 3 {
            forged += 1;
            let text = body(&format!("forged-{n}"));
            if let Ok(reply) = github(&served, &format!("f{n}"), &text, &signature("x")) {
                assert_eq!(reply.problem(), "signature");
            }
        }
        // A sender that hears nothing sends again, as they do; and some send again all the same.
        let mut again = if n % 10 < 3 { 2 } else { 1 };
        twice += again - 1;
        while again > 0 {
            if kills > 0 && n % (count / kills).max(1) == 1 && again == 1 && taken.insert(format!("kill-{n}"))
            {
                served.kill();
                served = Served::start(&home, &["--max-runs", "8"]);
            }
            if let Ok(reply) = github(&served, &format!("d{n}"), &text, &signature(&text)) {
                assert!([202, 208].contains(&reply.status), "{reply:?}");
                again -= 1;
            }
        }
        taken.insert(format!("issue-{n}"));
    }
    let sent: HashSet<String> = taken.into_iter().filter(|name| name.starts_with("issue")).collect();
    wait_until("every delivery ran", || home.read("said").lines().count() >= sent.len());
    let lines: Vec<String> = home.read("said").lines().map(str::to_owned).collect();
    assert_eq!(lines.iter().cloned().collect::<HashSet<_>>(), sent);
    assert_eq!(lines.len(), sent.len(), "some ran twice");
    let runs: Value =
        serde_json::from_str(&home.lobster(["runs", "--json", "--limit", "0"]).run().stdout).unwrap();
    assert_eq!(runs.as_array().unwrap().len(), sent.len());
    println!("{} deliveries ran once; {twice} came twice, {forged} were forged", sent.len());
}
