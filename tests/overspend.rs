//! Random workflows against a server that counts what it would bill: under `cost_limit: stop` and under budgets
//! in calls, tokens and dollars, of runs and of a day, that is never more than the limit, whatever fails, lies,
//! is cut off, tried again or resumed.
//!
//! `LOBSTER_OVERSPEND_WORKFLOWS` says how many, `LOBSTER_OVERSPEND_SEED` from where on.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::home::Home;
use crate::random_workflows::Dice;
use crate::server::{Reply, Request, Server};
use crate::setting::number;

fn one<T: Copy>(random: &mut Dice, of: &[T]) -> T {
    *random.pick(of).expect("it is not empty")
}

/// Dollars per million tokens, as in the built-in table.
fn price(model: &str) -> Option<(f64, f64)> {
    match model {
        "gpt-4o" => Some((2.5, 10.0)),
        "gpt-4o-mini" => Some((0.15, 0.6)),
        "gpt-4-turbo" => Some((10.0, 30.0)),
        _ => None,
    }
}

/// What the server has seen and would bill.
#[derive(Default)]
struct Bill {
    usd: f64,
    tokens: u64,
    /// Requests that were not refused.
    calls: u64,
    requests: usize,
    lost: usize,
    lies: usize,
    unpriced: usize,
}

/// What a request costs if the model writes as much as it may, and `share` percent of that.
fn cost(request: &Request, share: u64) -> Option<(f64, u64, u64, String)> {
    let body = request.json();
    let model = body["model"].as_str()?.to_owned();
    let most = ["max_tokens", "maxOutputTokens"].iter().find_map(|name| body[*name].as_u64())?;
    let (read, written) = price(&model)?;
    let input = (request.body.len() as u64 * share / 100).max(1);
    let output = most * share / 100;
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    Some(((input as f64 * read + output as f64 * written) / 1e6, input, output, model))
}

/// Plays a model: honest, cut off, overloaded, lying. Everything that was computed is billed.
fn answer(request: &Request, random: &mut Dice, bill: &mut Bill) -> Reply {
    bill.requests += 1;
    let whole = cost(request, 100);
    let Some((most, most_in, most_out, _)) = whole else {
        bill.unpriced += 1;
        return Reply::status(400, "", "no price");
    };
    let reply = |model: &str, usage: Value| {
        Reply::json(&json!({
            "id": "c", "model": model, "usage": usage,
            "choices": [{"message": {"content": "{\"n\": 1}"}, "finish_reason": "stop"}],
            "output": {"text": "t", "data": {"n": 1}},
        }))
    };
    match random.below(16) {
        0 => Reply::status(429, "", "slow down"),
        1 => Reply::status(400, "", "no"),
        lost @ 2..=5 => {
            bill.usd += most;
            bill.tokens += most_in + most_out;
            bill.calls += 1;
            bill.lost += 1;
            match lost {
                2 => Reply::Bytes(b"HTTP/1.1 200 X\r\ncontent-length: 900\r\n\r\n{\"ch".to_vec()),
                3 => Reply::Bytes(Vec::new()),
                4 => Reply::status(503, "", "overloaded"),
                _ => Reply::status(200, "", "<html>"),
            }
        }
        6 | 7 => {
            bill.usd += most;
            bill.tokens += most_in + most_out;
            bill.calls += 1;
            bill.lies += 1;
            let usages = [
                json!(null),
                json!({}),
                json!({"prompt_tokens": 0, "completion_tokens": 0, "inputTokens": 0, "outputTokens": 0}),
                json!({"prompt_tokens": -5, "completion_tokens": -5, "inputTokens": -9, "outputTokens": -9}),
                json!({"prompt_tokens": "x", "completion_tokens": [], "inputTokens": {}, "outputTokens": "y"}),
            ];
            let usage = usages[usize::try_from(random.below(5)).unwrap()].clone();
            reply("gpt-4o-mini", usage)
        }
        _ => {
            let share = 1 + random.below(100);
            let (usd, input, output, model) = cost(request, share).expect("it had a price before");
            bill.usd += usd;
            bill.tokens += input + output;
            bill.calls += 1;
            let named = one(random, &[model.as_str(), "gpt-4o-mini", "elsewhere", "gpt-4-turbo"]);
            let usage = json!({"prompt_tokens": input, "completion_tokens": output,
                               "inputTokens": input, "outputTokens": output});
            reply(named, usage)
        }
    }
}

/// A step that asks a model, indented by `indent`.
fn ask(random: &mut Dice, id: &str, indent: &str) -> String {
    let model = one(random, &["gpt-4o", "gpt-4o", "gpt-4o-mini", "gpt-4-turbo", "no-price"]);
    let provider = one(random, &["openai", "openai", "http", "pool", "pool:other"]);
    let model = if provider.starts_with("pool") { String::new() } else { format!("--model {model} ") };
    let schema = match random.below(4) {
        0 => r#"--output-schema '{"type":"object","required":["n","m"]}' --max-validation-retries 2 "#,
        1 => r#"--output-schema '{"type":"object","required":["n"]}' "#,
        _ => "",
    };
    let cache = one(random, &["", "--disable-cache ", "--refresh "]);
    let after = one(random, &["", "", " | exec --shell 'exit 3'"]);
    let (prompt, most) = (random.below(3), 200 + random.below(1000));
    let mut step = format!(
        "{indent}- id: {id}\n{indent}  pipeline: llm.invoke --provider {provider} {model}{schema}{cache}\
         --max-output-tokens {most} --prompt p{prompt}{after}\n"
    );
    if random.below(2) == 0 {
        let max = 2 + random.below(4);
        writeln!(step, "{indent}  retry: {{max: {max}, delay_ms: 1}}").unwrap();
    }
    if random.below(8) == 0 {
        writeln!(step, "{indent}  timeout_ms: 20").unwrap();
    }
    if random.below(6) == 0 {
        let budget = one(random, &["calls: 1", "tokens: 1500", "usd: 0.004", "calls: 2, usd: 9"]);
        writeln!(step, "{indent}  budget: {{{budget}}}").unwrap();
    }
    if random.below(4) != 0 {
        writeln!(step, "{indent}  on_error: continue").unwrap();
    }
    step
}

/// Steps of a workflow, with loops and branches.
fn steps(random: &mut Dice, prefix: &str) -> String {
    let mut text = String::from("steps:\n  - id: list\n    run: echo '[1,2,3]'\n");
    for index in 0..1 + random.below(5) {
        let id = format!("{prefix}{index}");
        match random.below(5) {
            0 => {
                let wait = one(random, &["all", "any"]);
                write!(text, "  - id: {id}\n    on_error: continue\n    parallel:\n      wait: {wait}\n      branches:\n")
                    .unwrap();
                for branch in 0..2 + random.below(3) {
                    text += &ask(random, &format!("{id}b{branch}"), "        ");
                }
            }
            1 => {
                write!(text, "  - id: {id}\n    on_error: continue\n    for_each: $list.json\n    steps:\n")
                    .unwrap();
                text += &ask(random, &format!("{id}e"), "      ");
            }
            _ => text += &ask(random, &id, "  "),
        }
    }
    text
}

/// What all workflows came to.
#[derive(Default)]
struct Seen {
    requests: usize,
    lost: usize,
    lies: usize,
    near: usize,
    refused: usize,
    refused_by_budget: usize,
    days: usize,
}

/// What the outermost workflow holds its calls to.
struct Held {
    limit: f64,
    /// Whether dollars are limited, and by `cost_limit` or by `budget`.
    usd: bool,
    is_cost_limit: bool,
    is_of_day: bool,
    tokens: Option<u64>,
    calls: Option<u64>,
}

impl Held {
    fn at_random(random: &mut Dice, limit: f64) -> Self {
        let is_cost_limit = random.below(2) == 0;
        let tokens = (random.below(3) == 0).then(|| 1000 + random.below(6000));
        let calls = (random.below(3) == 0).then(|| 1 + random.below(6));
        let usd = is_cost_limit || random.below(2) == 0 || (tokens.is_none() && calls.is_none());
        // `cost_limit` holds one run, so a second run may spend as much.
        let is_of_day = !is_cost_limit && random.below(2) == 0;
        Self { limit, usd, is_cost_limit, is_of_day, tokens, calls }
    }

    fn text(&self) -> String {
        let mut limits = Vec::new();
        limits.extend((self.usd && !self.is_cost_limit).then(|| format!("usd: {}", self.limit)));
        limits.extend(self.tokens.map(|tokens| format!("tokens: {tokens}")));
        limits.extend(self.calls.map(|calls| format!("calls: {calls}")));
        let limits = limits.join(", ");
        let cost_limit = match self.is_cost_limit {
            true => format!("cost_limit: {{max_usd: {}, action: stop}}\n", self.limit),
            false => String::new(),
        };
        match (limits.as_str(), self.is_of_day) {
            ("", _) => cost_limit,
            (limits, true) => format!("{cost_limit}budget: {{day: {{{limits}}}}}\n"),
            (limits, false) => format!("{cost_limit}budget: {{{limits}}}\n"),
        }
    }
}

fn spend_at_random(seed: u64, seen: &Mutex<Seen>) {
    let mut random = Dice::new(seed);
    let bill: Arc<Mutex<Bill>> = Arc::default();
    let (counted, chance) = (Arc::clone(&bill), Mutex::new(Dice::new(!seed)));
    let server = Server::start(move |_, request| {
        let (reply, pause) = {
            let mut random = chance.lock().unwrap();
            (answer(request, &mut random, &mut counted.lock().unwrap()), random.below(30))
        };
        std::thread::sleep(Duration::from_millis(pause));
        reply
    });
    let limit = 0.002 + f64::from(u32::try_from(random.below(60)).unwrap()) / 1000.0;
    let channel = |name: &str, model: &str, priority: u64| json!({"name": name, "provider": "openai", "model": model, "url": server.url(), "priority": priority});
    let pools = json!({"pools": {
        "default": [channel("a", "gpt-4-turbo", 1), channel("b", "gpt-4o", 2), channel("c", "no-price", 3)],
        "other": [channel("c", "no-price", 1), channel("d", "gpt-4o-mini", 2), channel("b", "gpt-4o", 2)],
    }});
    let home = Home::new();
    home.write("pools.json", pools.to_string());
    let inner = one(
        &mut random,
        &[
            "",
            "cost_limit: {max_usd: 0.01, action: stop}\n",
            "cost_limit: {max_usd: 9}\n",
            "budget: {calls: 3}\n",
        ],
    );
    home.write("inner.lobster", format!("{inner}{}", steps(&mut random, "i")));
    let held = Held::at_random(&mut random, limit);
    let mut flow = format!("{}{}", held.text(), steps(&mut random, "s"));
    if random.below(2) == 0 {
        flow += "  - id: sub\n    workflow: inner.lobster\n    on_error: continue\n    retry: {max: 2, delay_ms: 1}\n";
        flow += &ask(&mut random, "last", "  ");
    }
    home.write("flow.lobster", &flow);
    let run = |words: &[&str]| {
        let call = home.lobster(words);
        call.env("OPENAI_BASE_URL", server.url())
            .env("LOBSTER_LLM_ADAPTER_URL", server.url())
            .env("LOBSTER_LLM_POOL", "pools.json")
            .run()
    };
    let mut said = vec![run(&["run", "--mode", "tool", "flow.lobster"])];
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    let id =
        runs[0]["id"].as_str().unwrap_or_else(|| panic!("seed {seed}: no run: {said:?}\n{flow}")).to_owned();
    for _ in 0..random.below(3) {
        said.push(run(&["resume", &id, "--retry-interrupted"]));
    }
    if held.is_of_day {
        said.push(run(&["run", "--mode", "tool", "flow.lobster"]));
    }
    let bill = bill.lock().unwrap();
    if held.usd {
        assert!(bill.usd <= limit + 1e-9, "seed {seed}: {} of {limit} spent\n{flow}\n{said:?}", bill.usd);
    }
    for (name, used, limit) in [("tokens", bill.tokens, held.tokens), ("calls", bill.calls, held.calls)] {
        assert!(
            limit.is_none_or(|limit| used <= limit),
            "seed {seed}: {used} {name} of {limit:?} used\n{flow}\n{said:?}"
        );
    }
    assert!(!held.usd || bill.unpriced == 0, "seed {seed}: a model without a price was asked\n{flow}");
    let mut seen = seen.lock().unwrap();
    seen.requests += bill.requests;
    seen.lost += bill.lost;
    seen.lies += bill.lies;
    let is_near = |used: u64, limit: Option<u64>| limit.is_some_and(|limit| used > limit / 2);
    seen.near += usize::from(
        (held.usd && bill.usd > limit / 2.0)
            || is_near(bill.tokens, held.tokens)
            || is_near(bill.calls, held.calls),
    );
    let has_said = |text: &str| usize::from(said.iter().any(|answer| answer.stdout.contains(text)));
    seen.refused += has_said("Cost limit");
    seen.refused_by_budget += has_said("Budget: the call was not made");
    seen.days += usize::from(held.is_of_day);
}

#[test]
fn random_workflows_never_spend_more_than_the_limit() {
    let count = number("LOBSTER_OVERSPEND_WORKFLOWS", 40);
    let first = number("LOBSTER_OVERSPEND_SEED", 1) * 1_000_000;
    let seen = Mutex::default();
    std::thread::scope(|threads| {
        for half in 0..2 {
            let seen = &seen;
            threads.spawn(move || {
                for seed in (first..first + count).filter(|seed| seed % 2 == half) {
                    spend_at_random(seed, seen);
                }
            });
        }
    });
    let seen = seen.into_inner().unwrap();
    println!(
        "{count} workflows: {} requests, {} lost, {} lies; {} used over half, {} were refused a call by cost_limit, \
         {} by a budget; {} budgets were of a day",
        seen.requests, seen.lost, seen.lies, seen.near, seen.refused, seen.refused_by_budget, seen.days
    );
    // The search is one only if workflows come to their limits, by all the ways.
    let count = usize::try_from(count).unwrap();
    assert!(seen.requests > count && seen.near > count / 8 && seen.refused > count / 16);
    assert!(seen.refused_by_budget > count / 8 && seen.days > count / 16);
    assert!(seen.lost > count / 8 && seen.lies > count / 16);
}
