//! Softmax cross-entropy against a distribution, weighted by row: the loss of every exit, and of distillation.

use burn::tensor::Tensor;

use super::{flex, operand, record, slice_of};

/// `sum_r weight_r * cross_entropy(target_r, softmax(logits_r / temperature))`.
///
/// # Shapes
/// - `logits`: `[rows, classes]`; `targets`: `rows * classes` probabilities; `weights`: `rows`; returns `[1]`
///
/// # Panics
/// When `targets` or `weights` have another number of rows than `logits`.
pub fn soft_target_loss(logits: Tensor<2>, targets: &[f32], weights: &[f32], temperature: f32) -> Tensor<1> {
    let [rows, classes] = logits.dims();
    let (logits, node) = operand(logits);
    assert_eq!(
        (targets.len(), weights.len()),
        (rows * classes, rows),
        "loss: one target and one weight per row"
    );
    let mut loss = 0.0f64;
    let mut gradient = Vec::with_capacity(rows * classes);
    for ((logits, targets), weight) in
        slice_of(&logits).chunks_exact(classes).zip(targets.chunks_exact(classes)).zip(weights)
    {
        let probabilities = softmax(logits, temperature);
        for (p, t) in probabilities.iter().zip(targets) {
            gradient.push(weight * (p - t) / temperature);
        }
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let log_sum = logits.iter().map(|z| ((z - largest) / temperature).exp()).sum::<f32>().ln();
        let row: f32 =
            logits.iter().zip(targets).map(|(z, t)| t * (log_sum - (z - largest) / temperature)).sum();
        loss += f64::from(weight * row);
    }
    record([node], flex(vec![loss as f32], [1]), move |output, _| {
        let gradient = gradient.iter().map(|g| g * output[0]).collect();
        [Some(flex(gradient, [rows, classes]))]
    })
}

/// Class probabilities of logits divided by `temperature`, in `f32`.
///
/// A test compares them with the probabilities by [`headwater_inference::exit::cross_entropy`].
pub fn softmax(logits: &[f32], temperature: f32) -> Vec<f32> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut exps: Vec<f32> = logits.iter().map(|z| ((z - largest) / temperature).exp()).collect();
    let total: f32 = exps.iter().sum();
    exps.iter_mut().for_each(|e| *e /= total);
    exps
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Distribution};
    use headwater_inference::exit::cross_entropy;
    use proptest::prelude::*;

    use super::*;
    use crate::fused::testing::{assert_equal, gradient};

    /// Tolerance for sums of up to forty exponentials, in `f32` against `f64`.
    const F32_SUM: f32 = 1e-5;

    proptest! {
        #[test]
        fn the_softmax_of_training_equals_that_of_inference(
            logits in prop::collection::vec(-30.0f32..30.0, 1..40),
            temperature in 0.05f32..20.0,
        ) {
            for (class, found) in softmax(&logits, temperature).into_iter().enumerate() {
                let expected = (-cross_entropy(&logits, f64::from(temperature), class)).exp() as f32;
                prop_assert!((found - expected).abs() < F32_SUM, "expected {}, found {}", expected, found);
            }
        }
    }

    #[test]
    fn the_loss_and_its_gradient_equal_burns() {
        let device = Device::flex().autodiff();
        let logits = Tensor::<2>::random([3, 4], Distribution::Normal(0.0, 3.0), &device).require_grad();
        let targets = vec![1.0, 0.0, 0.0, 0.0, 0.1, 0.2, 0.3, 0.4, 0.25, 0.25, 0.5, 0.0];
        let weights = vec![1.0, 0.5, 2.0];
        let ours = soft_target_loss(logits.clone(), &targets, &weights, 2.0);
        let t = Tensor::<2>::from_data(burn::tensor::TensorData::new(targets, [3, 4]), &device);
        let w = Tensor::<2>::from_data(burn::tensor::TensorData::new(weights, [3, 1]), &device);
        let burns = (burn::tensor::activation::log_softmax(logits.clone() / 2.0, 1) * t * w).sum().neg();
        // Sums of a dozen terms.
        assert_equal([ours, burns], |of| gradient(&logits, of), 1e-4);
    }
}
