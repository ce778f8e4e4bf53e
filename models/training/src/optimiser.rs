//! The optimisers over one flat vector, with decoupled weight decay and the clipping of binary weights.

use crate::layers::{Layout, Parameter, ParameterKind, State};
use crate::recipe::{Algorithm, Optimiser};

/// State of the optimiser.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    /// Mean of gradients (Adam), or the velocity (stochastic gradient descent).
    pub first: Vec<f32>,
    /// Mean of squared gradients (Adam); unused by stochastic gradient descent.
    pub second: Vec<f32>,
}

/// Summand that keeps Adam's divisor above zero.
const EPSILON: f32 = 1e-8;

/// One step of the optimiser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimiserStep {
    /// Settings of the optimiser.
    pub optimiser: Optimiser,
    /// Number of the step, from 1.
    pub number: u64,
    /// Step size.
    pub rate: f32,
}

impl Moments {
    /// Moments of zero for `count` parameters.
    pub fn new(count: usize) -> Self {
        Self { first: vec![0.0; count], second: vec![0.0; count] }
    }

    /// Takes one step along a gradient.
    pub fn step(&mut self, step: OptimiserStep, layout: &Layout, state: &mut State, gradient: &[f32]) {
        match step.optimiser.algorithm {
            Algorithm::Adam => self.adam_step(step, layout, state, gradient),
            Algorithm::Sgd => self.sgd_step(step, layout, state, gradient),
        }
    }

    /// A step of Adam (Kingma and Ba 2015, algorithm 1).
    fn adam_step(&mut self, step: OptimiserStep, layout: &Layout, state: &mut State, gradient: &[f32]) {
        let (correct_1, correct_2) = step.corrections();
        let OptimiserStep { optimiser: Optimiser { beta_1, beta_2, .. }, rate, .. } = step;
        for parameter in layout.learning() {
            let range = parameter.range.clone();
            let (decay, bound) = step.decay_and_bound(parameter);
            let parameters = state.parameters[range.clone()].iter_mut().zip(&gradient[range.clone()]);
            let means = self.first[range.clone()].iter_mut().zip(&mut self.second[range]);
            for ((parameter, g), (first, second)) in parameters.zip(means) {
                *first = beta_1 * *first + (1.0 - beta_1) * g;
                *second = beta_2 * *second + (1.0 - beta_2) * g * g;
                let move_by = rate * (*first * correct_1) / ((*second * correct_2).sqrt() + EPSILON);
                *parameter = (*parameter * decay - move_by).clamp(-bound, bound);
            }
        }
    }

    /// A step of Adam along the given mean of gradients, with the mean of squared gradients frozen at step `frozen_at` (Tang et al. 2021,
    /// "1-bit Adam", algorithm 1). A parameter without any gradient up to `frozen_at` only decays, since the size of its steps is unknown.
    pub fn frozen_step(
        &mut self,
        step: OptimiserStep,
        frozen_at: u64,
        (layout, state): (&Layout, &mut State),
        mean: Vec<f32>,
    ) {
        self.first = mean;
        let (_, correct_2) = OptimiserStep { number: frozen_at.max(1), ..step }.corrections();
        for parameter in layout.learning() {
            let range = parameter.range.clone();
            let (decay, bound) = step.decay_and_bound(parameter);
            let means = self.first[range.clone()].iter().zip(&self.second[range.clone()]);
            for (parameter, (first, second)) in state.parameters[range].iter_mut().zip(means) {
                let scale =
                    if *second > 0.0 { step.rate / ((second * correct_2).sqrt() + EPSILON) } else { 0.0 };
                *parameter = (*parameter * decay - scale * first).clamp(-bound, bound);
            }
        }
    }

    /// A step of stochastic gradient descent; `beta_1` is the momentum (Sutskever et al. 2013, equations 1 and 2).
    fn sgd_step(&mut self, step: OptimiserStep, layout: &Layout, state: &mut State, gradient: &[f32]) {
        for parameter in layout.learning() {
            let range = parameter.range.clone();
            let (decay, bound) = step.decay_and_bound(parameter);
            let parameters = state.parameters[range.clone()].iter_mut().zip(&gradient[range.clone()]);
            for ((parameter, g), velocity) in parameters.zip(&mut self.first[range]) {
                *velocity = step.optimiser.beta_1 * *velocity + g;
                *parameter = (*parameter * decay - step.rate * *velocity).clamp(-bound, bound);
            }
        }
    }
}

impl OptimiserStep {
    /// Factors that correct both means for their start at zero (Kingma and Ba 2015, section 3).
    fn corrections(self) -> (f32, f32) {
        let exponent = i32::try_from(self.number).unwrap_or(i32::MAX);
        let correct = |beta: f32| (1.0 / (1.0 - f64::from(beta).powi(exponent))) as f32;
        (correct(self.optimiser.beta_1), correct(self.optimiser.beta_2))
    }

    /// Factor by which weight decay multiplies a parameter in this step, and the bound on the parameter's magnitude.
    fn decay_and_bound(self, parameter: &Parameter) -> (f32, f32) {
        match parameter.kind {
            ParameterKind::Binary => (1.0, 1.0),
            ParameterKind::Weight => (1.0 - self.rate * self.optimiser.weight_decay, f32::INFINITY),
            ParameterKind::Offset => (1.0, f32::INFINITY),
        }
    }
}

impl Optimiser {
    /// Step size at `step` (from 1) of `steps`: a linear rise, then half a cosine.
    pub fn rate(&self, step: u64, steps: u64) -> f32 {
        let warm_up = self.warm_up_steps(steps);
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

    /// An offset of three numbers and a binary weight, all at 1.
    fn layout() -> Layout {
        let mut layout = Layout::default();
        layout.add_parameter("a".into(), &[3], ParameterKind::Offset, Init::Constant(1.0));
        layout.add_parameter("b".into(), &[1], ParameterKind::Binary, Init::Constant(1.0));
        layout
    }

    #[track_caller]
    fn is_near(found: &[f32], expected: &[f32]) {
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found} against {expected}");
        }
    }

    #[test]
    fn the_first_step_is_the_rate_against_the_sign_of_the_gradient() {
        let (layout, mut moments) = (layout(), Moments::new(4));
        let mut state = layout.initial(0);
        let step = OptimiserStep { optimiser: optimiser(), number: 1, rate: 0.01 };
        moments.step(step, &layout, &mut state, &[0.3, -20.0, 0.0, -1.0]);
        is_near(&state.parameters, &[0.99, 1.01, 1.0, 1.0]);
    }

    #[test]
    fn gradient_descent_moves_by_rate_and_momentum() {
        let (layout, mut moments) = (layout(), Moments::new(4));
        let mut state = layout.initial(0);
        let optimiser = Optimiser { algorithm: Algorithm::Sgd, beta_1: 0.5, ..optimiser() };
        for number in [1, 2] {
            let step = OptimiserStep { optimiser, number, rate: 0.1 };
            moments.step(step, &layout, &mut state, &[1.0, -2.0, 0.0, -1.0]);
        }
        // The second step has a velocity of one and a half gradients; the binary weight is clipped.
        is_near(&state.parameters, &[0.75, 1.5, 1.0, 1.0]);
    }

    #[test]
    fn a_frozen_step_divides_a_given_mean_by_the_frozen_deviation() {
        let (layout, mut moments) = (layout(), Moments::new(4));
        let mut state = layout.initial(0);
        let optimiser = Optimiser { beta_2: 0.5, ..optimiser() };
        moments.second = vec![0.5, 2.0, 0.5, 0.5];
        // The correction of the first step is 2, so the deviations are 1 and 2.
        let step = OptimiserStep { optimiser, number: 9, rate: 0.1 };
        moments.frozen_step(step, 1, (&layout, &mut state), vec![1.0, -2.0, 0.0, -1.0]);
        is_near(&state.parameters, &[0.9, 1.1, 1.0, 1.0]);
        assert_eq!((moments.first[1], moments.second[1]), (-2.0, 2.0));
    }

    #[test]
    fn the_rate_rises_then_falls_to_its_final_share() {
        let optimiser = Optimiser { warm_up: 0.1, ..optimiser() };
        let rates: Vec<f32> = (1..=2000).map(|step| optimiser.rate(step, 2000)).collect();
        assert!(rates[0] < 0.02 * optimiser.learning_rate);
        assert!((rates[200] / optimiser.learning_rate - 1.0).abs() < 0.01);
        assert!((rates[1999] / optimiser.learning_rate - optimiser.final_share).abs() < 1e-4);
        assert!(rates[200..].is_sorted_by(|a, b| a >= b));
    }
}
