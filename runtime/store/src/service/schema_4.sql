-- Version 4: what passkeys sign, so that the servers of a store know each other's challenges.

-- The key of the tags in challenges.
CREATE TABLE challenge_keys (
    n   INTEGER PRIMARY KEY CHECK (n = 1),
    key BLOB NOT NULL
) STRICT;

-- Challenges that were signed, until their time is over: each counts once.
CREATE TABLE used_challenges (
    id    BLOB PRIMARY KEY,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
