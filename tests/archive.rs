//! The archive that is shipped holds what it should, and the same each time.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::binary::{self, repository};

fn run(program: &str, words: &[&str], dir: &Path) -> String {
    let done = Command::new(program).args(words).current_dir(dir).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {words:?}: {said}");
    said
}

fn exists(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|done| done.status.success())
}

#[test]
fn the_archive_is_whole_and_the_same_each_time() {
    let dir = tempfile::tempdir().unwrap();
    // The binary itself is large, and packing it takes longer than all the rest.
    let stand_in = dir.path().join("lobster");
    std::fs::write(&stand_in, format!("#!/bin/sh\nexec '{}' \"$@\"\n", binary::lobster().display())).unwrap();
    run("chmod", &["755", "lobster"], dir.path());
    let script = repository().join("packaging/archive.py");
    for out in ["one", "two"] {
        let words = [script.to_str().unwrap(), stand_in.to_str().unwrap(), out];
        let done = Command::new("python3")
            .args(words)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .current_dir(dir.path())
            .output();
        let done = done.unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    run("diff", &["-r", "one", "two"], dir.path());
    let out = dir.path().join("one");
    let archive =
        std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let archive = archive.into_iter().find(|name| name.ends_with(".tar.gz")).unwrap();
    assert!(run("sha256sum", &["-c", &format!("{archive}.sha256")], &out).contains("OK"));
    run("tar", &["xzf", &archive], &out);
    let inside = out.join(archive.strip_suffix(".tar.gz").unwrap());
    run("sha256sum", &["--quiet", "-c", "SHA256SUMS"], &inside);
    assert!(run("./lobster", &["version"], &inside).starts_with(|c: char| c.is_ascii_graphic()));
    for shell in ["bash", "zsh", "fish"] {
        let completions = std::fs::read_to_string(inside.join("completions").join(shell)).unwrap();
        assert!(completions.contains(&format!("lobster complete {shell}")), "{shell}: {completions}");
    }

    // Everything that is built in is in the bill, with its licence, and so are the texts.
    let bill = std::fs::read_to_string(inside.join("sbom.cdx.json")).unwrap();
    let bill: Value = serde_json::from_str(&bill).unwrap();
    let licences = std::fs::read_to_string(inside.join("THIRD-PARTY-LICENSES.txt")).unwrap();
    let mut names = BTreeSet::new();
    for component in bill["components"].as_array().unwrap() {
        let name = component["name"].as_str().unwrap();
        let named = format!("{name} {} (", component["version"].as_str().unwrap());
        assert!(licences.contains(&named), "no licence of {named}");
        assert_ne!(component["licenses"][0]["expression"], "", "{name}");
        assert!(component["hashes"][0]["content"].is_string(), "{name}");
        names.insert(name);
    }
    assert!(["wasmtime", "rusqlite", "clap"].iter().all(|name| names.contains(name)), "{names:?}");
    assert!(!names.contains("wat"), "a crate of the tests is in the bill");

    // Each command has a page, and a formatter has nothing to say against it.
    let described: Value = serde_json::from_str(&run("./lobster", &["--describe"], &inside)).unwrap();
    let pages = inside.join("man/man1");
    for command in described["commands"].as_array().unwrap() {
        let page = format!("lobster-{}.1", command["name"].as_str().unwrap());
        let text = std::fs::read_to_string(pages.join(&page)).unwrap();
        for argument in command["arguments"].as_array().into_iter().flatten() {
            let flag = argument["flag"].as_str().unwrap_or_default().replace('-', "\\-");
            assert!(text.contains(&flag), "{page} does not tell of {flag}");
        }
        if exists("groff") {
            assert_eq!(run("groff", &["-man", "-ww", "-z", "-Tutf8", "-k", &page], &pages), "", "{page}");
        }
    }
}
