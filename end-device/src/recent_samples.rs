//! The samples that a device captured most recently.

use std::collections::VecDeque;

use headwater_protocol::{SampleId, Trigger};

/// Ids remembered: a broker repeats a message within moments, not hundreds of samples later.
const MAX_IDS: usize = 128;

/// Distinguishes a new trigger from one that is repeated or goes backwards.
#[derive(Debug, Default)]
pub(crate) struct RecentSamples {
    /// In the order of their captures: ascending, but for a clock that was set back.
    ids: VecDeque<SampleId>,
    /// The latest trigger, where it was refused because its id is far from the newest one.
    refused_far: Option<SampleId>,
}

/// Position of a sample among those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The newest sample; it is now remembered.
    New,
    /// It was captured before.
    Repeated,
    /// Its id is lower than the newest one: ids of a group only grow.
    Backwards,
    /// Its id is more than [`Trigger::MAX_STEP`] from the newest one, or above [`Trigger::MAX_ID`].
    Implausible,
}

impl RecentSamples {
    /// Classifies a sample, and remembers it when it is new.
    ///
    /// One id far from the newest may be a mistake. A second one near it, and not the same, is a new numbering.
    pub(crate) fn admit(&mut self, sample: SampleId) -> Admission {
        if self.ids.contains(&sample) {
            return Admission::Repeated;
        }
        if sample > Trigger::MAX_ID {
            return Admission::Implausible;
        }
        if let Some(newest) = self.ids.back().copied() {
            if is_far(sample, newest) {
                let is_new_numbering =
                    self.refused_far.is_some_and(|far| far != sample && !is_far(sample, far));
                if !is_new_numbering {
                    self.refused_far = Some(sample);
                    return Admission::Implausible;
                }
                // Ids of the earlier numbering say nothing about those of the new one.
                self.ids.clear();
            } else if sample < newest {
                self.refused_far = None;
                return Admission::Backwards;
            }
        }
        self.remember(sample);
        Admission::New
    }

    /// Remembers a new sample whose id is the device's own. It may be lower than the one before, after the clock was set back.
    pub(crate) fn remember(&mut self, sample: SampleId) {
        if self.ids.len() == MAX_IDS {
            self.ids.pop_front();
        }
        self.ids.push_back(sample);
        self.refused_far = None;
    }

    /// The last id.
    pub(crate) fn newest(&self) -> SampleId {
        self.ids.back().copied().unwrap_or_default()
    }
}

fn is_far(sample: SampleId, other: SampleId) -> bool {
    sample.0.abs_diff(other.0) > Trigger::MAX_STEP
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(triggers: &[(u64, Admission)]) {
        let mut recent = RecentSamples::default();
        for &(sample, expected) in triggers {
            assert_eq!(recent.admit(SampleId(sample)), expected, "{sample}");
        }
    }

    /// An id far from small ones.
    const FAR: u64 = 1 << 40;

    #[test]
    fn one_trigger_far_away_harms_nothing() {
        use Admission::{Implausible, New};
        check(&[(5, New), (FAR, Implausible), (6, New), (FAR + 1, Implausible), (7, New)]);
        check(&[(5, New), (u64::MAX, Implausible), (u64::MAX, Implausible), (6, New)]);
        check(&[(FAR, New), (5, Implausible), (FAR + 1, New), (6, Implausible)]);
        check(&[(0, New), (Trigger::MAX_STEP, New), (2 * Trigger::MAX_STEP + 1, Implausible)]);
    }

    #[test]
    fn an_id_that_came_first_by_mistake_is_left_after_one_sample() {
        use Admission::{Backwards, Implausible, New, Repeated};
        check(&[(FAR, New), (5, Implausible), (6, New), (7, New), (6, Repeated), (3, Backwards)]);
    }

    #[test]
    fn a_new_numbering_needs_two_triggers_and_a_repeated_one_is_no_second() {
        use Admission::{Implausible, New};
        check(&[(5, New), (FAR, Implausible), (FAR, Implausible), (FAR + 1, New), (6, Implausible)]);
        check(&[(5, New), (FAR, Implausible), (2 * FAR, Implausible), (2 * FAR - 1, New)]);
    }

    #[test]
    fn an_id_after_which_ids_run_out_is_never_taken() {
        use Admission::{Implausible, New};
        check(&[(u64::MAX, Implausible), (u64::MAX - 1, Implausible), (1, New)]);
        check(&[(Trigger::MAX_ID.0, New), (Trigger::MAX_ID.0 + 1, Implausible)]);
    }

    #[test]
    fn a_repeated_trigger_is_distinguished_from_a_new_one() {
        let mut recent = RecentSamples::default();
        assert_eq!(recent.admit(SampleId(0)), Admission::New);
        assert_eq!(recent.admit(SampleId(5)), Admission::New);
        assert_eq!(recent.admit(SampleId(5)), Admission::Repeated);
        assert_eq!(recent.admit(SampleId(0)), Admission::Repeated);
        assert_eq!(recent.newest(), SampleId(5));
    }

    #[test]
    fn a_trigger_that_goes_backwards_is_distinguished_from_a_repeated_one() {
        let mut recent = RecentSamples::default();
        recent.admit(SampleId(5));
        assert_eq!(recent.admit(SampleId(4)), Admission::Backwards);
        assert_eq!(recent.admit(SampleId(6)), Admission::New);
        assert_eq!(recent.newest(), SampleId(6));
        recent.remember(SampleId(3));
        assert_eq!(recent.newest(), SampleId(3), "the clock was set back");
    }

    #[test]
    fn memory_is_bounded() {
        let mut recent = RecentSamples::default();
        assert!((0..10_000).all(|id| recent.admit(SampleId(id)) == Admission::New));
        assert_eq!(recent.ids.len(), MAX_IDS);
    }
}
