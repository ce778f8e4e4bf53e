//! Outputs of the trained network, with which the outputs of an engine are compared section by section.

use std::ops::Range;

use headwater_inference::bundle::Bundle;
use headwater_inference::engine::{Engine, PackedEngine};
use headwater_inference::exit::argmax;
use headwater_inference::manifest::{FeatureEncoding, SectionManifest};
use headwater_inference::sections::{CloudSection, DeviceSection, EdgeSection, ScoresExit, TierOutput};
use headwater_protocol::{Exit, Slot, SourceSet};

use super::outputs::{Outputs, SourceInputs};
use super::{Parity, ParityError, Place, tolerance};
use crate::export::TrainedNetwork;
use crate::layers::{Pass, values};
use headwater_calibration::by_exit::ByExit;
use headwater_calibration::data::{Batch, Samples};

/// Outputs of every section of the trained network for some samples.
///
/// Each section of an engine gets the inputs of the trained section, so that the error names the section that differs.
pub struct Reference<'a> {
    network: TrainedNetwork<'a>,
    samples: &'a Samples,
    range: Range<usize>,
    /// Outputs by slot; empty when no slot sees any of the samples.
    devices: Vec<Outputs<'a>>,
    /// Outputs by edge.
    edges: Vec<Outputs<'a>>,
    /// Logits of each exit, `[samples, classes]`.
    exits: ByExit<Vec<f32>>,
}

impl<'a> Reference<'a> {
    /// Runs the trained network on a range of samples, all at once in memory.
    pub fn new(network: &TrainedNetwork<'a>, samples: &'a Samples, range: Range<usize>) -> Self {
        let batch = Batch::plain(samples, range.clone());
        let (devices, edges, exits) = (Vec::new(), Vec::new(), ByExit::default());
        let mut reference = Self { network: *network, samples, range, devices, edges, exits };
        if batch.is_blank() {
            return reference;
        }
        let layers = network.layers;
        let pass = Pass::inference(network.trained());
        let outputs = layers.forward(&pass, &batch);
        let devices = outputs.devices.iter().enumerate().map(|(slot, output)| {
            let (section, map) = (layers.devices.get(slot), layers.spec.shapes.features);
            Outputs::new(&pass, (format!("device {slot}"), Some(slot)), section, map, output.as_ref())
        });
        reference.devices = devices.collect();
        let edges = outputs.edges.iter().zip(&layers.edges).enumerate().map(|(index, (output, edge))| {
            let (section, map) = (Some(&edge.section), edge.section.map);
            Outputs::new(&pass, (format!("edge {index}"), None), section, map, output.as_ref())
        });
        reference.edges = edges.collect();
        reference.exits = outputs.exits.map(|_, logits| values(logits));
        reference
    }

    /// Least and largest score of the section of a device or an edge; `None` for other sections, and if no sample was seen.
    pub fn score_range(&self, section: &str) -> Option<[f32; 2]> {
        let slots = Slot::first(self.samples.slots).map(SectionManifest::device_name);
        let edges = (0..self.edges.len()).map(SectionManifest::edge_name);
        let devices = slots.zip(&self.devices);
        let (_, outputs) = devices.chain(edges.zip(&self.edges)).find(|(name, _)| name == section)?;
        let scores = outputs.scores.iter().copied();
        let least = scores.clone().reduce(f32::min)?;
        Some([least, scores.reduce(f32::max)?])
    }

    /// Compares the sections of a bundle, run by an engine, with the trained sections; of the packed engine the device sections alone,
    /// since deeper sections have no packed form.
    ///
    /// # Errors
    /// [`ParityError`] with the first difference that is too large.
    pub fn compare(&self, bundle: &Bundle, engine: &dyn Engine) -> Result<Parity, ParityError> {
        let (engine_name, samples) = (engine.name(), self.range.len());
        let mut parity = Parity { engine: engine_name.into(), samples, ..Parity::default() };
        self.compare_devices(&mut parity, bundle, engine)?;
        // Each engine has a name of its own.
        if engine_name != PackedEngine.name() {
            self.compare_deeper(&mut parity, bundle, engine)?;
        }
        Ok(parity)
    }

    fn compare_devices(
        &self,
        parity: &mut Parity,
        bundle: &Bundle,
        engine: &dyn Engine,
    ) -> Result<(), ParityError> {
        for (slot, outputs) in Slot::first(self.samples.slots).zip(&self.devices) {
            // A device without a section sends its view unchanged, so there is nothing to compare.
            if outputs.rows.is_empty() || outputs.scores.is_empty() {
                continue;
            }
            let mut section = DeviceSection::load(bundle, slot, engine)?;
            let views = outputs.rows.iter().flat_map(|&row| self.samples.view(self.sample(row), slot));
            let pixels: Vec<u8> = views.flatten().collect();
            for (row, answer) in section.run(&pixels, outputs.rows.len())?.iter().enumerate() {
                self.compare_row(parity, outputs, row, answer)?;
            }
        }
        Ok(())
    }

    /// Compares the deeper sections: edges, exits over scores, cloud.
    fn compare_deeper(
        &self,
        parity: &mut Parity,
        bundle: &Bundle,
        engine: &dyn Engine,
    ) -> Result<(), ParityError> {
        if self.devices.is_empty() {
            return Ok(());
        }
        self.compare_edges(parity, bundle, engine)?;
        let mut local = ScoresExit::load(bundle, Exit::LOCAL, engine)?;
        let mut edge = ScoresExit::load(bundle, Exit::EDGE, engine)?;
        let mut cloud = CloudSection::load(bundle, engine)?;
        let (devices, edges): (Vec<_>, Vec<_>) = (self.devices.iter().collect(), self.edges.iter().collect());
        let mut logits = vec![0.0; self.samples.classes];
        let rows = 0..self.range.len() as u32;
        for row in rows.filter(|row| !self.samples.seen[self.sample(*row)].is_empty()) {
            let at = |exit: Exit| self.place(exit.name(), row);
            let inputs =
                |sources: &[&Outputs<'_>]| SourceInputs::new(sources, row as usize, self.samples.classes);
            let scores_exits = [(Exit::LOCAL, &mut local, &devices), (Exit::EDGE, &mut edge, &edges)];
            for (exit, section, sources) in scores_exits {
                let Some(section) = section else { continue };
                let inputs = inputs(sources);
                section.scores(&inputs.scores, SourceSet::from_row(&inputs.presence), &mut logits)?;
                parity.compare_floats("logits", &at(exit), self.logits(exit, row), &logits)?;
            }
            let inputs = inputs(if edges.is_empty() { &devices } else { &edges });
            let found = cloud.run(1, &inputs.maps, &inputs.presence)?;
            parity.compare_floats("logits", &at(Exit::CLOUD), self.logits(Exit::CLOUD, row), &found)?;
        }
        Ok(())
    }

    fn compare_edges(
        &self,
        parity: &mut Parity,
        bundle: &Bundle,
        engine: &dyn Engine,
    ) -> Result<(), ParityError> {
        for (index, (outputs, edge)) in self.edges.iter().zip(&self.network.layers.edges).enumerate() {
            let mut section = EdgeSection::load(bundle, index, engine)?;
            let sources: Vec<_> = edge.slots.iter().map(|slot| &self.devices[*slot]).collect();
            for (row, &sample) in outputs.rows.iter().enumerate() {
                let inputs = SourceInputs::new(&sources, sample as usize, self.samples.classes);
                for answer in section.run(1, &inputs.maps, &inputs.presence)? {
                    self.compare_row(parity, outputs, row, &answer)?;
                }
            }
        }
        Ok(())
    }

    /// Compares scores and map of one row of a device or an edge.
    ///
    /// Scores are computed from the map. If bits at their threshold differ, the trained head gets the engine's bits, so that only the
    /// difference of the head is left. The engine's bits that are not sent are unknown: one such bit at its threshold may have either
    /// sign.
    fn compare_row(
        &self,
        parity: &mut Parity,
        outputs: &Outputs<'_>,
        row: usize,
        found: &TierOutput,
    ) -> Result<(), ParityError> {
        let at = self.place(&outputs.name, outputs.rows[row]);
        let mut expected = outputs.exact_scores(row, self.samples.classes).to_vec();
        let sent = outputs.scores(row, self.samples.classes);
        parity.other_class += u64::from(argmax(sent) != argmax(&found.scores));
        let elements = outputs.elements(row);
        if outputs.map.encoding == FeatureEncoding::Bits {
            let differed = parity.bits_at_threshold;
            parity.compare_bits(&at, elements, &found.features)?;
            if parity.bits_at_threshold > differed {
                expected = self.scores_of(outputs, outputs.signs(row, &found.features));
            }
        } else {
            let (floats, _) = found.features.as_chunks();
            let floats: Vec<f32> = floats.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            parity.compare_floats("features", &at, elements, &floats)?;
        }
        let compared = self.compare_scores(parity, (&at, outputs.slot), &expected, &found.scores);
        if compared.is_ok() || outputs.map.encoding != FeatureEncoding::Bits {
            return compared;
        }
        let mut of_other_sign = outputs.unsent_at_threshold(row).map(|index| {
            let mut signs = outputs.signs(row, &found.features);
            signs[index] = -signs[index];
            self.scores_of(outputs, signs)
        });
        let agrees = |scores: Vec<f32>| {
            self.compare_scores(parity, (&at, outputs.slot), &scores, &found.scores).is_ok()
        };
        if !of_other_sign.any(agrees) {
            return compared;
        }
        parity.bits_at_threshold += 1;
        Ok(())
    }

    /// Compares the scores of a row; of a device, the scores that messages carry.
    fn compare_scores(
        &self,
        parity: &mut Parity,
        (at, slot): (&Place, Option<usize>),
        expected: &[f32],
        found: &[f32],
    ) -> Result<(), ParityError> {
        let coding = self.network.state.coding.as_ref();
        match coding.zip(slot).filter(|(coding, _)| !coding.score_levels.is_empty()) {
            None => parity.compare_floats("scores", at, expected, found),
            Some((coding, slot)) => parity.compare_levels(at, expected, found, |score| {
                let mut one = [score];
                coding.round(slot, &mut one);
                one[0]
            }),
        }
    }

    /// Scores of the trained head for the signs of its map.
    fn scores_of(&self, outputs: &Outputs<'_>, signs: Vec<f32>) -> Vec<f32> {
        let Some(section) = outputs.section else { return Vec::new() };
        let pass = Pass::inference(self.network.trained());
        let [channels, h, w] = section.head_map();
        values(&section.scores(&pass, pass.tensor(signs, [1, channels, h, w])))
    }

    fn logits(&self, exit: Exit, row: u32) -> &[f32] {
        &self.exits[exit][row as usize * self.samples.classes..][..self.samples.classes]
    }

    /// Index of a compared sample among all samples of the part.
    fn sample(&self, row: u32) -> usize {
        self.range.start + row as usize
    }

    /// Section, named as in error messages (`device 3`), and sample.
    fn place(&self, section: &str, row: u32) -> Place {
        let name = format!("{section}, sample {}", self.sample(row));
        Place { name, tolerance: tolerance(&self.network.layers.layout, &section.replace(' ', "-")) }
    }
}

#[cfg(test)]
mod tests {
    use headwater_inference::engine::TractEngine;
    use headwater_inference::policy::Policy;
    use headwater_samples::Part;

    use super::*;
    use crate::export::bundle_writer;
    use crate::testing::{DDNN_C, network};
    use headwater_calibration::data::Parts;
    use headwater_spec::manifest;

    fn samples() -> Samples {
        Parts::drawn(8, 4, 4).part(Part::Train, None, 1)
    }

    fn bundle(network: &TrainedNetwork<'_>) -> Bundle {
        let manifest = manifest(&network.layers.spec, vec![0.1; 10]);
        let writer = bundle_writer(network, manifest, Policy::default());
        Bundle::from_bytes(&writer.finish().unwrap()).unwrap()
    }

    /// Moves the input of a sign to the other side of the threshold 0, `distance` away from it.
    fn change_sign(element: &mut f32, distance: f32) {
        *element = if *element >= 0.0 { -distance } else { distance };
    }

    /// Compares the untrained sections of ddnn-f.toml after a change of one bit of edge 1, whose input lies `distance` from its
    /// threshold. The scores of edge 1 are computed from the changed bits.
    fn compare(distance: f32) -> Result<Parity, ParityError> {
        let layers = network(include_str!("../../../../networks/ddnn-f.toml"));
        let state = layers.layout.initial(1);
        let network = TrainedNetwork { layers: &layers, state: &state };
        let samples = samples();
        let bundle = bundle(&network);
        let mut reference = Reference::new(&network, &samples, 0..8);
        let edge = &mut reference.edges[1];
        change_sign(edge.element_mut(0, 77), distance);
        let (bits, edge) = (edge.encoded(0), &reference.edges[1]);
        let scores = reference.scores_of(edge, edge.signs(0, &bits));
        assert_ne!(reference.edges[1].exact_scores(0, 10), scores);
        reference.edges[1].exact_scores[..10].copy_from_slice(&scores);
        let mut parity = Parity::default();
        reference.compare_edges(&mut parity, &bundle, &TractEngine)?;
        Ok(parity)
    }

    #[test]
    fn scores_after_a_bit_at_its_threshold_are_compared_for_the_bits_of_the_engine() {
        assert_eq!(compare(0.5e-5).unwrap().bits_at_threshold, 1);
    }

    /// Compares the device sections of a network that sends 3 of 8 channels, after a change of an element of device 2 that is not sent
    /// and lies `distance` from its threshold. The scores are computed with the changed element.
    fn compare_unsent(distance: f32) -> Result<Parity, ParityError> {
        let head = "head = { kind = \"fc\", binary = true }";
        let text = DDNN_C.replace(head, &format!("{head}\nsent_channels = 3"));
        let text = text.replace("4_bits", "f32").replace("\"coded\"", "\"bits\"");
        let layers = network(&text);
        let state = layers.layout.initial(1);
        let network = TrainedNetwork { layers: &layers, state: &state };
        let samples = samples();
        let bundle = bundle(&network);
        let mut reference = Reference::new(&network, &samples, 0..8);
        let unsent = 3 * 256 + 77;
        change_sign(reference.devices[2].element_mut(0, unsent), distance);
        let device = &reference.devices[2];
        let scores = reference.scores_of(device, device.signs(0, &device.encoded(0)));
        assert_ne!(device.exact_scores(0, 10), scores);
        reference.devices[2].exact_scores[..10].copy_from_slice(&scores);
        reference.compare(&bundle, &TractEngine)
    }

    #[test]
    fn an_element_that_is_not_sent_may_have_either_sign_at_its_threshold() {
        assert_eq!(compare_unsent(0.5e-5).unwrap().bits_at_threshold, 1);
        assert!(compare_unsent(2e-5).unwrap_err().to_string().contains("scores of device 2, sample 0"));
    }

    #[test]
    fn a_bit_that_is_not_at_its_threshold_is_named() {
        let error = compare(2e-5).unwrap_err().to_string();
        assert!(error.contains("features of edge 1, sample 0, bit 77"), "{error}");
    }
}
