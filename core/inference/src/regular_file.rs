//! Opening of regular files.

use std::fs::File;
use std::io;
use std::path::Path;

/// Opens a regular file; returns its length too. Refuses anything else, because a read from a pipe may wait without end.
///
/// # Errors
/// The system's error, or `InvalidInput` for a folder, a pipe, a socket or a device.
pub(crate) fn open(path: &Path) -> io::Result<(File, u64)> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "expected a file, found something else"));
    }
    Ok((File::open(path)?, metadata.len()))
}
