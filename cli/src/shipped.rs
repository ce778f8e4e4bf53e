//! What the binary carries, so that the demo runs without a file: a trained bundle and frames of its test part.

/// Bundle of configuration (c), trained on `fashion-6cam`; see `models/shipped/README.md`.
pub(crate) const BUNDLE: &[u8] = include_bytes!("../../models/shipped/fashion-6cam.hwb");

/// 300 test samples of `fashion-6cam`; see `samples/shipped/README.md`.
pub(crate) const FRAMES: &[u8] = include_bytes!("../../samples/shipped/fashion-6cam-300.tar.gz");
