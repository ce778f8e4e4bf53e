//! The times at which samples are due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use headwater_protocol::SampleId;
use serde::{Deserialize, Serialize};

use super::Micros;

/// Timers of samples, earliest first. A timer is not removed when its sample ends a stage; the owner ignores the old timer.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Micros, SampleId)>>,
}

impl Timers {
    pub(crate) fn push(&mut self, at: Micros, sample: SampleId) {
        self.heap.push(Reverse((at, sample)));
    }

    /// Time of the earliest timer; `None` without timers. The timer's sample may have ended that stage already.
    pub(crate) fn earliest(&self) -> Option<Micros> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes out the earliest timer if it is due, and returns its sample; `None` if no timer is due.
    pub(crate) fn pop_due(&mut self, now: Micros) -> Option<SampleId> {
        let Reverse((at, sample)) = *self.heap.peek()?;
        if at > now {
            return None;
        }
        self.heap.pop();
        Some(sample)
    }
}
