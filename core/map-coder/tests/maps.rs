//! Coded maps against a plain reference: lengths, canonical bodies, and bodies that are refused.

use std::collections::BTreeSet;

use headwater_map_coder::{CONTEXTS, ContextTable, DecodeError, MapCounts, MapError, MapShape, TableError};
use proptest::prelude::*;

/// Pseudo-random numbers: a linear congruential generator.
struct Numbers(u64);

impl Numbers {
    /// A number in `0..limit`, for limits up to 2^31.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) * limit) >> 31
    }
}

fn shape(channels: usize, height: usize, width: usize) -> MapShape {
    MapShape::new(channels, height, width).expect("a supported shape")
}

/// Index of a bit in the map.
fn index(shape: MapShape, [channel, row, column]: [usize; 3]) -> usize {
    (channel * shape.height() + row) * shape.width() + column
}

fn places(shape: MapShape) -> impl Iterator<Item = [usize; 3]> {
    let rows =
        (0..shape.channels()).flat_map(move |channel| (0..shape.height()).map(move |row| [channel, row]));
    rows.flat_map(move |[channel, row]| (0..shape.width()).map(move |column| [channel, row, column]))
}

/// Index in a table of the context of a bit, by the definition of contexts.
fn table_index(shape: MapShape, map: &[u8], [channel, row, column]: [usize; 3]) -> usize {
    let value = |[channels, rows, columns]: [isize; 3]| {
        let at = [
            channel.checked_add_signed(channels),
            row.checked_add_signed(rows),
            column.checked_add_signed(columns),
        ];
        match at {
            [Some(channel), Some(row), Some(column)] if column < shape.width() => {
                let at = index(shape, [channel, row, column]);
                usize::from(map[at / 8] >> (at % 8) & 1)
            }
            _ => 0,
        }
    };
    let near = [
        [0, 0, -1],
        [0, 0, -2],
        [0, -1, 0],
        [0, -2, 0],
        [0, -1, -1],
        [0, -1, 1],
        [-1, 0, 0],
        [-2, 0, 0],
        [-3, 0, 0],
        [-4, 0, 0],
    ];
    channel * CONTEXTS + near.iter().enumerate().map(|(bit, &place)| value(place) << bit).sum::<usize>()
}

/// A map that is likely under a table: each bit is drawn with the probability that the table gives.
fn likely_map(shape: MapShape, table: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut map = vec![0; shape.packed_bytes()];
    for place in places(shape) {
        let byte = table[table_index(shape, &map, place)];
        let at = index(shape, place);
        map[at / 8] |= u8::from(numbers.below(512) < 2 * u64::from(byte) + 1) << (at % 8);
    }
    map
}

/// Information of a map under a table, in bits.
fn information(shape: MapShape, table: &[u8], map: &[u8]) -> f64 {
    let bit = |at: usize| map[at / 8] >> (at % 8) & 1 == 1;
    places(shape)
        .map(|place| {
            let one = (2.0 * f64::from(table[table_index(shape, map, place)]) + 1.0) / 512.0;
            -if bit(index(shape, place)) { one } else { 1.0 - one }.log2()
        })
        .sum()
}

/// A table whose bytes are at most `spread` away from 0 or from 255.
fn table(shape: MapShape, spread: u64, numbers: &mut Numbers) -> Vec<u8> {
    (0..shape.channels() * CONTEXTS)
        .map(|_| {
            let distance = numbers.below(spread + 1) as u8;
            if numbers.below(2) == 0 { distance } else { 255 - distance }
        })
        .collect()
}

fn encode(table: &ContextTable<'_>, map: &[u8]) -> Vec<u8> {
    let mut body = vec![0xaa; map.len()];
    let length = table.encode(map, &mut body).expect("a map of the shape");
    body.truncate(length);
    body
}

fn decode(table: &ContextTable<'_>, body: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut map = vec![0xaa; table.shape().packed_bytes()];
    table.decode(body, &mut map).map(|()| map)
}

prop_compose! {
    fn any_shape()(width in prop_oneof![3 => 1usize..=64, 1 => 65usize..200], height in 1usize..12, channels in 1usize..8) -> MapShape {
        shape(channels, height, width)
    }
}

prop_compose! {
    /// Shape, table and map. The map is likely under the table, or its bits are 1 with the probability `density / 64`.
    fn any_map()(shape in any_shape(), spread in prop_oneof![0u64..20, Just(255)], density in 0u64..=64, likely: bool, seed: u64)
        -> (MapShape, Vec<u8>, Vec<u8>)
    {
        let mut numbers = Numbers(seed);
        let table = table(shape, spread, &mut numbers);
        let map = if likely {
            likely_map(shape, &table, &mut numbers)
        } else {
            let mut map = vec![0; shape.packed_bytes()];
            for at in 0..shape.bits() {
                map[at / 8] |= u8::from(numbers.below(64) < density) << (at % 8);
            }
            map
        };
        (shape, table, map)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_map_comes_back((shape, table, map) in any_map()) {
        let table = ContextTable::new(shape, &table).unwrap();
        let body = encode(&table, &map);
        prop_assert!((1..=map.len()).contains(&body.len()));
        prop_assert_eq!(decode(&table, &body), Ok(map));
    }

    /// A body has at most three bytes more than the information of the map: the check byte and two others.
    #[test]
    fn bodies_are_as_short_as_the_table_allows((shape, table, map) in any_map()) {
        let bytes = information(shape, &table, &map) / 8.0;
        let body = encode(&ContextTable::new(shape, &table).unwrap(), &map);
        prop_assert!(body.len() as f64 <= bytes + 3.0 || body.len() == map.len());
        prop_assert!(body.len() < map.len() || bytes + 3.0 >= map.len() as f64);
    }

    #[test]
    fn counts_are_those_of_the_definition((shape, _, map) in any_map()) {
        let mut counts = MapCounts::new(shape);
        counts.add(&map).unwrap();
        let mut expected = vec![[0; 2]; shape.channels() * CONTEXTS];
        for place in places(shape) {
            let at = index(shape, place);
            expected[table_index(shape, &map, place)][usize::from(map[at / 8] >> (at % 8) & 1)] += 1;
        }
        prop_assert_eq!(counts.counts(), expected);
    }

    #[test]
    fn bytes_that_decode_are_what_encoding_gives(
        shape in any_shape(),
        seed: u64,
        spread in prop_oneof![Just(0u64), Just(10), Just(255)],
        body in prop::collection::vec(prop_oneof![any::<u8>(), Just(0), Just(0xff)], 0..80),
    ) {
        let table = table(shape, spread, &mut Numbers(seed));
        let table = ContextTable::new(shape, &table).unwrap();
        // Every check byte is tried, so that a canonical code decodes with one of them.
        for check in 0..=255 {
            let body: Vec<u8> = body.iter().enumerate().map(|(at, &byte)| if at == 0 { check } else { byte }).collect();
            if let Ok(map) = decode(&table, &body) {
                prop_assert_eq!(encode(&table, &map), body);
            }
        }
    }

    #[test]
    fn padded_bodies_are_refused((shape, table, map) in any_map(), padding: u8, more in 1usize..4) {
        let table = ContextTable::new(shape, &table).unwrap();
        let body = encode(&table, &map);
        for byte in [0, 0xff, padding] {
            let mut padded = body.clone();
            padded.extend(std::iter::repeat_n(byte, more));
            // A body of the map's length is read as the map itself.
            prop_assert!(padded.len() == map.len() || decode(&table, &padded).is_err());
        }
    }

    #[test]
    fn a_map_as_it_is_is_refused_where_its_code_is_shorter((shape, table, map) in any_map()) {
        let table = ContextTable::new(shape, &table).unwrap();
        let shorter = encode(&table, &map).len() < map.len();
        let expected = if shorter { Err(DecodeError::NotShortest) } else { Ok(map.clone()) };
        prop_assert_eq!(decode(&table, &map), expected);
    }

    #[test]
    fn another_check_byte_is_refused((shape, table, map) in any_map(), other in 1u8..) {
        let table = ContextTable::new(shape, &table).unwrap();
        let mut body = encode(&table, &map);
        if body.len() < map.len() {
            let expected = body[0];
            body[0] ^= other;
            prop_assert_eq!(decode(&table, &body), Err(DecodeError::Check { expected, found: body[0] }));
        }
    }
}

/// 200 tables for one shape, and one likely map for each table.
fn likely_maps() -> impl Iterator<Item = (MapShape, Vec<u8>, Vec<u8>)> {
    let shape = shape(4, 16, 16);
    (0..200).map(move |seed| {
        let mut numbers = Numbers(seed);
        let table = table(shape, 24, &mut numbers);
        let map = likely_map(shape, &table, &mut numbers);
        (shape, table, map)
    })
}

/// The check byte alone lets one in 256 wrong bodies pass by chance; the canonical form lowers this share.
#[test]
fn bodies_that_were_cut_or_altered_are_refused_but_for_one_in_256() {
    let (mut bodies, mut accepted) = (0, 0);
    for (shape, table, map) in likely_maps() {
        let table = ContextTable::new(shape, &table).unwrap();
        let body = encode(&table, &map);
        assert!(body.len() < map.len());
        for at in 0..body.len() {
            let mut altered = body.clone();
            altered[at] ^= 0x10;
            for body in [&body[..at], &altered] {
                bodies += 1;
                accepted += usize::from(decode(&table, body).is_ok());
            }
        }
    }
    assert!(bodies > 5_000, "{bodies} bodies");
    assert!(accepted * 256 <= bodies * 2, "{accepted} of {bodies} accepted");
}

#[test]
fn bodies_of_another_table_are_refused_but_for_one_in_256() {
    let (mut bodies, mut accepted) = (0, 0);
    for (shape, table, map) in likely_maps() {
        let body = encode(&ContextTable::new(shape, &table).unwrap(), &map);
        for seed in 1_000..1_020 {
            let other = crate::table(shape, 24, &mut Numbers(seed));
            bodies += 1;
            accepted += usize::from(decode(&ContextTable::new(shape, &other).unwrap(), &body).is_ok());
        }
    }
    assert!(accepted * 256 <= bodies * 2, "{accepted} of {bodies} accepted");
}

#[test]
fn a_map_that_would_grow_goes_as_it_is() {
    let shape = shape(2, 3, 5);
    let table = [128; 2 * CONTEXTS];
    let table = ContextTable::new(shape, &table).unwrap();
    let map = [0x35, 0xc1, 0x9a, 0x2e];
    assert_eq!(encode(&table, &map), map);
    assert_eq!(decode(&table, &map), Ok(map.to_vec()));
    assert_eq!(decode(&table, &[0x35, 0xc1, 0x9a, 0x6e]), Err(DecodeError::TailBits));
}

#[test]
fn a_map_of_one_byte_goes_as_it_is() {
    let table = [255; CONTEXTS];
    let table = ContextTable::new(shape(1, 1, 8), &table).unwrap();
    assert_eq!(encode(&table, &[0xff]), [0xff]);
    assert_eq!(decode(&table, &[]), Err(DecodeError::Empty));
}

#[test]
fn the_longest_code_is_one_byte_shorter_than_the_map() {
    let shape = shape(1, 3, 16);
    let lengths = (0..500).map(|seed| {
        let mut numbers = Numbers(seed);
        let table = table(shape, 127, &mut numbers);
        let map = likely_map(shape, &table, &mut numbers);
        encode(&ContextTable::new(shape, &table).unwrap(), &map).len()
    });
    let found: BTreeSet<_> = lengths.collect();
    assert!([4, 5, 6].iter().all(|length| found.contains(length)), "{found:?}");
}

#[test]
fn a_map_whose_code_is_zero_has_a_check_byte_alone() {
    let table = [255; CONTEXTS];
    let table = ContextTable::new(shape(1, 4, 8), &table).unwrap();
    let body = encode(&table, &[0xff; 4]);
    assert_eq!(body.len(), 1);
    assert_eq!(decode(&table, &body), Ok(vec![0xff; 4]));
}

#[test]
fn the_largest_maps_are_coded() {
    for (channels, height, width) in
        [(64, 64, 64), (65_536, 1, 1), (1, 262_144, 1), (1, 1, 262_144), (1, 1_024, 256)]
    {
        let shape = shape(channels, height, width);
        let table = vec![3; channels * CONTEXTS];
        let map = likely_map(shape, &table, &mut Numbers(7));
        let table = ContextTable::new(shape, &table).unwrap();
        let body = encode(&table, &map);
        assert!(body.len() < map.len() / 5);
        assert_eq!(decode(&table, &body), Ok(map));
    }
}

#[test]
fn wrong_lengths_are_refused_and_nothing_is_written() {
    let shape = shape(1, 3, 6);
    assert!(matches!(ContextTable::new(shape, &[0; 1023]), Err(TableError { expected: 1024, found: 1023 })));
    assert!(ContextTable::new(shape, &[0; 1025]).is_err());
    let table = ContextTable::new(shape, &[1; 1024]).unwrap();
    let mut body = [0xaa; 3];
    assert_eq!(table.encode(&[0; 4], &mut body), Err(MapError::MapLength { expected: 3, found: 4 }));
    assert_eq!(table.encode(&[0, 0, 4], &mut body), Err(MapError::TailBits));
    assert_eq!(table.encode(&[0; 3], &mut body[..2]), Err(MapError::BodyRoom { needed: 3, found: 2 }));
    assert_eq!(table.decode(&[1, 2], &mut body[..2]), Err(DecodeError::MapLength { expected: 3, found: 2 }));
    assert_eq!(table.decode(&[0; 4], &mut body), Err(DecodeError::TooLong { max: 3, found: 4 }));
    assert_eq!(table.decode(&[], &mut body), Err(DecodeError::Empty));
    assert_eq!(body, [0xaa; 3]);
}

#[test]
fn errors_name_both_sides() {
    #[track_caller]
    fn check(error: impl std::error::Error, expected: &str) {
        assert_eq!(error.to_string(), expected);
    }
    let too_wide = MapShape::new(1, 1, 262_145).unwrap_err();
    check(too_wide, "shape of a coded map, width: expected 1 to 262144, found 262145");
    check(TableError { expected: 8192, found: 8191 }, "context table: expected 8192 bytes, found 8191");
    check(MapError::MapLength { expected: 256, found: 2 }, "packed map: expected 256 bytes, found 2");
    check(DecodeError::TooLong { max: 256, found: 300 }, "coded map: expected at most 256 bytes, found 300");
    check(
        DecodeError::Check { expected: 0x0f, found: 0xf1 },
        "coded map: expected check byte 0x0f, found 0xf1",
    );
}

/// Checks that the format is unchanged: the body of a map from random numbers under a table from a formula is `expected` in hex.
#[track_caller]
fn check_golden(shape: MapShape, seed: u64, expected: &str) {
    let table: Vec<u8> = (0..shape.channels() * CONTEXTS)
        .map(|at| if at.count_ones() % 2 == 0 { (at % 61) as u8 } else { 255 - (at % 47) as u8 })
        .collect();
    let map = likely_map(shape, &table, &mut Numbers(seed));
    let table = ContextTable::new(shape, &table).unwrap();
    let body = encode(&table, &map);
    let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, expected);
    assert_eq!(decode(&table, &body), Ok(map));
}

#[test]
fn bodies_stay_as_they_are() {
    check_golden(shape(2, 7, 5), 1, "ea3a6410");
    check_golden(shape(6, 8, 8), 2, "fd45cb1e6bc3ce2c9b844df3877315bb8167b63825");
    check_golden(shape(3, 4, 64), 3, "ee836b03cbcb3e0907fcdda7daa2039f1632069b865fa90e5652d8a997e34d658505");
    check_golden(
        shape(8, 16, 16),
        4,
        "687750980dc301b22ecffe7a2c75eef815290d3722edc2c64ec734eb3121163a34ad\
         1a6a6ff2f74404beed6c7368b893cb249e3e52d337d42b04cc8b9b963d37131ae956\
         1b8c02ed32a22d5a2e72b1b0a144ae32e67455c0ef481aee558bc25e3ff7a46e78",
    );
}
