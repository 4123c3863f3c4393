//! The output of a step as a file, which browsers never display, whatever its content.

use axum::body::Body;
use axum::http::{HeaderValue, header};
use lobster_runtime::store::RunStatus;
use lobster_serve::http::{App, Asked, Problem, RouteReply, run_of};

use crate::views;

/// Largest stream that is sent, in bytes; a terminal shows larger ones.
const MOST: u64 = 64 << 20;

pub(crate) fn show(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let id = run_of(app, asked)?;
    let (path, name) = (asked.query("path").unwrap_or_default(), asked.query("stream").unwrap_or("stdout"));
    let is_running = app.store.run(id)?.status == RunStatus::Running;
    let view = views::of_run(&app.store, id, is_running)?;
    let line = views::of_step(&app.store, id, (&view, path), is_running)?;
    let blob = line.and_then(|line| line.outcome).and_then(|outcome| match name {
        "stdout" => outcome.kept_stdout(),
        "stderr" => outcome.kept_stderr(),
        "output" => outcome.output,
        _ => None,
    });
    let Some(blob) = blob.filter(|blob| blob.len > 0) else {
        return Err(Problem::not_found(format!("run {} has no {name} of that step", id.short_id())));
    };
    let bytes = app.store.load_blob(&blob.digest, MOST)?;
    Ok(as_download("text/plain; charset=utf-8", &format!("{}-{name}.txt", id.short_id()), bytes))
}

/// A file that browsers save and do not show.
pub(super) fn as_download(content_type: &'static str, name: &str, bytes: impl Into<Body>) -> RouteReply {
    let file = format!("attachment; filename=\"{name}\"");
    let file = HeaderValue::from_str(&file).unwrap_or(HeaderValue::from_static("attachment"));
    let policy = HeaderValue::from_static("default-src 'none'; sandbox");
    RouteReply::bytes(content_type, bytes)
        .with_header(header::CONTENT_DISPOSITION, file)
        .with_header(header::CONTENT_SECURITY_POLICY, policy)
}
