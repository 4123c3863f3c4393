//! Passkeys: credentials whose secret never leaves a device. Known by the digest of the name that the device gave
//! the key; kept with the public key.

use rusqlite::{OptionalExtension, Transaction, params};
use serde_json::json;

use super::Service;
use super::credentials::{Credential, CredentialKind, NewCredential};
use super::workflows::deed;
use crate::db::Durability;
use crate::error::StoreError;
use lobster_base::digest::Digest;

/// A passkey that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passkey {
    pub credential: Credential,
    /// The public key, as a DER `SubjectPublicKeyInfo` (RFC 5280, section 4.1.2.7).
    pub key: Vec<u8>,
    /// How often it has signed, as it said itself; 0, if it does not count.
    pub count: u32,
}

impl Service {
    /// Keeps a passkey. False if a key of this name is known already.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add_passkey(
        &self,
        new: &NewCredential,
        (key, count): (&[u8], u32),
        actor: Option<&str>,
        origin: &str,
    ) -> Result<bool, StoreError> {
        let now = self.now();
        self.write(Durability::Synced, |tx| {
            let is_known = tx
                .prepare_cached("SELECT 1 FROM credentials WHERE hash = ?1")?
                .exists([new.hash.as_bytes()])?;
            if is_known {
                return Ok(false);
            }
            new.keep(tx, actor, origin, now)?;
            tx.execute(
                "INSERT INTO passkeys (credential, key, count) VALUES (?1, ?2, ?3)",
                params![new.id, key, count],
            )?;
            Ok(true)
        })
    }

    /// The passkey whose name has this digest, if it still counts.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn passkey(&self, name: &Digest) -> Result<Option<Passkey>, StoreError> {
        let Some(credential) = self.credential(name)?.filter(|one| one.kind == CredentialKind::Passkey)
        else {
            return Ok(None);
        };
        let found = self.read(|db| {
            let mut statement = db.prepare_cached("SELECT key, count FROM passkeys WHERE credential = ?1")?;
            Ok(statement.query_row([&credential.id], |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
        })?;
        Ok(found.map(|(key, count)| Passkey { credential, key, count }))
    }

    /// Notes that a passkey has signed for the `count`th time. False if it counts no more, or has signed as often
    /// before: then there are two of it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn note_signature(&self, passkey: &Passkey, count: u32) -> Result<bool, StoreError> {
        let now = self.now();
        self.write(Durability::Synced, |tx| note_signature(tx, &passkey.credential.id, count, now))
    }

    /// Opens a session for whoever has signed with a passkey for the `count`th time; false as for [`Self::note_signature`].
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn log_in_by_passkey(
        &self,
        passkey: &Passkey,
        count: u32,
        session: &NewCredential,
        origin: &str,
    ) -> Result<bool, StoreError> {
        let now = self.now();
        let Credential { id, name, role, scope, .. } = &passkey.credential;
        self.write(Durability::Synced, |tx| {
            if !note_signature(tx, id, count, now)? {
                return Ok(false);
            }
            let scope = scope.as_ref().map(lobster_base::json::compact);
            session.open(tx, (name, role, scope.as_deref()), now)?;
            deed("login", &session.id, Some(name), origin, json!({ "passkey": id, "role": role }))
                .note(tx, now)?;
            Ok(true)
        })
    }
}

fn note_signature(tx: &Transaction<'_>, id: &str, count: u32, now: i64) -> Result<bool, StoreError> {
    let changed = tx.execute(
        "UPDATE passkeys SET count = ?2 WHERE credential = ?1 AND (count < ?2 OR (count = 0 AND ?2 = 0))
         AND credential IN (SELECT id FROM credentials WHERE ended IS NULL AND (expires IS NULL OR expires > ?3))",
        params![id, count, now],
    )?;
    Ok(changed > 0)
}
