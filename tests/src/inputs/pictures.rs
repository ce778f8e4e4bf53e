//! Pictures of the cases, sound ones and those that cameras, phones and broken copies make of them.
//!
//! The small JPEG files of `io/samples/tests/images` were made by libjpeg; every other picture is made here.

use headwater_samples::{Shape, View, image_codec};

use crate::shipped;

/// Shape of the JPEG files and of the pictures made here.
pub(super) const SHAPE: Shape = Shape { channels: 3, height: 45, width: 61 };

/// A picture with contrast, another one for each seed.
pub(super) fn view(seed: u8) -> View {
    let factor = usize::from(seed) + 3;
    View::new(SHAPE, (0..SHAPE.bytes()).map(|at| (at * factor / 7 % 251) as u8).collect())
}

pub(super) fn png(seed: u8) -> Vec<u8> {
    image_codec::png(&view(seed)).expect("a view becomes PNG")
}

pub(super) fn webp(seed: u8) -> Vec<u8> {
    image_codec::webp_lossless(&view(seed)).expect("a view becomes WebP")
}

/// A picture of one grey, as a covered camera gives it.
pub(super) fn flat_png(grey: u8) -> Vec<u8> {
    image_codec::png(&View::new(SHAPE, vec![grey; SHAPE.bytes()])).expect("a view becomes PNG")
}

/// A baseline JPEG.
pub(super) fn jpeg() -> Vec<u8> {
    file("sampled-420.jpg")
}

/// A file of `io/samples/tests/images`.
pub(super) fn file(name: &str) -> Vec<u8> {
    std::fs::read(shipped::root().join("io/samples/tests/images").join(name)).expect("a file of the tree")
}

pub(super) fn half(file: &[u8]) -> Vec<u8> {
    file[..file.len() / 2].to_vec()
}

/// A JPEG without its end marker.
pub(super) fn unended(jpeg: &[u8]) -> Vec<u8> {
    jpeg[..jpeg.len() - 2].to_vec()
}

/// The file with zeros in place of its second half, as an interrupted copy leaves a file.
pub(super) fn half_zeros(file: &[u8]) -> Vec<u8> {
    let mut copy = half(file);
    copy.resize(file.len(), 0);
    copy
}

/// The JPEG with one more segment after its first marker.
pub(super) fn with_segment(jpeg: &[u8], marker: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u16 + 2).to_be_bytes();
    [&jpeg[..2], &[0xff, marker], &length, body, &jpeg[2..]].concat()
}

/// The JPEG with a comment that has this number: the same picture in a file with other bytes.
pub(super) fn numbered(jpeg: &[u8], number: u8) -> Vec<u8> {
    with_segment(jpeg, 0xfe, &[b'n', number])
}

/// Exif data: little-endian, one entry, the orientation (tag 0x0112, one number of 16 bits).
fn exif(orientation: u8) -> Vec<u8> {
    let entry = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0";
    [&entry[..], &[orientation, 0, 0, 0, 0, 0, 0, 0]].concat()
}

pub(super) fn turned_jpeg(orientation: u8) -> Vec<u8> {
    with_segment(&jpeg(), 0xe1, &[&b"Exif\0\0"[..], &exif(orientation)].concat())
}

/// A JPEG with a small JPEG in its Exif data.
pub(super) fn jpeg_with_thumbnail() -> Vec<u8> {
    let body = [&b"Exif\0\0"[..], &exif(1), &file("grey-optimized.jpg")].concat();
    with_segment(&jpeg(), 0xe1, &body)
}

/// Bytes of a PNG before its first optional chunk: signature and `IHDR`.
const PNG_HEAD: usize = 33;

pub(super) fn turned_png(orientation: u8) -> Vec<u8> {
    let (png, exif) = (png(1), exif(orientation));
    let chunk = [&b"eXIf"[..], &exif].concat();
    let (length, sum) = ((exif.len() as u32).to_be_bytes(), crc32(&chunk).to_be_bytes());
    [&png[..PNG_HEAD], &length, &chunk, &sum, &png[PNG_HEAD..]].concat()
}

/// A WebP file (RFC 9649): the chunk `VP8X` with the flag of Exif data and the canvas, the image, and the Exif data. The bodies of all chunks
/// have even lengths, so no chunk is padded.
pub(super) fn turned_webp(orientation: u8) -> Vec<u8> {
    let [width, height] = [SHAPE.width, SHAPE.height].map(|side| (side as u32 - 1).to_le_bytes());
    let exif = exif(orientation);
    let body = [
        &b"WEBPVP8X\x0a\0\0\0\x08\0\0\0"[..],
        &width[..3],
        &height[..3],
        &webp(1)[12..],
        b"EXIF",
        &(exif.len() as u32).to_le_bytes(),
        &exif,
    ]
    .concat();
    [&b"RIFF"[..], &(body.len() as u32).to_le_bytes(), &body].concat()
}

/// The picture that a viewer shows for stored pixels with an Exif orientation.
pub(super) fn upright(stored: &View, orientation: u8) -> View {
    let Shape { channels, height, width } = stored.shape;
    let (rows, columns) = if orientation > 4 { (width, height) } else { (height, width) };
    let mut pixels = Vec::with_capacity(stored.pixels.len());
    for channel in 0..channels {
        for y in 0..rows {
            for x in 0..columns {
                let (row, column) = match orientation {
                    2 => (y, width - 1 - x),
                    3 => (height - 1 - y, width - 1 - x),
                    4 => (height - 1 - y, x),
                    5 => (x, y),
                    6 => (height - 1 - x, y),
                    7 => (height - 1 - x, width - 1 - y),
                    8 => (x, width - 1 - y),
                    _ => (y, x),
                };
                pixels.push(stored.pixels[(channel * height + row) * width + column]);
            }
        }
    }
    View::new(Shape { channels, height: rows, width: columns }, pixels)
}

/// CRC-32, the check sum of PNG and zip, computed bit by bit.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let bit = |sum: u32| (sum >> 1) ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 };
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| bit(sum)))
}

/// Segments of a JPEG after its first marker, each with its own marker. The last one is the rest of the file from the first scan on.
fn segments(jpeg: &[u8]) -> Vec<&[u8]> {
    const START_OF_SCAN: u8 = 0xda;
    let (mut found, mut at) = (Vec::new(), 2);
    while jpeg[at + 1] != START_OF_SCAN {
        let end = at + 2 + usize::from(u16::from_be_bytes([jpeg[at + 2], jpeg[at + 3]]));
        found.push(&jpeg[at..end]);
        at = end;
    }
    found.push(&jpeg[at..]);
    found
}

const HUFFMAN_TABLE: u8 = 0xc4;

/// The JPEG without its Huffman tables, as some cameras send it: a reader must then take the tables of the standard.
pub(super) fn without_tables(jpeg: &[u8]) -> Vec<u8> {
    let kept = segments(jpeg).into_iter().filter(|segment| segment[1] != HUFFMAN_TABLE);
    [&jpeg[..2]].into_iter().chain(kept).collect::<Vec<_>>().concat()
}

/// A baseline JPEG of one grey. Width and height must be multiples of 8 pixels.
pub(super) fn large_jpeg(width: u16, height: u16) -> Vec<u8> {
    const QUANTIZATION_TABLE: u8 = 0xdb;
    let small = jpeg();
    let tables = segments(&small).into_iter();
    let tables = tables.filter(|segment| [HUFFMAN_TABLE, QUANTIZATION_TABLE].contains(&segment[1]));
    let [a, b] = height.to_be_bytes();
    let [c, d] = width.to_be_bytes();
    let frame = [0xff, 0xc0, 0, 11, 8, a, b, c, d, 1, 1, 0x11, 0];
    let scan = [0xff, 0xda, 0, 8, 1, 1, 0, 0, 63, 0];
    // In the tables of the standard a block is the bits 00 (no difference of the mean) and 1010 (end of block): four blocks are three bytes.
    let blocks = usize::from(width) / 8 * (usize::from(height) / 8);
    let mut data = [0x28, 0xa2, 0x8a].repeat(blocks.div_ceil(4));
    // The unused bits of the last byte are ones.
    data.truncate((blocks * 6).div_ceil(8));
    if let (Some(last), used @ 1..) = (data.last_mut(), blocks * 6 % 8) {
        *last |= 0xff >> used;
    }
    let head: Vec<&[u8]> = [&small[..2]].into_iter().chain(tables).collect();
    [&head.concat()[..], &frame, &scan, &data, &[0xff, 0xd9]].concat()
}
