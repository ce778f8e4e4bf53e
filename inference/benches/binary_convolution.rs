//! Binary 3x3 convolution of many channels beside ONNX Runtime's float and 8-bit convolution, one thread:
//! `ORT_DYLIB_PATH="$(scripts/install-onnxruntime)" cargo bench --profile release -p headwater-inference --features ort --bench
//! binary_convolution`.
//!
//! Each layer keeps side and channels. The packed section is the whole block: bits in, convolution, thresholds, bits out, and an exit
//! to one class (a section has one; it takes about a hundredth of the time). ONNX Runtime does the convolution alone. Rounds go
//! through all engines in turn; the table has medians of the rounds.
//!
//! The bound is what the instructions of the inner loop do with everything in registers. It is measured in the same rounds, just before
//! the packed section, and each round has a ratio of its own, since a shared core is not the same for long.

use std::hint::black_box;
use std::time::{Duration, Instant};

use headwater_inference::testing::OnnxGraph;
use headwater_kernels::{
    Affine, BlockParts, Convp, HeadParts, Input, Map, Owned, Path, Threshold, Window, write,
};
use ort::environment::Environment;
use ort::session::Session;
use ort::session::builder::GraphOptimizationLevel;
use ort::value::TensorRef;

/// Many short rounds: what else runs on a shared core comes and goes within tenths of a second.
const ROUNDS: usize = 41;
const ROUND: Duration = Duration::from_millis(15);
const CONV: Window = Window { kernel: 3, stride: 1, pad: 1 };
const NO_POOL: Window = Window { kernel: 1, stride: 1, pad: 0 };

/// Numbers that look drawn.
fn noise(count: usize) -> impl Iterator<Item = u8> {
    (0..count as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
}

fn packed(map: Map) -> Vec<u8> {
    let shape = Convp { input: map, filters: map.channels, conv: CONV, pool: NO_POOL };
    let weights: Vec<bool> = noise(shape.filters * shape.taps()).map(|byte| byte < 128).collect();
    let thresholds = vec![Threshold { from: 3, flipped: false }; shape.filters];
    let block = BlockParts { shape, weights: &weights, thresholds: &thresholds };
    let exit: Vec<bool> = noise(map.len()).map(|byte| byte < 128).collect();
    let head = HeadParts { weights: &exit, classes: &[Affine { factor: 1, offset: 0 }], scale: 1.0 };
    let mut bytes = Vec::new();
    write(Input::Bits, &[block], &head, |part| bytes.extend_from_slice(part)).expect("shapes that fit");
    bytes
}

fn float_convolution(map: Map) -> Vec<u8> {
    let mut graph = OnnxGraph::new(&[map.channels, map.height, map.width]);
    let mut weights = noise(usize::MAX).map(|byte| f32::from(byte) / 128.0 - 1.0);
    let shape = [map.channels, map.channels, 3, 3];
    let y = graph.conv("x", shape, &mut || weights.next().unwrap_or_default(), 1);
    graph.finish(&[&y])
}

/// `u8` values, `i8` weights, one scale: what ONNX Runtime's quantiser makes of a network.
fn byte_convolution(map: Map) -> Vec<u8> {
    let mut graph = OnnxGraph::of_bytes(&[map.channels, map.height, map.width]);
    let shape = [map.channels, map.channels, 3, 3];
    let scale = graph.constant(&[], vec![0.02]);
    let zero = graph.constant_bytes(false, &[], vec![128]);
    let weights = graph.constant_bytes(true, &shape, noise(shape.iter().product()).collect());
    let weights_zero = graph.constant_bytes(true, &[], vec![0]);
    let inputs = ["x", &scale, &zero, &weights, &scale, &weights_zero, &scale, &zero];
    let y = graph.node("QLinearConv", &inputs, &[("pads", &[1; 4])]);
    graph.finish_bytes(&[&y])
}

fn session(environment: &Environment, onnx: &[u8]) -> ort::Result<Session> {
    Session::builder(environment)?
        .with_optimization_level(GraphOptimizationLevel::Level3)?
        .with_intra_threads(1)?
        .with_inter_threads(1)?
        .commit_from_memory(onnx)
}

/// Microseconds of one call, by rounds of calls that take a while.
fn timed(mut call: impl FnMut()) -> f64 {
    let (start, mut calls) = (Instant::now(), 0u32);
    while start.elapsed() < ROUND {
        call();
        calls += 1;
    }
    start.elapsed().as_secs_f64() * 1e6 / f64::from(calls)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What was measured of one layer: medians of the rounds.
struct Measured {
    /// Microseconds of each engine: packed, then ONNX Runtime in floats and in bytes.
    times: Vec<f64>,
    /// The bound, thousand million products a second, and the part of it that the packed section reaches.
    bound: Option<(f64, f64)>,
}

fn measure(map: Map, environment: Option<&Environment>) -> Measured {
    let mut section = Owned::load(&packed(map), Path::best()).expect("a section");
    let bits: Vec<u8> = noise(section.plan().input_bytes()).collect();
    let shape = [1, map.channels, map.height, map.width];
    let (bytes, floats): (Vec<u8>, Vec<f32>) =
        noise(map.len()).map(|byte| (byte, if byte < 128 { -1.0 } else { 1.0 })).unzip();
    let mut sessions = Vec::new();
    if let Some(environment) = environment {
        let made = [float_convolution(map), byte_convolution(map)].map(|onnx| session(environment, &onnx));
        sessions.extend(made.map(|session| session.expect("ONNX Runtime takes the layer")));
    }
    let mut times = vec![Vec::new(); 1 + sessions.len()];
    let (mut bounds, mut reached) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let bound = bounds::lookups();
        let time = timed(|| {
            black_box(section.run(black_box(&bits)));
        });
        times[0].push(time);
        if let Some(bound) = bound {
            bounds.push(bound);
            reached.push(products(map) / time / 1e3 / bound);
        }
        for (index, session) in sessions.iter_mut().enumerate() {
            times[index + 1].push(timed(|| {
                if index == 0 {
                    let input = TensorRef::from_array_view((&shape[..], &floats[..])).expect("a view");
                    black_box(session.run(ort::inputs![input]).expect("it runs"));
                } else {
                    let input = TensorRef::from_array_view((&shape[..], &bytes[..])).expect("a view");
                    black_box(session.run(ort::inputs![input]).expect("it runs"));
                }
            }));
        }
    }
    let bound = (!bounds.is_empty()).then(|| (median(bounds), median(reached)));
    Measured { times: times.into_iter().map(median).collect(), bound }
}

/// Products at the border count as if the map went on, for every engine alike.
fn products(map: Map) -> f64 {
    (map.channels * map.channels * 9 * map.height * map.width) as f64
}

fn main() {
    // `cargo test --benches` runs this too, and wants to know only that it would.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let environment = std::env::var_os("ORT_DYLIB_PATH").map(|library| {
        let builder = ort::init_from(library).expect("the library loads");
        builder.with_name("bench").with_telemetry(false).build().expect("it starts")
    });
    if environment.is_none() {
        println!("without ONNX Runtime: ORT_DYLIB_PATH is not set");
    }
    println!(
        "path {}; bound: lookups of 256 products in registers, nine instructions for three",
        Path::best().name()
    );
    println!(
        "counting words beside it, 64 products by xor, popcount and addition: {:.0} G products/s",
        bounds::words()
    );
    println!(
        "{:>8} {:>6}  {:>9} {:>8} {:>8} {:>9}   others: microseconds, times packed",
        "channels", "side", "packed us", "G/s", "bound", "of bound"
    );
    for channels in [64, 128, 256] {
        for side in [8, 16, 32] {
            let map = Map { channels, height: side, width: side };
            let Measured { times, bound } = measure(map, environment.as_ref());
            print!("{channels:>8} {side:>6}  {:>9.1} {:>8.0}", times[0], products(map) / times[0] / 1e3);
            match bound {
                Some((bound, reached)) => print!(" {bound:>8.0} {:>8.0}%", 100.0 * reached),
                None => print!(" {:>8} {:>9}", "-", "-"),
            }
            for (name, time) in ["float", "bytes"].iter().zip(&times[1..]) {
                print!("   {name} {time:>8.1} {:>5.1}x", time / times[0]);
            }
            println!();
        }
    }
}

/// What the instructions of the inner loop do at most, in registers: thousand million products a second.
mod bounds {
    use super::timed;
    use std::hint::black_box;

    /// Chains that do not wait for each other: more than an instruction's latency times how many start at once.
    const CHAINS: usize = 12;
    const STEPS: usize = 20_000;

    /// The bound of the kernel: three lookups of 256 products, added up, added to one sum, and their high halves to another; nine
    /// instructions.
    /// `None` where this bench has no such instructions.
    pub(super) fn lookups() -> Option<f64> {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the line above.
            #[expect(unsafe_code, reason = "calls a function with instructions that were detected")]
            return Some(rate(3 * 256 * x86::SUMS, || unsafe { x86::lookups() }));
        }
        None
    }

    /// The bound of counting words.
    pub(super) fn words() -> f64 {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("popcnt") {
            // SAFETY: the line above.
            #[expect(unsafe_code, reason = "calls a function with instructions that were detected")]
            return rate(64 * CHAINS, || unsafe { x86::words() });
        }
        rate(64 * CHAINS, count_words)
    }

    fn rate(products: usize, run: impl Fn()) -> f64 {
        (products * STEPS) as f64 / timed(run) / 1e3
    }

    #[inline(always)]
    fn count_words() {
        let mut sums: [u64; CHAINS] = black_box([1; CHAINS]);
        let weights: u64 = black_box(0x1234_5678_9abc_def0);
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum += u64::from((*sum ^ weights).count_ones());
            }
        }
        black_box(sums);
    }

    #[cfg(target_arch = "x86_64")]
    mod x86 {
        use super::{STEPS, black_box};
        use std::arch::x86_64::{
            __m256i, _mm256_add_epi8, _mm256_add_epi16, _mm256_and_si256, _mm256_set1_epi8,
            _mm256_shuffle_epi8, _mm256_srli_epi16,
        };

        /// Pairs of sums: as many as stay in registers, and that do not wait for each other.
        pub(super) const SUMS: usize = 4;

        #[target_feature(enable = "popcnt")]
        pub(super) fn words() {
            super::count_words();
        }

        /// What is looked up is the sums themselves, so that no step can be left out.
        #[target_feature(enable = "avx2")]
        pub(super) fn lookups() {
            let mut both: [__m256i; SUMS] = black_box([_mm256_set1_epi8(1); SUMS]);
            let mut second: [__m256i; SUMS] = black_box([_mm256_set1_epi8(2); SUMS]);
            let [a, b, c]: [__m256i; 3] = black_box([_mm256_set1_epi8(3); 3]);
            let low = _mm256_set1_epi8(0x0f);
            for _ in 0..STEPS {
                for i in 0..SUMS {
                    let sum =
                        _mm256_add_epi8(_mm256_shuffle_epi8(a, both[i]), _mm256_shuffle_epi8(b, second[i]));
                    let sum = _mm256_add_epi8(sum, _mm256_shuffle_epi8(c, both[(i + 1) % SUMS]));
                    both[i] = _mm256_add_epi16(both[i], sum);
                    second[i] =
                        _mm256_add_epi8(second[i], _mm256_and_si256(_mm256_srli_epi16::<4>(sum), low));
                }
            }
            black_box((both, second));
        }
    }
}
