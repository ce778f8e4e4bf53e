//! What was sent on the present connection and is not settled: in memory, until it is settled or there is too much of it.

use std::collections::BTreeMap;

use bytes::Bytes;
use headwater_protocol::{SampleId, SettledNotice};

/// Samples bounded by count and by age. Time comes in as microseconds since the device's start.
#[derive(Debug)]
pub(crate) struct Store {
    held: BTreeMap<SampleId, Held>,
    most_samples: usize,
    keep_us: u64,
}

/// An answered sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) captured_us: u64,
    /// When its answer was sent.
    pub(crate) sent_us: u64,
    /// Its answer: a whole message of the protocol.
    pub(crate) answer: Bytes,
    /// The features that may be asked for; empty where there are none.
    pub(crate) features: Vec<u8>,
}

impl Store {
    pub(crate) fn new(most_samples: usize, keep_ms: u64) -> Self {
        Self { held: BTreeMap::new(), most_samples, keep_us: keep_ms.saturating_mul(1000) }
    }

    /// Keeps a sample. What that is too much for comes out of [`Store::pop_surplus`].
    pub(crate) fn keep(&mut self, sample: SampleId, held: Held) {
        self.held.insert(sample, held);
    }

    /// Takes out a sample that is too old, or too many: that of the lowest id.
    pub(crate) fn pop_surplus(&mut self, now_us: u64) -> Option<(SampleId, Held)> {
        let is_too_old = self.surplus_from_us().is_some_and(|from_us| from_us <= now_us);
        if is_too_old || self.held.len() > self.most_samples { self.pop() } else { None }
    }

    /// When the next sample will be too old.
    pub(crate) fn surplus_from_us(&self) -> Option<u64> {
        let (_, first) = self.held.first_key_value()?;
        Some(first.captured_us.saturating_add(self.keep_us).saturating_add(1))
    }

    /// Takes out the sample of the lowest id.
    pub(crate) fn pop(&mut self) -> Option<(SampleId, Held)> {
        self.held.pop_first()
    }

    /// What is kept of a sample.
    pub(crate) fn get(&self, sample: SampleId) -> Option<&Held> {
        self.held.get(&sample)
    }

    /// Frees what the leader says is decided or dropped.
    pub(crate) fn settle(&mut self, notice: &SettledNotice) {
        if let Some(since) = notice.since.filter(|since| *since <= notice.account.highest) {
            let range = since..=notice.account.highest;
            let settled: Vec<SampleId> = self.held.range(range).map(|(sample, _)| *sample).collect();
            for sample in settled {
                self.held.remove(&sample);
            }
        }
        for sample in &notice.late {
            self.held.remove(sample);
        }
    }

    /// How long a sample has to be settled.
    pub(crate) fn keep_us(&self) -> u64 {
        self.keep_us
    }

    /// Samples kept.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use headwater_protocol::Settled;

    use super::*;

    fn held(captured_us: u64) -> Held {
        Held { captured_us, sent_us: captured_us, answer: Bytes::new(), features: vec![captured_us as u8] }
    }

    /// Of samples captured at 0 us, 1 us, ..., kept for 10 ms.
    fn store_of(samples: u64, most: usize) -> Store {
        let mut store = Store::new(most, 10);
        (0..samples).for_each(|id| store.keep(SampleId(id), held(id)));
        store
    }

    fn ids(store: &Store) -> Vec<u64> {
        store.held.keys().map(|id| id.0).collect()
    }

    fn surplus(store: &mut Store, now_us: u64) -> Vec<u64> {
        std::iter::from_fn(|| store.pop_surplus(now_us)).map(|(sample, _)| sample.0).collect()
    }

    fn notice(since: Option<u64>, highest: u64, late: &[u64]) -> SettledNotice {
        SettledNotice {
            account: Settled { highest: SampleId(highest), ..Settled::default() },
            since: since.map(SampleId),
            late: late.iter().map(|id| SampleId(*id)).collect(),
        }
    }

    #[test]
    fn the_lowest_ids_are_too_many() {
        let mut store = store_of(5, 3);
        assert_eq!(surplus(&mut store, 5), [0, 1]);
        assert_eq!(ids(&store), [2, 3, 4]);
    }

    #[test]
    fn what_is_too_old_comes_out_whatever_its_number() {
        let mut store = store_of(3, 10);
        assert_eq!(store.surplus_from_us(), Some(10_001));
        assert_eq!(surplus(&mut store, 10_000), [0; 0]);
        assert_eq!(surplus(&mut store, 10_002), [0, 1]);
        assert_eq!(store.get(SampleId(2)), Some(&held(2)));
        assert_eq!(store.get(SampleId(1)), None);
    }

    #[test]
    fn settled_samples_are_freed_from_the_first_that_the_leader_vouches_for() {
        let mut store = store_of(6, 10);
        store.settle(&notice(None, 9, &[]));
        assert_eq!(store.len(), 6);
        store.settle(&notice(Some(2), 3, &[]));
        assert_eq!(ids(&store), [0, 1, 4, 5]);
        store.settle(&notice(Some(9), 3, &[0, 5, 77]));
        assert_eq!(ids(&store), [1, 4]);
    }
}
