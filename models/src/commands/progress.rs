//! Progress on stderr: one line that is written over in a terminal, a line every few seconds in a log.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use headwater_models::by_exit::ByExit;
use headwater_models::run::Notice;

/// Prints what happens in a run.
pub(crate) struct Reporter {
    epochs: u32,
    terminal: bool,
    shown: Option<Instant>,
}

impl Reporter {
    /// A reporter for a run of `epochs`.
    pub(crate) fn new(epochs: u32) -> Self {
        Self { epochs, terminal: std::io::stderr().is_terminal(), shown: None }
    }

    /// Prints one notice, if it is time.
    pub(crate) fn show(&mut self, notice: &Notice<'_>) {
        match notice {
            Notice::Resumed(progress, passed_over) => {
                for error in *passed_over {
                    self.line(&format!("warning: {error}"));
                }
                self.line(&format!(
                    "resuming after epoch {} + {} steps",
                    progress.epoch, progress.step_in_epoch
                ));
            }
            Notice::Step { progress, steps_per_epoch, elapsed, steps } => {
                let every = if self.terminal { Duration::from_millis(500) } else { Duration::from_secs(15) };
                if self.shown.is_some_and(|shown| shown.elapsed() < every) {
                    return;
                }
                self.shown = Some(Instant::now());
                let all = u64::from(*steps_per_epoch) * u64::from(self.epochs);
                let rate = *steps as f64 / elapsed.as_secs_f64().max(1e-9);
                let left = Duration::from_secs(((all - progress.step) as f64 / rate.max(1e-9)) as u64);
                let figures = &progress.figures;
                let exits = figures.correct.iter().map(|(exit, hits)| {
                    format!("  {} {:.1} %", exit.name(), 100.0 * *hits as f64 / figures.samples.max(1) as f64)
                });
                let text = format!(
                    "epoch {:>3}/{} step {:>4}/{}  loss {:.3}{}  {:.1} steps/s  left {}",
                    progress.epoch + 1,
                    self.epochs,
                    progress.step_in_epoch,
                    steps_per_epoch,
                    figures.loss / figures.samples.max(1) as f64,
                    exits.collect::<String>(),
                    rate,
                    clock(left),
                );
                if self.terminal {
                    eprint!("\r\x1b[2K{text}");
                    let _ = std::io::stderr().flush();
                } else {
                    eprintln!("{text}");
                }
            }
            Notice::Epoch(record) => self.line(&format!(
                "epoch {:>3}/{}  loss {:.4}  train{}  validation{}",
                record.epoch,
                self.epochs,
                record.loss,
                percents(&record.train),
                percents(&record.validation.exits),
            )),
        }
    }

    /// Prints a line of its own.
    pub(crate) fn line(&mut self, text: &str) {
        let clear = if self.terminal { "\r\x1b[2K" } else { "" };
        eprintln!("{clear}{text}");
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
