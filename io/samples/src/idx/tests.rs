use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::testing::gzip;

fn encode(dims: &[u32], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, TYPE_U8, dims.len() as u8];
    dims.iter().for_each(|size| bytes.extend(size.to_be_bytes()));
    bytes.extend(data);
    bytes
}

fn parse(bytes: &[u8], dims: &[usize]) -> Result<Vec<u8>, DataError> {
    read_from(bytes, Path::new("some.idx"), dims)
}

#[track_caller]
fn refused(bytes: &[u8], dims: &[usize], words: &[&str]) {
    crate::testing::refused(parse(bytes, dims), &[words, &["some.idx"]].concat());
}

#[test]
fn plain_and_gzip_files_have_the_same_content() {
    let file = encode(&[2, 3], &[1, 2, 3, 4, 5, 6]);
    assert_eq!(parse(&file, &[2, 3]).unwrap(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(parse(&gzip(&file), &[2, 3]).unwrap(), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_file_cut_anywhere_is_refused_with_its_length() {
    let file = encode(&[2, 3], &[1, 2, 3, 4, 5, 6]);
    for length in 0..file.len() {
        refused(&file[..length], &[2, 3], &[&format!("found {length};"), "cut off"]);
    }
}

#[test]
fn a_gzip_file_cut_anywhere_is_refused() {
    let file = gzip(&encode(&[40], &[9; 40]));
    for length in 0..file.len() {
        assert!(parse(&file[..length], &[40]).is_err(), "cut to {length} bytes");
    }
    refused(&file[..file.len() - 9], &[40], &["cut off"]);
    refused(&file[..file.len() - 8], &[40], &["a gzip file without its end", "cut off"]);
}

#[test]
fn data_after_the_end_is_refused() {
    let mut file = encode(&[2], &[1, 2]);
    file.push(3);
    refused(&file, &[2], &["expected 10 bytes", "found more"]);
    refused(&gzip(&file), &[2], &["expected 10 bytes", "found more"]);
}

#[test]
fn an_unknown_magic_number_is_shown() {
    refused(b"\x89PNG....", &[1], &["00 00 08 01", "[89, 50, 4e, 47]"]);
    refused(&[0, 0, 0x0d, 1, 0, 0, 0, 0], &[1], &["[00, 00, 0d, 01]"]);
    refused(&[0, 0, 8, 0], &[1], &["[00, 00, 08, 00]"]);
    refused(&[0, 0, 8, 6], &[1], &["[00, 00, 08, 06]"]);
}

#[test]
fn a_header_of_a_too_large_array_costs_no_memory() {
    refused(&encode(&[u32::MAX; 5], &[]), &[1, 1, 1, 1, 1], &["dimensions [1, 1, 1, 1, 1]", "4294967295"]);
    refused(&encode(&[(1 << 20) + 1], &[]), &[1 << 20], &["1048577"]);
    refused(&encode(&[1 << 20], &[0]), &[1 << 20], &["expected 1048584", "found 9"]);
}

#[test]
fn no_more_than_one_byte_is_read_past_the_end() {
    let mut file = std::io::Cursor::new([encode(&[2], &[1, 2]), vec![0; 100]].concat());
    assert!(read_from(&mut file, Path::new("some.idx"), &[2]).is_err());
    assert_eq!(file.position(), 11);
}

#[test]
fn a_damaged_gzip_checksum_is_noticed() {
    let mut file = gzip(&encode(&[3], &[1, 2, 3]));
    let crc = file.len() - 8;
    file[crc] ^= 1;
    refused(&file, &[3], &["does not inflate"]);
}

proptest! {
    #[test]
    fn every_written_array_is_read_back(dims in vec(0_u32..5, 1..=5), fill: u8) {
        let data = vec![fill; dims.iter().product::<u32>() as usize];
        let sizes: Vec<usize> = dims.iter().map(|&size| size as usize).collect();
        prop_assert_eq!(parse(&encode(&dims, &data), &sizes).unwrap(), data);
    }

    #[test]
    fn garbage_after_a_good_magic_never_panics(
        count in 1_u8..=5,
        rest in vec(any::<u8>(), 0..64),
        dims in vec(0_usize..4, 1..=5),
    ) {
        let mut bytes = vec![0, 0, TYPE_U8, count];
        bytes.extend(&rest);
        if let Ok(data) = parse(&bytes, &dims) {
            prop_assert_eq!(4 + 4 * dims.len() + data.len(), bytes.len());
        }
    }
}
