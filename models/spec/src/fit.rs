//! Checks that blocks fit in sequence, and computes their shapes.

use std::ops::Range;

use toml::Spanned;

use super::BlockSpec;

/// Largest number of values in one sample's map, so that sizes do not overflow and memory stays bounded.
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

/// A contradiction in a spec, with its byte range in the text.
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

/// Shapes of blocks in sequence; an error for the first block that does not fit.
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
        let is_flat = index > 0 && blocks[index - 1].get_ref().kind().is_flat();
        let fits = !is_flat || block.get_ref().kind().is_flat();
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
    let fitted = block.get_ref().kind().output(input, classes);
    let output = fitted.map_err(|misfit| Misfit::new(block.span(), what, misfit.expected, misfit.found))?;
    let values = output.iter().try_fold(1usize, |all, n| all.checked_mul(*n)).unwrap_or(usize::MAX);
    let expected = format!("an output of 1 to {MAX_VALUES} values");
    expect(block, (1..=MAX_VALUES).contains(&values), what, &expected, || format!("{output:?}"))?;
    Ok(LayerShape { block: block.get_ref().clone(), input, output })
}

/// Checks that the last block gives one number per class, without an activation.
pub(super) fn ends_in_classes(what: &str, block: &Spanned<BlockSpec>, classes: usize) -> Result<(), Misfit> {
    let expected = format!("an fc block with {classes} outputs (one a class) and no activation");
    let (name, kind) = (block.get_ref().name(), block.get_ref().kind());
    let found = if kind.is_flat() { kind.instead_of_classes(classes) } else { Some(name.to_owned()) };
    found.map_or(Ok(()), |found| Err(Misfit::new(block.span(), what, expected, found)))
}
