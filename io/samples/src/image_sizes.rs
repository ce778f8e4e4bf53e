//! Sizes of the image files of a folder or archive, from their first bytes: nothing is decoded.

use std::io::Read;
use std::path::Path;

use crate::DataError;
use crate::data_set::Omissions;
use crate::files::{self, Entry};
use crate::image_codec::{MAX_FILE_BYTES, size_by_head};
use crate::image_structure::is_image;
use crate::tar_gz::Member;

/// First bytes of a file that are searched for the size of the image; the whole file is read if these bytes do not tell the size.
const HEAD_BYTES: u64 = 64 << 10;

/// Sizes of image files, each `[height, width]` of the upright image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSizes {
    /// Number of images.
    pub images: usize,
    /// Median height and median width.
    pub median: [usize; 2],
    /// Least height and least width.
    pub smallest: [usize; 2],
    /// Largest height and largest width.
    pub largest: [usize; 2],
}

/// Sizes of the images of a folder or archive, or of the only archive of a folder without images; `None` if no file is an image whose head can be read.
/// `progress` is called with the number of images so far.
///
/// # Errors
/// [`DataError`]: the folder or archive cannot be read.
pub fn image_sizes(path: &Path, progress: &mut dyn FnMut(usize)) -> Result<Option<ImageSizes>, DataError> {
    let [mut heights, mut widths] = [(); 2].map(|()| Vec::new());
    files::visit(path, Omissions::Noted, &mut |entry| {
        let Entry::File(Member { name, content, .. }) = entry else { return Ok(true) };
        let mut bytes = Vec::new();
        for most in [HEAD_BYTES, MAX_FILE_BYTES] {
            let mut rest = Read::take(&mut *content, most - bytes.len() as u64);
            rest.read_to_end(&mut bytes).map_err(DataError::read(name))?;
            if !is_image(&bytes) {
                break;
            }
            // A damaged image has no size; the reader of the data set reports the image.
            if let Some([width, height]) = size_by_head(&bytes) {
                heights.push(height as usize);
                widths.push(width as usize);
                progress(heights.len());
                break;
            }
        }
        Ok(true)
    })?;
    if heights.is_empty() && path.is_dir() {
        let archive = files::only_archive(path)?;
        return archive.map_or(Ok(None), |archive| image_sizes(&archive, progress));
    }
    heights.sort_unstable();
    widths.sort_unstable();
    let at = |index: usize| Some([*heights.get(index)?, *widths.get(index)?]);
    let images = heights.len();
    let found = at(0).zip(at(images / 2)).zip(images.checked_sub(1).and_then(at));
    Ok(found.map(|((smallest, median), largest)| ImageSizes { images, median, smallest, largest }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image_codec::png;
    use crate::{Shape, View, testing};

    #[test]
    fn sizes_are_those_of_the_files_or_of_the_only_archive_and_damaged_files_have_none() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, height: usize, width: usize| {
            let view = View::new(Shape { channels: 1, height, width }, vec![7; height * width]);
            testing::write(folder.path(), name, &png(&view).unwrap());
        };
        assert_eq!(image_sizes(folder.path(), &mut |_| {}).unwrap(), None);
        write("a/1.png", 4, 9);
        write("a/2.png", 6, 8);
        write("a/3.png", 5, 20);
        std::fs::write(folder.path().join("a/4.png"), b"\x89PNG\r\n\x1a\n").unwrap();
        let mut counted = 0;
        let found = image_sizes(folder.path(), &mut |count| counted = count).unwrap();
        let expected = ImageSizes { images: 3, median: [5, 9], smallest: [4, 8], largest: [6, 20] };
        assert_eq!((found, counted), (Some(expected), 3));
        let beside = tempfile::tempdir().unwrap();
        let images = testing::packed_folder(folder.path());
        std::fs::write(beside.path().join("images.tar.gz"), images).unwrap();
        assert_eq!(image_sizes(beside.path(), &mut |_| {}).unwrap(), Some(expected));
    }

    #[test]
    fn the_first_bytes_of_a_jpeg_tell_its_size_upright() {
        let file = include_bytes!("../tests/images/sampled-420.jpg");
        let scan = file.windows(2).position(|marker| marker == [0xff, 0xda]).unwrap();
        assert_eq!(size_by_head(&file[..scan + 40]), Some([61, 45]));
        assert_eq!(size_by_head(&file[..20]), None);
        // Exif with one entry: orientation 6, a quarter turn.
        let exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
        let length = (exif.len() as u16 + 2).to_be_bytes();
        let turned = [&file[..2], &[0xff, 0xe1], &length, exif, &file[2..]].concat();
        assert_eq!(size_by_head(&turned), Some([45, 61]));
    }
}
