//! The bundle and the frames that the project ships.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_inference::bundle::Bundle;
use headwater_samples::archive::{Archive, Frame};

/// The trained network that the demo runs.
///
/// # Panics
/// When it is missing or damaged.
pub fn bundle() -> Arc<Bundle> {
    Arc::new(Bundle::open(bundle_path()).expect("the shipped bundle opens"))
}

/// 300 test samples.
///
/// # Panics
/// When they are missing or damaged.
pub fn frames() -> Arc<Archive> {
    Arc::new(Archive::open(&frames_path()).expect("the shipped frames open"))
}

/// Where the bundle is.
pub fn bundle_path() -> PathBuf {
    root().join("models/shipped/fashion-6cam.hwb")
}

/// Where the frames are.
pub fn frames_path() -> PathBuf {
    root().join("samples/shipped/fashion-6cam-300.tar.gz")
}

/// The checkout.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The pixels of one sample, by slot; `None` where it is not in view.
///
/// # Panics
/// When a shipped frame is broken.
pub fn views(frames: &Archive, sample: usize) -> Vec<Option<Vec<u8>>> {
    (0..frames.slots())
        .map(|slot| match frames.frame(sample, slot) {
            Frame::View(view) => Some(view.into_owned().pixels),
            Frame::NotInView => None,
            Frame::Broken { name, reason } => panic!("shipped frame {name}: {reason}"),
        })
        .collect()
}
