//! Convolution and its gradients as matrix products over patches (im2col), one sample at a time.
//!
//! `columns` is `[c_in * k * k, out_h * out_w]`: the row of `(channel, ky, kx)` holds, for every output position, the input pixel
//! under that tap of the window, zero in the padding. With `W` as `[c_out, c_in * k * k]`: `y = W columns`, `dW = dy columns^T`,
//! `dcolumns = W^T dy`, and `dx` adds `dcolumns` back to the pixels that the patches came from.

use std::ops::Range;

use burn::tensor::Tensor;
use burn_flex::FlexTensor;

use super::linear::{Matrix, Write, product};
use super::simd::wide;
use super::{flex, operand, record, slice_of};
use headwater_spec::Window;

/// Output positions whose input `position * stride + offset - pad` lies in `0..length`.
fn positions_inside(window: Window, offset: usize, length: usize) -> Range<usize> {
    let first = window.pad.saturating_sub(offset).div_ceil(window.stride);
    let end = (length + window.pad).checked_sub(offset + 1).map_or(0, |last| last / window.stride + 1);
    let end = end.min(window.positions(length));
    first.min(end)..end
}

/// Convolution without bias.
///
/// # Shapes
/// - `x`: `[batch, c_in, h, w]`, zero padded
/// - `weight`: `[c_out, c_in, kernel, kernel]`
/// - returns `[batch, c_out, positions(h), positions(w)]`
pub fn conv2d(x: Tensor<4>, weight: Tensor<4>, window: Window) -> Tensor<4> {
    let ([batch, c_in, h, w], [c_out, ..]) = (x.dims(), weight.dims());
    let ((x, x_node), (weight, weight_node)) = (operand(x), operand(weight));
    let sizes = Sizes { batch, c_in, h, w, c_out, window };
    let (rows, positions) = (sizes.rows(), sizes.positions());
    let mut output = vec![0.0; batch * c_out * positions];
    let mut columns = vec![0.0; rows * positions];
    let copies = sizes.copies();
    let samples = slice_of(&x).chunks_exact(c_in * h * w);
    for (x, y) in samples.zip(output.chunks_exact_mut(c_out * positions)) {
        gather(&copies, x, &mut columns);
        product(Matrix::rows(slice_of(&weight), rows), Matrix::rows(&columns, positions), y, Write::Set);
    }
    let output = flex(output, [batch, c_out, window.positions(h), window.positions(w)]);
    record([x_node, weight_node], output, move |output, wanted| {
        sizes.gradient(slice_of(&x), slice_of(&weight), output, wanted)
    })
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    batch: usize,
    c_in: usize,
    h: usize,
    w: usize,
    c_out: usize,
    window: Window,
}

impl Sizes {
    fn rows(&self) -> usize {
        self.c_in * self.window.kernel * self.window.kernel
    }

    fn positions(&self) -> usize {
        self.window.positions(self.h) * self.window.positions(self.w)
    }

    /// The copies from the input of a sample to its patches; the gradient of the input reverses these copies.
    fn copies(&self) -> Copies {
        // If the window moves by one pixel and the output has the size of the input, each row of the patch matrix is a shifted input plane.
        let shifts = self.window.stride == 1 && self.window.kernel == 2 * self.window.pad + 1;
        if shifts { Copies::Shifts { width: self.w, shifts: self.list_shifts() } } else { self.runs() }
    }

    fn runs(&self) -> Copies {
        let Window { kernel, stride, pad } = self.window;
        let (out_h, out_w) = (self.window.positions(self.h), self.window.positions(self.w));
        let mut runs = Vec::new();
        for channel in 0..self.c_in {
            for ky in 0..kernel {
                let ys = positions_inside(self.window, ky, self.h);
                for kx in 0..kernel {
                    let xs = positions_inside(self.window, kx, self.w);
                    let row = ((channel * kernel + ky) * kernel + kx) * out_h * out_w;
                    for y in ys.clone().filter(|_| !xs.is_empty()) {
                        let line = (channel * self.h + y * stride + ky - pad) * self.w;
                        runs.push(Run {
                            columns: row + y * out_w + xs.start,
                            input: line + xs.start * stride + kx - pad,
                            count: xs.len(),
                        });
                    }
                }
            }
        }
        Copies::Runs { step: stride, runs }
    }

    fn list_shifts(&self) -> Vec<Shift> {
        let Window { kernel, pad, .. } = self.window;
        let size = self.h * self.w;
        let shift = |row: usize| {
            let (channel, ky, kx) = (row / (kernel * kernel), row / kernel % kernel, row % kernel);
            // Output pixel p takes input pixel p + shift.
            let shift = (ky as isize - pad as isize) * self.w as isize + kx as isize - pad as isize;
            let (to, from) = (size.min((-shift).max(0) as usize), size.min(shift.max(0) as usize));
            let count = size - to.max(from);
            let edges =
                if kx < pad { 0..(pad - kx).min(self.w) } else { self.w.saturating_sub(kx - pad)..self.w };
            Shift {
                plane: row * size..(row + 1) * size,
                run: Run { columns: to, input: channel * size + from, count },
                edges,
            }
        };
        (0..self.rows()).map(shift).collect()
    }

    /// Gradients of the input and of the weight, each `None` unless wanted; `output` is the gradient of the output.
    fn gradient(
        self,
        x: &[f32],
        weight: &[f32],
        output: &[f32],
        [wants_x, wants_weight]: [bool; 2],
    ) -> [Option<FlexTensor>; 2] {
        let Self { batch, c_in, h, w, c_out, window } = self;
        let (rows, positions) = (self.rows(), self.positions());
        let mut dx = vec![0.0; if wants_x { x.len() } else { 0 }];
        let mut dw = vec![0.0; if wants_weight { weight.len() } else { 0 }];
        let mut columns = vec![0.0; rows * positions];
        let mut dcolumns = vec![0.0; if wants_x { rows * positions } else { 0 }];
        let copies = self.copies();
        for sample in 0..batch {
            let dy = Matrix::rows(&output[sample * c_out * positions..][..c_out * positions], positions);
            if wants_weight {
                gather(&copies, &x[sample * c_in * h * w..][..c_in * h * w], &mut columns);
                product(dy, Matrix::columns(&columns, positions), &mut dw, Write::Add);
            }
            if wants_x {
                product(Matrix::columns(weight, rows), dy, &mut dcolumns, Write::Set);
                scatter(&copies, &mut dcolumns, &mut dx[sample * c_in * h * w..][..c_in * h * w]);
            }
        }
        [
            wants_x.then(|| flex(dx, [batch, c_in, h, w])),
            wants_weight.then(|| flex(dw, [c_out, c_in, window.kernel, window.kernel])),
        ]
    }
}

/// `count` pixels, adjacent in the patch matrix and one stride apart in the input; `columns` and `input` are offsets of the first pixel.
#[derive(Clone, Copy, Debug)]
struct Run {
    columns: usize,
    input: usize,
    count: usize,
}

/// A row of the patch matrix that is a shifted plane of the input.
#[derive(Clone, Debug)]
struct Shift {
    /// Range of the row in the patch matrix.
    plane: Range<usize>,
    /// The pixels that the row takes from the input; here `columns` is an offset from the beginning of the row.
    run: Run,
    /// Columns of the output plane whose input is padding.
    edges: Range<usize>,
}

/// The copies that build the patch matrix of a sample (im2col): each row of the matrix is a shifted plane, or consists of short runs.
///
/// ```text
/// Shifts                       Runs
/// input   a b c d e f ...      input   a . b . c .   (a step apart)
/// row     0 a b c d e ...      row     a b c
/// ```
#[derive(Clone, Debug)]
enum Copies {
    Shifts { width: usize, shifts: Vec<Shift> },
    Runs { step: usize, runs: Vec<Run> },
}

wide! {
    /// Writes the patches of one sample; some positions in the padding are not written, so `columns` must hold zeros there.
    fn gather(copies: &Copies, x: &[f32], columns: &mut [f32]) {
        match copies {
            Copies::Shifts { width, shifts } => {
                for Shift { plane, run: Run { columns: to, input, count }, edges } in shifts {
                    let row = &mut columns[plane.clone()];
                    row[*to..to + count].copy_from_slice(&x[*input..input + count]);
                    clear(row, *width, edges);
                }
            }
            Copies::Runs { step, runs } => {
                for &Run { columns: to, input, count } in runs {
                    let target = &mut columns[to..to + count];
                    if *step == 1 {
                        target.copy_from_slice(&x[input..input + count]);
                    } else {
                        for (target, value) in target.iter_mut().zip(x[input..].iter().step_by(*step)) {
                            *target = *value;
                        }
                    }
                }
            }
        }
    }
}

wide! {
    /// Adds the gradients of the patches, `columns`, to the gradient of the input, `dx`; `columns` is changed and not read again.
    fn scatter(copies: &Copies, columns: &mut [f32], dx: &mut [f32]) {
        match copies {
            Copies::Shifts { width, shifts } => {
                for Shift { plane, run: Run { columns: from, input, count }, edges } in shifts {
                    let row = &mut columns[plane.clone()];
                    clear(row, *width, edges);
                    for (target, value) in dx[*input..input + count].iter_mut().zip(&row[*from..from + count]) {
                        *target += value;
                    }
                }
            }
            Copies::Runs { step, runs } => {
                for &Run { columns: from, input, count } in runs {
                    let source = &columns[from..from + count];
                    if *step == 1 {
                        for (target, value) in dx[input..input + count].iter_mut().zip(source) {
                            *target += value;
                        }
                    } else {
                        for (target, value) in dx[input..].iter_mut().step_by(*step).zip(source) {
                            *target += value;
                        }
                    }
                }
            }
        }
    }
}

/// Sets some columns of a plane of width `w` to zero, column by column: a `memset` for the one or two pixels of a line is slow.
#[inline(always)]
fn clear(plane: &mut [f32], w: usize, columns: &Range<usize>) {
    for column in columns.clone() {
        for line in plane.chunks_exact_mut(w) {
            line[column] = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::module::conv2d as burn_conv2d;
    use burn::tensor::ops::ConvOptions;
    use burn::tensor::{Device, Distribution, Gradients};

    use super::*;
    use crate::fused::testing::{assert_equal, gradient};

    /// Tolerance for sums of a few hundred products of order one, added in another order.
    const SUM_ORDER: f32 = 1e-4;

    #[track_caller]
    fn check(channels: [usize; 2], [h, w]: [usize; 2], window: Window) {
        let device = Device::flex().autodiff();
        let x = Tensor::<4>::random([3, channels[0], h, w], Distribution::Default, &device).require_grad();
        let k = window.kernel;
        let weight = Tensor::<4>::random([channels[1], channels[0], k, k], Distribution::Default, &device)
            .require_grad();
        let ours = conv2d(x.clone(), weight.clone(), window);
        let options = ConvOptions::new([window.stride; 2], [window.pad; 2], [1, 1], 1);
        let burns = burn_conv2d(x.clone(), weight.clone(), None, options);
        let inputs = |of: &Gradients| [gradient(&x, of), gradient(&weight, of)].concat();
        assert_equal([ours, burns], inputs, SUM_ORDER);
    }

    #[test]
    fn convolution_and_its_gradients_equal_burns() {
        check([2, 3], [8, 8], Window { kernel: 3, stride: 1, pad: 1 });
        check([2, 3], [2, 1], Window { kernel: 5, stride: 1, pad: 2 });
        check([3, 4], [9, 7], Window { kernel: 3, stride: 2, pad: 1 });
        check([1, 2], [6, 5], Window { kernel: 5, stride: 1, pad: 2 });
        check([2, 2], [6, 6], Window { kernel: 3, stride: 2, pad: 0 });
        check([2, 5], [4, 4], Window { kernel: 1, stride: 1, pad: 0 });
    }
}
