//! Ranks as threads of one process, for tests of the strategies.

use std::cell::Cell;
use std::sync::{Barrier, Mutex};

use super::Communicator;

/// State that all threads share.
struct Shared {
    /// Element `[from][to]` is the message of rank `from` to rank `to`.
    messages: Mutex<Vec<Vec<Vec<u8>>>>,
    barrier: Barrier,
}

/// One rank, as a thread.
struct ThreadRank<'a> {
    shared: &'a Shared,
    rank: usize,
    ranks: usize,
    sent: Cell<u64>,
}

/// Runs `work` on `count` ranks at the same time; results in the order of ranks.
pub(crate) fn run<R: Send>(count: usize, work: impl Fn(&dyn Communicator) -> R + Sync) -> Vec<R> {
    let shared = Shared { messages: Mutex::new(vec![Vec::new(); count]), barrier: Barrier::new(count) };
    std::thread::scope(|scope| {
        let (shared, work) = (&shared, &work);
        let start =
            |rank| scope.spawn(move || work(&ThreadRank { shared, rank, ranks: count, sent: Cell::new(0) }));
        let threads: Vec<_> = (0..count).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

impl ThreadRank<'_> {
    fn exchange(&self, messages: &[Vec<u8>]) -> Vec<Vec<u8>> {
        assert_eq!(messages.len(), self.ranks);
        let to_others = messages.iter().enumerate().filter(|(to, _)| *to != self.rank);
        self.sent.set(self.sent.get() + to_others.map(|(_, message)| message.len() as u64).sum::<u64>());
        self.shared.messages.lock().unwrap()[self.rank] = messages.to_vec();
        self.shared.barrier.wait();
        let found = self.shared.messages.lock().unwrap().iter().map(|from| from[self.rank].clone()).collect();
        self.shared.barrier.wait();
        found
    }
}

impl Communicator for ThreadRank<'_> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn all_gather_of(&self, message: &[u8], lens: &[usize]) -> Vec<Vec<u8>> {
        let found = self.exchange(&vec![message.to_vec(); self.ranks]);
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), lens);
        found
    }

    fn all_to_all(&self, messages: Vec<Vec<u8>>, len: usize) -> Vec<Vec<u8>> {
        let found = self.exchange(&messages);
        assert!(found.iter().all(|message| message.len() == len));
        found
    }

    fn all_reduce(&self, values: &mut [f32]) {
        let mut message = Vec::new();
        headwater_calibration::message::put_f32s(&mut message, values);
        let all = self.all_gather(&message);
        values.fill(0.0);
        // Adds in the reverse order of ranks, as an MPI library may choose any order.
        for message in all.iter().rev() {
            let of_rank = headwater_calibration::message::Reader(message).f32s(values.len());
            values.iter_mut().zip(of_rank).for_each(|(sum, value)| *sum += value);
        }
    }

    fn wait_for_all(&self) {
        self.shared.barrier.wait();
    }

    fn sent_bytes(&self) -> u64 {
        self.sent.get()
    }
}
