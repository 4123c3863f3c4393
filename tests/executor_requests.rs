//! Requests of pipeline commands that an executor makes.

use crate::executors::{orders, shell_words, signal, with_noted_worker};
use crate::home::{Home, interrupted_steps};
use crate::server::{Reply, Server};

/// Requests of pipeline commands are orders as well: each one its own, with its key, and its answer
/// comes back whole, however long it is.
#[test]
fn requests_of_commands_go_through_a_worker() {
    let long = "x".repeat(3 << 20);
    let answer = serde_json::json!({"ok": true, "result": {"said": "my-token-of-some-length", "long": long}});
    let gateway = Server::start(move |_, _| Reply::json(&answer));
    let model = Server::start(|before, request| match (before, request.header("authorization")) {
        // The first channel of the pool is overloaded.
        (0, _) => Reply::status(503, "", "later"),
        (_, Some("Bearer sk-of-the-step-alone")) => Reply::chat("yes"),
        (_, other) => panic!("{other:?}"),
    });
    let home = Home::new();
    home.write("secrets.toml", "[secrets.key]\nenv = \"THE_KEY\"\n").write(
        "flow.lobster",
        "
secrets: [key]
steps:
  - id: gateway
    pipeline: openclaw.invoke --tool t --action a
  - id: model
    pipeline: llm.invoke --provider pool --prompt p --model m
    secrets: { POOL_KEY: key }
",
    );
    let channel = |name: &str| serde_json::json!({"name": name, "provider": "openai", "model": "m", "url": model.url(), "key_env": "POOL_KEY"});
    let worker = with_noted_worker(&home);
    let answer = home
        .lobster(["run", "--mode", "tool", "flow.lobster"])
        .env("LOBSTER_EXECUTOR", worker)
        .env("LOBSTER_SECRETS", home.dir().join("secrets.toml"))
        .env("THE_KEY", "sk-of-the-step-alone")
        .env("OPENCLAW_URL", gateway.url())
        .env("OPENCLAW_TOKEN", "my-token-of-some-length")
        .env("LOBSTER_LLM_POOL", serde_json::json!([channel("one"), channel("two")]).to_string())
        .run();
    assert!(answer.output().to_string().contains("yes"), "{answer:?}");
    assert_eq!(gateway.requests()[0].header("authorization"), Some("Bearer my-token-of-some-length"));
    let orders = orders(&home);
    let of_orders: Vec<_> =
        orders.iter().map(|order| (&order["task"]["kind"], &order["id"]["path"])).collect();
    assert_eq!(of_orders.len(), 3, "{of_orders:?}");
    assert!(of_orders.iter().all(|(kind, _)| *kind == "http"), "{of_orders:?}");
    // A secret goes by its name, and what asks twice gives two orders.
    assert!(!serde_json::to_string(&orders).unwrap().contains("sk-of-the-step-alone"), "{orders:?}");
    assert_ne!(of_orders[1].1, of_orders[2].1, "{of_orders:?}");
    // What the gateway repeated is not kept, here or with the worker.
    let shown = home.lobster(["logs", "@", "--json"]).run().stdout;
    assert!(!shown.contains("my-token-of-some-length") && !shown.contains("sk-of-the-step-alone"), "{shown}");
}

#[test]
fn a_request_whose_worker_is_killed_has_an_unknown_end_and_is_made_once() {
    // Of a pool no other channel is asked then.
    for step in [
        "pipeline: openclaw.invoke --tool t --action a",
        "pipeline: llm.invoke --provider pool --prompt p --model m",
    ] {
        let server = Server::start(|_, _| Reply::Silence);
        let home = Home::new();
        home.write(
            "worker",
            format!("#!/bin/sh\necho $$ > worker.pid\nexec {}\n", shell_words(&Home::worker())),
        )
        .write(
            "flow.lobster",
            format!("steps:\n  - id: ask\n    {step}\n    retry: {{ max: 3, delay_ms: 1 }}\n"),
        );
        let worker = serde_json::json!([home.dir().join("worker")]).to_string();
        let channel = |name: &str| serde_json::json!({"name": name, "provider": "http", "model": "m", "url": server.url()});
        let pool = serde_json::json!([channel("one"), channel("two")]).to_string();
        let answer = std::thread::scope(|scope| {
            let call = home.lobster(["run", "--mode", "tool", "flow.lobster"]);
            let call = call.env("LOBSTER_EXECUTOR", worker).env("OPENCLAW_URL", server.url());
            let running = scope.spawn(|| call.env("LOBSTER_LLM_POOL", pool).run());
            server.wait_for(1);
            signal(&home.read("worker.pid"), rustix::process::Signal::KILL);
            running.join().unwrap()
        });
        let error = answer.error();
        assert!(error.contains("executor_died") && error.contains("SIGKILL"), "{step}: {answer:?}");
        let interrupted: Vec<_> = interrupted_steps(&error).collect();
        assert!(matches!(interrupted[..], [path] if path.starts_with("ask|")), "{step}: {interrupted:?}");
        assert_eq!(server.requests().len(), 1, "{step}");
    }
}
