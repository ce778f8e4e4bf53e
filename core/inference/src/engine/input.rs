//! Input of a section.

use super::EngineError;
use crate::manifest::{InputKind, SectionManifest};

/// Input of a section.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// `u8` pixels, CHW; the engine divides them by 255.
    Pixels(&'a [u8]),
    /// Floats as they are.
    Floats(&'a [f32]),
}

impl Input<'_> {
    /// Number of elements.
    pub fn elements(&self) -> usize {
        match self {
            Self::Pixels(pixels) => pixels.len(),
            Self::Floats(floats) => floats.len(),
        }
    }

    /// Kind of the elements.
    pub fn kind(&self) -> InputKind {
        match self {
            Self::Pixels(_) => InputKind::Pixels,
            Self::Floats(_) => InputKind::Floats,
        }
    }

    /// The elements in `range`.
    #[cfg(feature = "tract")]
    pub(super) fn part(&self, range: std::ops::Range<usize>) -> Self {
        match self {
            Self::Pixels(pixels) => Self::Pixels(&pixels[range]),
            Self::Floats(floats) => Self::Floats(&floats[range]),
        }
    }

    /// Checks that the input has `batch` samples of a section.
    pub(super) fn check(&self, manifest: &SectionManifest, batch: usize) -> Result<(), EngineError> {
        let expected = batch.saturating_mul(manifest.input_len());
        if self.kind() == manifest.input.kind && self.elements() == expected {
            return Ok(());
        }
        Err(EngineError::Input {
            section: manifest.name.clone(),
            batch,
            kind: manifest.input.kind,
            expected,
            found: format!("{} {:?}", self.elements(), self.kind()),
        })
    }
}

/// `x / 255` for each pixel `x`, rounded as the division that training uses.
#[cfg(any(feature = "tract", feature = "ort"))]
pub(super) struct Unit([f32; 256]);

#[cfg(any(feature = "tract", feature = "ort"))]
impl Unit {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|pixel| pixel as f32 / 255.0))
    }

    /// Writes an input as floats.
    ///
    /// # Panics
    /// When `into` has another length than the input.
    pub(super) fn floats(&self, input: Input<'_>, into: &mut [f32]) {
        match input {
            Input::Pixels(pixels) => {
                assert_eq!(pixels.len(), into.len(), "elements of the input");
                for (value, &pixel) in into.iter_mut().zip(pixels) {
                    *value = self.0[usize::from(pixel)];
                }
            }
            Input::Floats(floats) => into.copy_from_slice(floats),
        }
    }
}
