//! The demo's report as a table for people.

use std::fmt::{self, Display};

use super::report::{BytesReport, DemoReport, STAGES, share};
use crate::named;

/// A report that is shown as a table.
pub struct Table<'a>(pub &'a DemoReport);

impl Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        writeln!(
            f,
            "\n{} of {} samples decided, {:.1} % right, {:.0} decisions a second\n",
            report.decided,
            report.samples,
            100.0 * report.accuracy,
            report.decisions_per_second
        )?;
        writeln!(f, "{}\n", report.promise_line)?;
        exits(f, report)?;
        bytes(f, &report.bytes)?;
        reasons(f, report)
    }
}

fn exits(f: &mut fmt::Formatter<'_>, report: &DemoReport) -> fmt::Result {
    writeln!(f, "exit      samples   share  accuracy    p50 ms   p95 ms   p99 ms   (trigger to decision)")?;
    for (exit, row) in &report.exits {
        writeln!(
            f,
            "{:<8} {:>8} {:>6.1}% {:>8.1}% {:>9.2} {:>8.2} {:>8.2}",
            exit.name(),
            row.count,
            100.0 * share(row.count, report.decided),
            100.0 * row.accuracy,
            row.latency_ms.p50,
            row.latency_ms.p95,
            row.latency_ms.p99,
        )?;
    }
    writeln!(f, "\nmedian ms from capture to the end of each stage, at the leader")?;
    for (exit, row) in &report.exits {
        let stages = STAGES.map(|(stage, _)| (stage, row.stages_ms.get(stage).copied().unwrap_or(0.0)));
        let passed = stages.into_iter().filter(|(stage, ms)| *ms > 0.0 || *stage == "decided");
        let columns: Vec<_> = passed.map(|(stage, ms)| format!("{stage} {ms:.2}")).collect();
        writeln!(f, "{:<8} {}", exit.name(), columns.join("   "))?;
    }
    writeln!(f)
}

fn bytes(f: &mut fmt::Formatter<'_>, bytes: &BytesReport) -> fmt::Result {
    writeln!(f, "bytes per view          to the raw image")?;
    let rows = [
        ("raw image", bytes.raw),
        ("as JPEG, quality 75", bytes.jpeg),
        ("as WebP, quality 75", bytes.webp),
        ("scores and features", bytes.body),
        ("with our headers", bytes.payload),
        ("sent on the socket", bytes.wire_sent),
        ("received on it", bytes.wire_received),
    ];
    for (name, value) in rows {
        let ratio = if value > 0.0 { bytes.raw / value } else { 0.0 };
        writeln!(f, "{name:<20} {value:>8.1} {ratio:>9.1} x smaller")?;
    }
    writeln!(f, "{:<20} {:>8.1} a sample\n", "leader to cloud", bytes.cloud)
}

fn reasons(f: &mut fmt::Formatter<'_>, report: &DemoReport) -> fmt::Result {
    let or_none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
    let degraded = named(report.degraded.iter().map(|(reason, count)| (reason.name(), count)));
    let dropped = named(report.dropped.iter().map(|(reason, count)| (reason.name(), count)));
    writeln!(f, "degraded: {}   dropped: {}", or_none(degraded), or_none(dropped))?;
    write!(
        f,
        "missing views: {}   undecided: {}   lost: {}   duplicated: {}",
        report.missing, report.undecided, report.lost, report.duplicated
    )
}
