//! The choice of one setting by targets; if no setting keeps all targets, the nearest settings.

use headwater_inference::policy::Bound;
use thiserror::Error;

use super::frontier::{Figures, Setting};

/// Least loss in points, and least share of wrong answers in percent, that can be asked for: a smaller one needs too many samples.
const LEAST_LOSS_POINTS: f64 = 0.001;

/// A measure that has a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Loss against the last exit.
    Loss,
    /// Body bytes per device and sample.
    Bytes,
    /// Multiply-accumulates per sample.
    Macs,
}

/// Largest values that are asked for; `None` if a measure has no target.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Targets {
    /// Loss against the last exit, in points.
    pub loss_points: Option<f64>,
    /// Mean body bytes per device and sample.
    pub body_bytes: Option<f64>,
    /// Mean multiply-accumulates per sample.
    pub macs: Option<f64>,
    /// Share of the answers given that are wrong, in percent. A setting is allowed only if, on validation, the wrong answers of the exits
    /// before the last one are no larger share; the least confidence is chosen after the setting ([`claims`](super::claims)).
    pub wrong: Option<f64>,
}

/// A target that is out of range, or that no setting of the network could keep.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum TargetError {
    /// The loss is out of range, or NaN.
    #[error("--loss: expected points from {LEAST_LOSS_POINTS} to below 100, found {0}")]
    Loss(f64),
    /// The share of wrong answers is out of range, or NaN.
    #[error("--wrong: expected percent of the answers given from {LEAST_LOSS_POINTS} to 50, found {0}")]
    Wrong(f64),
    /// The bytes are not a positive finite number, or below the body bytes of every view when all samples leave at the first exit.
    #[error(
        "--bytes: expected a finite number of at least {least}, the body bytes that every view sends though all samples leave at the first exit, found {found}"
    )]
    Bytes {
        /// Value that was asked for.
        found: f64,
        /// Least possible value.
        least: f64,
    },
    /// The multiply-accumulates are not a positive finite number, or below the mean up to the first exit.
    #[error(
        "--macs: expected a finite number of at least {least}, the mean multiply-accumulates up to the first exit on the validation part, found {found}"
    )]
    Macs {
        /// Value that was asked for.
        found: f64,
        /// Least possible value.
        least: f64,
    },
}

/// Targets, and the measured or promised limit of the loss, by which a setting is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Criteria {
    /// Largest allowed values.
    pub targets: Targets,
    /// Kind of loss: net of wins, or losses alone.
    pub bound: Bound,
    /// Index of the last setting that keeps the loss, by a promise or as measured; every earlier one keeps the loss too.
    pub last_within_loss: usize,
}

/// Result of a choice; settings are given by their index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The setting that keeps every target and saves most; without a target of the loss, the setting that loses least.
    Met(usize),
    /// No setting keeps every target.
    NotMet {
        /// Measures whose target cannot be kept even alone.
        unreachable: Vec<Measure>,
        /// The setting nearest to the other targets, for each set of targets that can be kept together and is in no larger such set.
        nearest: Vec<Nearest>,
    },
}

/// A setting that keeps some of the targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nearest {
    /// Measures whose targets are kept.
    pub kept: Vec<Measure>,
    /// Measures whose targets are not kept.
    pub given_up: Vec<Measure>,
    /// Index of the setting.
    pub setting: usize,
}

impl Measure {
    /// All measures.
    pub const ALL: [Self; 3] = [Self::Loss, Self::Bytes, Self::Macs];

    /// Name of the command-line argument.
    pub const fn flag(self) -> &'static str {
        match self {
            Self::Loss => "--loss",
            Self::Bytes => "--bytes",
            Self::Macs => "--macs",
        }
    }

    /// The measured value: points, bytes, or multiply-accumulates.
    pub fn of(self, figures: &Figures, bound: Bound) -> f64 {
        match self {
            Self::Loss => 100.0 * figures.risk(bound),
            Self::Bytes => figures.mean.body_bytes,
            Self::Macs => figures.mean.macs,
        }
    }
}

impl Targets {
    /// The target of a measure; `None` if none was set.
    pub fn of(&self, measure: Measure) -> Option<f64> {
        match measure {
            Measure::Loss => self.loss_points,
            Measure::Bytes => self.body_bytes,
            Measure::Macs => self.macs,
        }
    }

    /// Returns true when at least one target is set.
    pub fn has_any(&self) -> bool {
        self.wrong.is_some() || !self.measures().is_empty()
    }

    /// Measures with a target.
    pub fn measures(&self) -> Vec<Measure> {
        Measure::ALL.into_iter().filter(|measure| self.of(*measure).is_some()).collect()
    }

    /// Checks the targets that need no data: loss, wrong answers and bytes.
    ///
    /// # Errors
    /// [`TargetError`] of the first target that no setting could keep; NaN is such a target.
    pub fn check(&self, least_body_bytes: f64) -> Result<(), TargetError> {
        self.loss_points.map_or(Ok(()), check_loss)?;
        self.wrong.map_or(Ok(()), check_wrong)?;
        match self.body_bytes {
            Some(found) if !is_possible(found, least_body_bytes) => {
                Err(TargetError::Bytes { found, least: least_body_bytes })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Checks the multiply-accumulates against the least possible mean on a part.
    ///
    /// # Errors
    /// [`TargetError::Macs`] if no setting could keep the target; NaN is such a target.
    pub fn check_macs(&self, least: f64) -> Result<(), TargetError> {
        match self.macs {
            Some(found) if !is_possible(found, least) => {
                Err(TargetError::Macs { found, least: least.ceil() })
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Checks a loss in points.
///
/// # Errors
/// [`TargetError::Loss`] for NaN or a loss out of range.
pub fn check_loss(points: f64) -> Result<(), TargetError> {
    if (LEAST_LOSS_POINTS..100.0).contains(&points) { Ok(()) } else { Err(TargetError::Loss(points)) }
}

/// Checks a share of wrong answers in percent.
///
/// # Errors
/// [`TargetError::Wrong`] for NaN or a share out of range.
pub fn check_wrong(percent: f64) -> Result<(), TargetError> {
    if (LEAST_LOSS_POINTS..=50.0).contains(&percent) { Ok(()) } else { Err(TargetError::Wrong(percent)) }
}

fn is_possible(found: f64, least: f64) -> bool {
    found.is_finite() && found > 0.0 && found >= least
}

impl Criteria {
    /// The setting that keeps every target and saves most: fewest bytes, or least compute if compute has a target and bytes have none.
    /// Without a target of the loss, the setting that loses least.
    pub fn choose(&self, settings: &[Setting]) -> Choice {
        let asked = self.targets.measures();
        if let Some(setting) = self.best_keeping(settings, &asked) {
            return Choice::Met(setting);
        }
        let is_unreachable = |measure: &Measure| self.best_keeping(settings, &[*measure]).is_none();
        let unreachable = asked.iter().copied().filter(is_unreachable).collect();
        // Larger sets come first: a subset of a set that can be kept is skipped.
        let mut subsets: Vec<Vec<Measure>> = (0..1u32 << asked.len())
            .map(|bits| (0..asked.len()).filter(|at| bits >> at & 1 == 1).map(|at| asked[at]).collect())
            .collect();
        subsets.sort_by_key(|subset| std::cmp::Reverse(subset.len()));
        let mut nearest: Vec<Nearest> = Vec::new();
        for kept in subsets {
            let is_subset = |of: &Nearest| kept.iter().all(|measure| of.kept.contains(measure));
            if nearest.iter().any(is_subset) {
                continue;
            }
            let given_up: Vec<Measure> =
                asked.iter().copied().filter(|measure| !kept.contains(measure)).collect();
            if let Some(setting) = self.nearest_keeping(settings, &kept, &given_up) {
                nearest.push(Nearest { kept, given_up, setting });
            }
        }
        Choice::NotMet { unreachable, nearest }
    }

    fn keeps(&self, settings: &[Setting], index: usize, measure: Measure) -> bool {
        match (measure, self.targets.of(measure)) {
            (_, None) => true,
            (Measure::Loss, Some(_)) => index <= self.last_within_loss,
            (Measure::Bytes | Measure::Macs, Some(target)) => {
                measure.of(&settings[index].figures, self.bound) <= target
            }
        }
    }

    fn keeping(&self, settings: &[Setting], kept: &[Measure]) -> Vec<usize> {
        let most_wrong = self.targets.wrong.map_or(f64::INFINITY, |percent| percent / 100.0);
        let keeps_all = |index: &usize| {
            settings[*index].figures.sure_wrong <= most_wrong
                && kept.iter().all(|measure| self.keeps(settings, *index, *measure))
        };
        (0..settings.len()).filter(keeps_all).collect()
    }

    fn best_keeping(&self, settings: &[Setting], kept: &[Measure]) -> Option<usize> {
        let has = |measure| self.targets.of(measure).is_some();
        let order = match (has(Measure::Loss), has(Measure::Bytes), has(Measure::Macs)) {
            (true, false, true) => [Measure::Macs, Measure::Bytes, Measure::Loss],
            (true, _, _) => [Measure::Bytes, Measure::Macs, Measure::Loss],
            (false, _, _) => [Measure::Loss, Measure::Bytes, Measure::Macs],
        };
        let value = |index: usize, measure: Measure| measure.of(&settings[index].figures, self.bound);
        self.keeping(settings, kept).into_iter().min_by(|a, b| {
            let by = |measure: Measure| value(*a, measure).total_cmp(&value(*b, measure));
            order.into_iter().map(by).fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
        })
    }

    /// Among the settings that keep the targets `kept`, the setting whose largest ratio of a given-up measure to its target is least.
    fn nearest_keeping(&self, settings: &[Setting], kept: &[Measure], given_up: &[Measure]) -> Option<usize> {
        let excess = |index: usize| {
            let of = |measure: &Measure| {
                let target = self.targets.of(*measure).unwrap_or(f64::INFINITY);
                measure.of(&settings[index].figures, self.bound) / target
            };
            given_up.iter().map(of).fold(f64::NEG_INFINITY, f64::max)
        };
        self.keeping(settings, kept).into_iter().min_by(|a, b| excess(*a).total_cmp(&excess(*b)))
    }
}
