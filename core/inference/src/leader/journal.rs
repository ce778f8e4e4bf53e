//! The journal: lines of JSON written before an action is carried out, and read after a restart.

use std::collections::{BTreeMap, BTreeSet};

use headwater_protocol::{Decision, Dropped, Numbering, SampleId, Settled};
use serde::{Deserialize, Serialize};

/// Format of the journals that this version writes and reads. Format 1 had no [`Entry::Format`].
pub const FORMAT: u16 = 3;

/// Earliest format that is read: its lines have no check sums.
pub const OLDEST_FORMAT: u16 = 2;

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "most entries are decisions, and each is written at once")]
pub enum Entry {
    /// Format of the journal, as the first line; this version writes [`FORMAT`].
    Format(u16),
    /// Numbering of samples by the devices. `None` begins a new numbering: ids in the lines before mean nothing any more.
    Numbering(Option<Numbering>),
    /// A sample was opened by its first message, or triggered.
    Opened(SampleId),
    /// A sample was decided; written before the decision is published.
    Decided(Decision),
    /// A sample was dropped.
    Dropped {
        /// The sample.
        sample: SampleId,
        /// Reason of the drop.
        reason: Dropped,
    },
    /// The account so far. The lines before this one may be removed.
    Settled(Settled),
    /// Closed samples that [`Entry::Settled`] counts. Samples between the ranges are not closed and may still come late.
    ClosedRanges {
        /// Nothing is known of the samples up to this id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        floor: Option<SampleId>,
        /// First and last ids of closed samples above the floor, lowest first.
        ranges: Vec<(SampleId, SampleId)>,
    },
}

/// State after a restart, read from the journal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recovered {
    /// The account, without the samples that were open.
    pub settled: Settled,
    /// Decisions since the last [`Entry::Settled`], in the order of their samples. Consumers may not have seen these decisions.
    pub decisions: Vec<Decision>,
    /// Samples that were open when the leader stopped, or triggered and not answered.
    pub open: Vec<SampleId>,
    /// Numbering of samples by the devices; `None` if no line states it.
    pub numbering: Option<Numbering>,
    /// Nothing is known of the samples up to this id, unless they are in `closed` or `open`.
    pub floor: Option<SampleId>,
    /// Ranges of closed samples, first and last ids, in any order.
    pub closed: Vec<(SampleId, SampleId)>,
    /// Dropped samples that were refused: implausible or too old. A refused id does not raise the highest settled id.
    pub refused: Vec<SampleId>,
}

impl Entry {
    /// Appends the entry as one line: JSON, a tab, and the CRC-32 of the JSON in eight hexadecimal digits.
    pub fn write_line(&self, out: &mut Vec<u8>) {
        // Serialisation does not fail: names, numbers and lists always become JSON, and a `Vec` takes every write.
        let begin = out.len();
        if serde_json::to_writer(&mut *out, self).is_ok() {
            let sum = crc32fast::hash(&out[begin..]);
            out.extend_from_slice(format!("\t{sum:08x}\n").as_bytes());
        }
    }

    /// Reads one line. A line of format 2 has no check sum.
    ///
    /// # Errors
    /// When the line is not an entry, such as the torn last line of a killed leader, or is not as it was written.
    pub fn read_line(line: &[u8]) -> Result<Self, serde_json::Error> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        // JSON has no tab of its own.
        let Some(tab) = line.iter().rposition(|byte| *byte == b'\t') else {
            return serde_json::from_slice(line);
        };
        let (text, found) = (&line[..tab], &line[tab + 1..]);
        if found.len() < 8 && found.iter().all(u8::is_ascii_hexdigit) {
            // Torn within the check sum: an early end, as of a line that is torn before it.
            return serde_json::from_slice(&[]);
        }
        if found != format!("{:08x}", crc32fast::hash(text)).as_bytes() {
            return Err(serde::de::Error::custom(
                "the line is not as it was written: its check sum is another",
            ));
        }
        serde_json::from_slice(text)
    }
}

/// The state after these entries, which come in the order in which they were written.
pub fn replay(entries: impl IntoIterator<Item = Entry>) -> Recovered {
    let mut recovered = Recovered::default();
    let mut open = BTreeSet::new();
    let mut decided: BTreeMap<SampleId, Decision> = BTreeMap::new();
    for entry in entries {
        match entry {
            Entry::Format(_) => {}
            Entry::Numbering(Some(numbering)) => recovered.numbering = Some(numbering),
            Entry::Numbering(None) => {
                let settled = Settled { highest: SampleId(0), ..recovered.settled };
                recovered = Recovered { settled, ..Recovered::default() };
                open.clear();
                decided.clear();
            }
            Entry::Opened(sample) => {
                open.insert(sample);
            }
            Entry::Decided(decision) => {
                open.remove(&decision.sample);
                recovered.close(decision.sample);
                // A sample has one decision: the first.
                decided.entry(decision.sample).or_insert_with(|| {
                    recovered.settled.decided = recovered.settled.decided.saturating_add(1);
                    decision
                });
            }
            Entry::Dropped { sample, reason } => {
                open.remove(&sample);
                let count = recovered.settled.dropped.entry(reason).or_default();
                *count = count.saturating_add(1);
                match reason {
                    // This line follows the sample's decision, which is not published again.
                    Dropped::ResultRefused => {
                        decided.remove(&sample);
                        recovered.settled.decided = recovered.settled.decided.saturating_sub(1);
                    }
                    Dropped::Implausible | Dropped::TooOld => recovered.refused.push(sample),
                    Dropped::Restart
                    | Dropped::Shed
                    | Dropped::SpoolFull
                    | Dropped::Unanswered
                    | Dropped::Unknown => recovered.close(sample),
                }
            }
            Entry::Settled(settled) => {
                // All ids up to `highest` count as closed, so that no sample is decided twice if the line with the ranges is damaged.
                let closed = (settled.highest > SampleId(0)).then_some((SampleId(0), settled.highest));
                (recovered.floor, recovered.closed) = (None, closed.into_iter().collect());
                recovered.settled = settled;
                decided.clear();
            }
            Entry::ClosedRanges { floor, ranges } => {
                (recovered.floor, recovered.closed) = (floor, ranges);
            }
        }
    }
    recovered.decisions = decided.into_values().collect();
    recovered.closed = without(&recovered.closed, &open);
    recovered.open = open.into_iter().collect();
    recovered
}

impl Recovered {
    fn close(&mut self, sample: SampleId) {
        self.settled.highest = self.settled.highest.max(sample);
        match self.closed.last_mut() {
            Some((_, last)) if last.0.checked_add(1) == Some(sample.0) => *last = sample,
            _ => self.closed.push((sample, sample)),
        }
    }
}

fn without(ranges: &[(SampleId, SampleId)], open: &BTreeSet<SampleId>) -> Vec<(SampleId, SampleId)> {
    let mut left = Vec::with_capacity(ranges.len());
    for &(first, last) in ranges.iter().filter(|(first, last)| first <= last) {
        let mut next = Some(first);
        for gap in open.range(first..=last) {
            left.extend(next.filter(|next| next < gap).map(|next| (next, SampleId(gap.0 - 1))));
            next = gap.0.checked_add(1).map(SampleId);
        }
        left.extend(next.filter(|next| *next <= last).map(|next| (next, last)));
    }
    left
}

#[cfg(test)]
mod tests {
    use headwater_protocol::testing;

    use super::*;

    #[test]
    fn a_restart_finds_open_and_dropped_samples() {
        let entries = [
            Entry::Opened(SampleId(1)),
            Entry::Opened(SampleId(2)),
            Entry::Dropped { sample: SampleId(1), reason: Dropped::Shed },
        ];
        let mut lines = Vec::new();
        for entry in &entries {
            entry.write_line(&mut lines);
        }
        let read: Vec<_> = lines
            .split(|&b| b == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| Entry::read_line(line).unwrap())
            .collect();
        assert_eq!(read, entries);
        let recovered = replay(read);
        assert_eq!(recovered.open, [SampleId(2)]);
        assert_eq!(recovered.settled.dropped[&Dropped::Shed], 1);
    }

    #[test]
    fn no_flipped_bit_makes_another_entry_of_a_line() {
        for entry in
            [Entry::Format(FORMAT), Entry::Opened(SampleId(2105)), Entry::Decided(testing::decision(2105))]
        {
            let mut line = Vec::new();
            entry.write_line(&mut line);
            line.pop();
            for bit in 0..8 * line.len() {
                let mut damaged = line.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                let read = Entry::read_line(&damaged);
                assert!(read.is_err(), "bit {bit}: {read:?} from {}", String::from_utf8_lossy(&damaged));
            }
            for cut in 1..line.len() {
                let torn = Entry::read_line(&line[..cut]);
                assert!(
                    torn.as_ref().is_ok_and(|torn| *torn == entry) || torn.is_err_and(|error| error.is_eof())
                );
            }
        }
        assert_eq!(Entry::read_line(br#"{"opened":7}"#).unwrap(), Entry::Opened(SampleId(7)), "format 2");
    }

    #[test]
    fn a_result_that_the_broker_refused_is_a_drop_and_is_not_published_again() {
        let refused = Entry::Dropped { sample: SampleId(7), reason: Dropped::ResultRefused };
        let recovered = replay([
            Entry::Decided(testing::decision(7)),
            Entry::Decided(testing::decision(8)),
            refused.clone(),
        ]);
        assert_eq!(recovered.decisions, [testing::decision(8)]);
        assert_eq!(
            (recovered.settled.decided, &recovered.settled.dropped),
            (1, &[(Dropped::ResultRefused, 1)].into())
        );
        assert!(recovered.closed.iter().any(|(first, last)| (*first..=*last).contains(&SampleId(7))));
        // The account of a compaction has counted the decision already.
        let settled = Settled { highest: SampleId(8), decided: 2, ..Settled::default() };
        assert_eq!(replay([Entry::Settled(settled), refused]).settled, recovered.settled);
    }

    #[test]
    fn counts_end_at_the_largest_number() {
        let dropped = [(Dropped::Shed, u64::MAX)].into();
        let settled = Settled { highest: SampleId(9), decided: u64::MAX, dropped };
        let recovered = replay([
            Entry::Settled(settled.clone()),
            Entry::Decided(testing::decision(10)),
            Entry::Dropped { sample: SampleId(11), reason: Dropped::Shed },
        ]);
        assert_eq!(recovered.settled, Settled { highest: SampleId(11), ..settled });
    }

    #[test]
    fn a_torn_line_is_an_error_not_an_entry() {
        assert!(Entry::read_line(br#"{"opened":1"#).is_err());
        assert!(Entry::read_line(b"").is_err());
    }
}
