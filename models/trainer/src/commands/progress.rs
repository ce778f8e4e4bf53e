//! Progress on stderr: one line that is rewritten in a terminal, one line every few seconds in a log.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use headwater_calibration::by_exit::ByExit;
use headwater_protocol::Exit;
use headwater_training::joint::Event;
use headwater_training::loss::LossSums;

use super::output::{print_error, print_status};

/// Prints the events of a run.
pub(crate) struct Reporter {
    epochs: u32,
    /// Text before each line of a fold: `fold 2 of 4  `.
    fold: String,
    pub(crate) status: StatusLine,
    /// Time and number of the first step since this start.
    first: Option<(Instant, u64)>,
    /// Time and number of samples after the first step of the epoch, and after the last step so far.
    epoch: Option<[(Instant, u64); 2]>,
}

impl Reporter {
    /// A reporter for a run of `epochs`, or for the fold with a name.
    pub(crate) fn new(epochs: u32, fold: Option<&str>) -> Self {
        let fold = fold.map_or_else(String::new, |name| format!("{name}  "));
        Self { epochs, fold, status: StatusLine::new(), first: None, epoch: None }
    }

    /// Prints one event; a step only if the last status is at least 0.5 s old, or 15 s outside a terminal.
    pub(crate) fn show(&mut self, event: &Event<'_>) {
        let Self { epochs, fold, .. } = self;
        let epochs = *epochs;
        match event {
            Event::Resumed { progress, skipped } => {
                skipped.iter().for_each(|reason| self.status.line(&format!("warning: {reason}")));
                let (epoch, steps) = (progress.epoch, progress.step_in_epoch);
                self.status.line(&format!("resuming after epoch {epoch} + {steps} steps"));
            }
            Event::Step { progress, steps_per_epoch } => {
                let now = (Instant::now(), progress.sums.samples);
                self.epoch.get_or_insert([now, now])[1] = now;
                let (started, first) = *self.first.get_or_insert_with(|| (Instant::now(), progress.step));
                self.status.show(|| {
                    let all = u64::from(*steps_per_epoch) * u64::from(epochs);
                    let done = u64::from(progress.epoch) * u64::from(*steps_per_epoch)
                        + u64::from(progress.step_in_epoch);
                    let pace = Pace::of(progress.step.saturating_sub(first), started.elapsed());
                    let pace = pace.map_or_else(String::new, |pace| {
                        let left = clock(pace.time_for(all.saturating_sub(done)));
                        format!("  {:.1} steps/s  left {left}", pace.per_second)
                    });
                    format!(
                        "{fold}epoch {:>3}/{epochs} step {:>4}/{steps_per_epoch}{}{pace}",
                        progress.epoch + 1,
                        progress.step_in_epoch,
                        figures(&progress.sums),
                    )
                });
            }
            Event::Checkpoint(..) => {}
            Event::Epoch(record) => {
                // The speed of the steps alone, without the time of the evaluation.
                let speed = self.epoch.take().and_then(|[(started, first), (ended, last)]| {
                    let pace = Pace::of(last.saturating_sub(first), ended.duration_since(started))?;
                    Some(format!("  {:.0} samples/s", pace.per_second))
                });
                self.status.line(&format!(
                    "{fold}epoch {:>3}/{epochs}  loss {:.4}  train{}  validation{}{}",
                    record.epoch,
                    record.loss,
                    percents(&record.train),
                    percents(&record.validation.exits),
                    speed.unwrap_or_default(),
                ));
            }
        }
    }
}

/// Text such as `  loss 1.234  local 87.2 %  cloud 88.4 %`; empty before the first exchange of ranks.
fn figures(sums: &LossSums) -> String {
    if sums.samples == 0 {
        return String::new();
    }
    let samples = sums.samples as f64;
    let exit =
        |(exit, hits): (Exit, &u64)| format!("  {} {:.1} %", exit.name(), 100.0 * *hits as f64 / samples);
    let exits: String = sums.correct.iter().map(exit).collect();
    format!("  loss {:.3}{exits}", sums.loss / samples)
}

/// Text such as ` local 87.21 % cloud 88.40 %`.
fn percents(shares: &ByExit<f64>) -> String {
    shares.iter().map(|(exit, share)| format!(" {} {:.2} %", exit.name(), 100.0 * share)).collect()
}

/// Speed of work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pace {
    /// Pieces of work in a second, above 0.
    pub(crate) per_second: f64,
}

impl Pace {
    /// The pace of work that is done; `None` before the first piece is done.
    pub(crate) fn of(done: u64, elapsed: Duration) -> Option<Self> {
        (done > 0 && !elapsed.is_zero()).then(|| Self { per_second: done as f64 / elapsed.as_secs_f64() })
    }

    /// Time for work that is left.
    pub(crate) fn time_for(self, left: u64) -> Duration {
        Duration::try_from_secs_f64(left as f64 / self.per_second).unwrap_or(Duration::MAX)
    }
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// The status line of a command.
pub(crate) struct StatusLine {
    terminal: bool,
    /// Before this time nothing is shown.
    quiet_until: Instant,
    shown: Option<Instant>,
}

impl StatusLine {
    /// A status line that shows nothing yet.
    pub(crate) fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), quiet_until: Instant::now(), shown: None }
    }

    /// A status line of work that is often done at once: nothing is shown in the first two seconds.
    pub(crate) fn of_slow_work() -> Self {
        Self { quiet_until: Instant::now() + Duration::from_secs(2), ..Self::new() }
    }

    /// Shows the status of a new stage of the work.
    pub(crate) fn stage(&mut self, text: &str) {
        self.clear();
        self.shown = None;
        self.show(|| text.to_owned());
    }

    /// Shows a status if the last status is at least 0.5 s old, or 15 s outside a terminal.
    pub(crate) fn show(&mut self, text: impl FnOnce() -> String) {
        let every = if self.terminal { Duration::from_millis(500) } else { Duration::from_secs(15) };
        if Instant::now() < self.quiet_until || self.shown.is_some_and(|shown| shown.elapsed() < every) {
            return;
        }
        self.shown = Some(Instant::now());
        if self.terminal {
            print_status(&format!("\r\x1b[2K{}", text()));
        } else {
            print_error(&text());
        }
    }

    /// Prints a permanent line.
    pub(crate) fn line(&self, text: &str) {
        self.clear();
        print_error(text);
    }

    /// Removes the status from a terminal.
    pub(crate) fn clear(&self) {
        if self.terminal {
            print_status("\r\x1b[2K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_estimated_before_the_first_step() {
        assert_eq!(Pace::of(0, Duration::from_secs(3)), None);
        assert_eq!(Pace::of(5, Duration::ZERO), None);
        let pace = Pace::of(6, Duration::from_secs(3)).expect("six steps");
        assert_eq!((pace.per_second, clock(pace.time_for(130))), (2.0, "1:05".to_owned()));
        assert_eq!(Pace { per_second: f64::MIN_POSITIVE }.time_for(u64::MAX), Duration::MAX);
    }
}
