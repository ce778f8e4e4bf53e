//! Choices that the settings make: the engine and the cause of a capture.

use serde::Deserialize;

/// Engine of a device's section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineChoice {
    /// The packed form; ONNX in tract if the bundle has none.
    Packed,
    /// ONNX in tract.
    Tract,
    /// ONNX in ONNX Runtime; in tract if no library is named and none is found.
    Ort,
}

/// Cause of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// A message on the group's topic `trigger`.
    Trigger,
    /// The device's clock: sample `k` at `k * period_ms` since 1970, the middle of its period.
    Clock {
        /// Milliseconds between samples; the same at every device of the group.
        period_ms: u64,
    },
    /// The source: each frame is a sample, whose id is the wall clock in milliseconds. For a group of one device, without triggers.
    Source,
}

impl Capture {
    /// Milliseconds between captures by the clock; `None` for other causes of captures.
    pub(crate) fn period_ms(self) -> Option<u64> {
        match self {
            Self::Clock { period_ms } => Some(period_ms),
            Self::Trigger | Self::Source => None,
        }
    }
}
