//! Samples that are decided or dropped. A message that comes afterwards does not open its sample again.

use std::collections::{BTreeSet, VecDeque};

use headwater_protocol::{Decision, Dropped, SampleId, Settled};

/// Largest number of closed samples kept one by one; beyond it the lowest ids move below the floor. Devices send their spools from the
/// lowest id up, so the low ids are done first.
const MAX_SAMPLES: usize = 65_536;

/// Largest number of decisions that a cloud answer after the deadline may still revise.
const MAX_REVISABLE: usize = 256;

/// Closed samples, and the account of all of them.
///
/// ```text
///      floor        samples one by one
/// ──────┤────────────■──■■────■■■──────> id
///  all closed        only these closed
/// ```
#[derive(Default)]
pub(super) struct ClosedSamples {
    samples: BTreeSet<SampleId>,
    /// Every sample up to this id is closed, unless it is open.
    floor: Option<SampleId>,
    /// Samples of late messages that no published notice has named, lowest first.
    pub(super) late: BTreeSet<SampleId>,
    revisable: VecDeque<Decision>,
    pub(super) settled: Settled,
}

impl ClosedSamples {
    /// Whether the sample is closed, or too old to be opened.
    pub(super) fn contains(&self, sample: SampleId) -> bool {
        self.floor.is_some_and(|floor| sample <= floor) || self.samples.contains(&sample)
    }

    pub(super) fn decided(&mut self, sample: SampleId) {
        self.settled.decided += 1;
        self.remember(sample);
    }

    pub(super) fn dropped(&mut self, sample: SampleId, reason: Dropped) {
        *self.settled.dropped.entry(reason).or_default() += 1;
        self.remember(sample);
    }

    /// Raises `highest` to the largest closed sample below the oldest open one; to `newest` if none is open.
    pub(super) fn settle(&mut self, oldest_open: Option<SampleId>, newest: SampleId) {
        let highest = match oldest_open {
            None => newest,
            Some(open) => self.largest_below(open).unwrap_or(self.settled.highest),
        };
        self.settled.highest = self.settled.highest.max(highest);
    }

    /// Takes the account of a journal: every sample up to `floor` is closed, and so is each in `closed`.
    pub(super) fn restore(&mut self, settled: Settled, floor: SampleId, closed: Vec<SampleId>) {
        self.floor = (floor > SampleId(0)).then_some(floor);
        self.settled = settled;
        closed.into_iter().for_each(|sample| self.remember(sample));
    }

    /// Every sample up to this id is closed, unless it is open; 0 where none was forgotten.
    pub(super) fn floor(&self) -> SampleId {
        self.floor.unwrap_or_default()
    }

    /// Closed samples above the floor, lowest first.
    pub(super) fn samples(&self) -> impl Iterator<Item = SampleId> + '_ {
        self.samples.iter().copied()
    }

    /// Notes that devices wait to read that this late sample is closed.
    pub(super) fn add_late(&mut self, sample: SampleId) {
        // A device resends a sample that no notice names, so a full set loses nothing.
        if self.late.len() < MAX_SAMPLES {
            self.late.insert(sample);
        }
    }

    /// Takes out the late samples of a published notice.
    pub(super) fn remove_late(&mut self, samples: &[SampleId]) {
        samples.iter().for_each(|sample| _ = self.late.remove(sample));
    }

    pub(super) fn keep_revisable(&mut self, decision: Decision) {
        if self.revisable.len() == MAX_REVISABLE {
            self.revisable.pop_front();
        }
        self.revisable.push_back(decision);
    }

    pub(super) fn take_revisable(&mut self, sample: SampleId) -> Option<Decision> {
        let at = self.revisable.iter().position(|decision| decision.sample == sample)?;
        self.revisable.remove(at)
    }

    fn remember(&mut self, sample: SampleId) {
        self.samples.insert(sample);
        if self.samples.len() > MAX_SAMPLES {
            self.floor = self.floor.max(self.samples.pop_first());
        }
    }

    fn largest_below(&self, open: SampleId) -> Option<SampleId> {
        self.samples.range(..open).next_back().copied()
    }
}

#[cfg(test)]
mod tests {
    use headwater_protocol::{HopBytes, NetworkId, PolicyId, Presence, Stages};

    use super::*;

    const LAST: u64 = MAX_SAMPLES as u64;

    fn closed(samples: impl IntoIterator<Item = u64>) -> ClosedSamples {
        let mut closed = ClosedSamples::default();
        samples.into_iter().for_each(|sample| closed.decided(SampleId(sample)));
        closed
    }

    #[test]
    fn the_lowest_samples_go_first_and_count_as_closed() {
        let mut closed = closed(1..=LAST);
        assert!(!closed.contains(SampleId(0)) && closed.contains(SampleId(1)));
        assert_eq!((closed.floor(), closed.samples().count()), (SampleId(0), MAX_SAMPLES));
        closed.decided(SampleId(LAST + 10));
        assert_eq!((closed.floor(), closed.samples().count()), (SampleId(1), MAX_SAMPLES));
        assert!([0, 1, 2, LAST + 10].into_iter().all(|sample| closed.contains(SampleId(sample))));
        assert!(!closed.contains(SampleId(LAST + 1)));
    }

    #[test]
    fn a_restored_account_is_closed_up_to_its_floor() {
        for (floor, is_closed) in [(0, false), (5, true)] {
            let mut closed = ClosedSamples::default();
            let settled = Settled { highest: SampleId(9), decided: 4, ..Settled::default() };
            closed.restore(settled.clone(), SampleId(floor), vec![SampleId(7), SampleId(9)]);
            assert_eq!(closed.settled, settled, "what is restored is counted already");
            assert_eq!(closed.contains(SampleId(floor)), is_closed);
            let found = [6, 7, 8, 9, 10].map(|sample| closed.contains(SampleId(sample)));
            assert_eq!(found, [false, true, false, true, false]);
            assert_eq!(closed.floor(), SampleId(floor));
        }
    }

    #[test]
    fn a_bounded_number_of_late_samples_waits_for_the_notice() {
        let mut closed = ClosedSamples::default();
        (1..=LAST + 5).for_each(|sample| closed.add_late(SampleId(sample)));
        assert_eq!((closed.late.len(), closed.late.last()), (MAX_SAMPLES, Some(&SampleId(LAST))));
        closed.remove_late(&[SampleId(1), SampleId(3)]);
        assert_eq!(closed.late.len(), MAX_SAMPLES - 2);
        closed.add_late(SampleId(LAST + 7));
        assert_eq!(closed.late.last(), Some(&SampleId(LAST + 7)));
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
        let mut closed = ClosedSamples::default();
        (0..=MAX_REVISABLE as u64).for_each(|sample| closed.keep_revisable(decision(sample)));
        assert_eq!(closed.take_revisable(SampleId(0)), None);
        for sample in [1, 2, MAX_REVISABLE as u64] {
            assert_eq!(closed.take_revisable(SampleId(sample)), Some(decision(sample)));
            assert_eq!(closed.take_revisable(SampleId(sample)), None);
        }
    }

    #[test]
    fn highest_is_the_largest_closed_sample_below_the_oldest_open_one_and_never_falls() {
        let mut closed = closed([2, 5, 8]);
        closed.dropped(SampleId(3), Dropped::Shed);
        closed.settle(Some(SampleId(2)), SampleId(8));
        assert_eq!(closed.settled.highest, SampleId(0), "nothing is closed below the open sample");
        closed.settle(Some(SampleId(5)), SampleId(8));
        assert_eq!(closed.settled.highest, SampleId(3));
        closed.settle(None, SampleId(9));
        assert_eq!(closed.settled.highest, SampleId(9));
        closed.settle(Some(SampleId(4)), SampleId(9));
        assert_eq!(closed.settled.highest, SampleId(9));
        assert_eq!((closed.settled.decided, closed.settled.dropped[&Dropped::Shed]), (3, 1));
    }
}
