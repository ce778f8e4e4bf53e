//! Sign with the straight-through gradient: forward `x >= 0 -> +1`, else `-1`; the gradient passes where `|x| <= 1`.

use burn::tensor::Tensor;

use super::{flex, operand, record, simd::wide, slice_of};

/// Signs of `x`, `±1`; the gradient is zero where `|x| > 1` (DDNN, binary blocks).
pub fn sign<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let shape = x.dims();
    let (x, node) = operand(x);
    let mut output = vec![0.0; slice_of(&x).len()];
    signs(slice_of(&x), &mut output);
    record([node], flex(output, shape), move |output, _| {
        let x = slice_of(&x);
        let mut input = vec![0.0; x.len()];
        passed(x, output, &mut input);
        [Some(flex(input, shape))]
    })
}

/// `x >= 0 -> +1`, else `-1`.
#[inline(always)]
pub fn sign_of(x: f32) -> f32 {
    if x >= 0.0 { 1.0 } else { -1.0 }
}

wide! {
    fn signs(x: &[f32], signs: &mut [f32]) {
        for (sign, &x) in signs.iter_mut().zip(x) {
            *sign = sign_of(x);
        }
    }
}

wide! {
    /// Writes the gradient `output` into `input` where `|x| <= 1`, zero elsewhere.
    fn passed(x: &[f32], output: &[f32], input: &mut [f32]) {
        for ((input, x), gradient) in input.iter_mut().zip(x).zip(output) {
            *input = if x.abs() <= 1.0 { *gradient } else { 0.0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};

    use super::*;

    #[test]
    fn zero_counts_as_plus_one_and_the_gradient_stops_beyond_one() {
        let device = Device::flex().autodiff();
        let x = Tensor::<1>::from_data(TensorData::from([-1.5f32, -1.0, -0.2, 0.0, 0.7, 1.0, 1.1]), &device)
            .require_grad();
        let y = sign(x.clone());
        assert_eq!(
            y.clone().into_data().try_to_vec::<f32>().unwrap(),
            [-1.0, -1.0, -1.0, 1.0, 1.0, 1.0, 1.0]
        );
        let weights =
            Tensor::<1>::from_data(TensorData::from([1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]), &device);
        let gradients = (y * weights).sum().backward();
        let gradient = x.grad(&gradients).unwrap().into_data().try_to_vec::<f32>().unwrap();
        assert_eq!(gradient, [0.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0]);
    }
}
