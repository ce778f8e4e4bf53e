//! Reasons for giving up samples, and how many were given up for each.

use std::collections::BTreeMap;

use tracing::warn;

/// Reason for which a spooled sample is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GiveUpReason {
    /// The spool was too full for it, or for later samples.
    SpoolFull,
    /// It was answered under another network than the present one.
    OtherNetwork,
    /// The bytes on disk are not the bytes that were written.
    Unreadable,
    /// It could not be written.
    Disk,
    /// It is larger than the broker takes.
    Refused,
}

/// Samples given up since the start.
#[derive(Debug, Default)]
pub(crate) struct GiveUpCounts {
    pub(crate) by_reason: BTreeMap<&'static str, u64>,
    /// Samples of which not even the id is left.
    pub(crate) lost: u64,
}

impl GiveUpReason {
    /// Label in reports.
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

impl GiveUpCounts {
    /// Counts a sample, and logs the first of each reason.
    pub(super) fn count(&mut self, reason: GiveUpReason, detail: &str) {
        let count = self.by_reason.entry(reason.name()).or_default();
        *count += 1;
        if *count == 1 {
            warn!(
                reason = reason.name(),
                detail, "a spooled sample is given up; later ones are only counted"
            );
        }
    }

    /// Counts a sample whose id is forgotten too.
    pub(super) fn count_lost(&mut self) {
        self.lost += 1;
        if self.lost == 1 {
            warn!(
                "too many samples were given up: the oldest ids are forgotten and never reported to the leader"
            );
        }
    }
}
