-- Version 3: how people reach a server, and passkeys.

-- Empty: an earlier lobster's, which does not say.
ALTER TABLE servers ADD COLUMN url TEXT NOT NULL DEFAULT '';

-- The public keys of passkeys, and how often each has signed, as it says itself.
CREATE TABLE passkeys (
    credential TEXT PRIMARY KEY,
    key        BLOB NOT NULL,
    count      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
