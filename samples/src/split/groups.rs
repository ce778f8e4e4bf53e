//! Groups of samples that belong together, joined pair by pair.

/// Groups of samples (disjoint sets). The first sample identifies a group.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    /// An earlier sample of the same group, or the sample itself.
    earlier: Vec<usize>,
}

impl Groups {
    /// One group per sample.
    pub(crate) fn new(samples: usize) -> Self {
        Self { earlier: (0..samples).collect() }
    }

    /// Joins the groups of two samples.
    pub(crate) fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.first(one), self.first(other));
        self.earlier[one.max(other)] = one.min(other);
    }

    /// First sample of a sample's group.
    pub(crate) fn first(&mut self, sample: usize) -> usize {
        let mut at = sample;
        while self.earlier[at] != at {
            self.earlier[at] = self.earlier[self.earlier[at]];
            at = self.earlier[at];
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_of_pairs_is_one_group_identified_by_its_first_sample() {
        let mut groups = Groups::new(6);
        for (one, other) in [(5, 3), (1, 5), (4, 2)] {
            groups.join(one, other);
        }
        let firsts: Vec<usize> = (0..6).map(|sample| groups.first(sample)).collect();
        assert_eq!(firsts, [0, 1, 2, 1, 2, 1]);
    }
}
