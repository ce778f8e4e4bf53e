//! Coefficients of a sequential JPEG (ITU-T T.81, annex F), which the decoder of pixels does not give. They show whether the scans are
//! whole, and give the frame at a reduced scale.

use image::{DynamicImage, GrayImage, RgbImage};

use super::Fault;
use super::huffman::{Bits, STANDARD_TABLES, Table};
use super::markers::{Component, Markers, kind};

/// Index in a block of each coefficient, in the order of the data (T.81, figure A.6).
const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7,
    14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39,
    46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// Coefficients of a block, row by row; the first is the DC coefficient (the mean).
type Block = [i32; 64];

/// A component, and the position of a block in it, across and down.
type Position = (usize, [usize; 2]);

/// State of a decoder between the segments.
struct Decoder<'a> {
    file: &'a [u8],
    markers: &'a Markers,
    /// Huffman tables by class (0 DC, 1 AC) and number.
    huffman: [[Option<Table>; 4]; 2],
    /// Quantization tables by number; factors in the order of the data.
    quantization: [[i32; 64]; 4],
    restart_interval: usize,
}

/// Reads every scan, and gives each block to `visit`. Returns the offset after the last scan.
fn decode(file: &[u8], markers: &Markers, visit: &mut impl FnMut(Position, &Block)) -> Result<usize, Fault> {
    let mut decoder = Decoder {
        file,
        markers,
        huffman: Default::default(),
        quantization: [[1; 64]; 4],
        restart_interval: 0,
    };
    decoder.add_huffman(STANDARD_TABLES)?;
    let mut missing: Vec<usize> = (0..markers.frame.components.len()).collect();
    let mut end = markers.end;
    for segment in &markers.segments {
        let body = &file[segment.body.clone()];
        match segment.kind {
            kind::HUFFMAN => decoder.add_huffman(body)?,
            kind::QUANTIZATION => decoder.add_quantization(body)?,
            kind::RESTART_INTERVAL => {
                let interval = body.first_chunk().map_or(0, |bytes| u16::from_be_bytes(*bytes));
                decoder.restart_interval = interval.into();
            }
            kind::SCAN => {
                let components = decoder.components(body)?;
                missing.retain(|index| components.iter().all(|(of_scan, _)| of_scan != index));
                end = segment.body.end + decoder.scan(&components, segment.body.end, visit)?;
            }
            _ => {}
        }
    }
    if missing.is_empty() { Ok(end) } else { Err(Fault::Cut) }
}

/// Refuses scans that end early, and data that is no code.
///
/// A download that stopped may have zeros up to the length of the file, and the zeros decode as pixels. So a file without an end marker
/// counts as cut if the scan needs some of the zeros at the end, but not all.
pub(super) fn check(file: &[u8], markers: &Markers) -> Result<(), Fault> {
    let whole = |markers: &Markers| decode(file, markers, &mut |_, _| {});
    let zeros = file[..markers.end].iter().rev().take_while(|byte| **byte == 0).count();
    if markers.is_ended || zeros < 2 {
        return whole(markers).map(drop);
    }
    let without_zeros = Markers { end: markers.end - zeros + 1, ..markers.clone() };
    match whole(&without_zeros).or_else(|_| whole(markers)) {
        Ok(end) if end <= without_zeros.end || markers.end <= end + 1 => Ok(()),
        _ => Err(Fault::Cut),
    }
}

/// Decodes a frame of one or three components at `eighths` eighths of its size, from the low frequencies of each block.
pub(crate) fn reduced(file: &[u8], markers: &Markers, eighths: usize) -> Result<DynamicImage, Fault> {
    if !markers.is_ended {
        check(file, markers)?;
    }
    let frame = &markers.frame;
    let basis = basis(eighths);
    let widths: Vec<usize> =
        frame.components.iter().map(|component| frame.blocks(component)[0] * eighths).collect();
    let mut planes: Vec<Vec<u8>> = frame
        .components
        .iter()
        .map(|component| vec![0; frame.blocks(component).iter().product::<usize>() * eighths * eighths])
        .collect();
    decode(file, markers, &mut |(component, [across, down]), block| {
        let (plane, width) = (&mut planes[component], widths[component]);
        for y in 0..eighths {
            let row = (down * eighths + y) * width + across * eighths;
            for x in 0..eighths {
                let mut value = 128.5;
                for (v, along_y) in basis[y].iter().enumerate().take(eighths) {
                    for (u, along_x) in basis[x].iter().enumerate().take(eighths) {
                        value += block[8 * v + u] as f32 * along_y * along_x;
                    }
                }
                // The cast to `u8` saturates.
                plane[row + x] = value as u8;
            }
        }
    })?;
    let size = [frame.width, frame.height].map(|side| (side as usize * eighths).div_ceil(8));
    let max = frame.max_sampling();
    let sample = |component: usize, x: usize, y: usize| {
        let [across, down] = frame.components[component].sampling;
        planes[component][(y * down / max[1]) * widths[component] + x * across / max[0]]
    };
    let [width, height] = size.map(|side| side as u32);
    Ok(if frame.components.len() == 1 {
        DynamicImage::from(GrayImage::from_fn(width, height, |x, y| {
            image::Luma([sample(0, x as usize, y as usize)])
        }))
    } else {
        let is_rgb = markers.is_rgb(file);
        DynamicImage::from(RgbImage::from_fn(width, height, |x, y| {
            let samples = [0, 1, 2].map(|component| sample(component, x as usize, y as usize));
            image::Rgb(if is_rgb { samples } else { rgb(samples) })
        }))
    })
}

/// Red, green and blue of luma and chroma (JFIF 1.02).
fn rgb([luma, blue, red]: [u8; 3]) -> [u8; 3] {
    let [luma, blue, red] = [f32::from(luma) + 0.5, f32::from(blue) - 128.0, f32::from(red) - 128.0];
    [luma + 1.402 * red, luma - 0.344_136 * blue - 0.714_136 * red, luma + 1.772 * blue]
        .map(|value| value as u8)
}

/// For each of `points` samples along a side: the factor of each frequency below `points` (T.81, A.3.3).
fn basis(points: usize) -> [[f32; 4]; 4] {
    let mut basis = [[0.0; 4]; 4];
    for (x, factors) in basis.iter_mut().enumerate() {
        for (u, factor) in factors.iter_mut().enumerate() {
            let angle = (2 * x + 1) as f32 * u as f32 * std::f32::consts::PI / (2 * points) as f32;
            *factor = if u == 0 { 0.125_f32.sqrt() } else { 0.5 * angle.cos() };
        }
    }
    basis
}

impl Decoder<'_> {
    fn add_huffman(&mut self, mut body: &[u8]) -> Result<(), Fault> {
        while !body.is_empty() {
            let ([class, number], table, rest) = Table::split_first(body)?;
            let place = self.huffman.get_mut(class).and_then(|tables| tables.get_mut(number));
            *place.ok_or_else(|| Fault::Broken(format!("Huffman table {class}, {number}")))? = Some(table);
            body = rest;
        }
        Ok(())
    }

    fn add_quantization(&mut self, mut body: &[u8]) -> Result<(), Fault> {
        let broken = || Fault::Broken("an unsound quantization table".into());
        while let Some((&which, rest)) = body.split_first() {
            let value_bytes = if which >> 4 == 0 { 1 } else { 2 };
            let table = self.quantization.get_mut(usize::from(which & 15)).ok_or_else(broken)?;
            let (values, rest) = rest.split_at_checked(64 * value_bytes).ok_or_else(broken)?;
            for (place, value) in table.iter_mut().zip(values.chunks_exact(value_bytes)) {
                *place = value.iter().fold(0, |value, byte| value << 8 | i32::from(*byte));
            }
            body = rest;
        }
        Ok(())
    }

    /// Components of a scan, each with the numbers of its tables.
    fn components(&self, head: &[u8]) -> Result<Vec<(usize, [usize; 2])>, Fault> {
        let broken = || Fault::Broken("a scan with unsound components".into());
        let (&count, rest) = head.split_first().ok_or_else(broken)?;
        let (pairs, _) = rest.split_at_checked(2 * usize::from(count)).ok_or_else(broken)?;
        let component = |&[id, tables]: &[u8; 2]| {
            let of_frame = self.markers.frame.components.iter().position(|component| component.id == id)?;
            Some((of_frame, [usize::from(tables >> 4), usize::from(tables & 15)]))
        };
        let components: Option<Vec<_>> = pairs.as_chunks().0.iter().map(component).collect();
        components.filter(|components| (1..=4).contains(&components.len())).ok_or_else(broken)
    }

    /// Reads a scan whose data begins at `start`. Returns the number of its bytes.
    fn scan(
        &self,
        components: &[(usize, [usize; 2])],
        start: usize,
        visit: &mut impl FnMut(Position, &Block),
    ) -> Result<usize, Fault> {
        let frame = &self.markers.frame;
        let max = frame.max_sampling();
        let size = [frame.width as usize, frame.height as usize];
        // A scan of one component has MCUs of one block, and no blocks that only fill MCUs.
        let alone = components.len() == 1;
        let sampling = |component: &Component| if alone { [1, 1] } else { component.sampling };
        let mcus = [0, 1].map(|axis| match components {
            [(component, _)] => {
                (size[axis] * frame.components[*component].sampling[axis]).div_ceil(8 * max[axis])
            }
            _ => size[axis].div_ceil(8 * max[axis]),
        });
        let mut bits = Bits::new(&self.file[start..self.markers.end.max(start)]);
        let mut means = [0; 4];
        for mcu in 0..mcus[0] * mcus[1] {
            if self.restart_interval > 0 && mcu > 0 && mcu % self.restart_interval == 0 {
                bits.restart()?;
                means = [0; 4];
            }
            let corner = [mcu % mcus[0], mcu / mcus[0]];
            for (index, tables) in components {
                let component = &frame.components[*index];
                let [across, down] = sampling(component);
                for block in 0..across * down {
                    let position = [corner[0] * across + block % across, corner[1] * down + block / across];
                    let decoded = self.block(component, *tables, &mut means[*index], &mut bits)?;
                    visit((*index, position), &decoded);
                }
            }
        }
        Ok(bits.used_bytes())
    }

    fn block(
        &self,
        component: &Component,
        [dc, ac]: [usize; 2],
        mean: &mut i32,
        bits: &mut Bits<'_>,
    ) -> Result<Block, Fault> {
        let table = |class: usize, number: usize| {
            let table = self.huffman[class].get(number).and_then(Option::as_ref);
            table.ok_or_else(|| Fault::Broken(format!("no Huffman table {class}, {number}")))
        };
        let (dc, ac) = (table(0, dc)?, table(1, ac)?);
        let factors = self.quantization.get(component.table);
        let factors = factors.ok_or_else(|| Fault::Broken("no quantization table".into()))?;
        let mut block = [0; 64];
        let size = dc.symbol(bits)?;
        if size > 15 {
            return Err(Fault::Broken("a mean of too many bits".into()));
        }
        *mean = mean.wrapping_add(bits.number(size)?);
        block[0] = mean.wrapping_mul(factors[0]);
        let mut at = 1;
        while at < 64 {
            let symbol = ac.symbol(bits)?;
            let (zeros, size) = (usize::from(symbol >> 4), symbol & 15);
            if size == 0 && zeros < 15 {
                break;
            }
            at += zeros;
            if at > 63 {
                return Err(Fault::Broken("a coefficient past the end of its block".into()));
            }
            block[usize::from(ZIGZAG[at])] = bits.number(size)?.wrapping_mul(factors[at]);
            at += 1;
        }
        Ok(block)
    }
}
