//! Training sees what devices see: a data set with regions and a fit has, pixel for pixel, the views that a device makes of the same files.

use std::fs;
use std::path::Path;

use headwater_samples::catalogue::open;
use headwater_samples::data_set::{Framings, OpenOptions, Preparation};
use headwater_samples::image_codec::png;
use headwater_samples::roi::{self, Fit, Framing, Roi};
use headwater_samples::{DataSet, Part, Shape, View};

/// A frame of noise; another seed gives another frame.
fn frame(seed: usize) -> Vec<u8> {
    let shape = Shape::rgb(30, 50);
    let noise = (0..shape.bytes()).map(|at| ((at + seed) * 7919 % 251) as u8).collect();
    png(&View::new(shape, noise)).unwrap()
}

fn write(root: &Path, name: &str, bytes: &[u8]) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Frames of one camera in the three parts, in folders and in a table.
fn one_camera() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut table = "part,class,file\n".to_owned();
    for (seed, name) in ["train/a/1.png", "train/b/2.png", "val/a/3.png", "test/b/4.png"].iter().enumerate() {
        write(&dir.path().join("folders"), name, &frame(seed));
        write(&dir.path().join("table"), name, &frame(seed));
        let [part, class, _] = name.split('/').collect::<Vec<_>>()[..] else { panic!("three steps") };
        table += &format!("{part},{class},{name}\n");
    }
    write(&dir.path().join("table"), "labels.csv", table.as_bytes());
    dir
}

fn regions(texts: &[&str]) -> Vec<Roi> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

const SHAPE: Shape = Shape::rgb(16, 24);

fn with(framings: Framings<'_>) -> OpenOptions<'_> {
    let slots = Some(framings.regions.len().max(1));
    OpenOptions { shape: Some(SHAPE), slots, framings, ..OpenOptions::default() }
}

/// Compares the views of the first train sample with the views of a device that has the frame of a seed.
#[track_caller]
fn check(data: &dyn DataSet, framings: Framings<'_>, seeds: &[usize]) {
    for (slot, seed) in seeds.iter().enumerate() {
        let framing = Framing { roi: framings.regions.get(slot).copied(), fit: framings.fit };
        let expected = roi::decode(&frame(*seed), SHAPE, framing).unwrap();
        let mut view = vec![0; SHAPE.bytes()];
        assert!(data.view_into(Part::Train, 0, slot, &mut view), "slot {slot}");
        assert_eq!(view, expected.pixels, "slot {slot}: {framing}");
    }
}

#[test]
fn a_training_view_is_the_view_of_a_device_pixel_for_pixel_for_every_fit_and_region() {
    let dir = one_camera();
    for fit in [Fit::Stretch, Fit::Crop, Fit::Letterbox] {
        let all: [&[&str]; 3] = [&[], &["5,3,20,27"], &["0%,0%,50%,100%", "50%,0%,50%,100%", "10,10,3,19"]];
        for texts in all {
            let regions = regions(texts);
            let framings = Framings { regions: &regions, fit };
            for name in ["folders", "table"] {
                let data = open(name, &dir.path().join(name), with(framings)).unwrap();
                assert_eq!((data.slots(), data.len(Part::Train)), (texts.len().max(1), 2), "{name}");
                check(&*data, framings, &vec![0; data.slots()]);
                let files: Vec<_> =
                    (0..data.slots()).map(|slot| data.file_name(Part::Train, 0, slot)).collect();
                assert!(files.iter().all(|file| file.as_deref() == Some("train/a/1.png")), "{files:?}");
            }
        }
    }
}

#[test]
fn where_each_slot_has_a_camera_each_camera_has_its_region() {
    let dir = tempfile::tempdir().unwrap();
    for (part, first) in [("train", 0), ("val", 2), ("test", 4)] {
        for camera in 0..2 {
            write(dir.path(), &format!("{part}/a/1/cam{camera}.png"), &frame(first + camera));
        }
    }
    let regions = regions(&["0%,0%,40%,100%", "60%,0%,40%,50%"]);
    let framings = Framings { regions: &regions, fit: Fit::Crop };
    let data = open("folders", dir.path(), with(framings)).unwrap();
    check(&*data, framings, &[0, 1]);
}

#[test]
fn a_file_of_views_belongs_to_its_regions_and_fit() {
    let (dir, cache) = (one_camera(), tempfile::tempdir().unwrap());
    let opened = |framings: Framings<'_>| {
        let preparation = Preparation { folder: Some(cache.path()), ..Preparation::default() };
        let options = OpenOptions { preparation, ..with(framings) };
        check(&*open("folders", &dir.path().join("folders"), options).unwrap(), framings, &[0]);
        let ends_in = |path: &Path| path.extension().is_some_and(|ending| ending == "hwviews");
        fs::read_dir(cache.path()).unwrap().filter(|entry| ends_in(&entry.as_ref().unwrap().path())).count()
    };
    let [left, right] = [regions(&["0%,0%,50%,100%"]), regions(&["50%,0%,50%,100%"])];
    let of = |regions, fit| Framings { regions, fit };
    assert_eq!(opened(Framings::default()), 1);
    assert_eq!(opened(of(&left, Fit::Stretch)), 2);
    assert_eq!(opened(of(&right, Fit::Stretch)), 3);
    assert_eq!(opened(of(&right, Fit::Letterbox)), 4);
    assert_eq!(opened(of(&right, Fit::Letterbox)), 4, "the same again");
}

#[test]
fn what_does_not_fit_is_refused_with_both_numbers() {
    let dir = one_camera();
    let folders = dir.path().join("folders");
    let refused = |name: &str, options: OpenOptions<'_>| {
        open(name, &folders, options).err().expect("a refusal").to_string()
    };
    let two = regions(&["0%,0%,50%,100%", "50%,0%,50%,100%"]);
    let framings = Framings { regions: &two, fit: Fit::Stretch };
    let error = refused("folders", OpenOptions { slots: Some(3), ..with(framings) });
    assert!(error.contains("expected a region for each of 3 slots, found 2 regions"), "{error}");
    let error = refused("mnist", with(framings));
    assert!(error.contains("device.regions") && error.contains("found 2 regions"), "{error}");
    let error = refused("mnist", with(Framings { regions: &[], fit: Fit::Letterbox }));
    assert!(error.contains("letterbox"), "{error}");
    let outside = regions(&["40,0,20,30"]);
    let error = refused("folders", with(Framings { regions: &outside, fit: Fit::Stretch }));
    assert!(error.contains(".png") && error.contains("40,0,20,30") && error.contains("50x30"), "{error}");
}
