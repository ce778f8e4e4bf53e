//! Time of a packed section on every code path of this processor, one thread:
//! `cargo bench --profile release -p headwater-kernels --features std --bench section`.
//!
//! After `--`, the first word selects the rows and the second word the code paths whose names contain the word. `--runs=N` makes N runs
//! of each row on each code path and measures nothing, for programs that count instructions.
//!
//! Each of 15 rounds runs every code path for 30 ms; the table shows the median of the rounds, in microseconds a view. Weights are random;
//! the time does not depend on them. For a comparison with other engines see the bench `device_sections` of `headwater-training`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use headwater_kernels::{
    Affine, BlockParts, CodePath, Convp, HeadParts, InputKind, Map, OwnedSection, Threshold, Window, write,
};

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(30);
const CLASSES: usize = 10;
const WINDOW: Window = Window { kernel: 3, stride: 1, pad: 1 };
/// The first convolution over a view of a real size.
const STRIDED: Window = Window { kernel: 5, stride: 2, pad: 2 };

fn bits(count: usize, seed: u64) -> Vec<bool> {
    let mut state = seed;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 63 == 1
        })
        .collect()
}

/// A section with one block for each number in `filters`, the first with the convolution `first`.
fn section(kind: InputKind, input: Map, filters: &[usize], first: Window) -> Vec<u8> {
    let mut map = input;
    let windows = std::iter::once(first).chain(std::iter::repeat(WINDOW));
    let shapes: Vec<_> = filters
        .iter()
        .zip(windows)
        .map(|(&filters, conv)| {
            let pool = Window { stride: 2, ..WINDOW };
            let shape = Convp { input: map, filters, conv, pool };
            map = shape.output();
            shape
        })
        .collect();
    let weights: Vec<_> = shapes.iter().map(|shape| bits(shape.filters * shape.taps(), 1)).collect();
    let thresholds: Vec<_> =
        shapes.iter().map(|shape| vec![Threshold { from: 3, flipped: false }; shape.filters]).collect();
    let blocks: Vec<_> = shapes
        .iter()
        .zip(&weights)
        .zip(&thresholds)
        .map(|((&shape, weights), thresholds)| BlockParts { shape, weights, thresholds })
        .collect();
    let head = HeadParts {
        weights: &bits(CLASSES * map.len(), 2),
        classes: &[Affine { factor: 3, offset: 5 }; CLASSES],
        scale: 0.1,
    };
    let mut bytes = Vec::new();
    write(kind, &blocks, &head, map.channels, |part| bytes.extend_from_slice(part)).expect("shapes that fit");
    bytes
}

fn load(bytes: &[u8], path: CodePath) -> (OwnedSection, Vec<u8>) {
    let section = OwnedSection::load(bytes, path).expect("a section");
    let input = (0..section.plan().input_bytes()).map(|i| (i * 31 % 256) as u8).collect();
    (section, input)
}

/// Median time of one view on each code path, in microseconds.
fn measure(bytes: &[u8], paths: &[CodePath]) -> Vec<f64> {
    let (mut sections, inputs): (Vec<_>, Vec<_>) = paths.iter().map(|&path| load(bytes, path)).unzip();
    let input = &inputs[0];
    let mut times = vec![Vec::new(); paths.len()];
    for _ in 0..ROUNDS {
        for (section, times) in sections.iter_mut().zip(&mut times) {
            let (start, mut views) = (Instant::now(), 0u32);
            while start.elapsed() < ROUND {
                for _ in 0..8 {
                    black_box(section.run(black_box(input)));
                }
                views += 8;
            }
            times.push(start.elapsed().as_secs_f64() * 1e6 / f64::from(views));
        }
    }
    times
        .into_iter()
        .map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        })
        .collect()
}

fn main() {
    // `cargo test --benches` only checks that the program starts.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let runs: Option<u32> = std::env::args().find_map(|word| word.strip_prefix("--runs=")?.parse().ok());
    let selected: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_selected = |index: usize, name: &str| selected.get(index).is_none_or(|word| name.contains(word));
    let paths: Vec<CodePath> = CodePath::available().filter(|path| is_selected(1, path.name())).collect();
    if runs.is_none() {
        print!("{:<40}", "input, filters of the blocks");
        paths.iter().for_each(|path| print!("{:>10}", path.name()));
        println!();
    }
    let view = Map { channels: 3, height: 32, width: 32 };
    let digit = Map { channels: 1, height: 28, width: 28 };
    let wide = |channels| Map { channels, height: 16, width: 16 };
    let square = |side| Map { channels: 3, height: side, width: side };
    for (kind, view, filters, first) in [
        (InputKind::Pixels, view, &[4][..], WINDOW),
        (InputKind::Pixels, view, &[8], WINDOW),
        (InputKind::Pixels, view, &[16], WINDOW),
        (InputKind::Pixels, view, &[4, 4], WINDOW),
        (InputKind::Pixels, view, &[16, 16], WINDOW),
        (InputKind::Pixels, digit, &[24, 40], WINDOW),
        (InputKind::Pixels, square(96), &[16, 32], WINDOW),
        (InputKind::Pixels, square(96), &[32], STRIDED),
        (InputKind::Pixels, square(96), &[32, 64, 64], STRIDED),
        (InputKind::Pixels, square(200), &[32], STRIDED),
        (InputKind::Pixels, square(200), &[32, 64, 128, 128], STRIDED),
        (InputKind::Bits, wide(48), &[48], WINDOW),
        (InputKind::Bits, wide(128), &[128], WINDOW),
    ] {
        let Map { channels, height, width } = view;
        let name = format!("{kind:?} {channels}x{height}x{width}, {filters:?}");
        if !is_selected(0, &name) {
            continue;
        }
        if let Some(runs) = runs {
            for &path in &paths {
                let (mut section, input) = load(&section(kind, view, filters, first), path);
                (0..runs).for_each(|_| _ = black_box(section.run(black_box(&input))));
            }
            continue;
        }
        print!("{name:<40}");
        measure(&section(kind, view, filters, first), &paths).iter().for_each(|time| print!("{time:>10.2}"));
        println!();
    }
}
