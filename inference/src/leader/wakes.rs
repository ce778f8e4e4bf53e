//! When something is due next. Entries of samples that moved on or closed are stale and skipped when they come up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use headwater_protocol::SampleId;

use super::Micros;

#[derive(Default)]
pub(crate) struct Wakes {
    heap: BinaryHeap<Reverse<(Micros, SampleId)>>,
}

impl Wakes {
    pub(crate) fn push(&mut self, at: Micros, sample: SampleId) {
        self.heap.push(Reverse((at, sample)));
    }

    /// The earliest entry, stale or not.
    pub(crate) fn earliest(&self) -> Option<Micros> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the next entry that is due.
    pub(crate) fn pop_due(&mut self, now: Micros) -> Option<SampleId> {
        let Reverse((at, sample)) = *self.heap.peek()?;
        if at > now {
            return None;
        }
        self.heap.pop();
        Some(sample)
    }
}
