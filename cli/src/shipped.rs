//! Bundle and frames inside the program, so that the demo runs without files.

use std::path::Path;

use anyhow::Context;
use headwater_inference::bundle::Bundle;

/// Bundle of configuration (c), trained on `fashion-6cam`; see `models/shipped/README.md`.
pub(crate) const BUNDLE: &[u8] = include_bytes!("../../models/shipped/fashion-6cam.hwb");

/// 300 test samples of `fashion-6cam`; see `samples/shipped/README.md`.
pub(crate) const FRAMES: &[u8] = include_bytes!("../../samples/shipped/fashion-6cam-300.tar.gz");

/// Opens a bundle, the shipped one by default.
pub(crate) fn open_bundle(path: Option<&Path>) -> anyhow::Result<Bundle> {
    match path {
        Some(path) => Bundle::open(path).with_context(|| format!("opening the bundle {}", path.display())),
        None => Bundle::from_bytes(BUNDLE).context("opening the shipped bundle"),
    }
}
