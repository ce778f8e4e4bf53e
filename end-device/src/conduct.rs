//! What a device does with what its section gave, where it is not one of several that only answer.

use headwater_inference::bundle::Bundle;
use headwater_inference::manifest::FeatureEncoding;
use headwater_inference::policy::{ExitPolicy, Policy};
use headwater_inference::sections::DeviceOutput;
use headwater_protocol::{DeviceDecision, Exit, PolicyId};

/// What follows a run of the section, from the network's configuration.
#[derive(Clone, Debug)]
pub(crate) struct Conduct {
    /// The exit `device`, where the device is alone and may decide.
    exit: Option<(ExitPolicy, PolicyId)>,
    has_section: bool,
    encoding: FeatureEncoding,
}

/// What the device says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Say {
    /// Scores; the features are kept until asked for.
    Summary,
    /// Scores, and the features with them: there is nobody in front of the next tier who could be sure.
    SummaryAndFeatures,
    /// The view itself.
    Input,
    /// Its own decision, and nothing else.
    Decided(DeviceDecision),
}

impl Conduct {
    /// That of the devices of a network, under the bundle's policy or the one given in its place.
    pub(crate) fn of(bundle: &Bundle, policy: Option<(Policy, PolicyId)>) -> Self {
        let manifest = bundle.manifest();
        let exit = || match policy {
            Some((policy, id)) => (policy.device, id),
            None => (bundle.policy().device.clone(), bundle.policy_id()),
        };
        Self {
            exit: manifest.configuration.has(Exit::Device).then(exit),
            has_section: manifest.configuration.has_device_section(),
            encoding: manifest.features.encoding,
        }
    }

    /// Whether features follow a summary without being asked for.
    pub(crate) fn sends_features_unasked(&self) -> bool {
        self.exit.is_some()
    }

    /// What to say of an output.
    ///
    /// # Errors
    /// A sentence, when the section gave floats that are no numbers: the leader would refuse them as garbage.
    pub(crate) fn on(&self, output: &DeviceOutput) -> Result<Say, String> {
        if !self.has_section {
            return Ok(Say::Input);
        }
        if !self.encoding.takes(&output.features) {
            return Err("the section gave features that are not finite".into());
        }
        let Some((exit, policy)) = &self.exit else { return Ok(Say::Summary) };
        let assessment = exit.assess(&output.scores, 1);
        if !assessment.leaves {
            return Ok(Say::SummaryAndFeatures);
        }
        let (class, confidence) = (assessment.class, assessment.confidence);
        Ok(Say::Decided(DeviceDecision { class, confidence, policy: *policy }))
    }
}

#[cfg(test)]
mod tests {
    use headwater_inference::manifest::Configuration;
    use headwater_inference::policy::{ExitThreshold, Threshold};
    use headwater_inference::testing::TinyNetwork;

    use super::*;

    fn conduct(configuration: Configuration, threshold: f32) -> Conduct {
        let network = TinyNetwork { policy: policy(threshold), ..TinyNetwork::of(configuration) };
        Conduct::of(&Bundle::from_bytes(&network.bundle()).unwrap(), None)
    }

    fn policy(threshold: f32) -> Policy {
        let mut policy = Policy::default();
        policy.device.threshold = Threshold::One(ExitThreshold::new(threshold).unwrap());
        policy
    }

    fn output() -> DeviceOutput {
        DeviceOutput { scores: vec![0.0, 9.0, 0.0, 0.0], features: vec![0; 8] }
    }

    #[test]
    fn a_device_that_is_alone_decides_when_it_is_sure_and_sends_all_when_not() {
        for configuration in [Configuration::B, Configuration::D] {
            let sure = conduct(configuration, 0.5).on(&output());
            assert!(matches!(sure, Ok(Say::Decided(DeviceDecision { class: 1, .. }))), "{sure:?}");
            assert_eq!(conduct(configuration, 0.0).on(&output()), Ok(Say::SummaryAndFeatures));
        }
    }

    #[test]
    fn a_policy_of_its_own_takes_the_place_of_the_bundle_s() {
        let network = TinyNetwork { policy: policy(0.0), ..TinyNetwork::of(Configuration::B) };
        let bundle = Bundle::from_bytes(&network.bundle()).unwrap();
        let id = PolicyId([7; 8]);
        let said = Conduct::of(&bundle, Some((policy(1.0), id))).on(&output());
        assert!(matches!(said, Ok(Say::Decided(DeviceDecision { policy, .. })) if policy == id), "{said:?}");
    }

    #[test]
    fn a_device_of_a_group_never_decides() {
        for configuration in [Configuration::C, Configuration::E, Configuration::F] {
            assert_eq!(conduct(configuration, 1.0).on(&output()), Ok(Say::Summary));
        }
    }

    #[test]
    fn a_device_without_a_section_sends_its_view() {
        assert_eq!(conduct(Configuration::A, 1.0).on(&DeviceOutput::default()), Ok(Say::Input));
    }

    #[test]
    fn floats_that_are_no_numbers_are_not_sent() {
        let network = TinyNetwork { encoding: FeatureEncoding::F32, ..TinyNetwork::of(Configuration::C) };
        let conduct = Conduct::of(&Bundle::from_bytes(&network.bundle()).unwrap(), None);
        let features = f32::NAN.to_le_bytes().to_vec();
        assert!(conduct.on(&DeviceOutput { features, ..output() }).is_err());
    }
}
