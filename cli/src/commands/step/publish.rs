//! `lobster step publish`

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use lobster_runtime::component::Kind;
use lobster_runtime::replay::bundle::SigningKey;
use lobster_runtime::stage::Mode;
use serde_json::{Map, Value, json};

use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::registry::{
    PAYLOAD, Reference, SIGNATURE, SIGNATURE_LAYER, Session, sha256_digest, signature_tag,
};
use crate::stdout::stdout;

/// The configuration and the program of a WebAssembly artifact (CNCF "Wasm OCI Artifact layout").
const CONFIG: &str = "application/vnd.wasm.config.v0+json";
const PROGRAM: &str = "application/wasm";

/// The configuration of cosign's manifest of signatures.
const IMAGE_CONFIG: &str = "application/vnd.oci.image.config.v1+json";

/// A fixed time, so that the same component always gives the same artifact.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// Publishes a component in an OCI registry.
///
/// `lobster add` and other tools for WebAssembly artifacts download it. --sign adds a signature in the form of
/// `cosign`, which `lobster add --key` requires. The passwords come from `docker login` or `podman login`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster step publish oci://ghcr.io/acme/classify:1.2
  lobster bundle keygen acme.pem
  lobster step publish oci://ghcr.io/acme/classify:1.2 --sign acme.pem
  lobster add oci://ghcr.io/acme/classify:1.2 --key acme.pem.pub")]
pub(super) struct Args {
    /// The artifact: oci://HOST/REPOSITORY:TAG.
    #[arg(value_name = "oci://…")]
    to: String,
    /// The component. The default is the only .wasm file in this directory.
    #[arg(long, value_name = "FILE")]
    component: Option<PathBuf>,
    /// The ed25519 private key that signs it (PEM, as `lobster bundle keygen` writes it).
    #[arg(long, value_name = "FILE")]
    sign: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> CommandResult {
    let to = parse_reference(&args.to)?;
    let tag = to.tag.as_deref().unwrap_or_default();
    let key = args.sign.as_deref().map(SigningKey::read_pem).transpose()?;
    let file = args.component.clone().map_or_else(|| super::find_built(Path::new(".")), Ok)?;
    let runtime = prepare::runtime(Mode::Human)?;
    let bytes = fs::read(&file).map_err(CommandError::unreadable(&file))?;
    let refuse = |why: String| CommandError::failed(format!("{}: {why}", file.display()));
    let component = runtime.components().load_bytes_within(&bytes, &super::compile_patience(&runtime));
    let component = component.map_err(|error| refuse(error.to_string()))?;
    let step = component.describe().map_err(|error| refuse(super::describe_error(&error)))?;
    let mut annotations = Map::new();
    if let Some(step) = step {
        for (name, text) in
            [("title", &step.name), ("version", &step.version), ("description", &step.summary)]
        {
            annotations.insert(format!("org.opencontainers.image.{name}"), json!(text));
        }
    }
    let seen = component.inspect();
    let mut config = json!({ "created": CREATED, "architecture": "wasm", "os": "wasip1",
        "layerDigests": [sha256_digest(&bytes)] });
    if seen.kind != Kind::Module {
        config["os"] = json!("wasip2");
        config["component"] = json!({ "exports": seen.exports, "imports": seen.imports });
    }
    let mut session = Session::new(&to, "pull,push");
    let layer = session.push_blob(PROGRAM, bytes)?;
    let config = session.push_blob(CONFIG, config.to_string().into_bytes())?;
    let digest = session.push_manifest(tag, &config, &[layer], &Value::Object(annotations))?;
    let mut out = stdout();
    writeln!(out, "published {to}@{digest}")?;
    if let Some(key) = &key {
        sign_artifact(&mut session, &to, &digest, key)?;
        writeln!(out, "signed by {}", key.public_key())?;
    }
    Ok(Exit::OK)
}

/// Parses the artifact to publish, which needs a tag.
fn parse_reference(text: &str) -> Result<Reference, CommandError> {
    let path = text.strip_prefix("oci://").ok_or("name it as oci://HOST/REPOSITORY:TAG".to_owned());
    let to = path.and_then(Reference::parse).map_err(CommandError::usage)?;
    if to.tag.is_none() || to.digest.is_some() {
        return Err(CommandError::usage(format!("{text} needs a tag and no digest: {text}:1.0")));
    }
    Ok(to)
}

/// Adds a signature to an artifact and keeps the existing ones.
fn sign_artifact(
    session: &mut Session<'_>,
    to: &Reference,
    digest: &str,
    key: &SigningKey,
) -> Result<(), CommandError> {
    let payload = json!({ "critical": {
        "identity": { "docker-reference": format!("{}/{}", to.host, to.repository) },
        "image": { "docker-manifest-digest": digest },
        "type": PAYLOAD,
    }, "optional": null });
    let payload = payload.to_string().into_bytes();
    let signature = BASE64.encode(key.sign_message(&payload));
    let mut layers = session.signature_layers(digest)?;
    let mut layer = session.push_blob(SIGNATURE_LAYER, payload)?;
    layer["annotations"] = json!({ SIGNATURE: signature });
    if !layers.contains(&layer) {
        layers.push(layer);
    }
    let digests: Vec<&Value> = layers.iter().map(|layer| &layer["digest"]).collect();
    let config = json!({ "architecture": "", "os": "", "config": {},
        "rootfs": { "type": "layers", "diff_ids": digests } });
    let config = session.push_blob(IMAGE_CONFIG, config.to_string().into_bytes())?;
    session.push_manifest(&signature_tag(digest), &config, &layers, &json!({}))?;
    Ok(())
}
