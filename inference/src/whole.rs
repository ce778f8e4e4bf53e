//! The network in one piece: every section in one place, as evaluation, parity and tests run it. What the tiers answer
//! together must equal this.

use headwater_protocol::{Exit, Position, Presence, Slot, Source, SourceSet};

use crate::aggregate::AggregateError;
use crate::bundle::Bundle;
use crate::engine::Engine;
use crate::exit::Assessment;
use crate::policy::Policy;
use crate::sections::{
    CloudSection, DeviceOutput, DeviceSection, EdgeOutput, EdgeSection, ScoresExit, SectionError,
};

/// All sections of a network, and the policy.
pub struct Whole {
    devices: Vec<DeviceSection>,
    local: Option<ScoresExit>,
    edges: Vec<EdgeSection>,
    edge: Option<ScoresExit>,
    cloud: CloudSection,
    exits: &'static [Exit],
    policy: Policy,
    class_prior: Vec<f32>,
    view_bytes: usize,
    feature_bytes: usize,
    /// Bytes of the map that each source sends to the cloud.
    cloud_bytes: usize,
}

/// Logits of one sample by exit; empty at an exit that the network does not have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExitLogits([Vec<f32>; Exit::ALL.len()]);

/// What the network says of one sample, at every exit.
#[derive(Clone, Debug, PartialEq)]
pub struct WholeAnswer {
    /// Slots with a view are present, the others not in view.
    pub presence: Presence,
    /// What each device gave; `None` where it had no view.
    pub devices: Vec<Option<DeviceOutput>>,
    /// What each edge gave; `None` where none of its slots had a view.
    pub edges: Vec<Option<EdgeOutput>>,
    /// Logits at each exit, whether or not the sample reaches it; empty when no device had a view.
    pub logits: ExitLogits,
    /// Where the sample leaves under the policy. Without a view: the first exit, and the class prior answers.
    pub exit: Exit,
    /// The class at that exit.
    pub class: u16,
    /// The confidence at that exit.
    pub confidence: f32,
}

impl ExitLogits {
    /// Logits of an exit.
    pub fn of(&self, exit: Exit) -> &[f32] {
        &self.0[exit as usize]
    }

    /// The same, to be written.
    pub fn of_mut(&mut self, exit: Exit) -> &mut Vec<f32> {
        &mut self.0[exit as usize]
    }
}

impl Whole {
    /// Loads every section of a whole bundle, and its policy.
    ///
    /// # Errors
    /// When the bundle does not hold them all or the engine refuses one.
    pub fn load(bundle: &Bundle, engine: &dyn Engine) -> Result<Self, SectionError> {
        let manifest = bundle.manifest();
        let slots = Slot::first(usize::from(manifest.slots));
        let edges = manifest.edge.as_ref().map_or(0, |edge| edge.groups.len());
        Ok(Self {
            devices: slots.map(|slot| DeviceSection::load(bundle, slot, engine)).collect::<Result<_, _>>()?,
            local: ScoresExit::local(bundle, engine)?,
            edges: (0..edges)
                .map(|edge| EdgeSection::load(bundle, edge, engine))
                .collect::<Result<_, _>>()?,
            edge: ScoresExit::edge(bundle, engine)?,
            cloud: CloudSection::load(bundle, engine)?,
            exits: manifest.configuration.exits(),
            policy: bundle.policy().clone(),
            class_prior: manifest.class_prior.clone(),
            view_bytes: manifest.preprocessing.view_bytes(),
            feature_bytes: manifest.features.packed_bytes(),
            cloud_bytes: manifest.cloud_map().packed_bytes(),
        })
    }

    /// The same network under another policy.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Answers a batch; each sample has one view a slot, `None` where the slot does not see it.
    ///
    /// # Shapes
    /// - each view: `[channels, height, width]` pixels
    ///
    /// # Errors
    /// [`SectionError::Length`] when a sample has another number of slots or a view another length.
    pub fn run<'a>(
        &mut self,
        samples: &[impl AsRef<[Option<&'a [u8]>]>],
    ) -> Result<Vec<WholeAnswer>, SectionError> {
        let samples: Vec<_> = samples.iter().map(AsRef::as_ref).collect();
        self.check(&samples)?;
        let devices = self.run_devices(&samples)?;
        let edges = self.run_edges(&devices)?;
        let cloud = self.run_cloud(&devices, &edges)?;
        let given = devices.into_iter().zip(edges).zip(cloud);
        given.map(|((devices, edges), cloud)| self.answer(devices, edges, &cloud)).collect()
    }

    fn check(&self, samples: &[&[Option<&[u8]>]]) -> Result<(), SectionError> {
        let length = |what, expected, found| SectionError::Length { what, batch: 1, expected, found };
        for sample in samples {
            if sample.len() != self.devices.len() {
                return Err(length("slots", self.devices.len(), sample.len()));
            }
            if let Some(view) = sample.iter().flatten().find(|view| view.len() != self.view_bytes) {
                return Err(length("view", self.view_bytes, view.len()));
            }
        }
        Ok(())
    }

    /// Runs each device section once, on all views of its slot.
    fn run_devices(
        &mut self,
        samples: &[&[Option<&[u8]>]],
    ) -> Result<Vec<Vec<Option<DeviceOutput>>>, SectionError> {
        let mut given = vec![vec![None; self.devices.len()]; samples.len()];
        for (slot, device) in self.devices.iter_mut().enumerate() {
            let views: Vec<&[u8]> = samples.iter().filter_map(|sample| sample[slot]).collect();
            let mut outputs = device.run(&views.concat(), views.len())?.into_iter();
            for (given, sample) in given.iter_mut().zip(samples) {
                given[slot] = sample[slot].and_then(|_| outputs.next());
            }
        }
        Ok(given)
    }

    /// Runs each edge section once, on all samples of which one of its slots has a view.
    fn run_edges(
        &mut self,
        samples: &[Vec<Option<DeviceOutput>>],
    ) -> Result<Vec<Vec<Option<EdgeOutput>>>, SectionError> {
        let mut given = vec![vec![None; self.edges.len()]; samples.len()];
        for (index, edge) in self.edges.iter_mut().enumerate() {
            let slots: Vec<usize> = edge.slots().iter().map(|slot| slot.index()).collect();
            let maps = |sample: &Vec<Option<DeviceOutput>>| -> Vec<Option<Vec<u8>>> {
                let map = |slot: &usize| sample[*slot].as_ref().map(|device| device.features.clone());
                slots.iter().map(map).collect()
            };
            let (features, presence, seen) = lay_out(samples.iter().map(maps), self.feature_bytes);
            let batch = seen.iter().filter(|seen| **seen).count();
            let mut outputs = edge.run(batch, &features, &presence)?.into_iter();
            for (given, seen) in given.iter_mut().zip(seen) {
                given[index] = if seen { outputs.next() } else { None };
            }
        }
        Ok(given)
    }

    /// Cloud logits of each sample, all in one batch; empty for one that nobody saw.
    fn run_cloud(
        &mut self,
        devices: &[Vec<Option<DeviceOutput>>],
        edges: &[Vec<Option<EdgeOutput>>],
    ) -> Result<Vec<Vec<f32>>, SectionError> {
        let has_edges = !self.edges.is_empty();
        let maps = |(devices, edges): (&Vec<Option<DeviceOutput>>, &Vec<Option<EdgeOutput>>)| {
            let of_device = |device: &Option<DeviceOutput>| device.as_ref().map(|it| it.features.clone());
            let of_edge = |edge: &Option<EdgeOutput>| edge.as_ref().map(|it| it.features.clone());
            if has_edges {
                edges.iter().map(of_edge).collect::<Vec<_>>()
            } else {
                devices.iter().map(of_device).collect()
            }
        };
        let (features, presence, seen) = lay_out(devices.iter().zip(edges).map(maps), self.cloud_bytes);
        let batch = seen.iter().filter(|seen| **seen).count();
        let logits = self.cloud.run(batch, &features, &presence)?;
        let mut rows = logits.chunks_exact(self.class_prior.len());
        let row = |seen| if seen { rows.next().unwrap_or_default() } else { &[] };
        Ok(seen.into_iter().map(row).map(<[f32]>::to_vec).collect())
    }

    fn answer(
        &mut self,
        devices: Vec<Option<DeviceOutput>>,
        edges: Vec<Option<EdgeOutput>>,
        cloud: &[f32],
    ) -> Result<WholeAnswer, SectionError> {
        let mask: Vec<bool> = devices.iter().map(Option::is_some).collect();
        let presence = Presence::from_mask(&mask);
        let present = presence.present_count();
        let mut logits = ExitLogits::default();
        let (exit, assessment) = if present == 0 {
            (self.exits[0], Assessment::of_prior(&self.class_prior))
        } else {
            for &exit in self.exits {
                *logits.of_mut(exit) = match exit {
                    Exit::Device => {
                        devices.iter().flatten().flat_map(|device| device.scores.clone()).collect()
                    }
                    Exit::Local => {
                        let scores = devices.iter().map(|device| device.as_ref().map(|it| &it.scores[..]));
                        joined(self.local.as_mut(), scores, self.class_prior.len())?
                    }
                    Exit::Edge => {
                        let scores = edges.iter().map(|edge| edge.as_ref().map(|it| &it.scores[..]));
                        joined(self.edge.as_mut(), scores, self.class_prior.len())?
                    }
                    Exit::Cloud => cloud.to_vec(),
                };
            }
            self.leave(&logits, present)
        };
        let Assessment { class, confidence, .. } = assessment;
        Ok(WholeAnswer { presence, devices, edges, logits, exit, class, confidence })
    }

    /// The first exit that is sure enough; the last one takes what is left.
    fn leave(&self, logits: &ExitLogits, present: u32) -> (Exit, Assessment) {
        let assess = |exit: Exit| (exit, self.policy.of(exit).assess(logits.of(exit), present));
        let mut exits = self.exits.iter().copied().filter(|exit| *exit != Exit::Cloud).map(assess);
        exits.find(|(_, assessment)| assessment.leaves).unwrap_or_else(|| assess(Exit::Cloud))
    }
}

/// Maps of the samples that have one from somebody, one after another with zeros where there is none; presence; and which samples
/// those are.
fn lay_out(
    samples: impl Iterator<Item = Vec<Option<Vec<u8>>>>,
    bytes: usize,
) -> (Vec<u8>, Vec<bool>, Vec<bool>) {
    let absent = vec![0; bytes];
    let (mut features, mut presence, mut seen) = (Vec::new(), Vec::new(), Vec::new());
    for maps in samples {
        let is_seen = maps.iter().any(Option::is_some);
        seen.push(is_seen);
        for map in maps.iter().filter(|_| is_seen) {
            features.extend_from_slice(map.as_ref().unwrap_or(&absent));
            presence.push(map.is_some());
        }
    }
    (features, presence, seen)
}

/// Logits of an exit over the scores of its sources, `None` where one has none.
fn joined<'a>(
    exit: Option<&mut ScoresExit>,
    sources: impl ExactSizeIterator<Item = Option<&'a [f32]>>,
    classes: usize,
) -> Result<Vec<f32>, SectionError> {
    let Some(exit) = exit else { return Err(AggregateError::NoView.into()) };
    let (mut scores, mut present) = (vec![0.0; sources.len() * classes], SourceSet::EMPTY);
    for (index, (row, given)) in scores.chunks_exact_mut(classes).zip(sources).enumerate() {
        if let Some(given) = given {
            row.copy_from_slice(given);
            present |= Source::at(index).map_or(SourceSet::EMPTY, SourceSet::single);
        }
    }
    let mut logits = vec![0.0; classes];
    exit.scores(&scores, present, &mut logits)?;
    Ok(logits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::TractEngine;
    use crate::manifest::{Aggregation, Configuration, FeatureEncoding};
    use crate::policy::{ExitPolicy, ExitThreshold, Threshold};
    use crate::testing::TinyNetwork;

    fn whole(network: &TinyNetwork) -> Whole {
        Whole::load(&Bundle::from_bytes(&network.bundle()).unwrap(), &TractEngine::new()).unwrap()
    }

    /// Samples over every presence pattern of the network's slots.
    fn samples(network: &TinyNetwork) -> Vec<Vec<Option<Vec<u8>>>> {
        let slots = u64::from(network.slots);
        let sample = |mask: u64| {
            (0..slots)
                .map(|slot| (mask >> slot & 1 == 1).then(|| network.view_of(mask * slots + slot)))
                .collect()
        };
        (0..1 << slots).map(sample).collect()
    }

    fn views(samples: &[Vec<Option<Vec<u8>>>]) -> Vec<Vec<Option<&[u8]>>> {
        samples.iter().map(|sample| sample.iter().map(Option::as_deref).collect()).collect()
    }

    /// Every configuration, every join, every encoding that may be.
    fn networks() -> impl Iterator<Item = TinyNetwork> {
        use Aggregation::{Ap, Cc, Mp};
        use Configuration::{A, B, C, D, E, F};
        use FeatureEncoding::{Bits, F32, Pixels};
        [A, B, C, D, E, F].into_iter().flat_map(|configuration| {
            let encodings = if configuration == A { &[Pixels][..] } else { &[Bits, F32] };
            let joins = [(Mp, [Ap, Mp], Cc), (Ap, [Mp, Cc], Mp), (Cc, [Cc, Ap], Ap)];
            encodings.iter().flat_map(move |&encoding| {
                joins.map(|(local, edge, cloud)| {
                    let network = TinyNetwork::of(configuration);
                    TinyNetwork { local, edge, cloud, encoding, ..network }
                })
            })
        })
    }

    fn policy(threshold: ExitThreshold) -> Policy {
        let exit = ExitPolicy { threshold: Threshold::One(threshold), ..ExitPolicy::default() };
        Policy { device: exit.clone(), local: exit.clone(), edge: exit, ..Policy::default() }
    }

    #[test]
    fn batched_equals_alone_for_every_presence_pattern() {
        for network in networks() {
            let samples = samples(&network);
            let mut whole = whole(&network);
            let together = whole.run(&views(&samples)).unwrap();
            for (sample, together) in views(&samples).into_iter().zip(together) {
                let alone = &whole.run(&[sample]).unwrap()[0];
                assert_eq!(&together, alone);
            }
        }
    }

    #[test]
    fn a_threshold_of_one_ends_at_the_first_exit_and_zero_sends_all_to_the_cloud() {
        for network in networks() {
            let samples = samples(&network);
            for (threshold, exit) in [
                (ExitThreshold::ALWAYS, network.configuration.exits()[0]),
                (ExitThreshold::NEVER, Exit::Cloud),
            ] {
                let mut whole = whole(&network).with_policy(policy(threshold));
                let answers = whole.run(&views(&samples)).unwrap();
                assert!(answers.iter().skip(1).all(|answer| answer.exit == exit));
            }
        }
    }

    #[test]
    fn a_sample_that_is_unsure_before_the_edge_may_leave_there() {
        for configuration in [Configuration::D, Configuration::E, Configuration::F] {
            let network = TinyNetwork::of(configuration);
            let mut policy = policy(ExitThreshold::NEVER);
            policy.edge.threshold = Threshold::One(ExitThreshold::ALWAYS);
            let mut whole = whole(&network).with_policy(policy);
            let samples = samples(&network);
            let answers = whole.run(&views(&samples)).unwrap();
            assert!(answers.iter().skip(1).all(|answer| answer.exit == Exit::Edge));
        }
    }

    #[test]
    fn every_exit_of_the_configuration_has_logits_and_no_other() {
        for network in networks() {
            let samples = samples(&network);
            let answers = whole(&network).run(&views(&samples)).unwrap();
            for (answer, exit) in
                answers.iter().skip(1).flat_map(|answer| Exit::ALL.map(|exit| (answer, exit)))
            {
                let expected = if network.configuration.has(exit) { network.classes } else { 0 };
                assert_eq!(answer.logits.of(exit).len(), expected, "{exit:?}");
            }
        }
    }

    #[test]
    fn an_edge_of_which_nobody_sees_the_sample_has_no_part_in_it() {
        let network = TinyNetwork::of(Configuration::F);
        let view = network.view_of(3);
        let answer = &whole(&network).run(&[[None, Some(&view[..]), None]]).unwrap()[0];
        assert!(answer.edges[0].is_none());
        assert_eq!(answer.edges[1].as_ref().unwrap().scores, answer.logits.of(Exit::Edge));
    }

    #[test]
    fn the_class_prior_answers_a_sample_that_nobody_saw() {
        let network = TinyNetwork::default();
        let answer = &whole(&network).run(&[vec![None; 3]]).unwrap()[0];
        assert_eq!((answer.exit, answer.class, answer.confidence), (Exit::Local, 0, 0.0));
        assert_eq!(answer.logits, ExitLogits::default());
    }

    #[test]
    fn an_absent_view_is_no_black_view() {
        for network in networks().filter(|network| network.configuration == Configuration::C) {
            let seen = network.view_of(1);
            let black = vec![0; seen.len()];
            let mut whole = whole(&network);
            let absent = whole.run(&[[Some(&seen[..]), None, None]]).unwrap();
            let black = whole.run(&[[Some(&seen[..]), Some(&black[..]), Some(&black[..])]]).unwrap();
            assert_ne!(absent[0].logits.of(Exit::Cloud), black[0].logits.of(Exit::Cloud));
        }
    }

    #[test]
    fn samples_that_do_not_fit_are_refused() {
        let network = TinyNetwork::default();
        let mut whole = whole(&network);
        let error = whole.run(&[vec![None; 4]]).unwrap_err().to_string();
        assert!(error.contains("slots of 1 samples: expected 3, found 4"), "{error}");
        let error = whole.run(&[[Some(&[0u8; 5][..]), None, None]]).unwrap_err().to_string();
        assert!(error.contains("view of 1 samples: expected 192, found 5"), "{error}");
        assert_eq!(whole.run(&[[None; 3]; 0]).unwrap(), []);
    }
}
