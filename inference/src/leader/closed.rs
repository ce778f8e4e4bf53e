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

#[cfg(test)]
mod tests {
    use headwater_protocol::{HopBytes, NetworkId, PolicyId, Presence, Stages};

    use super::*;

    const LAST: u64 = REMEMBERED as u64;

    fn closed(samples: impl IntoIterator<Item = u64>) -> Closed {
        let mut closed = Closed::default();
        samples.into_iter().for_each(|sample| closed.decided(SampleId(sample)));
        closed
    }

    #[test]
    fn the_lowest_samples_are_forgotten_first_and_count_as_closed() {
        let mut closed = closed(1..=LAST);
        assert!(!closed.contains(SampleId(0)) && closed.contains(SampleId(1)));
        let (floor, known) = closed.remembered();
        assert_eq!((floor, known.count()), (SampleId(0), REMEMBERED));
        closed.decided(SampleId(LAST + 10));
        let (floor, known) = closed.remembered();
        assert_eq!((floor, known.count()), (SampleId(1), REMEMBERED));
        assert!([0, 1, 2, LAST + 10].into_iter().all(|sample| closed.contains(SampleId(sample))));
        assert!(!closed.contains(SampleId(LAST + 1)));
    }

    #[test]
    fn a_restored_account_is_closed_up_to_its_floor() {
        for (floor, is_closed) in [(0, false), (5, true)] {
            let mut closed = Closed::default();
            let settled = Settled { highest: SampleId(9), decided: 4, ..Settled::default() };
            closed.restore(settled.clone(), SampleId(floor), vec![SampleId(7), SampleId(9)]);
            assert_eq!(closed.settled(), &settled, "what is restored is counted already");
            assert_eq!(closed.contains(SampleId(floor)), is_closed);
            let found = [6, 7, 8, 9, 10].map(|sample| closed.contains(SampleId(sample)));
            assert_eq!(found, [false, true, false, true, false]);
            assert_eq!(closed.remembered().0, SampleId(floor));
        }
    }

    #[test]
    fn a_bounded_number_of_late_samples_waits_for_the_notice() {
        let mut closed = Closed::default();
        (1..=LAST + 5).for_each(|sample| closed.tell_late(SampleId(sample)));
        assert_eq!((closed.late().len(), closed.late().last()), (REMEMBERED, Some(SampleId(LAST))));
        closed.told_late(&[SampleId(1), SampleId(3)]);
        assert_eq!(closed.late().len(), REMEMBERED - 2);
        closed.tell_late(SampleId(LAST + 7));
        assert_eq!(closed.late().last(), Some(SampleId(LAST + 7)));
    }

    #[test]
    fn a_bounded_number_of_decisions_can_be_revised_each_once() {
        let decision = |sample| Decision {
            sample: SampleId(sample),
            class: 0,
            label: String::new(),
            confidence: 0.0,
            exit: headwater_protocol::Exit::Local,
            presence: Presence::missing(1),
            degraded: Vec::new(),
            network: NetworkId([0; 32]),
            policy: PolicyId([0; 8]),
            stages: Stages::default(),
            bytes: HopBytes::default(),
        };
        let mut closed = Closed::default();
        (0..=REVISABLE as u64).for_each(|sample| closed.keep_revisable(decision(sample)));
        assert_eq!(closed.take_revisable(SampleId(0)), None);
        for sample in [1, 2, REVISABLE as u64] {
            assert_eq!(closed.take_revisable(SampleId(sample)), Some(decision(sample)));
            assert_eq!(closed.take_revisable(SampleId(sample)), None);
        }
    }

    #[test]
    fn highest_is_the_largest_closed_sample_below_the_oldest_open_one_and_never_falls() {
        let mut closed = closed([2, 5, 8]);
        closed.dropped(SampleId(3), Dropped::Shed);
        closed.settle(Some(SampleId(2)), SampleId(8));
        assert_eq!(closed.settled().highest, SampleId(0), "nothing is closed below the open sample");
        closed.settle(Some(SampleId(5)), SampleId(8));
        assert_eq!(closed.settled().highest, SampleId(3));
        closed.settle(None, SampleId(9));
        assert_eq!(closed.settled().highest, SampleId(9));
        closed.settle(Some(SampleId(4)), SampleId(9));
        assert_eq!(closed.settled().highest, SampleId(9));
        assert_eq!((closed.settled().decided, closed.settled().dropped[&Dropped::Shed]), (3, 1));
    }
}
