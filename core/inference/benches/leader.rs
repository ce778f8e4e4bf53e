//! Events per second of the decision state machine, one core.
//! Run: `cargo bench -p headwater-inference --bench leader --profile release`; the target is 1,000,000 elements/s.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use headwater_inference::leader::{
    Action, DeviceAnswer, Event, Exits, Generation, Leader, LeaderConfig, Micros, Now,
};
use headwater_inference::manifest::{Aggregation, Configuration};
use headwater_inference::policy::{ExitPolicy, ExitThreshold, Policy, Threshold};
use headwater_inference::sections::ScoresExit;
use headwater_protocol::{Exit, NetworkId, PolicyId, SampleId, Slot};

const SLOTS: usize = 6;
const CLASSES: usize = 10;
/// Bytes of a map: 8 filters of 16x16 bits.
const PACKED: usize = 256;

/// The wall clock stands still: while no device has told its numbering, ids are not compared with the time.
fn at(since_start: Micros) -> Now {
    Now { since_start, wall_ms: 1_782_864_000_000 }
}

fn leader() -> Leader {
    let local = ExitPolicy {
        threshold: Threshold::One(ExitThreshold::new(0.5).expect("in range")),
        ..ExitPolicy::default()
    };
    let config = LeaderConfig {
        network: NetworkId([1; 32]),
        policy_id: PolicyId([2; 8]),
        policy: Policy::default().with(Exit::LOCAL, local),
        labels: (0..CLASSES).map(|class| format!("class {class}")).collect(),
        class_prior: vec![0.1; CLASSES],
        slots: SLOTS,
        configuration: Configuration::C,
        edges: Vec::new(),
        score_bytes: 40,
        packed_bytes: PACKED,
        cloud_map_bytes: PACKED,
        max_open_samples: 1024,
    };
    let exit = ScoresExit::masked(Aggregation::Ap, SLOTS, CLASSES).expect("a masked mean needs no section");
    let mut leader = Leader::new(config, Exits { local: Some(exit), edge: None });
    for slot in Slot::first(SLOTS) {
        leader.handle(at(Micros(0)), Generation::Current, Event::DeviceUp { slot }, &mut Vec::new());
    }
    leader
}

/// Handles the messages of one sample: six summaries; if the local exit is unsure, also six feature maps and the cloud's answer.
fn sample(leader: &mut Leader, sample: SampleId, scores: &[f32], bits: &[u8], actions: &mut Vec<Action>) {
    let now = at(Micros(sample.0 * 1000));
    actions.clear();
    for slot in Slot::first(SLOTS) {
        leader.handle(
            now,
            Generation::Current,
            Event::DeviceAnswer {
                slot,
                sample,
                age_ms: 0,
                late: false,
                answer: DeviceAnswer::Summary(scores),
                frame: None,
            },
            actions,
        );
    }
    if matches!(actions.last(), Some(Action::Request { .. })) {
        for slot in Slot::first(SLOTS) {
            leader.handle(
                now,
                Generation::Current,
                Event::Features { slot, sample, late: false, bits, body_bytes: PACKED as u64 },
                actions,
            );
        }
        leader.handle(now, Generation::Current, Event::CloudAnswer { sample, logits: scores }, actions);
    }
    assert!(matches!(actions.last(), Some(Action::Decide(_))), "every sample is decided");
}

fn events(c: &mut Criterion) {
    let mut sure = [0.0; CLASSES];
    sure[3] = 20.0;
    let unsure = [0.0; CLASSES];
    let bits = [0x5a; PACKED];
    let mut group = c.benchmark_group("leader/events");
    for (name, scores, per_sample) in [("leaves_locally", &sure, 6u64), ("asks_the_cloud", &unsure, 13)] {
        let (mut leader, mut id, mut actions) = (leader(), 0, Vec::new());
        group.throughput(Throughput::Elements(per_sample));
        group.bench_function(name, |b| {
            b.iter(|| {
                id += 1;
                sample(&mut leader, SampleId(id), scores, &bits, &mut actions);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, events);
criterion_main!(benches);
