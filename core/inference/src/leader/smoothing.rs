//! Smoothing over time: one answer from the latest decisions of a group, beside the decision of each sample.
//!
//! ```text
//! sample        1      2      3         4      5
//! decision      dress  dress  undecided coat   dress
//! votes of 5    dress  dress            coat   dress      3 of 4 for dress
//! ```
//! The votes that count for a sample go up to its id, and back to the first long gap between two captures or change of the network. An
//! undecided sample, and a sample without a time of capture, have no vote.

use std::collections::BTreeMap;

use headwater_protocol::{Decision, NetworkId, SampleId, UtcTime};
use serde::{Deserialize, Serialize};

/// Smoothing of a group's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Smoothing {
    /// Largest number of votes that count.
    pub last: usize,
    /// Largest time between the captures of two neighbouring votes, ms. Votes before a longer gap do not count.
    pub reset_ms: u32,
}

/// The most frequent class of `votes`, which come oldest first, and its share; `None` without votes. Of equally frequent classes, the class
/// of the latest vote wins.
pub(super) fn majority(votes: &[u16]) -> Option<(u16, f32)> {
    let count = |class: u16| votes.iter().filter(|vote| **vote == class).count();
    // `max_by_key` takes the latest of equally frequent classes.
    let class = votes.iter().copied().max_by_key(|class| count(*class))?;
    Some((class, count(class) as f32 / votes.len() as f32))
}

/// Votes of the latest decisions, by sample.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Votes(BTreeMap<SampleId, Cast>);

/// A vote with the network and the time of its sample.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Cast {
    network: NetworkId,
    captured_ms: u64,
    class: u16,
}

impl Votes {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the vote of a decision, if it has one, and returns the votes that count for its sample, oldest first; empty for a decision
    /// without a time of capture.
    pub(super) fn with(&mut self, smoothing: Smoothing, decision: &Decision, class: Option<u16>) -> Vec<u16> {
        let Some(captured_ms) = decision.captured_at.map(UtcTime::ms) else { return Vec::new() };
        let (network, sample) = (decision.network, decision.sample);
        if let Some(class) = class {
            self.0.insert(sample, Cast { network, captured_ms, class });
        }
        let (mut votes, mut before_ms) = (Vec::new(), captured_ms);
        for cast in self.0.range(..=sample).rev().map(|(_, cast)| cast).take(smoothing.last) {
            if cast.network != network || before_ms.abs_diff(cast.captured_ms) > u64::from(smoothing.reset_ms)
            {
                break;
            }
            before_ms = cast.captured_ms;
            votes.push(cast.class);
        }
        votes.reverse();
        // Samples may end in another order than their ids, so twice as many votes are kept as may count.
        while self.0.len() > 2 * smoothing.last {
            self.0.pop_first();
        }
        votes
    }
}

#[cfg(test)]
mod tests {
    use headwater_protocol::testing;

    use super::*;

    #[test]
    fn a_majority_is_the_class_of_most_votes_and_of_equal_ones_the_latest() {
        assert_eq!(majority(&[1, 0, 1, 2]), Some((1, 0.5)));
        assert_eq!(majority(&[1, 0]), Some((0, 0.5)));
        assert_eq!(majority(&[3]), Some((3, 1.0)));
        assert_eq!(majority(&[]), None);
    }

    fn decision(sample: u64, at_ms: u64) -> Decision {
        Decision { captured_at: UtcTime::from_ms(at_ms), ..testing::decision(sample) }
    }

    #[test]
    fn the_latest_votes_up_to_a_sample_count_until_a_gap_or_another_network() {
        let (smoothing, mut of_group) = (Smoothing { last: 3, reset_ms: 1000 }, Votes::default());
        let mut classes = |decision: Decision, class: Option<u16>| of_group.with(smoothing, &decision, class);
        assert_eq!(classes(decision(1, 100), Some(1)), [1]);
        assert_eq!(classes(decision(4, 400), Some(4)), [1, 4]);
        assert_eq!(
            classes(decision(3, 300), Some(3)),
            [1, 3],
            "a sample that ends later knows no later votes"
        );
        assert_eq!(classes(decision(5, 500), None), [1, 3, 4], "an undecided sample has no vote");
        assert_eq!(classes(decision(6, 600), Some(6)), [3, 4, 6]);
        assert_eq!(classes(decision(7, 1601), Some(7)), [7], "a gap of more than a second");
        let other = Decision { network: NetworkId([9; 32]), ..decision(8, 1700) };
        assert_eq!(classes(other, Some(8)), [8]);
        let untimed = Decision { captured_at: None, ..decision(9, 0) };
        assert_eq!(classes(untimed, Some(9)), [0u16; 0]);
        assert_eq!(of_group.0.len(), 6);
    }
}
