//! The journal's file: entries appended in batches before anything they stand for is published.
//!
//! What was handed to the operating system survives a SIGKILL; [`JournalSync::Always`] waits for the disk as well, which power
//! loss needs. A last line that a kill tore is cut off at the next start and reported; it was never published. The file cannot
//! grow for ever: at its bound it is rewritten as the account, the open samples and the latest closings.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_inference::leader::journal::{Entry, Recovered};
use headwater_protocol::{Dropped, SampleId, Settled};
use thiserror::Error;

use crate::config::{JournalConfig, JournalSync};
use crate::report::JournalAccount;

mod read;

/// Latest decisions that are kept whole, and published again after a restart.
const KEPT_CLOSINGS: usize = 1024;

/// Appends entries; without a file it only counts them.
#[derive(Debug)]
pub(crate) struct Journal {
    store: Option<Store>,
    buffer: Vec<u8>,
    account: JournalAccount,
}

#[derive(Debug)]
struct Store {
    path: PathBuf,
    file: Arc<File>,
    sync: JournalSync,
    most_bytes: u64,
    /// Size at which it is rewritten.
    compact_at: u64,
    /// Size, the buffer not counted.
    length: u64,
    /// Every closing in the file, oldest first.
    closings: VecDeque<Closing>,
}

/// Where the line of a decided or dropped sample lies.
#[derive(Clone, Copy, Debug)]
struct Closing {
    dropped: Option<Dropped>,
    at: u64,
    length: usize,
}

impl Journal {
    /// Opens the file, or makes it, and adds up what stands in it. Only the latest decisions come back whole.
    ///
    /// # Errors
    /// [`JournalError`]: the file cannot be had, another process has it, or it is not a journal.
    pub(crate) fn open(config: Option<&JournalConfig>) -> Result<(Self, Recovered), JournalError> {
        let mut journal = Self { store: None, buffer: Vec::new(), account: JournalAccount::default() };
        let Some(config) = config else { return Ok((journal, Recovered::default())) };
        let path = config.path.clone();
        let file = OpenOptions::new().read(true).append(true).create(true).open(&path);
        let file = file.map_err(|source| JournalError::Open { path: path.clone(), source })?;
        lock(&file, &path)?;
        let read = read::read(&file, &path)?;
        if read.torn_bytes > 0 {
            file.set_len(read.length).map_err(|source| JournalError::Open { path: path.clone(), source })?;
            journal.account.torn_bytes = read.torn_bytes;
        }
        let mut recovered = read.recovered;
        let surplus = recovered.decisions.len().saturating_sub(KEPT_CLOSINGS);
        recovered.decisions.drain(..surplus);
        journal.store = Some(Store {
            path,
            file: Arc::new(file),
            sync: config.sync,
            most_bytes: config.most_bytes,
            compact_at: config.most_bytes,
            length: read.length,
            closings: read.closings,
        });
        Ok((journal, recovered))
    }

    /// Takes an entry for the next [`Journal::flush`].
    pub(crate) fn append(&mut self, entry: &Entry) {
        self.account.entries += 1;
        let Some(store) = &mut self.store else { return };
        let start = self.buffer.len();
        entry.write_line(&mut self.buffer);
        let (at, length) = (store.length + start as u64, self.buffer.len() - start);
        store.closings.extend(closing(entry, at, length));
    }

    /// Writes what was taken. When it returns, what was taken may be published.
    ///
    /// # Errors
    /// [`JournalError::Write`], after which the journal must not be used: its last line may be torn.
    pub(crate) async fn flush(&mut self) -> Result<(), JournalError> {
        let Some(store) = self.store.as_mut().filter(|_| !self.buffer.is_empty()) else { return Ok(()) };
        let failed = |source| JournalError::Write { path: store.path.clone(), source };
        // A write into the page cache is microseconds; a hop to a blocking thread would cost more.
        (&*store.file).write_all(&self.buffer).map_err(failed)?;
        if store.sync == JournalSync::Always {
            let file = Arc::clone(&store.file);
            let synced = tokio::task::spawn_blocking(move || file.sync_data()).await;
            synced.map_err(io::Error::other).flatten().map_err(failed)?;
        }
        store.length += self.buffer.len() as u64;
        self.account.written_bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Rewrites the file when it has reached its bound. What it is told must be as after the last flush; everything up to `floor` is closed,
    /// and so are the `closed`.
    ///
    /// # Errors
    /// [`JournalError::Write`]; the old file is then still whole.
    pub(crate) fn compact_if_full(
        &mut self,
        settled: &Settled,
        (floor, closed): (SampleId, impl Iterator<Item = SampleId>),
        open: impl Iterator<Item = SampleId>,
    ) -> Result<(), JournalError> {
        let Some(store) = self.store.as_mut().filter(|store| store.length >= store.compact_at) else {
            return Ok(());
        };
        store
            .compact(settled, &Entry::Closed { floor, samples: closed.collect() }, open)
            .map_err(|source| JournalError::Write { path: store.path.clone(), source })?;
        self.account.compactions += 1;
        Ok(())
    }

    /// Entries, bytes, compactions.
    pub(crate) fn account(&self) -> JournalAccount {
        self.account
    }
}

impl Store {
    /// A new file beside the old one, then renamed over it. Of the closings it keeps the latest whole, and of the others the ids: without
    /// them such a sample could be decided a second time after a restart.
    fn compact(
        &mut self,
        settled: &Settled,
        closed: &Entry,
        open: impl Iterator<Item = SampleId>,
    ) -> io::Result<()> {
        let surplus = self.closings.len().saturating_sub(KEPT_CLOSINGS);
        self.closings.drain(..surplus);
        let mut account = settled.clone();
        for closing in &self.closings {
            match closing.dropped {
                None => account.decided = account.decided.saturating_sub(1),
                Some(reason) => {
                    account.dropped.entry(reason).and_modify(|count| *count = count.saturating_sub(1));
                }
            }
        }
        account.dropped.retain(|_, count| *count > 0);
        let mut text = Vec::new();
        Entry::Settled(account).write_line(&mut text);
        closed.write_line(&mut text);
        open.for_each(|sample| Entry::Opened(sample).write_line(&mut text));
        for closing in &mut self.closings {
            let start = text.len();
            text.resize(start + closing.length, 0);
            self.file.read_exact_at(&mut text[start..], closing.at)?;
            closing.at = start as u64;
        }
        let mut beside = self.path.clone().into_os_string();
        beside.push(".new");
        let file = OpenOptions::new().read(true).append(true).create(true).truncate(false).open(&beside)?;
        file.set_len(0)?;
        file.try_lock()?;
        (&file).write_all(&text)?;
        if self.sync == JournalSync::Always {
            file.sync_data()?;
        }
        std::fs::rename(&beside, &self.path)?;
        self.file = Arc::new(file);
        self.length = text.len() as u64;
        // What must be kept may be more than the bound; rewriting it every time would help nobody.
        self.compact_at = self.most_bytes.max(2 * self.length);
        Ok(())
    }
}

fn closing(entry: &Entry, at: u64, length: usize) -> Option<Closing> {
    match entry {
        Entry::Decided(_) => Some(Closing { dropped: None, at, length }),
        Entry::Dropped { reason, .. } => Some(Closing { dropped: Some(*reason), at, length }),
        Entry::Opened(_) | Entry::Settled(_) | Entry::Closed { .. } => None,
    }
}

fn lock(file: &File, path: &Path) -> Result<(), JournalError> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => JournalError::Held { path: path.to_owned() },
        TryLockError::Error(source) => JournalError::Open { path: path.to_owned(), source },
    })
}

/// A journal that cannot be used.
#[derive(Debug, Error)]
pub enum JournalError {
    /// It cannot be opened.
    #[error("journal {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A group has one leader, and a journal one writer.
    #[error("journal {}: another process has it open; stop that one or choose another file", path.display())]
    Held {
        /// The file.
        path: PathBuf,
    },
    /// A whole line in it is not an entry: it was altered, or is not a journal.
    #[error("journal {}: line {line} is not an entry ({reason}); move the file away to begin a new one", path.display())]
    NotAnEntry {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// It cannot be written, so nothing more may be decided.
    #[error("journal {}: writing: {source}; no decision is published that is not in the journal", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests;
