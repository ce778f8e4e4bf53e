//! Max pooling; padding is never chosen. The gradient goes to the first largest value of each window.

use burn::tensor::Tensor;
use burn_flex::FlexTensor;

use super::{Gradient, Operand, Window, flex, record, simd::wide};

/// Largest value of each window.
///
/// # Shapes
/// - `x`: `[batch, channels, h, w]`; returns `[batch, channels, positions(h), positions(w)]`
pub fn max_pool(x: Tensor<4>, window: Window) -> Tensor<4> {
    let x = Operand::new(x);
    let [batch, channels, h, w] = x.shape();
    let (out_h, out_w) = (window.positions(h), window.positions(w));
    let mut output = vec![f32::NEG_INFINITY; batch * channels * out_h * out_w];
    let mut chosen = vec![0u32; output.len()];
    let planes = x.slice().chunks_exact(h * w).zip(output.chunks_exact_mut(out_h * out_w));
    let mut line = Line { best: vec![0.0; w], from: vec![0; w] };
    wide(|| {
        for ((x, y), chosen) in planes.zip(chosen.chunks_exact_mut(out_h * out_w)) {
            for row in 0..out_h {
                let first = (row * window.stride).saturating_sub(window.pad);
                let end = (row * window.stride + window.kernel - window.pad).min(h);
                line.fill(x, w, first..end);
                let at = row * out_w..(row + 1) * out_w;
                line.pool(window, &mut y[at.clone()], &mut chosen[at]);
            }
        }
    });
    let input = [batch, channels, h, w];
    record([x], flex(output, [batch, channels, out_h, out_w]), move |_| MaxPool { chosen, input, positions: out_h * out_w })
}

/// Largest value of each column over the rows of a window, and where it lies in the plane.
struct Line {
    best: Vec<f32>,
    from: Vec<u32>,
}

impl Line {
    #[inline(always)]
    fn fill(&mut self, x: &[f32], w: usize, rows: std::ops::Range<usize>) {
        let start = rows.start * w;
        self.best.copy_from_slice(&x[start..start + w]);
        for (column, from) in self.from.iter_mut().enumerate() {
            *from = (start + column) as u32;
        }
        for row in rows.skip(1) {
            let values = &x[row * w..(row + 1) * w];
            let columns = self.best.iter_mut().zip(&mut self.from).zip(values).enumerate();
            for (column, ((best, from), value)) in columns {
                let larger = *value > *best;
                *from = if larger { (row * w + column) as u32 } else { *from };
                *best = if larger { *value } else { *best };
            }
        }
    }

    #[inline(always)]
    fn pool(&self, window: Window, y: &mut [f32], chosen: &mut [u32]) {
        for (position, (y, chosen)) in y.iter_mut().zip(chosen).enumerate() {
            let first = (position * window.stride).saturating_sub(window.pad);
            let end = (position * window.stride + window.kernel - window.pad).min(self.best.len());
            let (mut best, mut from) = (self.best[first], self.from[first]);
            for column in first + 1..end {
                let larger = self.best[column] > best;
                from = if larger { self.from[column] } else { from };
                best = if larger { self.best[column] } else { best };
            }
            *y = best;
            *chosen = from;
        }
    }
}

#[derive(Clone, Debug)]
struct MaxPool {
    chosen: Vec<u32>,
    input: [usize; 4],
    positions: usize,
}

impl Gradient<1> for MaxPool {
    fn gradient(&self, output: &[f32], _: [bool; 1]) -> [Option<FlexTensor>; 1] {
        let [_, _, h, w] = self.input;
        let mut input = vec![0.0; self.input.iter().product()];
        let planes = input.chunks_exact_mut(h * w).zip(output.chunks_exact(self.positions));
        for ((input, output), chosen) in planes.zip(self.chosen.chunks_exact(self.positions)) {
            for (gradient, &from) in output.iter().zip(chosen) {
                input[from as usize] += gradient;
            }
        }
        [Some(flex(input, self.input))]
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::module::max_pool2d;
    use burn::tensor::{Device, Distribution};

    use super::*;

    #[track_caller]
    fn check(size: [usize; 2], window: Window) {
        let device = Device::flex().autodiff();
        let x = Tensor::<4>::random([2, 3, size[0], size[1]], Distribution::Normal(-1.0, 1.0), &device).require_grad();
        let Window { kernel, stride, pad } = window;
        let ours = max_pool(x.clone(), window);
        let burns = max_pool2d(x.clone(), [kernel; 2], [stride; 2], [pad; 2], [1, 1], false);
        let probe = Tensor::<4>::random(ours.shape(), Distribution::Default, &device);
        let [ours, burns] = [ours, burns].map(|y| {
            let gradients = (y.clone() * probe.clone()).sum().backward();
            (y.into_data().try_to_vec::<f32>().unwrap(), x.grad(&gradients).unwrap().into_data().to_vec::<f32>().unwrap())
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
