//! Samples that belong together, found pair by pair.

/// A partition of samples into groups, each known by its first sample.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    before: Vec<usize>,
}

impl Groups {
    /// Every sample by itself.
    pub(crate) fn new(samples: usize) -> Self {
        Self { before: (0..samples).collect() }
    }

    /// Says that two samples belong together.
    pub(crate) fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.first(one), self.first(other));
        self.before[one.max(other)] = one.min(other);
    }

    /// The first sample of the group that a sample is in.
    pub(crate) fn first(&mut self, sample: usize) -> usize {
        let mut at = sample;
        while self.before[at] != at {
            self.before[at] = self.before[self.before[at]];
            at = self.before[at];
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_of_pairs_is_one_group_known_by_its_first() {
        let mut groups = Groups::new(6);
        for (one, other) in [(5, 3), (1, 5), (4, 2)] {
            groups.join(one, other);
        }
        let firsts: Vec<usize> = (0..6).map(|sample| groups.first(sample)).collect();
        assert_eq!(firsts, [0, 1, 2, 1, 2, 1]);
    }
}
