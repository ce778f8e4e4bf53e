//! The figures of a part, for people.

use headwater_models::calibration::Outcome;

/// Prints what the exits do to a part.
pub(crate) fn print(part: &str, outcome: &Outcome) {
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    println!("{part}: {} samples", outcome.samples);
    println!("  overall {} are right, each where it leaves", percent(outcome.overall));
    for (exit, every) in outcome.every.iter() {
        println!(
            "  {:<7} {} leave there, {} of them right; every sample there: {}",
            exit.name(),
            percent(outcome.share[exit]),
            percent(outcome.accuracy[exit]),
            percent(*every)
        );
    }
    if outcome.no_view > 0 {
        println!(
            "  {} are seen by no device: the class prior answers, counted with the cloud's",
            outcome.no_view
        );
    }
    println!("  {:.1} body bytes per device and sample", outcome.body_bytes);
    if !outcome.devices.is_empty() {
        let devices = outcome.devices.iter().map(|share| format!("{:.1}", 100.0 * share));
        let devices = devices.collect::<Vec<_>>().join(" ");
        println!("  devices alone, where they see the object: {devices} %");
    }
}
