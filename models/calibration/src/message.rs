//! Messages between ranks, little endian, without lengths or types: ranks run the same program on the same recipe
//! (`scale_out::agreement` of `headwater-training`), so both ends know the order and number of values.

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

/// Reads a message from its beginning.
///
/// # Panics
/// All functions panic when the message ends early. Ranks that run different programs would cause this; `scale_out::agreement` of
/// `headwater-training` refuses such ranks.
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
}
