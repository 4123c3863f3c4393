//! Passkeys: credentials whose secret never leaves a device. They are identified by the digest of the device's name
//! for the key, and stored with the public key.

use rusqlite::{Transaction, params};
use serde_json::json;

use super::Service;
use super::credentials::{Credential, CredentialKind, NewCredential};
use super::trail::note_deed;
use crate::db::Durability;
use crate::error::StoreError;
use lobster_base::digest::Digest;

/// A valid passkey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passkey {
    pub credential: Credential,
    /// The public key, as a DER `SubjectPublicKeyInfo` (RFC 5280, section 4.1.2.7).
    pub key: Vec<u8>,
    /// Number of signatures according to the key; 0 if it does not count them.
    pub count: u32,
}

/// A signature by a passkey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signed {
    /// Number of signatures according to the key; 0 if it does not count them.
    pub count: u32,
    /// Identifies the challenge.
    pub challenge: [u8; 16],
    /// End of the challenge's validity in milliseconds since 1970.
    pub until: i64,
}

/// Result of checking a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    Counts,
    /// Its challenge was used before.
    UsedBefore,
    /// The key is no longer valid, or another one has the same name or secret.
    NotOne,
}

impl Service {
    /// The key of the tags in challenges, shared by all servers of the store: `fresh` if there was none yet.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub fn challenge_key(&self, fresh: [u8; 32]) -> Result<[u8; 32], StoreError> {
        self.write_transaction(Durability::Synced, |tx| {
            tx.execute("INSERT OR IGNORE INTO challenge_keys (n, key) VALUES (1, ?1)", [fresh])?;
            Ok(tx.query_row("SELECT key FROM challenge_keys", [], |row| row.get(0))?)
        })
    }

    /// Stores a passkey, unless a key with this name exists.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add_passkey(
        &self,
        new: &NewCredential,
        (key, signed): (&[u8], &Signed),
        actor: Option<&str>,
        origin: &str,
    ) -> Result<Counted, StoreError> {
        self.write_durably(|tx, now| {
            if !use_challenge(tx, signed, now)? {
                return Ok(Counted::UsedBefore);
            }
            let is_known = tx
                .prepare_cached("SELECT 1 FROM credentials WHERE hash = ?1")?
                .exists([new.hash.as_bytes()])?;
            if is_known {
                return Ok(Counted::NotOne);
            }
            new.insert_with_trail(tx, actor, origin, now)?;
            tx.execute(
                "INSERT INTO passkeys (credential, key, count) VALUES (?1, ?2, ?3)",
                params![new.id, key, signed.count],
            )?;
            Ok(Counted::Counts)
        })
    }

    /// The passkey whose name has this digest, if it is valid.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn find_passkey(&self, name: &Digest) -> Result<Option<Passkey>, StoreError> {
        let Some(credential) = self.find_credential(name)?.filter(|one| one.kind == CredentialKind::Passkey)
        else {
            return Ok(None);
        };
        let sql = "SELECT key, count FROM passkeys WHERE credential = ?1";
        let found = self.db().select_one(sql, [&credential.id], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(found.map(|(key, count)| Passkey { credential, key, count }))
    }

    /// Records a signature. If its count was reached before, the key has been copied.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn note_signature(&self, passkey: &Passkey, signed: &Signed) -> Result<Counted, StoreError> {
        self.write_durably(|tx, now| note_signature(tx, &passkey.credential.id, signed, now))
    }

    /// Opens a session for the owner of a passkey, if [`Self::note_signature`] accepts the signature.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn log_in_by_passkey(
        &self,
        passkey: &Passkey,
        signed: &Signed,
        session: &NewCredential,
        origin: &str,
    ) -> Result<Counted, StoreError> {
        let Credential { id, name, role, scope, .. } = &passkey.credential;
        self.write_durably(|tx, now| {
            let counted = note_signature(tx, id, signed, now)?;
            if counted != Counted::Counts {
                return Ok(counted);
            }
            let scope = scope.as_ref().map(lobster_base::json::compact);
            session.open_session(tx, (name, role, scope.as_deref()), now)?;
            let detail = json!({ "passkey": id, "role": role });
            note_deed(tx, now, "login", &session.id, (Some(name), origin), &detail)?;
            Ok(Counted::Counts)
        })
    }
}

/// Uses up a challenge; false if it was used before.
fn use_challenge(tx: &Transaction<'_>, signed: &Signed, now: i64) -> Result<bool, StoreError> {
    tx.execute("DELETE FROM used_challenges WHERE until <= ?1", [now])?;
    let added = tx.execute(
        "INSERT OR IGNORE INTO used_challenges (id, until) VALUES (?1, ?2)",
        params![signed.challenge, signed.until],
    )?;
    Ok(added > 0)
}

fn note_signature(tx: &Transaction<'_>, id: &str, signed: &Signed, now: i64) -> Result<Counted, StoreError> {
    if !use_challenge(tx, signed, now)? {
        return Ok(Counted::UsedBefore);
    }
    let changed = tx.execute(
        "UPDATE passkeys SET count = ?2 WHERE credential = ?1 AND (count < ?2 OR (count = 0 AND ?2 = 0))
         AND credential IN (SELECT id FROM credentials WHERE ended IS NULL AND (expires IS NULL OR expires > ?3))",
        params![id, signed.count, now],
    )?;
    Ok(if changed > 0 { Counted::Counts } else { Counted::NotOne })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::atomic::Ordering;

    use super::super::tests::service;
    use super::super::*;
    use lobster_base::digest::Digest;

    #[test]
    fn what_a_passkey_has_signed_counts_once() {
        let (service, time) = service();
        assert_eq!(service.challenge_key([1; 32]).unwrap(), [1; 32]);
        assert_eq!(service.challenge_key([2; 32]).unwrap(), [1; 32], "the first one's");
        let credential = |id: &str, kind| NewCredential {
            id: id.to_owned(),
            kind,
            hash: Digest::of_bytes(id.as_bytes()),
            name: "ann".to_owned(),
            role: "admin".to_owned(),
            scope: None,
            expires_at: Some(9_000_000),
        };
        let signed = |challenge, count| Signed { count, challenge: [challenge; 16], until: 1_300_000 };
        let phone = credential("phone", CredentialKind::Passkey);
        let add = |signed| service.add_passkey(&phone, (b"key", &signed), Some("ann"), "test").unwrap();
        assert_eq!(add(signed(1, 0)), Counted::Counts);
        assert_eq!((add(signed(1, 0)), add(signed(2, 0))), (Counted::UsedBefore, Counted::NotOne));
        let passkey = service.find_passkey(&phone.hash).unwrap().unwrap();
        let log_in = |id: &str, signed| {
            let session = credential(id, CredentialKind::Session);
            let counted = service.log_in_by_passkey(&passkey, &signed, &session, "test").unwrap();
            assert_eq!(
                service.find_credential(&session.hash).unwrap().is_some(),
                counted == Counted::Counts,
                "{id}"
            );
            counted
        };
        // A key that does not count its signatures.
        assert_eq!(log_in("a", signed(3, 0)), Counted::Counts);
        assert_eq!(log_in("b", signed(3, 0)), Counted::UsedBefore);
        assert_eq!(service.note_signature(&passkey, &signed(3, 0)).unwrap(), Counted::UsedBefore);
        assert_eq!(service.note_signature(&passkey, &signed(4, 7)).unwrap(), Counted::Counts);
        assert_eq!(service.note_signature(&passkey, &signed(5, 7)).unwrap(), Counted::NotOne);
        // Used challenges are removed after their time.
        time.store(1_300_000, Ordering::SeqCst);
        assert_eq!(service.note_signature(&passkey, &signed(6, 8)).unwrap(), Counted::Counts);
        let kept = service.read_snapshot(|db| {
            Ok(db.query_row("SELECT count(*) FROM used_challenges", [], |row| row.get::<_, i64>(0))?)
        });
        assert_eq!(kept.unwrap(), 1);
    }
}
