use std::fs;
use std::path::Path;

use super::*;

/// Files of one pattern, 61 by 45 pixels: `tests/images/make.c` makes them.
const BASELINE: [&str; 3] = ["sampled-420.jpg", "restarts-422.jpg", "grey-optimized.jpg"];
const PROGRESSIVE: &str = "progressive-420.jpg";

fn file(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images").join(name)).unwrap()
}

fn decoded(file: &[u8]) -> Result<DynamicImage, Fault> {
    decode(file, &Markers::parse(file)?)
}

#[track_caller]
fn is_cut(file: &[u8], what: &str) {
    match decoded(file) {
        Err(Fault::Cut) => {}
        Err(Fault::Broken(reason)) => panic!("{what}: {reason}"),
        Ok(_) => panic!("{what}: taken"),
    }
}

/// Offset of the data of the scan.
fn head_bytes(file: &[u8]) -> usize {
    Markers::parse(file).unwrap().segments.last().unwrap().body.end
}

/// The file without its end marker.
fn unended(name: &str) -> Vec<u8> {
    let mut file = file(name);
    let end = file.len() - 2;
    assert_eq!(file.split_off(end), [0xff, 0xd9]);
    file
}

/// The file without its Huffman tables.
fn without_tables(name: &str) -> Vec<u8> {
    let file = file(name);
    let tables = Markers::parse(&file).unwrap().segments;
    let tables = tables.into_iter().filter(|segment| segment.kind == kind::HUFFMAN);
    let mut rest = file.clone();
    tables.rev().for_each(|segment| drop(rest.drain(segment.body.start - 4..segment.body.end)));
    rest
}

#[test]
fn a_whole_file_gives_the_pixels_of_the_forgiving_decoder() {
    for name in BASELINE.into_iter().chain([PROGRESSIVE]) {
        let file = file(name);
        let image = decoded(&file).unwrap();
        assert_eq!((image.width(), image.height()), (61, 45));
        assert_eq!(image, image::load_from_memory(&file).unwrap(), "{name}");
        // Bytes after the end marker are ignored.
        for rest in [&b"padding"[..], &[0; 40], &file] {
            assert_eq!(decoded(&[&file, rest].concat()).unwrap(), image, "{name}");
        }
    }
}

#[test]
fn a_file_cut_anywhere_is_cut_with_and_without_an_end_marker_after_it() {
    for name in BASELINE {
        let whole = unended(name);
        // In the last two bytes there may be no bit that is needed.
        for length in 2..whole.len() - 2 {
            let cut = &whole[..length];
            is_cut(cut, &format!("{name}, {length}"));
            // One byte of zeros may be the colour of the last block.
            if length >= head_bytes(&whole) && length + 40 < whole.len() {
                is_cut(&[cut, &[0; 64]].concat(), &format!("{name}, {length} and zeros"));
            }
            let ended = decoded(&[cut, &[0xff, 0xd9]].concat());
            // The decoder reads up to four bytes ahead, which may be the colour of the last block.
            assert!(ended.is_err() || length + 40 > whole.len(), "{name}, {length} and an end marker");
            // A cut segment of the head takes the bytes that follow as its own.
            let next = decoded(&[cut, &file(name)].concat());
            assert!(next.is_err() || length < head_bytes(&whole), "{name}, {length} and another image");
        }
    }
    let whole = file(PROGRESSIVE);
    (2..whole.len() - 1).for_each(|length| is_cut(&whole[..length], &format!("{PROGRESSIVE}, {length}")));
    // A scan is missing.
    let scans = Markers::parse(&whole).unwrap().segments;
    let last = scans.iter().rfind(|segment| segment.kind == kind::SCAN).unwrap();
    is_cut(&[&whole[..last.body.start - 4], &[0xff, 0xd9]].concat(), "a scan is missing");
}

#[test]
fn a_whole_baseline_file_without_its_end_marker_is_whole() {
    for name in BASELINE {
        let (image, unended) = (decoded(&file(name)).unwrap(), unended(name));
        assert_eq!(decoded(&unended).unwrap(), image, "{name}");
        assert_eq!(decoded(&[&unended[..], &file(name)].concat()).unwrap(), image, "{name} and another");
        assert_eq!(decoded(&[&unended[..], &[0; 64]].concat()).unwrap(), image, "{name} and padding");
    }
}

#[test]
fn zeros_up_to_the_length_of_the_file_are_cut() {
    for name in BASELINE {
        let whole = unended(name);
        let data = head_bytes(&whole);
        for kept in [data + 2, (data + whole.len()) / 2, whole.len() - 40] {
            // Zeros up to the length of the whole file, and beyond.
            let zeros = vec![0; whole.len() - kept + 4096];
            is_cut(&[&whole[..kept], &zeros].concat(), &format!("{name}, {kept} bytes kept"));
        }
    }
}

#[test]
fn the_standard_tables_are_used_where_a_file_has_none() {
    for name in ["sampled-420.jpg", "restarts-422.jpg"] {
        let bare = without_tables(name);
        assert!(bare.len() + 400 < file(name).len());
        assert_eq!(decoded(&bare).unwrap(), decoded(&file(name)).unwrap(), "{name}");
        assert_eq!(decoded(&bare[..bare.len() - 2]).unwrap(), decoded(&file(name)).unwrap(), "{name}");
        is_cut(&bare[..bare.len() / 2], name);
    }
}

/// Largest difference of two images of one size.
fn difference(one: &DynamicImage, other: &DynamicImage) -> u8 {
    assert_eq!((one.width(), one.height()), (other.width(), other.height()));
    let (one, other) = (one.to_rgb8(), other.to_rgb8());
    one.iter().zip(other.iter()).map(|(one, other)| one.abs_diff(*other)).max().unwrap_or(0)
}

#[test]
fn a_reduced_frame_is_the_mean_of_its_pixels() {
    for name in BASELINE {
        let file = file(name);
        let (markers, whole) = (Markers::parse(&file).unwrap(), decoded(&file).unwrap());
        // Colour may have one sample in 16 pixels.
        let cells = |image: &DynamicImage, cell: u32| {
            let whole = image.crop_imm(0, 0, 3 * cell, 2 * cell);
            DynamicImage::from(image::imageops::thumbnail(&whole, 3, 2))
        };
        for (eighths, step) in [(1, 8), (2, 4), (4, 2)] {
            let reduced = reduced(&file, &markers, eighths).unwrap();
            assert_eq!((reduced.width(), reduced.height()), (61_u32.div_ceil(step), 45_u32.div_ceil(step)));
            let found = difference(&cells(&reduced, 16 / step), &cells(&whole, 16));
            assert!(found <= 4, "{name} at {eighths} eighths: {found}");
        }
        let mut cut = file[..file.len() - 20].to_vec();
        assert!(matches!(reduced(&cut, &Markers::parse(&cut).unwrap(), 1), Err(Fault::Cut)));
        let data = head_bytes(&cut);
        let middle = data.midpoint(cut.len());
        cut[middle..].fill(0);
        assert!(matches!(reduced(&cut, &Markers::parse(&cut).unwrap(), 1), Err(Fault::Cut)), "{name}");
    }
}

#[test]
fn bits_that_are_turned_never_panic() {
    for name in BASELINE.into_iter().chain([PROGRESSIVE]) {
        let whole = file(name);
        for at in 2..whole.len() {
            let mut turned = whole.clone();
            turned[at] ^= 1 << (at % 8);
            let Ok(markers) = Markers::parse(&turned) else { continue };
            // A frame of many pixels takes too long to decode.
            if decoded_bytes(&markers, 8) < 1 << 18 {
                let _ = decode(&turned, &markers);
                if is_reducible(&markers) {
                    let _ = reduced(&turned, &markers, 2);
                }
            }
        }
    }
}

#[test]
fn a_second_size_is_refused_before_memory_is_taken() {
    let file = file("sampled-420.jpg");
    let markers = Markers::parse(&file).unwrap();
    let frame = markers.segments.iter().find(|segment| segment.kind == 0xc0).unwrap().body.clone();
    let (mut large, whole) = (file[..head_bytes(&file)].to_vec(), &file[frame.start - 4..frame.end]);
    // Height and width: 65,535 each.
    large[frame.start + 1..][..4].fill(0xff);
    let twice = [&large[..], whole, &[0xff, 0xd9]].concat();
    match decoded(&twice) {
        Err(Fault::Broken(reason)) => assert_eq!(reason, "two frames"),
        other => panic!("{:?}", other.map(|_| "taken")),
    }
}

#[test]
fn frames_of_other_processes_are_named() {
    let mut other = file("grey-optimized.jpg");
    let frame = Markers::parse(&other).unwrap().segments;
    let frame = frame.iter().find(|segment| segment.kind == 0xc0).unwrap();
    other[frame.body.start - 3] = 0xc3;
    match decoded(&other) {
        Err(Fault::Broken(reason)) => assert!(reason.contains("SOF3, which is not supported"), "{reason}"),
        other => panic!("{:?}", other.map(|_| "taken")),
    }
}
