//! Writes samples as one `.tar.gz`. The same samples give the same bytes: fixed order, times, owners and gzip
//! header.

use std::io::Write;

use flate2::{Compression, GzBuilder};
use tar::{EntryType, Header};

use super::member::{self, Place};
use super::{ArchiveError, Labels};
use crate::image_codec;
use crate::{SampleViews, View};

/// How frames are stored. Neither loses anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFormat {
    /// Lossless WebP; for small photographs and noise the shorter one.
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

    fn encode(self, view: &View) -> Result<Vec<u8>, image_codec::CodecError> {
        match self {
            Self::WebP => image_codec::webp_lossless(view),
            Self::Png => image_codec::png(view),
        }
    }
}

/// Collects samples (encoded, in memory) and writes them in one go.
pub struct ArchiveWriter {
    labels: Labels,
    format: FrameFormat,
    frames: Vec<(Place, Vec<u8>)>,
}

impl ArchiveWriter {
    /// An archive without samples. `classes` and `frames` of `labels` are filled in here.
    #[must_use]
    pub fn new(labels: Labels, format: FrameFormat) -> Self {
        Self { labels: Labels { classes: Vec::new(), frames: None, ..labels }, format, frames: Vec::new() }
    }

    /// Adds the next sample.
    ///
    /// # Errors
    /// [`ArchiveError::Sample`] when slots or shape differ from the archive's, [`ArchiveError::Encode`].
    pub fn push(&mut self, sample: &SampleViews) -> Result<(), ArchiveError> {
        let index = self.labels.classes.len();
        let differs =
            |expected: String, found: String| ArchiveError::Sample { sample: index, expected, found };
        if sample.views.len() != self.labels.slots {
            let found = format!("{} slots", sample.views.len());
            return Err(differs(format!("{} slots", self.labels.slots), found));
        }
        for (slot, view) in sample.views.iter().enumerate() {
            let Some(view) = view else { continue };
            if view.shape() != self.labels.shape() {
                return Err(differs(self.labels.shape().to_string(), view.shape().to_string()));
            }
            let bytes = self.format.encode(view);
            let bytes = bytes.map_err(|source| ArchiveError::Encode { sample: index, slot, source })?;
            self.frames.push((Place { sample: index, slot }, bytes));
        }
        self.labels.classes.push(sample.label);
        Ok(())
    }

    /// Bytes of all frames so far, before the archive's own.
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        self.frames.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// Writes the archive.
    ///
    /// # Errors
    /// [`ArchiveError::Write`]; [`ArchiveError::Sample`] for a class without a label.
    pub fn finish<W: Write>(mut self, out: W) -> Result<W, ArchiveError> {
        self.labels.frames = Some(self.frames.len());
        self.labels.check().map_err(|found| ArchiveError::Sample {
            sample: self.labels.classes.len(),
            expected: "labels that fit the samples".into(),
            found,
        })?;
        let gzip = GzBuilder::new().mtime(0).operating_system(255).write(out, Compression::best());
        let mut tar = tar::Builder::new(gzip);
        append(&mut tar, member::LABELS, &self.labels.to_json()?)?;
        for (place, bytes) in &self.frames {
            append(&mut tar, &format!("{place}.{}", self.format.extension()), bytes)?;
        }
        Ok(tar.into_inner()?.finish()?)
    }
}

fn append<W: Write>(tar: &mut tar::Builder<W>, name: &str, bytes: &[u8]) -> Result<(), ArchiveError> {
    let mut header = Header::new_ustar();
    header.set_path(name)?;
    header.set_entry_type(EntryType::Regular);
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_cksum();
    Ok(tar.append(&header, bytes)?)
}
