//! The samples that a device captured most recently.

use std::collections::VecDeque;

use headwater_protocol::{JudgedTrigger, SampleId, TriggeredIds};

/// Number of remembered ids: a broker repeats a message within moments, not hundreds of samples later.
const MAX_IDS: usize = 128;

/// Distinguishes a new trigger from one that is repeated, goes backwards, or is too far ahead to be believed alone.
#[derive(Debug, Default)]
pub(crate) struct RecentSamples {
    /// In the order of capture: ascending, except after the clock was set back.
    ids: VecDeque<SampleId>,
    triggers: TriggeredIds,
    /// Captured samples whose triggers no second trigger has confirmed; all are among `ids`.
    unconfirmed: Vec<SampleId>,
}

/// Verdict on a trigger, by its sample's id and the ids before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// A new sample near the newest one, or the first sample.
    New,
    /// A new sample whose trigger confirms the trigger of this earlier sample: the earlier sample's answer may be sent now.
    Confirms(SampleId),
    /// A new sample far above the newest one. It is captured, and answered once a second trigger near it has come.
    Unconfirmed,
    /// The sample was captured before.
    Repeated,
    /// The id is not above the newest id: ids of a group only grow.
    Backwards,
    /// The id is above [`Trigger::MAX_ID`](headwater_protocol::Trigger::MAX_ID).
    TooHigh,
}

impl RecentSamples {
    /// Classifies a sample, and remembers it unless it is repeated, backwards or too high.
    pub(crate) fn admit(&mut self, sample: SampleId) -> Admission {
        if self.ids.contains(&sample) {
            return Admission::Repeated;
        }
        let admission = match self.triggers.judge(sample) {
            JudgedTrigger::Believed => Admission::New,
            JudgedTrigger::Confirms(first) => {
                self.unconfirmed.retain(|id| *id != first);
                Admission::Confirms(first)
            }
            JudgedTrigger::Unconfirmed => Admission::Unconfirmed,
            JudgedTrigger::Below => return Admission::Backwards,
            JudgedTrigger::TooHigh => return Admission::TooHigh,
        };
        self.remember(sample);
        if admission == Admission::Unconfirmed {
            self.unconfirmed.push(sample);
        }
        admission
    }

    /// Remembers a captured sample. An id of the device's own clock may be lower than the id before, after the clock was set back.
    pub(crate) fn remember(&mut self, sample: SampleId) {
        if self.ids.len() == MAX_IDS {
            let oldest = self.ids.pop_front();
            self.unconfirmed.retain(|id| Some(*id) != oldest);
        }
        self.ids.push_back(sample);
    }

    /// Takes the highest settled id of the leader's account. A device that followed a wrong trigger far above this id goes back to it.
    pub(crate) fn settle(&mut self, highest: SampleId) {
        self.triggers.settle(highest);
    }

    /// Whether a captured sample's trigger still waits for a second trigger that confirms it.
    pub(crate) fn is_unconfirmed(&self, sample: SampleId) -> bool {
        self.unconfirmed.contains(&sample)
    }

    /// Whether the newest trigger is far ahead, so that its sample waits for a second trigger near it.
    pub(crate) fn waits(&self) -> bool {
        self.triggers.unconfirmed().is_some()
    }

    /// The newest believed trigger; 0 before the first.
    pub(crate) fn newest(&self) -> SampleId {
        self.triggers.newest().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use headwater_protocol::Trigger;

    use super::Admission::{Backwards, Confirms, New, Repeated, TooHigh, Unconfirmed};
    use super::*;

    #[track_caller]
    fn check(recent: &mut RecentSamples, triggers: &[(u64, Admission)]) {
        for &(sample, expected) in triggers {
            assert_eq!(recent.admit(SampleId(sample)), expected, "{sample}");
        }
    }

    /// An id far from small ones.
    const FAR: u64 = 1 << 40;

    #[test]
    fn one_trigger_far_away_harms_nothing_and_its_sample_is_not_answered() {
        let mut recent = RecentSamples::default();
        check(
            &mut recent,
            &[(5, New), (FAR, Unconfirmed), (6, New), (FAR + 1, Unconfirmed), (7, New), (6, Repeated)],
        );
        let found = [5, FAR, 6, FAR + 1, 7].map(|id| recent.is_unconfirmed(SampleId(id)));
        assert_eq!(found, [false, true, false, true, false]);
        assert_eq!((recent.newest(), recent.waits()), (SampleId(7), false));
        check(&mut recent, &[(FAR + 2000, Unconfirmed)]);
        assert_eq!((recent.newest(), recent.waits()), (SampleId(7), true));
        check(
            &mut RecentSamples::default(),
            &[(Trigger::MAX_ID.0 + 1, TooHigh), (5, New), (u64::MAX, TooHigh)],
        );
    }

    #[test]
    fn a_second_trigger_confirms_the_one_before_and_a_repeated_one_is_no_second() {
        let mut recent = RecentSamples::default();
        let first = Confirms(SampleId(FAR));
        check(
            &mut recent,
            &[(5, New), (FAR, Unconfirmed), (FAR, Repeated), (FAR + 1, first), (6, Backwards)],
        );
        assert!(!recent.is_unconfirmed(SampleId(FAR)) && !recent.is_unconfirmed(SampleId(FAR + 1)));
    }

    #[test]
    fn a_device_whose_first_trigger_was_wrong_follows_the_leader_s_account() {
        let mut recent = RecentSamples::default();
        check(&mut recent, &[(FAR, New), (5, Backwards)]);
        recent.settle(SampleId(4));
        check(&mut recent, &[(5, New), (6, New), (FAR, Repeated), (FAR + 1, Unconfirmed)]);
    }

    #[test]
    fn a_repeated_trigger_is_distinguished_from_one_that_goes_backwards() {
        let mut recent = RecentSamples::default();
        check(&mut recent, &[(0, New), (5, New), (5, Repeated), (0, Repeated), (4, Backwards), (6, New)]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut recent = RecentSamples::default();
        for id in 0..10_000 {
            recent.admit(SampleId(2000 * id));
        }
        assert!(recent.ids.len() == MAX_IDS && recent.unconfirmed.len() <= MAX_IDS);
    }
}
