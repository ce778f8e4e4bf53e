//! Structure of image files: format, size, orientation, and whether the end is there. No pixel is decoded here.

use image::metadata::Orientation;

use crate::jpeg::{Fault, Markers};

/// Number of first bytes that tell the format of a file.
pub(crate) const START_BYTES: u64 = 12;

/// First bytes of a PNG.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// File format of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Jpeg,
    Png,
    WebP,
}

/// Structure of a file.
#[derive(Clone, Debug)]
pub(crate) struct Structure {
    /// Width and height, as stored.
    pub(crate) size: [u32; 2],
    /// How the stored image is turned to stand upright.
    pub(crate) orientation: Orientation,
    pub(crate) coding: Coding,
}

/// What a decoder needs to know.
#[derive(Clone, Debug)]
pub(crate) enum Coding {
    Jpeg(Markers),
    /// PNG or WebP.
    Other {
        /// Memory for a pixel while decoding.
        pixel_bytes: u64,
    },
}

impl Format {
    /// Format of a file that begins with these bytes.
    pub(crate) fn of(start: &[u8]) -> Option<Self> {
        if start.starts_with(&[0xff, 0xd8, 0xff]) {
            Some(Self::Jpeg)
        } else if start.starts_with(PNG) {
            Some(Self::Png)
        } else if start.starts_with(b"RIFF") && start.get(8..12) == Some(b"WEBP") {
            Some(Self::WebP)
        } else {
            None
        }
    }

    /// Whether a file ends within the bytes that tell its format.
    pub(crate) fn is_cut(file: &[u8]) -> bool {
        let starts: [&[u8]; 3] = [&[0xff, 0xd8, 0xff], PNG, b"RIFF"];
        starts.iter().any(|start| start.starts_with(file)) || (file.starts_with(b"RIFF") && file.len() < 12)
    }
}

impl Structure {
    /// Finds the structure of a file of a format.
    pub(crate) fn parse(format: Format, file: &[u8]) -> Result<Self, Fault> {
        match format {
            Format::Jpeg => {
                let markers = Markers::parse(file)?;
                let (size, orientation) = (markers.size(), orientation(markers.exif(file)));
                Ok(Self { size, orientation, coding: Coding::Jpeg(markers) })
            }
            Format::Png => png(file),
            Format::WebP => webp(file),
        }
    }
}

/// Orientation in Exif data; some writers keep the head that it has in a JPEG.
fn orientation(exif: Option<&[u8]>) -> Orientation {
    let exif = exif.map(|exif| exif.strip_prefix(b"Exif\0\0").unwrap_or(exif));
    exif.and_then(Orientation::from_exif_chunk).unwrap_or(Orientation::NoTransforms)
}

/// Chunks of a PNG up to its `IEND` (PNG specification, section 5.3).
///
/// ```text
/// length   kind   body   check sum
/// 4        4      length 4          bytes
/// ```
fn png(file: &[u8]) -> Result<Structure, Fault> {
    let (mut header, mut exif, mut has_transparency) = (None, None, false);
    let mut rest = &file[PNG.len()..];
    loop {
        let (&[a, b, c, d, ref kind @ ..], after) = rest.split_first_chunk::<8>().ok_or(Fault::Cut)?;
        let length = u32::from_be_bytes([a, b, c, d]);
        if length > i32::MAX as u32 || !kind.iter().all(u8::is_ascii_alphabetic) {
            return Err(Fault::Broken("a chunk without a length and a kind".into()));
        }
        let (body, after) = after.split_at_checked(length as usize).ok_or(Fault::Cut)?;
        (_, rest) = after.split_at_checked(4).ok_or(Fault::Cut)?;
        match kind {
            b"IHDR" => header = body.first_chunk::<10>(),
            b"eXIf" => exif = Some(body),
            b"tRNS" => has_transparency = true,
            b"IEND" => break,
            _ => {}
        }
    }
    let &[a, b, c, d, e, f, g, h, depth, colour] =
        header.ok_or_else(|| Fault::Broken("no header before the end".into()))?;
    let channels = match colour {
        0 => 1,
        4 => 2,
        6 => 4,
        _ => 3,
    };
    let channels = channels + u64::from(has_transparency);
    Ok(Structure {
        size: [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])],
        orientation: orientation(exif),
        coding: Coding::Other { pixel_bytes: channels * if depth > 8 { 2 } else { 1 } },
    })
}

/// Chunks of a WebP (RFC 9649).
///
/// ```text
/// RIFF length WEBP   kind length body   kind length body   ...   numbers are little-endian, bodies padded to even lengths
/// ```
fn webp(file: &[u8]) -> Result<Structure, Fault> {
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
    let end = number(&file[4..8]) as usize + 8;
    let mut rest = file.get(12..end).ok_or(Fault::Cut)?;
    let (mut size, mut exif, mut pixel_bytes) = (None, None, 0);
    while let Some((head, after)) = rest.split_first_chunk::<8>() {
        let (kind, length) = (&head[..4], number(&head[4..]) as usize);
        let Some((body, after)) = after.split_at_checked(length) else { return Err(Fault::Cut) };
        rest = after.get(length % 2..).unwrap_or_default();
        // Bytes of a pixel: of the frame that is given out, and of what the decoder keeps beside it.
        let (own_size, bytes) = match (kind, body) {
            (b"VP8X", [_, _, _, _, sides @ ..]) if sides.len() >= 6 => {
                (Some([&sides[..3], &sides[3..6]].map(|side| number(side) + 1)), 0)
            }
            (b"VP8L", [0x2f, sides @ ..]) if sides.len() >= 4 => {
                let sides = number(&sides[..4]);
                (Some([sides, sides >> 14].map(|side| (side & 0x3fff) + 1)), 8)
            }
            (b"VP8 ", [_, _, _, 0x9d, 0x01, 0x2a, sides @ ..]) if sides.len() >= 4 => {
                (Some([&sides[..2], &sides[2..4]].map(|side| number(side) & 0x3fff)), 6)
            }
            (b"ANMF", _) => (None, 12),
            (b"EXIF", body) => {
                exif = Some(body);
                continue;
            }
            _ => continue,
        };
        if size.zip(own_size).is_some_and(|(size, own)| size != own) {
            return Err(Fault::Broken("two sizes".into()));
        }
        size = size.or(own_size);
        pixel_bytes = pixel_bytes.max(bytes);
    }
    let size = size.ok_or_else(|| Fault::Broken("no image in it".into()))?;
    Ok(Structure { size, orientation: orientation(exif), coding: Coding::Other { pixel_bytes } })
}
