//! An approval of a command covers the trees that it can read: whatever changes there after the question stops it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::approved_files::{POLICY, approve, ask, call, files, not_covered, workflow};
use crate::home::{Answer, Home, wait_until};

/// What the last run's record says of the approval.
fn enforced(home: &Home) -> Value {
    let shown = home.lobster(["show", "@", "--full"]).run().stdout;
    let enforced = shown.lines().find_map(|line| line.trim_start().strip_prefix("enforced "));
    serde_json::from_str(enforced.unwrap_or("null")).unwrap()
}

fn is_held(enforced: &Value) -> bool {
    enforced["held"].to_string().contains("approved-files")
}

/// Between the question and the approval somebody changes what the command would run, however it finds it.
#[test]
fn whatever_is_swapped_after_the_question_does_not_run() {
    let cases: Vec<Value> = include_str!("policy/swaps.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let home = Home::new();
        let mut wrong = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let id = case["id"].as_str().unwrap();
            let dir = format!("{id}/w");
            workflow(&home, &dir, case["command"].as_str().unwrap());
            let here = home.dir().join(&dir);
            let write = |files: &Value| {
                for (name, text) in files.as_object().unwrap() {
                    home.write(&format!("{dir}/{name}"), text.as_str().unwrap());
                    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
                    std::fs::set_permissions(here.join(name), mode).unwrap();
                }
            };
            let shell = |script: &Value| {
                let Some(script) = script.as_str() else { return };
                let done = std::process::Command::new("sh").args(["-c", script]).current_dir(&here).output();
                let done = done.unwrap();
                assert!(done.status.success(), "{id}: {done:?}");
            };
            write(&case["before"]);
            shell(&case["prepare"]);
            let asked = call(&home, &dir, &["run", "--mode", "tool", "f.lobster"]);
            if asked.envelope()["status"] != "needs_approval" {
                wrong.push(format!("{id} is not asked about: {asked:?}"));
                continue;
            }
            if not_covered(&asked) != "null" {
                wrong.push(format!("{id} has a gap: {}", not_covered(&asked)));
            }
            write(&case["after"]);
            shell(&case["swap"]);
            let done = approve(&home, &dir, &asked);
            let stale =
                done.stdout.contains("is not what would run now") && done.stdout.contains("Changed since");
            if format!("{done:?}").contains("SWAPPED-RAN") || !stale {
                wrong.push(format!("{id}: {done:?}"));
            }
        }
        wrong
    };
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// The strict policy that runs nothing else than what was approved.
const MINIMUM: &str = "version = 1\n[sandbox]\nmode = \"strict\"\nminimum = [\"approved-files\"]\n[sandbox.fs]\n\
                       read = [\"@system-ro\", \"@workspace\"]\nwrite = [\"@workspace\", \"@tmp\"]\n[sandbox.env]\npass = [\"PATH\"]\n";

#[test]
fn the_record_says_for_which_roots_an_approval_held() {
    let home = Home::new();
    workflow(&home, "a", "sh x.sh");
    home.write("p.toml", MINIMUM).write("a/x.sh", ". ./lib.sh\n").write("a/lib.sh", "echo GOOD\n");
    let asked = ask(&home, "a");
    assert_eq!(approve(&home, "a", &asked).output()[0], "GOOD\n");
    let record = enforced(&home);
    let root = std::fs::canonicalize(home.dir().join("a")).unwrap();
    assert!(is_held(&record), "{record}");
    assert_eq!(record["approved_roots"], serde_json::json!([root]), "{record}");

    // What changes meanwhile may be the command's doing or that of others.
    workflow(&home, "b", "sh x.sh > out.txt");
    home.write("p.toml", MINIMUM).write("b/x.sh", "echo GOOD\n");
    let asked = ask(&home, "b");
    approve(&home, "b", &asked).output();
    let record = enforced(&home);
    assert!(!is_held(&record), "{record}");
    let root = root.with_file_name("b");
    let changed = ["the root (entries came and went)", "out.txt (new)"]
        .map(|what| format!("{}: {what}", root.display()));
    assert_eq!(record["changed_meanwhile"], serde_json::json!(changed), "{record}");

    // Caches of interpreters stay out of the tree.
    workflow(&home, "c", "python3 p.py");
    home.write("p.toml", MINIMUM).write("c/p.py", "import q\n").write("c/q.py", "print('GOOD')\n");
    let asked = ask(&home, "c");
    assert_eq!(approve(&home, "c", &asked).output()[0], "GOOD\n");
    assert!(is_held(&enforced(&home)) && !home.dir().join("c/__pycache__").exists());

    // What comes over the network is bound by nothing.
    workflow(&home, "d", "sh x.sh");
    let net = "[sandbox.net]\ndefault = \"hosts\"\nhosts = [\"example.com:443\"]\n";
    home.write("p.toml", format!("{MINIMUM}{net}")).write("d/x.sh", "echo GOOD\n");
    let asked = ask(&home, "d");
    assert_eq!(not_covered(&asked), r#"["what it receives over the network"]"#);
    let refused = approve(&home, "d", &asked).error();
    assert!(refused.contains("approved-files") && refused.contains("over the network"), "{refused}");
}

#[test]
fn a_swap_while_the_command_runs_is_never_recorded_as_held() {
    let home = Home::new();
    workflow(&home, "a", "touch started; while ! [ -e go ]; do sleep 0.01; done; cat lib.sh | sh");
    home.write("a/lib.sh", "echo GOOD\n");
    let asked = ask(&home, "a");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !home.dir().join("a/started").exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            home.write("a/lib.sh", "echo SWAPPED-RAN\n").write("a/go", "");
        });
        approve(&home, "a", &asked).output();
    });
    let record = enforced(&home);
    assert!(
        !is_held(&record) && record["changed_meanwhile"].to_string().contains("lib.sh (changed)"),
        "{record}"
    );
}

/// Exchanges the second block of `settings.sh` for one of `../filler`, which keeps all times, and drops the pages that
/// the kernel still has. False if the file system cannot do this.
fn exchange_block(dir: &std::path::Path) -> bool {
    let script = "import fcntl, os, struct\n\
        filler, settings = (os.open(name, os.O_RDWR) for name in ('../filler', 'settings.sh'))\n\
        request = struct.pack('IIQQQQ', 0, settings, 1, 1, 1, 0)\n\
        fcntl.ioctl(filler, 0xc028660f, bytearray(request))\n\
        os.posix_fadvise(settings, 0, 0, os.POSIX_FADV_DONTNEED)\n";
    let done = std::process::Command::new("python3").args(["-c", script]).current_dir(dir).output().unwrap();
    if !done.status.success() {
        println!("skipped: blocks cannot be exchanged here: {}", String::from_utf8_lossy(&done.stderr));
    }
    done.status.success()
}

/// On ext4, a process outside can give a file other bytes and the same times.
#[test]
fn an_exchange_of_blocks_is_found() {
    let home = Home::new();
    let write_synced = |name: &str, text: &str| {
        home.write(name, text);
        std::fs::File::open(home.dir().join(name)).unwrap().sync_all().unwrap();
    };
    let set_up = |dir: &str, script: &str| {
        workflow(&home, dir, "sh x.sh");
        home.write("p.toml", MINIMUM).write(&format!("{dir}/x.sh"), script);
        write_synced(&format!("{dir}/settings.sh"), &format!("{}live=no\n", "# padding\n".repeat(410)));
        write_synced("filler", &"#\n".repeat(4096));
        // Now the times of the file prove that it was not written.
        std::thread::sleep(Duration::from_millis(50));
        let asked = ask(&home, dir);
        assert_eq!(not_covered(&asked), "null");
        asked
    };
    let asked = set_up("a", "live=yes; . ./settings.sh; echo live is $live\n");
    if !exchange_block(&home.dir().join("a")) {
        return;
    }
    let refused = approve(&home, "a", &asked).error();
    assert!(refused.contains("Changed since the question: settings.sh (changed)."), "{refused}");

    // Meanwhile the command waits for the change, at most 20 seconds.
    let script =
        "i=0; while grep -q live=no settings.sh && [ $i -lt 100 ]; do sleep 0.20533; i=$((i + 1)); done\n";
    let asked = set_up("b", script);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_until("the command runs", || is_running(&["sleep", "0.20533"]));
            assert!(exchange_block(&home.dir().join("b")));
        });
        approve(&home, "b", &asked).output();
    });
    let record = enforced(&home);
    let changed = record["changed_meanwhile"].to_string();
    assert!(!is_held(&record) && changed.contains("settings.sh (changed)"), "{record}");
    assert_eq!(record["approved_roots"], Value::Null, "{record}");
}

/// True if a process with exactly these words is running anywhere.
fn is_running(words: &[&str]) -> bool {
    let wanted: String = words.iter().map(|word| format!("{word}\0")).collect();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut texts = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    texts.any(|text| text == wanted.as_bytes())
}

/// Files that others add to the root of the workspace while the command runs, and remove before it ends.
#[test]
fn a_file_that_came_and_went_is_never_recorded_as_held() {
    let home = Home::new();
    let (first, second) = (["sleep", "1.07531"], ["sleep", "1.07532"]);
    for (dir, name) in [("a", "opt.sh"), ("b", "sub/opt.sh"), ("c", ".git/opt.sh")] {
        workflow(&home, dir, "sh x.sh");
        let script = format!("{}\n[ -e {name} ] && . ./{name}\n{}\n", first.join(" "), second.join(" "));
        home.write("p.toml", MINIMUM)
            .write(&format!("{dir}/x.sh"), script)
            .write(&format!("{dir}/sub/a"), "");
        let asked = ask(&home, dir);
        let path = home.dir().join(dir).join(name);
        let done = std::thread::scope(|scope| {
            scope.spawn(|| {
                wait_until("the command runs", || is_running(&first));
                // In the last case the directory is lobster's placeholder.
                std::fs::write(&path, "echo SWAPPED-RAN\n").unwrap();
                wait_until("the command has read it", || is_running(&second));
                std::fs::remove_file(&path).unwrap();
            });
            approve(&home, dir, &asked)
        });
        assert!(done.output()[0].to_string().contains("SWAPPED-RAN"), "{done:?}");
        let record = enforced(&home);
        let changed = record["changed_meanwhile"].to_string();
        let named = match dir {
            "a" => "the root (entries came and went)",
            "b" => "sub (entries came and went)",
            _ => ".git (changed)",
        };
        assert!(!is_held(&record) && changed.contains(named), "{record}");
        assert_eq!(record["approved_roots"], Value::Null, "{record}");
    }
}

/// A policy under which one step writes without a question what the next one runs.
fn with_writer(file: &str) -> String {
    let rule = format!("[[rule]]\nid = \"w\"\neffect = \"allow\"\nargv = [\"tee\", \"{file}\"]\n");
    format!("{MINIMUM}{rule}grant = {{ fs_write = [\"@workspace\"] }}\n")
}

/// The changes of an earlier step that wait for their review.
#[test]
fn the_question_covers_waiting_changes() {
    let home = Home::new();
    for (dir, file) in [("a", "lib.sh"), ("b", "x.sh"), ("c", "new.sh")] {
        let flow = format!(
            "steps:\n  - {{ id: p, exec: [tee, {file}], stdin: \"echo LAYER\\n\", changes: review }}\n  \
             - {{ id: a, run: sh x.sh, changes: review }}\n"
        );
        home.write("p.toml", with_writer(file))
            .write(&format!("{dir}/f.lobster"), flow)
            .write(&format!("{dir}/x.sh"), ". ./lib.sh; [ ! -e new.sh ] || . ./new.sh\n")
            .write(&format!("{dir}/lib.sh"), "echo GOOD\n");
        let asked = ask(&home, dir);
        let item = asked.envelope()["requiresApproval"]["items"][0].clone();
        let waiting = item["waiting_changes"].as_array().unwrap();
        let texts: Vec<&str> = waiting.iter().map(|line| line.as_str().unwrap()).collect();
        assert!(texts[0].starts_with("of step p, not committed  "), "{item}");
        assert!(texts[1].contains(&format!("/{dir}/{file}  ")) && texts.len() == 2, "{item}");
        // The step runs its layer's file, and not a copy of the other one.
        let expected: &[&str] = if file == "x.sh" { &[] } else { &["x.sh"] };
        assert_eq!(files(&asked), expected, "{item}");
        // The files below the layer are bound as well.
        let stale = ask(&home, dir);
        home.write(&format!("{dir}/other"), "");
        let refused = approve(&home, dir, &stale).error();
        assert!(refused.contains("is not what would run now"), "{refused}");
        std::fs::remove_file(home.dir().join(dir).join("other")).unwrap();

        let reviewed = approve(&home, dir, &asked);
        assert_eq!(reviewed.envelope()["status"], "needs_approval", "{reviewed:?}");
        let done = approve(&home, dir, &reviewed);
        let expected = if file == "new.sh" { "GOOD\nLAYER\n" } else { "LAYER\n" };
        assert_eq!(done.output()[0], expected, "{done:?}");
    }
}

/// On tmpfs no time shows a write to mapped memory.
#[test]
fn a_file_system_that_keeps_no_times_is_a_gap() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else { return };
    let home = Home::new();
    let dir = memory.path().to_str().unwrap();
    workflow(&home, dir, "sh x.sh");
    home.write(&format!("{dir}/x.sh"), "echo GOOD\n");
    let asked = ask(&home, dir);
    assert!(not_covered(&asked).contains("does not show every change of a file"), "{asked:?}");
    assert_eq!(approve(&home, dir, &asked).output()[0], "GOOD\n");
    let record = enforced(&home);
    assert!(!is_held(&record) && record["approved_roots"].is_null(), "{record}");
    home.write("p.toml", MINIMUM);
    let asked = ask(&home, dir);
    let refused = approve(&home, dir, &asked).error();
    assert!(refused.contains("approved-files"), "{refused}");
}

/// The image of a mounted file system can change below it, which gives no file another time.
#[test]
fn a_loop_mount_is_a_gap() {
    struct Mount(std::path::PathBuf);
    impl Drop for Mount {
        fn drop(&mut self) {
            let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
    let home = Home::new();
    workflow(&home, "a", "sh x.sh");
    home.write("a/x.sh", "echo GOOD\n").write("a/sub/x", "");
    let script = "truncate -s 8M image && mkfs.ext4 -q image && mount -o loop image a/sub";
    let done =
        std::process::Command::new("sh").args(["-c", script]).current_dir(home.dir()).output().unwrap();
    if !done.status.success() {
        println!("skipped: no image can be mounted here: {}", String::from_utf8_lossy(&done.stderr));
        return;
    }
    let _mount = Mount(home.dir().join("a/sub"));
    home.write("a/sub/list", "echo LIST\n");
    let asked = ask(&home, "a");
    assert!(not_covered(&asked).contains("does not show every change of a file"), "{asked:?}");
    assert_eq!(approve(&home, "a", &asked).output()[0], "GOOD\n");
    let record = enforced(&home);
    assert!(!is_held(&record) && record["approved_roots"].is_null(), "{record}");
    home.write("p.toml", MINIMUM);
    let asked = ask(&home, "a");
    let refused = approve(&home, "a", &asked).error();
    assert!(refused.contains("approved-files"), "{refused}");
}

/// A state directory in the workspace is hidden, except for what the policy grants in it.
#[test]
fn what_is_granted_of_the_state_is_bound() {
    let home = Home::new();
    workflow(&home, "a", "sh x.sh");
    let rule = "[[rule]]\nid = \"g\"\neffect = \"ask\"\nprogram = \"sh\"\n\
                grant = { fs_read = [\"@state/x\"] }\n";
    home.write("p.toml", format!("{POLICY}{rule}")).write("a/x.sh", ". ./st/x/l.sh\n");
    let state = home.second_state("a/st");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&state, private).unwrap();
    home.write("a/st/x/l.sh", "echo GOOD\n");
    let call = |words: &[&str]| -> Answer {
        let call = home.lobster(words).env("LOBSTER_POLICY", home.dir().join("p.toml"));
        call.env("LOBSTER_STATE_DIR", &state).dir(&home.dir().join("a")).run()
    };
    let run = ["run", "--mode", "tool", "f.lobster"];
    let asked = call(&run);
    let done = call(&["resume", "--token", &asked.token(), "--approve", "yes"]);
    assert_eq!(done.output()[0], "GOOD\n", "{done:?}");
    let asked = call(&run);
    home.write("a/st/x/l.sh", "echo SWAPPED-RAN\n");
    let stale = call(&["resume", "--token", &asked.token(), "--approve", "yes"]).error();
    assert!(stale.contains("is not what would run now"), "{stale}");
}

/// A command that was killed has changed the very files that its approval binds.
#[test]
fn an_interrupted_command_is_asked_about_again() {
    let home = Home::new();
    workflow(&home, "a", "sh x.sh");
    home.write("a/x.sh", "touch started; [ -e again ] || sleep 60; echo DONE\n");
    let asked = ask(&home, "a");
    let here = home.dir().join("a");
    let resume = home.lobster(["resume", "--token", &asked.token(), "--approve", "yes"]);
    let mut resumed = resume.env("LOBSTER_POLICY", home.dir().join("p.toml")).dir(&here).start();
    while !here.join("started").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    resumed.kill().unwrap();
    resumed.wait().unwrap();
    // A question that sees the killed run's placeholders would be asked again once they are gone.
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while [".git", ".lobster", ".lobster-cache", "lobster.policy.toml"]
        .iter()
        .any(|name| here.join(name).exists())
    {
        assert!(std::time::Instant::now() < end, "placeholders stay");
        std::thread::sleep(Duration::from_millis(5));
    }
    home.write("a/again", "");
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    let again = call(&home, "a", &["resume", runs[0]["id"].as_str().unwrap(), "--retry-interrupted"]);
    assert_eq!(again.envelope()["status"], "needs_approval", "{again:?}");
    // Now the approval holds, and the command still is not repeated without being told to.
    let refused = approve(&home, "a", &again).error();
    assert!(refused.contains("was interrupted"), "{refused}");
    let done = call(&home, "a", &["resume", runs[0]["id"].as_str().unwrap(), "--retry-interrupted"]);
    assert_eq!(done.output()[0], "DONE\n", "{done:?}");
}

#[test]
fn what_no_approval_binds_is_named() {
    let home = Home::new();
    workflow(&home, "a", "sh x.sh");
    let unbound = "[approvals]\nunbound = [\"*.log\", \"@workspace/tmp\"]\n";
    home.write("p.toml", format!("{POLICY}{unbound}"))
        .write("a/x.sh", "cat *.log\n")
        .write("a/a.log", "one\n");
    let asked = ask(&home, "a");
    let gaps = r#"["*.log: the policy leaves it out (unbound)","@workspace/tmp: the policy leaves it out (unbound)"]"#;
    assert_eq!(not_covered(&asked), gaps);
    let item = &asked.envelope()["requiresApproval"]["items"][0];
    let not_compared = serde_json::json!(["@system-ro", "times of files, and their number of names"]);
    assert_eq!(item["not_compared"], not_compared);
    home.write("a/a.log", "two\n").write("a/tmp/x", "");
    assert_eq!(approve(&home, "a", &asked).output()[0], "two\n");
    assert!(!is_held(&enforced(&home)));

    // A tree that is too large is the first thing that the question says of gaps.
    workflow(&home, "b", "sh x.sh");
    home.write("b/x.sh", "echo GOOD\n").write("b/big", "");
    std::fs::File::options().write(true).open(home.dir().join("b/big")).unwrap().set_len(5 << 30).unwrap();
    let asked = ask(&home, "b");
    let gaps = not_covered(&asked);
    assert!(gaps.starts_with("[\"the tree ") && gaps.contains("more than 200000 files or 4 GiB"), "{gaps}");
    assert_eq!(files(&asked), ["x.sh"]);
}

#[test]
fn an_approval_ends_when_the_policy_grants_another_root() {
    let home = Home::new();
    workflow(&home, "a", "sh x.sh");
    home.write("a/x.sh", "cat ../b/text\n").write("b/text", "SWAPPED-RAN\n");
    let asked = ask(&home, "a");
    let root = std::fs::canonicalize(home.dir().join("b")).unwrap();
    let roots = POLICY.replace("read = [", &format!("read = [{root:?}, "));
    home.write("p.toml", roots);
    let refused = approve(&home, "a", &asked).error();
    assert!(refused.contains("is not what would run now"), "{refused}");
}

#[test]
fn a_question_that_cannot_show_every_command_is_not_asked() {
    let home = Home::new();
    let many: Vec<String> = (0..900).map(|number| format!("touch step{number}")).collect();
    workflow(&home, "a", &format!("{}; rm -r ./precious; git push evil HEAD", many.join("; ")));
    let refused = call(&home, "a", &["run", "--mode", "tool", "f.lobster"]).error();
    assert!(
        refused.contains("shows 50 different commands at most") && refused.contains("several steps"),
        "{refused}"
    );
    // The same command several times is one.
    let same = vec!["touch a"; 900].join("; ");
    workflow(&home, "b", &format!("{same}; sh x.sh"));
    let item = ask(&home, "b").envelope()["requiresApproval"]["items"][0].clone();
    assert!(item["commands"].as_array().unwrap().len() <= 3, "{item}");
}
