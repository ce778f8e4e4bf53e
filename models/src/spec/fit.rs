//! Whether blocks fit one behind the other, and the shapes they give.

use std::ops::Range;

use toml::Spanned;

use super::{BlockSpec, FcActivation};
use crate::fused::Window;

/// Largest number of values in one sample's map, so that sizes never overflow and memory stays bounded.
const MAX_VALUES: usize = 1 << 24;

/// Input and output of one block, `[channels, height, width]`; fully connected layers give `[outputs, 1, 1]`.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerShape {
    /// The block.
    pub block: BlockSpec,
    /// What it takes.
    pub input: [usize; 3],
    /// What it gives.
    pub output: [usize; 3],
}

/// Why a spec does not fit, and where in its text.
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

/// Blocks one behind the other.
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
        // What an fc block gives has no rows and columns to slide a window over.
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
            let map = slide(what, block, spec.conv_window(), [input[1], input[2]])?;
            let [h, w] = slide(what, block, spec.pool_window(), map)?;
            [spec.filters, h, w]
        }
        BlockSpec::Conv(spec) => {
            let [h, w] = slide(what, block, spec.window(), [input[1], input[2]])?;
            [spec.filters, h, w]
        }
        BlockSpec::Pool(spec) => {
            let [h, w] = slide(what, block, spec.window(), [input[1], input[2]])?;
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
    [h, w]: [usize; 2],
) -> Result<[usize; 2], Misfit> {
    let Window { kernel, stride, pad } = window;
    expect(block, (1..=64).contains(&kernel), what, "a window of 1 to 64", || kernel.to_string())?;
    expect(block, (1..=64).contains(&stride), what, "a stride of 1 to 64", || stride.to_string())?;
    expect(block, pad < kernel, what, &format!("a padding below the window's side {kernel}"), || {
        pad.to_string()
    })?;
    let (room_h, room_w) = (h + 2 * pad, w + 2 * pad);
    let expected = format!("a window of at most {room_h}x{room_w} (map {h}x{w}, padding {pad})");
    expect(block, kernel <= room_h && kernel <= room_w, what, &expected, || format!("{kernel}x{kernel}"))?;
    Ok([window.positions(h), window.positions(w)])
}

/// The last block gives one number a class, with nothing behind it.
pub(super) fn ends_in_classes(what: &str, block: &Spanned<BlockSpec>, classes: usize) -> Result<(), Misfit> {
    let expected = format!("an fc block with {classes} outputs (one a class) and no activation");
    let found = match block.get_ref() {
        BlockSpec::Fc(spec) if spec.activation != FcActivation::None => Some("an activation".to_owned()),
        BlockSpec::Fc(spec) => spec.outputs.filter(|n| *n != classes).map(|n| format!("{n} outputs")),
        other => Some(other.name().to_owned()),
    };
    match found {
        None => Ok(()),
        Some(found) => expect(block, false, what, &expected, || found),
    }
}
