//! Tests of the collector.

use headwater_protocol::{SampleId, Slot, SlotSet};

use super::{Collector, CollectorConfig, EdgeAction, EdgeEvent, EdgeJob};
use crate::leader::Micros;

const PACKED: usize = 2;

fn slot(index: u8) -> Slot {
    Slot::new(index).expect("below 64")
}

/// An edge of the slots 1 and 3, and a clock.
struct Edge {
    collector: Collector,
    now: Micros,
}

impl Edge {
    fn new() -> Self {
        let config = CollectorConfig {
            slots: vec![slot(1), slot(3)],
            packed_bytes: PACKED,
            features_ms: 50,
            max_open_samples: 3,
        };
        Self { collector: Collector::new(config), now: Micros::from_ms(10) }
    }

    fn event(&mut self, event: EdgeEvent<'_>) -> Vec<EdgeAction> {
        let mut actions = Vec::new();
        self.collector.handle(self.now, event, &mut actions);
        actions
    }

    fn collect(&mut self, sample: u64, slots: u64) -> Vec<EdgeAction> {
        self.event(EdgeEvent::Collect { sample: SampleId(sample), slots: SlotSet::from_bits(slots) })
    }

    fn features(&mut self, index: u8, sample: u64) -> Vec<EdgeAction> {
        let bits = [index; PACKED];
        self.event(EdgeEvent::Features { slot: slot(index), sample: SampleId(sample), bits: &bits })
    }

    fn after_ms(&mut self, ms: u32) -> Vec<EdgeAction> {
        self.now = self.now.plus_ms(ms);
        self.event(EdgeEvent::Tick)
    }
}

fn run(sample: u64, slots: u64, features: [u8; 4]) -> EdgeAction {
    let presence = vec![slots & 0b10 != 0, slots & 0b1000 != 0];
    let slots = SlotSet::from_bits(slots);
    EdgeAction::Run(EdgeJob { sample: SampleId(sample), slots, features: features.to_vec(), presence })
}

#[test]
fn the_section_runs_when_all_features_of_slots_with_a_view_came() {
    let mut edge = Edge::new();
    assert_eq!(edge.collect(1, 0b1111), []);
    assert_eq!(edge.features(3, 1), []);
    assert_eq!(edge.features(0, 1), [], "of another edge");
    assert_eq!(edge.features(1, 1), [run(1, 0b1010, [1, 1, 3, 3])]);
    assert_eq!(edge.collect(2, 0b1000), []);
    assert_eq!(edge.features(3, 2), [run(2, 0b1000, [0, 0, 3, 3])]);
}

#[test]
fn features_that_come_before_the_request_are_kept() {
    let mut edge = Edge::new();
    assert_eq!(edge.features(1, 1), []);
    assert_eq!(edge.collect(1, 0b10), [run(1, 0b10, [1, 1, 0, 0])]);
}

#[test]
fn at_the_time_limit_the_edge_answers_with_the_features_that_came() {
    let mut edge = Edge::new();
    edge.collect(1, 0b1010);
    edge.features(1, 1);
    edge.collect(2, 0b1010);
    assert_eq!(edge.after_ms(49), []);
    assert_eq!(edge.after_ms(1), [run(1, 0b10, [1, 1, 0, 0]), EdgeAction::Gone(SampleId(2))]);
    assert_eq!(edge.after_ms(1000), []);
}

#[test]
fn a_slot_without_features_or_without_a_device_is_not_awaited() {
    let mut edge = Edge::new();
    edge.collect(1, 0b1010);
    edge.features(1, 1);
    let gone = EdgeEvent::Gone { slot: slot(3), sample: SampleId(1) };
    assert_eq!(edge.event(gone), [run(1, 0b10, [1, 1, 0, 0])]);
    edge.collect(2, 0b1000);
    assert_eq!(edge.event(EdgeEvent::DeviceDown { slot: slot(3) }), [EdgeAction::Gone(SampleId(2))]);
}

#[test]
fn a_sample_is_answered_once() {
    let mut edge = Edge::new();
    edge.collect(1, 0b10);
    edge.features(1, 1);
    assert_eq!(edge.features(1, 1), []);
    assert_eq!(edge.collect(1, 0b10), []);
    assert_eq!(edge.after_ms(1000), []);
}

#[test]
fn samples_of_other_edges_and_features_without_a_request_are_not_answered() {
    let mut edge = Edge::new();
    assert_eq!(edge.collect(1, 0b0101), []);
    assert_eq!(edge.features(1, 2), []);
    assert_eq!(edge.after_ms(100), []);
    assert_eq!(edge.collector.next_timer(), None);
}

#[test]
fn the_oldest_sample_is_answered_when_too_many_are_open_and_a_map_of_another_length_is_left_out() {
    let mut edge = Edge::new();
    for sample in 1..=3 {
        edge.collect(sample, 0b10);
    }
    assert_eq!(edge.collect(4, 0b10), [EdgeAction::Gone(SampleId(1))]);
    let bits = [0; PACKED + 1];
    assert_eq!(edge.event(EdgeEvent::Features { slot: slot(1), sample: SampleId(4), bits: &bits }), []);
}
