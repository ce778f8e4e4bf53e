//! Every configuration from its spec to its bundle, on drawings: the run ends, engines agree with the trained network, and the
//! bundle has the trained network's logits at every exit for every presence pattern.

use std::path::Path;

use headwater_calibration::data::{Parts, Samples};
use headwater_calibration::evaluation::bundle_logits;
use headwater_calibration::part_logits::PartLogits;
use headwater_inference::bundle::Bundle;
use headwater_inference::engine::TractEngine;
use headwater_protocol::{Exit, SlotSet};
use headwater_samples::Part;
use headwater_spec::Spec;
use headwater_training::evaluation::evaluate;
use headwater_training::export::NoPackedForm;
use headwater_training::run::Finished;

use crate::program::{Trained, trained};

/// Tolerance of floats after up to three sections that sum in another order; relative for numbers above 1.
const TOLERANCE: f32 = 1e-3;
/// Number of samples of a comparison that may be outside the tolerance, for a feature bit at its threshold.
const AT_THRESHOLD: usize = 1;

const HEADER: &str = r#"
[network]
name = "small"
configuration = "LETTER"
labels = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]
[device]
count = COUNT
input = [3, 32, 32]
"#;
const BITS: &str = r#"
blocks = [{ kind = "convp", filters = 4, stride = 2 }]
head = { kind = "fc", binary = true }
"#;
const FLOATS: &str = r#"
blocks = [{ kind = "conv", filters = 4, stride = 2 }, { kind = "pool" }]
head = [
    { kind = "conv", filters = 6, norm = false, activation = "none" },
    { kind = "pool", activation = "relu" },
    { kind = "fc" },
]
"#;
const LOCAL: &str = "[local]\naggregation = \"HOW\"\n";
const CLOUD: &str = r#"
[cloud]
aggregation = "cc"
blocks = [{ kind = "conv", filters = 8, stride = 2 }, { kind = "fc" }]
"#;
const EDGE_BITS: &str = r#"
[edge]
aggregation = "cc"
blocks = [{ kind = "convp", filters = 6 }]
head = { kind = "fc", binary = true }
"#;
const EDGE_FLOATS: &str = r#"
[edge]
aggregation = "ap"
blocks = [{ kind = "conv", filters = 6, norm = false }]
head = { kind = "fc" }
"#;
const TWO: &str = "groups = [[0, 2, 4], [1, 3, 5]]\nfusion = \"HOW\"\n";

fn spec(letter: char, count: usize, rest: &[&str]) -> Spec {
    let text = HEADER.replace("LETTER", &letter.to_string()).replace("COUNT", &count.to_string());
    Spec::parse(Path::new("small.toml"), &(text + &rest.concat())).unwrap()
}

/// Results of a run of a spec.
struct Run {
    finished: Finished,
    bundle: Bundle,
}

/// Trains for a moment, exports, and compares the bundle with the trained network for every presence pattern.
#[track_caller]
fn check(spec: Spec, limit: usize, epochs: u32) -> Run {
    let parts = Parts::drawn(limit, 256, 64);
    let parts = if spec.network.slots() == 1 { parts.first_slot() } else { parts };
    let samples = Part::ALL.map(|part| parts.part(part, None, 2));
    let Trained { experiment, checkpoint, test, finished } = trained(spec, samples, (epochs, 32, 4.0));
    assert_eq!(finished.exported.parity.samples, 256);

    let bundle = Bundle::from_bytes(&finished.exported.bytes).unwrap();
    let exits = bundle.manifest().configuration.exits();
    assert!(finished.reports.test.every.iter().map(|(exit, _)| exit).eq(exits.iter().copied()));
    let patterns = every_presence_pattern(&test);
    let trained = evaluate(&experiment, &checkpoint.state, &patterns);
    let shipped = bundle_logits(&bundle, &TractEngine, &patterns).unwrap();
    compare(&trained, &shipped, patterns.len());
    Run { finished, bundle }
}

/// One sample for each presence pattern: sample `i` is seen by the slots whose bits are set in `i`, and sample 0 by none.
fn every_presence_pattern(samples: &Samples) -> Samples {
    let patterns: Vec<usize> = (0..1 << samples.slots).collect();
    let seen = patterns.iter().map(|pattern| SlotSet::from_bits(*pattern as u64)).collect();
    Samples { seen, groups: Vec::new(), part_indices: Vec::new(), ..samples.subset(&patterns) }
}

#[track_caller]
fn compare(trained: &PartLogits, shipped: &PartLogits, samples: usize) {
    let mut differing = vec![false; samples];
    let all = |logits: &PartLogits| {
        let exits = logits.exits.iter().map(|(_, logits)| logits.clone());
        logits.devices.iter().cloned().chain(exits).collect::<Vec<_>>()
    };
    let (trained, shipped) = (all(trained), all(shipped));
    assert_eq!(trained.len(), shipped.len());
    for (trained, shipped) in trained.iter().zip(&shipped) {
        assert!(trained.iter().any(|logit| *logit != 0.0));
        let rows = trained.chunks_exact(10).zip(shipped.chunks_exact(10));
        for (differing, (trained, shipped)) in differing.iter_mut().zip(rows) {
            let mut pairs = trained.iter().zip(shipped);
            *differing |= pairs.any(|(t, s)| (t - s).abs() > TOLERANCE * t.abs().max(1.0));
        }
    }
    assert!(differing.iter().filter(|differing| **differing).count() <= AT_THRESHOLD, "{differing:?}");
}

fn sections(run: &Run) -> Vec<&str> {
    run.bundle.manifest().sections.iter().map(|section| section.name.as_str()).collect()
}

#[test]
fn a_network_whose_devices_send_views_trains_and_exports_for_one_slot_and_for_six() {
    let run = check(spec('a', 6, &[CLOUD]), 96, 1);
    assert_eq!(sections(&run), ["cloud"]);
    assert_eq!(run.finished.exported.packed, Err(NoPackedForm::NoSection));
    assert_eq!(
        (run.finished.reports.test.share[Exit::CLOUD], run.finished.reports.test.body_bytes),
        (1.0, 3072.0)
    );
    check(spec('a', 1, &[&CLOUD.replace("cc", "mp")]), 96, 1);
}

#[test]
fn a_device_that_decides_alone_trains_and_exports_with_bits_and_with_floats() {
    let run = check(spec('b', 1, &[BITS, CLOUD]), 96, 1);
    assert_eq!(sections(&run), ["device-0", "cloud"]);
    assert!(run.finished.exported.packed.as_ref().unwrap().bits > 0);
    let run = check(spec('b', 1, &[FLOATS, CLOUD]), 96, 1);
    assert_eq!(run.finished.exported.packed, Err(NoPackedForm::NotBinary(0)));
    assert_eq!(run.finished.exported.report["parity_packed"]["none"], "block 0 is not a `convp` block");
}

#[test]
fn devices_that_send_floats_to_a_local_exit_and_the_cloud_train_and_export() {
    let run = check(spec('c', 6, &[FLOATS, &LOCAL.replace("HOW", "cc"), CLOUD]), 96, 1);
    assert_eq!(sections(&run)[6..], ["local", "cloud"]);
}

#[test]
fn a_device_an_edge_and_the_cloud_train_and_export_with_bits_and_with_floats() {
    let run = check(spec('d', 1, &[BITS, EDGE_BITS, CLOUD]), 96, 1);
    assert_eq!(sections(&run), ["device-0", "edge-0", "cloud"]);
    check(spec('d', 1, &[FLOATS, EDGE_FLOATS, CLOUD]), 96, 1);
}

#[test]
fn six_devices_and_one_edge_train_and_export() {
    let run = check(spec('e', 6, &[BITS, &LOCAL.replace("HOW", "mp"), EDGE_FLOATS, CLOUD]), 96, 1);
    assert_eq!(sections(&run)[6..], ["edge-0", "cloud"]);
}

#[test]
fn two_edges_with_the_devices_of_each_beat_guessing_at_every_exit() {
    let edges = [EDGE_BITS, &TWO.replace("HOW", "ap")].concat();
    let run = check(spec('f', 6, &[BITS, &LOCAL.replace("HOW", "ap"), &edges, CLOUD]), 800, 3);
    let every = &run.finished.reports.validation.every;
    assert!(every.iter().all(|(_, share)| *share > 0.3), "ten classes, guessing has a tenth: {every:?}");
    let lost = every[Exit::CLOUD] - run.finished.reports.validation.overall;
    assert!(lost <= 0.0051, "{:?}", run.finished.reports.validation);
}

#[test]
fn the_scores_of_two_edges_may_be_concatenated() {
    let edges = [EDGE_FLOATS, &TWO.replace("HOW", "cc")].concat();
    let run = check(spec('f', 6, &[BITS, &LOCAL.replace("HOW", "ap"), &edges, CLOUD]), 96, 1);
    assert_eq!(sections(&run)[6..], ["edge-0", "edge-1", "edge", "cloud"]);
}
