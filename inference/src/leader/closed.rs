//! The samples that are decided or dropped: enough of them to tell a straggler from a new sample.

use std::collections::{BTreeSet, VecDeque};

use headwater_protocol::{Decision, Dropped, SampleId, Settled};

/// Closed samples that are remembered one by one, those of the highest ids. Devices send what they could not send before from the lowest
/// id up, so what is forgotten first is what they are through with.
const REMEMBERED: usize = 65_536;

/// Decisions made without the cloud, kept in case its answer still comes.
const REVISABLE: usize = 256;

#[derive(Default)]
pub(super) struct Closed {
    known: BTreeSet<SampleId>,
    /// Everything at or below it that is not open is closed.
    forgotten: Option<SampleId>,
    /// Closed samples of which late messages came; devices wait to read their ids.
    late: BTreeSet<SampleId>,
    revisable: VecDeque<Decision>,
    settled: Settled,
}

impl Closed {
    /// Whether the sample is closed already, or so old that it cannot be told.
    pub(super) fn contains(&self, sample: SampleId) -> bool {
        self.forgotten.is_some_and(|forgotten| sample <= forgotten) || self.known.contains(&sample)
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

    /// Takes over the account of an earlier life: everything up to `floor` is closed, and so are these.
    pub(super) fn restore(&mut self, settled: Settled, floor: SampleId, closed: Vec<SampleId>) {
        self.forgotten = (floor > SampleId(0)).then_some(floor);
        self.settled = settled;
        closed.into_iter().for_each(|sample| self.remember(sample));
    }

    /// Samples that are closed for certain: all up to the first, and the others.
    pub(super) fn remembered(&self) -> (SampleId, impl Iterator<Item = SampleId> + '_) {
        (self.forgotten.unwrap_or_default(), self.known.iter().copied())
    }

    /// A late message came of a closed sample, or its sample is closed now.
    pub(super) fn tell_late(&mut self, sample: SampleId) {
        // A device says it again when it does not read it, so a bound loses nothing.
        if self.late.len() < REMEMBERED {
            self.late.insert(sample);
        }
    }

    /// Some of the samples that devices wait to read of, lowest first.
    pub(super) fn late(&self) -> impl ExactSizeIterator<Item = SampleId> + '_ {
        self.late.iter().copied()
    }

    /// The devices were told.
    pub(super) fn told_late(&mut self, samples: &[SampleId]) {
        samples.iter().for_each(|sample| _ = self.late.remove(sample));
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
        self.known.insert(sample);
        if self.known.len() > REMEMBERED {
            self.forgotten = self.forgotten.max(self.known.pop_first());
        }
    }

    fn largest_below(&self, open: SampleId) -> Option<SampleId> {
        self.known.range(..open).next_back().copied()
    }
}
