//! The sections as the tiers run them: of devices, of edges, of exits over joined scores, and of the cloud.

mod device;
mod joined;
mod map_coder;
mod maps;
mod score_coder;
mod score_limits;
mod scores;

use std::borrow::Cow;

use thiserror::Error;

use crate::aggregate::AggregateError;
use crate::bundle::{Bundle, BundleError};
use crate::engine::{Engine, EngineError, Input, Outputs, Section};
use crate::manifest::{FeatureEncoding, FeatureMap, InputKind};

pub use device::DeviceSection;
pub use joined::{CloudSection, EdgeSection};
pub use map_coder::{MapCoder, MapCoderError};
pub use score_coder::ScoreCoder;
pub use score_limits::{LIMIT_TOLERANCE, OutsideLimits, ScoreLimits};
pub use scores::ScoresExit;

/// Output of the section of a device or an edge for one sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TierOutput {
    /// Scores, one per class; empty if devices have no section.
    pub scores: Vec<f32>,
    /// The map in its wire encoding: packed bits, floats, or the pixels of a view.
    pub features: Vec<u8>,
}

/// A section that cannot be loaded or run.
#[derive(Debug, Error)]
pub enum SectionError {
    /// The bundle lacks the section.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The engine refuses the section, or fails to run it.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The maps of a slot cannot be coded.
    #[error(transparent)]
    Coder(#[from] MapCoderError),
    /// No source is present, a map has NaN or infinity, or a buffer has the wrong length.
    #[error(transparent)]
    Aggregate(#[from] AggregateError),
    /// A sample of a batch has no present source.
    #[error("sample {row} of the batch: expected at least one present slot, found none")]
    NoView {
        /// Position in the batch.
        row: usize,
    },
    /// A buffer of the wrong length.
    #[error("{what} of {batch} samples: expected {expected}, found {found}")]
    Length {
        /// Name of the buffer.
        what: &'static str,
        /// Number of samples.
        batch: usize,
        /// Elements expected.
        expected: usize,
        /// Elements found.
        found: usize,
    },
    /// An edge that the network does not have.
    #[error("edge {edge}: expected one of the network's {edges} edges, counted from 0")]
    NoEdge {
        /// Index asked for.
        edge: usize,
        /// Number of edges of the network.
        edges: usize,
    },
    /// An exit that concatenates scores, made without the section that concatenation needs.
    #[error(
        "exit over scores: aggregation cc needs the section `local` or `edge` of a bundle; without one only mp and ap work"
    )]
    NeedsSection,
}

/// Loads a section and runs the section once on zeros.
///
/// A section that cannot run is refused here, and the first real sample does not wait for cold memory.
fn load(bundle: &Bundle, name: &str, engine: &dyn Engine) -> Result<Box<dyn Section>, SectionError> {
    bundle.manifest().check_runs().map_err(BundleError::from)?;
    let stored = bundle.section(name)?;
    let mut section = engine.load(&stored)?;
    let elements = stored.manifest.input_len();
    let (pixels, floats) = (vec![0; elements], vec![0.0; elements]);
    let zeros = match stored.manifest.input.kind {
        InputKind::Pixels => Input::Pixels(&pixels),
        InputKind::Floats => Input::Floats(&floats),
    };
    section.run(1, zeros, &mut Outputs::default())?;
    Ok(section)
}

/// Output of each sample of a run. The manifest check puts scores first, features second.
fn tier_outputs(outputs: &Outputs, classes: usize, map: &FeatureMap) -> Vec<TierOutput> {
    let features: Cow<'_, [u8]> = match map.encoding {
        FeatureEncoding::Bits => Cow::Borrowed(outputs.bits(1)),
        FeatureEncoding::Pixels | FeatureEncoding::F32 => {
            outputs.floats(1).iter().flat_map(|float| float.to_le_bytes()).collect()
        }
    };
    let pairs = outputs.floats(0).chunks_exact(classes).zip(features.chunks_exact(map.packed_bytes()));
    pairs.map(|(s, f)| TierOutput { scores: s.to_vec(), features: f.to_vec() }).collect()
}

fn check_length(what: &'static str, batch: usize, expected: usize, found: usize) -> Result<(), SectionError> {
    if expected == found { Ok(()) } else { Err(SectionError::Length { what, batch, expected, found }) }
}
