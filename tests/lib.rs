//! Drives the real `lobster` binary as a user would.
