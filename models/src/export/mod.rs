//! From a trained network to a bundle. Layers expose their numbers; the files named after a layer kind lower them.

mod bundle;
mod conv;
mod convp;
mod fc;
mod manifest;
pub mod onnx;
pub mod packed;
pub mod parity;
mod pool;
mod sections;

pub use bundle::{BundleContents, ExportError, Exported, export};
pub use manifest::manifest;
pub use sections::onnx_sections;

use crate::layers::{State, TrainedState};
use crate::network::Network;
use crate::spec::Spec;

/// A network with its spec and its trained numbers.
#[derive(Clone, Copy, Debug)]
pub struct TrainedNetwork<'a> {
    /// The spec.
    pub spec: &'a Spec,
    /// The layers of the spec.
    pub layers: &'a Network,
    /// The numbers of the layers.
    pub state: &'a State,
}

impl TrainedNetwork<'_> {
    /// The numbers with their layout.
    pub fn trained(&self) -> TrainedState<'_> {
        TrainedState { layout: &self.layers.layout, state: self.state }
    }
}
