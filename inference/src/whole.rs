//! The network in one piece: every section in one place, as evaluation, parity and tests run it. What the tiers answer
//! together must equal this.

use headwater_protocol::{Exit, Presence, Slot};

use crate::bundle::Bundle;
use crate::engine::Engine;
use crate::exit::Assessment;
use crate::policy::Policy;
use crate::sections::{CloudSection, DeviceOutput, DeviceSection, LocalExit, SectionError};

/// All sections of a network of configuration (c), and the policy.
pub struct Whole {
    devices: Vec<DeviceSection>,
    local: LocalExit,
    cloud: CloudSection,
    policy: Policy,
    class_prior: Vec<f32>,
    view_bytes: usize,
    feature_bytes: usize,
}

/// What the network says of one sample, at every exit.
#[derive(Clone, Debug, PartialEq)]
pub struct WholeAnswer {
    /// Slots with a view are present, the others not in view.
    pub presence: Presence,
    /// What each device gave; `None` where it had no view.
    pub devices: Vec<Option<DeviceOutput>>,
    /// Logits of the exit `local`; empty when no device had a view.
    pub local: Vec<f32>,
    /// Logits of the exit `cloud`, whether or not the sample reaches it; empty when no device had a view.
    pub cloud: Vec<f32>,
    /// Where the sample leaves under the policy. Without a view: `local`, and the class prior answers.
    pub exit: Exit,
    /// The class at that exit.
    pub class: u16,
    /// The confidence at that exit.
    pub confidence: f32,
}

impl Whole {
    /// Loads every section of a whole bundle, and its policy.
    ///
    /// # Errors
    /// When the bundle does not hold them all or the engine refuses one.
    pub fn load(bundle: &Bundle, engine: &dyn Engine) -> Result<Self, SectionError> {
        let manifest = bundle.manifest();
        let slots = Slot::first(usize::from(manifest.slots));
        Ok(Self {
            devices: slots.map(|slot| DeviceSection::load(bundle, slot, engine)).collect::<Result<_, _>>()?,
            local: LocalExit::load(bundle, engine)?,
            cloud: CloudSection::load(bundle, engine)?,
            policy: bundle.policy().clone(),
            class_prior: manifest.class_prior.clone(),
            view_bytes: manifest.preprocessing.view_bytes(),
            feature_bytes: manifest.features.packed_bytes(),
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
        let cloud = self.run_cloud(&devices)?;
        devices.into_iter().zip(cloud).map(|(devices, cloud)| self.answer(devices, cloud)).collect()
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

    /// Cloud logits of each sample, all in one batch; empty for one that nobody saw.
    fn run_cloud(&mut self, samples: &[Vec<Option<DeviceOutput>>]) -> Result<Vec<Vec<f32>>, SectionError> {
        let seen = |sample: &[Option<DeviceOutput>]| sample.iter().any(Option::is_some);
        let absent = vec![0; self.feature_bytes];
        let (mut features, mut presence, mut batch) = (Vec::new(), Vec::new(), 0);
        for sample in samples.iter().filter(|sample| seen(sample)) {
            for device in sample {
                features.extend_from_slice(device.as_ref().map_or(&absent, |device| &device.features));
                presence.push(device.is_some());
            }
            batch += 1;
        }
        let logits = self.cloud.run(batch, &features, &presence)?;
        let mut rows = logits.chunks_exact(self.class_prior.len());
        let row = |sample: &Vec<_>| if seen(sample) { rows.next().unwrap_or_default() } else { &[] };
        Ok(samples.iter().map(row).map(<[f32]>::to_vec).collect())
    }

    fn answer(
        &mut self,
        devices: Vec<Option<DeviceOutput>>,
        cloud: Vec<f32>,
    ) -> Result<WholeAnswer, SectionError> {
        let mask: Vec<bool> = devices.iter().map(Option::is_some).collect();
        let presence = Presence::from_mask(&mask);
        let present = presence.present_count();
        let classes = self.class_prior.len();
        let (local, exit, assessment) = if present == 0 {
            (Vec::new(), Exit::Local, Assessment::of_prior(&self.class_prior))
        } else {
            let mut scores = vec![0.0; devices.len() * classes];
            for (row, device) in scores.chunks_exact_mut(classes).zip(&devices) {
                if let Some(device) = device {
                    row.copy_from_slice(&device.scores);
                }
            }
            let mut local = vec![0.0; classes];
            self.local.scores(&scores, presence.present_mask(), &mut local)?;
            let assessment = self.policy.local.assess(&local, present);
            if assessment.leaves {
                (local, Exit::Local, assessment)
            } else {
                (local, Exit::Cloud, self.policy.cloud.assess(&cloud, present))
            }
        };
        let Assessment { class, confidence, .. } = assessment;
        Ok(WholeAnswer { presence, devices, local, cloud, exit, class, confidence })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::TractEngine;
    use crate::manifest::Aggregation;
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

    fn networks() -> impl Iterator<Item = TinyNetwork> {
        use Aggregation::{Ap, Cc, Mp};
        [(Mp, Cc), (Ap, Mp), (Cc, Ap)].into_iter().map(|(local, cloud)| TinyNetwork {
            local,
            cloud,
            ..TinyNetwork::default()
        })
    }

    fn policy(threshold: ExitThreshold) -> Policy {
        let local = ExitPolicy { threshold: Threshold::One(threshold), ..ExitPolicy::default() };
        Policy { local, ..Policy::default() }
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
    fn a_threshold_of_one_keeps_all_samples_local_and_zero_sends_them_on() {
        for network in networks() {
            let samples = samples(&network);
            for (threshold, exit) in
                [(ExitThreshold::ALWAYS, Exit::Local), (ExitThreshold::NEVER, Exit::Cloud)]
            {
                let mut whole = whole(&network).with_policy(policy(threshold));
                let answers = whole.run(&views(&samples)).unwrap();
                assert!(answers.iter().skip(1).all(|answer| answer.exit == exit));
            }
        }
    }

    #[test]
    fn the_class_prior_answers_a_sample_that_nobody_saw() {
        let network = TinyNetwork::default();
        let answer = &whole(&network).run(&[vec![None; 3]]).unwrap()[0];
        assert_eq!((answer.exit, answer.class, answer.confidence), (Exit::Local, 0, 0.0));
        assert!(answer.local.is_empty() && answer.cloud.is_empty());
    }

    #[test]
    fn an_absent_view_is_no_black_view() {
        for network in networks() {
            let seen = network.view_of(1);
            let black = vec![0; seen.len()];
            let mut whole = whole(&network);
            let absent = whole.run(&[[Some(&seen[..]), None, None]]).unwrap();
            let black = whole.run(&[[Some(&seen[..]), Some(&black[..]), Some(&black[..])]]).unwrap();
            assert_ne!(absent[0].cloud, black[0].cloud);
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
