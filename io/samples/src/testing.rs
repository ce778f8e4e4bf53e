//! Images, folders and archives for tests.

use std::fs;
use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

use crate::{DataError, Shape, View, image_codec};

/// Shape of the images of [`png`].
pub(crate) const SHAPE: Shape = Shape::rgb(2, 3);

/// An image that is filled with a number.
pub(crate) fn png(fill: u8) -> Vec<u8> {
    image_codec::png(&View::new(SHAPE, vec![fill; SHAPE.bytes()])).unwrap()
}

/// Writes a file, with the folders above it.
pub(crate) fn write(root: &Path, name: &str, bytes: &[u8]) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A folder of images, each filled with its own number.
pub(crate) fn directory(names: &[&str]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (fill, name) in names.iter().enumerate() {
        write(dir.path(), name, &png(fill as u8));
    }
    dir
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A `.tar.gz` of what `add` appends.
pub(crate) fn packed_by(add: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    add(&mut tar);
    gzip(&tar.into_inner().unwrap())
}

/// A `.tar.gz` of files.
pub(crate) fn packed(files: &[(&str, &[u8])]) -> Vec<u8> {
    packed_by(|tar| {
        for (name, bytes) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, name, *bytes).unwrap();
        }
    })
}

/// A `.tar.gz` of a folder.
pub(crate) fn packed_folder(dir: &Path) -> Vec<u8> {
    packed_by(|tar| tar.append_dir_all(".", dir).unwrap())
}

/// A file of `NumPy` in version 1, with this header.
pub(crate) fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), data].concat()
}

/// Checks that a result is an error that has all of some words.
#[track_caller]
pub(crate) fn refused<T>(result: Result<T, DataError>, words: &[&str]) {
    let error = result.err().expect("it is refused").to_string();
    for word in words {
        assert!(error.contains(word), "{word:?} in {error}");
    }
}
