//! Operations with hand-written gradients, run inside burn's autodiff graph.
//!
//! burn-flex spends most of a training step of these small networks outside the matrix products (per-element pooling and batch
//! norm, layout changes in the convolution and its gradients). Each operation here computes the same function with fewer passes over
//! memory, on one thread. burn keeps the tape: the record of operations from which gradients are computed.
//!
//! Conventions: `f32`, row-major, `[batch, channels, height, width]`; a result depends on the arguments alone, not on the number of threads.

mod conv;
mod join;
mod linear;
mod loss;
mod norm;
mod pool;
mod sign;
mod simd;

use std::fmt;
use std::marker::PhantomData;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::{Autodiff, Flex};
use burn::tensor::{Tensor, TensorData};
use burn_flex::FlexTensor;

pub use conv::conv2d;
pub use join::{JoinRows, join};
pub use linear::linear;
pub use loss::{soft_target_loss, softmax};
pub use norm::{BatchStatistics, Folded, batch_norm};
pub use pool::max_pool;
pub use sign::{sign, sign_of};

/// The values of `tensor`, contiguous, and the node of `tensor` on the tape; `None` for a tensor that is on no tape.
fn operand<const D: usize>(tensor: Tensor<D>) -> (FlexTensor, Option<NodeGuard>) {
    match tensor.clone().try_into_primitive::<Autodiff<Flex>>() {
        Ok(tracked) => {
            let (values, node) = tracked.into_parts();
            (values.to_contiguous(), Some(node))
        }
        Err(_) => {
            let values = tensor.try_into_primitive::<Flex>().expect("training runs on burn-flex only");
            (values.to_contiguous(), None)
        }
    }
}

fn slice_of(tensor: &FlexTensor) -> &[f32] {
    let start = tensor.layout().start_offset();
    let len = tensor.layout().num_elements();
    &tensor.storage::<f32>()[start..start + len]
}

fn flex<const D: usize>(values: Vec<f32>, shape: [usize; D]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape))
}

/// Puts `output` on the tape, or returns a plain tensor unless every input has a node.
///
/// `gradient` takes the gradient of `output` and one bool per input: true when the gradient of this input is wanted. `gradient` returns
/// the gradients of the inputs; only a gradient that is not wanted may be `None`.
fn record<const N: usize, const D: usize, F>(
    inputs: [Option<NodeGuard>; N],
    output: FlexTensor,
    gradient: F,
) -> Tensor<D>
where
    F: Fn(&[f32], [bool; N]) -> [Option<FlexTensor>; N] + Clone + Send + 'static,
{
    let nodes: Vec<NodeGuard> = inputs.into_iter().flatten().collect();
    let Ok(nodes) = <[NodeGuard; N]>::try_from(nodes) else {
        return Tensor::from_primitive::<Flex>(output);
    };
    let step = Step::<Gradient<F>, N>(PhantomData);
    let tracked = match step.prepare::<NoCheckpointing>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prepared) => prepared.finish(Gradient(gradient), output),
        OpsKind::UnTracked(prepared) => prepared.finish(output),
    };
    Tensor::from_primitive::<Autodiff<Flex>>(tracked)
}

/// The gradient function of an operation, with the values that it keeps from the forward pass.
#[derive(Clone)]
struct Gradient<F>(F);

impl<F> fmt::Debug for Gradient<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gradient")
    }
}

#[derive(Debug)]
struct Step<G, const N: usize>(PhantomData<G>);

impl<F, const N: usize> Backward<Flex, N> for Step<Gradient<F>, N>
where
    F: Fn(&[f32], [bool; N]) -> [Option<FlexTensor>; N] + Clone + Send + 'static,
{
    type State = Gradient<F>;

    fn backward(self, ops: Ops<Gradient<F>, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let output = grads.consume::<Flex>(&ops.node).to_contiguous();
        let wanted = ops.parents.each_ref().map(Option::is_some);
        let inputs = (ops.state.0)(slice_of(&output), wanted);
        for (parent, gradient) in ops.parents.into_iter().zip(inputs) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                grads.register::<Flex>(parent.id, gradient);
            }
        }
    }
}

#[cfg(test)]
mod testing {
    use burn::tensor::{Device, Distribution, Gradients, Tensor};

    pub(super) fn gradient<const D: usize>(input: &Tensor<D>, gradients: &Gradients) -> Vec<f32> {
        input.grad(gradients).unwrap().into_data().try_to_vec::<f32>().unwrap()
    }

    /// Asserts that outputs and gradients of the inputs differ by at most `tolerance * (1 + |burn's value|)`.
    #[track_caller]
    pub(super) fn assert_equal<const D: usize>(
        outputs: [Tensor<D>; 2],
        inputs: impl Fn(&Gradients) -> Vec<f32>,
        tolerance: f32,
    ) {
        let device = Device::flex().autodiff();
        let probe = Tensor::<D>::random(outputs[0].shape(), Distribution::Default, &device);
        let [ours, burns] = outputs.map(|y| {
            let gradients = (y.clone() * probe.clone()).sum().backward();
            [y.into_data().try_to_vec::<f32>().unwrap(), inputs(&gradients)].concat()
        });
        assert_eq!(ours.len(), burns.len());
        for (a, b) in ours.iter().zip(&burns) {
            assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{a} against {b}");
        }
    }
}
