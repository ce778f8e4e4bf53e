//! The samples that are answered and not settled: which of them are in memory, which in the spool, and when they move.
//!
//! In memory is what was sent on the present connection, within bounds; the spool has the rest, and everything once the connection is lost.
//! Without a spool samples beyond memory are given up.

use std::borrow::Cow;

use headwater_protocol::{SampleId, SettledNotice};
use tracing::warn;

use crate::moment::Moment;
use crate::spool::{Record, Spool, Spooled};
use crate::store::{Held, Store};

/// Unsettled samples.
#[derive(Debug)]
pub(crate) struct Unsettled {
    store: Store,
    spool: Option<Spool>,
}

/// Features of a sample, as they are sent when they are asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Features<'a> {
    pub(crate) age_ms: u16,
    /// From the spool: after the sample's time.
    pub(crate) is_late: bool,
    pub(crate) bits: Cow<'a, [u8]>,
}

impl Unsettled {
    pub(crate) fn new(store: Store, spool: Option<Spool>) -> Self {
        Self { store, spool }
    }

    /// Keeps a sample that was sent just now.
    pub(crate) fn keep_sent(&mut self, sample: SampleId, held: Held, now: Moment) {
        self.store.keep(sample, held);
        self.move_surplus(now);
    }

    /// Keeps a sample that could not be sent. False when nothing will send it later.
    pub(crate) fn keep_unsent(&mut self, sample: SampleId, held: Held, now: Moment) -> bool {
        match &mut self.spool {
            Some(spool) => spool.put(&record(sample, &held, now), None),
            None => self.keep_sent(sample, held, now),
        }
        self.spool.is_some()
    }

    /// Moves what is too old for memory, or too much, to the spool.
    pub(crate) fn move_surplus(&mut self, now: Moment) {
        let keep_us = self.store.keep_us();
        while let Some((sample, held)) = self.store.pop_surplus(now.us) {
            if let Some(spool) = &mut self.spool {
                spool.put(&record(sample, &held, now), Some(held.sent_us.saturating_add(keep_us)));
            }
        }
    }

    /// When something will be too old for memory.
    pub(crate) fn surplus_from_us(&self) -> Option<u64> {
        self.store.surplus_from_us()
    }

    /// The connection is lost: what was sent on it may never have arrived.
    pub(crate) fn disconnected(&mut self, now: Moment) {
        if let Some(spool) = &mut self.spool {
            spool.disconnected();
            while let Some((sample, held)) = self.store.pop() {
                spool.put(&record(sample, &held, now), None);
            }
        }
    }

    /// At a clean end: what is on the disk the next life sends late; the rest is lost, and that is said.
    pub(crate) fn close(&mut self, now: Moment) {
        match &self.spool {
            Some(spool) if spool.is_on_disk() => self.disconnected(now),
            Some(spool) if spool.len() > 0 => {
                warn!(
                    samples = spool.len(),
                    "unsent samples are lost with this process: without state_dir the spool is in memory"
                );
            }
            _ => {}
        }
    }

    /// Frees what the leader says is decided or dropped.
    pub(crate) fn settle(&mut self, notice: &SettledNotice) {
        self.store.settle(notice);
        if let Some(spool) = &mut self.spool {
            spool.settle(notice);
        }
    }

    /// The features of a sample; `None` where there are none, or none any more.
    pub(crate) fn features(&mut self, sample: SampleId, now: Moment) -> Option<Features<'_>> {
        let features = match self.store.get(sample) {
            Some(held) => Features {
                age_ms: now.age_ms(now.unix_ms_of(held.captured_us)),
                is_late: false,
                bits: Cow::Borrowed(held.features.as_slice()),
            },
            None => match self.spool.as_mut()?.read(sample)? {
                Spooled::Answer { captured_unix_ms, features, .. } => Features {
                    age_ms: now.age_ms(captured_unix_ms),
                    is_late: true,
                    bits: Cow::Owned(features),
                },
                Spooled::GivenUp => return None,
            },
        };
        (!features.bits.is_empty()).then_some(features)
    }

    /// The spool, where there is one.
    pub(crate) fn spool(&self) -> Option<&Spool> {
        self.spool.as_ref()
    }

    /// The spool, where there is one.
    pub(crate) fn spool_mut(&mut self) -> Option<&mut Spool> {
        self.spool.as_mut()
    }

    /// Samples in memory.
    pub(crate) fn in_memory(&self) -> usize {
        self.store.len()
    }

    /// Samples in the spool.
    pub(crate) fn spooled(&self) -> usize {
        self.spool.as_ref().map_or(0, Spool::len)
    }

    /// True when everything is settled.
    pub(crate) fn is_empty(&self) -> bool {
        self.in_memory() + self.spooled() == 0
    }
}

fn record<'a>(sample: SampleId, held: &'a Held, now: Moment) -> Record<'a> {
    Record {
        sample,
        captured_unix_ms: now.unix_ms_of(held.captured_us),
        answer: &held.answer,
        features: &held.features,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use headwater_protocol::{NetworkId, Settled};

    use super::*;

    const KEEP_US: u64 = 10_000;

    /// At most two samples in memory, for 10 ms.
    fn unsettled(has_spool: bool) -> Unsettled {
        let spool = has_spool.then(|| Spool::in_memory(1 << 20, NetworkId([7; 32])));
        Unsettled::new(Store::new(2, KEEP_US / 1000), spool)
    }

    fn at(us: u64) -> Moment {
        Moment { us, unix_ms: 1_000_000 + us / 1000 }
    }

    fn sent(unsettled: &mut Unsettled, sample: u64, at_us: u64) {
        let features = vec![sample as u8];
        let held =
            Held { captured_us: at_us, sent_us: at_us, answer: Bytes::from_static(b"answer"), features };
        unsettled.keep_sent(SampleId(sample), held, at(at_us));
    }

    fn due(unsettled: &mut Unsettled, now_us: u64) -> Vec<u64> {
        let due = unsettled.spool_mut().unwrap().due(now_us, 99);
        due.into_iter().map(|sample| sample.0).collect()
    }

    fn notice(since: Option<u64>, highest: u64, late: &[u64]) -> SettledNotice {
        SettledNotice {
            account: Settled { highest: SampleId(highest), ..Settled::default() },
            since: since.map(SampleId),
            late: late.iter().map(|id| SampleId(*id)).collect(),
        }
    }

    #[test]
    fn what_is_too_much_for_memory_is_not_late_before_its_time_and_settled_as_if_it_were_in_memory() {
        let mut unsettled = unsettled(true);
        (0..4).for_each(|sample| sent(&mut unsettled, sample, sample));
        assert_eq!((unsettled.in_memory(), unsettled.spooled()), (2, 2));
        assert_eq!(due(&mut unsettled, KEEP_US - 1), [0; 0]);
        assert_eq!(due(&mut unsettled, KEEP_US), [0]);
        unsettled.settle(&notice(Some(1), 2, &[]));
        assert_eq!((unsettled.in_memory(), unsettled.spooled()), (1, 1), "0 and 3 are left");
        unsettled.settle(&notice(None, 0, &[0, 3]));
        assert!(unsettled.is_empty());
    }

    #[test]
    fn what_is_too_old_is_late() {
        let mut unsettled = unsettled(true);
        sent(&mut unsettled, 5, 100);
        assert_eq!(unsettled.surplus_from_us(), Some(KEEP_US + 101));
        unsettled.move_surplus(at(KEEP_US + 101));
        assert_eq!(unsettled.in_memory(), 0);
        assert_eq!(due(&mut unsettled, KEEP_US + 101), [5]);
        let features = unsettled.features(SampleId(5), at(KEEP_US + 2_100)).unwrap();
        assert_eq!(features, Features { age_ms: 12, is_late: true, bits: Cow::Borrowed(&[5]) });
    }

    #[test]
    fn a_lost_connection_makes_all_of_it_late() {
        let mut unsettled = unsettled(true);
        (0..4).for_each(|sample| sent(&mut unsettled, sample, sample));
        unsettled.disconnected(at(9));
        assert_eq!(due(&mut unsettled, 9), [0, 1, 2, 3]);
        sent(&mut unsettled, 4, 10);
        unsettled.settle(&notice(Some(0), 9, &[]));
        assert_eq!((unsettled.in_memory(), unsettled.spooled()), (0, 4), "only what was sent on this one");
    }

    #[test]
    fn what_could_not_be_sent_is_late_at_once_and_not_covered() {
        let mut unsettled = unsettled(true);
        let held = Held { captured_us: 0, sent_us: 0, answer: Bytes::new(), features: vec![] };
        assert!(unsettled.keep_unsent(SampleId(1), held, at(5)));
        assert_eq!(due(&mut unsettled, 5), [1]);
        unsettled.settle(&notice(Some(0), 9, &[]));
        assert_eq!(unsettled.spooled(), 1);
        assert_eq!(unsettled.features(SampleId(1), at(5)), None, "there are none");
    }

    #[test]
    fn without_a_spool_what_is_too_much_is_given_up() {
        let mut unsettled = unsettled(false);
        (0..4).for_each(|sample| sent(&mut unsettled, sample, sample));
        assert_eq!((unsettled.in_memory(), unsettled.spooled()), (2, 0));
        let held = Held { captured_us: 0, sent_us: 0, answer: Bytes::new(), features: vec![] };
        assert!(!unsettled.keep_unsent(SampleId(9), held, at(5)));
        unsettled.disconnected(at(9));
        assert!(unsettled.features(SampleId(3), at(9)).is_some(), "it may still be asked for");
    }
}
