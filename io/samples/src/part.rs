//! Parts of a data set: training, validation, test and, if the data set has one, calibration.

/// Part of the data that a sample belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Samples that train the weights.
    Train,
    /// Samples that choose temperatures, exit rules and the order in which thresholds are tried.
    Validation,
    /// Samples for reports only.
    Test,
    /// Samples on which a promise is made; nothing else uses these samples. A data set may have none.
    Calibration,
}

impl Part {
    /// All parts in order.
    pub const ALL: [Self; 4] = [Self::Train, Self::Validation, Self::Test, Self::Calibration];
    /// Parts that every data set has.
    pub const REQUIRED: [Self; 3] = [Self::Train, Self::Validation, Self::Test];

    /// Name of the part in paths and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Validation => "val",
            Self::Test => "test",
            Self::Calibration => "calibration",
        }
    }

    /// The part with this name; `validation` is a second name of `val`. `None` for another name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let name = if name == "validation" { Self::Validation.name() } else { name };
        Self::ALL.into_iter().find(|part| part.name() == name)
    }
}
