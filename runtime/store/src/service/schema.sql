-- What the service keeps beside runs. Made by the first program that needs it, so that a store of
-- runs alone stays as it is. `service.version` is the layout of these tables.
CREATE TABLE service (
    key   TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- `content` is what the registered version says of itself: triggers, arguments, description.
CREATE TABLE workflows (
    n          INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT NOT NULL UNIQUE,
    path       TEXT NOT NULL,
    digest     BLOB NOT NULL,
    content    TEXT NOT NULL,
    by         TEXT,
    registered INTEGER NOT NULL,
    removed    INTEGER
) STRICT;

-- `decided`: every tick that was due until then has its entry, and no later one has. `next`: when
-- there is something to decide again.
CREATE TABLE schedules (
    n         INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow  INTEGER NOT NULL,
    name      TEXT NOT NULL,
    revision  INTEGER NOT NULL,
    spec      TEXT NOT NULL,
    decided   INTEGER NOT NULL,
    next      INTEGER,
    paused    INTEGER,
    paused_by TEXT,
    removed   INTEGER,
    UNIQUE (workflow, name)
) STRICT;
CREATE INDEX schedules_by_next ON schedules (next) WHERE removed IS NULL AND next IS NOT NULL;

-- The ledger. Neighbours that came to the same for the same reason are one row with a count.
CREATE TABLE ticks (
    n        INTEGER PRIMARY KEY AUTOINCREMENT,
    schedule INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    key      TEXT NOT NULL,
    due      INTEGER NOT NULL,
    count    INTEGER NOT NULL,
    last     INTEGER NOT NULL,
    state    TEXT NOT NULL,
    reason   TEXT,
    run      BLOB,
    at       INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX ticks_by_key ON ticks (schedule, revision, key);
CREATE INDEX ticks_by_due ON ticks (schedule, due);

-- Runs that are to begin. `run` is the id that the run will have, so it begins once whoever tries.
CREATE TABLE starts (
    n        INTEGER PRIMARY KEY AUTOINCREMENT,
    run      BLOB NOT NULL UNIQUE,
    workflow INTEGER NOT NULL,
    digest   BLOB NOT NULL,
    schedule INTEGER,
    cause    TEXT NOT NULL,
    detail   TEXT NOT NULL,
    args     TEXT NOT NULL,
    actor    TEXT,
    serial   INTEGER NOT NULL,
    state    TEXT NOT NULL,
    why      TEXT,
    cancel   TEXT,
    queued   INTEGER NOT NULL,
    ended    INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    server   TEXT,
    lease    INTEGER
) STRICT;
CREATE INDEX starts_by_state ON starts (state, workflow, n);
CREATE INDEX starts_by_schedule ON starts (schedule, state, n) WHERE schedule IS NOT NULL;

CREATE TABLE deliveries (
    n        INTEGER PRIMARY KEY AUTOINCREMENT,
    hook     TEXT NOT NULL,
    id       TEXT NOT NULL,
    digest   BLOB NOT NULL,
    headers  TEXT NOT NULL,
    body     BLOB,
    received INTEGER NOT NULL,
    run      BLOB
) STRICT;
CREATE UNIQUE INDEX deliveries_by_id ON deliveries (hook, id);
CREATE INDEX deliveries_by_digest ON deliveries (hook, digest);

-- Tokens, sessions and links, each known by the digest of its secret alone.
CREATE TABLE credentials (
    id      TEXT PRIMARY KEY,
    kind    TEXT NOT NULL,
    hash    BLOB NOT NULL UNIQUE,
    name    TEXT NOT NULL,
    role    TEXT NOT NULL,
    scope   TEXT,
    by      TEXT,
    created INTEGER NOT NULL,
    expires INTEGER,
    used    INTEGER,
    ended   INTEGER
) STRICT, WITHOUT ROWID;

-- Who did what to the service.
CREATE TABLE trail (
    n      INTEGER PRIMARY KEY AUTOINCREMENT,
    at     INTEGER NOT NULL,
    actor  TEXT,
    origin TEXT,
    verb   TEXT NOT NULL,
    object TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;

CREATE TABLE servers (
    id      TEXT PRIMARY KEY,
    pid     INTEGER NOT NULL,
    listen  TEXT NOT NULL,
    started INTEGER NOT NULL,
    heard   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
