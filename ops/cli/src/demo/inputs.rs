//! Bundle and frames of a run, in memory, and as files for the programs of the tiers.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use headwater_end_device::Frames;
use headwater_inference::bundle::Bundle;
use headwater_samples::archive::{Archive, ArchiveOptions, recorded};
use headwater_samples::data_set::{Framings, OpenOptions};
use headwater_samples::{Part, Shape, catalogue};

use crate::args::DemoArgs;
use crate::{BadUsage, shipped};

/// Largest number of samples of a data set that become frames. A longer run repeats these frames.
const MAX_RECORDED: usize = 2000;

pub(super) struct Inputs {
    pub(super) bundle: Arc<Bundle>,
    pub(super) frames: Arc<Archive>,
    pub(super) bundle_origin: Origin,
    pub(super) frames_origin: Origin,
}

/// Origin of a bundle or of frames: a file, or bytes in memory.
pub(super) enum Origin {
    File(PathBuf),
    Memory(Cow<'static, [u8]>),
}

/// Reads the bundle and the frames that the arguments name. The program contains the defaults.
pub(super) fn read(args: &DemoArgs) -> anyhow::Result<Inputs> {
    let bundle = shipped::open_bundle(args.bundle.as_deref())?;
    let in_memory = |frames: Cow<'static, [u8]>, name: &str| -> anyhow::Result<_> {
        let archive = Archive::read(&frames, name, &ArchiveOptions::default())?;
        Ok((archive, Origin::Memory(frames)))
    };
    let (frames, frames_origin) = match (&args.frames, &args.data, &args.data_dir) {
        (Some(path), ..) => {
            let frames =
                Archive::open(path).with_context(|| format!("opening the frames {}", path.display()))?;
            Frames::warn_of_broken(&frames);
            (frames, Origin::File(path.clone()))
        }
        (None, Some(name), Some(dir)) => in_memory(test_part(name, dir, &bundle)?.into(), name)?,
        _ => in_memory(shipped::FRAMES.into(), "the shipped frames").context("opening the shipped frames")?,
    };
    let shipped_bundle = || Origin::Memory(shipped::BUNDLE.into());
    let bundle_origin = args.bundle.clone().map_or_else(shipped_bundle, Origin::File);
    Ok(Inputs { bundle: Arc::new(bundle), frames: Arc::new(frames), bundle_origin, frames_origin })
}

/// The test part of a data set as an archive of frames, with views of the network's shape.
fn test_part(name: &str, dir: &Path, bundle: &Bundle) -> anyhow::Result<Vec<u8>> {
    let network = bundle.manifest();
    let view = &network.preprocessing;
    let [channels, height, width] = [view.channels, view.height, view.width].map(|side| side as usize);
    let options = OpenOptions {
        shape: Some(Shape { channels, height, width }),
        slots: Some(usize::from(network.slots)),
        framings: Framings { regions: &view.regions, fit: view.fit.unwrap_or_default() },
        ..OpenOptions::default()
    };
    let data = catalogue::open(name, dir, options).map_err(|error| BadUsage(format!("--data: {error}")))?;
    Ok(recorded(&*data, Part::Test, MAX_RECORDED)?.finish(Vec::new())?)
}

impl Origin {
    /// Path of a file with the bundle or the frames. Bytes in memory are first written to `path`.
    pub(super) fn file(&self, path: &Path) -> anyhow::Result<PathBuf> {
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
