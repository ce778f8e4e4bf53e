//! Image files of a folder: which there are, and their bytes, within bounds.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::config::MAX_FRAME_BYTES;
use super::faults::{Faults, FrameFault};
use super::images::{Images, Piece};

/// Most image files of a folder that are looked at.
pub(crate) const MOST_FILES: usize = 65_536;

/// Names of the image files in a folder, in order, at most [`MOST_FILES`], and whether there are more.
///
/// # Errors
/// What the file system said.
pub(crate) fn image_files(folder: &Path) -> io::Result<(Vec<PathBuf>, bool)> {
    let mut files = Vec::new();
    let mut is_more = false;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !is_image_name(&path) {
            continue;
        }
        if files.len() == MOST_FILES {
            is_more = true;
            break;
        }
        files.push(path);
    }
    files.sort();
    Ok((files, is_more))
}

/// By its ending, and not hidden: a hidden file is one that some program is still writing.
fn is_image_name(path: &Path) -> bool {
    let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
    !is_hidden && ending.is_some_and(|ending| ["png", "jpg", "jpeg", "webp"].contains(&ending.as_str()))
}

/// The bytes of an image file that is whole; what is wrong with any other is counted.
pub(crate) fn read_image(path: &Path, faults: &Faults) -> Option<Vec<u8>> {
    let name = path.display();
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FRAME_BYTES + 1).read_to_end(&mut bytes));
    if let Err(error) = read {
        faults.count(FrameFault::Unreadable, format_args!("{name}: {error}"));
        return None;
    }
    if bytes.len() as u64 > MAX_FRAME_BYTES {
        faults.count(
            FrameFault::Oversize,
            format_args!("{name}: expected at most {MAX_FRAME_BYTES} bytes, found more"),
        );
        return None;
    }
    if is_cut(&bytes) {
        faults.count(FrameFault::Cut, format_args!("{name}: ends after {} bytes", bytes.len()));
        return None;
    }
    Some(bytes)
}

/// A decoder may fill up a JPEG that ends early and say nothing.
pub(crate) fn is_cut(bytes: &[u8]) -> bool {
    if bytes.is_empty() {
        return true;
    }
    if bytes.starts_with(b"RIFF") {
        let length = bytes.get(4..8).and_then(|length| length.try_into().ok()).map(u32::from_le_bytes);
        return length.is_none_or(|length| (bytes.len() as u64) < u64::from(length) + 8);
    }
    // A slice cannot fail to be read.
    matches!(Images::new(bytes, MAX_FRAME_BYTES).next_piece(), Ok(Some(Piece::Cut { .. })))
}

#[cfg(test)]
mod tests {
    use headwater_samples::{Shape, View, image_codec};

    use super::*;

    #[test]
    fn only_images_are_listed_and_in_order() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.PNG", "a.jpg", "c.webp", "notes.txt", ".d.png", "e.png.part"] {
            fs::write(dir.path().join(name), b"").unwrap();
        }
        let (files, is_more) = image_files(dir.path()).unwrap();
        let names: Vec<_> = files.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!((names, is_more), (vec!["a.jpg", "b.PNG", "c.webp"], false));
    }

    #[test]
    fn a_file_cut_anywhere_is_known_as_cut() {
        let view = View::new(Shape::rgb(6, 5), (0..90).collect());
        for file in [image_codec::png(&view).unwrap(), image_codec::webp_lossless(&view).unwrap()] {
            assert!(!is_cut(&file));
            for length in [0, 4, 12, file.len() / 2, file.len() - 1] {
                assert!(length == 4 || is_cut(&file[..length]), "{length} of {}", file.len());
            }
        }
    }
}
