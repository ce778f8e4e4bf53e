use std::path::PathBuf;

use super::*;
use crate::testing::npy;

const TYPES: [&str; 8] = ["bool", "i1", "u1", "i2", "i4", "i8", "f4", "f8"];

/// A file that `NumPy` wrote, by `tests/goldens/make.py`.
fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(name)
}

#[track_caller]
fn refused(file: Vec<u8>, words: &[&str]) {
    let error = Array::parse(file).unwrap_err().to_string();
    assert!(words.iter().all(|word| error.contains(word)), "{error}");
}

#[test]
fn every_supported_type_is_read() {
    let file = Npz::open(&golden("types.npz")).unwrap();
    for name in TYPES {
        let array = file.array(name).unwrap();
        let kind = if name == "bool" { "b1" } else { name };
        assert_eq!((array.kind, array.shape.as_slice()), (kind, &[2, 3][..]), "{name}");
        if name.starts_with('f') {
            assert!(array.integers().unwrap_err().to_string().contains("expected integers"));
            assert_eq!(array.pixels().unwrap(), [0, 255, 255, 255, 0, 255]);
        } else {
            assert_eq!(array.integers().unwrap(), [0, 1, 1, 1, 0, 1], "{name}");
        }
    }
    assert_eq!(file.array("negative").unwrap().integers().unwrap(), [-3, 2]);
    assert_eq!(file.array("big").unwrap().pixels().unwrap(), [0, 0]);
    let scalar = file.array("scalar").unwrap();
    assert_eq!((scalar.shape.len(), scalar.integers().unwrap()), (0, vec![7]));
    assert_eq!(file.array("none").unwrap().pixels().unwrap(), [0; 0]);
    let version_2 = Array::parse(std::fs::read(golden("version-2.npy")).unwrap()).unwrap();
    assert_eq!((version_2.shape.as_slice(), version_2.integers().unwrap()), (&[2, 3][..], (0..6).collect()));
}

#[test]
fn unsupported_arrays_are_refused_by_name() {
    let file = Npz::open(&golden("types.npz")).unwrap();
    for (name, word) in [
        ("fortran", "found Fortran order"),
        ("fields", "of a plain type"),
        ("nothing", "found big, bool, f4"),
    ] {
        let error = file.array(name).unwrap_err().to_string();
        assert!(
            error.contains("types.npz: ") && error.contains(&format!("`{name}`")) && error.contains(word),
            "{error}"
        );
    }
}

#[test]
fn unsigned_integers_and_big_endian_values_are_read() {
    let array = |descr: &str, count: usize, data: &[u8]| {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({count},), }}\n");
        Array::parse(npy(&header, data)).unwrap()
    };
    for (descr, data) in [
        ("<u2", &[3, 0, 255, 255][..]),
        (">u2", &[0, 3, 255, 255]),
        ("<u4", &[3, 0, 0, 0, 255, 255, 0, 0]),
        (">i4", &[0, 0, 0, 3, 0, 0, 255, 255]),
        ("<u8", &[3, 0, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0, 0, 0, 0, 0]),
        (">u8", &[0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 255, 255]),
    ] {
        assert_eq!(array(descr, 2, data).integers().unwrap(), [3, 65_535], "{descr}");
    }
    let error = array("<u8", 1, &[255; 8]).integers().unwrap_err().to_string();
    assert!(error.contains("integers below 2^63, found 18446744073709551615"), "{error}");
    assert_eq!(array(">f4", 2, &[0, 0, 0, 0, 0x3f, 0x80, 0, 0]).pixels().unwrap(), [0, 255]);
    refused(npy("{'descr': '<u3', 'fortran_order': False, 'shape': (1,), }", &[0]), &["type b1", "`<u3`"]);
    refused(npy("{'descr': '', 'fortran_order': False, 'shape': (1,), }", &[0]), &["found ``"]);
}

#[test]
fn halves_are_pixels() {
    let header = "{'descr': '<f2', 'fortran_order': False, 'shape': (5,), }\n";
    let halves =
        |bits: [u16; 5]| Array::parse(npy(header, &bits.map(u16::to_le_bytes).concat())).unwrap().pixels();
    // 0, 1, 1/2, the smallest number, and 100/255 to 11 bits.
    assert_eq!(halves([0, 0x3c00, 0x3800, 1, 0x3646]).unwrap(), [0, 255, 128, 0, 100]);
    for (bits, found) in [(0x7e00, "NaN"), (0x7c00, "inf"), (0xbc00, "-1"), (0x3c01, "1.0009765625")] {
        let error = halves([0, 0, bits, 0, 0]).unwrap_err().to_string();
        assert!(error.contains(&format!("{found} at index 2")), "{error}");
    }
}

#[test]
fn headers_are_parsed_as_python_dictionaries() {
    let header = "{\"shape\" : ( 2 ,3L), 'fortran_order':False,'descr': '|u1'}  \n";
    assert_eq!(Array::parse(npy(header, &[1, 2, 3, 4, 5, 6])).unwrap().shape, [2, 3]);
    for header in [
        "",
        "{",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)",
        "{'descr': '|u1', 'fortran_order': 0, 'shape': (1,), }",
        "{'descr': '|u1', 'fortran_order': False, 'shape': 1, }",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (-1,), }",
        "{'descr': '|u1', 'fortran_order': False, }",
        "{'descr': '|u1', 'descr': '|u1', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), 'more': '', }",
        "{'descr': '|u1' 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), } x",
    ] {
        refused(npy(header, &[1]), &["expected a header {'descr'"]);
    }
}

#[test]
fn a_file_without_an_array_or_of_another_length_is_refused() {
    let header = "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }\n";
    refused(npy(header, &[0; 23]), &["expected 24 bytes for the shape [2, 3]", "found 23"]);
    refused(npy(header, &[0; 25]), &["found 25"]);
    let endless = "{'descr': '<i4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }\n";
    refused(npy(endless, &[]), &["a shape that fits into memory"]);
    refused(b"PK\x03\x04".to_vec(), &["version 1 to 3", "begins"]);
    refused(b"\x93NUMPY\x04\x00\x00\x00".to_vec(), &["version 4.0"]);
    let whole = npy(header, &[0; 24]);
    for length in 0..whole.len() {
        refused(whole[..length].to_vec(), &["expected"]);
    }
    refused([b"\x93NUMPY\x02\x00", &u32::MAX.to_le_bytes()[..]].concat(), &["a header of up to"]);
}

#[test]
fn a_file_cut_off_anywhere_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut.npz");
    let whole = std::fs::read(golden("types.npz")).unwrap();
    for length in (0..whole.len()).step_by(13) {
        std::fs::write(&path, &whole[..length]).unwrap();
        let error = Npz::open(&path).unwrap_err().to_string();
        assert!(error.contains("cut.npz: expected a .npz") && error.contains("download it again"), "{error}");
    }
}

#[test]
fn a_flipped_bit_is_an_error_or_makes_no_difference() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("turned.npz");
    let whole = std::fs::read(golden("mvmc-12.npz")).unwrap();
    let sound = Npz::open(&golden("mvmc-12.npz")).unwrap().array("X").unwrap();
    let mut refused = 0;
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(&path, &bytes).unwrap();
        match Npz::open(&path).and_then(|file| file.array("X")) {
            Ok(array) => assert!(array == sound, "byte {at}"),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > whole.len() / 2, "{refused} of {}", whole.len());
}

#[test]
fn a_missing_file_and_a_file_that_is_no_zip_are_named() {
    let error = Npz::open(&golden("none.npz")).unwrap_err().to_string();
    assert!(error.contains("none.npz: cannot be read"), "{error}");
    let error = Npz::open(&golden("make.py")).unwrap_err().to_string();
    assert!(error.contains("make.py: expected a .npz") && error.contains("without a directory"), "{error}");
}
