//! The order in which an epoch visits the samples.
//!
//! ```text
//! one shard    a permutation of all samples, cut into batches; the last batch of an epoch may be smaller
//! more shards  a permutation of each shard; a batch has equally many samples of each shard, and a shard that ends begins again
//! ```

use crate::scale_out::shards;
use headwater_calibration::data::Samples;
use headwater_calibration::random::Random;

/// A shard of the train part in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Number of the shard, from 0.
    pub number: usize,
    /// The shard's samples, as indices into the samples of this process.
    pub members: Vec<u32>,
}

/// The shards of the train part that are in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnShards {
    /// Number of shards in the whole run.
    pub all: usize,
    /// The shards in this process, by number.
    pub own: Vec<Shard>,
}

impl OwnShards {
    /// The shards of process `rank` of `ranks`; each process divides its train part into `shards` shards.
    pub fn of(samples: &Samples, shards: usize, (rank, ranks): (usize, usize)) -> Self {
        let own = shards::divide(&samples.groups, samples.len(), shards).into_iter().enumerate();
        let own = own.map(|(at, members)| Shard { number: rank * shards + at, members });
        Self { all: ranks * shards, own: own.collect() }
    }

    /// The order of one epoch, for steps of `batch` samples over all shards. `stream` separates orders for different uses.
    pub fn order(&self, (seed, stream): (u64, u64), epoch: u32, batch: usize) -> EpochOrder {
        let shuffled = |shard: &Shard| {
            let stream = [stream, u64::from(epoch), shard.number as u64];
            // The number of a single shard is not part of the stream, since weights of such runs are compared with recorded weights.
            let stream = if self.all == 1 { &stream[..2] } else { &stream[..] };
            let order = Random::new(seed, stream).permutation(shard.members.len());
            order.into_iter().map(|at| shard.members[at as usize]).collect()
        };
        let shards = self.own.iter().map(shuffled).collect();
        EpochOrder { shards, step: batch / self.all, repeats: self.all > 1 }
    }
}

/// The order of one epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochOrder {
    shards: Vec<Vec<u32>>,
    /// Number of samples from each shard in one step.
    step: usize,
    /// True when a shard that ends begins again.
    repeats: bool,
}

impl EpochOrder {
    /// The samples of this process in step `step`, counted from 0; shard by shard.
    pub fn step(&self, step: usize) -> Vec<u32> {
        let places = step * self.step..(step + 1) * self.step;
        let of_shard = |shard: &Vec<u32>| -> Vec<u32> {
            let place = |at: usize| if self.repeats { at % shard.len().max(1) } else { at };
            places.clone().filter_map(|at| shard.get(place(at)).copied()).collect()
        };
        self.shards.iter().flat_map(of_shard).collect()
    }

    /// The first `count` samples of each shard.
    pub fn first(&self, count: usize) -> Vec<u32> {
        self.shards.iter().flat_map(|shard| &shard[..shard.len().min(count)]).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_shard_ends_with_what_is_left() {
        let own = vec![Shard { number: 0, members: (0..10).collect() }];
        let order = OwnShards { all: 1, own }.order((1, 2), 1, 4);
        let steps: Vec<usize> = (0..4).map(|step| order.step(step).len()).collect();
        assert_eq!(steps, [4, 4, 2, 0]);
        let mut all: Vec<u32> = (0..3).flat_map(|step| order.step(step)).collect();
        all.sort_unstable();
        assert_eq!(all, (0..10).collect::<Vec<u32>>());
        assert_eq!(order.first(10), (0..3).flat_map(|step| order.step(step)).collect::<Vec<_>>());
    }

    #[test]
    fn ranks_with_a_shard_each_take_the_steps_of_one_process_with_all_shards() {
        let shards: Vec<Vec<u32>> = vec![vec![0, 2, 4, 6, 8], vec![1, 3, 5, 7]];
        let own = |numbers: &[usize]| OwnShards {
            all: 2,
            own: numbers.iter().map(|&number| Shard { number, members: shards[number].clone() }).collect(),
        };
        let [together, first, second] =
            [&[0, 1][..], &[0], &[1]].map(|own_of| own(own_of).order((7, 2), 3, 4));
        for step in 0..5 {
            let apart = [first.step(step), second.step(step)].concat();
            assert_eq!((together.step(step), apart.len()), (apart, 4), "every step is whole");
        }
        assert_ne!(first, own(&[0]).order((7, 2), 4, 4), "every epoch has another order");
    }
}
