//! The shipped frames are the first 300 test samples of `fashion-6cam`, as their README describes.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use headwater_samples::archive::{Archive, Frame};
use headwater_samples::fashion_6cam::{Fashion6Cam, LABELS, SHAPE, SLOTS};
use headwater_samples::{DataSet, Part};

/// Most bytes that the repository spends on frames.
const MAX_ARCHIVE_BYTES: u64 = 2_500_000;

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("shipped/fashion-6cam-300.tar.gz")
}

#[test]
fn three_hundred_samples_without_broken_frames_are_within_the_limit() {
    let archive = Archive::open(&shipped()).unwrap();
    assert_eq!((archive.len(), archive.slots(), archive.shape), (300, SLOTS, SHAPE));
    assert_eq!(archive.labels.labels, LABELS);
    assert_eq!(archive.broken().count(), 0);
    assert!(std::fs::metadata(shipped()).unwrap().len() <= MAX_ARCHIVE_BYTES);
}

#[test]
fn the_shipped_frames_equal_the_data_set() {
    let Some(dir) = crate::data("fashion-mnist") else { return };
    let fashion = Fashion6Cam::open(&dir).unwrap();
    let archive = Archive::open(&shipped()).unwrap();
    for index in 0..archive.len() {
        let sample = fashion.sample(Part::Test, index);
        assert_eq!(archive.labels.classes[index], sample.label);
        for (slot, view) in sample.views.into_iter().enumerate() {
            let expected = view.map_or(Frame::NotInView, |view| Frame::View(Cow::Owned(view)));
            assert_eq!(archive.frame(index, slot), expected, "sample {index}, slot {slot}");
        }
    }
}
