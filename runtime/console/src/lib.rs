//! The pages of the service: open questions, running work, and the history with its reasons.
//!
//! Pages are made from the store and can be read and answered without scripts. The console's own script only follows
//! the record and searches pages. Every page passes the service's guard and its table of roles. Text from runs is
//! escaped, and its invisible characters are made visible. Pages decide and execute nothing; a button starts a process
//! of lobster, as the API does.

mod assets;
mod cache;
mod chart;
mod diff;
mod fields;
mod pages;
mod routes;
mod shell;
mod views;
mod words;

use lobster_serve::http::Pages;

/// The pages, for a server.
pub static PAGES: Pages = Pages { routes: routes::ROUTES, problem: pages::problem::show };
