//! Any data set, written as class folders and read again, has the same pixels, labels, parts and missing views.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use headwater_samples::catalogue::open;
use headwater_samples::class_folders::write;
use headwater_samples::data_set::{Leaks, OpenOptions};
use headwater_samples::fashion_6cam::Fashion6Cam;
use headwater_samples::image_codec::png;
use headwater_samples::{DataSet, Part, Shape, View};

/// Name of the data set that reads what was written: only the table holds groups.
fn reader(data: &dyn DataSet) -> &'static str {
    if data.group(Part::Train, 0).is_some() { "table" } else { "folders" }
}

/// Indices of a part's samples in the order in which they are read back: by class name, then by index; from a table by index alone.
fn ordered(data: &dyn DataSet, part: Part, limit: usize) -> Vec<usize> {
    let labels = data.labels();
    let seen = |index: &usize| {
        let mut view = vec![0; data.shape().bytes()];
        (0..data.slots()).any(|slot| data.view_into(part, *index, slot, &mut view))
    };
    let mut order: Vec<usize> = (0..data.len(part).min(limit)).filter(seen).collect();
    if reader(data) == "folders" {
        order.sort_by_key(|&index| (labels[usize::from(data.label(part, index))].clone(), index));
    }
    order
}

#[track_caller]
fn is_read_back(data: &dyn DataSet, limit: usize) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut reports = Vec::new();
    let written = write(data, &out, Some(limit), |done, total| reports.push((done, total))).unwrap();
    let total = reports.len();
    assert!(reports.iter().enumerate().all(|(at, found)| *found == (at + 1, total)));

    let options = OpenOptions { slots: Some(data.slots()), leaks: Leaks::Allowed, ..OpenOptions::default() };
    let read = open(reader(data), &out, options).unwrap();
    assert_eq!(read.is_recording(), data.is_recording());
    assert_eq!((read.labels(), read.shape(), read.slots()), (data.labels(), data.shape(), data.slots()));
    let (mut images, mut first_of) = (0, BTreeMap::new());
    for part in Part::ALL {
        let order = ordered(data, part, limit);
        assert_eq!((read.len(part), written.samples[part as usize]), (order.len(), order.len()), "{part:?}");
        for (at, index) in order.into_iter().enumerate() {
            assert_eq!(read.label(part, at), data.label(part, index), "{part:?} {index}");
            let groups = [read.group(part, at), data.group(part, index)];
            assert_eq!(groups[0].is_some(), groups[1].is_some(), "{part:?} {index}");
            first_of.entry((part as usize, groups[1])).or_insert(groups[0]);
            assert_eq!(first_of[&(part as usize, groups[1])], groups[0], "{part:?} {index} keeps its group");
            for slot in 0..data.slots() {
                let [mut before, mut after] = [(); 2].map(|()| vec![0; data.shape().bytes()]);
                let seen = data.view_into(part, index, slot, &mut before);
                assert_eq!(read.view_into(part, at, slot, &mut after), seen, "{part:?} {index} {slot}");
                assert!(before == after, "{part:?} {index} {slot}");
                images += usize::from(seen);
            }
        }
    }
    assert_eq!(written.images, images);
    let groups: BTreeSet<_> = first_of.iter().map(|((part, _), group)| (*part, *group)).collect();
    assert_eq!(groups.len(), first_of.len(), "other groups stay others");
    if reader(data) == "table" {
        let error = open("folders", &out, options).err().expect("folders know no groups").to_string();
        assert!(error.contains("read it with `--data table`"), "{error}");
    }
}

#[test]
fn groups_and_frames_are_read_back_from_the_table_that_is_written_with_them() {
    let image = |dir: &Path, name: &str, fill: u8| {
        let shape = Shape::rgb(2, 3);
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, png(&View::new(shape, vec![fill; shape.bytes()])).unwrap()).unwrap();
    };
    let frames = tempfile::tempdir().unwrap();
    let groups = tempfile::tempdir().unwrap();
    let mut table = "part,class,group,file\n".to_owned();
    let parts = ["train", "val", "test", "calibration"];
    for (number, fill) in (0..24u8).enumerate() {
        let (part, class) = (parts[number / 6], ["a,b", "c"][number % 2]);
        let folder = ["a,b", "c"][number % 2];
        // Two objects per frame. As text, frames 8, 9 and 10 of train would sort in another order.
        image(frames.path(), &format!("{part}/{folder}/{}-{number}/cam0.png", 8 + number / 2), fill);
        image(groups.path(), &format!("{fill}.png"), fill);
        table += &format!("{part},\"{class}\",g{},{fill}.png\n", number / 3);
    }
    std::fs::write(groups.path().join("labels.csv"), table).unwrap();
    std::fs::write(frames.path().join("classes.txt"), "c\na,b\n").unwrap();
    std::fs::write(groups.path().join("classes.txt"), "c\na,b\n").unwrap();
    for (name, dir) in [("folders", &frames), ("table", &groups)] {
        let data = open(name, dir.path(), OpenOptions::default()).unwrap();
        assert_eq!((data.is_recording(), data.len(Part::Calibration)), (name == "folders", 6));
        is_read_back(&*data, 100);
    }
}

#[test]
fn drawn_figures_seen_by_six_cameras_are_read_back() {
    is_read_back(&Fashion6Cam::drawn_with_calibration(60, [10, 20], 30), 40);
}

#[test]
fn data_sets_that_are_at_hand_are_read_back() {
    // Some of these data sets have class names that no folder can have, or four cameras.
    for name in ["mnist", "fashion-mnist", "eth80", "cifar-10"] {
        let Some(dir) = crate::data(name).filter(|_| name != "cifar-10" || cfg!(feature = "bzip2")) else {
            continue;
        };
        is_read_back(&*open(name, &dir, OpenOptions::default()).unwrap(), 200);
    }
}

#[test]
fn a_folder_with_files_and_an_unfinished_folder_are_refused() {
    let data = Fashion6Cam::drawn(10, 10, 10);
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let again = || write(&data, &out, Some(1), |_, _| {}).unwrap_err().to_string();
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("mine"), b"mine").unwrap();
    assert!(again().contains("expected an empty folder or none, found one with files in it"), "{}", again());
    std::fs::remove_file(out.join("mine")).unwrap();
    std::fs::create_dir(dir.path().join("out.partial")).unwrap();
    assert!(
        again()
            .contains("out.partial: expected no such folder, found the folder of an unfinished conversion"),
        "{}",
        again()
    );
    std::fs::remove_dir(dir.path().join("out.partial")).unwrap();
    assert_eq!(write(&data, &out, Some(1), |_, _| {}).unwrap().samples, [1, 1, 1, 0]);
    assert!(again().contains("found one with files in it"));
    let file = dir.path().join("file");
    std::fs::write(&file, b"mine").unwrap();
    assert!(write(&data, &file, None, |_, _| {}).unwrap_err().to_string().contains("found a file"));
}
