//! Scores of a device as levels of a few bits.
//!
//! A level `q` of a slot stands for the score `least + q * step`. A device rounds its scores to the nearest levels before anything else
//! uses the scores, so that devices, aggregators, evaluation and export see the same numbers.

use headwater_protocol::scores::{floats, levels, put_levels};
use headwater_protocol::{ScoreEncoding, Slot};

use crate::manifest::{NetworkManifest, ScoreLevels};

/// Encoding of the scores of one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScoreCoder {
    encoding: ScoreEncoding,
    levels: ScoreLevels,
}

impl ScoreCoder {
    /// The encoding of a slot of a network.
    pub fn of(manifest: &NetworkManifest, slot: Slot) -> Self {
        let levels = manifest.score_levels.get(slot.index()).copied();
        Self { encoding: manifest.scores, levels: levels.unwrap_or_default() }
    }

    /// Rounds scores to the nearest levels. Scores under a float encoding, and scores that are not finite, stay as they are.
    pub fn round(&self, scores: &mut [f32]) {
        self.levels.round(self.encoding, scores);
    }

    /// Appends scores to a message.
    pub fn put(&self, scores: &[f32], out: &mut Vec<u8>) {
        match self.encoding.levels() {
            None => out.extend(scores.iter().flat_map(|score| score.to_le_bytes())),
            Some(count) => {
                let levels = scores.iter().map(|score| self.levels.nearest(count, *score));
                put_levels(levels, self.encoding.bits(), out);
            }
        }
    }

    /// Replaces `scores` by the scores of `classes` classes in the body of a message.
    pub fn read(&self, body: &[u8], classes: usize, scores: &mut Vec<f32>) {
        scores.clear();
        match self.encoding.levels() {
            None => scores.extend(floats(body)),
            Some(_) => {
                let levels = levels(body, self.encoding.bits()).take(classes);
                scores.extend(levels.map(|level| self.levels.score(level)));
            }
        }
    }
}

impl ScoreLevels {
    /// The score that a level stands for.
    pub fn score(&self, level: u8) -> f32 {
        self.least + self.step * f32::from(level)
    }

    /// The level nearest to a score, of `count` levels.
    pub fn nearest(&self, count: u16, score: f32) -> u8 {
        // The cast saturates; NaN becomes level 0.
        (((score - self.least) / self.step).round() as u8).min((count - 1) as u8)
    }

    /// Rounds scores to the nearest levels of an encoding. Scores under a float encoding, and scores that are not finite, stay as they are.
    pub fn round(&self, encoding: ScoreEncoding, scores: &mut [f32]) {
        let Some(count) = encoding.levels() else { return };
        for score in scores.iter_mut().filter(|score| score.is_finite()) {
            *score = self.score(self.nearest(count, *score));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVELS: ScoreLevels = ScoreLevels { least: -3.0, step: 0.4 };

    #[test]
    fn rounded_scores_survive_their_bytes() {
        for encoding in ScoreEncoding::ALL {
            let coder = ScoreCoder { encoding, levels: LEVELS };
            let mut rounded: Vec<f32> = (0..60).map(|at| (at as f32 - 30.0) * 0.37).collect();
            coder.round(&mut rounded);
            let (mut bytes, mut found) = (Vec::new(), Vec::new());
            coder.put(&rounded, &mut bytes);
            assert_eq!(bytes.len(), encoding.bytes(60));
            coder.read(&bytes, 60, &mut found);
            assert_eq!(found, rounded);
            let again = rounded.clone();
            coder.round(&mut rounded);
            assert_eq!(rounded, again);
        }
    }

    #[test]
    fn a_score_goes_to_the_nearest_level_and_one_beyond_the_range_to_its_end() {
        let coder =
            ScoreCoder { encoding: ScoreEncoding::Bits2, levels: ScoreLevels { least: -1.0, step: 0.5 } };
        let mut scores = [-9.0, -0.8, -0.7, 0.2, 9.0, f32::MAX];
        coder.round(&mut scores);
        assert_eq!(scores, [-1.0, -1.0, -0.5, 0.0, 0.5, 0.5]);
        let mut scores = [f32::NAN, f32::INFINITY];
        coder.round(&mut scores);
        assert!(scores.iter().all(|score| !score.is_finite()));
    }
}
