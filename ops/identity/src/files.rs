//! Files of a site: a file is replaced whole, and only the owner may read a key. Also the lock of the site's folder.

use std::fs::{self, DirBuilder, DirEntry, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use headwater_transport::{SECRET_MODE, lock_within, read_bounded, replace_file};

use crate::error::EnrollError;

/// Largest file of a site that is read, bytes: enough for the access rules of thousands of members.
const MAX_BYTES: u64 = 16 << 20;

/// Writes a file beside its place and moves it there, so that a reader finds the old content or the new one.
pub(crate) fn write(path: &Path, content: &str, rights: u32) -> Result<(), EnrollError> {
    replace_file(path, content, rights).map_err(|error| EnrollError::system(path, &error))
}

/// Makes a folder that only its owner may enter. A folder that exists keeps its rights.
pub(crate) fn make_folder(path: &Path) -> Result<(), EnrollError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| EnrollError::system(path, &error))
}

/// Makes a folder that only its owner may enter, or takes an empty folder and restricts its rights in the same way.
pub(crate) fn make_empty_folder(path: &Path) -> Result<(), EnrollError> {
    make_folder(path)?;
    check_empty(path, None)?;
    let private = fs::set_permissions(path, Permissions::from_mode(0o700));
    private.map_err(|error| EnrollError::system(path, &error))
}

/// Checks that the folder has no entry, or only the file named `lock`; otherwise an error.
pub(crate) fn check_empty(folder: &Path, lock: Option<&str>) -> Result<(), EnrollError> {
    let entries = fs::read_dir(folder).map_err(|error| EnrollError::system(folder, &error))?;
    let mut others = entries.filter(|entry| {
        let name = entry.as_ref().map(DirEntry::file_name).unwrap_or_default();
        lock.is_none_or(|lock| name != lock)
    });
    match others.next() {
        None => Ok(()),
        Some(_) => Err(EnrollError::file(folder, "expected a new or an empty folder, found files in it")),
    }
}

/// Removes everything in a folder, the lock last: while the lock is there, no other run takes the folder for an empty one. Entries that
/// cannot be removed stay.
pub(crate) fn remove_all(folder: &Path, lock: &str) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.filter(|entry| entry.file_name() != lock).map(|entry| entry.path()) {
        let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
    }
    let _ = fs::remove_file(folder.join(lock));
}

/// Longest wait for another program that changes the same site.
const LOCK_LIMIT: Duration = Duration::from_secs(20);

/// Waits until no other program holds the lock. The returned file holds the lock until it is dropped.
pub(crate) fn lock(path: &Path) -> Result<File, EnrollError> {
    let of = |error: std::io::Error| EnrollError::system(path, &error);
    let file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(false)
        .mode(SECRET_MODE)
        .open(path)
        .map_err(of)?;
    lock_within(&file, LOCK_LIMIT).map_err(|error| match error {
        TryLockError::WouldBlock => {
            EnrollError::file(path, "another program changes this site; try again when it has ended")
        }
        TryLockError::Error(error) => of(error),
    })?;
    if !is_at(&file, path) {
        // The program that held the lock failed and removed the file: this lock would lock nothing.
        return Err(EnrollError::file(path, "another program removed this site; try again"));
    }
    Ok(file)
}

/// Returns true when the path still leads to this open file.
fn is_at(file: &File, path: &Path) -> bool {
    let of = |metadata: Metadata| (metadata.dev(), metadata.ino());
    file.metadata().map(of).is_ok_and(|own| fs::metadata(path).map(of).is_ok_and(|there| there == own))
}

pub(crate) fn read(path: &Path) -> Result<String, EnrollError> {
    let of = |reason: String| match reason.contains("os error 13)") {
        true => EnrollError::system(path, &std::io::ErrorKind::PermissionDenied.into()),
        false => EnrollError::file(path, reason),
    };
    let bytes = read_bounded(path, MAX_BYTES).map_err(of)?;
    String::from_utf8(bytes).map_err(|_| of("expected text in UTF-8, found other bytes".into()))
}
