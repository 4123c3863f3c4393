//! One server: a thread that decides schedules, one that gives starts to workers, one that watches folders, and the
//! HTTP side. They share no state directly: they communicate through the store.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use lobster_runtime::runtime::Runtime;
use lobster_runtime::store::{RunId, Store, StoreError};
use tokio::net::TcpListener;

use crate::folders::Folders;
use crate::http::{App, Changes, Failures, Fronts, Hosts, NamedByProxy, Reached, build_router, is_own_name};
use crate::net::{self, Port, SocketListener, Tls};
use crate::notify::{NotifySettings, Teller, listen_for_answers};
use crate::passkeys::Challenges;
use crate::rate::Rates;
use crate::readiness::Readiness;
use crate::schedule::Scheduler;
use crate::tidings::Tidings;
use crate::watch::{self, Watcher};
use crate::workers::{Dispatcher, Waker, WorkerSettings};
use crate::workflow_files::WorkflowFiles;

/// Interval at which schedules are checked even if none is due: the clock or a schedule may have changed.
const LOOK: Duration = Duration::from_millis(250);

/// Delay before the next check after a failure of the store.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// Settings of a server.
pub struct ServerSettings {
    pub listen: SocketAddr,
    /// Names of the server, in addition to its address.
    pub hosts: Vec<String>,
    /// Watched folders of workflow files.
    pub folders: Vec<PathBuf>,
    /// Name under which every file in the folders is registered without review, if that is allowed.
    pub trusted_by: Option<String>,
    pub workers: WorkerSettings,
    /// True if browsers reach the server over TLS through a proxy in front of its port.
    pub is_behind_proxy: bool,
    /// Recipients of notices about questions, ends of runs and missed ticks.
    pub notify: NotifySettings,
    /// TLS certificate and key, if this server encrypts connections itself.
    pub tls: Option<Tls>,
    /// True if a person can approve only with a passkey that is unlocked for that approval.
    pub confirms_by_passkey: bool,
    /// A proxy in front of the server that names its callers.
    pub proxy: Option<ProxySettings>,
}

impl ServerSettings {
    /// The address at which people reach a server that listens at `address`, as far as the settings determine it.
    fn public_url(&self, address: SocketAddr) -> String {
        if let Some(url) = &self.notify.url {
            return url.trim_end_matches('/').to_owned();
        }
        let port = address.port();
        let name = self.hosts.first().map(|name| name.trim());
        match (&self.tls, name) {
            (Some(_), Some(name)) => format!("https://{name}:{port}"),
            (Some(_), None) => format!("https://{address}"),
            // A container whose port is published on the machine's own address.
            (None, _) if address.ip().is_unspecified() && self.hosts.iter().any(|name| is_own_name(name)) => {
                format!("http://localhost:{port}")
            }
            (None, Some(name)) if self.is_behind_proxy || self.proxy.is_some() => format!("https://{name}"),
            (None, _) => format!("http://{address}"),
        }
    }
}

/// A proxy that authenticates callers, with its own socket file.
#[derive(Debug)]
pub struct ProxySettings {
    pub socket: PathBuf,
    /// Users who may connect to the socket, in addition to the user of this process.
    pub users: Vec<u32>,
    pub named: NamedByProxy,
}

/// Reason why a server cannot start.
#[derive(Debug)]
pub enum ServerError {
    Listen { listen: SocketAddr, error: std::io::Error },
    Socket { path: PathBuf, why: String },
    Store(StoreError),
    Challenges(String),
    Thread(std::io::Error),
}

impl std::fmt::Display for ServerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Listen { listen, error } if error.kind() == std::io::ErrorKind::AddrInUse => {
                write!(
                    f,
                    "{listen} is in use by another program; choose another port with --listen, or stop that program"
                )
            }
            Self::Listen { listen, error } => write!(f, "cannot listen on {listen}: {error}"),
            Self::Socket { path, why } => write!(f, "cannot listen on {}: {why}", path.display()),
            Self::Store(error) => error.fmt(f),
            Self::Challenges(why) => write!(f, "passkeys cannot be used: {why}"),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl From<StoreError> for ServerError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// A server that listens and has not started to work.
pub struct Server {
    listener: TcpListener,
    of_proxy: Option<SocketListener>,
    address: SocketAddr,
    settings: ServerSettings,
    store: Store,
}

impl Server {
    /// Binds the address. Nothing is started yet.
    ///
    /// # Errors
    /// Fails if the address cannot be bound.
    pub async fn bind(settings: ServerSettings, store: Store) -> Result<Self, ServerError> {
        let listen = settings.listen;
        let failed = |error| ServerError::Listen { listen, error };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let of_proxy = settings.proxy.as_ref().map(|proxy| {
            SocketListener::bind(&proxy.socket, &proxy.users)
                .map_err(|why| ServerError::Socket { path: proxy.socket.clone(), why })
        });
        Ok(Self { listener, of_proxy: of_proxy.transpose()?, address, settings, store })
    }

    /// The address on which the server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address at which people reach the server: the beginning of its pages' addresses, without a final slash.
    #[must_use]
    pub fn public_url(&self) -> String {
        self.settings.public_url(self.address)
    }

    /// Works until `stop` is done, and then until the workers have ended or their time is over. Returns the runs that
    /// are still being executed.
    ///
    /// # Errors
    /// Fails if the store has no room for the tables of the service, or if no thread can be started.
    pub async fn run_until(
        self,
        runtimes: (Runtime, Runtime),
        fronts: Fronts,
        stop: impl Future<Output = ()>,
    ) -> Result<Vec<RunId>, ServerError> {
        let Self { listener, of_proxy, address, settings, store } = self;
        let service = store.service()?;
        let name = format!("{}:{}", std::process::id(), address.port());
        let program = settings.workers.program.clone();
        let (tidings, readiness) = (Tidings::default(), Readiness::default());
        let place = (address.to_string(), settings.public_url(address));
        let (dispatcher, waker) = Dispatcher::new(
            service.clone(),
            name,
            place,
            settings.workers,
            (tidings.clone(), readiness.clone()),
        );
        let files = WorkflowFiles::new(settings.folders.clone(), settings.trusted_by.is_some());
        let (folders, problems) = Folders::new(settings.folders, settings.trusted_by);
        let (for_requests, for_folders) = runtimes;
        let Fronts { pages, agents, question } = fronts;
        let app = Arc::new(App {
            service: service.clone(),
            started_at: store.clock_ms(),
            store: store.clone(),
            runtime: for_requests,
            waker: waker.clone(),
            hosts: Hosts::new(
                Reached {
                    listen: address,
                    has_tls: settings.tls.is_some(),
                    has_proxy: settings.is_behind_proxy || settings.proxy.is_some(),
                    url: settings.notify.url.as_deref(),
                },
                &settings.hosts,
            ),
            program,
            problems: problems.clone(),
            files,
            confirms_by_passkey: settings.confirms_by_passkey,
            challenges: Challenges::for_service(&service).map_err(ServerError::Challenges)?,
            proxy: settings.proxy.map(|proxy| proxy.named),
            pages,
            agents,
            question,
            tidings,
            readiness,
            is_ending: AtomicBool::new(false),
            changes: Changes::default(),
            failures: Failures::default(),
            rates: Rates::default(),
            requests: Default::default(),
        });
        let (end_schedules, schedules) = decide_schedules(&store, waker.clone())?;
        let watched = watch_files(Watcher::new(service.clone(), waker.clone()))?;
        let listening = tokio::spawn(listen_for_answers(Arc::clone(&app), settings.notify.clone()));
        let teller = Teller::new(Arc::clone(&app), settings.notify);
        let notices = spawn_stoppable("notices", move |goes_on| teller.run_until(|wait| !goes_on(wait)))?;
        let workers = spawn_thread("dispatcher", move || dispatcher.run_until_stopped())?;
        let watch = spawn_thread("folders", move || {
            folders.watch_until_stopped(&for_folders, &service, |problem| tracing::warn!("{problem}"));
        })?;
        let stop = async {
            stop.await;
            app.mark_ending();
        };
        let spare = tokio::spawn(keep_threads());
        let port = Port { listener, tls: settings.tls, is_behind_proxy: settings.is_behind_proxy };
        net::serve_connections(port, of_proxy, build_router(&app), stop).await;
        // Nothing new starts; running work gets time to end.
        problems.stop_watching();
        listening.abort();
        spare.abort();
        drop(end_schedules);
        drop((notices.0, watched.0));
        waker.stop_dispatcher();
        let left = tokio::task::spawn_blocking(move || {
            let _ = (schedules.join(), watch.join(), notices.1.join(), watched.1.join());
            workers.join().unwrap_or_default()
        });
        Ok(left.await.unwrap_or_default())
    }
}

/// Threads kept ready to answer requests while the system provides no further ones.
const SPARE_THREADS: usize = 4;

/// Interval at which the spare threads get some work, which keeps them alive.
const THREADS_KEPT_EVERY: Duration = Duration::from_secs(60);

/// Duration of that work. The thread is busy meanwhile, so the next piece needs another thread.
const THREAD_BUSY: Duration = Duration::from_millis(10);

/// Idle time after which a thread of the pool ends; longer than [`THREADS_KEPT_EVERY`].
pub const THREAD_KEEP_ALIVE: Duration = Duration::from_secs(300);

/// Starts threads of the request pool in advance and keeps them alive: without any, a request that arrives while the
/// system provides no thread could not even be refused.
async fn keep_threads() {
    loop {
        for _ in 0..SPARE_THREADS {
            tokio::task::spawn_blocking(|| std::thread::sleep(THREAD_BUSY));
        }
        tokio::time::sleep(THREADS_KEPT_EVERY).await;
    }
}

fn spawn_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, ServerError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(ServerError::Thread)
}

/// A thread that works until the sender is dropped.
type Stoppable = (Sender<()>, JoinHandle<()>);

/// Starts such a thread. Its work gets a function that waits and is true if the work goes on.
fn spawn_stoppable(
    name: &str,
    work: impl FnOnce(&dyn Fn(Duration) -> bool) + Send + 'static,
) -> Result<Stoppable, ServerError> {
    let (end, ended) = mpsc::channel::<()>();
    let goes_on = move |wait| matches!(ended.recv_timeout(wait), Err(RecvTimeoutError::Timeout));
    Ok((end, spawn_thread(name, move || work(&goes_on))?))
}

/// Checks watched files until the returned sender is dropped.
fn watch_files(mut watcher: Watcher) -> Result<Stoppable, ServerError> {
    spawn_stoppable("files", move |goes_on| {
        loop {
            if let Err(error) = watcher.check_once() {
                tracing::error!(%error, "the service cannot check watched files");
            }
            if !goes_on(watch::LOOK) {
                return;
            }
        }
    })
}

/// Decides schedules until the returned sender is dropped.
fn decide_schedules(store: &Store, waker: Waker) -> Result<Stoppable, ServerError> {
    let mut scheduler = Scheduler::new(store)?;
    let store = store.clone();
    spawn_stoppable("schedules", move |goes_on| {
        loop {
            let wait = match scheduler.decide_due() {
                Ok(turn) => {
                    if turn.starts > 0 {
                        waker.wake();
                    }
                    let until = turn.next.map(|next| next.saturating_sub(store.clock_ms()).max(0));
                    until.map_or(LOOK, |ms| Duration::from_millis(ms.unsigned_abs()).min(LOOK))
                }
                Err(error) => {
                    tracing::error!(%error, "the service cannot decide schedules");
                    AFTER_FAILURE
                }
            };
            if !goes_on(wait) {
                return;
            }
        }
    })
}
