//! The table of pages. It is served together with the API's table and by the same guard, and a test calls every page as
//! every kind of caller.

use lobster_serve::access::Verb;
use lobster_serve::http::{Access, App, Asked, Handler, Of, Problem, Route, RouteReply, Takes};

use crate::assets;
use crate::pages::{
    audit, bundle, compare, doctor, editor, fork, login, now, output, passkeys, policy, question, run, runs,
    schedules, step, store, workflow, workflows,
};

type Call = fn(&App, &Asked) -> Result<RouteReply, Problem>;

const LIST: Access = Access::To(Verb::Read, Of::List);
const ALL: Access = Access::To(Verb::Read, Of::Everything);
const RUN: Access = Access::To(Verb::Read, Of::Run);
const OPERATE_RUN: Access = Access::To(Verb::Operate, Of::Run);
const RERUN: Access = Access::To(Verb::Operate, Of::Rerun);
const WORKFLOW: Access = Access::To(Verb::Read, Of::Workflow);
const OPERATE: Access = Access::To(Verb::Operate, Of::Workflow);
const ADMINISTER: Access = Access::To(Verb::Administer, Of::Everything);
const AUTHOR: Access = Access::To(Verb::Register, Of::Workflow);

const fn page_route(path: &'static str, access: Access, summary: &'static str, call: Call) -> Route {
    Route { is_page: true, ..Route::new("GET", path, access, summary, Handler::Call(call)) }
}

const fn form_route(path: &'static str, access: Access, summary: &'static str, call: Call) -> Route {
    Route { method: "POST", takes: Takes::Form, ..page_route(path, access, summary, call) }
}

pub(crate) static ROUTES: &[Route] = &[
    page_route("/assets/{name}", Access::Open, "A style sheet, a script or a picture", assets::serve_file),
    page_route("/favicon.ico", Access::Open, "The picture of the console", assets::serve_icon),
    page_route("/login", Access::Open, "The page of a one-time link", login::show),
    form_route("/login", Access::Open, "Opens a session", login::open_session),
    form_route("/logout", LIST, "Ends the session", login::end_session),
    page_route("/passkeys", LIST, "Your passkeys", passkeys::show),
    form_route("/passkeys/{passkey}/forget", LIST, "Removes one", passkeys::forget),
    page_route("/", LIST, "Open questions, running and failed runs, due ticks", now::show),
    page_route("/runs", LIST, "The runs", runs::show),
    page_route("/runs/{run}", RUN, "One run", run::show),
    page_route("/runs/{run}/step", RUN, "One step of a run", step::show),
    page_route("/runs/{run}/output", RUN, "Output of a step, as a file", output::show),
    page_route("/runs/{run}/compare", RUN, "Differences from an earlier run", compare::show),
    page_route(
        "/runs/{run}/bundle",
        RUN,
        "The run as one file, without the results of its effects",
        bundle::show,
    ),
    form_route("/runs/{run}/cancel", OPERATE_RUN, "Cancels a run", run::cancel),
    form_route("/runs/{run}/resume", OPERATE_RUN, "Resumes a run", run::resume),
    form_route("/runs/{run}/replay", RERUN, "Replays a run, and shows differences", run::replay),
    page_route("/runs/{run}/fork", RERUN, "The choices of a fork", fork::show),
    form_route("/runs/{run}/fork", RERUN, "Shows what a fork would do, or starts it", fork::plan_or_start),
    page_route("/questions/{approval}", Access::To(Verb::Read, Of::Gate), "One question", question::show),
    form_route(
        "/questions/{approval}",
        Access::To(Verb::Answer, Of::Gate),
        "Answers a question",
        question::answer,
    ),
    page_route("/workflows", LIST, "The workflows", workflows::show),
    page_route("/workflows/{workflow}", WORKFLOW, "One workflow", workflow::show),
    form_route("/workflows/{workflow}/runs", OPERATE, "Starts a run", workflow::start),
    page_route("/workflows/{workflow}/edit", AUTHOR, "The text of a workflow", editor::show),
    form_route(
        "/workflows/{workflow}/edit",
        AUTHOR,
        "Checks the text of a workflow, or saves it",
        editor::check_or_save,
    ),
    form_route("/workflows/{workflow}/register", AUTHOR, "Registers the current file", editor::register),
    page_route(
        "/new",
        Access::To(Verb::Register, Of::List),
        "Opens the editor of a new workflow",
        editor::redirect_to_editor,
    ),
    page_route("/schedules", LIST, "The schedules and their ticks", schedules::show),
    form_route("/schedules/{workflow}/{schedule}/pause", OPERATE, "Pauses a schedule", schedules::pause),
    form_route("/schedules/{workflow}/{schedule}/resume", OPERATE, "Resumes a schedule", schedules::resume),
    page_route("/audit", ADMINISTER, "The audit trail", audit::show),
    page_route("/store", ALL, "The store's content", store::show),
    form_route("/store/verify", ADMINISTER, "Reads the whole store", store::verify),
    form_route("/store/collect", ADMINISTER, "Lists old runs, or removes them", store::collect),
    form_route("/store/backup", ADMINISTER, "Copies the store", store::backup),
    page_route("/doctor", ALL, "Checks of this server", doctor::show),
    page_route("/policy", ALL, "A policy's decision about a command", policy::show),
];
