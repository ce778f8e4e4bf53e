//! Any bytes as a packed section: refused, or run the same on every path.
//!
//! Bytes of a wrong length are tried once more in the length that their header leads to: otherwise hardly any shape but those of the
//! seeds would ever be run.

#![no_main]

use headwater_kernels::{OwnedSection, PackedError, CodePath, Plan};
use libfuzzer_sys::fuzz_target;

/// Larger maps are run elsewhere; here they would only be slow.
const VALUES_MAX: usize = 1 << 14;
/// Longest section that is filled up.
const BYTES_MAX: usize = 1 << 16;

fuzz_target!(|bytes: &[u8]| {
    if let Err(PackedError::Length { expected, .. }) = Plan::read(bytes)
        && expected <= BYTES_MAX
    {
        let mut bytes = bytes.to_vec();
        bytes.resize(expected, 0);
        run(&bytes);
    }
    run(bytes);
});

fn run(bytes: &[u8]) {
    let Ok(plan) = Plan::read(bytes) else { return };
    let largest = plan.blocks().iter().map(|block| {
        let work = block.convolved().len() * block.taps();
        block.input.len().max(block.output().len()).max(work / 64)
    });
    if largest.max() > Some(VALUES_MAX) {
        return;
    }
    let input: Vec<u8> = (0..plan.input_bytes()).map(|i| (i * 37 + bytes.len()) as u8).collect();
    let mut answers = CodePath::available().flat_map(|path| [path, path.low_memory()]).map(|path| {
        let mut section = OwnedSection::load(bytes, path).ok()?;
        let (scores, features) = section.run(&input);
        Some((scores.to_vec(), features.to_vec()))
    });
    let first = answers.next().expect("there is a portable path");
    assert!(answers.all(|answer| answer == first), "paths differ");
}
