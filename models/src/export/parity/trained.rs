//! What the trained network gives, section by section, and its comparison with an engine.

use std::ops::Range;

use headwater_inference::bundle::Bundle;
use headwater_inference::engine::Engine;
use headwater_inference::manifest::{FeatureEncoding, FeatureMap};
use headwater_inference::sections::{CloudSection, DeviceSection, EdgeSection, ScoresExit};
use headwater_kernels::{pack_signs, unpack_signs};
use headwater_protocol::{Exit, Slot, SourceSet};

use super::{Parity, ParityError};
use crate::by_exit::ByExit;
use crate::data::{Batch, Samples};
use crate::layers::{Pass, State};
use crate::loss::best;
use crate::network::{ExitSection, Given, Network};

/// What the trained network gives for some samples, section by section: every section of an engine is given
/// what the trained one gets, so that a difference is named where it arises.
pub struct Trained<'a> {
    network: &'a Network,
    state: &'a State,
    samples: &'a Samples,
    /// The first of them.
    start: usize,
    count: usize,
    /// One a slot.
    devices: Vec<Values>,
    /// One an edge.
    edges: Vec<Values>,
    /// Slots of each edge.
    groups: Vec<Vec<usize>>,
    /// `[samples, classes]` of each exit; empty when nobody sees any of the samples.
    exits: ByExit<Vec<f32>>,
}

/// What a trained device or edge gives, for each sample of which it sees anything.
struct Values {
    /// Those samples, counted from the first.
    rows: Vec<u32>,
    /// `[rows, classes]`; empty without a section.
    scores: Vec<f32>,
    map: FeatureMap,
    /// The numbers in front of the signs, or the elements of the map, `[rows, elements]`.
    elements: Vec<f32>,
}

/// A section with scores and a map.
#[derive(Clone, Copy)]
enum Place {
    Device(usize),
    Edge(usize),
}

impl Place {
    fn name(self) -> String {
        match self {
            Self::Device(slot) => format!("device {slot}"),
            Self::Edge(edge) => format!("edge {edge}"),
        }
    }
}

/// What the sources of one sample send, as the section behind them takes it.
struct Sent {
    /// `[sources, classes]`.
    scores: Vec<f32>,
    /// `[sources, bytes of a map]`.
    maps: Vec<u8>,
    presence: Vec<bool>,
}

impl<'a> Trained<'a> {
    /// Runs the trained network on a range of samples, which are held in memory as floats.
    pub fn new(network: &'a Network, state: &'a State, samples: &'a Samples, range: Range<usize>) -> Self {
        let batch = Batch::plain(samples, range.clone());
        let groups = network.edges.iter().map(|edge| edge.slots.clone()).collect();
        let (start, count) = (range.start, range.len());
        let mut trained = Self {
            network,
            state,
            samples,
            start,
            count,
            devices: Vec::new(),
            edges: Vec::new(),
            groups,
            exits: ByExit::default(),
        };
        if batch.is_blank() {
            return trained;
        }
        let pass = Pass::inference(&network.layout, state);
        let answers = network.forward(&pass, &batch);
        let devices = answers.devices.iter().enumerate();
        let devices = devices.map(|(slot, given)| {
            Values::of(&pass, network.devices.get(slot), network.features, given.as_ref())
        });
        trained.devices = devices.collect();
        let edges = answers.edges.iter().zip(&network.edges);
        let edges = edges
            .map(|(given, edge)| Values::of(&pass, Some(&edge.section), edge.section.map, given.as_ref()));
        trained.edges = edges.collect();
        trained.exits = answers.exits.map(|_, logits| values(logits.clone()));
        trained
    }

    /// Compares the device sections of a bundle in an engine.
    ///
    /// # Errors
    /// [`ParityError`] with the first difference that is too large.
    pub fn compare_devices(&self, bundle: &Bundle, engine: &dyn Engine) -> Result<Parity, ParityError> {
        let mut parity = self.parity(engine);
        for (slot, (id, values)) in Slot::first(self.samples.slots).zip(&self.devices).enumerate() {
            // Without a section the view goes on as it is: nothing to compare.
            if values.rows.is_empty() || values.scores.is_empty() {
                continue;
            }
            let mut section = DeviceSection::load(bundle, id, engine)?;
            let seen = values.rows.iter().flat_map(|&row| self.samples.view(self.start + row as usize, slot));
            let pixels: Vec<u8> = seen.flatten().copied().collect();
            for (row, answer) in section.run(&pixels, values.rows.len())?.iter().enumerate() {
                let found = (&answer.scores[..], &answer.features[..]);
                self.compare_given(&mut parity, Place::Device(slot), values, row, found, engine)?;
            }
        }
        Ok(parity)
    }

    /// Compares what is behind the devices, edges, exits and the cloud section, in an engine.
    ///
    /// # Errors
    /// [`ParityError`] with the first difference that is too large.
    pub fn compare_behind(&self, bundle: &Bundle, engine: &dyn Engine) -> Result<Parity, ParityError> {
        let mut parity = self.parity(engine);
        if self.devices.is_empty() {
            return Ok(parity);
        }
        self.compare_edges(&mut parity, bundle, engine)?;
        let mut local = ScoresExit::local(bundle, engine)?;
        let mut edge = ScoresExit::edge(bundle, engine)?;
        let mut cloud = CloudSection::load(bundle, engine)?;
        let (devices, edges): (Vec<_>, Vec<_>) = (self.devices.iter().collect(), self.edges.iter().collect());
        let mut logits = vec![0.0; self.samples.classes];
        for sample in (0..self.count).filter(|sample| self.samples.seen[self.start + sample] != 0) {
            let (at, name) = (self.start + sample, engine.name());
            for (exit, section, sources) in
                [(Exit::Local, &mut local, &devices), (Exit::Edge, &mut edge, &edges)]
            {
                let Some(section) = section else { continue };
                let sent = self.sent(sources, sample);
                section.scores(&sent.scores, SourceSet::from_row(&sent.presence), &mut logits)?;
                let what = format!("logits of {}", exit.name());
                parity.floats(&what, at, self.logits(exit, sample), &logits, name)?;
            }
            let sent = self.sent(if edges.is_empty() { &devices } else { &edges }, sample);
            let found = cloud.run(1, &sent.maps, &sent.presence)?;
            parity.floats("logits of cloud", at, self.logits(Exit::Cloud, sample), &found, name)?;
        }
        Ok(parity)
    }

    fn compare_edges(
        &self,
        parity: &mut Parity,
        bundle: &Bundle,
        engine: &dyn Engine,
    ) -> Result<(), ParityError> {
        for (index, (values, slots)) in self.edges.iter().zip(&self.groups).enumerate() {
            let mut section = EdgeSection::load(bundle, index, engine)?;
            let sources: Vec<_> = slots.iter().map(|slot| &self.devices[*slot]).collect();
            for (row, &sample) in values.rows.iter().enumerate() {
                let sent = self.sent(&sources, sample as usize);
                for answer in section.run(1, &sent.maps, &sent.presence)? {
                    let found = (&answer.scores[..], &answer.features[..]);
                    self.compare_given(parity, Place::Edge(index), values, row, found, engine)?;
                }
            }
        }
        Ok(())
    }

    /// Scores and map of one row of a device or an edge.
    ///
    /// Scores are made of the map. Where bits at their threshold differ, the trained head is given the engine's bits: what is
    /// left then is the head's own difference.
    fn compare_given(
        &self,
        parity: &mut Parity,
        place: Place,
        values: &Values,
        row: usize,
        (scores, map): (&[f32], &[u8]),
        engine: &dyn Engine,
    ) -> Result<(), ParityError> {
        let (section, sample) = (place.name(), self.start + values.rows[row] as usize);
        let mut expected = values.scores(row, self.samples.classes).to_vec();
        parity.other_class += u64::from(best(&expected) != best(scores));
        let elements = values.elements(row);
        if values.map.encoding == FeatureEncoding::Bits {
            let differed = parity.bits_at_threshold;
            parity.compare_bits((&section, sample), elements, map, engine.name())?;
            if parity.bits_at_threshold > differed {
                expected = self.scores_of_bits(place, map);
            }
        } else {
            let (fours, _) = map.as_chunks();
            let found: Vec<f32> = fours.iter().map(|four| f32::from_le_bytes(*four)).collect();
            parity.floats(&format!("features of {section}"), sample, elements, &found, engine.name())?;
        }
        parity.floats(&format!("scores of {section}"), sample, &expected, scores, engine.name())
    }

    /// What the trained head makes of packed bits.
    fn scores_of_bits(&self, place: Place, bits: &[u8]) -> Vec<f32> {
        let section = match place {
            Place::Device(slot) => &self.network.devices[slot],
            Place::Edge(edge) => &self.network.edges[edge].section,
        };
        let pass = Pass::inference(&self.network.layout, self.state);
        let [channels, h, w] = section.map.shape();
        let mut signs = vec![0.0; section.map.elements()];
        unpack_signs(bits, &mut signs);
        values(section.scores(&pass, pass.tensor(signs, [1, channels, h, w])))
    }

    /// What the sources send of one sample.
    fn sent(&self, sources: &[&Values], sample: usize) -> Sent {
        let classes = self.samples.classes;
        let mut sent = Sent { scores: Vec::new(), maps: Vec::new(), presence: Vec::new() };
        for source in sources {
            let row = source.rows.binary_search(&(sample as u32)).ok();
            sent.presence.push(row.is_some());
            match row {
                Some(row) => {
                    // A device without a section has no scores, and no exit asks for them.
                    sent.scores.extend_from_slice(source.scores(row, classes));
                    sent.maps.extend(source.encoded(row));
                }
                None => {
                    sent.scores.resize(sent.scores.len() + classes, 0.0);
                    sent.maps.resize(sent.maps.len() + source.map.packed_bytes(), 0);
                }
            }
        }
        sent
    }

    fn logits(&self, exit: Exit, sample: usize) -> &[f32] {
        &self.exits[exit][sample * self.samples.classes..][..self.samples.classes]
    }

    fn parity(&self, engine: &dyn Engine) -> Parity {
        Parity { engine: engine.name().into(), samples: self.count, ..Parity::default() }
    }
}

impl Values {
    /// `section` is `None` for a device that sends its view.
    fn of(pass: &Pass<'_>, section: Option<&ExitSection>, map: FeatureMap, given: Option<&Given>) -> Self {
        let Some(given) = given else {
            return Self { rows: Vec::new(), scores: Vec::new(), map, elements: Vec::new() };
        };
        let before_sign = section.and_then(|section| section.before_sign(pass, given.input.clone()));
        let elements = values(before_sign.unwrap_or_else(|| given.features.clone()));
        let scores = given.scores.clone().map(values).unwrap_or_default();
        Self { rows: given.rows.clone(), scores, map, elements }
    }

    fn scores(&self, row: usize, classes: usize) -> &[f32] {
        if self.scores.is_empty() { &[] } else { &self.scores[row * classes..][..classes] }
    }

    fn elements(&self, row: usize) -> &[f32] {
        &self.elements[row * self.map.elements()..][..self.map.elements()]
    }

    /// The map of a row, as it travels.
    fn encoded(&self, row: usize) -> Vec<u8> {
        let elements = self.elements(row);
        match self.map.encoding {
            FeatureEncoding::Bits => {
                let mut bits = vec![0; self.map.packed_bytes()];
                pack_signs(elements, &mut bits);
                bits
            }
            FeatureEncoding::F32 => elements.iter().flat_map(|value| value.to_le_bytes()).collect(),
            // `x / 255` of a pixel: exact again when multiplied and rounded.
            FeatureEncoding::Pixels => elements.iter().map(|value| (value * 255.0).round() as u8).collect(),
        }
    }
}

fn values<const D: usize>(tensor: burn::tensor::Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_to_vec::<f32>().expect("tensors hold f32")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use headwater_inference::bundle::BundleWriter;
    use headwater_inference::engine::TractEngine;
    use headwater_inference::policy::Policy;
    use headwater_samples::Part;

    use super::*;
    use crate::data::Parts;
    use crate::export::{manifest, onnx_sections};
    use crate::spec::Spec;

    /// The trained sections of ddnn-f.toml, untrained, with another sign in front of one bit of edge 1, `distance` from its threshold,
    /// and the scores that belong to it.
    fn compare(distance: f32) -> Result<Parity, ParityError> {
        let spec = Spec::parse(Path::new("f"), include_str!("../../../networks/ddnn-f.toml")).unwrap();
        let network = Network::new(&spec);
        let state = network.initial(1);
        let samples = Parts::drawn(8, 4, 4).part(Part::Train, None, 1);
        let writer = BundleWriter::new(manifest(&spec, vec![0.1; 10]), Policy::default());
        let sections = onnx_sections(&spec, &network, &state).into_iter();
        let writer = sections.fold(writer, |writer, (name, onnx)| writer.section(name, onnx));
        let bundle = Bundle::from_bytes(&writer.finish().unwrap()).unwrap();
        let mut trained = Trained::new(&network, &state, &samples, 0..8);
        let edge = &mut trained.edges[1];
        edge.elements[77] = if edge.elements[77] >= 0.0 { -distance } else { distance };
        let bits = edge.encoded(0);
        let scores = trained.scores_of_bits(Place::Edge(1), &bits);
        assert_ne!(trained.edges[1].scores(0, 10), scores);
        trained.edges[1].scores[..10].copy_from_slice(&scores);
        let mut parity = Parity::default();
        trained.compare_edges(&mut parity, &bundle, &TractEngine)?;
        Ok(parity)
    }

    #[test]
    fn scores_behind_a_bit_at_its_threshold_are_compared_for_the_bits_that_the_engine_gave() {
        assert_eq!(compare(0.5e-5).unwrap().bits_at_threshold, 1);
    }

    #[test]
    fn a_bit_that_is_not_at_its_threshold_is_named() {
        let error = compare(2e-5).unwrap_err().to_string();
        assert!(error.contains("features of edge 1, sample 0, bit 77"), "{error}");
    }
}
