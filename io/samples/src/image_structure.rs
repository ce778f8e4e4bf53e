//! Structure of image files: format, size, orientation, end, and the memory that decoding needs. No pixel is decoded here.

use image::metadata::Orientation;

use crate::jpeg::{Fault, Markers, decoded_bytes, is_reducible};

/// Number of first bytes that tell the format of a file.
pub(crate) const START_BYTES: u64 = 12;

/// First bytes of a JPEG.
const JPEG: &[u8] = &[0xff, 0xd8, 0xff];
/// First bytes of a PNG.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";
/// First bytes of a WebP, before its length.
const RIFF: &[u8] = b"RIFF";

/// Structure of a file.
#[derive(Clone, Debug)]
pub(crate) struct Structure {
    /// Width and height, as stored.
    pub(crate) size: [u32; 2],
    /// Turn that brings the stored image upright.
    pub(crate) orientation: Orientation,
    pub(crate) coding: Coding,
}

/// Coding of the pixels.
#[derive(Clone, Debug)]
pub(crate) enum Coding {
    Jpeg(Markers),
    /// PNG or WebP.
    Other {
        name: &'static str,
        /// Bytes of memory for a pixel while decoding.
        pixel_bytes: u64,
        /// Offset of the first byte that is not of the image.
        end: usize,
    },
}

/// Function that finds the structure of a file.
type Parser = fn(&[u8]) -> Result<Structure, Fault>;

/// The parser of a file's format; `None` if the first bytes are of no known format.
fn parser(start: &[u8]) -> Option<Parser> {
    if start.starts_with(JPEG) {
        Some(jpeg)
    } else if start.starts_with(PNG) {
        Some(png)
    } else if start.starts_with(RIFF) && start.get(8..12) == Some(b"WEBP") {
        Some(webp)
    } else {
        None
    }
}

/// Returns true if a file that begins with these bytes is an image.
pub(crate) fn is_image(start: &[u8]) -> bool {
    parser(start).is_some()
}

/// Returns true if a file ends within the bytes that tell its format.
fn is_cut(file: &[u8]) -> bool {
    let is_start = |start: &&[u8]| start.starts_with(file);
    [JPEG, PNG, RIFF].iter().any(is_start) || (file.starts_with(RIFF) && file.len() < 12)
}

impl Structure {
    /// Finds the structure of a file.
    pub(crate) fn parse(file: &[u8]) -> Result<Self, Fault> {
        match parser(file) {
            Some(parse) => parse(file),
            None if is_cut(file) => Err(Fault::Cut),
            None => Err(Fault::Broken(format!("found {}", other_format(file)))),
        }
    }

    /// Memory that decoding at full size needs, in bytes, and the kind of file in words. A JPEG that can be decoded at a reduced scale counts as 0.
    pub(crate) fn needed_bytes(&self) -> (u64, &'static str) {
        match &self.coding {
            Coding::Jpeg(markers) if is_reducible(markers) => (0, "baseline JPEG"),
            Coding::Jpeg(markers) => (decoded_bytes(markers, 8), "progressive or CMYK JPEG"),
            Coding::Other { name, pixel_bytes, .. } => {
                (self.size.into_iter().map(u64::from).product::<u64>() * pixel_bytes, *name)
            }
        }
    }
}

/// Format of a file that is not decoded, by its first bytes.
fn other_format(file: &[u8]) -> String {
    let name = match file.trim_ascii_start() {
        [b'G', b'I', b'F', b'8', ..] => "a GIF",
        [b'B', b'M', ..] => "a BMP",
        [b'I', b'I', b'*', 0, ..] | [b'M', b'M', 0, b'*', ..] => "a TIFF",
        [_, _, _, _, b'f', b't', b'y', b'p', ..] => "a HEIC, AVIF or video",
        [b'<', ..] => "a page or an SVG",
        text if text.starts_with(b"version https://git-lfs") => {
            "a pointer of Git LFS: `git lfs pull` gets the file"
        }
        _ => return format!("none of them, but {:02x?}", &file[..file.len().min(8)]),
    };
    name.to_owned()
}

fn jpeg(file: &[u8]) -> Result<Structure, Fault> {
    let markers = Markers::parse(file)?;
    let (size, orientation) = (markers.size(), orientation(markers.exif(file)));
    Ok(Structure { size, orientation, coding: Coding::Jpeg(markers) })
}

/// Orientation in Exif data. Some writers of PNG and WebP keep the prefix that the data has in a JPEG.
fn orientation(exif: Option<&[u8]>) -> Orientation {
    let exif = exif.map(|exif| exif.strip_prefix(b"Exif\0\0").unwrap_or(exif));
    let read = |exif| Orientation::from_exif_chunk(exif).or_else(|| long_orientation(exif));
    exif.and_then(read).unwrap_or(Orientation::NoTransforms)
}

/// Orientation that a writer stored as a LONG in place of a SHORT, which viewers take too.
///
/// ```text
/// header: II or MM, 42, offset of the directory      directory: count, then entries of 12 bytes: tag, type, count, value
/// ```
fn long_orientation(exif: &[u8]) -> Option<Orientation> {
    const ORIENTATION: u16 = 0x0112;
    const LONG: u16 = 4;
    let is_little = exif.starts_with(b"II");
    let short = |at: usize| {
        let bytes = exif.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    };
    let long = |at: usize| {
        let bytes = exif.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    };
    let directory = usize::try_from(long(4)?).ok()?;
    let entries = (0..usize::from(short(directory)?)).map(|entry| directory + 2 + 12 * entry);
    let mut found = entries.filter(|at| (short(*at), short(at + 2)) == (Some(ORIENTATION), Some(LONG)));
    Orientation::from_exif(u8::try_from(long(found.next()? + 8)?).ok()?)
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
        coding: Coding::Other {
            name: "PNG",
            pixel_bytes: channels * if depth > 8 { 2 } else { 1 },
            end: file.len() - rest.len(),
        },
    })
}

/// Chunks of a WebP (RFC 9649).
///
/// ```text
/// RIFF length WEBP   kind length body   kind length body   ...   numbers are little-endian, bodies padded to even lengths
/// ```
fn webp(file: &[u8]) -> Result<Structure, Fault> {
    let broken = |reason: &str| Fault::Broken(reason.into());
    let end = number(&file[4..8]) as usize + 8;
    let mut rest = file.get(12..end).ok_or(Fault::Cut)?;
    let (mut size, mut exif, mut pixel_bytes) = (None, None, 0);
    while let Some((kind, body)) = next_chunk(&mut rest)? {
        // Bytes of memory for a pixel: in the decoded frame, and in the buffers of the decoder.
        let (own_size, bytes) = match (kind, body) {
            (b"VP8X", [_, _, _, _, sides @ ..]) if sides.len() >= 6 => (Some(sides_of(sides)), 0),
            (b"VP8L", _) => (picture_size(kind, body), 8),
            (b"VP8 ", _) => (picture_size(kind, body), 6),
            (b"ALPH", _) => (None, 11),
            (b"ANMF", _) if size.is_some_and(|canvas| fits_canvas(body, canvas)) => (size, 12),
            (b"ANMF", _) => return Err(broken("an animation with a picture that does not fit its canvas")),
            (b"EXIF", _) => {
                exif = Some(body);
                continue;
            }
            _ => continue,
        };
        if size.zip(own_size).is_some_and(|(size, own)| size != own) {
            return Err(broken("two sizes"));
        }
        size = size.or(own_size);
        pixel_bytes = pixel_bytes.max(bytes);
    }
    let size = size.filter(|_| pixel_bytes > 0).ok_or_else(|| broken("no image in it"))?;
    Ok(Structure {
        size,
        orientation: orientation(exif),
        coding: Coding::Other { name: "WebP", pixel_bytes, end },
    })
}

/// Kind and body of a chunk.
type Chunk<'a> = (&'a [u8; 4], &'a [u8]);

/// Splits the next chunk off; `None` if no head of a chunk follows.
fn next_chunk<'a>(rest: &mut &'a [u8]) -> Result<Option<Chunk<'a>>, Fault> {
    let Some(([kind @ .., a, b, c, d], after)) = rest.split_first_chunk::<8>() else { return Ok(None) };
    let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
    let (body, after) = after.split_at_checked(length).ok_or(Fault::Cut)?;
    *rest = after.get(length % 2..).unwrap_or_default();
    Ok(Some((kind, body)))
}

/// Width and height of a lossless or lossy picture; `None` for another chunk.
fn picture_size(kind: &[u8; 4], body: &[u8]) -> Option<[u32; 2]> {
    match (kind, body) {
        (b"VP8L", [0x2f, sides @ ..]) if sides.len() >= 4 => {
            let sides = number(&sides[..4]);
            Some([sides, sides >> 14].map(|side| (side & 0x3fff) + 1))
        }
        (b"VP8 ", [_, _, _, 0x9d, 0x01, 0x2a, sides @ ..]) if sides.len() >= 4 => {
            Some([&sides[..2], &sides[2..4]].map(|side| number(side) & 0x3fff))
        }
        _ => None,
    }
}

/// Returns true if a frame of an animation lies in the canvas, and the picture has the size of the frame. The decoder takes memory for the
/// picture at once.
///
/// ```text
/// left / 2   top / 2   width - 1   height - 1   duration, flags   perhaps a chunk ALPH   chunk of the picture
/// 3          3         3           3            4                                                             bytes
/// ```
fn fits_canvas(body: &[u8], canvas: [u32; 2]) -> bool {
    let Some((head, mut chunks)) = body.split_at_checked(16) else { return false };
    let (corner, frame) = ([&head[..3], &head[3..6]].map(|half| 2 * number(half)), sides_of(&head[6..]));
    let mut next = || next_chunk(&mut chunks).ok().flatten();
    let picture = match next() {
        Some((b"ALPH", _)) => next(),
        chunk => chunk,
    };
    picture.and_then(|(kind, body)| picture_size(kind, body)) == Some(frame)
        && (0..2).all(|axis| corner[axis] + frame[axis] <= canvas[axis])
}

/// Width and height of three bytes each, stored minus one.
fn sides_of(bytes: &[u8]) -> [u32; 2] {
    [&bytes[..3], &bytes[3..6]].map(|side| number(side) + 1)
}

/// A little-endian number of up to four bytes.
fn number(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}
