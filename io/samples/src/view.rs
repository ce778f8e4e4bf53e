//! View of one slot, and the views of all slots of a sample.

/// Size of a view. Pixels are in CHW order:
///
/// ```text
/// channel 0: row 0, row 1, ...   channel 1: row 0, row 1, ...   ...
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Colour planes: 3 for RGB, 1 for grey.
    pub channels: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl Shape {
    /// An RGB shape.
    #[must_use]
    pub const fn rgb(height: usize, width: usize) -> Self {
        Self { channels: 3, height, width }
    }

    /// Bytes of a view of this shape.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.channels * self.height * self.width
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}x{}", self.channels, self.height, self.width)
    }
}

/// Pixels that one slot contributes to a sample: `[channels, height, width]`, one unsigned byte each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Size of the view.
    pub shape: Shape,
    /// `channels * height * width` bytes, CHW.
    pub pixels: Vec<u8>,
}

impl View {
    /// Wraps CHW pixels.
    ///
    /// # Panics
    /// When the number of pixels differs from the shape.
    #[must_use]
    pub fn new(shape: Shape, pixels: Vec<u8>) -> Self {
        assert_eq!(pixels.len(), shape.bytes(), "a view of {shape} holds {} bytes", shape.bytes());
        Self { shape, pixels }
    }
}

/// Views of one sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleViews {
    /// True class; `None` if unknown, or for a sample that shows none of the classes.
    pub label: Option<u16>,
    /// One entry per slot, in slot order. `None` when the slot does not see the sample.
    pub views: Vec<Option<View>>,
}
