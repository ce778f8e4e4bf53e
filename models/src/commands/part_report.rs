//! Figures of a part as text.

use headwater_models::report::{PartReport, PartReports};

/// Prints the figures of the validation and the test part.
pub(crate) fn print_both(reports: &PartReports) {
    print("validation", &reports.validation);
    print("test", &reports.test);
}

/// Prints the figures of a part.
pub(crate) fn print(part: &str, report: &PartReport) {
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    println!("{part}: {} samples", report.samples);
    println!("  overall {} are right, each at the exit where it leaves", percent(report.overall));
    for (exit, every) in report.every.iter() {
        println!(
            "  {:<7} {} leave there, {} of them right; all samples there: {}",
            exit.name(),
            percent(report.share[exit]),
            percent(report.accuracy[exit]),
            percent(*every)
        );
    }
    if report.no_view > 0 {
        let count = report.no_view;
        println!("  {count} without a view: the class prior answers, counted at the first exit (no_view)");
    }
    println!("  {:.1} body bytes per device and sample", report.body_bytes);
    if !report.devices.is_empty() {
        let devices = report.devices.iter().map(|share| format!("{:.1}", 100.0 * share));
        let devices = devices.collect::<Vec<_>>().join(" ");
        println!("  each device alone, on samples that it sees: {devices} %");
    }
}
