//! `.npy`: a header with type, order and shape, then the values of one array.
//!
//! ```text
//!  0               6      8        10 (version 1) or 12 (2, 3)
//! +---------------+------+--------+--------------------------------------------------------------+------ ... --+
//! | 93 N U M P Y  | 1 0  | length | {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  | values      |
//! +---------------+------+--------+--------------------------------------------------------------+------ ... --+
//! ```
//! The length counts the bytes of the text. The length is a little-endian u16 in version 1 and a u32 in versions 2 and 3. The first letter
//! of `descr` is the order of the bytes of a value: `<` little-endian, `>` big-endian, `|` a single byte.

use serde::Deserialize;

use crate::error::Mismatch;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Longest header, in bytes; headers of `NumPy` are below 200.
const MAX_HEADER_BYTES: usize = 64 << 10;
/// Most axes, as in `NumPy`.
const MAX_AXES: usize = 64;

/// Types of values, by their names in headers without the order of bytes: a letter, and the bytes of a value.
const TYPES: [&str; 12] = ["b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"];

/// An array, row-major.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Array {
    /// Type of the values, one of [`TYPES`].
    pub(super) kind: &'static str,
    /// Sizes, outermost first.
    pub(crate) shape: Vec<usize>,
    /// The values, little-endian.
    data: Vec<u8>,
}

impl Array {
    /// Reads a whole `.npy`.
    ///
    /// # Errors
    /// [`Mismatch`]: no array, Fortran order, another type, or a number of values that differs from the shape.
    pub(crate) fn parse(mut file: Vec<u8>) -> Result<Self, Mismatch> {
        let start = text_range(&file)?;
        let text = std::str::from_utf8(&file[start.clone()])
            .map_err(|_| Mismatch::new("a header of text", "other bytes"))?;
        let Header { descr, fortran_order, shape } = Header::parse(text).ok_or_else(|| {
            let known =
                "a header {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } of a plain type";
            Mismatch::new(known, format!("{:?}", text.trim_end().chars().take(120).collect::<String>()))
        })?;
        let (order, name) = descr.split_at_checked(1).unwrap_or_default();
        let Some(kind) = TYPES.into_iter().find(|known| *known == name && "<>|=".contains(order)) else {
            return Err(Mismatch::new(format!("values of type {}", TYPES.join(", ")), format!("`{descr}`")));
        };
        let bytes = value_bytes(kind);
        if fortran_order {
            let (expected, found) =
                ("values in C order (save numpy.ascontiguousarray of it)", "Fortran order");
            return Err(Mismatch::new(expected, found));
        }
        let len = shape.iter().try_fold(bytes, |product, &size| product.checked_mul(size));
        file.drain(..start.end);
        let mut data = file;
        if len != Some(data.len()) {
            let expected = len.map_or("a shape that fits into memory".into(), |len| format!("{len} bytes"));
            return Err(Mismatch::new(
                format!("{expected} for the shape {shape:?}"),
                format!("{} bytes", data.len()),
            ));
        }
        if order == ">" {
            data.chunks_exact_mut(bytes).for_each(<[u8]>::reverse);
        }
        Ok(Self { kind, shape, data })
    }

    /// The values as integers.
    ///
    /// # Errors
    /// [`Mismatch`] for an array of floats, and for a number above the range of `int64`.
    pub(crate) fn integers(&self) -> Result<Vec<i64>, Mismatch> {
        if self.kind.starts_with('f') {
            return Err(Mismatch::new("integers", format!("values of type {}", self.kind)));
        }
        let is_signed = self.kind.starts_with('i');
        let integer = |value: &[u8]| {
            let is_negative = is_signed && value.last().is_some_and(|highest| *highest >= 0x80);
            let mut bytes = [if is_negative { 0xff } else { 0 }; 8];
            bytes[..value.len()].copy_from_slice(value);
            let integer = i64::from_le_bytes(bytes);
            if integer < 0 && !is_signed {
                return Err(Mismatch::new("integers below 2^63", u64::from_le_bytes(bytes).to_string()));
            }
            Ok(integer)
        };
        self.data.chunks_exact(value_bytes(self.kind)).map(integer).collect()
    }

    /// The values as pixels: bytes unchanged, floats from 0 to 1 as `round(255 x)`.
    ///
    /// # Errors
    /// [`Mismatch`] for other types, and naming the first value outside 0 to 1.
    pub(crate) fn pixels(self) -> Result<Vec<u8>, Mismatch> {
        match self.kind {
            "u1" => Ok(self.data),
            "f2" => to_pixels(values(&self.data, half)),
            "f4" => to_pixels(values(&self.data, |bytes| f32::from_le_bytes(bytes).into())),
            "f8" => to_pixels(values(&self.data, f64::from_le_bytes)),
            other => Err(Mismatch::new("pixels of type u1, f2, f4 or f8", format!("values of type {other}"))),
        }
    }
}

/// Bytes of a value of one of the [`TYPES`].
fn value_bytes(kind: &str) -> usize {
    usize::from(kind.as_bytes()[1] - b'0')
}

/// Pixels of values from 0 to 1: `round(255 x)`.
///
/// # Errors
/// [`Mismatch`] naming the first value outside 0 to 1.
pub(crate) fn to_pixels(values: Vec<f64>) -> Result<Vec<u8>, Mismatch> {
    let pixel = |(at, value): (usize, f64)| match value {
        0.0..=1.0 => Ok((value * 255.0).round() as u8),
        _ => Err(Mismatch::new("values from 0 to 1", format!("{value} at index {at}"))),
    };
    values.into_iter().enumerate().map(pixel).collect()
}

/// A number of 16 bits (IEEE 754): a sign, 5 bits of exponent, 10 bits of fraction.
fn half(bytes: [u8; 2]) -> f64 {
    let bits = u16::from_le_bytes(bytes);
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let size = match exponent {
        0 => fraction * 2_f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2_f64.powi(exponent - 25),
    };
    if bits >> 15 == 0 { size } else { -size }
}

/// Values of `N` bytes each.
pub(crate) fn values<const N: usize, T>(data: &[u8], value: impl Fn([u8; N]) -> T) -> Vec<T> {
    data.as_chunks::<N>().0.iter().map(|bytes| value(*bytes)).collect()
}

/// Position of the header's text.
fn text_range(file: &[u8]) -> Result<std::ops::Range<usize>, Mismatch> {
    let known = "a .npy array of version 1 to 3";
    let Some([major, minor, rest @ ..]) = file.strip_prefix(MAGIC) else {
        return Err(Mismatch::new(known, format!("a file that begins {:02x?}", &file[..file.len().min(8)])));
    };
    let (start, length) = match (major, minor, rest) {
        (1, 0, [a, b, ..]) => (10, usize::from(u16::from_le_bytes([*a, *b]))),
        (2 | 3, 0, [a, b, c, d, ..]) => (12, u32::from_le_bytes([*a, *b, *c, *d]) as usize),
        (1..=3, 0, _) => return Err(Mismatch::new("a whole header", format!("{} bytes", file.len()))),
        _ => return Err(Mismatch::new(known, format!("version {major}.{minor}"))),
    };
    if length > MAX_HEADER_BYTES {
        let expected = format!("a header of up to {MAX_HEADER_BYTES} bytes");
        return Err(Mismatch::new(expected, format!("one of {length}")));
    }
    if start + length > file.len() {
        return Err(Mismatch::new(
            format!("a header of {length} bytes"),
            format!("{} bytes in all", file.len()),
        ));
    }
    Ok(start..start + length)
}

/// Dictionary of a header.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    descr: String,
    fortran_order: bool,
    shape: Vec<usize>,
}

/// Python's forms of a dictionary, and JSON's forms. Python 2 wrote long integers as `3L`.
const JSON_FORMS: [(&str, &str); 9] = [
    ("'", "\""),
    ("True", "true"),
    ("False", "false"),
    ("L,", ","),
    ("L)", ")"),
    (",)", ")"),
    (",}", "}"),
    ("(", "["),
    (")", "]"),
];

impl Header {
    /// Parses the Python dictionary of a header as JSON. Each key must appear once, in any order.
    fn parse(text: &str) -> Option<Self> {
        let text = text.split(',').map(str::trim).collect::<Vec<_>>().join(",");
        let json = JSON_FORMS.iter().fold(text, |text, (python, json)| text.replace(python, json));
        let header: Self = serde_json::from_str(&json).ok()?;
        (header.shape.len() <= MAX_AXES).then_some(header)
    }
}
