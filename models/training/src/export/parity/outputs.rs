//! Outputs of a trained device or edge, as inputs of the next section.

use headwater_inference::manifest::{FeatureEncoding, FeatureMap};
use headwater_kernels::{pack_signs, unpack_signs};

use super::SIGN_TOLERANCE;
use crate::fused::sign_of;
use crate::layers::{Pass, values};
use crate::network::{ExitSection, SourceOutput};

/// Outputs of a trained device or edge for the samples seen there.
pub(super) struct Outputs<'a> {
    /// Name in error messages.
    pub(super) name: String,
    /// The section; `None` for a device that sends its view.
    pub(super) section: Option<&'a ExitSection>,
    /// Samples seen, counted from the first compared sample.
    pub(super) rows: Vec<u32>,
    /// `[rows, classes]`; of a device, the scores that messages carry. Empty without a section.
    pub(super) scores: Vec<f32>,
    /// The scores before rounding to levels, `[rows, classes]`; empty without a section.
    pub(super) exact_scores: Vec<f32>,
    /// Slot of a device; `None` for an edge.
    pub(super) slot: Option<usize>,
    pub(super) map: FeatureMap,
    /// Inputs of the signs of the map that the head reads, or the elements of a float map as sent; row by row.
    elements: Vec<f32>,
}

/// Outputs of all sources of one section for one sample, in their wire encoding.
#[derive(Default)]
pub(super) struct SourceInputs {
    /// `[sources, classes]`.
    pub(super) scores: Vec<f32>,
    /// `[sources, bytes of a map]`.
    pub(super) maps: Vec<u8>,
    pub(super) presence: Vec<bool>,
}

impl<'a> Outputs<'a> {
    /// The outputs of one section; `output` is `None` if none of the samples is seen.
    pub(super) fn new(
        pass: &Pass<'_>,
        (name, slot): (String, Option<usize>),
        section: Option<&'a ExitSection>,
        map: FeatureMap,
        output: Option<&SourceOutput>,
    ) -> Self {
        let (mut rows, mut scores, mut elements) = (Vec::new(), Vec::new(), Vec::new());
        let mut exact_scores = Vec::new();
        if let Some(output) = output {
            let before_sign = section.and_then(|section| section.before_sign(pass, output.input.clone()));
            elements = values(before_sign.as_ref().unwrap_or(&output.features));
            scores = output.scores.as_ref().map(values).unwrap_or_default();
            let exact = section.map(|section| section.exact_scores(pass, output));
            exact_scores = exact.as_ref().map(values).unwrap_or_default();
            rows.clone_from(&output.rows);
        }
        Self { name, section, rows, scores, exact_scores, slot, map, elements }
    }

    pub(super) fn scores(&self, row: usize, classes: usize) -> &[f32] {
        if self.scores.is_empty() { &[] } else { &self.scores[row * classes..][..classes] }
    }

    pub(super) fn exact_scores(&self, row: usize, classes: usize) -> &[f32] {
        if self.exact_scores.is_empty() { &[] } else { &self.exact_scores[row * classes..][..classes] }
    }

    /// Elements of the sent map.
    pub(super) fn elements(&self, row: usize) -> &[f32] {
        &self.read_by_head(row)[..self.map.elements()]
    }

    /// Elements of the map that the head reads; for a float map, the elements that are sent.
    fn read_by_head(&self, row: usize) -> &[f32] {
        let elements = self.elements.len() / self.rows.len();
        &self.elements[row * elements..][..elements]
    }

    /// The sign of each element of the map that the head reads: from `bits` for the elements that are sent, of the trained network
    /// for the other elements.
    pub(super) fn signs(&self, row: usize, bits: &[u8]) -> Vec<f32> {
        let mut signs: Vec<f32> = self.read_by_head(row).iter().map(|value| sign_of(*value)).collect();
        unpack_signs(bits, &mut signs[..self.map.elements()]);
        signs
    }

    /// Indices of the elements that the head reads, that are not sent, and that are within [`SIGN_TOLERANCE`] of their threshold 0.
    pub(super) fn unsent_at_threshold(&self, row: usize) -> impl Iterator<Item = usize> + '_ {
        let elements = self.read_by_head(row).iter().enumerate().skip(self.map.elements());
        elements.filter(|(_, element)| element.abs() < SIGN_TOLERANCE).map(|(index, _)| index)
    }

    #[cfg(test)]
    pub(super) fn element_mut(&mut self, row: usize, index: usize) -> &mut f32 {
        let elements = self.elements.len() / self.rows.len();
        &mut self.elements[row * elements + index]
    }

    /// The map of a row in its wire encoding.
    pub(super) fn encoded(&self, row: usize) -> Vec<u8> {
        let elements = self.elements(row);
        match self.map.encoding {
            FeatureEncoding::Bits => {
                let mut bits = vec![0; self.map.packed_bytes()];
                pack_signs(elements, &mut bits);
                bits
            }
            FeatureEncoding::F32 => elements.iter().flat_map(|value| value.to_le_bytes()).collect(),
            // An element is a pixel divided by 255; multiplied by 255 and rounded it is the exact pixel again.
            FeatureEncoding::Pixels => elements.iter().map(|value| (value * 255.0).round() as u8).collect(),
        }
    }
}

impl SourceInputs {
    pub(super) fn new(sources: &[&Outputs<'_>], sample: usize, classes: usize) -> Self {
        let mut inputs = Self::default();
        for source in sources {
            let row = source.rows.binary_search(&(sample as u32)).ok();
            inputs.presence.push(row.is_some());
            match row {
                Some(row) => {
                    // A device without a section adds no scores; no exit of its configuration reads scores.
                    inputs.scores.extend_from_slice(source.scores(row, classes));
                    inputs.maps.extend(source.encoded(row));
                }
                None => {
                    inputs.scores.resize(inputs.scores.len() + classes, 0.0);
                    inputs.maps.resize(inputs.maps.len() + source.map.packed_bytes(), 0);
                }
            }
        }
        inputs
    }
}
