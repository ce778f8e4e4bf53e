//! The whole network in one process: all sections, for evaluation, parity and tests.
//!
//! The tiers, run as separate services, must give the same answers.

use headwater_protocol::{ByExit, Exit, ExitWord, Presence, Slot, SourceSet};

use crate::aggregate::AggregateError;
use crate::bundle::Bundle;
use crate::cascade::{Cascade, ExitAnswer};
use crate::engine::Engine;
use crate::exit::{ExitInput, argmax};
use crate::leader::Exits;
use crate::manifest::NetworkManifest;
use crate::policy::Policy;
use crate::sections::{CloudSection, DeviceSection, EdgeSection, ScoresExit, SectionError, TierOutput};

/// All sections of a network, and the policy.
pub struct Whole {
    devices: Vec<DeviceSection>,
    edges: Vec<EdgeSection>,
    joined: Exits,
    cloud: CloudSection,
    policy: Policy,
    manifest: NetworkManifest,
}

/// Outputs of the devices or edges for one sample; `None` for a device or edge that no view reached.
type TierOutputs = Vec<Option<TierOutput>>;

/// Outputs of the whole network for one sample, at every exit.
#[derive(Clone, Debug, PartialEq)]
pub struct WholeAnswer {
    /// Slots with a view are present, the others not in view.
    pub presence: Presence,
    /// Output of each device section; `None` if the device had no view.
    pub devices: Vec<Option<TierOutput>>,
    /// Output of each edge section; `None` if none of the edge's slots had a view.
    pub edges: Vec<Option<TierOutput>>,
    /// Logits at every exit, also at exits after the exit at which the sample leaves; none if no device had a view.
    pub logits: ByExit<Vec<f32>>,
    /// The exit at which the sample leaves under the policy; the first one for a sample without a view.
    pub exit: Exit,
    /// Class at that exit; the class prior answers a sample without a view.
    pub class: u16,
    /// Confidence at that exit.
    pub confidence: f32,
}

impl WholeAnswer {
    /// The input of an exit of the network for this sample.
    ///
    /// # Panics
    /// When no device had a view, or the network has no such exit.
    pub fn input(&self, exit: Exit) -> ExitInput<'_> {
        ExitInput::new(&self.logits[exit], self.presence.present_count(), device_classes(&self.devices))
    }
}

impl Whole {
    /// Loads every section of a whole bundle, and its policy.
    ///
    /// # Errors
    /// When the bundle does not hold every section, or the engine refuses one.
    pub fn load(bundle: &Bundle, engine: &dyn Engine) -> Result<Self, SectionError> {
        let manifest = bundle.manifest().clone();
        let slots = Slot::first(usize::from(manifest.slots));
        let edges = manifest.edge.as_ref().map_or(0, |edge| edge.groups.len());
        let edges = (0..edges).map(|edge| EdgeSection::load(bundle, edge, engine));
        Ok(Self {
            devices: slots.map(|slot| DeviceSection::load(bundle, slot, engine)).collect::<Result<_, _>>()?,
            edges: edges.collect::<Result<_, _>>()?,
            joined: Exits::load(bundle, engine)?,
            cloud: CloudSection::load(bundle, engine)?,
            policy: bundle.policy().clone(),
            manifest,
        })
    }

    /// Replaces the policy.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Answers a batch. Each sample has one view per slot, `None` if the slot does not see the object.
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
        let cloud = self.run_cloud(if self.edges.is_empty() { &devices } else { &edges })?;
        let outputs = devices.into_iter().zip(edges).zip(cloud);
        outputs.map(|((devices, edges), cloud)| self.answer(devices, edges, &cloud)).collect()
    }

    fn check(&self, samples: &[&[Option<&[u8]>]]) -> Result<(), SectionError> {
        let length = |what, expected, found| SectionError::Length { what, batch: 1, expected, found };
        let view_bytes = self.manifest.preprocessing.view_bytes();
        for sample in samples {
            if sample.len() != self.devices.len() {
                return Err(length("slots", self.devices.len(), sample.len()));
            }
            if let Some(view) = sample.iter().flatten().find(|view| view.len() != view_bytes) {
                return Err(length("view", view_bytes, view.len()));
            }
        }
        Ok(())
    }

    /// Runs each device section once, on all views of the section's slot.
    fn run_devices(&mut self, samples: &[&[Option<&[u8]>]]) -> Result<Vec<TierOutputs>, SectionError> {
        let mut all = vec![vec![None; self.devices.len()]; samples.len()];
        for (slot, device) in self.devices.iter_mut().enumerate() {
            let views: Vec<&[u8]> = samples.iter().filter_map(|sample| sample[slot]).collect();
            let mut outputs = device.run(&views.concat(), views.len())?.into_iter();
            for (all, sample) in all.iter_mut().zip(samples) {
                all[slot] = sample[slot].and_then(|_| outputs.next());
            }
        }
        Ok(all)
    }

    /// Runs each edge section once, on the samples that at least one of the edge's slots sees.
    fn run_edges(&mut self, samples: &[TierOutputs]) -> Result<Vec<TierOutputs>, SectionError> {
        let mut all = vec![vec![None; self.edges.len()]; samples.len()];
        for (index, edge) in self.edges.iter_mut().enumerate() {
            let slots = edge.slots().to_vec();
            let maps =
                samples.iter().map(|sample| slots.iter().map(|slot| sample[slot.index()].as_ref()).collect());
            let batch = MapBatch::new(maps, self.manifest.features.packed_bytes());
            let mut outputs = edge.run(batch.len(), &batch.maps, &batch.presence)?.into_iter();
            for (all, seen) in all.iter_mut().zip(batch.seen) {
                all[index] = if seen { outputs.next() } else { None };
            }
        }
        Ok(all)
    }

    /// Cloud logits of each sample, from one batch; empty for a sample without a view.
    fn run_cloud(&mut self, sources: &[TierOutputs]) -> Result<Vec<Vec<f32>>, SectionError> {
        let maps = sources.iter().map(|sample| sample.iter().map(Option::as_ref).collect());
        let batch = MapBatch::new(maps, self.manifest.cloud_map().packed_bytes());
        let logits = self.cloud.run(batch.len(), &batch.maps, &batch.presence)?;
        let mut rows = logits.chunks_exact(self.manifest.classes());
        let row = |seen| if seen { rows.next().unwrap_or_default() } else { &[] };
        Ok(batch.seen.into_iter().map(row).map(<[f32]>::to_vec).collect())
    }

    fn answer(
        &mut self,
        devices: TierOutputs,
        edges: TierOutputs,
        cloud: &[f32],
    ) -> Result<WholeAnswer, SectionError> {
        let mask: Vec<bool> = devices.iter().map(Option::is_some).collect();
        let presence = Presence::from_row(&mask);
        let present = presence.present_count();
        let (exits, classes) = (self.manifest.exits(), self.manifest.classes());
        let mut logits = ByExit::default();
        for &exit in exits.iter().filter(|_| present > 0) {
            let of_exit = match exit.word() {
                ExitWord::Device => {
                    devices.iter().flatten().flat_map(|device| device.scores.clone()).collect()
                }
                ExitWord::Local => joined(self.joined.local.as_mut(), &devices, classes)?,
                ExitWord::Edge => joined(self.joined.edge.as_mut(), &edges, classes)?,
                ExitWord::Cloud => cloud.to_vec(),
            };
            logits.insert(exit, of_exit);
        }
        let cascade = Cascade { exits, policy: &self.policy, class_prior: &self.manifest.class_prior };
        let input = |exit| ExitInput::new(&logits[exit], present, device_classes(&devices));
        let ExitAnswer { exit, assessment } = cascade.answer(present, input);
        let (class, confidence) = (assessment.class, assessment.confidence);
        Ok(WholeAnswer { presence, devices, edges, logits, exit, class, confidence })
    }
}

/// The most likely class of each device that has scores, in the order of slots.
fn device_classes(devices: &[Option<TierOutput>]) -> impl Iterator<Item = u16> {
    let scores = devices.iter().flatten().map(|device| &device.scores[..]);
    scores.filter(|scores| !scores.is_empty()).map(argmax)
}

/// Maps of the samples that at least one source sees, one after another.
#[derive(Default)]
struct MapBatch {
    /// Maps, `[samples seen, sources, bytes of a map]`; zeros for an absent source.
    maps: Vec<u8>,
    /// True for each source that has a map, `[samples seen, sources]`.
    presence: Vec<bool>,
    /// True for each sample that at least one source sees, `[samples]`.
    seen: Vec<bool>,
}

impl MapBatch {
    /// Each sample has the output of each source, `None` for an absent source; a map has `bytes` bytes.
    fn new<'a>(samples: impl Iterator<Item = Vec<Option<&'a TierOutput>>>, bytes: usize) -> Self {
        let (absent, mut batch) = (vec![0; bytes], Self::default());
        for sources in samples {
            let seen = sources.iter().any(Option::is_some);
            batch.seen.push(seen);
            for source in sources.iter().filter(|_| seen) {
                batch.maps.extend_from_slice(source.map_or(&absent, |output| &output.features));
                batch.presence.push(source.is_some());
            }
        }
        batch
    }

    /// Number of samples seen.
    fn len(&self) -> usize {
        self.seen.iter().filter(|seen| **seen).count()
    }
}

/// Logits of an exit over the scores of its sources.
fn joined(
    exit: Option<&mut ScoresExit>,
    sources: &[Option<TierOutput>],
    classes: usize,
) -> Result<Vec<f32>, SectionError> {
    let Some(exit) = exit else { return Err(AggregateError::NoView.into()) };
    let mut scores = vec![0.0; sources.len() * classes];
    for (row, source) in scores.chunks_exact_mut(classes).zip(sources) {
        if let Some(output) = source {
            row.copy_from_slice(&output.scores);
        }
    }
    let present: Vec<bool> = sources.iter().map(Option::is_some).collect();
    let mut logits = vec![0.0; classes];
    exit.scores(&scores, SourceSet::from_row(&present), &mut logits)?;
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

    /// One sample for each presence pattern of the network's slots.
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

    /// Every configuration with every encoding that it allows, each with three choices of joins that together use every aggregation.
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
        [Exit::DEVICE, Exit::LOCAL, Exit::EDGE]
            .into_iter()
            .fold(Policy::default(), |policy, at| policy.with(at, exit.clone()))
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
                (ExitThreshold::ONLY_CERTAIN, Exit::CLOUD),
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
            let mut policy = policy(ExitThreshold::ONLY_CERTAIN);
            policy.of_mut(Exit::EDGE).threshold = Threshold::One(ExitThreshold::ALWAYS);
            let mut whole = whole(&network).with_policy(policy);
            let samples = samples(&network);
            let answers = whole.run(&views(&samples)).unwrap();
            assert!(answers.iter().skip(1).all(|answer| answer.exit == Exit::EDGE));
        }
    }

    #[test]
    fn every_exit_of_the_configuration_has_logits_and_no_other() {
        for network in networks() {
            let samples = samples(&network);
            let answers = whole(&network).run(&views(&samples)).unwrap();
            for (answer, exit) in
                answers.iter().skip(1).flat_map(|answer| Exit::FIRST.map(|exit| (answer, exit)))
            {
                let expected = network.configuration.has(exit).then_some(network.classes);
                assert_eq!(answer.logits.get(exit).map(Vec::len), expected, "{exit:?}");
            }
        }
    }

    #[test]
    fn an_edge_whose_slots_see_nothing_has_no_part_in_the_sample() {
        let network = TinyNetwork::of(Configuration::F);
        let view = network.view_of(3);
        let answer = &whole(&network).run(&[[None, Some(&view[..]), None]]).unwrap()[0];
        assert!(answer.edges[0].is_none());
        assert_eq!(answer.edges[1].as_ref().unwrap().scores, answer.logits[Exit::EDGE]);
    }

    #[test]
    fn the_class_prior_answers_a_sample_without_a_view() {
        let network = TinyNetwork::default();
        let answer = &whole(&network).run(&[vec![None; 3]]).unwrap()[0];
        assert_eq!((answer.exit, answer.class, answer.confidence), (Exit::LOCAL, 0, 0.0));
        assert_eq!(answer.logits, ByExit::default());
    }

    #[test]
    fn an_absent_view_differs_from_a_black_view() {
        for network in networks().filter(|network| network.configuration == Configuration::C) {
            let seen = network.view_of(1);
            let black = vec![0; seen.len()];
            let mut whole = whole(&network);
            let absent = whole.run(&[[Some(&seen[..]), None, None]]).unwrap();
            let black = whole.run(&[[Some(&seen[..]), Some(&black[..]), Some(&black[..])]]).unwrap();
            assert_ne!(absent[0].logits[Exit::CLOUD], black[0].logits[Exit::CLOUD]);
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
