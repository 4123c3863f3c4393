//! What the routes do, a module for each kind of thing.

pub(super) mod access;
pub(super) mod events;
pub(super) mod gates;
pub(super) mod runs;
pub(super) mod schedules;
pub(super) mod state;
pub(super) mod workflows;

use super::{App, Asked, Problem, Reply};
