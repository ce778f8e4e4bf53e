//! Segments of a JPEG (ITU-T T.81, annex B): where they lie, and where the image ends.
//!
//! ```text
//! FF D8   FF E1 length Exif   FF C0 length frame   FF DA length scan, entropy-coded data   FF D9
//! start                       size, components                                             end
//! ```

use std::ops::Range;

use super::Fault;

/// Kind of a segment: the second byte of its marker.
pub(super) mod kind {
    pub(crate) const HUFFMAN: u8 = 0xc4;
    pub(crate) const END: u8 = 0xd9;
    pub(crate) const SCAN: u8 = 0xda;
    pub(crate) const QUANTIZATION: u8 = 0xdb;
    pub(crate) const RESTART_INTERVAL: u8 = 0xdd;
    pub(crate) const START: u8 = 0xd8;
    pub(crate) const EXIF: u8 = 0xe1;
    pub(crate) const ADOBE: u8 = 0xee;
}

/// A segment with a length.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) kind: u8,
    /// Bytes after the length.
    pub(super) body: Range<usize>,
}

/// Segments, frame and end of a JPEG.
#[derive(Clone, Debug)]
pub(crate) struct Markers {
    pub(super) segments: Vec<Segment>,
    pub(super) frame: Frame,
    /// Offset of the end marker, or of the first byte that is not of the image.
    pub(super) end: usize,
    /// True when there is an end marker.
    pub(super) is_ended: bool,
}

/// Size and components.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) is_progressive: bool,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) components: Vec<Component>,
}

/// Colour component of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Component {
    pub(super) id: u8,
    /// Blocks of the component in an MCU (minimum coded unit), across and down.
    pub(super) sampling: [usize; 2],
    /// Number of the quantization table.
    pub(super) table: usize,
}

impl Markers {
    /// Finds the segments of a file.
    pub(crate) fn parse(file: &[u8]) -> Result<Self, Fault> {
        let (mut segments, mut frame, mut has_scan) = (Vec::new(), None, false);
        let mut at = 2;
        let (end, is_ended) = loop {
            let Some((kind, start)) = next_marker(file, at) else { break (file.len(), false) };
            at = start + 2;
            match kind {
                kind::END => break (start, true),
                // A second image begins, and the first one has no end marker.
                kind::START => break (start, false),
                0x01 | 0xd0..=0xd7 => continue,
                _ => {}
            }
            let length = file.get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
            let body = at + 2..at + usize::from(length);
            if length < 2 || body.end > file.len() {
                break (file.len(), false);
            }
            if matches!(kind, 0xc0..=0xcf) && !matches!(kind, kind::HUFFMAN | 0xc8 | 0xcc) {
                if frame.is_some() {
                    return Err(Fault::Broken("two frames".into()));
                }
                frame = Some(Frame::parse(kind, &file[body.clone()])?);
            }
            has_scan |= kind == kind::SCAN;
            at = body.end;
            segments.push(Segment { kind, body });
        };
        match frame.filter(|_| has_scan) {
            Some(frame) => Ok(Self { segments, frame, end, is_ended }),
            None if is_ended => Err(Fault::Broken("no frame or no scan before the end marker".into())),
            None => Err(Fault::Cut),
        }
    }

    /// Width and height, as stored.
    pub(crate) const fn size(&self) -> [u32; 2] {
        [self.frame.width, self.frame.height]
    }

    /// The Exif data, from its TIFF header on; `None` if there is none.
    pub(crate) fn exif<'a>(&self, file: &'a [u8]) -> Option<&'a [u8]> {
        self.bodies(kind::EXIF, file).find_map(|body| body.strip_prefix(b"Exif\0\0"))
    }

    /// Number of segments of a kind.
    pub(super) fn count(&self, kind: u8) -> usize {
        self.segments.iter().filter(|segment| segment.kind == kind).count()
    }

    /// Returns true if the three components are red, green and blue, and not luma and chroma.
    pub(super) fn is_rgb(&self, file: &[u8]) -> bool {
        let adobe = self.bodies(kind::ADOBE, file).find_map(|body| body.strip_prefix(b"Adobe"));
        let ids = self.frame.components.iter().map(|component| component.id);
        adobe.and_then(|adobe| adobe.get(6)) == Some(&0) || ids.eq(*b"RGB")
    }

    /// Returns true if the scans of a progressive JPEG have every coefficient to its last bit.
    pub(super) fn is_refined(&self, file: &[u8]) -> bool {
        let mut refined = vec![0_u64; self.frame.components.len()];
        for scan in self.bodies(kind::SCAN, file) {
            let Some((&count, rest)) = scan.split_first() else { continue };
            let Some((ids, &[first, last, bits])) = rest.split_at_checked(2 * usize::from(count)) else {
                continue;
            };
            if bits & 15 == 0 && first <= last && last < 64 {
                let coefficients = (u64::MAX >> (63 - last)) & (u64::MAX << first);
                for (component, refined) in self.frame.components.iter().zip(&mut refined) {
                    if ids.chunks_exact(2).any(|id| id[0] == component.id) {
                        *refined |= coefficients;
                    }
                }
            }
        }
        refined.iter().all(|refined| *refined == u64::MAX)
    }

    fn bodies<'a>(&self, kind: u8, file: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let of_kind = self.segments.iter().filter(move |segment| segment.kind == kind);
        of_kind.map(|segment| &file[segment.body.clone()])
    }
}

impl Frame {
    fn parse(kind: u8, body: &[u8]) -> Result<Self, Fault> {
        let broken = |found: String| Err(Fault::Broken(format!("a frame {found}")));
        if kind > 0xc2 {
            return broken(format!("of the process SOF{}, which is not supported", kind & 15));
        }
        let Some((&[precision, a, b, c, d, count], components)) = body.split_first_chunk() else {
            return broken("that is too short".into());
        };
        let (height, width) = (u16::from_be_bytes([a, b]).into(), u16::from_be_bytes([c, d]).into());
        let component = |&[id, sampling, table]: &[u8; 3]| Component {
            id,
            sampling: [usize::from(sampling >> 4), usize::from(sampling & 15)],
            table: table.into(),
        };
        let components: Vec<Component> = components.as_chunks().0.iter().map(component).collect();
        let is_sound =
            |component: &Component| component.sampling.iter().all(|blocks| (1..=4).contains(blocks));
        if precision != 8 || width == 0 || height == 0 {
            return broken(format!("of {width}x{height} pixels of {precision} bits"));
        }
        let count = usize::from(count);
        if !(1..=4).contains(&count) || components.len() != count || !components.iter().all(is_sound) {
            return broken("with unsound components".into());
        }
        Ok(Self { is_progressive: kind == 0xc2, width, height, components })
    }

    /// Largest sampling of all components, across and down.
    pub(super) fn max_sampling(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.components.iter().map(|component| component.sampling[axis]).max().unwrap_or(1))
    }

    /// Blocks of a component, across and down, including the blocks that only fill the last MCUs.
    pub(super) fn blocks(&self, component: &Component) -> [usize; 2] {
        let (size, max) = ([self.width as usize, self.height as usize], self.max_sampling());
        [0, 1].map(|axis| size[axis].div_ceil(8 * max[axis]) * component.sampling[axis])
    }
}

/// The next marker from `at` on, and its offset; `None` at the end of the file. `FF 00` and fill bytes are no markers.
fn next_marker(file: &[u8], mut at: usize) -> Option<(u8, usize)> {
    loop {
        at += file.get(at..)?.iter().position(|byte| *byte == 0xff)?;
        match file.get(at + 1)? {
            0 => at += 2,
            0xff => at += 1,
            kind => return Some((*kind, at)),
        }
    }
}
