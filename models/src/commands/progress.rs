//! Progress on stderr: one line that is rewritten in a terminal, one line every few seconds in a log.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use headwater_models::by_exit::ByExit;
use headwater_models::training::Event;

/// Prints the events of a run.
pub(crate) struct Reporter {
    epochs: u32,
    pub(crate) status: StatusLine,
    /// Time and number of the first step since this start.
    first: Option<(Instant, u64)>,
}

impl Reporter {
    /// A reporter for a run of `epochs`.
    pub(crate) fn new(epochs: u32) -> Self {
        Self { epochs, status: StatusLine::new(), first: None }
    }

    /// Prints one event; a step only if the last one was printed some time ago.
    pub(crate) fn show(&mut self, event: &Event<'_>) {
        let epochs = self.epochs;
        match event {
            Event::Resumed { progress, skipped } => {
                skipped.iter().for_each(|error| self.status.line(&format!("warning: {error}")));
                let (epoch, steps) = (progress.epoch, progress.step_in_epoch);
                self.status.line(&format!("resuming after epoch {epoch} + {steps} steps"));
            }
            Event::Step { progress, steps_per_epoch } => {
                let (started, first) = *self.first.get_or_insert_with(|| (Instant::now(), progress.step));
                self.status.show(|| {
                let all = u64::from(*steps_per_epoch) * u64::from(epochs);
                let rate = (progress.step - first) as f64 / started.elapsed().as_secs_f64().max(1e-9);
                let left = Duration::from_secs(((all - progress.step) as f64 / rate.max(1e-9)) as u64);
                let samples = progress.sums.samples.max(1) as f64;
                let exits = progress.sums.correct.iter();
                let exits = exits
                    .map(|(exit, hits)| format!("  {} {:.1} %", exit.name(), 100.0 * *hits as f64 / samples));
                format!(
                    "epoch {:>3}/{epochs} step {:>4}/{steps_per_epoch}  loss {:.3}{}  {rate:.1} steps/s  left {}",
                    progress.epoch + 1,
                    progress.step_in_epoch,
                    progress.sums.loss / samples,
                    exits.collect::<String>(),
                    clock(left),
                )
            });
            }
            Event::Checkpoint(_) => {}
            Event::Epoch(record) => self.status.line(&format!(
                "epoch {:>3}/{epochs}  loss {:.4}  train{}  validation{}",
                record.epoch,
                record.loss,
                percents(&record.train),
                percents(&record.validation.exits),
            )),
        }
    }
}

/// ` local 87.21 % cloud 88.40 %`.
fn percents(shares: &ByExit<f64>) -> String {
    shares.iter().map(|(exit, share)| format!(" {} {:.2} %", exit.name(), 100.0 * share)).collect()
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// The status line of a command.
pub(crate) struct StatusLine {
    terminal: bool,
    shown: Option<Instant>,
}

impl StatusLine {
    /// A status line that shows nothing yet.
    pub(crate) fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), shown: None }
    }

    /// Shows a status, unless the last one was shown a moment ago.
    pub(crate) fn show(&mut self, text: impl FnOnce() -> String) {
        let every = if self.terminal { Duration::from_millis(500) } else { Duration::from_secs(15) };
        if self.shown.is_some_and(|shown| shown.elapsed() < every) {
            return;
        }
        self.shown = Some(Instant::now());
        if self.terminal {
            eprint!("\r\x1b[2K{}", text());
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("{}", text());
        }
    }

    /// Prints a permanent line.
    pub(crate) fn line(&self, text: &str) {
        self.clear();
        eprintln!("{text}");
    }

    /// Removes the status from a terminal.
    pub(crate) fn clear(&self) {
        if self.terminal {
            eprint!("\r\x1b[2K");
        }
    }
}
