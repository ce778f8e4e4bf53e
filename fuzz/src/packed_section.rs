//! Random bytes as a packed section: either refused, or run with equal results on every code path.
//!
//! Bytes that are shorter or longer than their header says are also run, padded with zeros or cut to that length. Otherwise only shapes
//! of the seeds would ever run.

#![no_main]

use headwater_kernels::{CodePath, OwnedSection, PackedError, Plan};
use libfuzzer_sys::fuzz_target;

/// Largest map in values, and largest block in words of 64 products, that is run here; property tests run larger ones.
const MAX_VALUES: usize = 1 << 14;
/// Largest section, in bytes, that is padded or cut to the length in its header.
const MAX_BYTES: usize = 1 << 16;

fuzz_target!(|bytes: &[u8]| {
    if let Err(PackedError::Length { expected, .. }) = Plan::read(bytes)
        && expected <= MAX_BYTES
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
    if largest.max() > Some(MAX_VALUES) {
        return;
    }
    let input: Vec<u8> = (0..plan.input_bytes()).map(|i| (i * 37 + bytes.len()) as u8).collect();
    let mut answers = CodePath::available().flat_map(|path| [path, path.low_memory()]).map(|path| {
        let mut section = OwnedSection::load(bytes, path).ok()?;
        let (scores, features) = section.run(&input);
        Some((scores.to_vec(), features.to_vec()))
    });
    let first = answers.next().expect("there is a portable path");
    assert!(answers.all(|answer| answer == first), "code paths differ");
}
