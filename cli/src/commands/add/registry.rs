//! Components from an OCI registry: the distribution API (OCI distribution-spec 1.1) and the
//! media types of WebAssembly artifacts (CNCF "Wasm OCI Artifact layout").

use std::path::PathBuf;

use base64::Engine as _;
use lobster_runtime::http::{Fetch, Fetched, Url, fetch};
use lobster_runtime::json;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::signature::Signed;
use super::source::{LIMITS, secure};
use crate::exit::CommandError;

/// Media types of WebAssembly programs in registries.
const PROGRAMS: &[&str] = &[
    "application/wasm",
    "application/vnd.wasm.content.layer.v1+wasm",
    "application/vnd.module.wasm.content.layer.v1+wasm",
    "application/vnd.bytecodealliance.wasm.component.layer.v0+wasm",
];

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// The layer and the annotation of a signature by `cosign sign`.
const SIGNATURE_LAYER: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";

/// Most signatures of one artifact that are checked.
const MOST_SIGNATURES: usize = 32;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// An artifact: `oci://HOST/REPOSITORY[:TAG][@sha256:DIGEST]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    host: String,
    repository: String,
    tag: Option<String>,
    /// The digest including `sha256:`.
    digest: Option<String>,
}

impl Reference {
    /// Parses the artifact after `oci://`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (path, digest) = match text.split_once('@') {
            Some((path, digest)) => (path, Some(digest.to_owned())),
            None => (text, None),
        };
        let (host, path) = path.split_once('/').ok_or("name it as oci://HOST/REPOSITORY:TAG")?;
        let (repository, tag) = match path.rsplit_once(':') {
            Some((repository, tag)) => (repository, Some(tag.to_owned())),
            None => (path, None),
        };
        let word = |text: &str, more: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
        };
        let is_sha256 = |text: &String| {
            text.strip_prefix("sha256:").is_some_and(|hex| {
                hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
            })
        };
        if !word(host, ".-:[]")
            || !repository.split('/').all(|part| word(part, "._-") && !part.starts_with('.'))
        {
            return Err(format!("{text:?} is not a registry and repository"));
        }
        if !tag.iter().all(|tag| word(tag, "._-")) {
            return Err(format!("{text:?} does not have a valid tag"));
        }
        if !digest.iter().all(is_sha256) {
            return Err(format!("{text:?} has no digest `sha256:` with 64 hexadecimal digits"));
        }
        Ok(Self { host: host.to_owned(), repository: repository.to_owned(), tag, digest })
    }

    /// The same artifact without its digest, so that the tag's current version is found.
    pub(super) fn unpinned(self) -> Self {
        Self { digest: self.digest.filter(|_| self.tag.is_none()), ..self }
    }

    /// The last word of the repository, used as a name.
    pub(super) fn stem(&self) -> &str {
        self.repository.rsplit('/').next().unwrap_or_default()
    }

    fn url(&self, kind: &str, name: &str) -> Result<Url, CommandError> {
        let text = format!("https://{}/v2/{}/{kind}/{name}", self.host, self.repository);
        let url = Url::parse(&text).map_err(|error| CommandError::usage(format!("{text}: {error}")))?;
        // A registry on this machine has no certificate.
        match url.host_str() {
            Some("localhost" | "127.0.0.1" | "[::1]") => Url::parse(&text.replacen("https", "http", 1))
                .map_err(|error| CommandError::usage(format!("{text}: {error}"))),
            _ => Ok(url),
        }
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "oci://{}/{}", self.host, self.repository)?;
        self.tag.iter().try_for_each(|tag| write!(f, ":{tag}"))?;
        self.digest.iter().try_for_each(|digest| write!(f, "@{digest}"))
    }
}

/// The manifests that lead to a program, by their digests: the artifact's own first, then the
/// WebAssembly manifest.
pub(super) struct Manifests {
    wanted: Reference,
    pub(super) digests: Vec<String>,
}

/// All signatures of an artifact.
pub(super) fn signatures(of: &Manifests) -> Result<Vec<Signed>, CommandError> {
    let mut session = Session { wanted: &of.wanted, authorization: None };
    let mut found = Vec::new();
    for digest in &of.digests {
        let name = format!("{}.sig", digest.replacen(':', "-", 1));
        let Some(bytes) = session.find("manifests", &name, MANIFEST)? else { continue };
        let manifest = session.parsed(&bytes)?;
        let layers = manifest["layers"].as_array().map(Vec::as_slice).unwrap_or_default();
        for layer in layers.iter().filter(|layer| layer["mediaType"] == SIGNATURE_LAYER).take(MOST_SIGNATURES)
        {
            let signature = layer["annotations"][SIGNATURE].as_str().unwrap_or_default();
            let name = layer["digest"].as_str().unwrap_or_default();
            let message = session.get("blobs", name, SIGNATURE_LAYER)?;
            checked(&message, name, &of.wanted)?;
            let signature = base64::engine::general_purpose::STANDARD.decode(signature).unwrap_or_default();
            found.push(Signed { message, signature });
        }
    }
    Ok(found)
}

/// Downloads the program of an artifact, with the artifact's digest and its manifests.
pub(super) fn program(wanted: &Reference) -> Result<(Vec<u8>, Reference, Manifests), CommandError> {
    let mut session = Session { wanted, authorization: None };
    let name = wanted.digest.as_deref().or(wanted.tag.as_deref()).unwrap_or("latest");
    let (mut manifest, mut digest) = session.manifest(name)?;
    let mut digests = vec![digest.clone()];
    if let Some(several) = manifest["manifests"].as_array() {
        let one = match several.as_slice() {
            [only] => only,
            several => {
                several.iter().find(|one| one["platform"]["architecture"] == "wasm").ok_or_else(|| {
                    CommandError::failed(format!("{wanted} is an index without a WebAssembly manifest"))
                })?
            }
        };
        let name = one["digest"].as_str().unwrap_or_default().to_owned();
        (manifest, digest) = session.manifest(&name)?;
        digests.push(digest.clone());
    }
    let layers = manifest["layers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let programs: Vec<&Value> = layers
        .iter()
        .filter(|layer| layer["mediaType"].as_str().is_some_and(|kind| PROGRAMS.contains(&kind)))
        .collect();
    let [layer] = programs.as_slice() else {
        let kinds: Vec<&str> = layers.iter().filter_map(|layer| layer["mediaType"].as_str()).collect();
        return Err(CommandError::failed(format!(
            "{wanted} holds {} programs for WebAssembly; its layers are {}",
            programs.len(),
            if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") }
        )));
    };
    let name = layer["digest"].as_str().unwrap_or_default().to_owned();
    let bytes = session.get("blobs", &name, PROGRAMS[0])?;
    checked(&bytes, &name, wanted)?;
    let manifests = Manifests { wanted: wanted.clone(), digests };
    Ok((bytes, Reference { digest: Some(digest), ..wanted.clone() }, manifests))
}

/// Requests for one artifact, with the credentials for its registry.
struct Session<'w> {
    wanted: &'w Reference,
    authorization: Option<String>,
}

impl Session<'_> {
    /// A manifest and its digest.
    fn manifest(&mut self, name: &str) -> Result<(Value, String), CommandError> {
        let bytes = self.get("manifests", name, &format!("{MANIFEST}, {INDEX}"))?;
        if name.starts_with("sha256:") {
            checked(&bytes, name, self.wanted)?;
        }
        Ok((self.parsed(&bytes)?, sha256(&bytes)))
    }

    fn parsed(&self, manifest: &[u8]) -> Result<Value, CommandError> {
        json::parse(&String::from_utf8_lossy(manifest)).map_err(|error| {
            CommandError::failed(format!("the manifest of {} is not JSON: {error}", self.wanted))
        })
    }

    fn get(&mut self, kind: &str, name: &str, accept: &str) -> Result<Vec<u8>, CommandError> {
        self.find(kind, name, accept)?.ok_or_else(|| {
            CommandError::failed(format!("{} is not there: {} answers 404", self.wanted, self.wanted.host))
        })
    }

    /// `None` if the registry answers 404.
    fn find(&mut self, kind: &str, name: &str, accept: &str) -> Result<Option<Vec<u8>>, CommandError> {
        let url = self.wanted.url(kind, name)?;
        let mut answer = self.ask(&url, accept)?;
        if answer.status == 401 && self.authorization.is_none() {
            self.authorization = Some(self.sign_in(answer.challenge.as_deref().unwrap_or_default())?);
            answer = self.ask(&url, accept)?;
        }
        match answer.status {
            200 => Ok(Some(answer.body)),
            404 => Ok(None),
            401 | 403 => {
                Err(CommandError::failed(format!("{} refuses access to {}", self.wanted.host, self.wanted))
                    .with_hint(format!("log in with `docker login {}` or `podman login`", self.wanted.host)))
            }
            status => Err(CommandError::failed(format!(
                "{} answers {status} for {}",
                self.wanted.host, self.wanted
            ))),
        }
    }

    fn ask(&self, url: &Url, accept: &str) -> Result<Fetched, CommandError> {
        let request = Fetch {
            url: url.clone(),
            accept: Some(accept.to_owned()),
            authorization: self.authorization.clone(),
        };
        fetch(&request, LIMITS).map_err(CommandError::failed)
    }

    /// The credential that a registry asks for: a token of its authorisation service, or the password itself.
    fn sign_in(&self, challenge: &str) -> Result<String, CommandError> {
        let password = password(&self.wanted.host).map(|basic| format!("Basic {basic}"));
        let Some(parameters) = challenge.strip_prefix("Bearer ") else {
            return password.ok_or_else(|| {
                CommandError::failed(format!("{} requires a password", self.wanted.host))
                    .with_hint(format!("log in with `docker login {}` or `podman login`", self.wanted.host))
            });
        };
        let parameter = |name: &str| {
            let (_, rest) = parameters.split_once(&format!("{name}=\""))?;
            rest.split_once('"').map(|(value, _)| value.to_owned())
        };
        let realm = parameter("realm").and_then(|text| Url::parse(&text).ok());
        let mut url = realm.ok_or_else(|| {
            CommandError::failed(format!(
                "{} names a sign-in service that is not an address",
                self.wanted.host
            ))
        })?;
        secure(&url)?;
        for (name, value) in [("service", parameter("service")), ("scope", parameter("scope"))] {
            if let Some(value) = value {
                url.query_pairs_mut().append_pair(name, &value);
            }
        }
        let answer = fetch(&Fetch { url, accept: None, authorization: password }, LIMITS)
            .map_err(CommandError::failed)?;
        let answer = json::parse(&String::from_utf8_lossy(&answer.body)).unwrap_or(Value::Null);
        let token = answer["token"].as_str().or(answer["access_token"].as_str());
        token.map(|token| format!("Bearer {token}")).ok_or_else(|| {
            CommandError::failed(format!("{} gives no token to read {}", self.wanted.host, self.wanted))
        })
    }
}

/// The credentials that `docker login` and `podman login` keep for a host, in the form of `Basic`.
fn password(host: &str) -> Option<String> {
    let places = [
        std::env::var_os("REGISTRY_AUTH_FILE").map(PathBuf::from),
        std::env::var_os("DOCKER_CONFIG").map(|dir| PathBuf::from(dir).join("config.json")),
        std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".docker/config.json")),
    ];
    places.into_iter().flatten().find_map(|place| {
        let config = json::parse(&std::fs::read_to_string(place).ok()?).ok()?;
        config["auths"][host]["auth"].as_str().map(str::to_owned)
    })
}

fn sha256(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn checked(bytes: &[u8], digest: &str, wanted: &Reference) -> Result<(), CommandError> {
    let found = sha256(bytes);
    if found == digest {
        return Ok(());
    }
    Err(CommandError::failed(format!(
        "{} gives other bytes for {wanted} than it names: {found}, not {digest}",
        wanted.host
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_read_back_as_they_were_written() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for text in [
            "ghcr.io/a/b:1.0",
            "localhost:5000/b",
            &format!("ghcr.io/a/b-c_d/e:x@{digest}"),
            &format!("r.io/a@{digest}"),
        ] {
            assert_eq!(Reference::parse(text).unwrap().to_string(), format!("oci://{text}"));
        }
        for wrong in [
            "",
            "ghcr.io",
            "ghcr.io/",
            "ghcr.io/a:",
            "ghcr.io/../a",
            "ghcr.io/a b",
            "ghcr.io/a@sha256:1",
            "u@h/a",
            "a?b/c",
            "ghcr.io/a/.b",
        ] {
            assert!(Reference::parse(wrong).is_err(), "{wrong}");
        }
    }
}
