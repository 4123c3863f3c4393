//! The action of a component step: everything that decides what it gives.

use std::io;
use std::path::Path;

use lobster_component::{DirGrant, Grants};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Job, JobInput, Members};
use crate::action::Preimage;
use crate::path::StepPath;
use crate::run::Run;
use crate::value::Items;
use lobster_base::digest::Digest;
use lobster_base::file_digests::FileDigests;
use lobster_base::json;
use lobster_stage::{Payload, Stop, store_failure};
use lobster_store::INLINE_MAX;

/// Everything that decides what the component does.
pub(super) fn preimage(run: &Run<'_>, path: &StepPath, job: &Job) -> Result<Preimage, Stop> {
    let named = |form: &str, digest: Digest| format!(r#"{{"{form}":"{digest}"}}"#);
    let input = match &job.input {
        JobInput::Empty => "null".to_owned(),
        // Small inputs are kept, so that `why` can tell what in them differs.
        JobInput::Bytes(Payload::Bytes(bytes)) if bytes.len() <= INLINE_MAX => {
            named("bytes", run.store.put(bytes).map_err(store_failure)?.digest)
        }
        JobInput::Bytes(payload) => {
            named("bytes", Digest::of_reader(payload.open().map_err(store_failure)?).map_err(store_failure)?)
        }
        JobInput::Items(Items::Stored { store, blob, .. }) => {
            // What cannot be read is told before anything begins.
            store.0.open_blob(&blob.digest).map_err(store_failure)?;
            named("items", blob.digest)
        }
        JobInput::Items(Items::Memory(items)) => {
            let lines: String = items.iter().map(|item| json::compact(item) + "\n").collect();
            let small = lines.len() <= INLINE_MAX;
            let digest = if small {
                run.store.put(lines.as_bytes()).map_err(store_failure)?.digest
            } else {
                Digest::of(lines.as_bytes())
            };
            named("items", digest)
        }
    };
    let tree = |dirs: &[DirGrant]| -> Result<Value, Stop> {
        let digest = |dir: &DirGrant| match tree_digest(&dir.host, &run.services.files) {
            // The component's start says so; a replay elsewhere has other means.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        };
        dirs.iter().map(|dir| Ok(json!({ "to": dir.guest, "tree": digest(dir)? }))).collect()
    };
    let env: Map<_, _> = job
        .grants
        .env
        .iter()
        .map(|(name, value)| (name.clone(), json!(Digest::of(value.as_bytes()))))
        .collect();
    let grants = if job.grants == Grants::default() {
        NO_GRANTS.to_owned()
    } else {
        canonical(&json!({
            "read": tree(&job.grants.read)?,
            "write": tree(&job.grants.write)?,
            "env": env,
            "net": job.grants.net,
            "clock": job.grants.clock,
            "random": job.grants.random,
        }))?
    };
    let profile = job.profile();
    let (args, given) = arguments(&job.args.members, &job.args.text)?;
    let given = given.filter(|_| profile.tells_argument_text());
    let given = given.map_or_else(String::new, |given| format!(r#""given":"{given}","#));
    let credentials = match job.credentials.as_slice() {
        [] => String::new(),
        some => format!(r#""credentials":{},"#, canonical(&some)?),
    };
    let limits = &job.limits;
    let limits = format!(
        r#"{{"fuel":{},"instances":{},"memory":{},"output":{},"tables":{}}}"#,
        whole(limits.fuel)?,
        limits.instances,
        whole(limits.memory)?,
        whole(limits.output)?,
        whole(limits.tables)?,
    );
    // Thousands of steps may have no more to do than this: their names stand here in canonical order.
    let mut action = format!(
        r#"{{"args":{args},"component":"{}",{credentials}{given}"grants":{grants},"input":{input},"kind":"component","limits":{limits},"profile":{}"#,
        job.program.component.digest().to_hex(),
        canonical(&profile)?,
    );
    if !job.secrets.is_empty() {
        action.push_str(r#","secrets":"#);
        action.push_str(&canonical(&run.named_secrets(path, &job.secrets))?);
    }
    action.push('}');
    debug_assert_eq!(canonical(&json::parse(&action).unwrap_or_default()).ok().as_ref(), Some(&action));
    Ok(Preimage::of_canonical(action))
}

/// The grants of a component that has none, in canonical form.
pub(super) const NO_GRANTS: &str = r#"{"clock":false,"env":{},"net":[],"random":false,"read":[],"write":[]}"#;

/// Arguments in canonical form, and the digest of the text that the program gets if
/// that is another: canonical JSON sorts members and writes numbers as doubles, and a
/// program can see both.
pub(super) fn arguments(members: &Members, text: &str) -> Result<(String, Option<Digest>), Stop> {
    let args = if members.is_empty() { "{}".to_owned() } else { canonical(members)? };
    let given = (args != text).then(|| Digest::of(text.as_bytes()));
    Ok((args, given))
}

/// A number in canonical form: digits, as long as every number up to it is a double.
fn whole(number: u64) -> Result<String, Stop> {
    if number <= 1 << f64::MANTISSA_DIGITS { Ok(number.to_string()) } else { canonical(&number) }
}

/// The canonical JSON of a part (RFC 8785).
fn canonical(part: &impl Serialize) -> Result<String, Stop> {
    serde_json_canonicalizer::to_string(part).map_err(store_failure)
}

/// One digest over the names and contents of everything below a directory.
pub fn tree_digest(dir: &Path, files: &FileDigests) -> io::Result<Digest> {
    let mut hasher = blake3::Hasher::new();
    let mut pending = vec![(dir.to_owned(), String::new())];
    while let Some((dir, prefix)) = pending.pop() {
        let mut entries: Vec<_> = std::fs::read_dir(&dir)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", dir.display())))?
            .collect::<Result<_, _>>()?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let name = format!("{prefix}/{}", entry.file_name().to_string_lossy());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                hasher.update(format!("dir {name}\0").as_bytes());
                pending.push((entry.path(), name));
            } else if kind.is_symlink() {
                let to = std::fs::read_link(entry.path())?;
                hasher.update(format!("link {name}\0{}\0", to.display()).as_bytes());
            } else if kind.is_file() {
                let digest = files.digest(&entry.path())?;
                hasher.update(format!("file {name}\0{digest}\0").as_bytes());
            }
        }
    }
    Ok(hasher.finalize().into())
}
