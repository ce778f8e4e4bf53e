//! Training's account of a part equals, exit by exit, the account of a live group that decides the same samples.

use std::path::Path;

use headwater_calibration::account::{ExitCount, PartAccount};
use headwater_calibration::data::{Parts, Samples};
use headwater_calibration::evaluation::bundle_logits;
use headwater_calibration::part_logits::PartLogits;
use headwater_inference::bundle::Bundle;
use headwater_inference::engine::TractEngine;
use headwater_inference::leader::{
    Action, DeviceAnswer, Event, Exits, Generation, Leader, LeaderConfig, Micros, Now,
};
use headwater_inference::policy::{
    ExitPolicy, ExitRule, ExitThreshold, LearnedWeights, NoAnswer, Policy, Threshold, Weight,
};
use headwater_inference::sections::{CloudSection, DeviceSection};
use headwater_protocol::{Decision, Degraded, Exit, SampleId, Slot, SlotSet};
use headwater_samples::Part;
use headwater_spec::Spec;
use headwater_spec::manifest;
use headwater_training::evaluation::evaluate;
use headwater_training::experiment::{Experiment, RunInfo};
use headwater_training::export::{TrainedNetwork, bundle_writer};
use headwater_training::recipe::Recipe;

const SPEC: &str = r#"
[network]
name = "small"
configuration = "c"
labels = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]
[device]
count = 6
input = [3, 32, 32]
blocks = [{ kind = "convp", filters = 4, stride = 2 }]
head = { kind = "fc", binary = true }
[local]
aggregation = "ap"
[cloud]
aggregation = "cc"
blocks = [{ kind = "conv", filters = 8, stride = 2 }, { kind = "fc" }]
"#;

/// A group with one network: devices, leader and cloud, with the messages between them.
struct Group {
    devices: Vec<DeviceSection>,
    cloud: CloudSection,
    leader: Leader,
}

impl Group {
    fn new(bundle: &Bundle) -> Self {
        let manifest = bundle.manifest();
        let config = LeaderConfig::of(bundle, 16);
        let slots = || Slot::first(usize::from(manifest.slots));
        let mut group = Self {
            devices: slots().map(|slot| DeviceSection::load(bundle, slot, &TractEngine).unwrap()).collect(),
            cloud: CloudSection::load(bundle, &TractEngine).unwrap(),
            leader: Leader::new(config, Exits::load(bundle, &TractEngine).unwrap()),
        };
        slots().for_each(|slot| drop(group.handle(SampleId(0), Event::DeviceUp { slot })));
        group
    }

    /// Sample `n` is handled at second `n`, so windows do not overlap.
    fn handle(&mut self, sample: SampleId, event: Event<'_>) -> Vec<Action> {
        let since_start = Micros::from_ms(1000 * sample.0);
        let (now, mut actions) = (Now { since_start, wall_ms: 0 }, Vec::new());
        self.leader.handle(now, Generation::Current, event, &mut actions);
        actions
    }

    /// The decision of a sample in which every device answers in time.
    fn decide(&mut self, sample: SampleId, views: &[Option<&[u8]>]) -> Decision {
        let (age_ms, late) = (0, false);
        let mut features = Vec::new();
        let mut actions = Vec::new();
        for (slot, view) in Slot::first(views.len()).zip(views) {
            let output = view.map(|view| self.devices[slot.index()].run(view, 1).unwrap().remove(0));
            let event = match &output {
                Some(output) => Event::DeviceAnswer {
                    slot,
                    sample,
                    age_ms,
                    late,
                    answer: DeviceAnswer::Summary(&output.scores),
                    frame: None,
                },
                None => {
                    let answer = DeviceAnswer::NotInView;
                    Event::DeviceAnswer { slot, sample, age_ms, late, answer, frame: None }
                }
            };
            actions.extend(self.handle(sample, event));
            features.push(output.map(|output| output.features));
        }
        while !actions.is_empty() {
            let found = match actions.remove(0) {
                Action::Decide(decision) => return decision,
                Action::Open(_) => continue,
                Action::Request { slots, .. } => {
                    let send = |slot: Slot| {
                        let bits = features[slot.index()].as_deref().expect("a slot with a view is asked");
                        self.handle(
                            sample,
                            Event::Features { slot, sample, late, bits, body_bytes: bits.len() as u64 },
                        )
                    };
                    slots.iter().flat_map(send).collect::<Vec<_>>()
                }
                Action::AskCloud { features, presence, .. } => {
                    let logits = self.cloud.run(1, &features, &presence).unwrap();
                    self.handle(sample, Event::CloudAnswer { sample, logits: &logits })
                }
                other => panic!("{other:?}"),
            };
            actions.extend(found);
        }
        panic!("sample {sample} was not decided");
    }

    /// The account of the group's decisions on a part.
    fn account(&mut self, samples: &Samples) -> PartAccount {
        let exits = [Exit::LOCAL, Exit::CLOUD].map(|exit| (exit, ExitCount::default()));
        let mut account = PartAccount { exits: exits.into_iter().collect(), ..PartAccount::default() };
        for (sample, label) in samples.labels.iter().enumerate() {
            let views: Vec<_> = Slot::first(samples.slots).map(|slot| samples.view(sample, slot)).collect();
            let views: Vec<Option<&[u8]>> = views.iter().map(Option::as_deref).collect();
            let decision = self.decide(SampleId(1 + sample as u64), &views);
            let count = account.exits.get_or_insert_with(decision.exit, ExitCount::default);
            count.samples += 1;
            count.right += usize::from(decision.class == Some(*label));
            account.no_view += usize::from(decision.degraded.contains(&Degraded::NoView));
            let present = views.iter().flatten().count();
            account.views += present;
            account.unsure_views += if decision.exit == Exit::LOCAL { 0 } else { present };
        }
        account
    }
}

/// A part with many labels and every presence pattern; no slot sees sample 0.
fn part() -> Samples {
    let mut samples = Parts::drawn(128, 4, 4).part(Part::Train, None, 1);
    samples.seen = (0..samples.len() as u64).map(|pattern| SlotSet::from_bits(pattern % 64)).collect();
    samples
}

/// The policy with the median uncertainty at the exit `local` as that exit's threshold, so that samples leave at both exits.
fn with_threshold(mut policy: Policy, logits: &PartLogits, samples: &Samples) -> Policy {
    let seen = (0..samples.len()).filter(|sample| !samples.seen[*sample].is_empty());
    let uncertainty =
        |sample| policy.of(Exit::LOCAL).uncertainty(logits.input(Exit::LOCAL, sample, samples.seen[sample]));
    let mut uncertainties: Vec<f32> = seen.filter_map(uncertainty).collect();
    uncertainties.sort_by(f32::total_cmp);
    let middle = uncertainties.len() / 2;
    let threshold = f32::midpoint(uncertainties[middle], uncertainties[middle + 1]);
    policy.of_mut(Exit::LOCAL).threshold = Threshold::One(ExitThreshold::new(threshold).unwrap());
    policy
}

/// A policy with the rule `learned` at the first exit, with a weight for every input.
fn learned() -> Policy {
    let weight = |value| Weight::new(value).unwrap();
    let weights = LearnedWeights {
        bias: weight(-2.0),
        entropy: weight(1.5),
        margin: weight(1.0),
        present: weight(-0.25),
        disagreement: weight(2.0),
    };
    let local = ExitPolicy { rule: ExitRule::Learned, weights: Some(weights), ..ExitPolicy::default() };
    Policy::default().with(Exit::LOCAL, local)
}

#[test]
fn the_account_of_training_equals_the_live_account_exit_by_exit() {
    let samples = part();
    let spec = Spec::parse(Path::new("small.toml"), SPEC).unwrap();
    let experiment = Experiment::new(spec, Recipe::read(None).unwrap(), RunInfo::default()).unwrap();
    let state = experiment.network.layout.initial(1);
    let trained = evaluate(&experiment, &state, &samples);
    // The class of sample 0, which no slot sees, is the most frequent one.
    let mut class_prior = vec![0.05; 10];
    class_prior[usize::from(samples.labels[0])] = 0.55;

    for policy in [Policy::default(), learned()] {
        // Figures of a part count the class prior's answer to a sample that no device sees.
        let policy = Policy { no_answer: NoAnswer::ClassPrior, ..with_threshold(policy, &trained, &samples) };
        let network = TrainedNetwork { layers: &experiment.network, state: &state };
        let manifest = manifest(&experiment.network.spec, class_prior.clone());
        let writer = bundle_writer(&network, manifest, policy.clone());
        let bundle = Bundle::from_bytes(&writer.finish().unwrap()).unwrap();

        let live = Group::new(&bundle).account(&samples);
        assert!(live.exits.iter().all(|(_, count)| count.samples > 30 && count.right > 0), "{live:?}");
        assert_eq!(live.no_view, 2);
        let shipped = bundle_logits(&bundle, &TractEngine, &samples).unwrap();
        assert_eq!(PartAccount::of(&shipped, &samples, &class_prior, &policy), live);
        assert_eq!(PartAccount::of(&trained, &samples, &class_prior, &policy), live);
    }
}
