//! Signatures of components, as made by `cosign` with a key pair: for an artifact in a registry
//! (`cosign sign --key`, a "simple signing" payload at the tag `sha256-HEX.sig`), and for a file or an
//! address (`cosign sign-blob --key`, a signature next to it with the suffix `.sig`).

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use lobster_runtime::http::{Fetch, Url, fetch};
use lobster_runtime::json;
use ring::signature::{ECDSA_P256_SHA256_ASN1, ED25519, UnparsedPublicKey, VerificationAlgorithm};

use crate::exit::CommandError;
use crate::registry::{self, LIMITS, Manifests, PAYLOAD, Signed};

/// Prefixes of keys in a SubjectPublicKeyInfo (RFC 5480, RFC 8410), with their algorithms.
const ALGORITHMS: [(&[u8], usize, &dyn VerificationAlgorithm); 2] = [
    (
        b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00",
        65,
        &ECDSA_P256_SHA256_ASN1,
    ),
    (b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00", 32, &ED25519),
];

/// A public key for checking signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// A SubjectPublicKeyInfo, DER.
    info: Vec<u8>,
}

impl Key {
    /// Reads a file written by `cosign generate-key-pair` (`cosign.pub`).
    pub(super) fn read(path: &Path) -> Result<Self, CommandError> {
        let refuse = |why: &str| CommandError::usage(format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| refuse(&error.to_string()))?;
        let inside = text
            .trim()
            .strip_prefix("-----BEGIN PUBLIC KEY-----")
            .and_then(|rest| rest.strip_suffix("-----END PUBLIC KEY-----"))
            .ok_or_else(|| refuse("it is not a public key in PEM"))?;
        Self::of_text(&inside.split_whitespace().collect::<String>()).map_err(|why| refuse(&why))
    }

    /// Parses the key of a lock.
    pub(super) fn of_text(text: &str) -> Result<Self, String> {
        let info = BASE64.decode(text).map_err(|error| format!("the key is not Base64: {error}"))?;
        let key = Self { info };
        match key.split_algorithm() {
            Some(_) => Ok(key),
            None => Err("the key is neither ECDSA P-256 nor Ed25519".to_owned()),
        }
    }

    pub(super) fn to_text(&self) -> String {
        BASE64.encode(&self.info)
    }

    fn split_algorithm(&self) -> Option<(&'static dyn VerificationAlgorithm, &[u8])> {
        ALGORITHMS.iter().find_map(|(prefix, length, algorithm)| {
            let key = self.info.strip_prefix(*prefix)?;
            (key.len() == *length).then_some((*algorithm, key))
        })
    }

    fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        self.split_algorithm().is_some_and(|(algorithm, key)| {
            UnparsedPublicKey::new(algorithm, key).verify(message, signature).is_ok()
        })
    }
}

/// The place of a component's signatures.
pub(super) enum SignatureSource {
    /// A ready step is known by its digest and has no signature.
    None,
    File(std::path::PathBuf),
    Web(Url),
    /// The manifests that lead to the program, the artifact's own first.
    Registry(Manifests),
}

impl SignatureSource {
    /// Checks that the component has a signature by this key.
    ///
    /// # Errors
    /// It has no signature, or none by the key.
    pub(super) fn require_signature(&self, bytes: &[u8], key: &Key, told: &str) -> Result<(), CommandError> {
        let found = self.read_signatures(bytes)?;
        if found.is_empty() {
            let how = match self {
                Self::None => "it is identified by its digest and has no signature".to_owned(),
                Self::File(file) => format!("there is no {}.sig", file.display()),
                Self::Web(url) => format!("there is no {}", signature_url(url)),
                Self::Registry(_) => "`cosign sign --key` would put one beside it".to_owned(),
            };
            return Err(CommandError::failed(format!("{told} has no signature: {how}")));
        }
        let by_key = found.iter().filter(|one| key.has_signed(&one.message, &one.signature));
        let mut of_others = false;
        for one in by_key {
            if self.is_about(&one.message) {
                return Ok(());
            }
            of_others = true;
        }
        Err(CommandError::failed(if of_others {
            format!("the signature of {told} is by this key, but for other content")
        } else {
            format!("{told} is not signed with this key, or was changed since")
        }))
    }

    /// True if a signature is known to exist.
    pub(super) fn is_signed(&self, bytes: &[u8]) -> bool {
        self.read_signatures(bytes).is_ok_and(|found| !found.is_empty())
    }

    /// True if a message signed by the key names the artifact; for a file, the message is the file.
    fn is_about(&self, message: &[u8]) -> bool {
        let Self::Registry(manifests) = self else { return true };
        let Ok(payload) = json::parse(&String::from_utf8_lossy(message)) else { return false };
        let critical = &payload["critical"];
        let named = critical["image"]["docker-manifest-digest"].as_str().unwrap_or_default();
        critical["type"] == PAYLOAD && manifests.digests.iter().any(|digest| digest == named)
    }

    fn read_signatures(&self, bytes: &[u8]) -> Result<Vec<Signed>, CommandError> {
        let text = match self {
            Self::None => None,
            Self::File(file) => {
                let mut name = file.as_os_str().to_owned();
                name.push(".sig");
                match std::fs::read(&name) {
                    Ok(text) => Some(text),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
                    Err(error) => return Err(CommandError::unreadable(Path::new(&name))(error)),
                }
            }
            Self::Web(url) => {
                let url = signature_url(url);
                let answer = fetch(&Fetch::get(url.clone()), LIMITS).map_err(CommandError::failed)?;
                match answer.status {
                    200 => Some(answer.body),
                    404 | 410 => None,
                    status => return Err(CommandError::failed(format!("{url} answers {status}"))),
                }
            }
            Self::Registry(manifests) => return registry::fetch_signatures(manifests),
        };
        let Some(text) = text else { return Ok(Vec::new()) };
        let text: Vec<u8> = text.into_iter().filter(|byte| !byte.is_ascii_whitespace()).collect();
        // Text that is not Base64 verifies nothing, but is still a signature.
        let signature = BASE64.decode(&text).unwrap_or_default();
        Ok(vec![Signed { message: bytes.to_owned(), signature }])
    }
}

/// The address of the signature for an address.
fn signature_url(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_path(&format!("{}.sig", url.path()));
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_from_what_is_none() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("key.pub");
        let pem = |info: &[u8]| {
            format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", BASE64.encode(info))
        };
        for (prefix, length, _) in ALGORITHMS {
            let info = [prefix, &vec![4; length]].concat();
            std::fs::write(&path, pem(&info)).unwrap();
            let key = Key::read(&path).unwrap();
            assert_eq!(Key::of_text(&key.to_text()).unwrap(), key);
            assert!(!key.has_signed(b"m", b"s"));
            std::fs::write(&path, pem(&info[..info.len() - 1])).unwrap();
            assert!(Key::read(&path).is_err());
        }
        for wrong in
            ["", "-----BEGIN PUBLIC KEY-----\n!\n-----END PUBLIC KEY-----", "-----BEGIN PRIVATE KEY-----"]
        {
            std::fs::write(&path, wrong).unwrap();
            assert!(Key::read(&path).is_err(), "{wrong}");
        }
        assert!(Key::read(&place.path().join("gone")).is_err());
    }
}
