//! Checks that blocks fit in sequence, and computes their shapes.

use std::ops::Range;

use toml::Spanned;

use super::{Activation, BlockSpec, Window};

/// Limit on the values in one sample's map: sizes never overflow, and memory stays bounded.
const MAX_VALUES: usize = 1 << 24;

/// Input and output of one block, `[channels, height, width]`; fully connected layers give `[outputs, 1, 1]`.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerShape {
    /// The block.
    pub block: BlockSpec,
    /// Shape of the input.
    pub input: [usize; 3],
    /// Shape of the output.
    pub output: [usize; 3],
}

/// A contradiction in a spec, with its position in the text.
#[derive(Clone, Debug)]
pub(super) struct Misfit {
    pub(super) at: Range<usize>,
    pub(super) what: String,
    pub(super) expected: String,
    pub(super) found: String,
}

impl Misfit {
    pub(super) fn new(
        at: Range<usize>,
        what: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self { at, what: what.into(), expected: expected.into(), found: found.into() }
    }
}

pub(super) fn expect<T>(
    at: &Spanned<T>,
    holds: bool,
    what: &str,
    expected: &str,
    found: impl FnOnce() -> String,
) -> Result<(), Misfit> {
    if holds { Ok(()) } else { Err(Misfit::new(at.span(), what, expected, found())) }
}

/// Shapes of blocks in sequence.
pub(super) fn chain(
    section: &str,
    blocks: &[Spanned<BlockSpec>],
    input: [usize; 3],
    classes: usize,
) -> Result<Vec<LayerShape>, Misfit> {
    let mut shapes = Vec::new();
    let mut shape = input;
    for (index, block) in blocks.iter().enumerate() {
        let name = format!("{section} block {} ({})", index + 1, block.get_ref().name());
        // The output of an fc block has no rows and columns that a window could slide over.
        let is_flat = index > 0 && matches!(blocks[index - 1].get_ref(), BlockSpec::Fc(_));
        let fits = !is_flat || matches!(block.get_ref(), BlockSpec::Fc(_));
        expect(block, fits, &name, "an fc block, as the one in front of it", || {
            block.get_ref().name().into()
        })?;
        let fitted = layer(&name, block, shape, classes)?;
        shape = fitted.output;
        shapes.push(fitted);
    }
    Ok(shapes)
}

fn layer(
    what: &str,
    block: &Spanned<BlockSpec>,
    input: [usize; 3],
    classes: usize,
) -> Result<LayerShape, Misfit> {
    let output = match block.get_ref() {
        BlockSpec::Convp(spec) => {
            let [h, w] = slide(what, block, spec.conv_window(), input)?;
            let [h, w] = slide(what, block, spec.pool_window(), [spec.filters, h, w])?;
            [spec.filters, h, w]
        }
        BlockSpec::Conv(spec) => {
            let [h, w] = slide(what, block, spec.window(), input)?;
            [spec.filters, h, w]
        }
        BlockSpec::Pool(spec) => {
            let [h, w] = slide(what, block, spec.window(), input)?;
            [input[0], h, w]
        }
        BlockSpec::Fc(spec) => [spec.outputs.unwrap_or(classes), 1, 1],
    };
    let values = output.iter().try_fold(1usize, |all, n| all.checked_mul(*n)).unwrap_or(usize::MAX);
    let expected = format!("an output of 1 to {MAX_VALUES} values");
    expect(block, (1..=MAX_VALUES).contains(&values), what, &expected, || format!("{output:?}"))?;
    Ok(LayerShape { block: block.get_ref().clone(), input, output })
}

fn slide(
    what: &str,
    block: &Spanned<BlockSpec>,
    window: Window,
    map: [usize; 3],
) -> Result<[usize; 2], Misfit> {
    let [_, h, w] = map;
    let Window { kernel, stride, pad } = window;
    expect(block, (1..=64).contains(&kernel), what, "a window of 1 to 64", || kernel.to_string())?;
    expect(block, (1..=64).contains(&stride), what, "a stride of 1 to 64", || stride.to_string())?;
    expect(block, pad < kernel, what, &format!("a padding below the window's side {kernel}"), || {
        pad.to_string()
    })?;
    let (padded_h, padded_w) = (h + 2 * pad, w + 2 * pad);
    let expected = format!("a window of at most {padded_h}x{padded_w} (map {h}x{w}, padding {pad})");
    expect(block, kernel <= padded_h.min(padded_w), what, &expected, || format!("{kernel}x{kernel}"))?;
    Ok([window.positions(h), window.positions(w)])
}

/// Checks that the last block gives one number per class, without an activation.
pub(super) fn ends_in_classes(what: &str, block: &Spanned<BlockSpec>, classes: usize) -> Result<(), Misfit> {
    let expected = format!("an fc block with {classes} outputs (one a class) and no activation");
    let found = match block.get_ref() {
        BlockSpec::Fc(spec) if spec.activation != Activation::None => Some("an activation".to_owned()),
        BlockSpec::Fc(spec) => spec.outputs.filter(|n| *n != classes).map(|n| format!("{n} outputs")),
        other => Some(other.name().to_owned()),
    };
    found.map_or(Ok(()), |found| Err(Misfit::new(block.span(), what, expected, found)))
}
