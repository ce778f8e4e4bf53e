//! The ranks of a run: processes that train one network together. The trait is one rank's means to exchange messages with the other ranks.

use headwater_calibration::message::{Reader, put_u64};

/// Exchange of messages among all ranks. Every rank must call the functions `all_*` and `wait_for_all` in the same order.
/// `all_gather` and `wait_for_all` return once all ranks have called them.
pub trait Communicator {
    /// Number of this rank, from 0.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn ranks(&self) -> usize;

    /// Sends a message to every rank, and returns the messages of all ranks in the order of ranks; `lens` has the length of each rank's
    /// message in bytes, which every rank knows.
    fn all_gather_of(&self, message: &[u8], lens: &[usize]) -> Vec<Vec<u8>>;

    /// Sends `messages[rank]` to each rank, and returns the messages of all ranks to this rank, each of `len` bytes.
    ///
    /// # Panics
    /// When there is not one message for each rank.
    fn all_to_all(&self, messages: Vec<Vec<u8>>, len: usize) -> Vec<Vec<u8>>;

    /// Sends a message of any length to every rank, and returns the messages of all ranks in the order of ranks.
    fn all_gather(&self, message: &[u8]) -> Vec<Vec<u8>> {
        let mut len = Vec::new();
        put_u64(&mut len, message.len() as u64);
        let lens = self.all_gather_of(&len, &vec![len.len(); self.ranks()]);
        let lens: Vec<usize> = lens.iter().map(|len| Reader(len).u64() as usize).collect();
        self.all_gather_of(message, &lens)
    }

    /// Replaces `values` by their sums over all ranks, added in an order that the implementation chooses. Every rank gets the same sums.
    fn all_reduce(&self, values: &mut [f32]);

    /// Waits until every rank has called this function, without keeping a core busy. Waits for as long as the missing ranks report that
    /// they [work](Self::is_working).
    fn wait_for_all(&self);

    /// Tells waiting ranks that this rank still works. Cheap enough to be called in every step.
    fn is_working(&self) {}

    /// Bytes that this rank has sent to other ranks, without the headers of the transport.
    fn sent_bytes(&self) -> u64;
}

/// The communicator of a run of one process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Communicator for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn ranks(&self) -> usize {
        1
    }

    fn all_gather_of(&self, message: &[u8], _lens: &[usize]) -> Vec<Vec<u8>> {
        vec![message.to_vec()]
    }

    fn all_to_all(&self, messages: Vec<Vec<u8>>, _len: usize) -> Vec<Vec<u8>> {
        messages
    }

    fn all_reduce(&self, _values: &mut [f32]) {}

    fn wait_for_all(&self) {}

    fn sent_bytes(&self) -> u64 {
        0
    }
}
