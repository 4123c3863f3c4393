//! The connections to the hosts of credentials, shared by all steps of this process, so that the next step needs no new
//! handshake. The shared state holds no credential.

use std::io;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use lobster_base::request_error::request_causes;
use lobster_base::sync::lock;
use reqwest::{Client, redirect};
use tokio::runtime::{Builder, Handle};

/// Time limit for connecting to a host.
const CONNECT_PATIENCE: Duration = Duration::from_secs(20);

/// Idle connections kept per host, and for how long: less than any server keeps them.
const IDLE_CONNECTIONS: usize = 8;
const IDLE: Duration = Duration::from_secs(4);

pub(crate) struct Outward {
    /// Runtime on which the requests run.
    pub(crate) runtime: Handle,
    pub(crate) client: Client,
}

/// The shared connections of this process.
pub(crate) fn shared_connections() -> io::Result<&'static Outward> {
    static OUTWARD: OnceLock<Outward> = OnceLock::new();
    static STARTING: Mutex<()> = Mutex::new(());
    let _only_one = lock(&STARTING);
    if let Some(outward) = OUTWARD.get() {
        return Ok(outward);
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let client = build_client().map_err(|error| io::Error::other(request_causes(&error)))?;
    let outward = Outward { runtime: runtime.handle().clone(), client };
    std::thread::Builder::new()
        .name("credentials".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(OUTWARD.get_or_init(|| outward))
}

fn build_client() -> reqwest::Result<Client> {
    // Fails only if another part of the process has chosen a provider, which is then used.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .no_proxy()
        .https_only(true)
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .connect_timeout(CONNECT_PATIENCE)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .pool_idle_timeout(IDLE)
        .tcp_nodelay(true)
        .build()
}
