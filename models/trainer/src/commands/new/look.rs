//! A look at a data set: classes, cameras, sizes, parts, groups, and views that are nearly the same.

use std::collections::BTreeSet;

use headwater_calibration::data::Parts;
use headwater_samples::split::Groups;
use headwater_samples::{ImageSizes, NO_CLASS, Part, Shape};
use serde::Serialize;

use super::super::progress::StatusLine;

/// Most samples whose pixels are looked at, spread over the parts: comparing all pairs of so many takes about a second.
const MOST_SAMPLES: usize = 16_384;
/// Mean distance between the channels of a pixel up to which a view is grey: JPEG leaves one or two of 255 levels.
const GREY_LEVELS: u64 = 3;
/// Bits of 64 in which the difference hashes of nearly equal views differ at most.
const NEAR_BITS: u32 = 4;
/// Largest mean distance of nearly equal views, in levels of 255. The hashes alone are equal for all views of small things on one background.
const NEAR_LEVELS: u32 = 5;
/// Side of the small grey views that are compared.
const SMALL_SIDE: usize = 16;

/// Content of a data set.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Look {
    pub(crate) labels: Vec<String>,
    pub(crate) slots: usize,
    /// Shape of the views as they are trained.
    #[serde(skip)]
    pub(crate) shape: Shape,
    /// Sizes of the image files; `None` for data of a fixed shape.
    #[serde(skip)]
    pub(crate) sizes: Option<ImageSizes>,
    /// True when all views that were looked at are grey; false without views.
    pub(crate) is_grey: bool,
    /// Samples of each part, in the order of [`Part::ALL`].
    pub(crate) samples: [usize; 4],
    /// Independent samples of each part: groups if samples form groups.
    pub(crate) units: [usize; 4],
    pub(crate) is_grouped: bool,
    /// Samples of each class in train.
    pub(crate) of_class: Vec<usize>,
    /// Samples of nothing in train.
    pub(crate) of_nothing: usize,
    pub(crate) alike: Alike,
}

/// Views that are nearly the same, of samples that do not share a declared group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Alike {
    /// Samples that were compared.
    pub(crate) compared: usize,
    /// Samples with a nearly equal one.
    pub(crate) samples: usize,
    /// Groups that these samples form, such as bursts: in a burst each sample is nearly the same as the next.
    pub(crate) groups: usize,
    /// Samples of the largest group.
    pub(crate) largest: usize,
    /// All pairs, pairs in two parts, pairs in two classes.
    pub(crate) pairs: [usize; 3],
    /// Files of a pair, of a pair in two parts or classes if there is one; `None` without a pair.
    pub(crate) example: Option<[String; 2]>,
}

/// The first view of a sample, made small.
struct Glance {
    part: Part,
    index: usize,
    slot: usize,
    label: u16,
    group: Option<u32>,
    /// Difference hash of 8 rows of 9 means: a bit for each mean and the mean to its right, set when the left one is larger.
    hash: u64,
    small: Vec<u8>,
}

impl Look {
    /// Looks at the samples of all parts.
    pub(crate) fn at(parts: &Parts, sizes: Option<ImageSizes>, status: &mut StatusLine) -> Self {
        let data = &*parts.data;
        let (labels, shape) = (data.labels(), data.shape());
        let all = Part::ALL.into_iter().flat_map(|part| (0..data.len(part)).map(move |index| (part, index)));
        let samples = Part::ALL.map(|part| data.len(part));
        let groups =
            Part::ALL.map(|part| parts.groups(part, None).into_iter().collect::<BTreeSet<u32>>().len());
        let is_grouped = groups.iter().any(|groups| *groups > 0);
        let (mut of_class, mut of_nothing) = (vec![0; labels.len()], 0);
        for label in parts.labels(Part::Train, None) {
            match of_class.get_mut(usize::from(label)) {
                Some(count) => *count += 1,
                None => of_nothing += usize::from(label == NO_CLASS),
            }
        }
        let step = samples.iter().sum::<usize>().div_ceil(MOST_SAMPLES).max(1);
        let (mut glances, mut has_views, mut is_grey) = (Vec::new(), false, true);
        let mut pixels = vec![0; shape.bytes()];
        for (looked, (part, index)) in all.step_by(step).enumerate() {
            status.show(|| format!("looking at sample {looked} of {}", samples.iter().sum::<usize>() / step));
            let mut is_first = true;
            for slot in 0..parts.slots {
                if !data.view_into(part, index, slot, &mut pixels) {
                    continue;
                }
                has_views = true;
                is_grey &= is_grey_view(&pixels, shape);
                if std::mem::take(&mut is_first) {
                    let (label, group) = (data.label(part, index), data.group(part, index));
                    let (hash, small) = (hash(&pixels, shape), shrunk(&pixels, shape, [SMALL_SIDE; 2]));
                    glances.push(Glance { part, index, slot, label, group, hash, small });
                }
            }
        }
        Self {
            slots: parts.slots,
            sizes,
            is_grey: is_grey && has_views,
            units: if is_grouped { groups } else { samples },
            samples,
            is_grouped,
            of_class,
            of_nothing,
            // Successive frames of a recording are known to be alike, so they are not compared.
            alike: if data.is_recording() { Alike::default() } else { alike(parts, &glances, status) },
            labels,
            shape,
        }
    }
}

/// Finds views that are nearly the same.
fn alike(parts: &Parts, glances: &[Glance], status: &mut StatusLine) -> Alike {
    let mut found = Alike { compared: glances.len(), ..Alike::default() };
    let (mut groups, mut most_kinds) = (Groups::new(glances.len()), 0);
    for (at, one) in glances.iter().enumerate() {
        status.show(|| format!("comparing view {at} of {}", glances.len()));
        for (other_at, other) in glances.iter().enumerate().skip(at + 1) {
            if !one.is_near(other) {
                continue;
            }
            groups.join(at, other_at);
            let kinds = [true, one.part != other.part, one.label != other.label];
            found.pairs.iter_mut().zip(kinds).for_each(|(pairs, is_kind)| *pairs += usize::from(is_kind));
            let of_kinds = kinds.into_iter().filter(|is_kind| *is_kind).count();
            if of_kinds > most_kinds {
                most_kinds = of_kinds;
                found.example = Some([one, other].map(|glance| glance.name(parts)));
            }
        }
    }
    let mut sizes = vec![0_usize; glances.len()];
    (0..glances.len()).for_each(|at| sizes[groups.first(at)] += 1);
    for size in sizes.into_iter().filter(|size| *size > 1) {
        found.samples += size;
        found.groups += 1;
        found.largest = found.largest.max(size);
    }
    found
}

impl Glance {
    /// True when two views are nearly the same and their samples share no group of one part.
    fn is_near(&self, other: &Self) -> bool {
        let share_group = self.group.is_some() && (self.part, self.group) == (other.part, other.group);
        let pixels = self.small.iter().zip(&other.small);
        let distances = pixels.map(|(one, other)| u32::from(one.abs_diff(*other)));
        (self.hash ^ other.hash).count_ones() <= NEAR_BITS
            && !share_group
            && distances.sum::<u32>() <= NEAR_LEVELS * self.small.len() as u32
    }

    /// File of the view, else part and number of the sample.
    fn name(&self, parts: &Parts) -> String {
        let file = parts.data.file_name(self.part, self.index, self.slot);
        file.unwrap_or_else(|| format!("sample {} of {}", self.index, self.part.name()))
    }
}

/// True when the channels of a view hardly differ, so also for a view of one channel.
fn is_grey_view(pixels: &[u8], shape: Shape) -> bool {
    let area = shape.height * shape.width;
    let [red, green, blue] =
        [0, shape.channels / 2, shape.channels - 1].map(|plane| &pixels[plane * area..][..area]);
    let differences = red.iter().zip(green).zip(blue).map(|((red, green), blue)| {
        let (least, most) = (red.min(green).min(blue), red.max(green).max(blue));
        u64::from(most - least)
    });
    differences.sum::<u64>() <= GREY_LEVELS * area as u64
}

/// Difference hash of a view.
fn hash(pixels: &[u8], shape: Shape) -> u64 {
    let means = shrunk(pixels, shape, [8, 9]);
    let bits = means.chunks_exact(9).flat_map(|row| row.windows(2).map(|pair| pair[0] > pair[1]));
    bits.fold(0, |hash, bit| (hash << 1) | u64::from(bit))
}

/// Means of a view over all channels in so many rows and columns; a view with fewer pixels repeats them.
fn shrunk(pixels: &[u8], Shape { channels, height, width }: Shape, [rows, columns]: [usize; 2]) -> Vec<u8> {
    let span = |at: usize, of: usize, side: usize| {
        let start = at * side / of;
        start..((at + 1) * side / of).max(start + 1)
    };
    let mean = |row: usize, column: usize| {
        let (lines, across) = (span(row, rows, height), span(column, columns, width));
        let count = (channels * lines.len() * across.len()) as u64;
        let planes =
            (0..channels).flat_map(|plane| lines.clone().map(move |line| (plane * height + line) * width));
        let values = planes.flat_map(|start| &pixels[start + across.start..start + across.end]);
        (values.map(|value| u64::from(*value)).sum::<u64>() / count) as u8
    };
    (0..rows * columns).map(|at| mean(at / columns, at % columns)).collect()
}

#[cfg(test)]
mod tests {
    use headwater_samples::data_set::OpenOptions;
    use headwater_samples::{View, catalogue, image_codec};

    use super::*;

    const SHAPE: Shape = Shape::rgb(24, 32);

    /// A view with a bright rectangle, moved and made brighter by so much.
    fn picture(left: usize, brighter: u8) -> View {
        let pixel = |at: usize| {
            let (plane, row, column) = (at / (24 * 32), at / 32 % 24, at % 32);
            let is_in = (6..16).contains(&row) && (left..left + 10).contains(&column);
            if is_in { 180 + brighter } else { 40 + 20 * plane as u8 + brighter }
        };
        View::new(SHAPE, (0..SHAPE.bytes()).map(pixel).collect())
    }

    /// The look at class folders with these pictures by path.
    fn look(pictures: &[(&str, View)]) -> Look {
        let folder = tempfile::tempdir().unwrap();
        for (path, view) in pictures {
            let file = folder.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, image_codec::png(view).unwrap()).unwrap();
        }
        let data = catalogue::open("folders", folder.path(), OpenOptions::default()).unwrap();
        Look::at(&Parts::of(data), None, &mut StatusLine::of_slow_work())
    }

    #[test]
    fn classes_parts_and_nearly_equal_views_are_found() {
        let found = look(&[
            ("train/a/1.png", picture(2, 0)),
            ("train/a/2.png", picture(12, 0)),
            ("train/b/3.png", picture(20, 0)),
            ("train/b/4.png", picture(2, 2)),
            ("val/a/5.png", picture(12, 1)),
            ("test/b/6.png", picture(8, 60)),
        ]);
        assert_eq!((found.samples, found.units, found.is_grouped), ([4, 1, 1, 0], [4, 1, 1, 0], false));
        assert_eq!((found.of_class, found.of_nothing, found.is_grey), (vec![2, 2], 0, false));
        assert_eq!((found.alike.compared, found.alike.samples), (6, 4));
        assert_eq!(found.alike.pairs, [2, 1, 1]);
        assert_eq!(found.alike.example.unwrap(), ["train/a/1.png", "train/b/4.png"]);
    }

    #[test]
    fn a_burst_of_nearly_equal_photos_is_one_group() {
        // Neighbours are nearly the same; the first and the last are not.
        let burst = [0, 4, 8, 12].map(|brighter| picture(2, brighter));
        let paths = ["train/a/1.png", "train/a/2.png", "train/a/3.png", "train/a/4.png"];
        let mut pictures: Vec<_> = paths.into_iter().zip(burst).collect();
        pictures.extend([("val/a/5.png", picture(12, 0)), ("test/a/6.png", picture(20, 0))]);
        let found = look(&pictures).alike;
        assert_eq!((found.samples, found.groups, found.largest, found.pairs), (4, 1, 4, [3, 0, 0]));
    }

    #[test]
    fn views_whose_channels_hardly_differ_are_grey() {
        let mut view = View::new(SHAPE, (0..SHAPE.bytes()).map(|at| (at % (24 * 32) / 4) as u8).collect());
        for (redder, is_grey) in [(0, true), (2, true), (20, false)] {
            view.pixels[..24 * 32].iter_mut().for_each(|red| *red = red.saturating_add(redder));
            assert_eq!(is_grey_view(&view.pixels, SHAPE), is_grey);
        }
        let grey = Shape { channels: 1, ..SHAPE };
        assert!(is_grey_view(&view.pixels[..grey.bytes()], grey));
    }

    #[test]
    fn a_view_is_made_smaller_by_means_and_larger_by_repetition() {
        let shape = Shape { channels: 1, height: 2, width: 4 };
        assert_eq!(shrunk(&[0, 2, 10, 20, 4, 6, 10, 0], shape, [1, 2]), [3, 10]);
        assert_eq!(shrunk(&[0, 2, 10, 20, 4, 6, 10, 0], shape, [1, 8])[..4], [2, 2, 4, 4]);
    }
}
