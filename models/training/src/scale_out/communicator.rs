//! The ranks of a run: processes that train one network together, as one of them sees the others.

use headwater_calibration::message::{Reader, put_u64};

/// Exchange of messages among all ranks. Every rank calls the same functions in the same order; each call returns when all ranks have called it.
pub trait Communicator {
    /// Number of this rank, from 0.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn ranks(&self) -> usize;

    /// Sends a message to every rank, and returns the messages of all ranks in their order; `lens` are their lengths, which every rank knows.
    fn all_gather_of(&self, message: &[u8], lens: &[usize]) -> Vec<Vec<u8>>;

    /// Sends `messages[rank]` to each rank, and returns what each rank sent to this one; all messages to this rank have the length `len`.
    ///
    /// # Panics
    /// When there is not one message for each rank.
    fn all_to_all(&self, messages: Vec<Vec<u8>>, len: usize) -> Vec<Vec<u8>>;

    /// Sends a message of any length to every rank, and returns the messages of all ranks in their order.
    fn all_gather(&self, message: &[u8]) -> Vec<Vec<u8>> {
        let mut len = Vec::new();
        put_u64(&mut len, message.len() as u64);
        let lens = self.all_gather_of(&len, &vec![len.len(); self.ranks()]);
        let lens: Vec<usize> = lens.iter().map(|len| Reader(len).u64() as usize).collect();
        self.all_gather_of(message, &lens)
    }

    /// Replaces `values` by their sums over all ranks, added in an order that the implementation chooses. Every rank gets the same sums.
    fn all_reduce(&self, values: &mut [f32]);

    /// Waits until every rank is here, and leaves the core to others meanwhile; for as long as those that are not say that they
    /// [work](Self::is_working).
    fn wait_for_all(&self);

    /// Tells ranks that wait that this one works. Cheap: call it often.
    fn is_working(&self) {}

    /// Bytes that this rank has sent to others, without the headers of the transport.
    fn sent_bytes(&self) -> u64;
}

/// A run of one process.
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
