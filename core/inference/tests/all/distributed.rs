//! The tiers together give the answers of the whole network, for every configuration, presence and order of messages.

use headwater_inference::bundle::Bundle;
use headwater_inference::edge::{Collector, CollectorConfig, EdgeAction, EdgeEvent};
use headwater_inference::engine::TractEngine;
use headwater_inference::exit::ExitInput;
use headwater_inference::leader::{
    Action, DeviceAnswer, EdgeAnswer, Event, Exits, Generation, Leader, LeaderConfig, Micros, Now,
};
use headwater_inference::manifest::{Aggregation, Configuration, FeatureEncoding};
use headwater_inference::policy::{
    ExitPolicy, ExitRule, ExitThreshold, LearnedWeights, Policy, Threshold, Weight,
};
use headwater_inference::sections::{CloudSection, DeviceSection, EdgeSection};
use headwater_inference::testing::TinyNetwork;
use headwater_inference::whole::Whole;
use headwater_protocol::{
    Decision, DeviceDecision, EdgeIndex, Exit, PolicyId, SampleId, ScoreEncoding, Slot, SlotPresence, SlotSet,
};
use proptest::prelude::*;

/// Behaviour of a slot in one sample.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SlotCase {
    Sees,
    NotInView,
    Silent,
    /// The slot's first message comes when the window is over.
    Late,
}

/// A message that was sent and not yet delivered.
#[derive(Clone, Debug)]
enum Sent {
    Input(Slot, Vec<u8>),
    Summary(Slot, Vec<f32>),
    NotInView(Slot),
    Decided(Slot, DeviceDecision),
    Features(Slot, Vec<u8>),
    Collect(SlotSet),
    EdgeAnswer(EdgeIndex, SlotSet, Vec<f32>, Vec<u8>),
    EdgeGone(EdgeIndex),
    CloudAnswer(Vec<f32>),
}

const SAMPLE: SampleId = SampleId(7);

/// All tiers of a network, with the messages between them.
struct Tiers {
    configuration: Configuration,
    policy: Policy,
    devices: Vec<DeviceSection>,
    edges: Vec<(Collector, EdgeSection)>,
    cloud: CloudSection,
    leader: Leader,
    views: Vec<Option<Vec<u8>>>,
    now: Micros,
    sent: Vec<Sent>,
    decisions: Vec<Decision>,
}

impl Tiers {
    fn new(bundle: &Bundle, cases: &[SlotCase], network: &TinyNetwork) -> Self {
        let (manifest, engine) = (bundle.manifest(), TractEngine::new());
        let slots = || Slot::first(usize::from(manifest.slots));
        let edges = manifest.edge.as_ref().map_or(0, |edge| edge.groups.len());
        let edge = |index| {
            let section = EdgeSection::load(bundle, index, &engine).unwrap();
            let config = CollectorConfig {
                slots: section.slots().to_vec(),
                packed_bytes: manifest.features.packed_bytes(),
                features_ms: bundle.policy().features_ms,
                max_open_samples: 16,
            };
            (Collector::new(config), section)
        };
        let policy = bundle.policy().clone();
        let config = LeaderConfig::of(bundle, 16);
        let mut tiers = Self {
            configuration: manifest.configuration,
            devices: slots().map(|slot| DeviceSection::load(bundle, slot, &engine).unwrap()).collect(),
            edges: (0..edges).map(edge).collect(),
            cloud: CloudSection::load(bundle, &engine).unwrap(),
            leader: Leader::new(config, Exits::load(bundle, &engine).unwrap()),
            views: cases
                .iter()
                .zip(0..)
                .map(|(case, number)| {
                    matches!(case, SlotCase::Sees | SlotCase::Late).then(|| network.view_of(number))
                })
                .collect(),
            policy,
            now: Micros::from_ms(1000),
            sent: Vec::new(),
            decisions: Vec::new(),
        };
        for slot in slots() {
            tiers.leader_event(Event::DeviceUp { slot });
        }
        for edge in EdgeIndex::first(edges) {
            tiers.leader_event(Event::EdgeUp { edge });
        }
        tiers
    }

    fn capture(&mut self, slot: Slot) {
        let Some(view) = self.views[slot.index()].clone() else {
            return self.sent.push(Sent::NotInView(slot));
        };
        let output = self.devices[slot.index()].run(&view, 1).unwrap().remove(0);
        if !self.configuration.has_device_section() {
            return self.sent.push(Sent::Input(slot, output.features));
        }
        if self.configuration.has(Exit::DEVICE) {
            let assessment = self.policy.of(Exit::DEVICE).assess(ExitInput::of_device(&output.scores));
            if assessment.leaves {
                let (class, confidence) = (assessment.class, assessment.confidence);
                let decision = DeviceDecision { class, confidence, policy: PolicyId([9; 8]) };
                return self.sent.push(Sent::Decided(slot, decision));
            }
            self.sent.push(Sent::Features(slot, output.features));
        }
        self.sent.push(Sent::Summary(slot, output.scores));
    }

    fn deliver(&mut self, message: &Sent) {
        let sample = SAMPLE;
        match message {
            Sent::Input(slot, pixels) => self.leader_event(answered(*slot, DeviceAnswer::Input(pixels))),
            Sent::Summary(slot, scores) => self.leader_event(answered(*slot, DeviceAnswer::Summary(scores))),
            Sent::NotInView(slot) => self.leader_event(answered(*slot, DeviceAnswer::NotInView)),
            Sent::Decided(slot, decision) => {
                self.leader_event(answered(*slot, DeviceAnswer::Decided(*decision)));
            }
            Sent::Features(slot, bits) => {
                self.leader_event(Event::Features {
                    slot: *slot,
                    sample,
                    late: false,
                    bits,
                    body_bytes: bits.len() as u64,
                });
                self.edge_event(EdgeEvent::Features { slot: *slot, sample, bits });
            }
            Sent::Collect(slots) => self.edge_event(EdgeEvent::Collect { sample, slots: *slots }),
            Sent::EdgeAnswer(edge, slots, scores, map) => {
                let (edge, slots, body_bytes) = (*edge, *slots, 0);
                self.leader_event(Event::EdgeAnswer {
                    edge,
                    sample,
                    answer: Some(EdgeAnswer { slots, scores, map, body_bytes }),
                });
            }
            Sent::EdgeGone(edge) => {
                self.leader_event(Event::EdgeAnswer { edge: *edge, sample, answer: None });
            }
            Sent::CloudAnswer(logits) => self.leader_event(Event::CloudAnswer { sample, logits }),
        }
    }

    fn leader_event(&mut self, event: Event<'_>) {
        let mut actions = Vec::new();
        let now = Now { since_start: self.now, wall_ms: 0 };
        self.leader.handle(now, Generation::Current, event, &mut actions);
        for action in actions {
            match action {
                Action::Request { slots, .. } => {
                    for slot in slots.iter() {
                        let view = self.views[slot.index()].clone().expect("only those that see are asked");
                        let output = self.devices[slot.index()].run(&view, 1).unwrap().remove(0);
                        self.sent.push(Sent::Features(slot, output.features));
                    }
                }
                Action::Collect { slots, .. } => self.sent.push(Sent::Collect(slots)),
                Action::AskCloud { features, presence, .. } => {
                    self.sent.push(Sent::CloudAnswer(self.cloud.run(1, &features, &presence).unwrap()));
                }
                Action::Decide(decision) => self.decisions.push(decision),
                Action::Open(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn edge_event(&mut self, event: EdgeEvent<'_>) {
        for (index, (collector, section)) in EdgeIndex::first(self.edges.len()).zip(&mut self.edges) {
            let mut actions = Vec::new();
            collector.handle(self.now, event, &mut actions);
            self.sent.extend(actions.into_iter().map(|action| match action {
                EdgeAction::Run(job) => {
                    let output = section.run(1, &job.features, &job.presence).unwrap().remove(0);
                    Sent::EdgeAnswer(index, job.slots, output.scores, output.features)
                }
                EdgeAction::Gone(_) => Sent::EdgeGone(index),
            }));
        }
    }

    /// Runs until no message is on its way and no timer is left. `order` chooses the next message.
    fn run(&mut self, cases: &[SlotCase], order: &mut impl FnMut(usize) -> usize) {
        let slots: Vec<Slot> = Slot::first(cases.len()).collect();
        for slot in
            slots.iter().filter(|slot| matches!(cases[slot.index()], SlotCase::Sees | SlotCase::NotInView))
        {
            self.capture(*slot);
        }
        let mut late: Vec<Slot> =
            slots.into_iter().filter(|slot| cases[slot.index()] == SlotCase::Late).collect();
        for _ in 0..1000 {
            if self.sent.is_empty() {
                let edges = self.edges.iter().filter_map(|(collector, _)| collector.next_timer());
                let Some(timer) = self.leader.next_timer().into_iter().chain(edges).min() else { return };
                self.now = self.now.max(timer);
                self.leader_event(Event::Tick);
                self.edge_event(EdgeEvent::Tick);
                std::mem::take(&mut late).into_iter().for_each(|slot| self.capture(slot));
            } else {
                let message = self.sent.swap_remove(order(self.sent.len()));
                self.deliver(&message);
            }
        }
        panic!("the sample does not end");
    }
}

fn answered(slot: Slot, answer: DeviceAnswer<'_>) -> Event<'_> {
    Event::DeviceAnswer { slot, sample: SAMPLE, age_ms: 0, late: false, answer, frame: None }
}

/// The rule `entropy`, or a rule `learned` that depends on every input.
fn any_rule() -> impl Strategy<Value = (ExitRule, Option<LearnedWeights>)> {
    let weights = [-2.0f32..2.0, -4.0..4.0, -4.0..4.0, -1.0..1.0, -4.0..4.0];
    let learned = weights.prop_map(|values| {
        let [bias, entropy, margin, present, disagreement] = values.map(|value| Weight::new(value).unwrap());
        let weights = LearnedWeights { bias, entropy, margin, present, disagreement };
        (ExitRule::Learned, Some(weights))
    });
    prop_oneof![Just((ExitRule::Entropy, None)), learned]
}

fn any_threshold_of(rule: ExitRule) -> impl Strategy<Value = f32> {
    // Entropies of these networks are near 1; learned uncertainties lie anywhere in `[0, 1]`.
    let least = if rule == ExitRule::Learned { 0.0f32 } else { 0.8 };
    prop_oneof![Just(0.0f32), Just(1.0), least..1.0]
}

fn any_exit() -> impl Strategy<Value = ExitPolicy> {
    let exit = |(rule, weights): (ExitRule, Option<LearnedWeights>)| {
        any_threshold_of(rule).prop_map(move |threshold| ExitPolicy {
            rule,
            weights,
            threshold: Threshold::One(ExitThreshold::new(threshold).unwrap()),
            ..ExitPolicy::default()
        })
    };
    any_rule().prop_flat_map(exit)
}

fn any_network() -> impl Strategy<Value = TinyNetwork> {
    use Configuration::{A, B, C, D, E, F};
    let aggregation = || prop::sample::select(vec![Aggregation::Mp, Aggregation::Ap, Aggregation::Cc]);
    let joins = (aggregation(), [aggregation(), aggregation()], aggregation());
    let configuration = prop::sample::select(vec![A, B, C, D, E, F]);
    let exits = [any_exit(), any_exit(), any_exit(), any_exit()];
    let levels = prop::sample::select(ScoreEncoding::ALL.to_vec());
    (configuration, joins, exits, (any::<bool>(), levels), 0..4u64).prop_map(
        |(configuration, (join, edge, cloud), mut exits, (floats, levels), seed)| {
            // The last exit takes every sample; its rule only gives the confidence.
            exits[3].threshold = Policy::default().of(Exit::CLOUD).threshold.clone();
            let exits = Exit::FIRST.into_iter().zip(exits).collect();
            let policy = Policy { exits, ..Policy::default() };
            let network = TinyNetwork::of(configuration);
            let encoding = match network.encoding {
                FeatureEncoding::Bits if floats => FeatureEncoding::F32,
                encoding => encoding,
            };
            let scores = if configuration == A { ScoreEncoding::F32 } else { levels };
            TinyNetwork { local: join, edge, cloud, encoding, scores, policy, seed, ..network }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn together_the_tiers_answer_as_the_network_in_one_piece(
        network in any_network(),
        cases in prop::collection::vec(
            prop::sample::select(vec![SlotCase::Sees, SlotCase::Sees, SlotCase::NotInView, SlotCase::Silent, SlotCase::Late]),
            3,
        ),
        order in prop::collection::vec(any::<usize>(), 64),
    ) {
        let cases = &cases[..usize::from(network.slots)];
        let bundle = Bundle::from_bytes(&network.bundle()).unwrap();
        let mut tiers = Tiers::new(&bundle, cases, &network);
        let mut order = order.into_iter().cycle();
        tiers.run(cases, &mut |count| order.next().unwrap_or(0) % count);

        if cases.iter().all(|case| matches!(case, SlotCase::Silent | SlotCase::Late)) {
            // No device was in time: the sample was never opened, or a late device opened it.
            prop_assert!(tiers.decisions.len() <= 1);
            return Ok(());
        }
        let seen: Vec<Option<&[u8]>> = cases
            .iter()
            .zip(&tiers.views)
            .map(|(case, view)| view.as_deref().filter(|_| *case == SlotCase::Sees))
            .collect();
        let mut whole = Whole::load(&bundle, &TractEngine::new()).unwrap();
        let is_seen = seen.iter().any(Option::is_some);
        let expected = whole.run(&[seen]).unwrap().remove(0);
        prop_assert_eq!(tiers.decisions.len(), 1);
        let found = &tiers.decisions[0];
        // The whole network answers a sample that no device sees by the class prior; the leader leaves such a sample undecided.
        prop_assert_eq!((found.exit, found.class), (expected.exit, is_seen.then_some(expected.class)));
        prop_assert_eq!(found.confidence, expected.confidence);
        for (slot, case) in Slot::first(cases.len()).zip(cases) {
            let view = match case {
                SlotCase::Sees => SlotPresence::Present,
                SlotCase::NotInView => SlotPresence::NotInView,
                SlotCase::Silent | SlotCase::Late => SlotPresence::Missing,
            };
            prop_assert_eq!(found.presence.get(slot), view, "slot {} of {:?}", slot, found.presence);
        }
    }
}
