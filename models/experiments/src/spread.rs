//! Mean and standard deviation over runs, and their text on the page.

/// Mean and standard deviation over runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) mean: f64,
    /// Standard deviation over runs, with divisor `n - 1`; `None` for one run.
    deviation: Option<f64>,
}

impl Spread {
    /// Mean and standard deviation of values; `None` without values.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().collect();
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (n > 1.0).then(|| (squares / (n - 1.0)).sqrt());
        (n > 0.0).then_some(Self { mean, deviation })
    }

    /// Mean and deviation of shares, in percent: `97.4 ± 0.4`.
    pub(super) fn percent(self) -> String {
        format!("{:.1}{}", 100.0 * self.mean, self.deviation())
    }

    /// Mean and deviation of numbers of bytes: `21.9 ± 3.1`.
    pub(super) fn bytes(self) -> String {
        let deviation = self.deviation.map_or_else(String::new, |deviation| format!(" ± {deviation:.1}"));
        format!("{:.1}{deviation}", self.mean)
    }

    /// Mean and deviation of differences of shares, in points: `+0.4 ± 0.2`.
    pub(super) fn points(self) -> String {
        format!("{:+.1}{}", 100.0 * self.mean, self.deviation())
    }

    /// Mean and deviation of small differences of shares, in points with two decimals: `+0.24 ± 0.11`.
    pub(super) fn small_points(self) -> String {
        let deviation = self.deviation.map_or_else(String::new, |of| format!(" ± {:.2}", 100.0 * of));
        format!("{:+.2}{deviation}", 100.0 * self.mean)
    }

    /// The deviation of shares, in percent: ` ± 0.4`; empty for one run.
    fn deviation(self) -> String {
        self.deviation.map_or_else(String::new, |deviation| format!(" ± {:.1}", 100.0 * deviation))
    }
}

/// Text of [`Spread::percent`]; empty without values.
pub(super) fn percent(spread: Option<Spread>) -> String {
    spread.map_or_else(String::new, Spread::percent)
}

/// Wilson's 95 % interval of a share of `n` samples, in percent.
pub(super) fn wilson(share: f64, n: usize) -> String {
    let (z2, n) = (1.96f64.powi(2), n.max(1) as f64);
    let middle = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = (z2 * (share * (1.0 - share) / n + z2 / (4.0 * n * n))).sqrt() / (1.0 + z2 / n);
    format!("{:.1} to {:.1}", 100.0 * (middle - half), 100.0 * (middle + half))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_over_runs_and_the_interval_is_wilsons() {
        assert_eq!(Spread::of([0.9, 1.0]).unwrap().percent(), "95.0 ± 7.1");
        assert_eq!(Spread::of([0.5]).unwrap().percent(), "50.0");
        assert_eq!(Spread::of([]), None);
        // Wilson 1927: 8 of 10 at 95 % gives 0.490 to 0.943.
        assert_eq!(wilson(0.8, 10), "49.0 to 94.3");
    }
}
