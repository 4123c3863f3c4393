-- What model calls of a day (its number since 1970, UTC) have used, by whose budget they were compared with.
-- `max_*`: the limits of the last comparison.
CREATE TABLE spent (
    key          TEXT NOT NULL,
    day          INTEGER NOT NULL,
    calls        INTEGER NOT NULL,
    tokens       INTEGER NOT NULL,
    nano_usd     INTEGER NOT NULL,
    max_calls    INTEGER,
    max_tokens   INTEGER,
    max_nano_usd INTEGER,
    PRIMARY KEY (key, day)
) STRICT, WITHOUT ROWID;

-- The budget of a day of all that the service runs: one row, or none.
CREATE TABLE service_budget (
    max_calls       INTEGER,
    max_tokens      INTEGER,
    max_nano_usd    INTEGER,
    allows_unpriced INTEGER NOT NULL
) STRICT;
