//! Live progress on stderr: a moving line in a terminal, a line every two seconds in a log.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use headwater_protocol::{Decision, Exit};
use headwater_telemetry::print_error;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Counts decisions, and shows the counts on stderr while they grow.
pub(crate) struct Progress {
    bar: ProgressBar,
    before_cloud: u64,
    degraded: u64,
    missing: u64,
    /// Time of the next plain line; `None` if a moving line or nothing is shown.
    next_line: Option<Instant>,
}

const LINE_EVERY: Duration = Duration::from_secs(2);

/// Prints on stderr what the command waits for, and the longest wait.
pub(crate) fn waiting(event: &str, limit: Duration) {
    print_error(&format!("waiting for {event}, at most {} s", limit.as_secs()));
}

impl Progress {
    /// Progress towards `total` samples; shows nothing if `quiet`.
    pub(crate) fn new(total: u64, quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let target =
            if quiet || !terminal { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}") {
            bar.set_style(style);
        }
        let next_line = (!quiet && !terminal).then(|| Instant::now() + LINE_EVERY);
        Self { bar, before_cloud: 0, degraded: 0, missing: 0, next_line }
    }

    /// Prints a line above the moving line, or as a plain line; nothing if quiet.
    pub(crate) fn print_line(&self, line: &str) {
        if self.bar.is_hidden() {
            if self.next_line.is_some() {
                print_error(line);
            }
        } else {
            self.bar.println(line);
        }
    }

    pub(crate) fn decided(&mut self, decision: &Decision) {
        self.degraded += u64::from(!decision.degraded.is_empty());
        self.count(decision.exit != Exit::CLOUD, decision.presence.missing_count());
    }

    /// Counts a sample, with its missing views.
    pub(crate) fn count(&mut self, left_early: bool, missing: u32) {
        self.before_cloud += u64::from(left_early);
        self.missing += u64::from(missing);
        self.bar.inc(1);
        self.bar.set_message(self.message());
        if let Some(next) = &mut self.next_line
            && Instant::now() >= *next
        {
            *next += LINE_EVERY;
            let (decided, total) = (self.bar.position(), self.bar.length().unwrap_or_default());
            print_error(&format!("{decided}/{total}  {}", self.message()));
        }
    }

    /// Clears the moving line.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn message(&self) -> String {
        format!(
            "left early {:.0} %  degraded {}  missing views {}",
            100.0 * self.before_cloud as f64 / self.bar.position() as f64,
            self.degraded,
            self.missing
        )
    }
}
