//! Bundle and frames of a run, in memory and as files for other programs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use headwater_inference::bundle::Bundle;
use headwater_samples::archive::{Archive, ArchiveOptions, recorded};
use headwater_samples::data_set::OpenOptions;
use headwater_samples::{Part, Shape, catalogue};

use crate::args::DemoArgs;
use crate::{BadUsage, shipped};

/// Samples of a data set that become frames. A longer run repeats these frames.
const MAX_RECORDED: usize = 2000;

/// Bundle and frames of a run.
pub(super) struct Inputs {
    pub(super) bundle: Arc<Bundle>,
    pub(super) frames: Arc<Archive>,
    bundle_origin: Origin,
    frames_origin: Origin,
}

/// Where an input was read from.
enum Origin {
    File(PathBuf),
    Memory(Vec<u8>),
}

/// Reads the bundle and the frames that the arguments name. The program contains the defaults.
pub(super) fn read(args: &DemoArgs) -> anyhow::Result<Inputs> {
    let (bundle, bundle_origin) = match &args.bundle {
        Some(path) => {
            let bundle =
                Bundle::open(path).with_context(|| format!("opening the bundle {}", path.display()))?;
            (bundle, Origin::File(path.clone()))
        }
        None => {
            let bundle = Bundle::from_bytes(shipped::BUNDLE).context("opening the shipped bundle")?;
            (bundle, Origin::Memory(shipped::BUNDLE.to_vec()))
        }
    };
    let (frames, frames_origin) = match (&args.frames, &args.data, &args.data_dir) {
        (Some(path), ..) => {
            let frames =
                Archive::open(path).with_context(|| format!("opening the frames {}", path.display()))?;
            (frames, Origin::File(path.clone()))
        }
        (None, Some(name), Some(dir)) => {
            let bytes = test_part(name, dir, &bundle)?;
            let frames = Archive::read(&bytes, name, &ArchiveOptions::default())?;
            (frames, Origin::Memory(bytes))
        }
        _ => {
            let frames = Archive::read(shipped::FRAMES, "the shipped frames", &ArchiveOptions::default());
            (frames.context("opening the shipped frames")?, Origin::Memory(shipped::FRAMES.to_vec()))
        }
    };
    Ok(Inputs { bundle: Arc::new(bundle), frames: Arc::new(frames), bundle_origin, frames_origin })
}

/// The test part of a data set as an archive, in the network's shape.
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
    Ok(recorded(&*data, Part::Test, MAX_RECORDED)?.finish(Vec::new())?)
}

impl Inputs {
    /// Path of the bundle. A bundle from memory is written into `folder`.
    pub(super) fn bundle_file(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        self.bundle_origin.file(&folder.join("bundle.hwb"))
    }

    /// Path of the frames. Frames from memory are written into `folder`.
    pub(super) fn frames_file(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        self.frames_origin.file(&folder.join("frames.tar.gz"))
    }
}

impl Origin {
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
