//! `lobster console`

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use lobster_runtime::stage::Mode;
use lobster_runtime::store::Store;

use super::serve::{login_link, next_page};
use crate::console_link::server_url;
use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::render::print_to_stderr;
use crate::stdout::print_line;
use crate::which;

/// Opens the console of a server, at a run or at the first page.
///
/// Prints a link that logs you in once, within a minute, and opens it in a browser if there is a desktop.
/// Needs a running `lobster serve` on this store.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster console                          the first page
  lobster console @                        the last run
  lobster console --no-browser")]
pub(crate) struct Args {
    /// The run: an id, @ (the last), @- (the one before) or NAME@- (the last of NAME).
    run: Option<String>,
    /// Opens no browser.
    #[arg(long)]
    no_browser: bool,
    /// The address at which the browser reaches the server, if not the server's own.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    prepare::refuse_inside_a_run("open the console")?;
    let runtime = prepare::runtime(Mode::Human)?;
    let store = runtime.store()?;
    let page = match &args.run {
        Some(run) => {
            // A queued run has a page as well.
            let queued = || which::find_unbegun(&store, run).map(|found| found.start.run);
            format!("/runs/{}", which::run(&store, run).or_else(|error| queued().ok_or(error))?)
        }
        None => "/".to_owned(),
    };
    let url = match &args.url {
        Some(url) => url.clone(),
        None => server_of(&store)?,
    };
    let link = next_page(&login_link(&runtime, &url)?, &page);
    print_line(&link);
    if !args.no_browser {
        open_browser(&store, &link);
    }
    Ok(Exit::OK)
}

/// The address of a running server of this store.
fn server_of(store: &Store) -> Result<String, CommandError> {
    server_url(store)?.ok_or_else(|| {
        CommandError::usage(
            "no server is running on this store; `lobster serve --workflows DIR --open` starts one and opens the console",
        )
    })
}

/// Opens a link that logs in, if there is a desktop. Failures are not detected: the person sees the result.
pub(super) fn open_browser(store: &Store, link: &str) {
    let Some(program) = find_browser() else { return };
    // Every user of the machine can read the arguments of a process, so the link goes through a private file.
    let Some(page) = page_that_leads_to(store.dir(), link) else { return };
    let started = Command::new(program)
        .arg(&page)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if started.is_err() {
        print_to_stderr("no browser could be started; open the link yourself");
    }
}

/// The program that opens pages here, if there is a desktop.
fn find_browser() -> Option<String> {
    let has = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if let Ok(browser) = std::env::var("BROWSER")
        && !browser.is_empty()
    {
        return Some(browser);
    }
    if cfg!(target_os = "macos") {
        return Some("open".to_owned());
    }
    (has("DISPLAY") || has("WAYLAND_DISPLAY")).then(|| "xdg-open".to_owned())
}

fn page_that_leads_to(dir: &Path, link: &str) -> Option<std::path::PathBuf> {
    let path = dir.join("console.html");
    let mut file = tempfile::Builder::new().prefix(".console").tempfile_in(dir).ok()?;
    let link = link.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
    write!(
        file,
        "<!doctype html><meta http-equiv=\"refresh\" content=\"0; url={link}\"><title>lobster</title>"
    )
    .ok()?;
    file.persist(&path).ok()?;
    Some(path)
}
