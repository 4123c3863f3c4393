//! Each blob and each record of a run is damaged in turn: whatever reads the record gives the same as before, or
//! says that the record is damaged and fails. It never gives less without a word.

use std::fs;
use std::path::PathBuf;

use rusqlite::types::Value as Cell;
use rusqlite::{Connection, params, params_from_iter};
use serde_json::Value;

use crate::home::{Answer, Home};

/// Steps of every kind that leaves something in the store.
const WORKFLOW: &str = "
name: everything
args:
  word: { default: first }
steps:
  - id: text
    run: echo said $LOBSTER_ARG_WORD; echo complained >&2
  - id: words
    exec: [printenv, HERE]
  - id: large
    run: seq 30000
  - id: sum
    js: input.split('\\n').length
    stdin: $large.stdout
  - id: numbers
    run: echo '[1, 2]'
  - id: each
    for_each: $numbers.json
    steps:
      - id: one
        js: input + 1
        stdin: $item.json
  - id: files
    cwd: tree
    changes: staged
    run: echo new > a; rm b
  - id: ask
    approval: Go on?
  - id: fails
    run: echo last words >&2; exit 3
    on_error: continue
  - id: end
    pipeline: head --n 1
    stdin: $numbers.json
";

/// A way to harm a blob.
#[derive(Clone, Copy, Debug)]
enum Harm {
    /// Its bytes are other ones.
    Altered,
    /// It is not there any more.
    Gone,
}

/// A blob as the store has it.
struct Kept {
    digest: Vec<u8>,
    row: Vec<Cell>,
    /// A large one is a file.
    file: Option<(PathBuf, Vec<u8>)>,
}

fn database(home: &Home) -> Connection {
    Connection::open(home.state().join("store/lobster.db")).unwrap()
}

fn blobs(home: &Home) -> Vec<Kept> {
    let db = database(home);
    let mut statement = db.prepare("SELECT * FROM blobs ORDER BY digest").unwrap();
    let columns = statement.column_count();
    let digest_at = statement.column_index("digest").unwrap();
    let rows = statement.query_map([], |row| {
        Ok((0..columns).map(|at| row.get(at)).collect::<Result<Vec<Cell>, _>>().unwrap())
    });
    let kept = |row: Vec<Cell>| {
        let Cell::Blob(digest) = row[digest_at].clone() else { panic!("a digest is bytes") };
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = home.state().join("store/blobs").join(&hex[..2]).join(&hex);
        let file = fs::read(&path).ok().map(|bytes| (path, bytes));
        Kept { digest, row, file }
    };
    rows.unwrap().map(|row| kept(row.unwrap())).collect()
}

impl Kept {
    fn harm(&self, home: &Home, harm: Harm) {
        let db = database(home);
        match (harm, &self.file) {
            (Harm::Altered, Some((path, bytes))) => {
                let mut bytes = bytes.clone();
                bytes[0] ^= 1;
                fs::remove_file(path).unwrap();
                fs::write(path, bytes).unwrap();
            }
            (Harm::Altered, None) => {
                let sql = "UPDATE blobs SET data = CAST('x' || data AS BLOB) WHERE digest = ?1";
                db.execute(sql, params![self.digest]).unwrap();
            }
            (Harm::Gone, file) => {
                if let Some((path, _)) = file {
                    fs::remove_file(path).unwrap();
                }
                db.execute("DELETE FROM blobs WHERE digest = ?1", params![self.digest]).unwrap();
            }
        }
    }

    /// Its beginning, for a person.
    fn text(&self) -> String {
        let small = self.row.iter().rev().find_map(|cell| match cell {
            Cell::Blob(bytes) if *bytes != self.digest => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        });
        small.unwrap_or_else(|| "a file".to_owned()).chars().take(120).collect()
    }

    fn heal(&self, home: &Home) {
        if let Some((path, bytes)) = &self.file {
            let _ = fs::remove_file(path);
            fs::write(path, bytes).unwrap();
        }
        let marks = vec!["?"; self.row.len()].join(", ");
        let sql = format!("INSERT OR REPLACE INTO blobs VALUES ({marks})");
        database(home).execute(&sql, params_from_iter(&self.row)).unwrap();
    }
}

/// A home with two runs of the workflow, the earlier one first.
fn recorded() -> (Home, String, String) {
    let home = Home::new();
    home.write("flow.lobster", WORKFLOW);
    for word in ["first", "second"] {
        home.write("tree/a", "old\n").write("tree/b", "gone\n");
        let args = format!("{{\"word\":\"{word}\"}}");
        let words = ["run", "--mode", "tool", "flow.lobster", "--args-json", &args];
        let token = home.lobster(words).env("HERE", "here").run().token();
        let answer = ["resume", "--token", &token, "--approve", "yes"];
        home.lobster(answer).env("HERE", "here").run().output();
    }
    let listed: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    let id = |at: usize| listed[at]["id"].as_str().unwrap().to_owned();
    let (early, late) = (id(1), id(0));
    (home, early, late)
}

/// Every command that reads the record.
fn readers(early: &str, late: &str) -> Vec<Vec<String>> {
    let lines = [
        "show LATE --full",
        "show LATE --json",
        "logs LATE",
        "logs LATE --json",
        "logs LATE --output",
        "runs --full",
        "runs --json",
        "audit --full",
        "audit --jsonl --program printenv",
        "changes LATE --patch",
        "changes LATE --stat",
        "changes LATE --json",
        "replay LATE",
        "diff EARLY LATE",
        "why LATE text --vs EARLY --full",
        "cost --json",
        "bundle export LATE -o out.bundle",
        "store verify",
    ];
    let words = |line: &&str| {
        let line = line.replace("LATE", late).replace("EARLY", early);
        line.split(' ').map(str::to_owned).collect()
    };
    lines.iter().map(words).collect()
}

/// `store verify` counts the blobs that there are, and knows no blob that only a blob names: what needs one says
/// that it is gone.
fn is_beyond_it(words: &[String], harm: Harm, blob: &Kept) -> bool {
    words[0] == "store" && matches!(harm, Harm::Gone) && !blob.text().contains("\"argv\"")
}

fn says_damage(answer: &Answer) -> bool {
    let said = format!("{}{}", answer.stdout, answer.stderr);
    let words = ["is damaged", "is lost", "is missing", "is not in the store", "journal of run"];
    answer.code() != 0 && words.iter().any(|word| said.contains(word))
}

#[test]
fn no_reader_makes_less_of_a_damaged_record_without_saying_so() {
    let (home, early, late) = recorded();
    let readers = readers(&early, &late);
    let sound: Vec<Answer> = readers.iter().map(|words| home.lobster(words).run()).collect();
    for (words, answer) in readers.iter().zip(&sound) {
        assert!(!says_damage(answer), "{words:?}: {answer:?}");
    }
    let mut noticed = 0;
    let mut silent = Vec::new();
    let kept = blobs(&home);
    for (blob, harm) in kept.iter().flat_map(|blob| [(blob, Harm::Altered), (blob, Harm::Gone)]) {
        blob.harm(&home, harm);
        for (words, sound) in readers.iter().zip(&sound) {
            let answer = home.lobster(words).run();
            let is_same = (answer.code(), &answer.stdout) == (sound.code(), &sound.stdout);
            assert!(!answer.stderr.contains("panicked"), "{words:?}: {answer:?}");
            if says_damage(&answer) {
                noticed += 1;
            } else if !is_same && !is_beyond_it(words, harm, blob) {
                silent.push(format!("{harm:?} {}: {words:?}: {answer:?} instead of {sound:?}", blob.text()));
            }
        }
        blob.heal(&home);
    }
    assert!(silent.is_empty(), "{}", silent.join("\n"));
    assert!(noticed > 40, "{noticed}");
    let answer = home.lobster(["store", "verify"]).run();
    assert_eq!(answer.code(), 0, "{answer:?}");
}

#[test]
fn no_reader_takes_a_damaged_record_for_what_happened() {
    let (home, early, late) = recorded();
    let readers = readers(&early, &late);
    let sound: Vec<Answer> = readers.iter().map(|words| home.lobster(words).run()).collect();
    let records: Vec<(i64, String)> = {
        let db = database(&home);
        let mut statement = db.prepare("SELECT seq, record FROM journal WHERE run = 2 ORDER BY seq").unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let mut silent = Vec::new();
    for (at, (seq, text)) in records.iter().enumerate() {
        let set = |text: &str| {
            let sql = "UPDATE journal SET record = ?2 WHERE run = 2 AND seq = ?1";
            assert_eq!(database(&home).execute(sql, params![seq, text]).unwrap(), 1);
        };
        let mut altered: Value = serde_json::from_str(text).unwrap();
        altered["at"] = (altered["at"].as_i64().unwrap() + 1).into();
        set(&if at % 2 == 0 { altered.to_string() } else { format!("x{text}") });
        for (words, sound) in readers.iter().zip(&sound) {
            let answer = home.lobster(words).run();
            let is_same = (answer.code(), &answer.stdout) == (sound.code(), &sound.stdout);
            if !is_same && !says_damage(&answer) {
                silent.push(format!("{text}: {words:?}: {answer:?} instead of {sound:?}"));
            }
        }
        set(text);
    }
    assert!(silent.is_empty(), "{}", silent.join("\n"));
}
