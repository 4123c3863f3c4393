//! Pages of the console, for the terminal: where a server that is at work on the store is reached.

use lobster_runtime::store::{Store, StoreError};

/// What the addresses of a server's pages begin with, if one is at work. Of several, it is the one that was
/// started last.
pub(crate) fn server_url(store: &Store) -> Result<Option<String>, StoreError> {
    let Some(service) = store.existing_service()? else { return Ok(None) };
    Ok(service.servers()?.pop().map(|server| server.url))
}

/// The address of a page, if a server is at work.
pub(crate) fn page_address(store: &Store, page: &str) -> Option<String> {
    server_url(store).ok()?.map(|url| format!("{url}/{page}"))
}
