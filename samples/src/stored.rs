//! A data set whose views are all in memory.

use crate::Shape;
use crate::data_set::{DataSet, Part};

/// The samples of one part.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredPart {
    /// Class of each sample.
    pub(crate) classes: Vec<u16>,
    /// Bit `s` says that slot `s` sees the sample.
    pub(crate) seen: Vec<u64>,
    /// `[samples, slots, view]`; zeros where the slot does not see the sample.
    pub(crate) pixels: Vec<u8>,
}

/// Views in memory, part by part.
#[derive(Clone, Debug)]
pub struct Stored {
    labels: Vec<String>,
    slots: usize,
    shape: Shape,
    parts: [StoredPart; 3],
    notes: Vec<String>,
}

impl StoredPart {
    /// Adds a sample; `views` has one entry a slot.
    pub(crate) fn push<'a>(
        &mut self,
        class: u16,
        shape: Shape,
        views: impl IntoIterator<Item = Option<&'a [u8]>>,
    ) {
        let mut seen = 0;
        for (slot, view) in views.into_iter().enumerate() {
            match view {
                Some(view) => {
                    debug_assert_eq!(view.len(), shape.bytes());
                    self.pixels.extend_from_slice(view);
                    seen |= 1 << slot;
                }
                None => self.pixels.resize(self.pixels.len() + shape.bytes(), 0),
            }
        }
        self.classes.push(class);
        self.seen.push(seen);
    }
}

impl Stored {
    /// A data set of parts in the order of [`Part`].
    pub(crate) fn new(labels: Vec<String>, slots: usize, shape: Shape, parts: [StoredPart; 3]) -> Self {
        for part in &parts {
            let count = part.classes.len();
            assert_eq!((part.seen.len(), part.pixels.len()), (count, count * slots * shape.bytes()));
        }
        Self { labels, slots, shape, parts, notes: Vec::new() }
    }

    /// The same with what its user should know of how it was made.
    pub(crate) fn with_notes(self, notes: Vec<String>) -> Self {
        Self { notes, ..self }
    }

    fn part(&self, part: Part) -> &StoredPart {
        &self.parts[part as usize]
    }
}

impl DataSet for Stored {
    fn labels(&self) -> Vec<String> {
        self.labels.clone()
    }

    fn slots(&self) -> usize {
        self.slots
    }

    fn shape(&self) -> Shape {
        self.shape
    }

    fn len(&self, part: Part) -> usize {
        self.part(part).classes.len()
    }

    fn label(&self, part: Part, index: usize) -> u16 {
        self.part(part).classes[index]
    }

    fn view_into(&self, part: Part, index: usize, slot: usize, pixels: &mut [u8]) -> bool {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        let part = self.part(part);
        if part.seen[index] >> slot & 1 == 0 {
            return false;
        }
        let bytes = self.shape.bytes();
        pixels.copy_from_slice(&part.pixels[(index * self.slots + slot) * bytes..][..bytes]);
        true
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}
