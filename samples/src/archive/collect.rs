//! What `.tar.gz` and folder have in common: sorting members into labels and frames, within bounds.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;

use super::member::{Member, Place};
use super::{ArchiveError, ArchiveOptions, Labels};

const STRAY: &str =
    "expected frames named cam{slot}.webp, .png, .jpg or .jpeg, in folders of five or more digits";

/// A frame as found: its name and its file, or why it cannot be used.
pub(super) struct Stored {
    pub(super) name: String,
    pub(super) file: Result<Vec<u8>, String>,
}

/// What to do with a file of the archive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Nothing,
    Labels,
    Frame(Place),
}

/// Takes members in any order; [`Collector::finish`] checks that they belong together.
pub(super) struct Collector<'a> {
    path: &'a Path,
    options: &'a ArchiveOptions,
    labels: Option<Labels>,
    frames: BTreeMap<Place, Stored>,
    members: usize,
    frames_seen: usize,
    /// Highest sample and highest slot seen.
    corner: Place,
}

impl<'a> Collector<'a> {
    pub(super) fn new(path: &'a Path, options: &'a ArchiveOptions) -> Self {
        let corner = Place { sample: 0, slot: 0 };
        Self { path, options, labels: None, frames: BTreeMap::new(), members: 0, frames_seen: 0, corner }
    }

    /// Archive or folder.
    pub(super) fn path(&self) -> &'a Path {
        self.path
    }

    /// Looks at a name and a size before anything is read.
    pub(super) fn look(&mut self, name: &str, size: u64) -> Result<Wanted, ArchiveError> {
        let limits = self.options.limits;
        self.members += 1;
        if self.members > limits.members {
            return Err(self.too_large("files", limits.members as u64));
        }
        match Member::of(name) {
            Member::Other => Ok(Wanted::Nothing),
            Member::Stray => Err(self.bad_member(name, STRAY)),
            Member::Labels if size > limits.member_bytes => {
                Err(self.too_large("bytes in labels.json", limits.member_bytes))
            }
            Member::Labels => Ok(Wanted::Labels),
            Member::Frame(place) => {
                self.frames_seen += 1;
                self.corner.sample = self.corner.sample.max(place.sample);
                self.corner.slot = self.corner.slot.max(place.slot);
                if self.options.slot.is_some_and(|slot| slot != place.slot) {
                    return Ok(Wanted::Nothing);
                }
                if size <= limits.member_bytes {
                    return Ok(Wanted::Frame(place));
                }
                let reason = format!("expected at most {} bytes, found {size}", limits.member_bytes);
                self.put_frame(name, place, Err(reason))?;
                Ok(Wanted::Nothing)
            }
        }
    }

    pub(super) fn put_labels(&mut self, bytes: &[u8]) -> Result<(), ArchiveError> {
        let labels = Labels::parse(bytes).map_err(|reason| self.bad_labels(reason))?;
        match self.labels.replace(labels) {
            None => Ok(()),
            Some(_) => Err(self.bad_labels("expected one, found two".into())),
        }
    }

    pub(super) fn put_frame(
        &mut self,
        name: &str,
        place: Place,
        file: Result<Vec<u8>, String>,
    ) -> Result<(), ArchiveError> {
        match self.frames.insert(place, Stored { name: name.into(), file }) {
            None => Ok(()),
            Some(first) => Err(self.bad_member(name, &format!("the same place as {}", first.name))),
        }
    }

    pub(super) fn finish(mut self) -> Result<(Labels, BTreeMap<Place, Stored>), ArchiveError> {
        let Some(labels) = self.labels.take() else {
            return Err(self.bad_labels("expected one beside the samples, found none".into()));
        };
        let samples = labels.classes.len();
        if self.frames_seen > 0 && (self.corner.sample >= samples || self.corner.slot >= labels.slots) {
            let reason =
                format!("expected samples below {samples} and slots below {} (labels.json)", labels.slots);
            return Err(self.bad_member(&format!("frames up to {}", self.corner), &reason));
        }
        if let Some(slot) = self.options.slot.filter(|&slot| slot >= labels.slots) {
            return Err(ArchiveError::NoSuchSlot { path: self.path.into(), slot, slots: labels.slots });
        }
        match labels.frames {
            Some(expected) if expected != self.frames_seen => {
                Err(ArchiveError::FrameCount { path: self.path.into(), expected, found: self.frames_seen })
            }
            _ => Ok((labels, self.frames)),
        }
    }

    pub(super) fn bad_member(&self, name: &str, reason: &str) -> ArchiveError {
        ArchiveError::Member { path: self.path.into(), name: name.into(), reason: reason.into() }
    }

    pub(super) fn io(&self, source: io::Error) -> ArchiveError {
        ArchiveError::Io { path: self.path.into(), source }
    }

    pub(super) fn too_large(&self, what: &'static str, limit: u64) -> ArchiveError {
        ArchiveError::TooLarge { path: self.path.into(), what, limit }
    }

    pub(super) fn damaged(&self, reason: String) -> ArchiveError {
        ArchiveError::Damaged { path: self.path.into(), reason }
    }

    pub(super) fn cut_off(&self, inflated_bytes: u64) -> ArchiveError {
        ArchiveError::CutOff { path: self.path.into(), inflated_bytes }
    }

    fn bad_labels(&self, reason: String) -> ArchiveError {
        ArchiveError::Labels { path: self.path.into(), reason }
    }
}

/// Reads a file whose size [`Collector::look`] has accepted. The buffer grows with what arrives.
pub(super) fn read_whole(file: impl Read, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(size).read_to_end(&mut bytes)?;
    if (bytes.len() as u64) < size {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    bytes.shrink_to_fit();
    Ok(bytes)
}
