//! Pages of the console, for the terminal: where a server that is at work on the store is reached.

use lobster_runtime::store::Store;

/// What the addresses of a server's pages begin with. Of several, it is the one that was started last.
pub(crate) fn server_url(store: &Store) -> Option<String> {
    let servers = store.existing_service().ok()??.servers().ok()?;
    servers.into_iter().next_back().map(|server| server.url)
}

/// The address of a page, if a server is at work.
pub(crate) fn page_address(store: &Store, page: &str) -> Option<String> {
    server_url(store).map(|url| format!("{url}/{page}"))
}
