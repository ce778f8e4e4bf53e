//! Shapes of maps, windows and blocks.

/// `number / by`, fast for the small divisors of most windows: a division takes as long as ten additions.
#[inline(always)]
pub(crate) const fn quotient(number: usize, by: usize) -> usize {
    match by {
        1 => number,
        2 => number / 2,
        3 => number / 3,
        _ => number / by,
    }
}

/// Remainder of [`quotient`].
#[inline(always)]
pub(crate) const fn remainder(number: usize, by: usize) -> usize {
    number - quotient(number, by) * by
}

/// Shape of a feature map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// Number of channels.
    pub channels: usize,
    /// Number of rows.
    pub height: usize,
    /// Number of columns.
    pub width: usize,
}

/// A window that slides over a map, the same in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Side length, in values of the map.
    pub kernel: usize,
    /// Step from one position to the next, in values of the map.
    pub stride: usize,
    /// Rows and columns of padding on each side of the map.
    pub pad: usize,
}

/// A `convp` block: binary convolution, max pool, threshold (batch norm and sign).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Convp {
    /// Shape of the input.
    pub input: Map,
    /// Number of filters, which is the number of output channels.
    pub filters: usize,
    /// Window of the convolution. Padding contributes 0 to a sum, not -1.
    pub conv: Window,
    /// Window of the max pooling. Padding is never the maximum.
    pub pool: Window,
}

impl Map {
    /// Number of values.
    pub const fn len(self) -> usize {
        self.channels * self.height * self.width
    }

    /// True if the map has no values.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Words that one row of bits takes.
    pub const fn row_words(self) -> usize {
        self.width.div_ceil(64)
    }
}

impl Window {
    /// Number of window positions along a side of `length`; 0 if the window does not fit or the stride is 0.
    pub const fn positions(self, length: usize) -> usize {
        let padded = length + 2 * self.pad;
        if self.stride == 0 || padded < self.kernel {
            0
        } else {
            quotient(padded - self.kernel, self.stride) + 1
        }
    }

    /// Kernel indices that lie on the map when the window is at `position`: first, end (exclusive).
    ///
    /// ```text
    /// kernel 3, pad 1, position 0:   index   0   1   2
    ///                                      pad  map map ..    inside = (1, 3)
    /// ```
    pub const fn inside(self, position: usize, length: usize) -> (usize, usize) {
        let start = position * self.stride;
        let from = self.pad.saturating_sub(start);
        let end = length + self.pad - start;
        (from, if end < self.kernel { end } else { self.kernel })
    }
}

impl Convp {
    /// Shape of the convolution, before pooling.
    pub const fn convolved(self) -> Map {
        Map {
            channels: self.filters,
            height: self.conv.positions(self.input.height),
            width: self.conv.positions(self.input.width),
        }
    }

    /// Shape of the output.
    pub const fn output(self) -> Map {
        let convolved = self.convolved();
        Map {
            channels: self.filters,
            height: self.pool.positions(convolved.height),
            width: self.pool.positions(convolved.width),
        }
    }

    /// Words of a row of bits with room for a row of the convolution and for a row of the output, whichever is longer.
    pub(crate) const fn row_words(self) -> usize {
        let convolved = self.conv.positions(self.input.width);
        let pooled = self.pool.positions(convolved);
        (if convolved > pooled { convolved } else { pooled }).div_ceil(64)
    }

    /// Number of weights of one filter.
    pub const fn taps(self) -> usize {
        self.input.channels * self.conv.kernel * self.conv.kernel
    }
}

/// The values that a section, or a block, takes as input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// Pixels in `0..=255`, one byte each, `[channels, rows, columns]`.
    Pixels,
    /// Features of an earlier section or output of an earlier block: ±1 as bits, `[channels, rows, columns]`, tail bits zero.
    Bits,
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
