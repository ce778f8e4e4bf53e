//! Sorts the members of a `.tar.gz` or folder into labels and frames, within limits.

use std::collections::BTreeMap;
use std::path::Path;

use super::ArchiveOptions;
use super::labels::Labels;
use super::member::{FrameId, Member};
use crate::DataError;
use crate::error::Mismatch;

/// File of a frame: its name, and its content or the reason why the frame is broken.
pub(super) struct FrameFile {
    pub(super) name: String,
    pub(super) content: Result<Vec<u8>, String>,
}

/// Member that the archive needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Needed {
    Labels,
    Frame(FrameId),
}

/// Takes members in any order; [`Collector::finish`] checks that labels and frames agree.
pub(super) struct Collector<'a> {
    path: &'a Path,
    options: &'a ArchiveOptions,
    labels: Option<Labels>,
    frames: BTreeMap<FrameId, FrameFile>,
    member_count: usize,
    frame_count: usize,
    /// Highest sample and highest slot of all frames.
    highest: FrameId,
}

impl<'a> Collector<'a> {
    pub(super) fn new(path: &'a Path, options: &'a ArchiveOptions) -> Self {
        let highest = FrameId { sample: 0, slot: 0 };
        Self {
            path,
            options,
            labels: None,
            frames: BTreeMap::new(),
            member_count: 0,
            frame_count: 0,
            highest,
        }
    }

    /// Archive or folder, for errors.
    pub(super) fn at(&self) -> String {
        format!("frames {}", self.path.display())
    }

    /// Judges a member by name and size, before any byte is read. Returns `None` for a member to skip.
    pub(super) fn judge(&mut self, name: &str, size: u64) -> Result<Option<Needed>, DataError> {
        let limits = self.options.limits;
        self.member_count += 1;
        if self.member_count > limits.members {
            return Err(self.too_large(limits.members as u64, "files"));
        }
        match Member::of(name) {
            Member::Other => Ok(None),
            Member::Misnamed => {
                let expected =
                    "frames named cam{slot}.webp, .png, .jpg or .jpeg, in folders of five or more digits";
                Err(self.invalid(expected, format!("`{name}`")))
            }
            Member::Labels if size > limits.member_bytes => {
                Err(self.too_large(limits.member_bytes, "bytes in labels.json"))
            }
            Member::Labels => Ok(Some(Needed::Labels)),
            Member::Frame(id) => {
                self.frame_count += 1;
                self.highest.sample = self.highest.sample.max(id.sample);
                self.highest.slot = self.highest.slot.max(id.slot);
                if self.options.slot.is_some_and(|slot| slot != id.slot) {
                    return Ok(None);
                }
                if size <= limits.member_bytes {
                    return Ok(Some(Needed::Frame(id)));
                }
                let reason = format!("expected at most {} bytes, found {size}", limits.member_bytes);
                self.add_frame(name, id, Err(reason))?;
                Ok(None)
            }
        }
    }

    pub(super) fn add_labels(&mut self, bytes: &[u8]) -> Result<(), DataError> {
        let labels = Labels::parse(bytes).map_err(|mismatch| self.wrong_labels(mismatch))?;
        match self.labels.replace(labels) {
            None => Ok(()),
            Some(_) => Err(self.wrong_labels(Mismatch::new("one file", "two"))),
        }
    }

    pub(super) fn add_frame(
        &mut self,
        name: &str,
        id: FrameId,
        content: Result<Vec<u8>, String>,
    ) -> Result<(), DataError> {
        match self.frames.insert(id, FrameFile { name: name.into(), content }) {
            None => Ok(()),
            Some(first) => Err(self.invalid("one file for a view", format!("`{}` and `{name}`", first.name))),
        }
    }

    /// Labels and frames.
    pub(super) fn finish(mut self) -> Result<(Labels, BTreeMap<FrameId, FrameFile>), DataError> {
        let labels = self.labels.take();
        let labels =
            labels.ok_or_else(|| self.wrong_labels(Mismatch::new("one file next to the samples", "none")))?;
        let (samples, slots) = (labels.classes.len(), labels.slots);
        if self.frame_count > 0 && (self.highest.sample >= samples || self.highest.slot >= slots) {
            let expected = format!("samples below {samples} and slots below {slots} (labels.json)");
            return Err(self.invalid(expected, format!("frames up to {}", self.highest)));
        }
        if let Some(slot) = self.options.slot.filter(|&slot| slot >= slots) {
            return Err(Mismatch::new(format!("a slot below {slots}"), slot.to_string()).options(self.at()));
        }
        match labels.frames {
            Some(expected) if expected != self.frame_count => {
                let expected = format!("{expected} frames (labels.json)");
                Err(Mismatch::new(expected, self.frame_count.to_string()).damaged(self.at()))
            }
            _ => Ok((labels, self.frames)),
        }
    }

    pub(super) fn invalid(&self, expected: impl Into<String>, found: impl Into<String>) -> DataError {
        Mismatch::new(expected, found).invalid(self.at())
    }

    pub(super) fn too_large(&self, limit: u64, unit: &'static str) -> DataError {
        DataError::TooLarge { at: self.at(), limit, unit }
    }

    fn wrong_labels(&self, mismatch: Mismatch) -> DataError {
        mismatch.invalid(format!("{}: labels.json", self.at()))
    }
}
