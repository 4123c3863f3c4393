//! Passkeys: people log in with the key that their phone or computer keeps for them, unlocked by a finger, a face
//! or a PIN. Web Authentication, Level 3 (<https://www.w3.org/TR/webauthn-3/>).
//!
//! Attestations are not asked for: which maker's device it is decides nothing here. A key is as good as the session
//! that adds it, so what a browser says of its public key is taken as it is.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lobster_runtime::json;
use lobster_runtime::sync::lock;
use ring::digest::{SHA256, digest};
use rustls::pki_types::{SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer};
use serde::Deserialize;
use webpki::RawPublicKeyEntity;

/// How long somebody may take to unlock a key.
const CHALLENGE_TIME: Duration = Duration::from_secs(300);

/// Challenges that are remembered; the oldest make way.
const CHALLENGES: usize = 4096;

/// The kinds of keys that browsers are asked for, by their numbers in COSE (RFC 9053), and how they sign.
const ALGORITHMS: [(i64, &dyn SignatureVerificationAlgorithm); 3] = [
    (-7, webpki::ring::ECDSA_P256_SHA256),
    (-8, webpki::ring::ED25519),
    (-257, webpki::ring::RSA_PKCS1_2048_8192_SHA256),
];

/// The numbers of those kinds.
#[must_use]
pub(crate) fn algorithms() -> [i64; 3] {
    ALGORITHMS.map(|(number, _)| number)
}

/// What was given to browsers to sign, and for what. Each counts once.
#[derive(Default)]
pub(crate) struct Challenges(Mutex<HashMap<String, Given>>);

struct Given {
    at: Instant,
    purpose: Purpose,
}

/// What somebody unlocks a key for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To log in, or to add it.
    Access,
    /// To say yes to a question: its id and its digest.
    Yes(String),
}

impl Challenges {
    /// A new one.
    pub(crate) fn give(&self, purpose: Purpose) -> Result<String, String> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|error| format!("no challenge can be made: {error}"))?;
        let challenge = URL_SAFE_NO_PAD.encode(bytes);
        let mut all = lock(&self.0);
        all.retain(|_, given| given.at.elapsed() < CHALLENGE_TIME);
        if all.len() >= CHALLENGES
            && let Some(oldest) = all.iter().min_by_key(|(_, given)| given.at).map(|(one, _)| one.clone())
        {
            all.remove(&oldest);
        }
        all.insert(challenge.clone(), Given { at: Instant::now(), purpose });
        Ok(challenge)
    }

    fn take(&self, challenge: &str, purpose: &Purpose) -> bool {
        let given = lock(&self.0).remove(challenge);
        given.is_some_and(|given| given.at.elapsed() < CHALLENGE_TIME && given.purpose == *purpose)
    }
}

/// What a browser was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ceremony {
    /// Make a key.
    Create,
    /// Sign with one.
    Get,
}

/// What a browser and the key in it say.
pub(crate) struct Said<'s> {
    /// As the browser has hashed it: who asked for what.
    pub(crate) client: &'s [u8],
    /// As the key has signed it.
    pub(crate) authenticator: &'s [u8],
}

/// What is known once both have been looked at.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    /// How often the key has signed, as it says; 0, if it does not count.
    pub(crate) count: u32,
    /// The name of a key that was made.
    pub(crate) made: Option<Vec<u8>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientData {
    r#type: String,
    challenge: String,
    origin: String,
    #[serde(default)]
    cross_origin: bool,
}

/// Somebody was there.
const PRESENT: u8 = 1;
/// Whoever it was has shown that they are who may use the key.
const VERIFIED: u8 = 1 << 2;
/// A key was made.
const HAS_KEY: u8 = 1 << 6;

/// Looks at what was said, in the order of sections 7.1 and 7.2 of the specification. `knows_origin` says whether
/// an origin is one of this server.
pub(crate) fn check(
    said: &Said<'_>,
    ceremony: Ceremony,
    (challenges, purpose): (&Challenges, &Purpose),
    knows_origin: impl Fn(&str) -> bool,
) -> Result<Checked, &'static str> {
    let text = std::str::from_utf8(said.client).map_err(|_| "the browser's part is not a text")?;
    let client: ClientData = json::parse_as(text).map_err(|_| "the browser's part cannot be read")?;
    let wanted = match ceremony {
        Ceremony::Create => "webauthn.create",
        Ceremony::Get => "webauthn.get",
    };
    if client.r#type != wanted {
        return Err("it was made for something else");
    }
    if !challenges.take(&client.challenge, purpose) {
        return Err("it was asked for too long ago or for something else, or was used before");
    }
    let host = host_of(&client.origin).filter(|_| knows_origin(&client.origin) && !client.cross_origin);
    let Some(host) = host else { return Err("it was made for a page of another server") };
    let Some((fixed, rest)) = said.authenticator.split_at_checked(37) else {
        return Err("the key's part is too short");
    };
    if fixed[..32] != *digest(&SHA256, host.as_bytes()).as_ref() {
        return Err("the key is for another server");
    }
    let flags = fixed[32];
    if flags & PRESENT == 0 || flags & VERIFIED == 0 {
        return Err("nobody has unlocked the key");
    }
    let count = u32::from_be_bytes([fixed[33], fixed[34], fixed[35], fixed[36]]);
    let made = match ceremony {
        Ceremony::Get => None,
        Ceremony::Create if flags & HAS_KEY == 0 => return Err("no key was made"),
        Ceremony::Create => {
            // Sixteen bytes name the kind of device, two tell how long the key's name is.
            let length = rest.get(16..18).map(|two| usize::from(u16::from_be_bytes([two[0], two[1]])));
            let name = length.and_then(|length| rest.get(18..18 + length)).filter(|name| !name.is_empty());
            Some(name.ok_or("the key's part is too short")?.to_vec())
        }
    };
    Ok(Checked { count, made })
}

/// Whether a key has signed what was said.
pub(crate) fn has_signed(key: &[u8], said: &Said<'_>, signature: &[u8]) -> bool {
    let mut signed = said.authenticator.to_vec();
    signed.extend(digest(&SHA256, said.client).as_ref());
    let key = SubjectPublicKeyInfoDer::from(key);
    let Ok(key) = RawPublicKeyEntity::try_from(&key) else { return false };
    ALGORITHMS.iter().any(|(_, algorithm)| key.verify_signature(*algorithm, &signed, signature).is_ok())
}

/// Whether a public key is of a kind whose signatures can be checked.
pub(crate) fn is_usable(key: &[u8]) -> bool {
    let key = SubjectPublicKeyInfoDer::from(key);
    let Ok(key) = RawPublicKeyEntity::try_from(&key) else { return false };
    // The kind is looked at before the signature, which is none.
    let wrong = |algorithm| key.verify_signature(algorithm, b"", b"").err();
    ALGORITHMS
        .iter()
        .any(|(_, algorithm)| matches!(wrong(*algorithm), Some(webpki::Error::InvalidSignatureForPublicKey)))
}

/// The name of the server in an origin that can have keys: one over TLS, or this machine's own.
fn host_of(origin: &str) -> Option<&str> {
    let (scheme, rest) = origin.split_once("://")?;
    let host =
        rest.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(rest, |(host, _)| host);
    (scheme == "https" || (scheme == "http" && host == "localhost")).then_some(host)
}

/// Bytes of a text in the form that browsers send them.
pub(crate) fn decoded(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};

    const ORIGIN: &str = "https://flows.example:8443";

    /// The public key of a device, as browsers give it.
    fn spki(prefix: &str, key: &[u8]) -> Vec<u8> {
        let bytes =
            (0..prefix.len()).step_by(2).map(|at| u8::from_str_radix(&prefix[at..at + 2], 16).unwrap());
        bytes.chain(key.iter().copied()).collect()
    }

    fn client(ceremony: &str, challenge: &str, origin: &str) -> Vec<u8> {
        format!(
            r#"{{"type":"{ceremony}","challenge":"{challenge}","origin":"{origin}","crossOrigin":false}}"#
        )
        .into()
    }

    fn authenticator(host: &str, flags: u8, count: u32) -> Vec<u8> {
        let mut data = digest(&SHA256, host.as_bytes()).as_ref().to_vec();
        data.push(flags);
        data.extend(count.to_be_bytes());
        data
    }

    fn knows(origin: &str) -> bool {
        origin.contains("flows.example") || origin.contains("localhost")
    }

    #[test]
    fn what_was_signed_for_this_server_and_now_counts_once() {
        let challenges = Challenges::default();
        let challenge = challenges.give(Purpose::Access).unwrap();
        let (client, authenticator) =
            (client("webauthn.get", &challenge, ORIGIN), authenticator("flows.example", 5, 9));
        let said = Said { client: &client, authenticator: &authenticator };
        assert_eq!(
            check(&said, Ceremony::Get, (&challenges, &Purpose::Access), knows),
            Ok(Checked { count: 9, made: None })
        );
        assert!(
            check(&said, Ceremony::Get, (&challenges, &Purpose::Access), knows)
                .unwrap_err()
                .contains("used before")
        );
    }

    #[test]
    fn what_was_unlocked_for_one_thing_is_not_for_another() {
        let challenges = Challenges::default();
        let yes = |question: &str| Purpose::Yes(question.to_owned());
        for (asked, used, counts) in [
            (yes("a 1"), yes("a 1"), true),
            (yes("a 1"), yes("a 2"), false),
            (yes("a 1"), Purpose::Access, false),
            (Purpose::Access, yes("a 1"), false),
        ] {
            let challenge = challenges.give(asked.clone()).unwrap();
            assert_eq!(challenges.take(&challenge, &used), counts, "{asked:?} {used:?}");
            assert!(!challenges.take(&challenge, &asked), "once");
        }
    }

    #[test]
    fn anything_else_does_not() {
        let challenges = Challenges::default();
        for (client_of, authenticator, about) in [
            (("webauthn.create", ORIGIN), authenticator("flows.example", 5, 0), "something else"),
            (("webauthn.get", "https://evil.example"), authenticator("evil.example", 5, 0), "another server"),
            (
                ("webauthn.get", "http://flows.example"),
                authenticator("flows.example", 5, 0),
                "another server",
            ),
            (("webauthn.get", "flows.example"), authenticator("flows.example", 5, 0), "another server"),
            (("webauthn.get", ORIGIN), authenticator("evil.example", 5, 0), "for another server"),
            (("webauthn.get", ORIGIN), authenticator("flows.example", 4, 0), "nobody has unlocked"),
            (("webauthn.get", ORIGIN), authenticator("flows.example", 1, 0), "nobody has unlocked"),
            (("webauthn.get", ORIGIN), vec![0; 36], "too short"),
        ] {
            let client = client(client_of.0, &challenges.give(Purpose::Access).unwrap(), client_of.1);
            let said = Said { client: &client, authenticator: &authenticator };
            let why = check(&said, Ceremony::Get, (&challenges, &Purpose::Access), knows).unwrap_err();
            assert!(why.contains(about), "{client_of:?}: {why}");
        }
        let challenge = challenges.give(Purpose::Access).unwrap();
        let framed = format!(
            r#"{{"type":"webauthn.get","challenge":"{challenge}","origin":"{ORIGIN}","crossOrigin":true}}"#
        );
        let good = authenticator("flows.example", 5, 0);
        let said = Said { client: framed.as_bytes(), authenticator: &good };
        assert!(
            check(&said, Ceremony::Get, (&challenges, &Purpose::Access), knows).is_err(),
            "a frame of another page"
        );
        for broken in [&b"\xff"[..], b"{}", b"[", b""] {
            let said = Said { client: broken, authenticator: &good };
            assert!(check(&said, Ceremony::Get, (&challenges, &Purpose::Access), knows).is_err());
        }
        let never_given = client("webauthn.get", &"A".repeat(43), ORIGIN);
        let said = Said { client: &never_given, authenticator: &good };
        assert!(
            check(&said, Ceremony::Get, (&challenges, &Purpose::Access), knows)
                .unwrap_err()
                .contains("too long ago")
        );
    }

    #[test]
    fn a_key_that_was_made_has_a_name() {
        let challenges = Challenges::default();
        let mut data = authenticator("localhost", 0x45, 1);
        data.extend([0; 16]);
        data.extend([0, 3, 7, 8, 9, 0xa5]);
        for (cut, made) in [(0, Some(vec![7, 8, 9])), (2, None), (6, None), (20, None)] {
            let client = client(
                "webauthn.create",
                &challenges.give(Purpose::Access).unwrap(),
                "http://localhost:7410",
            );
            let said = Said { client: &client, authenticator: &data[..data.len() - cut] };
            let found = check(&said, Ceremony::Create, (&challenges, &Purpose::Access), knows);
            assert_eq!(found.ok().and_then(|checked| checked.made), made, "{cut}");
        }
    }

    #[test]
    fn a_signature_is_that_of_the_key_over_both_parts() {
        let random = SystemRandom::new();
        let (client, authenticator) =
            (client("webauthn.get", "x", ORIGIN), authenticator("flows.example", 5, 1));
        let signed: Vec<u8> = [authenticator.as_slice(), digest(&SHA256, &client).as_ref()].concat();
        let ec = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let ec = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, ec.as_ref(), &random).unwrap();
        let ec_key = spki("3059301306072a8648ce3d020106082a8648ce3d030107034200", ec.public_key().as_ref());
        let ec_signature = ec.sign(&random, &signed).unwrap();
        let ed =
            Ed25519KeyPair::from_pkcs8(Ed25519KeyPair::generate_pkcs8(&random).unwrap().as_ref()).unwrap();
        let ed_key = spki("302a300506032b6570032100", ed.public_key().as_ref());
        let ed_signature = ed.sign(&signed);
        let said = Said { client: &client, authenticator: &authenticator };
        let other = Said { client: b"{}", authenticator: &authenticator };
        for (key, signature, others) in [
            (&ec_key, ec_signature.as_ref(), ed_signature.as_ref()),
            (&ed_key, ed_signature.as_ref(), ec_signature.as_ref()),
        ] {
            assert!(is_usable(key) && has_signed(key, &said, signature));
            assert!(!has_signed(key, &other, signature) && !has_signed(key, &said, others));
            assert!(!has_signed(key, &said, b"") && !is_usable(&key[1..]) && !is_usable(b""));
        }
    }

    #[test]
    fn no_bytes_of_a_browser_or_a_device_are_a_panic_or_a_signature() {
        let challenges = Challenges::default();
        let good = (client("webauthn.create", "x", ORIGIN), authenticator("flows.example", 0x45, 1));
        let key = spki("302a300506032b6570032100", &[7; 32]);
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: usize| {
            // Xorshift (Marsaglia, 2003).
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % below as u64).unwrap()
        };
        let mut mutated = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            for _ in 0..=random(4) {
                match random(4) {
                    0 => bytes.truncate(random(bytes.len() + 1)),
                    1 => bytes.extend((0..random(40)).map(|at| u8::try_from(at).unwrap())),
                    _ if bytes.is_empty() => {}
                    _ => {
                        let at = random(bytes.len());
                        bytes[at] = u8::try_from(random(256)).unwrap();
                    }
                }
            }
            bytes
        };
        for _ in 0..20_000 {
            let (client, authenticator, key) = (mutated(&good.0), mutated(&good.1), mutated(&key));
            let said = Said { client: &client, authenticator: &authenticator };
            for ceremony in [Ceremony::Create, Ceremony::Get] {
                let given = Given { at: Instant::now(), purpose: Purpose::Access };
                lock(&challenges.0).insert("x".to_owned(), given);
                let _ = check(&said, ceremony, (&challenges, &Purpose::Access), knows);
            }
            assert!(!has_signed(&key, &said, &authenticator));
            let _ = is_usable(&key);
        }
    }

    #[test]
    fn challenges_are_bounded() {
        let challenges = Challenges::default();
        let first = challenges.give(Purpose::Access).unwrap();
        for _ in 0..CHALLENGES {
            challenges.give(Purpose::Access).unwrap();
        }
        assert_eq!(lock(&challenges.0).len(), CHALLENGES);
        assert!(!challenges.take(&first, &Purpose::Access), "the oldest makes way");
    }
}
