//! Baselines that need no network of several devices: nearest neighbours in raw pixels, the presence pattern alone, one camera alone,
//! the most frequent class.

use std::collections::HashMap;

use headwater_inference::exit::argmax;
use serde::{Deserialize, Serialize};

use headwater_calibration::data::Samples;
use headwater_samples::NO_CLASS;
use headwater_training::single_camera::CameraResult;

/// Answers to test samples without a network of several devices, for one division of the data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SimpleAnswers {
    /// Labels of the test samples.
    pub labels: Vec<u16>,
    /// The most frequent class of the train part.
    pub majority: u16,
    /// Class of the nearest train sample for the first test samples; empty when not asked for.
    pub nearest_neighbour: Vec<u16>,
    /// Most frequent class among train samples of the same presence pattern; empty when not asked for.
    pub presence_pattern: Vec<u16>,
    /// Results of a plain network on each camera alone; empty when not asked for.
    pub cameras: Vec<CameraResult>,
}

/// The class of the nearest train sample for the first `count` test samples: least sum of squared differences over the pixels of all
/// views, where an absent view counts as black. The work is spread over `threads` threads.
pub fn nearest_neighbours(train: &Samples, test: &Samples, count: usize, threads: usize) -> Vec<u16> {
    let mut classes = vec![0; count.min(test.len())];
    let share = classes.len().div_ceil(threads.max(1)).max(1);
    std::thread::scope(|scope| {
        for (chunk, classes) in classes.chunks_mut(share).enumerate() {
            scope.spawn(move || {
                let first = chunk * share;
                let samples: Vec<Vec<u8>> =
                    (first..first + classes.len()).map(|sample| test.views(sample)).collect();
                let mut nearest = vec![u64::MAX; samples.len()];
                // Each train sample is read once, since it may lie in a file.
                for (other, label) in train.labels.iter().enumerate() {
                    let views = train.views(other);
                    for ((sample, nearest), class) in samples.iter().zip(&mut nearest).zip(&mut *classes) {
                        let found = distance(sample, &views);
                        if found < *nearest {
                            (*nearest, *class) = (found, *label);
                        }
                    }
                }
            });
        }
    });
    classes
}

/// Sum of squared differences of pixels.
fn distance(a: &[u8], b: &[u8]) -> u64 {
    // The sum over a block of 4,096 pixels fits in `u32`: 4,096 * 255^2 is below 2^32.
    let block = |(a, b): (&[u8], &[u8])| -> u64 {
        let square = |(a, b): (&u8, &u8)| u32::from(a.abs_diff(*b)).pow(2);
        u64::from(a.iter().zip(b).map(square).sum::<u32>())
    };
    a.chunks(4096).zip(b.chunks(4096)).map(block).sum()
}

/// For each test sample, the most frequent class among train samples that the same slots see; if there are no such train samples, the
/// most frequent class of the whole train part.
pub fn by_presence_pattern(train: &Samples, test: &Samples) -> Vec<u16> {
    let mut counts: HashMap<u64, Vec<f32>> = HashMap::new();
    for (seen, label) in train.seen.iter().zip(&train.labels).filter(|(_, label)| **label != NO_CLASS) {
        counts.entry(seen.bits()).or_insert_with(|| vec![0.0; train.classes])[usize::from(*label)] += 1.0;
    }
    let majority = argmax(&train.prior());
    let class = |bits: u64| counts.get(&bits).map_or(majority, |counts| argmax(counts));
    test.seen.iter().map(|seen| class(seen.bits())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_calibration::data::Pixels;
    use headwater_protocol::SlotSet;

    fn samples(of: &[(u64, [u8; 2], u16)]) -> Samples {
        Samples {
            shape: [1, 1, 1],
            slots: 2,
            classes: 3,
            labels: of.iter().map(|(.., label)| *label).collect(),
            seen: of.iter().map(|(bits, ..)| SlotSet::from_bits(*bits)).collect(),
            pixels: Pixels::in_memory(of.iter().flat_map(|(_, pixels, _)| *pixels).collect(), of.len(), 2),
            ..Samples::default()
        }
    }

    #[test]
    fn the_nearest_sample_over_all_views_answers() {
        let train = samples(&[(3, [0, 0], 0), (3, [200, 0], 1), (3, [0, 200], 2)]);
        let test = samples(&[(3, [10, 10], 0), (3, [120, 3], 0), (3, [9, 255], 0)]);
        assert_eq!(nearest_neighbours(&train, &test, 3, 2), [0, 1, 2]);
        assert_eq!(nearest_neighbours(&train, &test, 1, 4), [0]);
    }

    #[test]
    fn the_commonest_class_of_the_same_pattern_answers_and_of_all_for_a_new_pattern() {
        let train = samples(&[
            (1, [0; 2], 2),
            (1, [0; 2], 2),
            (1, [0; 2], 0),
            (3, [0; 2], 1),
            (3, [0; 2], 1),
            (3, [0; 2], 1),
        ]);
        let test = samples(&[(1, [0; 2], 0), (3, [0; 2], 0), (2, [0; 2], 0)]);
        assert_eq!(by_presence_pattern(&train, &test), [2, 1, 1]);
    }

    #[test]
    fn distances_of_long_samples_do_not_overflow() {
        assert_eq!(distance(&[255; 10_000], &[0; 10_000]), 10_000 * 255 * 255);
    }
}
