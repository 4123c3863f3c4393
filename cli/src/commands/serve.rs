//! `lobster serve`

mod config;
mod credentials;
mod notices;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Subcommand;
use lobster_mcp::Front;
use lobster_runtime::cancel::CancelToken;
use lobster_runtime::quantity::{Bytes, Span};
use lobster_runtime::runtime::{PolicySources, Runtime};
use lobster_runtime::stage::Mode;
use lobster_runtime::store::Store;
use lobster_serve::http::Fronts;
use lobster_serve::net::{Tls, TlsFiles};
use lobster_serve::notify::NotifySettings;
use lobster_serve::server::{Server, ServerSettings, THREAD_KEEP_ALIVE};
use lobster_serve::workers::WorkerSettings;

use self::config::Config;
pub(super) use self::credentials::{login_link, next_page};
use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::render::print_to_stderr;
use crate::render::question;
use crate::stdout::stdout;

/// Starts runs when they are due, on webhooks and on request, and answers over HTTP.
///
/// Starts only registered workflows (`lobster schedule register`).
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  lobster serve --workflows ~/flows
  lobster serve --workflows ~/flows --open
  lobster serve token new --name ci --role operator --days 90
  lobster serve unit > ~/.config/systemd/user/lobster.service")]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Option<Task>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Creates, lists and revokes the tokens of programs.
    Token {
        #[command(subcommand)]
        task: credentials::TokenTask,
    },
    /// Prints a link that opens one session in a browser. It is valid for a minute.
    Link(credentials::LinkArgs),
    /// Lists notifications: sent, pending and failed.
    Notices {
        /// The most notifications to list, the newest first.
        #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
        count: usize,
        /// Prints a JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Prints a systemd unit for this program and this directory.
    Unit {
        /// The directory of the workflows.
        #[arg(long, value_name = "DIR")]
        workflows: Option<PathBuf>,
    },
}

#[derive(Debug, clap::Args)]
#[group(skip)]
struct Serve {
    /// The address and port (default: 127.0.0.1:7410, or `listen` of --config).
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// A directory with workflow files; may be repeated.
    #[arg(long, value_name = "DIR")]
    workflows: Vec<PathBuf>,
    /// A TOML file with these options as settings.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A host name of this server. Requests for other hosts are refused.
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Trusts a proxy in front that has TLS and passes the host name on. Addresses other than loopback need
    /// this or --tls-cert.
    #[arg(long)]
    behind_proxy: bool,
    /// The server's certificate followed by its intermediate certificates, in PEM; read again when it
    /// changes.
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate, in PEM.
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// The most runs at once (4).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    max_runs: Option<u64>,
    /// Stops a run whose process has worked for longer: 30m, 6h.
    #[arg(long, value_name = "TIME")]
    max_time: Option<Span>,
    /// Stops a run whose processes together use more memory: 512MiB, 4GiB.
    #[arg(long, value_name = "SIZE")]
    max_memory: Option<Bytes>,
    /// Stops a run whose processes have used more processor time.
    #[arg(long, value_name = "TIME")]
    max_cpu: Option<Span>,
    /// The time that a stopping server waits for its runs (20s). Runs that are left continue without it.
    #[arg(long, value_name = "TIME")]
    stop_after: Option<Span>,
    /// Registers the workflows in the directories, and their later changes. Everyone who can write
    /// there decides what runs.
    #[arg(long)]
    trust: bool,
    /// Opens the console as an admin, like `lobster console`.
    #[arg(long)]
    open: bool,
}

/// The default address.
const LISTEN: &str = "127.0.0.1:7410";

const MAX_RUNS: usize = 4;

const STOP_AFTER: Duration = Duration::from_secs(20);

pub(crate) fn run(args: &Args) -> CommandResult {
    prepare::refuse_inside_a_run("serve")?;
    match &args.task {
        None => run_server(&args.serve),
        Some(Task::Token { task }) => credentials::run_token_task(task),
        Some(Task::Link(args)) => credentials::create_link(args),
        Some(Task::Notices { count, json }) => notices::list(*count, *json),
        Some(Task::Unit { workflows }) => print_unit(workflows.as_deref()),
    }
}

fn run_server(args: &Serve) -> CommandResult {
    let mut config = args.config.as_deref().map(Config::read).transpose()?.unwrap_or_default();
    let mut settings = settings_of(args, &config)?;
    settings.proxy = config.proxy.take().map(config::Proxy::into_settings).transpose()?;
    let runtime = || -> Result<Runtime, CommandError> {
        let mut settings = prepare::settings_under(Mode::Tool, &PolicySources::default())?;
        settings.notes = Box::new(|line| tracing::warn!("{line}"));
        Ok(Runtime::new(settings)?)
    };
    let runtimes = (runtime()?, runtime()?);
    let agents = Front::new(&runtimes.0, print_to_stderr)?;
    let cancel = runtimes.0.cancel().clone();
    let store = runtimes.0.store()?;
    let budget = config.budget.as_ref().map(config::ServerBudget::limit_terms);
    store.set_service_budget(budget)?;
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .thread_keep_alive(THREAD_KEEP_ALIVE)
        .build()
        .map_err(|error| CommandError::failed(format!("no thread can be started: {error}")))?;
    tokio.block_on(serve_requests(args, settings, store, (runtimes, agents), cancel))
}

async fn serve_requests(
    args: &Serve,
    settings: ServerSettings,
    store: Store,
    (runtimes, agents): ((Runtime, Runtime), Front),
    cancel: CancelToken,
) -> CommandResult {
    let failed = |error: lobster_serve::server::ServerError| CommandError::failed(error.to_string());
    let has_folders = !settings.folders.is_empty();
    let scheme = if settings.tls.is_some() { "https" } else { "http" };
    let server = Server::bind(settings, store.clone()).await.map_err(failed)?;
    let address = server.address();
    let url = server.public_url();
    let listens = format!("{scheme}://{address}");
    print_to_stderr(&format!("lobster serve listens on {listens}"));
    if url != listens {
        print_to_stderr(&format!("people reach it at {url}"));
    }
    if args.open {
        let url = login_link(&runtimes.0, &url)?;
        print_to_stderr(&format!("log in within a minute, once: {url}"));
        super::console::open_browser(&store, &url);
    }
    if !has_folders && store.service()?.list_workflows()?.is_empty() {
        print_to_stderr("no workflow is registered: --workflows DIR, or `lobster schedule register FILE`");
    }
    let fronts = Fronts {
        pages: Some(&lobster_console::PAGES),
        agents: Some(Arc::new(agents)),
        question: Some(question::whole_text),
    };
    let left = server.run_until(runtimes, fronts, cancel.cancelled()).await.map_err(failed)?;
    if !left.is_empty() {
        let runs: Vec<_> = left.iter().map(|run| run.short_id()).collect();
        print_to_stderr(&format!("still running, and continuing without it: {}", runs.join(", ")));
    }
    Ok(Exit::OK)
}

fn settings_of(args: &Serve, config: &Config) -> Result<ServerSettings, CommandError> {
    let listen = match (args.listen, &config.listen) {
        (Some(listen), _) => listen,
        (None, Some(text)) => {
            text.parse().map_err(|_| CommandError::usage(format!("listen = {text:?} is not ADDRESS:PORT")))?
        }
        (None, None) => LISTEN.parse().map_err(CommandError::failed)?,
    };
    let behind_proxy = args.behind_proxy || config.behind_proxy;
    let hosts: Vec<String> = args.allow_host.iter().chain(&config.allow_host).cloned().collect();
    if config.proxy.is_some() && hosts.is_empty() {
        return Err(CommandError::usage(
            "[proxy] needs the name that clients call: --allow-host NAME, or allow_host = [\"NAME\"] in the file",
        ));
    }
    let tls = tls_of(args, config)?;
    if !listen.ip().is_loopback() && ((!behind_proxy && tls.is_none()) || hosts.is_empty()) {
        return Err(CommandError::usage(format!(
            "{listen} can be reached by others, so it needs TLS and the name that clients call: --tls-cert FILE \
             --tls-key FILE --allow-host NAME; or a proxy with TLS in front of it: --behind-proxy --allow-host NAME"
        )));
    }
    let dirs: Vec<&PathBuf> = args.workflows.iter().chain(&config.workflows).collect();
    let folders = dirs.into_iter().map(|dir| resolve_folder(dir)).collect::<Result<_, _>>()?;
    let program = lobster_serve::program::own_path()
        .map_err(|error| CommandError::failed(format!("this program cannot be found again: {error}")))?;
    let max_runs = args.max_runs.or(config.max_runs).map(usize::try_from);
    let max_time = args.max_time.or(config.parse_duration("max_time", config.max_time.as_deref())?);
    let max_memory = args.max_memory.or(config.parse_size("max_memory", config.max_memory.as_deref())?);
    let max_cpu = args.max_cpu.or(config.parse_duration("max_cpu", config.max_cpu.as_deref())?);
    let nothing = [
        ("max-time", max_time.is_some_and(|most| most.0.is_zero())),
        ("max-memory", max_memory.is_some_and(|most| most.0 == 0)),
        ("max-cpu", max_cpu.is_some_and(|most| most.0.is_zero())),
    ];
    if let Some((name, _)) = nothing.into_iter().find(|(_, is_nothing)| *is_nothing) {
        return Err(CommandError::usage(format!("{name} must be more than 0: no run would get anywhere")));
    }
    let trusted_by = super::schedule::current_actor().unwrap_or_else(|| "the operator".to_owned());
    Ok(ServerSettings {
        listen,
        hosts,
        folders,
        trusted_by: (args.trust || config.trust).then_some(trusted_by),
        workers: WorkerSettings {
            program,
            env: Vec::new(),
            max_runs: max_runs.and_then(Result::ok).unwrap_or(MAX_RUNS),
            max_time: max_time.map(|span| span.0),
            max_memory: max_memory.map(|size| size.0),
            max_cpu: max_cpu.map(|span| span.0),
            stop_after: args
                .stop_after
                .or(config.parse_duration("stop_after", config.stop_after.as_deref())?)
                .map_or(STOP_AFTER, |span| span.0),
        },
        is_behind_proxy: behind_proxy,
        tls,
        proxy: None,
        confirms_by_passkey: config.confirm.is_some(),
        notify: NotifySettings { url: config.url.clone(), targets: config.notify.clone() },
    })
}

/// The certificate named by options or by the file.
fn tls_of(args: &Serve, config: &Config) -> Result<Option<Tls>, CommandError> {
    let certificate = args.tls_cert.as_ref().or(config.tls_cert.as_ref());
    let key = args.tls_key.as_ref().or(config.tls_key.as_ref());
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => {
            let names = args.allow_host.iter().chain(&config.allow_host).cloned().collect();
            let files = TlsFiles { certificate: certificate.clone(), key: key.clone(), names };
            Tls::load(files).map(Some).map_err(|why| CommandError::usage(format!("TLS: {why}")))
        }
        (Some(_), None) | (None, Some(_)) => {
            Err(CommandError::usage("a certificate and its key go together: --tls-cert FILE --tls-key FILE"))
        }
    }
}

fn resolve_folder(dir: &Path) -> Result<PathBuf, CommandError> {
    let real = dir.canonicalize().ok().filter(|dir| dir.is_dir());
    real.ok_or_else(|| CommandError::usage(format!("{} is not a directory", dir.display())))
}

/// A unit for systemd: stopping it stops only the server; its runs end only with the machine.
fn print_unit(workflows: Option<&Path>) -> CommandResult {
    let program = std::env::current_exe()
        .map_err(|error| CommandError::failed(format!("this program cannot be found again: {error}")))?;
    let folder = workflows.map(resolve_folder).transpose()?;
    let folder = folder
        .map(|dir| format!(" --workflows {}", quote_word(&dir.display().to_string())))
        .unwrap_or_default();
    let state = prepare::runtime(Mode::Tool)?.state_dir().display().to_string();
    let unit = format!(
        "[Unit]
Description=lobster serve: scheduling, webhooks and console
After=network.target

[Service]
ExecStart={program} serve{folder}
Environment={state}
Restart=on-failure
RestartSec=2
# Runs are separate processes: they continue while the server restarts.
KillMode=process
TimeoutStopSec=40
SuccessExitStatus=143
UMask=0077

[Install]
WantedBy=default.target
",
        program = quote_word(&program.display().to_string()),
        state = quote_word(&format!("LOBSTER_STATE_DIR={state}")),
    );
    std::io::Write::write_all(&mut stdout(), unit.as_bytes())?;
    Ok(Exit::OK)
}

/// A word quoted for systemd.
fn quote_word(word: &str) -> String {
    let word = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    format!("\"{word}\"")
}
