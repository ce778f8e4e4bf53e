//! The journal: lines of JSON written before an action is carried out, and read after a restart.

use std::collections::{BTreeMap, BTreeSet};

use headwater_protocol::{Decision, Dropped, SampleId, Settled};
use serde::{Deserialize, Serialize};

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// A sample was opened by its first message.
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
    /// The account so far. The lines before it may be cut off.
    Settled(Settled),
    /// Closed samples that [`Entry::Settled`] counts. Samples between them were never opened and may still come late.
    Closed {
        /// Every sample up to this id is closed.
        floor: SampleId,
        /// Closed samples above the floor.
        samples: Vec<SampleId>,
    },
}

/// State after a restart, read from the journal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recovered {
    /// The account, without the samples that were open.
    pub settled: Settled,
    /// Decisions since the last [`Entry::Settled`], in the order of their samples. A consumer may not have seen them.
    pub decisions: Vec<Decision>,
    /// Samples that were open when the leader stopped.
    pub open: Vec<SampleId>,
    /// Every sample up to this id was closed, unless it is in `open`.
    pub floor: SampleId,
    /// Closed samples above the floor.
    pub closed: Vec<SampleId>,
}

impl Entry {
    /// Appends the entry as one line.
    pub fn write_line(&self, out: &mut Vec<u8>) {
        // Names, numbers and lists always become JSON; a Vec takes every write.
        if serde_json::to_writer(&mut *out, self).is_ok() {
            out.push(b'\n');
        }
    }

    /// Reads one line.
    ///
    /// # Errors
    /// When the line is not an entry, such as the torn last line of a killed leader.
    pub fn read_line(line: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(line)
    }
}

/// Adds up entries in the order in which they were written.
pub fn replay(entries: impl IntoIterator<Item = Entry>) -> Recovered {
    let mut recovered = Recovered::default();
    let mut open = BTreeSet::new();
    let mut decided: BTreeMap<SampleId, Decision> = BTreeMap::new();
    let close = |settled: &mut Settled, sample: SampleId| settled.highest = settled.highest.max(sample);
    for entry in entries {
        match entry {
            Entry::Opened(sample) => {
                open.insert(sample);
            }
            Entry::Decided(decision) => {
                open.remove(&decision.sample);
                close(&mut recovered.settled, decision.sample);
                recovered.closed.push(decision.sample);
                // A sample has one decision: the first.
                decided.entry(decision.sample).or_insert_with(|| {
                    recovered.settled.decided += 1;
                    decision
                });
            }
            Entry::Dropped { sample, reason } => {
                open.remove(&sample);
                close(&mut recovered.settled, sample);
                recovered.closed.push(sample);
                *recovered.settled.dropped.entry(reason).or_default() += 1;
            }
            Entry::Settled(settled) => {
                recovered.floor = settled.highest;
                recovered.settled = settled;
                recovered.closed.clear();
                decided.clear();
            }
            Entry::Closed { floor, samples } => {
                recovered.floor = floor;
                recovered.closed.extend(samples);
            }
        }
    }
    recovered.decisions = decided.into_values().collect();
    recovered.open = open.into_iter().collect();
    recovered
}

#[cfg(test)]
mod tests {
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
    fn a_torn_line_is_an_error_not_an_entry() {
        assert!(Entry::read_line(br#"{"opened":1"#).is_err());
        assert!(Entry::read_line(b"").is_err());
    }
}
