//! The work loops of a process. A loop that hangs is found by the length of its round.
//!
//! ```text
//!  begin_round() ── work ── end_round() ── waiting for work ── begin_round() ── ...
//!  └── a round that lasts longer than the limit: the loop hangs ──┘
//! ```
//!
//! A loop that waits for work may wait for ever. A round of work has a limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Longest time of one round. A slow disk may delay a round; when a round takes longer than this, only a new process helps.
const ROUND_LIMIT: Duration = Duration::from_secs(10);

/// The work loops of a process; clones share them.
#[derive(Clone, Debug)]
pub struct WorkLoops {
    loops: Arc<Mutex<Vec<Watched>>>,
    start: Instant,
    round_limit: Duration,
}

/// Name of a loop, and the begin of its present round as in [`WorkLoop`].
type Watched = (String, Arc<AtomicU64>);

/// One loop, in the hands of the task or thread that runs it. A dropped loop counts as waiting, and never hangs.
#[derive(Debug)]
pub struct WorkLoop {
    /// Begin of the present round, ms since `start`; 0 while the loop waits.
    round_since_ms: Arc<AtomicU64>,
    start: Instant,
}

impl Default for WorkLoops {
    fn default() -> Self {
        Self::with_limit(ROUND_LIMIT)
    }
}

impl WorkLoops {
    /// Loops with another limit of a round than 10 s.
    pub fn with_limit(round_limit: Duration) -> Self {
        Self { loops: Arc::default(), start: Instant::now(), round_limit }
    }

    /// Adds a loop, which waits at first.
    pub fn add(&self, name: impl Into<String>) -> WorkLoop {
        let round_since_ms = Arc::new(AtomicU64::new(0));
        let mut loops = self.loops.lock();
        // Nothing but this list holds the time of a dropped loop.
        loops.retain(|(_, round_since_ms)| Arc::strong_count(round_since_ms) > 1);
        loops.push((name.into(), Arc::clone(&round_since_ms)));
        WorkLoop { round_since_ms, start: self.start }
    }

    /// The loops whose round lasts longer than the limit, as a sentence; `None` if no loop hangs.
    pub fn hanging(&self) -> Option<String> {
        self.hanging_at(Instant::now())
    }

    fn hanging_at(&self, now: Instant) -> Option<String> {
        let now_ms = ms_since(self.start, now);
        let hanging = |(name, round_since_ms): &Watched| {
            let since = round_since_ms.load(Relaxed);
            let round_ms = now_ms.saturating_sub(since);
            let is_over = since > 0 && u128::from(round_ms) > self.round_limit.as_millis();
            is_over.then(|| format!("{name} has not come to the end of its work for {} s", round_ms / 1000))
        };
        let hanging: Vec<String> = self.loops.lock().iter().filter_map(hanging).collect();
        (!hanging.is_empty()).then(|| hanging.join("\n"))
    }
}

impl WorkLoop {
    /// Begins a round, and ends the round before.
    pub fn begin_round(&self) {
        self.round_since_ms.store(ms_since(self.start, Instant::now()).max(1), Relaxed);
    }

    /// Ends the round: the loop waits for work.
    pub fn end_round(&self) {
        self.round_since_ms.store(0, Relaxed);
    }
}

impl Drop for WorkLoop {
    fn drop(&mut self) {
        self.end_round();
    }
}

fn ms_since(start: Instant, now: Instant) -> u64 {
    u64::try_from(now.saturating_duration_since(start).as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_beyond_the_limit_is_named_and_waiting_is_not() {
        let loops = WorkLoops::default();
        let (north, south) = (loops.add("group north"), loops.add("group south"));
        let later = Instant::now() + ROUND_LIMIT + Duration::from_secs(5);
        assert_eq!(loops.hanging_at(later), None, "loops that wait may wait for ever");
        north.begin_round();
        south.begin_round();
        assert_eq!(loops.hanging(), None);
        south.end_round();
        let hanging = loops.hanging_at(later).expect("north hangs");
        assert!(hanging.starts_with("group north has not") && !hanging.contains("south"), "{hanging}");
        drop(north);
        assert_eq!(loops.hanging_at(later), None, "a loop that has ended does not hang");
    }
}
