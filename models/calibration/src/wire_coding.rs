//! Coding of the devices' messages: levels of their scores, and context tables of their maps.

use headwater_inference::bundle::Bundle;
use headwater_inference::manifest::ScoreLevels;
use headwater_inference::sections::{MapCoder, MapCoderError};
use headwater_protocol::{ScoreEncoding, Slot};

/// Coding of the devices' messages.
#[derive(Clone, Debug)]
pub struct WireCoding {
    /// Encoding of the scores.
    pub scores: ScoreEncoding,
    /// Score of each level, by slot; empty if scores are floats.
    pub score_levels: Vec<ScoreLevels>,
    /// Coders by slot; empty if messages carry uncoded maps.
    pub map_coders: Vec<MapCoder>,
}

impl WireCoding {
    /// The coding of a bundle; `None` for floats and plain maps.
    ///
    /// # Errors
    /// [`MapCoderError`] when the bundle lacks the context table of a slot.
    pub fn of_bundle(bundle: &Bundle) -> Result<Option<Self>, MapCoderError> {
        let manifest = bundle.manifest();
        if manifest.scores == ScoreEncoding::F32 && !manifest.codes_features() {
            return Ok(None);
        }
        let slots = Slot::first(usize::from(manifest.slots));
        let map_coders = slots.filter_map(|slot| MapCoder::of(bundle, slot).transpose());
        Ok(Some(Self {
            scores: manifest.scores,
            score_levels: manifest.score_levels.clone(),
            map_coders: map_coders.collect::<Result<_, _>>()?,
        }))
    }

    /// Rounds the scores of a slot, `[views, classes]`, to the levels that messages carry.
    pub fn round(&self, slot: usize, scores: &mut [f32]) {
        if let Some(levels) = self.score_levels.get(slot) {
            levels.round(self.scores, scores);
        }
    }
}
