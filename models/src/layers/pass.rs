//! One run through the network: the numbers as tensors, and the batch statistics that training records.

use std::cell::RefCell;

use burn::tensor::{Device, Gradients, Tensor, TensorData};

use super::{Layout, ParameterId, State, StatisticsId, TrainedState};
use crate::fused::BatchStatistics;

/// A run through the network, for training or for inference.
pub struct Pass<'a> {
    layout: &'a Layout,
    state: &'a State,
    device: Device,
    weights: Vec<Tensor<1>>,
    /// Statistics of the batch by id; `None` for inference, which uses the running ones.
    recorded: Option<RefCell<Vec<Option<BatchStatistics>>>>,
}

impl<'a> Pass<'a> {
    /// A run that records gradients and normalises by the batch.
    pub fn training(layout: &'a Layout, state: &'a State) -> Self {
        let device = Device::flex().autodiff();
        let recorded = Some(RefCell::new(vec![None; layout.statistics_len()]));
        let weights = tensors(layout, state, &device).map(Tensor::require_grad).collect();
        Self { layout, state, device, weights, recorded }
    }

    /// A run that normalises by the running statistics.
    pub fn inference(layout: &'a Layout, state: &'a State) -> Self {
        let device = Device::flex();
        let weights = tensors(layout, state, &device).collect();
        Self { layout, state, device, weights, recorded: None }
    }

    /// Whether this run records gradients.
    pub fn trains(&self) -> bool {
        self.recorded.is_some()
    }

    /// A tensor of this run.
    pub fn tensor<const D: usize>(&self, values: Vec<f32>, shape: [usize; D]) -> Tensor<D> {
        Tensor::from_data(TensorData::new(values, shape), &self.device)
    }

    /// A parameter.
    ///
    /// # Panics
    /// When the layout has another rank.
    pub fn weight<const D: usize>(&self, id: ParameterId) -> Tensor<D> {
        let shape: [usize; D] =
            self.layout.shape(id).try_into().expect("layers ask for the rank they laid out");
        self.weights[id.0].clone().reshape(shape)
    }

    /// The numbers of this run.
    pub fn trained(&self) -> TrainedState<'a> {
        TrainedState { layout: self.layout, state: self.state }
    }

    /// Records the statistics of this batch.
    pub fn record_statistics(&self, id: StatisticsId, statistics: BatchStatistics) {
        if let Some(recorded) = &self.recorded {
            recorded.borrow_mut()[id.0] = Some(statistics);
        }
    }

    /// Gradients of all parameters as one vector (zeros for an unused parameter), and the statistics of the batch.
    pub fn finish(self, gradients: &Gradients) -> (Vec<f32>, Vec<Option<BatchStatistics>>) {
        let mut flat = Vec::with_capacity(self.layout.parameter_count());
        for (weight, (range, _)) in self.weights.iter().zip(self.layout.ranges()) {
            let gradient =
                weight.grad(gradients).and_then(|gradient| gradient.into_data().try_to_vec::<f32>().ok());
            match gradient {
                Some(gradient) => flat.extend(gradient),
                None => flat.resize(flat.len() + range.len(), 0.0),
            }
        }
        (flat, self.recorded.map(RefCell::into_inner).unwrap_or_default())
    }
}

impl State {
    /// Running means and variances of one batch norm.
    pub fn running(&self, layout: &Layout, id: StatisticsId) -> (&[f32], &[f32]) {
        let range = layout.statistics_range(id);
        let half = range.len() / 2;
        self.statistics[range].split_at(half)
    }

    /// The numbers of a parameter.
    pub fn parameter(&self, layout: &Layout, id: ParameterId) -> &[f32] {
        &self.parameters[layout.range(id)]
    }
}

/// The numbers of a tensor, row-major.
pub(crate) fn values<const D: usize>(tensor: &Tensor<D>) -> Vec<f32> {
    tensor.clone().into_data().try_to_vec::<f32>().expect("tensors hold f32")
}

fn tensors<'b>(
    layout: &'b Layout,
    state: &'b State,
    device: &'b Device,
) -> impl Iterator<Item = Tensor<1>> + 'b {
    layout.ranges().map(move |(range, _)| {
        let len = range.len();
        Tensor::from_data(TensorData::new(state.parameters[range].to_vec(), [len]), device)
    })
}
