//! Samples that had to be given up: why, and how many.

use std::collections::BTreeMap;

use tracing::warn;

/// Why a sample that was spooled is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// There was no room for it, or for those after it.
    SpoolFull,
    /// It was answered under another network than the present one.
    OtherNetwork,
    /// What is on the disk is not what was written.
    Unreadable,
    /// It could not be written.
    Disk,
    /// It is larger than the broker takes.
    Refused,
}

/// Samples given up since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// By reason.
    pub(crate) by_reason: BTreeMap<&'static str, u64>,
    /// Those of which not even that could be remembered.
    pub(crate) lost: u64,
}

impl GivenUp {
    /// Its word in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::SpoolFull => "spool_full",
            Self::OtherNetwork => "other_network",
            Self::Unreadable => "unreadable",
            Self::Disk => "disk",
            Self::Refused => "refused",
        }
    }
}

impl Counts {
    /// Counts one; the first of a reason is named.
    pub(super) fn count(&mut self, reason: GivenUp, what: &str) {
        let count = self.by_reason.entry(reason.name()).or_default();
        *count += 1;
        if *count == 1 {
            warn!(
                reason = reason.name(),
                what, "spooled samples are given up; the next ones are only counted"
            );
        }
    }

    /// Counts one that is forgotten.
    pub(super) fn lose(&mut self) {
        self.lost += 1;
        if self.lost == 1 {
            warn!("too many samples were given up: the leader will not hear of the oldest ones");
        }
    }
}
