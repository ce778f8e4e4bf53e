use std::fs;
use std::io::Write;

use super::*;
use crate::{DataSet, Part};

/// Twelve samples that `NumPy` wrote with the names, types and shapes of the original; `tests/goldens/make.py` makes them.
fn golden() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/mvmc-12.npz");
    fs::copy(file, dir.path().join("MVMC.npz")).unwrap();
    dir
}

fn npy(descr: &str, shape: &[usize], data: &[u8]) -> Vec<u8> {
    let shape: String = shape.iter().map(|size| format!("{size}, ")).collect();
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}\n");
    crate::testing::npy(&header, data)
}

/// A zip of stored members.
fn zip(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in members {
        let mut checksum = flate2::Crc::new();
        checksum.update(bytes);
        let (length, offset) = ((bytes.len() as u32).to_le_bytes(), (file.len() as u32).to_le_bytes());
        let same = [
            &[20, 0, 0, 0, 0, 0, 0, 0, 0, 0][..],
            &checksum.sum().to_le_bytes(),
            &length,
            &length,
            &(name.len() as u16).to_le_bytes(),
            &[0, 0],
        ]
        .concat();
        file.write_all(&[b"PK\x03\x04", &same[..], name.as_bytes(), bytes].concat()).unwrap();
        let entry = [b"PK\x01\x02", &[20, 0][..], &same, &[0; 10], &offset, name.as_bytes()].concat();
        directory.write_all(&entry).unwrap();
    }
    let count = (members.len() as u16).to_le_bytes();
    let [bytes, offset] = [directory.len(), file.len()].map(|number| (number as u32).to_le_bytes());
    [&file[..], &directory, b"PK\x05\x06", &[0; 4], &count, &count, &bytes, &offset, &[0; 2]].concat()
}

/// Writes samples. A sample is a number, from which the fills of its views follow, and the class that each of the six cameras sees.
fn written(samples: &[(u8, [u8; 6])]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let labels: Vec<u8> = samples.iter().flat_map(|(_, labels)| *labels).collect();
    let views: Vec<u8> = samples
        .iter()
        .flat_map(|(fill, _)| (0..6).flat_map(move |camera| [fill.wrapping_mul(6) + camera; SHAPE.bytes()]))
        .collect();
    let count = samples.len();
    let file = zip(&[
        ("y.npy", npy("|u1", &[count, 6], &labels)),
        ("X.npy", npy("|u1", &[count, 6, 3, 32, 32], &views)),
    ]);
    fs::write(dir.path().join("mvmc.npz"), file).unwrap();
    dir
}

#[track_caller]
fn refused(dir: &Path, words: &[&str]) {
    crate::testing::refused(open(dir, CAMERAS, Omissions::Noted), words);
}

#[test]
fn every_view_of_a_numpy_file_is_read() {
    let dir = golden();
    let data = open(dir.path(), CAMERAS, Omissions::Noted).unwrap();
    assert_eq!((data.labels(), data.slots()), (LABELS.map(str::to_owned).to_vec(), 6));
    assert_eq!(Part::REQUIRED.map(|part| data.len(part)), [7, 1, 3]);
    let mut view = vec![0; SHAPE.bytes()];
    // Sample 11 is the last of twelve; no camera sees sample 10.
    let samples = (0..7).map(|at| (Part::Train, at, at)).chain([(Part::Validation, 0, 7)]);
    for (part, index, sample) in samples.chain([(Part::Test, 0, 8), (Part::Test, 1, 9), (Part::Test, 2, 11)])
    {
        assert_eq!(usize::from(data.label(part, index)), sample % 3);
        for camera in 0..6 {
            let seen = data.view_into(part, index, camera, &mut view);
            assert_eq!(seen, (sample + camera) % 3 != 0, "sample {sample}, camera {camera}");
            assert!(!seen || view.iter().all(|&pixel| usize::from(pixel) == 20 * sample + camera));
        }
    }
    assert_eq!(
        data.notes(),
        ["1 of 12 samples are left out: no camera sees them, so their class is unknown"]
    );
}

#[test]
fn fewer_cameras_keep_all_samples() {
    let dir = golden();
    let data = open(dir.path(), 1, Omissions::Noted).unwrap();
    assert_eq!((data.slots(), Part::REQUIRED.map(|part| data.len(part))), (1, [7, 1, 3]));
    let mut view = vec![0; SHAPE.bytes()];
    assert!(!data.view_into(Part::Train, 0, 0, &mut view) && data.view_into(Part::Train, 1, 0, &mut view));
    for cameras in [0, 7] {
        let error = open(dir.path(), cameras, Omissions::Noted).unwrap_err().to_string();
        assert!(error.ends_with(&format!("1 to 6 cameras, found {cameras}")), "{error}");
    }
}

#[test]
fn samples_that_share_an_image_are_in_one_part() {
    let of = |fill| (fill, [0, 3, 3, 1, 3, 3].map(|label| if label == 1 { 0 } else { label }));
    let mut samples: Vec<(u8, [u8; 6])> = (0..20).map(of).collect();
    samples[17].0 = 2;
    let data = open(written(&samples).path(), CAMERAS, Omissions::Noted).unwrap();
    assert_eq!(Part::REQUIRED.map(|part| data.len(part)), [16, 1, 3]);
    assert_eq!(data.notes(), ["1 samples share an image with an earlier part and are moved to that part"]);
}

#[test]
fn contradicting_and_unknown_labels_are_named() {
    let mut samples: Vec<(u8, [u8; 6])> = (0..5).map(|fill| (fill, [2, 3, 2, 2, 3, 3])).collect();
    samples[3].1[5] = 1;
    refused(written(&samples).path(), &["mvmc.npz: y[3]", "one class", "person and bus"]);
    samples[3].1[5] = 4;
    refused(written(&samples).path(), &["y[3, 5]", "3 (not in view), found 4"]);
    samples.truncate(2);
    refused(written(&samples).path(), &["at least 3 samples", "found 2"]);
    refused(written(&[]).path(), &["at least 3 samples", "found 0"]);
}

#[test]
fn arrays_of_another_shape_or_type_are_named() {
    let dir = tempfile::tempdir().unwrap();
    refused(dir.path(), &["expected `MVMC.npz` or `mvmc.npz`, found none", dir.path().to_str().unwrap()]);
    let path = dir.path().join("MVMC.npz");
    let labels = || ("y.npy", npy("|i1", &[3, 6], &[0; 18]));
    let floats = |shape: &[usize]| npy("<f4", shape, &vec![0; 4 * shape.iter().product::<usize>()]);
    for (members, words) in [
        (vec![labels()], &["expected an array `X`, found y"][..]),
        (vec![("X.npy", Vec::new())], &["expected an array `y`, found X"]),
        (
            vec![labels(), ("X.npy", floats(&[3, 6, 32, 32, 3]))],
            &["array `X`", "[3, 6, 3, 32, 32], found [3, 6, 32, 32, 3]"],
        ),
        (vec![labels(), ("X.npy", floats(&[2, 6, 3, 32, 32]))], &["array `X`", "expected the shape [3, 6"]),
        (
            vec![labels(), ("X.npy", npy("<i2", &[3, 6, 3, 32, 32], &vec![0; 2 * 18 * 3072]))],
            &["array `X`", "found values of type i2"],
        ),
        (
            vec![labels(), ("X.npy", npy("<f4", &[3, 6, 3, 32, 32], &[0x7f; 4 * 18 * 3072]))],
            &["array `X`", "at index 0"],
        ),
    ] {
        fs::write(&path, zip(&members)).unwrap();
        refused(dir.path(), words);
    }
}
