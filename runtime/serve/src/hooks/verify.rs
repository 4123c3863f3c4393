//! Authentication of deliveries: signatures over the raw bytes, compared in constant time.

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lobster_runtime::language::triggers::Verify;
use ring::hmac;

/// Largest difference between the time in a signature and this machine's clock, in either direction.
const TOLERANCE_MS: i64 = 5 * 60_000;

/// Longest id that is stored.
const MAX_ID: usize = 200;

/// A delivery whose sender is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verified {
    /// The sender's id for the delivery.
    pub id: Option<String>,
    /// True if the signature covers neither a time nor the id, so that a copy of the delivery stays valid for ever.
    pub is_timeless: bool,
}

/// A verified delivery, or the reason why it is not authentic.
type Checked = Result<Verified, &'static str>;

/// Verifies a delivery. One of `secrets` must have signed it.
///
/// # Errors
/// Returns the reason why it is not authentic; for the log, not for the sender.
pub(crate) fn verify_delivery(
    how: &Verify,
    headers: &HeaderMap,
    body: &[u8],
    secrets: &[String],
    now: i64,
) -> Checked {
    match how {
        Verify::Standard => verify_standard(headers, body, secrets, now),
        Verify::Github => verify_github(headers, body, secrets),
        Verify::Stripe => verify_stripe(headers, body, secrets, now),
        Verify::Slack => verify_slack(headers, body, secrets, now),
        Verify::Hmac { header } => {
            let given = single_header(headers, header)?;
            let given = given.strip_prefix("sha256=").unwrap_or(given);
            by_hex(given, &[body], secrets)?;
            Ok(Verified { id: delivery_id(headers), is_timeless: true })
        }
        Verify::Token { header } => {
            let given = single_header(headers, header)?;
            let given = if header == "authorization" {
                given
                    .strip_prefix("Bearer ")
                    .or_else(|| given.strip_prefix("bearer "))
                    .ok_or("it is not a bearer token")?
            } else {
                given
            };
            check_token(given, secrets)?;
            // The owner of the token may send anything; an id keeps a retry from running twice.
            Ok(Verified {
                id: Some(
                    delivery_id(headers)
                        .unwrap_or_else(|| format!("at {now} {}-{}", std::process::id(), unique_number())),
                ),
                is_timeless: false,
            })
        }
    }
}

/// Returns a header that must occur exactly once.
fn single_header<'h>(headers: &'h HeaderMap, name: &str) -> Result<&'h str, &'static str> {
    let mut all = headers.get_all(name).iter();
    match (all.next().and_then(|value| value.to_str().ok()), all.next()) {
        (Some(value), None) => Ok(value),
        (None, _) => Err("the header with the signature is missing"),
        (Some(_), Some(_)) => Err("the header with the signature is there twice"),
    }
}

/// The sender's id for the delivery, from the usual headers.
fn delivery_id(headers: &HeaderMap) -> Option<String> {
    let names = ["webhook-id", "idempotency-key", "x-github-delivery", "x-request-id"];
    let id = names.iter().find_map(|name| headers.get(*name)?.to_str().ok())?;
    (!id.is_empty() && id.len() <= MAX_ID).then(|| id.to_owned())
}

/// Standard Webhooks: base64 signatures of `id.timestamp.body`; several while a secret is being replaced.
fn verify_standard(headers: &HeaderMap, body: &[u8], secrets: &[String], now: i64) -> Checked {
    let (id, time) = (single_header(headers, "webhook-id")?, single_header(headers, "webhook-timestamp")?);
    check_time(time, now)?;
    if id.is_empty() || id.len() > MAX_ID {
        return Err("its id is empty or too long");
    }
    let signatures = single_header(headers, "webhook-signature")?;
    let parts: [&[u8]; 5] = [id.as_bytes(), b".", time.as_bytes(), b".", body];
    let given = signatures.split(' ').filter_map(|one| STANDARD.decode(one.strip_prefix("v1,")?).ok());
    let given: Vec<Vec<u8>> = given.collect();
    let is_signed = secrets.iter().any(|secret| {
        let key = match secret.strip_prefix("whsec_") {
            Some(encoded) => STANDARD.decode(encoded).unwrap_or_else(|_| secret.as_bytes().to_vec()),
            None => secret.as_bytes().to_vec(),
        };
        given.iter().any(|signature| is_signature(&key, &parts, signature))
    });
    // The id is signed, so another id means another delivery.
    if is_signed { Ok(Verified { id: Some(id.to_owned()), is_timeless: false }) } else { Err(WRONG) }
}

/// GitHub signs only the body, without a time or an id.
fn verify_github(headers: &HeaderMap, body: &[u8], secrets: &[String]) -> Checked {
    let given = single_header(headers, "x-hub-signature-256")?
        .strip_prefix("sha256=")
        .ok_or("it has no SHA-256 signature")?;
    by_hex(given, &[body], secrets)?;
    Ok(Verified { id: delivery_id(headers), is_timeless: true })
}

/// Stripe: hexadecimal signatures of `timestamp.body` in one header, with the time.
fn verify_stripe(headers: &HeaderMap, body: &[u8], secrets: &[String], now: i64) -> Checked {
    let header = single_header(headers, "stripe-signature")?;
    let fields = || header.split(',').filter_map(|field| field.trim().split_once('='));
    let time = fields().find(|(name, _)| *name == "t").map(|(_, time)| time).ok_or("it has no time")?;
    check_time(time, now)?;
    let parts: [&[u8]; 3] = [time.as_bytes(), b".", body];
    let is_signed = fields().any(|(name, given)| name == "v1" && by_hex(given, &parts, secrets).is_ok());
    // The id is in the body, which is signed: equal bytes mean the same event.
    if is_signed { Ok(Verified { id: None, is_timeless: true }) } else { Err(WRONG) }
}

/// Slack: a hexadecimal signature of `v0:timestamp:body`.
fn verify_slack(headers: &HeaderMap, body: &[u8], secrets: &[String], now: i64) -> Checked {
    let time = single_header(headers, "x-slack-request-timestamp")?;
    check_time(time, now)?;
    let given =
        single_header(headers, "x-slack-signature")?.strip_prefix("v0=").ok_or("it has no v0 signature")?;
    by_hex(given, &[b"v0:", time.as_bytes(), b":", body], secrets)?;
    Ok(Verified { id: None, is_timeless: true })
}

const WRONG: &str = "its signature was not made with a secret of the webhook";

/// Checks that a time in seconds is close to this machine's clock.
fn check_time(text: &str, now: i64) -> Result<(), &'static str> {
    let seconds: i64 = text.parse().map_err(|_| "its time is not a number of seconds")?;
    let ms = seconds.checked_mul(1000).ok_or("its time is out of range")?;
    match ms.abs_diff(now) <= TOLERANCE_MS.unsigned_abs() {
        true => Ok(()),
        false => Err("its time differs by more than five minutes from the clock of this machine"),
    }
}

fn by_hex(given: &str, parts: &[&[u8]], secrets: &[String]) -> Result<(), &'static str> {
    let given = from_hex(given).ok_or("its signature is not hexadecimal")?;
    let is_signed = secrets.iter().any(|secret| is_signature(secret.as_bytes(), parts, &given));
    if is_signed { Ok(()) } else { Err(WRONG) }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

/// Compares in constant time. An empty secret never matches.
fn is_signature(key: &[u8], parts: &[&[u8]], given: &[u8]) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let message = parts.concat();
    hmac::verify(&key, &message, given).is_ok()
}

fn check_token(given: &str, secrets: &[String]) -> Result<(), &'static str> {
    // Both are hashed under one key first, so the time of the comparison does not reveal how much of a guess is right.
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"lobster webhook token");
    let given = hmac::sign(&key, given.as_bytes());
    let is_known = secrets
        .iter()
        .any(|secret| !secret.is_empty() && hmac::verify(&key, secret.as_bytes(), given.as_ref()).is_ok());
    if is_known { Ok(()) } else { Err("the token is wrong") }
}

/// Distinguishes deliveries within one millisecond.
fn unique_number() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_674_087_231_000;

    fn header_map(all: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            headers
                .append(axum::http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        headers
    }

    fn hex_signature(key: &[u8], message: &[u8]) -> String {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message);
        tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A valid delivery for every scheme.
    fn signed_deliveries(body: &[u8]) -> Vec<(Verify, HeaderMap)> {
        let time = (NOW / 1000).to_string();
        let with_time = |before: &str, between: &str| {
            [before.as_bytes(), time.as_bytes(), between.as_bytes(), body].concat()
        };
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, b"s3cret"), &with_time("msg_1.", "."));
        let standard = format!("v1,AAAA v1,{}", STANDARD.encode(tag.as_ref()));
        let stripe = format!("t={time},v1=00,v1={}", hex_signature(b"s3cret", &with_time("", ".")));
        vec![
            (
                Verify::Standard,
                header_map(&[
                    ("webhook-id", "msg_1"),
                    ("webhook-timestamp", &time),
                    ("webhook-signature", &standard),
                ]),
            ),
            (
                Verify::Github,
                header_map(&[("x-hub-signature-256", &format!("sha256={}", hex_signature(b"s3cret", body)))]),
            ),
            (Verify::Stripe, header_map(&[("stripe-signature", &stripe)])),
            (
                Verify::Slack,
                header_map(&[
                    ("x-slack-request-timestamp", &time),
                    (
                        "x-slack-signature",
                        &format!("v0={}", hex_signature(b"s3cret", &with_time("v0:", ":"))),
                    ),
                ]),
            ),
            (
                Verify::Hmac { header: "x-sign".to_owned() },
                header_map(&[("x-sign", &hex_signature(b"s3cret", body))]),
            ),
            (Verify::Token { header: "x-token".to_owned() }, header_map(&[("x-token", "s3cret")])),
            (
                Verify::Token { header: "authorization".to_owned() },
                header_map(&[("authorization", "Bearer s3cret")]),
            ),
        ]
    }

    #[test]
    fn what_is_signed_is_believed_by_either_secret_and_nothing_else_is() {
        let body = br#"{"a":1}"#;
        let secrets = ["old".to_owned(), "s3cret".to_owned()];
        for (how, headers) in signed_deliveries(body) {
            assert!(verify_delivery(&how, &headers, body, &secrets, NOW).is_ok(), "{how:?}");
            assert!(verify_delivery(&how, &headers, body, &["other".to_owned()], NOW).is_err(), "{how:?}");
            assert!(verify_delivery(&how, &headers, body, &[], NOW).is_err(), "{how:?}");
            assert!(verify_delivery(&how, &headers, body, &[String::new()], NOW).is_err(), "{how:?}");
            assert!(verify_delivery(&how, &HeaderMap::new(), body, &secrets, NOW).is_err(), "{how:?}");
            let is_signed = !matches!(how, Verify::Token { .. });
            assert_eq!(
                verify_delivery(&how, &headers, br#"{"a":2}"#, &secrets, NOW).is_err(),
                is_signed,
                "{how:?}"
            );
            let is_timed = matches!(how, Verify::Standard | Verify::Stripe | Verify::Slack);
            for late in [301_000, -301_000] {
                assert_eq!(
                    verify_delivery(&how, &headers, body, &secrets, NOW + late).is_err(),
                    is_timed,
                    "{how:?}"
                );
            }
            let mut twice = headers.clone();
            for (name, value) in &headers {
                twice.append(name, value.clone());
            }
            assert!(verify_delivery(&how, &twice, body, &secrets, NOW).is_err(), "{how:?}");
        }
    }

    #[test]
    fn any_flipped_bit_of_a_signature_is_a_wrong_one() {
        let body = br#"{"a":1}"#;
        let secrets = ["s3cret".to_owned()];
        for (how, headers) in signed_deliveries(body) {
            for (name, value) in &headers {
                for at in 0..value.len() {
                    let mut bytes = value.as_bytes().to_vec();
                    bytes[at] ^= 1;
                    let Ok(changed) = axum::http::HeaderValue::from_bytes(&bytes) else { continue };
                    let mut headers = headers.clone();
                    headers.insert(name, changed);
                    let same = verify_delivery(&how, &headers, body, &secrets, NOW);
                    // The first of two signatures, and the case of a word or digit, are not compared.
                    let spare = value.to_str().unwrap().starts_with("v1,AAAA") && at < 8
                        || value.to_str().unwrap().contains("v1=00,") && (12..20).contains(&at);
                    assert!(same.is_err() || spare, "{how:?} {name} {at}");
                }
            }
        }
    }

    #[test]
    fn the_example_of_standard_webhooks_is_believed() {
        let body = br#"{"test": 2432232314}"#;
        let headers = header_map(&[
            ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            ("webhook-timestamp", "1614265330"),
            ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        ]);
        let secret = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned()];
        let verified =
            verify_delivery(&Verify::Standard, &headers, body, &secret, 1_614_265_330_000).unwrap();
        assert_eq!(verified.id.as_deref(), Some("msg_p5jXN8AQM9LWM0D4loKWxJek"));
    }
}
