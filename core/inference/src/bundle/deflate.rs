//! Deflate, and inflate with a limit.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use super::BundleError;
use crate::manifest::SectionManifest;

/// Largest size of a section's ONNX without its parameters: graph, names, constants.
const MAX_GRAPH_BYTES: u64 = 1 << 20;

/// Largest size of ONNX per parameter: 4 bytes as `f32`, 4 for derived constants such as signs, and as much again in reserve.
const MAX_PARAMETER_BYTES: u64 = 16;

/// Largest ONNX of any section, in bytes.
const MAX_ONNX_BYTES: u64 = 1 << 30;

/// Largest ONNX of a section in bytes, by its number of parameters.
pub(super) fn max_onnx_bytes(section: &SectionManifest) -> u64 {
    section.parameters.saturating_mul(MAX_PARAMETER_BYTES).saturating_add(MAX_GRAPH_BYTES).min(MAX_ONNX_BYTES)
}

/// Deflates at the highest level; the same input gives the same bytes.
pub(super) fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.expect("writing to memory does not fail")
}

/// Inflates a member; an error if it inflates to more than `limit` bytes.
pub(super) fn inflate(member: &str, stored: &[u8], limit: u64) -> Result<Vec<u8>, BundleError> {
    let mut bytes = Vec::new();
    DeflateDecoder::new(stored)
        .take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| BundleError::refused(member, "a deflate stream", error))?;
    super::check_limit(&format!("{member}, inflated"), limit, bytes.len() as u64)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deflated_bytes_inflate_to_the_original() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| ((i * i) >> 7) as u8).collect();
        let stored = deflate(&bytes);
        assert_eq!(inflate("x", &stored, 10_000).unwrap(), bytes);
        assert_eq!(stored, deflate(&bytes));
    }

    #[test]
    fn a_zip_bomb_stops_at_the_limit() {
        let bomb = deflate(&vec![0; 10_000_000]);
        assert!(bomb.len() < 20_000);
        let error = inflate("cloud.onnx.deflate", &bomb, 1000).unwrap_err().to_string();
        assert!(error.contains("inflated: expected at most 1000 bytes, found 1001"), "{error}");
    }

    #[test]
    fn garbage_is_not_a_deflate_stream() {
        let error = inflate("cloud.onnx.deflate", &[0xff; 40], 1000).unwrap_err().to_string();
        assert!(error.contains("cloud.onnx.deflate: expected a deflate stream"), "{error}");
        let cut = &deflate(&[7; 5000])[..5];
        assert!(inflate("cloud.onnx.deflate", cut, 10_000).is_err());
    }
}
