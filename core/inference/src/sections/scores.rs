//! The exits over the scores of several sources.

use headwater_protocol::{Exit, ExitWord, SourceSet};

use super::{SectionError, check_length, load};
use crate::aggregate::{self, AggregateError};
use crate::bundle::Bundle;
use crate::engine::{Engine, Input, Outputs, Section};
use crate::manifest::Aggregation;

/// An exit over the scores of several sources: `local` over the devices, `edge` over the edges.
///
/// The scores are joined by their maximum or mean, or are concatenated and run through a section.
pub struct ScoresExit {
    join: Join,
    sources: usize,
    classes: usize,
}

enum Join {
    Max,
    Mean,
    Section { section: Box<dyn Section>, input: Vec<f32>, outputs: Outputs },
}

impl ScoresExit {
    /// The exit `local` over the scores of a network's slots, or `edge` over the scores of its edges; `None` if the network has no such
    /// exit.
    ///
    /// # Errors
    /// When concatenation needs the section of that name, and the bundle lacks the section or the engine refuses the section.
    pub fn load(bundle: &Bundle, exit: Exit, engine: &dyn Engine) -> Result<Option<Self>, SectionError> {
        let manifest = bundle.manifest();
        let join = match exit.word() {
            ExitWord::Local => Some((manifest.local_aggregation, usize::from(manifest.slots))),
            ExitWord::Edge => manifest.edge.as_ref().map(|edge| (edge.fusion, edge.groups.len())),
            ExitWord::Device | ExitWord::Cloud => None,
        };
        let (Some((aggregation, sources)), true) = (join, manifest.configuration.has(exit)) else {
            return Ok(None);
        };
        let classes = manifest.classes();
        if aggregation != Aggregation::Cc {
            return Self::masked(aggregation, sources, classes).map(Some);
        }
        let section = load(bundle, exit.name(), engine)?;
        let input = vec![0.0; sources * classes + sources];
        Ok(Some(Self {
            join: Join::Section { section, input, outputs: Outputs::default() },
            sources,
            classes,
        }))
    }

    /// An exit without a section: maximum or mean over the present sources.
    ///
    /// # Errors
    /// [`SectionError::NeedsSection`] for concatenation.
    pub fn masked(aggregation: Aggregation, sources: usize, classes: usize) -> Result<Self, SectionError> {
        let join = match aggregation {
            Aggregation::Mp => Join::Max,
            Aggregation::Ap => Join::Mean,
            Aggregation::Cc => return Err(SectionError::NeedsSection),
        };
        Ok(Self { join, sources, classes })
    }

    /// Logits of the exit for one sample. Allocates nothing for maximum and mean.
    ///
    /// # Shapes
    /// - `scores`: `[sources, classes]`; rows of absent sources are ignored
    /// - `out`: `[classes]`
    ///
    /// # Errors
    /// [`AggregateError::NoView`] if no source is present, [`SectionError::Length`] for a buffer of another length.
    pub fn scores(
        &mut self,
        scores: &[f32],
        present: SourceSet,
        out: &mut [f32],
    ) -> Result<(), SectionError> {
        check_length("scores", 1, self.sources * self.classes, scores.len())?;
        check_length("logits", 1, self.classes, out.len())?;
        match &mut self.join {
            Join::Max => aggregate::max(scores, present, out)?,
            Join::Mean => aggregate::mean(scores, present, out)?,
            Join::Section { section, input, outputs } => {
                aggregate::concat(scores, self.sources, 1, present, input)?;
                if input[scores.len()..].iter().all(|&mask| mask == 0.0) {
                    return Err(AggregateError::NoView.into());
                }
                section.run(1, Input::Floats(input), outputs)?;
                out.copy_from_slice(outputs.floats(0));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::TractEngine;
    use crate::testing::TinyNetwork;

    fn bundle(network: &TinyNetwork) -> Bundle {
        Bundle::from_bytes(&network.bundle()).unwrap()
    }

    #[test]
    fn the_local_exit_joins_the_present_scores() {
        let scores = [1.0, 5.0, 9.0, 9.0, 3.0, 1.0];
        let mut out = [0.0; 2];
        ScoresExit::masked(Aggregation::Mp, 3, 2)
            .unwrap()
            .scores(&scores, SourceSet::from_bits(0b101), &mut out)
            .unwrap();
        assert_eq!(out, [3.0, 5.0]);
        ScoresExit::masked(Aggregation::Ap, 3, 2)
            .unwrap()
            .scores(&scores, SourceSet::from_bits(0b101), &mut out)
            .unwrap();
        assert_eq!(out, [2.0, 3.0]);
        assert!(matches!(ScoresExit::masked(Aggregation::Cc, 3, 2), Err(SectionError::NeedsSection)));
    }

    #[test]
    fn a_local_exit_with_a_section_ignores_absent_scores() {
        let network = TinyNetwork { local: Aggregation::Cc, ..TinyNetwork::default() };
        let mut local =
            ScoresExit::load(&bundle(&network), Exit::LOCAL, &TractEngine::new()).unwrap().unwrap();
        let (mut clean, mut stale) = ([0.0; 4], [0.0; 4]);
        let mut scores = [0.5; 12];
        scores[4..8].fill(0.0);
        local.scores(&scores, SourceSet::from_bits(0b101), &mut clean).unwrap();
        scores[4..8].fill(77.0);
        local.scores(&scores, SourceSet::from_bits(0b101), &mut stale).unwrap();
        assert_eq!(clean, stale);
        assert!(clean.iter().any(|&logit| logit != 0.0));
    }

    #[test]
    fn an_empty_mask_is_an_error_for_every_aggregation() {
        for aggregation in [Aggregation::Mp, Aggregation::Ap, Aggregation::Cc] {
            let network = TinyNetwork { local: aggregation, ..TinyNetwork::default() };
            let mut local =
                ScoresExit::load(&bundle(&network), Exit::LOCAL, &TractEngine::new()).unwrap().unwrap();
            // Slot 3 does not exist.
            let error = local.scores(&[0.0; 12], SourceSet::from_bits(0b1000), &mut [0.0; 4]).unwrap_err();
            assert!(matches!(error, SectionError::Aggregate(AggregateError::NoView)), "{error}");
            assert!(local.scores(&[0.0; 11], SourceSet::first(1), &mut [0.0; 4]).is_err());
            assert!(local.scores(&[0.0; 12], SourceSet::first(1), &mut [0.0; 3]).is_err());
        }
    }
}
