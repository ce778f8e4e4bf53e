//! Small files: read with a bound, locked with a limit, replaced whole, and a warning if others may read a secret.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::warn;

/// Reads a file of at most `max_bytes` bytes.
///
/// # Errors
/// The reason, without the path: the system's error, not a regular file, or too many bytes.
pub fn read_bounded(file: &Path, max_bytes: u64) -> Result<Vec<u8>, String> {
    let of = |error: io::Error| error.to_string();
    let metadata = fs::metadata(file).map_err(of)?;
    // Opening a pipe would block the reader.
    if !metadata.is_file() {
        return Err("expected a file, found something else".into());
    }
    if metadata.len() > max_bytes {
        return Err(format!("expected at most {max_bytes} bytes, found {}", metadata.len()));
    }
    let mut content = Vec::new();
    // The file may grow after its size was read.
    File::open(file).map_err(of)?.take(max_bytes + 1).read_to_end(&mut content).map_err(of)?;
    if content.len() as u64 > max_bytes {
        return Err(format!("expected at most {max_bytes} bytes, found more"));
    }
    Ok(content)
}

/// Time between two tries to lock a file.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Locks a file or a folder until `file` is closed. Waits for other programs, and blocks the thread meanwhile.
///
/// # Errors
/// [`TryLockError::WouldBlock`] when another program holds the lock for longer than `limit`; else the system's error.
pub fn lock_within(file: &File, limit: Duration) -> Result<(), TryLockError> {
    let until = Instant::now() + limit;
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < until => thread::sleep(LOCK_PAUSE),
            locked => return locked,
        }
    }
}

/// Longest wait for another program that changes a file in the same folder.
const FOLDER_LOCK_LIMIT: Duration = Duration::from_secs(5);

/// Locks the folder of a file until the returned value is dropped, against other programs that change files in the folder. Blocks the
/// thread meanwhile.
///
/// # Errors
/// A sentence without the path: another program holds the lock for longer than five seconds, or the system's error.
pub fn lock_folder_of(file: &Path) -> Result<File, String> {
    lock_folder_within(file, FOLDER_LOCK_LIMIT)
}

fn lock_folder_within(file: &Path, limit: Duration) -> Result<File, String> {
    let opened = File::open(folder_of(file)).map_err(|error| format!("locking its folder: {error}"))?;
    match lock_within(&opened, limit) {
        Ok(()) => Ok(opened),
        Err(TryLockError::WouldBlock) => Err(format!(
            "another program changes a file in this folder for more than {} s; try again when it has ended",
            limit.as_secs_f32()
        )),
        Err(TryLockError::Error(error)) => Err(format!("locking its folder: {error}")),
    }
}

/// Replaces a file by a new one, and syncs file and folder: a crash or a power loss leaves the old or the new file whole.
///
/// # Errors
/// The system's error. The old file is then as it was, unless only the sync of the folder failed: then the new file is in place.
pub fn replace_file(path: &Path, contents: impl AsRef<[u8]>, mode: u32) -> io::Result<()> {
    replace(path, contents.as_ref(), mode, |_| Ok(()))
}

/// As [`replace_file`], but keeps mode and owner of the old file; a file that is not there yet gets `new_mode`.
///
/// # Errors
/// As [`replace_file`]; also if the new file cannot have the old owner.
pub fn rewrite_file(path: &Path, contents: impl AsRef<[u8]>, new_mode: u32) -> io::Result<()> {
    let old = fs::metadata(path).ok();
    let mode = old.as_ref().map_or(new_mode, |old| old.mode() & 0o777);
    replace(path, contents.as_ref(), mode, |file| {
        let new = file.metadata()?;
        if let Some(old) = &old
            && (old.uid(), old.gid()) != (new.uid(), new.gid())
        {
            fchown(file, Some(old.uid()), Some(old.gid())).map_err(|error| {
                let (user, group) = (old.uid(), old.gid());
                let text = format!(
                    "the file belongs to user {user} and group {group}, and cannot keep them: {error}"
                );
                io::Error::new(error.kind(), text)
            })?;
        }
        file.set_permissions(Permissions::from_mode(mode))
    })
}

fn replace(
    path: &Path,
    contents: &[u8],
    mode: u32,
    prepare: impl Fn(&File) -> io::Result<()>,
) -> io::Result<()> {
    let new = path.with_added_extension("new");
    // A killed run may have left this file with other rights; `create_new` refuses a file that is there.
    let _ = fs::remove_file(&new);
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(contents)?;
        prepare(&file)?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    if let Err(error) = write() {
        // An unfinished file would only take room.
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    sync_folder_of(path)
}

/// The folder of a file; the current one for a name alone.
pub fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Syncs the folder of a file, so that a new name in the folder survives a power loss.
///
/// # Errors
/// The system's error.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

/// Mode of a file that everybody may read.
pub const PUBLIC_MODE: u32 = 0o644;

/// Mode of a file that its owner alone reads and writes.
pub const SECRET_MODE: u32 = 0o600;

/// Rights of the group and of others to read.
const OTHERS_READ: u32 = 0o044;

/// Files about which [`warn_of_readers`] has warned.
static NAMED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Warns, once for each file, if others than the owner may read a file with a secret.
pub fn warn_of_readers(file: &Path) {
    let Some(warning) = readers(file) else { return };
    if NAMED.lock().insert(file.to_owned()) {
        warn!("{warning}");
    }
}

/// A sentence that others than the owner may read a file with a secret, and the command that mends the rights; `None` if
/// they may not, or if there is no such file.
pub fn readers(file: &Path) -> Option<String> {
    let mode = fs::metadata(file).ok()?.permissions().mode() & 0o7777;
    let path = file.display();
    (mode & OTHERS_READ != 0).then(|| {
        format!(
            "{path}: others than its owner may read this secret: expected mode {SECRET_MODE:04o}, found {mode:04o}; \
             chmod {SECRET_MODE:o} {path}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_long_or_no_file_is_refused_with_the_bound() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("file");
        fs::write(&file, "four").expect("writes");
        assert_eq!(read_bounded(&file, 4), Ok(b"four".to_vec()));
        assert_eq!(read_bounded(&file, 3), Err("expected at most 3 bytes, found 4".into()));
        assert_eq!(read_bounded(folder.path(), 4), Err("expected a file, found something else".into()));
        assert!(read_bounded(&folder.path().join("none"), 4).is_err());
        // A file of procfs reports a size of 0 bytes.
        assert_eq!(
            read_bounded(Path::new("/proc/self/status"), 8),
            Err("expected at most 8 bytes, found more".into())
        );
    }

    #[test]
    fn a_replaced_file_has_the_new_content_and_mode() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("key.pem");
        // A killed run left an unfinished file.
        fs::write(folder.path().join("key.pem.new"), "ha").expect("writes");
        for (content, mode) in [("old", PUBLIC_MODE), ("new", SECRET_MODE)] {
            replace_file(&file, content, mode).expect("replaces");
            assert_eq!(fs::read_to_string(&file).expect("a file"), content);
            assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, mode);
        }
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_replaced_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir_all(folder.path().join("boot/full")).expect("a folder");
        assert!(replace_file(&folder.path().join("boot"), "1", PUBLIC_MODE).is_err());
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }

    #[test]
    fn a_lock_of_another_program_is_waited_for_with_a_limit() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let [held, other] = [(); 2].map(|()| File::open(folder.path()).expect("a folder"));
        lock_within(&held, Duration::ZERO).expect("nobody holds the lock");
        let short = Duration::from_millis(1);
        assert!(matches!(lock_within(&other, short), Err(TryLockError::WouldBlock)));
        thread::scope(|scope| {
            let waits = scope.spawn(|| lock_within(&other, Duration::from_secs(60)));
            drop(held);
            waits.join().expect("no panic").expect("the lock is free");
        });
    }

    #[test]
    fn the_lock_of_a_folder_is_waited_for_with_a_limit_and_named() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("policy.toml");
        let held = lock_folder_of(&file).expect("nobody holds the lock");
        let error = lock_folder_within(&file, Duration::from_millis(50)).expect_err("it is held");
        assert!(
            error.contains("another program changes a file in this folder for more than 0.05 s"),
            "{error}"
        );
        drop(held);
        assert!(lock_folder_within(&file, Duration::ZERO).is_ok());
        assert!(lock_folder_of(&folder.path().join("none/policy.toml")).is_err());
    }

    #[test]
    fn a_secret_that_others_may_read_is_named_with_its_mode_and_the_command_that_mends_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("key.pem");
        fs::write(&file, "secret").expect("writes");
        let with = |mode| {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("a mode");
            readers(&file)
        };
        for mode in [0o600, 0o400, 0o700] {
            assert_eq!(with(mode), None, "{mode:o}");
        }
        for (mode, found) in [(0o640, "found 0640"), (0o604, "found 0604"), (0o444, "found 0444")] {
            let warning = with(mode).expect("a warning");
            let mend = format!("chmod 600 {}", file.display());
            for part in [found, "expected mode 0600", mend.as_str()] {
                assert!(warning.contains(part), "{part} in {warning}");
            }
        }
        assert_eq!(readers(&folder.path().join("none")), None);
    }
}
