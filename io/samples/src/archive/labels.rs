//! `labels.json`: labels, classes and shape of an archive's samples.

use serde::{Deserialize, Serialize};

use crate::error::Mismatch;
use crate::{DataError, Shape};

/// Version of the archive's format.
pub(super) const FORMAT: u32 = 1;
/// Most slots of an archive.
const MAX_SLOTS: usize = 256;

/// Content of `labels.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Labels {
    /// Version of the format: 1.
    pub format: u32,
    /// Origin of the samples, for people.
    #[serde(default)]
    pub source: String,
    /// Number of device slots. Frames are `cam0` to `cam{slots - 1}`.
    pub slots: usize,
    /// Channels, height and width of a view. Frames of another size are resized.
    pub view: [usize; 3],
    /// Number of frames, by which a reader notices that a frame is lost; `None` when unknown.
    pub frames: Option<usize>,
    /// Class names.
    pub labels: Vec<String>,
    /// Class of each sample, an index into `labels`; `None` if unknown. One entry per sample.
    pub classes: Vec<Option<u16>>,
}

impl Labels {
    /// Labels of an archive without samples.
    #[must_use]
    pub fn new(source: &str, slots: usize, view: Shape, labels: &[impl ToString]) -> Self {
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

    /// Parses and checks the content of `labels.json`.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Mismatch> {
        let labels: Self = serde_json::from_slice(bytes)
            .map_err(|error| Mismatch::new("labels of an archive as JSON", error.to_string()))?;
        labels.check()?;
        Ok(labels)
    }

    pub(super) fn check(&self) -> Result<(), Mismatch> {
        if self.format != FORMAT {
            return Err(Mismatch::new(format!("format {FORMAT}"), self.format.to_string()));
        }
        if !(1..=MAX_SLOTS).contains(&self.slots) {
            return Err(Mismatch::new(format!("1 to {MAX_SLOTS} slots"), self.slots.to_string()));
        }
        for (sample, class) in self.classes.iter().enumerate() {
            if let Some(class) = class.filter(|&class| usize::from(class) >= self.labels.len()) {
                let expected = format!("classes below {} (number of labels)", self.labels.len());
                return Err(Mismatch::new(expected, format!("{class} at sample {sample}")));
            }
        }
        Ok(())
    }

    pub(super) fn to_json(&self) -> Result<Vec<u8>, DataError> {
        let mut json = serde_json::to_vec(self).map_err(|error| DataError::write("frames")(error.into()))?;
        json.push(b'\n');
        Ok(json)
    }
}
