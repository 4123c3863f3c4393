//! The files that pages refer to. They are part of the program, and their addresses contain a digest, so browsers
//! request each of them once.

use std::sync::LazyLock;

use axum::http::{HeaderValue, header};
use lobster_runtime::digest::Digest;
use lobster_serve::http::{App, Asked, Problem, RouteReply};

const STYLE: &str = include_str!("assets/console.css");
const SCRIPT: &str = include_str!("assets/console.js");
const EDITOR: &str = include_str!("assets/editor.js");
const PASSKEY: &str = include_str!("assets/passkey.js");
const ICON: &str = include_str!("assets/icon.svg");

static VERSION: LazyLock<String> = LazyLock::new(|| {
    Digest::of_bytes(format!("{STYLE}{SCRIPT}{EDITOR}{PASSKEY}").as_bytes()).to_string()[..12].to_owned()
});

/// The address of a file of this version.
pub(crate) fn url_of(name: &str) -> String {
    format!("/assets/{name}?{}", *VERSION)
}

pub(crate) fn serve_file(_: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let (content_type, text) = match asked.param("name") {
        "console.css" => ("text/css; charset=utf-8", STYLE),
        "console.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "editor.js" => ("text/javascript; charset=utf-8", EDITOR),
        "passkey.js" => ("text/javascript; charset=utf-8", PASSKEY),
        "icon.svg" => ("image/svg+xml", ICON),
        other => return Err(Problem::not_found(format!("the console has no file {other:?}"))),
    };
    let kept = HeaderValue::from_static("public, max-age=31536000, immutable");
    Ok(RouteReply::bytes(content_type, text).with_header(header::CACHE_CONTROL, kept))
}

pub(crate) fn serve_icon(_: &App, _: &Asked) -> Result<RouteReply, Problem> {
    let kept = HeaderValue::from_static("public, max-age=86400");
    Ok(RouteReply::bytes("image/svg+xml", ICON).with_header(header::CACHE_CONTROL, kept))
}
