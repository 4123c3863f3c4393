//! Links from the terminal to pages of the console of a running server.

use lobster_runtime::store::{Store, StoreError};

/// The base address of a running server; of several, the one that was started last. `None` if no server
/// is running.
pub(crate) fn server_url(store: &Store) -> Result<Option<String>, StoreError> {
    let Some(service) = store.existing_service()? else { return Ok(None) };
    Ok(service.running_servers()?.pop().map(|server| server.url))
}

/// The address of a page, if a server is running.
pub(crate) fn page_address(store: &Store, page: &str) -> Option<String> {
    server_url(store).ok()?.map(|url| format!("{url}/{page}"))
}
