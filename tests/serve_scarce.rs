//! What a server was asked to start runs in the end, whatever the machine cannot give for a moment: processes, threads,
//! descriptors, its own program file, room in the queue.

use serde_json::{Value, json};

use crate::binary;
use crate::faults;
use crate::home::{Home, wait_until};
use crate::served::{Reply, Served, register, token};
use crate::setting::number;

/// A home with a workflow that says that it ran.
fn home() -> Home {
    let home = Home::new();
    home.write("quick.lobster", "steps: [{id: a, run: 'echo x >> said'}]\n");
    register(&home, &["quick.lobster"]);
    home
}

/// Starts a run. A client that is not answered asks again.
fn start(served: &Served, token: &str) -> String {
    let headers =
        [("Authorization", format!("Bearer {token}")), ("Content-Type", "application/json".to_owned())];
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut run = String::new();
    wait_until("a start is accepted", || {
        let Ok(reply) = served.try_send("POST", "/api/v1/workflows/quick/runs", &headers, b"{}") else {
            return false;
        };
        assert!([202, 429, 500, 503].contains(&reply.status), "{reply:?}");
        run = reply.json()["run"].as_str().unwrap_or_default().to_owned();
        reply.status == 202
    });
    run
}

fn ready(served: &Served, token: Option<&str>) -> Reply {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<_> = bearer.iter().map(|bearer| ("Authorization", bearer.as_str())).collect();
    served.send("GET", "/readyz", &headers, b"")
}

/// The abilities that a server reports as missing.
fn cannot(reply: &Reply) -> Vec<String> {
    let reply = reply.json();
    let rows = reply["cannot"].as_array().cloned().unwrap_or_default();
    rows.iter().map(|row| row["what"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn starts_wait_while_neither_a_process_nor_a_thread_can_be_started() {
    let Some(shim) = faults::shim() else { return };
    let home = home();
    let scarce = home.dir().join("scarce");
    let call = home.lobster(["serve", "--listen", "127.0.0.1:0"]);
    let served = Served::started(call.env("LD_PRELOAD", shim).env("LOBSTER_SHIM_SCARCE", &scarce));
    let viewer = token(&home, "viewer", None);
    let operator = token(&home, "operator", None);
    assert_eq!((ready(&served, None).status, start(&served, &operator).len()), (200, 36));
    wait_until("the first one ran", || home.read("said") == "x\n");
    std::fs::write(&scarce, "").unwrap();
    let runs: Vec<String> = (0..6).map(|_| start(&served, &operator)).collect();
    wait_until("the server is not ready", || cannot(&ready(&served, None)) == ["workers"]);
    let told = ready(&served, Some(&viewer));
    assert_eq!((told.status, told.json()["cannot"][0]["why"].is_string()), (503, true), "{told:?}");
    assert!(ready(&served, None).json()["cannot"][0]["why"].is_null(), "strangers learn no reason");
    assert_eq!(served.send("GET", "/healthz", &[], b"").status, 200);
    let why = |run: &str| served.get(&viewer, &format!("/api/v1/runs/{run}")).good();
    wait_until("a start says why it waits", || runs.iter().any(|run| why(run)["error"].is_string()));
    let held_up = runs.iter().map(|run| why(run)).find(|run| run["error"].is_string()).unwrap();
    assert_eq!(held_up["status"], "queued", "{held_up}");
    assert!(held_up["error"].as_str().unwrap().contains("no process can be started now"), "{held_up}");
    let shown = home.lobster(["show", held_up["id"].as_str().unwrap()]).run();
    assert!(shown.stdout.contains("no process can be started now"), "{shown:?}");
    // As many requests at once as there are threads, and more: none ends the server.
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| assert_eq!(served.get(&viewer, "/api/v1/runs").status, 200));
        }
    });
    std::fs::remove_file(&scarce).unwrap();
    for run in &runs {
        assert_eq!(served.ended(&viewer, run)["status"], "ok");
    }
    wait_until("the server is ready", || ready(&served, None).status == 200);
    assert_eq!(home.read("said"), "x\n".repeat(7));
    assert!(!served.has_said("panicked"), "{:?}", served.said);
}

#[test]
fn twenty_starts_run_under_a_limit_of_forty_descriptors() {
    let home = home();
    let words = ["--max-runs", "8"];
    let limited = ["-c", "ulimit -n 40; exec \"$0\" serve --listen 127.0.0.1:0 \"$@\""];
    let call = home.program("/bin/sh", limited).words([binary::lobster()]).words(words);
    let served = Served::started(call);
    let operator = token(&home, "operator", None);
    let runs: Vec<String> = (0..20).map(|_| start(&served, &operator)).collect();
    wait_until("all ran", || home.read("said").lines().count() == runs.len());
    for run in &runs {
        assert_eq!(served.ended(&operator, run)["status"], "ok");
    }
    assert!(!served.has_said("panicked"), "{:?}", served.said);
}

#[test]
fn a_start_runs_while_an_upgrade_replaces_the_program() {
    let home = home();
    let program = home.dir().join("installed");
    binary::copy_program(binary::lobster(), &program);
    let served = Served::started(home.program(&program, ["serve", "--listen", "127.0.0.1:0"]));
    let operator = token(&home, "operator", None);
    std::fs::remove_file(&program).unwrap();
    let run = start(&served, &operator);
    assert_eq!(served.ended(&operator, &run)["status"], "ok");
    assert_eq!(home.read("said"), "x\n");
}

#[test]
fn a_full_queue_is_told_to_programs_as_to_webhooks() {
    let home = home();
    let served = Served::start(&home, &["--max-runs", "1"]);
    let operator = token(&home, "operator", None);
    let run = start(&served, &operator);
    assert_eq!(served.ended(&operator, &run)["status"], "ok");
    let db = rusqlite::Connection::open(home.state().join("store/lobster.db")).unwrap();
    db.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
    db.execute(
        "INSERT INTO starts (run, workflow, digest, cause, detail, args, serial, queued, state)
         WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 10400)
         SELECT randomblob(16), workflow, digest, cause, detail, args, 0, queued, 'queued' FROM c, starts",
        [],
    )
    .unwrap();
    let full = served.post(&operator, "/api/v1/workflows/quick/runs", &json!({}));
    assert_eq!((full.status, full.problem().as_str()), (429, "queue"), "{full:?}");
    assert!(full.head.to_lowercase().contains("retry-after: "), "{full:?}");
}

#[test]
fn a_store_that_cannot_be_used_makes_the_server_unready_and_not_dead() {
    let home = home();
    let served = Served::start(&home, &[]);
    assert_eq!(ready(&served, None).json(), json!({ "status": "ready" }));
    let (store, away) = (home.state().join("store"), home.dir().join("away"));
    std::fs::rename(&store, &away).unwrap();
    wait_until("it is not ready", || cannot(&ready(&served, None)) == ["store", "record"]);
    std::fs::rename(&away, &store).unwrap();
    wait_until("it is ready again", || ready(&served, None).status == 200);
}

/// The processes that a process has started.
fn children_of(pid: u32) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|process| process.file_name().to_str()?.parse::<i32>().ok());
    let is_child = |number: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)) == Some(pid.to_string().as_str())
    };
    numbers.filter(is_child).collect()
}

/// `LOBSTER_SERVE_EVENTS` runs, each with an event that is sent as soon as its start was accepted, at two servers with
/// one place each, of which one is killed with its workers `LOBSTER_SERVE_EVENT_KILLS` times.
#[test]
fn no_event_is_lost_between_the_answer_and_the_begin_of_its_run() {
    let count: usize = number("LOBSTER_SERVE_EVENTS", 8);
    let kills: usize = number("LOBSTER_SERVE_EVENT_KILLS", 2);
    let home = Home::new();
    let text = "args: {n: {type: integer}}\nsteps:\n  - {id: w, wait: {event: 'paid/${n}'}}\n  - {id: b, run: 'echo got >> said'}\n";
    home.write("ev.lobster", text);
    home.write("busy.lobster", "steps: [{id: a, run: 'until [ -e go ]; do sleep 0.05; done'}]\n");
    register(&home, &["ev.lobster", "busy.lobster"]);
    let operator = token(&home, "operator", None);
    let one = || Served::start(&home, &["--max-runs", "1"]);
    let mut servers = [one(), one()];
    let post = |served: &Served, path: &str, body: &Value| {
        let bearer = format!("Bearer {operator}");
        let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
        served.send("POST", path, &headers, body.to_string().as_bytes())
    };
    // Both places are taken, so that the first events surely come before their runs begin.
    for served in &servers {
        post(served, "/api/v1/workflows/busy/runs", &json!({})).good();
    }
    let mut runs = Vec::new();
    for n in 0..count {
        let start = post(&servers[n % 2], "/api/v1/workflows/ev/runs", &json!({ "args": { "n": n } })).good();
        runs.push(start["run"].as_str().unwrap().to_owned());
        if n * kills / count != (n + 1) * kills / count {
            let killed = &mut servers[n % 2];
            let workers = children_of(killed.child.id());
            killed.kill();
            for worker in workers.iter().filter_map(|worker| rustix::process::Pid::from_raw(*worker)) {
                // It may have ended.
                let _ = rustix::process::kill_process(worker, rustix::process::Signal::KILL);
            }
            *killed = one();
        }
        // A sender that is not sure sends again: the second one is nobody's.
        for _ in 0..1 + n % 2 {
            let sent = post(&servers[(n + 1) % 2], "/api/v1/events", &json!({ "name": format!("paid/{n}") }));
            assert_eq!(sent.status, 202, "{sent:?}");
        }
        if n == count / 2 {
            std::fs::write(home.dir().join("go"), "").unwrap();
        }
    }
    for run in &runs {
        let begun = std::time::Instant::now();
        loop {
            let found = servers[0].get(&operator, &format!("/api/v1/runs/{run}")).good();
            match found["status"].as_str().unwrap() {
                "ok" => break,
                // Killed in the middle of its only effect.
                "interrupted" if !found["endedAt"].is_null() => break,
                _ => {
                    assert!(begun.elapsed().as_secs() < 60 + 20 * kills as u64, "its event is lost: {found}")
                }
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    println!("{count} events reached their runs, {kills} kills");
}
