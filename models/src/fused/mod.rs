//! Operations with hand-written gradients, run inside burn's autodiff graph.
//!
//! burn-flex spends most of a training step of these small networks outside the matrix products (per-element pooling and batch
//! norm, layout changes in the convolution and its gradients). Each operation here does the same mathematics in one pass over
//! memory on one thread; each is tested against burn's own operation or against finite differences. burn keeps the tape.
//!
//! Conventions: `f32`, row-major, `[batch, channels, height, width]`; results depend on the inputs alone, never on threads.

mod conv;
mod join;
mod linear;
mod loss;
mod norm;
mod pool;
mod sign;
mod simd;

use std::fmt::Debug;
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
pub use norm::{BatchStatistics, EPSILON, batch_norm, fold, scale_shift};
pub use pool::max_pool;
pub use sign::sign;

/// The saved state of an operation for its gradient.
trait Gradient<const N: usize>: Clone + Debug + Send + 'static {
    /// Gradients of the inputs for the gradient of the output; `None` where `wanted` is false.
    fn gradient(&self, output: &[f32], wanted: [bool; N]) -> [Option<FlexTensor>; N];
}

/// An input of an operation: its numbers, and while training its node on the tape.
struct Operand {
    values: FlexTensor,
    node: Option<NodeGuard>,
}

impl Operand {
    fn new<const D: usize>(tensor: Tensor<D>) -> Self {
        match tensor.clone().try_into_primitive::<Autodiff<Flex>>() {
            Ok(tracked) => {
                let (values, node) = tracked.into_parts();
                Self { values: values.to_contiguous(), node: Some(node) }
            }
            Err(_) => {
                let values =
                    tensor.try_into_primitive::<Flex>().expect("headwater-models runs on burn-flex only");
                Self { values: values.to_contiguous(), node: None }
            }
        }
    }

    fn shape<const D: usize>(&self) -> [usize; D] {
        let shape: &[usize] = self.values.layout().shape();
        shape.try_into().expect("an operand keeps the rank of its tensor")
    }

    fn slice(&self) -> &[f32] {
        slice_of(&self.values)
    }
}

/// The numbers of a contiguous tensor.
fn slice_of(tensor: &FlexTensor) -> &[f32] {
    let start = tensor.layout().start_offset();
    let len = tensor.layout().num_elements();
    &tensor.storage::<f32>()[start..start + len]
}

/// A tensor from its numbers.
fn flex<const D: usize>(values: Vec<f32>, shape: [usize; D]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape))
}

/// Puts `output` on the tape of its inputs with `gradient`, or returns a plain tensor when the inputs are on no tape.
fn record<const N: usize, const D: usize, G: Gradient<N>>(
    inputs: [Operand; N],
    output: FlexTensor,
    gradient: impl FnOnce([FlexTensor; N]) -> G,
) -> Tensor<D> {
    if inputs.iter().any(|input| input.node.is_none()) {
        return Tensor::from_primitive::<Flex>(output);
    }
    let mut values = Vec::with_capacity(N);
    let mut nodes = Vec::with_capacity(N);
    for input in inputs {
        values.push(input.values);
        nodes.extend(input.node);
    }
    let nodes: [NodeGuard; N] = nodes.try_into().unwrap_or_else(|_| unreachable!("every input has a node"));
    let values: [FlexTensor; N] =
        values.try_into().unwrap_or_else(|_| unreachable!("every input has values"));
    let tracked =
        match (Step::<G, N>(PhantomData)).prepare::<NoCheckpointing>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(gradient(values), output),
            OpsKind::UnTracked(prepared) => prepared.finish(output),
        };
    Tensor::from_primitive::<Autodiff<Flex>>(tracked)
}

#[derive(Debug)]
struct Step<G, const N: usize>(PhantomData<G>);

impl<G: Gradient<N>, const N: usize> Backward<Flex, N> for Step<G, N> {
    type State = G;

    fn backward(self, ops: Ops<G, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let output = grads.consume::<Flex>(&ops.node).to_contiguous();
        let wanted = ops.parents.each_ref().map(Option::is_some);
        let inputs = ops.state.gradient(slice_of(&output), wanted);
        for (parent, gradient) in ops.parents.into_iter().zip(inputs) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                grads.register::<Flex>(parent.id, gradient);
            }
        }
    }
}
