-- Version 1. `runs.n` and `journal.id` are orders of creation that no clock can disturb.
CREATE TABLE runs (
    n         INTEGER PRIMARY KEY AUTOINCREMENT,
    id        BLOB NOT NULL UNIQUE,
    name      TEXT NOT NULL,
    kind      TEXT NOT NULL,
    status    TEXT NOT NULL,
    mode      TEXT NOT NULL,
    actor     TEXT,
    cwd       TEXT NOT NULL,
    parent    BLOB,
    plan      BLOB NOT NULL,
    args      BLOB,
    started   INTEGER NOT NULL,
    ended     INTEGER,
    output    BLOB,
    error     TEXT,
    pinned    INTEGER NOT NULL DEFAULT 0,
    head_seq  INTEGER NOT NULL,
    head      BLOB NOT NULL
) STRICT;
-- The end of the id, by which people name a run.
CREATE INDEX runs_by_short_id ON runs (substr(hex(id), 25));
CREATE INDEX runs_by_status ON runs (status, n);
CREATE INDEX runs_by_name ON runs (name, n);

-- The text is what the chain hashes; nothing else about an event is stored.
CREATE TABLE journal (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    run    INTEGER NOT NULL,
    seq    INTEGER NOT NULL,
    record TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX journal_by_run ON journal (run, seq);

-- `data` is NULL when the bytes are in a file of their own.
CREATE TABLE blobs (
    id      INTEGER PRIMARY KEY,
    digest  BLOB NOT NULL UNIQUE,
    len     INTEGER NOT NULL,
    touched INTEGER NOT NULL,
    data    BLOB
) STRICT;

CREATE TABLE gates (
    n        INTEGER PRIMARY KEY AUTOINCREMENT,
    key      BLOB NOT NULL UNIQUE,
    id       TEXT NOT NULL UNIQUE,
    run      INTEGER NOT NULL,
    path     TEXT NOT NULL,
    kind     TEXT NOT NULL,
    question BLOB NOT NULL,
    binding  BLOB NOT NULL,
    approver TEXT,
    detail   TEXT NOT NULL,
    created  INTEGER NOT NULL,
    expires  INTEGER,
    status   TEXT NOT NULL,
    answer   TEXT,
    by       TEXT,
    answered INTEGER
) STRICT;
CREATE INDEX gates_by_status ON gates (status, n);
CREATE INDEX gates_by_run ON gates (run, n);
CREATE INDEX gates_to_expire ON gates (expires) WHERE status = 'open' AND expires IS NOT NULL;

CREATE TABLE actions (
    n       INTEGER PRIMARY KEY AUTOINCREMENT,
    digest  BLOB NOT NULL UNIQUE,
    outcome TEXT NOT NULL,
    created INTEGER NOT NULL,
    used    INTEGER NOT NULL,
    expires INTEGER
) STRICT;

CREATE TABLE run_values (
    run   INTEGER NOT NULL,
    key   TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (run, key)
) STRICT, WITHOUT ROWID;
