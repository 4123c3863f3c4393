//! Passkeys: people log in with a key that their phone or computer keeps and that a finger, a face or a PIN unlocks.
//! Web Authentication, Level 3 (<https://www.w3.org/TR/webauthn-3/>).
//!
//! No attestation is requested: the maker of a device decides nothing here. A key is as trustworthy as the session that
//! adds it, so the public key is accepted as the browser sends it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lobster_runtime::json;
use lobster_runtime::store::service::{Service, Signed};
use ring::digest::{SHA256, digest};
use ring::hmac;
use rustls::pki_types::{SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer};
use serde::Deserialize;
use webpki::RawPublicKeyEntity;

/// Time limit for unlocking a key.
const CHALLENGE_MS: i64 = 300_000;

/// Message for a page whose address has no keys of this server.
const ANOTHER_PAGE: &str =
    "it was made for a page of another server; set `url` in the settings to the address of this one";

/// Message for a challenge that is not valid.
pub(crate) const NOT_ASKED: &str = "it was asked for too long ago or for something else, or was used before";

/// The kinds of keys that browsers may create, by their COSE numbers (RFC 9053), with their signature algorithms.
const ALGORITHMS: [(i64, &dyn SignatureVerificationAlgorithm); 3] = [
    (-7, webpki::ring::ECDSA_P256_SHA256),
    (-8, webpki::ring::ED25519),
    (-257, webpki::ring::RSA_PKCS1_2048_8192_SHA256),
];

/// The COSE numbers of those kinds.
#[must_use]
pub(crate) fn algorithm_numbers() -> [i64; 3] {
    ALGORITHMS.map(|(number, _)| number)
}

/// The key that authenticates challenges. Issued challenges are not stored: each one holds the time of its issue and a
/// tag over that and its purpose. So requests for many challenges do not displace others, and servers of one store
/// accept each other's challenges. A signed challenge can be used once, which the store ensures.
#[derive(Debug)]
pub(crate) struct Challenges(hmac::Key);

/// The purpose for which a key is unlocked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Logging in, or adding the key.
    Access,
    /// Approving a question: its id and its digest.
    Yes(String),
}

/// The random bytes of a challenge, which make it unique.
const RANDOM: usize = 16;

/// Length of the random bytes and the time of issue. The tag follows.
const BODY: usize = RANDOM + 8;

impl Challenges {
    /// Returns the key that is shared by the servers of a store.
    ///
    /// # Errors
    /// Fails if there is no randomness, or if the store cannot be written.
    pub(crate) fn for_service(service: &Service) -> Result<Self, String> {
        let key = service.challenge_key(random_bytes()?).map_err(|error| error.to_string())?;
        Ok(Self::from_key(&key))
    }

    fn from_key(key: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// Issues a challenge. `now` is in milliseconds since 1970.
    pub(crate) fn issue_challenge(&self, purpose: &Purpose, now: i64) -> Result<String, String> {
        let mut challenge = random_bytes::<RANDOM>()?.to_vec();
        challenge.extend(now.to_be_bytes());
        let tag = hmac::sign(&self.0, &signed_text(&challenge, purpose));
        challenge.extend(tag.as_ref());
        Ok(URL_SAFE_NO_PAD.encode(challenge))
    }

    /// Returns the random bytes and the expiry time of a challenge, if it was issued for this purpose and is not too
    /// old.
    fn verify_challenge(&self, challenge: &str, purpose: &Purpose, now: i64) -> Option<([u8; RANDOM], i64)> {
        let bytes = URL_SAFE_NO_PAD.decode(challenge).ok()?;
        let (body, tag) = bytes.split_at_checked(BODY)?;
        hmac::verify(&self.0, &signed_text(body, purpose), tag).ok()?;
        let (random, at) = body.split_first_chunk()?;
        let until = i64::from_be_bytes(at.try_into().ok()?).saturating_add(CHALLENGE_MS);
        (now < until).then_some((*random, until))
    }
}

/// The text that the tag of a challenge covers.
fn signed_text(body: &[u8], purpose: &Purpose) -> Vec<u8> {
    let purpose = match purpose {
        Purpose::Access => String::from("access"),
        Purpose::Yes(question) => format!("yes {question}"),
    };
    [body, purpose.as_bytes()].concat()
}

fn random_bytes<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| format!("no challenge can be made: {error}"))?;
    Ok(bytes)
}

/// The operation that the browser was asked to perform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ceremony {
    /// Create a key.
    Create,
    /// Sign with a key.
    Get,
}

/// The signed data of a browser and of the key in it.
pub(crate) struct Said<'s> {
    /// The browser's part, as it was hashed: which page asked for what.
    pub(crate) client: &'s [u8],
    /// The key's part, as it was signed.
    pub(crate) authenticator: &'s [u8],
}

/// The result of checking both parts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CheckedSignature {
    pub(crate) signed: Signed,
    /// The id of a new key.
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

/// A person was present.
const PRESENT: u8 = 1;
/// The person was verified as a user of the key.
const VERIFIED: u8 = 1 << 2;
/// A key was created.
const HAS_KEY: u8 = 1 << 6;

/// Checks the data in the order of sections 7.1 and 7.2 of the specification. `knows_origin` returns true for an origin
/// of this server.
pub(crate) fn check_signature(
    said: &Said<'_>,
    ceremony: Ceremony,
    (challenges, purpose, now): (&Challenges, &Purpose, i64),
    knows_origin: impl Fn(&str) -> bool,
) -> Result<CheckedSignature, &'static str> {
    let text = std::str::from_utf8(said.client).map_err(|_| "the browser's part is not a text")?;
    let client: ClientData = json::parse_as(text).map_err(|_| "the browser's part cannot be read")?;
    let wanted = match ceremony {
        Ceremony::Create => "webauthn.create",
        Ceremony::Get => "webauthn.get",
    };
    if client.r#type != wanted {
        return Err("it was made for something else");
    }
    let (challenge, until) = challenges.verify_challenge(&client.challenge, purpose, now).ok_or(NOT_ASKED)?;
    let host = host_of(&client.origin).filter(|_| knows_origin(&client.origin) && !client.cross_origin);
    let Some(host) = host else { return Err(ANOTHER_PAGE) };
    let Some((fixed, rest)) = said.authenticator.split_at_checked(37) else {
        return Err("the key's part is too short");
    };
    if fixed[..32] != *digest(&SHA256, host.as_bytes()).as_ref() {
        return Err("the key is for another server");
    }
    let flags = fixed[32];
    if flags & PRESENT == 0 || flags & VERIFIED == 0 {
        return Err("the key was not unlocked");
    }
    let count = u32::from_be_bytes([fixed[33], fixed[34], fixed[35], fixed[36]]);
    let made = match ceremony {
        Ceremony::Get => None,
        Ceremony::Create if flags & HAS_KEY == 0 => return Err("no key was made"),
        Ceremony::Create => {
            // Sixteen bytes name the kind of device; two more give the length of the key's id.
            let length = rest.get(16..18).map(|two| usize::from(u16::from_be_bytes([two[0], two[1]])));
            let name = length.and_then(|length| rest.get(18..18 + length)).filter(|name| !name.is_empty());
            Some(name.ok_or("the key's part is too short")?.to_vec())
        }
    };
    Ok(CheckedSignature { signed: Signed { count, challenge, until }, made })
}

/// True if a key has signed the data.
pub(crate) fn has_signed(key: &[u8], said: &Said<'_>, signature: &[u8]) -> bool {
    let mut signed = said.authenticator.to_vec();
    signed.extend(digest(&SHA256, said.client).as_ref());
    let key = SubjectPublicKeyInfoDer::from(key);
    let Ok(key) = RawPublicKeyEntity::try_from(&key) else { return false };
    ALGORITHMS.iter().any(|(_, algorithm)| key.verify_signature(*algorithm, &signed, signature).is_ok())
}

/// True if signatures of a public key's kind can be checked.
pub(crate) fn is_usable(key: &[u8]) -> bool {
    let key = SubjectPublicKeyInfoDer::from(key);
    let Ok(key) = RawPublicKeyEntity::try_from(&key) else { return false };
    // The kind is checked before the signature, which is empty here.
    let wrong = |algorithm| key.verify_signature(algorithm, b"", b"").err();
    ALGORITHMS
        .iter()
        .any(|(_, algorithm)| matches!(wrong(*algorithm), Some(webpki::Error::InvalidSignatureForPublicKey)))
}

/// The server name in an origin that can have keys: an https origin, or localhost.
fn host_of(origin: &str) -> Option<&str> {
    let (scheme, rest) = origin.split_once("://")?;
    let host =
        rest.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(rest, |(host, _)| host);
    (scheme == "https" || (scheme == "http" && host == "localhost")).then_some(host)
}

/// Decodes bytes in the text form of browsers.
pub(crate) fn decode_base64url(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};

    const ORIGIN: &str = "https://flows.example:8443";

    /// The public key of a device, in the form in which browsers send it.
    fn spki_bytes(prefix: &str, key: &[u8]) -> Vec<u8> {
        let bytes =
            (0..prefix.len()).step_by(2).map(|at| u8::from_str_radix(&prefix[at..at + 2], 16).unwrap());
        bytes.chain(key.iter().copied()).collect()
    }

    fn client_data(ceremony: &str, challenge: &str, origin: &str) -> Vec<u8> {
        format!(
            r#"{{"type":"{ceremony}","challenge":"{challenge}","origin":"{origin}","crossOrigin":false}}"#
        )
        .into()
    }

    fn authenticator_data(host: &str, flags: u8, count: u32) -> Vec<u8> {
        let mut data = digest(&SHA256, host.as_bytes()).as_ref().to_vec();
        data.push(flags);
        data.extend(count.to_be_bytes());
        data
    }

    fn knows_host(origin: &str) -> bool {
        origin.contains("flows.example") || origin.contains("localhost")
    }

    const NOW: i64 = 1_700_000_000_000;

    fn sample_challenges() -> Challenges {
        Challenges::from_key(&[7; 32])
    }

    #[test]
    fn what_was_signed_for_this_server_and_now_counts() {
        let challenges = sample_challenges();
        let challenge = challenges.issue_challenge(&Purpose::Access, NOW).unwrap();
        let (client, authenticator) =
            (client_data("webauthn.get", &challenge, ORIGIN), authenticator_data("flows.example", 5, 9));
        let said = Said { client: &client, authenticator: &authenticator };
        let checked =
            |now| check_signature(&said, Ceremony::Get, (&challenges, &Purpose::Access, now), knows_host);
        let CheckedSignature { signed, made } = checked(NOW + CHALLENGE_MS - 1).unwrap();
        assert_eq!((signed.count, signed.until, made), (9, NOW + CHALLENGE_MS, None));
        // The store detects reuse by this value.
        assert_eq!(checked(NOW).unwrap().signed.challenge, signed.challenge);
        assert_eq!(checked(NOW + CHALLENGE_MS), Err(NOT_ASKED));
    }

    #[test]
    fn what_was_unlocked_for_one_thing_is_not_for_another() {
        let challenges = sample_challenges();
        let yes = |question: &str| Purpose::Yes(question.to_owned());
        for (asked, used, counts) in [
            (yes("a 1"), yes("a 1"), true),
            (yes("a 1"), yes("a 2"), false),
            (yes("a 1"), Purpose::Access, false),
            (Purpose::Access, yes("a 1"), false),
        ] {
            let challenge = challenges.issue_challenge(&asked, NOW).unwrap();
            assert_eq!(
                challenges.verify_challenge(&challenge, &used, NOW).is_some(),
                counts,
                "{asked:?} {used:?}"
            );
        }
    }

    #[test]
    fn a_challenge_that_was_not_given_is_none() {
        let challenges = sample_challenges();
        let one = challenges.issue_challenge(&Purpose::Access, NOW).unwrap();
        assert_ne!(one, challenges.issue_challenge(&Purpose::Access, NOW).unwrap());
        let of_another_store = Challenges::from_key(&[8; 32]).issue_challenge(&Purpose::Access, NOW).unwrap();
        let bytes = URL_SAFE_NO_PAD.decode(&one).unwrap();
        let flipped = (0..bytes.len()).map(|at| {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            URL_SAFE_NO_PAD.encode(bytes)
        });
        let cut = (0..bytes.len()).map(|at| URL_SAFE_NO_PAD.encode(&bytes[..at]));
        for other in flipped.chain(cut).chain([of_another_store, format!("{one}A"), "A".repeat(43)]) {
            assert_eq!(challenges.verify_challenge(&other, &Purpose::Access, NOW), None, "{other}");
        }
        assert!(challenges.verify_challenge(&one, &Purpose::Access, NOW).is_some());
    }

    #[test]
    fn anything_else_does_not() {
        let challenges = sample_challenges();
        for (client_of, authenticator, about) in [
            (("webauthn.create", ORIGIN), authenticator_data("flows.example", 5, 0), "something else"),
            (
                ("webauthn.get", "https://evil.example"),
                authenticator_data("evil.example", 5, 0),
                "another server",
            ),
            (
                ("webauthn.get", "http://flows.example"),
                authenticator_data("flows.example", 5, 0),
                "another server",
            ),
            (("webauthn.get", "flows.example"), authenticator_data("flows.example", 5, 0), "another server"),
            (("webauthn.get", ORIGIN), authenticator_data("evil.example", 5, 0), "for another server"),
            (("webauthn.get", ORIGIN), authenticator_data("flows.example", 4, 0), "was not unlocked"),
            (("webauthn.get", ORIGIN), authenticator_data("flows.example", 1, 0), "was not unlocked"),
            (("webauthn.get", ORIGIN), vec![0; 36], "too short"),
        ] {
            let client = client_data(
                client_of.0,
                &challenges.issue_challenge(&Purpose::Access, NOW).unwrap(),
                client_of.1,
            );
            let said = Said { client: &client, authenticator: &authenticator };
            let why = check_signature(&said, Ceremony::Get, (&challenges, &Purpose::Access, NOW), knows_host)
                .unwrap_err();
            assert!(why.contains(about), "{client_of:?}: {why}");
        }
        let challenge = challenges.issue_challenge(&Purpose::Access, NOW).unwrap();
        let framed = format!(
            r#"{{"type":"webauthn.get","challenge":"{challenge}","origin":"{ORIGIN}","crossOrigin":true}}"#
        );
        let good = authenticator_data("flows.example", 5, 0);
        let said = Said { client: framed.as_bytes(), authenticator: &good };
        assert!(
            check_signature(&said, Ceremony::Get, (&challenges, &Purpose::Access, NOW), knows_host).is_err(),
            "a frame of another page"
        );
        for broken in [&b"\xff"[..], b"{}", b"[", b""] {
            let said = Said { client: broken, authenticator: &good };
            assert!(
                check_signature(&said, Ceremony::Get, (&challenges, &Purpose::Access, NOW), knows_host)
                    .is_err()
            );
        }
        let never_given = client_data("webauthn.get", &"A".repeat(43), ORIGIN);
        let said = Said { client: &never_given, authenticator: &good };
        assert!(
            check_signature(&said, Ceremony::Get, (&challenges, &Purpose::Access, NOW), knows_host)
                .unwrap_err()
                .contains("too long ago")
        );
    }

    #[test]
    fn a_key_that_was_made_has_a_name() {
        let challenges = sample_challenges();
        let mut data = authenticator_data("localhost", 0x45, 1);
        data.extend([0; 16]);
        data.extend([0, 3, 7, 8, 9, 0xa5]);
        for (cut, made) in [(0, Some(vec![7, 8, 9])), (2, None), (6, None), (20, None)] {
            let client = client_data(
                "webauthn.create",
                &challenges.issue_challenge(&Purpose::Access, NOW).unwrap(),
                "http://localhost:7410",
            );
            let said = Said { client: &client, authenticator: &data[..data.len() - cut] };
            let found =
                check_signature(&said, Ceremony::Create, (&challenges, &Purpose::Access, NOW), knows_host);
            assert_eq!(found.ok().and_then(|checked| checked.made), made, "{cut}");
        }
    }

    #[test]
    fn a_signature_is_that_of_the_key_over_both_parts() {
        let random = SystemRandom::new();
        let (client, authenticator) =
            (client_data("webauthn.get", "x", ORIGIN), authenticator_data("flows.example", 5, 1));
        let signed: Vec<u8> = [authenticator.as_slice(), digest(&SHA256, &client).as_ref()].concat();
        let ec = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let ec = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, ec.as_ref(), &random).unwrap();
        let ec_key =
            spki_bytes("3059301306072a8648ce3d020106082a8648ce3d030107034200", ec.public_key().as_ref());
        let ec_signature = ec.sign(&random, &signed).unwrap();
        let ed =
            Ed25519KeyPair::from_pkcs8(Ed25519KeyPair::generate_pkcs8(&random).unwrap().as_ref()).unwrap();
        let ed_key = spki_bytes("302a300506032b6570032100", ed.public_key().as_ref());
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
        let challenges = sample_challenges();
        let challenge = challenges.issue_challenge(&Purpose::Access, NOW).unwrap();
        let good = (
            client_data("webauthn.create", &challenge, ORIGIN),
            authenticator_data("flows.example", 0x45, 1),
        );
        let key = spki_bytes("302a300506032b6570032100", &[7; 32]);
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
                let _ = check_signature(&said, ceremony, (&challenges, &Purpose::Access, NOW), knows_host);
            }
            assert!(!has_signed(&key, &said, &authenticator));
            let _ = is_usable(&key);
        }
    }
}
