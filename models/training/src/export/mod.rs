//! Export of a trained network as a bundle.

mod bundle;
pub mod packed;
pub mod parity;
mod sections;

pub use bundle::{ExportError, Exported, bundle_writer, export};
pub use sections::onnx_sections;

pub use crate::layers::NoPackedForm;
use crate::layers::{State, TrainedState};
use crate::network::Network;

/// A network with its trained parameters and statistics.
#[derive(Clone, Copy, Debug)]
pub struct TrainedNetwork<'a> {
    /// The layers.
    pub layers: &'a Network,
    /// Parameters and running statistics of the layers.
    pub state: &'a State,
}

impl<'a> TrainedNetwork<'a> {
    /// The state with its layout.
    pub fn trained(&self) -> TrainedState<'a> {
        TrainedState { layout: &self.layers.layout, state: self.state }
    }
}
