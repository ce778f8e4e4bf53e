use std::fs;
use std::path::Path;

use super::*;
use crate::data_set::{Leaks, Omissions};
use crate::split::Split;
use crate::testing::{directory, packed, packed_by, png, write};
use crate::{DataSet, NO_CLASS, Shape, View, image_codec};

/// A `.tar.gz` of images, each filled with its own number.
fn archive(names: &[&str]) -> Vec<u8> {
    let images: Vec<_> = (0..).map(png).take(names.len()).collect();
    packed(&names.iter().copied().zip(images.iter().map(Vec::as_slice)).collect::<Vec<_>>())
}

/// Opens data with the default options.
fn opened(path: &Path) -> InMemory {
    open(path, OpenOptions::default()).unwrap()
}

#[track_caller]
fn refused(path: &Path, words: &[&str]) {
    refused_with(path, OpenOptions::default(), words);
}

#[track_caller]
fn refused_with(path: &Path, options: OpenOptions<'_>, words: &[&str]) {
    crate::testing::refused(open(path, options), words);
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
    write(dir.path(), "README.txt", b"no image");
    let data = opened(dir.path());
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
        let data = opened(path);
        assert_eq!(data.slots(), 3);
        let mut view = [99; 18];
        // Sample 7-1 is the second: classes are in the order of their names.
        let seen = [0, 1, 2].map(|slot| data.view_into(Part::Train, 1, slot, &mut view));
        assert_eq!((seen, view[0]), ([true, false, true], 1));
        assert_eq!(data.len(Part::Validation), 1);
        let files = [0, 1, 2].map(|slot| data.file_name(Part::Train, 1, slot));
        assert_eq!(files, [Some(MANY[0].to_owned()), None, Some(MANY[1].to_owned())]);
        assert_eq!(data.file_name(Part::Validation, 0, 1).as_deref(), Some(MANY[3]));
    }
}

#[test]
fn views_have_the_requested_shape_and_slots() {
    let dir = directory(&MANY);
    let options = OpenOptions {
        shape: Some(Shape { channels: 1, height: 4, width: 4 }),
        slots: Some(5),
        ..OpenOptions::default()
    };
    let data = open(dir.path(), options).unwrap();
    assert_eq!((data.shape().bytes(), data.slots()), (16, 5));
    refused_with(
        dir.path(),
        OpenOptions { slots: Some(2), ..options },
        &["train/car/7-1/cam2.png", "cameras 0 to 1, found 2"],
    );
}

#[test]
fn an_image_in_two_parts_is_refused() {
    let dir = directory(&SINGLE);
    write(dir.path(), "test/car/again.png", &png(2));
    refused(dir.path(), &["no image in two parts", "test/car/again.png", "train/car/c.png"]);
    fs::remove_dir_all(dir.path().join("test/car")).unwrap();
    write(dir.path(), "train/car/again.png", &png(2));
    assert_eq!(opened(dir.path()).len(Part::Train), 4);
}

#[test]
fn a_file_outside_of_the_layout_or_without_an_image_is_named() {
    for (name, bytes, words) in [
        ("train/car/x.png", &b"no image"[..], &["train/car/x.png", "expected PNG, JPEG or WebP"][..]),
        ("other/x.png", &png(77), &["for every sample or for none", "`other/x`"]),
        ("classes.txt", b"car\nbus\ncar\n", &["classes.txt", "`car` twice"]),
        ("classes.txt", b"car\n", &["expected a class of train (car)", "found `bus`"]),
        ("train/car/7/x.png", &png(77), &["PART/CLASS/IMAGE", "train/car/7/x.png"]),
        ("train/car/7/cam0.png", &png(77), &["every sample", "train/car/7/cam0.png"]),
        ("test/bicycle/x.png", &png(77), &["sample `test/bicycle/x`", "bus, car", "found `bicycle`"]),
    ] {
        let dir = directory(&SINGLE);
        write(dir.path(), name, bytes);
        refused(dir.path(), words);
    }
}

#[test]
fn an_empty_class_and_a_missing_part_are_named() {
    let dir = directory(&SINGLE);
    fs::create_dir_all(dir.path().join("train/van")).unwrap();
    refused(dir.path(), &["`train/van`", "expected images in the folder of a class"]);
    write(dir.path(), "train/van/notes.txt", b"no image");
    refused(dir.path(), &["`train/van`", "expected images in the folder of a class"]);
    refused(directory(&SINGLE[..4]).path(), &["found none in test"]);
    refused(directory(&SINGLE[1..2]).path(), &["found none in val"]);
    refused(directory(&SINGLE[3..]).path(), &["found none in train"]);
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "notes.txt", b"no image");
    refused(dir.path(), &["expected images", "under PART/CLASS or CLASS"]);
    write(dir.path(), "car/scan.bmp", b"BM");
    let why = "found none; 2 entries are left out: 1 .bmp (such as `car/scan.bmp`), 1 .txt";
    refused(dir.path(), &[why]);
    refused(Path::new("/nowhere/at/all"), &["/nowhere/at/all", "cannot be read"]);
}

#[test]
fn an_archive_of_another_format_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("packed.tar.gz");
    let plain_tar = [&[0; 257][..], b"ustar\x0000", &[0; 248]].concat();
    for (bytes, found) in [
        (&b"PK\x03\x04 and more"[..], "a zip"),
        (b"BZh91AY&SY", "a bzip2 file"),
        (b"\xfd7zXZ\0", "an xz file"),
        (&plain_tar, "a tar without gzip"),
    ] {
        fs::write(&path, bytes).unwrap();
        let found = format!("expected a .tar.gz archive, found {found}; unpack it, and give the folder");
        refused(&path, &["packed.tar.gz", &found]);
    }
    fs::write(&path, b"<html>").unwrap();
    refused(&path, &["instead of 1f 8b (gzip)"]);
}

/// Thirty images of each of two classes, without parts.
fn without_parts() -> tempfile::TempDir {
    let names: Vec<String> =
        (0..60).map(|at| format!("{}/{at:02}.png", if at % 2 == 0 { "car" } else { "bus" })).collect();
    directory(&names.iter().map(String::as_str).collect::<Vec<_>>())
}

fn fills(data: &InMemory, part: Part) -> Vec<u8> {
    let mut view = [0; 18];
    (0..data.len(part))
        .map(|index| {
            assert!(data.view_into(part, index, 0, &mut view));
            view[0]
        })
        .collect()
}

#[test]
fn parts_are_drawn_for_data_without_parts_and_copies_stay_together() {
    let dir = without_parts();
    // Copies of the first ten cars: ten groups of two images, and twenty cars alone.
    for at in 0..10_u8 {
        write(dir.path(), &format!("car/copy{at:02}.png"), &png(2 * at));
    }
    let data = opened(dir.path());
    assert_eq!(Part::REQUIRED.map(|part| data.len(part)), [56, 7, 7]);
    let of_part = Part::REQUIRED.map(|part| fills(&data, part));
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        assert!(of_part[one].iter().all(|fill| !of_part[other].contains(fill)), "{of_part:?}");
    }
    for part in Part::REQUIRED {
        let labels: Vec<u16> = (0..data.len(part)).map(|index| data.label(part, index)).collect();
        assert!(labels.contains(&0) && labels.contains(&1));
    }
    let other = OpenOptions { split: Some(Split { seed: 5, ..Split::default() }), ..OpenOptions::default() };
    let other = open(dir.path(), other).unwrap();
    assert_ne!(fills(&other, Part::Test), of_part[2]);
    assert_eq!(fills(&opened(dir.path()), Part::Test), of_part[2]);
}

#[test]
fn a_folder_of_nothing_is_no_class_and_comes_back_from_a_copy() {
    let names = [&SINGLE[..], &["train/_none/n.png", "test/_none/m.png"]].concat();
    let dir = directory(&names);
    write(dir.path(), CLASSES_FILE, b"car\n_none\nbus\n");
    let check = |data: &InMemory| {
        assert_eq!(data.labels(), ["car", "bus"]);
        let labels = |part| (0..data.len(part)).map(|index| data.label(part, index)).collect::<Vec<_>>();
        let mut train = labels(Part::Train);
        train.sort_unstable();
        assert_eq!(train, [0, 0, 1, NO_CLASS]);
        assert!(labels(Part::Test).contains(&NO_CLASS) && !labels(Part::Validation).contains(&NO_CLASS));
        let of_nothing = labels(Part::Train).iter().position(|label| *label == NO_CLASS).unwrap();
        assert_eq!(data.sample(Part::Train, of_nothing).label, None);
    };
    let data = opened(dir.path());
    check(&data);
    let copy = dir.path().join("copy");
    super::write(&data, &copy, None, |_, _| {}).unwrap();
    check(&opened(&copy));
    let only = directory(&["train/_none/a.png", "val/_none/b.png", "test/_none/c.png"]);
    refused(only.path(), &["samples of a class in train", "`_none` alone"]);
}

#[test]
fn a_split_for_data_that_has_parts_is_refused() {
    let dir = directory(&SINGLE);
    let options = OpenOptions { split: Some(Split::default()), ..OpenOptions::default() };
    refused_with(dir.path(), options, &["the data has parts of its own"]);
}

#[test]
fn images_of_another_colour_or_size_are_changed_and_noted() {
    let dir = directory(&SINGLE);
    let grey = View::new(Shape { channels: 1, height: 2, width: 3 }, vec![150; 6]);
    write(dir.path(), "train/car/grey.png", &image_codec::png(&grey).unwrap());
    let large = View::new(Shape::rgb(8, 6), vec![160; 144]);
    write(dir.path(), "train/car/large.png", &image_codec::png(&large).unwrap());
    let data = opened(dir.path());
    assert_eq!(fills(&data, Part::Train), [1, 0, 2, 150, 160]);
    let notes = data.notes();
    assert!(
        notes[0].contains("1 of 7 images are resized for 3x2x3, such as `train/car/large.png` of 3x8x6"),
        "{notes:?}"
    );
    assert!(
        notes[1].contains("1 of 7 images are grey and made RGB") && notes[1].contains("grey.png"),
        "{notes:?}"
    );

    let options = OpenOptions { shape: Some(grey.shape), ..OpenOptions::default() };
    let notes = open(dir.path(), options).unwrap().notes();
    assert!(notes[1].contains("6 of 7 images are made grey for 1x2x3"), "{notes:?}");
}

#[test]
fn images_that_are_transparent_are_noted_and_opaque_ones_with_alpha_are_not() {
    let dir = directory(&SINGLE);
    let mut pixels = image::RgbaImage::from_pixel(3, 2, image::Rgba([70, 70, 70, 255]));
    pixels.save(dir.path().join("train/car/opaque.png")).unwrap();
    assert_eq!(opened(dir.path()).notes(), [""; 0]);
    pixels.put_pixel(2, 1, image::Rgba([70, 70, 70, 0]));
    pixels.save(dir.path().join("train/car/cut-out.png")).unwrap();
    let data = opened(dir.path());
    let note = "1 of 7 images are stripped of their transparency for 3x2x3, such as `train/car/cut-out.png` of 4x2x3";
    assert_eq!((fills(&data, Part::Train), data.notes()), (vec![1, 0, 2, 70, 70], vec![note.to_owned()]));
}

#[test]
fn classes_have_the_order_and_the_names_of_classes_txt() {
    let names = ["train/car/a.png", "train/t-shirt%2Ftop/b.png", "val/car/d.png", "test/car/e.png"];
    let dir = directory(&names);
    write(dir.path(), "classes.txt", b"t-shirt/top\ncar\n");
    let data = opened(dir.path());
    assert_eq!(data.labels(), ["t-shirt/top", "car"]);
    assert_eq!((fills(&data, Part::Train), data.label(Part::Train, 0)), (vec![0, 1], 1));
    write(dir.path(), "classes.txt", b"van\nt-shirt/top\ncar\n");
    let data = opened(dir.path());
    assert_eq!(
        (data.notes(), data.label(Part::Train, 0)),
        (vec!["class `van` has no samples in train".into()], 2)
    );
}

/// Options that refuse data of which something is left out.
fn strict() -> OpenOptions<'static> {
    OpenOptions { omissions: Omissions::Refused, ..OpenOptions::default() }
}

/// Opens data whose three train samples are all there, and returns its only note, which a strict reader has as an error.
#[track_caller]
fn left_out(path: &Path) -> String {
    let data = opened(path);
    assert_eq!(data.len(Part::Train), 3);
    let [note] = <[String; 1]>::try_from(data.notes()).unwrap();
    refused_with(path, strict(), &["expected nothing to be left out (--strict)", &note]);
    note
}

#[test]
fn hidden_entries_are_left_out_unopened_and_counted() {
    let dir = directory(&SINGLE);
    assert!(open(dir.path(), strict()).is_ok());
    write(dir.path(), ".cache/car/x.png", b"no image");
    write(dir.path(), "train/car/._a.png", b"no image");
    write(dir.path(), "train/.ipynb_checkpoints/deep/a/b/c/d/e/f/g/h/i/j/x", b"");
    let pack = fs::File::create(dir.path().join(".pack")).unwrap();
    pack.set_len(1 << 40).unwrap();
    assert_eq!(left_out(dir.path()), "4 entries are left out: 4 hidden (such as `.cache`)");
    // Folders that a file server or an archiver made.
    write(dir.path(), "train/car/@eaDir/a.png/SYNOPHOTO_THUMB_M.jpg", &png(99));
    write(dir.path(), "__MACOSX/car/x.png", b"no image");
    write(dir.path(), "train/Thumbs.db", b"no image");
    let note = left_out(dir.path());
    assert_eq!(
        note,
        "7 entries are left out: 1 .db (such as `train/Thumbs.db`), 6 hidden (such as `.cache`)"
    );
}

#[test]
fn files_that_are_no_images_are_left_out_and_counted_by_ending() {
    let dir = directory(&SINGLE);
    for name in ["train/car/a.bmp", "train/car/b.BMP", "train/car/c.gif", "notes", "empty.txt"] {
        write(dir.path(), name, if name.starts_with("empty") { b"" } else { b"no image, but text" });
    }
    let film = fs::File::create(dir.path().join("train/film.mp4")).unwrap();
    film.set_len(1 << 40).unwrap();
    fs::create_dir_all(dir.path().join("train/car/a/b/c/d/e/f/g/h/i")).unwrap();
    let note = left_out(dir.path());
    for kind in [
        "7 entries are left out: ",
        "2 .bmp (such as `train/car/a.bmp`)",
        "1 .gif (such as `train/car/c.gif`)",
        "1 .mp4",
        "1 .txt",
        "1 without an ending (such as `notes`)",
        "1 folders below the eighth level",
    ] {
        assert!(note.contains(kind), "{kind} in {note}");
    }
}

#[test]
fn images_are_told_by_their_content_and_not_by_their_names() {
    let dir = directory(&SINGLE);
    for (fill, name) in (50..).zip(["n01230", "old.jpe", "web.jfif", "x.20", "picture.bmp"]) {
        write(dir.path(), &format!("train/car/{name}"), &png(fill));
    }
    let data = open(dir.path(), strict()).unwrap();
    assert_eq!(fills(&data, Part::Train), [1, 0, 2, 50, 51, 54, 52, 53]);
    // A file with the name of an image is refused, not left out.
    for (name, bytes) in
        [("x.png", &b"GIF89a, which is none of them"[..]), ("x.jpe", b""), ("x.webp", b"RIFF")]
    {
        let dir = directory(&SINGLE);
        write(dir.path(), &format!("train/car/{name}"), bytes);
        refused(dir.path(), &[&format!("train/car/{name}"), "decode"]);
    }
}

#[cfg(unix)]
#[test]
fn pipes_sockets_and_links_to_nothing_are_left_out_and_one_named_as_an_image_is_refused() {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    let pipe = |path: &Path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    let dir = directory(&SINGLE);
    let at = |name: &str| dir.path().join(name);
    pipe(&at("train/car/pipe"));
    pipe(&at(".watchman"));
    let _socket = UnixListener::bind(at("train/car/s")).unwrap();
    symlink("/nowhere", at("train/car/notes.txt")).unwrap();
    symlink("someone@host.1:2", at(".#labels.csv")).unwrap();
    let note = left_out(dir.path());
    for kind in
        ["2 hidden", "1 links to nothing (such as `train/car/notes.txt`)", "2 pipes, sockets or devices"]
    {
        assert!(note.contains(kind), "{kind} in {note}");
    }
    // Links to files and folders are followed.
    let linked = tempfile::tempdir().unwrap();
    for part in ["train", "val", "test"] {
        symlink(at(part), linked.path().join(part)).unwrap();
    }
    assert_eq!(opened(linked.path()).len(Part::Train), 3);
    // Links to a folder above are left out.
    symlink(at("train"), at("train/car/up")).unwrap();
    symlink(".", at("self")).unwrap();
    for (path, links) in [(dir.path(), "2"), (linked.path(), "1")] {
        let note = opened(path).notes().join("");
        assert!(note.contains(&format!("{links} links to a folder above")), "{note}");
    }
    fs::remove_file(at("self")).unwrap();
    fs::remove_file(at("train/car/up")).unwrap();
    for name in ["test/bus/x.png", "test/bus/y.JPG"] {
        if name.ends_with("png") {
            pipe(&at(name));
        } else {
            symlink("/nowhere", at(name)).unwrap();
        }
        refused(dir.path(), &[name, "expected an image, found one of the"]);
        fs::remove_file(at(name)).unwrap();
    }
    refused(&at("train/car/pipe"), &["a directory or a .tar.gz", "a pipe"]);
}

#[test]
fn links_and_hidden_members_of_an_archive_are_counted() {
    let images: Vec<_> =
        SINGLE.iter().zip(0..).map(|(name, fill)| (format!("./{name}"), png(fill))).collect();
    let bytes = packed_by(|tar| {
        let mut append = |name: &str, kind: tar::EntryType, bytes: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_entry_type(kind);
            header.set_mode(0o644);
            if kind.is_symlink() || kind.is_hard_link() {
                tar.append_link(&mut header, name, "train/car/a.png").unwrap();
            } else {
                tar.append_data(&mut header, name, bytes).unwrap();
            }
        };
        images.iter().for_each(|(name, bytes)| append(name, tar::EntryType::Regular, bytes));
        append("train/car/l.png", tar::EntryType::Symlink, b"");
        append("train/car/h.png", tar::EntryType::Link, b"");
        append("./train/._a.png", tar::EntryType::Regular, b"x");
        append("train/pipe", tar::EntryType::Fifo, b"");
        append("README", tar::EntryType::Regular, b"text");
    });
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("packed.tar.gz");
    fs::write(&path, bytes).unwrap();
    let note = left_out(&path);
    for kind in
        ["2 links of an archive (such as `train/car/l.png`)", "1 hidden", "1 pipes", "1 without an ending"]
    {
        assert!(note.contains(kind), "{kind} in {note}");
    }
}

#[test]
fn an_image_that_is_too_long_is_not_read() {
    let dir = directory(&SINGLE);
    let long = fs::File::create(dir.path().join("train/car/long.jpg")).unwrap();
    long.set_len(1 << 40).unwrap();
    refused(dir.path(), &["train/car/long.jpg", "at most 33554432 bytes in an image"]);
}

#[test]
fn files_that_differ_in_their_ending_alone_are_two_samples() {
    let dir = directory(&SINGLE);
    write(dir.path(), "train/car/a.webp", &png(60));
    write(dir.path(), "train/car/a", &png(61));
    let data = opened(dir.path());
    assert_eq!(fills(&data, Part::Train), [1, 61, 0, 60, 2]);
    let dir = directory(&MANY);
    write(dir.path(), "train/car/7-1/cam0.webp", &png(60));
    refused(dir.path(), &["one file for a view", "cam0.png", "cam0.webp"]);
}

#[cfg(unix)]
#[test]
fn names_that_are_not_utf_8_are_two_samples() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let dir = directory(&SINGLE);
    for (fill, name) in [(60, &b"caf\xe9.png"[..]), (61, b"caf\xe8.png")] {
        fs::write(dir.path().join("train/car").join(OsStr::from_bytes(name)), png(fill)).unwrap();
    }
    let data = opened(dir.path());
    assert_eq!(fills(&data, Part::Train), [1, 0, 2, 61, 60]);
}

#[cfg(feature = "unicode")]
#[test]
fn composed_and_decomposed_names_are_one_class() {
    let (composed, decomposed) = ("Gr\u{f6}ße", "Gro\u{308}ße");
    let names = [
        format!("train/{decomposed}/a.png"),
        "train/car/b.png".to_owned(),
        format!("val/{composed}/c.png"),
        format!("test/{decomposed}/d.png"),
        format!("train/{composed}/e.png"),
    ];
    let dir = directory(&names.each_ref().map(String::as_str));
    let data = opened(dir.path());
    assert_eq!((data.labels(), data.len(Part::Train)), (vec![composed.to_owned(), "car".to_owned()], 3));
    for name in [composed, decomposed] {
        write(dir.path(), "classes.txt", format!("car\n{name}\n").as_bytes());
        let data = opened(dir.path());
        assert_eq!(data.labels(), ["car", composed]);
    }
}

#[test]
fn classes_that_differ_in_the_case_of_letters_are_noted() {
    let names = ["train/car/a.png", "train/Car/b.png", "val/car/c.png", "test/Car/d.png"];
    let data = opened(directory(&names).path());
    assert_eq!(data.labels(), ["Car", "car"]);
    assert_eq!(data.notes(), ["classes `Car` and `car` differ in the case of letters alone"]);
}

#[test]
fn a_class_that_folders_cannot_keep_is_refused_before_anything_is_written() {
    let out = tempfile::tempdir().unwrap();
    let out = out.path().join("out");
    let data =
        opened(directory(&["train/b /a.png", "train/car/b.png", "val/car/c.png", "test/b /d.png"]).path());
    let error = super::write(&data, &out, None, |_, _| {}).unwrap_err();
    assert!(
        matches!(error, DataError::Options { .. }) && error.to_string().contains("\"b \"; rename it"),
        "{error}"
    );
    assert!(!out.exists() && !out.with_extension("partial").exists());
}

#[test]
fn a_mixture_of_frames_and_other_names_is_refused() {
    let dir = directory(&MANY);
    write(dir.path(), "train/bus/odd/cam0.png", &png(99));
    refused(dir.path(), &["FRAME-OBJECT, or none", "found 4 of 5; `odd` is not"]);
}

#[test]
fn parts_are_not_drawn_from_the_frames_of_a_recording_unless_leaks_are_allowed() {
    let names = ["car/7-1/cam0.png", "car/8-1/cam0.png", "car/9-1/cam0.png", "car/10-1/cam0.png"];
    let dir = directory(&names);
    refused(dir.path(), &["divide the recording by time"]);
    let options = OpenOptions { leaks: Leaks::Allowed, ..OpenOptions::default() };
    let notes = open(dir.path(), options).unwrap().notes().join("\n");
    assert!(notes.contains("frames of one recording without parts"), "{notes}");
}

#[test]
fn a_calibration_part_with_copies_or_with_images_of_another_part_allows_no_promise() {
    let obstacle = |extra: &[(&str, u8)]| {
        let dir = directory(&SINGLE);
        write(dir.path(), "calibration/car/a.png", &png(50));
        extra.iter().for_each(|(name, fill)| write(dir.path(), name, &png(*fill)));
        let options = OpenOptions { leaks: Leaks::Allowed, ..OpenOptions::default() };
        open(dir.path(), options).unwrap().promise_obstacle()
    };
    assert_eq!(obstacle(&[("calibration/car/b.png", 51)]), None);
    // Copies in other parts alone say nothing about calibration.
    assert_eq!(obstacle(&[("test/car/again.png", 2)]), None);
    let found = obstacle(&[("calibration/car/b.png", 2)]).unwrap();
    assert!(found.contains("with another part, such as in `calibration/car/b.png`"), "{found}");
    let found = obstacle(&[("calibration/bus/b.png", 50)]).unwrap();
    assert!(found.contains("the same image in samples that would count as independent"), "{found}");
}
