//! A bound on log lines that peers can cause, and on messages of ours that are logged with such a line.

use std::ops::Add;
use std::time::Duration;

use tokio::time::Instant;

/// Time over which lines are counted.
pub const LOG_WINDOW: Duration = Duration::from_secs(60);

/// At most `max_lines` lines in a window; further lines are counted. `T` is the caller's type for a point in time.
#[derive(Clone, Debug)]
pub struct LogLimit<T = Instant> {
    max_lines: u32,
    lines: u32,
    begun: Option<T>,
    suppressed: u64,
}

impl<T: Copy + PartialOrd + Add<Duration, Output = T>> LogLimit<T> {
    /// A limit of `max_lines` in each [`LOG_WINDOW`].
    pub fn new(max_lines: u32) -> Self {
        Self { max_lines, lines: 0, begun: None, suppressed: 0 }
    }

    /// Returns true if [`LogLimit::take`] would give a line now.
    pub fn has_room(&self, now: T) -> bool {
        self.lines < self.max_lines || self.begun.is_none_or(|begun| now >= begun + LOG_WINDOW)
    }

    /// Takes one line. Returns the number of lines suppressed since the line before, or `None` if this line is suppressed too.
    pub fn take(&mut self, now: T) -> Option<u64> {
        if self.begun.is_none_or(|begun| now >= begun + LOG_WINDOW) {
            (self.begun, self.lines) = (Some(now), 0);
        }
        if self.lines == self.max_lines {
            self.suppressed += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_a_number_of_lines_and_the_next_one_says_how_many_were_left_out() {
        let (mut limit, now) = (LogLimit::new(2), Instant::now());
        assert_eq!(
            [limit.take(now), limit.take(now), limit.take(now), limit.take(now)],
            [Some(0), Some(0), None, None]
        );
        let moment = Duration::from_millis(1);
        assert_eq!(limit.take(now + LOG_WINDOW - moment), None);
        assert_eq!([now, now + LOG_WINDOW].map(|at| limit.has_room(at)), [false, true]);
        assert_eq!(limit.take(now + LOG_WINDOW), Some(3));
    }
}
