//! Reasons for which a sample is given up.

/// Reason for which the answer to a sample is given up: only the sample's id is reported to the leader.
///
/// The text is the label in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GiveUpReason(&'static str);

impl GiveUpReason {
    /// The spool had no room for the sample, or gave it up to make room for later samples.
    pub(crate) const SPOOL_FULL: Self = Self("spool_full");
    /// The sample was answered under another network than the present one.
    pub(crate) const OTHER_NETWORK: Self = Self("other_network");
    /// The bytes on disk are not the bytes that were written.
    pub(crate) const UNREADABLE: Self = Self("unreadable");
    /// The sample could not be written to disk.
    pub(crate) const DISK: Self = Self("disk");
    /// The sample could not be written because the disk is full.
    pub(crate) const DISK_FULL: Self = Self("disk_full");
    /// The section was too slow: its queue dropped the sample's view.
    pub(crate) const SHED: Self = Self("shed");
    /// The link can never send the answer, mostly because the answer is larger than the broker takes.
    pub(crate) const REFUSED: Self = Self("refused");

    /// Labels of all reasons.
    pub(crate) const LABELS: [&'static str; 7] = [
        Self::SPOOL_FULL.0,
        Self::OTHER_NETWORK.0,
        Self::UNREADABLE.0,
        Self::DISK.0,
        Self::DISK_FULL.0,
        Self::SHED.0,
        Self::REFUSED.0,
    ];

    /// Label in the report.
    pub(crate) const fn label(self) -> &'static str {
        self.0
    }
}
