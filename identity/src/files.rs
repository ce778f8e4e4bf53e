//! Writing files: whole or not at all, keys for their owner alone.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::error::EnrollError;

/// Rights of a file that everybody may read.
pub(crate) const PUBLIC: u32 = 0o644;
/// Rights of a key.
pub(crate) const SECRET: u32 = 0o600;

/// Writes a file beside its place and moves it there, so that a reader finds the old content or the new one.
pub(crate) fn write(path: &Path, content: &str, rights: u32) -> Result<(), EnrollError> {
    let of = |error: std::io::Error| EnrollError::file(path, error);
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    // A file that a killed run left would keep its own rights.
    let _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(rights).open(&beside).map_err(of)?;
    file.write_all(content.as_bytes()).and_then(|()| file.sync_all()).map_err(of)?;
    fs::rename(&beside, path).map_err(of)
}

/// Makes a folder, readable by its owner alone.
pub(crate) fn make_folder(path: &Path) -> Result<(), EnrollError> {
    let of = |error: std::io::Error| EnrollError::file(path, error);
    fs::create_dir_all(path).map_err(of)?;
    fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(of)
}

pub(crate) fn read(path: &Path) -> Result<String, EnrollError> {
    fs::read_to_string(path).map_err(|error| EnrollError::file(path, error))
}
