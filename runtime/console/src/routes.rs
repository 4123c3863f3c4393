//! The table of pages. It is served together with the API's table and by the same guard, and a test calls every page as
//! every kind of caller.

use lobster_serve::access::Verb;
use lobster_serve::http::{Access, App, Asked, Handler, Of, Problem, Reply, Route, Takes};

use crate::assets;
use crate::pages::{
    audit, bundle, compare, doctor, editor, fork, login, now, output, passkeys, policy, question, run, runs,
    schedules, step, store, workflow, workflows,
};

type Call = fn(&App, &Asked) -> Result<Reply, Problem>;

const LIST: Access = Access::To(Verb::Read, Of::List);
const ALL: Access = Access::To(Verb::Read, Of::Everything);
const RUN: Access = Access::To(Verb::Read, Of::Run);
const OPERATE_RUN: Access = Access::To(Verb::Operate, Of::Run);
const RERUN: Access = Access::To(Verb::Operate, Of::Rerun);
const WORKFLOW: Access = Access::To(Verb::Read, Of::Workflow);
const OPERATE: Access = Access::To(Verb::Operate, Of::Workflow);
const ADMINISTER: Access = Access::To(Verb::Administer, Of::Everything);
const AUTHOR: Access = Access::To(Verb::Register, Of::Workflow);

const fn page(path: &'static str, access: Access, summary: &'static str, call: Call) -> Route {
    Route {
        method: "GET",
        path,
        access,
        summary,
        takes: Takes::Nothing,
        query: &[],
        status: 200,
        handler: Handler::Call(call),
        is_page: true,
    }
}

const fn form(path: &'static str, access: Access, summary: &'static str, call: Call) -> Route {
    Route { method: "POST", takes: Takes::Form, ..page(path, access, summary, call) }
}

pub(crate) static ROUTES: &[Route] = &[
    page("/assets/{name}", Access::Open, "A style sheet, a script or a picture", assets::serve),
    page("/favicon.ico", Access::Open, "The picture of the console", assets::icon),
    page("/login", Access::Open, "The page of a one-time link", login::show),
    form("/login", Access::Open, "Opens a session", login::enter),
    form("/logout", LIST, "Ends the session", login::leave),
    page("/passkeys", LIST, "Your passkeys", passkeys::show),
    form("/passkeys/{passkey}/forget", LIST, "Removes one", passkeys::forget),
    page("/", LIST, "Open questions, running and failed runs, due ticks", now::show),
    page("/runs", LIST, "The runs", runs::show),
    page("/runs/{run}", RUN, "One run", run::show),
    page("/runs/{run}/step", RUN, "One step of a run", step::show),
    page("/runs/{run}/output", RUN, "Output of a step, as a file", output::show),
    page("/runs/{run}/compare", RUN, "Differences from an earlier run", compare::show),
    page("/runs/{run}/bundle", RUN, "The run as one file, without the results of its effects", bundle::show),
    form("/runs/{run}/cancel", OPERATE_RUN, "Cancels a run", run::cancel),
    form("/runs/{run}/resume", OPERATE_RUN, "Resumes a run", run::resume),
    form("/runs/{run}/replay", RERUN, "Replays a run, and shows differences", run::replay),
    page("/runs/{run}/fork", RERUN, "The choices of a fork", fork::show),
    form("/runs/{run}/fork", RERUN, "Shows what a fork would do, or starts it", fork::act),
    page("/questions/{approval}", Access::To(Verb::Read, Of::Gate), "One question", question::show),
    form("/questions/{approval}", Access::To(Verb::Answer, Of::Gate), "Answers a question", question::answer),
    page("/workflows", LIST, "The workflows", workflows::show),
    page("/workflows/{workflow}", WORKFLOW, "One workflow", workflow::show),
    form("/workflows/{workflow}/runs", OPERATE, "Starts a run", workflow::start),
    page("/workflows/{workflow}/edit", AUTHOR, "The text of a workflow", editor::show),
    form("/workflows/{workflow}/edit", AUTHOR, "Checks the text of a workflow, or saves it", editor::act),
    form("/workflows/{workflow}/register", AUTHOR, "Registers the current file", editor::register),
    page("/new", Access::To(Verb::Register, Of::List), "Opens the editor of a new workflow", editor::begin),
    page("/schedules", LIST, "The schedules and their ticks", schedules::show),
    form("/schedules/{workflow}/{schedule}/pause", OPERATE, "Pauses a schedule", schedules::pause),
    form("/schedules/{workflow}/{schedule}/resume", OPERATE, "Resumes a schedule", schedules::resume),
    page("/audit", ADMINISTER, "The audit trail", audit::show),
    page("/store", ALL, "The store's content", store::show),
    form("/store/verify", ADMINISTER, "Reads the whole store", store::verify),
    form("/store/collect", ADMINISTER, "Lists old runs, or removes them", store::collect),
    form("/store/backup", ADMINISTER, "Copies the store", store::backup),
    page("/doctor", ALL, "Checks of this server", doctor::show),
    page("/policy", ALL, "A policy's decision about a command", policy::show),
];
