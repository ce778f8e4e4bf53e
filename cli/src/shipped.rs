//! Bundle and frames inside the program, so that the demo runs without files.

/// Bundle of configuration (c), trained on `fashion-6cam`; see `models/shipped/README.md`.
pub(crate) const BUNDLE: &[u8] = include_bytes!("../../models/shipped/fashion-6cam.hwb");

/// 300 test samples of `fashion-6cam`; see `samples/shipped/README.md`.
pub(crate) const FRAMES: &[u8] = include_bytes!("../../samples/shipped/fashion-6cam-300.tar.gz");
