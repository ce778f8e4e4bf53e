//! What stands in a leader's journal.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use headwater_inference::leader::journal::Entry;
use headwater_protocol::{Decision, Dropped, SampleId};

/// What a leader wrote down so far.
#[derive(Debug, Default)]
pub struct Account {
    /// Samples whose first message came.
    pub opened: BTreeSet<SampleId>,
    /// By sample.
    pub decided: BTreeMap<SampleId, Decision>,
    /// By sample, with the reason.
    pub dropped: BTreeMap<SampleId, Dropped>,
}

impl Account {
    /// Reads a journal; one that is not there yet says nothing.
    ///
    /// # Panics
    /// When a sample was decided or dropped twice.
    pub fn read(journal: &Path) -> Self {
        let mut account = Self::default();
        let text = std::fs::read(journal).unwrap_or_default();
        // The last line of a leader that writes, or was killed, may be torn.
        for entry in text.split(|byte| *byte == b'\n').filter_map(|line| Entry::read_line(line).ok()) {
            match entry {
                Entry::Opened(sample) => _ = account.opened.insert(sample),
                Entry::Decided(decision) => {
                    let before = account.decided.insert(decision.sample, decision);
                    assert!(before.is_none(), "decided twice: {before:?}");
                }
                Entry::Dropped { sample, reason } => {
                    let before = account.dropped.insert(sample, reason);
                    assert!(before.is_none(), "{sample} was dropped twice: {before:?}");
                }
                Entry::Settled(_) | Entry::Closed { .. } => {}
            }
        }
        account
    }
}
