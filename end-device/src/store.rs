//! Features kept until they are asked for, settled, or too old.

use std::collections::BTreeMap;

use headwater_protocol::SampleId;

/// Feature bits by sample, bounded by count and by age. Time comes in as microseconds since the device's start.
#[derive(Debug)]
pub(crate) struct FeatureStore {
    kept: BTreeMap<SampleId, Kept>,
    most_samples: usize,
    keep_us: u64,
}

#[derive(Debug)]
struct Kept {
    captured_us: u64,
    features: Vec<u8>,
}

/// Features of one sample, and when it was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Features<'a> {
    pub(crate) captured_us: u64,
    pub(crate) bits: &'a [u8],
}

impl FeatureStore {
    pub(crate) fn new(most_samples: usize, keep_ms: u64) -> Self {
        Self { kept: BTreeMap::new(), most_samples, keep_us: keep_ms.saturating_mul(1000) }
    }

    /// Keeps the features of a sample; makes room by giving up those too old, then those of the lowest ids.
    pub(crate) fn keep(&mut self, sample: SampleId, captured_us: u64, features: Vec<u8>, now_us: u64) {
        self.kept.insert(sample, Kept { captured_us, features });
        while let Some(first) = self.kept.first_entry() {
            let too_old = is_too_old(first.get(), self.keep_us, now_us);
            if !too_old && self.kept.len() <= self.most_samples {
                break;
            }
            self.kept.pop_first();
        }
    }

    /// What is kept of a sample.
    pub(crate) fn get(&self, sample: SampleId, now_us: u64) -> Option<Features<'_>> {
        let kept = self.kept.get(&sample).filter(|kept| !is_too_old(kept, self.keep_us, now_us))?;
        Some(Features { captured_us: kept.captured_us, bits: &kept.features })
    }

    /// Frees every sample up to `highest`.
    pub(crate) fn settle(&mut self, highest: SampleId) {
        while self.kept.first_entry().is_some_and(|first| *first.key() <= highest) {
            self.kept.pop_first();
        }
    }

    /// True when nothing is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Samples kept.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }
}

fn is_too_old(kept: &Kept, keep_us: u64, now_us: u64) -> bool {
    now_us.saturating_sub(kept.captured_us) > keep_us
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store_of(samples: u64, most: usize) -> FeatureStore {
        let mut store = FeatureStore::new(most, 10);
        for id in 0..samples {
            store.keep(SampleId(id), id, vec![id as u8], id);
        }
        store
    }

    fn ids(store: &FeatureStore) -> Vec<u64> {
        store.kept.keys().map(|id| id.0).collect()
    }

    #[test]
    fn the_lowest_ids_go_when_the_store_is_full() {
        assert_eq!(ids(&store_of(5, 3)), [2, 3, 4]);
    }

    #[test]
    fn features_that_are_too_old_are_gone_and_freed() {
        let mut store = store_of(3, 10);
        assert_eq!(store.get(SampleId(1), 10_001), Some(Features { captured_us: 1, bits: &[1] }));
        assert_eq!(store.get(SampleId(1), 10_002), None);
        store.keep(SampleId(9), 10_002, vec![], 10_002);
        assert_eq!(ids(&store), [2, 9]);
    }

    #[test]
    fn settled_samples_are_freed() {
        let mut store = store_of(5, 10);
        store.settle(SampleId(2));
        assert_eq!(ids(&store), [3, 4]);
        assert_eq!(store.len(), 2);
    }

    #[test]
    fn an_unknown_sample_is_gone() {
        assert_eq!(store_of(5, 10).get(SampleId(7), 0), None);
    }
}
