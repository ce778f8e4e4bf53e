//! Splits a stream into JPEG, PNG and WebP files by the structure of the files. The files may follow each other directly (ffmpeg's
//! `image2pipe`) or with other bytes between them (the headers of a camera's multipart answer).
//!
//! The start of an image ends the image before it, so that an image without its end does not spoil the next image. The starts, and the places
//! where each is recognized:
//!
//! ```text
//! ff d8 ff of a JPEG          between images, and in a JPEG but for its application data (thumbnails) and comments
//! 8 bytes of a JPEG           between images, and in a PNG or WebP, whose data hold three bytes by chance; see `first_segment`.
//!                             Not in what may hold a thumbnail: ancillary chunks of a PNG, a WebP of the extended format
//! 8 bytes of PNG, 16 of WebP  between images, and in any image but for the same segments of a JPEG
//! ```

use std::mem;

use super::faults::{FrameFault, Missing};

/// Splitter of a stream into images. Memory: one image of at most `max_bytes`.
pub(crate) struct ImageSplitter {
    max_bytes: u64,
    place: Place,
    /// The image so far; empty between images, and beyond the bound.
    image: Vec<u8>,
    /// Bytes since the last part.
    length: u64,
    /// The last 16 bytes; the newest byte is the lowest.
    latest: u128,
    /// True when the image is a JPEG, and a scan of it has begun.
    has_scan: bool,
}

/// A part of the stream: a file for the decoder, or the fault of bytes that are no file.
pub(crate) type StreamPart = Result<Vec<u8>, Missing>;

/// Largest number of bytes in the start of an image.
const MAX_START_BYTES: usize = size_of::<u128>();

/// The part of an image to which the next byte of the stream belongs.
#[derive(Clone, Copy)]
enum Place {
    /// Between images: a byte that belongs to no image so far.
    Between,
    /// JPEG: the second byte of a marker.
    Marker,
    /// JPEG: the first byte of a segment's length.
    LengthHigh { marker: u8 },
    /// JPEG: the second byte of a segment's length.
    LengthLow { marker: u8 },
    /// JPEG: a byte of a segment of which `left` bytes are left.
    Segment { marker: u8, left: u16 },
    /// JPEG: the first byte of a marker.
    NextMarker,
    /// JPEG: data of a scan.
    Scan,
    /// JPEG: the byte after 0xff in a scan.
    ScanMarker,
    /// PNG: length and kind of a chunk, of which `left` bytes are left.
    ChunkHead { left: u8 },
    /// PNG: data and check sum of a chunk.
    Chunk { left: u64, kind: [u8; 4] },
    /// WebP: a byte after the start, of which `left` bytes are left.
    Riff { left: u64, is_extended: bool },
}

/// Kind of the last chunk of a PNG.
const LAST_CHUNK: [u8; 4] = *b"IEND";

/// Effect of a byte: the place of the next byte, the end of the image, or a fault of the image.
enum Step {
    To(Place),
    End,
    Broken,
}

impl Place {
    /// The place after the start of an image, and the number of bytes in the start, if the newest byte ends such a start; `None` if it does not.
    /// The newest byte is at this place.
    fn after_start(self, latest: u128) -> Option<(Self, usize)> {
        // Application data may hold a thumbnail; a comment may hold anything.
        if matches!(self, Self::Segment { marker: 0xe0..=0xef | 0xfe, .. }) {
            return None;
        }
        match latest.to_be_bytes() {
            [.., 0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n'] => Some((Self::ChunkHead { left: 8 }, 8)),
            // The length counts the eight bytes of the start that follow the length.
            [b'R', b'I', b'F', b'F', a, b, c, d, b'W', b'E', b'B', b'P', b'V', b'P', b'8', kind] => {
                let left = u64::from(u32::from_le_bytes([a, b, c, d])).saturating_sub(8);
                Some((Self::Riff { left, is_extended: kind == b'X' }, MAX_START_BYTES))
            }
            [.., 0xff, 0xd8, 0xff]
                if !matches!(self, Self::ChunkHead { .. } | Self::Chunk { .. } | Self::Riff { .. }) =>
            {
                Some((Self::Marker, 3))
            }
            [.., 0xff, 0xd8, 0xff, marker, high, low, one, two] if self.is_without_thumbnail() => {
                Some((Self::first_segment(marker, u16::from_be_bytes([high, low]), [one, two])?, 8))
            }
            _ => None,
        }
    }

    /// True if this place is in no JPEG, and in no part of another image that may hold a thumbnail.
    fn is_without_thumbnail(self) -> bool {
        matches!(
            self,
            Self::Between
                | Self::ChunkHead { .. }
                | Self::Chunk { kind: [b'A'..=b'Z', ..], .. }
                | Self::Riff { is_extended: false, .. }
        )
    }

    /// The place in the first segment of a JPEG, two bytes after the segment's length; `None` if the segment is not one that nearly every writer
    /// begins with: JFIF, Exif, a comment of ffmpeg, or the first table.
    fn first_segment(marker: u8, length: u16, bytes: [u8; 2]) -> Option<Self> {
        // Compressed data have such bytes by chance once in some 10^14 bytes. A table has 64 values of one byte, and a segment up to four tables.
        match (marker, length, &bytes) {
            (0xdb, 67 | 132 | 197 | 262, [0, _])
            | (0xe0, 16, b"JF")
            | (0xe1, _, b"Ex")
            | (0xfe, _, b"La") => {}
            _ => return None,
        }
        length.checked_sub(4).map(|left| Self::in_segment(marker, left))
    }

    /// The place after the newest byte, which is at this place. JPEG by ITU-T T.81, annex B; PNG by section 5.3 of its specification.
    fn after(self, latest: u128) -> Step {
        let byte = latest as u8;
        let to = match self {
            Self::Between => Self::Between,
            Self::Marker => return Self::after_marker(byte),
            Self::LengthHigh { marker } => Self::LengthLow { marker },
            Self::LengthLow { marker } => match (latest as u16).checked_sub(2) {
                Some(left) => Self::in_segment(marker, left),
                None => return Step::Broken,
            },
            Self::Segment { marker, left } => Self::in_segment(marker, left - 1),
            // Decoders pass over bytes between two segments too.
            Self::NextMarker if byte != 0xff => Self::NextMarker,
            Self::NextMarker => Self::Marker,
            Self::Scan if byte != 0xff => Self::Scan,
            Self::Scan => Self::ScanMarker,
            Self::ScanMarker => match byte {
                0x00 | 0xd0..=0xd7 => Self::Scan,
                0xff => Self::ScanMarker,
                marker => return Self::after_marker(marker),
            },
            Self::ChunkHead { left: 1 } => return Self::in_chunk(latest as u64),
            Self::ChunkHead { left } => Self::ChunkHead { left: left - 1 },
            Self::Chunk { left: ..=1, kind: LAST_CHUNK } | Self::Riff { left: ..=1, .. } => return Step::End,
            Self::Chunk { left: ..=1, .. } => Self::ChunkHead { left: 8 },
            Self::Chunk { left, kind } => Self::Chunk { left: left - 1, kind },
            Self::Riff { left, is_extended } => Self::Riff { left: left - 1, is_extended },
        };
        Step::To(to)
    }

    fn after_marker(marker: u8) -> Step {
        Step::To(match marker {
            0xd9 => return Step::End,
            0x00 => return Step::Broken,
            // A fill byte.
            0xff => Self::Marker,
            // Markers without a segment. If 0xff follows 0xd8 (start of image), `after_start` begins the next image.
            0x01 | 0xd0..=0xd8 => Self::NextMarker,
            marker => Self::LengthHigh { marker },
        })
    }

    fn in_segment(marker: u8, left: u16) -> Self {
        const START_OF_SCAN: u8 = 0xda;
        match (left, marker) {
            (0, START_OF_SCAN) => Self::Scan,
            (0, _) => Self::NextMarker,
            _ => Self::Segment { marker, left },
        }
    }

    fn in_chunk(head: u64) -> Step {
        const CHECK_SUM_BYTES: u64 = 4;
        let (length, kind) = (head >> 32, (head as u32).to_be_bytes());
        if length > i32::MAX as u64 || !kind.iter().all(u8::is_ascii_alphabetic) {
            return Step::Broken;
        }
        Step::To(Self::Chunk { left: length + CHECK_SUM_BYTES, kind })
    }
}

impl ImageSplitter {
    pub(crate) fn new(max_bytes: u64) -> Self {
        let (image, place) = (Vec::new(), Place::Between);
        Self { max_bytes, place, image, length: 0, latest: 0, has_scan: false }
    }

    /// Takes bytes up to the end of the next part; `None` if all bytes are taken and the part goes on.
    pub(crate) fn next_part(&mut self, input: &mut &[u8]) -> Option<StreamPart> {
        while let Some((&byte, rest)) = input.split_first() {
            *input = rest;
            let part = self.take(byte);
            if part.is_some() {
                return part;
            }
        }
        None
    }

    fn take(&mut self, byte: u8) -> Option<StreamPart> {
        self.latest = self.latest << 8 | u128::from(byte);
        self.length += 1;
        if !matches!(self.place, Place::Between) {
            self.image.push(byte);
            // An image is dropped only once it is longer by a start, since the newest bytes may prove to be the start of the next image.
            if self.length > self.max_bytes + MAX_START_BYTES as u64 {
                self.image = Vec::new();
            }
        }
        if let Some((place, start_bytes)) = self.place.after_start(self.latest) {
            return self.begin(place, start_bytes);
        }
        match self.place.after(self.latest) {
            Step::To(place) => {
                self.has_scan |= matches!(place, Place::Scan);
                self.place = place;
                None
            }
            Step::End => Some(self.part(Ok)),
            Step::Broken => {
                let detail = format!("the image leaves its format at byte {}", self.length);
                Some(self.part(|_| Err((FrameFault::BROKEN, detail))))
            }
        }
    }

    /// Begins an image whose start was taken, and returns the part before the image, if there is one.
    fn begin(&mut self, place: Place, start_bytes: usize) -> Option<StreamPart> {
        // If an image ended or broke within the bytes of the start, some of these bytes were returned with that image.
        self.length = self.length.saturating_sub(start_bytes as u64);
        self.image.truncate(self.image.len().saturating_sub(start_bytes));
        let before = self.unfinished();
        self.place = place;
        self.length = start_bytes as u64;
        self.image.extend_from_slice(&self.latest.to_be_bytes()[size_of::<u128>() - start_bytes..]);
        before
    }

    /// The bytes since the last part, as the last part of a stream that ends here; `None` if there are none.
    pub(crate) fn unfinished(&mut self) -> Option<StreamPart> {
        let (bytes, has_scan, is_between) =
            (self.length, self.has_scan, matches!(self.place, Place::Between));
        let part = self.part(|image| match (is_between, has_scan) {
            (true, _) => Err((FrameFault::STRAY, format!("{bytes} bytes belong to no image"))),
            // Some cameras never write the end of a JPEG: the decoder says whether the scan is whole.
            (false, true) => Ok(image),
            (false, false) => Err((FrameFault::CUT, format!("the image ends after {bytes} bytes"))),
        });
        (bytes > 0).then_some(part)
    }

    /// Ends a part; the next byte is between images. An image of more than `max_bytes` is a fault.
    fn part(&mut self, of_image: impl FnOnce(Vec<u8>) -> StreamPart) -> StreamPart {
        let next = Self { latest: self.latest, ..Self::new(self.max_bytes) };
        let Self { image, length, place, max_bytes, .. } = mem::replace(self, next);
        if matches!(place, Place::Between) || length <= max_bytes {
            return of_image(image);
        }
        let detail = format!("expected an image of at most {max_bytes} bytes, found {length}");
        Err((FrameFault::OVERSIZE, detail))
    }
}

#[cfg(test)]
mod tests {
    use headwater_samples::{Shape, View, image_codec};

    use super::*;

    /// The parts of a stream, which must be the same for single bytes and for all bytes at once.
    #[track_caller]
    fn parts(bytes: &[u8], max_bytes: u64) -> Vec<StreamPart> {
        let of_pieces = |piece_bytes: usize| {
            let mut splitter = ImageSplitter::new(max_bytes);
            let mut found = Vec::new();
            for mut piece in bytes.chunks(piece_bytes) {
                found.extend(std::iter::from_fn(|| splitter.next_part(&mut piece)));
            }
            found.extend(splitter.unfinished());
            found
        };
        let slowly = of_pieces(1);
        assert_eq!(slowly, of_pieces(bytes.len().max(1)));
        slowly
    }

    /// A part with this fault; the text of the fault names a number of bytes.
    fn faulty(fault: FrameFault, bytes: usize) -> StreamPart {
        let detail = match fault {
            FrameFault::STRAY => format!("{bytes} bytes belong to no image"),
            FrameFault::CUT => format!("the image ends after {bytes} bytes"),
            _ => format!("the image leaves its format at byte {bytes}"),
        };
        Err((fault, detail))
    }

    fn png() -> Vec<u8> {
        image_codec::png(&View::new(Shape::rgb(4, 4), (0..48).collect())).unwrap()
    }

    fn webp() -> Vec<u8> {
        image_codec::webp_lossless(&View::new(Shape::rgb(4, 4), (0..48).collect())).unwrap()
    }

    /// A JPEG with everything that misleads a scanner: a thumbnail in a segment, stuffed bytes, a restart marker, fill bytes, two scans.
    fn jpeg() -> Vec<u8> {
        let mut file = vec![0xff, 0xd8, 0xff, 0xe1, 0, 9, 0xff, 0xd8, 0xff, 0xd9, 1, 2, 3];
        for _ in 0..2 {
            file.extend([0xff, 0xff, 0xda, 0, 3, 7, 1, 0xff, 0x00, 2, 0xff, 0xd0, 3]);
        }
        file.extend([0xff, 0xd9]);
        file
    }

    /// Offset of the first scan in [`jpeg`], in bytes.
    const SCAN_AT: usize = 19;

    #[test]
    fn images_one_after_the_other_are_separated() {
        let stream = [jpeg(), png(), webp(), png(), jpeg(), webp()];
        let expected = stream.clone().map(StreamPart::Ok);
        assert_eq!(parts(&stream.concat(), 1 << 20), expected);
        assert!(parts(&[], 1 << 20).is_empty());
    }

    #[test]
    fn a_stream_cut_anywhere_gives_one_image_without_its_end() {
        let file = jpeg();
        for length in 3..file.len() {
            let expected = match length {
                ..SCAN_AT => faulty(FrameFault::CUT, length),
                _ => Ok(file[..length].to_vec()),
            };
            assert_eq!(parts(&file[..length], 1 << 20), [expected]);
        }
        assert_eq!(parts(&file[..2], 1 << 20), [faulty(FrameFault::STRAY, 2)]);
    }

    #[test]
    fn an_image_without_its_end_leaves_the_next_one_whole() {
        // JPEG files as most writers begin them.
        let of_start = |start: &[u8]| [&[0xff, 0xd8, 0xff][..], start, &[7; 14], &jpeg()[13..]].concat();
        let jfif = of_start(b"\xe0\0\x10JF");
        let exif = of_start(b"\xe1\0\x10Ex");
        let comment = of_start(b"\xfe\0\x10La");
        let table = of_start(&[&b"\xdb\0\x43\0"[..], &[7; 52]].concat());
        // The cut comes after the thumbnail, since the start of an image inside a thumbnail begins no image.
        for (file, next) in [
            (jpeg(), jpeg()),
            (jpeg(), png()),
            (png(), png()),
            (webp(), webp()),
            (webp(), png()),
            (png(), jfif.clone()),
            (webp(), jfif),
            (png(), exif),
            (png(), comment),
            (webp(), table),
        ] {
            for length in 13..file.len() {
                let found = parts(&[&file[..length], &next].concat(), 1 << 20);
                assert_eq!(found.len(), 2, "{length} of {}: {found:?}", file.len());
                assert_eq!(found[1], Ok(next.clone()), "{length} of {}", file.len());
            }
        }
    }

    #[test]
    fn a_thumbnail_in_a_png_or_webp_begins_no_image() {
        let thumbnail = b"\xff\xd8\xff\xe0\0\x10JFIF\0";
        let chunk = [&11_u32.to_be_bytes()[..], b"eXIf", thumbnail, &[0; 4]].concat();
        // The chunk with the thumbnail comes after the signature and the first chunk.
        let png = [&png()[..33], &chunk, &png()[33..]].concat();
        let webp = [&b"RIFF"[..], &19_u32.to_le_bytes(), b"WEBPVP8X", thumbnail].concat();
        assert_eq!(parts(&[&png[..], &webp].concat(), 1 << 20), [png, webp].map(StreamPart::Ok));
    }

    #[test]
    fn a_camera_that_never_writes_the_end_gives_all_its_frames() {
        let frame = jpeg()[..jpeg().len() - 2].to_vec();
        let expected = [0; 3].map(|_| StreamPart::Ok(frame.clone()));
        assert_eq!(parts(&frame.repeat(3), frame.len() as u64), expected);
    }

    #[test]
    fn an_image_beyond_the_bound_is_skipped() {
        let bytes = png().len() as u64;
        let stream = [png(), jpeg()].concat();
        let oversize = format!("expected an image of at most {} bytes, found {bytes}", bytes - 1);
        assert_eq!(parts(&stream, bytes - 1), [Err((FrameFault::OVERSIZE, oversize)), Ok(jpeg())]);
        assert_eq!(parts(&stream, bytes), [png(), jpeg()].map(StreamPart::Ok));
    }

    #[test]
    fn bytes_between_images_are_stray() {
        let stream =
            [b"HTTP/1.1".to_vec(), jpeg(), b"\xff\xd8 --boundary".to_vec(), png(), b"x".to_vec()].concat();
        let expected = [
            faulty(FrameFault::STRAY, 8),
            Ok(jpeg()),
            faulty(FrameFault::STRAY, 13),
            Ok(png()),
            faulty(FrameFault::STRAY, 1),
        ];
        assert_eq!(parts(&stream, 1 << 20), expected);
    }

    #[test]
    fn bytes_between_two_segments_are_part_of_the_image() {
        let file = [&jpeg()[..13], &[0, 0, b'x'], &jpeg()[13..]].concat();
        assert_eq!(parts(&file.repeat(2), 1 << 20), [0; 2].map(|_| StreamPart::Ok(file.clone())));
    }

    #[test]
    fn a_broken_image_does_not_spoil_the_next_one() {
        let mut broken = jpeg();
        broken[4] = 0;
        broken[5] = 1;
        let found = parts(&[broken, png()].concat(), 1 << 20);
        assert_eq!(found.first(), Some(&faulty(FrameFault::BROKEN, 6)), "{found:?}");
        assert_eq!(found.last(), Some(&StreamPart::Ok(png())), "{found:?}");
    }
}
