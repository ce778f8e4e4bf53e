//! The bounds of the spool, and what becomes of samples beyond them.

use std::collections::BTreeMap;

use headwater_protocol::SampleId;

use super::record::Record;
use super::segment::{HEADER_BYTES, Segment};
use super::{Entry, GivenUp, Spool, What, remove};

/// A sample counts as at least so many bytes: what is known of it in memory is a tenth of that, so memory is bounded as well.
pub(super) const LEAST_BYTES: u64 = 512;

/// Most samples of which only the ids are left.
pub(super) const MOST_GIVEN_UP: usize = 65_536;

impl Spool {
    /// Gives up the oldest segments until there is room; false when there cannot be.
    pub(super) fn make_room(&mut self, record: &Record<'_>) -> bool {
        let wanted = (record.bytes() as u64).max(LEAST_BYTES) + HEADER_BYTES as u64;
        if wanted > self.most_bytes {
            return false;
        }
        self.shrink_to(self.most_bytes - wanted);
        true
    }

    /// Gives up the oldest segments until no more bytes than these are taken.
    pub(super) fn shrink_to(&mut self, most_bytes: u64) {
        let counted = |segment: &Segment| segment.bytes().max(u64::from(segment.records) * LEAST_BYTES);
        let mut taken: u64 = self.segments.values().map(counted).sum();
        while taken > most_bytes {
            let Some((number, segment)) = self.segments.pop_first() else { return };
            taken -= counted(&segment);
            self.give_up_segment(number, segment);
        }
    }

    fn give_up_segment(&mut self, number: u32, segment: Segment) {
        if self.current == Some(number) {
            self.current = None;
        }
        let Some((lowest, highest)) = segment.ids else { return };
        let (mut kept, mut given_up) = (Vec::new(), Vec::new());
        for (sample, entry) in self.samples.range_mut(lowest..=highest) {
            match entry.what {
                What::Kept(place) if place.segment == number => kept.push((*sample, entry.is_sent)),
                What::GivenUp(Some(segment)) if segment == number => {
                    entry.what = What::GivenUp(None);
                    given_up.push(*sample);
                }
                _ => {}
            }
        }
        given_up.into_iter().for_each(|sample| self.remember(sample));
        for (sample, is_sent) in kept {
            self.give_up_as(sample, is_sent, None, GivenUp::SpoolFull, "spool_bytes are taken");
        }
        remove(segment);
    }

    /// Leaves nothing of a sample but its id. `segment` has what is left of it, for the next life.
    pub(super) fn give_up_as(
        &mut self,
        sample: SampleId,
        is_sent: bool,
        segment: Option<u32>,
        reason: GivenUp,
        what: &str,
    ) {
        self.counts.count(reason, what);
        self.schedule.anew(sample);
        self.samples.insert(sample, Entry { what: What::GivenUp(segment), is_sent });
        self.given_up += 1;
        if segment.is_none() {
            self.remember(sample);
        }
        self.bound_given_up();
    }

    /// Forgets the lowest ids of those given up while there are too many.
    pub(super) fn bound_given_up(&mut self) {
        while self.given_up > MOST_GIVEN_UP {
            let lowest = self.samples.iter().find(|(_, entry)| matches!(entry.what, What::GivenUp(_)));
            let Some(lowest) = lowest.map(|(sample, _)| *sample) else { return };
            self.forget(lowest);
            self.counts.lose();
        }
    }

    /// Writes down the id of a sample that is given up and lies in no segment.
    fn remember(&mut self, sample: SampleId) {
        self.without_segment += 1;
        if self.ids.add(sample) {
            self.ids.write_anew(without_segment(&self.samples));
        }
    }
}

/// Samples that are given up and lie in no segment.
pub(super) fn without_segment(samples: &BTreeMap<SampleId, Entry>) -> impl Iterator<Item = SampleId> {
    let is_without = |entry: &Entry| matches!(entry.what, What::GivenUp(None));
    samples.iter().filter(move |(_, entry)| is_without(entry)).map(|(sample, _)| *sample)
}
