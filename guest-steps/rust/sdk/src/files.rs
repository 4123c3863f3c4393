//! The granted directories.

use std::path::PathBuf;

/// Path of a guest directory such as `/mail`. In the component it is the same path; in native tests
/// it is below the directory that the test case created.
pub fn guest(path: &str) -> PathBuf {
    #[cfg(not(target_family = "wasm"))]
    if let Some(root) = crate::testing::root() {
        return root.join(path.trim_start_matches('/'));
    }
    PathBuf::from(path)
}
