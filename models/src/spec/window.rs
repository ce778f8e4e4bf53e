//! A square window that slides over a map.

/// A square window that slides over a map: the kernel of a convolution, or the field of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Side of the window.
    pub kernel: usize,
    /// Stride between windows.
    pub stride: usize,
    /// Padding on each side.
    pub pad: usize,
}

impl Window {
    /// Positions along an axis of `length`; zero when the window does not fit.
    pub fn positions(&self, length: usize) -> usize {
        (length + 2 * self.pad).checked_sub(self.kernel).map_or(0, |free| free / self.stride + 1)
    }

    /// Height and width of a map of windows over a map of `[channels, height, width]`.
    pub fn slide(&self, [_, height, width]: [usize; 3]) -> [usize; 2] {
        [self.positions(height), self.positions(width)]
    }
}
