//! Max pooling; padding is never chosen. The gradient goes to the first largest value of each window.

use burn::tensor::Tensor;
use burn_flex::FlexTensor;

use super::{Gradient, Operand, Window, flex, record, simd::wide, slice_of};

/// Largest value of each window.
///
/// # Shapes
/// - `x`: `[batch, channels, h, w]`; returns `[batch, channels, positions(h), positions(w)]`
pub fn max_pool(x: Tensor<4>, window: Window) -> Tensor<4> {
    let x = Operand::new(x);
    let [batch, channels, h, w] = x.shape();
    let (out_h, out_w) = (window.positions(h), window.positions(w));
    let mut output = vec![0.0; batch * channels * out_h * out_w];
    let planes = x.slice().chunks_exact(h * w).zip(output.chunks_exact_mut(out_h * out_w));
    // Largest of each column, between paddings that are never chosen; and of each run of columns.
    let mut columns = vec![f32::NEG_INFINITY; w + 2 * window.pad];
    let mut runs = vec![0.0; columns.len() + 1 - window.kernel];
    wide(|| {
        for (x, y) in planes {
            for (row, y) in y.chunks_exact_mut(out_w).enumerate() {
                let first = (row * window.stride).saturating_sub(window.pad);
                let end = (row * window.stride + window.kernel - window.pad).min(h);
                let column = &mut columns[window.pad..window.pad + w];
                column.copy_from_slice(&x[first * w..first * w + w]);
                (first + 1..end).for_each(|row| raise(column, &x[row * w..row * w + w]));
                let (len, last) = (runs.len(), columns.len());
                runs.copy_from_slice(&columns[..len]);
                (1..window.kernel).for_each(|shift| raise(&mut runs, &columns[shift..last.min(shift + len)]));
                y.iter_mut().zip(runs.iter().step_by(window.stride)).for_each(|(y, run)| *y = *run);
            }
        }
    });
    let (input, output) = ([batch, channels, h, w], flex(output, [batch, channels, out_h, out_w]));
    let largest = output.clone();
    record([x], output, move |[x]| MaxPool { x, largest, input, positions: [out_h, out_w], window })
}

#[inline(always)]
fn raise(best: &mut [f32], values: &[f32]) {
    for (best, value) in best.iter_mut().zip(values) {
        *best = if *value > *best { *value } else { *best };
    }
}

#[derive(Clone, Debug)]
struct MaxPool {
    x: FlexTensor,
    largest: FlexTensor,
    input: [usize; 4],
    positions: [usize; 2],
    window: Window,
}

impl Gradient<1> for MaxPool {
    fn gradient(&self, output: &[f32], _: [bool; 1]) -> [Option<FlexTensor>; 1] {
        let [_, _, h, w] = self.input;
        let [out_h, out_w] = self.positions;
        let Window { kernel, stride, pad } = self.window;
        let (x, largest) = (slice_of(&self.x), slice_of(&self.largest));
        let mut input = vec![0.0; x.len()];
        let planes = x.chunks_exact(h * w).zip(input.chunks_exact_mut(h * w));
        let outputs = output.chunks_exact(out_h * out_w).zip(largest.chunks_exact(out_h * out_w));
        for ((x, input), (output, largest)) in planes.zip(outputs) {
            for (at, (gradient, largest)) in output.iter().zip(largest).enumerate() {
                // Most gradients stop at the sign behind the pool; those need no search.
                if *gradient == 0.0 {
                    continue;
                }
                let (top, left) = (at / out_w * stride, at % out_w * stride);
                let columns = left.saturating_sub(pad)..(left + kernel - pad).min(w);
                let mut rows = top.saturating_sub(pad)..(top + kernel - pad).min(h);
                let chosen = rows.find_map(|row| {
                    let line = &x[row * w + columns.start..row * w + columns.end];
                    line.iter().position(|x| x == largest).map(|column| row * w + columns.start + column)
                });
                // Nothing equals the largest value only when it is not a number; the run is lost then anyway.
                if let Some(chosen) = chosen {
                    input[chosen] += gradient;
                }
            }
        }
        [Some(flex(input, self.input))]
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::module::max_pool2d;
    use burn::tensor::ops::MaxPoolOptions;
    use burn::tensor::{Device, Distribution};

    use super::*;

    #[track_caller]
    fn check(size: [usize; 2], window: Window) {
        let device = Device::flex().autodiff();
        let x = Tensor::<4>::random([2, 3, size[0], size[1]], Distribution::Normal(-1.0, 1.0), &device)
            .require_grad();
        let Window { kernel, stride, pad } = window;
        let ours = max_pool(x.clone(), window);
        let options = MaxPoolOptions::new([kernel; 2]).with_stride([stride; 2]).with_padding([pad; 2]);
        let burns = max_pool2d(x.clone(), options);
        let probe = Tensor::<4>::random(ours.shape(), Distribution::Default, &device);
        let [ours, burns] = [ours, burns].map(|y| {
            let gradients = (y.clone() * probe.clone()).sum().backward();
            (
                y.into_data().try_to_vec::<f32>().unwrap(),
                x.grad(&gradients).unwrap().into_data().try_to_vec::<f32>().unwrap(),
            )
        });
        assert_eq!(ours.0, burns.0);
        for (a, b) in ours.1.iter().zip(&burns.1) {
            assert!((a - b).abs() < 1e-6, "sums of at most nine gradients: {a} against {b}");
        }
    }

    #[test]
    fn max_pooling_and_its_gradient_equal_burns() {
        check([8, 8], Window { kernel: 3, stride: 2, pad: 1 });
        check([7, 5], Window { kernel: 3, stride: 2, pad: 1 });
        check([6, 6], Window { kernel: 3, stride: 1, pad: 1 });
        check([6, 4], Window { kernel: 2, stride: 2, pad: 0 });
    }
}
