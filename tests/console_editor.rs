//! The text of a workflow in the console: checked, completed, saved with its difference shown first, and
//! registered; by authors, inside the folders of the server, and nowhere else.

use serde_json::{Value, json};

use crate::browser::{Browser, Page, bare, send};
use crate::home::{Home, wait_until};
use crate::served::{Served, token};

const REPORT: &str = "name: Report\nargs: {day: {default: today}}\nsteps:\n  - id: make\n    run: echo one\n";

struct World {
    home: Home,
    served: Served,
}

impl World {
    fn new() -> Self {
        let home = Home::new();
        home.write("flows/report.lobster", REPORT);
        home.write("elsewhere/other.lobster", "steps: [{id: a, run: 'true'}]\n");
        for file in ["flows/report.lobster", "elsewhere/other.lobster"] {
            assert_eq!(home.lobster(["schedule", "register", "--trust", file]).run().code(), 0);
        }
        let served = Served::start(&home, &["--workflows", "flows"]);
        Self { home, served }
    }

    fn registered(&self, token: &str, name: &str) -> Value {
        self.served.get(token, &format!("/api/v1/workflows/{name}")).good()["digest"].clone()
    }
}

const EDIT: &str = "/workflows/report/edit";

/// What a page says above the text of the workflow, as a browser without scripts would send it on.
fn fields(page: &Page) -> Vec<(&str, &str)> {
    ["base", "seen", "now"].into_iter().filter_map(|name| Some((name, page.hidden(name)?))).collect()
}

#[test]
fn a_text_is_checked_shown_and_saved_whole() {
    let world = World::new();
    let browser = Browser::log_in(&world.home, &world.served, "author");
    let admin = token(&world.home, "admin", None);
    let page = browser.page(EDIT);
    page.assert_tame(EDIT);
    assert!(page.text.contains("run: echo one") && page.text.contains("[DRY RUN]"), "{}", page.text);
    let base = page.hidden("base").unwrap().to_owned();
    // What is wrong is said with its place, and nothing is written.
    let wrong = "steps:\r\n  - id: make\r\n    runn: echo two\r\n    run: echo two\r\n";
    let checked = browser.post(EDIT, &[("act", "check"), ("base", &base), ("text", wrong)]);
    let checked = Page::parse(&checked);
    checked.assert_tame(EDIT);
    assert!(
        bare(&checked.text).contains("3:5") && checked.text.contains("did you mean `run`"),
        "{}",
        checked.text
    );
    let good = REPORT.replace("echo one", "echo two <b>");
    // The difference first, then the file.
    let unseen = browser.post(EDIT, &[("act", "write"), ("base", &base), ("text", &good)]);
    assert_eq!((unseen.status, world.home.read("flows/report.lobster").as_str()), (200, REPORT));
    let shown =
        browser.post(EDIT, &[("act", "save"), ("base", &base), ("text", &good.replace('\n', "\r\n"))]);
    let shown = Page::parse(&shown);
    shown.assert_tame(EDIT);
    assert!(
        shown.text.contains("-    run: echo one") && shown.text.contains("+    run: echo two <b>"),
        "{}",
        shown.text
    );
    let before = world.registered(&admin, "report");
    let mut form = fields(&shown);
    form.extend([("act", "write"), ("text", good.as_str())]);
    let saved = browser.post(EDIT, &form);
    assert_eq!((saved.status, world.home.read("flows/report.lobster")), (303, good.clone()), "{saved:?}");
    assert_eq!(world.registered(&admin, "report"), before, "saving registers nothing");
    let after = browser.page(&format!("{EDIT}?saved=yes"));
    let digest = after.hidden("digest").unwrap().to_owned();
    let done = browser.post("/workflows/report/register", &[("digest", &digest)]);
    assert_eq!(done.status, 303, "{done:?}");
    assert_eq!(world.registered(&admin, "report"), json!(digest));
    let trail = world.served.get(&admin, "/api/v1/trail").good();
    let deeds = trail["trail"].as_array().unwrap().iter();
    let deeds: Vec<_> =
        deeds.filter(|deed| deed["object"] == "report" && deed["actor"] == "author").collect();
    assert_eq!((&deeds[0]["verb"], &deeds[1]["verb"]), (&json!("register"), &json!("save")), "{trail}");
}

#[test]
fn a_file_that_changed_meanwhile_is_not_replaced_and_nothing_typed_is_lost() {
    let world = World::new();
    let browser = Browser::log_in(&world.home, &world.served, "author");
    let page = browser.page(EDIT);
    let mine = REPORT.replace("echo one", "echo mine");
    let theirs = REPORT.replace("Report", "Theirs");
    let shown =
        browser.post(EDIT, &[("act", "save"), ("base", page.hidden("base").unwrap()), ("text", &mine)]);
    let shown = Page::parse(&shown);
    // Somebody else saves between the look and the word.
    world.home.write("flows/report.lobster", &theirs);
    let mut form = fields(&shown);
    form.extend([("act", "register"), ("text", mine.as_str())]);
    let refused = browser.post(EDIT, &form);
    assert_eq!(
        (refused.status, world.home.read("flows/report.lobster")),
        (409, theirs.clone()),
        "{refused:?}"
    );
    let refused = Page::parse(&refused);
    for told in ["changed since you opened it", "echo mine", "-name: Theirs"] {
        assert!(refused.text.contains(told), "{told}: {}", refused.text);
    }
    // Saving over it shows what that would replace.
    let mut form = fields(&refused);
    form.extend([("act", "over"), ("text", mine.as_str())]);
    let over = Page::parse(&browser.post(EDIT, &form));
    assert!(over.text.contains("-name: Theirs"), "{}", over.text);
    let mut form = fields(&over);
    form.extend([("act", "register"), ("text", mine.as_str())]);
    let saved = browser.post(EDIT, &form);
    assert_eq!((saved.status, world.home.read("flows/report.lobster")), (303, mine.clone()), "{saved:?}");
    // A session that ended: the page that asks for a login has the text.
    let body = format!("act=save&text={}", crate::browser::encoded("my <i>words</i>"));
    let lost = send(&world.served, "POST", EDIT, Some("lobster_session=gone"), &body);
    assert!(lost.status == 401 && Page::parse(&lost).text.contains("my <i>words</i>"), "{lost:?}");
}

#[test]
fn only_authors_write_and_only_in_the_folders_of_the_server() {
    let world = World::new();
    let operator = Browser::log_in(&world.home, &world.served, "operator");
    assert_eq!(operator.get(EDIT).status, 403);
    assert!(!operator.get("/workflows/report").body.contains("/edit"));
    let author = Browser::log_in(&world.home, &world.served, "author");
    assert!(author.get("/workflows/report").body.contains(EDIT));
    let outside = author.get("/workflows/other/edit");
    assert!(
        outside.status == 422 && outside.body.contains("is outside of the folders of this server"),
        "{outside:?}"
    );
    let forced = author.post("/workflows/other/edit", &[("act", "write"), ("seen", ""), ("text", "x")]);
    assert_eq!(forced.status, 422, "{forced:?}");
    // A link in the folder leads out of it.
    std::os::unix::fs::symlink("../elsewhere/other.lobster", world.home.dir().join("flows/link.lobster"))
        .unwrap();
    for path in ["/workflows/link/edit", "/workflows/..%2felsewhere%2fother/edit", "/workflows/.hidden/edit"]
    {
        let reply = author.get(path);
        assert!(reply.status >= 400 && !reply.body.contains("id: a, run"), "{path}: {reply:?}");
    }
    // A text is looked at and never executed, whatever it says.
    let hostile = "steps:\n  - {id: a, run: 'touch hit'}\n  - {id: b, workflow: /etc/passwd}\n  - {id: c, workflow: /dev/zero}\n";
    let page = Page::parse(&author.post(EDIT, &[("act", "check"), ("text", hostile)]));
    assert!(!page.text.contains("root:") && !world.home.dir().join("flows/hit").exists(), "{}", page.text);
    assert_eq!(world.home.read("elsewhere/other.lobster"), "steps: [{id: a, run: 'true'}]\n");
}

#[test]
fn a_new_workflow_is_written_corrected_saved_and_registered_at_once() {
    let world = World::new();
    let author = Browser::log_in(&world.home, &world.served, "author");
    let to = author.get("/new?name=fresh.lobster");
    assert_eq!(crate::browser::header(&to, "location"), Some("/workflows/fresh/edit"));
    assert_eq!(author.get("/new?name=..%2fx").status, 400);
    let edit = "/workflows/fresh/edit";
    assert!(author.page(edit).text.contains("LOBSTER_ARG_WHO"));
    let typo = "steps:\n  - id: a\n    run: echo hi\n    aproval: true\n";
    let fixed = Page::parse(&author.post(edit, &[("act", "fix:0"), ("base", ""), ("text", typo)]));
    assert!(fixed.text.contains("    approval: true"), "{}", fixed.text);
    let text = "steps:\n  - id: a\n    run: echo hi\n";
    let shown = Page::parse(&author.post(edit, &[("act", "save"), ("base", ""), ("text", text)]));
    let mut form = fields(&shown);
    form.extend([("act", "register"), ("text", text)]);
    let saved = author.post(edit, &form);
    assert_eq!((saved.status, world.home.read("flows/fresh.lobster").as_str()), (303, text), "{saved:?}");
    let operator = token(&world.home, "operator", None);
    let run = world.served.post(&operator, "/api/v1/workflows/fresh/runs", &json!({})).good();
    let run = run["run"].as_str().unwrap().to_owned();
    wait_until("it runs", || world.served.ended(&operator, &run)["status"] == "ok");
}

#[test]
fn programs_check_complete_and_save_through_the_api() {
    let world = World::new();
    let author = token(&world.home, "author", None);
    let of = |what: &str| format!("/api/v1/workflows/report/{what}");
    let text = "steps:\n  - id: one\n    run: echo 1\n  - id: two\n    stdin: $on";
    let complete =
        world.served.post(&author, &of("complete"), &json!({ "text": text, "at": text.len() })).good();
    assert_eq!(complete["proposals"][0]["insert"], "one.", "{complete}");
    let checked =
        world.served.post(&author, &of("check"), &json!({ "text": "steps:\n  - {id: a, rum: x}\n" })).good();
    assert_eq!(
        (&checked["findings"][0]["line"], &checked["findings"][0]["column"]),
        (&json!(2), &json!(10)),
        "{checked}"
    );
    let file = world.served.get(&author, &of("file")).good();
    assert_eq!(file["text"], REPORT);
    let put = |body: &Value| {
        let bearer = format!("Bearer {author}");
        let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
        world.served.send("PUT", &of("file"), &headers, body.to_string().as_bytes())
    };
    let saved = put(&json!({ "text": "steps: []\n", "was": file["file"] }));
    assert_eq!(
        (saved.status, world.home.read("flows/report.lobster").as_str()),
        (200, "steps: []\n"),
        "{saved:?}"
    );
    assert_eq!(put(&json!({ "text": "x", "was": file["file"] })).status, 409);
    assert_eq!(put(&json!({ "text": "x" })).status, 409, "a new file takes no other one's place");
    assert_eq!(put(&json!({ "text": "x".repeat(300 << 10), "was": file["file"] })).status, 413);
}
