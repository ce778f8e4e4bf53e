//! `labels.json`: what the samples of an archive are.

use serde::{Deserialize, Serialize};

use super::ArchiveError;
use crate::Shape;

/// Version of the archive's form.
pub(super) const FORMAT: u32 = 1;
/// Most slots an archive may have.
const MAX_SLOTS: usize = 256;

/// Content of `labels.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Labels {
    /// Version of the form: 1.
    pub format: u32,
    /// Where the samples come from, for people.
    #[serde(default)]
    pub source: String,
    /// Device slots; frames are `cam0` up to one below it.
    pub slots: usize,
    /// Channels, height and width of a view; frames of another size are resized.
    pub view: [usize; 3],
    /// Frames in the archive, so that a lost one is not taken for "not in view"; `None` when nobody counted.
    #[serde(default)]
    pub frames: Option<usize>,
    /// Names of the classes.
    pub labels: Vec<String>,
    /// Class of each sample, an index into `labels`; `None` where unknown. Its length is the number of
    /// samples.
    pub classes: Vec<Option<u16>>,
}

impl Labels {
    /// Describes samples to be written.
    #[must_use]
    pub fn new(source: &str, slots: usize, view: Shape, labels: &[&str]) -> Self {
        Self {
            format: FORMAT,
            source: source.into(),
            slots,
            view: [view.channels, view.height, view.width],
            frames: None,
            labels: labels.iter().map(ToString::to_string).collect(),
            classes: Vec::new(),
        }
    }

    /// Shape of every view.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        let [channels, height, width] = self.view;
        Shape { channels, height, width }
    }

    /// Reads and checks the member; the message goes into an [`ArchiveError`] that names the archive.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let labels: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        labels.check()?;
        Ok(labels)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if self.format != FORMAT {
            return Err(format!("expected format {FORMAT}, found {}", self.format));
        }
        if !(1..=MAX_SLOTS).contains(&self.slots) {
            return Err(format!("expected 1 to {MAX_SLOTS} slots, found {}", self.slots));
        }
        let outside =
            |class: &Option<u16>| class.is_some_and(|class| usize::from(class) >= self.labels.len());
        match self.classes.iter().position(outside) {
            Some(sample) => Err(format!(
                "expected classes below {} (number of labels), found {} at sample {sample}",
                self.labels.len(),
                self.classes[sample].unwrap_or_default()
            )),
            None => Ok(()),
        }
    }

    pub(super) fn to_json(&self) -> Result<Vec<u8>, ArchiveError> {
        let mut json = serde_json::to_vec(self).map_err(|error| ArchiveError::Write(error.into()))?;
        json.push(b'\n');
        Ok(json)
    }
}
