//! The samples that are decided or dropped: enough of them to tell a straggler from a new sample.

use std::collections::{HashMap, VecDeque};

use headwater_protocol::{Decision, Dropped, SampleId, Settled};

/// Closed samples that are remembered one by one. A straggler older than all of them is ignored.
const REMEMBERED: usize = 8192;

/// Decisions made without the cloud, kept in case its answer still comes.
const REVISABLE: usize = 256;

#[derive(Default)]
pub(super) struct Closed {
    order: VecDeque<SampleId>,
    /// How often each remembered sample stands in `order` (once; a map for its fast look-up).
    known: HashMap<SampleId, ()>,
    /// Everything at or below it that is not open is closed.
    forgotten: Option<SampleId>,
    revisable: VecDeque<Decision>,
    settled: Settled,
}

impl Closed {
    /// Whether the sample is closed already, or so old that it cannot be told.
    pub(super) fn contains(&self, sample: SampleId) -> bool {
        self.forgotten.is_some_and(|forgotten| sample <= forgotten) || self.known.contains_key(&sample)
    }

    pub(super) fn decided(&mut self, sample: SampleId) {
        self.settled.decided += 1;
        self.remember(sample);
    }

    pub(super) fn dropped(&mut self, sample: SampleId, reason: Dropped) {
        *self.settled.dropped.entry(reason).or_default() += 1;
        self.remember(sample);
    }

    /// Moves `highest` up, given the oldest sample that is still open.
    pub(super) fn settle(&mut self, oldest_open: Option<SampleId>, newest: SampleId) {
        let highest = match oldest_open {
            None => newest,
            Some(open) => self.largest_below(open).unwrap_or(self.settled.highest),
        };
        self.settled.highest = self.settled.highest.max(highest);
    }

    pub(super) fn settled(&self) -> &Settled {
        &self.settled
    }

    /// Takes over the account of an earlier life.
    pub(super) fn restore(&mut self, settled: Settled) {
        self.forgotten = (settled.highest > SampleId(0)).then_some(settled.highest);
        self.settled = settled;
    }

    pub(super) fn keep_revisable(&mut self, decision: Decision) {
        if self.revisable.len() == REVISABLE {
            self.revisable.pop_front();
        }
        self.revisable.push_back(decision);
    }

    pub(super) fn take_revisable(&mut self, sample: SampleId) -> Option<Decision> {
        let at = self.revisable.iter().position(|decision| decision.sample == sample)?;
        self.revisable.remove(at)
    }

    fn remember(&mut self, sample: SampleId) {
        if self.order.len() == REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
            self.forgotten = Some(self.forgotten.map_or(oldest, |forgotten| forgotten.max(oldest)));
        }
        self.order.push_back(sample);
        self.known.insert(sample, ());
    }

    /// Samples close nearly in order, so the search from the newest end is short.
    fn largest_below(&self, open: SampleId) -> Option<SampleId> {
        self.order.iter().rev().take(64).copied().filter(|&sample| sample < open).max()
    }
}
