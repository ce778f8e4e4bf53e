//! Shapes: maps, windows, and what a block makes of its input.

/// `number / by`, written out for the numbers that windows mostly have: the processor's own division takes as long as ten additions.
#[inline(always)]
pub(crate) const fn quotient(number: usize, by: usize) -> usize {
    match by {
        1 => number,
        2 => number / 2,
        3 => number / 3,
        _ => number / by,
    }
}

/// Channels, rows and columns of a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// Channels.
    pub channels: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

/// A window that slides over a map, the same in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Side.
    pub kernel: usize,
    /// Step.
    pub stride: usize,
    /// Places added on each side of the map.
    pub pad: usize,
}

/// A `convp` block: binary convolution, max pool, threshold (batch norm and sign).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Convp {
    /// What goes in.
    pub input: Map,
    /// Filters, the channels of what comes out.
    pub filters: usize,
    /// The convolution; its padding counts as nothing, not as -1.
    pub conv: Window,
    /// The pooling; its padding is never chosen.
    pub pool: Window,
}

impl Map {
    /// Values, one a channel and place.
    pub const fn len(self) -> usize {
        self.channels * self.height * self.width
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Words of one row of bits.
    pub const fn row_words(self) -> usize {
        self.width.div_ceil(64)
    }
}

impl Window {
    /// Places the window takes on a side of `length`; 0 where it does not fit.
    pub const fn positions(self, length: usize) -> usize {
        let room = length + 2 * self.pad;
        if self.stride == 0 || room < self.kernel { 0 } else { quotient(room - self.kernel, self.stride) + 1 }
    }

    /// Part of the kernel that lies on a side of `length` when the window is at `position`: from, to (exclusive).
    pub const fn inside(self, position: usize, length: usize) -> (usize, usize) {
        let start = position * self.stride;
        let from = self.pad.saturating_sub(start);
        let room = length + self.pad - start;
        (from, if room < self.kernel { room } else { self.kernel })
    }
}

impl Convp {
    /// What the convolution gives.
    pub const fn convolved(self) -> Map {
        Map {
            channels: self.filters,
            height: self.conv.positions(self.input.height),
            width: self.conv.positions(self.input.width),
        }
    }

    /// What the block gives.
    pub const fn output(self) -> Map {
        let convolved = self.convolved();
        Map {
            channels: self.filters,
            height: self.pool.positions(convolved.height),
            width: self.pool.positions(convolved.width),
        }
    }

    /// Weights of one filter.
    pub const fn taps(self) -> usize {
        self.input.channels * self.conv.kernel * self.conv.kernel
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ddnn_halves_the_side() {
        let window = Window { kernel: 3, stride: 1, pad: 1 };
        let convp = Convp {
            input: Map { channels: 3, height: 32, width: 31 },
            filters: 4,
            conv: window,
            pool: Window { stride: 2, ..window },
        };
        assert_eq!(convp.convolved(), Map { channels: 4, height: 32, width: 31 });
        assert_eq!(convp.output(), Map { channels: 4, height: 16, width: 16 });
        assert_eq!(convp.taps(), 27);
    }

    #[test]
    fn a_window_at_the_border_lies_partly_inside() {
        let window = Window { kernel: 3, stride: 1, pad: 1 };
        assert_eq!([0, 1, 4].map(|at| window.inside(at, 5)), [(1, 3), (0, 3), (0, 2)]);
        assert_eq!(Window { kernel: 3, stride: 2, pad: 0 }.inside(1, 5), (0, 3));
        assert_eq!(Window { kernel: 5, stride: 1, pad: 4 }.inside(0, 2), (4, 5));
        assert_eq!(window.positions(0), 0);
    }
}
