//! Contents of a leader's journal.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use headwater_inference::leader::journal::Entry;
use headwater_protocol::{Decision, Dropped, SampleId};

/// Samples in a leader's journal.
#[derive(Debug, Default)]
pub struct JournalContents {
    /// Samples that were triggered, or of which a first message has come.
    pub opened: BTreeSet<SampleId>,
    /// Decisions by sample.
    pub decided: BTreeMap<SampleId, Decision>,
    /// Dropped samples, each with its reason.
    pub dropped: BTreeMap<SampleId, Dropped>,
    /// First and last ids of samples that ended before the last compaction, also of those whose lines are still there.
    pub closed: Vec<(SampleId, SampleId)>,
}

impl JournalContents {
    /// Reads a journal. A file that does not exist is an empty journal.
    ///
    /// # Panics
    /// When a sample was decided or dropped twice.
    pub fn read(journal: &Path) -> Self {
        let mut contents = Self::default();
        let text = std::fs::read(journal).unwrap_or_default();
        // The last line may be incomplete: a leader may be writing it, or was killed as it wrote.
        for entry in text.split(|byte| *byte == b'\n').filter_map(|line| Entry::read_line(line).ok()) {
            match entry {
                Entry::Opened(sample) => _ = contents.opened.insert(sample),
                Entry::Decided(decision) => {
                    let before = contents.decided.insert(decision.sample, decision);
                    assert!(before.is_none(), "decided twice: {before:?}");
                }
                Entry::Dropped { sample, reason } => {
                    // The broker refused the result, so that nobody has the decision.
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
