//! One run through the network: its numbers as tensors, and what training takes note of.

use std::cell::RefCell;

use burn::tensor::{Device, Gradients, Tensor, TensorData};

use super::{Folded, Layout, Norm, ParameterId, State, StatisticsId};
use crate::fused::BatchStatistics;

/// A run through the network, for training or for inference.
pub struct Pass<'a> {
    layout: &'a Layout,
    state: &'a State,
    device: Device,
    weights: Vec<Tensor<1>>,
    /// Statistics of the batch by place; `None` for inference, which uses the running ones.
    noted: Option<RefCell<Vec<Option<BatchStatistics>>>>,
}

impl<'a> Pass<'a> {
    /// A run that records gradients and normalises by the batch.
    pub fn training(layout: &'a Layout, state: &'a State) -> Self {
        let device = Device::flex().autodiff();
        let noted = Some(RefCell::new(vec![None; layout.statistics_len()]));
        let weights = tensors(layout, state, &device).map(Tensor::require_grad).collect();
        Self { layout, state, device, weights, noted }
    }

    /// A run that normalises by the running statistics.
    pub fn inference(layout: &'a Layout, state: &'a State) -> Self {
        let device = Device::flex();
        let weights = tensors(layout, state, &device).collect();
        Self { layout, state, device, weights, noted: None }
    }

    /// Whether this run records gradients.
    pub fn trains(&self) -> bool {
        self.noted.is_some()
    }

    /// A tensor of this run.
    pub fn tensor<const D: usize>(&self, values: Vec<f32>, shape: [usize; D]) -> Tensor<D> {
        Tensor::from_data(TensorData::new(values, shape), &self.device)
    }

    /// A parameter.
    ///
    /// # Panics
    /// When it was laid out with another rank.
    pub fn weight<const D: usize>(&self, id: ParameterId) -> Tensor<D> {
        let shape: [usize; D] =
            self.layout.shape(id).try_into().expect("layers ask for the rank they laid out");
        self.weights[id.0].clone().reshape(shape)
    }

    /// Running means and variances.
    pub fn running(&self, id: StatisticsId) -> (&'a [f32], &'a [f32]) {
        self.state.running(self.layout, id)
    }

    /// A batch norm as factor and summand, from the running statistics.
    pub fn folded(&self, norm: &Norm) -> Folded {
        norm.folded(self.layout, self.state)
    }

    /// Takes note of the statistics of this batch.
    pub fn note(&self, id: StatisticsId, statistics: BatchStatistics) {
        if let Some(noted) = &self.noted {
            noted.borrow_mut()[id.0] = Some(statistics);
        }
    }

    /// Gradients of all parameters as one vector (zeros where a parameter took no part), and the statistics of the batch.
    pub fn finish(self, gradients: &Gradients) -> (Vec<f32>, Vec<Option<BatchStatistics>>) {
        let mut flat = Vec::with_capacity(self.layout.parameter_count());
        for (weight, (at, _)) in self.weights.iter().zip(self.layout.places()) {
            let gradient =
                weight.grad(gradients).and_then(|gradient| gradient.into_data().try_to_vec::<f32>().ok());
            match gradient {
                Some(gradient) => flat.extend(gradient),
                None => flat.resize(flat.len() + at.len(), 0.0),
            }
        }
        (flat, self.noted.map(RefCell::into_inner).unwrap_or_default())
    }
}

impl State {
    /// Running means and variances of a place.
    pub fn running(&self, layout: &Layout, id: StatisticsId) -> (&[f32], &[f32]) {
        let at = layout.statistics_at(id);
        let half = at.len() / 2;
        self.statistics[at].split_at(half)
    }

    /// The numbers of a parameter.
    pub fn parameter(&self, layout: &Layout, id: ParameterId) -> &[f32] {
        &self.parameters[layout.at(id)]
    }
}

fn tensors<'b>(
    layout: &'b Layout,
    state: &'b State,
    device: &'b Device,
) -> impl Iterator<Item = Tensor<1>> + 'b {
    layout.places().map(move |(at, _)| {
        let len = at.len();
        Tensor::from_data(TensorData::new(state.parameters[at].to_vec(), [len]), device)
    })
}
