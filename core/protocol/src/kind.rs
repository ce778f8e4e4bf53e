//! Version and kind of a binary message: its first byte.

/// Version of the binary messages of this build.
pub const VERSION: u8 = 2;

/// Largest number of samples in one batch.
pub const MAX_BATCH_SAMPLES: usize = 64;

/// Kind of a message: the low half of byte 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// No body: every device captures now.
    Trigger = 1,
    /// Class scores.
    Summary = 2,
    /// No view of the sample.
    NotInView = 3,
    /// Slots that are asked for their features.
    Request = 4,
    /// Feature bits.
    Features = 5,
    /// The sender has no features of the sample, or gave the whole sample up.
    Gone = 6,
    /// The view itself, as pixels.
    Input = 7,
    /// A decision of a device.
    Decided = 8,
    /// Output of an edge's section.
    EdgeFeatures = 9,
    /// Answers of several samples.
    Batch = 10,
}

impl Kind {
    /// Every kind with its name in metrics, in the order of the kinds' numbers, which begin at 1.
    pub(crate) const NAMES: [(Self, &'static str); 10] = [
        (Self::Trigger, "trigger"),
        (Self::Summary, "summary"),
        (Self::NotInView, "not_in_view"),
        (Self::Request, "request"),
        (Self::Features, "features"),
        (Self::Gone, "gone"),
        (Self::Input, "input"),
        (Self::Decided, "decided"),
        (Self::EdgeFeatures, "edge_features"),
        (Self::Batch, "batch"),
    ];

    /// Name in metrics.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize - 1].1
    }

    /// True if messages of the kind go to every device of the group. Such messages have neither flags nor age, but the network's session.
    pub(crate) const fn is_to_group(self) -> bool {
        matches!(self, Self::Trigger | Self::Request)
    }

    /// True if messages of the kind may name the frame that they are about.
    pub(crate) const fn may_name_frame(self) -> bool {
        matches!(self, Self::Summary | Self::Input | Self::Decided)
    }

    /// The kind with the number `bits`; `None` if there is none.
    pub(crate) fn from_bits(bits: u8) -> Option<Self> {
        Self::NAMES.into_iter().map(|(kind, _)| kind).find(|kind| *kind as u8 == bits)
    }
}
