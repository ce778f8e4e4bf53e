//! Weights of the rule `learned`: a logistic regression of the event that an early exit is wrong and the last exit right.

use headwater_inference::exit::{LearnedInputs, argmax};
use headwater_inference::policy::{ExitPolicy, ExitRule, LearnedWeights, Policy, Weight};
use headwater_protocol::Exit;

use crate::data::Samples;
use crate::part_logits::PartLogits;

/// Least number of events at each early exit: ten for each coefficient.
const LEAST_EVENTS: usize = 50;

/// Ridge penalty on the weights of the standardised inputs: keeps the weights finite if an input separates the events.
const RIDGE: f64 = 1.0;

/// Largest number of Newton steps, from coefficients of zero; about seven are needed.
const MAX_STEPS: usize = 25;

/// The fit ends when a Newton step changes every coefficient by less than this.
const CONVERGED: f64 = 1e-9;

/// Number of inputs of the regression, without the constant 1.
const INPUTS: usize = 4;

/// Number of coefficients of the regression: one for the constant 1, which comes first, and one per input.
const COEFFICIENTS: usize = INPUTS + 1;

type Vector = [f64; COEFFICIENTS];

/// The policy with the rule `learned` at every early exit, each exit with its own weights. The last exit keeps its rule, since no
/// exit is better. `None` if there is no early exit, if an early exit has fewer than 50 samples on which it is wrong and the last
/// exit right, or if a fit does not converge to finite weights.
pub(super) fn with_learned_rules(
    logits: &PartLogits,
    validation: &Samples,
    policy: &Policy,
) -> Option<Policy> {
    let exits: Vec<Exit> = logits.exits.iter().map(|(exit, _)| exit).collect();
    let (&last, early) = exits.split_last()?;
    early.first()?;
    let mut learned = policy.clone();
    for &exit in early {
        let rows = rows(logits, validation, [exit, last], policy.of(exit));
        let weights = Some(fit(&rows)?);
        *learned.of_mut(exit) = ExitPolicy { rule: ExitRule::Learned, weights, ..policy.of(exit).clone() };
    }
    Some(learned)
}

/// Inputs of the regression for a sample at an exit; `is_event` is true when the exit is wrong and the last exit right.
struct Row {
    inputs: [f64; INPUTS],
    is_event: bool,
}

/// The samples with a view at the first of two exits; the second one is the last exit.
fn rows(logits: &PartLogits, samples: &Samples, [exit, last]: [Exit; 2], policy: &ExitPolicy) -> Vec<Row> {
    let row = |sample: usize| {
        let label = samples.labels[sample];
        let is_right = |exit| argmax(logits.of(exit, sample)) == label;
        let input = logits.input(exit, sample, samples.seen[sample]);
        let LearnedInputs { entropy, margin, present, disagreement } = policy.learned_inputs(input)?;
        let inputs = [entropy, margin, present, disagreement];
        Some(Row { inputs, is_event: !is_right(exit) && is_right(last) })
    };
    let seen = (0..samples.len()).filter(|sample| !samples.seen[*sample].is_empty());
    seen.filter_map(row).collect()
}

/// Newton steps on the penalised likelihood, each a weighted least squares fit (IRLS: Hastie, Tibshirani, Friedman 2009, section 4.4.1).
fn fit(rows: &[Row]) -> Option<LearnedWeights> {
    let events = rows.iter().filter(|row| row.is_event).count();
    if events < LEAST_EVENTS {
        return None;
    }
    let scale = Scale::of(rows);
    let mut coefficients = [0.0; COEFFICIENTS];
    for _ in 0..MAX_STEPS {
        let step = newton_step(rows, &scale, &coefficients)?;
        coefficients.iter_mut().zip(step).for_each(|(coefficient, step)| *coefficient += step);
        if step.iter().all(|step| step.abs() < CONVERGED) {
            return scale.weights(coefficients);
        }
    }
    None
}

/// Mean and standard deviation of each input.
struct Scale {
    mean: [f64; INPUTS],
    /// 0 for an input that is the same in every row.
    deviation: [f64; INPUTS],
}

impl Scale {
    fn of(rows: &[Row]) -> Self {
        let average = |of: &dyn Fn(&Row) -> f64| rows.iter().map(of).sum::<f64>() / rows.len() as f64;
        let mean = std::array::from_fn(|input| average(&|row| row.inputs[input]));
        let variance = |input: usize| average(&|row| (row.inputs[input] - mean[input]).powi(2));
        // Rounding leaves a tiny variance if an input is the same in every row.
        let deviation =
            |input| Some(variance(input)).filter(|variance| *variance > 1e-12).map_or(0.0, f64::sqrt);
        Self { mean, deviation: std::array::from_fn(deviation) }
    }

    /// The constant 1, then the standardised inputs.
    fn standardised(&self, row: &Row) -> Vector {
        let Self { mean, deviation } = self;
        std::array::from_fn(|coefficient| match coefficient.checked_sub(1) {
            None => 1.0,
            Some(input) if deviation[input] == 0.0 => 0.0,
            Some(input) => (row.inputs[input] - mean[input]) / deviation[input],
        })
    }

    /// Weights of the inputs before standardisation; `None` if a weight is not finite.
    fn weights(&self, coefficients: Vector) -> Option<LearnedWeights> {
        let raw: [f64; INPUTS] = std::array::from_fn(|input| match self.deviation[input] {
            0.0 => 0.0,
            deviation => coefficients[1 + input] / deviation,
        });
        let bias =
            coefficients[0] - raw.iter().zip(&self.mean).map(|(weight, mean)| weight * mean).sum::<f64>();
        let weight = |value: f64| Weight::new(value as f32).ok();
        let [entropy, margin, present, disagreement] = raw.map(weight);
        Some(LearnedWeights {
            bias: weight(bias)?,
            entropy: entropy?,
            margin: margin?,
            present: present?,
            disagreement: disagreement?,
        })
    }
}

/// The solution of `(X' W X + ridge) step = X' (y - p) - ridge b`; `None` if there is no single solution.
fn newton_step(rows: &[Row], scale: &Scale, coefficients: &Vector) -> Option<Vector> {
    let mut hessian = [[0.0; COEFFICIENTS]; COEFFICIENTS];
    let mut gradient = [0.0; COEFFICIENTS];
    for row in rows {
        let x = scale.standardised(row);
        let log_odds: f64 = x.iter().zip(coefficients).map(|(x, b)| x * b).sum();
        let p = 1.0 / (1.0 + (-log_odds).exp());
        let error = f64::from(u8::from(row.is_event)) - p;
        for (i, xi) in x.iter().enumerate() {
            gradient[i] += xi * error;
            hessian[i].iter_mut().zip(&x).for_each(|(h, xj)| *h += p * (1.0 - p) * xi * xj);
        }
    }
    // The constant has no ridge, so that the mean probability is the share of events.
    for i in 1..COEFFICIENTS {
        hessian[i][i] += RIDGE;
        gradient[i] -= RIDGE * coefficients[i];
    }
    solve(hessian, gradient)
}

/// The solution of a positive definite system, by elimination; `None` for another system, or numbers that are not finite.
fn solve(mut matrix: [Vector; COEFFICIENTS], mut right: Vector) -> Option<Vector> {
    for pivot in 0..COEFFICIENTS {
        let row = matrix[pivot];
        if row[pivot] <= f64::EPSILON {
            return None;
        }
        for below in pivot + 1..COEFFICIENTS {
            let factor = matrix[below][pivot] / row[pivot];
            matrix[below].iter_mut().zip(row).for_each(|(value, of_pivot)| *value -= factor * of_pivot);
            right[below] -= factor * right[pivot];
        }
    }
    let mut solution = [0.0; COEFFICIENTS];
    for i in (0..COEFFICIENTS).rev() {
        let known: f64 = (i + 1..COEFFICIENTS).map(|j| matrix[i][j] * solution[j]).sum();
        solution[i] = (right[i] - known) / matrix[i][i];
    }
    solution.iter().all(|value| value.is_finite()).then_some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Samples whose events follow a logistic model of the inputs.
    fn drawn(count: usize, [bias, weights @ ..]: Vector) -> Vec<Row> {
        let row = |sample: usize| {
            let mut random = Random::new(7, &[sample as u64]);
            let mut unit = || f64::from(random.unit());
            let inputs = [unit(), unit(), (unit() * 6.0).ceil(), (unit() * 3.0).floor() / 2.0];
            let log_odds =
                bias + inputs.iter().zip(weights).map(|(input, weight)| input * weight).sum::<f64>();
            Row { inputs, is_event: unit() < 1.0 / (1.0 + (-log_odds).exp()) }
        };
        (0..count).map(row).collect()
    }

    fn values(weights: LearnedWeights) -> Vector {
        let LearnedWeights { bias, entropy, margin, present, disagreement } = weights;
        [bias, entropy, margin, present, disagreement].map(|weight| f64::from(weight.get()))
    }

    #[test]
    fn the_fit_finds_the_weights_of_the_model_that_made_the_events() {
        let model = [-2.0, 3.0, -1.0, -0.3, 1.5];
        let found = values(fit(&drawn(200_000, model)).expect("many events"));
        for (found, expected) in found.into_iter().zip(model) {
            // About five standard errors of the entropy's weight.
            assert!((found - expected).abs() < 0.15, "{found} instead of {expected}");
        }
        assert_eq!(found, values(fit(&drawn(200_000, model)).expect("many events")));
    }

    #[test]
    fn the_gradient_vanishes_at_the_fit() {
        let rows = drawn(2000, [-2.0, 3.0, -1.0, -0.3, 1.5]);
        let weights = values(fit(&rows).expect("many events"));
        let probability = |row: &Row| {
            let log_odds: f64 =
                weights[0] + row.inputs.iter().zip(&weights[1..]).map(|(x, w)| x * w).sum::<f64>();
            1.0 / (1.0 + (-log_odds).exp())
        };
        let expected: f64 = rows.iter().map(probability).sum();
        let events = rows.iter().filter(|row| row.is_event).count() as f64;
        // The constant has no ridge; the weights are rounded to `f32`.
        assert!((expected - events).abs() < 1e-3, "{expected} instead of {events}");
    }

    #[test]
    fn few_events_are_not_fitted() {
        let with = |events: usize| {
            let mut rows = drawn(5000, [-40.0, 0.0, 0.0, 0.0, 0.0]);
            rows.iter_mut().take(events).for_each(|row| row.is_event = true);
            fit(&rows)
        };
        assert!(with(LEAST_EVENTS - 1).is_none() && with(LEAST_EVENTS).is_some());
    }

    #[test]
    fn an_input_that_is_always_the_same_has_no_weight() {
        let mut rows = drawn(5000, [-2.0, 3.0, 0.0, 0.0, 0.0]);
        rows.iter_mut().for_each(|row| (row.inputs[2], row.inputs[3]) = (6.0, 0.1));
        let found = values(fit(&rows).expect("many events"));
        assert_eq!((found[3], found[4]), (0.0, 0.0));
        assert!((found[1] - 3.0).abs() < 0.5, "{found:?}");
    }

    #[test]
    fn events_that_an_input_separates_have_finite_weights_and_events_alone_none() {
        let mut rows = drawn(5000, [0.0; COEFFICIENTS]);
        rows.iter_mut().for_each(|row| row.is_event = row.inputs[0] > 0.5);
        let found = values(fit(&rows).expect("the ridge bounds the weights"));
        assert!(found[1] > 10.0 && found[1] < 1000.0, "{found:?}");
        rows.iter_mut().for_each(|row| row.is_event = true);
        assert!(fit(&rows).is_none());
    }
}
