//! Joins the outputs of the present sources over a batch: masked maximum (MP), masked mean (AP), concatenation with the mask (CC).

use burn::tensor::Tensor;
use burn_flex::FlexTensor;
use headwater_inference::manifest::Aggregation;

use super::{Gradient, Operand, flex, record};

/// Sample and slot of each row of a tensor with the outputs of all sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRows {
    /// Samples in the batch.
    pub batch: usize,
    /// Number of slots, or of edges.
    pub slots: usize,
    /// `(sample, slot)` of each row; every pair at most once, by slot and then by sample.
    pub rows: Vec<(u32, u32)>,
}

/// Joins rows by sample; a sample without any row becomes zeros (with a mask of zeros for CC).
///
/// # Shapes
/// - `x`: `[rows, channels, h, w]`
/// - returns `[batch, channels, h, w]` for MP and AP, `[batch, slots * channels + slots, h, w]` for CC: the slots' maps, absent
///   ones zero, then one plane of mask values (0 or 1) a slot
///
/// # Panics
/// Unless `layout` has as many rows as `x`.
pub fn join(x: Tensor<4>, aggregation: Aggregation, layout: &JoinRows) -> Tensor<4> {
    let x = Operand::new(x);
    let [rows, channels, h, w] = x.shape();
    assert_eq!(rows, layout.rows.len(), "join: expected a sample and a slot for each row");
    let (plane, size) = (h * w, channels * h * w);
    let pairs = || layout.rows.iter().zip(x.slice().chunks_exact(size)).enumerate();
    let (output, joined_channels, by) = match aggregation {
        Aggregation::Cc => {
            let sample_len = layout.slots * (size + plane);
            let mut output = vec![0.0; layout.batch * sample_len];
            for (_, (&(sample, slot), row)) in pairs() {
                let sample = &mut output[sample as usize * sample_len..][..sample_len];
                sample[slot as usize * size..][..size].copy_from_slice(row);
                sample[layout.slots * size + slot as usize * plane..][..plane].fill(1.0);
            }
            (output, layout.slots * (channels + 1), By::Slot)
        }
        Aggregation::Ap => {
            let shares = layout.shares();
            let mut output = vec![0.0; layout.batch * size];
            for (index, (&(sample, _), row)) in pairs() {
                let share = shares[index];
                for (y, x) in output[sample as usize * size..][..size].iter_mut().zip(row) {
                    *y += x * share;
                }
            }
            (output, channels, By::Share(shares))
        }
        Aggregation::Mp => {
            let mut output = vec![f32::NEG_INFINITY; layout.batch * size];
            let mut winner = vec![u32::MAX; output.len()];
            for (index, (&(sample, _), row)) in pairs() {
                let at = sample as usize * size..(sample as usize + 1) * size;
                for ((y, winner), x) in output[at.clone()].iter_mut().zip(&mut winner[at]).zip(row) {
                    if *x > *y {
                        *y = *x;
                        *winner = index as u32;
                    }
                }
            }
            for (y, _) in output.iter_mut().zip(&winner).filter(|(_, winner)| **winner == u32::MAX) {
                *y = 0.0;
            }
            (output, channels, By::Winner(winner))
        }
    };
    let joined = flex(output, [layout.batch, joined_channels, h, w]);
    let gradient = Joined { layout: layout.clone(), shape: [rows, channels, h, w], by };
    record([x], joined, move |_| gradient)
}

impl JoinRows {
    /// One over the number of rows of each row's sample.
    fn shares(&self) -> Vec<f32> {
        let mut count = vec![0u32; self.batch];
        for &(sample, _) in &self.rows {
            count[sample as usize] += 1;
        }
        self.rows.iter().map(|&(sample, _)| 1.0 / count[sample as usize] as f32).collect()
    }
}

#[derive(Clone, Debug)]
struct Joined {
    layout: JoinRows,
    shape: [usize; 4],
    by: By,
}

/// Distribution of the joined tensor's gradient over the rows.
#[derive(Clone, Debug)]
enum By {
    /// No two rows share values.
    Slot,
    /// Each row gets its share of the mean.
    Share(Vec<f32>),
    /// The row with the maximum gets all.
    Winner(Vec<u32>),
}

impl Gradient<1> for Joined {
    fn gradient(&self, output: &[f32], _: [bool; 1]) -> [Option<FlexTensor>; 1] {
        let [_, channels, h, w] = self.shape;
        let size = channels * h * w;
        let mut input = vec![0.0; self.shape.iter().product()];
        let sample_len = match self.by {
            By::Slot => self.layout.slots * (size + h * w),
            _ => size,
        };
        for (index, (&(sample, slot), row)) in
            self.layout.rows.iter().zip(input.chunks_exact_mut(size)).enumerate()
        {
            let sample_at = sample as usize * sample_len;
            match &self.by {
                By::Slot => row.copy_from_slice(&output[sample_at + slot as usize * size..][..size]),
                By::Share(share) => {
                    for (x, y) in row.iter_mut().zip(&output[sample_at..][..size]) {
                        *x = y * share[index];
                    }
                }
                By::Winner(winner) => {
                    let ys = output[sample_at..][..size].iter().zip(&winner[sample_at..][..size]);
                    for (x, (y, winner)) in row.iter_mut().zip(ys) {
                        *x = if *winner == index as u32 { *y } else { 0.0 };
                    }
                }
            }
        }
        [Some(flex(input, self.shape))]
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
        let y = join(x.clone(), aggregation, &rows());
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
