//! The signer of a bundle: an ed25519 signature after its last blob.
//!
//! It signs the beginning of the file: the 16 bytes at the start of every bundle, and the digest of the
//! manifest, which covers everything else. Keys are PEM files as written by `openssl genpkey -algorithm
//! ed25519`.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};
use serde::{Serialize, Serializer};

/// Beginning of a signature.
pub(super) const MARK: &[u8; 16] = b"lobster signed\n\x01";

/// Bytes of a signature in a file: the mark, the public key, the signature.
pub(super) const LENGTH: usize = MARK.len() + 32 + 64;

/// A PKCS#8 ed25519 private key and a SPKI public key are these bytes followed by the 32 bytes of the key.
const PRIVATE_HEAD: [u8; 16] = *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
const PUBLIC_HEAD: [u8; 12] = *b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";

/// Reason why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("cannot read the key {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write the key {}: {source}", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(
        "{} is not an ed25519 {kind} key: {why}; `lobster bundle keygen FILE` creates a key pair, as does \
         `openssl genpkey -algorithm ed25519`", .path.display()
    )]
    NotAKey { path: PathBuf, kind: &'static str, why: String },
    #[error("there is no randomness to make a key from: {0}")]
    NoRandomness(String),
}

/// Key that signs bundles.
pub struct SigningKey(Ed25519KeyPair);

/// Keeps keys out of logs.
impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

/// Signer, identified by the public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ed25519:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl SigningKey {
    /// Reads a PKCS#8 PEM file.
    ///
    /// # Errors
    /// If the file does not exist or contains no ed25519 private key.
    pub fn read_pem(path: &Path) -> Result<Self, KeyError> {
        let wrong = |why: String| KeyError::NotAKey { path: path.to_owned(), kind: "private", why };
        let der = PrivatePkcs8KeyDer::from_pem_slice(&read_file(path)?)
            .map_err(|error| wrong(no_section(&error, "PRIVATE KEY")))?;
        // OpenSSL omits the public key, so the private one cannot be checked against it.
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der())
            .map(Self)
            .map_err(|error| wrong(error.to_string()))
    }

    /// Makes a key pair: the private key at `path`, readable only by its owner, and the public key beside it
    /// with the suffix `.pub`. Nothing is overwritten.
    ///
    /// # Errors
    /// If a file exists already or cannot be written.
    pub fn generate(path: &Path) -> Result<(PublicKey, PathBuf), KeyError> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| KeyError::NoRandomness(error.to_string()))?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed)
            .map_err(|error| KeyError::NoRandomness(error.to_string()))?;
        let public = Self(pair).public_key();
        let beside = PathBuf::from(format!("{}.pub", path.display()));
        write_pem(path, 0o600, "PRIVATE KEY", &[&PRIVATE_HEAD[..], &seed[..]].concat())?;
        write_pem(&beside, 0o644, "PUBLIC KEY", &[&PUBLIC_HEAD[..], &public.0[..]].concat()).inspect_err(
            |_| {
                // Half a pair would only hinder the next attempt.
                let _ = std::fs::remove_file(path);
            },
        )?;
        Ok((public, beside))
    }

    /// The public key of this key.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.0.public_key().as_ref());
        PublicKey(bytes)
    }

    /// The signature of a message.
    #[must_use]
    pub fn sign_message(&self, message: &[u8]) -> Vec<u8> {
        self.0.sign(message).as_ref().to_vec()
    }

    /// The bytes to append after the last blob of a bundle that begins with `head`.
    pub(super) fn sign_head(&self, head: &[u8]) -> Vec<u8> {
        [&MARK[..], &self.public_key().0[..], &self.sign_message(head)].concat()
    }
}

impl PublicKey {
    /// Reads a public key from a PEM file.
    ///
    /// # Errors
    /// If the file does not exist or contains no ed25519 public key.
    pub fn read_pem(path: &Path) -> Result<Self, KeyError> {
        let wrong = |why: String| KeyError::NotAKey { path: path.to_owned(), kind: "public", why };
        let der = SubjectPublicKeyInfoDer::from_pem_slice(&read_file(path)?)
            .map_err(|error| wrong(no_section(&error, "PUBLIC KEY")))?;
        let key = der.as_ref().strip_prefix(&PUBLIC_HEAD).and_then(|key| key.try_into().ok());
        key.map(Self).ok_or_else(|| wrong("it is a key of another kind".to_owned()))
    }
}

/// The signer, if these bytes are a valid signature of `head`.
pub(super) fn verify_signature(head: &[u8], bytes: &[u8]) -> Option<PublicKey> {
    let rest = bytes.strip_prefix(MARK)?;
    let (key, signature) = rest.split_at_checked(32)?;
    UnparsedPublicKey::new(&ED25519, key).verify(head, signature).ok()?;
    key.try_into().ok().map(PublicKey)
}

fn read_file(path: &Path) -> Result<Vec<u8>, KeyError> {
    std::fs::read(path).map_err(|source| KeyError::Read { path: path.to_owned(), source })
}

fn no_section(error: &PemError, wanted: &str) -> String {
    match error {
        PemError::NoItemsFound => format!("there is no section \"BEGIN {wanted}\" in it"),
        other => other.to_string(),
    }
}

fn write_pem(path: &Path, mode: u32, section: &str, der: &[u8]) -> Result<(), KeyError> {
    let text = format!("-----BEGIN {section}-----\n{}\n-----END {section}-----\n", STANDARD.encode(der));
    let made = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    made.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|source| KeyError::Write { path: path.to_owned(), source })
}
