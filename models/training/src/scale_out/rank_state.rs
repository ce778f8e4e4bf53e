//! State that one rank alone has, for checkpoints.

use super::exchange::{slice_ranges, sum};
use crate::optimiser::Moments;

/// State that one rank alone has: moments and residuals.
#[derive(Clone, Debug, PartialEq)]
pub struct RankState {
    /// State of the rank's optimiser.
    pub moments: Moments,
    /// Residual of earlier messages of the rank, one number per parameter.
    pub sent_residual: Vec<f32>,
    /// Residual of earlier sums of the rank's slice, one number per parameter of the slice.
    pub owned_residual: Vec<f32>,
}

impl RankState {
    /// The state with which rank `rank` of `ranks` continues from the states of an earlier start, in the order of ranks. With the same
    /// number of ranks, a rank gets its own state again. With another number, residuals are added up and divided among the new ranks, so
    /// that nothing is lost, and moments are averaged.
    ///
    /// # Panics
    /// When `states` is empty.
    pub fn of(states: &[Self], rank: usize, ranks: usize) -> Self {
        if states.len() == ranks {
            return states[rank].clone();
        }
        let count = states[0].sent_residual.len();
        let total =
            |of: fn(&Self) -> &Vec<f32>| sum(&states.iter().map(of).cloned().collect::<Vec<_>>(), count);
        let share = |values: Vec<f32>, parts: usize| -> Vec<f32> {
            values.into_iter().map(|value| value / parts as f32).collect()
        };
        let owned: Vec<f32> = states.iter().flat_map(|state| &state.owned_residual).copied().collect();
        let own = slice_ranges(count, ranks).nth(rank).expect("the rank is one of the ranks");
        Self {
            moments: Moments {
                first: share(total(|state| &state.moments.first), states.len()),
                second: share(total(|state| &state.moments.second), states.len()),
            },
            sent_residual: share(total(|state| &state.sent_residual), ranks),
            owned_residual: owned[own].to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn residuals_are_added_and_moments_averaged_when_the_number_of_ranks_changes() {
        let state = |first: f32, sent: [f32; 4], owned: &[f32]| RankState {
            moments: Moments { first: vec![first; 4], second: vec![2.0 * first; 4] },
            sent_residual: sent.to_vec(),
            owned_residual: owned.to_vec(),
        };
        let states =
            [state(1.0, [1.0, 0.0, 2.0, 0.0], &[5.0, 6.0]), state(3.0, [2.0, 3.0, 0.0, 0.0], &[7.0, 8.0])];
        assert_eq!(RankState::of(&states, 1, 2), states[1]);
        let three: Vec<RankState> = (0..3).map(|rank| RankState::of(&states, rank, 3)).collect();
        assert_eq!(three[0], state(2.0, [1.0, 1.0, 2.0 / 3.0, 0.0], &[5.0]));
        assert_eq!(
            three.iter().flat_map(|state| state.owned_residual.clone()).collect::<Vec<_>>(),
            [5.0, 6.0, 7.0, 8.0]
        );
        let one = RankState::of(&states, 0, 1);
        assert_eq!(
            (one.sent_residual, one.owned_residual),
            (vec![3.0, 3.0, 2.0, 0.0], vec![5.0, 6.0, 7.0, 8.0])
        );
    }
}
