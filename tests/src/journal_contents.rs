//! Samples in a leader's journal.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use headwater_inference::leader::journal::Entry;
use headwater_protocol::{Decision, Dropped, SampleId};

/// Samples in a leader's journal, by how they ended.
#[derive(Debug, Default)]
pub struct JournalContents {
    /// Samples that were opened by their first message, or triggered.
    pub opened: BTreeSet<SampleId>,
    /// Decisions by sample, without those that the broker refused.
    pub decided: BTreeMap<SampleId, Decision>,
    /// Dropped samples, each with its reason.
    pub dropped: BTreeMap<SampleId, Dropped>,
    /// First and last ids of the ranges of closed samples that the last compaction wrote; empty without a compaction.
    pub closed: Vec<(SampleId, SampleId)>,
}

impl JournalContents {
    /// Reads a journal. A file that cannot be read is an empty journal, and a damaged line is left out.
    ///
    /// # Panics
    /// When a sample was decided or dropped twice.
    pub fn read(journal: &Path) -> Self {
        let mut contents = Self::default();
        let text = std::fs::read(journal).unwrap_or_default();
        // The last line may be incomplete: the leader may be writing the line, or was killed while it wrote.
        for entry in text.split(|byte| *byte == b'\n').filter_map(|line| Entry::read_line(line).ok()) {
            match entry {
                Entry::Opened(sample) => _ = contents.opened.insert(sample),
                Entry::Decided(decision) => {
                    let before = contents.decided.insert(decision.sample, decision);
                    assert!(before.is_none(), "decided twice: {before:?}");
                }
                Entry::Dropped { sample, reason } => {
                    // The broker refused the result, so nobody has received the decision.
                    if reason == Dropped::ResultRefused {
                        contents.decided.remove(&sample);
                    }
                    let before = contents.dropped.insert(sample, reason);
                    assert!(before.is_none(), "{sample} was dropped twice: {before:?}");
                }
                Entry::ClosedRanges { ranges, .. } => contents.closed = ranges,
                Entry::Format(_) | Entry::Numbering(_) | Entry::Settled(_) => {}
            }
        }
        contents
    }

    /// Opened samples that are neither decided nor dropped.
    pub fn open(&self) -> BTreeSet<SampleId> {
        let is_open =
            |sample: &&SampleId| !self.decided.contains_key(sample) && !self.dropped.contains_key(sample);
        self.opened.iter().filter(is_open).copied().collect()
    }
}
