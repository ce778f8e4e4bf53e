//! A deterministic tar file: the same members always give the same bytes.
//!
//! ```text
//! | header 512 B | bytes | zeros to 512 B | header | bytes | zeros | ... | 1024 zeros |
//! ```
//! A header holds name, size and checksum; the other fields are constant. The reader writes each header anew and compares.

use std::ops::Range;

use headwater_protocol::Slot;
use tar::Header;

use super::BundleError;

const BLOCK: usize = 512;
const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];
const NAME_FIELD: Range<usize> = 0..100;
const SIZE_FIELD: Range<usize> = 124..136;

/// Largest number of members that are read: three (ONNX, packed, contexts) for each section (a device and an edge for each slot, and three
/// of the tiers above), five JSON files and the weights.
const MAX_MEMBERS: usize = 3 * (2 * Slot::MAX + 3) + 6;

/// A member: its name and the position of its bytes in the file.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) range: Range<usize>,
}

impl Member {
    /// True for the ONNX of `section`, stored or deflated.
    pub(super) fn is_onnx_of(&self, section: &str) -> bool {
        matches!(self.name.strip_prefix(section), Some(".onnx" | ".onnx.deflate"))
    }

    pub(super) fn is_packed_of(&self, section: &str) -> bool {
        self.name.strip_prefix(section) == Some(".packed")
    }

    /// The section that this context table belongs to; `None` for a member that is no context table.
    pub(super) fn section_of_contexts(&self) -> Option<&str> {
        self.name.strip_suffix(".contexts")
    }

    pub(super) fn bytes_in<'a>(&self, file: &'a [u8]) -> &'a [u8] {
        &file[self.range.clone()]
    }
}

/// The tar file of these members. Each name has at most 99 ASCII bytes.
pub(super) fn write<'a>(members: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Vec<u8> {
    let mut file = Vec::new();
    for (name, bytes) in members {
        file.extend_from_slice(header(name, bytes.len() as u64).as_bytes());
        file.extend_from_slice(bytes);
        file.resize(file.len().next_multiple_of(BLOCK), 0);
    }
    file.extend_from_slice(&END);
    file
}

/// Reads the members of a file and checks every byte around them.
pub(super) fn read(file: &[u8]) -> Result<Vec<Member>, BundleError> {
    let mut members = Vec::new();
    let mut at = 0;
    loop {
        let after = || members.last().map_or_else(String::new, |m: &Member| format!(" after {}", m.name));
        let part = format!("header of member {}{}", members.len(), after());
        let Some(block) = file.get(at..at + BLOCK) else {
            return Err(truncated(&part, at + BLOCK, file));
        };
        if block[0] == 0 {
            check_end(file, at)?;
            return Ok(members);
        }
        if members.len() == MAX_MEMBERS {
            return Err(BundleError::refused("members", format!("at most {MAX_MEMBERS}"), "another one"));
        }
        let (name, size) = parse_header(block, &part)?;
        let expected = header(name, size);
        check_bytes(file, at, expected.as_bytes(), || format!("{part}, {}", name.escape_default()))?;

        let start = at + BLOCK;
        let end = usize::try_from(size).ok().and_then(|size| start.checked_add(size));
        let padded = end.and_then(|end| end.checked_next_multiple_of(BLOCK));
        let (Some(end), Some(padded)) = (end, padded.filter(|&padded| padded <= file.len())) else {
            return Err(truncated(name, start.saturating_add(size as usize), file));
        };
        check_bytes(file, end, &END[..padded - end], || format!("padding after {name}"))?;
        members.push(Member { name: name.to_owned(), range: start..end });
        at = padded;
    }
}

fn header(name: &str, size: u64) -> Header {
    let mut header = Header::new_ustar();
    let length = name.len().min(NAME_FIELD.len() - 1);
    header.as_mut_bytes()[..length].copy_from_slice(&name.as_bytes()[..length]);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(size);
    header.set_entry_type(tar::EntryType::Regular);
    header.set_cksum();
    header
}

fn parse_header<'a>(block: &'a [u8], part: &str) -> Result<(&'a str, u64), BundleError> {
    let field = |range: Range<usize>| block[range].split(|&byte| byte == 0).next().unwrap_or_default();
    let refused = |what: &str, expected: &str, field: &[u8]| {
        BundleError::refused(format!("altered {part}, {what}"), expected, field.escape_ascii())
    };
    let (name, size) = (field(NAME_FIELD), field(SIZE_FIELD));
    let ascii =
        std::str::from_utf8(name).ok().filter(|name| name.is_ascii() && name.len() < NAME_FIELD.len());
    let octal = std::str::from_utf8(size).ok().and_then(|digits| u64::from_str_radix(digits, 8).ok());
    let ascii = ascii.ok_or_else(|| refused("name", "a short ASCII name", name))?;
    Ok((ascii, octal.ok_or_else(|| refused("size", "octal digits", size))?))
}

fn check_end(file: &[u8], at: usize) -> Result<(), BundleError> {
    let part = || "end of the archive".to_owned();
    if file.len() < at + END.len() {
        return Err(truncated(&part(), at + END.len(), file));
    }
    check_bytes(file, at, &END, part)?;
    match file.len() - at - END.len() {
        0 => Ok(()),
        more => {
            let expected = format!("nothing after the end at byte {}", at + END.len());
            Err(BundleError::refused("members", expected, format_args!("{more} more bytes")))
        }
    }
}

/// Compares the file from `at` on with the expected bytes. The caller has checked that the file is long enough.
fn check_bytes(
    file: &[u8],
    at: usize,
    expected: &[u8],
    part: impl FnOnce() -> String,
) -> Result<(), BundleError> {
    match expected.iter().zip(&file[at..]).position(|(expected, found)| expected != found) {
        None => Ok(()),
        Some(i) => Err(BundleError::refused(
            format!("altered at byte {}, {}", at + i, part()),
            format!("{:#04x}", expected[i]),
            format_args!("{:#04x}", file[at + i]),
        )),
    }
}

fn truncated(member: &str, expected: usize, file: &[u8]) -> BundleError {
    BundleError::refused(
        format!("cut off in {member}"),
        format!("at least {expected} bytes in all"),
        file.len(),
    )
}
