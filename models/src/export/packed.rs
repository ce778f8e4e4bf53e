//! The packed form of a device section: weights as bits, batch norm and sign as one integer threshold a filter.
//!
//! A threshold is found by evaluating the trained float batch norm at every sum that the integers can reach, so it says the same by
//! construction. What remains is the rounding of the float network itself, which sums `x / 255` and not `x`.

use headwater_kernels::{
    Affine, BlockParts, Convp as Shape, HeadParts, InputKind, Map, PackedError, Threshold, Window as Slide,
    write,
};
use thiserror::Error;

use crate::fused::Window;
use crate::layers::{Block, Convp, Fc, Folded, Source};
use crate::network::ExitSection;

/// Largest sum whose thresholds are searched for.
const REACH_MAX: usize = 1 << 24;

/// Why a device section has no packed form; it runs as ONNX then.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoPackedForm {
    /// A block is not binary.
    #[error("block {0} is not a `convp` block")]
    NotBinary(usize),
    /// The head is not one binary layer to the classes.
    #[error("the head is not one binary `fc` layer")]
    Head,
    /// Devices send their views.
    #[error("devices have no section in configuration (a)")]
    NoSection,
    /// The sums of a filter are too large to look at each.
    #[error("block {block} has {taps} weights a filter, more than are packed")]
    Reach {
        /// The block.
        block: usize,
        /// Weights of one of its filters.
        taps: usize,
    },
    /// A batch norm of numbers that are not finite.
    #[error("the batch norm of block {0} changes its sign more than once")]
    Threshold(usize),
    /// The packed form has no room for such a shape.
    #[error(transparent)]
    Shape(#[from] PackedError),
}

struct Parts {
    shape: Shape,
    weights: Vec<bool>,
    thresholds: Vec<Threshold>,
}

/// The packed form of one device section over views of `[channels, height, width]`.
///
/// # Errors
/// [`NoPackedForm`] with the first thing that cannot be packed.
pub fn packed_section(
    layers: &ExitSection,
    source: &Source<'_>,
    [channels, height, width]: [usize; 3],
) -> Result<Vec<u8>, NoPackedForm> {
    let mut input = Map { channels, height, width };
    let mut blocks = Vec::new();
    for (index, block) in layers.blocks.iter().enumerate() {
        let Block::Convp(convp) = block else { return Err(NoPackedForm::NotBinary(index)) };
        let parts = pack_block(convp, source, input, index)?;
        input = parts.shape.output();
        blocks.push(parts);
    }
    let [head] = &layers.head[..] else { return Err(NoPackedForm::Head) };
    let head = head.as_fc().ok_or(NoPackedForm::Head)?;
    let (weights, classes, scale) = pack_head(head, source)?;
    let blocks: Vec<_> = blocks
        .iter()
        .map(|Parts { shape, weights, thresholds }| BlockParts { shape: *shape, weights, thresholds })
        .collect();
    let head = HeadParts { weights: &weights, classes: &classes, scale };
    let mut bytes = Vec::new();
    write(InputKind::Pixels, &blocks, &head, |part| bytes.extend_from_slice(part))?;
    Ok(bytes)
}

fn pack_block(convp: &Convp, source: &Source<'_>, input: Map, index: usize) -> Result<Parts, NoPackedForm> {
    let weights = convp.weight_signs(source);
    let Folded { scale, shift } = convp.norm.folded(source.layout, source.state);
    let slide = |window: Window| Slide { kernel: window.kernel, stride: window.stride, pad: window.pad };
    let shape = Shape { input, filters: scale.len(), conv: slide(convp.conv), pool: slide(convp.pool) };
    let taps = shape.taps();
    // Sums of the first block are of pixels, which the float network divides by 255.
    let (largest, unit) = if index == 0 { (255, 255.0) } else { (1, 1.0) };
    if taps > REACH_MAX / largest {
        return Err(NoPackedForm::Reach { block: index, taps });
    }
    let reach = (taps * largest) as i32;
    let thresholds = scale.iter().zip(&shift).map(|(scale, shift)| {
        Threshold::fitted(reach, |sum| sum as f32 / unit * scale + shift >= 0.0)
            .ok_or(NoPackedForm::Threshold(index))
    });
    let thresholds = thresholds.collect::<Result<_, _>>()?;
    Ok(Parts { shape, weights, thresholds })
}

/// Weights, factors and summands in one unit, chosen so that the largest score takes 30 bits.
fn pack_head(head: &Fc, source: &Source<'_>) -> Result<(Vec<bool>, Vec<Affine>, f32), NoPackedForm> {
    let (weights, Folded { scale, shift }) = head.binary_scores(source).ok_or(NoPackedForm::Head)?;
    let inputs = head.inputs as f64;
    let largest = scale
        .iter()
        .zip(&shift)
        .map(|(scale, shift)| f64::from(scale.abs()) * inputs + f64::from(shift.abs()))
        .fold(0.0, f64::max);
    // The unit as it is stored, so that the integers are rounded for it.
    let unit = if largest > 0.0 { (largest / f64::from(1 << 30)) as f32 } else { 1.0 };
    let in_units = |value: f32| (f64::from(value) / f64::from(unit)).round() as i32;
    let classes = scale
        .iter()
        .zip(&shift)
        .map(|(scale, shift)| Affine { factor: in_units(*scale), offset: in_units(*shift) });
    Ok((weights, classes.collect(), unit))
}
