//! Binary 3x3 convolution of many channels beside ONNX Runtime's float and 8-bit convolution, one thread:
//! `ORT_DYLIB_PATH="$(scripts/install/onnxruntime)" cargo bench --profile release -p headwater-inference --features ort --bench
//! binary_convolution`.
//!
//! Each layer keeps side and channels. The packed section runs the whole block: bits in, convolution, thresholds, bits out, and an exit to
//! one class, which takes about a hundredth of the time. ONNX Runtime runs the convolution only. Each round runs all engines; the table
//! has the medians of the rounds.
//!
//! The bound is the speed of the inner loop's instructions with everything in registers. It is measured in each round just before the
//! packed section, because the speed of a shared core changes. The ratio is taken within a round.

mod bounds;

use std::hint::black_box;
use std::time::{Duration, Instant};

use headwater_inference::testing::OnnxGraph;
use headwater_kernels::{
    Affine, BlockParts, CodePath, Convp, HeadParts, InputKind, Map, OwnedSection, Threshold, Window, write,
};
use ort::environment::Environment;
use ort::session::Session;
use ort::session::builder::GraphOptimizationLevel;
use ort::value::TensorRef;

/// Many short rounds: other load on a shared core changes within tenths of a second.
const ROUNDS: usize = 41;
const ROUND: Duration = Duration::from_millis(15);
const CONV: Window = Window { kernel: 3, stride: 1, pad: 1 };
const NO_POOL: Window = Window { kernel: 1, stride: 1, pad: 0 };

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
    write(InputKind::Bits, &[block], &head, block.shape.filters, |part| bytes.extend_from_slice(part))
        .expect("shapes that fit");
    bytes
}

fn float_convolution(map: Map) -> Vec<u8> {
    let mut graph = OnnxGraph::new(&[map.channels, map.height, map.width]);
    let mut weights = noise(usize::MAX).map(|byte| f32::from(byte) / 128.0 - 1.0);
    let shape = [map.channels, map.channels, 3, 3];
    let y = graph.conv("x", shape, &mut || weights.next().unwrap_or_default(), 1);
    graph.finish(&[&y])
}

/// The layer with `u8` values, `i8` weights and one scale, as ONNX Runtime's quantiser writes it.
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

/// Microseconds of one call: the mean over the calls of one round.
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

/// Measurements of one layer: medians of the rounds.
struct Measured {
    /// Microseconds of the packed section.
    packed: f64,
    /// Name and microseconds of the other engines.
    others: Vec<(&'static str, f64)>,
    /// Peak rate of the inner loop's instructions in 10^9 products a second, and the share of that rate that the packed section reaches.
    bound: Option<(f64, f64)>,
}

fn measure(map: Map, environment: Option<&Environment>) -> Measured {
    let mut section = OwnedSection::load(&packed(map), CodePath::best()).expect("a section");
    let bits: Vec<u8> = noise(section.plan().input_bytes()).collect();
    let shape = [1, map.channels, map.height, map.width];
    let (bytes, floats): (Vec<u8>, Vec<f32>) =
        noise(map.len()).map(|byte| (byte, if byte < 128 { -1.0 } else { 1.0 })).unzip();
    let mut sessions = Vec::new();
    if let Some(environment) = environment {
        let made = [float_convolution(map), byte_convolution(map)].map(|onnx| session(environment, &onnx));
        sessions.extend(made.map(|session| session.expect("ONNX Runtime takes the layer")));
    }
    let mut times = [const { Vec::new() }; 3];
    let (mut bounds, mut reached) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let bound = bounds::of_path();
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
    let [packed, others @ ..] = times;
    let others = ["float", "bytes"].into_iter().zip(others).filter(|(_, times)| !times.is_empty());
    Measured {
        packed: median(packed),
        others: others.map(|(name, times)| (name, median(times))).collect(),
        bound: (!bounds.is_empty()).then(|| (median(bounds), median(reached))),
    }
}

/// Products of a layer. Products with the padding count too, for every engine.
fn products(map: Map) -> f64 {
    (map.channels * map.channels * 9 * map.height * map.width) as f64
}

fn main() {
    // `cargo test --benches` starts this program too; there it need not measure.
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
    println!("path {}; bound: {}", CodePath::best().name(), bounds::NAMES[usize::from(bounds::is_wide())]);
    println!(
        "{:>8} {:>6}  {:>9} {:>8} {:>8} {:>9}   others: microseconds, times packed",
        "channels", "side", "packed us", "G/s", "bound", "of bound"
    );
    for channels in [64, 128, 256] {
        for side in [8, 16, 32] {
            let map = Map { channels, height: side, width: side };
            let Measured { packed, others, bound } = measure(map, environment.as_ref());
            print!("{channels:>8} {side:>6}  {packed:>9.1} {:>8.0}", products(map) / packed / 1e3);
            match bound {
                Some((bound, reached)) => print!(" {bound:>8.0} {:>8.0}%", 100.0 * reached),
                None => print!(" {:>8} {:>9}", "-", "-"),
            }
            for (name, time) in others {
                print!("   {name} {time:>8.1} {:>5.1}x", time / packed);
            }
            println!();
        }
    }
}
