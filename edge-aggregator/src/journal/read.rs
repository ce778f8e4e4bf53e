//! Reading of a journal, line by line.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use headwater_inference::leader::journal::{Entry, Recovered, replay};

use super::{ClosedLine, JournalError, closed_line};

/// Contents of a journal.
pub(super) struct Contents {
    pub(super) recovered: Recovered,
    pub(super) closed: VecDeque<ClosedLine>,
    /// Bytes of whole lines.
    pub(super) length: u64,
    /// Bytes after the whole lines: a line whose end was never written.
    pub(super) torn_bytes: u64,
}

pub(super) fn read(file: &File, path: &Path) -> Result<Contents, JournalError> {
    let mut lines =
        Lines { reader: BufReader::new(file), line: Vec::new(), number: 0, length: 0, torn_bytes: 0 };
    let mut closed = VecDeque::new();
    let mut failure = None;
    let recovered = replay(std::iter::from_fn(|| match lines.next(path) {
        Ok(Some((entry, at, length))) => {
            closed.extend(closed_line(&entry, at, length));
            Some(entry)
        }
        Ok(None) => None,
        Err(error) => {
            failure = Some(error);
            None
        }
    }));
    match failure {
        Some(error) => Err(error),
        None => Ok(Contents { recovered, closed, length: lines.length, torn_bytes: lines.torn_bytes }),
    }
}

struct Lines<'a> {
    reader: BufReader<&'a File>,
    line: Vec<u8>,
    number: u64,
    length: u64,
    torn_bytes: u64,
}

impl Lines<'_> {
    /// The next entry with its position and length; `None` at the end or at a torn line.
    fn next(&mut self, path: &Path) -> Result<Option<(Entry, u64, usize)>, JournalError> {
        self.line.clear();
        let found = self.reader.read_until(b'\n', &mut self.line);
        let found = found.map_err(|source| JournalError::Open { path: path.to_owned(), source })?;
        if self.line.last() != Some(&b'\n') {
            self.torn_bytes = found as u64;
            return Ok(None);
        }
        self.number += 1;
        let entry = Entry::read_line(&self.line).map_err(|error| JournalError::NotAnEntry {
            path: path.to_owned(),
            line: self.number,
            reason: error.to_string(),
        })?;
        let at = self.length;
        self.length += found as u64;
        Ok(Some((entry, at, found)))
    }
}
