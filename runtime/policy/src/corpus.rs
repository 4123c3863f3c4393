//! Runs a corpus of commands and compares their verdicts.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Policy;
use super::decide::{Command, Proposal, Verdict};
use super::decision_env::DecisionEnv;
use super::dialect::{Dialect, Shell};
use super::file::Profile;

/// Reason why a corpus could not be run.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    /// The file could not be read.
    #[error("cannot read the corpus {path}: {source}")]
    Read {
        /// Path of the corpus.
        path: String,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A line is not a case.
    #[error("{path}:{line}: {source}; a case is {{\"id\", \"command\", \"expect\"}} on one line")]
    Line {
        /// Path of the corpus.
        path: String,
        /// Line number, from 1.
        line: usize,
        /// Parse error of the line.
        source: serde_json::Error,
    },
}

/// One line of a corpus.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    id: String,
    command: String,
    #[serde(default)]
    cwd: Option<String>,
    #[serde(default)]
    policy_profile: Option<Profile>,
    expect: Verdict,
    #[serde(default, rename = "why")]
    _why: Option<String>,
}

/// Result of one case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CaseResult {
    /// Id of the case.
    pub id: String,
    /// Verdict of the policy.
    pub verdict: Verdict,
    /// Expected verdict.
    pub expect: Verdict,
    /// Deciding reason.
    pub reason: String,
}

impl CaseResult {
    /// True if the verdict is the expected one.
    #[must_use]
    pub fn has_passed(&self) -> bool {
        self.verdict == self.expect
    }
}

/// Result of a whole corpus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CorpusReport {
    /// Every case in file order.
    pub cases: Vec<CaseResult>,
    /// Number of cases with the expected verdict.
    pub passed: usize,
    /// Number of other cases.
    pub failed: usize,
}

impl Policy {
    /// Decides every line of the JSONL file `path` in the corpus fixture, with a shell of this
    /// language, and compares the verdicts with the expected ones. Nothing is run.
    ///
    /// # Errors
    /// [`CorpusError`] if the file cannot be read or a line is not a case.
    pub fn test_corpus(&self, path: &Path, dialect: Dialect) -> Result<CorpusReport, CorpusError> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| CorpusError::Read { path: shown.clone(), source })?;
        let env = DecisionEnv::fixture().with_shell(Shell::example(dialect));
        let mut cases = Vec::new();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let case: Case = serde_json::from_str(line).map_err(|source| CorpusError::Line {
                path: shown.clone(),
                line: at + 1,
                source,
            })?;
            let policy;
            let policy = match case.policy_profile {
                Some(profile) if profile != self.file().profile => {
                    policy = self.with_profile(profile);
                    &policy
                }
                Some(_) | None => self,
            };
            let proposal = Proposal { command: Command::Shell(case.command), cwd: case.cwd };
            let decision = policy.decide(&proposal, &env);
            cases.push(CaseResult {
                id: case.id,
                verdict: decision.verdict,
                expect: case.expect,
                reason: format!("{}: {}", decision.reason_code, decision.message),
            });
        }
        let passed = cases.iter().filter(|case| case.has_passed()).count();
        Ok(CorpusReport { failed: cases.len() - passed, passed, cases })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus_dir() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/policy")
    }

    /// Commands from an external review: no verdict may be more lenient.
    #[test]
    fn no_case_of_the_red_team_is_more_lenient_than_expected() {
        let text = std::fs::read_to_string(corpus_dir().join("example.toml")).unwrap();
        let policy = Policy::load(&text, "example.toml").unwrap();
        for (file, count) in [
            ("redteam.jsonl", 223),
            ("redteam-2.jsonl", 513),
            ("redteam-3.jsonl", 75),
            ("redteam-4.jsonl", 124),
            ("redteam-5.jsonl", 87),
            ("redteam-6.jsonl", 24),
            ("redteam-7.jsonl", 33),
        ] {
            let report = policy.test_corpus(&corpus_dir().join(file), Dialect::Bash).unwrap();
            let lenient: Vec<String> = report
                .cases
                .iter()
                .filter(|case| case.verdict < case.expect)
                .map(|case| format!("{} {:?} not {:?}: {}", case.id, case.verdict, case.expect, case.reason))
                .collect();
            assert_eq!(lenient, Vec::<String>::new(), "{} of {}", lenient.len(), report.cases.len());
            assert_eq!(report.cases.len(), count, "{file}");
        }
    }

    /// A wildcard that finds hidden secrets reaches a reading command in every shell and in several
    /// ways: written out, or through a loop, `set` or a variable.
    #[test]
    fn no_way_of_naming_hidden_files_by_wildcard_reads_secrets() {
        let text = std::fs::read_to_string(corpus_dir().join("example.toml")).unwrap();
        let policy = Policy::load(&text, "example.toml").unwrap();
        let patterns = [".*", ".??*", ".e*", ".[!.]*", ".en?", "src/.*", "./.*", ".env*"];
        let readers = [
            "cat {}",
            "for f in {}; do cat \"$f\"; done",
            "for f in {}; do cat $f; done",
            "for f in {}; do cat -- \"./$f\"; done",
            "for f in a {}; do head -n 1 \"$f\"; done",
            "for f in {}; do cat < \"$f\"; done",
            "for f in {}; do g=$f; cat \"$g\"; done",
            "for f in {}; do for g in \"$f\"; do grep x \"$g\"; done; done",
            "for f in {}; do (cat \"$f\"); done",
            "set -- {}; cat \"$@\"",
            "set -- {}; cat \"$1\"",
            "set -- {}; for f; do cat \"$f\"; done",
            "f={}; cat $f",
        ];
        for dialect in [Dialect::Dash, Dialect::Ash, Dialect::Bash] {
            let env = DecisionEnv::fixture().with_shell(Shell::example(dialect));
            for (pattern, reader) in patterns.iter().flat_map(|p| readers.iter().map(move |r| (p, r))) {
                let text = reader.replace("{}", pattern);
                let decision = policy.decide(&Proposal::shell(text.clone()), &env);
                assert_ne!(decision.verdict, Verdict::Allow, "{dialect:?}: {text}");
            }
            for plain in [
                "for f in *.md; do cat \"$f\"; done",
                "for f in ./*; do sort \"$f\"; done",
                "sort ./*",
                "for f in *; do [ -e \"$f\" ] || continue; wc -l \"$f\"; done",
                "for f in *; do [ \"$f\" = README.md ] && head -n 3 \"$f\"; done",
                "for f in src/*; do case \"$f\" in *.rs) grep -c fn \"$f\";; esac; done",
                "for f in *.md; do echo \"$f: $(wc -l < \"$f\")\"; done",
                "for f in *.md; do git log -1 -- \"$f\"; done",
            ] {
                let decision = policy.decide(&Proposal::shell(plain), &env);
                assert_eq!(decision.verdict, Verdict::Allow, "{dialect:?}: {plain}: {}", decision.message);
            }
        }
    }

    #[test]
    fn every_case_of_the_corpus_gets_its_verdict() {
        let text = std::fs::read_to_string(corpus_dir().join("example.toml")).unwrap();
        let policy = Policy::load(&text, "example.toml").unwrap();
        let report = policy.test_corpus(&corpus_dir().join("corpus.jsonl"), Dialect::Bash).unwrap();
        let wrong: Vec<String> = report
            .cases
            .iter()
            .filter(|case| !case.has_passed())
            .map(|case| format!("{} {:?} not {:?}: {}", case.id, case.verdict, case.expect, case.reason))
            .collect();
        assert_eq!(wrong, Vec::<String>::new(), "{} of {}", report.passed, report.cases.len());
    }

    /// No shell gives a verdict more lenient than the expected one.
    #[test]
    fn no_shell_makes_a_verdict_of_the_corpus_milder() {
        let text = std::fs::read_to_string(corpus_dir().join("example.toml")).unwrap();
        let policy = Policy::load(&text, "example.toml").unwrap();
        let strictness = |verdict: Verdict| {
            [Verdict::Allow, Verdict::Ask, Verdict::Deny].iter().position(|v| *v == verdict)
        };
        for dialect in [Dialect::Dash, Dialect::Ash] {
            let report = policy.test_corpus(&corpus_dir().join("corpus.jsonl"), dialect).unwrap();
            let milder: Vec<String> = report
                .cases
                .iter()
                .filter(|case| strictness(case.verdict) < strictness(case.expect))
                .map(|case| format!("{} {:?} not {:?}: {}", case.id, case.verdict, case.expect, case.reason))
                .collect();
            assert_eq!(milder, Vec::<String>::new(), "{dialect:?}");
        }
    }

    /// Common commands of people and agents have the same verdict in every shell.
    #[test]
    fn plain_commands_keep_their_verdicts() {
        let text = std::fs::read_to_string(corpus_dir().join("example.toml")).unwrap();
        let policy = Policy::load(&text, "example.toml").unwrap();
        for dialect in [Dialect::Dash, Dialect::Ash, Dialect::Bash] {
            let report = policy.test_corpus(&corpus_dir().join("plain.jsonl"), dialect).unwrap();
            let changed: Vec<String> = report
                .cases
                .iter()
                .filter(|case| !case.has_passed())
                .map(|case| format!("{} {:?} not {:?}: {}", case.id, case.verdict, case.expect, case.reason))
                .collect();
            eprintln!("{dialect:?}: {} of {}\n{}", report.passed, report.cases.len(), changed.join("\n"));
            assert_eq!(report.cases.len(), 245);
            assert!(changed.len() * 20 <= report.cases.len(), "{dialect:?}: {changed:#?}");
        }
    }
}
