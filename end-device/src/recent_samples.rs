//! The samples that a device captured most recently.

use std::collections::VecDeque;

use headwater_protocol::SampleId;

/// Ids remembered: a broker repeats a message within moments, not hundreds of samples later.
const MAX_IDS: usize = 128;

/// Distinguishes a new trigger from one that is repeated or goes backwards.
#[derive(Debug, Default)]
pub(crate) struct RecentSamples {
    /// In the order of their captures: ascending, but for a clock that was set back.
    ids: VecDeque<SampleId>,
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
}

impl RecentSamples {
    /// Classifies a sample, and remembers it when it is new.
    pub(crate) fn admit(&mut self, sample: SampleId) -> Admission {
        if self.ids.back().is_some_and(|newest| sample <= *newest) {
            return if self.ids.contains(&sample) { Admission::Repeated } else { Admission::Backwards };
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
    }

    /// The last id; it completes the low half of an id in a header.
    pub(crate) fn newest(&self) -> SampleId {
        self.ids.back().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
