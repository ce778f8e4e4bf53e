//! The shipped bundle and frames.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_inference::bundle::Bundle;
use headwater_samples::archive::{Archive, Frame};

/// The shipped bundle: the trained network of the demo.
///
/// # Panics
/// When the file is missing or damaged.
pub fn bundle() -> Arc<Bundle> {
    Arc::new(Bundle::open(bundle_path()).expect("the shipped bundle opens"))
}

/// The 300 shipped test samples.
///
/// # Panics
/// When the file is missing or damaged.
pub fn frames() -> Arc<Archive> {
    Arc::new(Archive::open(&frames_path()).expect("the shipped frames open"))
}

/// Path of the shipped bundle.
pub fn bundle_path() -> PathBuf {
    root().join("models/shipped/fashion-6cam.hwb")
}

/// Path of the archive of shipped frames.
pub fn frames_path() -> PathBuf {
    root().join("io/samples/shipped/fashion-6cam-300.tar.gz")
}

/// Root folder of the project.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Pixels of the view of each slot, for one sample; `None` for a slot that does not see the sample.
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
