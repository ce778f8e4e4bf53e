use std::fs;
use std::path::Path;

use super::*;
use crate::{DataSet, Shape};

/// A picture that is filled with a number.
fn png(fill: u8) -> Vec<u8> {
    let shape = Shape::rgb(2, 3);
    image_codec::png(&View::new(shape, vec![fill; shape.bytes()])).unwrap()
}

/// A tree of pictures, each filled with its own number.
fn directory(names: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (fill, name) in names.iter().enumerate() {
        write(dir.path(), name, &png(fill as u8));
    }
    dir
}

fn write(root: &Path, name: &str, bytes: &[u8]) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn archive(names: &[&str]) -> Vec<u8> {
    let gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut tar = tar::Builder::new(gz);
    for (fill, name) in names.iter().enumerate() {
        let bytes = png(fill as u8);
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, &bytes[..]).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

#[track_caller]
fn refused(path: &Path, wanted: Wanted, words: &[&str]) {
    let error = open(path, wanted).expect_err("it is refused").to_string();
    for word in words {
        assert!(error.contains(word), "{word:?} in {error}");
    }
}

const SINGLE: [&str; 5] =
    ["train/car/a.png", "train/bus/b.png", "train/car/c.png", "val/car/d.png", "test/bus/e.png"];
const MANY: [&str; 5] = [
    "train/car/7-1/cam0.png",
    "train/car/7-1/cam2.png",
    "train/bus/7-2/cam1.png",
    "validation/car/9-1/cam1.png",
    "test/bus/11-1/cam0.png",
];

#[test]
fn a_file_is_a_sample_of_one_slot() {
    let dir = directory(&SINGLE);
    write(dir.path(), "README.txt", b"no picture");
    let data = open(dir.path(), Wanted::default()).unwrap();
    assert_eq!((data.labels(), data.slots()), (vec!["bus".into(), "car".into()], 1));
    assert_eq!(data.shape(), Shape::rgb(2, 3));
    assert_eq!([Part::Train, Part::Validation, Part::Test].map(|part| data.len(part)), [3, 1, 1]);
    let mut view = [99; 18];
    for (index, (class, fill)) in [(0, 1), (1, 0), (1, 2)].into_iter().enumerate() {
        assert!(data.view_into(Part::Train, index, 0, &mut view));
        assert_eq!((data.label(Part::Train, index), view), (class, [fill; 18]));
    }
}

#[test]
fn a_folder_is_a_sample_and_a_camera_without_a_file_does_not_see_it() {
    let dir = directory(&MANY);
    let elsewhere = tempfile::tempdir().unwrap();
    let packed = elsewhere.path().join("packed.tar.gz");
    fs::write(&packed, archive(&MANY)).unwrap();
    for path in [dir.path(), &packed] {
        let data = open(path, Wanted::default()).unwrap();
        assert_eq!(data.slots(), 3);
        let mut view = [99; 18];
        // Sample 7-1 is the second: classes are in the order of their names.
        let seen = [0, 1, 2].map(|slot| data.view_into(Part::Train, 1, slot, &mut view));
        assert_eq!((seen, view[0]), ([true, false, true], 1));
        assert_eq!(data.len(Part::Validation), 1);
    }
}

#[test]
fn views_take_the_shape_and_slots_that_are_wanted() {
    let dir = directory(&MANY);
    let wanted = Wanted { shape: Some(Shape { channels: 1, height: 4, width: 4 }), slots: Some(5) };
    let data = open(dir.path(), wanted).unwrap();
    assert_eq!((data.shape().bytes(), data.slots()), (16, 5));
    refused(
        dir.path(),
        Wanted { slots: Some(2), ..wanted },
        &["train/car/7-1/cam2.png", "cameras 0 to 1, found 2"],
    );
}

#[test]
fn a_picture_in_two_parts_is_refused() {
    let dir = directory(&SINGLE);
    write(dir.path(), "test/car/again.png", &png(2));
    refused(
        dir.path(),
        Wanted::default(),
        &["no picture in two parts", "test/car/again.png", "train/car/c.png"],
    );
    fs::remove_dir_all(dir.path().join("test/car")).unwrap();
    write(dir.path(), "train/car/again.png", &png(2));
    assert_eq!(open(dir.path(), Wanted::default()).unwrap().len(Part::Train), 4);
}

#[test]
fn what_lies_elsewhere_or_is_no_picture_is_named() {
    for (name, bytes, words) in [
        ("train/car/x.png", &b"no picture"[..], &["train/car/x.png", "expected PNG, JPEG or WebP"][..]),
        ("other/car/x.png", &png(77), &["PART/CLASS/IMAGE", "other/car/x.png"]),
        ("x.png", &png(77), &["PART/CLASS/IMAGE", "x.png"]),
        ("train/car/7/x.png", &png(77), &["PART/CLASS/IMAGE", "train/car/7/x.png"]),
        ("train/car/7/cam0.png", &png(77), &["every sample", "train/car/7/cam0.png"]),
        ("test/bicycle/x.png", &png(77), &["sample `x`", "bus, car", "bicycle"]),
    ] {
        let dir = directory(&SINGLE);
        write(dir.path(), name, bytes);
        refused(dir.path(), Wanted::default(), words);
    }
}

#[test]
fn an_empty_class_and_a_missing_part_are_named() {
    let dir = directory(&SINGLE);
    fs::create_dir_all(dir.path().join("train/van")).unwrap();
    refused(dir.path(), Wanted::default(), &["train/van", "expected images in this folder"]);
    refused(directory(&SINGLE[..4]).path(), Wanted::default(), &["under test/CLASS"]);
    refused(directory(&SINGLE[1..2]).path(), Wanted::default(), &["under test/CLASS"]);
    refused(directory(&SINGLE[3..]).path(), Wanted::default(), &["under train/CLASS"]);
    refused(Path::new("/nowhere/at/all"), Wanted::default(), &["/nowhere/at/all", "cannot be read"]);
}

#[test]
fn an_archive_cut_off_anywhere_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut.tar.gz");
    let whole = archive(&SINGLE);
    for length in (0..whole.len()).step_by(7) {
        fs::write(&path, &whole[..length]).unwrap();
        refused(&path, Wanted::default(), &["cut.tar.gz", "copy or download it again"]);
    }
}
