//! One module per kind of step; `stages/` has one file per pipeline command.

pub mod stages;
