use std::fs;

use super::*;
use crate::data_set::Leaks;
use crate::split::Split;
use crate::testing::{SHAPE, packed_by, packed_folder, png, write};
use crate::{DataSet, Part};

/// Options that request a shape, which raw tensors need.
fn with_shape() -> OpenOptions<'static> {
    OpenOptions { shape: Some(SHAPE), ..OpenOptions::default() }
}

/// A table and images, each filled with its own number.
fn directory(table: &str, names: &[&str]) -> tempfile::TempDir {
    let dir = crate::testing::directory(names);
    fs::write(dir.path().join(TABLE), table).unwrap();
    dir
}

#[track_caller]
fn refused(path: &Path, words: &[&str]) {
    crate::testing::refused(open(path, OpenOptions::default()), words);
}

fn fill(data: &InMemory, part: Part, index: usize, slot: usize) -> Option<u8> {
    let mut view = [0; 18];
    data.view_into(part, index, slot, &mut view).then(|| {
        assert!(view.iter().all(|pixel| *pixel == view[0]));
        view[0]
    })
}

const PLAIN: &str =
    "file,class,part\na.png,car,train\nx/b.png,bus,train\nc.png,car,val\n\"d, e.png\",bus,test\n";
const FILES: [&str; 4] = ["a.png", "x/b.png", "c.png", "d, e.png"];

#[test]
fn a_line_is_a_sample_in_a_directory_and_in_an_archive() {
    let dir = directory(PLAIN, &FILES);
    let elsewhere = tempfile::tempdir().unwrap();
    let archive = elsewhere.path().join("packed.tar.gz");
    fs::write(&archive, packed_folder(dir.path())).unwrap();
    for path in [dir.path(), &archive] {
        let data = open(path, OpenOptions::default()).unwrap();
        assert_eq!((data.labels(), data.slots(), data.shape()), (vec!["bus".into(), "car".into()], 1, SHAPE));
        assert_eq!(Part::REQUIRED.map(|part| data.len(part)), [2, 1, 1]);
        assert_eq!((0..2).map(|at| data.label(Part::Train, at)).collect::<Vec<_>>(), [1, 0]);
        assert_eq!((fill(&data, Part::Train, 1, 0), fill(&data, Part::Test, 0, 0)), (Some(1), Some(3)));
        assert_eq!(data.file_name(Part::Test, 0, 0).as_deref(), Some("d, e.png"));
    }
}

#[test]
fn files_that_are_in_the_only_archive_beside_the_table_are_read_from_there() {
    let dir = directory(PLAIN, &FILES);
    let beside = tempfile::tempdir().unwrap();
    fs::write(beside.path().join(TABLE), PLAIN).unwrap();
    let missing = ["`a.png`", "this file, which labels.csv names in line 2"];
    refused(beside.path(), &missing);
    fs::write(beside.path().join("images.tar.gz"), packed_folder(dir.path())).unwrap();
    let data = open(beside.path(), OpenOptions::default()).unwrap();
    assert_eq!((data.len(Part::Train), fill(&data, Part::Test, 0, 0)), (2, Some(3)));
    fs::write(beside.path().join("others.tgz"), b"").unwrap();
    refused(beside.path(), &missing);
}

#[test]
fn cameras_are_columns_and_files_may_be_raw() {
    let table = "class,part,cam0,cam1\ncar,train,a.u8,\ncar,val,,b.f32\ncar,test,,\n";
    let dir = directory(table, &[]);
    write(dir.path(), "a.u8", &[7; 18]);
    write(dir.path(), "b.f32", &[100.4_f32 / 255.0; 18].map(f32::to_le_bytes).concat());
    let data = open(dir.path(), with_shape()).unwrap();
    assert_eq!(data.slots(), 2);
    let seen = |part| [0, 1].map(|slot| fill(&data, part, 0, slot));
    assert_eq!(Part::REQUIRED.map(seen), [[Some(7), None], [None, Some(100)], [None, None]]);
}

#[test]
fn a_tensor_of_another_length_or_range_is_named() {
    let table = "class,part,file\ncar,train,a.u8\ncar,val,b.f32\ncar,test,c.png\n";
    let dir = directory(table, &[]);
    let with_shape_refused = |words: &[&str]| {
        crate::testing::refused(open(dir.path(), with_shape()), words);
    };
    write(dir.path(), "c.png", &png(3));
    write(dir.path(), "a.u8", &[7; 17]);
    // Without `b.f32`, the missing file would be reported first.
    write(dir.path(), "b.f32", &[0.5_f32; 18].map(f32::to_le_bytes).concat());
    refused(dir.path(), &["`a.u8`", "expected a requested shape"]);
    with_shape_refused(&["`a.u8`", "18 bytes for 3x2x3, 1 per value, found 17"]);
    write(dir.path(), "a.u8", &[7; 18]);
    let mut values = [0.5_f32; 18];
    for (at, value, found) in [(4, f32::NAN, "NaN"), (17, 1.5, "1.5"), (0, -0.5, "-0.5")] {
        values[at] = value;
        write(dir.path(), "b.f32", &values.map(f32::to_le_bytes).concat());
        let found = format!("values from 0 to 1, found {found}");
        with_shape_refused(&["`b.f32`", &found, &format!("at index {at}")]);
        values[at] = 0.5;
    }
    write(dir.path(), "b.f32", &[0; 18]);
    with_shape_refused(&["`b.f32`", "72 bytes for 3x2x3, 4 per value, found 18"]);
}

#[test]
fn groups_stay_together_when_parts_are_drawn() {
    let rows: String =
        (0..40).map(|at| format!("{at}.png,{},scene {}\n", ["car", "bus"][at % 2], at / 4)).collect();
    let names: Vec<String> = (0..40).map(|at| format!("{at}.png")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let dir = directory(&format!("file,class,group\n{rows}"), &names);
    let data = open(dir.path(), OpenOptions::default()).unwrap();
    assert_eq!(Part::REQUIRED.map(|part| data.len(part)), [32, 4, 4]);
    let scenes = Part::ALL
        .map(|part| (0..data.len(part)).map(|at| fill(&data, part, at, 0).unwrap() / 4).collect::<Vec<_>>());
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        assert!(scenes[one].iter().all(|scene| !scenes[other].contains(scene)), "{scenes:?}");
    }
    let options = OpenOptions {
        split: Some(Split { shares: "2,1,1".parse().unwrap(), seed: 1 }),
        ..OpenOptions::default()
    };
    let data = open(dir.path(), options).unwrap();
    assert_eq!(Part::REQUIRED.map(|part| data.len(part)), [20, 12, 8]);
}

#[test]
fn data_without_parts_has_the_folds_that_are_asked_for_and_data_with_parts_none() {
    let rows: String =
        (0..12).map(|at| format!("{at}.png,{},{}\n", ["car", "bus"][at % 2], at / 4)).collect();
    let names: Vec<String> = (0..12).map(|at| format!("{at}.png")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let dir = directory(&format!("file,class,group\n{rows}"), &names);
    let of = |fold, folds| OpenOptions { fold: Some(fold), folds: Some(folds), ..OpenOptions::default() };
    let first_of_test = |fold| {
        let data = open(dir.path(), of(fold, 3)).unwrap();
        assert_eq!(Part::REQUIRED.map(|part| data.len(part)), [4, 4, 4]);
        data.file_name(Part::Test, 0, 0).unwrap()
    };
    let mut tested = [0, 1, 2].map(first_of_test);
    tested.sort();
    assert_eq!(tested, ["0.png", "4.png", "8.png"], "a group is a fold");
    crate::testing::refused(open(dir.path(), of(0, 4)), &["samples in each of 4 folds", "3 groups"]);
    let dir = directory(PLAIN, &FILES);
    crate::testing::refused(open(dir.path(), of(0, 3)), &["no folds", "parts of its own"]);
}

#[test]
fn a_group_in_two_parts_is_refused_or_noted() {
    let table = "file,class,part,group\na.png,car,train,g\nb.png,car,val,h\nc.png,car,test,g\n";
    let dir = directory(table, &["a.png", "b.png", "c.png"]);
    refused(dir.path(), &["no group in two parts", "`g`", "`line 2` and `line 4`"]);
    let options = OpenOptions { leaks: Leaks::Allowed, ..OpenOptions::default() };
    let notes = open(dir.path(), options).unwrap().notes();
    assert!(notes[0].starts_with("leak: 1 times"), "{notes:?}");
}

#[test]
fn a_fault_of_the_table_is_named_with_its_line() {
    for (table, words) in [
        ("file,class,colour\n", &["labels.csv:1: expected columns", "found `colour`"][..]),
        (
            "file,class,part\na.png,car,train\nc.png,car,\n",
            &["for every sample or for none", "`line 2`", "`line 3`"],
        ),
        ("file,class\na.png,car\nz.png,car\n", &["`z.png`", "labels.csv names in line 3"]),
        ("file,class\na.png,car\nlabels.csv,car\n", &["`labels.csv`", "expected PNG, JPEG or WebP"]),
        ("file,class\na.png,car\nc.png,bus\n", &["class `bus`", "found 1 groups"]),
        (
            "file,class,part\na.png,car,train\nc.png,bus,val\nx/b.png,car,test\n",
            &["sample `line 3`", "found `bus`"],
        ),
        ("file,class,part\na.png,car,train\nc.png,car,val\n", &["found none in test"]),
        ("file,class\n,car\n", &["expected files in labels.csv, found none"]),
    ] {
        let dir = directory(table, &FILES);
        refused(dir.path(), words);
        let archive = dir.path().join("packed.tar.gz");
        let bytes = packed_folder(dir.path());
        fs::write(&archive, bytes).unwrap();
        refused(&archive, words);
    }
    let dir = directory("file,class\n", &[]);
    fs::write(dir.path().join(TABLE), b"file,class\n\xff\n").unwrap();
    refused(dir.path(), &["labels.csv:2: expected UTF-8"]);
    let wide: Vec<u8> = "\u{feff}file,class\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    fs::write(dir.path().join(TABLE), wide).unwrap();
    refused(dir.path(), &["labels.csv:1: expected UTF-8", "CSV UTF-8", "found UTF-16"]);
    fs::remove_file(dir.path().join(TABLE)).unwrap();
    refused(dir.path(), &["expected a file labels.csv"]);
}

#[test]
fn lines_may_end_as_on_an_old_mac() {
    let dir = directory(&PLAIN.replace('\n', "\r"), &FILES);
    assert_eq!(open(dir.path(), OpenOptions::default()).unwrap().len(Part::Train), 2);
    let dir = directory("file,class\ra.png,car\rz.png,car\r", &FILES);
    refused(dir.path(), &["`z.png`", "labels.csv names in line 3"]);
    fs::write(dir.path().join(TABLE), b"file,class\r\xff\r").unwrap();
    refused(dir.path(), &["labels.csv:2: expected UTF-8"]);
}

#[cfg(feature = "unicode")]
#[test]
fn composed_and_decomposed_names_are_one() {
    let (composed, decomposed) = ("Gr\u{f6}ße", "Gro\u{308}ße");
    for (of_table, of_file) in [(composed, decomposed), (decomposed, composed), (composed, composed)] {
        let table = format!(
            "file,class,part\n{of_table}/{of_table}.png,{of_table},train\na.png,{of_file},val\nc.png,{composed},test\n"
        );
        let dir = directory(&table, &[&format!("{of_file}/{of_file}.png"), "a.png", "c.png"]);
        let elsewhere = tempfile::tempdir().unwrap();
        let archive = elsewhere.path().join("packed.tar.gz");
        fs::write(&archive, packed_folder(dir.path())).unwrap();
        for path in [dir.path(), &archive] {
            let data = open(path, OpenOptions::default()).unwrap();
            assert_eq!((data.labels(), data.len(Part::Train)), (vec![composed.to_owned()], 1));
        }
    }
    let table = format!(
        "file,class,part,group\na.png,car,train,{composed}\nb.png,car,val,g\nc.png,car,test,{decomposed}\n"
    );
    let dir = directory(&table, &["a.png", "b.png", "c.png"]);
    refused(dir.path(), &["no group in two parts"]);
}

#[cfg(unix)]
#[test]
fn a_pipe_or_a_link_of_an_archive_that_the_table_names_is_refused() {
    let dir = directory(PLAIN, &FILES);
    fs::remove_file(dir.path().join("c.png")).unwrap();
    std::os::unix::fs::symlink("a.png", dir.path().join("c.png")).unwrap();
    let bytes = packed_by(|tar| {
        tar.follow_symlinks(false);
        tar.append_dir_all(".", dir.path()).unwrap();
    });
    let archive = dir.path().join("packed.tar.gz");
    fs::write(&archive, bytes).unwrap();
    refused(&archive, &["`c.png`", "expected a plain file, found a link", "tar -h"]);
    fs::remove_file(dir.path().join("c.png")).unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(dir.path().join("c.png")).status().unwrap();
    assert!(pipe.success());
    refused(dir.path(), &["c.png", "expected a plain file, found a folder, pipe"]);
}

#[test]
fn an_archive_with_two_files_of_one_name_is_refused() {
    let dir = directory(PLAIN, &FILES);
    let path = dir.path().join("twice.tar.gz");
    for twice in ["c.png", TABLE] {
        let bytes = packed_by(|tar| {
            for name in FILES.iter().chain([&TABLE, &twice]) {
                tar.append_path_with_name(dir.path().join(name), name).unwrap();
            }
        });
        fs::write(&path, bytes).unwrap();
        refused(&path, &[&format!("`{twice}`: expected one file of this name, found two")]);
    }
}
