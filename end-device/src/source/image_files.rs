//! Image files of a folder: their names, and their bytes within bounds.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::MAX_FRAME_BYTES;
use super::faults::FrameFault;
use super::frame_channel::FrameSender;
use super::image_stream::{ImageStream, StreamPart};
use super::preprocess::Preprocessor;
use crate::report::SharedReport;

/// Largest number of image files that are listed in a folder.
pub(crate) const MAX_FILES: usize = 65_536;

/// Image files of a folder, in the order of their names.
pub(crate) struct ImageFiles {
    pub(crate) paths: Vec<PathBuf>,
    /// True if the folder holds more than [`MAX_FILES`].
    pub(crate) is_more: bool,
}

/// Lists the image files of a folder.
///
/// # Errors
/// The error of the file system.
pub(crate) fn list(folder: &Path) -> io::Result<ImageFiles> {
    let mut files = ImageFiles { paths: Vec::new(), is_more: false };
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !is_image_name(&path) {
            continue;
        }
        if files.paths.len() == MAX_FILES {
            files.is_more = true;
            break;
        }
        files.paths.push(path);
    }
    files.paths.sort();
    Ok(files)
}

/// True for the name of an image file that is not hidden: a hidden file is one that some program is still writing.
fn is_image_name(path: &Path) -> bool {
    let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let extension = path.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase);
    !is_hidden && extension.is_some_and(|found| ["png", "jpg", "jpeg", "webp"].contains(&found.as_str()))
}

/// Sends the view of an image file, or counts the file's fault; false when the channel is closed.
pub(crate) fn send_file(path: &Path, preprocessor: &Preprocessor, frames: &FrameSender) -> bool {
    let name = path.display().to_string();
    let view =
        read(path, &name, &frames.faults).and_then(|bytes| preprocessor.image(&bytes, &name, &frames.faults));
    view.is_none_or(|view| frames.send(view))
}

fn read(path: &Path, name: &str, faults: &SharedReport) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FRAME_BYTES + 1).read_to_end(&mut bytes));
    let (fault, detail) = match read {
        Err(error) => (FrameFault::UNREADABLE, error.to_string()),
        Ok(length) if length as u64 > MAX_FRAME_BYTES => {
            (FrameFault::OVERSIZE, format!("expected at most {MAX_FRAME_BYTES} bytes, found more"))
        }
        Ok(length) if is_cut(&bytes) => (FrameFault::CUT, format!("ends after {length} bytes")),
        Ok(_) => return Some(bytes),
    };
    faults.count_fault(fault, format_args!("{name}: {detail}"));
    None
}

/// True for an image that ends early. A decoder may complete a cut JPEG without an error.
pub(crate) fn is_cut(bytes: &[u8]) -> bool {
    if bytes.is_empty() {
        return true;
    }
    if bytes.starts_with(b"RIFF") {
        let length = bytes.get(4..8).and_then(|length| length.try_into().ok()).map(u32::from_le_bytes);
        return length.is_none_or(|length| (bytes.len() as u64) < u64::from(length) + 8);
    }
    // Reading a slice cannot fail.
    matches!(ImageStream::new(bytes, MAX_FRAME_BYTES).next_part(), Ok(Some(StreamPart::Cut { .. })))
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
        let files = list(dir.path()).unwrap();
        let names: Vec<_> =
            files.paths.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!((names, files.is_more), (vec!["a.jpg", "b.PNG", "c.webp"], false));
    }

    #[test]
    fn a_file_cut_anywhere_is_recognised_as_cut() {
        let view = View::new(Shape::rgb(6, 5), (0..90).collect());
        for file in [image_codec::png(&view).unwrap(), image_codec::webp_lossless(&view).unwrap()] {
            assert!(!is_cut(&file));
            for length in [0, 4, 12, file.len() / 2, file.len() - 1] {
                assert!(length == 4 || is_cut(&file[..length]), "{length} of {}", file.len());
            }
        }
    }
}
