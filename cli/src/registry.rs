//! Components from an OCI registry: the distribution API (OCI distribution-spec 1.1) and the
//! media types of WebAssembly artifacts (CNCF "Wasm OCI Artifact layout").

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use lobster_runtime::http::{Fetch, Fetched, HttpLimits, Url, Verb, fetch, is_safe};
use lobster_runtime::json;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

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
pub(crate) const SIGNATURE_LAYER: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
pub(crate) const SIGNATURE: &str = "dev.cosignproject.cosign/signature";

/// Slowest accepted upload, in bytes per second.
const SLOWEST_UPLOAD: u64 = 32 << 10;

/// Most signatures of one artifact that are checked.
const MOST_SIGNATURES: usize = 32;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Limits of downloads: the largest program and the longest silence.
pub(crate) const LIMITS: HttpLimits = HttpLimits { idle: Duration::from_secs(60), body: 256 << 20 };

/// The type in a payload of cosign.
pub(crate) const PAYLOAD: &str = "cosign container image signature";

/// A signature and the signed bytes.
pub(crate) struct Signed {
    pub(crate) message: Vec<u8>,
    pub(crate) signature: Vec<u8>,
}

/// Refuses an address without TLS, except on this machine.
pub(crate) fn require_tls(url: &Url) -> Result<(), CommandError> {
    if is_safe(url) {
        return Ok(());
    }
    Err(CommandError::usage(format!("{url} does not use https, so its bytes could be replaced on the way")))
}

/// An artifact: `oci://HOST/REPOSITORY[:TAG][@sha256:DIGEST]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) host: String,
    pub(crate) repository: String,
    pub(crate) tag: Option<String>,
    /// The digest including `sha256:`.
    pub(crate) digest: Option<String>,
}

impl Reference {
    /// Parses the artifact after `oci://`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
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
    pub(crate) fn without_digest(self) -> Self {
        Self { digest: self.digest.filter(|_| self.tag.is_none()), ..self }
    }

    /// The last word of the repository, used as a name.
    pub(crate) fn base_name(&self) -> &str {
        self.repository.rsplit('/').next().unwrap_or_default()
    }

    fn endpoint_url(&self, kind: &str, name: &str) -> Result<Url, CommandError> {
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
pub(crate) struct Manifests {
    wanted: Reference,
    pub(crate) digests: Vec<String>,
}

/// All signatures of an artifact.
pub(crate) fn fetch_signatures(of: &Manifests) -> Result<Vec<Signed>, CommandError> {
    let mut session = Session::new(&of.wanted, "pull");
    let mut found = Vec::new();
    for digest in &of.digests {
        for layer in session.signature_layers(digest)?.iter().take(MOST_SIGNATURES) {
            let signature = layer["annotations"][SIGNATURE].as_str().unwrap_or_default();
            let name = layer["digest"].as_str().unwrap_or_default();
            let message = session.get("blobs", name, SIGNATURE_LAYER)?;
            check_digest(&message, name, &of.wanted)?;
            let signature = base64::engine::general_purpose::STANDARD.decode(signature).unwrap_or_default();
            found.push(Signed { message, signature });
        }
    }
    Ok(found)
}

/// Downloads the program of an artifact, with the artifact's digest and its manifests.
pub(crate) fn fetch_program(wanted: &Reference) -> Result<(Vec<u8>, Reference, Manifests), CommandError> {
    let mut session = Session::new(wanted, "pull");
    let name = wanted.digest.as_deref().or(wanted.tag.as_deref()).unwrap_or("latest");
    let (mut manifest, mut digest) = session.fetch_manifest(name)?;
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
        (manifest, digest) = session.fetch_manifest(&name)?;
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
    check_digest(&bytes, &name, wanted)?;
    let manifests = Manifests { wanted: wanted.clone(), digests };
    Ok((bytes, Reference { digest: Some(digest), ..wanted.clone() }, manifests))
}

/// Requests for one artifact, with the credentials for its registry.
pub(crate) struct Session<'w> {
    wanted: &'w Reference,
    /// The actions in the scope of a token.
    acts: &'static str,
    authorization: Option<String>,
}

/// The tag of an artifact's signatures.
pub(crate) fn signature_tag(digest: &str) -> String {
    format!("{}.sig", digest.replacen(':', "-", 1))
}

impl<'w> Session<'w> {
    pub(crate) fn new(wanted: &'w Reference, acts: &'static str) -> Self {
        Self { wanted, acts, authorization: None }
    }

    /// The layers with the signatures of an artifact.
    pub(crate) fn signature_layers(&mut self, digest: &str) -> Result<Vec<Value>, CommandError> {
        let Some(bytes) = self.try_fetch("manifests", &signature_tag(digest), MANIFEST)? else {
            return Ok(Vec::new());
        };
        let mut manifest = self.parse_manifest(&bytes)?;
        let mut layers = manifest["layers"].as_array_mut().map(std::mem::take).unwrap_or_default();
        layers.retain(|layer| layer["mediaType"] == SIGNATURE_LAYER);
        Ok(layers)
    }

    /// Uploads a blob unless the registry has it; returns its descriptor.
    pub(crate) fn push_blob(&mut self, kind: &str, bytes: Vec<u8>) -> Result<Value, CommandError> {
        let (digest, size) = (sha256_digest(&bytes), bytes.len());
        let url = self.wanted.endpoint_url("blobs", &digest)?;
        if self.send_request(Fetch { verb: Verb::Head, ..Fetch::get(url) })?.status != 200 {
            let url = self.wanted.endpoint_url("blobs", "uploads/")?;
            let begun = self.send_request(Fetch { verb: Verb::Post, ..Fetch::get(url) })?;
            let Some(mut url) = begun.location.filter(|_| begun.status == 202) else {
                return Err(self.status_error(begun.status));
            };
            url.query_pairs_mut().append_pair("digest", &digest);
            let verb = Verb::Put("application/octet-stream", bytes);
            let done = self.send_request(Fetch { verb, ..Fetch::get(url) })?;
            if done.status != 201 {
                return Err(self.status_error(done.status));
            }
        }
        Ok(json!({ "mediaType": kind, "digest": digest, "size": size }))
    }

    /// Uploads a manifest and tags it; returns its digest.
    pub(crate) fn push_manifest(
        &mut self,
        tag: &str,
        config: &Value,
        layers: &[Value],
        annotations: &Value,
    ) -> Result<String, CommandError> {
        let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers,
            "annotations": annotations });
        let bytes = manifest.to_string().into_bytes();
        let digest = sha256_digest(&bytes);
        let url = self.wanted.endpoint_url("manifests", tag)?;
        let done = self.send_request(Fetch { verb: Verb::Put(MANIFEST, bytes), ..Fetch::get(url) })?;
        if done.status == 201 { Ok(digest) } else { Err(self.status_error(done.status)) }
    }

    /// A manifest and its digest.
    fn fetch_manifest(&mut self, name: &str) -> Result<(Value, String), CommandError> {
        let bytes = self.get("manifests", name, &format!("{MANIFEST}, {INDEX}"))?;
        if name.starts_with("sha256:") {
            check_digest(&bytes, name, self.wanted)?;
        }
        Ok((self.parse_manifest(&bytes)?, sha256_digest(&bytes)))
    }

    fn parse_manifest(&self, manifest: &[u8]) -> Result<Value, CommandError> {
        json::parse(&String::from_utf8_lossy(manifest)).map_err(|error| {
            CommandError::failed(format!("the manifest of {} is not JSON: {error}", self.wanted))
        })
    }

    fn get(&mut self, kind: &str, name: &str, accept: &str) -> Result<Vec<u8>, CommandError> {
        self.try_fetch(kind, name, accept)?.ok_or_else(|| {
            CommandError::failed(format!("{} is not there: {} answers 404", self.wanted, self.wanted.host))
        })
    }

    /// `None` if the registry answers 404.
    fn try_fetch(&mut self, kind: &str, name: &str, accept: &str) -> Result<Option<Vec<u8>>, CommandError> {
        let url = self.wanted.endpoint_url(kind, name)?;
        let answer = self.send_request(Fetch { accept: Some(accept.to_owned()), ..Fetch::get(url) })?;
        match answer.status {
            200 => Ok(Some(answer.body)),
            404 => Ok(None),
            status => Err(self.status_error(status)),
        }
    }

    fn status_error(&self, status: u16) -> CommandError {
        let Reference { host, .. } = self.wanted;
        if matches!(status, 401 | 403) {
            return self.login_error(format!("{host} refuses access to {}", self.wanted));
        }
        CommandError::failed(format!("{host} answers {status} for {}", self.wanted))
    }

    fn login_error(&self, message: String) -> CommandError {
        let hint = format!("log in with `docker login {}` or `podman login`", self.wanted.host);
        CommandError::failed(message).with_hint(hint)
    }

    /// Sends a request, and repeats it with credentials if the registry asks for them.
    fn send_request(&mut self, mut request: Fetch) -> Result<Fetched, CommandError> {
        let uploads = if let Verb::Put(_, bytes) = &request.verb { bytes.len() as u64 } else { 0 };
        let idle = LIMITS.idle + Duration::from_secs(uploads / SLOWEST_UPLOAD);
        // An upload may go to a separate store of blobs, which must not get the token.
        let is_elsewhere = request.url.origin() != self.wanted.endpoint_url("", "")?.origin();
        let mut send = |authorization: &Option<String>| {
            request.authorization.clone_from(authorization);
            fetch(&request, HttpLimits { idle, ..LIMITS }).map_err(CommandError::failed)
        };
        if is_elsewhere {
            return send(&None);
        }
        let answer = send(&self.authorization)?;
        if answer.status != 401 {
            return Ok(answer);
        }
        self.authorization = Some(self.sign_in(answer.challenge.as_deref().unwrap_or_default())?);
        send(&self.authorization)
    }

    /// The credential that a registry asks for: a token of its authorisation service, or the password itself.
    fn sign_in(&self, challenge: &str) -> Result<String, CommandError> {
        let password = stored_credentials(&self.wanted.host).map(|basic| format!("Basic {basic}"));
        let Some(parameters) = challenge.strip_prefix("Bearer ") else {
            let refused = || self.login_error(format!("{} requires a password", self.wanted.host));
            return password.ok_or_else(refused);
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
        require_tls(&url)?;
        let scope = format!("repository:{}:{}", self.wanted.repository, self.acts);
        for (name, value) in [("service", parameter("service")), ("scope", Some(scope))] {
            if let Some(value) = value {
                url.query_pairs_mut().append_pair(name, &value);
            }
        }
        let answer = fetch(&Fetch { authorization: password, ..Fetch::get(url) }, LIMITS)
            .map_err(CommandError::failed)?;
        let answer = json::parse(&String::from_utf8_lossy(&answer.body)).unwrap_or(Value::Null);
        let token = answer["token"].as_str().or(answer["access_token"].as_str());
        token.map(|token| format!("Bearer {token}")).ok_or_else(|| {
            let (host, act) = (&self.wanted.host, if self.acts == "pull" { "read" } else { "write" });
            self.login_error(format!("{host} gives no token to {act} {}", self.wanted))
        })
    }
}

/// The credentials that `docker login` and `podman login` keep for a host, in the form of `Basic`: in a file, or in
/// a program that the file names.
fn stored_credentials(host: &str) -> Option<String> {
    let place =
        |variable: &str, path: &str| std::env::var_os(variable).map(|dir| PathBuf::from(dir).join(path));
    let places = [
        std::env::var_os("REGISTRY_AUTH_FILE").map(PathBuf::from),
        place("DOCKER_CONFIG", "config.json"),
        place("HOME", ".docker/config.json"),
        place("XDG_RUNTIME_DIR", "containers/auth.json"),
    ];
    places.into_iter().flatten().find_map(|place| {
        let config = json::parse(&std::fs::read_to_string(place).ok()?).ok()?;
        let helper = config["credHelpers"][host].as_str().or(config["credsStore"].as_str());
        let kept = config["auths"][host]["auth"].as_str().filter(|kept| !kept.is_empty());
        kept.map(str::to_owned).or_else(|| helper_password(helper?, host))
    })
}

/// The credentials that a docker credential helper has for a host.
fn helper_password(name: &str, host: &str) -> Option<String> {
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
        return None;
    }
    let mut helper = Command::new(format!("docker-credential-{name}"));
    let mut child =
        helper.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    child.stdin.take()?.write_all(host.as_bytes()).ok()?;
    let said = child.wait_with_output().ok().filter(|said| said.status.success())?;
    let said = json::parse(&String::from_utf8_lossy(&said.stdout)).ok()?;
    let pair = format!("{}:{}", said["Username"].as_str()?, said["Secret"].as_str()?);
    Some(base64::engine::general_purpose::STANDARD.encode(pair))
}

pub(crate) fn sha256_digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn check_digest(bytes: &[u8], digest: &str, wanted: &Reference) -> Result<(), CommandError> {
    let found = sha256_digest(bytes);
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
