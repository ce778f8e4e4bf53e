//! One run through the network: the parameters as tensors, and the batch statistics that training records.

use std::cell::RefCell;

use burn::tensor::{Device, Gradients, Tensor, TensorData};

use super::{Parameter, ParameterId, ParameterKind, StatisticsId, TrainedState};
use crate::fused::{BatchStatistics, sign};

/// A run through the network, for training or for inference.
pub struct Pass<'a> {
    /// Parameters and running statistics of this run.
    pub trained: TrainedState<'a>,
    device: Device,
    weights: Vec<Tensor<1>>,
    /// Statistics of the batch by id; `None` for inference, which uses the running statistics.
    recorded: Option<RefCell<Vec<Option<BatchStatistics>>>>,
}

impl<'a> Pass<'a> {
    /// A run that records gradients and normalises by the statistics of the batch.
    pub fn training(trained: TrainedState<'a>) -> Self {
        let recorded = RefCell::new(vec![None; trained.layout.statistics.len()]);
        let pass = Self::on(Device::flex().autodiff(), trained);
        let weights = pass.weights.into_iter().zip(&trained.layout.parameters);
        let weights = weights
            .map(|(weight, parameter)| if parameter.is_frozen { weight } else { weight.require_grad() })
            .collect();
        Self { weights, recorded: Some(recorded), ..pass }
    }

    /// A run that normalises by the running statistics.
    pub fn inference(trained: TrainedState<'a>) -> Self {
        Self::on(Device::flex(), trained)
    }

    fn on(device: Device, trained: TrainedState<'a>) -> Self {
        let TrainedState { layout, state } = trained;
        let weight = |parameter: &Parameter| {
            let values = state.parameters[parameter.range.clone()].to_vec();
            let len = values.len();
            Tensor::from_data(TensorData::new(values, [len]), &device)
        };
        let weights = layout.parameters.iter().map(weight).collect();
        Self { trained, device, weights, recorded: None }
    }

    /// True when this run records gradients.
    pub fn trains(&self) -> bool {
        self.recorded.is_some()
    }

    /// True when training does not change the parameter.
    pub fn is_frozen(&self, id: ParameterId) -> bool {
        self.trained.layout.parameters[id.0].is_frozen
    }

    /// A tensor on the device of this run.
    pub fn tensor<const D: usize>(&self, values: Vec<f32>, shape: [usize; D]) -> Tensor<D> {
        Tensor::from_data(TensorData::new(values, shape), &self.device)
    }

    /// A parameter as used by the network: for a binary weight, the signs of its latent values.
    ///
    /// # Panics
    /// When the parameter does not have `D` dimensions.
    pub fn weight<const D: usize>(&self, id: ParameterId) -> Tensor<D> {
        let Parameter { shape, kind, .. } = &self.trained.layout.parameters[id.0];
        let shape: [usize; D] = shape.as_slice().try_into().expect("layers ask for the rank they laid out");
        let weight = self.weights[id.0].clone().reshape(shape);
        if *kind == ParameterKind::Binary { sign(weight) } else { weight }
    }

    /// Records the statistics of this batch.
    pub fn record_statistics(&self, id: StatisticsId, statistics: BatchStatistics) {
        if let Some(recorded) = &self.recorded {
            recorded.borrow_mut()[id.0] = Some(statistics);
        }
    }

    /// The statistics of the batch; empty for inference.
    pub fn into_statistics(self) -> Vec<Option<BatchStatistics>> {
        self.recorded.map(RefCell::into_inner).unwrap_or_default()
    }

    /// Gradients of all parameters as one vector (zeros for an unused parameter), and the statistics of the batch.
    ///
    /// # Panics
    /// Never: tensors hold f32.
    pub fn finish(self, gradients: &Gradients) -> (Vec<f32>, Vec<Option<BatchStatistics>>) {
        let layout = self.trained.layout;
        let mut flat = Vec::with_capacity(layout.parameter_count());
        for (weight, parameter) in self.weights.iter().zip(&layout.parameters) {
            match weight.grad(gradients) {
                Some(gradient) => {
                    flat.extend(gradient.into_data().try_to_vec::<f32>().expect("tensors hold f32"));
                }
                None => flat.resize(parameter.range.end, 0.0),
            }
        }
        (flat, self.into_statistics())
    }
}

/// The values of a tensor, row-major.
pub(crate) fn values<const D: usize>(tensor: &Tensor<D>) -> Vec<f32> {
    tensor.clone().into_data().try_to_vec::<f32>().expect("tensors hold f32")
}
