//! Operations on the disk that tests replace: writes, which fail on a full disk, and syncs of folders, whose absence only a power loss would
//! show.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use headwater_transport::random;

/// Bytes of the reserve file: room for more than a thousand decisions.
pub(super) const RESERVE_BYTES: u64 = 1 << 20;

/// The disk of the operating system, or in tests a disk with little room.
pub(super) trait Disk: Debug + Send + Sync {
    /// Writes all bytes at the end of a file.
    fn append(&self, file: &File, bytes: &[u8]) -> io::Result<()>;

    /// Makes a file of [`RESERVE_BYTES`] bytes, if the disk has room for twice as many bytes. Without that margin, a journal on an almost
    /// full disk would make and delete its reserve file again and again.
    fn reserve(&self, path: &Path) -> io::Result<()>;

    /// Deletes the reserve file.
    fn release(&self, path: &Path);

    /// Waits until the disk has the names in the folder of a file; otherwise a power loss may lose a new name.
    fn sync_folder_of(&self, path: &Path) -> io::Result<()>;
}

/// The disk of the operating system.
#[derive(Debug)]
pub(super) struct SystemDisk;

impl Disk for SystemDisk {
    fn append(&self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn reserve(&self, path: &Path) -> io::Result<()> {
        if path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() == RESERVE_BYTES) {
            return Ok(());
        }
        let mut file = File::create(path)?;
        let written = write_noise(&mut file, 2 * RESERVE_BYTES).and_then(|()| file.set_len(RESERVE_BYTES));
        if written.is_err() {
            self.release(path);
        }
        written
    }

    fn release(&self, path: &Path) {
        // If the file cannot be deleted there is no more room, and the next write fails.
        _ = std::fs::remove_file(path);
    }

    fn sync_folder_of(&self, path: &Path) -> io::Result<()> {
        headwater_transport::sync_folder_of(path)
    }
}

/// Writes bytes that no file system can compress, so that the file takes its full room.
fn write_noise(file: &mut File, length: u64) -> io::Result<()> {
    let block: Vec<u8> = std::iter::repeat_with(random).take(1 << 13).flat_map(u64::to_le_bytes).collect();
    for _ in 0..length / block.len() as u64 {
        file.write_all(&block)?;
    }
    Ok(())
}

/// True if an operation failed because the disk is full, or because a quota or the process's limit on file sizes is reached.
pub(super) fn is_out_of_room(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

/// Writes a new file beside the old one, locks it and renames it over the old one. A failure leaves the old file as it was.
pub(super) fn replace(
    path: &Path,
    is_synced: bool,
    write: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<File> {
    let new = path.with_added_extension("new");
    let file = OpenOptions::new().read(true).append(true).create(true).truncate(false).open(&new)?;
    file.try_lock()?;
    let fill = || {
        file.set_len(0)?;
        write(&file)?;
        if is_synced {
            file.sync_data()?;
        }
        std::fs::rename(&new, path)
    };
    match fill() {
        Ok(()) => Ok(file),
        Err(reason) => {
            // An unfinished file would only take room.
            _ = std::fs::remove_file(&new);
            Err(reason)
        }
    }
}
