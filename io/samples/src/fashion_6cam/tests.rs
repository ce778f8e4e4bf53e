use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::*;

fn data() -> Fashion6Cam {
    Fashion6Cam::drawn(300, 100, 200)
}

#[test]
fn a_view_does_not_depend_on_earlier_calls() {
    let data = data();
    let late = data.sample(Part::Test, 150);
    (0..150).for_each(|index| drop(data.sample(Part::Test, index)));
    assert_eq!(data.sample(Part::Test, 150), late);
}

#[test]
fn a_slot_that_does_not_see_the_sample_leaves_the_buffer_unchanged() {
    let data = data();
    for (index, slot) in (0..200).flat_map(|index| (0..SLOTS).map(move |slot| (index, slot))) {
        let mut buffer = vec![123; SHAPE.bytes()];
        let in_view = data.view_into(Part::Test, index, slot, &mut buffer);
        assert_eq!(!in_view, buffer.iter().all(|&byte| byte == 123));
        assert_eq!(in_view, data.sample(Part::Test, index).views[slot].is_some());
    }
}

#[test]
fn fifteen_percent_of_the_views_are_not_in_view() {
    let data = Fashion6Cam::drawn(4000, 0, 0);
    let mut buffer = vec![0; SHAPE.bytes()];
    let views = 4000 * SLOTS;
    let seen: usize = (0..4000)
        .map(|index| (0..SLOTS).filter(|&slot| data.view_into(Part::Train, index, slot, &mut buffer)).count())
        .sum();
    let share = 1.0 - seen as f64 / views as f64;
    assert!((share - 0.15).abs() < 0.01, "4 standard deviations are 0.009, found {share}");
}

#[test]
fn noise_has_mean_zero_and_standard_deviation_six() {
    let grey = [100 << LUMA_BITS; FRAME_PIXELS];
    let mut pixels = vec![0; SHAPE.bytes()];
    let (mut sum, mut squares, mut count) = (0.0, 0.0, 0.0);
    for key in 0..100 {
        expose(&grey, [1 << GAIN_BITS; 3], &mut RandomStream::keyed(&[key]), &mut pixels);
        for &pixel in &pixels[..FRAME_PIXELS] {
            let noise = f64::from(pixel) - 100.0;
            sum += noise;
            squares += noise * noise;
            count += 1.0;
        }
        assert_eq!(
            pixels[..FRAME_PIXELS],
            pixels[FRAME_PIXELS..2 * FRAME_PIXELS],
            "one value for all channels"
        );
    }
    let (mean, sd) = (sum / count, (squares / count).sqrt());
    assert!(
        mean.abs() < 0.1 && (sd - 6.0).abs() < 0.1,
        "whole levels add 0.01 to the deviation: {mean} {sd}"
    );
}

#[test]
fn views_of_the_calibration_part_are_those_of_the_end_of_a_longer_train_part() {
    let (split, whole) = (Fashion6Cam::drawn_with_calibration(20, [10, 5], 5), Fashion6Cam::drawn(30, 5, 5));
    let view = |data: &Fashion6Cam, part, index| {
        let mut pixels = vec![0; SHAPE.bytes()];
        let in_view = [0, 3].map(|slot| data.view_into(part, index, slot, &mut pixels));
        (data.label(part, index), in_view, pixels)
    };
    for index in 0..10 {
        assert_eq!(view(&split, Part::Calibration, index), view(&whole, Part::Train, 20 + index));
    }
    assert_eq!(view(&split, Part::Validation, 0), view(&whole, Part::Validation, 0));
}

// Hashes of the data set as it was when the first network was trained. They never change: a mismatch means that reported numbers no
// longer belong to the data, so undo the change and keep the hash.
const DRAWN: &str = "510e11766ca6b26acdf1e05daa5140bc8eb1af71afac47caa2b9a460860828e7";
const REAL: &str = "20830959d8ddfde9a77e78e6eacd70de509c90a4b6b83974b026875f67757c2c";

/// Hash over the views of the first samples of each part: one byte 0 or 1 (in view), then the pixels.
fn hash(data: &Fashion6Cam, samples: usize) -> String {
    let mut hash = Sha256::new();
    let mut pixels = vec![0; SHAPE.bytes()];
    for part in [Part::Train, Part::Validation, Part::Test] {
        for (index, slot) in (0..samples).flat_map(|index| (0..SLOTS).map(move |slot| (index, slot))) {
            let in_view = data.view_into(part, index, slot, &mut pixels);
            hash.update([u8::from(in_view)]);
            if in_view {
                hash.update(&pixels);
            }
        }
    }
    format!("{:x}", hash.finalize())
}

/// The data set of the real files, if they exist.
fn real() -> Option<Fashion6Cam> {
    let root = std::env::var_os("HEADWATER_DATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")),
        PathBuf::from,
    );
    let dir = root.join("fashion-mnist");
    dir.is_dir().then(|| Fashion6Cam::open(&dir).expect("the folder is there, so it must be sound"))
}

#[test]
fn views_of_drawn_figures_are_frozen() {
    assert_eq!(hash(&Fashion6Cam::drawn(50, 50, 50), 50), DRAWN);
}

#[test]
fn views_of_real_articles_are_frozen() {
    match real() {
        Some(data) => assert_eq!(hash(&data, 50), REAL),
        None => println!(
            "left out: no Fashion-MNIST found; set HEADWATER_DATA to the folder that holds `fashion-mnist`"
        ),
    }
}
