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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::TrainedNetwork;
    use crate::testing::{DDNN_C, network};

    #[test]
    fn a_pool_in_a_binary_section_or_in_its_head_is_refused_with_a_sentence() {
        let text = DDNN_C.replace("\"coded\"", "\"f32\"");
        let (block, head) = (r#"{ kind = "convp", filters = 8 }"#, r#"{ kind = "fc", binary = true }"#);
        for (of, with_pool, sentence) in [
            (block, format!(r#"{block}, {{ kind = "pool" }}"#), "block 1 is not a `convp` block"),
            (head, format!(r#"[{{ kind = "pool" }}, {head}]"#), "the head is not one binary `fc` layer"),
        ] {
            let text = text.replace(of, &with_pool);
            let text = if of == head { text.replace("\"f32\"", "\"bits\"") } else { text };
            let layers = network(&text);
            let state = layers.layout.initial(1);
            let network = TrainedNetwork { layers: &layers, state: &state };
            let refused = packed_section(&layers.devices[0], &network.trained(), [3, 32, 32]).unwrap_err();
            assert_eq!(refused.to_string(), sentence);
        }
    }
}
