//! The journal's file: entries are appended in batches before their decisions are published.
//!
//! Entries that the operating system has survive a SIGKILL. [`JournalSync::Always`] waits for the disk as well, which a power loss
//! needs. A last line that a kill tore is cut off at the next start and counted; its decision was never published. At its bound the file
//! is compacted:
//!
//! ```text
//! settled counts │ ids of closed samples │ open samples │ the latest decisions and drops as whole lines
//! ```

use std::collections::VecDeque;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_inference::leader::journal::{Entry, Recovered, replay};
use headwater_protocol::{Dropped, SampleId, Settled};
use thiserror::Error;

use crate::config::{JournalConfig, JournalSync};
use crate::report::JournalCounts;

/// Latest decisions and drops that stay as whole lines. A restart publishes those decisions again.
const MAX_WHOLE_LINES: usize = 1024;

/// Writer of the journal. Without a file entries are only counted.
#[derive(Debug)]
pub(crate) struct Journal {
    store: Option<Store>,
    buffer: Vec<u8>,
    pub(crate) counts: JournalCounts,
}

#[derive(Debug)]
struct Store {
    path: PathBuf,
    file: Arc<File>,
    sync: JournalSync,
    max_bytes: u64,
    /// Size at which the file is compacted next.
    compact_at: u64,
    /// Size of the file, without the buffer.
    length: u64,
    /// Lines of decided and dropped samples, oldest first.
    closed: VecDeque<ClosedLine>,
}

/// Position of the line of a decided or dropped sample.
#[derive(Clone, Copy, Debug)]
struct ClosedLine {
    dropped: Option<Dropped>,
    at: u64,
    length: usize,
}

impl Journal {
    /// Opens or creates the file and replays its entries. The latest [`MAX_WHOLE_LINES`] decisions come back with their
    /// content; of earlier ones only the ids.
    ///
    /// # Errors
    /// [`JournalError`]: the file cannot be opened, another process has the lock, or the file is no journal.
    pub(crate) fn open(config: Option<&JournalConfig>) -> Result<(Self, Recovered), JournalError> {
        let mut journal = Self { store: None, buffer: Vec::new(), counts: JournalCounts::default() };
        let Some(config) = config else { return Ok((journal, Recovered::default())) };
        let path = config.path.clone();
        let file = OpenOptions::new().read(true).append(true).create(true).open(&path);
        let file = file.map_err(|source| JournalError::Open { path: path.clone(), source })?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => JournalError::Locked { path: path.clone() },
            TryLockError::Error(source) => JournalError::Open { path: path.clone(), source },
        })?;
        let mut lines = Lines::new(&file, &path);
        let mut recovered = replay(&mut lines);
        let Lines { length, torn_bytes, closed, end, .. } = lines;
        end?;
        journal.counts.torn_bytes = torn_bytes;
        if torn_bytes > 0 {
            file.set_len(length).map_err(|source| JournalError::Open { path: path.clone(), source })?;
        }
        let surplus = recovered.decisions.len().saturating_sub(MAX_WHOLE_LINES);
        recovered.decisions.drain(..surplus);
        journal.store = Some(Store {
            path,
            file: Arc::new(file),
            sync: config.sync,
            max_bytes: config.max_bytes,
            compact_at: config.max_bytes,
            length,
            closed,
        });
        Ok((journal, recovered))
    }

    /// Buffers an entry for the next [`Journal::flush`].
    pub(crate) fn append(&mut self, entry: &Entry) {
        self.counts.entries += 1;
        let Some(store) = &mut self.store else { return };
        let start = self.buffer.len();
        entry.write_line(&mut self.buffer);
        let (at, length) = (store.length + start as u64, self.buffer.len() - start);
        store.closed.extend(closed_line(entry, at, length));
    }

    /// Writes the buffered entries. Afterwards their decisions may be published.
    ///
    /// # Errors
    /// [`JournalError::Write`], after which the journal must not be used: the last line may be torn.
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
        self.counts.written_bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Compacts the file when it has reached its bound. The arguments are the state after the last flush: every sample up to `floor` and
    /// every sample of `closed` is closed.
    ///
    /// # Errors
    /// [`JournalError::Write`]; the old file is then unchanged.
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
        self.counts.compactions += 1;
        Ok(())
    }
}

impl Store {
    /// Writes a new file beside the old one and renames it over the old one. The latest closed samples stay as whole lines, the others
    /// as ids: without its id a sample could be decided a second time after a restart. The account leaves the whole lines out, since replay
    /// counts them again.
    fn compact(
        &mut self,
        settled: &Settled,
        closed: &Entry,
        open: impl Iterator<Item = SampleId>,
    ) -> io::Result<()> {
        let surplus = self.closed.len().saturating_sub(MAX_WHOLE_LINES);
        self.closed.drain(..surplus);
        let mut earlier = settled.clone();
        for line in &self.closed {
            match line.dropped {
                None => earlier.decided = earlier.decided.saturating_sub(1),
                Some(reason) => {
                    earlier.dropped.entry(reason).and_modify(|count| *count = count.saturating_sub(1));
                }
            }
        }
        earlier.dropped.retain(|_, count| *count > 0);
        let mut text = Vec::new();
        Entry::Settled(earlier).write_line(&mut text);
        closed.write_line(&mut text);
        open.for_each(|sample| Entry::Opened(sample).write_line(&mut text));
        for line in &mut self.closed {
            let start = text.len();
            text.resize(start + line.length, 0);
            self.file.read_exact_at(&mut text[start..], line.at)?;
            line.at = start as u64;
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
        // The lines that stay may exceed the bound; compacting them every time would be useless.
        self.compact_at = self.max_bytes.max(2 * self.length);
        Ok(())
    }
}

/// Reader of a journal, line by line.
struct Lines<'a> {
    path: &'a Path,
    reader: BufReader<&'a File>,
    line: Vec<u8>,
    number: u64,
    /// Bytes of whole lines.
    length: u64,
    /// Bytes after the whole lines: a line whose end was never written.
    torn_bytes: u64,
    closed: VecDeque<ClosedLine>,
    /// Whether reading reached the last whole line.
    end: Result<(), JournalError>,
}

impl<'a> Lines<'a> {
    fn new(file: &'a File, path: &'a Path) -> Self {
        let (reader, line, closed) = (BufReader::new(file), Vec::new(), VecDeque::new());
        Self { path, reader, line, number: 0, length: 0, torn_bytes: 0, closed, end: Ok(()) }
    }

    /// The next entry; `None` at the end or at a torn line.
    fn read_entry(&mut self) -> Result<Option<Entry>, JournalError> {
        let path = || self.path.to_owned();
        self.line.clear();
        let length = self.reader.read_until(b'\n', &mut self.line);
        let length = length.map_err(|source| JournalError::Open { path: path(), source })?;
        if self.line.last() != Some(&b'\n') {
            self.torn_bytes = length as u64;
            return Ok(None);
        }
        self.number += 1;
        let entry = Entry::read_line(&self.line).map_err(|error| JournalError::NotAnEntry {
            path: path(),
            line: self.number,
            reason: error.to_string(),
        })?;
        self.closed.extend(closed_line(&entry, self.length, length));
        self.length += length as u64;
        Ok(Some(entry))
    }
}

impl Iterator for Lines<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        self.read_entry().unwrap_or_else(|error| {
            self.end = Err(error);
            None
        })
    }
}

fn closed_line(entry: &Entry, at: u64, length: usize) -> Option<ClosedLine> {
    match entry {
        Entry::Decided(_) => Some(ClosedLine { dropped: None, at, length }),
        Entry::Dropped { reason, .. } => Some(ClosedLine { dropped: Some(*reason), at, length }),
        Entry::Opened(_) | Entry::Settled(_) | Entry::Closed { .. } => None,
    }
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
    /// A whole line is no entry: the file was altered, or is no journal.
    #[error("journal {}: line {line} is not an entry ({reason}); move the file away to begin a new one", path.display())]
    NotAnEntry {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: u64,
        /// Why the line is no entry.
        reason: String,
    },
    /// The file cannot be written, so that no more samples may be decided.
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
