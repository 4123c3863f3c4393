//! `changes: review`: a person sees what a step changed in files; a yes commits exactly that,
//! a no nothing.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::home::{Answer, Home};
use crate::setting::number;
use crate::staged::tree;

fn flow(mode: &str, script: &str) -> String {
    format!(
        "steps:\n  - id: fix\n    changes: {mode}\n    cwd: tree\n    run: |\n      {}\n  - {{id: after, run: echo over}}\n",
        script.replace('\n', "\n      ")
    )
}

fn home(script: &str) -> Home {
    let home = Home::new();
    home.write("flow.lobster", flow("review", script));
    home.write("tree/a", "one\ntwo\n").write("tree/gone", "x\n").write("tree/d/f", "in d\n");
    home
}

const EDITS: &str = "echo three >> a && rm gone && rm -r d && mkdir new && echo n > new/n && ln -s a l";

fn files(home: &Home) -> std::collections::BTreeMap<String, String> {
    tree(&home.dir().join("tree"))
}

fn answer(home: &Home, token: &str, yes: bool) -> Answer {
    home.lobster(["resume", "--token", token, "--approve", if yes { "yes" } else { "no" }]).run()
}

fn runs(home: &Home) -> Vec<Value> {
    let runs = home.lobster(["runs", "--json"]).run();
    serde_json::from_str(&runs.stdout).unwrap()
}

fn changes(home: &Home) -> Value {
    let shown = home.lobster(["changes", "@", "--json"]).run();
    assert_eq!(shown.code(), 0, "{shown:#?}");
    serde_json::from_str(&shown.stdout).unwrap()
}

#[test]
fn what_was_shown_is_committed_after_a_yes_from_another_process_and_directory() {
    let home = home(EDITS);
    let before = files(&home);
    let asked = home.tool(["flow.lobster"]);
    let request = asked.envelope()["requiresApproval"].clone();
    let preview = request["preview"].as_str().unwrap();
    for part in ["+three\n", "-in d\n", "/tree/gone\n+++ /dev/null\n", "--- /dev/null\n+++ b/"] {
        assert!(preview.contains(part), "{part:?} in {preview}");
    }
    let listed: Vec<&str> =
        request["items"][0]["files"].as_array().unwrap().iter().map(|file| file.as_str().unwrap()).collect();
    // Deletions come first.
    assert!(listed[0].starts_with("deleted ") && listed[2].starts_with("deleted "), "{listed:?}");
    assert_eq!(listed.len(), 7, "{listed:?}");
    assert_eq!(files(&home), before, "nothing is committed yet");
    let set = changes(&home);
    assert_eq!(set[0]["committed"], false);
    assert_eq!(set[0]["digest"], request["items"][0]["changes"], "the question names what it is about");

    for words in [["approvals", "--full"], ["show", "@"]] {
        let shown = home.lobster(words).run();
        assert_eq!(shown.code(), 0, "{shown:#?}");
        assert!(!shown.stdout.contains("!shown"), "{shown:#?}");
    }
    let gates = home.lobster(["approvals", "--full"]).run();
    assert!(gates.stdout.contains("+three") && gates.stdout.contains("deleted "), "{gates:#?}");

    let elsewhere = home.dir().parent().unwrap().to_owned();
    let call = home.lobster(["resume", "--token", &asked.token(), "--approve", "yes"]);
    let done = call.dir(&elsewhere).run();
    assert_eq!(done.output(), json!(["over\n"]));
    assert_eq!(home.read("tree/a"), "one\ntwo\nthree\n");
    assert_eq!(changes(&home)[0]["digest"], set[0]["digest"]);
    assert_eq!(changes(&home)[0]["committed"], true);
    let after = files(&home);
    assert_eq!(after["l"], "link a");
    let replay = home.lobster(["replay", "@"]).run();
    assert_eq!(replay.code(), 0, "{replay:#?}");
    let undone = home.lobster(["undo", "@"]).run();
    assert_eq!(undone.code(), 0, "{undone:#?}");
    assert_eq!(files(&home), before);
}

#[test]
fn a_no_and_a_failure_leave_every_file_as_it_was() {
    let said_no = home(EDITS);
    let before = tree(&said_no.dir());
    let token = said_no.tool(["flow.lobster"]).token();
    assert_eq!(tree(&said_no.dir()), before);
    assert_eq!(answer(&said_no, &token, false).envelope()["status"], "cancelled");
    assert_eq!(tree(&said_no.dir()), before);
    assert_eq!(changes(&said_no)[0]["committed"], false);
    assert!(answer(&said_no, &token, true).code() != 0, "an answer is given once");
    assert_eq!(tree(&said_no.dir()), before);

    let failed = home("echo three >> a; rm -r d; exit 3");
    let before = tree(&failed.dir());
    assert!(failed.tool(["flow.lobster"]).error().contains("(3)"));
    assert_eq!(tree(&failed.dir()), before);

    // Nothing to agree to.
    let same = home("cat a > /dev/null; touch -d 2001-01-01 a");
    assert_eq!(same.tool(["flow.lobster"]).output(), json!(["over\n"]));
}

#[test]
fn what_somebody_else_changed_meanwhile_is_named_and_kept() {
    let home = home(EDITS);
    let token = home.tool(["flow.lobster"]).token();
    home.write("tree/a", "mine\n");
    let before = files(&home);
    let refused = answer(&home, &token, true).error();
    assert!(refused.contains("step fix") && refused.contains("/tree") && refused.contains('a'), "{refused}");
    assert_eq!(files(&home), before, "nothing else is committed either");
    // Put back, the approval still stands.
    home.write("tree/a", "one\ntwo\n");
    let run = runs(&home)[0]["id"].as_str().unwrap().to_owned();
    let resumed = home.lobster(["resume", &run]).run();
    assert_eq!(resumed.code(), 0, "{resumed:#?}");
    assert_eq!(home.read("tree/a"), "one\ntwo\nthree\n");
}

#[test]
fn a_run_is_reviewed_whatever_its_steps_say() {
    let home = home(EDITS);
    home.write(
        "flow.lobster",
        "steps:\n  - {id: one, cwd: tree, changes: direct, run: echo 1 >> a}\n  - {id: two, cwd: tree, changes: staged, run: echo 2 >> a; cat a}\n",
    );
    let asked = home.tool(["--review", "flow.lobster"]);
    assert_eq!(home.read("tree/a"), "one\ntwo\n");
    assert!(asked.stdout.contains("steps one, two"), "{asked:#?}");
    let done = answer(&home, &asked.token(), true);
    assert_eq!(done.output(), json!(["one\ntwo\n1\n2\n"]));
    assert_eq!(home.read("tree/a"), "one\ntwo\n1\n2\n");
    let refused = home.tool(["--review", "exec ls"]).error();
    assert!(refused.contains("--review needs a workflow file"), "{refused}");
}

/// Whose operator has the secret `api_token`, in the variable THE_TOKEN.
fn home_with_token() -> Home {
    let home = home("echo x");
    let config = home.dir().parent().unwrap().join("home/.config/lobster");
    fs::create_dir_all(&config).unwrap();
    fs::write(config.join("secrets.toml"), "[secrets.api_token]\nenv = \"THE_TOKEN\"\n").unwrap();
    home
}

#[test]
fn the_question_hides_secrets_and_folds_what_is_long() {
    let value = "t0p/S3cret+\"quoted\" & %w-0123456789abcdef";
    let home = home_with_token();
    home.write(
        "flow.lobster",
        "secrets: [api_token]\nsteps:\n  - id: fix\n    cwd: tree\n    changes: review\n    secrets: { KEY: api_token }\n    run: printf '%s\\n' \"$KEY\" > a; seq 5000 > long; head -c 300 /dev/zero > binary\n",
    );
    let asked = home.lobster(["run", "--mode", "tool", "flow.lobster"]).env("THE_TOKEN", value).run();
    let token = asked.token();
    assert!(!asked.stdout.contains("0123456789abcdef"), "{asked:#?}");
    let preview = asked.envelope()["requiresApproval"]["preview"].as_str().unwrap().to_owned();
    assert!(preview.lines().count() < 200 && preview.contains("more lines of this file"), "{preview}");
    assert!(preview.contains("--patch") && preview.contains("300 bytes"), "{preview}");
    let gates = home.lobster(["approvals", "--full"]).run();
    assert!(!gates.stdout.contains("0123456789abcdef"), "{gates:#?}");
    // What is committed is the content itself.
    let call = home.lobster(["resume", "--token", &token, "--approve", "yes"]);
    let done = call.env("THE_TOKEN", value).run();
    assert_eq!(done.code(), 0, "{done:#?}");
    assert_eq!(home.read("tree/a"), format!("{value}\n"));
}

/// Names and targets of links are as visible as contents.
#[test]
fn no_listing_of_changes_has_a_secret_in_names_or_targets() {
    let value = "sk-0123456789abcdef";
    let home = home_with_token();
    home.write(
        "flow.lobster",
        "secrets: [api_token]\nsteps:\n  - id: fix\n    cwd: tree\n    changes: staged\n    secrets: { KEY: api_token }\n    run: |\n      echo new > \"$KEY.txt\"; mkdir \"$KEY\"; ln -s \"to/$KEY\" link; chmod 755 a\n",
    );
    let calls: [&[&str]; 6] = [
        &["run", "--preview", "flow.lobster"],
        &["run", "flow.lobster"],
        &["changes", "@"],
        &["changes", "@", "--patch"],
        &["changes", "@", "--stat"],
        &["changes", "@", "--json"],
    ];
    for call in calls {
        let said = home.lobster(call.iter().copied()).env("THE_TOKEN", value).run();
        assert_eq!(said.code(), 0, "{said:#?}");
        assert!(!format!("{said:?}").contains(value), "{call:?}: {said:#?}");
        let lists = call[0] == "changes" || call.contains(&"--preview");
        assert!(!lists || format!("{said:?}").contains("«secret:api_token».txt"), "{call:?}: {said:#?}");
    }
}

#[test]
fn a_kill_after_the_yes_is_finished_by_a_resume() {
    let (old, new) = {
        let home = home(EDITS);
        let old = files(&home);
        let token = home.tool(["flow.lobster"]).token();
        assert_eq!(answer(&home, &token, true).code(), 0);
        (old, files(&home))
    };
    let every = number("LOBSTER_CHANGES_KILLS", 7);
    let mut kills = 0;
    for point in (1..).step_by(every) {
        let home = home(EDITS);
        let token = home.tool(["flow.lobster"]).token();
        let call = home.lobster(["resume", "--token", &token, "--approve", "yes"]);
        if call.env("LOBSTER_FAULT", format!("{point}:kill")).run().code() != 137 {
            break;
        }
        kills += 1;
        finish(&home, &token, &old, &new, point);
    }
    assert!(kills > 4, "only {kills} kills");
}

/// Brings a run to its end that was killed while it took a yes.
fn finish(
    home: &Home,
    token: &str,
    old: &std::collections::BTreeMap<String, String>,
    new: &std::collections::BTreeMap<String, String>,
    point: usize,
) {
    home.write("other.lobster", "steps:\n  - {id: a, run: 'true'}\n");
    assert_eq!(home.tool(["other.lobster"]).code(), 0);
    let now = files(home);
    assert!(now == *old || now == *new, "killed at {point}: {now:#?}");
    let run = runs(home).into_iter().find(|run| run["name"] == "flow").unwrap();
    if run["status"] == "ok" {
        assert_eq!(now, *new, "killed at {point}");
        return;
    }
    // Killed before the answer was in the record, it is given again.
    let again = answer(home, token, true);
    let id = run["id"].as_str().unwrap();
    if again.code() != 0 && home.lobster(["resume", id]).run().code() != 0 {
        let last = home.lobster(["resume", id, "--retry-interrupted"]).run();
        assert_eq!(last.code(), 0, "killed at {point}: {last:#?}");
    }
    assert_eq!(files(home), *new, "killed at {point}, then resumed");
}

#[test]
fn a_policy_demands_a_review_whatever_the_workflow_and_the_layers_below_say() {
    let home = Home::new();
    let rule = "[[rule]]\nid = \"perl\"\neffect = \"allow\"\nprogram = \"perl\"\ngrant = { fs_write = [\"@workspace\"] }\n";
    home.write("a", "one\n").write("x.pl", "open(my $h, '>>', 'a'); print $h \"two\\n\";");
    home.write("p.toml", format!("version = 1\n[sandbox]\nchanges = \"review\"\n{rule}"));
    home.write("lower.toml", format!("version = 1\n[sandbox]\nchanges = \"direct\"\n{rule}"));
    home.write("wrong.toml", "version = 1\n[sandbox]\nchanges = \"never\"\n");
    home.write("x.lobster", "steps:\n  - { id: a, changes: direct, exec: [perl, x.pl] }\n");
    let policy = home.dir().join("p.toml");
    let call = |words: &[&str]| home.lobster(words).env("LOBSTER_POLICY", &policy).run();
    let before = tree(&home.dir());
    let asked = call(&["run", "--mode", "tool", "x.lobster"]);
    if asked.stdout.contains("cannot enforce") {
        return;
    }
    let preview = asked.envelope()["requiresApproval"]["preview"].as_str().unwrap().to_owned();
    assert!(preview.contains("+two\n"), "{preview}");
    assert_eq!(tree(&home.dir()), before);
    let token = asked.token();
    let done = call(&["resume", "--token", &token, "--approve", "yes"]);
    assert_eq!(done.envelope()["status"], "ok", "{done:#?}");
    assert_eq!(home.read("a"), "one\ntwo\n");
    // The record is read without the policy, too.
    let replay = home.lobster(["replay", "@"]).run();
    assert_eq!(replay.code(), 0, "{replay:#?}");

    let before = tree(&home.dir());
    let piped = call(&["run", "--mode", "tool", "exec perl x.pl"]);
    assert_eq!(piped.envelope()["status"], "needs_approval", "{piped:#?}");
    call(&["resume", "--token", &piped.token(), "--approve", "no"]);
    assert_eq!(tree(&home.dir()), before, "a pipeline is asked about as well");
    call(&["run", "--mode", "tool", "--policy", "lower.toml", "x.lobster"]);
    assert_eq!(tree(&home.dir()), before, "a policy below cannot ask for less");
    let wrong = home.lobster(["policy", "check", "wrong.toml"]).run();
    assert!(wrong.code() != 0, "{wrong:#?}");
}

#[test]
fn reviewed_is_direct_after_a_yes_and_nothing_after_a_no() {
    let scripts = crate::staged_model::programs(12);
    for (seed, plant, program) in scripts {
        let [yes, no, direct] = ["yes", "no", "direct"].map(|name| {
            let home = Home::new();
            let dir = home.dir().join("tree");
            fs::create_dir(&dir).unwrap();
            plant(&dir);
            home.write("program.sh", &program);
            let mode = if name == "direct" { "direct" } else { "review" };
            let text = format!(
                "steps:\n  - {{id: s, cwd: tree, changes: {mode}, run: 'umask 022; . ../program.sh'}}\n"
            );
            home.write("flow.lobster", text);
            home
        });
        let before = tree(&no.dir());
        direct.tool(["flow.lobster"]).output();
        for (home, says_yes) in [(&yes, true), (&no, false)] {
            let asked = home.tool(["flow.lobster"]);
            if asked.envelope()["status"] == "needs_approval" {
                answer(home, &asked.token(), says_yes);
            }
        }
        assert_eq!(files(&yes), files(&direct), "seed {seed}:\n{program}");
        assert_eq!(tree(&no.dir()), before, "seed {seed}, after a no:\n{program}");
    }
}

/// How a tree is made.
pub(crate) type Plant = Box<dyn Fn(&Path)>;

/// 300 files are edited by other programs while the question waits and while the yes is carried out.
#[test]
fn three_hundred_edits_during_a_review_are_each_named_and_none_is_overwritten() {
    const FILES: usize = 400;
    let home = Home::new();
    for number in 0..FILES {
        home.write(&format!("tree/f{number:03}"), "old\n");
    }
    home.write("flow.lobster", flow("review", "for f in f*; do echo step >> $f; done"));
    let token = home.tool(["flow.lobster"]).token();
    let edited = |number: usize| !number.is_multiple_of(4);
    let edit = |number: usize| {
        home.write(&format!("tree/f{number:03}"), format!("mine {number}\n"));
    };
    // Two thirds of them by four programs at once before the answer, the others while it is carried out.
    let (early, late): (Vec<usize>, Vec<usize>) =
        (0..FILES).filter(|number| edited(*number)).partition(|number| number % 3 != 0);
    assert_eq!(early.len() + late.len(), 300);
    std::thread::scope(|scope| {
        for part in early.chunks(early.len().div_ceil(4)) {
            scope.spawn(move || part.iter().for_each(|number| edit(*number)));
        }
    });
    let refused = std::thread::scope(|scope| {
        let answering = scope.spawn(|| answer(&home, &token, true));
        late.iter().for_each(|number| {
            edit(*number);
            std::thread::sleep(std::time::Duration::from_millis(2));
        });
        answering.join().unwrap()
    });
    let said = refused.error();
    let is_named = |said: &str, number: usize| said.contains(&format!("f{number:03}"));
    assert!(early.iter().all(|number| is_named(&said, *number)), "{said}");
    let whole = || {
        for number in 0..FILES {
            let expected = if edited(number) { format!("mine {number}\n") } else { "old\n".to_owned() };
            assert_eq!(home.read(&format!("tree/f{number:03}")), expected, "f{number:03}: {said}");
        }
    };
    whole();
    // By now all of them are there: each is named, and no other.
    let again = home.lobster(["resume", "@"]).run();
    let said = format!("{}{}", again.stdout, again.stderr);
    for number in 0..FILES {
        assert_eq!(is_named(&said, number), edited(number), "f{number:03}: {said}");
    }
    whole();
}
