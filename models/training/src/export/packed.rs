//! The packed form of a device section: weights as bits, batch norm and sign as one integer threshold per filter.
//!
//! A threshold is found by evaluating the trained float batch norm at every sum that the integers can reach, so that threshold and
//! batch norm agree at every sum. The one difference left is rounding in the float network, which sums `x / 255` and not `x`.

use headwater_kernels::{HeadParts, InputKind, Map, write};

use crate::layers::{NoPackedForm, PackedBlock, PackedHead, TrainedState};
use crate::network::ExitSection;

/// The packed form of one device section over views of `[channels, height, width]`.
///
/// # Errors
/// [`NoPackedForm`] with the first obstacle.
pub fn packed_section(
    section: &ExitSection,
    trained: &TrainedState<'_>,
    [channels, height, width]: [usize; 3],
) -> Result<Vec<u8>, NoPackedForm> {
    let mut input = Map { channels, height, width };
    let mut blocks = Vec::new();
    for (index, block) in section.blocks.iter().enumerate() {
        let packed = block.layer().packed(trained, input, index)?;
        input = packed.shape.output();
        blocks.push(packed);
    }
    let [head] = &section.head[..] else { return Err(NoPackedForm::Head) };
    let PackedHead { weights, classes, unit } = head.layer().packed_head(trained)?;
    let blocks: Vec<_> = blocks.iter().map(PackedBlock::parts).collect();
    let head = HeadParts { weights: &weights, classes: &classes, scale: unit };
    let mut bytes = Vec::new();
    let [sent, ..] = section.map.shape();
    write(InputKind::Pixels, &blocks, &head, sent, |part| bytes.extend_from_slice(part))?;
    Ok(bytes)
}
