//! The shipped frames: the first test samples as one archive.

use std::fs;
use std::path::Path;

use super::data::Fashion6Cam;
use super::frame::{SEED, SHAPE, SLOTS};
use crate::archive::{ArchiveWriter, FrameFormat, Labels};
use crate::data_set::DataSet;
use crate::mnist::FASHION_LABELS;
use crate::{DataError, Part};

/// Sizes of the archive that [`write_test_archive`] wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenBytes {
    /// Samples.
    pub samples: usize,
    /// Frames.
    pub frames: usize,
    /// Bytes of all frames as lossless WebP.
    pub webp_bytes: usize,
    /// Bytes of the same frames as PNG.
    pub png_bytes: usize,
    /// Chosen format, the shorter one in total.
    pub format: FrameFormat,
    /// Bytes of the archive.
    pub archive_bytes: usize,
}

/// Writes at most the first `count` test samples to `out`. The frames are lossless WebP or PNG, whichever is shorter in total.
///
/// The same samples give the same bytes.
///
/// # Errors
/// [`DataError::Write`] when the file cannot be written.
pub fn write_test_archive(
    fashion: &Fashion6Cam,
    count: usize,
    out: &Path,
) -> Result<WrittenBytes, DataError> {
    let source = format!(
        "first test samples of fashion-6cam, seed {SEED}; articles: Fashion-MNIST, MIT licence, \
         (c) 2017 Zalando SE"
    );
    let labels = Labels::new(&source, SLOTS, SHAPE, &FASHION_LABELS);
    let mut webp = ArchiveWriter::new(labels.clone(), FrameFormat::WebP);
    let mut png = ArchiveWriter::new(labels, FrameFormat::Png);
    let samples = count.min(fashion.len(Part::Test));
    let mut frames = 0;
    for index in 0..samples {
        let sample = fashion.sample(Part::Test, index);
        frames += sample.in_view();
        webp.push(&sample)?;
        png.push(&sample)?;
    }
    let (webp_bytes, png_bytes) = (webp.frame_bytes(), png.frame_bytes());
    let (writer, format) =
        if webp_bytes <= png_bytes { (webp, FrameFormat::WebP) } else { (png, FrameFormat::Png) };
    let bytes = writer.finish(Vec::new())?;
    fs::write(out, &bytes).map_err(DataError::write(out.display()))?;
    Ok(WrittenBytes { samples, frames, webp_bytes, png_bytes, format, archive_bytes: bytes.len() })
}
