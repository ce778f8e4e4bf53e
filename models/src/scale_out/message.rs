//! Messages between ranks, little endian, without lengths or types: ranks run the same program on the same recipe
//! ([`agreement`](super::agreement)), so both ends know what follows.

use headwater_protocol::Exit;

use crate::fused::BatchStatistics;
use crate::loss::LossSums;

/// Appends numbers to a message.
pub fn put_f32s(message: &mut Vec<u8>, values: &[f32]) {
    let start = message.len();
    message.resize(start + values.len() * 4, 0);
    let (places, _) = message[start..].as_chunks_mut::<4>();
    places.iter_mut().zip(values).for_each(|(place, value)| *place = value.to_le_bytes());
}

/// Appends a count to a message.
pub fn put_u64(message: &mut Vec<u8>, value: u64) {
    message.extend(value.to_le_bytes());
}

/// Appends sums over samples: samples, loss, and right answers of every exit, `u64::MAX` where the network has none.
pub fn put_sums(message: &mut Vec<u8>, sums: &LossSums) {
    put_u64(message, sums.samples);
    put_u64(message, sums.loss.to_bits());
    for exit in Exit::FIRST {
        put_u64(message, sums.correct.get(exit).copied().unwrap_or(u64::MAX));
    }
}

/// Appends the statistics of batch norms, in their order; a count of 0 for one that took no part.
pub fn put_statistics(message: &mut Vec<u8>, statistics: &[Option<BatchStatistics>]) {
    for found in statistics {
        let Some(BatchStatistics { count, mean, variance }) = found else {
            put_u64(message, 0);
            continue;
        };
        put_u64(message, *count);
        put_f32s(message, mean);
        put_f32s(message, variance);
    }
}

/// Reads a message from its beginning.
///
/// # Panics
/// All functions panic when the message ends early: the ranks have not run the same program, which [`agreement`](super::agreement) excludes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// The next bytes.
    ///
    /// # Panics
    /// When the message ends early.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at_checked(count).expect("ranks of one program send whole messages");
        self.0 = rest;
        bytes
    }

    /// The next numbers.
    pub fn f32s(&mut self, count: usize) -> Vec<f32> {
        let (numbers, _) = self.bytes(count * 4).as_chunks::<4>();
        numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }

    /// The next count.
    pub fn u64(&mut self) -> u64 {
        let (numbers, _) = self.bytes(8).as_chunks::<8>();
        u64::from_le_bytes(numbers[0])
    }

    /// The next sums over samples.
    pub fn sums(&mut self) -> LossSums {
        let mut sums =
            LossSums { samples: self.u64(), loss: f64::from_bits(self.u64()), ..LossSums::default() };
        for exit in Exit::FIRST {
            let hits = self.u64();
            if hits != u64::MAX {
                sums.correct.insert(exit, hits);
            }
        }
        sums
    }

    /// The next statistics of batch norms with these numbers of channels.
    pub fn statistics(&mut self, channels: impl Iterator<Item = usize>) -> Vec<Option<BatchStatistics>> {
        let one = |channels| {
            let count = self.u64();
            (count > 0).then(|| {
                let (mean, variance) = (self.f32s(channels), self.f32s(channels));
                BatchStatistics { count, mean, variance }
            })
        };
        channels.map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_read_in_the_same_order() {
        let mut sums = LossSums { samples: 7, loss: 1.0 / 3.0, ..LossSums::default() };
        sums.correct.insert(Exit::CLOUD, 5);
        let norms =
            [None, Some(BatchStatistics { count: 3, mean: vec![0.1, -2.0], variance: vec![1.5, 0.0] })];
        let mut message = Vec::new();
        put_f32s(&mut message, &[1.5, f32::MIN_POSITIVE]);
        put_sums(&mut message, &sums);
        put_statistics(&mut message, &norms);
        let mut reader = Reader(&message);
        assert_eq!(reader.f32s(2), [1.5, f32::MIN_POSITIVE]);
        assert_eq!(reader.sums(), sums);
        assert_eq!(reader.statistics([4, 2].into_iter()), norms);
        assert!(reader.0.is_empty());
    }
}
