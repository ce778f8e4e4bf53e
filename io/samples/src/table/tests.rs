use std::fs;

use super::*;
use crate::data_set::Leaks;
use crate::split::Split;
use crate::{DataSet, Part, Shape, View, image_codec};

const SHAPE: Shape = Shape::rgb(2, 3);

/// Options that request a shape, which raw tensors need.
fn with_shape() -> OpenOptions<'static> {
    OpenOptions { shape: Some(SHAPE), ..OpenOptions::default() }
}

fn png(fill: u8) -> Vec<u8> {
    image_codec::png(&View::new(SHAPE, vec![fill; SHAPE.bytes()])).unwrap()
}

/// A table and images, each filled with its own number.
fn directory(table: &str, names: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(TABLE), table).unwrap();
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

fn packed(dir: &Path) -> Vec<u8> {
    let gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut tar = tar::Builder::new(gz);
    tar.append_dir_all(".", dir).unwrap();
    tar.into_inner().unwrap().finish().unwrap()
}

#[track_caller]
fn refused(path: &Path, options: OpenOptions<'_>, words: &[&str]) {
    let error = open(path, options).expect_err("it is refused").to_string();
    assert!(words.iter().all(|word| error.contains(word)), "{error}");
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
    fs::write(&archive, packed(dir.path())).unwrap();
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
    refused(beside.path(), OpenOptions::default(), &missing);
    fs::write(beside.path().join("images.tar.gz"), packed(dir.path())).unwrap();
    let data = open(beside.path(), OpenOptions::default()).unwrap();
    assert_eq!((data.len(Part::Train), fill(&data, Part::Test, 0, 0)), (2, Some(3)));
    fs::write(beside.path().join("others.tgz"), b"").unwrap();
    refused(beside.path(), OpenOptions::default(), &missing);
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
    write(dir.path(), "c.png", &png(3));
    write(dir.path(), "a.u8", &[7; 17]);
    // A file that is missing would be named first.
    write(dir.path(), "b.f32", &[0.5_f32; 18].map(f32::to_le_bytes).concat());
    refused(dir.path(), OpenOptions::default(), &["`a.u8`", "expected a requested shape"]);
    refused(dir.path(), with_shape(), &["`a.u8`", "18 bytes for 3x2x3, 1 per value, found 17"]);
    write(dir.path(), "a.u8", &[7; 18]);
    let mut values = [0.5_f32; 18];
    for (at, value, found) in [(4, f32::NAN, "NaN"), (17, 1.5, "1.5"), (0, -0.5, "-0.5")] {
        values[at] = value;
        write(dir.path(), "b.f32", &values.map(f32::to_le_bytes).concat());
        let found = format!("values from 0 to 1, found {found}");
        refused(dir.path(), with_shape(), &["`b.f32`", &found, &format!("at index {at}")]);
        values[at] = 0.5;
    }
    write(dir.path(), "b.f32", &[0; 18]);
    refused(dir.path(), with_shape(), &["`b.f32`", "72 bytes for 3x2x3, 4 per value, found 18"]);
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
fn a_group_in_two_parts_is_refused_or_noted() {
    let table = "file,class,part,group\na.png,car,train,g\nb.png,car,val,h\nc.png,car,test,g\n";
    let dir = directory(table, &["a.png", "b.png", "c.png"]);
    refused(dir.path(), OpenOptions::default(), &["no group in two parts", "`g`", "`line 2` and `line 4`"]);
    let options = OpenOptions { leaks: Leaks::Allowed, ..OpenOptions::default() };
    let notes = open(dir.path(), options).unwrap().notes();
    assert!(notes[0].starts_with("leak: 1 times"), "{notes:?}");
    write(dir.path(), "labels.csv", b"file,class,part\na.png,car,train\nb.png,car,val\nc.png,car,test\n");
    write(dir.path(), "c.png", &png(1));
    refused(dir.path(), OpenOptions::default(), &["no image in two parts", "`b.png` and `c.png`"]);
}

#[test]
fn a_fault_of_the_table_is_named_with_its_line() {
    for (table, words) in [
        ("file,class,colour\n", &["labels.csv:1: expected columns", "found `colour`"][..]),
        (
            "file,class,part\na.png,car,train\na.png,car,train\n",
            &["labels.csv:3", "every file once", "in line 2"],
        ),
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
        refused(dir.path(), OpenOptions::default(), words);
        let archive = dir.path().join("packed.tar.gz");
        let bytes = packed(dir.path());
        fs::write(&archive, bytes).unwrap();
        refused(&archive, OpenOptions::default(), words);
    }
    let dir = directory("file,class\n", &[]);
    fs::write(dir.path().join(TABLE), b"file,class\n\xff\n").unwrap();
    refused(dir.path(), OpenOptions::default(), &["labels.csv:2: expected UTF-8"]);
    let wide: Vec<u8> = "\u{feff}file,class\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    fs::write(dir.path().join(TABLE), wide).unwrap();
    refused(
        dir.path(),
        OpenOptions::default(),
        &["labels.csv:1: expected UTF-8", "CSV UTF-8", "found UTF-16"],
    );
    fs::remove_file(dir.path().join(TABLE)).unwrap();
    refused(dir.path(), OpenOptions::default(), &["expected a file labels.csv"]);
}

#[test]
fn an_archive_cut_off_anywhere_is_refused() {
    let dir = directory(PLAIN, &FILES);
    let whole = packed(dir.path());
    let path = dir.path().join("cut.tar.gz");
    for length in (0..whole.len()).step_by(7) {
        fs::write(&path, &whole[..length]).unwrap();
        refused(&path, OpenOptions::default(), &["cut.tar.gz", "copy or download it again"]);
    }
}

#[test]
fn lines_may_end_as_on_an_old_mac() {
    let dir = directory(&PLAIN.replace('\n', "\r"), &FILES);
    assert_eq!(open(dir.path(), OpenOptions::default()).unwrap().len(Part::Train), 2);
    let dir = directory("file,class\ra.png,car\rz.png,car\r", &FILES);
    refused(dir.path(), OpenOptions::default(), &["`z.png`", "labels.csv names in line 3"]);
    fs::write(dir.path().join(TABLE), b"file,class\r\xff\r").unwrap();
    refused(dir.path(), OpenOptions::default(), &["labels.csv:2: expected UTF-8"]);
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
        fs::write(&archive, packed(dir.path())).unwrap();
        for path in [dir.path(), &archive] {
            let data = open(path, OpenOptions::default()).unwrap();
            assert_eq!((data.labels(), data.len(Part::Train)), (vec![composed.to_owned()], 1));
        }
    }
    let table = format!(
        "file,class,part,group\na.png,car,train,{composed}\nb.png,car,val,g\nc.png,car,test,{decomposed}\n"
    );
    let dir = directory(&table, &["a.png", "b.png", "c.png"]);
    refused(dir.path(), OpenOptions::default(), &["no group in two parts"]);
}

#[cfg(unix)]
#[test]
fn a_pipe_or_a_link_of_an_archive_that_the_table_names_is_refused() {
    let dir = directory(PLAIN, &FILES);
    fs::remove_file(dir.path().join("c.png")).unwrap();
    std::os::unix::fs::symlink("a.png", dir.path().join("c.png")).unwrap();
    let gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut tar = tar::Builder::new(gz);
    tar.follow_symlinks(false);
    tar.append_dir_all(".", dir.path()).unwrap();
    let archive = dir.path().join("packed.tar.gz");
    fs::write(&archive, tar.into_inner().unwrap().finish().unwrap()).unwrap();
    refused(&archive, OpenOptions::default(), &["`c.png`", "expected a plain file, found a link", "tar -h"]);
    fs::remove_file(dir.path().join("c.png")).unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(dir.path().join("c.png")).status().unwrap();
    assert!(pipe.success());
    refused(dir.path(), OpenOptions::default(), &["c.png", "expected a plain file, found a folder, pipe"]);
}

#[test]
fn an_archive_with_two_files_of_one_name_is_refused() {
    let dir = directory(PLAIN, &FILES);
    let path = dir.path().join("twice.tar.gz");
    for twice in ["c.png", TABLE] {
        let gz = flate2::write::GzEncoder::new(fs::File::create(&path).unwrap(), flate2::Compression::fast());
        let mut tar = tar::Builder::new(gz);
        for name in FILES.iter().chain([&TABLE, &twice]) {
            tar.append_path_with_name(dir.path().join(name), name).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap();
        refused(
            &path,
            OpenOptions::default(),
            &[&format!("`{twice}`: expected one file of this name, found two")],
        );
    }
}
