//! Who is told what: each occasion once, until it is taken, and to nobody who does not want it.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::home::{Home, wait_until};
use crate::served::{Served, register, token};

/// A mail server that takes everything after it has refused the first mail.
fn mail_server() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mails = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&mails);
    std::thread::spawn(move || {
        for (at, stream) in listener.incoming().enumerate() {
            let mail = stream.and_then(|stream| take_mail(stream, at == 0));
            kept.lock().unwrap().extend(mail.ok().flatten());
        }
    });
    (address, mails)
}

fn take_mail(stream: TcpStream, refuses: bool) -> std::io::Result<Option<String>> {
    let mut out = stream.try_clone()?;
    let mut lines = BufReader::new(stream).lines();
    out.write_all(b"220-hello\r\n220 there\r\n")?;
    let mut said = Vec::new();
    while let Some(line) = lines.next().transpose()? {
        let answer: &[u8] = match line.as_str() {
            "DATA" if refuses => b"451 later\r\n",
            "DATA" => {
                out.write_all(b"354 go on\r\n")?;
                let mail: Vec<_> =
                    lines.by_ref().map_while(Result::ok).take_while(|line| line != ".").collect();
                said.extend(mail);
                out.write_all(b"250 taken\r\n")?;
                return Ok(Some(said.join("\n")));
            }
            line if line.starts_with("EHLO") => b"250-mail\r\n250 AUTH PLAIN\r\n",
            line if line.starts_with("AUTH PLAIN") => b"235 welcome\r\n",
            _ => b"250 ok\r\n",
        };
        said.push(line);
        out.write_all(answer)?;
    }
    Ok(None)
}

/// Heads and bodies.
type Requests = Arc<Mutex<Vec<(String, String)>>>;

/// A receiver of webhooks and of ntfy that fails the first two requests.
fn receiver() -> (String, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let taken = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&taken);
    std::thread::spawn(move || {
        for (at, stream) in listener.incoming().flatten().enumerate() {
            let answer = if at < 2 { "503 Service Unavailable" } else { "200 OK" };
            let request = read_request(stream, answer).ok();
            kept.lock().unwrap().extend(request.filter(|_| at >= 2));
        }
    });
    (address, taken)
}

fn read_request(stream: TcpStream, answer: &str) -> std::io::Result<(String, String)> {
    let mut out = stream.try_clone()?;
    let mut from = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if from.read_line(&mut head)? == 0 {
            break;
        }
    }
    let length = head.to_ascii_lowercase();
    let length = length.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    std::io::Read::read_exact(&mut from, &mut body)?;
    write!(out, "HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
    Ok((head, String::from_utf8_lossy(&body).into_owned()))
}

fn ledger(home: &Home) -> Vec<Value> {
    let told = home.lobster(["serve", "notices", "--json", "-n", "1000"]).run();
    serde_json::from_str(&told.stdout).unwrap_or_else(|error| panic!("{error}: {told:?}"))
}

/// Three workflows, and five who want to hear of different things.
fn write_files(home: &Home, http: &str, mail: &str) {
    home.write("ask.lobster", "steps:\n  - {id: ask, approval: 'Ship it?'}\n  - {id: a, run: 'true'}\n");
    home.write("fail.lobster", "steps: [{id: a, run: 'exit 3'}]\n");
    home.write("good.lobster", "notify: {ok: named}\nsteps: [{id: a, run: 'true'}]\n");
    home.write("tell", "#!/bin/sh\nsaid=$(cat); printf '%s\\n' \"$said\" >> told; echo \"$LOBSTER_NOTICE_TITLE\" >> titles\n");
    let work = home.dir();
    std::fs::set_permissions(work.join("tell"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    home.write(
        "serve.toml",
        format!(
            "url = 'https://flows.example/'\n\
             [[notify]]\nname = 'script'\ncommand = ['/bin/sh', '-c', 'cd {work} && ./tell']\n\
             [[notify]]\nname = 'hook'\non = ['ok', 'failed']\nwebhook = {{ url = 'http://{http}/h', secret = 'hook_key' }}\n\
             [[notify]]\nname = 'phone'\non = ['question']\nntfy = {{ url = 'http://{http}/topic' }}\n\
             [[notify]]\nname = 'mail'\non = ['failed']\nworkflows = ['fail']\nemail = {{ server = '{mail}', tls = 'none', from = 'lobster@example.org', to = ['ann@example.org'], user = 'u', password = 'hook_key' }}\n\
             [[notify]]\nname = 'named'\nworkflows = []\ncommand = ['/bin/true']\n\
             [[notify]]\nname = 'nobody'\nworkflows = ['other']\ncommand = ['/bin/false']\n",
            work = work.display()
        ),
    );
    let config = home.dir().join("../home/.config/lobster");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("secrets.toml"), "[secrets.hook_key]\nenv = \"HOOK_KEY\"\n").unwrap();
}

#[test]
fn questions_and_ends_are_told_once_to_each_who_wants_to_hear_of_them() {
    let home = Home::new();
    let (mail, mails) = mail_server();
    let (http, requests) = receiver();
    write_files(&home, &http, &mail);
    register(&home, &["ask.lobster", "fail.lobster", "good.lobster"]);
    let started = Served::start(&home, &["--config", "serve.toml"]);
    let mut served = started;
    let operator = token(&home, "operator", None);
    let start = |served: &Served, name: &str| {
        served.post(&operator, &format!("/api/v1/workflows/{name}/runs"), &json!({})).good();
    };
    start(&served, "ask");
    start(&served, "fail");
    start(&served, "good");
    let gate = served.question(&operator);
    wait_until("the question is told", || {
        ledger(&home).iter().filter(|one| one["kind"] == "question" && one["state"] == "sent").count() == 2
    });
    served.kill();
    served = Served::start(&home, &["--config", "serve.toml"]);
    let path = format!("/api/v1/approvals/{}/answer", gate["id"].as_str().unwrap());
    served.post(&operator, &path, &json!({ "decision": "approve", "digest": gate["digest"] })).good();
    let count = |kind: &str, target: &str| {
        let rows = ledger(&home);
        let found = rows.iter().filter(|one| one["kind"] == kind && one["target"] == target);
        found.filter(|one| one["state"] == "sent").count()
    };
    wait_until("all is told", || {
        ledger(&home).iter().all(|one| one["state"] == "sent")
            && count("ok", "phone") == 1
            && count("ok", "script") == 1
    });
    let rows = ledger(&home);
    let told = |target: &str| {
        let mut kinds: Vec<_> = rows
            .iter()
            .filter(|one| one["target"] == target)
            .map(|one| one["kind"].as_str().unwrap())
            .collect();
        kinds.sort_unstable();
        kinds.join(" ")
    };
    // Whoever was asked hears who answered and how the run ended.
    assert_eq!(told("script"), "answered failed ok question");
    assert_eq!(told("phone"), "answered ok question");
    assert_eq!(
        (told("hook").as_str(), told("mail").as_str(), told("nobody").as_str()),
        ("failed ok ok", "failed", "")
    );
    assert_eq!(told("named"), "ok", "good.lobster names it");
    let script: Vec<Value> =
        home.read("told").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let question = script.iter().find(|one| one["type"] == "question").unwrap();
    assert_eq!((&question["question"], &question["digest"]), (&json!("Ship it?"), &gate["digest"]));
    assert_eq!(question["link"], format!("https://flows.example/questions/{}", gate["id"].as_str().unwrap()));
    assert!(!question.to_string().contains("oken"), "a notice carries nothing: {question}");
    let answered = script.iter().find(|one| one["type"] == "answered").unwrap();
    assert_eq!((&answered["by"], &answered["status"]), (&json!("operator-person"), &json!("answered")));
    assert!(home.read("titles").contains("ask asks\n") && home.read("titles").contains("fail: failed\n"));
    let requests = requests.lock().unwrap();
    let signed = requests
        .iter()
        .filter(|(head, _)| head.starts_with("POST /h ") && head.contains("webhook-signature: v1,"));
    assert_eq!(signed.count(), 3, "{requests:?}");
    assert!(
        requests.iter().any(|(head, body)| head.contains("title: ask asks") && body.contains("Ship it?"))
    );
    let mails = mails.lock().unwrap();
    assert!(mails.len() == 1 && mails[0].contains("RCPT TO:<ann@example.org>"), "{mails:?}");
    let tried: Vec<_> =
        rows.iter().filter(|one| one["target"] == "mail").map(|one| one["attempts"].as_i64()).collect();
    assert_eq!(tried, [Some(2)], "refused once");
    assert_eq!(
        served.get(&operator, "/api/v1/notices").good()["notices"].as_array().unwrap().len(),
        rows.len()
    );
    served.signal(Signal::TERM);
    assert_eq!(crate::home::wait(&mut served.child, &"serve").code(), Some(143));
    let listed = home.lobster(["serve", "notices"]).run();
    assert!(listed.stdout.contains("question ask") && listed.stdout.contains("sent"), "{listed:?}");
}

#[test]
fn a_workflow_that_has_nobody_told_is_reported() {
    let home = Home::new();
    home.write("lost.lobster", "notify: phoen\nsteps: [{id: a, run: 'true'}]\n");
    register(&home, &["lost.lobster"]);
    let served = Served::start(&home, &[]);
    wait_until("it says so", || served.has_said("workflow lost notifies phoen, which no [[notify]]"));
}

#[test]
fn a_file_that_says_nonsense_of_notices_is_refused() {
    let home = Home::new();
    for (written, about) in [
        ("[[notify]]\nname = 'a'\n", "one of command, webhook, ntfy, email, telegram and slack"),
        ("[[notify]]\nname = 'a'\ncommand = ['tell']\n", "absolute path"),
        (
            "[[notify]]\nname = 'a'\ncommand = ['/bin/true']\n[[notify]]\nname = 'a'\ncommand = ['/bin/true']\n",
            "two of [[notify]] have the name \"a\"",
        ),
    ] {
        home.write("serve.toml", written);
        let refused = home.lobster(["serve", "--listen", "127.0.0.1:0", "--config", "serve.toml"]).run();
        assert!(refused.code() == 2 && refused.stderr.contains(about), "{refused:?}");
    }
}

#[test]
fn a_target_that_hangs_delays_no_other() {
    let home = Home::new();
    home.write("ask.lobster", "steps:\n  - {id: ask, approval: 'Go on?'}\n");
    register(&home, &["ask.lobster"]);
    let target = |name: &str, script: &str| {
        format!("[[notify]]\nname = '{name}'\non = ['question']\ncommand = ['/bin/sh', '-c', '{script}']\n")
    };
    let told = home.dir().join("told");
    let fast = format!("cat > /dev/null; echo told >> {}", told.display());
    home.write("serve.toml", target("hangs", "sleep 600") + &target("fast", &fast));
    let _served = Served::start(&home, &["--config", "serve.toml"]);
    let count = || std::fs::read_to_string(&told).unwrap_or_default().lines().count();
    // The second one comes up while the first one hangs at the other target.
    let begun = std::time::Instant::now();
    for told in 1..=2 {
        assert_eq!(home.lobster(["schedule", "run-now", "ask"]).run().code(), 0);
        wait_until("the question is told", || count() == told);
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
}
