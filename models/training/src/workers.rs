//! The threads that train.
//!
//! A worker is a thread pool of one thread: burn then runs all of a worker's operations on that thread, which is faster here than
//! two threads inside each operation.

use std::io;

use rayon::{ThreadPool, ThreadPoolBuilder};

/// The threads that train.
pub struct Workers(Vec<ThreadPool>);

impl Workers {
    /// `count` workers of one thread each, at least one.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn new(count: usize) -> io::Result<Self> {
        let pool = |index| {
            ThreadPoolBuilder::new().num_threads(1).thread_name(move |_| format!("worker-{index}")).build()
        };
        let pools = (0..count.max(1)).map(pool).collect::<Result<Vec<_>, _>>();
        Ok(Self(pools.map_err(|error| io::Error::other(format!("starting the workers: {error}")))?))
    }

    /// Number of workers.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Divides the items into at most one share per worker, runs `work` on each share, and returns the results in the order of the shares.
    ///
    /// # Panics
    /// When `work` panics.
    pub fn share<T: Sync, R: Send>(&self, items: &[T], work: impl Fn(&[T]) -> R + Sync) -> Vec<R> {
        if let [pool] = &self.0[..] {
            return vec![pool.install(|| work(items))];
        }
        let share = items.len().div_ceil(self.count()).max(1);
        std::thread::scope(|scope| {
            let work = &work;
            let shares = self.0.iter().zip(items.chunks(share));
            let threads: Vec<_> =
                shares.map(|(pool, items)| scope.spawn(move || pool.install(|| work(items)))).collect();
            let results = threads.into_iter();
            results.map(|thread| thread.join().expect("a worker panicked; its message is above")).collect()
        })
    }
}
