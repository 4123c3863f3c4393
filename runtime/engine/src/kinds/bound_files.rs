//! The files that a command runs by their names. The question lists them, and the jail shows copies of them that do
//! not change while the command runs. Other files that the command reads are bound as trees.

mod copies;
mod name_watch;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) use copies::{HeldCopies, NotHeld};

use lobster_base::digest::Digest;
use lobster_base::regular_file;
use lobster_policy::{BoundFile, Decision, DecisionEnv, Policy, Proposal, runs_scripts};

/// Most files that one question lists.
const MAX_FILES: usize = 256;

/// Error: lobster cannot read a file.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}, which the command would run: {source}; make it readable for lobster")]
pub(crate) struct Unreadable {
    path: String,
    source: io::Error,
}

/// The files that the words of a command run: programs with their paths, and the scripts of shells and interpreters.
pub(super) fn find_executed(
    policy: &Policy,
    place: &DecisionEnv,
    proposal: &Proposal,
    decision: &Decision,
) -> Result<Vec<BoundFile>, Unreadable> {
    let cwd = PathBuf::from(proposal.cwd.as_ref().unwrap_or(&place.workspace));
    let roots = policy.resolve_roots(place);
    let is_system = |path: &Path| policy.is_system_file(&path.to_string_lossy(), &roots);
    let written: BTreeSet<PathBuf> = decision
        .commands
        .iter()
        .flat_map(|command| &command.facts.writes)
        .filter_map(|path| fs::canonicalize(path).ok())
        .collect();
    let mut files = BTreeMap::new();
    for command in &decision.commands {
        let Some((program, words)) = command.argv.split_first() else { continue };
        let name = program.rsplit('/').next().unwrap_or(program);
        let script = words.iter().find(|word| !word.starts_with('-')).filter(|_| runs_scripts(name));
        for word in program.contains('/').then_some(program).into_iter().chain(script) {
            let path: PathBuf = cwd.join(word).components().collect();
            let Ok(real) = fs::canonicalize(&path) else { continue };
            if !real.is_file() || is_system(&real) || files.len() >= MAX_FILES {
                continue;
            }
            let shown = path.display().to_string();
            let content = regular_file::open(&real).and_then(|file| {
                let bytes = file.metadata()?.len();
                Ok((Digest::of_reader(&file)?, bytes))
            });
            let (digest, bytes) = content.map_err(|source| Unreadable { path: shown.clone(), source })?;
            let target = (real != path).then(|| real.display().to_string());
            let compared = written.contains(&real) || bytes > copies::MAX_COPY;
            files.insert(shown.clone(), BoundFile { path: shown, target, digest, bytes, compared });
        }
    }
    let mut left = copies::MAX_COPY;
    let mut files: Vec<BoundFile> = files.into_values().collect();
    for file in files.iter_mut().filter(|file| !file.compared) {
        match left.checked_sub(file.bytes) {
            Some(rest) => left = rest,
            None => file.compared = true,
        }
    }
    Ok(files)
}
