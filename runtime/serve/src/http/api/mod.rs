//! The handlers of the routes, in one module per kind of object.

pub(super) mod access;
pub(super) mod events;
pub(super) mod gates;
pub(super) mod runs;
pub(super) mod schedules;
pub(super) mod state;
pub(super) mod workflows;

use super::{App, Asked, Problem, RouteReply};
