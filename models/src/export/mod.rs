//! From a trained network to a bundle.

mod bundle;
mod manifest;
pub mod onnx;
pub mod packed;
pub mod parity;
mod sections;

pub use bundle::{ExportError, Exported, Shipped, export};
pub use manifest::manifest;
pub use sections::onnx_sections;
