//! The last samples a device was asked to capture.

use std::collections::VecDeque;

use headwater_protocol::SampleId;

/// Ids remembered: a broker repeats a message within moments, not hundreds of samples later.
const REMEMBERED: usize = 128;

/// Tells a repeated trigger from a new one.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    ids: VecDeque<SampleId>,
    newest: SampleId,
}

impl Recent {
    /// Remembers a sample; false when it already was.
    pub(crate) fn admit(&mut self, sample: SampleId) -> bool {
        if self.ids.contains(&sample) {
            return false;
        }
        if self.ids.len() == REMEMBERED {
            self.ids.pop_front();
        }
        self.ids.push_back(sample);
        self.newest = self.newest.max(sample);
        true
    }

    /// The highest id so far; what the low half of an id in a header is widened by.
    pub(crate) fn newest(&self) -> SampleId {
        self.newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_trigger_is_told_from_a_new_one() {
        let mut recent = Recent::default();
        assert!(recent.admit(SampleId(5)));
        assert!(!recent.admit(SampleId(5)));
        assert!(recent.admit(SampleId(4)));
        assert_eq!(recent.newest(), SampleId(5));
    }

    #[test]
    fn memory_is_bounded() {
        let mut recent = Recent::default();
        assert!((0..10_000).all(|id| recent.admit(SampleId(id))));
        assert_eq!(recent.ids.len(), REMEMBERED);
    }
}
