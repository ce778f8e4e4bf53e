//! Encode and decode of one map with 8 channels of 16x16 bits. Run: `cargo bench -p headwater-map-coder --profile release`. The target is
//! at most 15 us for either, on one core.
//!
//! The maps are blurred noise, and the table is counted on other maps of blurred noise. A body has about 75 bytes, as with the shipped
//! network.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use headwater_map_coder::{ContextTable, MapCounts, MapShape};

const TRAINING_MAPS: usize = 2_000;
const MAPS: usize = 64;
/// Side of the square of values that are added up for one bit. A larger square makes smoother maps.
const BLUR: usize = 22;

/// Maps whose neighbouring values are alike, in space and from channel to channel.
struct SmoothMaps(u64);

impl SmoothMaps {
    fn noise(&mut self) -> i32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 44) as i32 - (1 << 19)
    }

    fn map(&mut self, shape: MapShape) -> Vec<u8> {
        let (rows, columns) = (shape.height() + BLUR, shape.width() + BLUR);
        let mut values = vec![0; rows * columns];
        let mut map = vec![0; shape.packed_bytes()];
        let mut at = 0;
        for _ in 0..shape.channels() {
            for value in &mut values {
                *value = *value / 8 * 7 + self.noise();
            }
            for row in 0..shape.height() {
                for column in 0..shape.width() {
                    let near = (row..row + BLUR).map(|row| &values[row * columns..][column..column + BLUR]);
                    let sum: i32 = near.flatten().sum();
                    map[at / 8] |= u8::from(sum >= 0) << (at % 8);
                    at += 1;
                }
            }
        }
        map
    }
}

fn map(c: &mut Criterion) {
    let shape = MapShape::new(8, 16, 16).expect("a supported shape");
    let mut maps = SmoothMaps(1);
    let mut counts = MapCounts::new(shape);
    for _ in 0..TRAINING_MAPS {
        counts.add(&maps.map(shape)).expect("a map of the shape");
    }
    let table = counts.table();
    let table = ContextTable::new(shape, &table).expect("a table of the shape");
    let mut out = vec![0; shape.packed_bytes()];
    let maps: Vec<Vec<u8>> = (0..MAPS).map(|_| maps.map(shape)).collect();
    let bodies: Vec<Vec<u8>> = maps
        .iter()
        .map(|map| {
            let length = table.encode(map, &mut out).expect("room for a body");
            out[..length].to_vec()
        })
        .collect();
    println!("{} bytes a map", bodies.iter().map(Vec::len).sum::<usize>() / MAPS);

    let mut next = (0..MAPS).cycle();
    c.bench_function("map/encode", |b| {
        b.iter(|| {
            let map = &maps[next.next().expect("endless")];
            table.encode(black_box(map), &mut out).expect("room for a body")
        });
    });
    c.bench_function("map/decode", |b| {
        b.iter(|| {
            let body = &bodies[next.next().expect("endless")];
            table.decode(black_box(body), &mut out).expect("a body of the table");
        });
    });
}

criterion_group!(benches, map);
criterion_main!(benches);
