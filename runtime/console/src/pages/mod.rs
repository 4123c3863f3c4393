//! The pages, in one file each.

pub(crate) mod audit;
pub(crate) mod bundle;
pub(crate) mod compare;
pub(crate) mod doctor;
pub(crate) mod editor;
pub(crate) mod fork;
pub(crate) mod login;
pub(crate) mod now;
pub(crate) mod output;
pub(crate) mod passkeys;
pub(crate) mod policy;
pub(crate) mod problem;
pub(crate) mod question;
pub(crate) mod run;
pub(crate) mod run_graph;
pub(crate) mod runs;
pub(crate) mod schedules;
pub(crate) mod step;
pub(crate) mod store;
pub(crate) mod workflow;
pub(crate) mod workflows;
