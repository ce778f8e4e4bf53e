//! Sorts the members of a `.tar.gz` or folder by name into labels and frames, within limits.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;

use super::ArchiveOptions;
use super::labels::Labels;
use crate::DataError;
use crate::error::Mismatch;
use crate::file_names::{camera, number};
use crate::image_codec::MAX_FILE_BYTES;

/// Most files of an archive.
const MAX_MEMBERS: usize = 200_000;
/// Longest archive, inflated, in bytes.
pub(super) const MAX_TOTAL_BYTES: u64 = 256 << 20;
/// Name of the member with labels and classes.
pub(super) const LABELS: &str = "labels.json";
/// Extensions of frames. The content decides about the format, not the extension.
const EXTENSIONS: [&str; 4] = ["webp", "png", "jpg", "jpeg"];

/// File of a frame: its name, and its content or the reason why the frame is broken.
pub(super) struct FrameFile {
    pub(super) name: String,
    pub(super) content: Result<Vec<u8>, String>,
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
        let (frames, highest) = (BTreeMap::new(), FrameId::default());
        Self { path, options, labels: None, frames, member_count: 0, frame_count: 0, highest }
    }

    /// Text that names the archive or folder in errors.
    pub(super) fn at(&self) -> String {
        format!("frames {}", self.path.display())
    }

    /// Takes a member, judged by name and size before any byte is read. `read` returns the bytes, an error of this member, or
    /// an error that ends the reading.
    pub(super) fn add(
        &mut self,
        name: &str,
        size: u64,
        read: impl FnOnce() -> Result<io::Result<Vec<u8>>, DataError>,
    ) -> Result<(), DataError> {
        self.member_count += 1;
        if self.member_count > MAX_MEMBERS {
            return Err(DataError::too_large(self.at(), MAX_MEMBERS as u64, "files"));
        }
        match Member::of(name) {
            Member::Other => Ok(()),
            Member::Misnamed => {
                let expected =
                    "frames named cam{slot}.webp, .png, .jpg or .jpeg, in folders of five or more digits";
                Err(self.invalid(expected, format!("`{name}`")))
            }
            Member::Labels if size > MAX_FILE_BYTES => {
                Err(DataError::too_large(self.at(), MAX_FILE_BYTES, "bytes in labels.json"))
            }
            Member::Labels => {
                let bytes = read()?.map_err(DataError::read(self.path.join(name).display()))?;
                let labels = Labels::parse(&bytes).map_err(|mismatch| self.wrong_labels(mismatch))?;
                match self.labels.replace(labels) {
                    None => Ok(()),
                    Some(_) => Err(self.wrong_labels(Mismatch::new("one file", "two"))),
                }
            }
            Member::Frame(id) => {
                self.frame_count += 1;
                self.highest.sample = self.highest.sample.max(id.sample);
                self.highest.slot = self.highest.slot.max(id.slot);
                if self.options.slot.is_some_and(|slot| slot != id.slot) {
                    return Ok(());
                }
                let content = if size <= MAX_FILE_BYTES {
                    read()?.map_err(|error| error.to_string())
                } else {
                    Err(format!("expected at most {MAX_FILE_BYTES} bytes, found {size}"))
                };
                match self.frames.insert(id, FrameFile { name: name.into(), content }) {
                    None => Ok(()),
                    Some(FrameFile { name: first, .. }) => {
                        Err(self.invalid("one file for a view", format!("`{first}` and `{name}`")))
                    }
                }
            }
        }
    }

    /// Checks the labels and frames against each other, and returns them.
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

    fn wrong_labels(&self, mismatch: Mismatch) -> DataError {
        mismatch.invalid(format!("{}: labels.json", self.at()))
    }
}

/// Sample and slot of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FrameId {
    pub(super) sample: usize,
    pub(super) slot: usize,
}

impl fmt::Display for FrameId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:05}/cam{}", self.sample, self.slot)
    }
}

/// Kind of an archive's member, judged by the member's name alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    Labels,
    Frame(FrameId),
    /// A file that the archive ignores, such as a README next to the samples.
    Other,
    /// A file in a sample's folder that is no frame. It is refused: a misspelt frame would otherwise count as "not in view".
    Misnamed,
}

impl Member {
    pub(super) fn of(name: &str) -> Self {
        let name = name.strip_prefix("./").unwrap_or(name);
        match name.split_once('/') {
            None if name == LABELS => Self::Labels,
            None => Self::Other,
            Some((folder, file)) => match (number(folder), slot(file)) {
                (Some(sample), Some(slot)) if folder.len() >= 5 => Self::Frame(FrameId { sample, slot }),
                (Some(_), _) => Self::Misnamed,
                (None, _) => Self::Other,
            },
        }
    }
}

fn slot(file: &str) -> Option<usize> {
    let (stem, extension) = file.split_once('.')?;
    EXTENSIONS.contains(&extension).then(|| camera(stem))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expected: Member) {
        assert_eq!(Member::of(name), expected, "{name}");
    }

    #[test]
    fn a_name_determines_the_kind_of_a_member() {
        check("labels.json", Member::Labels);
        check("./00012/cam3.webp", Member::Frame(FrameId { sample: 12, slot: 3 }));
        check("123456/cam10.jpeg", Member::Frame(FrameId { sample: 123_456, slot: 10 }));
        check("README.md", Member::Other);
        check("docs/cam1.png", Member::Other);
    }

    #[test]
    fn a_misspelt_frame_is_not_taken_for_an_absent_one() {
        for name in [
            "00001/Cam1.png",
            "00001/cam1.bmp",
            "00001/cam+1.png",
            "00001/cam1",
            "1/cam1.png",
            "00001/x/cam1.png",
        ] {
            check(name, Member::Misnamed);
        }
    }

    #[test]
    fn a_written_frame_id_is_read_back() {
        let id = FrameId { sample: 7, slot: 5 };
        check(&format!("{id}.png"), Member::Frame(id));
    }
}
