//! Parts for data that has none: whole groups of samples, drawn by a seed, so that shares and classes come out as asked.
//!
//! A group is what must not be torn apart: frames of one scene, views of one object, copies of one picture. Classes are served rarest
//! first, and of each the largest groups first (equal ones in an order drawn by the seed); a group goes to the part that lacks most of
//! that class. This is stratification by groups after Sechidis, Tsoumakas and Vlahavas, "On the Stratification of Multi-Label Data",
//! ECML PKDD 2011, section 3.

mod groups;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::Part;

pub(crate) use groups::Groups;

/// Orders that are drawn before a class that is missing in a part is given up.
const DRAWS: u64 = 16;
const PARTS: [Part; 3] = [Part::Train, Part::Validation, Part::Test];

/// How data without parts is cut into them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// How much each part gets.
    pub shares: Shares,
    /// Draws which groups go where.
    pub seed: u64,
}

/// Shares of train, validation and test, as weights: `80,10,10` is eight tenths, a tenth and a tenth. None is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares([u16; 3]);

impl Default for Shares {
    fn default() -> Self {
        Self([80, 10, 10])
    }
}

/// Shares that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "shares: expected three whole numbers above 0 for train, validation and test, such as 80,10,10; found `{0}`"
)]
pub struct SharesError(String);

impl FromStr for Shares {
    type Err = SharesError;

    fn from_str(text: &str) -> Result<Self, SharesError> {
        let error = || SharesError(text.into());
        let shares = text.split(',').map(|share| share.trim().parse().ok().filter(|&share: &u16| share > 0));
        let shares: Vec<u16> = shares.collect::<Option<_>>().ok_or_else(error)?;
        Ok(Self(shares.try_into().map_err(|_| error())?))
    }
}

impl std::fmt::Display for Shares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [train, validation, test] = self.0;
        write!(f, "{train},{validation},{test}")
    }
}

/// A class that would be missing in a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lacking {
    pub(crate) class: usize,
    /// Groups that have samples of it.
    pub(crate) groups: usize,
}

/// One group.
struct Whole {
    members: Vec<usize>,
    /// Samples of each class.
    classes: BTreeMap<usize, usize>,
}

impl Split {
    /// The part of each sample. `classes` and `names` have an entry each; names make the draw independent of what else there is.
    pub(crate) fn parts(
        &self,
        classes: &[usize],
        names: &[&str],
        groups: &mut Groups,
    ) -> Result<Vec<Part>, Lacking> {
        let mut wholes: BTreeMap<usize, Whole> = BTreeMap::new();
        for (sample, class) in classes.iter().enumerate() {
            let whole = wholes
                .entry(groups.first(sample))
                .or_insert_with(|| Whole { members: Vec::new(), classes: BTreeMap::new() });
            whole.members.push(sample);
            *whole.classes.entry(*class).or_default() += 1;
        }
        let wholes: Vec<Whole> = wholes.into_values().collect();
        let mut lacking = None;
        for draw in 0..DRAWS {
            let order: Vec<u64> =
                wholes.iter().map(|whole| self.place(draw, names[whole.members[0]])).collect();
            match self.drawn(&wholes, &order) {
                Ok(of_whole) => {
                    let mut parts = vec![Part::Train; classes.len()];
                    for (whole, part) in wholes.iter().zip(of_whole) {
                        whole.members.iter().for_each(|&sample| parts[sample] = PARTS[part]);
                    }
                    return Ok(parts);
                }
                Err(found) => lacking = lacking.or(Some(found)),
            }
        }
        Err(lacking.expect("a draw that gave no parts said what it lacked"))
    }

    /// Where a group stands among its equals.
    fn place(&self, draw: u64, name: &str) -> u64 {
        let mut hash = Sha256::new();
        hash.update(self.seed.to_le_bytes());
        hash.update(draw.to_le_bytes());
        hash.update(name);
        let hash: [u8; 32] = hash.finalize().into();
        hash.iter().take(8).fold(0, |place, &byte| place << 8 | u64::from(byte))
    }

    /// The part of each group.
    fn drawn(&self, wholes: &[Whole], order: &[u64]) -> Result<Vec<usize>, Lacking> {
        let mut groups_of: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, whole) in wholes.iter().enumerate() {
            whole.classes.keys().for_each(|&class| groups_of.entry(class).or_default().push(index));
        }
        let mut rarest: Vec<usize> = groups_of.keys().copied().collect();
        rarest.sort_by_key(|class| (groups_of[class].len(), *class));

        let mut part_of: Vec<Option<usize>> = vec![None; wholes.len()];
        let mut held: BTreeMap<usize, [usize; 3]> = BTreeMap::new();
        let mut held_in_all = [0; 3];
        let samples: usize = wholes.iter().map(|whole| whole.members.len()).sum();
        for class in rarest {
            let of_class = |whole: usize| wholes[whole].classes[&class];
            let total: usize = groups_of[&class].iter().map(|&whole| of_class(whole)).sum();
            let mut open: Vec<usize> =
                groups_of[&class].iter().copied().filter(|&whole| part_of[whole].is_none()).collect();
            open.sort_by_key(|&whole| (Reverse(of_class(whole)), order[whole]));
            for (at, &whole) in open.iter().enumerate() {
                let held_of = held.get(&class).copied().unwrap_or_default();
                let without = held_of.iter().filter(|&&count| count == 0).count();
                let must = open.len() - at <= without;
                let wish = |part: usize| {
                    (self.lacks(part, total, held_of[part]), self.lacks(part, samples, held_in_all[part]))
                };
                // The first of equals, so that train comes before the others.
                let part = (0..3)
                    .filter(|&part| !must || held_of[part] == 0)
                    .reduce(|best, part| if wish(part) > wish(best) { part } else { best })
                    .unwrap_or(0);
                part_of[whole] = Some(part);
                for (class, count) in &wholes[whole].classes {
                    held.entry(*class).or_default()[part] += count;
                }
                held_in_all[part] += wholes[whole].members.len();
            }
            if held[&class].contains(&0) {
                return Err(Lacking { class, groups: groups_of[&class].len() });
            }
        }
        Ok(part_of.into_iter().map(|part| part.expect("every group has a class")).collect())
    }

    /// What a part still lacks of `total`, in units of a sum of shares: whole numbers, so that nothing depends on rounding.
    fn lacks(&self, part: usize, total: usize, held: usize) -> i64 {
        let Shares(shares) = self.shares;
        let sum: i64 = shares.iter().copied().map(i64::from).sum();
        i64::from(shares[part]) * total as i64 - sum * held as i64
    }
}
