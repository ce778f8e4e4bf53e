//! A disk of tests: it has so much room and no more, and counts what only a power loss would show.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Journal;
use super::disk::{Disk, RESERVE_BYTES};
use crate::settings::group::JournalSettings;

/// A disk with so many bytes of room. Room of removed files does not come back by itself, but for the reserve.
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
    /// Writes what there is room for, as a disk does.
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
    /// A new journal on a disk with so many bytes of room.
    pub(crate) fn on_small_disk(settings: &JournalSettings, free: u64) -> Self {
        Self::open_on(std::sync::Arc::new(SmallDisk::new(free)), settings).expect("a new journal").0
    }
}
