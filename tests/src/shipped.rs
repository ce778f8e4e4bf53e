//! The shipped bundle and frames.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_inference::bundle::Bundle;
use headwater_samples::archive::{Archive, Frame};

/// The trained network of the demo.
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

/// Path of the bundle.
pub fn bundle_path() -> PathBuf {
    root().join("models/shipped/fashion-6cam.hwb")
}

/// Path of the frames.
pub fn frames_path() -> PathBuf {
    root().join("io/samples/shipped/fashion-6cam-300.tar.gz")
}

/// Root folder of the project.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Pixels of one sample by slot; `None` for a slot that does not see the sample.
///
/// # Panics
/// When a shipped frame is broken.
pub fn views(frames: &Archive, sample: usize) -> Vec<Option<Vec<u8>>> {
    (0..frames.slots())
        .map(|slot| match frames.frame(sample, slot) {
            Frame::View(view) => Some(view.into_owned().pixels),
            Frame::NotInView => None,
            Frame::Broken(broken) => panic!("shipped {broken}"),
        })
        .collect()
}
