//! Sizes of the views as pixels, JPEG and WebP. They are computed before the run, so that the run is not slowed down.

use anyhow::Context;
use headwater_samples::archive::{Archive, Frame};
use headwater_samples::image_codec::{jpeg_len, webp_len};

use super::report::BytesReport;

/// Quality of the compressed images, on the encoders' scale of 1 to 100.
const QUALITY: u8 = 75;

/// Mean sizes over every view of an archive, without broken frames: pixels, JPEG and lossy WebP.
///
/// # Errors
/// When an encoder refuses a view.
pub(super) fn image_sizes(archive: &Archive) -> anyhow::Result<BytesReport> {
    let (mut views, mut raw, mut jpeg, mut webp) = (0usize, 0, 0, 0);
    for sample in 0..archive.len() {
        for slot in 0..archive.slots() {
            if let Frame::View(view) = archive.frame(sample, slot) {
                views += 1;
                raw += view.pixels.len();
                jpeg += jpeg_len(&view, QUALITY).context("encoding a view as JPEG")?;
                webp += webp_len(&view, QUALITY).context("encoding a view as WebP")?;
            }
        }
    }
    let mean = |sum: usize| sum as f64 / views.max(1) as f64;
    Ok(BytesReport { raw: mean(raw), jpeg: mean(jpeg), webp: mean(webp), ..BytesReport::default() })
}
