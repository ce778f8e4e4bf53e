//! The shape pass: which shape every block gives, or why the spec does not fit.

use std::ops::Range;

use headwater_inference::manifest::Aggregation;
use toml::Spanned;

use super::{BlockSpec, FcActivation, NetworkSpec};
use crate::fused::Window;

/// Largest number of device slots; a presence mask has 32 bits.
const MAX_SLOTS: usize = 32;
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

/// All shapes of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Shapes {
    /// Blocks of one device up to the features.
    pub device: Vec<LayerShape>,
    /// From features to scores.
    pub head: LayerShape,
    /// What a device sends on request.
    pub features: [usize; 3],
    /// What the section `local` takes, `[slots * classes + slots, 1, 1]`; `None` unless scores are concatenated.
    pub local_input: Option<[usize; 3]>,
    /// What the cloud section takes.
    pub cloud_input: [usize; 3],
    /// Blocks of the cloud.
    pub cloud: Vec<LayerShape>,
}

/// Why a spec does not fit, and where in its text.
#[derive(Clone, Debug)]
pub(super) struct Misfit {
    pub(super) at: Range<usize>,
    pub(super) what: String,
    pub(super) expected: String,
    pub(super) found: String,
}

impl Shapes {
    pub(super) fn work_out(spec: &NetworkSpec) -> Result<Self, Misfit> {
        let classes = spec.network.labels.get_ref().len();
        let slots = *spec.device.count.get_ref();
        expect(
            &spec.network.labels,
            (2..=65_535).contains(&classes),
            "network.labels",
            "at least 2 labels",
            || classes.to_string(),
        )?;
        let range = format!("1 to {MAX_SLOTS} device slots");
        expect(&spec.device.count, (1..=MAX_SLOTS).contains(&slots), "device.count", &range, || {
            slots.to_string()
        })?;
        let input = *spec.device.input.get_ref();
        let fits = matches!(input[0], 1 | 3) && input.iter().all(|n| (1..=4096).contains(n));
        expect(
            &spec.device.input,
            fits,
            "device.input",
            "[1 or 3, height, width], each side 1 to 4096",
            || format!("{input:?}"),
        )?;

        let device = chain("device", &spec.device.blocks, input, classes)?;
        let features = device.last().map_or(input, |layer| layer.output);
        let last = spec.device.blocks.get_ref().last();
        if !matches!(last.map(Spanned::get_ref), Some(BlockSpec::Convp(_))) {
            return Err(Misfit {
                at: last.map_or_else(|| spec.device.blocks.span(), Spanned::span),
                what: "last device block".into(),
                expected: "a block that ends in sign (convp), since features travel as bits".into(),
                found: last.map_or("no block".into(), |block| block.get_ref().name().into()),
            });
        }
        let head = layer("device.head", &spec.device.head, features, classes)?;
        ends_in_classes("device.head", &spec.device.head, classes)?;

        let cloud_input = match spec.cloud.aggregation {
            Aggregation::Cc => [slots * (features[0] + 1), features[1], features[2]],
            Aggregation::Mp | Aggregation::Ap => features,
        };
        let cloud = chain("cloud", &spec.cloud.blocks, cloud_input, classes)?;
        match spec.cloud.blocks.get_ref().last() {
            Some(last) => ends_in_classes("last cloud block", last, classes)?,
            None => {
                expect(&spec.cloud.blocks, false, "cloud.blocks", "at least one fc block", || "none".into())?;
            }
        }
        let local_input =
            (spec.local.aggregation == Aggregation::Cc).then_some([slots * (classes + 1), 1, 1]);
        Ok(Self { device, head, features, local_input, cloud_input, cloud })
    }
}

impl BlockSpec {
    /// The word in the spec.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Convp(_) => "convp",
            Self::Conv(_) => "conv",
            Self::Pool(_) => "pool",
            Self::Fc(_) => "fc",
        }
    }
}

fn chain(
    section: &str,
    blocks: &Spanned<Vec<Spanned<BlockSpec>>>,
    input: [usize; 3],
    classes: usize,
) -> Result<Vec<LayerShape>, Misfit> {
    let mut shapes = Vec::new();
    let mut shape = input;
    for (index, block) in blocks.get_ref().iter().enumerate() {
        let name = format!("{section} block {} ({})", index + 1, block.get_ref().name());
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

fn ends_in_classes(what: &str, block: &Spanned<BlockSpec>, classes: usize) -> Result<(), Misfit> {
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

fn expect<T>(
    at: &Spanned<T>,
    holds: bool,
    what: &str,
    expected: &str,
    found: impl FnOnce() -> String,
) -> Result<(), Misfit> {
    if holds {
        return Ok(());
    }
    Err(Misfit { at: at.span(), what: what.to_owned(), expected: expected.to_owned(), found: found() })
}
