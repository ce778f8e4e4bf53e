//! Reads a journal line by line, and finds the bytes that belong to no entry.
//!
//! ```text
//! {"opened":7}⏎  {"decided":{"sam  0 0 0 … 0  dence":1}}⏎  {"opened":9}⏎  {"deci
//! └─ an entry ┘  └──────── unreadable ───────────────────┘  └─ an entry ┘  └torn┘
//! ```
//!
//! The first line says the format, and so does the first line that each process adds. If damage took all of these lines, the file may be
//! of any format, and none of its lines counts.
//!
//! Entries contain no zero byte. A zero byte therefore ends a line as a newline does, and makes the line unreadable.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use headwater_inference::leader::journal::{Entry, FORMAT, OLDEST_FORMAT};

use super::JournalError;
use super::store::{ClosedLine, note_closed};

/// Longest line that is read, in bytes. The longest entry, the ids of closed samples, takes less than 2 MiB.
const MAX_LINE_BYTES: usize = 16 << 20;

/// Bytes of one read from the file.
const BLOCK_BYTES: usize = 1 << 16;

/// Most bytes that count as zeros after one read error: a page.
const PAGE_BYTES: u64 = 4096;

/// Size in bytes of the largest file without an entry that still counts as a journal: one whose first lines a kill or a power loss cut
/// short.
const MAX_FIRST_LINE_BYTES: u64 = 1 << 20;

/// Reader of a journal of a known length.
pub(super) struct Reader<'a> {
    file: &'a File,
    length: u64,
    block: Vec<u8>,
    /// Bytes of the block that were taken as part of a line.
    used: usize,
    /// Position of the next byte in the file.
    at: u64,
    line: Vec<u8>,
    readable: Vec<Range<u64>>,
    unreadable: Vec<Stretch>,
    closed: VecDeque<ClosedLine>,
    /// Highest format that a line says. Counts as 1 if the first line is an entry of format 1, which has no line for the format.
    format: Option<u16>,
    /// Error of the first line that could not be read as an entry.
    reason: Option<String>,
    /// The last read error of the disk.
    failure: Option<io::Error>,
}

/// Result of reading a journal: its unfinished last line, its damage and the lines of closed samples.
#[derive(Debug)]
pub(super) struct Read {
    /// Position in bytes of a last line that was never finished; `None` if the last line is whole.
    pub(super) torn: Option<u64>,
    pub(super) damage: Option<Damage>,
    /// True if there are entries but no line says the format. Then no entry counts.
    pub(super) is_of_unknown_format: bool,
    pub(super) closed: VecDeque<ClosedLine>,
}

/// The parts of a file with unreadable stretches.
#[derive(Debug)]
pub(super) struct Damage {
    /// Byte ranges of whole entries, in their order in the file.
    pub(super) readable: Vec<Range<u64>>,
    /// Byte ranges of the rest of the file, except a torn last line.
    pub(super) unreadable: Vec<Range<u64>>,
    /// True if an unreadable stretch ends at the end of the file.
    pub(super) ends_in_line: bool,
}

/// Bytes in a row that are no entries.
#[derive(Debug)]
struct Stretch {
    range: Range<u64>,
    /// True if the stretch may be the unfinished last line of a process that ended while it wrote.
    may_be_torn: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEnd {
    Newline,
    Zero,
    File,
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &'a File, length: u64) -> Self {
        Self {
            file,
            length,
            block: Vec::new(),
            used: 0,
            at: 0,
            line: Vec::new(),
            readable: Vec::new(),
            unreadable: Vec::new(),
            closed: VecDeque::new(),
            format: None,
            reason: None,
            failure: None,
        }
    }

    /// Decides if the file is a journal and which parts of it are damaged. Call this after the last entry was taken.
    ///
    /// # Errors
    /// [`JournalError::OtherFormat`] for a journal of another format. For a file without an entry: [`JournalError::Open`] after a read
    /// error, and [`JournalError::NotAJournal`] unless the bytes may be what a kill or a power loss left of the first entry.
    pub(super) fn finish(mut self, path: &Path) -> Result<Read, JournalError> {
        if let Some(found) = self.format.filter(|found| !(OLDEST_FORMAT..=FORMAT).contains(found)) {
            return Err(JournalError::OtherFormat { path: path.to_owned(), found });
        }
        let has_entries = !self.readable.is_empty();
        if has_entries && self.format.is_none() {
            let unreadable = std::iter::once(0..self.length).collect();
            let damage = Damage { readable: Vec::new(), unreadable, ends_in_line: true };
            let closed = VecDeque::new();
            return Ok(Read { torn: None, damage: Some(damage), is_of_unknown_format: true, closed });
        }
        let is_first_line = self.length <= MAX_FIRST_LINE_BYTES
            && self.unreadable.iter().all(|stretch| stretch.may_be_torn && stretch.range.end == self.length);
        if !has_entries && let Some(source) = self.failure {
            return Err(JournalError::Open { path: path.to_owned(), source });
        }
        if !has_entries && !is_first_line {
            let reason = self.reason.unwrap_or_else(|| "no line ends".into());
            return Err(JournalError::NotAJournal { path: path.to_owned(), reason });
        }
        // Without an entry nothing proves that this was a journal: the file is set aside, and its last line is not cut off.
        let is_torn = |last: &mut Stretch| has_entries && last.may_be_torn && last.range.end == self.length;
        let torn = self.unreadable.pop_if(is_torn).map(|last| last.range.start);
        let ends_in_line = self.unreadable.last().is_some_and(|last| last.range.end == self.length);
        let unreadable: Vec<_> = self.unreadable.into_iter().map(|stretch| stretch.range).collect();
        let damage = Some(Damage { readable: self.readable, unreadable, ends_in_line });
        let damage = damage.filter(|damage| !damage.unreadable.is_empty());
        Ok(Read { torn, damage, is_of_unknown_format: false, closed: self.closed })
    }

    /// Reads up to the end of a line, a zero byte or the end of the file; `None` if no byte is left. `line` then has the bytes before that
    /// end. For a line of more than [`MAX_LINE_BYTES`] it has a single `?`, which is no entry.
    fn read_line(&mut self) -> Option<LineEnd> {
        self.line.clear();
        let mut is_too_long = false;
        loop {
            if self.used == self.block.len() && !self.read_block() {
                let is_end = self.line.is_empty() && !is_too_long;
                return (!is_end).then_some(LineEnd::File);
            }
            let rest = &self.block[self.used..];
            let found = rest.iter().position(|byte| matches!(byte, b'\n' | 0));
            let taken = found.unwrap_or(rest.len());
            if self.line.len() + taken > MAX_LINE_BYTES {
                is_too_long = true;
                self.line = b"?".to_vec();
            } else if !is_too_long {
                self.line.extend_from_slice(&rest[..taken]);
            }
            let Some(end) = found else {
                self.take(taken);
                continue;
            };
            if rest[end] == b'\n' {
                self.take(end + 1);
                return Some(LineEnd::Newline);
            }
            let zeros = rest[end..].iter().take_while(|byte| **byte == 0).count();
            self.take(end + zeros);
            return Some(LineEnd::Zero);
        }
    }

    fn take(&mut self, bytes: usize) {
        self.used += bytes;
        self.at += bytes as u64;
    }

    /// Reads the next block; false at the end of the file. A page that the disk cannot read counts as zeros.
    fn read_block(&mut self) -> bool {
        let left = self.length - self.at;
        self.used = 0;
        self.block.resize(BLOCK_BYTES.min(left.try_into().unwrap_or(usize::MAX)), 0);
        if left == 0 {
            return false;
        }
        if let Err(error) = self.file.read_exact_at(&mut self.block, self.at) {
            let page = (PAGE_BYTES - self.at % PAGE_BYTES).min(left) as usize;
            self.block.resize(page, 0);
            if self.file.read_exact_at(&mut self.block, self.at).is_err() {
                self.block.fill(0);
                self.failure = Some(error);
            }
        }
        true
    }

    fn give_up(&mut self, range: Range<u64>, may_be_torn: bool) {
        match self.unreadable.last_mut() {
            Some(last) if last.range.end == range.start => {
                last.range.end = range.end;
                last.may_be_torn &= may_be_torn;
            }
            _ => self.unreadable.push(Stretch { range, may_be_torn }),
        }
    }
}

impl Iterator for Reader<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            let start = self.at;
            let end = self.read_line()?;
            let entry = Entry::read_line(&self.line);
            match &entry {
                Ok(Entry::Format(format)) => self.format = self.format.max(Some(*format)),
                _ if start == 0 && is_entry_of_1(&self.line) => self.format = Some(1),
                _ => {}
            }
            let is_whole = end == LineEnd::Newline;
            match entry {
                Ok(entry) if is_whole => {
                    note_closed(&mut self.closed, &entry, start, (self.at - start) as usize);
                    extend(&mut self.readable, start..self.at);
                    return Some(entry);
                }
                entry => {
                    let error = entry.err();
                    let is_begun = error.as_ref().is_none_or(serde_json::Error::is_eof);
                    self.reason = self.reason.take().or(error.map(|error| error.to_string()));
                    self.give_up(start..self.at, is_begun && !is_whole);
                }
            }
        }
    }
}

impl Read {
    /// Number of bytes in the unreadable stretches, without a torn last line.
    pub(super) fn unreadable_bytes(&self) -> u64 {
        let ranges = self.damage.iter().flat_map(|damage| &damage.unreadable);
        ranges.map(|range| range.end - range.start).sum()
    }
}

/// True if a line is an entry of format 1: an object with exactly one key, which is one of `KEYS`.
fn is_entry_of_1(line: &[u8]) -> bool {
    const KEYS: [&str; 7] =
        ["numbering", "opened", "decided", "dropped", "settled", "closed", "closed_ranges"];
    let line: Option<serde_json::Map<_, _>> = serde_json::from_slice(line).ok();
    line.is_some_and(|line| line.len() == 1 && line.keys().all(|key| KEYS.contains(&key.as_str())))
}

/// Appends a range, or lengthens the last range if the new one begins at its end.
fn extend(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}
