//! The rules that choose spec and recipe. A rule gives a value, and the reason for it where the reason depends on the data. The constants of all
//! rules are at the top.

use headwater_samples::{ImageSizes, Part};

use super::super::target::{Asked, Key};
use super::look::Look;

/// Most pixels of a view: a section of three binary blocks then trains at hundreds of samples a second.
const VIEW_PIXELS: usize = 16_384;
/// Sides of views above this length are multiples of it, so that three blocks halve them evenly.
const VIEW_STEP: usize = 8;
/// Short side from which a view is large. A smaller view is taken to show one thing that fills it.
const LARGE_SIDE: usize = 64;
/// Filters of the three blocks of a large view, and of the two blocks of a small one.
const LARGE_FILTERS: [usize; 3] = [32, 64, 64];
const SMALL_FILTERS: [usize; 2] = [32, 32];
/// Least number of rows and of columns of the map of a large view. An element stands for about a third of the short side, wherever in this third
/// a small part lies.
const MAP_SIDE: usize = 3;
/// Filters of the two float layers of the cloud, for large views and for small ones.
const LARGE_CLOUD: [usize; 2] = [128, 128];
const SMALL_CLOUD: [usize; 2] = [64, 96];
/// Assumed share of the samples for which a device is asked for its map, if bytes have a target: measured shares are 1 to 37 %.
const ASKED_SHARE: f64 = 0.4;
/// Bits of a score on the wire, as in the text of the spec.
const SCORE_BITS: usize = 4;

/// Train samples from which a batch is large, and batches for fewer and for more: few photos need small batches to make many steps.
const MANY_SAMPLES: usize = 5_000;
const BATCHES: [usize; 2] = [32, 128];
/// Most steps of a run, before rounding up to whole epochs, and the least: after 40 steps a network of three classes was still at chance level.
const STEPS: f64 = 4_000.0;
const LEAST_STEPS: f64 = 1_000.0;
/// Most epochs of a recipe.
const MOST_EPOCHS: f64 = 100_000.0;
/// Multiply-accumulates of the forward passes of a run: about five minutes at [`MACS_PER_SECOND`].
const RUN_MACS: f64 = 3.6e12;
/// Multiply-accumulates a second, counted for the forward pass alone, while two cores train. The estimate for `neu-defects`
/// (docs/results/training.md) was 7 minutes, the run took 7 min 16 s; three earlier runs of other specs give 7e9 to 19e9 by rate and cost.
const MACS_PER_SECOND: f64 = 1.2e10;
/// Ratio of the time of an epoch to the time of its steps. The best epoch is exported, so each epoch ends with one more forward pass over the
/// samples, taken as a third of the work of the steps (not measured).
const WITH_EXACT_STATISTICS: f64 = 4.0 / 3.0;
/// Mean number of train samples per class from which views are augmented less.
const MANY_OF_CLASS: usize = 1_000;
/// Ratio of the short side of a view to the largest shift.
const SHIFT_DIVISOR: usize = 16;
/// Validation samples below which thresholds of grouped data come from folds, and the number of folds; each fold takes a training of its own.
const FEW_TO_CHOOSE_BY: usize = 100;
const FOLDS: usize = 4;
/// Percent of wrong answers among the answers given, if no target is asked for and there are photos of nothing.
const USUAL_WRONG: f64 = 2.0;

/// Height and width of views of image files.
pub(super) fn view_size(sizes: ImageSizes) -> [usize; 2] {
    let [height, width] = sizes.median;
    let scale = (VIEW_PIXELS as f64 / (height * width).max(1) as f64).sqrt().min(1.0);
    [height, width].map(|side| {
        let side = (side as f64 * scale).round() as usize;
        if side > VIEW_STEP { side / VIEW_STEP * VIEW_STEP } else { side.max(1) }
    })
}

/// Blocks of a device, with the reason of their kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    /// TOML of each block.
    pub(super) blocks: Vec<String>,
    pub(super) why: &'static str,
    /// `[channels, height, width]` that the blocks give.
    pub(super) map: [usize; 3],
}

/// The blocks of a device for views of this size.
pub(super) fn device_blocks([height, width]: [usize; 2]) -> Blocks {
    let convp = |filters: usize, more: &str| format!(r#"{{ kind = "convp", filters = {filters}{more} }}"#);
    if height.min(width) < LARGE_SIDE {
        return Blocks {
            blocks: SMALL_FILTERS.map(|filters| convp(filters, "")).into(),
            why: "small views are filled by one thing, whose places matter: each block halves them, no more",
            map: [SMALL_FILTERS[1], height.div_ceil(4), width.div_ceil(4)],
        };
    }
    let [first, second, third] = LARGE_FILTERS;
    // Three halvings come before the last pooling: by the stride of the first convolution, and by the pooling of two blocks.
    let [rows, columns] = [height, width].map(|side| side.div_ceil(8));
    let stride = (rows.min(columns) / MAP_SIDE).max(2);
    // The first window begins one element before the map. The smallest window is taken that leaves no element out at the end.
    let is_whole = |window: &usize| [rows, columns].iter().all(|side| (side + 2 - window) % stride <= 1);
    let window = (stride + 2..=2 * stride + 1).find(is_whole).unwrap_or(stride + 2);
    let pooled = format!(", pool = {window}, pool_stride = {stride}");
    Blocks {
        blocks: vec![
            convp(first, ", kernel = 5, stride = 2, pad = 2"),
            convp(second, ""),
            convp(third, &pooled),
        ],
        why: "the last pooling is wide, so that a small part counts wherever it lies and the map costs few bytes; leave it out where places matter",
        map: [third, (rows + 2 - window) / stride + 1, (columns + 2 - window) / stride + 1],
    }
}

/// The blocks of the cloud for views of this size.
pub(super) fn cloud_blocks([height, width]: [usize; 2]) -> (Vec<String>, &'static str) {
    let conv = |filters: usize, stride: usize| {
        format!(r#"{{ kind = "conv", filters = {filters}, stride = {stride} }}"#)
    };
    let [pool, fc] = [r#"{ kind = "pool", global = true }"#, r#"{ kind = "fc" }"#].map(str::to_owned);
    if height.min(width) < LARGE_SIDE {
        let [first, second] = SMALL_CLOUD;
        let why = "two float layers, then the classes from every place of a small map";
        return (vec![conv(first, 1), conv(second, 2), fc], why);
    }
    let [first, second] = LARGE_CLOUD;
    let why = "pooled over the map: a fully connected layer on a whole map cannot learn small parts from few photos";
    (vec![conv(first, 1), conv(second, 1), pool, fc], why)
}

/// Target of wrong answers among the answers given, in percent; `None` if every sample gets an answer.
pub(super) fn wrong(look: &Look, asked: &Asked) -> Option<f64> {
    asked.of(Key::Wrong).or((look.of_nothing > 0).then_some(USUAL_WRONG))
}

/// Channels of a map that are sent so that the target of bytes is kept; fails if one channel would not keep the target.
pub(super) fn sent_channels(
    classes: usize,
    [filters, rows, columns]: [usize; 3],
    asked: &Asked,
) -> Result<usize, String> {
    let Some(bytes) = asked.of(Key::Bytes) else { return Ok(filters) };
    let (scores, of_channel) =
        ((classes * SCORE_BITS).div_ceil(8) as f64, ASKED_SHARE * (rows * columns) as f64 / 8.0);
    let sent = ((bytes - scores) / of_channel) as usize;
    if sent > 0 {
        return Ok(sent.min(filters));
    }
    let least = scores + of_channel;
    Err(format!(
        "bytes: expected at least {least:.1}, for the scores of {classes} classes and one channel of the map of some samples, found {bytes}"
    ))
}

/// Length of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Length {
    pub(super) batch: usize,
    pub(super) epochs: u32,
    /// Number of folds, each of which takes a further training; 0 for none.
    pub(super) folds: usize,
    /// Rough time on two cores.
    pub(super) seconds: f64,
}

/// Length of a run for a network of so many multiply-accumulates a sample.
pub(super) fn length(look: &Look, macs: u64) -> Length {
    let [train, validation, _, calibration] = look.samples;
    let batch = BATCHES[usize::from(train >= MANY_SAMPLES)];
    let folds = if look.is_grouped && calibration == 0 && validation < FEW_TO_CHOOSE_BY { FOLDS } else { 0 };
    // Each of n folds trains on all samples but an n-th, so the folds and the network together cost as much as n trainings.
    let macs = folds.max(1) as f64 * macs.max(1) as f64;
    let steps = (RUN_MACS / (batch as f64 * macs)).clamp(LEAST_STEPS, STEPS);
    let train = train.max(1) as f64;
    let epochs = (steps * batch as f64 / train).ceil().min(MOST_EPOCHS);
    let seconds = epochs * train * macs * WITH_EXACT_STATISTICS / MACS_PER_SECOND;
    Length { batch, epochs: epochs as u32, folds, seconds }
}

/// Changes of the views in training, as in a recipe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Changes {
    pub(super) failout: f32,
    pub(super) shift: usize,
    pub(super) affine: f32,
    pub(super) exposure: f32,
    pub(super) erase: f32,
}

/// Changes of the views: more for few photos. What tells the classes apart is not known, so the recipe says of each change when it harms.
pub(super) fn changes(look: &Look) -> Changes {
    let is_few = look.samples[Part::Train as usize] < MANY_OF_CLASS * look.labels.len();
    let [affine, exposure, erase] = if is_few { [0.15, 0.2, 0.25] } else { [0.1, 0.1, 0.0] };
    let shift = (look.shape.height.min(look.shape.width) / SHIFT_DIVISOR).max(1);
    Changes { failout: if look.slots > 1 { 0.1 } else { 0.0 }, shift, affine, exposure, erase }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use headwater_samples::Shape;
    use headwater_spec::Spec;
    use headwater_training::recipe::Recipe;

    use super::super::look::Alike;
    use super::super::write::{recipe_text, spec_text};
    use super::*;

    fn sizes(median: [usize; 2]) -> ImageSizes {
        ImageSizes { images: 100, median, smallest: median, largest: median }
    }

    /// Data of `slots` cameras with views of this size; `samples` are the numbers of train, validation, test and calibration samples.
    fn look(slots: usize, [height, width]: [usize; 2], samples: [usize; 4]) -> Look {
        Look {
            labels: vec!["a \"b\"".into(), "ö".into(), "c".into()],
            slots,
            shape: Shape::rgb(height, width),
            sizes: Some(sizes([4 * height, 4 * width])),
            is_grey: false,
            samples,
            units: samples,
            is_grouped: false,
            of_class: vec![samples[0] / 3; 3],
            of_nothing: 0,
            alike: Alike::default(),
        }
    }

    #[test]
    fn views_have_the_shape_of_the_images_and_are_never_larger() {
        for (median, expected) in [
            ([200, 200], [128, 128]),
            ([120, 160], [104, 144]),
            ([100, 100], [96, 96]),
            ([32, 32], [32, 32]),
            ([3024, 4032], [104, 144]),
            ([4, 4], [4, 4]),
            ([1, 5000], [1, 5000 / 8 * 8]),
        ] {
            assert_eq!(view_size(sizes(median)), expected, "{median:?}");
        }
    }

    #[test]
    fn every_chosen_spec_fits_and_its_map_is_that_of_the_rule() {
        for slots in [1, 2, 6] {
            for view in [
                [1, 1],
                [4, 9],
                [28, 28],
                [32, 32],
                [63, 200],
                [64, 64],
                [96, 96],
                [104, 144],
                [128, 128],
                [240, 320],
            ] {
                let look = look(slots, view, [300, 50, 50, 0]);
                let text = spec_text(&look, "photos", &Asked::default()).unwrap();
                let spec =
                    Spec::parse(Path::new("chosen"), &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
                assert_eq!(spec.shapes.features.shape(), device_blocks(view).map, "{view:?}");
                assert_eq!(spec.network.network.labels.get_ref(), &look.labels);
                assert!(spec.codes_features());
            }
        }
    }

    #[test]
    fn a_square_view_has_a_map_of_three_or_four_rows_and_no_row_is_left_out() {
        for side in 64..512_usize {
            let device = device_blocks([side, side]);
            let [_, rows, columns] = device.map;
            assert!(rows == columns && [3, 4].contains(&rows), "{side}: {rows}");
            let number = |key: &str| {
                let behind = device.blocks[2].split_once(key).unwrap().1;
                behind.split([',', ' ']).next().unwrap().parse::<usize>().unwrap()
            };
            let (window, stride) = (number("pool = "), number("pool_stride = "));
            assert!((rows - 1) * stride + window > side.div_ceil(8), "{side}: {device:?}");
        }
    }

    #[test]
    fn samples_of_nothing_leave_unsure_answers_out_unless_more_is_asked_for() {
        let without = look(1, [96, 96], [300, 50, 50, 0]);
        let with = Look { of_nothing: 20, ..without.clone() };
        let recipe = |look: &Look, asked: &Asked| {
            let text = recipe_text(look, length(look, 30_000_000), asked);
            Recipe::parse(Path::new("chosen"), &text).unwrap().exit.wrong
        };
        let asked: Asked = "wrong<=1".parse().unwrap();
        let found = [&without, &with].map(|look| [recipe(look, &Asked::default()), recipe(look, &asked)]);
        assert_eq!(found, [[None, Some(1.0)], [Some(USUAL_WRONG), Some(1.0)]]);
    }

    #[test]
    fn steps_are_budgeted_and_every_chosen_recipe_is_one() {
        for (samples, macs) in [
            ([264, 33, 33, 0], 30_000_000),
            ([1750, 327, 430, 0], 36_000_000),
            ([50_000, 5_000, 10_000, 5_000], 4_000_000),
        ] {
            let look = look(1, [96, 96], samples);
            let length = length(&look, macs);
            let recipe =
                Recipe::parse(Path::new("chosen"), &recipe_text(&look, length, &Asked::default())).unwrap();
            let steps = recipe.steps(samples[0]);
            assert!((LEAST_STEPS as u64..=6_000).contains(&steps), "{steps}");
            assert_eq!(
                (recipe.epochs, recipe.batch, recipe.exit.folds),
                (length.epochs, length.batch, Some(0))
            );
            assert!(length.seconds < 700.0, "{length:?}");
        }
        let slow = length(&look(6, [96, 96], [364, 84, 180, 0]), 130_000_000);
        assert_eq!((slow.epochs, slow.batch), (88, 32), "a thousand steps at least");
    }

    #[test]
    fn small_grouped_data_has_folds_and_as_many_trainings_in_its_time() {
        let one = look(4, [96, 96], [192, 32, 64, 0]);
        let grouped = Look { is_grouped: true, ..one.clone() };
        let [alone, folded] = [&one, &grouped].map(|look| length(look, 40_000_000));
        assert_eq!((alone.folds, folded.folds), (0, 4));
        assert!(folded.epochs < alone.epochs && folded.seconds > alone.seconds, "{alone:?} {folded:?}");
        let text = recipe_text(&grouped, folded, &Asked::default());
        assert_eq!(Recipe::parse(Path::new("chosen"), &text).unwrap().exit.folds, Some(4));
    }

    #[test]
    fn many_photos_are_changed_less_and_only_several_cameras_lose_one() {
        let few = changes(&look(1, [96, 128], [300, 50, 50, 0]));
        assert_eq!(few, Changes { failout: 0.0, shift: 6, affine: 0.15, exposure: 0.2, erase: 0.25 });
        let many = changes(&look(6, [32, 32], [30_000, 50, 50, 0]));
        assert_eq!(many, Changes { failout: 0.1, shift: 2, affine: 0.1, exposure: 0.1, erase: 0.0 });
    }

    #[test]
    fn targets_reach_the_files_and_bytes_that_nothing_keeps_are_refused() {
        let look = look(1, [96, 96], [300, 50, 50, 0]);
        let asked: Asked = "loss<=2,bytes<=12".parse().unwrap();
        let spec = Spec::parse(Path::new("s"), &spec_text(&look, "photos", &asked).unwrap()).unwrap();
        // Two bytes of scores leave 10, which at 3x3 bits for four samples in ten are 22 channels.
        assert_eq!(spec.shapes.features.shape(), [22, 3, 3]);
        let recipe = recipe_text(&look, length(&look, 30_000_000), &asked);
        assert_eq!(Recipe::parse(Path::new("r"), &recipe).unwrap().exit.loss_points, 2.0);
        let refused = spec_text(&look, "photos", &"bytes<=2".parse().unwrap()).unwrap_err();
        assert!(
            refused.starts_with("bytes: expected at least 2.") && refused.ends_with("found 2"),
            "{refused}"
        );
        let all = spec_text(&look, "photos", &"bytes<=500".parse().unwrap()).unwrap();
        assert!(!all.contains("sent_channels"), "{all}");
    }

    #[test]
    fn every_key_has_its_reason() {
        let look = look(6, [96, 96], [300, 50, 50, 0]);
        let asked: Asked = "bytes<=12".parse().unwrap();
        let spec = spec_text(&look, "photos", &asked).unwrap();
        let recipe = recipe_text(&look, length(&look, 30_000_000), &asked);
        for text in [spec, recipe] {
            let lines: Vec<&str> = text.lines().collect();
            for (at, line) in lines
                .iter()
                .enumerate()
                .filter(|(_, line)| line.starts_with(|first: char| first.is_ascii_lowercase()))
            {
                assert!(line.contains(" # ") || lines[at - 1].starts_with("# "), "no reason for {line:?}");
            }
        }
    }
}
