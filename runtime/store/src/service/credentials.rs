//! Credentials of the service: tokens of programs, sessions of browsers, and links that open one session.
//!
//! The secret itself is never stored, only its BLAKE3 digest. Secrets are 32 random bytes, so a second one with the
//! same digest cannot be found.

use rusqlite::{Row, Transaction, params};
use serde_json::json;

use super::Service;
use super::trail::note_deed;
use crate::db::Durability;
use crate::error::StoreError;
use crate::event::words;
use crate::journal::read_word;
use crate::statement::query_one;
use lobster_base::digest::Digest;

words! {
    /// Kind of a credential.
    CredentialKind {
        /// A program's, sent in a header.
        Token = "token",
        /// An agent's, sent in a header. It can only read and start runs, even if its owner has other rights.
        Agent = "agent",
        /// A person's, sent with a question to a notification target. It answers that question, once.
        Reply = "reply",
        /// A browser's, in a cookie.
        Session = "session",
        /// Opens one session, once.
        Link = "link",
        /// A passkey on a person's device, which opens sessions.
        Passkey = "passkey",
    }
}

/// A new credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCredential {
    /// The name by which people refer to it.
    pub id: String,
    pub kind: CredentialKind,
    /// Digest of the secret.
    pub hash: Digest,
    /// The owner.
    pub name: String,
    pub role: String,
    /// The workflows that it is limited to; `None` means all.
    pub scope: Option<Vec<String>>,
    /// In milliseconds since 1970.
    pub expires_at: Option<i64>,
}

impl NewCredential {
    /// Stores it in a transaction, with the entry in the trail.
    pub(super) fn insert_with_trail(
        &self,
        tx: &Transaction<'_>,
        actor: Option<&str>,
        origin: &str,
        now: i64,
    ) -> Result<(), StoreError> {
        self.insert_row(tx, actor, now)?;
        let detail = json!({ "name": self.name, "role": self.role, "scope": self.scope });
        note_deed(tx, now, &format!("make-{}", self.kind), &self.id, (actor, origin), &detail)
    }

    fn insert_row(&self, tx: &Transaction<'_>, actor: Option<&str>, now: i64) -> Result<(), StoreError> {
        let scope = self.scope.as_ref().map(lobster_base::json::compact);
        tx.execute(
            "INSERT INTO credentials (id, kind, hash, name, role, scope, by, created, expires)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                self.id,
                self.kind.as_str(),
                self.hash.as_bytes(),
                self.name,
                self.role,
                scope,
                actor,
                now,
                self.expires_at
            ],
        )?;
        Ok(())
    }

    /// Stores it as a session with these rights, in a transaction. `scope` is in the stored form.
    pub(super) fn open_session(
        &self,
        tx: &Transaction<'_>,
        (name, role, scope): (&str, &str, Option<&str>),
        now: i64,
    ) -> Result<(), StoreError> {
        tx.execute(
            "INSERT INTO credentials (id, kind, hash, name, role, scope, by, created, expires)
             VALUES (?1, 'session', ?2, ?3, ?4, ?5, ?3, ?6, ?7)",
            params![self.id, self.hash.as_bytes(), name, role, scope, now, self.expires_at],
        )?;
        Ok(())
    }
}

/// A stored credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    pub id: String,
    pub kind: CredentialKind,
    pub hash: Digest,
    pub name: String,
    pub role: String,
    pub scope: Option<Vec<String>>,
    pub made_by: Option<String>,
    pub made_at: i64,
    pub expires_at: Option<i64>,
    pub used_at: Option<i64>,
    /// Time when it was revoked or used up.
    pub ended_at: Option<i64>,
}

/// Interval in milliseconds within which the use of a credential is recorded only once.
const USE_NOTED: i64 = 60_000;

impl Service {
    /// Stores a credential.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add_credential(
        &self,
        new: &NewCredential,
        actor: Option<&str>,
        origin: &str,
    ) -> Result<(), StoreError> {
        self.write_durably(|tx, now| new.insert_with_trail(tx, actor, origin, now))
    }

    /// Stores a voucher with which one process can give one answer for the owner of the credential `by`, and removes
    /// expired vouchers.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add_voucher(&self, new: &NewCredential, by: &str) -> Result<(), StoreError> {
        let now = self.now();
        self.write_transaction(Durability::Lazy, |tx| {
            tx.execute(
                "DELETE FROM credentials WHERE kind = ?1 AND role = ?2 AND expires <= ?3",
                params![new.kind.as_str(), new.role, now],
            )?;
            new.insert_row(tx, Some(by), now)
        })
    }

    /// The credential whose secret has this digest, if it is valid.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn find_credential(&self, hash: &Digest) -> Result<Option<Credential>, StoreError> {
        let now = self.now();
        let sql = format!("{SELECT} WHERE hash = ?1 AND ended IS NULL AND (expires IS NULL OR expires > ?2)");
        let found = self.db().select_one(&sql, params![hash.as_bytes(), now], credential_from_row)?;
        let is_noted = |one: &Credential| one.used_at.is_some_and(|at| now.saturating_sub(at) < USE_NOTED);
        if let Some(one) = found.as_ref().filter(|one| !is_noted(one)) {
            let sql = "UPDATE credentials SET used = ?2 WHERE id = ?1";
            self.store.write_statement(Durability::Lazy, sql, params![one.id, now])?;
        }
        Ok(found)
    }

    /// Redeems a link for a session: of several concurrent attempts, one succeeds.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn redeem_link(
        &self,
        link: &Digest,
        session: &NewCredential,
        origin: &str,
    ) -> Result<bool, StoreError> {
        self.write_durably(|tx, now| {
            let sql = "UPDATE credentials SET ended = ?2, used = ?2 WHERE hash = ?1 AND kind = 'link'
                     AND ended IS NULL AND (expires IS NULL OR expires > ?2) RETURNING id, name, role, scope";
            let used: Option<(String, String, String, Option<String>)> =
                query_one(tx, sql, params![link.as_bytes(), now], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
                })?;
            let Some((id, name, role, scope)) = used else { return Ok(false) };
            session.open_session(tx, (&name, &role, scope.as_deref()), now)?;
            let detail = json!({ "link": id, "role": role });
            note_deed(tx, now, "login", &session.id, (Some(&name), origin), &detail)?;
            Ok(true)
        })
    }

    /// Revokes a credential. False if there is no valid credential with this id.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn revoke_credential(&self, id: &str, actor: Option<&str>, origin: &str) -> Result<bool, StoreError> {
        self.write_durably(|tx, now| {
            let changed = tx.execute(
                "UPDATE credentials SET ended = ?2 WHERE id = ?1 AND ended IS NULL",
                params![id, now],
            )?;
            if changed > 0 {
                note_deed(tx, now, "revoke", id, (actor, origin), &json!({}))?;
            }
            Ok(changed > 0)
        })
    }

    /// All credentials of a kind, the newest first.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn list_credentials(&self, kind: CredentialKind) -> Result<Vec<Credential>, StoreError> {
        let sql = format!("{SELECT} WHERE kind = ?1 ORDER BY created DESC, id");
        self.db().select_rows(&sql, [kind.as_str()], credential_from_row)
    }
}

const SELECT: &str =
    "SELECT id, kind, hash, name, role, scope, by, created, expires, used, ended FROM credentials";

fn credential_from_row(row: &Row<'_>) -> rusqlite::Result<Credential> {
    let scope: Option<String> = row.get(5)?;
    Ok(Credential {
        id: row.get(0)?,
        kind: read_word(row, 1)?,
        hash: row.get::<_, [u8; 32]>(2)?.into(),
        name: row.get(3)?,
        role: row.get(4)?,
        // An unreadable scope is treated as empty.
        scope: scope.map(|text| lobster_base::json::parse_as(&text).unwrap_or_default()),
        made_by: row.get(6)?,
        made_at: row.get(7)?,
        expires_at: row.get(8)?,
        used_at: row.get(9)?,
        ended_at: row.get(10)?,
    })
}
