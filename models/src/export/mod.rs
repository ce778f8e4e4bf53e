//! From a trained network to a bundle.

pub mod onnx;
