//! Images and tables that `headwater-train` reads.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use headwater_samples::roi::{self, Framing};

use super::pictures::{self, SHAPE, half, jpeg, png, webp};
use super::running::ran;
use super::{Case, CaseFolder, case, pipe, write};
use crate::programs::command;

/// Bytes of a file that no reader may read: more than any limit.
const HUGE: u64 = 1 << 40;

/// The first bytes of a BMP image, in place of a whole image.
const BMP: &[u8] = b"BM\x36\0\0\0\0\0\0\0";

pub(super) fn cases() -> Vec<Case> {
    let mut cases = damage();
    cases.extend(left_out());
    cases.extend(unopened());
    cases.extend(names());
    cases.extend(tables_and_arrays());
    cases
}

/// Kinds 2, 5 and 6: damaged files are refused by name, and images that viewers show are taken.
fn damage() -> Vec<Case> {
    const CUT: &[&str] = &["exit 2", "train/a/x", "cut"];
    const TAKEN: &[&str] = &["exit 0", "3 train, 2 validation, 2 test", "!left out"];
    const TOO_LARGE: &[&str] = &["exit 2", "train/a/x.jpg", "8200x8192", "64 megapixels"];
    vec![
        image(2, "jpeg-half", CUT, "x.jpg", || half(&jpeg())),
        image(2, "jpeg-head", CUT, "x.jpg", || jpeg()[..200].to_vec()),
        image(2, "jpeg-half-zeros", &["exit 2", "train/a/x.jpg"], "x.jpg", || pictures::half_zeros(&jpeg())),
        image(2, "progressive-half", CUT, "x.jpg", || half(&pictures::file("progressive-420.jpg"))),
        image(2, "png-half", CUT, "x.png", || half(&png(9))),
        image(2, "webp-half", CUT, "x.webp", || half(&webp(9))),
        image(2, "empty-jpeg", CUT, "x.jpg", Vec::new),
        image(2, "png-check-sum", &["exit 2", "train/a/x.png"], "x.png", || {
            let mut file = png(9);
            // The altered byte is the last one of the check sum of the pixels; the chunk `IEND` after it has 12 bytes.
            let at = file.len() - 13;
            file[at] ^= 1;
            file
        }),
        case(2, "table-jpeg-half", &["exit 2", "x.jpg", "cut"], |case| {
            table(case, "file,class,part\nx.jpg,a,train\n", &[("x.jpg", half(&jpeg()))])
        }),
        case(2, "archive-jpeg-half", CUT, |case| {
            write(&base(case), "train/a/x.jpg", &half(&jpeg()));
            convert_archive(case)
        }),
        image(2, "jpeg-without-end", TAKEN, "x.jpg", || pictures::unended(&jpeg())),
        image(2, "jpeg-restarts", TAKEN, "x.jpg", || pictures::file("restarts-422.jpg")),
        image(5, "jpeg-without-tables", TAKEN, "x.jpg", || pictures::without_tables(&jpeg())),
        image(6, "photo-12-megapixels", TAKEN, "x.jpg", || pictures::large_jpeg(4032, 3024)),
        image(6, "photo-64-megapixels", TAKEN, "x.jpg", || pictures::large_jpeg(8192, 8192)),
        image(6, "photo-above-64-megapixels", TOO_LARGE, "x.jpg", || pictures::large_jpeg(8200, 8192)),
    ]
}

/// Kind 3: entries that are left out are counted by their ending, with an example, and every orientation is applied.
fn left_out() -> Vec<Case> {
    const UPRIGHT: &[&str] = &["8 of 8 are upright"];
    vec![
        case(3, "orientations-jpeg", UPRIGHT, |case| orientations(case, "jpg", pictures::turned_jpeg)),
        case(3, "orientations-png", UPRIGHT, |case| orientations(case, "png", pictures::turned_png)),
        case(3, "orientations-webp", UPRIGHT, |case| orientations(case, "webp", pictures::turned_webp)),
        beside(3, "images-of-other-names", &["exit 0", "10 train", "!left out"], |data| {
            let names = ["n01230", "x.jpe", "x.jfif", "picture.bmp", "x.2026", "X.JPG", "x.JPEG", "y.tiff"];
            for (number, name) in (1..).zip(names) {
                write(data, &format!("train/a/{name}"), &pictures::numbered(&jpeg(), number));
            }
        }),
        case(
            3,
            "other-formats",
            &[
                "exit 0",
                "2 train",
                "5 entries are left out",
                "2 .bmp (such as `train/a/x.bmp`)",
                "1 .gif",
                "1 .heic",
                "1 without an ending",
            ],
            |case| other_formats(case, &[]),
        ),
        case(
            3,
            "other-formats-strict",
            &["exit 2", "--strict", "5 entries are left out", "2 .bmp (such as `train/a/x.bmp`)"],
            |case| other_formats(case, &["--strict"]),
        ),
        image(3, "gif-named-jpg", &["exit 2", "train/a/x.jpg", "a GIF"], "x.jpg", || {
            b"GIF89a, which no reader takes".to_vec()
        }),
        beside(
            3,
            "system-files",
            &["exit 0", "2 train", "3 entries are left out", "1 .db (such as `train/a/Thumbs.db`)"],
            |data| {
                for name in ["train/a/Thumbs.db", "train/a/desktop.ini", "__MACOSX/train/a/x"] {
                    write(data, name, b"no image");
                }
            },
        ),
        case(3, "link-to-an-image", &["exit 0", "3 train", "!left out"], |case| {
            let data = base(case);
            write(&case.path, "x.png", &png(9));
            symlink(case.path.join("x.png"), data.join("train/a/x.png")).expect("the folder can be written");
            convert_folders(case)
        }),
        case(3, "link-in-an-archive", &["exit 0", "2 train", "1 links of an archive"], |case| {
            let data = base(case);
            symlink("f0.png", data.join("train/a/x.png")).expect("the folder can be written");
            convert_archive(case)
        }),
    ]
}

/// Kind 4: entries that are no data are not opened. A reader that opens a named pipe waits for ever.
fn unopened() -> Vec<Case> {
    const LEFT_OUT: &[&str] = &["exit 0", "2 train, 2 validation, 2 test", "1 entries are left out: 1 "];
    const HIDDEN: &[&str] = &["exit 0", "2 train, 2 validation, 2 test", "1 hidden"];
    const PIPE: &[&str] = &["exit 2", "train/a/x.jpg", "expected an image, found one of the pipes"];
    vec![
        beside(4, "hidden-folder", HIDDEN, |data| write(data, ".git/a/b/c/d/e/f/g/h/i/j/x", b"x")),
        beside(4, "hidden-empty-folder", HIDDEN, |data| {
            fs::create_dir_all(data.join("train/.ipynb_checkpoints")).expect("the folder can be written");
        }),
        beside(4, "hidden-pack", HIDDEN, |data| huge(data, ".pack")),
        beside(4, "hidden-pipe", HIDDEN, |data| pipe(data, ".watch")),
        beside(4, "hidden-link", HIDDEN, |data| link_to_nothing(data, ".#labels.csv")),
        beside(4, "video", &["exit 0", "2 train", "1 .mp4 (such as `original.mp4`)"], |data| {
            huge(data, "original.mp4");
        }),
        beside(4, "archive-in-a-class", &["exit 0", "2 train", "1 .zip"], |data| {
            huge(data, "train/a/all.zip");
        }),
        beside(4, "pipe", LEFT_OUT, |data| pipe(data, "train/a/pipe")),
        // The path of a Unix socket has fewer than 108 bytes on Linux, so the file name is short.
        beside(4, "socket", LEFT_OUT, |data| drop(UnixListener::bind(data.join("s")).expect("a short path"))),
        beside(4, "link-to-nothing", LEFT_OUT, |data| link_to_nothing(data, "train/a/notes.txt")),
        beside(4, "pipe-named-jpg", PIPE, |data| pipe(data, "train/a/x.jpg")),
        beside(4, "link-to-nothing-named-png", &["exit 2", "train/a/x.png", "links to nothing"], |data| {
            link_to_nothing(data, "train/a/x.png");
        }),
        beside(4, "huge-jpg", &["exit 2", "train/a/x.jpg", "at most 33554432 bytes"], |data| {
            huge(data, "train/a/x.jpg");
        }),
    ]
}

fn names() -> Vec<Case> {
    const CLASS: [&str; 2] = ["Gr\u{f6}\u{df}e", "Gro\u{308}\u{df}e"];
    vec![
        beside(7, "class-of-a-mac", &["exit 0", "3 train, 3 validation, 3 test"], |data| {
            for (seed, (part, at)) in (70..).zip([("train", 0), ("val", 1), ("test", 0)]) {
                write(data, &format!("{part}/{}/x.png", CLASS[at]), &png(seed));
            }
            write(data, "classes.txt", format!("b\n{}\na\n", CLASS[1]).as_bytes());
        }),
        case(7, "table-of-a-mac", &["exit 0", "2 train"], |case| {
            let [composed, decomposed] = CLASS.map(|name| format!("{name}.png"));
            table(case, &format!("file,class,part\n{composed},a,train\n"), &[(&*decomposed, png(9))])
        }),
        beside(7, "names-not-utf-8", &["exit 0", "4 train"], |data| {
            for (seed, name) in (70..).zip([b"caf\xe9.png", b"caf\xe8.png"]) {
                fs::write(data.join("train/a").join(OsStr::from_bytes(name)), png(seed))
                    .expect("Linux takes such names");
            }
        }),
        beside(7, "equal-stems", &["exit 0", "4 train"], |data| {
            write(data, "train/a/x.png", &png(9));
            write(data, "train/a/x.jpg", &jpeg());
        }),
        beside(7, "classes-of-two-cases", &["exit 2", "`A` and `a`", "rename"], |data| {
            for (seed, part) in (70..).zip(["train", "val", "test"]) {
                write(data, &format!("{part}/A/x.png"), &png(seed));
            }
        }),
        beside(7, "class-with-a-blank-at-its-end", &["exit 2", "\"c \"", "rename"], |data| {
            for (seed, part) in (70..).zip(["train", "val", "test"]) {
                write(data, &format!("{part}/c /x.png"), &png(seed));
            }
        }),
        case(7, "class-of-two-lines", &["exit 2", "a\\nb", "rename"], |case| {
            table(case, "file,class,part\nx.png,\"a\nb\",train\n", &[("x.png", png(9))])
        }),
        case(
            7,
            "class-with-a-slash",
            &["first exit 0", "again exit 0", "1 train, 1 validation, 1 test"],
            |case| {
                let written = table_with(case, "t-shirt/top", "file,class,part\n", &[]);
                let out = case.path.join("out");
                let mut again = command("headwater-train");
                again.args(["convert", "--data", "folders", "--data-dir"]).arg(&out);
                again.arg("--out").arg(case.path.join("again"));
                format!("first {written}again {}", ran(case, &mut again))
            },
        ),
    ]
}

fn tables_and_arrays() -> Vec<Case> {
    const READ: &[&str] = &["exit 0", "2 train, 1 validation, 1 test"];
    vec![
        case(7, "csv-of-an-old-mac", READ, |case| {
            table_with(case, "a", "file,class,part\rx.png,a,train\r", &[("x.png", png(9))])
        }),
        case(7, "csv-of-windows", READ, |case| {
            let head = "\u{feff}file,class,part\r\n\"x.png\",\"a\",train\r\n";
            table_with(case, "a", head, &[("x.png", png(9))])
        }),
        case(7, "csv-with-semicolons", &["exit 2", "labels.csv:1", "expected columns"], |case| {
            table_with(case, "a", "file;class;part\nx.png;a;train\n", &[("x.png", png(9))])
        }),
        case(7, "csv-in-utf-16", &["exit 2", "labels.csv:1", "UTF-8"], |case| {
            let data = case.path.join("data");
            let text = "\u{feff}file,class,part\n";
            let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
            write(&data, "labels.csv", &bytes);
            convert(case, "table", &data, &["--shape", "3x45x61"])
        }),
        case(12, "npz-u1", MVMC, |case| mvmc(case, "|u1", 1)),
        case(12, "npz-u2", MVMC, |case| mvmc(case, "<u2", 2)),
        case(12, "npz-u4", MVMC, |case| mvmc(case, "<u4", 4)),
        case(12, "npz-u8", MVMC, |case| mvmc(case, "<u8", 8)),
        case(12, "npz-i8-big-endian", MVMC, |case| mvmc(case, ">i8", 8)),
        case(12, "npz-objects", &["exit 2", "array `y`"], |case| mvmc(case, "|O", 8)),
        case(12, "zip-as-data", &["exit 2", "expected a .tar.gz archive", "unpack it"], |case| {
            write(&case.path, "data.tar.gz", &zip(&[("train/a/x.png", png(1))]));
            convert(case, "folders", &case.path.join("data.tar.gz"), &[])
        }),
    ]
}

/// Makes a sparse file of [`HUGE`] bytes.
fn huge(folder: &Path, name: &str) {
    let file = File::create(folder.join(name)).expect("the folder can be written");
    file.set_len(HUGE).expect("a file with a hole");
}

fn link_to_nothing(folder: &Path, name: &str) {
    symlink("/nowhere/at/all", folder.join(name)).expect("the folder can be written");
}

/// Runs `headwater-train convert`, which writes the folder `out` of the case, and returns its exit code and outputs as text.
fn convert(case: &CaseFolder<'_>, data: &str, path: &Path, more: &[&str]) -> String {
    let mut train = command("headwater-train");
    train.args(["convert", "--data", data, "--data-dir"]).arg(path);
    train.arg("--out").arg(case.path.join("out")).args(more);
    ran(case, &mut train)
}

/// Writes a sound data set, the folder `data` of the case: the classes `a` and `b`, with one image of each class in each part.
fn base(case: &CaseFolder<'_>) -> PathBuf {
    let data = case.path.join("data");
    let folders = ["train/a", "train/b", "val/a", "val/b", "test/a", "test/b"];
    for (seed, folder) in (1..).zip(folders) {
        write(&data, &format!("{folder}/f0.png"), &png(seed));
    }
    data
}

fn convert_folders(case: &CaseFolder<'_>) -> String {
    convert(case, "folders", &case.path.join("data"), &["--shape", "3x45x61"])
}

/// Packs the folder `data` of the case, and converts the archive.
fn convert_archive(case: &CaseFolder<'_>) -> String {
    let archive = case.path.join("data.tar.gz");
    let mut tar = Command::new("tar");
    let packed = tar.arg("-czf").arg(&archive).arg("-C").arg(case.path.join("data")).arg(".").status();
    assert!(packed.is_ok_and(|status| status.success()), "tar packs a folder");
    convert(case, "folders", &archive, &["--shape", "3x45x61"])
}

/// A case that converts the data set of [`base`] with one more file in the class `a` of part `train`.
fn image(
    kind: usize,
    name: &'static str,
    expected: &'static [&'static str],
    file: &'static str,
    bytes: fn() -> Vec<u8>,
) -> Case {
    case(kind, name, expected, move |case| {
        write(&base(case), &format!("train/a/{file}"), &bytes());
        convert_folders(case)
    })
}

/// A case that converts the data set of [`base`] after `add` has put more into its folder.
fn beside(kind: usize, name: &'static str, expected: &'static [&'static str], add: fn(&Path)) -> Case {
    case(kind, name, expected, move |case| {
        add(&base(case));
        convert_folders(case)
    })
}

fn other_formats(case: &CaseFolder<'_>, more: &[&str]) -> String {
    let data = base(case);
    for name in ["x.bmp", "y.BMP", "x.gif", "x.heic", "notes"] {
        write(&data, &format!("train/a/{name}"), BMP);
    }
    convert(case, "folders", &data, &[&["--shape", "3x45x61"][..], more].concat())
}

/// Converts a table with these rows, followed by a sound row of class `a` for each part.
fn table(case: &CaseFolder<'_>, rows: &str, files: &[(&str, Vec<u8>)]) -> String {
    table_with(case, "a", rows, files)
}

/// As [`table`], but the sound rows have this class. Separator and line ends of the sound rows are those of `rows`.
fn table_with(case: &CaseFolder<'_>, class: &str, rows: &str, files: &[(&str, Vec<u8>)]) -> String {
    let data = case.path.join("data");
    let separator = if rows.contains(';') { ";" } else { "," };
    let end = ["\r\n", "\r", "\n"].into_iter().find(|end| rows.ends_with(end)).expect("rows end");
    let mut text = rows.to_owned();
    for (seed, part) in (80..).zip(["train", "val", "test"]) {
        let file = format!("{part}.png");
        write(&data, &file, &png(seed));
        text += &([&*file, class, part].join(separator) + end);
    }
    write(&data, "labels.csv", text.as_bytes());
    for (name, bytes) in files {
        write(&data, name, bytes);
    }
    convert(case, "table", &data, &["--shape", "3x45x61"])
}

/// Converts one picture with each Exif orientation, and counts the converted pictures that have the pixels that a viewer shows.
fn orientations(case: &CaseFolder<'_>, ending: &str, turned: fn(u8) -> Vec<u8>) -> String {
    let stored = roi::decode(&turned(1), SHAPE, Framing::default()).expect("a picture");
    let (mut upright, mut seen) = (0, String::new());
    // Orientations 5 to 8 exchange width and height.
    for (orientations, shape) in [(1..=4, "3x45x61"), (5..=8, "3x61x45")] {
        let [data, out] = ["data", "out"].map(|folder| case.path.join(format!("{folder}-{shape}")));
        for (seed, part) in (1..).zip(["train", "val", "test"]) {
            write(&data, &format!("{part}/a/z.png"), &png(10 * seed));
        }
        for orientation in orientations.clone() {
            write(&data, &format!("train/a/{orientation}.{ending}"), &turned(orientation));
        }
        let mut train = command("headwater-train");
        train.args(["convert", "--data", "folders", "--shape", shape, "--data-dir"]).arg(&data);
        seen += &ran(case, train.arg("--out").arg(&out));
        for (index, orientation) in orientations.enumerate() {
            let expected = pictures::upright(&stored, orientation);
            let file = fs::read(out.join(format!("train/a/{index:06}.png"))).unwrap_or_default();
            let found = roi::decode(&file, expected.shape, Framing::default());
            upright += usize::from(found.is_ok_and(|found| found == expected));
        }
    }
    format!("{upright} of 8 are upright\n{seen}")
}

const MVMC: &[&str] = &["exit 0", "15 train, 1 validation, 4 test"];

/// Converts an MVMC recording of twenty samples. `descr` is the `NumPy` type of the labels, of `label_bytes` bytes each.
fn mvmc(case: &CaseFolder<'_>, descr: &str, label_bytes: usize) -> String {
    const SAMPLES: usize = 20;
    /// Labels of the six cameras: 0 is a car, 3 is "not in view".
    const LABELS: [u8; 6] = [0, 3, 3, 0, 3, 3];
    let label = |label: u8| {
        let mut bytes = vec![0; label_bytes];
        let at = if descr.starts_with('>') { label_bytes - 1 } else { 0 };
        bytes[at] = label;
        bytes
    };
    let labels = LABELS.repeat(SAMPLES).into_iter().flat_map(label).collect::<Vec<_>>();
    let views = (0..SAMPLES as u8 * 6).flat_map(|fill| [fill; 3 * 32 * 32]).collect::<Vec<_>>();
    let file = zip(&[
        ("y.npy", npy(descr, &format!("{SAMPLES}, 6"), &labels)),
        ("X.npy", npy("|u1", &format!("{SAMPLES}, 6, 3, 32, 32"), &views)),
    ]);
    let data = case.path.join("data");
    write(&data, "MVMC.npz", &file);
    convert(case, "mvmc", &data, &["--slots", "6"])
}

/// An array in the format `.npy`, version 1.0, without the padding of its header that `NumPy` writes.
fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}\n");
    [&b"\x93NUMPY\x01\x00"[..], &(header.len() as u16).to_le_bytes(), header.as_bytes(), data].concat()
}

/// A zip archive of members without compression (APPNOTE, sections 4.3.7, 4.3.12 and 4.3.16).
fn zip(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in members {
        let [length, offset] = [bytes.len(), file.len()].map(|number| (number as u32).to_le_bytes());
        let sum = pictures::crc32(bytes).to_le_bytes();
        let same = [&[20, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &sum, &length, &length].concat();
        let same = [&same[..], &(name.len() as u16).to_le_bytes(), &[0, 0]].concat();
        file.extend([&b"PK\x03\x04"[..], &same, name.as_bytes(), bytes].concat());
        directory.extend([&b"PK\x01\x02"[..], &[20, 0], &same, &[0; 10], &offset, name.as_bytes()].concat());
    }
    let count = (members.len() as u16).to_le_bytes();
    let [bytes, offset] = [directory.len(), file.len()].map(|number| (number as u32).to_le_bytes());
    [&file[..], &directory, b"PK\x05\x06", &[0; 4], &count, &count, &bytes, &offset, &[0; 2]].concat()
}
