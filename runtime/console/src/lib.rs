//! The pages of the service: what waits for a person, what runs, what happened and why.
//!
//! Pages are made here from what the store holds, for reading and answering without any script; the one
//! script of ours follows the record and finds things. Every page goes through the guard and the table of
//! roles of the service. What a run says is text: it is escaped, and what cannot be seen in it is named.
//! Nothing here decides or executes anything; a button has a process of lobster do it, as the API does.

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
