//! Reading files that should be components.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use lobster_base::regular_file;

use crate::LoadError;
use crate::complexity::MAX_PROGRAM;
use crate::engine::too_large;
use crate::kind::MAGIC;

/// Opens the file of a component, which must be a regular file no larger than the size limit.
///
/// # Errors
/// There is no such file, or it is not a regular one of that size.
pub fn open_file(path: &Path) -> io::Result<io::Take<File>> {
    // The file may still grow.
    Ok(regular_file::open_within(path, MAX_PROGRAM)?.take(MAX_PROGRAM))
}

/// Reads the file of a component. If it does not begin as WebAssembly, only the beginning is read and
/// none of it is shown.
///
/// # Errors
/// The file cannot be read, is too large or is not WebAssembly.
pub fn read_file(path: &Path) -> Result<Vec<u8>, LoadError> {
    let fail = |source| LoadError::Read { path: path.to_owned(), source };
    let mut file = regular_file::open(path).map_err(fail)?;
    let size = file.metadata().map_err(fail)?.len();
    let mut bytes = Vec::new();
    let beginning = u64::try_from(MAGIC.len()).unwrap_or(u64::MAX);
    file.by_ref().take(beginning).read_to_end(&mut bytes).map_err(fail)?;
    if bytes != MAGIC {
        return Err(LoadError::NotWasm);
    }
    if size > MAX_PROGRAM {
        return Err(too_large(size));
    }
    file.take(MAX_PROGRAM).read_to_end(&mut bytes).map_err(fail)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_other_files_nothing_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for content in ["PIN=4711", "", "\0as"] {
            std::fs::write(&path, content).unwrap();
            let error = read_file(&path).unwrap_err();
            assert!(matches!(error, LoadError::NotWasm), "{content:?}: {error}");
        }
        std::fs::write(&path, "\0asm, and more").unwrap();
        assert_eq!(read_file(&path).unwrap(), b"\0asm, and more");
        let huge = File::options().write(true).open(&path).unwrap();
        huge.set_len(MAX_PROGRAM + 1).unwrap();
        assert!(matches!(read_file(&path), Err(LoadError::TooComplex { .. })));
        assert!(open_file(&path).is_err());
        assert!(matches!(read_file(Path::new("/dev/zero")), Err(LoadError::Read { .. })));
    }
}
