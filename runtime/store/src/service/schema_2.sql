-- Version 2: runs that wait without a process, events, and what people are told.

-- What a parked run waits for, besides people. `due`: when it is taken up again; set to now by what it
-- waits for. The rows of a run are replaced as a whole and go when it is taken up.
CREATE TABLE waits (
    n     INTEGER PRIMARY KEY AUTOINCREMENT,
    run   BLOB NOT NULL,
    path  TEXT NOT NULL,
    due   INTEGER,
    event TEXT
) STRICT;
CREATE INDEX waits_by_run ON waits (run);
CREATE INDEX waits_by_due ON waits (due) WHERE due IS NOT NULL;
CREATE INDEX waits_by_event ON waits (event) WHERE event IS NOT NULL;

CREATE TABLE events (
    n    INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    data TEXT NOT NULL,
    at   INTEGER NOT NULL,
    by   TEXT
) STRICT;
CREATE INDEX events_by_name ON events (name, n);

-- Which place of which run has had which event: one event each, and each event once a run.
CREATE TABLE taken_events (
    run   BLOB NOT NULL,
    path  TEXT NOT NULL,
    event INTEGER NOT NULL,
    PRIMARY KEY (run, path),
    UNIQUE (run, event)
) STRICT, WITHOUT ROWID;

-- What somebody is told, once: `key` names the occasion and who is told. `due`: when it is tried (again).
CREATE TABLE notices (
    n        INTEGER PRIMARY KEY AUTOINCREMENT,
    key      TEXT NOT NULL UNIQUE,
    target   TEXT NOT NULL,
    kind     TEXT NOT NULL,
    run      BLOB,
    gate     TEXT,
    content  TEXT NOT NULL,
    state    TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    due      INTEGER,
    queued   INTEGER NOT NULL,
    ended    INTEGER,
    said     TEXT,
    open     INTEGER
) STRICT;
CREATE INDEX notices_by_due ON notices (due) WHERE due IS NOT NULL;
CREATE INDEX notices_by_run ON notices (run, kind);
-- Questions whose end those who were asked have not been told of.
CREATE INDEX notices_open ON notices (gate, target) WHERE open = 1;
CREATE INDEX IF NOT EXISTS starts_by_ended ON starts (ended) WHERE ended IS NOT NULL;

-- What watched files were like when a run was last started for them.
CREATE TABLE watched (
    key      TEXT PRIMARY KEY,
    revision INTEGER NOT NULL,
    state    TEXT NOT NULL
) STRICT, WITHOUT ROWID;
