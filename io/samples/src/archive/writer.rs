//! Writes samples as one `.tar.gz`. The same samples give the same bytes: order, times, owners and gzip header are fixed.

use std::io::{self, Write};

use flate2::{Compression, GzBuilder};
use tar::{EntryType, Header};

use super::collect::{self, FrameId};
use super::labels::Labels;
use crate::error::Mismatch;
use crate::image_codec::{self, CodecError};
use crate::{DataError, SampleViews, View};

/// Lossless file format of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFormat {
    /// Lossless WebP, shorter than PNG for small photographs and noise.
    WebP,
    /// PNG.
    Png,
}

impl FrameFormat {
    const fn extension(self) -> &'static str {
        match self {
            Self::WebP => "webp",
            Self::Png => "png",
        }
    }

    fn encode(self, view: &View) -> Result<Vec<u8>, CodecError> {
        match self {
            Self::WebP => image_codec::webp_lossless(view),
            Self::Png => image_codec::png(view),
        }
    }
}

/// Collects encoded samples in memory, then writes the archive.
pub struct ArchiveWriter {
    labels: Labels,
    format: FrameFormat,
    frames: Vec<(FrameId, Vec<u8>)>,
}

impl ArchiveWriter {
    /// An archive without samples. The writer fills in `classes` and `frames` of `labels`.
    #[must_use]
    pub fn new(labels: Labels, format: FrameFormat) -> Self {
        Self { labels: Labels { classes: Vec::new(), frames: None, ..labels }, format, frames: Vec::new() }
    }

    /// Adds the next sample.
    ///
    /// # Errors
    /// [`DataError::Content`] when slots or shape differ from the archive's; [`DataError::Image`] when a view cannot be encoded.
    pub fn push(&mut self, sample: &SampleViews) -> Result<(), DataError> {
        let index = self.labels.classes.len();
        let at = format!("frames: sample {index}");
        let (slots, found) = (self.labels.slots, sample.views.len());
        if found != slots {
            return Err(Mismatch::new(format!("{slots} slots"), format!("{found} slots")).invalid(at));
        }
        for (slot, view) in sample.views.iter().enumerate() {
            let Some(view) = view else { continue };
            let shape = self.labels.shape();
            if view.shape != shape {
                return Err(Mismatch::new(shape.to_string(), view.shape.to_string()).invalid(at));
            }
            let bytes = self.format.encode(view).map_err(DataError::image(format!("{at}, slot {slot}")))?;
            self.frames.push((FrameId { sample: index, slot }, bytes));
        }
        self.labels.classes.push(sample.label);
        Ok(())
    }

    /// Writes the archive.
    ///
    /// # Errors
    /// [`DataError::Write`]; [`DataError::Content`] for a class without a label.
    pub fn finish<W: Write>(mut self, out: W) -> Result<W, DataError> {
        self.labels.frames = Some(self.frames.len());
        self.labels.check().map_err(|mismatch| mismatch.invalid("frames: labels.json"))?;
        let labels = self.labels.to_json()?;
        self.write_files(&labels, out).map_err(DataError::write("frames"))
    }

    fn write_files<W: Write>(&self, labels: &[u8], out: W) -> io::Result<W> {
        let gzip = GzBuilder::new().mtime(0).operating_system(255).write(out, Compression::best());
        let mut tar = tar::Builder::new(gzip);
        append(&mut tar, collect::LABELS, labels)?;
        for (id, bytes) in &self.frames {
            append(&mut tar, &format!("{id}.{}", self.format.extension()), bytes)?;
        }
        tar.into_inner()?.finish()
    }
}

fn append<W: Write>(tar: &mut tar::Builder<W>, name: &str, bytes: &[u8]) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_path(name)?;
    header.set_entry_type(EntryType::Regular);
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_cksum();
    tar.append(&header, bytes)
}
