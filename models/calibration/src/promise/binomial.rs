//! The exact test of losses: a binomial count.

/// Probability that a binomial count of `trials` with probability `p` in `(0, 1)` is at most `count`.
///
/// The terms are kept as logarithms and divided by the largest term before they are summed, so that neither many trials nor a small
/// `p` underflows.
pub fn at_most(count: u64, trials: u64, p: f64) -> f64 {
    if count >= trials {
        return 1.0;
    }
    let (log_p, log_q) = (p.ln(), (-p).ln_1p());
    let mut log_term = trials as f64 * log_q;
    let mut log_terms = vec![log_term];
    for i in 0..count {
        log_term += ((trials - i) as f64).ln() - ((i + 1) as f64).ln() + log_p - log_q;
        log_terms.push(log_term);
    }
    let largest = log_terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = log_terms.iter().map(|log_term| (log_term - largest).exp()).sum();
    (largest + sum.ln()).exp().min(1.0)
}

/// Largest number of losses among `samples` that still shows, at risk `delta`, a loss of at most `loss`; `None` if even zero
/// losses do not show it.
pub fn most_losses(samples: u64, loss: f64, delta: f64) -> Option<u64> {
    let passes = |count: u64| at_most(count, samples, loss) <= delta;
    if samples == 0 || !passes(0) {
        return None;
    }
    // The probability rises with the count, so the largest count that passes lies in `low..high`.
    let (mut low, mut high) = (0, samples);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if passes(middle) { low = middle } else { high = middle }
    }
    Some(low)
}

/// Least number of samples that can show, at risk `delta`, a loss of at most `loss`: with fewer, even zero losses do not show it.
pub fn least_samples(loss: f64, delta: f64) -> u64 {
    (delta.ln() / (-loss).ln_1p()).ceil() as u64
}

/// Exact confidence interval of a probability, after `count` of `trials` were observed (Clopper and Pearson 1934).
pub fn interval(count: u64, trials: u64, confidence: f64) -> [f64; 2] {
    let tail = (1.0 - confidence) / 2.0;
    // `at_most` falls as `p` rises; bisection finds the `p` at which `at_most` crosses `value`.
    let crossing = |count: u64, value: f64| {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if at_most(count, trials, middle) > value { low = middle } else { high = middle }
        }
        f64::midpoint(low, high)
    };
    let low = if count == 0 { 0.0 } else { crossing(count - 1, 1.0 - tail) };
    let high = if count >= trials { 1.0 } else { crossing(count, tail) };
    [low, high]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_few_trials_are_those_by_hand() {
        // With 4 trials at 1/4 the probability is 81/256 of no success and 108/256 of one.
        assert!((at_most(0, 4, 0.25) - 81.0 / 256.0).abs() < 1e-12);
        assert!((at_most(1, 4, 0.25) - 189.0 / 256.0).abs() < 1e-12);
        assert_eq!(at_most(4, 4, 0.25), 1.0);
    }

    #[test]
    fn many_trials_neither_underflow_nor_exceed_one() {
        // With 2e6 trials at 0.01, 0.99^2e6 is far below the least positive f64.
        let below = at_most(20_000, 2_000_000, 0.01);
        assert!((below - 0.5).abs() < 0.01, "{below}");
        assert!(at_most(1_999_999, 2_000_000, 0.01) <= 1.0);
    }

    #[test]
    fn the_exact_interval_is_that_of_the_tables() {
        // The upper end for 0 of 200 is 1 - 0.025^(1/200); both ends for 10 of 200 are those of Clopper and Pearson.
        let [low, high] = interval(0, 200, 0.95);
        assert!(low == 0.0 && (high - (1.0 - 0.025f64.powf(1.0 / 200.0))).abs() < 1e-9, "{high}");
        let [low, high] = interval(10, 200, 0.95);
        assert!((low - 0.024_235).abs() < 1e-4 && (high - 0.090_026).abs() < 1e-4, "{low} {high}");
        assert_eq!(interval(5, 5, 0.95)[1], 1.0);
    }

    #[test]
    fn half_a_point_at_95_percent_needs_598_samples_and_allows_16_losses_of_5000() {
        assert_eq!(least_samples(0.005, 0.05), 598);
        assert_eq!((most_losses(597, 0.005, 0.05), most_losses(598, 0.005, 0.05)), (None, Some(0)));
        assert_eq!(most_losses(5000, 0.005, 0.05), Some(16));
        // Risk of the test that allows 16 losses of 5,000; a test that allows 17 would have more than 0.05.
        assert!((at_most(16, 5000, 0.005) - 0.0374).abs() < 5e-4, "{}", at_most(16, 5000, 0.005));
    }
}
