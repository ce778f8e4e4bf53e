//! A disk for tests, with a given number of free bytes and a count of the syncs of folders.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Journal;
use super::disk::{Disk, RESERVE_BYTES};
use crate::settings::group::JournalSettings;

/// A disk with `free` bytes of room. Removed files give no room back, except the reserve file.
#[derive(Debug)]
pub(super) struct SmallDisk {
    pub(super) free: AtomicU64,
    pub(super) folder_syncs: AtomicU64,
}

impl SmallDisk {
    pub(super) fn new(free: u64) -> Self {
        Self { free: free.into(), folder_syncs: 0.into() }
    }
}

impl Disk for SmallDisk {
    /// Writes the bytes for which there is room, and fails if some are left over.
    fn append(&self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        let taken = self.free.load(Relaxed).min(bytes.len() as u64);
        self.free.fetch_sub(taken, Relaxed);
        file.write_all(&bytes[..taken as usize])?;
        if taken < bytes.len() as u64 { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn reserve(&self, path: &Path) -> io::Result<()> {
        if self.free.load(Relaxed) < 2 * RESERVE_BYTES {
            return Err(ErrorKind::StorageFull.into());
        }
        self.free.fetch_sub(RESERVE_BYTES, Relaxed);
        File::create(path).map(drop)
    }

    fn release(&self, path: &Path) {
        if std::fs::remove_file(path).is_ok() {
            self.free.fetch_add(RESERVE_BYTES, Relaxed);
        }
    }

    fn sync_folder_of(&self, _: &Path) -> io::Result<()> {
        self.folder_syncs.fetch_add(1, Relaxed);
        Ok(())
    }
}

impl Journal {
    /// A new journal on a disk with `free` bytes of room.
    pub(crate) fn on_small_disk(settings: &JournalSettings, free: u64) -> Self {
        Self::open_on(std::sync::Arc::new(SmallDisk::new(free)), settings).expect("a new journal").0
    }
}
