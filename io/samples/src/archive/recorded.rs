//! Records a part of a data set as an archive, for devices to replay.

use super::labels::Labels;
use super::writer::{ArchiveWriter, FrameFormat};
use crate::{DataError, DataSet, Part};

/// Records at most `limit` samples of a part, without loss. The same part gives the same recording.
///
/// The samples are spread over the part, because many data sets are sorted by class:
///
/// ```text
/// part        0 0 0 0 0 1 1 1 1 1 2 2 2 2 2      classes of the samples
/// recording   0 2 1 0 2 2 1 0 2 1 ...            any stretch is like the whole
/// ```
///
/// # Errors
/// [`DataError::Image`].
pub fn recorded(data: &dyn DataSet, part: Part, limit: usize) -> Result<ArchiveWriter, DataError> {
    let labels = Labels::new("a data set", data.slots(), data.shape(), &data.labels());
    let mut writer = ArchiveWriter::new(labels, FrameFormat::Png);
    for index in spread(data.len(part)).take(limit) {
        writer.push(&data.sample(part, index))?;
    }
    Ok(writer)
}

/// All numbers below `count`, each once; numbers that follow each other are far apart. The step is near the golden section of `count`
/// and shares no factor with `count`.
fn spread(count: usize) -> impl Iterator<Item = usize> {
    let golden = (count as f64 * 0.618_033_988_749_895) as usize;
    let step = (golden.max(1)..).find(|step| gcd(*step, count) == 1).unwrap_or(1);
    (0..count).scan(0, move |at, _| {
        let index = *at;
        *at = (*at + step) % count;
        Some(index)
    })
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::spread;
    use crate::archive::{Archive, ArchiveOptions, Frame};
    use crate::fashion_6cam::Fashion6Cam;
    use crate::{DataSet, Part};

    #[test]
    fn every_sample_is_recorded_once_and_any_stretch_is_like_the_whole() {
        for count in [0, 1, 2, 3, 10, 64, 999, 1000] {
            let mut all: Vec<_> = spread(count).collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..count), "{count}");
        }
        // Ten classes of a hundred samples, one after the other: any thirty numbers in a row have samples of each class.
        let order: Vec<_> = spread(1000).map(|index| index / 100).collect();
        for stretch in order.windows(30) {
            assert!((0..10).all(|class| stretch.contains(&class)), "{stretch:?}");
        }
    }

    #[test]
    fn a_recorded_part_replays_the_same_views() {
        let data = Fashion6Cam::drawn(4, 4, 6);
        let bytes = super::recorded(&data, Part::Test, 5).unwrap().finish(Vec::new()).unwrap();
        let archive = Archive::read(&bytes, "recorded", &ArchiveOptions::default()).unwrap();
        assert_eq!((archive.len(), archive.slots()), (5, data.slots()));
        let mut pixels = vec![0; data.shape().bytes()];
        let order: Vec<_> = spread(6).collect();
        for (sample, slot) in (0..5).flat_map(|sample| (0..data.slots()).map(move |slot| (sample, slot))) {
            assert_eq!(archive.labels.classes[sample], Some(data.label(Part::Test, order[sample])));
            match archive.frame(sample, slot) {
                Frame::View(view) => {
                    assert!(data.view_into(Part::Test, order[sample], slot, &mut pixels));
                    assert_eq!(view.pixels, pixels);
                }
                Frame::NotInView => assert!(!data.view_into(Part::Test, order[sample], slot, &mut pixels)),
                Frame::Broken(broken) => panic!("{broken}"),
            }
        }
    }
}
