//! The device section of DDNN (c) in each engine, one thread, side by side:
//! `cargo bench --profile release -p headwater-training --bench device_sections`. With `-- views` at the end of the command, the bench
//! measures the device sections of `one-camera` and `one-camera-200` instead.
//!
//! `ORT_DYLIB_PATH="$(scripts/install/onnxruntime)"` before the command adds ONNX Runtime.
//!
//! Each round runs every engine, so that a slow moment of the machine affects all of them; the table has the medians of the rounds.
//! Weights are untrained: no engine's time depends on them.

use std::borrow::Cow;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use headwater_inference::bundle::SectionBytes;
use headwater_inference::engine::{Engine, Input, OrtEngine, Outputs, PackedEngine, Section, TractEngine};
use headwater_spec::Spec;
use headwater_spec::manifest;
use headwater_training::export::packed::packed_section;
use headwater_training::export::{TrainedNetwork, onnx_sections};
use headwater_training::network::Network;

const PUBLISHED: &str = include_str!("../../networks/ddnn-c-published.toml");
/// Specs for views of 96x96 and 200x200, in `models/networks/`.
const VIEWS: [&str; 2] = ["one-camera", "one-camera-200"];
const ROUNDS: usize = 15;
/// Time for which each engine runs in each round.
const ROUND: Duration = Duration::from_millis(60);

fn spec(filters: usize, blocks: usize) -> Spec {
    let block = format!("{{ kind = \"convp\", filters = {filters} }}");
    let text = PUBLISHED.replace(
        "blocks = [{ kind = \"convp\", filters = 4 }]",
        &format!("blocks = [{}]", vec![block; blocks].join(", ")),
    );
    Spec::parse(Path::new("bench.toml"), &text).expect("the published spec with other blocks")
}

/// Median microseconds per view in each engine.
fn measure(spec: Spec, engines: &[&dyn Engine]) -> Vec<f64> {
    let layers = Network::new(spec);
    let state = layers.layout.initial(1);
    let network = TrainedNetwork { layers: &layers, state: &state };
    let spec = &layers.spec;
    let (view, classes) = (spec.network.view(), spec.network.classes());
    let manifest = manifest(spec, vec![1.0 / classes as f32; classes]);
    let onnx = onnx_sections(&network, &manifest).swap_remove(0);
    let packed = packed_section(&layers.devices[0], &network.trained(), view).expect("every block is binary");
    let bytes =
        SectionBytes { manifest: &manifest.sections[0], onnx: Cow::Borrowed(&onnx), packed: Some(&packed) };
    let mut sections: Vec<Box<dyn Section>> =
        engines.iter().map(|engine| engine.load(&bytes).expect("the section loads")).collect();
    let pixels: Vec<u8> = (0..view.iter().product::<usize>()).map(|i| (i * 31 % 256) as u8).collect();
    let mut times = vec![Vec::new(); engines.len()];
    let mut outputs = Outputs::default();
    for _ in 0..ROUNDS {
        for (section, times) in sections.iter_mut().zip(&mut times) {
            let (start, mut views) = (Instant::now(), 0u32);
            while start.elapsed() < ROUND {
                for _ in 0..16 {
                    section.run(1, Input::Pixels(black_box(&pixels)), &mut outputs).expect("it runs");
                }
                views += 16;
            }
            times.push(start.elapsed().as_secs_f64() * 1e6 / f64::from(views));
        }
    }
    times.into_iter().map(median).collect()
}

/// Prints a row of Markdown for each spec of `VIEWS`.
fn views(engines: &[&dyn Engine], path: &str) {
    println!("10 classes, microseconds a view; packed by {path}\n");
    let names = engines.iter().skip(1).map(|engine| engine.name());
    let columns: String = names.clone().map(|name| format!(" {name} | {name} / packed |")).collect();
    println!(
        "| spec | view | packed |{columns}\n| --- | --- | --- |{}",
        " --- | --- |".repeat(names.count())
    );
    let labels: Vec<String> = (0..10).map(|class| class.to_string()).collect();
    for name in VIEWS {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../networks").join(name).with_extension("toml");
        let spec = Spec::read_with_labels(&file, &labels).expect("a shipped spec");
        let [channels, height, width] = spec.network.view();
        let times = measure(spec, engines);
        print!("| {name} | {channels}x{height}x{width} | {:.1} |", times[0]);
        times[1..].iter().for_each(|time| print!(" {time:.1} | {:.1} |", time / times[0]));
        println!();
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    // `cargo test --benches` only checks that the bench compiles.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let packed = PackedEngine;
    let library = ["ORT_DYLIB_PATH", "HEADWATER_TEST_ONNXRUNTIME"].into_iter().find_map(std::env::var_os);
    let ort = OrtEngine::load_library(library.as_deref().map(Path::new));
    let mut engines: Vec<&dyn Engine> = vec![&packed, &TractEngine];
    match &ort {
        Ok(ort) => engines.push(ort),
        Err(reason) => println!("without ort: {reason}"),
    }
    if std::env::args().any(|argument| argument == "views") {
        return views(&engines, packed.path());
    }
    println!(
        "device section of DDNN (c), 3x32x32 view, 10 classes, microseconds a view; packed by {}",
        packed.path()
    );
    println!("filters  blocks    packed  (others: microseconds, times packed)");
    for (filters, blocks) in [(4, 1), (8, 1), (16, 1), (4, 2), (16, 2)] {
        let times = measure(spec(filters, blocks), &engines);
        print!("{filters:>7} {blocks:>7} {:>9.2}", times[0]);
        for (engine, time) in engines.iter().zip(&times).skip(1) {
            print!("  {} {time:>8.2} {:>5.1}x", engine.name(), time / times[0]);
        }
        println!();
    }
}
