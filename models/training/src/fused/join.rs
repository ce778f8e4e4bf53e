//! Joins the outputs of the present sources over a batch: masked maximum (MP), masked mean (AP), concatenation with the mask (CC).

use burn::tensor::Tensor;
use headwater_inference::manifest::Aggregation;

use super::{flex, operand, record, slice_of};

/// Sample and slot of each row of a tensor that has the outputs of all sources (devices or edges).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRows {
    /// Samples in the batch.
    pub batch: usize,
    /// Number of sources: slots or edges.
    pub slots: usize,
    /// `(sample, slot)` of each row; every pair at most once, sorted by slot and then by sample.
    pub rows: Vec<(u32, u32)>,
}

/// Joins rows by sample; a sample without any row becomes zeros (with a mask of zeros for CC).
///
/// # Shapes
/// - `x`: `[rows, channels, h, w]`
/// - returns `[batch, channels, h, w]` for MP and AP, `[batch, slots * channels + slots, h, w]` for CC: the slots' maps, zeros for
///   absent maps, then one plane of mask values (0 or 1) per slot
///
/// # Panics
/// Unless `layout` has as many rows as `x`.
pub fn join(x: Tensor<4>, aggregation: Aggregation, layout: JoinRows) -> Tensor<4> {
    assert_eq!(x.dims()[0], layout.rows.len(), "join: expected a sample and a slot for each row");
    match aggregation {
        Aggregation::Cc => concatenation(x, layout),
        Aggregation::Ap => mean(x, layout),
        Aggregation::Mp => maximum(x, layout),
    }
}

/// Concatenation: no two rows share output values, so each row's gradient is its part of the output's gradient.
fn concatenation(x: Tensor<4>, layout: JoinRows) -> Tensor<4> {
    let shape @ [_, channels, h, w] = x.dims();
    let (x, node) = operand(x);
    let (plane, size) = (h * w, channels * h * w);
    let sample_len = layout.slots * (size + plane);
    let mut output = vec![0.0; layout.batch * sample_len];
    for (&(sample, slot), row) in layout.rows.iter().zip(slice_of(&x).chunks_exact(size)) {
        let sample = &mut output[sample as usize * sample_len..][..sample_len];
        sample[slot as usize * size..][..size].copy_from_slice(row);
        sample[layout.slots * size + slot as usize * plane..][..plane].fill(1.0);
    }
    let output = flex(output, [layout.batch, layout.slots * (channels + 1), h, w]);
    record([node], output, move |dy, _| {
        let mut dx = vec![0.0; shape.iter().product()];
        for (&(sample, slot), row) in layout.rows.iter().zip(dx.chunks_exact_mut(size)) {
            let start = sample as usize * sample_len + slot as usize * size;
            row.copy_from_slice(&dy[start..][..size]);
        }
        [Some(flex(dx, shape))]
    })
}

/// Mean: each row's gradient is the gradient of the mean, divided by the number of rows of the sample.
fn mean(x: Tensor<4>, layout: JoinRows) -> Tensor<4> {
    let shape @ [_, channels, h, w] = x.dims();
    let (x, node) = operand(x);
    let size = channels * h * w;
    let shares = layout.shares();
    let mut output = vec![0.0; layout.batch * size];
    for ((&(sample, _), share), row) in layout.rows.iter().zip(&shares).zip(slice_of(&x).chunks_exact(size)) {
        for (y, x) in output[sample as usize * size..][..size].iter_mut().zip(row) {
            *y += x * share;
        }
    }
    record([node], flex(output, [layout.batch, channels, h, w]), move |dy, _| {
        let mut dx = vec![0.0; shape.iter().product()];
        for ((&(sample, _), share), row) in layout.rows.iter().zip(&shares).zip(dx.chunks_exact_mut(size)) {
            for (x, y) in row.iter_mut().zip(&dy[sample as usize * size..][..size]) {
                *x = y * share;
            }
        }
        [Some(flex(dx, shape))]
    })
}

/// Maximum: for each value, the first row with the maximum gets the whole gradient.
fn maximum(x: Tensor<4>, layout: JoinRows) -> Tensor<4> {
    let shape @ [_, channels, h, w] = x.dims();
    let (x, node) = operand(x);
    let size = channels * h * w;
    let mut output = vec![f32::NEG_INFINITY; layout.batch * size];
    let mut winner = vec![u32::MAX; output.len()];
    let rows = || (0u32..).zip(&layout.rows).map(|(index, (sample, _))| (index, *sample as usize * size));
    for ((index, at), row) in rows().zip(slice_of(&x).chunks_exact(size)) {
        for ((y, winner), x) in output[at..].iter_mut().zip(&mut winner[at..]).zip(row) {
            if *x > *y {
                *y = *x;
                *winner = index;
            }
        }
    }
    for (y, _) in output.iter_mut().zip(&winner).filter(|(_, winner)| **winner == u32::MAX) {
        *y = 0.0;
    }
    record([node], flex(output, [layout.batch, channels, h, w]), move |dy, _| {
        let mut dx = vec![0.0; shape.iter().product()];
        for ((index, (sample, _)), row) in (0u32..).zip(&layout.rows).zip(dx.chunks_exact_mut(size)) {
            let at = *sample as usize * size;
            for (x, (y, winner)) in row.iter_mut().zip(dy[at..].iter().zip(&winner[at..])) {
                *x = if *winner == index { *y } else { 0.0 };
            }
        }
        [Some(flex(dx, shape))]
    })
}

impl JoinRows {
    /// For each row, one over the number of rows of the same sample.
    fn shares(&self) -> Vec<f32> {
        let mut count = vec![0u32; self.batch];
        for &(sample, _) in &self.rows {
            count[sample as usize] += 1;
        }
        self.rows.iter().map(|&(sample, _)| 1.0 / count[sample as usize] as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};

    use super::*;

    /// Slot 0 sees samples 0 and 1, slot 1 sees sample 1, no slot sees sample 2.
    fn rows() -> JoinRows {
        JoinRows { batch: 3, slots: 2, rows: vec![(0, 0), (1, 0), (1, 1)] }
    }

    #[track_caller]
    fn check(aggregation: Aggregation, expected: &[f32], gradient: [f32; 3]) {
        let device = Device::flex().autodiff();
        let x = Tensor::<4>::from_data(TensorData::new(vec![-5.0f32, 2.0, 4.0], [3, 1, 1, 1]), &device)
            .require_grad();
        let y = join(x.clone(), aggregation, rows());
        assert_eq!(y.clone().into_data().try_to_vec::<f32>().unwrap(), expected);
        let probe: Vec<f32> = (1..=expected.len()).map(|v| v as f32).collect();
        let probe = Tensor::<4>::from_data(TensorData::new(probe, y.shape()), &device);
        let gradients = (y * probe).sum().backward();
        assert_eq!(x.grad(&gradients).unwrap().into_data().try_to_vec::<f32>().unwrap(), gradient);
    }

    #[test]
    fn the_maximum_is_over_the_present_rows() {
        check(Aggregation::Mp, &[-5.0, 4.0, 0.0], [1.0, 0.0, 2.0]);
    }

    #[test]
    fn the_mean_is_over_the_present_rows() {
        check(Aggregation::Ap, &[-5.0, 3.0, 0.0], [1.0, 1.0, 1.0]);
    }

    #[test]
    fn concatenation_carries_the_mask() {
        check(
            Aggregation::Cc,
            &[-5.0, 0.0, 1.0, 0.0, 2.0, 4.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0],
            [1.0, 5.0, 6.0],
        );
    }
}
