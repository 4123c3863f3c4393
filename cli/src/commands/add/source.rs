//! Sources of components.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use lobster_runtime::component;
use lobster_runtime::digest::Digest;
use lobster_runtime::http::{Fetch, Url, fetch};

use super::signature::SignatureSource;
use crate::exit::CommandError;
use crate::registry::{self, LIMITS, Reference, require_tls};
use crate::which;

/// The ready steps that come with lobster, one per line: name, BLAKE3, length.
const READY: &str = include_str!("../../../../guest-steps/dist/LOCK");

/// Steps of the list that are built in or only for lobster's own tests.
const NOT_OFFERED: &[&str] = &["greet", "hostile", "hostile-net", "js-eval", "request"];

/// The variable with the directory of the ready steps, if it is not at its usual place.
const READY_DIR: &str = "LOBSTER_STEPS_DIR";

/// A program read from its source.
pub(super) struct Taken {
    pub(super) bytes: Vec<u8>,
    /// The source, pinned to these bytes if possible.
    pub(super) told: String,
    /// The place of its signatures.
    pub(super) signatures: SignatureSource,
}

/// The source of a component.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ComponentSource {
    /// A ready step of lobster, by name.
    Ready(String),
    File(PathBuf),
    Web(Url),
    Registry(Reference),
}

impl ComponentSource {
    /// Parses the source that a person typed.
    pub(super) fn parse(text: &str) -> Result<Self, CommandError> {
        if let Some(reference) = text.strip_prefix("oci://") {
            return Reference::parse(reference).map(Self::Registry).map_err(CommandError::usage);
        }
        if text.contains("://") {
            let url = Url::parse(text).map_err(|error| CommandError::usage(format!("{text}: {error}")))?;
            require_tls(&url)?;
            return Ok(Self::Web(url));
        }
        if ready_steps().any(|(name, _)| name == text) {
            return Ok(Self::Ready(text.to_owned()));
        }
        let path = Path::new(text);
        if text.contains('/') || path.extension().is_some() || path.exists() {
            return Ok(Self::File(path.to_owned()));
        }
        let names: Vec<&str> = ready_steps().map(|(name, _)| name).collect();
        let near = names.iter().min_by_key(|name| strsim::damerau_levenshtein(name, text));
        Err(CommandError::usage(format!("there is no ready step {text:?}; there are {}", names.join(", ")))
            .with_hint(match near.filter(|name| strsim::damerau_levenshtein(name, text) <= 2) {
                Some(near) => {
                    format!("did you mean `lobster add {near}`? A file is named with its directory: ./{text}")
                }
                None => format!("a file is named with its directory: ./{text}"),
            }))
    }

    /// A text from which a name can be made, if the program has none.
    pub(super) fn base_name(&self) -> String {
        let last = match self {
            Self::Ready(name) => name.as_str(),
            Self::File(path) => path.file_name().and_then(|name| name.to_str()).unwrap_or_default(),
            Self::Web(url) => url.path_segments().and_then(|mut parts| parts.next_back()).unwrap_or_default(),
            Self::Registry(reference) => reference.base_name(),
        };
        last.strip_suffix(".wasm").unwrap_or(last).replace(['_', '.'], "-").to_lowercase()
    }

    /// Reads the program from the source.
    pub(super) fn read_program(&self) -> Result<Taken, CommandError> {
        let taken = |bytes, told, signatures| Ok(Taken { bytes, told, signatures });
        match self {
            Self::Ready(name) => taken(ready_step(name)?, name.clone(), SignatureSource::None),
            Self::File(path) => {
                let mut bytes = Vec::new();
                let read = component::open_file(path).and_then(|mut file| file.read_to_end(&mut bytes));
                read.map_err(CommandError::unreadable(path))?;
                taken(bytes, path.display().to_string(), SignatureSource::File(path.clone()))
            }
            Self::Web(url) => {
                let answer = fetch(&Fetch::get(url.clone()), LIMITS).map_err(CommandError::failed)?;
                match answer.status {
                    200 => taken(answer.body, url.to_string(), SignatureSource::Web(url.clone())),
                    status => Err(CommandError::failed(format!("{url} answers {status}"))),
                }
            }
            Self::Registry(reference) => {
                let (bytes, found, manifests) = registry::fetch_program(reference)?;
                taken(bytes, found.to_string(), SignatureSource::Registry(manifests))
            }
        }
    }

    /// The same source without its digest, to find the current version.
    pub(super) fn without_digest(self) -> Self {
        match self {
            Self::Registry(reference) => Self::Registry(reference.without_digest()),
            other => other,
        }
    }
}

/// The ready steps: name and digest.
fn ready_steps() -> impl Iterator<Item = (&'static str, &'static str)> {
    let words = READY.lines().filter_map(|line| {
        let mut words = line.split(' ');
        Some((words.next()?, words.next()?))
    });
    words.filter(|(name, _)| !NOT_OFFERED.contains(name))
}

/// Lets the person at the terminal choose a ready step.
pub(super) fn pick_ready() -> Result<String, CommandError> {
    let names: Vec<&str> = ready_steps().map(|(name, _)| name).collect();
    if !which::can_ask() {
        return Err(CommandError::usage("add needs a component")
            .with_hint(format!("a file, an address, or a ready step: {}", names.join(", "))));
    }
    let rows: Vec<_> =
        names.iter().map(|name| vec![(*name).to_owned(), step_purpose(name).to_owned()]).collect();
    Ok(names[which::pick_row(&rows, "Which ready step?")?].to_owned())
}

/// The purpose of a ready step, in a few words.
fn step_purpose(name: &str) -> &'static str {
    match name {
        "categorize-mail" => "sorts mails into categories",
        "csv" => "reads and writes CSV and TSV",
        "diff" => "compares JSON, lists and texts; applies patches",
        "html-text" => "turns HTML into Markdown or text",
        "jq" => "runs a jq filter",
        "json-schema" => "validates items against a JSON Schema",
        "mime" => "reads mails and mailboxes",
        "regex" => "finds, extracts and replaces text",
        "render" => "fills in a Jinja template",
        _ => "",
    }
}

/// Reads a ready step: its directory may be writable by others, so the digest is checked.
fn ready_step(name: &str) -> Result<Vec<u8>, CommandError> {
    let wanted =
        ready_steps().find(|(known, _)| *known == name).map(|(_, digest)| digest).unwrap_or_default();
    let beside = std::env::current_exe().ok();
    // First the layout of the archive, then the layout of an installation prefix.
    let beside = beside
        .as_deref()
        .and_then(Path::parent)
        .map(|bin| ["share/lobster/steps", "../share/lobster/steps"].map(|place| bin.join(place)));
    let places: Vec<PathBuf> = match std::env::var_os(READY_DIR).filter(|dir| !dir.is_empty()) {
        Some(dir) => vec![PathBuf::from(dir)],
        None => beside
            .into_iter()
            .flatten()
            .chain([PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../guest-steps/dist"))])
            .collect(),
    };
    let mut others = None;
    for place in &places {
        let path = place.join(format!("{name}.wasm"));
        let Ok(bytes) = fs::read(&path) else { continue };
        if Digest::of_bytes(&bytes).to_string() == wanted {
            return Ok(bytes);
        }
        others = Some(path);
    }
    Err(match others {
        Some(path) => CommandError::failed(format!("{} is not the {name} of this lobster", path.display())),
        None => CommandError::failed(format!(
            "the ready steps of this lobster are not in {}",
            places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(" or ")
        )),
    }
    .with_hint(format!("{READY_DIR} names the directory with them: `share/lobster/steps` of the archive, or guest-steps/dist of the sources")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_source_is_told_from_the_others() {
        assert_eq!(ComponentSource::parse("regex").unwrap(), ComponentSource::Ready("regex".to_owned()));
        assert_eq!(
            ComponentSource::parse("./regex").unwrap(),
            ComponentSource::File(PathBuf::from("./regex"))
        );
        assert_eq!(ComponentSource::parse("a.wasm").unwrap(), ComponentSource::File(PathBuf::from("a.wasm")));
        assert!(matches!(ComponentSource::parse("https://a.example/b.wasm"), Ok(ComponentSource::Web(_))));
        assert!(matches!(ComponentSource::parse("http://127.0.0.1:1/b.wasm"), Ok(ComponentSource::Web(_))));
        assert!(matches!(ComponentSource::parse("oci://ghcr.io/a/b:1"), Ok(ComponentSource::Registry(_))));
        for wrong in ["http://a.example/b.wasm", "ftp://a.example/b", "regexx", "oci://ghcr.io", "hostile"] {
            assert!(ComponentSource::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_ready_steps_are_there_and_are_those_of_the_list() {
        assert!(ready_steps().count() >= 9);
        for (name, _) in ready_steps() {
            assert!(!ready_step(name).unwrap().is_empty() && !step_purpose(name).is_empty(), "{name}");
        }
    }
}
