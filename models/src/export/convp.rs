//! Lowers a `convp` block to ONNX and to the packed form.

use headwater_kernels::{BlockParts, Convp as Shape, Map, Threshold};

use super::no_packed_form::NoPackedForm;
use super::onnx::{Graph, Value, windowed};
use crate::fused::Folded;
use crate::layers::{Convp, TrainedState};

/// Limit on the sums over which thresholds are searched.
const MAX_SUM: usize = 1 << 24;

/// A packed block with its weights.
pub(super) struct PackedConvp {
    pub(super) shape: Shape,
    pub(super) weights: Vec<bool>,
    pub(super) thresholds: Vec<Threshold>,
}

impl PackedConvp {
    pub(super) fn parts(&self) -> BlockParts<'_> {
        BlockParts { shape: self.shape, weights: &self.weights, thresholds: &self.thresholds }
    }
}

impl Convp {
    /// `Conv` with signs as weights, `MaxPool`, one factor and one summand per channel, sign.
    pub(super) fn onnx(&self, trained: &TrainedState<'_>, graph: &mut Graph, x: &Value) -> Value {
        let weight = graph.constant(trained.shape(self.weight), &trained.binary_weight(self.weight));
        let y = graph.node("Conv", &[x, &weight], windowed(self.conv));
        let y = graph.node("MaxPool", &[&y], windowed(self.pool));
        graph.norm(&y, &self.norm.folded(trained), 4)
    }

    /// Weights as bits, and one integer threshold per filter in place of batch norm and sign; `index` counts blocks from 0.
    pub(super) fn packed(
        &self,
        trained: &TrainedState<'_>,
        input: Map,
        index: usize,
    ) -> Result<PackedConvp, NoPackedForm> {
        let Folded { scale, shift, .. } = self.norm.folded(trained);
        let shape = Shape { input, filters: scale.len(), conv: self.conv, pool: self.pool };
        let taps = shape.taps();
        // The first block sums pixels, which the float network divides by 255.
        let (max_input, unit) = if index == 0 { (255, 255.0) } else { (1, 1.0) };
        if taps > MAX_SUM / max_input {
            return Err(NoPackedForm::TooManyTaps { block: index, taps });
        }
        let max_sum = (taps * max_input) as i32;
        let thresholds = scale.iter().zip(&shift).map(|(scale, shift)| {
            Threshold::fitted(max_sum, |sum| sum as f32 / unit * scale + shift >= 0.0)
                .ok_or(NoPackedForm::Threshold(index))
        });
        Ok(PackedConvp {
            shape,
            weights: trained.signs(self.weight),
            thresholds: thresholds.collect::<Result<_, _>>()?,
        })
    }
}
