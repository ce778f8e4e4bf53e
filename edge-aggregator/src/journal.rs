//! The journal of a leader: entries are appended to a file in batches before their decisions are published.
//!
//! Entries that were handed to the operating system survive a SIGKILL. With [`JournalSync::Always`] the journal waits for the disk as
//! well, so that entries survive a power loss. A last line that a kill tore is cut off at the next start and counted; its decision was
//! never published. A file that has reached its bound is compacted:
//!
//! ```text
//! format │ settled counts │ numbering │ closed samples as ranges │ open samples │ the latest decisions and drops as whole lines
//! ```
//!
//! A file with unreadable bytes is set aside at the start (`damage.rs`). Its readable lines count, if one of them says the format.
//!
//! A full disk stops the decisions and not the process. A reserve file holds room for the samples that are open:
//!
//! ```text
//! reserved ──a write fails──> reserve deleted: open samples are finished, no new ones ──a write fails──> nothing is decided
//!     ^                                     │                                                  │
//!     └──────room for a new reserve─────────┴───────────────────a write succeeds───────────────┘
//! ```

mod damage;
mod disk;
mod reader;
#[cfg(test)]
mod small_disk;
mod store;

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use headwater_inference::leader::journal::{Entry, FORMAT, Recovered, replay};
use headwater_protocol::{SampleId, Settled};
use thiserror::Error;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::report::JournalCounts;
use crate::settings::group::JournalSettings;
use disk::{Disk, SystemDisk};
use reader::Reader;
use store::{Room, Store, note_closed};

/// Number of the latest decisions and drops that a compaction keeps as whole lines. A restart publishes these decisions again.
const MAX_WHOLE_LINES: usize = 1024;

/// Time between two attempts to write a journal, or to make its reserve file, after an attempt that failed.
const RETRY: Duration = Duration::from_secs(1);

/// Time between two attempts to compact a journal that could not be compacted.
const COMPACTION_RETRY: Duration = Duration::from_secs(60);

/// Writer of the journal. Without a file it writes nothing.
#[derive(Debug)]
pub(crate) struct Journal {
    store: Option<Store>,
    buffer: Vec<u8>,
    /// True if there was room at the last call of [`Journal::room_change`].
    had_room: bool,
    pub(crate) counts: JournalCounts,
}

/// A change of the room for new samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoomChange {
    /// No new samples may be opened.
    Lost,
    /// New samples may be opened again.
    Back,
}

/// Outcome of [`Journal::flush`].
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// The entries are in the journal.
    Written,
    /// The entries are in no journal and have left the buffer. [`Journal::next_try`] says when to append them again.
    Failed,
}

impl Journal {
    /// Opens or creates the file and replays its entries. The latest [`MAX_WHOLE_LINES`] decisions come back with their content, earlier
    /// decisions as ids alone. Without a path there is no file, and nothing comes back.
    ///
    /// # Errors
    /// [`JournalError`]: the file cannot be opened, another process has the lock, or the file is no journal or one of another format.
    pub(crate) fn open(settings: &JournalSettings) -> Result<(Self, Recovered), JournalError> {
        Self::open_on(Arc::new(SystemDisk), settings)
    }

    fn open_on(disk: Arc<dyn Disk>, settings: &JournalSettings) -> Result<(Self, Recovered), JournalError> {
        let counts = JournalCounts::default();
        let mut journal = Self { store: None, buffer: Vec::new(), had_room: true, counts };
        let Some(path) = &settings.path else { return Ok((journal, Recovered::default())) };
        let (file, length) = open_locked(path)?;
        let mut reader = Reader::new(&file, length);
        let mut recovered = replay(&mut reader);
        let read = reader.finish(path)?;
        let mut store = Store::new(disk, (path, settings), file, length);
        journal.counts.torn_bytes = read.torn.map_or(0, |at| length - at);
        journal.counts.unreadable_bytes = read.unreadable_bytes();
        store.closed = read.closed;
        match read.damage.map(|damage| store.set_aside(&damage)) {
            // The format line of this process, in the same file, would make the lines of unknown format count at the next start.
            Some(Err(source)) if read.is_of_unknown_format => {
                return Err(JournalError::Open { path: path.clone(), source });
            }
            Some(Ok(())) => {}
            Some(Err(_)) | None => store.cut_torn(read.torn),
        }
        if read.is_of_unknown_format {
            recovered = Recovered::default();
        }
        store.sync_at_start();
        store.reserve(Instant::now());
        let surplus = recovered.decisions.len().saturating_sub(MAX_WHOLE_LINES);
        recovered.decisions.drain(..surplus);
        journal.counts.is_full = !store.has_room();
        journal.store = Some(store);
        Ok((journal, recovered))
    }

    /// Buffers an entry for the next [`Journal::flush`].
    pub(crate) fn append(&mut self, entry: &Entry) {
        let Some(store) = &mut self.store else { return };
        if self.buffer.is_empty() {
            self.buffer.extend(store.ends_in_line.then_some(b'\n'));
            if !store.says_format {
                Entry::Format(FORMAT).write_line(&mut self.buffer);
            }
        }
        let start = self.buffer.len();
        entry.write_line(&mut self.buffer);
        let (at, length) = (store.length + start as u64, self.buffer.len() - start);
        note_closed(&mut store.closed, entry, at, length);
    }

    /// Writes the buffered entries. After [`Flush::Written`] their decisions may be published.
    pub(crate) async fn flush(&mut self) -> Flush {
        let buffer = std::mem::take(&mut self.buffer);
        let outcome = match self.store.as_mut().filter(|_| !buffer.is_empty()) {
            Some(store) => store.write_or_wait(&buffer).await,
            None => Flush::Written,
        };
        if outcome == Flush::Written {
            self.counts.written_bytes += buffer.len() as u64;
        } else {
            self.counts.failed_writes += 1;
        }
        self.counts.is_full = !self.has_room();
        self.buffer = buffer;
        self.buffer.clear();
        outcome
    }

    /// Change of the room since the last call; `None` if there was none.
    pub(crate) fn room_change(&mut self) -> Option<RoomChange> {
        let has_room = self.has_room();
        match (std::mem::replace(&mut self.had_room, has_room), has_room) {
            (true, false) => Some(RoomChange::Lost),
            (false, true) => Some(RoomChange::Back),
            (true, true) | (false, false) => None,
        }
    }

    /// True if new samples may be opened, since there is room for their decisions.
    fn has_room(&self) -> bool {
        self.store.as_ref().is_none_or(Store::has_room)
    }

    /// True unless a write failed less than [`RETRY`] ago.
    pub(crate) fn may_write(&self, now: Instant) -> bool {
        self.store.as_ref().and_then(|store| store.write_after).is_none_or(|after| now >= after)
    }

    /// Time of the next attempt to write, or to make the reserve file, after a failed attempt; `None` if no attempt is waited for.
    pub(crate) fn next_try(&self) -> Option<Instant> {
        let store = self.store.as_ref()?;
        store.write_after.or(match store.room {
            Room::Used { retry_at } => Some(retry_at),
            Room::Reserved | Room::Unknown => None,
        })
    }

    /// Tries to make the reserve file again, if that is due and no write waits for its next attempt.
    pub(crate) fn reserve_again(&mut self, now: Instant) {
        let Some(store) = &mut self.store else { return };
        let is_due = matches!(store.room, Room::Used { retry_at } if now >= retry_at);
        if !is_due || store.write_after.is_some() {
            return;
        }
        store.reserve(now);
        self.counts.is_full = !store.has_room();
        if store.has_room() {
            info!(path = %store.path.display(), "there is room for the journal again: the group goes on deciding");
        }
    }

    /// Compacts the file when it has reached its bound. The arguments are the leader's state after the last flush: the account, the entries
    /// of the numbering and the closed samples, and the ids of open and awaited samples. A failure leaves the old file in use until the next
    /// attempt after a minute.
    pub(crate) fn compact_if_full(
        &mut self,
        settled: &Settled,
        entries: impl Iterator<Item = Entry>,
        open: impl Iterator<Item = SampleId>,
    ) {
        let now = Instant::now();
        let Some(store) = self.store.as_mut().filter(|store| store.is_compaction_due(now)) else { return };
        match store.compact(settled, entries, open) {
            Ok(()) => {
                self.counts.compactions += 1;
                store.compact_after = None;
            }
            Err(reason) => {
                self.counts.failed_compactions += 1;
                if store.compact_after.is_none() {
                    let path = store.path.display();
                    warn!(%path, %reason, "the journal cannot be compacted: it grows beyond max_bytes until that works");
                }
                store.compact_after = Some(now + COMPACTION_RETRY);
            }
        }
    }
}

/// Opens and locks a journal; returns the file with its length. A device or a pipe is refused.
fn open_locked(path: &Path) -> Result<(File, u64), JournalError> {
    let open = |source| JournalError::Open { path: path.to_owned(), source };
    let file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(open)?;
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => JournalError::Locked { path: path.to_owned() },
        TryLockError::Error(source) => open(source),
    })?;
    let metadata = file.metadata().map_err(open)?;
    if metadata.is_file() {
        return Ok((file, metadata.len()));
    }
    Err(JournalError::NotAJournal { path: path.to_owned(), reason: "it is no regular file".into() })
}

/// Reason why a journal cannot be used.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The file cannot be opened.
    #[error("journal {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Another process writes the journal.
    #[error("journal {}: another process has it open; stop that one or choose another file", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// A journal of another format. The file is left as it is.
    #[error(
        "journal {}: expected format {FORMAT}, found format {found}; the file is left as it is; start once with the release that wrote it \
         until no sample is open and then move it away, or name another file (--journal-path)",
        path.display()
    )]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// Format of the file.
        found: u16,
    },
    /// No line of the file is an entry, or it is no regular file. The file is left as it is.
    #[error(
        "journal {}: expected the lines of a journal, found none ({reason}); the file is left as it is; name another file \
         (--journal-path), or move this one away",
        path.display()
    )]
    NotAJournal {
        /// The file.
        path: PathBuf,
        /// Reason why the first unreadable line is no entry, or the statement that the file is no regular file.
        reason: String,
    },
}

#[cfg(test)]
mod tests;
