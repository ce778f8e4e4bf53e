//! The test of the net loss: capital of bets against "the loss is above the budget" (Waudby-Smith and Ramdas 2024, "Estimating means
//! of bounded random variables by betting", section 4).
//!
//! Before each unit a bet `b >= 0` is laid on the unit's gain `g = a size - loss`, where `a` is the budget; the unit multiplies the
//! capital by `1 + b g`.
//! If the true loss is above the budget, the mean gain is not positive and the capital is a supermartingale that begins at 1. The
//! probability that such capital ever reaches `1 / delta` is at most `delta` (Ville's inequality). So capital of `1 / delta`, at any
//! moment, refutes that the loss is above the budget, exactly and for any number of units.

/// Loss of one unit of the calibration part. A unit is a sample, or all samples that share a scene or an object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnitLoss {
    /// Sum over the unit's samples of [last exit right] - [given answer right], each in `[-1, 1]`; for a promise about wrong answers the
    /// number of wrong answers given. With several masks the mean over the masks.
    pub loss: f64,
    /// Number of samples in the unit; for a promise about wrong answers the number of answers given.
    pub size: f64,
}

/// Bets, as multiples of the best bet for the guessed spread of the losses, each with a share of the initial capital. The spread is
/// guessed from other data; with several bets a wrong guess costs little.
const BETS: [(f64, f64); 3] = [(1.0, 0.6), (0.6, 0.2), (1.7, 0.2)];

/// A test of the net loss of units that are independent of each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Betting {
    /// Largest mean loss per sample, in `(0, 1)`.
    pub budget: f64,
    /// Probability with which the test may pass though the loss is above the budget, in `(0, 1)`.
    pub delta: f64,
    /// Samples of the largest unit that can occur, declared before any unit is seen.
    pub largest_unit: f64,
}

impl Betting {
    /// Returns true when the units, in this order, show that the loss is within the budget. `spread` is a guess of the variance of
    /// `loss - budget size` from other data; a wrong guess makes the test pass less often, but never raises the risk `delta`.
    ///
    /// # Panics
    /// When a unit has more samples than `largest_unit`.
    pub fn passes(&self, units: impl ExactSizeIterator<Item = UnitLoss>, spread: f64) -> bool {
        let bets = self.bets(units.len(), spread);
        let mut capital = BETS.map(|(_, share)| share);
        for UnitLoss { loss, size } in units {
            assert!(
                size <= self.largest_unit,
                "a unit of {size} samples, at most {} declared",
                self.largest_unit
            );
            let gain = self.budget * size - loss;
            capital.iter_mut().zip(bets).for_each(|(capital, bet)| *capital *= 1.0 + bet * gain);
            if capital.iter().sum::<f64>() * self.delta >= 1.0 {
                return true;
            }
        }
        false
    }

    /// The bets for `units` units. A constant bet `b` on gains with mean `m` and variance `v` grows by about `b m - b² v / 2` a unit; the
    /// least `m` that reaches `1 / delta` at the last unit takes `b = sqrt(2 ln(1 / delta) / (units v))`.
    fn bets(&self, units: usize, spread: f64) -> [f64; BETS.len()] {
        let suited = (-2.0 * self.delta.ln() / (units.max(1) as f64 * spread.max(f64::MIN_POSITIVE))).sqrt();
        BETS.map(|(multiple, _)| (multiple * suited).min(self.largest_bet()))
    }

    /// The bet that loses everything when the largest unit loses all its samples.
    fn largest_bet(&self) -> f64 {
        1.0 / (self.largest_unit * (1.0 - self.budget))
    }

    /// Lower bound on the number of units of `size` samples that a test needs: with fewer, even units without any loss fail.
    pub fn least_units(&self, size: f64) -> u64 {
        (-self.delta.ln() / (self.largest_bet() * self.budget * size).ln_1p()).ceil() as u64
    }
}
