//! The last samples a device was asked to capture.

use std::collections::VecDeque;

use headwater_protocol::SampleId;

/// Ids remembered: a broker repeats a message within moments, not hundreds of samples later.
const REMEMBERED: usize = 128;

/// Tells a repeated trigger, or one that goes backwards, from a new one.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    ids: VecDeque<SampleId>,
}

/// What a sample is to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The newest; it is remembered.
    New,
    /// It was captured already.
    Repeated,
    /// It lies before the newest: ids of a group only grow.
    Backwards,
}

impl Recent {
    /// Remembers a sample that is newer than all before it.
    pub(crate) fn admit(&mut self, sample: SampleId) -> Admission {
        // Ids are remembered in the order in which they grow.
        match self.ids.back() {
            Some(newest) if sample <= *newest => {
                return if self.ids.contains(&sample) { Admission::Repeated } else { Admission::Backwards };
            }
            _ => {}
        }
        if self.ids.len() == REMEMBERED {
            self.ids.pop_front();
        }
        self.ids.push_back(sample);
        Admission::New
    }

    /// The highest id so far; what the low half of an id in a header is widened by.
    pub(crate) fn newest(&self) -> SampleId {
        self.ids.back().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_trigger_is_told_from_a_new_one() {
        let mut recent = Recent::default();
        assert_eq!(recent.admit(SampleId(0)), Admission::New);
        assert_eq!(recent.admit(SampleId(5)), Admission::New);
        assert_eq!(recent.admit(SampleId(5)), Admission::Repeated);
        assert_eq!(recent.admit(SampleId(0)), Admission::Repeated);
        assert_eq!(recent.newest(), SampleId(5));
    }

    #[test]
    fn a_trigger_that_goes_backwards_is_told_from_a_repeated_one() {
        let mut recent = Recent::default();
        recent.admit(SampleId(5));
        assert_eq!(recent.admit(SampleId(4)), Admission::Backwards);
        assert_eq!(recent.admit(SampleId(6)), Admission::New);
        assert_eq!(recent.newest(), SampleId(6));
    }

    #[test]
    fn memory_is_bounded() {
        let mut recent = Recent::default();
        assert!((0..10_000).all(|id| recent.admit(SampleId(id)) == Admission::New));
        assert_eq!(recent.ids.len(), REMEMBERED);
    }
}
