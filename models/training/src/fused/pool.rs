//! Max pooling; padding is never the maximum. The gradient of a window goes to one maximum: the leftmost, and in a column the topmost.

use std::ops::Range;

use burn::tensor::Tensor;

use super::simd::wide;
use super::{flex, operand, record, slice_of};
use headwater_spec::Window;

/// Maximum of each window.
///
/// # Shapes
/// - `x`: `[batch, channels, h, w]`; returns `[batch, channels, positions(h), positions(w)]`
pub fn max_pool(x: Tensor<4>, window: Window) -> Tensor<4> {
    let input @ [batch, channels, h, w] = x.dims();
    let (x, node) = operand(x);
    let (out_h, out_w) = (window.positions(h), window.positions(w));
    let mut output = vec![0.0; batch * channels * out_h * out_w];
    let mut chosen = vec![0u32; output.len()];
    maxima(slice_of(&x), [h, w], window, &mut output, &mut chosen);
    record([node], flex(output, [batch, channels, out_h, out_w]), move |output, _| {
        let mut gradient = vec![0.0; batch * channels * h * w];
        let planes = gradient.chunks_exact_mut(h * w).zip(output.chunks_exact(out_h * out_w));
        for ((gradient, output), chosen) in planes.zip(chosen.chunks_exact(out_h * out_w)) {
            for (output, &from) in output.iter().zip(chosen) {
                gradient[from as usize] += output;
            }
        }
        [Some(flex(gradient, input))]
    })
}

wide! {
    /// Maxima of the windows of planes of size `[h, w]`, and their positions in the plane.
    fn maxima(x: &[f32], size: [usize; 2], window: Window, output: &mut [f32], chosen: &mut [u32]) {
        let [h, w] = size;
        let (out_h, out_w) = (window.positions(h), window.positions(w));
        let mut columns = Line::new(w + 2 * window.pad);
        let mut runs = Line::new(columns.value.len() + 1 - window.kernel);
        let outputs = output.chunks_exact_mut(out_h * out_w).zip(chosen.chunks_exact_mut(out_h * out_w));
        for (x, (y, chosen)) in x.chunks_exact(h * w).zip(outputs) {
            for (row, (y, chosen)) in
                y.chunks_exact_mut(out_w).zip(chosen.chunks_exact_mut(out_w)).enumerate()
            {
                let first = (row * window.stride).saturating_sub(window.pad);
                let end = (row * window.stride + window.kernel - window.pad).min(h);
                columns.column_maxima(x, w, first..end, window.pad);
                runs.run_maxima(&columns, window.kernel);
                let picked = runs.value.iter().zip(&runs.at).step_by(window.stride);
                for ((y, chosen), (value, at)) in y.iter_mut().zip(chosen).zip(picked) {
                    (*y, *chosen) = (*value, *at as u32);
                }
            }
        }
    }
}

/// Maxima along a row with their positions in the plane.
///
/// Positions are floats, exact up to 2^24, so that the compiler selects values and positions with the same vector instructions.
struct Line {
    value: Vec<f32>,
    at: Vec<f32>,
    /// Number of each column as a float: 0, 1, 2, ...
    column: Vec<f32>,
}

impl Line {
    fn new(len: usize) -> Self {
        let column = (0..len).map(|column| column as f32).collect();
        Self { value: vec![f32::NEG_INFINITY; len], at: vec![0.0; len], column }
    }

    /// Maximum of each column over `rows`, between `pad` columns of padding at `-inf`.
    #[inline(always)]
    fn column_maxima(&mut self, x: &[f32], w: usize, rows: Range<usize>, pad: usize) {
        let (value, at) = (&mut self.value[pad..pad + w], &mut self.at[pad..pad + w]);
        let start = rows.start * w;
        value.copy_from_slice(&x[start..start + w]);
        at.iter_mut().enumerate().for_each(|(column, at)| *at = (start + column) as f32);
        for row in rows.skip(1) {
            let line = &x[row * w..row * w + w];
            let at_line = (row * w) as f32;
            for (((value, at), found), column) in
                value.iter_mut().zip(at.iter_mut()).zip(line).zip(&self.column)
            {
                keep_larger(value, at, *found, at_line + column);
            }
        }
    }

    /// Maximum of each run of `kernel` columns.
    #[inline(always)]
    fn run_maxima(&mut self, columns: &Self, kernel: usize) {
        let len = self.value.len();
        self.value.copy_from_slice(&columns.value[..len]);
        self.at.copy_from_slice(&columns.at[..len]);
        for shift in 1..kernel {
            let found = columns.value[shift..shift + len].iter().zip(&columns.at[shift..shift + len]);
            for ((value, at), (found, found_at)) in self.value.iter_mut().zip(&mut self.at).zip(found) {
                keep_larger(value, at, *found, *found_at);
            }
        }
    }
}

#[inline(always)]
fn keep_larger(value: &mut f32, at: &mut f32, found: f32, found_at: f32) {
    let larger = found > *value;
    *at = if larger { found_at } else { *at };
    *value = if larger { found } else { *value };
}

#[cfg(test)]
mod tests {
    use burn::tensor::module::max_pool2d;
    use burn::tensor::ops::MaxPoolOptions;
    use burn::tensor::{Device, Distribution};

    use super::*;
    use crate::fused::testing::{assert_equal, gradient};

    #[track_caller]
    fn check(size: [usize; 2], window: Window) {
        let device = Device::flex().autodiff();
        let x = Tensor::<4>::random([2, 3, size[0], size[1]], Distribution::Normal(-1.0, 1.0), &device)
            .require_grad();
        let Window { kernel, stride, pad } = window;
        let ours = max_pool(x.clone(), window);
        let options = MaxPoolOptions::new([kernel; 2]).with_stride([stride; 2]).with_padding([pad; 2]);
        let burns = max_pool2d(x.clone(), options);
        let [of_ours, of_burns] = [&ours, &burns].map(|y| y.clone().into_data().try_to_vec::<f32>().unwrap());
        assert_eq!(of_ours, of_burns, "maxima are numbers of the input");
        // A gradient is a sum of at most nine values.
        assert_equal([ours, burns], |of| gradient(&x, of), 1e-6);
    }

    #[test]
    fn max_pooling_and_its_gradient_equal_burns() {
        check([8, 8], Window { kernel: 3, stride: 2, pad: 1 });
        check([7, 5], Window { kernel: 3, stride: 2, pad: 1 });
        check([6, 6], Window { kernel: 3, stride: 1, pad: 1 });
        check([6, 4], Window { kernel: 2, stride: 2, pad: 0 });
    }
}
