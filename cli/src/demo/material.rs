//! The network and the frames of a run, in memory, and as files where other processes need them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use headwater_inference::bundle::Bundle;
use headwater_samples::archive::{Archive, ArchiveOptions, recorded};
use headwater_samples::data_set::OpenOptions;
use headwater_samples::{Part, Shape, catalogue};

use crate::args::DemoArgs;
use crate::{BadUsage, shipped};

/// Samples of a data set that are played; after them it begins again.
const MOST_RECORDED: usize = 2000;

/// What is run.
pub(super) struct Material {
    pub(super) bundle: Arc<Bundle>,
    pub(super) frames: Arc<Archive>,
    bundle_file: Source,
    frames_file: Source,
}

/// Where something comes from.
enum Source {
    File(PathBuf),
    Memory(Vec<u8>),
}

/// What the arguments name.
///
/// # Errors
/// What cannot be read, and why.
pub(super) fn of(args: &DemoArgs) -> anyhow::Result<Material> {
    let (bundle, bundle_file) = match &args.bundle {
        Some(path) => {
            let bundle =
                Bundle::open(path).with_context(|| format!("opening the bundle {}", path.display()))?;
            (bundle, Source::File(path.clone()))
        }
        None => {
            let bundle = Bundle::from_bytes(shipped::BUNDLE).context("opening the shipped bundle")?;
            (bundle, Source::Memory(shipped::BUNDLE.to_vec()))
        }
    };
    let (frames, frames_file) = match (&args.frames, &args.data, &args.data_dir) {
        (Some(path), ..) => {
            let frames =
                Archive::open(path).with_context(|| format!("opening the frames {}", path.display()))?;
            (frames, Source::File(path.clone()))
        }
        (None, Some(name), Some(dir)) => {
            let bytes = test_part(name, dir, &bundle)?;
            let frames = Archive::read(&bytes, name, &ArchiveOptions::default())?;
            (frames, Source::Memory(bytes))
        }
        _ => {
            let frames = Archive::read(shipped::FRAMES, "the shipped frames", &ArchiveOptions::default());
            (frames.context("opening the shipped frames")?, Source::Memory(shipped::FRAMES.to_vec()))
        }
    };
    Ok(Material { bundle: Arc::new(bundle), frames: Arc::new(frames), bundle_file, frames_file })
}

/// The test part of a data set, as the network wants it, as an archive.
fn test_part(name: &str, dir: &Path, bundle: &Bundle) -> anyhow::Result<Vec<u8>> {
    let network = bundle.manifest();
    let view = network.preprocessing;
    let [channels, height, width] = [view.channels, view.height, view.width].map(|side| side as usize);
    let options = OpenOptions {
        shape: Some(Shape { channels, height, width }),
        slots: Some(usize::from(network.slots)),
        ..OpenOptions::default()
    };
    let data = catalogue::open(name, dir, options).map_err(|error| BadUsage(format!("--data: {error}")))?;
    Ok(recorded(&*data, Part::Test, MOST_RECORDED)?.finish(Vec::new())?)
}

impl Material {
    /// The bundle as a file; `folder` is for one that has none.
    pub(super) fn bundle_file(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        self.bundle_file.file(&folder.join("bundle.hwb"))
    }

    /// The frames as a file; `folder` is for those that have none.
    pub(super) fn frames_file(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        self.frames_file.file(&folder.join("frames.tar.gz"))
    }
}

impl Source {
    fn file(&self, path: &Path) -> anyhow::Result<PathBuf> {
        match self {
            Self::File(path) => {
                std::path::absolute(path).with_context(|| format!("finding {}", path.display()))
            }
            Self::Memory(bytes) => {
                std::fs::write(path, bytes).with_context(|| format!("writing {}", path.display()))?;
                Ok(path.to_owned())
            }
        }
    }
}
