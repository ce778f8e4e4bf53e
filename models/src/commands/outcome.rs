//! The figures of a part, for people.

use headwater_models::calibration::Outcome;

/// Prints what the exits do to a part.
pub(crate) fn print(part: &str, outcome: &Outcome) {
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    let devices: Vec<String> = outcome.devices.iter().map(|share| format!("{:.1}", 100.0 * share)).collect();
    println!("{part}: {} samples", outcome.samples);
    println!("  cloud   {}   every sample at the exit cloud", percent(outcome.cloud));
    println!("  local   {}   every sample at the exit local", percent(outcome.local));
    println!("  overall {}   {} leave at local", percent(outcome.overall), percent(outcome.local_share));
    println!(
        "  of those that leave at local {} are right, of those that go on {}; {:.1} body bytes per device and sample",
        percent(outcome.local_accuracy),
        percent(outcome.cloud_accuracy),
        outcome.body_bytes
    );
    println!("  devices alone, where they see the object: {} %", devices.join(" "));
}
