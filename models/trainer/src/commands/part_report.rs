//! Figures of a part as text.

use headwater_calibration::account::PartReport;
use headwater_training::run::Finished;

/// Lines with the figures of the validation and the test part, the promise and, without a promise, the origin of the thresholds.
pub(crate) fn both(Finished { policy, reports, .. }: &Finished) -> String {
    let mut promise = format!("{}\n", policy.promise_line());
    if policy.promises.is_empty() {
        promise += &format!("{}\n", reports.thresholds);
    }
    lines("validation", &reports.validation) + &lines("test", &reports.test) + &promise
}

/// Lines with the figures of a part.
pub(crate) fn lines(part: &str, report: &PartReport) -> String {
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    let mut lines = vec![
        format!("{part}: {} samples", report.samples),
        format!("  overall {} are right, each at the exit where it leaves", percent(report.overall)),
    ];
    lines.extend(report.every.iter().map(|(exit, every)| {
        format!(
            "  {:<7} {} leave there, {} of them right; all samples there: {}",
            exit.name(),
            percent(report.share[exit]),
            percent(report.accuracy[exit]),
            percent(*every)
        )
    }));
    if report.no_view > 0 {
        let count = report.no_view;
        lines.push(format!(
            "  {count} without a view: the class prior answers, counted at the first exit (no_view)"
        ));
    }
    lines.push(format!("  {:.1} body bytes per device and sample", report.body_bytes));
    if !report.devices.is_empty() {
        let devices = report.devices.iter().map(|share| format!("{:.1}", 100.0 * share));
        let devices = devices.collect::<Vec<_>>().join(" ");
        lines.push(format!("  each device alone, on samples that it sees: {devices} %"));
    }
    lines.join("\n") + "\n"
}
