//! Random bytes as a body, and as a map: a decoded map must encode to the same body, and every map must survive its body.
//!
//! ```text
//! | channels 1 B | height 1 B | width 1 B | spread 1 B | body or map |     see `table` for the spread
//! ```

#![no_main]

use headwater_map_coder::{CONTEXTS, ContextTable, MapShape};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&[channels, height, width, spread], bytes)) = bytes.split_first_chunk() else { return };
    let [channels, height, width] = [channels % 16, height % 32, width].map(usize::from);
    let Ok(shape) = MapShape::new(channels, height, width) else { return };
    let table = table(channels, spread);
    let table = ContextTable::new(shape, &table).expect("a table of the shape");
    check_body(&table, bytes);
    check_map(&table, bytes);
});

/// A table whose bytes are at most `spread` away from 0 or from 255.
fn table(channels: usize, spread: u8) -> Vec<u8> {
    let spread = usize::from(spread) + 1;
    (0..channels * CONTEXTS)
        .map(|at| {
            let distance = (at * 37 % spread) as u8;
            if at.count_ones() % 2 == 0 { distance } else { 255 - distance }
        })
        .collect()
}

fn check_body(table: &ContextTable<'_>, body: &[u8]) {
    let mut map = vec![0xaa; table.shape().packed_bytes()];
    if table.decode(body, &mut map).is_ok() {
        assert_eq!(encode(table, &map), body);
    }
}

/// `bytes` shorter than a map are filled up with zeros, longer `bytes` are cut; tail bits are cleared.
fn check_map(table: &ContextTable<'_>, bytes: &[u8]) {
    let shape = table.shape();
    let mut map = bytes.to_vec();
    map.resize(shape.packed_bytes(), 0);
    if let (1.., Some(last)) = (shape.bits() % 8, map.last_mut()) {
        *last &= (1 << (shape.bits() % 8)) - 1;
    }
    let mut decoded = vec![0xaa; map.len()];
    let body = encode(table, &map);
    assert_eq!(table.decode(&body, &mut decoded), Ok(()));
    assert_eq!(decoded, map);
}

fn encode(table: &ContextTable<'_>, map: &[u8]) -> Vec<u8> {
    let mut body = vec![0; map.len()];
    let length = table.encode(map, &mut body).expect("a map of the shape");
    body.truncate(length);
    body
}
