//! Time of each tier's section and exit for one sample of the shipped bundle:
//! `cargo bench --profile release -p headwater-inference --bench sections`.

use std::hint::black_box;
use std::path::Path;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use headwater_inference::bundle::Bundle;
use headwater_inference::engine::{Engine, TractEngine};
use headwater_inference::exit::ExitInput;
use headwater_inference::manifest::Aggregation;
use headwater_inference::policy::ExitPolicy;
use headwater_inference::sections::{CloudSection, DeviceSection, ScoresExit};
use headwater_protocol::{Slot, SourceSet};

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/shipped/fashion-6cam.hwb");

fn pixels(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 % 256) as u8).collect()
}

fn bundle(criterion: &mut Criterion) {
    let Ok(bytes) = std::fs::read(Path::new(SHIPPED)) else { return };
    let mut group = criterion.benchmark_group("bundle");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("verify", |bencher| bencher.iter(|| Bundle::from_bytes(black_box(&bytes)).unwrap()));
    group.finish();
}

fn sections(criterion: &mut Criterion) {
    let Ok(bundle) = Bundle::open(SHIPPED) else { return };
    let (manifest, engine) = (bundle.manifest(), TractEngine::new());
    let slots = usize::from(manifest.slots);
    let slot = Slot::first(1).next().expect("there is a first slot");

    let section = bundle.section("device-0").unwrap();
    criterion.bench_function("device/load", |bencher| {
        bencher.iter(|| engine.load(black_box(&section)).unwrap());
    });
    let mut device = DeviceSection::load(&bundle, slot, &engine).unwrap();
    let mut group = criterion.benchmark_group("device/run");
    for batch in [1, 8, 32] {
        let views = pixels(batch * manifest.preprocessing.view_bytes());
        group.throughput(Throughput::Elements(batch as u64));
        group.bench_with_input(BenchmarkId::from_parameter(batch), &batch, |bencher, &batch| {
            bencher.iter(|| device.run(black_box(&views), batch).unwrap());
        });
    }
    group.finish();

    let mut cloud = CloudSection::load(&bundle, &engine).unwrap();
    let mut group = criterion.benchmark_group("cloud/run");
    for batch in [1, 8, 32] {
        let features = pixels(batch * slots * manifest.features.packed_bytes());
        let presence = vec![true; batch * slots];
        group.throughput(Throughput::Elements(batch as u64));
        group.bench_with_input(BenchmarkId::from_parameter(batch), &batch, |bencher, &batch| {
            bencher.iter(|| cloud.run(batch, black_box(&features), &presence).unwrap());
        });
    }
    group.finish();
}

fn exits(criterion: &mut Criterion) {
    let scores: Vec<f32> = (0..60).map(|i| (i * 17 % 13) as f32 / 3.0).collect();
    let mut logits = [0.0; 10];
    let mut local = ScoresExit::masked(Aggregation::Ap, 6, 10).unwrap();
    criterion.bench_function("local/scores", |bencher| {
        bencher
            .iter(|| local.scores(black_box(&scores), SourceSet::from_bits(0b11_1011), &mut logits).unwrap());
    });
    let policy = ExitPolicy::default();
    let classes = [3, 3, 1, 3, 7];
    criterion.bench_function("exit/assess", |bencher| {
        bencher.iter(|| policy.assess(ExitInput::new(black_box(&logits), 5, black_box(classes))));
    });
}

criterion_group!(benches, bundle, sections, exits);
criterion_main!(benches);
