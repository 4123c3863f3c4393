//! Nothing: the tests of the real binary are in `main.rs`.
