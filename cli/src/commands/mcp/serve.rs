//! `lobster mcp` itself

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use lobster_runtime::policy::{Layer, LayerText, Policy, Profile};
use lobster_runtime::runtime::{PolicyFileUsed, PolicySources, Settings};
use lobster_runtime::stage::Mode;

use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::render::print_to_stderr;
use lobster_mcp::Approvals;
use lobster_mcp::http::{ClientToken, ListenPlace};

/// The options of the server.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// A directory whose workflow files become tools; may be repeated.
    #[arg(long, value_name = "DIR")]
    workflows: Vec<PathBuf>,
    /// A directory whose components (.wasm) become tools, without any grant; may be repeated.
    #[arg(long, value_name = "DIR")]
    components: Vec<PathBuf>,
    /// A policy for native commands. It can make `LOBSTER_POLICY` stricter, never looser.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The treatment of commands that no rule covers; `open` runs everything except hard blocks.
    #[arg(long, value_name = "PROFILE", value_enum)]
    profile: Option<ProfileName>,
    /// The way in which the questions of a run are answered.
    #[arg(long, value_name = "WHO", value_enum, default_value = "elicit")]
    approvals: Approvals,
    /// Offers only the tools of the directories, none that runs what an agent writes.
    #[arg(long)]
    no_run: bool,
    /// A pipeline command that agents may use although the policy does not judge what it does.
    #[arg(long, value_name = "COMMAND")]
    allow: Vec<String>,
    /// The directory that calls cannot leave (default: the working directory).
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// The time limit of calls that do not name one, in milliseconds.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(200..))]
    timeout_ms: Option<u64>,
    /// Serves over streamable HTTP, at /mcp of this address.
    #[arg(long, value_name = "ADDRESS:PORT", group = "over_http")]
    http: Option<SocketAddr>,
    /// Serves over HTTP on this socket file, which only your user can connect to.
    #[arg(long, value_name = "PATH", group = "over_http")]
    socket: Option<PathBuf>,
    /// The file with the bearer token of HTTP clients (or `LOBSTER_MCP_TOKEN`), or with a line `NAME TOKEN`
    /// for each client. On a loopback address, a missing token is generated and printed; other addresses
    /// require yours.
    #[arg(long, value_name = "FILE", requires = "over_http")]
    token_file: Option<PathBuf>,
    /// Accepts every client that can connect: every user and every program of this machine.
    #[arg(long, requires = "http", conflicts_with = "token_file")]
    no_token: bool,
    /// A host name of this server. Requests for other hosts are refused.
    #[arg(long, value_name = "NAME", requires = "over_http")]
    allow_host: Vec<String>,
    /// An origin of web pages that may call this server (`https://app.example:443`).
    #[arg(long, value_name = "ORIGIN", requires = "over_http")]
    allow_origin: Vec<String>,
    /// Ends an HTTP session, and everything that it started, after this long without a request or a
    /// connection (300).
    #[arg(long, value_name = "SECONDS", requires = "over_http", value_parser = clap::value_parser!(u64).range(1..))]
    session_idle: Option<u64>,
    /// Lets agents see and answer runs that others started.
    #[arg(long)]
    all_runs: bool,
}

/// Options with paths.
const PATHS: &[&str] = &["--workflows", "--components", "--policy", "--root"];

/// The options with absolute paths, so that a client that uses stdin and stdout can start the server
/// from any directory.
pub(super) fn absolute_words(words: &[String]) -> Result<Vec<String>, CommandError> {
    #[derive(clap::Parser)]
    #[command(no_binary_name = true, name = "lobster mcp", disable_help_flag = true)]
    struct Alone {
        #[command(flatten)]
        args: Args,
    }
    let parsed = <Alone as clap::Parser>::try_parse_from(words).map_err(|error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        CommandError::usage(format!("the words after `--` are not options of `lobster mcp`: {first}"))
    })?;
    if parsed.args.http.is_some() || parsed.args.socket.is_some() {
        return Err(CommandError::usage(
            "the client starts this server and speaks on its stdin and stdout; leave --http and --socket out",
        ));
    }
    let absolute = |path: &str| -> Result<String, CommandError> {
        let path = std::path::absolute(path)?;
        // A missing file is reported now, not when an agent calls.
        path.metadata().map_err(|error| CommandError::usage(format!("{}: {error}", path.display())))?;
        Ok(path.to_string_lossy().into_owned())
    };
    let mut is_path = false;
    let mut whole = Vec::with_capacity(words.len());
    for word in words {
        let inline = word.split_once('=').filter(|(name, _)| PATHS.contains(name));
        whole.push(match inline {
            Some((name, path)) => format!("{name}={}", absolute(path)?),
            None if is_path => absolute(word)?,
            None => word.clone(),
        });
        is_path = !is_path && PATHS.contains(&word.as_str());
    }
    Ok(whole)
}

/// The profiles of a policy, and `open` for no policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ProfileName {
    /// Everything runs except hard blocks; only without a policy.
    Open,
    /// Reads run, everything else asks.
    Default,
    /// Reads run, everything else is denied.
    Readonly,
    /// Only the exact commands of the policy's `[locked]` run.
    Locked,
}

impl ProfileName {
    fn to_profile(self) -> Option<Profile> {
        match self {
            Self::Open => None,
            Self::Default => Some(Profile::Default),
            Self::Readonly => Some(Profile::ReadOnly),
            Self::Locked => Some(Profile::Locked),
        }
    }
}

/// The default policy for agents.
const CAREFUL: &str = "version = 1\nextends = [\"builtin:readonly-catalog@1\"]\n";

pub(super) fn run(args: &Args) -> CommandResult {
    let http = http_options(args)?;
    let folder = |dir: &PathBuf| {
        let real = dir.canonicalize().ok().filter(|dir| dir.is_dir());
        real.ok_or_else(|| CommandError::usage(format!("{} is not a folder", dir.display())))
    };
    let workflows = args.workflows.iter().map(folder).collect::<Result<Vec<_>, _>>()?;
    let components = args.components.iter().map(folder).collect::<Result<Vec<_>, _>>()?;
    let root = folder(&args.root.clone().unwrap_or_else(|| PathBuf::from(".")))?;
    let policies = PolicySources { place: Some(&root), run: args.policy.as_deref() };
    let mut settings = prepare::settings_under(Mode::Tool, &policies)?;
    apply_profile(&mut settings, args.profile)?;
    // Steps of agents must not change the files that the operator serves.
    settings
        .policy_files
        .extend(workflows.iter().chain(&components).map(|dir| PolicyFileUsed::from_directory(dir)));
    let runtime = lobster_runtime::runtime::Runtime::new(settings)?;
    for name in &args.allow {
        if runtime.registry().get(name).is_none() {
            return Err(CommandError::usage(format!("--allow {name}: there is no such pipeline command")));
        }
    }
    let options = lobster_mcp::Options {
        workflows,
        components,
        run: !args.no_run,
        allowed: args.allow.clone(),
        root,
        approvals: args.approvals,
        timeout: args.timeout_ms.map(Duration::from_millis),
        all_runs: args.all_runs,
        say: print_to_stderr,
    };
    lobster_mcp::serve(runtime, options, http)?;
    Ok(Exit::OK)
}

/// The HTTP address or socket of the server; `None` for stdin and stdout.
fn http_options(args: &Args) -> Result<Option<lobster_mcp::http::Options>, CommandError> {
    let place = match (args.http, &args.socket) {
        (Some(address), _) => ListenPlace::Port(address),
        (None, Some(path)) => ListenPlace::Socket(path.clone()),
        (None, None) => return Ok(None),
    };
    let token = match &args.token_file {
        Some(file) => Some(
            std::fs::read_to_string(file)
                .map_err(|error| CommandError::usage(format!("--token-file {}: {error}", file.display())))?,
        ),
        None => std::env::var("LOBSTER_MCP_TOKEN").ok().filter(|_| !args.no_token),
    };
    let given = token.map(|token| token.trim().to_owned());
    if args.token_file.is_some() && given.as_deref() == Some("") {
        return Err(CommandError::usage("--token-file: the file is empty"));
    }
    let token = match given.filter(|token| !token.is_empty()) {
        Some(text) => ClientToken::read_given(&text).map_err(|why| {
            let file = args.token_file.as_ref().map(|file| format!("--token-file {}", file.display()));
            CommandError::usage(format!("{}: {why}", file.as_deref().unwrap_or("LOBSTER_MCP_TOKEN")))
        })?,
        // The kernel identifies the user who connects to a socket file.
        None if args.no_token || args.socket.is_some() => ClientToken::Off,
        None => ClientToken::make_random()?,
    };
    let options = lobster_mcp::http::Options {
        place,
        token,
        hosts: args.allow_host.clone(),
        origins: args.allow_origin.clone(),
        idle: args.session_idle.map_or(lobster_mcp::http::SESSION_IDLE, Duration::from_secs),
    };
    options.check_exposure()?;
    Ok(Some(options))
}

/// Applies the careful policy if there is no other, and the requested profile.
fn apply_profile(settings: &mut Settings, wanted: Option<ProfileName>) -> Result<(), CommandError> {
    let given = !settings.policy.is_open();
    if wanted == Some(ProfileName::Open) {
        if given {
            return Err(CommandError::usage("--profile open cannot undo the policy that is given"));
        }
        return Ok(());
    }
    if !given {
        let layer = LayerText {
            layer: Layer::Run,
            origin: "lobster mcp's own policy".to_owned(),
            text: CAREFUL.to_owned(),
        };
        settings.policy =
            Policy::load_layers(&[layer]).map_err(|error| CommandError::failed(error.to_string()))?;
    }
    if let Some(profile) = wanted.and_then(ProfileName::to_profile) {
        if given && freedom_rank(profile) > freedom_rank(settings.policy.file().profile) {
            return Err(CommandError::usage("--profile cannot be freer than the policy that is given"));
        }
        settings.policy = settings.policy.with_profile(profile);
    }
    Ok(())
}

fn freedom_rank(profile: Profile) -> u8 {
    match profile {
        Profile::Locked => 0,
        Profile::ReadOnly => 1,
        Profile::Default => 2,
    }
}
