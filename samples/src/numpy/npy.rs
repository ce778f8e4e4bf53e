//! `.npy`: one array behind a header that says its type, order and shape.
//!
//! ```text
//!  0               6      8        10 (version 1) or 12 (2, 3)
//! +---------------+------+--------+--------------------------------------------------------------+------ ... --+
//! | 93 N U M P Y  | 1 0  | length | {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  | values, LE  |
//! +---------------+------+--------+--------------------------------------------------------------+------ ... --+
//! ```
//! The length is that of the text, a little-endian u16 in version 1 and a u32 in 2 and 3.

use super::ArrayError;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Longest header that is read, in bytes; `NumPy`'s own are below 200.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Most axes of an array, as in `NumPy`.
const AXES_MAX: usize = 64;

/// Type of the values of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// `bool`, a byte each.
    Bool,
    /// `int8`.
    I8,
    /// `uint8`.
    U8,
    /// `int16`, little-endian as all that follow.
    I16,
    /// `int32`.
    I32,
    /// `int64`.
    I64,
    /// `float32`.
    F32,
    /// `float64`.
    F64,
}

/// Types as headers name them.
const ELEMENTS: [(&str, Element, usize); 8] = [
    ("|b1", Element::Bool, 1),
    ("|i1", Element::I8, 1),
    ("|u1", Element::U8, 1),
    ("<i2", Element::I16, 2),
    ("<i4", Element::I32, 4),
    ("<i8", Element::I64, 8),
    ("<f4", Element::F32, 4),
    ("<f8", Element::F64, 8),
];

/// An array, row-major.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// Type of the values.
    pub element: Element,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// The values, little-endian.
    data: Vec<u8>,
}

impl Array {
    /// Reads a whole `.npy`.
    ///
    /// # Errors
    /// [`ArrayError`]: not an array, one in Fortran order, of another type, or with more or fewer values than its shape says.
    pub fn parse(mut file: Vec<u8>) -> Result<Self, ArrayError> {
        let start = text_range(&file)?;
        let text = std::str::from_utf8(&file[start.clone()])
            .map_err(|_| ArrayError::new("a header of text", "other bytes"))?;
        let Header { descr, fortran_order, shape } = Header::parse(text).ok_or_else(|| {
            let known =
                "a header {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } of a plain type";
            ArrayError::new(known, format!("{:?}", text.trim_end().chars().take(120).collect::<String>()))
        })?;
        let Some((_, element, bytes)) = ELEMENTS.iter().find(|(name, ..)| *name == descr) else {
            let known = ELEMENTS.map(|(name, ..)| name).join(", ");
            return Err(ArrayError::new(format!("values of type {known}"), format!("`{descr}`")));
        };
        if fortran_order {
            let (expected, found) =
                ("values in C order (save numpy.ascontiguousarray of it)", "Fortran order");
            return Err(ArrayError::new(expected, found));
        }
        let len = shape.iter().try_fold(*bytes, |product, &size| product.checked_mul(size));
        let data = file.split_off(start.end);
        if len != Some(data.len()) {
            let expected = len.map_or("a shape that fits into memory".into(), |len| format!("{len} bytes"));
            return Err(ArrayError::new(
                format!("{expected} for the shape {shape:?}"),
                format!("{} bytes", data.len()),
            ));
        }
        Ok(Self { element: *element, shape, data })
    }

    /// Number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// The values as integers.
    ///
    /// # Errors
    /// [`ArrayError`] for an array of floats.
    pub fn integers(&self) -> Result<Vec<i64>, ArrayError> {
        let data = &self.data;
        Ok(match self.element {
            Element::Bool | Element::U8 => data.iter().map(|&value| value.into()).collect(),
            Element::I8 => data.iter().map(|&value| value.cast_signed().into()).collect(),
            Element::I16 => each(data, |bytes| i16::from_le_bytes(bytes).into()),
            Element::I32 => each(data, |bytes| i32::from_le_bytes(bytes).into()),
            Element::I64 => each(data, i64::from_le_bytes),
            Element::F32 | Element::F64 => {
                return Err(ArrayError::new("integers", format!("{:?}", self.element)));
            }
        })
    }

    /// The values as pixels: bytes as they are, floats from 0 to 1 as `round(255 x)`.
    ///
    /// # Errors
    /// [`ArrayError`] for other types, and naming the first value that is no number from 0 to 1.
    pub fn pixels(self) -> Result<Vec<u8>, ArrayError> {
        let values: Vec<f64> = match self.element {
            Element::U8 => return Ok(self.data),
            Element::F32 => each(&self.data, |bytes| f32::from_le_bytes(bytes).into()),
            Element::F64 => each(&self.data, f64::from_le_bytes),
            other => return Err(ArrayError::new("pixels of type U8, F32 or F64", format!("{other:?}"))),
        };
        values.into_iter().enumerate().map(|(at, value)| pixel(value, at)).collect()
    }
}

/// A pixel of a value from 0 to 1, the one at index `at`.
pub(crate) fn pixel(value: f64, at: usize) -> Result<u8, ArrayError> {
    if (0.0..=1.0).contains(&value) {
        return Ok((value * 255.0).round() as u8);
    }
    Err(ArrayError::new("values from 0 to 1", format!("{value} at index {at}")))
}

/// Values of as many bytes each.
pub(crate) fn each<const N: usize, T>(data: &[u8], value: impl Fn([u8; N]) -> T) -> Vec<T> {
    data.as_chunks::<N>().0.iter().map(|bytes| value(*bytes)).collect()
}

/// Where the text of the header lies.
fn text_range(file: &[u8]) -> Result<std::ops::Range<usize>, ArrayError> {
    let known = "a .npy array of version 1 to 3";
    let Some([major, minor, rest @ ..]) = file.strip_prefix(MAGIC) else {
        return Err(ArrayError::new(
            known,
            format!("a file that begins {:02x?}", &file[..file.len().min(8)]),
        ));
    };
    let (start, length) = match (major, minor, rest) {
        (1, 0, [a, b, ..]) => (10, usize::from(u16::from_le_bytes([*a, *b]))),
        (2 | 3, 0, [a, b, c, d, ..]) => (12, u32::from_le_bytes([*a, *b, *c, *d]) as usize),
        (1..=3, 0, _) => return Err(ArrayError::new("a whole header", format!("{} bytes", file.len()))),
        _ => return Err(ArrayError::new(known, format!("version {major}.{minor}"))),
    };
    if length > HEADER_BYTES_MAX {
        let expected = format!("a header of up to {HEADER_BYTES_MAX} bytes");
        return Err(ArrayError::new(expected, format!("one of {length}")));
    }
    if start + length > file.len() {
        return Err(ArrayError::new(
            format!("a header of {length} bytes"),
            format!("{} bytes in all", file.len()),
        ));
    }
    Ok(start..start + length)
}

struct Header {
    descr: String,
    fortran_order: bool,
    shape: Vec<usize>,
}

impl Header {
    /// Reads the Python dictionary of a header; each key once, in any order, and no other.
    fn parse(text: &str) -> Option<Self> {
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        let mut words = Words(text);
        words.take('{')?;
        while words.take('}').is_none() {
            let key = words.quoted()?;
            words.take(':')?;
            let first = match key {
                "descr" => descr.replace(words.quoted()?.to_owned()).is_none(),
                "fortran_order" => fortran_order.replace(words.boolean()?).is_none(),
                "shape" => shape.replace(words.tuple()?).is_none(),
                _ => false,
            };
            if !first || (words.take(',').is_none() && !words.0.trim_start().starts_with('}')) {
                return None;
            }
        }
        words.0.trim().is_empty().then_some(())?;
        Some(Self { descr: descr?, fortran_order: fortran_order?, shape: shape? })
    }
}

/// What is left of a Python literal.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn take(&mut self, mark: char) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(mark)?;
        Some(())
    }

    fn quoted(&mut self) -> Option<&'a str> {
        let text = self.0.trim_start();
        let quote = text.chars().next().filter(|mark| matches!(mark, '\'' | '"'))?;
        let (word, rest) = text[1..].split_once(quote)?;
        self.0 = rest;
        Some(word)
    }

    fn boolean(&mut self) -> Option<bool> {
        let text = self.0.trim_start();
        let (value, rest) = match text.strip_prefix("True") {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix("False")?),
        };
        self.0 = rest;
        Some(value)
    }

    fn tuple(&mut self) -> Option<Vec<usize>> {
        self.take('(')?;
        let (inside, rest) = self.0.split_once(')')?;
        self.0 = rest;
        let inside = inside.trim();
        let inside = inside.strip_suffix(',').unwrap_or(inside);
        if inside.is_empty() {
            return Some(Vec::new());
        }
        // Python 2 wrote long integers as `3L`.
        let size = |word: &str| word.trim().trim_end_matches('L').parse().ok();
        let sizes: Vec<usize> = inside.split(',').map(size).collect::<Option<_>>()?;
        (sizes.len() <= AXES_MAX).then_some(sizes)
    }
}
