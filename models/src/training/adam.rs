//! Adam over one flat vector (Kingma and Ba 2015, algorithm 1), with decoupled weight decay and the clipping of binary weights.

use crate::layers::{Layout, Parameter, ParameterKind, State};
use crate::recipe::Optimiser;

/// State of the optimiser: means of gradients and of squared gradients.
#[derive(Clone, Debug, PartialEq)]
pub struct Adam {
    /// Mean of gradients.
    pub first: Vec<f32>,
    /// Mean of squared gradients.
    pub second: Vec<f32>,
}

/// Summand that keeps the divisor above zero.
const EPSILON: f32 = 1e-8;

/// One step of the optimiser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamStep {
    /// Settings of the optimiser.
    pub optimiser: Optimiser,
    /// Number of the step, from 1.
    pub number: u64,
    /// Step size.
    pub rate: f32,
}

impl Adam {
    /// Means of zero for `count` parameters.
    pub fn new(count: usize) -> Self {
        Self { first: vec![0.0; count], second: vec![0.0; count] }
    }

    /// Takes one step.
    pub fn step(&mut self, step: AdamStep, layout: &Layout, state: &mut State, gradient: &[f32]) {
        let AdamStep { optimiser: Optimiser { beta_1, beta_2, weight_decay, .. }, number, rate } = step;
        let exponent = i32::try_from(number).unwrap_or(i32::MAX);
        let correct_1 = (1.0 / (1.0 - f64::from(beta_1).powi(exponent))) as f32;
        let correct_2 = (1.0 / (1.0 - f64::from(beta_2).powi(exponent))) as f32;
        for Parameter { range, kind, .. } in &layout.parameters {
            let parameters = state.parameters[range.clone()].iter_mut().zip(&gradient[range.clone()]);
            let means = self.first[range.clone()].iter_mut().zip(&mut self.second[range.clone()]);
            let decay = if *kind == ParameterKind::Weight { 1.0 - rate * weight_decay } else { 1.0 };
            let bound = if *kind == ParameterKind::Binary { 1.0 } else { f32::INFINITY };
            for ((parameter, g), (first, second)) in parameters.zip(means) {
                *first = beta_1 * *first + (1.0 - beta_1) * g;
                *second = beta_2 * *second + (1.0 - beta_2) * g * g;
                let move_by = rate * (*first * correct_1) / ((*second * correct_2).sqrt() + EPSILON);
                *parameter = (*parameter * decay - move_by).clamp(-bound, bound);
            }
        }
    }
}

impl Optimiser {
    /// Step size at `step` (from 1) of `steps`: a linear rise, then half a cosine.
    pub fn rate(&self, step: u64, steps: u64) -> f32 {
        let warm_up = u64::from(self.warm_up_steps).min(steps / 2);
        if step <= warm_up {
            return self.learning_rate * step as f32 / (warm_up + 1) as f32;
        }
        let done = (step - warm_up) as f64 / (steps - warm_up).max(1) as f64;
        let cosine = (0.5 + 0.5 * (std::f64::consts::PI * done).cos()) as f32;
        self.learning_rate * (self.final_share + (1.0 - self.final_share) * cosine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::Init;
    use crate::recipe::Recipe;

    fn optimiser() -> Optimiser {
        Recipe::read(None).unwrap().optimiser
    }

    #[test]
    fn the_first_step_is_the_rate_against_the_sign_of_the_gradient() {
        let mut layout = Layout::default();
        layout.add_parameter("a".into(), &[3], ParameterKind::Offset, Init::Constant(1.0));
        layout.add_parameter("b".into(), &[1], ParameterKind::Binary, Init::Constant(1.0));
        let mut state = layout.initial(0);
        let mut adam = Adam::new(4);
        let step = AdamStep { optimiser: optimiser(), number: 1, rate: 0.01 };
        adam.step(step, &layout, &mut state, &[0.3, -20.0, 0.0, -1.0]);
        for (found, expected) in state.parameters.iter().zip([0.99, 1.01, 1.0, 1.0]) {
            assert!((found - expected).abs() < 1e-6, "{found} against {expected}");
        }
    }

    #[test]
    fn the_rate_rises_then_falls_to_its_final_share() {
        let optimiser = optimiser();
        let rates: Vec<f32> = (1..=2000).map(|step| optimiser.rate(step, 2000)).collect();
        assert!(rates[0] < 0.02 * optimiser.learning_rate);
        assert!((rates[200] / optimiser.learning_rate - 1.0).abs() < 0.01);
        assert!((rates[1999] / optimiser.learning_rate - optimiser.final_share).abs() < 1e-4);
        assert!(rates[200..].is_sorted_by(|a, b| a >= b));
    }
}
