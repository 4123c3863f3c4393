//! The console over HTTP, as a browser without scripts sees it: each page as each role, forms, hostile
//! texts, sizes. What needs a real browser is in `tests/console/`.

use serde_json::{Value, json};

use crate::browser::{Browser, Page, bare, encoded, header, send};
use crate::home::{Home, wait_until};
use crate::served::{Served, register, token};

const FLOW: &str = "name: Asks\nargs: {who: {default: ann}, n: {default: 2, type: integer}}\non: {schedule: {cron: '0 0 1 1 *'}}\nsteps:\n  \
    - {id: rows, run: 'echo \"[{\\\"a\\\":1,\\\"b\\\":\\\"x\\\"},{\\\"a\\\":2,\\\"b\\\":\\\"y\\\"}]\"'}\n  \
    - {id: ask, approval: 'Go on?', stdin: $rows.json}\n  - {id: go, run: 'echo done >> said'}\n";

struct World {
    home: Home,
    served: Served,
    /// A run that waits, its question, and a run that failed.
    run: String,
    gate: String,
    failed: String,
}

impl World {
    fn new() -> Self {
        let home = Home::new();
        home.write("asks.lobster", FLOW);
        home.write("fails.lobster", "steps:\n  - id: fine\n    run: echo hi\n  - id: bad\n    run: 'echo 17: no such column >&2; exit 3'\n");
        register(&home, &["asks.lobster"]);
        assert_eq!(home.lobster(["run", "--mode", "tool", "fails.lobster"]).run().code(), 1);
        let served = Served::start(&home, &[]);
        let operator = token(&home, "operator", None);
        let run = served.post(&operator, "/api/v1/workflows/asks/runs", &json!({})).good();
        let run = run["run"].as_str().unwrap().to_owned();
        let gate = served.question(&operator)["id"].as_str().unwrap().to_owned();
        let failed = served.get(&operator, "/api/v1/runs?status=failed").good()["runs"][0]["id"]
            .as_str()
            .unwrap()
            .to_owned();
        Self { home, served, run, gate, failed }
    }

    fn pages(&self) -> Vec<String> {
        let (run, gate, failed) = (&self.run, &self.gate, &self.failed);
        let plain = [
            "/",
            "/runs",
            "/runs?status=failed",
            "/workflows",
            "/workflows/asks",
            "/schedules",
            "/store",
            "/doctor",
            "/passkeys",
            "/policy?command=rm+x",
        ];
        let mut pages: Vec<String> = plain.map(str::to_owned).to_vec();
        pages.extend([
            format!("/runs/{run}"),
            format!("/runs/{failed}"),
            format!("/runs/{failed}/step?path=bad"),
            format!("/questions/{gate}"),
        ]);
        pages
    }
}

#[test]
fn every_page_shows_each_role_what_it_may_and_no_button_more() {
    let world = World::new();
    for (role, answers, operates, administers) in [
        ("viewer", false, false, false),
        ("approver", true, false, false),
        ("operator", true, true, false),
        ("admin", true, true, true),
    ] {
        let browser = Browser::log_in(&world.home, &world.served, role);
        for path in world.pages() {
            let page = browser.page(&path);
            page.assert_tame(&path);
            // Each link of ours leads somewhere.
            for link in page.links().into_iter().filter(|link| !link.starts_with('#')) {
                let target = link.split('#').next().unwrap();
                assert!(
                    [200, 404].contains(&browser.get(target).status) || target == "/audit",
                    "{path} -> {target}"
                );
            }
        }
        let question = browser.get(&format!("/questions/{}", world.gate)).body;
        assert_eq!(question.contains("Yes, do it"), answers, "{role}");
        let failed = browser.get(&format!("/runs/{}", world.failed)).body;
        assert_eq!(failed.contains("Retry from there"), operates, "{role}");
        for button in ["Verify now", "What would go?", "Copy now"] {
            assert_eq!(browser.get("/store").body.contains(button), administers, "{role}: {button}");
        }
        assert_eq!(browser.get("/audit").status == 200, administers, "{role}");
        let denied =
            browser.post(&format!("/questions/{}", world.gate), &[("decision", "approve"), ("digest", "no")]);
        assert_eq!(denied.status, if answers { 409 } else { 403 }, "{role}: {denied:?}");
    }
    assert_eq!(world.home.read("said"), "");
}

#[test]
fn an_admin_has_old_runs_removed_and_the_store_copied() {
    let world = World::new();
    let browser = Browser::log_in(&world.home, &world.served, "admin");
    let runs_in = |state: &std::path::Path| {
        let listed = world.home.lobster(["runs", "--json"]).env("LOBSTER_STATE_DIR", state).run().stdout;
        serde_json::from_str::<Vec<Value>>(&listed).unwrap().len()
    };
    let runs = || runs_in(&world.home.state());
    assert_eq!(runs(), 2);

    let collect = |act: &str, age: &str| browser.post("/store/collect", &[("older-than", age), ("act", act)]);
    let look = collect("look", "7d");
    assert!(look.body.contains("Would go: 0 of 2 runs") && look.body.contains("Remove them"), "{look:?}");
    let removed = collect("remove", "7d");
    assert!(removed.body.contains("Removed: 0 of 2 runs"), "{removed:?}");
    for (act, age) in [("look", "1h"), ("look", ""), ("", "7d"), ("remove --all", "7d")] {
        assert_eq!(collect(act, age).status, 400, "{act} {age}");
    }
    // The one that failed is a year old, the other one waits.
    let database = rusqlite::Connection::open(world.home.state().join("store/lobster.db")).unwrap();
    let year = 366 * 86_400_000_i64;
    let aged =
        database.execute("UPDATE runs SET ended = ended - ?1, started = started - ?1", [year]).unwrap();
    assert_eq!(aged, 2);
    assert!(collect("look", "365d").body.contains("Would go: 1 of 2 runs"));
    assert_eq!(runs(), 2, "a look changes nothing");
    assert!(collect("remove", "365d").body.contains("Removed: 1 of 2 runs"));
    assert_eq!(runs(), 1);
    assert_eq!(browser.get(&format!("/runs/{}", world.failed)).status, 404);
    assert_eq!(browser.get(&format!("/questions/{}", world.gate)).status, 200);

    let copied = browser.post("/store/backup", &[]);
    let state = world.home.state();
    let copies = state.with_file_name(format!("{}-copies", state.file_name().unwrap().display()));
    let copies: Vec<_> = std::fs::read_dir(copies).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [copy] = &copies[..] else { panic!("{copies:?}") };
    let copy = copy.display().to_string();
    assert!(copied.body.contains(&format!("A copy is in {copy}")), "{copied:?}");
    assert_eq!(runs_in(copy.as_ref()), 1);
    // Who had it done stands in the trail.
    let admin = token(&world.home, "admin", None);
    let trail = world.served.get(&admin, "/api/v1/trail").good().to_string();
    for told in ["remove-runs", "365d", "copy-store", &copy] {
        assert!(trail.contains(told), "{told}: {trail}");
    }
}

#[test]
fn a_failed_run_opens_at_its_line() {
    let world = World::new();
    let browser = Browser::log_in(&world.home, &world.served, "viewer");
    let page = browser.page(&format!("/runs/{}", world.failed));
    for told in ["Failed at bad", "fails.lobster:4", "17: no such column", "lobster help command_failed"] {
        assert!(bare(&page.text).contains(&bare(told)), "{told} is not in {}", page.text);
    }
    let step = browser.page(&format!("/runs/{}/step?path=bad", world.failed));
    assert!(step.text.contains("echo 17: no such column >&2; exit 3"), "{}", step.text);
    let file = browser.get(&format!("/runs/{}/output?path=bad&stream=stderr", world.failed));
    assert!(
        file.body == "17: no such column\n"
            && header(&file, "content-disposition").unwrap().starts_with("attachment")
    );
    assert!(header(&file, "content-security-policy").unwrap().contains("sandbox"), "{file:?}");
}

#[test]
fn a_question_shows_what_the_terminal_shows_and_takes_an_answer_for_that_alone() {
    let world = World::new();
    let browser = Browser::log_in(&world.home, &world.served, "approver");
    let path = format!("/questions/{}", world.gate);
    let page = browser.page(&path);
    let shown = world.home.lobster(["approvals", "show", &world.gate, "--json"]).run();
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    let text = bare(&page.text);
    for fact in shown["facts"].as_array().unwrap() {
        for value in fact["values"].as_array().unwrap().iter().chain([&fact["label"]]) {
            assert!(text.contains(&bare(value.as_str().unwrap())), "{value} is not in {}", page.text);
        }
    }
    assert!(text.contains("Goon?") && text.contains("a1x") | text.contains("ab1x2y"), "{}", page.text);
    let digest = page.field("digest").to_owned();
    let other = digest.replace(|c: char| c.is_ascii_digit(), "0");
    let stale = browser.post(&path, &[("decision", "approve"), ("digest", &other)]);
    assert_eq!((stale.status, world.home.read("said").as_str()), (409, ""), "{stale:?}");
    let taken = browser.post(&path, &[("decision", "approve"), ("digest", &digest)]);
    assert_eq!(taken.status, 303, "{taken:?}");
    wait_until("the run goes on", || world.home.read("said") == "done\n");
    let closed = browser.page(&path);
    assert!(closed.text.contains("approved") && closed.text.contains("approver"), "{}", closed.text);
    let again = browser.post(&path, &[("decision", "reject"), ("digest", &digest)]);
    assert_eq!(again.status, 409, "{again:?}");
}

#[test]
fn a_session_that_ended_loses_nothing_that_was_typed() {
    let world = World::new();
    let typed = "two hours of <b>thought</b>";
    let body = format!("f.who={}&digest=x", encoded(typed));
    let reply = send(&world.served, "POST", "/workflows/asks/runs", Some("lobster_session=gone"), &body);
    assert_eq!(reply.status, 401, "{reply:?}");
    let page = Page::parse(&reply);
    page.assert_tame("login");
    assert!(page.text.contains(typed) && page.text.contains("Your session had ended"), "{}", page.text);
    // A page of elsewhere sends no form, logged in or not.
    let browser = Browser::log_in(&world.home, &world.served, "admin");
    for headers in [("Origin", "https://evil.example"), ("Sec-Fetch-Site", "cross-site")] {
        let form = ("Content-Type", "application/x-www-form-urlencoded");
        let cookie = ("Cookie", browser.cookie.as_str());
        let refused = world.served.send("POST", "/workflows/asks/runs", &[headers, form, cookie], b"f.who=x");
        assert_eq!(refused.status, 403, "{refused:?}");
    }
    assert_eq!(browser.post("/workflows/asks/runs", &[("f.n", "two")]).status, 400);
    let started = browser.post("/workflows/asks/runs", &[("f.n", "3"), ("f.who", typed)]);
    let run = header(&started, "location").unwrap().to_owned();
    wait_until("it has begun", || browser.get(&run).body.contains("Waiting for a person"));
    let page = browser.page(&run);
    page.assert_tame(&run);
    assert!(page.text.contains(typed), "{}", page.text);
}

/// Texts that become code where they are not escaped, in every place that a page could put them: text,
/// attributes of both quotes and of none, addresses, styles, comments, raw text elements.
fn payloads() -> Vec<String> {
    let scripts = ["alert(1)", "window.hit=1", "import('//x')", "fetch('//x')", "document.title=1"];
    let forms = [
        "<script>{}</script>",
        "<ScRiPt >{}</sCrIpT>",
        "<img src=x onerror={}>",
        "<svg/onload={}>",
        "\"><script>{}</script>",
        "'><script>{}</script>",
        "\" onmouseover=\"{}",
        "' onmouseover='{}",
        "` onload=`{}",
        "</textarea><script>{}</script>",
        "</title><script>{}</script>",
        "</script><script>{}</script>",
        "</style><script>{}</script>",
        "--><script>{}</script>",
        "]]><script>{}</script>",
        "<a href=\"javascript:{}\">x</a>",
        "javascript:{}",
        "data:text/html,<script>{}</script>",
        "<iframe srcdoc=\"<script>{}</script>\">",
        "<object data=\"javascript:{}\">",
        "<math><mtext><script>{}</script>",
        "<details open ontoggle={}>",
        "<body onload={}>",
        "<input autofocus onfocus={}>",
        "<video><source onerror={}>",
        "<marquee onstart={}>",
        "<form action=\"javascript:{}\"><button>",
        "<base href=\"javascript:{}//\">",
        "<meta http-equiv=refresh content=\"0;url=javascript:{}\">",
        "<link rel=stylesheet href=\"javascript:{}\">",
        "<style>@import 'javascript:{}'</style>",
        "<template><script>{}</script></template>",
        "<svg><a xlink:href=\"javascript:{}\">",
        "<svg><animate onbegin={} attributeName=x>",
        "<x contenteditable onblur={}>",
        "<!--<script>{}</script>",
        "<![CDATA[<script>{}",
        "&lt;script&gt;{}&lt;/script&gt;",
        "&#60;script&#62;{}&#60;/script&#62;",
        "\\u003cscript\\u003e{}",
        "%3Cscript%3E{}%3C/script%3E",
        "+ADw-script+AD4-{}",
        "{{{}}}",
        "${{}}",
        "<%= {} %>",
        "\u{202e}<script>{}</script>\u{202c}",
        "<scr\u{0}ipt>{}</script>",
        "<\u{200b}script>{}</script>",
        "\u{ff1c}script\u{ff1e}{}",
        "<img src=`x`onerror={}>",
        "<img/src=\"x\"/onerror=\"{}\"/>",
        "<a\thref='java\nscript:{}'>",
        "<a href=\"&#106;avascript:{}\">",
        "<div style=\"background:url(javascript:{})\">",
        "<script src=//x>{}",
        "<noscript><p title=\"</noscript><script>{}</script>\">",
        "<select><script>{}</script>",
        "<table><script>{}</script>",
        "<embed src=\"javascript:{}\">",
        "<portal src=\"javascript:{}\">",
    ];
    let all = forms.iter().flat_map(|form| scripts.iter().map(move |script| form.replacen("{}", script, 1)));
    all.collect()
}

#[test]
fn no_text_of_a_run_becomes_markup() {
    let payloads = payloads();
    assert!(payloads.len() >= 300, "{}", payloads.len());
    let home = Home::new();
    // Arguments, names, prompts, items with hostile keys, output, stderr, errors and commands have all of them.
    let all = payloads.join("\n");
    home.write("all.txt", &all);
    let items: Vec<Value> =
        payloads.iter().map(|text| json!({ "text": text, "<b onclick=x>": text })).collect();
    home.write("items.json", json!(items).to_string());
    let name = payloads[4].replace('\u{0}', "");
    let workflow = json!({
        "name": name, "description": all.replace('\u{0}', ""),
        "args": { "text": { "default": payloads[0], "description": payloads[20] } },
        "steps": [
            { "id": "say", "run": "cat all.txt; cat all.txt >&2" },
            { "id": "items", "run": "cat items.json" },
            { "id": "ask", "approval": payloads[30].clone() + "\n" + &payloads[60], "stdin": "$items.json" },
            { "id": "fail", "exec": ["sh", "-c", "cat all.txt >&2; exit 1", payloads[10]] },
        ],
    });
    home.write("hostile.lobster", workflow.to_string());
    register(&home, &["hostile.lobster"]);
    let envelope = home
        .lobster(["run", "--mode", "tool", "hostile.lobster"])
        .env("LOBSTER_ACTOR", &payloads[5])
        .run()
        .envelope();
    assert_eq!(envelope["status"], "needs_approval", "{envelope}");
    let served = Served::start(&home, &[]);
    let browser = Browser::log_in(&home, &served, "admin");
    let operator = token(&home, "operator", None);
    let gate = served.question(&operator)["id"].as_str().unwrap().to_owned();
    let run = served.get(&operator, "/api/v1/runs").good()["runs"][0]["id"].as_str().unwrap().to_owned();
    let mut pages = vec![
        "/".to_owned(),
        "/runs".to_owned(),
        "/workflows".to_owned(),
        "/workflows/hostile".to_owned(),
        "/audit".to_owned(),
        format!("/questions/{gate}"),
        format!("/runs/{run}"),
        format!("/runs/{run}/step?path=say"),
        format!("/runs/{run}/step?path=items"),
        format!("/runs/{run}/fork"),
    ];
    // What an address says comes back, too.
    for (at, payload) in payloads.iter().enumerate().step_by(7) {
        let text = encoded(payload);
        let path = [
            "/runs?name=",
            "/policy?command=",
            "/runs?status=",
            "/login?next=",
            "/runs/x?from=",
            "/questions/",
        ][at % 6];
        pages.push(format!("{path}{text}"));
    }
    for path in &pages {
        let reply = browser.get(path);
        assert!(reply.status < 500, "{path}: {reply:?}");
        Page::parse(&reply).assert_tame(path);
    }
    let question = browser.page(&format!("/questions/{gate}"));
    assert!(question.text.contains("<details open ontoggle="), "what was asked about is shown as it is");
    // It is still asked about exactly that, and a no with a hostile reason fails nothing.
    let digest = question.field("digest").to_owned();
    let answered =
        browser.post(&format!("/questions/{gate}"), &[("decision", "approve"), ("digest", &digest)]);
    assert_eq!(answered.status, 303, "{answered:?}");
    wait_until("it has failed", || browser.get(&format!("/runs/{run}")).body.contains("Failed at"));
    for path in [
        format!("/runs/{run}"),
        format!("/runs/{run}/step?path=fail"),
        "/".to_owned(),
        format!("/questions/{gate}"),
    ] {
        browser.page(&path).assert_tame(&path);
    }
}

#[test]
fn a_form_of_a_schema_takes_what_fits_and_a_no_has_its_reason() {
    let home = Home::new();
    home.write(
        "asks.lobster",
        "steps:\n  - id: ask\n    input: {prompt: 'Which?', responseSchema: {type: object, required: [room, n], properties: \
         {room: {enum: [Blue, 'Green room']}, n: {type: integer, maximum: 12}, note: {type: string}}}}\n  - {id: sure, approval: 'Sure?'}\n",
    );
    home.lobster(["run", "--mode", "tool", "asks.lobster"]).run();
    let served = Served::start(&home, &[]);
    let operator = token(&home, "operator", None);
    let browser = Browser::log_in(&home, &served, "operator");
    let gate = served.question(&operator)["id"].as_str().unwrap().to_owned();
    let path = format!("/questions/{gate}");
    let digest = browser.page(&path).field("digest").to_owned();
    let answer = |n: &str| {
        let fields = [
            ("decision", "respond"),
            ("digest", &digest),
            ("f.room", "\"Green room\""),
            ("f.n", n),
            ("f.note", "a <b> & c"),
        ];
        browser.post(&path, &fields)
    };
    let wrong = answer("13");
    assert_eq!(wrong.status, 400, "{wrong:?}");
    assert!(wrong.body.contains("Not sent") && wrong.body.contains("a &lt;b&gt; &amp; c"), "{wrong:?}");
    assert_eq!(answer("4").status, 303);
    assert!(browser.page(&path).text.contains("Green room"));
    wait_until("it asks again", || served.question(&operator)["id"] != gate.as_str());
    let sure = format!("/questions/{}", served.question(&operator)["id"].as_str().unwrap());
    let digest = browser.page(&sure).field("digest").to_owned();
    let no =
        browser.post(&sure, &[("decision", "reject"), ("digest", &digest), ("reason", "the wrong floor")]);
    assert_eq!(no.status, 303, "{no:?}");
    let run = served.get(&operator, "/api/v1/runs").good()["runs"][0]["id"].as_str().unwrap().to_owned();
    let record = home.lobster(["show", &run, "--json"]).run().stdout;
    assert!(record.contains("the wrong floor"), "{record}");
    assert_eq!(home.lobster(["store", "verify"]).run().code(), 0);
    assert!(browser.page(&sure).text.contains("the wrong floor"));
}

#[test]
fn pages_of_many_runs_and_steps_stay_small() {
    let home = Home::new();
    let steps: Vec<Value> =
        (0..600).map(|n| json!({ "id": format!("s{n}"), "js": format!("{n}") })).collect();
    home.write("many.lobster", json!({ "name": "many", "steps": steps }).to_string());
    home.write(
        "big.lobster",
        "args: {text: {default: ''}}\nsteps: [{id: a, run: 'head -c 3000000 /dev/zero | tr \"\\0\" x'}]\n",
    );
    home.lobster(["run", "--mode", "tool", "many.lobster"]).run();
    let text = json!({ "text": "x".repeat(50_000) }).to_string();
    for _ in 0..6 {
        home.lobster(["run", "--mode", "tool", "big.lobster", "--args-json", &text]).run();
    }
    let served = Served::start(&home, &[]);
    let browser = Browser::log_in(&home, &served, "viewer");
    let list = browser.get("/runs");
    assert!(list.body.len() < 20_000, "a list has no payload: {}", list.body.len());
    let operator = token(&home, "viewer", None);
    let runs = served.get(&operator, "/api/v1/runs").good();
    let id = |name: &str| {
        runs["runs"].as_array().unwrap().iter().find(|run| run["name"] == name).unwrap()["id"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    // A long record is read while the frame of its page is on its way; then it is known.
    for chunked in [true, false] {
        let many = browser.get(&format!("/runs/{}", id("many")));
        assert_eq!(many.head.contains("transfer-encoding: chunked"), chunked, "{}", many.head);
        assert!(many.body.len() < 100_000, "{}", many.body.len());
        assert!(many.body.contains("of 600") && many.body.contains("Later steps"), "600 steps are paged");
        assert!(many.body.matches("<main").count() == 1 && many.body.ends_with("</html>"), "{many:?}");
        Page::parse(&many).assert_tame("many");
    }
    let step = browser.get(&format!("/runs/{}/step?path=a", id("big")));
    assert!(step.body.len() < 120_000, "{}", step.body.len());
}

#[test]
fn what_is_damaged_or_gone_is_a_page_that_says_so() {
    let world = World::new();
    let browser = Browser::log_in(&world.home, &world.served, "admin");
    let database = rusqlite::Connection::open(world.home.state().join("store/lobster.db")).unwrap();
    let change = |sql: &str| assert!(database.execute(sql, []).unwrap() > 0, "{sql}");
    change(
        "DELETE FROM blobs WHERE instr(CAST(data AS TEXT), '17: no such column') AND NOT instr(CAST(data AS TEXT), 'exit')",
    );
    let step = format!("/runs/{}/step?path=bad", world.failed);
    let page = browser.page(&step);
    page.assert_tame(&step);
    assert!(page.text.contains("It is missing from the store"), "{}", page.text);
    let file = browser.get(&format!("/runs/{}/output?path=bad&stream=stderr", world.failed));
    assert!(file.status >= 400 && file.body.contains("data-problem"), "{file:?}");
    change("DELETE FROM blobs WHERE instr(CAST(data AS TEXT), '\"argv\"')");
    let run = browser.page(&format!("/runs/{}", world.failed));
    run.assert_tame("a run without its actions");
    assert!(run.text.contains("(cannot be read: blob "), "{}", run.text);
    change(
        "UPDATE journal SET record = replace(record, 'step_ended', 'step_endet') WHERE seq = 3 AND run = 1",
    );
    let damaged = browser.page(&format!("/runs/{}", world.failed));
    assert!(
        damaged.text.contains("The record is damaged") && damaged.text.contains("salvage"),
        "{}",
        damaged.text
    );
    for gone in ["/runs/00000000", "/questions/00000000", "/workflows/none", "/nothing"] {
        let reply = browser.get(gone);
        assert!(reply.status == 404 && reply.body.contains("Not found"), "{gone}: {reply:?}");
        Page::parse(&reply).assert_tame(gone);
    }
}

#[test]
fn the_console_is_opened_at_a_run() {
    let home = Home::new();
    home.lobster(["run", "exec true"]).run();
    let alone = home.lobster(["console", "--no-browser"]).run();
    assert!(alone.code() == 2 && alone.stderr.contains("no server is running"), "{alone:?}");
    let served = Served::start(&home, &[]);
    let mut link = String::new();
    wait_until("the server is known", || {
        link = home.lobster(["console", "@", "--no-browser"]).run().stdout;
        !link.is_empty()
    });
    let (address, secret) = link.trim().split_once('#').unwrap();
    let path = address.strip_prefix(&format!("http://{}", served.address)).unwrap();
    let page = Page::parse(&served.send("GET", path, &[], b""));
    let next = page.field("next").to_owned();
    assert!(next.starts_with("/runs/"), "{next}");
    let body = format!("link={}&next={}", encoded(secret), encoded(&next));
    let reply = send(&served, "POST", "/login", None, &body);
    assert_eq!((reply.status, header(&reply, "location")), (303, Some(next.as_str())), "{reply:?}");
    // Once.
    assert_eq!(send(&served, "POST", "/login", None, &body).status, 401);
}

#[test]
fn a_stream_ends_with_its_session() {
    use std::io::{Read, Write};
    let home = Home::new();
    home.lobster(["run", "exec true"]).run();
    let served = Served::start(&home, &[]);
    let operator = token(&home, "viewer", None);
    let run = served.get(&operator, "/api/v1/runs").good()["runs"][0]["id"].as_str().unwrap().to_owned();
    let browser = Browser::log_in(&home, &served, "viewer");
    let mut stream = std::net::TcpStream::connect(&served.address).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let (host, cookie) = (&served.address, &browser.cookie);
    write!(
        stream,
        "GET /api/v1/changes HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut begun = [0; 4096];
    let length = stream.read(&mut begun).unwrap();
    assert!(String::from_utf8_lossy(&begun[..length]).starts_with("HTTP/1.1 200"), "it follows");
    assert_eq!(send(&served, "POST", "/logout", Some(cookie), "").status, 303);
    // Whatever is written now is not for this reader any more.
    home.lobster(["run", "exec true"]).run();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("event: runs"), "{rest}");
    assert_eq!(browser.get(&format!("/runs/{run}")).status, 401);
}

/// The search for texts that are executed, in a real browser, knows every page there is.
#[test]
fn the_search_for_injected_code_leaves_out_no_page() {
    let read = |path: &str| std::fs::read_to_string(crate::binary::repository().join(path)).unwrap();
    let (routes, search) = (read("runtime/console/src/routes.rs"), read("tests/console/hostile.spec.mjs"));
    let table = routes.split("ROUTES: &[Route]").nth(1).unwrap();
    let mut count = 0;
    for (call, method) in [("page_route(", "GET"), ("form_route(", "POST")] {
        for rest in table.split(&format!("    {call}")).skip(1) {
            let path = rest.split('"').nth(1).unwrap();
            assert!(search.contains(&format!("  \"{method} {path}\": ")), "{method} {path} is not looked at");
            count += 1;
        }
    }
    assert_eq!(count, table.matches("\"/").count(), "a route of another kind");
    assert_eq!(
        count,
        search.lines().filter(|line| line.starts_with("  \"GET /") || line.starts_with("  \"POST /")).count()
    );
}
