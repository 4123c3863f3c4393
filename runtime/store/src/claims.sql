-- Who executes which run: `n` of the newest claim. A number is never given twice.
CREATE TABLE claims (
    n   INTEGER PRIMARY KEY AUTOINCREMENT,
    run BLOB NOT NULL UNIQUE
) STRICT;
