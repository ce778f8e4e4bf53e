//! Reading a journal back, line by line.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use headwater_inference::leader::journal::{Entry, Recovered, replay};

use super::{Closing, JournalError, closing};

/// What stands in a journal.
pub(super) struct Read {
    pub(super) recovered: Recovered,
    pub(super) closings: VecDeque<Closing>,
    /// Bytes of whole lines.
    pub(super) length: u64,
    /// Bytes after them: a line whose end was never written.
    pub(super) torn_bytes: u64,
}

pub(super) fn read(file: &File, path: &Path) -> Result<Read, JournalError> {
    let mut lines =
        Lines { reader: BufReader::new(file), line: Vec::new(), number: 0, length: 0, torn_bytes: 0 };
    let mut closings = VecDeque::new();
    let mut failure = None;
    let recovered = replay(std::iter::from_fn(|| match lines.next(path) {
        Ok(Some((entry, at, length))) => {
            closings.extend(closing(&entry, at, length));
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
        None => Ok(Read { recovered, closings, length: lines.length, torn_bytes: lines.torn_bytes }),
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
    /// The next entry with its place and length; `None` at the end or at a torn line.
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
