//! The granted directories.

use std::path::PathBuf;

/// Where a guest path such as `/mail` is. In the component it is that path; in
/// native tests it lies below the directory that the test case made.
pub fn guest(path: &str) -> PathBuf {
    #[cfg(not(target_family = "wasm"))]
    if let Some(root) = crate::testing::root() {
        return root.join(path.trim_start_matches('/'));
    }
    PathBuf::from(path)
}
