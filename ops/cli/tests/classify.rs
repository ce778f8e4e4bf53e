//! `headwater classify` as a user starts it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use headwater_inference::testing::TinyNetwork;
use headwater_samples::archive::{Archive, Frame};
use headwater_samples::{Shape, View, image_codec};
use serde_json::Value;

const BUNDLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/shipped/fashion-6cam.hwb");
const FRAMES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../io/samples/shipped/fashion-6cam-300.tar.gz");

/// Number of samples of the shipped frames in these tests.
const SAMPLES: usize = 12;

fn classify(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
    command.arg("classify").args(arguments).output().expect("the program starts")
}

#[track_caller]
fn check_code(output: &Output, code: i32, expected: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(expected), "expected {expected:?} in {stderr:?}");
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("the folder can be written");
    fs::write(path, bytes).expect("the folder can be written");
}

/// Writes the first shipped frames as photos; `name` gives the path of a sample's photo of a camera.
fn write_frames(frames: &Archive, folder: &Path, name: impl Fn(usize, usize) -> String) {
    for sample in 0..SAMPLES {
        for slot in 0..frames.slots() {
            if let Frame::View(view) = frames.frame(sample, slot) {
                let png = image_codec::png(&view).expect("a view becomes PNG");
                write(&folder.join(name(sample, slot)), &png);
            }
        }
    }
}

/// The rows of a table of the folder, each without its first column; the first row names the columns.
#[track_caller]
fn rows(folder: &Path) -> Vec<Vec<String>> {
    let output = classify(&[BUNDLE, folder.to_str().expect("a path in UTF-8"), "--csv"]);
    check_code(&output, 0, "12 samples, 0 undecided, 0 with a photo that cannot be read");
    let mut table = csv::ReaderBuilder::new().has_headers(false).from_reader(&output.stdout[..]);
    let rows = table.records().map(|row| row.expect("as many columns as in the first row"));
    rows.map(|row| row.iter().skip(1).map(str::to_owned).collect()).collect()
}

#[test]
fn a_folder_of_photos_of_six_cameras_comes_back_as_a_table_in_either_layout() {
    let frames = Archive::open(Path::new(FRAMES)).expect("the shipped frames");
    let dir = tempfile::tempdir().expect("a folder");
    let (by_sample, by_camera) = (dir.path().join("samples"), dir.path().join("cameras"));
    write_frames(&frames, &by_sample, |sample, slot| format!("{sample:05}/cam{slot}.png"));
    write_frames(&frames, &by_camera, |sample, slot| format!("cam{slot}/{sample:05}.png"));
    let rows_by_sample = rows(&by_sample);
    let mut rows_by_camera = rows(&by_camera);
    // A sample that camera 0 does not see comes after those that it sees.
    let mut sorted = rows_by_sample.clone();
    sorted.sort();
    rows_by_camera.sort();
    assert_eq!(sorted, rows_by_camera);
    let (names, rows) = rows_by_sample.split_first().expect("names of columns");
    assert_eq!(names[..5], ["label", "confidence", "exit", "undecided", "error"]);
    let labels = &frames.labels.labels;
    let mut right = 0;
    for (row, class) in rows.iter().zip(&frames.labels.classes) {
        let scores: Vec<f64> = row[5..].iter().map(|score| score.parse().expect("a number")).collect();
        assert!((scores.iter().sum::<f64>() - 1.0).abs() < 1e-5, "rounding to f32: {scores:?}");
        let likeliest = (0..scores.len()).max_by(|a, b| scores[*a].total_cmp(&scores[*b])).expect("classes");
        assert_eq!(row[0], labels[likeliest]);
        assert!(["local", "cloud"].contains(&row[2].as_str()), "{row:?}");
        right += usize::from(class.is_some_and(|class| labels[usize::from(class)] == row[0]));
    }
    // By chance one of ten answers would be right.
    assert!(rows.len() == SAMPLES && right > SAMPLES / 2, "{right} right: {rows:?}");
}

#[test]
fn a_photo_that_cannot_be_read_has_a_row_with_the_reason_and_the_others_are_answered() {
    let network = TinyNetwork { slots: 1, ..TinyNetwork::default() };
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name);
    write(&path("tiny.hwb"), &network.bundle());
    for number in [1, 3] {
        let view = View::new(Shape::rgb(8, 8), network.view_of(number));
        write(&path(&format!("photos/{number}.png")), &image_codec::png(&view).expect("a view becomes PNG"));
    }
    write(&path("photos/2.png"), b"\x89PNG\r\n\x1a\n, and then nothing");
    write(&path("photos/notes.txt"), b"no image");
    let [bundle, photos, missing] =
        ["tiny.hwb", "photos", "missing.jpg"].map(|name| path(name).display().to_string());
    let output = classify(&[&bundle, &missing, &photos, "--json"]);
    check_code(&output, 1, "1 entries are left out: 1 .txt");
    check_code(&output, 1, "4 samples, 0 undecided, 2 with a photo that cannot be read");
    let text = String::from_utf8(output.stdout).expect("text");
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let found: Vec<_> = rows
        .iter()
        .map(|row| {
            let file = row["file"].as_str().and_then(|file| file.rsplit('/').next());
            (file, row["label"].is_string(), row["error"].is_string())
        })
        .collect();
    let expected = [("missing.jpg", false), ("1.png", true), ("2.png", false), ("3.png", true)];
    assert_eq!(found, expected.map(|(file, is_answered)| (Some(file), is_answered, !is_answered)));
    assert_eq!(rows[1]["scores"].as_array().map(Vec::len), Some(4));
}

#[test]
fn photos_that_do_not_fit_the_cameras_are_refused_with_what_to_do() {
    let dir = tempfile::tempdir().expect("a folder");
    let photo = dir.path().join("coat.png");
    write(&photo, &image_codec::png(&View::new(Shape::rgb(32, 32), vec![90; 3072])).expect("PNG"));
    let photo = photo.to_str().expect("a path in UTF-8");
    check_code(&classify(&[BUNDLE, photo]), 2, "camN/SAMPLE.jpg with N from 0 to 5");
    let of_camera_2 = dir.path().join("cam2/coat.png");
    write(&of_camera_2, &fs::read(photo).expect("written above"));
    let output = classify(&[BUNDLE, of_camera_2.to_str().expect("a path in UTF-8")]);
    check_code(&output, 0, "1 sample, ");
    assert!(output.stdout.starts_with(b"file,label,"), "a table also without --csv");
    check_code(&classify(&[BUNDLE, photo, "--csv", "--json"]), 2, "--json");
    check_code(&classify(&[BUNDLE]), 2, "PHOTOS");
    fs::create_dir(dir.path().join("empty")).expect("a folder");
    let empty = dir.path().join("empty");
    check_code(
        &classify(&[BUNDLE, empty.to_str().expect("UTF-8")]),
        1,
        "expected photos (PNG, JPEG, WebP), found none",
    );
}
