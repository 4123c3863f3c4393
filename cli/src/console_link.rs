//! Pages of the console, for the terminal: where a server of this machine is at work on the store.

use std::net::SocketAddr;

use lobster_runtime::store::Store;

/// A server that was not heard of for so long, in milliseconds, is gone.
pub(crate) const HEARD_MS: i64 = 10_000;

/// The address of a page, if a server on this machine's own address has it. Others are called by names that
/// only their operator knows.
pub(crate) fn page_address(store: &Store, page: &str) -> Option<String> {
    let service = store.existing_service().ok()??;
    let mut servers = service.servers(store.clock_ms() - HEARD_MS).ok()?;
    servers.sort_by_key(|server| std::cmp::Reverse(server.heard_at));
    let is_own = |listen: &&str| listen.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback());
    let listen = servers.iter().map(|server| server.listen.as_str()).find(is_own)?;
    Some(format!("http://{listen}/{page}"))
}
